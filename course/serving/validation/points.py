"""Predicted against measured, for every committed point the cost model speaks of; no file here.

`validate` computes it anew (minutes); the result is kept in `data/validation/`, and `fit_statement`
and the notebooks read it there. No constant is set here: those in force are
`course.serving.pricing.DEFAULTS`. Writing the tables is `course.commands.validate`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from course.serving._arguments import FloatArray
from course.serving.catalog import (
    MeasuredPoint,
    UnknownNameError,
    gpu,
    iteration_times,
    measured_points,
    model,
)
from course.serving.pricing import DEFAULTS, Constants, RooflineStepCost
from course.serving.validation.closed_loop import (
    PredictedRow,
    ServingPoint,
    predict_closed_loop,
    predict_row,
    row_precision,
)
from course.serving.validation.error_tables import (
    HOST_OF_2023,
    ONE_SET,
    ConstantRow,
    ErrorRow,
    PointRow,
    StepRow,
    committed_constants,
    committed_errors,
    committed_points,
    committed_steps,
    error_row,
    errors_of,
    fit_statement,
    validation_text,
)
from course.serving.validation.fit import (
    POINT_CHANGE,
    ROBUST_SCALE,
    ConstantsFit,
    MeasuredStep,
    fit_constants,
    fit_serving,
    fit_steps,
    refit_without,
    steps_of,
)

__all__ = [
    "ConstantRow",
    "ErrorRow",
    "PointRow",
    "ServingPoint",
    "StepRow",
    "Validation",
    "committed_constants",
    "committed_errors",
    "committed_points",
    "committed_steps",
    "comparable_points",
    "error_row",
    "fit_committed_points",
    "fit_statement",
    "fit_step_setups",
    "predict_closed_loop",
    "setup_of",
    "step_setups",
    "validate",
    "validation_stages",
    "validation_text",
]

COURSE = "course-validation"
"""The source of what is fitted to several sources at once."""

FITTED = (
    "overhead_s",
    "launch_per_layer_s",
    "mbu",
    "mfu_bf16",
    "mfu_fp8",
    "all_reduce_latency_s",
)
"""What the serving points fix. The bandwidth of an all-reduce is not among them: from 300 GB/s on
its effect is lost in that of the MFU, so it is set to 300 GB/s, two thirds of the H100's link."""

BARE = replace(DEFAULTS, overhead_s=1e-4, launch_per_layer_s=0.0)
"""Where fits to single steps start: profiled kernels have neither a scheduler nor a host."""


# ================================================================================ serving points
def comparable_points() -> tuple[MeasuredPoint, ...]:
    """Return the measured points that the model speaks of: 486 load levels of closed loops.

    Left out: mixtures of experts, latent attention and windows, 4 bits, models and cards that the
    catalogue lacks, more than 8 cards, tensor parallelism over PCIe, and loads that are not a
    closed loop.

    >>> len(comparable_points()), len({setup_of(row) for row in comparable_points()})
    (486, 24)
    """
    return tuple(row for row in measured_points(load="closed loop") if _is_covered(row))


def _is_covered(row: MeasuredPoint) -> bool:
    try:
        cost = RooflineStepCost(model(row.model), gpu(row.gpu), row.n_gpus, row_precision(row))
    except (UnknownNameError, ValueError):
        return False
    return cost.is_covered and None not in _numbers(row)


class _Seen(NamedTuple):
    """The numbers of a row that must all be there."""

    prompt_tokens: float
    output_tokens: float
    concurrency: int
    output_tokens_per_s: float
    tpot_s: float
    ttft_s: float


def _numbers(row: MeasuredPoint) -> tuple[float | None, ...]:
    return tuple(getattr(row, name) for name in _Seen._fields)


def _seen(row: MeasuredPoint) -> _Seen:
    return _Seen(*_numbers(row))  # type: ignore[arg-type]  # _is_covered lets no None through


def setup_of(row: MeasuredPoint) -> str:
    """Return the name of a row's set-up: source, engine, cards, model, precision.

    >>> setup_of(measured_points(source="nim-1.5")[0])
    'nim-1.5: NIM, 2 × H100-80GB-SXM, Llama-3.1-70B, fp8'
    """
    engine = row.engine.split(" ")[0].rstrip(",")
    return (
        f"{row.source}: {engine}, {row.n_gpus} × {row.gpu}, {model(row.model).name}, "
        f"{row_precision(row)}"
    )


