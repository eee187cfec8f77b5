"""What the exercises of notebook 05 say in words is what their code and the engine do.

If these fail, a hint or an explanation states a figure that nobody can find again, or a student's
policy is judged on something else than it was told.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from course.exercises.ch05.e3_tipping_burst import stays_down
from course.exercises.ch05.e4_longest_queue import (
    _servers,
    longest_queue,
    mean_answer_for_the_slow,
    queue_of,
)
from course.exercises.ch05.e5_real_change import real_change
from course.exercises.ch05.e7_let_in import _tenants, gate_lets_in, let_in
from course.exercises.ch05.e8_admit import (
    admit,
    best_built_in,
    in_time_and_wasted,
    no_waiting_at_all,
    nobody_refused,
    refused_when_empty,
)
from course.exercises.ch05.server import SCORED_S, rush, score, serve, trial
from course.exercises.judging import judge_answer
from course.exercises.registry import chapter_exercises
from course.serving.requests import Status
from course.serving.scenes.burst import PROMISE

pytestmark = pytest.mark.slow

BY_ID = {one.id: one for one in chapter_exercises(5)}


def test_a_burst_of_twelve_seconds_tips_it_and_one_of_six_does_not() -> None:
    """The explanation's reckoning, (10 − 4) · 11.5/(17 − 11.5) ≈ 12 s, must fit the engine."""
    assert pytest.approx(12.5, abs=0.1) == (10 - 4) * 11.5 / (17 - 11.5)
    seeds = range(40)
    down = {
        burst_s: np.mean([stays_down(burst_s, s) for s in seeds]) for burst_s in (6.0, 12.0, 18.0)
    }
    assert down[6.0] < 0.1
    assert 0.4 < down[12.0] < 0.85
    assert down[18.0] > 0.9


@pytest.mark.parametrize("seconds", [11, 12, 13])
def test_neighbours_of_the_reference_burst_pass(seconds: int) -> None:
    """The number itself is a matter of luck by a second or so; the judge must not be."""
    for seed in range(3):
        assert judge_answer(BY_ID["5.3"], seconds, seed=seed).status == "passed"


@pytest.mark.parametrize("case", [c for c in _servers(np.random.default_rng(1)) if c["seats"]])
def test_the_longest_queue_keeps_the_promise_for_the_slow_answers(case: dict[str, Any]) -> None:
    """Room for a P95 answer means that about 95 in 100 of those let in are answered in time."""
    limit = longest_queue(**case)
    if limit == 0:
        assert case["slow_answer_s"] > case["patience_s"]
        return
    assert queue_of(limit, case)[1] > 0.93
    assert queue_of(mean_answer_for_the_slow(**case), case)[1] < 0.92


def test_the_bucket_is_the_engines_own() -> None:
    for case in _tenants(np.random.default_rng(2)):
        verdicts = let_in(**case)
        np.testing.assert_array_equal(verdicts, gate_lets_in(case))
        assert verdicts.any()
        assert not verdicts.all()


def test_the_printed_case_lost_more_than_a_quarter() -> None:
    assert "28 % fewer answers for 3 % more tokens" in BY_ID["5.5"].explanation
    assert real_change(0.03, 0.0, 0.3) == pytest.approx(-0.279)


def test_knowing_the_answer_beats_the_built_in_gates_on_every_rush() -> None:
    """The bar of two percentage points must be within reach, with room, whatever the luck."""
    for seed in range(50, 56):
        own, bar = in_time_and_wasted(admit, seed)[0], best_built_in(seed)[1]
        assert own > bar + 3
        assert in_time_and_wasted(nobody_refused, seed)[0] < bar - 15
        assert in_time_and_wasted(no_waiting_at_all, seed)[0] < bar + 2


def test_a_policy_that_returns_nonsense_gets_a_sentence() -> None:
    verdict = judge_answer(BY_ID["5.8"], lambda request, state: "maybe")
    assert verdict.status == "failed"
    assert "'maybe'" in verdict.message
    assert '"accept", "queue", "degrade" or "reject"' in verdict.message


def test_an_attempt_is_not_a_request() -> None:
    """The log of 5.1 must hold what the question is about: more attempts than requests."""
    run = serve(rush(20.0, 3.0, before_s=15.0, after_s=15.0, seed=4))
    assert len(run.attempts) > 1.2 * len(run)
    assert (run.status == Status.TIMED_OUT).any()
    assert run.attainment(PROMISE) < run.finished.mean() + 1e-9


def test_who_refuses_everybody_gets_a_sentence() -> None:
    """Nothing computed is no reason to divide by it."""
    verdict = judge_answer(BY_ID["5.8"], lambda request, state: "reject")
    assert verdict.status == "failed"
    assert "refuses every request, even on an empty server" in verdict.message


def test_a_cliff_on_the_empty_server_is_named() -> None:
    """At 0.05 s a token no 160-token answer gets in, and nothing else would tell the student."""

    def admit_with(s_per_token: float) -> Any:
        def policy(request: Any, state: Any) -> str:
            left_s = request.end_deadline_s - state.now_s
            needed_s = state.predicted_wait_s + s_per_token * request.predicted_output_tokens
            return "accept" if needed_s < 0.8 * left_s else "reject"

        return policy

    assert refused_when_empty(admit_with(0.045)) == 0
    assert 5 < refused_when_empty(admit_with(0.05)) < 10
    verdict = judge_answer(BY_ID["5.8"], admit_with(0.12))
    assert verdict.status == "failed"
    assert re.search(
        r"Even on an empty server.* refuses \d+\.\d % of the requests", verdict.message
    )


def test_the_self_test_is_the_check() -> None:
    """What the student is told to try must be what the check counts."""
    assert "first sent in the seconds 0 to 45" in BY_ID["5.8"].question
    assert SCORED_S == (0.0, 45.0)
    for seed in (1, 2):
        assert score(admit, seed=seed) == in_time_and_wasted(admit, seed)[0]
    verdict = judge_answer(BY_ID["5.8"], nobody_refused)
    assert "of the requests first sent in the seconds 0 to 45" in repr(verdict)


def test_a_token_takes_what_the_hint_says() -> None:
    """Measured as the question tells it, the figure must be that of the hint."""
    assert "about 0.045 s" in BY_ID["5.8"].hints[1]
    for seed in (1, 2, 3):
        table = trial(admit, seed=seed).attempts
        done = table.finished
        took_s = (table.end_s - table.first_token_s)[done].sum()
        assert 0.042 < took_s / table.emitted_tokens[done].sum() < 0.048


def test_a_longer_answer_than_160_tokens_never_comes() -> None:
    assert rush(60.0, seed=1).output_tokens.max() == 160
    assert "longest answer has 160 tokens" in BY_ID["5.8"].question
