"""Six requests on a time axis above what the tools print for them; both are computed elsewhere."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.path import Path

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    TEXT_OF,
    Picture,
    Point,
    held_limit,
    place,
)
from course.figures.ch01.cells import Cell, Cells
from course.serving.requests import Reported, RequestTimeline

NAMES: Final = "ABCDEF"


@dataclass(frozen=True)
class Metric:
    """A figure that tools print: its name, its two-line column head, whether it is a time."""

    name: str
    head: tuple[str, str]
    is_time: bool


METRICS: Final[dict[str, Metric]] = {
    "ttft_mean_s": Metric("mean TTFT", ("TTFT", "mean"), True),
    "ttft_p90_s": Metric("P90 of the TTFT", ("TTFT", "P90"), True),
    "tpot_mean_s": Metric("mean TPOT", ("TPOT", "mean"), True),
    "itl_mean_s": Metric("mean ITL", ("ITL", "mean"), True),
    "itl_p50_s": Metric("median ITL", ("ITL", "P50"), True),
    "itl_p99_s": Metric("P99 of the ITL", ("ITL", "P99"), True),
    "e2e_mean_s": Metric("mean E2E", ("E2E", "mean"), True),
    "requests_per_s": Metric("requests per second", ("req", "/s"), False),
    "output_tokens_per_s": Metric("output tokens per second", ("tokens", "/s"), False),
    "goodput_per_s": Metric("goodput", ("good", "/s"), False),
}
"""The columns of the table by their field in `Reported`, in their order."""

# Few enough that each frame is soon drawn once and kept.
_TIME_LIMITS_MS: Final = (1400, 2000, 2600, 3600)

# A projector has no room for ten columns in its large type.
_IN_PRESENT_MODE: Final = (
    "ttft_mean_s", "tpot_mean_s", "itl_mean_s", "e2e_mean_s", "requests_per_s",
    "output_tokens_per_s", "goodput_per_s",
)  # fmt: skip


@dataclass(frozen=True)
class ToolRow:
    """One tool's answer: its name, its rule for the metric, its figures; `ours`: the course."""

    tool: str
    rule: str
    reported: Reported
    ours: bool = False

    def value(self, metric: str) -> float | None:
        """The figure as the table prints it: times in ms, rates per second."""
        found: float | None = getattr(self.reported, metric)
        return found if found is None or not METRICS[metric].is_time else 1000 * found

    def printed(self, metric: str) -> str:
        """The figure in the table's digits, a dash where the tool has none."""
        return printed(self.value(metric), METRICS[metric].is_time)


@dataclass(frozen=True)
class ManyTools:
    """The six requests, the stopwatch around them (s), the chosen metric, and every tool's row.

    `rows` holds the tools in the lesson's order, then the course's own answer.
    """

    requests: tuple[RequestTimeline, ...]
    stopwatch_s: float
    metric: str
    rows: tuple[ToolRow, ...]

    @property
    def tools(self) -> tuple[ToolRow, ...]:
        """The rows of the tools, without the course's own."""
        return tuple(row for row in self.rows if not row.ours)

    @property
    def smallest(self) -> ToolRow | None:
        """The tool that prints the smallest figure (the first of several), if any prints one."""
        return min(self._printing(), key=self._size, default=None)

    @property
    def largest(self) -> ToolRow | None:
        """The tool that prints the largest figure (the first of several), if any prints one."""
        return max(self._printing(), key=self._size, default=None)

    @property
    def different(self) -> int:
        """How many different figures the tools print."""
        return len({row.printed(self.metric) for row in self._printing()})

    @property
    def silent(self) -> tuple[ToolRow, ...]:
        """The tools that print no such figure."""
        return tuple(row for row in self.tools if row.value(self.metric) is None)

    @property
    def factor(self) -> float | None:
        """Largest over smallest figure; None where there is none or the smallest is 0."""
        if self.smallest is None or self.largest is None or not self._size(self.smallest):
            return None
        return self._size(self.largest) / self._size(self.smallest)

    def _printing(self) -> list[ToolRow]:
        return [row for row in self.tools if row.value(self.metric) is not None]

    def _size(self, row: ToolRow) -> float:
        value = row.value(self.metric)
        assert value is not None
        return value


