"""Compiles the loops ahead of the first lesson: `warm_steps`; it decides nothing about a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from course.serving.engine import modes
from course.serving.engine.clients import Retry
from course.serving.engine.config import EngineConfig
from course.serving.engine.run import Run
from course.serving.engine.simulation import simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Workload

if TYPE_CHECKING:
    from course.serving.engine.service_run import ServiceRun


def warm_steps() -> list[tuple[str, Callable[[], object]]]:
    """Return (label, function) pairs; calling all compiles everything the engine may need.

    What is compiled is kept on disk, so that later processes start at once.

    >>> [label for label, _ in warm_steps()][0]
    'continuous batching'
    """
    return [
        ("continuous batching", lambda: _read(_run(EngineConfig()))),
        ("static batching", lambda: _run(EngineConfig(batching=modes.static(2)))),
        ("clients who give up, and a gate", _serve),
    ]


def _run(config: EngineConfig) -> Run:
    work = Workload([0.0, 0.0, 1.0], prompt_tokens=[40, 9, 9], output_tokens=[30, 3, 1])
    return simulate(work, LinearStepCost(fixed_s=0.01), config)


def _serve() -> ServiceRun:
    from course.serving.engine.service import simulate_service

    work = Workload([0.0, 0.0, 1.0], prompt_tokens=[40, 9, 9], output_tokens=[30, 3, 1])
    return simulate_service(work, LinearStepCost(fixed_s=0.01), retry=Retry(2, jitter=0.5))


def _read(run: Run) -> object:
    run.token_times(0)
    itl = run.summary().itl
    return itl.p50 if itl is not None else None
