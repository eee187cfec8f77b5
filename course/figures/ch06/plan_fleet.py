"""A fleet over a day, by reason, and what it costs; the plan is made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    SKY,
    YELLOW,
    Picture,
    Point,
    place,
)
from course.figures.ch06.across import coarse_limit
from course.figures.marks import LogGuess, boxes
from course.words import rounded

# Few limits, far apart, so that the axes hold still while a slider moves.
_PER_S: Final = (10.0, 30.0, 100.0, 300.0, 1000.0, 3000.0, 10_000.0)
_REPLICAS: Final = (5.0, 20.0, 60.0, 200.0, 600.0, 2000.0)
_BILL: Final = (
    10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0, 25_000.0,
)  # fmt: skip
_SHRINK_BELOW: Final = 0.3
"""So little of an axis in use that the numbers on the bars would leave it."""

# Purpose, colour, hatch: stacked from the left in this order.
_PURPOSES: Final = (
    ("demand", BLUE, ""),
    ("growth", SKY, "//"),
    ("burst", YELLOW, "\\\\"),
    ("failures", ORANGE, "--"),
)


@dataclass(frozen=True)
class Choice:
    """What the fleet would be with so many GPUs a replica; None where there is none."""

    gpus_per_replica: int
    holds_per_s: float | None
    replicas: int | None
    gpus: int | None
    usd_per_month: float | None
    why_not: str


@dataclass(frozen=True, eq=False)
class Fleet:
    """A day's demand in requests/s, shape (24,), and the fleet that is planned for it.

    `reasons`: (purpose, replicas) in order; `choices`: the same day with other replicas.
    """

    title: str
    demand_per_s: np.ndarray
    growth: float
    burst: float
    failures: int
    gpus: int
    promise: tuple[float, float]
    quantile: float
    usd_per_gpu_hour: float
    holds_per_s: float
    reasons: tuple[tuple[str, int], ...]
    choices: tuple[Choice, ...]

    @property
    def busiest_per_s(self) -> float:
        """The demand of the busiest hour."""
        return float(self.demand_per_s.max())

    @property
    def peak_per_s(self) -> float:
        """The same with growth and burst."""
        return self.busiest_per_s * self.growth * self.burst

    @property
    def ours(self) -> Choice:
        """The choice that the reader made."""
        return next(c for c in self.choices if c.gpus_per_replica == self.gpus)


class FleetPicture(Picture):
    """Above: a day. Below: the replicas by reason, and the bill by GPUs a replica."""

    size = (9.2, 5.6)

    def build(self, figure: Figure) -> None:
        """Make three panels, the legends and the empty artists."""
        left, right = (0.115, 0.98) if self.present else (0.085, 0.985)
        low, height = (0.14, 0.19) if self.present else (0.105, 0.24)
        top, tall = (0.52, 0.34) if self.present else (0.5, 0.42)
        self._day: Axes = figure.add_axes((left, top, right - left, tall))
        self._stack: Axes = figure.add_axes((left, low, 0.4, height))
        self._bill: Axes = figure.add_axes((0.645, low, right - 0.645, height))
        self._build_day()
        self._build_stack()
        self._build_bill()
        figure.legend(
            handles=[self.bars, self.now, self.peak, self.held, self.held_failed],
            loc="upper center", ncols=3 if self.present else 5, bbox_to_anchor=(0.53, 1.0),
            columnspacing=1.2, handlelength=1.9, labelspacing=0.25, borderaxespad=0.2,
        )  # fmt: skip
        self._stack.legend(
            handles=self.pieces, loc="lower center", bbox_to_anchor=(0.47, 1.0), ncols=4,
            columnspacing=0.7 if self.present else 1.0, handlelength=1.1, handletextpad=0.4,
            borderaxespad=0.25,
        )  # fmt: skip

    def _build_day(self) -> None:
        axes = self._day
        axes.set(xlim=(0, 24), ylim=(0, 300))
        axes.xaxis.set_major_locator(FixedLocator(range(0, 25, 3)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:.0f}"))
        axes.set_xlabel("hour of the day", labelpad=1)
        axes.set_ylabel("requests/s")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
        faint: dict[str, Any] = {"linewidth": 0, "zorder": 2}
        self.peak = self.area(axes, YELLOW, alpha=0.35, label="with growth and burst", **faint)
        self.bars = self.area(axes, BLUE, label="demand today", **faint)
        self.now = self.line(
            axes, INK, linewidth=1.4, linestyle=(0, (1, 1.2)), zorder=3, label="the peak"
        )
        self.held = self.line(axes, GREEN, linewidth=2.2, zorder=4, label="held with all replicas")
        self.held_failed = self.line(
            axes, ORANGE, linewidth=2.2, linestyle=(0, (5, 2)), zorder=5,
            label="held with failures",
        )  # fmt: skip
        self._day_words = self.label(axes, INK, va="top", ha="left", zorder=9)

    def _build_stack(self) -> None:
        axes = self._stack
        axes.set(xlim=(0, 20), ylim=(-0.6, 0.6))
        axes.set_yticks([])
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("replicas")
        axes.spines["left"].set_visible(False)
        edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 1.2, "zorder": 3}
        self.pieces = [
            self.area(axes, colour, hatch=hatch, label=name, **edge)
            for name, colour, hatch in _PURPOSES
        ]
        self._stack_words = [
            self.label(axes, INK, va="center", ha="center", zorder=9) for _ in _PURPOSES
        ]
        self._none = self.label(axes, INK, va="center", ha="left", zorder=9)
        self.guess = LogGuess(self, axes, lead="guess")

    def _build_bill(self) -> None:
        axes = self._bill
        axes.set(xlim=(-0.6, 3.6), ylim=(0, 100))
        axes.set_xticks(range(4), ["1", "2", "4", "8"])
        axes.set_xlabel("GPUs a replica")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
        axes.set_title("1,000 USD a month", loc="left", fontsize="medium")
        axes.grid(visible=False, axis="x")
        self._others = self.area(axes, "#bdbdbd", linewidth=0, zorder=3)
        self.chosen = self.area(axes, BLUE, edgecolor=INK, linewidth=1.2, zorder=4)
        self._bill_words = [
            self.label(axes, INK, va="bottom", ha="center", zorder=9) for _ in range(4)
        ]

    def update(self, result: Fleet, guess: Point | None) -> None:
        """Move everything to `result`; a guess is a number of replicas."""
        self._show_day(result)
        self._show_stack(result, guess)
        self._show_bill(result)

    def _show_day(self, result: Fleet) -> None:
        axes, hours = self._day, np.arange(24.0)
        replicas = result.ours.replicas or 0
        held, failed = (
            n * result.holds_per_s for n in (replicas, max(replicas - result.failures, 0))
        )
        top = coarse_limit(
            axes.get_ylim()[1], 1.05 * max(held, result.peak_per_s), _PER_S,
            shrink_below=_SHRINK_BELOW,
        )  # fmt: skip
        if top != axes.get_ylim()[1]:
            axes.set_ylim(0, top)
        floor, wide = np.zeros(24), (hours + 0.06, hours + 0.94)
        self.bars.set_path(boxes(*wide, floor, result.demand_per_s))
        more = result.demand_per_s * result.growth * result.burst
        self.peak.set_path(boxes(*wide, result.demand_per_s, more))
        self.now.set_data([0, 24], [result.peak_per_s] * 2)
        self.held.set_data([0, 24], [held] * 2 if held else [np.nan] * 2)
        shown = bool(result.failures and held)
        self.held_failed.set_data([0, 24] if shown else [], [failed] * 2 if shown else [])
        place(
            self._day_words, 3.1, result.peak_per_s - 0.015 * top,
            f"peak {rounded(result.peak_per_s)}/s",
        )  # fmt: skip

    def _show_stack(self, result: Fleet, guess: Point | None) -> None:
        axes, replicas = self._stack, result.ours.replicas
        needed = 1.06 * max(replicas or 1, min(guess[0], 3 * (replicas or 1)) if guess else 0)
        right = coarse_limit(axes.get_xlim()[1], needed, _REPLICAS, shrink_below=_SHRINK_BELOW)
        if right != axes.get_xlim()[1]:
            axes.set_xlim(0, right)
        start = 0
        by_purpose = dict(result.reasons)
        for patch, text, (name, *_) in zip(self.pieces, self._stack_words, _PURPOSES, strict=True):
            number = by_purpose.get(name, 0)
            corners = (np.array([float(v)]) for v in (start, start + number, -0.34, 0.34))
            patch.set_path(boxes(*corners))
            words = str(number) if number else ""
            if number > (0.055 if self.present else 0.035) * right:
                text.set_horizontalalignment("center")
                place(text, start + number / 2, 0.0, words)
            else:  # beside the stack, for the last piece; the others have no room for a number
                text.set_horizontalalignment("left")
                last = text is self._stack_words[-1]
                place(text, start + number + 0.008 * right, 0.0, words if last else "")
            start += number
        place(self._none, 0.02 * right, 0.0, result.ours.why_not)
        words = f"{guess[0]:g}" if guess else ""
        self.guess.show((guess[0], 0.47) if guess else None, words)

    def _show_bill(self, result: Fleet) -> None:
        axes = self._bill
        costs = [(c.usd_per_month or 0.0) / 1e3 for c in result.choices]
        top = coarse_limit(
            axes.get_ylim()[1], 1.25 * max(*costs, 1.0), _BILL, shrink_below=_SHRINK_BELOW
        )
        if top != axes.get_ylim()[1]:
            axes.set_ylim(0, top)
        chosen = result.choices.index(result.ours)
        x, height = np.arange(4.0), np.array(costs)
        mine = x == chosen
        for patch, which in ((self._others, ~mine), (self.chosen, mine)):
            patch.set_path(boxes(x[which] - 0.34, x[which] + 0.34, 0 * x[which], height[which]))
        for i, (text, choice) in enumerate(zip(self._bill_words, result.choices, strict=True)):
            words = rounded(costs[i]) if choice.gpus else "none"
            place(text, i, costs[i] + 0.02 * top, words)
        for i, text in enumerate(self._bill_words):
            text.set_color(INK if i == chosen else MUTED)
