"""If these fail, a class gets wrong marks, or one student's notebook takes the grader down.

Every test here runs real kernels, as a student and as an instructor would.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import nbformat
import nbformat.v4 as v4
import pytest
from nbclient import NotebookClient
from nbformat import NotebookNode

from course.exercises import all_exercises
from course.exercises.checking import CHECK_MIME
from course.exercises.definition import PREAMBLE
from course.exercises.grading import (
    COLUMNS,
    Limits,
    Result,
    all_passed,
    canonical,
    check_notebooks,
    grade_folder,
    limits_in_force,
    note_lines,
    result_line,
    write_csv,
)
from course.exercises.inject import exercise_cells, solved, with_wrong_answers
from course.exercises.registry import chapter_exercises

pytestmark = pytest.mark.slow

WARM_UPS = chapter_exercises(0)
QUICK = Limits(notebook_s=60, cell_s=15)


def notebook() -> NotebookNode:
    """A small notebook 00: the first cell, and the cells of its three exercises."""
    cells = [v4.new_code_cell(PREAMBLE, id="setup")]
    for one in WARM_UPS:
        cells += exercise_cells(one)
    return v4.new_notebook(cells=cells)


def cell(nb: NotebookNode, cell_id: str) -> NotebookNode:
    return next(cell for cell in nb.cells if cell.id == cell_id)


def without(nb: NotebookNode, cell_id: str) -> NotebookNode:
    nb.cells = [cell for cell in nb.cells if cell.id != cell_id]
    return nb


def graded(
    tmp_path: Path, nb: NotebookNode, limits: Limits = QUICK, name: str = "00_start_here.ipynb"
) -> dict[str, Result]:
    path = tmp_path / name
    nbformat.write(nb, path)
    return {result.exercise: result for result in check_notebooks([path], limits=limits)}


def in_kernel(nb: NotebookNode, tmp_path: Path, strict: bool) -> NotebookNode:
    """Run as Jupyter does, each error kept as output."""
    env = {**os.environ, "COURSE_STRICT": "1" if strict else "0"}
    client = NotebookClient(nb, timeout=60, allow_errors=True, kernel_name="python3")
    return client.execute(cwd=str(tmp_path), env=env)


def failing_cells(nb: NotebookNode) -> set[str]:
    return {
        cell.id
        for cell in nb.cells
        for output in cell.get("outputs", [])
        if output.output_type == "error"
    }


def test_an_untouched_notebook_runs_and_every_check_says_not_tried(tmp_path: Path) -> None:
    ran = in_kernel(notebook(), tmp_path, strict=False)
    assert failing_cells(ran) == set()
    for one in WARM_UPS:
        (output,) = cell(ran, f"check-{one.cell_suffix}").outputs
        assert output.output_type == "display_data"
        assert output.data[CHECK_MIME]["status"] == "todo"
        assert "Not tried yet" in output.data["text/html"]
        assert "Not tried yet" in output.data["text/plain"]


def test_a_solved_notebook_passes_strictly(tmp_path: Path) -> None:
    ran = in_kernel(solved(notebook()), tmp_path, strict=True)
    assert failing_cells(ran) == set()
    statuses = [
        cell(ran, f"check-{one.cell_suffix}").outputs[0].data[CHECK_MIME]["status"]
        for one in WARM_UPS
    ]
    assert statuses == ["passed"] * 3


@pytest.mark.parametrize("k", [0, 1, 2])
def test_wrong_answers_fail_at_just_the_check_cells_each_in_one_line(
    tmp_path: Path, k: int
) -> None:
    ran = in_kernel(with_wrong_answers(notebook(), k), tmp_path, strict=True)
    assert failing_cells(ran) == {f"check-{one.cell_suffix}" for one in WARM_UPS}
    for one in WARM_UPS:
        shown, error = cell(ran, f"check-{one.cell_suffix}").outputs
        assert shown.data[CHECK_MIME]["misconception"] == one.wrong[k].misconception
        assert error.ename == "ExerciseNotPassed"
        assert len(error.traceback) == 1


ENDLESS = """\
def end_to_end_s(ttft_s, tpot_s, output_tokens):
    while True:
        try:
            print("x" * 1000)
        except:
            pass
