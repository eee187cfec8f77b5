"""Reads a reader's own table of load levels, a plain CSV; which tool wrote it does not matter."""

from __future__ import annotations

import csv
import math
import os
import re
from collections.abc import Mapping

from course.serving.load_rows import CLOSED, OPEN, LoadRow, closed_row
from course.serving.results._files import checked_path
from course.serving.results._texts import excerpt
from course.serving.results.nouns import ResultFileError

MOST_ROWS = 20_000

USERS = ("users", "concurrency", "max_concurrency", "clients")
RATES = ("rate", "rate_per_s", "request_rate", "offered_per_s", "asked_per_s", "qps", "rps")
TOKENS = ("output_tokens_per_s", "tokens_per_s", "output_throughput", "tok_s", "throughput")
REQUESTS = ("requests_per_s", "request_throughput", "completed_per_s")
LENGTHS = {
    "prompt_tokens": ("prompt_tokens", "input_tokens"),
    "output_tokens": ("output_tokens", "answer_tokens"),
}
GROUPS = ("name", "group", "model", "dataset", "config")

ROLES = ("users", "rate", "tokens", "requests", "name", *LENGTHS)
"""What a column can be named as with `columns`, beside a latency such as `p99_ttft`."""

_LATENCY = re.compile(
    r"^(?:(?P<before>mean|avg|median|p\d+(?:\.\d+)?)_)?(?P<name>ttft|tpot|itl|e2e)"
    r"(?:_(?P<after>mean|avg|median|p\d+(?:\.\d+)?))?_?(?P<unit>s|ms)?$"
)


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

    Raises ResultFileError, with the line, for what cannot be read.
    """
    found = checked_path(path)
    try:
        with found.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            roles = _roles(list(reader.fieldnames or []), columns or {})
            rows = []
            for line in reader:
                rows.append(_row(line, roles, found.stem, f"line {reader.line_num}"))
                if len(rows) > MOST_ROWS:
                    raise ResultFileError(f"holds more than {MOST_ROWS:,} rows")
    except ResultFileError as error:
        raise error.of_file(str(path)) from None
    except (OSError, UnicodeError, csv.Error) as error:
        raise ResultFileError(f"cannot be read ({error})", path=str(path)) from None
    if not rows:
        raise ResultFileError("holds no row beside its header", path=str(path))
    return tuple(rows)


def is_table(path: str | os.PathLike[str]) -> bool:
    """Return whether a file is named as a table.

    >>> is_table("sweep.CSV"), is_table("results.jsonl")
    (True, False)
    """
    return os.fspath(path).lower().endswith(".csv")


def _roles(header: list[str], columns: Mapping[str, str]) -> dict[str, str]:
    """Role -> column, by the reader's own words first and by common names after that."""
    if not header:
        raise ResultFileError("is empty; its first line should name the columns")
    roles = {}
    for role, column in columns.items():
        if role not in ROLES and not _LATENCY.match(role.lower()):
            known = ", ".join(ROLES)
            raise ResultFileError(
                f"column role {role!r} is not known; give {known} or a latency as p99_ttft_ms"
            )
        if column not in header:
            raise ResultFileError(f"has no column {column!r}; it has {_named(header)}", "line 1")
        roles[role.lower()] = column
    taken = set(roles.values())
    common = {
        "users": USERS, "rate": RATES, "tokens": TOKENS, "requests": REQUESTS, "name": GROUPS,
        **LENGTHS,
    }  # fmt: skip
    lower = {column.strip().lower(): column for column in reversed(header)}
    for role, names in common.items():
        known_as = next((lower[name] for name in names if name in lower), None)
        if role not in roles and known_as is not None and known_as not in taken:
            roles[role] = known_as
    for name, column in lower.items():
        if _LATENCY.match(name) and column not in taken:
            roles.setdefault(name, column)
    if "users" in columns and "rate" not in columns:
        roles.pop("rate", None)
    if ("users" in roles) == ("rate" in roles):
        both = "both" if "users" in roles else "neither"
        raise ResultFileError(
            f"has {both} users and a rate among its columns ({_named(header)}); name the one that "
            "was varied: users=COLUMN or rate=COLUMN",
            "line 1",
        )
    if "tokens" not in roles and "requests" not in roles:
        raise ResultFileError(
            f"has no throughput among its columns ({_named(header)}); name it: tokens=COLUMN or "
            "requests=COLUMN",
            "line 1",
        )
    return roles


def _named(header: list[str]) -> str:
    return ", ".join(excerpt(column) for column in header[:12])


def _row(line: Mapping[str, str | None], roles: Mapping[str, str], stem: str, at: str) -> LoadRow:
    def number(role: str) -> float | None:
        column = roles.get(role)
        text = (line.get(column) or "").strip() if column else ""
        if not text:
            return None
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0:
            raise ResultFileError(f"{column} is {excerpt(text)}, not a number of at least 0", at)
        return value

    unit = CLOSED if "users" in roles else OPEN
    load = number("users" if unit == CLOSED else "rate")
    if not load:
        raise ResultFileError("has no load above 0", at)
    latencies = {}
    for role in roles:
        match = _LATENCY.match(role)
        value = number(role) if match else None
        if match and value is not None:
            scale = 1e-3 if match["unit"] == "ms" else 1.0
            latencies[_words(match)] = value * scale
    done, e2e_s = number("requests"), latencies.get("mean E2E")
    name = (line.get(roles["name"]) or "").strip() if "name" in roles else ""
    row = LoadRow(
        group=name or stem,
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


def _words(match: re.Match[str]) -> str:
    which = match["before"] or match["after"] or "mean"
    which = {"avg": "mean", "p50": "median"}.get(which, which)
    return f"{which.upper() if which.startswith('p') else which} {match['name'].upper()}"