def _predict_all(
    rows: Sequence[MeasuredPoint], constants: Constants | Sequence[Constants]
) -> list[PredictedRow]:
    """Predict every row; the compiled engine lets threads run side by side."""
    sets = [constants] * len(rows) if isinstance(constants, Constants) else constants
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(predict_row, rows, sets))


def _log_errors(rows: Sequence[MeasuredPoint], constants: Constants) -> FloatArray:
    """Return log (predicted / measured): the throughputs of all rows, then their TPOTs."""
    points = _predict_all(rows, constants)
    predicted = [found.point.output_tokens_per_s for found in points]
    predicted += [found.tpot_s for found in points]
    measured = [row.output_tokens_per_s for row in rows] + [row.tpot_s for row in rows]
    return np.asarray(np.log(np.array(predicted) / np.array(measured, dtype=np.float64)))


def fit_committed_points(start: Constants = DEFAULTS) -> ConstantsFit:
    """Fit the one set of constants to throughput and TPOT of all comparable points (a minute)."""
    rows = comparable_points()
    labels = [setup_of(row) for row in rows]
    return fit_serving(
        rows, FITTED, start, log_errors=lambda c: _log_errors(rows, c), groups=labels + labels
    )


def _left_out(rows: Sequence[MeasuredPoint], fit: ConstantsFit) -> list[Constants]:
    """Return for each row the constants of a fit that has not seen its set-up."""
    labels = np.array([setup_of(row) for row in rows])
    found = {
        label: refit_without(fit, np.tile(labels == label, 2)) for label in dict.fromkeys(labels)
    }
    return [found[label] for label in labels]


def _own(rows: Sequence[MeasuredPoint], done: Callable[[str], None]) -> list[Constants | None]:
    """Return for each row the three constants of its set-up; None where it has too few points."""
    labels = [setup_of(row) for row in rows]
    found: dict[str, Constants | None] = {}
    for label in dict.fromkeys(labels):
        mine = [row for row, its in zip(rows, labels, strict=True) if its == label]
        found[label] = None
        if len(mine) > 3:
            mfu = "mfu_fp8" if row_precision(mine[0]) == "fp8" else "mfu_bf16"
            found[label] = fit_constants(
                lambda constants, mine=mine: _log_errors(mine, constants),  # type: ignore[misc]
                ("overhead_s", "mbu", mfu),
                change=POINT_CHANGE,
                robust_scale=ROBUST_SCALE,
                rounds=5,
            ).constants
        done(f"own constants: {label}")
    return [found[label] for label in labels]


# ================================================================================ single steps
def step_setups() -> dict[str, tuple[MeasuredStep, ...]]:
    """Return the measured steps by set-up and part: a card and a model each, `step` or `matrices`.

    Of the server of 2023 (splitwise-sim) each number of cards is a set-up of its own, and prompts
    of several sequences are left out, since the source does not say in how many steps they ran.
    """
    groups: dict[str, list[MeasuredStep]] = {}
    for part in ("step", "matrices"):
        for row in iteration_times():
            whole = row.source == HOST_OF_2023
            if whole and row.phase == "prefill" and row.sequences > 1:
                continue
            cards = f"{row.tensor_parallel} × " if whole else ""
            label = f"{row.source}: {cards}{row.gpu}, {row.model}, {part}"
            groups.setdefault(label, []).extend(steps_of([row], part))
    return {label: tuple(steps) for label, steps in groups.items() if steps}


def fit_step_setups() -> dict[str, ConstantsFit]:
    """Fit overhead, MBU and MFU to the steps of each set-up."""
    return {label: fit_steps(steps, start=BARE) for label, steps in step_setups().items()}


def _step_rows(fits: dict[str, ConstantsFit]) -> tuple[StepRow, ...]:
    rows = []
    for label, steps in step_setups().items():
        for step in steps:
            rows.append(_step_row(label, step, fits[label].constants))
    return tuple(rows)


