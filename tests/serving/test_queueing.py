"""The closed forms, against derivations written a second time in exact or 60-digit arithmetic.

Each test says what would be wrong in the world if it failed.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from decimal import Decimal, getcontext, localcontext
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.serving import queueing
from course.serving.queueing.closed_forms import (
    NoClosedFormError,
    QueueFigures,
    UnstableQueueError,
    gg1_kingman,
    max_arrival_rate_for,
    max_utilization_for,
    md1,
    mg1,
    mm1,
    mm1_closed,
    mm1k,
    mmc,
)

CLOSE = 1e-12
LOADS = (1e-6, 0.1, 0.5, 0.8, 0.99, 0.999999)
SHARES = (0.001, 0.5, 0.9, 0.99, 0.9999, 1 - 1e-12)


@pytest.fixture(autouse=True)
def _sixty_digits() -> Iterator[None]:
    with localcontext() as context:
        context.prec = 60
        yield


def same(measured: float | None, exact: Fraction | Decimal, within: float = CLOSE) -> bool:
    assert measured is not None
    if exact == 0:
        return measured == 0
    if isinstance(exact, Decimal):
        return abs(Decimal(measured) / exact - 1) <= Decimal(within)
    return abs(Fraction(measured) / exact - 1) <= Fraction(within)


def decimal(value: float | Fraction) -> Decimal:
    exact = Fraction(value)
    return Decimal(exact.numerator) / Decimal(exact.denominator)


def is_quantile(tail: Callable[[Decimal], Decimal], t: float, p: float) -> bool:
    """Whether the tail crosses 1 − p within 1e-12 of `t`."""
    left, right = Decimal(t) * (1 - Decimal(CLOSE)), Decimal(t) * (1 + Decimal(CLOSE))
    return tail(left) >= 1 - Decimal(p) >= tail(right)


# -------------------- M/M/1


def test_mm1_by_hand() -> None:
    """Eight a second before a server of ten: the numbers on the slide are wrong."""
    q = mm1(8, 10)
    assert (q.model, q.exact, q.servers, q.capacity) == ("M/M/1", True, 1, None)
    assert q.utilization == q.offered_load == q.wait_probability == 0.8
    assert (q.mean_sojourn_s, q.mean_wait_s) == (0.5, 0.4)
    assert (q.mean_in_system, q.mean_in_queue) == pytest.approx((4.0, 3.2), rel=CLOSE)
    assert q.throughput_per_s == pytest.approx(8, rel=CLOSE)
    assert q.reject_probability == 0
    assert q.sojourn_quantile_s(0.99) == pytest.approx(math.log(100) / 2, rel=CLOSE)
    assert q.sojourn_quantile_s(0.0) == q.wait_quantile_s(0.0) == q.wait_quantile_s(0.2) == 0


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("service", [0.3, 1.0, 7e4])
def test_mm1_against_fractions(load: float, service: float) -> None:
    """A curve near saturation shows rounding instead of the queue."""
    arrival = load * service
    lam, mu = Fraction(arrival), Fraction(service)
    q = mm1(arrival, service)
    assert same(q.utilization, lam / mu)
    assert same(q.mean_in_system, lam / (mu - lam))
    assert same(q.mean_in_queue, lam**2 / mu / (mu - lam))
    assert same(q.mean_wait_s, lam / mu / (mu - lam))
    assert same(q.mean_sojourn_s, 1 / (mu - lam))
    for p in SHARES:
        tail = 1 - Decimal(p)
        assert same(q.sojourn_quantile_s(p), -tail.ln() / decimal(mu - lam))
        if 1 - Fraction(p) < lam / mu * Fraction(99, 100):
            exact = (decimal(lam / mu) / tail).ln() / decimal(mu - lam)
            assert same(q.wait_quantile_s(p), exact)


# -------------------- M/M/c


def erlang_c(lam: Fraction, mu: Fraction, servers: int) -> Decimal:
    """Chance to wait, from the state probabilities themselves (each relative to an empty room)."""
    offered = decimal(lam / mu)
    state = below = Decimal(1)
    for n in range(1, servers):
        state = state * offered / n
        below += state
    all_busy = state * offered / servers * servers / (servers - offered)
    return all_busy / (below + all_busy)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("servers", [1, 2, 3, 7, 40, 1000])
def test_mmc_against_state_probabilities(load: float, servers: int) -> None:
    """Pooling is drawn too good or too bad."""
    service = 0.7
    arrival = load * servers * service
    lam, mu = Fraction(arrival), Fraction(service)
    q = mmc(arrival, service, servers)
    waits = erlang_c(lam, mu, servers)
    if waits < Decimal("1e-290"):
        assert q.wait_probability is not None
        assert q.wait_probability < 1e-280
        return
    mean_wait = waits / decimal(servers * mu - lam)
    assert same(q.wait_probability, waits)
    assert same(q.mean_wait_s, mean_wait)
    assert same(q.mean_in_queue, mean_wait * decimal(lam))
    assert same(q.mean_sojourn_s, mean_wait + 1 / decimal(mu))
    assert same(q.mean_in_system, (mean_wait + 1 / decimal(mu)) * decimal(lam))


@pytest.mark.parametrize("load", [0.05, 0.5, 0.9, 0.99, 0.9999])
def test_mmc_of_ten_thousand_servers(load: float) -> None:
    """A large fleet overflows (factorials) or comes out without a queue."""
    q = mmc(10_000 * load, 1.0, 10_000)
    exact = erlang_c(Fraction(10_000 * load), Fraction(1), 10_000)
    assert q.wait_probability is not None
    if exact > Decimal("1e-290"):
        assert same(q.wait_probability, exact)
    else:
        assert q.wait_probability < 1e-280
    assert q.mean_sojourn_s >= 1
    p99 = q.sojourn_quantile_s(0.99)
    assert is_quantile(lambda t: mmc_sojourn_tail(q, t), p99, 0.99)


def mmc_sojourn_tail(q: QueueFigures, t: Decimal) -> Decimal:
    lam, mu = decimal(q.arrival_rate_per_s), decimal(q.service_rate_per_s)
    waits = erlang_c(Fraction(q.arrival_rate_per_s), Fraction(q.service_rate_per_s), q.servers)
    rate = q.servers * mu - lam
    if rate == mu:
        both = (1 + mu * t) * (-mu * t).exp()
    else:
        both = (rate * (-mu * t).exp() - mu * (-rate * t).exp()) / (rate - mu)
    return (1 - waits) * (-mu * t).exp() + waits * both


@pytest.mark.parametrize(
    ("arrival", "servers"),
    [
        (0.5, 1),
        (1.0, 2),
        (1.0 + 1e-9, 2),
        (1.0 - 1e-9, 2),
        (2.0, 3),
        (2.9, 3),
        (15.0, 16),
        (1.0, 16),
    ],
)
@pytest.mark.parametrize("p", SHARES)
def test_mmc_quantiles(arrival: float, servers: int, p: float) -> None:
    """A P99 of a pooled fleet is off, most of all where spare capacity equals one server's rate
    (the textbook formula divides by zero there)."""
    q = mmc(arrival, 1.0, servers)
    assert is_quantile(lambda t: mmc_sojourn_tail(q, t), q.sojourn_quantile_s(p), p)
    waits = erlang_c(Fraction(arrival), Fraction(1), servers)
    wait = q.wait_quantile_s(p)
    if 1 - Decimal(p) >= waits:
        assert wait == 0
    else:
        exact = (waits / (1 - Decimal(p))).ln() / decimal(servers - Fraction(arrival))
        assert same(wait, exact, 1e-11)  # where 1 − p nears the chance to wait, both near zero


def test_mmc_of_one_server_is_mm1() -> None:
    """Two pages of the notebook contradict each other."""
    one, many = mm1(0.9, 1.0), mmc(0.9, 1.0, 1)
    for name in ("mean_wait_s", "mean_sojourn_s", "mean_in_system", "wait_probability"):
        assert getattr(many, name) == pytest.approx(getattr(one, name), rel=CLOSE)
    assert many.sojourn_quantile_s(0.99) == pytest.approx(one.sojourn_quantile_s(0.99), rel=CLOSE)
    assert many.wait_quantile_s(0.99) == pytest.approx(one.wait_quantile_s(0.99), rel=CLOSE)
    assert mmc(1, 1, 4).sojourn_quantile_s(0) == 0


@given(st.floats(0.01, 0.99), st.integers(2, 50))
def test_pooling_beats_splitting(load: float, servers: int) -> None:
    """One line before c servers waits longer than c lines of one: pooling would be no remedy."""
    pooled = mmc(load * servers, 1.0, servers)
    assert pooled.mean_wait_s < mm1(load, 1.0).mean_wait_s
    assert pooled.sojourn_quantile_s(0.99) <= mm1(load, 1.0).sojourn_quantile_s(0.99)


# -------------------- M/M/1/K


@pytest.mark.parametrize("capacity", [1, 2, 3, 10, 200])
@pytest.mark.parametrize(
    "load", [1e-6, 0.3, 0.9, 0.999, 1 - 1e-9, 1.0, 1 + 1e-9, 1.001, 1.5, 20.0, 1e6]
)
def test_mm1k_against_fractions(load: float, capacity: int) -> None:
    """The bounded queue's rejections or waits jump or lose digits, at λ = μ above all."""
    service = 1.7
    arrival = load * service
    lam, mu = Fraction(arrival), Fraction(service)
    up, down = (lam / mu).as_integer_ratio()
    weights = [up**n * down ** (capacity - n) for n in range(capacity + 1)]  # ρⁿ, all integers
    share = [Fraction(weights[n], sum(weights)) for n in (0, -1)]
    in_queue = Fraction(sum((n - 1) * weights[n] for n in range(1, capacity + 1)), sum(weights))
    busy = 1 - share[0]
    served = mu * busy
    q = mm1k(arrival, service, capacity)
    assert (q.model, q.capacity) == ("M/M/1/K", capacity)
    assert same(q.utilization, busy)
    assert same(q.reject_probability, share[-1]) or share[-1] < Fraction(1, 10**290)
    assert same(q.mean_in_queue, in_queue)
    assert same(q.mean_in_system, in_queue + busy)
    assert same(q.mean_wait_s, in_queue / served)
    assert same(q.mean_sojourn_s, (in_queue + busy) / served)
    assert same(q.wait_probability, (busy - share[-1]) / (1 - share[-1]))
    assert same(q.throughput_per_s, lam * (1 - share[-1]))
    assert same(q.offered_load, lam / mu)


