"""Exercise 4.1, How much is inside?: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Whole
from course.serving.engine import EngineConfig, simulate
from course.serving.scenes.long_prompts import BUDGET, chats_and_documents, server


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


def requests_times_mean(arrival_s, end_s, prompt_tokens, output_tokens):
    """Count the requests, and take each for a mean one."""
    most = max(int(((arrival_s <= t) & (end_s > t)).sum()) for t in arrival_s)
    return round(most * float(np.mean(prompt_tokens + output_tokens)))


def requests_times_mean_cut(arrival_s, end_s, prompt_tokens, output_tokens):
    """The same, its fraction cut off."""
    most = max(int(((arrival_s <= t) & (end_s > t)).sum()) for t in arrival_s)
    return int(most * float(np.mean(prompt_tokens + output_tokens)))


def busiest_by_count(arrival_s, end_s, prompt_tokens, output_tokens):
    """The tokens at the moment at which most requests are inside."""
    counts = [int(((arrival_s <= t) & (end_s > t)).sum()) for t in arrival_s]
    now_s = arrival_s[int(np.argmax(counts))]
    inside = (arrival_s <= now_s) & (end_s > now_s)
    return int((prompt_tokens + output_tokens)[inside].sum())


def prompts_alone(arrival_s, end_s, prompt_tokens, output_tokens):
    """The answers are not there yet, so they do not count."""
    return max(int(prompt_tokens[(arrival_s <= t) & (end_s > t)].sum()) for t in arrival_s)


def mean_for_maximum(arrival_s, end_s, prompt_tokens, output_tokens):
    """Little's law with tokens: a mean."""
    held = (prompt_tokens + output_tokens) * (end_s - arrival_s)
    return round(float(held.sum() / (end_s.max() - arrival_s.min())))


def nobody_leaves(arrival_s, end_s, prompt_tokens, output_tokens):
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


EXERCISE = function_exercise(
    "4.1",
    title="How much is inside?",
    question=(
        "A dashboard shows how many *requests* are inside, and the line is calm. From the log "
        "of an engine run (chats, and now and then a document) work out what it hides: the "
        "largest number of *tokens* that were inside at any one moment. A limit on tokens "
        "would have looked at this number."
    ),
    kind="compute",
    minutes=6,
    difficulty=1,
    reference=most_tokens_inside,
    cases=_logs,
    result=Whole("tokens"),
    evidence=_requests_beside,
    wrong={
        requests_times_mean: (
            "You count requests and take each for a mean one. That is just what the dashboard "
            "does: three documents at once are not three mean requests. Add up the tokens of "
            "those who are inside."
        ),
        requests_times_mean_cut: (
            "That is the number of requests times the mean tokens of one: what the dashboard "
            "hides is just the difference from it. Add up the tokens of those who are inside."
        ),
        busiest_by_count: (
            "You look at the moment at which most *requests* are inside. The most tokens may "
            "be inside at another one, with few requests and a document among them."
        ),
        prompts_alone: (
            "You count the prompts alone. Whoever lets a request in lets its whole answer in "
            "as well: it will be computed and will take memory too."
        ),
        mean_for_maximum: (
            "That is the mean over time (Little's law, with tokens). Memory has to be enough "
            "for the largest moment."
        ),
        nobody_leaves: (
            "You count everybody who ever came: as a total that only grows, or as all requests "
            "times their mean tokens, which is the same sum. A request that has ended takes "
            "its tokens with it: add up those with arrival_s <= now < end_s, as they are."
        ),
    },
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
)
