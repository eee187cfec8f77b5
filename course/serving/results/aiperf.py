"""Reads AIPerf's exports, the summary and the lines of single requests; no other tool's file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from course.serving.files import Fields, ResultFileError, excerpt, printable
from course.serving.requests import RequestTimeline, Summary, as_reported_by, as_table, summarize
from course.serving.results.nouns import BenchmarkRun, Finding, Latency, RunSummary
from course.serving.results.pieces import (
    Room,
    error_text,
    latency,
    share_of,
    spread,
    timeline,
    told,
    with_rates,
)

TOOL = "aiperf"

UNITS_S = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "milliseconds": 1e-3,
    "us": 1e-6, "µs": 1e-6, "microseconds": 1e-6, "ns": 1e-9, "nanoseconds": 1e-9,
    "min": 60.0, "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hour": 3600.0, "hours": 3600.0,
}  # fmt: skip
COUNTED = frozenset({"", "tokens", "token", "requests", "request", "concurrency", "count"})
"""Units of what is only counted."""

_EPOCH_NS = 1e19

_STARTS = frozenset({"request_start_ns", "timestamp_ns"})
"""When a request was sent: its name today, and until autumn 2025."""


def recognises(data: object) -> bool:
    """Whether this is a summary of AIPerf."""
    if not isinstance(data, dict):
        return False
    inner = data.get("records")
    metrics = inner if isinstance(inner, dict) else data
    return any(
        isinstance(value, dict) and "unit" in value and "avg" in value for value in metrics.values()
    )


def recognises_line(data: object) -> bool:
    """Whether this is one request of AIPerf's JSON lines."""
    return (
        isinstance(data, dict)
        and isinstance(data.get("metadata"), dict)
        and not _STARTS.isdisjoint(data["metadata"])
    )


def version(data: dict[str, object]) -> str | None:
    """The version that the summary names, or the year of its layout."""
    for key in ("aiperf_version", "schema_version"):
        if isinstance(data.get(key), str):
            return f"{key.split('_')[0]} {Fields(data, '').text(key, 30)}"
    return "2025 (metrics under records)" if isinstance(data.get("records"), dict) else None


def read(data: object, place: str) -> BenchmarkRun:
    """Return the run of a summary, in which every metric names its unit.

    Raises ResultFileError for a value of the wrong kind and for an unknown unit.
    """
    fields = Fields(data, place)
    metrics = fields.child("records") if "records" in fields else fields
    assert metrics is not None
    completed = _whole(metrics, "request_count")
    failed = _whole(metrics, "error_request_count")
    config = fields.child("input_config")
    asked_per_s, users = _asked(config)
    dataset = _first(config, "datasets")
    prompts = None if dataset is None else dataset.child("prompts")
    summary = RunSummary(
        duration_s=_seconds(metrics, "benchmark_duration"),
        offered=None if completed is None else completed + (failed or 0),
        completed=completed,
        failed=failed,
        prompt_tokens_mean=_average(metrics, "input_sequence_length"),
        output_tokens_mean=_average(metrics, "output_sequence_length"),
        requests_per_s=_per_s(metrics, "request_throughput"),
        output_tokens_per_s=_per_s(metrics, "output_token_throughput"),
        total_tokens_per_s=_per_s(metrics, "total_token_throughput"),
        goodput_per_s=_per_s(metrics, "goodput"),
        asked_per_s=asked_per_s,
        max_concurrency=users,
        asked_prompt_tokens=_mean_length(prompts, "isl"),
        asked_output_tokens=_mean_length(prompts, "osl"),
        concurrency=_average(metrics, "effective_concurrency"),
        ttft=_latency(metrics, "time_to_first_token", "ttft"),
        itl=_latency(metrics, "inter_token_latency"),
        e2e=_latency(metrics, "request_latency"),
    )
    return BenchmarkRun(
        place=place,
        label=_models(config),
        summary=with_rates(summary),
        itl_is="requests",
        convention="aiperf",
        findings=(*told(fields.notes), *_nested(fields), *_reasoning(metrics)),
    )


def _asked(config: Fields | None) -> tuple[float | None, int | None]:
    """The rate and the users asked for: of the measured phase, or of the load generator before."""
    phase = None
    if config is not None and isinstance(config.data.get("phases"), list):
        phases = [one for one in config.children("phases") if isinstance(one.data, dict)]
        named = [one for one in phases if one.text("name") == "profiling"]
        phase = (named or phases)[-1] if phases else None
    if phase is not None:
        return phase.number("rate", negative=True) or None, phase.count("concurrency")
    loadgen = None if config is None else config.child("loadgen")
    if loadgen is None:
        return None, None
    return loadgen.number("request_rate", negative=True) or None, loadgen.count("concurrency")


def _first(config: Fields | None, key: str) -> Fields | None:
    """The first object of a list in the configuration, where there is one."""
    if config is None or not isinstance(config.data.get(key), list):
        return None
    return next(config.children(key), None)


