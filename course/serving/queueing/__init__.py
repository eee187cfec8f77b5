"""One queue: its closed forms, its exact simulation, error bars and random times; no engine.

`closed_forms` has `mm1` … `gg1_kingman`, `mm1_closed` and headroom, `bounded_pool` M/M/c/K over
many loads, `simulation` every `simulate_…`, `error_bars` intervals that refuse a run too short
(`batch_means`), `random_times` seeded times to feed it (`sample_times`). All rates are per second,
all times are in seconds.

Sources: Kleinrock, *Queueing Systems* I (1975), for M/M/1, M/M/c, M/M/1/K and
Pollaczek–Khinchine; Kingman (1961) for G/G/1; the others are named where they are used.
"""

from course.serving.queueing.bounded_pool import mmck
from course.serving.queueing.closed_forms import (
    LARGEST_CAPACITY,
    LARGEST_USERS,
    ClosedLoopFigures,
    NoClosedFormError,
    QueueFigures,
    UnstableQueueError,
    gg1_kingman,
    max_arrival_rate_for,
    max_utilization_for,
    md1,
    mg1,
    mm1,
    mm1_closed,
    mm1_closed_curve,
    mm1k,
    mmc,
)
from course.serving.queueing.error_bars import (
    Interval,
    autocorrelation_time_customers,
    batch_means,
    batch_quantile,
    customers_needed,
)
from course.serving.queueing.random_times import (
    exponential,
    gamma_with_scv,
    lognormal_with_scv,
    sample_times,
)
from course.serving.queueing.simulation import (
    BoundedRun,
    RequestTimes,
    simulate_bounded_queue,
    simulate_closed_loop,
    simulate_load_generator,
    simulate_queue,
    warm,
    warm_steps,
)

__all__ = [
    "LARGEST_CAPACITY",
    "LARGEST_USERS",
    "BoundedRun",
    "ClosedLoopFigures",
    "Interval",
    "NoClosedFormError",
    "QueueFigures",
    "RequestTimes",
    "UnstableQueueError",
    "autocorrelation_time_customers",
    "batch_means",
    "batch_quantile",
    "customers_needed",
    "exponential",
    "gamma_with_scv",
    "gg1_kingman",
    "lognormal_with_scv",
    "max_arrival_rate_for",
    "max_utilization_for",
    "md1",
    "mg1",
    "mm1",
    "mm1_closed",
    "mm1_closed_curve",
    "mm1k",
    "mmc",
    "mmck",
    "sample_times",
    "simulate_bounded_queue",
    "simulate_closed_loop",
    "simulate_load_generator",
    "simulate_queue",
    "warm",
    "warm_steps",
]
