"""The course's explorers by name, each one call; what a shell is lives in ``course.ui``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course.explore.ch00.one_request import one_request as one_request
    from course.explore.ch00.tension import tension as tension
    from course.explore.ch02.engine_beside import engine_beside_mm1 as engine_beside_mm1
    from course.explore.ch02.hockey_stick import hockey_stick as hockey_stick
    from course.explore.ch02.loops import loops as loops
    from course.explore.ch02.pooling import pooling as pooling
    from course.explore.ch02.variability import variability as variability

# explorer -> its module; loaded when first used, so that one lesson does not wait for all others
_MODULES = {
    "one_request": "course.explore.ch00.one_request",
    "tension": "course.explore.ch00.tension",
    "engine_beside_mm1": "course.explore.ch02.engine_beside",
    "hockey_stick": "course.explore.ch02.hockey_stick",
    "loops": "course.explore.ch02.loops",
    "pooling": "course.explore.ch02.pooling",
    "variability": "course.explore.ch02.variability",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"there is no explorer {name!r}; there are: {__all__}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
