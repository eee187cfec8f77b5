"""What a run of the service tells, the hash of its retries, its copy of the step's cost, and the
guesses of lengths: each held against another way to get the same number."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.serving.engine import (
    Admission,
    EngineConfig,
    Patience,
    Retry,
    ServiceRun,
    class_mean,
    noisy,
    oracle,
    simulate,
    simulate_service,
    warm_steps,
)
from course.serving.engine.clients import retry_uniform
from course.serving.engine.kernels import codes, common
from course.serving.engine.kernels import service as _service_kernels
from course.serving.engine.kernels import steps as _kernels
from course.serving.pricing import LinearStepCost
from course.serving.requests import Status
from course.serving.requests.metrics import SLO
from course.serving.workload import Lognormal, Poisson, Workload, draw

COST = LinearStepCost(0.010, 2e-5, 0.0, 1e-4, 1e-8)
LIMITS = SLO(ttft_s=2.0, tpot_s=0.05, quantile=0.9)


@pytest.fixture(scope="module")
def storm() -> ServiceRun:
    """An overload with refusals, time-outs, retries and short answers."""
    work = draw(1500, Poisson(40.0), Lognormal(5.5, 0.8), Lognormal(4.76, 0.7), seed=3)
    return simulate_service(
        work,
        COST,
        EngineConfig(max_num_seqs=32),
        patience=Patience(ttft_s=1.5, e2e_s=20.0),
        retry=Retry(3, 0.5, 2.0, 0.5),
        admission=Admission(max_waiting_requests=90, degrade_wait_s=1.0, degrade_to_tokens=50),
        horizon_s=30.0,
    )


# --------------------------------------------------------------------------------- the formulas
def test_there_is_one_cost_and_one_list_of_codes() -> None:
    """Two that drift apart would be two engines: another queue here than there, another price."""
    for name in ("step_seconds", "blocks_for", "attention_pairs"):
        assert getattr(_service_kernels, name) is getattr(_kernels, name) is getattr(common, name)
    for loops in (_kernels, _service_kernels, common):
        for name, code in vars(codes).items():
            if name.isupper():
                assert getattr(loops, name, code) == code
    for kind in Status:
        if kind != Status.FAILED:
            assert getattr(codes, kind.name) == kind


def test_a_roofline_step_costs_the_same_in_both() -> None:
    """The compiled second formula, not only the plain one."""
    from course.serving.pricing.linear import KernelCost, StepFeatures

    class Roof:
        def kernel_form(self) -> KernelCost:
            return KernelCost(2, (0.004, 1e-6, 1e-9, 1e-5, 1e-8, 0.006, 2e-5, 2e-5))

        def step_seconds(self, features: StepFeatures) -> float:
            form = self.kernel_form()
            return float(_kernels.step_seconds.py_func(form.code, form.coefficients, *features))

    work = draw(300, Poisson(30.0), Lognormal(5.5, 0.8), Lognormal(4.0, 0.7), seed=1)
    ends = simulate(work, Roof()).step_end_s
    assert simulate_service(work, Roof()).step_end_s.tobytes() == ends.tobytes()
    assert simulate_service(work, Roof(), compiled=False).step_end_s.tobytes() == ends.tobytes()


@given(st.integers(0, 2**53), st.integers(0, 2**31 - 1), st.integers(1, 2**31 - 1))
def test_the_compiled_hash_is_the_plain_one(seed: int, request: int, attempt: int) -> None:
    """The jitter must not depend on which loop runs."""
    uniform = retry_uniform(seed, request, attempt)
    assert uniform == _service_kernels.retry_uniform(seed, request, attempt)
    assert 0.0 <= uniform < 1.0


def test_the_hash_spreads_evenly() -> None:
    """Neighbouring requests and attempts must not come back together: that is the jitter's use."""
    draws = np.array([[retry_uniform(5, r, a) for a in range(1, 5)] for r in range(2500)])
    counts, _ = np.histogram(draws, bins=20, range=(0, 1))
    assert np.abs(counts - 500).max() < 5 * math.sqrt(500)
    for one, other in ((draws[:, 0], draws[:, 1]), (draws[:-1, 0], draws[1:, 0])):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.08


