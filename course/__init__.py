"""The few names a notebook imports; each loads its module when first used, to import quickly."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course import explore as explore
    from course.exercises import TODO as TODO
    from course.exercises import check as check
    from course.exercises import hint as hint
    from course.exercises import progress as progress
    from course.glossary import glossary as glossary
    from course.serving import catalog as catalog
    from course.serving import metrics as metrics
    from course.serving import queueing as queueing
    from course.serving.conventions import as_reported_by as as_reported_by
    from course.serving.cost import LinearStepCost as LinearStepCost
    from course.serving.cost import RooflineStepCost as RooflineStepCost
    from course.serving.engine import EngineConfig as EngineConfig
    from course.serving.engine import simulate as simulate
    from course.serving.engine import simulate_closed as simulate_closed
    from course.serving.engine.admission import Admission as Admission
    from course.serving.engine.clients import Patience as Patience
    from course.serving.engine.clients import Retry as Retry
    from course.serving.engine.service import simulate_service as simulate_service
    from course.serving.metrics import SLO as SLO
    from course.serving.metrics import RequestTimeline as RequestTimeline
    from course.serving.results import load_result as load_result
    from course.serving.results import load_trace as load_trace
    from course.serving.workload import Workload as Workload
    from course.ui.still import still as still

__version__ = "0.1.0"

# public name -> (module, attribute; None for the module itself)
_PUBLIC: dict[str, tuple[str, str | None]] = {
    "Admission": ("course.serving.engine.admission", "Admission"),
    "EngineConfig": ("course.serving.engine", "EngineConfig"),
    "LinearStepCost": ("course.serving.cost", "LinearStepCost"),
    "Patience": ("course.serving.engine.clients", "Patience"),
    "RequestTimeline": ("course.serving.metrics", "RequestTimeline"),
    "Retry": ("course.serving.engine.clients", "Retry"),
    "RooflineStepCost": ("course.serving.cost", "RooflineStepCost"),
    "SLO": ("course.serving.metrics", "SLO"),
    "TODO": ("course.exercises", "TODO"),
    "Workload": ("course.serving.workload", "Workload"),
    "as_reported_by": ("course.serving.conventions", "as_reported_by"),
    "catalog": ("course.serving.catalog", None),
    "check": ("course.exercises", "check"),
    "explore": ("course.explore", None),
    "glossary": ("course.glossary", "glossary"),
    "hint": ("course.exercises", "hint"),
    "load_result": ("course.serving.results", "load_result"),
    "load_trace": ("course.serving.results", "load_trace"),
    "metrics": ("course.serving.metrics", None),
    "progress": ("course.exercises", "progress"),
    "queueing": ("course.serving.queueing", None),
    "simulate": ("course.serving.engine", "simulate"),
    "simulate_closed": ("course.serving.engine", "simulate_closed"),
    "simulate_service": ("course.serving.engine.service", "simulate_service"),
    "still": ("course.ui.still", "still"),
}

__all__ = sorted(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'course' has no attribute {name!r}; it has {__all__}")
    module_name, attribute = _PUBLIC[name]
    module = import_module(module_name)
    value = module if attribute is None else getattr(module, attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
