"""How fast the service is, with its clients and its gate on, beside `simulate` in the same run.

What a figure must reach is printed beside it. Nothing here fails on a slow machine: what fails is a
ratio to the plain engine that only a change of the loop explains.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import pytest

from course.serving.engine import (
    Admission,
    EngineConfig,
    LongPrompts,
    Patience,
    Retry,
    simulate,
    simulate_service,
    warm_steps,
)
from course.serving.pricing import LinearStepCost
from course.serving.workload import Lognormal, Poisson, Workload, draw

COST = LinearStepCost(0.010, 2e-5, 0.0, 1e-4, 1e-8)
STANDARD = EngineConfig(max_num_seqs=64, max_num_batched_tokens=2048)
LIMITED = EngineConfig(max_num_seqs=64, max_num_batched_tokens=2048, num_kv_blocks=1500)
OVERLOAD_PER_S = 40.0  # the standard server ends about 26 a second
REQUESTS = 200_000
CLIENTS: dict[str, Any] = {
    "patience": Patience(ttft_s=5.0, e2e_s=30.0),
    "retry": Retry(3, 1.0, 2.0, 0.5),
}
GATE: dict[str, Any] = {
    "admission": Admission(max_waiting_requests=100, max_predicted_wait_s=3.0),
}
ROWS: list[tuple[str, str, str]] = []


def load(requests: int, rate_per_s: float) -> Workload:
    """The standard load's lengths, at any rate."""
    return draw(requests, Poisson(rate_per_s), Lognormal(5.5, 0.8), Lognormal(4.76, 0.7), seed=0)


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    for _, step in warm_steps():
        step()
    yield
    lines = [f"{'the service':56s}{'measured':>34s}{'wanted':>14s}"]
    lines += [f"  {name:54s}{measured:>34s}{wanted:>14s}" for name, measured, wanted in ROWS]
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        print("\n\n" + "\n".join(lines))


def best_s(call: Callable[[], Any], rounds: int) -> float:
    """Best of some rounds: on a shared machine the others measure the neighbours."""
    spent = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        spent.append(time.perf_counter() - start)
    return min(spent)


@pytest.mark.parametrize(
    ("name", "rate_per_s", "config", "options", "wanted", "times_engine"),
    [
        ("8/s, nobody gives up", 8.0, STANDARD, {}, "", 8),
        ("40/s, time-outs and retries", OVERLOAD_PER_S, STANDARD, CLIENTS, ">= 500,000", 25),
        ("40/s, and a gate", OVERLOAD_PER_S, STANDARD, CLIENTS | GATE, ">= 500,000", 16),
        (
            "40/s, 1,500 KV blocks, a gate and a watermark",
            OVERLOAD_PER_S,
            LIMITED,
            CLIENTS | {"admission": Admission(max_waiting_requests=100, kv_watermark=0.95)},
            "",
            16,
        ),
        (
            "40/s, a gate, long prompts in a queue of their own",
            OVERLOAD_PER_S,
            STANDARD,
            CLIENTS | GATE | {"long_prompts": LongPrompts(1000, chunk_tokens=256, max_running=2)},
            "",
            16,
        ),
    ],
)
def test_a_load_with_clients(
    benchmark: Any,
    name: str,
    rate_per_s: float,
    config: EngineConfig,
    options: dict[str, Any],
    wanted: str,
    times_engine: float,
) -> None:
    """Per attempt, clients and gate cost a few times what a request costs the plain engine."""
    work = load(REQUESTS, rate_per_s)
    run = simulate_service(work, COST, config, **options)
    benchmark.pedantic(
        lambda: simulate_service(work, COST, config, **options), rounds=3, iterations=1
    )
    engine_s = best_s(lambda: simulate(work, COST, config), 3)
    spent_s = min(best_s(lambda: simulate_service(work, COST, config, **options), 2),
                  benchmark.stats.stats.min)  # fmt: skip
    ratio = spent_s / engine_s
    figures = f"{REQUESTS / spent_s:,.0f} req/s, {ratio:.1f} x simulate"
    ROWS.append((f"{name} ({len(run.attempts) / REQUESTS:.1f} attempts each)", figures, wanted))
    assert ratio < times_engine


@pytest.mark.parametrize("requests", [10_000, 100_000, 400_000])
def test_memory_is_linear(benchmark: Any, requests: int) -> None:
    """A storm may send many attempts, and each costs its row and no more."""
    work = load(requests, OVERLOAD_PER_S)
    tracemalloc.start()
    run = simulate_service(work, COST, STANDARD, **CLIENTS, **GATE)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    benchmark.pedantic(lambda: None)
    rows = len(run.attempts) + len(run)
    allowed = 130 * rows + 40 * run.step_end_s.size + 1_000_000
    figures = f"{peak / rows:.0f} at the peak, {held / rows:.0f} held"
    ROWS.append((f"{requests:,} requests: bytes a request or attempt", figures, "flat"))
    assert peak < 2 * allowed


def test_a_policy_in_plain_python(benchmark: Any) -> None:
    """A student's gate, 2,000 requests: fast enough to try a second idea."""

    def own(request: Any, state: Any) -> str:
        return "reject" if state.predicted_wait_s > 3.0 else "accept"

    work = load(2000, OVERLOAD_PER_S)

    def run() -> Any:
        return simulate_service(work, COST, STANDARD, **CLIENTS, admission=own)

    benchmark.pedantic(run, rounds=2, iterations=1)
    plain_s = benchmark.stats.stats.min
    built_in_s = best_s(lambda: simulate_service(work, COST, STANDARD, **CLIENTS, **GATE), 5)
    figures = f"{plain_s:.2f} s, {plain_s / built_in_s:,.0f} x compiled"
    ROWS.append(("2,000 requests, a student's policy", figures, "<= 2 s"))


def test_a_slider_move(benchmark: Any) -> None:
    """One run of an explorer, its summary included."""
    work = load(2000, OVERLOAD_PER_S)

    def move() -> Any:
        run = simulate_service(work, COST, STANDARD, **CLIENTS, **GATE)
        return run.attainment, run.timeseries(1.0), run.summary().counts

    benchmark.pedantic(move, rounds=15, iterations=1, warmup_rounds=1)
    figures = f"{1e3 * benchmark.stats.stats.min:.1f} ms"
    ROWS.append(("2,000 requests, with the time series", figures, ""))
