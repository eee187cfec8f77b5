"""The matrix of every exercise of every chapter; a new file is tested by being there.

If these fail, a right answer is refused, a wrong one passes, or it draws another one's hint.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import math
import sys
from collections import Counter
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import course.exercises as package
from course.exercises import Exercise, Verdict, Wrong, all_exercises
from course.exercises.cards import check_card, hint_for
from course.exercises.definition import PREAMBLE, TODO, source_of
from course.exercises.diagnosis import constant_factor
from course.exercises.judging import CaseJudge, judge_answer
from course.exercises.lessons import LESSONS
from course.exercises.records import Record
from course.exercises.registry import chapter_exercises, chapters
from course.exercises.values import Number, Vector, as_floats
from course.paths import NOTEBOOKS
from tests.lanes import by_lane

ALL = all_exercises()
TRIED = by_lane(quick=1, whole=None, deep=None)  # how many wrong answers of each exercise
PAIRS = [(one, wrong) for one in ALL for wrong in one.wrong[:TRIED]]
FUNCTIONS = [(one, wrong) for one, wrong in PAIRS if inspect.isfunction(one.reference)]

every = pytest.mark.parametrize("one", ALL, ids=lambda one: one.id)
every_wrong = pytest.mark.parametrize(
    ("one", "wrong"), PAIRS, ids=[f"{one.id}-{wrong.misconception}" for one, wrong in PAIRS]
)


def as_in_a_notebook(source: str, name: str) -> Any:
    """What an answer cell of this source binds, after the notebook's first cell."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(PREAMBLE, space)
    exec(source, space)
    return space[name]


@every
def test_the_stub_is_not_tried_yet(one: Exercise) -> None:
    verdict = judge_answer(one, as_in_a_notebook(one.stub, one.answer_name))
    assert verdict.status == "todo"


@every
@pytest.mark.parametrize("seed", range(by_lane(quick=1, whole=2, deep=4)))
def test_the_reference_as_a_student_would_hold_it_passes(one: Exercise, seed: int) -> None:
    answer = as_in_a_notebook(one.reference_source, one.answer_name)
    verdict = judge_answer(one, answer, seed=seed)
    assert verdict.status == "passed", verdict


@every_wrong
@pytest.mark.parametrize("seed", range(by_lane(quick=1, whole=1, deep=3)))
def test_every_wrong_answer_fails_with_its_own_hint(one: Exercise, wrong: Wrong, seed: int) -> None:
    answer = as_in_a_notebook(source_of(wrong.answer, one.answer_name), one.answer_name)
    verdict = judge_answer(one, answer, seed=seed)
    assert (verdict.status, verdict.misconception) == ("failed", wrong.misconception)
    assert hint_for(one, verdict, Record(attempts=1)) == wrong.hint
    assert wrong.hint.replace("*", "") in check_card(one, verdict, Record(attempts=1)).text.replace(
        "*", ""
    )


@every
def test_misconceptions_and_hints_are_distinct(one: Exercise) -> None:
    names = [wrong.misconception for wrong in one.wrong]
    texts = [wrong.hint for wrong in one.wrong] + list(one.hints)
    assert len(names) >= 3
    assert len(set(names)) == len(names)
    assert len(set(texts)) == len(texts)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("one", "wrong"), FUNCTIONS, ids=[f"{one.id}-{w.misconception}" for one, w in FUNCTIONS]
)
def test_no_wrong_answer_is_the_reference_scaled_or_a_constant(one: Exercise, wrong: Wrong) -> None:
    """A wrong unit or a guess is no misconception of the subject: it has a diagnosis of its own."""
    judge = one.judge
    assert isinstance(judge, CaseJudge), "compare a hand-written judge's answers in its own test"
    right, other = [], []
    for seed in range(3):
        for case in judge.cases(np.random.default_rng(seed)):
            right.append(one.reference(*case.values()))
            other.append(wrong.answer(*case.values()))
    numbers, others = as_floats(right), as_floats(other)
    if numbers is None or others is None:
        return  # rows, verdicts or exceptions: no single factor can relate them
    assert constant_factor(others, numbers) is None
    assert len(set(others)) > 1


def endless(*arguments: Any) -> float:
    while True:
        try:
            math.sqrt(2)
        except Exception:
            continue


def recursive(*arguments: Any) -> float:
    return recursive(*arguments)


def leaves(*arguments: Any) -> None:
    raise SystemExit


