"""Predicted against measured, serving points and single steps; the numbers come from elsewhere.

On the line prediction and measurement agree; the grey band is 20 % either way. Both axes are
logarithmic, so that a distance from the line is a factor everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.figures.axes import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, styled
from course.serving.validation import PointRow, StepRow

BAND = 0.20
"""Half the width of the grey band, as a share."""


@styled
def draw_points(rows: Sequence[PointRow]) -> Figure:
    """Draw throughput and TPOT of serving points; recorded and derived throughput told apart.

    Raises ValueError where there are no rows.
    """
    if not rows:
        raise ValueError("rows holds no serving point, so there is nothing to draw; give some")
    figure = Figure(figsize=(9.2, 4.9), dpi=72, layout="compressed")
    throughput, tpot = figure.subplots(1, 2)
    for block, colour, marker, size in (
        ("derived", MUTED, "o", 14.0),
        ("recorded", BLUE, "D", 20.0),
    ):
        mine = [row for row in rows if row.throughput_is == block]
        style = {
            "s": size, "marker": marker, "edgecolors": colour, "linewidths": 0.9,
            "facecolors": colour if block == "recorded" else "none",
            "label": f"{block} ({len(mine)})", "alpha": 0.8,
        }  # fmt: skip
        throughput.scatter(
            [r.measured_tokens_per_s for r in mine], [r.predicted_tokens_per_s for r in mine],
            **style,
        )  # fmt: skip
        tpot.scatter(
            [1e3 * r.measured_tpot_s for r in mine], [1e3 * r.predicted_tpot_s for r in mine],
            **style,
        )  # fmt: skip
    _frame(throughput, "Throughput, output tokens/s")
    _frame(tpot, "Time per output token, ms")
    throughput.legend(loc="upper left", title="Throughput was", alignment="left")
    return figure


@styled
def draw_steps(rows: Sequence[StepRow]) -> Figure:
    """Draw the times of single steps, one marker a card; whole steps and matrices side by side.

    Steps of the server of 2023 are crosses. Raises ValueError where there are no rows.
    """
    if not rows:
        raise ValueError("rows holds no step, so there is nothing to draw; give some")
    figure = Figure(figsize=(9.2, 4.9), dpi=72, layout="compressed")
    panels = dict(zip(("step", "matrices"), figure.subplots(1, 2), strict=True))
    looks = zip((BLUE, GREEN, PURPLE, ORANGE, INK), "os^Dv", strict=True)
    look_of = dict(zip(sorted({_card(row) for row in rows}), looks, strict=False))
    for part, axes in panels.items():
        for card, (colour, marker) in look_of.items():
            for served in (False, True):
                mine = [
                    r for r in rows
                    if r.part == part and _card(r) == card and _is_server(r) == served
                ]  # fmt: skip
                if mine:
                    axes.scatter(
                        [1e3 * r.measured_s for r in mine], [1e3 * r.predicted_s for r in mine],
                        s=20, marker="x" if served else marker, color=colour, linewidths=0.9,
                        label=f"{card}, server of 2023" if served else card, alpha=0.8,
                    )  # fmt: skip
        axes.legend(loc="upper left", fontsize="small")
    _frame(panels["step"], "Whole step, ms")
    _frame(panels["matrices"], "Matrices of a step, ms")
    return figure


def _card(row: StepRow) -> str:
    """Return the card's name out of "source: [n ×] card, model, part"."""
    return row.setup.split(": ")[1].split(",")[0].split(" × ")[-1]


def _is_server(row: StepRow) -> bool:
    return row.source == "splitwise-sim"


def _frame(axes: Axes, title: str) -> None:
    """Draw the line of agreement and the band, on square logarithmic axes with equal limits."""
    points = np.concatenate([np.asarray(one.get_offsets()) for one in axes.collections])
    low, high = 0.8 * float(points.min()), 1.25 * float(points.max())
    line = np.array([low, high])
    axes.fill_between(line, line * (1 - BAND), line * (1 + BAND), color="#ececec", zorder=0)
    axes.plot(line, line, color=INK, linewidth=1.0, zorder=1)
    axes.set(
        xscale="log", yscale="log", xlim=(low, high), ylim=(low, high),
        xlabel="measured", ylabel="predicted",
    )  # fmt: skip
    axes.set_title(title, loc="left", fontsize="medium")
    axes.set_aspect("equal")


def describe_points(rows: Sequence[PointRow]) -> str:
    """Return what `draw_points` shows in words, for readers who do not see it."""
    inside = np.mean(
        [abs(row.predicted_tokens_per_s / row.measured_tokens_per_s - 1) <= BAND for row in rows]
    )
    low = min(row.measured_tokens_per_s for row in rows)
    high = max(row.measured_tokens_per_s for row in rows)
    return (
        f"Two square charts of predicted against measured for {len(rows)} load "
        f"level{'' if len(rows) == 1 else 's'}: throughput "
        f"on the left ({low:,.0f} to {high:,.0f} output tokens per second), time per output token "
        f"on the right. The points follow the diagonal; {100 * inside:.0f} % of the throughputs "
        f"lie within {100 * BAND:.0f} % of it."
    )
