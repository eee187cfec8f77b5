"""A student's own policy must rule the gate just as a built-in one does, see the true state, and
fail with a sentence instead of a stack."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

from course.serving.engine import (
    Admission,
    ArrivingRequest,
    EngineConfig,
    LongPrompts,
    Patience,
    PythonAdmission,
    Retry,
    ServerState,
    ServiceRun,
    Users,
    Verdict,
)
from course.serving.engine.service import simulate_service
from course.serving.pricing.linear import LinearStepCost
from course.serving.workload import Lognormal, Poisson, Workload, draw

COST = LinearStepCost(0.010, 2e-5, 0.0, 1e-4, 1e-8)
CLIENTS: dict[str, Any] = {"patience": Patience(ttft_s=4.0), "retry": Retry(3, 0.5, 2.0, 0.5)}
SMALL = EngineConfig(max_num_seqs=12, num_kv_blocks=500)


def work(requests: int, rate_per_s: float = 20.0) -> Workload:
    return draw(requests, Poisson(rate_per_s), Lognormal(5.5, 0.8), Lognormal(4.76, 0.7), seed=2)


def facts(run: ServiceRun) -> list[bytes]:
    columns = [getattr(run.attempts, name) for name in run.attempts.__dataclass_fields__]
    return [column.tobytes() for column in [*columns, run.step_end_s]]


def both(policy: Any, gate: Admission) -> tuple[ServiceRun, ServiceRun]:
    load = work(250)
    return (
        simulate_service(load, COST, SMALL, admission=policy, **CLIENTS),
        simulate_service(load, COST, SMALL, admission=gate, **CLIENTS),
    )


def test_an_own_bound_rules_as_the_built_in_one() -> None:
    """Else a student's policy would be scored on another server than the built-in ones."""

    def bound(request: Any, state: Any) -> str:
        return "reject" if state.waiting_requests >= 9 else "accept"

    mine, theirs = both(bound, Admission(max_waiting_requests=9))
    assert facts(mine) == facts(theirs)
    assert (mine.attempts.verdict == Verdict.REJECT).any()


def test_an_own_prediction_and_an_own_cut_rule_as_the_built_in_ones() -> None:
    """The predicted wait that a policy sees is the one that the built-in rules judge by."""

    def wait(request: Any, state: Any) -> str:
        if state.predicted_wait_s > 3.0:
            return "reject"
        return "degrade" if state.predicted_wait_s > 1.0 else "accept"

    gate = Admission(max_predicted_wait_s=3.0, degrade_wait_s=1.0, degrade_to_tokens=40)
    mine, theirs = both(PythonAdmission(wait, degrade_to_tokens=40), gate)
    assert facts(mine) == facts(theirs)
    assert mine.degraded.any()
    assert (mine.attempts.output_tokens[mine.attempts.verdict == Verdict.DEGRADE] <= 40).all()


def test_a_policy_sees_the_server_as_it_is() -> None:
    """Each documented field, held against what the run itself recorded."""
    seen: list[tuple[ArrivingRequest, ServerState]] = []

    def watch(request: ArrivingRequest, state: ServerState) -> str:
        seen.append((request, state))
        return "accept"

    load = work(150)
    run = simulate_service(load, COST, SMALL, admission=watch, **CLIENTS)
    assert len(seen) == len(run.attempts) > 160
    for attempt, (request, state) in enumerate(seen):
        row = int(run.attempts.request[attempt])
        assert (request.index, request.attempt) == (row, run.attempts.attempt[attempt])
        assert request.arrival_s == state.now_s == run.attempts.sent_s[attempt]
        assert request.first_sent_s == run.first_sent_s[row]
        assert request.prompt_tokens == load.prompt_tokens[row]
        assert request.predicted_output_tokens == load.output_tokens[row]
        assert (request.tenant, request.priority) == ("", 0.0)
        assert request.patience == CLIENTS["patience"]
        assert request.first_token_deadline_s == request.arrival_s + 4.0
        assert request.end_deadline_s == math.inf
        assert state.free_seats == 12 - state.running_requests
        step = int(np.searchsorted(run.step_start_s, state.now_s, side="left")) - 1
        if step >= 0 and state.now_s < run.step_end_s[step]:
            assert run.step_kv_blocks is not None
            assert state.kv_used == run.step_kv_blocks[step] / 500
            assert state.running_requests == run.step_running[step]
    assert {type(state.waiting_requests) for _, state in seen} == {int}
    assert any(state.predicted_wait_s > 0 for _, state in seen)


def test_tenants_and_priorities_reach_the_policy() -> None:
    """A policy that is fair to tenants needs to know whose request it is."""
    load = Workload([0.0, 0.0], [9, 9], [2, 2], priority=[3.0, 1.0], label=["chat", "batch"])

    def only_chat(request: ArrivingRequest, state: ServerState) -> str:
        assert isinstance(request.tenant, str)
        return "accept" if request.tenant == "chat" and request.priority == 3.0 else "reject"

    run = simulate_service(load, COST, admission=only_chat)
    assert run.finished.tolist() == [True, False]


@pytest.mark.parametrize("answer", ["yes", None, True, 0, "ACCEPT"])
def test_a_wrong_answer_is_a_sentence(answer: Any) -> None:
    """A beginner forgets a return; a stack from inside would not say so."""

    def wrong(request: Any, state: Any) -> Any:
        return answer

    with pytest.raises(ValueError, match=r"the policy wrong returned .* return \"accept\"") as told:
        simulate_service(work(3), COST, admission=wrong)
    assert repr(answer) in str(told.value)
    assert "index=0" in str(told.value)
    assert "waiting_requests=0" in str(told.value)


