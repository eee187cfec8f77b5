"""Reads a reader's own table of load levels, a plain CSV; which tool wrote it does not matter."""

from __future__ import annotations

import csv
import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from course.serving.files import LARGEST, ResultFileError, checked_path, excerpt, lines, printable
from course.serving.load.rows import CLOSED, OPEN, LoadRow, closed_row, statistic_named

MOST_ROWS = 20_000

LEAST = 1e-9
"""A number of a table is 0 or at least this, in its column's own unit."""

LONGEST_NAME = 200
"""Longer names of runs are refused: cut off, two of them might be one."""

USERS = ("users", "concurrency", "max_concurrency", "clients")
RATES = ("rate", "rate_per_s", "request_rate", "offered_per_s", "asked_per_s", "qps", "rps")
TOKENS = ("output_tokens_per_s", "tokens_per_s", "output_throughput", "tok_s", "throughput")
REQUESTS = ("requests_per_s", "request_throughput", "completed_per_s")
LENGTHS = {
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "output_tokens": ("output_tokens", "answer_tokens"),
}
GROUPS = ("name", "group", "model", "dataset", "config")
COMMON = {
    "users": USERS, "rate": RATES, "tokens": TOKENS, "requests": REQUESTS, "name": GROUPS,
    **LENGTHS,
}  # fmt: skip

ROLES = ("users", "rate", "tokens", "requests", "name", *LENGTHS)
"""What a column can be named as with `columns`, beside a latency such as `p99_ttft`."""

_LATENCY = re.compile(
    r"(?:(?P<before>mean|avg|median|p[0-9]+(?:\.[0-9]+)?)_)?(?P<name>ttft|tpot|itl|e2e)"
    r"(?:_(?P<after>mean|avg|median|p[0-9]+(?:\.[0-9]+)?))?_?(?P<unit>s|ms)?"
)

_SEPARATORS = {";": "semicolons", "\t": "tabs", "|": "upright bars"}


def load_table(
    path: str | os.PathLike[str], columns: Mapping[str, str] | None = None
) -> tuple[LoadRow, ...]:
    """Return the load levels of a CSV with a header, one row a run.

    Columns are known by common names in any case: users (or concurrency) or rate_per_s;
    output_tokens_per_s or requests_per_s; prompt_tokens and output_tokens (means); name; and
    latencies such as ttft_p99_s, median_itl_ms, e2e_mean. A latency ends in _ms where it is in
    milliseconds and is in seconds otherwise. `columns` names others: role -> column, where a role
    is users, rate, tokens, requests, name, prompt_tokens, output_tokens, or a latency as above
    (`{"p99_ttft_ms": "my column"}`). Repeated loads are repeated runs.

    Raises ResultFileError, with the line, for what cannot be read or could mean two things.
    """
    found = checked_path(path)
    try:
        with found.open("rb") as file:
            rows = _rows(file, columns or {}, printable(found.stem))
    except ResultFileError as error:
        raise error.of_file(str(path)) from None
    except OSError as error:
        raise ResultFileError(f"cannot be read ({error})", path=str(path)) from None
    except MemoryError:
        raise ResultFileError("does not fit into memory", path=str(path)) from None
    if not rows:
        raise ResultFileError("holds no row beside its header", path=str(path))
    return tuple(rows)


