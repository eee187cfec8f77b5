"""The figures in notebook 05's prose: each stands in the text and is what the model computes."""

from __future__ import annotations

import importlib
import io
import re
from contextlib import redirect_stdout
from typing import Any

import nbformat
import numpy as np
import pytest

from course.exercises.ch05 import limit as ch05_limit, server as ch05_server
from course.serving.scenes import burst as scenes
from course.serving.requests import Status
from tests.notebooks.claims import NOTEBOOKS, prose_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prose() -> str:
    """All text cells as one line."""
    return prose_of(5)


def shown(module: str, explorer: str, preset: str) -> Any:
    """What an explorer computes at a preset."""
    found = getattr(importlib.import_module(f"course.explore.ch05.{module}"), explorer)
    return found.result(found.state(preset))


def source_of(cell_id: str) -> str:
    notebook = nbformat.read(NOTEBOOKS / "05_admission_control.ipynb", as_version=4)
    return str(next(cell.source for cell in notebook.cells if cell.id == cell_id))


def test_the_exercises_requests_are_those_of_the_pictures() -> None:
    """The text says so; two kinds of request with one name would make every comparison wrong."""
    mine, theirs = ch05_server.rush(200.0, 5.0, seed=1), scenes.work_of([(150.0, 20.0)] * 2, seed=1)
    for mean in ("mean_prompt_tokens", "mean_output_tokens"):
        assert getattr(mine, mean) == pytest.approx(getattr(theirs, mean), rel=0.05)


def test_the_overloaded_minute(prose: str) -> None:
    """The section's surprise is the distance between 4.5 and 11.5."""
    opened = shown("overload", "overload", "Accept everything")
    before, during, after = opened.stretches
    assert "with 40 seats" in prose
    assert scenes.SEATS == 40
    assert "about 11.5 requests/s" in prose
    assert round(opened.capacity_per_s, 1) == 11.5
    assert "8.5/s come" in prose
    assert "twice as many come: 17/s" in prose
    assert (opened.rate_per_s, opened.burst_per_s) == (8.5, 17.0)
    assert before.attainment > 0.99
    assert "It is 4.5" in prose
    opening = source_of("title") + source_of("goals") + source_of("s1")
    assert "four or five" not in opening
    assert round(during.good_per_s, 1) == 4.5
    assert "Only 27 % are answered in time, where there was capacity for 67 %" in prose
    assert round(100 * during.attainment) == 27
    assert round(100 * opened.capacity_per_s / opened.burst_per_s) == 67
    assert "the queue grows by 5.5" in prose
    assert pytest.approx(5.5) == 17 - 11.5
    # how soon that is too long is exercise 5.3
    assert "twelve" not in source_of("s1-explain")
    assert after.attainment > 0.9
    quiet = shown("overload", "overload", "A quiet day")
    for own, other in zip(quiet.stretches, quiet.open_stretches, strict=True):
        assert own.attainment == other.attainment


def test_a_bounded_queue_in_the_same_minute(prose: str) -> None:
    """A refusal must serve more, and a longer queue fewer, or the advice is wrong."""
    bounded = shown("overload", "overload", "Bounded queue")
    during = bounded.stretches[1]
    assert "room for 23 requests in the queue: at 11.5/s that is two seconds' worth" in prose
    assert bounded.limit_requests == 23
    assert "from 4.5 to 11.7 answers a second" in prose
    assert round(during.good_per_s, 1) == 11.7
    assert "The 31 % who are refused" in prose
    assert round(100 * during.refused) == 31
    assert "more than two and a half times" in prose
    assert during.good_per_s / bounded.open_stretches[1].good_per_s > 2.5
    aware = shown("overload", "overload", "Deadline-aware")
    assert "nearly the same, 11.6 good answers a second" in prose
    assert round(aware.stretches[1].good_per_s, 1) == 11.6
    short = shown("overload", "overload", "Shorter answers")
    assert "serves 91 % in time, where the same refusal" in prose
    assert "preset *Deadline-aware*, serves 68 %; the price: 90 % of the people" in prose
    assert round(100 * short.stretches[1].attainment) == 91
    assert round(100 * aware.stretches[1].attainment) == 68
    assert round(100 * short.stretches[1].cut_short) == 90
    assert short.short_tokens == 40
    from course.explore.ch05.overload import overload, OverloadParameters

    kind = overload.result(OverloadParameters(gate="bounded queue", max_wait_s=9.0))
    assert "Hardly anybody is refused any more (12 %), and the good answers fall to 6.7/s" in prose
    assert round(100 * kind.stretches[1].refused) == 12
    assert kind.stretches[1].good_per_s == pytest.approx(6.65, abs=0.06)


