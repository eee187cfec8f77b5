"""The arrows between the rooms of the course run one way; otherwise a change to a picture could
change a number, and a student could not find a number's origin in two jumps.

The contracts stand in `pyproject.toml`, import-linter holds them.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
COURSE = ROOT / "course"
HEAVY = ("scipy.stats", "altair", "torch", "numba", "pandas", "matplotlib", "ipywidgets", "scipy")


def linted(folder: Path) -> subprocess.CompletedProcess[str]:
    """import-linter's word on the package `course` in a folder."""
    code = "import sys; from importlinter.cli import lint_imports_command as c; c()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache", "--no-logo"], cwd=folder, encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"}, timeout=120,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package that a test may spoil."""
    folder = tmp_path_factory.mktemp("house")
    shutil.copytree(COURSE, folder / "course", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def test_imports_run_one_way_and_in_no_circle() -> None:
    found = linted(ROOT)
    assert found.returncode == 0, found.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "line", "contract"),
    [
        ("serving/catalog/tables.py", "from course.serving.catalog import entries", "circle"),
        ("serving/requests/timelines.py", "from course.serving.engine import Run", "wings"),
        ("serving/load/knees.py", "from course.figures import knee", "rooms"),
    ],
    ids=["circle", "wings", "rooms"],
)
def test_an_import_hidden_in_a_function_is_found(
    copied: Path, module: str, line: str, contract: str
) -> None:
    """A circle hidden in a function still ties two modules together for whoever reads them."""
    path = copied / "course" / module
    clean = path.read_text(encoding="utf-8")
    path.write_text(f"{clean}\n\ndef late() -> None:\n    {line}\n", encoding="utf-8")
    try:
        found = linted(copied)
    finally:
        path.write_text(clean, encoding="utf-8")
    assert found.returncode == 1, found.stdout
    broken = [line for line in found.stdout.splitlines() if line.endswith("BROKEN")]
    words = {"circle": "import one another", "wings": "wings", "rooms": "rooms"}
    assert any(words[contract] in line for line in broken), found.stdout


def test_a_wing_is_asked_at_its_address() -> None:
    """Whoever reaches past a wing's `__init__` breaks when the wing is tidied up."""
    broken = []
    wings = {path.name for path in (COURSE / "serving").iterdir() if path.is_dir()}
    for path in COURSE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.ImportFrom):
                continue
            assert node.level == 0, f"{path}: relative import; write it out from `course`"
            parts = (node.module or "").split(".")
            if parts[:2] != ["course", "serving"] or len(parts) < 4 or parts[2] not in wings:
                continue
            at_home = (COURSE / "serving" / parts[2]) in path.parents
            if not at_home and parts[2] != "scenes":  # each scene is an address of its own
                broken.append(f"{path.relative_to(ROOT)}:{node.lineno} imports {node.module}")
    assert not broken, "\n".join(broken)


def test_files_are_read_only_in_their_places() -> None:
    """A model that reads a file somewhere deep cannot be called with other numbers."""
    for path in (COURSE / "serving").rglob("*.py"):
        if (
            path.parent.name in {"catalog", "files", "results", "traces"}
            or path.stem == "_compiled"
        ):
            continue
        source = path.read_text(encoding="utf-8")
        tree = ast.parse(source)
        calls = {
            node.func.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert "open" not in calls, f"{path} opens a file"
        assert "read_text" not in source, f"{path} reads a file"


def test_import_course_loads_nothing_heavy() -> None:
    """A slow `import course` is the first thing a student meets."""
    code = f"import course, sys; print(','.join(m for m in {HEAVY!r} if m in sys.modules))"
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
        timeout=60,
    )
    assert result.stdout.strip() == ""


def test_every_public_name_loads() -> None:
    import course

    for name in course.__all__:
        assert getattr(course, name) is not None
    assert set(course.__all__) <= set(dir(course))
