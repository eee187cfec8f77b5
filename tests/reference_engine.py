"""A slow reference of the engine: one step at a time, one token at a time, lists and loops.

What lives here: the engine's page put into the most obvious code, so that a reader can check it
line by line, and a fast engine against it, timestamp by timestamp: who sends when, when a step
begins, static batching, and the record. How a step is put together is in `reference_scheduler`.
What does not: speed, validation of input, metrics, and anything imported from `course`. Sentences
in quotation marks are the page's own; "Rule n" is the n-th rule of its continuous batching.

Readings of the page
====================
Where the page leaves something open, this is what the code does ("Alt:" names the reading not
taken). A simulator that follows the page and this list agrees with this one on every timestamp.

Notation: request i has arrival a, prompt P, output O, `emitted` tokens so far e, `computed` KV
tokens c; lacks = P + e - c; bs = block_size; blocks(n) = ceil(n / bs) = (n + bs - 1) // bs. All
times are IEEE doubles; all token counts, pairs and KV sums are exact integers.

Clock, cost, horizon
--------------------
1.  Cost: `fixed + per_prefill_token*n_p + per_prefill_pair*A + per_decode_seq*n_d +
    per_kv_token*K`, evaluated left to right, every product first rounded on its own (no fused
    multiply-add), each integer feature converted to double once, *after* summing over the step as
    an integer. `t_end = t + step_seconds`; a step that is not > 0 or not finite raises
    ValueError. Alt: summing per request.
2.  `scheduled_s` is the *start* t of the first step in which the request computes at least one
    token (not the end, and not the moment at which a batch forms). Token times and finish are
    step *ends*. Alt: batch start for static.
3.  The engine clock starts at 0.0; an empty engine jumps: `t = max(t, arrival of the next request
    that is not rejected)`. Arrivals with `arrival <= t` have joined.
4.  Horizon: a request is offered iff `arrival <= horizon_s`; a step may begin iff `t <
    horizon_s`. So the step in flight is completed, and a step that would begin exactly at the
    horizon is not run. Every result list covers the *offered* requests only (a prefix of the
    workload). Offered but inadmissible => REJECTED even if no step ran after its arrival;
    everything else not finished => UNFINISHED (NaN where it has no time). Alt: full-length arrays
    with a sixth code; `t <= horizon_s`.
5.  The horizon also cuts the future: an arrival behind it does not exist for anybody (it cannot
    complete a static batch). Alt: the engine waits for it.
6.  Little: an UNFINISHED request's time in system is `max(0, end of last step - arrival)`; N(t)
    is integrated up to the end of the last step. (max, because a request can arrive after the
    last step, e.g. during a window that the horizon cuts off.)
7.  TIMED_OUT and CANCELLED: nothing on this page produces them; the reference never does. Status
    codes: FINISHED 0, REJECTED 1, TIMED_OUT 2, CANCELLED 3, UNFINISHED 4.

Rejection, prefix hits
----------------------
8.  Rejected on arrival iff `blocks(P + O - 1) > num_kv_blocks` (if limited) or (`not
    enable_chunked_prefill` and `P + O - 1 > max_num_batched_tokens`). The same test in every
    batching mode and order; prefix hits are *not* deducted (they are forgotten on preemption).
    Alt: deducting them; no budget rule for static.
9.  Prefix hit = `min(cached_prefix_tokens, P - 1) // bs * bs` tokens (bs is used even where KV is
    unlimited). It applies once, at the first time the request is scheduled: c = hit, lacks = P -
    hit, chunk = min(lacks, budget left), and the blocks that must be free are blocks(hit +
    chunk): the hit lies in blocks of the request's own, nothing is shared. `done` in the pair
    formula starts at hit. A hit token costs no budget and no prefill feature. A waiting request
    that did not fit still has its hit later. After a preemption c = 0 and there is no hit any
    more. Alt: shared blocks; a second hit after preemption.

Continuous
----------
10. Decode iff `e >= 1 and lacks == 1` at the moment of scheduling; else prefill of n = min(lacks,
    budget left). So a recompute cut by the budget to one token is a prefill unless it lacked
    exactly one; a first prompt's last one-token piece (e = 0) is a prefill. Decode reads P + e (e
    before the step). A waiting request can never decode.
11. The running list is in order of latest admission in *every* order (fcfs, sjf, priority):
    admission appends. Alt: priority keeps it sorted by priority.
12. n is fixed before preempting: n = min(lacks, budget left); then while blocks(c + n) - held >
    free: preempt. A request preempted *in* this step's running pass stays out of this step.
13. Several preempted in one step each go to the very front (appendleft): the one preempted last
    is the head. As victims are taken from the tail (fcfs, sjf), the front shows them again in
    admission order.
14. "If nobody was preempted in this step" covers the whole waiting pass (incl. self-preemption).
    In the prefill-first way the waiting pass comes first, so the rule has no effect there.
15. Head of line: the first waiting request whose blocks(c + chunk) > free stops the pass, also if
    a later one would fit; the chunk is not shortened to fit the free blocks.
16. `step_kv_blocks` = blocks held after scheduling and before the frees at the step's end. A
    request's blocks stay at blocks(c) between steps; unlimited KV: no list.
17. A step's tokens = prefill tokens + decode sequences (<= budget); a step's sequences = requests
    that compute in it.
18. Prefill first (`enable_chunked_prefill=False`): "whole" is lacks = P + e - hit; taken iff
    `lacks <= budget left and blocks(P + e) <= free and running < max_num_seqs`. Rule 2 (if none
    was taken) as it stands: at most `max_num_batched_tokens` of the running decode, in admission
    order, the rest stand still.

Orders of the waiting queue
---------------------------
It is re-sorted, at the start time t of a step, whenever waiting requests are looked at.
19. fcfs: preempted ones (last preempted first), then by arrival = index.
20. sjf: preempted ones first, as in fcfs (rule 2's front: the order is among those never
    started); then overdue ones, `t - arrival > max_wait_s` (strict), by index; then by
    (predicted_output_tokens, index). No prediction given: the true output_tokens. max_wait_s
    None: nobody is overdue. Alt: preempted ones sorted by prediction; overdue before preempted.
    Victim: the last running one, as in fcfs.
21. priority: *smaller value = more urgent* (as in vLLM). Key = `value + arrival_s / ageing_s`
    (one division, one addition; ageing None: key = float(value)): value - (t - a)/ageing differs
    from it by t/ageing, the same for all, so the order does not depend on t. Head = smallest
    (key, index), *preempted ones included* (they go back by their key, as in vLLM: the front
    would be a priority inversion). priority None: all 0. Alt: evaluating value - (t - a)/ageing
    in floats at t; waited time frozen at admission; preempted ones at the front.
22. priority victim: the running request with the largest (key, index), also if it was already
    scheduled in this step: then it is withdrawn from the step and its n tokens go back to the
    budget for those that come after (the requester's own n is not enlarged). If the victim is the
    requester itself, the running pass ends (even though others stand behind it in admission
    order). As in vLLM. Alt: only unscheduled ones may be victims.
23. If the pass leaves nothing scheduled (only possible under priority), it was no step:
    scheduling starts again at the same t, with "nobody preempted yet". It terminates, as the
    running list got shorter. Preemptions made count.

single, static, windowed, adaptive
----------------------------------
24. single = continuous with max_num_seqs replaced by 1; `order` and `enable_chunked_prefill`
    still apply (default fcfs).
25. static(B, w): `1 <= B <= max_num_seqs` and `B <= max_num_batched_tokens` (a decode step of the
    batch is B tokens), else ValueError naming batch_size. Alt: min(B, seats).
26. static start, asked whenever the engine is idle (no batch in progress): when the last batch
    ends, at each later arrival, at the deadline: start iff waiting >= B; or w given and `t >=
    first + w` with first = the earliest arrival among the waiting (float sum `first + window_s`);
    or w is None and no arrival can come that would be accepted (nobody will send within the
    horizon, or every request not yet sent would be rejected). So without w the last batch starts
    at max(engine idle, last accepted arrival), with all the leftovers (not earlier, once it is
    known that B cannot be reached). With w the last batch waits its w out. On a tie of arrival
    and deadline the arrival joins first. Start time = the event's time (`t = max(t, first + w)`).
27. The batch = the first min(B, waiting) of the queue in its order at the start time. With
    limited KV only as many, head-of-line, as have Σ blocks(P + O - 1) <= num_kv_blocks (at least
    one, see 8): the batch never preempts. The others keep waiting (their `first` is still their
    arrival). Alt: preemption inside the batch.
28. static prefill: steps in which the batch, in batch order, takes min(lacks, budget left) each,
    until nobody lacks any of its prompt; a prompt may be split over steps and a step may end one
    prompt and begin the next. A request whose prompt is done emits its first token at the end of
    *that* step, then stands still (no decode feature) until the whole batch is prefilled. With
    `enable_chunked_prefill=False` a prompt is never split: a step takes whole lacks while they
    fit the budget left; the first that does not closes the step.
29. static decode: every slot of the batch (its actual size, not B) counts 1 in decode sequences,
    until the longest has ended. A live slot reads P + e; an ended one reads and holds its final
    length, P + O - 1 tokens. If all O = 1 there is no decode step. Step tokens count ended slots
    too. Held blocks in a step: Σ blocks(c after the step), 0 for those not yet begun. Finish at
    own last token; blocks of all freed when the batch ends.
30. windowed(w): an *idle* engine waits: one that runs nothing and for which nobody waits who
    arrived before t (t = end of the last step, or 0.0). So a step boundary at which somebody
    waits who arrived *during* the step begins at once, as in continuous, and so does one with a
    preempted request; an arrival exactly at t (`arrival == t`, e.g. a closed loop's send after
    think 0) finds the engine idle. First = the earliest accepted arrival of the idle engine;
    start = the earlier of `first + window_s` and the arrival that makes max_num_seqs wait (>=).
    All with arrival <= start have joined. w = 0 is continuous. Alt: waiting also when nothing
    runs but older ones wait.
31. adaptive(w): as windowed, and at every moment of the wait: go on waiting only while `count *
    window_s >= 1.0`, count = accepted arrivals with `arrival <= t and arrival + 1.0 > t` (the
    current ones included, those of earlier busy times too; rejected ones not). Asked at the first
    arrival, at each later arrival, and at each moment `arrival + 1.0` at which one leaves the
    last second; the first moment at which it fails is the start. Still at most `first +
    window_s`. On a tie arrivals join first. Alt: asked at arrivals only; rate without the current
    request. Windows are given in seconds >= 0, finite.

Closed loop
-----------
32. Users start at given times `start_s[u]` (the public function draws them, e.g.
    `default_rng(seed).uniform(0.0, ramp_s, users)`, user u the u-th draw, not sorted; ramp 0: all
    at 0.0).
33. `think_s` is one number or one per request: think_s[k] follows the end of the k-th *sent*
    request. Next send = `end + think` (one addition); end = finish_s, or the arrival if rejected.
    Alt: per-user sequences.
34. Pending sends are taken in order of (time, user); each takes the next unused request k = 0, 1,
    ... with *all* its attributes (lengths, prefix, prediction, priority). A rejected user with
    think 0 sends again at the same time, before users with a higher number. Sends with time <= t
    have joined at a step that begins at t; sends of requests that ended at t with think 0 are
    among them.
35. When the requests are used up, users stop. A send after the horizon is not made and uses up no
    request. Offered = sent.
36. For the rest an open workload *is* a closed loop of n users with one request each, user k
    starting at arrival_s[k].
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.reference_scheduler import (
    Dials,
    Job,
    Piece,
    Scheduler,
    blocks_for,
    cache_full_blocks,
    compute,
    features,
    give_blocks_back,
    grow,
    is_rejected,
    kept_blocks,
    leave_seat,
    see_arrivals,
    sort_queue,
    step_of_work,
    step_seconds,
)

FINISHED, REJECTED, TIMED_OUT, CANCELLED, UNFINISHED = range(5)


# ---------------------------------------------------------------------------------------------
# Nouns
# ---------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Config(Dials):
    """Everything that decides what the engine does, besides the lengths, the sends and the cost.

    `batching` may be continuous, single, static, windowed, adaptive, sglang.
    """

    horizon_s: float | None = None
    batch_size: int | None = None  # static's B
    window_s: float | None = None  # w of static, windowed and adaptive
    predicted_output_tokens: Sequence[float] | None = None
    priority: Sequence[float] | None = None
    cached_prefix_tokens: Sequence[int] | None = None
    max_steps: int = 1_000_000


@dataclass(eq=False, kw_only=True)
class Request(Job):
    """One offered request: the k-th of the workload, which is the k-th sent."""

    user: int
    status: int = UNFINISHED
    scheduled_s: float = math.nan
    finish_s: float = math.nan
    token_times: list[float] = field(default_factory=list)


@dataclass
class ReferenceRun:
    """The record of one run: per offered request, then per step."""

    arrival_s: list[float] = field(default_factory=list)
    user: list[int] = field(default_factory=list)
    status: list[int] = field(default_factory=list)
    scheduled_s: list[float] = field(default_factory=list)
    first_token_s: list[float] = field(default_factory=list)
    finish_s: list[float] = field(default_factory=list)
    preemptions: list[int] = field(default_factory=list)
    prefix_hit_tokens: list[int] = field(default_factory=list)
    recovered_tokens: list[int] = field(default_factory=list)
    token_times_s: list[list[float]] = field(default_factory=list)
    step_start_s: list[float] = field(default_factory=list)
    step_end_s: list[float] = field(default_factory=list)
    step_prefill_tokens: list[int] = field(default_factory=list)
    step_prefill_pairs: list[int] = field(default_factory=list)
    step_decode_seqs: list[int] = field(default_factory=list)
    step_kv_tokens: list[int] = field(default_factory=list)
    step_seqs: list[int] = field(default_factory=list)
    step_kv_blocks: list[int] = field(default_factory=list)  # stays empty where KV is unlimited
    # How often the rarest rules were used, so that a test can show that its cases reach them.
    self_preemptions: int = 0
    withdrawals: int = 0
    empty_passes: int = 0
    reached: dict[str, int] = field(default_factory=dict)

    def token_times(self, i: int) -> list[float]:
        """Return the time of every output token of request i, in seconds."""
        return self.token_times_s[i]


class Senders:
    """Who sends what when: an open workload or a closed loop (readings 32 to 36)."""

    def __init__(
        self,
        start_s: Sequence[float],
        think_s: Sequence[float] | None,
        prompt_tokens: Sequence[int],
        output_tokens: Sequence[int],
        config: Config,
    ) -> None:
        # "equal times are ordered by user": the heap's rows compare by the time of joining, then by
        # user, and end with the time of sending.
        self.pending: list[tuple[float, int, float]] = []
        self.front_end_s = config.front_end_s
        for user, at in enumerate(start_s):
            self.plan(float(at), user)
        self.think_s = think_s
        self.prompt_tokens = prompt_tokens
        self.output_tokens = output_tokens
        self.config = config
        self.sent = 0

    def plan(self, sent_s: float, user: int) -> None:
        """A user will send: "joins the server (gate, rejection, queue) at s + f"."""
        heapq.heappush(self.pending, (sent_s + self.front_end_s, user, sent_s))

    def next_send_s(self) -> float | None:
        """Return when the next request joins; None where none is offered any more."""
        if not self.pending or self.sent == len(self.prompt_tokens):
            return None
        at = self.pending[0][0]
        # "requests that arrive later [than the horizon] are not offered"
        if self.config.horizon_s is not None and at > self.config.horizon_s:
            return None
        return at

    def send(self) -> Request:
        """Take the next send: "the k-th request of the workload is the k-th sent"."""
        at, user, sent_s = heapq.heappop(self.pending)
        k = self.sent
        self.sent += 1
        c = self.config
        prompt, output = int(self.prompt_tokens[k]), int(self.output_tokens[k])
        # "full blocks, at most prompt - 1 tokens"
        cached = 0 if c.cached_prefix_tokens is None else int(c.cached_prefix_tokens[k])
        hit = min(cached, prompt - 1) // c.block_size * c.block_size
        predicted = output if c.predicted_output_tokens is None else c.predicted_output_tokens[k]
        # "value minus waited time / ageing_s", without the part that all have in common
        key = 0.0 if c.priority is None else float(c.priority[k])
        if c.ageing_s is not None:
            key = key + at / c.ageing_s
        return Request(
            serial=k,
            row=k,
            user=user,
            sent_s=sent_s,
            arrival_s=at,
            joined_s=at,
            prompt=prompt,
            output=output,
            hit=hit,
            predicted=float(predicted),
            priority_key=key,
        )

    def ended(self, request: Request, at: float) -> None:
        """Note that a request ended: a closed loop's user sends again a think time later."""
        if self.think_s is not None:
            self.plan(at + self.think_s[request.row], request.user)

    def nothing_acceptable_can_come(self) -> bool:
        """Tell whether no arrival can complete a static batch any more (reading 26)."""
        if self.next_send_s() is None:
            return True
        to_come_s = sorted(at for at, _, _ in self.pending)
        horizon_s = self.config.horizon_s
        for place, k in enumerate(range(self.sent, len(self.prompt_tokens))):
            if self.think_s is None and horizon_s is not None and to_come_s[place] > horizon_s:
                break  # reading 5: who comes behind the horizon does not exist for anybody
            if not is_rejected(int(self.prompt_tokens[k]), int(self.output_tokens[k]), self.config):
                return False
        return True


