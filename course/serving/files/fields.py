"""Takes numbers, texts and lists out of a parsed file; what they mean is for its reader to say."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from course.serving.files.errors import ResultFileError
from course.serving.files.texts import excerpt, printable

LARGEST = 1e15
"""No number of a result is larger in its file's own unit (nanoseconds since 1970 apart)."""

LONGEST_TOKENS = 10_000_000
"""No prompt and no answer is longer."""

NOISE = 1e-2
"""A negative latency of at most this many milliseconds is a rounding around zero."""


class Fields:
    """The keys of one JSON object, each asked for by name and kind.

    A missing key, null and NaN are all None. A value of the wrong kind raises ResultFileError with
    the place. What was quietly put right is told in `notes`, shared with all children.
    """

    def __init__(self, data: Any, place: str, notes: list[str] | None = None) -> None:
        if not isinstance(data, dict):
            raise ResultFileError(f"holds {_kind(data)}, not an object", place)
        self.data: dict[str, Any] = data
        self.place = place
        self.notes: list[str] = [] if notes is None else notes

    def __contains__(self, key: str) -> bool:
        return key in self.data

    def where(self, key: str) -> str:
        """The place of a key, for a message."""
        return f"{self.place}, {printable(key, 60)}"

    def first(self, *keys: str) -> str | None:
        """The first of these keys that has a value."""
        return next((key for key in keys if self.data.get(key) is not None), None)

    def number(
        self,
        key: str,
        *,
        infinite: bool = False,
        negative: bool = False,
        limit: float = LARGEST,
        noise: float = NOISE,
    ) -> float | None:
        """The number under `key`, or None; ResultFileError for a text, a list, or an absurd one."""
        value = number(self.data.get(key), self.where(key), infinite=infinite, limit=limit)
        if value is None:
            if self.data.get(key) is not None:
                self.notes.append(f"{key} is NaN, which is no data")
            return None
        if value < 0 and not negative:
            if value < -noise:
                raise ResultFileError(f"is {value:g}, which is negative", self.where(key))
            self.notes.append(f"{key} is {value:g}, noise around zero, which is no data")
            return None
        return value

    def count(self, key: str) -> int | None:
        """The whole number from 0 on under `key`, or None; ResultFileError for anything else."""
        value = self.number(key, limit=2.0**53)
        if value is None:
            return None
        if value != math.floor(value):
            raise ResultFileError(f"is {value!r}, which is not whole", self.where(key))
        return int(value)

    def text(self, key: str, limit: int = 120) -> str | None:
        """The text under `key` as one short printable line, or None."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, str):
            raise ResultFileError(f"is {_kind(value)}, not a text", self.where(key))
        return printable(value, limit)

    def items(self, key: str) -> list[Any] | None:
        """The list under `key`, or None."""
        value = self.data.get(key)
        if value is None:
            return None
        if not isinstance(value, list):
            raise ResultFileError(f"is {_kind(value)}, not a list", self.where(key))
        return value

    def numbers(self, key: str) -> list[float] | None:
        """The list of numbers from 0 on under `key`, or None; NaN is refused here."""
        values = self.items(key)
        return None if values is None else list_of_numbers(values, self.where(key))

    def counts(self, key: str) -> list[int] | None:
        """The list of token counts under `key`, or None; one that no answer can have is refused."""
        values = self.numbers(key)
        for index, value in enumerate(values or ()):
            if value != math.floor(value) or value > LONGEST_TOKENS:
                fault = "not whole" if value <= LONGEST_TOKENS else "longer than any answer"
                place = f"{self.where(key)}[{index}]"
                raise ResultFileError(f"is {value:.12g}, which is {fault}", place)
        return None if values is None else [int(value) for value in values]

    def child(self, key: str) -> Fields | None:
        """The object under `key`, or None."""
        value = self.data.get(key)
        return None if value is None else Fields(value, self.where(key), self.notes)

    def children(self, key: str) -> Iterator[Fields]:
        """The objects of the list under `key`, one after the other; nothing if it is missing."""
        for index, value in enumerate(self.items(key) or ()):
            yield Fields(value, f"{self.where(key)}[{index}]", self.notes)


def number(
    value: Any, place: str, *, infinite: bool = False, limit: float = LARGEST
) -> float | None:
    """Return a JSON number as a float, None for null and NaN; ResultFileError otherwise."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ResultFileError(f"is {_kind(value)}, not a number", place)
    if isinstance(value, int) and abs(value) > 2**1000:
        raise ResultFileError("is a number of hundreds of digits", place)
    result = float(value)
    if math.isnan(result):
        return None
    if abs(result) > limit and not (infinite and result == math.inf):
        raise ResultFileError(f"is {result:g}, too large to be meant", place)
    return result


def list_of_numbers(values: list[Any], place: str) -> list[float]:
    """Return the numbers of a list, all from 0 on (noise below it is 0); ResultFileError if not."""
    # the usual case without a loop of our own: a file has millions of these
    if set(map(type, values)) == {float} and min(values) >= 0.0 and sum(values) <= LARGEST:
        return values
    found = []
    for index, value in enumerate(values):
        result = number(value, f"{place}[{index}]")
        if result is None:
            raise ResultFileError("is missing in a list that needs it", f"{place}[{index}]")
        if result < -1e-6:
            raise ResultFileError(f"is {result:g}, which is negative", f"{place}[{index}]")
        found.append(max(result, 0.0))
    return found


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", type(None): "null"}
    if type(value) in names:
        return names[type(value)]
    return excerpt(value) if isinstance(value, str) else "a number"
