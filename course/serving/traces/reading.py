"""Reads request traces (when each request came, and how long it was); no result of a benchmark."""

from __future__ import annotations

import csv
import datetime
import itertools
import math
import os
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import BinaryIO

import numpy as np

from course.serving.files import (
    LONGEST_TOKENS,
    Fields,
    ResultFileError,
    checked_path,
    excerpt,
    json_values,
    lines,
)
from course.serving.traces.nouns import Trace
from course.words import rounded

MAX_ROWS = 20_000_000
LATEST_S = 1e12

SEPARATORS = ",;\t"
"""What may stand between the cells; a comma where the header does not tell."""

SLOWEST_S = 10.0
"""Times further apart than this on average are perhaps milliseconds: a server at 0.1 requests/s
would be idle, one at 100/s would not."""

COLUMNS = {
    "arrival": (
        "arrival_s", "arrival_time_s", "timestamp_s", "timestamp_ms", "arrival_ms", "timestamp",
        "arrival_time", "arrived_at", "arrival", "start_time", "request_time", "time",
    ),
    "prompt": (
        "prompt_tokens", "contexttokens", "request tokens", "input_tokens", "input_length",
        "num_prefill_tokens", "prompt_length", "input_len",
    ),
    "output": (
        "output_tokens", "generatedtokens", "response tokens", "output_length",
        "num_decode_tokens", "completion_tokens", "output_len", "generated_tokens",
    ),
}  # fmt: skip
"""Names that traces give to the three columns, in lower case, the surest first."""


MOONCAKE = frozenset({"timestamp", "input_length", "output_length"})


@dataclass
class _Rows:
    """The trace as it grows: three plain arrays, and why rows were left out."""

    arrival: array[float] = field(default_factory=lambda: array("d"))
    prompt: array[int] = field(default_factory=lambda: array("q"))
    output: array[int] = field(default_factory=lambda: array("q"))
    left_out: Counter[str] = field(default_factory=Counter)
    unsaid_unit: str | None = None
    """The column of times whose name leaves open whether they are seconds."""
    like_mooncake: bool = False
    """Whether a table has the names of Mooncake's JSON, in which times are milliseconds."""

    def add(self, at_s: float, prompt: int, output: int) -> None:
        """Take one row, or count why it cannot be a request; ValueError for an absurd one."""
        for name, tokens in (("prompt", prompt), ("output", output)):
            if not 0 <= tokens <= LONGEST_TOKENS:
                count = f"{tokens:,}" if abs(tokens) < 10**15 else f"{tokens:.6g}"
                limit = f"; a request has from 0 to {LONGEST_TOKENS:,}"
                raise ValueError(f"has {count} {name} tokens{limit}")
        if not -LATEST_S < at_s < LATEST_S:
            how = "; give seconds, or milliseconds in a column named timestamp_ms"
            hint = how if math.isfinite(at_s) else ""
            raise ValueError(f"has {at_s} as its time in seconds{hint}")
        if prompt < 1 or output < 1:
            self.left_out["prompt" if prompt < 1 else "output"] += 1
            return
        if len(self.arrival) >= MAX_ROWS:
            raise ValueError(f"is longer than {MAX_ROWS:,} requests")
        self.arrival.append(at_s)
        self.prompt.append(prompt)
        self.output.append(output)


def load_trace(path: str | os.PathLike[str]) -> Trace:
    """Return the requests of a trace as plain arrays, sorted by arrival, the first one at 0 s.

    Reads Azure's (TIMESTAMP, ContextTokens, GeneratedTokens), BurstGPT's and Mooncake's layouts,
    and any CSV with a time, a prompt and an output column as ServeGen's or the plain
    `arrival_s,prompt_tokens,output_tokens`; semicolons and tabs separate cells as commas do.
    Times are seconds, unless the column's name ends in `_ms` (or it is Mooncake's JSON) or the
    cells are dates; where a name leaves that open and the times look like milliseconds, a warning
    says so. Raises ResultFileError, which says what is wrong and where.
    """
    found = checked_path(path)
    try:
        with found.open("rb") as file:
            head = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()
            file.seek(0)
            layout, rows = _json_lines(file) if head[:1] in (b"{", b"[") else _table(file)
    except ResultFileError as error:
        raise error.of_file(str(path)) from None
    except OSError as error:
        raise ResultFileError(f"cannot be read ({error})", path=str(path)) from None
    except MemoryError:
        raise ResultFileError("does not fit into memory", path=str(path)) from None
    if not rows.arrival:
        why = "; ".join(_left_out(rows))
        raise ResultFileError(f"holds no request{': ' if why else ''}{why}", path=str(path))
    return _finished(rows, layout, str(path))


