"""How requests of real traces arrive and how long they are, as `data/` holds it; no sampling here.

The public address of these names is `course.serving.catalog`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from course.serving.catalog.tables import choose, floats, table, wholes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


@dataclass(frozen=True)
class LengthStatistics:
    """Mean, spread and a few percentiles of a trace's prompt or output lengths in tokens.

    `requests` is None for descriptions of clients that list no single requests.
    """

    trace: str
    which: str
    requests: int | None
    mean_tokens: float
    sd_tokens: float
    min_tokens: float
    p50_tokens: float
    p90_tokens: float
    p99_tokens: float
    max_tokens: float
    source: str
    note: str = ""


@dataclass(frozen=True, eq=False)
class LengthQuantiles:
    """A trace's prompt or output lengths as a quantile table.

    `percent` (0 … 100, increasing) and `tokens` (never decreasing, at least 1, linear between
    neighbouring lengths) have the same shape and may not be written to.
    """

    trace: str
    which: str
    source: str
    percent: npt.NDArray[np.float64]
    tokens: npt.NDArray[np.float64]


@dataclass(frozen=True)
class LengthFit:
    """A distribution fitted to a trace's lengths by maximum likelihood, and how badly it misses.

    `ks` is the largest distance between the fitted and the observed distribution function. A
    `lognormal` has weight_1 = 1; a `lognormal mixture` has the rest of the weight on mu_2, sigma_2
    (both of ln tokens); `gamma` and `weibull` have a shape and a scale.
    """

    trace: str
    which: str
    family: str
    ks: float
    weight_1: float | None
    mu_1: float | None
    sigma_1: float | None
    mu_2: float | None
    sigma_2: float | None
    shape: float | None
    scale_tokens: float | None
    source: str


@dataclass(frozen=True)
class ArrivalStatistics:
    """How requests of a trace arrive: rate, gaps, dispersion of counts, fitted gap distributions.

    `gap_cv` is 1 for a Poisson process; `dispersion_10s` is the variance of the counts in windows
    of 10 s over their mean, also 1 for Poisson; `simultaneous_share` is the share of gaps of 0 s.
    Fits are None where the clock is too coarse for them.
    """

    trace: str
    requests: int
    duration_s: float
    mean_per_s: float
    gap_mean_s: float
    gap_cv: float
    gap_p50_s: float
    gap_max_s: float
    simultaneous_share: float
    lag1_autocorrelation: float | None
    dispersion_1s: float
    dispersion_10s: float
    dispersion_60s: float
    peak_to_mean_1s: float
    peak_to_mean_10s: float
    peak_to_mean_60s: float
    gamma_shape: float | None
    gamma_scale_s: float | None
    gamma_ks: float | None
    weibull_shape: float | None
    weibull_scale_s: float | None
    weibull_ks: float | None
    exponential_ks: float | None
    prompt_output_spearman: float
    source: str
    note: str = ""


@dataclass(frozen=True, eq=False)
class GapQuantiles:
    """The gaps between arrivals of a trace as a quantile table; arrays of one shape, read-only."""

    trace: str
    source: str
    percent: npt.NDArray[np.float64]
    gap_s: npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class WindowCounts:
    """How many of a trace's windows of `window_s` seconds held how many arrivals.

    `arrivals` (increasing) and `windows` have the same shape; counts that never occurred are not
    listed. Only whole windows from the first arrival on are counted.
    """

    trace: str
    window_s: int
    source: str
    arrivals: npt.NDArray[np.int64]
    windows: npt.NDArray[np.int64]

    @property
    def mean_arrivals(self) -> float:
        """Mean arrivals a window, the parameter of the Poisson law to draw beside the counts."""
        return float((self.arrivals * self.windows).sum() / self.windows.sum())


@dataclass(frozen=True)
class MinuteArrivals:
    """Arrivals in one minute of a trace; the last minute may cover fewer than 60 s."""

    trace: str
    minute: int
    covered_s: float
    arrivals: int
    source: str


@dataclass(frozen=True)
class _LengthPoint:
    trace: str
    which: str
    pct: float
    tokens: float
    source: str


@dataclass(frozen=True)
class _GapPoint:
    trace: str
    pct: float
    gap_s: float
    source: str


@dataclass(frozen=True)
class _WindowCount:
    trace: str
    window_s: int
    arrivals: int
    windows: int
    source: str


def length_statistics(trace: str, which: str) -> LengthStatistics:
    """Return the summary of a trace's `prompt` or `output` lengths; UnknownNameError if none.

    >>> length_statistics("azure-2023-conversation", "output").p50_tokens
    129.0
    """
    rows = choose("trace", trace, table(LengthStatistics, "traces/length_statistics.csv"))
    (row,) = choose("which", which, rows)
    return row


@cache
def length_quantiles(trace: str, which: str) -> LengthQuantiles:
    """Return the quantile table of a trace's `prompt` or `output` lengths.

    Raises UnknownNameError if there is no such table.

    >>> lengths = length_quantiles("azure-2023-code", "prompt")
    >>> lengths.tokens[lengths.percent == 99]
    array([7436.])
    """
    rows = choose("trace", trace, table(_LengthPoint, "traces/length_quantiles.csv"))
    rows = choose("which", which, rows)
    percent, tokens = floats(row.pct for row in rows), floats(row.tokens for row in rows)
    return LengthQuantiles(rows[0].trace, rows[0].which, rows[0].source, percent, tokens)


def length_fits(trace: str, which: str) -> tuple[LengthFit, ...]:
    """Return the distributions fitted to a trace's `prompt` or `output` lengths, best first.

    Raises UnknownNameError if there are none.

    >>> length_fits("azure-2023-conversation", "output")[0].family
    'lognormal mixture'
    """
    rows = choose("trace", trace, table(LengthFit, "traces/length_fits.csv"))
    return tuple(sorted(choose("which", which, rows), key=lambda row: row.ks))


def arrival_statistics(trace: str) -> ArrivalStatistics:
    """Return how the requests of a trace arrive; UnknownNameError if its arrivals are not known.

    >>> arrival_statistics("azure-2023-code").gap_cv
    13.1513
    """
    (row,) = choose("trace", trace, table(ArrivalStatistics, "traces/arrival_statistics.csv"))
    return row


@cache
def gap_quantiles(trace: str) -> GapQuantiles:
    """Return the quantile table of the gaps between a trace's arrivals, in s.

    Raises UnknownNameError if there is none.

    >>> float(gap_quantiles("azure-2023-conversation").gap_s[-1])
    4.31458
    """
    rows = choose("trace", trace, table(_GapPoint, "traces/gap_quantiles.csv"))
    percent, gap_s = floats(row.pct for row in rows), floats(row.gap_s for row in rows)
    return GapQuantiles(rows[0].trace, rows[0].source, percent, gap_s)


@cache
def window_counts(trace: str, window_s: int) -> WindowCounts:
    """Return how many windows of 1 s or 10 s of a trace held how many arrivals.

    Raises UnknownNameError for a trace, ValueError for a window, that was not counted.

    >>> counts = window_counts("azure-2023-code", 1)
    >>> int(counts.windows[counts.arrivals == 0][0])
    2521
    """
    rows = choose("trace", trace, table(_WindowCount, "traces/window_counts.csv"))
    counted = sorted({row.window_s for row in rows})
    if window_s not in counted:
        raise ValueError(f"window_s={window_s!r} was not counted; give one of {counted}")
    rows = tuple(row for row in rows if row.window_s == window_s)
    arrivals, windows = wholes(r.arrivals for r in rows), wholes(r.windows for r in rows)
    return WindowCounts(rows[0].trace, window_s, rows[0].source, arrivals, windows)


def arrivals_per_minute(trace: str) -> tuple[MinuteArrivals, ...]:
    """Return the arrivals in each minute of a trace, in order; UnknownNameError if not counted.

    >>> sum(minute.arrivals for minute in arrivals_per_minute("azure-2023-code"))
    8819
    """
    return choose("trace", trace, table(MinuteArrivals, "traces/arrivals_per_minute.csv"))
