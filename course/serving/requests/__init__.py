"""A request's timeline, the course's metrics of it, and the tools' conventions; no engine."""

from course.serving.requests.conventions import CONVENTIONS, Reported, as_reported_by
from course.serving.requests.distributions import Percentile
from course.serving.requests.metrics import (
    SLO,
    Distribution,
    Summary,
    Window,
    cost_per_success_usd,
    distribution,
    mean_concurrency,
    meets,
    peak_concurrency,
    stopwatch,
    summarize,
)
from course.serving.requests.timelines import (
    BoolArray,
    RequestTable,
    RequestTimeline,
    Status,
    as_table,
)

__all__ = [
    "CONVENTIONS",
    "SLO",
    "BoolArray",
    "Distribution",
    "Percentile",
    "Reported",
    "RequestTable",
    "RequestTimeline",
    "Status",
    "Summary",
    "Window",
    "as_reported_by",
    "as_table",
    "cost_per_success_usd",
    "distribution",
    "mean_concurrency",
    "meets",
    "peak_concurrency",
    "stopwatch",
    "summarize",
]
