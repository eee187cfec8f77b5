"""Exercise 1.1, Three numbers from one stream: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch01.kinds import Named


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


def gap_for_every_token(sent_s, chunk_times_s, chunk_tokens, end_s):
    """The decode time over the number of tokens."""
    tokens = int(chunk_tokens.sum())
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    return first_s - sent_s, (last_s - first_s) / tokens, last_s - sent_s


def tokens_after_the_first_chunk(sent_s, chunk_times_s, chunk_tokens, end_s):
    """The decode time over the tokens that came later than the first chunk."""
    later = int(chunk_tokens[1:].sum())
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    tpot_s = (last_s - first_s) / later if later else None
    return first_s - sent_s, tpot_s, last_s - sent_s


def first_token_in_the_pace(sent_s, chunk_times_s, chunk_tokens, end_s):
    """The whole time over the number of tokens, the wait for the first one included."""
    ttft_s, e2e_s = float(chunk_times_s[0]) - sent_s, float(chunk_times_s[-1]) - sent_s
    return ttft_s, e2e_s / int(chunk_tokens.sum()), e2e_s


def whole_time_over_tokens(sent_s, chunk_times_s, chunk_tokens, end_s):
    """The whole time over the number of tokens, and None where there is only one."""
    tokens = int(chunk_tokens.sum())
    ttft_s, e2e_s = float(chunk_times_s[0]) - sent_s, float(chunk_times_s[-1]) - sent_s
    return ttft_s, e2e_s / tokens if tokens > 1 else None, e2e_s


def chunks_for_tokens(sent_s, chunk_times_s, chunk_tokens, end_s):
    """As if every chunk were one token."""
    chunks = len(chunk_times_s)
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    tpot_s = (last_s - first_s) / (chunks - 1) if chunks > 1 else None
    return first_s - sent_s, tpot_s, last_s - sent_s


def end_of_the_stream(sent_s, chunk_times_s, chunk_tokens, end_s):
    """The closing of the connection taken for the last token."""
    tokens = int(chunk_tokens.sum())
    ttft_s, e2e_s = float(chunk_times_s[0]) - sent_s, end_s - sent_s
    return ttft_s, (e2e_s - ttft_s) / (tokens - 1) if tokens > 1 else None, e2e_s


def e2e_to_the_closing(sent_s, chunk_times_s, chunk_tokens, end_s):
    """TPOT up to the last token, E2E up to the closing of the connection."""
    tokens = int(chunk_tokens.sum())
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    tpot_s = (last_s - first_s) / (tokens - 1) if tokens > 1 else None
    return first_s - sent_s, tpot_s, end_s - sent_s


def zero_for_undefined(sent_s, chunk_times_s, chunk_tokens, end_s):
    """A pace of 0 s for the answer that shows none."""
    tokens = int(chunk_tokens.sum())
    first_s, last_s = float(chunk_times_s[0]), float(chunk_times_s[-1])
    tpot_s = (last_s - first_s) / (tokens - 1) if tokens > 1 else 0.0
    return first_s - sent_s, tpot_s, last_s - sent_s


def clock_for_stopwatch(sent_s, chunk_times_s, chunk_tokens, end_s):
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


EXERCISE = function_exercise(
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
    kind="compute",
    minutes=6,
    difficulty=1,
    reference=request_latencies,
    cases=_streams,
    result=_LATENCIES,
    accept=_accept_latencies,
    wrong={
        gap_for_every_token: (
            "You divide by n, the number of tokens. Between n tokens there are n − 1 gaps. "
            "(Where n is 1 there is none, and so no TPOT: None, and not 0.)"
        ),
        tokens_after_the_first_chunk: (
            "You divide by the tokens that came after the first *chunk*. TPOT leaves out one "
            "token, the first: where the first chunk carried two, the second of them counts. "
            "Divide by n − 1, whatever the chunks."
        ),
        first_token_in_the_pace: (
            "Your TPOT holds the wait for the first token as well. TPOT is the pace of what "
            "comes after it: start its clock at the first token, and count the gaps from "
            "there."
        ),
        whole_time_over_tokens: (
            "You divide E2E by n, so the wait for the first token is in your TPOT. TPOT is the "
            "pace of what comes after it: n − 1 gaps, in the time from the first token to the "
            "last."
        ),
        chunks_for_tokens: (
            "You count chunks. A packet may carry several tokens, and TPOT is a time per "
            "token: n is the sum of chunk_tokens."
        ),
        end_of_the_stream: (
            "You let the clock run until the connection was closed. The user had the whole "
            "answer at the last chunk; what follows (the usage report, the closing) is "
            "nobody's wait."
        ),
        e2e_to_the_closing: (
            "Your E2E runs until end_s, when the connection was closed. (Your TPOT rightly "
            "does not.) The user has the whole answer when its last token is there: at the "
            "last chunk."
        ),
        zero_for_undefined: (
            "Right, except for the answer of one token, to which you give a TPOT of 0 s: the "
            "fastest pace there is. Averaged with the others it would flatter the server. "
            "There is no such number: None."
        ),
        clock_for_stopwatch: (
            "You report times of the clock. A latency is a time *since the request was sent*: "
            "subtract sent_s."
        ),
    },
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
)
