"""Overload with and without admission: over time, and against the load; nothing is run here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    FloatArray,
    GuessMark,
    Picture,
    Point,
    held_top,
    place,
)
from course.figures.ch05.over_time import BurstShade, OverTime, muted_rule
from course.serving.scenes.burst import OPEN
from course.words import percent, rounded

MOST_PER_S = 25.0
"""Right end of the panels against the offered load."""


@dataclass(frozen=True, eq=False)
class LoadCurve:
    """Goodput and attainment at steady loads; arrays of shape (loads,)."""

    offered_per_s: FloatArray
    good_per_s: FloatArray
    attainment: FloatArray


@dataclass(frozen=True, eq=False)
class Stretch:
    """What became of the requests first sent in one stretch of time; shares of those offered."""

    offered_per_s: float
    good_per_s: float
    refused: float
    gave_up: float
    cut_short: float

    @property
    def attainment(self) -> float:
        """Good requests / requests offered."""
        return self.good_per_s / self.offered_per_s if self.offered_per_s else 0.0


@dataclass(frozen=True, eq=False)
class Overload:
    """What the picture shows: one gate, and beside it a server that accepts everything.

    `stretches`, `open_stretches`: before, in and after the burst.
    """

    gate: str
    max_wait_s: float
    limit_requests: int
    short_tokens: int
    patience_s: float
    rate_per_s: float
    burst_per_s: float
    capacity_per_s: float
    time: OverTime
    open_time: OverTime
    stretches: tuple[Stretch, Stretch, Stretch]
    open_stretches: tuple[Stretch, Stretch, Stretch]
    curve: LoadCurve
    open_curve: LoadCurve

    @property
    def calm(self) -> bool:
        """Whether the burst is none."""
        return self.burst_per_s == self.rate_per_s

    @property
    def is_open(self) -> bool:
        """Whether the gate is none."""
        return self.gate == OPEN


class OverloadPicture(Picture):
    """Goodput above and attainment below; over time on the left, against the load on the right."""

    size = (8.8, 5.2)

    def build(self, figure: Figure) -> None:
        """Make the axes, the legend and the empty artists."""
        if self.present:
            left, right, low, high = (0.095, 0.5), (0.685, 0.295), (0.135, 0.3), (0.525, 0.36)
        else:
            left, right, low, high = (0.075, 0.535), (0.68, 0.305), (0.105, 0.325), (0.515, 0.4)
        self.good, self._met, self._good_by, self._met_by = (
            figure.add_axes((x[0], y[0], x[1], y[1])) for x in (left, right) for y in (high, low)
        )
        for axes in (self.good, self._met):
            axes.set(xlim=(0, 300), xticks=range(0, 301, 60))
        for axes in (self._good_by, self._met_by):
            axes.set(xlim=(0, MOST_PER_S), xticks=range(0, 26, 5))
        for axes in (self._met, self._met_by):
            axes.set(ylim=(0, 104), yticks=[0, 50, 100])
        for axes in (self.good, self._good_by):
            axes.set(ylim=(0, 20))
            axes.tick_params(labelbottom=False)
        self.good.set_ylabel("good answers / s")
        self._met.set_ylabel("attainment (%)")
        self._met.set_xlabel("time of first sending (s)")
        self._met_by.set_xlabel("offered load (requests/s)")
        self._build_lines()
        handles = [self.open[0], self.own[0], self.offered, self._capacity[0]]
        figure.legend(
            handles=handles,
            labels=[OPEN, "this gate", "offered", "capacity"],
            loc="upper left", bbox_to_anchor=(0.05, 1.0), ncols=4, handlelength=2.4,
            columnspacing=1.4, borderaxespad=0.25, fontsize=11.5 if self.present else 10,
        )  # fmt: skip

    def _build_lines(self) -> None:
        panels = (self.good, self._met, self._good_by, self._met_by)
        self._shades = [
            BurstShade(self, axes, words=axes is self.good) for axes in (self.good, self._met)
        ]
        self._loads = [self._rules(axes) for axes in (self._good_by, self._met_by)]
        self._capacity = [muted_rule(axes, self) for axes in (self.good, self._good_by)]
        self.offered = self.line(self.good, INK, linewidth=1.3, dashes=(2, 1.5), zorder=3)
        self._offered_by = self.line(self._good_by, INK, linewidth=1.3, dashes=(2, 1.5), zorder=3)
        dots: list[dict[str, Any]] = [{}, {}, {"marker": "s"}, {"marker": "s"}]
        size = 6.5 if self.present else 4.5
        self.open = [
            self.line(axes, ORANGE, dashes=(5, 2), zorder=4, markersize=size, **look)
            for axes, look in zip(panels, dots, strict=True)
        ]
        dots = [{}, {}, {"marker": "o"}, {"marker": "o"}]
        self.own = [
            self.line(axes, BLUE, zorder=5, markersize=size, **look)
            for axes, look in zip(panels, dots, strict=True)
        ]
        small = 10.5 if self.present else 9.0
        self._load_words = [
            self.label(
                self._good_by, GREEN, ha="center", va="bottom", fontsize=small, zorder=8,
                transform=self._good_by.get_xaxis_transform(),
            )
            for _ in range(2)
        ]  # fmt: skip
        self.guess = GuessMark(self, self.good)

    def _rules(self, axes: Axes) -> Any:
        """A line each at the usual load and at the burst's."""
        return self.line(axes, GREEN, linewidth=1.4, linestyle=(0, (6, 1.5, 1, 1.5)), zorder=2)

    def update(self, result: Overload, guess: Point | None) -> None:
        """Move everything to `result`."""
        needed = 1.3 * max(
            float(result.time.offered_per_s.max()), result.capacity_per_s, guess[1] if guess else 0
        )
        top = held_top(self.good.get_ylim()[1], min(needed, 100.0))
        self.good.set_ylim(0, top)
        self.offered.set_data(result.time.middle_s, result.time.offered_per_s)
        self._offered_by.set_data([0, 100], [0, 100])
        for line, right in zip(self._capacity, (300, MOST_PER_S), strict=True):
            line.set_data([0, right], [result.capacity_per_s] * 2)
        for lines, time, curve in (
            (self.open, result.open_time, result.open_curve),
            (self.own, result.time, result.curve),
        ):
            if lines is self.own and result.is_open:
                for line in lines:
                    line.set_data([], [])
                continue
            lines[0].set_data(time.middle_s, time.good_per_s)
            lines[1].set_data(time.middle_s, 100 * _attained(time))
            lines[2].set_data(curve.offered_per_s, curve.good_per_s)
            lines[3].set_data(curve.offered_per_s, 100 * curve.attainment)
        start_s, end_s = result.time.burst_s
        burst_s = (start_s, start_s if result.calm else end_s)
        self._shades[0].show(burst_s, _words(result))
        self._shades[1].show(burst_s)
        self._mark_loads(result)
        self.guess.show(guess, top, lambda value: f"{rounded(value)}/s", beside=True)

    def _mark_loads(self, result: Overload) -> None:
        loads = [result.rate_per_s, result.burst_per_s]
        x = [loads[0], loads[0], float("nan"), loads[1], loads[1]]
        self._loads[0].set_data(x, [0, 200, 0, 0, 200])
        self._loads[1].set_data(x, [0, 104, 0, 0, 104])
        apart = loads[1] - loads[0] > 0.28 * MOST_PER_S
        names = ("usual", "burst") if apart else ("load" if result.calm else "usual and burst", "")
        for text, load, name in zip(self._load_words, loads, names, strict=True):
            shown = name if load <= MOST_PER_S else ""
            place(text, load if apart else sum(loads) / 2, 1.01, shown)


def _attained(time: OverTime) -> FloatArray:
    """Good / offered in each bin; 1 where nothing was offered."""
    good, offered = time.good_per_s, time.offered_per_s
    attained: FloatArray = (good + (offered == 0)) / (offered + (offered == 0))
    return attained


def _words(result: Overload) -> tuple[str, str, str]:
    if result.calm:
        return "", "", ""
    before, during, after = (
        f"{rounded(stretch.good_per_s)}/s\n{percent(round(stretch.attainment, 2))}"
        for stretch in result.stretches
    )
    return f"before\n{before}", f"burst\n{during}", f"after\n{after}"
