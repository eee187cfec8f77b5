"""A run of the burst scene, counted in bins of time; the scene and the engine are elsewhere."""

from __future__ import annotations

from typing import Final

import numpy as np

from course.figures.axes import FloatArray
from course.figures.ch05.over_time import OverTime
from course.serving.engine import ServiceRun
from course.serving.requests import BoolArray, Status
from course.serving.scenes.burst import Burst

BIN_S: Final = 5.0
END_S: Final = 300.0
"""The pictures end here, the runs go on for long enough that all that is drawn has ended."""


def burst_until_end(rate_per_s: float, factor: float, length_s: float) -> Burst:
    """Return the scene with a burst of that size, drawn to `END_S` and run beyond it.

    >>> burst_until_end(8.5, 3.0, 20.0) == Burst()
    True
    """
    start_s = Burst().start_s
    beyond_s = Burst().horizon_s - END_S
    return Burst(rate_per_s, factor, length_s, start_s, END_S + beyond_s - start_s - length_s)


def over_time(run: ServiceRun, burst: Burst, good: BoolArray) -> OverTime:
    """Count offered, good and sent per second in bins of `BIN_S`, by the time of sending.

    `good`: which requests kept the promise; shape (requests,), as of ``run.good``.
    """
    edges = np.arange(0.0, END_S + BIN_S / 2, BIN_S)
    bins = edges.size - 1

    def counted(times_s: FloatArray) -> FloatArray:
        places = (times_s / BIN_S).astype(np.int64)
        return np.bincount(places[places < bins], minlength=bins).astype(np.float64)

    table = run.attempts
    sent = counted(table.sent_s)
    there = np.maximum(sent, 1.0)
    answered = counted(table.sent_s[table.status == Status.FINISHED])
    last_sent_s = table.sent_s[run.last_attempt]
    in_time = counted(last_sent_s[good])
    return OverTime(
        edges_s=edges,
        offered_per_s=counted(run.first_sent_s) / BIN_S,
        good_per_s=counted(run.first_sent_s[good]) / BIN_S,
        attempts_per_s=sent / BIN_S,
        shares={
            "good": in_time / there,
            "late": (answered - in_time) / there,
            "refused": counted(table.sent_s[table.status == Status.REJECTED]) / there,
            "gave_up": counted(table.sent_s[table.status == Status.TIMED_OUT]) / there,
        },
        burst_s=(burst.start_s, burst.end_s),
    )


def back_after_s(time: OverTime, share: float) -> float | None:
    """Return the seconds from the burst's end to the first ten with the goodput of before, or None.

    Goodput is counted against what is offered in the same seconds, and has to be `share` of the
    same before the burst.
    """
    offered, good = time.offered_per_s, time.good_per_s
    start_s, end_s = time.burst_s
    before = (time.edges_s[:-1] >= 20.0) & (time.edges_s[1:] <= start_s)
    usual = good[before].sum() / max(offered[before].sum(), 1e-9)
    first = int(np.ceil(end_s / BIN_S))
    pairs_good = good[first:-1] + good[first + 1 :]
    pairs_offered = offered[first:-1] + offered[first + 1 :]
    well = np.flatnonzero(pairs_good >= share * usual * pairs_offered)
    if usual == 0 or well.size == 0:
        return None
    return float(time.edges_s[first + well[0]] - end_s)
