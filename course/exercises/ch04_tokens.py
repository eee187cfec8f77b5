# mypy: allow-any-generics
"""Exercises 4.1 and 4.8: tokens in the system, and the tokens that a prefix hit saves.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Vector, Whole
from course.serving.engine import EngineConfig, simulate
from course.serving.scenes.long_prompts import BUDGET, chats_and_documents, server
from course.serving.workload import Workload

# --- 4.1 work, not requests ---------------------------------------------------------------------


def most_tokens_inside(
    arrival_s: np.ndarray, end_s: np.ndarray, prompt_tokens: np.ndarray, output_tokens: np.ndarray
) -> int:
    """Largest number of tokens inside the system at any moment.

    One entry a request, in the order of arrival. A request is inside from its arrival until its
    end, and counts for its prompt and its whole answer as long as it is there.
    """
    tokens = prompt_tokens + output_tokens
    most = 0
    for now_s in arrival_s:  # the sum only ever grows when somebody arrives
        inside = (arrival_s <= now_s) & (end_s > now_s)
        most = max(most, int(tokens[inside].sum()))
    return most


def requests_times_mean(
    arrival_s: np.ndarray, end_s: np.ndarray, prompt_tokens: np.ndarray, output_tokens: np.ndarray
) -> int:
    """Count the requests, and take each for a mean one."""
    most = max(int(((arrival_s <= t) & (end_s > t)).sum()) for t in arrival_s)
    return round(most * float(np.mean(prompt_tokens + output_tokens)))


def requests_times_mean_cut(
    arrival_s: np.ndarray, end_s: np.ndarray, prompt_tokens: np.ndarray, output_tokens: np.ndarray
) -> int:
    """The same, its fraction cut off."""
    most = max(int(((arrival_s <= t) & (end_s > t)).sum()) for t in arrival_s)
    return int(most * float(np.mean(prompt_tokens + output_tokens)))


def when_most_requests(
    arrival_s: np.ndarray, end_s: np.ndarray, prompt_tokens: np.ndarray, output_tokens: np.ndarray
) -> int:
    """The tokens at the moment at which most requests are inside."""
    counts = [int(((arrival_s <= t) & (end_s > t)).sum()) for t in arrival_s]
    now_s = arrival_s[int(np.argmax(counts))]
    inside = (arrival_s <= now_s) & (end_s > now_s)
    return int((prompt_tokens + output_tokens)[inside].sum())


def prompts_alone(
    arrival_s: np.ndarray, end_s: np.ndarray, prompt_tokens: np.ndarray, output_tokens: np.ndarray
) -> int:
    """The answers are not there yet, so they do not count."""
    return max(int(prompt_tokens[(arrival_s <= t) & (end_s > t)].sum()) for t in arrival_s)


def mean_over_time(
    arrival_s: np.ndarray, end_s: np.ndarray, prompt_tokens: np.ndarray, output_tokens: np.ndarray
) -> int:
    """Little's law with tokens: a mean."""
    held = (prompt_tokens + output_tokens) * (end_s - arrival_s)
    return round(float(held.sum() / (end_s.max() - arrival_s.min())))


def nobody_leaves(
    arrival_s: np.ndarray, end_s: np.ndarray, prompt_tokens: np.ndarray, output_tokens: np.ndarray
) -> int:
    """A running total that only grows."""
    return int(np.cumsum(prompt_tokens + output_tokens).max())


