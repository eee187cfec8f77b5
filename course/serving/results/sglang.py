"""Reads the lines that SGLang's `bench_serving` appends, one a run; no other tool's file."""

from __future__ import annotations

from course.serving.files import Fields
from course.serving.requests import as_table
from course.serving.results.nouns import BenchmarkRun, Finding, Latency, RunSummary
from course.serving.results.pieces import Room, keyed, latency, of_each, server_of, told, with_rates
from course.serving.results.served import read_detail
from course.serving.results.vllm import asked_rate

TOOL = "sglang"


def recognises(data: object) -> bool:
    """Whether this is one run of SGLang's benchmark."""
    return (
        isinstance(data, dict)
        and "completed" in data
        and "duration" in data
        and (
            "total_output_tokens_retokenized" in data
            or "sharegpt_output_len" in data
            or any(key.endswith("_e2e_latency_ms") for key in data)
        )
    )


def version(data: dict[str, object]) -> str | None:
    """What the layout tells of the version."""
    if "request_throughput" not in data:
        return "2024 (short key set)"
    return "0.5" if "goodput_slos_ms" in data or "server_info" in data else None


def read(data: object, place: str, room: Room) -> BenchmarkRun:
    """Return the run in one line; latencies are milliseconds there, `duration` seconds.

    Raises ResultFileError for a value of the wrong kind, and for more requests than `room` allows.
    """
    fields = Fields(data, place)
    native = fields.text("backend") == "sglang"
    detail = read_detail(fields, room, first_chunk_takes_rest=native)
    completed = fields.count("completed")
    summary = RunSummary(
        duration_s=fields.number("duration"),
        offered=len(detail.timelines) if detail else None,
        completed=completed,
        prompt_tokens_mean=of_each(fields.number("total_input_tokens"), completed),
        output_tokens_mean=of_each(fields.number("total_output_tokens"), completed),
        requests_per_s=fields.number("request_throughput"),
        output_tokens_per_s=fields.number("output_throughput"),
        total_tokens_per_s=fields.number("total_throughput"),
        goodput_per_s=fields.number("request_goodput"),
        asked_per_s=asked_rate(fields, "request_rate"),
        max_concurrency=fields.count("max_concurrency"),
        concurrency=fields.number("concurrency"),
        ttft=_latency(fields, "ttft", completed),
        tpot=_latency(fields, "tpot", completed),
        itl=_latency(fields, "itl", completed),
        e2e=_latency(fields, "e2e_latency", completed),
    )
    return BenchmarkRun(
        place=place,
        label=_label(fields),
        summary=with_rates(summary),
        server=server_of(fields),
        timelines=None if detail is None else detail.timelines,
        requests=None if detail is None else as_table(detail.timelines),
        starts_known=detail is not None and detail.starts_known,
        convention="sglang" if native else "sglang-openai",
        findings=(
            *told(fields.notes),
            *_recounted(fields),
            *(() if detail is None else detail.findings),
        ),
    )


def _label(fields: Fields) -> str:
    name = fields.text("dataset_name") or ""
    return f"data set {name}" if name else ""


def _latency(fields: Fields, what: str, completed: int | None) -> Latency:
    names = keyed(fields, "{}_{what}_ms", what)
    samples = None if what == "itl" and completed else completed
    return latency(fields, names, 1e-3, samples, what.upper().replace("E2E_LATENCY", "E2E"))


def _recounted(fields: Fields) -> tuple[Finding, ...]:
    """Output lengths that were asked for and not counted give themselves away here."""
    said = fields.number("total_output_tokens")
    counted = fields.number("total_output_tokens_retokenized")
    if not said or counted is None or abs(counted - said) <= 0.05 * said:
        return ()
    return (
        Finding(
            "token-count",
            f"the file counts {said:,.0f} output tokens, but {counted:,.0f} when the texts are "
            "tokenised again: perhaps lengths that were asked for, not produced; tokens/s and "
            "TPOT follow whichever is wrong",
        ),
    )
