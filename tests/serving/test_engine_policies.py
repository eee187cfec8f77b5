"""A student's own policy or cost must rule the engine just as a built-in one does."""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from course.serving.engine import EngineConfig, modes, orders, simulate
from course.serving.pricing.linear import LinearStepCost, StepFeatures
from course.serving.workload import Lognormal, Poisson, Workload, draw
from tests.engine_strategies import engine_cases
from tests.lanes import examples
from tests.serving.engine_cases import config_of, run_of
from tests.serving.test_engine_same_result import facts

COST = LinearStepCost(0.010, 2e-5, 0.0, 1e-4, 1e-8)


class OwnCost:
    """The linear cost again, as a student would write it."""

    def step_seconds(self, features: StepFeatures) -> float:
        return COST.step_seconds(features)


def own_sjf(
    now_s: float,
    arrival_s: float,
    prompt_tokens: int,
    predicted_output_tokens: int,
    priority: float,
) -> float:
    if now_s - arrival_s > 2.0:
        return -math.inf
    return predicted_output_tokens


def work(requests: int, rate_per_s: float = 20.0) -> Workload:
    return draw(requests, Poisson(rate_per_s), Lognormal(5.5, 0.8), Lognormal(4.76, 0.7), seed=2)


@pytest.mark.parametrize("way", ["continuous", modes.static(8), modes.windowed(0.05)])
@pytest.mark.parametrize("blocks", [None, 900])
def test_an_own_order_rules_as_the_built_in_one(way: Any, blocks: int | None) -> None:
    """The same function, plain or built in, gives the same run."""
    dials: dict[str, Any] = {"batching": way, "num_kv_blocks": blocks, "max_num_seqs": 8}
    mine = simulate(work(250), COST, EngineConfig(**dials, order=own_sjf))
    theirs = simulate(work(250), COST, EngineConfig(**dials, order=orders.sjf(2.0)))
    assert facts(mine) == facts(theirs)
    assert facts(mine) != facts(simulate(work(250), COST, EngineConfig(**dials)))


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(engine_cases(closed=None, order="sjf"))
def test_a_built_in_order_called_as_a_function_is_the_same(case: dict[str, Any]) -> None:
    """The built-in orders can be read and copied: what they return is what rules."""
    order = config_of(case).order_key
    built_in = facts(run_of(case))

    def copied(*arguments: Any) -> float:
        return order(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.serving.engine_cases.orders.sjf", lambda max_wait_s: copied)
        assert facts(run_of(case)) == built_in


@pytest.mark.parametrize("config", [EngineConfig(), EngineConfig(batching=modes.static(8))])
def test_an_own_cost_rules_as_the_built_in_one(config: EngineConfig) -> None:
    """The price of a step may be any function of its four features."""
    assert facts(simulate(work(200), OwnCost(), config)) == facts(simulate(work(200), COST, config))


def test_an_own_cost_sees_whole_numbers() -> None:
    """A numpy integer would overflow silently where a student multiplies."""
    kinds = set()

    class Curious:
        def step_seconds(self, features: StepFeatures) -> float:
            kinds.update(type(count) for count in features)
            return 0.01

    simulate(work(20), Curious())
    assert kinds == {int}


def test_an_order_may_look_at_the_clock_and_the_prompt() -> None:
    """Shortest prompt first, unless the request has waited long: nothing is special to sjf."""

    def shortest_prompt(now_s: float, arrival_s: float, prompt: int, *_: Any) -> float:
        return prompt - 1000.0 * (now_s - arrival_s)

    run = simulate(work(200, 60.0), COST, EngineConfig(max_num_seqs=4, order=shortest_prompt))
    fcfs = simulate(work(200, 60.0), COST, EngineConfig(max_num_seqs=4))
    assert np.isfinite(run.finish_s).all()
    assert not np.array_equal(run.scheduled_s, fcfs.scheduled_s)


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(order=own_sjf),
        EngineConfig(order=own_sjf, num_kv_blocks=1500),
        EngineConfig(order=own_sjf, enable_chunked_prefill=False),
    ],
)
def test_an_own_policy_can_be_tried_on_a_whole_replay(config: EngineConfig) -> None:
    """2,000 requests in seconds, or nobody would try a second idea. (The limit is generous: the
    figure itself is held in the benchmarks.)"""
    begun = time.perf_counter()
    run = simulate(work(2000), COST, config)
    assert time.perf_counter() - begun < 30
    assert len(run) == 2000
