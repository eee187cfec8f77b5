"""Bad input is a sentence with the argument, its place and its value; otherwise the fault would be
looked for in the numbers that come out."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from course.serving.engine import EngineConfig, modes, orders, simulate, simulate_closed
from course.serving.engine.orders import as_order
from course.serving.pricing.linear import LinearStepCost, StepFeatures
from course.serving.workload import Workload

WORK = Workload([0.0, 0.0], prompt_tokens=[5, 6], output_tokens=[2, 3])
COST = LinearStepCost(fixed_s=0.5)


@pytest.mark.parametrize("name", ["max_num_seqs", "max_num_batched_tokens", "block_size"])
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (0, "is below 1"),
        (-3, "is below 1"),
        (2.5, "is not whole"),
        (math.nan, "is not whole"),
        (math.inf, "is not whole"),
        (True, "is not a number"),
        ("64", "is not a number"),
        (None, "is not a number"),
        (2**60, "is above"),
    ],
)
def test_dials_are_whole_numbers_from_1_on(name: str, value: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*{fault}"):
        EngineConfig(**{name: value})


@pytest.mark.parametrize("value", [0, -1, 0.5, math.nan, "many"])
def test_kv_blocks_are_a_whole_number_or_none(value: Any) -> None:
    with pytest.raises(ValueError, match="num_kv_blocks="):
        EngineConfig(num_kv_blocks=value)


def test_whole_floats_and_numpy_numbers_are_taken() -> None:
    """A dial read from a table or a slider comes as np.int64 or as 64.0."""
    config = EngineConfig(
        max_num_seqs=np.int64(8),
        block_size=16.0,  # type: ignore[arg-type]
        enable_chunked_prefill=np.bool_(False),  # type: ignore[arg-type]
    )
    assert (config.max_num_seqs, config.block_size) == (8, 16)
    assert config.enable_chunked_prefill is False
    assert isinstance(config.max_num_seqs, int)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EngineConfig(enable_chunked_prefill=1), "enable_chunked_prefill=1 is neither"),  # type: ignore[arg-type]
        (lambda: EngineConfig(batching="dynamic"), "batching='dynamic' is not known; give one of"),
        (lambda: EngineConfig(batching="windowed"), r"needs numbers; .* modes\.windowed\(0"),
        (lambda: EngineConfig(order="lifo"), "order='lifo' is not known; give fcfs"),
        (lambda: EngineConfig(order=3), "order=3 is not known"),  # type: ignore[arg-type]
        (lambda: modes.static(0), "batch_size=0 is below 1"),
        (lambda: modes.static(4, -1.0), "window_s=-1.0 is negative"),
        (lambda: modes.windowed(math.nan), "window_s=nan is not a number"),
        (lambda: modes.adaptive(math.inf), "window_s=inf is infinite"),
        (lambda: orders.sjf(-1.0), "max_wait_s=-1.0 is negative"),
        (lambda: orders.priority(0.0), "ageing_s=0.0 is not above 0"),
        (
            lambda: EngineConfig(max_num_seqs=4, batching=modes.static(5)),
            "batch_size=5 is above max_num_seqs=4",
        ),
        (
            lambda: EngineConfig(max_num_batched_tokens=4, batching=modes.static(5)),
            "batch_size=5 is above max_num_batched_tokens=4",
        ),
    ],
)
def test_a_mode_or_an_order_that_cannot_be_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


@pytest.mark.parametrize(
    "name",
    ["fixed_s", "per_prefill_token_s", "per_prefill_pair_s", "per_decode_seq_s", "per_kv_token_s"],
)
@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (-1e-9, "is negative"),
        (math.nan, r"is not a number \(NaN\)"),
        (math.inf, "is infinite"),
        ("1", "is not a number"),
    ],
)
def test_a_negative_or_nan_cost_is_refused(name: str, value: Any, fault: str) -> None:
    with pytest.raises(ValueError, match=f"{name}=.*{fault}"):
        LinearStepCost(**{"fixed_s": 1.0} | {name: value})


def test_a_cost_without_any_price_is_refused() -> None:
    """Time would stand still."""
    with pytest.raises(ValueError, match=r"fixed_s=0\.0 and every other price is 0 too"):
        LinearStepCost()


@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize(
    ("config", "features"),
    [
        (EngineConfig(), StepFeatures(0, 0, 2, 13)),
        (EngineConfig(enable_chunked_prefill=False), StepFeatures(0, 0, 2, 13)),
        (EngineConfig(batching=modes.static(2)), StepFeatures(0, 0, 2, 13)),
        (
            EngineConfig(num_kv_blocks=8, order=orders.priority()),
            StepFeatures(0, 0, 2, 13),
        ),
    ],
)
def test_a_step_that_costs_nothing_is_refused_when_it_comes(
    config: EngineConfig, features: StepFeatures, compiled: bool
) -> None:
    """Decoding for free would end in no time at all, at whatever load."""
    only_prefill = LinearStepCost(per_prefill_token_s=0.1)
    with pytest.raises(ValueError, match=r"gives 0\.0 s for the step at 1\.1\d* s") as caught:
        simulate(WORK, only_prefill, config, compiled=compiled)
    assert repr(features) in str(caught.value)


def test_a_prefill_that_costs_nothing_is_refused_too() -> None:
    with pytest.raises(ValueError, match=r"gives 0\.0 s for the step at 0\.0 s.*prefill_tokens=11"):
        simulate(WORK, LinearStepCost(per_decode_seq_s=0.1), EngineConfig(batching=modes.static(2)))


def test_a_step_without_end_is_refused() -> None:
    """A finite price times a large count can be infinite."""
    with pytest.raises(ValueError, match="gives inf s"):
        simulate(WORK, LinearStepCost(per_prefill_token_s=1e308))


@pytest.mark.parametrize("value", [-1.0, math.nan, "soon"])
def test_a_horizon_is_a_time(value: Any) -> None:
    with pytest.raises(ValueError, match="horizon_s="):
        simulate(WORK, COST, horizon_s=value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: simulate([0.0], COST), r"work=\[0.0\] is not a Workload; make one"),  # type: ignore[arg-type]
        (lambda: simulate(WORK, 0.1), r"cost=0.1 has no step_seconds"),  # type: ignore[arg-type]
        (lambda: simulate(WORK, COST, {"max_num_seqs": 4}), "is not an EngineConfig"),  # type: ignore[arg-type]
        (lambda: simulate_closed(0, 0.0, WORK, COST), "users=0 is below 1"),
        (lambda: simulate_closed(1.5, 0.0, WORK, COST), "users=1.5 is not whole"),  # type: ignore[arg-type]
        (lambda: simulate_closed(1, -0.1, WORK, COST), "think_s=-0.1 is negative"),
        (lambda: simulate_closed(1, math.nan, WORK, COST), "think_s=nan"),
        (
            lambda: simulate_closed(1, [0.0, -2.0], WORK, COST),
            r"think_s\[1\]=-2\.0 is negative",
        ),
        (
            lambda: simulate_closed(1, [0.0], WORK, COST),
            "think_s has 1 entries but work has 2",
        ),
        (lambda: simulate_closed(1, 0.0, WORK, COST, ramp_s=-1.0), "ramp_s=-1.0 is negative"),
        (
            lambda: simulate_closed(2, 0.0, WORK, COST, start_s=[0.0]),
            "start_s has 1 entries but users has 2",
        ),
        (
            lambda: simulate_closed(2, 0.0, WORK, COST, start_s=[0.0, math.nan]),
            r"start_s\[1\]=nan",
        ),
        (lambda: simulate_closed(2, 0.0, [1], COST), "is not a Workload"),  # type: ignore[arg-type]
    ],
)
def test_a_call_with_the_wrong_things_says_so(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


def test_an_order_must_return_numbers() -> None:
    """None (a forgotten return) would compare as anything; NaN as nothing."""

    def forgetful(*_: Any) -> Any:
        return None

    for wrong in (forgetful, lambda *_: math.nan, lambda *_: "first"):
        with pytest.raises(ValueError, match="return a number"):
            simulate(WORK, COST, EngineConfig(max_num_seqs=1, order=wrong))
    assert as_order(forgetful) is forgetful


def test_limits_that_cannot_be_logged_together_say_which() -> None:
    """Each step's counts share one word of memory; that must never wrap round silently."""
    from course.serving.engine import simulation

    rules = simulation._rules(
        WORK,
        True,
        EngineConfig(max_num_seqs=2**30, max_num_batched_tokens=2**31 - 1, num_kv_blocks=2**40),
        COST.kernel_form(),
        math.inf,
    )
    assert rules.prefill_shift < 63  # cut down to what two requests can use
    many = Workload(np.zeros(9), [2**31 - 1] * 9, [2**31 - 1] * 9)
    with pytest.raises(ValueError, match=r"num_kv_blocks=.* are too large together"):
        simulate(
            many,
            COST,
            EngineConfig(
                max_num_seqs=9, max_num_batched_tokens=2**31 - 1, num_kv_blocks=2**52, block_size=1
            ),
        )


def test_an_unknown_request_is_named() -> None:
    run = simulate(WORK, COST)
    for wrong in (2, -1, 0.5):
        with pytest.raises(ValueError, match="request="):
            run.token_times(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="request=2 was not offered"):
        run.explain(2)
