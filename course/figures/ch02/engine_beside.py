"""An LLM server beside M/M/1 of the same capacity; both are computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

from course.figures.axes import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    Picture,
    Point,
    no_steady_state,
    place,
)
from course.words import seconds

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EngineBeside:
    """Mean times against the share of capacity that is used; arrays of shape (loads,).

    `engine_e2e_s`, `engine_wait_s`: time in the system, and until the first step, of the simulated
    server; `mm1_*` the same of M/M/1 at the same arrival rate; `here_*` at the reader's load.
    """

    capacity_per_s: float
    seats: int
    load: FloatArray
    engine_e2e_s: FloatArray
    engine_wait_s: FloatArray
    mm1_load: FloatArray
    mm1_sojourn_s: FloatArray
    mm1_wait_s: FloatArray
    here_load: float
    here_e2e_s: float
    here_wait_s: float
    here_mm1_sojourn_s: float
    here_mm1_wait_s: float
    floor_s: float

    @property
    def stable(self) -> bool:
        """Whether less arrives than the server can finish."""
        return self.here_load < 1


class EngineBesidePicture(Picture):
    """Two panels over the used share of capacity: time in system, wait before the first step."""

    size = (8.4, 4.2)

    def build(self, figure: Figure) -> None:
        """Make two panels on logarithmic times."""
        self.panels = []
        bottom, width, height = (0.19, 0.385, 0.5) if self.present else (0.14, 0.395, 0.67)
        for left, title in ((0.1, "mean time in system (s)"), (0.595, "mean wait for a seat (s)")):
            axes = figure.add_axes((left, bottom, width, height))
            axes.set_title(title, loc="left", fontsize="medium")
            axes.set_xlabel("arrivals over capacity")
            axes.set_xlim(0, 1.1)
            axes.set_yscale("log")
            axes.set_ylim(1e-3, 1e2)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
            axes.yaxis.set_minor_locator(NullLocator())
            no_steady_state(axes, 1.1, words=False)
            self.panels.append(axes)
        self._mm1 = [
            self.line(a, BLUE, dashes=(5, 2), label="M/M/1 of the same capacity")
            for a in self.panels
        ]
        self.engine = [
            self.line(a, ORANGE, marker="o", markersize=4, label="LLM server, simulated")
            for a in self.panels
        ]
        self._floor = self.line(
            self.panels[0], MUTED, linewidth=1.2, linestyle=(0, (1, 2)), label="a lone request"
        )
        self._here = [
            self.line(a, INK, linewidth=1.2, linestyle=(0, (2, 2)), zorder=1) for a in self.panels
        ]
        self.marks = [self.line(a, INK, marker="D", linestyle="", zorder=6) for a in self.panels]
        self.words = [
            (self.label(a, ORANGE, va="bottom"), self.label(a, BLUE, va="top")) for a in self.panels
        ]
        figure.legend(
            handles=[self.engine[0], self._mm1[0], self._floor], loc="upper center",
            ncols=2 if self.present else 3, bbox_to_anchor=(0.53, 1.0),
        )  # fmt: skip

    def update(self, result: EngineBeside, guess: Point | None) -> None:
        """Move everything to `result`; the guess is named in words only."""
        rows = (
            (
                result.engine_e2e_s,
                result.mm1_sojourn_s,
                result.here_e2e_s,
                result.here_mm1_sojourn_s,
            ),
            (result.engine_wait_s, result.mm1_wait_s, result.here_wait_s, result.here_mm1_wait_s),
        )
        x = min(result.here_load, 1.09)
        for i, (axes, (engine, mm1, here, here_mm1)) in enumerate(
            zip(self.panels, rows, strict=True)
        ):
            low, high = axes.get_ylim()
            self.engine[i].set_data(result.load, np.clip(engine, low, None))
            self._mm1[i].set_data(result.mm1_load, mm1)
            self._here[i].set_data([x, x], [low, high])
            heights = [here, here_mm1] if result.stable else [here]
            self.marks[i].set_data([x] * len(heights), np.clip(heights, low, high))
            self._say(i, x, here, here_mm1 if result.stable else None)
        self._floor.set_data([0, 1.1], [result.floor_s] * 2)

    def _say(self, i: int, x: float, here: float, here_mm1: float | None) -> None:
        """Write both values beside the reader's load, the larger above, the smaller below."""
        low, high = self.panels[i].get_ylim()
        on_right = x <= 0.5
        engine_above = here_mm1 is None or here >= here_mm1
        for text, value, above in zip(
            self.words[i], (here, here_mm1), (engine_above, not engine_above), strict=True
        ):
            text.set_horizontalalignment("left" if on_right else "right")
            text.set_verticalalignment("bottom" if above else "top")
            words = "" if value is None else seconds(value)
            y = 1.0 if value is None else min(max(value, low * 1.3), high / 1.3)
            place(text, x + (0.025 if on_right else -0.025), y * (1.1 if above else 0.9), words)
