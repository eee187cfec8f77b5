"""The course's explorers by name, each one call; what a shell is lives in ``course.ui``."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from course.explore.ch02.hockey_stick import hockey_stick as hockey_stick

# explorer -> its module; loaded when first used, so that one lesson does not wait for all others
_MODULES = {
    "hockey_stick": "course.explore.ch02.hockey_stick",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"there is no explorer {name!r}; there are: {__all__}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES]
