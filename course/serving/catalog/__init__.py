"""GPUs, models, prices, measurements and trace statistics as `data/` holds them; no model of ours.

Every number here was read somewhere: each row names its source, `data/README.md` says what is
doubtful about it, and `source(row.source)` gives the long form. Tables are read when first asked
for and kept. A name that is not in a table raises `UnknownNameError` with the nearest names; a
missing or damaged table raises `DataFileError`, which says how to mend it.
"""

from course.serving.catalog.entries import (
    Gpu,
    Model,
    Price,
    Source,
    gpu,
    gpus,
    model,
    models,
    parameters_from_shape,
    prices,
    source,
    sources,
)
from course.serving.catalog.measurements import (
    IterationTime,
    MeasuredPoint,
    VllmLog,
    iteration_times,
    measured_frame,
    measured_points,
    vllm_log,
)
from course.serving.catalog.tables import DataFileError, UnknownNameError, table
from course.serving.catalog.trace_statistics import (
    ArrivalStatistics,
    GapQuantiles,
    LengthFit,
    LengthQuantiles,
    LengthStatistics,
    MinuteArrivals,
    WindowCounts,
    arrival_statistics,
    arrivals_per_minute,
    gap_quantiles,
    length_fits,
    length_quantiles,
    length_statistics,
    window_counts,
)

__all__ = [
    "ArrivalStatistics",
    "DataFileError",
    "GapQuantiles",
    "Gpu",
    "IterationTime",
    "LengthFit",
    "LengthQuantiles",
    "LengthStatistics",
    "MeasuredPoint",
    "MinuteArrivals",
    "Model",
    "Price",
    "Source",
    "UnknownNameError",
    "VllmLog",
    "WindowCounts",
    "arrival_statistics",
    "arrivals_per_minute",
    "gap_quantiles",
    "gpu",
    "gpus",
    "iteration_times",
    "length_fits",
    "length_quantiles",
    "length_statistics",
    "measured_frame",
    "measured_points",
    "model",
    "models",
    "parameters_from_shape",
    "prices",
    "source",
    "sources",
    "table",
    "vllm_log",
    "window_counts",
]
