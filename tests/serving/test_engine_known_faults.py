"""Faults that other simulators of this kind have had; none of them may come back here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from course.serving.engine import EngineConfig, modes, simulate, simulate_closed
from course.serving.pricing.linear import LinearStepCost, StepFeatures
from course.serving.requests import Status
from course.serving.workload import Lognormal, Poisson, Workload, draw
from tests.engine_strategies import engine_cases
from tests.lanes import examples
from tests.serving.engine_cases import config_of, workload_of

SECOND = LinearStepCost(fixed_s=1.0)
REAL = LinearStepCost(0.010, 2e-5, 1e-9, 1e-4, 1e-8)


def test_recompute_leaves_ttft_and_counts_in_tpot_once() -> None:
    """A preempted request has had its first token; taking the recompute's end for it would hide the
    preemption in TTFT and show too good a TPOT."""
    work = Workload([0.0, 0.0], prompt_tokens=[3, 3], output_tokens=[4, 4])
    run = simulate(work, SECOND, EngineConfig(num_kv_blocks=4, block_size=2))
    assert run.preemptions.tolist() == [0, 1]
    assert run.ttft_s.tolist() == [1.0, 1.0]
    times_s = run.token_times(1)
    assert run.tpot_s[1] == (times_s[-1] - times_s[0]) / 3
    assert run.e2e_s[1] == run.ttft_s[1] + 3 * run.tpot_s[1]


def test_a_recompute_is_not_emitted_again() -> None:
    """The recomputed tokens were sent long ago: there are exactly output_tokens times."""
    work = draw(300, Poisson(25.0), Lognormal(5.0, 0.8), Lognormal(4.5, 0.7), seed=5)
    run = simulate(work, REAL, EngineConfig(num_kv_blocks=300))
    assert run.preemptions.sum() > 50
    for request in range(len(run)):
        times_s = run.token_times(request)
        assert times_s.size == work.output_tokens[request]
        assert (np.diff(times_s) > 0).all()
        assert times_s[0] == run.first_token_s[request]
        assert times_s[-1] == run.finish_s[request]


def test_ttft_is_from_arrival_and_holds_the_queue_once() -> None:
    """Arrival to first token: neither without the queue nor with the queue twice."""
    work = Workload([0.0, 0.0], prompt_tokens=[1, 1], output_tokens=[5, 1])
    run = simulate(work, SECOND, EngineConfig(max_num_seqs=1))
    assert run.scheduled_s.tolist() == [0.0, 5.0]
    assert run.ttft_s.tolist() == [1.0, 6.0]


@pytest.mark.parametrize("order", ["fcfs", "priority"])
def test_two_that_fight_for_the_last_block_both_end(order: str) -> None:
    """Each needs all blocks in the end. Preempting each other in turn, without progress, would go
    on for ever."""
    work = Workload([0.0, 0.0], prompt_tokens=[2, 2], output_tokens=[7, 7], priority=[0, 0])
    for chunked in (True, False):
        config = EngineConfig(
            num_kv_blocks=4, block_size=2, order=order, enable_chunked_prefill=chunked
        )
        run = simulate(work, SECOND, config)
        assert run.status.tolist() == [Status.FINISHED, Status.FINISHED]
        assert run.step_end_s.size <= 16


def test_one_token_answers_end_with_their_first_token_and_have_no_tpot() -> None:
    """(n − 1) is 0: a TPOT of 0, inf or a negative one has been seen in published tools."""
    work = Workload([0.0, 0.0], prompt_tokens=[5, 5], output_tokens=[1, 1])
    run = simulate(work, SECOND, EngineConfig())
    assert run.finish_s.tolist() == run.first_token_s.tolist() == [1.0, 1.0]
    assert np.isnan(run.tpot_s).all()
    found = run.summary()
    assert found.tpot.mean is None
    assert found.tpot.undefined == 2
    assert found.itl is not None
    assert found.itl.samples == 0
    assert run.itl_s().size == 0


def test_equal_arrivals_are_served_in_the_order_given() -> None:
    """A sort that is not stable would shuffle a batch of simultaneous requests."""
    work = Workload([1.0] * 50, [1] * 50, [1] * 50)
    run = simulate(work, SECOND, EngineConfig(max_num_seqs=1))
    assert run.scheduled_s.tolist() == [1.0 + k for k in range(50)]


def test_after_a_day_of_silence_the_clock_jumps() -> None:
    """Stepping through the silence would take a million steps; forgetting to jump would serve
    tomorrow's request today."""
    work = Workload([0.0, 86_400.0], [1, 1], [2, 2])
    for way in ("continuous", modes.static(1), modes.windowed(0.0)):
        run = simulate(work, SECOND, EngineConfig(batching=way))
        assert run.step_end_s.tolist() == [1.0, 2.0, 86_401.0, 86_402.0]
        assert run.token_times(1).tolist() == [86_401.0, 86_402.0]
        assert run.itl_s().tolist() == [1.0, 1.0]


