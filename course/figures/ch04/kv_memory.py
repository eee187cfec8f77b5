"""A card's memory in parts, and what a full KV cache does under load; computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    YELLOW,
    Picture,
    Point,
    held_limit,
    place,
)
from course.figures.labels import GROUND
from course.figures.marks import FloatArray, LogGuess, boxes
from course.words import percent, rounded, seconds

FRACTIONS: Final = (0.795, 0.955)
LOADS: Final = (0.45, 1.35)

# Part of the memory, colour, hatch.
_PARTS: Final = (
    ("weights", BLUE, "//"),
    ("reserve for a step", YELLOW, "xx"),
    ("KV cache", GREEN, ""),
    ("left to others", "#d0d0d0", ""),
)


@dataclass(frozen=True, eq=False)
class Loads:
    """A server over offered loads; arrays of shape (loads,).

    `load`: share of the rate at which the sequences in flight fill the memory on average.
    `preemptions`: a request; `recomputed`: share of all computed tokens; `tpot_p99_s`; and the
    longest gap between two tokens, `longest_gap_s`.
    """

    load: FloatArray
    preemptions: FloatArray
    recomputed: FloatArray
    tpot_p99_s: FloatArray
    ttft_p99_s: FloatArray
    e2e_p99_s: FloatArray
    longest_gap_s: FloatArray

    @classmethod
    def none(cls) -> Loads:
        """Return loads of a server that does not exist."""
        return cls(*[np.empty(0)] * 7)


@dataclass(frozen=True, eq=False)
class KvMemory:
    """What the picture shows: parts of the memory in bytes, what fits, and the load.

    `fit`: whole sequences of prompt + answer that fit at once; `mean_fit`: as many of them as fill
    the memory when each is caught half-way through its answer. `fractions`, `fits` (fractions,):
    how many fit at other memory fractions. `swept`: the server with its seats over loads; `safe`:
    with as many seats as sequences fit; `here`: the reader's load, `here_safe` likewise,
    `here_cold` without prefix hits; empty where nothing fits, and `short_bytes` then says what is
    missing.
    """

    title: str
    parts_bytes: tuple[float, float, float, float]
    kv_bytes_per_token: int
    blocks: int
    prompt_tokens: int
    output_tokens: int
    fit: int
    mean_fit: float
    fraction: float
    fractions: FloatArray
    fits: FloatArray
    load: float
    rate_per_s: float
    seats: int
    hit_share: float
    swept: Loads
    safe: Loads
    here: Loads
    here_safe: Loads
    here_cold: Loads
    short_bytes: float
    asks_for_share: bool

    @property
    def tokens(self) -> int:
        """Of a whole sequence."""
        return self.prompt_tokens + self.output_tokens


class KvMemoryPicture(Picture):
    """Left: the memory, and how many fit. Right: three strips over the offered load."""

    size = (9.4, 5.4)

    def build(self, figure: Figure) -> None:
        """Make five panels, the legends and the empty artists."""
        left, width = (0.09, 0.36) if self.present else (0.075, 0.375)
        low, high, gap = (0.13, 0.82, 0.085) if self.present else (0.105, 0.865, 0.075)
        self._bar = figure.add_axes((left, high - 0.13, width, 0.1))
        self._bar.set(xlim=(0, 26), ylim=(0, 1), yticks=[])
        self._bar.grid(visible=False)
        self._bar.set_title("memory of the card (GB)", loc="left", fontsize="medium")
        room = 0.385 if self.present else 0.33
        self._fits = figure.add_axes((left, low, width, high - low - room))
        self._fits.set(xlim=FRACTIONS, ylim=(0, 100))
        self._fits.set_title("sequences that fit at once", loc="left", fontsize="medium")
        self._fits.set_xlabel("gpu_memory_utilization")
        tall = (high - low - 2 * gap) / 3
        right = 0.585 if self.present else 0.565
        self._strips = [
            figure.add_axes((right, low + row * (tall + gap), 0.985 - right, tall))
            for row in (2, 1, 0)
        ]
        titles = (
            "preemptions a request", "share of tokens computed again", "P99 TPOT (ms)",
        )  # fmt: skip
        for axes, title, top in zip(self._strips, titles, (1, 0.5, 100), strict=True):
            axes.set(xlim=LOADS, ylim=(0, top))
            axes.set_title(title, loc="left", fontsize="medium")
            axes.xaxis.set_major_formatter(FuncFormatter(_share))
            axes.tick_params(labelbottom=axes is self._strips[2])
        self._strips[1].yaxis.set_major_formatter(FuncFormatter(_share))
        self._strips[2].set_xlabel(
            "load (100 %: memory full on average)"
            if not self.present
            else "load (100 %: memory full)"
        )
        self._make_artists()
        self._make_legends(figure, left, right)

    def _make_artists(self) -> None:
        edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.4, "zorder": 3}
        self._parts = [
            self.area(self._bar, colour, hatch=hatch, **edge) for _, colour, hatch in _PARTS
        ]
        self._summary = self.label(
            self._bar, va="top", ha="left", linespacing=1.3, fontsize="small"
        )
        self.curve = self.line(self._fits, GREEN, zorder=3)
        self.point = self.line(self._fits, INK, marker="D", linestyle="", zorder=6, clip_on=False)
        self._fit_words = self.label(self._fits, va="bottom", zorder=7)
        self._swept = [
            self.line(axes, ORANGE, marker="s", markersize=4, zorder=4, clip_on=False)
            for axes in self._strips
        ]
        self._safe = [
            self.line(axes, BLUE, linestyle=(0, (6, 2)), zorder=3) for axes in self._strips
        ]
        self.at = [
            self.line(axes, MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=2)
            for axes in self._strips
        ]
        self._dots = [
            self.line(axes, INK, marker="D", linestyle="", zorder=6, clip_on=False)
            for axes in self._strips
        ]
        self.words = [
            self.label(axes, ORANGE, va="bottom", zorder=7, bbox=GROUND) for axes in self._strips
        ]
        self._fit_guess = LogGuess(self, self._fits, gap=0.1)
        self._share_guess = LogGuess(self, self._strips[1], gap=0.16, turn_at=0.4)

    def _make_legends(self, figure: Figure, left: float, right: float) -> None:
        common: dict[str, Any] = {
            "handlelength": 1.8, "handletextpad": 0.5, "columnspacing": 1.0,
            "borderaxespad": 0.2, "labelspacing": 0.2,
        }  # fmt: skip
        figure.legend(
            handles=[
                Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=words)
                for words, colour, hatch in _PARTS
            ],
            loc="upper left", bbox_to_anchor=(left - 0.01, 1.0), ncols=2, **common,
        )  # fmt: skip
        figure.legend(
            handles=[
                Line2D([], [], color=ORANGE, marker="s", markersize=4, label="seats as set"),
                Line2D(
                    [], [], color=BLUE, linestyle=(0, (6, 2)),
                    label="seats: as many as fit",
                ),
            ],
            loc="upper left", bbox_to_anchor=(right - 0.01, 1.0), ncols=1, **common,
        )  # fmt: skip

    def update(self, result: KvMemory, guess: Point | None) -> None:
        """Move everything to `result`; a guess is (fraction, sequences) or (load, share)."""
        self._show_memory(result)
        self._show_fit(result)
        self._show_loads(result)
        number = f"{guess[1]:,.0f}" if guess else ""
        share = percent(round(guess[1], 3)) if guess else ""
        asked = result.asks_for_share
        self._fit_guess.show(None if asked else guess, number, self._fit_words)
        self._share_guess.show(guess if asked else None, share, self.words[1])

    def _show_memory(self, result: KvMemory) -> None:
        ends = np.cumsum([1e-9 * part for part in result.parts_bytes])
        right = max(float(ends[-1]), 1e-9 * result.parts_bytes[0])
        self._bar.set_xlim(0, 1.002 * right)
        start = 0.0
        for patch, end in zip(self._parts, ends, strict=True):
            left, until, low, high = (np.array([v]) for v in (start, float(end), 0.0, 1.0))
            patch.set_path(boxes(left, until, low, high))
            start = float(end)
        lines = [
            f"{result.kv_bytes_per_token / 1024:g} KiB of KV a token",
            f"{result.blocks:,} blocks of 16 tokens, {result.seats} seats",
        ]
        if result.short_bytes > 0:
            lines[1] = f"does not fit: {rounded(1e-9 * result.short_bytes)} GB are missing"
        place(self._summary, 0.0, -0.7 if self.present else -0.62, "\n".join(lines))

    def _show_fit(self, result: KvMemory) -> None:
        axes = self._fits
        top = held_limit(axes.get_ylim()[1], 1.15 * float(result.fits.max(initial=1.0)))
        axes.set_ylim(0, top)
        self.curve.set_data(result.fractions, result.fits)
        self.point.set_data([result.fraction], [result.fit])
        right = result.fraction < 0.875
        self._fit_words.set_horizontalalignment("left" if right else "right")
        shift = 0.004 if right else -0.004
        # Left of a rising curve is room above the point, right of it below.
        self._fit_words.set_verticalalignment("top" if right else "bottom")
        at = result.fit + (-0.03 if right else 0.02) * top
        words = f"{result.fit:,} of {result.tokens:,} tokens"
        place(self._fit_words, result.fraction + shift, max(at, 0.11 * top), words)

    def _show_loads(self, result: KvMemory) -> None:
        names = ("preemptions", "recomputed", "tpot_p99_s")
        scales = (1.0, 1.0, 1e3)
        words = (
            lambda v: rounded(v, 2) if v else "0", lambda v: percent(round(v, 3)),
            lambda v: seconds(v / 1e3),
        )  # fmt: skip
        for number, axes in enumerate(self._strips):
            name, scale = names[number], scales[number]
            swept, safe, here = (
                scale * getattr(loads, name) for loads in (result.swept, result.safe, result.here)
            )
            highest = max(float(values.max(initial=0.0)) for values in (swept, safe, here))
            least = (0.2, 0.1, 20.0)[number]
            top = held_limit(axes.get_ylim()[1], max(1.15 * highest, least))
            axes.set_ylim(0, top)
            self._swept[number].set_data(result.swept.load, swept)
            self._safe[number].set_data(result.safe.load, safe)
            self.at[number].set_data([result.load, result.load], [0, top])
            if not here.size:
                self._dots[number].set_data([], [])
                place(self.words[number], 0, 0, "")
                continue
            value = float(here[0])
            self._dots[number].set_data([result.load], [value])
            left = result.load > 0.6
            self.words[number].set_horizontalalignment("right" if left else "left")
            shift = -0.02 if left else 0.02
            at = min(value + 0.07 * top, 0.82 * top)
            place(self.words[number], result.load + shift, at, words[number](value))


def _share(value: float, _: int) -> str:
    return percent(round(value, 3))
