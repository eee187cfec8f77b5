"""One queue: closed forms, simulation and error bars; engines, batches and tokens live elsewhere.

Four parts, in this order: formulas (`mm1` … `gg1_kingman`, `mm1_closed`, headroom), simulation of
given times (`simulate_…`), intervals that refuse a run too short (`batch_means`), and seeded times
to feed it (`sample_times`). All rates are per second, all times are in seconds.

Sources: Kleinrock, *Queueing Systems* I (1975), for M/M/1, M/M/c, M/M/1/K and
Pollaczek–Khinchine; Kingman (1961) for G/G/1; the others are named where they are used.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from course.serving._arguments import at_least, whole

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

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
        tail = 1 - _share("p", p, zero=True)
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
        tail = 1 - _share("p", p, zero=True)
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
    in_system = response_s = throughput = 0.0
    for present in range(1, users + 1):
        response_s = (1 + in_system) / service  # it finds what one user fewer leaves on average
        throughput = present / (think_s + response_s)
        in_system = throughput * response_s
    return ClosedLoopFigures(
        users=users,
        think_s=think_s,
        service_rate_per_s=service,
        utilization=throughput / service,
        throughput_per_s=throughput,
        mean_in_system=in_system,
        mean_response_s=response_s,
    )


def max_arrival_rate_for(p: float, target_s: float, service_rate_per_s: float) -> float:
    """Return the highest arrival rate at which M/M/1's `p`-quantile of sojourn meets `target_s`.

    μ − ln(1/(1−p))/target, 0 < p < 1. Raises ValueError where an idle server already misses it.

    >>> round(max_arrival_rate_for(0.99, target_s=2.0, service_rate_per_s=10), 3)
    7.697
    """
    tail_logs = -math.log1p(-_share("p", p))
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


def _share(name: str, value: float, *, zero: bool = False) -> float:
    share = at_least(name, value, above=not zero)
    if share >= 1:
        raise ValueError(
            f"{name}={value!r} is not a share below 1; write 0.99 for the 99th percentile"
        )
    return share


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


# -------------------- simulation


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
    from course.serving import _queue_kernels as kernels

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
    from course.serving import _queue_kernels as kernels

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
    thinks, services = _times("think_s", think_s), _times("service_s", service_s)
    if thinks.size != users + services.size:
        raise ValueError(
            f"think_s has {thinks.size} entries where users={users} and {services.size} requests "
            f"need {users + services.size}: one for each user to begin with, then one after each "
            "request"
        )
    servers = _at_most(whole("servers", servers), services.size)
    from course.serving import _queue_kernels as kernels

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
    from course.serving import _queue_kernels as kernels

    times = _request_times(scheduled.size)
    kernel = kernels.ready(kernels.load_generator)
    code = kernel(scheduled, services, workers, servers, *times)
    _raise_for(code, ("scheduled_s", scheduled), ("service_s", services))
    user, sent, start, end = times
    return RequestTimes(user=user, scheduled_s=scheduled, sent_s=sent, start_s=start, end_s=end)


def _times(name: str, values: npt.ArrayLike) -> FloatArray:
    """Return one flat float64 array, the caller's own where it is one already; values unchecked."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise ValueError(
            f"{name} has shape {array.shape} and type {array.dtype}; give one flat list of times, "
            "in seconds"
        )
    return np.require(array, dtype=np.float64, requirements=["C", "A"])


def _pair(
    first: tuple[str, npt.ArrayLike], second: tuple[str, npt.ArrayLike]
) -> tuple[FloatArray, FloatArray]:
    one, two = _times(*first), _times(*second)
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


# -------------------- error bars

_FEWEST_BATCHES = 10  # Schmeiser (1982): ten to thirty; more only shorten the batches
_MOST_BATCHES = 30
_MEAN_RUN = 1000  # autocorrelation times a run must last: a hundred a batch
_TAIL_RUN = 20  # … and each batch must spend two beyond the quantile
_FEWEST_WAITERS = 200  # a mean of zeros and a handful of waits has no normal error


