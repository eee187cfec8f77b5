"""A record in words and tables for the terminal; what the figures mean is computed in `fitting`."""

from __future__ import annotations

from collections.abc import Iterator

from course.measure.fitting import (
    CONSTANTS,
    TRUSTED_RESIDUAL,
    MachineFit,
    fit_record,
    predict_decode_s,
)
from course.measure.record import Point, Record
from course.words import rounded, seconds

UNSTEADY_SPREAD = 1.5


def report(record: Record) -> str:
    """Return the record as text: the machine, its limits, each curve, what was left out."""
    lines = [*_machine(record), "", *_limits(record)]
    for precision in record.precisions:
        lines += ["", *_precision(record, precision)]
    lines += ["", *_doubts(record)]
    return "\n".join(lines).rstrip() + "\n"


def _machine(record: Record) -> Iterator[str]:
    device = record.device
    yield f"{record.label} ({device.instructions}, {device.platform})"
    threads = f"{device.threads} thread{'s' if device.threads > 1 else ''}"
    driver = f", driver {device.driver}, CUDA {device.cuda}" if device.kind == "cuda" else ""
    yield (
        f"torch {device.torch}, Python {device.python}, {threads}{driver}; last-level cache "
        f"{device.cache_bytes / 2**20:.0f} MiB; "
        f"{record.spent_s:.0f} of {record.budget_s:.0f} s used"
    )
    if device.clocks_mhz:
        yield "clocks, MHz: " + ", ".join(f"{k} {v:.0f}" for k, v in device.clocks_mhz.items())
    if record.checks:
        bad = [check for check in record.checks if not check.passed]
        worst = max(record.checks, key=lambda check: check.error / check.allowed)
        yield (
            f"checked against float64: {len(record.checks) - len(bad)} of {len(record.checks)} "
            f"right (nearest to its limit: {worst.name} {worst.precision}, off by "
            f"{worst.error:.1g} of the largest value, {worst.allowed:g} is allowed)"
        )


def _limits(record: Record) -> Iterator[str]:
    copies = record.of("copy")
    if copies:
        best = max(copies, key=lambda point: point.bytes_per_s)
        yield (
            f"copy: {_per_s(best.bytes_per_s, 'B')} at {best.shape['buffer_bytes'] / 2**20:g} MiB "
            "(read and written bytes)"
        )
    for precision in record.precisions:
        products = record.of("matmul", precision)
        if products:
            best = max(products, key=lambda point: point.flop_per_s)
            yield (
                f"matrix product {precision}: {_per_s(best.flop_per_s, 'FLOP')} at size "
                f"{best.shape['size']}"
            )
    for bench, words in (("launch_eager", "from Python"), ("launch_graph", "in a CUDA graph")):
        for point in record.of(bench):
            yield f"one tiny kernel {words}: {_micro(point.median_s)}"
    if record.device.kind == "cpu" and record.of("launch_eager"):
        yield "(a CPU launches nothing: this is what torch's dispatch costs)"


def _precision(record: Record, precision: str) -> Iterator[str]:
    try:
        fit = fit_record(record, precision)
    except ValueError as error:
        yield f"{precision}: no fit, {error}"
        return
    yield f"Weights read once for the whole batch, {precision}"
    yield from _amortisation_table(fit)
    yield amortisation_words(fit, record.device.kind)
    yield from _attention(fit)
    yield from _decode_table(record, fit)


def _amortisation_table(fit: MachineFit) -> Iterator[str]:
    heads = ("batch", "matrix", "measured", "fitted", "residual", "/token")
    yield " ".join(f"{head:>{w}}" for head, w in zip(heads, (7, 12, 10, 10, 9, 10), strict=True))
    for point, residual in zip(fit.dense_points, fit.dense.residuals, strict=True):
        shape = point.shape
        matrix = f"{shape['width_in']}×{shape['width_out']}"
        fitted = fit.dense.seconds(point.bytes, point.flops)
        yield (
            f"{shape['batch']:>7} {matrix:>12} {_micro(point.median_s):>10} {_micro(fitted):>10} "
            f"{100 * residual:>+8.0f}% {_micro(point.median_s / shape['batch']):>10}"
        )


def amortisation_words(fit: MachineFit, kind: str) -> str:
    """Return the fitted constants and the residual, and who decides where it is large.

    `kind` is the device's, `cpu` or `cuda`.
    """
    dense = fit.dense
    words = (
        "t = overhead + √((bytes/bandwidth)² + (operations/peak)²) with "
        f"{'; '.join(_constants(fit))}"
    )
    worst = fit.dense_points[dense.worst]
    where = f"batch {worst.shape['batch']}, {worst.shape['width_in']}×{worst.shape['width_out']}"
    words += f". Largest residual {100 * dense.residuals[dense.worst]:+.0f} % ({where})"
    far = [
        point
        for point, residual in zip(fit.dense_points, dense.residuals, strict=True)
        if abs(residual) > TRUSTED_RESIDUAL
    ]
    if not far:
        return f"{words}: the roofline explains every point within 15 %."
    who = "this CPU's library" if kind == "cpu" else "this card's library"
    words += (
        f": {len(far)} of {len(dense.residuals)} points are off by more than 15 %, and there "
        f"{who}, not the roofline, decides"
    )
    unsteady = sum(point.spread > UNSTEADY_SPREAD for point in far)
    if unsteady:
        words += f" ({unsteady} of them were unsteady, so other programs may be to blame)"
    return words + "."


