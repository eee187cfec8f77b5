"""The compiled loop that knows every rule: clients, gate, and steps of all kinds; no checks here.

Steps are planned by looking at one running attempt after the other, except in an *even* house:
while all who run are decoders that fit the budget, each makes one token a step, and all that a step
needs to know of them is how many they are, how much they read, and how many of them need a KV block
(by the residue of the tick at which their room ends). Their seats are brought up to date when
somebody leaves, or when the house stops being even. Where blocks have names, or a step may bring
several tokens, a house is never even.

Every function also runs uncompiled, on lists instead of arrays, with the same result bit for bit;
so it is all indexing of flat sequences. All state is in the records of `service_state`, so that the
loop can stop when one of them is full and go on when the caller has made room.
"""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, IntArray, SmallArray
from course.serving._compiled import compiled
from course.serving.engine.kernels.blocks import (
    UNHELD,
    find_prefix,
    give_name,
    let_go,
    name_of,
    share,
    take_new,
)
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
HEAD = 14  # first of the queue SHORT, LONG, DOOR, STAGED; -1: empty
TAIL = 18  # last of each
HEAPED = 22  # entries in the heaps of SHORT and LONG
FRUITLESS = 24  # attempts that ended in vain since the last success or new request
TOKENS = 25  # features of the step in hand
PAIRS = 26
SEQS = 27
KV_TOKENS = 28
EVEN = 29  # 1: everybody who runs is a decoder, and the seats are not kept up
TICK = 30  # steps in which the decoders of an even house decoded
KV_READ = 31  # (even) tokens that they read in the next step
SOONEST = 32  # (even) no decoder emits its last token before this tick
DECODERS = 33  # (even) those who ran before the step in hand
DECODE = 34  # (even) 1: they decode in the step in hand
GAPS = 35  # rows of the table of gaps
BURSTS = 36  # rows of the table of bursts
UNSEEN = 37  # (asynchronous) attempts that the next step does not know of yet
PARTIAL = 38  # (prefills alone) the seat whose prompt is cut by the budget; -1: none
IDLE = 39  # (windows) 1: nobody was there, and who comes waits for company
RECENT = 40  # (adaptive window) the oldest attempt that it still counts
STAYS = 41  # times that somebody took a seat
AT_SIZE = 42

NEVER = 2**62
KEPT = -2  # gaps.back: it had its seat all the time

# --- server.clock --------------------------------------------------------------------------------
NOW = 0
END = 1  # of the step in flight
SECONDS = 2  # that step's, as priced
PACE = 3  # tokens a second, lately; 0: not known
BUCKET = 4  # retries that the clients' budget still allows
CLOCK_SIZE = 5

PACE_S = 5.0  # how far back the pace remembers

# --- attempts.place ------------------------------------------------------------------------------
SHORT, LONG, DOOR, STAGED, RUNS, OUT = 0, 1, 2, 3, 4, 5

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
    elif queue == STAGED:
        at[UNSEEN] -= 1
    else:
        at[QUEUED] -= 1


@compiled(**INNER)
def show_unseen(asked: Asked, terms: Terms, log: Attempts, server: Server) -> None:
    """Let those who came too late for the step decided last join their queues for the next one."""
    at = server.at
    while at[UNSEEN] > 0:
        attempt = at[HEAD + STAGED]
        unlink(at, log.before, log.after, STAGED, attempt)
        at[UNSEEN] -= 1
        join(asked, terms, log, server, attempt, log.sent_s[attempt])


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


@compiled(**INLINED)
def think_of(asked: Asked, terms: Terms, request: int) -> float:
    """Return the pause of a user after a request."""
    return asked.think_s[request] if len(asked.think_s) > 0 else terms.think_s


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
    asked: Asked,
    terms: Terms,
    log: Attempts,
    server: Server,
    attempt: int,
    end_s: float,
    hopeless: bool,
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
            end_s + think_of(asked, terms, request),
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
    ended_in_vain(asked, terms, log, server, attempt, now_s, False)


