"""Notebook 04's references against the engine: what a student is told must be what it does."""

from __future__ import annotations

import math

import numpy as np
import pytest

from course.exercises.ch04 import (
    e1_most_tokens_inside,
    e2_sequences_that_fit,
    e3_budget,
    e4_prompt_tokens_in_step,
    e6_my_order,
    e7_stop_the_storm,
    e8_tokens_to_prefill,
)
from course.exercises.ch04 import server as scene
from course.serving.pricing.linear import RooflineStepCost

pytestmark = pytest.mark.slow

SEEDS = pytest.mark.parametrize("seed", range(4))


@SEEDS
def test_the_next_step_computes_what_the_reference_says(seed: int) -> None:
    for case in e4_prompt_tokens_in_step._moments(np.random.default_rng(seed)):
        run = e4_prompt_tokens_in_step.moment_in_engine(case)
        prefill = int(run.step_prefill_tokens[1])
        assert prefill == e4_prompt_tokens_in_step.prompt_tokens_in_step(**case)
        assert run.step_decode_seqs[1] == len(case["answer_tokens_left"])


@SEEDS
def test_the_engine_computes_what_hits_leave(seed: int) -> None:
    for case in e8_tokens_to_prefill._turns(np.random.default_rng(seed)):
        computed, warm_s, cold_s = e8_tokens_to_prefill.prefilled_in_engine(case)
        assert computed == e8_tokens_to_prefill.tokens_to_prefill(**case).sum()
        assert warm_s < cold_s


@SEEDS
def test_as_many_fit_as_the_cost_model_has_blocks_and_one_more_preempts(seed: int) -> None:
    for case in e2_sequences_that_fit._cards(np.random.default_rng(seed)):
        fit = e2_sequences_that_fit.sequences_that_fit(**case)
        assert e2_sequences_that_fit.preempted_with(case, fit) == 0
    card = RooflineStepCost("Llama-3.1-8B", "RTX-4090")
    shape = card.model
    names = ("layers", "heads", "kv_heads", "head_dim", "parameters")
    fit = e2_sequences_that_fit.sequences_that_fit(
        {name: getattr(shape, name) for name in names}, card.gpu.memory_bytes, 0.9, 600, 16
    )
    assert fit == card.kv_blocks() // math.ceil(600 / 16)


def test_one_more_than_fits_is_preempted() -> None:
    (case, *_) = e2_sequences_that_fit._cards(np.random.default_rng(0))
    assert (
        e2_sequences_that_fit.preempted_with(
            case, e2_sequences_that_fit.sequences_that_fit(**case) + 1
        )
        > 0
    )


def test_every_busy_seed_keeps_the_promise_and_tells_the_orders_apart() -> None:
    """A seed on which an order that forgets people passes would reward it."""
    for seed in e6_my_order._BUSY_SEEDS:
        longest, chats = "longest wait of all, s", "chats on average, s"
        mine = scene.try_order(e6_my_order.my_order, seed)
        assert mine[longest] < e6_my_order.LONGEST_WAIT_S - 0.1
        assert mine[chats] < 0.93 * scene.try_order("fcfs", seed)[chats]
        assert (
            scene.try_order(e6_my_order.shortest_first_forgets, seed)[longest]
            > 1.5 * e6_my_order.LONGEST_WAIT_S
        )


def test_the_promise_of_the_budget_is_no_row_of_the_lessons_table() -> None:
    """Where a printed budget passed, the exercise would be a look-up, not a choice."""
    seeds = [case["seed"] for k in range(4) for case in e3_budget._seeds(np.random.default_rng(k))]
    for seed in seeds:
        for budget in (380, e3_budget.BUDGET_WANTED, 440):
            seen = tuple(scene.try_budget(budget, seed).values())
            assert e3_budget._both_promises(seen, None, None) is None
        for budget in (256, 512, 2048, 20_480):
            seen = tuple(scene.try_budget(budget, seed).values())
            assert e3_budget._both_promises(seen, None, None) is not None
        assert scene.try_budget(512, seed)["P99 of the gaps, ms"] < e3_budget.GAP_MS


@pytest.mark.deep
def test_the_seats_that_stop_the_storm_do_so_on_every_draw() -> None:
    """The reference must not pass by luck, nor a row of the lesson's table."""
    for seed in (3, 77, 1234, 5005, 9001):
        for seats, kept in (
            (e7_stop_the_storm.SEATS_WANTED, True),
            (32, False),
            (64, False),
            (256, False),
        ):
            case = {"seed": seed}
            verdict = e7_stop_the_storm._calm_and_quick(
                e7_stop_the_storm._storm(seats, case), None, case
            )
            assert (verdict is None) == kept, (seed, seats, verdict)


def test_the_requests_inside_are_calm_where_the_tokens_are_not() -> None:
    for case in e1_most_tokens_inside._logs(np.random.default_rng(3)):
        assert e1_most_tokens_inside.most_tokens_inside(
            **case
        ) > 1.2 * e1_most_tokens_inside.requests_times_mean(**case)
