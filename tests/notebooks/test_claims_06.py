"""The figures in notebook 06's prose: each stands in the text and is what the engine computes."""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from course.cli import app
from course.exercises.ch06.results import EXAMPLE_RATES_PER_S, write_example
from course.exercises.ch06.e8_two_dials_one_promise import BEST, held_per_s
from course.explore.ch06.ramp import BASE, _scenario
from course.explore.ch06.twenty_is_not_25 import held_per_s as swept_hold
from course.explore.ch06.twenty_is_not_25 import most_per_s
from course.paths import DATA
from course.serving.pricing.linear import RooflineStepCost, StepFeatures
from course.serving.load import sweep
from course.serving.load.point import measure, steady_window
from course.serving.requests import SLO
from course.serving.validation.knees import knees_frame, predicted_knees
from tests.notebooks.claims import prose_of

pytestmark = pytest.mark.slow

SAMPLE = DATA / "example_sweep"


@pytest.fixture(scope="module")
def prose() -> str:
    """All text cells as one line."""
    return prose_of(6)


def explorer(name: str) -> Any:
    """One of the lesson's explorers."""
    return getattr(importlib.import_module(f"course.explore.ch06.{name}"), name)


def shown(name: str, preset: str, **changed: Any) -> Any:
    """What an explorer computes at a preset, with other values."""
    found = explorer(name)
    return found.result(replace(found.state(preset), **changed))


def test_the_curves_of_the_chat(prose: str) -> None:
    """Section 1 reads six panels aloud; wrong figures would teach a wrong cliff."""
    chat = shown("ramp", "Chat on an H100")
    at = {round(float(load), 1): i for i, load in enumerate(chat.curve.load_per_s)}
    assert "holds up to **19.6 requests/s**" in prose
    assert "3,680 tokens/s, 83 % of the peak" in prose
    assert round(chat.held_per_s, 1) == 19.6
    assert round(chat.held_tokens_per_s, -1) == 3680
    assert "stay near 3,700 from 19.5 to 22.4 requests/s, and end at 4,450" in prose
    level = chat.curve.output_tokens_per_s[at[19.5] : at[22.4] + 1]
    np.testing.assert_allclose(level, 3700, atol=30)
    assert chat.curve.output_tokens_per_s.argmax() == chat.curve.load_per_s.size - 1
    assert round(chat.most_tokens_per_s, -1) == 4450
    assert round(chat.held_tokens_per_s / chat.most_tokens_per_s, 2) == 0.83
    assert "Beyond it the throughput still climbs, and hardly anybody" in prose
    assert chat.most_tokens_per_s > 1.1 * chat.held_tokens_per_s
    assert "10 ms at 2 requests/s, 33 ms at 16.6, 47 ms at 19.5" in prose
    tpot_ms = [round(1e3 * float(chat.curve.tpot_p99_s[at[load]])) for load in (16.6, 19.5)]
    assert tpot_ms == [33, 47]
    quiet = shown("ramp", "Chat on an H100", load_per_s=2.0).here
    assert round(1e3 * float(quiet.tpot_p99_s[0])) == 10
    assert "to 0.4 s at 19.5 requests/s, not half of what is promised" in prose
    assert "and then leaps: 1.3 s at 22.4 and 7 s at 25.9" in prose
    ttft_s = [float(chat.curve.ttft_p99_s[at[load]]) for load in (19.5, 22.4, 25.9)]
    assert [round(ttft_s[0], 1), round(ttft_s[1], 1), round(ttft_s[2])] == [0.4, 1.3, 7]
    assert "99.4 % at 19.5 requests/s, 95 % at 20.3, 35 % at 22.4" in prose
    kept = [float(chat.curve.attainment[at[load]]) for load in (19.5, 20.3, 22.4)]
    assert [round(kept[0], 3), round(kept[1], 2), round(kept[2], 2)] == [0.994, 0.95, 0.35]
    assert "falls while the throughput still climbs" in prose
    good = chat.curve.good_per_s
    assert good[at[22.4]] < good[at[19.5]] / 2
    assert chat.curve.output_tokens_per_s[-1] > chat.curve.output_tokens_per_s[at[19.5]]
    assert "The KV cache is never full here" in prose
    assert chat.curve.kv_share.max() < 0.9