@dataclass(frozen=True)
class Interval:
    """An estimate from one run with its error bar, or with the reason why there is none.

    `p` is None for a mean. `low` and `high` are None where the run is too short; then
    `needed_customers` is how long it should be (None where no length helps) and `reason` says so.
    `warmup` customers were left out at the start, the others cut into `batches` of `batch_size`.
    """

    estimate: float
    low: float | None
    high: float | None
    confidence: float
    p: float | None
    customers: int
    needed_customers: int | None
    warmup: int
    batches: int
    batch_size: int
    reason: str

    @property
    def mean(self) -> float:
        """The estimate, where it is one of a mean; raises ValueError for a quantile's interval."""
        if self.p is not None:
            raise ValueError(f"this interval is of the {self.p} quantile; read .estimate")
        return self.estimate


def autocorrelation_time_customers(utilization: float) -> float:
    """Return how many successive M/M/1 waits tell as much about the mean as one independent one.

    (2 + 5ρ − 4ρ² + ρ³)/((2 − ρ)(1 − ρ)²), Daley (1968); near ρ = 1 it is 4/(1 − ρ)². Raises
    ValueError outside 0 < ρ < 1.

    >>> [round(autocorrelation_time_customers(rho), 1) for rho in (0.5, 0.9, 0.99)]
    [9.7, 362.6, 39603.0]
    """
    rho = _share("utilization", utilization)
    return (2 + 5 * rho - 4 * rho**2 + rho**3) / ((2 - rho) * (1 - rho) ** 2)


def customers_needed(
    utilization: float, *, variability: float = 1.0, p: float | None = None
) -> int:
    """Return how long a run must be for an honest interval of its mean wait, or its `p`-quantile.

    Warm-up included. `variability` is (c_a² + c_s²)/2: 1 for M/M/1 and M/M/c, 0.5 for M/D/1. In
    heavy traffic waits remember in proportion to it (Whitt, 1989); its square is taken above one,
    as rare long services make waits skew as well. At just this length 95 % intervals covered 91 to
    96 % of 400 runs each of M/M/1, M/M/3, M/D/1 and M/G/1 (lognormal, scv 4) at ρ 0.5 and 0.8.
    Raises ValueError for unusable numbers.

    >>> customers_needed(0.8), customers_needed(0.8, p=0.999)
    (82699, 1647029)
    """
    batch_size = _batch_size(utilization, variability, p)  # checks them all
    return _warmup(utilization, variability) + _FEWEST_BATCHES * batch_size


def batch_means(
    waits_s: npt.ArrayLike,
    *,
    utilization: float,
    confidence: float = 0.95,
    variability: float = 1.0,
) -> Interval:
    """Return the mean of one run's waits, or sojourn times, with a confidence interval.

    `waits_s`: shape (customers,), from an empty start, of a queue with this `utilization` (ρ) and
    `variability` (see `customers_needed`). Successive waits are alike, so the run is cut into ten
    to thirty long batches (Schmeiser, 1982) whose means are nearly independent; their t-interval
    is adjusted for skewness (Willink, 2005). A run too short for its ρ gets no interval, but the
    number of customers it would take. Raises ValueError for waits that are not finite.

    >>> rng = np.random.default_rng(1)
    >>> gaps, services = exponential(1.25, 100_000, rng), exponential(1.0, 100_000, rng)
    >>> waits = simulate_queue(gaps, services)
    >>> interval = batch_means(waits, utilization=0.8)
    >>> interval.low < mm1(0.8, 1.0).mean_wait_s < interval.high
    True
    >>> batch_means(waits[:5000], utilization=0.8).reason
    '5000 customers are too few at a utilization of 0.8; an interval takes 82699'
    """
    values = _finite(waits_s)
    interval = _batched(values, None, utilization, confidence, variability)
    positive = int(np.count_nonzero(values))
    if interval.low is None or positive >= _FEWEST_WAITERS:
        return interval
    needed = math.ceil(values.size * _FEWEST_WAITERS / positive) if positive else None
    reason = f"only {positive} of {values.size} customers waited at all" + (
        f"; an interval takes about {needed} customers" if needed else ""
    )
    return replace(interval, low=None, high=None, needed_customers=needed, reason=reason)


