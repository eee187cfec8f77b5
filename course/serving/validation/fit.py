"""The constants of the roofline cost from measurements, with how well they are known; no data here.

From times of single steps (`fit_steps`, for the reader's own machine too) or from whole serving
points through the simulator (`fit_serving`). Both make the logarithms of predicted / measured
small, so that a step of 10 ms counts as much as one of a second, and 10 % too fast as much as 10 %
too slow. What the measurements cannot tell apart is said, not guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, at_least
from course.serving.catalog import Gpu, IterationTime, MeasuredPoint, Model
from course.serving.pricing import DEFAULTS, Constants, RooflineStepCost, StepFeatures
from course.serving.validation.log_replay import step_features

NAMES = tuple(field.name for field in fields(Constants))
SHARES = ("mbu", "mfu_bf16", "mfu_fp8", "mfu_fp8_static", "mfu_fp4", "expert_share")
SECONDS = (
    "overhead_s", "launch_per_layer_s", "all_reduce_latency_s", "unpack_per_layer_s",
)  # fmt: skip

ROBUST_SCALE = 0.1
"""Errors of a serving point beyond this (in logarithms) count by their size, not by its square."""

SAME_DIRECTION = 1 - 1e-6
"""Cosine from which two constants are held to move the predictions in the same way."""

JOINT = 0.97
"""Correlation from which two constants are said to be known only together."""

_STEP_CHANGE = 1e-5
POINT_CHANGE = 0.03  # a simulator answers to a tiny change by jumps: requests that trade places


@dataclass(frozen=True)
class MeasuredStep:
    """One timed step: what it did, and the seconds it took.

    `part`: "step" for all of it, "matrices" where only the matrix products were timed (overhead
    and the corner of weights and compute, without cache, attention and all-reduce).
    """

    model: Model | str
    gpu: Gpu | str
    features: StepFeatures
    seconds: float
    n_gpus: int = 1
    precision: str = "bf16"
    part: str = "step"

    def __post_init__(self) -> None:
        at_least("seconds", self.seconds, above=True)
        if self.part not in ("step", "matrices"):
            raise ValueError(f"part={self.part!r} is not known; give 'step' or 'matrices'")

    def predicted_s(self, constants: Constants) -> float:
        """Return the seconds that the roofline cost gives with these constants."""
        cost = RooflineStepCost(
            self.model, self.gpu, self.n_gpus, self.precision, constants=constants
        )
        if self.part == "step":
            return cost.step_seconds(self.features)
        parts = cost.step_parts(self.features)
        return parts.overhead_s + parts.dense_s

    @property
    def weight_read_s(self) -> float:
        """Seconds of reading the weights at the data sheet's bandwidth: the step's lower bound."""
        return RooflineStepCost(self.model, self.gpu, self.n_gpus, self.precision).weight_read_s


@dataclass(frozen=True, eq=False)
class ConstantsFit:
    """Constants found, how far they are off the measurements, and how well they are known.

    `free`: the constants that were fitted, in the order of the columns below. `held`: the others
    that the caller wanted fitted, and why they were left where they started. `log_errors`: log
    (predicted / measured) at the end, shape (residuals,). `slopes`: by how much each changes with
    each free constant, shape (residuals, free). `covariance`: of the free constants, in their own
    units, shape (free, free); NaN where it cannot be known.
    """

    constants: Constants
    free: tuple[str, ...]
    held: Mapping[str, str]
    log_errors: FloatArray
    slopes: FloatArray
    covariance: FloatArray

    @property
    def errors(self) -> FloatArray:
        """Predicted / measured − 1 of each measurement, shape (residuals,)."""
        return np.expm1(self.log_errors)

    @property
    def median_error(self) -> float:
        """The median of the errors' sizes, a share."""
        return float(np.median(np.abs(self.errors)))

    @property
    def worst_error(self) -> float:
        """The largest of the errors' sizes, a share."""
        return float(np.abs(self.errors).max())

    @property
    def uncertainty(self) -> dict[str, float]:
        """One standard deviation of each free constant, in its unit; NaN if not known."""
        deviations = np.sqrt(np.diag(self.covariance))
        return dict(zip(self.free, deviations.tolist(), strict=True))

    @property
    def known_together(self) -> tuple[tuple[str, str, float], ...]:
        """Pairs of free constants that can hardly be told apart, with their correlation."""
        deviations = np.sqrt(np.diag(self.covariance))
        found = []
        for first, one in enumerate(self.free):
            for second in range(first + 1, len(self.free)):
                scale = deviations[first] * deviations[second]
                correlation = float(self.covariance[first, second] / scale)
                if abs(correlation) > JOINT:
                    found.append((one, self.free[second], correlation))
        return tuple(found)

    @property
    def at_limit(self) -> tuple[str, ...]:
        """Constants that ended at a limit: shares at 1, seconds at 0. Better ones lie beyond it."""
        values = {name: float(getattr(self.constants, name)) for name in self.free}
        return tuple(
            name
            for name, value in values.items()
            if (name in SHARES and value > 0.9999) or (name in SECONDS and value < 1e-9)
        )

    def as_text(self) -> str:
        """Return what was found and what was identified, one line a constant."""
        lines = []
        for name, deviation in self.uncertainty.items():
            known = f"± {deviation:.2g}" if math.isfinite(deviation) else "± not known"
            limit = " (at its limit)" if name in self.at_limit else ""
            lines.append(f"{name} = {getattr(self.constants, name):.3g} {known}{limit}")
        lines += [
            f"{one} and {other} are known together, hardly apart (correlation {r:.2f})"
            for one, other, r in self.known_together
        ]
        lines += [
            f"{name} = {getattr(self.constants, name):.3g} was not fitted: {why}"
            for name, why in self.held.items()
        ]
        return "\n".join(lines)


