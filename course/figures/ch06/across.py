"""One artist for the same mark in several panels, as each artist costs a move its share of time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from course.figures.axes import Picture

_STEPS = 60


class Across:
    """A line in the data layer whose pieces lie in several panels, each in its own coordinates."""

    def __init__(self, picture: Picture, colour: str, **options: Any) -> None:
        figure = picture.figure
        line = Line2D([], [], color=colour, transform=figure.transFigure, **options)
        self._to_figure = figure.transFigure.inverted()
        self.artist: Line2D = picture.keep(figure.add_artist(line))

    def show(self, pieces: Iterable[tuple[Axes, npt.ArrayLike, npt.ArrayLike]]) -> None:
        """Draw each (panel, x, y) apart from the others; without pieces nothing."""
        gap = np.full((1, 2), np.nan)
        points = [np.empty((0, 2))]
        for axes, x, y in pieces:
            there = axes.transData.transform(np.column_stack([np.ravel(x), np.ravel(y)]))
            points += [self._to_figure.transform(there), gap]
        self.artist.set_data(*np.vstack(points).T)


def within(axes: Axes, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return a curve over rising `x` in small steps, NaN where it leaves the panel."""
    left, right = axes.get_xlim()
    low, high = axes.get_ylim()
    fine = np.linspace(max(left, x[0]), max(min(right, x[-1]), max(left, x[0])), _STEPS)
    heights = np.interp(fine, x, y)
    return fine, np.where((heights >= low) & (heights <= high), heights, np.nan)


def coarse_limit(
    current: float, needed: float, steps: Sequence[float], *, shrink_below: float = 0.15
) -> float:
    """Return an upper limit from a few `steps` that holds still as long as it can.

    The next step that holds `needed`, where it exceeds `current` or falls below `shrink_below` of
    it; the last step where none holds it.

    >>> steps = (5.0, 12.0, 40.0, 100.0)
    >>> [coarse_limit(40.0, needed, steps) for needed in (20.0, 4.0, 41.0)]
    [40.0, 5.0, 100.0]
    """
    if shrink_below * current <= needed <= current:
        return current
    return next((step for step in steps if needed <= step), steps[-1])
