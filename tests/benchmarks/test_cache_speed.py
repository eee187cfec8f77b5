"""How fast the engine is with a prefix cache by blocks, beside the reference in the same run.

A trace of long shared prompts: eight system prompts of 6,000 tokens, questions of a few hundred.
Nothing here fails on a slow machine: what fails is a ratio that only a change of the loop explains.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest

from course.serving.engine import EngineConfig, Speculation, modes, simulate, warm_steps
from course.serving.pricing import LinearStepCost
from course.serving.workload import Lognormal, Poisson, Prefixes, Workload, draw
from tests.reference_engine import reference_simulate

COEFFICIENTS = (0.010, 2e-5, 0.0, 1e-4, 1e-8)
COST = LinearStepCost(*COEFFICIENTS)
SHARED = 6_144
REQUESTS = 40_000
ROWS: list[tuple[str, str, str]] = []


def shared_prompts(requests: int) -> Workload:
    """Questions behind one of eight long system prompts, at a rate that the server bears."""
    work = draw(requests, Poisson(8.0), Lognormal(5.5, 0.8), Lognormal(4.0, 0.7), seed=0)
    group = np.random.default_rng(1).integers(0, 8, requests)
    return Workload(
        work.arrival_s,
        work.prompt_tokens + SHARED,
        work.output_tokens,
        prefixes=Prefixes.groups(group, SHARED),
    )


@pytest.fixture(scope="module", autouse=True)
def table(request: pytest.FixtureRequest) -> Iterator[None]:
    for _, step in warm_steps():
        step()
    yield
    lines = [f"{'the engine of today':56s}{'measured':>34s}{'wanted':>14s}"]
    lines += [f"  {name:54s}{measured:>34s}{wanted:>14s}" for name, measured, wanted in ROWS]
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else nullcontext():
        print("\n\n" + "\n".join(lines))


@pytest.mark.parametrize(("size", "wanted"), [(16, ">= 20,000"), (512, ">= 100,000")])
def test_long_shared_prompts(benchmark: Any, size: int, wanted: str) -> None:
    """Several hundred blocks a request are found, held and given back."""
    work = shared_prompts(REQUESTS)
    config = EngineConfig(
        num_kv_blocks=500_000 // size, block_size=size, enable_prefix_caching=True
    )
    run = simulate(work, COST, config)
    assert run.prefix_hit_share is not None
    assert run.prefix_hit_share > 0.8
    benchmark.pedantic(lambda: simulate(work, COST, config), rounds=3, iterations=1)
    part = work.first(40)
    began = time.perf_counter()
    reference_simulate(
        part.arrival_s.tolist(),
        part.prompt_tokens.tolist(),
        part.output_tokens.tolist(),
        COEFFICIENTS,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
        num_kv_blocks=500_000 // size,
        block_size=size,
        enable_prefix_caching=True,
        prefix_group=part.prefixes.names.tolist(),  # type: ignore[union-attr]
        prefix_shared_tokens=[SHARED] * 40,
    )
    slow_per_s = 40 / (time.perf_counter() - began)
    per_s = REQUESTS / benchmark.stats.stats.min
    figures = f"{per_s:,.0f} req/s, {per_s / slow_per_s:,.0f} x the reference"
    ROWS.append((f"shared prompts, blocks of {size} tokens", figures, wanted))
    assert per_s > 20 * slow_per_s


@pytest.mark.parametrize(
    ("name", "dials"),
    [
        ("asynchronous scheduling", {"async_scheduling": True}),
        ("SGLang's way", {"batching": modes.sglang(), "num_kv_blocks": 4000}),
        ("four guesses a step", {"speculation": Speculation(4, 0.7)}),
    ],
)
def test_the_other_dials(benchmark: Any, name: str, dials: dict[str, Any]) -> None:
    """A dial of today costs no more than a few times what the plain engine does."""
    work = draw(REQUESTS, Poisson(8.0), Lognormal(5.5, 0.8), Lognormal(4.76, 0.7), seed=0)
    config = EngineConfig(**dials)
    simulate(work, COST, config)
    benchmark.pedantic(lambda: simulate(work, COST, config), rounds=3, iterations=1)
    spent = []
    for _ in range(3):
        began = time.perf_counter()
        simulate(work, COST)
        spent.append(time.perf_counter() - began)
    ratio = benchmark.stats.stats.min / min(spent)
    per_s = REQUESTS / benchmark.stats.stats.min
    ROWS.append((name, f"{per_s:,.0f} req/s, {ratio:.1f} x plain", ""))
    assert ratio < 60
