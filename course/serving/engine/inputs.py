"""Checks of what every run is given, and what is said of a step that has no price; nothing runs."""

from __future__ import annotations

from course.serving.engine.config import EngineConfig
from course.serving.pricing import COEFFICIENTS, KernelCost, StepCost, StepFeatures
from course.serving.workload import Workload


def check_kinds(work: object, cost: object, config: object) -> None:
    """Raise ValueError unless the three are what they are taken for."""
    if not isinstance(work, Workload):
        raise ValueError(f"work={work!r} is not a Workload; make one, as Workload([0.0], [9], [2])")
    if not callable(getattr(cost, "step_seconds", None)):
        raise ValueError(f"cost={cost!r} has no step_seconds(features); give a LinearStepCost")
    if not isinstance(config, EngineConfig):
        raise ValueError(f"config={config!r} is not an EngineConfig; make one, as EngineConfig()")


def kernel_form(cost: StepCost) -> KernelCost | None:
    """Return the cost as the compiled loops know it; None for a caller's own."""
    in_loops = getattr(cost, "kernel_form", None)
    if not callable(in_loops):
        return None
    form: KernelCost = in_loops()
    length = COEFFICIENTS.get(form.code)
    if length != len(form.coefficients):
        raise ValueError(
            f"cost={cost!r} has kernel_form() {form!r}, which the loops do not know (they know "
            f"code: coefficients {COEFFICIENTS}); leave kernel_form out to run step_seconds itself"
        )
    return form


def price_of(form: KernelCost | None) -> tuple[float, ...]:
    """Return the coefficients as the loops take them, always as many; all 0 for a caller's own."""
    coefficients = form.coefficients if form else ()
    return coefficients + (0.0,) * (max(COEFFICIENTS.values()) - len(coefficients))


def unpriced_step(cost: StepCost, features: StepFeatures, now_s: float) -> ValueError:
    """Return what is wrong with a step that lasts no time, or for ever."""
    seconds = cost.step_seconds(features)
    if 0 < seconds < float("inf"):
        return ValueError(
            f"cost={cost!r} gives {seconds!r} s for the step at {now_s} s with {features}, and a "
            "clock cannot count so far; give a cost in seconds"
        )
    return ValueError(
        f"cost={cost!r} gives {seconds!r} s for the step at {now_s} s with {features}; a step must "
        "last a finite time above 0 s, so give it a fixed part or a price for what this step does"
    )
