"""Writes the committed table of replayed logs anew; the replay lives in `course.serving`."""

from __future__ import annotations

import csv
import io
from dataclasses import asdict
from pathlib import Path

from course.paths import DATA


def table_text() -> str:
    """Return the table of every log under every rule as CSV, simulated now."""
    from course.serving.validation import replay_all

    rows = [asdict(row) for row in replay_all()]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def write_table(path: Path | None = None) -> Path:
    """Simulate every log under every rule and write the table; return where it went.

    `path`: `data/vllm_logs/replayed.csv` if left out. Raises OSError where it cannot be written.
    """
    from course.serving.validation import COMMITTED

    where = path or DATA / COMMITTED
    where.write_text(table_text(), encoding="utf-8", newline="\n")
    return where