def _mean_length(prompts: Fields | None, key: str) -> float | None:
    if prompts is None or not isinstance(prompts.data.get(key), dict):
        return None
    length = prompts.child(key)
    return None if length is None else length.number("mean")


def _models(config: Fields | None) -> str:
    """The models' names, where today's layout or that of 2025 has them."""
    if config is None:
        return ""
    names: list[object] = []
    models, endpoint = config.data.get("models"), config.data.get("endpoint")
    if isinstance(models, dict) and isinstance(models.get("items"), list):
        names = [item.get("name") for item in models["items"] if isinstance(item, dict)]
    elif isinstance(endpoint, dict) and isinstance(endpoint.get("model_names"), list):
        names = endpoint["model_names"]
    return printable(", ".join(n[:60] for n in names[:9] if isinstance(n, str)), 120)


def _metric(metrics: Fields, *tags: str) -> Fields | None:
    tag = metrics.first(*tags)
    return None if tag is None else metrics.child(tag)


def _average(metrics: Fields, *tags: str) -> float | None:
    metric = _metric(metrics, *tags)
    if metric is None or not _has_unit(metric, tags[0]):
        return None
    return metric.number("avg")


def _per_s(metrics: Fields, tag: str) -> float | None:
    """Return a rate per second, whatever time its unit is per; None if the unit is unknown."""
    metric = _metric(metrics, tag)
    value = None if metric is None else metric.number("avg")
    if metric is None or value is None:
        return None
    counted, _, time = (metric.text("unit") or "/s").lower().replace(" per ", "/").partition("/")
    if counted.strip() in COUNTED and time.strip() in UNITS_S:
        return value / UNITS_S[time.strip()]
    _note_unit(metric, tag)
    return None


def _whole(metrics: Fields, tag: str) -> int | None:
    metric = _metric(metrics, tag)
    return metric.count("avg") if metric is not None and _has_unit(metric, tag) else None


def _has_unit(metric: Fields, tag: str) -> bool:
    """Whether a metric counts things one by one; noted if not."""
    counted = (metric.text("unit") or "").lower() in COUNTED
    if not counted:
        _note_unit(metric, tag)
    return counted


def _note_unit(metric: Fields, tag: str) -> None:
    unit = excerpt(metric.text("unit") or "")
    metric.notes.append(f"{tag} is in {unit}, no unit that is known for it; it is left out")


def _unit_s(metric: Fields) -> float:
    unit = metric.text("unit") or ""
    if unit.lower() not in UNITS_S:
        raise ResultFileError(f"is {unit!r}, no unit of time", metric.where("unit"))
    return UNITS_S[unit.lower()]


def _seconds(metrics: Fields, tag: str) -> float | None:
    metric = _metric(metrics, tag)
    value = None if metric is None else metric.number("avg", limit=_EPOCH_NS)
    return None if metric is None or value is None else value * _unit_s(metric)


def _latency(metrics: Fields, *tags: str) -> Latency:
    metric = _metric(metrics, *tags)
    if metric is None:
        return Latency()
    names = [("mean", "avg"), ("std", "std")]
    names += [(key, key) for key in metric.data if share_of(key) is not None]
    return latency(metric, names, _unit_s(metric), metric.count("count"), tags[0])


def _nested(fields: Fields) -> tuple[Finding, ...]:
    if "records" not in fields:
        return ()
    return (Finding("layout", "an early layout of AIPerf: its metrics lie under `records`"),)


def _reasoning(metrics: Fields) -> tuple[Finding, ...]:
    """`output token count` leaves out what a reasoning model thinks; speed does not."""
    thought = _average(metrics, "total_reasoning_tokens")
    shown = _average(metrics, "total_output_tokens")
    if not thought or shown is None:
        return ()
    return (
        Finding(
            "reasoning",
            f"{thought:,.0f} of the {thought + shown:,.0f} output tokens are reasoning that no "
            "reader sees; lengths, tokens/s and ITL here count both",
        ),
    )


# --- one request a line ---------------------------------------------------------------------------


def read_lines(values: Iterable[tuple[str, Any]], room: Room) -> BenchmarkRun:
    """Return the run whose requests come with their places; its summary is AIPerf's arithmetic.

    Raises ResultFileError, with the place, for a value of the wrong kind, and for more requests
    than `room` allows.
    """
    rows: list[RequestTimeline] = []
    notes: list[str] = []
    zero_ns: float | None = None
    warm_up = whole = 0
    for place, value in values:
        fields = Fields(value, place, notes)
        metadata = fields.child("metadata")
        if metadata is None:
            raise ResultFileError("has no metadata", fields.place)
        phase = metadata.text(metadata.first("benchmark_phase", "credit_phase") or "")
        if phase not in (None, "profiling"):
            warm_up += 1
            continue
        start, end = _span_ns(fields, metadata)
        zero_ns = start if zero_ns is None else zero_ns
        # differences of whole nanoseconds are exact only before they become floats
        sent_s = (start - zero_ns) / 1e9
        row, paced = _request(fields, metadata, sent_s, (end - zero_ns) / 1e9)
        room.take(place, requests=1, chunks=len(row.token_counts))
        whole += not paced
        rows.append(row)
    if not rows:
        raise ResultFileError("has only warm-up requests, nothing that was measured")
    findings = [*told(notes)]
    if warm_up:
        findings.append(Finding("warm-up", f"{warm_up} warm-up requests are left out"))
    if whole:
        text = f"{whole} answers without the times of their chunks: no single gaps are known there"
        findings.append(Finding("chunks", text))
    timelines = tuple(rows)
    return BenchmarkRun(
        place="line 1",
        label="",
        summary=_recomputed(timelines),
        timelines=None if whole else timelines,
        requests=as_table(timelines),
        starts_known=True,
        itl_is="requests",
        convention="aiperf",
        findings=tuple(findings),
    )