def test_two_things_beyond_the_knee_that_look_like_mistakes(prose: str) -> None:
    """A second climb and a falling tail: the reasons given are looked up in the steps."""
    curve = shown("ramp", "Chat on an H100").curve
    at = {round(float(load), 1): i for i, load in enumerate(curve.load_per_s)}
    tokens, tpot_s = curve.output_tokens_per_s, curve.tpot_p99_s
    assert "from 3,730 at 22.4 requests/s to 4,260 at 25.9" in prose
    assert [round(tokens[at[load]], -1) for load in (22.4, 25.9)] == [3730, 4260]
    assert "from 77 ms at 22.4 to 64 ms at 25.9" in prose
    assert [round(1e3 * tpot_s[at[load]]) for load in (22.4, 25.9)] == [77, 64]
    scenario = _scenario(BASE)
    assert "1,200 requests, less than a minute" in prose
    assert scenario.requests == 1200
    busy, scatter = [], []
    for load in (curve.load_per_s[at[22.4]], curve.load_per_s[at[25.9]]):
        run = scenario.run(load, 0)
        assert run.arrival_s[-1] < 60
        now_s = np.linspace(0, run.arrival_s[-1], 400)
        inside = [((run.scheduled_s <= t) & (run.finish_s > t)).sum() for t in now_s]
        busy.append(np.asarray(inside) >= 250)
        window, _ = steady_window(run)
        edges_s = np.arange(window.start_s, window.end_s)
        done = np.concatenate([[0], np.cumsum(run.step_prefill_tokens)])
        scatter.append(float(np.diff(done[np.searchsorted(run.step_end_s, edges_s)]).std()))
    assert "the 256 seats are full only at its end. At 25.9 they are full for most of it" in prose
    assert busy[0][:300].mean() < 0.1
    assert busy[0][-50:].mean() > 0.9
    assert busy[1].mean() > 0.5
    assert "their tokens a second scatter little more than half as much" in prose
    assert 0.5 < scatter[1] / scatter[0] < 0.6
    assert "In runs ten times as long both make about 4,540" in prose
    longer = replace(scenario, requests=12_000)
    for load in (22.4, 25.9):
        points = [measure(longer.run(load, seed), load, seed) for seed in range(5)]
        assert np.mean([p.output_tokens_per_s for p in points]) == pytest.approx(4540, abs=15)


def test_what_runs_ten_times_as_long_say(prose: str) -> None:
    """The picture's minute flatters the knee; whoever plans must know by how much."""
    loads = shown("ramp", "Chat on an H100").curve.load_per_s
    longer = replace(_scenario(BASE), requests=12_000)
    slo = SLO(ttft_s=1.0, tpot_s=0.05, quantile=0.99)
    swept = sweep(longer, [float(load) for load in loads], range(5), progress=False)
    knee = swept.knee("slo", slo)
    assert "say **18.4 requests/s** (95 % interval 17.3 to 19.4)" in prose
    assert [round(knee.load, 1), round(knee.low, 1), round(knee.high, 1)] == [18.4, 17.3, 19.4]
    assert "at 3,900 tokens/s, 86 % of a peak of 4,540" in prose
    most = float(swept.column("output_tokens_per_s").mean(axis=0).max())
    assert knee.throughput == pytest.approx(3900, abs=30)
    assert most == pytest.approx(4540, abs=15)
    assert knee.throughput / most == pytest.approx(0.86, abs=0.01)
    assert "beyond the knee only a sixth is to be had" in prose
    assert most / knee.throughput - 1 == pytest.approx(1 / 6, abs=0.015)
    at = int(np.argmin(np.abs(loads - 20.3)))
    assert "At 20.3 requests/s 83 % of the requests keep the promise in the long runs, 95 % in" in prose
    assert swept.attainment(slo)[:, at].mean() == pytest.approx(0.83, abs=0.01)


