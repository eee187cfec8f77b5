"""Today's rules of the scheduler in the reference, against timelines worked out on paper.

Unless a test says otherwise a step costs exactly 1 s, there are 8 seats, 64 tokens a step, and KV
blocks of 4 tokens. In the timelines "A4" is a prefill of 4 tokens of A, "A*" a decode of A, and
"e2@5" means that A emits its second token at 5 s. "[2 3 | 1 0]" is the free queue, head first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests import reference_engine
from tests.engine_invariants import check_invariants
from tests.engine_strategies import TODAY, today_cases
from tests.lanes import examples
from tests.reference_engine import FINISHED, REJECTED, ReferenceRun, run_case
from tests.reference_scheduler import Piece, Scheduler, step_of_work
from tests.reference_service import TIMED_OUT, Record, reference_service
from tests.service_strategies import today_service_cases

DIALS = {
    "cost": (1.0, 0.0, 0.0, 0.0, 0.0),
    "max_num_seqs": 8,
    "max_num_batched_tokens": 64,
    "block_size": 4,
    "scheduler_reserve_full_isl": True,
}
EASY = settings(deadline=None, suppress_health_check=list(HealthCheck))


def simulate(
    arrival_s: list[float], prompt: list[int], output: list[int], **config: Any
) -> ReferenceRun:
    """Run an open workload with the file's dials, and check the invariants."""
    rows = {"arrival_s": arrival_s, "prompt_tokens": prompt, "output_tokens": output}
    case = DIALS | rows | config
    run = run_case(case)
    check_invariants(run, case)
    return run


def serve(arrival_s: list[float], prompt: list[int], output: list[int], **case: Any) -> Record:
    """Run an open workload with clients and the file's dials."""
    rows = {"arrival_s": arrival_s, "prompt_tokens": prompt, "output_tokens": output}
    return reference_service(DIALS | rows | case)


# -- whole sequences and the watermark -----------------------------------------------------------
@pytest.mark.parametrize(
    ("whole", "starts", "preemptions", "blocks"),
    [
        # 0-1 A4 B4   1-2 A* takes the third block, B7 finds none and gives way   4-5 B8  5-6 B4 C?
        (False, [0, 0, 6], [0, 1, 0], [2, 2, 2, 2, 2, 3, 1]),
        # 0-1 A4 (B's 12 tokens want 3 blocks, 2 are free)  1-4 A*   4-5 B8   5-6 B4   6-7 C1
        (True, [0, 4, 6], [0, 0, 0], [1, 2, 2, 2, 2, 3, 1]),
    ],
)
def test_whoever_is_admitted_has_room_for_all_that_is_known_of_it(
    whole: bool, starts: list[float], preemptions: list[int], blocks: list[int]
) -> None:
    """If it failed, prompts would be begun that nobody can finish, or never begun."""
    # 3 blocks, budget 8; A: prompt 4, output 4 (2 blocks); B: prompt 12 (3 blocks), output 1;
    # C: prompt 1, behind B in either case.
    run = simulate(
        [0, 0, 0], [4, 12, 1], [4, 1, 1], num_kv_blocks=3, max_num_batched_tokens=8,
        scheduler_reserve_full_isl=whole,
    )  # fmt: skip
    assert run.scheduled_s == starts
    assert run.preemptions == preemptions
    assert run.step_kv_blocks == blocks
    assert run.token_times_s == [[1, 2, 3, 4], [6], [7]]


@pytest.mark.parametrize(("whole", "times"), [(False, [3, 6, 7]), (True, [3, 7, 8])])
def test_a_readmission_wants_room_for_what_was_emitted_too(whole: bool, times: list[float]) -> None:
    """If it failed, whole sequences would be looked at once, and chunks by chunks afterwards."""
    # 3 blocks, budget 4; A: prompt 4, output 5; B: prompt 4, output 3
    # 0-1 A4   1-2 A* B3   2-3 A* B1, B e1@3   3-4 A*, B's fifth token finds no block
    # 4-5 A* ends. B has 4 + 1 tokens: 3 of them would fit the budget and the one free block, ...
    #     ... in pieces:  B3   5-6 B2 e2@6   6-7 B* e3@7
    #     ... whole: two blocks, from 5 on.  5-6 B4   6-7 B* e2@7   7-8 B* e3@8
    run = simulate(
        [0, 0], [4, 4], [5, 3], num_kv_blocks=3, max_num_batched_tokens=4,
        scheduler_reserve_full_isl=whole,
    )  # fmt: skip
    assert run.token_times_s == [[1, 2, 3, 4, 5], times]
    assert run.preemptions == [0, 1]


