"""What one event does to one replica, and what a fleet costs, against sums done here by hand. A
plan that forgets the failure, or a queue that drains too fast, would be learnt as it is drawn."""

from __future__ import annotations

import csv
import math
from typing import Any

import numpy as np
import pytest

from course.explore.ch06.plan_fleet import DAYS, GPUS, PROMISES, plan_fleet
from course.explore.ch06.servers import CHAT
from course.explore.ch06.twenty_is_not_25 import (
    event,
    most_per_s,
    rates_of,
    swept,
    twenty_is_not_25,
)
from course.paths import DATA
from course.serving import catalog
from course.words import percent, rounded, seconds
from tests.ui.pictures import presets_of, xy

# --- 20 is not 25 --------------------------------------------------------------------------------


@presets_of(twenty_is_not_25)
def test_rates_and_queue_are_counted_from_the_run(opened: Any, preset: str) -> None:
    shell = opened(twenty_is_not_25, preset)
    r, picture = shell.result, shell.drawing
    run = event(shell.parameters)
    bars_min, arrived = xy(picture.arrived)
    wide_s = 60 * float(bars_min[1] - bars_min[0])
    for index in (3, bars_min.size // 2, bars_min.size - 3):
        start_s, end_s = 60 * bars_min[index : index + 2]
        here = (run.arrival_s >= start_s) & (run.arrival_s < end_s)
        assert arrived[index] == pytest.approx(here.sum() / wide_s)
        ended = (run.finish_s >= start_s) & (run.finish_s < end_s)
        assert xy(picture.finished)[1][index] == pytest.approx(ended.sum() / wide_s)
        assert xy(picture.p99)[1][index] == pytest.approx(np.quantile(run.ttft_s[here], 0.99))
    minutes, waiting = xy(picture.waiting)
    _, running = xy(picture.running)
    for index in range(7, minutes.size, 61):
        now_s = 60 * minutes[index]
        there = (run.arrival_s <= now_s) & (run.finish_s > now_s)
        seated = there & (run.scheduled_s <= now_s)
        assert running[index] == seated.sum()
        assert waiting[index] == there.sum() - seated.sum()
    assert r.most_waiting >= waiting.max()


@presets_of(twenty_is_not_25)
def test_the_events_figures_are_those_of_its_own_requests(opened: Any, preset: str) -> None:
    shell = opened(twenty_is_not_25, preset)
    r, words = shell.result, shell.sentence
    run = event(shell.parameters)
    begin_s, end_s = 60 * r.edges_min[1:3]
    ttft_s = run.ttft_s[(run.arrival_s >= begin_s) & (run.arrival_s < end_s)]
    assert ttft_s.size == pytest.approx(r.event_per_s * (end_s - begin_s), rel=0.06)
    assert r.event_p99_s == pytest.approx(np.quantile(ttft_s, 0.99))
    kept = float((ttft_s <= r.ttft_limit_s).mean())
    assert f"{percent(round(kept, 3))} of those that came then" in words
    assert f"their P99 was {seconds(r.event_p99_s)}" in words
    (_,), (drawn,) = xy(shell.drawing.worst)
    assert drawn == r.event_p99_s
    assert seconds(r.event_p99_s) in shell.drawing.tail_words.get_text()
    assert f"{r.most_waiting:,}" in words or r.most_waiting <= 5
    assert np.all(xy(shell.drawing.held)[1] == r.held_per_s)
    assert f"it holds {rounded(r.held_per_s)} requests/s" in words


def test_an_hour_at_20_holds_and_an_hour_at_25_does_not(opened: Any) -> None:
    """The lesson in two numbers, and the queue as simple arithmetic has it."""
    held = opened(twenty_is_not_25, "An hour at 20").result
    broken = opened(twenty_is_not_25, "An hour at 25").result
    assert held.kept_share >= 0.99
    assert broken.kept_share < 0.02
    assert broken.event_p99_s > 300 * held.event_p99_s
    left_over = (25 - broken.event_finished_per_s) * 3600
    assert broken.most_waiting == pytest.approx(left_over, rel=0.05)
    drained_s = broken.most_waiting / (most_per_s() - 15)
    assert broken.drained_s == pytest.approx(drained_s, rel=0.12)


def test_a_minute_at_25_was_never_served_at_25(opened: Any) -> None:
    r = opened(twenty_is_not_25, "A minute at 25").result
    assert r.event_finished_per_s < 20
    assert r.kept_share < 0.5
    assert r.drained_s < 60


@pytest.mark.parametrize("preset", ["A minute at 25", "An hour at 25"])
def test_the_last_of_the_event_is_seated_long_before_the_queue_is_gone(
    opened: Any, preset: str
) -> None:
    """First come, first served: whoever still waits after its last request came later than that."""
    shell = opened(twenty_is_not_25, preset)
    r, run = shell.result, event(shell.parameters)
    end_s = 60 * r.edges_min[2]
    seated_s = run.scheduled_s[run.arrival_s < end_s].max() - end_s
    assert r.last_seated_s == pytest.approx(seated_s)
    assert r.last_seated_s < r.drained_s / 3
    now_s = end_s + r.drained_s
    waiting = int((run.arrival_s <= now_s).sum() - (run.scheduled_s <= now_s).sum())
    assert waiting <= 5
    before_s = now_s - 1e-6
    assert (run.arrival_s <= before_s).sum() - (run.scheduled_s <= before_s).sum() > 5
    assert f"got it {rounded(r.last_seated_s, 2)} s after" in shell.sentence or r.minutes > 1


def test_what_the_replica_is_said_to_hold_is_the_sweeps_knee(opened: Any) -> None:
    """20 inside its promise, and less than 25 at most: otherwise the title would be wrong."""
    r = opened(twenty_is_not_25).result
    found = swept()
    kept = np.array([[p.served.ttft_s[p.served.sent] for p in found.points]], dtype=object)
    shares = np.array([(ttft_s <= 1.0).mean() for ttft_s in kept[0]])
    by_load = shares.reshape(len(found.loads), len(found.seeds)).mean(axis=1)
    broken = int((by_load < 0.99).argmax())
    assert found.loads[broken - 1] <= r.held_per_s <= found.loads[broken]
    assert 20 < r.held_per_s < r.most_per_s < 25


def test_a_failing_neighbour_leaves_its_share_and_its_unfinished_work(opened: Any) -> None:
    shell = opened(twenty_is_not_25, "20 with a failing replica")
    _, rates = rates_of(shell.parameters)
    assert rates.tolist() == pytest.approx([20, 20 * 4 / 3, 20])
    run, begin_s = event(shell.parameters), 60 * shell.result.edges_min[1]
    at_once = int((run.arrival_s == begin_s).sum())
    in_a_replica = np.median(shell.result.running[shell.result.at_min < 5][10:])
    assert at_once == pytest.approx(in_a_replica / 3, rel=0.5), "a third of what the fourth had"
    alone = opened(twenty_is_not_25, usual_per_s=20.0, peak_per_s=20.0, minutes=10.0)
    assert not (event(alone.parameters).arrival_s == begin_s).any()
    # what would have survived: three of four with the load of four inside the promise
    safe = 0.75 * 0.97 * shell.result.held_per_s
    spare = opened(
        twenty_is_not_25, "20 with a failing replica", usual_per_s=safe // 0.5 * 0.5,
        peak_per_s=safe // 0.5 * 0.5,
    ).result  # fmt: skip
    assert spare.kept_share > 0.95
    assert shell.result.kept_share < 0.1


def test_another_promise_runs_nothing_again(opened: Any) -> None:
    shell = opened(twenty_is_not_25)
    before = shell.result
    shell.set_state(ttft_limit_s=5.0)
    np.testing.assert_array_equal(shell.result.ttft_p99_s, before.ttft_p99_s)
    assert shell.result.held_per_s > before.held_per_s


# --- the fleet -----------------------------------------------------------------------------------


@presets_of(plan_fleet)
def test_the_plan_is_the_sum_done_by_hand(opened: Any, preset: str) -> None:
    shell = opened(plan_fleet, preset)
    p, r = shell.parameters, shell.result
    peak = p.busiest_per_s * p.growth * p.burst
    needed = math.ceil(peak / r.holds_per_s)
    assert r.ours.replicas == needed + p.failures
    assert r.ours.gpus == r.ours.replicas * p.gpus
    assert r.ours.usd_per_month == pytest.approx(r.ours.gpus * p.usd_per_gpu_hour * 730)
    assert sum(number for _, number in r.reasons) == r.ours.replicas
    today = math.ceil(p.busiest_per_s / r.holds_per_s)
    grown = math.ceil(p.busiest_per_s * p.growth / r.holds_per_s)
    assert [number for _, number in r.reasons] == [
        today, grown - today, needed - grown, p.failures,
    ]  # fmt: skip
    assert (needed - 1) * r.holds_per_s < peak <= needed * r.holds_per_s


@presets_of(plan_fleet)
def test_the_fleet_is_drawn_as_it_is_said(opened: Any, preset: str) -> None:
    shell = opened(plan_fleet, preset)
    p, r, picture, words = shell.parameters, shell.result, shell.drawing, shell.sentence
    replicas = r.ours.replicas
    assert xy(picture.held)[1].tolist() == pytest.approx([replicas * r.holds_per_s] * 2)
    failed = (replicas - p.failures) * r.holds_per_s
    assert xy(picture.held_failed)[1].tolist() == pytest.approx([failed] * 2)
    assert failed >= xy(picture.now)[1][0] == pytest.approx(r.peak_per_s)
    bars = picture.bars.get_path().vertices.reshape(24, 5, 2)
    assert bars[:, 2, 1] == pytest.approx(p.busiest_per_s * np.array(DAYS[p.day]) / 100)
    more = picture.peak.get_path().vertices.reshape(24, 5, 2)
    assert more[:, 2, 1] == pytest.approx(bars[:, 2, 1] * p.growth * p.burst)
    ends = [
        piece.get_path().vertices[:, 0].max()
        for piece, (_, number) in zip(picture.pieces, r.reasons, strict=True)
        if number
    ]
    assert ends[-1] == replicas
    chosen = picture.chosen.get_path().vertices
    assert chosen[:, 1].max() == pytest.approx(r.ours.usd_per_month / 1e3)
    assert f"that takes {replicas:,} replica" in words
    assert f"{rounded(r.ours.usd_per_month)} USD a month" in words
    for choice in r.choices:
        said = choice.why_not or rounded(choice.usd_per_month)
        assert f"{choice.gpus_per_replica}: {said}" in words
    used = r.busiest_per_s / (replicas * r.holds_per_s)
    assert f"busiest hour uses {percent(round(used, 2))}" in words


def test_the_promise_decides_between_tensor_parallel_and_more_replicas(opened: Any) -> None:
    """At an easy pace single cards are cheapest; where every token has to be quick they are not."""
    easy = opened(plan_fleet, "A weekday").result
    quick = opened(plan_fleet, "Tensor parallel or more replicas").result
    easy_usd, quick_usd = ([c.usd_per_month for c in r.choices] for r in (easy, quick))
    assert easy_usd == sorted(easy_usd)
    assert quick_usd[0] > 1.3 * quick_usd[1]
    assert quick.gpus == 2


def test_a_spare_costs_a_small_service_as_much_as_the_service(opened: Any) -> None:
    small = opened(plan_fleet, "N+1").result
    assert dict(small.reasons) == {"demand": 1, "growth": 0, "burst": 0, "failures": 1}
    large = opened(plan_fleet, "N+1", busiest_per_s=120.0).result
    assert dict(large.reasons)["failures"] / large.ours.replicas < 0.1


def test_a_fleet_that_cannot_keep_the_promise_says_so(opened: Any) -> None:
    shell = opened(
        plan_fleet, model="Llama-3.1-70B in fp8", gpus=1, promise=(1.0, 0.015), failures=2
    )
    assert shell.result.ours.replicas is None
    assert "A replica of Llama-3.1-70B in fp8 on one H100 cannot keep the promise" in shell.sentence
    assert plan_fleet.prediction.answer(shell.result) is None


def test_days_prices_and_bursts_have_their_sources() -> None:
    for hours in DAYS.values():
        assert len(hours) == 24
        assert max(hours) == 100
    assert catalog.arrival_statistics(CHAT).peak_to_mean_60s == pytest.approx(1.52, abs=0.005)
    with open(DATA / "prices.csv", encoding="utf-8") as file:
        prices = [
            (float(row["usd_per_gpu_hour"]), row["checked_on"][:7])
            for row in csv.DictReader(file)
            if row["gpu"] == "H100-80GB-SXM" and row["seller"] == "Lambda" and row["offer"] == "8x"
        ]
    assert (3.99, "2026-09") in prices
    assert (1.0, 0.050) in PROMISES.values()
    assert GPUS == (1, 2, 4, 8)
