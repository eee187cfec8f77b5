"""The figures in notebook 01's prose: each stands in the text and is what the model computes."""

from __future__ import annotations

import importlib
from typing import Any

import pytest

from tests.notebooks.claims import prose_of


@pytest.fixture(scope="module")
def prose() -> str:
    """All text cells as one line."""
    return prose_of(1)


def shown(module: str, explorer: str, preset: str | None = None) -> Any:
    """What an explorer computes at a preset."""
    found = getattr(importlib.import_module(f"course.explore.ch01.{module}"), explorer)
    return found.result(found.state(preset) if preset else found.parameters())


def test_a_stall_hardly_moves_tpot(prose: str) -> None:
    """Were the mean as telling as the maximum, the section's point would be wrong."""
    life = shown("one_life", "one_life", "A neighbour's long prompt")
    assert "one gap out of 199" in prose
    assert life.gaps_s.size == 199
    assert "from 20 to 22 ms" in prose
    assert (round(1e3 * life.rest.tpot_s), round(1e3 * life.here.tpot_s)) == (20, 22)
    assert life.here.largest_gap_s == pytest.approx(0.42)
    chunks = shown("one_life", "one_life", "Four tokens a chunk")
    assert "four times as long" in prose
    assert chunks.here.median_gap_s == pytest.approx(4 * chunks.rest.median_gap_s)


def test_mean_median_and_p99_of_the_dashboard(prose: str) -> None:
    """The dashboard's 600 ms must be a true mean, and the P99 far from it."""
    shown_ = shown("percentile_and_mean", "percentile_and_mean", "Mean 600 ms")
    marks = {mark.name: mark.value_s for mark in shown_.marks}
    assert "322 ms, and the mean is 603 ms" in prose
    assert [round(1e3 * marks[name]) for name in ("median", "mean")] == [322, 603]
    assert "It is 7 s, twelve times the mean" in prose
    assert round(marks["P99"]) == 7
    assert round(marks["P99"] / marks["mean"]) == 12
    assert "one request in six comes within a quarter of the mean" in prose
    assert 1 / shown_.near_mean == pytest.approx(6, abs=0.3)
    assert "in six of ten such tests" in prose
    assert round(0.99**50, 1) == 0.6


def test_the_tools_differ_by_this_much(prose: str) -> None:
    """The opening sentence names two figures of two tools for the same run."""
    tools = shown("many_tools", "many_tools")
    from course.explore.ch01.many_tools import many_tools

    assert many_tools.prediction is not None
    factor = many_tools.prediction.answer(tools)
    assert "It is a factor of 1.8" in prose
    assert factor == pytest.approx(1.8, abs=0.05)
    sentence = many_tools.narrate(tools).replace("\u00a0", " ")
    assert "53.57 ms" in sentence
    assert "96 ms" in sentence
    assert "One reports 54 ms a token, the other 96 ms" in prose


def test_the_audit_of_the_a10g_report(prose: str) -> None:
    """The report is convicted by these figures alone, so they must be right."""
    report = shown("littles_audit", "littles_audit", "The A10G report")
    assert "5.67 **requests**/s" in prose
    assert round(report.requests_per_s, 2) == 5.67
    assert "**42 wait**" in prose
    assert report.waiting == 42
    assert "**7.4 s on average**" in prose
    assert round(report.mean_wait_s, 1) == 7.4
    assert "8/850 s = 9.4 ms" in prose
    assert round(1e3 * report.needed_tpot_s, 1) == 9.4
    assert "a ninth of the printed P95" in prose
    assert report.tpot_p95_s / report.needed_tpot_s == pytest.approx(9, abs=0.1)
    step_s = report.weights_bytes / report.bandwidth_bytes_per_s
    assert "no step takes less than 22.5 ms" in prose
    assert 1e3 * step_s == pytest.approx(22.5, abs=0.1)
    assert "= 356 tokens/s" in prose
    assert report.seats / step_s == pytest.approx(356, abs=0.5)
    all_run = shown("littles_audit", "littles_audit", "All fifty run")
    assert "50/5.67 = 8.8 s" in prose
    assert round(all_run.time_in_system_s, 1) == 8.8
    assert "a mean TPOT of 51 to 59 ms" in prose
    assert all_run.needed_tpot_low_s is not None
    low, high = all_run.needed_tpot_low_s, all_run.needed_tpot_s
    assert (round(1e3 * low), round(1e3 * high)) == (51, 59)


def test_longer_answers_raise_tokens_per_second_alone(prose: str) -> None:
    """The trap: tokens/s up, requests/s down, and nothing got better."""
    short = shown("littles_audit", "littles_audit", "Answers of 100 tokens")
    long = shown("littles_audit", "littles_audit", "The output-length trap")
    assert "650 tokens/s" in prose
    assert short.output_tokens_per_s == 650
    assert "it does 760" in prose
    assert long.output_tokens_per_s == 760
    assert "from 6.5 a second to 1.5" in prose
    assert (round(short.requests_per_s, 1), round(long.requests_per_s, 1)) == (6.5, 1.5)
