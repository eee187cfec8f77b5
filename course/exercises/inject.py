"""Writes exercise cells into notebooks: the canonical cells, references, wrong answers.

Every function returns a new notebook node and leaves the one given untouched; running it is not
done here.
"""

from __future__ import annotations

import copy
from typing import Any, Literal

import nbformat.v4 as v4
from nbformat import NotebookNode

from course.exercises import registry
from course.exercises.definition import Exercise, source_of

Role = Literal["question", "answer", "check"]
ROLES: tuple[Role, ...] = ("question", "answer", "check")


def exercise_cells(exercise: Exercise) -> list[NotebookNode]:
    """The three canonical cells of an exercise: its question, its answer stub, its check."""
    return [
        v4.new_markdown_cell(exercise.markdown, **_identity(exercise, "question")),
        v4.new_code_cell(exercise.stub.rstrip("\n"), **_identity(exercise, "answer")),
        check_cell(exercise),
    ]


def check_cell(exercise: Exercise) -> NotebookNode:
    """The canonical check cell of an exercise."""
    return v4.new_code_cell(exercise.check_source, **_identity(exercise, "check"))


def _identity(exercise: Exercise, role: Role) -> dict[str, Any]:
    return {
        "id": f"{role}-{exercise.cell_suffix}",
        "metadata": {"course": {"exercise": exercise.id, "role": role}},
    }


def cell_role(cell: NotebookNode) -> tuple[str, str] | None:
    """(exercise id, role) as the cell's metadata says, or None for any other cell.

    A cell that lost its metadata is still known by its id, "answer-2-3".
    """
    said = cell.get("metadata", {}).get("course", {})
    if isinstance(said, dict) and said.get("role") in ROLES and said.get("exercise"):
        return str(said["exercise"]), str(said["role"])
    role, _, number = str(cell.get("id", "")).partition("-")
    chapter, _, index = number.partition("-")
    if role in ROLES and chapter.isdigit() and index.isdigit():
        return f"{chapter}.{index}", role
    return None


def solved(notebook: NotebookNode) -> NotebookNode:
    """The notebook with every answer cell holding the course's own answer.

    Raises ValueError for an answer cell of an exercise that is not there.
    """
    return _answered(notebook, lambda exercise: exercise.reference_source)


def with_wrong_answers(notebook: NotebookNode, k: int) -> NotebookNode:
    """The notebook with every answer cell holding the exercise's k-th wrong answer, from 0.

    Every exercise has a wrong answer for k of 0, 1 and 2; beyond an exercise's last one it
    begins again. Raises ValueError for a negative k.
    """
    if k < 0:
        raise ValueError(f"k is {k}; give 0 for the first wrong answer of each exercise")

    def source(exercise: Exercise) -> str:
        wrong = exercise.wrong[k % len(exercise.wrong)]
        return source_of(wrong.answer, exercise.answer_name)

    return _answered(notebook, source)


def _answered(notebook: NotebookNode, source: Any) -> NotebookNode:
    result: NotebookNode = copy.deepcopy(notebook)
    for cell in result.cells:
        found = cell_role(cell)
        if found is not None and found[1] == "answer":
            cell.source = source(registry.exercise(found[0])).rstrip("\n")
    return result
