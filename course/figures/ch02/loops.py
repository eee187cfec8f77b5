"""Closed against open loop, and one stall on two stopwatches; the queue is computed elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    GuessMark,
    Picture,
    Point,
    held_limit,
    place,
)
from course.figures.labels import GROUND, spread
from course.words import seconds

_RIGHT = 1.08
_FEW = 60

# Steps of about three: two panels that snap apart need many frames.
_HALF_DECADES: Final = (1.2, 4.0, 12.0)


@dataclass(frozen=True)
class Stall:
    """One run with a stall: every request by two stopwatches, in the order of the schedule.

    `scheduled_s`, `from_sent_s` and `from_scheduled_s` have one entry a request; times count from
    the beginning of the run, the stall begins at `stall_s` and lasts `length_s`.
    """

    length_s: float
    stall_s: float
    scheduled_s: np.ndarray
    from_sent_s: np.ndarray
    from_scheduled_s: np.ndarray
    p99_sent_s: float
    p99_scheduled_s: float
    late: int
    mean_late_s: float

    @property
    def requests(self) -> int:
        """How many requests the run has."""
        return int(self.scheduled_s.size)


@dataclass(frozen=True)
class Loops:
    """What the picture of the two loops shows; times in seconds.

    The curves give (throughput, mean time in system): closed for 1, 2, … users, open over the
    throughput. `open_s` is infinite where open arrivals at the closed loop's throughput have no
    steady state.
    """

    users: int
    think_s: float
    service_rate_per_s: float
    closed_per_s: np.ndarray
    closed_s: np.ndarray
    open_per_s: np.ndarray
    open_curve_s: np.ndarray
    throughput_per_s: float
    response_s: float
    open_s: float
    simulated_per_s: float
    simulated_s: float
    stall: Stall

    @property
    def utilization(self) -> float:
        """Share of the time that the server is busy in the closed loop."""
        return self.throughput_per_s / self.service_rate_per_s


class LoopsPicture(Picture):
    """Left: time in system against throughput, closed and open. Right: a stall, measured twice."""

    size = (8.6, 4.4)

    def build(self, figure: Figure) -> None:
        """Make both axes, their legends and the empty artists."""
        if self.present:
            figure.set_size_inches(7.6, 4.2)
        self._left = figure.add_axes(
            (0.1, 0.165, 0.36, 0.61) if self.present else (0.075, 0.13, 0.39, 0.69)
        )
        self._right = figure.add_axes(
            (0.57, 0.165, 0.41, 0.61) if self.present else (0.565, 0.13, 0.415, 0.69)
        )
        self._grown = 1.5 if self.present else 1.0
        self._build_loops(self._left)
        self._build_stall(self._right)
        for axes in (self._left, self._right):
            axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), borderaxespad=0.2)

    def _build_loops(self, axes: Axes) -> None:
        axes.set_xlim(0, _RIGHT)
        axes.set_ylim(0, 1.2)
        axes.set_xticks(np.arange(0, 1.01, 0.2))
        axes.set_xlabel("throughput as a share of μ")
        axes.set_ylabel("mean time in system (s)")
        axes.axvline(1.0, color=MUTED, linewidth=1.0, linestyle=(0, (1, 1.5)))
        self.open = self.line(axes, ORANGE, dashes=(5, 2), label="open loop", zorder=3)
        self.closed = self.line(
            axes,
            BLUE,
            marker=".",
            markersize=5 * self._grown,
            label="closed loop, user by user",
            zorder=4,
        )
        self._here = self.line(
            axes, INK, linewidth=1.2 * self._grown, linestyle=(0, (2, 2)), zorder=2
        )
        self.here_open = self.line(axes, ORANGE, marker="s", linestyle="", zorder=6)
        self.here_closed = self.line(axes, BLUE, marker="D", linestyle="", zorder=7)
        self.simulated = self.line(
            axes, BLUE, marker="o", linestyle="", markerfacecolor="white",
            markersize=5 * self._grown, zorder=8, label="closed loop, simulated",
        )  # fmt: skip
        self._open_words = self.label(axes, ORANGE, va="center", ha="right", zorder=9, bbox=GROUND)
        self.closed_words = self.label(axes, BLUE, va="center", ha="right", zorder=9, bbox=GROUND)

    def _build_stall(self, axes: Axes) -> None:
        axes.set_xlim(-4, 20)
        axes.set_ylim(0, 12)
        axes.set_xlabel("planned time after the stall (s)")
        axes.set_ylabel("time to the answer (s)")
        self._span = self.keep(
            axes.axvspan(
                0, 1, facecolor="#ececec", edgecolor="#bdbdbd", hatch="//", linewidth=0, zorder=1
            )
        )
        self.scheduled = self.line(
            axes, GREEN, linewidth=1.8 * self._grown, markersize=4, label="from the planned time",
            zorder=3,
        )  # fmt: skip
        self._sent = self.line(
            axes, INK, linewidth=1.2 * self._grown, dashes=(3, 1), label="from sending (the tool)",
            zorder=4,
        )  # fmt: skip
        self.p99_scheduled = self.line(
            axes, GREEN, linewidth=1.2 * self._grown, dashes=(8, 3), zorder=5
        )
        self.p99_sent = self.line(axes, INK, linewidth=1.2 * self._grown, dashes=(2, 2), zorder=5)
        self.guess = GuessMark(self, axes)
        self.scheduled_words = self.label(
            axes, GREEN, va="bottom", ha="right", zorder=9, bbox=GROUND
        )
        self.sent_words = self.label(axes, INK, va="bottom", ha="right", zorder=9, bbox=GROUND)

    def update(self, result: Loops, guess: Point | None) -> None:
        """Move everything to `result`."""
        self._show_loops(result)
        self._show_stall(result.stall, guess)

    def _show_loops(self, result: Loops) -> None:
        axes, rate = self._left, result.service_rate_per_s
        needed = max(1.4 * result.response_s, 0.6)
        if math.isfinite(result.open_s):
            needed = max(needed, min(1.25 * result.open_s, 4 * needed))
        top = held_limit(axes.get_ylim()[1], needed, steps=_HALF_DECADES)
        axes.set_ylim(0, top)
        self.closed.set_data(result.closed_per_s / rate, result.closed_s)
        self.open.set_data(result.open_per_s / rate, result.open_curve_s)
        self.simulated.set_data([result.simulated_per_s / rate], [result.simulated_s])
        load = result.utilization
        self._here.set_data([load, load], [0, top])
        self.here_closed.set_data([load], [result.response_s])
        finite = math.isfinite(result.open_s)
        self.here_open.set_data([load] if finite else [], [result.open_s] if finite else [])
        self._name_points(result, load, top)

    def _name_points(self, result: Loops, load: float, top: float) -> None:
        """Write the open loop's value above its curve, the closed one's below its own."""
        arrow = " ↑" if result.open_s > top else ""
        plural = "s" if result.users > 1 else ""
        closed = f"{result.users} user{plural} {seconds(result.response_s)}"
        opened = f"open {seconds(result.open_s)}{arrow}"
        gap = 0.085 if self.present else 0.06
        # Below the closed curve there is room only as long as it is not about to climb.
        below = load < (0.55 if self.present else 0.72)
        heights = [result.response_s / top, min(result.open_s / top, 1.0) + 0.03]
        if not below:
            heights = spread([heights[0] + 0.03, heights[1]], gap, 0.03, 0.96)
        elif heights[0] > gap:
            heights[0] -= gap / 2
        closed_side, open_side = below, load < 0.35
        _beside(self.closed_words, load, heights[0] * top, closed, right=closed_side)
        _beside(self._open_words, load, min(heights[1], 0.96) * top, opened, right=open_side)

    def _show_stall(self, stall: Stall, guess: Point | None) -> None:
        axes = self._right
        x = stall.scheduled_s - stall.stall_s
        # A plan without slack stays late to the end of the run: the beginning shows that already.
        span = max(6 * stall.length_s, 20.0)
        axes.set_xlim(-0.2 * span, span)
        shown = (x >= -0.2 * span) & (x <= span)
        highest = float(stall.from_scheduled_s[shown].max()) if shown.any() else 0.0
        needed = 1.15 * max(highest, stall.p99_scheduled_s, stall.p99_sent_s)
        if guess is not None:
            # A wild guess may widen the picture, not flatten the curve to a line on the floor.
            needed = max(needed, min(1.1 * guess[1], 4 * needed))
        # Never lower than on the left: the panels compare, and fewer pairs of limits need a frame.
        left_top = self._left.get_ylim()[1]
        top = max(held_limit(axes.get_ylim()[1], needed, steps=_HALF_DECADES), left_top)
        axes.set_ylim(0, top)
        self._span.set_x(0)
        self._span.set_width(stall.length_s)
        self.scheduled.set_data(x[shown], stall.from_scheduled_s[shown])
        self._sent.set_data(x[shown], stall.from_sent_s[shown])
        # Few requests are told apart as points; many would only thicken the line.
        few = bool(shown.sum() <= _FEW)
        self.scheduled.set_marker("o" if few else "")
        self._sent.set_marker("." if few else "")
        left, right = axes.get_xlim()
        self.p99_scheduled.set_data([left, right], [stall.p99_scheduled_s] * 2)
        self.p99_sent.set_data([left, right], [stall.p99_sent_s] * 2)
        heights = spread(
            [stall.p99_sent_s / top + 0.012, stall.p99_scheduled_s / top + 0.012],
            0.085 if self.present else 0.06, 0.0, 0.94,
        )  # fmt: skip
        edge = right - 0.01 * (right - left)
        place(self.sent_words, edge, heights[0] * top, f"tool P99 {seconds(stall.p99_sent_s)}")
        place(
            self.scheduled_words, edge, heights[1] * top,
            f"plan P99 {seconds(stall.p99_scheduled_s)}",
        )  # fmt: skip
        if guess is not None:
            # A guessed P99 is a height and has no time: the star stands where nothing hides it.
            guess = ((0.5 if self.present else 0.4) * right, guess[1])
        self.guess.show(guess, top, seconds)


def _beside(text: Text, x: float, y: float, words: str, *, right: bool) -> None:
    """Put words to the right or to the left of the reader's point."""
    text.set_horizontalalignment("left" if right else "right")
    place(text, x + (0.035 if right else -0.035), y, words)
