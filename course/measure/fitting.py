"""Fits the roofline's three constants to measured points, with errors; nothing is measured here.

    t = overhead + sqrt( (bytes / bandwidth)² + (operations / peak)² )

The square root of squares is the smooth corner of the roofline (Williams, Waterman and Patterson,
*Roofline*, 2009, has a sharp one): both limits add up where they are equally near. Whole steps of
models on servers are priced in `course.serving`; this is for one kernel on one machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from course.measure.record import ModelShape, Point, Record
from course.serving._arguments import FloatArray, at_least, numbers, same_length

TRUSTED_RESIDUAL = 0.15
"""Beyond this a library's choice of kernels, not the roofline, decides a point's time."""

WELL_KNOWN = 0.25
"""A constant whose standard error is above this share of it was not determined by the points."""

CONSTANTS = ("overhead_s", "bandwidth_bytes_per_s", "peak_flop_per_s")


@dataclass(frozen=True)
class RooflineFit:
    """The three constants, their standard errors, and how far each point is from the curve.

    An error is 0 for a constant that was given and infinite for one that the points say nothing
    of. `residuals` are measured / fitted − 1, in the order of the points, the shortest of
    which took `fastest_s`.
    """

    overhead_s: float
    bandwidth_bytes_per_s: float
    peak_flop_per_s: float
    overhead_error_s: float
    bandwidth_error_bytes_per_s: float
    peak_error_flop_per_s: float
    residuals: tuple[float, ...]
    given: tuple[str, ...] = ()
    fastest_s: float = 0.0

    def seconds(self, bytes_moved: float, flops: float) -> float:
        """Return the time of a kernel that moves and computes so much."""
        memory = bytes_moved / self.bandwidth_bytes_per_s
        return self.overhead_s + math.hypot(memory, flops / self.peak_flop_per_s)

    @property
    def ridge_flop_per_byte(self) -> float:
        """Operations a byte at which both limits take the same time."""
        return self.peak_flop_per_s / self.bandwidth_bytes_per_s

    @property
    def worst(self) -> int:
        """The index of the point that is farthest from the curve."""
        return int(np.argmax(np.abs(self.residuals)))

    @property
    def worst_residual(self) -> float:
        """The largest |measured / fitted − 1|."""
        return abs(self.residuals[self.worst])

    @property
    def undetermined(self) -> tuple[str, ...]:
        """The constants that these points do not tell: their error is above a quarter of them.

        An overhead that is small beside every measured time is told well enough: it may be 0.
        """
        errors = (
            self.overhead_error_s / max(self.overhead_s, self.fastest_s),
            self.bandwidth_error_bytes_per_s / self.bandwidth_bytes_per_s,
            self.peak_error_flop_per_s / self.peak_flop_per_s,
        )
        pairs = zip(CONSTANTS, errors, strict=True)
        return tuple(name for name, error in pairs if not error <= WELL_KNOWN)


def fit_roofline(
    bytes_moved: Sequence[float],
    flops: Sequence[float],
    seconds: Sequence[float],
    overhead_s: float | None = None,
    bandwidth_bytes_per_s: float | None = None,
    peak_flop_per_s: float | None = None,
) -> RooflineFit:
    """Return the constants that fit the points best, a relative error counting alike everywhere.

    A constant that is given is kept; `math.inf` switches a limit off. One weight matrix alone
    cannot tell overhead and bandwidth apart: give two sizes, or the overhead; `undetermined` of
    the result says so otherwise. Errors are those of least squares in the logarithm, with the
    scatter of the residuals.

    Raises ValueError for fewer points than constants, unequal lengths, a time of 0.

    >>> sizes, work = [1e6, 1e6, 8e6, 8e6], [1e6, 9e8, 1e6, 9e9]
    >>> times = [2e-6 + math.hypot(b / 1e11, f / 1e13) for b, f in zip(sizes, work)]
    >>> fit = fit_roofline(sizes, work, times)
    >>> round(fit.overhead_s * 1e6, 3), round(fit.bandwidth_bytes_per_s / 1e9)
    (2.0, 100)
    """
    from scipy.optimize import least_squares

    moved, done, took = (
        numbers("bytes_moved", bytes_moved), numbers("flops", flops), numbers("seconds", seconds)
    )  # fmt: skip
    given = dict(zip(CONSTANTS, (overhead_s, bandwidth_bytes_per_s, peak_flop_per_s), strict=True))
    _refuse(moved, done, took, given)
    free = [name for name in CONSTANTS if given[name] is None]
    if len(took) < max(1, len(free)):
        raise ValueError(
            f"{len(took)} points cannot tell {len(free)} constants; measure more sizes, or give "
            f"one of {', '.join(CONSTANTS)}"
        )
    scale = _scales(moved, done, took)

    def constants(x: FloatArray) -> dict[str, float]:
        # overhead in its own units since it may be 0; the others as logarithms, since they may not
        found = {
            name: scale[name] * float(value if name == "overhead_s" else math.exp(value))
            for name, value in zip(free, x, strict=True)
        }
        return {name: found[name] if value is None else value for name, value in given.items()}

    def misfit(x: FloatArray) -> FloatArray:
        return np.log(_times(moved, done, **constants(x)) / took)

    lower = [0.0 if name == "overhead_s" else -25.0 for name in free]
    upper = [1.0 if name == "overhead_s" else 25.0 for name in free]
    starts = [
        [start if name == "overhead_s" else 0.0 for name in free] for start in (1e-3, 0.3, 0.9)
    ]
    if free:
        tries = [
            least_squares(misfit, start, bounds=(lower, upper), x_scale=0.1) for start in starts
        ]
        best = min(tries, key=lambda one: float(one.cost))
        values = constants(best.x)
        errors = _errors(np.asarray(best.jac), best.fun, free, values, scale)
    else:
        values = constants(np.empty(0))
        errors = _errors(np.empty((0, 0)), np.empty(0), free, values, scale)
    residuals = took / _times(moved, done, **values) - 1
    return RooflineFit(
        **values, **errors,
        residuals=tuple(float(r) for r in residuals),
        given=tuple(name for name in CONSTANTS if name not in free), fastest_s=float(took.min()),
    )  # fmt: skip


def _refuse(
    moved: FloatArray, done: FloatArray, took: FloatArray, given: dict[str, float | None]
) -> None:
    same_length([("bytes_moved", len(moved)), ("flops", len(done)), ("seconds", len(took))])
    for name, array in (("bytes_moved", moved), ("flops", done)):
        for i in np.flatnonzero(array < 0):
            at_least(f"{name}[{i}]", float(array[i]))
    for i in np.flatnonzero(took <= 0):
        at_least(f"seconds[{i}]", float(took[i]), above=True)
    for name, value in given.items():
        # infinity is allowed: it switches a limit off
        if value is not None and value != math.inf:
            at_least(name, value, above=name != "overhead_s")
    if given["overhead_s"] == math.inf:
        raise ValueError("overhead_s=inf is infinite; give finite seconds, or leave it out")
    work = np.zeros(len(took))
    work += moved if given["bandwidth_bytes_per_s"] != math.inf else 0
    work += done if given["peak_flop_per_s"] != math.inf else 0
    for i in np.flatnonzero(work == 0):
        raise ValueError(
            f"bytes_moved[{i}]={moved[i]:g} and flops[{i}]={done[i]:g} leave the curve nothing to "
            "explain the time with; leave this point out"
        )


def _times(
    moved: FloatArray,
    done: FloatArray,
    overhead_s: float,
    bandwidth_bytes_per_s: float,
    peak_flop_per_s: float,
) -> FloatArray:
    memory, arithmetic = moved / bandwidth_bytes_per_s, done / peak_flop_per_s
    return np.asarray(overhead_s + np.sqrt(memory**2 + arithmetic**2))


def _scales(moved: FloatArray, done: FloatArray, took: FloatArray) -> dict[str, float]:
    """Return where to look for each constant: the fastest seen; overhead is below any time."""
    return {
        "overhead_s": float(took.min()),
        "bandwidth_bytes_per_s": float((moved / took).max()) or 1.0,
        "peak_flop_per_s": float((done / took).max()) or 1.0,
    }


def _errors(
    jacobian: FloatArray,
    misfit: FloatArray,
    free: list[str],
    values: dict[str, float],
    scale: dict[str, float],
) -> dict[str, float]:
    """Return the standard errors by their names: 0 where given, infinite where untold."""
    if not free:
        return dict.fromkeys(map(_error_name, CONSTANTS), 0.0)
    spare = len(misfit) - len(free)
    scatter = float(misfit @ misfit) / spare if spare else math.inf
    curvature = jacobian.T @ jacobian
    # a direction along which no point moves has no error but infinity; pinv would call it 0
    if np.linalg.matrix_rank(curvature, tol=1e-12 * float(np.trace(curvature))) < len(free):
        sizes = np.full(len(free), math.inf)
    else:
        sizes = np.sqrt(scatter * np.diag(np.linalg.inv(curvature)))
    by_name = dict(zip(free, sizes, strict=True))
    unit = {**values, "overhead_s": scale["overhead_s"]}
    return {
        _error_name(name): float(by_name[name] * unit[name]) if name in by_name else 0.0
        for name in CONSTANTS
    }


def _error_name(constant: str) -> str:
    """Return the field with a constant's error: `peak_error_flop_per_s` for `peak_flop_per_s`."""
    what, unit = constant.split("_", 1)
    return f"{what}_error_{unit}"


