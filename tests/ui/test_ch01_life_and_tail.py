"""What the first two pictures of notebook 01 draw and say, against figures worked out here by
other ways: token times added up one by one, and scipy's own lognormal for the mixture. A picture
that disagreed with its sentence, or with a metric's definition, would teach the wrong number."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom, lognorm

from course.explore.ch01 import percentile_and_mean as module
from course.explore.ch01.one_life import one_life
from course.explore.ch01.percentile_and_mean import FAST_S, Mixture, mixture, percentile_and_mean
from course.serving.pricing.linear import RooflineStepCost, StepFeatures
from course.serving.requests import metrics
from course.words import percent, rounded, seconds
from tests.ui.pictures import presets_of, result_of, xy

# --- one request's life -------------------------------------------------------------------------


def prefill_s(tokens: int) -> float:
    """A whole prompt in one step by hand: each token also looks at all that came before it."""
    cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
    pairs = tokens * (tokens + 1) / 2
    return cost.step_seconds(StepFeatures(tokens, int(pairs), 0, 0))


def arrivals_by_hand(p: Any) -> tuple[list[float], list[int]]:
    """Token by token: what is ready goes out after the first token, and then k at a time."""
    clock = p.network_ms / 1e3 + p.queue_s + prefill_s(p.prompt_tokens)
    times, counts, waiting = [], [], 0
    for token in range(p.output_tokens):
        if token:
            clock += p.decode_step_ms / 1e3
        if token and token == max(1, p.output_tokens // 2):
            clock += p.stall_ms / 1e3
        waiting += 1
        if token == 0 or waiting == p.chunk_tokens or token == p.output_tokens - 1:
            times.append(clock + p.network_ms / 1e3)
            counts.append(waiting)
            waiting = 0
    return times, counts


HARD = (
    {"output_tokens": 2, "stall_ms": 500.0},
    {"output_tokens": 3, "chunk_tokens": 8, "queue_s": 1.0},
    {"output_tokens": 17, "chunk_tokens": 4, "stall_ms": 300.0},
    {"output_tokens": 18, "chunk_tokens": 4, "network_ms": 0.0},
    {"output_tokens": 1, "stall_ms": 500.0, "chunk_tokens": 3},
)


@pytest.mark.parametrize("state", [*(p.name for p in one_life.presets), *HARD], ids=str)
def test_a_life_added_up_by_hand(opened: Any, state: Any) -> None:
    shell = opened(one_life, state) if isinstance(state, str) else opened(one_life, **state)
    p, r = shell.parameters, shell.result
    times, counts = arrivals_by_hand(p)
    assert r.arrivals_s == pytest.approx(times, rel=1e-12)
    assert r.chunk_tokens.tolist() == counts
    assert sum(counts) == p.output_tokens
    assert r.here.ttft_s == pytest.approx(times[0], rel=1e-12)
    assert r.here.e2e_s == pytest.approx(times[-1], rel=1e-12)
    if p.output_tokens == 1:
        assert math.isnan(r.here.tpot_s)
        assert r.gaps_s.size == 0
        return
    assert r.here.tpot_s == pytest.approx((times[-1] - times[0]) / (p.output_tokens - 1))
    gaps = np.diff(times)
    assert r.here.largest_gap_s == pytest.approx(gaps.max())
    assert r.here.median_gap_s == pytest.approx(float(np.median(gaps)))
    assert r.rest.tpot_s == pytest.approx(p.decode_step_ms / 1e3)
    assert r.rest.largest_gap_s == pytest.approx(p.decode_step_ms / 1e3)


@presets_of(one_life)
def test_brackets_boxes_and_gaps_lie_where_the_numbers_say(opened: Any, preset: str) -> None:
    shell = opened(one_life, preset)
    p, r, picture = shell.parameters, shell.result, shell.drawing
    assert xy(picture.brackets[0])[0].tolist() == [0.0, r.here.ttft_s]
    assert xy(picture.brackets[2])[0].tolist() == [0.0, r.here.e2e_s]
    ticks = xy(picture.ticks)[0]
    assert np.unique(ticks[~np.isnan(ticks)]) == pytest.approx(np.unique(r.arrivals_s))
    boxes = {name: box for name, box in picture.boxes.items() if box.get_visible()}
    assert boxes["prefill"].get_width() == pytest.approx(prefill_s(p.prompt_tokens))
    assert ("queue" in boxes) == (p.queue_s > 0)
    assert ("stall" in boxes) == (p.stall_ms > 0 and p.output_tokens > 1)
    widths = sum(
        boxes[name].get_width() for name in ("queue", "prefill", "decode") if name in boxes
    )
    # queueing + prefill + decode + the network both ways is the whole of E2E
    assert widths + 2 * p.network_ms / 1e3 == pytest.approx(r.here.e2e_s)
    if p.output_tokens > 1:
        x, y = xy(picture.steps)
        assert x == pytest.approx(r.arrivals_s)
        assert y[1:] == pytest.approx(r.gaps_s)
        assert xy(picture.mean)[1].tolist() == [r.here.tpot_s] * 2


@presets_of(one_life)
def test_the_sentence_says_what_is_drawn(opened: Any, preset: str) -> None:
    shell = opened(one_life, preset)
    r, words, picture = shell.result, shell.sentence, shell.drawing
    assert f"after {seconds(r.here.ttft_s)} (TTFT)" in words
    assert f"TTFT {seconds(r.here.ttft_s)}" in picture.bracket_words[0].get_text()
    assert f"E2E {seconds(r.here.e2e_s)}" in picture.bracket_words[2].get_text()
    if r.output_tokens == 1:
        assert "undefined, not 0" in words
        assert "no TPOT" in picture.bracket_words[1].get_text()
        return
    assert f"{seconds(r.here.tpot_s)} apart on average (TPOT)" in words
    assert f"{rounded(1 / r.here.tpot_s)} tokens/s" in words
    assert f"TPOT {seconds(r.here.tpot_s)}" in picture.bracket_words[1].get_text()
    drawn = [text.get_text().split("\n")[1] for text in picture.ratio_words]
    for times in drawn:
        assert times == "×1" or times in words, "a metric moved and the sentence is silent"


def test_each_preset_moves_just_the_metrics_it_is_about() -> None:
    """The lesson: which metric sees a queue, a neighbour, a chunk. One that moved too many or too
    few of them would teach a tool's habit as a fact."""
    moved = {
        "Chat at rest": set(),
        "Behind a queue": {"ttft_s", "e2e_s"},
        "A neighbour's long prompt": {"tpot_s", "largest_gap_s", "e2e_s"},
        "Four tokens a chunk": {"median_gap_s", "largest_gap_s"},
        "Long essay": set(),
        "A step that drags": set(),
    }
    for preset, expected in moved.items():
        r = result_of(one_life, preset)
        found = {
            name for name, value in vars(r.here).items()
            if value != pytest.approx(getattr(r.rest, name), rel=1e-9)
        }  # fmt: skip
        assert found == expected, preset


