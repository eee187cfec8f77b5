"""Where the course's own files lie, in a clone or installed; nothing is read or written here."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIPPED = Path(__file__).resolve().parent / "shipped"
"""What a wheel brings beside the code (pyproject.toml maps it there); a clone does not have it."""

INSTALLED = SHIPPED.is_dir()
"""Whether this is a wheel's copy, whose own files nobody may change, and no clone."""

NOTEBOOKS = (SHIPPED if INSTALLED else ROOT) / "notebooks"
DATA = (SHIPPED if INSTALLED else ROOT) / "data"


def _work() -> Path:
    named = os.environ.get("COURSE_WORK", "").strip()
    if named:
        return Path(named).absolute()
    return (Path.cwd() if INSTALLED else ROOT) / "work"


WORK = _work()
"""A student's folder: the one that COURSE_WORK names, else `work` in the clone, else `work` in the
current directory. What `lab` starts is told by COURSE_WORK."""


def need_clone(what: str) -> None:
    """Raise ValueError in a wheel's copy, where `what` would change the course's own files."""
    if INSTALLED:
        raise ValueError(f"{what} changes the course's own files; use it in a clone of the course")
