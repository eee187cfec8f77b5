"""The exercise cells of the notebooks are the ones that the exercise modules define.

A question whose text promises one thing while the check asks another is the most annoying fault a
course can have.
"""

from __future__ import annotations

from typing import Any

import nbformat
import pytest

from course.exercises import all_exercises
from course.exercises.inject import cell_role, exercise_cells
from course.paths import NOTEBOOKS

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))


def exercises_of(notebook: Any) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for cell in notebook.cells:
        role = cell_role(cell)
        if role is not None:
            assert role[1] not in found.setdefault(role[0], {}), f"{role} stands twice"
            found[role[0]][role[1]] = cell
    return found


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_cells_are_the_canonical_ones(path: Any) -> None:
    notebook = nbformat.read(path, as_version=4)
    found = exercises_of(notebook)
    chapter = int(path.name[:2])
    wanted = [e for e in all_exercises() if int(e.id.split(".")[0]) == chapter]
    assert list(found) == [e.id for e in wanted], "exercises missing, extra or out of order"
    for exercise in wanted:
        for cell in exercise_cells(exercise):
            role = cell.metadata["course"]["role"]
            mine = found[exercise.id][role]
            assert mine.source == cell.source, f"{exercise.id} {role}"
            assert mine.id == cell.id


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_first_code_cell_brings_what_answers_may_use(path: Any) -> None:
    from course.exercises.definition import PREAMBLE

    notebook = nbformat.read(path, as_version=4)
    first = next(cell for cell in notebook.cells if cell.cell_type == "code")
    brought: dict[str, Any] = {}
    exec(first.source, brought)
    needed: dict[str, Any] = {}
    exec(PREAMBLE, needed)
    assert set(needed) <= set(brought)
