"""Runs the quick lane in a copy whose lines end as on Windows, without what Windows lacks; it finds
what a Linux machine never sees, and is no proof that Windows works: .github/workflows has that.

    python tests/elsewhere.py [tests …]
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LEFT_OUT = (".venv*", ".git", "work", "dist", "build", "__pycache__", ".*_cache", ".hypothesis")
NOT_TEXT = {".png"}


def copy_with_other_lines(here: Path, there: Path) -> None:
    """Copy the course, every line of text with the ending that Windows' editors give it."""
    shutil.copytree(here, there, ignore=shutil.ignore_patterns(*LEFT_OUT))
    for path in there.rglob("*"):
        if path.is_file() and path.suffix not in NOT_TEXT:
            lines = path.read_bytes().replace(b"\r\n", b"\n")
            path.write_bytes(lines.replace(b"\n", b"\r\n"))


def main(wanted: list[str]) -> int:
    """Copy, test, return the tests' status."""
    with tempfile.TemporaryDirectory(prefix="course-elsewhere-") as folder:
        copy = Path(folder) / "course"
        copy_with_other_lines(ROOT, copy)
        path = [str(ROOT / "tests" / "windows"), str(copy)]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "COURSE_TESTS": "quick",
            "COURSE_CACHE_DIR": str(
                ROOT / "course" / "serving" / "__pycache__"
            ),  # compiled already
        }
        tests = wanted or [
            "tests", "--ignore=tests/browser", "--ignore=tests/benchmarks",
            "--ignore=tests/notebooks/test_graded.py",
        ]  # fmt: skip
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "-p", "no:benchmark", *tests]
        return subprocess.call(command, cwd=copy, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
