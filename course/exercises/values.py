"""What an answer's value may be: kinds of value, when two are the same, how one is shown.

Comparing a value with an expected one lives here; saying why it differs is in `diagnosis`.
"""

from __future__ import annotations

import inspect
import math
import numbers
import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

_SHORT = reprlib.Repr()
_SHORT.maxstring = 60
_SHORT.maxother = 60

_NOUNS: Mapping[str, str] = {
    "": "a plain number",
    "s": "a number of seconds",
    "/s": "a rate per second",
    "tokens/s": "a number of tokens per second",
    "requests": "a number of requests",
    "servers": "a number of servers",
    "USD": "an amount in US dollars",
    "bytes": "a number of bytes",
}


class ValueKind(Protocol):
    """A kind of value: checks its type, compares two and shows one."""

    @property
    def expected(self) -> str:
        """The kind in words, such as "a number of seconds"."""
        ...

    @property
    def tolerance(self) -> str:
        """How close is close enough, in words."""
        ...

    def problem(self, value: object) -> str | None:
        """A sentence on why `value` is not of this kind at all; None when it is."""
        ...

    def same(self, value: Any, other: Any) -> bool:
        """Whether two values of this kind are equal within the tolerance."""
        ...

    def show(self, value: Any) -> str:
        """The value in a few characters, with its unit."""
        ...

    def magnitude(self, value: Any) -> str:
        """The value to two digits: what may be told before the answer is."""
        ...


def plain(value: float, digits: int = 4) -> str:
    """A number as people write it: few digits, no exponent where one can be avoided.

    >>> plain(0.23456789), plain(1234567.0), plain(12.0), plain(0.0000123)
    ('0.2346', '1,235,000', '12', '1.23e-05')
    """
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("infinity" if value > 0 else "minus infinity")
    if value == 0:
        return "0"
    if abs(value) < 1e-4 or abs(value) >= 1e15:
        return f"{value:.{digits}g}"
    rounded = float(f"{value:.{digits - 1}e}")
    if rounded == int(rounded):
        return f"{int(rounded):,}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:.{decimals}f}".rstrip("0").rstrip(".")


def whole_repr(value: object) -> str:
    """A value's full repr; its type's name and identity where repr itself fails."""
    try:
        return repr(value)
    except Exception:
        return f"a {type(value).__name__} at {id(value)}"


def short_repr(value: object) -> str:
    """A value's repr in at most some 60 characters; its type's name where repr itself fails.

    >>> short_repr(list(range(1000)))
    '[0, 1, 2, 3, 4, 5, ...]'
    """
    try:
        text = _SHORT.repr(value)
    except Exception:
        return f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= 80 else text[:77] + "..."


def _with_unit(text: str, unit: str) -> str:
    if not unit:
        return text
    return f"{text}{unit}" if unit.startswith("/") else f"{text} {unit}"


_MASKED = "It returned masked values: fill them, or leave them out, before you return."


def _not_a_number(value: object) -> str | None:
    """Why a value is not one real number, in a sentence; None when it is one."""
    if value is None:
        return "It returned None: does it end in a `return` line on every path?"
    if isinstance(value, bool | np.bool_):
        return f"It returned the truth value {value}, where a number is expected."
    if np.ma.is_masked(value):
        return _MASKED
    if isinstance(value, str):
        return f"It returned the text {short_repr(value)}, where a number is expected."
    if inspect.iscoroutine(value) or inspect.isgenerator(value):
        value.close()
        return "It returned a generator or coroutine: use a plain `def` with `return`."
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return _not_a_number(value.item())
    if isinstance(value, np.ndarray):
        return f"It returned an array of shape {value.shape}, where one number is expected."
    if isinstance(value, list | tuple | set | dict):
        word = type(value).__name__
        try:
            size = f"{len(value)} values"
        except Exception:  # a student's own class
            size = "values"
        return f"It returned a {word} of {size}, where one number is expected."
    if isinstance(value, complex | np.complexfloating):
        return "It returned a complex number: is there a root or power of a negative number?"
    if callable(value):
        return "It returned a function, not a number: are the parentheses of a call missing?"
    if not isinstance(value, numbers.Real):
        return f"It returned a {type(value).__name__}, where one number is expected."
    try:
        return _not_finite(float(value))
    except (OverflowError, TypeError, ValueError):
        return (
            f"It returned a {type(value).__name__} that is no ordinary number: too large for a "
            "float (beyond 1e308), or one that cannot be turned into a float."
        )


