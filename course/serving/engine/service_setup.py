"""Turns what `simulate_service` is given into the records of its loop; no step is taken here."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from course.serving._arguments import FloatArray, IntArray, SmallArray, whole
from course.serving.engine.admission import Admission, LongPrompts, PythonAdmission
from course.serving.engine.clients import MOST_DOUBLINGS, Patience, Retry, Users
from course.serving.engine.config import EngineConfig
from course.serving.engine.kernels import codes
from course.serving.engine.kernels import service as k
from course.serving.engine.kernels.service_state import (
    Asked,
    Attempts,
    Bursts,
    Gaps,
    Pool,
    Seats,
    Server,
    Steps,
    Terms,
)
from course.serving.engine.orders import FirstCome, MostUrgent, ShortestFirst
from course.serving.workload import Workload

NO_LIMIT = 2**62
FIRST_SEATS = 1024
"""Seats there is memory for at first, where more are allowed."""

STAY_COLUMNS = tuple(name for name in Attempts._fields if name.startswith("stay_"))
"""The columns of `Attempts` that have an entry a stay in a seat, not an attempt."""

_NO_NUMBERS: FloatArray = np.empty(0)
_NO_COUNTS: IntArray = np.empty(0, dtype=np.int64)


@dataclass(frozen=True)
class Setting:
    """Everything that decides a run besides the workload and the step's price."""

    config: EngineConfig
    patience: Patience | None
    retry: Retry
    admission: Admission | PythonAdmission
    long_prompts: LongPrompts | None
    users: Users | None
    seed: int
    horizon_s: float
    handed: bool = False  # prompts come computed, with one token emitted
    starts_s: FloatArray | None = None  # (closed) instead of what `users` would draw
    think_s: FloatArray | None = None  # (closed) by request, instead of `users.think_s`


def asked_of(work: Workload, setting: Setting) -> Asked:
    """Return the workload's columns; tenants are numbered where there are buckets."""
    cached, guess, value = work.cached_prefix_tokens, work.predicted_output_tokens, work.priority
    delay_s = setting.config.front_end_s
    prefixes = work.prefixes if setting.config.enable_prefix_caching else None
    asked = Asked(
        arrival_s=_NO_NUMBERS if setting.users else later(work.arrival_s, delay_s),
        prompt=work.prompt_tokens,
        output=work.output_tokens,
        cached=_NO_COUNTS if cached is None else cached,
        guess=work.output_tokens if guess is None else guess,
        value=_NO_NUMBERS if value is None else value,
        tenant=tenant_numbers(work if _buckets(setting.admission) else work.first(0)),
        think_s=_NO_NUMBERS if setting.think_s is None else setting.think_s + delay_s,
        names=_NO_COUNTS if prefixes is None else prefixes.names,
        name_begin=_NO_COUNTS if prefixes is None else prefixes.begin,
        shared=_NO_COUNTS if prefixes is None else prefixes.shared,
    )
    for column in asked:
        # an array that may be written to is of another type, for which all would be compiled anew
        column.setflags(write=False)
    return asked


def later(times_s: FloatArray, delay_s: float) -> FloatArray:
    """Return the times, so much later; the array itself where that is nothing."""
    return times_s + delay_s if delay_s else times_s


def tenant_numbers(work: Workload) -> SmallArray:
    """Return a number for each request's label, from 0; all 0 without labels."""
    if work.label is None:
        return np.zeros(len(work), dtype=np.int32)
    return np.unique(work.label, return_inverse=True)[1].astype(np.int32)


def _buckets(admission: Admission | PythonAdmission) -> bool:
    return isinstance(admission, Admission) and admission.tenant_tokens_per_s is not None


