"""Reads InferenceX's results: vLLM's keys, in seconds and without suffix; no other tool's file."""

from __future__ import annotations

from course.serving.files import Fields
from course.serving.results.nouns import BenchmarkRun, Finding, Latency, RunSummary
from course.serving.results.pieces import keyed, latency, of_each, told, with_rates
from course.serving.results.vllm import asked_rate

TOOL = "inferencex"


def recognises(data: object) -> bool:
    """Whether this is one run (or one aggregated point) of InferenceX."""
    return isinstance(data, dict) and any(
        key.endswith(("_ttft", "_tpot", "_e2el", "_itl", "_intvty")) for key in data
    )


def version(data: dict[str, object]) -> str | None:
    """What the layout tells of the version."""
    return "aggregated point" if "duration" not in data else None


def read(data: object, place: str) -> BenchmarkRun:
    """Return the run in one object, in which every latency is seconds.

    Raises ResultFileError for a value of the wrong kind.
    """
    fields = Fields(data, place)
    completed = fields.count("completed")
    inputs = of_each(fields.number("total_input_tokens"), completed)
    outputs = of_each(fields.number("total_output_tokens"), completed)
    tpot = _latency(fields, "tpot", completed)
    summary = RunSummary(
        duration_s=fields.number("duration"),
        offered=fields.count("num_prompts"),
        completed=completed,
        failed=fields.count("failed"),
        prompt_tokens_mean=fields.number("isl") if inputs is None else inputs,
        output_tokens_mean=fields.number("osl") if outputs is None else outputs,
        requests_per_s=fields.number("request_throughput"),
        output_tokens_per_s=fields.number("output_throughput"),
        total_tokens_per_s=fields.number("total_token_throughput"),
        goodput_per_s=fields.number("request_goodput"),
        asked_per_s=asked_rate(fields, "request_rate"),
        max_concurrency=fields.count(fields.first("max_concurrency", "conc") or ""),
        ttft=_latency(fields, "ttft", completed),
        tpot=tpot,
        itl=_latency(fields, "itl", completed),
        e2e=_latency(fields, "e2el", completed),
    )
    return BenchmarkRun(
        place=place,
        label=fields.text(fields.first("model_id", "model") or "") or "",
        summary=with_rates(summary),
        findings=(*told(fields.notes), *_without_suffix(summary), *_interactivity(fields, tpot)),
    )


def _latency(fields: Fields, what: str, completed: int | None) -> Latency:
    names = keyed(fields, "{}_{what}", what)
    samples = None if what == "itl" and completed else completed
    return latency(fields, names, 1.0, samples, what.upper().replace("E2EL", "E2E"))


def _without_suffix(summary: RunSummary) -> tuple[Finding, ...]:
    """Nothing in the file says the unit; read as milliseconds every figure is 1000 times off."""
    if not any(part.is_known for part in (summary.ttft, summary.tpot, summary.e2e)):
        return ()
    return (
        Finding("unit", "latencies have no unit in their names here; InferenceX means seconds"),
    )


def _interactivity(fields: Fields, tpot: Latency) -> tuple[Finding, ...]:
    """`intvty` is tokens a second for one user, hence 1/TPOT of the same statistic."""
    said, pace_s = fields.number("median_intvty"), tpot.median_s
    if not said or not pace_s or abs(said * pace_s - 1) <= 0.05:
        return ()
    return (
        Finding(
            "tpot",
            f"median_intvty is {said:g} tokens/s a user, but 1/median TPOT is {1 / pace_s:.3g}",
        ),
    )
