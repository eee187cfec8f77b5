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
import numpy.typing as npt

from course.serving._arguments import FloatArray
from course.serving.catalog import (
    MeasuredPoint,
    iteration_times,
    measured_points,
    model,
)
from course.serving.pricing import DEFAULTS, Constants
from course.serving.validation.closed_loop import (
    PredictedRow,
    RowSchedule,
    ServingPoint,
    predict_closed_loop,
    row_cost,
    row_precision,
    schedule_row,
)
from course.serving.validation.error_tables import (
    HOST_OF_2023,
    ONE_SET,
    ConstantRow,
    ErrorRow,
    FoldRow,
    PointRow,
    StepRow,
    committed_constants,
    committed_errors,
    committed_folds,
    committed_points,
    committed_steps,
    error_row,
    errors_of,
    fit_statement,
    fold_row,
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
    "FoldRow",
    "PointRow",
    "ServingPoint",
    "StepRow",
    "Validation",
    "committed_constants",
    "committed_errors",
    "committed_folds",
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
    "launch_per_layer_s",
    "mbu",
    "mfu_bf16",
    "mfu_fp8",
    "mfu_fp8_static",
    "all_reduce_latency_s",
    "all_reduce_bytes_per_s",
)
"""What the points of dense models in bf16 and fp8 fix. `overhead_s` is held: it can hardly be told
from the launches of models with 32 to 80 layers, and pays for some of them if it is let go."""

FITTED_THEN = ("mfu_fp4", "expert_share", "unpack_per_layer_s")
"""What 4 bits and mixtures of experts fix, with the others as dense models have them."""

UNSEEN: dict[str, str | float] = {
    "mfu_fp8_static": "mfu_fp8",
    "mfu_fp4": "mfu_fp8",
    "expert_share": 1.0,
    "unpack_per_layer_s": 0.0,
}
"""What stands for a constant where the rows that tell it are left out: another one, or a value.
The others keep the value that they have in force."""

LEAST_SEEN = 0.05
"""Share of a constant's effect on all rows below which the rest does not tell it."""

BARE = replace(DEFAULTS, overhead_s=1e-4, launch_per_layer_s=0.0)
"""Where fits to single steps start: profiled kernels have neither a scheduler nor a host."""


# ================================================================================ serving points
def comparable_points() -> tuple[MeasuredPoint, ...]:
    """Return the measured points that the model speaks of: 682 load levels of closed loops.

    Left out: models and cards that the catalogue lacks, more than 8 cards, tensor parallelism over
    PCIe, and loads that are not a closed loop.

    >>> len(comparable_points()), len({setup_of(row) for row in comparable_points()})
    (682, 40)
    """
    return tuple(row for row in measured_points(load="closed loop") if _is_covered(row))


def _is_covered(row: MeasuredPoint) -> bool:
    try:
        cost = row_cost(row)
    except ValueError:
        return False
    return cost.is_covered and None not in _numbers(row)


def kind_of(row: MeasuredPoint) -> str:
    """Return what a row's errors are counted with: "dense", "4 bits" or "experts".

    >>> kind_of(measured_points(source="nim-1.5")[0])
    'dense'
    """
    if model(row.model).is_moe:
        return "experts"
    return "4 bits" if row_precision(row) in ("nvfp4", "int4") else "dense"


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


FOLDS: dict[str, Callable[[MeasuredPoint], str]] = {
    "set-up": setup_of,
    "source": lambda row: row.source,
    "card": lambda row: row.gpu,
    "model": lambda row: model(row.model).name,
}
"""By what rows are left out together."""


def schedules_of(rows: Sequence[MeasuredPoint]) -> list[RowSchedule]:
    """Return every row's schedule; the compiled engine lets threads run side by side."""
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(schedule_row, rows))


def _predict_all(
    schedules: Sequence[RowSchedule], constants: Constants | Sequence[Constants]
) -> list[PredictedRow]:
    sets = [constants] * len(schedules) if isinstance(constants, Constants) else constants
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return list(threads.map(RowSchedule.predict, schedules, sets))