@dataclass(kw_only=True)
class Engine(Scheduler):
    """The engine's state between two steps."""

    config: Config
    cost: tuple[float, ...]
    senders: Senders
    batch: list[Request] = field(default_factory=list)  # static only: the batch in progress
    offered: list[Request] = field(default_factory=list)
    record: ReferenceRun = field(default_factory=ReferenceRun)


# ---------------------------------------------------------------------------------------------
# The two public verbs
# ---------------------------------------------------------------------------------------------
def reference_simulate(
    arrival_s: Sequence[float],
    prompt_tokens: Sequence[int],
    output_tokens: Sequence[int],
    cost: tuple[float, float, float, float, float],
    **config: Any,
) -> ReferenceRun:
    """Run an open workload, sorted by arrival; the keywords are the fields of `Config`.

    `cost` is (fixed_s, per_prefill_token_s, per_prefill_pair_s, per_decode_seq_s, per_kv_token_s).
    """
    c = Config(**config)
    # Reading 36: n users, each of whom sends one request and never comes back.
    senders = Senders(arrival_s, None, prompt_tokens, output_tokens, c)
    return run_engine(senders, cost, c)


def reference_simulate_closed(
    users: int,
    think_s: float | Sequence[float],
    prompt_tokens: Sequence[int],
    output_tokens: Sequence[int],
    cost: tuple[float, float, float, float, float],
    *,
    start_s: Sequence[float] | None = None,
    **config: Any,
) -> ReferenceRun:
    """Run a closed loop of `users`, who start at `start_s` (all at 0 without it)."""
    c = Config(**config)
    n = len(prompt_tokens)
    think = [float(think_s)] * n if isinstance(think_s, int | float) else list(think_s)
    start = [0.0] * users if start_s is None else list(start_s)
    if len(start) != users:
        raise ValueError(f"start_s has {len(start)} times for {users} users; give one a user")
    return run_engine(Senders(start, think, prompt_tokens, output_tokens, c), cost, c)


