"""The compiled loop of a served engine: clients, gate and steps; no checks and no objects are here.

Steps are planned by looking at one running attempt after the other, except in an *even* house:
while all who run are decoders that fit the budget, each makes one token a step, and all that a step
needs to know of them is how many they are, how much they read, and how many of them need a KV block
(by the residue of the tick at which their room ends). Their seats are brought up to date when
somebody leaves, or when the house stops being even.

Every function also runs uncompiled, on lists instead of arrays, with the same result bit for bit;
so it is all indexing of flat sequences.

All state is in the records of `_service_state`, so that the loop can stop when one of them is full
and go on when the caller has made room. It is one file, with its own copy of the step's cost and of
the engine's small formulas, because numba's disk cache looks at the edit time of a function's own
file only.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, IntArray, SmallArray
from course.serving._compiled import compiled
from course.serving.engine.kernels.codes import (
    CUSTOM,
    FCFS,
    FINISHED,
    PRIORITY,
    REJECTED,
    SJF,
    TIMED_OUT,
    UNFINISHED,
)
from course.serving.engine.kernels.common import (
    INF,
    OPTIONS,
    Price,
    attention_pairs,
    blocks_for,
    custom_key,
    step_seconds,
)
from course.serving.engine.kernels.service_state import Asked, Attempts, Seats, Server, Steps, Terms

NAN = np.nan

# a way in from Python, which none but the last two need, takes twice as long to compile as the rest
INNER = OPTIONS | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
INLINED = INNER | {"forceinline": True}

# --- server.at -----------------------------------------------------------------------------------
ATTEMPTS = 0  # sent so far
STEPS = 1
SENT = 2  # requests whose first attempt was sent
PENDING = 3  # entries in the heap of sends
GIVES = 4  # entries in the heap of deadlines
LEAVERS = 5
RUNNING = 6
FREE = 7  # KV blocks
VACANT = 8  # free seats among those there is memory for
IN_STEP = 9  # 1: a step is in flight, and ends at clock[END]
WAITING = 10  # attempts in the queues and outside the door
WAITING_TOKENS = 11
QUEUED = 12  # of those, in the queues
OUTSIDE = 13  # of those, outside the door
HEAD = 14  # first of the queue SHORT, LONG, DOOR; -1: empty
TAIL = 17  # last of each
HEAPED = 20  # entries in the heaps of SHORT and LONG
FRUITLESS = 22  # attempts that ended in vain since the last success or new request
TOKENS = 23  # features of the step in hand
PAIRS = 24
SEQS = 25
KV_TOKENS = 26
EVEN = 27  # 1: everybody who runs is a decoder, and the seats are not kept up
TICK = 28  # steps in which the decoders of an even house decoded
KV_READ = 29  # (even) tokens that they read in the next step
SOONEST = 30  # (even) no decoder emits its last token before this tick
DECODERS = 31  # (even) those who ran before the step in hand
DECODE = 32  # (even) 1: they decode in the step in hand
STAYS = 33  # times that somebody took a seat
AT_SIZE = 34

NEVER = 2**62

# --- server.clock --------------------------------------------------------------------------------
NOW = 0
END = 1  # of the step in flight
SECONDS = 2  # that step's, as priced
PACE = 3  # tokens a second, lately; 0: not known
BUCKET = 4  # retries that the clients' budget still allows
CLOCK_SIZE = 5

PACE_S = 5.0  # how far back the pace remembers

# --- attempts.place ------------------------------------------------------------------------------
SHORT, LONG, DOOR, RUNS, OUT = 0, 1, 2, 3, 4

# --- why the loop returns ------------------------------------------------------------------------
DONE = 1
FULL = 2  # make room and call again
BAD_COST = 3  # the step in hand would not last a finite time above 0 s
ENDLESS = 4  # nobody new will come, and those who are there will retry for ever

ACCEPT, QUEUE, DEGRADE, REJECT = 0, 1, 2, 3  # attempts.verdict


# ============================================================================ what may be replaced
@compiled(**INNER)
def custom_verdict(
    now_s: float,
    waiting_requests: int,
    waiting_tokens: int,
    running_requests: int,
    free_seats: int,
    kv_used: float,
    tokens_per_s: float,
    predicted_wait_s: float,
    request: int,
    attempt: int,
    first_sent_s: float,
) -> int:
    """Stand in for a caller's own policy, which runs uncompiled only."""
    return 0


@compiled(**OPTIONS)
def mix(value: Any) -> Any:
    """Return the 64 bits that follow from `value`."""
    mixed = value + np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))


@compiled(**OPTIONS)
def retry_uniform(seed: int, request: int, attempt: int) -> float:
    """Return what `clients.retry_uniform` returns, which stands here where nothing is compiled."""
    seeded = mix(np.uint64(seed))
    bits = mix(mix(seeded + np.uint64(request)) + np.uint64(attempt))
    return np.float64(bits >> np.uint64(11)) * 2.0**-53


# ========================================================================================== heaps
@compiled(**INLINED)
def goes_before(keys: FloatArray, ties: npt.NDArray[np.generic], one: int, other: int) -> bool:
    """Say whether `one` comes out of a heap before `other`: by key, by tie, by number."""
    if keys[one] != keys[other]:
        return keys[one] < keys[other]
    if ties[one] != ties[other]:
        return ties[one] < ties[other]
    return one < other


@compiled(**INNER)
def push(
    heap: npt.NDArray[np.integer],
    size: int,
    keys: FloatArray,
    ties: npt.NDArray[np.generic],
    entry: int,
) -> None:
    """Put `entry` into a heap that has `size` entries."""
    place = size
    while place > 0:
        parent = (place - 1) >> 1
        if not goes_before(keys, ties, entry, heap[parent]):
            break
        heap[place] = heap[parent]
        place = parent
    heap[place] = entry


