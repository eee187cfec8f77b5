# mypy: allow-any-generics
"""Exercises 1.1 and 1.2: one request's latencies and everybody's gaps, from raw timestamps.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch01_kinds import Named
from course.exercises.definition import Wrong
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Lognormal, Poisson, RequestClass, mixture

# --- 1.1 three numbers from one stream ----------------------------------------------------------


def request_latencies(
    sent_s: float, chunk_times_s: np.ndarray, chunk_tokens: np.ndarray, end_s: float
) -> tuple[float, float | None, float]:
    """TTFT, TPOT and E2E latency of one streamed answer, in seconds and in this order.

    sent_s: when the request was sent; chunk_times_s: when each chunk of the answer arrived;
    chunk_tokens: how many tokens each chunk carried, 1 or more; end_s: when the connection was
    closed. All are times of one clock. TPOT is None where the answer is a single token.
    """
    tokens = int(chunk_tokens.sum())
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    tpot_s = (last_s - first_s) / (tokens - 1) if tokens > 1 else None
    return first_s - sent_s, tpot_s, last_s - sent_s


def a_gap_for_every_token(
    sent_s: float, chunk_times_s: np.ndarray, chunk_tokens: np.ndarray, end_s: float
) -> tuple[float, float | None, float]:
    """The decode time over the number of tokens."""
    tokens = int(chunk_tokens.sum())
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    return first_s - sent_s, (last_s - first_s) / tokens, last_s - sent_s


def tokens_after_the_first_chunk(
    sent_s: float, chunk_times_s: np.ndarray, chunk_tokens: np.ndarray, end_s: float
) -> tuple[float, float | None, float]:
    """The decode time over the tokens that came later than the first chunk."""
    later = int(chunk_tokens[1:].sum())
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    tpot_s = (last_s - first_s) / later if later else None
    return first_s - sent_s, tpot_s, last_s - sent_s


def first_token_in_the_pace(
    sent_s: float, chunk_times_s: np.ndarray, chunk_tokens: np.ndarray, end_s: float
) -> tuple[float, float | None, float]:
    """The whole time over the number of tokens, the wait for the first one included."""
    ttft_s, e2e_s = float(chunk_times_s[0]) - sent_s, float(chunk_times_s[-1]) - sent_s
    return ttft_s, e2e_s / int(chunk_tokens.sum()), e2e_s


def whole_time_over_tokens(
    sent_s: float, chunk_times_s: np.ndarray, chunk_tokens: np.ndarray, end_s: float
) -> tuple[float, float | None, float]:
    """The whole time over the number of tokens, and None where there is only one."""
    tokens = int(chunk_tokens.sum())
    ttft_s, e2e_s = float(chunk_times_s[0]) - sent_s, float(chunk_times_s[-1]) - sent_s
    return ttft_s, e2e_s / tokens if tokens > 1 else None, e2e_s


def chunks_for_tokens(
    sent_s: float, chunk_times_s: np.ndarray, chunk_tokens: np.ndarray, end_s: float
) -> tuple[float, float | None, float]:
    """As if every chunk were one token."""
    chunks = len(chunk_times_s)
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    tpot_s = (last_s - first_s) / (chunks - 1) if chunks > 1 else None
    return first_s - sent_s, tpot_s, last_s - sent_s


def until_the_stream_ends(
    sent_s: float, chunk_times_s: np.ndarray, chunk_tokens: np.ndarray, end_s: float
) -> tuple[float, float | None, float]:
    """The closing of the connection taken for the last token."""
    tokens = int(chunk_tokens.sum())
    ttft_s, e2e_s = float(chunk_times_s[0]) - sent_s, end_s - sent_s
    return ttft_s, (e2e_s - ttft_s) / (tokens - 1) if tokens > 1 else None, e2e_s


def only_e2e_until_the_end(
    sent_s: float, chunk_times_s: np.ndarray, chunk_tokens: np.ndarray, end_s: float
) -> tuple[float, float | None, float]:
    """TPOT up to the last token, E2E up to the closing of the connection."""
    tokens = int(chunk_tokens.sum())
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    tpot_s = (last_s - first_s) / (tokens - 1) if tokens > 1 else None
    return first_s - sent_s, tpot_s, end_s - sent_s


def zero_for_undefined(
    sent_s: float, chunk_times_s: np.ndarray, chunk_tokens: np.ndarray, end_s: float
) -> tuple[float, float | None, float]:
    """A pace of 0 s for the answer that shows none."""
    tokens = int(chunk_tokens.sum())
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    tpot_s = (last_s - first_s) / (tokens - 1) if tokens > 1 else 0.0
    return first_s - sent_s, tpot_s, last_s - sent_s


def clock_for_stopwatch(
    sent_s: float, chunk_times_s: np.ndarray, chunk_tokens: np.ndarray, end_s: float
) -> tuple[float, float | None, float]:
    """Times of the clock, taken for durations."""
    tokens = int(chunk_tokens.sum())
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    return first_s, (last_s - first_s) / (tokens - 1) if tokens > 1 else None, last_s


def _streams(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Answers of 1 to about 200 tokens; in some of them a chunk carries up to four tokens."""
    streams = []
    for chunks, most_tokens in ((4, 1), (1, 1), (3, 3), (40, 1), (2, 1), (80, 4), (25, 2)):
        tokens = rng.integers(1, most_tokens + 1, size=chunks)
        if most_tokens > 1:
            tokens[-1] = 2  # so that chunks and tokens are never equally many
            tokens[0] = 2  # so that n − 1 is never the number of tokens after the first chunk
        sent_s = round(float(rng.uniform(1.0, 60.0)), 3)
        gaps_s = rng.gamma(4.0, rng.uniform(0.01, 0.1) / 4, size=chunks)
        gaps_s[0] = rng.uniform(0.2, 3.0)
        times_s = (sent_s + np.cumsum(gaps_s)).round(4)
        end_s = round(float(times_s[-1] + rng.uniform(0.02, 0.3)), 4)
        streams.append(
            {
                "sent_s": sent_s,
                "chunk_times_s": times_s,
                "chunk_tokens": tokens,
                "end_s": end_s,
            }
        )
    return streams


