"""What all tests share: the browser's fixtures, and a home that no test leaves traces in."""

from __future__ import annotations

import os

from hypothesis import settings

# The same cases in every run, so that a red test is red tomorrow too;
# HYPOTHESIS_PROFILE=explore looks for new ones.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

pytest_plugins = ["tests.browser.fixtures"]

# A test run is no student: it writes no progress and needs no guess.
os.environ.setdefault("COURSE_PROGRESS", "off")
