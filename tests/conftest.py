"""What all tests share: the browser's fixtures, and a home that no test leaves traces in."""

from __future__ import annotations

import os

pytest_plugins = ["tests.browser.fixtures"]

# A test run is no student: it writes no progress and needs no guess.
os.environ.setdefault("COURSE_PROGRESS", "off")
