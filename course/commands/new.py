"""Writes the files of a new explorer or exercise, to be rewritten; needs the cloned repository."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Annotated, Any

import typer

from course.paths import NOTEBOOKS, ROOT, need_clone

app = typer.Typer(
    no_args_is_help=True,
    help="Write the files of a new explorer or exercise.",
    context_settings={"help_option_names": ["-h", "--help"]},
)

TEMPLATES = ROOT / "docs" / "templates"
_NAME = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
_LESSON = typer.Option(help="The number of its notebook")


@app.command()
def explorer(
    name: Annotated[str, typer.Argument(help="As it will be called: small_letters")],
    lesson: Annotated[int, _LESSON],
) -> None:
    """Write picture, explorer, test, registry line and notebook cells of a new explorer."""
    from nbformat import v4

    words, folder = _words(name), f"ch{lesson:02d}"
    notebook = _notebook_of(lesson)
    registry = ROOT / "course" / "explore" / "__init__.pyi"
    lines = registry.read_text(encoding="utf-8").splitlines(keepends=True)
    if any(line.endswith(f" as {name}\n") for line in lines):
        raise ValueError(f"there is an explorer {name!r} already; choose another name")
    values = {
        "name": name, "words": words, "Title": words.capitalize(), "chapter": f"{lesson:02d}",
        "Noun": "".join(part.capitalize() for part in name.split("_")),
    }  # fmt: skip
    files = {
        ROOT / "course" / "figures" / folder / f"{name}.py": "figure.py.txt",
        ROOT / "course" / "explore" / folder / f"{name}.py": "explorer.py.txt",
        ROOT / "tests" / "ui" / f"test_{folder}_{name}.py": "explorer_test.py.txt",
    }
    _write({path: _filled(template, values) for path, template in files.items()})
    lines.append(f"from .{folder}.{name} import {name} as {name}\n")
    registry.write_text("".join(sorted(lines)), encoding="utf-8", newline="\n")
    _say(registry)
    shown = name.replace("_", "-")
    prose = f"### {values['Title']}\n\nWhat you will see here, and what to look at first."
    _insert(
        notebook,
        [
            v4.new_markdown_cell(
                prose, id=f"about-{shown}", metadata=_slide("subslide")
            ),
            v4.new_code_cell(
                f'explore.{name}("Half busy")', id=f"explore-{shown}", metadata=_slide("fragment")
            ),
        ],
    )  # fmt: skip
    typer.echo(f"Open it: explore.{name}(). Then make it yours, file by file, and run the tests.")


@app.command()
def exercise(
    name: Annotated[str, typer.Argument(help="The student's function: small_letters")],
    lesson: Annotated[int, _LESSON],
) -> None:
    """Write the file and the notebook cells of a new exercise, the lesson's next one."""
    from course.exercises.inject import exercise_cells
    from course.exercises.registry import chapter_exercises

    notebook = _notebook_of(lesson)
    there = chapter_exercises(lesson)
    if any(one.answer_name == name for one in there):
        raise ValueError(f"lesson {lesson} asks for {name!r} already; choose another name")
    number = len(there) + 1
    values = {
        "name": name, "number": f"{lesson}.{number}", "Title": _words(name).capitalize(),
    }  # fmt: skip
    folder = ROOT / "course" / "exercises" / f"ch{lesson:02d}"
    files = {folder / f"e{number}_{name}.py": _filled("exercise.py.txt", values)}
    if not (folder / "__init__.py").exists():
        about = f"The exercises of notebook {lesson:02d}, a file each; the registry finds them."
        files[folder / "__init__.py"] = f'"""{about}"""\n'
    _write(files)
    chapter_exercises.cache_clear()
    made = chapter_exercises(lesson)[-1]
    cells = exercise_cells(made)
    for cell, kind in zip(cells, ("subslide", "skip", "skip"), strict=True):
        cell.metadata.update(_slide(kind))
    _insert(notebook, cells)
    typer.echo(f"Exercise {made.id} stands in the notebook. Make it yours, and run the tests.")


@app.command()
def cells(number: Annotated[str, typer.Argument(help="The exercise, as in 2.3")]) -> None:
    """Write an exercise's question, stub and check into its notebook anew, from its file."""
    from course.exercises.inject import cell_role, exercise_cells
    from course.exercises.registry import exercise as found

    made = found(number)
    notebook = _notebook_of(made.chapter)
    book = _read(notebook)
    texts = {cell.metadata["course"]["role"]: cell.source for cell in exercise_cells(made)}
    for cell in book.cells:
        role = cell_role(cell)
        if role is not None and role[0] == made.id:
            cell.source = texts.pop(role[1], cell.source)
    if texts:
        raise ValueError(f"{notebook.name} lacks the {' and '.join(texts)} cell of {made.id}")
    _save(book, notebook)


def _words(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError(f"name={name!r} is no name; give small letters, as in two_queues")
    return name.replace("_", " ")


def _notebook_of(lesson: int) -> Path:
    from course.exercises.lessons import LESSONS

    need_clone("`course new`")
    for known in LESSONS:
        path = NOTEBOOKS / f"{known.stem}.ipynb"
        if known.number == lesson and path.exists():
            return path
    numbers = [known.number for known in LESSONS if (NOTEBOOKS / f"{known.stem}.ipynb").exists()]
    raise ValueError(f"lesson={lesson} has no notebook; give one of {numbers}")


def _filled(template: str, values: dict[str, str]) -> str:
    return Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)


def _write(files: dict[Path, str]) -> None:
    """Write new files, all or none: one that is there already is left alone."""
    for path in files:
        if path.exists():
            raise ValueError(f"{path} exists; choose another name, or remove it first")
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", newline="\n")
        _say(path)


def _insert(notebook: Path, cells: list[Any]) -> None:
    """Put cells before the notebook's recap."""
    book = _read(notebook)
    ends = [i for i, cell in enumerate(book.cells) if cell.source.startswith("## Recap")]
    place = ends[0] if ends else len(book.cells)
    book.cells[place:place] = cells
    _save(book, notebook)


def _read(notebook: Path) -> Any:
    import nbformat

    return nbformat.reads(notebook.read_text(encoding="utf-8"), as_version=nbformat.NO_CONVERT)


def _save(book: Any, notebook: Path) -> None:
    import nbformat

    notebook.write_text(nbformat.writes(book) + "\n", encoding="utf-8", newline="\n")
    _say(notebook)


def _slide(kind: str) -> dict[str, Any]:
    return {"slideshow": {"slide_type": kind}}


def _say(path: Path) -> None:
    typer.echo(f"  written {path.relative_to(ROOT)}")
