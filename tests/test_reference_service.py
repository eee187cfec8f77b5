"""The service's reference against timelines worked out on paper.

Unless a test says otherwise a step costs exactly 1 s, there are 8 seats, 64 tokens a step, and KV
blocks of 4 tokens. In the timelines "A4" is a prefill of 4 tokens of A, "A*" a decode of A, "e2@5"
its second token at 5 s, and "A†2.5" its client going away at 2.5 s.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.engine_strategies import engine_cases
from tests.lanes import examples
from tests.reference_engine import run_case
from tests.reference_service import (
    ACCEPT,
    DEGRADE,
    FINISHED,
    QUEUE,
    REJECT,
    REJECTED,
    TIMED_OUT,
    UNFINISHED,
    Record,
    Seen,
    State,
    reference_pools,
    reference_service,
)
from tests.service_strategies import RULES, service_cases

UNIT = (1.0, 0.0, 0.0, 0.0, 0.0)
NAN = math.nan
DIALS = {"cost": UNIT, "max_num_seqs": 8, "max_num_batched_tokens": 64, "block_size": 4}
EASY = settings(deadline=None, suppress_health_check=list(HealthCheck))


def serve(arrival_s: list[float], prompt: list[int], output: list[int], **case: Any) -> Record:
    """Run an open workload with the file's dials."""
    rows = {"arrival_s": arrival_s, "prompt_tokens": prompt, "output_tokens": output}
    return reference_service(DIALS | rows | case)


def same(a: list[float], b: list[float]) -> bool:
    """Compare exactly, NaN being equal to NaN."""
    return np.array_equal(np.asarray(a, float), np.asarray(b, float), equal_nan=True)


# -- clients who give up -------------------------------------------------------------------------
def test_a_time_out_inside_a_step_is_noticed_at_the_next() -> None:
    """If it failed, a cancelled answer would stop in mid-step, or go on after the server knew."""
    # 0-1 A1 e1@1   1-2 A* e2@2   2-3 A*, A†2.5, e3@3 into the void   3: A leaves
    run = serve([0], [1], [9], patience={"e2e_s": 2.5})
    (a,) = run.attempts
    assert (a.status, a.end_s, a.first_token_s) == (TIMED_OUT, 2.5, 1.0)
    assert (a.emitted, a.computed_tokens) == (3, 3)
    assert run.step_end_s == [1, 2, 3]
    assert (run.useful_tokens, run.wasted_tokens) == (0, 3)


def test_unnoticed_the_server_answers_nobody_to_the_end() -> None:
    """If it failed, a server that does not watch its connections would save work by magic."""
    run = serve([0], [1], [9], patience={"e2e_s": 2.5, "noticed": False})
    (a,) = run.attempts
    assert (a.status, a.end_s, a.emitted) == (TIMED_OUT, 2.5, 9)
    assert run.step_end_s[-1] == 9
    assert (run.useful_tokens, run.wasted_tokens) == (0, 9)


def test_a_token_at_its_deadline_is_on_time() -> None:
    """If it failed, a limit of 5 s would be broken by an answer of 5 s."""
    on_time = serve([0], [1], [5], patience={"ttft_s": 1.0, "e2e_s": 5.0})
    assert (on_time.attempts[0].status, on_time.attempts[0].end_s) == (FINISHED, 5.0)
    # One token more would come at 6: the client goes at 5, after that step and before the next.
    late = serve([0], [1], [6], patience={"ttft_s": 1.0, "e2e_s": 5.0})
    assert (late.attempts[0].status, late.attempts[0].end_s) == (TIMED_OUT, 5.0)
    assert (late.attempts[0].emitted, late.step_end_s[-1]) == (5, 5)


def test_the_earliest_unmet_limit_counts() -> None:
    """If it failed, a client would wait out the longer of its two limits."""
    # The first token comes at 1, past 0.5; the end would be allowed until 9.
    run = serve([0], [1], [9], patience={"ttft_s": 0.5, "e2e_s": 9.0})
    a = run.attempts[0]
    assert (a.end_s, a.emitted) == (0.5, 1)
    assert math.isnan(a.first_token_s)
    # The limit on the end grows with the answer: 1 + 0.5 * 5 = 3.5.
    run = serve([0], [1], [5], patience={"e2e_s": 1.0, "e2e_per_output_token_s": 0.5})
    assert run.attempts[0].end_s == 3.5


