"""One event at one replica over time: arrivals, queue, P99; the replica is run elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from course.figures.axes import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, Picture, Point, place
from course.figures.ch06.across import coarse_limit
from course.figures.marks import LogGuess
from course.words import rounded, seconds

_RATES: Final = (30.0, 45.0, 90.0)
_PEOPLE: Final = (400.0, 1500.0, 6000.0, 25_000.0, 100_000.0)


@dataclass(frozen=True, eq=False)
class OneEvent:
    """What came to one replica, and what it made of it.

    `edges_min`: start, begin and end of the event, end; `bars_min`: edges of the stretches that
    the rates and the P99 are counted in; `at_min`: when the queue was looked at. `kept_share`,
    `event_p99_s` and `event_finished_per_s` are those of the event itself. `last_seated_s`: from
    its end until the last of its own requests has a seat; `drained_s`: until hardly anybody waits,
    later ones included, None where that is not seen.
    """

    usual_per_s: float
    event_per_s: float
    fails: int
    own_per_s: float
    edges_min: np.ndarray
    bars_min: np.ndarray
    arrived_per_s: np.ndarray
    finished_per_s: np.ndarray
    ttft_p99_s: np.ndarray
    at_min: np.ndarray
    waiting: np.ndarray
    running: np.ndarray
    ttft_limit_s: float
    quantile: float
    held_per_s: float
    most_per_s: float
    kept_share: float
    event_p99_s: float
    event_finished_per_s: float
    all_kept_share: float
    most_waiting: int
    last_seated_s: float
    drained_s: float | None

    @property
    def minutes(self) -> float:
        """How long the event lasts."""
        return float(self.edges_min[2] - self.edges_min[1])


class OneEventPicture(Picture):
    """Rates, people and P99 over the same minutes, the event shaded."""

    size = (9.0, 5.8)

    def build(self, figure: Figure) -> None:
        """Make three panels over one time axis, the legend and the empty artists."""
        left, width = (0.115, 0.865) if self.present else (0.085, 0.9)
        bottoms = (0.645, 0.385, 0.125) if self.present else (0.665, 0.38, 0.095)
        height = 0.19 if self.present else 0.215
        titles = (
            "requests/s", "requests in the replica",
            "P99 TTFT of those that came (s)" if self.present
            else "P99 TTFT of the requests that came then (s)",
        )  # fmt: skip
        self.panels: list[Axes] = []
        for bottom, title in zip(bottoms, titles, strict=True):
            axes = figure.add_axes((left, bottom, width, height))
            axes.set_title(title, loc="left", fontsize="medium")
            axes.xaxis.set_major_locator(MaxNLocator(10, steps=[1, 2, 5, 10]))
            axes.set_xlim(0, 7)
            axes.tick_params(labelbottom=bottom == bottoms[-1])
            self.panels.append(axes)
        self.rates, self._people, self._tail = self.panels
        self._tail.set_xlabel("minutes")
        self.rates.set_ylim(0, 30)
        self._people.set_ylim(0, 400)
        self._people.yaxis.set_major_locator(MaxNLocator(4))
        self._people.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
        self._tail.set(yscale="log", ylim=(0.05, 3000))
        self._tail.yaxis.set_major_locator(FixedLocator([0.1, 1, 10, 100, 1000]))
        self._tail.yaxis.set_minor_locator(NullLocator())
        self._tail.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        self._build_artists()
        figure.legend(
            handles=[
                self.arrived, self.finished, self.held, self.running, self.waiting,
                self._limit, self._shades[0],
            ],
            loc="upper center", ncols=4 if self.present else 7, bbox_to_anchor=(0.53, 1.0),
            columnspacing=1.2, handlelength=1.9, labelspacing=0.25, borderaxespad=0.2,
        )  # fmt: skip

    def _build_artists(self) -> None:
        rates, people, tail = self.panels
        self._shades = [
            self.keep(axes.axvspan(0, 1, facecolor="#e9e9e9", linewidth=0, zorder=0.5,
                                   label="the event"))
            for axes in self.panels
        ]  # fmt: skip
        step = {"drawstyle": "steps-post"}
        self.arrived = self.line(
            rates, MUTED, linewidth=1.6, zorder=3, label="arrive", linestyle=(0, (1, 1)), **step
        )
        self.finished = self.line(rates, BLUE, zorder=4, label="finish", **step)
        self.held = self.line(
            rates, GREEN, linewidth=1.8, linestyle=(0, (6, 1.5, 1, 1.5)), zorder=2,
            label="held inside the promise",
        )  # fmt: skip
        self._rate_words = self.label(rates, INK, va="bottom", ha="center", zorder=9)
        self.running = self.line(
            people, BLUE, linewidth=1.6, linestyle=(0, (4, 1.5)), zorder=3, label="run"
        )
        self.waiting = self.line(people, ORANGE, zorder=4, label="wait")
        self._people_words = self.label(people, ORANGE, va="bottom", zorder=9)
        self.p99 = self.line(tail, ORANGE, linewidth=1.8, zorder=4, **step)
        self._limit = self.line(
            tail, INK, linewidth=1.5, linestyle=(0, (1, 1.2)), zorder=3, label="promise"
        )
        self.worst = self.line(tail, PURPLE, marker="D", linestyle="", zorder=6)
        self.tail_words = self.label(tail, PURPLE, va="bottom", zorder=9)
        self.guess = LogGuess(self, tail)

    def update(self, result: OneEvent, guess: Point | None) -> None:
        """Move everything to `result`; a guess is a P99 in seconds, in the middle of the event."""
        self._scale(result)
        begin, end = result.edges_min[1:3]
        for shade in self._shades:
            shade.set_x(begin)
            shade.set_width(end - begin)
        self._show_rates(result)
        self._show_people(result)
        self._show_tail(result)
        self.guess.show(guess, seconds(guess[1]) if guess else "", self.tail_words)

    def _scale(self, result: OneEvent) -> None:
        right = float(result.edges_min[-1])
        if self.rates.get_xlim()[1] != right:
            for axes in self.panels:
                axes.set_xlim(0, right)
        bars = max(result.arrived_per_s.max(), result.finished_per_s.max(), result.held_per_s)
        for axes, most, steps in (
            (self.rates, 1.05 * bars, _RATES),
            (self._people, 1.2 * max(result.most_waiting, result.running.max()), _PEOPLE),
        ):
            top = coarse_limit(axes.get_ylim()[1], float(most), steps, shrink_below=0.25)
            if top != axes.get_ylim()[1]:
                axes.set_ylim(0, top)

    def _show_rates(self, result: OneEvent) -> None:
        bars, right = result.bars_min, float(result.edges_min[-1])
        for line, rates in (
            (self.arrived, result.arrived_per_s),
            (self.finished, result.finished_per_s),
        ):
            line.set_data(bars, np.append(rates, rates[-1]))
        self.held.set_data([0, right], [result.held_per_s] * 2)
        place(
            self._rate_words, result.edges_min[1:3].mean(), 0.04 * self.rates.get_ylim()[1],
            f"{rounded(result.event_per_s)} come, {rounded(result.event_finished_per_s)} finish",
        )  # fmt: skip

    def _show_people(self, result: OneEvent) -> None:
        self.running.set_data(result.at_min, result.running)
        self.waiting.set_data(result.at_min, result.waiting)
        worst = int(result.waiting.argmax())
        most, top = result.most_waiting, self._people.get_ylim()[1]
        x, right = float(result.at_min[worst]), float(result.edges_min[-1])
        on_left = x > 0.55 * right
        self._people_words.set_horizontalalignment("right" if on_left else "left")
        words = f"{most:,} wait" if most > 5 else ""
        reach = (-0.015 if on_left else 0.015) * right, (-0.17 if on_left else 0.17) * right
        under = np.abs(result.at_min - x - sum(reach) / 2) <= abs(reach[1] - reach[0]) / 2
        y = max(result.waiting[under].max(), result.running[under].max(), most) + 0.03 * top
        place(self._people_words, x + reach[0], min(float(y), 0.86 * top), words)

    def _show_tail(self, result: OneEvent) -> None:
        bars, tails = result.bars_min, result.ttft_p99_s
        self.p99.set_data(bars, np.append(tails, tails[-1]))
        right = float(result.edges_min[-1])
        self._limit.set_data([0, right], [result.ttft_limit_s] * 2)
        x = float(result.edges_min[1:3].mean())
        self.worst.set_data([x], [result.event_p99_s])
        centred = 0.2 * right < x < 0.8 * right
        self.tail_words.set_horizontalalignment("center" if centred else "left")
        place(
            self.tail_words, x, 1.5 * result.event_p99_s,
            f"P99 of the event {seconds(result.event_p99_s)}",
        )  # fmt: skip
