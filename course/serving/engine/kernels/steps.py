"""The compiled loops whose steps cost O(1), however many run in them; no objects and no checks.

Every function also runs uncompiled, with the same result bit for bit. There are two loops:

- `run_continuous`: continuous batching. It rests on one fact: while all running requests fit into
  the token budget they are *decoders*, which make one token a step together, and at most one
  *partial*, the request admitted last, whose prompt is still being computed. So the step at which
  a decoder ends is known, as a count of decode steps, when its decoding begins, and whether it
  needs a KV block in a step is known from its *phase*, the residue of its context modulo the block
  size.
- `run_batches`: static batching, on the same ground.

Where the fact fails (decoders that stand still for want of budget, victims by priority, blocks with
names, several tokens a step, prompts alone) or the queue is not seen as it is, the loop of
`kernels.service` runs. All state is in the records of `state`, so that a loop can stop when its log
is full and go on when the caller has made room. Whole numbers that change are in `work.at`, named
by the constants below.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, IntArray, SmallArray, TinyArray
from course.serving._compiled import compiled
from course.serving.engine.kernels.codes import CUSTOM, FCFS, FINISHED, PRIORITY, REJECTED, SJF
from course.serving.engine.kernels.common import (
    INF,
    OPTIONS,
    Price,
    attention_pairs,
    blocks_for,
    custom_key,
    step_seconds,
)
from course.serving.engine.kernels.state import Load, Log, Rules, Senders, Work

INLINED = OPTIONS | {"forceinline": True}  # a call would copy the records, array by array

# --- work.at -------------------------------------------------------------------------------------
STEPS = 0  # steps done
DECODE_STEPS = 1  # of those, steps in which somebody decoded
DECODERS = 2
KV_READ = 3  # prompt + emitted tokens of all decoders: what the next decode step reads
FREE = 4  # KV blocks
SENT = 5  # requests that have joined (or were rejected)
HEAD = 6  # the first that joined and was never scheduled (not first-come: never queued)
STACKED = 7  # preempted requests that stand in front of the queue
PARTIAL = 8  # its seat, or -1
DUE = 9  # entries in the heap of ends
VACANT = 10  # seats
LAST = 11  # seat of the decoder admitted last, or -1
TURN = 12  # the phase that needs a block at the next decode step
PENDING = 13  # users of a closed loop who will send again
GAPS = 14  # rows of the table of gaps
COMPLETING = 15  # seats whose prompt is completed by the step in hand
RECENT = 16  # the oldest request that the adaptive window still counts
QUEUED = 17  # entries in the queue, taken ones that were not removed yet included
WAITING = 18  # requests in the queue
OLDEST = 19  # the first that joined and was never taken from the queue
BATCH = 20  # size of the static batch; 0 between batches
NEXT_SEAT = 21  # of the batch, the first whose prompt is not all computed
ENDED = 22  # of the batch, those that have ended and still count
ENDED_KV = 23  # the tokens these hold
BATCHES = 24  # static batches so far
COSTLESS = 25  # four columns: the features of the step that would not last a time above 0 s
AT_SIZE = 29

# --- why a loop returns --------------------------------------------------------------------------
DONE = 1
FULL = 2  # the log has no room: make some and call again
BAD_COST = 3  # the next step would not last a finite time above 0 s

CONTINUOUS, WINDOWED, ADAPTIVE, STATIC = 0, 1, 2, 3  # rules.batching
BY_ARRIVAL = 4  # rules.order: first come, where the queue is a heap as for other orders

# --- work.seat -----------------------------------------------------------------------------------
REQUEST = 0
EMITTED = 1  # output tokens (of a decoder: at decode step SINCE)
SINCE = 2
COMPUTED = 3  # tokens in the cache (of a decoder: not kept up)
HELD = 4  # KV blocks (of a decoder: not kept up)
PHASE = 5
BEFORE = 6  # neighbours among the decoders in the order of admission
AFTER = 7
GAP = 8  # row of the gap that is open, or -1
SEAT_SIZE = 9

SEAT_BITS = 24  # an entry of the heap of ends: decode step of the last token << 24 | seat
SEAT_MASK = (1 << SEAT_BITS) - 1

# --- log.gaps: tokens fall on consecutive decode steps except where a row says otherwise ---------
GAP_REQUEST = 0
GAP_TOKENS = 1  # tokens emitted before the gap
GAP_LOST = 2  # the first step without it
GAP_BACK = 3  # the step in which it was admitted again; -1: it never was; KEPT: it had its seat
GAP_RESUMED = 4  # the step that brought its next token; -1: there was none before the next gap
GAP_SIZE = 5
KEPT = -2

# --- work.mark -----------------------------------------------------------------------------------
NEW = -1  # never taken from the queue
TAKEN = -2
FIRST_BATCH = -3  # and below: taken into the static batch FIRST_BATCH - mark


# ========================================================================================= heaps
@compiled(**INLINED)
def push_due(due: IntArray, size: int, entry: int) -> None:
    """Put `entry` into the heap of ends, which has `size` entries."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if due[parent] <= entry:
            break
        due[place] = due[parent]
        place = parent
    due[place] = entry


@compiled(**INLINED)
def drop_first_due(due: IntArray, size: int) -> None:
    """Take the first end out of the heap, which has `size` entries afterwards.

    The smaller child moves up all the way down, and the last entry, which nearly always belongs
    at the bottom, is put in there: that way a processor can guess how each comparison ends.
    """
    entry = due[size]
    place = 0
    child = 1
    while child + 1 < size:
        child += 1 if due[child + 1] < due[child] else 0
        due[place] = due[child]
        place = child
        child = 2 * place + 1
    if child < size:
        due[place] = due[child]
        place = child
    push_due(due, place, entry)


@compiled(**OPTIONS)
def sift_due(due: IntArray, size: int, place: int, entry: int) -> None:
    """Put `entry` at or below `place` of the heap of ends, which has `size` entries."""
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and due[child + 1] < due[child]:
            child += 1
        if due[child] >= entry:
            break
        due[place] = due[child]
        place = child
    due[place] = entry


