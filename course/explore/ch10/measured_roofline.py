"""The measured-roofline explorer: what it varies, computes and says; times and fits come from
``course.measure``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course.explore.ch10.machine import (
    FIT_NAMES,
    NUMBER_BYTES,
    machine,
    machine_parameter,
    off_words,
    precision_parameter,
    rate_words,
)
from course.figures.ch10.measured_roofline import MeasuredRoofline, MeasuredRooflinePicture
from course.measure import MachineFit, Point, Record
from course.measure.fitting import TRUSTED_RESIDUAL
from course.ui import Explorer, Prediction, Preset, Table, choice, stops
from course.words import percent, rounded, seconds

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True)
class MeasuredRooflineParameters:
    """The run, and the measured product that is looked at."""

    machine: str = machine_parameter()
    precision: str = precision_parameter()
    matrix: str = choice(
        "large", {"the largest": "large", "the smallest": "small"}, label="Weight matrix",
        help="Of those that were measured: a small one is soon read, so the fixed part shows",
    )  # fmt: skip
    batch: int = stops(
        16, _BATCHES, label="Batch", unit="token vectors",
        help="How many vectors are multiplied by the same weights; the nearest that was measured",
    )  # fmt: skip


def _needed(_: Record, fit: MachineFit) -> bool:
    return fit.copy_bytes_per_s is not None


def _width(point: Point) -> tuple[int, int]:
    return point.shape["width_in"], point.shape["width_out"]


def _speeds(points: tuple[Point, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Intensities and speeds of measured points, each of shape (points,)."""
    pairs = np.array([(p.flops / p.bytes, p.flop_per_s) for p in points]).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _curve(fit: MachineFit, width: tuple[int, int], most: int) -> tuple[np.ndarray, np.ndarray]:
    """The fitted curve of one matrix over batches up to `most`, each array of shape (60,)."""
    size = NUMBER_BYTES[fit.precision]
    batch = np.geomspace(1, most, 60)
    moved = size * (width[0] * width[1] + batch * sum(width))
    flop = 2.0 * batch * width[0] * width[1]
    taken = [fit.dense.seconds(b, f) for b, f in zip(moved, flop, strict=True)]
    return flop / moved, flop / np.array(taken)


def _measured_roofline(p: MeasuredRooflineParameters) -> MeasuredRoofline:
    found = machine(p.machine, p.precision, _needed)
    fit, dense = found.fit, found.fit.dense
    widths = sorted({_width(point) for point in fit.dense_points}, key=lambda w: w[0] * w[1])
    width = widths[-1] if p.matrix == "large" else widths[0]
    chosen = tuple(point for point in fit.dense_points if _width(point) == width)
    other = tuple(point for point in fit.dense_points if _width(point) != width)
    here = min(chosen, key=lambda point: abs(np.log(point.shape["batch"] / p.batch)))
    first = min(chosen, key=lambda point: point.shape["batch"])
    chosen_x, chosen_y = _speeds(chosen)
    other_x, other_y = _speeds(other)
    square_x, square_y = _speeds(found.record.of("matmul", fit.precision))
    curve_x, curve_y = _curve(fit, width, max(point.shape["batch"] for point in chosen))
    return MeasuredRoofline(
        lead=found.lead,
        caption=found.caption,
        kind=found.record.device.kind,
        precision=fit.precision,
        wanted_precision=p.precision,
        bandwidth_bytes_per_s=dense.bandwidth_bytes_per_s,
        peak_flop_per_s=dense.peak_flop_per_s,
        overhead_s=dense.overhead_s,
        copy_bytes_per_s=fit.copy_bytes_per_s or 0.0,
        undetermined=dense.undetermined,
        square_flop_per_byte=square_x,
        square_flop_per_s=square_y,
        other_flop_per_byte=other_x,
        other_flop_per_s=other_y,
        chosen_flop_per_byte=chosen_x,
        chosen_flop_per_s=chosen_y,
        curve_flop_per_byte=curve_x,
        curve_flop_per_s=curve_y,
        matrix=width,
        first_batch=first.shape["batch"],
        first_s=first.median_s,
        wanted_batch=p.batch,
        batch=here.shape["batch"],
        here_bytes=here.bytes,
        here_flop=here.flops,
        here_s=here.median_s,
        here_band_s=(here.p25_s, here.p75_s),
        fitted_s=dense.seconds(here.bytes, here.flops),
        far_points=sum(abs(residual) > TRUSTED_RESIDUAL for residual in dense.residuals),
        points=len(dense.residuals),
    )


def _words(r: MeasuredRoofline) -> str:
    times = ""
    if r.batch != r.first_batch:
        times = f", {rounded(r.times_first, 2)} times as long as batch {r.first_batch}"
    nearest = "" if r.batch == r.wanted_batch else f" (nearest to {r.wanted_batch})"
    missing = f" (no {r.wanted_precision} in this run)" if r.precision != r.wanted_precision else ""
    speed = r.here[1]
    compared = f"{off_words(r.residual)} the fitted {seconds(r.fitted_s)}"
    return (
        f"Batch {r.batch}{nearest} times a {r.matrix[0]}×{r.matrix[1]} matrix in "
        f"{r.precision}{missing} took {seconds(r.here_s)}{times}, {compared}; "
        f"that is {rate_words(speed, 'FLOP')}, {percent(speed / r.peak_flop_per_s)} of the fitted "
        f"peak. {r.lead} "
        f"{_copy_words(r)}{_fit_words(r)} {_far_words(r)}"
    )


