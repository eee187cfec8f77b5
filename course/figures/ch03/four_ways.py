"""Ways to batch as timelines, a row a request; every time is simulated elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from course.figures.axes import (
    BLUE,
    MUTED,
    ORANGE,
    SKY,
    YELLOW,
    Picture,
    Point,
    held_top,
    place,
)
from course.figures.labels import GROUND
from course.figures.marks import FloatArray, LogGuess, boxes
from course.words import percent, seconds

MOST_WAYS: Final = 4

# Phase: colour, hatch, words of the legend.
_LOOKS: Final[dict[str, tuple[str, str, str]]] = {
    "queued": (YELLOW, "xx", "queueing"),
    "held": (SKY, "||", "held back to fill a batch"),
    "prefill": (BLUE, "//", "prefill"),
    "decode": (ORANGE, "", "decode"),
    "idle": ("#bdbdbd", "\\\\", "idle slot (over, still in the batch)"),
}


@dataclass(frozen=True, eq=False)
class WayRun:
    """One way's run; times in seconds from the first arrival, arrays of shape (requests,).

    A request is queued from `arrival_s`, held back by an idle engine from `held_s` on (equal to
    `scheduled_s` where it is not), prefilled from `scheduled_s`, decoded from `first_token_s` to
    `finish_s`, and its slot stays in the batch until `slot_end_s`. `token_s` (tokens,) is when
    each output token came, `step_end_s` (steps,) when each step ended, both in order; `busy_s` is
    the length of all steps; `wasted_share` that of the decode slots whose request was over.
    """

    name: str
    arrival_s: FloatArray
    held_s: FloatArray
    scheduled_s: FloatArray
    first_token_s: FloatArray
    finish_s: FloatArray
    slot_end_s: FloatArray
    token_s: FloatArray
    step_end_s: FloatArray
    busy_s: float
    wasted_share: float

    @property
    def done_s(self) -> float:
        """When the last answer is complete."""
        return float(self.finish_s.max())

    @property
    def mean_ttft_s(self) -> float:
        """Mean time to first token."""
        return float((self.first_token_s - self.arrival_s).mean())

    def phases(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Return (start, end) of each phase for every request; equal where it has none."""
        return {
            "queued": (self.arrival_s, self.held_s),
            "held": (self.held_s, self.scheduled_s),
            "prefill": (self.scheduled_s, self.first_token_s),
            "decode": (self.first_token_s, self.finish_s),
            "idle": (self.finish_s, self.slot_end_s),
        }


@dataclass(frozen=True, eq=False)
class FourWays:
    """What the timelines show: the same requests, each way's run, and how far it was played."""

    runs: tuple[WayRun, ...]
    seats: int
    window_s: float
    played: int

    @property
    def requests(self) -> int:
        """How many requests there are."""
        return int(self.runs[0].arrival_s.size)

    @property
    def horizon_s(self) -> float:
        """When the slowest way is through."""
        return max(run.done_s for run in self.runs)

    @property
    def now_s(self) -> float:
        """The time up to which the picture is played."""
        return self.played / 100 * self.horizon_s

    @property
    def over(self) -> bool:
        """Whether everything is shown."""
        return self.played >= 100


