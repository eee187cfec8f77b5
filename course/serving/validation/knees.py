"""Knees that the engine predicts beside knees that a real server showed; nothing is fitted here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from course.serving import catalog
from course.serving.catalog import MeasuredPoint
from course.serving.engine import EngineConfig
from course.serving.load import (
    DrawnTraffic,
    Knee,
    MeasuredSweep,
    Method,
    Scenario,
    measured_sweeps,
    rows_of_points,
    sweep,
)
from course.serving.pricing import StepCost
from course.serving.workload import Fixed

if TYPE_CHECKING:
    import pandas as pd

GPU, MODEL = "H100-80GB-SXM", "Qwen3-8B"
BLOCK = 16
SEATS, BUDGET = 1024, 8192
"""The server's own are not recorded. Its pace slows down to 512 users, so that it has more seats
than that; 1,024 and 8,192 are vLLM's defaults on such a card."""

LEAST_REQUESTS = 48
"""Of a point with few users, who all behave the same."""


@dataclass(frozen=True)
class PredictedKnee:
    """One sweep's knee by one method: measured, predicted, and the sweep that was measured."""

    sweep: MeasuredSweep
    measured: Knee
    predicted: Knee

    @property
    def ratio(self) -> float | None:
        """Predicted over measured load of the knee; None where either has none."""
        if self.measured.load is None or self.predicted.load is None:
            return None
        return self.predicted.load / self.measured.load


def roofline(precision: str) -> StepCost:
    """Return the cost of a step of Qwen3-8B on one H100 from data sheets and the course's fit."""
    from course.serving.pricing import RooflineStepCost

    return RooflineStepCost(MODEL, GPU, precision=precision)


def predicted_knees(
    method: Method = "plateau", cost_of: Callable[[str], StepCost] = roofline
) -> tuple[PredictedKnee, ...]:
    """Return the knees of the measured H100 Qwen3-8B sweeps beside the engine's.

    The engine gets the same users, the same lengths and the measured server's own KV pool, and its
    curve is judged by the same rule at the same loads. `cost_of`: the cost of a step for a
    precision, "bf16" or "fp8"; by default constants that were fitted to throughputs, these sweeps'
    among them, and to no knee.

    >>> len(predicted_knees())
    7
    """
    groups: dict[tuple[object, ...], list[MeasuredPoint]] = {}
    for point in catalog.measured_points(gpu=GPU, model=MODEL, n_gpus=1, load="closed loop"):
        key = (point.precision, point.prompt_tokens, point.output_tokens)
        groups.setdefault(key, []).append(point)
    found = []
    for points in groups.values():
        (measured,) = measured_sweeps(rows_of_points(points))
        engine = sweep(
            scenario_of(points[0], cost_of(points[0].precision)), measured.loads, seeds=[0]
        )
        found.append(PredictedKnee(measured, measured.knee(method), engine.knee(method)))
    return tuple(found)


def scenario_of(point: MeasuredPoint, cost: StepCost) -> Scenario:
    """Return the closed loop that a measured point was part of, with the server's KV pool.

    Raises ValueError for a point without lengths or without a recorded pool.
    """
    if point.kv_pool_tokens is None or point.prompt_tokens is None or point.output_tokens is None:
        raise ValueError(
            f"point={point!r} lacks its lengths or its KV pool; take one that has them"
        )
    return Scenario(
        cost,
        DrawnTraffic(Fixed(int(point.prompt_tokens)), Fixed(int(point.output_tokens))),
        EngineConfig(SEATS, BUDGET, num_kv_blocks=point.kv_pool_tokens // BLOCK, block_size=BLOCK),
        loop="closed",
        requests=LEAST_REQUESTS,
    )


def knees_frame(found: tuple[PredictedKnee, ...]) -> pd.DataFrame:
    """Return one row a sweep: the knee measured, predicted, and their ratio."""
    import pandas as pd

    return pd.DataFrame(
        {
            "sweep": [row.sweep.name for row in found],
            "measured": [row.measured.load for row in found],
            "predicted": [row.predicted.load for row in found],
            "ratio": [row.ratio for row in found],
        }
    ).set_index("sweep")
