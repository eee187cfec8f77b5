"""A learner's guess on logarithmic axes, and bands stacked between curves; no lesson's content."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.path import Path
from matplotlib.text import Text

from course.figures.axes import NOTHING, PURPLE, Picture, Point, place
from course.figures.labels import GROUND

FloatArray = npt.NDArray[np.floating[Any]]


class LogGuess:
    """A star where the learner's guess lies and its words beside it, on axes of any scale.

    Words stand to the right of the star where its place, as a share of the width, is below
    `turn_at`; `gap` is the height of a line as a share of the axes.
    """

    def __init__(
        self,
        picture: Picture,
        axes: Axes,
        *,
        lead: str = "your guess",
        turn_at: float = 0.6,
        gap: float = 0.07,
    ) -> None:
        self._axes, self._turn_at, self._lead = axes, turn_at, lead
        self._gap = 1.35 * gap if picture.present else gap
        self.star = picture.star(axes, zorder=8)
        self.words = picture.label(axes, PURPLE, va="center", zorder=10, bbox=GROUND)

    def show(self, guess: Point | None, words: str, avoid: Text | None = None) -> None:
        """Draw `guess` = (x, y), at the edge where it lies outside; None hides it.

        Its words keep a line away from those of `avoid`, which stand near the right answer.
        """
        if guess is None:
            self.star.set_data([], [])
            place(self.words, 0, 0, "")
            return
        x, y = self._share(self._drawable(guess))
        x, y = min(max(x, 0.02), 0.98), min(max(y, 0.04), 0.95)
        star = self._point(x, y)
        self.star.set_data([star[0]], [star[1]])
        right = x < self._turn_at
        self.words.set_horizontalalignment("left" if right else "right")
        beside = self._point(x + (0.025 if right else -0.025), self._apart(y, avoid))
        place(self.words, beside[0], beside[1], f"{self._lead} {words}")

    def _apart(self, y: float, avoid: Text | None) -> float:
        """Move a height away from the middle of the words to avoid, upwards or downwards."""
        if avoid is None or not avoid.get_visible():
            return y
        middle = self._share(avoid.get_position())[1]
        half = {"bottom": 0.5, "top": -0.5}.get(avoid.get_verticalalignment(), 0.0)
        middle += half * self._gap
        if abs(y - middle) >= self._gap:
            return y
        above = middle + self._gap
        return above if y >= middle - 0.5 * self._gap and above < 0.97 else middle - self._gap

    def _share(self, point: Point) -> Point:
        """A point of the data as shares of the axes' width and height."""
        x, y = (self._axes.transData - self._axes.transAxes).transform(point)
        return float(x), float(y)

    def _point(self, x: float, y: float) -> Point:
        at_x, at_y = (self._axes.transAxes - self._axes.transData).transform((x, y))
        return float(at_x), float(at_y)

    def _drawable(self, guess: Point) -> Point:
        """The guess, or the lower corner where a logarithmic axis has no place for it."""
        x, y = guess
        if self._axes.get_xscale() == "log":
            x = max(x, self._axes.get_xlim()[0])
        if self._axes.get_yscale() == "log":
            y = max(y, self._axes.get_ylim()[0])
        return x, y


def between(x: FloatArray, low: FloatArray, high: FloatArray) -> Path:
    """Return the area between two curves over the same `x` as one closed path.

    Fewer than two points enclose nothing, and give an empty path.

    >>> len(between(np.array([1.0, 2.0]), np.zeros(2), np.ones(2)).vertices)
    5
    """
    if x.size < 2:
        return NOTHING
    there = np.column_stack([x, high])
    back = np.column_stack([x[::-1], low[::-1]])
    corners = np.vstack([there, back, there[:1]])
    codes = np.full(len(corners), Path.LINETO)
    codes[0], codes[-1] = Path.MOVETO, Path.CLOSEPOLY
    return Path(corners, codes)


def boxes(
    start: FloatArray, end: FloatArray, low: FloatArray, high: FloatArray, *, least: float = 0.0
) -> Path:
    """Return boxes as one path, which is drawn far faster than a patch for each.

    All of shape (boxes,); boxes no wider than `least` are left out.

    >>> low, high = np.zeros(2), np.ones(2)
    >>> len(boxes(np.array([0.0, 1.0]), np.array([2.0, 1.0]), low, high).vertices)
    5
    """
    kept = end - start > least
    if not kept.any():
        return NOTHING
    start, end, low, high = start[kept], end[kept], low[kept], high[kept]
    around = ((start, low), (end, low), (end, high), (start, high), (start, low))
    corners = np.stack([np.column_stack(corner) for corner in around], axis=1)
    codes = np.tile([Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY], start.size)
    return Path(corners.reshape(-1, 2), codes)