def _constants(fit: MachineFit) -> Iterator[str]:
    """Say each constant with its error and its share of the best seen, or that it is unknown."""
    dense = fit.dense
    error_s = dense.overhead_error_s
    bandwidth = (dense.bandwidth_bytes_per_s, dense.bandwidth_error_bytes_per_s)
    peak = (dense.peak_flop_per_s, dense.peak_error_flop_per_s)
    told = {
        "overhead_s": f"overhead {_micro(dense.overhead_s)} ± {_micro(error_s)}",
        "bandwidth_bytes_per_s": f"bandwidth {_with_error(*bandwidth, 'B')}"
        + _share(fit.bandwidth_share, "copy"),
        "peak_flop_per_s": f"peak {_with_error(*peak, 'FLOP')}"
        + _share(fit.flop_share, "matrix product"),
    }
    for name in CONSTANTS:
        unknown = f"{name.split('_')[0]} not determined by these sizes"
        yield unknown if name in dense.undetermined else told[name]


def _with_error(value: float, error: float, unit: str) -> str:
    return f"{_per_s(value, unit)} ± {100 * error / value:.1f} %"


def _share(share: float | None, what: str) -> str:
    return "" if share is None else f" ({100 * share:.0f} % of the best {what})"


def _attention(fit: MachineFit) -> Iterator[str]:
    if fit.decode_attention is not None:
        found = fit.decode_attention
        yield (
            f"decode attention: reads its KV cache at {_per_s(found.bandwidth_bytes_per_s, 'B')}, "
            f"overhead {_micro(found.overhead_s)}, largest residual "
            f"{100 * found.worst_residual:.0f} %"
        )
    if fit.prefill_attention is not None:
        found = fit.prefill_attention
        yield (
            f"prefill attention: {_per_s(found.peak_flop_per_s, 'FLOP')}, "
            f"overhead {_micro(found.overhead_s)}, largest residual "
            f"{100 * found.worst_residual:.0f} %"
        )


def _decode_table(record: Record, fit: MachineFit) -> Iterator[str]:
    points = record.of("model_decode", fit.precision)
    if not points or fit.decode_attention is None or fit.launch_s is None:
        return
    model = record.model
    yield (
        f"Small transformer ({model.layers} layers, width {model.hidden}), one decode step, "
        "predicted from the single kernels"
    )
    heads = ("batch", "context", "measured", "predicted", "off", "tokens/s")
    yield " ".join(f"{head:>{w}}" for head, w in zip(heads, (7, 8, 10, 10, 6, 9), strict=True))
    for point in points:
        yield _decode_row(point, predict_decode_s(
            fit, model, point.shape["batch"], point.shape["context_tokens"]
        ))  # fmt: skip


def _decode_row(point: Point, predicted_s: float) -> str:
    batch, context = point.shape["batch"], point.shape["context_tokens"]
    return (
        f"{batch:>7} {context:>8} {_micro(point.median_s):>10} {_micro(predicted_s):>10} "
        f"{100 * (predicted_s / point.median_s - 1):>+5.0f}% {rounded(batch / point.median_s):>9}"
    )


def _doubts(record: Record) -> Iterator[str]:
    unsteady = [point for point in record.points if point.spread > UNSTEADY_SPREAD]
    for words in record.warnings:
        yield f"mind: {words}"
    if unsteady:
        yield (
            f"mind: {len(unsteady)} of {len(record.points)} sizes were unsteady (upper quartile "
            f"over {UNSTEADY_SPREAD:g} times the lower): close other programs and measure again"
        )
    for reason in dict.fromkeys(left.reason for left in record.left_out):
        what = [left.what for left in record.left_out if left.reason == reason]
        more = f" and {len(what) - 1} more" if len(what) > 1 else ""
        yield f"left out: {what[0]}{more}: {reason}"


def _micro(value_s: float) -> str:
    """Return a short time: microseconds below a millisecond, as `seconds` above.

    >>> _micro(1.234e-5), _micro(0.25), _micro(1e-12)
    ('12.3 µs', '250 ms', '0 µs')
    """
    if value_s < 1e-9:
        return "0 µs"
    return f"{rounded(1e6 * value_s)} µs" if value_s < 1e-3 else seconds(value_s)


def _per_s(value: float, unit: str) -> str:
    """Return a rate with a decimal prefix.

    >>> _per_s(3.35e12, "B"), _per_s(9.4e10, "FLOP")
    ('3.35 TB/s', '94.0 GFLOP/s')
    """
    for size, prefix in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{rounded(value / size)} {prefix}{unit}/s"
    return f"{rounded(value)} {unit}/s"
