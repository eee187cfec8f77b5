"""The reference engine against timelines worked out on paper, closed forms and random cases.

Unless a test says otherwise a step costs exactly 1 s, so that step ends are whole numbers; KV
blocks are of 4 tokens. In the timelines "A4" is a prefill of 4 tokens of A, "A*" a decode of A,
and "e2@5" means that A emits its second token at 5 s.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.engine_invariants import check_invariants
from tests.engine_strategies import BATCHINGS, ORDERS, engine_cases
from tests.lanes import examples
from tests.reference_engine import (
    FINISHED,
    REJECTED,
    UNFINISHED,
    ReferenceRun,
    reference_simulate,
    reference_simulate_closed,
    run_case,
)

UNIT = (1.0, 0.0, 0.0, 0.0, 0.0)

random_cases = settings(
    max_examples=examples(300),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def simulate(
    arrival_s: list[float], prompt: list[int], output: list[int], **config: Any
) -> ReferenceRun:
    """Run with 1 s steps, 8 seats, 64 tokens and blocks of 4, and check the invariants."""
    case = {
        "arrival_s": arrival_s,
        "prompt_tokens": prompt,
        "output_tokens": output,
        "cost": UNIT,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "block_size": 4,
    } | config
    run = run_case(case)
    check_invariants(run, case)
    return run


def same(a: list[float], b: list[float]) -> bool:
    """Compare exactly, NaN being equal to NaN."""
    return np.array_equal(np.asarray(a, float), np.asarray(b, float), equal_nan=True)


def assert_same_run(a: ReferenceRun, b: ReferenceRun, but: tuple[str, ...] = ()) -> None:
    """Assert that two runs agree in every number."""
    for name in vars(a):
        if name in (*but, "token_times_s"):
            continue
        x, y = getattr(a, name), getattr(b, name)
        assert same(x, y) if isinstance(x, list) else x == y, f"{name}: {x} != {y}"
    assert a.token_times_s == b.token_times_s


# -- rules 2, 4 and 5: one step's work and price ------------------------------------------------
def test_one_request_pays_each_feature_by_its_coefficient() -> None:
    """If it failed, a step's price would not be the page's five terms."""
    # A: arrival 0.5, prompt 5, output 3; cost 1 + n_p/8 + pairs/16 + n_d/2 + kv/32
    # A5: pairs 1+2+3+4+5 = 15         1 + 0.625 + 0.9375 = 2.5625      e1@3.0625
    # A*: reads 5 + 1 = 6              1 + 0.5 + 0.1875   = 1.6875      e2@4.75
    # A*: reads 5 + 2 = 7              1 + 0.5 + 0.21875  = 1.71875     e3@6.46875, end
    run = simulate([0.5], [5], [3], cost=(1.0, 0.125, 0.0625, 0.5, 0.03125))
    assert run.scheduled_s == [0.5]
    assert run.token_times(0) == [3.0625, 4.75, 6.46875]
    assert run.first_token_s == [3.0625]
    assert run.finish_s == [6.46875]
    assert run.step_prefill_tokens == [5, 0, 0]
    assert run.step_prefill_pairs == [15, 0, 0]
    assert run.step_decode_seqs == [0, 1, 1]
    assert run.step_kv_tokens == [0, 6, 7]


def test_chunks_share_a_step_with_a_decode() -> None:
    """If it failed, chunked prefill would not fill what the running requests leave."""
    # budget 4; A: prompt 6, output 2; B: prompt 3, output 2; both at 0
    # 0-1  A4        pairs 10
    # 1-2  A2 B2     pairs (2*4 + 3) + 3 = 14                                A e1@2
    # 2-3  A* B1     B lacks one token but has emitted none: a prefill,
    #                pairs 1*2 + 1 = 3; A reads 6 + 1 = 7                    A e2@3, B e1@3
    # 3-4  B*        reads 3 + 1 = 4                                         B e2@4
    run = simulate([0, 0], [6, 3], [2, 2], max_num_batched_tokens=4)
    assert run.token_times_s == [[2, 3], [3, 4]]
    assert run.scheduled_s == [0, 1]
    assert run.step_prefill_tokens == [4, 4, 1, 0]
    assert run.step_prefill_pairs == [10, 14, 3, 0]
    assert run.step_decode_seqs == [0, 0, 1, 1]
    assert run.step_kv_tokens == [0, 0, 7, 4]


def test_a_step_with_a_decode_and_a_chunk_costs_both() -> None:
    """If it failed, a mixed step would be priced as one of its halves, or without its base."""
    # as above, third step: features (1, 3, 1, 7), cost 1 + 1/2 + 3/4 + 1*8 + 7/16 = 10.6875
    run = simulate(
        [0, 0], [6, 3], [2, 2], max_num_batched_tokens=4, cost=(1.0, 0.5, 0.25, 8, 1 / 16)
    )
    assert run.step_end_s[2] - run.step_start_s[2] == 10.6875


def test_an_arrival_on_the_boundary_joins_the_step_that_begins_there() -> None:
    """If it failed, ties between arrivals and step ends would be decided the other way."""
    # A: 0-1 A1 (e1@1), 1-2; B arrives at 1.0 exactly, C just after it
    run = simulate([0, 1.0, math.nextafter(1.0, 2.0)], [1, 1, 1], [2, 1, 1])
    assert run.scheduled_s == [0, 1, 2]


def test_seats_are_taken_by_requests_that_stand_still() -> None:
    """If it failed, a budget below the running requests would cost somebody the seat."""
    # prefill first, budget 2, 4 seats, four requests of prompt 1 and output 2 at 0
    # 0-1 A1 B1   1-2 C1 D1 (A and B stand still)   2-3 A* B* (C, D stand still)   3-4 C* D*
    run = simulate(
        [0] * 4, [1] * 4, [2] * 4, max_num_seqs=4, max_num_batched_tokens=2,
        enable_chunked_prefill=False,
    )  # fmt: skip
    assert run.token_times_s == [[1, 3], [1, 3], [2, 4], [2, 4]]
    assert run.step_prefill_tokens == [2, 2, 0, 0]
    assert run.step_decode_seqs == [0, 0, 2, 2]


def test_a_full_house_makes_the_next_one_wait() -> None:
    """If it failed, more requests would run than there are seats."""
    # 2 seats; A and B: output 2; C waits until both end at 2
    run = simulate([0, 0, 0], [1, 1, 1], [2, 2, 1], max_num_seqs=2)
    assert run.token_times_s == [[1, 2], [1, 2], [3]]


def test_the_empty_engine_sleeps_until_the_next_arrival() -> None:
    """If it failed, the clock would tick through idle time."""
    run = simulate([0, 7.25], [1, 1], [1, 1])
    assert run.step_start_s == [0, 7.25]
    assert run.finish_s == [1, 8.25]


# -- KV blocks -------------------------------------------------------------------------------
def test_blocks_grow_when_a_context_crosses_a_block() -> None:
    """If it failed, KV would be counted in tokens, or a step late."""
    # prompt 3, output 4: tokens with KV after each step 3, 4, 5, 6; the sixth token is the last
    run = simulate([0], [3], [4], num_kv_blocks=2)
    assert run.step_kv_blocks == [1, 1, 2, 2]


def test_two_fight_for_the_last_block_and_the_later_one_gives_way() -> None:
    """If it failed, a preempted request would lose tokens, or its recompute would be free."""
    # 3 blocks; A and B: prompt 4, output 5 (8 tokens, 2 blocks each)
    # 0-1  A4 B4   2 blocks                                            A e1@1, B e1@1
    # 1-2  A*      A takes the third; B finds none, preempts itself;   A e2@2
    #              the pass ends, nobody is admitted
    # 2-5  A*      B lacks 4 + 1 = 5: 2 blocks, 1 is free              A e3@3 e4@4 e5@5, end
    # 5-6  B5      recompute counts as prefill                         B e2@6
    # 6-9  B*                                                          B e3@7 e4@8 e5@9
    run = simulate([0, 0], [4, 4], [5, 5], num_kv_blocks=3)
    assert run.token_times_s == [[1, 2, 3, 4, 5], [1, 6, 7, 8, 9]]
    assert run.preemptions == [0, 1]
    assert run.self_preemptions == 1
    assert run.step_prefill_tokens == [8, 0, 0, 0, 0, 5, 0, 0, 0]
    assert run.step_decode_seqs == [0, 1, 1, 1, 1, 0, 1, 1, 1]
    assert run.step_kv_blocks == [2, 2, 2, 2, 2, 2, 2, 2, 2]


def test_nobody_is_admitted_in_a_step_that_preempted() -> None:
    """If it failed, a waiting request would take the very blocks that a preemption freed."""
    # as above, but C (prompt 1, output 1, arrival 1.0) waits when B gives way: one block is free
    # after A took its second, yet C may not have it in step 1-2. In 2-3 B is at the head, its two
    # blocks do not fit, and C behind it must wait as well (head of line) until A ends at 5.
    run = simulate([0, 0, 1.0], [4, 4, 1], [5, 5, 1], num_kv_blocks=3)
    assert run.preemptions == [0, 1, 0]
    assert run.token_times_s == [[1, 2, 3, 4, 5], [1, 6, 7, 8, 9], [6]]


def test_the_last_running_request_pays_for_an_earlier_one() -> None:
    """If it failed, the wrong request would be preempted."""
    # 3 blocks; A: prompt 3, output 3; B: prompt 5, output 4
    # 0-1  A3 B5   1 + 2 blocks                                      A e1@1, B e1@1
    # 1-2  A* B*   A has 4 tokens, B 6: no new block                 A e2@2, B e2@2
    # 2-3  A*      A's fifth token needs a block: B is preempted     A e3@3, end
    # 3-4  B7      5 + 2 tokens again                                B e3@4
    # 4-5  B*                                                        B e4@5
    run = simulate([0, 0], [3, 5], [3, 4], num_kv_blocks=3)
    assert run.token_times_s == [[1, 2, 3], [1, 2, 4, 5]]
    assert run.preemptions == [0, 1]
    assert run.self_preemptions == 0
    assert run.step_prefill_tokens == [8, 0, 0, 7, 0]
    assert run.step_decode_seqs == [0, 2, 1, 0, 1]
    assert run.step_kv_blocks == [3, 3, 2, 2, 2]


def test_of_two_preempted_in_one_step_the_earlier_admitted_comes_back_first() -> None:
    """If it failed, the queue's front would show the preempted in the wrong order."""
    # 4 blocks; A, B: prompt 4, output 3; C, D: prompt 4, output 8 (11 tokens, 3 blocks)
    # 0-1  A4 B4 C4 D4                                               all e1@1
    # 1-2  A* (preempts D)  B* (preempts C): the front is C, D       A, B e2@2
    # 2-3  A* B*                                                     A, B e3@3, end
    # 3-4  C5 D5                                                     C, D e2@4
    # 4-7  C* D*                                                     e3@5 e4@6 e5@7
    # 7-8  C* : its ninth token needs a block; D is last and gives way      C e6@8
    # 8-10 C*                                                        C e7@9 e8@10, end
    # 10-  D9, D*, D*                                                D e6@11 e7@12 e8@13
    # (had D come back first, C would have given way and ended last)
    run = simulate([0] * 4, [4] * 4, [3, 3, 8, 8], num_kv_blocks=4)
    assert run.preemptions == [0, 0, 1, 2]
    assert run.token_times(2) == [1, 4, 5, 6, 7, 8, 9, 10]
    assert run.token_times(3) == [1, 4, 5, 6, 7, 11, 12, 13]


