"""One measured load level as plain numbers, whoever reported it; curves are made elsewhere.

A benchmark tool's run, a row of the catalogue and a line of a reader's own table all become a
`LoadRow`, with the load that was *meant* and, where it can be told, the load that was *offered*.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

from course.serving.catalog import MeasuredPoint
from course.serving.files import printable
from course.serving.load.knees import bare
from course.serving.requests import summarize
from course.serving.results import BenchmarkResult, BenchmarkRun, Latency, RunSummary
from course.words import rounded

OPEN, CLOSED = "requests/s", "users"

KEPT_RATE = 0.95
"""A client that sent less than this share of the rate asked for was the bottleneck itself."""

KEPT_SEATS = {"measured": 0.9, "mean E2E": 0.9, "parts": 0.8}
"""… or that kept less than this share of its users in the server, by where their number is from.

Little's law holds for means; a sum of percentiles and medians only comes near.
"""

_ABOUT_A_CURVE = frozenset(
    (
        "little",
        "cap",
        "rate",
        "all-at-once",
        "waves",
        "first-wave",
        "failures",
        "nothing-completed",
        "cached",
        "zeros",
        "lengths",
        "impossible",
    )
)
"""The audit's findings that change what a point of a curve means."""

_SAID_BETTER = frozenset(("little", "rate"))
"""Those that are said again, with the consequence, where the load was not the one meant."""


_QUANTILE = re.compile(r"p([0-9]{1,3}(?:\.[0-9]{1,6})?)")


@dataclass(frozen=True)
class LoadRow:
    """One run at one load: `load` as meant, `offered` as it really was (the same if not known).

    `unit` is that of both, requests/s of an open loop or users of a closed one. Rates are a second,
    None where unknown. `in_system`: the mean number of requests in the server. `latencies`: seconds
    by names such as "P99 TTFT", "median ITL", "mean E2E", of the finished requests; `failed_share`
    are the others, None where not told. `group`: rows of one group may be joined by a curve.
    `warnings` are sentences.
    """

    group: str
    place: str
    unit: str
    load: float
    offered: float
    output_tokens_per_s: float | None
    requests_per_s: float | None
    in_system: float | None = None
    prompt_tokens: float | None = None
    output_tokens: float | None = None
    failed_share: float | None = None
    latencies: dict[str, float] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @property
    def was_offered(self) -> bool:
        """Whether the load that was meant is the load that was offered."""
        return self.load == self.offered


# --- what was really offered ---------------------------------------------------------------------


def closed_row(row: LoadRow, users_from: str) -> LoadRow:
    """Return a closed loop's row with the users who were really there, by Little's law.

    `users_from`: where `in_system` comes from, a key of `KEPT_SEATS`.

    >>> row = LoadRow("g", "line 1", CLOSED, 512.0, 512.0, 900.0, 36.6, in_system=385.0)
    >>> closed_row(row, "parts").offered
    385.0
    """
    inside = row.in_system
    if inside is None or inside >= KEPT_SEATS[users_from] * row.load or inside <= 0:
        return row
    said = (
        f"{row.place}: meant to be {bare(row.load)} users, but by Little's law only "
        f"{rounded(inside)} were in the server on average: the load generator was saturated, the "
        "run had too few requests, or its ramp and drain count. The point stands at "
        f"{rounded(inside)}"
    )
    return _at(row, inside, said)


def open_row(row: LoadRow, sent_per_s: float | None, cap: int | None) -> LoadRow:
    """Return an open loop's row with the rate that was really sent.

    `sent_per_s`: where the tool tells it. `cap`: how many requests the client held at once at most;
    one that was reached made the loop a closed one.

    >>> row = LoadRow("g", "stage 2", OPEN, 118.6, 118.6, 4730.0, 75.5, in_system=400.0)
    >>> open_row(row, 79.3, None).offered
    79.3
    """
    if sent_per_s is not None and 0 < sent_per_s < KEPT_RATE * row.load:
        said = (
            f"{row.place}: asked for {bare(row.load)} requests/s, but only "
            f"{rounded(sent_per_s)} were sent: the load generator could do no more, by itself or "
            f"as answers came late. The point stands at {rounded(sent_per_s)}, and its waiting "
            "times leave out the client's own queue"
        )
        return _at(row, sent_per_s, said)
    done, inside = row.requests_per_s, row.in_system
    if not cap or done is None or inside is None or not 0 < done < KEPT_RATE * row.load:
        return row
    if inside < KEPT_SEATS["mean E2E"] * cap:
        return row
    said = (
        f"{row.place}: asked for {bare(row.load)} requests/s with at most {cap} at once, and "
        f"{rounded(inside)} were: the cap held requests back in the load generator, which so was "
        f"saturated. The point stands at {rounded(done)} requests/s"
    )
    return _at(row, done, said)


