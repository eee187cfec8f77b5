"""Runs a workload through an engine: `simulate` and `simulate_closed`; the rules are elsewhere.

Each run is set up as plain arrays, handed to the loop that can do it fastest, and read back as a
`Run`. The loops are compiled when first used, and kept on disk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, IntArray, at_least, numbers, same_length, whole
from course.serving.engine.admission import Admission
from course.serving.engine.clients import Retry, Users
from course.serving.engine.config import EngineConfig
from course.serving.engine.general import found_by_loop, packed_log
from course.serving.engine.inputs import check_kinds, kernel_form, price_of, unpriced_step
from course.serving.engine.kernels import codes
from course.serving.engine.kernels.state import Load, Log, Rules, Senders, Work
from course.serving.engine.orders import FirstCome, MostUrgent, ShortestFirst
from course.serving.engine.run import Packing, Run
from course.serving.engine.service_setup import Setting, later
from course.serving.engine.stays import Stays
from course.serving.pricing import KernelCost, StepCost, StepFeatures
from course.serving.workload import Seed, Workload

_NO_NUMBERS: FloatArray = np.empty(0)
_NO_COUNTS: IntArray = np.empty(0, dtype=np.int64)
for _empty in (_NO_NUMBERS, _NO_COUNTS):
    _empty.setflags(write=False)

Scalar = TypeVar("Scalar", bound=np.generic)

_SLICE_STEPS = {True: 16_000_000, False: 20_000}
"""Steps until a loop, compiled or not, comes back to show how far it is."""


def simulate(
    work: Workload,
    cost: StepCost,
    config: EngineConfig | None = None,
    *,
    horizon_s: float | None = None,
    compiled: bool = True,
    progress: bool = True,
) -> Run:
    """Run an open workload: requests arrive when they arrive, served or not.

    `horizon_s`: the step in flight then is completed; later arrivals are not offered. `compiled`
    False runs the same loop as plain Python; a cost or an order that is a caller's own does so
    anyway. `progress`: show a bar where it takes longer than a second.

    Raises ValueError for a cost that does not give a finite time above 0 s for some step.

    >>> from course.serving.pricing import LinearStepCost
    >>> work = Workload([0.0, 0.0], prompt_tokens=[100, 50], output_tokens=[3, 1])
    >>> run = simulate(work, LinearStepCost(fixed_s=1.0))
    >>> run.finish_s.tolist(), run.token_times(0).tolist()
    ([3.0, 1.0], [1.0, 2.0, 3.0])
    """
    return _run(work, None, cost, config or EngineConfig(), horizon_s, compiled, progress)


def simulate_closed(
    users: int,
    think_s: npt.ArrayLike,
    work: Workload,
    cost: StepCost,
    config: EngineConfig | None = None,
    *,
    ramp_s: float = 0.0,
    seed: Seed = 0,
    start_s: npt.ArrayLike | None = None,
    horizon_s: float | None = None,
    compiled: bool = True,
    progress: bool = True,
) -> Run:
    """Run a closed loop: each of N users sends again a think time after their last request ended.

    The k-th request of `work` is the k-th *sent*; the arrivals of `work` are not used, those of
    the run are in `run.arrival_s`, and who sent it in `run.user`. `think_s`: seconds, one number
    or one for each request (the pause after the k-th sent). Users start at times drawn evenly over
    `ramp_s` seconds from `seed`, or at `start_s`, one time a user. When the requests are used up,
    users stop. Equal times are taken in order of user.

    Raises ValueError as `simulate`, and for users below 1 or times that are negative or NaN.

    >>> from course.serving.pricing import LinearStepCost
    >>> from course.serving.workload import Fixed, closed_loop_work
    >>> work = closed_loop_work(3, Fixed(10), Fixed(2), seed=0)
    >>> simulate_closed(1, 0.5, work, LinearStepCost(fixed_s=1.0)).arrival_s.tolist()
    [0.0, 2.5, 5.0]
    """
    number = whole("users", users)
    check_kinds(work, cost, config or EngineConfig())
    starts_s = _starts(number, ramp_s, seed, start_s)
    clients = Senders(
        next_s=starts_s,
        heap=np.lexsort((np.arange(number), starts_s)),
        think_s=_thinking(think_s, len(work)),
        sent_s=np.full(len(work), math.nan),
        owner=np.full(len(work), -1, dtype=np.int64),
    )
    return _run(work, clients, cost, config or EngineConfig(), horizon_s, compiled, progress)


def _starts(users: int, ramp_s: float, seed: Seed, start_s: object) -> FloatArray:
    """Return when each user sends for the first time, as a fresh array."""
    if start_s is None:
        ramp = at_least("ramp_s", ramp_s)
        return np.random.default_rng(seed).uniform(0.0, ramp, users)
    starts = _times_from_0("start_s", start_s)
    same_length([("users", users), ("start_s", starts.size)])
    return starts


def _thinking(think_s: npt.ArrayLike, requests: int) -> FloatArray:
    """Return the pause after each request."""
    if np.ndim(think_s) == 0:
        return np.full(requests, at_least("think_s", think_s))
    pauses = _times_from_0("think_s", think_s)
    same_length([("work", requests), ("think_s", pauses.size)])
    return pauses


def _times_from_0(name: str, values: object) -> FloatArray:
    given = numbers(name, values)
    if given.size and given.min() < 0:
        index = int((given < 0).argmax())
        raise ValueError(f"{name}[{index}]={given[index]} is negative; give seconds from 0 on")
    return given.copy()


# ========================================================================================= set up
class _Loops(NamedTuple):
    """Which functions run the steps."""

    run: Callable[..., int]
    close: Callable[..., None]
    compiled: bool


def _run(
    work: Workload,
    clients: Senders | None,
    cost: StepCost,
    config: EngineConfig,
    horizon_s: float | None,
    compiled: bool,
    progress: bool,
) -> Run:
    check_kinds(work, cost, config)
    horizon = math.inf if horizon_s is None else at_least("horizon_s", horizon_s)
    if _needs_the_general_loop(work, config):
        return _run_generally(work, clients, cost, config, horizon, compiled)
    form = kernel_form(cost)
    delay_s = config.front_end_s
    load = _load(work, clients is None, delay_s)
    rules = _rules(work, clients is None, config, form, horizon)
    loops = _choose(rules, cost, config, compiled and form is not None)
    users = clients or Senders(
        np.empty(0), np.empty(0, np.int64), np.empty(0), np.empty(0), np.empty(0, np.int64)
    )
    users = users._replace(next_s=users.next_s + delay_s, think_s=later(users.think_s, delay_s))
    state = _work(rules, users, len(work))
    log = _run_to_end(loops, state, load, users, rules, price_of(form), cost, progress)
    return _read(work, cost, config, horizon, rules, users, log, state)


def _read(
    work: Workload,
    cost: StepCost,
    config: EngineConfig,
    horizon_s: float,
    rules: Rules,
    users: Senders,
    log: Log,
    state: Work,
) -> Run:
    """Return the run that a fast loop wrote down."""
    from course.serving.engine.kernels import steps as k

    offered = int(state.at[k.SENT])
    closed = users.next_s.size > 0
    batch = None
    if rules.batching == k.STATIC:
        # -1: never taken into a batch
        batch = np.maximum(k.FIRST_BATCH - state.mark[:offered], -1)
    return Run(
        work,
        cost,
        config,
        horizon_s,
        log._replace(
            scheduled_s=log.scheduled_s[:offered],
            first_token_s=log.first_token_s[:offered],
            finish_s=log.finish_s[:offered],
            status=log.status[:offered],
            preemptions=log.preemptions[:offered],
            first_step=log.first_step[:offered],
            tokens=log.tokens[:offered],
        ),
        Packing(rules.blocks >= 0, rules.decode_shift, rules.prefill_shift),
        arrival_s=later(users.sent_s, -config.front_end_s)[:offered] if closed else None,
        user=users.owner[:offered] if closed else None,
        batch=batch,
    )


def _needs_the_general_loop(work: Workload, config: EngineConfig) -> bool:
    """Say whether running requests must be looked at one by one.

    They must where not all of them move on by one token together; where some may stand still
    (whole prompts can fill more seats than the budget lets decode); where a victim of preemption is
    not the last in order of admission; and where the queue is not seen as it is.
    """
    if config.way.name == "static":
        return False
    seats = min(config.max_num_seqs, max(len(work), 1))
    may_stand_still = not config.enable_chunked_prefill and seats > config.max_num_batched_tokens
    by_priority = isinstance(config.order_key, MostUrgent) and config.num_kv_blocks is not None
    return (
        config.way.name == "sglang"
        or config.enable_prefix_caching
        or config.async_scheduling
        or config.speculation is not None
        or (config.way.name != "single" and (may_stand_still or by_priority))
    )


def _run_generally(
    work: Workload,
    clients: Senders | None,
    cost: StepCost,
    config: EngineConfig,
    horizon_s: float,
    compiled: bool,
) -> Run:
    """Run in the loop that looks at one running request after the other."""
    setting = Setting(
        config=config,
        patience=None,
        retry=Retry(),
        admission=Admission(),
        long_prompts=None,
        users=None if clients is None else Users(clients.next_s.size),
        seed=0,
        horizon_s=horizon_s,
        starts_s=None if clients is None else clients.next_s,
        think_s=None if clients is None else clients.think_s,
    )
    found = found_by_loop(work, cost, setting, compiled)
    log, packing = packed_log(found, config)
    attempts = found.attempts
    return Run(
        work,
        cost,
        config,
        horizon_s,
        log,
        packing,
        arrival_s=None if clients is None else later(attempts.sent_s, -config.front_end_s),
        user=None if clients is None else found.server.owner[: attempts.sent_s.size],
        bursts=found.bursts if config.speculation else None,
        stays=Stays.of_attempts(attempts, found.steps),
        prefix_hit_tokens=attempts.hit if config.enable_prefix_caching else None,
        recovered_tokens=attempts.recovered if config.enable_prefix_caching else None,
    )


def _load(work: Workload, is_open: bool, delay_s: float) -> Load:
    cached, predicted, value = (
        work.cached_prefix_tokens,
        work.predicted_output_tokens,
        work.priority,
    )
    arrival_s = later(work.arrival_s, delay_s) if is_open else _NO_NUMBERS
    arrival_s.setflags(write=False)  # one that may be written to would compile the loops anew
    return Load(
        arrival_s=arrival_s,
        prompt=work.prompt_tokens,
        output=work.output_tokens,
        cached=_NO_COUNTS if cached is None else cached,
        guess=work.output_tokens if predicted is None else predicted,
        value=_NO_NUMBERS if value is None else value,
    )


def _rules(
    work: Workload, is_open: bool, config: EngineConfig, form: KernelCost | None, horizon_s: float
) -> Rules:
    from course.serving.engine.kernels import steps as k

    way, order = config.way, config.order_key
    batching = {"static": k.STATIC, "windowed": k.WINDOWED, "adaptive": k.ADAPTIVE}
    orders = {FirstCome: codes.FCFS, ShortestFirst: codes.SJF, MostUrgent: codes.PRIORITY}
    longest = int(work.prompt_tokens.max() + work.output_tokens.max()) if len(work) else 1
    # sizes that can make no difference are cut down, so that they cost no memory
    block_size = min(config.block_size, longest + 1)
    blocks = -1
    if config.num_kv_blocks is not None:
        most = (-(-longest // block_size)) * max(len(work), 1) + config.kept_blocks
        blocks = min(config.num_kv_blocks, most)
    seats = 1 if way.name == "single" else config.max_num_seqs
    seats = min(seats, max(len(work), 1), seats if blocks < 0 else blocks)
    if way.name != "static" and config.enable_chunked_prefill:
        seats = min(seats, config.max_num_batched_tokens)
    budget = min(config.max_num_batched_tokens, longest * seats + 1)
    block_bits = max(blocks, 0).bit_length()
    seat_bits = seats.bit_length()
    if block_bits + seat_bits + budget.bit_length() > 63 or seat_bits > k.SEAT_BITS:
        raise ValueError(
            f"num_kv_blocks={config.num_kv_blocks}, max_num_seqs={config.max_num_seqs} and "
            f"max_num_batched_tokens={config.max_num_batched_tokens} are too large together for "
            f"{len(work)} requests; make one of them smaller"
        )
    rules = Rules(
        seats=seats,
        budget=config.max_num_batched_tokens,
        chunked=bool(config.enable_chunked_prefill),
        blocks=blocks,
        block_size=block_size,
        batching=batching.get(way.name, k.CONTINUOUS),
        order=orders.get(type(order), codes.CUSTOM),
        cost=form.code if form else codes.PLAIN_PYTHON,
        batch_size=way.batch_size or config.max_num_seqs,
        last_accepted=_last_accepted(work, is_open, config, horizon_s),
        decode_shift=block_bits,
        prefill_shift=block_bits + seat_bits,
        horizon_s=horizon_s,
        window_s=math.inf if way.window_s is None else way.window_s,
        max_wait_s=_or_inf(getattr(order, "max_wait_s", None)),
        ageing_s=_or_inf(getattr(order, "ageing_s", None)),
        whole_fits=config.scheduler_reserve_full_isl,
        kept_blocks=config.kept_blocks,
    )
    if rules.order == codes.FCFS and rules.batching == k.STATIC:
        rules = rules._replace(order=k.BY_ARRIVAL)
    return rules


def _last_accepted(work: Workload, is_open: bool, config: EngineConfig, horizon_s: float) -> int:
    """Return the last request that can be accepted: after it, a static batch waits for nobody."""
    if config.way.name != "static":
        return len(work)
    final = work.prompt_tokens + work.output_tokens - 1
    accepted = np.ones(len(work), dtype=np.bool_)
    if config.num_kv_blocks is not None:
        accepted &= -(-final // config.block_size) <= config.num_kv_blocks - config.kept_blocks
    if not config.enable_chunked_prefill:
        accepted &= final <= config.max_num_batched_tokens
    if is_open:
        accepted &= later(work.arrival_s, config.front_end_s) <= horizon_s
    places = np.flatnonzero(accepted)
    return int(places[-1]) if places.size else -1


def _or_inf(value: float | None) -> float:
    return math.inf if value is None else value


def _choose(rules: Rules, cost: StepCost, config: EngineConfig, compiled: bool) -> _Loops:
    """Return the fastest loop that knows the rules; plain Python where a caller's code is in it."""
    from course.serving.engine.kernels import steps as k

    compiled = compiled and rules.order != codes.CUSTOM
    functions: Any = k
    if not compiled:
        from course.serving.engine.plain import plain_loops

        own_cost = None if rules.cost != codes.PLAIN_PYTHON else cost
        own_order = config.order_key if rules.order == codes.CUSTOM else None
        functions = plain_loops(own_cost, own_order)
    run = functions.run_batches if rules.batching == k.STATIC else functions.run_continuous
    return _Loops(run, functions.close_run, compiled)


