"""The tension in one picture: throughput, pace, wait, goodput; all simulated elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from course.figures.axes import BLUE, GREEN, INK, ORANGE, FloatArray, Picture, Point, held_limit
from course.words import rounded, seconds


@dataclass(frozen=True, eq=False)
class LoadCurve:
    """What a server gives at each number of users; arrays of one shape.

    Throughput in output tokens/s, times in s; `good_per_s` is requests a second that kept both
    promises, NaN where that was not measured.
    """

    users: FloatArray
    tokens_per_s: FloatArray
    tpot_p95_s: FloatArray
    ttft_p95_s: FloatArray
    good_per_s: FloatArray


@dataclass(frozen=True, eq=False)
class Tension:
    """The simulated curve, the measured points beside it, and the reader's own load.

    Up to `held_users` at least 95 % of the requests keep both promises (0: at no load).
    """

    title: str
    curve: LoadCurve
    measured: LoadCurve
    users: int
    tokens_per_s: float
    tpot_p95_s: float
    ttft_p95_s: float
    good_per_s: float
    finished_per_s: float
    ttft_promise_s: float
    tpot_promise_s: float
    held_users: int
    held_tokens_per_s: float
    most_tokens_per_s: float


class TensionPicture(Picture):
    """Four panels over the number of users: what comes out, and what each user pays for it."""

    size = (8.4, 5.6)

    def build(self, figure: Figure) -> None:
        """Make the four panels; the rows share their words, the columns their users."""
        rows = (0.53, 0.13) if self.present else (0.57, 0.1)
        height = 0.25 if self.present else 0.33
        spots = [(left, bottom) for bottom in rows for left in (0.09, 0.59)]
        titles = [
            "throughput: tokens/s",
            "pace: P95 TPOT (ms)",
            "wait: P95 TTFT (s)",
            "goodput: good requests/s",
        ]
        self.panels: list[Axes] = []
        for (left, bottom), title in zip(spots, titles, strict=True):
            axes = figure.add_axes((left, bottom, 0.38, height))
            axes.set_title(title, loc="left", fontsize="medium")
            axes.set_xscale("log", base=2)
            axes.set_xlim(0.9, 580)
            axes.xaxis.set_major_locator(FixedLocator([1, 4, 16, 64, 256]))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
            self.panels.append(axes)
        for axes in self.panels[2:]:
            axes.set_xlabel("users at the same time")
        for axes, top in zip(self.panels, (5000, 50, 100, 2), strict=True):
            axes.set_ylim(0, top)
        wait = self.panels[2]
        wait.set_yscale("log")
        wait.set_ylim(0.01, 1000)
        wait.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        wait.yaxis.set_minor_locator(NullLocator())
        self.curves = [
            self.line(axes, colour, label="simulated") for axes, colour in zip(
                self.panels, (BLUE, ORANGE, ORANGE, GREEN), strict=True)
        ]  # fmt: skip
        self._dots = [
            self.line(axes, INK, marker="o", markersize=5, markerfacecolor="white", linestyle="",
                      label="measured")
            for axes in self.panels[:3]
        ]  # fmt: skip
        promise = {"linewidth": 1.4, "linestyle": (0, (6, 1.5, 1, 1.5)), "label": "promise"}
        self._promises = [self.line(axes, GREEN, **promise) for axes in self.panels[1:3]]
        here = {"linewidth": 1.2, "linestyle": (0, (2, 2)), "zorder": 1}
        self._here = [self.line(axes, INK, **here) for axes in self.panels]
        self.marks = [
            self.line(axes, INK, marker="D", linestyle="", zorder=6, label="your load")
            for axes in self.panels
        ]
        self.held = [
            self.line(axes, GREEN, linewidth=9, solid_capstyle="butt", alpha=0.45, zorder=1,
                      clip_on=False, label="95 % keep both promises")
            for axes in self.panels
        ]  # fmt: skip
        self.words = [self.label(axes, INK, va="bottom", zorder=8) for axes in self.panels]
        handles = [
            self.curves[0], self._dots[0], self._promises[0], self.held[0], self.marks[0],
        ]  # fmt: skip
        figure.legend(
            handles=handles, loc="upper center", ncols=3 if self.present else 5,
            bbox_to_anchor=(0.53, 1.0), columnspacing=1.2, handlelength=1.8,
        )  # fmt: skip

    def update(self, result: Tension, guess: Point | None) -> None:
        """Move everything to `result`; a guess has no place of its own here."""
        curve, dots = result.curve, result.measured
        drawn = [
            (curve.tokens_per_s, dots.tokens_per_s, result.tokens_per_s),
            (1e3 * curve.tpot_p95_s, 1e3 * dots.tpot_p95_s, 1e3 * result.tpot_p95_s),
            (curve.ttft_p95_s, dots.ttft_p95_s, result.ttft_p95_s),
            (curve.good_per_s, dots.good_per_s, result.good_per_s),
        ]
        spoken = [
            f"{rounded(result.tokens_per_s)}/s", seconds(result.tpot_p95_s),
            seconds(result.ttft_p95_s), f"{rounded(result.good_per_s)}/s",
        ]  # fmt: skip
        for i, (axes, (line, points, here)) in enumerate(zip(self.panels, drawn, strict=True)):
            if i != 2:
                most = float(np.nanmax(np.concatenate([line, points, [here]])))
                axes.set_ylim(0, held_limit(axes.get_ylim()[1], 1.12 * most, shrink_below=0.3))
            low, high = axes.get_ylim()
            self.curves[i].set_data(curve.users, line)
            if i < 3:
                self._dots[i].set_data(dots.users, points)
            self._here[i].set_data([result.users] * 2, [low, high])
            held = [0.9, result.held_users] if result.held_users else []
            self.held[i].set_data(held, [low] * len(held))
            self.marks[i].set_data([result.users], [here])
            self._say(i, result.users, here, spoken[i])
        self._promises[0].set_data([0.9, 580], [1e3 * result.tpot_promise_s] * 2)
        self._promises[1].set_data([0.9, 580], [result.ttft_promise_s] * 2)

    def _say(self, i: int, users: int, y: float, words: str) -> None:
        axes, text = self.panels[i], self.words[i]
        low, high = axes.get_ylim()
        on_left = users > 20
        text.set_horizontalalignment("right" if on_left else "left")
        text.set_position((users / 1.15 if on_left else users * 1.15, min(max(y, low), high)))
        text.set_text(words)
