"""M/M/c/K against the queues that it contains and against a simulation: a formula that loses a
place, a server or a digit would put the rejected share of every small queue in doubt."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.serving import queueing
from course.serving.queueing.bounded_pool import mmck
from tests.lanes import examples

LOADS = np.array([0.02, 0.3, 0.7, 0.95, 1.0, 1.05, 1.5, 4.0])


@pytest.mark.parametrize("waiting_places", [0, 1, 3, 20, 200])
def test_one_server_is_mm1k(waiting_places: int) -> None:
    pool = mmck(LOADS, 1, waiting_places)
    known = [queueing.mm1k(load, 1.0, 1 + waiting_places) for load in LOADS]
    np.testing.assert_allclose(pool.rejected_share, [q.reject_probability for q in known], 1e-11)
    np.testing.assert_allclose(
        pool.mean_sojourn_services, [q.mean_sojourn_s for q in known], rtol=1e-11
    )
    for p in (0.5, 0.9, 0.99, 0.999):
        np.testing.assert_allclose(
            pool.sojourn_quantile_services(p),
            [q.sojourn_quantile_s(p) for q in known],
            rtol=1e-7,
        )
        np.testing.assert_allclose(
            pool.wait_quantile_services(p), [q.wait_quantile_s(p) for q in known], rtol=1e-7
        )


@pytest.mark.parametrize("servers", [2, 10, 32])
def test_with_room_enough_it_is_mmc(servers: int) -> None:
    loads = np.array([0.05, 0.4, 0.8, 0.95])
    pool = mmck(loads, servers, 2000)
    known = [queueing.mmc(load * servers, 1.0, servers) for load in loads]
    np.testing.assert_allclose(pool.rejected_share, 0, atol=1e-12)
    np.testing.assert_allclose(pool.mean_wait_services, [q.mean_wait_s for q in known], rtol=1e-9)
    for p in (0.5, 0.99, 0.999):
        np.testing.assert_allclose(
            pool.sojourn_quantile_services(p),
            [q.sojourn_quantile_s(p) for q in known],
            rtol=1e-8,
        )
        np.testing.assert_allclose(
            pool.wait_quantile_services(p),
            [q.wait_quantile_s(p) for q in known],
            rtol=1e-8,
            atol=1e-12,
        )


def test_no_waiting_place_is_erlang_b() -> None:
    """B(c, a) by its own recursion; nobody who is let in waits."""
    servers, offered = 7, 5.6
    blocked = 1.0
    for c in range(1, servers + 1):
        blocked = offered * blocked / (c + offered * blocked)
    pool = mmck(offered / servers, servers, 0)
    assert pool.rejected_share[0] == pytest.approx(blocked, rel=1e-12)
    assert pool.mean_wait_services[0] == 0
    assert pool.wait_quantile_services(0.999)[0] == 0
    assert pool.sojourn_quantile_services(0.99)[0] == pytest.approx(np.log(100), rel=1e-9)


@pytest.mark.parametrize(("load", "servers", "places"), [(0.9, 3, 4), (1.3, 8, 8), (0.7, 2, 1)])
def test_a_simulation_agrees(load: float, servers: int, places: int) -> None:
    rng = np.random.default_rng(5)
    n = 400_000
    gaps = queueing.exponential(1 / (load * servers), n, rng)
    services = queueing.exponential(1.0, n, rng)
    run = queueing.simulate_bounded_queue(gaps, services, servers + places, servers)
    waits = run.waits_s[run.accepted]
    sojourns = waits + services[run.accepted]
    pool = mmck(load, servers, places)
    assert run.reject_share == pytest.approx(pool.rejected_share[0], rel=0.02)
    assert waits.mean() == pytest.approx(pool.mean_wait_services[0], rel=0.02)
    for p in (0.5, 0.99):
        quantile = pool.sojourn_quantile_services(p)[0]
        assert np.quantile(sojourns, p) == pytest.approx(quantile, rel=0.02)
    quantile = pool.wait_quantile_services(0.95)[0]
    assert np.quantile(waits, 0.95) == pytest.approx(quantile, rel=0.02)


@settings(max_examples=examples(60), deadline=None)
@given(
    load=st.floats(1e-3, 50.0),
    servers=st.integers(1, 40),
    places=st.integers(0, 60),
    p=st.floats(0.01, 0.9999),
)
def test_what_holds_for_any_pool(load: float, servers: int, places: int, p: float) -> None:
    """Flows balance, more room turns fewer away, quantiles are ordered and never below service."""
    pool, larger = mmck(load, servers, places), mmck(load, servers, places + 1)
    served = load * (1 - pool.rejected_share[0])  # per server and mean service
    assert 0 < served < 1 + 1e-12
    assert larger.rejected_share[0] <= pool.rejected_share[0] * (1 + 1e-12)
    assert larger.mean_wait_services[0] >= pool.mean_wait_services[0] * (1 - 1e-12)
    wait, sojourn = pool.wait_quantile_services(p)[0], pool.sojourn_quantile_services(p)[0]
    assert 0 <= wait < sojourn
    assert sojourn >= -np.log1p(-p) * (1 - 1e-6)
    assert sojourn <= pool.wait_quantile_services((1 + p) / 2)[0] - np.log((1 - p) / 2) + 1e-6


def test_all_loads_at_once_are_each_alone() -> None:
    together = mmck(LOADS, 4, 12).sojourn_quantile_services(0.99)
    alone = [mmck(load, 4, 12).sojourn_quantile_services(0.99)[0] for load in LOADS]
    np.testing.assert_allclose(together, alone, rtol=1e-9)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.5, 0.0], 2, 3), r"load\[1\]=0.0 is not above 0"),
        (([0.5, float("nan")], 2, 3), r"load\[1\]=nan"),
        ((0.5, 0, 3), "servers=0 is below 1"),
        ((0.5, 2, -1), "waiting_places=-1 is below 0"),
        ((0.5, 2.5, 1), "servers=2.5 is not whole"),
    ],
)
def test_bad_arguments_are_named(arguments: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        mmck(*arguments)


@pytest.mark.parametrize("p", [0.0, 1.0, 1.5, float("nan")])
def test_bad_shares_are_named(p: float) -> None:
    with pytest.raises(ValueError, match="p="):
        mmck(0.5, 2, 3).sojourn_quantile_services(p)


@pytest.mark.parametrize(("load", "servers", "places"), [(0.7, 2, 3), (1.4, 3, 2), (0.9, 1, 4)])
@pytest.mark.parametrize("p", [0.6, 0.95])
def test_an_accepted_request_waits_for_as_many_as_it_finds(
    load: float, servers: int, places: int, p: float
) -> None:
    """P(W > t) of those let in, from birth and death by hand: who finds n ≥ c waits for n − c + 1
    services at rate c. A place too many or too few would shift every quantile."""
    states = [1.0]
    for n in range(servers + places):
        states.append(states[-1] * load * servers / min(n + 1, servers))
    found = states[:-1]
    waiting = range(servers, servers + places)

    def longer(time: float) -> float:
        return sum(
            found[n]
            * sum(
                math.exp(-servers * time) * (servers * time) ** i / math.factorial(i)
                for i in range(n - servers + 1)
            )
            for n in waiting
        ) / sum(found)

    pool = mmck([load], servers=servers, waiting_places=places)
    wait = float(pool.wait_quantile_services(p)[0])
    if longer(0.0) <= 1 - p:
        assert wait == 0.0
    else:
        assert longer(wait) == pytest.approx(1 - p, rel=1e-6)
    mean = sum(found[n] * (n - servers + 1) / servers for n in waiting) / sum(found)
    assert float(pool.mean_wait_services[0]) == pytest.approx(mean, rel=1e-12)