def is_table(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is a table: by its name, or else because its first line looks like one.

    >>> is_table("sweep.CSV"), is_table("results.jsonl")
    (True, False)
    """
    name = os.fspath(path).lower()
    if name.endswith((".csv", ".json", ".jsonl")):
        return name.endswith(".csv")
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            head = file.read(4096)
    except (OSError, ValueError):
        return False
    first = head.removeprefix(b"\xef\xbb\xbf").lstrip().partition(b"\n")[0]
    words = first[:1].isalnum() or first[:1] in (b'"', b"#", b"_")
    return words and any(sign in first for sign in (b",", b";", b"\t"))


# --- the table -----------------------------------------------------------------------------------


def _rows(file: BinaryIO, columns: Mapping[str, str], stem: str) -> list[LoadRow]:
    rows: list[LoadRow] = []
    reader = csv.reader(_plain_lines(file), strict=True)
    try:
        header = [cell.strip() for cell in next(reader, [])]
        roles = _roles(header, columns)
        for cells in reader:
            at = f"line {reader.line_num}"
            if not any(map(str.strip, cells)):
                continue
            if any(map(str.strip, cells[len(header) :])):
                raise ResultFileError(
                    f"has {len(cells)} cells, but the header names {len(header)} columns; a comma "
                    "inside a number or a name may be too many",
                    at,
                )
            rows.append(_row(cells, header, roles, stem, at))
            if len(rows) > MOST_ROWS:
                raise ResultFileError(f"holds more than {MOST_ROWS:,} rows")
    except csv.Error as fault:
        place = f"line {reader.line_num}"
        raise ResultFileError(f"is no table of commas: {fault}", place) from None
    return rows


def _plain_lines(file: BinaryIO) -> Iterator[str]:
    """Yield lines with their ends, so that a cell over two of them is not read as one number."""
    number = 0
    for line in lines(file):
        for part in line.split("\r"):
            number += 1
            if "\0" in part:
                raise ResultFileError(
                    "holds NUL characters: it is UTF-16 text or no text; save it as UTF-8",
                    f"line {number}",
                )
            yield f"{part}\n"


# --- columns -------------------------------------------------------------------------------------


def _roles(header: Sequence[str], columns: Mapping[str, str]) -> dict[str, int]:
    """Role -> place of its column, by the reader's own words first and by common names then."""
    _check_header(header)
    roles = _named_roles(header, columns)
    named = set(roles)
    taken = set(roles.values())
    lower = [name.lower() for name in header]
    for role, names in COMMON.items():
        known_as = next((name for name in names if name in lower), None)
        if role in named or known_as is None:
            continue
        places = [place for place, name in enumerate(lower) if name == known_as]
        if not taken.isdisjoint(places):
            continue
        if len(places) > 1:
            raise _twice(header, places, role)
        roles[role] = places[0]
    for one, other in (("users", "rate"), ("rate", "users")):
        if one in named and other not in named:
            roles.pop(other, None)
    _add_latencies(roles, header, named)
    _check_roles(roles, header)
    return roles


def _check_header(header: Sequence[str]) -> None:
    if not any(header):
        raise ResultFileError("is empty; its first line should name the columns")
    for sign, name in _SEPARATORS.items():
        if "".join(header).count(sign) >= len(header):
            raise ResultFileError(
                f"is separated by {name}; save it separated by commas, with points in its numbers",
                "line 1",
            )
    counts = Counter(name for name in header if name)
    twice = next((name for name, count in counts.items() if count > 1), None)
    if twice is not None:
        raise ResultFileError(
            f"names the column {excerpt(twice)} twice; give each its own name", "line 1"
        )


def _named_roles(header: Sequence[str], columns: Mapping[str, str]) -> dict[str, int]:
    """The roles that the reader gave, checked; a latency by its words and unit."""
    roles: dict[str, int] = {}
    given: dict[int, str] = {}
    words: set[str] = set()
    for name, column in columns.items():
        role, wanted = name.strip().lower(), column.strip()
        match = _LATENCY.fullmatch(role)
        if role not in ROLES and not match:
            known = ", ".join(ROLES)
            raise ResultFileError(
                f"column role {name!r} is not known; give {known} or a latency as p99_ttft_ms"
            )
        if not wanted or wanted not in header:
            raise ResultFileError(
                f"has no column {excerpt(column)}; it has {_shown(header)}", "line 1"
            )
        place = header.index(wanted)
        means = _words(match) if match else role
        if place in given:
            raise ResultFileError(
                f"the column {excerpt(wanted)} is named as {given[place]} and as {role}; "
                "give each its own column"
            )
        if means in words:
            raise ResultFileError(f"two columns are named as {means}; give one of them")
        words.add(means)
        given[place] = role
        roles[role] = place
    return roles


def _add_latencies(roles: dict[str, int], header: Sequence[str], named: set[str]) -> None:
    """Add the columns named as latencies; those that the reader named win over them."""
    matches = {role: _LATENCY.fullmatch(role) for role in named}
    by_hand = {_words(match) for match in matches.values() if match}
    taken, found = set(roles.values()), dict[str, int]()
    for place, name in enumerate(header):
        match = _LATENCY.fullmatch(name.lower())
        if not match or place in taken:
            continue
        words = _words(match)
        if words in by_hand:
            continue
        if words in found:
            raise _twice(header, [found[words], place], name.lower(), words)
        found[words] = place
        roles[name.lower()] = place


def _twice(
    header: Sequence[str], places: Sequence[int], role: str, words: str = ""
) -> ResultFileError:
    one, other = (excerpt(header[place]) for place in places[:2])
    return ResultFileError(
        f"has the columns {one} and {other}, both {words or role}; take one out, or name the one "
        f"that counts: {role}=COLUMN",
        "line 1",
    )


def _check_roles(roles: Mapping[str, int], header: Sequence[str]) -> None:
    if ("users" in roles) == ("rate" in roles):
        both = "both" if "users" in roles else "neither"
        raise ResultFileError(
            f"has {both} users and a rate among its columns ({_shown(header)}); name the one that "
            "was varied: users=COLUMN or rate=COLUMN",
            "line 1",
        )
    if "tokens" not in roles and "requests" not in roles:
        raise ResultFileError(
            f"has no throughput among its columns ({_shown(header)}); name it: tokens=COLUMN or "
            "requests=COLUMN",
            "line 1",
        )


def _shown(header: Sequence[str]) -> str:
    return ", ".join(excerpt(column) for column in header[:12])


def _words(match: re.Match[str]) -> str:
    """What a latency is called everywhere, as "P99 TTFT"."""
    try:
        which = statistic_named(match["before"] or match["after"] or "mean")
    except ValueError as fault:
        raise ResultFileError(f"the column {excerpt(match[0])}: {fault}", "line 1") from None
    return f"{which} {match['name'].upper()}"


# --- one row -------------------------------------------------------------------------------------


def _row(
    cells: Sequence[str], header: Sequence[str], roles: Mapping[str, int], stem: str, at: str
) -> LoadRow:
    def text(role: str) -> str:
        place = roles.get(role, len(cells))
        return cells[place].strip() if place < len(cells) else ""

    def number(role: str) -> float | None:
        return _number(text(role), header[roles[role]], at) if text(role) else None

    unit = CLOSED if "users" in roles else OPEN
    load = number("users" if unit == CLOSED else "rate")
    if not load:
        raise ResultFileError("has no load above 0", at)
    latencies = {}
    for role in roles:
        match = _LATENCY.fullmatch(role)
        value = number(role) if match else None
        if match and value is not None:
            scale = 1e-3 if match["unit"] == "ms" else 1.0
            latencies[_words(match)] = value * scale
    done, e2e_s = number("requests"), latencies.get("mean E2E")
    name = text("name")
    if len(name) > LONGEST_NAME:
        raise ResultFileError(f"has a name of more than {LONGEST_NAME} characters", at)
    row = LoadRow(
        group=printable(name).strip() or stem,
        place=at,
        unit=unit,
        load=load,
        offered=load,
        output_tokens_per_s=number("tokens"),
        requests_per_s=done,
        in_system=None if done is None or e2e_s is None else done * e2e_s,
        prompt_tokens=number("prompt_tokens"),
        output_tokens=number("output_tokens"),
        latencies=latencies,
    )
    if row.output_tokens_per_s is None and row.requests_per_s is None:
        raise ResultFileError("has no throughput", at)
    return closed_row(row, "mean E2E") if unit == CLOSED else row


def _number(text: str, column: str, at: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    told = f"{printable(column, 60)} is {excerpt(text)}"
    if not math.isfinite(value) or value < 0:
        raise ResultFileError(f"{told}, not a number of at least 0", at)
    if value > LARGEST:
        raise ResultFileError(f"{told}, too large to be meant; at most {LARGEST:g} is read", at)
    if 0 < value < LEAST:
        raise ResultFileError(f"{told}, too small to be meant; 0 or {LEAST:g} and more is read", at)
    return value
