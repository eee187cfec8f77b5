"""The eight exercises of notebook 01, metrics: four core, four stretch; each is in a `ch01_` file.

The timestamps come from runs of the engine wherever a whole server is needed for them.
"""

from __future__ import annotations

from course.exercises.ch01_audits import AUDIT_EXERCISES
from course.exercises.ch01_bench import BENCH_EXERCISES
from course.exercises.ch01_fair import FAIR_EXERCISES
from course.exercises.ch01_streams import STREAM_EXERCISES

EXERCISES = (*STREAM_EXERCISES, *AUDIT_EXERCISES, *BENCH_EXERCISES, *FAIR_EXERCISES)