@pytest.mark.parametrize(("watermark", "start"), [(0.0, 0), (0.24, 0), (0.25, 5), (0.49, 5)])
def test_a_watermark_keeps_newcomers_out_and_lets_those_inside_grow(
    watermark: float, start: float
) -> None:
    """If it failed, the blocks kept free would be kept from those whom they are kept for."""
    # 4 blocks, one of them kept (floor of 0.25 * 4 and of 0.49 * 4). A, B: prompt 4, output 5
    # (2 blocks each); C: prompt 4, output 1; D: prompt 1, output 1
    # 0-1 A4 B4 C4: the last one free is kept from D.   1-2 A* B* take both that are free
    # 5-6 D1
    run = simulate([0] * 4, [4, 4, 4, 1], [5, 5, 1, 1], num_kv_blocks=4, watermark=watermark)
    assert run.token_times_s[:3] == [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1]]
    assert run.scheduled_s[3] == start
    assert run.step_kv_blocks[:5] == [3 + (start == 0), 4, 4, 4, 4]
    assert run.preemptions == [0, 0, 0, 0]


def test_what_only_the_watermark_could_hold_is_rejected() -> None:
    """If it failed, a request would wait for ever for blocks that are kept free."""
    # 4 blocks, one kept: 12 tokens fit, 13 do not
    sizes = [12, 13]
    assert simulate([0, 0], sizes, [1, 1], num_kv_blocks=4, watermark=0.25).status == [
        FINISHED,
        REJECTED,
    ]
    static = {"batching": "static", "batch_size": 2}
    run = simulate([0, 0], [8, 8], [1, 1], num_kv_blocks=4, watermark=0.25, **static)
    assert run.scheduled_s == [0, 1]  # together they would need the block that is kept


# -- the prefix cache ----------------------------------------------------------------------------
def test_what_was_used_longest_ago_is_forgotten_first() -> None:
    """If it failed, the cache would forget what is asked for again and again."""
    # 4 blocks, one after the other; each prompt is two blocks, of which the first can be found
    # A takes 0 1, leaves [2 3 1 0]      B takes 2 3, leaves [1 0 3 2]
    # A finds 0, takes 1, leaves [3 2 1 0]: used again, it stands behind B's
    # C takes 3 2, leaves [1 0 2 3]      A finds 0, takes 1, leaves [2 3 1 0]
    # B finds nothing, takes 2 3
    names = {"A": [1, 2], "B": [3, 4], "C": [5, 6]}
    run = simulate(
        [0] * 6, [8] * 6, [1] * 6, batching="single", num_kv_blocks=4, enable_prefix_caching=True,
        prefix_ids=[names[who] for who in "ABACAB"], prefix_block_tokens=4,
    )  # fmt: skip
    assert run.prefix_hit_tokens == [0, 0, 4, 0, 4, 0]
    assert run.step_prefill_tokens == [8, 8, 4, 8, 4, 8]
    assert run.step_prefill_pairs[2] == 4 * 4 + 10
    assert run.recovered_tokens == [0] * 6


def test_of_one_request_the_last_block_is_forgotten_first() -> None:
    """If it failed, a prefix would lose its beginning, and with it all the rest."""
    # 4 blocks. A (12 tokens) takes 0 1 2, leaves [3 2 1 0]. B (8) takes 3 2. C begins as A and has
    # 13 tokens: A's first two blocks are there.
    run = simulate(
        [0, 1, 2], [12, 8, 13], [1, 1, 1], num_kv_blocks=4, enable_prefix_caching=True,
        prefix_ids=[[1, 2, 3], [4, 5], [1, 2, 3]], prefix_block_tokens=4,
    )  # fmt: skip
    assert run.prefix_hit_tokens == [0, 0, 8]


