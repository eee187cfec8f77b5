"""A plan of replicas as one still figure: what is kept, what breaks; nothing is planned."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from course.figures.axes import BLUE, GREEN, INK, MUTED, ORANGE, PURPLE, styled
from course.serving.engine import EngineConfig
from course.serving.load import Option, ReplicaPlan, ReplicaReport
from course.words import percent

_LOOKS = (
    (BLUE, "o", "-"), (ORANGE, "s", "--"), (PURPLE, "^", "-."), (GREEN, "D", ":"),
    (INK, "v", "-"), (MUTED, "P", "--"),
)  # fmt: skip


@styled
def replicas_figure(report: ReplicaReport) -> Figure:
    """Return two panels over the replicas: who keeps the promise, and how near its limits.

    The first has a line for each configuration, the promised share dotted, and what an empty server
    keeps dashed where that is less than all. The second shows the promised quantile of TTFT and
    TPOT as a multiple of its limit, of the best (or nearest) configuration.
    """
    plan = report.plan
    figure = Figure(figsize=(9.2, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    _kept(left, plan)
    _limits(right, plan)
    for axes in (left, right):
        axes.set_xlabel("replicas")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    return figure


def alt_text(report: ReplicaReport) -> str:
    """Return in words what the figure shows, for who cannot see it."""
    return f"Share of requests that keep the promise over the number of replicas. {report.answer}"


def _kept(axes: Axes, plan: ReplicaPlan) -> None:
    for place, (name, options) in enumerate(_by_config(plan).items()):
        colour, marker, dash = _LOOKS[place % len(_LOOKS)]
        axes.plot(
            [one.replicas for one in options], [one.attainment for one in options],
            color=colour, marker=marker, linestyle=dash, markersize=5, label=name,
        )  # fmt: skip
    axes.axhline(plan.slo.quantile, color=INK, linestyle=":", linewidth=1.2, label="promised")
    if plan.alone_attainment < 1:
        most = plan.alone_attainment
        axes.axhline(most, color=MUTED, linestyle="--", linewidth=1, label="in an empty server")
    if plan.best is not None:
        axes.plot(
            [plan.best.replicas], [plan.best.attainment], marker="o", markersize=13, color=INK,
            fillstyle="none", linestyle="none", label="chosen",
        )  # fmt: skip
    axes.set_ylim(0, 1.04)
    axes.set_xlim(left=0)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: percent(round(value, 3))))
    axes.set_ylabel("requests that keep the promise")
    axes.legend(fontsize="small", loc="lower right")


def _limits(axes: Axes, plan: ReplicaPlan) -> None:
    chosen = plan.best or plan.nearest or max(plan.options, key=lambda one: one.attainment)
    options = [one for one in plan.options if one.config == chosen.config]
    named = (("TTFT", "ttft_s", plan.slo.ttft_s), ("TPOT", "tpot_s", plan.slo.tpot_s))
    for (name, field, limit_s), (colour, marker, dash) in zip(named, _LOOKS, strict=False):
        if limit_s is None:
            continue
        shares = [getattr(one, field) / limit_s for one in options]
        if any(math.isfinite(share) for share in shares):
            label = f"P{100 * plan.slo.quantile:.10g} {name}"
            axes.plot(
                [one.replicas for one in options], shares,
                color=colour, marker=marker, linestyle=dash, markersize=5, label=label,
            )  # fmt: skip
    axes.axhline(1.0, color=INK, linestyle=":", linewidth=1.2, label="limit")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g} ×"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("of its limit")
    axes.set_title(_name(chosen.config), loc="left", fontsize="small")
    axes.legend(fontsize="small", loc="best")


def _by_config(plan: ReplicaPlan) -> dict[str, list[Option]]:
    """The options of each configuration by its name; where more seats change nothing, of all."""
    apart: dict[EngineConfig, list[Option]] = {}
    for one in plan.options:
        apart.setdefault(one.config, []).append(one)
    alike: dict[tuple[object, ...], list[EngineConfig]] = {}
    for config, options in apart.items():
        kept = tuple(round(one.attainment, 3) for one in options)
        alike.setdefault((config.max_num_batched_tokens, kept), []).append(config)
    return {
        _name(*configs): sorted(apart[configs[0]], key=lambda one: one.replicas)
        for configs in alike.values()
    }


def _name(*configs: EngineConfig) -> str:
    seats = ", ".join(str(config.max_num_seqs) for config in configs)
    return f"{seats} seats, {configs[0].max_num_batched_tokens:,} tokens a step"
