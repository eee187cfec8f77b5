"""A notebook's prose as one line, for tests that hold its figures to the model."""

from __future__ import annotations

from pathlib import Path

import nbformat

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"


def prose_of(number: int) -> str:
    """Return all text cells of a notebook as one line with single spaces."""
    (path,) = NOTEBOOKS.glob(f"{number:02d}_*.ipynb")
    cells = nbformat.read(path, as_version=4).cells
    return " ".join(" ".join(c.source for c in cells if c.cell_type == "markdown").split())
