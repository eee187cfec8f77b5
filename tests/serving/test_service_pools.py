"""Two engines read as one run: what is apart must not touch, and what travels must not get lost."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from course.serving.engine import EngineConfig, simulate, simulate_by_length, simulate_pools
from course.serving.pricing import LinearStepCost
from course.serving.requests import Status
from course.serving.requests.metrics import SLO
from course.serving.workload import Lognormal, Poisson, Workload, draw

COST = LinearStepCost(0.010, 2e-5, 0.0, 1e-4, 1e-8)
LINK: dict[str, float] = {"kv_bytes_per_token": 131_072.0, "link_bytes_per_s": 25e9}
POOL = (COST, EngineConfig())


def work(requests: int = 400, rate_per_s: float = 12.0) -> Workload:
    return draw(requests, Poisson(rate_per_s), Lognormal(5.5, 0.8), Lognormal(4.0, 0.7), seed=4)


def test_the_prefill_pool_never_sees_a_decode() -> None:
    """That is what the two are taken apart for."""
    run = simulate_pools(work(), POOL, POOL, **LINK)
    assert (run.status == Status.FINISHED).all()
    assert not run.prefill.step_decode_seqs.any()
    assert not run.decode.step_prefill_tokens.any()  # nobody is preempted without a limit
    assert run.decode.step_decode_seqs.sum() == (run.work.output_tokens - 1).sum()


def test_a_prompt_travels_as_long_as_its_bytes_take() -> None:
    """Transfer = latency + bytes / link, and the first decode comes after it."""
    run = simulate_pools(work(), POOL, POOL, **LINK, transfer_latency_s=0.002)
    went = run.work.output_tokens > 1
    travel_s = (run.transferred_s - run.first_token_s)[went]
    expected_s = 0.002 + run.work.prompt_tokens[went] * 131_072 / 25e9
    np.testing.assert_allclose(travel_s, expected_s, rtol=1e-9)
    assert np.isnan(run.transferred_s[~went]).all()
    assert (run.finish_s[went] > run.transferred_s[went]).all()
    assert np.array_equal(run.finish_s[~went], run.first_token_s[~went])


def test_a_free_link_and_an_idle_pool_add_nothing_but_steps() -> None:
    """One request: prompt in one step, then one step a token, with the link's time between."""
    cost = LinearStepCost(fixed_s=1.0)
    lone = Workload([0.0], [100], [4])
    run = simulate_pools(
        lone, (cost, EngineConfig()), (cost, EngineConfig()), kv_bytes_per_token=0.0,
        link_bytes_per_s=1.0,
    )  # fmt: skip
    assert run.finish_s.tolist() == simulate(lone, cost).finish_s.tolist() == [4.0]


def test_decode_steps_are_calm_where_prefills_are_elsewhere() -> None:
    """The gaps between tokens are no longer stretched by other people's prompts."""
    heavy = draw(400, Poisson(6.0), Lognormal(8.0, 0.3), Lognormal(4.0, 0.4), seed=6)
    together = simulate(heavy, COST)
    apart = simulate_pools(heavy, POOL, POOL, **LINK)
    assert np.nanpercentile(apart.tpot_s, 99) < 0.7 * np.nanpercentile(together.tpot_s, 99)