@pytest.mark.parametrize("load", [0.9, 1 - 1e-4, 1 - 1e-7, 1.0, 1 + 1e-7, 1 + 1e-4, 1.1])
def test_mm1k_of_many_places(load: float) -> None:
    """A long waiting room overflows, or its blocking probability is rounding noise."""
    capacity, service = 100_000, 0.7
    q = mm1k(load * service, service, capacity)
    rho = decimal(Fraction(load * service) / Fraction(service))
    with localcontext() as context:
        context.prec = 1200
        if load == 1:
            reject, in_system = Decimal(1) / (capacity + 1), Decimal(capacity) / 2
        else:
            top = rho ** (capacity + 1)
            reject = (1 - rho) * rho**capacity / (1 - top)
            in_system = rho / (1 - rho) - (capacity + 1) * top / (1 - top)
    assert same(q.mean_in_system, in_system)
    if reject > Decimal("1e-290"):
        assert same(q.reject_probability, reject)


def mm1k_tails(
    q: QueueFigures,
) -> tuple[Callable[[Decimal], Decimal], Callable[[Decimal], Decimal]]:
    """Tails of the wait and of the sojourn of accepted customers, as Poisson sums."""
    rho, mu, places = decimal(q.offered_load), decimal(q.service_rate_per_s), q.capacity or 1
    weights = [rho**n for n in range(places)]
    found = [weight / sum(weights) for weight in weights]

    def after(services: int, t: Decimal) -> Decimal:
        """Chance that `services` exponential services last longer than t."""
        term, total = (-mu * t).exp(), Decimal(0)
        for j in range(services):
            total += term
            term = term * mu * t / (j + 1)
        return total

    return (
        lambda t: sum((found[n] * after(n, t) for n in range(places)), Decimal(0)),
        lambda t: sum((found[n] * after(n + 1, t) for n in range(places)), Decimal(0)),
    )