# -------------------------------------------------------------------------------------- the run
def test_a_request_is_what_became_of_its_last_attempt(storm: ServiceRun) -> None:
    """The user's clock starts at the first attempt, and counts every second of the others."""
    table = storm.attempts
    assert {int(kind) for kind in (0, 1, 2, 4)} == set(storm.status.tolist())
    assert storm.degraded.any()
    for request in range(len(storm)):
        rows = np.flatnonzero(table.request == request)
        last = rows[-1]
        assert storm.attempt_counts[request] == rows.size
        assert storm.status[request] == table.status[last]
        assert storm.first_sent_s[request] == table.sent_s[rows[0]]
        assert np.array_equal(storm.end_s[request], table.end_s[last], equal_nan=True)
        if storm.finished[request]:
            wait_s = table.sent_s[last] - table.sent_s[rows[0]]
            assert storm.ttft_s[request] == pytest.approx(wait_s + table.ttft_s[last])
            assert storm.e2e_s[request] == pytest.approx(wait_s + table.e2e_s[last])
        else:
            assert math.isnan(storm.ttft_s[request])


def test_attainment_counts_every_request_offered(storm: ServiceRun) -> None:
    """A server that refuses everybody it would serve late must not look perfect."""
    good = storm.good(LIMITS)
    assert storm.attainment(LIMITS) == storm.summary(LIMITS).attainment == good.mean()
    assert storm.summary(LIMITS).met == good.sum()
    early = (storm.first_sent_s >= 5.0) & (storm.first_sent_s < 15.0)
    assert storm.attainment(LIMITS, 5.0, 15.0) == good[early].sum() / early.sum()
    assert storm.goodput_per_s(LIMITS, 5.0, 15.0) == good[early].sum() / 10.0
    assert storm.goodput_per_s(LIMITS) == pytest.approx(storm.summary(LIMITS).goodput_per_s)
    assert storm.goodput_per_s(SLO()) is None
    assert storm.goodput_per_s(LIMITS, 5.0, 5.0) is None
    assert storm.attainment(LIMITS, 1e6, 2e6) is None
    assert storm.summary().degraded == (storm.degraded & storm.finished).sum()


@pytest.mark.parametrize("width_s", [0.7, 5.0, 1000.0])
def test_a_time_series_adds_up_to_the_run(storm: ServiceRun, width_s: float) -> None:
    """A bin that drops its edges would hide a burst."""
    bins = storm.timeseries(width_s, LIMITS)
    table = storm.attempts
    assert bins.end_s.iloc[-1] >= storm.window().end_s
    assert bins.offered.sum() == len(storm)
    assert bins.attempts.sum() == len(table)
    assert bins.finished.sum() == (table.status == Status.FINISHED).sum()
    assert bins.rejected.sum() == (table.status == Status.REJECTED).sum()
    assert bins.timed_out.sum() == (table.status == Status.TIMED_OUT).sum()
    assert bins.good.sum() == storm.good(LIMITS).sum()
    for row in bins.itertuples():
        step = int(np.searchsorted(storm.step_start_s, row.end_s, side="right")) - 1
        going_on = storm.step_end_s[step] > row.end_s
        assert row.running == (storm.step_running[step] if going_on else 0)
        assert row.waiting == (storm.step_waiting[step] if going_on else 0)


def test_a_run_in_which_nobody_comes_has_no_numbers() -> None:
    """An empty load must not divide by its length."""
    run = simulate_service(Workload([], [], []), COST)
    assert len(run) == len(run.attempts) == run.computed_tokens == run.useful_tokens == 0
    assert run.attainment(LIMITS) is None
    assert len(run.timeseries(1.0)) == 1
    assert "no requests" in repr(run)


