"""Exercise 10.3, Two costs in one time: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number


def weight_bandwidth(weight_bytes: np.ndarray, seconds: np.ndarray) -> float:
    """Bandwidth at which weights are read, in bytes/s.

    weight_bytes: sizes of several weight matrices; seconds: how long a product of each with one
    token vector took. Every product also costs a fixed time, the same for all, which is not known.
    """
    seconds_per_byte, _fixed_s = np.polyfit(weight_bytes, seconds, 1)
    return float(1 / seconds_per_byte)


def largest_alone(weight_bytes, seconds):
    """Bytes over time of the largest, whose fixed part matters least."""
    largest = np.argmax(weight_bytes)
    return float(weight_bytes[largest] / seconds[largest])


def mean_of_ratios(weight_bytes, seconds):
    """Bytes over time of each, averaged."""
    return float(np.mean(weight_bytes / seconds))


def median_of_ratios(weight_bytes, seconds):
    """The middle of bytes over time."""
    return float(np.median(weight_bytes / seconds))


def line_through_the_origin(weight_bytes, seconds):
    """A straight line without a fixed part."""
    return float(np.sum(weight_bytes**2) / np.sum(weight_bytes * seconds))


def seconds_per_byte(weight_bytes, seconds):
    """The slope itself."""
    seconds_per_byte, _fixed_s = np.polyfit(weight_bytes, seconds, 1)
    return float(seconds_per_byte)


def _matrices(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Products whose fixed part is from a fifth to the whole of the largest one's reading."""
    cases = []
    for share in (0.2, 0.5, 1.0, 0.3, 0.7):
        weight_bytes = np.sort(rng.choice(np.arange(1, 33), size=6, replace=False)) * 2.0**20
        bandwidth = rng.uniform(1e10, 3e12)
        fixed_s = share * weight_bytes.max() / bandwidth
        seconds = (fixed_s + weight_bytes / bandwidth) * rng.normal(1.0, 5e-4, size=6)
        cases.append({"weight_bytes": weight_bytes, "seconds": seconds})
    return cases


EXERCISE = function_exercise(
    "10.3",
    title="Two costs in one time",
    question=(
        "You timed the product of one token vector with weight matrices of several sizes. "
        "Every product costs a fixed time (dispatch, start of the kernel) and then the time "
        "of reading its weights. You know neither. At what bandwidth are the weights read?"
    ),
    kind="compute",
    minutes=6,
    difficulty=2,
    reference=weight_bandwidth,
    cases=_matrices,
    result=Number("bytes/s", rel=0.02, noun="a number of bytes per second"),
    wrong={
        largest_alone: (
            "The largest matrix hides the fixed part best, but it is still in its time: from "
            "one size alone nobody can tell a slow memory from a costly start."
        ),
        mean_of_ratios: (
            "In each ratio the fixed time is counted as reading, most of all in the small "
            "ones. Averaging does not take it out: look at how the time *grows* with bytes."
        ),
        median_of_ratios: (
            "A median is a shield against a few wild calls. The fixed time is in *every* call "
            "and makes each ratio too small: no choice among them takes it out."
        ),
        line_through_the_origin: (
            "Your line starts at 0 s for 0 bytes. A product of nothing would still cost its "
            "start: let the line have an intercept of its own."
        ),
        seconds_per_byte: (
            "That is the slope: the seconds that one more byte costs. A bandwidth is bytes "
            "per second, the other way up."
        ),
    },
    hints=(
        "Two sizes, two times: which part of the time is the same in both?",
        "time = fixed + bytes / bandwidth is a straight line over the bytes.",
        "np.polyfit(weight_bytes, seconds, 1) returns slope and intercept; 1/slope is asked.",
    ),
    explanation=(
        "The slope tells the bandwidth, the intercept the fixed time; a single size tells "
        "neither. With batches beyond the ridge a third constant joins in, the peak, and the "
        "line gets a round corner."
    ),
)
