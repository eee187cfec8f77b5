"""What eleven benchmark tools print for the same timestamps; our own metrics live elsewhere.

Every tool is one small function below, put together from the same few pieces, with its rule in
one line of the table at the end. The course's own answer is `metrics.summarize`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from course.serving._arguments import at_least, of_kind
from course.serving.requests.metrics import SLO, distribution, within
from course.serving.requests.timelines import (
    Expansion,
    RequestTimeline,
    Status,
    check_timelines,
    gaps_s,
)

Number = float | None
Numbers = Sequence[float | None]


@dataclass(frozen=True)
class Reported:
    """The figures that one tool would print, seconds and per second; None where it prints none."""

    ttft_mean_s: float | None
    ttft_p90_s: float | None
    tpot_mean_s: float | None
    itl_mean_s: float | None
    itl_p50_s: float | None
    itl_p99_s: float | None
    e2e_mean_s: float | None
    requests_per_s: float | None
    output_tokens_per_s: float | None
    goodput_per_s: float | None


@dataclass(frozen=True)
class Convention:
    """One tool's way to count: its name here, the tool's own, and the rule in one line."""

    name: str
    tool: str
    rule: str
    needs_stopwatch: bool
    report: Callable[[Run], Reported]


def as_reported_by(
    convention: str,
    timelines: Sequence[RequestTimeline],
    *,
    duration_s: float | None = None,
    slo: SLO | None = None,
) -> Reported:
    """Return the figures that a tool would print for these requests.

    `convention`: a name in `CONVENTIONS`. `duration_s`: the tool's stopwatch around the whole
    run, needed by vllm, vllm-0.6, sglang, sglang-openai and llmperf, ignored by the others.
    `slo`: the limits of the goodput; without them it is None. Requests are taken in the order
    given, which matters to genai-perf alone. A limit judges only the figure it names: an answer
    of one token is "not good" where there is a TPOT limit. Raises ValueError for an unknown name,
    a missing or impossible duration, and what is no timeline.

    >>> answers = [RequestTimeline(0, 0, (0.25, 0.5), (1, 2), 0.6, prompt_tokens=9),
    ...            RequestTimeline(0, 0, (0.75,), (1,), 0.8, prompt_tokens=9)]
    >>> [as_reported_by(tool, answers, duration_s=1.0).itl_mean_s
    ...  for tool in ("vllm", "sglang", "inference-perf", "hf")]
    [0.25, 0.125, 0.125, 0.0625]
    """
    if not isinstance(convention, str) or convention not in CONVENTIONS:
        known = ", ".join(CONVENTIONS)
        raise ValueError(f"convention={convention!r} is not known; give one of {known}")
    check_timelines(timelines)
    of_kind("slo", slo, SLO, "SLO(ttft_s=0.5)")
    chosen = CONVENTIONS[convention]
    if duration_s is not None:
        duration_s = at_least("duration_s", duration_s, above=True)
    elif chosen.needs_stopwatch:
        raise ValueError(
            f"duration_s is missing: {chosen.tool} divides by its stopwatch; give its seconds"
        )
    return chosen.report(Run(tuple(timelines), duration_s, slo))


# --- the pieces ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Answer:
    """A success, with the times and counts that the tools' formulas are written in."""

    scheduled_s: float
    sent_s: float
    first_s: float
    last_s: float
    end_s: float
    tokens: int
    chunks: int

    @property
    def ttft_s(self) -> float:
        """First content − sent."""
        return self.first_s - self.sent_s

    @property
    def to_content_s(self) -> float:
        """Last content − sent."""
        return self.last_s - self.sent_s

    @property
    def to_end_s(self) -> float:
        """End of the stream − sent."""
        return self.end_s - self.sent_s

    @property
    def pace_s(self) -> Number:
        """(last content − first content) / (n − 1); None for one token."""
        return self.pace_until_s(self.last_s)

    def pace_until_s(self, until_s: float) -> Number:
        """(`until_s` − first content) / (n − 1); None for one token."""
        return (until_s - self.first_s) / (self.tokens - 1) if self.tokens > 1 else None


