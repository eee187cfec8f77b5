"""Reads files bit by bit, within limits, whatever is in them; values have no meaning here."""

from __future__ import annotations

import codecs
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from course.serving.results._texts import excerpt
from course.serving.results.nouns import ResultFileError

CHUNK_BYTES = 1 << 20
MAX_FILE_BYTES = 4 << 30
"""A larger file is refused before it is opened."""

MAX_VALUE_CHARS = 256 << 20
"""One JSON value (a line, or an object over many lines) may not be longer: memory holds it."""

MAX_COMMAS = 24_000_000
MAX_BRACKETS = 3_000_000
"""Limits on what takes many times its own length in memory once it is read."""

MAX_LINE_CHARS = 1 << 20
"""A line of a CSV may not be longer."""

_REACH = 16
"""A value cut off by the end of what was read fails within so many characters of that end."""


def checked_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of a plain file of bearable size; raise ResultFileError otherwise."""
    try:
        found = Path(path)
        exists, plain = found.exists(), found.is_file()
        size = found.stat().st_size if plain else 0
    except (OSError, ValueError, TypeError) as error:
        raise ResultFileError(f"cannot be opened ({error})", path=repr(path)) from None
    name = str(path)
    if not exists:
        raise ResultFileError("there is no such file", path=name)
    if not plain:
        raise ResultFileError("is no plain file; give the file itself", path=name)
    if size == 0:
        raise ResultFileError("is empty", path=name)
    if size > MAX_FILE_BYTES:
        limit = f"only files of up to {MAX_FILE_BYTES / 2**30:.0f} GiB are read"
        raise ResultFileError(f"is {size / 2**30:.1f} GiB; {limit}", path=name)
    return found


def text_chunks(file: BinaryIO) -> Iterator[str]:
    """Yield the file's text a mebibyte at a time; ResultFileError where it is not UTF-8."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    read_bytes = 0
    while True:
        data = file.read(CHUNK_BYTES)
        if read_bytes == 0 and data[:2] in (b"\xff\xfe", b"\xfe\xff"):
            raise ResultFileError("is UTF-16 text; save it as UTF-8", "byte 0")
        if read_bytes == 0 and data[:2] == b"\x1f\x8b":
            raise ResultFileError("is compressed (gzip); unpack it first", "byte 0")
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeDecodeError as error:
            kept_back = len(error.object) - len(data)
            at = max(read_bytes - kept_back, 0) + error.start
            raise ResultFileError(
                f"is not UTF-8 text ({error.reason}); save it as UTF-8", f"byte {at}"
            ) from None
        if text:
            yield text
        if not data:
            return
        read_bytes += len(data)


def lines(file: BinaryIO) -> Iterator[str]:
    """Yield the file's lines without their ends; ResultFileError for one that is too long."""
    pending, number = "", 1
    for text in text_chunks(file):
        *whole, pending = (pending + text).split("\n")
        for line in whole:
            yield line.removesuffix("\r")
        number += len(whole)
        if len(pending) > MAX_LINE_CHARS:
            limit = f"is longer than {MAX_LINE_CHARS:,} characters"
            raise ResultFileError(f"the line {limit}", f"line {number}")
    if pending:
        yield pending.removesuffix("\r")


def json_values(file: BinaryIO) -> Iterator[tuple[int, Any]]:
    """Yield (line, value) for each JSON value of the file, one after the other.

    A document, a JSON-lines file and objects simply appended to each other are all read the same
    way: one value at a time, with no more in memory than that value. The bare words NaN and
    Infinity are numbers. Raises ResultFileError, with the line, for anything that is no JSON, for
    a key given twice, and for a value beyond the limits.
    """
    chunks = text_chunks(file)
    text, at, line, ended = "", 0, 1, False
    while True:
        begin = _after_space(text, at)
        line += text.count("\n", at, begin)
        at = begin
        found = _value_at(text, at, line, final=ended) if at < len(text) else None
        if found is None:
            if ended:
                return
            text, ended = _longer(text[at:], chunks, line)
            at = 0
            continue
        value, end = found
        yield line, value
        line += text.count("\n", at, end)
        at = end


def _after_space(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _longer(text: str, chunks: Iterator[str], line: int) -> tuple[str, bool]:
    """Return at least twice the text, so that a long value is not tried at each mebibyte."""
    pieces, length = [text], len(text)
    for piece in chunks:
        pieces.append(piece)
        length += len(piece)
        if length > MAX_VALUE_CHARS + CHUNK_BYTES:
            limit = f"a value of more than {MAX_VALUE_CHARS:,} characters"
            raise ResultFileError(f"holds {limit}", f"line {line}")
        if length >= 2 * len(text):
            return "".join(pieces), False
    return "".join(pieces), True


def _value_at(text: str, at: int, line: int, *, final: bool) -> tuple[Any, int] | None:
    """Return the value that begins at `at` and where it ends; None if more text is needed."""
    if text[at] not in "{[":
        begin = f"holds {excerpt(text[at : at + 60])} where an object or a list should begin"
        raise ResultFileError(begin, f"line {line}")
    if len(text) - at > MAX_BRACKETS and (
        text.count(",", at) > MAX_COMMAS or text.count("{", at) + text.count("[", at) > MAX_BRACKETS
    ):
        raise ResultFileError("holds too many values to be read", f"line {line}")
    try:
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        open_text = error.msg.startswith("Unterminated string")
        if not final and (open_text or error.pos >= len(text) - _REACH):
            return None
        place = f"line {line + text.count(chr(10), at, error.pos)}"
        if final and (open_text or error.pos >= _end_of(text)):
            what = "ends in the middle of a value: it was cut off"
        else:
            said = error.msg[0].lower() + error.msg[1:]
            what = f"is no JSON: {said} at {excerpt(text[error.pos : error.pos + 60])}"
        raise ResultFileError(what, place) from None
    except RecursionError:
        raise ResultFileError("is nested too deep to be a result", f"line {line}") from None
    except ValueError as error:  # a key given twice, or a whole number of thousands of digits
        raise ResultFileError(f"is no JSON to rely on: {error}", f"line {line}") from None


def _end_of(text: str) -> int:
    return len(text.rstrip(" \t\r\n"))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"the key {excerpt(twice)} is given twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
