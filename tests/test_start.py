"""`make lab` on unusual machines: it looks first, says what to do, and breaks nothing."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from course import machine
from course.paths import ROOT

ANY_PYTHON = ("start.py", "course/machine.py", "course/__init__.py", "course/__main__.py")


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`start.py`, in a folder of the test's own, with nothing installed."""
    spec = importlib.util.spec_from_file_location("start", ROOT / "start.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    monkeypatch.setattr(module, "ROOT", str(tmp_path))
    monkeypatch.setattr(module, "VENV", str(tmp_path / ".venv"))
    monkeypatch.setattr(module, "STAMP", str(tmp_path / ".venv" / ".installed"))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: 1000, raising=False)
    return module


def environment(folder: Path, made_in: Path | None = None, version: str = "") -> Path:
    """A virtual environment, as far as is looked at: made in one place, lying in another."""
    python = Path(machine.python_in(str(folder)))
    python.parent.mkdir(parents=True)
    python.symlink_to(sys.executable)
    version = version or machine.dotted(sys.version_info[:3])
    (folder / "pyvenv.cfg").write_text(
        f"home = {Path(sys.executable).parent}\nversion = {version}\n"
        f"command = /usr/bin/python3 -m venv {made_in or folder}\n", encoding="utf-8",
    )  # fmt: skip
    return folder


@pytest.mark.parametrize("name", ANY_PYTHON)
def test_any_python_3_can_read_what_says_that_it_is_too_old(name: str) -> None:
    """A SyntaxError is no word of 3.11."""
    source = (ROOT / name).read_text(encoding="utf-8")
    ast.parse(source, feature_version=(3, 6))
    assert "from __future__ import annotations" not in source


def test_an_old_python_is_named_before_anything_is_installed(
    start: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start.sys, "version_info", (3, 8, 18))
    monkeypatch.setattr(start.machine, "new_enough_python", lambda: None)
    assert start.main(["lab"]) == 2
    said = capsys.readouterr().out
    assert "this one is 3.8.18, the course needs 3.11 or newer" in said
    assert "make lab PYTHON=" in said
    assert not Path(start.VENV).exists()