# ====================================================================================== from steps
def fit_steps(
    measured: Sequence[MeasuredStep],
    free: Sequence[str] | None = None,
    start: Constants = DEFAULTS,
) -> ConstantsFit:
    """Fit constants to times of single steps, by least squares of log (predicted / measured).

    `free`: which constants; unless given, overhead, MBU and the MFU of each precision that occurs.
    The others keep the values of `start`. The time of reading the weights is overhead or bandwidth
    alike: the two are told apart by a second precision or model, by the cache that decode steps
    read, or by fixing `mbu`. The answer says where they are not.

    Raises ValueError for fewer steps than constants or a name that is no constant.

    >>> true = Constants(overhead_s=0.002, launch_per_layer_s=0, mbu=0.8, mfu_bf16=0.5)
    >>> steps = [(0, 0, 1, 100), (0, 0, 64, 64_000), (0, 0, 256, 9_000), (2048, 2_098_176, 0, 0)]
    >>> timed = [
    ...     MeasuredStep("Llama-3.1-8B", "A100-80GB-SXM", f, RooflineStepCost(
    ...         "Llama-3.1-8B", "A100-80GB-SXM", constants=true).step_seconds(f))
    ...     for f in (StepFeatures(*step) for step in steps)
    ... ]
    >>> found = fit_steps(timed, start=Constants(launch_per_layer_s=0)).constants
    >>> round(found.overhead_s, 4), round(found.mbu, 3), round(found.mfu_bf16, 3)
    (0.002, 0.8, 0.5)
    """
    chosen = _default_free(measured) if free is None else tuple(free)
    seconds = np.array([step.seconds for step in measured])

    def log_errors(constants: Constants) -> FloatArray:
        predicted = np.array([step.predicted_s(constants) for step in measured])
        return np.asarray(np.log(predicted / seconds))

    return fit_constants(log_errors, chosen, start, change=_STEP_CHANGE)


def steps_of(rows: Sequence[IterationTime], part: str = "step") -> tuple[MeasuredStep, ...]:
    """Return the rows of `iteration_times.csv` that hold a time for `part`, ready to be fitted."""
    found = []
    for row in rows:
        seconds = row.step_s if part == "step" else row.matrices_s
        if seconds is not None:
            found.append(
                MeasuredStep(
                    row.model, row.gpu, step_features(row), seconds, row.tensor_parallel, part=part
                )
            )
    return tuple(found)


def _default_free(measured: Sequence[MeasuredStep]) -> tuple[str, ...]:
    precisions = {"mfu_fp8" if step.precision == "fp8" else "mfu_bf16" for step in measured}
    return ("overhead_s", "mbu", *sorted(precisions))


