"""Exercise 2.5, What variable lengths cost: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch02.shared import SIMULATED
from course.exercises.values import Number, plain
from course.serving import queueing


def mean_wait(arrival_rate_per_s: float, service_s: np.ndarray) -> float:
    """Mean wait before service, in seconds, of an M/G/1 queue.

    Poisson arrivals of arrival_rate_per_s; service_s: a sample of service times, in seconds,
    which stands for their distribution.
    """
    utilization = arrival_rate_per_s * np.mean(service_s)
    return float(arrival_rate_per_s * np.mean(service_s**2) / (2 * (1 - utilization)))


def exponential_assumed(arrival_rate_per_s, service_s):
    """M/M/1's wait at the same mean."""
    utilization = arrival_rate_per_s * np.mean(service_s)
    return float(utilization * np.mean(service_s) / (1 - utilization))


def square_of_the_mean(arrival_rate_per_s, service_s):
    """The square of the mean where the mean of the squares belongs."""
    utilization = arrival_rate_per_s * np.mean(service_s)
    return float(arrival_rate_per_s * np.mean(service_s) ** 2 / (2 * (1 - utilization)))


def cv_not_squared(arrival_rate_per_s, service_s):
    """The formula with CV in it, and not CV²."""
    mean_s = np.mean(service_s)
    utilization = arrival_rate_per_s * mean_s
    cv = np.std(service_s) / mean_s
    return float((1 + cv) / 2 * utilization * mean_s / (1 - utilization))


def service_included(arrival_rate_per_s, service_s):
    """The time in the system."""
    mean_s = np.mean(service_s)
    utilization = arrival_rate_per_s * mean_s
    wait_s = arrival_rate_per_s * np.mean(service_s**2) / (2 * (1 - utilization))
    return float(wait_s + mean_s)


def _service_samples(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Service times from nearly constant answers to a long tail of very long ones."""
    cases = []
    for sigma, load in ((1.2, 0.7), (0.15, 0.85), (0.8, 0.5), (1.4, 0.6), (0.5, 0.9)):
        median_s = rng.uniform(0.2, 2.0)
        service_s = rng.lognormal(math.log(median_s), sigma, size=400).round(4)
        rate_per_s = round(load / float(service_s.mean()), 4)
        cases.append({"arrival_rate_per_s": rate_per_s, "service_s": service_s})
    return cases


def _wait_in_simulation(_: Any, case: Any) -> str:
    rng = np.random.default_rng(25)
    gaps_s = rng.exponential(1 / case["arrival_rate_per_s"], size=SIMULATED)
    drawn_s = rng.choice(case["service_s"], size=SIMULATED)
    return f"mean wait {plain(float(queueing.simulate_queue(gaps_s, drawn_s).mean()), 2)} s"


EXERCISE = function_exercise(
    "2.5",
    title="What variable lengths cost",
    question=(
        "Answers differ in length, so service times are not exponential. Pollaczek and "
        "Khinchine's formula needs only their mean and their mean square. From a sample of "
        "service times, predict the mean wait before service; the card simulates the same "
        "queue beside it."
    ),
    kind="predict",
    minutes=7,
    difficulty=2,
    reference=mean_wait,
    cases=_service_samples,
    result=Number("s", rel=0.005),
    evidence=_wait_in_simulation,
    wrong={
        exponential_assumed: (
            "That is M/M/1's wait, which knows the mean alone. Two services of one mean can "
            "wait very differently: use how the sample spreads."
        ),
        square_of_the_mean: (
            "You square the mean; the formula has the mean of the squares. Yours is M/D/1, a "
            "server that takes the same time for every answer: the floor."
        ),
        cv_not_squared: (
            "The factor is (1 + CV²)/2, with the CV squared. It matters most where the tail "
            "is long: a CV of 3 is a factor of 5, not 2."
        ),
        service_included: (
            "That is the time in the system: you added the service itself. Asked is the wait "
            "before it begins."
        ),
    },
    hints=(
        "The utilization is λ times the mean service time. What else does the sample tell?",
        "W_q = λ · E[S²] / (2 (1 − ρ)); E[S²] is the mean of the squares.",
        "np.mean(service_s**2) is E[S²]; np.mean(service_s)**2 is something else.",
    ),
    explanation=(
        "The wait is M/M/1's times (1 + CV²)/2: lengths with a CV² of 3 double it at the same "
        "load, and constant lengths halve it."
    ),
)