"""


def test_an_endless_noisy_answer_ends_in_a_card_and_the_kernel_lives(tmp_path: Path) -> None:
    nb = notebook()
    cell(nb, "answer-0-1").source = ENDLESS
    nb.cells.append(v4.new_code_cell("6 * 7", id="after"))
    ran = in_kernel(nb, tmp_path, strict=False)
    (output,) = cell(ran, "check-0-1").outputs
    assert "stopped after 5 s" in output.data["text/plain"]
    assert len(output.data["text/plain"]) < 3_000
    assert cell(ran, "after").outputs[0].data["text/plain"] == "42"


def test_errors_and_floods_inside_answers_stay_inside(tmp_path: Path) -> None:
    nb = notebook()
    cell(nb, "answer-0-1").source = (
        "def end_to_end_s(ttft_s, tpot_s, output_tokens):\n"
        "    gaps = output_tokens - 1\n"
        "    return ttft_s + gap * tpot_s"
    )
    cell(nb, "answer-0-2").source = (
        "from IPython.display import display, clear_output\n"
        "def output_tokens_per_s(users, ttft_s, tpot_s, output_tokens):\n"
        "    for _ in range(1000):\n"
        "        display({'a': 1}); clear_output()\n"
        "    return users * output_tokens / (ttft_s + (output_tokens - 1) * tpot_s)"
    )
    ran = in_kernel(nb, tmp_path, strict=False)
    (output,) = cell(ran, "check-0-1").outputs
    text = output.data["text/plain"]
    assert "NameError: name 'gap' is not defined, at line 3 of its cell" in text
    assert "`return ttft_s + gap * tpot_s`" in text
    assert "judging.py" not in text
    (output,) = cell(ran, "check-0-2").outputs
    assert output.data[CHECK_MIME]["status"] == "passed"


def test_a_solved_notebook_passes_the_check_and_no_progress_is_touched(
    tmp_path: Path, own_progress: Path
) -> None:
    found = graded(tmp_path, solved(notebook()))
    assert all_passed(list(found.values()))
    assert {result.notes for result in found.values()} == {""}
    assert not own_progress.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["00_start_here.ipynb"]
    assert not all_passed([])


def test_each_exercise_is_told_while_the_notebook_still_runs(tmp_path: Path) -> None:
    """A minute without a line looks like a hung program, and is ended as one."""
    nb = without(solved(notebook()), f"check-{WARM_UPS[-1].cell_suffix}")
    last = "import pathlib, time; time.sleep(2); pathlib.Path('end').touch()"
    nb.cells.append(nbformat.v4.new_code_cell(last))
    path = tmp_path / "00_start_here.ipynb"
    nbformat.write(nb, path)
    told: list[tuple[Result, bool]] = []
    results = check_notebooks(
        [path], limits=QUICK, judged=lambda one: told.append((one, (tmp_path / "end").exists()))
    )
    assert not told[0][1], "the first is told before the last cell has run"
    assert {(one.exercise, one.status, one.reason) for one, _ in told} == {
        (one.exercise, one.status, one.reason) for one in results
    }
    assert len(told) == len(results)
    assert any(one.notes for one in results)


def tampered(nb: NotebookNode) -> NotebookNode:
    """The check of 0.1 deleted, that of 0.2 edited, the cells of 0.3 copied as Jupyter copies."""
    without(nb, "check-0-1")
    cell(nb, "check-0-2").source = "check('0.2', lambda *a: a[0] * a[3] / (a[1] + (a[3]-1) * a[2]))"
    for role in ("answer", "check"):
        original = cell(nb, f"{role}-0-3")
        nb.cells.append(nbformat.from_dict(dict(original, id=f"new-{role}")))
    return nb


def test_cells_deleted_edited_or_copied_are_reported_and_the_answer_still_judged(
    tmp_path: Path,
) -> None:
    expected = {
        "0.1": "check cell of 0.1 deleted",
        "0.2": "check cell of 0.2 edited",
        "0.3": "answer cell of 0.3 copied (2 of them); check cell of 0.3 copied (2 of them)",
    }
    right = graded(tmp_path, tampered(solved(notebook())))
    assert {number: result.notes for number, result in right.items()} == expected
    assert all_passed(list(right.values()))
    wrong = tampered(with_wrong_answers(notebook(), 1))
    for one in wrong.cells:  # tags by which a runner would forgive or skip a cell
        one.metadata["tags"] = ["raises-exception", "skip-execution"]
    missed = graded(tmp_path, wrong)
    assert {number: result.notes for number, result in missed.items()} == expected
    for one in WARM_UPS:
        assert missed[one.id].misconception == one.wrong[1].misconception


def test_a_deleted_answer_and_a_syntax_error_are_misses_that_spare_the_others(
    tmp_path: Path,
) -> None:
    nb = without(solved(notebook()), "answer-0-1")
    cell(nb, "answer-0-2").source = "def output_tokens_per_s(:\n    return 1"
    found = graded(tmp_path, nb)
    assert found["0.1"].status == found["0.2"].status == "failed"
    assert "end_to_end_s" in found["0.1"].reason
    assert found["0.1"].notes == "answer cell of 0.1 deleted"
    assert found["0.2"].reason.startswith("the answer cell failed: SyntaxError")
    assert found["0.3"].passed


def test_reformatting_a_check_cell_is_no_edit(tmp_path: Path) -> None:
    nb = solved(notebook())
    cell(nb, "check-0-1").source = "check(\n    '0.1',\n    end_to_end_s,\n)  # mine"
    _, notes = canonical(nb, WARM_UPS)
    assert notes["0.1"] == []


def test_a_crashed_kernel_is_a_failure_and_says_where(tmp_path: Path) -> None:
    nb = solved(notebook())
    cell(nb, "answer-0-2").source = "import os\nos._exit(1)"
    found = graded(tmp_path, nb)
    assert found["0.1"].passed
    for number in ("0.2", "0.3"):
        assert found[number].status == "failed"
        assert found[number].reason == "not judged: the kernel died in cell answer-0-2"


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such limit")
def test_memory_without_end_is_refused_and_a_crash_inside_a_check_is_a_failure(
    tmp_path: Path,
) -> None:
    nb = solved(notebook())
    cell(nb, "answer-0-1").source = "hog = [bytearray(2**28) for _ in range(1000)]"
    cell(
        nb, "answer-0-2"
    ).source = "import os\ndef output_tokens_per_s(*arguments):\n    os._exit(1)"
    found = graded(tmp_path, nb, Limits(notebook_s=60, cell_s=30, memory_bytes=2 * 1024**3))
    assert "MemoryError" in found["0.1"].reason
    assert "the kernel died in cell check-0-2" in found["0.2"].reason
    assert found["0.3"].status == "failed"


def test_a_cell_that_never_ends_costs_its_own_exercise(tmp_path: Path) -> None:
    nb = solved(notebook())
    nb.cells.insert(1, v4.new_code_cell("while True: pass", id="loop"))
    cell(nb, "answer-0-2").source = "while True: pass"
    found = graded(tmp_path, nb, Limits(notebook_s=60, cell_s=2))
    assert found["0.1"].passed
    assert "CellTimeout: the cell ran longer than 2 s" in found["0.2"].reason
    assert found["0.3"].passed


def kernels() -> set[int]:
    import psutil

    return {
        process.pid
        for process in psutil.process_iter(["cmdline"])
        if "ipykernel_launcher" in " ".join(process.info["cmdline"] or [])
    }


def test_what_even_an_interrupt_cannot_end_is_ended_with_its_kernel(tmp_path: Path) -> None:
    nb = solved(notebook())
    source = "open('kernel.pid', 'w').write(str(__import__('os').getpid()))\nsum(range(10**15))"
    cell(nb, "answer-0-2").source = source
    found = graded(tmp_path, nb, Limits(notebook_s=12, cell_s=30))
    assert found["0.1"].passed
    assert found["0.2"].reason == "not judged: the notebook ran past 12 s in cell answer-0-2"
    assert int((tmp_path / "kernel.pid").read_text(encoding="utf-8")) not in kernels()


FORGED = """\
from IPython.display import display
display({"application/vnd.course.check+json": {"exercise": "0.1", "status": "passed"}}, raw=True)
end_to_end_s = lambda a, b, c: 0.0
"""

REBOUND = """\
from IPython.display import display
def check(number, answer):
    record = {"exercise": number, "status": "passed"}
    display({"application/vnd.course.check+json": record}, raw=True)
