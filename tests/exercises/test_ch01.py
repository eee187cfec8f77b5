"""What the exercises of notebook 01 say in words is what their code and the engine do.

If these fail, a hint or an explanation states a figure that nobody can find again, or the little
benchmark tool of 1.5 reads a command otherwise than the real one.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from course.exercises.ch01.e2_itl_percentile import (
    _engine_streams,
    gaps_across_boundaries,
    itl_percentile,
    mean_of_means,
)
from course.exercises.ch01.e3_served_well import failed_left_out, served_well
from course.exercises.ch01.e4_implied_mean_wait_s import (
    _reports,
    _wait_in_engine,
    implied_mean_wait_s,
    reported_server,
)
from course.exercises.ch01.e5_bench_command import WANTED, read_command, report_of, run_bench
from course.exercises.ch01.e7_slowdown_at_equal_work import _releases, slowdown_at_equal_work
from course.exercises.ch01.e8_requests_needed import confidence_for_the_rest, requests_needed
from course.exercises.ch01.kinds import Named
from course.exercises.definition import Unacceptable
from course.exercises.judging import judge_answer
from course.exercises.registry import chapter_exercises
from course.serving.requests import metrics
from course.serving.requests.metrics import SLO, RequestTimeline

BY_ID = {one.id: one for one in chapter_exercises(1)}
PRINTED = {
    "users": 50,
    "seats": 8,
    "output_tokens_per_s": 850.0,
    "mean_prompt_tokens": 300.0,
    "mean_output_tokens": 150.0,
}


def test_at_least_24_wrong_answers_and_three_exercises_on_the_engine() -> None:
    """The lesson promises both; fewer would leave common mistakes without an answer."""
    assert sum(len(one.wrong) for one in chapter_exercises(1)) >= 24
    assert sum("engine" in one.question for one in chapter_exercises(1)) >= 3


# --- 1.1 ----------------------------------------------------------------------------------------


def judged(answer: Any) -> Any:
    return judge_answer(BY_ID["1.1"], answer)


def test_latencies_agree_with_the_courses_own_metrics() -> None:
    """The exercise would otherwise teach another TPOT than the course computes with."""
    times_s, counts = (0.7, 0.8, 1.1), (2, 1, 4)
    answer = RequestTimeline(0.2, 0.2, times_s, counts, 1.3, prompt_tokens=9)
    own = metrics.summarize([answer])
    mine = BY_ID["1.1"].reference(0.2, np.array(times_s), np.array(counts), 1.3)
    assert mine == pytest.approx((own.ttft.mean, own.tpot.mean, own.e2e.mean))


def test_milliseconds_are_named_and_nan_counts_as_undefined() -> None:
    """A right answer in the wrong unit must hear of the unit; NaN is how arrays say None."""

    def in_ms(*inputs: Any) -> tuple[Any, ...]:
        parts = BY_ID["1.1"].reference(*inputs)
        return tuple(None if part is None else 1000 * part for part in parts)

    def with_nan(*inputs: Any) -> tuple[Any, ...]:
        parts = BY_ID["1.1"].reference(*inputs)
        return tuple(math.nan if part is None else part for part in parts)

    assert "milliseconds" in judged(in_ms).message
    assert judged(with_nan).status == "passed"


def test_a_half_right_row_says_which_half() -> None:
    """Three numbers and one "wrong" would leave a beginner with three suspects."""

    def tpot_upside_down(*inputs: Any) -> tuple[Any, ...]:
        ttft_s, tpot_s, e2e_s = BY_ID["1.1"].reference(*inputs)
        return ttft_s, None if tpot_s is None else 1 / tpot_s, e2e_s

    assert "TPOT misses, TTFT and E2E are right" in judged(tpot_upside_down).message


@pytest.mark.parametrize("of_one_token", [None, 0.0, math.nan])
@pytest.mark.parametrize(
    ("misconception", "ends", "left_out"),
    [
        ("e2e-to-the-closing", True, "one"),
        ("gap-for-every-token", False, "none"),
        ("tokens-after-the-first-chunk", False, "chunk"),
    ],
)
def test_a_slip_is_named_whatever_stands_for_the_tpot_of_one_token(
    misconception: str, ends: bool, left_out: str, of_one_token: float | None
) -> None:
    """Two slips at once would draw only general hints; and the first one named is mended first."""

    def answer(
        sent_s: float, times_s: np.ndarray, counts: np.ndarray, end_s: float
    ) -> tuple[float, float | None, float]:
        gaps = counts.sum() - {"one": 1, "none": 0, "chunk": counts[0]}[left_out]
        tpot_s = (times_s[-1] - times_s[0]) / gaps if counts.sum() > 1 else of_one_token
        return times_s[0] - sent_s, tpot_s, (end_s if ends else times_s[-1]) - sent_s

    assert judged(answer).misconception == misconception


@pytest.mark.parametrize(
    "value",
    [(1.0, 2.0), ((1.0, 2.0), (1.0, 2.0), (1.0, 2.0)), ("a", 1.0, 2.0), {"a": 1}, (1j,) * 3],
)
def test_rows_of_another_shape_are_refused_in_a_sentence(value: Any) -> None:
    """Comparing them would end in a stack from inside the course."""
    trouble = Named(("a", "b", "c"), ("s", "s", "")).problem(value)
    assert trouble
    assert trouble.endswith(".")


# --- 1.2 ----------------------------------------------------------------------------------------


@pytest.mark.deep
def test_the_mean_flows_while_the_percentile_freezes() -> None:
    """The question says that both the report and the users are right."""
    for seed in range(6):
        for case in _engine_streams(np.random.default_rng(seed)):
            if case["percentile"] == 99:
                assert mean_of_means(**case) < 0.05
                assert itl_percentile(**case) > 2 * mean_of_means(**case)


def test_differences_across_answers_fail_by_far_and_in_both_directions() -> None:
    """In a long busy run they are one difference in a hundred, and a P99 may come out the same."""
    for seed in range(6):
        *_, rare, crowded = _engine_streams(np.random.default_rng(seed))
        assert gaps_across_boundaries(**rare) > 10 * itl_percentile(**rare)
        assert gaps_across_boundaries(**crowded) < 0 < itl_percentile(**crowded)


# --- 1.4 ----------------------------------------------------------------------------------------


def test_figures_in_the_audit_of_the_printed_report() -> None:
    """The explanation's 5.67 requests/s, 42 waiting, 7.4 s, 8.8 s and 125 s."""
    requests_per_s = 850 / 150
    assert round(requests_per_s, 2) == 5.67
    wait_s = implied_mean_wait_s(**PRINTED)
    assert round(wait_s, 1) == 7.4
    assert round(50 / requests_per_s, 1) == 8.8
    assert round((wait_s - 0.95 * 1.2) / 0.05) == 125