def test_the_last_single_token_of_a_recompute_is_a_decode() -> None:
    """If it failed, a recompute cut to 4 + 1 would be priced as two prefills."""
    # 3 blocks, budget 4; A: prompt 4, output 4; B: prompt 4, output 3
    # 0-1  A4                                                        A e1@1
    # 1-2  A* B3   A has 5 tokens (2 blocks), B 1 block              A e2@2
    # 2-3  A* B1   B has emitted nothing: its last token is prefill  A e3@3, B e1@3
    # 3-4  A*      B's fifth token finds no block                    A e4@4, end
    # 4-5  B4      recompute, cut by the budget
    # 5-6  B*      lacks exactly one and has emitted: reads 4 + 1    B e2@6
    # 6-7  B*      reads 4 + 2                                       B e3@7
    run = simulate([0, 0], [4, 4], [4, 3], num_kv_blocks=3, max_num_batched_tokens=4)
    assert run.token_times_s == [[1, 2, 3, 4], [3, 6, 7]]
    assert run.step_prefill_tokens == [4, 3, 1, 0, 4, 0, 0]
    assert run.step_decode_seqs == [0, 1, 1, 1, 0, 1, 1]
    assert run.step_kv_tokens == [0, 5, 6, 7, 0, 5, 6]


def test_a_chunk_is_admitted_by_its_own_blocks_not_the_whole_prompts() -> None:
    """If it failed, admission would reserve a whole prompt."""
    # 3 blocks, budget 8; A: prompt 4, output 4 (7 tokens, 2 blocks); B: prompt 12, output 1
    # 0-1  A4 B4   B's chunk needs 1 block of its 3; 2 held          A e1@1
    # 1-2  A* B7   A's fifth token takes the third block, B's 11 tokens need two more:
    #              B gives way                                       A e2@2
    # 2-3  A*      B at the head would take 7: 2 blocks, 1 free      A e3@3
    # 3-4  A*                                                        A e4@4, end
    # 4-5  B8      5-6  B4                                           B e1@6
    run = simulate([0, 0], [4, 12], [4, 1], num_kv_blocks=3, max_num_batched_tokens=8,
                   scheduler_reserve_full_isl=False)  # fmt: skip
    assert run.token_times_s == [[1, 2, 3, 4], [6]]
    assert run.scheduled_s == [0, 0]
    assert run.preemptions == [0, 1]
    assert run.step_prefill_tokens == [8, 0, 0, 0, 8, 4]
    assert run.step_kv_blocks == [2, 2, 2, 2, 2, 3]


