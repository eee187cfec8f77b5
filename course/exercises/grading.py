"""Grades notebooks: runs each in a process of its own and says for every exercise how it went.

The check cells are the canonical ones, whatever the notebook holds in their place; cells deleted,
copied or edited are reported. A student's code runs in the kernel that also checks it, so a
determined one can still deceive the grader: grading is tamper-evident, not tamper-proof. The notes
of a result say what was seen; read them before you trust a mark.
"""

from __future__ import annotations

import ast
import copy
import csv
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from course.exercises import attest, inject, registry
from course.exercises.definition import Exercise
from course.exercises.lessons import lesson_number
from course.exercises.runner import CellReport, Job, Report

Mark = Literal["passed", "failed", "not tried", "not judged"]

TAMPER_NOTICE = (
    "Grading is tamper-evident, not tamper-proof: a student's code shares its kernel with the "
    "check. Read the notes column before you trust a mark."
)
COLUMNS = (
    "notebook",
    "exercise",
    "title",
    "track",
    "status",
    "misconception",
    "reason",
    "notes",
)
_LOOK_S = 0.3
_ATTEST_ID = "grader-attest"
_READS_ANSWERS = re.compile(r"course\.exercises|course\s+import\s+exercises|__subclasses__")
_STATUS: Mapping[str, Mark] = {"passed": "passed", "failed": "failed", "todo": "not tried"}


@dataclass(frozen=True)
class Limits:
    """What one notebook may use: seconds in all, seconds a cell, bytes of memory (None: any)."""

    notebook_s: float = 180.0
    cell_s: float = 60.0
    memory_bytes: int | None = 4 * 1024**3


# One's own notebooks need no memory limit, and a GPU's driver maps more addresses than any allows.
OWN_LIMITS = Limits(memory_bytes=None)


@dataclass(frozen=True)
class Result:
    """How one exercise of one notebook went.

    `reason` says why it is not passed ("" when it is); `notes` what the grader saw that a mark
    should not be trusted without.
    """

    notebook: str
    exercise: str
    title: str
    track: str
    status: Mark
    misconception: str = ""
    reason: str = ""
    notes: str = ""

    @property
    def passed(self) -> bool:
        """Whether the answer was judged right."""
        return self.status == "passed"


def limits_in_force(limits: Limits | None = None) -> str:
    """One sentence on which limits this system can hold a notebook to."""
    limits = limits or Limits()
    sentence = (
        f"Each notebook runs in a process of its own with {limits.notebook_s:g} s in all and "
        f"{limits.cell_s:g} s a cell"
    )
    if os.name == "nt":
        return f"{sentence}; Windows has no limit on memory to set."
    if limits.memory_bytes is None:
        return f"{sentence}, and no limit on memory."
    return f"{sentence}, and {limits.memory_bytes / 1024**3:g} GiB of address space."