@pytest.mark.parametrize("load", [0.25, 0.9, 1.0, 4.0])
@pytest.mark.parametrize("capacity", [1, 2, 30])
@pytest.mark.parametrize("p", SHARES)
def test_mm1k_quantiles(load: float, capacity: int, p: float) -> None:
    """The P99 of those who get in, the very reason to bound a queue, is wrong."""
    q = mm1k(load * 2, 2.0, capacity)
    wait_tail, sojourn_tail = mm1k_tails(q)
    assert is_quantile(sojourn_tail, q.sojourn_quantile_s(p), p)
    wait = q.wait_quantile_s(p)
    if wait == 0:
        assert wait_tail(Decimal(0)) <= 1 - Decimal(p)
    else:
        assert is_quantile(wait_tail, wait, p)


def test_mm1k_with_room_for_all_is_mm1() -> None:
    """A bound that is never reached changes the queue."""
    open_, bounded = mm1(0.8, 1.0), mm1k(0.8, 1.0, 500)
    assert bounded.mean_sojourn_s == pytest.approx(open_.mean_sojourn_s, rel=CLOSE)
    assert bounded.sojourn_quantile_s(0.99) == pytest.approx(
        open_.sojourn_quantile_s(0.99), rel=CLOSE
    )


@given(st.floats(0.5, 2.0), st.integers(1, 300))
def test_a_bounded_queue_is_never_unstable_and_never_jumps(load: float, capacity: int) -> None:
    """A slider across λ = μ meets a spike, a hole or an error."""
    here, next_to = mm1k(load, 1.0, capacity), mm1k(load * (1 + 1e-9), 1.0, capacity)
    assert 0 <= here.reject_probability <= next_to.reject_probability * (1 + CLOSE) <= 1 + CLOSE
    assert next_to.mean_wait_s == pytest.approx(here.mean_wait_s, rel=1e-6)
    assert here.throughput_per_s <= min(load, 1.0) * (1 + CLOSE)