def test_a_traces_block_is_several_of_the_engines() -> None:
    """If it failed, traces with blocks of 512 tokens would be cut at other places."""
    # Names of 8 tokens, blocks of 4. A: 7 8; B: 7 9; both of 14 tokens: the first eight are alike,
    # the second name covers a whole block and a half
    run = simulate(
        [0, 1, 2], [14, 14, 14], [1, 1, 1], num_kv_blocks=9, enable_prefix_caching=True,
        prefix_ids=[[7, 8], [7, 9], [7, 8]], prefix_block_tokens=8,
    )  # fmt: skip
    assert run.prefix_hit_tokens == [0, 8, 12]


def test_blocks_are_shared_by_who_holds_them_at_once() -> None:
    """If it failed, a system prompt would be held once by each of its users."""
    # 7 blocks; A, B at 0 and C at 0.5: prompt 9, the first 8 tokens are the group's, output 2
    # 0-1 A9 B9: nothing is cached before the step's end; 3 + 3 blocks. A's two get the names.
    # 1-2 A* B* C1: C needs 3 blocks and finds 2, which A holds: one more          C e1@2
    # 2-3 C*: A's two are still held by C; A's third and all of B's are free        C e2@3
    run = simulate(
        [0, 0, 0.5], [9, 9, 9], [2, 2, 2], num_kv_blocks=7, enable_prefix_caching=True,
        prefix_group=[0, 0, 0], prefix_shared_tokens=[8, 8, 8],
    )  # fmt: skip
    assert run.step_kv_blocks == [6, 7, 3]
    assert run.step_prefill_tokens == [18, 1, 0]
    assert run.prefix_hit_tokens == [0, 0, 8]
    assert run.token_times_s == [[1, 2], [1, 2], [2, 3]]
    assert run.reached["name taken"] == 2


def test_groups_share_whole_blocks_of_what_they_share() -> None:
    """If it failed, strangers would find each other's words."""
    # 7 shared tokens are one whole block; -1 is no group; groups 0 and 1 have nothing in common
    run = simulate(
        [0, 1, 2, 3, 4], [9] * 5, [1] * 5, num_kv_blocks=20, enable_prefix_caching=True,
        prefix_group=[0, 0, 1, -1, -1], prefix_shared_tokens=[7] * 5,
    )  # fmt: skip
    assert run.prefix_hit_tokens == [0, 4, 0, 0, 0]


def test_a_preempted_request_finds_its_blocks_again() -> None:
    """If it failed, preemption would cost a whole prompt where a server pays one token."""
    # 3 blocks; A and B: prompt 4, output 5 (8 tokens, 2 blocks each)
    # 0-1 A4 B4   in 0 and 1
    # 1-2 A*      takes 2; B gives way and leaves [1]
    # 2-5 A*      B has 5 tokens: of 2 blocks it finds one, which is the only free one
    # 5-6 B*      A left [1 2 0]; B finds 1, takes 2, lacks one token and has emitted: a decode
    # 6-9 B*
    fight = {"num_kv_blocks": 3, "enable_prefix_caching": True}
    run = simulate([0, 0], [4, 4], [5, 5], **fight)
    assert run.token_times_s == [[1, 2, 3, 4, 5], [1, 6, 7, 8, 9]]
    assert run.preemptions == [0, 1]
    assert run.step_prefill_tokens == [8, 0, 0, 0, 0, 0, 0, 0, 0]
    assert run.step_decode_seqs == [0, 1, 1, 1, 1, 1, 1, 1, 1]
    assert run.step_kv_tokens[5] == 5
    assert (run.prefix_hit_tokens, run.recovered_tokens) == ([0, 0], [0, 4])


