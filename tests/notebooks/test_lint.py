"""The form of every notebook, and that each rule really catches what it is for."""

from __future__ import annotations

from pathlib import Path

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from tests.notebooks.lint import breaches

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "notebooks").glob("*.ipynb"))
SLIDE = {"slideshow": {"slide_type": "slide"}}


def test_every_notebook_keeps_the_form() -> None:
    found = [breach for path in NOTEBOOKS for breach in breaches(path)]
    assert not found, "\n" + "\n".join(map(str, found))


def test_there_are_notebooks() -> None:
    assert NOTEBOOKS


def good() -> nbformat.NotebookNode:
    cells = [
        new_markdown_cell(
            "# Title\n\nReading: 10 min. Exercises: 10 min.\n\n## What you will be able to do\n",
            id="title",
            metadata=SLIDE,
        ),
        new_code_cell("x = 1", id="setup", metadata=SLIDE),
        new_markdown_cell("About 8 minutes to here.", id="mark-1", metadata=SLIDE),
        new_markdown_cell("About 20 minutes to here.", id="mark-2", metadata=SLIDE),
        new_markdown_cell("## Recap\n\n## Quiz\n", id="recap", metadata=SLIDE),
    ]
    notebook = new_notebook(cells=cells)
    notebook.nbformat_minor = 5
    return notebook


def broken(tmp_path: Path, notebook: nbformat.NotebookNode) -> str:
    path = tmp_path / "02_example.ipynb"
    nbformat.write(notebook, path)
    return "\n".join(map(str, breaches(path)))


def test_a_good_notebook_has_no_breach(tmp_path: Path) -> None:
    assert broken(tmp_path, good()) == ""


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("!ls", "runs a shell command"),
        ("%matplotlib inline", "uses the magic %matplotlib"),
        ("a = 'https://example.org'", "names an address"),
        ("\n".join(["x = 1"] * 26), "longer than 25"),
        ("x = 1\nexplore.hockey_stick()", "a demo cell is one line"),
        ("display(figure)", "without alternative text"),
        ("def f(:", "is not Python"),
        ("plt.show()", "uses pyplot"),
        ("", "is empty"),
    ],
)
def test_breaches_in_code_are_found(tmp_path: Path, source: str, words: str) -> None:
    notebook = good()
    notebook.cells[1].source = source
    assert words in broken(tmp_path, notebook)


def test_breaches_of_the_whole_are_found(tmp_path: Path) -> None:
    notebook = good()
    notebook.cells[1].execution_count = 3
    notebook.cells[2].source = "About 30 minutes to here. [next](03_missing.ipynb)"
    notebook.cells[2].id = "Mark_1"
    notebook.cells[3].metadata = {}
    notebook.cells[4].source = "## Recap"
    text = broken(tmp_path, notebook)
    for words in (
        "outputs or an execution count",
        "section from minute 0 to minute 30",
        "links to 03_missing.ipynb",
        "no readable id",
        "slide_type None",
        "no '## Quiz'",
    ):
        assert words in text, text


def test_a_file_that_is_no_notebook_is_a_breach(tmp_path: Path) -> None:
    path = tmp_path / "02_x.ipynb"
    path.write_text("{", encoding="utf-8")
    assert "not a valid notebook" in str(breaches(path)[0])