def _span_ns(fields: Fields, metadata: Fields) -> tuple[float, float]:
    """When a request was sent and ended; until autumn 2025 only its latency told the end."""
    key = metadata.first("request_start_ns", "timestamp_ns") or "request_start_ns"
    if metadata.number(key, limit=_EPOCH_NS) is None:
        raise ResultFileError("has no request_start_ns", metadata.place)
    start: float = metadata.data[key]
    if metadata.number("request_end_ns", limit=_EPOCH_NS) is not None:
        return start, metadata.data["request_end_ns"]
    if key == "request_start_ns":
        raise ResultFileError("has no request_end_ns", metadata.place)
    metrics = fields.child("metrics") or Fields({}, fields.place, fields.notes)
    latency_s = _value(metrics, "request_latency", time=True) or 0.0
    return start, start + round(latency_s * 1e9)


def _request(
    fields: Fields, metadata: Fields, sent_s: float, end_s: float
) -> tuple[RequestTimeline, bool]:
    """Return one request, and whether the times of its chunks are known."""
    metrics = fields.child("metrics") or Fields({}, fields.place, fields.notes)
    error = _error(fields, metadata)
    tokens = int(_value(metrics, "output_sequence_length", "output_token_count") or 0)
    prompts = int(_value(metrics, "input_sequence_length", "error_isl") or 0)
    ttft_s = _value(metrics, "time_to_first_token", "ttft", time=True)
    e2e_s = _value(metrics, "request_latency", time=True)
    gaps = _gaps(metrics)
    counts: tuple[int, ...] = ()
    paced = True
    if error is None and tokens > 0:
        if ttft_s is None:
            ttft_s, gaps = e2e_s if e2e_s is not None else max(end_s - sent_s, 0.0), None
        if gaps is None and tokens > 1 and e2e_s is not None and e2e_s > ttft_s:
            gaps, counts, paced = [e2e_s - ttft_s], (1, tokens - 1), False
        else:
            counts = spread(tokens, len(gaps or ()) + 1)
    elif error is None:
        error = "an answer without a token"
    row = timeline(
        scheduled_s=sent_s,
        sent_s=sent_s,
        ttft_s=ttft_s or 0.0,
        gaps_s=gaps or () if counts else (),
        counts=counts,
        end_s=max(end_s, sent_s),
        prompt_tokens=prompts,
        error=error,
        place=fields.place,
    )
    return row, paced


def _error(fields: Fields, metadata: Fields) -> str | None:
    error = fields.data.get("error")
    if error is None:
        return "cancelled" if metadata.data.get("was_cancelled") is True else None
    if isinstance(error, str):
        return error_text(error)
    told_by = Fields(error, fields.where("error"))
    return error_text(told_by.text("message") or told_by.text("type") or "failed")


def _value(metrics: Fields, *tags: str, time: bool = False) -> float | None:
    metric = _metric(metrics, *tags)
    value = None if metric is None else metric.number("value")
    if metric is None or value is None:
        return None
    if time:
        return value * _unit_s(metric)
    return value if _has_unit(metric, tags[0]) else None


def _gaps(metrics: Fields) -> list[float] | None:
    metric = _metric(metrics, "inter_chunk_latency")
    if metric is None or not isinstance(metric.data.get("value"), list):
        return None
    unit_s = _unit_s(metric)
    return [gap * unit_s for gap in metric.numbers("value") or ()]


def _recomputed(timelines: tuple[RequestTimeline, ...]) -> RunSummary:
    run: Summary = summarize(timelines)
    printed = as_reported_by("aiperf", timelines)

    def mean_of(values: Iterator[int]) -> float | None:
        found = list(values)
        return sum(found) / len(found) if found else None

    done = [t for t in timelines if t.error is None]
    return RunSummary(
        duration_s=run.window.duration_s or None,
        offered=run.offered,
        completed=run.successes,
        failed=run.offered - run.successes,
        prompt_tokens_mean=mean_of(t.prompt_tokens for t in done),
        output_tokens_mean=mean_of(t.output_tokens for t in done),
        requests_per_s=printed.requests_per_s,
        output_tokens_per_s=printed.output_tokens_per_s,
        concurrency=run.concurrency,
        ttft=Latency.of(run.ttft),
        itl=Latency.of(run.tpot),
        e2e=Latency.of(run.e2e),
    )