def test_a_stall_of_400_ms_hardly_moves_the_mean_gap() -> None:
    r = result_of(one_life, "A neighbour's long prompt")
    assert r.here.largest_gap_s == pytest.approx(0.420)
    assert r.here.largest_gap_s / r.rest.largest_gap_s == pytest.approx(21)
    assert r.here.tpot_s == pytest.approx(0.020 + 0.400 / 199)
    assert r.here.tpot_s / r.rest.tpot_s < 1.11


@pytest.mark.parametrize(
    ("values", "says", "not_says"),
    [
        ({"queue_s": 3.0}, "feels stuck", None),
        ({"queue_s": 2.5}, None, "feels stuck"),
        ({"decode_step_ms": 50.0}, "20.0 tokens/s, which reads fluently", "drags"),
        ({"decode_step_ms": 51.0}, None, "reads fluently"),
        ({"decode_step_ms": 199.0}, None, "drags"),
        ({"decode_step_ms": 200.0}, "5.00 tokens/s, which drags", "fluently"),
    ],
)
def test_what_people_feel(opened: Any, values: Any, says: str | None, not_says: str | None) -> None:
    """Over 3 s feels stuck; 20 tokens a second read fluently; 5 a second drag."""
    words = opened(one_life, **values).sentence
    assert says is None or says in words
    assert not_says is None or not_says not in words


