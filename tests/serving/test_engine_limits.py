"""Set up as a textbook queue, the engine must be that queue; otherwise its clock or its queue is
wrong in a way that no hand-worked case of a few steps could show."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from course.serving.engine import EngineConfig, Run, modes, simulate, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, Poisson, Workload

TOKENS_A_SECOND = 1_000_000
PER_TOKEN = LinearStepCost(per_prefill_token_s=1 / TOKENS_A_SECOND)
ONE_SEAT = EngineConfig(max_num_seqs=1, max_num_batched_tokens=2**31 - 1)
BATCHES = 40


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 99 % confidence interval of the mean, by the method of batch means."""
    means = values[: values.size // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    half = stats.t.ppf(0.995, BATCHES - 1) * means.std(ddof=1) / math.sqrt(BATCHES)
    return float(means.mean() - half), float(means.mean() + half)


def queue(load: float, exponential: bool, requests: int = 400_000) -> Run:
    """The engine as a single server with a mean service of 1 s, fed by a Poisson process."""
    generator = np.random.default_rng(20 + int(100 * load))
    seconds = generator.exponential(1.0, requests) if exponential else np.ones(requests)
    arrival_s = Poisson(load).draw(requests, generator)
    prompts = np.ceil(seconds * TOKENS_A_SECOND).astype(np.int64)
    work = Workload(arrival_s, prompts, np.ones(requests, dtype=np.int64))
    return simulate(work, PER_TOKEN, ONE_SEAT)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_exponential_prompts_and_one_seat_are_m_m_1(load: float) -> None:
    """Mean time in the system 1/(μ − λ), mean wait ρ/(μ − λ)."""
    run = queue(load, exponential=True)
    start = 20_000  # by then the empty beginning is forgotten
    low, high = interval(run.e2e_s[start:])
    assert low < 1 / (1 - load) < high
    low, high = interval((run.scheduled_s - run.arrival_s)[start:])
    assert low < load / (1 - load) < high


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_equal_prompts_and_one_seat_are_m_d_1(load: float) -> None:
    """Pollaczek–Khinchine without variance: half the wait of M/M/1."""
    run = queue(load, exponential=False)
    low, high = interval((run.scheduled_s - run.arrival_s)[20_000:])
    assert low < load / (2 * (1 - load)) < high


def test_a_step_by_step_lindley_recursion_gives_the_same_waits() -> None:
    """Not only on average: each wait is what the recursion of a single queue gives."""
    run = queue(0.8, exponential=True, requests=20_000)
    service_s = run.work.prompt_tokens / TOKENS_A_SECOND
    end_s = 0.0
    for request in range(20_000):
        start_s = max(end_s, run.arrival_s[request])
        end_s = start_s + service_s[request]
        assert run.scheduled_s[request] == pytest.approx(start_s, abs=1e-6)


def test_decoding_alone_is_a_rate_that_can_be_worked_out() -> None:
    """A full house of equal requests: tokens a second = seats / step, the whole time."""
    seats, output = 16, 401
    cost = LinearStepCost(fixed_s=0.010, per_decode_seq_s=0.0005)
    work = Workload(np.zeros(seats), np.full(seats, 8), np.full(seats, output))
    run = simulate(work, cost, EngineConfig(max_num_seqs=seats))
    step_s = 0.010 + 0.0005 * seats
    np.testing.assert_allclose(run.tpot_s, step_s)
    assert run.end_s == pytest.approx(0.010 + (output - 1) * step_s)


def test_the_closed_loop_obeys_its_own_law() -> None:
    """N users = throughput · (response + think): the law that audits a load test."""
    users, think_s = 12, 0.7
    work = Workload(
        np.zeros(6000), Fixed(50).draw(6000, np.random.default_rng(0)), np.full(6000, 20)
    )
    run = simulate_closed(users, think_s, work, LinearStepCost(0.01, 1e-5, 0, 5e-4, 0))
    steady = slice(1000, 5000)
    span_s = run.finish_s[steady].max() - run.finish_s[steady].min()
    throughput = 4000 / span_s
    assert throughput * (run.e2e_s[steady].mean() + think_s) == pytest.approx(users, rel=0.01)


def test_static_batches_of_one_are_the_single_mode() -> None:
    """Two ways to say the same thing must be the same thing."""
    generator = np.random.default_rng(3)
    work = Workload(
        np.sort(generator.uniform(0, 60, 200)),
        generator.integers(1, 400, 200),
        generator.integers(1, 40, 200),
    )
    cost = LinearStepCost(0.01, 1e-5, 1e-9, 5e-4, 1e-8)
    one = simulate(work, cost, EngineConfig(batching=modes.static(1)))
    single = simulate(work, cost, EngineConfig(batching="single"))
    assert one.finish_s.tobytes() == single.finish_s.tobytes()
    assert one.step_end_s.tobytes() == single.step_end_s.tobytes()
