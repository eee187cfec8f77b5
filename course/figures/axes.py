"""Shared pieces of every figure: palette, sizes, limits that hold still; no lesson's content."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.text import Text

# Okabe & Ito (2008), "Color Universal Design": told apart with any colour vision. Each is always
# joined by a second cue (dash, marker, hatch). TEXT_OF darkens them to 4.5:1 on white.
BLUE: Final = "#0072B2"
ORANGE: Final = "#D55E00"
GREEN: Final = "#009E73"
PURPLE: Final = "#CC79A7"
YELLOW: Final = "#E69F00"
SKY: Final = "#56B4E9"
INK: Final = "#222222"
MUTED: Final = "#595959"
GRID: Final = "#e3e3e3"
TEXT_OF: Final = {
    BLUE: "#00639c",
    ORANGE: "#b34700",
    GREEN: "#00704f",
    PURPLE: "#9c3f73",
    YELLOW: "#8a5a00",
    SKY: "#1f6f9f",
}

_BASE: Final = {
    # Verdana shares DejaVu's widths, so text laid out here also fits where DejaVu is missing.
    "font.family": ["DejaVu Sans"],
    "svg.fonttype": "none",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": INK,
    "axes.grid": True,
    "axes.axisbelow": True,
    # A fixed height; to find one, matplotlib would lay out every tick label once more.
    "axes.titley": 1.0,
    "grid.color": GRID,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "text.color": INK,
}
_PAGE: Final = {"font.size": 10.0, "lines.linewidth": 2.0, "lines.markersize": 7.0}
_PRESENT: Final = {"font.size": 13.2, "lines.linewidth": 2.6, "lines.markersize": 9.0}

FloatArray = npt.NDArray[np.float64]
Point = tuple[float, float]

NOTHING = Path(np.empty((0, 2)))
"""A path that draws nothing."""

Q = ParamSpec("Q")
T = TypeVar("T")


def style(present: bool = False) -> Any:
    """Return the rc settings of the page, or of present mode (large type, thick lines)."""
    return {**_BASE, **(_PRESENT if present else _PAGE)}


def styled(draw: Callable[Q, T]) -> Callable[Q, T]:
    """Decorate a function that builds a figure so that it is drawn in the page's style."""

    def wrapper(*args: Q.args, **kwargs: Q.kwargs) -> T:
        with mpl.rc_context(style()):
            return draw(*args, **kwargs)

    wrapper.__doc__ = draw.__doc__
    wrapper.__name__ = draw.__name__
    return wrapper


class Picture:
    """Base of an explorer's drawing: a persistent figure whose data artists are kept in a list.

    A subclass makes its artists in `build` through `line`, `band`, `points` and `label`, and moves
    them in `update`. Whatever else is on the figure belongs to the frame.
    """

    size: tuple[float, float] = (7.6, 4.2)
    least_px: int = 560

    def __init__(self, present: bool = False) -> None:
        self._data: list[Artist] = []
        self.present = present
        width, height = self.size
        scale = 0.86 if present else 1.0
        with mpl.rc_context(style(present)):
            self._figure = Figure(figsize=(width * scale, height * scale), dpi=72)
            self.build(self._figure)

    @property
    def figure(self) -> Figure:
        """The one figure, made once and kept."""
        return self._figure

    def build(self, figure: Figure) -> None:
        """Make axes, legend and (empty) data artists."""
        raise NotImplementedError

    def data(self) -> Iterable[Artist]:
        """The artists of the data layer."""
        return self._data

    def frame_key(self) -> tuple[object, ...]:
        """Limits, scales and words of all axes: the frame is redrawn when one of them changes."""
        return tuple(
            (
                axes.get_xlim(),
                axes.get_ylim(),
                axes.get_xscale(),
                axes.get_yscale(),
                axes.get_xlabel(),
                axes.get_ylabel(),
                axes.get_title(loc="left"),
                axes.get_position().bounds,
            )
            for axes in self._figure.axes
        )

    def line(self, axes: Axes, colour: str, **options: Any) -> Line2D:
        """Add an empty line to the data layer."""
        (artist,) = axes.plot([], [], color=colour, **options)
        self._data.append(artist)
        return artist

    def label(self, axes: Axes, colour: str = INK, **options: Any) -> Text:
        """Add an empty text to the data layer, placed in data coordinates by `place`."""
        artist = axes.text(0, 0, "", color=TEXT_OF.get(colour, colour), **options)
        self._data.append(artist)
        return artist

    def area(self, axes: Axes, colour: str, **options: Any) -> PathPatch:
        """Add an empty area to the data layer."""
        artist = PathPatch(NOTHING, facecolor=colour, **options)
        self._data.append(axes.add_patch(artist))
        return artist

    def star(self, axes: Axes, **options: Any) -> Line2D:
        """Add the star of a learner's guess, not yet drawn, to the data layer."""
        looks = {"markersize": 17, "markeredgecolor": INK, "markeredgewidth": 0.8, "zorder": 7}
        return self.line(axes, PURPLE, marker="*", linestyle="", **{**looks, **options})

    def keep(self, artist: Artist) -> Any:
        """Move any artist that was added to the figure into the data layer."""
        self._data.append(artist)
        return artist