def test_an_exception_is_a_sentence() -> None:
    """It names the policy, the exception, the request and the state."""

    def divides(request: Any, state: Any) -> str:
        return "accept" if request.prompt_tokens / state.waiting_requests else "reject"

    with pytest.raises(ValueError, match=r"the policy divides raised ZeroDivisionError") as told:
        simulate_service(work(3), COST, admission=divides)
    assert isinstance(told.value.__cause__, ZeroDivisionError)


def test_degrading_to_no_length_is_a_sentence() -> None:
    with pytest.raises(ValueError, match=r"PythonAdmission\(policy, degrade_to_tokens=64\)"):
        simulate_service(work(3), COST, admission=lambda request, state: "degrade")


def test_whoever_stands_outside_is_let_in_in_the_end() -> None:
    """A policy that always says "queue" is a door with a guard, not a hang."""
    run = simulate_service(work(120), COST, SMALL, admission=lambda request, state: "queue")
    assert run.finished.all()
    assert (run.attempts.verdict == Verdict.QUEUE).all()


def test_clients_who_retry_for_ever_are_a_sentence() -> None:
    """Attempts without end, a door that stays shut, no horizon: said, not hung."""
    with pytest.raises(ValueError, match=r"attempts=None would never end.*give horizon_s"):
        simulate_service(
            work(5), COST, admission=Admission(max_waiting_requests=0), retry=Retry(None)
        )
    run = simulate_service(
        work(5), COST, admission=Admission(max_waiting_requests=0), retry=Retry(None), horizon_s=9.0
    )
    assert (run.attempt_counts > 5).all()


def test_what_never_fits_is_not_sent_again() -> None:
    """A client with attempts without end would otherwise knock for ever."""
    load = Workload([0.0], [9000], [2])
    config = EngineConfig(num_kv_blocks=10)
    assert len(simulate_service(load, COST, config, retry=Retry(None)).attempts) == 1


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Patience(ttft_s=0.0), "ttft_s=0.0 is not above 0"),
        (lambda: Patience(e2e_per_output_token_s=0.1), "has no e2e_s"),
        (lambda: Patience(noticed=2), "noticed=2 is neither"),
        (lambda: Retry(attempts=0), "attempts=0 is below 1"),
        (lambda: Retry(round_trip_s=0.0), "round_trip_s=0.0 is not above 0"),
        (lambda: Retry(growth=0.5), "growth=0.5 is outside"),
        (lambda: Retry(jitter=1.5), "jitter=1.5 is above 1"),
        (lambda: Retry(budget_share=-0.1), "budget_share=-0.1 is negative"),
        (lambda: Users(0), "number=0 is below 1"),
        (lambda: Admission(max_waiting_requests=-1), "max_waiting_requests=-1 is below 0"),
        (lambda: Admission(kv_watermark=1.2), "kv_watermark=1.2 is above 1"),
        (lambda: Admission(urgent_only_wait_s=1.0), "without least_urgent; give both"),
        (lambda: Admission(degrade_to_tokens=9), "without degrade_wait_s; give both"),
        (lambda: Admission(tenant_burst_tokens=9), "without tenant_tokens_per_s; give both"),
        (lambda: PythonAdmission("accept"), "admit='accept' cannot be called"),
        (lambda: LongPrompts(100, max_running=0), "max_running=0 is below 1"),
        (lambda: LongPrompts(100, max_wait_s=-1.0), "max_wait_s=-1.0 is negative"),
        (lambda: simulate_service(work(2), COST, admission="accept"), "is no Admission"),
        (lambda: simulate_service(work(2), COST, patience=3.0), "patience=3.0 is no Patience"),
        (lambda: simulate_service(work(2), COST, seed=-1), "seed=-1 is below 0"),
        (lambda: simulate_service(work(2), COST, horizon_s=-1), "horizon_s=-1 is negative"),
    ],
)
def test_bad_input_is_a_sentence(make: Any, words: str) -> None:
    """The argument, its value, and how to mend it."""
    with pytest.raises(ValueError, match=re.escape(words)):
        make()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_step_that_costs_nothing_is_a_sentence(compiled: bool) -> None:
    free = LinearStepCost(per_decode_seq_s=1.0)
    with pytest.raises(ValueError, match=r"must last a finite time above 0 s"):
        simulate_service(Workload([0.0], [9], [2]), free, compiled=compiled)


def test_an_own_order_and_an_own_cost_rule_as_the_built_in_ones() -> None:
    """The plain loop takes whatever the engine takes."""

    class OwnCost:
        def step_seconds(self, features: Any) -> float:
            return COST.step_seconds(features)

    def shortest(now_s: float, arrival_s: float, prompt: int, predicted: int, value: float) -> int:
        return predicted

    load = work(200)
    mine = EngineConfig(max_num_seqs=12, num_kv_blocks=500, order=shortest)
    theirs = EngineConfig(max_num_seqs=12, num_kv_blocks=500, order="sjf")
    assert facts(simulate_service(load, OwnCost(), mine, **CLIENTS)) == facts(
        simulate_service(load, COST, theirs, **CLIENTS)
    )
