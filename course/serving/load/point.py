"""What one run at one load gave, measured in its steady window; sweeps are in `sweeping`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray
from course.serving.engine import Run
from course.serving.requests import SLO, Status, Window, metrics

BoolArray = npt.NDArray[np.bool_]

_LEAST_STEADY = 0.7
"""Where less than this share of an open run is left without its ramp, the queue was growing."""

_DRIFT = 0.05
"""Where more than this share of what came in a window is still inside, the queue is growing."""


@dataclass(frozen=True, eq=False)
class Served:
    """The requests that were sent or ended in the window: enough to judge any SLO later."""

    ttft_s: FloatArray
    tpot_s: FloatArray
    e2e_s: FloatArray
    sent: BoolArray
    ended: BoolArray

    def attainment(self, slo: SLO) -> float:
        """Return the share of those sent in the window that keep every limit; NaN without any."""
        met, undecided = metrics.meets(slo, self.ttft_s, self.tpot_s, self.e2e_s)
        # whoever was not finished has no E2E, and no limit may be all that says so
        met &= ~np.isnan(self.e2e_s)
        judged = int(self.sent.sum()) - int((undecided & self.sent).sum())
        return int((met & self.sent).sum()) / judged if judged else math.nan

    def good(self, slo: SLO) -> int:
        """Return how many of those that ended in the window keep every limit."""
        met, _ = metrics.meets(slo, self.ttft_s, self.tpot_s, self.e2e_s)
        return int((met & self.ended).sum())


@dataclass(frozen=True, eq=False)
class LoadPoint:
    """What one run at one load gave, in its steady window.

    `steady` is False where the queue still grew: then the latencies are those of a run of this
    length, and a longer one would show worse. Times are of the finished requests, NaN without any;
    `missed` counts the others. `kv_peak_share` is NaN where KV is not limited.
    """

    load: float
    seed: int
    steady: bool
    window_s: float
    offered: int
    missed: int
    requests_per_s: float
    output_tokens_per_s: float
    in_system: float
    ttft_mean_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_mean_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    e2e_mean_s: float
    preemptions: int
    kv_peak_share: float
    served: Served

    def attainment(self, slo: SLO) -> float:
        """Return the share of the requests offered that keep every limit; NaN without a request."""
        return self.served.attainment(slo)

    def goodput_per_s(self, slo: SLO) -> float:
        """Return requests a second that keep every limit."""
        return self.served.good(slo) / self.window_s if self.window_s > 0 else math.nan


FIGURES = tuple(
    name for name in LoadPoint.__dataclass_fields__ if name not in ("load", "seed", "served")
)
"""The columns of a sweep."""


def steady_window(run: Run) -> tuple[Window, bool]:
    """Return the window to measure a run in, and whether it was steady there.

    The ramp and the drain are cut off (`metrics.steady_state`). Where the queue grows to the end
    there is no steady state: then it is the time in which the server was kept busy, from when its
    seats have been taken anew once until the last request in the queue gets one. That shows the
    throughput that the server can sustain.
    """
    try:
        window = run.steady_state()
    except ValueError:
        return _busy_window(run), False
    if run.user is not None:
        return window, True  # a closed loop cannot grow
    return (window, True) if _is_steady(run, window) else (_busy_window(run), False)


def _is_steady(run: Run, window: Window) -> bool:
    """Whether as many leave as come: little ramp to cut off, and no growth after it."""
    left_s, sent_s = run.requests.left_s, run.arrival_s
    if window.duration_s < _LEAST_STEADY * float(sent_s[-1] - sent_s[0]):
        return False
    before, until = (int((sent_s < edge).sum()) for edge in (window.start_s, window.end_s))
    at_start = before - int((left_s <= window.start_s).sum())
    at_end = until - int((left_s <= window.end_s).sum())
    # what is inside scatters by about the root of its mean, growth or not
    scatter = 3 * math.sqrt((at_start + at_end) / 2)
    return at_end - at_start <= _DRIFT * (until - before) + scatter


def _busy_window(run: Run) -> Window:
    """From when as many have left as had a seat at most, until the last one is given a seat."""
    seated = np.isfinite(run.scheduled_s)
    if not seated.any():
        return run.window()
    left_s = np.sort(run.requests.left_s[seated])
    taken_s = np.sort(run.scheduled_s[seated])
    gone = np.searchsorted(left_s, taken_s, side="right")
    seats = int((np.arange(1, taken_s.size + 1) - gone).max())
    start_s, end_s = float(left_s[seats - 1]), float(taken_s[-1])
    return Window("steady state", start_s, end_s) if start_s < end_s else run.window()


def measure(run: Run, load: float, seed: int) -> LoadPoint:
    """Return what a run gave, in its steady window."""
    window, steady = steady_window(run)
    found = run.summary(window=window)
    finished = run.status == Status.FINISHED
    sent = np.ones(len(run), dtype=np.bool_)
    ended = finished
    if window.is_cut:
        sent = (run.arrival_s >= window.start_s) & (run.arrival_s < window.end_s)
        ended = finished & (run.finish_s > window.start_s) & (run.finish_s <= window.end_s)
    blocks, limit = run.step_kv_blocks, run.config.num_kv_blocks
    kept = sent | ended
    served = Served(
        np.where(finished, run.ttft_s, math.nan)[kept],
        run.tpot_s[kept], run.e2e_s[kept], sent[kept], ended[kept],
    )  # fmt: skip
    return LoadPoint(
        load=load,
        seed=seed,
        steady=steady,
        window_s=window.duration_s,
        offered=found.offered,
        missed=found.offered - found.successes,
        requests_per_s=_or_nan(found.requests_per_s),
        output_tokens_per_s=_or_nan(found.output_tokens_per_s),
        in_system=_or_nan(found.concurrency),
        ttft_mean_s=_or_nan(found.ttft.mean),
        ttft_p50_s=_or_nan(found.ttft.p50),
        ttft_p99_s=_or_nan(found.ttft.p99),
        tpot_mean_s=_or_nan(found.tpot.mean),
        tpot_p50_s=_or_nan(found.tpot.p50),
        tpot_p99_s=_or_nan(found.tpot.p99),
        e2e_mean_s=_or_nan(found.e2e.mean),
        preemptions=int(run.preemptions[sent].sum()),
        kv_peak_share=int(blocks.max()) / limit if blocks is not None and limit else math.nan,
        served=served,
    )


def _or_nan(value: float | None) -> float:
    return math.nan if value is None else value