def test_preempted_in_the_decode_pool_is_recomputed_there() -> None:
    """There is no way back: a full cache shows as prefill in the pool that should have none."""
    small = (COST, EngineConfig(num_kv_blocks=120))
    run = simulate_pools(work(200, 30.0), POOL, small, **LINK)
    kept_out = -(-(run.work.prompt_tokens + run.work.output_tokens - 1) // 16) > 120
    assert np.array_equal(run.status == Status.REJECTED, kept_out)
    assert run.decode.attempts.preemptions.any()
    assert run.decode.step_prefill_tokens.any()
    assert (run.status[~kept_out] == Status.FINISHED).all()
    assert np.array_equal(run.emitted_tokens[~kept_out], run.work.output_tokens[~kept_out])


def test_a_horizon_leaves_travellers_unfinished() -> None:
    """Who was on the way when the run ended is neither finished nor forgotten."""
    slow = {"kv_bytes_per_token": 131_072.0, "link_bytes_per_s": 1e7}
    run = simulate_pools(work(), POOL, POOL, **slow, horizon_s=10.0)
    assert len(run) == (run.work.arrival_s <= 10.0).sum()
    on_the_way = run.transferred_s > 10.0
    assert on_the_way.any()
    assert (run.status[on_the_way] == Status.UNFINISHED).all()
    counts = run.summary(SLO(ttft_s=1.0)).counts
    assert sum(counts.values()) == len(run)


def test_compiled_and_plain_pools_agree() -> None:
    one, other = (simulate_pools(work(), POOL, POOL, **LINK, compiled=c) for c in (True, False))
    assert one.finish_s.tobytes() == other.finish_s.tobytes()


def test_by_length_is_two_engines_read_together() -> None:
    """Each engine must be as if the other did not exist, and every request in its own row."""
    load = work()
    run = simulate_by_length(load, 400, POOL, POOL)
    is_long = load.prompt_tokens > 400
    assert np.array_equal(run.is_long, is_long)
    for chosen, part in ((is_long, run.long), (~is_long, run.short)):
        rows = np.flatnonzero(chosen)
        alone = simulate(
            Workload(load.arrival_s[rows], load.prompt_tokens[rows], load.output_tokens[rows]), COST
        )
        assert np.array_equal(run.finish_s[rows], alone.finish_s)
        assert np.array_equal(run.first_token_s[rows], part.first_token_s)
    assert run.summary().successes == len(load)
    assert np.isfinite(run.e2e_s).all()


def test_by_length_keeps_the_refused_in_their_rows() -> None:
    load = work()
    small = (COST, EngineConfig(num_kv_blocks=40))
    run = simulate_by_length(load, 400, POOL, small, horizon_s=20.0)
    assert len(run) == (load.arrival_s <= 20.0).sum()
    refused = run.status == Status.REJECTED
    too_large = -(-(load.prompt_tokens + load.output_tokens - 1) // 16) > 40
    assert np.array_equal(refused, run.is_long & too_large[: len(run)])
    assert np.array_equal(run.end_s[refused], run.arrival_s[refused])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"prefill": COST}, "is no engine; give (cost, config)"),
        ({"decode": (COST, COST)}, "is not an EngineConfig"),
        ({"decode": (COST, EngineConfig(batching="single"))}, ""),
        ({"kv_bytes_per_token": -1.0}, "kv_bytes_per_token=-1.0 is negative"),
        ({"link_bytes_per_s": 0.0}, "link_bytes_per_s=0.0 is not above 0"),
        ({"transfer_latency_s": -1.0}, "transfer_latency_s=-1.0 is negative"),
    ],
)
def test_bad_pools_are_a_sentence(change: dict[str, Any], words: str) -> None:
    arguments: dict[str, Any] = {"prefill": POOL, "decode": POOL, **LINK, **change}
    if not words:
        assert len(simulate_pools(work(20), **arguments)) == 20
        return
    with pytest.raises(ValueError, match=re.escape(words)):
        simulate_pools(work(20), **arguments)


def test_a_bad_length_is_a_sentence() -> None:
    with pytest.raises(ValueError, match="over_tokens=-1 is below 0"):
        simulate_by_length(work(5), -1, POOL, POOL)


def test_nobody_needs_the_second_pool() -> None:
    """Answers of one token end in the first; an empty second pool is no error."""
    ones = Workload([0.0, 1.0], [9, 9], [1, 1])
    run = simulate_pools(ones, POOL, POOL, **LINK)
    assert (run.status == Status.FINISHED).all()
    assert len(run.decode) == 0
    assert len(simulate_pools(Workload([], [], []), POOL, POOL, **LINK)) == 0
    assert len(simulate_by_length(Workload([], [], []), 9, POOL, POOL)) == 0
