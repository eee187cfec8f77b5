"""What is to be said of a measured sweep, for people and for programs; nothing is read or drawn."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.serving._arguments import FloatArray
from course.serving.load.knees import Knee, bare
from course.serving.load.measured import MeasuredSweep
from course.serving.load.rows import quantile_of, statistic_named
from course.words import aligned, rounded, seconds

TAILS, MIDDLES = ("P99", "P95", "P90"), ("mean", "median")
"""Statistics in the order in which they stand in for one that a file does not tell.

Other percentiles come between them where they are stricter than P90, and last otherwise.
"""

REQUESTS = "requests/s"
SHOWN = ("TTFT", "TPOT", "ITL", "E2E")


@dataclass(frozen=True)
class KneeReport:
    """A sweep, its knees by each method, and everything that a reader should know."""

    sweep: MeasuredSweep
    limits: dict[str, float]
    knees: tuple[Knee, ...]
    warnings: tuple[str, ...]

    def as_text(self) -> str:
        """Return the report as lines of text: table, knees, warnings."""
        sweep = self.sweep
        runs = "run once" if sweep.runs == 1 else f"run {sweep.runs} times"
        count = f"{sweep.loads.size} {'load' if sweep.loads.size == 1 else 'loads'}"
        lines = [f"{sweep.name}: {count} in {sweep.load_unit}, {runs}"]
        lines += [f"  {line}" for line in _table(sweep, self.limits)]
        lines += [f"  {knee.sentence}" for knee in self.knees]
        lines += [f"  ! {warning}" for warning in self.warnings]
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as plain values that JSON can hold: seconds, rates per second."""
        sweep = self.sweep
        return {
            "name": sweep.name,
            "load_unit": sweep.load_unit,
            "throughput_unit": sweep.throughput_unit,
            "runs_of_each_load": sweep.runs,
            "loads": _plain(sweep.loads),
            "loads_meant": _plain(sweep.meant),
            "throughput": _plain(sweep.throughput),
            "requests_per_s": _plain(sweep.requests_per_s),
            "in_system": _plain(sweep.in_system),
            "failed_share": _plain(sweep.failed_share),
            "latencies_s": {name: _plain(values) for name, values in sweep.latencies.items()},
            "limits_s": self.limits,
            "knees": [{**vars(knee), "found": knee.found} for knee in self.knees],
            "warnings": list(self.warnings),
        }


def report(sweep: MeasuredSweep, slo_s: Mapping[str, float], stat: str = "P99") -> KneeReport:
    """Return the knees of a sweep: by both looks at the throughput, and by the SLO if there is one.

    `slo_s`: limits in seconds by "TTFT", "TPOT", "ITL", "E2E"; `stat`: the statistic that has to
    keep them, as "P99", "mean" or "median". Where the sweep does not tell it at every load, the
    strictest that it does tell stands in, and a warning says so. Raises ValueError for a `stat`
    that is none.

    >>> from course.serving.load import catalogue_sweeps
    >>> found = report(catalogue_sweeps()[6], {"TTFT": 2.0})
    >>> [round(knee.load) for knee in found.knees if knee.load]
    [71, 54, 40]
    """
    warnings = list(sweep.warnings)
    stat = statistic_named(stat)
    limits: dict[str, float] = {}
    for metric, limit_s in slo_s.items():
        name = _told(sweep, metric, stat)
        if name is None:
            warnings.append(f"the sweep tells no {metric} at every load; that limit is not judged")
            continue
        if name != f"{stat} {metric}":
            warnings.append(
                f"the sweep tells no {stat} {metric} at every load; the {name} stands in, "
                + _consequence(f"{stat} {metric}", name)
            )
        limits[name] = limit_s
    knees = [sweep.knee("plateau"), sweep.knee("two_segments")]
    if limits:
        knees.append(sweep.slo_knee(limits))
    if sweep.runs > 1:
        warnings.append(
            f"every load was found {sweep.runs} times and is taken for so many runs of one server; "
            "if they were different servers, give their files apart"
        )
    return KneeReport(sweep, limits, tuple(knees), tuple(warnings))


def _told(sweep: MeasuredSweep, metric: str, stat: str) -> str | None:
    """The latency's name in the sweep, by the asked statistic or the next best that is told."""
    told = [
        name
        for name, values in sweep.latencies.items()
        if name.endswith(f" {metric}") and not np.isnan(values).any()
    ]
    others = sorted(told, key=lambda name: quantile_of(name) or 0.0, reverse=True)
    strict = [name for name in others if (quantile_of(name) or 0.0) > 0.9]
    tails, middles = ([f"{one} {metric}" for one in known] for known in ((stat, *TAILS), MIDDLES))
    return next((name for name in (*tails, *strict, *middles, *others) if name in told), None)


def _consequence(asked: str, name: str) -> str:
    """What it means for the knee that the latency `name` is judged for the one that was asked."""
    wanted, judged = quantile_of(asked), quantile_of(name)
    if wanted is not None and judged is not None:
        stricter = judged > wanted
    elif wanted is None:  # a mean lies above the median, as latencies do, and below a tail
        stricter = judged is not None and judged >= 0.9
    elif 0.5 < wanted < 0.9:
        return "which may be longer or shorter, so the knee by the SLO may lie on either side"
    else:
        stricter = wanted <= 0.5
    if stricter:
        return (
            "which is stricter, so the knee by the SLO is cautious: the limit may hold at higher "
            "loads too"
        )
    return "so more requests break the limit than the knee by the SLO lets one think"


def _table(sweep: MeasuredSweep, limits: Mapping[str, float]) -> list[str]:
    """One line a load: means over its runs, "-" where a run does not tell."""
    columns: list[tuple[str, list[str]]] = [
        (
            sweep.load_unit if sweep.load_unit != REQUESTS else f"offered {REQUESTS}",
            [_load(*pair) for pair in zip(sweep.loads, sweep.meant, strict=True)],
        )
    ]
    if sweep.throughput_unit != REQUESTS:
        columns.append((sweep.throughput_unit, [_figure(v) for v in sweep.throughput.mean(axis=0)]))
    served = [_figure(v) for v in sweep.requests_per_s.mean(axis=0)]
    columns.append((f"served {REQUESTS}", served))
    columns.append(("in server", [_figure(v) for v in sweep.in_system.mean(axis=0)]))
    shown = list(limits)
    for metric in SHOWN[:3]:
        name = _told(sweep, metric, "P99")
        if name is not None and not any(known.endswith(metric) for known in limits):
            shown.append(name)
    for name in shown:
        values = sweep.latencies[name].mean(axis=0)
        columns.append((name, ["-" if math.isnan(v) else seconds(float(v)) for v in values]))
    return aligned(list(zip(*[[head, *cells] for head, cells in columns], strict=True)))


def _load(offered: float, meant: float) -> str:
    return bare(offered) if offered == meant else f"{bare(offered)} (meant {bare(meant)})"


def _figure(value: float) -> str:
    return "-" if math.isnan(value) else rounded(float(value))


def _plain(values: FloatArray) -> list[Any]:
    """Nested lists with None for NaN and infinity, which JSON does not have."""

    def plain(value: Any) -> Any:
        if isinstance(value, list):
            return [plain(part) for part in value]
        return value if math.isfinite(value) else None

    return list(plain(values.tolist()))


def gathered(reports: Sequence[KneeReport], said: Sequence[str]) -> dict[str, Any]:
    """Return several reports and what was said of the files as one value for JSON."""
    return {"sweeps": [one.as_dict() for one in reports], "files": list(said)}