@compiled(**INNER)
def drop_top(
    heap: npt.NDArray[np.integer], size: int, keys: FloatArray, ties: npt.NDArray[np.generic]
) -> None:
    """Take the first entry out of a heap, which has `size` entries afterwards."""
    entry = heap[size]
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and goes_before(keys, ties, heap[child + 1], heap[child]):
            child += 1
        if not goes_before(keys, ties, heap[child], entry):
            break
        heap[place] = heap[child]
        place = child
    heap[place] = entry


# ========================================================================================= queues
@compiled(**INNER)
def link_behind(
    at: IntArray, before: SmallArray, after: SmallArray, queue: int, ahead: int, attempt: int
) -> None:
    """Put `attempt` into a queue right behind `ahead`; at its front where that is -1."""
    behind = at[HEAD + queue] if ahead < 0 else after[ahead]
    before[attempt] = ahead
    after[attempt] = behind
    if ahead < 0:
        at[HEAD + queue] = attempt
    else:
        after[ahead] = attempt
    if behind < 0:
        at[TAIL + queue] = attempt
    else:
        before[behind] = attempt


@compiled(**INNER)
def unlink(at: IntArray, before: SmallArray, after: SmallArray, queue: int, attempt: int) -> None:
    """Take `attempt` out of a queue, wherever it stands."""
    ahead = before[attempt]
    behind = after[attempt]
    if ahead < 0:
        at[HEAD + queue] = behind
    else:
        after[ahead] = behind
    if behind < 0:
        at[TAIL + queue] = ahead
    else:
        before[behind] = ahead


@compiled(**INLINED)
def tokens_waiting(asked: Asked, terms: Terms, log: Attempts, attempt: int) -> int:
    """Return the tokens an attempt counts for while it waits: prompt and predicted output."""
    request = log.request[attempt]
    guess = asked.guess[request]
    if log.verdict[attempt] == DEGRADE:
        guess = min(guess, terms.degrade_to)
    return asked.prompt[request] + guess


@compiled(**INNER)
def push_ranked(at: IntArray, log: Attempts, queue: int, attempt: int) -> None:
    """Put an attempt into the heap of its queue."""
    heap = log.heap if queue == SHORT else log.long_heap
    push(heap, at[HEAPED + queue], log.rank, log.rank, attempt)
    at[HEAPED + queue] += 1


@compiled(**INNER)
def rank(asked: Asked, terms: Terms, log: Attempts, attempt: int) -> float:
    """Return an attempt's key in a built-in order; all age alike, so no clock is needed."""
    request = log.request[attempt]
    if terms.order == SJF:
        return 1.0 * (tokens_waiting(asked, terms, log, attempt) - asked.prompt[request])
    value = 0.0
    if len(asked.value) > 0:
        value = asked.value[request]
    return value + log.sent_s[attempt] / terms.ageing_s


@compiled(**INLINED)
def join(
    asked: Asked, terms: Terms, log: Attempts, server: Server, attempt: int, now_s: float
) -> None:
    """Let an attempt join the tail of its waiting queue."""
    at = server.at
    queue = SHORT
    if terms.split and asked.prompt[log.request[attempt]] > terms.long_over:
        queue = LONG
    ahead = at[TAIL + queue]
    if terms.order == SJF:
        # the overdue go by their sending, which who came through the door does not join by
        while ahead > attempt and log.preemptions[ahead] == 0:
            ahead = log.before[ahead]
    link_behind(at, log.before, log.after, queue, ahead, attempt)
    log.place[attempt] = queue
    at[QUEUED] += 1
    if terms.split:
        log.joined_s[attempt] = now_s
    if terms.order == SJF or terms.order == PRIORITY:
        log.rank[attempt] = rank(asked, terms, log, attempt)
        push_ranked(at, log, queue, attempt)


@compiled(**INNER)
def first_by_custom_key(
    asked: Asked, terms: Terms, log: Attempts, server: Server, queue: int, now_s: float
) -> int:
    """Return the attempt in a queue whose key is the smallest; the earlier sent on a tie."""
    best = -1
    best_key = INF
    attempt = server.at[HEAD + queue]
    while attempt >= 0:
        request = log.request[attempt]
        value = asked.value[request] if len(asked.value) > 0 else 0.0
        guess = tokens_waiting(asked, terms, log, attempt) - asked.prompt[request]
        key = custom_key(now_s, log.sent_s[attempt], asked.prompt[request], guess, value)
        if best < 0 or key < best_key or (key == best_key and attempt < best):
            best = attempt
            best_key = key
        attempt = log.after[attempt]
    return best


@compiled(**INNER)
def first_ranked(at: IntArray, log: Attempts, queue: int) -> int:
    """Return the first of a queue by its heap; those who went out of turn are dropped now."""
    heap = log.heap if queue == SHORT else log.long_heap
    while log.place[heap[0]] != queue:
        at[HEAPED + queue] -= 1
        drop_top(heap, at[HEAPED + queue], log.rank, log.rank)
    return heap[0] + 0  # not the 32 bits it is kept in


@compiled(**INLINED)
def first_of(
    asked: Asked, terms: Terms, log: Attempts, server: Server, queue: int, now_s: float
) -> int:
    """Return who is next in a queue; -1 if it is empty."""
    head = server.at[HEAD + queue]
    if head < 0 or terms.order == FCFS:
        return head
    if terms.order != PRIORITY and log.preemptions[head] > 0:
        return head
    if terms.order == SJF and now_s - log.sent_s[head] > terms.max_wait_s:
        return head
    if terms.order == CUSTOM:
        return first_by_custom_key(asked, terms, log, server, queue, now_s)
    return first_ranked(server.at, log, queue)


@compiled(**INLINED)
def leave_queue(
    asked: Asked, terms: Terms, log: Attempts, server: Server, queue: int, attempt: int
) -> None:
    """Take an attempt out of its waiting queue, or from outside the door."""
    at = server.at
    unlink(at, log.before, log.after, queue, attempt)
    at[WAITING] -= 1
    at[WAITING_TOKENS] -= tokens_waiting(asked, terms, log, attempt)
    if queue == DOOR:
        at[OUTSIDE] -= 1
    else:
        at[QUEUED] -= 1