def _work(rules: Rules, users: Senders, requests: int) -> Work:
    from course.serving.engine.kernels import steps as k

    at = np.zeros(k.AT_SIZE, dtype=np.int64)
    at[k.FREE] = max(rules.blocks, 0)
    at[k.PARTIAL] = at[k.LAST] = -1
    at[k.VACANT] = rules.seats
    at[k.PENDING] = users.next_s.size
    queued = 0 if rules.order == codes.FCFS else requests
    return Work(
        at=at,
        seat=np.zeros((rules.seats, k.SEAT_SIZE), dtype=np.int64),
        vacant=np.arange(rules.seats - 1, -1, -1),
        due=np.empty(rules.seats, dtype=np.int64),
        completing=np.empty(rules.seats, dtype=np.int64),
        stack=np.empty(rules.seats, dtype=np.int64),
        running=np.empty(rules.seats, dtype=np.int64),
        phases=np.zeros(rules.block_size if rules.blocks >= 0 else 1, dtype=np.int64),
        queue=np.empty(queued, dtype=np.int32),
        mark=np.full(queued, k.NEW, dtype=np.int32),
    )


def _empty_log(rules: Rules, requests: int) -> Log:
    from course.serving.engine.kernels import steps as k

    steps = min(16 * requests + 256, 100_000)
    interruptible = rules.blocks >= 0 or not rules.chunked
    return Log(
        scheduled_s=np.full(requests, math.nan),
        first_token_s=np.full(requests, math.nan),
        finish_s=np.full(requests, math.nan),
        status=np.full(requests, codes.UNFINISHED, dtype=np.int8),
        preemptions=np.zeros(requests, dtype=np.int32),
        first_step=np.full(requests, -1, dtype=np.int32),
        tokens=np.zeros(requests, dtype=np.int32),
        step_end_s=np.empty(steps),
        step_work=np.empty(steps, dtype=np.int64),
        gaps=np.empty((rules.seats + 256 if interruptible else 0, k.GAP_SIZE), dtype=np.int32),
    )