def test_what_moves_the_knee(prose: str) -> None:
    """The table of section 1: every preset's knee, peak and the limit that breaks first."""
    chat = shown("ramp", "Chat on an H100")
    for preset, held, most in (
        ("Chat on an H100", "19.6 requests/s", "4,450"),
        ("Long documents", "2.8 requests/s", "1,120"),
        ("Short-prompt peak", "83.0 requests/s", "19,200"),
        ("Less memory for KV", "8.4 requests/s", "2,470"),
        ("Another schedule", "18.0 requests/s", "4,250"),
    ):
        assert f"| {held} | {most} |" in prose
        found = shown("ramp", preset)
        assert f"{found.held_per_s:.1f} requests/s" == held
        digits = -2 if found.most_tokens_per_s > 10_000 else -1
        assert f"{round(found.most_tokens_per_s, digits):,.0f}" == most
        broken = int((found.curve.attainment < 0.99).argmax())
        late = (found.curve.ttft_p99_s[broken] > 1.0, found.curve.tpot_p99_s[broken] > 0.05)
        first = {"Short-prompt peak": (True, False), "Less memory for KV": (True, False)}
        assert late == first.get(preset, (False, True))
    documents = shown("ramp", "Long documents")
    assert "4.6 times as long" in prose
    longer = (6000 + 281) / (1155 + 211)
    assert longer == pytest.approx(4.6, abs=0.05)
    assert "is a *seventh*" in prose
    assert chat.held_per_s / documents.held_per_s == pytest.approx(7, abs=0.2)
    assert "a fifth of the cards" in prose
    brochure = shown("ramp", "Short-prompt peak")
    assert brochure.most_tokens_per_s / chat.held_tokens_per_s == pytest.approx(5.2, abs=0.1)
    assert "anything from a seventh of that to four times as much" in prose
    assert 19.6 / 2.8 == pytest.approx(7, abs=0.05)
    assert 83.0 / 19.6 == pytest.approx(4, abs=0.3)
    assert shown("ramp", "Less memory for KV").curve.preemptions.max() > 100
    assert "310 ms against 331 ms at 16 requests/s" in prose
    assert "37.8 ms against 31.4 ms a token" in prose
    here = [shown("ramp", p, load_per_s=16.0).here for p in ("Another schedule", "Chat on an H100")]
    assert [round(1e3 * float(h.ttft_p99_s[0])) for h in here] == [310, 331]
    assert [round(1e3 * float(h.tpot_p99_s[0]), 1) for h in here] == [37.8, 31.4]
    assert "moves down by 8 %" in prose
    moved = shown("ramp", "Another schedule").held_per_s / chat.held_per_s
    assert round(1 - moved, 2) == 0.08


def test_five_honest_answers(prose: str) -> None:
    """One chat, five loads: what is promised, how it was run, how sure one wants to be."""
    assert "five honest answers, and the largest is half as large again as the smallest" in prose
    assert 20.6 / 13.6 == pytest.approx(1.5, abs=0.02)
    fleet = shown("plan_fleet", "A weekday")
    assert (fleet.promise, fleet.quantile) == ((1.0, 0.05), 0.99)
    chat = shown("which_knee", "Simulated chat")
    assert [limit.limit_s for limit in chat.limits] == [1.0, 0.03]
    found = (
        swept_hold(1.0),
        shown("ramp", "Chat on an H100").held_per_s,
        fleet.holds_per_s,
        chat.slo.load,
        shown("which_knee", "Simulated chat", runs=1).slo.load,
    )
    assert [f"{load:.1f}" for load in found] == ["20.6", "19.6", "18.1", "14.9", "13.6"]
    for load in found:
        assert f"| {load:.1f} |" in prose
    assert "the P99 TPOT alone would allow 15.1" in prose
    tpot_s = chat.limits[1].values_s.mean(axis=0)
    assert np.interp(0.03, tpot_s, chat.loads) == pytest.approx(15.1, abs=0.05)


