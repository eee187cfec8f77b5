"""Looks at a loaded run with the eyes of an auditor, each check a sentence; nothing is read here.

Each check is a small generator from a run to findings. A check that lacks a figure is silent: it
never guesses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from course.serving.requests import (
    Reported,
    as_reported_by,
    mean_concurrency,
    peak_concurrency,
    stopwatch,
    summarize,
)
from course.serving.results.nouns import BenchmarkRun, Finding, Latency, RunSummary
from course.words import percent, rounded, seconds

TPOT_TOLERANCE = 0.05
LITTLE_TOLERANCE = 0.1
ABOUT_A_WAVE = 5
"""A closed loop that sends fewer than this many requests a seat is mostly ramp and drain."""

COLD_TOKENS_PER_TPOT = 600
"""Prompt tokens that even a fast card does not prefill in the time of one decode step."""

ABOVE = 1.05
"""A TTFT by more than this factor above the E2E is no rounding."""

OTHER_UNIT = 100
"""A TPOT off by this factor or more is another unit, not another way of counting."""

CLIENT_POOL = 100
DESCRIPTORS = 1024


def check_run(run: BenchmarkRun) -> BenchmarkRun:
    """Return the run with everything found worth saying, the reader's own findings first."""
    found = [*run.findings]
    for check in CHECKS:
        found.extend(check(run))
    return replace(run, findings=tuple(found))


def check_file(runs: Sequence[BenchmarkRun]) -> tuple[Finding, ...]:
    """Return what is to be said of the runs of one file together."""
    found = []
    if len(runs) > 1:
        found.append(Finding("several-runs", f"the file holds {len(runs)} runs; see each apart"))
    labels = list(dict.fromkeys(run.label for run in runs if run.label))
    loads = {_load(run.summary) for run in runs}
    if len(labels) > 1:
        found.append(
            Finding(
                "data-sets",
                f"the file mixes {len(labels)} data sets or models ({', '.join(labels[:4])}): "
                "one curve through all of its points means nothing",
            )
        )
    elif len(loads) < len(runs) and len(runs) > 1:
        found.append(
            Finding("data-sets", "two runs of the file have the same load: repeats, not a sweep")
        )
    return tuple(found)


def _load(summary: RunSummary) -> tuple[float | None, int | None]:
    return summary.asked_per_s, summary.max_concurrency


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


