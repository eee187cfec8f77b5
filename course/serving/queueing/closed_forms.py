"""Closed forms of one queue: `mm1` … `gg1_kingman`, `mm1_closed`, headroom; nothing is simulated.

All rates are per second, all times are
in seconds.

Sources: Kleinrock, *Queueing Systems* I (1975), for M/M/1, M/M/c, M/M/1/K and
Pollaczek–Khinchine; Kingman (1961) for G/G/1; the others are named where they are used.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from course.serving._arguments import FloatArray, at_least, whole
from course.serving.queueing.arguments import share

LARGEST_CAPACITY = 1_000_000  # one probability a place is kept; beyond this, mm1 is the same queue
LARGEST_USERS = 1_000_000


class UnstableQueueError(ValueError):
    """More work arrives than can be done, so no long-run figure exists; says by how much.

    `utilization` (ρ ≥ 1), `excess_per_s` (arrivals beyond capacity), `needed_rate_per_s` (each
    server must beat it) and `needed_servers` say the same in numbers.
    """

    def __init__(self, arrival_rate_per_s: float, service_rate_per_s: float, servers: int = 1):
        super().__init__(arrival_rate_per_s, service_rate_per_s, servers)
        self.utilization = arrival_rate_per_s / (servers * service_rate_per_s)
        self.excess_per_s = 0.0 - _spare_rate(arrival_rate_per_s, service_rate_per_s, servers)
        self.needed_rate_per_s = arrival_rate_per_s / servers
        self.needed_servers = math.floor(arrival_rate_per_s / service_rate_per_s) + 1
        self.capacity_per_s = servers * service_rate_per_s

    def __str__(self) -> str:
        return (
            f"the queue is unstable: a utilization of {self.utilization:.6g} where it must stay "
            f"below 1; {self.excess_per_s:.6g} customers/s more arrive than the "
            f"{self.capacity_per_s:.6g}/s that can be served. Lower the arrival rate below "
            f"{self.capacity_per_s:.6g}/s, raise each server above {self.needed_rate_per_s:.6g}/s "
            f"(a mean service time below {1 / self.needed_rate_per_s:.6g} s), or use at least "
            f"{self.needed_servers} such servers"
        )


class NoClosedFormError(ValueError):
    """The model's parameters do not fix the distribution that was asked for."""


@dataclass(frozen=True)
class QueueFigures:
    """Long-run figures of one queue; waits are of customers who are served.

    `utilization` is the share of time a server is busy (of all servers, on average).
    `wait_probability` is the share of served customers who wait at all, None where the model does
    not fix it. `exact` is False for an approximation. `capacity` is None where unbounded.
    """

    model: str
    exact: bool
    arrival_rate_per_s: float
    service_rate_per_s: float
    servers: int
    capacity: int | None
    utilization: float
    mean_in_system: float
    mean_in_queue: float
    mean_wait_s: float
    mean_sojourn_s: float
    wait_probability: float | None
    reject_probability: float

    @property
    def offered_load(self) -> float:
        """Arriving work over capacity, λ/(c·μ): above `utilization` where some are rejected."""
        return self.arrival_rate_per_s / (self.servers * self.service_rate_per_s)

    @property
    def throughput_per_s(self) -> float:
        """Customers served per second: c·μ times the utilization."""
        return self.servers * self.service_rate_per_s * self.utilization

    def wait_quantile_s(self, p: float) -> float:
        """Return the wait that a share `p` (0 ≤ p < 1) of served customers does not exceed.

        Raises NoClosedFormError for models given by their variability alone.

        >>> round(mm1(8, 10).wait_quantile_s(0.99), 12)  # ln(0.8/0.01)/(10 - 8)
        2.191013317337
        """
        return self._quantile(p, _WAIT_QUANTILES)

    def sojourn_quantile_s(self, p: float) -> float:
        """Return the time in the system (wait + service) that a share `p` does not exceed.

        Raises NoClosedFormError for models given by their variability alone.

        >>> round(mm1(8, 10).sojourn_quantile_s(0.99), 12)  # ln(100)/(10 - 8)
        2.302585092994
        """
        return self._quantile(p, _SOJOURN_QUANTILES)

    def _quantile(
        self, p: float, known: dict[str, Callable[[QueueFigures, float], float]]
    ) -> float:
        tail = 1 - share("p", p, zero=True)
        if self.model not in known:
            raise NoClosedFormError(
                f"{self.model} has no closed form for a quantile: a mean and a variability do not "
                "fix the distribution. Draw times with sample_times, run simulate_queue, and take "
                "np.quantile or batch_quantile of the waits"
            )
        return known[self.model](self, tail)


