"""A server under rising load in six panels; the loads are run elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from course.figures.axes import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, Picture, Point, place
from course.figures.ch06.across import Across, coarse_limit, within
from course.figures.marks import LogGuess
from course.words import percent, rounded, seconds

# Few limits, far apart: the axes hold still while a slider moves, and what is seen to move is the
# server. (A frame drawn anew also takes ten times as long as the data in it.)
_LOADS: Final = (1.2, 5.0, 15.0, 40.0, 120.0, 500.0, 1500.0)
_TOKENS: Final = (1500.0, 6000.0, 25_000.0)
_SEEN: Final = 0.77
"""So much of the curve has to be seen: up to 15 % more than the server can do."""
_GREY: Final = "#8a8a8a"


@dataclass(frozen=True, eq=False)
class LoadCurve:
    """What a server gives at each load; arrays of shape (loads,).

    Times in s; `attainment` and `kv_share` are shares, the latter at its fullest.
    """

    load_per_s: np.ndarray
    output_tokens_per_s: np.ndarray
    requests_per_s: np.ndarray
    good_per_s: np.ndarray
    ttft_p99_s: np.ndarray
    tpot_p99_s: np.ndarray
    attainment: np.ndarray
    kv_share: np.ndarray
    preemptions: np.ndarray


@dataclass(frozen=True, eq=False)
class Ramp:
    """The curve, the reader's own load on it, and another server's curve beside it.

    `held_per_s`: the highest load inside the SLO, 0 where none is, None where all that were run
    are.
    """

    title: str
    prompt_tokens: int
    output_tokens: int
    curve: LoadCurve
    here: LoadCurve
    beside: LoadCurve | None
    held_per_s: float | None
    beside_held_per_s: float | None
    ttft_limit_s: float
    tpot_limit_s: float
    quantile: float
    kv_tokens: int
    step_budget_tokens: int
    asked_budget_tokens: int

    @property
    def load_per_s(self) -> float:
        """The reader's load."""
        return float(self.here.load_per_s[0])

    @property
    def most_tokens_per_s(self) -> float:
        """The most output tokens a second of any load."""
        return float(self.curve.output_tokens_per_s.max())

    @property
    def held_tokens_per_s(self) -> float:
        """The output tokens a second at the highest load inside the SLO."""
        curve = self.curve
        held = curve.load_per_s[-1] if self.held_per_s is None else self.held_per_s
        return float(np.interp(held, curve.load_per_s, curve.output_tokens_per_s))


