"""Runs the quick lane with the oldest dependencies that `pyproject.toml` allows, in an environment
of its own; a range that nobody has tried is a promise to a student with an older machine.

    python tests/oldest.py          install, then test; what is installed is kept in .venv-oldest
"""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
HOME = ROOT / ".venv-oldest"
BIN = HOME / ("Scripts" if os.name == "nt" else "bin")


def run(*words: str) -> None:
    """Run a command in the repository, and end with its status where it fails."""
    status = subprocess.call([str(word) for word in words], cwd=ROOT)
    if status:
        sys.exit(status)


def main() -> None:
    """Resolve, install, test."""
    venv.create(HOME, with_pip=True, clear=True)
    python, wanted = str(BIN / "python"), str(HOME / "oldest.txt")
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "uv")
    run(python, "-m", "uv", "pip", "compile", "--quiet", "--no-header",
        "--resolution", "lowest-direct", "--extra", "dev", "pyproject.toml",
        "-o", wanted)  # fmt: skip
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted)
    run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps",
        "-e", ".")  # fmt: skip
    os.environ["COURSE_TESTS"] = "quick"
    # older libraries warn of what newer ones have changed
    run(python, "-m", "pytest", "-q", "-n", "2", "-p", "no:benchmark", "-W", "default", "tests",
        "--ignore=tests/browser", "--ignore=tests/benchmarks",
        "--ignore=tests/notebooks/test_graded.py")  # fmt: skip


if __name__ == "__main__":
    main()
