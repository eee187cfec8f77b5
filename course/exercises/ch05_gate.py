# mypy: allow-any-generics
"""Exercises 5.5 and 5.6: a printed batch limit, and the KV cache that is promised.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Number
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Workload

# --- 5.5 the limit from 512 to 640 ----------------------------------------------------------------


def real_change(raw_change: float, timed_out_before: float, timed_out_after: float) -> float:
    """Change of the real throughput, answers that somebody still waited for, as a share of 1.

    raw_change: change of the tokens/s that the server makes (0.03: 3 % more), for whomever it
    makes them; timed_out_before, timed_out_after: the shares of its work that went to clients who
    had given up. -0.25 means a quarter less. Answers are as long before as after.
    """
    return (1 + raw_change) * (1 - timed_out_after) / (1 - timed_out_before) - 1


def ratio_for_the_change(
    raw_change: float, timed_out_before: float, timed_out_after: float
) -> float:
    """The new real throughput as a share of the old one."""
    return (1 + raw_change) * (1 - timed_out_after) / (1 - timed_out_before)


def shares_subtracted(raw_change: float, timed_out_before: float, timed_out_after: float) -> float:
    """Percentages of different wholes, added up."""
    return raw_change - (timed_out_after - timed_out_before)


def on_top_of_the_load(raw_change: float, timed_out_before: float, timed_out_after: float) -> float:
    """So many more requests for the same throughput."""
    return (1 + raw_change) * (1 + timed_out_before) / (1 + timed_out_after) - 1


def fine_before(raw_change: float, timed_out_before: float, timed_out_after: float) -> float:
    """As if nobody had given up under the old limit."""
    return (1 + raw_change) * (1 - timed_out_after) - 1


def retried_so_served(raw_change: float, timed_out_before: float, timed_out_after: float) -> float:
    """They retry, so nothing is lost."""
    return raw_change


def _limits(rng: np.random.Generator) -> list[dict[str, float]]:
    """The printed case first; then others, where some had given up before too."""
    cases = [{"raw_change": 0.03, "timed_out_before": 0.0, "timed_out_after": 0.3}]
    for _ in range(6):
        before = float(rng.uniform(0.01, 0.2))
        cases.append(
            {
                "raw_change": round(float(rng.uniform(-0.05, 0.25)), 3),
                "timed_out_before": round(before, 3),
                "timed_out_after": round(before + float(rng.uniform(0.05, 0.5)), 3),
            }
        )
    return cases


# --- 5.6 the cache that is promised ---------------------------------------------------------------


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


def what_is_held_now(
    prompt_tokens: np.ndarray, output_tokens: np.ndarray, num_kv_blocks: int, block_size: int
) -> float:
    """The prompts, which is what lies in the cache when the answers begin."""
    return float(np.ceil(prompt_tokens / block_size).sum() / num_kv_blocks)


def tokens_without_blocks(
    prompt_tokens: np.ndarray, output_tokens: np.ndarray, num_kv_blocks: int, block_size: int
) -> float:
    """All tokens together, as if the last block of each were shared."""
    return float((prompt_tokens + output_tokens).sum() / (num_kv_blocks * block_size))


def half_an_answer(
    prompt_tokens: np.ndarray, output_tokens: np.ndarray, num_kv_blocks: int, block_size: int
) -> float:
    """On average a running request is half-way through its answer."""
    blocks = np.ceil((prompt_tokens + output_tokens / 2) / block_size)
    return float(blocks.sum() / num_kv_blocks)


def the_mean_request(
    prompt_tokens: np.ndarray, output_tokens: np.ndarray, num_kv_blocks: int, block_size: int
) -> float:
    """A seat for the mean request, so many times."""
    mean = np.mean(prompt_tokens + output_tokens)
    return float(len(prompt_tokens) * np.ceil(mean / block_size) / num_kv_blocks)


def prompt_and_answer_apart(
    prompt_tokens: np.ndarray, output_tokens: np.ndarray, num_kv_blocks: int, block_size: int
) -> float:
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


GATE_EXERCISES = (
    function_exercise(
        "5.5",
        title="Three per cent faster",
        question=(
            "A printed case. An operator raised the limit of sequences in a batch from 512 to 640 "
            "and wrote down: raw throughput in tokens/s up by 3 %; P95 TTFT from 900 to 1400 ms; "
            "30 % of the requests timed out and were sent again. “Real throughput fell.” By how "
            "much? Work out the change of the throughput of answers that somebody still waited "
            "for, and do it for services where a share of the work was lost before the change too."
        ),
        track="stretch",
        kind="audit",
        minutes=6,
        difficulty=2,
        reference=real_change,
        cases=_limits,
        result=Number("", noun="a share of 1, negative for less"),
        describe=lambda case: (
            f"raw {100 * case['raw_change']:+.1f} %; timed out {100 * case['timed_out_before']:.1f}"
            f" % before, {100 * case['timed_out_after']:.1f} % after"
        ),
        wrong=(
            Wrong(
                "ratio-for-the-change",
                ratio_for_the_change,
                "That is the new throughput as a share of the old: 0.72 where 28 % is lost. Asked "
                "is the change, -0.28: take the whole off.",
            ),
            Wrong(
                "shares-subtracted",
                shares_subtracted,
                "You subtract percentages of different wholes. 30 % of the *new* throughput is "
                "lost: multiply, 1.03 × 0.70.",
            ),
            Wrong(
                "on-top-of-the-load",
                on_top_of_the_load,
                "You take the timed-out requests for extra load on top of the useful one. They are "
                "a share of all that is served: of 100 tokens made, 30 go to nobody and 70 are "
                "left.",
            ),
            Wrong(
                "nobody-lost-before",
                fine_before,
                "Right where nobody had given up under the old limit. Where some had, the old "
                "throughput was less than it seemed as well: compare the useful parts of both.",
            ),
            Wrong(
                "retried-so-served",
                retried_so_served,
                "They do come again, but the answer that they did not wait for was made all the "
                "same. A token made for nobody is in the raw throughput and in no real one.",
            ),
        ),
        hints=(
            "Of 100 tokens made before, how many reached somebody? And of the 103 made after?",
            "useful = raw × (1 − timed out), before and after; then compare.",
            "(1 + raw_change) · (1 − timed_out_after) / (1 − timed_out_before) − 1",
        ),
        explanation=(
            "1.03 × 0.70 = 0.72: 28 % fewer answers for 3 % more tokens. A dashboard of raw "
            "tokens/s cannot see it; count answers that somebody waited for."
        ),
    ),
    function_exercise(
        "5.6",
        title="What the cache has promised",
        question=(
            "A gate that looks at how full the KV cache *is* lets in too many: every answer that "
            "runs goes on growing. How full will the cache be when each admitted request has "
            "reached its full length, and all at the same time? A cautious gate lets nobody in "
            "above 1; a watermark of 0.9 is the same thought with less arithmetic."
        ),
        track="stretch",
        kind="compute",
        minutes=6,
        difficulty=2,
        reference=kv_promised,
        cases=_admitted,
        result=Number("", noun="a share of the cache; 1 is full"),
        evidence=_preempted_in_engine,
        wrong=(
            Wrong(
                "prompts-alone",
                what_is_held_now,
                "You count the prompts alone, as a gauge does that is read at the moment of "
                "admission. Every output token adds its keys and values too.",
            ),
            Wrong(
                "tokens-without-blocks",
                tokens_without_blocks,
                "You divide all tokens by the room for tokens. Blocks are not shared: the last "
                "block of each request is partly empty, and with large blocks that is a lot.",
            ),
            Wrong(
                "half-an-answer",
                half_an_answer,
                "That is how much they hold on average while they run. Asked is what they hold "
                "when each is at its longest; a cache that fits the average overflows half the "
                "time.",
            ),
            Wrong(
                "the-mean-request",
                the_mean_request,
                "You round up the mean once, where each request is rounded up by itself. Round "
                "first, then add.",
            ),
            Wrong(
                "prompt-and-answer-apart",
                prompt_and_answer_apart,
                "You begin a new block for the answer. Its tokens go on in the prompt's last "
                "block: add the two lengths, then round up.",
            ),
        ),
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
    ),
)