# -- rejection -------------------------------------------------------------------------------
def test_what_can_never_be_held_is_rejected_on_arrival() -> None:
    """If it failed, an impossible request would hang the engine, or a possible one be lost."""
    # 2 blocks of 4: prompt 4 + output 5 - 1 = 8 tokens fit, output 6 does not. The rejected
    # request does not wake the engine: its first step begins at 1.
    run = simulate([0, 1], [4, 4], [6, 5], num_kv_blocks=2)
    assert run.status == [REJECTED, FINISHED]
    assert run.step_start_s[0] == 1
    assert math.isnan(run.scheduled_s[0])
    assert run.token_times(0) == []


def test_without_chunks_what_exceeds_the_budget_is_rejected() -> None:
    """If it failed, a recompute could be longer than any step."""
    # budget 8: prompt 4 + output 5 - 1 = 8 fits, output 6 does not
    config = {"max_num_batched_tokens": 8}
    run = simulate([0, 0], [4, 4], [6, 5], **config, enable_chunked_prefill=False)
    assert run.status == [REJECTED, FINISHED]
    assert simulate([0, 0], [4, 4], [6, 5], **config).status == [FINISHED, FINISHED]


# -- prefill first ---------------------------------------------------------------------------
def test_prefill_first_lets_decodes_stand_still() -> None:
    """If it failed, the older way would not stall running requests, its whole point."""
    # A at 0: prompt 4, output 3; B at 0.5: prompt 4, output 2
    # 0-1 A4 (e1@1)   1-2 B4, A stands still (B e1@2)   2-3 A* B* (B ends)   3-4 A* (A ends)
    run = simulate([0, 0.5], [4, 4], [3, 2], enable_chunked_prefill=False)
    assert run.token_times_s == [[1, 3, 4], [2, 3]]
    assert run.step_prefill_tokens == [4, 4, 0, 0]
    assert run.step_decode_seqs == [0, 0, 2, 1]


def test_prefill_first_takes_whole_prompts_and_stops_at_the_first_that_does_not_fit() -> None:
    """If it failed, a short request would overtake a long one."""
    # budget 6: A (4) is taken, B (3) does not fit the 2 left and stops the pass for C (2)
    run = simulate([0] * 3, [4, 3, 2], [1] * 3, max_num_batched_tokens=6,
                   enable_chunked_prefill=False)  # fmt: skip
    assert run.finish_s == [1, 2, 2]
    assert run.step_prefill_tokens == [4, 5]


def test_prefill_first_preempts_and_recomputes_whole() -> None:
    """If it failed, KV pressure would be handled otherwise without chunks."""
    # 3 blocks; A and B: prompt 4, output 5
    # 0-1 A4 B4   1-2 A* (B gives way)   2-5 A*: B's 5 tokens need 2 blocks, 1 is free
    # 5-6 B5   6-9 B*: as with chunks
    run = simulate([0, 0], [4, 4], [5, 5], num_kv_blocks=3, enable_chunked_prefill=False)
    assert run.token_times_s == [[1, 2, 3, 4, 5], [1, 6, 7, 8, 9]]


# -- single and static -----------------------------------------------------------------------
def test_single_serves_one_after_the_other() -> None:
    """If it failed, the baseline of every comparison would batch."""
    run = simulate([0, 0, 0], [2, 2, 2], [2, 1, 2], batching="single")
    assert run.token_times_s == [[1, 2], [3], [4, 5]]


def test_static_waits_for_its_longest_and_pays_for_ended_slots() -> None:
    """If it failed, static batching would look better than it is."""
    # B = 2; A: prompt 2, output 1; B: prompt 3, output 4; C: prompt 1, output 2; all at 0
    # 0-1  A2 B3                                                     A e1@1 = end, B e1@1
    # 1-2  B* reads 4, A's slot 2                                    B e2@2
    # 2-3  B* reads 5, A's slot 2                                    B e3@3
    # 3-4  B* reads 6, A's slot 2                                    B e4@4, end of the batch
    # 4-5  C1: the last, incomplete batch                            C e1@5
    # 5-6  C* reads 2                                                C e2@6
    run = simulate([0] * 3, [2, 3, 1], [1, 4, 2], batching="static", batch_size=2,
                   num_kv_blocks=10)  # fmt: skip
    assert run.token_times_s == [[1], [1, 2, 3, 4], [5, 6]]
    assert run.step_prefill_tokens == [5, 0, 0, 0, 1, 0]
    assert run.step_decode_seqs == [0, 2, 2, 2, 0, 1]
    assert run.step_kv_tokens == [0, 6, 7, 8, 0, 2]
    assert run.step_kv_blocks == [2, 2, 3, 3, 1, 1]


