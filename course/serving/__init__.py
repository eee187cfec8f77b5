"""The model: pure numbers, numpy in and numpy out; no plots and no widgets live here.

Its wings, from the ground up; each may import from those before it, and its `__init__` is its
address for the rest of the course: `files`, `catalog`, `workload`, `pricing`, `queueing`,
`requests`, `engine`, `results`, `traces`, `load`, `validation`, `scenes`.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "catalog", "engine", "files", "load", "pricing", "queueing", "requests", "results",
        "scenes", "traces", "validation", "workload",
    ],
)  # fmt: skip
