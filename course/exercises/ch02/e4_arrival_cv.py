"""Exercise 2.4, How bursty is this trace: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number


def arrival_cv(arrival_s: np.ndarray) -> float:
    """Coefficient of variation of the gaps between arrivals: standard deviation over mean.

    arrival_s: when each request came, in seconds, in the order in which the log was written,
    which is the order in which the requests *ended*. About 1 for Poisson arrivals.
    """
    gaps_s = np.diff(np.sort(arrival_s))
    return float(np.std(gaps_s) / np.mean(gaps_s))


def scv_for_cv(arrival_s):
    """Variance over the mean squared."""
    gaps_s = np.diff(np.sort(arrival_s))
    return float(np.var(gaps_s) / np.mean(gaps_s) ** 2)


def log_order(arrival_s):
    """The gaps between neighbouring lines of the log."""
    gaps_s = np.diff(arrival_s)
    return float(np.std(gaps_s) / np.mean(gaps_s))


def negative_gaps_turned_round(arrival_s):
    """The same, with the negative gaps turned round."""
    gaps_s = np.abs(np.diff(arrival_s))
    return float(np.std(gaps_s) / np.mean(gaps_s))


def spread_of_the_timestamps(arrival_s):
    """The spread of the times themselves."""
    return float(np.std(arrival_s) / np.mean(arrival_s))


def counts_for_gaps(arrival_s):
    """The spread of the number of arrivals in each second."""
    counts = np.bincount(np.floor(arrival_s).astype(int))
    return float(np.std(counts) / np.mean(counts))


def _traces(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Gamma gaps from smoother than Poisson to very bursty, logged in order of completion."""
    traces = []
    for cv in (2.5, 0.4, 1.6, 4.0, 0.7):
        rate_per_s = rng.uniform(1.0, 8.0)
        gaps_s = rng.gamma(1 / cv**2, cv**2 / rate_per_s, size=600)
        arrival_s = np.cumsum(gaps_s)
        ended_s = arrival_s + rng.lognormal(1.0, 0.7, size=600)
        traces.append({"arrival_s": arrival_s[np.argsort(ended_s)].round(6)})
    return traces


EXERCISE = function_exercise(
    "2.4",
    title="How bursty is this trace",
    question=(
        "M/M/1 assumes Poisson arrivals, whose gaps have a coefficient of variation (CV) of 1. "
        "Before you trust it for a trace, measure the CV of the trace's gaps: standard "
        "deviation over mean. A log is usually written when a request ends, so its lines are "
        "not in order of arrival."
    ),
    kind="audit",
    minutes=5,
    difficulty=2,
    reference=arrival_cv,
    cases=_traces,
    result=Number("", rel=0.01, noun="a ratio without a unit"),
    wrong={
        scv_for_cv: (
            "That is the square of it, variance over mean squared (SCV). Kingman's formula "
            "wants the square; asked is the CV, so take the root."
        ),
        log_order: (
            "You take the gaps between neighbouring lines. The log is in the order in which "
            "requests ended: sort the arrival times first."
        ),
        negative_gaps_turned_round: (
            "Some gaps came out negative, and you made them positive. A negative gap says that "
            "the lines are not in order of arrival: sort the times, and none is left."
        ),
        spread_of_the_timestamps: (
            "That is the spread of the timestamps themselves, which only says how long the "
            "trace is. Burstiness is in the gaps between them."
        ),
        counts_for_gaps: (
            "That is the spread of arrivals per second, which depends on the rate and on "
            "where the seconds are cut. Take the gaps between arrivals."
        ),
    },
    hints=(
        "Which numbers are large when arrivals come in bunches: the times, or the gaps?",
        "np.sort, then np.diff. A gap can never be negative.",
        "np.std(gaps) / np.mean(gaps): to divide by n or n − 1 makes no difference here.",
    ),
    explanation=(
        "A CV above 1 is burstier than Poisson: at the same load the wait grows about as "
        "(CV² of arrivals + CV² of service)/2, as Kingman's formula says."
    ),
)