# ============================================================================= from serving points
def fit_serving(
    points: Sequence[MeasuredPoint],
    free: Sequence[str],
    start: Constants = DEFAULTS,
    *,
    log_errors: Callable[[Constants], FloatArray] | None = None,
    groups: Sequence[Hashable] | None = None,
) -> ConstantsFit:
    """Fit constants to throughput and TPOT of closed-loop points, through the simulator.

    A few points that no constants explain (a server that was short of memory in a way nobody wrote
    down) must not decide for all: beyond an error of about 10 % a point counts by the size of its
    error and not by the square. `log_errors`: the errors of all points for given constants, where
    the caller has a faster way. `groups`: a label for each error; errors of the same label are
    taken to be of one kind, which makes the uncertainty larger, and honest.

    Raises ValueError as `fit_steps`, and as `predict_row`.
    """
    if log_errors is None:
        from course.serving.validation.closed_loop import predict_row

        def log_errors(constants: Constants) -> FloatArray:
            pairs = []
            for row in points:
                found = predict_row(row, constants)
                pairs.append((found.point.output_tokens_per_s, row.output_tokens_per_s))
                pairs.append((found.tpot_s, row.tpot_s))
            return np.array([math.log(found / seen) for found, seen in pairs if seen])

    return fit_constants(
        log_errors,
        tuple(free),
        start,
        change=POINT_CHANGE,
        robust_scale=ROBUST_SCALE,
        groups=groups,
        rounds=8,
    )


# ========================================================================================= the fit
def fit_constants(
    log_errors: Callable[[Constants], FloatArray],
    free: Sequence[str],
    start: Constants = DEFAULTS,
    *,
    change: float = _STEP_CHANGE,
    robust_scale: float | None = None,
    groups: Sequence[Hashable] | None = None,
    rounds: int = 100,
) -> ConstantsFit:
    """Fit `free` constants so that the errors become small; all else as `fit_serving` says.

    `log_errors`: log (predicted / measured) for given constants. `change`: of a constant, as a
    share, by which slopes are taken. `robust_scale`: the error from which a measurement counts
    less; None for plain least squares. `rounds`: the most times that slopes are taken.
    """
    from scipy.optimize import least_squares

    unknown = [name for name in free if name not in NAMES]
    if unknown:
        raise ValueError(f"free={unknown[0]!r} is no constant; give some of {', '.join(NAMES)}")
    log_errors = cache(log_errors)  # the solver and the slopes ask for the same constants
    names, held = _told_apart(log_errors, free, start, change)
    errors = log_errors(start)
    if errors.size < len(names) or not names:
        raise ValueError(
            f"{errors.size} measurements cannot fix {len(names)} constants; measure more, or fit "
            "fewer"
        )

    def errors_at(moves: FloatArray) -> FloatArray:
        return log_errors(_with(start, names, moves))

    def slopes_at(moves: FloatArray) -> FloatArray:
        return _slopes(log_errors, _with(start, names, moves), names, change)

    found = least_squares(
        errors_at,
        np.clip(_moves(start, names), *_limits(names)),
        jac=slopes_at,
        bounds=_limits(names),
        loss="linear" if robust_scale is None else "soft_l1",
        f_scale=1.0 if robust_scale is None else robust_scale,
        max_nfev=rounds,
        xtol=1e-8 if robust_scale is None else 1e-3,
    )
    moves = np.where(found.x < 1e-6, np.minimum(found.x, 0.0), found.x)  # 0 s, not 1e-20 s
    constants = _with(start, names, moves)
    slopes = _slopes(log_errors, constants, names, change)
    errors = log_errors(constants)
    units = _units(constants, names)
    covariance = _covariance(errors, slopes, robust_scale, groups) * np.outer(units, units)
    return ConstantsFit(constants, names, held, errors, slopes / units, covariance)


def refit_without(fit: ConstantsFit, left_out: FloatArray | npt.NDArray[np.bool_]) -> Constants:
    """Return the constants that a fit would have found without some of its measurements.

    `left_out`: true for those, shape (residuals,). The errors are taken to change with the
    constants as they do at the fit's end, so that nothing is predicted anew.
    """
    from scipy.optimize import least_squares

    kept = ~np.asarray(left_out, dtype=np.bool_)
    errors = fit.log_errors[kept]
    slopes = fit.slopes[kept] * _units(fit.constants, fit.free)
    centre = _moves(fit.constants, fit.free)

    def errors_at(moves: FloatArray) -> FloatArray:
        return np.asarray(errors + slopes @ (moves - centre))

    def slopes_at(moves: FloatArray) -> FloatArray:
        return slopes

    found = least_squares(
        errors_at,
        np.clip(centre, *_limits(fit.free)),
        jac=slopes_at,
        bounds=_limits(fit.free),
        loss="soft_l1",
        f_scale=ROBUST_SCALE,
    )
    return _with(fit.constants, fit.free, found.x)


