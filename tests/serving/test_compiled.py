"""Compiled code is found again after a comment, and never after a change: a student must not wait
for a compiler in a lesson, and nobody must be shown the figures of a rule that was mended."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from course.serving import _compiled

SHARED = '''
from course.serving._compiled import compiled


@compiled()
def price(tokens):
    """Return a price."""
    return 2.0 * tokens  # of one token
'''
CALLER = """
from course.serving._compiled import compiled
from course.serving.engine.kernels.shared import price


@compiled()
def bill(tokens):
    return price(tokens) + 1.0
"""
ASK = """
from course.serving.engine.kernels.caller import bill
print(bill(10), sum(bill.stats.cache_hits.values()), sum(bill.stats.cache_misses.values()))
"""
# refuses to write below the course, for root as well
READ_ONLY = """
import tempfile
from pathlib import Path
make = tempfile.TemporaryFile
def refuse(*args, dir=None, **kwargs):
    if Path.cwd() / "course" in Path(dir).parents:
        raise PermissionError(dir)
    return make(*args, dir=dir, **kwargs)
tempfile.TemporaryFile = refuse
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A course of two tiny kernels in two files, one calling the other."""
    serving = tmp_path / "course" / "serving"
    kernels = serving / "engine" / "kernels"
    kernels.mkdir(parents=True)
    for folder in (serving.parent, serving, serving / "engine", kernels):
        (folder / "__init__.py").write_text("", encoding="utf-8")
    shutil.copy(str(_compiled.__file__), serving)
    (kernels / "shared.py").write_text(SHARED, encoding="utf-8")
    (kernels / "caller.py").write_text(CALLER, encoding="utf-8")
    return tmp_path


def environment(package: Path, **more: str) -> dict[str, str]:
    home = package / "home"
    return {
        **os.environ, "PYTHONPATH": str(package), "HOME": str(home), "TMPDIR": str(package),
        "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(home / "cache"), **more,
    }  # fmt: skip


def asked(package: Path, first: str = "", **more: str) -> tuple[float, int, int]:
    """A bill for ten tokens, and whether its machine code was found, in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", first + ASK], cwd=package, env=environment(package, **more),
        capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    bill, hits, misses = done.stdout.split()
    return float(bill), int(hits), int(misses)


def changed(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


@pytest.mark.slow
def test_a_comment_keeps_the_code_and_a_change_in_another_file_does_not(package: Path) -> None:
    """numba by itself has it the wrong way round, twice (its issue 1833)."""
    shared = package / "course" / "serving" / "engine" / "kernels" / "shared.py"
    assert asked(package) == (21.0, 0, 1)
    assert asked(package) == (21.0, 1, 0)
    changed(shared, "  # of one token", "")
    changed(shared, "Return a price.", "Return what so many tokens cost.\n\n    In dollars.\n    ")
    changed(shared, "def price(tokens):", "# a comment\n\n\ndef price(\n    tokens,\n):")
    assert asked(package) == (21.0, 1, 0)
    changed(shared, "2.0 * tokens", "3.0 * tokens")
    assert asked(package) == (31.0, 0, 1)
    assert asked(package) == (31.0, 1, 0)


@pytest.mark.slow
def test_two_processes_at_once_get_their_answers(package: Path) -> None:
    """A class starts its lesson in the same second."""
    running = [
        subprocess.Popen(
            [sys.executable, "-c", ASK], cwd=package, env=environment(package),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, encoding="utf-8",
        )
        for _ in range(3)
    ]  # fmt: skip
    for process in running:
        out, said = process.communicate(timeout=120)
        assert process.returncode == 0, said
        assert out.startswith("21.0 ")
    assert asked(package) == (21.0, 1, 0)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="other folders there")
def test_where_nothing_can_be_kept_beside_the_code_it_goes_to_the_user(package: Path) -> None:
    """A hub installs the course once, and nobody but its owner may write there."""
    in_the_way = package / "course" / "serving" / "__pycache__"
    in_the_way.write_text("no folder", encoding="utf-8")  # holds for root as well
    assert asked(package) == (21.0, 0, 1)
    assert asked(package) == (21.0, 1, 0)
    kept = package / "home" / "cache" / "throughput-latency-course" / "kernels"
    assert list(kept.glob("*/*.nbi"))
    shutil.rmtree(package / "home")
    (package / "home").write_text("no folder either", encoding="utf-8")
    assert asked(package) == (21.0, 0, 1)
    assert asked(package) == (21.0, 1, 0)  # in the temporary folder


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="other folders there")
def test_what_an_installation_compiled_is_read_and_what_it_lacks_is_kept_elsewhere(
    package: Path,
) -> None:
    """A hub's image is built on one processor and used on another."""
    other = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert asked(package) == (21.0, 0, 1)
    assert asked(package, READ_ONLY) == (21.0, 1, 0)
    assert asked(package, READ_ONLY, **other) == (21.0, 0, 1)
    assert asked(package, READ_ONLY, **other) == (21.0, 1, 0)
    assert asked(package, READ_ONLY) == (21.0, 1, 0)


@pytest.mark.skipif(sys.platform == "win32", reason="other folders there")
def test_no_folder_is_made_of_a_home_that_nobody_knows(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A container may run as a user without a name, whose `~` stays as it is."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(_compiled.os.path, "expanduser", lambda path: path)
    assert all(place.is_absolute() for place in _compiled._places())


@pytest.mark.slow
def test_another_place_can_be_named(package: Path) -> None:
    """A class may share one folder of compiled code."""
    assert asked(package, COURSE_CACHE_DIR=str(package / "shared")) == (21.0, 0, 1)
    assert list((package / "shared" / "kernels").glob("*/*.nbi"))


def test_only_the_last_keys_are_kept_and_nothing_else_is_touched(tmp_path: Path) -> None:
    """A maintainer's folder must not grow for ever, nor lose what is not the course's."""
    names = [f"{n:020x}" for n in range(7)]
    for age, name in enumerate(names):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (time.time() - 1000 * age,) * 2)
    (tmp_path / "notes").mkdir()
    (tmp_path / f"{9:020x}").write_text("a file", encoding="utf-8")
    _compiled._forget_old(tmp_path / names[0])
    kept = {path.name for path in tmp_path.iterdir()}
    assert kept == {*names[: _compiled.KEPT], "notes", f"{9:020x}"}


def test_a_kernel_outside_the_kernels_files_is_refused() -> None:
    """Its changes would go unnoticed."""
    with pytest.raises(ValueError, match=r"alone stands in .*put it there"):

        @_compiled.compiled()
        def alone() -> int:
            return 1


def test_the_key_is_of_what_the_kernels_do() -> None:
    one = "def f(a):\n    'Docs.'\n    return a + 1\n"
    same = "# why\ndef f(a):\n    '''Other words.'''\n\n    return (a + 1)  # so\n"
    other = "def f(a):\n    'Docs.'\n    return a + 2\n"
    parts = [list(_compiled._parts(_compiled._code_of(text))) for text in (one, same, other)]
    assert parts[0] == parts[1]
    assert parts[0] != parts[2]
