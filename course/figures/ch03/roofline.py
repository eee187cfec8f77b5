"""The roofline of one card with a step's points on it; what lies where is computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from course.figures.axes import BLUE, GREEN, INK, MUTED, ORANGE, Picture, Point, place
from course.figures.labels import GROUND, flop_words, spread
from course.figures.marks import LogGuess
from course.words import percent, rounded

INTENSITIES: Final = (0.5, 3e4)
_SPEEDS: Final = (1.5e9, 6e15)

PRINTED_RULES: Final = (
    ("“8 to 64, start at 16”", 8, 64),
    ("“from 128 in steps of 64”", 128, 512),
    ("“ridge at 86 to 216”", 86, 216),
)
"""Rules of thumb found in print: their words, and the batches that they name."""
# Rows of bars below anything that a card of the catalogue does; that of memory is the top one.
_RULE_HEIGHTS: Final = (2.6e9, 6.2e9, 1.5e10)
_ROOM_HEIGHT: Final = 3.6e10


@dataclass(frozen=True)
class Work:
    """A piece of a step on one card: operations a byte, and operations a second that it reaches."""

    flop_per_byte: float
    flop_per_s: float

    @property
    def point(self) -> Point:
        """Where it lies in the picture."""
        return self.flop_per_byte, self.flop_per_s


@dataclass(frozen=True, eq=False)
class Roofline:
    """What the roofline shows: one card's roof, and one step's matrices, KV reads and whole.

    `peak_flop_per_s` and `bytes_per_s` are the data sheet's, the `reached_` ones what kernels get
    out of it. Batches on the axis are intensities · `tokens_per_intensity`. `trail_*` (batches,) is
    the whole step as the batch grows, `ceiling_flop_per_byte` where that would end without end of
    memory, `room` the number of sequences of this context that memory holds.
    """

    model: str
    gpu: str
    n_gpus: int
    precision: str
    wanted_precision: str
    batch: int
    context_tokens: int
    prefill_tokens: int
    peak_flop_per_s: float
    bytes_per_s: float
    reached_flop_per_s: float
    reached_bytes_per_s: float
    matrices: Work
    cache: Work
    step: Work
    trail_flop_per_byte: np.ndarray
    trail_flop_per_s: np.ndarray
    ceiling_flop_per_byte: float
    tokens_per_intensity: float
    reached_ridge_tokens: float
    room: int
    step_s: float

    @property
    def ridge_flop_per_byte(self) -> float:
        """Operations a byte at which the data sheet's two roofs meet."""
        return self.peak_flop_per_s / self.bytes_per_s

    @property
    def ridge_tokens(self) -> float:
        """Tokens in a step that bring the matrices there."""
        return self.ridge_flop_per_byte * self.tokens_per_intensity

    @property
    def share_of_peak(self) -> float:
        """Of the card's peak that the whole step reaches."""
        return self.step.flop_per_s / self.peak_flop_per_s

    def reached(self, flop_per_byte: np.ndarray) -> np.ndarray:
        """Return the operations/s under the smooth corner at these intensities."""
        memory = 1 / (self.reached_bytes_per_s * flop_per_byte)
        return np.asarray(1 / np.hypot(memory, 1 / self.reached_flop_per_s))


