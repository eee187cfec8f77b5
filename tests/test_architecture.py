"""The map for newcomers names what is there; a guide to a house that was rebuilt leads nowhere."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys

import pytest

from course.paths import ROOT
from course.serving import catalog
from course.serving.engine import Run
from course.serving.requests import metrics

TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| [^|]+\? \| ([^|]+) \| ([^|]+) \|$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("functions", "places"), ROWS, ids=[row[0] for row in ROWS])
def test_every_function_is_where_the_table_says(functions: str, places: str) -> None:
    modules = [importlib.import_module(name) for name in re.findall(r"`([\w.]+)`", places)]
    for name in re.findall(r"`([\w.]+)", functions):
        owner, _, attribute = name.rpartition(".")
        places_of_it = {"run": [Run], "metrics": [metrics], "catalog": [catalog]}.get(
            owner, modules
        )
        assert any(hasattr(place, attribute) for place in places_of_it), f"{name}: not in {places}"


def test_there_are_rows_to_check() -> None:
    assert len(ROWS) >= 12


def test_every_file_that_is_named_is_there() -> None:
    named = set(re.findall(r"`((?:course|tests|docs|data)/[\w/.]+)`", TEXT))
    assert len(named) >= 8
    for path in named:
        assert (ROOT / path).exists(), f"docs/architecture.md names {path}, which is not there"


def test_every_wing_and_room_is_on_the_map() -> None:
    """A wing that was added later would stand in no picture."""
    source = (ROOT / "docs" / "draw_map.py").read_text(encoding="utf-8")
    for folder in (ROOT / "course", ROOT / "course" / "serving"):
        for path in folder.iterdir():
            if path.is_dir() and not path.name.startswith("_"):
                assert f'"{path.name}"' in source, f"{path.name} is not in docs/draw_map.py"


def test_the_picture_is_that_of_the_imports() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "draw_map.py"), "--check"], cwd=ROOT, timeout=120,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, "run `python docs/draw_map.py` and commit the picture"
