"""A student's answers are never touched; a lost afternoon of work is the worst we could do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from course.desk import lab_command, lay_out


@pytest.fixture
def originals(tmp_path: Path) -> Path:
    folder = tmp_path / "notebooks"
    folder.mkdir()
    for name in ("00_start_here", "02_mm1_queueing"):
        (folder / f"{name}.ipynb").write_text('{"cells": [], "v": 1}', encoding="utf-8")
    return folder


def test_first_time_copies_all(originals: Path, tmp_path: Path) -> None:
    laid = lay_out(originals, tmp_path / "work")
    assert laid.copied == ("00_start_here.ipynb", "02_mm1_queueing.ipynb")
    assert (tmp_path / "work" / "02_mm1_queueing.ipynb").exists()


def test_second_time_touches_nothing(originals: Path, tmp_path: Path) -> None:
    desk = tmp_path / "work"
    lay_out(originals, desk)
    mine = desk / "02_mm1_queueing.ipynb"
    mine.write_text("my answers", encoding="utf-8")
    before = mine.stat().st_mtime_ns
    laid = lay_out(originals, desk)
    assert laid.copied == laid.offered == ()
    assert mine.read_text(encoding="utf-8") == "my answers"
    assert mine.stat().st_mtime_ns == before


def test_a_deleted_copy_comes_back(originals: Path, tmp_path: Path) -> None:
    desk = tmp_path / "work"
    lay_out(originals, desk)
    (desk / "00_start_here.ipynb").unlink()
    assert lay_out(originals, desk).copied == ("00_start_here.ipynb",)


def test_a_changed_original_is_offered_beside_once(originals: Path, tmp_path: Path) -> None:
    desk = tmp_path / "work"
    lay_out(originals, desk)
    (desk / "02_mm1_queueing.ipynb").write_text("my answers", encoding="utf-8")
    (originals / "02_mm1_queueing.ipynb").write_text('{"cells": [], "v": 2}', encoding="utf-8")
    assert lay_out(originals, desk).offered == ("02_mm1_queueing.updated.ipynb",)
    assert (desk / "02_mm1_queueing.ipynb").read_text(encoding="utf-8") == "my answers"
    assert json.loads((desk / "02_mm1_queueing.updated.ipynb").read_text("utf-8"))["v"] == 2
    assert lay_out(originals, desk).offered == ()


def test_a_damaged_record_loses_nothing(originals: Path, tmp_path: Path) -> None:
    desk = tmp_path / "work"
    lay_out(originals, desk)
    (desk / "02_mm1_queueing.ipynb").write_text("my answers", encoding="utf-8")
    for damage in ("{", "[]", "\x00"):
        (desk / ".originals.json").write_text(damage, encoding="utf-8")
        lay_out(originals, desk)
        assert (desk / "02_mm1_queueing.ipynb").read_text(encoding="utf-8") == "my answers"


def test_lab_listens_on_this_machine_alone_and_keeps_its_token(tmp_path: Path) -> None:
    command = " ".join(lab_command(tmp_path))
    assert "--ServerApp.ip=127.0.0.1" in command
    assert "token" not in command
    assert str(tmp_path) in command