def test_the_engine_waits_as_littles_law_says() -> None:
    """The card shows a run beside the formula; they must not contradict each other."""
    for seed in range(3):
        for case in _reports(np.random.default_rng(seed)):
            run = reported_server(case)
            later = slice(case["users"], -case["users"])
            wait_s = np.mean((run.scheduled_s - run.arrival_s)[later])
            assert wait_s == pytest.approx(implied_mean_wait_s(**case), rel=0.03, abs=1e-9)
    assert "wait 7.4 s on average; P95 TTFT 8.5 s" in _wait_in_engine(0.0, PRINTED)


# --- 1.3 ----------------------------------------------------------------------------------------


def test_attainment_and_goodput_are_the_courses_own() -> None:
    """Two definitions of goodput in one course would be one too many."""
    requests = [
        RequestTimeline(0, 0, (0.2, 0.3), (1, 1), 0.3, 9),
        RequestTimeline(0, 0, (0.2,), (1,), 0.2, 9),
        RequestTimeline(0, 0, (0.9, 1.0), (1, 1), 1.0, 9),
        RequestTimeline(0, 0, (0.2, 0.3), (1, 1), 2.0, 9, error="timed out"),
        RequestTimeline(0, 0, (), (), 0.1, 9, error="HTTP 500"),
    ]
    own = metrics.summarize(
        requests,
        SLO(ttft_s=0.5, tpot_s=0.15),
        window=metrics.stopwatch(2.0),
    )
    ttft_s = np.array([0.2, 0.2, 0.9, 0.2, math.nan])
    tpot_s = np.array([0.1, math.nan, 0.1, 0.1, math.nan])
    finished = np.array([True, True, True, False, False])
    mine = served_well(ttft_s, tpot_s, finished, 0.5, 0.15, 2.0)
    assert mine == pytest.approx((own.attainment, own.goodput_per_s))
    assert failed_left_out(ttft_s, tpot_s, finished, 0.5, 0.15, 2.0)[0] > mine[0]


# --- 1.5 ----------------------------------------------------------------------------------------


def test_an_abbreviated_flag_is_taken_for_the_longer_one() -> None:
    """The real parser does so in silence: the sections then vanish from the report."""
    bench = read_command("vllm bench serve --num-prompts 640 --request-rate 64 --percentile 95")
    assert (bench.sections, bench.percentiles, bench.max_concurrency) == (("95",), (99.0,), None)


