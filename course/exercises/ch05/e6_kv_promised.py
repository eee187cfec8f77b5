"""Exercise 5.6, What the cache has promised: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Workload


def kv_promised(
    prompt_tokens: np.ndarray, output_tokens: np.ndarray, num_kv_blocks: int, block_size: int
) -> float:
    """Share of the KV cache's blocks that the admitted requests hold when each is at its longest.

    prompt_tokens, output_tokens (predicted): one entry for each request admitted, running or
    waiting. Blocks are given out whole: a request of 17 tokens holds two blocks of 16. Above 1.0
    there is not enough for all of them at once, and some will be preempted.
    """
    blocks = np.ceil((prompt_tokens + output_tokens) / block_size)
    return float(blocks.sum() / num_kv_blocks)


def prompts_alone(prompt_tokens, output_tokens, num_kv_blocks, block_size):
    """The prompts, which is what lies in the cache when the answers begin."""
    return float(np.ceil(prompt_tokens / block_size).sum() / num_kv_blocks)


def tokens_without_blocks(prompt_tokens, output_tokens, num_kv_blocks, block_size):
    """All tokens together, as if the last block of each were shared."""
    return float((prompt_tokens + output_tokens).sum() / (num_kv_blocks * block_size))


def half_an_answer(prompt_tokens, output_tokens, num_kv_blocks, block_size):
    """On average a running request is half-way through its answer."""
    blocks = np.ceil((prompt_tokens + output_tokens / 2) / block_size)
    return float(blocks.sum() / num_kv_blocks)


def the_mean_request(prompt_tokens, output_tokens, num_kv_blocks, block_size):
    """A seat for the mean request, so many times."""
    mean = np.mean(prompt_tokens + output_tokens)
    return float(len(prompt_tokens) * np.ceil(mean / block_size) / num_kv_blocks)


def prompt_and_answer_apart(prompt_tokens, output_tokens, num_kv_blocks, block_size):
    """Blocks for the prompt, and new blocks for the answer."""
    blocks = np.ceil(prompt_tokens / block_size) + np.ceil(output_tokens / block_size)
    return float(blocks.sum() / num_kv_blocks)


def _admitted(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Requests of skewed lengths behind caches of several sizes and blocks."""
    cases = []
    for count, block_size in ((12, 16), (30, 128), (60, 16), (25, 64), (8, 32)):
        prompts = np.ceil(rng.lognormal(5.5, 0.9, size=count)).astype(np.int64)
        answers = np.ceil(rng.lognormal(5.0, 0.8, size=count)).astype(np.int64)
        needed = np.ceil((prompts + answers) / block_size).sum()
        cases.append(
            {
                "prompt_tokens": prompts,
                "output_tokens": answers,
                "num_kv_blocks": int(max(needed * rng.uniform(0.7, 1.5), needed / 2)),
                "block_size": block_size,
            }
        )
    return cases


def _preempted_in_engine(_: Any, case: Any) -> str | None:
    """What the engine does with just these requests, all at once."""
    blocks, size = case["num_kv_blocks"], case["block_size"]
    prompts, answers = case["prompt_tokens"], case["output_tokens"]
    if np.ceil((prompts + answers) / size).max() > blocks:
        return None
    work = Workload(np.zeros(len(prompts)), prompts, answers)
    config = EngineConfig(
        max_num_seqs=len(prompts), max_num_batched_tokens=8192, num_kv_blocks=blocks,
        block_size=size,
    )  # fmt: skip
    run = simulate(work, LinearStepCost(fixed_s=0.01), config, progress=False)
    peak = int(run.step_kv_blocks.max()) if run.step_kv_blocks is not None else 0
    return f"the engine's fullest step holds {peak} of {blocks} blocks"


EXERCISE = function_exercise(
    "5.6",
    title="What the cache has promised",
    question=(
        "A gate that looks at how full the KV cache *is* lets in too many: every answer that "
        "runs goes on growing. How full will the cache be when each admitted request has "
        "reached its full length, and all at the same time? A cautious gate lets nobody in "
        "above 1; a watermark of 0.9 is the same thought with less arithmetic."
    ),
    kind="compute",
    minutes=6,
    difficulty=2,
    reference=kv_promised,
    cases=_admitted,
    result=Number("", noun="a share of the cache; 1 is full"),
    evidence=_preempted_in_engine,
    wrong={
        prompts_alone: (
            "You count the prompts alone, as a gauge does that is read at the moment of "
            "admission. Every output token adds its keys and values too."
        ),
        tokens_without_blocks: (
            "You divide all tokens by the room for tokens. Blocks are not shared: the last "
            "block of each request is partly empty, and with large blocks that is a lot."
        ),
        half_an_answer: (
            "That is how much they hold on average while they run. Asked is what they hold "
            "when each is at its longest; a cache that fits the average overflows half the "
            "time."
        ),
        the_mean_request: (
            "You round up the mean once, where each request is rounded up by itself. Round "
            "first, then add."
        ),
        prompt_and_answer_apart: (
            "You begin a new block for the answer. Its tokens go on in the prompt's last "
            "block: add the two lengths, then round up."
        ),
    },
    hints=(
        "How many blocks does one request of 100 prompt and 60 output tokens hold at its end, "
        "with blocks of 16?",
        "np.ceil((prompt + output) / block_size), for each request by itself.",
        "Sum the blocks, and divide by num_kv_blocks.",
    ),
    explanation=(
        "The requests are not all at their longest at once, so the engine's fullest step holds "
        "less: the sum is a bound that no luck can break, and a watermark trades some of that "
        "safety for seats."
    ),
)
