"""What tokens and good answers cost, over batch and load; the numbers come from elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from course.figures.axes import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, SKY, Picture, Point, place
from course.figures.labels import GROUND
from course.figures.marks import LogGuess
from course.words import percent, rounded, seconds

_FEWEST: Final = 0.8
_MOST: Final = (300.0, 2000.0, 12_000.0, 80_000.0)
_TPOT_S: Final = (2e-3, 0.5)
_LOADS: Final = (0.0, 1.25)

# Looks of the layouts that are not the chosen one, in their order.
_OTHERS: Final = (
    (SKY, (0, (5, 1.5))), (PURPLE, (0, (2, 1.2))),
    (MUTED, (0, (6, 1.5, 1, 1.5))), (MUTED, (0, (1, 1.2))),
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class LayoutCost:
    """One way to arrange the cards: what its tokens cost as its batch grows.

    Arrays of shape (batches,) over `sequences` in flight on all replicas together. `inside` is the
    most sequences that keep the promise (0: none do), `inside_usd` their USD a million output
    tokens (NaN then); `most` what memory holds, `cheapest_usd` the price there.
    """

    name: str
    replicas: int
    gpus_each: int
    sequences: np.ndarray
    usd: np.ndarray
    tpot_s: np.ndarray
    inside: int
    inside_usd: float
    most: int
    cheapest_usd: float

    @property
    def keeps_promise(self) -> bool:
        """Whether any batch keeps it."""
        return self.inside > 0


@dataclass(frozen=True, eq=False)
class LoadCost:
    """What an answer costs as more are asked for; arrays (loads,) over the share of capacity.

    Each load is simulated on one replica until `requests` answers are complete: beyond the capacity
    the queue, and with it the price of a good answer, grows with their number.
    `usd_all` and `usd_good` are USD for a thousand answers, all of them or those that keep the
    promises (NaN where none does); `good_share` is the attainment, `offered_per_s` the requests/s.
    """

    load: np.ndarray
    offered_per_s: np.ndarray
    usd_all: np.ndarray
    usd_good: np.ndarray
    good_share: np.ndarray
    requests: int


@dataclass(frozen=True, eq=False)
class TokenCost:
    """What the picture of costs shows.

    `layouts` begins with the chosen one, none where it does not fit (`shortfall` says by how much).
    `here_*` are what fits of the reader's `wanted_sequences` on the chosen layout; `curve` and
    `here` the loads simulated with as many seats. Promises of 0 are none.
    """

    server: str
    price_words: str
    usd_per_gpu_hour: float
    n_gpus: int
    prompt_tokens: int
    output_tokens: int
    tpot_promise_s: float
    ttft_promise_s: float
    layouts: tuple[LayoutCost, ...]
    shortfall: str
    wanted_sequences: int
    here_sequences: int
    here_usd: float
    here_tpot_s: float
    curve: LoadCost | None
    here: LoadCost | None

    @property
    def chosen(self) -> LayoutCost | None:
        """The chosen layout, if it fits."""
        return None if self.shortfall else self.layouts[0]


class TokenCostPicture(Picture):
    """Left: dollars and TPOT over the batch. Right: dollars of a good answer over the load."""

    size = (9.2, 5.4)

    def build(self, figure: Figure) -> None:
        """Make three axes, the legend and the empty artists."""
        low, high, gap = (0.15, 0.8, 0.05) if self.present else (0.105, 0.86, 0.04)
        left, middle = (0.11, 0.545) if self.present else (0.085, 0.555)
        upper = 0.58 * (high - low - gap)
        self._usd: Axes = figure.add_axes((left, high - upper, middle - left, upper))
        self._tpot: Axes = figure.add_axes((left, low, middle - left, high - low - gap - upper))
        start = 0.655 if self.present else 0.64
        self.good: Axes = figure.add_axes((start, low, 0.985 - start, high - low))
        for axes, limits, words in (
            (
                self._usd,
                (0.1, 10.0),
                "USD per M tokens" if self.present else "USD per million tokens",
            ),
            (self._tpot, _TPOT_S, "TPOT (ms)"),
        ):
            axes.set(xscale="log", yscale="log", xlim=(_FEWEST, _MOST[0]), ylim=limits)
            axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,g}"))
            axes.yaxis.set_major_locator(LogLocator(10))
            axes.set_ylabel(words)
        for axis in (self._usd.xaxis, self._usd.yaxis, self._tpot.xaxis, self._tpot.yaxis):
            # These limits move; minor ticks would be most of the time that a new frame takes.
            axis.set_minor_locator(NullLocator())
        self._usd.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        self._tpot.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{1e3 * y:g}"))
        self._usd.tick_params(labelbottom=False)
        self._tpot.set_xlabel("sequences in flight")
        self.good.set(xlim=_LOADS, yscale="log", ylim=(1e-3, 10))
        self.good.set_xticks([0, 0.4, 0.8, 1.2])
        self.good.set_xlabel("load (share of capacity)")
        self.good.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        self.good.yaxis.set_minor_locator(NullLocator())
        self.good.set_ylabel("USD per 1,000 answers", labelpad=1)
        self._build_batch()
        self._build_load()
        figure.legend(
            loc="upper center", ncols=2, bbox_to_anchor=(0.5, 1.01), columnspacing=1.2,
            labelspacing=0.25, handlelength=2.0, borderaxespad=0.2,
        )  # fmt: skip

    def _build_batch(self) -> None:
        panels = (self._usd, self._tpot)
        self.chosen = [
            self.line(axes, BLUE, zorder=5, label=label)
            for axes, label in zip(panels, ("chosen layout", None), strict=True)
        ]
        self._others = [
            [self.line(axes, colour, linewidth=1.4, linestyle=dash, zorder=4) for axes in panels]
            for colour, dash in _OTHERS
        ]
        self._other_words = [
            self.label(self._usd, colour, va="center", ha="left", zorder=6,
                       transform=self._usd.transAxes)
            for colour, _ in _OTHERS
        ]  # fmt: skip
        self._promise = self.line(
            self._tpot, GREEN, linewidth=1.5, linestyle=(0, (6, 2)), zorder=6, label="promise"
        )
        self._edge = [
            self.line(axes, GREEN, linewidth=1.2, linestyle=(0, (2, 2)), zorder=3)
            for axes in panels
        ]
        marks = ((GREEN, "D"), (ORANGE, "s"), (INK, "o"))
        self.marks = [
            self.line(self._usd, colour, marker=m, linestyle="", zorder=8, markeredgecolor="white")
            for colour, m in marks
        ]
        # Their words are a small table in the corner that no curve reaches.
        axes, row = self._usd, 0.135 if self.present else 0.095
        self._signs = [
            self.line(axes, colour, marker=m, linestyle="", markeredgecolor="white",
                      transform=axes.transAxes)
            for colour, m in marks
        ]  # fmt: skip
        self.mark_words = [
            self.label(axes, colour, va="center", ha="right", zorder=9, transform=axes.transAxes)
            for colour, _ in marks
        ]
        self._mark_heights = [0.94 - row * place_ for place_ in range(len(marks))]
        self._here_tpot = self.line(
            self._tpot, INK, marker="o", linestyle="", zorder=8, markeredgecolor="white"
        )
        self._tpot_words = self.label(
            self._tpot, INK, va="bottom", ha="right", zorder=9, transform=self._tpot.transAxes
        )
        self._promise_words = self.label(
            self._tpot, GREEN, va="bottom", ha="left", zorder=9, bbox=GROUND
        )
        self.guess = LogGuess(self, self._usd, lead="guess")

    def _build_load(self) -> None:
        axes = self.good
        self._all_line = self.line(
            axes, MUTED, linestyle=(0, (1, 1.2)), zorder=3, label="every answer"
        )
        self._good_line = self.line(
            axes, PURPLE, marker=".", zorder=4, linestyle=(0, (8, 1)),
            label="answers that keep the promises",
        )  # fmt: skip
        self._here_good = self.line(axes, INK, marker="o", linestyle="", zorder=7)
        self._good_words = self.label(
            axes, INK, va="top", ha="left", zorder=9, bbox=GROUND, transform=axes.transAxes
        )

    def update(self, result: TokenCost, guess: Point | None) -> None:
        """Move everything to `result`; a guess is a price at a number of sequences."""
        self._hold_limits(result)
        self._show_layouts(result)
        self._show_marks(result)
        self._show_load(result)
        self.guess.show(guess, f"{rounded(guess[1])}" if guess else "")

    def _hold_limits(self, result: TokenCost) -> None:
        """Whole decades of dollars, and few ends of the batch: moves of a slider keep the frame."""
        if not result.layouts:
            return
        most = max(layout.most for layout in result.layouts)
        right = next(limit for limit in _MOST if 1.25 * most <= limit or limit == _MOST[-1])
        usd = np.concatenate([layout.usd for layout in result.layouts])
        low, high = np.floor(np.log10(0.85 * usd.min())), np.ceil(np.log10(1.15 * usd.max()))
        for axes in (self._usd, self._tpot):
            axes.set_xlim(_FEWEST, right)
        self._usd.set_ylim(10.0**low, 10.0**high)

    def _show_layouts(self, result: TokenCost) -> None:
        chosen = result.chosen
        others = result.layouts if chosen is None else result.layouts[1:]
        for line, name in zip(self.chosen, ("usd", "tpot_s"), strict=True):
            line.set_data(
                chosen.sequences if chosen else [], getattr(chosen, name) if chosen else []
            )
        for place_, (lines, words) in enumerate(zip(self._others, self._other_words, strict=True)):
            layout = others[place_] if place_ < len(others) else None
            for line, name in zip(lines, ("usd", "tpot_s"), strict=True):
                line.set_data(
                    layout.sequences if layout else [], getattr(layout, name) if layout else []
                )
            y = 0.07 + (0.13 if self.present else 0.09) * (2 - place_)
            place(words, 0.02, y, f"– {layout.name}" if layout else "")
        promise = result.tpot_promise_s
        self._promise.set_data([_FEWEST, _MOST[-1]], [promise or math.nan] * 2)
        promised = f"promise {seconds(promise)}" if promise else ""
        place(self._promise_words, 1.0, 1.06 * promise, promised)
        inside = chosen.inside if chosen and promise else 0
        # from the price down to the batch, and on from the batch to the promise, clear of the words
        ends = (
            (self._usd.get_ylim()[0], chosen.inside_usd if chosen else math.nan),
            (promise, self._tpot.get_ylim()[1]),
        )
        for edge, heights in zip(self._edge, ends, strict=True):
            edge.set_data([inside] * 2 if inside else [], heights if inside else [])

    def _show_marks(self, result: TokenCost) -> None:
        chosen = result.chosen
        for line in (*self.marks, *self._signs, self._here_tpot):
            line.set_data([], [])
        for text in (*self.mark_words, self._tpot_words):
            place(text, 0, 0, "")
        if chosen is None:
            place(self.mark_words[2], 0.98, self._mark_heights[0], result.shortfall)
            return
        at = result.here_sequences
        mine = (
            f"{at:,}" if at == result.wanted_sequences else f"{at:,} of {result.wanted_sequences:,}"
        )
        points = [
            (1, chosen.most, chosen.cheapest_usd, f"largest that fits, {chosen.most:,}"),
            (2, at, result.here_usd, f"your batch, {mine}"),
        ]
        if result.tpot_promise_s and chosen.keeps_promise:
            points.insert(
                0, (0, chosen.inside, chosen.inside_usd, f"inside the promise, {chosen.inside:,}")
            )
        for (look, x, usd, name), y in zip(points, self._mark_heights, strict=False):
            self.marks[look].set_data([x], [usd])
            self._signs[look].set_data([0.975], [y])
            place(self.mark_words[look], 0.955, y, f"{name}: {rounded(usd)}")
        self._here_tpot.set_data([at], [result.here_tpot_s])
        place(self._tpot_words, 0.98, 0.04, f"your batch {seconds(result.here_tpot_s)}")

    def _show_load(self, result: TokenCost) -> None:
        curve, here = result.curve, result.here
        empty: list[float] = []
        if curve is None or here is None:
            for line in (self._all_line, self._good_line, self._here_good):
                line.set_data(empty, empty)
            place(self._good_words, 0, 0, "")
            return
        low = 10.0 ** math.floor(math.log10(0.9 * float(curve.usd_all.min())))
        highest = np.nanmax(curve.usd_good, initial=float(curve.usd_all.max()))
        decades = math.ceil(math.log10(min(1.1 * highest / low, 1e3)))
        top = low * 10.0 ** max(decades, 1)
        self.good.set_ylim(low, top)
        self._all_line.set_data(curve.load, curve.usd_all)
        self._good_line.set_data(curve.load, curve.usd_good)
        at, usd, share = float(here.load[0]), float(here.usd_good[0]), float(here.good_share[0])
        y = min(usd, 0.9 * top) if math.isfinite(usd) else math.nan
        self._here_good.set_data([at], [y])
        beyond = "" if usd <= 0.9 * top else " ↑"
        price = f"{rounded(usd)} USD{beyond}" if math.isfinite(usd) else "no price"
        place(
            self._good_words, 0.04, 0.985,
            f"load {percent(at)}: {price}\n{percent(round(share, 3))} of answers good"
            f"{_what_is_good(result)}",
        )  # fmt: skip


def _what_is_good(result: TokenCost) -> str:
    """The promise that only this panel knows about."""
    if not result.ttft_promise_s:
        return ""
    return f"\n(first token within {seconds(result.ttft_promise_s)})"
