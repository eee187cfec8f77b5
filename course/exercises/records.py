"""Keeps a person's progress in one local file; how it is shown is in `cards`.

The file is written whole to a temporary one and renamed, so that it is never half there. A damaged
one is set aside, never overwritten; where nothing can be written the records live as long as the
kernel. `COURSE_PROGRESS` names another file, or says "off": then nothing is read or written.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

SCHEMA = 1
FILE_NAME = ".course_progress.json"
DISTINCT_ANSWERS_FOR_REFERENCE = 3
_KEPT_ANSWERS = 20
_LOCK_WAIT_S = 1.0
_LOCK_STALE_S = 10.0

# Records of a kernel whose folder cannot be written: they end with it.
_unsaved: dict[Path, dict[str, Record]] = {}


@dataclass(frozen=True)
class Record:
    """What is kept of one exercise.

    `attempts` counts judged answers, `answers` the fingerprints of distinct ones (oldest first),
    `hints_shown` the general hints already read; `passed_at` is an ISO time, or None.

    >>> Record(attempts=1, answers=("a", "b", "c")).reference_unlocked
    True
    """

    attempts: int = 0
    answers: tuple[str, ...] = ()
    hints_shown: int = 0
    passed_at: str | None = None

    @property
    def passed(self) -> bool:
        """Whether the exercise was ever passed."""
        return self.passed_at is not None

    @property
    def reference_unlocked(self) -> bool:
        """Whether the course's answer may be shown: after success or three distinct answers."""
        return self.passed or len(self.answers) >= DISTINCT_ANSWERS_FOR_REFERENCE

    def hints_unlocked(self, available: int) -> int:
        """How many of the general hints may be read: one an attempt."""
        return available if self.passed else min(available, self.attempts)


class _NewerSchemaError(Exception):
    """The file was written by a later version of the course."""


def progress_path() -> Path | None:
    """The file in force, or None where progress is off."""
    chosen = os.environ.get("COURSE_PROGRESS", "").strip()
    if chosen.lower() == "off":
        return None
    return Path(chosen) if chosen else Path.cwd() / FILE_NAME


def after_check(record: Record, fingerprint: str, passed: bool) -> Record:
    """The record with one more judged answer in it; what was no answer is not counted.

    >>> after_check(Record(), "f00", passed=False)
    Record(attempts=1, answers=('f00',), hints_shown=0, passed_at=None)
    """
    if not fingerprint:
        return record
    answers = record.answers
    if fingerprint not in answers:
        answers = (*answers, fingerprint)[:_KEPT_ANSWERS]
    now = datetime.now(UTC).isoformat(timespec="seconds") if passed else None
    return replace(
        record,
        attempts=record.attempts + 1,
        answers=answers,
        passed_at=record.passed_at or now,
    )


def records() -> tuple[Mapping[str, Record], str]:
    """All records, and a sentence for the person where something is amiss (else "")."""
    path = progress_path()
    if path is None:
        return {}, ""
    if path in _unsaved:
        return dict(_unsaved[path]), _cannot_write(path)
    found, _, note = _load_or_set_aside(path)
    return found, note


def update(exercise_id: str, change: Callable[[Record], Record]) -> tuple[Record, str]:
    """Change one exercise's record and save; the new record and a sentence or "".

    Raises nothing for the file's sake: what cannot be read or written is said in the sentence.
    """
    path = progress_path()
    if path is None:
        return change(Record()), ""
    with _locked(path):
        if path in _unsaved:
            found, writable, note = _unsaved[path], True, ""
        else:
            found, writable, note = _load_or_set_aside(path)
        old = found.get(exercise_id, Record())
        record = change(old)
        if record == old:
            return record, note
        changed = {**found, exercise_id: record}
        if writable and _save(path, changed):
            _unsaved.pop(path, None)
            return record, note
    _unsaved[path] = changed
    return record, note or _cannot_write(path)


def _cannot_write(path: Path) -> str:
    return (
        f"Progress cannot be written to {path.parent}: it is kept only until this kernel stops. "
        "Set COURSE_PROGRESS to a file that you may write."
    )


def _load_or_set_aside(path: Path) -> tuple[dict[str, Record], bool, str]:
    """The records, whether the file may be replaced, and a sentence or ""."""
    try:
        return _load(path), True, ""
    except FileNotFoundError:
        return {}, True, ""
    except _NewerSchemaError:
        note = (
            f"{path.name} was written by a later version of the course: it is left alone, and "
            "progress is kept only until this kernel stops. Update the course."
        )
        return {}, False, note
    except OSError as error:
        why = error.strerror or type(error).__name__
        return (
            {},
            False,
            f"{path.name} cannot be read ({why}): progress is kept only until the kernel stops.",
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}, *_set_aside(path)


def _load(path: Path) -> dict[str, Record]:
    stored = json.loads(path.read_text(encoding="utf-8"))
    if int(stored["schema"]) > SCHEMA:
        raise _NewerSchemaError
    return {str(key): _record(value) for key, value in stored["exercises"].items()}


def _record(stored: Mapping[str, Any]) -> Record:
    passed_at = stored["passed_at"]
    return Record(
        attempts=int(stored["attempts"]),
        answers=tuple(str(answer) for answer in stored["answers"]),
        hints_shown=int(stored["hints_shown"]),
        passed_at=None if passed_at is None else str(passed_at),
    )


def _set_aside(path: Path) -> tuple[bool, str]:
    """Rename a damaged file to the first free name; whether a new one may be written."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    try:
        path.rename(aside)
    except OSError:
        return False, f"{path.name} is damaged and cannot be moved: progress is not saved."
    return True, f"{path.name} was damaged: it is set aside as {aside.name}, and a new one begun."


def _save(path: Path, changed: Mapping[str, Record]) -> bool:
    """Write the whole file beside it and rename; whether that worked."""
    content = {
        "schema": SCHEMA,
        "exercises": {
            key: {
                "attempts": record.attempts,
                "answers": list(record.answers),
                "hints_shown": record.hints_shown,
                "passed_at": record.passed_at,
            }
            for key, record in sorted(changed.items())
        },
    }
    temporary = None
    try:
        handle, temporary = tempfile.mkstemp(prefix=path.name, suffix=".new", dir=path.parent)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        if temporary is not None:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return False
    return True


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Two notebooks of one folder may check at once: one at a time reads, changes and writes.

    A lock that cannot be had is done without: a lost count is better than a stuck notebook.
    """
    lock = path.with_name(path.name + ".lock")
    ends = time.monotonic() + _LOCK_WAIT_S
    held = False
    while not held and time.monotonic() < ends:
        try:
            os.close(os.open(lock, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
            held = True
        except FileExistsError:
            _remove_stale(lock)
            time.sleep(0.01)
        except OSError:
            break
    try:
        yield
    finally:
        if held:
            with contextlib.suppress(OSError):
                lock.unlink()


def _remove_stale(lock: Path) -> None:
    with contextlib.suppress(OSError):
        if time.time() - lock.stat().st_mtime > _LOCK_STALE_S:
            lock.unlink()
