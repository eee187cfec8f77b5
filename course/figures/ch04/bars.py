"""Small panels of bars beside a timeline, the values at their ends; no lesson's content."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from course.figures.axes import PURPLE, Picture, held_limit, place
from course.figures.marks import boxes

_HALF = 0.36


class BarPanel:
    """Horizontal bars, a row each, that belong to the data layer of a picture.

    `looks`: (colour, hatch) of each row. Values stand at the ends of the bars instead of ticks, so
    that another scale leaves the frame as it is. Below the rows is room for a learner's guess.
    """

    def __init__(
        self,
        picture: Picture,
        figure: Figure,
        box: tuple[float, float, float, float],
        title: str,
        rows: Sequence[str],
        looks: Sequence[tuple[str, str]],
        words: Callable[[float], str],
    ) -> None:
        self.words = words
        self.top = 1.0
        axes = self.axes = figure.add_axes(box)
        axes.set(xlim=(0, 1), ylim=(len(rows) + 0.5, -0.6), xticks=[])
        axes.set_yticks(range(len(rows)), rows, fontsize="small")
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False)
        axes.spines["bottom"].set_visible(False)
        axes.set_title(title, loc="right", fontsize="medium")
        edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.3, "zorder": 3}
        self.bars = [picture.area(axes, colour, hatch=hatch, **edge) for colour, hatch in looks]
        self.values = [picture.label(axes, va="center", zorder=6, fontsize="small") for _ in rows]
        self.star = picture.star(axes, zorder=8)
        self.guess = picture.label(axes, PURPLE, va="center", ha="right", zorder=8)

    def show(
        self,
        values: Sequence[float],
        *,
        scale_for: float = 0.0,
        guess: tuple[float, float] | None = None,
        bold: int | None = None,
    ) -> None:
        """Draw the bars, and the star of a `guess` = (value, row).

        `scale_for`: a value that would also have room, where two panels share a scale; row `bold`
        has its value in bold type and the others are paler.
        """
        highest = max(*values, scale_for, 1e-9)
        wanted = min(guess[0], 2.5 * highest) if guess else 0.0
        needed = 1.35 * max(highest, wanted)
        self.top = held_limit(self.top, needed, shrink_below=0.3)
        for row, (bar, text, value) in enumerate(zip(self.bars, self.values, values, strict=True)):
            share = value / self.top
            left, right, low, high = (np.array([v]) for v in (0.0, share, row - _HALF, row + _HALF))
            bar.set_path(boxes(left, right, low, high))
            if guess and row == round(guess[1]) and -0.03 < guess[0] / self.top - share < 0.32:
                share = guess[0] / self.top + 0.05  # clear of the star
            bar.set_alpha(1.0 if bold in (None, row) else 0.4)
            text.set_fontweight("bold" if row == bold else "normal")
            place(text, share + 0.015, row, self.words(value))
        self._show_guess(guess, len(values))

    def _show_guess(self, guess: tuple[float, float] | None, below: float) -> None:
        if guess is None:
            self.star.set_data([], [])
            place(self.guess, 0, 0, "")
            return
        self.star.set_data([min(max(guess[0] / self.top, 0.0), 0.98)], [guess[1]])
        place(self.guess, 0.98, below, f"your guess {self.words(guess[0])}")
