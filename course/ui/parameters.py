"""How an explorer declares its parameters (range, unit, label, help); no widget is made here.

A parameter set is a frozen dataclass whose fields are made by `slider`, `count`, `play`, `choice`
and `toggle`. Everything else follows from that declaration: the controls, the check of the ranges,
the line of Python that rebuilds the set.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

P = TypeVar("P")

_KEY = "control"


@dataclass(frozen=True)
class Slider:
    """A number on a linear scale, both ends included; with `tick_ms` it can also be played."""

    low: float
    high: float
    step: float
    label: str
    unit: str
    help: str
    whole: bool = False
    slow: bool = False
    tick_ms: int | None = None

    def check(self, name: str, value: object) -> float | int:
        """Return `value` as a number inside the range; raise ValueError naming `name`."""
        if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
            raise ValueError(f"{name}={value!r} is not a number; give one in {self.span}")
        if not self.low <= value <= self.high:
            raise ValueError(f"{name}={value!r} is outside {self.span}; give a value inside it")
        if not self.whole:
            return float(value)
        if value != int(value):
            raise ValueError(f"{name}={value!r} must be a whole number in {self.span}")
        return int(value)

    @property
    def span(self) -> str:
        """The range in words, such as ``0.5 … 20 requests/s``."""
        return f"{self.low:g} … {self.high:g} {self.unit}".rstrip()


@dataclass(frozen=True)
class Choice:
    """One of a few named values; `options` maps what is read to what is used."""

    options: tuple[tuple[str, Any], ...]
    label: str
    help: str
    as_slider: bool = False

    def words(self, value: object) -> str:
        """Return what is read for `value`."""
        return next(words for words, option in self.options if option == value)

    def check(self, name: str, value: object) -> Any:
        """Return `value` if it is one of the options; raise ValueError naming `name`."""
        allowed = [option for _, option in self.options]
        if value not in allowed:
            raise ValueError(f"{name}={value!r} is not one of the choices {allowed}")
        return value


@dataclass(frozen=True)
class Toggle:
    """A yes or no."""

    label: str
    help: str

    def check(self, name: str, value: object) -> bool:
        """Return `value` if it is a bool; raise ValueError naming `name`."""
        if not isinstance(value, bool):
            raise ValueError(f"{name}={value!r} must be True or False")
        return value


Control = Slider | Choice | Toggle


def slider(
    default: float,
    low: float,
    high: float,
    step: float,
    *,
    label: str,
    unit: str = "",
    help: str,
    slow: bool = False,
) -> Any:
    """Declare a real-valued parameter, both ends included.

    `slow` marks one whose picture takes over 150 ms: it is redrawn when the slider is let go.
    """
    control = Slider(low, high, step, label, unit, help, slow=slow)
    return field(default=default, metadata={_KEY: control})


def count(
    default: int,
    low: int,
    high: int,
    step: int = 1,
    *,
    label: str,
    unit: str = "",
    help: str,
    slow: bool = False,
) -> Any:
    """Declare a whole-number parameter, both ends included."""
    control = Slider(low, high, step, label, unit, help, whole=True, slow=slow)
    return field(default=default, metadata={_KEY: control})


def play(
    default: int,
    low: int,
    high: int,
    step: int = 1,
    *,
    label: str,
    unit: str = "",
    help: str,
    tick_ms: int = 100,
) -> Any:
    """Declare a whole-number parameter that a play button also moves, a step every `tick_ms`."""
    control = Slider(low, high, step, label, unit, help, whole=True, tick_ms=tick_ms)
    return field(default=default, metadata={_KEY: control})


def choice(
    default: Any, options: Mapping[str, Any] | Sequence[Any], *, label: str, help: str
) -> Any:
    """Declare a parameter that takes one of a few values, given as a list or as text → value."""
    pairs = (
        tuple(options.items())
        if isinstance(options, Mapping)
        else tuple((str(option), option) for option in options)
    )
    return field(default=default, metadata={_KEY: Choice(pairs, label, help)})


def stops(default: Any, values: Sequence[Any], *, label: str, unit: str = "", help: str) -> Any:
    """Declare a number that a slider takes from stop to stop, such as 1, 2, 4, 8.

    For scales that are not linear: every stop is met exactly, whatever the browser rounds.
    """
    pairs = tuple((f"{value:,}", value) for value in values)
    words = f"{label} ({unit})" if unit else label
    return field(default=default, metadata={_KEY: Choice(pairs, words, help, as_slider=True)})


def toggle(default: bool, *, label: str, help: str) -> Any:
    """Declare a yes-or-no parameter."""
    return field(default=default, metadata={_KEY: Toggle(label, help)})


def controls_of(parameters: type) -> dict[str, Control]:
    """Return the declared control of each field, in order."""
    return {f.name: f.metadata[_KEY] for f in fields(parameters)}


def changed(parameters: P, values: Mapping[str, Any]) -> P:
    """Return the set with `values` put in; raise ValueError on an unknown name or a bad value."""
    controls = controls_of(type(parameters))
    checked = {}
    for name, value in values.items():
        if name not in controls:
            close = difflib.get_close_matches(name, controls, n=1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ValueError(f"there is no parameter {name!r}{hint} There are: {list(controls)}")
        checked[name] = controls[name].check(name, value)
    return replace(parameters, **checked)  # type: ignore[type-var]


def as_python(call: str, parameters: Any) -> str:
    """Return one line of Python that opens an explorer with this parameter set."""
    parts = [f"{f.name}={getattr(parameters, f.name)!r}" for f in fields(parameters)]
    return f"{call}({', '.join(parts)})"


def typed_number(text: str) -> float:
    """Return the number that a person typed, with a point or a comma, and with thousands marked.

    Raises ValueError, with what to write instead, for what is no number or may be two.

    >>> [typed_number(text) for text in ("1.5", "1,5", "1,780.5", "1.780,5", "12 000", "2,000,000")]
    [1.5, 1.5, 1780.5, 1780.5, 12000.0, 2000000.0]
    >>> typed_number("1,780")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: Is “1,780” 1780 or 1.78? Write it ...
    """
    plain = re.sub(r"(?<=\d)[\s'’_](?=\d{3}(?:\D|$))", "", text.strip())
    thousands, decimal = (",", ".") if plain.rfind(".") > plain.rfind(",") else (".", ",")
    if re.fullmatch(r"[-+]?[1-9]\d{0,2},\d{3}", plain):
        whole, _, rest = plain.partition(",")
        raise ValueError(
            f"Is “{text.strip()}” {whole}{rest} or {float(f'{whole}.{rest}'):g}? Write it without "
            "a comma for the one, with a point for the other."
        )
    if re.fullmatch(rf"[-+]?\d{{1,3}}(\{thousands}\d{{3}})+(\{decimal}\d+)?", plain) and (
        decimal in plain or plain.count(thousands) > 1
    ):
        plain = plain.replace(thousands, "")
    elif re.fullmatch(rf"[-+]?\d{{1,3}}(\{decimal}\d{{3}}){{2,}}", plain):
        plain = plain.replace(decimal, "")
    try:
        number = float(plain.replace(",", "."))
    except ValueError:
        number = math.nan
    if math.isfinite(number):
        return number
    raise ValueError(f"“{text}” is not a number: write one such as 1.5.")
