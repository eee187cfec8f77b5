"""Small cases worked out on paper from the rules; the engine must give the same steps.

Each step costs 1 s, so that times can be read as numbers of steps.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from course.serving.engine import EngineConfig, Run, modes, orders, simulate, simulate_closed
from course.serving.pricing.linear import LinearStepCost, StepFeatures
from course.serving.requests import Status
from course.serving.workload import Workload

SECOND = LinearStepCost(fixed_s=1.0)
NAN = float("nan")


class Recorder:
    """A cost of 1 s a step that remembers what each step did."""

    def __init__(self) -> None:
        self.steps: list[StepFeatures] = []

    def step_seconds(self, features: StepFeatures) -> float:
        self.steps.append(features)
        return 1.0


def checked(work: Workload, config: EngineConfig, steps: list[tuple[int, ...]]) -> Run:
    """Run with a recorder and compiled; both must do `steps`. Returns the compiled run."""
    recorder = Recorder()
    slow = simulate(work, recorder, config)
    fast = simulate(work, SECOND, config)
    assert [tuple(step) for step in recorder.steps] == steps
    for run in (slow, fast):
        assert run.step_prefill_tokens.tolist() == [step[0] for step in steps]
        assert run.step_decode_seqs.tolist() == [step[2] for step in steps]
        np.testing.assert_array_equal(run.finish_s, fast.finish_s)
    return fast


def test_chunked_prefill_shares_steps_with_decoding() -> None:
    """Running requests go first, a prompt is cut at the budget, a decode reads its context."""
    work = Workload([0.0, 0.0, 2.5], prompt_tokens=[6, 3, 1], output_tokens=[3, 2, 1])
    run = checked(
        work,
        EngineConfig(max_num_seqs=2, max_num_batched_tokens=4),
        [
            (4, 10, 0, 0),  # 4 of the first prompt: 1 + 2 + 3 + 4 pairs
            (4, 5 + 6 + 1 + 2, 0, 0),  # its other 2, and 2 of the second
            (1, 3, 1, 7),  # the first decodes over 6 + 1 tokens; the second's last token
            (0, 0, 2, 8 + 4),  # the third has no seat
            (1, 1, 0, 0),
        ],
    )
    assert run.scheduled_s.tolist() == [0.0, 1.0, 4.0]
    assert [run.token_times(i).tolist() for i in range(3)] == [[2, 3, 4], [3, 4], [5]]
    assert run.step_kv_blocks is None


def test_prefill_first_lets_decoding_stand_still() -> None:
    """Without chunks, prompts are taken whole and alone; the reader of the first answer waits."""
    work = Workload([0.0, 0.0], prompt_tokens=[3, 3], output_tokens=[3, 2])
    run = checked(
        work,
        EngineConfig(max_num_batched_tokens=5, max_num_seqs=5, enable_chunked_prefill=False),
        [(3, 6, 0, 0), (3, 6, 0, 0), (0, 0, 2, 4 + 4), (0, 0, 1, 5)],
    )
    assert run.token_times(0).tolist() == [1, 3, 4]
    assert run.token_times(1).tolist() == [2, 3]
    assert run.itl_s().tolist() == [1.0, 1.0, 2.0]


def test_more_running_than_the_budget_stand_still_in_their_seats() -> None:
    """Whole prompts can fill more seats than one step may decode."""
    work = Workload([0.0] * 4, prompt_tokens=[1] * 4, output_tokens=[2] * 4)
    run = checked(
        work,
        EngineConfig(max_num_batched_tokens=3, max_num_seqs=4, enable_chunked_prefill=False),
        [(3, 3, 0, 0), (1, 1, 0, 0), (0, 0, 3, 6), (0, 0, 1, 2)],
    )
    assert run.token_times(3).tolist() == [2, 4]
    phases = run.timeline([3])
    assert phases.phase.tolist() == ["queued", "prefill", "stalled", "decode"]


def test_a_preempted_request_loses_its_cache_and_keeps_its_tokens() -> None:
    """Four blocks of two tokens hold two requests of three tokens, but not two of five."""
    work = Workload([0.0, 0.0], prompt_tokens=[3, 3], output_tokens=[4, 4])
    run = checked(
        work,
        EngineConfig(num_kv_blocks=4, block_size=2, max_num_batched_tokens=8),
        [
            (6, 12, 0, 0),
            (0, 0, 2, 8),
            (0, 0, 1, 5),  # the first needs a third block: the second is preempted
            (0, 0, 1, 6),  # its 5 tokens do not fit into one free block
            (5, 15, 0, 0),  # prompt and two emitted tokens are computed again
            (0, 0, 1, 6),
        ],
    )
    assert run.preemptions.tolist() == [0, 1]
    assert run.token_times(1).tolist() == [1, 2, 5, 6]
    assert run.step_kv_blocks is not None
    assert run.step_kv_blocks.tolist() == [4, 4, 3, 3, 3, 3]
    assert run.tpot_s.tolist() == [1.0, 5 / 3]
    assert run.timeline([1]).phase.tolist() == [
        "prefill",
        "decode",
        "preempted",
        "recompute",
        "decode",
    ]


def test_the_last_token_of_a_recompute_is_decoded() -> None:
    """The budget can cut a recompute so that one token is left, and that is a decode like any."""
    work = Workload([0.0, 0.0], prompt_tokens=[3, 2], output_tokens=[3, 4])
    run = checked(
        work,
        EngineConfig(num_kv_blocks=4, block_size=2, max_num_batched_tokens=3, max_num_seqs=3),
        [
            (3, 6, 0, 0),
            (2, 3, 1, 4),
            (0, 0, 1, 5),  # the second, about to need its second block, finds none and goes
            (3, 6, 0, 0),  # 2 + 1 tokens again
            (0, 0, 1, 4),
            (0, 0, 1, 5),
        ],
    )
    assert run.preemptions.tolist() == [0, 1]
    assert run.token_times(1).tolist() == [2, 4, 5, 6]


def test_prefix_hits_are_whole_blocks_and_never_the_whole_prompt() -> None:
    """The last token of a prompt is always computed: without it there is nothing to emit from."""
    work = Workload(
        [0.0, 0.0, 0.0],
        prompt_tokens=[8, 8, 9],
        output_tokens=[1, 1, 1],
        cached_prefix_tokens=[8, 7, 3],
    )
    recorder = Recorder()
    run = simulate(work, recorder, EngineConfig(block_size=4, num_kv_blocks=100))
    pairs = (5 + 6 + 7 + 8) * 2 + 9 * 10 // 2
    assert [tuple(step) for step in recorder.steps] == [(4 + 4 + 9, pairs, 0, 0)]
    assert run.step_kv_blocks is not None
    assert run.step_kv_blocks.tolist() == [2 + 2 + 3]  # the hits lie in blocks of their own


def test_single_is_one_after_the_other() -> None:
    work = Workload([0.0, 0.0], prompt_tokens=[1, 1], output_tokens=[2, 1])
    run = checked(work, EngineConfig(batching="single"), [(1, 1, 0, 0), (0, 0, 1, 2), (1, 1, 0, 0)])
    assert run.finish_s.tolist() == [2.0, 3.0]


def test_a_static_batch_waits_for_its_longest() -> None:
    """An ended slot still counts and is still read; the third waits for the batch's end."""
    work = Workload([0.0, 1.0, 1.0], prompt_tokens=[2, 2, 2], output_tokens=[1, 3, 2])
    run = checked(
        work,
        EngineConfig(batching=modes.static(2), max_num_batched_tokens=2),
        [
            (2, 3, 0, 0),  # begins when two wait, at 1 s
            (2, 3, 0, 0),
            (0, 0, 2, 3 + 2),
            (0, 0, 2, 4 + 2),
            (2, 3, 0, 0),  # nobody can come any more: the last batch is incomplete
            (0, 0, 1, 3),
        ],
    )
    assert run.scheduled_s.tolist() == [1.0, 2.0, 5.0]
    assert run.finish_s.tolist() == [2.0, 5.0, 7.0]
    assert run.batch is not None
    assert run.batch.tolist() == [0, 0, 1]
    assert run.timeline([0]).phase.tolist() == ["queued", "prefill", "idle slot"]
    assert run.timeline([0]).end_s.tolist()[-1] == 5.0


