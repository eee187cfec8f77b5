"""A slow reference of a served engine: clients who give up and retry, and a gate that may say no.

What lives here: the rules of the service put into the most obvious code, one event at a time, one
step at a time, one token at a time, with lists that are searched from end to end. What does not:
speed, validation of input, metrics, and anything of `course` besides the hash that spreads
retries. How a step is put together is in `reference_scheduler`, for this and for
`reference_engine`; `test_reference_service` holds the two equal where nobody gives up and nobody is
refused.

Notation: an *attempt* is one sending of a row of the workload. It has prompt P, output O, `emitted`
tokens so far e, `computed` KV tokens c; it lacks P + e - c. t is a step's start, e its end.

Readings
========
1.  All readings of `reference_engine` for continuous batching (its numbers 1 to 23) hold. What is
    said there of a request's arrival and index holds here for the time at which an attempt joins
    the server and its place in the order of joining. `fcfs` is the order in which attempts joined
    the queue.
2.  Never fits: judged with the row's full output. Refused, and never sent again: it would be
    refused for ever.
3.  A client's limits are set when it sends, before the verdict: they count the row's full output,
    also where the answer is then made shorter.
4.  Rules of admission see the row's full prediction; a degraded attempt has at most
    `degrade_to_tokens` of output and of prediction, and its verdict is DEGRADE even where that
    changed nothing. Degrading comes before the watermark, so it passes the gate by.
5.  A retry's token of the budget is taken when the retry is decided, also where its time turns
    out to lie behind the horizon.
6.  A tenant's bucket is brought up to date at each send that reaches its rule, and pays unless the
    verdict is to reject. Equal labels are one tenant.
7.  The pace counts the priced seconds of the step, and prefill plus decode tokens.
8.  Leavers and the gate are looked at once per step start, before the scheduling.
9.  A preempted attempt, one from the gate and one newly accepted have joined their queue at that
    moment; the long queue's `max_wait_s` counts from there (strictly more).
10. `max_wait_s` lets one long head a step go first, whatever `max_running` says. A running long
    attempt "still prefills" unless, as things stand before the step's result, it decodes.
11. `chunk_tokens` has no meaning where prompts are taken whole.
12. Recomputed: a token computed at a position whose KV the attempt had before (a prefix hit is
    had, too). A finished attempt has computed - recomputed = P + O - 1 - hit.
13. Closed loop: a user's request ended for good when an attempt finished or when no retry follows.
    With no think time the next send is one more event at the same moment.
14. A token at a deadline is on time. A client's give-up after the last step's end does not happen.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.reference_scheduler import (
    Dials,
    Job,
    LongPrompts,
    Scheduler,
    cache_full_blocks,
    compute,
    features,
    give_blocks_back,
    is_rejected,
    leave_seat,
    queue_of,
    see_arrivals,
    step_of_work,
    step_seconds,
)

FINISHED, REJECTED, TIMED_OUT, CANCELLED, UNFINISHED = range(5)
ACCEPT, QUEUE, DEGRADE, REJECT = range(4)
VERDICTS = {"accept": ACCEPT, "queue": QUEUE, "degrade": DEGRADE, "reject": REJECT}
MOST_STEPS = 100_000


# ---------------------------------------------------------------------------------------------
# Nouns: the fields are the ones that the fast implementation takes, with the same meaning
# ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Patience:
    """A client's limits, and whether the server learns that the client went away."""

    ttft_s: float | None = None
    e2e_s: float | None = None
    e2e_per_output_token_s: float = 0.0
    noticed: bool = True


@dataclass(frozen=True)
class Retry:
    """When a client sends again."""

    attempts: int | None = 1
    delay_s: float = 1.0
    growth: float = 1.0
    jitter: float = 0.0
    round_trip_s: float = 0.1
    budget_share: float | None = None
    budget_burst: float = 10.0