def test_three_knees_of_the_chat(prose: str) -> None:
    """Three definitions, three loads, and what the users get at the second."""
    chat = shown("which_knee", "Simulated chat")
    assert "Here 19.2 requests/s." in prose
    assert "Here 20.7." in prose
    assert "Here **14.9**" in prose
    loads = [chat.plateau.load, chat.two_segments.load, chat.slo.load]
    assert [round(load, 1) for load in loads] == [19.2, 20.7, 14.9]
    assert "a P99 TPOT of 50.4 ms where 30 were promised, for 27 % more tokens/s" in prose
    (tpot,) = [limit for limit in chat.limits if "TPOT" in limit.name]
    assert round(1e3 * chat.latency_at(tpot, chat.plateau.load), 1) == 50.4
    assert round(chat.plateau.throughput / chat.slo.throughput, 2) == 1.27
    assert "13.5 to 16.4 for the SLO knee" in prose
    assert [round(edge, 1) for edge in chat.slo.band] == [13.5, 16.4]
    once = shown("which_knee", "Simulated chat", runs=1)
    assert "becomes 13.6, without an interval" in prose
    assert round(once.slo.load, 1) == 13.6
    assert once.slo.band is None


def test_measured_sweeps(prose: str) -> None:
    """Figures of real GPUs, from the catalogue."""
    h100 = shown("which_knee", "Measured: H100, Qwen3-8B")
    assert "| P99 TTFT 2 s, median ITL 50 ms | 40.1 users | 70.6 users: P99 TTFT 5.7 s |" in prose
    assert [(limit.name, limit.limit_s) for limit in h100.limits] == [
        ("P99 TTFT", 2.0),
        ("median ITL", 0.05),
    ]
    assert (round(h100.slo.load, 1), round(h100.plateau.load, 1)) == (40.1, 70.6)
    assert round(h100.latency_at(h100.limits[0], h100.plateau.load), 1) == 5.7
    two = shown("which_knee", "Measured: Llama-3.3-70B on two GPUs")
    told = dict(zip(two.loads.astype(int).tolist(), two.throughput[0].round(), strict=True))
    assert "100 users get 777 tokens/s between them, and 200 users get 777, too" in prose
    assert (told[100], told[200]) == (777, 777)
    assert "| 34.1 users | 44.4 users: mean ITL 59 ms |" in prose
    assert [limit.name for limit in two.limits] == ["mean TTFT", "mean ITL"]
    assert (round(two.plateau.load, 1), round(two.slo.load, 1)) == (44.4, 34.1)
    assert round(1e3 * two.latency_at(two.limits[1], two.plateau.load)) == 59
    assert "from 18 to 73 s" in prose
    assert [round(float(two.limits[0].values_s[0][i])) for i in (4, 6)] == [18, 73]
    rising = shown("which_knee", "Never flattens")
    assert "| 221 users | no knee: still climbing at the last point, 250 users |" in prose
    assert (rising.loads[-1], round(rising.slo.load)) == (250, 221)
    assert rising.throughput[0].argmax() == rising.loads.size - 1
    assert rising.plateau.load is None
    assert rising.two_segments.load is None
    low = shown("which_knee", "Saturated at the first point")
    assert "the simulated chat again, its nine lowest loads left out" in prose
    assert low.first == 9
    assert {a.load for a in (low.slo, low.plateau, low.two_segments)} == {None}


def test_predicted_knees(prose: str) -> None:
    """The lesson says how far a computed knee may be believed."""
    ratios = knees_frame(predicted_knees())["ratio"]
    assert "Three of the seven come out within 7 %, the longest prompts 10 % too high" in prose
    assert sorted((ratios - 1).abs() < 0.07) == [False] * 4 + [True] * 3
    (long_prompts,) = (ratio for name, ratio in ratios.items() if "8192 tokens in" in name)
    assert round(long_prompts, 2) == 1.10
    assert "off by 19, 25 and 30 %, and they are just the three with answers of only 128" in prose
    off = (ratios - 1).abs().sort_values()[4:]
    assert [round(100 * x) for x in off] == [19, 25, 30]
    assert all(" 128 out" in name for name in off.index)
    assert sum(" 128 out" in name for name in ratios.index) == 3


