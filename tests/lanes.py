"""How much a run of the tests tries; which test is in which lane is said at the test itself.

    quick    what a maintainer runs before a commit: no test marked `slow`, few random cases
    whole    what `make test` runs: everything that proves that the course works here
    deep     adds the tests marked `deep`, every seed and many random cases

The environment variable COURSE_TESTS names the lane; without it the whole one is run.
"""

from __future__ import annotations

import os
from typing import TypeVar

LANES = ("quick", "whole", "deep")
LANE = os.environ.get("COURSE_TESTS", "whole")
if LANE not in LANES:
    raise ValueError(f"COURSE_TESTS is {LANE!r}; give one of {', '.join(LANES)}")

T = TypeVar("T")


def by_lane(*, quick: T, whole: T, deep: T) -> T:
    """The one of three that belongs to the lane being run."""
    return {"quick": quick, "whole": whole, "deep": deep}[LANE]


def examples(deep: int) -> int:
    """How many random cases to try, where the deep lane tries so many."""
    return min(deep, by_lane(quick=max(deep // 25, 4), whole=max(deep // 4, 20), deep=deep))


def left_out(markers: set[str]) -> bool:
    """Whether a test with these markers is not of the lane being run."""
    return ("deep" in markers and LANE != "deep") or ("slow" in markers and LANE == "quick")
