"""The roofline's constants: times that follow it give the truth back, and honest errors."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.measure.fitting import fit_record, fit_roofline, predict_decode_s
from tests.measure.samples import (
    BANDWIDTH,
    MODEL,
    OVERHEAD_S,
    PEAK,
    RECORD,
    dense_point,
)

pytestmark = pytest.mark.slow

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


def curve(
    overhead: float, bandwidth: float, peak: float, widths: tuple[int, ...] = (1024, 4096)
) -> tuple[list[float], list[float], list[float]]:
    moved = [4.0 * (w * w + 2 * b * w) for w in widths for b in BATCHES]
    flops = [2.0 * b * w * w for w in widths for b in BATCHES]
    times = [
        overhead + math.hypot(m / bandwidth, f / peak) for m, f in zip(moved, flops, strict=True)
    ]
    return moved, flops, times


@given(st.floats(1e-7, 1e-5), st.floats(5e9, 5e12), st.floats(20, 400))
def test_exact_times_give_the_constants_back(
    overhead: float, bandwidth: float, ridge: float
) -> None:
    fit = fit_roofline(*curve(overhead, bandwidth, ridge * bandwidth))
    assert fit.bandwidth_bytes_per_s == pytest.approx(bandwidth, rel=1e-3)
    assert fit.peak_flop_per_s == pytest.approx(ridge * bandwidth, rel=1e-3)
    smallest = 4 * 1024**2 / bandwidth
    assert fit.overhead_s == pytest.approx(overhead, rel=1e-3, abs=1e-3 * smallest)
    assert fit.worst_residual < 1e-3
    assert fit.undetermined == ()
    assert fit.ridge_flop_per_byte == pytest.approx(ridge, rel=1e-2)


def test_errors_cover_the_truth_as_often_as_they_say() -> None:
    """An error bar that is too short makes noise look like a discovery; one sigma covers 68 %."""
    rng = np.random.default_rng(5)
    moved, flops, times = curve(2e-6, 1e11, 1e13)
    hits = np.zeros(3)
    tries = 120
    for _ in range(tries):
        noisy = np.array(times) * np.exp(rng.normal(0, 0.05, len(times)))
        fit = fit_roofline(moved, flops, list(noisy))
        hits += [
            abs(fit.overhead_s - 2e-6) < fit.overhead_error_s,
            abs(fit.bandwidth_bytes_per_s - 1e11) < fit.bandwidth_error_bytes_per_s,
            abs(fit.peak_flop_per_s - 1e13) < fit.peak_error_flop_per_s,
        ]
    # the overhead may not go below 0, so its bar covers more often
    assert ((hits / tries > 0.55) & (hits / tries < 0.85)).all(), hits / tries


def test_one_matrix_cannot_tell_overhead_from_bandwidth() -> None:
    """At one size every overhead has a bandwidth that gives the same times; the fit must say so."""
    rng = np.random.default_rng(1)
    moved, flops, times = curve(20e-6, 1e11, 1e13, widths=(1024,))
    noisy = list(np.array(times) * np.exp(rng.normal(0, 0.05, len(times))))
    assert "overhead_s" in fit_roofline(moved, flops, noisy).undetermined
    known = fit_roofline(moved, flops, noisy, overhead_s=20e-6)
    assert known.undetermined == ()
    assert known.given == ("overhead_s",)
    assert known.overhead_error_s == 0
    assert known.bandwidth_bytes_per_s == pytest.approx(1e11, rel=0.1)


def test_a_peak_that_no_point_reaches_is_not_told() -> None:
    moved, flops, times = curve(1e-6, 1e11, 1e13)
    few = [i for i, f in enumerate(flops) if f / 1e13 < 0.05 * moved[i] / 1e11]
    rng = np.random.default_rng(2)
    noisy = [times[i] * math.exp(rng.normal(0, 0.03)) for i in few]
    fit = fit_roofline([moved[i] for i in few], [flops[i] for i in few], noisy)
    assert "peak_flop_per_s" in fit.undetermined


def test_a_limit_can_be_switched_off() -> None:
    moved = [1e6, 1e7, 1e8]
    fit = fit_roofline(moved, [0, 0, 0], [1e-5 + m / 1e10 for m in moved], peak_flop_per_s=math.inf)
    assert fit.bandwidth_bytes_per_s == pytest.approx(1e10, rel=1e-4)
    assert fit.seconds(1e9, 1e30) == pytest.approx(0.1 + 1e-5, rel=1e-3)


def test_with_all_constants_given_only_the_residuals_are_found() -> None:
    moved, flops, times = curve(2e-6, 1e11, 1e13)
    slow = [1.2 * t for t in times]
    fit = fit_roofline(
        moved, flops, slow, overhead_s=2e-6, bandwidth_bytes_per_s=1e11, peak_flop_per_s=1e13
    )
    assert fit.residuals == pytest.approx([0.2] * len(times))
    assert fit.undetermined == ()


def test_equal_sizes_tell_nothing_and_say_so() -> None:
    fit = fit_roofline([1e6] * 4, [1e6] * 4, [1e-3] * 4)
    assert set(fit.undetermined) >= {"bandwidth_bytes_per_s"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([1, 2], [1, 2], [1, 2]), "2 points cannot tell 3 constants"),
        (([1, 2, 3], [1, 2, 3], [1, 0, 3]), r"seconds\[1\]=0"),
        (([1, -2, 3], [1, 2, 3], [1, 2, 3]), r"bytes_moved\[1\]=-2"),
        (([1, 2, 3], [1, 2, float("nan")], [1, 2, 3]), r"flops\[2\]=nan"),
        (([1, 2], [1, 2, 3], [1, 2, 3]), "flops has 3 entries but bytes_moved has 2"),
        (([1, 0, 3], [1, 0, 3], [1, 2, 3]), r"bytes_moved\[1\]=0 and flops\[1\]=0"),
        (([], [], []), "0 points cannot tell"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    arguments: tuple[list[float], list[float], list[float]], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        fit_roofline(*arguments)


@pytest.mark.parametrize(
    "given", [{"overhead_s": -1.0}, {"overhead_s": math.inf}, {"peak_flop_per_s": 0.0}]
)
def test_a_given_constant_must_make_sense(given: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))):
        fit_roofline(*curve(1e-6, 1e11, 1e13), **given)


def test_a_record_is_fitted_by_precision() -> None:
    for precision in ("fp32", "bf16"):
        fit = fit_record(RECORD, precision)
        assert fit.dense.bandwidth_bytes_per_s == pytest.approx(BANDWIDTH, rel=1e-3)
        assert fit.dense.peak_flop_per_s == pytest.approx(PEAK[precision], rel=1e-3)
        assert fit.dense.overhead_s == pytest.approx(OVERHEAD_S, rel=1e-2)
        assert fit.bandwidth_share == pytest.approx(50 / 40, rel=1e-3)
        assert fit.flop_share == pytest.approx(1 / 0.9, rel=1e-3)
        assert fit.decode_attention is not None
        assert fit.decode_attention.bandwidth_bytes_per_s == pytest.approx(20e9, rel=1e-3)
        assert fit.prefill_attention is not None
        assert fit.prefill_attention.peak_flop_per_s == pytest.approx(100e9, rel=1e-3)


def test_a_record_with_too_little_says_so() -> None:
    with pytest.raises(ValueError, match="precision='fp8' has 0 decode_gemm points"):
        fit_record(RECORD, "fp8")
    only = replace(RECORD, points=tuple(dense_point("fp32", b, 512, 512) for b in BATCHES))
    fit = fit_record(only, "fp32")
    assert (fit.copy_bytes_per_s, fit.bandwidth_share, fit.flop_share) == (None, None, None)
    with pytest.raises(ValueError, match="no decode_attention"):
        predict_decode_s(fit, MODEL, 1, 100)


def test_a_decode_step_is_the_sum_of_its_kernels() -> None:
    """By hand: 2 layers with four products each, the head, 2 attentions, 33 small kernels."""
    fit = fit_record(RECORD, "bf16")
    batch, context = 4, 128
    expected = 0.0
    for count, wide, out in ((2, 64, 192), (2, 64, 64), (2, 64, 192), (2, 96, 64), (1, 64, 100)):
        moved = 2 * (wide * out + batch * (wide + out))
        expected += count * (3e-6 + math.hypot(moved / 50e9, 2 * batch * wide * out / 2e12))
    expected += 2 * (1e-5 + 2 * batch * context * 64 * 2 / 20e9)
    expected += (2 * 15 + 3) * 2e-6
    assert predict_decode_s(fit, MODEL, batch, context) == pytest.approx(expected, rel=1e-3)
