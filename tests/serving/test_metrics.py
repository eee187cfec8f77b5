"""The course's own metrics: were one wrong, every picture and every exercise would teach it."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from course.serving.requests.metrics import (
    NOISE_S,
    SLO,
    Percentile,
    RequestTable,
    RequestTimeline,
    Status,
    Window,
    as_table,
    bound_ranks,
    cost_per_success_usd,
    distribution,
    first_send_to_last_end,
    gaps_s,
    length_buckets,
    mean_concurrency,
    peak_concurrency,
    percentile,
    pooled_itl_s,
    sliced,
    steady_state,
    stopwatch,
    summarize,
    tpot_s,
)
from tests.lanes import examples
from tests.serving.timeline_strategies import runs

LIMITS = SLO(ttft_s=0.4, tpot_s=0.055)


def answer(
    sent_s: float, *chunks: tuple[float, int], error: str | None = None, prompt: int = 10
) -> RequestTimeline:
    times = tuple(at for at, _ in chunks)
    end_s = max((sent_s, *times))
    return RequestTimeline(
        sent_s, sent_s, times, tuple(k for _, k in chunks), end_s, prompt, error=error
    )


# --- the definitions, against a plain rewriting -----------------------------------------------


def plainly(requests: list[RequestTimeline], slo: SLO) -> dict[str, object]:
    """The contract written down once more, request by request, without arrays."""
    ttft, tpot, e2e, gaps, met = [], [], [], [], 0
    without_tpot = 0
    for r in requests:
        content = [(t, k) for t, k in zip(r.token_times_s, r.token_counts, strict=True) if k > 0]
        if r.error is not None or not content:
            continue
        first, last = content[0][0], content[-1][0]
        n = sum(k for _, k in content)
        ttft.append(first - r.sent_s)
        e2e.append(last - r.sent_s)
        pace = (last - first) / (n - 1) if n > 1 and last > first else None
        without_tpot += pace is None
        tpot += [] if pace is None else [pace]
        gaps += [b - a for (a, _), (b, _) in pairwise(content)]
        fits = first - r.sent_s <= slo.ttft_s * (1 + 1e-9)
        met += fits and (pace is None or pace <= slo.tpot_s * (1 + 1e-9))
    begin = min(r.sent_s for r in requests)
    ends = [r.token_times_s[-1] if r.token_times_s else r.sent_s for r in requests if not r.error]
    over = []
    for r in requests:
        content = [t for t, k in zip(r.token_times_s, r.token_counts, strict=True) if k > 0]
        over.append(content[-1] if r.error is None and content else r.end_s)
    window = max([*over, max(r.sent_s for r in requests)]) - begin
    assert len(ends) >= len(ttft)
    return {
        "ttft": ttft,
        "tpot": tpot,
        "e2e": e2e,
        "itl": gaps,
        "met": met,
        "without_tpot": without_tpot,
        "window": window,
        "in_system": sum(o - r.sent_s for o, r in zip(over, requests, strict=True)),
    }


@given(runs(min_size=1))
def test_every_metric_is_what_the_contract_says(requests: list[RequestTimeline]) -> None:
    run, plain = summarize(requests, LIMITS), plainly(requests, LIMITS)
    for name in ("ttft", "tpot", "e2e", "itl"):
        values = plain[name]
        sample = getattr(run, name)
        assert sorted(sample.values) == pytest.approx(sorted(values), abs=1e-12)
        assert sample.mean == (pytest.approx(np.mean(values), abs=1e-9) if values else None)
        for q in (0.0, 0.5, 0.9, 0.99, 1.0):
            expected = pytest.approx(np.quantile(values, q), abs=1e-9) if values else None
            assert sample.quantile(q) == expected
    assert run.tpot.undefined == plain["without_tpot"]
    assert run.met == plain["met"]
    assert run.attainment == plain["met"] / len(requests)
    assert run.window.duration_s == pytest.approx(plain["window"])
    if plain["window"] > 0:
        assert run.requests_per_s == pytest.approx(len(plain["ttft"]) / plain["window"])
        assert run.goodput_per_s == pytest.approx(plain["met"] / plain["window"])
        assert run.concurrency == pytest.approx(plain["in_system"] / plain["window"])


@given(runs())
def test_no_metric_is_negative_or_nan(requests: list[RequestTimeline]) -> None:
    """A −0.00 in a report, or one NaN that eats a mean, is how broken tools are noticed."""
    run = summarize(requests, LIMITS)
    for name, value in run.as_dict().items():
        if isinstance(value, float):
            assert math.isfinite(value), name
            assert value >= 0, name
    assert sum(run.counts.values()) == run.offered == len(requests)


@given(runs(min_size=1), st.randoms(use_true_random=False), st.sampled_from((-3.0, 1e5, 1.7e9)))
def test_order_and_clock_do_not_matter(requests: list[RequestTimeline], random, by_s) -> None:
    """A number that changes with the order of the lines, or with midnight, measures the file."""
    moved = [
        replace(
            r,
            scheduled_s=r.scheduled_s + by_s,
            sent_s=r.sent_s + by_s,
            token_times_s=tuple(t + by_s for t in r.token_times_s),
            end_s=r.end_s + by_s,
        )
        for r in requests
    ]
    random.shuffle(moved)
    # a clock counting from 1970 has a grain of a quarter of a microsecond
    grain = 4 * np.spacing(abs(by_s) + 20)
    slack = SLO(ttft_s=0.4005, tpot_s=0.05503)
    before, after = summarize(requests, slack).as_dict(), summarize(moved, slack).as_dict()
    if before["window_s"] < 1e-3:
        return
    # one that comes within a grain of another's end may count beside it on one clock alone
    ends = [r.end_s for r in requests]
    in_doubt = any(0 < abs(r.sent_s - end_s) <= grain for r in requests for end_s in ends)
    for name, value in before.items():
        if name.startswith("tpot") or name.endswith("_undefined"):
            continue  # an answer within one grain may lose its pace; the others are compared
        if name == "concurrency_peak" and in_doubt:
            continue
        if isinstance(value, float):
            expected = pytest.approx(value, rel=1e-4, abs=grain)
            assert after[name] == expected, name
        else:
            assert after[name] == value, name


def test_a_million_requests_are_arrays_not_a_loop() -> None:
    """At a list's pace a capacity sweep of the course would take an hour."""
    n = 1_000_000
    random = np.random.default_rng(1)
    sent = np.sort(random.random(n)) * 1e5
    first = sent + random.exponential(0.3, n)
    tokens = random.integers(1, 300, n)
    run = summarize(RequestTable(sent, first, first + (tokens - 1) * 0.05, tokens), LIMITS)
    assert run.successes == n
    assert run.tpot.mean == pytest.approx(0.05)
    assert run.attainment == pytest.approx(1 - math.exp(-0.4 / 0.3), abs=0.003)
    assert run.ttft.percentile(0.99).high is not None