def run_case(case: dict[str, Any]) -> ReferenceRun:
    """Run a plain-data case: a closed loop where it names `users`, an open workload otherwise."""
    return reference_simulate_closed(**case) if "users" in case else reference_simulate(**case)


# ---------------------------------------------------------------------------------------------
# The loop
# ---------------------------------------------------------------------------------------------
def run_engine(senders: Senders, cost: tuple[float, ...], config: Config) -> ReferenceRun:
    """Take one step after the other until nothing is left, or the horizon is reached."""
    config = check_config(config)
    prices = tuple(float(x) for x in cost)
    engine = Engine(dials=config, config=config, cost=prices, senders=senders)
    while True:
        start = next_start(engine)
        if start is None:
            break
        # "the step in flight at the horizon is completed": none begins at or after it.
        if config.horizon_s is not None and start >= config.horizon_s:
            break
        engine.t = start
        if len(engine.record.step_end_s) >= config.max_steps:
            raise RuntimeError(
                f"the reference engine reached {config.max_steps} steps at t = {engine.t} s with "
                f"{len(engine.waiting)} waiting and {len(engine.running)} running: is it a hang?"
            )
        take_step(engine)
    # Offered before the horizon, though no step began after they arrived.
    if config.horizon_s is not None:
        join(engine, config.horizon_s)
    return finish_record(engine)