def test_a_static_batch_starts_at_its_deadline() -> None:
    """With a window an incomplete batch does not wait for ever."""
    work = Workload([0.0, 9.0], prompt_tokens=[1, 1], output_tokens=[1, 1])
    run = checked(work, EngineConfig(batching=modes.static(4, 0.25)), [(1, 1, 0, 0)] * 2)
    assert run.scheduled_s.tolist() == [0.25, 9.25]


def test_a_windowed_engine_waits_only_when_idle() -> None:
    work = Workload([0.0, 0.25, 2.0, 2.5], prompt_tokens=[1] * 4, output_tokens=[1] * 4)
    run = simulate(work, SECOND, EngineConfig(batching=modes.windowed(0.5)))
    # 0.5: the first two; idle from 1.5 on; the third waits alone until 2.5, when the last has come
    assert run.scheduled_s.tolist() == [0.5, 0.5, 2.5, 2.5]
    # all seats asked for: no more reason to wait
    full = simulate(work, SECOND, EngineConfig(batching=modes.windowed(0.5), max_num_seqs=2))
    assert full.scheduled_s.tolist() == [0.25, 0.25, 2.5, 2.5]


def test_an_adaptive_engine_gives_up_waiting_when_too_few_come() -> None:
    """A window can only pay where another arrival is likely within it."""
    work = Workload([0.0, 5.0, 5.1, 5.2], prompt_tokens=[1] * 4, output_tokens=[1] * 4)
    run = simulate(work, SECOND, EngineConfig(batching=modes.adaptive(0.5)))
    assert run.scheduled_s.tolist() == [0.0, 5.0, 6.0, 6.0]  # one in a second promises half a one
    eager = simulate(work, SECOND, EngineConfig(batching=modes.adaptive(1.0)))
    assert eager.scheduled_s.tolist() == [1.0, 6.0, 6.0, 6.0]  # alone in the last second until then