# --- percentiles ------------------------------------------------------------------------------


@given(st.integers(1, 3000), st.sampled_from((0.01, 0.5, 0.9, 0.95, 0.99, 0.999)))
def test_the_bounds_are_the_tightest_order_statistics(samples: int, q: float) -> None:
    """P(x_(r) ≥ the true quantile) = P(fewer than r of n fall below it); 95 % each, no wider."""
    low, high = bound_ranks(samples, q)
    below = scipy.stats.binom(samples, q)
    if high is None:
        assert below.cdf(samples - 1) < 0.95
    else:
        assert below.cdf(high - 1) >= 0.95
        assert high == 1 or below.cdf(high - 2) < 0.95
    if low is None:
        assert below.cdf(0) > 0.05
    else:
        assert below.cdf(low - 1) <= 0.05 + 1e-12
        assert low == samples or below.cdf(low) > 0.05


def test_a_p99_needs_299_requests_for_an_upper_bound() -> None:
    """A report that prints "P99" of 100 requests prints its slowest request by another name."""
    assert percentile(range(298), 0.99).high is None
    assert percentile(range(299), 0.99).high == 298


@given(
    values=st.lists(st.floats(0, 1e6) | st.just(math.inf), min_size=1, max_size=400),
    q=st.sampled_from([0.01, 0.5, 0.9, 0.95, 0.99, 0.999]) | st.floats(0, 1),
)
@settings(max_examples=examples(300))
def test_a_percentile_lies_never_outside_its_own_bounds(values: list[float], q: float) -> None:
    """Of three requests a P99 of 36.9 ms was printed as between 37.4 ms and something."""
    found = percentile(values, q)
    assert found.value is not None
    assert found.low is None or found.low <= found.value
    assert found.high is None or found.value <= found.high


