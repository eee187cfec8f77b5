"""Checks of a run's load: Little's law, the rate asked for, the client's cap, the waves."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from course.serving.requests import mean_concurrency, peak_concurrency, stopwatch
from course.serving.results.checks_of_latency import is_whole
from course.serving.results.nouns import BenchmarkRun, Check, Finding, Latency, RunSummary
from course.words import percent, rounded, seconds

LITTLE_TOLERANCE = 0.1

ABOUT_A_WAVE = 5
"""A closed loop that sends fewer than this many requests a seat is mostly ramp and drain."""

KEPT_RATE = 0.95
"""Below this share of the rate asked for, something held requests back."""

WAVE_TAIL = 3.0
"""A tail by this factor above the median stands out from the steady state."""

QUEUE_SHARE = 0.25
"""A queue that grows through a run makes mean waits of about half of its length at the end."""

SHORT_RUN = 0.3
"""Where an answer takes this share of the time of sending, a run has no steady state."""

FEW = 20
"""Fewer requests than this tell nothing of a rate."""

CLIENT_POOL = 100


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
        yield Finding("little", f"{law}, but the file says {rounded(s.concurrency)}", "wrong")
    cap = s.max_concurrency
    if not cap:
        return
    if inside > cap * (1 + tolerance / 2):
        yield Finding(
            "little",
            f"{law}, but at most {cap} were allowed: rate, latency and cap cannot all be right",
            "wrong",
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
    if run.requests is None or not run.starts_known or not is_whole(run):
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


def _decoding(run: BenchmarkRun) -> Iterator[Finding]:
    """Tokens a second times the time of each are the requests that decode at once."""
    s = run.summary
    if not s.output_tokens_per_s or not s.tpot.mean_s or not s.max_concurrency:
        return
    at_once = s.output_tokens_per_s * s.tpot.mean_s
    if at_once > 1.25 * s.max_concurrency:
        yield Finding(
            "little",
            f"Little's law: {rounded(s.output_tokens_per_s)} tokens/s × mean TPOT "
            f"{seconds(s.tpot.mean_s)} = {rounded(at_once)} requests that decode at once, but at "
            f"most {s.max_concurrency} were allowed: rate, TPOT and cap cannot all be right",
            "wrong",
        )


def _touched(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    cap, touched = s.max_concurrency, s.touched_in_a_second
    if cap and touched and touched > cap:
        yield Finding(
            "peak",
            f"the file's peak of {touched} concurrent requests is above the cap of {cap}: it "
            "counts all requests that touch one second, and is no number in flight",
        )


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
    if s.sent_per_s is not None and s.sent_per_s < KEPT_RATE * asked:
        yield Finding(
            "rate",
            f"asked for {_per_s(asked)}, but the client sent {_per_s(s.sent_per_s)}: "
            "it was the bottleneck",
        )
    if s.requests_per_s is not None and s.requests_per_s < KEPT_RATE * asked:
        yield Finding(
            "rate",
            f"asked for {_per_s(asked)}, completed {_per_s(s.requests_per_s)} "
            f"({percent(s.requests_per_s / asked)}): {_shortfall(s, asked)}",
        )


def _shortfall(s: RunSummary, asked_per_s: float) -> str:
    """Why less was completed than asked for, as far as the run's own figures decide it."""
    done_per_s, cap = s.requests_per_s or 0.0, s.max_concurrency
    known = _in_flight(s)
    offered = s.offered or s.completed
    if cap and known is not None and known[0] >= (1 - LITTLE_TOLERANCE) * cap:
        words = (
            f"the cap of {cap} was full ({_per_s(done_per_s)} × {known[1]} = {rounded(known[0])} "
            "in flight), and the others waited in the client"
        )
        if offered and done_per_s:
            wait_s = (offered / done_per_s - offered / asked_per_s) / 2
            words += f", about {seconds(wait_s)} on average, a wait that is in no latency here"
        return words
    longest_s = _longest_s(s)
    if not offered or not s.duration_s or longest_s is None:
        return (
            "beyond capacity, a run so short that its drain counts, or a slow client; the file "
            "does not tell which"
        )
    window_s = offered / asked_per_s
    drain_s = s.duration_s - window_s
    if drain_s > 1.5 * longest_s:
        inside = "" if known is None else f" {rounded(known[0])} requests were in flight, and"
        return (
            f"at that rate all were sent after {seconds(window_s)}, and the last would have ended "
            f"{seconds(longest_s)} later, not {seconds(drain_s)}:{inside} nothing waited at the "
            "server, so the client was slow"
        )
    return _end_of_run(s, window_s, drain_s, longest_s)


