"""What must hold on every run, whatever the workload, the way to batch, the order or the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course.serving.engine import EngineConfig, modes, simulate, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.requests import Status
from course.serving.workload import Gamma, Lognormal, Workload, draw
from tests.engine_invariants import check_invariants
from tests.engine_strategies import BATCHINGS, ORDERS, engine_cases
from tests.lanes import examples
from tests.serving.engine_cases import run_of

EASY = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(EASY, max_examples=examples(400))
@given(engine_cases(closed=None, max_requests=40))
def test_every_run_keeps_the_rules(case: dict[str, Any]) -> None:
    """Nothing is lost, time runs forwards, limits are kept, Little's law holds."""
    check_invariants(run_of(case), case)


@pytest.mark.slow
@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize("order", ORDERS)
def test_every_mode_with_every_order_keeps_the_rules(batching: str, order: str) -> None:
    @settings(EASY, max_examples=examples(30))
    @given(engine_cases(closed=None, batching=batching, order=order))
    def check(case: dict[str, Any]) -> None:
        check_invariants(run_of(case), case)

    check()


@settings(EASY, max_examples=examples(200))
@given(engine_cases(pressed=True, max_requests=40))
def test_runs_under_memory_pressure_keep_the_rules(case: dict[str, Any]) -> None:
    check_invariants(run_of(case), case)


BIG = Lognormal(5.5, 0.8), Lognormal(4.76, 0.7)
COST = LinearStepCost(0.010, 2e-5, 1e-9, 1e-4, 1e-8)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(),
        EngineConfig(num_kv_blocks=900),
        EngineConfig(enable_chunked_prefill=False, max_num_batched_tokens=9000),
        EngineConfig(order="sjf", num_kv_blocks=900),
        EngineConfig(order="priority", num_kv_blocks=900),
        EngineConfig(batching=modes.static(16)),
        EngineConfig(batching=modes.adaptive(0.05)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("closed", [False, True])
def test_a_large_run_keeps_the_rules(config: EngineConfig, closed: bool) -> None:
    """Random small cases never fill a thousand seats' worth of log; this does."""
    work = draw(3000, Gamma(18.0, 0.5), *BIG, seed=4)
    run = (
        simulate_closed(60, 0.5, work, COST, config)
        if closed
        else simulate(work, COST, config, horizon_s=150.0)
    )
    case = {
        "prompt_tokens": work.prompt_tokens.tolist(),
        "output_tokens": work.output_tokens.tolist(),
        "cost": (0.010, 2e-5, 1e-9, 1e-4, 1e-8),
        "max_num_seqs": config.max_num_seqs,
        "max_num_batched_tokens": config.max_num_batched_tokens,
        "enable_chunked_prefill": config.enable_chunked_prefill,
        "num_kv_blocks": config.num_kv_blocks,
        "block_size": config.block_size,
        "batching": config.way.name,
        "horizon_s": None if closed else 150.0,
        "arrival_s": run.arrival_s.tolist(),
    }
    if config.way.batch_size is not None:
        case["batch_size"] = config.way.batch_size
    check_invariants(run, case)


@settings(EASY, max_examples=examples(60))
@given(st.lists(st.integers(1, 60), min_size=1, max_size=30), st.integers(1, 5))
def test_kv_blocks_that_are_plenty_are_no_limit(outputs: list[int], block_size: int) -> None:
    """The bookkeeping of blocks must not touch the clock."""
    n = len(outputs)
    work = Workload(np.arange(n) * 0.02, np.arange(1, n + 1), outputs)
    free = simulate(work, COST, EngineConfig(block_size=block_size))
    plenty = simulate(work, COST, EngineConfig(num_kv_blocks=10**6, block_size=block_size))
    assert free.step_end_s.tobytes() == plenty.step_end_s.tobytes()
    assert free.finish_s.tobytes() == plenty.finish_s.tobytes()


def test_memory_is_what_the_steps_and_requests_need() -> None:
    """A million requests must fit into a laptop: 40 bytes a request, 16 a step, and all token
    times still at hand."""
    import tracemalloc

    work = draw(100_000, Gamma(8.0, 1.0), *BIG, seed=0)
    simulate(work.first(100), COST)
    tracemalloc.start()
    run = simulate(work, COST)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held <= 40 * len(work) + 16 * run.step_end_s.size + 100_000
    assert run.token_times(99_999).size == work.output_tokens[-1]
    assert (run.status == Status.FINISHED).all()