def test_a_one_token_answer_has_no_right_guess_of_its_tpot(opened: Any) -> None:
    """0 ms is what some tools print; the curtain must not call it right."""
    shell = opened(one_life, "One-token answer")
    shell.commit(0)
    assert "there is no such number" in shell._sentence.value


@pytest.mark.parametrize("preset", ["Chat at rest", "A neighbour's long prompt"])
def test_a_guess_is_drawn_where_it_was_meant(opened: Any, preset: str) -> None:
    shell = opened(one_life, preset)
    answer = one_life.prediction.answer(shell.result)
    shell.commit(0.5 * answer)
    picture = shell.drawing
    if preset == "Chat at rest":
        assert xy(picture.time_guess.star)[0].tolist() == [pytest.approx(0.5 * answer)]
    else:
        assert xy(picture.gap_star)[1].tolist() == [pytest.approx(0.5 * answer / 1e3)]


# --- the percentile and the mean ----------------------------------------------------------------


def distribution_of(p: Any) -> Any:
    """(cdf, mean) of the mixture from scipy's lognormal, which knows nothing of the explorer's."""
    slow, fast = p.slow_percent / 100, p.fast_percent / 100
    parts = [
        (1 - slow - fast, p.typical_s, p.spread),
        (slow, p.slow_times * p.typical_s, p.slow_cv),
        (fast, FAST_S, 0.3),
    ]
    frozen = [(w, lognorm(s=math.sqrt(math.log(1 + cv**2)), scale=m)) for w, m, cv in parts]
    return (
        lambda x: sum(w * part.cdf(x) for w, part in frozen),
        sum(w * part.mean() for w, part in frozen),
    )


@presets_of(percentile_and_mean)
def test_true_figures_are_the_mixture_s(opened: Any, preset: str) -> None:
    shell = opened(percentile_and_mean, preset)
    cdf, mean = distribution_of(shell.parameters)
    r = shell.result
    assert r.marks[0].true_s == pytest.approx(mean, rel=1e-9)
    for mark, q in zip(r.marks[1:], (0.5, 0.9, 0.95, 0.99), strict=True):
        expected = brentq(lambda x, q=q: cdf(x) - q, 1e-4, 1e3, xtol=1e-13)
        assert mark.true_s == pytest.approx(expected, rel=1e-6), mark.name
    assert r.true == pytest.approx(cdf(r.grid_s), abs=1e-12)


def sample_of(shell: Any) -> np.ndarray:
    """The run itself, which the result keeps only as shares on a grid."""
    p = shell.parameters
    times, _ = module.sample_s(mixture(p), p.requests, p.seed)
    return times


@presets_of(percentile_and_mean)
def test_measured_figures_are_the_sample_s(opened: Any, preset: str) -> None:
    shell = opened(percentile_and_mean, preset)
    r, times = shell.result, np.sort(sample_of(shell))
    n = times.size
    assert r.requests == n
    assert r.marks[0].value_s == pytest.approx(times.mean(), rel=1e-12)
    for mark, q in zip(r.marks[1:], (0.5, 0.9, 0.95, 0.99), strict=True):
        assert mark.value_s == pytest.approx(np.quantile(times, q), rel=1e-12), mark.name
        if mark.high_s is not None:
            rank = int(np.searchsorted(times, mark.high_s)) + 1
            # at least 95 % sure, and one rank less would not be
            assert binom.cdf(rank - 1, n, q) >= 0.95 > binom.cdf(rank - 2, n, q)
    assert r.below_mean == pytest.approx(np.mean(times < times.mean()))
    near = (times >= 0.75 * times.mean()) & (times < 1.25 * times.mean())
    assert r.near_mean == pytest.approx(near.mean())
    some = slice(None, None, 25)
    expected = [np.mean(times <= at) for at in r.grid_s[some].tolist()]
    assert r.measured[some] == pytest.approx(expected)
    assert r.slowest_s[-1] == times[-1]
    assert r.slowest_s[0] == times[-math.ceil(n / 100)]


