"""Exercise 10.1, What the stopwatch says: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number


def copy_bandwidth(buffer_bytes: int, seconds: np.ndarray, warm_up: int) -> float:
    """Typical bandwidth of a copy, in bytes/s, counting what is read and what is written.

    buffer_bytes: size of the buffer that is copied; seconds: how long each call took, in the order
    of the calls; the first warm_up calls are warm-up.
    """
    typical_s = np.median(seconds[warm_up:])
    return float(2 * buffer_bytes / typical_s)


def mean_time(buffer_bytes, seconds, warm_up):
    """All bytes over all time."""
    return float(2 * buffer_bytes / np.mean(seconds[warm_up:]))


def warm_up_counted(buffer_bytes, seconds, warm_up):
    """The median of every call."""
    return float(2 * buffer_bytes / np.median(seconds))


def best_call(buffer_bytes, seconds, warm_up):
    """The best call there was."""
    return float(2 * buffer_bytes / np.min(seconds[warm_up:]))


def mean_of_rates(buffer_bytes, seconds, warm_up):
    """A rate for each call, and their mean."""
    return float(np.mean(2 * buffer_bytes / seconds[warm_up:]))


def _stopwatches(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Calls of a copy: slow first ones, and now and then one that another program disturbed."""
    cases = []
    for _ in range(5):
        buffer_bytes = int(rng.integers(32, 257)) * 2**20
        count, warm_up = int(rng.integers(40, 70)), int(rng.integers(12, 18))
        usual_s = 2 * buffer_bytes / rng.uniform(1e10, 2e11)
        seconds = usual_s * rng.lognormal(0.0, 0.06, size=count)
        seconds[:warm_up] *= np.linspace(6.0, 1.3, warm_up)
        disturbed = warm_up + rng.choice(count - warm_up, size=6, replace=False)
        seconds[disturbed] *= rng.uniform(3.0, 12.0, size=6)
        cases.append(
            {"buffer_bytes": buffer_bytes, "seconds": seconds.round(7), "warm_up": warm_up}
        )
    return cases


EXERCISE = function_exercise(
    "10.1",
    title="What the stopwatch says",
    question=(
        "A script copied one large buffer many times and wrote down every call. The first "
        "calls are warm-up (memory is handed out, code is compiled), and other programs broke "
        "in on a few of the others. Which bandwidth do you report? A copy reads each byte and "
        "writes it once; count both, as this course does."
    ),
    kind="compute",
    minutes=5,
    difficulty=1,
    reference=copy_bandwidth,
    cases=_stopwatches,
    result=Number("bytes/s", rel=0.003, noun="a number of bytes per second"),
    wrong={
        mean_time: (
            "A few calls during which another program had the machine pull the mean time up: "
            "you measured your neighbours too. The median call is what a copy usually takes."
        ),
        warm_up_counted: (
            "The warm-up calls are in your median. They measure how memory is handed out and "
            "code is loaded, once, and not the copy: leave the first warm_up calls away."
        ),
        best_call: (
            "That is the luckiest call. Asked is the typical one: with enough calls the best "
            "is always better, so two runs of unequal length could not be compared."
        ),
        mean_of_rates: (
            "You average rates, in which a disturbed call counts as a small number and hardly "
            "shows, but still pulls. Take the typical *time* first, then divide once."
        ),
    },
    hints=(
        "Which calls say nothing about the copy itself? Which number is unmoved by a few "
        "wild ones?",
        "seconds[warm_up:] are the calls that count; np.median is unmoved by a few.",
        "2 * buffer_bytes over the median: bytes are read and written.",
    ),
    explanation=(
        "Warm-up away, many repeats, the median with its quartiles, and a sentence on what "
        "the bytes count: with that a bandwidth can be compared."
    ),
)
