"""A sample of latencies with its mean and its percentiles; the sample is drawn elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullLocator

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    SKY,
    FloatArray,
    Picture,
    Point,
    bars,
    held_limit,
    place,
)
from course.words import percent, seconds

_BINS: Final = 70
_SLOWEST_ROW: Final = -0.15
_HALF_TICK: Final = 0.27


@dataclass(frozen=True)
class Mark:
    """A mean or percentile of the sample with its bounds, and what endless requests would give.

    Seconds; `low` or `high` is None where the sample is too small to bound that side.
    """

    name: str
    value_s: float
    low_s: float | None
    high_s: float | None
    true_s: float


@dataclass(frozen=True, eq=False)
class Group:
    """One kind of requests inside the run: its share in the long run, and where this run's lie.

    `measured` (points,) is the share of *all* requests of the run that are of this kind and at or
    below each time of the grid; `p95_s` is None where the run has none of this kind.
    """

    name: str
    share: float
    measured: FloatArray
    p95_s: float | None


@dataclass(frozen=True, eq=False)
class PercentileAndMean:
    """A run's latencies and what is said of them; times in seconds.

    `measured` and `true` (points,) are the shares of requests at or below each time of `grid_s`:
    in this run, and in an endless one. `slowest_s` holds the slowest 1 % in rising order, thinned
    where they are many. `marks` are the mean, the median, P90, P95 and P99. `groups` are empty
    unless they are shown apart. `below_mean` is the share of the requests that took less than the
    mean, `near_mean` of those within a quarter of it; `mean_without_fast_s` leaves out those that
    were over at once, NaN where no other is left.
    """

    log_time: bool
    requests: int
    fastest_s: float
    grid_s: FloatArray
    measured: FloatArray
    true: FloatArray
    slowest_s: FloatArray
    marks: tuple[Mark, ...]
    groups: tuple[Group, ...]
    below_mean: float
    near_mean: float
    slow_share: float
    fast_share: float
    mean_without_fast_s: float


class PercentileAndMeanPicture(Picture):
    """The histogram above; below it, on the same axis, the mean and the percentiles."""

    size = (8.4, 5.0)

    def build(self, figure: Figure) -> None:
        """Make the two panels, the legend and the empty artists."""
        left, bottom, middle, top = (
            (0.135, 0.155, 0.53, 0.86) if self.present else (0.095, 0.115, 0.5, 0.925)
        )
        width = (0.95 if self.present else 0.96) - left
        self._counts: Axes = figure.add_axes((left, middle, width, top - middle))
        self._rows: Axes = figure.add_axes(
            (left, bottom, width, middle - bottom - 0.03), sharex=self._counts
        )
        self._counts.set(xlim=(0, 10), ylim=(0, 20), ylabel="requests (%)")
        self._counts.tick_params(labelbottom=False)
        self._counts.yaxis.set_major_locator(MaxNLocator(5))
        self._log = False
        self._build_counts()
        self._build_rows()
        sample: dict[str, Any] = {"color": INK, "linestyle": "", "marker": "o"}
        figure.legend(
            handles=[
                Patch(facecolor=SKY, label="requests of this run"),
                self._expected,
                Line2D([], [], label="measured, with bounds (95 % each)", **sample),
                Line2D([], [], markerfacecolor="white", label="true", **sample),
            ],
            loc="upper center", bbox_to_anchor=(0.53, 1.005), ncols=2 if self.present else 4,
            columnspacing=1.2, handlelength=1.6, handletextpad=0.5, borderaxespad=0.2,
        )  # fmt: skip

    def _build_counts(self) -> None:
        axes = self._counts
        edges = np.linspace(0, 1, _BINS + 1)
        # In the order in which they are stacked: the usual ones, the slow ones, those over at once.
        looks = ((BLUE, ""), (ORANGE, "//"), (GREEN, "\\\\"))
        self.bars = self.keep(
            axes.stairs(np.zeros(_BINS), edges, fill=True, facecolor=SKY, zorder=2)
        )
        self.stacks = [
            self.keep(
                axes.stairs(
                    np.zeros(_BINS), edges, baseline=np.zeros(_BINS), fill=True,
                    facecolor=colour, edgecolor="white", hatch=hatch, linewidth=0.0, zorder=3,
                )
            )
            for colour, hatch in looks
        ]  # fmt: skip
        self._expected = self.line(
            axes, INK, linewidth=1.2, linestyle=(0, (1, 1.5)), zorder=4, label="endless requests"
        )
        rule = {"linewidth": 1.5, "zorder": 5}
        self.mean_rule = self.line(axes, BLUE, linestyle=(0, (5, 2)), **rule)
        self.tail_rule = self.line(axes, ORANGE, linestyle=(0, (6, 1.5, 1, 1.5)), **rule)
        self._mean_words = self.label(axes, BLUE, va="top", zorder=8)
        self.tail_words = self.label(axes, ORANGE, va="top", zorder=8)
        self._group_words = [self.label(axes, c, va="center", zorder=8) for c, _ in looks]
        self._guess_rule = self.line(axes, PURPLE, linewidth=1.2, linestyle=(0, (1, 2)), zorder=5)
        self.guess_star = self.star(axes)
        self._guess_words = self.label(axes, PURPLE, va="center", zorder=8)
        self.beyond = self.label(axes, MUTED, va="center", ha="right", zorder=8)

    def _build_rows(self) -> None:
        axes = self._rows
        names = ("mean", "median", "P90", "P95", "P99")
        axes.set(ylim=(-0.6, 5.6), xlabel="latency of a request")
        axes.set_yticks([*range(5, 0, -1), _SLOWEST_ROW], [*names, "slowest"])
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", left=False)
        # One artist for each kind of mark on all rows: every artist costs time to draw.
        grown = 1.35 if self.present else 1.0
        self._bounds = self.line(axes, INK, linewidth=2.2, zorder=3)
        self._open_ends = self.line(
            axes, INK, marker=">", markersize=7 * grown, linestyle="", zorder=3
        )
        dots = {"marker": "o", "linestyle": ""}
        self.true = self.line(
            axes, INK, markerfacecolor="white", markersize=8 * grown, zorder=4, **dots
        )
        self.values = self.line(axes, INK, markersize=5 * grown, zorder=5, **dots)
        colours = (BLUE, INK, INK, INK, ORANGE)
        self.mark_words = [self.label(axes, c, va="center", zorder=8) for c in colours]
        self._slowest = self.line(axes, ORANGE, linewidth=0.9, zorder=3)
        self._slowest_words = self.label(axes, ORANGE, va="center", zorder=8)

    def update(self, result: PercentileAndMean, guess: Point | None) -> None:
        """Move everything to `result`; a guess is (time in s, unused)."""
        self._set_time_axis(result)
        edges = self._edges(result.grid_s)
        self._show_shares(result, edges)
        self._show_groups(result, edges)
        self._show_rules(result)
        self._show_marks(result.marks)
        self._show_slowest(result)
        self._show_guess(guess)

    # --- the time axis ----------------------------------------------------------------------

    def _set_time_axis(self, result: PercentileAndMean) -> None:
        if result.log_time != self._log:
            self._log = result.log_time
            self._counts.set_xscale("log" if self._log else "linear")
            for axes in (self._counts, self._rows):
                axes.xaxis.set_major_locator(MaxNLocator(8))
                axes.xaxis.set_minor_locator(NullLocator())
                axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: _plain(x)))
            self._counts.set_xlim(*((0.1, 10.0) if self._log else (0.0, 10.0)))
        if not self._log:
            needed = 1.15 * max(mark.true_s for mark in result.marks)
            needed = max(needed, 1.1 * max(mark.value_s for mark in result.marks))
            self._counts.set_xlim(0, held_limit(self._counts.get_xlim()[1], needed))
            return
        left, right = self._counts.get_xlim()
        slowest = max(float(result.slowest_s[-1]), *(mark.true_s for mark in result.marks))
        right = held_decade(right, 1.05 * slowest)
        # The left end holds still in the same way, read from the other side.
        left = 1 / held_decade(1 / left, 1.1 / result.fastest_s)
        self._counts.set_xlim(left, right)
        # As many ticks a decade as leave their words apart.
        decades = math.log10(right / left) * (1.5 if self.present else 1.0)
        subs = (1.0, 2.0, 5.0) if decades <= 3 else (1.0, 3.0) if decades <= 4.5 else (1.0,)
        for axes in (self._counts, self._rows):
            axes.xaxis.set_major_locator(LogLocator(subs=subs, numticks=30))

    def _edges(self, grid_s: FloatArray) -> npt.NDArray[np.intp]:
        """Return where on the grid the bars begin and end, evenly spread over the axis."""
        left, right = self._counts.get_xlim()
        wanted = (np.geomspace if self._log else np.linspace)(left, right, _BINS + 1)
        places = np.searchsorted(grid_s, np.maximum(wanted, grid_s[0]))
        return np.unique(np.minimum(places, grid_s.size - 1))

    def _at(self, share: float) -> float:
        """The time at a share of the axis, 0 at its left end and 1 at its right."""
        left, right = self._counts.get_xlim()
        if self._log:
            return float(left * (right / left) ** share)
        return float(left + share * (right - left))

    def _share(self, time_s: float) -> float:
        """Where on the axis a time lies; the inverse of `_at`, not beyond its ends."""
        left, right = self._counts.get_xlim()
        time_s = min(max(time_s, left), right)
        if self._log:
            return math.log(time_s / left) / math.log(right / left)
        return float((time_s - left) / (right - left))

    # --- the histogram ----------------------------------------------------------------------

    def _show_shares(self, result: PercentileAndMean, edges: npt.NDArray[np.intp]) -> None:
        edges_s = result.grid_s[edges]
        shares = 100 * np.diff(result.measured[edges])
        expected = 100 * np.diff(result.true[edges])
        needed = 1.18 * max(float(shares.max()), float(expected.max()))
        top = held_limit(self._counts.get_ylim()[1], needed, shrink_below=0.3)
        self._counts.set_ylim(0, top)
        self.bars.set_data(shares, edges_s)
        self.bars.set_visible(not result.groups)
        left, right = edges_s[:-1], edges_s[1:]
        self._expected.set_data(
            np.sqrt(left * right) if self._log else (left + right) / 2, expected
        )
        beyond = round(result.requests * (1 - float(result.measured[edges[-1]])))
        words = f"{beyond:,} more beyond the picture →" if beyond else ""
        place(self.beyond, self._at(0.995), 0.3 * top, words)

    def _show_groups(self, result: PercentileAndMean, edges: npt.NDArray[np.intp]) -> None:
        floor = np.zeros(edges.size - 1)
        top = self._counts.get_ylim()[1]
        for index, (stack, words) in enumerate(zip(self.stacks, self._group_words, strict=True)):
            stack.set_visible(bool(result.groups))
            place(words, 0, 0, "")
            if not result.groups:
                continue
            group = result.groups[index]
            ceiling = floor + 100 * np.diff(group.measured[edges])
            stack.set_data(ceiling, result.grid_s[edges], floor)
            floor = ceiling
            # A list in the corner that each axis leaves empty, whatever the humps do.
            words.set_horizontalalignment("left" if self._log else "right")
            at, y = self._at(0.01 if self._log else 0.99), (0.9 - 0.15 * index) * top
            named = f"■ {group.name} {percent(group.share)}" if group.share else ""
            place(words, at, y, named)

    def _show_guess(self, guess: Point | None) -> None:
        if guess is None:
            _draw(self._guess_rule, [], [])
            _draw(self.guess_star, [], [])
            place(self._guess_words, 0, 0, "")
            return
        top, share = self._counts.get_ylim()[1], self._share(guess[0])
        at, y = self._at(share), 0.55 * top
        _draw(self._guess_rule, [at, at], [0, top])
        _draw(self.guess_star, [at], [y])
        on_left = share > 0.7
        self._guess_words.set_horizontalalignment("right" if on_left else "left")
        beside = self._at(share + (-0.025 if on_left else 0.025))
        place(self._guess_words, beside, y, f"your guess {seconds(guess[0])}")

    def _show_rules(self, result: PercentileAndMean) -> None:
        top = self._counts.get_ylim()[1]
        mean, tail = result.marks[0], result.marks[-1]
        pairs = (
            (mean, self.mean_rule, self._mean_words, 0.985),
            (tail, self.tail_rule, self.tail_words, 0.83),
        )
        for mark, rule, words, height in pairs:
            share = self._share(mark.value_s)
            rule.set_data([mark.value_s] * 2, [0, top])
            on_left = share > 0.8
            words.set_horizontalalignment("right" if on_left else "left")
            at = self._at(share + (-0.008 if on_left else 0.008))
            place(words, at, height * top, f"{mark.name} {seconds(mark.value_s)}")

    # --- mean and percentiles ---------------------------------------------------------------

    def _show_marks(self, marks: tuple[Mark, ...]) -> None:
        rows = [5 - index for index in range(len(marks))]
        left, right = self._at(0.0), self._at(0.99)
        spans = [
            (left if m.low_s is None else m.low_s, right if m.high_s is None else m.high_s)
            for m in marks
        ]
        self._bounds.set_data(
            [x for low, high in spans for x in (low, high, math.nan)],
            [y for row in rows for y in (row, row, math.nan)],
        )
        unbounded = [row for row, mark in zip(rows, marks, strict=True) if mark.high_s is None]
        _draw(self._open_ends, [right] * len(unbounded), unbounded)
        self.true.set_data([mark.true_s for mark in marks], rows)
        self.values.set_data([mark.value_s for mark in marks], rows)
        for mark, (low, high), row, words in zip(marks, spans, rows, self.mark_words, strict=True):
            said = seconds(mark.value_s) + (", no upper bound" if mark.high_s is None else "")
            # Right of everything on the row, or left of it where no room is left.
            last = self._share(max(high, mark.true_s, mark.value_s))
            on_left = last > 0.75
            words.set_horizontalalignment("right" if on_left else "left")
            first = self._share(min(low, mark.true_s, mark.value_s))
            place(words, self._at(first - 0.015 if on_left else last + 0.015), row, said)

    def _show_slowest(self, result: PercentileAndMean) -> None:
        slowest = result.slowest_s
        low, high = _SLOWEST_ROW - _HALF_TICK, _SLOWEST_ROW + _HALF_TICK
        inside = slowest[slowest <= self._at(1.0)].tolist()
        self._slowest.set_data(*bars((time_s, (low, high)) for time_s in inside))
        words = "the slowest 1 %" if slowest.size > 1 else "the slowest one"
        share = self._share(float(slowest[0]))
        on_left = share > 0.3
        self._slowest_words.set_horizontalalignment("right" if on_left else "left")
        at = share - 0.015 if on_left else self._share(float(slowest[-1])) + 0.015
        place(self._slowest_words, self._at(at), _SLOWEST_ROW, words)


def held_decade(current: float, needed: float) -> float:
    """Return a power of ten not below `needed`: the `current` one, up to 20 times that.

    >>> held_decade(100.0, 30.0), held_decade(100.0, 3.0), held_decade(100.0, 101.0)
    (100.0, 10.0, 1000.0)
    """
    if current / 20 <= needed <= current:
        return current
    return 10.0 ** math.ceil(math.log10(needed) - 1e-12)


def _draw(line: Line2D, x: list[float], y: list[float] | list[int]) -> None:
    """Set the data; an empty line is hidden, which costs nothing to draw."""
    line.set_data(x, y)
    line.set_visible(bool(x))


def _plain(value_s: float) -> str:
    return f"{1000 * value_s:g} ms" if 0 < value_s < 1 else f"{value_s:g} s"
