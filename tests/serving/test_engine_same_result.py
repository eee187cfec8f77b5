"""One input has one result, bit for bit: compiled or not, in this process or another, by whichever
loop. Otherwise a figure in a lesson could not be found again, and no student could check it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from course.serving.engine import (
    EngineConfig,
    Run,
    modes,
    simulate,
    simulate_closed,
    simulation,
)
from course.serving.engine.kernels import steps as kernels
from course.serving.pricing import LinearStepCost
from course.serving.workload import Lognormal, Poisson, Workload, draw
from tests.engine_strategies import engine_cases
from tests.lanes import examples
from tests.serving.engine_cases import not_static, run_of

COST = LinearStepCost(0.010, 2e-5, 1e-9, 1e-4, 1e-8)


def facts(run: Run) -> dict[str, bytes]:
    """Everything a run holds, as bytes."""
    arrays: dict[str, Any] = {
        "arrival": run.arrival_s,
        "status": run.status,
        "scheduled": run.scheduled_s,
        "first": run.first_token_s,
        "finish": run.finish_s,
        "preemptions": run.preemptions,
        "emitted": run.emitted_tokens,
        "step end": run.step_end_s,
        "prefill": run.step_prefill_tokens,
        "decode": run.step_decode_seqs,
        "blocks": run.step_kv_blocks,
        "user": run.user,
        "batch": run.batch,
        "tokens": np.concatenate([np.empty(0), *(run.token_times(i) for i in range(len(run)))]),
    }
    return {name: b"" if array is None else array.tobytes() for name, array in arrays.items()}


def busy(requests: int = 400) -> Workload:
    return draw(requests, Poisson(20.0), Lognormal(5.5, 0.8), Lognormal(4.0, 0.7), seed=11)


def standard_digest() -> str:
    """The digest of three busy runs; also printed by another process."""
    digest = hashlib.sha256()
    for config in (
        EngineConfig(num_kv_blocks=700),
        EngineConfig(num_kv_blocks=700, order="sjf"),
        EngineConfig(batching=modes.static(8), max_num_batched_tokens=700),
    ):
        for content in facts(simulate(busy(), COST, config)).values():
            digest.update(content)
    return digest.hexdigest()


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(engine_cases(closed=None))
def test_compiled_and_plain_runs_agree_exactly(case: dict[str, Any]) -> None:
    """A student's policy runs in the plain loop: it must be compared with the same engine."""
    assert facts(run_of(case)) == facts(run_of(case, compiled=False))


def test_they_agree_exactly_with_costs_that_round() -> None:
    """A fused or reordered multiply-add would show here."""
    for config in (EngineConfig(num_kv_blocks=700), EngineConfig(enable_chunked_prefill=False)):
        work = busy(150)
        assert facts(simulate(work, COST, config)) == facts(
            simulate(work, COST, config, compiled=False)
        )


@settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
@given(engine_cases(closed=None, batching="continuous"))
def test_the_quick_loop_is_the_general_loop(case: dict[str, Any]) -> None:
    """The O(1) step is a shortcut; it must end where the request-by-request rules end."""
    quick = facts(run_of(case))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "_needs_the_general_loop", not_static)
        slow = facts(run_of(case))
    assert quick == slow


def test_a_busy_run_is_the_same_in_the_general_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hundreds of preemptions, thousands of steps: no drift between the two loops."""
    config = EngineConfig(num_kv_blocks=500)
    quick = simulate(busy(2000), COST, config)
    assert quick.preemptions.sum() > 200
    monkeypatch.setattr(simulation, "_needs_the_general_loop", not_static)
    assert facts(quick) == facts(simulate(busy(2000), COST, config))


def test_room_for_the_log_makes_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop that is stopped and gone on with must not notice."""
    config = EngineConfig(num_kv_blocks=500)
    at_once = facts(simulate(busy(), COST, config))
    small = simulation._empty_log

    def tiny(rules: Any, requests: int) -> Any:
        log = small(rules, requests)
        return log._replace(
            step_end_s=np.empty(3), step_work=np.empty(3, dtype=np.int64), gaps=log.gaps[:70].copy()
        )

    def a_little_longer(log: Any, state: Any, *_: Any) -> Any:
        steps, rows = int(state.at[kernels.STEPS]), int(state.at[kernels.GAPS])
        return log._replace(
            step_end_s=simulation._resized(log.step_end_s, steps, steps + 7),
            step_work=simulation._resized(log.step_work, steps, steps + 7),
            gaps=simulation._resized(log.gaps, rows, rows + 70),
        )

    monkeypatch.setattr(simulation, "_empty_log", tiny)
    monkeypatch.setattr(simulation, "_longer", a_little_longer)
    assert facts(simulate(busy(), COST, config)) == at_once


@pytest.mark.slow
@pytest.mark.parametrize("environment", [{}, {"NUMBA_DISABLE_JIT": "1"}])
def test_another_process_gives_the_same_bytes(environment: dict[str, str]) -> None:
    """Also with the compiler switched off altogether."""
    code = "from tests.serving.test_engine_same_result import standard_digest as d; print(d())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=240,
    )
    assert done.stdout.strip() == standard_digest()


@pytest.mark.slow
def test_the_first_call_of_a_process_finds_compiled_code_on_disk() -> None:
    """A lesson must not begin with half a minute of compiling."""
    standard_digest()
    code = """
from tests.serving.test_engine_same_result import standard_digest
from course.serving.engine.kernels import steps as kernels
standard_digest()
for loop in (kernels.run_continuous, kernels.run_batches, kernels.close_run, kernels.pool_gaps):
    stats = loop.stats
    assert not stats.cache_misses, (loop.__name__, stats)
print(sum(kernels.run_continuous.stats.cache_hits.values()))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=240,
    )
    assert int(done.stdout) == 1


def test_each_loop_is_compiled_once() -> None:
    """Another kind of array (read-only, strided) would compile a loop anew in a lesson."""
    run = simulate(busy(30), COST, EngineConfig(num_kv_blocks=500), horizon_s=1.0)
    assert run.summary().itl is not None
    assert run.summary(window=run.window()).itl is not None
    simulate(busy(30).scaled(3.0).first(10), COST)
    simulate(busy(30), COST, EngineConfig(front_end_s=0.01))
    simulate_closed(3, 0.5, busy(30), COST, EngineConfig(front_end_s=0.01))
    for name in ("run_continuous", "run_batches", "close_run", "pool_gaps"):
        assert len(getattr(kernels, name).signatures) <= 1, name