# -------------------- M/D/1, M/G/1, G/G/1


def crommelin(load: float, services: Decimal) -> Decimal:
    """P(wait > t) of M/D/1 by the classic alternating sum; hence the digits."""
    rho = decimal(load)
    growth, per_service, factorial, total = (rho * services).exp(), (-rho).exp(), 1, Decimal(0)
    for i in range(int(services) + 1):
        factorial *= max(i, 1)
        power = Decimal(1) if i == 0 else (-rho * (services - i)) ** i
        total += power / factorial * growth
        growth *= per_service
    return 1 - (1 - rho) * total


@pytest.mark.parametrize("load", [0.05, 0.3, 0.5, 0.8, 0.95, 0.99])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99, 0.999, 1 - 1e-12])
def test_md1_quantiles_against_the_alternating_sum(load: float, p: float) -> None:
    """The floor under all other queues is drawn at the wrong height."""
    service = 4.0
    q = md1(load * service, service)
    wait = q.wait_quantile_s(p)
    assert q.sojourn_quantile_s(p) == wait + 1 / service
    if wait == 0:
        assert 1 - p >= load
        return
    getcontext().prec = 60 + int(wait * service)  # the largest terms have 0.6 digits a service
    rho = q.arrival_rate_per_s / q.service_rate_per_s
    assert is_quantile(lambda t: crommelin(rho, t * 4), wait, p)


def test_md1_quantiles_meet_where_the_exponential_tail_takes_over() -> None:
    """The curve has a step where one method hands over to the other."""
    q = md1(0.97, 1.0)
    p = [1 - math.exp(-x) for x in np.linspace(2.4, 2.6, 400)]
    steps = np.diff([q.wait_quantile_s(x) for x in p])
    assert 35 < q.wait_quantile_s(p[0]) < 40 < q.wait_quantile_s(p[-1])
    assert steps.max() / steps.min() == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize("load", LOADS)
@pytest.mark.parametrize("scv", [0.0, 0.25, 1.0, 4.0])
def test_pollaczek_khinchine_against_fractions(load: float, scv: float) -> None:
    """The price of variable output lengths is wrong."""
    mean_s = 0.3
    arrival = load / mean_s
    lam, mean, c2 = Fraction(arrival), Fraction(mean_s), Fraction(scv)
    second_moment = mean**2 * (1 + c2)
    exact = lam * second_moment / (2 * (1 - lam * mean))
    q = mg1(arrival, mean_s, scv)
    assert same(q.mean_wait_s, exact)
    assert same(q.mean_sojourn_s, exact + mean)
    assert same(q.mean_in_system, lam * (exact + mean))
    assert same(q.wait_probability, lam * mean)
    assert q.exact


