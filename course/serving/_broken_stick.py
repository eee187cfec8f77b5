"""Fits two joined straight lines to points; what the bend means is said elsewhere."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from course.serving._arguments import FloatArray


def broken_stick(loads: FloatArray, values: FloatArray) -> tuple[float, float, float]:
    """Return (bend, first slope, second slope) of the two joined lines that fit best.

    Least squares over every place of the bend, at a point or between two (Hudson, 1966, "Fitting
    segmented curves whose join points have to be estimated"). Shapes (n,), n at least 4. Each
    piece has two points or more.

    >>> bend, steep, gentle = broken_stick(np.arange(1.0, 7.0), np.array([1, 2, 3, 3.5, 3.5, 3.5]))
    >>> round(bend, 9), round(steep, 9), abs(round(gentle, 9))
    (3.5, 1.0, 0.0)
    """
    free, at_points = _free_lines(loads, values), _bends_at_points(loads.tobytes())
    height = values - values.mean()
    coefficients = at_points.solve @ height
    error = ((at_points.columns @ coefficients[:, :, None])[:, :, 0] - height[None, :]) ** 2
    sums = error.sum(axis=1)
    best, freest = int(sums.argmin()), int(free.error.argmin())
    # where the free lines of some split meet between its points, no bend there can fit better
    if free.error[freest] <= sums[best]:
        return float(free.bend[freest]), float(free.steep[freest]), float(free.gentle[freest])
    _, steep, change = coefficients[best].tolist()
    return float(loads[best + 1]), steep, steep + change


class _Lines(NamedTuple):
    """For each split of the points in two: where the lines meet, their slopes, their error."""

    bend: FloatArray
    steep: FloatArray
    gentle: FloatArray
    error: FloatArray


def _free_lines(x: FloatArray, y: FloatArray) -> _Lines:
    """Fit a line to the points before and one after each split; infinite error if they miss.

    The split is after point 2, 3, … of n; they must meet in the gap between their points.
    """
    middle, level = float(x.mean()), float(y.mean())
    u, v = x - middle, y - level  # sums of squares of large numbers would lose digits
    sums = np.cumsum([np.ones_like(u), u, v, u * u, u * v, v * v], axis=1)
    before = sums[:, 1:-2]
    one, other = _lines(before), _lines(sums[:, -1:] - before)
    turn = one[1] - other[1]
    with np.errstate(divide="ignore", invalid="ignore"):
        meet = (other[0] - one[0]) / turn
    inside = (meet >= u[1:-2]) & (meet <= u[2:-1])
    error = np.where(inside, one[2] + other[2], math.inf)
    return _Lines(meet + middle, one[1], other[1], error)


def _lines(sums: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Intercept, slope and squared error from the sums 1, x, y, xx, xy, yy."""
    n, x, y, xx, xy, yy = sums
    spread, joint = xx - x * x / n, xy - x * y / n
    slope = joint / spread
    error = np.maximum(yy - y * y / n - slope * joint, 0.0)
    return (y - slope * x) / n, slope, error


class _Bends(NamedTuple):
    """The fits with the bend at each inner point: (points − 2) design matrices and their inverses.

    Columns: constant, slope, change of slope.
    """

    columns: FloatArray
    solve: FloatArray


@lru_cache(maxsize=64)
def _bends_at_points(loads: bytes) -> _Bends:
    """Kept, as every resample of a sweep has the same loads."""
    x = np.frombuffer(loads)
    columns = np.array(
        [np.stack([np.ones_like(x), x, np.maximum(x - bend, 0)], axis=1) for bend in x[1:-1]]
    )
    return _Bends(columns, np.linalg.pinv(columns))
