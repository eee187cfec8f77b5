"""Measured products under the roof that was fitted to them; they are computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    Picture,
    Point,
    bars,
    place,
)
from course.figures.labels import GROUND, flop_words
from course.figures.marks import LogGuess
from course.words import rounded, seconds


@dataclass(frozen=True, eq=False)
class MeasuredRoofline:
    """One run's products as points, and the roof fitted to those with a batch.

    Arrays are (points,), intensities in operations a byte, speeds in operations/s; `curve_*` is the
    fitted curve of the chosen matrix, fixed part included. `here_*` is the chosen batch, its
    quartiles `here_band`; `first_s` the time of the smallest batch of the same matrix.
    """

    lead: str
    caption: str
    kind: str
    precision: str
    wanted_precision: str
    bandwidth_bytes_per_s: float
    peak_flop_per_s: float
    overhead_s: float
    copy_bytes_per_s: float
    undetermined: tuple[str, ...]
    square_flop_per_byte: np.ndarray
    square_flop_per_s: np.ndarray
    other_flop_per_byte: np.ndarray
    other_flop_per_s: np.ndarray
    chosen_flop_per_byte: np.ndarray
    chosen_flop_per_s: np.ndarray
    curve_flop_per_byte: np.ndarray
    curve_flop_per_s: np.ndarray
    matrix: tuple[int, int]
    first_batch: int
    first_s: float
    wanted_batch: int
    batch: int
    here_bytes: int
    here_flop: int
    here_s: float
    here_band_s: tuple[float, float]
    fitted_s: float
    far_points: int
    points: int

    @property
    def ridge_flop_per_byte(self) -> float:
        """Operations a byte at which the two fitted limits meet."""
        return self.peak_flop_per_s / self.bandwidth_bytes_per_s

    @property
    def here(self) -> Point:
        """Where the chosen batch lies in the picture."""
        return self.here_flop / self.here_bytes, self.here_flop / self.here_s

    @property
    def copied_s(self) -> float:
        """The product's bytes over the bandwidth of the best copy."""
        return self.here_bytes / self.copy_bytes_per_s

    @property
    def residual(self) -> float:
        """Measured over fitted time − 1, of the chosen batch."""
        return self.here_s / self.fitted_s - 1

    @property
    def times_first(self) -> float:
        """The chosen batch's time over that of the smallest batch."""
        return self.here_s / self.first_s


