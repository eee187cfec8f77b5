"""The engine: continuous batching and its alternatives, step by step; costs live outside it.

`simulate(work, cost, config)` returns a `Run`. The rules are in `kernels`, the dials in `config`,
the ways to batch in `modes`, the orders of the queue in `orders`. `simulate_service` puts clients
who give up and a gate that may say no around the engine, and returns a `ServiceRun`;
`simulate_pools` and `simulate_by_length` put two engines side by side.

The list of its names is `__init__.pyi`; each module, and with it numba, is loaded when first used.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
