"""The eight exercises of notebook 03, batching: four core, four stretch; each is in a `ch03_` file.

The engine makes the inputs or plays the answers wherever a whole server is needed for them.
"""

from __future__ import annotations

from course.exercises.ch03_layout import LAYOUT_EXERCISES
from course.exercises.ch03_money import MONEY_EXERCISES
from course.exercises.ch03_step import STEP_EXERCISES
from course.exercises.ch03_ways import WAYS_EXERCISES

EXERCISES = tuple(
    sorted(
        (*STEP_EXERCISES, *WAYS_EXERCISES, *MONEY_EXERCISES, *LAYOUT_EXERCISES),
        key=lambda exercise: exercise.id,
    )
)