def test_static_prefills_in_budget_sized_steps_before_anyone_decodes() -> None:
    """If it failed, members would decode before the batch is whole."""
    # budget 4, B = 2; prompts 6 and 3, outputs 2
    # 0-1 A4   1-2 A2 B2 (A e1@2)   2-3 B1 (B e1@3; A stands still)   3-4 A* B*
    run = simulate([0, 0], [6, 3], [2, 2], batching="static", batch_size=2,
                   max_num_batched_tokens=4)  # fmt: skip
    assert run.token_times_s == [[2, 4], [3, 4]]
    assert run.scheduled_s == [0, 1]
    assert run.step_prefill_tokens == [4, 4, 1, 0]
    assert run.step_decode_seqs == [0, 0, 0, 2]


def test_static_without_chunks_splits_no_prompt() -> None:
    """If it failed, the switch would mean something else in static batching."""
    # budget 7, B = 2; prompts 6 and 3: one step each
    run = simulate([0, 0], [6, 3], [2, 2], batching="static", batch_size=2,
                   max_num_batched_tokens=7, enable_chunked_prefill=False)  # fmt: skip
    assert run.step_prefill_tokens == [6, 3, 0]


@pytest.mark.parametrize(
    ("arrivals", "size", "window_s", "starts"),
    [
        ([0, 5], 2, None, [5, 5]),  # until two wait
        ([0, 5], 2, 2.0, [2, 7]),  # or two seconds have passed since the first of them
        ([0, 2], 4, 2.0, [2, 2]),  # an arrival on the deadline is in
        ([0, 0.25, 0.5], 2, 3.0, [0.25, 0.25, 3.5]),  # C's clock began at its own arrival
        ([0, 0.25, 0.5, 0.75], 2, 0.0, [0, 1, 1, 2]),  # busy till 1, then overdue at once
        ([0, 3, 4], 8, None, [4, 4, 4]),  # nobody can complete it after the last arrival
    ],
)
def test_static_starts_when_full_or_when_its_window_is_over(
    arrivals: list[float], size: int, window_s: float | None, starts: list[float]
) -> None:
    """If it failed, static batches would form at other times than the page's."""
    n = len(arrivals)
    run = simulate(arrivals, [1] * n, [1] * n, batching="static", batch_size=size,
                   window_s=window_s)  # fmt: skip
    assert run.scheduled_s == starts


def test_static_does_not_wait_for_requests_it_would_reject() -> None:
    """If it failed, a batch would wait for an arrival that can never join it."""
    # 2 blocks of 4 tokens: the request at 9 (9 tokens) is rejected; A and B start at 3
    run = simulate([0, 3, 9], [1, 1, 9], [1, 1, 1], batching="static", batch_size=3,
                   num_kv_blocks=2)  # fmt: skip
    assert run.scheduled_s[:2] == [3, 3]
    assert run.status == [FINISHED, FINISHED, REJECTED]


def test_static_takes_only_as_many_as_have_room_to_the_end() -> None:
    """If it failed, a static batch would run out of blocks half-way."""
    # 3 blocks; each needs 4 + 5 - 1 = 8 tokens, 2 blocks: one at a time in spite of B = 2
    run = simulate([0, 0], [4, 4], [5, 5], batching="static", batch_size=2, num_kv_blocks=3)
    assert run.scheduled_s == [0, 5]
    assert run.preemptions == [0, 0]


@pytest.mark.parametrize("size", [None, 0, 9])
def test_static_refuses_a_batch_that_has_no_seats(size: int | None) -> None:
    """If it failed, a step would have more sequences than seats."""
    with pytest.raises(ValueError, match="batch_size"):
        simulate([0], [1], [1], batching="static", batch_size=size)


# -- windowed and adaptive -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("arrivals", "seats", "starts"),
    [
        ([0, 1, 1.5], 8, [2, 2, 2]),  # the window's whole two seconds
        ([0, 2, 2.5], 8, [2, 2, 3]),  # an arrival on its end is in; a busy engine does not wait
        ([0, 1, 1.5], 2, [1, 1, 2]),  # two wait, two seats: no use in waiting
        ([0, 4], 8, [2, 6]),  # the engine went idle: it waits again
        ([0, 3], 8, [2, 5]),  # at 3, just when A ends, B finds it idle
        ([0, 2.75, 3], 8, [2, 3, 3]),  # a boundary with somebody waiting is not idle
    ],
)
def test_a_window_makes_an_idle_engine_wait(
    arrivals: list[float], seats: int, starts: list[float]
) -> None:
    """If it failed, the wait window would cost another delay than w."""
    n = len(arrivals)
    run = simulate(arrivals, [1] * n, [1] * n, batching="windowed", window_s=2.0,
                   max_num_seqs=seats)  # fmt: skip
    assert run.scheduled_s == starts


@pytest.mark.parametrize(
    ("arrivals", "starts"),
    [
        # w = 0.5 s: two arrivals in the last second promise one within it
        ([0], [0]),
        ([0, 0, 0.25], [0.5, 0.5, 0.5]),  # two at 0: wait; the third joins
        # A alone starts at once, ends at 0.25. B at 0.75: A's arrival still counts, so B waits,
        # but not to 1.25: at 1.0 A's arrival is a second old and the promise is gone
        ([0, 0.75], [0, 1.0]),
        ([0, 0.75, 0.875], [0, 1.25, 1.25]),  # B and C promise enough without A
        ([0, 1.0], [0, 1.0]),  # a second old no longer counts
    ],
)
def test_an_adaptive_window_waits_only_while_arrivals_promise_company(
    arrivals: list[float], starts: list[float]
) -> None:
    """If it failed, the adaptive window would delay a lone request."""
    n = len(arrivals)
    run = simulate(arrivals, [1] * n, [1] * n, batching="adaptive", window_s=0.5,
                   cost=(0.25, 0, 0, 0, 0))  # fmt: skip
    assert run.scheduled_s == starts