def printed(value: float | None, is_time: bool) -> str:
    """Return a figure in the digits of the lesson's table, a dash for None.

    >>> [printed(v, True) for v in (288.0, 53.5714, 262.66, None)]
    ['288', '53.57', '262.7', '–']
    >>> [printed(v, False) for v in (3.84615, 19.2307, 0.0)]
    ['3.846', '19.23', '0']
    """
    if value is None:
        return "–"
    most, border = (2, 99.995) if is_time else (3, 9.9995)
    decimals = most if value < border else most - 1
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if is_time or not value else text


@dataclass(frozen=True)
class _Layout:
    """Where the table's parts stand, in points from the figure's left and upper edge."""

    width: float
    height: float
    font: float
    columns: tuple[str, ...]
    first_right: float
    pitch_x: float
    bars: tuple[float, float]
    timeline_left: float

    def right_of(self, column: int) -> float:
        return self.first_right + self.pitch_x * column


_PAGE: Final = _Layout(
    width=590, height=418, font=9.2, columns=tuple(METRICS), first_right=137, pitch_x=38.5,
    bars=(497, 583), timeline_left=30,
)  # fmt: skip
_PRESENT: Final = _Layout(
    width=520, height=445, font=12.4, columns=_IN_PRESENT_MODE, first_right=170, pitch_x=45.5,
    bars=(453, 513), timeline_left=34,
)  # fmt: skip


