"""Exercise 4.8, What a hit saves: reference, wrong answers and judging."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Vector
from course.serving.engine import EngineConfig, simulate
from course.serving.scenes.long_prompts import server
from course.serving.workload import Prefixes, Workload


def tokens_to_prefill(
    prompt_tokens: np.ndarray, shared_tokens: np.ndarray, block_size: int
) -> np.ndarray:
    """Tokens of each prompt that must still be computed when its beginning is in the cache.

    shared_tokens: of each prompt's beginning, computed before for somebody else. Only full blocks
    of block_size tokens can be used again, and the last token of a prompt is always computed: its
    result is the first token of the answer.
    """
    hit = np.minimum(shared_tokens, prompt_tokens - 1) // block_size * block_size
    return np.asarray(prompt_tokens - hit)


def token_by_token(prompt_tokens, shared_tokens, block_size):
    """Every shared token is saved."""
    return np.asarray(prompt_tokens - np.minimum(shared_tokens, prompt_tokens - 1))


def nothing_left_to_compute(prompt_tokens, shared_tokens, block_size):
    """A prompt that is all in the cache costs nothing."""
    return np.asarray(prompt_tokens - shared_tokens // block_size * block_size)


def block_begun_counts(prompt_tokens, shared_tokens, block_size):
    """A block that is begun counts as shared."""
    hit = np.ceil(np.minimum(shared_tokens, prompt_tokens - 1) / block_size) * block_size
    return np.asarray(np.maximum(prompt_tokens - hit, 1))


def whole_prompt_or_nothing(prompt_tokens, shared_tokens, block_size):
    """A cache of whole answers: it hits when the whole prompt is the same."""
    whole = (prompt_tokens - 1) // block_size * block_size
    return np.asarray(prompt_tokens - np.where(shared_tokens == prompt_tokens, whole, 0))


def _turns(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Prompts that share a little, most, or all of themselves with one computed before."""
    cases = []
    for block_size in (16, 128, 32, 64):
        prompts = rng.integers(200, 4000, size=12)
        prompts[:3] = block_size * (prompts[:3] // block_size)  # some end with a full block
        share = rng.uniform(0.0, 1.0, size=12)
        shared = (share * prompts).astype(np.int64)
        shared[:2], shared[4] = prompts[:2], prompts[4]  # and some were sent before as they are
        cases.append({"prompt_tokens": prompts, "shared_tokens": shared, "block_size": block_size})
    return cases


def prefilled_in_engine(case: Any) -> tuple[int, float, float]:
    """Return the prompt tokens that the engine computes, and the mean TTFT with and without hits.

    First come the earlier prompts, each of which shares its beginning with one of those that are
    counted, then these; all one by one, so that nobody waits for anybody. Seconds.
    """
    prompts, size = case["prompt_tokens"], case["block_size"]
    number = len(prompts)
    both = np.concatenate([prompts, prompts])
    work = Workload(
        10.0 * np.arange(2 * number),
        both,
        np.ones_like(both),
        prefixes=Prefixes.groups(np.tile(np.arange(number), 2), np.tile(case["shared_tokens"], 2)),
    )
    config = EngineConfig(
        max_num_batched_tokens=8192,
        block_size=size,
        num_kv_blocks=int((-(-both // size)).sum()),
        enable_prefix_caching=True,
    )
    with_hits = simulate(work, server(), config, progress=False)
    without = simulate(work, server(), replace(config, enable_prefix_caching=False), progress=False)
    computed = int((prompts - with_hits.prefix_hit_tokens[number:]).sum())
    return computed, float(with_hits.ttft_s[number:].mean()), float(without.ttft_s[number:].mean())


def _engine_agrees(_: Any, case: Any) -> str:
    computed, warm_s, cold_s = prefilled_in_engine(case)
    return (
        f"the engine computes {computed:,} prompt tokens instead of "
        f"{int(case['prompt_tokens'].sum()):,}; mean TTFT {1e3 * warm_s:.0f} ms instead of "
        f"{1e3 * cold_s:.0f} ms"
    )


EXERCISE = function_exercise(
    "4.8",
    title="What a hit saves",
    question=(
        "Prefix caching keeps the KV blocks of prompts that have been computed. The next turn "
        "of a conversation begins with all the earlier ones, and a question about a manual "
        "with the manual: these tokens need not be computed again. How many are left to "
        "compute? Two rules: only *full blocks* can be used again, and the last token of a "
        "prompt is always computed, since its result is the answer's first token."
    ),
    kind="compute",
    minutes=6,
    difficulty=2,
    reference=tokens_to_prefill,
    cases=_turns,
    result=Vector("tokens"),
    evidence=_engine_agrees,
    wrong={
        token_by_token: (
            "You save every shared token. The cache knows full blocks only: what is shared of "
            "a block that is not full has to be computed again."
        ),
        nothing_left_to_compute: (
            "You let a prompt that is all in the cache cost nothing. Then nothing would be "
            "computed whose result is the first token: at most prompt − 1 tokens can hit."
        ),
        block_begun_counts: (
            "You round up to the next block. The rest of that block belongs to somebody "
            "else's text: round down."
        ),
        whole_prompt_or_nothing: (
            "You hit only when the whole prompt is the same. It is a cache of beginnings: "
            "every full block from the start counts, up to the first that differs."
        ),
    },
    hints=(
        "First the most that can hit: shared_tokens, but at most prompt_tokens − 1.",
        "Then only full blocks: // block_size * block_size.",
        "prompt − np.minimum(shared, prompt − 1) // block_size * block_size",
    ),
    explanation=(
        "A hit saves prefill: time to first token, and compute that others get. It saves "
        "nothing in decode, whose steps read the whole cache as before. And it works from the "
        "beginning only: put what changes (the date, the user's name) last."
    ),
)