def test_a_bound_that_gives_way_to_the_estimate_is_the_cautious_one() -> None:
    """The largest of three is below the true P99 in 97 runs of 100; 2.98 is so more often."""
    assert percentile([1.0, 2.0, 3.0], 0.99) == Percentile(2.98, 2.98, None, 3)
    assert percentile([-3.0, -2.0, -1.0], 0.01) == Percentile(-2.98, None, -2.98, 3)
    assert percentile([1.0, 2.0, 3.0], 0.8) == Percentile(pytest.approx(2.6), 1.0, None, 3)


def test_the_bounds_hold_in_practice() -> None:
    """95 % of repeated runs must have the true P90 below their upper bound, whatever is drawn."""
    random = np.random.default_rng(3)
    true = -math.log(0.1)
    found = [percentile(random.exponential(1, 200), 0.9) for _ in range(800)]
    above = np.mean([p.high >= true for p in found])
    under = np.mean([p.low <= true for p in found])
    assert 0.93 < above < 0.985
    assert 0.93 < under < 0.985


def test_misses_stand_behind_the_answered() -> None:
    """Without them a collapsed server looks better the more it drops."""
    sample = distribution([0.1] * 90, missed=10)
    assert sample.percentile(0.95).value == 0.1
    shown = sample.percentile(0.95, misses_as_infinite=True)
    assert (shown.value, shown.samples) == (math.inf, 100)
    assert sample.percentile(0.5, misses_as_infinite=True).value == 0.1
    assert sample.mean == pytest.approx(0.1)


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 0.99) == Percentile(None, None, None, 0)
    assert percentile([math.nan], 0.5).samples == 0


def test_a_quantile_in_per_cent_is_refused() -> None:
    with pytest.raises(ValueError, match="q=99 is not a quantile; give a share"):
        percentile([1.0], 99)


@given(
    st.lists(st.floats(0, 1e6) | st.just(math.inf), min_size=1, max_size=40),
    st.floats(0, 1),
)
def test_quantiles_of_misses_never_become_nan(values: list[float], q: float) -> None:
    value = percentile(values, q).value
    assert min(values) <= value <= max(values)


# --- SLO --------------------------------------------------------------------------------------


def test_requests_that_got_no_answer_are_misses() -> None:
    """Attainment over the finished alone goes *up* when a server starts to reject."""
    requests = [
        answer(0, (0.1, 1), (0.15, 1)),
        answer(0, error="rejected: queue full"),
        answer(0, error="timed out"),
        answer(0, error="HTTP 500"),
    ]
    run = summarize(requests, LIMITS)
    assert run.attainment == 0.25
    assert (run.counts["rejected"], run.counts["timed_out"], run.counts["failed"]) == (1, 1, 1)
    assert run.inside_slo is False


def test_a_run_knows_who_stands_behind_its_percentiles() -> None:
    requests = [answer(0, (0.1, 1), (0.2, 1))] * 6 + [answer(0, error="timed out")] * 4
    run = summarize(requests)
    for sample in (run.ttft, run.tpot, run.e2e):
        assert sample.missed == 4
        assert sample.quantile(0.9) < 1
        assert sample.quantile(0.9, misses_as_infinite=True) == math.inf


@pytest.mark.parametrize(("policy", "attainment"), [("pass", 1.0), ("fail", 0.5)])
def test_the_verdict_on_a_one_token_answer_is_a_policy(policy, attainment) -> None:
    """Tools disagree by tens of per cent here, silently."""
    requests = [answer(0, (0.1, 1)), answer(0, (0.1, 1), (0.15, 1))]
    slo = SLO(tpot_s=0.06, without_tpot=policy)
    assert summarize(requests, slo).attainment == attainment


