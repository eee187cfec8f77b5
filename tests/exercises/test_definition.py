"""If these fail, a chapter's author can publish an exercise that cannot work."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest

from course.exercises import TODO, Wrong, exercise
from course.exercises.definition import source_of, stub_of
from course.exercises.lessons import LESSONS
from course.exercises.registry import all_exercises, chapter_exercises, chapters

ONE = exercise("2.2")


def documented(load: float = 0.5, *, servers: int = 1) -> float:
    """Wait, in seconds."""
    return load / servers


def silent(load: float) -> float:
    return load


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"id": "two"}, "chapter and number"),
        ({"answer_name": "not a name"}, "not a Python name"),
        ({"wrong": ONE.wrong[:2]}, "at least 3"),
        ({"wrong": ONE.wrong + ONE.wrong[:1]}, "misconception of its own"),
        ({"hints": ONE.hints[:1]}, "give at least 2"),
        ({"minutes": 0}, "give at least 1"),
    ],
)
def test_an_exercise_that_breaks_a_rule_is_refused_with_how_to_mend_it(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        replace(ONE, **change)


def test_a_wrong_answer_needs_a_short_name_and_a_hint() -> None:
    with pytest.raises(ValueError, match="kebab case"):
        Wrong("Mean for P99", documented, "hint")
    with pytest.raises(ValueError, match="is empty"):
        Wrong("mean-for-p99", documented, " ")


def test_a_stub_is_the_head_and_docstring_of_the_reference() -> None:
    assert stub_of(documented) == (
        "def documented(load: float = 0.5, *, servers: int = 1) -> float:\n"
        '    """Wait, in seconds."""\n'
        "    return TODO\n"
    )
    with pytest.raises(ValueError, match="docstring"):
        stub_of(silent)


def test_an_injected_source_binds_the_students_name() -> None:
    assert source_of(documented, "documented").startswith("def documented(")
    assert source_of(documented, "wait").endswith("\n\nwait = documented\n")
    assert source_of("b", "answer_2_4") == "answer_2_4 = 'b'\n"


def test_the_placeholder_stays_itself_when_copied() -> None:
    assert copy.deepcopy(TODO) is TODO
    assert copy.copy(TODO) is TODO
    assert pickle.loads(pickle.dumps(TODO)) is TODO


def test_every_chapter_with_exercises_is_a_lesson() -> None:
    assert set(chapters()) <= {lesson.number for lesson in LESSONS}
    assert chapter_exercises(77) == ()
    assert len({one.id for one in all_exercises()}) == len(all_exercises())


def test_the_question_cell_says_what_kind_and_how_long() -> None:
    heading, about = ONE.markdown.split("\n\n")[:2]
    assert heading == "### Exercise 2.2: The slow ones"
    assert about == "*core · compute it from raw data · 5 min · difficulty ●○○*"
    assert "- **b** 8 requests/s" in exercise("0.3").markdown