@dataclass(frozen=True)
class Admission:
    """What the server answers to a send; `policy` is a Python function that decides instead."""

    max_waiting_requests: int | None = None
    max_waiting_tokens: int | None = None
    max_predicted_wait_s: float | None = None
    kv_watermark: float | None = None
    least_urgent: float | None = None
    urgent_only_wait_s: float | None = None
    degrade_wait_s: float | None = None
    degrade_to_tokens: int | None = None
    tenant_tokens_per_s: float | None = None
    tenant_burst_tokens: float | None = None
    policy: Callable[[Seen, State], str] | None = None


@dataclass(frozen=True)
class Seen:
    """What a Python policy sees of the attempt."""

    index: int
    attempt: int
    arrival_s: float
    first_sent_s: float
    prompt_tokens: int
    predicted_output_tokens: int
    priority: float
    tenant: str
    first_token_deadline_s: float
    end_deadline_s: float


class State(NamedTuple):
    """What the server looks like at the moment of a send, the sender's own attempt left out."""

    now_s: float
    waiting_requests: int
    waiting_tokens: int
    running_requests: int
    free_seats: int
    kv_used: float
    tokens_per_s: float
    predicted_wait_s: float


@dataclass(eq=False, kw_only=True)
class Attempt(Job):
    """One sending of a row, and all that client and server know about it."""

    user: int
    number: int  # 1 is the first attempt
    priority: float
    tenant: str
    first_token_deadline_s: float
    end_deadline_s: float
    verdict: int = REJECT
    status: int = UNFINISHED
    gave_up: bool = False
    scheduled_s: float = math.nan
    first_token_s: float = math.nan
    end_s: float = math.nan


class Send(NamedTuple):
    """A send to come. A closed loop's first attempts have no row until they are sent."""

    at: float
    tie: int  # open loop: the row; closed loop: the user
    number: int
    row: int | None
    user: int


@dataclass
class Record:
    """The run: attempts in order of sending, and the steps."""

    attempts: list[Attempt] = field(default_factory=list)
    step_start_s: list[float] = field(default_factory=list)
    step_end_s: list[float] = field(default_factory=list)
    step_prefill_tokens: list[int] = field(default_factory=list)
    step_decode_seqs: list[int] = field(default_factory=list)
    step_kv_blocks: list[int] = field(default_factory=list)  # stays empty where KV is unlimited
    # How often the rarer rules were used, so that a test can show that its cases reach them.
    reached: Counter[str] = field(default_factory=Counter)

    def column(self, name: str) -> list[Any]:
        """Return one field of every attempt."""
        return [getattr(a, name) for a in self.attempts]

    @property
    def useful_tokens(self) -> int:
        """Tokens computed for finished attempts, each position once."""
        ended_well = [a for a in self.attempts if a.status == FINISHED]
        return sum(a.computed_tokens - a.recomputed_tokens for a in ended_well)

    @property
    def wasted_tokens(self) -> int:
        """All other tokens computed."""
        return sum(a.computed_tokens for a in self.attempts) - self.useful_tokens

    def requests(self) -> list[list[Attempt]]:
        """Return the attempts of each request, in order of the request's row."""
        rows = sorted({a.row for a in self.attempts})
        return [[a for a in self.attempts if a.row == row] for row in rows]


@dataclass(kw_only=True)
class Service(Scheduler):
    """Clients, gate and engine between two events."""

    case: dict[str, Any]
    cost: tuple[float, ...]
    patience: Patience
    retry: Retry
    admission: Admission
    think_s: float | None  # None: open loop
    horizon_s: float
    seed: int
    sends: list[Send] = field(default_factory=list)
    rows_sent: int = 0
    gate: list[Attempt] = field(default_factory=list)
    leavers: list[Attempt] = field(default_factory=list)  # since the step before, in their order
    pace: float | None = None
    retry_bucket: float = 0.0
    tenant_buckets: dict[str, tuple[float, float]] = field(default_factory=dict)  # level, at
    record: Record = field(default_factory=Record)