@pytest.mark.parametrize(("noticed", "starts_s"), [(True, 3.0), (False, 4.0)])
def test_who_leaves_frees_blocks_that_let_the_next_in(noticed: bool, starts_s: float) -> None:
    """If it failed, a cancelled request's KV would be lost, or free before the server knew."""
    # 4 blocks. A: prompt 9, output 4, limit 1 + 0.5*4 = 3. B at 1: prompt 5, output 10, limit 6,
    # until 7; its 2 blocks do not fit beside A's 3.
    # 0-1 A9 e1@1   1-2 A* e2@2   2-3 A* e3@3, A†3 on the step's end
    # noticed:   3: A leaves.  3-4 B5 e1@4 ... 6-7 B* e4@7, B†7, gone
    # otherwise: 3-4 A* e4@4 void, done.  4-5 B5 e1@5, ... B†7, e10@14
    limits = {"e2e_s": 1.0, "e2e_per_output_token_s": 0.5, "noticed": noticed}
    run = serve([0, 1], [9, 5], [4, 10], num_kv_blocks=4, patience=limits)
    a, b = run.attempts
    assert (a.status, a.end_s, b.status, b.end_s) == (TIMED_OUT, 3.0, TIMED_OUT, 7.0)
    assert b.scheduled_s == starts_s
    if noticed:
        assert (a.emitted, b.emitted) == (3, 4)
        assert run.step_kv_blocks == [3, 3, 3, 2, 2, 2, 2]
        assert run.wasted_tokens == (9 + 2) + (5 + 3)
    else:
        assert (a.emitted, b.emitted) == (4, 10)
        assert run.step_end_s[-1] == 14
        assert run.wasted_tokens == (9 + 3) + (5 + 9)