def _logs(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Engine runs: chats with documents among them, in groups or alone."""
    cases = []
    for documents, rate_per_s in ((1, 15.0), (3, 20.0), (2, 25.0)):
        seed = int(rng.integers(1, 10_000))
        work = chats_and_documents(rate_per_s, documents, seed, 12_000, chats=300)
        config = EngineConfig(max_num_seqs=256, max_num_batched_tokens=BUDGET)
        run = simulate(work, server(), config, progress=False)
        cases.append(
            {
                "arrival_s": run.arrival_s.copy(),
                "end_s": run.finish_s.copy(),
                "prompt_tokens": work.prompt_tokens.copy(),
                "output_tokens": work.output_tokens.copy(),
            }
        )
    return cases


def _requests_beside(_: Any, case: Any) -> str:
    """How calm the number of requests looks over the same run."""
    arrival_s, end_s = case["arrival_s"], case["end_s"]
    tokens = case["prompt_tokens"] + case["output_tokens"]
    inside = [(arrival_s <= t) & (end_s > t) for t in arrival_s]
    counts = np.array([int(each.sum()) for each in inside])
    held = np.array([int(tokens[each].sum()) for each in inside])
    return (
        f"requests: at most {counts.max() / counts.mean():.1f} times their mean; tokens: "
        f"{held.max() / held.mean():.1f} times theirs"
    )


# --- 4.8 what a prefix hit saves ----------------------------------------------------------------


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


def token_by_token(
    prompt_tokens: np.ndarray, shared_tokens: np.ndarray, block_size: int
) -> np.ndarray:
    """Every shared token is saved."""
    return np.asarray(prompt_tokens - np.minimum(shared_tokens, prompt_tokens - 1))


def nothing_left(
    prompt_tokens: np.ndarray, shared_tokens: np.ndarray, block_size: int
) -> np.ndarray:
    """A prompt that is all in the cache costs nothing."""
    return np.asarray(prompt_tokens - shared_tokens // block_size * block_size)


def rounded_up(prompt_tokens: np.ndarray, shared_tokens: np.ndarray, block_size: int) -> np.ndarray:
    """A block that is begun counts as shared."""
    hit = np.ceil(np.minimum(shared_tokens, prompt_tokens - 1) / block_size) * block_size
    return np.asarray(np.maximum(prompt_tokens - hit, 1))


def only_the_same_prompt(
    prompt_tokens: np.ndarray, shared_tokens: np.ndarray, block_size: int
) -> np.ndarray:
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

    The prompts come one by one, so that nobody waits for anybody. Seconds.
    """
    prompts = case["prompt_tokens"]
    arrival_s = 10.0 * np.arange(len(prompts))
    config = EngineConfig(max_num_batched_tokens=8192, block_size=case["block_size"])
    cold = Workload(arrival_s, prompts, np.ones_like(prompts))
    warm = Workload(
        arrival_s, prompts, np.ones_like(prompts), cached_prefix_tokens=case["shared_tokens"]
    )
    with_hits = simulate(warm, server(), config, progress=False)
    without = simulate(cold, server(), config, progress=False)
    computed = int(with_hits.step_prefill_tokens.sum())
    return computed, float(with_hits.ttft_s.mean()), float(without.ttft_s.mean())


def _engine_agrees(_: Any, case: Any) -> str:
    computed, warm_s, cold_s = prefilled_in_engine(case)
    return (
        f"the engine computes {computed:,} prompt tokens instead of "
        f"{int(case['prompt_tokens'].sum()):,}; mean TTFT {1e3 * warm_s:.0f} ms instead of "
        f"{1e3 * cold_s:.0f} ms"
    )


TOKEN_EXERCISES = (
    function_exercise(
        "4.1",
        title="How much is inside?",
        question=(
            "A dashboard shows how many *requests* are inside, and the line is calm. From the log "
            "of an engine run (chats, and now and then a document) work out what it hides: the "
            "largest number of *tokens* that were inside at any one moment. A limit on tokens "
            "would have looked at this number."
        ),
        track="core",
        kind="compute",
        minutes=6,
        difficulty=1,
        reference=most_tokens_inside,
        cases=_logs,
        result=Whole("tokens"),
        evidence=_requests_beside,
        wrong=(
            Wrong(
                "requests-times-mean",
                requests_times_mean,
                "You count requests and take each for a mean one. That is just what the dashboard "
                "does: three documents at once are not three mean requests. Add up the tokens of "
                "those who are inside.",
            ),
            Wrong(
                "requests-times-mean-cut",
                requests_times_mean_cut,
                "That is the number of requests times the mean tokens of one: what the dashboard "
                "hides is just the difference from it. Add up the tokens of those who are inside.",
            ),
            Wrong(
                "busiest-by-count",
                when_most_requests,
                "You look at the moment at which most *requests* are inside. The most tokens may "
                "be inside at another one, with few requests and a document among them.",
            ),
            Wrong(
                "prompts-alone",
                prompts_alone,
                "You count the prompts alone. Whoever lets a request in lets its whole answer in "
                "as well: it will be computed and will take memory too.",
            ),
            Wrong(
                "mean-for-maximum",
                mean_over_time,
                "That is the mean over time (Little's law, with tokens). Memory has to be enough "
                "for the largest moment.",
            ),
            Wrong(
                "nobody-leaves",
                nobody_leaves,
                "You count everybody who ever came: as a total that only grows, or as all requests "
                "times their mean tokens, which is the same sum. A request that has ended takes "
                "its tokens with it: add up those with arrival_s <= now < end_s, as they are.",
            ),
        ),
        hints=(
            "When can the sum rise at all? Only at an arrival, so it is enough to look there.",
            "At each arrival: inside = (arrival_s <= now_s) & (end_s > now_s), then "
            "tokens[inside].sum().",
            "Keep the largest of these sums.",
        ),
        explanation=(
            "The number of requests hardly moves, the tokens jump. A limit has to count what is "
            "scarce, and that is tokens: of compute in a step, of memory for as long as they stay."
        ),
    ),
    function_exercise(
        "4.8",
        title="What a hit saves",
        question=(
            "Prefix caching keeps the KV blocks of prompts that have been computed. The next turn "
            "of a conversation begins with all the earlier ones, and a question about a manual "
            "with the manual: these tokens need not be computed again. How many are left to "
            "compute? Two rules: only *full blocks* can be used again, and the last token of a "
            "prompt is always computed, since its result is the answer's first token."
        ),
        track="stretch",
        kind="compute",
        minutes=6,
        difficulty=2,
        reference=tokens_to_prefill,
        cases=_turns,
        result=Vector("tokens"),
        evidence=_engine_agrees,
        wrong=(
            Wrong(
                "token-by-token",
                token_by_token,
                "You save every shared token. The cache knows full blocks only: what is shared of "
                "a block that is not full has to be computed again.",
            ),
            Wrong(
                "nothing-left-to-compute",
                nothing_left,
                "You let a prompt that is all in the cache cost nothing. Then nothing would be "
                "computed whose result is the first token: at most prompt − 1 tokens can hit.",
            ),
            Wrong(
                "block-begun-counts",
                rounded_up,
                "You round up to the next block. The rest of that block belongs to somebody "
                "else's text: round down.",
            ),
            Wrong(
                "whole-prompt-or-nothing",
                only_the_same_prompt,
                "You hit only when the whole prompt is the same. It is a cache of beginnings: "
                "every full block from the start counts, up to the first that differs.",
            ),
        ),
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
    ),
)