_LATENCIES = Named(("TTFT", "TPOT", "E2E"), ("s", "s", "s"), optional=("TPOT",))


def _accept_latencies(mine: Any, right: Any, case: Any) -> str | None:
    told = _LATENCIES.what_misses(mine, right)
    tokens = int(case["chunk_tokens"].sum())
    return told and f"On an answer of {tokens} token{'s' * (tokens != 1)}: {told}"


# --- 1.2 the gaps that a mean hides -------------------------------------------------------------


def itl_percentile(sent_s: np.ndarray, token_times_s: list[np.ndarray], percentile: float) -> float:
    """Percentile of the inter-token latency (ITL) over all answers together, in seconds.

    sent_s: when each request was sent, one entry a request; token_times_s: a list with one array
    a request, when each of its tokens arrived (one token or more); percentile: 99 for P99. All
    are times of one clock, in seconds.
    """
    gaps_s = np.concatenate([np.diff(times_s) for times_s in token_times_s])
    return float(np.percentile(gaps_s, percentile))


def mean_of_tpots(sent_s: np.ndarray, token_times_s: list[np.ndarray], percentile: float) -> float:
    """Each answer's mean gap, and the mean of those."""
    tpots_s = [np.mean(np.diff(times_s)) for times_s in token_times_s if len(times_s) > 1]
    return float(np.mean(tpots_s))


def percentile_of_tpots(
    sent_s: np.ndarray, token_times_s: list[np.ndarray], percentile: float
) -> float:
    """Each answer's mean gap, and the percentile of those."""
    tpots_s = [np.mean(np.diff(times_s)) for times_s in token_times_s if len(times_s) > 1]
    return float(np.percentile(tpots_s, percentile))


def mean_of_percentiles(
    sent_s: np.ndarray, token_times_s: list[np.ndarray], percentile: float
) -> float:
    """Each answer's percentile, and the mean of those."""
    gaps_s = [np.diff(times_s) for times_s in token_times_s if len(times_s) > 1]
    return float(np.mean([np.percentile(gaps, percentile) for gaps in gaps_s]))


def gaps_across_answers(
    sent_s: np.ndarray, token_times_s: list[np.ndarray], percentile: float
) -> float:
    """All tokens on one time line, whosever they are."""
    times_s = np.sort(np.concatenate(token_times_s))
    return float(np.percentile(np.diff(times_s), percentile))


def across_the_boundaries(
    sent_s: np.ndarray, token_times_s: list[np.ndarray], percentile: float
) -> float:
    """One answer's times after another's, and the differences from each to the next too."""
    return float(np.percentile(np.diff(np.concatenate(token_times_s)), percentile))


def with_the_first_token(
    sent_s: np.ndarray, token_times_s: list[np.ndarray], percentile: float
) -> float:
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
    tpot_s = mean_of_tpots(**case)
    itl_s = itl_percentile(**case)
    return (
        f"the same run has a mean TPOT of {plain(1000 * tpot_s, 3)} ms and a "
        f"P{case['percentile']:g} ITL of {plain(1000 * itl_s, 3)} ms"
    )


