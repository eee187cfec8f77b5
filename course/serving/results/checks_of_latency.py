"""Checks of a run's latencies against one another and its requests; nothing is read."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from course.serving.requests import Reported, as_reported_by, summarize
from course.serving.results.nouns import BenchmarkRun, Check, Finding, Latency, RunSummary
from course.words import percent, rounded, seconds

TPOT_TOLERANCE = 0.05

COLD_TOKENS_PER_TPOT = 600
"""Prompt tokens that even a fast card does not prefill in the time of one decode step."""

LONGEST_DECODE_S = 0.05
"""A longer step has others' prompts in it and says nothing of how fast a card reads."""

ABOVE = 1.05
"""A TTFT by more than this factor above the E2E is no rounding."""

OTHER_UNIT = 100
"""A TPOT off by this factor or more is another unit, not another way of counting."""

SHORTEST_STEP_S = 0.001
"""No server decodes a step in less; gaps below it lie inside one chunk."""


def implied_tpot_s(summary: RunSummary) -> tuple[float, str] | None:
    """Return (E2E − TTFT) / (n − 1) of the means (or the medians), and which of them it is.

    None where a figure is missing or answers have a single token.

    >>> implied_tpot_s(RunSummary(output_tokens_mean=11.0, ttft=Latency(0.5), e2e=Latency(1.5)))
    (0.1, 'mean')
    """
    tokens = summary.output_tokens_mean
    if tokens is None or tokens < 2:
        return None
    for name in ("mean", "median"):
        ttft_s, e2e_s = getattr(summary.ttft, f"{name}_s"), getattr(summary.e2e, f"{name}_s")
        if ttft_s is not None and e2e_s is not None and e2e_s >= ttft_s:
            return (e2e_s - ttft_s) / (tokens - 1), name
    return None


def _pace(run: BenchmarkRun) -> Latency:
    """The tool's time per output token; where the ITL is a mean a request, it is the better one."""
    summary = run.summary
    return summary.itl if run.itl_is == "requests" and summary.itl.is_known else summary.tpot


def is_whole(run: BenchmarkRun) -> bool:
    """Whether the file keeps every request, so that its figures can be computed again."""
    done = None if run.requests is None else int(run.requests.finished.sum())
    return done is not None and done == run.summary.completed


def _tpot(run: BenchmarkRun) -> Iterator[Finding]:
    found = _own_tpot_s(run) or implied_tpot_s(run.summary)
    pace = _pace(run)
    if found is None:
        return
    implied_s, statistic = found
    said_s = pace.median_s if statistic == "median" else pace.mean_s
    name = "ITL" if pace is run.summary.itl else "TPOT"
    if said_s and implied_s and abs(said_s - implied_s) > TPOT_TOLERANCE * implied_s:
        perhaps = "chunks counted as tokens, or the first token in it"
        if not 1 / OTHER_UNIT < said_s / implied_s < OTHER_UNIT:
            perhaps = "so far apart, one of the three is in another unit"
        elif statistic != "its requests' own mean":
            perhaps += ", or answers of very different lengths"
        yield Finding(
            "tpot",
            f"{name} is {seconds(said_s)}, but {statistic} (E2E − TTFT)/(n − 1) gives "
            f"{seconds(implied_s)}, so it is {percent(said_s / implied_s)} of that: {perhaps}",
        )


def _own_tpot_s(run: BenchmarkRun) -> tuple[float, str] | None:
    """The mean TPOT of the file's own requests, where it keeps them all."""
    if run.requests is None or not is_whole(run):
        return None
    mean_s = summarize(run.requests).tpot.mean
    return None if mean_s is None else (mean_s, "its requests' own mean")