# Seconds move in steps of what they usually are, and may be 0; all else moves by factors.
def _moves(constants: Constants, names: Sequence[str]) -> FloatArray:
    """Return where the constants stand on the scales along which the fit moves."""
    return np.array(
        [
            getattr(constants, name) / getattr(DEFAULTS, name)
            if name in SECONDS
            else math.log(getattr(constants, name))
            for name in names
        ]
    )


def _with(start: Constants, names: Sequence[str], moves: FloatArray) -> Constants:
    low, high = _limits(names)
    values = {
        name: move * getattr(DEFAULTS, name) if name in SECONDS else math.exp(move)
        for name, move in zip(names, np.clip(moves, low, high).tolist(), strict=True)
    }
    return replace(start, **values)


def _units(constants: Constants, names: Sequence[str]) -> FloatArray:
    """Return by how much each constant changes for one move."""
    return np.array([getattr(DEFAULTS if n in SECONDS else constants, n) for n in names])


def _limits(names: Sequence[str]) -> tuple[FloatArray, FloatArray]:
    low = [0.0 if name in SECONDS else -np.inf for name in names]
    high = [0.0 if name in SHARES else np.inf for name in names]
    return np.array(low), np.array(high)


def _slopes(
    log_errors: Callable[[Constants], FloatArray],
    at: Constants,
    names: Sequence[str],
    change: float,
) -> FloatArray:
    """Return how the errors change with a move of each constant, shape (errors, names)."""
    here, centre = log_errors(at), _moves(at, names)
    columns = []
    for place, name in enumerate(names):
        # shares may not pass 1, so theirs are taken downwards
        moved = centre.copy()
        moved[place] += -change if name in SHARES else change
        step = moved[place] - centre[place]
        columns.append((log_errors(_with(at, names, moved)) - here) / step)
    return np.column_stack(columns)


def _told_apart(
    log_errors: Callable[[Constants], FloatArray],
    free: Sequence[str],
    start: Constants,
    change: float,
) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the constants that the measurements can say anything of, and why not the others."""
    slopes = _slopes(log_errors, start, tuple(free), change)
    sizes = np.linalg.norm(slopes, axis=0)
    kept: list[int] = []
    held: dict[str, str] = {}
    for column, name in enumerate(free):
        if sizes[column] < 1e-9 * math.sqrt(len(slopes)):
            held[name] = "it makes no difference to these measurements"
            continue
        twins = [
            free[other]
            for other in kept
            if abs(slopes[:, column] @ slopes[:, other])
            > SAME_DIRECTION * sizes[column] * sizes[other]
        ]
        if twins:
            held[name] = f"these measurements cannot tell it from {twins[0]}, which pays for both"
        else:
            kept.append(column)
    return tuple(free[column] for column in kept), held


def _covariance(
    errors: FloatArray,
    slopes: FloatArray,
    robust_scale: float | None,
    groups: Sequence[Hashable] | None,
) -> FloatArray:
    """Return the covariance of the moves; by groups, the errors of one are taken as one.

    Least squares give s²·(JᵀWJ)⁻¹; with groups the middle of the sandwich is the sum over groups
    (Liang and Zeger, Biometrika 73, 1986). NaN without a degree of freedom left.
    """
    count, constants = slopes.shape
    unknown = np.full((constants, constants), np.nan)
    weights = np.ones(count)
    if robust_scale is not None:
        weights = 1 / np.sqrt(1 + (errors / robust_scale) ** 2)
    inside = slopes.T @ (weights[:, None] * slopes)
    if np.linalg.matrix_rank(inside, hermitian=True) < constants:
        return unknown
    inverse = np.linalg.inv(inside)
    if groups is None:
        if count <= constants:
            return unknown
        # exact data have no scatter; their constants still depend on each other
        scatter = max(float(weights @ errors**2) / (count - constants), 1e-30)
        return np.asarray(inverse * scatter)
    labels = {label: place for place, label in enumerate(dict.fromkeys(groups))}
    if len(labels) <= constants:
        return unknown
    scores = np.zeros((len(labels), constants))
    for label, score in zip(groups, (weights * errors)[:, None] * slopes, strict=True):
        scores[labels[label]] += score
    few = len(labels) / (len(labels) - constants)
    return np.asarray(few * inverse @ (scores.T @ scores) @ inverse)