class MeasuredRooflinePicture(Picture):
    """Operations a second against operations a byte, both logarithmic."""

    size = (8.6, 5.2)

    def build(self, figure: Figure) -> None:
        """Make the axes, the legend and the empty artists."""
        box = (0.135, 0.15, 0.85, 0.665) if self.present else (0.1, 0.115, 0.885, 0.74)
        axes = self._axes = figure.add_axes(box)
        axes.set(xscale="log", yscale="log", xlim=(0.2, 3e3), ylim=(1e9, 1e12))
        axes.set_xlabel("operations for each byte moved (FLOP/byte)")
        axes.set_ylabel("operations/s")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: flop_words(y)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(10))
            axis.set_minor_formatter(NullFormatter())
        self.roof = self.line(axes, INK, zorder=3, label="fitted roof")
        self.curve = self.line(
            axes, BLUE, linestyle=(0, (5, 2)), zorder=4,
            label="fitted, with the fixed part" if self.present
            else "fitted curve of the chosen matrix, with its fixed part",
        )  # fmt: skip
        size = 9 if self.present else 6.5
        point = {"linestyle": "", "markersize": size}
        self.chosen = self.line(
            axes, BLUE, marker="o", zorder=6, markeredgecolor="white", label="batches, measured",
            **point,
        )  # fmt: skip
        self.other = self.line(
            axes, BLUE, marker="o", markerfacecolor="white", zorder=5, label="other matrix", **point
        )
        self.square = self.line(
            axes, GREEN, marker="s", zorder=5, markeredgecolor="white", label="square products",
            **point,
        )  # fmt: skip
        self.ridge = self.line(axes, MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=2)
        self._ridge_words = self.label(axes, MUTED, va="bottom", ha="left", zorder=5, bbox=GROUND)
        self.band = self.line(axes, ORANGE, linewidth=2.2, zorder=7)
        self.here = self.line(
            axes, ORANGE, marker="D", linestyle="", zorder=8, markeredgecolor="white",
            markersize=12 if self.present else 9,
        )  # fmt: skip
        self._here_words = self.label(axes, ORANGE, zorder=9, bbox=GROUND)
        self._caption = self.label(
            axes, MUTED, va="bottom", ha="left", zorder=9, transform=axes.transAxes
        )
        self.guess = LogGuess(self, axes)
        figure.legend(
            loc="upper center", ncols=3, bbox_to_anchor=(0.53, 1.01), labelspacing=0.25,
            columnspacing=0.9, borderaxespad=0.2, handlelength=1.6, handletextpad=0.5,
        )  # fmt: skip

    def update(self, result: MeasuredRoofline, guess: Point | None) -> None:
        """Move everything to `result`."""
        low, high = self._limits(result)
        x = np.geomspace(*self._axes.get_xlim(), 160)
        roof = np.minimum(result.peak_flop_per_s, result.bandwidth_bytes_per_s * x)
        self.roof.set_data(x, roof)
        self.curve.set_data(result.curve_flop_per_byte, result.curve_flop_per_s)
        self.chosen.set_data(result.chosen_flop_per_byte, result.chosen_flop_per_s)
        self.other.set_data(result.other_flop_per_byte, result.other_flop_per_s)
        self.square.set_data(result.square_flop_per_byte, result.square_flop_per_s)
        ridge = result.ridge_flop_per_byte
        self.ridge.set_data([ridge, ridge], [low, result.peak_flop_per_s])
        place(
            self._ridge_words, 1.1 * ridge, low * (high / low) ** 0.03,
            f"ridge: {rounded(ridge, 2)} FLOP/byte",
        )  # fmt: skip
        self._show_here(result)
        place(self._caption, 0.0, 1.012, result.caption)
        words = seconds(result.here_flop / guess[1]) if guess else ""
        self.guess.show(guess, words, self._here_words)

    def _limits(self, result: MeasuredRoofline) -> tuple[float, float]:
        """Whole decades around the points: they change with the run and not with the batch."""
        speeds = np.concatenate(
            [result.chosen_flop_per_s, result.other_flop_per_s, result.square_flop_per_s]
        )
        low = 10.0 ** np.floor(np.log10(0.7 * speeds.min()))
        high = 10.0 ** np.ceil(np.log10(1.3 * max(result.peak_flop_per_s, speeds.max())))
        before = self._axes.get_ylim()
        if (low, high) != before:
            self._axes.set_ylim(low, high)
        return float(low), float(high)

    def _show_here(self, result: MeasuredRoofline) -> None:
        x, y = result.here
        quartiles = (
            result.here_flop / result.here_band_s[1],
            result.here_flop / result.here_band_s[0],
        )
        self.band.set_data(*bars([(x, quartiles)]))
        self.here.set_data([x], [y])
        left, right = np.log10(self._axes.get_xlim())
        low, high = self._axes.get_ylim()
        # Above the roof, on the left, nothing else is; at the left edge there is room below it.
        above = (np.log10(x) - left) / (right - left) > (0.3 if self.present else 0.2)
        self._here_words.set_horizontalalignment("right" if above else "left")
        self._here_words.set_verticalalignment("bottom" if above else "top")
        roof = min(result.peak_flop_per_s, result.bandwidth_bytes_per_s * x)
        lift = (high / low) ** 0.022
        top = high / (high / low) ** (0.06 if self.present else 0.045)
        place(
            self._here_words, x / 1.1 if above else 1.18 * x,
            min(max(y, roof) * lift, top) if above else 0.82 * y,
            f"batch {result.batch}: {seconds(result.here_s)}",
        )  # fmt: skip