def _missing(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    if s.completed == 0:
        yield Finding(
            "nothing-completed",
            "no request completed: every latency the file prints is missing, not measured",
        )
    if s.failed:
        of = f" of {s.offered:,}" if s.offered else ""
        text = f"{_n(s.failed, of)} failed; the latencies are of the others alone"
        if s.completed and DESCRIPTORS - 24 <= s.completed <= DESCRIPTORS:
            text += f" (just under {DESCRIPTORS} came through: a limit on the client's open files?)"
        yield Finding("failures", text)
    yield from _counts(s)
    if s.incomplete:
        yield Finding(
            "incomplete",
            f"{_n(s.incomplete)} cut off by the end of the run and counted nowhere: the slow ones "
            "are more often among them",
        )


def _counts(s: RunSummary) -> Iterator[Finding]:
    """More answers than questions: one of the counts is of something else."""
    if s.offered is None:
        return
    named = (("completed", s.completed), ("failed", s.failed), ("cut off", s.incomplete))
    if sum(count or 0 for _, count in named) > s.offered:
        parts = " and ".join(f"{count:,} {name}" for name, count in named if count)
        yield Finding(
            "counts",
            f"{parts} of {s.offered:,} requests sent: more than there were, so one of these counts "
            "is of another run, or counts a request twice",
        )


def _little(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    known = _in_flight(s)
    if known is None:
        return
    inside, statistic = known
    law = f"Little's law: {_per_s(s.requests_per_s)} × {statistic} = {rounded(inside)} in flight"
    # the law holds for means; a median or a sum of parts only comes near
    tolerance = LITTLE_TOLERANCE if statistic == "mean E2E" else 0.25
    if s.concurrency and abs(inside - s.concurrency) > tolerance * s.concurrency:
        yield Finding("little", f"{law}, but the file says {rounded(s.concurrency)}")
    cap = s.max_concurrency
    if not cap:
        return
    if inside > cap * (1 + tolerance / 2):
        yield Finding(
            "little",
            f"{law}, but at most {cap} were allowed: rate, latency and cap cannot all be right",
        )
    elif _closed(s) and inside < cap * (1 - tolerance):
        why = "ramp and drain, failures, or a client that could not keep its seats filled"
        if cap > CLIENT_POOL and abs(inside - CLIENT_POOL) < 3:
            why = f"many HTTP clients hold {CLIENT_POOL} connections and queue the rest unseen"
        yield Finding("little", f"{law} of the {cap} that were meant to be: {why}")


def _in_flight(s: RunSummary) -> tuple[float, str] | None:
    if not s.requests_per_s:
        return None
    for statistic, e2e_s in (("mean E2E", s.e2e.mean_s), ("median E2E", s.e2e.median_s)):
        if e2e_s is not None:
            return s.requests_per_s * e2e_s, statistic
    if s.ttft.mean_s is None or s.tpot.mean_s is None or s.output_tokens_mean is None:
        return None
    e2e_s = s.ttft.mean_s + s.tpot.mean_s * max(s.output_tokens_mean - 1, 0)
    return s.requests_per_s * e2e_s, "(TTFT + (n − 1)·TPOT)"


def _closed(s: RunSummary) -> bool:
    """Whether only the cap held requests back."""
    return s.asked_per_s is None or math.isinf(s.asked_per_s)


def _concurrency(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    if run.requests is None or not run.starts_known or not _is_whole(run):
        return
    peak = peak_concurrency(run.requests)
    if s.max_concurrency and peak > s.max_concurrency:
        yield Finding(
            "cap",
            f"the start times show {peak} requests in flight at once, but at most "
            f"{s.max_concurrency} were allowed",
        )
    if s.concurrency and s.duration_s:
        mean = mean_concurrency(run.requests, stopwatch(s.duration_s))
        if mean is not None and abs(mean - s.concurrency) > LITTLE_TOLERANCE * s.concurrency:
            yield Finding(
                "cap",
                f"the start times give {rounded(mean)} requests in flight on average, the file "
                f"says {rounded(s.concurrency)}",
            )


def _is_whole(run: BenchmarkRun) -> bool:
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
    if run.requests is None or not _is_whole(run):
        return None
    mean_s = summarize(run.requests).tpot.mean
    return None if mean_s is None else (mean_s, "its requests' own mean")


def _itl(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    if run.itl_is != "gaps" or not s.itl.mean_s:
        return
    if s.tpot.mean_s and not 0.8 <= s.itl.mean_s / s.tpot.mean_s <= 1.25:
        ratio = s.itl.mean_s / s.tpot.mean_s
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
    if median_s is not None and median_s < 0.1 * s.itl.mean_s:
        yield Finding(
            "itl",
            f"half of the gaps are below {seconds(median_s)} with a mean of "
            f"{seconds(s.itl.mean_s)}: tokens arrive in bundles, and the median is inside one",
        )


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


def _rate(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    asked = s.asked_per_s
    if asked is None or asked <= 0:
        return
    if math.isinf(asked):
        if not s.max_concurrency and (s.offered or s.completed or 0) > 1:
            yield Finding(
                "all-at-once",
                "all requests were sent at once: TTFT is mostly the place in that queue, and "
                "grows with the number of requests, not with the load",
            )
        return
    if s.sent_per_s is not None and s.sent_per_s < 0.95 * asked:
        yield Finding(
            "rate",
            f"asked for {_per_s(asked)}, but the client sent {_per_s(s.sent_per_s)}: "
            "it was the bottleneck",
        )
    if s.requests_per_s is not None and s.requests_per_s < 0.95 * asked:
        yield Finding(
            "rate",
            f"asked for {_per_s(asked)}, completed {_per_s(s.requests_per_s)} "
            f"({percent(s.requests_per_s / asked)}): beyond capacity, or a run so short that its "
            "drain counts",
        )


def _waves(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    offered = s.offered or s.completed
    if not _closed(s) or not s.max_concurrency or not offered or s.max_concurrency == 1:
        return
    if offered < ABOUT_A_WAVE * s.max_concurrency:
        yield Finding(
            "waves",
            f"{offered:,} requests for {s.max_concurrency} seats: the first wave, sent all at "
            "once, and the drain are most of the run; it has no steady state",
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
    if ttft_s < pace_s * prompt / COLD_TOKENS_PER_TPOT:
        yield Finding(
            "cached",
            f"a TTFT of {seconds(ttft_s)} for {prompt:,.0f} prompt tokens, beside "
            f"{seconds(pace_s)} an output token, is too short for a cold prefill: were the prompts "
            "in the prefix cache from an earlier run?",
        )


def _sums(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    if not s.duration_s or s.completed is None:
        return
    per_s = s.completed / s.duration_s
    tokens = None if s.output_tokens_mean is None else per_s * s.output_tokens_mean
    for name, said, own in (
        ("requests/s", s.requests_per_s, per_s),
        ("output tokens/s", s.output_tokens_per_s, tokens),
    ):
        if said is not None and own and abs(said - own) > 0.05 * own:
            yield Finding(
                "window",
                f"{name} is {rounded(said)}, but counts over the duration give {rounded(own)}: "
                "another window (ramp, drain, cut-off requests), or failures counted in",
            )
    if s.goodput_per_s is not None and s.goodput_per_s > 1.001 * (s.requests_per_s or per_s):
        yield Finding("goodput", "goodput exceeds requests/s: good requests are not all successes")


def _order(run: BenchmarkRun) -> Iterator[Finding]:
    for name in ("ttft", "tpot", "itl", "e2e"):
        values = [value for _, value in getattr(run.summary, name).quantiles]
        if any(later < earlier for earlier, later in pairwise(values)):
            yield Finding("order", f"the quantiles of {name.upper()} fall: columns mixed up?")


def _again(run: BenchmarkRun) -> Iterator[Finding]:
    """The printed means against those that the file's own requests give."""
    if run.timelines is None or run.convention is None or not _is_whole(run):
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


def _n(count: int, of: str = "") -> str:
    return f"{count:,}{of} request{'s' if count != 1 or of else ''}"


def _per_s(value: float | None) -> str:
    return f"{rounded(value or 0.0)} requests/s"


CHECKS: tuple[Callable[[BenchmarkRun], Iterator[Finding]], ...] = (
    _missing, _little, _concurrency, _tpot, _itl, _not_streamed, _rate, _waves, _samples, _cached,
    _sums, _order, _again,
)  # fmt: skip
"""Every check, in the order in which its findings are told."""
