"""Every explorer of the course, found in its modules: a new one is tested by being there."""

from __future__ import annotations

import importlib
import pkgutil

import course.explore
from course.ui import Explorer


def every_explorer() -> dict[str, Explorer]:
    """Name of the call -> explorer."""
    found = {}
    for info in pkgutil.walk_packages(course.explore.__path__, "course.explore."):
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            if isinstance(value, Explorer):
                found[value.call] = value
    return found
