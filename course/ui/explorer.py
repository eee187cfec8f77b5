"""A demonstration that opens as a live widget when it is called; the shell itself is beside."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from course.ui.demonstration import Demonstration
from course.ui.parameters import Choice, Slider, controls_of
from course.ui.shell import Shell, show

P = TypeVar("P")
R = TypeVar("R")


@dataclass(frozen=True)
class Explorer(Demonstration[P, R]):
    """A demonstration that opens as a live widget when it is called.

    Its signature and its help are made from its parameters and presets.
    """

    def __post_init__(self) -> None:
        object.__setattr__(self, "__signature__", self._signature())
        object.__setattr__(self, "__doc__", self._help())
        object.__setattr__(self, "__name__", self.call.rpartition(".")[2])

    def __call__(
        self,
        preset: str | None = None,
        *,
        predict: bool = True,
        present: bool | None = None,
        **values: Any,
    ) -> Shell[P, R]:
        """Open at `preset` (or the defaults) with single parameters changed by `values`.

        `predict` starts with the curtain closed where there is a question and somebody can click;
        `present` opens in large type. Raises ValueError on an unknown preset or parameter, or a
        value outside its range.
        """
        opened = self if self.remembers else replace(self, _memo=[])
        return show(opened, preset, predict=predict, present=present, **values)

    def _signature(self) -> inspect.Signature:
        keyword = inspect.Parameter.KEYWORD_ONLY
        shared = list(inspect.signature(Explorer.__call__).parameters.values())[1:-1]
        own = [
            inspect.Parameter(f.name, keyword, default=f.default, annotation=f.type)
            for f in fields(self.parameters)  # type: ignore[arg-type]
        ]
        return inspect.Signature([*shared, *own])

    def _help(self) -> str:
        lines = [f"Open the explorer: {self.title}.", "", "Presets:"]
        lines += [f'    "{preset.name}": {preset.story}' for preset in self.presets]
        lines += ["", "Parameters:"]
        for name, control in controls_of(self.parameters).items():
            if isinstance(control, Slider):
                values = f" ({control.span})"
            elif isinstance(control, Choice):
                values = f" (one of {[option for _, option in control.options]})"
            else:
                values = " (True or False)"
            lines.append(f"    {name}: {control.help}{values}")
        return "\n".join(lines)
