"""What the pictures of notebook 05 draw and say, counted again here request by request. A picture
of an overload that miscounted would teach that the wrong gate helps."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.explore.ch05 import four_verdicts as verdicts_module
from course.explore.ch05 import overload as overload_module
from course.explore.ch05 import retry_storm as storm_module
from course.explore.ch05.fairness import fairness, jain_index, max_min_shares
from course.explore.ch05.four_verdicts import four_verdicts
from course.explore.ch05.overload import overload
from course.explore.ch05.retry_storm import retry_storm
from course.explore.ch05.timeline import back_after_s
from course.figures.ch05.over_time import OverTime
from course.serving.engine import ServiceRun
from course.serving.requests import Status
from course.serving.scenes import burst as scenes
from course.words import percent, rounded
from tests.ui.pictures import presets_of, result_of, xy

pytestmark = pytest.mark.slow


def good_requests(run: ServiceRun) -> list[bool]:
    """Answered within ten seconds of the first sending, one by one."""
    finished = [status == Status.FINISHED for status in run.statuses]
    end_s, sent_s = run.end_s.tolist(), run.first_sent_s.tolist()
    return [f and e - s <= 10.0 for f, e, s in zip(finished, end_s, sent_s, strict=True)]


def per_second(times_s: list[float], from_s: float, to_s: float) -> float:
    return sum(from_s <= t < to_s for t in times_s) / (to_s - from_s)


def good_times(run: ServiceRun) -> list[float]:
    good = good_requests(run)
    return [t for t, kept in zip(run.first_sent_s.tolist(), good, strict=True) if kept]


# --- retry storm ------------------------------------------------------------------------------


@presets_of(retry_storm)
def test_the_storm_is_drawn_as_it_was(opened: Any, preset: str) -> None:
    shell = opened(retry_storm, preset)
    run = storm_module.run_of(shell.parameters)
    picture = shell.drawing
    for line, times in (
        (picture.attempts, run.attempts.sent_s.tolist()),
        (picture.offered, run.first_sent_s.tolist()),
        (picture.good, good_times(run)),
    ):
        x, y = xy(line)
        assert x.tolist() == [2.5 + 5 * k for k in range(60)]
        for middle, rate in zip(x[::7], y[::7], strict=True):
            assert rate == pytest.approx(per_second(times, middle - 2.5, middle + 2.5))
    shares = shell.result.time.shares
    np.testing.assert_allclose(sum(shares.values()), 1.0, atol=1e-12)
    assert min(share.min() for share in shares.values()) >= 0


@presets_of(retry_storm)
def test_the_storms_sentence_counts_right(opened: Any, preset: str) -> None:
    shell = opened(retry_storm, preset)
    run, words = storm_module.run_of(shell.parameters), shell.sentence
    good = good_times(run)
    before, after = per_second(good, 20, 80), per_second(good, 100, 300)
    assert shell.result.good_per_s == pytest.approx(
        (before, per_second(good, 80, 100), after), abs=1e-12
    )
    assert before == pytest.approx(run.goodput_per_s(scenes.PROMISE, 20, 80))
    attempts = per_second(run.attempts.sent_s.tolist(), 100, 300)
    assert f"Before the burst {before:.2f}".rstrip("0").rstrip(".") + " of 8.5" in words
    assert f"at the same load, {after:.2f}".rstrip("0").rstrip(".") + "." in words
    said = f"{attempts:.2f}".rstrip("0").rstrip(".") if attempts < 10 else rounded(attempts)
    assert f"{said} attempts a second" in words
    assert retry_storm.prediction is not None
    assert retry_storm.prediction.answer(shell.result) == pytest.approx(attempts)
    text = picture_words(shell)
    assert f"before: {rounded(before)} good/s" in text
    assert f"after: {rounded(after)} good/s" in text


def picture_words(shell: Any) -> str:
    return " ".join(re.findall(r">([^<>]+)</text>", shell.svg))


def test_computed_for_nobody_is_what_never_reached_a_client(opened: Any) -> None:
    shell = opened(retry_storm, "Cancelled but not noticed", burst_s=6.0, burst_factor=2.5)
    table = storm_module.run_of(shell.parameters).attempts
    all_tokens = useful = 0
    for k in range(len(table)):
        if not 86.0 <= table.sent_s[k] < 300.0:
            continue
        all_tokens += int(table.computed_tokens[k])
        if table.status[k] == Status.FINISHED:
            useful += int(table.computed_tokens[k] - table.recomputed_tokens[k])
    assert shell.result.wasted_share == pytest.approx(1 - useful / all_tokens)


def test_the_presets_tell_the_lesson_and_not_one_lucky_seed() -> None:
    """Each for several seeds: who stays down, who comes back, who comes back late."""
    names = [preset.name for preset in retry_storm.presets]
    for seed in (1, 2, 3, 4):
        by_name = {n: result_of(retry_storm, n, seed=seed) for n in names}
        for name in names[:2] + names[4:5]:
            assert by_name[name].kept < 0.2, name
            assert by_name[name].back_after_s is None, name
        assert by_name["Retry budget"].back_after_s <= 40
        assert by_name["Refuse what cannot make it"].back_after_s <= 15
        assert by_name["Refuse what cannot make it"].kept > 0.95
        assert 60 <= by_name["Unlimited retries"].back_after_s <= 160
        assert by_name["Unlimited retries"].wasted_share < 0.05


def test_a_service_is_back_when_ten_seconds_are_as_before() -> None:
    edges = np.arange(0.0, 61.0, 5.0)
    offered = np.full(12, 8.0)
    good = np.array([8, 8, 8, 8, 8, 8, 0, 0, 4, 8, 8, 8], float)
    time = OverTime(edges, offered, good, offered, {}, (30.0, 35.0))
    assert back_after_s(time, 0.95) == 10.0  # from 45 s on, the burst ended at 35 s
    never = OverTime(edges, offered, np.minimum(good, [8] * 6 + [7] * 6), offered, {}, (30.0, 35.0))
    assert back_after_s(never, 0.95) is None


def test_attempts_beyond_the_picture_are_named(opened: Any) -> None:
    shell = opened(retry_storm, "Unlimited retries")
    high = shell.result.time.attempts_per_s.max()
    assert high > shell.drawing.rates.get_ylim()[1]
    assert f"at most {rounded(high)}" in picture_words(shell)


# --- overload ---------------------------------------------------------------------------------


def runs_of(p: Any) -> tuple[ServiceRun, ServiceRun]:
    load = (p.rate_per_s, p.burst_factor, p.burst_s, p.noticed, p.seed)
    wait_s = 0.0 if p.gate == overload_module.OPEN else p.max_wait_s
    run_of = overload_module.run_of
    return run_of(p.gate, wait_s, *load), run_of(overload_module.OPEN, 0.0, *load)


@presets_of(overload)
def test_the_overload_is_drawn_and_said_as_it_was(opened: Any, preset: str) -> None:
    shell = opened(overload, preset)
    p, r, picture = shell.parameters, shell.result, shell.drawing
    run, open_run = runs_of(p)
    for lines, each in ((picture.own, run), (picture.open, open_run)):
        if lines is picture.own and p.gate == overload_module.OPEN:
            assert xy(lines[0])[0].size == 0
            continue
        good, sent = good_times(each), each.first_sent_s.tolist()
        x, y = xy(lines[0])
        _, met = xy(lines[1])
        for k in range(0, x.size, 7):
            here = x[k] - 2.5, x[k] + 2.5
            assert y[k] == pytest.approx(per_second(good, *here))
            share = per_second(good, *here) / per_second(sent, *here)
            assert met[k] == pytest.approx(100 * share)
    good = good_times(run)
    ends = (20.0, 80.0, 80 + p.burst_s, 300.0)
    for stretch, from_s, to_s in zip(r.stretches, ends, ends[1:], strict=False):
        assert stretch.good_per_s == pytest.approx(per_second(good, from_s, to_s))
        assert stretch.attainment == pytest.approx(
            run.attainment(scenes.PROMISE, from_s, to_s), abs=1e-12
        )
    during = r.stretches[1]
    said = f"{rounded(during.good_per_s)} a second ({percent(round(during.attainment, 2))})"
    assert said in shell.sentence
    assert f"{percent(round(during.refused, 2))} are refused" in shell.sentence or (
        during.refused < 0.005
    )


@presets_of(overload)
def test_every_request_of_the_burst_has_one_fate(opened: Any, preset: str) -> None:
    shell = opened(overload, preset)
    run, _ = runs_of(shell.parameters)
    burst = (run.first_sent_s >= 80) & (run.first_sent_s < 80 + shell.parameters.burst_s)
    during = shell.result.stretches[1]
    answered = (run.finished & burst).sum() / burst.sum()
    assert during.refused + during.gave_up + answered == pytest.approx(1)
    # with no retry an answer that comes at all comes within the patience
    assert during.attainment == pytest.approx(answered)


def test_the_curve_against_the_load_is_that_of_steady_runs(opened: Any) -> None:
    shell = opened(overload, "Deadline-aware")
    curve = shell.result.curve
    x, y = xy(shell.drawing.own[2])
    assert x.tolist() == curve.offered_per_s.tolist()
    np.testing.assert_allclose(y, curve.good_per_s)
    np.testing.assert_allclose(xy(shell.drawing.own[3])[1], 100 * y / x)
    capacity = scenes.capacity_per_s()
    assert (np.abs(y[x > 1.2 * capacity] / capacity - 1) < 0.08).all(), "it holds its capacity"
    assert (y[x < 0.9 * capacity] > 0.97 * x[x < 0.9 * capacity]).all()
    opened_curve = shell.result.open_curve.good_per_s
    assert opened_curve[-1] < 0.05 * capacity, "and the open door does not"


def test_each_gate_helps_in_the_burst_for_any_luck() -> None:
    for seed in (1, 2, 3):
        goods = {}
        for gate in ("accept everything", "bounded queue", "deadline-aware", "shorter answers"):
            r = result_of(overload, gate.capitalize(), seed=seed)
            goods[gate] = r.stretches[1].good_per_s
        assert goods["bounded queue"] > 2 * goods["accept everything"]
        assert goods["deadline-aware"] > 2 * goods["accept everything"]
        assert goods["shorter answers"] > 1.15 * goods["deadline-aware"]


def test_a_gate_costs_nothing_on_a_quiet_day(opened: Any) -> None:
    shell = opened(overload, "A quiet day")
    run, open_run = runs_of(shell.parameters)
    np.testing.assert_array_equal(run.end_s, open_run.end_s)
    assert (run.status[run.first_sent_s < 300] == Status.FINISHED).all()
    assert shell.sentence.startswith("No burst")


def test_a_limit_that_is_too_long_is_no_gate() -> None:
    """The question of the third preset: behind eight seconds of waiting two are left."""
    goods = [
        result_of(overload, "Deadline-aware", max_wait_s=wait).stretches[1].good_per_s
        for wait in (2.0, 8.0)
    ]
    assert goods[1] < 0.8 * goods[0]


def test_the_bounded_queue_holds_so_many_seconds_of_work(opened: Any) -> None:
    shell = opened(overload, "Bounded queue", max_wait_s=3.0)
    limit = round(3.0 * scenes.capacity_per_s())
    assert f"room for {limit} in the queue" in shell.sentence
    run, _ = runs_of(shell.parameters)
    assert run.step_waiting.max() <= limit


# --- four verdicts ----------------------------------------------------------------------------


@presets_of(four_verdicts)
def test_bars_show_each_tenants_verdicts_and_answers(opened: Any, preset: str) -> None:
    shell = opened(four_verdicts, preset)
    run = verdicts_module.run_of(shell.parameters)
    good = good_requests(run)
    names = ["accept", "queue", "degrade", "reject"]
    assert run.work.label is not None
    for row, tenant in enumerate(shell.result.tenants):
        mine = [
            k
            for k in range(len(run))
            if run.work.label[k] == tenant.name and 20 <= run.first_sent_s[k] < 140
        ]
        for number, name in enumerate(names):
            share = sum(run.attempts.verdict[run.last_attempt[k]] == number for k in mine)
            assert tenant.verdicts[name] == pytest.approx(share / len(mine))
        assert tenant.in_time == pytest.approx(sum(good[k] for k in mine) / len(mine))
        assert f"{tenant.name} {percent(round(tenant.in_time, 2))}" in shell.sentence
        vertices = shell.drawing.in_time.get_path().vertices
        inside = vertices[(vertices[:, 1] > row) & (vertices[:, 1] < row + 1)]
        assert inside[:, 0].max() == pytest.approx(100 * tenant.in_time)


@presets_of(four_verdicts)
def test_the_price_of_a_good_answer_is_the_cards_price(opened: Any, preset: str) -> None:
    shell = opened(four_verdicts, preset)
    run = verdicts_module.run_of(shell.parameters)
    number = sum(20 <= t < 140 for t in good_times(run))
    score = shell.result.score
    assert score.good_per_s == pytest.approx(number / 120)
    assert score.cost_usd == pytest.approx(1000 * 0.74 / 3600 * 120 / number)
    assert f"{rounded(score.cost_usd, 2)} per 1,000" in shell.sentence
    beyond = " →" if score.cost_usd > 0.1 else ""  # where the panel ends
    words = picture_words(shell).replace("\u00a0", " ")
    assert f"{rounded(score.cost_usd, 2)}{beyond}  (no gate" in words


def test_what_the_stories_say_holds_for_other_seeds() -> None:
    results = {
        preset.name: [result_of(four_verdicts, preset.name, seed=s) for s in range(1, 9)]
        for preset in four_verdicts.presets
    }

    def mean(name: str, value: Any) -> float:
        return float(np.mean([value(r) for r in results[name]]))

    mark = "Watermark 0.9"
    fewer = mean(mark, lambda r: r.score.preemptions / r.open_score.preemptions)
    assert fewer < 0.85, "fewer preemptions"
    more = mean(mark, lambda r: r.score.good_per_s / r.open_score.good_per_s)
    assert 0.95 < more < 1.1, "and hardly more answers"
    refused = mean("Deadline", lambda r: _rejected(r))
    assert 1 / 17 < refused < 1 / 11, "one in fourteen"
    for name in ("Deadline", "Urgent first"):
        assert mean(name, lambda r: r.score.good_per_s / r.open_score.good_per_s) > 1.3
        assert mean(name, lambda r: r.tenants[0].in_time - r.open_tenants[0].in_time) > 0.15
    chat = {n: mean(n, lambda r: r.tenants[0].in_time) for n in results}
    assert chat["Urgent first"] > chat["Deadline"] + 0.05
    assert mean("Urgent first", lambda r: r.tenants[0].verdicts["reject"]) == 0
    assert chat["One greedy tenant"] < 0.3
    assert chat["Token buckets"] > 0.9
    assert 0.4 < mean("Token buckets", lambda r: r.tenants[2].in_time) < 0.65, "a half"
    even = {n: mean(n, lambda r: r.score.fairness) for n in results}
    assert even["Token buckets"] > 0.97
    assert even["Token buckets"] > even["One greedy tenant"]


def _rejected(r: Any) -> float:
    offered = sum(t.offered_per_s for t in r.tenants)
    return float(sum(t.offered_per_s * t.verdicts["reject"] for t in r.tenants) / offered)


def test_a_bucket_lets_through_what_flows_into_it(opened: Any) -> None:
    """2,000 tokens a second and five seconds' worth at the start, by tokens asked for."""
    shell = opened(four_verdicts, "Token buckets")
    run = verdicts_module.run_of(shell.parameters)
    assert run.work.label is not None
    accepted = (run.work.label == "reports") & (run.status != Status.REJECTED)
    tokens = (run.work.prompt_tokens + run.work.output_tokens)[accepted]
    sent_s = run.first_sent_s[accepted]
    assert tokens.sum() <= 2000 * (sent_s[-1] + 5)
    assert tokens.sum() > 0.97 * 2000 * sent_s[-1], "and it is used"