def terms_of(setting: Setting, cost_code: int, work: Workload) -> Terms:
    """Return engine, clients and gate as plain numbers."""
    requests = len(work)
    longest = int(work.prompt_tokens.max() + work.output_tokens.max()) if requests else 1
    config, order = setting.config, setting.config.order_key
    patience = setting.patience or Patience()
    retry, long = setting.retry, setting.long_prompts
    gate = setting.admission if isinstance(setting.admission, Admission) else Admission()
    endless = retry.attempts is None and setting.horizon_s == math.inf
    way, speculation, delay_s = config.way, config.speculation, config.front_end_s
    limited = config.num_kv_blocks is not None
    # a larger one holds nobody's more, and costs memory; but names go by blocks
    block_size = config.block_size
    if not config.enable_prefix_caching:
        block_size = min(block_size, longest + 1)
    by_order = {FirstCome: codes.FCFS, ShortestFirst: codes.SJF, MostUrgent: codes.PRIORITY}
    return Terms(
        seats=1 if config.way.name == "single" else config.max_num_seqs,
        budget=config.max_num_batched_tokens,
        chunked=config.enable_chunked_prefill,
        blocks=-1 if config.num_kv_blocks is None else config.num_kv_blocks,
        block_size=block_size,
        order=by_order.get(type(order), codes.CUSTOM),
        cost=cost_code,
        horizon_s=setting.horizon_s,
        max_wait_s=_or_inf(getattr(order, "max_wait_s", None)),
        ageing_s=_or_inf(getattr(order, "ageing_s", None)),
        ttft_s=_or_inf(patience.ttft_s) - delay_s,
        e2e_s=_or_inf(patience.e2e_s) - delay_s,
        e2e_per_token_s=patience.e2e_per_output_token_s,
        noticed=bool(patience.noticed),
        attempts=NO_LIMIT if retry.attempts is None else retry.attempts,
        delay_s=retry.delay_s,
        jitter=retry.jitter,
        round_trip_s=retry.round_trip_s + delay_s,
        budget_share=-1.0 if retry.budget_share is None else retry.budget_share,
        budget_burst=retry.budget_burst,
        seed=setting.seed,
        closed=setting.users is not None,
        think_s=(setting.users.think_s if setting.users else 0.0) + delay_s,
        fruitless=min(10_000 + 100 * requests, 2_000_000) if endless else -1,
        own_policy=isinstance(setting.admission, PythonAdmission),
        most_waiting=_or_none(gate.max_waiting_requests),
        most_waiting_tokens=_or_none(gate.max_waiting_tokens),
        most_wait_s=_or_inf(gate.max_predicted_wait_s),
        urgent_wait_s=_or_inf(gate.urgent_only_wait_s),
        degrade_wait_s=_or_inf(gate.degrade_wait_s),
        least_urgent=gate.least_urgent or 0.0,
        degrade_to=setting.admission.degrade_to_tokens or NO_LIMIT,
        gated=gate.kv_watermark is not None,
        watermark=1.0 if gate.kv_watermark is None else gate.kv_watermark,
        tenant_tokens_per_s=-1.0 if gate.tenant_tokens_per_s is None else gate.tenant_tokens_per_s,
        tenant_burst=gate.tenant_burst_tokens or 0.0,
        split=long is not None,
        long_over=long.over_tokens if long else NO_LIMIT,
        long_chunk=(long.chunk_tokens if long else None) or NO_LIMIT,
        long_running=(long.max_running if long else None) or NO_LIMIT,
        long_wait_s=_or_inf(long.max_wait_s if long else None),
        handed=setting.handed,
        whole_fits=config.scheduler_reserve_full_isl,
        kept_blocks=config.kept_blocks,
        asynchronous=config.async_scheduling,
        alone=way.name == "sglang",
        token_ratio=way.new_token_ratio or 0.0,
        drafts=speculation.num_speculative_tokens if speculation else 0,
        acceptance=speculation.acceptance if speculation else 0.0,
        draft_seed=speculation.seed if speculation else 0,
        window_s=-1.0 if way.name not in ("windowed", "adaptive") else way.window_s or 0.0,
        adaptive=way.name == "adaptive",
        company=config.max_num_seqs,
        caching=config.enable_prefix_caching,
        name_tokens=_name_tokens(work, config),
        table_shift=62 - _table_bits(config) if config.enable_prefix_caching else 0,
        width=-(-longest // block_size),
        logged=limited or not config.enable_chunked_prefill or speculation is not None,
    )


def _name_tokens(work: Workload, config: EngineConfig) -> int:
    """Return the tokens that a block's name stands for; 0 where there are no names by block."""
    if not config.enable_prefix_caching:
        return 0
    if work.cached_prefix_tokens is not None:
        raise ValueError(
            "work.cached_prefix_tokens says by hand what enable_prefix_caching=True would find; "
            "give Workload.prefixes instead, or switch the cache off"
        )
    tokens = work.prefixes.block_tokens if work.prefixes else 0
    if tokens % config.block_size:
        raise ValueError(
            f"block_size={config.block_size} does not divide the {tokens} tokens that each of "
            "work.prefixes stands for; give a size that does, as 16"
        )
    return tokens


def _table_bits(config: EngineConfig) -> int:
    """Return the size of the table of names: at most half of it is in use."""
    return max((2 * (config.num_kv_blocks or 1)).bit_length(), 4)


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else float(value)


def _or_none(value: int | None) -> int:
    return -1 if value is None else value


def empty_attempts(terms: Terms, room: int) -> Attempts:
    """Return the record of attempts with room for so many; what a run will not use stays empty."""
    ranked = room if terms.order in (codes.SJF, codes.PRIORITY) else 0
    patient = room if math.isfinite(min(terms.ttft_s, terms.e2e_s)) else 0
    split = room if terms.split else 0
    door = room if terms.gated or terms.own_policy else 0
    stays = room + min(terms.seats, room)
    small, tiny, real = np.int32, np.int8, np.float64
    return Attempts(
        request=np.empty(room, small),
        number=np.empty(room, small),
        sent_s=np.empty(room, real),
        verdict=np.empty(room, tiny),
        status=np.empty(room, tiny),
        scheduled_s=np.empty(room, real),
        first_token_s=np.empty(room, real),
        end_s=np.empty(room, real),
        output=np.empty(room, small),
        emitted=np.empty(room, small),
        computed=np.empty(room, np.int64),
        recomputed=np.empty(room, np.int64),
        preemptions=np.empty(room, small),
        high=np.empty(room, small),
        place=np.empty(room, tiny),
        before=np.empty(room, small),
        after=np.empty(room, small),
        due_s=np.empty(patient, real),
        gives=np.empty(patient, small),
        leavers=np.empty(patient, small),
        joined_s=np.empty(split, real),
        rank=np.empty(ranked, real),
        heap=np.empty(ranked, small),
        long_heap=np.empty(min(ranked, split), small),
        entered_s=np.empty(door, real),
        first_step=np.empty(room, small),
        gap=np.empty(room if terms.logged else 0, small),
        hit=np.empty(room if terms.caching else 0, small),
        recovered=np.empty(room if terms.caching else 0, small),
        **{name: np.empty(stays, small) for name in STAY_COLUMNS},
    )


def empty_gaps(terms: Terms) -> Gaps:
    """Return the table of gaps with room for the first few."""
    room = 256 if terms.logged else 0
    return Gaps(*(np.empty(room, np.int32) for _ in Gaps._fields))


def empty_bursts(terms: Terms, room: int) -> Bursts:
    """Return the table of bursts with room for so many."""
    room = room if terms.drafts > 0 else 0
    return Bursts(*(np.empty(room, np.int32) for _ in Bursts._fields))


def new_pool(terms: Terms, config: EngineConfig) -> Pool:
    """Return the blocks, all free in the order of their numbers."""
    blocks = terms.blocks if terms.caching else 0
    small = np.int32
    return Pool(
        ends=np.array([0, blocks - 1, blocks], dtype=np.int64),
        holders=np.zeros(blocks, small),
        name=np.full(blocks, -1, dtype=np.int64),
        ahead=np.arange(-1, blocks - 1).astype(small),
        behind=np.append(np.arange(1, blocks), -1)[:blocks].astype(small),
        table=np.full(2 ** _table_bits(config) if blocks else 0, -1, dtype=small),
        found=np.empty(terms.width if blocks else 0, dtype=np.int64),
        row=np.empty(min(terms.seats, FIRST_SEATS) * terms.width if blocks else 0, small),
    )


def empty_steps(terms: Terms, room: int) -> Steps:
    """Return the record of steps with room for so many."""
    small = np.int32
    return Steps(
        start_s=np.empty(room),
        end_s=np.empty(room),
        prefill_tokens=np.empty(room, small),
        decode_seqs=np.empty(room, small),
        blocks=np.empty(room if terms.blocks >= 0 else 0, np.int64),
        running=np.empty(room, small),
        waiting=np.empty(room, small),
    )


def empty_seats(terms: Terms) -> Seats:
    """Return the seats, all free, as many as there is memory for at first."""
    room = min(terms.seats, FIRST_SEATS)
    columns = {name: np.zeros(room, dtype=np.int64) for name in Seats._fields}
    return Seats(**columns)._replace(vacant=np.arange(room - 1, -1, -1))


def new_server(asked: Asked, terms: Terms, setting: Setting) -> Server:
    """Return the loop's totals and clocks before anything has happened."""
    requests = asked.prompt.size
    at = np.zeros(k.AT_SIZE, dtype=np.int64)
    at[k.FREE] = max(terms.blocks, 0)
    at[k.EVEN] = 0 if terms.caching or terms.drafts else 1
    at[k.SOONEST] = k.NEVER
    at[k.PARTIAL] = -1
    at[k.IDLE] = 1
    at[k.VACANT] = min(terms.seats, FIRST_SEATS)
    at[k.HEAD : k.HEAD + 4] = at[k.TAIL : k.TAIL + 4] = -1
    clock = np.zeros(k.CLOCK_SIZE)
    clock[k.BUCKET] = terms.budget_burst
    tenants = int(asked.tenant.max()) + 1 if asked.tenant.size else 0
    next_s, sends = np.empty(requests), np.empty(requests, dtype=np.int64)
    if setting.users is not None:
        next_s = _starts(setting.users, setting.seed)
        if setting.starts_s is not None:
            next_s = setting.starts_s
        next_s = next_s + setting.config.front_end_s
        sends = np.lexsort((np.arange(next_s.size), next_s)).astype(np.int64)
        at[k.PENDING] = next_s.size
    owners = requests if terms.closed else 0
    growth = setting.retry.growth
    return Server(
        at=at,
        clock=clock,
        next_s=next_s,
        sends=sends,
        current=np.full(next_s.size if terms.closed else 0, -1, dtype=np.int64),
        owner=np.full(owners, -1, dtype=np.int64),
        tries=np.zeros(requests, dtype=np.int64),
        first_s=np.full(requests, math.nan),
        factor=np.array([growth**doublings for doublings in range(MOST_DOUBLINGS + 1)]),
        phases=np.zeros(terms.block_size if terms.blocks >= 0 else 1, dtype=np.int64),
        level=np.full(tenants, terms.tenant_burst),
        level_s=np.zeros(tenants),
    )


def _starts(users: Users, seed: int) -> FloatArray:
    """Return when each user sends for the first time, as `simulate_closed` draws it."""
    return np.random.default_rng(seed).uniform(0.0, users.ramp_s, users.number)


def checked_setting(
    config: EngineConfig,
    patience: object,
    retry: object,
    admission: object,
    long_prompts: object,
    users: object,
    seed: object,
    horizon_s: float,
) -> Setting:
    """Return the setting; raise ValueError for what is not of its kind."""
    if config.way.name not in ("continuous", "single", "sglang"):
        raise ValueError(
            f"batching={config.way.name!r} is not known to simulate_service; its clients and gate "
            'go with "continuous", "single" or "sglang"'
        )
    if config.way.name == "sglang" and long_prompts is not None:
        raise ValueError(
            "long_prompts does not go with modes.sglang, which has one queue; leave one of them out"
        )
    for name, value, kind in (
        ("patience", patience, Patience),
        ("retry", retry, Retry),
        ("long_prompts", long_prompts, LongPrompts),
        ("users", users, Users),
    ):
        if value is not None and not isinstance(value, kind):
            raise ValueError(f"{name}={value!r} is no {kind.__name__}; give one, or None")
    _check_patience(patience, config.front_end_s)
    if callable(admission):
        admission = PythonAdmission(admission)
    if admission is None:
        admission = Admission()
    if not isinstance(admission, (Admission, PythonAdmission)):
        raise ValueError(
            f"admission={admission!r} is no Admission; give one, or a function of (request, state)"
        )
    return Setting(
        config=config,
        patience=patience if isinstance(patience, Patience) else None,
        retry=retry if isinstance(retry, Retry) else Retry(),
        admission=admission,
        long_prompts=long_prompts if isinstance(long_prompts, LongPrompts) else None,
        users=users if isinstance(users, Users) else None,
        seed=whole("seed", seed, low=0),
        horizon_s=horizon_s,
    )


def _check_patience(patience: object, front_end_s: float) -> None:
    """Raise ValueError for clients who would have gone before their request reached the queue."""
    for name in ("ttft_s", "e2e_s"):
        limit_s = getattr(patience, name, None)
        if limit_s is not None and limit_s <= front_end_s:
            raise ValueError(
                f"patience.{name}={limit_s!r} is not above front_end_s={front_end_s!r}: nobody "
                "would wait until the queue is reached; make the one larger or the other smaller"
            )