VALUES: dict[str, Any] = {
    "NaN": float("nan"),
    "infinity": math.inf,
    "None": None,
    "text": "twelve",
    "list": [1.0, 2.0],
    "dict": {"a": 1},
    "array": np.arange(3.0),
    "empty array": np.array([]),
    "truth value": True,
    "complex": 1j,
    "type": float,
    "module": math,
}
CALLS = {
    **{name: lambda *arguments, value=value: value for name, value in VALUES.items()},
    "exception": lambda *arguments: [][1],
    "own exception": lambda *arguments: (_ for _ in ()).throw(Exception("my own")),
    "assertion": lambda *arguments: exec("assert False"),
    "recursion": recursive,
    "exit": leaves,
    "endless": endless,
    "too few arguments": lambda: 1.0,
}


class NoRepr(float):
    def __repr__(self) -> str:
        raise RuntimeError("no words for it")


class NoLength(list[float]):
    def __len__(self) -> int:
        raise RuntimeError("nobody knows")


ODD: dict[str, Any] = {
    "too large": 10**400,
    "too large a share": Fraction(10**400, 3),
    "no repr": NoRepr(math.nan),
    "no repr inside": [NoRepr(1.0), NoRepr(2.0)],
    "no length": NoLength([1.0]),
    "masked": np.ma.masked,
    "masked array": np.ma.masked_all(3),
    "complex array": np.arange(3.0) + 5j,
    "decimal": Decimal("NaN"),
    "signalling decimal": Decimal("sNaN"),
}


@every
@pytest.mark.parametrize("name", ODD)
def test_an_odd_value_is_refused_in_a_plain_sentence(one: Exercise, name: str) -> None:
    """ "The check itself broke" tells a student nothing, and is the course's defect."""
    value = ODD[name]
    takes_a_function = inspect.isfunction(one.reference)
    answer = (lambda *arguments: value) if takes_a_function else value
    assert_plain(one, judge_answer(one, answer, limit_s=1.0))


def test_the_right_numbers_in_a_wrong_cloak_do_not_pass() -> None:
    """A masked row and one with an imaginary part are other answers than the row."""
    row = np.array([1.0, 2.0, 3.0])
    kind = Vector("s")
    assert kind.problem(row) is None
    assert "masked" in str(kind.problem(np.ma.masked_array(row, mask=[1, 1, 1])))
    assert "complex" in str(kind.problem(row + 5j))
    assert "masked" in str(Number("s").problem(np.ma.masked))


def assert_plain(one: Exercise, verdict: Verdict) -> None:
    assert verdict.status == "failed"
    assert verdict.message
    assert verdict.message[-1] in ".?)" or verdict.message.endswith(one.check_source)
    assert "broke on this answer" not in verdict.message
    card = check_card(one, verdict, Record(attempts=1))
    assert "Traceback" not in card.text
    assert "course/exercises" not in card.text
    assert len(card.text) < 4_000


@pytest.mark.slow
@every
@pytest.mark.parametrize("name", CALLS)
def test_an_answer_that_misbehaves_gets_a_plain_sentence(one: Exercise, name: str) -> None:
    takes_a_function = inspect.isfunction(one.reference)
    answer = CALLS[name] if takes_a_function else VALUES.get(name, CALLS[name])
    assert_plain(one, judge_answer(one, answer, limit_s=0.3))


@every
def test_an_answer_that_leaves_todo_inside_is_no_pass(one: Exercise) -> None:
    assert judge_answer(one, [TODO]).status == "failed"


@pytest.mark.slow
@every
def test_inputs_do_not_depend_on_anything_but_the_seed(one: Exercise) -> None:
    assert judge_answer(one, one.reference, seed=7) == judge_answer(one, one.reference, seed=7)


@every
def test_the_question_stands_by_itself_and_the_stub_says_units(one: Exercise) -> None:
    assert one.question.rstrip()[-1] in ".?"
    assert one.id in one.markdown
    assert len(one.stub.splitlines()) <= 25
    assert len(one.reference_source.splitlines()) <= 25
    assert one.explanation
    for wrong in one.wrong:
        assert len(source_of(wrong.answer, one.answer_name).splitlines()) <= 25


