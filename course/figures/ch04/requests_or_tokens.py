"""Work in a server over time under two kinds of limit; nothing is simulated here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from course.figures.axes import BLUE, MUTED, ORANGE, Picture, Point, held_limit
from course.figures.ch04.bars import BarPanel
from course.figures.marks import FloatArray
from course.words import rounded, seconds

_LOOKS: Final = ((ORANGE, "//"), (BLUE, ""))
_NAMES: Final = ("counts requests", "counts tokens")


@dataclass(frozen=True, eq=False)
class Limited:
    """One server's run. Arrays of shape (bins,), the highest value in each bin of time.

    `held_tokens`: in the KV cache; `step_s`: length of the step; `inside`: requests waiting and
    running. The rest is over all: `chat_ttft_p99_s`, the gap between tokens `itl_p99_s`,
    `finished_per_s` while requests come, `preemptions`, and `mean_held_share` of the cache.
    """

    held_tokens: FloatArray
    step_s: FloatArray
    inside: FloatArray
    longest_step_s: float
    chat_ttft_p99_s: float
    itl_p99_s: float
    finished_per_s: float
    preemptions: int
    mean_held_share: float


@dataclass(frozen=True, eq=False)
class RequestsOrTokens:
    """What the picture shows: the same requests under a limit on requests and one on tokens.

    `time_s` (bins,): the left edge of each bin; `capacity_tokens`: what the KV cache holds;
    `asks_for_rate`: whether the learner is asked for answers a second, not for the longest step.
    """

    time_s: FloatArray
    counting: Limited
    budgeted: Limited
    rate_per_s: float
    document_share: float
    documents: int
    document_tokens: int
    hit_share: float
    seats: int
    budget_tokens: int
    watermark: float
    capacity_tokens: int
    calm_step_s: float
    asks_for_rate: bool

    @property
    def both(self) -> tuple[Limited, Limited]:
        """The server that counts requests, and the one that counts tokens."""
        return self.counting, self.budgeted


class RequestsOrTokensPicture(Picture):
    """Left: three strips over one time, two lines each. Right: what came of it, as bars."""

    size = (9.4, 5.7)

    def build(self, figure: Figure) -> None:
        """Make three strips, three bar panels and the empty artists."""
        left, width, right = (0.085, 0.5, 0.765) if self.present else (0.07, 0.545, 0.755)
        low, high, gap = (0.12, 0.86, 0.085) if self.present else (0.09, 0.89, 0.07)
        tall = (high - low - 2 * gap) / 3
        places = [low + row * (tall + gap) for row in (2, 1, 0)]
        self._strips = [figure.add_axes((left, at, width, tall)) for at in places]
        titles = (
            "tokens in the KV cache (thousands)", "length of a step (ms)",
            "requests waiting and running",
        )  # fmt: skip
        for axes, title in zip(self._strips, titles, strict=True):
            axes.set(xlim=(0, 60), ylim=(0, 1))
            axes.set_title(title, loc="left", fontsize="medium")
            axes.tick_params(labelbottom=axes is self._strips[2])
        self._strips[0].set_ylim(0, 500)
        self._strips[2].set_xlabel("time (s)")
        self._lines = [
            [
                self.line(axes, ORANGE, linewidth=1.5, linestyle=(0, (5, 1)), zorder=3),
                self.line(axes, BLUE, linewidth=1.5, zorder=4),
            ]
            for axes in self._strips
        ]
        self._full = self.line(
            self._strips[0], MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=2
        )
        panels = (
            ("longest step", seconds), ("P99 TTFT of the chats", seconds),
            ("answers a second", rounded),
        )  # fmt: skip
        self.bars = [
            BarPanel(self, figure, (right, at, 0.985 - right, tall), title, _NAMES, _LOOKS, words)
            for at, (title, words) in zip(places, panels, strict=True)
        ]
        figure.legend(
            handles=[
                Line2D([], [], color=ORANGE, linestyle=(0, (5, 1)), label="a limit on requests"),
                Line2D([], [], color=BLUE, label="a limit on tokens"),
                Line2D([], [], color=MUTED, linestyle=(0, (2, 2)), label="memory full"),
            ],
            loc="upper left", bbox_to_anchor=(left - 0.01, 1.0), ncols=3, columnspacing=1.2,
            handlelength=2.2, handletextpad=0.5, borderaxespad=0.2,
        )  # fmt: skip

    def update(self, result: RequestsOrTokens, guess: Point | None) -> None:
        """Move everything to `result`; a guess is (value, number of the bar panel)."""
        series = [
            [1e-3 * one.held_tokens for one in result.both],
            [1e3 * one.step_s for one in result.both],
            [one.inside for one in result.both],
        ]
        for axes, lines, pair in zip(self._strips[1:], self._lines[1:], series[1:], strict=True):
            highest = max(float(values.max()) for values in pair)
            axes.set_ylim(0, held_limit(axes.get_ylim()[1], 1.05 * highest))
            for line, values in zip(lines, pair, strict=True):
                line.set_data(*_stairs(result.time_s, values))
        for line, values in zip(self._lines[0], series[0], strict=True):
            line.set_data(*_stairs(result.time_s, values))
        full = 1e-3 * result.capacity_tokens
        self._full.set_data([0, 60], [full, full])
        bars = [
            [one.longest_step_s for one in result.both],
            [one.chat_ttft_p99_s for one in result.both],
            [one.finished_per_s for one in result.both],
        ]
        for place_, (panel, pair_values) in enumerate(zip(self.bars, bars, strict=True)):
            mine = (guess[0], 0) if guess and round(guess[1]) == place_ else None
            panel.show(pair_values, guess=mine)


def _stairs(time_s: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A value a bin as a line of steps, its flat stretches left out."""
    width = float(time_s[1] - time_s[0])
    new = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    ends = np.append(time_s[new][1:], time_s[-1] + width)
    return np.column_stack([time_s[new], ends]).ravel(), np.repeat(values[new], 2)
