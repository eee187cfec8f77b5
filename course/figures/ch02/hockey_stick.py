"""The hockey stick: time in system against utilisation; the queue is computed elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.figure import Figure

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    GuessMark,
    Picture,
    Point,
    bars,
    held_limit,
    no_steady_state,
    place,
)
from course.words import rounded, seconds

_CAP = 0.006


@dataclass(frozen=True)
class SimulatedPoint:
    """One simulated load: mean and percentile, each with its band where the run is long enough."""

    utilization: float
    mean_s: float
    mean_band_s: tuple[float, float] | None
    percentile_s: float
    percentile_band_s: tuple[float, float] | None
    needed_customers: int


@dataclass(frozen=True)
class HockeyStick:
    """What the hockey-stick picture shows; times in seconds, curves over `utilization`."""

    arrival_rate_per_s: float
    service_rate_per_s: float
    percentile: float
    customers: int
    curve_utilization: np.ndarray
    curve_mean_s: np.ndarray
    curve_percentile_s: np.ndarray
    simulated: tuple[SimulatedPoint, ...]
    here: SimulatedPoint | None
    mean_s: float
    percentile_s: float
    target_s: float | None
    usable_rate_per_s: float

    @property
    def utilization(self) -> float:
        """Offered load, arrival rate over service rate."""
        return self.arrival_rate_per_s / self.service_rate_per_s

    @property
    def stable(self) -> bool:
        """Whether the queue has a steady state."""
        return self.utilization < 1


class HockeyStickPicture(Picture):
    """Time in system against utilisation: theory as curves, simulation as points with bands."""

    size = (7.8, 4.4)

    def build(self, figure: Figure) -> None:
        """Make the axes, the legend and the empty artists."""
        box = (0.12, 0.17, 0.86, 0.65) if self.present else (0.1, 0.13, 0.87, 0.75)
        self._axes = axes = figure.add_axes(box)
        axes.set_xlim(0, 1.08)
        axes.set_ylim(0, 5)
        axes.set_xlabel("utilisation ρ = λ / μ")
        axes.set_ylabel("time in system (s)")
        axes.set_xticks(np.arange(0, 1.01, 0.1))
        no_steady_state(axes, 1.08)
        self.mean = self.line(axes, BLUE, label="mean, theory", zorder=3)
        self._percentile = self.line(
            axes, ORANGE, dashes=(5, 2), label="percentile, theory", zorder=3
        )
        self._sim_mean = self.line(
            axes, BLUE, marker="o", markersize=5, linestyle="", markerfacecolor="white", zorder=5,
            label="mean, simulated",
        )  # fmt: skip
        self._sim_percentile = self.line(
            axes, ORANGE, marker="s", markersize=5, linestyle="", markerfacecolor="white", zorder=4,
            label="percentile, simulated",
        )  # fmt: skip
        faint = {"linestyle": "", "markersize": 5, "markerfacecolor": "white", "alpha": 0.35}
        self._unsure_mean = self.line(axes, BLUE, marker="o", zorder=4, **faint)
        self._unsure_percentile = self.line(axes, ORANGE, marker="s", zorder=4, **faint)
        bar = {"linewidth": 1.6, "zorder": 4}
        self._mean_bands = self.line(axes, BLUE, **bar)
        self._percentile_bands = self.line(axes, ORANGE, **bar)
        self._here = self.line(axes, INK, linewidth=1.2, linestyle=(0, (2, 2)), zorder=2)
        self.here_points = self.line(axes, INK, marker="D", linestyle="", zorder=6)
        self._target = self.line(
            axes, GREEN, linewidth=1.8, linestyle=(0, (6, 1.5, 1, 1.5)), zorder=2
        )
        self._usable = self.line(
            axes, GREEN, linewidth=9, solid_capstyle="butt", alpha=0.55, zorder=1, clip_on=False
        )
        self._target_words = self.label(axes, GREEN, va="bottom", ha="left", zorder=8)
        self.guess = GuessMark(self, axes)
        self._mean_words = self.label(axes, BLUE, va="bottom", ha="right", zorder=8)
        self._percentile_words = self.label(axes, ORANGE, va="bottom", ha="right", zorder=8)
        axes.legend(
            loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, borderaxespad=0.2,
            handlelength=2.6, columnspacing=1.6,
        )  # fmt: skip

    def update(self, result: HockeyStick, guess: Point | None) -> None:
        """Move everything to `result`."""
        axes = self._axes
        needed = 1.25 * result.percentile_s if result.stable else 0.0
        needed = max(needed, 8 / result.service_rate_per_s)
        if result.target_s is not None:
            needed = max(needed, min(1.25 * result.target_s, 3 * needed))
        if guess is not None:
            # A wild guess may widen the picture, not flatten the curve to a line on the floor.
            needed = max(needed, min(1.1 * guess[1], 4 * needed))
        top = held_limit(axes.get_ylim()[1], needed, shrink_below=0.2)
        axes.set_ylim(0, top)
        self.mean.set_data(result.curve_utilization, result.curve_mean_s)
        self._percentile.set_data(result.curve_utilization, result.curve_percentile_s)
        self._show_simulation(result, top)
        self._show_operating_point(result, top)
        self._show_target(result, top)
        if result.target_s is None:
            self.guess.show(guess, top, seconds)
        else:
            words = _load_words(guess, result.service_rate_per_s)
            self.guess.show(guess, top, lambda _: words, beside=True)

    def _show_simulation(self, result: HockeyStick, top: float) -> None:
        points = [p for p in (*result.simulated, result.here) if p is not None]
        # A run too short for a band is shown, but faintly: luck may have moved it far.
        sure = [p for p in points if p.mean_band_s is not None]
        self._sim_mean.set_data([p.utilization for p in sure], [p.mean_s for p in sure])
        unsure = [p for p in points if p.mean_band_s is None]
        self._unsure_mean.set_data([p.utilization for p in unsure], [p.mean_s for p in unsure])
        sure = [p for p in points if p.percentile_band_s is not None]
        self._sim_percentile.set_data([p.utilization for p in sure], [p.percentile_s for p in sure])
        unsure = [p for p in points if p.percentile_band_s is None]
        self._unsure_percentile.set_data(
            [p.utilization for p in unsure], [p.percentile_s for p in unsure]
        )
        self._mean_bands.set_data(*bars(((p.utilization, p.mean_band_s) for p in points), _CAP))
        self._percentile_bands.set_data(
            *bars(((p.utilization, p.percentile_band_s) for p in points), _CAP)
        )

    def _show_target(self, result: HockeyStick, top: float) -> None:
        if result.target_s is None:
            self._target.set_data([], [])
            self._usable.set_data([], [])
            place(self._target_words, 0, 0, "")
            return
        usable = max(result.usable_rate_per_s, 0.0) / result.service_rate_per_s
        y = min(result.target_s, top)
        self._target.set_data([0, 1], [y, y])
        self._usable.set_data([0, usable], [0, 0])
        beyond = " (above the picture)" if result.target_s > top else ""
        place(
            self._target_words,
            0.012,
            min(y + 0.012 * top, 0.93 * top),
            f"promise {seconds(result.target_s)}{beyond}",
        )

    def _show_operating_point(self, result: HockeyStick, top: float) -> None:
        load = min(result.utilization, 1.07)
        self._here.set_data([load, load], [0, top])
        if not result.stable:
            self.here_points.set_data([], [])
            place(self._mean_words, 0, 0, "")
            place(self._percentile_words, 0.985, 0.9 * top, "more work arrives than can be done")
            return
        self.here_points.set_data([load, load], [result.mean_s, result.percentile_s])
        name = f"P{100 * result.percentile:g}"
        side: Literal["left", "right"] = "right" if load > 0.3 else "left"
        shift = -0.014 if side == "right" else 0.014
        self._mean_words.set_horizontalalignment(side)
        self._percentile_words.set_horizontalalignment(side)
        # Keep the two labels apart where the two values are nearly the same.
        low = result.mean_s + 0.012 * top
        high = max(result.percentile_s, result.mean_s + 0.07 * top)
        place(self._mean_words, load + shift, low, f"mean {seconds(result.mean_s)}")
        place(
            self._percentile_words,
            load + shift,
            min(high + 0.012 * top, 0.94 * top),
            f"{name} {seconds(result.percentile_s)}",
        )


def _load_words(guess: Point | None, service_rate_per_s: float) -> str:
    return "" if guess is None else f"λ = {rounded(guess[0] * service_rate_per_s)}/s"