@pytest.mark.parametrize("chapter", chapters())
def test_a_chapter_has_the_mix_that_the_course_promises(chapter: int) -> None:
    exercises = chapter_exercises(chapter)
    kinds = Counter(one.kind for one in exercises)
    numbers = [one.id for one in exercises]
    assert numbers == [f"{chapter}.{n}" for n in range(1, len(exercises) + 1)]
    assert sum(bool(one.options) for one in exercises) <= 2
    if chapter == 0:
        assert [one.track for one in exercises] == ["warm-up"] * 3
        return
    stretch = 2 if chapter == 10 else 4  # the optional lesson is the shorter one
    assert len(exercises) >= 4 + stretch
    assert [one.track for one in exercises] == ["core"] * 4 + ["stretch"] * (len(exercises) - 4)
    assert len(kinds) >= 3
    core_minutes = sum(one.minutes for one in exercises if one.track == "core")
    assert core_minutes <= 40, "core exercises must leave room in the 75 minutes of a notebook"


def test_every_exercise_stands_in_a_file_of_its_own_that_the_registry_reads() -> None:
    """An exercise in a file with another name is shown to nobody and judged by nothing."""
    known = {id(one) for one in ALL}
    folder = Path(package.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        module = importlib.import_module(".".join(("course.exercises", *parts)))
        for name, value in vars(module).items():
            assert not isinstance(value, Exercise) or id(value) in known, (
                f"{path.relative_to(folder)}: {name} is not in the registry; "
                "give it a file eN_….py of its own, as EXERCISE"
            )
    for path in folder.glob("ch[0-9]*"):
        assert path.is_dir(), f"{path.name} is no folder; make it one with a file an exercise"
        assert (path / "__init__.py").exists(), f"{path} has no __init__.py; add one"


def test_every_exercise_has_its_notebook() -> None:
    """An exercise whose cells stand in no notebook is tried by nobody."""
    stems = {lesson.number: lesson.stem for lesson in LESSONS}
    for chapter in chapters():
        path = NOTEBOOKS / f"{stems[chapter]}.ipynb"
        assert path.exists(), f"chapter {chapter} has exercises, but there is no {path}"


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("", "holds none; give its EXERCISE the id 77.1"),
        ("from course.exercises.ch00.e1_end_to_end_s import EXERCISE", "holds the exercise 0.1"),
    ],
    ids=["none", "another's"],
)
def test_a_file_without_its_exercise_is_named(
    source: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that nobody notices is an exercise that nobody tests."""
    (tmp_path / "ch77").mkdir()
    (tmp_path / "ch77" / "__init__.py").write_text("", encoding="utf-8")
    (tmp_path / "ch77" / "e1_new.py").write_text(source, encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    chapter_exercises.cache_clear()  # another test may have asked for a chapter that is not there
    with pytest.raises(ValueError, match=said):
        chapter_exercises(77)
    for name in ("course.exercises.ch77", "course.exercises.ch77.e1_new"):
        sys.modules.pop(name, None)


@every
def test_only_wrong_answers_go_without_annotations(one: Exercise) -> None:
    """mypy lets these files leave types out, for the sake of what students write."""
    answers = {w.answer.__name__ for w in one.wrong if inspect.isfunction(w.answer)}
    reference = getattr(one.reference, "__name__", "")
    folder, name = f"ch{one.chapter:02d}", f"e{one.id.partition('.')[2]}_"
    (path,) = (Path(package.__file__).parent / folder).glob(f"{name}*.py")
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.FunctionDef) or node.name == reference:
            continue
        arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        typed = [argument.arg for argument in arguments if argument.annotation is not None]
        if node.name in answers:
            assert not typed, f"{node.name}: a wrong answer is written as students write"
            assert node.returns is None, f"{node.name}: a wrong answer has no annotations"
        else:
            assert node.returns is not None, f"{node.name}: say what it returns"
            bare = {argument.arg for argument in arguments} - set(typed) - {"self"}
            assert not bare, f"{node.name}: say what {sorted(bare)} are"


def test_two_files_of_one_number_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two exercises with one number, students would be shown only the first."""
    (tmp_path / "ch78").mkdir()
    for name in ("__init__", "e1_one", "e1_other"):
        (tmp_path / "ch78" / f"{name}.py").write_text("", encoding="utf-8")
    (tmp_path / "ch79.py").write_text("", encoding="utf-8")
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    chapter_exercises.cache_clear()
    with pytest.raises(ValueError, match="e1_one and e1_other; give one of them another number"):
        chapter_exercises(78)
    assert chapter_exercises(79) == ()  # a file beside the folders is no chapter
    chapter_exercises.cache_clear()
    sys.modules.pop("course.exercises.ch78", None)
