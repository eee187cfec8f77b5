"""The prefix cache against closed forms, a small cache of its own, and its invariants.

The engine's steps with a cache are held to the reference elsewhere; here stands what must be true
of any cache: what is found was computed before, a block is in one place, and off means off."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course.serving.engine import (
    EngineConfig,
    Speculation,
    simulate,
    simulate_pools,
    simulate_service,
)
from course.serving.pricing import LinearStepCost
from course.serving.workload import Lognormal, Poisson, Prefixes, Workload, draw
from tests.engine_strategies import today_cases
from tests.lanes import examples
from tests.serving.engine_cases import run_of

COST = LinearStepCost(0.010, 2e-5, 1e-9, 1e-4, 1e-8)
EASY = settings(deadline=None, suppress_health_check=list(HealthCheck))
ONE_BY_ONE: dict[str, Any] = {"max_num_seqs": 1, "enable_prefix_caching": True, "block_size": 4}


def one_by_one(ids: list[list[int]], blocks: int) -> Any:
    """Serve prompts of whole blocks, one after the other, with nothing of their own but a block."""
    prompts = [4 * len(each) + 4 for each in ids]
    work = Workload(
        np.arange(len(ids)) * 100.0, prompts, [1] * len(ids),
        prefixes=Prefixes.hashed(ids, block_tokens=4),
    )  # fmt: skip
    return simulate(work, COST, EngineConfig(num_kv_blocks=blocks, **ONE_BY_ONE))


def test_hits_by_hand() -> None:
    """What three prompts find of one another, on paper."""
    # 8 blocks of 4. A: ids 1 2 and 4 tokens of its own; B: ids 1 3; C: ids 1 2, found whole
    run = one_by_one([[1, 2], [1, 3], [1, 2]], blocks=8)
    assert run.prefix_hit_tokens.tolist() == [0, 4, 8]
    assert run.prefix_hit_share == pytest.approx(12 / 36)
    assert run.step_prefill_tokens.tolist() == [12, 8, 4]
    # the last token is always computed: a prompt that is known to its end finds a block less
    work = Workload([0.0, 9.0], [8, 8], [1, 1], prefixes=Prefixes.hashed([[5, 6]] * 2, 4))
    again = simulate(work, COST, EngineConfig(num_kv_blocks=8, **ONE_BY_ONE))
    assert again.prefix_hit_tokens.tolist() == [0, 4]


def test_the_least_recently_used_block_is_forgotten_by_hand() -> None:
    """Three blocks: what was used last stays."""
    # each takes two blocks (one named, one of its own); the queue of free blocks after each:
    # A: 2, then own then a (last block first): 2 oA A.  B: takes 2 and oA; then A oB B
    # A finds A, takes oB, frees: B oA A.  C: takes B and oA: then A oC C.  A is found again.
    run = one_by_one([[1], [2], [1], [3], [1], [2]], blocks=3)
    assert run.prefix_hit_tokens.tolist() == [0, 0, 4, 0, 4, 0]


@settings(EASY, max_examples=examples(200))
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=4), max_size=40),
       st.integers(6, 14))  # fmt: skip
def test_hits_are_those_of_a_plain_lru_of_chains(ids: list[list[int]], blocks: int) -> None:
    """An independent cache: chains of names in an ordered dictionary, touched as they are used."""
    # a name is the whole chain up to it, as a trace's hash of all that came before
    names: dict[tuple[int, ...], int] = {}
    chains = [
        [names.setdefault(tuple(each[: end + 1]), len(names)) for end in range(len(each))]
        for each in ids
    ]
    run = one_by_one(chains, blocks)
    free: OrderedDict[Any, None] = OrderedDict((("none", i), None) for i in range(blocks))
    hits = []
    for request, chain in enumerate(chains):
        held = []
        for name in chain:
            if name not in free:
                break
            held.append(name)
            del free[name]
        hits.append(4 * len(held))
        for place in range(len(held), len(chain) + 1):
            free.popitem(last=False)
            held.append(chain[place] if place < len(chain) else ("own", request))
        for name in reversed(held):
            free[name] = None
    assert run.prefix_hit_tokens.tolist() == hits


@settings(EASY, max_examples=examples(200))
@given(today_cases())
def test_what_is_found_was_computed_before(case: dict[str, Any]) -> None:
    """A hit of tokens that nobody ever computed would be work done for nothing by nobody."""
    run = run_of(case)
    named = case.get("prefix_ids") or []
    if not run.config.enable_prefix_caching or any(len(set(ids)) < len(ids) for ids in named):
        return  # one name at two places of a prompt is found twice, and was computed once
    held = run.step_kv_blocks
    assert held is not None
    assert held.max(initial=0) <= case["num_kv_blocks"]
    found = run.prefix_hit_tokens + run.recovered_tokens
    assert (run.prefix_hit_tokens % case["block_size"] == 0).all()
    assert (run.prefix_hit_tokens < np.maximum(run.work.prompt_tokens[: len(run)], 1)).all()
    for request in np.flatnonzero(found > 0).tolist():
        sat_s = run.scheduled_s[request]
        before = run.step_end_s <= sat_s if run.recovered_tokens[request] == 0 else slice(None)
        computed = int((run.step_prefill_tokens[before] + run.step_decode_seqs[before]).sum())
        assert run.prefix_hit_tokens[request] <= computed


def test_the_cache_off_is_the_server_without_one() -> None:
    """Names in the workload must not move a step of a server that does not look at them."""
    work = draw(400, Poisson(20.0), Lognormal(5.5, 0.8), Lognormal(4.0, 0.7), seed=11)
    named = Workload(
        work.arrival_s, work.prompt_tokens, work.output_tokens,
        prefixes=Prefixes.groups([0] * 400, 300),
    )  # fmt: skip
    config = EngineConfig(num_kv_blocks=500)
    one, other = simulate(work, COST, config), simulate(named, COST, config)
    assert one.finish_s.tobytes() == other.finish_s.tobytes()
    assert other.prefix_hit_tokens.sum() == 0


def test_a_cache_that_finds_nothing_moves_no_step() -> None:
    """Without preemption or shared prompts a cache is no matter."""
    work = draw(300, Poisson(8.0), Lognormal(5.5, 0.8), Lognormal(4.0, 0.7), seed=3)
    plain = simulate(work, COST, EngineConfig(num_kv_blocks=9000))
    cached = simulate(work, COST, EngineConfig(num_kv_blocks=9000, enable_prefix_caching=True))
    np.testing.assert_allclose(cached.finish_s, plain.finish_s, rtol=0, atol=1e-9)
    assert plain.preemptions.sum() == 0
    assert cached.prefix_hit_tokens.sum() == 0


def test_a_shared_system_prompt_is_computed_once() -> None:
    """The saving that the cache is sold for, on paper."""
    work = Workload(
        [0.0, 50.0, 100.0], [1010] * 3, [2] * 3, prefixes=Prefixes.groups([0, 0, 0], 1000)
    )
    run = simulate(work, COST, EngineConfig(num_kv_blocks=200, enable_prefix_caching=True))
    assert run.prefix_hit_tokens.tolist() == [0, 992, 992]  # 62 whole blocks of 16
    assert run.step_prefill_tokens.sum() == 1010 + 2 * 18


# --- whole sequences, watermark, asynchrony, guesses, front end: on paper ------------------------
def test_whole_sequences_at_admission_by_hand() -> None:
    """A long prompt waits for room for all of it, though its first chunk would fit."""
    # 5 blocks of 4, budget 8. A: 9 tokens, then 4 more: holds 3 blocks from the second step on.
    # B: 12 tokens need 3 blocks: its first chunk of 7 would fit into the 2 that are left.
    work = Workload([0.0, 1.5], [9, 12], [4, 1])
    cost = LinearStepCost(fixed_s=1.0)
    dials: dict[str, Any] = {
        "num_kv_blocks": 5, "block_size": 4, "max_num_batched_tokens": 8,
    }  # fmt: skip
    chunks = simulate(work, cost, EngineConfig(scheduler_reserve_full_isl=False, **dials))
    whole = simulate(work, cost, EngineConfig(**dials))
    assert chunks.scheduled_s.tolist() == [0.0, 2.0]
    assert whole.scheduled_s.tolist() == [0.0, 5.0]
    assert whole.finish_s.tolist() == [5.0, 7.0]


def test_a_watermark_keeps_blocks_from_newcomers_alone() -> None:
    """The share that stays free is for those who run."""
    # 10 blocks of 4, a fifth kept. A: 4 blocks (13 to 16 tokens). B needs 5: 6 are free, less 2.
    work = Workload([0.0, 0.0], [13, 17], [4, 1])
    cost = LinearStepCost(fixed_s=1.0)
    for watermark, begins_s in ((0.0, 0.0), (0.2, 4.0)):
        config = EngineConfig(num_kv_blocks=10, block_size=4, watermark=watermark)
        assert simulate(work, cost, config).scheduled_s.tolist() == [0.0, begins_s]
    full = EngineConfig(num_kv_blocks=5, block_size=4, watermark=0.2)
    assert simulate(work, cost, full).status.tolist() == [0, 1]  # five blocks, one always kept


def test_asynchronous_scheduling_by_hand() -> None:
    """Who comes during a step is not in the next one but in the one after it."""
    work = Workload([0.0, 0.5, 9.0], [4, 4, 4], [4, 1, 1])
    cost = LinearStepCost(fixed_s=1.0)
    run = simulate(work, cost, EngineConfig(async_scheduling=True))
    # steps begin at 0, 1, 2, 3: the second is decided at 0 and does not know of 0.5
    assert run.scheduled_s.tolist() == [0.0, 2.0, 9.0]  # an idle engine starts at once
    assert simulate(work, cost, EngineConfig()).scheduled_s.tolist() == [0.0, 1.0, 9.0]


def test_a_front_end_is_in_ttft_and_in_no_step() -> None:
    """Its delay is paid once by everybody and changes nothing else."""
    work = draw(200, Poisson(4.0), Lognormal(5.5, 0.8), Lognormal(4.0, 0.7), seed=5)
    plain = simulate(work, COST)
    late = simulate(work, COST, EngineConfig(front_end_s=0.25))
    np.testing.assert_allclose(late.ttft_s, plain.ttft_s + 0.25, rtol=0, atol=1e-9)
    np.testing.assert_allclose(late.tpot_s, plain.tpot_s, rtol=0, atol=1e-9)
    assert late.arrival_s.tolist() == work.arrival_s.tolist()
    np.testing.assert_allclose(np.diff(late.step_end_s), np.diff(plain.step_end_s), atol=1e-9)


@pytest.mark.parametrize(("guesses", "acceptance"), [(1, 0.3), (3, 0.5), (4, 0.8), (5, 1.0)])
def test_speculation_emits_what_theory_says(guesses: int, acceptance: float) -> None:
    """(1 − a^(k+1)) / (1 − a) tokens a step (Leviathan et al., 2023, eq. 1), 4 standard errors."""
    work = Workload(np.zeros(40), [10] * 40, [2000] * 40)
    dial = Speculation(guesses, acceptance, seed=2)
    run = simulate(work, COST, EngineConfig(speculation=dial))
    steps = [np.unique(run.token_steps(request)[1:]).size for request in range(40)]
    mean = 40 * 1999 / sum(steps)
    expected = sum(acceptance**power for power in range(guesses + 1))
    assert dial.mean_tokens == pytest.approx(expected)
    assert mean == pytest.approx(expected, abs=0.02)
    counts = np.bincount(np.unique(run.token_steps(0)[1:], return_counts=True)[1])
    for tokens in range(1, guesses + 1):
        share = (1 - acceptance) * acceptance ** (tokens - 1)
        sigma = (share * (1 - share) / steps[0]) ** 0.5
        assert counts[tokens] / steps[0] == pytest.approx(share, abs=4 * sigma + 2 / steps[0])


def test_verifying_is_priced_as_that_many_tokens() -> None:
    """Guesses that are all wrong cost their verification and bring nothing."""
    work = Workload([0.0], [10], [50])
    cost = LinearStepCost(fixed_s=0.01, per_decode_seq_s=0.001)
    plain = simulate(work, cost)
    wrong = simulate(work, cost, EngineConfig(speculation=Speculation(4, acceptance=0.0)))
    assert wrong.step_end_s.size == plain.step_end_s.size
    extra = [min(4, 50 - emitted - 1) for emitted in range(1, 50)]
    assert wrong.finish_s[0] - plain.finish_s[0] == pytest.approx(0.001 * sum(extra))
    right = simulate(work, cost, EngineConfig(speculation=Speculation(4, acceptance=1.0)))
    assert right.step_end_s.size == 1 + 10  # 49 tokens, five a step, the last four


# --- bad input -----------------------------------------------------------------------------------
def test_prefixes_that_do_not_fit_are_named() -> None:
    """A wrong list of identities is cut in silence, and finds what it should not."""
    with pytest.raises(ValueError, match=re.escape("prefixes[1] names 3 blocks of 4 tokens")):
        Workload([0.0, 0.0], [8, 8], [1, 1], prefixes=Prefixes.hashed([[1], [1, 2, 3]], 4))
    with pytest.raises(ValueError, match="prefixes"):
        Workload([0.0, 0.0], [8, 8], [1, 1], prefixes=Prefixes.hashed([[1]], 4))
    with pytest.raises(ValueError, match="is no Prefixes"):
        Workload([0.0], [8], [1], prefixes=[[1]])  # type: ignore[arg-type]
    work = Workload([0.0], [8], [1], prefixes=Prefixes.hashed([[1]], 6))
    cached = EngineConfig(num_kv_blocks=9, block_size=4, enable_prefix_caching=True)
    with pytest.raises(ValueError, match="block_size=4 does not divide the 6 tokens"):
        simulate(work, COST, cached)
    by_hand = Workload([0.0], [8], [1], cached_prefix_tokens=[4])
    with pytest.raises(ValueError, match="cached_prefix_tokens says by hand"):
        simulate(by_hand, COST, cached)
    with pytest.raises(ValueError, match="decode has enable_prefix_caching=True"):
        simulate_pools(work, (COST, EngineConfig()), (COST, cached), kv_bytes_per_token=1.0,
                       link_bytes_per_s=1.0)  # fmt: skip


def test_a_clock_that_overflows_is_refused() -> None:
    """A price near the largest number ended the process."""
    work = Workload([0.0] * 3, [5] * 3, [5] * 3)
    for run in (simulate, simulate_service):
        with pytest.raises(ValueError, match="a clock cannot count so far"):
            run(work, LinearStepCost(fixed_s=1e308))
