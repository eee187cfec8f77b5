"""Constants from measurements: found where these fix them, and said where they do not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from course.serving import catalog
from course.serving.pricing.linear import DEFAULTS, Constants, RooflineStepCost, StepFeatures
from course.serving.validation.fit import (
    ConstantsFit,
    MeasuredStep,
    fit_constants,
    fit_serving,
    fit_steps,
    refit_without,
    steps_of,
)
from tests.lanes import examples

DECODES = [StepFeatures(0, 0, n, n * 1000) for n in (1, 8, 32, 128, 256)]
PREFILLS = [StepFeatures(n, n * (n + 1) // 2, 0, 0) for n in (128, 512, 2048, 4096)]


def timed(
    true: Constants,
    steps: list[StepFeatures],
    model: str = "Llama-3.1-8B",
    precision: str = "bf16",
    noise: float = 0.0,
    seed: int = 0,
) -> list[MeasuredStep]:
    """Steps that take what the roofline says, but for a relative noise."""
    cost = RooflineStepCost(model, "H100-80GB-SXM", precision=precision, constants=true)
    factors = np.exp(noise * np.random.default_rng(seed).standard_normal(len(steps)))
    return [
        MeasuredStep(
            model, "H100-80GB-SXM", step, cost.step_seconds(step) * factor, precision=precision
        )
        for step, factor in zip(steps, factors.tolist(), strict=True)
    ]


@settings(max_examples=examples(20))
@given(overhead=st.floats(0.0, 0.01), mbu=st.floats(0.3, 0.99), mfu=st.floats(0.2, 0.99))
def test_constants_behind_exact_times_are_found(overhead: float, mbu: float, mfu: float) -> None:
    true = replace(DEFAULTS, overhead_s=overhead, mbu=mbu, mfu_bf16=mfu)
    fit = fit_steps(timed(true, DECODES + PREFILLS))
    assert fit.worst_error < 1e-4
    assert fit.constants.overhead_s == pytest.approx(overhead, abs=3e-6)
    assert fit.constants.mbu == pytest.approx(mbu, rel=1e-3)
    assert fit.constants.mfu_bf16 == pytest.approx(mfu, rel=1e-3)


def test_uncertainty_is_as_large_as_the_scatter_of_repeated_fits() -> None:
    """An uncertainty that nobody checked is a decoration."""
    fits = [
        fit_steps(timed(DEFAULTS, DECODES + PREFILLS, noise=0.03, seed=seed)) for seed in range(40)
    ]
    for name in ("overhead_s", "mbu", "mfu_bf16"):
        scatter = np.std([getattr(fit.constants, name) for fit in fits], ddof=1)
        stated = np.median([fit.uncertainty[name] for fit in fits])
        assert stated == pytest.approx(scatter, rel=0.35), name


def test_one_model_without_its_cache_cannot_tell_overhead_from_bandwidth() -> None:
    """Whoever reads a bandwidth out of such a fit has read the overhead."""
    bare = [StepFeatures(0, 0, n, 0) for n in (1, 2, 4, 8)]
    fit = fit_steps(timed(DEFAULTS, bare, noise=0.01), free=("overhead_s", "mbu"))
    assert fit.held or fit.known_together
    words = fit.as_text()
    assert "cannot tell it from overhead_s" in words or "known together, hardly apart" in words
    # a second precision reads half the bytes in the same overhead, and tells them apart
    both = timed(DEFAULTS, bare, noise=0.01) + timed(
        DEFAULTS, bare, precision="fp8", noise=0.01, seed=1
    )
    apart = fit_steps(both, free=("overhead_s", "mbu"))
    assert not apart.held
    assert apart.constants.mbu == pytest.approx(DEFAULTS.mbu, rel=0.05)
    # and so does a fixed bandwidth
    fixed = fit_steps(timed(DEFAULTS, bare), free=("overhead_s",))
    assert fixed.constants.overhead_s == pytest.approx(DEFAULTS.overhead_s, rel=1e-6)


def test_what_makes_no_difference_keeps_its_start_and_says_so() -> None:
    fit = fit_steps(
        timed(DEFAULTS, DECODES + PREFILLS),
        free=("overhead_s", "launch_per_layer_s", "mbu", "mfu_bf16", "mfu_fp8"),
    )
    assert fit.free == ("overhead_s", "mbu", "mfu_bf16")
    assert "makes no difference" in fit.held["mfu_fp8"]
    assert "cannot tell it from overhead_s" in fit.held["launch_per_layer_s"]
    assert fit.constants.mfu_fp8 == DEFAULTS.mfu_fp8
    assert "launch_per_layer_s = 2.3e-05 was not fitted" in fit.as_text()


def test_a_share_stops_at_the_data_sheet() -> None:
    """A fit may not find a card that beats its data sheet, and must say that it hit the limit."""
    fast = [replace(step, seconds=0.5 * step.seconds) for step in timed(DEFAULTS, PREFILLS)]
    fit = fit_steps(fast, free=("mfu_bf16",))
    assert fit.constants.mfu_bf16 == pytest.approx(1.0)
    assert fit.at_limit == ("mfu_bf16",)
    assert "(at its limit)" in fit.as_text()


def test_a_long_step_counts_no_more_than_a_short_one() -> None:
    """One prefill of a second would decide over a hundred decode steps."""
    steps = timed(DEFAULTS, DECODES + PREFILLS)
    slow = [replace(step, seconds=1.1 * step.seconds) for step in steps]
    errors = fit_steps(slow, free=("mfu_bf16",)).errors
    assert np.all(np.abs(errors) < 0.11)


def test_matrices_alone_are_compared_with_matrices_alone() -> None:
    row = next(r for r in catalog.iteration_times("A40") if r.phase == "decode")
    (step,) = steps_of([row], "matrices")
    cost = RooflineStepCost(row.model, row.gpu)
    parts = cost.step_parts(step.features)
    assert step.predicted_s(DEFAULTS) == parts.overhead_s + parts.dense_s
    assert step.seconds == row.matrices_s
    assert steps_of([row]) == ()
    assert step.weight_read_s == cost.weight_read_s


def test_a_few_wild_points_do_not_decide() -> None:
    """A server that ran out of memory unseen would set the constants of all others."""
    factors = np.ones(40)
    factors[:3] = 5.0

    def log_errors(constants: Constants) -> np.ndarray:
        return np.log(0.8 / constants.mbu * factors)

    robust = fit_constants(log_errors, ("mbu",), robust_scale=0.1)
    plain = fit_constants(log_errors, ("mbu",))
    assert robust.constants.mbu == pytest.approx(0.8, rel=0.03)
    assert plain.constants.mbu > 0.88


def test_errors_of_one_kind_make_the_uncertainty_larger() -> None:
    """Forty points of one server are not forty servers."""
    rng = np.random.default_rng(2)
    shifts = np.repeat(0.1 * rng.standard_normal(10), 40)

    def log_errors(constants: Constants) -> np.ndarray:
        return np.log(0.6 / constants.mbu) + shifts

    alone = fit_constants(log_errors, ("mbu",))
    grouped = fit_constants(log_errors, ("mbu",), groups=np.repeat(range(10), 40).tolist())
    ratio = grouped.uncertainty["mbu"] / alone.uncertainty["mbu"]
    assert ratio == pytest.approx(np.sqrt(40), rel=0.15)
    few = fit_constants(log_errors, ("mbu",), groups=[0] * 400)
    assert np.isnan(few.uncertainty["mbu"])
    assert "± not known" in few.as_text()


def test_leaving_points_out_is_fitting_without_them() -> None:
    steps = timed(DEFAULTS, DECODES + PREFILLS, noise=0.05)
    left_out = np.arange(len(steps)) < 3
    fit = fit_steps(steps)
    quick = refit_without(fit, left_out)
    full = fit_steps(steps[3:]).constants
    for name in fit.free:
        assert getattr(quick, name) == pytest.approx(getattr(full, name), rel=0.05), name


def test_constants_from_serving_points_go_through_the_simulator() -> None:
    rows = catalog.measured_points(source="silybench", precision="bf16", prompt_tokens=128)
    rows = tuple(row for row in rows if row.concurrency in (1, 16, 64))
    start = replace(DEFAULTS, mbu=0.6)
    fit = fit_serving(rows, ("mbu",), start)
    assert fit.constants.mbu == pytest.approx(0.85, abs=0.06)
    assert fit.median_error < 0.07
    assert fit.log_errors.shape == (2 * len(rows),)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: fit_steps(timed(DEFAULTS, DECODES[:2])), "2 measurements cannot fix 3 constants"),
        (lambda: fit_steps(timed(DEFAULTS, DECODES), free=("speed",)), "free='speed' is no const"),
        (lambda: MeasuredStep("Qwen3-8B", "L4", DECODES[0], 0.0), "seconds=0.0 is not above 0"),
        (lambda: MeasuredStep("Qwen3-8B", "L4", DECODES[0], 1.0, part="x"), "part='x' is not"),
    ],
)
def test_wrong_arguments_are_named(call: object, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("correlation", "together"), [(0.98, True), (-0.98, True), (0.96, False), (-0.5, False)]
)
def test_constants_that_move_together_are_named_with_their_correlation(
    correlation: float, together: bool
) -> None:
    """Two constants of which only a sum is known must not be read as two findings."""
    free = ("launch_per_layer_s", "mbu", "mfu_bf16")
    deviations = np.array([2e-6, 0.03, 0.05])
    shared = np.eye(3)
    shared[0, 1] = shared[1, 0] = correlation
    found = ConstantsFit(
        constants=DEFAULTS, free=free, held={}, log_errors=np.zeros(4), slopes=np.zeros((4, 3)),
        covariance=shared * np.outer(deviations, deviations),
    )  # fmt: skip
    assert list(found.uncertainty.values()) == pytest.approx(deviations.tolist())
    if together:
        ((one, other, known),) = found.known_together
        assert (one, other) == free[:2]
        assert known == pytest.approx(correlation)
        assert f"hardly apart (correlation {correlation:.2f})" in found.as_text()
    else:
        assert found.known_together == ()
