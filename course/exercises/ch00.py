"""The three warm-ups of notebook 00: one request's time, many users' rate, reading a load table."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import choice_exercise, function_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Number

# --- 0.1 ---------------------------------------------------------------------------------------


def end_to_end_s(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """Time from sending a request to its last output token, in seconds.

    ttft_s: time to the first token; tpot_s: mean time between two output tokens;
    output_tokens: how many tokens the answer has (at least 1).
    """
    return ttft_s + (output_tokens - 1) * tpot_s


def one_gap_too_many(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """A gap for every token, the first one too."""
    return ttft_s + output_tokens * tpot_s


def decode_only(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """Time per token, times tokens."""
    return output_tokens * tpot_s


def first_token_for_every_token(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """Every token paid at the price of the first."""
    return ttft_s * output_tokens


def pace_read_as_rate(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
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


# --- 0.2 ---------------------------------------------------------------------------------------


def output_tokens_per_s(users: int, ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """Output tokens per second that the whole server delivers, over a long run.

    users: how many people are served at once, each sending the next request as soon as the
    answer is there; ttft_s, tpot_s, output_tokens: of every request, as in exercise 0.1.
    """
    request_s = ttft_s + (output_tokens - 1) * tpot_s
    return users * output_tokens / request_s


def one_user_for_all(users: int, ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """One person's speed, reported as the server's."""
    return output_tokens / (ttft_s + (output_tokens - 1) * tpot_s)


def decode_speed_only(users: int, ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """The speed while tokens flow, as if nobody ever waited for a first one."""
    return users / tpot_s


def requests_for_tokens(users: int, ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """Finished requests per second."""
    return users / (ttft_s + (output_tokens - 1) * tpot_s)


def one_gap_too_many_each(users: int, ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """Every request one gap longer than it is."""
    return users * output_tokens / (ttft_s + output_tokens * tpot_s)


def users_take_turns(users: int, ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """As if the users were served one after the other, and each token slowed by all of them."""
    return output_tokens / (ttft_s + (output_tokens - 1) * tpot_s * users)


def _many_users(rng: np.random.Generator) -> list[dict[str, Any]]:
    return [
        {
            "users": int(rng.integers(2, 65)),
            "ttft_s": round(float(rng.uniform(0.1, 3.0)), 2),
            "tpot_s": round(float(rng.uniform(0.01, 0.1)), 3),
            "output_tokens": int(rng.integers(20, 501)),
        }
        for _ in range(6)
    ]


# --- 0.3 ---------------------------------------------------------------------------------------

_LOAD_TABLE = """\
One replica of a chat model was measured at four loads. The users were promised a first token
within 1 s at P95.

| | load, requests/s | output tokens/s | P95 TTFT | mean TPOT |
|---|---|---|---|---|
| **a** | 4 | 800 | 0.21 s | 22 ms |
| **b** | 8 | 1 590 | 0.62 s | 31 ms |
| **c** | 10 | 1 900 | 4.8 s | 44 ms |
| **d** | 16 | 1 960 | 31 s | 46 ms |