def _not_finite(value: float) -> str | None:
    if math.isnan(value):
        return (
            "It returned NaN (not a number): look for 0/0, infinity minus infinity, or the mean "
            "of an empty array."
        )
    if math.isinf(value):
        return f"It returned {plain(value)}: look for a division by zero or a logarithm of zero."
    return None


@dataclass(frozen=True)
class Number:
    """One real number in `unit`, the same within `rel` of the other or `absolute` of it.

    >>> Number("s").problem(None)
    'It returned None: does it end in a `return` line on every path?'
    >>> Number("s", rel=0.01).same(1.0, 1.005), Number("s").show(0.25)
    (True, '0.25 s')
    """

    unit: str = ""
    rel: float = 1e-3
    absolute: float = 1e-9
    noun: str = ""
    may_be_infinite: bool = False

    @property
    def expected(self) -> str:
        """The kind in words."""
        return self.noun or _NOUNS.get(self.unit, f"a number in {self.unit}")

    @property
    def tolerance(self) -> str:
        """How close is close enough, in words."""
        return f"within {plain(100 * self.rel)} %"

    def problem(self, value: object) -> str | None:
        """Why a value is not one finite real number."""
        if self.may_be_infinite and isinstance(value, float) and math.isinf(value):
            return None
        return _not_a_number(value)

    def same(self, value: Any, other: Any) -> bool:
        """Whether two numbers agree within the tolerance."""
        return math.isclose(float(value), float(other), rel_tol=self.rel, abs_tol=self.absolute)

    def show(self, value: Any) -> str:
        """Four digits and the unit."""
        return _with_unit(plain(float(value)), self.unit)

    def magnitude(self, value: Any) -> str:
        """Two digits and the unit."""
        return f"near {_with_unit(plain(float(value), digits=2), self.unit)}"


@dataclass(frozen=True)
class Whole:
    """One whole number of `unit`, compared exactly; 3.0 counts as 3.

    >>> Whole("servers").problem(2.5)
    'It returned 2.5, where a whole number is expected.'
    """

    unit: str = ""
    noun: str = ""

    @property
    def expected(self) -> str:
        """The kind in words."""
        return self.noun or f"a whole number of {self.unit or 'things'}"

    @property
    def tolerance(self) -> str:
        """How close is close enough, in words."""
        return "exactly"

    def problem(self, value: object) -> str | None:
        """Why a value is not a whole number."""
        trouble = _not_a_number(value)
        if trouble is None and float(value) != round(float(value)):  # type: ignore[arg-type]
            return f"It returned {plain(float(value))}, where a whole number is expected."  # type: ignore[arg-type]
        return trouble

    def same(self, value: Any, other: Any) -> bool:
        """Whether two whole numbers are equal."""
        return float(value) == float(other)

    def show(self, value: Any) -> str:
        """The number and its unit."""
        return _with_unit(f"{int(value):,}", self.unit)

    def magnitude(self, value: Any) -> str:
        """Two digits and the unit."""
        return f"near {_with_unit(plain(float(value), digits=2), self.unit)}"


@dataclass(frozen=True)
class Vector:
    """A row of real numbers in `unit`, each the same within `rel` or `absolute`."""

    unit: str = ""
    rel: float = 1e-3
    absolute: float = 1e-9
    noun: str = ""

    @property
    def expected(self) -> str:
        """The kind in words."""
        return self.noun or f"a row of numbers{f' in {self.unit}' if self.unit else ''}"

    @property
    def tolerance(self) -> str:
        """How close is close enough, in words."""
        return f"each within {plain(100 * self.rel)} %"

    def problem(self, value: object) -> str | None:
        """Why a value is not a row of finite real numbers."""
        if not isinstance(value, np.ndarray | list | tuple):
            trouble = _not_a_number(value)
            return trouble or "It returned one number, where a row of numbers is expected."
        if np.ma.is_masked(value):
            return _MASKED
        try:
            if np.iscomplexobj(np.asarray(value)):
                return "It returned complex numbers: is there a root of a negative number?"
            row = np.asarray(value, dtype=float)
        except Exception:  # whatever a student's own objects raise
            return "It returned a row that holds something other than numbers."
        if row.ndim != 1:
            return f"It returned an array of shape {row.shape}, where one row is expected."
        bad = np.flatnonzero(~np.isfinite(row))
        if bad.size:
            return f"It returned {plain(float(row[bad[0]]))} at index {int(bad[0])} of its row."
        return None

    def same(self, value: Any, other: Any) -> bool:
        """Whether two rows have one length and agree everywhere."""
        a, b = np.asarray(value, dtype=float), np.asarray(other, dtype=float)
        return a.shape == b.shape and bool(
            np.allclose(a, b, rtol=self.rel, atol=self.absolute, equal_nan=True)
        )

    def show(self, value: Any) -> str:
        """The length and the first few numbers."""
        row = np.asarray(value, dtype=float).ravel()
        first = ", ".join(plain(float(x)) for x in row[:3])
        more = ", …" if row.size > 3 else ""
        return _with_unit(f"{row.size} numbers: {first}{more}", self.unit)

    def magnitude(self, value: Any) -> str:
        """Only the length: the numbers are the answer."""
        return f"{np.asarray(value).size} numbers long"