def test_a_run_names_what_happened(storm: ServiceRun) -> None:
    assert f"{len(storm.attempts)} attempts" in repr(storm)
    assert "timed_out" in repr(storm)


def test_the_retry_budget_bounds_the_storm() -> None:
    """With a budget of a tenth, retries are at most a tenth of the requests, and the burst."""
    work = draw(4000, Poisson(80.0), Lognormal(5.5, 0.8), Lognormal(4.76, 0.7), seed=3)
    for share, burst in ((0.1, 10.0), (0.5, 0.0), (0.0, 25.0)):
        run = simulate_service(
            work,
            COST,
            patience=Patience(ttft_s=1.0),
            retry=Retry(None, 0.2, budget_share=share, budget_burst=burst),
        )
        retries = len(run.attempts) - len(run)
        assert retries <= share * len(run) + burst
        assert retries >= (0.9 * share * len(run) if burst >= 1 else 0)


def test_everything_is_warmed() -> None:
    """The first slider of a lesson must not wait for a compiler."""
    assert "clients who give up, and a gate" in [label for label, _ in warm_steps()]
    for _, step in warm_steps():
        step()
    compiled = len(_service_kernels.run_service.signatures)
    work = Workload([0.0], [9], [3], priority=[1.0], label=["a"], cached_prefix_tokens=[3])
    gate = Admission(tenant_tokens_per_s=9.0, tenant_burst_tokens=90.0)
    simulate_service(work, COST, EngineConfig(num_kv_blocks=9, order="priority"), admission=gate)
    assert len(_service_kernels.run_service.signatures) == compiled == 1


# ------------------------------------------------------------------------------------ predictors
def test_guesses_have_the_error_they_are_asked_for() -> None:
    """A predictor that is worse than it says would make a scheduler look bad."""
    work = draw(20_000, Poisson(9.0), Lognormal(5.0, 0.5), Lognormal(6.0, 0.7), seed=0)
    for cv in (0.2, 0.5, 1.0):
        guesses = noisy(work, cv, seed=1).predicted_output_tokens
        assert guesses is not None
        ratio = guesses / work.output_tokens
        assert ratio.mean() == pytest.approx(1.0, abs=0.03)
        assert ratio.std() == pytest.approx(cv, rel=0.06)
        assert guesses.min() >= 1
    sure = noisy(work, 0.0, seed=1).predicted_output_tokens
    assert np.array_equal(sure, oracle(work).predicted_output_tokens)
    with pytest.raises(ValueError, match="cv=-1 is negative"):
        noisy(work, -1, seed=0)


def test_a_class_mean_is_the_mean_of_the_class() -> None:
    """And of all where there are no classes; the true lengths stay what they are."""
    label = ["a", "b", "a", "c"]
    work = Workload([0.0] * 4, [9] * 4, [10, 7, 21, 1], label=label)
    guessed = class_mean(work, by=work.label)
    assert guessed.predicted_output_tokens.tolist() == [16, 7, 16, 1]
    assert guessed.output_tokens.tolist() == [10, 7, 21, 1]
    assert class_mean(work).predicted_output_tokens.tolist() == [10] * 4
    with pytest.raises(ValueError, match="give one class each"):
        class_mean(work, by=["a"])
    assert len(class_mean(Workload([], [], []))) == 0


def test_worse_guesses_make_shortest_first_worse() -> None:
    """The prediction is what the order reads, or the dial would do nothing."""
    work = draw(600, Poisson(60.0), Lognormal(4.0, 0.5), Lognormal(4.76, 0.9), seed=5)
    config = EngineConfig(max_num_seqs=16, order="sjf")
    means = [
        float(np.nanmean(simulate_service(guessed, COST, config).e2e_s))
        for guessed in (oracle(work), noisy(work, 2.0, seed=0), class_mean(work))
    ]
    assert means[0] < means[1] < means[2]
