"""The retry storm: attempts, good answers and what became of them; the run is made elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course.figures.axes import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    GuessMark,
    Picture,
    Point,
    held_limit,
    place,
)
from course.figures.ch05.over_time import (
    OUTCOMES,
    BurstShade,
    OverTime,
    StackedShares,
    muted_rule,
)
from course.words import rounded

TOP_PER_S = 50.0
"""Attempts beyond it are named, not drawn: good answers would lie flat on the floor."""


@dataclass(frozen=True, eq=False)
class RetryStorm:
    """What the picture shows: the run over time, and its sums before, in and after the burst.

    Rates in requests a second of those first sent before, in and after the burst. `attempts_each`:
    sendings a request after the burst. `wasted_share`: of the tokens computed for attempts sent
    after the burst, those that helped nobody. `back_after_s`: from the burst's end, None: never.
    """

    time: OverTime
    rate_per_s: float
    capacity_per_s: float
    attempts: int | None
    pauses: str
    patience_s: float
    after_s: float
    good_per_s: tuple[float, float, float]
    offered_after_per_s: float
    attempts_after_per_s: float
    attempts_each: float
    refused_share: float
    wasted_share: float
    back_after_s: float | None

    @property
    def kept(self) -> float:
        """Goodput after / before the burst; 0 where nothing was good before."""
        before, _, after = self.good_per_s
        return after / before if before else 0.0


class RetryStormPicture(Picture):
    """Rates over time above, outcomes of the attempts below."""

    size = (7.8, 5.4)

    def build(self, figure: Figure) -> None:
        """Make the axes, the legends and the empty artists."""
        if self.present:
            boxes = (0.115, 0.555, 0.865, 0.33), (0.115, 0.125, 0.865, 0.27)
        else:
            boxes = (0.085, 0.54, 0.895, 0.38), (0.085, 0.1, 0.895, 0.29)
        self.rates, self._fates = (figure.add_axes(box) for box in boxes)
        for axes in (self.rates, self._fates):
            axes.set_xlim(0, 300)
            axes.set_xticks(range(0, 301, 40))
        self._build_rates(self.rates)
        self._fates.set_ylim(0, 100)
        self._fates.set_yticks([0, 50, 100])
        self._fates.set_ylabel("attempts (%)")
        self._fates.set_xlabel("time of sending (s)")
        self._shares = StackedShares(self, self._fates)
        self._lower_shade = BurstShade(self, self._fates, words=False)
        self._fates.legend(
            handles=[
                Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=words)
                for colour, hatch, words in OUTCOMES.values()
            ],
            loc="lower center", bbox_to_anchor=(0.48, 1.0), ncols=4, borderaxespad=0.2,
            handlelength=1.4, columnspacing=1.1, handletextpad=0.5,
            fontsize=11 if self.present else 9.5,
        )  # fmt: skip

    def _build_rates(self, axes: Axes) -> None:
        axes.set_ylim(0, TOP_PER_S)
        axes.set_ylabel("per second")
        self._shade = BurstShade(self, axes)
        self._capacity = muted_rule(axes, self)
        self.offered = self.line(
            axes, INK, linewidth=1.3, dashes=(2, 1.5), zorder=4, label="requests offered"
        )
        self.attempts = self.line(
            axes, ORANGE, dashes=(6, 2), zorder=5, label="attempts (with retries)"
        )
        self.good = self.line(axes, BLUE, zorder=6, label="good answers")
        self._capacity_words = self.label(
            axes, MUTED, va="bottom", ha="left", zorder=7,
            fontsize=10.5 if self.present else 9.0,
        )  # fmt: skip
        self.guess = GuessMark(self, axes)
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.48, 1.0), ncols=3, borderaxespad=0.2,
            handlelength=2.6, columnspacing=1.5, fontsize=11 if self.present else 9.5,
        )  # fmt: skip

    def update(self, result: RetryStorm, guess: Point | None) -> None:
        """Move everything to `result`."""
        time = result.time
        x = time.middle_s
        most = max(float(time.attempts_per_s.max()), 1.5 * result.capacity_per_s)
        most = 1.35 * max(most, guess[1] if guess else 0.0)
        top = held_limit(self.rates.get_ylim()[1], min(most, TOP_PER_S))
        self.rates.set_ylim(0, top)
        self.offered.set_data(x, time.offered_per_s)
        self.attempts.set_data(x, time.attempts_per_s)
        self.good.set_data(x, time.good_per_s)
        self._capacity.set_data([0, 300], [result.capacity_per_s] * 2)
        place(
            self._capacity_words, 2, result.capacity_per_s + 0.01 * top,
            f"capacity {rounded(result.capacity_per_s)}/s",
        )  # fmt: skip
        self._shade.show(time.burst_s, _words(result, top))
        self._lower_shade.show(time.burst_s)
        self._shares.show(time)
        self.guess.show(guess, top, lambda value: f"{rounded(value)}/s", beside=True)


def _words(result: RetryStorm, top: float) -> tuple[str, str, str]:
    before, _, after = result.good_per_s
    time = result.time
    high = float(time.attempts_per_s[time.middle_s > time.burst_s[1]].max(initial=0.0))
    sent = rounded(result.attempts_after_per_s)
    beyond = f"; at most {rounded(high)}" if high > top else ""
    return (
        f"before: {rounded(before)} good/s",
        "burst",
        f"after: {rounded(after)} good/s\n{sent} attempts/s{beyond}",
    )