def test_how_long_the_queue_may_be(prose: str) -> None:
    """The bound is set by a slow answer; if that took less, the picture's 23 would be too few."""
    from course.explore.ch05.overload import limit_requests, run_of

    def let_in(max_wait_s: float) -> tuple[Any, Any]:
        run = run_of("bounded queue", max_wait_s, 8.5, 2.0, 60.0, True, 1)
        table = run.attempts
        return table, (table.sent_s >= 90) & (table.sent_s < 140)

    table, during = let_in(2.0)
    seat_s = (table.end_s - table.scheduled_s)[during & table.finished]
    assert "the P95 of an answer, once it has its seat in the full server, is a good seven" in prose
    assert 7.0 < np.percentile(seat_s, 95) < 7.5
    assert "(3.5 s here, so a queue of 74)" in prose
    assert seat_s.mean() == pytest.approx(3.5, abs=0.1)
    assert limit_requests(6.5) == 74
    assert "waits about two seconds at most" in prose
    waited_s = (table.scheduled_s - table.sent_s)[during & table.finished]
    assert np.percentile(waited_s, 90) < 2.5
    assert 1.5 < waited_s.mean() < 2.1
    table, during = let_in(6.5)
    inside = during & (table.status != Status.REJECTED)
    assert "nearly four in ten of those let in would be late" in prose
    assert 0.36 < 1 - table.finished[inside].mean() < 0.4
    assert "2 s × 11.5/s = 23" in prose
    assert "(10 − 7) s × 11.5/s, some 34 requests" in prose
    assert int((10 - 7) * 11.5) == 34


def test_the_storm(prose: str) -> None:
    """Each preset's outcome is a sentence of the lesson."""
    storm = shown("retry_storm", "retry_storm", "The burst ends, the collapse stays")
    assert "27 a second, where 8.5 people ask" in prose
    assert round(storm.attempts_after_per_s) == 27
    assert storm.good_per_s[2] < 0.05
    assert storm.back_after_s is None
    assert "for just twenty seconds" in prose
    assert storm.time.burst_s == (80.0, 100.0)
    jitter = shown("retry_storm", "retry_storm", "Three attempts and jitter")
    assert jitter.back_after_s is None
    budget = shown("retry_storm", "retry_storm", "Retry budget")
    assert "after 35 s the service is back" in prose
    assert budget.back_after_s == 35
    assert "1.2 × 8.5 = 10.2 attempts/s" in prose
    assert pytest.approx(10.2) == 1.2 * 8.5
    assert scenes.RETRIES["retry budget"].budget_share == 0.2
    unseen = shown("retry_storm", "retry_storm", "Cancelled but not noticed")
    assert unseen.back_after_s is None
    assert "11.5 − 10.2 = 1.3 requests/s that are to spare, and after 200 s" in prose
    assert unseen.after_s == 200
    gated = shown("retry_storm", "retry_storm", "Refuse what cannot make it")
    assert "five seconds after the burst's end the service is back" in prose
    assert gated.back_after_s == 5
    endless = shown("retry_storm", "retry_storm", "Unlimited retries")
    assert "75 attempts a second of which 87 % are refused" in prose
    assert round(endless.attempts_after_per_s) == 75
    assert round(100 * endless.refused_share) == 87
    assert "nearly two minutes" in prose
    assert endless.back_after_s is not None
    assert 100 <= endless.back_after_s < 120


WORDS = {"at once": "at once", "later": "later", "not": "stays down"}


