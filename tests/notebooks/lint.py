"""The rules of a notebook's form, each breach with notebook, cell and line, all at once."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import nbformat

MAX_LINES = 25
SHORT_LINES = 10
SLIDE_TYPES = {"slide", "subslide", "fragment", "skip", "notes", "-"}
ALLOWED_MAGICS: set[str] = set()
MINUTES_TO_HERE = re.compile(r"about (\d+) minutes to here", re.IGNORECASE)
MAX_SECTION_MINUTES = 15
MAX_CORE_MINUTES = 75


@dataclass(frozen=True)
class Breach:
    """One broken rule and where."""

    notebook: str
    cell: str
    line: int
    words: str

    def __str__(self) -> str:
        return f"{self.notebook}, cell {self.cell}, line {self.line}: {self.words}"


def breaches(path: Path) -> list[Breach]:
    """Every breach of the form in one notebook."""
    try:
        notebook = nbformat.read(path, as_version=nbformat.NO_CONVERT)
        nbformat.validate(notebook)
    except Exception as error:
        return [Breach(path.name, "-", 0, f"is not a valid notebook: {error}")]
    found = [Breach(path.name, "-", 0, words) for words in _whole(path, notebook)]
    for number, cell in enumerate(notebook.cells):
        name = cell.get("id", f"#{number}")
        found += [Breach(path.name, name, line, words) for line, words in _cell(cell)]
    return found


def _whole(path: Path, notebook: Any) -> Iterator[str]:
    if (notebook.nbformat, notebook.nbformat_minor) != (4, 5):
        yield f"is nbformat {notebook.nbformat}.{notebook.nbformat_minor}, not 4.5"
    if "widgets" in notebook.metadata:
        yield "stores widget state"
    ids = [cell.get("id", "") for cell in notebook.cells]
    for name in sorted({name for name in ids if ids.count(name) > 1}):
        yield f"two cells are called {name!r}"
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    short = sum(len(source.splitlines()) <= SHORT_LINES for source in code)
    if code and short < 0.8 * len(code):
        yield f"only {short} of {len(code)} code cells have at most {SHORT_LINES} lines"
    yield from _frame(path, notebook)
    yield from _minutes(notebook)


def _frame(path: Path, notebook: Any) -> Iterator[str]:
    """Title, times and goals first; recap, quiz and the way on last."""
    text = [cell.source for cell in notebook.cells if cell.cell_type == "markdown"]
    if not text or not text[0].startswith("# "):
        yield "does not open with a title"
        return
    if not re.search(r"reading.*\d+ min.*exercises.*\d+ min", text[0], re.IGNORECASE | re.DOTALL):
        yield "does not say its reading and exercise minutes in the first cell"
    head, tail = "\n".join(text[:3]), "\n".join(text[-6:])
    if "## What you will be able to do" not in head:
        yield "has no learning goals near the top"
    for heading in ("## Recap", "## Quiz"):
        if heading not in tail:
            yield f"has no {heading!r} near the end"
    number = int(path.name[:2])
    links = re.findall(r"\]\(([^)#]+\.ipynb)\)", "\n".join(text))
    for link in links:
        if not (path.parent / link).exists():
            yield f"links to {link}, which does not exist"
    near = [n for n in (number - 1, number + 1) if list(path.parent.glob(f"{n:02d}_*.ipynb"))]
    for n in near:
        if not any(link.startswith(f"{n:02d}_") for link in links):
            yield f"does not link to notebook {n:02d}"


def _minutes(notebook: Any) -> Iterator[str]:
    marks = [0]
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            marks += [int(m) for m in MINUTES_TO_HERE.findall(cell.source)]
    if len(marks) < 3:
        yield "has fewer than two marks “about N minutes to here”"
    for before, after in pairwise(marks):
        if not 0 < after - before <= MAX_SECTION_MINUTES:
            yield f"has a section from minute {before} to minute {after}"
    if marks[-1] > MAX_CORE_MINUTES:
        yield f"takes {marks[-1]} minutes, more than {MAX_CORE_MINUTES}"


def _cell(cell: Any) -> Iterator[tuple[int, str]]:
    lines = cell.source.splitlines()
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", cell.get("id", "")):
        yield 0, "has no readable id (small letters and dashes)"
    if not cell.source.strip():
        yield 0, "is empty"
    slide = cell.metadata.get("slideshow", {}).get("slide_type")
    if slide not in SLIDE_TYPES:
        yield 0, f"has slide_type {slide!r}"
    if slide == "notes" and "<details>" not in cell.source:
        yield 0, "shows presenter's notes to the student: fold them in <details>"
    if cell.cell_type == "markdown":
        yield from _markdown(lines)
    elif cell.cell_type == "code":
        yield from _code(cell, lines)


def _markdown(lines: list[str]) -> Iterator[tuple[int, str]]:
    for number, line in enumerate(lines, 1):
        if re.search(r"!\[\s*\]\(", line):
            yield number, "has a picture without alternative text"
        if re.search(r"<img|!\[[^]]*\]\(https?:", line):
            yield number, "fetches a picture"


def _code(cell: Any, lines: list[str]) -> Iterator[tuple[int, str]]:
    if cell.outputs or cell.execution_count is not None:
        yield 0, "is stored with outputs or an execution count"
    if len(lines) > MAX_LINES:
        yield len(lines), f"is longer than {MAX_LINES} lines"
    for number, line in enumerate(lines, 1):
        if re.match(r"\s*!", line):
            yield number, "runs a shell command"
        magic = re.match(r"\s*%%?(\w+)", line)
        if magic and magic.group(1) not in ALLOWED_MAGICS:
            yield number, f"uses the magic %{magic.group(1)}"
        if re.search(r"https?://", line):
            yield number, "names an address in code"
    try:
        tree = ast.parse(cell.source)
    except SyntaxError as error:
        yield error.lineno or 0, f"is not Python: {error.msg}"
        return
    yield from _calls(tree, lines)


def _calls(tree: ast.Module, lines: list[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        if name.startswith("explore.") and len(lines) > 1:
            yield node.lineno, "mixes an explorer with other code: a demo cell is one line"
        if name == "display" and "alt" not in ast.unparse(node):
            yield node.lineno, "displays a figure without alternative text"
        if name == "still" and len(node.args) + len(node.keywords) < 2:
            yield node.lineno, "shows a figure without alternative text"
        if name in {"plt.show", "plt.figure", "plt.subplots"}:
            yield node.lineno, "uses pyplot"