def test_short_jobs_first_until_somebody_has_waited_too_long() -> None:
    """The long request is served third once its wait is limited, last where it is not."""
    work = Workload([0.0, 0.0, 0.0, 0.0], prompt_tokens=[1] * 4, output_tokens=[4, 1, 2, 3])
    orders_s = {
        max_wait_s: simulate(
            work, SECOND, EngineConfig(max_num_seqs=1, order=orders.sjf(max_wait_s))
        ).scheduled_s.tolist()
        for max_wait_s in (None, 2.5)
    }
    assert orders_s == {None: [6.0, 0.0, 1.0, 3.0], 2.5: [3.0, 0.0, 1.0, 7.0]}


def test_priority_improves_with_age() -> None:
    work = Workload([0.0, 0.5, 2.5], [1] * 3, [3, 1, 1], priority=[0, 2, 1])
    strict = simulate(work, SECOND, EngineConfig(max_num_seqs=1, order="priority"))
    assert strict.scheduled_s.tolist() == [0.0, 4.0, 3.0]
    aged = simulate(work, SECOND, EngineConfig(max_num_seqs=1, order=orders.priority(1.0)))
    assert aged.scheduled_s.tolist() == [0.0, 3.0, 4.0]  # two seconds older makes up for 1


def test_the_least_urgent_is_preempted() -> None:
    """Under fcfs the urgent one, admitted last, would have to go."""
    work = Workload([0.0, 0.0], [3, 3], [4, 4], priority=[5, 0])
    dials: dict[str, Any] = {"num_kv_blocks": 4, "block_size": 2}
    by_value = simulate(work, SECOND, EngineConfig(**dials, order="priority"))
    by_arrival = simulate(work, SECOND, EngineConfig(**dials))
    assert by_value.preemptions.tolist() == [1, 0]
    assert by_arrival.preemptions.tolist() == [0, 1]


