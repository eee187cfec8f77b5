"""One queue simulated with given times, exactly; drawing the times and error bars are elsewhere.

Each `simulate_…` checks its arguments, runs one compiled loop of `kernels` and says which
time was unusable. Nothing here is random: `random_times` draws what goes in, and `error_bars` says
how far to trust the mean of what comes out. All times are in seconds.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, IntArray, whole
from course.serving.queueing.arguments import flat_times

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class BoundedRun:
    """What became of each customer of a bounded queue, in order of arrival.

    `waits_s` is NaN where `accepted` is False.
    """

    waits_s: FloatArray
    accepted: BoolArray

    @property
    def reject_share(self) -> float:
        """Share of the customers who were turned away."""
        return float(1 - self.accepted.mean()) if self.accepted.size else 0.0


@dataclass(frozen=True, eq=False)
class RequestTimes:
    """When each request was due, sent, started and ended (s), in the order sent.

    `user` is who sent it. In a closed loop a request is due when it is sent; a load generator
    whose workers are all busy sends later than scheduled.
    """

    user: IntArray
    scheduled_s: FloatArray
    sent_s: FloatArray
    start_s: FloatArray
    end_s: FloatArray

    @property
    def wait_s(self) -> FloatArray:
        """From sending to the start of service: the server's own queue."""
        return self.start_s - self.sent_s

    @property
    def response_s(self) -> FloatArray:
        """From sending to the end: what a load generator that waits its turn reports."""
        return self.end_s - self.sent_s

    @property
    def scheduled_response_s(self) -> FloatArray:
        """From the scheduled time to the end: what the user who came then would have felt."""
        return self.end_s - self.scheduled_s


def simulate_queue(
    interarrival_s: npt.ArrayLike, service_s: npt.ArrayLike, servers: int = 1
) -> FloatArray:
    """Return each customer's wait (s), first come, first served, before `servers` servers.

    `interarrival_s[i]` is the gap before customer i (the first counts from an empty system at 0),
    `service_s[i]` the time that customer needs; both of shape (customers,). Exact and
    deterministic: Lindley's recursion (1952), and Kiefer and Wolfowitz's (1955) for several
    servers. Raises ValueError with the index of a time that is negative, infinite or NaN.

    >>> simulate_queue([1.0, 1.0, 1.0], [3.0, 1.0, 1.0])
    array([0., 2., 2.])
    >>> simulate_queue([1.0, 1.0, 1.0], [3.0, 1.0, 1.0], servers=2)
    array([0., 0., 0.])
    """
    gaps, services = _pair(("interarrival_s", interarrival_s), ("service_s", service_s))
    servers = _at_most(whole("servers", servers), gaps.size)
    from course.serving.queueing import kernels as kernels

    waits = np.empty(gaps.size)
    if servers == 1:
        code = kernels.ready(kernels.one_server)(gaps, services, waits)
    else:
        as_heap = servers > kernels.SORTED_UP_TO
        run = kernels.ready(kernels.several_servers)
        code = run(gaps, services, servers, as_heap, waits)
    _raise_for(code, ("interarrival_s", gaps), ("service_s", services))
    return waits


def simulate_bounded_queue(
    interarrival_s: npt.ArrayLike, service_s: npt.ArrayLike, capacity: int, servers: int = 1
) -> BoundedRun:
    """Return who gets in and how long each waits, where at most `capacity` may be in the system.

    As `simulate_queue`, but who finds `capacity` customers (those in service included) is turned
    away and brings no work. A place freed at the very moment of an arrival is free to it. Raises
    ValueError as `simulate_queue`, and where `capacity` is below `servers`.

    >>> simulate_bounded_queue([1.0, 1.0, 1.0], [5.0, 1.0, 1.0], capacity=2).waits_s
    array([ 0.,  4., nan])
    """
    gaps, services = _pair(("interarrival_s", interarrival_s), ("service_s", service_s))
    servers = whole("servers", servers)
    capacity = whole("capacity", capacity)
    if capacity < servers:
        raise ValueError(
            f"capacity={capacity} is below servers={servers}, but a customer in service takes a "
            f"place too; give a capacity of at least {servers}"
        )
    from course.serving.queueing import kernels as kernels

    waits, accepted = np.empty(gaps.size), np.empty(gaps.size, dtype=np.bool_)
    places = min(capacity - servers, gaps.size)  # more could never be taken
    servers = _at_most(servers, gaps.size)
    code = kernels.ready(kernels.bounded_queue)(gaps, services, servers, places, waits, accepted)
    _raise_for(code, ("interarrival_s", gaps), ("service_s", services))
    return BoundedRun(waits_s=waits, accepted=accepted)