@dataclass(frozen=True)
class ClosedLoopFigures:
    """Long-run figures of N users before one server, each thinking between two requests."""

    users: int
    think_s: float
    service_rate_per_s: float
    utilization: float
    throughput_per_s: float
    mean_in_system: float
    mean_response_s: float

    @property
    def mean_wait_s(self) -> float:
        """Mean response time less the mean service time."""
        return max(self.mean_response_s - 1 / self.service_rate_per_s, 0.0)

    def response_quantile_s(self, p: float) -> float:
        """Return the response time (wait + service) that a share `p` (0 ≤ p < 1) does not exceed.

        By the arrival theorem (Lavenberg and Reiser, 1980) a request finds what a loop with one
        user fewer holds on average, so its response is a mixture of Erlang times.

        >>> round(mm1_closed(1, think_s=5.0, service_rate_per_s=10).response_quantile_s(0.99), 6)
        0.460517
        """
        tail = 1 - share("p", p, zero=True)
        found = _found_by_request(self.users, self.think_s * self.service_rate_per_s)
        return _erlang_mixture_quantile_s(found, 1, self.service_rate_per_s, tail)


# -------------------- open queues


def mm1(arrival_rate_per_s: float, service_rate_per_s: float) -> QueueFigures:
    """Return the figures of M/M/1: random arrivals, exponential service, one server.

    Mean time in system 1/(μ − λ); sojourn times are exponential with that mean. Raises
    UnstableQueueError where λ ≥ μ, ValueError for a rate that is not finite and above zero.

    >>> q = mm1(arrival_rate_per_s=8, service_rate_per_s=10)
    >>> q.utilization, q.mean_sojourn_s, q.mean_in_system
    (0.8, 0.5, 4.0)
    """
    arrival, service = _rates(arrival_rate_per_s, service_rate_per_s)
    wait_s = arrival / service / _stable(arrival, service)
    return _by_little("M/M/1", arrival, service, wait_s, arrival / service)


def mmc(arrival_rate_per_s: float, service_rate_per_s: float, servers: int) -> QueueFigures:
    """Return the figures of M/M/c: one line before `servers` servers of `service_rate_per_s` each.

    `wait_probability` is Erlang's C formula, from a sum of positive terms that neither overflows
    nor cancels, for ten thousand servers too. Raises UnstableQueueError where λ ≥ c·μ, ValueError
    for unusable rates or a number of servers that is not whole.

    >>> mmc(arrival_rate_per_s=1.0, service_rate_per_s=1.0, servers=2).wait_probability
    0.3333333333333333
    """
    arrival, service = _rates(arrival_rate_per_s, service_rate_per_s)
    servers = whole("servers", servers)
    spare = _stable(arrival, service, servers)
    idle = spare / (servers * service)
    waits = 1 / (_inverse_erlang_b(servers, arrival / service) * idle + (1 - idle))
    return _by_little("M/M/c", arrival, service, waits / spare, waits, servers=servers)