@dataclass(frozen=True)
class MachineFit:
    """What one record says of its machine in one precision; None where its points are missing.

    `copy_bytes_per_s` and `matmul_flop_per_s` are the best seen, the yardsticks for the shares;
    `launch_s` is one kernel's dispatch from Python. `dense` is fitted to decode_gemm, attention
    each with its one limit.
    """

    precision: str
    copy_bytes_per_s: float | None
    matmul_flop_per_s: float | None
    launch_s: float | None
    dense: RooflineFit
    dense_points: tuple[Point, ...]
    decode_attention: RooflineFit | None
    prefill_attention: RooflineFit | None

    @property
    def bandwidth_share(self) -> float | None:
        """The weights' bandwidth over the best copy's; may exceed 1, since a copy also writes."""
        if self.copy_bytes_per_s is None:
            return None
        return self.dense.bandwidth_bytes_per_s / self.copy_bytes_per_s

    @property
    def flop_share(self) -> float | None:
        """The fitted peak over the best square product's."""
        if self.matmul_flop_per_s is None:
            return None
        return self.dense.peak_flop_per_s / self.matmul_flop_per_s


def fit_record(record: Record, precision: str) -> MachineFit:
    """Return the fit of a record's points in one precision.

    Raises ValueError where the record has fewer than four decode_gemm points in it.
    """
    dense = record.of("decode_gemm", precision)
    if len(dense) < 4:
        raise ValueError(
            f"precision={precision!r} has {len(dense)} decode_gemm points in this record, and a "
            f"fit needs 4; it has {', '.join(record.precisions) or 'no precision'}; give the run "
            "more time with --budget-s"
        )
    copies, products = record.of("copy"), record.of("matmul", precision)
    launches = record.of("launch_eager")
    return MachineFit(
        precision=precision,
        copy_bytes_per_s=max((p.bytes_per_s for p in copies), default=None),
        matmul_flop_per_s=max((p.flop_per_s for p in products), default=None),
        launch_s=launches[0].median_s if launches else None,
        dense=_fit_points(dense),
        dense_points=dense,
        decode_attention=_one_limit(record.of("decode_attention", precision), "memory"),
        prefill_attention=_one_limit(record.of("prefill_attention", precision), "arithmetic"),
    )