def _at(row: LoadRow, offered: float, warning: str) -> LoadRow:
    return replace(row, offered=offered, warnings=(*row.warnings, warning))


# --- from result files ---------------------------------------------------------------------------


def rows_of_result(result: BenchmarkResult) -> tuple[tuple[LoadRow, ...], tuple[str, ...]]:
    """Return a result file's runs as rows, and sentences on the file and on runs left out."""
    rows = []
    # several runs are what a sweep is made of
    notable = [finding for finding in result.findings if finding.check != "several-runs"]
    said = [f"{_file_name(result)}: {finding.text}" for finding in notable]
    for run in result.runs:
        found = row_of_run(run, result)
        if isinstance(found, str):
            said.append(found)
        else:
            rows.append(found)
    return tuple(rows), tuple(said)


def row_of_run(run: BenchmarkRun, result: BenchmarkResult) -> LoadRow | str:
    """Return a run as a row, or why it has no place on a curve."""
    s = run.summary
    place = _file_name(result)
    if len(result.runs) > 1:
        place = f"{place}, {run.place}"
    if s.completed == 0:
        return f"{place}: no request completed; the run is left out"
    if s.output_tokens_per_s is None and s.requests_per_s is None:
        return f"{place}: the file tells no throughput; the run is left out"
    asked, users = s.asked_per_s, s.max_concurrency
    is_open = asked is not None and 0 < asked < math.inf
    if not is_open and not users:
        what = "sent everything at once" if asked else "tells neither its rate nor its users"
        return f"{place}: the run {what}; it is left out, as it has no load"
    load = float(asked or 0.0) if is_open else float(users or 0)
    inside, users_from = _in_system(s)
    pace, pace_said = _pace(run, result.tool)
    row = LoadRow(
        group=", ".join(part for part in (result.tool, run.label, run.server) if part),
        place=place,
        unit=OPEN if is_open else CLOSED,
        load=load,
        offered=load,
        output_tokens_per_s=s.output_tokens_per_s,
        requests_per_s=s.requests_per_s,
        in_system=inside,
        prompt_tokens=s.prompt_tokens_mean,
        output_tokens=s.output_tokens_mean,
        failed_share=_failed_share(s),
        latencies=_latencies(s, pace),
    )
    row = open_row(row, s.sent_per_s, users) if is_open else closed_row(row, users_from)
    kept = _ABOUT_A_CURVE if row.was_offered else _ABOUT_A_CURVE - _SAID_BETTER
    findings = [f"{place}: {f.text}" for f in run.findings if f.check in kept]
    said = [pace_said] if pace_said else []
    return replace(row, warnings=(*findings, *said, *row.warnings))


def _file_name(result: BenchmarkResult) -> str:
    """The file's name as any terminal and file can hold it; on a disk it may be no text."""
    return printable(Path(result.path).name)


def _failed_share(s: RunSummary) -> float | None:
    if s.failed is None or s.completed is None or s.failed + s.completed == 0:
        return None
    return s.failed / (s.failed + s.completed)


def _in_system(s: RunSummary) -> tuple[float | None, str]:
    """The mean number in the server, and where it is from."""
    if s.requests_per_s:
        if s.e2e.mean_s is not None:
            return s.requests_per_s * s.e2e.mean_s, "mean E2E"
        ttft_s, pace_s = s.ttft.mean_s or s.ttft.median_s, s.tpot.mean_s or s.tpot.median_s
        if ttft_s is not None and pace_s is not None and s.output_tokens_mean is not None:
            inside = ttft_s + pace_s * max(s.output_tokens_mean - 1, 0)
            return s.requests_per_s * inside, "parts"
    return s.concurrency, "measured"


def _pace(run: BenchmarkRun, tool: str) -> tuple[Latency, str]:
    """The run's TPOT, (E2E − TTFT)/(n − 1) of a request, and what is to be said of it.

    Some tools call something else so: then it is computed from the requests that the file keeps,
    or their ITL is one mean a request and so the TPOT.
    """
    if tool not in _OTHER_TPOT:
        return run.summary.tpot, ""
    own = None if run.requests is None else summarize(run.requests).tpot
    if own is not None and own.samples and own.samples == run.summary.completed:
        return Latency.of(own), (
            f"{tool}'s own time per token is another one; TPOT is computed from its requests"
        )
    if _OTHER_TPOT[tool]:
        return run.summary.itl, (
            f"{tool}'s inter-token latency, one mean a request, is judged as the TPOT"
        )
    return Latency(), f"{tool}'s time per token contains the TTFT and is no TPOT; none is judged"


