"""Every explorer of the course, found in its modules: a new one is tested by being there."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np

import course.explore
from course.ui import Explorer
from course.ui.parameters import Slider, controls_of
from course.ui.shell import Shell


def every_explorer() -> dict[str, Explorer]:
    """Name of the call -> explorer."""
    found = {}
    for info in pkgutil.walk_packages(course.explore.__path__, "course.explore."):
        module = importlib.import_module(info.name)
        for value in vars(module).values():
            if isinstance(value, Explorer):
                found[value.call] = value
    return found


def random_moves(shell: Shell[Any, Any], count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Moves of one slider at a time around the default state, as a hand makes them."""
    rng = np.random.default_rng(seed)
    controls = controls_of(shell.explorer.parameters)
    sliders = [(n, c) for n, c in controls.items() if isinstance(c, Slider) and not c.slow]
    for _ in range(count):
        name, control = sliders[rng.integers(len(sliders))]
        steps = int((control.high - control.low) / control.step)
        share = rng.integers(steps + 1) / steps
        value = control.low + share * (control.high - control.low)
        yield {name: int(value) if control.whole else float(value)}