def table_of_escapes() -> dict[tuple[str, str, bool], str]:
    """The notebook's table: (gate, retry, whether leaving is noticed) -> what becomes of it."""
    rows = [
        [cell.strip() for cell in line.strip("| ").split("|")]
        for line in source_of("s3-table").splitlines()
        if line.startswith("| ")
    ]
    head, *body = rows
    return {
        (gate, retry, noticed): WORDS[word.strip()]
        for gate, *cells in body
        for retry, cell in zip(head[1:], cells, strict=True)
        for noticed, word in zip((True, False), cell.split("/"), strict=True)
    }


def test_the_table_of_escapes() -> None:
    """A wrong entry would send somebody home with a wrong cure."""
    table = table_of_escapes()
    assert len(table) == 2 * len(scenes.GATES) * len(scenes.RETRIES)
    for (gate, retry, noticed), word in table.items():
        found = scenes.escape(
            scenes.Burst(),
            retry=scenes.RETRIES[retry],
            admission=scenes.GATES[gate],
            noticed=noticed,
            seeds=range(1, 4),
        )
        assert found == word, (gate, retry, noticed)


def printed(*cell_ids: str) -> tuple[str, dict[str, Any]]:
    """What code cells print, and the names that they leave."""
    space: dict[str, Any] = {"np": np}
    out = io.StringIO()
    with redirect_stdout(out):
        for cell_id in cell_ids:
            exec(source_of(cell_id), space)
    return out.getvalue(), space


def test_the_limit_of_640(prose: str) -> None:
    """The audited case: with the same clients TTFT falls; with more, all its signs appear."""
    text, _ = printed("limit-print")
    assert len(re.findall(r"limit \d+", text)) == 3
    low, same, grown = (ch05_limit.signs(*pair) for pair in ((512, 525), (640, 525), (640, 662)))
    assert "the thirteen who waited" in prose
    assert same.p95_ttft_s < 0.5 * low.p95_ttft_s
    assert same.timed_out == pytest.approx(low.timed_out, abs=0.01)
    assert "3 % more raw tokens" in prose
    assert grown.raw_tokens_per_s / low.raw_tokens_per_s == pytest.approx(1.03, abs=0.005)
    assert "a P95 TTFT of 1.4 s instead of 1.0 s" in prose
    assert (round(grown.p95_ttft_s, 1), round(low.p95_ttft_s, 1)) == (1.4, 1.0)
    assert "29 % timed out" in prose
    assert round(100 * grown.timed_out) == 29
    assert "real throughput down by a quarter" in prose
    assert grown.real_tokens_per_s / low.real_tokens_per_s == pytest.approx(0.74, abs=0.02)
    cost = importlib.import_module("course.serving.pricing")
    step = [
        ch05_limit.COST.step_seconds(cost.StepFeatures(1000, 0, seats, 0)) for seats in (512, 640)
    ]
    assert "lasts about a fifth longer" in prose
    assert step[1] / step[0] == pytest.approx(1.2, abs=0.03)


