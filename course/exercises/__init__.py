"""Exercises: `check`, `hint` and `progress` for students, and what exercises are built with.

Each exercise stands in a file of its own, `chNN/eN_….py`.
"""

from __future__ import annotations

from course.exercises.build import (
    choice_exercise,
    function_exercise,
    judged_exercise,
    value_exercise,
)
from course.exercises.checking import ExerciseNotPassed, check, hint, progress
from course.exercises.definition import TODO, Exercise, Unacceptable, Verdict, Wrong
from course.exercises.registry import UnknownExercise, all_exercises, exercise

__all__ = [
    "TODO",
    "Exercise",
    "ExerciseNotPassed",
    "Unacceptable",
    "UnknownExercise",
    "Verdict",
    "Wrong",
    "all_exercises",
    "check",
    "choice_exercise",
    "exercise",
    "function_exercise",
    "hint",
    "judged_exercise",
    "progress",
    "value_exercise",
]