def batch_quantile(
    waits_s: npt.ArrayLike,
    p: float,
    *,
    utilization: float,
    confidence: float = 0.95,
    variability: float = 1.0,
) -> Interval:
    """Return the `p`-quantile (0 < p < 1) of one run's waits with a confidence interval.

    As `batch_means`, by sectioning (Asmussen and Glynn, 2007): the whole run's quantile is the
    centre, the batches' quantiles give its error. Raises ValueError as `batch_means`.

    >>> batch_quantile(np.zeros(1000), 0.99, utilization=0.9).needed_customers
    726989
    """
    p = _share("p", p)
    return _batched(_finite(waits_s), p, utilization, confidence, variability)


def _finite(waits_s: npt.ArrayLike) -> FloatArray:
    values = _times("waits_s", waits_s)
    if not values.size:
        raise ValueError("waits_s is empty; give at least one customer's wait")
    usable = np.isfinite(values)
    if not usable.all():
        index = int(usable.argmin())
        raise ValueError(
            f"waits_s[{index}]={float(values[index])} is not finite; leave rejected customers out: "
            "waits_s[accepted]"
        )
    return values


def _warmup(utilization: float, variability: float) -> int:
    """Customers who still feel the empty start: five relaxation times of M/M/1 (Morse, 1955)."""
    return math.ceil(5 * variability * utilization / (1 - math.sqrt(utilization)) ** 2)


def _batch_size(utilization: float, variability: float, p: float | None) -> int:
    """Customers that each of the fewest batches must have."""
    spread = at_least("variability", variability, above=True)
    run = float(_MEAN_RUN)
    if p is not None:
        p = _share("p", p)
        run = max(run, _TAIL_RUN / min(p, 1 - p))
    times = run * max(spread, spread**2) / _FEWEST_BATCHES
    return math.ceil(times * autocorrelation_time_customers(utilization))


