"""Reads InferenceX's results: vLLM's keys, in seconds and without suffix; no other tool's file."""

from __future__ import annotations

from course.serving.files import Fields
from course.serving.results.nouns import BenchmarkRun, Finding, Latency, RunSummary
from course.serving.results.pieces import keyed, latency, of_each, server_of, told, with_rates
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
    if completed is None and "duration" not in fields:
        return _point(fields, tpot)
    summary = RunSummary(
        duration_s=fields.number("duration"),
        offered=fields.count("num_prompts"),
        completed=completed,
        failed=fields.count("failed"),
        prompt_tokens_mean=inputs,
        output_tokens_mean=outputs,
        most_output_tokens=fields.number("osl"),
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
        server=server_of(fields),
        findings=(*told(fields.notes), *_without_suffix(summary), *_interactivity(fields, tpot)),
    )


def _point(fields: Fields, tpot: Latency) -> BenchmarkRun:
    """Return an aggregated point: rates a card, and lengths of which only the longest is told.

    It is a closed loop of `conc` users, so Little's law gives requests/s, and those the lengths.
    """
    e2e, users = _latency(fields, "e2el", None), fields.count("conc")
    cards = fields.count("tp")
    per_s = users / e2e.mean_s if users and e2e.mean_s else None
    output_per_s, total_per_s = (
        None if rate is None or not cards else rate * cards
        for rate in (fields.number("output_tput_per_gpu"), fields.number("tput_per_gpu"))
    )
    input_per_s = None
    if output_per_s is not None and total_per_s is not None:
        input_per_s = max(total_per_s - output_per_s, 0.0)
    summary = RunSummary(
        requests_per_s=per_s,
        output_tokens_per_s=output_per_s,
        total_tokens_per_s=total_per_s,
        prompt_tokens_mean=of_each(input_per_s or None, per_s),
        output_tokens_mean=of_each(output_per_s or None, per_s),
        most_output_tokens=fields.number("osl"),
        max_concurrency=users,
        ttft=_latency(fields, "ttft", None),
        tpot=tpot,
        itl=_latency(fields, "itl", None),
        e2e=e2e,
    )
    return BenchmarkRun(
        place=fields.place,
        label=fields.text(fields.first("model_id", "model") or "") or "",
        summary=summary,
        server=server_of(fields),
        findings=(
            *told(fields.notes), *_without_suffix(summary), *_interactivity(fields, tpot),
            *_derived(summary, cards),
        ),
    )  # fmt: skip


def _derived(summary: RunSummary, cards: int | None) -> tuple[Finding, ...]:
    """What an aggregated point leaves out, and where its rates and lengths come from here."""
    if summary.requests_per_s is None:
        return ()
    text = "a point without counts: requests/s is its users over the mean E2E, by Little's law"
    if summary.output_tokens_per_s is not None:
        text += f", tokens/s the rate a card on {cards} cards, and the lengths follow"
    if summary.most_output_tokens is not None:
        text += f"; osl = {summary.most_output_tokens:g} is the longest answer, not the mean"
    return (Finding("derived", text),)


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
