"""The eight exercises of notebook 04, token budgets: four core, four stretch.

The exercises themselves are in the `ch04_` files, each with its references and wrong answers.
"""

from __future__ import annotations

from course.exercises.ch04_memory import MEMORY_EXERCISES
from course.exercises.ch04_order import ORDER_EXERCISES
from course.exercises.ch04_steps import STEP_EXERCISES
from course.exercises.ch04_tokens import TOKEN_EXERCISES

_BY_ID = {
    exercise.id: exercise
    for part in (TOKEN_EXERCISES, MEMORY_EXERCISES, STEP_EXERCISES, ORDER_EXERCISES)
    for exercise in part
}

EXERCISES = tuple(_BY_ID[number] for number in sorted(_BY_ID))
