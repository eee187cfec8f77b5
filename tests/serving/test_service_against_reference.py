"""The fast service against a slow one, written apart from it and from the rules alone: every
attempt, verdict, time, token and step of thousands of random cases must be the same. A shared
misreading is all that could slip through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.engine_strategies import ORDERS, TODAY
from tests.lanes import examples
from tests.reference_service import FINISHED, UNFINISHED, reference_pools, reference_service
from tests.service_strategies import RULES, pool_cases, service_cases, today_service_cases
from tests.serving.engine_cases import same_times
from tests.serving.service_cases import pools_run_of, service_differences, service_run_of

EASY = settings(deadline=None, suppress_health_check=list(HealthCheck))


def check(case: dict[str, Any], **options: Any) -> None:
    """Assert that both agree on everything that they both tell."""
    found = service_differences(service_run_of(case, **options), reference_service(case))
    assert not found, "\n".join(found)


@settings(EASY, max_examples=examples(400))
@given(service_cases())
def test_any_case(case: dict[str, Any]) -> None:
    """If it failed, the fast loop would not simulate the service that the course describes."""
    check(case)


@pytest.mark.parametrize("rule", RULES)
def test_each_rule_of_admission(rule: str) -> None:
    """If it failed, one rule of the gate would judge by another server than the one that runs."""

    @settings(EASY, max_examples=examples(60))
    @given(service_cases(rule=rule))
    def same(case: dict[str, Any]) -> None:
        check(case)

    same()


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("chunked", [True, False])
def test_each_order_with_impatient_clients(order: str, chunked: bool) -> None:
    """If it failed, leaving from the middle of a queue would disturb its order."""

    @settings(EASY, max_examples=examples(50))
    @given(service_cases(patience=True, retry=True, order=order, chunked=chunked))
    def same(case: dict[str, Any]) -> None:
        check(case)

    same()


@settings(EASY, max_examples=examples(150))
@given(service_cases(long=True))
def test_long_prompts(case: dict[str, Any]) -> None:
    """If it failed, the queue of the long prompts would be entered or left at another time."""
    check(case)


@settings(EASY, max_examples=examples(150))
@given(service_cases(closed=True))
def test_closed_loops(case: dict[str, Any]) -> None:
    """If it failed, users would take each other's rows."""
    check(case)


@settings(EASY, max_examples=examples(500))
@given(today_service_cases())
def test_todays_dials(case: dict[str, Any]) -> None:
    """If it failed, clients and gate would stand before another scheduler than workloads do."""
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("dial", TODAY)
def test_each_of_todays_dials(dial: str) -> None:
    """If it failed, one dial would turn another server than the one described."""

    @settings(EASY, max_examples=examples(100))
    @given(today_service_cases(dial=dial))
    def same(case: dict[str, Any]) -> None:
        check(case)

    same()


@settings(EASY, max_examples=examples(100))
@given(today_service_cases())
def test_todays_dials_uncompiled(case: dict[str, Any]) -> None:
    """If it failed, a student's own policy would stand before another scheduler."""
    check(case, compiled=False)


@settings(EASY, max_examples=examples(150))
@given(service_cases())
def test_the_plain_loop(case: dict[str, Any]) -> None:
    """If it failed, a student's own policy would run in another service."""
    check(case, compiled=False)


@settings(EASY, max_examples=examples(200))
@given(pool_cases())
def test_two_pools(case: dict[str, Any]) -> None:
    """If it failed, an answer would take another way from the prefill pool to its end."""
    run = pools_run_of(case)
    first, rows, second = reference_pools(case, case["decode"], case["link"])
    assert same_times(run.first_token_s, first.column("first_token_s"))
    assert same_times(run.prefill.step_end_s, first.step_end_s)
    assert run.decode_request.tolist() == rows
    found = service_differences(run.decode, second)
    assert not found, "\n".join(found)
    status = np.array(first.column("status"))
    status[rows] = UNFINISHED  # where the horizon came before the journey's end
    end_s = np.where(status == FINISHED, first.column("end_s"), np.nan)
    for attempt in second.attempts:
        row = rows[attempt.row]
        status[row] = attempt.status
        if attempt.status == FINISHED:
            end_s[row] = attempt.end_s
    assert run.status.tolist() == status.tolist()
    assert same_times(run.finish_s, end_s.tolist())