def _itl(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    if run.itl_is != "gaps" or not s.itl.mean_s:
        return
    ratio = s.itl.mean_s / s.tpot.mean_s if s.tpot.mean_s else None
    one_by_one = ratio is not None and 0.8 <= ratio <= 1.25
    if ratio is not None and s.tpot.mean_s and not one_by_one:
        why = (
            f"chunks carry about {rounded(ratio, 2)} tokens each, or short answers are slower"
            if ratio > 1
            else "gaps inside a chunk counted as 0, or long answers are faster"
        )
        yield Finding(
            "itl",
            f"mean ITL is {seconds(s.itl.mean_s)}, mean TPOT {seconds(s.tpot.mean_s)}: {why}",
        )
    median_s = s.itl.median_s
    if median_s is None or median_s >= 0.1 * s.itl.mean_s:
        return
    words = f"half of the gaps are below {seconds(median_s)} with a mean of {seconds(s.itl.mean_s)}"
    if median_s < SHORTEST_STEP_S:
        words += ": tokens arrive in bundles, and the median is inside one"
    elif one_by_one:
        tail_s = s.itl.quantile_s(0.99)
        tail = "" if tail_s is None else f" (P99 {seconds(tail_s)})"
        words += (
            ", and the mean ITL is the mean TPOT, so a chunk carries one token: the median is a "
            f"step that only decodes, the long gaps{tail} are steps with others' prompts in them, "
            "or preemptions"
        )
    else:
        words += (
            ": steps with others' prompts in them, or bundles; a mean TPOT would tell which"
            if ratio is None
            else ": steps with others' prompts in them, beside what the mean TPOT says"
        )
    yield Finding("itl", words)


def _not_streamed(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    above = next(_above(s), None)
    if above is not None:
        name, ttft_s, e2e_s = above
        yield Finding(
            "impossible",
            f"the {name} TTFT of {seconds(ttft_s)} is above the {name} E2E of {seconds(e2e_s)}, "
            "which no request can have: one of both is in another unit, or of other requests",
        )
        return
    if s.ttft.mean_s is None or not s.e2e.mean_s or (s.output_tokens_mean or 0) < 2:
        return
    if s.ttft.mean_s >= 0.99 * s.e2e.mean_s:
        yield Finding(
            "not-streamed",
            "TTFT equals E2E: the answers came in one piece, so TTFT is not a first token and "
            "TPOT and ITL are not defined",
        )


def _above(s: RunSummary) -> Iterator[tuple[str, float, float]]:
    """The statistics whose TTFT is above their E2E; each request's is below, so each must be."""
    pairs = [("mean", s.ttft.mean_s, s.e2e.mean_s)]
    pairs += [(f"P{100 * q:g}", value_s, s.e2e.quantile_s(q)) for q, value_s in s.ttft.quantiles]
    for name, ttft_s, e2e_s in pairs:
        if ttft_s is not None and e2e_s and ttft_s > ABOVE * e2e_s:
            yield name, ttft_s, e2e_s


def _zeros(run: BenchmarkRun) -> Iterator[Finding]:
    """No first token comes at the moment of asking: a time of exactly 0 was not measured."""
    table = run.requests
    if table is not None and table.finished.any():
        ttft_s = (table.first_token_s - table.sent_s)[table.finished]
        zero = ttft_s == 0
        if zero.any() and not zero.all():
            rest = ttft_s[~zero]
            low, high = seconds(float(np.min(rest))), seconds(float(np.max(rest)))
            span = low if low == high else f"{low} to {high}"
            yield Finding(
                "zeros",
                f"{int(zero.sum()):,} of {ttft_s.size:,} TTFTs are exactly 0, which is no "
                f"measurement; the others are {span}, and every mean and quantile mixes both",
            )
        return
    for name in ("ttft", "e2e"):
        part: Latency = getattr(run.summary, name)
        share = max((q for q, value_s in part.quantiles if value_s == 0), default=None)
        if share is not None and part.mean_s:
            yield Finding(
                "zeros",
                f"P{100 * share:g} {name.upper()} is exactly 0, which is no measurement: at least "
                f"{percent(share)} of the values are missing, and the mean of "
                f"{seconds(part.mean_s)} counts them as 0",
            )


def _samples(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    thin: dict[float, int] = {}
    for part in (s.ttft, s.tpot, s.e2e):
        samples = part.samples if part.samples is not None else s.completed
        for share, _ in part.quantiles:
            if share > 0.5 and samples and samples < samples_for(share):
                thin[round(share, 6)] = samples
    if thin:
        share = max(thin)
        others = ", ".join(f"P{100 * q:g}" for q in sorted(thin))
        yield Finding(
            "samples",
            f"{others} from {thin[share]:,} requests: {'they have' if len(thin) > 1 else 'it has'} "
            f"no 95 % upper bound (P{100 * share:g} takes {samples_for(share):,} requests)",
        )


def samples_for(share: float) -> int:
    """Return how many samples a quantile needs to have a 95 % upper bound at all.

    >>> samples_for(0.99), samples_for(0.9)
    (299, 29)
    """
    return math.ceil(math.log(0.05) / math.log(share))


def _cached(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    ttft_s = s.ttft.median_s if s.ttft.median_s is not None else s.ttft.mean_s
    pace = _pace(run)
    pace_s = pace.median_s if pace.median_s is not None else pace.mean_s
    prompt = s.prompt_tokens_mean
    if not ttft_s or not pace_s or prompt is None or prompt < COLD_TOKENS_PER_TPOT:
        return
    if ttft_s < min(pace_s, LONGEST_DECODE_S) * prompt / COLD_TOKENS_PER_TPOT:
        yield Finding(
            "cached",
            f"a TTFT of {seconds(ttft_s)} for {prompt:,.0f} prompt tokens, beside "
            f"{seconds(pace_s)} an output token, is too short for a cold prefill: were the prompts "
            "in the prefix cache from an earlier run?",
        )


def _order(run: BenchmarkRun) -> Iterator[Finding]:
    for name in ("ttft", "tpot", "itl", "e2e"):
        values = [value for _, value in getattr(run.summary, name).quantiles]
        if any(later < earlier for earlier, later in pairwise(values)):
            yield Finding("order", f"the quantiles of {name.upper()} fall: columns mixed up?")


def _again(run: BenchmarkRun) -> Iterator[Finding]:
    """The printed means against those that the file's own requests give."""
    if run.timelines is None or run.convention is None or not is_whole(run):
        return
    duration_s = run.summary.duration_s or 1.0
    own: Reported = as_reported_by(run.convention, run.timelines, duration_s=duration_s)
    for name, said_s, own_s in (
        ("TTFT", run.summary.ttft.mean_s, own.ttft_mean_s),
        ("ITL", run.summary.itl.mean_s, own.itl_mean_s),
    ):
        if said_s is not None and own_s and abs(said_s - own_s) > 0.02 * own_s:
            yield Finding(
                "detail",
                f"the file prints a mean {name} of {seconds(said_s)}, but its own requests give "
                f"{seconds(own_s)}",
            )


def _any_latency(run: BenchmarkRun) -> bool:
    s = run.summary
    return any(part.is_known for part in (s.ttft, s.tpot, s.itl, s.e2e))


CHECKS = (
    Check(
        "TPOT from E2E and TTFT",
        lambda run: (_own_tpot_s(run) or implied_tpot_s(run.summary)) is not None, _tpot,
    ),
    Check(
        "ITL beside TPOT", lambda run: run.itl_is == "gaps" and bool(run.summary.itl.mean_s), _itl
    ),
    Check(
        "TTFT within E2E",
        lambda run: run.summary.ttft.is_known and run.summary.e2e.is_known, _not_streamed,
    ),
    Check("times of exactly 0", lambda run: run.summary.ttft.is_known, _zeros),
    Check("requests behind each tail", _any_latency, _samples),
    Check(
        "TTFT against a cold prefill",
        lambda run: run.summary.ttft.is_known and bool(run.summary.prompt_tokens_mean), _cached,
    ),
    Check("order of the quantiles", _any_latency, _order),
    Check(
        "its own requests' means",
        lambda run: run.timelines is not None and is_whole(run), _again,
    ),
)  # fmt: skip
