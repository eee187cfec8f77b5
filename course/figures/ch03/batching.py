"""A step's seconds in layers and what they buy, over the batch; the seconds come from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    Picture,
    Point,
    held_top,
    place,
)
from course.figures.labels import GROUND
from course.figures.marks import LogGuess, between
from course.words import rounded, seconds

BATCHES: Final = (0.85, 1200)

# Layers from below: field of `Curves`, colour, hatch, words.
_LAYERS: Final = (
    ("overhead_s", MUTED, "--", "overhead"),
    ("weights_s", BLUE, "//", "reading the weights"),
    ("corner_s", ORANGE, "", "what computing adds"),
    ("kv_s", GREEN, "\\\\", "reading the KV cache"),
    ("all_reduce_s", PURPLE, "xx", "all-reduce"),
)


@dataclass(frozen=True, eq=False)
class Curves:
    """A decode step over the batch, arrays of shape (batches,), in seconds.

    The five layers add up to the step: `corner_s` is what the arithmetic adds to reading the
    weights, √(weights² + compute²) − weights; `compute_s` is the arithmetic alone. `tpot_s` is the
    mean time a token when the batch is kept full, the neighbours' prompts included.
    """

    batch: np.ndarray
    overhead_s: np.ndarray
    weights_s: np.ndarray
    corner_s: np.ndarray
    kv_s: np.ndarray
    all_reduce_s: np.ndarray
    compute_s: np.ndarray
    tpot_s: np.ndarray

    @property
    def step_s(self) -> np.ndarray:
        """The whole decode step."""
        parts = (self.overhead_s, self.weights_s, self.corner_s, self.kv_s, self.all_reduce_s)
        return np.asarray(np.sum(parts, axis=0))


@dataclass(frozen=True, eq=False)
class Measured:
    """Measured loads: users at once, seconds a token, and output tokens/s of all.

    `is_step` where `token_s` is the median gap, which is a step without prompts; otherwise it is a
    mean, with the neighbours' prompts in it.
    """

    users: np.ndarray
    token_s: np.ndarray
    tokens_per_s: np.ndarray
    is_step: bool

    @property
    def there(self) -> bool:
        """Whether anything was measured."""
        return bool(self.users.size)


@dataclass(frozen=True, eq=False)
class Batching:
    """What the batching picture shows: curves up to a full memory, and the reader's batch.

    `batch` is what was asked for, `seated` what memory holds of it (`room` in all).
    """

    title: str
    prompt_tokens: int
    output_tokens: int
    curves: Curves
    here: Curves
    alone: Curves
    measured: Measured
    batch: int
    room: int
    ridge_batch: float

    @property
    def seated(self) -> int:
        """How many of the batch run at once."""
        return min(self.batch, self.room)

    @property
    def step_s(self) -> float:
        """The decode step of the reader's batch."""
        return float(self.here.step_s[0])

    @property
    def tokens_per_s(self) -> float:
        """Output tokens/s of all, the neighbours' prompts paid for."""
        return self.seated / float(self.here.tpot_s[0])


