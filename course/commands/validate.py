"""``python -m course validate``: writes the tables and pictures of the validation; no rule here."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from course.commands._targets import make_folder
from course.paths import DATA, INSTALLED

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from course.serving.validation import Validation


def validate(
    out: Annotated[
        Path, typer.Option(help="Where the tables and pictures go (the committed ones: as it is)")
    ] = Path("validation") if INSTALLED else DATA / "validation",
    pictures: Annotated[bool, typer.Option(help="Also draw predicted against measured")] = True,
) -> None:
    """Predict every measured point anew, and say how far off the cost model is.

    Fits the constants anew, leaves each set-up out in turn, fits each by itself, and fits single
    steps. What comes out is printed, and written as tables and pictures.
    """
    from tqdm import tqdm

    from course.serving.validation import validate as validated
    from course.serving.validation import validation_stages, validation_text

    make_folder("--out", out)
    with tqdm(total=validation_stages(), leave=False, disable=None) as bar:

        def done(label: str) -> None:
            bar.set_description(f"{label:<40.40}")
            bar.update()

        found = validated(done)
    typer.echo(validation_text(found.errors, found.constants, found.folds))
    for path in write_tables(found, out):
        typer.echo(f"written: {path}")
    if pictures:
        for path in write_pictures(found, out):
            typer.echo(f"drawn: {path}")


def table_text(rows: Sequence[DataclassInstance]) -> str:
    """Return rows as CSV, None as an empty cell, numbers as short as they can be."""
    cells = [{k: _cell(v) for k, v in asdict(row).items()} for row in rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(cells[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(cells)
    return text.getvalue()


def _cell(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def write_tables(found: Validation, folder: Path) -> list[Path]:
    """Write the four tables into `folder`; return where they went."""
    written = []
    for name, rows in (
        ("serving_points.csv", found.points),
        ("iteration_times.csv", found.steps),
        ("constants.csv", found.constants),
        ("left_out.csv", found.folds),
    ):
        (folder / name).write_text(table_text(rows), encoding="utf-8", newline="\n")
        written.append(folder / name)
    return written


def write_pictures(found: Validation, folder: Path) -> list[Path]:
    """Draw predicted against measured, points and steps, into `folder`; return where they went."""
    from course.figures.validation import draw_points, draw_steps

    drawn = []
    for name, figure in (
        ("serving_points.png", draw_points(found.points)),
        ("iteration_times.png", draw_steps(found.steps)),
    ):
        figure.savefig(folder / name, dpi=100, metadata={"Software": None})
        drawn.append(folder / name)
    return drawn
