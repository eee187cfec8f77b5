"""The stretch of time that a run is measured in, and ways to choose it; no latency is here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from course.serving._arguments import FloatArray, at_least
from course.serving.requests.timelines import BoolArray, RequestTable


@dataclass(frozen=True)
class Window:
    """The stretch of time that a rate is divided by, with its name.

    "stopwatch" and "first send to last end" count every request. "steady state" counts for
    latencies and attainment the requests sent in [start, end), for rates those that ended in
    (start, end]: a rate of arrivals is no throughput.
    """

    name: Literal["stopwatch", "first send to last end", "steady state"]
    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        """Its length in seconds."""
        return self.end_s - self.start_s

    @property
    def is_cut(self) -> bool:
        """Whether requests outside of it are left out."""
        return self.name == "steady state"

    def offers(self, sent_s: FloatArray) -> BoolArray:
        """Whether requests sent at these times count for latencies and attainment; shape (n,).

        >>> Window("steady state", 1.0, 3.0).offers(np.array([0.5, 1.0, 3.0])).tolist()
        [False, True, False]
        """
        if not self.is_cut:
            return np.ones(np.shape(sent_s), dtype=np.bool_)
        return (sent_s >= self.start_s) & (sent_s < self.end_s)


def stopwatch(duration_s: float) -> Window:
    """Return the window of a stopwatch that ran `duration_s` around the whole run.

    Raises ValueError if it is not a finite number above 0.

    >>> stopwatch(1.3).duration_s
    1.3
    """
    return Window("stopwatch", 0.0, at_least("duration_s", duration_s, above=True))


def first_send_to_last_end(requests: RequestTable) -> Window:
    """Return the window from the first sending to the moment the last request left the system.

    Requests that never left (UNFINISHED) end at the last moment anything is known of. An empty
    table has a window of 0 s, in which no rate is defined.

    >>> first_send_to_last_end(RequestTable([2.0, 2.1], [2.5, 2.2], [3.0, 2.2], [3, 1])).end_s
    3.0
    """
    if requests.size == 0:
        return Window("first send to last end", 0.0, 0.0)
    start_s = float(requests.sent_s.min())
    left_s = requests.left_s
    known = left_s[np.isfinite(left_s)]
    end_s = max(float(requests.sent_s.max()), float(known.max()) if known.size else start_s)
    return Window("first send to last end", start_s, end_s)


def steady_state(
    requests: RequestTable, *, ramp_s: float | None = None, drain_s: float | None = None
) -> Window:
    """Return the run's window with its ramp and its drain cut off.

    Left out, the ramp lasts until as many requests have left as were inside at the peak (every
    seat has been taken anew once: the first wave of a closed loop is gone), and the drain begins
    at the last sending (from then on the load only falls). `ramp_s` and `drain_s` set either
    length in seconds. Raises ValueError where nothing would be left: such a run has no steady
    state to measure.

    >>> table = RequestTable(np.arange(10.0), np.arange(10) + 0.5, np.arange(10) + 0.9, [5] * 10)
    >>> steady_state(table)
    Window(name='steady state', start_s=0.9, end_s=9.0)
    """
    whole = first_send_to_last_end(requests)
    if ramp_s is not None:
        start_s = whole.start_s + at_least("ramp_s", ramp_s)
    else:
        left_s = np.sort(requests.left_s)
        seats = peak_concurrency(requests)
        start_s = float(left_s[seats - 1]) if seats else whole.start_s
    if drain_s is not None:
        end_s = whole.end_s - at_least("drain_s", drain_s)
    else:
        end_s = float(requests.sent_s.max()) if requests.size else whole.end_s
    if not start_s < end_s:
        raise ValueError(
            f"no steady state: the ramp ends at {start_s} s and the drain begins at {end_s} s; "
            "run longer, or set ramp_s and drain_s"
        )
    return Window("steady state", start_s, end_s)


def peak_concurrency(requests: RequestTable) -> int:
    """Return the largest number of requests in the system at once; ends count before starts.

    >>> peak_concurrency(RequestTable([0.0, 1.0, 1.5], [0.5, 1.2, 2.0], [1.0, 2.0, 3.0], [2] * 3))
    2
    """
    if requests.size == 0:
        return 0
    starts = np.sort(requests.sent_s)
    ends = np.sort(requests.left_s)
    gone = np.searchsorted(ends, starts, side="right")
    return int(max(0, (np.arange(1, starts.size + 1) - gone).max()))