class GuessMark:
    """A star where the learner's guess lies, its value written on a line to the axis."""

    def __init__(self, picture: Picture, axes: Axes) -> None:
        self._rule = picture.line(axes, PURPLE, linewidth=1.2, linestyle=(0, (1, 2)), zorder=2)
        self.star = picture.star(axes)
        self.words = picture.label(axes, PURPLE, va="bottom", ha="left", zorder=8)
        self._axes = axes

    def show(
        self,
        guess: Point | None,
        top: float,
        words: Callable[[float], str],
        *,
        beside: bool = False,
    ) -> None:
        """Draw `guess` = (x, y), at the upper edge where it lies above `top`; None hides it.

        Its words stand on a line to the axis, or `beside` the star where x was guessed, not y.
        """
        if guess is None:
            self.star.set_data([], [])
            self._rule.set_data([], [])
            place(self.words, 0, 0, "")
            return
        left, right = self._axes.get_xlim()
        x, value = min(max(guess[0], left), right), guess[1]
        y = min(max(value, 0.0), 0.93 * top)
        self.star.set_data([x], [y])
        self._rule.set_data([] if beside else [left, x], [] if beside else [y, y])
        if beside:
            self.words.set_horizontalalignment("center")
            place(self.words, x, y + 0.04 * top, f"your guess {words(value)}")
            return
        self.words.set_horizontalalignment("left")
        beyond = " (above the picture)" if value > top else ""
        place(self.words, left + 0.012 * (right - left), y, f"your guess {words(value)}{beyond}")


def place(text: Text, x: float, y: float, words: str) -> None:
    """Move `text` to (x, y) and set its words; empty words hide it."""
    text.set_position((x, y))
    text.set_text(words)
    text.set_visible(bool(words))


def no_steady_state(axes: Axes, right: float, *, words: bool = True) -> None:
    """Hatch the loads from 1 to `right`, where a queue grows without end; part of the frame."""
    axes.axvspan(1.0, right, facecolor="#f2f2f2", edgecolor="#bdbdbd", hatch="//", linewidth=0)
    if words:
        axes.text(
            (1 + right) / 2, 0.5, "no steady state", rotation=90, va="center", ha="center",
            color=MUTED, transform=axes.get_xaxis_transform(),
        )  # fmt: skip


def bars(
    bands: Iterable[tuple[float, Point | None]], cap: float = 0.0
) -> tuple[list[float], list[float]]:
    """Return (x, y) of vertical bars as one line broken by NaNs; a band of None draws nothing.

    `cap` is half the width of the strokes across their ends. One path is drawn far faster than
    markers would be.

    >>> bars([(0.5, (1.0, 2.0)), (0.9, None)])
    ([0.5, 0.5, nan], [1.0, 2.0, nan])
    """
    x: list[float] = []
    y: list[float] = []
    for at, band in bands:
        if band is None:
            continue
        low, high = band
        if cap:
            left, right = at - cap, at + cap
            x += [left, right, math.nan, left, right, math.nan]
            y += [low, low, math.nan, high, high, math.nan]
        x += [at, at, math.nan]
        y += [low, high, math.nan]
    return x, y


def nice_ceiling(value: float, steps: Sequence[float] = (1.0, 2.0, 5.0)) -> float:
    """Return the smallest of `steps`, times a power of ten, that is not below `value`.

    >>> [nice_ceiling(v) for v in (0.9, 1.3, 2.1, 72.0)]
    [1.0, 2.0, 5.0, 100.0]
    """
    if not value > 0 or not math.isfinite(value):
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    # Rounded, so that 12 × 0.1 and 1.2 × 1 are one limit and one frame. The relative slack keeps
    # 0.3 / 0.1 = 2.9999… from taking a step more than 3 would.
    limits = (float(f"{step * power:.12g}") for step in (*steps, 10.0))
    return next(limit for limit in limits if value <= limit * (1 + 1e-12))


def held_limit(
    current: float,
    needed: float,
    *,
    shrink_below: float = 0.25,
    steps: Sequence[float] = (1.0, 2.0, 5.0),
) -> float:
    """Return an upper axis limit that holds still until the data leaves it or uses little of it.

    The limit snaps to `nice_ceiling(needed, steps)` where `needed` exceeds `current` or falls below
    `shrink_below` of it; otherwise `current` stands, so that what moves on the screen is the data.

    >>> held_limit(5.0, 3.0), held_limit(5.0, 7.0), held_limit(5.0, 0.4)
    (5.0, 10.0, 0.5)
    """
    if shrink_below * current <= needed <= current:
        return current
    return nice_ceiling(needed, steps)


held_top = partial(held_limit, shrink_below=0.45, steps=(1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0))
"""The same in finer steps: a curve that ends where memory is full would otherwise often have half a
panel above it."""