def check_config(c: Config) -> Config:
    """Refuse what the page gives no meaning to; give `single` its one seat."""
    if c.batching not in ("continuous", "single", "static", "windowed", "adaptive", "sglang"):
        raise ValueError(f"batching is {c.batching!r}")
    if c.enable_prefix_caching and c.cached_prefix_tokens is not None:
        raise ValueError("cached_prefix_tokens is given by hand; enable_prefix_caching finds them")
    if c.batching in ("windowed", "adaptive") and c.window_s is None:
        raise ValueError(f"window_s is missing; batching={c.batching!r} needs one")
    if c.batching == "static":
        limit = min(c.max_num_seqs, c.max_num_batched_tokens)
        if c.batch_size is None or not 1 <= c.batch_size <= limit:
            raise ValueError(f"batch_size is {c.batch_size}; static needs 1 to {limit}")
    if c.batching == "single":
        # "one request at a time, FCFS: continuous batching with one seat"
        return replace(c, batching="continuous", max_num_seqs=1)
    return c


def take_step(engine: Engine) -> None:
    """Schedule, price and complete one step that begins at `engine.t`."""
    ended_slots: list[Request] = []
    if engine.config.batching == "static":
        pieces, ended_slots = schedule_static(engine)
    else:
        see_arrivals(engine)
        pieces = step_of_work(engine)

    prefill_tokens, prefill_pairs, decode_seqs, kv_tokens = features(pieces)
    for r in ended_slots:
        # static: "an ended slot still counts in decode sequences, and its KV stays read [...]
        # at its final length"
        decode_seqs += 1
        kv_tokens += r.prompt + r.output - 1

    start = engine.t
    engine.t = start + step_seconds(
        engine.cost, (prefill_tokens, prefill_pairs, decode_seqs, kv_tokens)
    )

    record = engine.record
    record.step_start_s.append(start)
    record.step_end_s.append(engine.t)
    record.step_prefill_tokens.append(prefill_tokens)
    record.step_prefill_pairs.append(prefill_pairs)
    record.step_decode_seqs.append(decode_seqs)
    record.step_kv_tokens.append(kv_tokens)
    record.step_seqs.append(len(pieces) + len(ended_slots))
    if engine.pool is not None:
        record.step_kv_blocks.append(engine.pool.held())

    # Rule 5: "At its end each scheduled request has its tokens computed. One that now lacks
    # none emits a token [...]; at output_tokens it is finished and its blocks are free for the
    # next step."
    emits = [compute(engine, piece) for piece in pieces]
    cache_full_blocks(engine, pieces)
    for piece, tokens in zip(pieces, emits, strict=True):
        r = piece.job
        if math.isnan(r.scheduled_s):
            r.scheduled_s = start
        r.token_times.extend([engine.t] * tokens)
        if r.emitted == r.output:
            finish(engine, r)
    if engine.batch and all(r.emitted == r.output for r in engine.batch):
        # static: "the next batch forms when the last has ended"
        for r in engine.batch:
            give_blocks_back(engine, r)
        engine.batch = []


