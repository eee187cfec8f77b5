"""Every explorer of the course, as the registry names them, and those that stand in its files."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from course import explore
from course.ui import Explorer
from course.ui.parameters import Choice, Control, Slider, controls_of
from course.ui.shell import Shell

_SEEN_ON_THE_WAY = 12


def every_explorer() -> dict[str, Explorer]:
    """Name of the call -> explorer, as the registry has them."""
    found = (getattr(explore, name) for name in explore.__all__)
    return {one.call: one for one in found if isinstance(one, Explorer)}


def explorers_in_files() -> dict[str, Explorer]:
    """Where it stands -> explorer, of every file below `course/explore`, imported or not."""
    found: dict[str, Explorer] = {}
    folder = Path(explore.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        parts = ("course", "explore", *path.relative_to(folder).with_suffix("").parts)
        module = importlib.import_module(".".join(parts).removesuffix(".__init__"))
        for name, value in vars(module).items():
            if isinstance(value, Explorer):
                found[f"{path.relative_to(folder)}: {name}"] = value
    return found


def drags(shell: Shell[Any, Any], count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Moves in the default scenario: one slider drawn stop by stop to a place and let back."""
    rng = np.random.default_rng(seed)
    places = _movable(shell)
    defaults = {name: getattr(shell.parameters, name) for name in places}
    names = list(places)
    while count > 0:
        name = names[rng.integers(len(names))]
        stops = places[name]
        start = min(range(len(stops)), key=lambda i: _distance(stops[i], defaults[name]))
        end = int(rng.integers(len(stops)))
        way = range(start, end, 1 if end > start else -1)
        # a hand passes over most of the stops of a long slider
        stride = max(1, len(way) // _SEEN_ON_THE_WAY)
        for stop in [*way[::stride][1:], end][:count]:
            yield {name: stops[stop]}
            count -= 1
        if count > 0:
            yield {name: defaults[name]}
            count -= 1


def jumps(shell: Shell[Any, Any], count: int, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Moves of one slider at a time to anywhere, from wherever the last one led: far harder."""
    rng = np.random.default_rng(seed)
    places = _movable(shell)
    names = list(places)
    for _ in range(count):
        name = names[rng.integers(len(names))]
        yield {name: places[name][rng.integers(len(places[name]))]}


def _movable(shell: Shell[Any, Any]) -> dict[str, list[Any]]:
    controls = controls_of(shell.explorer.parameters)
    return {n: places for n, c in controls.items() if (places := _places(c))}


def _distance(one: Any, other: Any) -> float:
    if isinstance(one, int | float) and isinstance(other, int | float):
        return abs(one - other)
    return float(one != other)


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