# ---------------------------------------------------------------------------------------------
# The public verbs
# ---------------------------------------------------------------------------------------------
def reference_service(case: dict[str, Any]) -> Record:
    """Run a plain-data case.

    `prompt_tokens`, `output_tokens`, `cost` (five coefficients) and either `arrival_s` or
    `user_starts_s` with `think_s`; of the row also `predicted_output_tokens`, `priority`,
    `cached_prefix_tokens`, `label`; the fields of `Dials`; `patience`, `retry`, `admission`,
    `long_prompts` as dictionaries; `horizon_s`, `seed`. With `cache_came_along` every attempt
    arrives with its prompt's KV and one token emitted (the decode pool).
    """
    known = {name: case[name] for name in Dials.__dataclass_fields__ if name in case}
    limits = case.get("long_prompts")
    horizon_s = case.get("horizon_s")
    service = Service(
        case=case,
        dials=Dials(**known),
        cost=tuple(float(x) for x in case["cost"]),
        patience=Patience(**(case.get("patience") or {})),
        retry=Retry(**(case.get("retry") or {})),
        admission=Admission(**(case.get("admission") or {})),
        long_prompts=None if limits is None else LongPrompts(**limits),
        think_s=case.get("think_s"),
        horizon_s=math.inf if horizon_s is None else horizon_s,
        seed=case.get("seed", 0),
    )
    check_case(service)
    service.record.reached = service.reached
    service.retry_bucket = service.retry.budget_burst
    if service.think_s is None:
        for row, at in enumerate(case["arrival_s"]):
            service.sends.append(Send(float(at), row, 1, row, row))
    else:
        for user, at in enumerate(case["user_starts_s"]):
            service.sends.append(Send(float(at), user, 1, None, user))
    run(service)
    return service.record


def check_case(s: Service) -> None:
    """Refuse what the rules give no meaning to."""
    if s.dials.batching not in ("continuous", "sglang"):
        raise ValueError(f"batching is {s.dials.batching!r}")
    if s.dials.batching == "sglang" and s.long_prompts is not None:
        raise ValueError("long_prompts do not go with SGLang's way")
    for limit_s in (s.patience.ttft_s, s.patience.e2e_s):
        if limit_s is not None and limit_s <= s.dials.front_end_s:
            raise ValueError(f"patience of {limit_s} s is over before anybody has joined")
    by_hand = s.case.get("cached_prefix_tokens") is not None or s.case.get("cache_came_along")
    if s.dials.enable_prefix_caching and by_hand:
        raise ValueError("a prefix is given by hand, and enable_prefix_caching finds its own")


def reference_pools(
    case: dict[str, Any], decode: dict[str, Any], token_link_s: tuple[float, float, float]
) -> tuple[Record, list[int], Record]:
    """Run `case` in a prefill pool and what it lets go in a decode pool.

    `decode` has the other pool's `cost` and dials, while predictions and priorities go along with
    the rows; `token_link_s` is (kv_bytes_per_token,
    link_bytes_per_s, transfer_latency_s). Returns the first run, the rows that went on in the
    order of their joining, and the second run, whose row k is the k-th of them.
    """
    kv_bytes, link_bytes_per_s, latency_s = token_link_s
    prompts, outputs = case["prompt_tokens"], case["output_tokens"]
    # What is predicted is the answer's length, also where only its first token is made.
    predicted = case.get("predicted_output_tokens") or outputs
    case = case | {"predicted_output_tokens": predicted}
    first = reference_service(case | {"output_tokens": [1] * len(outputs)})
    joins = []
    for a in first.attempts:
        if a.status == FINISHED and outputs[a.row] > 1:
            travel_s = latency_s + prompts[a.row] * kv_bytes / link_bytes_per_s
            joins.append((a.end_s + travel_s, a.row))
    joins.sort()
    rows = [row for _, row in joins]
    second = reference_service(
        decode
        | {
            "arrival_s": [at for at, _ in joins],
            "prompt_tokens": [prompts[row] for row in rows],
            "output_tokens": [outputs[row] for row in rows],
            "horizon_s": case.get("horizon_s"),
            "cache_came_along": True,
        }
        | {
            name: [case[name][row] for row in rows]
            for name in ("predicted_output_tokens", "priority")
            if case.get(name) is not None
        }
    )
    return first, rows, second


