"""Every notebook run by nbval as CI, a student and a grader run it."""

from __future__ import annotations

import copy
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import nbformat
import pytest

from course.exercises.inject import solved, with_wrong_answers
from course.paths import NOTEBOOKS
from tests.notebooks.running import check_cells, failed_cells

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
EACH = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def a_third_each(notebook: Any) -> tuple[Any, list[str]]:
    """A notebook with right answers, wrong ones and stubs in turn, and the checks that must fail.

    What a check says of each single answer is proven in the exercises' matrix, without a kernel;
    here it is proven once a notebook that a kernel says so at the right cell.
    """
    right, wrong = solved(notebook), with_wrong_answers(notebook, 1)
    turn = -1
    for cell, one, other in zip(notebook.cells, right.cells, wrong.cells, strict=True):
        if cell.metadata.get("course", {}).get("role") == "answer":
            turn += 1
            cell.source = (one, other, cell)[turn % 3].source
    checks = check_cells(notebook)
    return notebook, [name for place, name in enumerate(checks) if place % 3]


@EACH
def test_right_wrong_and_untried_answers_side_by_side(path: Path, tmp_path: Path) -> None:
    notebook, expected = a_third_each(read(path))
    failed, text = failed_cells(notebook, tmp_path / path.name, strict=True)
    assert failed == expected, text[-3000:]


@pytest.mark.deep
@EACH
def test_untouched_passes_and_strictly_fails_at_the_checks_alone(
    path: Path, tmp_path: Path
) -> None:
    notebook = read(path)
    failed, text = failed_cells(notebook, tmp_path / path.name, strict=True)
    assert failed == check_cells(notebook), text[-3000:]


@EACH
def test_solved_passes_strictly(path: Path, tmp_path: Path) -> None:
    failed, text = failed_cells(solved(read(path)), tmp_path / path.name, strict=True)
    assert not failed, text[-3000:]


@pytest.mark.deep
@EACH
@pytest.mark.parametrize("k", range(3))
def test_wrong_answers_fail_at_the_checks_alone(path: Path, k: int, tmp_path: Path) -> None:
    notebook = with_wrong_answers(read(path), k)
    failed, text = failed_cells(notebook, tmp_path / path.name, strict=True)
    assert failed == check_cells(notebook), text[-3000:]


@EACH
def test_explorers_draw_and_say_what_they_computed_and_cells_run_twice(
    path: Path, monkeypatch: Any
) -> None:
    """The page must read without a click: a drawn curve, and a sentence that is true.

    And students run cells again, and not from the top.
    """
    from nbclient import NotebookClient

    from course import explore

    monkeypatch.setenv("COURSE_CURTAIN", "open")
    notebook = read(path)
    again = [copy.deepcopy(cell) for cell in notebook.cells if cell.cell_type == "code"][1:]
    for cell in again:
        cell["id"] += "-again"
    both = nbformat.from_dict({**notebook, "cells": [*notebook.cells, *again]})
    NotebookClient(
        both, timeout=120, resources={"metadata": {"path": str(path.parent)}}
    ).execute()
    notebook.cells = both.cells[: len(notebook.cells)]
    calls = [cell for cell in notebook.cells if cell.source.startswith("explore.")]
    charts = [cell for cell in calls if cell.source.startswith("explore.requests_view")]
    for cell in charts:
        (output,) = cell.outputs
        assert "application/vnd.jupyter.widget-view+json" in output.data, "no live chart"
    for cell in calls:
        if cell in charts:
            continue
        (output,) = [o for o in cell.outputs if "text/html" in o.get("data", {})]
        svg = re.search(r"<svg.*</svg>", output.data["text/html"], re.DOTALL).group(0)
        space = "{http://www.w3.org/2000/svg}"
        (data,) = [
            g for g in ET.fromstring(svg).iter(f"{space}g") if g.get("class") == "course-data"
        ]
        lines = [
            p for p in data.iter(f"{space}path") if len(re.findall("[ML]", p.get("d", ""))) > 5
        ]
        assert lines, f"{cell.id}: nothing is drawn"
        expected = eval(cell.source, {"explore": explore}).sentence
        assert output.data["text/plain"] == expected
        assert re.search(r"\d", expected)
    shown = [cell for cell in notebook.cells if "still(" in cell.source]
    for cell in shown:
        (output,) = [o for o in cell.outputs if "text/html" in o.get("data", {})]
        assert "<path" in output.data["text/html"], f"{cell.id}: no picture"
        assert len(output.data["text/plain"].split()) > 8, f"{cell.id}: no alternative text"