def test_the_provided_sweep(prose: str, tmp_path: Any) -> None:
    """The files that the reader is offered, and what the command says of them."""
    files = sorted(SAMPLE.glob("*.json"))
    assert "eight in `data/example_sweep`" in prose
    assert len(files) == len(EXAMPLE_RATES_PER_S) == 8
    out = tmp_path / "knees.json"
    asked = [*map(str, files), "--slo-ttft", "1", "--slo-stat", "P99", "--json", str(out)]
    assert CliRunner().invoke(app, ["knee", *asked]).exit_code == 0
    text = out.read_text(encoding="utf-8")
    (told,) = json.loads(text)["sweeps"]
    found = {knee["method"]: round(knee["load"], 1) for knee in told["knees"]}
    assert "Two straight pieces meet at 14.5 and the SLO's limit is passed at 14.8" in prose
    assert "no run were more than 14.0 requests/s *completed*" in prose
    assert found == {"plateau": 12.9, "two_segments": 14.0, "slo": 14.0}
    assert round(max(rate for row in told["requests_per_s"] for rate in row), 1) == 14.0
    sentences = {knee["method"]: knee["sentence"] for knee in told["knees"]}
    assert "where they meet at 14.5 requests/s" in sentences["two_segments"]
    assert "holds up to 14.8 requests/s" in sentences["slo"]


def test_the_provided_sweep_is_the_engines(tmp_path: Any) -> None:
    """Whoever wonders where the files come from can make them again."""
    write_example(tmp_path)
    for path in sorted(tmp_path.glob("*.json")):
        made = json.loads(path.read_text(encoding="utf-8"))
        kept = json.loads((SAMPLE / path.name).read_text(encoding="utf-8"))
        assert made.keys() == kept.keys()
        assert made["input_lens"] == kept["input_lens"]
        np.testing.assert_allclose(made["ttfts"], kept["ttfts"], atol=2e-6)
        assert made["duration"] == pytest.approx(kept["duration"], abs=2e-6)


def test_a_minute_and_an_hour(prose: str) -> None:
    """20 is not 25: what a minute can borrow and an hour cannot."""
    minute = shown("twenty_is_not_25", "A minute at 25")
    assert "It is nearly ten, and only three in ten" in prose
    assert 9.5 < minute.event_p99_s < 10
    assert "70 % of its requests outside the promise" in prose
    assert round(1 - minute.kept_share, 1) == 0.7
    assert "finishes about 21.7 requests a second" in prose
    assert round(most_per_s(), 1) == 21.7
    assert "18.8 a second" in prose
    assert round(minute.event_finished_per_s, 1) == 18.8
    assert "213 waited at the worst" in prose
    assert minute.most_waiting == 213
    assert "seat 9.8 s after the minute was over, and the queue was gone after 36 s" in prose
    assert round(minute.last_seated_s, 1) == 9.8
    assert round(minute.drained_s) == 36
    hour = shown("twenty_is_not_25", "An hour at 25")
    assert "25 − 21.7 = 3.3 a second, 1,980 in ten minutes and 11,880 in the hour" in prose
    assert [round((25 - 21.7) * 60 * minutes) for minutes in (10, 60)] == [1980, 11_880]
    assert "2,200 and 12,400, for in this hour it finishes only 21.4 a second" in prose
    assert round(hour.event_finished_per_s, 1) == 21.4
    waiting = [int(hour.waiting[np.searchsorted(hour.at_min, 6 + m)]) for m in (10, 59.9)]
    assert [round(w, -2) for w in waiting] == [2200, 12400]
    assert "The P99 is 576 s, and 0.6 % of the hour's requests were on time" in prose
    assert (round(hour.event_p99_s), round(hour.kept_share, 3)) == (576, 0.006)
    assert "another 32 minutes" in prose
    assert round(hour.drained_s / 60) == 32
    twenty = shown("twenty_is_not_25", "An hour at 20")
    assert "99.3 % on time, P99 0.86 s" in prose
    assert (round(twenty.kept_share, 3), round(twenty.event_p99_s, 2)) == (0.993, 0.86)
    assert "more than six hundred" in prose
    assert hour.event_p99_s / twenty.event_p99_s > 600
    assert "20.6 requests/s inside one second" in prose
    assert round(swept_hold(1.0), 1) == 20.6
    assert "are 15.2 on average" in prose
    mean_per_s = (25 * 1 + 15 * 59) / 60
    assert mean_per_s == pytest.approx(15.2, abs=0.05)


