"""One request's life on a time axis, with what each metric sees of it; no metric is computed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from course.figures.axes import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    YELLOW,
    FloatArray,
    GuessMark,
    Picture,
    Point,
    bars,
    held_limit,
    place,
)
from course.words import rounded, seconds

IntArray = npt.NDArray[np.int64]

STUCK_S: Final = 3.0
"""A first token later than this feels stuck."""
FLUENT_S: Final = 0.05
"""Gaps up to this, 20 tokens a second, read fluently."""
DRAGS_S: Final = 0.2
"""Gaps from this on, 5 tokens a second, drag."""

# Heights in the upper panel: the server's row, the reader's, and three brackets above.
_SERVER: Final = 0.6
_READER: Final = 1.45
_BRACKETS: Final = (2.0, 2.78, 3.56)
_TOP: Final = 4.2
_GAP_LIMITS: Final = (4e-3, 6.5)
# The longest bar of the right panel stands for this many times the value at rest.
_LONGEST: Final = 300.0


@dataclass(frozen=True)
class Numbers:
    """The five metrics of one request in seconds; NaN where an answer has no gap."""

    ttft_s: float
    tpot_s: float
    median_gap_s: float
    largest_gap_s: float
    e2e_s: float


@dataclass(frozen=True, eq=False)
class OneLife:
    """One request from sending to last token; times in seconds after the reader sent it.

    `made_s` (tokens,) is when the server had each token, `arrivals_s` (chunks,) when each chunk
    reached the reader, `chunk_tokens` (chunks,) what it carried, `gaps_s` (chunks − 1,) the time
    between neighbouring arrivals. `stall_s` of the gap before `stall_end_s` belongs to somebody
    else's prefill. `here` are the request's metrics, `rest` those of the same request without
    queue, stall and chunks.
    """

    network_s: float
    queue_s: float
    prefill_s: float
    step_s: float
    stall_s: float
    stall_end_s: float
    prompt_tokens: int
    chunk_limit_tokens: int
    made_s: FloatArray
    arrivals_s: FloatArray
    chunk_tokens: IntArray
    gaps_s: FloatArray
    here: Numbers
    rest: Numbers

    @property
    def output_tokens(self) -> int:
        """How many tokens the answer has."""
        return int(self.made_s.size)


class OneLifePicture(Picture):
    """The life as a sequence diagram, its gaps below, and beside them what moved."""

    size = (8.8, 5.2)

    def build(self, figure: Figure) -> None:
        """Make the three panels, the legend and the empty artists."""
        left, right = (0.115, 0.69) if self.present else (0.09, 0.715)
        bottom, middle, top = (0.155, 0.505, 0.855) if self.present else (0.115, 0.49, 0.9)
        width = right - left
        self._life: Axes = figure.add_axes((left, middle, width, top - middle))
        self._gaps: Axes = figure.add_axes(
            (left, bottom, width, middle - bottom - 0.035), sharex=self._life
        )
        beside = right + 0.035
        self._moved: Axes = figure.add_axes((beside, bottom, 0.985 - beside, top - bottom))
        self._build_life()
        self._build_gaps()
        self._build_moved()
        figure.legend(
            handles=[
                Patch(facecolor=YELLOW, hatch="xx", edgecolor="white", label="queueing"),
                Patch(facecolor=BLUE, hatch="//", edgecolor="white", label="prefill"),
                Patch(facecolor=ORANGE, edgecolor="white", label="decode"),
                Patch(facecolor=PURPLE, hatch="\\\\", edgecolor="white", label="stall"),
                self._legs,
            ],
            loc="upper center", ncols=5, bbox_to_anchor=(0.5, 1.005), columnspacing=1.1,
            handlelength=1.7, handletextpad=0.5,
        )  # fmt: skip

    def _build_life(self) -> None:
        axes = self._life
        axes.set(xlim=(0, 2), ylim=(-0.12, _TOP), yticks=[_SERVER / 2, _READER])
        axes.set_yticklabels(["server", "reader"])
        axes.xaxis.set_major_locator(MaxNLocator(5 if self.present else 8))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
        axes.grid(visible=False, axis="y")
        axes.tick_params(labelbottom=False, left=False)
        axes.spines["left"].set_visible(False)
        box: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6, "zorder": 3}
        looks: dict[str, tuple[str, str]] = {
            "queue": (YELLOW, "xx"), "prefill": (BLUE, "//"), "decode": (ORANGE, ""),
            "stall": (PURPLE, "\\\\"),
        }  # fmt: skip
        self.boxes: dict[str, Rectangle] = {
            name: self.keep(
                axes.add_patch(Rectangle((0, 0), 0, _SERVER, facecolor=colour, hatch=hatch, **box))
            )
            for name, (colour, hatch) in looks.items()
        }
        self.boxes["stall"].set_zorder(5)
        # White cuts between the decode steps: one line is drawn faster than a box for each.
        self._cuts = self.line(axes, "white", zorder=4)
        self.ticks = self.line(axes, INK, zorder=4)
        self._legs = self.line(
            axes, MUTED, linewidth=1.3, linestyle=(0, (3, 1.5)), zorder=2, label="network"
        )
        bracket = {"linewidth": 1.4, "marker": "|", "markersize": 9}
        self.brackets = [self.line(axes, c, **bracket) for c in (BLUE, ORANGE, INK)]
        self.bracket_words = [
            self.label(axes, BLUE, va="bottom", ha="left", zorder=8),
            self.label(axes, ORANGE, va="bottom", ha="right", zorder=8),
            self.label(axes, INK, va="bottom", ha="left", zorder=8),
        ]
        self.time_guess = GuessMark(self, axes)

    def _build_gaps(self) -> None:
        axes = self._gaps
        axes.set_yscale("log")
        axes.set_ylim(*_GAP_LIMITS)
        axes.yaxis.set_major_locator(FixedLocator([0.01, FLUENT_S, DRAGS_S, 1.0]))
        axes.yaxis.set_minor_locator(NullLocator())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: _plain(y)))
        axes.set_xlabel("time since the request was sent (s)")
        axes.axhspan(_GAP_LIMITS[0], FLUENT_S, facecolor="#eef7f3", linewidth=0)
        axes.axhspan(DRAGS_S, _GAP_LIMITS[1], facecolor="#fbf0ea", linewidth=0)
        axes.text(0.008, 0.965, "gap before each arrival (ITL)", transform=axes.transAxes, va="top")
        self.steps = self.line(axes, INK, drawstyle="steps-pre", linewidth=1.5, zorder=4)
        self.mean = self.line(axes, ORANGE, linestyle=(0, (5, 2)), zorder=5)
        self._mean_words = self.label(axes, ORANGE, ha="left", zorder=8)
        self.peak = self.line(axes, PURPLE, marker="v", linestyle="", zorder=6)
        self._peak_words = self.label(axes, PURPLE, va="center", zorder=8)
        for y, words in ((FLUENT_S, "reads fluently"), (_GAP_LIMITS[1], "drags")):
            axes.text(
                0.995, 0.9 * y, words, transform=axes.get_yaxis_transform(), color=MUTED,
                ha="right", va="top",
            )  # fmt: skip
        self.gap_star = self.star(axes)
        self._gap_guess = self.label(axes, PURPLE, va="center", ha="left", zorder=8)

    def _build_moved(self) -> None:
        axes = self._moved
        axes.set(xlim=(0, 1), ylim=(-0.35, 5), xticks=[], yticks=[])
        axes.grid(visible=False)
        axes.spines[["left", "bottom"]].set_visible(False)
        axes.set_title("value, × at rest", loc="left", fontsize="medium")
        axes.plot([0, 0], [-0.3, 4.9], color=MUTED, linewidth=1.0)
        for row, name in enumerate(("TTFT", "TPOT", "ITL median", "ITL max", "E2E")):
            axes.text(0.03, 4.32 - row, name, va="bottom", ha="left")
        # All bars in one line, and value and ratio in one text: each artist costs time to draw.
        self._ratio_bars = self.line(axes, PURPLE, linewidth=9, solid_capstyle="butt")
        self.ratio_words = [
            self.label(axes, INK, va="center", ha="right", linespacing=1.35) for _ in range(5)
        ]

    def update(self, result: OneLife, guess: Point | None) -> None:
        """Move everything to `result`; a guess of a time has y = 0, one of a gap has x = 0."""
        right = held_limit(self._life.get_xlim()[1], result.here.e2e_s, shrink_below=0.3)
        self._life.set_xlim(0, right)
        self._show_server(result, right)
        self._show_reader(result, right)
        self._show_brackets(result, right)
        self._show_gaps(result, right)
        self._show_moved(result)
        self._show_guess(guess, right)

    def _show_server(self, result: OneLife, right: float) -> None:
        queue_from = result.network_s
        prefill_from = queue_from + result.queue_s
        decode_from = prefill_from + result.prefill_s
        spans = {
            "queue": (queue_from, prefill_from),
            "prefill": (prefill_from, decode_from),
            "decode": (decode_from, float(result.made_s[-1])),
            "stall": (result.stall_end_s - result.stall_s, result.stall_end_s),
        }
        for name, (start, end) in spans.items():
            self.boxes[name].set_bounds(start, 0, end - start, _SERVER)
            # A box without width would still show its white edge, as a cut that is not there.
            self.boxes[name].set_visible(end > start)
        steps = self._points(result.step_s, right)
        # Where a step is narrower than its cut, only white would be left.
        shown = result.made_s[1:-1] if steps > 1.5 else result.made_s[:0]
        self._cuts.set_data(*bars((at, (0.0, _SERVER)) for at in shown.tolist()))
        self._cuts.set_linewidth(min(0.8, 0.2 * steps))

    def _show_reader(self, result: OneLife, right: float) -> None:
        low, high = _READER - 0.2, _READER + 0.2
        self.ticks.set_data(*bars((at, (low, high)) for at in result.arrivals_s.tolist()))
        apart = self._points(float(np.median(result.gaps_s)), right) if result.gaps_s.size else 9
        self.ticks.set_linewidth(max(0.3, min(1.6, 0.4 * apart)))
        first, last = float(result.made_s[0]), float(result.made_s[-1])
        x, y = [0.0, result.network_s], [_READER, _SERVER]
        for made, there in ((first, result.here.ttft_s), (last, result.here.e2e_s)):
            x += [math.nan, made, there]
            y += [math.nan, _SERVER, _READER]
        self._legs.set_data(x, y)

    def _show_brackets(self, result: OneLife, right: float) -> None:
        here, gaps = result.here, result.output_tokens - 1
        spans = ((0.0, here.ttft_s), (here.ttft_s, here.e2e_s), (0.0, here.e2e_s))
        for line, span, y in zip(self.brackets, spans, _BRACKETS, strict=True):
            line.set_data(span, (y, y))
        stuck = ": feels stuck" if here.ttft_s > STUCK_S else ""
        first, mean, whole = self.bracket_words
        place(first, 0.0, _BRACKETS[0] + 0.12, f"TTFT {seconds(here.ttft_s)}{stuck}")
        place(whole, 0.0, _BRACKETS[2] + 0.12, f"E2E {seconds(here.e2e_s)}")
        if not gaps:
            self.brackets[1].set_data([], [])
            place(mean, right, _BRACKETS[1] + 0.12, "a single token: no TPOT")
            return
        count = "1 more token," if gaps == 1 else f"{gaps} more tokens,"
        at = min(max(here.e2e_s, 0.7 * right), right)
        place(mean, at, _BRACKETS[1] + 0.12, f"{count} TPOT {seconds(here.tpot_s)}")

    def _show_gaps(self, result: OneLife, right: float) -> None:
        here, arrivals = result.here, result.arrivals_s
        if not result.gaps_s.size:
            for line in (self.steps, self.mean, self.peak):
                line.set_data([], [])
            place(self._mean_words, 0, 0, "")
            self._peak_words.set_horizontalalignment("center")
            place(self._peak_words, 0.5 * right, 0.1, "no second token, so no gap")
            return
        self.steps.set_data(arrivals, [result.gaps_s[0], *result.gaps_s])
        self.mean.set_data([here.ttft_s, here.e2e_s], [here.tpot_s] * 2)
        self._mean_words.set_verticalalignment("top")
        place(self._mean_words, here.ttft_s, 0.82 * here.tpot_s, f"TPOT {seconds(here.tpot_s)}")
        peak = int(result.gaps_s.argmax())
        at = float(arrivals[peak] + arrivals[peak + 1]) / 2
        if here.largest_gap_s < 1.05 * here.median_gap_s:
            self.peak.set_data([], [])
            place(self._peak_words, 0, 0, "")
            return
        y = 1.25 * here.largest_gap_s
        self.peak.set_data([at], [y])
        on_left = at > 0.55 * right
        self._peak_words.set_horizontalalignment("right" if on_left else "left")
        aside = max(float(arrivals[peak + 1]) - at, 0.015 * right) + 0.01 * right
        beside = at - aside if on_left else at + aside
        place(self._peak_words, beside, y, f"largest gap {seconds(here.largest_gap_s)}")

    def _show_moved(self, result: OneLife) -> None:
        pairs = (
            (result.here.ttft_s, result.rest.ttft_s),
            (result.here.tpot_s, result.rest.tpot_s),
            (result.here.median_gap_s, result.rest.median_gap_s),
            (result.here.largest_gap_s, result.rest.largest_gap_s),
            (result.here.e2e_s, result.rest.e2e_s),
        )
        x: list[float] = []
        y: list[float] = []
        for row, (text, (here, rest)) in enumerate(zip(self.ratio_words, pairs, strict=True)):
            middle = 4.27 - row
            if math.isnan(here):
                place(text, 1.0, middle, "none\n ")
                continue
            ratio = here / rest
            end = min(1.0, math.log(max(ratio, 1.0)) / math.log(_LONGEST)) * 0.6
            x += [0.0, max(end, 0.012), math.nan]
            y += [4.1 - row] * 3
            place(text, 1.0, middle, f"{seconds(here)}\n{times_as_at_rest(ratio)}")
        self._ratio_bars.set_data(x, y)

    def _show_guess(self, guess: Point | None, right: float) -> None:
        time_s = guess[0] if guess is not None and guess[1] == 0 else None
        self.time_guess.show(
            None if time_s is None else (time_s, _SERVER / 2), _TOP,
            lambda _: "" if time_s is None else seconds(time_s), beside=True,
        )  # fmt: skip
        if guess is None or time_s is not None:
            self.gap_star.set_data([], [])
            place(self._gap_guess, 0, 0, "")
            return
        low, high = _GAP_LIMITS
        y = min(max(guess[1], 1.3 * low), 0.7 * high)
        self.gap_star.set_data([0.25 * right], [y])
        place(self._gap_guess, 0.28 * right, y, f"your guess {seconds(guess[1])}")

    def _points(self, duration_s: float, right: float) -> float:
        """How many points on paper a duration is wide."""
        width = self.figure.get_size_inches()[0] * 72 * self._life.get_position().width
        return float(duration_s / right * width)


def times_as_at_rest(ratio: float) -> str:
    """Return how many times a metric is what it is at rest, in few characters.

    >>> [times_as_at_rest(ratio) for ratio in (1.0, 1.1005, 21.0, 153.2)]
    ['×1', '×1.10', '×21.0', '×153']
    """
    return "×1" if abs(ratio - 1) < 5e-4 else f"×{rounded(ratio)}"


def _plain(value_s: float) -> str:
    return f"{1000 * value_s:g} ms" if value_s < 1 else f"{value_s:g} s"
