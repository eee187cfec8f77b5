"""What a result file or a trace holds once read, in SI units; nothing is read or judged here."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from course.serving.requests import RequestTable, RequestTimeline

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Finding:
    """One thing that a reader of the result should know: a stable name and a sentence."""

    check: str
    text: str


@dataclass(frozen=True)
class Latency:
    """What a file says of one latency: mean, spread and quantiles in seconds, None where silent.

    `quantiles` holds (share, seconds) in rising order of the share; `samples` how many values
    stand behind them, where that is known.

    >>> Latency(mean_s=0.3, quantiles=((0.5, 0.25), (0.99, 2.0))).quantile_s(0.99)
    2.0
    """

    mean_s: float | None = None
    std_s: float | None = None
    quantiles: tuple[tuple[float, float], ...] = ()
    samples: int | None = None

    def quantile_s(self, share: float) -> float | None:
        """The quantile in seconds if the file has just this one, or None."""
        for known, value_s in self.quantiles:
            if math.isclose(known, share, abs_tol=1e-9):
                return value_s
        return None

    @property
    def median_s(self) -> float | None:
        """The median in seconds, or None."""
        return self.quantile_s(0.5)

    @property
    def is_known(self) -> bool:
        """Whether the file says anything of it."""
        return self.mean_s is not None or bool(self.quantiles)


@dataclass(frozen=True)
class RunSummary:
    """The figures that a file prints for one run, as the tool means them, in SI units.

    None is "the file does not say" (or says 0.0 for lack of data). `offered` requests were sent,
    `completed` of them succeeded, `failed` did not, `incomplete` were cut off by the end of the
    run. `asked_per_s` is the rate that was asked for (infinite: all at once), `sent_per_s` the
    one the client reached, `max_concurrency` the client's cap, `concurrency` the mean it reports.
    Rates that a file leaves out are filled in from its counts and its duration.
    """

    duration_s: float | None = None
    offered: int | None = None
    completed: int | None = None
    failed: int | None = None
    incomplete: int | None = None
    prompt_tokens_mean: float | None = None
    output_tokens_mean: float | None = None
    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    total_tokens_per_s: float | None = None
    goodput_per_s: float | None = None
    asked_per_s: float | None = None
    sent_per_s: float | None = None
    max_concurrency: int | None = None
    concurrency: float | None = None
    ttft: Latency = field(default_factory=Latency)
    tpot: Latency = field(default_factory=Latency)
    itl: Latency = field(default_factory=Latency)
    e2e: Latency = field(default_factory=Latency)


@dataclass(frozen=True)
class BenchmarkRun:
    """One run of a tool: its summary, and its requests where the file has them.

    `timelines` need the time of every chunk; `requests` only first and last token. Where the file
    has no start times (`starts_known` false) each request's clock begins at 0: latencies can be
    recomputed, rates and concurrency cannot. `itl_is` says what the tool's ITL averages: single
    "gaps" or one mean of each of the "requests".
    """

    place: str
    label: str
    summary: RunSummary
    timelines: tuple[RequestTimeline, ...] | None = None
    requests: RequestTable | None = None
    starts_known: bool = False
    itl_is: Literal["gaps", "requests"] = "gaps"
    convention: str | None = None
    findings: tuple[Finding, ...] = ()


@dataclass(frozen=True)
class BenchmarkResult:
    """A result file: the tool that wrote it, its runs, and what is worth knowing about them."""

    path: str
    tool: str
    version: str | None
    runs: tuple[BenchmarkRun, ...]
    findings: tuple[Finding, ...] = ()

    @property
    def summary(self) -> RunSummary:
        """The figures of the first run; a file with several says so in its warnings."""
        return self.runs[0].summary

    @property
    def timelines(self) -> tuple[RequestTimeline, ...] | None:
        """The first run's requests, chunk by chunk, or None where the file lacks them."""
        return self.runs[0].timelines

    @property
    def requests(self) -> RequestTable | None:
        """The first run's requests as a table, or None where the file lacks them."""
        return self.runs[0].requests

    @property
    def warnings(self) -> tuple[str, ...]:
        """Everything worth knowing, one sentence each; of several runs each with its place."""
        several = len(self.runs) > 1
        of_runs = (
            f"{run.place}: {finding.text}" if several else finding.text
            for run in self.runs
            for finding in run.findings
        )
        return (*(finding.text for finding in self.findings), *of_runs)
