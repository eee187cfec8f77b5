"""Four verdicts: what the gate says to each tenant and what comes of it; nothing is run here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    SKY,
    YELLOW,
    Picture,
    Point,
    held_limit,
    place,
)
from course.figures.labels import GROUND
from course.figures.marks import boxes
from course.words import percent, rounded

VERDICTS = {
    "accept": (BLUE, "", "accept"),
    "queue": (SKY, "\\\\\\\\", "queue"),
    "degrade": (YELLOW, "||||", "shorten"),
    "reject": (ORANGE, "////", "reject"),
}
"""Verdict -> colour, hatch, words."""

_TENANTS = 3
# within a group of height 1, from its top: words, verdicts, outcome
_WORDS_AT, _VERDICT, _OUTCOME = 0.16, (0.27, 0.55), (0.61, 0.89)


@dataclass(frozen=True, eq=False)
class TenantFate:
    """What one tenant asked for, was told and got; `verdicts` are shares of its requests."""

    name: str
    urgency: str
    offered_per_s: float
    verdicts: dict[str, float]
    in_time: float
    asked_tokens_per_s: float
    good_tokens_per_s: float


@dataclass(frozen=True, eq=False)
class Score:
    """The sums of one run: `cost_usd` per 1,000 good answers, None without one."""

    good_per_s: float
    cost_usd: float | None
    fairness: float
    preemptions: int
    wasted_share: float


@dataclass(frozen=True, eq=False)
class FourVerdicts:
    """What the picture shows: each tenant behind the gate, and without a gate; and the sums."""

    tenants: tuple[TenantFate, ...]
    open_tenants: tuple[TenantFate, ...]
    score: Score
    open_score: Score
    rules: tuple[str, ...]
    has_buckets: bool
    usd_per_hour: float
    patience_s: float


class FourVerdictsPicture(Picture):
    """Two bars a tenant on the left, three sums on the right, each against the open door."""

    size = (8.8, 5.0)

    def build(self, figure: Figure) -> None:
        """Make the axes, the legend and the empty artists."""
        box = (0.02, 0.135, 0.6, 0.73) if self.present else (0.02, 0.105, 0.62, 0.79)
        axes = self.bars = figure.add_axes(box)
        axes.set(xlim=(0, 104), ylim=(_TENANTS, 0), yticks=[], xticks=range(0, 101, 20))
        axes.set_xlabel("of the tenant's requests (%)")
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False, axis="y")
        edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.3, "zorder": 3}
        self._verdicts = {
            name: self.area(axes, colour, hatch=hatch, **edge)
            for name, (colour, hatch, _) in VERDICTS.items()
        }
        self.in_time = self.area(axes, GREEN, **edge)
        self.open = self.line(
            axes, INK, marker="D", linestyle="", zorder=6, markerfacecolor="white",
            markersize=8 if self.present else 6,
        )  # fmt: skip
        self._heads = [
            self.label(axes, va="center", ha="left", fontweight="bold", zorder=7)
            for _ in range(_TENANTS)
        ]
        self._shares = [
            self.label(axes, GREEN, va="center", ha="left", zorder=7, bbox=GROUND)
            for _ in range(_TENANTS)
        ]
        self.guess_star = self.star(axes, zorder=8)
        self._guess_words = self.label(axes, PURPLE, va="center", zorder=9, bbox=GROUND)
        self._build_scores(figure)
        self._build_legend(figure)

    def _build_scores(self, figure: Figure) -> None:
        names = ("good answers/s", "USD per 1,000 of them", "fairness (Jain, 1 is even)")
        width = 0.285 if self.present else 0.295
        left = 0.67 if self.present else 0.685
        lows = (0.685, 0.41, 0.135) if self.present else (0.71, 0.41, 0.11)
        self._scores = [figure.add_axes((left, low, width, 0.09)) for low in lows]
        self._score_words = []
        small = 11 if self.present else 9.5
        for axes, name in zip(self._scores, names, strict=True):
            axes.set(xlim=(0, 1), ylim=(0, 1), yticks=[])
            axes.grid(visible=False, axis="y")
            axes.spines["left"].set_visible(False)
            axes.set_title(name, loc="left", fontsize=small, pad=19)
            self._score_words.append(
                self.label(
                    axes, BLUE, va="bottom", ha="left", fontsize=small, fontweight="bold",
                    transform=axes.transAxes, zorder=8,
                )
            )  # fmt: skip
        self._scores[0].set_xlim(0, 10)
        self._scores[1].set(xlim=(0, 0.1), xticks=[0, 0.05, 0.1])
        self._pairs = [self._pair(axes) for axes in self._scores]

    def _pair(self, axes: Axes) -> tuple[Line2D, Line2D, Line2D]:
        """A line from the open door's sum to that of the gate, and both its ends."""
        return (
            self.line(axes, MUTED, linewidth=2.0, zorder=2, clip_on=False),
            self.line(
                axes, INK, marker="D", linestyle="", markerfacecolor="white", zorder=3,
                markersize=8 if self.present else 6, clip_on=False,
            ),
            self.line(axes, BLUE, marker="o", linestyle="", zorder=4, clip_on=False),
        )  # fmt: skip

    def _build_legend(self, figure: Figure) -> None:
        handles: list[Any] = [
            Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=words)
            for colour, hatch, words in VERDICTS.values()
        ]
        handles.append(Patch(facecolor=GREEN, edgecolor="white", label="answered in time"))
        handles.append(
            Line2D(
                [], [], color=INK, marker="D", linestyle="", markerfacecolor="white",
                markersize=7, label="in time with no gate",
            )
        )  # fmt: skip
        figure.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(0.0, 1.0), ncols=6,
            handlelength=1.3, columnspacing=0.9, handletextpad=0.4, borderaxespad=0.25,
            fontsize=10.5 if self.present else 9.5,
        )  # fmt: skip

    def update(self, result: FourVerdicts, guess: Point | None) -> None:
        """Move everything to `result`."""
        rows = np.arange(_TENANTS, dtype=np.float64)
        left = np.zeros(_TENANTS)
        for name, patch in self._verdicts.items():
            right = left + 100 * np.array([t.verdicts[name] for t in result.tenants])
            patch.set_path(boxes(left, right, rows + _VERDICT[0], rows + _VERDICT[1]))
            left = right
        met = np.array([100 * t.in_time for t in result.tenants])
        self.in_time.set_path(
            boxes(np.zeros(_TENANTS), met, rows + _OUTCOME[0], rows + _OUTCOME[1])
        )
        middle = rows + (_OUTCOME[0] + _OUTCOME[1]) / 2
        self.open.set_data([100 * t.in_time for t in result.open_tenants], middle)
        for row, tenant in enumerate(result.tenants):
            place(
                self._heads[row], 0, row + _WORDS_AT,
                f"{tenant.name} ({tenant.urgency}): {rounded(tenant.offered_per_s)} requests/s",
            )  # fmt: skip
            self._share_words(row, tenant.in_time, result.open_tenants[row].in_time)
        self._show_scores(result)
        self._show_guess(guess)

    def _share_words(self, row: int, share: float, open_share: float) -> None:
        """The share in time, inside its bar or right of it, clear of the diamond."""
        words = percent(round(share, 2))
        x = 1.5 if share > 0.14 else 100 * share + 3
        if x - 2 < 100 * open_share < x + 12:
            x = 100 * open_share + 3
        place(self._shares[row], x, row + (_OUTCOME[0] + _OUTCOME[1]) / 2, words)

    def _show_scores(self, result: FourVerdicts) -> None:
        own, opened = result.score, result.open_score
        values = (
            (own.good_per_s, opened.good_per_s),
            (own.cost_usd, opened.cost_usd),
            (own.fairness, opened.fairness),
        )
        for place_, (axes, pair, (here, there)) in enumerate(
            zip(self._scores, self._pairs, values, strict=True)
        ):
            if place_ == 0:
                top = held_limit(axes.get_xlim()[1], max(own.good_per_s, opened.good_per_s, 4))
                axes.set_xlim(0, top)
            edge = axes.get_xlim()[1]
            x = [edge if v is None else min(v, edge) for v in (there, here)]
            pair[0].set_data(x, [0.5, 0.5])
            pair[1].set_data(x[:1], [0.5])
            pair[2].set_data(x[1:], [0.5])
        dearest = self._scores[1].get_xlim()[1]
        texts = (
            (rounded(own.good_per_s), rounded(opened.good_per_s)),
            (_usd(own.cost_usd, dearest), _usd(opened.cost_usd, dearest)),
            (f"{own.fairness:.2f}", f"{opened.fairness:.2f}"),
        )
        for words, (ours, theirs) in zip(self._score_words, texts, strict=True):
            place(words, 0.0, 1.1, f"{ours}  (no gate: {theirs})")

    def _show_guess(self, guess: Point | None) -> None:
        if guess is None:
            self.guess_star.set_data([], [])
            place(self._guess_words, 0, 0, "")
            return
        value, row = guess
        x = min(max(value, 0.0), 103.0)
        y = row + (_OUTCOME[0] + _OUTCOME[1]) / 2
        self.guess_star.set_data([x], [y])
        right = x < 60
        self._guess_words.set_horizontalalignment("left" if right else "right")
        place(self._guess_words, x + (3 if right else -3), y, f"your guess {rounded(value)} %")


def _usd(value: float | None, edge: float) -> str:
    """A small price with two figures; an arrow where its mark would lie beyond the panel's edge."""
    if value is None:
        return "none is good"
    return f"{rounded(value, 2)}{' →' if value > edge else ''}"
