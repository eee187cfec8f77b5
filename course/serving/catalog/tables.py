"""Reads the CSV tables in `data/` and finds rows by name; what a row means is not decided here."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, fields
from datetime import date
from functools import cache
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args, get_type_hints

from course.paths import DATA

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from _typeshed import DataclassInstance

Entry = TypeVar("Entry")
Row = TypeVar("Row", bound="DataclassInstance")

_MEND = (
    "data/ lies beside the package in the cloned repository: restore it with "
    "`git checkout -- data` or clone again, then run `pip install -e .` there"
)


class DataFileError(RuntimeError):
    """A table in `data/` is missing or damaged; the message says where, and how to mend it."""


class UnknownNameError(ValueError, LookupError):
    """A name that no row of a table has; the message suggests the nearest and lists them all."""


def table(row_type: type[Row], name: str) -> tuple[Row, ...]:
    """Return the rows of the table `name` in `data/`, read once; see `read_rows`."""
    return cast(tuple[Row, ...], _kept(row_type, name))


@cache
def _kept(row_type: type[DataclassInstance], name: str) -> tuple[DataclassInstance, ...]:
    return read_rows(row_type, name)


def named(argument: str, name: str, entries: Mapping[str, Entry]) -> Entry:
    """Return the entry called `name`, capitals aside; UnknownNameError names `argument` if none.

    >>> named("gpu", "t4", {"T4": 65, "L4": 121})
    65
    """
    if name in entries:
        return entries[name]
    by_lower = {known.lower(): known for known in entries}
    lower = str(name).lower()
    if lower in by_lower:
        return entries[by_lower[lower]]
    from difflib import get_close_matches

    near = [known for known in by_lower if lower and lower in known]
    near = near or get_close_matches(lower, by_lower, n=3, cutoff=0.55)
    guess = " or ".join(repr(by_lower[known]) for known in near[:3])
    raise UnknownNameError(
        f"{argument}={name!r} is not known; "
        + (f"did you mean {guess}? " if guess else "")
        + f"Known: {', '.join(entries)}"
    )


def choose(argument: str, name: str, rows: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return the rows whose field `argument` is `name`, capitals aside; UnknownNameError if none.

    >>> from collections import namedtuple
    >>> Trace = namedtuple("Trace", "trace")
    >>> choose("trace", "A", (Trace("a"), Trace("b")))
    (Trace(trace='a'),)
    """
    known = {text: text for row in rows if (text := getattr(row, argument))}
    found = named(argument, name, known)
    return tuple(row for row in rows if getattr(row, argument) == found)


def floats(values: Iterable[float]) -> npt.NDArray[np.float64]:
    """Return the values as a read-only float array, safe to share between callers."""
    import numpy as np

    array = np.array(list(values), dtype=np.float64)
    array.flags.writeable = False
    return array


def wholes(values: Iterable[int]) -> npt.NDArray[np.int64]:
    """Return the values as a read-only integer array, safe to share between callers."""
    import numpy as np

    array = np.array(list(values), dtype=np.int64)
    array.flags.writeable = False
    return array


def read_rows(row_type: type[Row], name: str, folder: Path | None = None) -> tuple[Row, ...]:
    """Return the rows of the table `name` in `folder` (normally `data/`) as `row_type` objects.

    The table's columns are the dataclass's fields in the same order. A field may be text, a
    whole number, a finite number, yes or no, an ISO date, a list of names parted by `;`, or one
    of these or nothing (`X | None`); text is only empty where the field has a default.
    Raises DataFileError, with file, line and column, for anything else.
    """
    path = (DATA if folder is None else folder) / name
    readers = {field: _reader(row_type, field) for field in (f.name for f in fields(row_type))}
    rows = []
    for line, cells in _lines(path, list(readers)):
        values = {}
        for (field, read), cell in zip(readers.items(), cells, strict=True):
            try:
                values[field] = read(cell)
            except ValueError as error:
                raise DataFileError(
                    f"{path}, line {line}: {field}={cell!r} {error}; {_MEND}"
                ) from None
        rows.append(row_type(**values))
    if not rows:
        raise DataFileError(f"{path} has a header and no rows; {_MEND}")
    return tuple(rows)


def _lines(path: Path, columns: list[str]) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            if header != columns:
                raise DataFileError(f"{path} has the columns {header}, not {columns}; {_MEND}")
            for cells in reader:
                if len(cells) != len(columns):
                    raise DataFileError(
                        f"{path}, line {reader.line_num}: {len(cells)} cells, "
                        f"not {len(columns)}; {_MEND}"
                    )
                yield reader.line_num, cells
    except FileNotFoundError:
        raise DataFileError(f"{path} is missing; {_MEND}") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataFileError(f"{path} cannot be read ({error}); {_MEND}") from None


@cache
def _hints(row_type: type) -> dict[str, Any]:
    return get_type_hints(row_type)


def _reader(row_type: type, field: str) -> Callable[[str], object]:
    """The function from a cell's text to the field's value; it raises ValueError on bad text."""
    hint = _hints(row_type)[field]
    if hint is str and row_type.__dataclass_fields__[field].default is not MISSING:  # type: ignore[attr-defined]
        return str
    if NoneType not in get_args(hint):
        return _READERS[hint]
    (present,) = (part for part in get_args(hint) if part is not NoneType)
    read = _READERS[present]
    return lambda cell: read(cell) if cell else None


def _text(cell: str) -> str:
    if not cell.strip():
        raise ValueError("is empty")
    return cell


def _whole(cell: str) -> int:
    try:
        return int(cell)
    except ValueError:
        raise ValueError("is not a whole number") from None


def _finite(cell: str) -> float:
    try:
        number = float(cell)
    except ValueError:
        raise ValueError("is not a number") from None
    if not math.isfinite(number):
        raise ValueError("is not finite")
    return number


def _yes_or_no(cell: str) -> bool:
    if cell not in ("yes", "no"):
        raise ValueError("is neither yes nor no")
    return cell == "yes"


def _day(cell: str) -> date:
    try:
        return date.fromisoformat(cell)
    except ValueError:
        raise ValueError("is not a date like 2026-09-25") from None


def _names(cell: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in cell.split(";")) if cell else ()


_READERS: dict[Any, Callable[[str], object]] = {
    str: _text,
    int: _whole,
    float: _finite,
    bool: _yes_or_no,
    date: _day,
    tuple[str, ...]: _names,
}
