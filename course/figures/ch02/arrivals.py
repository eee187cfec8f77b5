"""A real trace's arrivals beside Poisson's; the statistics of the trace come from elsewhere."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.figures.axes import BLUE, GREEN, INK, ORANGE, styled


@styled
def trace_beside_poisson(
    gaps_s: Mapping[str, tuple[np.ndarray, np.ndarray]], mean_gap_s: Mapping[str, float]
) -> Figure:
    """Draw how often a gap is longer than x: real traces (points) beside Poisson arrivals.

    `gaps_s` maps a trace's name to (gap in s, share of gaps longer than it); `mean_gap_s` to its
    mean gap. Both axes are in units of the mean gap and logarithmic, so that all Poisson processes
    fall on one curve.
    """
    figure = Figure(figsize=(7.6, 4.0), dpi=72)
    axes: Axes = figure.add_axes((0.11, 0.15, 0.86, 0.8))
    x = np.geomspace(1e-2, 1e3, 400)
    axes.plot(x, np.exp(-x), color=INK, label="Poisson arrivals: exp(−x)")
    cues = zip(gaps_s.items(), (BLUE, ORANGE, GREEN), ("o", "s", "^"), strict=False)
    for (name, (gap, longer)), colour, marker in cues:
        axes.plot(
            gap / mean_gap_s[name], longer, color=colour, marker=marker, markevery=6,
            markerfacecolor="white", linewidth=1.2, label=name,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(1e-2, 1e3)
    axes.set_ylim(1e-4, 1.3)
    axes.set_xlabel("gap between arrivals, in mean gaps")
    axes.set_ylabel("share of gaps that are longer")
    axes.legend(loc="lower left")
    return figure
