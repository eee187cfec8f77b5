"""Writes a command's result to a file and says so; what it holds is decided elsewhere."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer


def tell(what: str, path: Path) -> None:
    """Say where a result lies, as any terminal can print it."""
    from course.serving.files import printable_path

    typer.echo(f"{what}: {printable_path(str(path))}")


def write_json(path: Path, value: Any, what: str) -> None:
    """Write plain values as strict JSON, without NaN, and say where."""
    text = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    tell(what, path)
