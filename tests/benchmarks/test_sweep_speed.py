"""How long a whole sweep takes, and what of it is not the engine, in one run.

What a figure must reach is printed beside it; only ratios fail, which no slow machine explains.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from course.serving.engine import EngineConfig, simulate, warm_steps
from course.serving.load.sweeping import DrawnTraffic, Scenario, Sweep, sweep
from course.serving.pricing import LinearStepCost
from course.serving.requests.metrics import SLO
from course.serving.workload import Lognormal

COST = LinearStepCost(0.010, 2e-5, 0.0, 1e-4, 1e-8)
SCENARIO = Scenario(
    COST,
    DrawnTraffic(Lognormal(5.5, 0.8), Lognormal(4.76, 0.7)),
    EngineConfig(max_num_seqs=64, max_num_batched_tokens=2048),
    requests=2000,
    slo=SLO(ttft_s=1.0, tpot_s=0.05, quantile=0.95),
)
LOADS = np.linspace(2.0, 30.0, 20)
SEEDS = range(5)
WANTED_S = 0.2
MOST_ENGINE_TIMES = 6.0
TIMES_S: dict[str, float] = {}


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    for _, step in warm_steps():
        step()
    yield
    lines = [f"{'a sweep of 20 loads x 5 seeds x 2,000 requests':50s}{'ms':>10s}"]
    lines += [f"  {name:48s}{1e3 * spent_s:10,.1f}" for name, spent_s in TIMES_S.items()]
    if {"sweep", "engine alone"} <= set(TIMES_S):
        ratio = TIMES_S["sweep"] / TIMES_S["engine alone"]
        lines.append(f"  the sweep is {ratio:.1f} x its engine; wanted: {1e3 * WANTED_S:.0f} ms")
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        print("\n\n" + "\n".join(lines))


def best_s(benchmark: Any, name: str, call: Callable[[], Any], rounds: int = 8) -> None:
    """Best of some rounds: on a shared machine the others measure the neighbours."""
    spent = []

    def run() -> None:
        start = time.perf_counter()
        call()
        spent.append(time.perf_counter() - start)

    benchmark.pedantic(run, rounds=rounds, iterations=1, warmup_rounds=1)
    TIMES_S[name] = min(spent)


@pytest.fixture(scope="module")
def found() -> Sweep:
    return sweep(SCENARIO, LOADS, SEEDS)


def test_engine_alone(benchmark: Any) -> None:
    drawn = [SCENARIO.traffic.draw(SCENARIO.requests, seed) for seed in SEEDS]
    work = [requests.scaled(load) for requests in drawn for load in LOADS]
    best_s(
        benchmark,
        "engine alone",
        lambda: [simulate(w, COST, SCENARIO.config, progress=False) for w in work],
    )


def test_sweep(benchmark: Any) -> None:
    """Measuring the runs costs several times what running them costs."""
    best_s(benchmark, "sweep", lambda: sweep(SCENARIO, LOADS, SEEDS))
    assert TIMES_S["sweep"] < MOST_ENGINE_TIMES * TIMES_S["engine alone"]


def test_another_slo(benchmark: Any, found: Sweep) -> None:
    """A moved SLO costs another simulation."""
    best_s(benchmark, "another SLO, nothing run again", lambda: found.attainment(SLO(ttft_s=0.3)))
    assert TIMES_S["another SLO, nothing run again"] < 0.5 * TIMES_S["sweep"]


@pytest.mark.parametrize("method", ["slo", "plateau", "two_segments"])
def test_knee(benchmark: Any, found: Sweep, method: Any) -> None:
    """Finding the knee takes longer than the sweep."""
    name = f"knee by {method}, with its interval"
    best_s(benchmark, name, lambda: found.knee(method))
    assert TIMES_S[name] < TIMES_S["sweep"]