def _log_errors(schedules: Sequence[RowSchedule], constants: Constants) -> FloatArray:
    """Return log (predicted / measured): the throughputs of all rows, then their TPOTs."""
    found = _predict_all(schedules, constants)
    predicted = [each.point.output_tokens_per_s for each in found] + [e.tpot_s for e in found]
    rows = [each.row for each in schedules]
    measured = [row.output_tokens_per_s for row in rows] + [row.tpot_s for row in rows]
    return np.asarray(np.log(np.array(predicted) / np.array(measured, dtype=np.float64)))


@dataclass(frozen=True, eq=False)
class PointFits:
    """The fit to dense models, then that to 4 bits and experts with the first one's constants.

    `is_dense`: which rows were in the first, shape (rows,); all others were in the second, which is
    None where there are none.
    """

    dense: ConstantsFit
    rest: ConstantsFit | None
    is_dense: npt.NDArray[np.bool_]

    def without(self, left_out: npt.NDArray[np.bool_]) -> Constants:
        """Return the constants of fits without some rows, shape (rows,); see `refit_without`.

        A constant that the rows left do not tell gets what `UNSEEN` says, or its value in force.
        """
        general = _without(self.dense, np.tile(left_out[self.is_dense], 2))
        if self.rest is None:
            return general
        rest = _without(self.rest, np.tile(left_out[~self.is_dense], 2))
        return replace(general, **{name: getattr(rest, name) for name in FITTED_THEN})


def fit_committed_points(
    start: Constants = DEFAULTS, schedules: Sequence[RowSchedule] | None = None
) -> PointFits:
    """Fit the one set of constants to throughput and TPOT of all comparable points (a minute)."""
    of_rows = schedules_of(comparable_points()) if schedules is None else schedules
    is_dense = np.array([kind_of(each.row) == "dense" for each in of_rows])
    dense = _fit([s for s, its in zip(of_rows, is_dense, strict=True) if its], FITTED, start)
    others = [s for s, its in zip(of_rows, is_dense, strict=True) if not its]
    rest = _fit(others, FITTED_THEN, dense.constants) if others else None
    return PointFits(dense, rest, is_dense)


def _fit(schedules: Sequence[RowSchedule], free: Sequence[str], start: Constants) -> ConstantsFit:
    labels = [setup_of(each.row) for each in schedules]
    return fit_serving(
        [each.row for each in schedules],
        free,
        start,
        log_errors=lambda constants: _log_errors(schedules, constants),
        groups=labels + labels,
    )


def left_out_constants(
    rows: Sequence[MeasuredPoint], fits: PointFits, fold: str
) -> list[Constants]:
    """Return for each row the constants of fits that have seen no row of its set-up, source, …

    `fold`: one of `FOLDS`.
    """
    labels = np.array([FOLDS[fold](row) for row in rows])
    found = {label: fits.without(labels == label) for label in dict.fromkeys(labels)}
    return [found[label] for label in labels]


def _without(fit: ConstantsFit, left_out: npt.NDArray[np.bool_]) -> Constants:
    kept = np.linalg.norm(fit.slopes[~left_out], axis=0)
    seen = kept > LEAST_SEEN * np.linalg.norm(fit.slopes, axis=0)
    constants = refit_without(fit, left_out)
    for name in (n for n, told in zip(fit.free, seen, strict=True) if not told):
        instead = UNSEEN.get(name, getattr(DEFAULTS, name))
        value = getattr(constants, instead) if isinstance(instead, str) else instead
        constants = replace(constants, **{name: value})
    return constants


