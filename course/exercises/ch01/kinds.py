"""A row of named numbers as an answer, for the exercises of notebook 01; no exercise is here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.exercises.values import Number, plain


def is_undefined(value: object) -> bool:
    """Whether a value says "there is no such number": None, or NaN as arrays have it.

    >>> is_undefined(None), is_undefined(float("nan")), is_undefined(0.0)
    (True, True, False)
    """
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


@dataclass(frozen=True)
class Named:
    """A few numbers in a fixed order, each with a name and a unit; those `optional` may be None.

    >>> Named(("TTFT", "TPOT"), ("s", "s"), optional=("TPOT",)).show((0.25, None))
    'TTFT 0.25 s, TPOT undefined'
    >>> Named(("TTFT", "TPOT"), ("s", "s")).problem((0.25, None))
    'Its TPOT is None; give a finite number.'
    """

    names: tuple[str, ...]
    units: tuple[str, ...]
    optional: tuple[str, ...] = ()
    rel: float = 1e-3

    @property
    def expected(self) -> str:
        """The kind in words."""
        return f"{len(self.names)} numbers: {', '.join(self.names)}"

    @property
    def tolerance(self) -> str:
        """How close is close enough, in words."""
        return f"each within {plain(100 * self.rel)} %"

    def problem(self, value: object) -> str | None:
        """Why a value is no such row, in a sentence; None when it is one."""
        if not isinstance(value, tuple | list | np.ndarray):
            trouble = Number().problem(value)
            return trouble or f"It returned one number, where {self.expected} are expected."
        if np.ndim(np.asarray(value, dtype=object)) != 1 or len(value) != len(self.names):
            return f"It did not return a row of {self.expected}."
        for name, part in zip(self.names, value, strict=True):
            if name in self.optional and is_undefined(part):
                continue
            if Number().problem(part) is not None:
                return f"Its {name} is {_shortly(part)}; give a finite number."
        return None

    def missed(self, value: Any, other: Any) -> tuple[str, ...]:
        """The names of the numbers in which two rows differ."""
        rows = zip(self.names, value, other, strict=True)
        return tuple(name for name, mine, theirs in rows if not self._equal(mine, theirs))

    def same(self, value: Any, other: Any) -> bool:
        """Whether two rows are one answer; an `optional` 0 is read as undefined here.

        Wrong answers are recognised with it: what somebody gives where there is no number is a
        slip of its own, and must not hide another one.

        >>> rows = Named(("TTFT", "TPOT"), ("s", "s"), optional=("TPOT",))
        >>> rows.same((0.2, None), (0.2, 0.0)), rows.missed((0.2, None), (0.2, 0.0))
        (True, ('TPOT',))
        """
        return not self.missed(self._zeros_undefined(value), self._zeros_undefined(other))

    def _zeros_undefined(self, value: Any) -> list[Any]:
        named = zip(self.names, value, strict=True)
        return [None if name in self.optional and part == 0 else part for name, part in named]

    def _equal(self, mine: Any, theirs: Any) -> bool:
        if is_undefined(mine) or is_undefined(theirs):
            return is_undefined(mine) and is_undefined(theirs)
        return math.isclose(float(mine), float(theirs), rel_tol=self.rel, abs_tol=1e-9)

    def show(self, value: Any) -> str:
        """Every number with its name and unit."""
        return self._row(value, 4)

    def magnitude(self, value: Any) -> str:
        """Every number to two digits."""
        return f"near {self._row(value, 2)}"

    def _row(self, value: Any, digits: int) -> str:
        shown = []
        for name, part, unit in zip(self.names, value, self.units, strict=True):
            if is_undefined(part):
                shown.append(f"{name} undefined")
            else:
                gap = " " if unit and not unit.startswith("/") else ""
                shown.append(f"{name} {plain(float(part), digits)}{gap}{unit}")
        return ", ".join(shown)

    def what_misses(self, value: Any, other: Any) -> str | None:
        """A sentence on which of the numbers miss, for an exercise's `accept`; None if none does.

        >>> Named(("TTFT", "E2E"), ("s", "s")).what_misses((0.2, 3.0), (0.2, 2.0))
        'E2E misses, TTFT is right.'
        """
        missed = self.missed(value, other)
        if not missed:
            return None
        if self._is_scaled(value, other, 1000.0):
            return "Everything is 1000 times too large: milliseconds where seconds are asked."
        right = [name for name in self.names if name not in missed]
        verb = "misses" if len(missed) == 1 else "miss"
        sentence = f"{' and '.join(missed)} {verb}"
        sentence = sentence[0].upper() + sentence[1:]
        if not right:
            return sentence + "."
        return f"{sentence}, {' and '.join(right)} {'is' if len(right) == 1 else 'are'} right."

    def _is_scaled(self, value: Any, other: Any, factor: float) -> bool:
        pairs = [
            (float(mine), float(theirs))
            for mine, theirs in zip(value, other, strict=True)
            if not is_undefined(mine) and not is_undefined(theirs) and theirs
        ]
        return len(pairs) > 1 and all(
            math.isclose(mine, factor * theirs, rel_tol=1e-6) for mine, theirs in pairs
        )


def _shortly(value: object) -> str:
    return repr(value) if value is None else f"{type(value).__name__} {str(value)[:20]}"