def _finished(rows: _Rows, layout: str, path: str) -> Trace:
    warnings = [*_left_out(rows)]
    arrival = np.array(rows.arrival, dtype=np.float64)
    prompt = np.array(rows.prompt, dtype=np.int64)
    output = np.array(rows.output, dtype=np.int64)
    back = int((np.diff(arrival) < 0).sum())
    if back:
        often = "once" if back == 1 else f"{back:,} times"
        warnings.append(f"arrivals step back in time {often}; the requests are sorted here")
        order = np.argsort(arrival, kind="stable")
        arrival, prompt, output = arrival[order], prompt[order], output[order]
    arrival -= arrival[0]
    warnings += _unit(arrival, rows)
    warnings += _coarse(arrival)
    for column in (arrival, prompt, output):
        column.setflags(write=False)
    return Trace(arrival, prompt, output, layout, path, tuple(warnings))


def _left_out(rows: _Rows) -> Iterator[str]:
    for kind, count in sorted(rows.left_out.items()):
        one = f"1 row without {kind} tokens is left out: a failed or empty request"
        more = f"{count:,} rows without {kind} tokens are left out: failed or empty requests"
        yield one if count == 1 else more


def _unit(arrival: np.ndarray, rows: _Rows) -> Iterator[str]:
    """Milliseconds taken as seconds make a loaded server look idle."""
    column = rows.unsaid_unit
    if column is None or arrival.size < 2:
        return
    gap_s = float(arrival[-1]) / (arrival.size - 1)
    if rows.like_mooncake or gap_s > SLOWEST_S:
        yield (
            f"the column {column} does not say its unit, and its times are taken as seconds, one "
            f"request in {rounded(gap_s)} s on average; if they are milliseconds"
            f"{', as in the trace with these names' if rows.like_mooncake else ''}, call it "
            "timestamp_ms"
        )


def _coarse(arrival: np.ndarray) -> Iterator[str]:
    """A clock that ticks in seconds makes bursts that were none."""
    if arrival.size < 20:
        return
    ticks = np.unique(arrival)
    shared = 1 - ticks.size / arrival.size
    if shared > 0.5 and ticks.size > 1:
        tick_s = float(np.median(np.diff(ticks)))
        yield (
            f"{shared:.0%} of the requests share their time with another: the clock ticks about "
            f"every {tick_s:.3g} s, so gaps and bursts below that are not the users'"
        )


# --- JSON lines -----------------------------------------------------------------------------------


def _json_lines(file: BinaryIO) -> tuple[str, _Rows]:
    rows = _Rows()
    for place, value in _entries(file):
        fields = Fields(value, place)
        at_ms = fields.number("timestamp")
        prompt, output = fields.count("input_length"), fields.count("output_length")
        if at_ms is None or prompt is None or output is None:
            raise ResultFileError(
                "lacks timestamp, input_length or output_length, the keys of Mooncake's trace",
                fields.place,
            )
        try:
            rows.add(at_ms / 1000, prompt, output)
        except ValueError as fault:
            raise ResultFileError(str(fault), fields.place) from None
    return "mooncake", rows


def _entries(file: BinaryIO) -> Iterator[tuple[str, object]]:
    """Yield each value with its place; a list, as `jq -s` makes of the lines, entry by entry."""
    for line, value in json_values(file):
        if not isinstance(value, list):
            yield f"line {line}", value
            continue
        for index, entry in enumerate(value):
            yield f"line {line}, request {index}", entry


# --- tables ---------------------------------------------------------------------------------------