class FourWaysPicture(Picture):
    """Blocks of rows above each other, one block a way, over one time axis."""

    size = (8.8, 5.6)

    def build(self, figure: Figure) -> None:
        """Make the axes, the legend and the empty artists."""
        box = (0.035, 0.155, 0.735, 0.715) if self.present else (0.035, 0.105, 0.775, 0.81)
        axes = self._axes = figure.add_axes(box)
        axes.set(xlim=(0, 1), ylim=(0, 1), yticks=[])
        axes.set_xlabel("time since the first request arrived (s)")
        axes.set_ylabel("one row a request")
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.3, "zorder": 3}
        self.patches = {
            name: self.area(axes, colour, hatch=hatch, **edge)
            for name, (colour, hatch, _) in _LOOKS.items()
        }
        self.now = self.line(axes, MUTED, linewidth=1.2, linestyle=(0, (2, 2)), zorder=5)
        self._heads = [
            self.label(axes, va="bottom", ha="left", fontweight="bold", zorder=6, bbox=GROUND)
            for _ in range(MOST_WAYS)
        ]
        small = 11.5 if self.present else 9.5
        self.sums = [
            self.label(axes, va="top", ha="left", fontsize=small, linespacing=1.25)
            for _ in range(MOST_WAYS)
        ]
        self.guess = LogGuess(self, axes)
        self._head = 0.068 if self.present else 0.05
        figure.legend(
            handles=[
                Patch(facecolor=colour, hatch=hatch, edgecolor="white", label=words)
                for colour, hatch, words in _LOOKS.values()
            ],
            loc="upper center", ncols=3 if self.present else 5, bbox_to_anchor=(0.5, 1.0),
            columnspacing=1.1, handlelength=1.7, handletextpad=0.5, labelspacing=0.25,
            borderaxespad=0.2,
        )  # fmt: skip

    def update(self, result: FourWays, guess: Point | None) -> None:
        """Move everything to `result`; a guess is a time on the axis of the last way."""
        axes, ways, now = self._axes, len(result.runs), result.now_s
        axes.set_xlim(0, held_top(axes.get_xlim()[1], 1.01 * result.horizon_s))
        right = axes.get_xlim()[1]
        drawn: dict[str, list[tuple[FloatArray, ...]]] = {name: [] for name in _LOOKS}
        for place_, run in enumerate(result.runs):
            low, high = self._rows(place_, ways, result.requests)
            for name, (start, end) in run.phases().items():
                drawn[name].append((np.minimum(start, now), np.minimum(end, now), low, high))
        for name, parts in drawn.items():
            start, end, low, high = (np.concatenate(column) for column in zip(*parts, strict=True))
            self.patches[name].set_path(boxes(start, end, low, high, least=1e-9))
        self.now.set_data([] if result.over else [now, now], [] if result.over else [0, 1])
        for place_, (head, sums) in enumerate(zip(self._heads, self.sums, strict=True)):
            if place_ >= ways:
                place(head, 0, 0, "")
                place(sums, 0, 0, "")
                continue
            run, top = result.runs[place_], 1 - place_ / ways
            place(head, 0.004 * right, top - 0.86 * self._head, self._title(result, run))
            place(sums, 1.012 * right, top - 0.012, _summary(result, run))
        block = 1 / ways
        self.guess.show(guess and (guess[0], 0.45 * block), seconds(guess[0]) if guess else "")

    def _rows(self, place_: int, ways: int, requests: int) -> tuple[FloatArray, FloatArray]:
        """Lower and upper edges of a block's rows, the first request on top."""
        top = 1 - place_ / ways - self._head
        height = (1 / ways - self._head - 0.012) / requests
        high = top - height * np.arange(requests)
        return np.asarray(high - 0.84 * height), np.asarray(high)

    def _title(self, result: FourWays, run: WayRun) -> str:
        if result.over:
            return run.name
        done = int((run.finish_s <= result.now_s).sum())
        tokens = int(np.searchsorted(run.token_s, result.now_s, side="right"))
        way = run.name.partition(":")[0]
        return f"{way}: {done} of {result.requests} done, {tokens:,} tokens"


def _summary(result: FourWays, run: WayRun) -> str:
    """The numbers beside a block, once it is through."""
    if result.now_s < run.done_s:
        return ""
    lines = [
        f"done {seconds(run.done_s)}",
        f"mean TTFT {seconds(run.mean_ttft_s)}",
        f"GPU busy {seconds(run.busy_s)}",
    ]
    if run.wasted_share > 0:
        lines.append(f"wasted slots {percent(round(run.wasted_share, 2))}")
    return "\n".join(lines)


def step_number(run: WayRun, now_s: float) -> int:
    """Return which of a way's steps is under way at a time, counted from 1; the last at the end.

    >>> times = np.array([0.0])
    >>> ends = np.array([0.1, 0.2, 0.3])
    >>> run = WayRun("single", *[times] * 7, step_end_s=ends, busy_s=0.3, wasted_share=0.0)
    >>> [step_number(run, now) for now in (0.0, 0.15, 9.0)]
    [1, 2, 3]
    """
    ended = int(np.searchsorted(run.step_end_s, now_s, side="right"))
    return min(ended + 1, int(run.step_end_s.size))
