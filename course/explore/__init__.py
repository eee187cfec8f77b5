"""The course's explorers by name, each opened by calling it; a shell is in `course.ui`.

The registry is `__init__.pyi`: a line an explorer, read by editors, type checkers and the loader.
Each module is loaded when first used, so that one lesson does not wait for all others.
"""

from __future__ import annotations

import difflib
from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name in __all__:
        return _load(name)
    close = difflib.get_close_matches(name, __all__, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise AttributeError(f"there is no explorer {name!r}; {hint}There are: {__all__}")