STREAM_EXERCISES = (
    function_exercise(
        "1.1",
        title="Three numbers from one stream",
        question=(
            "A client wrote down when it sent a request, when each chunk of the answer arrived, "
            "how many tokens the chunk carried, and when the connection was closed. (A network "
            "packet may bring several tokens at once.) From this work out the three latencies of "
            "the request: TTFT, TPOT and E2E, as `return ttft_s, tpot_s, e2e_s`. The user has the "
            "whole answer when its last token is there. An answer of a single token has no gap, "
            "so it has no TPOT: give None for it."
        ),
        track="core",
        kind="compute",
        minutes=6,
        difficulty=1,
        reference=request_latencies,
        cases=_streams,
        result=_LATENCIES,
        accept=_accept_latencies,
        wrong=(
            Wrong(
                "gap-for-every-token",
                a_gap_for_every_token,
                "You divide by n, the number of tokens. Between n tokens there are n − 1 gaps. "
                "(Where n is 1 there is none, and so no TPOT: None, and not 0.)",
            ),
            Wrong(
                "tokens-after-the-first-chunk",
                tokens_after_the_first_chunk,
                "You divide by the tokens that came after the first *chunk*. TPOT leaves out one "
                "token, the first: where the first chunk carried two, the second of them counts. "
                "Divide by n − 1, whatever the chunks.",
            ),
            Wrong(
                "first-token-in-the-pace",
                first_token_in_the_pace,
                "Your TPOT holds the wait for the first token as well. TPOT is the pace of what "
                "comes after it: start its clock at the first token, and count the gaps from "
                "there.",
            ),
            Wrong(
                "whole-time-over-tokens",
                whole_time_over_tokens,
                "You divide E2E by n, so the wait for the first token is in your TPOT. TPOT is the "
                "pace of what comes after it: n − 1 gaps, in the time from the first token to the "
                "last.",
            ),
            Wrong(
                "chunks-for-tokens",
                chunks_for_tokens,
                "You count chunks. A packet may carry several tokens, and TPOT is a time per "
                "token: n is the sum of chunk_tokens.",
            ),
            Wrong(
                "end-of-the-stream",
                until_the_stream_ends,
                "You let the clock run until the connection was closed. The user had the whole "
                "answer at the last chunk; what follows (the usage report, the closing) is "
                "nobody's wait.",
            ),
            Wrong(
                "e2e-to-the-closing",
                only_e2e_until_the_end,
                "Your E2E runs until end_s, when the connection was closed. (Your TPOT rightly "
                "does not.) The user has the whole answer when its last token is there: at the "
                "last chunk.",
            ),
            Wrong(
                "zero-for-undefined",
                zero_for_undefined,
                "Right, except for the answer of one token, to which you give a TPOT of 0 s: the "
                "fastest pace there is. Averaged with the others it would flatter the server. "
                "There is no such number: None.",
            ),
            Wrong(
                "clock-for-stopwatch",
                clock_for_stopwatch,
                "You report times of the clock. A latency is a time *since the request was sent*: "
                "subtract sent_s.",
            ),
        ),
        hints=(
            "Draw the time line: sent, first chunk, last chunk, closed. Which two points does "
            "each of the three latencies lie between?",
            "E2E = last chunk − sent, TTFT = first chunk − sent, and E2E − TTFT is the time in "
            "which all tokens but the first arrived.",
            "TPOT = (E2E − TTFT)/(n − 1) with n = chunk_tokens.sum(), and None where n is 1.",
        ),
        explanation=(
            "TTFT = first − sent, E2E = last − sent, TPOT = (E2E − TTFT)/(n − 1). Each of the "
            "other readings is the rule of some tool or of an older version of it."
        ),
    ),
    function_exercise(
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
        track="core",
        kind="compute",
        minutes=6,
        difficulty=2,
        reference=itl_percentile,
        cases=_engine_streams,
        result=Number("s", rel=0.01),
        describe=_describe_streams,
        evidence=_both_views,
        wrong=(
            Wrong(
                "mean-of-means",
                mean_of_tpots,
                "That is the mean TPOT, the very number the report prints. A pause of half a "
                "second among a hundred gaps raises it by 5 ms. Keep the single gaps.",
            ),
            Wrong(
                "percentile-of-means",
                percentile_of_tpots,
                "You take the percentile of the answers' *mean* gaps. Inside each mean the pause "
                "has already been spread over all tokens: pool the gaps first, and average none.",
            ),
            Wrong(
                "averaged-percentiles",
                mean_of_percentiles,
                "You average the percentiles of single answers. A percentile of all is not the "
                "mean of the parts' percentiles, and here an answer of three tokens weighs as "
                "much as one of three hundred. Pool the gaps, then take one percentile.",
            ),
            Wrong(
                "gaps-between-users",
                gaps_across_answers,
                "You put the tokens of all users on one time line. Nobody reads that: those gaps "
                "shrink with every further user. Take the gaps inside each answer.",
            ),
            Wrong(
                "gaps-across-boundaries",
                across_the_boundaries,
                "You join the answers first and take the differences after. Then the step from "
                "the last token of one answer to the first of the next is among them, once for "
                "every request: a long pause where requests are rare, and less than 0 where they "
                "overlap. Take np.diff of each answer, then join.",
            ),
            Wrong(
                "first-token-as-a-gap",
                with_the_first_token,
                "You count the wait for the first token as a gap. It is the TTFT, with a limit of "
                "its own, and one large value per answer is enough to move a P99.",
            ),
        ),
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
    ),
)

__all__ = ["STREAM_EXERCISES"]