@pytest.mark.parametrize("log_time", [True, False])
@pytest.mark.parametrize("apart", [True, False])
def test_bars_count_every_request_once(opened: Any, log_time: bool, apart: bool) -> None:
    """On a logarithmic axis all of them; on a linear one the rest is said to lie beyond."""
    shell = opened(
        percentile_and_mean, log_time=log_time, apart=apart, fast_percent=10.0, requests=3000
    )
    picture, times = shell.drawing, sample_of(shell)
    stacks = picture.stacks if apart else [picture.bars]
    total = np.zeros(stacks[0].get_data().values.shape)
    for stack in stacks:
        values, edges, floor = stack.get_data()
        total = total + values - (floor if apart else 0)
        assert stack.get_visible()
    for share, low, high in zip(total, edges, edges[1:], strict=False):
        assert share == pytest.approx(100 * np.mean((times > low) & (times <= high)), abs=1e-9)
    beyond = int(np.sum(times > edges[-1]))
    words = picture.beyond.get_text()
    assert words == (f"{beyond:,} more beyond the picture →" if beyond else "")
    assert beyond == 0 or not log_time
    assert total.sum() == pytest.approx(100 * (1 - beyond / 3000))


@presets_of(percentile_and_mean)
def test_marks_and_words_are_the_same_numbers(opened: Any, preset: str) -> None:
    shell = opened(percentile_and_mean, preset)
    r, picture, words = shell.result, shell.drawing, shell.sentence
    assert xy(picture.values)[0].tolist() == [mark.value_s for mark in r.marks]
    assert xy(picture.true)[0].tolist() == [mark.true_s for mark in r.marks]
    for mark, text in zip(r.marks, picture.mark_words, strict=True):
        assert text.get_text().startswith(seconds(mark.value_s))
    mean, median, _, p95, p99 = (seconds(mark.value_s) for mark in r.marks)
    assert f"mean {mean}, median {median}" in words
    assert f"P95 is {p95}, P99 {p99}" in words
    assert f"{percent(round(r.below_mean, 3))} of them took less than the mean" in words
    assert xy(picture.mean_rule)[0].tolist() == [r.marks[0].value_s] * 2
    assert xy(picture.tail_rule)[0].tolist() == [r.marks[-1].value_s] * 2


def test_the_printed_report_of_600_ms(opened: Any) -> None:
    """Mean 600 ms, P95 1.8 s and P99 7 s can be one and the same service."""
    shell = opened(percentile_and_mean, "Mean 600 ms")
    r = shell.result
    by_name = {mark.name: mark for mark in r.marks}
    for name, printed in (("mean", 0.6), ("P95", 1.8), ("P99", 7.0)):
        assert by_name[name].value_s == pytest.approx(printed, rel=0.03), name
        assert by_name[name].true_s == pytest.approx(printed, rel=0.03), name
    assert by_name["median"].value_s < 0.6 * by_name["mean"].value_s
    assert r.near_mean < 0.2, "about 600 ms is what few requests take"


def test_hardly_a_gap_is_as_long_as_the_mean_of_two_humps() -> None:
    r = result_of(percentile_and_mean, "Two humps")
    assert r.near_mean < 0.001
    assert 0.02 < r.marks[0].value_s < 0.2


@pytest.mark.parametrize(("requests", "bounded"), [(298, False), (299, True)])
def test_299_requests_are_the_least_that_bound_a_p99(
    opened: Any, requests: int, bounded: bool
) -> None:
    shell = opened(percentile_and_mean, requests=requests)
    assert (shell.result.marks[-1].high_s is not None) == bounded
    assert ("no 95 % upper bound" in shell.sentence) != bounded
    assert ("no upper bound" in shell.drawing.mark_words[-1].get_text()) != bounded
    assert (0.99**requests > 0.05) != bounded


