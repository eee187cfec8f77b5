"""What one engine step costs in seconds, from four features of the step; no clock lives here.

A step is whatever the scheduler put together; a cost sees only its `StepFeatures`, so costs and
schedulers can be exchanged freely. `LinearStepCost` takes five prices as they are given;
`RooflineStepCost`, in `roofline`, works them out from a model and a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from course.serving._arguments import at_least
from course.serving.pricing.forms import (
    COEFFICIENTS,
    LINEAR,
    ROOFLINE,
    KernelCost,
    StepCost,
    StepFeatures,
)
from course.serving.pricing.roofline import (
    DEFAULTS,
    Constants,
    DoesNotFitError,
    NotCoveredError,
    RooflineStepCost,
    StepParts,
)

__all__ = [
    "COEFFICIENTS",
    "DEFAULTS",
    "LINEAR",
    "ROOFLINE",
    "Constants",
    "DoesNotFitError",
    "KernelCost",
    "LinearStepCost",
    "NotCoveredError",
    "RooflineStepCost",
    "StepCost",
    "StepFeatures",
    "StepParts",
]


@dataclass(frozen=True)
class LinearStepCost:
    """A step's seconds as a straight sum: a fixed part and one price per feature.

    All five are seconds, finite and at least 0, and not all of them 0; ValueError otherwise.
    The sum is taken from left to right in the order of the fields.

    >>> cost = LinearStepCost(fixed_s=0.010, per_prefill_token_s=3e-5, per_decode_seq_s=1e-4)
    >>> cost.step_seconds(StepFeatures(100, 5050, 20, 8000))
    0.015000000000000001
    """

    fixed_s: float = 0.0
    per_prefill_token_s: float = 0.0
    per_prefill_pair_s: float = 0.0
    per_decode_seq_s: float = 0.0
    per_kv_token_s: float = 0.0

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, at_least(field.name, getattr(self, field.name)))
        if not any(getattr(self, field.name) for field in fields(self)):
            raise ValueError(
                "fixed_s=0.0 and every other price is 0 too, so a step would last 0 s; "
                "give at least one price above 0"
            )

    def step_seconds(self, features: StepFeatures, /) -> float:
        """Return the seconds of a step with these features."""
        return (
            self.fixed_s
            + self.per_prefill_token_s * features.prefill_tokens
            + self.per_prefill_pair_s * features.prefill_pairs
            + self.per_decode_seq_s * features.decode_seqs
            + self.per_kv_token_s * features.kv_tokens
        )

    def kernel_form(self) -> KernelCost:
        """Return the formula's code and its five prices."""
        return KernelCost(
            LINEAR,
            (
                self.fixed_s,
                self.per_prefill_token_s,
                self.per_prefill_pair_s,
                self.per_decode_seq_s,
                self.per_kv_token_s,
            ),
        )