@dataclass(frozen=True)
class Figures:
    """Figures that the exercise itself measured (a simulation's result), compared closely."""

    names: tuple[str, ...]
    units: tuple[str, ...]
    rel: float = 1e-9
    noun: str = "an answer that meets every target"
    within: str = "as the question states"

    @property
    def expected(self) -> str:
        """The kind in words."""
        return self.noun

    @property
    def tolerance(self) -> str:
        """How close is close enough, in words."""
        return self.within

    def problem(self, value: object) -> str | None:
        """Nothing: the exercise measured these itself."""
        return None

    def same(self, value: Any, other: Any) -> bool:
        """Whether two measurements agree closely."""
        return bool(np.allclose(value, other, rtol=self.rel, atol=1e-12, equal_nan=True))

    def show(self, value: Any) -> str:
        """Every figure with its name and unit."""
        triples = zip(self.names, value, self.units, strict=True)
        return ", ".join(f"{n} {_with_unit(plain(float(v)), u)}" for n, v, u in triples)

    def magnitude(self, value: Any) -> str:
        """Nothing: the figures would give the answer away."""
        return ""


@dataclass(frozen=True)
class Label:
    """One of several options, named by its letter.

    >>> Label({"a": "yes", "b": "no"}).problem("z")
    "It is 'z': answer with one letter of a, b."
    """

    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def expected(self) -> str:
        """The kind in words."""
        return f"one letter of {', '.join(self.options)}"

    @property
    def tolerance(self) -> str:
        """How close is close enough, in words."""
        return "the right letter"

    def problem(self, value: object) -> str | None:
        """Why a value is not one of the letters."""
        if isinstance(value, str) and value.strip().lower() in self.options:
            return None
        return f"It is {short_repr(value)}: answer with {self.expected}."

    def same(self, value: Any, other: Any) -> bool:
        """Whether two answers name one letter."""
        return str(value).strip().lower() == str(other).strip().lower()

    def show(self, value: Any) -> str:
        """The letter."""
        return str(value).strip().lower()

    def magnitude(self, value: Any) -> str:
        """Nothing: the letter is the answer."""
        return ""


def describe_input(name: str, value: object) -> str:
    """One input of a case in words; arrays by their length and range.

    >>> describe_input("arrival_rate_per_s", 8.0)
    'arrival_rate_per_s = 8'
    >>> describe_input("sent_s", np.array([0.5, 1.0, 4.0]))
    'sent_s = 3 numbers from 0.5 to 4'
    """
    if np.ma.is_masked(value):
        return f"{name} = {short_repr(value)}"
    if isinstance(value, np.ndarray) and value.size and value.dtype.kind in "iuf":
        low, high = float(np.nanmin(value)), float(np.nanmax(value))
        gaps = int(np.isnan(value).sum()) if value.dtype.kind == "f" else 0
        missing = f", {gaps} of them NaN" if gaps else ""
        return f"{name} = {value.size} numbers from {plain(low)} to {plain(high)}{missing}"
    if isinstance(value, numbers.Real) and not isinstance(value, bool):
        return f"{name} = {plain(float(value), digits=6)}"
    return f"{name} = {short_repr(value)}"


def as_floats(values: Sequence[Any]) -> list[float] | None:
    """The values as floats when each is one finite number; None otherwise.

    >>> as_floats([1, np.float64(2.5)]), as_floats([1.0, "x"])
    ([1.0, 2.5], None)
    """
    if any(_not_a_number(value) is not None for value in values):
        return None
    return [float(value) for value in values]
