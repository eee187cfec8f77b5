"""Three knees of one load curve, side by side; the knees are found elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    TEXT_OF,
    Picture,
    Point,
    place,
)
from course.figures.marks import LogGuess
from course.serving.load import bare
from course.words import rounded, seconds

# Row from above, colour, dash, marker, words: the same in every panel.
_METHODS: Final = (
    ("slo", GREEN, "-", "D", "SLO"),
    ("plateau", BLUE, (0, (6, 2)), "s", "plateau"),
    ("two_segments", ORANGE, (0, (1, 1.2)), "^", "two pieces"),
)


@dataclass(frozen=True)
class Answer:
    """What one method says: a load with an interval, or why there is none."""

    load: float | None
    throughput: float | None
    band: tuple[float, float] | None
    why_not: str
    sentence: str


@dataclass(frozen=True, eq=False)
class Limit:
    """A latency in seconds, shape (runs, points), and what was promised of it."""

    name: str
    limit_s: float
    values_s: np.ndarray


@dataclass(frozen=True, eq=False)
class WhichKnee:
    """One curve, shape (points,) and (runs, points), and what three methods make of its points.

    A `measured` curve was not simulated here. Only the points `first` … `last` are used.
    `plateau_level` in output tokens/s and `stick`, the corners of the two straight pieces, are None
    where there is no such knee.
    """

    title: str
    measured: bool
    load_unit: str
    runs: int
    loads: np.ndarray
    throughput: np.ndarray
    first: int
    last: int
    limits: tuple[Limit, ...]
    slo: Answer
    plateau: Answer
    two_segments: Answer
    plateau_level: float | None
    stick: tuple[np.ndarray, np.ndarray] | None

    @property
    def used(self) -> slice:
        """The points that the methods see."""
        return slice(self.first, self.last + 1)

    def throughput_at(self, load: float) -> float:
        """The mean throughput at a load, between the points straight."""
        return float(np.interp(load, self.loads, self.throughput.mean(axis=0)))

    def latency_at(self, limit: Limit, load: float) -> float:
        """The mean over the runs of a latency at a load, between the points straight; seconds."""
        used = self.used
        return float(np.interp(load, self.loads[used], limit.values_s[:, used].mean(axis=0)))


class WhichKneePicture(Picture):
    """Left: the throughput, and the three answers below it. Right: what the users waited."""

    size = (9.2, 5.2)

    def build(self, figure: Figure) -> None:
        """Make four panels, the legend and the empty artists."""
        left, width = (0.16, 0.41) if self.present else (0.13, 0.47)
        strip, height = ((0.14, 0.25), 0.37) if self.present else ((0.105, 0.215), 0.48)
        self.curve: Axes = figure.add_axes((left, strip[0] + strip[1] + 0.07, width, height))
        self._strip: Axes = figure.add_axes((left, strip[0], width, strip[1]))
        column, wide = (0.69, 0.29) if self.present else (0.685, 0.3)
        half = (strip[1] + 0.07 + height - (0.11 if self.present else 0.1)) / 2
        bottoms = (strip[0] + strip[1] + 0.07 + height - half, strip[0])
        self._first, self._further = (
            figure.add_axes((column, bottom, wide, half)) for bottom in bottoms
        )
        self._scales()
        self._build_curve()
        self._build_strip()
        self._build_latencies()
        figure.legend(
            handles=self._handles(), loc="upper center", ncols=3 if self.present else 6,
            bbox_to_anchor=(0.52, 1.0), columnspacing=1.2, handlelength=2, labelspacing=0.25,
            borderaxespad=0.2,
        )  # fmt: skip

    def _scales(self) -> None:
        self._titles: list[Text] = []
        self.curve.set(xlim=(0, 34), ylim=(0, 6000))
        self.curve.set_ylabel("output tokens/s")
        self.curve.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
        self.curve.tick_params(labelbottom=False)
        self._strip.set(xlim=(0, 34), ylim=(-0.6, 2.6))
        self._strip.set_yticks([2, 1, 0], [words for *_, words in _METHODS])
        for label, (_, colour, *_) in zip(self._strip.get_yticklabels(), _METHODS, strict=True):
            label.set_color(TEXT_OF[colour])
        self._strip.set_xlabel("requests/s")
        for axes, limits, ticks, words in (
            (self._first, (0.01, 300), (0.01, 0.1, 1, 10, 100), "P99 TTFT (s)"),
            (self._further, (4, 400), (5, 10, 20, 50, 100, 200), "P99 TPOT (ms)"),
        ):
            axes.set(yscale="log", ylim=limits, xlim=(0, 34))
            axes.yaxis.set_major_locator(FixedLocator(ticks))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            self._titles.append(axes.set_title(words, loc="left", fontsize="medium"))
        for axes in self._all():
            axes.xaxis.set_major_locator(MaxNLocator(5))

    def _all(self) -> tuple[Axes, ...]:
        return (self.curve, self._strip, self._first, self._further)

    def _build_curve(self) -> None:
        axes = self.curve
        size = 7 if self.present else 5
        self._runs = self.line(axes, INK, linewidth=0.6, alpha=0.4, zorder=2)
        self._line = self.line(axes, INK, linewidth=1.4, zorder=3)
        self.points = self.line(
            axes, INK, marker="o", markersize=size, linestyle="", zorder=5, label="a load"
        )
        self.left_out = self.line(
            axes, INK, marker="o", markersize=size, linestyle="", alpha=0.45, zorder=4,
            markerfacecolor="white", label="left out",
        )  # fmt: skip
        self.level = self.line(
            axes, BLUE, linewidth=1.2, linestyle=(0, (6, 2)), zorder=2, label="90 % of the plateau"
        )
        self.stick = self.line(
            axes, ORANGE, linewidth=1.8, linestyle=(0, (1, 1.2)), zorder=4, label="two pieces"
        )
        self.guess = LogGuess(self, axes, lead="guess")

    def _build_strip(self) -> None:
        self.knees, self.bands, self.marks, self.words = [], [], [], []
        for _, colour, dash, marker, _ in _METHODS:
            self.knees.append(
                [
                    self.line(
                        axes,
                        colour,
                        linewidth=1.6,
                        linestyle=dash,
                        zorder=3,
                        transform=axes.get_xaxis_transform(),
                    )
                    for axes in (self.curve, self._first, self._further)
                ]
            )
            self.bands.append(
                self.line(
                    self._strip, colour, linewidth=9, alpha=0.35, solid_capstyle="butt", zorder=3
                )
            )
            self.marks.append(self.line(self._strip, colour, marker=marker, linestyle="", zorder=5))
            self.words.append(self.label(self._strip, colour, va="center", zorder=9))

    def _build_latencies(self) -> None:
        self.latencies = [
            self.line(axes, PURPLE, linewidth=1.8, zorder=4, marker="o",
                      markersize=6 if self.present else 4, label=label)
            for axes, label in ((self._first, "latency"), (self._further, None))
        ]  # fmt: skip
        self._limits = [
            self.line(axes, INK, linewidth=1.5, linestyle=(0, (1, 1.2)), zorder=3, label=label)
            for axes, label in ((self._first, "limit"), (self._further, None))
        ]
        self.limit_words = [
            self.label(axes, INK, va="bottom", ha="left", zorder=9)
            for axes in (self._first, self._further)
        ]

    def _handles(self) -> list[Any]:
        return [
            self.points, self.left_out, self.level, self.stick, self.latencies[0],
            self._limits[0],
        ]  # fmt: skip

    def update(self, result: WhichKnee, guess: Point | None) -> None:
        """Move everything to `result`; a guess is a load, on the curve."""
        self._scale(result)
        self._show_curve(result)
        for row, (name, *_) in enumerate(_METHODS):
            self._show_answer(row, getattr(result, name))
        self._show_latencies(result)
        words = f"{bare(guess[0])} {result.load_unit}" if guess else ""
        self.guess.show(guess, words)

    def _scale(self, result: WhichKnee) -> None:
        right, top = 1.06 * float(result.loads[-1]), 1.15 * float(result.throughput.max())
        if self.curve.get_xlim()[1] != right:
            for axes in self._all():
                axes.set_xlim(0, right)
        if self.curve.get_ylim()[1] != top:
            self.curve.set_ylim(0, top)
        self._strip.set_xlabel(result.load_unit)
        by_name = {("TTFT" in limit.name): limit.name for limit in result.limits}
        self._titles[0].set_text(f"{by_name.get(True, 'TTFT')} (s)")
        self._titles[1].set_text(f"{by_name.get(False, 'TPOT')} (ms)")

    def _show_curve(self, result: WhichKnee) -> None:
        loads, mean, used = result.loads, result.throughput.mean(axis=0), result.used
        self._line.set_data(loads[used], mean[used])
        self.points.set_data(loads[used], mean[used])
        rest = np.ones(loads.size, dtype=bool)
        rest[used] = False
        self.left_out.set_data(loads[rest], mean[rest])
        gap = [np.nan]
        runs = result.throughput if result.runs > 1 else result.throughput[:0]
        x = [np.concatenate([loads, gap]) for _ in runs]
        y = [np.concatenate([run, gap]) for run in runs]
        self._runs.set_data(np.concatenate([[], *x]), np.concatenate([[], *y]))
        level = None if result.plateau_level is None else 0.9 * result.plateau_level
        right = self.curve.get_xlim()[1]
        self.level.set_data(*(([], []) if level is None else ([0, right], [level, level])))
        nothing = np.empty(0)
        self.stick.set_data(*(result.stick or (nothing, nothing)))

    def _show_answer(self, row: int, answer: Answer) -> None:
        y, right = 2 - row, self._strip.get_xlim()[1]
        text = self.words[row]
        if answer.load is None:
            for artist in (*self.knees[row], self.bands[row], self.marks[row]):
                artist.set_data([], [])
            text.set_horizontalalignment("left")
            place(text, 0.02 * right, y, f"no knee: {answer.why_not}")
            return
        for line in self.knees[row]:
            line.set_data([answer.load] * 2, [0, 1])
        self.bands[row].set_data(*(([], []) if answer.band is None else (answer.band, [y, y])))
        self.marks[row].set_data([answer.load], [y])
        end = max(answer.load, *(answer.band or (0.0,)))
        start = min(answer.load, *(answer.band or (right,)))
        gap = (0.045 if self.present else 0.03) * right
        on_left = end > (0.8 if self.present else 0.6) * right
        text.set_horizontalalignment("right" if on_left else "left")
        words = bare(round(answer.load, 3))
        if answer.band is not None and not self.present:
            low, high = answer.band
            words += f" ({rounded(low)} to {rounded(high)})"
        place(text, start - gap if on_left else end + gap, y, words)

    def _show_latencies(self, result: WhichKnee) -> None:
        used, right = result.used, self.curve.get_xlim()[1]
        span = self._free_span(result)
        by_panel = {("TTFT" in limit.name): limit for limit in result.limits}
        for first, curve, line, text in zip(
            (True, False), self.latencies, self._limits, self.limit_words, strict=True
        ):
            limit, scale = by_panel.get(first), 1.0 if first else 1e3
            if limit is None:
                curve.set_data([], [])
                line.set_data([], [])
                text.set(ha="left", va="bottom")
                place(text, 0.05 * right, 1.0 if first else 40.0, "not told by the sweep")
                continue
            curve.set_data(result.loads[used], scale * limit.values_s[:, used].mean(axis=0))
            line.set_data([0, right], [scale * limit.limit_s] * 2)
            self._say_limit(text, curve, scale * limit.limit_s, span)
            text.set_text(seconds(limit.limit_s))

    def _say_limit(self, text: Text, curve: Line2D, y: float, span: tuple[float, float]) -> None:
        """Put a limit's words above its line, or below where the curve runs just above it."""
        low, high = text.axes.get_ylim() if text.axes else (1.0, 10.0)
        x, ys = (np.asarray(data, dtype=float) for data in curve.get_data())
        there = np.interp(np.linspace(*span, 9), x, ys)
        height = np.log(there / y) / np.log(high / low)
        under = bool(((height > -0.02) & (height < (0.2 if self.present else 0.13))).any())
        on_right = span[1] > 0.9 * self.curve.get_xlim()[1]
        text.set(va="top" if under else "bottom", ha="right" if on_right else "left")
        shift = (high / low) ** (-0.012 if under else 0.012)
        text.set_position((span[1] if on_right else span[0], y * shift))
        text.set_visible(True)

    def _free_span(self, result: WhichKnee) -> tuple[float, float]:
        """The loads under which a limit's words stand: at an end where no knee is, if there is."""
        right, wide = self.curve.get_xlim()[1], 0.4 if self.present else 0.27
        knees = [
            answer.load / right
            for answer in (result.slo, result.plateau, result.two_segments)
            if answer.load is not None
        ]
        if any(knee < wide for knee in knees):
            return (0.98 - wide) * right, 0.98 * right
        return 0.03 * right, wide * right
