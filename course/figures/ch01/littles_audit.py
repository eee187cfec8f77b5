"""A printed report beside what must follow from it by Little's law; whether it was measured
honestly is not known here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.text import Text

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    TEXT_OF,
    Picture,
    Point,
    held_limit,
    place,
)
from course.words import rounded, seconds

# Reports are rounded, and Little's law holds to the last digit only over a whole run.
_ROUNDING: Final = 1.01


@dataclass(frozen=True)
class LittlesAudit:
    """What a report prints, and by Little's law what else must then be so.

    The users are a closed loop without think time: each always has one request in the system. A
    seat makes one token a step, and each step reads all weights once. `lone_tpot_s` is the pace of
    a request alone, None where it is not printed.
    """

    users: int
    seats: int
    output_tokens_per_s: float
    mean_output_tokens: int
    ttft_p95_s: float
    tpot_p95_s: float
    lone_tpot_s: float | None
    weights_bytes: float
    bandwidth_bytes_per_s: float

    @property
    def requests_per_s(self) -> float:
        """X, the finished requests per second."""
        return self.output_tokens_per_s / self.mean_output_tokens

    @property
    def time_in_system_s(self) -> float:
        """W = L/X, from sending to the last token, mean."""
        return self.users / self.requests_per_s

    @property
    def running(self) -> int:
        """How many of the users have a seat."""
        return min(self.users, self.seats)

    @property
    def waiting(self) -> int:
        """How many of the users have none."""
        return self.users - self.running

    @property
    def mean_wait_s(self) -> float:
        """Little's law of the queue: those waiting over the rate at which they are served."""
        return self.waiting / self.requests_per_s

    @property
    def slowest_wait_s(self) -> float:
        """What the slowest twentieth must wait on average if all others keep the printed P95."""
        return (self.mean_wait_s - 0.95 * self.ttft_p95_s) / 0.05

    @property
    def needed_tpot_s(self) -> float:
        """Little's law of the seats: the mean time a seat may take for one token."""
        return self.running / self.output_tokens_per_s

    @property
    def needed_tpot_low_s(self) -> float | None:
        """The same less a first token that took the printed P95; None where requests wait."""
        if self.waiting or self.mean_output_tokens < 2:
            return None
        decode_s = self.time_in_system_s - self.ttft_p95_s
        return max(decode_s, 0.0) / (self.mean_output_tokens - 1)

    @property
    def step_floor_s(self) -> float:
        """How long it takes to read the weights once, the least that a step can last."""
        return self.weights_bytes / self.bandwidth_bytes_per_s

    @property
    def most_tokens_per_s(self) -> float:
        """The most that the running seats can make at one token a step."""
        return self.running / self.step_floor_s

    @property
    def wait_fits(self) -> bool:
        """Whether the mean wait for a seat lies within the printed P95 of the TTFT."""
        return self.mean_wait_s <= _ROUNDING * self.ttft_p95_s

    @property
    def pace_fits(self) -> bool:
        """Whether the mean pace that the seats need lies within the printed P95."""
        low_s = self.needed_tpot_low_s
        return (self.needed_tpot_s if low_s is None else low_s) <= _ROUNDING * self.tpot_p95_s

    @property
    def rate_fits(self) -> bool:
        """Whether the tokens/s lie within what reading the weights allows."""
        return self.output_tokens_per_s <= _ROUNDING * self.most_tokens_per_s

    @property
    def fits(self) -> bool:
        """Whether nothing in the report contradicts the rest of it."""
        return self.wait_fits and self.pace_fits and self.rate_fits


# The rows of the picture: a head above each group, then (key, words, colour, hatch).
_PRINTED, _FOLLOWS, _BOUND = (ORANGE, "//"), (BLUE, ""), (GREEN, "-")
_GROUPS: Final[tuple[tuple[str, tuple[tuple[str, str, tuple[str, str]], ...]], ...]] = (
    ("Where the users are at any moment", (("users", "users", _FOLLOWS),)),
    (
        "Time until there is a seat, and a first token",
        (
            ("wait", "mean wait for a seat, follows", _FOLLOWS),
            ("ttft", "TTFT P95, printed", _PRINTED),
        ),
    ),
    (
        "Time a token",
        (
            ("needed", "mean that the seats need", _FOLLOWS),
            ("tpot", "TPOT P95, printed", _PRINTED),
            ("lone", "TPOT alone, printed", _PRINTED),
            ("floor", "the weights read once", _BOUND),
        ),
    ),
    (
        "Output tokens a second",
        (
            ("rate", "printed", _PRINTED),
            ("most", "most that the weights allow", _BOUND),
        ),
    ),
)


@dataclass(frozen=True)
class _Layout:
    """Places in points from the figure's left and upper edge."""

    width: float
    height: float
    font: float
    row: float
    head: float
    labels: float
    bars: float
    right: float


_PAGE: Final = _Layout(
    width=562, height=262, font=10, row=16.5, head=25, labels=196, bars=203, right=432
)
_PRESENT: Final = _Layout(
    width=500, height=325, font=12.5, row=21, head=31, labels=212, bars=219, right=362
)


