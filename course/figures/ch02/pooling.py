"""One fast server, one shared queue, many queues, over utilisation; computed elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import NullFormatter

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    GuessMark,
    Picture,
    Point,
    bars,
    held_limit,
    place,
)
from course.figures.labels import GROUND, spread
from course.words import percent, seconds

_Box = tuple[float, float, float, float]
_UNBOUNDED_RIGHT = 1.08
_BOUNDED_RIGHT = 1.5


@dataclass(frozen=True)
class SimulatedSystem:
    """One system simulated at the reader's load; a band only where the run is long enough."""

    value_s: float
    band_s: tuple[float, float] | None
    needed_customers: int
    rejected_share: float


@dataclass(frozen=True)
class System:
    """One way to arrange the same capacity; the shown statistic in seconds, over utilisation.

    `value_s` and `rejected_share` belong to the reader's own load; the value is infinite where
    there is no steady state, and `simulated` is None where nothing was simulated.
    """

    curve_s: np.ndarray
    curve_rejected: np.ndarray
    value_s: float
    rejected_share: float
    simulated: SimulatedSystem | None


@dataclass(frozen=True)
class Pooling:
    """What the pooling picture shows: three systems of equal capacity under the same arrivals.

    `percentile` is None where the mean is shown; `waiting_places` (per server) is None where the
    queues are unbounded.
    """

    arrival_rate_per_s: float
    servers: int
    service_rate_per_s: float
    percentile: float | None
    wait_only: bool
    waiting_places: int | None
    customers: int
    curve_utilization: np.ndarray
    separate: System
    shared: System
    fast: System

    @property
    def utilization(self) -> float:
        """Offered load, total arrival rate over the capacity of all servers."""
        return self.arrival_rate_per_s / (self.servers * self.service_rate_per_s)

    @property
    def bounded(self) -> bool:
        """Whether arrivals are turned away from a full queue."""
        return self.waiting_places is not None

    @property
    def stable(self) -> bool:
        """Whether there is a steady state: always with bounded queues, else below full load."""
        return self.bounded or self.utilization < 1

    @property
    def systems(self) -> tuple[System, System, System]:
        """Separate queues, one shared queue, one fast server."""
        return self.separate, self.shared, self.fast

    @property
    def short_statistic(self) -> str:
        """The shown statistic in as few words as an axis has room for."""
        head = "mean" if self.percentile is None else f"P{100 * self.percentile:g}"
        return f"{head} {'wait' if self.wait_only else 'in system'}"

    @property
    def statistic(self) -> str:
        """The shown statistic in words, such as ``P99 of the wait``."""
        head = "mean" if self.percentile is None else f"P{100 * self.percentile:g} of the"
        return f"{head} {'wait' if self.wait_only else 'time in system'}"


@dataclass(frozen=True)
class _Series:
    """The artists of one system, in both panels."""

    name: str
    curve: Line2D
    simulated: Line2D
    bands: Line2D
    words: Text
    rejected: Line2D
    simulated_rejected: Line2D
    rejected_words: Text