def _copy_words(r: MeasuredRoofline) -> str:
    """What the division of the question gives, where it was asked."""
    if r.batch != r.first_batch:
        return ""
    return (
        f"Its bytes over the best copy's bandwidth are {seconds(r.copied_s)}; the product took "
        f"{rounded(r.here_s / r.copied_s, 2)} times that. "
    )


def _fit_words(r: MeasuredRoofline) -> str:
    told = {
        "bandwidth_bytes_per_s": f"bandwidth {rate_words(r.bandwidth_bytes_per_s, 'B')}",
        "peak_flop_per_s": f"peak {rate_words(r.peak_flop_per_s, 'FLOP')}",
        "overhead_s": f"{1e6 * r.overhead_s:.0f} µs fixed",
    }
    parts = [
        f"{FIT_NAMES[name]} not determined by these sizes" if name in r.undetermined else words
        for name, words in told.items()
    ]
    if not {"bandwidth_bytes_per_s", "peak_flop_per_s"} & set(r.undetermined):
        parts.append(f"ridge at {rounded(r.ridge_flop_per_byte, 2)} operations a byte")
    return f"The fit: {', '.join(parts)}."


def _far_words(r: MeasuredRoofline) -> str:
    if not r.far_points:
        return f"It explains all {r.points} points within 15\u00a0%."
    who = "this CPU's library" if r.kind == "cpu" else "this card's library"
    verb = "is" if r.far_points == 1 else "are"
    return (
        f"{r.far_points} of its {r.points} points {verb} off by more than 15\u00a0%: there {who}, "
        "not the roofline, decides."
    )


def _tables(r: MeasuredRoofline) -> list[Table]:
    parts = {
        "square products": (r.square_flop_per_byte, r.square_flop_per_s),
        "chosen matrix": (r.chosen_flop_per_byte, r.chosen_flop_per_s),
        "other matrix": (r.other_flop_per_byte, r.other_flop_per_s),
        "fitted curve": (r.curve_flop_per_byte, r.curve_flop_per_s),
    }
    return [{"what": name, "flop_per_byte": x, "flop_per_s": y} for name, (x, y) in parts.items()]


def _question(r: MeasuredRoofline) -> str:
    matrix = f"{r.matrix[0]}×{r.matrix[1]} weight matrix in {r.precision}"
    if r.batch == r.first_batch:
        return (
            f"One product of a small batch ({r.batch}) with a {matrix} moves "
            f"{rounded(r.here_bytes / 1e6)} MB. The machine copies at "
            f"{rate_words(r.copy_bytes_per_s, 'B')}, read and written bytes counted. How long "
            "does the product take?"
        )
    return (
        f"A {matrix} times a batch of {r.first_batch} took {seconds(r.first_s)}. The weights are "
        f"read once for the whole batch, and {r.batch / r.first_batch:g} times as much is "
        f"computed with batch {r.batch}. How long does that take?"
    )


measured_roofline = Explorer(
    call="explore.measured_roofline",
    title="The measured roofline: products of one machine under the roof fitted to them",
    parameters=MeasuredRooflineParameters,
    compute=_measured_roofline,
    drawing=MeasuredRooflinePicture,
    narrate=_words,
    alt=(
        "Operations a second against operations for each byte moved, both logarithmic. A roof with "
        "a sharp corner, fitted to the measured points: it rises with the bandwidth and is flat at "
        "the peak. Circles are a batch of token vectors times one weight matrix, filled for the "
        "chosen matrix, whose fitted curve is dashed; squares are square matrix products; a "
        "diamond marks the chosen batch. A line in the corner says on which machine all this was "
        "measured."
    ),
    presets=(
        Preset(
            "One token at a time",
            "One reader: every weight is read for a single token.",
            "How much of the machine's arithmetic does a single reader use?",
            {"batch": 1},
        ),
        Preset(
            "Sixteen at once",
            "Sixteen token vectors are multiplied by the same weights, which are read once.",
            "Sixteen times the work: how many times as long?",
            {"batch": 16},
        ),
        Preset(
            "Under the flat roof",
            "256 token vectors: by now the arithmetic has enough to do.",
            "Where does doubling the batch stop being nearly free?",
            {"batch": 256},
        ),
        Preset(
            "Twice the bytes",
            "The same sixteen vectors in fp32: four bytes a number, and slower units.",
            "Which of the two roofs comes down, and by how much?",
            {"batch": 16, "precision": "fp32"},
        ),
        Preset(
            "A matrix that is soon read",
            "The smallest matrix: what every call costs is now a good part of its time.",
            "Why do the points of the small matrix lie lower at the same operations a byte?",
            {"batch": 4, "matrix": "small"},
        ),
    ),
    tables=_tables,
    remembers=False,
    prediction=Prediction(
        question=_question,
        unit="ms",
        answer=lambda r: 1e3 * r.here_s,
        mark=lambda r, guess: (r.here[0], r.here_flop / (1e-3 * guess)) if guess > 0 else None,
    ),
)