# -- orders ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("max_wait_s", "starts"),
    [
        (None, [0, 4, 3]),  # C is shorter
        (2.5, [0, 4, 3]),  # B has waited 2.5 s, not longer
        (2.0, [0, 3, 4]),  # B is overdue, C (1.5 s) is not
        (1.0, [0, 3, 4]),  # both are overdue: by arrival
    ],
)
def test_shortest_first_unless_somebody_is_overdue(
    max_wait_s: float | None, starts: list[float]
) -> None:
    """If it failed, sjf would starve, or not prefer the short."""
    # one seat; A runs 0-3; B (arrival 0.5) is predicted 9, C (1.5) is predicted 2
    run = simulate([0, 0.5, 1.5], [1, 1, 1], [3, 1, 1], max_num_seqs=1, order="sjf",
                   predicted_output_tokens=[1, 9, 2], max_wait_s=max_wait_s)  # fmt: skip
    assert run.scheduled_s == starts


def test_shortest_first_by_the_true_length_where_nothing_is_predicted() -> None:
    """If it failed, an oracle would not be the default; ties would not go by arrival."""
    run = simulate([0, 0, 0, 0], [1] * 4, [3, 2, 1, 2], max_num_seqs=1, order="sjf")
    assert run.scheduled_s == [5, 1, 0, 3]


def test_shortest_first_resumes_the_preempted_before_it_starts_anyone() -> None:
    """If it failed, a long request that was preempted would wait behind newcomers."""
    # The fight for the last block; C (prompt 1, output 1, at 3.0) is shorter than B's 5, but B
    # stands at the front since 1-2: C starts with B at 5.
    run = simulate([0, 0, 3.0], [4, 4, 1], [5, 5, 1], num_kv_blocks=3, order="sjf")
    assert run.preemptions == [0, 1, 0]
    assert run.scheduled_s == [0, 0, 5]


@pytest.mark.parametrize(
    ("ageing_s", "starts"),
    [
        (None, [0, 4, 3]),  # C is more urgent
        (1.0, [0, 3, 4]),  # keys 1 + 0.5 and 0 + 2.5: B has aged past it
        (2.0, [0, 3, 4]),  # keys 1.25 and 1.25: a tie, by arrival
        (4.0, [0, 4, 3]),  # keys 1.125 and 0.625
    ],
)
def test_priority_ages(ageing_s: float | None, starts: list[float]) -> None:
    """If it failed, a low priority would starve, or never matter."""
    # one seat; A runs 0-3; B (arrival 0.5) has value 1, C (arrival 2.5) has value 0
    run = simulate([0, 0.5, 2.5], [1, 1, 1], [3, 1, 1], max_num_seqs=1, order="priority",
                   priority=[0, 1, 0], ageing_s=ageing_s)  # fmt: skip
    assert run.scheduled_s == starts


def test_the_lowest_priority_gives_way_even_when_already_scheduled() -> None:
    """If it failed, an urgent request would be preempted for a less urgent one."""
    # 3 blocks; A at 0 (value 5), B at 0.5 (value 0): prompt 4, output 5 each
    # 0-1  A4                                                        A e1@1
    # 1-2  A* B4   2 + 1 blocks                                      A e2@2, B e1@2
    # 2-3  B*      A is scheduled first, then B finds no block: A, the lowest, is withdrawn
    #                                                                B e2@3
    # 3-6  B*      A lacks 6: 2 blocks, 1 is free                    B e3@4 e4@5 e5@6, end
    # 6-9  A6 A* A*                                                  A e3@7 e4@8 e5@9
    run = simulate([0, 0.5], [4, 4], [5, 5], num_kv_blocks=3, order="priority", priority=[5, 0])
    assert run.token_times_s == [[1, 2, 7, 8, 9], [2, 3, 4, 5, 6]]
    assert run.preemptions == [1, 0]
    assert run.withdrawals == 1
    assert run.step_decode_seqs == [0, 1, 1, 1, 1, 1, 0, 1, 1]


def test_what_a_withdrawn_request_leaves_goes_to_those_after_it() -> None:
    """If it failed, a withdrawal would waste its share of the budget, or skip somebody's turn."""
    # 9 blocks, budget 6; A at 0 (value 5): prompt 4, output 12; B at 0.5 (value 0): prompt 4,
    # output 9; C at 1.5 (value 1): prompt 21, output 1. KV tokens at each step's end:
    # 0-1 A 4   1-2 A 5, B 4   2-3 A 6, B 5, C 4   3-4 A 7, B 6, C 8   4-5 A 8, B 7, C 12
    # 5-6 A 9, B 8, C 16: 3 + 2 + 4 blocks, all nine
    # 6-7 A*; B's ninth token needs a block: A is withdrawn, its token and its blocks go back;
    #     B*; C lacks 5 and gets 6 - 1 = 5 (4, had A's token been lost)           C e1@7, end
    run = simulate([0, 0.5, 1.5], [4, 4, 21], [12, 9, 1], num_kv_blocks=9,
                   max_num_batched_tokens=6, order="priority", priority=[5, 0, 1],
                   scheduler_reserve_full_isl=False)  # fmt: skip
    assert run.step_prefill_tokens[:7] == [4, 4, 4, 4, 4, 4, 5]
    assert run.step_decode_seqs[:7] == [0, 1, 2, 2, 2, 2, 1]
    assert run.step_kv_blocks[:7] == [1, 3, 5, 6, 7, 9, 9]
    assert run.preemptions == [1, 0, 0]
    assert run.finish_s[2] == 7


def test_among_equal_priorities_the_later_one_gives_way() -> None:
    """If it failed, priority without values would not be first come, first served."""
    fcfs = simulate([0, 0], [4, 4], [5, 5], num_kv_blocks=3)
    assert_same_run(fcfs, simulate([0, 0], [4, 4], [5, 5], num_kv_blocks=3, order="priority"))


