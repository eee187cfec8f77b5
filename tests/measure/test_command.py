"""``python -m course bench`` as a person uses it, with torch and without."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from course.cli import app
from course.measure import bench, machine, save_record
from course.measure.record import load_record, newest_measured
from course.paths import ROOT
from tests.measure.samples import RECORD
from tests.measure.tiny import TINY

pytestmark = pytest.mark.slow

RUN = CliRunner()


@pytest.fixture
def _tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is optional; see README")
    monkeypatch.setattr(bench, "plan_for", lambda kind, quick: TINY)
    monkeypatch.setattr(machine, "last_level_cache_bytes", lambda: 2**18)


def test_without_torch_it_is_one_line_and_status_2() -> None:
    code = "import sys; sys.modules['torch'] = None; sys.argv = ['course', 'bench', '--quick']\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "from course.cli import main; main()"],
        capture_output=True, text=True, encoding="utf-8", cwd=ROOT, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: torch is not installed")
    assert '".[gpu]"' in done.stderr


def test_a_file_can_be_read_without_measuring(tmp_path: Path) -> None:
    path = save_record(RECORD, tmp_path / "run.json")
    result = RUN.invoke(app, ["bench", "--read", str(path)])
    assert result.exit_code == 0
    assert "Largest residual" in result.output


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_text("{", "utf-8")
    result = RUN.invoke(app, ["bench", "--read", str(path)])
    assert "run.json: is no JSON" in str(result.exception)


@pytest.mark.usefixtures("_tiny")
def test_it_measures_writes_and_reports(tmp_path: Path) -> None:
    path = tmp_path / "mine.json"
    result = RUN.invoke(
        app, ["bench", "--quick", "--device", "cpu", "--threads", "1", "--seed", "5",
              "--out", str(path)],
    )  # fmt: skip
    assert result.exit_code == 0, result.exception
    assert "Weights read once for the whole batch, bf16" in result.output
    assert "decides" in result.output or "explains every point" in result.output
    record = load_record(path)
    assert (record.quick, record.seed) == (True, 5)
    assert record.points


@pytest.mark.usefixtures("_tiny")
def test_without_a_name_it_goes_to_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Lesson 10 looks there for the reader's own machine."""
    import course.paths

    monkeypatch.setattr(course.paths, "WORK", tmp_path / "work")
    result = RUN.invoke(app, ["bench", "--device", "cpu", "--threads", "1"])
    assert result.exit_code == 0, result.exception
    found = newest_measured(tmp_path / "work")
    assert found is not None
    assert found.points


@pytest.mark.usefixtures("_tiny")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--out", "nowhere/at/all.json"], "there is no folder"),
        (["--out", "."], "is a folder"),
        (["--budget-s", "-1"], "budget_s=-1.0 is not above 0"),
    ],
)
def test_what_cannot_work_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], words: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = RUN.invoke(app, ["bench", "--device", "cpu", *options])
    assert words in str(result.exception)


def test_a_wanted_card_that_is_not_there_is_an_error() -> None:
    torch: Any = pytest.importorskip("torch", reason="torch is optional; see README")
    if torch.cuda.is_available():
        pytest.skip("there is a card here")
    result = RUN.invoke(app, ["bench", "--device", "cuda"])
    assert "no CUDA card can be used" in str(result.exception)