# ======================================================================================== clients
@compiled(**INLINED)
def next_send_s(at: IntArray, asked: Asked, terms: Terms, server: Server) -> float:
    """Return when somebody sends next; inf if nobody does by the horizon."""
    requests = len(asked.prompt)
    if terms.closed and at[SENT] >= requests:
        # users for whom no request is left
        while at[PENDING] > 0 and server.current[server.sends[0]] < 0:
            at[PENDING] -= 1
            drop_top(server.sends, at[PENDING], server.next_s, server.next_s)
    when_s = INF
    if at[PENDING] > 0:
        when_s = server.next_s[server.sends[0]]
    if not terms.closed and at[SENT] < requests:
        when_s = min(when_s, asked.arrival_s[at[SENT]])
    return INF if when_s > terms.horizon_s else when_s


@compiled(**INNER)
def send_at(at: IntArray, next_s: FloatArray, sends: IntArray, sender: int, when_s: float) -> None:
    """Let a request, or in a closed loop a user, send at `when_s`."""
    next_s[sender] = when_s
    push(sends, at[PENDING], next_s, next_s, sender)
    at[PENDING] += 1


@compiled(**INNER)
def user_goes_on(
    at: IntArray,
    next_s: FloatArray,
    sends: IntArray,
    current: IntArray,
    user: int,
    when_s: float,
) -> None:
    """In a closed loop, let a user whose request is over send a new one at `when_s`."""
    current[user] = -1
    send_at(at, next_s, sends, user, when_s)


@compiled(**INLINED)
def ended_in_vain(
    terms: Terms, log: Attempts, server: Server, attempt: int, end_s: float, hopeless: bool
) -> None:
    """Let the client of an attempt that was refused or timed out decide what to do."""
    at = server.at
    clock = server.clock
    request = log.request[attempt]
    number = log.number[attempt]
    at[FRUITLESS] += 1
    again = number < terms.attempts and not hopeless
    if again and terms.budget_share >= 0.0:
        again = clock[BUCKET] >= 1.0
        if again:
            clock[BUCKET] -= 1.0
    if again:
        spread = 1.0
        if terms.jitter > 0.0:
            spread = 1.0 - terms.jitter * retry_uniform(terms.seed, request, number)
        factor = server.factor[min(number - 1, len(server.factor) - 1)]
        when_s = end_s + (terms.round_trip_s + terms.delay_s * factor * spread)
        if not when_s > end_s:  # a clock so late that it does not feel a round trip
            when_s = end_s + 1e-15 * end_s
        sender = server.owner[request] if terms.closed else request
        send_at(at, server.next_s, server.sends, sender, when_s)
    elif terms.closed:
        user_goes_on(
            at,
            server.next_s,
            server.sends,
            server.current,
            server.owner[request],
            end_s + terms.think_s,
        )


@compiled(**INLINED)
def end_deadline_s(asked: Asked, terms: Terms, log: Attempts, attempt: int) -> float:
    """Return when a client wants the last token."""
    wanted = asked.output[log.request[attempt]]
    return log.sent_s[attempt] + (terms.e2e_s + terms.e2e_per_token_s * wanted)


@compiled(**INLINED)
def look_at_the_clock(asked: Asked, terms: Terms, log: Attempts, server: Server) -> None:
    """Let the client whose deadline is next give up, unless it has got what it wanted by then."""
    at = server.at
    attempt = log.gives[0] + 0
    at[GIVES] -= 1
    drop_top(log.gives, at[GIVES], log.due_s, log.request)
    if log.status[attempt] != UNFINISHED:
        return
    now_s = log.due_s[attempt]
    due_s = end_deadline_s(asked, terms, log, attempt)
    if log.first_token_s[attempt] != log.first_token_s[attempt]:  # NaN: it has not come
        due_s = min(due_s, log.sent_s[attempt] + terms.ttft_s)
    if due_s > now_s:
        if due_s < INF:
            log.due_s[attempt] = due_s
            push(log.gives, at[GIVES], log.due_s, log.request, attempt)
            at[GIVES] += 1
        return
    log.status[attempt] = TIMED_OUT
    log.end_s[attempt] = now_s
    if terms.noticed:
        log.leavers[at[LEAVERS]] = attempt
        at[LEAVERS] += 1
    ended_in_vain(terms, log, server, attempt, now_s, False)


# ====================================================================================== admission
@compiled(**INLINED)
def never_fits(terms: Terms, tokens: int) -> bool:
    """Say whether a request that grows to `tokens` cached tokens can never be served."""
    if terms.blocks >= 0 and blocks_for(tokens, terms.block_size) > terms.blocks:
        return True
    return not terms.chunked and tokens > terms.budget


@compiled(**INLINED)
def kv_used(at: IntArray, terms: Terms) -> float:
    """Return the share of KV blocks that is held; 0 where they are not limited."""
    if terms.blocks < 0:
        return 0.0
    return (terms.blocks - at[FREE]) / terms.blocks


@compiled(**INLINED)
def bucket_lacks(terms: Terms, server: Server, tenant: int, now_s: float, tokens: int) -> bool:
    """Bring a tenant's bucket up to date; say whether it holds less than `tokens`."""
    level = server.level[tenant]
    level = min(
        terms.tenant_burst, level + terms.tenant_tokens_per_s * (now_s - server.level_s[tenant])
    )
    server.level[tenant] = level
    server.level_s[tenant] = now_s
    return level < tokens