def test_a_closed_loop_sends_after_the_answer_and_the_pause() -> None:
    """Two users of one seat: each thinks half a second after each of their answers."""
    work = Workload([0.0] * 4, prompt_tokens=[1] * 4, output_tokens=[1] * 4)
    run = simulate_closed(2, 0.5, work, SECOND, EngineConfig(max_num_seqs=1))
    assert run.arrival_s.tolist() == [0.0, 0.0, 1.5, 2.5]
    assert run.finish_s.tolist() == [1.0, 2.0, 3.0, 4.0]
    assert run.user is not None
    assert run.user.tolist() == [0, 1, 0, 1]


def test_a_rejected_user_thinks_and_sends_again() -> None:
    work = Workload([0.0] * 3, prompt_tokens=[1, 99, 1], output_tokens=[1, 1, 1])
    config = EngineConfig(num_kv_blocks=2, block_size=4)
    run = simulate_closed(1, [0.5, 0.25, 0.0], work, SECOND, config)
    assert run.arrival_s.tolist() == [0.0, 1.5, 1.75]
    assert run.status.tolist() == [Status.FINISHED, Status.REJECTED, Status.FINISHED]


def test_users_start_over_a_ramp_by_their_seed() -> None:
    """All at once would be a stampede that no real load test sends."""
    work = Workload([0.0] * 50, [1] * 50, [20] * 50)  # nobody sends twice
    run = simulate_closed(50, 0.0, work, SECOND, ramp_s=10.0, seed=4)
    starts_s = np.random.default_rng(4).uniform(0.0, 10.0, 50)
    assert run.arrival_s.tolist() == np.sort(starts_s).tolist()


def test_at_the_horizon_the_step_in_flight_is_completed() -> None:
    work = Workload([0.0, 1.5, 9.0], prompt_tokens=[1, 1, 1], output_tokens=[2, 5, 1])
    run = simulate(work, SECOND, horizon_s=2.5)
    assert len(run) == 2  # the third was not offered
    assert run.step_end_s.tolist() == [1.0, 2.0, 3.0]
    assert run.status.tolist() == [Status.FINISHED, Status.UNFINISHED]
    assert run.token_times(1).tolist() == [3.0]
    np.testing.assert_array_equal(run.finish_s, [2.0, NAN])
    assert simulate(work, SECOND, horizon_s=0.0).status.tolist() == [Status.UNFINISHED]


def test_what_can_never_be_served_is_rejected_at_once() -> None:
    """A request larger than all blocks, or than a step without chunks, would block the queue."""
    work = Workload([0.0, 0.0, 0.0], prompt_tokens=[5, 4, 3], output_tokens=[1, 2, 1])
    tight = simulate(work, SECOND, EngineConfig(num_kv_blocks=2, block_size=2))
    assert tight.status.tolist() == [Status.REJECTED, Status.REJECTED, Status.FINISHED]
    whole = EngineConfig(max_num_batched_tokens=4, enable_chunked_prefill=False, max_num_seqs=4)
    # 4 + 2 - 1 tokens must fit into one step: it may have to be computed again at that length
    assert simulate(work, SECOND, whole).status.tolist() == tight.status.tolist()
    assert np.isnan(tight.ttft_s[:2]).all()


def test_nothing_to_do_is_done_at_once() -> None:
    empty = Workload([], [], [])
    for config in (
        EngineConfig(),
        EngineConfig(batching=modes.static(3)),
        EngineConfig(order="sjf"),
    ):
        run = simulate(empty, SECOND, config)
        assert len(run) == 0
        assert run.step_end_s.size == 0
        assert run.summary().requests_per_s is None
    closed = simulate_closed(3, 0.0, empty, SECOND)
    assert len(closed) == 0


@pytest.mark.parametrize("compiled", [True, False])
def test_a_static_batch_does_not_wait_for_somebody_who_will_be_rejected(compiled: bool) -> None:
    """Four blocks of four tokens: the second request can never come in, so nobody completes the
    first one's batch, and it starts at once instead of five seconds later."""
    work = Workload([0.0, 5.0], [4, 100], [2, 1])
    config = EngineConfig(batching=modes.static(2), num_kv_blocks=4, block_size=4)
    run = simulate(work, LinearStepCost(fixed_s=1.0), config, compiled=compiled)
    assert run.scheduled_s[0] == 0.0
    assert run.status.tolist() == [Status.FINISHED, Status.REJECTED]
