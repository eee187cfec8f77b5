"""Exercises 3.1 and 3.2: the batch at which a step leaves memory's side, and a step too long.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Number, plain
from course.serving import catalog
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import BYTES, LinearStepCost
from course.serving.workload import Workload

# --- 3.1 the ridge ------------------------------------------------------------------------------


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
    parameters: float,
    weight_bytes: float,
    kv_bytes_per_token: float,
    context_tokens: float,
    bytes_per_s: float,
    flop_per_s: float,
) -> float:
    """A multiplication for each weight, and no addition."""
    weights_s = weight_bytes / bytes_per_s
    cache_s = kv_bytes_per_token * context_tokens / bytes_per_s
    compute_s = parameters / flop_per_s
    if compute_s <= cache_s:
        return math.inf
    return weights_s / (compute_s - cache_s)


def cache_forgotten(
    parameters: float,
    weight_bytes: float,
    kv_bytes_per_token: float,
    context_tokens: float,
    bytes_per_s: float,
    flop_per_s: float,
) -> float:
    """The weights alone, as if nobody had a context."""
    return (weight_bytes / bytes_per_s) / (2 * parameters / flop_per_s)


def cache_read_once(
    parameters: float,
    weight_bytes: float,
    kv_bytes_per_token: float,
    context_tokens: float,
    bytes_per_s: float,
    flop_per_s: float,
) -> float:
    """One cache, read for everybody as the weights are."""
    read_bytes = weight_bytes + kv_bytes_per_token * context_tokens
    return (read_bytes / bytes_per_s) / (2 * parameters / flop_per_s)


def operations_per_byte(
    parameters: float,
    weight_bytes: float,
    kv_bytes_per_token: float,
    context_tokens: float,
    bytes_per_s: float,
    flop_per_s: float,
) -> float:
    """The card's own ridge, taken for a number of sequences."""
    return flop_per_s / bytes_per_s


def beyond_the_last_batch(
    parameters: float,
    weight_bytes: float,
    kv_bytes_per_token: float,
    context_tokens: float,
    bytes_per_s: float,
    flop_per_s: float,
) -> float:
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


# --- 3.2 a step that is too long ----------------------------------------------------------------


def context_needed_tokens(
    itl_alone_s: float,
    itl_together_s: float,
    batch: int,
    kv_bytes_per_token: float,
    bytes_per_s: float,
) -> float:
    """Context of each sequence, in tokens, if KV reads alone made the step longer.

    itl_alone_s, itl_together_s: one decode step with a single sequence and with `batch` of them,
    all of one context; kv_bytes_per_token: bytes of cache for each token of context;
    bytes_per_s: what the card reads.
    """
    more_bytes = (itl_together_s - itl_alone_s) * bytes_per_s
    return more_bytes / ((batch - 1) * kv_bytes_per_token)


def alone_reads_nothing(
    itl_alone_s: float,
    itl_together_s: float,
    batch: int,
    kv_bytes_per_token: float,
    bytes_per_s: float,
) -> float:
    """As if a single sequence had no cache to read."""
    more_bytes = (itl_together_s - itl_alone_s) * bytes_per_s
    return more_bytes / (batch * kv_bytes_per_token)


def the_whole_step_is_cache(
    itl_alone_s: float,
    itl_together_s: float,
    batch: int,
    kv_bytes_per_token: float,
    bytes_per_s: float,
) -> float:
    """The whole step spent on the caches, none of it on the weights."""
    return itl_together_s * bytes_per_s / (batch * kv_bytes_per_token)


def everybody_in_one(
    itl_alone_s: float,
    itl_together_s: float,
    batch: int,
    kv_bytes_per_token: float,
    bytes_per_s: float,
) -> float:
    """The tokens of all the others together."""
    return (itl_together_s - itl_alone_s) * bytes_per_s / kv_bytes_per_token


def step_shared_out(
    itl_alone_s: float,
    itl_together_s: float,
    batch: int,
    kv_bytes_per_token: float,
    bytes_per_s: float,
) -> float:
    """The gap divided among the batch, as if each had the card for its share of the step."""
    more_s = abs(itl_together_s / batch - itl_alone_s)
    return more_s * bytes_per_s / ((batch - 1) * kv_bytes_per_token)


def _reports(rng: np.random.Generator) -> list[dict[str, Any]]:
    """The printed report on a card and model that would fit it, then others of its kind."""
    cases: list[dict[str, Any]] = [
        {
            "itl_alone_s": 0.030,
            "itl_together_s": 0.080,
            "batch": 8,
            "kv_bytes_per_token": 131_072.0,
            "bytes_per_s": 600e9,
        }
    ]
    for batch, gpu, model in (
        (16, "A100-80GB-SXM", "Llama-2-7B"),
        (4, "L40S", "Qwen3-8B"),
        (32, "H100-80GB-SXM", "Llama-3.1-8B"),
    ):
        alone_s = round(float(rng.uniform(0.012, 0.03)), 4)
        cases.append(
            {
                "itl_alone_s": alone_s,
                "itl_together_s": round(alone_s * float(rng.uniform(1.3, 2.8)), 4),
                "batch": batch,
                "kv_bytes_per_token": float(catalog.model(model).kv_bytes_per_token()),
                "bytes_per_s": catalog.gpu(gpu).bandwidth_bytes_per_s,
            }
        )
    return cases


