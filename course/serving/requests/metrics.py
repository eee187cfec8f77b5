"""The course's own metrics of a run, each from the requests' timestamps; no tool's habits here.

One contract for simulated and measured requests: `summarize` takes a `RequestTable` (one array a
column) or a list of `RequestTimeline`. A number that is not defined is None (NaN inside arrays)
and is counted; it is never 0 and never negative. What a benchmark tool would print for the same
timestamps is in `conventions`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, compress, pairwise
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, at_least, of_kind
from course.serving.requests.distributions import (
    Distribution,
    Percentile,
    bound_ranks,
    distribution,
    histogram_percentile,
    percentile,
)
from course.serving.requests.timelines import (
    NOISE_S,
    Expansion,
    RequestTable,
    RequestTimeline,
    Status,
    as_table,
    gaps_s,
    known_expansion,
)
from course.serving.requests.windows import (
    Window,
    first_send_to_last_end,
    peak_concurrency,
    steady_state,
    stopwatch,
)

__all__ = [
    "NOISE_S",
    "SLO",
    "Distribution",
    "Percentile",
    "RequestTable",
    "RequestTimeline",
    "Status",
    "Summary",
    "Window",
    "as_table",
    "bound_ranks",
    "cost_per_success_usd",
    "distribution",
    "e2e_s",
    "first_send_to_last_end",
    "gaps_s",
    "histogram_percentile",
    "length_buckets",
    "mean_concurrency",
    "meets",
    "peak_concurrency",
    "percentile",
    "pooled_itl_s",
    "sliced",
    "steady_state",
    "stopwatch",
    "summarize",
    "tpot_s",
    "ttft_s",
    "within",
]

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SLO:
    """The limits that a share `quantile` of the requests *offered* has to meet.

    A limit that is None does not exist; with all three None there is no SLO, and nothing has a
    goodput. `without_tpot` decides about an answer that has no TPOT (one token, or all of them in
    one chunk): it can "pass" that limit (the default: no reader feels a gap that is not there),
    "fail" it, or be "undecided", and then count neither as met nor as offered.

    >>> SLO(ttft_s=0.4, tpot_s=0.055).quantile
    0.99
    """

    ttft_s: float | None = None
    tpot_s: float | None = None
    e2e_s: float | None = None
    quantile: float = 0.99
    without_tpot: Literal["pass", "fail", "undecided"] = "pass"

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s", "e2e_s"):
            if getattr(self, name) is not None:
                at_least(name, getattr(self, name), above=True)
        if at_least("quantile", self.quantile, above=True) > 1:
            raise ValueError(f"quantile={self.quantile!r} is above 1; give a share as 0.99")
        if self.without_tpot not in ("pass", "fail", "undecided"):
            raise ValueError(
                f"without_tpot={self.without_tpot!r} is not known; give pass, fail or undecided"
            )

    @property
    def exists(self) -> bool:
        """Whether there is any limit at all."""
        return not (self.ttft_s is None and self.tpot_s is None and self.e2e_s is None)


# --- per request -----------------------------------------------------------------------------


def _span_s(name: str, start_s: FloatArray, end_s: FloatArray) -> FloatArray:
    """Return end − start, noise below 0 straightened; raise ValueError where it is no noise."""
    span: FloatArray = np.subtract(end_s, start_s, dtype=np.float64)
    backwards = span < 0
    if not backwards.any():
        return span
    wrong = span < -NOISE_S
    if wrong.any():
        index = int(wrong.argmax())
        raise ValueError(
            f"{name}[{index}] would be {span[index]} s: it ends before it begins; "
            "check that both times are on one clock"
        )
    return np.where(backwards, 0.0, span)


def ttft_s(sent_s: FloatArray, first_token_s: FloatArray) -> FloatArray:
    """Return the time to first token of each request in seconds, first token − sent.

    Shapes (n,); NaN where there was no token. From `scheduled_s` instead of `sent_s` it includes
    the client's own queue. Raises ValueError for a first token more than a microsecond before
    sending.

    >>> ttft_s(np.array([0.0, 1.0]), np.array([0.2, math.nan])).tolist()
    [0.2, nan]
    """
    return _span_s("ttft_s", np.asarray(sent_s), np.asarray(first_token_s))


def e2e_s(sent_s: FloatArray, last_token_s: FloatArray) -> FloatArray:
    """Return the end-to-end latency of each request in seconds, last token − sent; NaN as TTFT.

    >>> e2e_s(np.array([0.1]), np.array([0.8])).round(3).tolist()
    [0.7]
    """
    return _span_s("e2e_s", np.asarray(sent_s), np.asarray(last_token_s))


def tpot_s(
    first_token_s: FloatArray, last_token_s: FloatArray, output_tokens: IntArray
) -> FloatArray:
    """Return the time per output token of each request, (last − first) / (n − 1), in seconds.

    Shapes (n,). NaN where it is not defined: fewer than two tokens, or all of them at one moment
    (an answer that was not streamed shows no pace). Raises ValueError for a last token more than
    a microsecond before the first.

    >>> tpot_s(np.array([0.2, 0.3, 0.5]), np.array([0.4, 0.3, 0.5]), np.array([5, 1, 20])).tolist()
    [0.05, nan, nan]
    """
    decode_s = _span_s("tpot_s", np.asarray(first_token_s), np.asarray(last_token_s))
    tokens = np.asarray(output_tokens)
    shown = (tokens >= 2) & (decode_s > 0)
    return np.where(shown, decode_s, math.nan) / np.where(shown, tokens - 1, 1)


def pooled_itl_s(
    timelines: Sequence[RequestTimeline], expansion: Expansion = "chunks"
) -> FloatArray:
    """Return every gap between neighbouring tokens of the successes, in one array of seconds.

    `expansion` says what becomes of the unknown gaps inside a chunk; see `gaps_s`.

    >>> pooled_itl_s([RequestTimeline(0, 0, (0.5, 0.6), (1, 2), 0.6, 9)], "burst").round(3).tolist()
    [0.1, 0.0]
    """
    gaps = _gaps_with_blanks_s(timelines, expansion)
    return gaps[~np.isnan(gaps)]


def _gaps_with_blanks_s(timelines: Iterable[RequestTimeline], expansion: Expansion) -> FloatArray:
    """Return the gaps as `pooled_itl_s`, and a NaN for each success without any."""
    known_expansion(expansion)
    gaps = (gaps_s(t, expansion) or (math.nan,) for t in timelines if t.status == Status.FINISHED)
    return np.fromiter(chain.from_iterable(gaps), dtype=np.float64)


def within(limit_s: float) -> float:
    """Return the limit with room for the rounding of a difference of two times, a billionth.

    >>> 1.1 - 0.7 <= 0.4, 1.1 - 0.7 <= within(0.4)
    (False, True)
    """
    return limit_s * (1 + 1e-9)


def meets(
    slo: SLO, ttft_s: FloatArray, tpot_s: FloatArray, e2e_s: FloatArray
) -> tuple[BoolArray, BoolArray]:
    """Return (met, undecided) of each request: does it keep every limit of the SLO?

    Shapes (n,), seconds, NaN where undefined: a request without a TTFT or an E2E misses those
    limits, one without a TPOT is judged by `slo.without_tpot`. A limit is kept at equality.

    >>> met, _ = meets(SLO(ttft_s=0.4, tpot_s=0.05), np.array([0.4, 0.1]),
    ...                np.array([0.06, math.nan]), np.array([1.0, 0.1]))
    >>> met.tolist()
    [False, True]
    """
    met: BoolArray = np.ones(np.shape(ttft_s), dtype=np.bool_)
    undecided: BoolArray = np.zeros(np.shape(ttft_s), dtype=np.bool_)
    if slo.ttft_s is not None:
        met &= ttft_s <= within(slo.ttft_s)
    if slo.e2e_s is not None:
        met &= e2e_s <= within(slo.e2e_s)
    if slo.tpot_s is not None:
        without = np.isnan(tpot_s)
        kept = tpot_s <= within(slo.tpot_s)
        if slo.without_tpot == "undecided":
            # what misses another limit is missed, whatever its TPOT would have been
            undecided = without & met
        met &= (kept | without) if slo.without_tpot == "pass" else kept
    return met, undecided


# --- windows -----------------------------------------------------------------------------------


def mean_concurrency(requests: RequestTable, window: Window) -> float | None:
    """Return the time-weighted mean number of requests in the system during the window.

    Little's law is this very sum: with every request counted it equals rate times mean time in
    the system. None for a window of 0 s.

    >>> table = RequestTable([0.0, 1.0], [0.5, 1.5], [2.0, 2.0], [2, 2])
    >>> mean_concurrency(table, first_send_to_last_end(table))
    1.5
    """
    if not window.duration_s > 0:
        return None
    if window.name == "stopwatch":
        last_s = first_send_to_last_end(requests).end_s
        inside = np.minimum(requests.left_s, last_s) - requests.sent_s
    else:
        inside = np.minimum(requests.left_s, window.end_s) - np.maximum(
            requests.sent_s, window.start_s
        )
    return float(np.maximum(inside, 0.0).sum()) / window.duration_s


_STATUS_NAMES = tuple(kind.name.lower() for kind in Status)


# --- a run -------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Summary:
    """The numbers of one run; each is computed when first asked for. Made by `summarize`.

    Rates are per second of `window`. Distributions are of the finished requests; what failed,
    was rejected, timed out or was cancelled is in `counts`, and stands behind the others where a
    percentile is asked for with `misses_as_infinite`.
    """

    requests: RequestTable
    window: Window
    slo: SLO | None = None
    itl_values_s: FloatArray | None = None

    @cached_property
    def offered_requests(self) -> RequestTable:
        """The requests whose latencies count: those sent in the window."""
        if not self.window.is_cut:
            return self.requests
        return self.requests.only(self.window.offers(self.requests.sent_s))

    @cached_property
    def _ended(self) -> BoolArray:
        """True for the finished requests that the rates count: those that end in the window."""
        finished = self.requests.finished
        if not self.window.is_cut:
            return finished
        last_s = self.requests.last_token_s
        return finished & (last_s > self.window.start_s) & (last_s <= self.window.end_s)

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many of the requests offered ended in each status, all six named."""
        status = self.offered_requests.status
        assert status is not None
        found = np.bincount(status, minlength=len(Status)).tolist()
        return dict(zip(_STATUS_NAMES, found, strict=True))

    @property
    def offered(self) -> int:
        """How many requests were offered."""
        return self.offered_requests.size

    @property
    def successes(self) -> int:
        """How many of the requests offered got their complete answer."""
        return self.counts["finished"]

    @property
    def degraded(self) -> int | None:
        """How many of the successes are of a lesser kind; None where nobody said."""
        table = self.offered_requests
        return None if table.degraded is None else int((table.finished & table.degraded).sum())

    def _rate(self, amount: float) -> float | None:
        return amount / self.window.duration_s if self.window.duration_s > 0 else None

    @cached_property
    def requests_per_s(self) -> float | None:
        """Successes per second of the window."""
        return self._rate(int(self._ended.sum()))

    @cached_property
    def output_tokens_per_s(self) -> float | None:
        """Output tokens of the successes per second of the window."""
        return self._rate(int(self.requests.output_tokens[self._ended].sum()))

    @cached_property
    def total_tokens_per_s(self) -> float | None:
        """Prompt and output tokens of the successes per second; None without prompt lengths."""
        prompt = self.requests.prompt_tokens
        if prompt is None or self.output_tokens_per_s is None:
            return None
        prompt_per_s = self._rate(int(prompt[self._ended].sum()))
        assert prompt_per_s is not None
        return prompt_per_s + self.output_tokens_per_s

    @cached_property
    def concurrency(self) -> float | None:
        """The time-weighted mean number of requests in the system."""
        return mean_concurrency(self.requests, self.window)

    @cached_property
    def concurrency_peak(self) -> int:
        """The largest number of requests in the system at once, over the whole run."""
        return peak_concurrency(self.requests)

    @cached_property
    def _columns(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """TTFT, TPOT and E2E of the finished among the requests offered."""
        table = self.offered_requests
        chosen = slice(None) if self.successes == table.size else table.finished
        sent, first, last = table.sent_s[chosen], table.first_token_s[chosen], table.last_token_s
        last = last[chosen]
        return (
            ttft_s(sent, first),
            tpot_s(first, last, table.output_tokens[chosen]),
            e2e_s(sent, last),
        )

    def _distribution(self, values: FloatArray) -> Distribution:
        return distribution(values, missed=self.offered - self.successes)

    @cached_property
    def ttft(self) -> Distribution:
        """Time to first token of the finished requests, seconds."""
        return self._distribution(self._columns[0])

    @cached_property
    def tpot(self) -> Distribution:
        """Time per output token, one value a request that has one, seconds."""
        return self._distribution(self._columns[1])

    @cached_property
    def e2e(self) -> Distribution:
        """End-to-end latency of the finished requests, seconds."""
        return self._distribution(self._columns[2])

    @cached_property
    def itl(self) -> Distribution | None:
        """The single gaps of all answers pooled, seconds; None where they were not given.

        What was missed has no gaps, so that nothing stands at +∞ here.
        """
        return None if self.itl_values_s is None else distribution(self.itl_values_s)

    @cached_property
    def client_queue(self) -> Distribution | None:
        """Intended to real sending, the client's own queue, seconds; None where not known."""
        table = self.offered_requests
        if table.scheduled_s is None:
            return None
        waited = _span_s("client_queue", table.scheduled_s, table.sent_s)
        return self._distribution(waited[table.finished])

    @cached_property
    def straightened(self) -> int:
        """How many finished requests of a table had a last token (noise) before their first.

        Timelines straighten their own times when they are made.
        """
        table = self.offered_requests
        return int((table.last_token_s < table.first_token_s)[table.finished].sum())

    @cached_property
    def _verdicts(self) -> tuple[BoolArray, BoolArray] | None:
        if self.slo is None or not self.slo.exists:
            return None
        return meets(self.slo, *self._columns)

    @property
    def met(self) -> int | None:
        """How many of the requests offered finished inside every limit; None without an SLO."""
        return None if self._verdicts is None else int(self._verdicts[0].sum())

    @property
    def undecided(self) -> int | None:
        """How many were not judged, under `without_tpot="undecided"`; None without an SLO."""
        return None if self._verdicts is None else int(self._verdicts[1].sum())

    @property
    def attainment(self) -> float | None:
        """Requests inside every limit / requests offered; None without an SLO or a request."""
        if self.met is None or self.undecided is None or self.offered == self.undecided:
            return None
        return self.met / (self.offered - self.undecided)

    @property
    def inside_slo(self) -> bool | None:
        """Whether the attainment reaches the SLO's quantile; None where there is none."""
        if self.attainment is None or self.slo is None:
            return None
        return self.attainment >= self.slo.quantile

    @cached_property
    def goodput_per_s(self) -> float | None:
        """Successes inside every limit per second; None (not 0) where there is no SLO."""
        if self.slo is None or not self.slo.exists:
            return None
        if not self.window.is_cut:
            assert self.met is not None
            return self._rate(self.met)
        ended = self.requests.only(self._ended)
        met, _ = meets(
            self.slo,
            ttft_s(ended.sent_s, ended.first_token_s),
            tpot_s(ended.first_token_s, ended.last_token_s, ended.output_tokens),
            e2e_s(ended.sent_s, ended.last_token_s),
        )
        return self._rate(int(met.sum()))

    def as_dict(self) -> dict[str, Any]:
        """Return the figures as plain numbers, for a table or JSON; None where undefined."""
        figures: dict[str, Any] = {
            "window": self.window.name,
            "window_s": self.window.duration_s,
            "offered": self.offered,
            **self.counts,
            "requests_per_s": self.requests_per_s,
            "output_tokens_per_s": self.output_tokens_per_s,
            "total_tokens_per_s": self.total_tokens_per_s,
            "concurrency": self.concurrency,
            "concurrency_peak": self.concurrency_peak,
            "goodput_per_s": self.goodput_per_s,
            "attainment": self.attainment,
        }
        for name in ("ttft", "tpot", "e2e", "itl"):
            sample: Distribution | None = getattr(self, name)
            figures[f"{name}_undefined"] = None if sample is None else sample.undefined
            for part in ("mean", "p50", "p90", "p99"):
                figures[f"{name}_{part}_s"] = None if sample is None else getattr(sample, part)
        return figures


def summarize(
    requests: RequestTable | Sequence[RequestTimeline],
    slo: SLO | None = None,
    *,
    window: Window | None = None,
    itl_s: FloatArray | None = None,
    expansion: Expansion = "chunks",
) -> Summary:
    """Return the metrics of a run, all from its timestamps.

    `window`: what rates are divided by, first send to last end if left out. `itl_s`: the pooled
    gaps of the requests sent in the window, where the requests are a table (which holds none),
    with NaN for an answer without any; of timelines they are taken with `expansion`.

    >>> answers = [RequestTimeline(0, 0, (0.2, 0.3), (1, 1), 0.3, 9),
    ...            RequestTimeline(0, 0, (0.9,), (1,), 1.0, 9),
    ...            RequestTimeline(0, 0.1, (), (), 0.2, 9, error="HTTP 500")]
    >>> run = summarize(answers, SLO(ttft_s=0.5))
    >>> run.successes, run.tpot.samples, run.tpot.undefined, round(run.attainment, 3)
    (2, 1, 1, 0.333)
    """
    of_kind("slo", slo, SLO, "SLO(ttft_s=0.5)")
    of_kind("window", window, Window, "steady_state(table)")
    table = requests if isinstance(requests, RequestTable) else as_table(requests)
    window = window or first_send_to_last_end(table)
    if itl_s is not None:
        itl_s = _sound_gaps_s(itl_s)
    elif not isinstance(requests, RequestTable):
        offered = compress(requests, window.offers(table.sent_s))
        itl_s = _gaps_with_blanks_s(offered, expansion)
    return Summary(table, window, slo, itl_s)


def _sound_gaps_s(given: FloatArray) -> FloatArray:
    gaps = np.asarray(given, dtype=np.float64)
    wrong = gaps < 0
    if wrong.any():
        index = int(wrong.argmax())
        raise ValueError(f"itl_s[{index}]={gaps[index]} is negative; give seconds between tokens")
    return gaps


def sliced(
    requests: RequestTable | Sequence[RequestTimeline],
    labels: Sequence[Any] | npt.NDArray[Any],
    slo: SLO | None = None,
    *,
    window: Window | None = None,
    expansion: Expansion = "chunks",
) -> dict[Any, Summary]:
    """Return one summary for each label (a tenant, a priority, a length bucket), in sorted order.

    All share one window, the whole run's if left out, so that their rates add up to the run's.
    Raises ValueError unless there is one label a request, all of one kind.

    >>> table = RequestTable([0.0, 0.0], [0.2, 0.9], [0.3, 1.0], [2, 2])
    >>> {tenant: run.ttft.mean for tenant, run in sliced(table, ["chat", "batch"]).items()}
    {'batch': 0.9, 'chat': 0.2}
    """
    of_kind("slo", slo, SLO, "SLO(ttft_s=0.5)")
    of_kind("window", window, Window, "steady_state(table)")
    table = requests if isinstance(requests, RequestTable) else as_table(requests)
    names = np.asarray(labels)
    if names.dtype == object:
        raise ValueError("labels are of several kinds; give one text or number a request")
    if names.shape != (table.size,):
        raise ValueError(
            f"labels has shape {names.shape} but there are {table.size} requests; give one each"
        )
    window = window or first_send_to_last_end(table)
    kinds, which = np.unique(names, return_inverse=True)
    found = {}
    offered = window.offers(table.sent_s)
    for index, kind in enumerate(kinds.tolist()):
        here, itl_s = which == index, None
        if not isinstance(requests, RequestTable):
            itl_s = _gaps_with_blanks_s(compress(requests, here & offered), expansion)
        found[kind] = Summary(table.only(here), window, slo, itl_s)
    return found


def length_buckets(tokens: IntArray, edges: Sequence[int]) -> npt.NDArray[np.str_]:
    """Return each request's length bucket as a text, for `sliced`; `edges` are upper bounds.

    >>> length_buckets(np.array([100, 101, 9000]), (100, 1000)).tolist()
    ['1: ≤ 100', '2: 101–1000', '3: > 1000']
    """
    if len(edges) == 0 or any(b <= a for a, b in pairwise(edges)):
        raise ValueError(f"edges={tuple(edges)!r} do not rise; give upper bounds as (100, 1000)")
    lengths = np.asarray(tokens)
    if not (lengths >= 0).all():
        index = int((~(lengths >= 0)).argmax())
        raise ValueError(f"tokens[{index}]={lengths[index]} is no length; give counts from 0 on")
    names = [f"≤ {edges[0]}"]
    names += [f"{low + 1}–{high}" for low, high in pairwise(edges)]
    names += [f"> {edges[-1]}"]
    digits = len(str(len(names)))  # so that they sort as they rise
    numbered = np.array([f"{place:0{digits}}: {name}" for place, name in enumerate(names, 1)])
    return numbered[np.searchsorted(np.asarray(edges), lengths, side="left")]


def cost_per_success_usd(
    usd_per_gpu_hour: float, gpus: int, window_s: float, successes: int
) -> float | None:
    """Return price · GPUs · window / successes in USD, or None where nothing succeeded.

    >>> cost_per_success_usd(3.6, 2, window_s=100.0, successes=50)
    0.004
    """
    at_least("usd_per_gpu_hour", usd_per_gpu_hour)
    at_least("gpus", gpus, above=True)
    at_least("window_s", window_s, above=True)
    if at_least("successes", successes) == 0:
        return None
    return usd_per_gpu_hour / 3600 * gpus * window_s / successes
