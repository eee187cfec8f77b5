"""Documents among chats as a timeline of steps, and what each remedy gives; no simulation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, PathPatch
from matplotlib.path import Path

from course.figures.axes import (
    BLUE,
    INK,
    MUTED,
    NOTHING,
    ORANGE,
    PURPLE,
    YELLOW,
    Picture,
    Point,
    held_limit,
    place,
)
from course.figures.ch04.bars import BarPanel
from course.figures.labels import GROUND
from course.figures.marks import FloatArray, boxes
from course.words import seconds

ROWS: Final = (
    "nobody guards",
    "queue of its own",
    "shortest first",
    "… with a limit",
    "pool of its own",
)
HIGHEST_STEP_MS: Final = 140.0
"""Longer than any step that notebook 04's budget allows."""
# From so many steps on, a box each can no longer be told apart.
_CROWD: Final = 80

_LOOKS: Final[dict[str, tuple[str, str, str]]] = {
    "plain": (BLUE, "", "step without a document"),
    "with": (ORANGE, "//", "step with a piece of one (prefill)"),
    "other": ("#ffffff", "", "step of the second card"),
    "waits": (YELLOW, "xx", "document waits"),
}


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a remedy gives over the whole run; seconds.

    `chats_p99_s`, `chats_p50_s` and the documents' mean and worst are times to first token;
    `itl_p99_s` is a gap between tokens, `longest_step_s` the longest step of the chats' card.
    """

    remedy: str
    chats_p99_s: float
    chats_p50_s: float
    document_mean_s: float
    document_worst_s: float
    itl_p99_s: float
    longest_step_s: float


@dataclass(frozen=True, eq=False)
class Window:
    """The seconds around one group of documents, times from their arrival.

    `step_start_s`, `step_end_s` and `with_document` (steps,): of the chats' card; `other_start_s`,
    `other_end_s`: of a second one. `document_scheduled_s`, `document_first_s` (documents,).
    `chat_arrival_s`, `chat_ttft_s` (chats,).
    """

    step_start_s: FloatArray
    step_end_s: FloatArray
    with_document: np.ndarray
    other_start_s: FloatArray
    other_end_s: FloatArray
    document_scheduled_s: FloatArray
    document_first_s: FloatArray
    chat_arrival_s: FloatArray
    chat_ttft_s: FloatArray


@dataclass(frozen=True, eq=False)
class LongPrompt:
    """What the long-prompt picture shows: every remedy's outcome, and one of them in steps."""

    outcomes: tuple[Outcome, ...]
    chosen: int
    window: Window
    chat_rate_per_s: float
    documents: int
    document_tokens: int
    every_s: float

    @property
    def here(self) -> Outcome:
        """The outcome of the remedy that is drawn in steps."""
        return self.outcomes[self.chosen]