@pytest.mark.parametrize("load", LOADS)
def test_the_family_agrees_with_itself(load: float) -> None:
    """M/D/1, M/M/1 and Kingman are not M/G/1 at scv 0, scv 1 and Poisson arrivals."""
    service = 8.0
    arrival, mean_s = load * service, 1 / service
    assert mg1(arrival, mean_s, 0).mean_wait_s == pytest.approx(
        md1(arrival, service).mean_wait_s, rel=CLOSE
    )
    assert mg1(arrival, mean_s, 1).mean_wait_s == pytest.approx(
        mm1(arrival, service).mean_wait_s, rel=CLOSE
    )
    kingman = gg1_kingman(arrival, mean_s, 1, 3)
    assert kingman.mean_wait_s == pytest.approx(mg1(arrival, mean_s, 3).mean_wait_s, rel=CLOSE)
    assert not kingman.exact
    assert kingman.wait_probability is None
    assert gg1_kingman(arrival, mean_s, 0, 0).mean_wait_s == 0


@pytest.mark.parametrize("q", [mg1(0.5, 1, 2), gg1_kingman(0.5, 1, 2, 2)])
def test_quantiles_that_two_numbers_do_not_fix_are_refused(q: QueueFigures) -> None:
    """A mean and a variability pass for a P99."""
    for quantile in (q.wait_quantile_s, q.sojourn_quantile_s):
        with pytest.raises(NoClosedFormError, match="simulate_queue"):
            quantile(0.99)


# -------------------- what holds for all of them


STABLE = st.tuples(st.floats(1e-3, 0.999), st.floats(1e-3, 1e3), st.integers(1, 30))


@given(STABLE, st.floats(0, 9))
def test_littles_law(numbers: tuple[float, float, int], scv: float) -> None:
    """L = λ·W, the auditor of every report, does not hold in the formulas themselves."""
    load, service, servers = numbers
    queues = [
        mm1(load * service, service),
        mmc(load * service * servers, service, servers),
        mm1k(3 * load * service, service, servers),
        md1(load * service, service),
        mg1(load * service, 1 / service, scv),
        gg1_kingman(load * service, 1 / service, scv, 1),
    ]
    for q in queues:
        served = q.throughput_per_s
        assert q.mean_in_system == pytest.approx(served * q.mean_sojourn_s, rel=1e-11)
        assert q.mean_in_queue == pytest.approx(served * q.mean_wait_s, rel=1e-11, abs=1e-300)
        assert q.mean_sojourn_s == pytest.approx(q.mean_wait_s + 1 / service, rel=1e-11)
        busy = q.mean_in_system - q.mean_in_queue
        assert busy == pytest.approx(q.servers * q.utilization, rel=1e-9)


@given(STABLE, st.sampled_from([2.0, 0.25, 1024.0]))
def test_another_unit_of_time_changes_nothing(
    numbers: tuple[float, float, int], factor: float
) -> None:
    """Milliseconds and seconds give different queues."""
    load, service, servers = numbers
    for one, other in (
        (mm1(load * service, service), mm1(load * service * factor, service * factor)),
        (
            mmc(load * servers * service, service, servers),
            mmc(load * servers * service * factor, service * factor, servers),
        ),
        (md1(load * service, service), md1(load * service * factor, service * factor)),
        (mm1k(load * service, service, 9), mm1k(load * service * factor, service * factor, 9)),
    ):
        assert other.mean_wait_s * factor == one.mean_wait_s
        assert other.wait_probability == one.wait_probability
        assert other.sojourn_quantile_s(0.9) * factor == pytest.approx(
            one.sojourn_quantile_s(0.9), rel=CLOSE
        )


@given(st.floats(0.02, 0.98), st.floats(0.0, 0.999), st.floats(0.0, 0.999))
def test_quantiles_rise_with_p(load: float, p: float, q: float) -> None:
    """A P90 above the P99."""
    low, high = sorted((p, q))
    for queue in (mm1(load, 1), mmc(3 * load, 1, 3), mm1k(2 * load, 1, 7), md1(load, 1)):
        assert 0 <= queue.wait_quantile_s(low) <= queue.wait_quantile_s(high) * (1 + CLOSE)
        assert queue.sojourn_quantile_s(low) <= queue.sojourn_quantile_s(high) * (1 + CLOSE)
        assert queue.wait_quantile_s(high) <= queue.sojourn_quantile_s(high)


def test_figures_can_be_kept_and_compared() -> None:
    """A memoised page cannot hold its figures, or a later line changes them."""
    q = mmc(1.5, 1.0, 2)
    assert pickle.loads(pickle.dumps(q)) == q
    assert hash(q) == hash(replace(q))
    with pytest.raises(AttributeError):
        q.servers = 3  # type: ignore[misc]


