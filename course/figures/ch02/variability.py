"""Wait against utilisation for any variability; the queue is computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    GuessMark,
    Picture,
    Point,
    bars,
    held_limit,
    no_steady_state,
    place,
)
from course.figures.labels import GROUND, spread
from course.words import seconds


@dataclass(frozen=True)
class SimulatedWait:
    """The mean wait at one simulated load; its band only where the run is long enough for one."""

    utilization: float
    mean_s: float
    band_s: tuple[float, float] | None
    needed_customers: int


@dataclass(frozen=True)
class Variability:
    """What the variability picture shows; waits in seconds, curves over `curve_utilization`.

    `formula` names the formula that applies to these two coefficients of variation, and `exact`
    says whether it is exact for them. Waits are infinite where there is no steady state.
    """

    arrival_rate_per_s: float
    service_s: float
    arrivals_cv: float
    service_cv: float
    customers: int
    formula: str
    exact: bool
    formula_s: float
    memoryless_s: float
    curve_utilization: np.ndarray
    curve_formula_s: np.ndarray
    curve_memoryless_s: np.ndarray
    curve_constant_s: np.ndarray
    simulated: tuple[SimulatedWait, ...]
    here: SimulatedWait | None

    @property
    def utilization(self) -> float:
        """Offered load, arrival rate times mean service time."""
        return self.arrival_rate_per_s * self.service_s

    @property
    def stable(self) -> bool:
        """Whether the queue has a steady state."""
        return self.utilization < 1


class VariabilityPicture(Picture):
    """Mean wait against utilisation: the formula and its two landmarks, simulation as points."""

    size = (7.8, 4.4)

    def build(self, figure: Figure) -> None:
        """Make the axes, the legend and the empty artists."""
        if self.present:
            figure.set_size_inches(6.7, 4.3)
        self._axes = axes = figure.add_axes(
            (0.115, 0.155, 0.865, 0.67) if self.present else (0.1, 0.13, 0.87, 0.75)
        )
        axes.set_xlim(0, 1.08)
        axes.set_ylim(0, 5)
        axes.set_xlabel("utilisation ρ = λ × mean service time")
        axes.set_ylabel("mean wait before service (s)")
        axes.set_xticks(np.arange(0, 1.01, 0.1))
        no_steady_state(axes, 1.08)
        grown = 1.5 if self.present else 1.0
        point = {
            "marker": "o",
            "markersize": 5 * grown,
            "linestyle": "",
            "markerfacecolor": "white",
        }
        self.formula = self.line(axes, BLUE, label="formula for these CVs", zorder=4)
        self.simulated = self.line(axes, ORANGE, zorder=6, label="simulated (bar: 95 %)", **point)
        self.memoryless = self.line(
            axes, MUTED, linewidth=1.2 * grown, dashes=(1, 1.5), zorder=3,
            label="M/M/1: CVs 1 and 1",
        )  # fmt: skip
        self.constant = self.line(
            axes, GREEN, linewidth=1.6 * grown, dashes=(6, 2, 1, 2), zorder=3,
            label="M/D/1: CVs 1 and 0",
        )  # fmt: skip
        self.bands = self.line(
            axes, ORANGE, linewidth=1.6 * grown, marker="_", markersize=9 * grown, zorder=5
        )
        self._here = self.line(axes, INK, linewidth=1.2 * grown, linestyle=(0, (2, 2)), zorder=2)
        self.here_formula = self.line(
            axes, BLUE, marker="D", markersize=9 * grown, linestyle="", zorder=4
        )
        self.here_simulated = self.line(axes, ORANGE, zorder=8, **point)
        self.guess = GuessMark(self, axes)
        words = {"va": "bottom", "ha": "right", "zorder": 9, "bbox": GROUND}
        self.formula_words = self.label(axes, BLUE, **words)
        self.simulated_words = self.label(axes, ORANGE, **words)
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderaxespad=0.2,
            handlelength=2.6, columnspacing=1.6,
        )  # fmt: skip

    def update(self, result: Variability, guess: Point | None) -> None:
        """Move everything to `result`."""
        axes = self._axes
        needed = 6 * result.service_s
        if result.stable:
            needed = max(needed, 1.3 * max(result.formula_s, result.memoryless_s))
            if result.here is not None:
                needed = max(needed, 1.2 * result.here.mean_s)
        if guess is not None:
            # A wild guess may widen the picture, not flatten the curve to a line on the floor.
            needed = max(needed, min(1.1 * guess[1], 4 * needed))
        top = held_limit(axes.get_ylim()[1], needed, shrink_below=0.2)
        axes.set_ylim(0, top)
        self.formula.set_data(result.curve_utilization, result.curve_formula_s)
        self.memoryless.set_data(result.curve_utilization, result.curve_memoryless_s)
        self.constant.set_data(result.curve_utilization, result.curve_constant_s)
        self._show_simulation(result)
        self._show_operating_point(result, top)
        self.guess.show(guess, top, seconds)

    def _show_simulation(self, result: Variability) -> None:
        self.simulated.set_data(
            [p.utilization for p in result.simulated], [p.mean_s for p in result.simulated]
        )
        points = [p for p in (*result.simulated, result.here) if p is not None]
        self.bands.set_data(*bars((p.utilization, p.band_s) for p in points))

    def _show_operating_point(self, result: Variability, top: float) -> None:
        load = min(result.utilization, 1.07)
        self._here.set_data([load, load], [0, top])
        place(self.simulated_words, 0, 0, "")
        self.here_simulated.set_data([], [])
        if not result.stable:
            self.here_formula.set_data([], [])
            # The upper left corner is the one that no curve enters.
            self.formula_words.set_horizontalalignment("left")
            place(self.formula_words, 0.015, 0.9 * top, "more work arrives than can be done")
            return
        self.here_formula.set_data([load], [result.formula_s])
        side: Literal["left", "right"] = "right" if load > 0.45 else "left"
        x = load + (-0.02 if side == "right" else 0.02)
        words = f"{result.formula} {seconds(result.formula_s)}"
        if result.here is None:
            self.formula_words.set_horizontalalignment(side)
            place(self.formula_words, x, result.formula_s + 0.012 * top, words)
            return
        self.here_simulated.set_data([load], [result.here.mean_s])
        gap = 0.09 if self.present else 0.065
        values = [result.formula_s / top + 0.012, result.here.mean_s / top + 0.012]
        heights = spread(values, gap, 0.0, 1 - gap)
        said = f"simulated {seconds(result.here.mean_s)}"
        labels = ((self.formula_words, words), (self.simulated_words, said))
        for (text, value_words), height in zip(labels, heights, strict=True):
            text.set_horizontalalignment(side)
            place(text, x, height * top, value_words)