@compiled(**INLINED)
def judge(
    asked: Asked, terms: Terms, server: Server, request: int, number: int, now_s: float
) -> int:
    """Return the verdict on an attempt that could be served: the first rule that applies."""
    at = server.at
    pace = server.clock[PACE]
    wait_s = 0.0
    if at[WAITING] > 0 and pace > 0.0:
        wait_s = at[WAITING_TOKENS] / pace
    if terms.own_policy:
        return custom_verdict(
            now_s,
            at[WAITING],
            at[WAITING_TOKENS],
            at[RUNNING],
            terms.seats - at[RUNNING],
            kv_used(at, terms),
            pace,
            wait_s,
            request,
            number,
            server.first_s[request],
        )
    tokens = asked.prompt[request] + asked.guess[request]
    if terms.tenant_tokens_per_s >= 0.0 and bucket_lacks(
        terms, server, asked.tenant[request], now_s, tokens
    ):
        return REJECT
    if terms.most_waiting >= 0 and at[WAITING] >= terms.most_waiting:
        return REJECT
    if terms.most_waiting_tokens >= 0 and at[WAITING_TOKENS] + tokens > terms.most_waiting_tokens:
        return REJECT
    if wait_s > terms.urgent_wait_s:
        value = asked.value[request] if len(asked.value) > 0 else 0.0
        if value > terms.least_urgent:
            return REJECT
    if wait_s > terms.most_wait_s:
        return REJECT
    if wait_s > terms.degrade_wait_s:
        return DEGRADE
    if terms.gated and (at[OUTSIDE] > 0 or kv_used(at, terms) >= terms.watermark):
        return QUEUE
    return ACCEPT


@compiled(**INLINED)
def take_sender(asked: Asked, terms: Terms, server: Server, now_s: float) -> int:
    """Return the request that is sent now, and count its attempt."""
    at = server.at
    sends = server.sends
    is_first = True
    request = at[SENT]
    if terms.closed:
        user = sends[0]
        at[PENDING] -= 1
        drop_top(sends, at[PENDING], server.next_s, server.next_s)
        is_first = server.current[user] < 0
        if is_first:
            server.current[user] = request
            server.owner[request] = user
        else:
            request = server.current[user]
    elif at[PENDING] > 0 and server.next_s[sends[0]] == now_s:
        # a retry, unless a new request of a lower number is sent at this very time
        is_first = request < min(len(asked.prompt), sends[0]) and asked.arrival_s[request] == now_s
        if not is_first:
            request = sends[0]
            at[PENDING] -= 1
            drop_top(sends, at[PENDING], server.next_s, server.next_s)
    if is_first:
        at[SENT] += 1
        at[FRUITLESS] = 0
        server.first_s[request] = now_s
        if terms.budget_share >= 0.0:
            server.clock[BUCKET] = min(
                terms.budget_burst, server.clock[BUCKET] + terms.budget_share
            )
    server.tries[request] += 1
    return request


@compiled(**INLINED)
def note_attempt(
    asked: Asked, terms: Terms, log: Attempts, attempt: int, request: int, number: int, now_s: float
) -> None:
    """Begin the record of an attempt."""
    log.request[attempt] = request
    log.number[attempt] = number
    log.sent_s[attempt] = now_s
    log.status[attempt] = UNFINISHED
    log.scheduled_s[attempt] = NAN
    log.first_token_s[attempt] = NAN
    log.end_s[attempt] = NAN
    log.output[attempt] = asked.output[request]
    log.emitted[attempt] = 1 if terms.handed else 0
    log.computed[attempt] = 0
    log.recomputed[attempt] = 0
    log.preemptions[attempt] = 0
    log.high[attempt] = 0
    log.place[attempt] = OUT
    if terms.gated or terms.own_policy:
        log.entered_s[attempt] = NAN


@compiled(**INLINED)
def let_in(
    asked: Asked, terms: Terms, log: Attempts, server: Server, attempt: int, now_s: float
) -> None:
    """Let an attempt that was not refused join the queue or stand outside the door."""
    at = server.at
    request = log.request[attempt]
    if log.verdict[attempt] == DEGRADE:
        log.output[attempt] = min(asked.output[request], terms.degrade_to)
    at[WAITING] += 1
    at[WAITING_TOKENS] += tokens_waiting(asked, terms, log, attempt)
    if log.verdict[attempt] == QUEUE:
        link_behind(at, log.before, log.after, DOOR, at[TAIL + DOOR], attempt)
        log.place[attempt] = DOOR
        at[OUTSIDE] += 1
    else:
        join(asked, terms, log, server, attempt, now_s)
    due_s = min(
        now_s + terms.ttft_s, now_s + (terms.e2e_s + terms.e2e_per_token_s * asked.output[request])
    )
    if due_s < INF:
        log.due_s[attempt] = due_s
        push(log.gives, at[GIVES], log.due_s, log.request, attempt)
        at[GIVES] += 1


@compiled(**INLINED)
def send(asked: Asked, terms: Terms, log: Attempts, server: Server, now_s: float) -> None:
    """Let the next attempt meet the server."""
    at = server.at
    request = take_sender(asked, terms, server, now_s)
    number = server.tries[request]
    attempt = at[ATTEMPTS]
    at[ATTEMPTS] += 1
    note_attempt(asked, terms, log, attempt, request, number, now_s)
    hopeless = never_fits(terms, asked.prompt[request] + asked.output[request] - 1)
    verdict = REJECT
    if not hopeless:
        verdict = judge(asked, terms, server, request, number, now_s)
    log.verdict[attempt] = verdict
    if verdict == REJECT:
        log.status[attempt] = REJECTED
        log.end_s[attempt] = now_s
        ended_in_vain(terms, log, server, attempt, now_s, hopeless)
        return
    if terms.tenant_tokens_per_s >= 0.0:
        server.level[asked.tenant[request]] -= asked.prompt[request] + asked.guess[request]
    let_in(asked, terms, log, server, attempt, now_s)


@compiled(**INLINED)
def clients_act(
    asked: Asked, terms: Terms, log: Attempts, server: Server, limit_s: float, at_limit: bool
) -> bool:
    """Let everything happen that clients do before `limit_s` (`at_limit`: and at it).

    At equal times they give up before they send. Returns False if the log is full.
    """
    at = server.at
    while True:
        send_s = next_send_s(at, asked, terms, server)
        give_s = INF
        if at[GIVES] > 0:
            give_s = log.due_s[log.gives[0]]
        when_s = min(send_s, give_s)
        if not (when_s < limit_s or (at_limit and when_s == limit_s)):
            return True
        if give_s <= send_s:
            look_at_the_clock(asked, terms, log, server)
        elif at[ATTEMPTS] >= len(log.sent_s):
            return False
        else:
            send(asked, terms, log, server, send_s)


