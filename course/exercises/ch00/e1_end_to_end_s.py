"""Exercise 0.1, How long one answer takes: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number


def end_to_end_s(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """Time from sending a request to its last output token, in seconds.

    ttft_s: time to the first token; tpot_s: mean time between two output tokens;
    output_tokens: how many tokens the answer has (at least 1).
    """
    return ttft_s + (output_tokens - 1) * tpot_s


def gap_for_every_token(ttft_s, tpot_s, output_tokens):
    """A gap for every token, the first one too."""
    return ttft_s + output_tokens * tpot_s


def decode_only(ttft_s, tpot_s, output_tokens):
    """Time per token, times tokens."""
    return output_tokens * tpot_s


def prefill_for_every_token(ttft_s, tpot_s, output_tokens):
    """Every token paid at the price of the first."""
    return ttft_s * output_tokens


def pace_read_as_rate(ttft_s, tpot_s, output_tokens):
    """TPOT taken for a speed in tokens per second."""
    return ttft_s + (output_tokens - 1) / tpot_s


def _one_request(rng: np.random.Generator) -> list[dict[str, Any]]:
    # short answers first: there one gap too many is plainly seen
    lengths = [1, 2, 5, 20, 150, 400]
    return [
        {
            "ttft_s": round(float(rng.uniform(0.1, 3.0)), 2),
            "tpot_s": round(float(rng.uniform(0.01, 0.2)), 3),
            "output_tokens": length,
        }
        for length in lengths
    ]


EXERCISE = function_exercise(
    "0.1",
    title="How long one answer takes",
    question=(
        "A request's answer has `output_tokens` tokens. The first one arrives after the time "
        "to first token (TTFT: queueing, then prefill, which reads the whole prompt). The "
        "others follow in decode, one step each, a mean time per output token (TPOT) apart. "
        "How long does the user wait for the last one?"
    ),
    kind="compute",
    minutes=3,
    difficulty=1,
    reference=end_to_end_s,
    cases=_one_request,
    result=Number("s"),
    wrong={
        gap_for_every_token: (
            "You count one gap too many. The TTFT already ends with the first token: draw an "
            "answer of three tokens, and count the gaps between them."
        ),
        decode_only: (
            "That is decode alone, as if tokens came from the start. The user also waits for "
            "the first token, which is not there before the prompt's prefill is done."
        ),
        prefill_for_every_token: (
            "You pay the first token's price for every token. The prompt is read once: the "
            "KV cache keeps what was read, so each further token costs only a decode step."
        ),
        pace_read_as_rate: (
            "You divide by the TPOT, as if it were a speed. It is a time for each token "
            "(0.05 s is 20 tokens/s), so more of it means a longer wait."
        ),
    },
    hints=(
        "Try an answer of one token: what does the user wait for then?",
        "Between the first token and the last there are output_tokens - 1 gaps.",
        "Time to the first token, plus the gaps times the time of one gap.",
    ),
    explanation="E2E = TTFT + (n − 1) · TPOT: n tokens have n − 1 gaps between them.",
)
