"""Measured load curves with their knees marked, one still figure; knees are found elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from course.figures.axes import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, styled
from course.serving.load import KneeReport, bare
from course.words import seconds

_LOOKS = {
    "plateau": (BLUE, (0, (6, 2))),
    "two_segments": (ORANGE, (0, (1, 1.5))),
    "slo": (GREEN, "-"),
}
_WORDS = {"plateau": "plateau", "two_segments": "two segments", "slo": "SLO"}
_CURVES = ((PURPLE, "o"), (ORANGE, "s"), (BLUE, "^"), (GREEN, "D"))
_ROW = 3.1


@styled
def knee_figure(reports: Sequence[KneeReport]) -> Figure:
    """Return one row of two panels a sweep: throughput, and latencies, over the load.

    Knees are upright lines in both, an interval a pale band, each limit a dotted line. Raises
    ValueError without a report.
    """
    if not reports:
        raise ValueError("reports is empty; give at least one sweep to draw")
    figure = Figure(figsize=(9.2, _ROW * len(reports)), layout="constrained")
    panels = figure.subplots(len(reports), 2, squeeze=False)
    for (left, right), report in zip(panels, reports, strict=True):
        _throughput(left, report)
        _latencies(right, report)
    return figure


def alt_text(reports: Sequence[KneeReport]) -> str:
    """Return in words what the figure shows, for who cannot see it."""
    parts = [
        f"{report.sweep.name}: throughput and latencies over {report.sweep.load_unit}. "
        + " ".join(knee.sentence for knee in report.knees)
        for report in reports
    ]
    return " ".join(parts)


def _throughput(axes: Axes, report: KneeReport) -> None:
    sweep = report.sweep
    mean = sweep.throughput.mean(axis=0)
    axes.plot(sweep.loads, mean, color=INK, marker="o", markersize=5)
    if sweep.runs > 1:
        for run in sweep.throughput:
            axes.plot(sweep.loads, run, color=MUTED, linewidth=0.6, zorder=1)
    axes.set_ylim(0, 1.35 * float(mean.max()) or 1.0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    _common(axes, report, sweep.throughput_unit)
    # a name is somebody's text, in which a $ begins no formula
    axes.set_title(sweep.name, loc="left", fontsize="medium", parse_math=False)
    found = [knee for knee in report.knees if knee.load is not None]
    for knee in sorted(found, key=lambda knee: knee.load or 0.0):
        colour, dash = _LOOKS[knee.method]
        words = f"{_WORDS[knee.method]} {bare(knee.load or 0.0)}"
        axes.plot([], [], color=colour, linestyle=dash, linewidth=1.6, label=words)
    if found:
        axes.legend(fontsize="small", loc="upper left", labelcolor=INK)
    else:
        axes.text(
            0.03, 0.95, "no knee", color=MUTED, transform=axes.transAxes, va="top", fontsize="small"
        )


def _latencies(axes: Axes, report: KneeReport) -> None:
    sweep = report.sweep
    names = _shown(report)
    for (colour, marker), name in zip(_CURVES, names, strict=False):
        mean = sweep.latencies[name].mean(axis=0)
        axes.plot(sweep.loads, mean, color=colour, marker=marker, markersize=4, label=name)
        if name in report.limits:
            axes.axhline(
                report.limits[name], color=colour, linewidth=1.4, linestyle=(0, (1, 2)),
                label=f"{name} limit {seconds(report.limits[name])}",
            )  # fmt: skip
    _common(axes, report, "latency")
    if names:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: seconds_tick(value)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.legend(fontsize="small", loc="upper left")
    else:
        axes.text(
            0.5, 0.5, "the files tell no latency", color=MUTED, ha="center",
            transform=axes.transAxes,
        )  # fmt: skip


def seconds_tick(value: float) -> str:
    """Return an axis mark of a time.

    >>> [seconds_tick(v) for v in (0.001, 0.02, 1.0, 200.0)]
    ['1 ms', '20 ms', '1 s', '200 s']
    """
    return f"{1000 * value:g} ms" if value < 1 else f"{value:g} s"


def _shown(report: KneeReport) -> list[str]:
    """The latencies with a limit, and a tail of the others; no more than there are looks."""
    known = {
        name: values
        for name, values in report.sweep.latencies.items()
        if np.isfinite(values).all() and (values > 0).all()
    }
    names = [name for name in report.limits if name in known]
    for metric in ("TTFT", "TPOT", "ITL"):
        if any(name.endswith(metric) for name in names):
            continue
        for stat in ("P99", "P95", "mean", "median"):
            if f"{stat} {metric}" in known:
                names.append(f"{stat} {metric}")
                break
    return names[: len(_CURVES)]


def _common(axes: Axes, report: KneeReport, ylabel: str) -> None:
    """Scale, labels and knees, the same in both panels of a row."""
    loads = report.sweep.loads
    axes.set_xscale("log", base=2)
    axes.set_xlim(float(loads[0]) / 1.15, float(loads[-1]) * 1.15)
    axes.set_xticks(_apart(loads.tolist()))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: bare(float(value))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(report.sweep.load_unit)
    axes.set_ylabel(ylabel)
    for knee in report.knees:
        if knee.load is None:
            continue
        colour, dash = _LOOKS[knee.method]
        axes.axvline(knee.load, color=colour, linestyle=dash, linewidth=1.6, zorder=2)
        if knee.low is not None and knee.high is not None:
            axes.axvspan(knee.low, knee.high, color=colour, alpha=0.12, linewidth=0, zorder=0)


def _apart(loads: list[float]) -> list[float]:
    """The loads whose marks do not touch on a logarithmic axis."""
    kept: list[float] = []
    reach = 0.09 * math.log(loads[-1] / loads[0]) if len(loads) > 1 else 0.0
    for load in loads:
        if not kept or math.log(load / kept[-1]) >= reach:
            kept.append(load)
    return kept