@dataclass(frozen=True)
class Run:
    """The timelines with what a tool knows besides: its stopwatch and the SLO."""

    timelines: tuple[RequestTimeline, ...]
    duration_s: float | None
    slo: SLO | None

    @cached_property
    def answers(self) -> list[Answer]:
        """The successes, in the order given."""
        found = []
        for t in self.timelines:
            if t.status == Status.FINISHED:
                first_s, last_s = t.first_token_s, t.last_token_s
                assert first_s is not None
                assert last_s is not None
                chunks = sum(map(bool, t.token_counts))
                row = (t.scheduled_s, t.sent_s, first_s, last_s, t.end_s, t.output_tokens, chunks)
                found.append(Answer(*row))
        return found

    def gaps_s(self, expansion: Expansion) -> list[Number]:
        """The gaps of all successes in one list; see `timelines.gaps_s`."""
        done = [t for t in self.timelines if t.status == Status.FINISHED]
        return [gap_s for t in done for gap_s in gaps_s(t, expansion)]

    @property
    def tokens(self) -> int:
        """The output tokens of all successes."""
        return sum(a.tokens for a in self.answers)

    @property
    def first_send_to_last_end_s(self) -> Number:
        """From the first sending to the last end, failures included."""
        every = self.timelines
        return max(t.end_s for t in every) - min(t.sent_s for t in every) if every else None

    @property
    def first_send_to_last_content_s(self) -> Number:
        """From the first sending to the last content, of the successes."""
        done = self.answers
        return max(a.last_s for a in done) - min(a.sent_s for a in done) if done else None

    @property
    def first_ended_to_last_end_s(self) -> Number:
        """From the sending of the request that ended first to the last end.

        Of several that ended first at one moment, the one that was sent first.
        """
        every = self.timelines
        if not every:
            return None
        return max(t.end_s for t in every) - min((t.end_s, t.sent_s) for t in every)[1]

    @property
    def first_schedule_to_last_query_s(self) -> Number:
        """From the first schedule to the last token of the success that was scheduled last.

        Of several scheduled at one moment, as at rate = inf, the one that is answered last.
        """
        if not self.answers:
            return None
        _, last_s = max((a.scheduled_s, a.last_s) for a in self.answers)
        return last_s - min(t.scheduled_s for t in self.timelines)

    def good(self, ttft: Numbers, token: Numbers, e2e: Numbers) -> int | None:
        """How many requests keep every limit, place by place in the lists; None without an SLO.

        `token` is whatever the tool judges the TPOT limit by. A figure that a limit asks for and
        the tool lacks keeps no limit.
        """
        slo = self.slo
        if slo is None or not slo.exists:
            return None
        judged = [
            (within(limit), values)
            for limit, values in ((slo.ttft_s, ttft), (slo.tpot_s, token), (slo.e2e_s, e2e))
            if limit is not None
        ]
        verdicts = [[v is not None and v <= limit for v in values] for limit, values in judged]
        return sum(all(of_one) for of_one in zip(*verdicts, strict=False))


def mean(values: Numbers) -> Number:
    """Return the mean of what is defined, or None.

    >>> mean([1.0, None, 3.0]), mean([None])
    (2.0, None)
    """
    defined = [v for v in values if v is not None]
    return math.fsum(defined) / len(defined) if defined else None


def linear(values: Numbers, q: float) -> Number:
    """Return the quantile of what is defined with linear interpolation, or None.

    >>> linear([1.0, 2.0, None], 0.5)
    1.5
    """
    return distribution([v for v in values if v is not None]).quantile(q)


def inverse_cdf(values: Numbers, q: float) -> Number:
    """Return the smallest value at or below which a share `q` of what is defined lies, or None.

    >>> inverse_cdf([3.0, 1.0, 2.0, None], 0.5)
    2.0
    """
    ordered = sorted(v for v in values if v is not None)
    # a billionth less, so that 0.07 · 100 = 7.000000000000001 is the seventh and not the eighth
    return ordered[max(math.ceil(q * len(ordered) - 1e-9), 1) - 1] if ordered else None


