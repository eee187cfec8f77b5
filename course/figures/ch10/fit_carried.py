"""A served model's step and throughput on a measured machine and on a card; computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from course.figures.axes import BLUE, GREEN, MUTED, ORANGE, Picture, Point, place
from course.figures.labels import GROUND
from course.figures.marks import LogGuess
from course.words import rounded, seconds

READING_S = 0.050
"""A token every 50 ms reads fluently."""

MOST = 1024
"""The largest batch of the curves."""


@dataclass(frozen=True, eq=False)
class Served:
    """One machine's decode steps over `batch` (batches,): seconds, and what the reader chose.

    `room` sequences fit into its memory, `ridge_batch` is where arithmetic takes as long as the
    weights, `here_s` the step of the chosen batch, `weights_s` the part of it that reads weights,
    `flop_per_s` what its matrices reach where computing is all that counts, `fluent_batch` the
    largest that fits and keeps the reading time (0 for none).
    """

    name: str
    batch: np.ndarray
    step_s: np.ndarray
    room: int
    ridge_batch: float
    here_batch: int
    here_s: float
    weights_s: float
    weight_bytes_per_s: float
    flop_per_s: float
    fluent_batch: int

    @property
    def here_tokens_per_s(self) -> float:
        """Tokens a second of the chosen batch."""
        return self.here_batch / self.here_s


@dataclass(frozen=True, eq=False)
class FitCarried:
    """The same model served on the measured machine and on a card of the catalogue.

    `undetermined` names the constants that the measured points do not tell. `whole_over_parts` is
    the run's whole steps over the sums of their kernels, the median; None where it timed none.
    """

    lead: str
    caption: str
    model: str
    weight_bytes: int
    context_tokens: int
    ideal: bool
    undetermined: tuple[str, ...]
    whole_over_parts: float | None
    yours: Served
    card: Served

    @property
    def times(self) -> float:
        """The measured machine's step over the card's, at the chosen batch."""
        return self.yours.here_s / self.card.here_s


class FitCarriedPicture(Picture):
    """Left: seconds of a step over the batch. Right: tokens a second. All logarithmic."""

    size = (9.0, 4.8)

    def build(self, figure: Figure) -> None:
        """Make two axes, the legend and the empty artists."""
        low, top = (0.155, 0.79) if self.present else (0.12, 0.83)
        left, gap = (0.14, 0.16) if self.present else (0.1, 0.125)
        width = (0.975 - left - gap) / 2
        self._step = figure.add_axes((left, low, width, top - low))
        self._rate = figure.add_axes((left + width + gap, low, width, top - low))
        for axes, limits, words in (
            (self._step, (1e-3, 1e1), "step = time per token"),
            (self._rate, (1e-1, 1e5), "output tokens/s"),
        ):
            axes.set(xscale="log", yscale="log", xlim=(0.8, 1.2 * MOST), ylim=limits)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
            axes.set_xlabel("batch (sequences)")
            axes.set_ylabel(words)
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(LogLocator(10))
                axis.set_minor_formatter(NullFormatter())
        self._step.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _short_time(y)))
        self._rate.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,g}"))
        self.yours = self._machine(ORANGE, "o", (0, (5, 2)), "measured machine")
        self.card = self._machine(BLUE, "s", "-", "card")
        fluent = self._step.axhline(
            READING_S, color=GREEN, linewidth=1.4, linestyle=(0, (6, 1.5, 1, 1.5)),
            label="reads fluently: 50 ms",
        )  # fmt: skip
        self._caption = self.label(
            self._step, MUTED, va="bottom", ha="left", zorder=9, transform=self._step.transAxes
        )
        self.guess = LogGuess(self, self._step, turn_at=0.3 if self.present else 0.5)
        full = Line2D(
            [], [], color=MUTED, marker="|", markersize=14, markeredgewidth=2.2, linestyle="",
            label="memory full",
        )  # fmt: skip
        figure.legend(
            handles=[self.yours.curve, self.card.curve, full, fluent], loc="upper center",
            ncols=2 if self.present else 4, bbox_to_anchor=(0.53, 1.01), columnspacing=1.1,
            borderaxespad=0.2, labelspacing=0.25, handlelength=1.9,
        )  # fmt: skip

    def _machine(self, colour: str, marker: str, dash: object, label: str) -> _Lines:
        return _Lines(self, (self._step, self._rate), colour, marker, dash, label)

    def update(self, result: FitCarried, guess: Point | None) -> None:
        """Move everything to `result`."""
        both = (result.yours, result.card)
        steps = np.concatenate([served.step_s for served in both])
        rates = np.concatenate([served.batch / served.step_s for served in both])
        _decades(self._step, min(steps.min(), READING_S), max(steps.max(), READING_S))
        _decades(self._rate, rates.min(), rates.max())
        slower = result.yours.here_s > result.card.here_s
        self.yours.show(result.yours, above=slower)
        self.card.show(result.card, above=not slower)
        place(self._caption, 0.0, 1.05, result.caption)
        self.guess.show(guess, seconds(guess[1]) if guess else "", self.yours.words[0])


class _Lines:
    """One machine's curves in both panels; faint where its memory is full."""

    def __init__(
        self, picture: Picture, panels: tuple[Axes, Axes], colour: str, marker: str, dash: object,
        label: str,
    ) -> None:  # fmt: skip
        self.curves = [
            picture.line(axes, colour, linestyle=dash, zorder=4, label=name)
            for axes, name in zip(panels, (label, None), strict=True)
        ]
        self.beyond = [
            picture.line(axes, colour, linestyle=dash, alpha=0.3, linewidth=1.4, zorder=3)
            for axes in panels
        ]
        self._ends = [
            picture.line(
                axes, colour, marker="|", markersize=14, markeredgewidth=2.2, linestyle="",
                zorder=5,
            )
            for axes in panels
        ]  # fmt: skip
        self.here = [
            picture.line(
                axes, colour, marker=marker, linestyle="", zorder=7, markeredgecolor="white",
                markersize=11 if picture.present else 8,
            )
            for axes in panels
        ]  # fmt: skip
        self.words = [picture.label(axes, colour, zorder=9, bbox=GROUND) for axes in panels]
        self._present = picture.present

    @property
    def curve(self) -> Line2D:
        """The left panel's curve, for the legend."""
        return self.curves[0]

    def show(self, served: Served, above: bool) -> None:
        """Move the curves to `served`; words stand `above` its curve in the left panel."""
        inside = served.batch <= max(served.room, 1)
        ends = int(inside.sum())
        told = (seconds(served.here_s), f"{rounded(served.here_tokens_per_s)}/s")
        heights = (served.here_s, served.here_tokens_per_s)
        for i, y in enumerate((served.step_s, served.batch / served.step_s)):
            self.curves[i].set_data(served.batch[:ends], y[:ends])
            self.beyond[i].set_data(served.batch[max(ends - 1, 0) :], y[max(ends - 1, 0) :])
            full = 0 < ends < served.batch.size
            self._ends[i].set_data(
                [served.batch[ends - 1]] if full else [], [y[ends - 1]] if full else []
            )
            self.here[i].set_data([served.here_batch], [heights[i]])
            over = above if i == 0 else not above
            left, right = self._span(served.here_batch, over, told[i])
            self.words[i].set(
                va="bottom" if over else "top", ha="left" if left == served.here_batch else "right"
            )
            # The curves only rise: over the words' right end, or under their left one, is free.
            edge = np.interp(right if over else left, served.batch, y)
            place(self.words[i], served.here_batch, edge * (1.45 if over else 1 / 1.55), told[i])

    def _span(self, batch: int, over: bool, words: str) -> tuple[float, float]:
        """From where to where `words` at a batch reach: away from the curve if there is room."""
        wide = 10 ** ((0.13 if self._present else 0.085) * len(words))
        to_left = batch > 0.9 * wide if over else batch * wide > 1.2 * MOST
        return (batch / wide, batch) if to_left else (batch, batch * wide)


def _decades(axes: Axes, low: float, high: float) -> None:
    """Set whole decades with room for words; they change with the machines, not with the batch."""
    limits = (
        10.0 ** np.floor(np.log10(low / 1.6)), 10.0 ** np.ceil(np.log10(1.6 * high))
    )  # fmt: skip
    if axes.get_ylim() != limits:
        axes.set_ylim(*limits)


def _short_time(value_s: float) -> str:
    """Return a decade of seconds as an axis has it.

    >>> [_short_time(v) for v in (0.001, 0.1, 1.0, 10.0)]
    ['1 ms', '100 ms', '1 s', '10 s']
    """
    return f"{value_s:g} s" if value_s >= 0.999 else f"{1e3 * value_s:g} ms"