# ========================================================================================== seats
@compiled(**INLINED)
def catch_up(terms: Terms, seats: Seats, at: IntArray, me: int) -> None:
    """Bring a decoder's seat up to the tick; in a house that is not even it always is."""
    ticks = at[TICK] - seats.since[me]
    if ticks > 0:
        seats.since[me] = at[TICK]
        seats.emitted[me] += ticks
        seats.known[me] += ticks
        if terms.blocks >= 0:
            room = seats.room[me]
            if ticks > room:
                blocks = blocks_for(ticks - room, terms.block_size)
                seats.held[me] += blocks
                room += blocks * terms.block_size
            seats.room[me] = room - ticks


@compiled(**INLINED)
def phase(terms: Terms, seats: Seats, me: int) -> int:
    """Return the residue of the ticks at which a decoder needs a block."""
    return (seats.since[me] + seats.room[me]) % terms.block_size


@compiled(**INLINED)
def count_in(terms: Terms, seats: Seats, server: Server, me: int) -> None:
    """Count a seat, which is up to date, among the decoders of an even house."""
    at = server.at
    seats.since[me] = at[TICK]
    at[KV_READ] += seats.known[me]
    at[SOONEST] = min(at[SOONEST], at[TICK] + seats.output[me] - seats.emitted[me])
    if terms.blocks >= 0:
        server.phases[phase(terms, seats, me)] += 1


@compiled(**INLINED)
def count_out(terms: Terms, seats: Seats, server: Server, me: int) -> None:
    """Bring a decoder's seat up to date, and count it no longer."""
    at = server.at
    if terms.blocks >= 0:
        server.phases[phase(terms, seats, me)] -= 1
    catch_up(terms, seats, at, me)
    at[KV_READ] -= seats.known[me]


@compiled(**INNER)
def stop_being_even(terms: Terms, seats: Seats, server: Server, decoders: int) -> None:
    """Bring the seats up to date: the first `decoders` in the order of admission."""
    for place in range(decoders):
        count_out(terms, seats, server, seats.running[place])
    server.at[EVEN] = 0


@compiled(**INLINED)
def account(log: Attempts, seats: Seats, me: int) -> None:
    """Add what a seat, which is up to date, computed to its attempt's record."""
    attempt = seats.attempt[me]
    done = seats.known[me] - seats.lack[me]
    begun = seats.begun[me]
    log.computed[attempt] += done - begun
    again = min(done, log.high[attempt]) - begun
    if again > 0:
        log.recomputed[attempt] += again
    if done > log.high[attempt]:
        log.high[attempt] = done
    log.emitted[attempt] = seats.emitted[me]


@compiled(**INLINED)
def empty_seat(terms: Terms, log: Attempts, seats: Seats, at: IntArray, me: int) -> None:
    """Close a seat's account; its blocks and the seat are free. It stays in the list of running."""
    account(log, seats, me)
    log.stay_to[seats.stay[me]] = at[STEPS]
    if terms.blocks >= 0:
        at[FREE] += seats.held[me]
    seats.vacant[at[VACANT]] = me
    at[VACANT] += 1


@compiled(**INNER)
def drop_running(at: IntArray, running: IntArray, place: int) -> None:
    """Take a place out of the order of admission."""
    at[RUNNING] -= 1
    for later in range(place, at[RUNNING]):
        running[later] = running[later + 1]


@compiled(**INNER)
def notice_leavers(asked: Asked, terms: Terms, log: Attempts, seats: Seats, server: Server) -> None:
    """Drop the attempts whose clients have gone: from their queue, or from their seat."""
    at = server.at
    for leaver in range(at[LEAVERS]):
        attempt = log.leavers[leaver] + 0
        place = log.place[attempt]
        if place == RUNS:
            seat = 0
            while seats.attempt[seats.running[seat]] != attempt:
                seat += 1
            me = seats.running[seat]
            if at[EVEN] == 1:
                count_out(terms, seats, server, me)
            empty_seat(terms, log, seats, at, me)
            drop_running(at, seats.running, seat)
        elif place != OUT:
            leave_queue(asked, terms, log, server, place, attempt)
        log.place[attempt] = OUT
    at[LEAVERS] = 0


@compiled(**INNER)
def open_door(asked: Asked, terms: Terms, log: Attempts, server: Server, now_s: float) -> None:
    """Let those who stand outside join the queue, while there is room for them inside."""
    at = server.at
    while at[OUTSIDE] > 0 and (
        (kv_used(at, terms) < terms.watermark and at[QUEUED] < terms.seats - at[RUNNING])
        or (at[RUNNING] == 0 and at[QUEUED] == 0)
    ):
        attempt = at[HEAD + DOOR]
        unlink(at, log.before, log.after, DOOR, attempt)
        at[OUTSIDE] -= 1
        log.entered_s[attempt] = now_s
        join(asked, terms, log, server, attempt, now_s)


# ====================================================================================== one step
@compiled(**INNER)
def victim_place(terms: Terms, log: Attempts, seats: Seats, at: IntArray) -> int:
    """Return who is preempted: the last in order of admission, or the least urgent."""
    worst = at[RUNNING] - 1
    if terms.order == PRIORITY:
        for place in range(worst):
            one = seats.attempt[seats.running[worst]]
            other = seats.attempt[seats.running[place]]
            if goes_before(log.rank, log.rank, one, other):
                worst = place
    return worst


