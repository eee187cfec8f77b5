"""The table of lessons: number, title and file of each notebook; nothing about what they teach."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import PurePath


@dataclass(frozen=True)
class Lesson:
    """One notebook of the course.

    >>> LESSONS[2]
    Lesson(number=2, title='M/M/1 queueing', stem='02_mm1_queueing')
    """

    number: int
    title: str
    stem: str


LESSONS: tuple[Lesson, ...] = (
    Lesson(0, "Start here", "00_start_here"),
    Lesson(1, "Metric definitions", "01_metric_definitions"),
    Lesson(2, "M/M/1 queueing", "02_mm1_queueing"),
    Lesson(3, "Batching economics", "03_batching_economics"),
    Lesson(4, "Token budgets", "04_token_budgets"),
    Lesson(5, "Admission control", "05_admission_control"),
    Lesson(6, "Capacity knees", "06_capacity_knees"),
    Lesson(7, "Isolation and priority", "07_isolation_and_priority"),
    Lesson(8, "Autoscaling and safe roll-out", "08_autoscaling_and_safe_rollout"),
    Lesson(9, "Tuning case studies", "09_tuning_case_studies"),
    Lesson(10, "Measure a real GPU", "10_measure_a_gpu"),
)

_NUMBERED = re.compile(r"(\d{2})_")


def lesson_number(filename: str | PurePath) -> int | None:
    """The lesson that a notebook's file name starts with, or None.

    A copy keeps its number: "02_mm1_queueing (Ada).ipynb" is lesson 2.

    >>> lesson_number("work/02_mm1_queueing.ipynb"), lesson_number("notes.ipynb")
    (2, None)
    """
    match = _NUMBERED.match(PurePath(filename).name)
    if match is None or int(match[1]) not in {lesson.number for lesson in LESSONS}:
        return None
    return int(match[1])