def test_an_undecided_answer_counts_on_neither_side() -> None:
    requests = [answer(0, (0.1, 1)), answer(0, (0.1, 1), (0.15, 1)), answer(0, (9.0, 1))]
    run = summarize(requests, SLO(ttft_s=1.0, tpot_s=0.06, without_tpot="undecided"))
    # the third misses its TTFT, so its TPOT no longer matters
    assert (run.met, run.undecided, run.attainment) == (1, 1, 0.5)


def test_no_slo_is_none_and_all_missed_is_zero() -> None:
    """0 says "not one was good", None says "nobody asked"; a tool that drops the 0 lies."""
    requests = [answer(0, (9.0, 1), (9.1, 1))]
    assert summarize(requests).goodput_per_s is None
    assert summarize(requests, SLO()).goodput_per_s is None
    assert summarize(requests, SLO()).attainment is None
    assert summarize(requests, LIMITS).goodput_per_s == 0.0


def test_a_limit_is_kept_at_equality_whatever_the_clock_says() -> None:
    late = 1_700_000.3
    requests = [answer(sent, (sent + 0.4, 1), (sent + 0.455, 1)) for sent in (0.0, 0.7, late)]
    assert summarize(requests, SLO(ttft_s=0.4)).met == 3
    assert summarize(requests, SLO(ttft_s=0.39999)).met == 0
    assert SLO(ttft_s=1, quantile=1).quantile == 1


def test_inside_the_slo_means_the_quantile_of_the_offered() -> None:
    requests = [answer(0, (0.1, 1))] * 98 + [answer(0, (0.9, 1))] * 2
    assert summarize(requests, SLO(ttft_s=0.5, quantile=0.98)).inside_slo is True
    assert summarize(requests, SLO(ttft_s=0.5, quantile=0.99)).inside_slo is False


@pytest.mark.parametrize(
    ("faulty", "says"),
    [
        ({"ttft_s": -1}, "ttft_s=-1"),
        ({"tpot_s": 0}, "tpot_s=0"),
        ({"e2e_s": math.nan}, "e2e_s=nan"),
        ({"quantile": 99}, "quantile=99 is above 1"),
        ({"without_tpot": "maybe"}, "without_tpot='maybe'"),
    ],
)
def test_an_impossible_slo_says_which_part(faulty, says) -> None:
    with pytest.raises(ValueError, match=says):
        SLO(**faulty)


def test_degraded_answers_are_counted_apart() -> None:
    table = RequestTable([0, 0], [0.1, 0.1], [0.2, 0.2], [3, 3], degraded=[True, False])
    assert summarize(table).degraded == 1
    assert summarize(RequestTable([0], [0.1], [0.2], [3])).degraded is None


# --- concurrency and windows ------------------------------------------------------------------


@given(runs(min_size=1))
def test_the_peak_is_the_largest_number_at_once(requests: list[RequestTimeline]) -> None:
    """Ends before starts: a seat handed over at the same instant is one seat."""
    table = as_table(requests)
    spans = list(zip(table.sent_s, table.left_s, strict=True))
    counted = [sum(a <= at < b for a, b in spans) for at in table.sent_s]
    assert peak_concurrency(table) == max(counted)


@given(runs(min_size=1))
def test_littles_law_is_an_identity(requests: list[RequestTimeline]) -> None:
    table = as_table(requests)
    window = first_send_to_last_end(table)
    if window.duration_s == 0:
        assert mean_concurrency(table, window) is None
        return
    rate, time_s = table.size / window.duration_s, float((table.left_s - table.sent_s).mean())
    assert mean_concurrency(table, window) == pytest.approx(rate * time_s, abs=1e-9)


def test_unfinished_requests_stay_inside_until_the_end() -> None:
    table = RequestTable(
        [0.0, 1.0], [0.5, math.nan], [4.0, math.nan], [3, 0],
        status=[Status.FINISHED, Status.UNFINISHED],
    )  # fmt: skip
    assert mean_concurrency(table, first_send_to_last_end(table)) == pytest.approx(7 / 4)


def test_a_timed_out_request_needs_its_end() -> None:
    table = RequestTable([0.0], [math.nan], [math.nan], [0], status=[Status.TIMED_OUT])
    with pytest.raises(ValueError, match=r"end_s\[0\] is not known .* TIMED_OUT; give end_s"):
        _ = table.left_s


