"""Were a convention wrong, the lesson would accuse a tool of what it does not do."""

from __future__ import annotations

import math
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from course.serving.requests.conventions import CONVENTIONS, Reported, as_reported_by
from course.serving.requests.metrics import SLO, RequestTimeline
from tests.lanes import examples
from tests.serving.timeline_strategies import runs


def ms(scheduled, sent, chunks, end, prompt, error=None):
    times = tuple(at / 1000 for at, _ in chunks)
    counts = tuple(tokens for _, tokens in chunks)
    return RequestTimeline(scheduled / 1000, sent / 1000, times, counts, end / 1000, prompt, error)


WORKED = (
    ms(0, 0, [(200, 1), (250, 1), (300, 1), (350, 1), (400, 1)], 410, 100),
    ms(100, 100, [(500, 1), (600, 2), (800, 3)], 810, 200),
    ms(200, 200, [(450, 1)], 460, 50),
    ms(300, 410, [(900, 1), (920, 1), (940, 1), (1240, 1), (1260, 1)], 1270, 400),
    ms(460, 460, [], 560, 300, error="HTTP 500"),
    ms(900, 900, [(1000, 4), (1100, 4)], 1110, 100),
)

LIMITS = SLO(ttft_s=0.4, tpot_s=0.055)
NOT = "–"
TABLE = """
vllm           288   454 53.57 87.27 50 290   480 3.846 19.23 2.308
vllm-0.6       288   454 55.68 87.27 50 290   490 3.846 19.23 2.308
sglang         288   454 55.68 56.47 50 262.7 490 3.846 19.23 2.308
sglang-openai  288   454 55.68 87.27 50 290   490 3.846 19.23 2.308
guidellm       288   490 96.0  48    50 90    490 3.937 19.69 1.575
aiperf         288   454 –     53.57 55 89.1  480 3.968 19.84 1.587
genai-perf     288   454 –     53.57 55 89.1  480 4.762 19.84 0.794
inference-perf 297.5 463 53.57 48    20 281   490 3.937 19.69 1.575
llmperf        288   454 –     115 125 173.7  490 3.846 23.08 –
hf             288   454 –     42.86 50 88.8  490 3.937 19.69 –
mlperf         310   600 42.86 –     –  –     502 3.636 21.82 –
"""


def printed(value: float | None, like: str) -> str:
    if value is None:
        return NOT
    decimals = len(like.partition(".")[2])
    return f"{value:.{decimals}f}"


@pytest.mark.parametrize("row", TABLE.strip().splitlines(), ids=lambda row: row.split()[0])
def test_the_lessons_table_is_reproduced_to_its_printed_digits(row: str) -> None:
    name, *figures = row.split()
    got = as_reported_by(name, WORKED, duration_s=1.3, slo=LIMITS)
    in_ms = [
        got.ttft_mean_s, got.ttft_p90_s, got.tpot_mean_s, got.itl_mean_s, got.itl_p50_s,
        got.itl_p99_s, got.e2e_mean_s,
    ]  # fmt: skip
    values = [None if v is None else v * 1000 for v in in_ms]
    values += [got.requests_per_s, got.output_tokens_per_s, got.goodput_per_s]
    assert [printed(v, f) for v, f in zip(values, figures, strict=True)] == figures


def test_the_table_has_every_convention() -> None:
    assert [row.split()[0] for row in TABLE.strip().splitlines()] == list(CONVENTIONS)


# --- the rules once more, each written on its own -------------------------------------------------


def content(r: RequestTimeline) -> list[tuple[float, int]]:
    pairs = zip(r.token_times_s, r.token_counts, strict=True)
    return [(at, k) for at, k in pairs if k > 0]


def in_order(values: list[float], q: float, how: str) -> float | None:
    if not values:
        return None
    if how == "linear":
        return float(np.quantile(values, q))
    if how == "inverse":
        return float(np.quantile(values, q, method="inverted_cdf"))
    ranked = sorted(values)
    return ranked[int(len(ranked) * q)]


