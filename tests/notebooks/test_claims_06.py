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
from course.exercises.ch06_results import EXAMPLE_RATES_PER_S, write_example
from course.exercises.ch06_setting import BEST, held_per_s
from course.explore.ch06.twenty_is_not_25 import held_per_s as swept_hold
from course.explore.ch06.twenty_is_not_25 import most_per_s
from course.paths import DATA
from course.serving.cost import RooflineStepCost, StepFeatures
from tests.notebooks.claims import prose_of

SAMPLE = DATA / "example_sweep"


@pytest.fixture(scope="module")
def prose() -> str:
    """All text cells as one line."""
    return prose_of(6)


def explorer(name: str) -> Any:
    """One of the lesson's explorers."""
    return getattr(importlib.import_module(f"course.explore.ch06.{name}"), name.upper())


def shown(name: str, preset: str, **changed: Any) -> Any:
    """What an explorer computes at a preset, with other values."""
    found = explorer(name)
    return found.result(replace(found.state(preset), **changed))


def test_the_curves_of_the_chat(prose: str) -> None:
    """Section 1 reads six panels aloud; wrong figures would teach a wrong cliff."""
    chat = shown("ramp", "Chat on an H100")
    at = {round(float(load), 1): i for i, load in enumerate(chat.curve.load_per_s)}
    assert "holds up to **19.5 requests/s**: 3,680 tokens/s, 83 % of the peak" in prose
    assert round(chat.held_per_s, 1) == 19.5
    assert round(chat.held_tokens_per_s, -1) == 3680
    assert "flatten: 4,450 at the most" in prose
    assert round(chat.most_tokens_per_s, -1) == 4450
    assert round(chat.held_tokens_per_s / chat.most_tokens_per_s, 2) == 0.83
    assert "still climbs by a fifth" in prose
    assert chat.most_tokens_per_s / chat.held_tokens_per_s == pytest.approx(1.2, abs=0.02)
    assert "10 ms at 2 requests/s, 30 ms at 15.6, 47 ms at 19.5" in prose
    tpot_ms = [round(1e3 * float(chat.curve.tpot_p99_s[at[load]])) for load in (15.6, 19.5)]
    assert tpot_ms == [30, 47]
    quiet = shown("ramp", "Chat on an H100", load_per_s=2.0).here
    assert round(1e3 * float(quiet.tpot_p99_s[0])) == 10
    assert "to 0.4 s at 19.5 requests/s, not half of what is promised" in prose
    assert "and then leaps: 2 s at 22.8 and 7 s at 25.9" in prose
    ttft_s = [float(chat.curve.ttft_p99_s[at[load]]) for load in (19.5, 22.8, 25.9)]
    assert [round(ttft_s[0], 1), round(ttft_s[1]), round(ttft_s[2])] == [0.4, 2, 7]
    assert "99.4 % at 19.5 requests/s, 83 % at 21.2, 20 % at 22.8" in prose
    kept = [float(chat.curve.attainment[at[load]]) for load in (19.5, 21.2, 22.8)]
    assert [round(kept[0], 3), round(kept[1], 2), round(kept[2], 2)] == [0.994, 0.83, 0.2]
    assert "falls while the throughput still climbs" in prose
    good = chat.curve.good_per_s
    assert good[at[22.8]] < good[at[19.5]] / 2
    assert chat.curve.output_tokens_per_s[-1] > chat.curve.output_tokens_per_s[at[19.5]]
    assert "The KV cache is never full here" in prose
    assert chat.curve.kv_share.max() < 0.9


def test_what_moves_the_knee(prose: str) -> None:
    """The table of section 1: every preset's knee, peak and the limit that breaks first."""
    chat = shown("ramp", "Chat on an H100")
    for preset, held, most in (
        ("Chat on an H100", "19.5 requests/s", "4,450"),
        ("Long documents", "2.8 requests/s", "1,040"),
        ("Short-prompt peak", "78.6 requests/s", "19,200"),
        ("Less memory for KV", "7.7 requests/s", "2,370"),
        ("Another schedule", "17.6 requests/s", "4,250"),
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
    assert "from 14.9 to 78.6, a factor of five" in prose
    assert shown("ramp", "Less memory for KV").curve.preemptions.max() > 100
    assert "310 ms against 331 ms at 16 requests/s" in prose
    assert "37.8 ms against 31.4 ms a token" in prose
    here = [shown("ramp", p, load_per_s=16.0).here for p in ("Another schedule", "Chat on an H100")]
    assert [round(1e3 * float(h.ttft_p99_s[0])) for h in here] == [310, 331]
    assert [round(1e3 * float(h.tpot_p99_s[0]), 1) for h in here] == [37.8, 31.4]
    assert "moves down by a tenth" in prose
    assert shown("ramp", "Another schedule").held_per_s / chat.held_per_s < 0.92


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
    at = {int(users): i for i, users in enumerate(h100.loads)}
    ttft_s, tokens = h100.limits[0].values_s[0], h100.throughput[0]
    assert "up to 40.1 users. The plateau's knee is at 70.6 users" in prose
    assert (round(h100.slo.load, 1), round(h100.plateau.load, 1)) == (40.1, 70.6)
    assert "there the P99 TTFT is 5.7 s" in prose
    assert round(h100.latency_at(h100.limits[0], h100.plateau.load), 1) == 5.7
    assert "climbs by 39 %, and the P99 TTFT from 2.0 to 28.6 s. At 512 users it is 207 s" in prose
    assert round(tokens[at[128]] / tokens[at[40]], 2) == 1.39
    assert [round(float(ttft_s[at[u]]), 1) for u in (40, 128)] == [2.0, 28.6]
    assert round(float(ttft_s[at[512]])) == 207
    assert tokens[at[512]] <= tokens[at[128]]
    two = shown("which_knee", "Measured: Llama-3.3-70B on two GPUs")
    told = dict(zip(two.loads.astype(int).tolist(), two.throughput[0].round(), strict=True))
    assert "565 tokens/s with 25 users, 739 with 50, 777 with 100 and 777 with 200" in prose
    assert told[25] == pytest.approx(565, abs=1)
    assert (told[50], told[100], told[200]) == (739, 777, 777)
    assert "at 44.4 users; the promise of 50 ms a token breaks at 34.1 already" in prose
    assert (round(two.plateau.load, 1), round(two.slo.load, 1)) == (44.4, 34.1)
    assert "from 18 to 73 s" in prose
    assert [round(float(two.limits[0].values_s[0][i])) for i in (4, 6)] == [18, 73]
    rising = shown("which_knee", "Never flattens")
    assert "up to 250 users, 4,522 tokens/s, and still climbing" in prose
    assert (rising.loads[-1], round(rising.throughput[0][-1])) == (250, 4522)
    assert rising.plateau.load is None
    assert rising.two_segments.load is None
    low = shown("which_knee", "Saturated at the first point")
    assert {a.load for a in (low.slo, low.plateau, low.two_segments)} == {None}


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
    assert "at 12.9 requests/s, by two straight pieces it is 14.5, and by the SLO 14.8" in prose
    assert found == {"plateau": 12.9, "two_segments": 14.5, "slo": 14.8}


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
    assert "211 waited at the worst" in prose
    assert minute.waiting.max() == 211
    assert "35.8 s after the minute" in prose
    assert round(minute.drained_s, 1) == 35.8
    hour = shown("twenty_is_not_25", "An hour at 25")
    assert "2,200 wait after ten minutes, 12,400 at the end" in prose
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