# ---------------------------------------------------------------------------------------------
# The loop
# ---------------------------------------------------------------------------------------------
def run(s: Service) -> None:
    """Take one step after the other until nobody is left, or the horizon is reached."""
    while True:
        # Every event up to and including s.t has happened.
        notice_leavers(s)
        if not somebody_inside(s):
            wait_for_a_send(s)
            if not somebody_inside(s):
                return
        # "the step in flight at the horizon is completed": none begins at or after it.
        if s.t >= s.horizon_s:
            return
        if len(s.record.step_end_s) >= MOST_STEPS:
            raise RuntimeError(f"{MOST_STEPS} steps at t = {s.t} s: is it a hang?")
        see_arrivals(s)
        release_from_gate(s)
        take_step(s)


def somebody_inside(s: Service) -> bool:
    """Tell whether anybody runs or waits, "gate included"."""
    return bool(s.running or everybody_waiting(s))


def everybody_waiting(s: Service) -> list[Attempt]:
    """ "Whoever has joined but is not visible yet counts as waiting for the gate"."""
    return s.gate + s.waiting + s.long_waiting + s.unseen


def wait_for_a_send(s: Service) -> None:
    """The engine is empty: "at the next send that is not refused"."""
    while not somebody_inside(s):
        at = next_event_s(s)
        if at is None:
            return
        s.t = at
        happen_next(s)
    happen_until(s, s.t, itself=True)


def notice_leavers(s: Service) -> None:
    """ "If `noticed`, the server removes it at the start of the first step with t >= g: from the
    queue or gate, or from its seat with its blocks, before anything is scheduled." Of several, who
    left first is removed first: it matters for whose blocks are handed out first.
    """
    if not s.patience.noticed:
        return
    for a in s.leavers:
        for name in ("gate", "waiting", "long_waiting", "unseen", "running"):
            place: list[Attempt] = getattr(s, name)
            if a in place:
                place.remove(a)
                give_blocks_back(s, a)
                s.record.reached[f"left {name}"] += 1
    s.leavers = []


def release_from_gate(s: Service) -> None:
    """ "while the gate is not empty and kv_used < watermark [...] and requests waiting in the
    engine's queue < free seats: its head joins the tail of the waiting queue. If nobody runs and
    nobody waits in the engine's queue, the head is released in any case"
    """
    watermark = s.admission.kv_watermark
    if watermark is None or s.admission.policy is not None:
        watermark = 1.0
    while s.gate:
        in_queue = len(s.waiting) + len(s.long_waiting) + len(s.unseen)
        free_seats = s.dials.max_num_seqs - len(s.running)
        in_any_case = not s.running and in_queue == 0
        below = kv_used(s) < watermark and in_queue < free_seats
        if not below and not in_any_case:
            s.record.reached["held at the gate"] += 1
            return
        if not below:
            s.record.reached["released in any case"] += 1
        a = s.gate.pop(0)
        join_queue(s, a)


def take_step(s: Service) -> None:
    """Schedule, price and complete one step, with the events that fall into it and on its end."""
    pieces = step_of_work(s)
    start = s.t
    for piece in pieces:
        if math.isnan(piece.job.scheduled_s):
            piece.job.scheduled_s = start
    work = features(pieces)
    prefill_tokens, _, decode_seqs, _ = work
    seconds = step_seconds(s.cost, work)
    end = start + seconds
    s.record.step_start_s.append(start)
    s.record.step_end_s.append(end)
    s.record.step_prefill_tokens.append(prefill_tokens)
    s.record.step_decode_seqs.append(decode_seqs)
    if s.pool is not None:
        s.record.step_kv_blocks.append(s.pool.held())

    # 1. "Before the end: events with time < e [...] see the server as it is during the step"
    happen_until(s, end, itself=False)
    # 2. "The end"
    s.t = end
    emits = [compute(s, piece) for piece in pieces]
    cache_full_blocks(s, pieces)
    for piece, tokens in zip(pieces, emits, strict=True):
        if tokens:
            emit(s, piece.job, tokens)
    update_pace(s, prefill_tokens + decode_seqs, seconds)
    # 3. "Events with time exactly e"
    if next_event_s(s) == end:
        s.record.reached["event on a step's end"] += 1
    happen_until(s, end, itself=True)


