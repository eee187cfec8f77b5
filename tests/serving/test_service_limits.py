"""Set up as a textbook queue with a door, the service must refuse as the textbook says; otherwise
its counting of who waits is off by one, which no picture would show.

Erlang's loss system with several servers cannot be set up exactly: the engine's seats share one
step clock, so their services are not independent. With one seat it can, and that is tested.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from course.serving.engine import Admission, EngineConfig, Patience, Retry, ServiceRun
from course.serving.engine.service import simulate_service
from course.serving.pricing import LinearStepCost
from course.serving.queueing.closed_forms import mm1k
from course.serving.requests import Status
from course.serving.workload import Poisson, Workload

TOKENS_A_SECOND = 1_000_000
PER_TOKEN = LinearStepCost(per_prefill_token_s=1 / TOKENS_A_SECOND)
ONE_SEAT = EngineConfig(max_num_seqs=1, max_num_batched_tokens=2**31 - 1)
BATCHES = 40


def interval(values: np.ndarray) -> tuple[float, float]:
    """The 99 % confidence interval of the mean, by the method of batch means."""
    means = values[: values.size // BATCHES * BATCHES].reshape(BATCHES, -1).mean(axis=1)
    half = stats.t.ppf(0.995, BATCHES - 1) * means.std(ddof=1) / math.sqrt(BATCHES)
    return float(means.mean() - half), float(means.mean() + half)


def queue(load: float, requests: int, exponential: bool = True, **options: Any) -> ServiceRun:
    """The service as a single server with a mean service of 1 s, fed by a Poisson process."""
    generator = np.random.default_rng(7 + int(100 * load))
    seconds = generator.exponential(1.0, requests) if exponential else np.ones(requests)
    arrival_s = Poisson(load).draw(requests, generator)
    prompts = np.ceil(seconds * TOKENS_A_SECOND).astype(np.int64)
    work = Workload(arrival_s, prompts, np.ones(requests, dtype=np.int64))
    return simulate_service(work, PER_TOKEN, ONE_SEAT, **options)


@pytest.mark.parametrize("load", [0.5, 0.9, 1.5])
@pytest.mark.parametrize("capacity", [2, 5, 12])
def test_a_bounded_queue_refuses_as_m_m_1_k(load: float, capacity: int) -> None:
    """Of K places one is the seat: K − 1 may wait. Refusals and waits are the closed form's."""
    gate = Admission(max_waiting_requests=capacity - 1)
    run = queue(load, 200_000, admission=gate)
    figures = mm1k(load, 1.0, capacity)
    refused = run.status == Status.REJECTED
    low, high = interval(refused[2000:].astype(float))
    assert low < figures.reject_probability < high
    waits = (run.attempts.scheduled_s - run.attempts.sent_s)[~refused]
    low, high = interval(waits[2000:])
    assert low < figures.mean_wait_s < high


@pytest.mark.parametrize("exponential", [True, False])
def test_one_seat_and_no_queue_lose_as_erlang_says(exponential: bool) -> None:
    """B = a/(1 + a), whatever the services' distribution: only their mean counts."""

    def only_when_free(request: Any, state: Any) -> str:
        return "reject" if state.running_requests + state.waiting_requests else "accept"

    run = queue(0.8, 24_000, exponential, admission=only_when_free)
    low, high = interval((run.status == Status.REJECTED).astype(float))
    assert low < 0.8 / 1.8 < high
    served = run.finished
    np.testing.assert_allclose(run.attempts.scheduled_s[served], run.attempts.sent_s[served])


def test_a_bound_in_tokens_is_a_bound_in_requests_where_all_are_equal() -> None:
    """Two ways to say the same thing must refuse the same requests."""
    tokens = TOKENS_A_SECOND + 1  # each one's prompt and its one token
    one = queue(0.9, 5000, False, admission=Admission(max_waiting_requests=3))
    other = queue(0.9, 5000, False, admission=Admission(max_waiting_tokens=3 * tokens))
    assert (one.status == Status.REJECTED).sum() > 100
    assert one.status.tolist() == other.status.tolist()


def test_every_refused_client_who_retries_until_let_in_is_served() -> None:
    """With attempts without end and a door, nobody is lost: load is only put off."""
    gate = Admission(max_waiting_requests=2)
    run = queue(0.7, 3000, admission=gate, retry=Retry(attempts=None, delay_s=1.0, jitter=1.0))
    assert run.finished.all()
    assert (run.attempts.status == Status.REJECTED).sum() > 100
    assert run.useful_tokens == run.computed_tokens


def test_first_come_first_served_serves_those_who_are_about_to_leave() -> None:
    """Constant services of 1 s, three arrivals a second, a patience of 3.5 s: with or without
    noticing, the head of the line has nearly run out of patience, and nearly all work is for
    nobody. A door that refuses who would wait too long makes it one answer a second."""
    for noticed in (True, False):
        run = queue(3.0, 3000, False, patience=Patience(ttft_s=3.5, noticed=noticed))
        table = run.attempts
        assert table.ttft_s[table.finished].max() <= 3.5
        ghosts = table.status == Status.TIMED_OUT
        assert table.computed_tokens[ghosts].sum() == run.wasted_tokens
        assert run.wasted_tokens > 0.9 * run.computed_tokens
    gate = Admission(max_predicted_wait_s=1.4)
    run = queue(3.0, 3000, False, patience=Patience(ttft_s=3.5), admission=gate)
    assert run.finished.sum() > 0.99 * run.end_of_run_s
    assert run.wasted_tokens == 0