def _step_row(label: str, step: MeasuredStep, constants: Constants) -> StepRow:
    seen = step.features
    prefill = seen.prefill_tokens > 0
    sequences = 1 if prefill else seen.decode_seqs
    return StepRow(
        setup=label,
        part=step.part,
        phase="prefill" if prefill else "decode",
        n_gpus=step.n_gpus,
        sequences=sequences,
        prompt_tokens=seen.prefill_tokens,
        context_tokens=seen.kv_tokens // sequences,
        measured_s=step.seconds,
        predicted_s=_digits(step.predicted_s(constants)),
        weight_read_s=_digits(step.weight_read_s),
        source=label.split(":")[0],
    )


# ==================================================================================== all of it
@dataclass(frozen=True, eq=False)
class Validation:
    """All of it: what the committed tables hold."""

    points: tuple[PointRow, ...]
    steps: tuple[StepRow, ...]
    constants: tuple[ConstantRow, ...]

    @property
    def errors(self) -> tuple[ErrorRow, ...]:
        """The figures that are quoted, from the rows."""
        return errors_of(self.points, self.steps)


def validate(done: Callable[[str], None] = lambda label: None) -> Validation:
    """Predict all comparable points and fit all steps anew; about two minutes on two cores.

    `done` is called with a label after each of `validation_stages()` parts.
    """
    rows = comparable_points()
    points = _predict_all(rows, DEFAULTS)
    done("all points, one set of constants")
    fit = fit_committed_points()
    done("constants fitted anew")
    left_out = _predict_all(rows, _left_out(rows, fit))
    done("each set-up left out")
    own = _own(rows, done)
    with_own = [index for index, constants in enumerate(own) if constants is not None]
    own_points = dict(
        zip(
            with_own,
            _predict_all([rows[i] for i in with_own], [own[i] or DEFAULTS for i in with_own]),
            strict=True,
        )
    )
    done("all points, own constants")
    fits = fit_step_setups()
    done("single steps")
    return Validation(
        points=tuple(
            _point_row(row, points[i], left_out[i], own_points.get(i)) for i, row in enumerate(rows)
        ),
        steps=_step_rows(fits),
        constants=_constant_rows(ONE_SET, fit)
        + tuple(row for label, found in fits.items() for row in _constant_rows(label, found)),
    )


def validation_stages() -> int:
    """Return how often `validate` calls `done`."""
    return 5 + len({setup_of(row) for row in comparable_points()})


def _point_row(
    row: MeasuredPoint, found: PredictedRow, left_out: PredictedRow, own: PredictedRow | None
) -> PointRow:
    seen = _seen(row)
    return PointRow(
        setup=setup_of(row),
        prompt_tokens=seen.prompt_tokens,
        output_tokens=seen.output_tokens,
        concurrency=seen.concurrency,
        throughput_is=row.throughput_is,
        measured_tokens_per_s=seen.output_tokens_per_s,
        predicted_tokens_per_s=_digits(found.point.output_tokens_per_s),
        left_out_tokens_per_s=_digits(left_out.point.output_tokens_per_s),
        own_tokens_per_s=None if own is None else _digits(own.point.output_tokens_per_s),
        tpot_stat=row.tpot_stat or "unknown",
        measured_tpot_s=seen.tpot_s,
        predicted_tpot_s=_digits(found.tpot_s),
        ttft_stat=row.ttft_stat or "unknown",
        measured_ttft_s=seen.ttft_s,
        predicted_ttft_s=_digits(found.ttft_s),
        source=row.source,
    )


def _constant_rows(label: str, fit: ConstantsFit) -> tuple[ConstantRow, ...]:
    words = dict.fromkeys(fit.at_limit, "at its limit")
    for one, other, correlation in fit.known_together:
        words[one] = f"known together with {other} (correlation {correlation:.2f})"
    source = COURSE if label == ONE_SET else label.split(":")[0]
    fitted = [
        ConstantRow(
            label,
            name,
            _digits(getattr(fit.constants, name)),
            _digits(deviation) if np.isfinite(deviation) else None,
            words.get(name, "identified"),
            source,
        )
        for name, deviation in fit.uncertainty.items()
    ]
    held = [
        ConstantRow(label, name, getattr(fit.constants, name), None, f"not fitted: {why}", source)
        for name, why in fit.held.items()
    ]
    return tuple(fitted + held)


def _digits(value: float) -> float:
    """Round to five digits: further ones would differ from machine to machine."""
    return float(f"{value:.5g}")
