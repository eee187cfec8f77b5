"""What a reader sees of a run: the right figures, and a sentence that names who is to blame."""

from __future__ import annotations

from dataclasses import replace

import pytest

from course.measure.fitting import fit_record
from course.measure.record import Point, Record, recorded_runs
from course.measure.report import amortisation_words, report
from tests.measure.samples import CARD, RECORD, dense_point


def bent(off: float, spread: float = 1.02) -> Record:
    """The record with one dense bf16 point off its curve."""
    others = tuple(p for p in RECORD.points if p.bench != "decode_gemm")
    dense: list[Point] = [
        dense_point("bf16", b, w, 2 * w, off if (b, w) == (8, 2048) else 1.0, spread)
        for w in (512, 2048)
        for b in (1, 2, 4, 8, 16, 32, 64, 128)
    ]
    return replace(RECORD, points=(*others, *dense))


def test_within_15_per_cent_the_roofline_explains() -> None:
    words = amortisation_words(fit_record(bent(1.1), "bf16"), "cpu")
    assert "explains every point within 15 %" in words
    assert "library" not in words


def test_beyond_15_per_cent_the_library_decides() -> None:
    """Otherwise a reader would blame the roofline, or the memory, for a library's poor kernel."""
    words = amortisation_words(fit_record(bent(2.0), "bf16"), "cpu")
    assert "(batch 8, 2048×4096): 1 of 16 points are off by more than 15 %" in words
    assert words.endswith("this CPU's library, not the roofline, decides.")
    card = amortisation_words(fit_record(bent(2.0), "bf16"), "cuda")
    assert "this card's library, not the roofline, decides" in card


def test_an_unknown_constant_is_no_figure() -> None:
    """Four times that say nothing of the peak must not print one with seventeen digits."""
    dense = tuple(dense_point("bf16", 1, w, w) for w in (256, 512, 1024, 2048))
    words = amortisation_words(fit_record(replace(RECORD, points=dense), "bf16"), "cpu")
    assert "peak not determined by these sizes" in words
    assert "FLOP/s" not in words
    assert "inf" not in words


def test_an_unsteady_point_may_be_somebody_elses_fault() -> None:
    words = amortisation_words(fit_record(bent(2.0, spread=2.0), "bf16"), "cpu")
    assert "1 of them were unsteady, so other programs may be to blame" in words


def test_the_report_shows_both_precisions_with_residuals() -> None:
    text = report(RECORD)
    for precision in ("fp32", "bf16"):
        assert f"Weights read once for the whole batch, {precision}" in text
    assert text.count("Largest residual") == 2
    assert "copy: 40.0 GB/s at 16 MiB" in text
    assert "matrix product bf16: 1.80 TFLOP/s at size 1024" in text
    assert "one tiny kernel from Python: 2.00 µs" in text
    assert "mind: other programs used 60%" in text
    assert "left out: launch_graph: a CPU has no CUDA graphs to replay" in text
    assert "predicted from the single kernels" in text


def test_a_card_shows_driver_and_clocks() -> None:
    text = report(replace(RECORD, device=CARD))
    assert "driver 580.1, CUDA 13.0" in text
    assert "sm_after_matmul_bf16 1980" in text
    assert "a CPU launches nothing" not in text


def test_a_failed_check_is_shown() -> None:
    from course.measure.record import Check

    text = report(replace(RECORD, checks=(*RECORD.checks, Check("model", "bf16", 0.9, 0.1))))
    assert "1 of 2 right (nearest to its limit: model bf16, off by 0.9" in text


@pytest.mark.parametrize("kept", [(), ("copy",), ("decode_gemm",), ("model_decode", "matmul")])
def test_a_partial_record_is_still_reported(kept: tuple[str, ...]) -> None:
    """Out of memory or out of time is no reason to show nothing."""
    partial = replace(RECORD, checks=(), points=tuple(p for p in RECORD.points if p.bench in kept))
    assert report(partial).startswith("2 cores of A processor, 2026-11-29")


def test_recorded_runs_can_be_reported() -> None:
    for run in recorded_runs():
        assert "Largest residual" in report(run)
