"""The doctor on unusual machines: a doctor who says "well" of every one of them helps nobody."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from course import doctor, machine
from course.machine import Finding
from course.paths import ROOT

pytestmark = pytest.mark.slow

ALLOWED = ("--allow-root",)


def wrong(findings: Iterator[Finding]) -> dict[str, Finding]:
    found = {finding.subject: finding for finding in findings if finding.ok is False}
    assert all(finding.mend for finding in found.values())
    return found


def silent(_: str) -> None: ...


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment without a single package: the course was never installed there."""
    folder = tmp_path_factory.mktemp("bare") / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=120)
    return Path(machine.python_in(str(folder)))


def test_this_machine_is_well() -> None:
    findings = list(doctor.examine(ALLOWED))
    assert wrong(iter(findings)) == {}
    assert {"Python", "packages", "kernel", "sliders", "memory", "offline", "compiled code"} <= {
        finding.subject for finding in findings
    }


def test_without_any_package_it_speaks_and_names_the_cure(bare: Path) -> None:
    """typer missing was a traceback; so were lazy_loader, psutil and packaging."""
    done = subprocess.run(
        [bare, "-m", "course", "doctor", *ALLOWED], cwd=ROOT, timeout=120, check=False,
        capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert done.returncode == 1
    assert "Traceback" not in done.stdout + done.stderr
    for name in ("typer", "numpy", "lazy-loader"):
        assert f"MEND  {name}: is missing" in done.stdout
    assert f"{bare} -m pip install -c constraints.txt -e ." in done.stdout
    other = subprocess.run(
        [bare, "-m", "course", "glossary"], cwd=ROOT, timeout=60, check=False,
        capture_output=True, text=True, encoding="utf-8",
    )  # fmt: skip
    assert other.returncode == 2
    assert "`python -m course doctor` says more" in other.stdout


def test_each_finding_is_printed_as_it_is_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[str] = []

    def examine(_: object, progress: doctor.Progress) -> Iterator[Finding]:
        yield Finding("one", True, "well")
        progress("waiting")
        seen.append(capsys.readouterr().out)
        yield Finding("two", False, "ill", "rest")

    monkeypatch.setattr(doctor, "examine", examine)
    assert doctor.main() == 1
    assert seen == ["ok    one: well\n      … waiting\n"]
    assert capsys.readouterr().out.startswith("MEND  two: ill\n      → rest\n1 to mend")


def test_a_version_a_notebook_and_an_address_are_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(doctor, "_needs", lambda: ["numpy<2", "nosuchpackage>=1", "scipy>=1"])
    found = wrong(doctor._packages())
    assert set(found) == {"numpy", "nosuchpackage"}
    assert "pip install -c constraints.txt -e ." in found["nosuchpackage"].mend
    work = tmp_path / "work"
    work.mkdir()
    (work / "02_mm1_queueing.ipynb").write_text("{", encoding="utf-8")
    monkeypatch.setattr(doctor, "WORK", work)
    assert set(wrong(doctor._desk())) == {"work/"}
    online = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", online)
    (online / "99_x.ipynb").write_text(
        '{"cells": [{"cell_type": "code", "source": ["u = \\"http://a.example\\""]}]}', "utf-8"
    )
    monkeypatch.setattr(doctor, "NOTEBOOKS", online)
    assert "99_x.ipynb" in wrong(doctor._offline())["offline"].words


def test_a_package_that_lost_files_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """pip believes the record of a package; so a cure that asks pip once more cures nothing."""
    record = tmp_path / "lossy-1.0.dist-info"
    record.mkdir()
    (record / "METADATA").write_text("Name: lossy\nVersion: 1.0\n", encoding="utf-8")
    (record / "RECORD").write_text("lossy/__init__.py,,\nlossy-1.0.dist-info/RECORD,,\n", "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(doctor, "_needs", lambda: ["lossy"])
    found = wrong(doctor._packages())["lossy"]
    assert "1 of its files are missing" in found.words
    assert "--force-reinstall --no-deps lossy==1.0" in found.mend


def test_root_is_no_small_thing_unless_it_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0, raising=False)
    assert "ARGS=" in wrong(doctor._user(()))["user"].mend
    assert wrong(doctor._user(ALLOWED)) == {}


def test_a_moved_folder_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "pyvenv.cfg").write_text("command = python3 -m venv /before/.venv\n", "utf-8")
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    found = wrong(doctor._python())["environment"]
    assert "was made in /before/.venv" in found.words
    assert "make lab" in found.mend