def test_the_steady_state_drops_the_first_wave_and_the_drain() -> None:
    """Forty users who start at once wait for each other once, and never again."""
    users, service = 4, 1.0
    sent, first = [], []
    for turn in range(5):
        for user in range(users):
            sent.append(max(0.0, (turn - 1) * users + user + 1.0) if turn else 0.0)
            first.append(turn * users + user + service)
    table = RequestTable(sent, first, first, [1] * len(sent))
    window = steady_state(table)
    assert window == Window("steady state", 4.0, 16.0)
    steady = summarize(table, window=window)
    assert steady.concurrency == pytest.approx(users)
    assert steady.requests_per_s == pytest.approx(1.0)
    assert steady.ttft.mean == pytest.approx(users)
    assert summarize(table).ttft.mean < users


def test_a_stated_ramp_and_drain_are_used() -> None:
    table = RequestTable([0.0, 5.0, 9.0], [1.0, 6.0, 10.0], [1.0, 6.0, 10.0], [1, 1, 1])
    assert steady_state(table, ramp_s=2, drain_s=3) == Window("steady state", 2.0, 7.0)
    run = summarize(table, SLO(ttft_s=2), window=steady_state(table, ramp_s=2, drain_s=3))
    assert (run.offered, run.requests_per_s, run.goodput_per_s) == (1, 0.2, 0.2)


def test_a_run_without_steady_state_says_so() -> None:
    with pytest.raises(ValueError, match="no steady state: the ramp ends at"):
        steady_state(RequestTable([0.0], [1.0], [1.0], [1]))


def test_the_window_is_named_and_divides() -> None:
    """6 % between two tools on the same server is the drain in one denominator."""
    table = RequestTable(np.linspace(0, 9.9, 100), np.linspace(0.7, 10.6, 100),
                         np.linspace(0.7, 10.6, 100), [1] * 100)  # fmt: skip
    assert summarize(table).requests_per_s == pytest.approx(100 / 10.6)
    assert summarize(table, window=stopwatch(10.0)).requests_per_s == pytest.approx(10.0)
    with pytest.raises(ValueError, match="duration_s=0"):
        stopwatch(0)


# --- slices and money -------------------------------------------------------------------------


def test_slices_add_up_to_the_run() -> None:
    """A tenant whose P99 is lost in the total is the reason to slice at all."""
    table = RequestTable([0, 0, 1, 2], [0.1, 5, 1.2, 7], [0.5, 6, 1.5, 8], [5, 5, 5, 5])
    by_tenant = sliced(table, ["chat", "batch", "chat", "batch"], SLO(ttft_s=1))
    assert list(by_tenant) == ["batch", "chat"]
    assert sum(run.offered for run in by_tenant.values()) == 4
    total = sum(run.requests_per_s for run in by_tenant.values())
    assert total == pytest.approx(summarize(table).requests_per_s)
    assert by_tenant["chat"].attainment == 1
    assert by_tenant["batch"].attainment == 0
    timelines = [answer(0, (0.1, 1), (0.3, 1)), answer(0, (0.1, 1), (0.15, 1))]
    one_by_one = sliced(timelines, [0, 1])
    assert [run.itl.mean for run in one_by_one.values()] == pytest.approx([0.2, 0.05])
    with pytest.raises(ValueError, match="labels has shape"):
        sliced(table, ["chat"])
    with pytest.raises(ValueError, match="labels are of several kinds"):
        sliced(table, [None, "chat", 1, "batch"])


def test_the_steady_window_cuts_the_gaps_of_timelines_too() -> None:
    """A stall in the ramp would stand in the ITL of a window that left its request out."""
    answers = [answer(at_s, (at_s + 0.1, 1), (at_s + 0.2, 1)) for at_s in range(1, 20)]
    stalled = answer(0, (0.1, 1), (5.1, 1))
    run = [stalled, *answers]
    window = steady_state(as_table(run), ramp_s=2.0, drain_s=1.0)
    cut = summarize(run, window=window)
    assert cut.itl.samples == cut.tpot.samples == cut.offered
    assert cut.itl.largest == pytest.approx(0.1)
    assert summarize(run).itl.largest == pytest.approx(5.0)
    halves = sliced(run, [index % 2 for index in range(len(run))], window=window)
    for half in halves.values():
        assert half.itl.samples == half.tpot.samples == half.offered