def _end_of_run(s: RunSummary, window_s: float, drain_s: float, longest_s: float) -> str:
    """What the time after the last sending was: a queue, or the answers under way."""
    ttft_s = s.ttft.mean_s if s.ttft.mean_s is not None else s.ttft.median_s
    stay_s = s.e2e.mean_s if s.e2e.mean_s is not None else longest_s
    if (s.offered or s.completed or 0) < FEW:
        return "a run of so few requests that its drain counts"
    if ttft_s is None:
        return f"{seconds(drain_s)} after the last was sent: a drain, or a queue that grew"
    if ttft_s >= QUEUE_SHARE * drain_s and ttft_s >= stay_s / 2:
        return (
            f"beyond capacity: the queue grew, as a TTFT of {seconds(ttft_s)} beside a drain of "
            f"{seconds(drain_s)} shows"
        )
    if stay_s >= SHORT_RUN * window_s:
        return (
            f"an answer took {seconds(stay_s)} and all were sent within {seconds(window_s)}, so "
            f"the run is mostly ramp and drain ({seconds(drain_s)} after the last was sent): it "
            "does not tell whether the server would keep up"
        )
    return (
        f"the drain of {seconds(drain_s)} after the last was sent counts; the server kept up "
        f"(TTFT {seconds(ttft_s)}), so while it was loaded it completed more"
    )


def _longest_s(s: RunSummary) -> float | None:
    """The longest time in the system that the file tells, or one from its parts."""
    told = [value_s for _, value_s in s.e2e.quantiles]
    if s.e2e.mean_s is not None:
        told.append(s.e2e.mean_s)
    if told:
        return max(told)
    pace_s, tokens = s.tpot.mean_s, s.output_tokens_mean
    ttft_s = max([value_s for _, value_s in s.ttft.quantiles] or [s.ttft.mean_s or math.nan])
    if pace_s is None or tokens is None or math.isnan(ttft_s):
        return None
    return ttft_s + pace_s * max(tokens - 1, 0)


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


def _first_wave(run: BenchmarkRun) -> Iterator[Finding]:
    """A closed loop that starts at once begins with a queue that never comes again."""
    s = run.summary
    cap, offered = s.max_concurrency, s.offered or s.completed
    median_s = s.ttft.median_s
    if not _closed(s) or not cap or cap == 1 or not offered or not median_s:
        return
    wave = cap / offered
    tails = [(q, v) for q, v in s.ttft.quantiles if q > 0.5 and 1 - q < wave]
    far = [(q, v) for q, v in tails if v >= WAVE_TAIL * median_s]
    if not far:
        return
    share, tail_s = far[0]
    name, times = f"P{100 * share:g} TTFT", rounded(tail_s / median_s)
    steady = _tail_after_wave(run, cap, share)
    words = (
        f"{cap:,} of {offered:,} requests ({percent(round(wave, 3))}) are the first wave, sent at "
        f"once: the {name} of {seconds(tail_s)}, {times} × the median, "
    )
    if steady is None:
        words += "is most likely their queue and not the steady state"
    elif steady < 0.7 * tail_s:
        words += f"is their queue; without them it is {seconds(steady)}"
    else:
        return
    yield Finding("first-wave", words)


def _tail_after_wave(run: BenchmarkRun, cap: int, share: float) -> float | None:
    """The same quantile of the requests sent after the first wave, where the file keeps them."""
    table = run.requests
    if table is None or not run.starts_known or not is_whole(run) or table.size <= 2 * cap:
        return None
    late = np.argsort(table.sent_s, kind="stable")[cap:]
    late = late[table.finished[late]]
    ttft_s = (table.first_token_s - table.sent_s)[late]
    return float(np.quantile(ttft_s, share)) if ttft_s.size else None


def _bursts(run: BenchmarkRun) -> Iterator[Finding]:
    s = run.summary
    shape, asked = s.burstiness, s.asked_per_s
    if not shape or asked is None or math.isinf(asked) or 0.95 <= shape <= 1.05:
        return
    kind, waits = ("more even", "shorter") if shape > 1 else ("burstier", "longer")
    spread = 0.0 if math.isinf(shape) else 1 / shape
    yield Finding(
        "burstiness",
        f"the gaps between arrivals have burstiness {shape:g}, a squared coefficient of variation "
        f"of {rounded(spread)}: {kind} than Poisson's 1, and waits are {waits} for it",
    )


def _per_s(value: float | None) -> str:
    return f"{rounded(value or 0.0)} requests/s"


def _has_latency(part: Latency) -> bool:
    return part.mean_s is not None or part.median_s is not None


CHECKS = (
    Check(
        "Little's law",
        lambda run: _in_flight(run.summary) is not None
        and bool(run.summary.max_concurrency or run.summary.concurrency),
        _little,
    ),
    Check(
        "tokens/s × TPOT within the cap",
        lambda run: bool(
            run.summary.output_tokens_per_s
            and run.summary.tpot.mean_s
            and run.summary.max_concurrency
        ),
        _decoding,
    ),
    Check(
        "start times against the cap",
        lambda run: run.requests is not None and run.starts_known and is_whole(run), _concurrency,
    ),
    Check(
        "peak against the cap",
        lambda run: bool(run.summary.max_concurrency and run.summary.touched_in_a_second), _touched,
    ),
    Check(
        "rate against that asked for",
        lambda run: run.summary.asked_per_s is not None and run.summary.requests_per_s is not None,
        _rate,
    ),
    Check(
        "waves",
        lambda run: _closed(run.summary) and bool(run.summary.max_concurrency), _waves,
    ),
    Check(
        "the first wave in the tail",
        lambda run: _closed(run.summary)
        and bool(run.summary.max_concurrency) and _has_latency(run.summary.ttft),
        _first_wave,
    ),
    Check("burstiness", lambda run: bool(run.summary.burstiness), _bursts),
)  # fmt: skip
