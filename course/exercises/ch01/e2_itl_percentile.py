"""Exercise 1.2, The pause that a mean hides: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Lognormal, Poisson, RequestClass, mixture


def itl_percentile(sent_s: np.ndarray, token_times_s: list[np.ndarray], percentile: float) -> float:
    """Percentile of the inter-token latency (ITL) over all answers together, in seconds.

    sent_s: when each request was sent, one entry a request; token_times_s: a list with one array
    a request, when each of its tokens arrived (one token or more); percentile: 99 for P99. All
    are times of one clock, in seconds.
    """
    gaps_s = np.concatenate([np.diff(times_s) for times_s in token_times_s])
    return float(np.percentile(gaps_s, percentile))


def mean_of_means(sent_s, token_times_s, percentile):
    """Each answer's mean gap, and the mean of those."""
    tpots_s = [np.mean(np.diff(times_s)) for times_s in token_times_s if len(times_s) > 1]
    return float(np.mean(tpots_s))


def percentile_of_means(sent_s, token_times_s, percentile):
    """Each answer's mean gap, and the percentile of those."""
    tpots_s = [np.mean(np.diff(times_s)) for times_s in token_times_s if len(times_s) > 1]
    return float(np.percentile(tpots_s, percentile))


def averaged_percentiles(sent_s, token_times_s, percentile):
    """Each answer's percentile, and the mean of those."""
    gaps_s = [np.diff(times_s) for times_s in token_times_s if len(times_s) > 1]
    return float(np.mean([np.percentile(gaps, percentile) for gaps in gaps_s]))


def gaps_between_users(sent_s, token_times_s, percentile):
    """All tokens on one time line, whosever they are."""
    times_s = np.sort(np.concatenate(token_times_s))
    return float(np.percentile(np.diff(times_s), percentile))


def gaps_across_boundaries(sent_s, token_times_s, percentile):
    """One answer's times after another's, and the differences from each to the next too."""
    return float(np.percentile(np.diff(np.concatenate(token_times_s)), percentile))


def first_token_as_a_gap(sent_s, token_times_s, percentile):
    """The wait for the first token among the gaps."""
    gaps_s = [
        np.diff(np.concatenate([[sent], times_s]))
        for sent, times_s in zip(sent_s, token_times_s, strict=True)
    ]
    return float(np.percentile(np.concatenate(gaps_s), percentile))


_CHATS = RequestClass("chat", 0.7, Lognormal.of_mean(300, 0.5), Lognormal.of_mean(110, 0.9))


_PAPERS = RequestClass("summary", 0.3, Lognormal.of_mean(5000, 0.4), Lognormal.of_mean(60, 0.5))


_LABELS = RequestClass("label", 1.0, Lognormal.of_mean(300, 0.5), Lognormal.of_mean(6, 0.5))


def _engine_streams(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Runs of the engine in which whole prompts stop everybody's decoding, some of them long.

    Two more have answers of a few tokens, in one far apart and in the other many at once: there
    a difference taken from one answer to the next shows in their percentiles.
    """
    busy, rare, crowded = (2.2, 2.7), (0.02, 0.03), (12.0, 16.0)
    long_ones, short_ones = [_CHATS, _PAPERS], [_LABELS]
    cases = []
    for percentile, rates_per_s, classes in (
        (99.0, busy, long_ones),
        (95.0, busy, long_ones),
        (99.0, busy, long_ones),
        (90.0, busy, long_ones),
        (90.0, rare, short_ones),
        (5.0, crowded, short_ones),
    ):
        work = mixture(80, Poisson(float(rng.uniform(*rates_per_s))), classes, seed=rng)
        cost = LinearStepCost(
            fixed_s=float(rng.uniform(0.014, 0.02)),
            per_prefill_token_s=float(rng.uniform(4e-5, 5.5e-5)),
            per_decode_seq_s=float(rng.uniform(1e-4, 4e-4)),
        )
        config = EngineConfig(enable_chunked_prefill=False, max_num_batched_tokens=32_768)
        run = simulate(work, cost, config)
        cases.append(
            {
                "sent_s": run.arrival_s.round(6),
                "token_times_s": [run.token_times(index).round(6) for index in range(len(run))],
                "percentile": percentile,
            }
        )
    return cases


def _describe_streams(case: Any) -> str:
    times_s = case["token_times_s"]
    tokens = sum(map(len, times_s))
    return f"an engine run: {len(times_s)} answers of {tokens:,} tokens; P{case['percentile']:g}"


def _both_views(_: Any, case: Any) -> str:
    """The two figures that a report could print of one run, side by side."""
    tpot_s = mean_of_means(**case)
    itl_s = itl_percentile(**case)
    return (
        f"the same run has a mean TPOT of {plain(1000 * tpot_s, 3)} ms and a "
        f"P{case['percentile']:g} ITL of {plain(1000 * itl_s, 3)} ms"
    )


EXERCISE = function_exercise(
    "1.2",
    title="The pause that a mean hides",
    question=(
        "A report says: mean TPOT below 50 ms, so the text flows faster than anyone reads. "
        "Users say that it freezes in mid-sentence. Both are right. On this server (the "
        "course's engine) a new prompt is prefilled in a step of its own, and all other "
        "answers stand still meanwhile. From the token times of all requests work out a "
        "percentile of the ITL: every single gap between two neighbouring tokens of one "
        "answer, all answers pooled, each gap counting once."
    ),
    kind="compute",
    minutes=6,
    difficulty=2,
    reference=itl_percentile,
    cases=_engine_streams,
    result=Number("s", rel=0.01),
    describe=_describe_streams,
    evidence=_both_views,
    wrong={
        mean_of_means: (
            "That is the mean TPOT, the very number the report prints. A pause of half a "
            "second among a hundred gaps raises it by 5 ms. Keep the single gaps."
        ),
        percentile_of_means: (
            "You take the percentile of the answers' *mean* gaps. Inside each mean the pause "
            "has already been spread over all tokens: pool the gaps first, and average none."
        ),
        averaged_percentiles: (
            "You average the percentiles of single answers. A percentile of all is not the "
            "mean of the parts' percentiles, and here an answer of three tokens weighs as "
            "much as one of three hundred. Pool the gaps, then take one percentile."
        ),
        gaps_between_users: (
            "You put the tokens of all users on one time line. Nobody reads that: those gaps "
            "shrink with every further user. Take the gaps inside each answer."
        ),
        gaps_across_boundaries: (
            "You join the answers first and take the differences after. Then the step from "
            "the last token of one answer to the first of the next is among them, once for "
            "every request: a long pause where requests are rare, and less than 0 where they "
            "overlap. Take np.diff of each answer, then join."
        ),
        first_token_as_a_gap: (
            "You count the wait for the first token as a gap. It is the TTFT, with a limit of "
            "its own, and one large value per answer is enough to move a P99."
        ),
    },
    hints=(
        "For one answer: which numpy function gives the gaps between neighbouring times?",
        "np.diff for each answer, and np.concatenate to pool them. An answer of one token "
        "has no gap and adds none.",
        "np.percentile(all the gaps, percentile).",
    ),
    explanation=(
        "The gaps have two humps: pure decode steps, and the few that a prefill stretched. A "
        "mean lies between the humps and describes neither; a percentile of the pooled gaps "
        "shows the pause that users see."
    ),
)
