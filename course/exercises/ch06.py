"""The eight exercises of notebook 06, capacity knees: four core, four stretch.

The exercises themselves are in the `ch06_` files, each with its references and wrong answers.
"""

from __future__ import annotations

from course.exercises.ch06_curves import CURVE_EXERCISES
from course.exercises.ch06_fleet import FLEET_EXERCISES
from course.exercises.ch06_lengths import LENGTH_EXERCISES
from course.exercises.ch06_results import RESULT_EXERCISES
from course.exercises.ch06_setting import SETTING_EXERCISES

EXERCISES = (
    *CURVE_EXERCISES,
    *FLEET_EXERCISES,
    *RESULT_EXERCISES,
    *LENGTH_EXERCISES,
    *SETTING_EXERCISES,
)