# -- clients who send again ----------------------------------------------------------------------
def test_a_retry_on_a_steps_end_joins_the_step_that_begins_there() -> None:
    """If it failed, retries would fall between two steps, or lose their user's clock."""
    # One seat; everybody waits 2 s for a first token, and sends again 0.5 + 0.5 s later, once.
    # A: output 4 from 0. B at 0, C at 3.
    # 0-4 A1 A* A* A*; B†2.0 on a step's end (leaves the queue), sends again at 3.0, before C (row)
    # 4-5 B1 e1@5.0: on time to the last moment.  C†5.0, leaves; sends again at 6.0
    # idle.  6-7 C1
    run = serve(
        [0, 0, 3],
        [1, 1, 1],
        [4, 1, 1],
        max_num_seqs=1,
        patience={"ttft_s": 2.0},
        retry={"attempts": 2, "round_trip_s": 0.5, "delay_s": 0.5},
    )
    assert [(a.row, a.number) for a in run.attempts] == [(0, 1), (1, 1), (1, 2), (2, 1), (2, 2)]
    assert run.column("sent_s") == [0, 0, 3, 3, 6]
    assert run.column("status") == [FINISHED, TIMED_OUT, FINISHED, TIMED_OUT, FINISHED]
    assert same(run.column("scheduled_s"), [0, NAN, 4, NAN, 6])
    assert run.column("end_s") == [4, 2, 5, 5, 7]
    assert run.step_end_s == [1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize(("noticed", "steps"), [(True, 2), (False, 6)])
def test_two_attempts_live_at_once_only_where_the_server_does_not_notice(
    noticed: bool, steps: int
) -> None:
    """If it failed, retries would not multiply the work of a server that serves the dead."""
    # One seat, output 3, first token due in 0.5 s, one retry 0.5 s later.
    # noticed:  0-1 A1, A†0.5; second try at 1.0; 1: the first leaves; 1-2 A'1, A'†1.5; 2: gone
    # otherwise 0-3 the first, 3-6 the second, both for nobody
    run = serve(
        [0],
        [1],
        [3],
        max_num_seqs=1,
        patience={"ttft_s": 0.5, "noticed": noticed},
        retry={"attempts": 2, "round_trip_s": 0.5, "delay_s": 0.0},
    )
    assert run.column("end_s") == [0.5, 1.5]
    assert run.column("scheduled_s") == [0, 1 if noticed else 3]
    assert run.step_end_s == list(range(1, steps + 1))
    assert run.wasted_tokens == (2 if noticed else 6)


def test_delays_grow_with_the_attempt() -> None:
    """If it failed, exponential backoff would not be exponential."""
    # Refused each time (9 + 1 tokens into 5); 0.25 + 1, 0.25 + 2, 0.25 + 4 s later.
    run = serve(
        [0],
        [9],
        [1],
        admission={"max_waiting_tokens": 5},
        retry={"attempts": 4, "delay_s": 1.0, "growth": 2.0, "round_trip_s": 0.25},
    )
    assert run.column("sent_s") == [0, 1.25, 3.5, 7.75]
    assert run.column("verdict") == [REJECT] * 4
    assert run.step_end_s == []


def test_a_budget_allows_a_share_of_first_attempts() -> None:
    """If it failed, the clients' common budget would not hold retries down."""
    # All are refused. Bucket 1 at first; each first attempt adds 0.5, at most 1.
    # 0     first of A:  1 -> 1, retry at 1.0 -> 0
    # 0.25  first of B:  0.5, no retry
    # 0.5   first of C:  1, retry at 1.5 -> 0
    # 1.0   second of A: 0, no retry;   1.5 second of C: the same
    run = serve(
        [0, 0.25, 0.5],
        [9, 9, 9],
        [1, 1, 1],
        admission={"max_waiting_tokens": 5},
        retry={
            "attempts": None,
            "delay_s": 0.5,
            "round_trip_s": 0.5,
            "budget_share": 0.5,
            "budget_burst": 1.0,
        },
    )
    assert run.column("row") == [0, 1, 2, 0, 2]
    assert run.column("sent_s") == [0, 0.25, 0.5, 1.0, 1.5]


def test_at_one_moment_leavers_go_first_and_by_row() -> None:
    """If it failed, who gets the last retry of the budget would depend on the code's lists."""
    # Steps of 2 s. A and B start at 0 and go at 1.0; C's first send at 1.0 comes after them.
    # Bucket 1: A's retry takes it, B finds 0, and C's 0.5 is too late for B.
    run = serve(
        [0, 0, 1.0],
        [1, 1, 1],
        [1, 1, 1],
        cost=(2.0, 0.0, 0.0, 0.0, 0.0),
        patience={"ttft_s": 1.0},
        retry={
            "attempts": 2,
            "delay_s": 0.5,
            "round_trip_s": 0.5,
            "budget_share": 0.5,
            "budget_burst": 1.0,
        },
    )
    # A again at 2.0, in the step 2-4 with C, who goes at 2.0 on its start: C is not served.
    assert [(a.row, a.number, a.sent_s) for a in run.attempts] == [
        (0, 1, 0.0),
        (1, 1, 0.0),
        (2, 1, 1.0),
        (0, 2, 2.0),
    ]
    assert run.column("status") == [TIMED_OUT] * 4
    assert same(run.column("scheduled_s"), [0, 0, NAN, 2])


def test_what_can_never_fit_is_not_sent_again() -> None:
    """If it failed, a client without limit would ask for the impossible for ever."""
    run = serve([0], [9], [1], num_kv_blocks=2, retry={"attempts": None})
    assert run.column("verdict") == [REJECT]
    assert run.column("status") == [REJECTED]


def test_nothing_is_sent_after_the_horizon_and_nobody_leaves_after_the_last_step() -> None:
    """If it failed, a run cut short would go on in secret."""
    # One seat; A: output 2 from 0; B from 0, goes at 1.5 and would come again at 2.5; C from 1.
    # Horizon 1.5: the step 1-2 is the last. B†1.5 happens, C†2.5 does not.
    run = serve(
        [0, 0, 1],
        [1, 1, 1],
        [2, 1, 1],
        max_num_seqs=1,
        horizon_s=1.5,
        patience={"ttft_s": 1.5},
        retry={"attempts": 2, "delay_s": 0.5, "round_trip_s": 0.5},
    )
    assert run.column("status") == [FINISHED, TIMED_OUT, UNFINISHED]
    assert same(run.column("end_s"), [2, 1.5, NAN])
    assert run.step_end_s == [1, 2]


# -- admission -----------------------------------------------------------------------------------
def test_rule_a_a_tenants_bucket_fills_with_time() -> None:
    """If it failed, one tenant could use another's share, or pay for what was refused."""
    # 2 tokens a second, at most 10. x: 8 at 0 leaves 2. x: 5 at 1 finds 4. x: 5 at 1.5 finds 5.
    # y has a bucket of its own. x: 1 at 1.5 finds 0.
    run = serve(
        [0, 1, 1.5, 1.5, 1.5],
        [5, 4, 4, 9, 1],
        [3, 1, 1, 1, 1],
        label=["x", "x", "x", "y", "x"],
        admission={"tenant_tokens_per_s": 2.0, "tenant_burst_tokens": 10.0},
    )
    assert run.column("verdict") == [ACCEPT, REJECT, ACCEPT, ACCEPT, REJECT]


def test_rule_a_takes_nothing_for_what_a_later_rule_refuses() -> None:
    """If it failed, a tenant would pay for the queue being full."""
    # One may wait. A (5) waits at 0, so B (5) is refused by the queue and C (5) finds 5 left.
    run = serve(
        [0, 0, 0.5],
        [4, 4, 4],
        [1, 1, 1],
        admission={
            "tenant_tokens_per_s": 0.0,
            "tenant_burst_tokens": 10.0,
            "max_waiting_requests": 1,
        },
    )
    assert run.column("verdict") == [ACCEPT, REJECT, ACCEPT]


def test_rule_b_counts_who_waits_and_not_who_runs() -> None:
    """If it failed, a bounded queue would count its seats."""
    # One seat. At 0 A waits for the step that begins at 0, and B finds it there; at 0.5 A runs.
    run = serve(
        [0, 0, 0.5, 0.75], [1] * 4, [5] * 4, max_num_seqs=1, admission={"max_waiting_requests": 1}
    )
    assert run.column("verdict") == [ACCEPT, REJECT, ACCEPT, REJECT]


def test_rule_c_counts_tokens_with_the_own_ones() -> None:
    """If it failed, a queue bounded by tokens would let one request of any size in."""
    # One seat. B waits with 6 + 4 = 10 of 10; C's 2 are too many.
    run = serve(
        [0, 0.5, 0.75], [3, 6, 1], [5, 4, 1], max_num_seqs=1, admission={"max_waiting_tokens": 10}
    )
    assert run.column("verdict") == [ACCEPT, ACCEPT, REJECT]


def waiting_line(**case: Any) -> Record:
    """One seat: A (4 + 10) runs from 0; B (3 + 5) at 0.5 and C (1 + 1) at 0.75 wait.

    At 1.0, after the first step, the pace is 4 tokens/s. D (2 + 5) sends then and finds 8 + 2
    tokens waiting: 2.5 s. E (2 + 2) finds 17: 4.25 s.
    """
    return serve([0, 0.5, 0.75, 1, 1], [4, 3, 1, 2, 2], [10, 5, 1, 5, 2], max_num_seqs=1, **case)


def test_rule_d_only_the_urgent_join_a_long_line() -> None:
    """If it failed, urgency would not open the door."""
    run = waiting_line(
        priority=[2, 2, 2, 1, 2], admission={"urgent_only_wait_s": 2.0, "least_urgent": 1.0}
    )
    assert run.column("verdict") == [ACCEPT, ACCEPT, ACCEPT, ACCEPT, REJECT]


def test_rule_e_refuses_a_wait_above_the_limit() -> None:
    """If it failed, a wait equal to the limit would be refused, or no wait ever."""
    # C finds 8 tokens and no pace yet: no wait is predicted. D's 2.5 s are not above 2.5 s.
    run = waiting_line(admission={"max_predicted_wait_s": 2.5})
    assert run.column("verdict") == [ACCEPT, ACCEPT, ACCEPT, ACCEPT, REJECT]


def test_rule_f_degrades_and_counts_the_shorter_answer() -> None:
    """If it failed, a degraded answer would be long, or be counted as long by the next."""
    # D gets 3 of 5 tokens and waits with 2 + 3; E finds 15 tokens: 3.75 s, which 4 s allow.
    run = waiting_line(
        admission={"degrade_wait_s": 2.0, "degrade_to_tokens": 3, "max_predicted_wait_s": 4.0}
    )
    assert run.column("verdict") == [ACCEPT, ACCEPT, ACCEPT, DEGRADE, DEGRADE]
    assert run.column("output") == [10, 5, 1, 3, 2]
    assert run.column("emitted") == [10, 5, 1, 3, 2]


def test_the_pace_forgets_in_five_seconds() -> None:
    """If it failed, the predicted wait would look at another stretch of the past."""
    # Pace 4 after the first step; after the second (1 token): 4 - 3*(1 - exp(-0.2)) = 3.4562.
    # One waits with 3 + 7 = 10 tokens: 10 / 3.4562 = 2.8933 s.
    for limit_s, verdict in ((2.893, REJECT), (2.894, ACCEPT)):
        run = serve(
            [0, 1.5, 2.5],
            [4, 3, 1],
            [9, 7, 1],
            max_num_seqs=1,
            admission={"max_predicted_wait_s": limit_s},
        )
        assert run.column("verdict") == [ACCEPT, ACCEPT, verdict]


def test_rule_g_the_gate_opens_below_the_watermark_one_a_free_seat() -> None:
    """If it failed, the gate would let in more than there are seats, or never open."""
    # Two seats, 4 blocks, watermark a half. A: prompt 8 (2 blocks), output 4.
    # B at 0.5 finds 2/4: gate. C at 0.75: gate. 0-4 A alone. D at 4.0 finds no block held, but a
    # gate that is not empty. 4: B and C join (two seats), D stays.
    # 4-5 B1 C1, C ends.  5: 1/4 held, one seat, nobody waits: D joins.
    run = serve(
        [0, 0.5, 0.75, 4],
        [8, 1, 1, 1],
        [4, 2, 1, 1],
        max_num_seqs=2,
        num_kv_blocks=4,
        admission={"kv_watermark": 0.5},
    )
    assert run.column("verdict") == [ACCEPT, QUEUE, QUEUE, QUEUE]
    assert run.column("scheduled_s") == [0, 4, 4, 5]
    assert run.step_kv_blocks == [2, 3, 3, 3, 2, 2]


def test_the_gate_never_hangs() -> None:
    """If it failed, a watermark of 0 would keep everybody out for ever."""
    # (The course's own nouns refuse a watermark of 0; the rules have an answer to it all the same.)
    # A and B at 0: A is let in because nobody is there, B when A has ended.
    run = serve([0, 0], [1, 1], [2, 1], num_kv_blocks=4, admission={"kv_watermark": 0.0})
    assert run.column("verdict") == [QUEUE, QUEUE]
    assert run.column("scheduled_s") == [0, 2]
    assert run.reached["released in any case"] == 2


def test_who_leaves_the_gate_is_not_let_in() -> None:
    """If it failed, the gate would admit clients who went away."""
    # A: output 4, 2 + blocks of 4; B at 0.5 waits at the gate and goes at 2.0; C at 3.5 gets in.
    limits = {"ttft_s": 1.5}
    run = serve(
        [0, 0.5, 3.5],
        [8, 1, 1],
        [4, 1, 1],
        num_kv_blocks=4,
        patience=limits,
        admission={"kv_watermark": 0.5},
    )
    assert run.column("status") == [FINISHED, TIMED_OUT, FINISHED]
    assert same(run.column("scheduled_s"), [0, NAN, 4])


def test_a_python_policy_sees_the_state_and_decides() -> None:
    """If it failed, a student's policy would be shown another server than the one that runs."""
    seen: list[tuple[Seen, State]] = []

    def policy(request: Seen, state: State) -> str:
        seen.append((request, state))
        return ["accept", "queue", "degrade", "reject"][request.index]

    # One seat, 4 blocks. A (4 + 3) runs from 0; B (2 + 2) at 0.5 to the gate, where C (1 + 9, to
    # 2) at 0.75 finds it and passes it by; D at 1.0 finds 4 + 3 tokens at 4 tokens/s: 1.75 s.
    run = serve(
        [0, 0.5, 0.75, 1],
        [4, 2, 1, 1],
        [3, 2, 9, 1],
        max_num_seqs=1,
        num_kv_blocks=4,
        admission={"policy": policy, "degrade_to_tokens": 2},
    )
    assert [state for _, state in seen] == [
        State(0.0, 0, 0, 0, 1, 0.0, 0.0, 0.0),
        State(0.5, 0, 0, 1, 0, 0.25, 0.0, 0.0),
        State(0.75, 1, 4, 1, 0, 0.25, 0.0, 0.0),
        State(1.0, 2, 7, 1, 0, 0.25, 4.0, 1.75),
    ]
    # A until 3; C, who is in the queue, until 5; B, from the gate, from 5.
    assert same(run.column("scheduled_s"), [0, 5, 3, NAN])
    assert run.column("emitted") == [3, 2, 2, 0]


# -- long prompts --------------------------------------------------------------------------------
def test_a_long_prompt_goes_in_capped_chunks_after_the_short_ones() -> None:
    """If it failed, one long prompt would take whole steps from the chats."""
    # Over 4 is long, 2 a step. L: 7 + 1 and S: 1 + 3 at 0.
    # 0-1 S1 L2   1-2 S* L2   2-3 S* L2   3-4 L1 e1@4
    run = serve([0, 0], [7, 1], [1, 3], long_prompts={"over_tokens": 4, "chunk_tokens": 2})
    assert run.step_prefill_tokens == [3, 2, 2, 1]
    assert run.step_decode_seqs == [0, 1, 1, 0]
    assert run.column("end_s") == [4, 3]


def test_few_long_prompts_prefill_at_once() -> None:
    """If it failed, `max_running` would count answers that are being written."""
    # L and M: 6 + 2, in chunks of 3, one at a time. 0-1 L3  1-2 L3 e1@2  2-3 L* M3: M from 2 on.
    limits = {"over_tokens": 4, "chunk_tokens": 3, "max_running": 1}
    run = serve([0, 0], [6, 6], [2, 2], long_prompts=limits)
    assert run.column("scheduled_s") == [0, 2]
    assert run.step_prefill_tokens == [3, 3, 3, 3, 0]
    assert run.step_decode_seqs == [0, 0, 1, 0, 1]


@pytest.mark.parametrize(("max_wait_s", "starts_s"), [(1.5, [2, 0, 3, 5]), (None, [5, 0, 2, 4])])
def test_a_long_prompt_that_waited_too_long_goes_first(
    max_wait_s: float | None, starts_s: list[float]
) -> None:
    """If it failed, a stream of chats would starve the long prompts."""
    # One seat. L: 6 + 1 at 0; S: 2 tokens at 0; T: 2 tokens, U: 1 token at 0.5.
    run = serve(
        [0, 0, 0.5, 0.5],
        [6, 1, 1, 1],
        [1, 2, 2, 1],
        max_num_seqs=1,
        long_prompts={"over_tokens": 4, "max_wait_s": max_wait_s},
    )
    assert run.column("scheduled_s") == starts_s


@pytest.mark.parametrize(("max_wait_s", "starts_s"), [(0.0, [0, 4, 4]), (None, [0, 4, 1])])
def test_blocks_that_do_not_fit_end_the_whole_pass(
    max_wait_s: float | None, starts_s: list[float]
) -> None:
    """If it failed, small requests would take the blocks that an overdue one waits for."""
    # 4 blocks. A: 8 + 4 holds 3 from 1 on. L: 10 + 1 (3 blocks) and S: 1 + 1 from 0.5.
    run = serve(
        [0, 0.5, 0.5],
        [8, 10, 1],
        [4, 1, 1],
        num_kv_blocks=4,
        long_prompts={"over_tokens": 9, "max_wait_s": max_wait_s},
    )
    assert run.column("scheduled_s") == starts_s


# -- closed loop ---------------------------------------------------------------------------------
def closed(users: int, think_s: float, rows: int, **case: Any) -> Record:
    """Users from 0 on, one seat, rows of one prompt and one output token."""
    return reference_service(
        DIALS
        | {
            "user_starts_s": [0.0] * users,
            "think_s": think_s,
            "prompt_tokens": [1] * rows,
            "output_tokens": [1] * rows,
            "max_num_seqs": 1,
        }
        | case
    )


def test_a_user_sends_a_think_time_after_the_end() -> None:
    """If it failed, a closed loop would not be closed."""
    # 0-1 row 0 of user 0, who sends at 2; 1-2 row 1 of user 1, who sends at 3; 2-3, 3-4
    run = closed(2, 1.0, 4)
    assert run.column("sent_s") == [0, 0, 2, 3]
    assert run.column("user") == [0, 1, 0, 1]
    assert run.step_end_s == [1, 2, 3, 4]


def test_a_refused_user_sends_the_next_row() -> None:
    """If it failed, a refused user of a closed loop would fall silent."""
    # One may wait: row 1 is refused at 0, user 1 sends row 2 at 1 (the step's end); row 0 ended
    # at 1, so user 0 sends row 3 at 2.
    run = closed(2, 1.0, 4, admission={"max_waiting_requests": 1})
    assert run.column("sent_s") == [0, 0, 1, 2]
    assert run.column("user") == [0, 1, 1, 0]
    assert run.column("verdict") == [ACCEPT, REJECT, ACCEPT, ACCEPT]
    # Without a think time user 1 is refused until the rows are used up, all at once.
    at_once = closed(2, 0.0, 4, admission={"max_waiting_requests": 1})
    assert at_once.column("sent_s") == [0, 0, 0, 0]
    assert at_once.column("user") == [0, 1, 1, 1]


def test_a_user_thinks_after_the_last_attempt() -> None:
    """If it failed, a user would ask the next question while still asking the last one again."""
    # User 0 runs 0-1, sends at 2. User 1 goes at 0.5, sends again at 1.0, goes at 1.5 (late
    # again: due at 2), has no third attempt, and sends row 3 at 2.5. Row 2 (user 0 at 2) is
    # due at 2.5 and comes at 3.
    run = closed(
        2,
        1.0,
        4,
        patience={"ttft_s": 0.5},
        retry={"attempts": 2, "delay_s": 0.25, "round_trip_s": 0.25},
        cost=(0.5, 0.0, 0.0, 0.0, 0.0),
    )
    # Steps of 0.5 s: 0-0.5 row 0, on time at 0.5; row 1 †0.5, again at 1.0, 1.0-1.5 on time.
    # User 0 sends row 2 at 1.5; user 1 row 3 at 2.5.
    assert [(a.row, a.number, a.sent_s) for a in run.attempts] == [
        (0, 1, 0.0),
        (1, 1, 0.0),
        (1, 2, 1.0),
        (2, 1, 1.5),
        (3, 1, 2.5),
    ]
    assert run.column("status") == [FINISHED, TIMED_OUT, FINISHED, FINISHED, FINISHED]


# -- tokens of use -------------------------------------------------------------------------------
def test_what_is_computed_again_is_of_no_use() -> None:
    """If it failed, a preemption storm would look like good work."""
    # 4 blocks of 2. A, B: 3 + 4. 0-1 A3 B3  1-2 A* B*  2-3 A* (third block: B goes, 4 computed)
    # 3-4 A* done  4-5 B5  5-6 B*: 3 + 1 + 5 + 1 = 10 computed, 4 of them again
    run = serve([0, 0], [3, 3], [4, 4], num_kv_blocks=4, block_size=2)
    assert run.column("computed_tokens") == [6, 10]
    assert run.column("recomputed_tokens") == [0, 4]
    assert (run.useful_tokens, run.wasted_tokens) == (12, 4)


# -- pools ---------------------------------------------------------------------------------------
def test_a_prompt_travels_between_two_pools() -> None:
    """If it failed, separate pools would forget the way between them, or prefill twice."""
    # Prefill 0-1: A's first token at 1, B (output 1) ends there. A's 4 tokens travel
    # 0.25 + 4 * 1 / 8 = 0.75 s.  1.75-2.75 A* (4 + 1 in 2 blocks)  2.75-3.75 A*
    case = DIALS | {"arrival_s": [0, 0], "prompt_tokens": [4, 4], "output_tokens": [3, 1]}
    first, rows, second = reference_pools(case, DIALS | {"num_kv_blocks": 4}, (1.0, 8.0, 0.25))
    assert first.column("end_s") == [1, 1]
    assert rows == [0]
    assert second.column("sent_s") == [1.75]
    assert second.column("end_s") == [3.75]
    assert second.step_prefill_tokens == [0, 0]
    assert second.step_decode_seqs == [1, 1]
    assert second.step_kv_blocks == [2, 2]


def test_a_preempted_answer_is_computed_again_in_the_decode_pool() -> None:
    """If it failed, KV would come back from a pool that no longer has it."""
    # 3 blocks. A, B: 3 + 4, both join at 1. 1-2 A* B* (1 + 1 blocks)  2-3 A* (2), B has no room
    # 3-4 A* done  4-5 B5 (3 + 2 emitted)  5-6 B*
    case = DIALS | {"arrival_s": [0, 0], "prompt_tokens": [3, 3], "output_tokens": [4, 4]}
    _, rows, second = reference_pools(case, DIALS | {"num_kv_blocks": 3}, (1.0, math.inf, 0.0))
    assert rows == [0, 1]
    assert second.step_decode_seqs == [2, 1, 1, 0, 1]
    assert second.step_prefill_tokens == [0, 0, 0, 5, 0]
    assert second.column("end_s") == [4, 6]


# -- any case ------------------------------------------------------------------------------------
@settings(EASY, max_examples=examples(200))
@given(engine_cases(closed=False, batching="continuous"))
def test_without_clients_and_gate_it_is_the_engine(case: dict[str, Any]) -> None:
    """If it failed, the two references would mean two engines."""
    engine, run = run_case(case), reference_service(case)
    for name in ("status", "scheduled_s", "first_token_s", "preemptions"):
        assert same(getattr(engine, name), run.column(name)), name
    for name in ("step_end_s", "step_prefill_tokens", "step_decode_seqs", "step_kv_blocks"):
        assert same(getattr(engine, name), getattr(run, name)), name
    ends = [a.end_s if a.status == FINISHED else NAN for a in run.attempts]
    assert same(engine.finish_s, ends)


@pytest.mark.deep
def test_the_random_cases_reach_every_rule() -> None:
    """If it failed, agreement on random cases would say nothing about the rule not reached."""
    reached: Counter[str] = Counter()

    for rule in (*RULES, None):

        @settings(EASY, max_examples=250)
        @given(service_cases(patience=True, admission=True, rule=rule))
        def collect(case: dict[str, Any]) -> None:
            run = reference_service(case)
            reached.update(run.reached.keys())
            computed = sum(run.column("computed_tokens"))
            assert computed == sum(run.step_prefill_tokens) + sum(run.step_decode_seqs)
            assert run.useful_tokens + run.wasted_tokens == computed

        collect()
    wanted = {f"rule {rule}" for rule in "abcdefg"}
    wanted |= {f"left {place}" for place in ("gate", "waiting", "long_waiting", "running")}
    wanted |= {"gave up", "retry", "no budget", "into the void", "preempted"}
    wanted |= {"event on a step's end", "give-up and send at once", "held at the gate"}
    wanted |= {"chunk cap", "long ones held", "overdue long head"}
    missed = {rule: reached[rule] for rule in wanted if reached[rule] < 3}
    assert not missed
