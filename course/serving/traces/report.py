"""A trace's run as a practitioner reads it, in lines and sentences; no number is computed here.

`trace_report` puts all together; `trace_notes` are the sentences that qualify the figures.
"""

from __future__ import annotations

import math
from textwrap import fill

from course.serving.requests import SLO, Distribution, Percentile
from course.serving.traces.own_trace import QUANTILES, TraceRun
from course.words import percent, rounded, seconds

_WIDTH = 100
_LABEL_WIDTH = 12
_MEAN_WIDTH = 9
_CELL_WIDTH = 25
_FELL_BEHIND = 0.02


def trace_report(found: TraceRun) -> str:
    """Return the whole report."""
    parts = [*_heads(found), "", *_load(found), "", *_latencies(found), "", *_engine_room(found)]
    parts += [*_slo_lines(found), "", "To be read with this in mind:"]
    parts += [
        fill(note, _WIDTH, initial_indent="  - ", subsequent_indent="    ", break_on_hyphens=False)
        for note in trace_notes(found)
    ]
    return "\n".join(parts)


def _line(label: str, words: str) -> str:
    return fill(
        words,
        _WIDTH,
        initial_indent=f"{label:<{_LABEL_WIDTH}}",
        subsequent_indent=" " * _LABEL_WIDTH,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _heads(found: TraceRun) -> list[str]:
    run, config = found.run, found.run.config
    work = run.work
    rate = f", {rounded(work.rate_per_s)} a second" if work.rate_per_s > 0 else ""
    scaled = " (rescaled)" if found.rescaled else ""
    blocks = (
        "KV not limited"
        if config.num_kv_blocks is None
        else f"{config.num_kv_blocks:,} KV blocks of {config.block_size} tokens"
    )
    chunked = "chunked prefill" if config.enable_chunked_prefill else "whole prompts first"
    order = getattr(config.order, "name", "an order of your own")
    name = f"{found.trace.path} ({found.trace.layout})" if found.trace.path else found.trace.layout
    return [
        _line(
            "Trace",
            f"{name}: {len(work):,} requests{rate}{scaled}; {rounded(work.mean_prompt_tokens)} "
            f"prompt and {rounded(work.mean_output_tokens)} output tokens on average",
        ),
        _line(
            "Engine",
            f"{config.max_num_seqs:,} seats, {config.max_num_batched_tokens:,} tokens a step, "
            f"{chunked}, {blocks}, {order}",
        ),
        _line("Cost", found.cost_words or repr(run.cost)),
    ]


def _load(found: TraceRun) -> list[str]:
    summary, counts = found.summary, found.summary.counts
    ended = ", ".join(
        f"{count:,} {name.replace('_', ' ')}"
        for name, count in counts.items()
        if count or name in ("finished", "rejected")
    )
    rates = (
        (summary.requests_per_s, "requests/s"),
        (summary.output_tokens_per_s, "output tokens/s"),
        (summary.total_tokens_per_s, "tokens/s in all"),
    )
    lines = [
        _line("Requests", f"{summary.offered:,} offered: {ended}"),
        _line("Duration", f"{seconds(summary.window.duration_s)}, {summary.window.name}"),
        _line(
            "Throughput",
            ", ".join(f"{rounded(rate)} {unit}" for rate, unit in rates if rate is not None)
            or "undefined",
        ),
    ]
    if summary.concurrency is not None:
        inside = (
            f"{rounded(summary.concurrency)} requests on average, "
            f"{summary.concurrency_peak:,} at the peak"
        )
        lines.append(_line("Inside", inside))
    return lines


def _latencies(found: TraceRun) -> list[str]:
    summary = found.summary
    samples = {"TTFT": summary.ttft, "TPOT": summary.tpot, "E2E": summary.e2e}
    head = "".join(f"{label.upper():<{_CELL_WIDTH}}" for label in QUANTILES)
    lines = [f"{'':<{_LABEL_WIDTH}}{'mean':<{_MEAN_WIDTH}}{head}".rstrip()]
    lines += [_row(name, sample) for name, sample in samples.items() if sample.samples]
    if len(lines) == 1:
        return ["No request was finished, so there is no latency."]
    missed = summary.offered - summary.successes
    if missed:
        lines.append(f"The same with the {missed:,} that got no answer behind all others:")
        lines += [
            _row(name, samples[name], misses_as_infinite=True)
            for name in ("TTFT", "E2E")
            if samples[name].samples
        ]
    lines.append(
        "In brackets: where it lies with 90 % confidence if requests were independent; ?: too few."
    )
    if summary.itl is not None and summary.itl.samples:
        parts = ("mean", "p50", "p99")
        gaps = ", ".join(f"{part} {seconds(getattr(summary.itl, part))}" for part in parts)
        lines.append(f"Single gaps between tokens (ITL): {gaps.replace(' p', ' P')}.")
    return lines


def _row(name: str, sample: Distribution, *, misses_as_infinite: bool = False) -> str:
    mean = "–" if sample.mean is None or misses_as_infinite else seconds(sample.mean)
    cells = "".join(
        f"{_cell(sample.percentile(q, misses_as_infinite=misses_as_infinite)):<{_CELL_WIDTH}}"
        for q in QUANTILES.values()
    )
    label = f"{f'  {name}':<{_LABEL_WIDTH}}"
    return f"{label}{mean:<{_MEAN_WIDTH}}{cells}".rstrip()


def _cell(found: Percentile) -> str:
    """Return a percentile and its bounds, the unit written once where they share it."""
    if found.value is None:
        return "–"
    if math.isinf(found.value):
        return "∞"
    low, high = (_bound(bound) for bound in (found.low, found.high))
    unit = low.partition(" ")[2]
    if unit and unit == high.partition(" ")[2]:
        low = low.partition(" ")[0]
    return f"{seconds(found.value)} [{low}–{high}]"


def _bound(value: float | None) -> str:
    if value is None:
        return "?"
    return "∞" if math.isinf(value) else seconds(value)


def _engine_room(found: TraceRun) -> list[str]:
    run = found.run
    lines = []
    if found.kv_share is not None:
        average, peak = found.kv_share
        lines.append(
            _line(
                "KV cache",
                f"{percent(average)} held in the average step, {percent(peak)} in the fullest",
            )
        )
    total, hit = int(run.preemptions.sum()), int((run.preemptions > 0).sum())
    often = f"; requests preempted: {hit:,}; most of one request: {run.preemptions.max()}"
    lines.append(_line("Preemptions", f"{total:,}{often if hit else ''}"))
    return lines


def _slo_lines(found: TraceRun) -> list[str]:
    slo, summary = found.slo, found.summary
    if slo is None or summary.attainment is None or summary.goodput_per_s is None:
        return []
    inside = "inside" if summary.inside_slo else "not inside"
    words = (
        f"{percent(summary.attainment)} of the requests offered meet {_limits(slo)}: {inside} "
        f"the SLO, which asks for {percent(slo.quantile)}"
    )
    goodput = f"{rounded(summary.goodput_per_s)} requests/s that meet every limit"
    return [_line("SLO", words), _line("Goodput", goodput)]


def _limits(slo: SLO) -> str:
    named = {"TTFT": slo.ttft_s, "TPOT": slo.tpot_s, "E2E": slo.e2e_s}
    return " and ".join(f"{n} ≤ {seconds(limit)}" for n, limit in named.items() if limit)


# ========================================================================================= notes
def trace_notes(found: TraceRun) -> tuple[str, ...]:
    """Return what has to be known before the figures are used."""
    return (*found.trace.warnings, *_of_the_run(found), *_of_the_model(found))


def _of_the_run(found: TraceRun) -> list[str]:
    words = []
    for limit, count in found.rejected_for.items():
        if count:
            words.append(
                f"rejected on arrival, because prompt and output together need more than the "
                f"{limit} can ever hold: {count:,}"
            )
    waiting = found.waiting_at_last_arrival
    if waiting >= max(20, _FELL_BEHIND * found.summary.offered):
        words.append(
            f"the engine fell behind: {waiting:,} requests were still waiting when the last one "
            "came, so that a longer trace would give longer waits"
        )
    undefined = found.summary.tpot.undefined
    if undefined:
        words.append(
            f"answers of one token, which have no TPOT and are in no TPOT figure: {undefined:,}"
        )
    return words


def _of_the_model(found: TraceRun) -> list[str]:
    words = [
        "this is a simulation: the seconds of a step are an estimate, and what a server does "
        "besides (network, tokenizer, sampling on the host, prefix cache) is not in it",
    ]
    if getattr(found.run.config.order, "name", "") == "sjf":
        words.append(
            "sjf was given the true output lengths, which no server knows: read it as the best case"
        )
    return words
