"""Same timestamps, many tools: what may be edited, which tools answer, what is said; no rule of a
tool and no metric.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from course.explore.ch01.six_requests import Edits, six_requests
from course.explore.ch01.tool_rules import rule_of
from course.figures.ch01.many_tools import METRICS, ManyTools, ManyToolsPicture, ToolRow
from course.serving.requests import (
    CONVENTIONS,
    SLO,
    Reported,
    RequestTimeline,
    as_reported_by,
    summarize,
)
from course.ui import Explorer, Prediction, Preset, Table, choice, slider, toggle
from course.words import rounded

FIVE = ("vllm", "sglang-openai", "guidellm", "aiperf", "llmperf")
LIMITS = SLO(ttft_s=0.4, tpot_s=0.055)
# Names that fit a table's column; the others are the tools' own.
_SHORT = {"hf": "HF benchmarker"}


@dataclass(frozen=True)
class ManyToolsParameters:
    """Which figure is compared, by which tools, and what is different about the six requests."""

    metric: str = choice(
        "tpot_mean_s", {metric.name: field for field, metric in METRICS.items()},
        label="Compare", help="The figure whose column is marked and drawn as bars",
    )  # fmt: skip
    all_tools: bool = toggle(
        False, label="all eleven tools", help="Five tools, or all eleven of the appendix"
    )
    tokens_per_chunk: int = choice(
        0, {"as printed": 0, "1": 1, "2": 2, "4": 4, "8": 8}, label="Tokens a chunk",
        help="The server keeps its pace and sends a chunk when so many tokens are there",
    )  # fmt: skip
    f_answer: str = choice(
        "two chunks",
        {"two chunks of 4": "two chunks", "one chunk of 8": "one chunk", "one token": "one token"},
        label="F's answer", help="How the eight tokens of F come, or only one of them",
    )  # fmt: skip
    e_fails: bool = toggle(
        True, label="E fails", help="E ends with HTTP 500, or is answered with four tokens"
    )
    d_delay_ms: float = slider(
        110.0, 0.0, 600.0, 10.0, label="D held back by the client", unit="ms",
        help="How long after its intended time the load generator really sends D",
    )  # fmt: skip
    d_stall_ms: float = slider(
        300.0, 20.0, 1000.0, 10.0, label="Stall in D", unit="ms",
        help="The gap before D's fourth token",
    )  # fmt: skip
    a_last_ms: float = slider(
        400.0, 360.0, 2000.0, 10.0, label="A's last token", unit="ms",
        help="When A's fifth token comes; the fourth is there at 350 ms",
    )  # fmt: skip
    clock_ms: float = slider(
        30.0, 0.0, 1000.0, 10.0, label="Stopwatch after the last answer", unit="ms",
        help="What the tool still does inside its own stopwatch when every answer is there",
    )  # fmt: skip


def _own(requests: tuple[RequestTimeline, ...]) -> Reported:
    """The course's own figures, in the columns of the tools."""
    run = summarize(requests, LIMITS)
    itl = run.itl
    return Reported(
        ttft_mean_s=run.ttft.mean,
        ttft_p90_s=run.ttft.p90,
        tpot_mean_s=run.tpot.mean,
        itl_mean_s=None if itl is None else itl.mean,
        itl_p50_s=None if itl is None else itl.p50,
        itl_p99_s=None if itl is None else itl.p99,
        e2e_mean_s=run.e2e.mean,
        requests_per_s=run.requests_per_s,
        output_tokens_per_s=run.output_tokens_per_s,
        goodput_per_s=run.goodput_per_s,
    )


def _many_tools(p: ManyToolsParameters) -> ManyTools:
    requests = six_requests(
        Edits(p.tokens_per_chunk, p.f_answer, p.e_fails, p.d_delay_ms, p.d_stall_ms, p.a_last_ms)
    )
    # Added in milliseconds: 1.27 s + 0.03 s is a bit less than 1.3 s.
    last_ms = max(round(1000 * request.end_s, 6) for request in requests)
    stopwatch_s = (last_ms + p.clock_ms) / 1000
    rows = [
        ToolRow(
            _SHORT.get(name, convention.tool),
            rule_of(name, p.metric),
            as_reported_by(name, requests, duration_s=stopwatch_s, slo=LIMITS),
        )
        for name, convention in CONVENTIONS.items()
        if p.all_tools or name in FIVE
    ]
    own = ToolRow("this course", "", _own(requests), ours=True)
    return ManyTools(requests, stopwatch_s, p.metric, (*rows, own))