def test_a_preempted_low_priority_does_not_block_a_higher_one() -> None:
    """If it failed, the victim at the queue's front would invert the priorities."""
    # as above; C (prompt 1, output 1, value 1) arrives at 2.5 and takes the free block at 3
    run = simulate([0, 0.5, 2.5], [4, 4, 1], [5, 5, 1], num_kv_blocks=3, order="priority",
                   priority=[5, 0, 1])  # fmt: skip
    assert run.scheduled_s[2] == 3


def test_a_pass_that_preempts_the_only_scheduled_is_not_a_step() -> None:
    """If it failed, there would be a step without work."""
    # 3 blocks; A at 0 (value 5): prompt 3, output 6; B at 0.5 (value 0): prompt 7, output 2
    # 0-1  A3                                                        A e1@1
    # 1-2  A* B7   1 + 2 blocks                                      A e2@2, B e1@2
    # at 2 A is first in the running list, needs a block and is the lowest: it gives way, the pass
    #      ends with nothing scheduled; scheduling begins again at 2
    # 2-3  B*      A's 5 tokens need 2 blocks, 1 is free             B e2@3, end
    # 3-7  A5 A* A* A*                                               A e3@4 .. e6@7
    run = simulate([0, 0.5], [3, 7], [6, 2], num_kv_blocks=3, order="priority", priority=[5, 0])
    assert run.token_times_s == [[1, 2, 4, 5, 6, 7], [2, 3]]
    assert run.empty_passes == 1
    assert run.preemptions == [1, 0]


# -- prefix cache ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("prompt", "cached", "prefill", "pairs", "blocks"),
    [
        (10, 9, 2, 2 * 8 + 3, 3),  # two full blocks of four
        (8, 8, 4, 4 * 4 + 10, 2),  # at most prompt - 1 = 7 tokens: one full block
        (9, 8, 1, 1 * 8 + 1, 3),  # one token is left: a prefill
        (8, 3, 8, 36, 2),  # no full block
    ],
)
def test_prefix_hits_are_full_blocks_of_the_requests_own(
    prompt: int, cached: int, prefill: int, pairs: int, blocks: int
) -> None:
    """If it failed, a cached prefix would be recomputed, or held by nobody."""
    run = simulate([0], [prompt], [1], cached_prefix_tokens=[cached], num_kv_blocks=9)
    assert run.step_prefill_tokens == [prefill]
    assert run.step_prefill_pairs == [pairs]
    assert run.step_kv_blocks == [blocks]


@pytest.mark.parametrize("chunked", [True, False])
def test_a_hit_needs_free_blocks_too(chunked: bool) -> None:
    """If it failed, a cached prefix would be held in blocks that somebody else has."""
    # 4 blocks; A: prompt 8, output 2; B: prompt 9, 8 cached: one token to do, three blocks
    # 0-1 A8 (B finds 2 free)   1-2 A* (3 blocks), end   2-3 B1
    run = simulate([0, 0], [8, 9], [2, 1], cached_prefix_tokens=[0, 8], num_kv_blocks=4,
                   enable_chunked_prefill=chunked)  # fmt: skip
    assert run.step_prefill_tokens == [8, 0, 1]
    assert run.scheduled_s == [0, 2]


def test_a_preemption_forgets_the_hit() -> None:
    """If it failed, a recompute would be cheaper than the page says."""
    # 5 blocks; A: prompt 4, output 6 (9 tokens, 3 blocks); B: prompt 9, 8 cached, output 4
    # 0-1  A4 B1   1 + 3 blocks                                      A e1@1, B e1@1
    # 1-4  A* B*   A has 5..7 tokens (2 blocks), B 10..12 (3)        e2@2 e3@3 e4@4, B ends
    # That is no fight; with 4 blocks B must give way at 1-2:
    # 1-2  A*      A takes a block from B                            A e2@2
    # 2-6  A*      B lacks 10 (3 blocks; 2, then 1 are free)         A e3@3 .. e6@6, end
    # 6-7  B10     all of it again, 9 + 1 tokens                     B e2@7
    config = {"cached_prefix_tokens": [0, 8]}
    free = simulate([0, 0], [4, 9], [6, 4], num_kv_blocks=5, **config)
    assert free.step_prefill_tokens == [5, 0, 0, 0, 0, 0]
    tight = simulate([0, 0], [4, 9], [6, 4], num_kv_blocks=4, **config)
    assert tight.preemptions == [0, 1]
    assert tight.step_prefill_tokens == [5, 0, 0, 0, 0, 0, 10, 0, 0]


# -- horizon ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("horizon_s", "steps", "status"),
    [
        (3.0, 3, [UNFINISHED, UNFINISHED, UNFINISHED]),  # no step begins at 3.0; C is offered
        (2.5, 3, [UNFINISHED, UNFINISHED]),  # the step 2-3 is completed; B arrived at 2.5
        (2.0, 2, [UNFINISHED]),
        (0.0, 0, [UNFINISHED]),
        (4.5, 5, [FINISHED, FINISHED, FINISHED, UNFINISHED]),
    ],
)
def test_the_step_in_flight_at_the_horizon_is_completed(
    horizon_s: float, steps: int, status: list[int]
) -> None:
    """If it failed, the horizon would lose a request or a step."""
    # A at 0: output 5; B at 2.5, C at 3.0, D at 3.5: output 1, 1, 9; 1 s steps
    run = simulate([0, 2.5, 3.0, 3.5], [1] * 4, [5, 1, 1, 9], horizon_s=horizon_s)
    assert run.step_end_s == [float(k + 1) for k in range(steps)]
    assert run.status == status


def test_an_impossible_request_is_rejected_though_no_step_follows_it() -> None:
    """If it failed, a rejected request would count as unfinished."""
    run = simulate([0, 2.0], [1, 99], [1, 1], num_kv_blocks=2, horizon_s=2.0)
    assert run.status == [FINISHED, REJECTED]


# -- closed loop -----------------------------------------------------------------------------
def closed_run(case: dict[str, Any]) -> ReferenceRun:
    """Run a closed case with 1 s steps, 8 seats, 64 tokens and blocks of 4."""
    case = {
        "cost": UNIT,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 64,
        "block_size": 4,
    } | case
    run = run_case(case)
    check_invariants(run, case)
    return run


