"""A batch that is kept full: what one of its tokens costs in seconds, and how much of it fits.

Several lessons ask for it; a step's seconds come from `course.serving.pricing`.
"""

from __future__ import annotations

from functools import lru_cache

from course.serving.pricing import DoesNotFitError, RooflineStepCost, StepFeatures

BUDGET = 8192
"""Tokens of a step (max_num_batched_tokens) that notebook 03 gives its servers."""


def decode_step(batch: int, context_tokens: float) -> StepFeatures:
    """Return the features of a step in which `batch` sequences each make one more token.

    >>> decode_step(4, 1000)
    StepFeatures(prefill_tokens=0, prefill_pairs=0, decode_seqs=4, kv_tokens=4000)
    """
    return StepFeatures(0, 0, batch, round(batch * context_tokens))


def with_prompt(step: StepFeatures, prompt_tokens: int) -> StepFeatures:
    """Return the same step with a prompt of so many tokens computed in it.

    >>> with_prompt(decode_step(4, 1000), 3)
    StepFeatures(prefill_tokens=3, prefill_pairs=6, decode_seqs=4, kv_tokens=4000)
    """
    return step._replace(
        prefill_tokens=prompt_tokens, prefill_pairs=prompt_tokens * (prompt_tokens + 1) // 2
    )


def mean_context(prompt_tokens: int, output_tokens: int) -> float:
    """Return the mean context over an answer: the prompt and half the output.

    >>> mean_context(2048, 512)
    2304.0
    """
    return prompt_tokens + output_tokens / 2


def steady_tpot_s(
    cost: RooflineStepCost, batch: int, prompt_tokens: int, output_tokens: int
) -> tuple[float, float]:
    """Return (pure decode step, mean time per token with the neighbours' prompts) in seconds.

    In a batch that is kept full every one of `batch` seats is given to a new request once in
    `output_tokens` steps, and its prompt makes one of these steps longer for all::

        TPOT = step(batch) + batch / output · (step with a prompt in it − step)

    so that tokens/s = batch / TPOT. One prompt a step, whole; `tests/ui/test_ch03_steady.py` holds
    it against the engine.

    >>> from course.serving.pricing import RooflineStepCost
    >>> step_s, tpot_s = steady_tpot_s(RooflineStepCost("Qwen3-8B", "H100-80GB-SXM"), 32, 2048, 256)
    >>> 1 < tpot_s / step_s < 2
    True
    """
    step = decode_step(batch, mean_context(prompt_tokens, output_tokens))
    step_s = cost.step_seconds(step)
    longer_s = cost.step_seconds(with_prompt(step, prompt_tokens)) - step_s
    return step_s, step_s + batch / output_tokens * longer_s


@lru_cache(maxsize=256)
def kv_tokens(cost: RooflineStepCost) -> int:
    """Return how many tokens of KV cache fit beside the weights; 0 where nothing does."""
    try:
        return cost.kv_blocks() * 16
    except DoesNotFitError:
        return 0


def room(cost: RooflineStepCost, tokens: float) -> int:
    """Return how many sequences of `tokens` fit into memory at once.

    >>> from course.serving.pricing import RooflineStepCost
    >>> room(RooflineStepCost("Llama-3.1-8B", "RTX-4090"), 2048)
    16
    """
    return int(kv_tokens(cost) // tokens)


@lru_cache(maxsize=256)
def smallest_fit(model: str, gpu: str, precision: str) -> RooflineStepCost:
    """Return the model on the fewest of 1, 2, 4 or 8 cards that also leave it a KV cache.

    Raises DoesNotFitError where 8 are too few.
    """
    for n_gpus in (1, 2, 4):
        try:
            cost = RooflineStepCost(model, gpu, n_gpus, precision)
            cost.kv_blocks()
        except DoesNotFitError:
            continue
        return cost
    return RooflineStepCost(model, gpu, 8, precision)