@pytest.mark.parametrize(
    ("blocks", "recovered", "prefill"),
    [
        # 2-3 A* takes 4; B finds none, gives way and leaves [3 2]; from 4 on it finds both
        (5, 4, [6, 0, 0, 0, 0, 0]),
        # 2-3 A* finds none, B gives way and leaves [3 2]; A takes 3, B's second block
        (4, 2, [6, 0, 0, 0, 3, 0]),
    ],
)
def test_a_preempted_request_finds_what_it_had_emitted_unless_somebody_took_it(
    blocks: int, recovered: int, prefill: list[int]
) -> None:
    """If it failed, answers would be written anew, or found though their block was given away."""
    # blocks of 2; A, B: prompt 3, output 4 (3 blocks each). 0-1 A3 B3 in 0 1 and 2 3   1-2 A* B*
    # 3-4 A* ends   4-6 B: e3@5 e4@6
    run = simulate(
        [0, 0], [3, 3], [4, 4], num_kv_blocks=blocks, block_size=2, enable_prefix_caching=True
    )
    assert run.recovered_tokens == [0, recovered]
    assert run.step_prefill_tokens == prefill
    assert run.token_times_s == [[1, 2, 3, 4], [1, 2, 5, 6]]


def test_a_second_attempt_finds_the_prompt_of_the_first() -> None:
    """If it failed, a client that sends again would cost its server the prompt again."""
    # A: prompt 8, output 9. 0-1 A8   1-2 A*   2-3 A*, the client goes at 2.5   3: it is noticed,
    # it sends again at 3.0: 4 of 8 tokens are found (the last one has to be computed)
    run = serve(
        [0], [8], [9], num_kv_blocks=9, enable_prefix_caching=True, patience={"e2e_s": 2.5},
        retry={"attempts": 2, "delay_s": 0.25, "round_trip_s": 0.25},
    )  # fmt: skip
    assert run.column("status") == [TIMED_OUT, TIMED_OUT]
    assert run.column("prefix_hit_tokens") == [0, 4]
    assert run.step_prefill_tokens == [8, 0, 0, 4, 0, 0]


def hits_by_recency(asked: list[list[Hashable]], room: int) -> list[int]:
    """Return how many leading blocks of each prompt are among the `room` most recently used.

    One request at a time, whose prompt has one token more than its named blocks: that token's block
    is nobody else's. The last block of a prompt counts as used before the others.
    """
    recency: list[Hashable] = []  # the latest last
    hits = []
    for row, names in enumerate(asked):
        kept = recency[-room:]
        found = 0
        while found < len(names) and names[found] in kept:
            found += 1
        hits.append(found)
        for name in [("own", row), *reversed(names)]:
            if name in recency:
                recency.remove(name)
            recency.append(name)
    return hits


