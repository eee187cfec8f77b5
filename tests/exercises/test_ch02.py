"""Right answers of lesson 02's exercises that are found in another way than the reference."""

from __future__ import annotations

import numpy as np

from course.exercises.ch02.e1_mean_in_system import EXERCISE
from course.exercises.judging import judge_answer


def counted_at_a_thousand_instants(arrival_s, departure_s, window_s):  # type: ignore[no-untyped-def]
    """Looks 1,000 times, evenly, and takes the mean of what it counts."""
    looks_s = (np.arange(1_000) + 0.5) * window_s / 1_000
    inside = (arrival_s <= looks_s[:, None]) & (departure_s > looks_s[:, None])
    return float(inside.sum(axis=1).mean())


def test_counting_at_many_instants_passes() -> None:
    assert judge_answer(EXERCISE, counted_at_a_thousand_instants).status == "passed"