class LongPromptPicture(Picture):
    """Left: documents, steps and chats over one time. Right: the remedies side by side."""

    size = (9.4, 5.9)

    def build(self, figure: Figure) -> None:
        """Make three strips, two bar panels and the empty artists."""
        left, width, right = (0.085, 0.475, 0.765) if self.present else (0.07, 0.53, 0.755)
        low, high, gap = (0.115, 0.82, 0.075) if self.present else (0.09, 0.89, 0.065)
        tall = (high - low - 2 * gap) / 5
        self._chats = figure.add_axes((left, low, width, 2 * tall))
        at = low + 2 * tall + gap
        self.steps = figure.add_axes((left, at, width, 2 * tall), sharex=self._chats)
        at += 2 * tall + gap
        self._documents = figure.add_axes((left, at, width, tall), sharex=self._chats)
        for axes in (self.steps, self._documents):
            axes.tick_params(labelbottom=False)
        self._documents.set(ylim=(0, 1), yticks=[])
        self._documents.grid(visible=False)
        self._chats.set(xlim=(-1, 3), ylim=(0, 2))
        self.steps.set(ylim=(0, HIGHEST_STEP_MS))
        self._chats.set_xlabel("time since the documents came (s)")
        self._chats.set_title("TTFT of each chat, a needle each (s)", loc="left", fontsize="medium")
        self.steps.set_title("length of each step (ms)", loc="left", fontsize="medium")
        self._documents.set_title("documents, a row each", loc="left", fontsize="medium")
        half = (high - low) / 2 - 0.06
        bars_at = {
            "chats_p99_s": (right, high - half, 0.985 - right, half),
            "document_worst_s": (right, low, 0.985 - right, half),
        }
        titles = ("P99 TTFT of the chats", "longest TTFT of a document")
        self.bars = [
            BarPanel(self, figure, box, title, ROWS, [(BLUE, "")] * len(ROWS), seconds)
            for box, title in zip(bars_at.values(), titles, strict=True)
        ]
        self._fields = tuple(bars_at)
        self._make_artists()
        figure.legend(
            handles=[
                Patch(facecolor=colour, hatch=hatch, edgecolor=_edge(name), label=words)
                for name, (colour, hatch, words) in _LOOKS.items()
            ],
            loc="upper center", bbox_to_anchor=(0.5, 1.0), ncols=2 if self.present else 4,
            columnspacing=1.2, handlelength=1.7, handletextpad=0.5, borderaxespad=0.2,
            labelspacing=0.2,
        )  # fmt: skip

    def _make_artists(self) -> None:
        self.patches: dict[str, PathPatch] = {}
        for name, (colour, hatch, _) in _LOOKS.items():
            axes = self._documents if name == "waits" else self.steps
            self.patches[name] = self._boxes(axes, name, colour, hatch)
        self._prefills = self._boxes(self._documents, "with", ORANGE, "//")
        self._needles = self.line(self._chats, BLUE, linewidth=2.0, zorder=4)
        came: dict[str, Any] = {"linewidth": 1.0, "linestyle": (0, (2, 2)), "zorder": 2}
        self._came = [self.line(a, MUTED, **came) for a in (self._chats, self.steps)]
        self.p99 = self.line(self._chats, INK, linewidth=1.2, linestyle=(0, (6, 2)), zorder=3)
        self._p99_words = self.label(
            self._chats, va="bottom", ha="right", zorder=7, bbox=GROUND, fontsize="small"
        )
        self._document_words = [
            self.label(self._documents, va="center", ha="left", zorder=6, fontsize="small")
            for _ in range(2)
        ]

    def _boxes(self, axes: Axes, name: str, colour: str, hatch: str) -> PathPatch:
        looks: dict[str, Any] = {"edgecolor": _edge(name), "linewidth": 0.4, "zorder": 3}
        if name == "other":
            return self.area(axes, "none", **{**looks, "linewidth": 0.8, "zorder": 4})
        return self.area(axes, colour, hatch=hatch, **looks)

    def update(self, result: LongPrompt, guess: Point | None) -> None:
        """Move everything to `result`; a guess is a P99 TTFT in the chosen remedy's row."""
        window = result.window
        last = float(window.document_first_s.max(initial=0.0))
        right = held_limit(self._chats.get_xlim()[1], min(1.1 * last + 0.3, 10.0))
        self._chats.set_xlim(-0.12 * right, right)
        self._show_steps(window, right)
        self._show_documents(window, right)
        self._show_chats(result, right)
        every = [[getattr(o, name) for o in result.outcomes] for name in self._fields]
        # One scale for both: what the chats gain and what the documents pay are both seconds.
        longest = max(map(max, every))
        for panel, values in zip(self.bars, every, strict=True):
            mine = guess if panel is self.bars[0] else None
            panel.show(values, scale_for=longest, guess=mine, bold=result.chosen)

    def _show_steps(self, window: Window, right: float) -> None:
        shown = (window.step_end_s > -0.12 * right) & (window.step_start_s < right)
        starts, ends = window.step_start_s[shown], window.step_end_s[shown]
        high_ms = 1e3 * (ends - starts)
        others = window.other_start_s < right
        other_start, other_end = window.other_start_s[others], window.other_end_s[others]
        other_ms = 1e3 * (other_end - other_start)
        with_document = window.with_document[shown]
        for name, those in (("plain", ~with_document), ("with", with_document)):
            start, end, high = starts[those], ends[those], high_ms[those]
            # Where hundreds of steps stand side by side their white edges would hide them.
            self.patches[name].set_linewidth(0.0 if start.size >= _CROWD else 0.4)
            self.patches[name].set_path(_steps_path(start, end, high))
        self.patches["other"].set_path(_steps_path(other_start, other_end, other_ms))
        self._came[1].set_data([0, 0], [0, HIGHEST_STEP_MS])

    def _show_documents(self, window: Window, right: float) -> None:
        number = window.document_first_s.size
        height = 1 / max(number, 1)
        high = 1 - height * np.arange(number)
        low = high - 0.84 * height
        scheduled_s, first_s = window.document_scheduled_s, window.document_first_s
        self.patches["waits"].set_path(boxes(np.zeros(number), scheduled_s, low, high))
        self._prefills.set_path(boxes(scheduled_s, first_s, low, high))
        ends = tuple({0, number - 1}) if number <= 3 else (number - 1,)
        for place_, text in enumerate(self._document_words):
            if place_ >= len(ends) or number == 0:
                place(text, 0, 0, "")
                continue
            at = ends[place_]
            x = float(min(first_s[at], 0.84 * right)) + 0.012 * right
            # In a crowd the last one alone is named: the rows are lower than the words.
            y = min(max(float(low[at] + high[at]) / 2, 0.14), 0.86)
            place(text, x, y, seconds(float(first_s[at])))

    def _show_chats(self, result: LongPrompt, right: float) -> None:
        window, axes, p99_s = result.window, self._chats, result.here.chats_p99_s
        shown = (window.chat_arrival_s > -0.12 * right) & (window.chat_arrival_s < right)
        highest = max(float(window.chat_ttft_s[shown].max(initial=0.0)), p99_s)
        top = held_limit(axes.get_ylim()[1], 1.1 * highest)
        axes.set_ylim(0, top)
        times_s, ttft_s = window.chat_arrival_s[shown], window.chat_ttft_s[shown]
        # One path for all: a needle is drawn far faster than a marker.
        gap = np.full(times_s.size, np.nan)
        self._needles.set_data(
            np.column_stack([times_s, times_s, gap]).ravel(),
            np.column_stack([np.zeros(times_s.size), ttft_s, gap]).ravel(),
        )
        self._came[0].set_data([0, 0], [0, top])
        self.p99.set_data([-0.12 * right, right], [p99_s, p99_s])
        place(
            self._p99_words, 0.99 * right, p99_s + 0.02 * top,
            f"P99 of all chats {seconds(p99_s)}",
        )  # fmt: skip