class LittlesAuditPicture(Picture):
    """Bars in four groups: who is where, the wait, the pace, the tokens a second."""

    def build(self, figure: Figure) -> None:
        """Write all heads and labels, and make a bar and a figure for each row."""
        at = self.at = _PRESENT if self.present else _PAGE
        figure.set_size_inches(at.width / 72, at.height / 72)
        axes: Axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(0, at.width), ylim=(at.height, 0), xticks=[], yticks=[])
        axes.set_axis_off()
        self._axes = axes
        self._middle: dict[str, float] = {}
        self.bars: dict[str, PathPatch] = {}
        self.words: dict[str, Text] = {}
        self._verdicts: list[Text] = []
        y = 0.0
        for head, rows in _GROUPS:
            y += at.head
            base = y - 0.55 * at.font
            axes.text(6, base, head, fontsize=at.font, color=INK, fontweight="bold")
            self._verdicts.append(
                self.label(axes, INK, ha="right", fontsize=at.font, fontweight="bold")
            )
            self._verdicts[-1].set_position((at.width - 8, base))
            for key, words, (colour, hatch) in rows:
                self._build_row(key, words, colour, hatch, y + at.row / 2)
                y += at.row
        self._waiting = self._bar(ORANGE, "x")
        self.guess = self.star(axes, markersize=15, clip_on=False)
        self._scales: dict[str, float] = {"time": 0.0, "pace": 0.0, "rate": 0.0}

    def _build_row(self, key: str, words: str, colour: str, hatch: str, middle: float) -> None:
        at = self.at
        self._middle[key] = middle
        self._axes.text(
            at.labels, middle, words, ha="right", va="center_baseline", fontsize=at.font,
            color=TEXT_OF[colour],
        )  # fmt: skip
        self.bars[key] = self._bar(colour, hatch)
        self.words[key] = self._figure_words(colour)

    def _bar(self, colour: str, hatch: str) -> PathPatch:
        looks: dict[str, Any] = {"edgecolor": "white", "linewidth": 0, "zorder": 3}
        return self.area(self._axes, colour, hatch=hatch, **looks)

    def _figure_words(self, colour: str) -> Text:
        return self.label(self._axes, colour, va="center_baseline", fontsize=self.at.font)

    def update(self, result: LittlesAudit, guess: Point | None) -> None:
        """Move everything to `result`; a guess is a mean wait in seconds."""
        self._show_users(result)
        time = self._scale("time", result.mean_wait_s, result.ttft_p95_s)
        self._show("wait", result.mean_wait_s / time, seconds(result.mean_wait_s))
        self._show("ttft", result.ttft_p95_s / time, seconds(result.ttft_p95_s))
        self._show_pace(result)
        rate = self._scale("rate", result.output_tokens_per_s, result.most_tokens_per_s)
        printed, most = result.output_tokens_per_s, result.most_tokens_per_s
        requests = f"({rounded(result.requests_per_s)} req/s)"
        self._show("rate", printed / rate, f"{rounded(printed)} {requests}")
        self._show("most", most / rate, rounded(most))
        fits = (result.wait_fits, result.pace_fits, result.rate_fits)
        for text, fit in zip(self._verdicts[1:], fits, strict=True):
            words = "✓ fits" if fit else "✗ does not fit"
            text.set_color(TEXT_OF[GREEN if fit else ORANGE])
            place(text, *text.get_position(), words)
        self._show_guess(guess, time)

    def _scale(self, group: str, *values: float) -> float:
        self._scales[group] = held_limit(self._scales[group], max(values), shrink_below=0.4)
        return self._scales[group]

    def _show(self, key: str, share: float, words: str) -> None:
        at = self.at
        end = at.bars + (at.right - at.bars) * min(share, 1.0)
        self.bars[key].set_path(self._box(at.bars, end, self._middle[key]))
        place(self.words[key], end + 5, self._middle[key], words)

    def _box(self, left: float, right: float, middle: float) -> Path:
        half = 0.32 * self.at.row
        corners = [(left, middle - half), (right, middle - half), (right, middle + half)]
        return Path([*corners, (left, middle + half), (left, middle - half)], closed=True)

    def _show_users(self, result: LittlesAudit) -> None:
        """One bar for all users, split into those in seats and those who wait."""
        at, middle = self.at, self._middle["users"]
        border = at.bars + (at.right - at.bars) * result.running / result.users
        self.bars["users"].set_path(self._box(at.bars, border, middle))
        self._waiting.set_path(self._box(border, at.right, middle))
        place(self.words["users"], at.right + 5, middle, f"{result.users}")
        waiting = f", {result.waiting} waiting" if result.waiting else ", nobody waits"
        seats = "seat" if result.running == 1 else "seats"
        where = self._verdicts[0]
        where.set_color(TEXT_OF[ORANGE] if result.waiting else INK)
        place(where, *where.get_position(), f"{result.running} in {seats}{waiting}")

    def _show_pace(self, result: LittlesAudit) -> None:
        lone = result.lone_tpot_s
        scale = self._scale(
            "pace", result.needed_tpot_s, result.tpot_p95_s, result.step_floor_s, lone or 0.0
        )
        words, low_s = seconds(result.needed_tpot_s), result.needed_tpot_low_s
        if low_s is not None:
            low = rounded(1000 * low_s) if low_s < result.needed_tpot_s < 0.9995 else seconds(low_s)
            words = f"{low} … {words}"
        self._show("needed", result.needed_tpot_s / scale, words)
        self._show("tpot", result.tpot_p95_s / scale, seconds(result.tpot_p95_s))
        self._show("lone", (lone or 0.0) / scale, "–" if lone is None else seconds(lone))
        floor = f"at least {seconds(result.step_floor_s)}"
        self._show("floor", result.step_floor_s / scale, floor)

    def _show_guess(self, guess: Point | None, scale: float) -> None:
        if guess is None:
            self.guess.set_data([], [])
            return
        at = self.at
        x = at.bars + (at.right - at.bars) * min(max(guess[0] / scale, 0.0), 1.0)
        self.guess.set_data([x], [self._middle["wait"]])
