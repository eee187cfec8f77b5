"""The percentile and the mean: what it varies, draws and says; quantiles are the course's own."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from course.figures.ch01.percentile_and_mean import (
    Group,
    Mark,
    PercentileAndMean,
    PercentileAndMeanPicture,
)
from course.serving.requests import metrics
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, stops, toggle
from course.words import percent, seconds

FloatArray = npt.NDArray[np.float64]

_REQUESTS = (20, 50, 100, 298, 299, 500, 1000, 3000, 10_000, 30_000, 100_000)
_QUANTILES = (("median", 0.5), ("P90", 0.9), ("P95", 0.95), ("P99", 0.99))
_HUMP, _TAIL = 0.15, 0.8
_SLOWEST_KEPT = 120
# What is over at once takes about as long as a look-up or a refusal.
FAST_S, _FAST_CV = 0.01, 0.3
# One-sided 95 % of a normal distribution, as the bounds of the percentiles are.
_BOUND = 1.6449


@dataclass(frozen=True)
class PercentileAndMeanParameters:
    """The usual requests, the slow ones, those over at once, and how many are measured."""

    typical_s: float = slider(
        0.31, 0.02, 2.0, 0.01, label="A usual request", unit="s",
        help="The median of the usual requests: half of them take less",
    )  # fmt: skip
    spread: float = slider(
        0.5, 0.05, 1.5, 0.05, label="Spread of the usual ones",
        help="Standard deviation over mean (CV): 0 all alike, 1 very different",
    )  # fmt: skip
    slow_percent: float = slider(
        6.0, 0.0, 40.0, 0.5, label="Slow requests", unit="%",
        help="The share of requests that something holds up: a queue, a long prompt, a bad node",
    )  # fmt: skip
    slow_times: float = slider(
        11.5, 2.0, 40.0, 0.5, label="How many times slower",
        help="The median of the slow requests over that of the usual ones",
    )  # fmt: skip
    slow_cv: float = choice(
        _TAIL, {"a long tail": _TAIL, "a second hump": _HUMP}, label="The slow ones form",
        help="A tail: some a little slower, some very much. A hump: all about equally slow",
    )  # fmt: skip
    fast_percent: float = slider(
        0.0, 0.0, 40.0, 0.5, label="Over at once", unit="%",
        help="The share that is over in about 10 ms: refused, failed, or found in a cache",
    )  # fmt: skip
    requests: int = stops(
        10_000, _REQUESTS, label="Requests measured",
        help="How many requests the histogram and every figure below it stand on",
    )  # fmt: skip
    log_time: bool = toggle(
        True, label="Logarithmic time axis",
        help="Each step to the right multiplies the time; without it, it adds to it",
    )  # fmt: skip
    apart: bool = toggle(
        False, label="Show the groups apart",
        help="Colours the usual, the slow and the fast requests, which a dashboard pools",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number measures another day")


@dataclass(frozen=True)
class Mixture:
    """Lognormal groups of requests: shares that add up to 1, medians in s, and CVs.

    >>> two = Mixture(("usual", "slow"), (0.9, 0.1), (1.0, 10.0), (0.5, 0.5))
    >>> round(two.mean_s, 3), round(float(two.share_below(np.array([two.quantile_s(0.9)]))[0]), 6)
    (2.124, 0.9)
    """

    names: tuple[str, ...]
    shares: tuple[float, ...]
    medians_s: tuple[float, ...]
    cvs: tuple[float, ...]

    @property
    def sigmas(self) -> FloatArray:
        """Standard deviation of the logarithm of each group, √ln(1 + CV²)."""
        return np.asarray(np.sqrt(np.log1p(np.square(self.cvs))), dtype=np.float64)

    @property
    def mean_s(self) -> float:
        """The mean, in seconds: the mean of a lognormal is median · √(1 + CV²)."""
        means = np.array(self.medians_s) * np.sqrt(1 + np.square(self.cvs))
        return float(np.dot(self.shares, means))

    def share_below(self, times_s: FloatArray) -> FloatArray:
        """Return the share of requests at or below each time, shape as `times_s`."""
        from scipy.special import ndtr

        log_times = np.log(times_s)
        below = np.zeros_like(log_times)
        for share, median, sigma in zip(self.shares, self.medians_s, self.sigmas, strict=True):
            if share > 0:
                below += share * ndtr((log_times - math.log(median)) / sigma)
        return below

    def quantile_s(self, q: float) -> float:
        """Return the time that a share `q` of the requests stays at or below, by bisection."""
        return float(self.quantiles_s((q,))[0])

    def quantiles_s(self, shares: tuple[float, ...]) -> FloatArray:
        """Return the times that each of `shares` (0 < q < 1) of the requests stays at or below."""
        wanted = np.array(shares)
        reach = 9 * float(self.sigmas.max())
        low = np.full(wanted.shape, math.log(min(self.medians_s)) - reach)
        high = np.full(wanted.shape, math.log(max(self.medians_s)) + reach)
        for _ in range(48):
            middle = (low + high) / 2
            under = self.share_below(np.exp(middle)) < wanted
            low, high = np.where(under, middle, low), np.where(under, high, middle)
        return np.asarray(np.exp((low + high) / 2), dtype=np.float64)


def mixture(p: PercentileAndMeanParameters) -> Mixture:
    """Return the distribution that the settings describe: usual, slow and fast requests."""
    slow, fast = p.slow_percent / 100, p.fast_percent / 100
    return Mixture(
        names=("usual", "slow", "at once"),
        shares=(1 - slow - fast, slow, fast),
        medians_s=(p.typical_s, p.slow_times * p.typical_s, FAST_S),
        cvs=(p.spread, p.slow_cv, _FAST_CV),
    )


@lru_cache(maxsize=4)
def _luck(requests: int, seed: int) -> tuple[FloatArray, FloatArray]:
    """The same luck at every setting, so that a moved slider moves only what it changed."""
    rng = np.random.default_rng(seed)
    return rng.random(requests), rng.standard_normal(requests)


def sample_s(mixed: Mixture, requests: int, seed: int) -> tuple[FloatArray, npt.NDArray[np.intp]]:
    """Latencies of `requests` requests, and the number of the group that each belongs to."""
    which, how = _luck(requests, seed)
    group = np.zeros(requests, dtype=np.intp)
    group[which >= 1 - mixed.shares[1]] = 1
    group[which < mixed.shares[2]] = 2
    log_medians = np.log(mixed.medians_s)
    return np.exp(log_medians[group] + mixed.sigmas[group] * how), group


def marks_of(sample: metrics.Distribution, mixed: Mixture) -> tuple[Mark, ...]:
    """The mean and the percentiles with their bounds."""
    values = sample.ordered
    mean = float(values.mean())
    error = _BOUND * float(values.std(ddof=1)) / math.sqrt(values.size)
    low = mean - error
    marks = [Mark("mean", mean, low if low > 0 else None, mean + error, mixed.mean_s)]
    truths = mixed.quantiles_s(tuple(q for _, q in _QUANTILES))
    for (name, q), true in zip(_QUANTILES, truths.tolist(), strict=True):
        found = sample.percentile(q)
        assert found.value is not None
        marks.append(Mark(name, found.value, found.low, found.high, true))
    return tuple(marks)


@lru_cache(maxsize=1)
def _grid_s() -> FloatArray:
    """Times at which shares are kept: 600 a decade, so that a run of any size is as small."""
    grid = np.geomspace(1e-4, 1e4, 4801)
    grid.setflags(write=False)
    return grid


def _at_or_below(ordered_s: FloatArray, grid_s: FloatArray, requests: int) -> FloatArray:
    return np.searchsorted(ordered_s, grid_s, "right") / requests


def _slowest_s(ordered_s: FloatArray) -> FloatArray:
    """The slowest 1 %, at least one, and at most as many as can be told apart on a screen."""
    slowest = ordered_s[-math.ceil(ordered_s.size / 100) :]
    if slowest.size <= _SLOWEST_KEPT:
        return slowest.copy()
    return slowest[np.linspace(0, slowest.size - 1, _SLOWEST_KEPT).astype(np.intp)]


def _share_below(ordered_s: FloatArray, time_s: float) -> float:
    return float(np.searchsorted(ordered_s, time_s)) / ordered_s.size


def _percentile_and_mean(p: PercentileAndMeanParameters) -> PercentileAndMean:
    mixed = mixture(p)
    times, group = sample_s(mixed, p.requests, p.seed)
    sample = metrics.distribution(times)
    marks = marks_of(sample, mixed)
    ordered, grid = sample.ordered, _grid_s()
    groups: tuple[Group, ...] = ()
    if p.apart:
        parts = (np.sort(times[group == index]) for index in range(3))
        groups = tuple(
            Group(
                name,
                share,
                _at_or_below(part, grid, p.requests),
                metrics.percentile(part, 0.95).value,
            )
            for name, share, part in zip(mixed.names, mixed.shares, parts, strict=True)
        )
    answered = times[group != 2] if p.fast_percent else times
    return PercentileAndMean(
        log_time=p.log_time,
        requests=p.requests,
        fastest_s=float(ordered[0]),
        grid_s=grid,
        measured=_at_or_below(ordered, grid, p.requests),
        true=mixed.share_below(grid),
        slowest_s=_slowest_s(ordered),
        marks=marks,
        groups=groups,
        below_mean=_share_below(ordered, marks[0].value_s),
        near_mean=(
            _share_below(ordered, 1.25 * marks[0].value_s)
            - _share_below(ordered, 0.75 * marks[0].value_s)
        ),
        slow_share=mixed.shares[1],
        fast_share=mixed.shares[2],
        mean_without_fast_s=float(answered.mean()) if answered.size else math.nan,
    )


def _percentile_and_mean_words(r: PercentileAndMean) -> str:
    mean, median, _, p95, p99 = r.marks
    words = (
        f"{r.requests:,} requests: mean {seconds(mean.value_s)}, median {seconds(median.value_s)}; "
        f"{percent(round(r.below_mean, 3))} of them took less than the mean, and "
        f"{percent(round(r.near_mean, 3))} are within a quarter of it. P95 is "
        f"{seconds(p95.value_s)}, P99 {seconds(p99.value_s)}{_sure_words(r, p99)}"
    )
    return f"{words}{_fast_words(r)}{_group_words(r)}"


def _sure_words(r: PercentileAndMean, mark: Mark) -> str:
    true = f"the true one is {seconds(mark.true_s)}"
    if mark.high_s is None:
        return (
            f"; with fewer than 299 requests there is no 95 % upper bound for it ({true}, and "
            f"{percent(0.99**r.requests)} of such runs see nothing slower than that)."
        )
    assert mark.low_s is not None
    return f" with bounds of {seconds(mark.low_s)} and {seconds(mark.high_s)} (95 % each; {true})."


def _fast_words(r: PercentileAndMean) -> str:
    if not r.fast_share or math.isnan(r.mean_without_fast_s):
        return ""
    return (
        f" {percent(r.fast_share)} were over at once; without them the mean is "
        f"{seconds(r.mean_without_fast_s)}."
    )


def _group_words(r: PercentileAndMean) -> str:
    """What the slices say; a group that has no request in this run has nothing to say."""
    by_name = {group.name: group for group in r.groups if group.p95_s is not None}
    if not {"usual", "slow"} <= set(by_name):
        return ""
    usual, slow = by_name["usual"], by_name["slow"]
    assert usual.p95_s is not None
    assert slow.p95_s is not None
    return (
        f" Sliced: P95 of the usual ones is {seconds(usual.p95_s)}, of the {percent(slow.share)} "
        f"slow ones {seconds(slow.p95_s)}."
    )


def _slow_p95_s(r: PercentileAndMean) -> float | None:
    return next((group.p95_s for group in r.groups if group.name == "slow"), None)


def _asked(r: PercentileAndMean) -> str:
    """Which figure the curtain asks for: the one that the settings make worth guessing."""
    if r.fast_share:
        return "mean"
    if _slow_p95_s(r) is not None:
        return "slice"
    return "P99"


def _percentile_and_mean_question(r: PercentileAndMean) -> str:
    mean, median, _, p95, p99 = r.marks
    asked = _asked(r)
    if asked == "mean":
        return (
            f"{r.requests:,} requests, mean {seconds(mean.value_s)}; but "
            f"{percent(r.fast_share)} were over within about {seconds(FAST_S)}, refused or failed. "
            "What is the mean of the others, in s?"
        )
    if asked == "slice":
        return (
            f"Over all tenants P95 is {seconds(p95.value_s)}. One tenant sends "
            f"{percent(r.slow_share)} of the requests. What may its own P95 be, in s?"
        )
    if p99.high_s is None:
        return (
            f"In {r.requests} requests P99 came out at {seconds(p99.value_s)}. What is it if one "
            "goes on measuring without end, in s?"
        )
    return (
        f"{r.requests:,} requests take {seconds(mean.value_s)} in the mean and "
        f"{seconds(median.value_s)} in the median. What is their P99, in s?"
    )


def _percentile_and_mean_answer(r: PercentileAndMean) -> float | None:
    asked, p99 = _asked(r), r.marks[-1]
    if asked == "mean":
        return None if math.isnan(r.mean_without_fast_s) else r.mean_without_fast_s
    if asked == "slice":
        return _slow_p95_s(r)
    return p99.true_s if p99.high_s is None else p99.value_s


def _tables(r: PercentileAndMean) -> list[Table]:
    return [vars(mark) | {"requests": r.requests} for mark in r.marks]


percentile_and_mean = Explorer(
    call="explore.percentile_and_mean",
    title="The percentile and the mean: one histogram, many figures",
    parameters=PercentileAndMeanParameters,
    compute=_percentile_and_mean,
    drawing=PercentileAndMeanPicture,
    narrate=_percentile_and_mean_words,
    alt=(
        "Above, a histogram of latencies with the mean and the P99 as vertical lines. Below, on "
        "the same time axis, mean, median, P90, P95 and P99 as points with bars for their bounds, "
        "hollow points for the true values, and a tick for each of the slowest requests."
    ),
    presets=(
        Preset(
            "Mean 600 ms",
            "A report says: mean TTFT 600 ms, so it takes about 600 ms.",
            "How many of the requests take about 600 ms, and what is the P99?",
            {"requests": 100_000},
        ),
        Preset(
            "Two humps",
            "Gaps between tokens: 20 ms in a pure decode step, 200 ms where the step also "
            "carries somebody's prefill. One step in six does. (Read gap for request.)",
            "The mean lies between the humps. How many gaps are about that long?",
            {
                "typical_s": 0.02,
                "spread": 0.15,
                "slow_percent": 16.5,
                "slow_times": 10.0,
                "slow_cv": _HUMP,
                "seed": 2,
            },
        ),
        Preset(
            "A P99 from fifty requests",
            "A quick test before lunch: fifty requests, and a P99 on the slide.",
            "Which of the fifty is the P99, and (move the luck) what would tomorrow's fifty say?",
            {"requests": 50},
        ),
        Preset(
            "Fast failures pull the mean down",
            "An overloaded server refuses a quarter of the requests within 10 ms.",
            "The mean went down since yesterday. Did the server get faster?",
            {
                "typical_s": 1.0,
                "spread": 0.4,
                "slow_percent": 3.0,
                "slow_times": 4.0,
                "fast_percent": 25.0,
            },
        ),
        Preset(
            "One tenant suffers",
            "Two tenants; the smaller one, 4 % of the requests, sends prompts that are never in "
            "the cache.",
            "Which pooled figure shows that one customer always waits?",
            {
                "typical_s": 0.3,
                "spread": 0.4,
                "slow_percent": 4.0,
                "slow_times": 12.0,
                "slow_cv": _HUMP,
                "apart": True,
            },
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_percentile_and_mean_question,
        unit="s",
        answer=_percentile_and_mean_answer,
        mark=lambda r, guess: (guess, 0.0),
    ),
)