def test_a_newer_python_on_the_path_is_taken(
    start: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(start.sys, "version_info", (3, 8, 18))
    newer = tmp_path / "bin" / "python3.12"
    newer.parent.mkdir()
    newer.symlink_to(sys.executable)
    monkeypatch.setenv("PATH", str(newer.parent))
    assert start.machine.new_enough_python() == str(newer)
    assert "3.8.18 is too old" in start.python_finding(whole=False).words
    (newer.parent / "python3.13").write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    (newer.parent / "python3.13").chmod(0o755)  # a name that leads nowhere
    assert start.machine.new_enough_python() == str(newer)


def test_root_is_told_how_before_anything_is_installed(
    start: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    assert start.main(["lab", "--port", "8890"]) == 2
    assert 'make lab ARGS="--allow-root"' in capsys.readouterr().out
    assert not Path(start.VENV).exists()
    assert start.looked("lab", ["--allow-root"])
    assert start.looked("test", [])


def test_a_folder_that_cannot_be_written_and_a_full_disk_are_said(
    start: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(start.machine, "cannot_write", lambda _: "Read-only file system")
    usage = shutil.disk_usage(start.ROOT)
    monkeypatch.setattr(
        start.machine.shutil, "disk_usage", lambda _: usage._replace(free=9 * 10**8)
    )
    assert not start.looked("lab", [])
    said = capsys.readouterr().out
    assert "Read-only file system" in said
    assert "make room: 1.5 GB are needed" in said
    environment(Path(start.VENV))
    assert start.looked("lab", []), "what is installed needs neither"


@pytest.mark.parametrize(
    ("made_in", "version", "word"),
    [("/elsewhere/my course/.venv", "", "/elsewhere/my course/.venv"), (None, "3.9.2", "3.9.2")],
    ids=["moved", "another version"],
)
def test_a_stale_environment_is_found(
    tmp_path: Path, made_in: str | None, version: str, word: str
) -> None:
    """A moved folder's scripts lead to where it was, and `doctor` said that all is well."""
    folder = environment(tmp_path / ".venv", made_in and Path(made_in), version)
    assert word in machine.stale(str(folder))


def test_an_environment_of_this_place_is_kept(tmp_path: Path) -> None:
    folder = environment(tmp_path / "my course" / ".venv")
    assert machine.stale(str(folder)) == ""
    (tmp_path / "link").symlink_to(tmp_path / "my course")
    assert machine.stale(str(tmp_path / "link" / ".venv")) == ""
    Path(machine.python_in(str(folder))).unlink()
    assert "does not start" in machine.stale(str(folder))


def test_a_failed_rebuilding_leaves_what_was_there(
    start: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a network the old environment may be all there is."""
    old = environment(Path(start.VENV), Path("/elsewhere/.venv"))
    (old / "mine").touch()
    monkeypatch.setattr(start.subprocess, "call", lambda *_, **__: 1)
    monkeypatch.setattr(start.machine, "lacking", lambda _: ["numpy"])
    assert start.main(["lab"]) == 2
    assert (old / "mine").exists()
    assert ".venv is built anew: it was made in /elsewhere/.venv" in capsys.readouterr().out
    assert sorted(path.name for path in Path(start.ROOT).iterdir() if path.is_dir()) == [".venv"]


def test_a_moved_environment_serves_where_there_is_no_network(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment(Path(start.VENV), Path("/elsewhere/.venv"))
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.setattr(start.subprocess, "call", lambda *_, **__: 1)
    monkeypatch.setattr(start.machine, "lacking", lambda _: [])
    began: list[list[str]] = []
    monkeypatch.setattr(start, "become", lambda command: began.append(command) or 0)
    assert start.main(["lab", "--port", "1"]) == 0
    assert began == [[machine.python_in(start.VENV), "-m", "course", "lab", "--port", "1"]]
    assert os.environ["PYTHONPATH"] == start.ROOT, "kernels find the course too"


def test_a_missing_package_is_installed_whatever_the_stamp_says(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The doctor's cure skipped pip because a file said that all was installed."""
    environment(Path(start.VENV))
    calls: list[list[str]] = []
    status = [0]

    def call(command: list[str], **_: object) -> int:
        calls.append(command)
        return status[0]

    missing: list[str] | None = None
    monkeypatch.setattr(start.subprocess, "call", call)
    monkeypatch.setattr(start.machine, "lacking", lambda _: missing)

    def pips(extras: str) -> int:
        calls.clear()
        assert start.made(extras)
        return sum("install" in command for command in calls)

    assert pips("") == 1
    missing = []
    assert pips("") == 0
    missing = ["numpy"]
    assert pips("") == 1
    missing = []
    assert pips("dev") == 1
    assert pips("") == pips("dev") == 0
    Path(start.ROOT, "constraints.txt").write_text("numpy==2.4.6\n", encoding="utf-8")
    assert pips("") == 1
    assert json.loads(Path(start.STAMP).read_text("utf-8"))["extras"] == "dev"
    Path(start.ROOT, "constraints.txt").write_text("numpy==2.4.7\n", encoding="utf-8")
    calls.clear()
    monkeypatch.setattr(start, "environment_made", lambda: True)
    status[0] = 1  # no network: what is whole is used as it is
    assert start.made("")
    missing = ["numpy"]
    assert not start.made("")


def test_what_another_python_lacks_is_found(tmp_path: Path) -> None:
    found = machine.lacking(sys.executable)
    assert found == [], "the tests run where the course is installed"
    assert machine.lacking(str(tmp_path / "none")) is None


@pytest.mark.skipif(sys.platform == "win32", reason="no such lock there")
def test_a_question_about_installing_installs_nothing(start: Any, capsys: Any) -> None:
    assert start.main(["install", "--help"]) == 2
    assert "start.py install" in capsys.readouterr().out
    assert not Path(start.VENV).exists(), "who asks for help is given text, not a gigabyte"


def test_two_starts_at_once_install_one_after_the_other(start: Any) -> None:
    code = f"""if True:
        import sys; sys.path.insert(0, {str(ROOT)!r})
        import start; start.ROOT = {start.ROOT!r}
        with start.one_at_a_time(): print("got it", flush=True)
    """
    with start.one_at_a_time():
        other = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )
        assert other.stdout is not None
        assert "waiting for it" in other.stdout.readline()
        time.sleep(0.2)
        assert other.poll() is None
    assert other.communicate()[0] == "got it\n"


@pytest.mark.skipif(sys.platform == "win32" or not shutil.which("make"), reason="needs make")
def test_make_hands_over_arguments_and_itself() -> None:
    words = "--port 8890 --ip 0.0.0.0 --no-browser --allow-root"
    said = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", "lab", f"ARGS={words}", "PYTHON=python3.11"],
        cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True, timeout=60,
    ).stdout.strip()  # fmt: skip
    assert said == f"exec python3.11 start.py lab {words}"