# ====================================================================================== admission
@compiled(**INLINED)
def never_fits(terms: Terms, tokens: int) -> bool:
    """Say whether a request that grows to `tokens` cached tokens can never be served."""
    most = terms.blocks - terms.kept_blocks
    if terms.blocks >= 0 and blocks_for(tokens, terms.block_size) > most:
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
    log.first_step[attempt] = -1
    if terms.caching:
        log.hit[attempt] = 0
        log.recovered[attempt] = 0
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
    elif terms.asynchronous:
        link_behind(at, log.before, log.after, STAGED, at[TAIL + STAGED], attempt)
        log.place[attempt] = STAGED
        at[UNSEEN] += 1
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
        ended_in_vain(asked, terms, log, server, attempt, now_s, hopeless)
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
def grow(terms: Terms, seats: Seats, pool: Pool, at: IntArray, me: int, blocks: int) -> None:
    """Give a seat so many more free blocks."""
    if terms.caching:
        first = me * terms.width + seats.held[me]
        for place in range(first, first + blocks):
            pool.row[place] = take_new(terms, pool)
        at[FREE] = pool.ends[UNHELD]
    else:
        at[FREE] -= blocks
    seats.held[me] += blocks
    seats.room[me] += blocks * terms.block_size


@compiled(**INLINED)
def empty_seat(
    terms: Terms, log: Attempts, seats: Seats, pool: Pool, at: IntArray, me: int
) -> None:
    """Close a seat's account; its blocks and the seat are free. It stays in the list of running."""
    account(log, seats, me)
    log.stay_to[seats.stay[me]] = at[STEPS]
    if terms.caching:
        first = me * terms.width
        for place in range(first + seats.held[me] - 1, first - 1, -1):
            let_go(pool, pool.row[place] + 0)
        at[FREE] = pool.ends[UNHELD]
    elif terms.blocks >= 0:
        at[FREE] += seats.held[me]
    if at[PARTIAL] == me:
        at[PARTIAL] = -1
    seats.vacant[at[VACANT]] = me
    at[VACANT] += 1


@compiled(**INNER)
def drop_running(at: IntArray, running: IntArray, place: int) -> None:
    """Take a place out of the order of admission."""
    at[RUNNING] -= 1
    for later in range(place, at[RUNNING]):
        running[later] = running[later + 1]


@compiled(**INNER)
def notice_leavers(
    asked: Asked, terms: Terms, log: Attempts, seats: Seats, pool: Pool, server: Server
) -> None:
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
            empty_seat(terms, log, seats, pool, at, me)
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
        (
            kv_used(at, terms) < terms.watermark
            and at[QUEUED] + at[UNSEEN] < terms.seats - at[RUNNING]
        )
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


@compiled(**INLINED)
def open_gap(at: IntArray, gaps: Gaps, attempt: int, tokens: int, back: int) -> int:
    """Note that an attempt is left out from the step in hand on; return the row."""
    row = at[GAPS]
    at[GAPS] = row + 1
    gaps.attempt[row] = attempt
    gaps.tokens[row] = tokens
    gaps.lost[row] = at[STEPS]
    gaps.back[row] = back
    gaps.resumed[row] = -1
    return row


@compiled(**INNER)
def preempt(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    pool: Pool,
    place: int,
    now_s: float,
) -> None:
    """Put a running attempt back into its queue; its computed tokens are forgotten.

    It goes to the front; where prefills go alone, to the tail.
    """
    at = server.at
    me = seats.running[place]
    attempt = seats.attempt[me]
    empty_seat(terms, log, seats, pool, at, me)
    drop_running(at, seats.running, place)
    log.preemptions[attempt] += 1
    log.gap[attempt] = open_gap(at, gaps, attempt, seats.emitted[me], -1)
    queue = LONG if seats.long[me] == 1 else SHORT
    log.place[attempt] = queue
    ahead = at[TAIL + queue] if terms.alone else -1
    link_behind(at, log.before, log.after, queue, ahead, attempt)
    if terms.split:
        log.joined_s[attempt] = now_s
    if terms.order == PRIORITY:
        push_ranked(at, log, queue, attempt)
    at[QUEUED] += 1
    at[WAITING] += 1
    at[WAITING_TOKENS] += tokens_waiting(asked, terms, log, attempt)


@compiled(**INLINED)
def decodes(seats: Seats, at: IntArray, me: int) -> bool:
    """Say whether a seat makes a token from its last one, which alone is not computed yet."""
    return seats.lack[me] == 1 and seats.emitted[me] > 0 and at[PARTIAL] != me


