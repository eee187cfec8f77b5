"""Exercise 1.8, How many requests a P99 needs: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Whole, plain


def requests_needed(quantile: float, confidence: float) -> int:
    """Fewest requests whose slowest one is an upper bound of a percentile, at this confidence.

    quantile: the share of requests below the percentile, 0.99 for P99; confidence: how sure the
    bound must be, 0.95 for 95 %. The requests are independent of one another.
    """
    return math.ceil(math.log(1 - confidence) / math.log(quantile))


def one_on_average(quantile, confidence):
    """Enough to expect one request beyond the percentile."""
    return math.ceil(round(1 / (1 - quantile), 6))


def confidence_for_the_rest(quantile, confidence):
    """Requests until the chance that none is beyond has come down to the confidence."""
    return math.ceil(math.log(confidence) / math.log(quantile))


def chances_added(quantile, confidence):
    """A chance of 1 − quantile with each request, added up until it is the confidence."""
    return math.ceil(round(confidence / (1 - quantile), 6))


def roles_exchanged(quantile, confidence):
    """Quantile and confidence in each other's place."""
    return math.ceil(math.log(1 - quantile) / math.log(confidence))


def rounded_down(quantile, confidence):
    """The whole part."""
    return math.floor(math.log(1 - confidence) / math.log(quantile))


def _percentiles_and_confidences(rng: np.random.Generator) -> list[dict[str, float]]:
    """P99 at 95 % first, then others; none where the number of requests comes out whole."""
    cases = [{"quantile": 0.99, "confidence": 0.95}]
    while len(cases) < 7:
        quantile = float(rng.choice([0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999]))
        confidence = float(rng.choice([0.8, 0.9, 0.95, 0.98, 0.99]))
        exact = math.log(1 - confidence) / math.log(quantile)
        case = {"quantile": quantile, "confidence": confidence}
        if abs(exact - round(exact)) > 1e-6 and case not in cases:
            cases.append(case)
    return cases


def _tests_that_reach(requests: Any, case: Any) -> str | None:
    """In how many simulated load tests the slowest request lies above the true percentile."""
    count = int(requests)
    if not 1 <= count <= 20_000:
        return None
    rng = np.random.default_rng(18)
    # each request's share of faster requests in the long run: uniform, whatever the latencies
    slowest = np.array([rng.random(count).max() for _ in range(4_000)])
    share = float(np.mean(slowest > case["quantile"]))
    return (
        f"in 4,000 load tests of {count} requests the slowest lay above the true "
        f"P{100 * case['quantile']:g} in {100 * share:.1f} %, for the "
        f"{plain(100 * case['confidence'])} % wanted"
    )


EXERCISE = function_exercise(
    "1.8",
    title="How many requests a P99 needs",
    question=(
        "A report prints a P99 from 50 requests. It may well be that none of them was among "
        "the slowest hundredth. How many requests must a load test have, so that its "
        "slowest one lies above the true percentile with the confidence asked for? Each "
        "request is below the true P99 with a chance of 0.99, whatever the latencies look "
        "like; what is the chance that *all* n of them are?"
    ),
    kind="predict",
    minutes=6,
    difficulty=2,
    reference=requests_needed,
    cases=_percentiles_and_confidences,
    result=Whole("requests"),
    evidence=_tests_that_reach,
    wrong={
        one_on_average: (
            "In a hundred requests *one on average* is beyond P99. Sometimes there are three, "
            "and in 37 of 100 such tests there is none at all. The confidence must be in the "
            "answer."
        ),
        confidence_for_the_rest: (
            "You let the chance that *none* is beyond come down to the confidence itself. It "
            "is the chance of failure, so it must come down to what is left: 1 − confidence. "
            "For P99 at 95 % you get 6 requests, and the slowest of six lies above the true "
            "P99 in 6 tests of 100, where 95 are asked."
        ),
        chances_added: (
            "You add the chances of single requests. Added chances count a test with two slow "
            "requests twice (and pass 100 % in the end). Multiply the chances that each is "
            "*not* beyond."
        ),
        roles_exchanged: (
            "Quantile and confidence have changed places. The chance that goes down with "
            "every request is quantile × quantile × …; it must fall to 1 − confidence."
        ),
        rounded_down: (
            "With the whole part you fall just short of the confidence: one request more is "
            "needed. Round up."
        ),
    },
    hints=(
        "With two requests, the chance that both are below P99 is 0.99 · 0.99.",
        "The smallest n with quantile**n ≤ 1 − confidence.",
        "Take logarithms: n ≥ log(1 − confidence) / log(quantile); both are negative.",
    ),
    explanation=(
        "0.99^n ≤ 0.05 from n = 299 on: below that, chance alone hides the slowest hundredth "
        "in more than one test in twenty. At 50 requests it hides it in 60 of 100."
    ),
)