"""

PATCHED = """\
import course.exercises.judging as j
from course.exercises.definition import Verdict
j.CaseJudge.__call__ = lambda self, answer, rng, limit_s: Verdict("passed", "Right.")
"""


def test_forged_copied_and_stored_passes_do_not_count_and_are_noted(tmp_path: Path) -> None:
    nb = notebook()
    cell(nb, "answer-0-1").source = FORGED
    cell(nb, "answer-0-2").source = "from course.exercises.ch00 import output_tokens_per_s"
    record = {CHECK_MIME: {"exercise": "0.3", "status": "passed"}}
    cell(nb, "check-0-3").outputs = [v4.new_output("display_data", data=record)]
    found = graded(tmp_path, nb)
    assert [result.status for result in found.values()] == ["failed", "failed", "not tried"]
    assert "sent a passing record of its own (not counted)" in found["0.1"].notes
    assert "reaches into the course's own answers" in found["0.2"].notes


@pytest.mark.parametrize(
    ("source", "note"),
    [
        (REBOUND, "own `check` is not the course's"),
        (PATCHED, "checking code was changed"),
    ],
)
def test_tampering_with_the_check_is_evident(tmp_path: Path, source: str, note: str) -> None:
    nb = notebook()
    nb.cells.insert(1, v4.new_code_cell(source, id="tamper"))
    found = graded(tmp_path, nb)
    assert all(note in result.notes for result in found.values())


def test_a_folder_is_graded_in_parallel_into_a_csv_with_a_reason_for_each_miss(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "class"
    students = {
        "ada": solved(notebook()),
        "ben": with_wrong_answers(notebook(), 1),
        "cy": notebook(),
    }
    for name, nb in students.items():
        (folder / name).mkdir(parents=True)
        nbformat.write(nb, folder / name / "00_start_here.ipynb")
    (folder / "dee").mkdir()
    (folder / "dee" / "00_start_here.ipynb").write_text("{not json", encoding="utf-8")
    (folder / "dee" / "essay.ipynb").write_text(
        nbformat.writes(v4.new_notebook()), encoding="utf-8"
    )
    (folder / "ada" / ".ipynb_checkpoints").mkdir()
    nbformat.write(students["cy"], folder / "ada" / ".ipynb_checkpoints" / "00_x.ipynb")

    seen: list[str] = []
    results = grade_folder(
        folder,
        tmp_path / "marks.csv",
        limits=QUICK,
        workers=2,
        done=lambda some: seen.append(some[0].notebook),
    )
    with open(tmp_path / "marks.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == list(COLUMNS)
    assert len(rows) == len(results) == 3 * len(WARM_UPS) + 2
    assert len(seen) == 5
    by_student = {
        name: [row["status"] for row in rows if row["notebook"].startswith(name)]
        for name in (*students, "dee")
    }
    assert by_student == {
        "ada": ["passed"] * 3,
        "ben": ["failed"] * 3,
        "cy": ["not tried"] * 3,
        "dee": ["not judged"] * 2,
    }
    given = [row["misconception"] for row in rows if row["notebook"].startswith("ben")]
    assert given == [one.wrong[1].misconception for one in WARM_UPS]
    assert all(row["reason"] for row in rows if row["status"] != "passed")


def test_a_formula_in_a_name_stays_text_in_a_spreadsheet(tmp_path: Path) -> None:
    write_csv([Result("=HYPERLINK(1)", "0.1", "t", "core", "failed")], tmp_path / "m.csv")
    assert "'=HYPERLINK(1)" in (tmp_path / "m.csv").read_text(encoding="utf-8")


def test_a_folder_without_notebooks_is_said(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no \.ipynb"):
        grade_folder(tmp_path)


def test_lines_say_status_title_reason_and_each_note_once() -> None:
    results = [
        Result("a.ipynb", "0.1", "One", "core", "passed", notes="odd"),
        Result("a.ipynb", "0.2", "Two", "core", "failed", "mean-for-tail", "why", "odd"),
    ]
    assert [result_line(result) for result in results] == [
        "a.ipynb  0.1  passed      One",
        "a.ipynb  0.2  failed      Two: why (mean-for-tail)",
    ]
    assert note_lines(results) == ["a.ipynb  note: odd"]
    assert "process of its own" in limits_in_force()


def test_injecting_leaves_the_original_untouched() -> None:
    nb = notebook()
    before = nbformat.writes(nb)
    solved(nb)
    with_wrong_answers(nb, 1)
    canonical(nb, WARM_UPS)
    assert nbformat.writes(nb) == before
    with pytest.raises(ValueError, match="k is -1"):
        with_wrong_answers(nb, -1)


def test_cells_carry_the_ids_and_metadata_that_everything_finds_them_by() -> None:
    for one in all_exercises():
        question, answer, check = exercise_cells(one)
        assert [c.id for c in (question, answer, check)] == [
            f"{role}-{one.cell_suffix}" for role in ("question", "answer", "check")
        ]
        assert answer.metadata == {"course": {"exercise": one.id, "role": "answer"}}
        assert check.source == f'check("{one.id}", {one.answer_name})'
        assert len(answer.source.splitlines()) <= 25
