"""The command line as a person uses it: what it prints, and the exit status that scripts read."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from course import cli, desk
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
        capture_output=True, text=True, encoding="utf-8", cwd=ROOT, timeout=60, check=False,
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


def test_lab_gives_jupyterlab_what_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import course.paths

    began: list[list[str]] = []
    for name in ("COURSE_WORK", "JUPYTER_PREFER_ENV_PATH"):
        monkeypatch.setenv(name, "")  # to be as before afterwards
    monkeypatch.setattr(course.paths, "WORK", tmp_path / "work")
    monkeypatch.setattr(desk, "warm_up", lambda progress: progress([]))
    monkeypatch.setattr(desk, "become", lambda command: began.append(command) or 7)
    words = ["lab", "--port", "8890", "--ip", "0.0.0.0", "--no-browser", "--allow-root"]
    assert RUN.invoke(app, words).exit_code == 7
    (command,) = began
    assert " ".join(command).endswith("--no-browser --port 8890 --ip 0.0.0.0 --allow-root")
    assert "--ServerApp.ip=127.0.0.1" not in command


def test_lab_refuses_root_before_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """JupyterLab refuses root after minutes of work, and does not say how `make` allows it."""
    import course.paths

    monkeypatch.setattr(course.paths, "WORK", tmp_path / "work")
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    done = RUN.invoke(app, ["lab"])
    assert done.exit_code == 2
    assert 'make lab ARGS="--allow-root"' in done.output
    assert not (tmp_path / "work").exists()


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
