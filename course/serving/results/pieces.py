"""What several readers share: a latency from its keys, a timeline from gaps; no tool's layout."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from course.serving.files import Fields, ResultFileError, printable
from course.serving.requests import RequestTimeline
from course.serving.results.nouns import Finding, Latency, RunSummary

MAX_REQUESTS = 2_000_000
MAX_CHUNKS = 24_000_000
"""More requests, or more chunks, than this in all runs of a file are not held in memory."""

_QUANTILE = re.compile(r"p(\d{1,2}(?:\.\d{1,6})?)")


@dataclass
class Room:
    """How many requests and chunks the runs of one file have brought into memory so far."""

    requests: int = 0
    chunks: int = 0

    def take(self, place: str, *, requests: int = 0, chunks: int = 0) -> None:
        """Count some more; ResultFileError where the file as a whole has too many."""
        self.requests += requests
        self.chunks += chunks
        for name, count, most in (
            ("requests", self.requests, MAX_REQUESTS),
            ("chunks", self.chunks, MAX_CHUNKS),
        ):
            if count > most:
                raise ResultFileError(
                    f"has more than {most:,} {name} in all, counted up to here; give its runs in "
                    "several files, or without their single requests",
                    place,
                )


def share_of(name: str) -> float | None:
    """Return the share that a quantile's name means, or None for any other name.

    >>> share_of("p99.9"), share_of("median"), share_of("mean")
    (0.9990000000000001, 0.5, None)
    """
    if name == "median":
        return 0.5
    found = _QUANTILE.fullmatch(name)
    share = float(found[1]) / 100 if found else 0.0
    return share if 0 < share < 1 else None


def latency(
    fields: Fields,
    names: Iterable[tuple[str, str]],
    unit_s: float,
    samples: int | None,
    what: str,
) -> Latency:
    """Return the latency whose statistics stand under certain keys, in seconds.

    `names`: (statistic, key) pairs, the statistic "mean", "std", "median" or "p99". A latency
    whose mean (or, without one, every quantile) is 0 was not measured: tools print 0.0 for lack
    of data. That is noted under the name `what`, unless there is no sample anyway.
    """
    mean = std = None
    quantiles: dict[float, float] = {}
    for statistic, key in names:
        value = fields.number(key, noise=1e-5 / unit_s)
        if value is None:
            continue
        share = share_of(statistic)
        if statistic == "mean":
            mean = value * unit_s
        elif statistic == "std":
            std = value * unit_s
        elif share is not None:
            quantiles.setdefault(share, value * unit_s)
    said = [mean] if mean is not None else list(quantiles.values())
    if samples == 0 or (said and not any(said)):
        if samples != 0:
            fields.notes.append(f"{what} is 0 throughout, which is no data and not a measured 0")
        return Latency(samples=samples)
    return Latency(mean, std, tuple(sorted(quantiles.items())), samples)


def keyed(fields: Fields, pattern: str, what: str) -> list[tuple[str, str]]:
    """Return (statistic, key) for the keys like `pattern`, in which {} stands for the statistic.

    >>> keyed(Fields({"p99_ttft_ms": 3.0, "mean_itl_ms": 1.0}, ""), "{}_{what}_ms", "ttft")
    [('p99', 'p99_ttft_ms')]
    """
    before, after = pattern.replace("{what}", what).split("{}")
    return [
        (key[len(before) : len(key) - len(after)], key)
        for key in fields.data
        if key.startswith(before) and key.endswith(after) and len(key) > len(before) + len(after)
    ]


def with_rates(summary: RunSummary) -> RunSummary:
    """Return the summary with rates and failures filled in that its own counts and time give.

    >>> with_rates(RunSummary(duration_s=2.0, offered=11, completed=10)).requests_per_s
    5.0
    """
    if summary.failed is None and summary.offered is not None and summary.completed is not None:
        lost = summary.offered - summary.completed - (summary.incomplete or 0)
        summary = replace(summary, failed=max(lost, 0))
    if summary.duration_s and summary.completed is not None:
        per_s = summary.completed / summary.duration_s
        if summary.requests_per_s is None:
            summary = replace(summary, requests_per_s=per_s)
        if summary.output_tokens_per_s is None and summary.output_tokens_mean is not None:
            summary = replace(summary, output_tokens_per_s=per_s * summary.output_tokens_mean)
    return summary


def of_each(total: float | None, requests: float | None) -> float | None:
    """Return the mean of a total over the requests, or None without one or the other."""
    return total / requests if total is not None and requests else None


def error_text(raw: str) -> str:
    """Return a tool's error as a `RequestTimeline` understands it: its group first.

    >>> error_text("asyncio.TimeoutError()"), error_text("HTTP 500")
    ('timed out: asyncio.TimeoutError()', 'HTTP 500')
    """
    last = next((line for line in reversed(raw[-2000:].splitlines()) if line.strip()), raw[:200])
    text = printable(last.strip()) or "failed without a word"
    lower = text.lower()
    for group, signs in (
        ("timed out", ("timeout", "timed out", "deadline exceeded")),
        ("cancelled", ("cancel",)),
        ("rejected", ("rejected", "429", "too many requests", "queue is full", "overloaded")),
    ):
        if any(sign in lower for sign in signs):
            return text if lower.startswith(group) else f"{group}: {text}"
    return text


def spread(tokens: int, chunks: int) -> tuple[int, ...]:
    """Return how many tokens each chunk carried, as evenly as it goes: the file has only sums.

    With fewer tokens than chunks some frames carried none; first and last are taken to carry one,
    so that TTFT and E2E stay what the client saw.

    >>> spread(8, 3), spread(2, 4)
    ((2, 3, 3), (1, 0, 0, 1))
    """
    if tokens < chunks:
        if tokens < 2:
            return (*[0] * (chunks - 1), tokens)
        return (*[1] * (tokens - 1), *[0] * (chunks - tokens), 1)
    each, more = divmod(tokens, chunks)
    return (*[each] * (chunks - more), *[each + 1] * more)


def timeline(
    *,
    scheduled_s: float,
    sent_s: float,
    ttft_s: float,
    gaps_s: Sequence[float],
    counts: Sequence[int],
    end_s: float | None,
    prompt_tokens: int,
    error: str | None,
    place: str,
) -> RequestTimeline:
    """Return the request whose chunks came `ttft_s` after sending and then `gaps_s` apart."""
    times = list(accumulate(gaps_s, initial=sent_s + ttft_s)) if counts else []
    last_s = times[-1] if times else sent_s
    try:
        return RequestTimeline(
            scheduled_s=min(scheduled_s, sent_s),
            sent_s=sent_s,
            token_times_s=tuple(times),
            token_counts=tuple(counts),
            end_s=last_s if end_s is None else max(end_s, last_s),
            prompt_tokens=prompt_tokens,
            error=error,
        )
    except ValueError as fault:
        raise ResultFileError(f"is no possible request: {fault}", place) from None


SERVER_KEYS = (
    "framework", "hw", "precision", "quantization", "dtype", "kv_cache_dtype",
    "tp", "ep", "dp", "pp",
    "tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size",
    "max_num_seqs", "max_num_batched_tokens", "max_model_len", "block_size",
    "gpu_memory_utilization", "enable_chunked_prefill", "enable_prefix_caching",
    "async_scheduling", "spec_decoding", "disagg", "image",
)  # fmt: skip
"""What benchmark files tell of the server that was measured."""


def server_of(fields: Fields) -> str:
    """Return what a file tells of its server, as "max_num_seqs=64, tp=2"; "" where nothing.

    >>> server_of(Fields({"tp": 2, "duration": 9.0, "max_num_seqs": 64}, ""))
    'tp=2, max_num_seqs=64'
    """
    said = []
    for key in SERVER_KEYS:
        value = fields.data.get(key)
        if isinstance(value, (bool, int, float, str)) and value != "":
            said.append(f"{key}={printable(str(value), 60)}")
    return ", ".join(said)


def told(notes: Sequence[str]) -> tuple[Finding, ...]:
    """Return what the reader put right as findings, each once, the first ten of them."""
    unique = list(dict.fromkeys(notes))
    findings = [Finding("no-data", note) for note in unique[:10]]
    if len(unique) > 10:
        findings.append(Finding("no-data", f"and {len(unique) - 10} more values without data"))
    return tuple(findings)
