"""The engine: continuous batching and its alternatives, step by step; costs live outside it.

`simulate(work, cost, config)` returns a `Run`. The rules are in `kernels`, the dials in `config`,
the ways to batch in `modes`, the orders of the queue in `orders`. `simulate_service` puts clients
who give up and a gate that may say no around the engine, and returns a `ServiceRun`;
`simulate_pools` and `simulate_by_length` put two engines side by side.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from course.serving.engine import modes, orders
from course.serving.engine.admission import (
    Admission,
    AdmissionPolicy,
    ArrivingRequest,
    LongPrompts,
    PythonAdmission,
    ServerState,
    Verdict,
)
from course.serving.engine.clients import Patience, Retry, Users
from course.serving.engine.config import EngineConfig
from course.serving.engine.orders import OrderKey
from course.serving.engine.run import Run
from course.serving.engine.simulation import simulate, simulate_closed
from course.serving.engine.warm import warm_steps

if TYPE_CHECKING:
    from course.serving.engine.pools import PoolsRun as PoolsRun
    from course.serving.engine.pools import simulate_by_length as simulate_by_length
    from course.serving.engine.pools import simulate_pools as simulate_pools
    from course.serving.engine.predictors import class_mean as class_mean
    from course.serving.engine.predictors import noisy as noisy
    from course.serving.engine.predictors import oracle as oracle
    from course.serving.engine.service import simulate_service as simulate_service
    from course.serving.engine.service_run import ServiceRun as ServiceRun

# names whose modules load numba's loops, or are seldom wanted: loaded when first used
_LATER = {
    "PoolsRun": "pools",
    "ServiceRun": "service_run",
    "class_mean": "predictors",
    "noisy": "predictors",
    "oracle": "predictors",
    "simulate_by_length": "pools",
    "simulate_pools": "pools",
    "simulate_service": "service",
}

__all__ = [
    "Admission",
    "AdmissionPolicy",
    "ArrivingRequest",
    "EngineConfig",
    "LongPrompts",
    "OrderKey",
    "Patience",
    "PoolsRun",
    "PythonAdmission",
    "Retry",
    "Run",
    "ServerState",
    "ServiceRun",
    "Users",
    "Verdict",
    "class_mean",
    "modes",
    "noisy",
    "oracle",
    "orders",
    "simulate",
    "simulate_by_length",
    "simulate_closed",
    "simulate_pools",
    "simulate_service",
    "warm_steps",
]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has {__all__}")
    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value
