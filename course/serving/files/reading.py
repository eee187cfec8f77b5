"""Reads files bit by bit, within limits, whatever is in them; values have no meaning here."""

from __future__ import annotations

import codecs
import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from course.serving.files.errors import ResultFileError
from course.serving.files.texts import excerpt

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

UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
GZIP_MARK = b"\x1f\x8b"
BINARY_SIGNS = (*UTF16_MARKS, GZIP_MARK)
"""First two bytes of a file whose reader has its own words for it."""

_REACH = 16
"""A value cut off by the end of what was read fails within so many characters of that end."""

_BLOCK = 1 << 16
_SPACE = re.compile(r"[ \t\r\n]*")


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
        if read_bytes == 0 and data[:2] in UTF16_MARKS:
            raise ResultFileError("is UTF-16 text; save it as UTF-8", "byte 0")
        if read_bytes == 0 and data[:2] == GZIP_MARK:
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
    pieces = _Pieces(text_chunks(file))
    text, at, line, ended, cut = "", 0, 1, False, False
    while True:
        begin = _after_space(text, at)
        line += text.count("\n", at, begin)
        at = begin
        found = _value_at(text, at, line, final=ended) if at < len(text) else None
        if found is None:
            if ended:
                return
            if cut and at == 0:
                raise ResultFileError("holds too many values to be read", f"line {line}")
            text, ended = _longer(text[at:], pieces, line)
            at, reach = 0, _reach(text)
            cut = reach < len(text)
            if cut:
                pieces.put_back(text[reach:])
                text, ended = text[:reach], False
            continue
        value, end = found
        yield line, value
        line += text.count("\n", at, end)
        at = end


class _Pieces:
    """The file's text piece by piece; what was taken too much can be put back."""

    def __init__(self, pieces: Iterator[str]) -> None:
        self.pieces = pieces
        self.back: list[tuple[str, int]] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if not self.back:
            return next(self.pieces)
        text, at = self.back.pop()
        if at + CHUNK_BYTES < len(text):
            self.back.append((text, at + CHUNK_BYTES))
        return text[at : at + CHUNK_BYTES]

    def put_back(self, text: str) -> None:
        """Have `text` come first again."""
        self.back.append((text, 0))


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _longer(text: str, pieces: Iterator[str], line: int) -> tuple[str, bool]:
    """Return at least twice the text, so that a long value is not tried at each mebibyte."""
    if len(text) >= MAX_VALUE_CHARS:
        limit = f"a value of more than {MAX_VALUE_CHARS:,} characters"
        raise ResultFileError(f"holds {limit}; give one run a line, or fewer", f"line {line}")
    found, length = [text], len(text)
    for piece in pieces:
        found.append(piece)
        length += len(piece)
        if length >= min(2 * len(text), MAX_VALUE_CHARS):
            return "".join(found), False
    return "".join(found), True


def _reach(text: str) -> int:
    """Return how far a text is within the limits on values.

    Asked once for each text in memory, not for each value in it: many small values after a long
    one would otherwise be counted as often as there are of them.
    """
    if len(text) <= min(MAX_COMMAS, MAX_BRACKETS):
        return len(text)
    commas = brackets = 0
    for begin in range(0, len(text), _BLOCK):
        end = begin + _BLOCK
        commas += text.count(",", begin, end)
        brackets += text.count("{", begin, end) + text.count("[", begin, end)
        if commas > MAX_COMMAS or brackets > MAX_BRACKETS:
            return begin
    return len(text)


def _value_at(text: str, at: int, line: int, *, final: bool) -> tuple[Any, int] | None:
    """Return the value that begins at `at` and where it ends; None if more text is needed."""
    if text[at] not in "{[":
        begin = f"holds {excerpt(text[at : at + 60])} where an object or a list should begin"
        raise ResultFileError(begin, f"line {line}")
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
    except _GivenTwice as error:
        raise ResultFileError(f"is no JSON to rely on: {error}", f"line {line}") from None
    except ValueError:  # the interpreter's own limit; its words tell how to lift it
        digits = "it holds a whole number of thousands of digits, which nothing measured has"
        raise ResultFileError(f"is no JSON to rely on: {digits}", f"line {line}") from None


def _end_of(text: str) -> int:
    return len(text.rstrip(" \t\r\n"))


class _GivenTwice(ValueError):
    """A key that stands twice in one object."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise _GivenTwice(f"the key {excerpt(twice)} is given twice")
    return found


_DECODER = json.JSONDecoder(object_pairs_hook=_unique)