def test_four_verdicts(prose: str) -> None:
    """What each dial does to whom is the section's content."""

    def at(preset: str) -> Any:
        return shown("four_verdicts", "four_verdicts", preset)

    greedy, buckets = at("One greedy tenant"), at("Token buckets")
    assert "four times as much" in prose
    assert "about one in twenty-five" in prose
    assert round(1 / greedy.tenants[0].in_time) == 25
    assert "may ask for 2,000 tokens a second" in prose
    assert any("2,000 tokens/s" in rule for rule in buckets.rules)
    assert "from nearly nothing to almost 7/s" in prose
    assert greedy.score.good_per_s < 0.4
    assert 6.6 < buckets.score.good_per_s < 7.0
    assert all(tenant.in_time > 0.95 for tenant in buckets.tenants[:2])
    assert "from half a dollar per thousand to three cents" in prose
    assert greedy.score.cost_usd == pytest.approx(0.5, abs=0.05)
    assert buckets.score.cost_usd == pytest.approx(0.03, abs=0.003)
    deadline = at("Deadline")
    assert "refuses whoever would wait longer than two seconds" in prose
    assert any("behind 2 s" in rule for rule in deadline.rules)
    assert "Goodput rises by two fifths" in prose
    gain = deadline.score.good_per_s / deadline.open_score.good_per_s
    assert gain == pytest.approx(1.4, abs=0.02)
    assert "the shop's short answers make it in 94 of 100 cases" in prose
    assert "the chat's longer ones in 67" in prose
    assert [round(100 * tenant.in_time) for tenant in deadline.tenants[:2]] == [67, 94]
    urgent = at("Urgent first")
    assert "behind one second of waiting only the support chat is let in" in prose
    assert any("behind 1 s" in rule for rule in urgent.rules)
    assert "Its attainment nearly doubles" in prose
    assert 1.8 < urgent.tenants[0].in_time / urgent.open_tenants[0].in_time < 2
    for own, other in zip(urgent.tenants, urgent.open_tenants, strict=True):
        assert own.in_time > other.in_time
    watermark = at("Watermark 0.9")
    assert "spares a few of these and changes little else" in prose
    assert watermark.open_score.preemptions - watermark.score.preemptions > 0
    gain = watermark.score.good_per_s / watermark.open_score.good_per_s
    assert gain == pytest.approx(1.0, abs=0.05)


def test_the_cells_of_the_notebook_say_what_is_told(prose: str) -> None:
    """Three seconds of double load do not tip the server; a plain wait rule keeps it up."""
    text, space = printed("serve")
    assert space["after"] > 0.9 * space["before"], text
    assert "8.5 good answers/s before, 8.5 a minute later" in text
    assert "in 40 seconds chance alone makes it 8 or 9" in prose
    assert pytest.approx(0.5, abs=0.05) == (8.5 * 40) ** 0.5 / 40
    mine, everybody = map(int, re.findall(r"(\d+) %", printed("own-policy")[0]))
    assert mine > everybody + 10


def test_fairness_is_what_the_text_says(prose: str) -> None:
    """A score whose ends are told wrongly cannot be read."""
    from course.explore.ch05.fairness import fairness

    assert "1: all tenants got the same part of their due; 1/3: one of three got" in prose
    assert fairness([1.0, 2.0, 2.0], [1.0, 9.0, 9.0]) == pytest.approx(1.0)
    assert fairness([3.0, 0.0, 0.0], [9.0, 9.0, 9.0]) == pytest.approx(1 / 3)


def test_each_preset_says_its_load(prose: str) -> None:
    """The text sends the reader to the sentence for the load."""
    from course.explore.ch05.four_verdicts import four_verdicts

    assert "the sentence with the picture begins with the load" in prose
    loads = set()
    for preset in four_verdicts.presets:
        state = four_verdicts.state(preset.name)
        said = four_verdicts.narrate(four_verdicts.result(state))
        assert re.match(r"[\d.]+ requests/s come\.", said)
        loads.add((state.load, state.greedy_factor))
    assert len(loads) > 1


def test_refused_requests_cost_nothing(prose: str) -> None:
    """If a refusal cost work, it would not be the cheaper answer."""
    run = scenes.run_burst(
        scenes.Burst(),
        retry=scenes.RETRIES["three attempts"],
        admission=scenes.GATES["bounded queue"],
    )
    assert "a refused request computes no token" in prose
    refused = run.attempts.status == Status.REJECTED
    assert refused.any()
    assert run.attempts.computed_tokens[refused].sum() == 0


def test_three_layers_that_retry_three_times() -> None:
    assert "4³ = 64 attempts a request" in prose_of(5)
    assert (1 + 3) ** 3 == 64


def test_a_bound_on_all_in_flight_is_seats_and_queue() -> None:
    """vLLM's dial counts who runs too: the queue's bound alone would leave seats empty."""
    assert (23 + scenes.SEATS, scenes.SEATS - 23) == (63, 17)
    assert "For a queue of 23 behind 40 seats give it 63; with 23 it would leave 17 seats empty" in (
        prose_of(5)
    )