@compiled(**INNER)
def preempt(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    place: int,
    now_s: float,
) -> None:
    """Put a running attempt to the front of its queue; its computed tokens are forgotten."""
    at = server.at
    me = seats.running[place]
    attempt = seats.attempt[me]
    empty_seat(terms, log, seats, at, me)
    drop_running(at, seats.running, place)
    log.preemptions[attempt] += 1
    queue = LONG if seats.long[me] == 1 else SHORT
    log.place[attempt] = queue
    link_behind(at, log.before, log.after, queue, -1, attempt)
    if terms.split:
        log.joined_s[attempt] = now_s
    if terms.order == PRIORITY:
        push_ranked(at, log, queue, attempt)
    at[QUEUED] += 1
    at[WAITING] += 1
    at[WAITING_TOKENS] += tokens_waiting(asked, terms, log, attempt)


@compiled(**INLINED)
def count_chunk(at: IntArray, seats: Seats, me: int, chunk: int, sign: int) -> None:
    """Add (sign 1) what a seat computes to the step's features, or take it out again (-1)."""
    known = seats.known[me]
    lack = seats.lack[me]
    if lack == 1 and seats.emitted[me] > 0:
        at[SEQS] += sign
        at[KV_TOKENS] += sign * known
    else:
        at[TOKENS] += sign * chunk
        at[PAIRS] += sign * attention_pairs(known - lack, chunk)


@compiled(**INLINED)
def plan_running(
    asked: Asked, terms: Terms, log: Attempts, seats: Seats, server: Server, now_s: float
) -> tuple[int, int]:
    """Plan the running attempts' part of a step; return the budget left and the victims."""
    at = server.at
    running = seats.running
    budget = terms.budget
    limited = terms.blocks >= 0
    capped = terms.split and terms.chunked
    decode_seqs = 0
    kv_tokens = 0
    victims = 0
    place = 0
    while place < at[RUNNING] and budget > 0:
        me = running[place]
        chunk = seats.lack[me]
        decodes = chunk == 1 and seats.emitted[me] > 0
        if not decodes:
            chunk = min(chunk, budget)
            if capped and seats.long[me] == 1:
                chunk = min(chunk, terms.long_chunk)
        if limited and chunk > seats.room[me]:
            blocks = blocks_for(chunk - seats.room[me], terms.block_size)
            preempted_itself = False
            while blocks > at[FREE] and not preempted_itself:
                worst = victim_place(terms, log, seats, at)
                victim = running[worst]
                if worst < place:
                    place -= 1
                    budget += seats.chunk[victim]
                    if seats.chunk[victim] > 0:
                        count_chunk(at, seats, victim, seats.chunk[victim], -1)
                preempted_itself = victim == me
                preempt(asked, terms, log, seats, server, worst, now_s)
                victims += 1
            if preempted_itself:
                break
            at[FREE] -= blocks
            seats.held[me] += blocks
            seats.room[me] += blocks * terms.block_size
        seats.chunk[me] = chunk
        budget -= chunk
        place += 1
        if decodes:
            decode_seqs += 1
            kv_tokens += seats.known[me]
        else:
            count_chunk(at, seats, me, chunk, 1)
    at[SEQS] += decode_seqs
    at[KV_TOKENS] += kv_tokens
    for rest in range(place, at[RUNNING]):
        seats.chunk[running[rest]] = 0
    return budget, victims


@compiled(**INLINED)
def cached_at_start(asked: Asked, terms: Terms, log: Attempts, attempt: int) -> int:
    """Return the tokens in the cache when an attempt is scheduled.

    A prefix hit is whole blocks, and never the whole prompt; a preemption forgets it.
    """
    request = log.request[attempt]
    if log.preemptions[attempt] > 0:
        return 0
    if terms.handed:
        return asked.prompt[request]
    if len(asked.cached) == 0:
        return 0
    hit = min(asked.cached[request], asked.prompt[request] - 1)
    return hit // terms.block_size * terms.block_size


@compiled(**INLINED)
def take_seat(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    attempt: int,
    cached: int,
    chunk: int,
    is_long: int,
) -> None:
    """Give a waiting attempt a seat, and let it compute `chunk` tokens in the step in hand."""
    at = server.at
    request = log.request[attempt]
    at[VACANT] -= 1
    me = seats.vacant[at[VACANT]]
    known = asked.prompt[request] + log.emitted[attempt]
    seats.attempt[me] = attempt
    seats.output[me] = log.output[attempt]
    seats.emitted[me] = log.emitted[attempt]
    seats.known[me] = known
    seats.lack[me] = known - cached
    seats.begun[me] = cached
    seats.chunk[me] = chunk
    seats.long[me] = is_long
    stay = at[STAYS]
    at[STAYS] += 1
    seats.stay[me] = stay
    log.stay_attempt[stay] = attempt
    log.stay_from[stay] = at[STEPS]
    log.stay_to[stay] = log.stay_ready[stay] = -1
    if seats.lack[me] == 1 and seats.emitted[me] > 0:
        log.stay_ready[stay] = -2 - at[STEPS]
    log.stay_cached[stay] = cached
    log.stay_emitted[stay] = log.emitted[attempt]
    if terms.blocks >= 0:
        held = blocks_for(cached + chunk, terms.block_size)
        seats.held[me] = held
        seats.room[me] = held * terms.block_size - cached
        at[FREE] -= held
    log.place[attempt] = RUNS
    seats.running[at[RUNNING]] = me
    at[RUNNING] += 1
    count_chunk(at, seats, me, chunk, 1)


@compiled(**INNER)
def long_prefills(at: IntArray, seats: Seats) -> int:
    """Return how many long prompts are being computed."""
    count = 0
    for place in range(at[RUNNING]):
        me = seats.running[place]
        if seats.long[me] == 1 and not (seats.lack[me] == 1 and seats.emitted[me] > 0):
            count += 1
    return count