def test_a_greedy_tenant_moves_nobody_elses_requests() -> None:
    """Otherwise another load would be compared, not another neighbour."""
    modest, greedy = (verdicts_module.work_of(1.0, factor, 1) for factor in (1.0, 4.0))
    for work in (modest, greedy):
        assert work.label is not None
    for name in ("support chat", "shop search"):
        one, other = modest.label == name, greedy.label == name
        np.testing.assert_array_equal(modest.arrival_s[one], greedy.arrival_s[other])
        np.testing.assert_array_equal(modest.prompt_tokens[one], greedy.prompt_tokens[other])


def test_with_every_dial_off_there_is_no_gate(opened: Any) -> None:
    shell = opened(four_verdicts, watermark_percent=0)
    assert "no gate" in shell.sentence
    assert shell.result.score == shell.result.open_score


# --- fairness ---------------------------------------------------------------------------------


@given(
    demands=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=6),
    total=st.floats(0.0, 400.0),
)
def test_max_min_shares_cannot_be_made_fairer(demands: list[float], total: float) -> None:
    """Nobody gets more than asked for, all is handed out, and whoever goes short has as much as
    anybody: these three conditions have one solution."""
    shares = max_min_shares(demands, total)
    assert (shares <= np.array(demands) + 1e-9).all()
    assert shares.sum() == pytest.approx(min(total, sum(demands)), abs=1e-6)
    short = shares < np.array(demands) - 1e-6
    if short.any():
        assert (shares[short] >= shares.max() - 1e-6).all()


def test_fairness_by_hand() -> None:
    assert jain_index([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert jain_index([1.0, 0.0, 0.0, 0.0]) == pytest.approx(1 / 4)
    assert math.isclose(fairness([0.0, 0.0], [1.0, 2.0]), 1.0)
    # ten are shared out; due are 2, 4, 4; got over due are 1, 0.5, 1.5
    assert fairness([2.0, 2.0, 6.0], [2.0, 9.0, 9.0]) == pytest.approx(9 / (3 * 3.5))