def finish(engine: Engine, r: Request) -> None:
    """End a request at the time of its last token."""
    r.status = FINISHED
    r.finish_s = engine.t
    engine.senders.ended(r, engine.t)
    if r in engine.running:  # static: the slot and its blocks stay until the batch ends
        leave_seat(engine, r)


# ---------------------------------------------------------------------------------------------
# Arrivals, and when the next step begins
# ---------------------------------------------------------------------------------------------
def join(engine: Engine, t: float) -> None:
    """Rule 1: every request with arrival <= t has joined the tail, unless it is rejected."""
    while True:
        at = engine.senders.next_send_s()
        if at is None or at > t:
            return
        r = engine.senders.send()
        engine.offered.append(r)
        if is_rejected(r.prompt, r.output, engine.config):
            r.status = REJECTED
            engine.senders.ended(r, r.arrival_s)
        else:
            # Under asynchronous scheduling it is not visible at once.
            queue = engine.unseen if engine.config.async_scheduling else engine.waiting
            queue.append(r)


def next_start(engine: Engine) -> float | None:
    """Return when the next step begins, all arrivals up to then joined; None at the end."""
    if engine.config.batching == "static":
        return next_start_static(engine)
    # "A step starts at the end of the one before; when the engine is empty, at the next arrival
    # that is not rejected."
    t = engine.t
    join(engine, t)
    if engine.config.async_scheduling:
        # "An engine with nobody running and nobody visible waiting is idle: it starts at once at
        # the end of its step or at the next joining, whichever is later"
        if engine.running or engine.waiting or engine.unseen:
            return t
    elif engine.running or any(r.arrival_s < t for r in engine.waiting):
        return t
    # The engine is idle (reading 30): nobody is there who arrived before t.
    while not engine.waiting and not engine.unseen:
        at = engine.senders.next_send_s()
        if at is None:
            return None
        t = max(t, at)
        join(engine, t)
    if engine.config.batching in ("windowed", "adaptive"):
        t = wait_for_window(engine, t)
    return t