def simulate_closed_loop(
    users: int, think_s: npt.ArrayLike, service_s: npt.ArrayLike, servers: int = 1
) -> RequestTimes:
    """Return the times of the requests of `users` users who think, send and wait for the answer.

    The k-th request sent takes `service_s[k]`, shape (requests,). `think_s` has shape
    (users + requests,): first each user's think before the first request, all from time 0; then
    `think_s[users + k]` follows request k. Equal times are ordered by user. Raises ValueError for
    other lengths, and with the index of a time that is negative, infinite or NaN.

    >>> run = simulate_closed_loop(2, think_s=[0.0, 1.0, 1.0, 1.0, 1.0], service_s=[4.0, 4.0, 4.0])
    >>> run.user, run.sent_s, run.response_s
    (array([0, 1, 0]), array([0., 1., 5.]), array([4., 7., 7.]))
    """
    users = whole("users", users)
    thinks, services = flat_times("think_s", think_s), flat_times("service_s", service_s)
    if thinks.size != users + services.size:
        raise ValueError(
            f"think_s has {thinks.size} entries where users={users} and {services.size} requests "
            f"need {users + services.size}: one for each user to begin with, then one after each "
            "request"
        )
    servers = _at_most(whole("servers", servers), services.size)
    from course.serving.queueing import kernels as kernels

    times = _request_times(services.size)
    kernel = kernels.ready(kernels.closed_loop)
    code = kernel(thinks, services, users, servers, *times)
    _raise_for(code, ("think_s", thinks), ("service_s", services))
    user, sent, start, end = times
    return RequestTimes(user=user, scheduled_s=sent, sent_s=sent, start_s=start, end_s=end)


def simulate_load_generator(
    scheduled_s: npt.ArrayLike, service_s: npt.ArrayLike, workers: int, servers: int = 1
) -> RequestTimes:
    """Return the times of requests that `workers` blocking workers send on a schedule.

    Request k is due at `scheduled_s[k]` (s, ascending) and takes `service_s[k]`, both of shape
    (requests,). A worker waits for its answer before it sends again, so with all of them waiting
    the next request goes out late, and a tool that counts from sending hides that delay:
    coordinated omission (Tene, 2015). With as many workers as requests none is ever late. Raises
    ValueError with the index of a time that is unusable or out of order.

    >>> run = simulate_load_generator([0.0, 1.0, 2.0], [5.0, 1.0, 1.0], workers=1)
    >>> run.response_s, run.scheduled_response_s
    (array([5., 1., 1.]), array([5., 5., 5.]))
    """
    scheduled, services = _pair(("scheduled_s", scheduled_s), ("service_s", service_s))
    workers = _at_most(whole("workers", workers), scheduled.size)
    servers = _at_most(whole("servers", servers), scheduled.size)
    from course.serving.queueing import kernels as kernels

    times = _request_times(scheduled.size)
    kernel = kernels.ready(kernels.load_generator)
    code = kernel(scheduled, services, workers, servers, *times)
    _raise_for(code, ("scheduled_s", scheduled), ("service_s", services))
    user, sent, start, end = times
    return RequestTimes(user=user, scheduled_s=scheduled, sent_s=sent, start_s=start, end_s=end)


def _pair(
    first: tuple[str, npt.ArrayLike], second: tuple[str, npt.ArrayLike]
) -> tuple[FloatArray, FloatArray]:
    one, two = flat_times(*first), flat_times(*second)
    if one.size != two.size:
        raise ValueError(
            f"{first[0]} has {one.size} entries but {second[0]} has {two.size}; give one of each "
            "a customer"
        )
    return one, two


def _at_most(servers: int, customers: int) -> int:
    return max(min(servers, customers), 1)  # servers who never see a customer need no memory


def _request_times(requests: int) -> tuple[IntArray, FloatArray, FloatArray, FloatArray]:
    user = np.empty(requests, dtype=np.int64)
    return user, np.empty(requests), np.empty(requests), np.empty(requests)


def _raise_for(code: int, *inputs: tuple[str, FloatArray]) -> None:
    """Turn a kernel's code (2 × index + which input) into a sentence; checks cost no extra pass."""
    if code < 0:
        return
    index, which = divmod(code, len(inputs))
    name, values = inputs[which]
    value = float(values[index])
    if 0 <= value < math.inf:
        raise ValueError(
            f"{name}[{index}]={value} comes before {name}[{index - 1}]={float(values[index - 1])}; "
            "sort the schedule"
        )
    raise ValueError(
        f"{name}[{index}]={value} is not a time; give a finite number of seconds, zero or more"
    )


# -------------------- set-up


def warm_steps() -> list[tuple[str, Callable[[], None]]]:
    """Return (label, step) pairs that compile every kernel used here, or load it from the cache.

    >>> [label for label, step in warm_steps()][0]
    'queue with one server'
    """
    one, three = [1.0], [1.0, 1.0, 1.0]

    def step(call: Callable[[], Any]) -> Callable[[], None]:
        return lambda: (call(), None)[1]

    return [
        ("queue with one server", step(lambda: simulate_queue(one, one))),
        ("queue with several servers", step(lambda: simulate_queue(three, three, servers=2))),
        ("queue with a bounded room", step(lambda: simulate_bounded_queue(one, one, capacity=1))),
        ("closed loop of users", step(lambda: simulate_closed_loop(1, [1.0, 1.0], one))),
        ("load generator", step(lambda: simulate_load_generator(one, one, workers=1))),
    ]


def warm() -> None:
    """Compile every kernel used here, or load it from numba's cache: seconds once, then none."""
    for _, run in warm_steps():
        run()
