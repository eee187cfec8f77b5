"""Means and percentiles of a sample, with how sure they are; what was sampled lives elsewhere."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from course.serving._arguments import FloatArray

CONFIDENCE = 0.95
"""How sure each bound of a percentile is by itself; both together hold with 2·0.95 − 1 = 90 %."""


@dataclass(frozen=True)
class Percentile:
    """A percentile with one 95 % bound on each side and the number of samples behind it.

    The bounds are order statistics: they hold for any distribution, as long as the samples are
    independent. `value` lies never outside them: where interpolation puts it beyond a bound (a P99
    of three samples), that bound is `value`, which is only more cautious. `value` is None where
    there is no sample, infinite where so large a share was missed; `low` or `high` is None where
    the sample is too small to bound that side. A P99 of fewer than 299 samples has no upper bound:
    with 298, chance alone keeps all of them below the true P99 in more than one run in twenty.

    Formula: Conover, Practical Nonparametric Statistics, 3rd ed., section 3.2.
    """

    value: float | None
    low: float | None
    high: float | None
    samples: int


@dataclass(frozen=True, eq=False)
class Distribution:
    """A sample of one metric: the values that are defined, and how many are not.

    `values` (in any order) are the defined ones; `undefined` counts successes that have no such
    number (a one-token answer has no TPOT); `missed` counts requests that never got an answer.
    Neither kind ever enters a mean.

    >>> Distribution(np.array([0.5, 0.25, 0.25]), undefined=1, missed=2).p50
    0.25
    """

    values: FloatArray
    undefined: int = 0
    missed: int = 0

    @property
    def samples(self) -> int:
        """How many values stand behind every figure."""
        return int(self.values.size)

    @cached_property
    def mean(self) -> float | None:
        """The mean of the defined values, or None without any."""
        return float(self.values.mean()) if self.values.size else None

    @cached_property
    def smallest(self) -> float | None:
        """The smallest defined value, or None without any."""
        return float(self.values.min()) if self.values.size else None

    @cached_property
    def largest(self) -> float | None:
        """The largest defined value, or None without any."""
        return float(self.values.max()) if self.values.size else None

    @cached_property
    def ordered(self) -> FloatArray:
        """The defined values in rising order."""
        return np.sort(self.values)

    def quantile(self, q: float, *, misses_as_infinite: bool = False) -> float | None:
        """Return the `q`-quantile (0 … 1) by linear interpolation, or None without a value.

        Of the answered only, which flatters a collapsed server; with `misses_as_infinite` every
        missed request stands at +∞ behind the others. Raises ValueError for a `q` outside 0 … 1.

        >>> Distribution(np.array([1.0, 2.0, 4.0]), missed=1).quantile(0.5)
        2.0
        >>> Distribution(np.array([1.0, 2.0, 4.0]), missed=1).quantile(
        ...     0.5, misses_as_infinite=True)
        3.0
        """
        _share(q)
        samples = self.samples + (self.missed if misses_as_infinite else 0)
        if samples == 0:
            return None
        position = q * (samples - 1)
        below = math.floor(position)
        left, share = self._at(below), position - below
        right = self._at(below + 1) if share > 0 else left
        # between equal neighbours nothing is added, so that no rounding can leave their value
        return left if right == left else left + share * (right - left)

    def percentile(self, q: float, *, misses_as_infinite: bool = False) -> Percentile:
        """Return the `q`-quantile with its bounds and the number of samples; see `quantile`.

        >>> Distribution(np.arange(1.0, 300.0)).percentile(0.99)
        Percentile(value=296.02, low=293.0, high=299.0, samples=299)
        >>> Distribution(np.array([1.0, 2.0, 3.0])).percentile(0.99)
        Percentile(value=2.98, low=2.98, high=None, samples=3)
        """
        value = self.quantile(q, misses_as_infinite=misses_as_infinite)
        samples = self.samples + (self.missed if misses_as_infinite else 0)
        if value is None:
            return Percentile(None, None, None, 0)
        low, high = bound_ranks(samples, q)
        return Percentile(
            value,
            None if low is None else min(self._at(low - 1), value),
            None if high is None else max(self._at(high - 1), value),
            samples,
        )

    def _at(self, place: int) -> float:
        return float(self.ordered[place]) if place < self.samples else math.inf

    @property
    def p50(self) -> float | None:
        """The median of the answered."""
        return self.quantile(0.5)

    @property
    def p90(self) -> float | None:
        """The 90th percentile of the answered."""
        return self.quantile(0.9)

    @property
    def p95(self) -> float | None:
        """The 95th percentile of the answered."""
        return self.quantile(0.95)

    @property
    def p99(self) -> float | None:
        """The 99th percentile of the answered; ask `percentile(0.99)` how sure it is."""
        return self.quantile(0.99)


def distribution(values: Iterable[float] | FloatArray, *, missed: int = 0) -> Distribution:
    """Return the sample of `values`, in which NaN stands for "undefined".

    >>> distribution([0.05, math.nan, 0.07]).undefined
    1
    """
    try:
        given = values if isinstance(values, np.ndarray) else list(values)
        array = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"values are no list of numbers: {error}") from None
    if array.ndim != 1:
        raise ValueError(f"values have shape {array.shape}; give one flat list")
    defined = array[~np.isnan(array)]
    if defined.size and defined.min() == -math.inf:
        raise ValueError("values hold −∞; give numbers, or +∞ for a miss")
    return Distribution(defined, undefined=array.size - defined.size, missed=missed)


def percentile(values: Sequence[float] | FloatArray, q: float) -> Percentile:
    """Return the `q`-quantile of `values` (NaN left out) by linear interpolation, with bounds.

    Values may be +∞ for requests that were never answered. Raises ValueError for `q` outside
    0 … 1.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 0.9)
    Percentile(value=3.7, low=2.0, high=None, samples=4)
    >>> percentile(range(1, 300), 0.99).high
    299.0
    """
    return distribution(values).percentile(q)


def histogram_percentile(
    upper_edges: Sequence[float], counts: Sequence[int], q: float
) -> Percentile:
    """Return what a server's histogram can say of a quantile: a guess, and the bucket around it.

    `upper_edges` rise, the first bucket begins at 0; `counts` are per bucket, not cumulative. The
    value is interpolated within the bucket, as monitoring systems do, and may lie far from any
    sample: only `low` and `high`, the bucket's edges, are known. None of an empty histogram.
    Raises ValueError for edges that do not rise, negative counts, or `q` outside 0 … 1.

    >>> histogram_percentile([10.0, 20.0], [100, 0], 0.99)
    Percentile(value=9.9, low=0.0, high=10.0, samples=100)
    """
    _share(q)
    edges = [0.0, *upper_edges]
    if len(counts) != len(upper_edges):
        raise ValueError(f"counts has {len(counts)} entries but upper_edges {len(upper_edges)}")
    for index in range(len(counts)):
        if not edges[index + 1] > edges[index]:
            raise ValueError(f"upper_edges[{index}]={edges[index + 1]} does not rise; sort them")
        if counts[index] < 0:
            raise ValueError(f"counts[{index}]={counts[index]} is negative; give counts per bucket")
    total = sum(counts)
    below = 0
    for low, high, count in zip(edges, edges[1:], counts, strict=False):
        if count and below + count >= q * total:
            inside = max(q * total - below, 0.0) / count
            value = high if inside == 1 or math.isinf(high) else low + inside * (high - low)
            return Percentile(value, low, high, total)
        below += count
    return Percentile(None, None, None, 0)


def _share(q: float) -> None:
    if not 0 <= q <= 1:
        raise ValueError(f"q={q!r} is not a quantile; give a share between 0 and 1, as 0.99")


@lru_cache(maxsize=4096)
def bound_ranks(
    samples: int, q: float, confidence: float = CONFIDENCE
) -> tuple[int | None, int | None]:
    """Return the ranks (1 … samples) of the order statistics that bound the `q`-quantile.

    The lower one lies at or below the true quantile with at least `confidence`, the upper one at
    or above it; None where no rank is that sure. The number of samples at or below the true
    quantile is binomial(samples, q).

    >>> bound_ranks(298, 0.99)[1], bound_ranks(299, 0.99)[1]
    (None, 299)
    """
    from scipy.special import bdtr

    def fewer_than(rank: int) -> float:
        """P(fewer than `rank` samples lie at or below the true quantile)."""
        return float(bdtr(rank - 1, samples, q))

    def first(reached: float) -> int:
        """The smallest rank at which `fewer_than` is at least `reached`, or samples + 1."""
        left, right = 1, samples + 1
        while left < right:
            middle = (left + right) // 2
            if fewer_than(middle) >= reached:
                right = middle
            else:
                left = middle + 1
        return left

    high = first(confidence)
    # the last rank that is not yet too likely to overshoot lies just before the first that is
    low = first(math.nextafter(1 - confidence, 1)) - 1
    return (low if low >= 1 else None), (high if high <= samples else None)
