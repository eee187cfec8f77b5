"""What an explorer shows: parameters → compute → draw → narrate; no widget is made here."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from course.ui.parameters import changed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

P = TypeVar("P")
R = TypeVar("R")
R_contra = TypeVar("R_contra", contravariant=True)

_KEPT_RESULTS = 64

Table = Mapping[str, Any]
"""Columns by name; a single value stands for a whole column, or all together for one row."""


@dataclass(frozen=True)
class Guess:
    """A number that a learner committed to, what was right, and where the guess is drawn."""

    value: float
    answer: float | None
    unit: str
    point: tuple[float, float] | None = None


@dataclass(frozen=True)
class Preset(Generic[P]):
    """A named state with a story, and what an instructor asks the room about it."""

    name: str
    story: str
    ask: str
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Prediction(Generic[R]):
    """The question behind the curtain: what to guess, its unit, and how to read the answer off.

    `unit` may depend on what is asked. `x` says where on the horizontal axis a guess is drawn at
    its own height; `mark`, where given, returns the point (x, y) of a guess instead. Without
    either it is only named in words.
    """

    question: Callable[[R], str]
    unit: str | Callable[[R], str]
    answer: Callable[[R], float | None]
    x: Callable[[R], float | None] = lambda result: None
    mark: Callable[[R, float], tuple[float, float] | None] | None = None

    def unit_of(self, result: R) -> str:
        """The unit of the answer for this result."""
        return self.unit if isinstance(self.unit, str) else self.unit(result)

    def point(self, result: R, guess: float) -> tuple[float, float] | None:
        """Where a guess made at this result is drawn."""
        if self.mark is not None:
            return self.mark(result, guess)
        x = self.x(result)
        return None if x is None else (x, guess)


class Drawing(Protocol[R_contra]):
    """A persistent matplotlib figure that can show any result of one explorer.

    `data` are the artists redrawn on every move; `frame_key` changes exactly when anything else
    (limits, ticks, legend) has to be drawn anew. Its first entries belong to the figure's axes, one
    each, in their order; what follows belongs to all of them and to what lies in none.
    """

    @property
    def figure(self) -> Figure:
        """The one figure, made once and kept."""
        ...

    @property
    def least_px(self) -> int:
        """The least width on a screen at which every word in it is read."""
        ...

    def update(self, result: R_contra, guess: tuple[float, float] | None) -> None:
        """Move the artists to `result`, and the star to the learner's guess (x, y), if any."""
        ...

    def data(self) -> Iterable[Artist]:
        """The artists of the data layer."""
        ...

    def frame_key(self) -> tuple[object, ...]:
        """A value that stays equal as long as the frame may be kept."""
        ...


@dataclass(frozen=True)
class Demonstration(Generic[P, R]):
    """Parameters, a model call, a picture and a sentence.

    ``call`` is the Python expression that opens it; ``drawing(present)`` makes the figure.
    ``tables`` gives the numbers of a result for those who want them: columns by name, or several
    such tables, which are stacked. ``idle`` names the parameters that make no difference at the
    others' values; their controls are greyed out. Where ``remembers`` is False, what an earlier
    opening computed is computed anew. ``filmed`` gives the simulations behind parameters, by name,
    where there are some that can be watched.
    """

    call: str
    title: str
    parameters: type[P]
    compute: Callable[[P], R]
    drawing: Callable[[bool], Drawing[R]]
    narrate: Callable[[R], str]
    alt: str
    presets: tuple[Preset[P], ...]
    tables: Callable[[R], Table | Sequence[Table]]
    prediction: Prediction[R] | None = None
    idle: Callable[[P], Collection[str]] = lambda parameters: ()
    remembers: bool = True
    filmed: Callable[[P], Mapping[str, Any]] | None = None
    _memo: list[Any] = field(default_factory=list, repr=False, compare=False)

    def result(self, parameters: P) -> R:
        """Return ``compute(parameters)``, remembered for the last few parameter sets."""
        if not self._memo:
            self._memo.append(lru_cache(maxsize=_KEPT_RESULTS)(self.compute))
        value: R = self._memo[0](parameters)
        return value

    def frame(self, result: R) -> pd.DataFrame:
        """Return the numbers of a result as one table."""
        import pandas as pd

        found = self.tables(result)
        tables = [found] if isinstance(found, Mapping) else found
        rows = [table for table in tables if not _has_columns(table)]
        parts = [pd.DataFrame(dict(table)) for table in tables if _has_columns(table)]
        if rows:
            parts.append(pd.DataFrame([dict(row) for row in rows]))
        return pd.concat(parts, ignore_index=True)

    def preset(self, name: str) -> Preset[P]:
        """Return the preset called `name`; raise ValueError with the nearest name otherwise."""
        by_name = {preset.name.lower(): preset for preset in self.presets}
        if name.lower() in by_name:
            return by_name[name.lower()]
        close = difflib.get_close_matches(name.lower(), by_name, n=1)
        hint = f"did you mean {by_name[close[0]].name!r}? " if close else ""
        raise ValueError(
            f"there is no preset {name!r}; {hint}There are: {[p.name for p in self.presets]}"
        )

    def runs(self, preset: str | None = None, **values: Any) -> Mapping[str, Any]:
        """Return the simulations behind `preset` (the defaults without one), for `course.watch`.

        Raises ValueError as `state`, and where there is none.
        """
        if self.filmed is None:
            raise ValueError(f"{self.call} has no run that could be watched; try another explorer")
        return self.filmed(self.state(preset, **values))

    def state(self, preset: str | None = None, **values: Any) -> P:
        """Return the parameter set of `preset` (the defaults without one), with `values` put in."""
        base = self.parameters()
        if preset is not None:
            base = changed(base, self.preset(preset).values)
        return changed(base, values)


def _has_columns(table: Table) -> bool:
    """Whether a table has columns; one without is a single row, whose tuples are values."""
    return any(hasattr(value, "ndim") or isinstance(value, list) for value in table.values())