def wait_for_window(engine: Engine, t: float) -> float:
    """Windowed: "an *idle* engine waits w seconds after the first arrival, or until
    max_num_seqs wait, before its first step"; adaptive: only while the rate promises more.
    """
    c = engine.config
    assert c.window_s is not None
    deadline = min(r.arrival_s for r in engine.waiting) + c.window_s
    while len(engine.waiting) < c.max_num_seqs and t < deadline:
        moments = [deadline]
        if c.batching == "adaptive":
            recent = arrivals_in_last_second(engine, t)
            # "promises at least one more arrival within w": count per second, times w seconds
            if not len(recent) * c.window_s >= 1.0:
                return t
            moments.append(min(a + 1.0 for a in recent))
        at = engine.senders.next_send_s()
        if at is not None:
            moments.append(at)
        t = max(t, min(moments))
        join(engine, t)
    return t


def arrivals_in_last_second(engine: Engine, t: float) -> list[float]:
    """Return the accepted arrivals seen over the last second (reading 31)."""
    return [r.arrival_s for r in engine.offered if r.status != REJECTED and r.arrival_s + 1.0 > t]


def next_start_static(engine: Engine) -> float | None:
    """Static: "an idle engine waits until B requests wait or w seconds have passed since the
    first of them arrived, whichever comes first (no w: until B, and the last, incomplete batch
    starts when no arrival can complete it)".
    """
    c = engine.config
    assert c.batch_size is not None
    t = engine.t
    join(engine, t)
    if engine.batch:
        return t
    while True:
        waiting = engine.waiting
        if len(waiting) >= c.batch_size:
            return t
        moments = []
        if waiting and c.window_s is not None:
            deadline = min(r.arrival_s for r in waiting) + c.window_s
            if t >= deadline:
                return t
            moments.append(deadline)
        if waiting and c.window_s is None and engine.senders.nothing_acceptable_can_come():
            return t
        at = engine.senders.next_send_s()
        if at is not None:
            moments.append(at)
        if not moments:
            return None
        t = max(t, min(moments))
        join(engine, t)


