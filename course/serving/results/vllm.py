"""Reads what vLLM's `bench serve --save-result` writes; no other tool's file."""

from __future__ import annotations

import math

from course.serving.files import Fields, ResultFileError
from course.serving.requests import as_table
from course.serving.results.nouns import BenchmarkRun, Latency, RunSummary
from course.serving.results.pieces import Room, keyed, latency, of_each, server_of, told, with_rates
from course.serving.results.served import read_detail

TOOL = "vllm"


def recognises(data: object) -> bool:
    """Whether this is one run of vLLM's benchmark."""
    if not isinstance(data, dict) or "completed" not in data or "duration" not in data:
        return False
    if any(key.endswith(("_ttft_ms", "_tpot_ms", "_itl_ms", "_e2el_ms")) for key in data):
        return True
    # every latency may have been left out; InferenceX has the same keys and its own latencies
    others = any(key.endswith(("_ttft", "_tpot", "_itl", "_e2el", "_intvty")) for key in data)
    return "tokenizer_id" in data and not others


def version(data: dict[str, object]) -> str | None:
    """What the layout tells of the version."""
    if "request_goodput:" in data:
        return "0.6 (its goodput key ends in a colon)"
    return None if "failed" in data else "old (it does not count failures)"


def read(data: object, place: str, room: Room) -> BenchmarkRun:
    """Return the run in one object; latencies are milliseconds there, `duration` seconds.

    Raises ResultFileError for a value of the wrong kind, and for more requests than `room` allows.
    """
    fields = Fields(data, place)
    completed = fields.count("completed")
    summary = RunSummary(
        duration_s=fields.number("duration"),
        offered=fields.count("num_prompts"),
        completed=completed,
        failed=fields.count("failed"),
        prompt_tokens_mean=of_each(fields.number("total_input_tokens"), completed),
        output_tokens_mean=of_each(fields.number("total_output_tokens"), completed),
        requests_per_s=fields.number("request_throughput"),
        output_tokens_per_s=fields.number("output_throughput"),
        total_tokens_per_s=fields.number("total_token_throughput"),
        goodput_per_s=fields.number(fields.first("request_goodput", "request_goodput:") or ""),
        asked_per_s=asked_rate(fields, "request_rate"),
        max_concurrency=fields.count("max_concurrency"),
        touched_in_a_second=fields.count("max_concurrent_requests"),
        burstiness=fields.number("burstiness", infinite=True),
        ttft=_latency(fields, "ttft", completed),
        tpot=_latency(fields, "tpot", completed),
        itl=_latency(fields, "itl", completed),
        e2e=_latency(fields, "e2el", completed),
    )
    detail = read_detail(fields, room, first_chunk_takes_rest=False)
    return BenchmarkRun(
        place=place,
        label=fields.text("model_id") or "",
        summary=with_rates(summary),
        server=server_of(fields),
        timelines=None if detail is None else detail.timelines,
        requests=None if detail is None else as_table(detail.timelines),
        starts_known=detail is not None and detail.starts_known,
        convention="vllm-0.6" if "request_goodput:" in fields else "vllm",
        findings=(*told(fields.notes), *(() if detail is None else detail.findings)),
    )


def _latency(fields: Fields, what: str, completed: int | None) -> Latency:
    names = keyed(fields, "{}_{what}_ms", what)
    # a run in which nothing completed prints 0.0 everywhere
    samples = None if what == "itl" and completed else completed
    return latency(fields, names, 1e-3, samples, what.upper().replace("E2EL", "E2E"))


def asked_rate(fields: Fields, key: str) -> float | None:
    """Return the rate asked for: a number, or the word "inf" (all requests at once)."""
    if isinstance(fields.data.get(key), str):
        text = fields.text(key) or ""
        if text.lower() in ("inf", "infinity"):
            return math.inf
        raise ResultFileError(f"is {text!r}, neither a number nor inf", fields.where(key))
    rate = fields.number(key, infinite=True, negative=True)
    return rate if rate is not None and rate > 0 else None
