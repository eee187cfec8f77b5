"""Words what is known of result files, for people and programs; nothing is read or judged here."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from course.serving.files import ResultFileError, printable_path
from course.serving.requests import summarize
from course.serving.results.checks import CHECKS
from course.serving.results.loading import load_result
from course.serving.results.nouns import (
    BenchmarkResult,
    BenchmarkRun,
    Finding,
    Latency,
    RunSummary,
)
from course.words import rounded, seconds


@dataclass(frozen=True)
class Audit:
    """The audit of some files: what could be loaded, and what could not with its reason."""

    results: tuple[BenchmarkResult, ...]
    errors: tuple[ResultFileError, ...] = ()

    @property
    def has_answers(self) -> bool:
        """Whether every run of every file completed something."""
        return all(run.summary.completed != 0 for one in self.results for run in one.runs)

    def as_text(self) -> str:
        """Return the audit as lines of text, one block a file."""
        blocks = ["\n".join(_block(result)) for result in self.results]
        blocks += [
            f"{printable_path(error.path)}\n  cannot be used: {_reason(error)}"
            for error in self.errors
        ]
        return "\n\n".join(blocks)

    def as_dict(self) -> dict[str, Any]:
        """Return the audit as plain values that JSON can hold: no NaN, no infinity.

        Times are seconds, rates per second; a rate asked for without limit is the text "inf".
        What no terminal can print of a file's name is a space.
        """
        return {
            "files": [_result(result) for result in self.results],
            "errors": [
                {"path": printable_path(e.path), "place": e.place, "what": e.what}
                for e in self.errors
            ],
        }


def audit_files(paths: Iterable[str | os.PathLike[str]]) -> Audit:
    """Return the audit of result files; one that cannot be used does not stop the others.

    >>> audit_files(["no such file"]).errors[0].what
    'there is no such file'
    """
    results, errors = [], []
    for path in paths:
        try:
            results.append(load_result(path))
        except ResultFileError as error:
            errors.append(error)
    return Audit(tuple(results), tuple(errors))


# --- text -----------------------------------------------------------------------------------------


def _block(result: BenchmarkResult) -> Iterator[str]:
    version = f", {result.version}" if result.version else ""
    yield f"{printable_path(result.path)}  ({result.tool}{version})"
    for run in result.runs:
        yield from _run_lines(run)
    for finding in result.findings:
        yield f"  {_told(finding)}"
    if not result.warnings:
        yield "  nothing to object to, as far as the checks below go"
    yield from _checks(result)


def _told(finding: Finding) -> str:
    mark = "" if finding.severity == "worth knowing" else f"{finding.severity}: "
    return f"! {mark}{finding.text}"


def _checks(result: BenchmarkResult) -> Iterator[str]:
    """Which checks were made on every run, and which had no figures to go by in one of them."""
    lacking = [c.title for c in CHECKS if any(c.title in run.not_made for run in result.runs)]
    made = [c.title for c in CHECKS if c.title not in lacking]
    yield f"  checked: {'; '.join(made) or 'nothing, the file has too few figures'}"
    if lacking:
        yield f"  not checked, for lack of figures: {'; '.join(lacking)}"


def _run_lines(run: BenchmarkRun) -> Iterator[str]:
    label = f", {run.label}" if run.label else ""
    label += f" ({run.server})" if run.server else ""
    yield f"  {run.place}{label}: {_load(run.summary)}"
    yield f"    {_rates(run.summary)}"
    for name in ("ttft", "tpot", "itl", "e2e"):
        part: Latency = getattr(run.summary, name)
        if part.is_known:
            yield f"    {name.upper():<4}  {_latency(part)}"
    yield from _from_requests(run)
    for finding in run.findings:
        yield f"    {_told(finding)}"


def _from_requests(run: BenchmarkRun) -> Iterator[str]:
    """The same latencies from the file's own requests, by the standard definitions."""
    if run.requests is None or not run.requests.finished.any():
        return
    own = summarize(run.requests)
    yield f"    from the {own.successes:,} answers that the file keeps:"
    for name, sample in (("TTFT", own.ttft), ("TPOT", own.tpot), ("E2E", own.e2e)):
        if sample.samples and sample.mean is not None:
            yield f"      {name:<4}  {_latency(Latency.of(sample, (0.5, 0.95, 0.99)))}"


def _load(s: RunSummary) -> str:
    parts = []
    if s.completed is not None:
        of = f" of {s.offered:,}" if s.offered else ""
        parts.append(f"{s.completed:,}{of} requests")
    if s.asked_per_s is not None:
        at_once = math.isinf(s.asked_per_s)
        parts.append("no limit on the rate" if at_once else f"asked {rounded(s.asked_per_s)}/s")
    if s.max_concurrency:
        parts.append(f"at most {s.max_concurrency} at once")
    if s.duration_s:
        parts.append(f"{seconds(s.duration_s)} long")
        if s.asked_per_s and s.offered and not math.isinf(s.asked_per_s):
            sending_s = s.offered / s.asked_per_s
            parts.append(
                f"of which {seconds(sending_s)} to send"
                if sending_s <= s.duration_s
                else f"though sending takes {seconds(sending_s)} at that rate"
            )
    lengths = (s.prompt_tokens_mean, s.output_tokens_mean)
    if any(lengths):
        told = ["?" if n is None else rounded(n) for n in lengths]
        parts.append(f"{told[0]} tokens in and {told[1]} out on average")
    return ", ".join(parts) or "load not told"


def _rates(s: RunSummary) -> str:
    named = (
        ("requests/s", s.requests_per_s),
        ("output tokens/s", s.output_tokens_per_s),
        ("goodput/s", s.goodput_per_s),
        ("in flight", s.concurrency),
    )
    return ", ".join(f"{rounded(v)} {name}" for name, v in named if v is not None) or "no rates"


def _latency(part: Latency) -> str:
    shown = [("mean", part.mean_s)]
    shown += [(f"P{100 * q:g}", v) for q, v in part.quantiles if q in (0.5, 0.9, 0.95, 0.99)]
    return ", ".join(f"{name} {seconds(v)}" for name, v in shown if v is not None)


def _reason(error: ResultFileError) -> str:
    return f"{error.place}: {error.what}" if error.place else error.what


# --- JSON -----------------------------------------------------------------------------------------


def _result(result: BenchmarkResult) -> dict[str, Any]:
    return {
        "path": printable_path(result.path),
        "tool": result.tool,
        "version": result.version,
        "warnings": [_finding(f) for f in result.findings],
        "runs": [_run(run) for run in result.runs],
    }


def _finding(finding: Finding) -> dict[str, str]:
    return {"check": finding.check, "text": finding.text, "severity": finding.severity}


def _run(run: BenchmarkRun) -> dict[str, Any]:
    summary: dict[str, Any] = {}
    for name in RunSummary.__dataclass_fields__:
        value = getattr(run.summary, name)
        if isinstance(value, Latency):
            value = {
                "mean_s": value.mean_s,
                "std_s": value.std_s,
                "samples": value.samples,
                "quantiles_s": {f"{100 * q:g}": v for q, v in value.quantiles},
            }
        summary[name] = "inf" if value == math.inf else value
    return {
        "place": run.place,
        "label": run.label,
        "summary": summary,
        "requests": None if run.requests is None else run.requests.size,
        "chunk_times": run.timelines is not None,
        "server": run.server,
        "warnings": [_finding(f) for f in run.findings],
        "checks_not_made": list(run.not_made),
    }
