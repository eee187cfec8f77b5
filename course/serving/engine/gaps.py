"""The gaps between neighbouring tokens of many requests, pooled; no single request is read here.

All who decode in a step wait for it together, so the gaps of a run are few different values, each
with the number of sequences that waited for it: 2,000 requests have 300,000 gaps, but no more
different ones than steps.
"""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, IntArray, SmallArray
from course.serving.engine.kernels.state import Log
from course.serving.requests import Distribution

BUCKET_BITS = 12


class PooledGaps(Distribution):
    """A sample given as values and how often each occurs.

    Percentiles are found without sorting: the values are counted into buckets once, and only the
    bucket that a percentile falls into is sorted.
    """

    def __init__(self, different: FloatArray, times: SmallArray, undefined: int = 0) -> None:
        for name, value in {
            "undefined": undefined,
            "missed": 0,
            "different": different,
            "times": times,
        }.items():
            object.__setattr__(self, name, value)

    different: FloatArray
    times: SmallArray

    @cached_property
    def samples(self) -> int:
        """How many values stand behind every figure."""
        return int(self.times.sum())

    @cached_property
    def ordered(self) -> FloatArray:
        """All values in rising order, each as often as it occurs."""
        order = np.argsort(self.different)
        return np.repeat(self.different[order], self.times[order])

    @cached_property
    def values(self) -> FloatArray:
        """All values."""
        return np.repeat(self.different, self.times)

    @cached_property
    def mean(self) -> float | None:
        """The mean, or None without a value."""
        return float(self.different @ self.times) / self.samples if self.samples else None

    @cached_property
    def smallest(self) -> float | None:
        """The smallest value, or None without any."""
        return float(self.different.min()) if self.samples else None

    @cached_property
    def largest(self) -> float | None:
        """The largest value, or None without any."""
        return float(self.different.max()) if self.samples else None

    @cached_property
    def _bits(self) -> tuple[IntArray, int, int]:
        """The values as whole numbers in the same order, the smallest, and a bucket's width."""
        # the bits of a float that is not negative, read as a whole number, rise with it
        bits: IntArray = self.different.view(np.int64)
        low, high = int(bits.min()), int(bits.max())
        return bits, low, max((high - low).bit_length() - BUCKET_BITS, 0)

    @cached_property
    def _up_to(self) -> IntArray:
        """How often the values of the buckets before each occur."""
        from course.serving.engine.kernels import steps as k

        bits, low, shift = self._bits
        up_to: IntArray = np.empty(2**BUCKET_BITS + 1, dtype=np.int64)
        k.weigh_buckets(bits, self.times, low, shift, up_to)
        return up_to

    @cached_property
    def _opened(self) -> dict[int, tuple[FloatArray, IntArray]]:
        """Buckets looked into so far: their values, sorted, and how many are at most each."""
        return {}

    def _open(self, bucket: int) -> tuple[FloatArray, IntArray]:
        from course.serving.engine.kernels import steps as k

        if bucket not in self._opened:
            bits, low, shift = self._bits
            values: IntArray = np.empty(bits.size + 1, dtype=np.int64)
            counts: SmallArray = np.empty(bits.size + 1, dtype=np.int32)
            members = k.open_bucket(bits, self.times, low, shift, bucket, values, counts)
            order = np.argsort(values[:members])
            self._opened[bucket] = values[order].view(np.float64), np.cumsum(counts[order])
        return self._opened[bucket]

    def _at(self, place: int) -> float:
        if place >= self.samples:
            return math.inf
        bucket = int(np.searchsorted(self._up_to, place, side="right")) - 1
        values, ranks = self._open(bucket)
        within = place - int(self._up_to[bucket])
        return float(values[np.searchsorted(ranks, within, side="right")])


def pooled_gaps(
    log: Log, decode_mask: int, rows: IntArray, chosen: npt.NDArray[np.bool_], undefined: int
) -> PooledGaps:
    """Return the gaps of the `chosen` requests; `rows` are the table's, sorted by request.

    `undefined`: how many of them have no gap.
    """
    from course.serving.engine.kernels import steps as k

    steps = log.step_end_s.size
    number, decode_step, weight = np.empty((3, steps + 2), dtype=np.int32)
    gap_s: FloatArray = np.empty(2 * rows.size + chosen.size + steps + 1)
    times: SmallArray = np.empty(gap_s.size, dtype=np.int32)
    count = k.pool_gaps(
        log, decode_mask, chosen, rows, number[:steps], decode_step, weight, gap_s, times
    )
    return PooledGaps(gap_s[:count], times[:count], undefined)