_OTHER_TPOT = {"guidellm": True, "aiperf": True, "llmperf": False}
"""Tools whose own TPOT is none, and whether their ITL is one: a mean a request without the TTFT."""


def _latencies(s: RunSummary, pace: Latency) -> dict[str, float]:
    found = {}
    for name in ("ttft", "tpot", "itl", "e2e"):
        part = pace if name == "tpot" else getattr(s, name)
        if part.mean_s is not None:
            found[f"mean {name.upper()}"] = part.mean_s
        for share, value_s in part.quantiles:
            found[f"{statistic(share)} {name.upper()}"] = value_s
    return found


def statistic(share: float) -> str:
    """Return what a quantile is called.

    >>> statistic(0.5), statistic(0.99), statistic(0.999)
    ('median', 'P99', 'P99.9')
    """
    return "median" if math.isclose(share, 0.5) else f"P{100 * share:.10g}"


def statistic_named(text: str) -> str:
    """Return what a statistic is called, however it was written.

    Raises ValueError for a text that names none.

    >>> [statistic_named(text) for text in ("p99", "P99.0", "p50", "avg", "p99.90")]
    ['P99', 'P99', 'median', 'mean', 'P99.9']
    """
    lower = text.strip().lower()
    if lower in ("mean", "avg", "median"):
        return "mean" if lower == "avg" else lower
    found = _QUANTILE.fullmatch(lower)
    percentile = float(found[1]) if found else 0.0
    if not 0 < percentile <= 100:
        raise ValueError(
            f"{printable(text, 40)!r} is no statistic; give P99, P99.9, P95, mean or median"
        )
    return statistic(percentile / 100)


def quantile_of(latency: str) -> float | None:
    """Return the share that a latency's name speaks of, None for a mean.

    >>> quantile_of("P99.9 TTFT"), quantile_of("median ITL"), quantile_of("mean E2E")
    (0.999, 0.5, None)
    """
    which = latency.split()[0]
    if which == "median":
        return 0.5
    return round(float(which[1:]) / 100, 12) if which[:1] == "P" else None


# --- from the catalogue --------------------------------------------------------------------------


def rows_of_points(points: Iterable[MeasuredPoint]) -> tuple[LoadRow, ...]:
    """Return the closed-loop points of the catalogue with a recorded throughput as rows."""
    return tuple(
        _row_of_point(point)
        for point in points
        if point.load == "closed loop" and point.throughput_is == "recorded" and point.concurrency
    )


def _row_of_point(point: MeasuredPoint) -> LoadRow:
    users = float(point.concurrency or 0)
    cards = f"{point.n_gpus} × {point.gpu}" if point.n_gpus > 1 else point.gpu
    row = LoadRow(
        group=(
            f"{point.model} in {point.precision} on {cards}, {point.prompt_tokens:g} tokens in and "
            f"{point.output_tokens:g} out ({point.source})"
        ),
        place=f"{bare(users)} users",
        unit=CLOSED,
        load=users,
        offered=users,
        output_tokens_per_s=point.output_tokens_per_s,
        requests_per_s=point.requests_per_s,
        in_system=_little(point),
        prompt_tokens=point.prompt_tokens,
        output_tokens=point.output_tokens,
        latencies=_point_latencies(point),
    )
    return closed_row(row, "parts")


def _little(point: MeasuredPoint) -> float | None:
    if None in (point.requests_per_s, point.ttft_s, point.tpot_s, point.output_tokens):
        return None
    assert point.ttft_s is not None
    assert point.tpot_s is not None
    assert point.requests_per_s is not None
    assert point.output_tokens is not None
    return point.requests_per_s * (point.ttft_s + (point.output_tokens - 1) * point.tpot_s)


def _point_latencies(point: MeasuredPoint) -> dict[str, float]:
    named = {
        "P99 TTFT": point.ttft_p99_s, "P95 TPOT": point.tpot_p95_s, "P99 TPOT": point.tpot_p99_s,
        "P99 ITL": point.itl_p99_s, "mean E2E": point.e2e_mean_s,
    }  # fmt: skip
    for value, which, name in (
        (point.ttft_s, point.ttft_stat, "TTFT"),
        (point.tpot_s, point.tpot_stat, "TPOT"),
    ):
        if which is not None and which != "unknown":
            words = which.replace("p95", "P95").replace("p99", "P99")
            named[words if words.endswith("ITL") else f"{words} {name}"] = value
    return {name: value for name, value in named.items() if value is not None}