def _fit_points(
    points: Sequence[Point],
    bandwidth_bytes_per_s: float | None = None,
    peak_flop_per_s: float | None = None,
) -> RooflineFit:
    return fit_roofline(
        [p.bytes for p in points], [p.flops for p in points], [p.median_s for p in points],
        bandwidth_bytes_per_s=bandwidth_bytes_per_s, peak_flop_per_s=peak_flop_per_s,
    )  # fmt: skip


def _one_limit(points: Sequence[Point], limit: str) -> RooflineFit | None:
    """Return the fit with only one limit: attention has nearly one operation a byte throughout."""
    if len(points) < 3:
        return None
    if limit == "memory":
        return _fit_points(points, peak_flop_per_s=math.inf)
    return _fit_points(points, bandwidth_bytes_per_s=math.inf)


SMALL_KERNELS_PER_LAYER = 15
"""What a layer of the small transformer issues beside four products and attention."""

SMALL_KERNELS_PER_STEP = 3
"""Embedding, last norm and the choice of the token."""


def predict_decode_s(fit: MachineFit, model: ModelShape, batch: int, context_tokens: int) -> float:
    """Return the seconds of one decode step of the small transformer, from single kernels alone.

    Products from `fit.dense`, attention from `fit.decode_attention`, a launch for every other
    kernel. Raises ValueError where the record lacks one of them.
    """
    if fit.decode_attention is None or fit.launch_s is None:
        raise ValueError(
            "fit has no decode_attention or no launch time; measure again with more time "
            "(--budget-s)"
        )
    size = {"fp32": 4, "bf16": 2}[fit.precision]
    dense = sum(
        count * fit.dense.seconds(
            size * (wide * out + batch * (wide + out)), 2 * batch * wide * out
        )
        for count, wide, out in model.matrices
    )  # fmt: skip
    kv_bytes = 2 * batch * context_tokens * model.hidden * size
    attention = model.layers * fit.decode_attention.seconds(kv_bytes, 0.0)
    small = model.layers * SMALL_KERNELS_PER_LAYER + SMALL_KERNELS_PER_STEP
    return dense + attention + small * fit.launch_s