def test_two_users_think_and_come_back() -> None:
    """If it failed, a closed loop would not hold its number of users."""
    # both start at 0; 0-1, 1-2: both end at 2, think 1 s, send at 3, user 0 first; end at 5
    run = closed_run(
        {"users": 2, "think_s": 1.0, "prompt_tokens": [1] * 4, "output_tokens": [2] * 4}
    )
    assert run.arrival_s == [0, 0, 3, 3]
    assert run.user == [0, 1, 0, 1]
    assert run.finish_s == [2, 2, 5, 5]


def test_a_request_goes_to_who_sends_next_not_to_a_fixed_user() -> None:
    """If it failed, the k-th request would not be the k-th sent."""
    # user 0 starts at 1, user 1 at 0; outputs 4, 1, 1; no thinking; one step a second
    # user 1 sends k=0 at 0 (0-4); user 0 sends k=1 at 1 (1-2), k=2 at 2 (2-3)
    run = closed_run(
        {
            "users": 2,
            "think_s": 0.0,
            "start_s": [1.0, 0.0],
            "prompt_tokens": [1] * 3,
            "output_tokens": [4, 1, 1],
        }
    )
    assert run.user == [1, 0, 0]
    assert run.arrival_s == [0, 1, 2]
    assert run.finish_s == [4, 2, 3]


def test_each_request_has_its_own_think_time_and_equal_sends_go_by_user() -> None:
    """If it failed, think times would belong to users, or ties be left to chance."""
    # users 0 and 1 send k=0, k=1 at 0, both end at 1; they think 2.0 and 0.25 s:
    # user 1 sends k=2 at 1.25, ends at 2.25, thinks 0.75, is back at 3.0, as user 0: 0 first
    run = closed_run(
        {
            "users": 2,
            "think_s": [2.0, 0.25, 0.75, 0.0, 0.0],
            "prompt_tokens": [1] * 5,
            "output_tokens": [1] * 5,
        }
    )
    assert run.arrival_s == [0, 0, 1.25, 3.0, 3.0]
    assert run.user == [0, 1, 1, 0, 1]


def test_a_rejected_user_thinks_and_comes_back() -> None:
    """If it failed, a rejection would lose a user."""
    # one user, think 1 s; k=0 is impossible (rejected at 0), k=1 is sent at 1
    run = closed_run(
        {
            "users": 1,
            "think_s": 1.0,
            "prompt_tokens": [99, 1],
            "output_tokens": [1, 1],
            "num_kv_blocks": 2,
        }
    )
    assert run.status == [REJECTED, FINISHED]
    assert run.arrival_s == [0, 1]


def test_a_static_batch_starts_when_every_user_waits() -> None:
    """If it failed, fewer users than the batch has places would wait for ever."""
    # B = 4, three users who start at 0, 1 and 2: nobody else can come
    run = closed_run(
        {
            "users": 3,
            "think_s": 0.0,
            "start_s": [0.0, 1.0, 2.0],
            "prompt_tokens": [1] * 6,
            "output_tokens": [1] * 6,
            "batching": "static",
            "batch_size": 4,
        }
    )
    assert run.scheduled_s == [2, 2, 2, 3, 3, 3]


def test_a_send_after_the_horizon_is_not_made() -> None:
    """If it failed, the horizon would not close a closed loop."""
    run = closed_run(
        {
            "users": 1,
            "think_s": 1.0,
            "prompt_tokens": [1] * 9,
            "output_tokens": [1] * 9,
            "horizon_s": 3.5,
        }
    )
    assert run.arrival_s == [0, 2]
    assert run.status == [FINISHED, FINISHED]


def test_closed_loop_needs_a_start_a_user() -> None:
    """If it failed, a user without a start would silently be absent."""
    with pytest.raises(ValueError, match="start_s"):
        reference_simulate_closed(
            2, 0.0, [1], [1], UNIT, start_s=[0.0], max_num_seqs=1, max_num_batched_tokens=1
        )


# -- guards ----------------------------------------------------------------------------------
def test_a_step_of_no_duration_is_refused() -> None:
    """If it failed, time would stand still."""
    with pytest.raises(ValueError, match="must be > 0"):
        simulate([0], [1], [1], cost=(0.0, 0.0, 0.0, 0.0, 0.0))


def test_the_step_limit_ends_a_run_that_is_too_long() -> None:
    """If it failed, a fault in a rule would hang the test-suite."""
    with pytest.raises(RuntimeError, match="reached 5 steps"):
        simulate([0], [1], [9], max_steps=5)


# -- closed forms ----------------------------------------------------------------------------
def test_littles_law_by_hand() -> None:
    """If it failed, time in system would not add up to the requests inside."""
    # the two that share steps: A 0-3, B 0-4; N(t) = 2 on 0-3 and 1 on 3-4: 7 = 3 + 4
    run = simulate([0, 0], [6, 3], [2, 2], max_num_batched_tokens=4)
    stay = [end - start for start, end in zip(run.arrival_s, run.finish_s, strict=True)]
    assert sum(stay) == 2 * 3 + 1 * 1


@pytest.mark.parametrize(("law", "mean_s"), [("M/M/1", 2.0), ("M/D/1", 1.5)])
def test_one_seat_and_one_token_make_the_textbook_queue(law: str, mean_s: float) -> None:
    """If it failed, the engine would not contain the queue that lesson 02 explains."""
    # service 1 s on average at 1e-6 s a prompt token, 0.5 requests/s: mean sojourn
    # 1/(1 - 0.5) = 2 s, and 1 + 0.5/(2(1 - 0.5)) = 1.5 s for constant service
    n, batches = 8_000, 20
    rng = np.random.default_rng(20240611)
    arrival = np.cumsum(rng.exponential(2.0, n))
    prompt = np.ceil(rng.exponential(1e6, n)) if law == "M/M/1" else np.full(n, 1e6)
    run = reference_simulate(
        arrival.tolist(), [int(p) for p in prompt], [1] * n, (0.0, 1e-6, 0.0, 0.0, 0.0),
        max_num_seqs=1, max_num_batched_tokens=10**9,
    )  # fmt: skip
    sojourn = (np.array(run.finish_s) - np.array(run.arrival_s)).reshape(batches, -1).mean(axis=1)
    half_width = 2.861 * sojourn.std(ddof=1) / math.sqrt(batches)  # t, 19 degrees, 99 %
    assert abs(sojourn.mean() - mean_s) < half_width < 0.5