@compiled(**INLINED)
def plan_waiting(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    now_s: float,
    budget: int,
) -> int:
    """Plan the waiting attempts' part of a step; return how many were admitted.

    Passes, where long prompts are split off: an overdue long one; the others; the long ones.
    """
    at = server.at
    admitted = 0
    if at[QUEUED] == 0:
        return admitted
    turn = 1
    prefilling = 0
    if terms.split:
        turn = 0
        prefilling = long_prefills(at, seats)
    while budget > 0 and at[RUNNING] < terms.seats and at[QUEUED] > 0:
        queue = SHORT if turn == 1 else LONG
        if turn == 2 and prefilling >= terms.long_running:
            break
        attempt = first_of(asked, terms, log, server, queue, now_s)
        if turn == 0:
            turn = 1
            if attempt < 0 or not now_s - log.joined_s[attempt] > terms.long_wait_s:
                continue
        elif attempt < 0:
            if turn == 2 or not terms.split:
                break
            turn = 2
            continue
        cached = cached_at_start(asked, terms, log, attempt)
        lack = asked.prompt[log.request[attempt]] + log.emitted[attempt] - cached
        chunk = min(lack, budget)
        if chunk < lack and not terms.chunked:
            break
        if queue == LONG and terms.chunked:
            chunk = min(chunk, terms.long_chunk)
        if terms.blocks >= 0 and blocks_for(cached + chunk, terms.block_size) > at[FREE]:
            break
        leave_queue(asked, terms, log, server, queue, attempt)
        if terms.order == PRIORITY:
            # a preempted one is put in again, and nobody may stand in a heap twice
            first_ranked_leaves(at, log, queue, attempt)
        if log.preemptions[attempt] == 0:
            log.scheduled_s[attempt] = now_s
        if queue == LONG:
            prefilling += 1
        is_long = 1 if queue == LONG else 0
        take_seat(asked, terms, log, seats, server, attempt, cached, chunk, is_long)
        budget -= chunk
        admitted += 1
    return admitted


@compiled(**INNER)
def first_ranked_leaves(at: IntArray, log: Attempts, queue: int, attempt: int) -> None:
    """Take the first of a queue's heap out of it, if that is `attempt`."""
    heap = log.heap if queue == SHORT else log.long_heap
    if at[HEAPED + queue] > 0 and heap[0] == attempt:
        at[HEAPED + queue] -= 1
        drop_top(heap, at[HEAPED + queue], log.rank, log.rank)


@compiled(**INLINED)
def decoders_fit(at: IntArray, terms: Terms, server: Server) -> bool:
    """Say whether the decoders of an even house can all decode in the next step."""
    if at[RUNNING] > terms.budget:
        return False
    return terms.blocks < 0 or server.phases[at[TICK] % terms.block_size] <= at[FREE]


@compiled(**INLINED)
def plan_decoders(at: IntArray, terms: Terms, server: Server) -> None:
    """Let the decoders of an even house, those who ran before this step, decode."""
    at[DECODE] = 1
    at[SEQS] += at[DECODERS]
    at[KV_TOKENS] += at[KV_READ]
    if terms.blocks >= 0:
        at[FREE] -= server.phases[at[TICK] % terms.block_size]


@compiled(**INLINED)
def plan_step(
    asked: Asked, terms: Terms, log: Attempts, seats: Seats, server: Server, now_s: float
) -> None:
    """Plan one step; where all it did was preempt, it was none, and is planned again."""
    at = server.at
    at[TOKENS] = at[PAIRS] = at[SEQS] = at[KV_TOKENS] = at[DECODE] = 0
    if at[EVEN] == 1 and not decoders_fit(at, terms, server):
        stop_being_even(terms, seats, server, at[RUNNING])
    at[DECODERS] = at[RUNNING]
    while at[TOKENS] + at[SEQS] == 0:
        budget = terms.budget
        victims = 0
        admitted = 0
        if not terms.chunked:
            for place in range(at[RUNNING]):
                seats.chunk[seats.running[place]] = 0
        elif at[EVEN] == 1:
            plan_decoders(at, terms, server)
            budget -= at[DECODERS]
        else:
            budget, victims = plan_running(asked, terms, log, seats, server, now_s)
        if victims == 0:
            admitted = plan_waiting(asked, terms, log, seats, server, now_s, budget)
        if not terms.chunked and admitted == 0:
            # the older way: who waits goes first, and alone
            if at[EVEN] == 1:
                plan_decoders(at, terms, server)
            else:
                plan_running(asked, terms, log, seats, server, now_s)


@compiled(**INLINED)
def begin_step(terms: Terms, price: Price, steps: Steps, server: Server, now_s: float) -> bool:
    """Price the planned step and write it down; return False if it is free or endless."""
    at = server.at
    clock = server.clock
    seconds = step_seconds(terms.cost, price, at[TOKENS], at[PAIRS], at[SEQS], at[KV_TOKENS])
    if not 0.0 < seconds < INF:
        return False
    step = at[STEPS]
    at[STEPS] = step + 1
    at[IN_STEP] = 1
    clock[SECONDS] = seconds
    clock[END] = now_s + seconds
    steps.start_s[step] = now_s
    steps.end_s[step] = clock[END]
    steps.prefill_tokens[step] = at[TOKENS]
    steps.decode_seqs[step] = at[SEQS]
    steps.running[step] = at[RUNNING]
    steps.waiting[step] = at[WAITING]
    if terms.blocks >= 0:
        steps.blocks[step] = terms.blocks - at[FREE]
    return True


@compiled(**INLINED)
def finish(
    terms: Terms, log: Attempts, seats: Seats, server: Server, me: int, now_s: float
) -> None:
    """Let an attempt that has emitted its last token go; its client may have gone before."""
    at = server.at
    attempt = seats.attempt[me]
    empty_seat(terms, log, seats, at, me)
    log.place[attempt] = OUT
    if log.status[attempt] == UNFINISHED:
        log.status[attempt] = FINISHED
        log.end_s[attempt] = now_s
        at[FRUITLESS] = 0
        if terms.closed:
            user_goes_on(
                at,
                server.next_s,
                server.sends,
                server.current,
                server.owner[log.request[attempt]],
                now_s + terms.think_s,
            )


