"""Reads GuideLLM's `benchmarks.json`, of version 0.3 and later ones; no other tool's file."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from course.serving.files import Fields, ResultFileError
from course.serving.requests import RequestTable, Status
from course.serving.results.nouns import BenchmarkRun, Finding, Latency, RunSummary
from course.serving.results.pieces import Room, latency, of_each, told, with_rates

TOOL = "guidellm"

_STATISTICS = (
    ("mean", "mean"),
    ("median", "median"),
    ("std_dev", "std"),
)
_QUANTILES = ("p001", "p01", "p05", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p999")
_GROUPS = ("successful", "errored", "incomplete")


def recognises(data: object) -> bool:
    """Whether this is a report of GuideLLM."""
    return isinstance(data, dict) and isinstance(data.get("benchmarks"), list)


def version(data: dict[str, object]) -> str | None:
    """The version that the report names, or the one whose layout it has."""
    metadata = data.get("metadata")
    if isinstance(metadata, dict) and isinstance(metadata.get("guidellm_version"), str):
        return Fields(metadata, "metadata").text("guidellm_version", 30)
    benchmarks = data["benchmarks"]
    first = benchmarks[0] if isinstance(benchmarks, list) and benchmarks else None
    return "0.3" if isinstance(first, dict) and "run_stats" in first else None


def read_all(data: dict[str, object], place: str, room: Room) -> Iterator[BenchmarkRun]:
    """Yield the report's benchmarks; `request_latency` is in seconds, names in `_ms` are not.

    Raises ResultFileError for a value of the wrong kind, and for more requests than `room` allows.
    """
    report = Fields(data, place)
    said = version(data)
    for benchmark in report.children("benchmarks"):
        yield _read(Fields(benchmark.data, benchmark.place), said, room)


def _read(fields: Fields, said: str | None, room: Room) -> BenchmarkRun:
    metrics = fields.child("metrics")
    if metrics is None:
        raise ResultFileError("has no metrics", fields.place)
    totals = fields.child("request_totals") or metrics.child("request_totals")
    totals = totals or Fields({}, fields.place, fields.notes)
    completed = totals.count("successful")
    strategy = _strategy(fields)
    summary = RunSummary(
        duration_s=_duration_s(fields),
        offered=totals.count("total"),
        completed=completed,
        failed=totals.count("errored"),
        incomplete=totals.count("incomplete"),
        prompt_tokens_mean=_per_request(metrics, "prompt_token_count", completed),
        output_tokens_mean=_per_request(metrics, "output_token_count", completed),
        requests_per_s=_mean(metrics, "requests_per_second"),
        output_tokens_per_s=_mean(metrics, "output_tokens_per_second"),
        total_tokens_per_s=_mean(metrics, "tokens_per_second"),
        asked_per_s=_asked_per_s(strategy),
        max_concurrency=_cap(strategy),
        concurrency=_mean(metrics, "request_concurrency"),
        ttft=_latency(metrics, "time_to_first_token_ms", 1e-3),
        tpot=_latency(metrics, "time_per_output_token_ms", 1e-3),
        itl=_latency(metrics, "inter_token_latency_ms", 1e-3),
        e2e=_latency(metrics, "request_latency", 1.0),
    )
    table = _table(fields, room)
    return BenchmarkRun(
        place=fields.place,
        label=(strategy.text("type_") or strategy.text("kind") or "") if strategy else "",
        summary=with_rates(summary),
        requests=table,
        starts_known=table is not None,
        itl_is="requests",
        findings=(*told(fields.notes), *_meaning(summary, said), *_stripped(table, completed)),
    )


def _group(metrics: Fields, name: str) -> Fields | None:
    """The statistics of the successes, or None: absent, null, or zeros of an empty group."""
    metric = metrics.child(name)
    group = metric.child("successful") if metric is not None else None
    return None if group is None or group.count("count") == 0 else group


def _latency(metrics: Fields, name: str, unit_s: float) -> Latency:
    group = _group(metrics, name)
    if group is None:
        return Latency()
    # a copy with flat names: the percentiles lie one level deeper, p999 standing for 99.9 %
    flat = {stat: group.data[key] for key, stat in _STATISTICS if key in group}
    inner = group.child("percentiles")
    for key in _QUANTILES:
        if inner is not None and key in inner:
            flat[f"p{key[1:3]}.{key[3:]}" if len(key) > 3 else key] = inner.data[key]
    names = [(stat, stat) for stat in flat]
    return latency(
        Fields(flat, group.place, group.notes), names, unit_s, group.count("count"), name
    )


def _mean(metrics: Fields, name: str) -> float | None:
    group = _group(metrics, name)
    return None if group is None else group.number("mean")


def _per_request(metrics: Fields, name: str, completed: int | None) -> float | None:
    group = _group(metrics, name)
    if group is None:
        return None
    mean = group.number("mean")
    return mean if mean is not None else of_each(group.number("total_sum"), completed)


def _duration_s(fields: Fields) -> float | None:
    said = fields.number("duration")
    start, end = fields.number("start_time"), fields.number("end_time")
    if said is not None or start is None or end is None:
        return said
    return max(end - start, 0.0)


def _strategy(fields: Fields) -> Fields | None:
    for parent in ("args", "config"):
        holder = fields.child(parent)
        if holder is not None and isinstance(holder.data.get("strategy"), dict):
            return holder.child("strategy")
    return None


def _asked_per_s(strategy: Fields | None) -> float | None:
    if strategy is None:
        return None
    kind = strategy.text("type_") or strategy.text("kind")
    if kind == "throughput":
        return math.inf
    rate = strategy.number("rate", negative=True) if kind in ("constant", "poisson") else None
    return rate if rate is not None and rate > 0 else None


def _cap(strategy: Fields | None) -> int | None:
    if strategy is None:
        return None
    if (strategy.text("type_") or strategy.text("kind")) == "synchronous":
        return 1
    return strategy.count(strategy.first("streams", "max_concurrency") or "")


def _table(fields: Fields, room: Room) -> RequestTable | None:
    """The requests with their first and last token, if the report was not stripped of them."""
    groups = fields.child("requests")
    if groups is None:
        return None
    rows = []
    for name in _GROUPS:
        for request in groups.children(name):
            row = _row(request, name)
            if row is not None:
                room.take(request.place, requests=1)
                rows.append(row)
    if not rows:
        return None
    sent, first, last, end, tokens, prompts, status = np.array(rows).T
    zero_s = sent.min()
    try:
        return RequestTable(
            sent_s=sent - zero_s,
            first_token_s=first - zero_s,
            last_token_s=last - zero_s,
            output_tokens=tokens,
            status=status,
            prompt_tokens=prompts,
            end_s=end - zero_s,
        )
    except ValueError as fault:
        raise ResultFileError(f"is no possible request: {fault}", groups.place) from None


def _row(request: Fields, group: str) -> tuple[float, ...] | None:
    info = request.child("info")
    timings = (info.child("timings") if info is not None else None) or request

    def time_s(*names: str) -> float | None:
        return timings.number(timings.first(*names) or "", negative=True)

    sent = time_s("request_start", "start_time", "resolve_start")
    end = time_s("request_end", "end_time", "resolve_end")
    if sent is None or end is None:
        return None
    first = time_s("first_token_iteration", "first_iteration", "first_token_time")
    last = time_s("last_token_iteration", "last_iteration", "last_token_time")
    tokens = request.count("output_tokens") or 0
    status = {"errored": Status.FAILED, "incomplete": Status.UNFINISHED}.get(group)
    if status is None:
        answered = first is not None and last is not None and tokens > 0
        status = Status.FINISHED if answered else Status.FAILED
    return (
        sent,
        math.nan if first is None else first,
        math.nan if last is None else last,
        max(end, sent),
        tokens,
        request.count("prompt_tokens") or 0,
        status,
    )


def _meaning(summary: RunSummary, said: str | None) -> tuple[Finding, ...]:
    """The same name meant two things over the years, and neither is (E2E − TTFT)/(n − 1)."""
    if not summary.tpot.is_known:
        return ()
    if said == "0.3":
        rule = "(last − first)/n, a token too many below the line"
    else:
        rule = "(last − sent)/n since version 0.5: it contains the TTFT"
    text = f"time_per_output_token_ms is {rule}; GuideLLM's inter_token_latency_ms is the TPOT"
    return (Finding("tpot-definition", text),)


def _stripped(table: RequestTable | None, completed: int | None) -> tuple[Finding, ...]:
    if table is None or completed is None or int(table.finished.sum()) == completed:
        return ()
    return (
        Finding(
            "detail-incomplete",
            f"the file keeps {int(table.finished.sum())} of its {completed} successful requests; "
            "nothing is recomputed from them",
        ),
    )