# -------------------- closed loop


def product_form(users: int, think: Fraction, mu: Fraction) -> list[Fraction]:
    """Probability of n at the server: N!/(N−n)! · (1/(μ·Z))ⁿ, normalised."""
    weights = [Fraction(1)]
    for n in range(users):
        weights.append(weights[-1] * (users - n) / (think * mu))
    return [weight / sum(weights) for weight in weights]


@pytest.mark.parametrize("users", [1, 2, 10, 60])
@pytest.mark.parametrize("think_s", [0.01, 1.0, 20.0])
def test_the_closed_loop_against_its_product_form(users: int, think_s: float) -> None:
    """Open against closed loop compares with a wrong closed one."""
    service = 3.0
    states = product_form(users, Fraction(think_s), Fraction(service))
    busy = 1 - states[0]
    in_system = sum((n * share for n, share in enumerate(states)), Fraction(0))
    q = mm1_closed(users, think_s, service)
    assert same(q.utilization, busy)
    assert same(q.throughput_per_s, busy * 3)
    assert same(q.mean_in_system, in_system)
    assert same(q.mean_response_s, in_system / (busy * 3))
    assert q.mean_wait_s == pytest.approx(q.mean_response_s - 1 / service, rel=1e-9, abs=1e-15)
    # the interactive response time law, N = X·(R + Z)
    assert q.throughput_per_s * (q.mean_response_s + think_s) == pytest.approx(users, rel=CLOSE)


@pytest.mark.parametrize("p", SHARES)
@pytest.mark.parametrize(("users", "think_s"), [(1, 2.0), (8, 1.0), (40, 0.1), (40, 30.0)])
def test_the_closed_loop_quantiles(users: int, think_s: float, p: float) -> None:
    """The tail that a load test with N users would show is wrong."""
    found = product_form(users - 1, Fraction(think_s), Fraction(2))

    def tail(t: Decimal) -> Decimal:
        term, erlang, total = (-2 * t).exp(), Decimal(0), Decimal(0)
        for n in range(users):
            erlang += term
            term = term * 2 * t / (n + 1)
            total += decimal(found[n]) * erlang
        return total

    assert is_quantile(tail, mm1_closed(users, think_s, 2.0).response_quantile_s(p), p)


def test_the_closed_loop_at_its_ends() -> None:
    """Users who never think, or a hundred thousand of them, break the recursion."""
    always = mm1_closed(7, 0.0, 2.0)
    assert (always.throughput_per_s, always.utilization) == (2.0, 1.0)
    assert always.mean_response_s == pytest.approx(3.5, rel=CLOSE)
    only_queue = mm1_closed(1, 0.0, 2.0)
    assert only_queue.response_quantile_s(0.9) == pytest.approx(math.log(10) / 2, rel=CLOSE)
    assert only_queue.mean_wait_s == 0
    # all thinking is Erlang's B formula with one line a user
    crowd = mm1_closed(100_000, 1.0, 99_000.0)
    offered, inverse = Decimal(99_000), Decimal(1)
    with localcontext() as context:
        context.prec = 30
        for n in range(1, 100_001):
            inverse = 1 + inverse * n / offered
    assert same(crowd.utilization, 1 - 1 / inverse, 1e-11)
    assert crowd.response_quantile_s(0.99) > crowd.mean_response_s


@given(st.integers(1, 200), st.floats(0.0, 50.0), st.floats(0.1, 10.0))
def test_a_closed_loop_cannot_run_away(users: int, think_s: float, service: float) -> None:
    """Throughput above the server's rate or above one request a think time: no such loop."""
    q, more = mm1_closed(users, think_s, service), mm1_closed(users + 1, think_s, service)
    assert q.throughput_per_s <= service * (1 + CLOSE)
    assert q.throughput_per_s * (think_s + 1 / service) <= users * (1 + CLOSE)
    assert more.throughput_per_s >= q.throughput_per_s * (1 - CLOSE)
    assert q.mean_response_s <= users / service * (1 + CLOSE)


# -------------------- headroom


