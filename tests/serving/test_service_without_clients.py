"""Without patience, retries and gate, the service is the engine; otherwise what a lesson says of
clients would rest on another engine than the lessons before it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course.serving.engine import EngineConfig, modes, simulate
from course.serving.engine.clients import Users
from course.serving.engine.service import simulate_service
from course.serving.engine.service_run import ServiceRun
from course.serving.pricing.linear import LinearStepCost
from course.serving.workload import Workload
from tests.engine_strategies import engine_cases
from tests.lanes import examples
from tests.serving.engine_cases import config_of, run_of, workload_of

pytestmark = pytest.mark.slow


def service_of(case: dict[str, Any], **options: Any) -> ServiceRun:
    """The service's run of a case of the engine."""
    cost = LinearStepCost(*case["cost"])
    return simulate_service(
        workload_of(case), cost, config_of(case), horizon_s=case.get("horizon_s"), **options
    )


def differences(service: ServiceRun, engine: Any) -> list[str]:
    """Name each fact in which the two differ, to the last bit."""
    attempts = service.attempts
    pairs = {
        "arrival_s": (attempts.sent_s, engine.arrival_s),
        "status": (attempts.status, engine.status),
        "scheduled_s": (attempts.scheduled_s, engine.scheduled_s),
        "first_token_s": (attempts.first_token_s, engine.first_token_s),
        "preemptions": (attempts.preemptions, engine.preemptions),
        "emitted_tokens": (attempts.emitted_tokens, engine.emitted_tokens),
        "step_end_s": (service.step_end_s, engine.step_end_s),
        "step_prefill_tokens": (service.step_prefill_tokens, engine.step_prefill_tokens),
        "step_decode_seqs": (service.step_decode_seqs, engine.step_decode_seqs),
        "finish_s": (service.requests.last_token_s, engine.finish_s),
    }
    if engine.step_kv_blocks is not None:
        pairs["step_kv_blocks"] = (service.step_kv_blocks, engine.step_kv_blocks)
    return [
        f"{name}: {ours} != {theirs}"
        for name, (ours, theirs) in pairs.items()
        if not np.array_equal(ours, theirs, equal_nan=name.endswith("_s"))
    ]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("pressed", [False, True])
@settings(max_examples=examples(150), deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_no_clients_no_gate_is_the_engine(
    compiled: bool, pressed: bool, data: st.DataObject
) -> None:
    """Every order, both ways to prefill, limited KV, prefix hits, horizons: the same to the bit."""
    case = data.draw(engine_cases(batching="continuous", pressed=pressed or None))
    assert not differences(service_of(case, compiled=compiled), run_of(case))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=engine_cases(batching="single"))
def test_one_seat_is_the_single_mode(case: dict[str, Any]) -> None:
    """Another number of seats than the mode's own would make a queue of another server."""
    assert not differences(service_of(case), run_of(case))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(case=engine_cases(batching="continuous", closed=True))
def test_a_closed_loop_is_the_engines(case: dict[str, Any]) -> None:
    """Users who never give up are those of `simulate_closed`."""
    think_s = float(np.max(case["think_s"]))
    users = case["users"]
    case = case | {"think_s": think_s, "start_s": [0.0] * users}
    service = service_of(case, users=Users(users, think_s))
    engine = run_of(case)
    assert not differences(service, engine)
    assert service.user is not None
    assert service.user.tolist() == engine.user.tolist()


def test_starts_over_a_ramp_are_the_engines() -> None:
    """The same seed must start the same users at the same times in both."""
    from course.serving.engine import simulate_closed

    work = Workload(np.zeros(40), np.full(40, 30), np.full(40, 5))
    cost = LinearStepCost(0.01, 1e-4, 0, 1e-3, 0)
    service = simulate_service(work, cost, users=Users(5, 0.2, ramp_s=3.0), seed=4)
    engine = simulate_closed(5, 0.2, work, cost, ramp_s=3.0, seed=4)
    assert not differences(service, engine)


@pytest.mark.parametrize("way", [modes.static(4), modes.windowed(0.1), modes.adaptive(0.1)])
def test_other_ways_to_batch_are_refused(way: Any) -> None:
    """Silently batching in another way than the one asked for would be a wrong number."""
    work = Workload([0.0], [9], [1])
    with pytest.raises(ValueError, match=r"batching=.* is not known to simulate_service"):
        simulate_service(work, LinearStepCost(fixed_s=1.0), EngineConfig(batching=way))


def test_more_seats_than_there_was_memory_for_at_first() -> None:
    """Seats grow with the crowd; a limit of the first allocation would be a hidden dial."""
    requests = 3000
    work = Workload(np.zeros(requests), np.full(requests, 4), np.full(requests, 3))
    config = EngineConfig(max_num_seqs=10**9, max_num_batched_tokens=10**6)
    cost = LinearStepCost(0.01, 1e-5, 0, 1e-4, 1e-8)
    for compiled in (False, True):
        service = simulate_service(work, cost, config, compiled=compiled)
        assert not differences(service, simulate(work, cost, config))
        assert service.step_running.max() == requests
