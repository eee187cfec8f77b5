"""`python -m course validate`: what is written and printed; the numbers have tests of their own."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from course.cli import app
from course.commands.validate import table_text, write_tables
from course.serving.catalog.tables import DATA
from course.serving.validation import points as validation
from course.serving.validation.points import (
    Validation,
    committed_constants,
    committed_errors,
    committed_folds,
    committed_points,
    committed_steps,
)

pytestmark = pytest.mark.slow

FOUND = Validation(committed_points(), committed_steps(), committed_constants(), committed_folds())


def test_tables_are_written_as_they_are_committed(tmp_path: Path) -> None:
    """A table that cannot be written anew is a table that nobody can check."""
    for path in write_tables(FOUND, tmp_path):
        committed = DATA / "validation" / path.name
        assert path.read_text(encoding="utf-8") == committed.read_text(encoding="utf-8")
    assert FOUND.errors == committed_errors()
    assert table_text(FOUND.points[:1]).count("\n") == 2


@pytest.mark.parametrize("pictures", [True, False])
def test_the_command_prints_every_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pictures: bool
) -> None:
    monkeypatch.setattr("course.serving.validation.validate", lambda done: (done("all"), FOUND)[1])
    options = ["validate", "--out", str(tmp_path)] + ([] if pictures else ["--no-pictures"])
    result = CliRunner().invoke(app, options)
    assert result.exit_code == 0, result.output
    for row in FOUND.errors:
        assert f"{100 * row.median:5.1f} % {100 * row.p90:5.1f} %" in result.output
        assert row.block in result.output
    assert "mbu = 0.8 ± 0.038  (identified)" in result.output
    best = next(row for row in FOUND.errors if (row.figure, row.block) == ("throughput", "all"))
    table = result.output.splitlines()
    assert table[0].startswith("How far off")
    assert f"{100 * best.median:.1f} /{100 * best.p90:5.1f}" in table[2]
    assert any("on a model not seen" in line and "gpt-oss-120b" in line for line in table)
    drawn = sorted(path.name for path in tmp_path.glob("*.png"))
    assert drawn == (["iteration_times.png", "serving_points.png"] if pictures else [])


def test_stages_are_as_many_as_the_bar_expects(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bar would end before the work, or never."""
    rows = [row for row in validation.comparable_points() if row.source == "silybench"]
    rows = [row for row in rows if row.concurrency in (1, 16) and row.prompt_tokens == 128]
    monkeypatch.setattr(validation, "comparable_points", lambda: tuple(rows))
    monkeypatch.setattr(validation, "FITTED", ("launch_per_layer_s", "mbu"))
    stages: list[str] = []
    found = validation.validate(stages.append)
    assert len(stages) == validation.validation_stages() == 7
    assert len(found.points) == len(rows) == 8
    assert all(point.own_tokens_per_s is not None for point in found.points)