def mm1k(arrival_rate_per_s: float, service_rate_per_s: float, capacity: int) -> QueueFigures:
    """Return the figures of M/M/1/K: M/M/1 with `capacity` places, the one in service included.

    Who finds all places taken is rejected; waits are of the others. Never unstable: λ = μ and
    λ > μ have figures too. Raises ValueError for unusable rates or capacity (1 to 1,000,000).

    >>> q = mm1k(arrival_rate_per_s=10, service_rate_per_s=10, capacity=4)
    >>> q.reject_probability, q.utilization, q.mean_in_system
    (0.2, 0.8, 2.0)
    """
    arrival, service = _rates(arrival_rate_per_s, service_rate_per_s)
    capacity = whole("capacity", capacity, high=LARGEST_CAPACITY)
    found = _state_probabilities(arrival, service, capacity)
    busy = float(found[1:].sum())
    # positive sums throughout: 1 - found[0] and "in system - busy" would cancel at low load
    in_queue = float(found[2:] @ np.arange(1, capacity))
    served_per_s = service * busy
    return QueueFigures(
        model="M/M/1/K",
        exact=True,
        arrival_rate_per_s=arrival,
        service_rate_per_s=service,
        servers=1,
        capacity=capacity,
        utilization=busy,
        mean_in_system=in_queue + busy,
        mean_in_queue=in_queue,
        mean_wait_s=in_queue / served_per_s,
        mean_sojourn_s=(in_queue + busy) / served_per_s,
        wait_probability=float(found[1:-1].sum() / found[:-1].sum()),
        reject_probability=float(found[-1]),
    )


def md1(arrival_rate_per_s: float, service_rate_per_s: float) -> QueueFigures:
    """Return the figures of M/D/1: random arrivals, every service exactly 1/μ long.

    The mean wait is half of M/M/1's. Wait quantiles come from Franx's (2001) sum of positive
    terms; the classic alternating sum loses all digits near saturation. Raises UnstableQueueError
    where λ ≥ μ, ValueError for unusable rates.

    >>> md1(8, 10).mean_wait_s, mm1(8, 10).mean_wait_s
    (0.2, 0.4)
    """
    arrival, service = _rates(arrival_rate_per_s, service_rate_per_s)
    wait_s = arrival / service / _stable(arrival, service) / 2
    return _by_little("M/D/1", arrival, service, wait_s, arrival / service)


def mg1(arrival_rate_per_s: float, mean_service_s: float, scv_service: float) -> QueueFigures:
    """Return the figures of M/G/1 by Pollaczek–Khinchine: any service times, given by two numbers.

    `scv_service` is the squared coefficient of variation of the service time, variance/mean²: 0
    for constant, 1 for exponential. Means are exact; quantiles are not fixed by these two numbers.
    Raises UnstableQueueError where λ·E[S] ≥ 1, ValueError for unusable numbers.

    >>> round(mg1(8, mean_service_s=0.1, scv_service=4).mean_wait_s, 12), mm1(8, 10).mean_wait_s
    (1.0, 0.4)
    """
    arrival, mean_s = _arrival_and_mean(arrival_rate_per_s, mean_service_s)
    wait_s = _variable_wait_s(arrival, mean_s, 1 + at_least("scv_service", scv_service))
    return _by_little("M/G/1", arrival, 1 / mean_s, wait_s, arrival * mean_s)


def gg1_kingman(
    arrival_rate_per_s: float, mean_service_s: float, scv_arrival: float, scv_service: float
) -> QueueFigures:
    """Return Kingman's approximation for G/G/1: ρ/(1−ρ) · (c_a² + c_s²)/2 · E[S] of mean wait.

    `scv_arrival`, `scv_service`: variance/mean² of the gaps between arrivals and of the services.
    Good at high load, exact for Poisson arrivals; `exact` is False and `wait_probability` is None.
    Raises UnstableQueueError where λ·E[S] ≥ 1, ValueError for unusable numbers.

    >>> bursty = gg1_kingman(8, mean_service_s=0.1, scv_arrival=9, scv_service=1)
    >>> round(bursty.mean_wait_s, 12), bursty.exact
    (2.0, False)
    """
    arrival, mean_s = _arrival_and_mean(arrival_rate_per_s, mean_service_s)
    scvs = at_least("scv_arrival", scv_arrival) + at_least("scv_service", scv_service)
    wait_s = _variable_wait_s(arrival, mean_s, scvs)
    return _by_little("G/G/1", arrival, 1 / mean_s, wait_s, None, exact=False)


