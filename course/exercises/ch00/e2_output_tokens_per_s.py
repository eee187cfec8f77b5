"""Exercise 0.2, From one user's wait to the server's rate: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number


def output_tokens_per_s(users: int, ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    """Output tokens per second that the whole server delivers, over a long run.

    users: how many people are served at once, each sending the next request as soon as the
    answer is there; ttft_s, tpot_s, output_tokens: of every request, as in exercise 0.1.
    """
    request_s = ttft_s + (output_tokens - 1) * tpot_s
    return users * output_tokens / request_s


def one_user_for_the_server(users, ttft_s, tpot_s, output_tokens):
    """One person's speed, reported as the server's."""
    return output_tokens / (ttft_s + (output_tokens - 1) * tpot_s)


def decode_speed_only(users, ttft_s, tpot_s, output_tokens):
    """The speed while tokens flow, as if nobody ever waited for a first one."""
    return users / tpot_s


def requests_for_tokens(users, ttft_s, tpot_s, output_tokens):
    """Finished requests per second."""
    return users / (ttft_s + (output_tokens - 1) * tpot_s)


def gap_for_every_token_again(users, ttft_s, tpot_s, output_tokens):
    """Every request one gap longer than it is."""
    return users * output_tokens / (ttft_s + output_tokens * tpot_s)


def users_take_turns(users, ttft_s, tpot_s, output_tokens):
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


EXERCISE = function_exercise(
    "0.2",
    title="From one user's wait to the server's rate",
    question=(
        "Now `users` people use the server at the same time. Each sends a request, waits for "
        "the last token of the answer, and sends the next one at once; all requests are "
        "alike. How many output tokens does the server deliver per second, over a long run?"
    ),
    kind="compute",
    minutes=4,
    difficulty=1,
    reference=output_tokens_per_s,
    cases=_many_users,
    result=Number("tokens/s"),
    wrong={
        one_user_for_the_server: (
            "That is what one user sees. The server works for all of them in the same "
            "seconds: latency belongs to a request, throughput to the server."
        ),
        decode_speed_only: (
            "users / tpot_s is the rate while everyone is in decode. Each user also spends "
            "the TTFT of every request without getting a token: use the whole time of a "
            "request."
        ),
        requests_for_tokens: (
            "That is a rate of finished requests. Throughput has several units; tokens are "
            "asked: how many does each request bring?"
        ),
        gap_for_every_token_again: (
            "Right idea, but each request is one gap too long: output_tokens − 1 gaps follow "
            "the first token, as in exercise 0.1."
        ),
        users_take_turns: (
            "You let the users take turns. They are served in one batch: the TPOT given is "
            "what each of them sees while all are being served."
        ),
    },
    hints=(
        "How many output tokens does one user receive in the time that one request takes?",
        "That time is exercise 0.1's. Each user gets output_tokens in it, again and again.",
        "All users together get users * output_tokens in the time of one request.",
    ),
    explanation=(
        "Each user gets output_tokens tokens every E2E seconds, and there are users of them: "
        "users · output_tokens / E2E. Notebook 02 meets the same thought as Little's law."
    ),
)