@pytest.mark.parametrize("seed", range(3))
def test_the_share_found_is_that_of_a_list_by_recency(seed: int) -> None:
    """If it failed, hit rates would not be those of an LRU cache of that size."""
    # Conversations that begin alike in a few ways and go on in more: the names form a tree, so that
    # a block is never used later than the one before it.
    rng = np.random.default_rng(seed)
    asked: list[list[Hashable]] = []
    for _ in range(120):
        path = [int(rng.zipf(1.6)) % 5 for _ in range(int(rng.integers(1, 6)))]
        asked.append([hash(tuple(path[: depth + 1])) for depth in range(len(path))])
    shares = []
    for room in (6, 8, 13, 30, 100):
        run = simulate(
            [0.0] * len(asked), [4 * len(names) + 1 for names in asked], [1] * len(asked),
            batching="single", num_kv_blocks=room, enable_prefix_caching=True, prefix_ids=asked,
            prefix_block_tokens=4,
        )  # fmt: skip
        expected = hits_by_recency(asked, room)
        assert [tokens // 4 for tokens in run.prefix_hit_tokens] == expected
        shares.append(sum(expected) / sum(map(len, asked)))
    assert shares == sorted(shares)  # more room, more hits
    assert 0 < shares[0] < shares[-1] < 1


# -- asynchronous scheduling ---------------------------------------------------------------------
@pytest.mark.parametrize(
    ("asynchronous", "starts"), [(False, [0, 1, 1, 4, 5]), (True, [0, 2, 2, 4, 6])]
)
def test_whoever_comes_during_a_step_is_seen_one_step_later(
    asynchronous: bool, starts: list[float]
) -> None:
    """If it failed, a step would be decided with what is known only after it was decided."""
    # A at 0 (output 4), B at 0.5, C at 1.0 (output 1): the step at 1 knows who came until 0, that
    # at 2 who came until 1. A ends at 4: nobody runs and nobody is seen, so that D (3.5, output 3)
    # starts at once. E (4.5): the step at 5 knows who came until 4, that at 6 who came until 5.
    run = simulate([0, 0.5, 1.0, 3.5, 4.5], [1] * 5, [4, 1, 1, 3, 1], async_scheduling=asynchronous)
    assert run.scheduled_s == starts
    assert run.step_end_s == [1, 2, 3, 4, 5, 6, 7]


def test_an_idle_engine_starts_at_once_and_sees_everybody() -> None:
    """If it failed, the lag of a step would be added to an empty server."""
    # A 0-1. B at 2.25 wakes the engine, with C at the same time; D at 2.5 is seen at 4.25
    run = simulate([0, 2.25, 2.25, 2.5], [1] * 4, [1, 3, 1, 1], async_scheduling=True)
    assert run.scheduled_s == [0, 2.25, 2.25, 4.25]


def test_a_door_shows_at_once_who_comes_through_it() -> None:
    """If it failed, requests held at the gate would pay for asynchrony twice."""
    # A at 0 (output 4). B is told to queue at 0.5, C is accepted then: the door opens at 1, and C
    # is seen at 2
    verdicts = ["accept", "queue", "accept"]
    run = serve(
        [0, 0.5, 0.5], [1] * 3, [4, 1, 1], async_scheduling=True,
        admission={"policy": lambda request, state: verdicts[request.index]},
    )  # fmt: skip
    assert run.column("scheduled_s") == [0, 1, 2]


def test_whoever_is_not_seen_yet_waits_for_the_gate() -> None:
    """If it failed, the queue's limit would not count those on their way into it."""
    # One may wait: B (0.25) is not seen before 2, so C at 0.5 and D at 1.5 are refused, E at 2.5
    # not
    run = serve(
        [0, 0.25, 0.5, 1.5, 2.5], [1] * 5, [9, 1, 1, 1, 1], async_scheduling=True,
        admission={"max_waiting_requests": 1},
    )  # fmt: skip
    assert run.column("status") == [FINISHED, FINISHED, REJECTED, REJECTED, FINISHED]


# -- SGLang's way --------------------------------------------------------------------------------
def test_prompts_go_first_and_alone_several_together() -> None:
    """If it failed, SGLang's mode would mix what SGLang keeps apart."""
    # budget 4; A: prompt 6, output 2; B: prompt 5, output 3; C at 3.5: prompt 1, output 1
    # 0-1 A4          pairs 10
    # 1-2 A2 B2       pairs (2*4 + 3) + 3 = 14                            A e1@2
    # 2-3 B3          pairs 3*2 + 6 = 12; A stands still                  B e1@3
    # 3-4 A* B*       reads 7 + 6                                         A e2@4, B e2@4
    # 4-5 C1          B stands still                                      C e1@5
    # 5-6 B*          reads 7                                             B e3@6
    run = simulate([0, 0, 3.5], [6, 5, 1], [2, 3, 1], batching="sglang", max_num_batched_tokens=4)
    assert run.token_times_s == [[2, 4], [3, 4, 6], [5]]
    assert run.step_prefill_tokens == [4, 4, 3, 0, 1, 0]
    assert run.step_prefill_pairs == [10, 14, 12, 0, 1, 0]
    assert run.step_decode_seqs == [0, 0, 0, 2, 0, 1]
    assert run.step_kv_tokens == [0, 0, 0, 13, 0, 7]


@pytest.mark.parametrize(("ratio", "start"), [(0.5, 1), (0.85, 1), (0.86, 8), (1.0, 8)])
def test_admission_reserves_a_share_of_what_the_running_may_still_emit(
    ratio: float, start: float
) -> None:
    """If it failed, SGLang's mode would take in more, or fewer, than its reserve allows."""
    # 6 blocks, 24 tokens. A: prompt 8, output 8; B: prompt 8, output 4 (11 tokens to its end)
    # 0: A is admitted in this very pass and counts with all its 8: 16 - 8 < 11
    # 1: A has 7 to emit: 16 - floor(7 * ratio) >= 11 up to 5 of them, ratio below 6/7 = 0.857
    # later A holds more than it emits: B waits for its end
    run = simulate(
        [0, 0], [8, 8], [8, 4], batching="sglang", num_kv_blocks=6, new_token_ratio=ratio
    )
    assert run.scheduled_s == [0, start]


def test_the_retracted_one_has_the_fewest_tokens_and_goes_to_the_tail() -> None:
    """If it failed, SGLang's mode would preempt as vLLM does."""
    # 4 blocks, no reserve. A: prompt 4, output 8; B at 0.5: prompt 4, output 6; D at 2.5: prompt 4,
    # output 5
    # 0-1 A4   1-2 B4   2-3 A* B* take the other two; D's 8 tokens have no room
    # 3-6 A* B*                                             A, B e3@4 e4@5 e5@6
    # 6-9 A*   both need a block, none is free; equal tokens and prompts: B came later and is
    #          retracted, behind D. D (8) and B (9 tokens to the end) do not fit beside A
    # 9-10 D4  A has ended. B: 9 > 3 * 4 - 5, D's answer counting in full   D e1@10
    # 10-11 B9 D stands still; it counts with 0 now                        B e6@11
    # 11-15 D*
    run = simulate(
        [0, 0.5, 2.5], [4, 4, 4], [8, 6, 5], batching="sglang", num_kv_blocks=4,
        new_token_ratio=0.0,
    )  # fmt: skip
    assert run.preemptions == [0, 1, 0]
    assert run.token_times_s == [
        [1, 3, 4, 5, 6, 7, 8, 9],
        [2, 3, 4, 5, 6, 11],
        [10, 12, 13, 14, 15],
    ]
    assert run.step_prefill_tokens == [4, 4, 0, 0, 0, 0, 0, 0, 0, 4, 9, 0, 0, 0, 0]


# -- speculation ---------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("acceptance", "times", "verified", "blocks"),
    [
        # 1-2: 1 + 2 drafts, all right: e2 e3 e4.  2-3: of the last two one can be a draft
        (1.0, [1, 2, 2, 2, 3, 3], [0, 3, 2], [1, 2, 3]),
        # drafts min(2, 6 - e - 1) = 2 2 2 1 0, all wrong; KV for them is held all the same
        (0.0, [1, 2, 3, 4, 5, 6], [0, 3, 3, 3, 2, 1], [1, 2, 2, 3, 3, 3]),
    ],
)
def test_a_step_verifies_drafts_and_emits_the_right_ones(
    acceptance: float, times: list[float], verified: list[int], blocks: list[int]
) -> None:
    """If it failed, speculation would cost nothing, or emit what was refused."""
    # prompt 4, output 6: 9 tokens in 3 blocks at the end
    run = simulate([0], [4], [6], num_speculative_tokens=2, acceptance=acceptance, num_kv_blocks=3)
    assert run.token_times_s == [times]
    assert run.step_decode_seqs == verified
    assert run.step_kv_blocks == blocks
    assert run.step_kv_tokens[1] == 5  # read once, however many are verified