def _table(file: BinaryIO) -> tuple[str, _Rows]:
    rows = _Rows()
    try:
        every = lines(file)
        first = next(every, None)
        if first is None:
            raise ResultFileError("holds nothing")
        separator = _separator(first)
        # with its end, or a cell that goes on in the next line would be read as one number
        ended = (f"{line}\n" for line in itertools.chain([first], every))
        reader = csv.reader(ended, strict=True, delimiter=separator)
        header = next(reader, [])
        places, layout, unit_s, rows.unsaid_unit = _columns(header)
        rows.like_mooncake = set(map(_name, header)) >= MOONCAKE
        read_time: Callable[[str], float] | None = None
        for cells in reader:
            if not cells:
                continue
            try:
                time, prompt, output = [cells[i].strip() for i in places]
                if read_time is None:
                    read_time = _Clock(time) if _is_date(time) else _plain_number
                    rows.unsaid_unit = None if _is_date(time) else rows.unsaid_unit
                rows.add(read_time(time) * unit_s, _tokens(prompt), _tokens(output))
            except IndexError:
                raise ResultFileError(
                    f"has {len(cells)} cells, too few", f"line {reader.line_num}"
                ) from None
            except ValueError as fault:
                raise ResultFileError(str(fault), f"line {reader.line_num}") from None
    except csv.Error as fault:
        raise ResultFileError(
            f"is no table of commas, semicolons or tabs: {fault}", f"line {reader.line_num}"
        ) from None
    return layout, rows


def _separator(header: str) -> str:
    """Return the separator by which the header shows most of the three columns, or most cells."""

    def shown(separator: str) -> tuple[int, int]:
        cells = header.split(separator)
        names = {_name(cell.strip().strip('"')) for cell in cells}
        return sum(not names.isdisjoint(known) for known in COLUMNS.values()), len(cells)

    return max(SEPARATORS, key=shown)


def _name(cell: str) -> str:
    return cell.strip().lower()


def _columns(header: list[str]) -> tuple[tuple[int, int, int], str, float, str | None]:
    """Return the places of time, prompt and output, the layout's name, and the time's unit.

    The last is the name of the time's column where neither it nor the layout says the unit.
    """
    names = [_name(cell) for cell in header]
    found = {
        kind: next((name for name in known if name in names), None)
        for kind, known in COLUMNS.items()
    }
    lacking = [kind for kind, name in found.items() if name is None]
    if lacking:
        raise ResultFileError(
            f"has the columns {', '.join(excerpt(name) for name in header[:8])}, none of which is "
            f"known as {' or '.join(lacking)}; name them arrival_s, prompt_tokens, output_tokens",
            "line 1",
        )
    time, prompt, output = (name or "" for name in found.values())
    for name in (time, prompt, output):
        if names.count(name) > 1:
            twice = f"has {names.count(name)} columns named {excerpt(name)}; rename all but one"
            raise ResultFileError(twice, "line 1")
    if prompt == "contexttokens":
        layout = "azure"
    elif prompt == "request tokens":
        layout = "burstgpt"
    elif time == "timestamp_ms" and prompt == "input_length":
        layout = "mooncake"
    else:
        layout = "plain" if time == "arrival_s" and prompt == "prompt_tokens" else "table"
    said = time.endswith(("_s", "_ms")) or layout == "burstgpt"
    places = names.index(time), names.index(prompt), names.index(output)
    return places, layout, 1e-3 if time.endswith("_ms") else 1.0, None if said else time


def _tokens(cell: str) -> int:
    if cell.isdigit() and cell.isascii() and len(cell) < 16:
        return int(cell)
    try:
        value = float(cell)
    except ValueError:
        raise ValueError(f"has {excerpt(cell)} where a token count should be") from None
    if math.isinf(value) and cell.strip("+-").isdigit():
        raise ValueError(f"has {excerpt(cell)} tokens, which is more than any request has")
    if not math.isfinite(value) or value != math.floor(value):
        raise ValueError(f"has {excerpt(cell)} tokens, which is not whole")
    return int(value)


def _plain_number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        point = "; decimals take a point" if "," in cell else ""
        raise ValueError(f"has {excerpt(cell)} where a time in seconds should be{point}") from None


def _is_date(cell: str) -> bool:
    return len(cell) > 10 and cell[4:5] == "-" and cell[7:8] == "-"


class _Clock:
    """Reads dates with any number of decimals as seconds after the first one's whole second.

    Counted from 1970 a double would round to a quarter of a microsecond.
    """

    def __init__(self, first: str) -> None:
        self.zero_s = _second(_parts(first)[0])

    def __call__(self, cell: str) -> float:
        whole, digits = _parts(cell)
        return (_second(whole) - self.zero_s) + (float(f"0.{digits}") if digits else 0.0)


def _parts(cell: str) -> tuple[str, str]:
    """Return a date without its decimals, and the decimals."""
    whole, _, rest = cell.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    return whole + rest[len(digits) :], digits


@lru_cache(maxsize=16)
def _second(text: str) -> float:
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"has {excerpt(text)} where a date and time should be") from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=datetime.UTC)
    return at.timestamp()
