"""Tells whether the checking code is still the course's own after a student's cells have run.

A student's code shares its kernel with the check, so it could change the check. This makes such a
change evident: a digest of the checking functions is taken in the kernel at the end and compared
with one taken in the grader's own process. It is evidence, not proof.
"""

from __future__ import annotations

import hashlib
import inspect
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

from course.exercises import registry

ATTEST_MIME = "application/vnd.course.attest+json"

_MODULES = ("definition", "values", "diagnosis", "sandbox", "judging", "checking", "registry")


def digest(chapter: int) -> str:
    """A digest of the checking code and of one chapter's exercises, as they are in this process.

    >>> digest(2) == digest(2) != digest(0)
    True
    """
    parts: list[str] = []
    for name in _MODULES:
        module = import_module(f"course.exercises.{name}")
        for key, value in sorted(vars(module).items()):
            parts += _described(f"{name}.{key}", value, module.__name__)
    for exercise in registry.chapter_exercises(chapter):
        parts.append(f"{exercise.id} {exercise.answer_name} {exercise.check_source}")
        parts += _described(exercise.id, exercise.reference, None)
        parts += _judge_parts(exercise.id, exercise.judge)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def report(check: Any, chapter: int) -> None:
    """Display the digest, and whether `check` is the course's own, for the grader to read."""
    from IPython.display import display

    from course.exercises import checking

    ours = check is checking.check
    said = {"digest": digest(chapter), "check_is_ours": ours}
    display({ATTEST_MIME: said, "text/plain": ""}, raw=True)


def cell_source(chapter: int) -> str:
    """The cell that the grader appends to a notebook of `chapter`."""
    return (
        "import course.exercises.attest as _attest\n"
        f'_attest.report(globals().get("check"), {chapter})'
    )


def _judge_parts(name: str, judge: Any) -> list[str]:
    parts: list[str] = [f"{name} {type(judge).__module__}.{type(judge).__qualname__}"]
    for key in ("cases", "observe", "accept", "judge", "reference"):
        parts += _described(f"{name}.{key}", getattr(judge, key, None), None)
    return parts


def _described(name: str, value: Any, module: str | None) -> list[str]:
    """The code of a function, or of a class's methods where the module defines them."""
    if isinstance(value, FunctionType):
        inner = inspect.unwrap(value)  # a decorator's wrapper is the same whatever it wraps
        return [f"{name} {_code(part.__code__)}" for part in (value, inner)]
    if isinstance(value, type) and value.__module__ == module:
        return [
            line
            for key, member in sorted(vars(value).items())
            if isinstance(member, FunctionType)
            for line in _described(f"{name}.{key}", member, module)
        ]
    return []


def _code(code: CodeType) -> str:
    """A code object's text form; the same in two processes of one Python."""
    constants = [
        _code(constant) if isinstance(constant, CodeType) else _stable(constant)
        for constant in code.co_consts
    ]
    return f"{code.co_code.hex()} {code.co_names} {constants}"


def _stable(constant: object) -> str:
    # the order of a set of strings differs between processes
    if isinstance(constant, frozenset):
        return repr(sorted(map(repr, constant)))
    return repr(constant)