def test_drafts_share_the_budget() -> None:
    """If it failed, speculation would compute more tokens than a step has."""
    # budget 4, two drafts, all right. 0-1 A2 B2   1-2 A 1 + 2, ends; B 1   2-3 B 1 + 1
    run = simulate(
        [0, 0], [2, 2], [4, 4], num_speculative_tokens=2, acceptance=1.0,
        max_num_batched_tokens=4,
    )  # fmt: skip
    assert run.token_times_s == [[1, 2, 2, 2], [1, 2, 3, 3]]
    assert run.step_decode_seqs == [0, 4, 2]


@pytest.mark.parametrize(("drafts", "p"), [(1, 0.5), (3, 0.6), (5, 0.8)])
def test_tokens_a_step_follow_the_closed_form(drafts: int, p: float) -> None:
    """If it failed, speculation would be faster, or slower, than its acceptance says."""
    n, output = 8, 1000
    run = simulate(
        [0.0] * n, [1] * n, [output] * n, num_speculative_tokens=drafts, acceptance=p,
        speculation_seed=7,
    )  # fmt: skip
    # All but the steps near an answer's end, where fewer drafts are verified.
    counts: Counter[int] = Counter()
    for times in run.token_times_s:
        counts.update(Counter(times[1 : output - drafts - 1]).values())
    steps = sum(counts.values())
    for tokens in range(1, drafts + 2):
        share = p ** (tokens - 1) * (1 - p if tokens <= drafts else 1)
        luck = 4 * math.sqrt(share * (1 - share) / steps)
        assert abs(counts[tokens] / steps - share) < luck + n / steps
    mean = sum(tokens * count for tokens, count in counts.items()) / steps
    assert mean == pytest.approx((1 - p ** (drafts + 1)) / (1 - p), abs=0.06)