def _step_in_engine(tokens: Any, case: Any) -> str | None:
    """What the engine's steps last with contexts of the student's own length."""
    batch, output = case["batch"], 8
    # the answer's own tokens are context too: the mean over its steps is the length given
    prompt = round(float(tokens) - output / 2)
    if not 1 <= prompt <= 1_000_000:
        return None
    token_s = case["kv_bytes_per_token"] / case["bytes_per_s"]
    fixed_s = max(case["itl_alone_s"] - token_s * float(tokens), 1e-6)
    cost = LinearStepCost(fixed_s=fixed_s, per_kv_token_s=token_s)
    config = EngineConfig(max_num_batched_tokens=batch * prompt)
    work = Workload([0.0] * batch, [prompt] * batch, [output] * batch)
    itl_s = float(simulate(work, cost, config, progress=False).itl_s().mean())
    cache_gb = batch * float(tokens) * case["kv_bytes_per_token"] / 1e9
    return (
        f"{batch} sequences with {plain(float(tokens), 3)} tokens of context: a step of "
        f"{plain(1e3 * itl_s, 3)} ms in the engine, and {plain(cache_gb, 3)} GB of cache"
    )


STEP_EXERCISES = (
    function_exercise(
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
        track="core",
        kind="compute",
        minutes=6,
        difficulty=2,
        reference=ridge_batch,
        cases=_cards_and_contexts,
        result=Batch("sequences", noun="a number of sequences (or math.inf)", may_be_infinite=True),
        wrong=(
            Wrong(
                "one-operation-a-weight",
                one_operation_a_weight,
                "You count one operation a weight. A token's number is multiplied by the weight "
                "*and* added to the sum: two operations, as the data sheet counts them too.",
            ),
            Wrong(
                "cache-forgotten",
                cache_forgotten,
                "You let a step read the weights alone. That is the ridge of the matrices, and it "
                "does not depend on the context; but every sequence also brings a cache to read, "
                "so each one adds seconds to both sides of your equation.",
            ),
            Wrong(
                "cache-shared-like-weights",
                cache_read_once,
                "You read one cache for the whole batch. The weights are the same for everybody "
                "and are shared; a KV cache belongs to one sequence. Reading caches grows with "
                "the batch just as computing does.",
            ),
            Wrong(
                "intensity-for-batch",
                operations_per_byte,
                "That is the card's ridge in *operations a byte*. It happens to equal a number of "
                "sequences where a weight has two bytes and nobody has a context: two operations "
                "for two bytes. Neither holds for all inputs here.",
            ),
            Wrong(
                "batch-below-zero",
                beyond_the_last_batch,
                "Right where the ridge can be reached. Where one sequence's cache takes longer to "
                "read than its token takes to compute, your batch is negative: more sequences "
                "only lead away from the ridge, and the answer is math.inf.",
            ),
        ),
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
    ),
    function_exercise(
        "3.2",
        title="From 30 ms to 80 ms",
        question=(
            "A report prints: ITL 30 ms at batch 1 and 80 ms at batch 8. In throughput that is a "
            "gain, 33 → 100 tokens/s. But what makes the step so much longer? The weights are "
            "read once in either case. Suppose that the caches did it and nothing else: all "
            "sequences have contexts of one length, and the extra milliseconds are the extra "
            "bytes of cache. How long would each context have to be? The first report tried is "
            "this one, for a model of 8 billion parameters on a card that reads 600 GB/s and has "
            "24 GB; the result below shows what the engine makes of your length."
        ),
        track="core",
        kind="audit",
        minutes=6,
        difficulty=2,
        reference=context_needed_tokens,
        cases=_reports,
        result=Number("tokens", noun="a number of tokens"),
        evidence=_step_in_engine,
        wrong=(
            Wrong(
                "alone-reads-nothing",
                alone_reads_nothing,
                "You charge the difference to all sequences of the batch. The one that ran alone "
                "read its cache too, so only batch − 1 caches are new in the longer step.",
            ),
            Wrong(
                "whole-step-for-the-cache",
                the_whole_step_is_cache,
                "You let the caches fill the whole step. The weights and the overhead are in it "
                "as well, in both steps: only the *difference* of the two can be cache.",
            ),
            Wrong(
                "all-contexts-in-one",
                everybody_in_one,
                "That is the context of all the added sequences together. Asked is the length of "
                "each.",
            ),
            Wrong(
                "step-divided-among-the-batch",
                step_shared_out,
                "You divide the step by the batch. A step is not shared out: everybody waits for "
                "the whole of it and gets one token at its end. itl_together_s *is* the step.",
            ),
        ),
        hints=(
            "How many bytes more does the card read in the longer step, at bytes_per_s?",
            "How many more caches are read in it than in the short step?",
            "(itl_together_s − itl_alone_s) · bytes_per_s / ((batch − 1) · kv_bytes_per_token)",
        ),
        explanation=(
            "32,697 tokens each, eight times: 34 GB of cache on a card of 24 GB. So it was not "
            "the caches. What is left: time that grows with each sequence on the host, or other "
            "people's prompts inside the gaps, which an ITL taken under load contains."
        ),
    ),
)

__all__ = ["STEP_EXERCISES"]