def floor_rank(values: Numbers, q: float) -> Number:
    """Return sorted[int(N·q)] of what is defined, or None.

    >>> floor_rank([1.0, 2.0, 3.0, 4.0], 0.5)
    3.0
    """
    ordered = sorted(v for v in values if v is not None)
    return ordered[min(int(len(ordered) * q), len(ordered) - 1)] if ordered else None


def zero_for_none(values: Numbers) -> list[Number]:
    """Return the values with 0 where there is none, as tools do that keep n = 1 as a zero."""
    return [0.0 if v is None else v for v in values]


def repeated(values: Numbers, times: Sequence[int]) -> list[Number]:
    """Return each value as often as told: a mean weighted by tokens is a mean over tokens.

    >>> repeated([1.0, 2.0], [1, 2])
    [1.0, 2.0, 2.0]
    """
    return [v for v, often in zip(values, times, strict=True) for _ in range(often)]


def _printed(
    run: Run,
    window_s: Number,
    *,
    ttft: Numbers,
    e2e: Numbers,
    tpot: Numbers = (),
    itl: Numbers = (),
    good: int | None = None,
    quantile: Callable[[Numbers, float], Number] = linear,
    more_requests: int = 0,
    more_tokens: int = 0,
) -> Reported:
    """Return the printed figures; what a tool does not have is an empty list.

    A tool counts the successes and their tokens, and `more_requests` and `more_tokens`.
    """

    def per_s(amount: int | None) -> Number:
        return None if amount is None or not window_s else amount / window_s

    return Reported(
        ttft_mean_s=mean(ttft),
        ttft_p90_s=quantile(ttft, 0.9),
        tpot_mean_s=mean(tpot),
        itl_mean_s=mean(itl),
        itl_p50_s=quantile(itl, 0.5),
        itl_p99_s=quantile(itl, 0.99),
        e2e_mean_s=mean(e2e),
        requests_per_s=per_s(len(run.answers) + more_requests),
        output_tokens_per_s=per_s(run.tokens + more_tokens),
        goodput_per_s=per_s(good),
    )


# --- the tools ----------------------------------------------------------------------------------


def _stopwatch(run: Run, tpot: Numbers, itl: Numbers, e2e: Numbers) -> Reported:
    """What vLLM and SGLang share: one stopwatch, and n = 1 passes the goodput's TPOT."""
    ttft = [a.ttft_s for a in run.answers]
    return _printed(
        run,
        run.duration_s,
        ttft=ttft,
        tpot=tpot,
        itl=itl,
        e2e=e2e,
        good=run.good(ttft, zero_for_none(tpot), e2e),
    )


def _vllm(run: Run) -> Reported:
    tpot = [a.pace_s for a in run.answers]
    return _stopwatch(run, tpot, run.gaps_s("chunks"), [a.to_content_s for a in run.answers])


def _vllm_06(run: Run) -> Reported:
    tpot = [a.pace_until_s(a.end_s) for a in run.answers]
    return _stopwatch(run, tpot, run.gaps_s("chunks"), [a.to_end_s for a in run.answers])


def _sglang(run: Run) -> Reported:
    tpot = [a.pace_until_s(a.end_s) for a in run.answers]
    return _stopwatch(run, tpot, run.gaps_s("even"), [a.to_end_s for a in run.answers])


def _guidellm(run: Run) -> Reported:
    answers = run.answers
    ttft, e2e = [a.ttft_s for a in answers], [a.to_end_s for a in answers]
    pace = [a.pace_s for a in answers]
    return _printed(
        run,
        run.first_send_to_last_end_s,
        ttft=ttft,
        tpot=repeated([a.to_content_s / a.tokens for a in answers], [a.tokens for a in answers]),
        itl=repeated(pace, [a.tokens - 1 for a in answers]),
        e2e=e2e,
        good=run.good(ttft, pace, e2e),
        quantile=inverse_cdf,
    )


def _aiperf(run: Run) -> Reported:
    answers = run.answers
    ttft, e2e = [a.ttft_s for a in answers], [a.to_content_s for a in answers]
    pace = [a.pace_s for a in answers]
    return _printed(
        run,
        run.first_send_to_last_content_s,
        ttft=ttft,
        itl=pace,
        e2e=e2e,
        good=run.good(ttft, pace, e2e),
    )


