"""The seconds, bytes and money of a step, linear or by the roofline; no clock lives here."""

from course.serving.pricing.linear import (
    COEFFICIENTS,
    DEFAULTS,
    Constants,
    DoesNotFitError,
    KernelCost,
    LinearStepCost,
    StepCost,
    StepFeatures,
)
from course.serving.pricing.roofline import (
    BYTES,
    IDEAL,
    RESERVE_BYTES,
    WEIGHT_BYTES,
    Load,
    NotCoveredError,
    RooflineStepCost,
)

__all__ = [
    "BYTES",
    "COEFFICIENTS",
    "DEFAULTS",
    "IDEAL",
    "RESERVE_BYTES",
    "WEIGHT_BYTES",
    "Constants",
    "DoesNotFitError",
    "KernelCost",
    "LinearStepCost",
    "Load",
    "NotCoveredError",
    "RooflineStepCost",
    "StepCost",
    "StepFeatures",
]
