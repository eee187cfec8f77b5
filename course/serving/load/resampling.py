"""An interval for anything computed from a mean of runs, by resampling the runs; no curve here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from course.serving._arguments import FloatArray

FEWEST_RUNS = 5
"""With fewer runs no resampling can say how far they scatter."""

_ALL_UP_TO = 6
"""Up to so many runs all their resamples are gone through; there are 462 different ones of 6."""

_DRAWS = 2000
_LEAST_SHARE = 0.95
"""Where fewer resamples than this have the figure at all, its interval would flatter."""


class Resampled(NamedTuple):
    """Lower and upper bound, or None for both with the reason."""

    low: float | None
    high: float | None
    reason: str


@lru_cache(maxsize=16)
def weights(runs: int) -> tuple[FloatArray, FloatArray]:
    """Return (how often each run is drawn, shape (resamples, runs); probability of each).

    All the different resamples of a few runs with their multinomial probabilities; a fixed sample
    of them, equally likely, of more runs. The same every time.

    >>> counts, probability = weights(2)
    >>> counts.tolist(), probability.tolist()
    ([[2.0, 0.0], [1.0, 1.0], [0.0, 2.0]], [0.25, 0.5, 0.25])
    """
    if runs <= _ALL_UP_TO:
        counts = np.array(list(_compositions(runs, runs)), dtype=np.float64)
        ways = [
            math.factorial(runs) / math.prod(math.factorial(int(c)) for c in row) for row in counts
        ]
        return counts, np.array(ways) / runs**runs
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(runs, np.full(runs, 1 / runs), size=_DRAWS).astype(np.float64)
    return drawn, np.full(_DRAWS, 1 / _DRAWS)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total, -1, -1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


def resampled_interval(
    curves: FloatArray,
    figure: Callable[[FloatArray], float | None],
    estimate: float,
    confidence: float,
) -> Resampled:
    """Return an interval around `estimate` = `figure` of the mean curve, by resampling whole runs.

    `curves`: shape (runs, points). The bootstrap's standard error, corrected by runs/(runs − 1),
    times Student's t with runs − 1 degrees of freedom: with five runs the plain bootstrap
    percentiles hold only about 82 % of the time, this interval 93 to 97 %. Efron and Tibshirani
    (1993), An Introduction to the Bootstrap, chapters 6 and 12.

    >>> spread = np.array([[1.0], [2.0], [3.0], [4.0], [5.0]])
    >>> found = resampled_interval(spread, lambda mean: float(mean[0]), 3.0, 0.95)
    >>> round(found.low, 2), round(found.high, 2)  # the mean's own t interval
    (1.04, 4.96)
    """
    runs = curves.shape[0]
    if runs < FEWEST_RUNS:
        return Resampled(None, None, f"{runs} runs are fewer than {FEWEST_RUNS}")
    counts, probability = weights(runs)
    means = counts @ curves / runs
    if np.isnan(means).any():  # an infinite latency in one run, drawn no times
        means = np.where(np.isnan(means), math.inf, means)
    found = [figure(mean) for mean in means]
    has = np.array([value is not None for value in found])
    share = float(probability[has].sum())
    if share < _LEAST_SHARE:
        return Resampled(
            None, None,
            f"in {100 * (1 - share):.0f} % of the resamples of the {runs} runs there is no knee, "
            "so the runs do not agree that there is one",
        )  # fmt: skip
    values = np.array([value for value in found if value is not None])
    p = probability[has] / share
    centre = float(p @ values)
    error = math.sqrt(float(p @ (values - centre) ** 2) * runs / (runs - 1))
    half = student(confidence, runs - 1) * error
    return Resampled(estimate - half, estimate + half, "")


@lru_cache(maxsize=64)
def student(confidence: float, degrees: int) -> float:
    """Return the two-sided quantile of Student's t.

    >>> round(student(0.95, 4), 3)
    2.776
    """
    from scipy.special import stdtrit

    return float(stdtrit(degrees, (1 + confidence) / 2))
