"""The compiled loops behind `course.serving.queueing`; its checks and results are not here.

A file of its own, because any edit, even of a comment, empties numba's cache on disk. Each kernel
fills arrays it is given and returns -1, or where an input time is unusable 2 x index + which input.
No fast-math: each gives bit for bit what its `.py_func` gives.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from numba import types

from course.serving._compiled import compiled

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

# Waits are differences of clock readings, and a clock that only grows loses a digit each time it
# grows tenfold. So the clock is set back to zero every so many customers: long runs stay exact.
REBASE_EVERY = 4096

# A sorted row of servers costs c/2 moves a customer, but the processor guesses nearly all of them
# right; measured, that beats a heap's log2(c) steps up to some 130 servers.
SORTED_UP_TO = 128


@compiled()
def _unusable(time_s: float) -> bool:
    return not (0.0 <= time_s < np.inf)  # NaN fails both comparisons


@compiled()
def _set_back(times: FloatArray, by_s: float) -> None:
    for j in range(times.size):  # in place: `times -= by_s` would rebind and count references
        times[j] -= by_s


@compiled()
def _replace_first_sorted(row: FloatArray, value: float) -> None:
    """Drop the smallest of an ascending row and put `value` where it belongs."""
    j = 0
    while j + 1 < row.size and row[j + 1] < value:
        row[j] = row[j + 1]
        j += 1
    row[j] = value


@compiled()
def _replace_top(heap: FloatArray, value: float) -> None:
    """Drop the smallest of a binary heap and sift `value` down from the top."""
    j = 0
    while True:
        child = 2 * j + 1
        if child >= heap.size:
            break
        if child + 1 < heap.size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[j] = heap[child]
        j = child
    heap[j] = value


@compiled()
def _before(time_a: float, owner_a: int, time_b: float, owner_b: int) -> bool:
    return time_a < time_b or (time_a == time_b and owner_a < owner_b)


@compiled()
def _sift_owned(times: FloatArray, owners: IntArray, top: int, size: int) -> None:
    """Restore the heap below `top`; equal times are ordered by owner."""
    time, owner = times[top], owners[top]
    j = top
    while True:
        child = 2 * j + 1
        if child >= size:
            break
        if child + 1 < size and _before(
            times[child + 1], owners[child + 1], times[child], owners[child]
        ):
            child += 1
        if not _before(times[child], owners[child], time, owner):
            break
        times[j], owners[j] = times[child], owners[child]
        j = child
    times[j], owners[j] = time, owner


@compiled()
def one_server(interarrival_s: FloatArray, service_s: FloatArray, waits_s: FloatArray) -> int:
    """Lindley's recursion: the next wait is the last one, plus its service, minus the gap."""
    wait = 0.0
    previous_service = 0.0
    for i in range(interarrival_s.size):
        if _unusable(interarrival_s[i]):
            return 2 * i
        if _unusable(service_s[i]):
            return 2 * i + 1
        # service minus gap first: that difference is off the loop's critical path, and
        # customers who bring exactly one gap of work leave the wait exactly as it was
        wait += previous_service - interarrival_s[i]
        if wait < 0.0:
            wait = 0.0
        waits_s[i] = wait
        previous_service = service_s[i]
    return -1


@compiled()
def several_servers(
    interarrival_s: FloatArray,
    service_s: FloatArray,
    servers: int,
    as_heap: bool,
    waits_s: FloatArray,
) -> int:
    """Kiefer and Wolfowitz's recursion on the times at which each server falls free.

    The times are kept as a sorted row or as a heap; the waits are the same bit for bit.
    """
    free_at = np.zeros(servers)
    now = 0.0
    for i in range(interarrival_s.size):
        if _unusable(interarrival_s[i]):
            return 2 * i
        if _unusable(service_s[i]):
            return 2 * i + 1
        if i % REBASE_EVERY == 0:
            _set_back(free_at, now)
            now = 0.0
        now += interarrival_s[i]
        start = free_at[0] if free_at[0] > now else now
        waits_s[i] = start - now
        if as_heap:
            _replace_top(free_at, start + service_s[i])
        else:
            _replace_first_sorted(free_at, start + service_s[i])
    return -1


