"""Checks of a run's counts, sums and lengths against one another; nothing is read here."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from course.serving.results.nouns import BenchmarkRun, Check, Finding, RunSummary
from course.words import percent, rounded

DESCRIPTORS = 1024
"""The usual limit on a process's open files, and so on a client's connections."""

OTHER_LENGTH = 0.1
"""Answers whose mean length is off by more than this share are not those that were asked for."""


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


def _again(run: BenchmarkRun) -> Iterator[Finding]:
    """Counts that the file prints, against its own requests, where it keeps one entry for each."""
    table, s = run.requests, run.summary
    if table is None or s.completed is None or table.size != s.offered:
        return
    own = int(table.finished.sum())
    if own != s.completed:
        yield Finding(
            "counts",
            f"the file says {s.completed:,} completed, but {own:,} of its {table.size:,} requests "
            "have an answer: rates and lengths by the one or the other differ by that",
        )
    elif own and s.output_tokens_mean:
        tokens = float(np.mean(table.output_tokens[table.finished]))
        if abs(tokens - s.output_tokens_mean) > 0.02 * tokens:
            yield Finding(
                "counts",
                f"the file's totals give {rounded(s.output_tokens_mean)} tokens an answer, its "
                f"own requests {rounded(tokens)}: tokens/s follow whichever is wrong",
            )


def _lengths(run: BenchmarkRun) -> Iterator[Finding]:
    """Shorter answers look like a faster server."""
    s = run.summary
    for what, asked, got in (
        ("answers", s.asked_output_tokens, s.output_tokens_mean),
        ("prompts", s.asked_prompt_tokens, s.prompt_tokens_mean),
    ):
        if asked and got and abs(got - asked) > OTHER_LENGTH * asked:
            than = "shorter" if got < asked else "longer"
            yield Finding(
                "lengths",
                f"{what} have {rounded(got)} tokens on average where {rounded(asked)} were asked "
                f"for ({percent(round(got / asked, 3))}): latencies and rates are of {than} ones",
            )
    most, got = s.most_output_tokens, s.output_tokens_mean
    if most and got and got > 1.01 * most:
        yield Finding(
            "lengths",
            f"answers of {rounded(got)} tokens on average under a maximum of {rounded(most)}",
            "wrong",
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


def _n(count: int, of: str = "") -> str:
    return f"{count:,}{of} request{'s' if count != 1 or of else ''}"


CHECKS = (
    Check("counts", lambda run: run.summary.completed is not None, _missing),
    Check("its own requests counted again", lambda run: run.requests is not None, _again),
    Check(
        "rates against counts and duration",
        lambda run: bool(run.summary.duration_s) and run.summary.completed is not None, _sums,
    ),
    Check(
        "lengths against those asked for",
        lambda run: bool(run.summary.asked_output_tokens or run.summary.asked_prompt_tokens),
        _lengths,
    ),
)  # fmt: skip