@given(st.floats(0.5, 0.9999), st.floats(0.01, 100.0), st.floats(0.1, 100.0))
def test_the_headroom_meets_its_target(p: float, target_s: float, service: float) -> None:
    """A service planned by this page breaks its own promise."""
    if -math.log1p(-p) / service > target_s:
        with pytest.raises(ValueError, match="idle server"):
            max_arrival_rate_for(p, target_s, service)
        return
    arrival = max_arrival_rate_for(p, target_s, service)
    assert max_utilization_for(p, target_s, service) == arrival / service
    if arrival > 1e-3 * service:
        assert mm1(arrival, service).sojourn_quantile_s(p) == pytest.approx(target_s, rel=1e-9)


def test_a_target_that_an_idle_server_misses_says_what_would_do() -> None:
    """Planning for the impossible returns a negative rate."""
    with pytest.raises(ValueError, match=r"0\.460517 s at service_rate_per_s=10.*above 46\.0517"):
        max_arrival_rate_for(0.99, target_s=0.1, service_rate_per_s=10)
    assert max_arrival_rate_for(0.5, math.log(2), 1.0) == pytest.approx(0, abs=1e-15)


# -------------------- what is refused


@pytest.mark.parametrize(
    ("call", "servers"),
    [
        (lambda: mm1(12, 10), 1),
        (lambda: mmc(36, 10, 3), 3),
        (lambda: md1(12, 10), 1),
        (lambda: mg1(12, 0.1, 1), 1),
        (lambda: gg1_kingman(12, 0.1, 1, 1), 1),
    ],
)
def test_an_unstable_queue_says_by_how_much(call: Callable[[], object], servers: int) -> None:
    """A slider past saturation gets a number, or a stack that helps nobody."""
    with pytest.raises(UnstableQueueError) as caught:
        call()
    error = caught.value
    assert isinstance(error, ValueError)
    assert error.utilization == pytest.approx(1.2)
    assert error.excess_per_s == pytest.approx(2 * servers)
    assert error.needed_rate_per_s == pytest.approx(12)
    assert error.needed_servers == (2 if servers == 1 else 4)
    for part in ("1.2", f"{10 * servers}/s", "12/s", "0.0833333 s", f"{error.needed_servers} such"):
        assert part in str(error)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("rate", [1.0, 0.1, 1 / 3])
def test_exactly_full_is_unstable(rate: float) -> None:
    """ρ = 1 divides by zero, or passes because of a rounding."""
    for call in (
        lambda: mm1(rate, rate),
        lambda: mmc(rate * 4, rate, 4),
        lambda: md1(rate, rate),
    ):
        with pytest.raises(UnstableQueueError, match=r"utilization of 1 .* 0 customers/s more"):
            call()
    assert mm1(math.nextafter(rate, 0), rate).mean_wait_s > 1e14


@given(st.floats(0.01, 100.0), st.floats(0.01, 100.0))
def test_the_servers_an_error_asks_for_are_enough(arrival: float, service: float) -> None:
    """The message sends its reader to a second error."""
    if arrival < service:
        return
    with pytest.raises(UnstableQueueError) as caught:
        mm1(arrival, service)
    needed = caught.value.needed_servers
    assert mmc(arrival, service, needed).utilization < 1
    assert (needed - 1) * service <= arrival * (1 + CLOSE)


CALLS: dict[str, tuple[Callable[..., object], dict[str, float]]] = {
    "mm1": (mm1, {"arrival_rate_per_s": 1, "service_rate_per_s": 2}),
    "mmc": (mmc, {"arrival_rate_per_s": 1, "service_rate_per_s": 2, "servers": 2}),
    "mm1k": (mm1k, {"arrival_rate_per_s": 1, "service_rate_per_s": 2, "capacity": 2}),
    "md1": (md1, {"arrival_rate_per_s": 1, "service_rate_per_s": 2}),
    "mg1": (mg1, {"arrival_rate_per_s": 1, "mean_service_s": 0.5, "scv_service": 1}),
    "gg1": (
        gg1_kingman,
        {"arrival_rate_per_s": 1, "mean_service_s": 0.5, "scv_arrival": 1, "scv_service": 1},
    ),
    "closed": (mm1_closed, {"users": 3, "think_s": 1, "service_rate_per_s": 2}),
    "headroom": (max_arrival_rate_for, {"p": 0.5, "target_s": 9, "service_rate_per_s": 2}),
    "quantile": (mm1(1, 2).sojourn_quantile_s, {"p": 0.5}),
    "wait": (mm1(1, 2).wait_quantile_s, {"p": 0.5}),
    "response": (mm1_closed(2, 1, 1).response_quantile_s, {"p": 0.5}),
}
WHOLE = {"servers", "capacity", "users"}
MAY_BE_ZERO = {"scv_service", "scv_arrival", "think_s"}
BAD = [float("nan"), float("inf"), -1, 0, 2.5, "3", None, True, [1.0], 2**60]