class PoolingPicture(Picture):
    """Time against utilisation, log scale, for three systems; below it the share turned away."""

    size = (7.8, 4.9)

    def build(self, figure: Figure) -> None:
        """Make both axes, the legend and the empty artists."""
        if self.present:
            figure.set_size_inches(6.7, 5.0)
        self._axes = axes = figure.add_axes(self._places(bounded=True)[0])
        self.below = below = figure.add_axes(self._places(bounded=True)[1])
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_minor_formatter(NullFormatter())
        below.set_ylim(0, 0.5)
        below.yaxis.set_major_formatter(lambda value, _: percent(value))
        below.set_xlabel("utilisation offered, ρ = λ / (c μ)")
        self.no_state = self.keep(
            axes.axvspan(
                1.0, _UNBOUNDED_RIGHT, facecolor="#f2f2f2", edgecolor="#bdbdbd", hatch="//",
                linewidth=0, zorder=1,
            )
        )  # fmt: skip
        self._no_state_words = self.label(
            axes, MUTED, rotation=90, va="center", ha="center", zorder=2,
            transform=axes.get_xaxis_transform(),
        )  # fmt: skip
        grown = self._grown = 1.5 if self.present else 1.0
        rule = {"linewidth": 1.2 * grown, "linestyle": (0, (2, 2)), "zorder": 2}
        self._here = self.line(axes, INK, **rule)
        self._here_below = self.line(below, INK, **rule)
        self.here_points = self.line(
            axes, INK, marker="D", markersize=8 * grown, linestyle="", zorder=4
        )
        self.series = (
            self._one(ORANGE, "s", (5, 2), "separate: c queues"),
            self._one(BLUE, "o", (1, 0), "shared: one queue"),
            self._one(GREEN, "^", (6, 2, 1, 2), "fast: one server"),
        )
        self.guess = GuessMark(self, axes)
        self._note = self.label(axes, INK, transform=axes.transAxes, zorder=9, bbox=GROUND)
        corner = {"va": "top", "ha": "left", "zorder": 9, "bbox": GROUND}
        self.turned_away = self.label(below, INK, transform=below.transAxes, **corner)
        axes.plot(
            [], [], color=MUTED, marker="o", markersize=5, linestyle="", markerfacecolor="white",
            label="simulated (bar: 95 %)",
        )  # fmt: skip
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderaxespad=0.2,
            handlelength=2.6, columnspacing=1.6,
        )  # fmt: skip
        self._bounded: bool | None = None
        self._fresh = True
        self._lay_out(False)

    def _one(self, colour: str, marker: str, dashes: tuple[int, ...], name: str) -> _Series:
        axes, below = self._axes, self.below
        grown = self._grown
        points = {
            "marker": marker, "markersize": 5 * grown, "linestyle": "", "markerfacecolor": "white",
        }  # fmt: skip
        return _Series(
            name=name.split(":")[0],
            curve=self.line(axes, colour, dashes=dashes, label=name, zorder=3),
            simulated=self.line(axes, colour, zorder=5, **points),
            bands=self.line(
                axes, colour, linewidth=1.6 * grown, marker="_", markersize=9 * grown, zorder=4
            ),
            words=self.label(axes, colour, va="center", ha="right", zorder=9, bbox=GROUND),
            rejected=self.line(below, colour, dashes=dashes, zorder=3),
            simulated_rejected=self.line(below, colour, zorder=5, **points),
            rejected_words=self.label(
                below, colour, va="center", ha="right", zorder=9, bbox=GROUND
            ),
        )

    def frame_key(self) -> tuple[object, ...]:
        """The lower panel is there only while queues are bounded."""
        return (*super().frame_key(), self._bounded)

    def _places(self, bounded: bool) -> tuple[_Box, _Box]:
        """The boxes of both panels; the upper one has the whole height where it stands alone."""
        left, width, top = (0.125, 0.855, 0.845) if self.present else (0.1, 0.87, 0.88)
        foot = 0.135 if self.present else 0.12
        below = (left, foot, width, 0.21)
        start = foot + 0.21 + 0.07 if bounded else foot
        return (left, start, width, top - start), below

    def _lay_out(self, bounded: bool) -> None:
        """Show the lower panel and the loads beyond one only where queues are bounded."""
        if bounded == self._bounded:
            return
        self._bounded = bounded
        axes, below = self._axes, self.below
        right, step = (_BOUNDED_RIGHT, 0.25) if bounded else (_UNBOUNDED_RIGHT, 0.1)
        axes.set_position(self._places(bounded)[0])
        axes.set_xlabel("" if bounded else below.get_xlabel())
        below.set_visible(bounded)
        for panel in (axes, below):
            panel.set_xlim(0, right)
            panel.set_xticks(np.arange(0, right, step))
        axes.tick_params(labelbottom=not bounded)
        self.no_state.set_visible(not bounded)
        place(self._no_state_words, 1.045, 0.5, "" if bounded else "no steady state")
        place(self.turned_away, 0.012, 0.93, "turned away" if bounded else "")

    def update(self, result: Pooling, guess: Point | None) -> None:
        """Move everything to `result`."""
        axes, below = self._axes, self.below
        self._lay_out(result.bounded)
        low, high = _needed(result)
        if guess is not None and guess[1] > 0:
            # A wild guess may widen the picture by a decade, not flatten the curves.
            low, high = (
                min(low, max(0.7 * guess[1], 0.1 * low)),
                max(high, min(guess[1], 10 * high)),
            )
        limits = None if self._fresh else axes.get_ylim()
        self._fresh = False
        bottom, top = _held_limits(limits, low, high)
        axes.set_ylim(bottom, top)
        axes.set_ylabel(f"{result.short_statistic} (s)")
        share = 1.4 * max(s.rejected_share for s in result.systems)
        below.set_ylim(0, min(held_limit(below.get_ylim()[1], max(share, 0.05)), 1.0))
        for series, system in zip(self.series, result.systems, strict=True):
            self._show(series, result, system)
        self._show_operating_point(result, bottom, top)
        if guess is None:
            self.guess.show(None, top, seconds)
            return
        # A logarithmic axis has no zero: the star stops at the floor, and its words do not.
        said = seconds(guess[1])
        self.guess.show((guess[0], max(guess[1], 1.1 * bottom)), top, lambda _: said)

    def _show(self, series: _Series, result: Pooling, system: System) -> None:
        series.curve.set_data(result.curve_utilization, system.curve_s)
        x, point = [result.utilization], system.simulated
        series.simulated.set_data(*(([], []) if point is None else (x, [point.value_s])))
        band = None if point is None else point.band_s
        series.bands.set_data(*bars([(result.utilization, band)]))
        if not result.bounded:
            series.rejected.set_data([], [])
            series.simulated_rejected.set_data([], [])
            return
        series.rejected.set_data(result.curve_utilization, system.curve_rejected)
        series.simulated_rejected.set_data(
            *(([], []) if point is None else (x, [point.rejected_share]))
        )

    def _show_operating_point(self, result: Pooling, bottom: float, top: float) -> None:
        right = self._axes.get_xlim()[1]
        load = min(result.utilization, right)
        seen = result.utilization < right
        span = [load, load] if seen else []
        self._here.set_data(span, [bottom, top] if seen else [])
        drawn = seen and result.bounded
        self._here_below.set_data(span if drawn else [], [0, 1] if drawn else [])
        for series in self.series:
            place(series.words, 0, 0, "")
            place(series.rejected_words, 0, 0, "")
        self.here_points.set_data([], [])
        self._show_note(result, seen)
        if not result.stable:
            return
        values = [system.value_s for system in result.systems]
        inside = [value for value in values if seen and value >= bottom]
        self.here_points.set_data([load] * len(inside), inside)
        decades = math.log10(top / bottom)
        gap = (0.09 if result.bounded else 0.058) * (1.25 if self.present else 1.0)
        # Half a line above its point, so that a flat curve does not run through the words.
        heights = [math.log10(max(v, bottom) / bottom) / decades + gap / 2 for v in values]
        heights = spread(heights, gap, 0.03, 0.96)
        for series, value, height in zip(self.series, values, heights, strict=True):
            words = f"{series.name} {seconds(value)}"
            _beside(series.words, load, right, bottom * 10 ** (height * decades), words)
        if result.bounded:
            self._show_rejected(result, load, right)

    def _show_note(self, result: Pooling, seen: bool) -> None:
        """Say where the reader's load is when it cannot be drawn."""
        if not result.stable:
            self._note.set(ha="left", va="top")
            place(self._note, 0.015, 0.96, "more work arrives than can be done")
        elif not seen:
            self._note.set(ha="right", va="bottom")
            place(self._note, 0.985, 0.04, f"your load, {percent(result.utilization)}, is beyond →")
        else:
            place(self._note, 0, 0, "")

    def _show_rejected(self, result: Pooling, load: float, right: float) -> None:
        ceiling = self.below.get_ylim()[1]
        shares = [system.rejected_share for system in result.systems]
        gap = 0.26 if self.present else 0.2
        heights = spread([share / ceiling for share in shares], gap, 0.1, 0.9)
        for series, share, height in zip(self.series, shares, heights, strict=True):
            words = f"{series.name} {percent(share)}"
            _beside(series.rejected_words, load, right, height * ceiling, words)