At which of these loads should the replica be run?"""

EXERCISES = (
    function_exercise(
        "0.1",
        title="How long one answer takes",
        question=(
            "A request's answer has `output_tokens` tokens. The first one arrives after the time "
            "to first token (TTFT: queueing, then prefill, which reads the whole prompt). The "
            "others follow in decode, one step each, a mean time per output token (TPOT) apart. "
            "How long does the user wait for the last one?"
        ),
        track="warm-up",
        kind="compute",
        minutes=3,
        difficulty=1,
        reference=end_to_end_s,
        cases=_one_request,
        result=Number("s"),
        wrong=(
            Wrong(
                "gap-for-every-token",
                one_gap_too_many,
                "You count one gap too many. The TTFT already ends with the first token: draw an "
                "answer of three tokens, and count the gaps between them.",
            ),
            Wrong(
                "decode-only",
                decode_only,
                "That is decode alone, as if tokens came from the start. The user also waits for "
                "the first token, which is not there before the prompt's prefill is done.",
            ),
            Wrong(
                "prefill-for-every-token",
                first_token_for_every_token,
                "You pay the first token's price for every token. The prompt is read once: the "
                "KV cache keeps what was read, so each further token costs only a decode step.",
            ),
            Wrong(
                "pace-read-as-rate",
                pace_read_as_rate,
                "You divide by the TPOT, as if it were a speed. It is a time for each token "
                "(0.05 s is 20 tokens/s), so more of it means a longer wait.",
            ),
        ),
        hints=(
            "Try an answer of one token: what does the user wait for then?",
            "Between the first token and the last there are output_tokens - 1 gaps.",
            "Time to the first token, plus the gaps times the time of one gap.",
        ),
        explanation="E2E = TTFT + (n − 1) · TPOT: n tokens have n − 1 gaps between them.",
    ),
    function_exercise(
        "0.2",
        title="From one user's wait to the server's rate",
        question=(
            "Now `users` people use the server at the same time. Each sends a request, waits for "
            "the last token of the answer, and sends the next one at once; all requests are "
            "alike. How many output tokens does the server deliver per second, over a long run?"
        ),
        track="warm-up",
        kind="compute",
        minutes=4,
        difficulty=1,
        reference=output_tokens_per_s,
        cases=_many_users,
        result=Number("tokens/s"),
        wrong=(
            Wrong(
                "one-user-for-the-server",
                one_user_for_all,
                "That is what one user sees. The server works for all of them in the same "
                "seconds: latency belongs to a request, throughput to the server.",
            ),
            Wrong(
                "decode-speed-only",
                decode_speed_only,
                "users / tpot_s is the rate while everyone is in decode. Each user also spends "
                "the TTFT of every request without getting a token: use the whole time of a "
                "request.",
            ),
            Wrong(
                "requests-for-tokens",
                requests_for_tokens,
                "That is a rate of finished requests. Throughput has several units; tokens are "
                "asked: how many does each request bring?",
            ),
            Wrong(
                "gap-for-every-token-again",
                one_gap_too_many_each,
                "Right idea, but each request is one gap too long: output_tokens − 1 gaps follow "
                "the first token, as in exercise 0.1.",
            ),
            Wrong(
                "users-take-turns",
                users_take_turns,
                "You let the users take turns. They are served in one batch: the TPOT given is "
                "what each of them sees while all are being served.",
            ),
        ),
        hints=(
            "How many output tokens does one user receive in the time that one request takes?",
            "That time is exercise 0.1's. Each user gets output_tokens in it, again and again.",
            "All users together get users * output_tokens in the time of one request.",
        ),
        explanation=(
            "Each user gets output_tokens tokens every E2E seconds, and there are users of them: "
            "users · output_tokens / E2E. Notebook 02 meets the same thought as Little's law."
        ),
    ),
    choice_exercise(
        "0.3",
        title="Which load to run at",
        question=_LOAD_TABLE,
        track="warm-up",
        kind="audit",
        minutes=3,
        difficulty=1,
        options={
            "a": "4 requests/s: it has the lowest latency.",
            "b": "8 requests/s: the most load inside the promise.",
            "c": "10 requests/s: a fifth more tokens/s than b, and 44 ms a token still reads well.",
            "d": "16 requests/s: the most tokens/s that the GPU can show.",
        },
        right="b",
        wrong={
            "a": (
                "lowest-latency-is-best",
                "The promise is 1 s, and nobody asked for 0.2 s. At twice the load the promise "
                "still holds: with this choice you would pay for two replicas where one does.",
            ),
            "c": (
                "token-pace-hides-the-wait",
                "Reading pace is TPOT, and that is fine. The promise is about the first token: "
                "one user in twenty waits almost five seconds before anything appears.",
            ),
            "d": (
                "peak-throughput-is-capacity",
                "More load brought 3 % more tokens than c, and a half-minute wait: the requests "
                "pile up in front of the server. A rate that no user would wait for is no "
                "capacity.",
            ),
        },
        hints=(
            "Which column does the promise speak of, and which rows keep it?",
            "Of the rows that keep the promise, which one serves the most?",
        ),
        explanation=(
            "The best throughput is not the largest number the GPU shows, but the most that "
            "stays inside the users' promise."
        ),
    ),
)
