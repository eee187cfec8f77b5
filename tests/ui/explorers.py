"""Every explorer of the course, found in its modules: a new one is tested by being there."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import numpy as np

import course.explore
from course.ui import Explorer
from course.ui.parameters import Choice, Control, Slider, controls_of
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
    moved = {n: places for n, c in controls.items() if (places := _places(c))}
    names = list(moved)
    for _ in range(count):
        name = names[rng.integers(len(names))]
        yield {name: moved[name][rng.integers(len(moved[name]))]}


def _places(control: Control) -> list[Any]:
    """Where a hand can move a slider to; nowhere for what is not one, or is slow on purpose."""
    if isinstance(control, Choice):
        return [value for _, value in control.options] if control.as_slider else []
    if not isinstance(control, Slider) or control.slow:
        return []
    steps = int((control.high - control.low) / control.step)
    span = control.high - control.low
    values = [control.low + step / steps * span for step in range(steps + 1)]
    return [int(value) if control.whole else float(value) for value in values]