def emit(s: Service, a: Attempt, tokens: int) -> None:
    """Send the step's tokens to the client, and end the attempt with the last of them."""
    if a.gave_up:
        s.record.reached["into the void"] += 1  # "emits into the void"
    elif a.emitted == tokens:
        # "the first token on time means e <= first-token deadline": else it had given up before
        assert s.t <= a.first_token_deadline_s
        a.first_token_s = s.t
    if a.emitted < a.output:
        return
    # "Finished ones free seat and blocks."
    leave_seat(s, a)
    if not a.gave_up:
        assert s.t <= a.end_deadline_s
        a.status = FINISHED
        a.end_s = s.t
        ended_for_good(s, a)


def update_pace(s: Service, tokens: int, seconds: float) -> None:
    """ "first step: pace = n/d; then pace = pace + (1 - exp(-d/5.0))*(n/d - pace)" """
    if s.pace is None:
        s.pace = tokens / seconds
    else:
        s.pace = s.pace + (1.0 - math.exp(-seconds / 5.0)) * (tokens / seconds - s.pace)


# ---------------------------------------------------------------------------------------------
# Events: give-ups and sends
# ---------------------------------------------------------------------------------------------
def give_up_s(a: Attempt) -> float:
    """Return when the client goes: "the earliest of its unmet deadlines"; inf for never."""
    if a.status != UNFINISHED:
        return math.inf
    if math.isnan(a.first_token_s):
        return min(a.first_token_deadline_s, a.end_deadline_s)
    return a.end_deadline_s


def joins_s(s: Service, send: Send) -> float:
    """Return when a send joins: the event that the server sees."""
    return send.at + s.dials.front_end_s


def open_sends(s: Service) -> list[Send]:
    """Return the sends that can still be made."""
    sends = [send for send in s.sends if joins_s(s, send) <= s.horizon_s]
    if s.rows_sent == len(s.case["prompt_tokens"]):
        sends = [send for send in sends if send.row is not None]
    return sends


def next_event_s(s: Service) -> float | None:
    """Return the time of the next event, None where there is none."""
    moments = [give_up_s(a) for a in s.record.attempts]
    moments += [joins_s(s, send) for send in open_sends(s)]
    earliest = min(moments, default=math.inf)
    return None if earliest == math.inf else earliest


def happen_until(s: Service, until_s: float, *, itself: bool) -> None:
    """Let every event before `until_s` happen, and those at it where `itself`."""
    while True:
        at = next_event_s(s)
        if at is None or at > until_s or (at == until_s and not itself):
            return
        happen_next(s)


def happen_next(s: Service) -> None:
    """Let one event happen: "at equal times give-ups before sends, give-ups ordered by (request,
    attempt)", sends "by request, then attempt. (Closed loop: equal times by user.)"
    """
    at = next_event_s(s)
    leavers = [a for a in s.record.attempts if give_up_s(a) == at]
    senders = [send for send in open_sends(s) if joins_s(s, send) == at]
    if leavers and senders:
        s.record.reached["give-up and send at once"] += 1
    if leavers:
        a = min(leavers, key=lambda a: (a.row, a.number))
        assert at is not None
        give_up(s, a, at)
    else:
        send = min(senders, key=lambda send: (send.tie, send.number))
        s.sends.remove(send)
        arrive(s, send)


def give_up(s: Service, a: Attempt, at: float) -> None:
    """The client goes; "In either case a retry is decided at g"."""
    s.record.reached["gave up"] += 1
    a.gave_up = True
    s.leavers.append(a)
    a.status = TIMED_OUT
    a.end_s = at
    decide_retry(s, a)


