"""The fast engine against a slow one, written apart from it and from the rules alone: every
timestamp, status, preemption and step of thousands of random workloads must be the same. A shared
misreading is all that could slip through."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from course.serving.engine import simulation
from tests.engine_strategies import BATCHINGS, ORDERS, TODAY, engine_cases, today_cases
from tests.lanes import examples
from tests.reference_engine import run_case
from tests.serving.engine_cases import differences, not_static, run_of

EASY = settings(deadline=None, suppress_health_check=list(HealthCheck))


def check(case: dict[str, Any], **options: Any) -> None:
    """Assert that both engines agree on everything they both tell."""
    reference, run = run_case(case), run_of(case, **options)
    found = differences(run, reference)
    assert not found, "\n".join(found)
    finished = [
        np.diff(times)
        for times, status in zip(reference.token_times_s, reference.status, strict=True)
        if status == 0
    ]
    pooled = np.sort(np.concatenate([np.empty(0), *finished]))
    np.testing.assert_allclose(run.itl_s(), pooled, rtol=0, atol=1e-9)
    itl = run.summary().itl
    assert itl is not None
    for q in (0.0, 0.5, 0.99, 1.0):
        expected = np.quantile(pooled, q) if pooled.size else None
        assert itl.quantile(q) == (None if expected is None else pytest.approx(expected, abs=2e-9))


@settings(EASY, max_examples=examples(1000))
@given(engine_cases(closed=None))
def test_any_case(case: dict[str, Any]) -> None:
    check(case)


@settings(EASY, max_examples=examples(600))
@given(engine_cases(closed=None, pressed=True, max_requests=30))
def test_cases_that_preempt(case: dict[str, Any]) -> None:
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("batching", BATCHINGS)
@pytest.mark.parametrize("order", ORDERS)
def test_each_mode_with_each_order(batching: str, order: str) -> None:
    @settings(EASY, max_examples=examples(50))
    @given(engine_cases(closed=None, batching=batching, order=order))
    def same(case: dict[str, Any]) -> None:
        check(case)

    same()


@settings(EASY, max_examples=examples(300))
@given(engine_cases(closed=None, pressed=True, order="priority"))
def test_victims_by_priority(case: dict[str, Any]) -> None:
    check(case)


@settings(EASY, max_examples=examples(300))
@given(engine_cases(closed=None))
def test_the_general_loop(case: dict[str, Any]) -> None:
    """Where the quick loop is used otherwise."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "_needs_the_general_loop", not_static)
        check(case)


@settings(EASY, max_examples=examples(100))
@given(engine_cases(closed=None))
def test_the_plain_loops(case: dict[str, Any]) -> None:
    check(case, compiled=False)


@settings(EASY, max_examples=examples(1500))
@given(today_cases())
def test_todays_dials(case: dict[str, Any]) -> None:
    """Whole sequences, watermark, names of blocks, asynchrony, SGLang's way, guesses, front end."""
    check(case)


@pytest.mark.slow
@pytest.mark.parametrize("dial", TODAY)
def test_each_of_todays_dials(dial: str) -> None:
    """If it failed, one dial would turn another server than the one described."""

    @settings(EASY, max_examples=examples(150))
    @given(today_cases(dial=dial))
    def same(case: dict[str, Any]) -> None:
        check(case)

    same()


@settings(EASY, max_examples=examples(300))
@given(today_cases())
def test_todays_dials_uncompiled(case: dict[str, Any]) -> None:
    """A student's own order runs in the plain loop."""
    check(case, compiled=False)