def test_steps_shorter_than_the_clocks_spacing_do_not_hang() -> None:
    """Days in, a step of 1e-13 s leaves the clock where it is; the work must go on all the same."""
    work = Workload([1e6, 1e6], [4, 4], [9, 9])
    run = simulate(work, LinearStepCost(fixed_s=1e-13), EngineConfig(max_num_seqs=1))
    assert run.status.tolist() == [Status.FINISHED, Status.FINISHED]
    assert set(run.step_end_s.tolist()) == {1e6}


def test_an_arrival_at_a_steps_very_end_joins_the_next_step() -> None:
    """0.1 added up eleven times is not 1.1: the clock is one sum, and ties are decided by it."""
    clock_s = 0.0
    for _ in range(11):
        clock_s += 0.1
    assert clock_s != 1.1
    for arrival_s in (clock_s, math.nextafter(clock_s, 2.0)):
        work = Workload([0.0, arrival_s], [1, 1], [30, 1])
        run = simulate(work, LinearStepCost(fixed_s=0.1))
        expected_s = clock_s if arrival_s == clock_s else clock_s + 0.1
        assert run.scheduled_s[1] == expected_s


def test_a_closed_loop_of_rejected_requests_ends() -> None:
    """With no pause, a refused user sends again at the same moment: the requests must run out."""
    work = Workload([0.0] * 1000, [99] * 1000, [1] * 1000)
    run = simulate_closed(3, 0.0, work, SECOND, EngineConfig(num_kv_blocks=1))
    assert (run.status == Status.REJECTED).all()
    assert run.step_end_s.size == 0
    assert run.summary().attainment is None


def test_more_users_than_requests_is_no_fault() -> None:
    work = Workload([0.0, 0.0], [1, 1], [1, 1])
    run = simulate_closed(50, 0.0, work, SECOND)
    assert run.user is not None
    assert run.user.tolist() == [0, 1]


class Impatient:
    """A cost that refuses to price more steps than there can be."""

    def __init__(self, cost: LinearStepCost, most_steps: int) -> None:
        self.cost = cost
        self.left = most_steps

    def step_seconds(self, features: StepFeatures) -> float:
        self.left -= 1
        assert self.left > 0, "the engine does not end"
        assert features.prefill_tokens + features.decode_seqs > 0, "a step without work"
        return self.cost.step_seconds(features)


@settings(max_examples=examples(250), deadline=None, suppress_health_check=list(HealthCheck))
@given(engine_cases(pressed=True))
def test_no_input_hangs(case: dict[str, Any]) -> None:
    """Every step computes something; a preemption throws away at most what the victim had, and
    those before it go on, so the steps are bounded."""
    work = workload_of(case)
    tokens = int((work.prompt_tokens + work.output_tokens).sum())
    cost = Impatient(LinearStepCost(*case["cost"]), 2 * tokens * len(work) + 10)
    run = simulate(work, cost, config_of(case))
    assert set(run.status.tolist()) <= {Status.FINISHED, Status.REJECTED}