def _with_unit(r: ManyTools, row: ToolRow) -> str:
    unit = "\u00a0ms" if METRICS[r.metric].is_time else "/s"
    return f"{row.printed(r.metric)}{unit}"


def _many_tools_words(r: ManyTools) -> str:
    held = 1e3 * (r.requests[3].sent_s - r.requests[3].scheduled_s)
    return (
        f"{_tools_words(r)} The client held D back for {held:,.0f} ms; the stopwatch stood at "
        f"{1e3 * r.stopwatch_s:,.0f} ms."
    )


def _tools_words(r: ManyTools) -> str:
    name, smallest, largest = METRICS[r.metric].name, r.smallest, r.largest
    if smallest is None or largest is None:
        return f"None of the {len(r.tools)} tools prints a {name}."
    silent = ""
    if r.silent:
        tools = ", ".join(row.tool for row in r.silent)
        silent = f" No {name}: {tools}."
    printing = len(r.tools) - len(r.silent)
    head = f"Same timestamps, {printing} {'tool' if printing == 1 else 'tools'}"
    if r.different == 1:
        return f"{head}, one {name}: {_with_unit(r, smallest)}.{silent}"
    apart = "" if r.factor is None else f", {rounded(r.factor)} times as much"
    return (
        f"{head}, {r.different} different answers for the {name}: from {_with_unit(r, smallest)} "
        f"({smallest.tool}) to {_with_unit(r, largest)} ({largest.tool}){apart}. "
        f"{smallest.tool}: {smallest.rule}. {largest.tool}: {largest.rule}.{silent}"
    )


def _many_tools_question(r: ManyTools) -> str:
    return (
        f"{len(r.tools)} tools look at the same six requests. How many times the smallest "
        f"{METRICS[r.metric].name} that one of them prints is the largest?"
    )


def _tables(r: ManyTools) -> list[Table]:
    return [{"tool": row.tool, **asdict(row.reported)} for row in r.rows]


many_tools = Explorer(
    call="explore.many_tools",
    title="Same timestamps, many tools",
    parameters=ManyToolsParameters,
    compute=_many_tools,
    drawing=ManyToolsPicture,
    narrate=_many_tools_words,
    alt=(
        "Above, six requests A to F on a time axis in milliseconds: when each was sent, a dot for "
        "each chunk of its answer, larger for more tokens, and its end. Below, a table with a row "
        "of figures for each benchmark tool and one for this course; the chosen column is marked "
        "and drawn as bars. Good requests: TTFT at most 400 ms and TPOT at most 55 ms."
    ),
    presets=(
        Preset(
            "The printed six",
            "Six requests as the text prints them, five tools.",
            "Nobody measured anything twice. How can the TPOT differ at all?",
            {},
        ),
        Preset(
            "Everything one token a chunk",
            "The server streams every token by itself, at the pace it had.",
            "Three tools agree on the mean ITL now. Why do the other two still not?",
            {"metric": "itl_mean_s", "tokens_per_chunk": 1},
        ),
        Preset(
            "Chunks of four",
            "The same tokens at the same pace, but sent four at a time.",
            "The server did not get slower. Whose ITL did, and what happened to the TTFT?",
            {"metric": "itl_mean_s", "tokens_per_chunk": 4},
        ),
        Preset(
            "One-token answers",
            "F answers with one token too, as C does: no gap, no TPOT.",
            "Is an answer of one token a good answer? Who says yes?",
            {"metric": "goodput_per_s", "f_answer": "one token", "all_tools": True},
        ),
        Preset(
            "A failed request",
            "E ends in an error after 100 ms; one tool counts it as a request served.",
            "Would this tool's throughput rise or fall if every second request failed at once?",
            {"metric": "requests_per_s", "all_tools": True},
        ),
        Preset(
            "A slow client",
            "The load generator holds D back for 600 ms before it sends it.",
            "Whose clock runs while the client's own queue does?",
            {"metric": "ttft_mean_s", "d_delay_ms": 600.0, "all_tools": True},
        ),
        Preset(
            "Ramp and drain",
            "A drips on until 1.9 s, alone, and the tool takes half a second to come to an end.",
            "The server was as fast as before. Why did every request rate fall?",
            {
                "metric": "requests_per_s", "a_last_ms": 1900.0, "clock_ms": 500.0,
                "all_tools": True,
            },
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_many_tools_question,
        unit="times",
        answer=lambda r: r.factor,
        mark=lambda r, guess: (guess, 0.0),
    ),
)  # fmt: skip
