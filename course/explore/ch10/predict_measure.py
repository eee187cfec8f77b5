"""The game of prediction before measurement: what it varies, computes and says; times, fits and
predictions come from ``course.measure``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course.explore.ch10.machine import (
    NUMBER_BYTES,
    machine,
    machine_parameter,
    off_words,
    precision_parameter,
    rate_words,
)
from course.figures.ch10.predict_measure import PARTS, PredictMeasure, PredictMeasurePicture
from course.measure import MachineFit, Point, Record, predict_decode_s
from course.measure.fitting import SMALL_KERNELS_PER_LAYER, SMALL_KERNELS_PER_STEP
from course.ui import Explorer, Prediction, Preset, Table, choice, stops, toggle
from course.words import rounded, seconds


@dataclass(frozen=True)
class PredictMeasureParameters:
    """The run, the decode step to guess, and whether one measured step may be looked at first."""

    machine: str = machine_parameter()
    precision: str = precision_parameter()
    batch: int = stops(
        8, (1, 2, 4, 8, 16, 32, 64), label="Batch", unit="sequences",
        help="How many sequences make a token in the step; the nearest that was measured",
    )  # fmt: skip
    context: str = choice(
        "short", {"the shortest": "short", "the longest": "long"}, label="Context",
        help="Tokens of each sequence in the KV cache, of those lengths that were measured",
    )  # fmt: skip
    calibrated: bool = toggle(
        False, label="Calibrate with one step",
        help="Multiply every prediction by what the smallest batch's measurement asks for",
    )  # fmt: skip


def _needed(record: Record, fit: MachineFit) -> bool:
    return (
        len(record.of("model_decode", fit.precision)) >= 2
        and fit.decode_attention is not None
        and fit.launch_s is not None
    )


def step_parts(
    record: Record, fit: MachineFit, batch: float, context_tokens: int
) -> tuple[float, float, float]:
    """Return a predicted decode step's seconds in matrices, attention and small kernels.

    They add up to `course.measure.predict_decode_s`, whose formula this is, part by part.

    >>> from course.measure import fit_record, predict_decode_s, recorded_runs
    >>> run = recorded_runs("cpu")[0]
    >>> fit = fit_record(run, "bf16")
    >>> whole_s = predict_decode_s(fit, run.model, 8, 128)
    >>> abs(sum(step_parts(run, fit, 8, 128)) / whole_s - 1) < 1e-12
    True
    """
    model, size = record.model, NUMBER_BYTES[fit.precision]
    attention = fit.decode_attention
    assert attention is not None  # `_needed` asked for it
    assert fit.launch_s is not None
    matrices_s = sum(
        n * fit.dense.seconds(size * (wide * out + batch * (wide + out)), 2 * batch * wide * out)
        for n, wide, out in model.matrices
    )
    cache_bytes = 2 * batch * context_tokens * model.hidden * size
    small = model.layers * SMALL_KERNELS_PER_LAYER + SMALL_KERNELS_PER_STEP
    return matrices_s, model.layers * attention.seconds(cache_bytes, 0.0), small * fit.launch_s


def _size(point: Point) -> tuple[int, int]:
    return point.shape["context_tokens"], point.shape["batch"]


def _predict_measure(p: PredictMeasureParameters) -> PredictMeasure:
    found = machine(p.machine, p.precision, _needed)
    record, fit = found.record, found.fit
    points = sorted(record.of("model_decode", fit.precision), key=_size)
    contexts = [point.shape["context_tokens"] for point in points]
    context = contexts[0] if p.context == "short" else contexts[-1]
    shown = [point for point in points if point.shape["context_tokens"] == context]
    here = min(shown, key=lambda point: abs(np.log(point.shape["batch"] / p.batch)))
    first = points[0]

    def said(point: Point) -> float:
        return predict_decode_s(fit, record.model, point.shape["batch"], _size(point)[0])

    factor = first.median_s / said(first) if p.calibrated else 1.0
    batch = here.shape["batch"]
    curve = np.geomspace(1, max(point.shape["batch"] for point in points), 48)
    parts = step_parts(record, fit, batch, context)
    return PredictMeasure(
        lead=found.lead,
        caption=found.caption,
        precision=fit.precision,
        wanted_precision=p.precision,
        layers=record.model.layers,
        hidden=record.model.hidden,
        wanted_batch=p.batch,
        batch=batch,
        context_tokens=context,
        moved_bytes=here.bytes,
        flop=here.flops,
        bandwidth_bytes_per_s=fit.dense.bandwidth_bytes_per_s,
        peak_flop_per_s=fit.dense.peak_flop_per_s,
        measured_batch=np.array([point.shape["batch"] for point in shown]),
        measured_s=np.array([point.median_s for point in shown]),
        low_s=np.array([point.p25_s for point in shown]),
        high_s=np.array([point.p75_s for point in shown]),
        curve_batch=curve,
        curve_s=factor * np.array([sum(step_parts(record, fit, b, context)) for b in curve]),
        parts_s=(factor * parts[0], factor * parts[1], factor * parts[2]),
        here_s=here.median_s,
        factor=factor,
        calibrated=p.calibrated,
        first_batch=first.shape["batch"],
        first_context_tokens=_size(first)[0],
        first_s=first.median_s,
        # the step that was calibrated with proves nothing about the others
        off=np.array([
            factor * said(point) / point.median_s - 1
            for point in points if not (p.calibrated and point is first)
        ]),
    )  # fmt: skip


def _words(r: PredictMeasure) -> str:
    nearest = "" if r.batch == r.wanted_batch else f" (nearest to {r.wanted_batch})"
    missing = f" (no {r.wanted_precision} in this run)" if r.precision != r.wanted_precision else ""
    compared = f"{off_words(r.residual)} that"
    said = seconds(r.predicted_s)
    if r.calibrated:
        said = (
            f"{seconds(r.predicted_s / r.factor)}, times {rounded(r.factor, 3)} (from a look at "
            f"batch {r.first_batch}) {said}"
        )
    share = [f"{name} {seconds(part)}" for name, part in zip(PARTS, r.parts_s, strict=True)]
    worst = float(np.abs(r.off).max())
    others = "other measured steps" if r.calibrated else "measured steps"
    middle = float(np.median(np.abs(r.off)))
    return (
        f"A step of the small transformer ({r.layers} layers, width {r.hidden}) in "
        f"{r.precision}{missing} with batch {r.batch}{nearest} and {r.context_tokens} tokens of "
        f"context took {seconds(r.here_s)}. The single kernels say {said}, "
        f"{compared}: {', '.join(share)}. Over all {len(r.off)} {others} the prediction "
        f"is off by {100 * middle:.0f}\u00a0% in the middle and {100 * worst:.0f}\u00a0% at worst. "
        f"{r.lead}"
    )


def _question(r: PredictMeasure) -> str:
    work = (
        f"It must move {rounded(r.moved_bytes / 1e6)} MB and do {rounded(r.flop / 1e9, 2)} "
        f"billion operations; single products reach {rate_words(r.bandwidth_bytes_per_s, 'B')} "
        f"and {rate_words(r.peak_flop_per_s, 'FLOP')} here."
    )
    step = (
        f"a decode step of the small transformer in {r.precision} with batch {r.batch} and "
        f"{r.context_tokens} tokens of context"
    )
    if (r.batch, r.context_tokens) == (r.first_batch, r.first_context_tokens):
        return f"{work} How long does {step} take?"
    return (
        f"Batch {r.first_batch} with {r.first_context_tokens} tokens of context took "
        f"{seconds(r.first_s)}. Now {step}. {work} How long does it take?"
    )


def _tables(r: PredictMeasure) -> list[Table]:
    measured = {
        "what": "measured", "batch": r.measured_batch, "step_s": r.measured_s,
        "p25_s": r.low_s, "p75_s": r.high_s,
    }  # fmt: skip
    return [measured, {"what": "predicted", "batch": r.curve_batch, "step_s": r.curve_s}]


predict_measure = Explorer(
    call="explore.predict_measure",
    title="Predict, then measure: a decode step of a small transformer",
    parameters=PredictMeasureParameters,
    compute=_predict_measure,
    drawing=PredictMeasurePicture,
    narrate=_words,
    alt=(
        "Left: the milliseconds of one decode step against the batch on a logarithmic axis. A "
        "dashed curve is predicted from single kernels, dots with bars are measured, a diamond is "
        "the chosen batch. Right: the chosen step as two bars, the predicted one stacked from "
        "matrices, attention and small kernels, beside the measured one. A line in the corner says "
        "on which machine it was measured."
    ),
    presets=(
        Preset(
            "A step for eight",
            "Eight sequences make a token each in one step of the small transformer.",
            "One sequence takes so long: how long do eight take, eight times as long?",
            {"batch": 8},
        ),
        Preset(
            "One alone",
            "A single sequence: every weight is read for one token.",
            "Bytes over bandwidth: what does that leave out?",
            {"batch": 1},
        ),
        Preset(
            "A full house",
            "Thirty-two sequences, the largest batch of a quick run.",
            "32 times the tokens: how many times as long?",
            {"batch": 32},
        ),
        Preset(
            "A longer memory",
            "Eight sequences again, now with the longest context that was measured.",
            "The weights are the same. Which part of the bar grows?",
            {"batch": 8, "context": "long"},
        ),
        Preset(
            "With one measured step",
            "The same eight, but the prediction may look at a batch of one first.",
            "One number is borrowed from the measurement. Does it help at the other sizes?",
            {"batch": 8, "calibrated": True},
        ),
    ),
    tables=_tables,
    remembers=False,
    prediction=Prediction(
        question=_question,
        unit="ms",
        answer=lambda r: 1e3 * r.here_s,
        x=lambda r: float(r.batch),
    ),
)