def decide_retry(s: Service, a: Attempt) -> None:
    """After an attempt that was refused or timed out: send again, or end for good."""
    retry = s.retry
    if (retry.attempts is not None and a.number >= retry.attempts) or never_fits(s, a.row):
        ended_for_good(s, a)
        return
    if retry.budget_share is not None:
        if s.retry_bucket < 1.0:
            s.record.reached["no budget"] += 1
            ended_for_good(s, a)
            return
        s.retry_bucket -= 1.0
    s.record.reached["retry"] += 1
    u = 0.0
    if retry.jitter > 0:
        from course.serving.engine.clients import retry_uniform

        u = retry_uniform(s.seed, a.row, a.number)
    delay_s = retry.delay_s * retry.growth ** min(a.number - 1, 60) * (1.0 - retry.jitter * u)
    at = a.end_s + (retry.round_trip_s + delay_s)
    tie = a.row if s.think_s is None else a.user
    s.sends.append(Send(at, tie, a.number + 1, a.row, a.user))


def ended_for_good(s: Service, a: Attempt) -> None:
    """A closed loop's user sends the next row a think time later."""
    if s.think_s is not None:
        s.sends.append(Send(a.end_s + s.think_s, a.user, 1, None, a.user))


def arrive(s: Service, send: Send) -> None:
    """A send reaches the server, and learns its verdict."""
    a = make_attempt(s, send)
    s.record.attempts.append(a)
    if a.number == 1 and s.retry.budget_share is not None:
        # "every *first* attempt sent adds budget_share (capped at budget_burst)"
        s.retry_bucket = min(s.retry.budget_burst, s.retry_bucket + s.retry.budget_share)
    a.verdict = REJECT if never_fits(s, a.row) else judge(s, a)
    if a.verdict == REJECT:
        a.status = REJECTED
        a.end_s = a.arrival_s
        decide_retry(s, a)
    elif a.verdict == QUEUE:
        s.gate.append(a)
    else:
        if a.verdict == DEGRADE:
            to = s.admission.degrade_to_tokens
            assert to is not None
            a.output = min(a.output, to)
            a.predicted = min(a.predicted, to)
        join_queue(s, a)


def make_attempt(s: Service, send: Send) -> Attempt:
    """Read the row of a send; "rows are taken in the order sent" in a closed loop."""
    row = send.row
    if row is None:
        row = s.rows_sent
    if send.number == 1:
        s.rows_sent += 1
    prompt, output = int(s.case["prompt_tokens"][row]), int(s.case["output_tokens"][row])

    def column(name: str, default: Any) -> Any:
        values: Sequence[Any] | None = s.case.get(name)
        return default if values is None else values[row]

    size = s.dials.block_size
    hit = min(column("cached_prefix_tokens", 0), prompt - 1) // size * size
    emitted = 0
    if s.case.get("cache_came_along"):
        hit, emitted = prompt, 1
    arrival_s = joins_s(s, send)
    priority = float(column("priority", 0.0))
    ageing_s = s.dials.ageing_s
    ttft_s, e2e_s = s.patience.ttft_s, s.patience.e2e_s
    per_token_s = s.patience.e2e_per_output_token_s
    return Attempt(
        serial=len(s.record.attempts),
        row=row,
        user=send.user,
        number=send.number,
        sent_s=send.at,
        arrival_s=arrival_s,
        prompt=prompt,
        output=output,
        predicted=column("predicted_output_tokens", output),
        priority=priority,
        tenant=str(column("label", "")),
        priority_key=priority if ageing_s is None else priority + arrival_s / ageing_s,
        hit=hit,
        emitted=emitted,
        first_token_deadline_s=math.inf if ttft_s is None else send.at + ttft_s,
        end_deadline_s=math.inf if e2e_s is None else send.at + (e2e_s + per_token_s * output),
    )


def join_queue(s: Service, a: Attempt) -> None:
    """The attempt joins the tail of its queue."""
    if a.verdict == QUEUE:  # "whoever comes through it is visible at once"
        a.joined_s = s.t
        queue_of(s, a).append(a)
        return
    a.joined_s = a.arrival_s
    (s.unseen if s.dials.async_scheduling else queue_of(s, a)).append(a)


# ---------------------------------------------------------------------------------------------
# Admission
# ---------------------------------------------------------------------------------------------
def never_fits(s: Service, row: int) -> bool:
    """The whole request needs more blocks, or a larger budget, than there is."""
    prompt, output = int(s.case["prompt_tokens"][row]), int(s.case["output_tokens"][row])
    return is_rejected(prompt, output, s.dials)