# ============================================================================================ run
def _run_to_end(
    loops: _Loops,
    state: Work,
    load: Load,
    users: Senders,
    rules: Rules,
    price: tuple[float, ...],
    cost: StepCost,
    progress: bool,
) -> Log:
    """Call the loop until it is done, giving its log more room whenever it asks for it."""
    from course.serving.engine.kernels import steps as k

    requests = load.prompt.size
    log = _empty_log(rules, requests)
    clock_s = np.zeros(1)
    bar = _Bar(requests) if progress else None
    try:
        while True:
            reason = loops.run(clock_s, state, load, users, rules, price, log)
            if reason != k.FULL:
                break
            if bar is not None:
                bar.show(int(state.at[k.SENT]))
            log = _longer(log, state, rules, requests, _SLICE_STEPS[loops.compiled])
    finally:
        if bar is not None:
            bar.close()
    if reason == k.BAD_COST:
        features = StepFeatures(*state.at[k.COSTLESS : k.COSTLESS + 4].tolist())
        raise unpriced_step(cost, features, float(clock_s[0]))
    loops.close(state, load, users, rules, log)
    return _cut(log, int(state.at[k.STEPS]), int(state.at[k.GAPS]))


def _longer(log: Log, state: Work, rules: Rules, requests: int, slice_steps: int) -> Log:
    """Return the log with more room: as much as the run so far lets expect, and little more."""
    from course.serving.engine.kernels import steps as k

    steps, rows = int(state.at[k.STEPS]), int(state.at[k.GAPS])
    if steps >= log.step_end_s.size:
        expected = steps * requests // max(int(state.at[k.SENT]), 1) - steps
        room = steps + min(max(expected + expected // 128, steps // 128, 4096), slice_steps)
        log = log._replace(
            step_end_s=_resized(log.step_end_s, steps, room),
            step_work=_resized(log.step_work, steps, room),
        )
    if rows + rules.seats > log.gaps.shape[0]:
        room = rows + rules.seats + max(rows // 8, 1024)
        log = log._replace(gaps=_resized(log.gaps, rows, room))
    return log


def _resized(array: npt.NDArray[Scalar], used: int, room: int) -> npt.NDArray[Scalar]:
    """Return an array of `room` rows that begins with the `used` first of `array`."""
    if 2 * used > room:
        # in place: large arrays move by their page table, and only what is new is written
        array.resize((room, *array.shape[1:]), refcheck=False)
        return array
    longer = np.empty((room, *array.shape[1:]), dtype=array.dtype)
    longer[:used] = array[:used]
    return longer


def _cut(log: Log, steps: int, rows: int) -> Log:
    """Return the log without the room that was not used."""
    from course.serving.engine.kernels import steps as k

    log.step_end_s.resize(steps, refcheck=False)
    log.step_work.resize(steps, refcheck=False)
    log.gaps.resize((rows, k.GAP_SIZE), refcheck=False)
    return log


class _Bar:
    """A progress bar that appears after a second."""

    def __init__(self, requests: int) -> None:
        self._requests = requests
        self._begun = time.perf_counter()
        self._bar: Any = None

    def show(self, sent: int) -> None:
        """Bring the bar up to `sent` requests."""
        if self._bar is None:
            if time.perf_counter() - self._begun < 1.0:
                return
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self._requests, unit=" requests", leave=False, disable=None)
        self._bar.update(sent - self._bar.n)

    def close(self) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.close()
