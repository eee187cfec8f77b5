"""Exercise 2.3, Headroom: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch02.shared import SIMULATED
from course.exercises.values import Number, plain
from course.serving import queueing


def highest_arrival_rate(service_rate_per_s: float, target_s: float) -> float:
    """Highest arrival rate, per second, at which P99 of the time in the system is within target_s.

    For an M/M/1 queue; 0.0 where even a request that finds the server idle misses the target.
    """
    return max(0.0, service_rate_per_s - math.log(100) / target_s)


def mean_within_target(service_rate_per_s, target_s):
    """The rate at which the mean meets the target."""
    return max(0.0, service_rate_per_s - 1 / target_s)


def rate_below_zero(service_rate_per_s, target_s):
    """The formula, followed where it leaves the world."""
    return service_rate_per_s - math.log(100) / target_s


def utilization_for_rate(service_rate_per_s, target_s):
    """The usable share of the service rate."""
    return max(0.0, 1 - math.log(100) / (target_s * service_rate_per_s))


def rule_of_thumb(service_rate_per_s, target_s):
    """A rule of thumb that knows no target."""
    return 0.8 * service_rate_per_s


def _services_and_targets(rng: np.random.Generator) -> list[dict[str, float]]:
    """Targets from easy to impossible, in units of the service time's own P99."""
    cases = []
    for times in (2.0, 5.0, 1.2, 0.6, 12.0, 3.0, 0.9):
        service_rate_per_s = round(float(rng.uniform(2.0, 40.0)), 1)
        alone_s = math.log(100) / service_rate_per_s
        target_s = round(float(times * rng.uniform(0.95, 1.05) * alone_s), 3)
        cases.append({"service_rate_per_s": service_rate_per_s, "target_s": target_s})
    return cases


def _p99_at(rate_per_s: float, case: Any) -> str | None:
    """What a simulation shows at the student's own rate."""
    service_rate_per_s, target_s = case["service_rate_per_s"], case["target_s"]
    at = f"at {plain(rate_per_s)}/s"
    if rate_per_s <= 0:
        return None
    if rate_per_s >= service_rate_per_s:
        return f"{at} the queue grows without end, for a target of {plain(target_s)} s"
    rng = np.random.default_rng(23)
    gaps_s = rng.exponential(1 / rate_per_s, size=SIMULATED)
    service_s = rng.exponential(1 / service_rate_per_s, size=SIMULATED)
    stays_s = queueing.simulate_queue(gaps_s, service_s) + service_s
    p99_s = float(np.percentile(stays_s, 99))
    return f"{at} P99 is about {plain(p99_s, 2)} s, for a target of {plain(target_s)} s"


EXERCISE = function_exercise(
    "2.3",
    title="Headroom",
    question=(
        "Your users were promised a P99 of target_s for the whole request. Read the last "
        "exercise backwards: up to which arrival rate does an M/M/1 server keep the promise? "
        "The card shows what a simulation does at the rate that you give."
    ),
    kind="predict",
    minutes=6,
    difficulty=2,
    reference=highest_arrival_rate,
    cases=_services_and_targets,
    result=Number("/s"),
    evidence=_p99_at,
    wrong={
        mean_within_target: (
            "At that rate the *mean* meets the target, and 37 requests in a hundred miss it. "
            "The promise is a P99: one in a hundred may."
        ),
        rate_below_zero: (
            "Right where the promise can be kept. Where it cannot, your rate is negative: no "
            "load at all is the best that can be done, and the answer is 0.0."
        ),
        utilization_for_rate: (
            "That is the usable utilization ρ, a share of 1. Asked is the rate λ = ρ · μ."
        ),
        rule_of_thumb: (
            "80 % is right for one target and one server only. A tight target needs far more "
            "headroom, a loose one less: target_s must be in the answer."
        ),
    },
    hints=(
        "Write P99 = ln(100)/(μ − λ) = target_s. Which letter do you want to be alone?",
        "μ − λ = ln(100)/target_s: the spare rate that the promise costs, at any μ.",
        "λ = μ − ln(100)/target_s, and never below 0.",
    ),
    explanation=(
        "The spare rate ln(100)/T is fixed by the target alone: a fast server loses little to "
        "it, a slow one nearly everything."
    ),
)
