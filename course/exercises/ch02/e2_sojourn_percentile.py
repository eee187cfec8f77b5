"""Exercise 2.2, The slow ones: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number


def sojourn_percentile(
    arrival_rate_per_s: float, service_rate_per_s: float, percentile: float
) -> float:
    """Percentile of the time in the system (wait and service) of an M/M/1 queue, in seconds.

    percentile: from 50 to 99.9, as in P99; the arrival rate is below the service rate.
    """
    beyond = 1 - percentile / 100
    return -math.log(beyond) / (service_rate_per_s - arrival_rate_per_s)


def mean_for_percentile(arrival_rate_per_s, service_rate_per_s, percentile):
    """The mean time in the system."""
    return 1 / (service_rate_per_s - arrival_rate_per_s)


def service_without_the_queue(arrival_rate_per_s, service_rate_per_s, percentile):
    """The percentile of the service time, as if no one else were there."""
    return -math.log(1 - percentile / 100) / service_rate_per_s


def log_of_the_percentile(arrival_rate_per_s, service_rate_per_s, percentile):
    """ln(99) for P99, as if the number in the name went into the formula."""
    return math.log(percentile) / (service_rate_per_s - arrival_rate_per_s)


def bell_curve_tail(arrival_rate_per_s, service_rate_per_s, percentile):
    """Mean and standard deviation, put into a normal distribution."""
    from statistics import NormalDist

    mean_s = 1 / (service_rate_per_s - arrival_rate_per_s)
    return NormalDist(mean_s, mean_s).inv_cdf(percentile / 100)


def wait_for_sojourn(arrival_rate_per_s, service_rate_per_s, percentile):
    """The percentile of the wait before service."""
    utilization = arrival_rate_per_s / service_rate_per_s
    beyond = 1 - percentile / 100
    spare_per_s = service_rate_per_s - arrival_rate_per_s
    return max(0.0, math.log(utilization / beyond) / spare_per_s)


def _loads_and_percentiles(rng: np.random.Generator) -> list[dict[str, Any]]:
    cases = []
    for percentile in (99.0, 50.0, 90.0, 95.0, 99.9, 75.0):
        service_rate_per_s = round(float(rng.uniform(2.0, 40.0)), 1)
        load = rng.uniform(0.3, 0.95)
        cases.append(
            {
                "arrival_rate_per_s": round(load * service_rate_per_s, 2),
                "service_rate_per_s": service_rate_per_s,
                "percentile": percentile,
            }
        )
    return cases


EXERCISE = function_exercise(
    "2.2",
    title="The slow ones",
    question=(
        "In an M/M/1 queue the time in the system, wait and service together, is "
        "exponentially distributed, with the mean W = 1/(μ − λ). Give any percentile of it: "
        "for a percentile of 99 the time that 99 requests in a hundred stay within."
    ),
    kind="compute",
    minutes=5,
    difficulty=1,
    reference=sojourn_percentile,
    cases=_loads_and_percentiles,
    result=Number("s"),
    wrong={
        mean_for_percentile: (
            "That is the mean, whatever percentile is asked. For an exponential distribution "
            "P99 is ln(100), about 4.6 times, the mean: a mean inside the target says little."
        ),
        service_without_the_queue: (
            "That is the service time's percentile: what a request takes that finds the "
            "server idle. Waiting is what the others cause, so λ must be in it."
        ),
        bell_curve_tail: (
            "Mean plus so many standard deviations is the tail of a bell curve. Times in a "
            "queue are skewed: an exponential tail is far longer, and half of the requests "
            "are below 0.69 of the mean."
        ),
        log_of_the_percentile: (
            "You take the logarithm of the percentile's number. It looks right at P99, where "
            "ln(99) is nearly ln(100), and nowhere else: the logarithm is of the share that "
            "takes longer, 1 − percentile/100, with a minus sign."
        ),
        wait_for_sojourn: (
            "That is the percentile of the wait before service alone; the time in the system "
            "is asked, until the request is done."
        ),
    },
    hints=(
        "What share of requests takes longer than t, if the time is exponential with mean W?",
        "exp(-t / W) take longer. Set that to the share beyond the percentile: 0.01 for P99.",
        "t = -ln(1 - percentile/100) · W, with W = 1/(μ − λ) and the natural logarithm.",
    ),
    explanation="P(T > t) = exp(−(μ − λ) t), so the q-th percentile is −ln(1 − q/100)/(μ − λ).",
)
