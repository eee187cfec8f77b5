"""What all tests share: lanes, the browser's fixtures, a home that no test leaves traces in."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.lanes import by_lane, left_out

# The same cases in every run, so that a red test is red tomorrow too;
# HYPOTHESIS_PROFILE=explore looks for new ones.
CASES = by_lane(quick=8, whole=50, deep=200)
settings.register_profile("repeatable", derandomize=True, deadline=None, max_examples=CASES)
settings.register_profile("explore", deadline=None, max_examples=CASES)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

pytest_plugins = ["tests.browser.fixtures"]

# A test run is no student: it writes no progress and needs no guess.
os.environ.setdefault("COURSE_PROGRESS", "off")
# What the tests' own processes print is read as UTF-8, on Windows too.
os.environ.setdefault("PYTHONIOENCODING", "utf-8")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of this lane; a test asked for by its own name is always run."""
    if any("::" in word for word in config.invocation_params.args if isinstance(word, str)):
        return
    out = [item for item in items if left_out({mark.name for mark in item.iter_markers()})]
    if out:
        config.hook.pytest_deselected(items=out)
        kept = set(map(id, items)) - set(map(id, out))
        items[:] = [item for item in items if id(item) in kept]
