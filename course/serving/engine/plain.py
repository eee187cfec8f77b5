"""The step loops as plain Python, so that a caller's own functions can be put in; no new rules.

The functions are those of `kernels.steps`, without the compiler, in a name space of their own.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

from course.serving.engine.kernels import blocks, common, steps
from course.serving.engine.orders import OrderKey
from course.serving.pricing import StepCost, StepFeatures

_FILES = ("common", "blocks", "steps", "service")
_OURS = tuple(f"course.serving.engine.kernels.{file}" for file in _FILES)


def plain_loops(cost: StepCost | None = None, order: OrderKey | None = None) -> SimpleNamespace:
    """Return the functions of `kernels.steps`, uncompiled; `cost` or `order` put in."""
    names = uncompiled(steps)
    if cost is not None:
        names["step_seconds"] = _priced_by(cost)
    if order is not None:
        names["custom_key"] = _keyed_by(order)
    return SimpleNamespace(**names)


def uncompiled(loops: ModuleType) -> dict[str, Any]:
    """Return the names of a file of loops, its functions and the shared ones without the compiler.

    They look one another up in the result, so that whoever replaces one there replaces it for all.
    """
    names = vars(common) | vars(blocks) | vars(loops)
    for name, value in list(names.items()):
        function = getattr(value, "py_func", value)
        if isinstance(function, FunctionType) and function.__module__ in _OURS:
            names[name] = FunctionType(function.__code__, names, name, function.__defaults__)
    return names


def _priced_by(cost: StepCost) -> Callable[..., float]:
    def step_seconds(code: int, price: Any, *features: int) -> float:
        return float(cost.step_seconds(StepFeatures(*(int(count) for count in features))))

    return step_seconds


def _keyed_by(order: OrderKey) -> Callable[..., float]:
    def custom_key(
        now_s: float, arrival_s: float, prompt: int, predicted: int, priority: float
    ) -> float:
        key = order(float(now_s), float(arrival_s), int(prompt), int(predicted), float(priority))
        try:
            number = float(key)
        except (TypeError, ValueError):
            number = float("nan")
        if number != number:
            name = getattr(order, "__name__", repr(order))
            raise ValueError(
                f"order={name} returned {key!r} for a request that arrived at {arrival_s} s; "
                "return a number (the smallest goes first)"
            )
        return number

    return custom_key