def test_the_colleagues_own_command_draws_the_first_misconception() -> None:
    """It has both faults; the load is told first, since without it no report is worth reading."""
    verdict = judge_answer(BY_ID["1.5"], "--num-prompts 640 --request-rate 64 --percentile 95")
    assert (verdict.status, verdict.misconception) == ("failed", "rate-for-concurrency")


@pytest.mark.parametrize(
    "command",
    [
        "--num-prompts 640 --max-conc 64 --metric-percentiles 50,95 --percentile-metrics ttft,tpot",
        "--metric-perc=95 --num-prompts=640 --max-conc=64 --request-rate=inf",
        "vllm bench serve --num-prompts 640 --request-rate 64 --max-conc 64 --metric-perc 95",
    ],
)
def test_other_right_commands_pass(command: str) -> None:
    """Judged is what the engine shows, not the wording."""
    assert judge_answer(BY_ID["1.5"], command).status == "passed"


@pytest.mark.parametrize(
    "command",
    [
        "--num-prompts 640 --max-concurrency 0",
        "--num-prompts ten",
        "--num-prompts 99999999",
        "--num-prompts 640 --request-rate -3",
        "--num-prompts 640 --metric-percentiles ninety",
        "--num-prompts 640 --metric-percentiles 950",
        '--num-prompts "640',
        "--concurrency 64",
        "--m 64",
    ],
)
def test_commands_that_the_tool_refuses_get_a_sentence(command: str) -> None:
    """A student must not see argparse end the kernel, nor wait for a million prompts."""
    with pytest.raises(Unacceptable, match=r"\.$"):
        read_command(command)
    assert judge_answer(BY_ID["1.5"], command).status == "failed"


def test_an_open_loop_does_not_hold_the_number_it_is_given() -> None:
    """The whole point: 64 a second is several hundred at a time on this server."""
    wrong = report_of("--num-prompts 640 --request-rate 64 --metric-percentiles 95", {"seed": 3})
    right = report_of("--num-prompts 640 --max-concurrency 64 --metric-percentiles 95", {"seed": 3})
    assert wrong.in_flight > 4 * WANTED
    assert abs(right.in_flight / WANTED - 1) < 0.1


def test_a_rate_below_the_servers_own_makes_the_cap_idle() -> None:
    """With both flags the lower one decides; the exercise's engine must know that as well."""
    slow = run_bench(
        read_command("--num-prompts 200 --request-rate 1 --max-concurrency 64"), seed=0
    )
    assert metrics.mean_concurrency(slow.requests, slow.window()) < 10


# --- 1.6 ----------------------------------------------------------------------------------------


def test_the_gauge_is_judged_in_words_that_the_lesson_has_by_then() -> None:
    """Queueing theory is the next notebook, and the cache's blocks come later still."""
    one = BY_ID["1.6"]
    texts = [one.question, one.explanation, *one.options.values(), *one.hints]
    for text in [*texts, *(wrong.hint for wrong in one.wrong)]:
        assert not any(word in text for word in ("ρ", "KV", "queue", "formula"))


# --- 1.7, 1.8 -----------------------------------------------------------------------------------


def test_equal_work_says_what_a_replay_says_and_the_note_is_true_as_printed() -> None:
    """The comparison stands in for a replay; the release note's doubling is the users' doing."""
    for seed in range(4):
        for case in _releases(np.random.default_rng(seed)):
            weeks = case.weeks
            old = weeks.run(traffic="before", release="before")
            new = weeks.run(traffic="before", release="after")
            ratio = new.e2e_s.mean() / old.e2e_s.mean()
            assert slowdown_at_equal_work(**case) == pytest.approx(ratio, rel=0.05)
            after = weeks.run(traffic="after", release="after")
            rates = [run.work.output_tokens.sum() / run.end_s for run in (old, after)]
            assert rates[1] > 2 * rates[0]


def test_a_p99_needs_299_requests_as_the_courses_percentiles_say() -> None:
    """298 leave more than one test in twenty without a request beyond P99; 50 leave 60 in 100."""
    assert requests_needed(0.99, 0.95) == 299
    assert metrics.bound_ranks(298, 0.99)[1] is None
    assert metrics.bound_ranks(299, 0.99)[1] == 299
    assert confidence_for_the_rest(0.99, 0.95) == 6
    assert round(1 - 0.99**6, 2) == 0.06
    assert round(0.99**50, 1) == 0.6
    assert round(0.99**100, 2) == 0.37


def test_flags_with_underscores_are_read_as_vllm_reads_them() -> None:
    dashed = "--num-prompts 640 --max-concurrency=64 --metric-percentiles 95"
    scored = "--num_prompts 640 --max_concurrency=64 --metric_percentiles 95"
    assert read_command(scored) == read_command(dashed)
