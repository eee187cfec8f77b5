"""The arrows between the course's packages run one way; otherwise a change to a picture could
change a number, and a student could not find a number's origin in two jumps."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

COURSE = Path(__file__).resolve().parents[1] / "course"

# package -> what it may import from the course besides itself and the neutral modules
ALLOWED = {
    "serving": set(),
    "measure": {"serving"},
    "figures": {"serving"},
    "ui": set(),
    "explore": {"figures", "measure", "serving", "ui"},
    "exercises": {"serving", "ui"},
}
NEUTRAL = {"paths", "words"}
HEAVY = ("scipy.stats", "altair", "torch", "numba", "pandas", "matplotlib", "ipywidgets", "scipy")


def imported(path: Path) -> set[str]:
    """The parts of the course that a file imports, at its top or inside its functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; write it out from `course`"
            names = [node.module or ""]
            if node.module == "course":
                names = [f"course.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("course.")}
    return found


def test_imports_run_one_way() -> None:
    broken = []
    for package, allowed in ALLOWED.items():
        for path in (COURSE / package).rglob("*.py"):
            wrong = imported(path) - allowed - NEUTRAL - {package}
            if wrong:
                broken.append(f"{path.relative_to(COURSE.parent)} imports {sorted(wrong)}")
    assert not broken, "\n".join(broken)


def test_the_rule_is_not_vacuous() -> None:
    assert "figures" in imported(COURSE / "explore" / "ch02" / "hockey_stick.py")
    assert "serving" in imported(COURSE / "explore" / "ch02" / "hockey_stick.py")


def test_files_are_read_only_in_their_places() -> None:
    """A model that reads a file somewhere deep cannot be called with other numbers."""
    allowed = {"catalog.py", "_tables.py", "traces.py"}
    for path in (COURSE / "serving").rglob("*.py"):
        if path.name in allowed or "results" in path.parts:
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
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == ""


def test_every_public_name_loads() -> None:
    import course

    for name in course.__all__:
        assert getattr(course, name) is not None
    assert set(course.__all__) <= set(dir(course))