def kv_used(s: Service) -> float:
    """Return the share of the KV blocks that is held; 0 without a limit."""
    if s.pool is None:
        return 0.0
    return s.pool.held() / len(s.pool.holders)


def state_seen(s: Service, a: Attempt) -> State:
    """Look at the server at the moment of a send."""
    # "waiting_requests and waiting_tokens (queue AND gate, own excluded)"
    waiting = everybody_waiting(s)
    tokens = sum(w.prompt + w.predicted for w in waiting)
    wait_s = 0.0
    if tokens > 0 and s.pace is not None:
        wait_s = tokens / s.pace
    return State(
        now_s=a.arrival_s,
        waiting_requests=len(waiting),
        waiting_tokens=tokens,
        running_requests=len(s.running),
        free_seats=s.dials.max_num_seqs - len(s.running),
        kv_used=kv_used(s),
        tokens_per_s=0.0 if s.pace is None else s.pace,
        predicted_wait_s=wait_s,
    )


def judge(s: Service, a: Attempt) -> int:
    """Return the verdict on an attempt that could be served."""
    state = state_seen(s, a)
    if s.admission.policy is not None:
        first_sent_s = next(b.sent_s for b in s.record.attempts if b.row == a.row)
        seen = Seen(
            index=a.row,
            attempt=a.number,
            arrival_s=a.sent_s,
            first_sent_s=first_sent_s,
            prompt_tokens=a.prompt,
            predicted_output_tokens=a.predicted,
            priority=a.priority,
            tenant=a.tenant,
            first_token_deadline_s=a.first_token_deadline_s,
            end_deadline_s=a.end_deadline_s,
        )
        return VERDICTS[s.admission.policy(seen, state)]
    need = a.prompt + a.predicted
    if s.admission.tenant_tokens_per_s is not None:
        level = tenant_level(s, a)
        if level < need:
            s.record.reached["rule a"] += 1
            return REJECT
        verdict = by_the_rules(s, a, state)
        if verdict != REJECT:
            s.tenant_buckets[a.tenant] = (level - need, a.arrival_s)
        return verdict
    return by_the_rules(s, a, state)


def tenant_level(s: Service, a: Attempt) -> float:
    """Fill the tenant's bucket up to now, and return its level."""
    rate, burst = s.admission.tenant_tokens_per_s, s.admission.tenant_burst_tokens
    assert rate is not None
    assert burst is not None
    level, at = s.tenant_buckets.get(a.tenant, (burst, 0.0))
    level = min(burst, level + rate * (a.arrival_s - at))
    s.tenant_buckets[a.tenant] = (level, a.arrival_s)
    return level


def by_the_rules(s: Service, a: Attempt, state: State) -> int:
    """Rules b to g: "first match decides"."""
    rules = s.admission
    wait_s = state.predicted_wait_s
    verdict, rule = ACCEPT, ""
    if (
        rules.max_waiting_requests is not None
        and state.waiting_requests >= rules.max_waiting_requests
    ):
        verdict, rule = REJECT, "b"
    elif (
        rules.max_waiting_tokens is not None
        and state.waiting_tokens + a.prompt + a.predicted > rules.max_waiting_tokens
    ):
        verdict, rule = REJECT, "c"
    elif (
        rules.urgent_only_wait_s is not None
        and rules.least_urgent is not None
        and wait_s > rules.urgent_only_wait_s
        and a.priority > rules.least_urgent
    ):
        verdict, rule = REJECT, "d"
    elif rules.max_predicted_wait_s is not None and wait_s > rules.max_predicted_wait_s:
        verdict, rule = REJECT, "e"
    elif rules.degrade_wait_s is not None and wait_s > rules.degrade_wait_s:
        verdict, rule = DEGRADE, "f"
    elif rules.kv_watermark is not None and (state.kv_used >= rules.kv_watermark or s.gate):
        verdict, rule = QUEUE, "g"
    if rule:
        s.record.reached[f"rule {rule}"] += 1
    return verdict
