"""A decode step predicted and measured, over the batch and split into parts; computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter, NullLocator

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    YELLOW,
    Picture,
    Point,
    bars,
    held_top,
    place,
)
from course.figures.labels import GROUND
from course.figures.marks import LogGuess
from course.words import seconds

PARTS = ("matrices", "attention", "small kernels")
"""What a predicted step is made of, from the bottom of its bar to the top."""

_LOOKS = ((BLUE, ""), (GREEN, "//"), (YELLOW, "\\\\"))


@dataclass(frozen=True, eq=False)
class PredictMeasure:
    """One run's decode steps of the small transformer at one context, and what the fit says.

    `measured_*` are (batches,), seconds; `curve_*` the prediction over batches, `parts_s` that of
    the chosen batch in the order of `PARTS`, all of them times `factor` where the smallest measured
    batch was used to calibrate. `next_s` is a measured step to start the guess from.
    """

    lead: str
    caption: str
    precision: str
    wanted_precision: str
    layers: int
    hidden: int
    wanted_batch: int
    batch: int
    context_tokens: int
    moved_bytes: int
    flop: int
    bandwidth_bytes_per_s: float
    peak_flop_per_s: float
    measured_batch: np.ndarray
    measured_s: np.ndarray
    low_s: np.ndarray
    high_s: np.ndarray
    curve_batch: np.ndarray
    curve_s: np.ndarray
    parts_s: tuple[float, float, float]
    here_s: float
    factor: float
    calibrated: bool
    first_batch: int
    first_context_tokens: int
    first_s: float
    off: np.ndarray

    @property
    def predicted_s(self) -> float:
        """The prediction for the chosen batch."""
        return sum(self.parts_s)

    @property
    def residual(self) -> float:
        """Predicted over measured − 1, of the chosen batch."""
        return self.predicted_s / self.here_s - 1


class PredictMeasurePicture(Picture):
    """Left: a step's time over the batch. Right: the chosen step's bar, predicted and measured."""

    size = (8.8, 4.8)

    def build(self, figure: Figure) -> None:
        """Make two axes, the legend and the empty artists."""
        low, top = (0.155, 0.77) if self.present else (0.12, 0.815)
        left = 0.115 if self.present else 0.09
        axes = self._axes = figure.add_axes((left, low, 0.655 - left, top - low))
        axes.set(xscale="log", xlim=(0.8, 44), ylim=(0, 1.0))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlabel("batch (sequences)")
        axes.set_ylabel("one decode step (ms)")
        start = 0.735 if self.present else 0.725
        self.bars = figure.add_axes((start, low, 0.985 - start, top - low))
        self.bars.set(xlim=(-0.55, 1.55), ylim=(0, 1.0))
        self.bars.set_xticks([0, 1], ["model" if self.present else "predicted", "measured"])
        self.bars.grid(axis="x", visible=False)
        self.curve = self.line(
            axes, BLUE, linestyle=(0, (5, 2)), zorder=3, label="predicted from single kernels"
        )
        self.points = self.line(
            axes, INK, marker="o", linestyle="", zorder=5, label="measured, with quartiles",
            markeredgecolor="white",
        )  # fmt: skip
        self._spread = self.line(axes, INK, linewidth=1.5, zorder=4)
        self.here = self.line(
            axes, ORANGE, marker="D", linestyle="", zorder=6, markeredgecolor="white",
            markersize=12 if self.present else 9,
        )  # fmt: skip
        self._here_words = self.label(axes, ORANGE, va="bottom", ha="right", zorder=9, bbox=GROUND)
        self._caption = self.label(
            axes, MUTED, va="bottom", ha="left", zorder=9, transform=axes.transAxes
        )
        self._build_bars()
        self.guess = LogGuess(self, axes)
        figure.legend(
            handles=[self.curve, self.points, *self.boxes],
            loc="upper center", ncols=3, bbox_to_anchor=(0.53, 1.01), columnspacing=1.4,
            borderaxespad=0.2, labelspacing=0.25,
        )  # fmt: skip

    def _build_bars(self) -> None:
        axes = self.bars
        self.boxes = [
            self.keep(
                axes.add_patch(
                    Rectangle(
                        (-0.4, 0),
                        0.8,
                        0,
                        facecolor=colour,
                        edgecolor="white",
                        hatch=hatch,
                        label=name,
                    )
                )
            )
            for name, (colour, hatch) in zip(PARTS, _LOOKS, strict=True)
        ]
        self.measured = self.keep(
            axes.add_patch(
                Rectangle((0.6, 0), 0.8, 0, facecolor="#f2d3c0", edgecolor=ORANGE, linewidth=1.5)
            )
        )
        self._part_words = [
            self.label(axes, INK, va="center", ha="center", zorder=6, bbox=GROUND) for _ in PARTS
        ]
        self._totals = [self.label(axes, INK, va="bottom", ha="center", zorder=6) for _ in range(2)]

    def update(self, result: PredictMeasure, guess: Point | None) -> None:
        """Move everything to `result`; heights are in milliseconds."""
        axes = self._axes
        most = 1e3 * max(result.high_s.max(), result.curve_s.max(), result.predicted_s)
        if guess is not None:
            most = max(most, min(1.05 * guess[1], 1.8 * most))
        top = held_top(axes.get_ylim()[1], 1.12 * most)
        if axes.get_ylim()[1] != top:
            axes.set_ylim(0, top)
            self.bars.set_ylim(0, top)
        last = max(result.measured_batch.max(), result.curve_batch.max())
        if axes.get_xlim()[1] != 1.4 * last:
            axes.set_xlim(0.8, 1.4 * last)
            axes.xaxis.set_major_locator(FixedLocator([2**k for k in range(11) if 2**k <= last]))
        self.curve.set_data(result.curve_batch, 1e3 * result.curve_s)
        self.points.set_data(result.measured_batch, 1e3 * result.measured_s)
        self._spread.set_data(*bars(
            (b, (1e3 * low, 1e3 * high))
            for b, low, high in zip(result.measured_batch, result.low_s, result.high_s, strict=True)
        ))  # fmt: skip
        at = 1e3 * result.here_s
        self.here.set_data([result.batch], [at])
        right = result.batch < 3
        self._here_words.set_horizontalalignment("left" if right else "right")
        place(
            self._here_words,
            result.batch * (1.1 if right else 0.9),
            at + (0.06 if right else 0.015) * top,
            f"measured {seconds(result.here_s)}",
        )
        place(self._caption, 0.0, 1.045, result.caption)
        self._show_bars(result, top)
        self.guess.show(guess, seconds(1e-3 * guess[1]) if guess else "", self._here_words)

    def _show_bars(self, result: PredictMeasure, top: float) -> None:
        bottom = 0.0
        for box, text, name, part_s in zip(
            self.boxes, self._part_words, PARTS, result.parts_s, strict=True
        ):
            height = 1e3 * part_s
            box.set_y(bottom)
            box.set_height(height)
            place(text, 0, bottom + height / 2, name if height > 0.075 * top else "")
            bottom += height
        self.measured.set_height(1e3 * result.here_s)
        place(self._totals[0], 0, bottom + 0.01 * top, seconds(result.predicted_s))
        place(self._totals[1], 1, 1e3 * result.here_s + 0.01 * top, seconds(result.here_s))
