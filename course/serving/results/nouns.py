"""What a result file or a trace holds once read, in SI units; nothing is read or judged here."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import numpy.typing as npt

from course.serving.requests import Distribution, RequestTable, RequestTimeline

IntArray = npt.NDArray[np.int64]


Severity = Literal["wrong", "misleading", "worth knowing"]
"""How much a finding weighs: figures that cannot be, that say something else, or a remark."""


SEVERITIES: dict[str, Severity] = {
    "nothing-completed": "wrong", "counts": "wrong", "impossible": "wrong", "order": "wrong",
    "zeros": "wrong", "detail": "wrong", "cap": "wrong", "goodput": "wrong",
    "little": "misleading", "peak": "misleading", "rate": "misleading",
    "all-at-once": "misleading", "waves": "misleading", "first-wave": "misleading",
    "failures": "misleading", "incomplete": "misleading", "lengths": "misleading",
    "window": "misleading", "tpot": "misleading", "itl": "misleading", "cached": "misleading",
    "not-streamed": "misleading", "data-sets": "misleading", "servers": "misleading",
    "tpot-definition": "misleading", "itl-definition": "misleading", "token-count": "misleading",
    "schedule-delay": "misleading", "warm-up": "worth knowing",
}  # fmt: skip
"""What a finding weighs unless it says otherwise itself; the others are worth knowing."""


@dataclass(frozen=True)
class Finding:
    """One thing that a reader of the result should know: a stable name, a sentence, its weight.

    "wrong": figures that cannot all be true. "misleading": true ones that many would misread.

    >>> Finding("order", "the quantiles of TTFT fall").severity
    'wrong'
    """

    check: str
    text: str
    weight: Severity | None = None

    @property
    def severity(self) -> Severity:
        """Its own weight, or that of its kind."""
        return self.weight or SEVERITIES.get(self.check, "worth knowing")


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

    @classmethod
    def of(cls, sample: Distribution, shares: Sequence[float] = (0.5, 0.9, 0.95, 0.99)) -> Latency:
        """Return what a sample says of itself: its mean and these quantiles.

        >>> from course.serving.requests import distribution
        >>> Latency.of(distribution([1.0, 3.0]), (0.5,))
        Latency(mean_s=2.0, std_s=None, quantiles=((0.5, 2.0),), samples=2)
        """
        found = tuple((q, v) for q in shares if (v := sample.quantile(q)) is not None)
        return cls(sample.mean, None, found, sample.samples)

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
    one the client reached, `max_concurrency` the client's cap, `concurrency` the mean it reports,
    `touched_in_a_second` the most requests that were in flight at any time of one second.
    `burstiness` is the shape of the gamma distribution of the gaps between arrivals (1: Poisson);
    `asked_output_tokens` the answers' mean length that was asked for, `most_output_tokens` the
    longest one allowed. Rates that a file leaves out come from its counts and its duration.
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
    touched_in_a_second: int | None = None
    burstiness: float | None = None
    asked_prompt_tokens: float | None = None
    asked_output_tokens: float | None = None
    most_output_tokens: float | None = None
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
    "gaps" or one mean of each of the "requests". `server`: what the file tells of the server, as
    "max_num_seqs=64, tp=2"; runs of different servers lie on different curves. `not_made`: checks
    that had no figures to go by.
    """

    place: str
    label: str
    summary: RunSummary
    server: str = ""
    timelines: tuple[RequestTimeline, ...] | None = None
    requests: RequestTable | None = None
    starts_known: bool = False
    itl_is: Literal["gaps", "requests"] = "gaps"
    convention: str | None = None
    findings: tuple[Finding, ...] = ()
    not_made: tuple[str, ...] = ()


@dataclass(frozen=True)
class Check:
    """One look of an auditor: what it is called, whether a run has its figures, what it finds."""

    title: str
    can: Callable[[BenchmarkRun], bool]
    find: Callable[[BenchmarkRun], Iterator[Finding]]


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
