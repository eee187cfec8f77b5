"""What a step's cost is to the engine: features in, seconds out; no formula lives here.

The public address of these names is `course.serving.pricing`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

LINEAR, ROOFLINE = 1, 2
"""Codes of `LinearStepCost` and `RooflineStepCost` inside the compiled step loops."""

COEFFICIENTS = {LINEAR: 5, ROOFLINE: 8}
"""How many numbers each formula of the compiled step loops has."""


class StepFeatures(NamedTuple):
    """The four counts of a step that its cost may depend on.

    `prefill_tokens`: prompt (and recomputed) tokens computed in the step.
    `prefill_pairs`: for each of those tokens the context it attends to, itself included, summed.
    `decode_seqs`: sequences that make one more token from their cache.
    `kv_tokens`: cached tokens those sequences read.
    """

    prefill_tokens: int
    prefill_pairs: int
    decode_seqs: int
    kv_tokens: int


class KernelCost(NamedTuple):
    """A cost as the compiled loop takes it: which formula, and its numbers in order."""

    code: int
    coefficients: tuple[float, ...]


class StepCost(Protocol):
    """Anything that prices a step: one method, seconds from features.

    A cost that also has `kernel_form()`, returning a `KernelCost`, runs in the compiled loop.
    """

    def step_seconds(self, features: StepFeatures, /) -> float:
        """Return the seconds that a step with these features lasts; must be above 0."""
        ...
