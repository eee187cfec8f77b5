"""An overload that outlives its cause: the burst is over, the load is the old one, and the service
stays down, until somebody says no. Were this an artefact of the numbers chosen, of one seed or of
the engine, notebook 05 would teach a fear of something that does not exist."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import pytest
from scipy import stats

from course.serving.engine import (
    Admission,
    EngineConfig,
    Patience,
    Retry,
    ServiceRun,
    simulate_service,
)
from course.serving.pricing.linear import LinearStepCost
from course.serving.requests import Status
from course.serving.scenes import burst as scenes
from course.serving.scenes.burst import GATES, PROMISE, RETRIES, Burst
from course.serving.workload import Workload

pytestmark = pytest.mark.slow

BURST = Burst()
LENGTH_S = BURST.length_s
SEEDS = range(1, 21)
PATIENT_CLIENTS = RETRIES["three attempts and jitter"]
GATE = GATES["deadline-aware"]


@lru_cache(maxsize=256)
def ran(retry: str, gate: str, seed: int, noticed: bool = True) -> ServiceRun:
    return scenes.run_burst(
        BURST, retry=RETRIES[retry], admission=GATES[gate], noticed=noticed, seed=seed
    )


def shares(retry: str, gate: str, from_lengths: float, to_lengths: float) -> np.ndarray:
    """Goodput after / before, one a seed."""
    window = from_lengths * LENGTH_S, to_lengths * LENGTH_S
    return np.array([scenes.share_of_before(ran(retry, gate, s), BURST, *window) for s in SEEDS])


def interval(values: np.ndarray) -> tuple[float, float]:
    """The mean's 95 % interval by Student's t."""
    half = stats.t.ppf(0.975, values.size - 1) * values.std(ddof=1) / np.sqrt(values.size)
    return values.mean() - half, values.mean() + half


# --- the collapse -----------------------------------------------------------------------------


def test_the_load_is_the_same_before_and_after() -> None:
    """Otherwise the collapse would need no explanation."""
    before = after = 0
    start_s, end_s = BURST.before
    for seed in SEEDS:
        sent_s = scenes.burst_work(BURST, seed).arrival_s
        before += ((sent_s >= start_s) & (sent_s < end_s)).sum()
        after += ((sent_s >= BURST.end_s) & (sent_s < BURST.end_s + 10 * LENGTH_S)).sum()
    rates = before / (end_s - start_s) / len(SEEDS), after / (10 * LENGTH_S) / len(SEEDS)
    np.testing.assert_allclose(rates, BURST.rate_per_s, rtol=0.01)
    assert BURST.rate_per_s < 0.8 * scenes.capacity_per_s(), "not overloaded by itself"


@pytest.mark.parametrize("retry", ["three attempts", "three attempts and jitter", "unlimited"])
def test_the_collapse_outlives_the_burst_ten_times(retry: str) -> None:
    """Goodput is under half of what it was, in each tenth of the time after, for every seed; jitter
    alone changes nothing about it."""
    for tenth in range(10):
        there = shares(retry, "accept everything", tenth, tenth + 1)
        assert there.max() < 0.5, f"burst length {tenth} after the end"
    assert interval(shares(retry, "accept everything", 0, 10))[1] < 0.5


def test_late_answers_do_not_make_up_for_it() -> None:
    """Were goodput low only because retried answers come late, users would still be served."""
    for seed in SEEDS:
        run = ran("three attempts", "accept everything", seed)
        after = (run.first_sent_s >= BURST.end_s) & (run.first_sent_s < BURST.end_s + 200)
        assert run.finished[after].mean() < 0.5
        assert run.attainment(PROMISE, *BURST.before) > 0.97


def test_the_server_works_all_the_time_and_for_nobody() -> None:
    """A collapse with an idle server would be another fault than the one that is taught."""
    run = ran("three attempts", "accept everything", 1)
    after = run.step_start_s > BURST.end_s
    busy_s = (run.step_end_s - run.step_start_s)[after].sum()
    assert busy_s > 0.99 * (run.end_of_run_s - BURST.end_s)
    table = run.attempts
    sent_after = table.sent_s > BURST.end_s
    of_finished = table.computed_tokens[sent_after & table.finished].sum()
    assert of_finished < 0.05 * table.computed_tokens[sent_after].sum()


def test_each_request_is_sent_as_often_as_allowed() -> None:
    """What keeps it down: three attempts each, and so more attempts a second than can be served."""
    run = ran("three attempts", "accept everything", 1)
    after = (run.first_sent_s >= BURST.end_s) & (run.first_sent_s < BURST.end_s + 200)
    assert run.attempt_counts[after].mean() == pytest.approx(3, abs=0.05)
    assert BURST.rate_per_s * 3 > 2 * scenes.capacity_per_s()


# --- not an artefact --------------------------------------------------------------------------


def test_without_the_burst_the_same_server_stays_well() -> None:
    """Two lasting states at one load: that is what metastable means."""
    quiet = replace(BURST, factor=1.0)
    for seed in SEEDS:
        run = scenes.run_burst(quiet, retry=RETRIES["three attempts"], seed=seed)
        assert run.attainment(PROMISE, 20, 280) > 0.97


@pytest.mark.parametrize(("length_s", "tipped"), [(3.0, 0), (10.0, len(SEEDS))])
def test_a_short_burst_does_not_tip_it_and_a_longer_one_does(length_s: float, tipped: int) -> None:
    burst = replace(BURST, length_s=length_s)
    kept = [
        scenes.share_of_before(
            scenes.run_burst(burst, retry=RETRIES["three attempts"], seed=seed), burst, 40.0, 200.0
        )
        for seed in SEEDS
    ]
    assert sum(share < 0.5 for share in kept) == tipped
    assert all(share < 0.5 or share > 0.9 for share in kept), "two states and none between"


@pytest.mark.parametrize("noticed", [True, False])
def test_another_server_with_other_lengths_does_the_same(noticed: bool) -> None:
    """A straight-line cost, all requests alike, no limit of memory and chunking off."""
    cost = LinearStepCost(fixed_s=0.02, per_prefill_token_s=5e-5, per_decode_seq_s=5e-4)
    config = EngineConfig(max_num_seqs=24, enable_chunked_prefill=False)
    full = Workload(np.zeros(2000), np.full(2000, 500), np.full(2000, 100))
    capacity = 2000 / simulate_service(full, cost, config).end_of_run_s
    burst = replace(BURST, rate_per_s=0.75 * capacity, factor=4.0)
    goodput = {}
    for name, gate in (("none", None), ("gate", Admission(max_predicted_wait_s=2.0))):
        kept = []
        for seed in range(1, 6):
            arrival_s = scenes.burst_work(burst, seed).arrival_s
            work = Workload(arrival_s, np.full(arrival_s.size, 500), np.full(arrival_s.size, 100))
            run = simulate_service(
                work, cost, config, patience=Patience(e2e_s=10.0, noticed=noticed),
                retry=PATIENT_CLIENTS, admission=gate, seed=seed, horizon_s=burst.horizon_s,
            )  # fmt: skip
            kept.append(scenes.share_of_before(run, burst, 2 * LENGTH_S, 10 * LENGTH_S))
        goodput[name] = np.array(kept)
    assert goodput["none"].max() < 0.5
    assert goodput["gate"].mean() > 0.95


# --- the escape -------------------------------------------------------------------------------


def test_refusing_what_cannot_make_it_brings_the_service_back() -> None:
    """Within two burst lengths, for clients with three attempts and jitter."""
    gated = shares("three attempts and jitter", "deadline-aware", 2, 10)
    low, high = interval(gated)
    assert low > 0.95, (low, high)
    open_door = shares("three attempts and jitter", "accept everything", 2, 10)
    assert interval(gated - open_door)[0] > 0.9, "paired: the gate alone makes the difference"
    for seed in SEEDS:
        run = ran("three attempts and jitter", "deadline-aware", seed)
        end_s = BURST.end_s
        before = run.attainment(PROMISE, *BURST.before)
        after = run.attainment(PROMISE, end_s + 2 * LENGTH_S, end_s + 10 * LENGTH_S)
        assert after > 0.95 * before


def test_a_refusal_costs_the_server_nothing_and_the_client_little() -> None:
    run = ran("three attempts and jitter", "deadline-aware", 1)
    table = run.attempts
    refused = table.status == Status.REJECTED
    assert refused.sum() > 100
    assert table.computed_tokens[refused].sum() == 0
    assert run.wasted_tokens < 0.05 * run.computed_tokens


AT_ONCE, LATER, DOWN = "at once", "later", "stays down"
# gate -> retry -> (cancel noticed, not noticed)
ESCAPES = {
    "accept everything": {
        "no retry": (AT_ONCE, LATER),
        "three attempts": (DOWN, DOWN),
        "three attempts and jitter": (DOWN, DOWN),
        "retry budget": (AT_ONCE, DOWN),
        "unlimited": (DOWN, DOWN),
    },
    "shorter answers": {
        "no retry": (AT_ONCE, AT_ONCE),
        "three attempts": (DOWN, DOWN),
        "three attempts and jitter": (DOWN, DOWN),
        "retry budget": (AT_ONCE, AT_ONCE),
        "unlimited": (DOWN, DOWN),
    },
    "bounded queue": {
        "no retry": (AT_ONCE, AT_ONCE),
        "three attempts": (AT_ONCE, AT_ONCE),
        "three attempts and jitter": (AT_ONCE, AT_ONCE),
        "retry budget": (AT_ONCE, AT_ONCE),
        "unlimited": (LATER, LATER),
    },
    "deadline-aware": {
        "no retry": (AT_ONCE, AT_ONCE),
        "three attempts": (AT_ONCE, AT_ONCE),
        "three attempts and jitter": (AT_ONCE, AT_ONCE),
        "retry budget": (AT_ONCE, AT_ONCE),
        "unlimited": (LATER, LATER),
    },
}


@pytest.mark.parametrize("retry", RETRIES)
@pytest.mark.parametrize("gate", GATES)
def test_the_table_of_escapes(gate: str, retry: str) -> None:
    """The notebook prints this table; a wrong entry would send somebody home with a wrong cure."""
    found = tuple(
        scenes.escape(
            BURST, retry=RETRIES[retry], admission=GATES[gate], noticed=noticed, seeds=range(1, 5)
        )
        for noticed in (True, False)
    )
    assert found == ESCAPES[gate][retry]


def test_more_attempts_than_the_capacity_allows_are_what_keeps_it_down() -> None:
    """Two attempts at 74 % load are 148 % of the capacity; at 40 % load they are not too many."""
    light = replace(BURST, rate_per_s=0.4 * scenes.capacity_per_s(), factor=6.0)
    for rate, word in ((light, AT_ONCE), (BURST, DOWN)):
        assert scenes.escape(rate, retry=Retry(attempts=2, delay_s=1.0)) == word