class RooflinePicture(Picture):
    """Operations a second against operations a byte, both logarithmic."""

    size = (8.6, 5.2)

    def build(self, figure: Figure) -> None:
        """Make the axes, the legend and the empty artists."""
        box = (0.135, 0.15, 0.85, 0.72) if self.present else (0.1, 0.115, 0.885, 0.765)
        axes = self._axes = figure.add_axes(box)
        axes.set(xscale="log", yscale="log", xlim=INTENSITIES, ylim=_SPEEDS)
        axes.set_xlabel("operations for each byte read (FLOP/byte)")
        axes.set_ylabel("operations/s of one card")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: flop_words(y)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(10))
            axis.set_minor_formatter(NullFormatter())
        self.roof = self.line(axes, INK, zorder=3, label="roof: the data sheet")
        self.reached = self.line(
            axes, BLUE, linestyle=(0, (5, 2)), zorder=4, label="what kernels reach (round corner)"
        )
        self.trail = self.line(
            axes, ORANGE, linewidth=1.6, linestyle=(0, (1, 1.2)), zorder=4,
            label="whole step as the batch grows",
        )  # fmt: skip
        self._build_points(axes)
        self._build_rules(axes)
        self.ridge = self.line(axes, MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=2)
        self._ridge_words = self.label(axes, MUTED, va="top", ha="left", zorder=5, bbox=GROUND)
        self.guess = LogGuess(self, axes)
        figure.legend(
            loc="upper center", ncols=2, bbox_to_anchor=(0.53, 1.01), labelspacing=0.25,
            columnspacing=1.5, borderaxespad=0.2,
        )  # fmt: skip

    def _build_points(self, axes: Axes) -> None:
        looks = (
            (BLUE, "s", "matrices (weights)"),
            (GREEN, "D", "attention (KV cache)"),
            (ORANGE, "o", "whole step"),
        )
        self.points = [
            self.line(
                axes, colour, marker=marker, linestyle="", zorder=7, label=name,
                markersize=11 if self.present else 8, markeredgecolor="white",
            )
            for colour, marker, name in looks
        ]  # fmt: skip
        self.words = [
            self.label(axes, BLUE, va="bottom", ha="right", zorder=9, bbox=GROUND),
            self.label(axes, GREEN, va="bottom", ha="right", zorder=9, bbox=GROUND),
            self.label(axes, ORANGE, va="top", ha="left", zorder=9, bbox=GROUND),
        ]

    def _build_rules(self, axes: Axes) -> None:
        self._rules = [
            self.line(axes, MUTED, linewidth=4.5, solid_capstyle="butt", zorder=3)
            for _ in PRINTED_RULES
        ]
        self._rule_words = [
            self.label(axes, MUTED, va="center", ha="left", zorder=5, bbox=GROUND)
            for _ in PRINTED_RULES
        ]
        self._room = self.line(axes, GREEN, linewidth=4.5, solid_capstyle="butt", zorder=3)
        self._room_words = self.label(axes, GREEN, va="bottom", ha="left", zorder=6)

    def update(self, result: Roofline, guess: Point | None) -> None:
        """Move everything to `result`."""
        x = np.geomspace(*INTENSITIES, 160)
        roof = np.minimum(result.peak_flop_per_s, result.bytes_per_s * x)
        self.roof.set_data(x, roof)
        self.reached.set_data(x, result.reached(x))
        self.trail.set_data(result.trail_flop_per_byte, result.trail_flop_per_s)
        ridge = result.ridge_flop_per_byte
        self.ridge.set_data([ridge, ridge], [_SPEEDS[0], result.peak_flop_per_s])
        place(
            self._ridge_words, 1.12 * ridge, 2.0e12 if self.present else 1.5e12,
            f"matrices' ridge: {rounded(result.ridge_tokens)} tokens\n"
            f"({rounded(result.reached_ridge_tokens)} as kernels go)",
        )  # fmt: skip
        self._show_points(result)
        self._show_rules(result)
        share = f"{guess[1] / result.peak_flop_per_s * 100:.3g} %" if guess else ""
        self.guess.show(guess, share, self.words[2])

    def _show_points(self, result: Roofline) -> None:
        works = (result.matrices, result.cache, result.step)
        for line, work in zip(self.points, works, strict=True):
            line.set_data([work.flop_per_byte], [work.flop_per_s])
        gap = 0.36 if self.present else 0.29
        # In decades; words above a point, and those of two neighbours above each other.
        heights = spread([np.log10(work.flop_per_s) + 0.12 for work in works[:2]], gap, 10, 16)
        names = (
            f"matrices {rounded(result.matrices.flop_per_byte)}",
            f"KV cache {rounded(result.cache.flop_per_byte, 2)}",
        )
        for text, work, height, name in zip(self.words, works, heights, names, strict=False):
            left = work.flop_per_byte > 4.5
            text.set_horizontalalignment("right" if left else "center")
            at = max(work.flop_per_byte * 0.93, 1.9 if self.present else 1.3)
            place(text, at, 10**height, name)
        at, speed = result.step.point
        place(
            self.words[2], 1.15 * at, 0.72 * speed,
            f"whole step: {percent_words(result.share_of_peak)} of peak",
        )  # fmt: skip
        self.words[2].set_horizontalalignment("right" if at > 500 else "left")

    def _show_rules(self, result: Roofline) -> None:
        """Draw the printed batches where this model's matrices have them."""
        scale = 1 / result.tokens_per_intensity
        right = PRINTED_RULES[1][2] * scale
        for line, words, (name, low, high), y in zip(
            self._rules, self._rule_words, PRINTED_RULES, _RULE_HEIGHTS, strict=True
        ):
            line.set_data([low * scale, high * scale], [y, y])
            place(words, 1.12 * right, y, name)
        left = INTENSITIES[0]
        end = min(max(result.room * scale, 1.15 * left), INTENSITIES[1])
        self._room.set_data([left, end], [_ROOM_HEIGHT] * 2)
        place(
            self._room_words, 1.05 * left, 1.3 * _ROOM_HEIGHT,
            f"batches that memory holds: up to {result.room:,}",
        )  # fmt: skip


def percent_words(share: float) -> str:
    r"""Return a share as per cent with two significant figures where it is small.

    >>> percent_words(0.00234), percent_words(0.412)
    ('0.23\xa0%', '41.2\xa0%')
    """
    return percent(share) if share >= 0.1 else f"{rounded(100 * share, 2)}\u00a0%"
