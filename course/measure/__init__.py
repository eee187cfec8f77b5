"""Measures the reader's own machine with torch, and reads and fits what was measured; no model.

Torch is imported only when `run_benches` is called. Everything else here (records, fits, words)
works without it.
"""

from __future__ import annotations

from course.measure.bench import run_benches
from course.measure.carry import measured_card, measured_constants
from course.measure.fitting import (
    MachineFit,
    RooflineFit,
    fit_record,
    fit_roofline,
    predict_decode_s,
)
from course.measure.machine import CannotMeasureError
from course.measure.record import (
    BENCHES,
    Check,
    Device,
    LeftOut,
    ModelShape,
    Point,
    Record,
    RecordError,
    load_record,
    newest_measured,
    recorded_runs,
    save_record,
)
from course.measure.report import report

__all__ = [
    "BENCHES",
    "CannotMeasureError",
    "Check",
    "Device",
    "LeftOut",
    "MachineFit",
    "ModelShape",
    "Point",
    "Record",
    "RecordError",
    "RooflineFit",
    "fit_record",
    "fit_roofline",
    "load_record",
    "measured_card",
    "measured_constants",
    "newest_measured",
    "predict_decode_s",
    "recorded_runs",
    "report",
    "run_benches",
    "save_record",
]
