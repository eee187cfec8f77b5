"""Checks that turn a caller's arguments into clean numbers or a sentence; no model lives here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
SmallArray = npt.NDArray[np.int32]
TinyArray = npt.NDArray[np.int8]

LARGEST_TOKENS = 2**31 - 1


def whole(name: str, value: object, low: int = 1, high: int = 2**53) -> int:
    """Return `value` as an int in `low` … `high`; raise ValueError naming it otherwise.

    >>> whole("max_num_seqs", 64)
    64
    >>> whole("max_num_seqs", 0)
    Traceback (most recent call last):
    ...
    ValueError: max_num_seqs=0 is below 1; give a whole number of at least 1
    """
    number = _number(name, value, "a whole number")
    if not math.isfinite(number) or number != math.floor(number):
        raise ValueError(f"{name}={value!r} is not whole; give a whole number of at least {low}")
    if number < low:
        raise ValueError(f"{name}={value!r} is below {low}; give a whole number of at least {low}")
    if number > high:
        raise ValueError(f"{name}={value!r} is above {high}; give a smaller whole number")
    return int(value)  # type: ignore[call-overload, no-any-return]


def at_least(name: str, value: object, low: float = 0.0, *, above: bool = False) -> float:
    """Return `value` as a finite float ≥ `low` (> `low` if `above`); raise ValueError otherwise.

    >>> at_least("wait_s", 0.05)
    0.05
    >>> at_least("wait_s", -1)
    Traceback (most recent call last):
    ...
    ValueError: wait_s=-1 is negative; give a finite number of at least 0
    """
    wanted = f"give a finite number {'above' if above else 'of at least'} {low:g}"
    number = _number(name, value, "a number")
    if math.isnan(number):
        raise ValueError(f"{name}={value!r} is not a number (NaN); {wanted}")
    if math.isinf(number):
        raise ValueError(f"{name}={value!r} is infinite; {wanted}")
    if number < low or (above and number == low):
        fault = "negative" if low == 0 and number < 0 else f"not above {low:g}"
        if not above and low != 0:
            fault = f"below {low:g}"
        raise ValueError(f"{name}={value!r} is {fault}; {wanted}")
    return number


def of_kind(name: str, value: object, kind: type, example: str) -> None:
    """Raise ValueError unless `value` is of that kind, or None.

    >>> of_kind("wait_s", "soon", float, "0.5")
    Traceback (most recent call last):
    ...
    ValueError: wait_s='soon' is no float; give one, as 0.5
    """
    if value is not None and not isinstance(value, kind):
        raise ValueError(f"{name}={value!r} is no {kind.__name__}; give one, as {example}")


def _number(name: str, value: object, wanted: str) -> float:
    """Return a real scalar as a float; a bool, a string or an array is refused by name."""
    if isinstance(value, (bool, np.bool_)) or not isinstance(
        value, (int, float, np.integer, np.floating)
    ):
        raise ValueError(f"{name}={value!r} is not a number; give {wanted}")
    return float(value)


def _vector(name: str, values: object) -> npt.NDArray[Any]:
    """Return `values` as a one-dimensional numeric array; raise ValueError otherwise."""
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} is not a list of numbers: {error}") from None
    if array.ndim != 1:
        raise ValueError(
            f"{name} has {array.ndim} dimensions (shape {array.shape}); "
            "give one number a request, in one flat list"
        )
    if array.size == 0:
        return array.astype(np.float64)
    if array.dtype.kind not in "iuf":
        raise ValueError(f"{name}[0]={array[0]!r} is not a number; give numbers only")
    return array


def _first(mask: npt.NDArray[np.bool_]) -> int:
    """Return the index of the first true entry, or −1."""
    if not mask.any():
        return -1
    return int(mask.argmax())


def times(name: str, values: object) -> FloatArray:
    """Return sorted, finite, non-negative times as a read-only float64 copy, in seconds.

    >>> times("arrival_s", [0.0, 2.0, 1.0])
    Traceback (most recent call last):
    ...
    ValueError: arrival_s[2]=1.0 comes before arrival_s[1]=2.0; sort the requests by arrival
    """
    array = numbers(name, values)
    if array.size and array[0] < 0:
        # in a sorted array the first is the smallest, so one look is enough
        raise ValueError(f"{name}[0]={array[0]} is negative; times are seconds from 0 on")
    step_back = _first(array[1:] < array[:-1])
    if step_back >= 0:
        here = step_back + 1
        negative = _first(array < 0)
        if negative >= 0:
            raise ValueError(
                f"{name}[{negative}]={array[negative]} is negative; times are seconds from 0 on"
            )
        raise ValueError(
            f"{name}[{here}]={array[here]} comes before {name}[{step_back}]={array[step_back]}; "
            "sort the requests by arrival"
        )
    return array


def numbers(name: str, values: object) -> FloatArray:
    """Return finite numbers as a read-only float64 copy; raise ValueError with the index.

    >>> numbers("priority", [0.0, float("nan")])
    Traceback (most recent call last):
    ...
    ValueError: priority[1]=nan is not a number (NaN); give finite numbers
    """
    array = _vector(name, values).astype(np.float64)
    # one pass that makes no mask: only if the sum is not finite can an entry not be
    with np.errstate(all="ignore"):
        total = float(array.sum())
    if not math.isfinite(total):
        bad = _first(~np.isfinite(array))
        if bad >= 0:
            fault = "not a number (NaN)" if math.isnan(array[bad]) else "infinite"
            raise ValueError(f"{name}[{bad}]={array[bad]} is {fault}; give finite numbers")
    array.setflags(write=False)
    return array


def counts(name: str, values: object, low: int = 1) -> IntArray:
    """Return whole token counts ≥ `low` as a read-only int64 copy; raise ValueError otherwise.

    >>> counts("prompt_tokens", [3, 0])
    Traceback (most recent call last):
    ...
    ValueError: prompt_tokens[1]=0 is below 1; give whole token counts of at least 1
    """
    given = _vector(name, values)
    wanted = f"give whole token counts of at least {low}"
    if given.dtype.kind == "f":
        bad = _first(~np.isfinite(given) | (given != np.floor(given)))
        if bad >= 0:
            raise ValueError(f"{name}[{bad}]={given[bad]} is not whole; {wanted}")
    if given.size and given.min() < low:
        bad = _first(given < low)
        raise ValueError(f"{name}[{bad}]={given[bad]} is below {low}; {wanted}")
    if given.size and given.max() > LARGEST_TOKENS:
        bad = _first(given > LARGEST_TOKENS)
        raise ValueError(
            f"{name}[{bad}]={given[bad]} is above {LARGEST_TOKENS}; give smaller token counts"
        )
    array = given.astype(np.int64)
    array.setflags(write=False)
    return array


def same_length(lengths: Sequence[tuple[str, int]]) -> None:
    """Raise ValueError unless all named arrays are as long as the first.

    >>> same_length([("arrival_s", 3), ("prompt_tokens", 2)])
    Traceback (most recent call last):
    ...
    ValueError: prompt_tokens has 2 entries but arrival_s has 3; give one a request in each
    """
    first, expected = lengths[0]
    for name, size in lengths[1:]:
        if size != expected:
            raise ValueError(
                f"{name} has {size} entries but {first} has {expected}; give one a request in each"
            )
