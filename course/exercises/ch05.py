"""The eight exercises of notebook 05, admission control: four core, four stretch.

The exercises themselves are in the `ch05_` files, each with its references and wrong answers.
"""

from __future__ import annotations

from course.exercises.ch05_bucket import BUCKET_EXERCISES
from course.exercises.ch05_gate import GATE_EXERCISES
from course.exercises.ch05_overload import OVERLOAD_EXERCISES
from course.exercises.ch05_policy import POLICY_EXERCISES
from course.exercises.ch05_tipping import TIPPING_EXERCISES

EXERCISES = (
    *OVERLOAD_EXERCISES,
    *TIPPING_EXERCISES,
    *GATE_EXERCISES,
    *BUCKET_EXERCISES,
    *POLICY_EXERCISES,
)
