"""What the pictures of notebook 10 draw and say, held to the records and to sums done here by hand;
and whose figures they are: a recorded run shown as the reader's own would be a lie."""

from __future__ import annotations

import math
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course import explore, paths
from course.explore.ch10 import machine as machines
from course.explore.ch10.fit_carried import fit_carried, measured_cost
from course.explore.ch10.machine import machine, rate_words, recorded_run, your_machine
from course.explore.ch10.measured_roofline import measured_roofline
from course.explore.ch10.predict_measure import predict_measure
from course.measure import (
    CannotMeasureError,
    fit_record,
    predict_decode_s,
    recorded_runs,
    save_record,
)
from course.serving.catalog.entries import model
from course.serving.pricing.linear import RooflineStepCost, StepFeatures
from course.words import rounded, seconds
from tests.measure.samples import RECORD, dense_point, point
from tests.ui.pictures import presets_of, xy

pytestmark = pytest.mark.slow

ALL = (measured_roofline, predict_measure, fit_carried)
EACH = pytest.mark.parametrize("explorer", ALL, ids=lambda explorer: explorer.call)


@pytest.fixture(autouse=True)
def desk(tmp_path: Path, monkeypatch: Any) -> Path:
    """An empty work/ folder: what a developer measured must not decide a test."""
    monkeypatch.setattr(paths, "WORK", tmp_path)
    return tmp_path


def own_run(folder: Path, **changes: Any) -> None:
    """Lay a run of a made-up machine into work/."""
    save_record(replace(RECORD, **changes), folder / "measured-cpu-1.json")


# A run of the made-up machine with two measured steps, as the second explorer needs.
STEPS = tuple(
    point("model_decode", "bf16", {"batch": b, "context_tokens": 64}, 10**6, 10**7, 1e-4 * b)
    for b in (1, 4)
)


# --- whose machine --------------------------------------------------------------------------------


@EACH
def test_without_an_own_run_the_picture_says_that_it_is_recorded(
    opened: Any, explorer: Any
) -> None:
    shell = opened(explorer)
    label = recorded_run().label
    assert f"recorded on {label}" in shell.svg
    assert f"Recorded on {label} (you have measured none yet)." in shell.sentence
    assert "measured on your machine" not in shell.svg


@EACH
def test_an_own_run_is_shown_and_said_to_be_the_readers(
    opened: Any, explorer: Any, desk: Path
) -> None:
    own_run(desk, points=RECORD.points + STEPS)
    shell = opened(explorer)
    assert f"measured on your machine: {RECORD.label}" in shell.svg
    assert f"On your machine ({RECORD.label})" in shell.sentence
    asked = opened(explorer, machine="recorded")
    assert f"Recorded on {recorded_run().label} (as you asked)" in asked.sentence


@EACH
def test_a_run_too_short_for_the_picture_gives_way_and_says_so(
    opened: Any, explorer: Any, desk: Path
) -> None:
    own_run(desk, points=tuple(p for p in RECORD.points if p.bench == "matmul"))
    shell = opened(explorer)
    assert "your own run is too short for this picture" in shell.sentence
    assert f"recorded on {recorded_run().label}" in shell.svg


def test_a_damaged_file_on_the_desk_is_no_run(desk: Path) -> None:
    (desk / "measured-cpu-1.json").write_text("{", encoding="utf-8")
    found = machine("yours", "bf16", lambda record, fit: True)
    assert found.why_not_yours == "you have measured none yet"


def test_a_run_measured_meanwhile_is_seen(desk: Path) -> None:
    """The notebook measures, and opens the same explorer again."""
    before = explore.measured_roofline(predict=False)
    own_run(desk)
    after = explore.measured_roofline(predict=False)
    assert "Recorded on" in before.sentence
    assert "On your machine" in after.sentence
    before.close()
    after.close()


def test_the_newest_of_two_runs_is_shown(desk: Path) -> None:
    own_run(desk)
    newer = replace(RECORD, started_at="2026-12-24T10:00:00+00:00")
    save_record(newer, desk / "measured-cpu-2.json")
    os.utime(desk / "measured-cpu-1.json", (1, 1))
    assert machine("yours", "bf16", lambda record, fit: True).record.started_at == newer.started_at


def test_a_missing_precision_is_replaced_and_named(opened: Any, desk: Path) -> None:
    own_run(desk, points=tuple(p for p in RECORD.points if p.precision == "bf16"))
    shell = opened(measured_roofline, precision="fp32")
    assert shell.result.precision == "bf16"
    assert "(no fp32 in this run)" in shell.sentence


