"""Two joined straight lines through a curve's points; whether a bend is a knee is not said here."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from course.serving._arguments import FloatArray


def broken_stick(loads: FloatArray, values: FloatArray) -> tuple[float, float, float]:
    """Return (bend, first slope, second slope) of the two joined lines that fit best.

    Least squares over every place of the bend, at a point or between two (Hudson, 1966, "Fitting
    segmented curves whose join points have to be estimated"). Shapes (n,), n at least 4, `loads`
    rising. Each piece has two points or more. Time and memory grow with n, not with its square.

    >>> bend, steep, gentle = broken_stick(np.arange(1.0, 7.0), np.array([1, 2, 3, 3.5, 3.5, 3.5]))
    >>> round(bend, 9), round(steep, 9), abs(round(gentle, 9))
    (3.5, 1.0, 0.0)
    """
    shape = _shape(loads.tobytes())
    lines = _lines(shape, values - values.mean())
    free, at_points = _free(shape, lines), _at_points(shape, lines)
    best, freest = int(at_points.error.argmin()), int(free.error.argmin())
    # where the free lines of some split meet between its points, no bend there can fit better
    if free.error[freest] <= at_points.error[best]:
        return free.of(freest)
    return at_points.of(best)


class _Shape(NamedTuple):
    """What depends on the loads alone, which every resample of a sweep shares.

    Row 0 looks from the first load on, row 1 from the last one back; column k − 1 is of the k
    points seen so far. `seen`: k, `lean`: their mean distance from where the look began, `over`:
    the next point's distance from their mean, `weight`: k/(k + 1), `per_spread`: 1 / the sum of
    their squared distances from their mean (0 for one point). At each inner point as a bend:
    `gap` to the next one; the weights `first`, `second` and `stiffness` of `_at_points`; the
    leverage `tilt` of either side.
    """

    loads: FloatArray
    seen: FloatArray
    lean: FloatArray
    over: FloatArray
    weight: FloatArray
    per_spread: FloatArray
    gap: FloatArray
    first: FloatArray
    second: FloatArray
    stiffness: FloatArray
    tilt: tuple[FloatArray, FloatArray]


class _Lines(NamedTuple):
    """The best line for the first k points at [0, k − 1], for those from k on at [1, k].

    `height` at the last of the first k points, or at the first of the others; `slope`, its rise
    with each 1 of load (0 for one point); `error`, the squared deviations.
    """

    height: FloatArray
    slope: FloatArray
    error: FloatArray


class _Bends(NamedTuple):
    """For each place of the bend: where it is, both slopes, and the squared deviations."""

    bend: FloatArray
    steep: FloatArray
    gentle: FloatArray
    error: FloatArray

    def of(self, index: int) -> tuple[float, float, float]:
        # a level piece is 0 steep, not -0
        steep, gentle = float(self.steep[index]) + 0.0, float(self.gentle[index]) + 0.0
        return float(self.bend[index]), steep, gentle


def _summed(terms: FloatArray) -> FloatArray:
    """Return the running sums of each row, from 0 on."""
    sums = np.zeros((2, terms.shape[1] + 1))
    np.cumsum(terms, axis=1, out=sums[:, 1:])
    return sums


@lru_cache(maxsize=16)
def _shape(loads: bytes) -> _Shape:
    """Return what depends on the loads alone.

    Each point is added to the sums of those before it (Welford, 1962, "Note on a method for
    calculating corrected sums of squares and products"). Sums over distances have only positive
    terms, so that no digits are lost however near or far from each other the loads are.
    """
    x = np.frombuffer(loads)
    count = np.arange(1.0, x.size + 1)
    steps = np.stack((np.diff(x), np.diff(x)[::-1]))
    reach = _summed(count[:-1] * steps)  # sum of the distances from the newest point
    over, weight = reach[:, 1:] / count[:-1], count[:-1] / count[1:]
    spread = _summed(weight * over * over)
    per_spread = np.divide(1.0, spread, out=np.zeros_like(spread), where=spread > 0)
    gap = np.diff(x)[1:]
    near, points = reach[0, 1:-1], count[1:-1]
    far_points = count[:-2][::-1]
    far = reach[1, ::-1][2:] + far_points * gap
    # squared distances from the bend, of the points on either side
    left = spread[0, 1:-1] + near * near / points
    right = spread[1, ::-1][2:] + far * far / far_points
    v, w = points * spread[0, 1:-1] / left, far_points * spread[1, ::-1][2:] / right
    first, second = w / (v + w), v / (v + w)
    tilt = (first * near / left, second * far / right)
    return _Shape(
        x, count, reach / count, over, weight, per_spread, gap, first, second, first * v, tilt
    )


def _lines(shape: _Shape, y: FloatArray) -> _Lines:
    """Fit a line to the first 1, 2, … n points, and to the last n, … 2, 1."""
    both = np.stack((y, y[::-1]))
    mean = np.cumsum(both, axis=1) / shape.seen
    up = both[:, 1:] - mean[:, :-1]  # how far each point is from the mean of those before it
    weighted = shape.weight * up
    joint = _summed(weighted * shape.over)
    slope = joint * shape.per_spread
    error = np.maximum(_summed(weighted * up) - slope * joint, 0.0)
    height = mean + slope * shape.lean
    for part in (height, slope, error):
        part[1] = part[1, ::-1].copy()
    # from the other end the loads fall, so that a slope changes its sign
    slope[1] *= -1.0
    return _Lines(height, slope, error)


def _free(shape: _Shape, lines: _Lines) -> _Bends:
    """The lines before and after each gap, made without each other; infinite error if they miss.

    The gaps are after point 2, 3, … of n; the lines must meet in the gap between their points.
    """
    steep, gentle = lines.slope[0, 1:-2], lines.slope[1, 2:-1]
    gap = shape.gap[:-1]
    with np.errstate(divide="ignore", invalid="ignore"):
        way = (lines.height[1, 2:-1] - gentle * gap - lines.height[0, 1:-2]) / (steep - gentle)
    inside = (way >= 0) & (way <= gap)
    error = np.where(inside, lines.error[0, 1:-2] + lines.error[1, 2:-1], math.inf)
    return _Bends(shape.loads[1:-2] + np.where(inside, way, 0.0), steep, gentle, error)


def _at_points(shape: _Shape, lines: _Lines) -> _Bends:
    """The lines that are made to meet at each inner point, from those made without each other.

    The line of the points up to the bend and that of the points beyond it, with the heights p and
    q at the bend, give way to each other by their weights v and w there: they meet at the height
    (v p + w q)/(v + w), which adds (p − q)² v w/(v + w) to the squared deviations.
    """
    steep, gentle = lines.slope[0, 1:-1], lines.slope[1, 2:]
    jump = lines.height[1, 2:] - gentle * shape.gap - lines.height[0, 1:-1]
    return _Bends(
        shape.loads[1:-1],
        steep + shape.tilt[0] * jump,
        gentle + shape.tilt[1] * jump,
        lines.error[0, 1:-1] + lines.error[1, 2:] + shape.stiffness * jump * jump,
    )