# -- random cases ----------------------------------------------------------------------------
@random_cases
@given(engine_cases(closed=None))
def test_what_must_hold_on_every_run_holds(case: dict[str, Any]) -> None:
    """If it failed, the reference would break one of the page's own promises."""
    run = run_case(case)
    check_invariants(run, case)
    assert_same_run(run, run_case(case))
    seats = 1 if case["batching"] == "single" else case["max_num_seqs"]
    assert all(1 <= seqs <= seats for seqs in run.step_seqs)
    assert all(end <= start for end, start in boundaries(run))


def boundaries(run: ReferenceRun) -> list[tuple[float, float]]:
    """Pair each step's end with the next one's start."""
    return list(zip(run.step_end_s[:-1], run.step_start_s[1:], strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("batching", BATCHINGS)
def test_each_mode_and_order_has_its_cases(batching: str, order: str) -> None:
    """If it failed, a mode with an order would break the promises and nobody would have looked."""

    @settings(random_cases, max_examples=examples(25))
    @given(engine_cases(closed=None, batching=batching, order=order))
    def check(case: dict[str, Any]) -> None:
        check_invariants(run_case(case), case)

    check()


@pytest.mark.slow
def test_random_cases_reach_the_rare_rules() -> None:
    """If it failed, the random comparison would pass without trying what is hard."""
    seen: dict[str, int] = {}

    # A withdrawal needs priorities and a full cache: drawn apart, or it is seen by luck alone.
    pressed = engine_cases(closed=None, order="priority", pressed=True)

    @settings(random_cases, max_examples=250)
    @given(engine_cases(closed=None) | pressed)
    def look(case: dict[str, Any]) -> None:
        run = run_case(case)
        facts = {
            "preempted": any(run.preemptions),
            "preempted itself": run.self_preemptions > 0,
            "preempted twice": max(run.preemptions, default=0) > 1,
            "withdrawn": run.withdrawals > 0,
            "a pass without a step": run.empty_passes > 0,
            "rejected": REJECTED in run.status,
            "unfinished": UNFINISHED in run.status,
            "mixed step": any(
                p and d for p, d in zip(run.step_prefill_tokens, run.step_decode_seqs, strict=True)
            ),
            "budget below seats": case["max_num_batched_tokens"] < case["max_num_seqs"],
            "tie of arrivals": len(set(run.arrival_s)) < len(run.arrival_s),
            "tie with a step end": bool(set(run.arrival_s) & set(run.step_end_s)),
            "closed": "users" in case,
        }
        for name, happened in facts.items():
            seen[name] = seen.get(name, 0) + happened

    look()
    assert all(count >= 3 for count in seen.values()), seen


@random_cases
@given(engine_cases(batching="static"))
def test_batches_of_one_are_the_single_engine(case: dict[str, Any]) -> None:
    """If it failed, two descriptions of one request at a time would disagree."""
    one = case | {"batch_size": 1, "window_s": None}
    assert_same_run(run_case(one), run_case(one | {"batching": "single", "batch_size": None}))


@random_cases
@given(engine_cases(closed=None, batching="windowed"))
def test_a_window_of_zero_is_continuous(case: dict[str, Any]) -> None:
    """If it failed, waiting zero seconds would cost something."""
    none = case | {"window_s": 0.0}
    assert_same_run(run_case(none), run_case(case | {"batching": "continuous", "window_s": None}))


@random_cases
@given(engine_cases())
def test_a_horizon_shows_the_beginning_of_the_whole_run(case: dict[str, Any]) -> None:
    """If it failed, the future would change the past."""
    if case["batching"] == "static" and case["window_s"] is None:
        return  # whose last batch knows that nobody else is offered
    whole = run_case(case | {"horizon_s": None})
    part = run_case(case | {"horizon_s": 6.0})
    steps = len(part.step_end_s)
    assert part.step_end_s == whole.step_end_s[:steps]
    for i, times in enumerate(part.token_times_s):
        assert times == whole.token_times_s[i][: len(times)]


@random_cases
@given(engine_cases(closed=True))
def test_a_closed_loop_replayed_as_an_open_workload_is_the_same_run(case: dict[str, Any]) -> None:
    """If it failed, the engine would serve a closed loop by other rules than an open one."""
    if case["batching"] == "static" and case["window_s"] is None:
        return  # whose last batch knows who may still come
    run = run_case(case)
    n = len(run.arrival_s)
    replay = {k: v for k, v in case.items() if k not in ("users", "start_s", "think_s")}
    replay |= {"arrival_s": run.arrival_s}
    for name in ("prompt_tokens", "output_tokens"):
        replay[name] = case[name][:n]
    assert_same_run(run, run_case(replay), but=("user",))


def test_a_fault_in_a_run_is_found_by_the_invariants() -> None:
    """If it failed, the checker would pass anything."""
    case = {
        "arrival_s": [0.0, 0.0],
        "prompt_tokens": [6, 3],
        "output_tokens": [2, 2],
        "cost": UNIT,
        "max_num_seqs": 8,
        "max_num_batched_tokens": 4,
        "block_size": 4,
        "num_kv_blocks": 9,
    }
    wrong: list[tuple[str, int, Any]] = [
        ("status", 0, REJECTED),
        ("status", 0, UNFINISHED),
        ("arrival_s", 0, 1.0),
        ("scheduled_s", 0, 2.5),
        ("first_token_s", 0, 1.0),
        ("finish_s", 0, 9.0),
        ("token_times_s", 0, [2.0]),
        ("token_times_s", 0, [2.0, 2.0]),
        ("token_times_s", 0, [2.0, 2.5]),
        ("step_prefill_tokens", 0, 5),
        ("step_prefill_tokens", 0, 3),
        ("step_decode_seqs", 3, 0),
        ("step_kv_blocks", 0, 10),
        ("step_end_s", 1, 0.5),
    ]
    check_invariants(run_case(case), case)
    for name, index, value in wrong:
        run = run_case(case)
        getattr(run, name)[index] = value
        with pytest.raises(AssertionError):
            check_invariants(run, case)