def test_a_recorded_run_that_lacks_benches_is_an_error_in_words() -> None:
    with pytest.raises(ValueError, match="recorded run lacks benches"):
        machine("recorded", "bf16", lambda record, fit: False)


def test_your_machine_says_what_it_returns(desk: Path, capsys: Any) -> None:
    assert your_machine() == recorded_run()
    assert capsys.readouterr().out == f"A recorded run: {recorded_run().label}.\n"
    own_run(desk)
    assert your_machine().label == RECORD.label
    assert capsys.readouterr().out.startswith("Measured by you earlier")


def test_measuring_keeps_the_run_where_explorers_look(
    desk: Path, monkeypatch: Any, capsys: Any
) -> None:
    monkeypatch.setattr(machines, "_measured_now", lambda budget_s: RECORD)
    assert your_machine(measure=True) is RECORD
    assert f"Kept as {desk.name}/measured-notebook-" in capsys.readouterr().out
    assert machine("yours", "bf16", lambda record, fit: True).record.label == RECORD.label


def test_a_run_that_saw_nothing_is_not_kept_over_a_good_one(
    desk: Path, monkeypatch: Any, capsys: Any
) -> None:
    """On a busy machine the seconds may be over before the first kernel."""
    own_run(desk)
    monkeypatch.setattr(machines, "_measured_now", lambda budget_s: replace(RECORD, points=()))
    assert your_machine(measure=True).points == RECORD.points
    said = capsys.readouterr().out
    assert "8 s were too few here, so nothing was kept" in said
    assert "budget_s=32" in said
    assert len(list(desk.glob("measured-*.json"))) == 1


def test_measuring_without_torch_says_how_to_get_it(monkeypatch: Any) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(CannotMeasureError, match="torch"):
        your_machine(measure=True)


# --- the measured roofline ------------------------------------------------------------------------


@presets_of(measured_roofline)
def test_the_diamond_is_a_point_of_the_record(opened: Any, preset: str) -> None:
    shell = opened(measured_roofline, preset)
    r, p = shell.result, shell.parameters
    (taken,) = [
        q for q in recorded_runs("cpu")[0].of("decode_gemm", p.precision)
        if (q.shape["width_in"], q.shape["width_out"]) == r.matrix and q.shape["batch"] == p.batch
    ]  # fmt: skip
    x, y = xy(shell.drawing.here)
    assert (x[0], y[0]) == (taken.flops / taken.bytes, taken.flops / taken.median_s)
    assert f"took {seconds(taken.median_s)}" in shell.sentence
    dense = fit_record(recorded_run(), p.precision).dense
    fitted_s = dense.overhead_s + math.hypot(
        taken.bytes / dense.bandwidth_bytes_per_s, taken.flops / dense.peak_flop_per_s
    )
    assert r.fitted_s == pytest.approx(fitted_s)
    assert f"the fitted {seconds(fitted_s)}" in shell.sentence
    low, high = taken.flops / taken.p75_s, taken.flops / taken.p25_s
    assert np.nanmin(xy(shell.drawing.band)[1]) == pytest.approx(low)
    assert np.nanmax(xy(shell.drawing.band)[1]) == pytest.approx(high)


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_every_product_of_the_record_is_drawn_once(opened: Any, precision: str) -> None:
    shell = opened(measured_roofline, precision=precision)
    lines = (shell.drawing.chosen, shell.drawing.other, shell.drawing.square)
    drawn = sorted(pair for line in lines for pair in zip(*xy(line), strict=True))
    record = recorded_run()
    points = record.of("decode_gemm", precision) + record.of("matmul", precision)
    assert drawn == sorted((q.flops / q.bytes, q.flop_per_s) for q in points)


def test_roof_and_curve_are_the_fit(opened: Any) -> None:
    shell = opened(measured_roofline)
    dense = fit_record(recorded_run(), "bf16").dense
    x, y = xy(shell.drawing.roof)
    assert np.allclose(y, np.minimum(dense.peak_flop_per_s, dense.bandwidth_bytes_per_s * x))
    ridge = xy(shell.drawing.ridge)[0][0]
    assert ridge == pytest.approx(dense.peak_flop_per_s / dense.bandwidth_bytes_per_s)
    x, y = xy(shell.drawing.curve)
    assert np.all(y <= np.minimum(dense.peak_flop_per_s, dense.bandwidth_bytes_per_s * x))
    far = sum(abs(residual) > 0.15 for residual in dense.residuals)
    assert shell.result.far_points == far


