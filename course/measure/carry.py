"""Carries a fit into the cost model of `course.serving`, as card and constants; fits nothing."""

from __future__ import annotations

from course.measure.fitting import (
    SMALL_KERNELS_PER_LAYER,
    SMALL_KERNELS_PER_STEP,
    MachineFit,
)
from course.measure.record import Record
from course.serving.catalog import Gpu
from course.serving.pricing import Constants

PRODUCTS_PER_LAYER = 4


def measured_card(record: Record, fit: MachineFit) -> Gpu:
    """Return the machine as a card whose data sheet says what the fit found, not what is possible.

    Bandwidth and bf16 peak are the fitted ones, so no further share may be taken off: use it with
    `measured_constants`. A CPU has no power or link figure here: 0 and None.

    >>> from course.measure import fit_record, recorded_runs
    >>> run = recorded_runs("cpu")[0]
    >>> measured_card(run, fit_record(run, "bf16")).peak_fp8_flop_per_s is None
    True
    """
    device = record.device
    return Gpu(
        name=f"measured: {device.name}",
        vendor="measured",
        memory_nameplate_bytes=device.memory_bytes,
        memory_bytes=device.memory_bytes,
        bandwidth_bytes_per_s=fit.dense.bandwidth_bytes_per_s,
        peak_bf16_flop_per_s=fit.dense.peak_flop_per_s,
        peak_fp8_flop_per_s=None,
        peak_fp4_flop_per_s=None,
        link_bytes_per_s=None,
        power_w=0.0,
        source=f"course bench, {record.started_at[:10]}",
        note=f"fitted to decode_gemm in {fit.precision}; not a data sheet",
    )


def measured_constants(fit: MachineFit) -> Constants:
    """Return constants for `measured_card`: shares of 1, overhead and launches as measured.

    A layer pays the fitted overhead of its four products and a launch for every other kernel; a
    server's own overhead (scheduler, sampler, network) was not measured and is not in it.

    Raises ValueError where the record has no launch time.
    """
    if fit.launch_s is None:
        raise ValueError("fit has no launch time; measure again with more time (--budget-s)")
    products_s = PRODUCTS_PER_LAYER * fit.dense.overhead_s
    return Constants(
        overhead_s=fit.dense.overhead_s + SMALL_KERNELS_PER_STEP * fit.launch_s,
        launch_per_layer_s=products_s + SMALL_KERNELS_PER_LAYER * fit.launch_s,
        mbu=1.0,
        mfu_bf16=1.0,
    )