@compiled()
def bounded_queue(
    interarrival_s: FloatArray,
    service_s: FloatArray,
    servers: int,
    waiting_places: int,
    waits_s: FloatArray,
    accepted: BoolArray,
) -> int:
    """First come, first served; who finds all servers and waiting places taken is turned away.

    Starts come in the order of arrival. So all waiting places are taken just when the customer
    admitted `waiting_places` admissions ago has not started yet: a ring of starts is enough.
    """
    free_at = np.zeros(servers)
    starts = np.zeros(max(waiting_places, 1))
    rebase_every = max(REBASE_EVERY, waiting_places)  # so that setting back costs O(1) a customer
    admitted = 0
    now = 0.0
    for i in range(interarrival_s.size):
        if _unusable(interarrival_s[i]):
            return 2 * i
        if _unusable(service_s[i]):
            return 2 * i + 1
        if i % rebase_every == 0:
            _set_back(free_at, now)
            _set_back(starts, now)
            now = 0.0
        now += interarrival_s[i]
        place = admitted % waiting_places if waiting_places > 0 else 0
        if waiting_places == 0:
            full = free_at[0] > now
        else:
            full = admitted >= waiting_places and starts[place] > now
        accepted[i] = not full
        if full:
            waits_s[i] = np.nan
            continue
        start = free_at[0] if free_at[0] > now else now
        waits_s[i] = start - now
        starts[place] = start
        admitted += 1
        _replace_top(free_at, start + service_s[i])
    return -1


@compiled()
def closed_loop(
    think_s: FloatArray,
    service_s: FloatArray,
    users: int,
    servers: int,
    user: IntArray,
    sent_s: FloatArray,
    start_s: FloatArray,
    end_s: FloatArray,
) -> int:
    """Users who think, send, wait for the answer and think again; requests in the order sent.

    The heap holds each user's next send. What is popped is final: every send still to be made
    follows an end, and no end lies before the send just popped.
    """
    for i in range(think_s.size):
        if _unusable(think_s[i]):
            return 2 * i
    next_send = think_s[:users].copy()
    owner = np.arange(users)
    for j in range(users // 2 - 1, -1, -1):
        _sift_owned(next_send, owner, j, users)
    free_at = np.zeros(servers)
    for k in range(service_s.size):
        if _unusable(service_s[k]):
            return 2 * k + 1
        send = next_send[0]
        start = free_at[0] if free_at[0] > send else send
        end = start + service_s[k]
        user[k] = owner[0]
        sent_s[k] = send
        start_s[k] = start
        end_s[k] = end
        _replace_top(free_at, end)
        next_send[0] = end + think_s[users + k]
        _sift_owned(next_send, owner, 0, users)
    return -1


@compiled()
def load_generator(
    scheduled_s: FloatArray,
    service_s: FloatArray,
    workers: int,
    servers: int,
    user: IntArray,
    sent_s: FloatArray,
    start_s: FloatArray,
    end_s: FloatArray,
) -> int:
    """A schedule worked off by blocking workers: late where none is free at the scheduled time."""
    worker_free = np.zeros(workers)
    owner = np.arange(workers)  # already a heap: all times equal, owners ascending
    free_at = np.zeros(servers)
    earliest = 0.0
    for k in range(scheduled_s.size):
        if _unusable(scheduled_s[k]) or scheduled_s[k] < earliest:
            return 2 * k
        if _unusable(service_s[k]):
            return 2 * k + 1
        earliest = scheduled_s[k]
        sent = worker_free[0] if worker_free[0] > earliest else earliest
        start = free_at[0] if free_at[0] > sent else sent
        end = start + service_s[k]
        user[k] = owner[0]
        sent_s[k] = sent
        start_s[k] = start
        end_s[k] = end
        _replace_top(free_at, end)
        worker_free[0] = end
        _sift_owned(worker_free, owner, 0, workers)
    return -1


# Inputs are declared read-only, which writable arrays satisfy too: one compiled version serves
# a caller's own array and a memoised one that was locked against writing.
_IN = types.Array(types.float64, 1, "C", readonly=True)
_OUT = types.Array(types.float64, 1, "C")
_OUT_INT = types.Array(types.int64, 1, "C")
_OUT_BOOL = types.Array(types.boolean, 1, "C")
_INT = types.int64
_REQUEST_TIMES = (_OUT_INT, _OUT, _OUT, _OUT)

SIGNATURES: dict[Any, tuple[Any, ...]] = {
    one_server: (_IN, _IN, _OUT),
    several_servers: (_IN, _IN, _INT, types.boolean, _OUT),
    bounded_queue: (_IN, _IN, _INT, _INT, _OUT, _OUT_BOOL),
    closed_loop: (_IN, _IN, _INT, _INT, *_REQUEST_TIMES),
    load_generator: (_IN, _IN, _INT, _INT, *_REQUEST_TIMES),
}


def ready(kernel: Any) -> Any:
    """Return the kernel, compiled (or read from numba's cache) for its one signature.

    Not done on import: a page that draws one kind of queue should not wait for six of them.
    """
    if not kernel.signatures:
        kernel.compile(SIGNATURES[kernel])
        kernel.disable_compile()  # from now on arguments are fitted to that signature
    return kernel
