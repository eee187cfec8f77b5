"""Exercise 3.1, Which batch brings the whole step to the ridge."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number
from course.serving import catalog
from course.serving.pricing import BYTES


def ridge_batch(
    parameters: float,
    weight_bytes: float,
    kv_bytes_per_token: float,
    context_tokens: float,
    bytes_per_s: float,
    flop_per_s: float,
) -> float:
    """Batch at which a decode step computes for as long as it reads; math.inf if there is none.

    parameters: weights a token is multiplied with; weight_bytes: bytes of all of them;
    kv_bytes_per_token: bytes of KV cache a token of context; context_tokens: of each sequence;
    bytes_per_s, flop_per_s: what the card can read and compute. Not rounded.
    """
    weights_s = weight_bytes / bytes_per_s
    cache_s = kv_bytes_per_token * context_tokens / bytes_per_s
    compute_s = 2 * parameters / flop_per_s
    if compute_s <= cache_s:
        return math.inf
    return weights_s / (compute_s - cache_s)


def one_operation_a_weight(
    parameters, weight_bytes, kv_bytes_per_token, context_tokens, bytes_per_s, flop_per_s
):
    """A multiplication for each weight, and no addition."""
    weights_s = weight_bytes / bytes_per_s
    cache_s = kv_bytes_per_token * context_tokens / bytes_per_s
    compute_s = parameters / flop_per_s
    if compute_s <= cache_s:
        return math.inf
    return weights_s / (compute_s - cache_s)


def cache_forgotten(
    parameters, weight_bytes, kv_bytes_per_token, context_tokens, bytes_per_s, flop_per_s
):
    """The weights alone, as if nobody had a context."""
    return (weight_bytes / bytes_per_s) / (2 * parameters / flop_per_s)


def cache_shared_like_weights(
    parameters, weight_bytes, kv_bytes_per_token, context_tokens, bytes_per_s, flop_per_s
):
    """One cache, read for everybody as the weights are."""
    read_bytes = weight_bytes + kv_bytes_per_token * context_tokens
    return (read_bytes / bytes_per_s) / (2 * parameters / flop_per_s)


def intensity_for_batch(
    parameters, weight_bytes, kv_bytes_per_token, context_tokens, bytes_per_s, flop_per_s
):
    """The card's own ridge, taken for a number of sequences."""
    return flop_per_s / bytes_per_s


def batch_below_zero(
    parameters, weight_bytes, kv_bytes_per_token, context_tokens, bytes_per_s, flop_per_s
):
    """The formula, followed where it leaves the world."""
    cache_s = kv_bytes_per_token * context_tokens / bytes_per_s
    return (weight_bytes / bytes_per_s) / (2 * parameters / flop_per_s - cache_s)


@dataclass(frozen=True)
class Batch(Number):
    """A number of sequences, or infinity where no batch will do; which of them is not told.

    >>> Batch("sequences", may_be_infinite=True).magnitude(math.inf)
    ''
    """

    def magnitude(self, value: Any) -> str:
        """Two digits of a finite batch, nothing of an infinite one."""
        return super().magnitude(value) if math.isfinite(value) else ""


_SERVERS = (
    ("H100-80GB-SXM", "Llama-3.1-8B", "bf16", 0.5),
    ("H100-80GB-SXM", "Llama-3.1-8B", "bf16", 5.0),
    ("A100-80GB-SXM", "Llama-2-7B", "bf16", 0.3),
    ("B200-180GB-SXM", "Llama-3.1-70B", "fp8", 0.6),
    ("RTX-4090", "Qwen3-8B", "bf16", 0.8),
    ("L40S", "Llama-3.1-8B", "fp8", 2.0),
    ("H100-80GB-SXM", "Qwen2.5-32B", "fp8", 0.4),
)


def _cards_and_contexts(rng: np.random.Generator) -> list[dict[str, float]]:
    """Contexts from a third of the length at which the ridge moves out of reach to well beyond."""
    cases = []
    for gpu_name, model_name, precision, share in _SERVERS:
        gpu, shape = catalog.gpu(gpu_name), catalog.model(model_name)
        kv_bytes = float(shape.kv_bytes_per_token())
        peak, bandwidth = gpu.peak_flop_per_s(precision), gpu.bandwidth_bytes_per_s
        last_context = 2 * shape.active_parameters / peak * bandwidth / kv_bytes
        cases.append(
            {
                "parameters": float(shape.active_parameters),
                "weight_bytes": float(shape.streamed_parameters * BYTES[precision]),
                "kv_bytes_per_token": kv_bytes,
                "context_tokens": float(round(share * rng.uniform(0.9, 1.1) * last_context)),
                "bytes_per_s": bandwidth,
                "flop_per_s": peak,
            }
        )
    return cases


EXERCISE = function_exercise(
    "3.1",
    title="Which batch brings the whole step to the ridge",
    question=(
        "One decode step reads the weights once, for all sequences together, and each "
        "sequence's own KV cache. For each sequence it computes two operations (a multiply "
        "and an add) a weight. At which batch does computing last exactly as long as reading? "
        "(This is the ridge of the *whole step*: the matrices alone reach theirs sooner.) "
        "Count the arithmetic of the matrices only, and take the data sheet at its word. For "
        "long contexts no batch gets there: give `math.inf` for those."
    ),
    kind="compute",
    minutes=6,
    difficulty=2,
    reference=ridge_batch,
    cases=_cards_and_contexts,
    result=Batch("sequences", noun="a number of sequences (or math.inf)", may_be_infinite=True),
    wrong={
        one_operation_a_weight: (
            "You count one operation a weight. A token's number is multiplied by the weight "
            "*and* added to the sum: two operations, as the data sheet counts them too."
        ),
        cache_forgotten: (
            "You let a step read the weights alone. That is the ridge of the matrices, and it "
            "does not depend on the context; but every sequence also brings a cache to read, "
            "so each one adds seconds to both sides of your equation."
        ),
        cache_shared_like_weights: (
            "You read one cache for the whole batch. The weights are the same for everybody "
            "and are shared; a KV cache belongs to one sequence. Reading caches grows with "
            "the batch just as computing does."
        ),
        intensity_for_batch: (
            "That is the card's ridge in *operations a byte*. It happens to equal a number of "
            "sequences where a weight has two bytes and nobody has a context: two operations "
            "for two bytes. Neither holds for all inputs here."
        ),
        batch_below_zero: (
            "Right where the ridge can be reached. Where one sequence's cache takes longer to "
            "read than its token takes to compute, your batch is negative: more sequences "
            "only lead away from the ridge, and the answer is math.inf."
        ),
    },
    hints=(
        "Write down the seconds of computing and the seconds of reading for a batch of b. In "
        "which terms does b stand?",
        "b · compute_s = weights_s + b · cache_s, with the seconds of one sequence in "
        "compute_s and cache_s.",
        "b = weights_s / (compute_s − cache_s), and math.inf unless compute_s > cache_s.",
    ),
    explanation=(
        "A batch shares the weights and nothing else. On an H100 the ridge of an "
        "8-billion-parameter model is at 295 sequences without a context, and out of reach "
        "from 388 tokens of context on. The matrices alone meet theirs at 295 whatever the "
        "context: up to there a larger batch shares the reading of the weights."
    ),
)