def _batched(
    values: FloatArray,
    p: float | None,
    utilization: float,
    confidence: float,
    variability: float,
) -> Interval:
    utilization = at_least("utilization", utilization, above=True)
    confidence = _share("confidence", confidence)
    if utilization >= 1:
        return _without_band(
            values, p, confidence, 0, None,
            f"at a utilization of {utilization:.6g} waits grow with the run: there is no long-run "
            "figure to estimate",
        )  # fmt: skip
    smallest = _batch_size(utilization, variability, p)
    warmup = _warmup(utilization, variability)
    needed = warmup + _FEWEST_BATCHES * smallest
    if values.size < needed:
        return _without_band(
            values, p, confidence, warmup, needed,
            f"{values.size} customers are too few at a utilization of {utilization:.6g}; "
            f"an interval takes {needed}",
        )  # fmt: skip
    batches = min((values.size - warmup) // smallest, _MOST_BATCHES)
    size = (values.size - warmup) // batches
    used = values[values.size - batches * size :]
    centre = float(_of_rows(used.reshape(1, -1), p)[0])
    low, high = _willink(centre, _of_rows(used.reshape(batches, size), p), confidence)
    return Interval(
        estimate=centre,
        low=low,
        high=high,
        confidence=confidence,
        p=p,
        customers=values.size,
        needed_customers=needed,
        warmup=values.size - used.size,
        batches=batches,
        batch_size=size,
        reason="",
    )


def _without_band(
    values: FloatArray,
    p: float | None,
    confidence: float,
    warmup: int,
    needed: int | None,
    reason: str,
) -> Interval:
    """The bare estimate of a run that is refused an interval."""
    warmup = warmup if warmup < values.size else 0
    return Interval(
        estimate=float(_of_rows(values[warmup:].reshape(1, -1), p)[0]),
        low=None,
        high=None,
        confidence=confidence,
        p=p,
        customers=values.size,
        needed_customers=needed,
        warmup=warmup,
        batches=0,
        batch_size=0,
        reason=reason,
    )


def _of_rows(rows: FloatArray, p: float | None) -> FloatArray:
    statistic = rows.mean(axis=1) if p is None else np.quantile(rows, p, axis=1)
    return np.asarray(statistic, dtype=np.float64)


def _willink(centre: float, rows: FloatArray, confidence: float) -> tuple[float, float]:
    """Student's interval of batch statistics, bent to the side of their skewness.

    Willink (2005), as used for batch means by Tafazzoli and Wilson (2011): waits have rare large
    batches, and a symmetric interval from a run without one lies too low too often.
    """
    from scipy.special import stdtrit

    k = rows.size
    error = math.sqrt(float(((rows - centre) ** 2).sum()) / (k - 1) / k)
    spread = float(rows.std(ddof=1))
    if spread == 0:
        return centre, centre
    third = float(((rows - rows.mean()) ** 3).mean()) * k * k / ((k - 1) * (k - 2))
    bend = third / spread**3 / (6 * math.sqrt(k))

    def adjusted(z: float) -> float:
        if abs(bend) < 1e-6:  # the limit as skewness vanishes
            return z
        return (math.cbrt(1 + 6 * bend * (z - bend)) - 1) / (2 * bend)

    z = float(stdtrit(k - 1, (1 + confidence) / 2))
    return centre - adjusted(z) * error, centre - adjusted(-z) * error


# -------------------- times to feed it


def exponential(mean_s: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Return `n` exponential times of mean `mean_s`: gaps of random (Poisson) arrivals.

    >>> exponential(2.0, 3, np.random.default_rng(1)).round(3)
    array([ 2.146,  0.617, 10.751])
    """
    return sample_times(mean_s, 1.0, n, rng, family="exponential")


def lognormal_with_scv(mean_s: float, scv: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Return `n` lognormal times of mean `mean_s` and variance `scv`·mean²: many short, few huge.

    >>> lognormal_with_scv(2.0, 4.0, 3, np.random.default_rng(1)).round(3)
    array([1.387, 2.536, 1.36 ])
    """
    return sample_times(mean_s, scv, n, rng, family="lognormal")


def gamma_with_scv(mean_s: float, scv: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Return `n` gamma times of mean `mean_s` and variance `scv`·mean²: 0 constant, 1 exponential.

    >>> gamma_with_scv(2.0, 0.0, 3, np.random.default_rng(1))
    array([2., 2., 2.])
    """
    return sample_times(mean_s, scv, n, rng, family="gamma")


def sample_times(
    mean_s: float, scv: float, n: int, rng: np.random.Generator, family: str = "gamma"
) -> FloatArray:
    """Return `n` independent times of mean `mean_s` and squared coefficient of variation `scv`.

    `family`: "gamma", "lognormal", "exponential" (scv 1) or "constant" (scv 0); any family with
    scv 0 is constant. The same generator state gives the same times. Raises ValueError for
    unusable numbers, a family that cannot have this scv, and a seed in place of a generator: one
    seed used twice would make gaps and services the same numbers.

    >>> rng = np.random.default_rng(7)
    >>> times = sample_times(0.1, 0.5, 100_000, rng, family="lognormal")
    >>> round(float(times.mean()), 2), round(float(times.var() / times.mean() ** 2), 1)
    (0.1, 0.5)
    """
    mean_s = at_least("mean_s", mean_s, above=True)
    scv, n = at_least("scv", scv), whole("n", n, low=0)
    if not isinstance(rng, np.random.Generator):
        raise ValueError(
            f"rng={rng!r} is not a generator; make one with rng = np.random.default_rng(seed) and "
            "use that same one for gaps and services"
        )
    if family not in _FAMILIES:
        raise ValueError(f"family={family!r} is unknown; give one of {', '.join(_FAMILIES)}")
    only = _FAMILIES[family]
    if only is not None and scv not in (only, 0.0):
        raise ValueError(f"scv={scv:g} but {family} times have scv {only:g}; take gamma instead")
    if scv == 0:
        return np.full(n, mean_s)
    if family == "exponential":
        return rng.exponential(mean_s, n)
    if family == "gamma":
        return rng.gamma(1 / scv, mean_s * scv, n)
    log_variance = math.log1p(scv)
    return mean_s * np.exp(math.sqrt(log_variance) * rng.standard_normal(n) - log_variance / 2)


# family -> the one scv that it can have, or None for any
_FAMILIES: dict[str, float | None] = {
    "gamma": None,
    "lognormal": None,
    "exponential": 1.0,
    "constant": 0.0,
}


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