def test_length_buckets_are_closed_above() -> None:
    assert length_buckets(np.array([1, 10, 11]), [10]).tolist() == ["1: ≤ 10", "1: ≤ 10", "2: > 10"]
    with pytest.raises(ValueError, match="do not rise"):
        length_buckets(np.array([1]), [10, 10])
    with pytest.raises(ValueError, match=r"tokens\[1\]=nan is no length"):
        length_buckets(np.array([1, math.nan]), [10])


def test_slices_stand_in_the_order_of_their_lengths() -> None:
    """As texts, "10: …" comes before "2: …"."""
    edges = list(range(10, 120, 10))
    names = length_buckets(np.array([1, *(edge + 1 for edge in edges)]), edges)
    assert sorted(names) == list(names)


def test_a_success_costs_what_all_gpus_cost_meanwhile() -> None:
    assert cost_per_success_usd(7.2, 2, window_s=3600, successes=100) == pytest.approx(0.144)
    assert cost_per_success_usd(7.2, 2, window_s=3600, successes=0) is None


# --- chunks, noise, nonsense --------------------------------------------------------------------


@given(runs())
def test_the_expansions_share_the_same_time(requests: list[RequestTimeline]) -> None:
    """Whatever is assumed inside a chunk, the gaps of an answer add up to last − first."""
    for expansion in ("chunks", "even", "burst"):
        for r in requests:
            if r.chunks:
                span = r.chunks[-1][0] - r.chunks[0][0]
                assert sum(gaps_s(r, expansion)) == pytest.approx(span, abs=1e-9)
    assert len(pooled_itl_s(requests, "burst")) == sum(
        r.output_tokens - 1 for r in requests if r.status == Status.FINISHED
    )
    with pytest.raises(ValueError, match="expansion='half' is not known"):
        gaps_s(answer(0), "half")


def test_noise_is_straightened_and_counted() -> None:
    table = RequestTable([0.0], [1.0000001], [1.0], [10])
    run = summarize(table)
    assert run.straightened == 1
    assert run.tpot.samples == 0
    assert run.tpot.undefined == 1
    noisy = RequestTimeline(0, 0, (0.5, 0.5 - NOISE_S / 2), (1, 1), 0.5, 1)
    assert gaps_s(noisy) == [0.0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sent_s": -0.5}, "sent_s=-0.5 comes before scheduled_s=0.0"),
        ({"token_times_s": (0.2, 0.1)}, r"token_times_s\[1\]=0.1 comes before token_times_s\[0\]"),
        ({"token_times_s": (math.nan, 1)}, r"token_times_s\[0\]=nan is no time"),
        ({"end_s": 0.1}, r"end_s=0.1 comes before token_times_s\[1\]=0.3"),
        ({"end_s": 1.7e18}, "give finite seconds"),
        ({"token_times_s": 0.6}, "token_times_s=0.6 is no list"),
        ({"token_counts": 1}, "token_counts=1 is no list"),
        ({"token_counts": (1,)}, "token_counts has 1 entries but token_times_s has 2"),
        ({"token_counts": (1, -1)}, r"token_counts\[1\]=-1 is no token count"),
        ({"token_counts": (2**54, 1)}, r"token_counts\[0\]=18014398509481984 is no token count"),
        ({"prompt_tokens": 1.5}, "prompt_tokens=1.5 is no token count"),
        ({"scheduled_s": "0"}, "scheduled_s='0' is not a number"),
        ({"error": 500}, "error=500 is neither None nor a text"),
    ],
)
def test_an_impossible_timeline_is_refused_by_name(change, says) -> None:
    fields = {
        "scheduled_s": 0.0, "sent_s": 0.0, "token_times_s": (0.2, 0.3), "token_counts": (1, 1),
        "end_s": 0.3, "prompt_tokens": 5,
    }  # fmt: skip
    with pytest.raises(ValueError, match=says):
        RequestTimeline(**{**fields, **change})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"output_tokens": [1, 0]}, r"output_tokens\[1\]=0 is too few"),
        ({"first_token_s": [0.1, -0.1]}, r"first_token_s\[1\]=-0.1 is not at or after sent_s"),
        ({"last_token_s": [0.2, 0.05]}, r"last_token_s\[1\]=0.05 is not at or after first"),
        ({"last_token_s": [0.2, math.nan]}, r"last_token_s\[1\]=nan"),
        ({"sent_s": [0.0, math.inf]}, r"sent_s\[1\]=inf is no time"),
        ({"status": [0, 9]}, r"status\[1\]=9 is no Status"),
        ({"status": [-1, 0]}, r"status\[0\]=-1 is no Status"),
        ({"status": [0, 0.5]}, r"status\[1\]=0.5 is not whole"),
        ({"status": [0]}, "status has 1 entries but sent_s has 2"),
        ({"scheduled_s": [0.0, 1.0]}, r"scheduled_s\[1\]=1.0 is not at or before sent_s"),
        ({"end_s": [0.0, -1.0]}, r"end_s\[1\]=-1.0 comes before sent_s"),
        ({"prompt_tokens": ["a", "b"]}, "prompt_tokens is no list of numbers"),
    ],
)
def test_an_impossible_table_is_refused_by_name(change, says) -> None:
    columns = {
        "sent_s": [0.0, 0.0], "first_token_s": [0.1, 0.1], "last_token_s": [0.2, 0.2],
        "output_tokens": [2, 2],
    }  # fmt: skip
    with pytest.raises(ValueError, match=says):
        RequestTable(**{**columns, **change})


