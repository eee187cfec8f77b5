"""A load over time with a burst in it: its numbers per bin, and the shading; no run is here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from course.figures.axes import BLUE, INK, MUTED, ORANGE, SKY, YELLOW, FloatArray, Picture, place
from course.figures.labels import GROUND
from course.figures.marks import between

OUTCOMES = {
    "good": (BLUE, "", "answered in time"),
    "late": (SKY, "\\\\\\\\", "late"),
    "refused": (YELLOW, "||||", "refused"),
    "gave_up": (ORANGE, "////", "gave up"),
}
"""What may become of an attempt or a request -> colour, hatch, words.

No dotted hatch: it is drawn as hundreds of small circles, and slows a slider down.
"""


@dataclass(frozen=True, eq=False)
class OverTime:
    """Rates and shares in bins of time; arrays of shape (bins,), `edges_s` of (bins + 1,).

    `offered_per_s`, `good_per_s`: requests first sent in the bin, and those of them that were
    answered in time. `attempts_per_s`: sendings, retries among them. `shares`: what became of what
    was sent in the bin, by the names of `OUTCOMES`.
    """

    edges_s: FloatArray
    offered_per_s: FloatArray
    good_per_s: FloatArray
    attempts_per_s: FloatArray
    shares: dict[str, FloatArray]
    burst_s: tuple[float, float]

    @property
    def middle_s(self) -> FloatArray:
        """The middles of the bins."""
        middles: FloatArray = (self.edges_s[1:] + self.edges_s[:-1]) / 2
        return middles


class BurstShade:
    """The burst as a hatched stretch, with words over what lies before, in and after it."""

    def __init__(self, picture: Picture, axes: Axes, *, words: bool = True) -> None:
        self._axes = axes
        self._span: Rectangle = picture.keep(
            axes.axvspan(
                0, 1, facecolor="#f0f0f0", edgecolor="#cfcfcf", hatch="//", linewidth=0, zorder=0.5
            )
        )
        size = 10.5 if picture.present else 9.0
        looks: dict[str, Any] = {
            "ha": "center", "va": "top", "fontsize": size, "linespacing": 1.2, "zorder": 9,
            "transform": axes.get_xaxis_transform(), "bbox": GROUND,
        }  # fmt: skip
        self.words = [picture.label(axes, INK, **looks) for _ in range(3)] if words else []

    def show(self, burst_s: tuple[float, float], words: tuple[str, str, str] = ("",) * 3) -> None:
        """Move the stretch, and set the words before, in and after it; empty ones hide theirs."""
        start_s, end_s = burst_s
        left, right = self._axes.get_xlim()
        self._span.set_x(start_s)
        self._span.set_width(end_s - start_s)
        middles = ((left + start_s) / 2, (start_s + end_s) / 2, (end_s + right) / 2)
        for text, x, said in zip(self.words, middles, words, strict=False):
            place(text, x, 0.975, said)


class StackedShares:
    """Shares of what was sent at each time, stacked to 100 %."""

    def __init__(self, picture: Picture, axes: Axes) -> None:
        looks: dict[str, Any] = {"edgecolor": "white", "linewidth": 0, "alpha": 0.9, "zorder": 1}
        self.patches = {
            name: picture.area(axes, colour, hatch=hatch, **looks)
            for name, (colour, hatch, _) in OUTCOMES.items()
        }

    def show(self, time: OverTime) -> None:
        """Stack the shares of `time`, the good ones at the bottom."""
        floor = np.zeros(time.middle_s.size)
        for name, patch in self.patches.items():
            ceiling = floor + 100 * time.shares.get(name, np.zeros_like(floor))
            patch.set_path(between(time.middle_s, floor, ceiling))
            floor = ceiling


def muted_rule(axes: Axes, picture: Picture) -> Any:
    """Return a thin dotted line for a level that is only compared with."""
    return picture.line(axes, MUTED, linewidth=1.2, linestyle=(0, (1, 1.5)), zorder=2)