@compiled(**INLINED)
def settle(
    terms: Terms, log: Attempts, seats: Seats, server: Server, me: int, now_s: float
) -> bool:
    """Give a seat what the step brought it; return whether that was its last token."""
    chunk = seats.chunk[me]
    if chunk == 0:
        return False
    if terms.blocks >= 0:
        seats.room[me] -= chunk
    seats.lack[me] -= chunk
    first = log.stay_ready[seats.stay[me]] == -1
    if seats.lack[me] > 0:
        if first and seats.lack[me] == 1 and seats.emitted[me] > 0:
            log.stay_ready[seats.stay[me]] = -2 - server.at[STEPS]
        return False
    if first:
        log.stay_ready[seats.stay[me]] = server.at[STEPS] - 1
    seats.lack[me] = 1
    seats.known[me] += 1
    emitted = seats.emitted[me] + 1
    seats.emitted[me] = emitted
    if emitted == 1 and log.status[seats.attempt[me]] == UNFINISHED:
        log.first_token_s[seats.attempt[me]] = now_s
    if emitted < seats.output[me]:
        return False
    finish(terms, log, seats, server, me, now_s)
    return True


@compiled(**INLINED)
def settle_decoders(terms: Terms, log: Attempts, seats: Seats, server: Server, now_s: float) -> int:
    """Let the decoders of an even house move on a tick; return how many of them go on."""
    at = server.at
    decoders = at[DECODERS]
    if at[DECODE] == 0:
        return decoders
    at[TICK] += 1
    at[KV_READ] += decoders
    if at[TICK] < at[SOONEST]:
        return decoders
    at[SOONEST] = NEVER
    kept = 0
    for place in range(decoders):
        me = seats.running[place]
        last = seats.since[me] + seats.output[me] - seats.emitted[me]
        if last == at[TICK]:
            count_out(terms, seats, server, me)
            finish(terms, log, seats, server, me, now_s)
        else:
            at[SOONEST] = min(at[SOONEST], last)
            seats.running[kept] = me
            kept += 1
    return kept


@compiled(**INLINED)
def settle_running(terms: Terms, log: Attempts, seats: Seats, server: Server, now_s: float) -> None:
    """Give each running attempt what the step brought it; see whether the house is even now."""
    at = server.at
    running = seats.running
    first = 0
    kept = 0
    if at[EVEN] == 1:
        first = at[DECODERS]
        kept = settle_decoders(terms, log, seats, server, now_s)
    else:
        at[KV_READ] = 0
        at[SOONEST] = NEVER
    counted = kept
    even = True
    for place in range(first, at[RUNNING]):
        me = running[place]
        if not settle(terms, log, seats, server, me, now_s):
            seats.since[me] = at[TICK]
            even = even and seats.lack[me] == 1 and seats.emitted[me] > 0
            running[kept] = me
            kept += 1
    at[RUNNING] = kept
    if even:
        at[EVEN] = 1
        for place in range(counted, kept):
            count_in(terms, seats, server, running[place])
    elif at[EVEN] == 1:
        stop_being_even(terms, seats, server, counted)


@compiled(**INLINED)
def end_step(terms: Terms, log: Attempts, seats: Seats, server: Server, now_s: float) -> None:
    """Let a step end; bring the pace up to date."""
    at = server.at
    clock = server.clock
    settle_running(terms, log, seats, server, now_s)
    at[IN_STEP] = 0
    clock[NOW] = now_s
    pace = (at[TOKENS] + at[SEQS]) / clock[SECONDS]
    if clock[PACE] > 0.0:
        weight = 1.0 - math.exp(-clock[SECONDS] / PACE_S)
        pace = clock[PACE] + weight * (pace - clock[PACE])
    clock[PACE] = pace


# ======================================================================================= the loop
@compiled(**INLINED)
def has_room(at: IntArray, terms: Terms, log: Attempts, steps: Steps, seats: Seats) -> bool:
    """Say whether the log can take one more step and the seats everybody who may get one."""
    if at[STEPS] >= len(steps.end_s):
        return False
    seated = min(terms.seats, at[RUNNING] + at[QUEUED])
    return len(seats.vacant) >= seated and len(log.stay_to) - at[STAYS] >= seated


@compiled(**OPTIONS)
def run_service(
    asked: Asked,
    terms: Terms,
    price: Price,
    log: Attempts,
    steps: Steps,
    seats: Seats,
    server: Server,
) -> int:
    """Run until all is served, the horizon is reached or a record is full; return which it was."""
    at = server.at
    clock = server.clock
    while True:
        in_step = at[IN_STEP] == 1
        limit_s = clock[END] if in_step else clock[NOW]
        if not clients_act(asked, terms, log, server, limit_s, not in_step):
            return FULL
        if in_step:
            end_step(terms, log, seats, server, limit_s)
            continue
        if not limit_s < terms.horizon_s:
            return DONE
        if at[LEAVERS] > 0:
            notice_leavers(asked, terms, log, seats, server)
        if at[OUTSIDE] > 0:
            open_door(asked, terms, log, server, limit_s)
        if at[RUNNING] + at[QUEUED] == 0:
            next_s = next_send_s(at, asked, terms, server)
            if next_s == INF:
                return DONE
            clock[NOW] = next_s
        elif not has_room(at, terms, log, steps, seats):
            return FULL
        else:
            plan_step(asked, terms, log, seats, server, limit_s)
            if not begin_step(terms, price, steps, server, limit_s):
                return BAD_COST
        if 0 <= terms.fruitless < at[FRUITLESS] and (terms.closed or at[SENT] == len(asked.prompt)):
            return ENDLESS


@compiled(**OPTIONS)
def close_service(terms: Terms, log: Attempts, seats: Seats, server: Server) -> None:
    """Add what the attempts still in their seats computed to their records."""
    for place in range(server.at[RUNNING]):
        catch_up(terms, seats, server.at, seats.running[place])
        account(log, seats, seats.running[place])
