"""How fast one queue is simulated, beside Ciw and SimPy on a sample in the same run.

Nothing here fails on a slow machine; the table at the end is what is read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import ciw
import numpy as np
import numpy.typing as npt
import pytest
import simpy

from course.serving import queueing

CUSTOMERS = 10_000_000
SAMPLE = 5_000  # what the two event-driven simulators are given
LOAD = 0.9
SERVERS = (1, 2, 4, 8, 16)
RATES: dict[str, float] = {}
TIMES: dict[str, float] = {}

FloatArray = npt.NDArray[np.float64]


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    queueing.warm()
    yield
    lines = [f"{'one queue, simulated':30s}{'customers/s':>14s}{'ours is faster by':>20s}"]
    for name, rate in RATES.items():
        mine = RATES.get("ours, 1 server" if " 1 " in name else "ours, 4 servers", 0.0)
        ratio = f"{mine / rate:,.0f} x" if mine and "ours" not in name else ""
        lines.append(f"  {name:28s}{rate:14,.0f}{ratio:>20s}")
    lines.append(f"{'one call':46s}{'us':>18s}")
    lines += [f"  {name:44s}{1e6 * seconds:18,.1f}" for name, seconds in TIMES.items()]
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        print("\n\n" + "\n".join(lines))


@pytest.fixture(scope="module")
def traffic() -> tuple[FloatArray, FloatArray]:
    """Unit-rate gaps and unit-mean services; a test scales the gaps to its servers."""
    rng = np.random.default_rng(1)
    return queueing.exponential(1.0, CUSTOMERS, rng), queueing.exponential(1.0, CUSTOMERS, rng)


def timed(benchmark: Any, call: Callable[[], Any], rounds: int = 5) -> float:
    """Best of some rounds: on a shared machine the others measure the neighbours."""
    best = []

    def run() -> None:
        start = time.perf_counter()
        call()
        best.append(time.perf_counter() - start)

    benchmark.pedantic(run, rounds=rounds, warmup_rounds=1)
    return min(best)


def named(servers: int, who: str) -> str:
    return f"{who}, {servers} server{'s' if servers > 1 else ''}"


@pytest.mark.parametrize("servers", SERVERS)
def test_ours(benchmark: Any, traffic: tuple[FloatArray, FloatArray], servers: int) -> None:
    """Ten million customers through the public function: checks and result array included."""
    gaps, services = traffic[0] / (LOAD * servers), traffic[1]
    seconds = timed(benchmark, lambda: queueing.simulate_queue(gaps, services, servers))
    RATES[named(servers, "ours")] = CUSTOMERS / seconds


def ciw_run(gaps: FloatArray, services: FloatArray, servers: int) -> None:
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*gaps.tolist(), 1e12])],
        service_distributions=[ciw.dists.Sequential(services.tolist())],
        number_of_servers=[servers],
    )
    ciw.Simulation(network).simulate_until_max_time(1e11)


def simpy_run(gaps: FloatArray, services: FloatArray, servers: int) -> None:
    env = simpy.Environment()
    server = simpy.Resource(env, servers)
    waits = list[float]()

    def customer(service: float) -> Any:
        came = env.now
        with server.request() as turn:
            yield turn
            waits.append(env.now - came)
            yield env.timeout(service)

    def source() -> Any:
        for gap, service in zip(gaps.tolist(), services.tolist(), strict=True):
            yield env.timeout(gap)
            env.process(customer(service))

    env.process(source())
    env.run()


@pytest.mark.parametrize("servers", [1, 4])
@pytest.mark.parametrize(("who", "run"), [("Ciw", ciw_run), ("SimPy", simpy_run)])
def test_others(
    benchmark: Any,
    traffic: tuple[FloatArray, FloatArray],
    who: str,
    run: Callable[[FloatArray, FloatArray, int], None],
    servers: int,
) -> None:
    """The same first customers through the two simulators that the tests compare with."""
    gaps, services = traffic[0][:SAMPLE] / (LOAD * servers), traffic[1][:SAMPLE]
    seconds = timed(benchmark, lambda: run(gaps, services, servers), rounds=2)
    RATES[named(servers, who)] = SAMPLE / seconds


def test_bounded_and_closed(benchmark: Any, traffic: tuple[FloatArray, FloatArray]) -> None:
    """The two other loops, on a million customers."""
    n = CUSTOMERS // 10
    gaps, services = traffic[0][:n], traffic[1][:n]
    thinks = 50 * traffic[0][: n + 50]
    bounded = timed(benchmark, lambda: queueing.simulate_bounded_queue(gaps, services, 10))
    RATES["ours, 10 places"] = n / bounded
    start = time.perf_counter()
    queueing.simulate_closed_loop(50, thinks, services)
    RATES["ours, 50 closed-loop users"] = n / (time.perf_counter() - start)


FORMULAS: dict[str, Callable[[], Any]] = {
    "mm1": lambda: queueing.mm1(8, 10),
    "mmc, 16 servers": lambda: queueing.mmc(15, 1, 16),
    "mmc, 10,000 servers": lambda: queueing.mmc(9_900, 1, 10_000),
    "mm1k, 100 places": lambda: queueing.mm1k(9, 10, 100),
    "mm1_closed, 1,000 users": lambda: queueing.mm1_closed(1000, 90, 10),
    "mmc, P99 of the sojourn": lambda: queueing.mmc(15, 1, 16).sojourn_quantile_s(0.99),
    "mm1k, P99 of the sojourn": lambda: queueing.mm1k(9, 10, 100).sojourn_quantile_s(0.99),
    "md1, P99 of the wait": lambda: queueing.md1(9, 10).wait_quantile_s(0.99),
    "interval of 100,000 waits": lambda: queueing.batch_means(WAITS, utilization=0.8),
}
WAITS = np.ones(100_000)


@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(benchmark: Any, name: str) -> None:
    """What one move of a slider costs."""
    call = FORMULAS[name]
    TIMES[name] = timed(benchmark, lambda: [call() for _ in range(20)]) / 20