# -------------------- closed loop, headroom


def mm1_closed(users: int, think_s: float, service_rate_per_s: float) -> ClosedLoopFigures:
    """Return the figures of `users` users who think, send to one server, and wait for the answer.

    Exponential services; `think_s` is the mean think time, of any distribution, and may be zero.
    Exact mean-value analysis (Reiser and Lavenberg, 1980), adding one user at a time. Raises
    ValueError for unusable numbers.

    >>> q = mm1_closed(users=50, think_s=4.0, service_rate_per_s=10)
    >>> round(q.throughput_per_s, 3), round(q.mean_response_s, 3)
    (9.813, 1.095)
    """
    users = whole("users", users, high=LARGEST_USERS)
    think_s = at_least("think_s", think_s)
    service = at_least("service_rate_per_s", service_rate_per_s, above=True)
    ((throughput, response_s),) = deque(_mean_values(users, think_s, service), maxlen=1)
    return ClosedLoopFigures(
        users=users,
        think_s=think_s,
        service_rate_per_s=service,
        utilization=throughput / service,
        throughput_per_s=throughput,
        mean_in_system=throughput * response_s,
        mean_response_s=response_s,
    )


def mm1_closed_curve(
    users: int, think_s: float, service_rate_per_s: float
) -> tuple[FloatArray, FloatArray]:
    """Return (throughput per s, mean response in s) of 1, 2, … `users` users; shapes (users,).

    The same figures as `mm1_closed` for each number of users, in one pass. Raises ValueError as
    that does.

    >>> throughput, response_s = mm1_closed_curve(50, think_s=4.0, service_rate_per_s=10)
    >>> round(float(throughput[-1]), 3), round(float(response_s[-1]), 3)
    (9.813, 1.095)
    """
    users = whole("users", users, high=LARGEST_USERS)
    think_s = at_least("think_s", think_s)
    service = at_least("service_rate_per_s", service_rate_per_s, above=True)
    throughput, response_s = np.array(list(_mean_values(users, think_s, service))).T
    return throughput, response_s


def _mean_values(users: int, think_s: float, service: float) -> Iterator[tuple[float, float]]:
    """The throughput and the mean response of 1, 2, … users: mean-value analysis, one at a time."""
    in_system = 0.0
    for present in range(1, users + 1):
        response_s = (1 + in_system) / service  # it finds what one user fewer leaves on average
        throughput = present / (think_s + response_s)
        in_system = throughput * response_s
        yield throughput, response_s


def max_arrival_rate_for(p: float, target_s: float, service_rate_per_s: float) -> float:
    """Return the highest arrival rate at which M/M/1's `p`-quantile of sojourn meets `target_s`.

    μ − ln(1/(1−p))/target, 0 < p < 1. Raises ValueError where an idle server already misses it.

    >>> round(max_arrival_rate_for(0.99, target_s=2.0, service_rate_per_s=10), 3)
    7.697
    """
    tail_logs = -math.log1p(-share("p", p))
    target_s = at_least("target_s", target_s, above=True)
    service = at_least("service_rate_per_s", service_rate_per_s, above=True)
    needed = tail_logs / target_s
    if needed > service:
        raise ValueError(
            f"target_s={target_s:.6g} cannot be met: an idle server's {100 * p:.6g}th percentile "
            f"is {tail_logs / service:.6g} s at service_rate_per_s={service:.6g}; raise the target "
            f"above that, or service_rate_per_s above {needed:.6g}"
        )
    return service - needed


