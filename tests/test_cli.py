"""The command line as a person uses it: what it prints, and the exit status that scripts read."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course import cli, desk, doctor
from course.cli import app
from course.paths import ROOT

pytestmark = pytest.mark.slow

RUN = CliRunner()


def test_help_names_every_command() -> None:
    text = RUN.invoke(app, ["--help"]).output
    for command in ("lab", "doctor", "check", "glossary"):
        assert command in text


def test_glossary_prints_a_term_and_all() -> None:
    assert "λ/(c·μ)" in RUN.invoke(app, ["glossary", "rho"]).output
    assert len(RUN.invoke(app, ["glossary"]).output.splitlines()) > 20


def test_an_unknown_term_is_one_line_and_status_2() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "course", "glossary", "utilizaton"],
        capture_output=True, text=True, cwd=ROOT, timeout=60, check=False,
    )  # fmt: skip
    assert result.returncode == 2
    assert result.stderr.count("\n") == 1
    assert "utilization" in result.stderr


def test_lab_prepares_without_starting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import course.paths

    monkeypatch.setattr(course.paths, "WORK", tmp_path / "work")
    monkeypatch.setattr(desk, "warm_up", lambda progress: progress([("a kernel", lambda: None)]))
    first = RUN.invoke(app, ["lab", "--no-start"]).output
    assert f"Your notebooks are in {tmp_path / 'work'}" in first
    assert "copied  02_mm1_queueing.ipynb" in first
    second = RUN.invoke(app, ["lab", "--no-start"]).output
    assert "copied" not in second
    assert "of yours as they are" in second


def test_doctor_finds_this_machine_well() -> None:
    findings = doctor.examine()
    wrong = [f for f in findings if f.ok is False]
    assert not wrong, doctor.report(wrong)
    assert "All is well." in doctor.report(findings)
    assert {"Python", "numpy", "kernel", "sliders", "memory", "offline"} <= {
        f.subject for f in findings
    }


def test_doctor_says_how_to_mend(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A doctor that only says "wrong" sends the student home."""
    import importlib.metadata

    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.1" if name == "numpy" else real(name)
    )
    work = tmp_path / "work"
    work.mkdir()
    (work / "02_mm1_queueing.ipynb").write_text("{", encoding="utf-8")
    monkeypatch.setattr(doctor, "WORK", work)
    online = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", online)
    (online / "99_x.ipynb").write_text(
        '{"cells": [{"cell_type": "code", "source": ["u = \\"http://a.example\\""]}]}', "utf-8"
    )
    monkeypatch.setattr(doctor, "NOTEBOOKS", online)
    wrong = {f.subject: f for f in doctor.examine() if f.ok is False}
    assert set(wrong) == {"numpy", "work/", "offline"}
    assert all(finding.mend for finding in wrong.values())
    assert "3 to mend" in doctor.report(list(wrong.values()))


def test_a_broken_examination_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> None:
        raise RuntimeError("no such file")

    monkeypatch.setattr(doctor, "_memory", breaks)
    monkeypatch.setattr(breaks, "__name__", "_memory", raising=False)
    assert any(f.ok is False and "no such file" in f.words for f in doctor.examine())


def test_a_stream_without_the_sign_gets_a_plain_one(tmp_path: Path) -> None:
    """On Windows a redirected output knows neither − nor ≤, and a report would end half-way."""
    trace = tmp_path / "λ.csv"
    trace.write_text("arrival_s,prompt_tokens,output_tokens\n0,9,3\n1,9,3\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "course", "simulate", "--trace", trace, "--slo-ttft", "1"],
        capture_output=True, cwd=ROOT, timeout=120, check=False,
        env={**os.environ, "PYTHONIOENCODING": "cp1252"},
    )  # fmt: skip
    text = done.stdout.decode("cp1252")
    assert done.returncode == 0, done.stderr
    assert "TTFT <= 1" in text
    assert "\\u03bb.csv" in text


def test_running_out_of_memory_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def exhausted() -> None:
        raise MemoryError

    monkeypatch.setattr(cli, "app", exhausted)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "out of memory" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["new"], ["new", "explorer"], ["simulate"], ["lab"]])
def test_h_asks_for_help_everywhere(words: list[str]) -> None:
    """Half of all people type `-h` first."""
    done = CliRunner().invoke(cli.app, [*words, "-h"])
    assert done.exit_code == 0
    assert "--help" in done.output