def _genai_perf(run: Run) -> Reported:
    answers = run.answers
    ttft, e2e = [a.ttft_s for a in answers], [a.to_content_s for a in answers]
    # lacks the n = 1 answers, so that from the first of them on the lists do not match
    pace = [a.pace_s for a in answers if a.tokens > 1]
    return _printed(
        run,
        run.first_send_to_last_content_s,
        ttft=ttft,
        itl=pace,
        e2e=e2e,
        more_requests=len(run.timelines) - len(answers),
        good=run.good(ttft, pace, e2e),
    )


def _inference_perf(run: Run) -> Reported:
    answers = run.answers
    ttft = [a.ttft_s if a.tokens > 1 else None for a in answers]
    pace, e2e = [a.pace_s for a in answers], [a.to_end_s for a in answers]
    return _printed(
        run,
        run.first_send_to_last_end_s,
        ttft=ttft,
        tpot=pace,
        itl=run.gaps_s("burst"),
        e2e=e2e,
        good=run.good(ttft, pace, e2e),
    )


def _llmperf(run: Run) -> Reported:
    answers = run.answers
    return _printed(
        run,
        run.duration_s,
        ttft=[a.ttft_s for a in answers],
        itl=[a.to_content_s / (a.chunks + 1) for a in answers],
        e2e=[a.to_end_s for a in answers],
        more_tokens=len(answers),
    )


def _hf(run: Run) -> Reported:
    answers = run.answers
    return _printed(
        run,
        run.first_ended_to_last_end_s,
        ttft=[a.ttft_s for a in answers],
        # the gaps between chunks add up to last − first, which is 0 for one chunk
        itl=zero_for_none([a.pace_s for a in answers]),
        e2e=[a.to_end_s for a in answers],
    )


def _mlperf(run: Run) -> Reported:
    answers = run.answers
    return _printed(
        run,
        run.first_schedule_to_last_query_s,
        ttft=[a.first_s - a.scheduled_s for a in answers],
        tpot=zero_for_none([a.pace_s for a in answers]),
        e2e=[a.last_s - a.scheduled_s for a in answers],
        more_requests=-1,
        more_tokens=-1,
        quantile=floor_rank,
    )


_ROWS: tuple[tuple[str, str, str, bool, Callable[[Run], Reported]], ...] = (
    ("vllm", "vLLM 0.33",
     "E2E to the last content; n = 1 has no TPOT and is good", True, _vllm),
    ("vllm-0.6", "vLLM 0.6.6",
     "as vLLM 0.33, but E2E and TPOT run to the end of the stream", True, _vllm_06),
    ("sglang", "SGLang native",
     "as vLLM 0.6, but the gap before k tokens counts as k gaps of a k-th", True, _sglang),
    ("sglang-openai", "SGLang OpenAI",
     "as vLLM 0.6: one gap a chunk", True, _vllm_06),
    ("guidellm", "GuideLLM 0.8.1",
     "TPOT is (last − sent)/n; each token votes; inverse CDF; n = 1 is not good", False, _guidellm),
    ("aiperf", "AIPerf 0.13",
     "ITL is one mean a request; n = 1 is not good; rates to the last content", False, _aiperf),
    ("genai-perf", "GenAI-Perf",
     "as AIPerf, but requests/s counts failures, goodput pairs unequal lists", False, _genai_perf),
    ("inference-perf", "inference-perf",
     "no TTFT at n = 1; a chunk of k tokens adds k − 1 gaps of 0", False, _inference_perf),
    ("llmperf", "llmperf",
     "ITL is (last − sent)/(chunks + 1), TTFT in it; one token more a request", True, _llmperf),
    ("hf", "HF inference-benchmarker",
     "ITL is one mean a request, 0 for an answer in one chunk", False, _hf),
    ("mlperf", "MLPerf server",
     "clocks start at the schedule; n = 1 has a TPOT of 0; (N − 1)/last token", False, _mlperf),
)  # fmt: skip

CONVENTIONS: dict[str, Convention] = {row[0]: Convention(*row) for row in _ROWS}
"""The eleven conventions by name, in the order of the lesson's table."""
