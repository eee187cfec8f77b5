"""Finds exercises by their id; each chapter's module is imported when first asked for."""

from __future__ import annotations

import difflib
from importlib import import_module
from pkgutil import iter_modules

import course.exercises as package
from course.exercises.definition import Exercise


class UnknownExercise(ValueError):
    """An id that no exercise has; IPython prints it as one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"UnknownExercise: {self}"]


def chapters() -> tuple[int, ...]:
    """The numbers of the chapters that have exercises, in order.

    >>> 2 in chapters()
    True
    """
    names = [module.name for module in iter_modules(package.__path__)]
    return tuple(sorted(int(name[2:]) for name in names if name[:2] == "ch" and name[2:].isdigit()))


def chapter_exercises(chapter: int) -> tuple[Exercise, ...]:
    """The exercises of one chapter in order; none for a chapter that has none.

    Raises ValueError where the module's exercises belong to another chapter or share an id.
    """
    if chapter not in chapters():
        return ()
    module = import_module(f"course.exercises.ch{chapter:02d}")
    exercises: tuple[Exercise, ...] = module.EXERCISES
    ids = [exercise.id for exercise in exercises]
    if len(set(ids)) < len(ids) or any(exercise.chapter != chapter for exercise in exercises):
        raise ValueError(
            f"chapter {chapter} lists the exercises {ids}; give each its own {chapter}.n"
        )
    return exercises


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
