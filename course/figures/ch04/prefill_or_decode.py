"""Three ways to place prefill, over the chunk size; every time in it is simulated elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
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
    place,
)
from course.figures.labels import GROUND, spread
from course.figures.marks import FloatArray, LogGuess
from course.words import seconds

CHUNKS: Final = (256, 512, 1024, 2048, 4096, 8192)
WAYS: Final = ("prefill first", "chunked", "separate pools")
_LOOKS: Final[tuple[tuple[str, Any, str], ...]] = (
    (ORANGE, (0, (6, 2)), "s"),
    (BLUE, "-", "o"),
    (GREEN, (0, (6, 1.5, 1, 1.5)), "D"),
)
_TTFT_S: Final = (8e-3, 100.0)
_GAP_S: Final = (5e-3, 2.0)


@dataclass(frozen=True, eq=False)
class Way:
    """One way's times in seconds over all requests; of a chunk size where there are chunks.

    `gap_p50_s`, `gap_p99_s`: between neighbouring tokens. `refused`: requests that never run.
    """

    ttft_p50_s: float
    ttft_p99_s: float
    gap_p50_s: float
    gap_p99_s: float
    refused: int


@dataclass(frozen=True, eq=False)
class PrefillOrDecode:
    """What the picture shows: three ways for the same requests on two cards.

    `chunked`: one entry a chunk size of `CHUNKS`; `chosen`: which of them; `asked`: which way the
    learner is asked about. `second_p99_s`: in the pools, the P99 time from the first token to the
    second, which spans the journey over the link. `travel_s`: the mean time of that journey.
    """

    first: Way
    chunked: tuple[Way, ...]
    pools: Way
    second_p99_s: float
    chosen: int
    asked: int
    rate_per_s: float
    mean_prompt_tokens: float
    mean_output_tokens: float
    link_bytes_per_s: float
    travel_s: float
    travel_bytes: float

    @property
    def here(self) -> tuple[Way, Way, Way]:
        """The three ways, chunks of the chosen size."""
        return self.first, self.chunked[self.chosen], self.pools


class PrefillOrDecodePicture(Picture):
    """Left: time to first token over the chunk size. Right: gaps between tokens."""

    size = (9.4, 4.7)

    def build(self, figure: Figure) -> None:
        """Make two panels, the legend and the empty artists."""
        low, high = (0.17, 0.79) if self.present else (0.13, 0.83)
        width = 0.238 if self.present else 0.295
        lefts = (0.1, 0.585) if self.present else (0.075, 0.575)
        self._ttft, self._gap = (figure.add_axes((x, low, width, high - low)) for x in lefts)
        titles = ("time to first token", "gap between tokens (ITL)")
        for axes, title, limits in zip(
            (self._ttft, self._gap), titles, (_TTFT_S, _GAP_S), strict=True
        ):
            axes.set(xscale="log", yscale="log", xlim=(215, 9800), ylim=limits)
            axes.set_title(title, loc="left", fontsize="medium")
            axes.xaxis.set_major_locator(FixedLocator(CHUNKS))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_minor_locator(NullLocator())
            axes.xaxis.set_major_formatter(FuncFormatter(_chunk))
            axes.yaxis.set_major_formatter(FuncFormatter(_time))
            axes.tick_params(axis="x", labelsize="small")
            axes.set_xlabel("chunk: max_num_batched_tokens")
        for axes, ticks in ((self._ttft, (0.01, 0.1, 1, 10, 100)), (self._gap, (0.01, 0.1, 1))):
            axes.yaxis.set_major_locator(FixedLocator(ticks))
        self.p99 = [self._lines(axes, 1.0) for axes in (self._ttft, self._gap)]
        self._p50 = [self._lines(axes, 0.45) for axes in (self._ttft, self._gap)]
        self._here = [
            self.line(axes, MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=2)
            for axes in (self._ttft, self._gap)
        ]
        self.points = [
            self.line(axes, INK, marker="o", linestyle="", zorder=6, markerfacecolor=BLUE)
            for axes in (self._ttft, self._gap)
        ]
        self._second = self.line(self._gap, PURPLE, linewidth=1.6, linestyle=(0, (1, 1.2)))
        small = 11.0 if self.present else 10.0
        self.words = [
            [
                self.label(
                    axes,
                    colour,
                    va="center",
                    ha="left",
                    zorder=8,
                    fontsize=small,
                    bbox=GROUND if colour == BLUE else None,
                )
                for colour in (ORANGE, BLUE, GREEN, PURPLE)
            ]
            for axes in (self._ttft, self._gap)
        ]
        self.guess = LogGuess(self, self._gap, turn_at=0.45)
        self._make_legend(figure)

    def _lines(self, axes: Axes, strength: float) -> list[Line2D]:
        width = 2.0 if strength == 1.0 else 1.1
        return [
            self.line(
                axes, colour, linestyle=dash, linewidth=width, alpha=strength, zorder=4,
                marker=marker if place_ == 1 else "", markersize=5 if strength == 1.0 else 3,
            )
            for place_, (colour, dash, marker) in enumerate(_LOOKS)
        ]  # fmt: skip

    def _make_legend(self, figure: Figure) -> None:
        handles = [
            Line2D([], [], color=colour, linestyle=dash, marker=marker if i == 1 else "", label=w)
            for i, ((colour, dash, marker), w) in enumerate(zip(_LOOKS, WAYS, strict=True))
        ]
        handles += [
            Line2D([], [], color=INK, linewidth=2.0, label="P99"),
            Line2D([], [], color=INK, linewidth=1.0, alpha=0.45, label="P50"),
            Line2D(
                [], [], color=PURPLE, linestyle=(0, (1, 1.2)), label="pools: first to second, P99"
            ),
        ]
        figure.legend(
            handles=handles, loc="upper center", bbox_to_anchor=(0.5, 1.0),
            ncols=3 if self.present else 6, columnspacing=1.2, handlelength=2.2,
            handletextpad=0.5, borderaxespad=0.2, labelspacing=0.2,
        )  # fmt: skip

    def update(self, result: PrefillOrDecode, guess: Point | None) -> None:
        """Move everything to `result`; a guess is a P99 gap at the chosen chunk size."""
        chunk = CHUNKS[result.chosen]
        panels = (
            (self._ttft, _TTFT_S, "ttft_p50_s", "ttft_p99_s"),
            (self._gap, _GAP_S, "gap_p50_s", "gap_p99_s"),
        )
        for number, (axes, limits, middle, tail) in enumerate(panels):
            for lines, name in ((self._p50, middle), (self.p99, tail)):
                for line, values in zip(lines[number], _curves(result, name), strict=True):
                    line.set_data(CHUNKS, np.clip(values, limits[0], 0.97 * limits[1]))
            for place_, line in enumerate(self.p99[number]):
                line.set_linewidth(3.2 if place_ == result.asked else 2.0)
            self._here[number].set_data([chunk, chunk], limits)
            here = min(getattr(result.chunked[result.chosen], tail), 0.97 * limits[1])
            self.points[number].set_data([chunk], [here])
            self._name(number, axes, result, tail)
        second = min(result.second_p99_s, 0.97 * _GAP_S[1])
        self._second.set_data(CHUNKS, [second] * len(CHUNKS))
        self.guess.show(guess, seconds(guess[1]) if guess else "")

    def _name(self, number: int, axes: Axes, result: PrefillOrDecode, tail: str) -> None:
        """Write each level way's P99 at its line's end, apart from one another, and the chunks'.

        The latter stands beside the dot.
        """
        first, chunks, pools = (getattr(way, tail) for way in result.here)
        heights, words = [first, pools], [f"first {seconds(first)}", f"pools {seconds(pools)}"]
        if number == 1:
            heights.append(result.second_p99_s)
            words.append(f"2nd {seconds(result.second_p99_s)}")
        low, high = np.log(axes.get_ylim())
        shares = [float(np.clip((np.log(h) - low) / (high - low), 0, 1)) for h in heights]
        at_first, beside, *others = self.words[number]
        for text, share, word in zip(
            [at_first, *others],
            spread(shares, 0.09 if self.present else 0.062, 0.02, 0.98),
            words,
            strict=False,
        ):
            place(text, 10_400, float(np.exp(low + share * (high - low))), word)
        on_left = result.chosen < len(CHUNKS) / 2
        beside.set_horizontalalignment("left" if on_left else "right")
        share = float(np.clip((np.log(chunks) - low) / (high - low), 0, 0.97))
        share += 0.06 if share < 0.9 else -0.06
        x = CHUNKS[result.chosen] * (1.1 if on_left else 0.91)
        place(beside, x, float(np.exp(low + share * (high - low))), seconds(chunks))


def _curves(result: PrefillOrDecode, name: str) -> list[FloatArray]:
    """One value a chunk size for each way; level for those that have no chunks."""
    level = np.ones(len(CHUNKS))
    return [
        level * getattr(result.first, name),
        np.array([getattr(way, name) for way in result.chunked]),
        level * getattr(result.pools, name),
    ]


def _chunk(tokens: float, _: int) -> str:
    return f"{tokens:.0f}" if tokens < 1000 else f"{tokens / 1024:.0f}k"


def _time(value: float, _: int) -> str:
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.0f} s"