def check_notebooks(
    paths: Iterable[str | Path],
    *,
    limits: Limits | None = None,
    workers: int = 1,
    done: Callable[[Sequence[Result]], None] | None = None,
    judged: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Run notebooks where they lie and judge every exercise of their lesson.

    Results come notebook by notebook in the order given; `done` gets each notebook's as soon as
    they are there, `judged` each exercise's while its notebook still runs, without notes. Nothing
    raises for a notebook's sake: what cannot be read or run is a result with a reason.
    """
    chosen = [Path(path) for path in paths]
    names = [str(path) for path in chosen]
    return _graded(chosen, names, limits or OWN_LIMITS, workers, None, done, judged)


def grade_folder(
    folder: str | Path,
    csv_path: str | Path | None = None,
    *,
    limits: Limits | None = None,
    workers: int | None = None,
    done: Callable[[Sequence[Result]], None] | None = None,
) -> list[Result]:
    """Grade every notebook below a folder, in parallel; write a CSV where `csv_path` is given.

    Each runs in an empty temporary folder, so that no student's files meet another's. `workers`
    is by default one for every two processors. Raises ValueError for a folder with no notebook.
    """
    root = Path(folder)
    paths = sorted(
        path
        for path in root.rglob("*.ipynb")
        if not any(part.startswith(".") for part in path.relative_to(root).parts)
    )
    if not paths:
        raise ValueError(f"folder is {str(folder)!r}, which holds no .ipynb file; name another")
    names = [path.relative_to(root).as_posix() for path in paths]
    with tempfile.TemporaryDirectory(prefix="course-grade-") as scratch:
        count = workers or max(1, (os.cpu_count() or 2) // 2)
        results = _graded(paths, names, limits or Limits(), count, scratch, done)
    if csv_path is not None:
        write_csv(results, csv_path)
    return results


def write_csv(results: Sequence[Result], csv_path: str | Path) -> None:
    """Write results as CSV, one row a notebook and exercise, with a reason for each miss."""
    with open(csv_path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for result in results:
            writer.writerow({key: _for_a_sheet(text) for key, text in asdict(result).items()})


def result_line(result: Result) -> str:
    """One exercise in one line.

    >>> result_line(Result("a.ipynb", "2.2", "Tail", "core", "passed"))
    'a.ipynb  2.2  passed      Tail'
    """
    reason = f": {result.reason}" if result.reason else ""
    reason += f" ({result.misconception})" if result.misconception else ""
    return f"{result.notebook}  {result.exercise}  {result.status:<10}  {result.title}{reason}"


def note_lines(results: Sequence[Result]) -> list[str]:
    """What the grader noted about each notebook, each note once."""
    noted = [f"{result.notebook}  note: {result.notes}" for result in results if result.notes]
    return list(dict.fromkeys(noted))


def all_passed(results: Sequence[Result]) -> bool:
    """Whether there is a result and every one is passed."""
    return bool(results) and all(result.passed for result in results)


def _for_a_sheet(text: str) -> str:
    # A cell that begins with one of these is a formula to a spreadsheet, and students write them.
    return "'" + text if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


def _graded(
    paths: Sequence[Path],
    names: Sequence[str],
    limits: Limits,
    workers: int,
    scratch: str | None,
    done: Callable[[Sequence[Result]], None] | None,
    judged: Callable[[Result], None] | None = None,
) -> list[Result]:
    def grade(job: tuple[Path, str]) -> list[Result]:
        told: set[str] = set()

        def tell(result: Result) -> None:
            if judged is not None and result.exercise not in told:
                told.add(result.exercise)
                judged(replace(result, notes=""))

        results = _grade_one(job[0], job[1], limits, scratch, tell)
        for result in results:
            tell(result)
        if done is not None:
            done(results)
        return results

    with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
        return [r for results in pool.map(grade, zip(paths, names, strict=True)) for r in results]


def _grade_one(
    path: Path, name: str, limits: Limits, scratch: str | None, tell: Callable[[Result], None]
) -> list[Result]:
    """One notebook's results: read, made canonical, run, and read off."""
    import nbformat

    try:
        notebook = nbformat.read(path, as_version=4)
        if not hasattr(notebook, "cells"):
            raise ValueError("it has no cells")
    except Exception as error:
        reason = f"the file cannot be read as a notebook ({type(error).__name__})"
        return [Result(name, "-", path.name, "-", "not judged", reason=reason)]
    chapter = _chapter(path, notebook)
    exercises = () if chapter is None else registry.chapter_exercises(chapter)
    if chapter is None or not exercises:
        reason = "it holds no exercise of the course, and its name begins with no lesson's number"
        return [Result(name, "-", path.name, "-", "not judged", reason=reason)]
    prepared, notes = canonical(notebook, exercises)

    def look(report: Report) -> None:
        ran = {cell.id for cell in report.cells}
        for exercise in exercises:
            if _check_id(exercise) in ran:
                tell(_result(name, exercise, report, "", ()))

    with tempfile.TemporaryDirectory(prefix="notebook-", dir=scratch) as own:
        folder = path.resolve().parent if scratch is None else Path(own)
        report, trouble = _run(prepared, folder, Path(own), limits, look)
    notes = {**notes, "": [*notes.get("", []), *_seen(report, chapter)]}
    return [
        _result(name, exercise, report, trouble, [*notes.get(exercise.id, []), *notes[""]])
        for exercise in exercises
    ]


def _chapter(path: Path, notebook: Any) -> int | None:
    """The lesson: by the exercises in the notebook's cells, else by the file's name."""
    found = [inject.cell_role(cell) for cell in notebook.cells]
    counts: dict[int, int] = {}
    for role in found:
        if role is not None and role[0].partition(".")[0].isdigit():
            number = int(role[0].partition(".")[0])
            counts[number] = counts.get(number, 0) + 1
    if counts:
        return max(counts, key=lambda number: counts[number])
    return lesson_number(path)


def canonical(notebook: Any, exercises: Sequence[Exercise]) -> tuple[Any, dict[str, list[str]]]:
    """A copy of a notebook with exactly the canonical check cells, and what was amiss.

    The notes are by exercise id. An edited check cell is replaced, a copied one taken out, a
    deleted one put behind its answer cell (or at the end); a cell that the notebook was made to
    fail or skip by a tag is run like any other.
    """
    result = copy.deepcopy(notebook)
    notes: dict[str, list[str]] = {}
    for exercise in exercises:
        notes[exercise.id] = _make_canonical(result, exercise)
    _unique_ids(result)
    result.cells.append(_attest_cell(exercises[0].chapter))
    return result, notes


def _make_canonical(notebook: Any, exercise: Exercise) -> list[str]:
    """Put one exercise's check cell right, in place; what was amiss with it."""
    roles = [inject.cell_role(cell) for cell in notebook.cells]
    answers = [i for i, role in enumerate(roles) if role == (exercise.id, "answer")]
    checks = [i for i, role in enumerate(roles) if role == (exercise.id, "check")]
    notes: list[str] = []
    if not answers:
        notes.append(f"answer cell of {exercise.id} deleted")
    elif len(answers) > 1:
        notes.append(f"answer cell of {exercise.id} copied ({len(answers)} of them)")
    reads = [i for i in answers if _READS_ANSWERS.search(notebook.cells[i].source)]
    if reads:
        notes.append(f"answer cell of {exercise.id} reaches into the course's own answers")
    if not checks:
        notes.append(f"check cell of {exercise.id} deleted")
        place = answers[-1] + 1 if answers else len(notebook.cells)
        notebook.cells.insert(place, inject.check_cell(exercise))
        return notes
    if len(checks) > 1:
        notes.append(f"check cell of {exercise.id} copied ({len(checks)} of them)")
    if any(not _same_code(notebook.cells[i].source, exercise.check_source) for i in checks):
        notes.append(f"check cell of {exercise.id} edited")
    # the last one: with two answers in the notebook it sees what the student ended on
    notebook.cells[checks[-1]] = inject.check_cell(exercise)
    for index in reversed(checks[:-1]):
        del notebook.cells[index]
    return notes


def _same_code(source: str, other: str) -> bool:
    try:
        return ast.dump(ast.parse(source)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _unique_ids(notebook: Any) -> None:
    """Give cells without an id, or with one that is taken, a new one; the checks keep theirs."""
    taken = {f"check-{role[0].replace('.', '-')}" for role in _check_roles(notebook)}
    for number, cell in enumerate(notebook.cells):
        role = inject.cell_role(cell)
        if role is not None and role[1] == "check":
            continue
        if not cell.get("id") or cell.id in taken:
            cell.id = f"cell-{number}"
        taken.add(cell.id)
        cell.metadata.pop("tags", None)
    notebook.nbformat, notebook.nbformat_minor = 4, max(5, int(notebook.get("nbformat_minor", 5)))


def _check_roles(notebook: Any) -> list[tuple[str, str]]:
    roles = [inject.cell_role(cell) for cell in notebook.cells]
    return [role for role in roles if role is not None and role[1] == "check"]


def _attest_cell(chapter: int) -> Any:
    import nbformat.v4 as v4

    return v4.new_code_cell(attest.cell_source(chapter), id=_ATTEST_ID)


def _run(
    prepared: Any, folder: Path, own: Path, limits: Limits, look: Callable[[Report], None]
) -> tuple[Report, str]:
    """Run in a process of its own; its report, and why it ended early ("" when it did not).

    `look` gets the report as far as it is, now and then while the notebook runs.
    """
    import nbformat

    scratch = own / "run"
    scratch.mkdir()
    notebook, report, job_file = (scratch / n for n in ("nb.ipynb", "report.json", "job.json"))
    nbformat.write(prepared, notebook)
    job = Job(
        notebook=str(notebook),
        report=str(report),
        folder=str(folder),
        cell_s=limits.cell_s,
        memory_bytes=limits.memory_bytes,
        processor_s=int(2 * limits.notebook_s) + 1,
    )
    job_file.write_text(json.dumps(asdict(job)), encoding="utf-8")
    settings = {
        **os.environ,
        "COURSE_STRICT": "1",
        "COURSE_PROGRESS": "off",
        "IPYTHONDIR": str(scratch / "ipython"),
        "PYTHONWARNINGS": "ignore",
        # one thread each: several notebooks run at once, and each thread maps memory
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "course.exercises.runner", str(job_file)]
    with open(scratch / "log.txt", "wb") as log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=settings
        )
        end = time.monotonic() + limits.notebook_s
        try:
            while not (ended := _ended(process, end)) and time.monotonic() < end:
                look(_read_report(report))
        finally:
            _end(process)
        late = not ended
    found = _read_report(report)
    if late:
        found = replace(found, ended="limit")
    return found, _trouble(
        found, limits, (scratch / "log.txt").read_text(errors="replace", encoding="utf-8")
    )


def _ended(process: subprocess.Popen[bytes], end: float) -> bool:
    """Wait a moment, at most until `end`; whether the process has ended."""
    try:
        process.wait(max(0.0, min(_LOOK_S, end - time.monotonic())))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and the kernel below it, which has a session of its own."""
    import psutil

    if process.poll() is not None:
        return
    try:
        family = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        family = []
    process.kill()
    for child in family:
        try:
            child.kill()
        except psutil.Error:
            continue
    process.wait()


def _read_report(path: Path) -> Report:
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Report()
    return Report(said["ended"], said["at"], [CellReport(**cell) for cell in said["cells"]])


def _trouble(report: Report, limits: Limits, log: str) -> str:
    """Why the run ended before the notebook did; "" when it reached the end."""
    where = f" in cell {report.at}" if report.at else ""
    if report.ended == "completed":
        return ""
    if report.ended == "crashed":
        return f"the kernel died{where}"
    if report.ended == "limit":
        return f"the notebook ran past {limits.notebook_s:g} s{where}"
    if report.ended == "stuck":
        return f"the kernel no longer answers{where}"
    last = log.strip().splitlines()[-1:] or ["no message"]
    return f"the run ended early{where}: {last[0][:200]}"


def _seen(report: Report, chapter: int) -> list[str]:
    """What the run itself showed of tampering, for the whole notebook."""
    notes: list[str] = []
    for cell in report.cells:
        if cell.checks and not cell.id.startswith("check-"):
            # further calls of check are a student's right: only the canonical cells are read
            if any(record.get("status") == "passed" for record in cell.checks):
                notes.append(f"cell {cell.id} sent a passing record of its own (not counted)")
        elif len(cell.checks) > 1:
            notes.append(f"cell {cell.id} sent {len(cell.checks)} records")
    if report.ended != "completed":
        return notes
    said = next((cell.attest for cell in report.cells if cell.id == _ATTEST_ID), None)
    if said is None:
        notes.append("the checking code could not be attested at the end")
    elif said.get("digest") != attest.digest(chapter):
        notes.append("the course's checking code was changed while the notebook ran")
    elif not said.get("check_is_ours"):
        notes.append("the notebook's own `check` is not the course's at the end")
    return notes


def _result(
    name: str, exercise: Exercise, report: Report, trouble: str, notes: Sequence[str]
) -> Result:
    """Read one exercise's result off the report of its canonical check cell."""
    blank = Result(name, exercise.id, exercise.title, exercise.track, "not judged")
    blank = replace(blank, notes="; ".join(notes))
    cell = next((cell for cell in report.cells if cell.id == _check_id(exercise)), None)
    if cell is None:
        reason = trouble or "its check cell was never run"
        return replace(blank, reason=f"not judged: {reason}", status="failed")
    said = [record for record in cell.checks if record.get("exercise") == exercise.id]
    if len(said) != 1 or len(cell.checks) != 1:
        return replace(blank, status="failed", reason=_no_record(exercise, report, cell))
    status = _STATUS.get(str(said[0].get("status")), "failed")
    if status == "not tried":
        return replace(blank, status=status, reason="the stub is as it was")
    if status == "passed" and cell.error:
        return replace(blank, status="failed", reason=f"the check passed, then {cell.error}")
    if status == "passed":
        return replace(blank, status="passed")
    return replace(
        blank,
        status=status,
        misconception=str(said[0].get("misconception") or ""),
        reason=_one_line(str(said[0].get("message") or "")),
    )


def _check_id(exercise: Exercise) -> str:
    return f"check-{exercise.cell_suffix}"


def _no_record(exercise: Exercise, report: Report, cell: CellReport) -> str:
    """Why a check cell gave no record of its own: mostly that its answer does not exist."""
    if len(cell.checks) > 1:
        return f"its check cell sent {len(cell.checks)} records where one is right"
    answer = next((c for c in report.cells if c.id == f"answer-{exercise.cell_suffix}"), None)
    if answer is not None and answer.error:
        return f"the answer cell failed: {_one_line(answer.error)}"
    return f"the check could not run: {_one_line(cell.error) or 'no record'}"


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 300 else line[:297] + "..."
