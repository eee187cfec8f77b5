"""The engine: continuous batching and its alternatives, step by step; costs live outside it.

`simulate(work, cost, config)` returns a `Run`. The rules are in `_kernels`, the dials in `config`,
the ways to batch in `modes`, the orders of the queue in `orders`.
"""

from course.serving.cost import LinearStepCost, StepFeatures
from course.serving.engine import modes, orders
from course.serving.engine.config import EngineConfig
from course.serving.engine.run import Run
from course.serving.engine.simulation import simulate, simulate_closed
from course.serving.engine.warm import warm_steps
from course.serving.timelines import Status
from course.serving.workload import Workload

__all__ = [
    "EngineConfig",
    "LinearStepCost",
    "Run",
    "Status",
    "StepFeatures",
    "Workload",
    "modes",
    "orders",
    "simulate",
    "simulate_closed",
    "warm_steps",
]