def test_a_neighbour_fails(prose: str) -> None:
    """Headroom for a failure, by arithmetic and in the engine."""
    failing = shown("twenty_is_not_25", "20 with a failing replica")
    assert "1 % are on time" in prose
    assert round(failing.kept_share, 2) == 0.01
    assert "1,766 still wait" in prose
    assert failing.waiting[-1] == 1766
    assert failing.at_min[-1] - failing.edges_min[2] == pytest.approx(15)
    assert "3/4 of 20.6, that is 15.4 requests/s" in prose
    assert 0.75 * swept_hold(1.0) == pytest.approx(15.4, abs=0.05)
    assert "(99.97 % on time). At 15.5, 97.5 %" in prose
    kept = [
        shown(
            "twenty_is_not_25", "20 with a failing replica", usual_per_s=rate, peak_per_s=rate
        ).kept_share
        for rate in (15.0, 15.5)
    ]
    assert [round(kept[0], 4), round(kept[1], 3)] == [0.9997, 0.975]


def test_fleets(prose: str) -> None:
    """A reason for each replica, and what the promise does to the layout."""
    weekday = shown("plan_fleet", "A weekday")
    assert dict(weekday.reasons) == {"demand": 7, "growth": 2, "burst": 4, "failures": 1}
    assert "120 requests/s at 18.1 each are 7 replicas" in prose
    assert round(weekday.holds_per_s, 1) == 18.1
    assert "40,800 USD a month" in prose
    assert round(weekday.ours.usd_per_month, -2) == 40_800
    assert "uses 47 % of what they hold, today's whole day 22 %" in prose
    held = 14 * weekday.holds_per_s
    assert round(120 / held, 2) == 0.47
    assert round(float(weekday.demand_per_s.mean()) / held, 2) == 0.22
    assert shown("plan_fleet", "N+1").ours.replicas == 2
    large = shown("plan_fleet", "N+1", busiest_per_s=120.0)
    assert "it is one of eleven" in prose
    assert large.ours.replicas == 11
    friday = shown("plan_fleet", "Black Friday")
    assert "52 replicas, and 30 of them only for the burst" in prose
    assert (friday.ours.replicas, dict(friday.reasons)["burst"]) == (52, 30)
    tight = shown("plan_fleet", "Tensor parallel or more replicas")
    assert "now holds 5.7 requests/s, and two that share the model hold 19.3" in prose
    holds = [choice.holds_per_s for choice in tight.choices]
    assert [round(h, 1) for h in holds[:2]] == [5.7, 19.3]
    assert "122,000 USD a month, two or four a replica 81,600, and eight 117,000" in prose
    usd = [round(choice.usd_per_month, -2) for choice in tight.choices]
    assert usd == [122_300, 81_600, 81_600, 116_500]
    assert "40,800 with one card a replica, 46,600 with two" in prose
    assert [round(c.usd_per_month, -2) for c in weekday.choices[:2]] == [40_800, 46_600]


def test_the_two_dials(prose: str) -> None:
    """What exercise 6.8 and its hints say of budgets and of the server as it is."""
    cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")

    def full_step_s(budget: int) -> float:
        prompts = budget - 80
        return cost.step_seconds(StepFeatures(prompts, 600 * prompts, 80, 80 * 1250))

    assert full_step_s(8192) > 0.1
    assert full_step_s(768) < 0.030
    assert full_step_s(1536) > 0.030
    assert "this server holds about 15 requests/s" in prose
    days = range(40, 46)
    usual = [held_per_s(256, 8192, day) for day in days]
    best = [held_per_s(*BEST, day) for day in days]
    assert np.mean(usual) == pytest.approx(15, abs=0.7)
    assert np.mean(best) / np.mean(usual) == pytest.approx(1.2, abs=0.05)
