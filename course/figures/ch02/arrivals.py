"""Real traces' arrivals beside Poisson's; the statistics of the traces come from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.figures.axes import BLUE, INK, MUTED, ORANGE, styled

_CUES = ((BLUE, "o"), (ORANGE, "s"))


@dataclass(frozen=True, eq=False)
class TraceArrivals:
    """A trace's arrivals: quantiles of the gaps (percent, s), and counts in each whole minute."""

    percent: npt.NDArray[np.float64]
    gap_s: npt.NDArray[np.float64]
    mean_gap_s: float
    per_minute: npt.NDArray[np.int64]


@styled
def beside_poisson(traces: Mapping[str, TraceArrivals]) -> Figure:
    """Draw up to two traces beside Poisson arrivals: their gaps, and their counts a minute.

    On the left the share of gaps longer than x, with x in mean gaps so that every Poisson process
    falls on one curve; on the right the arrivals in each minute, each trace with the band that 95
    of 100 minutes of a Poisson process of the same rate would keep to.
    """
    figure = Figure(figsize=(8.6, 4.0), dpi=72)
    left: Axes = figure.add_axes((0.08, 0.14, 0.37, 0.72))
    right: Axes = figure.add_axes((0.56, 0.14, 0.42, 0.72))
    x = np.geomspace(1e-2, 1e3, 400)
    left.plot(x, np.exp(-x), color=INK, linewidth=2.5, label="Poisson")
    for (name, trace), (colour, marker) in zip(traces.items(), _CUES, strict=False):
        cue = {"color": colour, "marker": marker, "markerfacecolor": "white", "label": name}
        longer = 1 - trace.percent / 100
        _gaps(left, trace, longer, cue)
        _minutes(right, trace.per_minute, cue)
    left.set(xscale="log", yscale="log", xlim=(1e-2, 1e3), ylim=(1e-3, 1.3))
    left.set_xlabel("gap between arrivals, in mean gaps")
    left.set_ylabel("share of gaps that are longer")
    right.set_xlabel("minute of the trace")
    right.set_ylabel("arrivals in that minute")
    right.set_ylim(bottom=0)
    handles, labels = left.get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper left", bbox_to_anchor=(0.07, 1.0), ncols=3)
    right.text(
        0.98, 1.02, "bands: 95 % of Poisson minutes", transform=right.transAxes, ha="right",
        color=MUTED,
    )  # fmt: skip
    return figure


def _gaps(
    axes: Axes, trace: TraceArrivals, longer: npt.NDArray[np.float64], cue: dict[str, Any]
) -> None:
    seen = longer > 0
    axes.plot(
        trace.gap_s[seen] / trace.mean_gap_s, longer[seen], markevery=9, linewidth=1.4,
        markersize=5, **cue,
    )  # fmt: skip


def _minutes(axes: Axes, per_minute: npt.NDArray[np.int64], cue: dict[str, Any]) -> None:
    mean = float(per_minute.mean())
    # A Poisson count of mean m > 50 keeps within m ± 1.96 √m in 95 of 100 cases.
    half = 1.96 * np.sqrt(mean)
    axes.axhspan(mean - half, mean + half, color=cue["color"], alpha=0.2, linewidth=0)
    axes.plot(np.arange(per_minute.size), per_minute, linewidth=1.2, markersize=4, **cue)