def test_folders_that_cannot_be_written_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """matplotlib and Jupyter meet them only when a notebook is open."""
    (tmp_path / "file").touch()
    nowhere = str(tmp_path / "file" / "x")
    for name in ("MPLCONFIGDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, nowhere)
    monkeypatch.setattr(doctor, "WORK", tmp_path / "work")
    real = machine.cannot_write
    monkeypatch.setattr(machine, "cannot_write", lambda f: "no" if f == str(ROOT) else real(f))
    found = {finding.subject: finding for finding in doctor._folders()}
    for name in ("MPLCONFIGDIR", "JUPYTER_RUNTIME_DIR"):
        assert nowhere in found[name].words
        assert name in found[name].mend
        assert os.environ[name] != nowhere, "what is tried afterwards has a folder"
    assert str(tmp_path / "work") in found["folder"].words
    monkeypatch.setattr(
        machine, "cannot_write", lambda f: "denied" if f == str(tmp_path / "work") else ""
    )
    assert "chown" in wrong(doctor._desk())["work/"].mend
    monkeypatch.setattr(machine, "cannot_write", lambda _: "read-only")
    assert wrong(doctor._desk()) == {}, "a hub's image is as it should be"


def test_a_nonsense_backend_is_found_where_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "nonsense")
    found = wrong(doctor._matplotlib())["pictures"]
    assert "MPLBACKEND is nonsense" in found.words
    assert found.mend.startswith("unset MPLBACKEND")


def foreign_kernel(folder: Path, python: Path | str) -> Path:
    """A kernel's description that names another Python, where Jupyter finds it first."""
    place = folder / "kernels" / "python3"
    place.mkdir(parents=True)
    argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec = {"argv": argv, "display_name": "Python 3", "language": "python"}
    (place / "kernel.json").write_text(json.dumps(spec), encoding="utf-8")
    return place


def test_a_kernel_of_another_python_that_dies_is_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, bare: Path
) -> None:
    place = foreign_kernel(tmp_path, bare)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    found = wrong(doctor._kernel(silent))["kernel"]
    assert str(bare) in found.words
    assert "No module named" in found.words
    assert f"rename the folder {place}" in found.mend
    place.rename(place.with_name("other"))  # the cure
    assert wrong(doctor._kernel(silent)) == {}


def test_kernels_are_judged_by_what_they_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"spec": f"{sys.prefix}/share/jupyter/kernels/python3", "argv": "python"}
    course = [str(ROOT / "course")]

    def judged(**said: Any) -> Finding:
        return doctor._kernel_finding({**own, **said})

    assert judged(prefix=sys.prefix, course=course).ok
    other = judged(prefix="/usr", course=course)
    assert other.ok is False
    assert "ipykernel install --sys-prefix" in other.mend
    elsewhere = judged(prefix=sys.prefix, course=["/old/course"])
    assert "/old/course" in elsewhere.words
    assert elsewhere.ok is False
    assert judged(error="ModuleNotFoundError: No module named 'course'").mend == doctor.install()


def test_an_examination_that_breaks_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks() -> Iterator[Finding]:
        raise RuntimeError("no such file")

    for name in ("_compiled_code", "_matplotlib", "_kernel"):
        monkeypatch.setattr(doctor, name, lambda *_: iter(()))
    monkeypatch.setattr(doctor, "_memory", breaks)
    assert "no such file" in wrong(doctor.examine(ALLOWED))["doctor"].words


def test_compiled_code_that_is_damaged_is_found_and_its_folder_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """After a full disk every notebook fails in the same obscure way, until the folder is gone."""
    from course.serving._compiled import kernel_folder, kernel_key

    (finding,) = doctor._compiled_code(silent)
    assert finding.ok
    assert str(kernel_folder()) in finding.words
    damaged = tmp_path / "kernels" / kernel_key()
    shutil.copytree(kernel_folder(), damaged)
    for index in damaged.glob("*.nbi"):
        index.write_bytes(b"garbage\n")
    monkeypatch.setenv("COURSE_CACHE_DIR", str(tmp_path))
    assert (
        f"remove the folder {damaged}" in wrong(doctor._compiled_code(silent))["compiled code"].mend
    )


def test_code_that_can_be_kept_nowhere_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    code = 'print("/tmp/course-kernels-x1")'
    monkeypatch.setattr(doctor, "_COMPILE", code)
    assert "COURSE_CACHE_DIR" in wrong(doctor._compiled_code(silent))["compiled code"].mend
