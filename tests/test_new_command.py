"""`python -m course new` writes what passes the course's own tests; a template that does not would
send every newcomer looking for a fault of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course.paths import ROOT

pytestmark = pytest.mark.slow

TESTS = [
    "tests/ui/test_ch02_two_lanes.py", "tests/ui/test_explorers.py", "tests/notebooks/test_lint.py",
    "tests/exercises/test_matrix.py", "tests/notebooks/test_exercise_cells.py",
]  # fmt: skip
THOSE_OF_IT = "two_lanes or 2.9 or registry or 02_ or mix"


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the repository that a test may change."""
    folder = tmp_path_factory.mktemp("clone")
    left = shutil.ignore_patterns("__pycache__", "artifacts")
    for name in ("course", "data", "docs", "notebooks", "tests"):
        shutil.copytree(ROOT / name, folder / name, ignore=left)
    shutil.copy(ROOT / "pyproject.toml", folder)
    shutil.copy(ROOT / "INSTRUCTOR.md", folder)
    return folder


def run(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(clone), "COURSE_TESTS": "quick"}
    return subprocess.run(
        [sys.executable, "-m", *words], cwd=clone, env=environment, text=True, timeout=240,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, encoding="utf-8",
    )  # fmt: skip


@pytest.mark.deep
def test_what_is_written_passes_the_tests(clone: Path) -> None:
    for words in (
        ("explorer", "two_lanes", "--lesson", "2"),
        ("exercise", "mean_inside", "--lesson", "2"),
    ):
        done = run(clone, "course", "new", *words)
        assert done.returncode == 0, done.stdout
        assert "notebooks/02_mm1_queueing.ipynb" in done.stdout
    for check in (("ruff", "check", "."), ("ruff", "format", "--check", ".")):
        done = run(clone, *check)
        assert done.returncode == 0, done.stdout
    done = run(clone, "pytest", "-q", "-p", "no:benchmark", *TESTS, "-k", THOSE_OF_IT)
    assert done.returncode == 0, done.stdout[-4000:]
    path = clone / "course" / "exercises" / "ch02" / "e9_mean_inside.py"
    source = path.read_text(encoding="utf-8")
    path.write_text(source.replace("A log says", "Somebody's log says"), encoding="utf-8")
    assert run(clone, "pytest", "-q", "-p", "no:benchmark", TESTS[-1]).returncode == 1
    done = run(clone, "course", "new", "cells", "2.9")
    assert done.returncode == 0, done.stdout
    assert run(clone, "pytest", "-q", "-p", "no:benchmark", TESTS[-1]).returncode == 0
    again = run(clone, "course", "new", "explorer", "two_lanes", "--lesson", "2")
    assert again.returncode == 2
    assert "there is an explorer 'two_lanes' already" in again.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("explorer", "Two Lanes", "--lesson", "2"), "give small letters, as in two_queues"),
        (("explorer", "lanes", "--lesson", "12"), "lesson=12 has no notebook; give one of [0, 1"),
        (("exercise", "arrival_cv", "--lesson", "2"), "lesson 2 asks for 'arrival_cv' already"),
    ],
)
def test_bad_words_write_nothing(clone: Path, words: tuple[str, ...], said: str) -> None:
    before = sorted(path for path in clone.rglob("*") if "__pycache__" not in path.parts)
    done = run(clone, "course", "new", *words)
    assert done.returncode == 2
    assert said in " ".join(done.stdout.split())
    after = sorted(path for path in clone.rglob("*") if "__pycache__" not in path.parts)
    assert after == before