def max_utilization_for(p: float, target_s: float, service_rate_per_s: float) -> float:
    """Return the highest utilization at which M/M/1's `p`-quantile of sojourn meets `target_s`.

    What is left to one is the headroom that the target costs. Raises as `max_arrival_rate_for`.

    >>> round(max_utilization_for(0.99, target_s=2.0, service_rate_per_s=10), 3)
    0.77
    """
    return max_arrival_rate_for(p, target_s, service_rate_per_s) / service_rate_per_s


# -------------------- pieces of the formulas


def _rates(arrival_rate_per_s: float, service_rate_per_s: float) -> tuple[float, float]:
    return (
        at_least("arrival_rate_per_s", arrival_rate_per_s, above=True),
        at_least("service_rate_per_s", service_rate_per_s, above=True),
    )


def _arrival_and_mean(arrival_rate_per_s: float, mean_service_s: float) -> tuple[float, float]:
    return (
        at_least("arrival_rate_per_s", arrival_rate_per_s, above=True),
        at_least("mean_service_s", mean_service_s, above=True),
    )


def _spare_rate(arrival: float, service: float, servers: int) -> float:
    # near saturation this difference decides every digit, so it is taken exactly, then rounded;
    # a plain subtraction does just that, a product before it does not
    if servers == 1:
        return service - arrival
    return float(servers * Fraction(service) - Fraction(arrival))


def _stable(arrival: float, service: float, servers: int = 1) -> float:
    """Return the spare rate c·μ − λ, above zero; raise UnstableQueueError otherwise."""
    spare = _spare_rate(arrival, service, servers)
    if spare <= 0:
        raise UnstableQueueError(arrival, service, servers)
    return spare


def _variable_wait_s(arrival: float, mean_s: float, scvs: float) -> float:
    """ρ/(1−ρ) · E[S] · (sum of the two variabilities)/2."""
    idle = float(1 - Fraction(arrival) * Fraction(mean_s))
    if idle <= 0:
        raise UnstableQueueError(arrival, 1 / mean_s)
    return arrival * mean_s * mean_s / idle * scvs / 2


def _by_little(
    model: str,
    arrival: float,
    service: float,
    wait_s: float,
    wait_probability: float | None,
    *,
    servers: int = 1,
    exact: bool = True,
) -> QueueFigures:
    """Fill in everything that follows from the mean wait by Little's law, L = λ·W."""
    sojourn_s = wait_s + 1 / service
    return QueueFigures(
        model=model,
        exact=exact,
        arrival_rate_per_s=arrival,
        service_rate_per_s=service,
        servers=servers,
        capacity=None,
        utilization=arrival / (servers * service),
        mean_in_system=arrival * sojourn_s,
        mean_in_queue=arrival * wait_s,
        mean_wait_s=wait_s,
        mean_sojourn_s=sojourn_s,
        wait_probability=wait_probability,
        reject_probability=0.0,
    )


def _inverse_erlang_b(servers: int, offered: float) -> float:
    """1/B = Σ_j c!/(c−j)!/aʲ: positive terms; may be inf, where B is zero to all digits."""
    total = term = 1.0
    for j in range(servers):
        term *= (servers - j) / offered
        total += term
        # the factors only shrink: once a term is lost in the sum, so are all that follow
        if term < 1e-17 * total or math.isinf(total):
            break
    return total


def _state_probabilities(arrival: float, service: float, capacity: int) -> FloatArray:
    """Probability of 0 … K customers in M/M/1/K: ρⁿ, scaled so that the largest is one first."""
    # log1p of the exact difference: near ρ = 1 the rounding of ρ itself would grow with n
    surplus = (arrival - service) / service
    log_ratio = math.log1p(surplus) if abs(surplus) < 0.5 else math.log(arrival / service)
    n = np.arange(capacity + 1)
    weights = np.exp((n - capacity if log_ratio > 0 else n) * log_ratio)
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _found_by_request(users: int, think_services: float) -> FloatArray:
    """Probability that a request of the closed loop finds 0 … N−1 others at the server."""
    others = users - 1
    if think_services == 0:
        return np.eye(1, users, others).ravel()
    up = (others - np.arange(others)) / think_services  # p(n+1)/p(n)
    peak = int(np.count_nonzero(up > 1))  # products away from the peak only shrink: no overflow
    below = np.cumprod(1 / up[:peak][::-1])[::-1]
    weights = np.concatenate([below, [1.0], np.cumprod(up[peak:])])
    return np.asarray(weights / weights.sum(), dtype=np.float64)


