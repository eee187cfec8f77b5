"""Finds exercises by their id: a file each; a chapter's are imported when first asked for."""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib import import_module
from itertools import pairwise
from pkgutil import iter_modules

import course.exercises as package
from course.exercises.definition import Exercise

_CHAPTER = re.compile(r"ch\d\d")
_FILE = re.compile(r"e(\d+)_")


class UnknownExercise(ValueError):
    """An id that no exercise has; IPython prints it as one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"UnknownExercise: {self}"]


def chapters() -> tuple[int, ...]:
    """The numbers of the chapters that have exercises, in order.

    >>> 2 in chapters()
    True
    """
    found = [module for module in iter_modules(package.__path__) if _CHAPTER.fullmatch(module.name)]
    return tuple(sorted(int(module.name[2:]) for module in found if module.ispkg))


@cache
def chapter_exercises(chapter: int) -> tuple[Exercise, ...]:
    """The exercises of one chapter in order; none for a chapter that has none.

    Each stands in a file `eN_….py` of the chapter's folder, as its `EXERCISE`. Raises ValueError
    for a file without one, for one whose id is not that of its chapter and file, and for two files
    of one number.
    """
    if chapter not in chapters():
        return ()
    folder = import_module(f"course.exercises.ch{chapter:02d}")
    names = [module.name for module in iter_modules(folder.__path__)]
    files = [(int(found[1]), name) for name in names if (found := _FILE.match(name))]
    for (number, name), (other, twin) in pairwise(sorted(files)):
        if number == other:
            raise ValueError(
                f"{folder.__name__} has {name} and {twin}; give one of them another number"
            )
    return tuple(_of_file(folder.__name__, name, chapter, number) for number, name in sorted(files))


def _of_file(folder: str, name: str, chapter: int, number: int) -> Exercise:
    found = getattr(import_module(f"{folder}.{name}"), "EXERCISE", None)
    if not isinstance(found, Exercise) or found.id != f"{chapter}.{number}":
        was = f"holds the exercise {found.id}" if isinstance(found, Exercise) else "holds none"
        raise ValueError(
            f"{folder}.{name} {was}; give its EXERCISE the id {chapter}.{number}, or the file "
            "another number"
        )
    return found


def all_exercises() -> tuple[Exercise, ...]:
    """Every exercise of every chapter, in order."""
    return tuple(exercise for chapter in chapters() for exercise in chapter_exercises(chapter))


def exercise(exercise_id: str) -> Exercise:
    """The exercise of an id such as "2.3".

    Raises UnknownExercise (a ValueError) that names the nearest ids.

    >>> exercise("2.2").answer_name
    'sojourn_percentile'
    >>> exercise("2.9")
    Traceback (most recent call last):
    ...
    course.exercises.registry.UnknownExercise: no exercise has the id '2.9'; the nearest are ...
    """
    wanted = str(exercise_id).strip()
    number = wanted.partition(".")[0]
    if number.isdigit():
        for candidate in chapter_exercises(int(number)):
            if candidate.id == wanted:
                return candidate
    ids = [known.id for known in all_exercises()]
    near = difflib.get_close_matches(wanted, ids, n=4, cutoff=0.3) or ids[:4]
    raise UnknownExercise(
        f"no exercise has the id {exercise_id!r}; the nearest are {', '.join(sorted(near))}. "
        'Give the id as text, as in check("2.3", answer).'
    )