def test_a_small_run_often_sees_nothing_beyond_the_true_p99(opened: Any) -> None:
    """The sentence's 60.5 % for fifty requests, counted over many runs."""
    shell = opened(percentile_and_mean, "A P99 from fifty requests")
    assert percent(0.99**50) in shell.sentence
    true = shell.result.marks[-1].true_s
    rng = np.random.default_rng(5)
    mixed = mixture(shell.parameters)
    group = rng.choice(2, size=(4000, 50), p=mixed.shares[:2])
    medians, sigmas = np.array(mixed.medians_s), mixed.sigmas
    times = medians[group] * np.exp(sigmas[group] * rng.standard_normal(group.shape))
    assert np.mean(times.max(axis=1) <= true) == pytest.approx(0.99**50, abs=0.03)


def test_bounds_hold_as_often_as_they_promise() -> None:
    """Over many days each bound of the P99 fails in at most about one of twenty."""
    mixed = mixture(percentile_and_mean.state(requests=500))
    runs = [
        module.marks_of(metrics.distribution(module.sample_s(mixed, 500, seed)[0]), mixed)[-1]
        for seed in range(400)
    ]
    assert np.mean([mark.low_s > mark.true_s for mark in runs]) < 0.08
    assert np.mean([mark.high_s < mark.true_s for mark in runs]) < 0.08


def test_fast_failures_pull_the_mean_down_not_the_service_up(opened: Any) -> None:
    shell = opened(percentile_and_mean, "Fast failures pull the mean down")
    without = opened(
        percentile_and_mean,
        "Fast failures pull the mean down",
        fast_percent=0.0,
        slow_percent=4.0,
    ).result  # 3 of the 75 that are answered
    r = shell.result
    assert r.marks[0].value_s < 0.8 * r.mean_without_fast_s
    assert r.mean_without_fast_s == pytest.approx(without.marks[0].true_s, rel=0.02)
    assert f"without them the mean is {seconds(r.mean_without_fast_s)}" in shell.sentence


def test_the_pooled_p95_hides_the_tenant_that_suffers(opened: Any) -> None:
    shell = opened(percentile_and_mean, "One tenant suffers")
    r = shell.result
    usual, slow, fast = r.groups
    assert slow.share == pytest.approx(0.04)
    assert fast.p95_s is None
    pooled = {mark.name: mark.value_s for mark in r.marks}
    assert pooled["P95"] < 1.5 * usual.p95_s, "the pooled P95 looks well"
    assert slow.p95_s > 5 * pooled["P95"], "the tenant's does not"
    assert f"slow ones {seconds(slow.p95_s)}" in shell.sentence
    assert usual.measured + slow.measured + fast.measured == pytest.approx(r.measured)


def test_luck_moves_a_small_run_and_hardly_a_large_one() -> None:
    spread = {}
    for requests in (50, 100_000):
        found = [
            result_of(percentile_and_mean, requests=requests, seed=seed).marks[-1].value_s
            for seed in range(1, 9)
        ]
        spread[requests] = max(found) / min(found)
    assert spread[50] > 2
    assert spread[100_000] < 1.1


def test_the_question_fits_the_settings() -> None:
    """A guess is judged against the figure that was asked for."""
    ask = percentile_and_mean.prediction
    pooled = result_of(percentile_and_mean, "Mean 600 ms")
    assert ask.answer(pooled) == pooled.marks[-1].value_s
    small = result_of(percentile_and_mean, "A P99 from fifty requests")
    assert ask.answer(small) == small.marks[-1].true_s
    fast = result_of(percentile_and_mean, "Fast failures pull the mean down")
    assert ask.answer(fast) == fast.mean_without_fast_s
    sliced = result_of(percentile_and_mean, "One tenant suffers")
    assert ask.answer(sliced) == sliced.groups[1].p95_s
    for result in (pooled, small, fast, sliced):
        numbers = re.findall(r"\d", ask.question(result))
        assert numbers


def test_a_mixture_by_hand() -> None:
    """Two equal groups, one ten times the other: the median lies where half are below."""
    mixed = Mixture(("a", "b"), (0.5, 0.5), (1.0, 10.0), (0.1, 0.1))
    assert mixed.quantile_s(0.25) == pytest.approx(1.0, rel=1e-6)
    assert mixed.quantile_s(0.75) == pytest.approx(10.0, rel=1e-6)
    assert mixed.mean_s == pytest.approx(5.5 * math.sqrt(1.01))