def test_a_fit_that_explains_all_says_so_and_names_what_it_does_not_know(
    opened: Any, desk: Path
) -> None:
    """The made-up machine follows the formula exactly; without large batches it has no peak."""
    own_run(desk)
    shell = opened(measured_roofline)
    assert "It explains all 10 points within 15\u00a0%." in shell.sentence
    few = tuple(
        dense_point("bf16", b, w, w, off=1 + 0.01 * (b - 2) * (-1) ** (w // 512))
        for w in (512, 1024, 2048) for b in (1, 2, 3)
    )  # fmt: skip
    own_run(desk, points=(RECORD.points[0], *few))
    os.utime(desk / "measured-cpu-1.json", (2, 2))
    sentence = opened(measured_roofline).sentence
    assert "peak not determined by these sizes" in sentence
    assert "ridge at" not in sentence
    own_run(desk, points=(RECORD.points[0], RECORD.points[1], *few))
    os.utime(desk / "measured-cpu-1.json", (3, 3))
    carried = opened(fit_carried).sentence
    assert "the run does not determine its peak, so all this is a guess" in carried


def test_the_quotient_is_said_where_it_was_asked(opened: Any) -> None:
    r = opened(measured_roofline, "One token at a time").result
    quotient_s = r.here_bytes / max(p.bytes_per_s for p in recorded_run().of("copy"))
    assert r.copied_s == pytest.approx(quotient_s)
    said = "Its bytes over the best copy's bandwidth are "
    assert f"{said}{seconds(quotient_s)}" in opened(measured_roofline, batch=1).sentence
    assert said not in opened(measured_roofline, "Sixteen at once").sentence


def test_a_batch_that_was_not_measured_is_replaced_by_its_neighbour(
    opened: Any, desk: Path
) -> None:
    own_run(desk)
    assert "Batch 1 (nearest to 2)" in opened(measured_roofline, batch=2).sentence


# --- prediction before measurement ----------------------------------------------------------------


@presets_of(predict_measure)
def test_predicted_and_measured_are_the_records(opened: Any, preset: str) -> None:
    shell = opened(predict_measure, preset)
    r, p = shell.result, shell.parameters
    record, fit = recorded_run(), fit_record(recorded_run(), p.precision)
    (taken,) = [
        q for q in record.of("model_decode", p.precision)
        if q.shape == {"batch": r.batch, "context_tokens": r.context_tokens}
    ]  # fmt: skip
    said_s = r.factor * predict_decode_s(fit, record.model, r.batch, r.context_tokens)
    drawing = shell.drawing
    assert drawing.measured.get_height() == pytest.approx(1e3 * taken.median_s)
    heights = [box.get_height() for box in drawing.boxes]
    assert sum(heights) == pytest.approx(1e3 * said_s)
    assert [box.get_y() for box in drawing.boxes] == pytest.approx([0, *np.cumsum(heights)[:-1]])
    x, y = xy(drawing.here)
    assert (x[0], y[0]) == (r.batch, 1e3 * taken.median_s)
    kernels_s = predict_decode_s(fit, record.model, r.batch, r.context_tokens)
    said = f"took {seconds(taken.median_s)}. The single kernels say {seconds(kernels_s)}"
    assert said in shell.sentence
    # 10.2 ms, times 1.33, is 13.6 ms: “13.6 ms, times 1.33” would have somebody multiply twice
    assert (f") {seconds(said_s)}, " in shell.sentence) == p.calibrated
    batch, step_ms = xy(drawing.curve)
    for at in (1, len(batch) // 2):
        b = max(1, round(batch[at]))
        near_ms = 1e3 * r.factor * predict_decode_s(fit, record.model, b, r.context_tokens)
        assert step_ms[at] == pytest.approx(near_ms, rel=0.2)
    shell.commit(1e3 * taken.median_s)
    assert "within a tenth" in shell._sentence.value


def test_calibration_makes_the_first_step_right_and_only_that_by_force(opened: Any) -> None:
    plain = opened(predict_measure, "One alone").result
    mended = opened(predict_measure, "One alone", calibrated=True).result
    assert mended.predicted_s == pytest.approx(mended.here_s)
    assert mended.factor == pytest.approx(plain.here_s / plain.predicted_s)
    other = opened(predict_measure, "A full house", calibrated=True).result
    assert other.factor == mended.factor


def test_the_longest_context_reads_more_cache(opened: Any) -> None:
    short = opened(predict_measure, "A step for eight").result
    long = opened(predict_measure, "A longer memory").result
    assert long.context_tokens > short.context_tokens
    assert long.parts_s[1] > short.parts_s[1]
    assert long.parts_s[0] == short.parts_s[0]


# --- the carried fit ------------------------------------------------------------------------------


@presets_of(fit_carried)
def test_both_steps_are_the_formula(opened: Any, preset: str) -> None:
    """Worked out here from the fit's three constants and the model's bytes."""
    shell = opened(fit_carried, preset)
    r, p = shell.result, shell.parameters
    fit, shape = fit_record(recorded_run(), "bf16"), model(p.model)
    assert fit.launch_s is not None
    fixed_s = fit.dense.overhead_s + 3 * fit.launch_s
    fixed_s += shape.layers * (4 * fit.dense.overhead_s + 15 * fit.launch_s)
    read_s = 2 * shape.streamed_parameters / fit.dense.bandwidth_bytes_per_s
    compute_s = 2 * shape.active_parameters * p.batch / fit.dense.peak_flop_per_s
    kv_s = shape.kv_bytes_per_token() * p.batch * p.context_tokens
    kv_s /= fit.dense.bandwidth_bytes_per_s
    assert r.yours.here_s == pytest.approx(fixed_s + math.hypot(read_s, compute_s) + kv_s)
    card = RooflineStepCost(p.model, p.gpu)
    if not p.ideal:
        step = StepFeatures(0, 0, p.batch, p.batch * p.context_tokens)
        assert r.card.here_s == pytest.approx(card.step_seconds(step))
    else:
        assert r.card.here_s >= card.weight_read_s
    assert seconds(r.yours.here_s) in shell.sentence
    assert seconds(r.card.here_s) in shell.sentence
    assert f"{rounded(r.times, 2)} times the" in shell.sentence
    reached = (card.constants.mbu * card.gpu.bandwidth_bytes_per_s) if not p.ideal else 3.35e12
    computed = card.constants.mfu_bf16 * card.gpu.peak_bf16_flop_per_s if not p.ideal else 989e12
    assert r.card.weight_bytes_per_s == pytest.approx(reached)
    assert r.card.flop_per_s == pytest.approx(computed)
    assert r.yours.flop_per_s == pytest.approx(fit.dense.peak_flop_per_s)
    assert f"reads {rate_words(reached, 'B')} and computes" in shell.sentence
    for lines, served in ((shell.drawing.yours, r.yours), (shell.drawing.card, r.card)):
        assert xy(lines.here[0])[1][0] == served.here_s
        assert xy(lines.here[1])[1][0] == pytest.approx(p.batch / served.here_s)
        solid = xy(lines.curves[0])[0]
        assert solid.max() <= max(served.room, 1)


def test_a_step_is_also_said_with_the_factor_of_whole_steps(opened: Any, desk: Path) -> None:
    """A sum of kernels alone would be an advertisement; a run without whole steps has no factor."""
    shell = opened(fit_carried)
    factor = shell.result.whole_over_parts
    assert f"took {rounded(factor, 2)} times their sum" in shell.sentence
    assert seconds(factor * shell.result.yours.here_s) in shell.sentence
    own_run(desk, points=tuple(p for p in RECORD.points if p.bench != "model_decode"))
    bare = opened(fit_carried)
    assert bare.result.whole_over_parts is None
    assert "whole steps" not in bare.sentence


def test_the_fluent_batch_is_the_last_that_keeps_fifty_milliseconds(opened: Any) -> None:
    r = opened(fit_carried, "Thirty-two readers", gpu="L4").result
    cost = RooflineStepCost("Llama-3.1-8B", "L4")

    def step_s(batch: int) -> float:
        return cost.step_seconds(StepFeatures(0, 0, batch, batch * 1024))

    assert r.card.fluent_batch == 0 or step_s(r.card.fluent_batch) <= 0.05
    if r.card.fluent_batch < r.card.room:
        assert step_s(r.card.fluent_batch + 1) > 0.05


def test_a_machine_too_small_for_the_weights_is_only_imagined(opened: Any, desk: Path) -> None:
    own_run(desk, device=replace(RECORD.device, memory_bytes=4 * 2**30))
    shell = opened(fit_carried)
    assert "no room for a cache beside the weights: only its speed is shown" in shell.sentence
    found = machine("yours", "bf16", lambda record, fit: True)
    assert measured_cost(found, "Llama-3.1-8B")[1] is False
    assert shell.result.yours.room == 0