def test_tpot_of_a_last_token_before_the_first_is_refused() -> None:
    with pytest.raises(ValueError, match=r"tpot_s\[1\] would be -1.0 s: it ends before it begins"):
        tpot_s(np.array([0.1, 2.0]), np.array([0.2, 1.0]), np.array([2, 2]))


def test_an_empty_run_has_no_numbers_and_no_error() -> None:
    run = summarize([], LIMITS)
    assert (run.offered, run.requests_per_s, run.attainment, run.ttft.mean) == (0, None, None, None)
    assert run.concurrency_peak == 0


def test_the_clients_own_queue_is_the_difference_of_two_clocks() -> None:
    late = RequestTimeline(0.3, 0.41, (0.9,), (1,), 0.9, 5)
    assert summarize([late]).client_queue.mean == pytest.approx(0.11)
    lost = RequestTimeline(0.0, 9.0, (), (), 10.0, 5, error="timed out")
    queue = summarize([late, lost]).client_queue
    assert (queue.samples, queue.missed) == (1, 1)


def test_an_answer_without_a_gap_is_counted_as_such() -> None:
    """ITL is undefined for it, as TPOT is; a count of 0 would say that all of them had one."""
    answers = [answer(0, (0.1, 1), (0.2, 1)), answer(0, (0.1, 1)), answer(0, (0.5, 20))]
    run = summarize(answers)
    assert (run.itl.samples, run.itl.undefined, run.itl.mean) == (1, 2, pytest.approx(0.1))
    assert run.as_dict()["itl_undefined"] == run.as_dict()["tpot_undefined"] == 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"slo": 0.4}, "slo=0.4 is no SLO"),
        ({"window": 3.0}, "window=3.0 is no Window"),
        ({"itl_s": [0.1, -1.0]}, r"itl_s\[1\]=-1.0 is negative"),
        ({"expansion": "half"}, "expansion='half' is not known"),
    ],
)
def test_an_impossible_argument_of_a_summary_is_named(arguments, says) -> None:
    with pytest.raises(ValueError, match=says):
        summarize([], **arguments)


@pytest.mark.parametrize(
    ("values", "says"),
    [(["a"], "no list of numbers"), ([[1.0]], "shape"), ([-math.inf, 1.0], "−∞")],
)
def test_what_has_no_percentile_is_refused(values, says) -> None:
    with pytest.raises(ValueError, match=says):
        percentile(values, 0.5)


@settings(max_examples=examples(30))
@given(runs(min_size=1))
def test_a_summary_survives_json(requests: list[RequestTimeline]) -> None:
    import json

    json.dumps(summarize(requests, LIMITS).as_dict(), allow_nan=False)