@compiled(**INLINED)
def count_chunk(
    at: IntArray, seats: Seats, me: int, chunk: int, is_decode: bool, sign: int
) -> None:
    """Add (sign 1) what a seat computes to the step's features, or take it out again (-1)."""
    if is_decode:
        at[SEQS] += sign * chunk
        at[KV_TOKENS] += sign * seats.known[me]
    else:
        at[TOKENS] += sign * chunk
        at[PAIRS] += sign * attention_pairs(seats.known[me] - seats.lack[me], chunk)


@compiled(**INLINED)
def plan_running(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    pool: Pool,
    now_s: float,
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
        is_decode = chunk == 1 and seats.emitted[me] > 0
        if is_decode:
            if terms.drafts > 0:
                chunk += min(terms.drafts, seats.output[me] - seats.emitted[me] - 1, budget - 1)
        else:
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
                    again = seats.chunk[victim]
                    budget += again
                    if again > 0:
                        count_chunk(at, seats, victim, again, decodes(seats, at, victim), -1)
                preempted_itself = victim == me
                preempt(asked, terms, log, seats, server, gaps, pool, worst, now_s)
                victims += 1
            if preempted_itself:
                break
            grow(terms, seats, pool, at, me, blocks)
        seats.chunk[me] = chunk
        budget -= chunk
        place += 1
        if is_decode:
            decode_seqs += chunk
            kv_tokens += seats.known[me]
        else:
            count_chunk(at, seats, me, chunk, False, 1)
    at[SEQS] += decode_seqs
    at[KV_TOKENS] += kv_tokens
    for rest in range(place, at[RUNNING]):
        seats.chunk[running[rest]] = 0
    return budget, victims


@compiled(**INNER)
def cheapest_place(seats: Seats, at: IntArray) -> int:
    """Return who is retracted: fewest tokens emitted, then longest prompt, then latest seated."""
    worst = 0
    for place in range(1, at[RUNNING]):
        one = seats.running[place]
        other = seats.running[worst]
        if seats.emitted[one] < seats.emitted[other] or (
            seats.emitted[one] == seats.emitted[other]
            and seats.known[one] - seats.emitted[one] >= seats.known[other] - seats.emitted[other]
        ):
            worst = place
    return worst


@compiled(**INNER)
def plan_decoding(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    pool: Pool,
    now_s: float,
) -> None:
    """Let all who run decode; retract some while there are too few blocks for them."""
    at = server.at
    limited = terms.blocks >= 0
    short = True
    while short:
        blocks = 0
        for place in range(at[RUNNING]):
            me = seats.running[place]
            chunk = 1 + min(terms.drafts, seats.output[me] - seats.emitted[me] - 1)
            seats.chunk[me] = chunk
            if limited and chunk > seats.room[me]:
                blocks += blocks_for(chunk - seats.room[me], terms.block_size)
        short = limited and blocks > at[FREE]
        if short:
            worst = cheapest_place(seats, at)
            preempt(asked, terms, log, seats, server, gaps, pool, worst, now_s)
    for place in range(at[RUNNING]):
        me = seats.running[place]
        chunk = seats.chunk[me]
        if limited and chunk > seats.room[me]:
            blocks = blocks_for(chunk - seats.room[me], terms.block_size)
            grow(terms, seats, pool, at, me, blocks)
        count_chunk(at, seats, me, chunk, True, 1)


@compiled(**INLINED)
def cached_at_start(
    asked: Asked, terms: Terms, log: Attempts, pool: Pool, attempt: int, known: int
) -> tuple[int, int]:
    """Return the tokens in the cache when an attempt is scheduled, and how many blocks are held.

    A hit given by hand is whole blocks, of its own, and never the whole prompt; a preemption
    forgets it.
    """
    request = log.request[attempt]
    prompt_tokens = asked.prompt[request]
    cached = 0
    held = 0
    if terms.caching:
        blocks, held = find_prefix(
            asked, terms, pool, request, attempt, prompt_tokens, known, pool.found
        )
        cached = blocks * terms.block_size
    elif log.preemptions[attempt] > 0:
        cached = 0
    elif terms.handed:
        cached = prompt_tokens
    elif len(asked.cached) > 0:
        hit = min(asked.cached[request], prompt_tokens - 1)
        cached = hit // terms.block_size * terms.block_size
    return cached, held


@compiled(**INLINED)
def take_seat(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    pool: Pool,
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
    # the rest of a recompute, or what comes with its prompt computed
    is_decode = known - cached == 1 and log.emitted[attempt] > 0 and not terms.alone
    if is_decode:
        log.stay_ready[stay] = -2 - at[STEPS]
    log.stay_cached[stay] = cached
    log.stay_emitted[stay] = log.emitted[attempt]
    seats.gap[me] = -1
    if log.preemptions[attempt] > 0:
        row = log.gap[attempt]
        gaps.back[row] = at[STEPS]
        seats.gap[me] = row
    if terms.blocks >= 0:
        held = blocks_for(cached, terms.block_size)
        seats.held[me] = held
        seats.room[me] = held * terms.block_size - cached
        if terms.caching:
            for place in range(held):
                share(pool, pool.found[place])
                pool.row[me * terms.width + place] = pool.found[place]
            at[FREE] = pool.ends[UNHELD]
            seats.named[me] = held
            if log.preemptions[attempt] > 0:
                log.recovered[attempt] += cached
            else:
                log.hit[attempt] = cached
        else:
            at[FREE] -= held
        if chunk > seats.room[me]:
            blocks = blocks_for(chunk - seats.room[me], terms.block_size)
            grow(terms, seats, pool, at, me, blocks)
    if terms.alone and chunk < known - cached:
        at[PARTIAL] = me
    log.place[attempt] = RUNS
    seats.running[at[RUNNING]] = me
    at[RUNNING] += 1
    count_chunk(at, seats, me, chunk, is_decode, 1)


@compiled(**INNER)
def reserved_tokens(terms: Terms, seats: Seats, at: IntArray) -> int:
    """Return what running answers will still need, or the share of it that is reserved."""
    tokens = 0
    for place in range(at[RUNNING]):
        me = seats.running[place]
        to_come = seats.output[me] - seats.emitted[me]
        if at[EVEN] == 1:
            to_come -= at[TICK] - seats.since[me]
        tokens += int(terms.token_ratio * to_come)
    return tokens


@compiled(**INLINED)
def blocks_suffice(
    terms: Terms, free: int, known: int, computed: int, held: int, to_come: int, reserved: int
) -> bool:
    """Say whether whoever is next may be admitted, as far as `free` blocks go.

    `held`: blocks of its cached prefix that others hold. Where prefills go alone, all that is
    still to come must fit beside what is reserved.
    """
    size = terms.block_size
    wanted = computed
    if terms.alone:
        if known - held * size + to_come - 1 > free * size - reserved:
            return False
    elif terms.whole_fits:
        wanted = known
    return blocks_for(wanted, size) - held <= free


@compiled(**INNER)
def long_prefills(at: IntArray, seats: Seats) -> int:
    """Return how many long prompts are being computed."""
    count = 0
    for place in range(at[RUNNING]):
        me = seats.running[place]
        if seats.long[me] == 1 and not decodes(seats, at, me):
            count += 1
    return count


@compiled(**INLINED)
def plan_waiting(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    pool: Pool,
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
    reserved = 0
    if terms.alone and terms.blocks >= 0:
        reserved = reserved_tokens(terms, seats, at)
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
        known = asked.prompt[log.request[attempt]] + log.emitted[attempt]
        cached, held = cached_at_start(asked, terms, log, pool, attempt, known)
        lack = known - cached
        chunk = min(lack, budget)
        if chunk < lack and not terms.chunked:
            break
        if queue == LONG and terms.chunked:
            chunk = min(chunk, terms.long_chunk)
        to_come = log.output[attempt] - log.emitted[attempt]
        if terms.blocks >= 0 and not blocks_suffice(
            terms, at[FREE] - terms.kept_blocks, known, cached + chunk, held, to_come, reserved
        ):
            break
        reserved += lack - chunk + to_come
        leave_queue(asked, terms, log, server, queue, attempt)
        if terms.order == PRIORITY:
            # a preempted one is put in again, and nobody may stand in a heap twice
            first_ranked_leaves(at, log, queue, attempt)
        if log.preemptions[attempt] == 0:
            log.scheduled_s[attempt] = now_s
        if queue == LONG:
            prefilling += 1
        is_long = 1 if queue == LONG else 0
        take_seat(asked, terms, log, seats, server, gaps, pool, attempt, cached, chunk, is_long)
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
    if at[RUNNING] > terms.budget and not terms.alone:
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
def plan_prefills(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    pool: Pool,
    now_s: float,
) -> None:
    """Plan a step of prompts alone: the one that was cut, then as many more as fit the budget."""
    at = server.at
    budget = terms.budget
    me = at[PARTIAL]
    if me >= 0:
        chunk = min(seats.lack[me], budget)
        if terms.blocks >= 0 and chunk > seats.room[me]:
            blocks = blocks_for(chunk - seats.room[me], terms.block_size)
            grow(terms, seats, pool, at, me, blocks)
        seats.chunk[me] = chunk
        count_chunk(at, seats, me, chunk, False, 1)
        budget -= chunk
    if budget > 0:
        plan_waiting(asked, terms, log, seats, server, gaps, pool, now_s, budget)


@compiled(**INLINED)
def plan_step(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    pool: Pool,
    now_s: float,
) -> None:
    """Plan one step; where all it did was preempt, it was none, and is planned again."""
    at = server.at
    at[TOKENS] = at[PAIRS] = at[SEQS] = at[KV_TOKENS] = at[DECODE] = 0
    if at[EVEN] == 1 and not decoders_fit(at, terms, server):
        stop_being_even(terms, seats, server, at[RUNNING])
    at[DECODERS] = at[RUNNING]
    prompts_first = terms.alone or not terms.chunked
    while at[TOKENS] + at[SEQS] == 0:
        budget = terms.budget
        victims = 0
        admitted = 0
        if prompts_first:
            for place in range(at[RUNNING]):
                seats.chunk[seats.running[place]] = 0
        elif at[EVEN] == 1:
            plan_decoders(at, terms, server)
            budget -= at[DECODERS]
        else:
            budget, victims = plan_running(asked, terms, log, seats, server, gaps, pool, now_s)
        if terms.alone:
            plan_prefills(asked, terms, log, seats, server, gaps, pool, now_s)
            admitted = at[TOKENS]
        elif victims == 0:
            admitted = plan_waiting(asked, terms, log, seats, server, gaps, pool, now_s, budget)
        if prompts_first and admitted == 0:
            # who waits goes first, and alone
            if at[EVEN] == 1:
                plan_decoders(at, terms, server)
            elif terms.alone:
                plan_decoding(asked, terms, log, seats, server, gaps, pool, now_s)
            else:
                plan_running(asked, terms, log, seats, server, gaps, pool, now_s)


@compiled(**INLINED)
def begin_step(terms: Terms, price: Price, steps: Steps, server: Server, now_s: float) -> bool:
    """Price the planned step and write it down; return False if it is free or endless."""
    at = server.at
    clock = server.clock
    seconds = step_seconds(terms.cost, price, at[TOKENS], at[PAIRS], at[SEQS], at[KV_TOKENS])
    if not (seconds > 0.0 and now_s + seconds < INF):
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
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    pool: Pool,
    me: int,
    now_s: float,
) -> None:
    """Let an attempt that has emitted its last token go; its client may have gone before."""
    at = server.at
    attempt = seats.attempt[me]
    empty_seat(terms, log, seats, pool, at, me)
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
                now_s + think_of(asked, terms, log.request[attempt]),
            )


@compiled(**INNER)
def name_full_blocks(
    asked: Asked, terms: Terms, seats: Seats, pool: Pool, request: int, me: int
) -> None:
    """Let the blocks of a seat that are full by now be found by their names."""
    full = (seats.known[me] - seats.lack[me]) // terms.block_size
    for place in range(seats.named[me], full):
        name = name_of(asked, terms, request, seats.attempt[me], asked.prompt[request], place)
        give_name(terms, pool, pool.row[me * terms.width + place], name)
    seats.named[me] = full


@compiled(**INLINED)
def note_emission(
    terms: Terms,
    log: Attempts,
    seats: Seats,
    at: IntArray,
    gaps: Gaps,
    bursts: Bursts,
    me: int,
    tokens: int,
    now_s: float,
) -> None:
    """Write down that the step just done brought a seat so many tokens."""
    attempt = seats.attempt[me]
    step = at[STEPS] - 1
    if seats.emitted[me] == 0:
        log.first_step[attempt] = step
        if log.status[attempt] == UNFINISHED:
            log.first_token_s[attempt] = now_s
    if seats.gap[me] >= 0:
        gaps.resumed[seats.gap[me]] = step
        seats.gap[me] = -1
    if terms.drafts > 0:
        row = at[BURSTS]
        at[BURSTS] = row + 1
        bursts.attempt[row] = attempt
        bursts.step[row] = step
        bursts.tokens[row] = tokens
    seats.emitted[me] += tokens
    seats.known[me] += tokens


@compiled(**INNER)
def accepted_drafts(terms: Terms, request: int, emitted: int, drafts: int) -> int:
    """Return how many of the tokens guessed ahead are right: those before the first wrong one."""
    count = 0
    while (
        count < drafts
        and retry_uniform(terms.draft_seed, request, emitted + count) < terms.acceptance
    ):
        count += 1
    return count


@compiled(**INLINED)
def settle(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    bursts: Bursts,
    pool: Pool,
    me: int,
    now_s: float,
) -> bool:
    """Give a seat what the step brought it; return whether that was its last token."""
    at = server.at
    chunk = seats.chunk[me]
    if chunk == 0:
        if terms.logged and at[SEQS] > 0 and seats.emitted[me] > 0 and seats.gap[me] < 0:
            # it stood still while others decoded
            seats.gap[me] = open_gap(at, gaps, seats.attempt[me], seats.emitted[me], KEPT)
            gaps.lost[seats.gap[me]] = at[STEPS] - 1
        return False
    tokens = 1
    if terms.drafts > 0 and chunk > 1 and decodes(seats, at, me):
        request = log.request[seats.attempt[me]]
        tokens += accepted_drafts(terms, request, seats.emitted[me], chunk - 1)
        chunk = tokens  # the others are computed for nothing
        seats.lack[me] = 0
    else:
        seats.lack[me] -= chunk
    if terms.blocks >= 0:
        seats.room[me] -= chunk
    emits = seats.lack[me] == 0
    first = log.stay_ready[seats.stay[me]] == -1
    if emits:
        if first:
            log.stay_ready[seats.stay[me]] = at[STEPS] - 1
        if at[PARTIAL] == me:
            at[PARTIAL] = -1
        note_emission(terms, log, seats, at, gaps, bursts, me, tokens, now_s)
        seats.lack[me] = 1
    elif first and decodes(seats, at, me):
        log.stay_ready[seats.stay[me]] = -2 - at[STEPS]
    if terms.caching:
        name_full_blocks(asked, terms, seats, pool, log.request[seats.attempt[me]], me)
    if not emits or seats.emitted[me] < seats.output[me]:
        return False
    finish(asked, terms, log, seats, server, pool, me, now_s)
    return True


@compiled(**INLINED)
def settle_decoders(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    pool: Pool,
    now_s: float,
) -> int:
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
            finish(asked, terms, log, seats, server, pool, me, now_s)
        else:
            at[SOONEST] = min(at[SOONEST], last)
            seats.running[kept] = me
            kept += 1
    return kept


@compiled(**INLINED)
def settle_running(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    bursts: Bursts,
    pool: Pool,
    now_s: float,
) -> None:
    """Give each running attempt what the step brought it; see whether the house is even now."""
    at = server.at
    running = seats.running
    first = 0
    kept = 0
    if at[EVEN] == 1:
        first = at[DECODERS]
        kept = settle_decoders(asked, terms, log, seats, server, pool, now_s)
    else:
        at[KV_READ] = 0
        at[SOONEST] = NEVER
    counted = kept
    even = not terms.caching and terms.drafts == 0
    for place in range(first, at[RUNNING]):
        me = running[place]
        if not settle(asked, terms, log, seats, server, gaps, bursts, pool, me, now_s):
            seats.since[me] = at[TICK]
            even = even and decodes(seats, at, me) and seats.gap[me] < 0
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
def end_step(
    asked: Asked,
    terms: Terms,
    log: Attempts,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    bursts: Bursts,
    pool: Pool,
    now_s: float,
) -> None:
    """Let a step end; bring the pace up to date."""
    at = server.at
    clock = server.clock
    settle_running(asked, terms, log, seats, server, gaps, bursts, pool, now_s)
    at[IN_STEP] = 0
    clock[NOW] = now_s
    pace = (at[TOKENS] + at[SEQS]) / clock[SECONDS]
    if clock[PACE] > 0.0:
        weight = 1.0 - math.exp(-clock[SECONDS] / PACE_S)
        pace = clock[PACE] + weight * (pace - clock[PACE])
    clock[PACE] = pace


# ======================================================================================= the loop
@compiled(**INLINED)
def has_room(
    at: IntArray,
    terms: Terms,
    log: Attempts,
    steps: Steps,
    seats: Seats,
    gaps: Gaps,
    bursts: Bursts,
) -> bool:
    """Say whether the log can take one more step and the seats everybody who may get one."""
    if at[STEPS] >= len(steps.end_s):
        return False
    if terms.logged and at[GAPS] + at[RUNNING] > len(gaps.attempt):
        return False
    inside = min(terms.seats, at[RUNNING] + at[QUEUED])
    if at[STAYS] + inside > len(log.stay_to):
        return False
    if terms.drafts > 0 and at[BURSTS] + inside > len(bursts.attempt):
        return False
    return len(seats.vacant) >= inside


@compiled(**INNER)
def waits_until_s(asked: Asked, terms: Terms, log: Attempts, server: Server, now_s: float) -> float:
    """Return until when an engine that was idle waits for more company; `now_s`: it does not.

    Until its window has passed since the first of those who wait came, or as many wait as it has
    seats; an adaptive one only as long as the last second's arrivals promise one more in a window.
    """
    at = server.at
    until_s = log.sent_s[at[HEAD + SHORT]] + terms.window_s
    if at[QUEUED] >= terms.company or not now_s < until_s:
        return now_s
    until_s = min(until_s, next_send_s(at, asked, terms, server))
    if terms.adaptive:
        while at[RECENT] < at[ATTEMPTS] and log.sent_s[at[RECENT]] + 1.0 <= now_s:
            at[RECENT] += 1
        recent = 0
        for attempt in range(at[RECENT], at[ATTEMPTS]):
            if log.status[attempt] != REJECTED:
                recent += 1
        if recent * terms.window_s < 1.0:
            return now_s
        until_s = min(until_s, log.sent_s[at[RECENT]] + 1.0)
    return until_s


@compiled(**OPTIONS)
def run_service(
    asked: Asked,
    terms: Terms,
    price: Price,
    log: Attempts,
    steps: Steps,
    seats: Seats,
    server: Server,
    gaps: Gaps,
    bursts: Bursts,
    pool: Pool,
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
            end_step(asked, terms, log, seats, server, gaps, bursts, pool, limit_s)
            at[IDLE] = 1 if at[RUNNING] + at[QUEUED] == 0 else 0
            continue
        if not limit_s < terms.horizon_s:
            return DONE
        if 0 <= terms.fruitless < at[FRUITLESS] and (terms.closed or at[SENT] == len(asked.prompt)):
            return ENDLESS
        if at[LEAVERS] > 0:
            notice_leavers(asked, terms, log, seats, pool, server)
        if at[UNSEEN] > 0 and at[RUNNING] + at[QUEUED] == 0:
            show_unseen(asked, terms, log, server)
        if at[OUTSIDE] > 0:
            open_door(asked, terms, log, server, limit_s)
        if at[RUNNING] + at[QUEUED] == 0:
            next_s = next_send_s(at, asked, terms, server)
            if next_s == INF:
                return DONE
            clock[NOW] = next_s
            at[IDLE] = 1
            continue
        if terms.window_s >= 0.0 and at[IDLE] == 1:
            until_s = waits_until_s(asked, terms, log, server, limit_s)
            if until_s > limit_s:
                clock[NOW] = until_s
                continue
        if not has_room(at, terms, log, steps, seats, gaps, bursts):
            return FULL
        plan_step(asked, terms, log, seats, server, gaps, pool, limit_s)
        if not begin_step(terms, price, steps, server, limit_s):
            return BAD_COST
        if at[UNSEEN] > 0:
            show_unseen(asked, terms, log, server)


@compiled(**OPTIONS)
def close_service(terms: Terms, log: Attempts, seats: Seats, server: Server) -> None:
    """Add what the attempts still in their seats computed to their records."""
    for place in range(server.at[RUNNING]):
        catch_up(terms, seats, server.at, seats.running[place])
        account(log, seats, seats.running[place])