def _solve_tail(tail_at: Callable[[float], float], tail: float, low: float, high: float) -> float:
    """Return t in low … high with tail_at(t) = tail, for a falling tail, to the last digits."""
    from scipy.optimize import brentq

    def excess(t: float) -> float:
        return math.log(max(tail_at(t), 5e-324)) - math.log(tail)

    # the bounds may be the solution itself: leave room for their rounding
    low, high = low * (1 - 1e-9), high * (1 + 1e-9)
    return float(brentq(excess, low, high, xtol=1e-300, rtol=4 * np.finfo(float).eps))


def _erlang_mixture_quantile_s(
    weights: FloatArray, first_shape: int, rate_per_s: float, tail: float
) -> float:
    """Time that Σ weights[i]·Erlang(first_shape + i, rate) exceeds with probability `tail`."""
    from scipy.special import gammaincc, gammainccinv

    total = float(weights.sum())
    if tail >= total:
        return 0.0
    shapes = first_shape + np.arange(weights.size)
    high = float(gammainccinv(shapes[-1], tail / total))
    return _solve_tail(lambda x: float(weights @ gammaincc(shapes, x)), tail, 0, high) / rate_per_s


def _mm1_sojourn_s(q: QueueFigures, tail: float) -> float:
    return -math.log(tail) / _stable(q.arrival_rate_per_s, q.service_rate_per_s)


def _mmc_wait_s(q: QueueFigures, tail: float) -> float:
    waits = q.wait_probability or 0.0
    if tail >= waits:
        return 0.0
    return math.log(waits / tail) / _stable(q.arrival_rate_per_s, q.service_rate_per_s, q.servers)


def _mmc_sojourn_s(q: QueueFigures, tail: float) -> float:
    """Service plus, for those who wait, an exponential time of rate c·μ − λ."""
    waits, mu = q.wait_probability or 0.0, q.service_rate_per_s
    spare = _stable(q.arrival_rate_per_s, mu, q.servers)
    gap, slower = abs(spare - mu), min(spare, mu)

    def tail_at(t: float) -> float:
        # (1 − e^{−gap·t})/(gap·t) tends to 1 as the rates meet: no branch, no cancellation
        blend = -math.expm1(-gap * t) / (gap * t) if gap * t > 0 else 1.0
        return math.exp(-mu * t) + waits * mu * t * math.exp(-slower * t) * blend

    low = max(-math.log(tail) / mu, _mmc_wait_s(q, tail))
    high = -math.log(tail / 2) / mu + _mmc_wait_s(q, tail / 2)  # one of the two exceeds its share
    return _solve_tail(tail_at, tail, low, high)


def _mm1k_wait_s(q: QueueFigures, tail: float) -> float:
    found = _found_if_accepted(q)
    return _erlang_mixture_quantile_s(found[1:], 1, q.service_rate_per_s, tail)


def _mm1k_sojourn_s(q: QueueFigures, tail: float) -> float:
    return _erlang_mixture_quantile_s(_found_if_accepted(q), 1, q.service_rate_per_s, tail)


def _found_if_accepted(q: QueueFigures) -> FloatArray:
    found = _state_probabilities(q.arrival_rate_per_s, q.service_rate_per_s, q.capacity or 1)[:-1]
    return np.asarray(found / found.sum(), dtype=np.float64)


