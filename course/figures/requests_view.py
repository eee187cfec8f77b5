"""A loaded result or a simulated run as points that can be brushed, beside their histogram; no
file is read and no metric is defined here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from course.figures.axes import BLUE, GREEN, MUTED, ORANGE, PURPLE, SKY, YELLOW
from course.serving.requests import RequestTable, Status, metrics
from course.serving.results import BenchmarkResult
from course.words import seconds

if TYPE_CHECKING:
    import altair as alt

    from course.serving.engine import Run

MAX_ROWS: Final = 5000
"""No more requests than this are drawn; of more, a random sample is."""

LATENCIES: Final = ("TTFT", "E2E", "TPOT")

# Colour and shape of each way to end: never the colour alone.
_STATUSES: Final[dict[Status, tuple[str, str, str]]] = {
    Status.FINISHED: ("finished", BLUE, "circle"),
    Status.FAILED: ("failed", ORANGE, "cross"),
    Status.TIMED_OUT: ("timed out", PURPLE, "square"),
    Status.CANCELLED: ("cancelled", YELLOW, "diamond"),
    Status.REJECTED: ("rejected", MUTED, "triangle-up"),
    Status.UNFINISHED: ("unfinished", SKY, "triangle-right"),
}
_SEEN: Final = GREEN


@dataclass(frozen=True, eq=False)
class ViewedRequests:
    """What is drawn: the requests, whether their clocks share a zero, where they come from."""

    table: RequestTable
    starts_known: bool
    source: str


def viewed(source: BenchmarkResult | Run, run: int = 0) -> ViewedRequests:
    """Return the requests of a loaded file's run number `run`, or of a simulation.

    Raises ValueError where the file has no such run, or only a summary without its requests.
    """
    if not isinstance(source, BenchmarkResult):
        table = source.requests
        if not table.size:
            raise ValueError("source has no request at all; simulate a workload with some")
        return ViewedRequests(table, True, "simulated")
    if not 0 <= run < len(source.runs):
        raise ValueError(f"run={run!r} is not in {source.path}; give 0 … {len(source.runs) - 1}")
    chosen = source.runs[run]
    if chosen.requests is None or not chosen.requests.size:
        raise ValueError(
            f"run={run} of {source.path} holds only a summary, and no request of its own to draw; "
            "let the tool save the single requests too (vLLM: --save-detailed)"
        )
    return ViewedRequests(chosen.requests, chosen.starts_known, f"{source.tool}, {source.path}")


def requests_chart(
    requests: ViewedRequests, *, latency: str = "TTFT", seed: int = 1
) -> alt.VConcatChart:
    """Return the chart: requests as points over their sending, a histogram of a latency below.

    Dragging over the points brushes them: the histogram shows in green what they make of it,
    before the grey of all. Dragging along the histogram leaves only its requests among the points
    strong. `latency` is the one shown first: "TTFT", "E2E" or "TPOT", in seconds; a list under
    the chart changes it. Of more than 5,000 requests a random sample drawn with `seed` is shown,
    and the title says so; the percentiles there are always those of all. Raises ValueError for an
    unknown latency.
    """
    import altair as alt

    if latency not in LATENCIES:
        raise ValueError(f"latency={latency!r} is not drawn; give one of {', '.join(LATENCIES)}")
    columns = _columns(requests.table)
    chosen = _sample(requests.table.size, seed)
    data = alt.InlineData(values=_rows(requests, columns, chosen))
    picked = alt.param(
        name="latency", value=latency,
        bind=alt.binding_select(options=list(LATENCIES), name="Latency "),
    )  # fmt: skip
    # What is dragged over the points, and along the histogram.
    dots = alt.selection_interval(name="points", encodings=["x", "y"])
    range_ = alt.selection_interval(name="range", encodings=["x"])
    every = alt.Chart(data)
    # Binned before the layers part: a selection along the bins then knows every point's bin.
    base = (
        every.transform_calculate(seconds="datum[latency]")
        .transform_filter("isValid(datum.seconds)")
        .transform_bin(["bin", "bin_end"], "seconds", bin=alt.Bin(maxbins=50))
    )
    below = [_histogram(base, dots, range_)]
    missed = requests.table.size - int(requests.table.finished.sum())
    if missed:
        below.insert(0, _missed(every, requests))
    chart = alt.vconcat(_points(base, requests, dots, range_), *below, spacing=14)
    shown: alt.VConcatChart = (
        chart.add_params(picked)
        .properties(title=alt.TitleParams(_title(requests, chosen), **_subtitle(columns, missed)))
        .configure_axis(gridColor="#e3e3e3", labelFontSize=12, titleFontSize=12)
        .configure_view(stroke=None)
    )
    return shown


def _columns(table: RequestTable) -> dict[str, npt.NDArray[np.float64]]:
    """The three latencies in seconds, NaN where a request has none."""
    finished = table.finished
    first = np.where(finished, table.first_token_s, np.nan)
    last = np.where(finished, table.last_token_s, np.nan)
    return {
        "TTFT": metrics.ttft_s(table.sent_s, first),
        "E2E": metrics.e2e_s(table.sent_s, last),
        "TPOT": metrics.tpot_s(first, last, table.output_tokens),
    }


def _sample(size: int, seed: int) -> npt.NDArray[np.int64]:
    if size <= MAX_ROWS:
        return np.arange(size)
    drawn = np.random.default_rng(seed).choice(size, MAX_ROWS, replace=False)
    drawn.sort()
    return drawn


def _rows(
    requests: ViewedRequests,
    columns: dict[str, npt.NDArray[np.float64]],
    chosen: npt.NDArray[np.int64],
) -> list[dict[str, Any]]:
    """One plain object a request; what is undefined is left null."""
    table = requests.table
    status = table.status
    assert status is not None
    begin = float(table.sent_s.min())
    rows = []
    for i in chosen.tolist():
        row: dict[str, Any] = {
            "request": i,
            "at": round(float(table.sent_s[i]) - begin, 6) if requests.starts_known else i,
            "status": _STATUSES[Status(int(status[i]))][0],
            "tokens": int(table.output_tokens[i]),
        }
        if table.prompt_tokens is not None:
            row["prompt"] = int(table.prompt_tokens[i])
        for name, values in columns.items():
            row[name] = None if np.isnan(values[i]) else round(float(values[i]), 6)
        rows.append(row)
    return rows


def _x(requests: ViewedRequests) -> Any:
    import altair as alt

    title = "sent (s after the first)"
    if not requests.starts_known:
        title = "request number (the file has no start times)"
    last = float(np.ptp(requests.table.sent_s)) if requests.starts_known else requests.table.size
    edge = 0.01 * max(last, 1e-3)
    scale = alt.Scale(domain=[-edge, last + edge], nice=False)
    return alt.X("at:Q", title=title, scale=scale)


def _tooltip(requests: ViewedRequests) -> list[Any]:
    import altair as alt

    shown = [alt.Tooltip("request:Q"), alt.Tooltip("status:N")]
    if requests.table.prompt_tokens is not None:
        shown.append(alt.Tooltip("prompt:Q", title="prompt tokens"))
    shown.append(alt.Tooltip("tokens:Q", title="output tokens"))
    return shown + [alt.Tooltip(f"{name}:Q", title=f"{name} (s)") for name in LATENCIES]


def _by_status(requests: ViewedRequests) -> tuple[Any, Any]:
    """Colour and shape of the ways to end that occur."""
    import altair as alt

    status = requests.table.status
    assert status is not None
    there = [_STATUSES[kind] for kind in _STATUSES if (status == kind).any()]
    names = [name for name, _, _ in there]
    legend = None if len(there) == 1 else alt.Legend(title=None, orient="top")
    colour = alt.Color(
        "status:N", scale=alt.Scale(domain=names, range=[c for _, c, _ in there]), legend=legend
    )
    shape = alt.Shape(
        "status:N", scale=alt.Scale(domain=names, range=[s for _, _, s in there]), legend=legend
    )
    return colour, shape


def _points(base: Any, requests: ViewedRequests, dots: Any, range_: Any) -> Any:
    import altair as alt

    colour, shape = _by_status(requests)
    return (
        base.mark_point(filled=True, size=26)
        .encode(
            x=_x(requests),
            y=alt.Y("seconds:Q", title="latency (s)"),
            color=colour,
            shape=shape,
            opacity=alt.condition(dots & range_, alt.value(0.75), alt.value(0.1)),
            tooltip=_tooltip(requests),
        )
        .add_params(dots)
        .properties(width=600, height=220)
    )


def _missed(base: Any, requests: ViewedRequests) -> Any:
    """A strip of the requests that have no latency, where they were sent."""
    import altair as alt

    colour, shape = _by_status(requests)
    return (
        base.transform_filter("datum.status != 'finished'")
        .mark_point(filled=True, size=40, opacity=0.8)
        .encode(
            x=_x(requests),
            y=alt.Y("status:N", title=None),
            color=colour,
            shape=shape,
            tooltip=_tooltip(requests),
        )
        .properties(width=600, height=alt.Step(18))
    )


def _histogram(base: Any, dots: Any, range_: Any) -> Any:
    import altair as alt

    places = {
        "x": alt.X("bin:Q", bin="binned", title="latency (s)"),
        "x2": "bin_end",
        "y": alt.Y("count():Q", title="requests"),
    }
    every = base.mark_bar(color="#cfcfcf").encode(**places).add_params(range_)
    brushed = base.transform_filter(dots).mark_bar(color=_SEEN).encode(**places)
    return alt.layer(every, brushed).properties(width=600, height=130)


def _title(requests: ViewedRequests, chosen: npt.NDArray[np.int64]) -> str:
    size = requests.table.size
    count = f"{size:,} {'request' if size == 1 else 'requests'}"
    if chosen.size < size:
        count = f"{chosen.size:,} of {size:,} requests, drawn at random"
    return f"{count} ({requests.source})"


def _subtitle(columns: dict[str, npt.NDArray[np.float64]], missed: int) -> dict[str, Any]:
    """The percentiles of all requests, drawn or not."""
    words: list[str] = []
    for name, values in columns.items():
        sample = metrics.distribution(values)
        if sample.p50 is not None and sample.p99 is not None:
            words.append(f"{name} P50 {seconds(sample.p50)}, P99 {seconds(sample.p99)}")
    lines: Sequence[str] = ["; ".join(words) or "no request finished"]
    if missed:
        has = "has" if missed == 1 else "have"
        lines = [*lines, f"{missed:,} without a complete answer {has} no latency"]
    return {"subtitle": list(lines), "anchor": "start", "fontSize": 13, "subtitleFontSize": 12}