def stairs(start: FloatArray, end: FloatArray, high: FloatArray, grain: float) -> Path:
    """Return boxes on a common floor as the outline of all of them together.

    Neighbours that touch and whose heights fall into the same `grain` are one stair, at the
    highest of them: a thousand decode steps are a few dozen stairs to draw.

    >>> starts, ends = np.array([0.0, 1.0, 2.0]), np.array([1.0, 2.0, 3.0])
    >>> stairs(starts, ends, np.array([8.0, 8.1, 30.0]), 1.0).vertices.tolist()
    [[0.0, 0.0], [0.0, 8.1], [2.0, 8.1], [2.0, 30.0], [3.0, 30.0], [3.0, 0.0]]
    """
    if not start.size:
        return NOTHING
    level = np.floor(high / grain)
    apart = np.append(True, start[1:] > end[:-1] + 1e-9)
    first = np.flatnonzero(apart | np.append(True, level[1:] != level[:-1]))
    last = np.append(first[1:], start.size) - 1
    left, right, top = start[first], end[last], np.maximum.reduceat(high, first)
    floor = np.zeros(left.size)
    corners = ((left, floor), (left, top), (right, top), (right, floor))
    points = np.stack([np.column_stack(corner) for corner in corners], axis=1)
    kept = np.ones(points.shape[:2], dtype=bool)
    kept[:, 0] = apart[first]
    kept[:, 3] = np.append(kept[1:, 0], True)
    return Path(points[kept])


def _steps_path(start: FloatArray, end: FloatArray, high: FloatArray) -> Path:
    """A box a step, or their outline where they are too many to be told apart."""
    if start.size < _CROWD:
        return boxes(start, end, np.zeros(start.size), high)
    return stairs(start, end, high, 0.015 * HIGHEST_STEP_MS)


def _edge(name: str) -> str:
    return PURPLE if name == "other" else "white"
