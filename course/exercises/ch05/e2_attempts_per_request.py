"""Exercise 5.2, What a retry costs: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain


def attempts_per_request(fail_share: float, attempts: int) -> float:
    """Mean number of attempts that a request costs the server.

    fail_share: the share of attempts that fail, below 1, each by its own luck; attempts: how
    often a client tries in all, the first time included. It stops at the first success.
    """
    return float(sum(fail_share**failed for failed in range(attempts)))


def retries_for_attempts(fail_share, attempts):
    """So many attempts after the first."""
    return float(sum(fail_share**failed for failed in range(attempts + 1)))


def who_failed_once_uses_all(fail_share, attempts):
    """Whoever failed once uses up all attempts."""
    return float(1 + fail_share * (attempts - 1))


def nobody_gives_up(fail_share, attempts):
    """The whole series, as if nobody ever gave up."""
    return 1 / (1 - fail_share)


def worst_case(fail_share, attempts):
    """The worst case."""
    return float(attempts)


def only_one_retry(fail_share, attempts):
    """One attempt, and one more for those that failed."""
    return 1 + fail_share if attempts > 1 else 1.0


def _shares_and_attempts(rng: np.random.Generator) -> list[dict[str, Any]]:
    """From a quiet day to an outage; one client that never retries."""
    shares = [*rng.uniform(0.05, 0.95, size=5).round(3).tolist(), 0.99, 0.3]
    attempts = [3, 5, int(rng.integers(2, 9)), 4, int(rng.integers(2, 9)), 3, 1]
    return [
        {"fail_share": share, "attempts": tries}
        for share, tries in zip(shares, attempts, strict=True)
    ]


def _attempts_counted(_: Any, case: Any) -> str:
    rng = np.random.default_rng(52)
    failed = rng.random((100_000, case["attempts"])) < case["fail_share"]
    made = 1 + np.cumprod(failed[:, :-1], axis=1).sum(axis=1)
    return f"100,000 clients made {plain(float(made.mean()), 3)} attempts each, on average"


EXERCISE = function_exercise(
    "5.2",
    title="What a retry costs",
    question=(
        "A client library says `attempts = 3`: it tries three times *in all* and stops at the "
        "first success. When a share p of all attempts fails, how many attempts does the "
        "server get for each request? By this factor retries multiply the load, just when "
        "there is too much of it already."
    ),
    kind="compute",
    minutes=5,
    difficulty=1,
    reference=attempts_per_request,
    cases=_shares_and_attempts,
    result=Number("attempts", noun="a mean number of attempts"),
    evidence=_attempts_counted,
    wrong={
        retries_for_attempts: (
            "You take `attempts` for the number of *re*tries. Three attempts are one try and "
            "two retries; libraries differ in which of the two they count, so always look."
        ),
        who_failed_once_uses_all: (
            "You let everybody who failed once use up all attempts. The third attempt is made "
            "only by those whose second failed too: a share p² of the requests, not p."
        ),
        nobody_gives_up: (
            "1/(1 − p) is the sum without end: a client that never gives up. Yours stops after "
            "so many attempts, which is what saves the server when p is near 1."
        ),
        worst_case: (
            "That is the most that a request can cost. Those that succeed stop: at p = 0.1 "
            "hardly anybody needs a third attempt."
        ),
        only_one_retry: (
            "You count one retry for those that failed. Their retries fail too, at the same "
            "share, and are sent again."
        ),
    },
    hints=(
        "Which share of the requests makes a first attempt? A second? A third?",
        "The k-th attempt is made by those whose k − 1 attempts before all failed.",
        "1 + p + p² + …, as many terms as there are attempts.",
    ),
    explanation=(
        "The sum 1 + p + … + pⁿ⁻¹ is close to 1 on a quiet day and close to n in an outage: "
        "three attempts triple the load exactly when nothing gets through."
    ),
)