# -- the front end -------------------------------------------------------------------------------
def test_a_front_end_delays_the_queue_and_counts_in_ttft() -> None:
    """If it failed, HTTP and the tokenizer would be free, or slow the engine's steps."""
    # 0.5 s. A sent at 0 joins at 0.5: 0.5-1.5. B sent at 1.0 joins at 1.5, on the step's end
    run = simulate([0, 1.0], [1, 1], [1, 1], front_end_s=0.5)
    assert run.arrival_s == [0, 1]
    assert run.scheduled_s == [0.5, 1.5]
    assert run.first_token_s == [1.5, 2.5]
    # B would join at 1.5: a run up to 1.25 does not offer it
    assert simulate([0, 1.0], [1, 1], [1, 1], front_end_s=0.5, horizon_s=1.25).arrival_s == [0]
    # a window begins with the joining
    window = {"batching": "windowed", "window_s": 2.0}
    assert simulate([0], [1], [1], front_end_s=0.5, **window).scheduled_s == [2.5]


def test_a_rejection_is_known_behind_the_front_end() -> None:
    """If it failed, a user of a closed loop would hear of a rejection before the server knew."""
    # one user, no thinking: k=0 is impossible and known so at 0.5; k=1 joins at 1.0
    case = DIALS | {
        "users": 1,
        "think_s": 0.0,
        "prompt_tokens": [99, 1],
        "output_tokens": [1, 1],
        "num_kv_blocks": 2,
        "front_end_s": 0.5,
    }
    run = run_case(case)
    assert run.status == [REJECTED, FINISHED]
    assert run.arrival_s == [0, 0.5]
    assert run.scheduled_s[1] == 1.0


def test_patience_runs_from_the_sending() -> None:
    """If it failed, clients would wait for the tokenizer without noticing."""
    # 0.5 s. A joins at 0.5, its step is 0.5-1.5; the client goes at 1.0, sends again at 1.0 + 0.5,
    # joins at 2.0 and goes at 2.5
    run = serve(
        [0], [1], [3], front_end_s=0.5, patience={"ttft_s": 1.0},
        retry={"attempts": 2, "delay_s": 0.25, "round_trip_s": 0.25},
    )  # fmt: skip
    assert run.column("sent_s") == [0, 1.5]
    assert run.column("scheduled_s") == [0.5, 2.0]
    assert run.column("end_s") == [1.0, 2.5]


# -- refusals ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "wrong",
    [
        {"watermark": 1.0},
        {"enable_prefix_caching": True},
        {"enable_prefix_caching": True, "num_kv_blocks": 9, "cached_prefix_tokens": [1]},
        {
            "enable_prefix_caching": True,
            "num_kv_blocks": 9,
            "prefix_ids": [[1]],
            "prefix_block_tokens": 6,
        },
        {"batching": "sglang", "order": "sjf"},
        {"batching": "windowed", "window_s": 1.0, "async_scheduling": True},
        {"batching": "static", "batch_size": 1, "num_speculative_tokens": 1},
    ],
)
def test_what_has_no_meaning_is_refused(wrong: dict[str, Any]) -> None:
    """If it failed, the reference would answer a question that the rules do not ask."""
    with pytest.raises(ValueError, match=r".* (is|needs|given) "):
        simulate([0], [1], [1], **wrong)