# ---------------------------------------------------------------------------------------------
# Static batching
# ---------------------------------------------------------------------------------------------
def schedule_static(engine: Engine) -> tuple[list[Piece], list[Request]]:
    """Choose what the batch computes in this step; returns the pieces and the ended slots."""
    c = engine.config
    if not engine.batch:
        form_batch(engine)
    # "They are prefilled together (in as many budget-sized steps as it takes, without padding)"
    if any(r.emitted == 0 for r in engine.batch):
        pieces: list[Piece] = []
        budget = c.max_num_batched_tokens
        for r in engine.batch:
            if r.emitted > 0:
                continue  # its prompt is done; it stands still until all are
            lacks = r.lacks - r.hit
            n = min(lacks, budget)
            if n == 0 or (not c.enable_chunked_prefill and n < lacks):
                break
            # "already computed when first scheduled and held in blocks of their own"
            r.computed += r.hit
            r.hit = 0
            grow(engine, r, r.computed + n)
            pieces.append(Piece(r, n, decodes=False))
            budget -= n
        return pieces, []
    # "then decode together until the longest ends"
    ended_slots = [r for r in engine.batch if r.emitted == r.output]
    live = [r for r in engine.batch if r.emitted < r.output]
    for r in live:
        grow(engine, r, r.computed + 1)
    return [Piece(r, 1, decodes=True) for r in live], ended_slots