def _own(schedules: Sequence[RowSchedule], done: Callable[[str], None]) -> list[Constants | None]:
    """Return for each row the three constants of its set-up; None where it has too few points."""
    labels = [setup_of(each.row) for each in schedules]
    found: dict[str, Constants | None] = {}
    for label in dict.fromkeys(labels):
        mine = [each for each, its in zip(schedules, labels, strict=True) if its == label]
        found[label] = None
        if len(mine) > 3:
            found[label] = fit_constants(
                lambda constants, mine=mine: _log_errors(mine, constants),  # type: ignore[misc]
                ("overhead_s", "mbu", _MFU.get(row_precision(mine[0].row), "mfu_bf16")),
                change=POINT_CHANGE,
                robust_scale=ROBUST_SCALE,
                rounds=5,
            ).constants
        done(f"own constants: {label}")
    return [found[label] for label in labels]


_MFU = {
    "fp8": "mfu_fp8",
    "fp8-static": "mfu_fp8_static",
    "nvfp4": "mfu_fp4",
    "mxfp4": "expert_share",
}
"""The constant by which a precision's arithmetic is known."""


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
    folds: tuple[FoldRow, ...]

    @property
    def errors(self) -> tuple[ErrorRow, ...]:
        """The figures that are quoted, from the rows."""
        return errors_of(self.points, self.steps)


def validate(done: Callable[[str], None] = lambda label: None) -> Validation:
    """Predict all comparable points and fit all steps anew; about two minutes on two cores.

    `done` is called with a label after each of `validation_stages()` parts.
    """
    rows = comparable_points()
    schedules = schedules_of(rows)
    points = _predict_all(schedules, DEFAULTS)
    done("all points, one set of constants")
    fits_to_points = fit_committed_points(schedules=schedules)
    done("constants fitted anew")
    left_out = {
        fold: _predict_all(schedules, left_out_constants(rows, fits_to_points, fold))
        for fold in FOLDS
    }
    done("each set-up, source, card and model left out")
    own = _own(schedules, done)
    with_own = [index for index, constants in enumerate(own) if constants is not None]
    own_points = dict(
        zip(
            with_own,
            _predict_all([schedules[i] for i in with_own], [own[i] or DEFAULTS for i in with_own]),
            strict=True,
        )
    )
    done("all points, own constants")
    fits = fit_step_setups()
    done("single steps")
    return Validation(
        points=tuple(
            _point_row(row, points[i], left_out["set-up"][i], own_points.get(i))
            for i, row in enumerate(rows)
        ),
        steps=_step_rows(fits),
        constants=_constant_rows(ONE_SET, fits_to_points.dense)
        + (_constant_rows(ONE_SET, fits_to_points.rest) if fits_to_points.rest else ())
        + tuple(row for label, found in fits.items() for row in _constant_rows(label, found)),
        folds=tuple(
            row for fold, found in left_out.items() for row in _fold_rows(fold, rows, found)
        ),
    )


def _fold_rows(
    fold: str, rows: Sequence[MeasuredPoint], found: Sequence[PredictedRow]
) -> list[FoldRow]:
    """Return how far off the rows are that a fit has not seen, each group by itself."""
    label_of = FOLDS[fold]
    groups: dict[tuple[str, str], list[int]] = {}
    for index, row in enumerate(rows):
        groups.setdefault((label_of(row), kind_of(row)), []).append(index)
    return [
        fold_row(
            fold,
            label,
            kind,
            [(found[i].point.output_tokens_per_s, rows[i].output_tokens_per_s or 1.0) for i in its],
            [(found[i].tpot_s, rows[i].tpot_s or 1.0) for i in its],
            [(found[i].ttft_s, rows[i].ttft_s or 1.0) for i in its],
        )
        for (label, kind), its in groups.items()
    ]


def validation_stages() -> int:
    """Return how often `validate` calls `done`."""
    return 5 + len({setup_of(row) for row in comparable_points()})


def _point_row(
    row: MeasuredPoint, found: PredictedRow, left_out: PredictedRow, own: PredictedRow | None
) -> PointRow:
    seen = _seen(row)
    return PointRow(
        setup=setup_of(row),
        kind=kind_of(row),
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
        left_out_tpot_s=_digits(left_out.tpot_s),
        left_out_ttft_s=_digits(left_out.ttft_s),
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