def test_nobody_is_patient_for_less_than_the_front_end() -> None:
    """If it failed, clients would go before they came."""
    with pytest.raises(ValueError, match="patience"):
        serve([0], [1], [1], front_end_s=0.5, patience={"ttft_s": 0.5})


# -- random cases --------------------------------------------------------------------------------
def books_balance(s: Scheduler) -> None:
    """Assert that every block is free or held, and every name stands for one block."""
    if s.pool is None:
        return
    holders = Counter(block for a in s.running for block in a.blocks)
    assert [holders[block] for block in range(len(s.pool.holders))] == s.pool.holders
    assert sorted(s.pool.free) == [b for b, count in enumerate(s.pool.holders) if count == 0]
    assert s.pool.block_of == {name: block for block, name in s.pool.name_of.items()}
    for a in s.running:
        assert len(a.blocks) * s.dials.block_size >= a.computed


@settings(EASY, max_examples=examples(500))
@given(today_cases())
def test_what_must_hold_holds_with_todays_dials(case: dict[str, Any]) -> None:
    """If it failed, a dial would lose a request, a token or a block."""

    def step(s: Scheduler) -> list[Piece]:
        books_balance(s)
        pieces = step_of_work(s)
        books_balance(s)
        return pieces

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference_engine, "step_of_work", step)
        run = run_case(case)
    check_invariants(run, case)


@settings(EASY, max_examples=examples(300))
@given(today_cases(closed=False))
def test_without_clients_and_gate_it_is_the_engine(case: dict[str, Any]) -> None:
    """If it failed, the two references would mean two engines."""
    if case["batching"] not in ("continuous", "sglang"):
        return
    engine, run = run_case(case), reference_service(case)
    for name in ("status", "scheduled_s", "preemptions", "prefix_hit_tokens", "recovered_tokens"):
        np.testing.assert_array_equal(getattr(engine, name), run.column(name), name)
    for name in ("step_end_s", "step_prefill_tokens", "step_decode_seqs", "step_kv_blocks"):
        assert getattr(engine, name) == getattr(run, name), name


@settings(EASY, max_examples=examples(200))
@given(today_cases())
def test_a_cache_that_nobody_shares_changes_nothing_without_preemptions(
    case: dict[str, Any],
) -> None:
    """If it failed, naming blocks would cost something where no name is asked for twice."""
    if case["batching"] == "static" or case.get("num_kv_blocks") is None:
        return
    alone = {
        name: value
        for name, value in case.items()
        if not name.startswith("prefix_") and name != "cached_prefix_tokens"
    }
    without = run_case(alone | {"enable_prefix_caching": False})
    if any(without.preemptions):
        return
    with_cache = run_case(alone | {"enable_prefix_caching": True})
    assert with_cache.token_times_s == without.token_times_s
    assert with_cache.step_kv_blocks == without.step_kv_blocks


@pytest.mark.deep
def test_random_cases_reach_every_rule_of_today() -> None:
    """If it failed, agreement on random cases would say nothing about the rule not reached."""
    reached: Counter[str] = Counter()
    for dial in TODAY:

        @settings(EASY, max_examples=200, derandomize=True)
        @given(today_cases(dial=dial), today_service_cases(dial=dial))
        def look(case: dict[str, Any], served: dict[str, Any]) -> None:
            run, record = run_case(case), reference_service(served)
            for counts, kind in ((run.reached, "engine"), (record.reached, "service")):
                reached.update(f"{kind}: {rule}" for rule, count in counts.items() if count)
            reached["engine: hit"] += any(run.prefix_hit_tokens)
            reached["service: hit"] += any(record.column("prefix_hit_tokens"))

        look()
    rules = ("whole sequence in doubt", "kept by the watermark", "hit", "shared", "name taken")
    rules += ("found what it had emitted", "not seen yet", "draft accepted", "draft refused")
    rules += ("partial", "reserved for the running", "retracted", "preempted itself")
    wanted = [f"{kind}: {rule}" for kind in ("engine", "service") for rule in rules]
    assert not {rule: reached[rule] for rule in wanted if reached[rule] < 3}