@pytest.mark.parametrize(
    ("function", "argument", "value"),
    [
        pytest.param(function, argument, value, id=f"{name}-{argument}-{str(value)[:6]}")
        for name, (function, arguments) in CALLS.items()
        for argument in arguments
        for value in BAD
        if not (value == 0 and (argument in MAY_BE_ZERO or argument == "p"))
        and not (value == 2.5 and argument not in WHOLE | {"p"})
        and not (value == 2**60 and argument not in WHOLE)
    ],
)
def test_an_unusable_argument_is_named(
    function: Callable[..., object], argument: str, value: object
) -> None:
    """A wrong number draws a wrong curve, or fails without saying which number."""
    arguments = next(kwargs for call, kwargs in CALLS.values() if call == function)
    with pytest.raises(ValueError, match=argument):
        function(**{**arguments, argument: value})


def test_shares_are_not_percents() -> None:
    """P99 written as 99 gives a quantile."""
    with pytest.raises(ValueError, match=r"p=99 .* write 0.99"):
        mm1(1, 2).sojourn_quantile_s(99)
    with pytest.raises(ValueError, match="p=0"):
        max_arrival_rate_for(0, 1, 2)


def test_whole_floats_and_numpy_numbers_are_numbers() -> None:
    """A slider's 3.0 or a numpy integer is refused."""
    assert mmc(1, 1, 3.0) == mmc(np.float64(1), np.int64(1), np.int32(3))  # type: ignore[arg-type]
    assert queueing.LARGEST_CAPACITY == 1_000_000
    with pytest.raises(ValueError, match="capacity=1000001 is above"):
        mm1k(1, 1, 1_000_001)


def test_a_closed_curve_is_the_closed_loop_at_each_number_of_users() -> None:
    """If it failed, a picture's curve and the sentence under it would disagree."""
    throughput, response_s = queueing.mm1_closed_curve(30, 1.5, 8.0)
    for users in (1, 2, 17, 30):
        q = queueing.mm1_closed(users, 1.5, 8.0)
        assert throughput[users - 1] == q.throughput_per_s
        assert response_s[users - 1] == q.mean_response_s


@pytest.mark.parametrize("load", [0.9, 0.97, 0.995])
def test_the_far_tail_of_md1_falls_at_its_own_rate(load: float) -> None:
    """A P99.9 read off a tail that falls too slowly buys servers that nobody needs.

    P(W > t) falls as e^(−y·t) with e^y = 1 + y/ρ, y found here by halving, with 50 digits.
    """
    from decimal import Decimal, localcontext

    with localcontext() as context:
        context.prec = 50
        low, high = Decimal("1e-9"), Decimal(3)
        for _ in range(150):
            middle = (low + high) / 2
            too_large = middle.exp() > 1 + middle / Decimal(load)
            low, high = (low, middle) if too_large else (middle, high)
        decay = float(low)
    q = md1(load, 1.0)
    far, farther = (q.wait_quantile_s(1 - tail) for tail in (2.0**-30, 2.0**-40))
    assert far > 40
    assert farther - far == pytest.approx(10 * math.log(2) / decay, rel=1e-6)


@pytest.mark.parametrize(("load", "places"), [(0.5, 1), (0.9, 4), (1.6, 7)])
@pytest.mark.parametrize("p", [0.5, 0.9, 0.99])
def test_who_gets_into_a_bounded_queue_finds_what_an_accepted_request_finds(
    load: float, places: int, p: float
) -> None:
    """The full queue turns people away; those who get in never found it full.

    With n found, the time in system is the sum of n + 1 services: an Erlang time, added up here
    term by term over n = 0 … K − 1, weighted ρⁿ.
    """
    weights = [load**n for n in range(places)]

    def share_longer(time_s: float) -> float:
        longer = [
            sum(math.exp(-time_s) * time_s**i / math.factorial(i) for i in range(n + 1))
            for n in range(places)
        ]
        return sum(w * s for w, s in zip(weights, longer, strict=True)) / sum(weights)

    time_s = mm1k(load, 1.0, places).sojourn_quantile_s(p)
    assert share_longer(time_s) == pytest.approx(1 - p, rel=1e-9)