def _beside(text: Text, x: float, right: float, y: float, words: str) -> None:
    """Put words on that side of the reader's load where there is room for them."""
    side: Literal["left", "right"] = "right" if x > 0.3 * right else "left"
    text.set_horizontalalignment(side)
    place(text, x + (-0.018 if side == "right" else 0.018) * right, y, words)


def _needed(result: Pooling) -> tuple[float, float]:
    """Return how far the vertical axis must reach; it depends on the load only where it must."""
    unit_s = 1 / result.service_rate_per_s
    # Times in system begin with the fast server's when idle. Waits begin at zero, which no
    # logarithmic axis can show: they are followed down to a tenth of its service time.
    low = 0.1 * unit_s / result.servers if result.wait_only else 0.8 * result.fast.curve_s[0]
    values = [s.value_s for s in result.systems if math.isfinite(s.value_s)]
    high = max([2.5 * unit_s, *values])
    return float(low), min(high, 600 * unit_s)


def _held_limits(
    current: tuple[float, float] | None, low: float, high: float
) -> tuple[float, float]:
    """Return half decades that hold still until the data leaves them or hardly uses them.

    Data that leaves them on one side adds to them there and keeps the other: after a few moves the
    axis covers what is being explored. What is new gets room for its words above `high`; for what
    moves within the limits a little is enough.
    """
    first, last = math.floor(2 * math.log10(low)), math.ceil(2 * math.log10(1.6 * high))
    if current is not None:
        bottom, top = (round(2 * math.log10(limit)) for limit in current)
        if 1.15 * high <= current[1]:
            last = min(last, top)
        both = (min(bottom, first), max(top, last))
        if both[1] - both[0] <= max(10, last - first):
            first, last = both
    return float(10 ** (first / 2)), float(10 ** (last / 2))