class RampPicture(Picture):
    """Six panels over the offered load: what comes out above, what it costs its users below."""

    size = (9.2, 5.6)

    def build(self, figure: Figure) -> None:
        """Make the six panels, the legend and the empty artists."""
        lefts = (0.09, 0.415, 0.735) if self.present else (0.075, 0.405, 0.73)
        bottoms = (0.52, 0.125) if self.present else (0.545, 0.09)
        width, height = (0.235, 0.275) if self.present else (0.255, 0.345)
        titles = (
            "output tokens/s", "P99 TTFT (s)", "P99 TPOT (ms)",
            "requests/s", "SLO kept (%)", "KV cache full (%)",
        )  # fmt: skip
        spots = [(left, bottom) for bottom in bottoms for left in lefts]
        self.panels = [
            self._panel(figure, (*spot, width, height), title)
            for spot, title in zip(spots, titles, strict=True)
        ]
        for axes in self.panels[3:]:
            axes.set_xlabel("offered load (requests/s)" if not self.present else "offered (req./s)")
        self._tokens, self._ttft, self._tpot, self._done, self._kept, self._kv = self.panels
        self._tokens.set_ylim(0, 6000)
        self._tokens.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.0f}"))
        for axes, limits, ticks in (
            (self._ttft, (0.01, 1000), (0.1, 1, 10, 100)),
            (self._tpot, (4, 400), (5, 10, 20, 50, 100, 200)),
        ):
            axes.set(yscale="log", ylim=limits)
            axes.yaxis.set_major_locator(FixedLocator(ticks))
            axes.yaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        self._done.set_ylim(0, 40)
        for axes in (self._kept, self._kv):
            axes.set_ylim(0, 108)
            axes.set_yticks([0, 25, 50, 75, 100])
        self._build_artists()
        self._legend(figure)

    def _panel(self, figure: Figure, box: tuple[float, float, float, float], title: str) -> Axes:
        axes = figure.add_axes(box)
        axes.set_title(title, loc="left", fontsize="medium")
        axes.set_xlim(0, 40)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        return axes

    def _build_artists(self) -> None:
        dot = {"marker": "o", "markersize": 6 if self.present else 3.6}
        looks: tuple[tuple[str, dict[str, Any]], ...] = (
            (BLUE, {"label": "finished", **dot}),
            (ORANGE, {"linestyle": (0, (5, 2)), "label": "latency"}),
            (ORANGE, {"linestyle": (0, (5, 2))}),
            (BLUE, dot),
            (GREEN, {"linestyle": (0, (6, 1.5, 1, 1.5))}),
            (PURPLE, {"linestyle": (0, (3, 1.2))}),
        )
        self.curves = [
            self.line(axes, colour, zorder=4, **look)
            for axes, (colour, look) in zip(self.panels, looks, strict=True)
        ]
        self.good = self.line(
            self._done, GREEN, linestyle=(0, (6, 1.5, 1, 1.5)), zorder=4, label="inside the SLO"
        )
        self.offered = self.line(self._done, MUTED, linewidth=1, linestyle=(0, (1, 2)), zorder=1)
        self._beside = Across(self, _GREY, linewidth=1.3, zorder=2, label="the chat")
        self._limits = Across(
            self, INK, linewidth=1.5, linestyle=(0, (1, 1.2)), zorder=3, label="limit"
        )
        self._here = Across(self, INK, linewidth=1.1, linestyle=(0, (2, 2)), zorder=1)
        self.marks = Across(
            self, INK, marker="D", linestyle="", zorder=6, label="your load",
            markersize=8 if self.present else 6,
        )  # fmt: skip
        self.held = Across(
            self, GREEN, linewidth=8, solid_capstyle="butt", alpha=0.5, zorder=1,
            label="loads inside the SLO",
        )  # fmt: skip
        self.words = [self.label(axes, INK, zorder=9) for axes in self.panels]
        self.guess = LogGuess(self, self._tokens, lead="guess")

    def _legend(self, figure: Figure) -> None:
        handles = [
            self.curves[0], self.curves[1], self.good, self._limits.artist, self.held.artist,
            self.marks.artist, self._beside.artist,
        ]  # fmt: skip
        figure.legend(
            handles=handles, loc="upper center", ncols=4 if self.present else 7,
            bbox_to_anchor=(0.52, 1.0), columnspacing=1.0, handlelength=1.7, labelspacing=0.25,
            borderaxespad=0.2,
        )  # fmt: skip

    def update(self, result: Ramp, guess: Point | None) -> None:
        """Move everything to `result`; a guess is a load."""
        right = coarse_limit(
            self._tokens.get_xlim()[1], _SEEN * float(result.curve.load_per_s[-1]), _LOADS
        )
        if right != self._tokens.get_xlim()[1]:
            for axes in self.panels:
                axes.set_xlim(0, right)
            self._done.set_ylim(0, right)
        top = coarse_limit(
            self._tokens.get_ylim()[1], result.most_tokens_per_s, _TOKENS, shrink_below=0.2
        )
        if top != self._tokens.get_ylim()[1]:
            self._tokens.set_ylim(0, top)
        self._show_curves(result, right)
        self._show_here(result, right)
        shown = guess and (guess[0], 0.5 * top)
        self.guess.show(shown, f"{rounded(guess[0])}/s" if guess else "", self.words[0])

    def _show_curves(self, result: Ramp, right: float) -> None:
        loads = result.curve.load_per_s
        for line, ys in zip(self.curves, _panels_of(result.curve), strict=True):
            line.set_data(loads, ys)
        self.good.set_data(loads, result.curve.good_per_s)
        self.offered.set_data([0, right], [0, right])
        beside = result.beside
        self._beside.show(
            (axes, *within(axes, beside.load_per_s, ys))
            for axes, ys in zip(self.panels, _panels_of(beside) if beside else (), strict=False)
            if beside is not None
        )
        self._limits.show(
            (axes, [0, right], [limit, limit])
            for axes, limit in (
                (self._ttft, result.ttft_limit_s),
                (self._tpot, 1e3 * result.tpot_limit_s),
                (self._kept, 100 * result.quantile),
            )
        )
        held = min(loads[-1] if result.held_per_s is None else result.held_per_s, right)
        bars = self.panels if held else ()
        self.held.show((axes, [0, held], [axes.get_ylim()[0]] * 2) for axes in bars)

    def _show_here(self, result: Ramp, right: float) -> None:
        here, beyond = result.here, " →" if result.load_per_s > right else ""
        spoken = (
            f"{rounded(float(here.output_tokens_per_s[0]))}/s",
            seconds(float(here.ttft_p99_s[0])),
            seconds(float(here.tpot_p99_s[0])),
            f"{rounded(float(here.requests_per_s[0]))}/s",
            percent(round(float(here.attainment[0]), 3)),
            percent(round(float(here.kv_share[0]), 3)),
        )
        x = min(result.load_per_s, right)
        limits = {1: result.ttft_limit_s, 2: 1e3 * result.tpot_limit_s}
        marks, uprights = [], []
        for i, (axes, words) in enumerate(zip(self.panels, spoken, strict=True)):
            low, high = axes.get_ylim()
            y = min(max(float(_panels_of(here)[i][0]), low), high)
            uprights.append((axes, [x, x], [low, high]))
            marks.append((axes, [x], [y]))
            self._say(i, x, y, words + beyond, limits.get(i))
        self._here.show(uprights)
        self.marks.show(marks)

    def _say(self, i: int, x: float, y: float, words: str, limit: float | None) -> None:
        """Write `words` where the curve is not: above it on its left, or below it on its right.

        Where the line of the `limit` would run through them they change the side, or pass it.
        """
        axes, text = self.panels[i], self.words[i]
        right, share = axes.get_xlim()[1], _share(axes, y)
        on_left = x > 0.35 * right
        below = share > 0.85 or (share >= 0.15 and (axes is self._kept or not on_left))
        tall, gap = 0.16 if self.present else 0.09, 0.035
        edge = share - gap if below else share + gap
        if limit is not None:
            line, low = _share(axes, limit), edge - tall if below else edge
            if low - 0.02 < line < low + tall + 0.02:
                if on_left and not below and x < 0.7 * right and share > tall + 2 * gap:
                    on_left, below, edge = False, True, share - gap
                else:
                    edge = line - 0.02 if below else line + 0.02
        text.set_horizontalalignment("right" if on_left else "left")
        text.set_verticalalignment("top" if below else "bottom")
        place(text, x + (-0.02 if on_left else 0.025) * right, _height(axes, edge), words)


def _panels_of(curve: LoadCurve) -> tuple[np.ndarray, ...]:
    """The curve's values in the order and the units of the panels."""
    return (
        curve.output_tokens_per_s,
        curve.ttft_p99_s,
        1e3 * curve.tpot_p99_s,
        curve.requests_per_s,
        100 * curve.attainment,
        100 * curve.kv_share,
    )


def _share(axes: Axes, y: float) -> float:
    """A height as a share of the axes'."""
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        return float(np.log(y / low) / np.log(high / low))
    return (y - low) / (high - low)


def _height(axes: Axes, share: float) -> float:
    """The height at a share of the axes'."""
    low, high = axes.get_ylim()
    if axes.get_yscale() == "log":
        return float(low * (high / low) ** share)
    return low + share * (high - low)