class BatchingPicture(Picture):
    """Left: the step in layers. Right: tokens/s of all above, of one below."""

    size = (9.2, 5.0)

    def build(self, figure: Figure) -> None:
        """Make three axes over one batch, the legend and the empty artists."""
        low, high, gap = (0.155, 0.76, 0.07) if self.present else (0.115, 0.865, 0.055)
        left, middle = (0.105, 0.47) if self.present else (0.08, 0.5)
        half = (high - low - gap) / 2
        column = (0.57, 0.97) if self.present else (0.565, 0.985)
        self._step: Axes = figure.add_axes((left, low, middle - left, high - low))
        width = column[1] - column[0]
        self.all: Axes = figure.add_axes((column[0], low + half + gap, width, half))
        self._one: Axes = figure.add_axes((column[0], low, width, half))
        for axes in (self._step, self.all, self._one):
            axes.set(xscale="log", xlim=BATCHES)
            axes.xaxis.set_major_locator(FixedLocator([1, 4, 16, 64, 256, 1024]))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
        self.all.tick_params(labelbottom=False)
        self._step.set_xlabel("batch (sequences)")
        self._one.set_xlabel("batch (sequences)")
        self._step.set_ylabel("one decode step (ms)")
        # Inside the panels, in the corner that their curves leave free.
        for axes, words, y, va in (
            (self.all, "tokens/s of all", 0.97, "top"),
            (self._one, "tokens/s of one", 0.03, "bottom"),
        ):
            axes.text(0.03, y, words, transform=axes.transAxes, va=va, zorder=9, bbox=GROUND)
        self._build_step(self._step)
        self._build_speeds()
        figure.legend(
            loc="upper center", ncols=3 if self.present else 4, bbox_to_anchor=(0.53, 1.01),
            columnspacing=1.2, labelspacing=0.25, handlelength=1.8, borderaxespad=0.2,
        )  # fmt: skip

    def _build_step(self, axes: Axes) -> None:
        self.layers = []
        for _, colour, hatch, words in _LAYERS:
            box: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4, "zorder": 3}
            self.layers.append(self.area(axes, colour, hatch=hatch, label=words, **box))
        self._compute = self.line(
            axes, INK, linewidth=1.6, linestyle=(0, (4, 1.5)), zorder=5, label="computing alone"
        )
        self.measured_step = self._dots(axes, "measured")
        self._full = [self._span(a) for a in (self._step, self.all, self._one)]
        self._full_words = self.label(
            axes, MUTED, rotation=90, va="bottom", ha="left", zorder=9, bbox=GROUND
        )
        self._here = [
            self.line(a, INK, linewidth=1.2, linestyle=(0, (2, 2)), zorder=6)
            for a in (self._step, self.all, self._one)
        ]
        self.here_step = self.line(axes, INK, marker="o", linestyle="", zorder=7)
        self.step_words = self.label(axes, INK, va="bottom", zorder=9, bbox=GROUND)
        self.guess = LogGuess(self, axes, lead="guess", turn_at=0.42)

    def _build_speeds(self) -> None:
        # Speeds that prompts slow down are what a server delivers; those without show the price.
        self._decode_only = [
            self.line(axes, MUTED, linewidth=1.4, linestyle=(0, (1, 1.2)), zorder=3, label=words)
            for axes, words in ((self.all, "without prompts"), (self._one, None))
        ]
        self._all_line = self.line(self.all, BLUE, zorder=4)
        self._one_line = self.line(self._one, ORANGE, linestyle=(0, (5, 2)), zorder=4)
        self.measured_all = self._dots(self.all)
        self._measured_one = self._dots(self._one)
        self.points = [
            self.line(axes, colour, marker=marker, linestyle="", zorder=7)
            for axes, colour, marker in ((self.all, BLUE, "o"), (self._one, ORANGE, "s"))
        ]
        self.words = [
            self.label(axes, colour, zorder=9, bbox=GROUND)
            for axes, colour in ((self.all, BLUE), (self._one, ORANGE))
        ]

    def _dots(self, axes: Axes, label: str | None = None) -> Any:
        return self.line(
            axes, INK, marker="o", linestyle="", markerfacecolor="white", zorder=6, label=label,
            markersize=7 if self.present else 5,
        )  # fmt: skip

    def _span(self, axes: Axes) -> Any:
        span = axes.axvspan(
            *BATCHES, facecolor="#f2f2f2", edgecolor="#bdbdbd", hatch="//", linewidth=0, zorder=1
        )
        return self.keep(span)

    def update(self, result: Batching, guess: Point | None) -> None:
        """Move everything to `result`; a guess is a step's seconds."""
        self._show_step(result, guess)
        self._show_speeds(result)
        curves_end = 1024
        for span, line, axes in zip(
            self._full, self._here, (self._step, self.all, self._one), strict=True
        ):
            span.set_x(result.room)
            span.set_width(max(BATCHES[1] - result.room, 0))
            span.set_visible(result.room < curves_end)
            line.set_data([result.seated] * 2, [0, axes.get_ylim()[1]])
        full = f"memory is full at {result.room:,}" if result.room < 0.8 * curves_end else ""
        # At the foot: measured dots of loads beyond the seats lie near the top.
        place(self._full_words, 1.08 * result.room, 0.03 * self._step.get_ylim()[1], full)

    def _show_step(self, result: Batching, guess: Point | None) -> None:
        axes, curves, measured = self._step, result.curves, result.measured
        dots = (measured.users <= result.room) & measured.is_step
        highest = max(curves.step_s.max(), measured.token_s[dots].max(initial=0.0))
        top = held_top(axes.get_ylim()[1], 1.06e3 * float(highest))
        axes.set_ylim(0, top)
        floor = np.zeros_like(curves.batch, dtype=float)
        for patch, (name, *_) in zip(self.layers, _LAYERS, strict=True):
            ceiling = floor + 1e3 * getattr(curves, name)
            patch.set_path(between(curves.batch, floor, ceiling))
            floor = ceiling
        self._compute.set_data(curves.batch, 1e3 * curves.compute_s)
        pure = measured.users if measured.is_step else measured.users[:0]
        self.measured_step.set_data(pure, 1e3 * measured.token_s[: pure.size])
        step_ms = 1e3 * result.step_s
        self.here_step.set_data([result.seated], [step_ms])
        right = result.seated < 12
        self.step_words.set_horizontalalignment("left" if right else "right")
        place(
            self.step_words, result.seated * (1.12 if right else 0.88), step_ms + 0.025 * top,
            f"{seconds(result.step_s)}{_of_how_many(result)}",
        )  # fmt: skip
        words = seconds(guess[1]) if guess else ""
        self.guess.show(guess and (guess[0], 1e3 * guess[1]), words, self.step_words)

    def _show_speeds(self, result: Batching) -> None:
        curves, measured = result.curves, result.measured
        all_per_s, one_per_s = curves.batch / curves.tpot_s, 1 / curves.tpot_s
        shown = measured.users <= max(result.room, 1)
        highest = max(all_per_s.max(), measured.tokens_per_s[shown].max(initial=0.0))
        top = held_top(self.all.get_ylim()[1], 1.12 * float(highest))
        self.all.set_ylim(0, top)
        fastest = max((1 / curves.step_s).max(), (1 / measured.token_s).max(initial=0.0))
        one_top = held_top(self._one.get_ylim()[1], 1.12 * float(fastest))
        self._one.set_ylim(0, one_top)
        self._decode_only[0].set_data(curves.batch, curves.batch / curves.step_s)
        self._decode_only[1].set_data(curves.batch, 1 / curves.step_s)
        self._all_line.set_data(curves.batch, all_per_s)
        self._one_line.set_data(curves.batch, one_per_s)
        self.measured_all.set_data(measured.users, measured.tokens_per_s)
        self._measured_one.set_data(measured.users, 1 / measured.token_s)
        values = (result.tokens_per_s, result.tokens_per_s / result.seated)
        tops = (top, one_top)
        for point, text, value, high in zip(self.points, self.words, values, tops, strict=True):
            point.set_data([result.seated], [value])
            right = result.seated < 12
            text.set_horizontalalignment("left" if right else "right")
            # Below the point where the panel ends above it.
            below = value > 0.8 * high
            text.set_verticalalignment("top" if below else "bottom")
            at = result.seated * (1.12 if right else 0.88)
            place(text, at, value + (-0.04 if below else 0.05) * high, rounded(value))


def _of_how_many(result: Batching) -> str:
    """Say how many of the batch run at once where memory does not hold all."""
    if result.seated == result.batch:
        return ""
    return f" ({result.seated:,} of {result.batch:,})"
