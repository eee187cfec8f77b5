"""Reads inference-perf's `stage_N_lifecycle_metrics.json`; no other tool's file."""

from __future__ import annotations

from course.serving.files import Fields
from course.serving.results.nouns import BenchmarkRun, Finding, Latency, RunSummary
from course.serving.results.pieces import latency, share_of, told, with_rates

TOOL = "inference-perf"


def recognises(data: object) -> bool:
    """Whether this is one stage (or the summary) of inference-perf."""
    if not isinstance(data, dict) or "load_summary" not in data:
        return False
    return "successes" in data and not is_server_metrics(data)


def is_server_metrics(data: dict[str, object]) -> bool:
    """Whether this is what a scrape of the server's own counters gave, which is no client's view.

    >>> is_server_metrics({"load_summary": {}, "successes": {"queue_len": {"mean": 3.0}}})
    True
    """
    good = data.get("successes")
    return isinstance(good, dict) and ("queue_len" in good or "rate" in good)


def version(data: dict[str, object]) -> str | None:
    """The layout does not tell its version."""
    return None


def read(data: object, place: str) -> BenchmarkRun:
    """Return the stage in one object, in which every time is seconds.

    Raises ResultFileError for a value of the wrong kind.
    """
    fields = Fields(data, place)
    empty = Fields({}, place, fields.notes)
    load = fields.child("load_summary") or empty
    good = fields.child("successes") or empty
    failures = fields.child("failures") or empty
    rates, times = good.child("throughput") or empty, good.child("latency") or empty
    completed = good.count("count")
    requests_per_s = rates.number("requests_per_sec")
    measured = completed and requests_per_s
    summary = RunSummary(
        # the file has no duration, but a rate that was divided by it
        duration_s=completed / requests_per_s
        if measured and completed and requests_per_s
        else None,
        offered=load.count("count"),
        completed=completed,
        failed=failures.count("count"),
        prompt_tokens_mean=_mean(good, "prompt_len"),
        output_tokens_mean=_mean(good, "output_len"),
        requests_per_s=requests_per_s,
        output_tokens_per_s=rates.number("output_tokens_per_sec"),
        total_tokens_per_s=rates.number("total_tokens_per_sec"),
        asked_per_s=load.number("requested_rate") or None,
        sent_per_s=load.number("achieved_rate") or None,
        ttft=_latency(times, "time_to_first_token", completed),
        tpot=_latency(times, "time_per_output_token", completed),
        itl=_latency(times, "inter_token_latency", None if completed else completed),
        e2e=_latency(times, "request_latency", completed),
    )
    return BenchmarkRun(
        place=place,
        label="",
        summary=with_rates(summary),
        convention="inference-perf",
        findings=(*told(fields.notes), *_late(load)),
    )


def _mean(fields: Fields, key: str) -> float | None:
    part = fields.child(key)
    return None if part is None else part.number("mean")


def _latency(times: Fields, key: str, samples: int | None) -> Latency:
    part = times.child(key)
    if part is None:
        return Latency(samples=samples)
    names = [(name, name) for name in part.data if name == "mean" or share_of(name) is not None]
    return latency(part, names, 1.0, samples, key)


def _late(load: Fields) -> tuple[Finding, ...]:
    """A client that sends late measures its own queue beside the server's."""
    delays = load.child("schedule_delay")
    if delays is None:
        return ()
    mean_s = delays.number("mean", negative=True)
    if mean_s is None or mean_s <= 0.01:
        return ()
    return (
        Finding(
            "schedule-delay",
            f"the client sent its requests {mean_s * 1000:.0f} ms late on average: that wait is in "
            "no latency of the file, though a user would have felt it",
        ),
    )