def form_batch(engine: Engine) -> None:
    """Take the first B of the queue, as far as their final lengths fit the blocks (reading 27)."""
    c = engine.config
    assert c.batch_size is not None
    sort_queue(engine, engine.waiting)
    reserved = 0
    while engine.waiting and len(engine.batch) < c.batch_size:
        r = engine.waiting[0]
        reserved += blocks_for(r.prompt + r.output - 1, c)
        if c.num_kv_blocks is not None and reserved > c.num_kv_blocks - kept_blocks(c):
            break
        engine.waiting.remove(r)
        engine.batch.append(r)


# ---------------------------------------------------------------------------------------------
# The record
# ---------------------------------------------------------------------------------------------
def finish_record(engine: Engine) -> ReferenceRun:
    """Write each offered request's outcome; whatever has not ended is UNFINISHED."""
    record = engine.record
    for r in engine.offered:
        record.arrival_s.append(r.sent_s)
        record.user.append(r.user)
        record.status.append(r.status)
        record.scheduled_s.append(r.scheduled_s)
        record.first_token_s.append(r.token_times[0] if r.token_times else math.nan)
        record.finish_s.append(r.finish_s)
        record.preemptions.append(r.preemptions)
        record.prefix_hit_tokens.append(r.prefix_hit_tokens)
        record.recovered_tokens.append(r.recovered_tokens)
        record.token_times_s.append(r.token_times)
    record.self_preemptions = engine.reached["preempted itself"]
    record.withdrawals = engine.reached["withdrawn"]
    record.empty_passes = engine.reached["empty pass"]
    record.reached = dict(engine.reached)
    return record