def average(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def naive(tool: str, requests: list[RequestTimeline], length_s: float, slo: SLO) -> list[object]:
    """What a tool prints, computed without a single piece of the module under test."""
    done = [r for r in requests if r.error is None]
    n = [sum(k for _, k in content(r)) for r in done]
    first = [content(r)[0][0] for r in done]
    last = [content(r)[-1][0] for r in done]
    ttft: list[float | None] = [f - r.sent_s for f, r in zip(first, done, strict=True)]
    to_end = [r.end_s - r.sent_s for r in done]
    to_content = [at - r.sent_s for at, r in zip(last, done, strict=True)]
    pace = [(b - a) / (k - 1) if k > 1 else None for a, b, k in zip(first, last, n, strict=True)]
    gaps = [b[0] - a[0] for r in done for a, b in pairwise(content(r))]
    how, goods, extra_requests, extra_tokens = "linear", None, 0, 0
    tpot: list[float | None] = []
    itl: list[float | None] = []
    e2e, window = to_end, length_s
    everything = max((r.end_s for r in requests), default=0) - min(
        (r.sent_s for r in requests), default=0
    )
    to_last_content = max(last, default=0) - min((r.sent_s for r in done), default=0)
    if tool == "vllm":
        tpot, itl, e2e = pace, gaps, to_content
        goods = list(zip(ttft, [p or 0 for p in pace], e2e, strict=True))
    elif tool in ("vllm-0.6", "sglang", "sglang-openai"):
        tpot = [
            (r.end_s - f) / (k - 1) if k > 1 else None
            for r, f, k in zip(done, first, n, strict=True)
        ]
        itl = gaps
        if tool == "sglang":
            itl = []
            for r in done:
                for (before, _), (at, k) in pairwise(content(r)):
                    itl += [(at - before) / k] * k
        goods = list(zip(ttft, [p or 0 for p in tpot], e2e, strict=True))
    elif tool == "guidellm":
        how, window = "inverse", everything
        goods = list(zip(ttft, pace, e2e, strict=True))
        tpot = [v for v, k in zip(to_content, n, strict=True) for v in [v / k] * k]
        itl = [v for p, k in zip(pace, n, strict=True) for v in [p] * (k - 1)]
    elif tool == "aiperf":
        itl, e2e, window = pace, to_content, to_last_content
        goods = list(zip(ttft, pace, e2e, strict=True))
    elif tool == "genai-perf":
        itl, e2e, window = pace, to_content, to_last_content
        extra_requests = len(requests) - len(done)
        goods = list(zip(ttft, [p for p in pace if p is not None], e2e, strict=False))
    elif tool == "inference-perf":
        window, tpot = everything, pace
        ttft = [t if k > 1 else None for t, k in zip(ttft, n, strict=True)]
        itl = gaps + [0.0] * sum(k - 1 for r in done for _, k in content(r))
        goods = list(zip(ttft, pace, e2e, strict=True))
    elif tool == "llmperf":
        chunks = [len(content(r)) for r in done]
        itl = [v / (c + 1) for v, c in zip(to_content, chunks, strict=True)]
        extra_tokens = len(done)
    elif tool == "hf":
        itl = [p or 0.0 for p in pace]
        opened = min((r.end_s for r in requests), default=0)
        opener_s = min((r.sent_s for r in requests if r.end_s == opened), default=0)
        window = max((r.end_s for r in requests), default=0) - opener_s
    elif tool == "mlperf":
        how, extra_requests, extra_tokens = "floor", -1, -1
        ttft = [f - r.scheduled_s for f, r in zip(first, done, strict=True)]
        tpot = [p or 0.0 for p in pace]
        e2e = [at - r.scheduled_s for at, r in zip(last, done, strict=True)]
        begin = min((r.scheduled_s for r in requests), default=0)
        newest_s = max((r.scheduled_s for r in done), default=0)
        ends = [at for at, r in zip(last, done, strict=True) if r.scheduled_s == newest_s]
        window = max(ends, default=begin) - begin
    if not done and tool in ("aiperf", "genai-perf", "mlperf"):
        window = 0
    good = None
    if goods is not None:
        caps = (slo.ttft_s, slo.tpot_s, slo.e2e_s)
        good = sum(
            all(v is not None and v <= c * (1 + 1e-9) for v, c in zip(row, caps, strict=True))
            for row in goods
        )
    known_ttft = [v for v in ttft if v is not None]
    known_itl = [v for v in itl if v is not None]
    rates = [len(done) + extra_requests, sum(n) + extra_tokens, good]
    return [
        average(known_ttft),
        in_order(known_ttft, 0.9, how),
        average([v for v in tpot if v is not None]),
        average(known_itl),
        in_order(known_itl, 0.5, how),
        in_order(known_itl, 0.99, how),
        average(e2e),
        *[v / window if window > 0 and v is not None else None for v in rates],
    ]


@settings(max_examples=examples(60))
@given(runs())
@example([])
@pytest.mark.parametrize("tool", CONVENTIONS)
def test_each_rule_holds_on_any_timelines(tool: str, requests: list[RequestTimeline]) -> None:
    slo = SLO(ttft_s=0.8, tpot_s=0.3, e2e_s=3.0)
    got = as_reported_by(tool, requests, duration_s=7.5, slo=slo)
    expected = naive(tool, requests, 7.5, slo)
    for name, value in zip(Reported.__dataclass_fields__, expected, strict=True):
        wanted = None if value is None else pytest.approx(value, rel=1e-9, abs=1e-9)
        assert getattr(got, name) == wanted, name


@given(runs(), st.sampled_from(list(CONVENTIONS)))
def test_no_tools_figure_is_negative_or_nan(requests: list[RequestTimeline], tool: str) -> None:
    reported = as_reported_by(tool, requests, duration_s=1.0, slo=LIMITS)
    for name in Reported.__dataclass_fields__:
        value = getattr(reported, name)
        assert value is None or (math.isfinite(value) and value >= 0), name


@given(runs(min_size=1), st.randoms(use_true_random=False), st.sampled_from(list(CONVENTIONS)))
def test_only_genai_perf_minds_the_order(requests: list[RequestTimeline], random, tool) -> None:
    """And only in its goodput, which pairs two lists of different length.

    At rate = inf every request has the same schedule: a figure must not hang on which is listed
    last.
    """
    shuffled = list(requests)
    random.shuffle(shuffled)
    one = as_reported_by(tool, requests, duration_s=2.0, slo=LIMITS)
    other = as_reported_by(tool, shuffled, duration_s=2.0, slo=LIMITS)
    for name in Reported.__dataclass_fields__:
        if tool == "genai-perf" and name == "goodput_per_s":
            continue
        value = getattr(one, name)
        wanted = None if value is None else pytest.approx(value, abs=1e-12)
        assert getattr(other, name) == wanted, name


@pytest.mark.parametrize(
    ("convention", "timelines", "slo", "says"),
    [
        (["vllm"], [], None, "convention=.* is not known"),
        ("vllm", ms(0, 0, [(50, 1)], 60, 5), None, "timelines is of type RequestTimeline"),
        ("vllm", None, None, "timelines is of type NoneType"),
        ("vllm", [ms(0, 0, [(50, 1)], 60, 5), {}], None, r"timelines\[1\] is of type dict"),
        ("llmperf", [], 0.4, "slo=0.4 is no SLO"),
    ],
)
def test_what_is_no_timeline_or_slo_is_refused_by_name(convention, timelines, slo, says) -> None:
    with pytest.raises(ValueError, match=says):
        as_reported_by(convention, timelines, duration_s=1.0, slo=slo)


@pytest.mark.parametrize("tool", CONVENTIONS)
def test_a_run_of_failures_has_no_latency_and_no_error(tool: str) -> None:
    failed = [ms(0, 0, [], 100, 5, error="HTTP 500"), ms(0, 0, [(50, 1)], 100, 5, error="HTTP 500")]
    got = as_reported_by(tool, failed, duration_s=1.0, slo=LIMITS)
    assert (got.ttft_mean_s, got.tpot_mean_s, got.itl_p99_s, got.e2e_mean_s) == (None,) * 4
    assert got.goodput_per_s in (None, 0.0)


def test_an_unknown_tool_or_a_missing_stopwatch_says_what_to_give() -> None:
    with pytest.raises(ValueError, match="convention='wrk' is not known; give one of vllm, vllm-"):
        as_reported_by("wrk", WORKED)
    with pytest.raises(ValueError, match="duration_s is missing: vLLM"):
        as_reported_by("vllm", WORKED)
    with pytest.raises(ValueError, match="duration_s=0"):
        as_reported_by("vllm", WORKED, duration_s=0)
    assert as_reported_by("aiperf", WORKED).goodput_per_s is None


@pytest.mark.parametrize("row", CONVENTIONS.values(), ids=CONVENTIONS)
def test_each_rule_is_told_in_one_line(row) -> None:
    assert row.tool
    assert 10 < len(row.rule) < 100
    assert "\n" not in row.rule


def test_the_eleven_answers_differ() -> None:
    """The lesson's point: same timestamps, ten different rows (SGLang's second API is vLLM's)."""
    rows = [as_reported_by(name, WORKED, duration_s=1.3, slo=LIMITS) for name in CONVENTIONS]
    same = [(a, b) for a, b in combinations(range(len(rows)), 2) if rows[a] == rows[b]]
    names = list(CONVENTIONS)
    assert [(names[a], names[b]) for a, b in same] == [("vllm-0.6", "sglang-openai")]