# Beyond this many service times M/D/1's wait is exponential to all digits of a float: the next
# pole of its transform adds a part that shrinks at least eightfold with each service time.
_MD1_EXACT_SERVICES = 40


def _md1_wait_s(q: QueueFigures, tail: float) -> float:
    load = q.arrival_rate_per_s / q.service_rate_per_s
    if tail >= load:
        return 0.0
    beyond = _md1_more_than(load)
    last = float(_MD1_EXACT_SERVICES)
    at_last = _md1_wait_tail(last, load, beyond)
    if tail >= at_last:
        services = _solve_tail(lambda y: _md1_wait_tail(y, load, beyond), tail, 0, last)
    else:
        services = last + math.log(at_last / tail) / _md1_decay(
            q.arrival_rate_per_s, q.service_rate_per_s
        )
    return services / q.service_rate_per_s


def _md1_sojourn_s(q: QueueFigures, tail: float) -> float:
    return _md1_wait_s(q, tail) + 1 / q.service_rate_per_s


def _md1_more_than(load: float) -> FloatArray:
    """Probability of more than 0 … 41 customers in M/D/1, from sums of positive terms.

    Level crossings (Tijms, 2003) give p(j)·e^−ρ = p(0)·g(j−1) + Σ_{0<k<j} g(j−k)·p(k), where g(n)
    is the chance of more than n arrivals in one service; summed over j it gives the tails. All
    p are kept relative to p(0) = 1 − ρ, so that nothing is lost as ρ nears one.
    """
    from scipy.special import gammainc

    top = _MD1_EXACT_SERVICES + 2
    g = gammainc(np.arange(1, top + 40), load)
    g_beyond = np.append(np.cumsum(g[::-1])[::-1], 0.0)  # Σ_{i≥n} g(i)
    p = np.zeros(top)
    more = np.zeros(top)
    more[0] = load
    for j in range(1, top):
        p[j] = math.exp(load) * (g[j - 1] + p[1:j] @ g[j - 1 : 0 : -1])
        more[j] = g_beyond[j] + p[1 : j + 1] @ g_beyond[j:0:-1]
    return more


def _md1_wait_tail(services: float, load: float, more: FloatArray) -> float:
    """P(wait > `services` service times): Franx (2001), written for the tail."""
    k = int(services) + 1
    u = load * (k - services)
    chance = math.exp(-u)  # of j Poisson(u) arrivals, from j = 0
    total = 0.0
    for j in range(k):
        total += chance * float(more[k - j])
        chance *= u / (j + 1)
    while chance > 1e-18 * total:  # k arrivals or more: all have waited longer
        total += chance
        k += 1
        chance *= u / k
    return total


def _md1_decay(arrival: float, service: float) -> float:
    """The y > 0 with e^y = 1 + y/ρ: how fast M/D/1's tail falls, per service time.

    Solved as (e^y − 1 − y)/y = 1/ρ − 1, both sides free of cancellation. It is asked for only
    where forty service times leave a tail above 1e-16, so y < 1 and the series is short.
    """
    from scipy.optimize import brentq

    spare = _stable(arrival, service) / arrival

    def excess(y: float) -> float:
        return sum(y**n / math.factorial(n + 1) for n in range(1, 22)) - spare

    return float(brentq(excess, spare / (1 + spare), 2 * spare, xtol=1e-300, rtol=1e-15))


_WAIT_QUANTILES: dict[str, Callable[[QueueFigures, float], float]] = {
    "M/M/1": _mmc_wait_s,
    "M/M/c": _mmc_wait_s,
    "M/M/1/K": _mm1k_wait_s,
    "M/D/1": _md1_wait_s,
}
_SOJOURN_QUANTILES: dict[str, Callable[[QueueFigures, float], float]] = {
    "M/M/1": _mm1_sojourn_s,
    "M/M/c": _mmc_sojourn_s,
    "M/M/1/K": _mm1k_sojourn_s,
    "M/D/1": _md1_sojourn_s,
}