@compiled(**OPTIONS)
def remove_due(due: IntArray, size: int, entry: int) -> None:
    """Take `entry` out of the heap of ends, which has `size` entries, wherever it is."""
    place = 0
    while due[place] != entry:
        place += 1
    last = due[size - 1]
    if place == size - 1:
        return
    if place > 0 and last < due[(place - 1) >> 1]:
        push_due(due, place, last)
    else:
        sift_due(due, size - 1, place, last)


@compiled(**OPTIONS)
def user_before(next_s: FloatArray, one: int, other: int) -> bool:
    """Say whether user `one` sends before user `other`: by time, then by number."""
    return next_s[one] < next_s[other] or (next_s[one] == next_s[other] and one < other)


@compiled(**OPTIONS)
def push_user(at: IntArray, users: Senders, user: int) -> None:
    """Let `user` send at their next time."""
    heap = users.heap
    place = at[PENDING]
    at[PENDING] += 1
    while place > 0:
        parent = (place - 1) >> 1
        if not user_before(users.next_s, user, heap[parent]):
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = user


@compiled(**OPTIONS)
def pop_user(at: IntArray, users: Senders) -> int:
    """Return the user who sends next, and take them out."""
    heap = users.heap
    top = heap[0]
    at[PENDING] -= 1
    size = at[PENDING]
    user = heap[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and user_before(users.next_s, heap[child + 1], heap[child]):
            child += 1
        if not user_before(users.next_s, heap[child], user):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = user
    return top


# ====================================================================================== arrivals
@compiled(**INLINED)
def never_fits(rules: Rules, tokens: int) -> bool:
    """Say whether a request that grows to `tokens` cached tokens can never be served."""
    most = rules.blocks - rules.kept_blocks
    if rules.blocks >= 0 and blocks_for(tokens, rules.block_size) > most:
        return True
    return not rules.chunked and tokens > rules.budget


@compiled(**INLINED)
def arrival_of(load: Load, users: Senders, request: int) -> float:
    """Return when a request was sent."""
    if users.next_s.size > 0:
        return users.sent_s[request]
    return load.arrival_s[request]


@compiled(**INLINED)
def next_send_s(at: IntArray, load: Load, users: Senders, rules: Rules) -> float:
    """Return when the next request will be sent; inf if none will be by the horizon."""
    if at[SENT] >= load.prompt.size:
        return INF
    if users.next_s.size > 0:
        if at[PENDING] == 0:
            return INF
        when_s = users.next_s[users.heap[0]]
    else:
        when_s = load.arrival_s[at[SENT]]
    if when_s > rules.horizon_s:
        return INF
    return when_s


@compiled(**INLINED)
def send_again(at: IntArray, users: Senders, request: int, end_s: float) -> None:
    """In a closed loop, let the user of a request that ended think and then send again."""
    if users.next_s.size > 0:
        user = users.owner[request]
        users.next_s[user] = end_s + users.think_s[request]
        push_user(at, users, user)


@compiled(**INLINED)
def send(at: IntArray, load: Load, users: Senders, rules: Rules, status: TinyArray) -> bool:
    """Let the next request join; return whether it was accepted."""
    request = at[SENT]
    at[SENT] += 1
    if users.next_s.size > 0:
        user = pop_user(at, users)
        users.sent_s[request] = users.next_s[user]
        users.owner[request] = user
    if never_fits(rules, load.prompt[request] + load.output[request] - 1):
        status[request] = REJECTED
        if users.next_s.size > 0:
            send_again(at, users, request, users.sent_s[request])
        return False
    return True


@compiled(**INLINED)
def send_until(
    at: IntArray, load: Load, users: Senders, rules: Rules, status: TinyArray, now_s: float
) -> int:
    """Let everybody join who sends by `now_s`; return how many were accepted."""
    accepted = 0
    next_s = next_send_s(at, load, users, rules)
    while next_s <= now_s and next_s < INF:
        if send(at, load, users, rules, status):
            accepted += 1
        next_s = next_send_s(at, load, users, rules)
    return accepted


@compiled(**OPTIONS)
def send_before(
    at: IntArray, load: Load, users: Senders, rules: Rules, status: TinyArray, now_s: float
) -> None:
    """Let everybody join who was sent earlier than `now_s`."""
    while next_send_s(at, load, users, rules) < now_s:
        send(at, load, users, rules, status)


@compiled(**OPTIONS)
def forget_old_arrivals(
    at: IntArray, load: Load, users: Senders, status: TinyArray, now_s: float
) -> int:
    """Move RECENT past those sent a second ago or earlier; return how many were accepted ones."""
    left = 0
    while at[RECENT] < at[SENT] and arrival_of(load, users, at[RECENT]) + 1.0 <= now_s:
        if status[at[RECENT]] != REJECTED:
            left += 1
        at[RECENT] += 1
    return left


@compiled(**OPTIONS)
def start_when_empty(
    at: IntArray, load: Load, users: Senders, rules: Rules, status: TinyArray, now_s: float
) -> float:
    """Return when an engine, idle since `now_s`, begins its next step; inf if nobody comes.

    A windowed engine waits for the first of two: its window
    has passed since the first arrival, or all seats are asked for. An adaptive one stops waiting
    as soon as the last second's arrivals do not promise one more within a window.
    """
    accepted = False
    while not accepted:
        if next_send_s(at, load, users, rules) == INF:
            return INF
        accepted = send(at, load, users, rules, status)
    first_s = arrival_of(load, users, at[SENT] - 1)
    now_s = max(now_s, first_s)
    if rules.batching != WINDOWED and rules.batching != ADAPTIVE:
        return now_s
    deadline_s = first_s + rules.window_s
    waiting = 1 + send_until(at, load, users, rules, status, now_s)
    recent = 0
    if rules.batching == ADAPTIVE:
        forget_old_arrivals(at, load, users, status, now_s)
        for request in range(at[RECENT], at[SENT]):
            if status[request] != REJECTED:
                recent += 1
    while waiting < rules.batch_size and now_s < deadline_s:
        next_s = min(next_send_s(at, load, users, rules), deadline_s)
        if rules.batching == ADAPTIVE:
            recent -= forget_old_arrivals(at, load, users, status, now_s)
            if recent * rules.window_s < 1.0:
                break
            next_s = min(next_s, arrival_of(load, users, at[RECENT]) + 1.0)
        now_s = next_s
        joined = send_until(at, load, users, rules, status, now_s)
        waiting += joined
        recent += joined
    return now_s


@compiled(**OPTIONS)
def start_s(
    at: IntArray, load: Load, users: Senders, rules: Rules, status: TinyArray, now_s: float
) -> float:
    """Return when an engine in which nothing runs begins its next step; inf if never.

    Everybody sent by then has joined. Only who arrived before `now_s` keeps it from being idle:
    it then begins at once, and does not wait for a window.
    """
    send_before(at, load, users, rules, status, now_s)
    if not somebody_waits(at, status):
        now_s = start_when_empty(at, load, users, rules, status, now_s)
    send_until(at, load, users, rules, status, now_s)
    return now_s


# =============================================================================== shared by loops
@compiled(**INLINED)
def open_gap(at: IntArray, gaps: SmallArray, request: int, tokens: int, step: int) -> int:
    """Note that `request` is left out from `step` on; return the row."""
    row = at[GAPS]
    gaps[row, GAP_REQUEST] = request
    gaps[row, GAP_TOKENS] = tokens
    gaps[row, GAP_LOST] = step
    gaps[row, GAP_BACK] = -1
    gaps[row, GAP_RESUMED] = -1
    at[GAPS] = row + 1
    return row


@compiled(**INLINED)
def end_request(
    at: IntArray, users: Senders, log: Log, request: int, output_tokens: int, end_s: float
) -> None:
    """Note that a request has made its last token."""
    log.finish_s[request] = end_s
    log.tokens[request] = output_tokens
    log.status[request] = FINISHED
    send_again(at, users, request, end_s)


@compiled(**INLINED)
def prefix_hit(load: Load, rules: Rules, request: int) -> int:
    """Return the tokens found in the prefix cache: whole blocks, and never the whole prompt."""
    if load.cached.size == 0:
        return 0
    size = rules.block_size
    return min(load.cached[request], load.prompt[request] - 1) // size * size


@compiled(**INLINED)
def log_step(
    at: IntArray, rules: Rules, log: Log, end_s: float, prefill_tokens: int, decode_seqs: int
) -> None:
    """Write one step to the log and count it."""
    step = at[STEPS]
    word = (prefill_tokens << rules.prefill_shift) | (decode_seqs << rules.decode_shift)
    if rules.blocks >= 0:
        word |= rules.blocks - at[FREE]
    log.step_end_s[step] = end_s
    log.step_work[step] = word
    at[STEPS] = step + 1
    if decode_seqs > 0:
        at[DECODE_STEPS] += 1
        at[TURN] = (at[TURN] if at[TURN] > 0 else rules.block_size) - 1


@compiled(**OPTIONS)
def refuse(
    at: IntArray, prefill_tokens: int, prefill_pairs: int, decode_seqs: int, kv_tokens: int
) -> float:
    """Note the features of a step that costs no time or no finite one; return -1."""
    at[COSTLESS] = prefill_tokens
    at[COSTLESS + 1] = prefill_pairs
    at[COSTLESS + 2] = decode_seqs
    at[COSTLESS + 3] = kv_tokens
    return -1.0


@compiled(**INLINED)
def has_room(work: Work, rules: Rules, log: Log) -> bool:
    """Say whether the log can take one more step, whatever happens in it."""
    at = work.at
    if at[STEPS] >= log.step_end_s.size:
        return False
    if rules.blocks < 0 and rules.chunked:
        return True  # nobody is preempted and nobody stands still
    return at[GAPS] + work.vacant.size - at[VACANT] <= log.gaps.shape[0]


@compiled(**INLINED)
def take_seat(work: Work, request: int, emitted: int) -> int:
    """Give `request` a vacant seat; return it."""
    at = work.at
    seat = work.seat
    at[VACANT] -= 1
    me = work.vacant[at[VACANT]]
    seat[me, REQUEST] = request
    seat[me, EMITTED] = emitted
    seat[me, HELD] = 0
    seat[me, GAP] = -1
    return me


@compiled(**INLINED)
def leave_seat(work: Work, me: int) -> None:
    """Make the seat vacant."""
    at = work.at
    work.vacant[at[VACANT]] = me
    at[VACANT] += 1


# ====================================================================================== decoders
@compiled(**INLINED)
def begin_decoding(
    work: Work, rules: Rules, me: int, prompt_tokens: int, output_tokens: int
) -> None:
    """Turn a seat whose known tokens are all computed into a decoder, the last in order."""
    at = work.at
    seat = work.seat
    emitted = seat[me, EMITTED]
    seat[me, SINCE] = at[DECODE_STEPS]
    at[DECODERS] += 1
    at[KV_READ] += prompt_tokens + emitted
    push_due(work.due, at[DUE], ((at[DECODE_STEPS] + output_tokens - emitted) << SEAT_BITS) | me)
    at[DUE] += 1
    if rules.blocks >= 0:
        phase = (prompt_tokens + emitted - 1 - at[DECODE_STEPS]) % rules.block_size
        seat[me, PHASE] = phase
        work.phases[phase] += 1
        seat[me, BEFORE] = at[LAST]
        seat[me, AFTER] = -1
        if at[LAST] >= 0:
            seat[at[LAST], AFTER] = me
        at[LAST] = me


@compiled(**INLINED)
def end_decoding(work: Work, rules: Rules, me: int, cached_tokens: int) -> None:
    """Take a decoder with `cached_tokens` in the cache from its seat; its blocks become free."""
    at = work.at
    seat = work.seat
    at[DECODERS] -= 1
    at[KV_READ] -= cached_tokens + 1
    leave_seat(work, me)
    if rules.blocks >= 0:
        at[FREE] += blocks_for(cached_tokens, rules.block_size)
        work.phases[seat[me, PHASE]] -= 1
        before = seat[me, BEFORE]
        after = seat[me, AFTER]
        if before >= 0:
            seat[before, AFTER] = after
        if after >= 0:
            seat[after, BEFORE] = before
        else:
            at[LAST] = before


@compiled(**INLINED)
def keep_slot(at: IntArray, rules: Rules, cached_tokens: int) -> None:
    """Let a request that ended in a static batch go on counting at its final length."""
    at[ENDED] += 1
    at[ENDED_KV] += cached_tokens
    if rules.blocks >= 0:
        at[FREE] -= blocks_for(cached_tokens, rules.block_size)


@compiled(**INLINED)
def end_those_due(
    work: Work, load: Load, users: Senders, rules: Rules, log: Log, now_s: float
) -> None:
    """End every decoder whose last token fell on the step just done."""
    at = work.at
    due = work.due
    while at[DUE] > 0 and (due[0] >> SEAT_BITS) == at[DECODE_STEPS]:
        me = due[0] & SEAT_MASK
        at[DUE] -= 1
        drop_first_due(due, at[DUE])
        request = work.seat[me, REQUEST]
        output_tokens = load.output[request]
        cached_tokens = load.prompt[request] + output_tokens - 1
        end_decoding(work, rules, me, cached_tokens)
        if rules.batching == STATIC:
            keep_slot(at, rules, cached_tokens)
        end_request(at, users, log, request, output_tokens, now_s)


@compiled(**INLINED)
def decode_on(
    work: Work, rules: Rules, price: Price, log: Log, now_s: float, until_s: float
) -> float:
    """Do steps in which all running requests decode, until one is due; return when they end.

    Stops before a step that would begin at `until_s` or at the horizon, before a shortage of
    blocks, and when the log is full. Returns -1 if a step would cost nothing.
    """
    at = work.at
    phases = work.phases
    step_end_s = log.step_end_s
    step_work = log.step_work
    decoders = at[DECODERS]
    slots = decoders + at[ENDED]
    kv_tokens = at[KV_READ] + at[ENDED_KV]
    free = at[FREE]
    turn = at[TURN]
    word = slots << rules.decode_shift
    limited = rules.blocks >= 0
    until_s = min(until_s, rules.horizon_s)
    first = at[STEPS]
    last = min(step_end_s.size, first + (work.due[0] >> SEAT_BITS) - at[DECODE_STEPS])
    step = first
    while step < last and now_s < until_s:
        if limited:
            if phases[turn] > free:
                break
            free -= phases[turn]
            turn = (turn if turn > 0 else rules.block_size) - 1
            word = (slots << rules.decode_shift) | (rules.blocks - free)
        seconds = step_seconds(rules.cost, price, 0, 0, slots, kv_tokens)
        if not seconds > 0.0:
            now_s = refuse(at, 0, 0, slots, kv_tokens)
            break
        now_s += seconds
        kv_tokens += decoders
        step_end_s[step] = now_s
        step_work[step] = word
        step += 1
    if now_s == INF:
        now_s = refuse(at, 0, 0, slots, kv_tokens - decoders)
    at[STEPS] = step
    at[DECODE_STEPS] += step - first
    at[KV_READ] = kv_tokens - at[ENDED_KV]
    at[FREE] = free
    at[TURN] = turn
    return now_s


@compiled(**INLINED)
def emit_after_prefill(
    work: Work, load: Load, users: Senders, rules: Rules, log: Log, now_s: float
) -> None:
    """Let every request whose known tokens are all computed now emit its next token."""
    at = work.at
    seat = work.seat
    step = at[STEPS] - 1
    for place in range(at[COMPLETING]):
        me = work.completing[place]
        request = seat[me, REQUEST]
        if seat[me, EMITTED] == 0:
            log.first_token_s[request] = now_s
            log.first_step[request] = step
        if seat[me, GAP] >= 0:
            log.gaps[seat[me, GAP], GAP_RESUMED] = step
        seat[me, EMITTED] += 1
        output_tokens = load.output[request]
        if seat[me, EMITTED] < output_tokens:
            begin_decoding(work, rules, me, load.prompt[request], output_tokens)
        else:
            leave_seat(work, me)
            at[FREE] += seat[me, HELD]
            if rules.batching == STATIC:
                keep_slot(at, rules, load.prompt[request] + output_tokens - 1)
            end_request(at, users, log, request, output_tokens, now_s)
    at[COMPLETING] = 0


@compiled(**INLINED)
def compute_prompt(work: Work, load: Load, rules: Rules, me: int, computed: int, chunk: int) -> int:
    """Compute `chunk` more tokens on a seat that prefills; return their attention pairs."""
    at = work.at
    seat = work.seat
    done = computed + chunk
    seat[me, COMPUTED] = done
    if rules.blocks >= 0:
        held = blocks_for(done, rules.block_size)
        at[FREE] -= held - seat[me, HELD]
        seat[me, HELD] = held
    if done == load.prompt[seat[me, REQUEST]] + seat[me, EMITTED]:
        work.completing[at[COMPLETING]] = me
        at[COMPLETING] += 1
        at[PARTIAL] = -1
    else:
        at[PARTIAL] = me
    return attention_pairs(computed, chunk)


# ============================================================ the queue, where it is not by arrival
@compiled(**OPTIONS)
def goes_before(load: Load, users: Senders, rules: Rules, one: int, other: int) -> bool:
    """Say whether waiting request `one` stands before `other` in a built-in order."""
    if rules.order == SJF:
        if load.guess[one] != load.guess[other]:
            return load.guess[one] < load.guess[other]
    elif rules.order == PRIORITY:
        first = aged_value(load, users, rules, one)
        second = aged_value(load, users, rules, other)
        if first != second:
            return first < second
    return one < other


@compiled(**OPTIONS)
def aged_value(load: Load, users: Senders, rules: Rules, request: int) -> float:
    """Return a request's priority, which its age improves; all age alike, so no clock is needed."""
    value = 0.0
    if load.value.size > 0:
        value = load.value[request]
    return value + arrival_of(load, users, request) / rules.ageing_s


@compiled(**OPTIONS)
def enqueue(work: Work, load: Load, users: Senders, rules: Rules, request: int) -> None:
    """Put a request into the queue."""
    at = work.at
    queue = work.queue
    place = at[QUEUED]
    at[QUEUED] += 1
    at[WAITING] += 1
    while place > 0 and rules.order != CUSTOM:
        parent = (place - 1) >> 1
        if not goes_before(load, users, rules, request, queue[parent]):
            break
        queue[place] = queue[parent]
        place = parent
    queue[place] = request


@compiled(**OPTIONS)
def drop_top(work: Work, load: Load, users: Senders, rules: Rules) -> None:
    """Take the top entry out of the queue's heap."""
    at = work.at
    queue = work.queue
    at[QUEUED] -= 1
    size = at[QUEUED]
    request = queue[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and goes_before(load, users, rules, queue[child + 1], queue[child]):
            child += 1
        if not goes_before(load, users, rules, queue[child], request):
            break
        queue[place] = queue[child]
        place = child
    queue[place] = request


@compiled(**OPTIONS)
def enqueue_joined(work: Work, load: Load, users: Senders, rules: Rules, status: TinyArray) -> None:
    """Put everybody who has joined and was accepted into the queue."""
    at = work.at
    while at[HEAD] < at[SENT]:
        if status[at[HEAD]] != REJECTED:
            enqueue(work, load, users, rules, at[HEAD])
        at[HEAD] += 1


@compiled(**OPTIONS)
def place_by_custom_key(work: Work, load: Load, users: Senders, now_s: float) -> int:
    """Return the place in the queue whose key is the smallest; the earlier request on a tie."""
    best = -1
    best_key = INF
    for place in range(work.at[QUEUED]):
        request = work.queue[place]
        value = load.value[request] if load.value.size > 0 else 0.0
        key = custom_key(
            now_s,
            arrival_of(load, users, request),
            load.prompt[request],
            load.guess[request],
            value,
        )
        if best < 0 or key < best_key or (key == best_key and request < work.queue[best]):
            best = place
            best_key = key
    return best


@compiled(**OPTIONS)
def oldest_waiting(work: Work, status: TinyArray) -> int:
    """Return the request, never scheduled before, that has waited longest; -1 if there is none."""
    at = work.at
    while at[OLDEST] < at[HEAD] and (
        status[at[OLDEST]] == REJECTED or work.mark[at[OLDEST]] != NEW
    ):
        at[OLDEST] += 1
    if at[OLDEST] < at[HEAD]:
        return at[OLDEST]
    return -1


@compiled(**OPTIONS)
def first_in_queue(
    work: Work, load: Load, users: Senders, rules: Rules, log: Log, now_s: float
) -> tuple[Any, Any]:
    """Return the waiting request that is next in order, and its place; the place is -1 where it
    is not by the queue's own order that it is next."""
    at = work.at
    if at[STACKED] > 0:
        return np.int64(log.gaps[work.stack[at[STACKED] - 1], GAP_REQUEST]), -1
    if rules.order == SJF and rules.max_wait_s < INF:
        oldest = oldest_waiting(work, log.status)
        if oldest >= 0 and now_s - arrival_of(load, users, oldest) > rules.max_wait_s:
            return np.int64(oldest), -1
    place = 0
    if rules.order == CUSTOM:
        place = place_by_custom_key(work, load, users, now_s)
    else:
        while work.mark[work.queue[0]] <= TAKEN:  # went out of turn, and was left lying
            drop_top(work, load, users, rules)
    return np.int64(work.queue[place]), place


@compiled(**OPTIONS)
def take_from_queue(
    work: Work, load: Load, users: Senders, rules: Rules, request: int, place: int
) -> None:
    """Take a request out of the queue; it stood at `place`, or is left lying if that is -1."""
    at = work.at
    if at[STACKED] > 0:
        at[STACKED] -= 1
    else:
        at[WAITING] -= 1
        if rules.order == CUSTOM:
            at[QUEUED] -= 1
            work.queue[place] = work.queue[at[QUEUED]]
        elif place == 0:
            drop_top(work, load, users, rules)
    work.mark[request] = TAKEN


# ================================================================= continuous batching, O(1) a step
@compiled(**INLINED)
def somebody_waits(at: IntArray, status: TinyArray) -> bool:
    """Say whether the queue holds anybody; move HEAD past rejected requests."""
    while at[HEAD] < at[SENT] and status[at[HEAD]] == REJECTED:
        at[HEAD] += 1
    return at[STACKED] > 0 or at[HEAD] < at[SENT] or at[WAITING] > 0


@compiled(**INLINED)
def head_of_queue(
    work: Work, load: Load, users: Senders, rules: Rules, log: Log, now_s: float
) -> tuple[Any, Any, Any, Any]:
    """Return who is next: the request, its tokens emitted and cached, its place in the queue."""
    at = work.at
    if at[STACKED] > 0:
        row = work.stack[at[STACKED] - 1]
        emitted = np.int64(log.gaps[row, GAP_TOKENS])
        return np.int64(log.gaps[row, GAP_REQUEST]), emitted, np.int64(0), np.int64(-1)
    request = at[HEAD]
    place = np.int64(-1)
    if rules.order != FCFS:
        request, place = first_in_queue(work, load, users, rules, log, now_s)
    return request, np.int64(0), np.int64(prefix_hit(load, rules, request)), place


@compiled(**INLINED)
def chunk_that_fits(
    at: IntArray, rules: Rules, lacks: int, computed: int, budget: int, reserved: int
) -> int:
    """Return how many of the tokens it lacks a waiting request can compute now; 0: it must wait.

    `reserved` blocks are spoken for by the decoders of the same step.
    """
    chunk = lacks
    if lacks > budget:
        if not rules.chunked:
            return 0
        chunk = budget
    if rules.blocks >= 0:
        wanted = computed + (lacks if rules.whole_fits else chunk)
        if blocks_for(wanted, rules.block_size) > at[FREE] - reserved - rules.kept_blocks:
            return 0
    return chunk


@compiled(**INLINED)
def leave_queue(
    work: Work,
    load: Load,
    users: Senders,
    rules: Rules,
    log: Log,
    request: int,
    place: int,
    me: int,
) -> None:
    """Take the request at the head of the queue out of it, to its seat `me`."""
    at = work.at
    if at[STACKED] > 0:
        at[STACKED] -= 1
        row = work.stack[at[STACKED]]
        log.gaps[row, GAP_BACK] = at[STEPS]
        work.seat[me, GAP] = row
    elif rules.order == FCFS:
        at[HEAD] += 1
    else:
        take_from_queue(work, load, users, rules, request, place)


@compiled(**INLINED)
def admit_waiting(
    work: Work, load: Load, users: Senders, rules: Rules, log: Log, now_s: float, budget: int
) -> tuple[int, int]:
    """Admit from the head of the queue while it fits; return the tokens and attention pairs."""
    at = work.at
    tokens = 0
    pairs = 0
    while budget > tokens and at[VACANT] > 0 and somebody_waits(at, log.status):
        request, emitted, computed, place = head_of_queue(work, load, users, rules, log, now_s)
        lacks = load.prompt[request] + emitted - computed
        chunk = chunk_that_fits(at, rules, lacks, computed, budget - tokens, 0)
        if chunk == 0:
            break
        me = take_seat(work, request, emitted)
        if at[STACKED] == 0:
            log.scheduled_s[request] = now_s
        leave_queue(work, load, users, rules, log, request, place, me)
        pairs += compute_prompt(work, load, rules, me, computed, chunk)
        tokens += chunk
    return tokens, pairs


@compiled(**OPTIONS)
def preempt(work: Work, log: Log, me: int, emitted: int) -> None:
    """Put the request of a seat, which is vacant already, in front of the queue."""
    at = work.at
    request = work.seat[me, REQUEST]
    log.preemptions[request] += 1
    work.stack[at[STACKED]] = open_gap(at, log.gaps, request, emitted, at[STEPS])
    at[STACKED] += 1


@compiled(**OPTIONS)
def preempt_last_decoder(work: Work, load: Load, rules: Rules, log: Log) -> int:
    """Preempt the decoder admitted last; return how many blocks it was about to need."""
    at = work.at
    seat = work.seat
    me = at[LAST]
    request = seat[me, REQUEST]
    emitted = seat[me, EMITTED] + at[DECODE_STEPS] - seat[me, SINCE]
    due = at[DECODE_STEPS] + load.output[request] - emitted
    remove_due(work.due, at[DUE], (due << SEAT_BITS) | me)
    at[DUE] -= 1
    end_decoding(work, rules, me, load.prompt[request] + emitted - 1)
    preempt(work, log, me, emitted)
    return 1 if seat[me, PHASE] == at[TURN] else 0


@compiled(**OPTIONS)
def preempt_partial(work: Work, log: Log) -> None:
    """Preempt the request whose prompt is being computed."""
    at = work.at
    me = at[PARTIAL]
    at[PARTIAL] = -1
    at[FREE] += work.seat[me, HELD]
    leave_seat(work, me)
    preempt(work, log, me, work.seat[me, EMITTED])


@compiled(**OPTIONS)
def make_room(work: Work, load: Load, rules: Rules, log: Log, chunk: int) -> int:
    """Preempt from the tail until the running requests' next blocks fit; return how many.

    `chunk` is what the partial would compute. Taking the tail away as long as the *sum* of what
    is needed does not fit ends with the same survivors as serving one request after the other.
    """
    at = work.at
    victims = 0
    needed = work.phases[at[TURN]]
    if at[PARTIAL] >= 0:
        me = at[PARTIAL]
        total = blocks_for(work.seat[me, COMPUTED] + chunk, rules.block_size)
        if needed + total - work.seat[me, HELD] > at[FREE]:
            preempt_partial(work, log)
            victims += 1
    while needed > at[FREE]:
        needed -= preempt_last_decoder(work, load, rules, log)
        victims += 1
    at[FREE] -= needed
    return victims


@compiled(**INLINED)
def mixed_step(
    work: Work, load: Load, users: Senders, rules: Rules, price: Price, log: Log, now_s: float
) -> float:
    """Do one step that may do more than decode; return when it ends, -1 if it costs nothing."""
    at = work.at
    seat = work.seat
    chunk = 0  # what the partial computes
    if at[PARTIAL] >= 0:
        me = at[PARTIAL]
        known = load.prompt[seat[me, REQUEST]] + seat[me, EMITTED]
        chunk = min(known - seat[me, COMPUTED], rules.budget - at[DECODERS])
    victims = 0
    if rules.chunked and rules.blocks >= 0:
        victims = make_room(work, load, rules, log, chunk)
    tokens = 0
    pairs = 0
    last_piece = 0  # the context of a recompute that ends with one token, which is decoded
    if at[PARTIAL] >= 0:
        me = at[PARTIAL]
        computed = seat[me, COMPUTED]
        tokens = chunk
        pairs = compute_prompt(work, load, rules, me, computed, chunk)
        if chunk == 1 and seat[me, EMITTED] > 0 and at[PARTIAL] < 0:
            tokens = 0
            pairs = 0
            last_piece = computed + 1
    decoders = at[DECODERS]
    if victims == 0:
        budget = rules.budget - (decoders + chunk if rules.chunked else 0)
        more_tokens, more_pairs = admit_waiting(work, load, users, rules, log, now_s, budget)
        tokens += more_tokens
        pairs += more_pairs
    if not rules.chunked:
        if tokens > 0:
            decoders = 0  # a prompt goes first, and decoding stands still
        elif rules.blocks >= 0:
            make_room(work, load, rules, log, 0)
            decoders = at[DECODERS]
    decode_seqs = decoders + (1 if last_piece > 0 else 0)
    kv_tokens = last_piece + (at[KV_READ] if decoders > 0 else 0)
    seconds = step_seconds(rules.cost, price, tokens, pairs, decode_seqs, kv_tokens)
    if not (seconds > 0.0 and now_s + seconds < INF):
        return refuse(at, tokens, pairs, decode_seqs, kv_tokens)
    log_step(at, rules, log, now_s + seconds, tokens, decode_seqs)
    at[KV_READ] += decoders
    return now_s + seconds


@compiled(**INLINED)
def decoding_until(
    work: Work, load: Load, users: Senders, rules: Rules, log: Log, now_s: float
) -> float:
    """Return until when the next steps do nothing but decode; -1 if the next one may do more."""
    at = work.at
    if at[PARTIAL] >= 0 or at[DECODERS] == 0:
        return -1.0
    needed = 0
    if rules.blocks >= 0:
        needed = work.phases[at[TURN]]
        if needed > at[FREE]:
            return -1.0
    budget = rules.budget
    if rules.chunked:
        budget -= at[DECODERS]
    else:
        needed = 0  # a prompt goes before the decoders, and may take the blocks they need
    if at[VACANT] == 0 or budget <= 0:
        return INF  # whoever comes has to wait for an end
    if not somebody_waits(at, log.status):
        return next_send_s(at, load, users, rules)
    if rules.order != FCFS:
        return -1.0  # the next arrival may stand in front of a head that does not fit
    request, emitted, computed, _ = head_of_queue(work, load, users, rules, log, now_s)
    lacks = load.prompt[request] + emitted - computed
    if chunk_that_fits(at, rules, lacks, computed, budget, needed) > 0:
        return -1.0
    return INF  # the head does not fit, and until an end blocks only become fewer


@compiled(**OPTIONS)
def run_continuous(
    clock_s: FloatArray,
    work: Work,
    load: Load,
    users: Senders,
    rules: Rules,
    price: Price,
    log: Log,
) -> int:
    """Run until all is served, the horizon is reached or the log is full; return which it was."""
    at = work.at
    now_s = clock_s[0]
    while has_room(work, rules, log):
        clock_s[0] = now_s
        if at[DECODERS] == 0 and at[PARTIAL] < 0:
            now_s = start_s(at, load, users, rules, log.status, now_s)
        else:
            send_until(at, load, users, rules, log.status, now_s)
        if not now_s < rules.horizon_s:
            return DONE
        if rules.order != FCFS:
            enqueue_joined(work, load, users, rules, log.status)
        until_s = decoding_until(work, load, users, rules, log, now_s)
        if until_s >= 0.0:
            now_s = decode_on(work, rules, price, log, now_s, until_s)
        else:
            now_s = mixed_step(work, load, users, rules, price, log, now_s)
        if now_s < 0.0:
            return BAD_COST
        end_those_due(work, load, users, rules, log, now_s)
        emit_after_prefill(work, load, users, rules, log, now_s)
    clock_s[0] = now_s
    return FULL


# ================================================================================ static batches
@compiled(**OPTIONS)
def batch_start_s(
    work: Work, load: Load, users: Senders, rules: Rules, log: Log, now_s: float
) -> float:
    """Return when an idle engine starts its next batch; inf if never. Whoever waits is queued."""
    at = work.at
    while True:
        send_until(at, load, users, rules, log.status, now_s)
        enqueue_joined(work, load, users, rules, log.status)
        if at[WAITING] >= rules.batch_size:
            return now_s
        deadline_s = INF
        if at[WAITING] > 0:
            oldest = oldest_waiting(work, log.status)
            deadline_s = arrival_of(load, users, oldest) + rules.window_s
            nobody_can_join = deadline_s == INF and at[SENT] > rules.last_accepted
            if now_s >= deadline_s or nobody_can_join:
                return now_s
        next_s = min(next_send_s(at, load, users, rules), deadline_s)
        if next_s == INF:
            return now_s if at[WAITING] > 0 else INF
        now_s = max(now_s, next_s)


@compiled(**OPTIONS)
def form_batch(
    work: Work, load: Load, users: Senders, rules: Rules, log: Log, now_s: float
) -> None:
    """Seat the next batch: the first in the queue, as many as fit at their final lengths."""
    at = work.at
    reserved = 0
    while at[BATCH] < rules.batch_size and at[WAITING] > 0:
        request, place = first_in_queue(work, load, users, rules, log, now_s)
        if rules.blocks >= 0:
            final = load.prompt[request] + load.output[request] - 1
            reserved += blocks_for(final, rules.block_size)
            if reserved > rules.blocks - rules.kept_blocks:
                break
        take_from_queue(work, load, users, rules, request, place)
        me = take_seat(work, request, 0)
        work.seat[me, COMPUTED] = prefix_hit(load, rules, request)
        work.running[at[BATCH]] = me
        work.mark[request] = FIRST_BATCH - at[BATCHES]
        at[BATCH] += 1
    at[NEXT_SEAT] = 0
    at[BATCHES] += 1


@compiled(**OPTIONS)
def prefill_batch(
    work: Work, load: Load, rules: Rules, price: Price, log: Log, now_s: float
) -> float:
    """Do one step that computes the batch's prompts; return when it ends, -1 if it is free."""
    at = work.at
    seat = work.seat
    tokens = 0
    pairs = 0
    while at[NEXT_SEAT] < at[BATCH] and tokens < rules.budget:
        me = work.running[at[NEXT_SEAT]]
        request = seat[me, REQUEST]
        computed = seat[me, COMPUTED]
        lacks = load.prompt[request] - computed
        chunk = min(lacks, rules.budget - tokens)
        if chunk < lacks and not rules.chunked:
            break
        if not log.scheduled_s[request] <= now_s:  # NaN: this is its first chunk
            log.scheduled_s[request] = now_s
        pairs += compute_prompt(work, load, rules, me, computed, chunk)
        tokens += chunk
        if chunk == lacks:
            at[NEXT_SEAT] += 1
    seconds = step_seconds(rules.cost, price, tokens, pairs, 0, 0)
    if not (seconds > 0.0 and now_s + seconds < INF):
        return refuse(at, tokens, pairs, 0, 0)
    log_step(at, rules, log, now_s + seconds, tokens, 0)
    return now_s + seconds


@compiled(**OPTIONS)
def run_batches(
    clock_s: FloatArray,
    work: Work,
    load: Load,
    users: Senders,
    rules: Rules,
    price: Price,
    log: Log,
) -> int:
    """Run until all is served, the horizon is reached or the log is full; return which it was."""
    at = work.at
    now_s = clock_s[0]
    while has_room(work, rules, log):
        clock_s[0] = now_s
        if at[BATCH] == 0:
            now_s = batch_start_s(work, load, users, rules, log, now_s)
            if now_s < rules.horizon_s:
                form_batch(work, load, users, rules, log, now_s)
        if not now_s < rules.horizon_s:
            return DONE
        if at[NEXT_SEAT] < at[BATCH]:
            now_s = prefill_batch(work, load, rules, price, log, now_s)
        else:
            now_s = decode_on(work, rules, price, log, now_s, INF)
        if now_s < 0.0:
            return BAD_COST
        end_those_due(work, load, users, rules, log, now_s)
        emit_after_prefill(work, load, users, rules, log, now_s)
        if at[ENDED] == at[BATCH]:
            at[BATCH] = at[ENDED] = at[ENDED_KV] = 0
            at[FREE] = max(rules.blocks, 0)
    clock_s[0] = now_s
    return FULL


# ======================================================================================= the end
@compiled(**OPTIONS)
def close_run(work: Work, load: Load, users: Senders, rules: Rules, log: Log) -> None:
    """Let those join who were sent when no step began any more; count unfinished tokens."""
    at = work.at
    send_until(at, load, users, rules, log.status, rules.horizon_s)
    for place in range(at[DUE]):
        request = work.seat[work.due[place] & SEAT_MASK, REQUEST]
        left = (work.due[place] >> SEAT_BITS) - at[DECODE_STEPS]
        log.tokens[request] = load.output[request] - left
    if at[PARTIAL] >= 0:
        log.tokens[work.seat[at[PARTIAL], REQUEST]] = work.seat[at[PARTIAL], EMITTED]
    for place in range(at[STACKED]):
        row = work.stack[place]
        log.tokens[log.gaps[row, GAP_REQUEST]] = log.gaps[row, GAP_TOKENS]


# =============================================================================== reading the log
@compiled(**OPTIONS)
def steps_of_tokens(
    log: Log, decode_mask: int, request: int, rows: IntArray, steps: IntArray
) -> None:
    """Write into `steps` the step of each token of `request`, whose rows of gaps are `rows`."""
    step = np.int64(log.first_step[request])
    place = 0
    for token in range(steps.size):
        if token > 0:
            resumed = np.int64(-1)
            while place < rows.size and log.gaps[rows[place], GAP_TOKENS] <= token:
                if log.gaps[rows[place], GAP_TOKENS] == token:
                    resumed = np.int64(log.gaps[rows[place], GAP_RESUMED])
                place += 1
            if resumed >= 0:
                step = resumed
            else:
                step += 1
                while log.step_work[step] & decode_mask == 0:
                    step += 1
        steps[token] = step


@compiled(**INLINED)
def number_decode_steps(
    log: Log, decode_mask: int, number: SmallArray, decode_step: SmallArray
) -> int:
    """Write into `number` how many steps up to each one decoded, into `decode_step` which they are.

    The first is number 1. Returns how many there are.
    """
    decode_step[0] = -1
    count = 0
    for step in range(number.size):
        decode_step[count + 1] = step  # stands only if it decoded
        count += 1 if log.step_work[step] & decode_mask != 0 else 0
        number[step] = count
    return count


@compiled(**INLINED)
def weigh_stretch(
    log: Log,
    number: SmallArray,
    decode_step: SmallArray,
    weight: IntArray,
    single_s: FloatArray,
    singles: int,
    step: int,
    tokens: int,
) -> int:
    """Count the gaps before `tokens` tokens on consecutive decode steps after `step`.

    A gap between neighbouring decode steps adds to `weight`; one after a step that only
    prefilled is written to `single_s`. Returns the new number of `singles`.
    """
    if tokens == 0:
        return singles
    begun = number[step]
    if decode_step[begun] != step:
        single_s[singles] = log.step_end_s[decode_step[begun + 1]] - log.step_end_s[step]
        singles += 1
        begun += 1
        tokens -= 1
    weight[begun + 1] += 1
    weight[begun + tokens + 1] -= 1
    return singles


@compiled(**INLINED)
def weigh_request(
    log: Log,
    request: int,
    rows: IntArray,
    place: int,
    number: SmallArray,
    decode_step: SmallArray,
    weight: SmallArray,
    single_s: FloatArray,
    singles: int,
) -> int:
    """Count the gaps between neighbouring tokens of one request, whose rows begin at `place`."""
    step = np.int64(log.first_step[request])
    emitted = np.int64(1)
    while place < rows.size and log.gaps[rows[place], GAP_REQUEST] == request:
        row = rows[place]
        place += 1
        resumed = np.int64(log.gaps[row, GAP_RESUMED])
        if resumed >= 0 and log.gaps[row, GAP_TOKENS] > 0:
            more = log.gaps[row, GAP_TOKENS] - emitted
            singles = weigh_stretch(log, number, decode_step, weight, single_s, singles, step, more)
            if more > 0:
                step = np.int64(decode_step[number[step] + more])
            single_s[singles] = log.step_end_s[resumed] - log.step_end_s[step]
            singles += 1
            step = resumed
            emitted += more + 1
    more = log.tokens[request] - emitted
    return weigh_stretch(log, number, decode_step, weight, single_s, singles, step, more)


@compiled(**OPTIONS)
def pool_gaps(
    log: Log,
    decode_mask: int,
    chosen: npt.NDArray[np.bool_],
    rows: IntArray,
    number: SmallArray,
    decode_step: SmallArray,
    weight: SmallArray,
    gap_s: FloatArray,
    times: SmallArray,
) -> int:
    """Write the gaps of the `chosen` requests, and how many waited for each; return how many.

    `rows`: rows of the table of gaps, sorted by request. `number`, `decode_step`, `weight`: room
    to work in, as long as the steps and two more. Meanwhile `weight` holds where stretches begin
    and end.
    """
    count = number_decode_steps(log, decode_mask, number, decode_step)
    weight[: count + 2] = 0
    singles = 0
    place = 0
    for request in range(chosen.size):
        while place < rows.size and log.gaps[rows[place], GAP_REQUEST] < request:
            place += 1
        if chosen[request] and log.tokens[request] > 1:
            singles = weigh_request(
                log, request, rows, place, number, decode_step, weight, gap_s, singles
            )
    for place in range(singles):
        times[place] = 1
    gaps = singles
    waiting = weight[1]
    for place in range(2, count + 1):
        waiting += weight[place]
        gap_s[gaps] = log.step_end_s[decode_step[place]] - log.step_end_s[decode_step[place - 1]]
        times[gaps] = waiting
        gaps += 1 if waiting > 0 else 0
    return gaps


@compiled(**OPTIONS)
def weigh_buckets(bits: IntArray, times: SmallArray, low: int, shift: int, up_to: IntArray) -> None:
    """Write how often values of earlier buckets occur; a value's is `(bits - low) >> shift`."""
    up_to[:] = 0
    for place in range(bits.size):
        up_to[((bits[place] - low) >> shift) + 1] += times[place]
    for bucket in range(1, up_to.size):
        up_to[bucket] += up_to[bucket - 1]


@compiled(**OPTIONS)
def open_bucket(
    bits: IntArray, times: SmallArray, low: int, shift: int, bucket: int,
    values: IntArray, counts: SmallArray,
) -> int:  # fmt: skip
    """Copy the values of one bucket and how often each occurs; return how many there are."""
    members = 0
    for place in range(bits.size):
        values[members] = bits[place]  # stands only if it is one of them
        counts[members] = times[place]
        members += 1 if (bits[place] - low) >> shift == bucket else 0
    return members