class ManyToolsPicture(Picture):
    """A row of dots a request, sized by tokens; a row of figures a tool, and bars beside it."""

    least_px = 510

    def build(self, figure: Figure) -> None:
        """Make the time axis, the table's frame for few and for all tools, and empty artists."""
        self.at = _PRESENT if self.present else _PAGE
        figure.set_size_inches(self.at.width / 72, self.at.height / 72)
        self._time: Axes = figure.add_axes((0, 0.5, 1, 0.5))
        self._table: Axes = figure.add_axes((0, 0, 1, 1))
        self._table.set(xlim=(0, self.at.width), ylim=(self.at.height, 0), xticks=[], yticks=[])
        self._table.set_axis_off()
        self._build_time()
        self._build_table()
        self._rows: tuple[str, ...] = ()
        self.scale = 0.0
        self._metric = ""

    # --- the requests -----------------------------------------------------------------------

    def _build_time(self) -> None:
        axes = self._time
        axes.set(xlim=(-20, 1400), ylim=(len(NAMES) - 0.4, -0.6))
        axes.set_yticks(range(len(NAMES)), list(NAMES))
        axes.tick_params(axis="y", length=0)
        axes.spines["left"].set_visible(False)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("ms since the load generator began", labelpad=1)
        wide = 1.4 if self.present else 1.0
        self._spans = self.line(axes, MUTED, linewidth=1.0 * wide, zorder=2)
        self.held = self.line(axes, PURPLE, linewidth=2.2 * wide, linestyle=(0, (1, 1.2)), zorder=2)
        self._sent = self.line(
            axes, INK, marker="|", markersize=11 * wide, markeredgewidth=1.6 * wide, linestyle="",
            zorder=3,
        )  # fmt: skip
        self._ends = self.line(
            axes, MUTED, marker="|", markersize=7 * wide, markeredgewidth=1.2 * wide, linestyle="",
            zorder=3,
        )  # fmt: skip
        self._failed = self.line(
            axes, ORANGE, marker="X", markersize=9 * wide, linestyle="", zorder=5,
            markeredgecolor="white", markeredgewidth=0.8,
        )  # fmt: skip
        dots = axes.scatter([], [], color=BLUE, edgecolors="white", linewidths=0.7, zorder=4)
        self.chunks: PathCollection = self.keep(dots)
        self.sizes: Cells = self.keep(
            Cells(axes, ha="center", fontsize=self.at.font - 1, color=TEXT_OF[BLUE], zorder=6)
        )
        self._stopwatch = self.line(
            axes, INK, linewidth=1.2, linestyle=(0, (4, 2)), zorder=1, clip_on=False
        )
        self._stopwatch_words = self.label(axes, INK, ha="right", va="bottom")
        self._legend()

    def _legend(self) -> None:
        def mark(colour: str, marker: str, size: float, words: str, **more: Any) -> Line2D:
            return Line2D(
                [], [], color=colour, marker=marker, markersize=size, linestyle="", label=words,
                **more,
            )  # fmt: skip

        handles = [
            mark(INK, "|", 9, "sent", markeredgewidth=1.6),
            mark(BLUE, "o", 6, "chunk (number: tokens)"),
            mark(ORANGE, "X", 8, "failed", markeredgecolor="white"),
            Line2D([], [], color=PURPLE, linewidth=2.2, linestyle=(0, (1, 1.2)), label="held back"),
        ]
        height = self.at.height
        self._time.figure.legend(
            handles=handles, loc="upper left", ncols=4, handletextpad=0.3, columnspacing=1.1,
            bbox_to_anchor=(0.0, 1 + 3 / height), borderpad=0.2, handlelength=1.3,
            fontsize=self.at.font,
        )  # fmt: skip

    def _show_requests(self, result: ManyTools) -> None:
        axes = self._time
        stopwatch = 1000 * result.stopwatch_s
        right = axes.get_xlim()[1]
        if not 0.6 * right <= stopwatch <= right:
            right = next(limit for limit in _TIME_LIMITS_MS if limit >= stopwatch)
        axes.set_xlim(-0.014 * right, right)
        spans: tuple[list[float], list[float]] = ([], [])
        held: tuple[list[float], list[float]] = ([], [])
        dots: list[tuple[float, int, int]] = []
        for row, request in enumerate(result.requests):
            scheduled, sent, end = (
                1000 * at for at in (request.scheduled_s, request.sent_s, request.end_s)
            )
            _add(spans, sent, end, row)
            if sent > scheduled:
                _add(held, scheduled, sent, row)
            dots += [(1000 * at, row, tokens) for at, tokens in request.chunks]
        self._spans.set_data(*spans)
        self.held.set_data(*held)
        rows = range(len(result.requests))
        self._sent.set_data([1000 * r.sent_s for r in result.requests], rows)
        answered = [(1000 * r.end_s, i) for i, r in enumerate(result.requests) if not r.error]
        failed = [(1000 * r.end_s, i) for i, r in enumerate(result.requests) if r.error]
        self._ends.set_data([x for x, _ in answered], [y for _, y in answered])
        self._failed.set_data([x for x, _ in failed], [y for _, y in failed])
        self._show_dots(dots)
        self._stopwatch.set_data([stopwatch] * 2, [len(NAMES) - 0.4, -0.6])
        place(self._stopwatch_words, right, -0.74, f"stopwatch {stopwatch:,.0f} ms")

    def _show_dots(self, dots: list[tuple[float, int, int]]) -> None:
        grown = 1.7 if self.present else 1.0
        self.chunks.set_offsets([(x, y) for x, y, _ in dots])
        self.chunks.set_sizes([grown * (26 + 30 * min(tokens - 1, 7)) for _, _, tokens in dots])
        self.sizes.show([(x, y - 0.3, str(tokens)) for x, y, tokens in dots if tokens > 1])

    # --- the table --------------------------------------------------------------------------

    def _build_table(self) -> None:
        axes, at = self._table, self.at
        self.names: dict[tuple[str, ...], list[Any]] = {}
        self._heads = [
            axes.text(
                at.right_of(column), 0, "\n".join(METRICS[field].head), ha="right", va="bottom",
                fontsize=at.font, color=MUTED, linespacing=1.05,
            )
            for column, field in enumerate(at.columns)
        ]  # fmt: skip
        self._unit = axes.text(
            8, 0, "times in ms", ha="left", va="bottom", fontsize=at.font, color=MUTED
        )
        self._rule = axes.plot([], [], color=MUTED, linewidth=0.8)[0]
        self._own_rule = axes.plot([], [], color=MUTED, linewidth=0.5)[0]
        self.band: Rectangle = self.keep(
            axes.add_patch(
                Rectangle((0, 0), at.pitch_x, 10, facecolor="#dcebf5", linewidth=0, zorder=0.5)
            )
        )
        self.figures: Cells = self.keep(Cells(axes, fontsize=at.font, color=INK, zorder=4))
        self.tool_bars = self.area(axes, BLUE, linewidth=0, zorder=3)
        self._own_bar = self.area(axes, GREEN, hatch="///", edgecolor="white", linewidth=0)
        self._bars_head = self.label(axes, BLUE, ha="left", va="bottom", fontsize=at.font)
        self._guess_rule = self.line(axes, PURPLE, linewidth=1.4, linestyle=(0, (1, 2)), zorder=5)
        self.guess_star = self.star(axes, markersize=13, clip_on=False)

    def _lay_out(self, rows: tuple[ToolRow, ...]) -> None:
        """Give the table the height that its rows need, and the rest to the requests."""
        names = tuple(row.tool for row in rows)
        if names == self._rows:
            return
        self._rows = names
        at = self.at
        few = len(rows) < 8
        self._pitch = at.font * (1.9 if few else 1.42)
        self.top = at.height - self._pitch * len(rows) - 7
        if names not in self.names:
            self.names[names] = [
                self._table.text(
                    8, self._base_of(i), name, ha="left", va="baseline", fontsize=at.font,
                    color=TEXT_OF[GREEN] if rows[i].ours else INK,
                )
                for i, name in enumerate(names)
            ]  # fmt: skip
        for key, texts in self.names.items():
            for text in texts:
                text.set_visible(key == names)
        for head in (*self._heads, self._unit):
            head.set_y(self.top - 3)
        self._rule.set_data([5, at.width - 5], [self.top] * 2)
        own = self.top + self._pitch * (len(rows) - 1)
        self._own_rule.set_data([5, at.width - 5], [own] * 2)
        heads_height = 3.4 * at.font
        foot = (34 if self.present else 27) + heads_height
        time_top = (38 if self.present else 28) / at.height
        bottom = (at.height - self.top + foot) / at.height
        left = at.timeline_left / at.width
        self._time.set_position((left, bottom, 1 - 20 / at.width - left, 1 - time_top - bottom))

    def _base_of(self, row: int) -> float:
        return self.top + self._pitch * (row + 0.5) + 0.36 * self.at.font

    def frame_key(self) -> tuple[object, ...]:
        """The names of the tools belong to the frame, and with them the place of everything."""
        return (*super().frame_key(), self._rows)

    def update(self, result: ManyTools, guess: Point | None) -> None:
        """Move everything to `result`; the guess is a factor on the smallest bar."""
        self._lay_out(result.rows)
        self._show_requests(result)
        at = self.at
        cells: list[Cell] = [
            (at.right_of(column), self._base_of(i), row.printed(field))
            for i, row in enumerate(result.rows)
            for column, field in enumerate(at.columns)
        ]
        self.figures.show(cells)
        shown = result.metric in at.columns
        self.band.set_visible(shown)
        if shown:
            left = at.right_of(at.columns.index(result.metric)) - at.pitch_x + 3.5
            self.band.set_bounds(left, self.top, at.pitch_x, self._pitch * len(result.rows))
        self._show_bars(result, guess)

    def _show_bars(self, result: ManyTools, guess: Point | None) -> None:
        values = [row.value(result.metric) for row in result.rows]
        most = max([v for v in values if v is not None], default=0.0)
        if result.metric != self._metric:
            self._metric, self.scale = result.metric, 0.0
        self.scale = held_limit(self.scale, most, shrink_below=0.4)
        left, right = self.at.bars
        half = 0.3 * self._pitch
        boxes: tuple[list[Path], list[Path]] = ([], [])
        for i, (row, value) in enumerate(zip(result.rows, values, strict=True)):
            if value:
                middle = self.top + self._pitch * (i + 0.5)
                long = (right - left) * value / self.scale
                boxes[row.ours].append(_box(left, left + long, middle - half, middle + half))
        empty = Path(np.empty((0, 2)))
        for patch, paths in ((self.tool_bars, boxes[0]), (self._own_bar, boxes[1])):
            patch.set_path(Path.make_compound_path(*paths) if paths else empty)
        head = METRICS[result.metric].head
        unit = "ms" if METRICS[result.metric].is_time else ""
        place(self._bars_head, left, self.top - 3, f"{head[0]}\n{head[1]} {unit}".rstrip())
        self._show_guess(result, guess)

    def _show_guess(self, result: ManyTools, guess: Point | None) -> None:
        least = None if result.smallest is None else result.smallest.value(result.metric)
        if guess is None or not least:
            self._guess_rule.set_data([], [])
            self.guess_star.set_data([], [])
            return
        left, right = self.at.bars
        x = left + (right - left) * min(max(guess[0] * least / self.scale, 0.0), 1.0)
        foot = self.top + self._pitch * (len(result.rows) - 1)
        self._guess_rule.set_data([x, x], [self.top, foot])
        self.guess_star.set_data([x], [self.top])


def _box(left: float, right: float, low: float, high: float) -> Path:
    corners = [(left, low), (right, low), (right, high), (left, high), (left, low)]
    return Path(np.array(corners), closed=True)


def _add(line: tuple[list[float], list[float]], start: float, end: float, row: int) -> None:
    """Add a stroke to a line broken by NaNs."""
    line[0].extend((start, end, math.nan))
    line[1].extend((row, row, math.nan))
