"""A student's answers are never touched; a lost afternoon of work is the worst we could do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course import desk
from course.commands import _targets
from course.commands._targets import check_targets
from course.desk import lab_command, lay_out
from course.paths import ROOT
from tests.lanes import examples


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


def test_an_update_that_somebody_works_in_is_left_alone_too(
    originals: Path, tmp_path: Path
) -> None:
    """Whoever goes on in the offered notebook must not lose that work at the next update."""
    desk = tmp_path / "work"
    lay_out(originals, desk)
    (desk / "02_mm1_queueing.ipynb").write_text("my answers", encoding="utf-8")
    for version, name in ((2, "updated"), (3, "updated-2"), (4, "updated-3")):
        text = f'{{"cells": [], "v": {version}}}'
        (originals / "02_mm1_queueing.ipynb").write_text(text, encoding="utf-8")
        assert lay_out(originals, desk).offered == (f"02_mm1_queueing.{name}.ipynb",)
        (desk / f"02_mm1_queueing.{name}.ipynb").write_text(f"work {version}", encoding="utf-8")
    assert [(desk / f"02_mm1_queueing.{name}.ipynb").read_text("utf-8") for name in
            ("updated", "updated-2", "updated-3")] == ["work 2", "work 3", "work 4"]  # fmt: skip


@pytest.mark.parametrize(
    "damage",
    ["{", "[]", "\x00", "{}", "null", '{"02_mm1_queueing.ipynb": 3}',
     '{"02_mm1_queueing.ipynb": "x"}', None],
)  # fmt: skip
def test_a_damaged_record_hides_no_update_and_is_said(
    originals: Path, tmp_path: Path, damage: str | None
) -> None:
    desk = tmp_path / "work"
    lay_out(originals, desk)
    (desk / "02_mm1_queueing.ipynb").write_text("my answers", encoding="utf-8")
    (originals / "02_mm1_queueing.ipynb").write_text('{"cells": [], "v": 2}', encoding="utf-8")
    if damage is None:
        (desk / ".originals.json").unlink()
    else:
        (desk / ".originals.json").write_text(damage, encoding="utf-8")
    laid = lay_out(originals, desk)
    assert laid.record_lost
    assert laid.offered == ("02_mm1_queueing.updated.ipynb",)
    assert laid.kept == ("00_start_here.ipynb",)
    assert not lay_out(originals, desk).record_lost


def test_a_record_that_knows_only_some_is_said(originals: Path, tmp_path: Path) -> None:
    """Otherwise an update of the notebook that it forgot comes without a word of why."""
    desk = tmp_path / "work"
    lay_out(originals, desk)
    record = json.loads((desk / ".originals.json").read_text("utf-8"))
    del record["02_mm1_queueing.ipynb"]
    (desk / ".originals.json").write_text(json.dumps(record), encoding="utf-8")
    assert lay_out(originals, desk).record_lost


@pytest.mark.parametrize("links", [True, False])
def test_a_copy_that_cannot_be_finished_is_none(
    originals: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Half a notebook opens nowhere, and the next start would keep it as the student's own."""
    desk = tmp_path / "work"
    desk.mkdir()
    big = b"x" * 200_000

    def no_link(*_: object) -> None:
        raise OSError("links are not supported here")

    if not links:
        monkeypatch.setattr(os, "link", no_link)
    code = """if True:
        import resource, sys
        from pathlib import Path
        from course import desk
        if sys.argv[2] == "without":
            def no_link(*_): raise OSError
            desk.os.link = no_link
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        try: desk._created(Path(sys.argv[1]), b"x" * 200_000)
        except OSError: sys.exit(3)
    """
    pytest.importorskip("resource", reason="no limit of a file's size to set here")
    words = [sys.executable, "-c", code, desk / "new.ipynb", "with" if links else "without"]
    assert subprocess.run(words, cwd=ROOT, check=False, timeout=60).returncode == 3
    assert list(desk.iterdir()) == []
    (originals / "02_mm1_queueing.ipynb").write_bytes(big)
    lay_out(originals, desk)
    assert (desk / "02_mm1_queueing.ipynb").read_bytes() == big
    assert not [path.name for path in desk.iterdir() if path.name.endswith(".tmp")]


def test_a_result_does_not_replace_what_lies_in_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--csv work/02_mm1_queueing.ipynb` is a slip of the hand; the price an afternoon's work."""
    monkeypatch.setattr(_targets, "WORK", tmp_path / "work")
    mine = tmp_path / "work" / "notes.csv"
    mine.parent.mkdir()
    check_targets({}, {"--csv": mine})
    mine.write_text("mine", encoding="utf-8")
    with pytest.raises(ValueError, match=r"nothing in work/ is written over; give another name"):
        check_targets({}, {"--csv": mine})
    (tmp_path / "old.csv").write_text("a result", encoding="utf-8")
    check_targets({}, {"--csv": tmp_path / "old.csv"})


NAMES = ("00_start_here.ipynb", "02_mm1_queueing.ipynb", "02_mm1_queueing.updated.ipynb")
STEPS = st.one_of(
    st.tuples(st.just("edit"), st.integers(0, 5), st.integers(0, 9)),
    st.tuples(st.just("update"), st.integers(0, 1), st.integers(0, 9)),
    st.tuples(st.just("rename"), st.integers(0, 5), st.integers(0, 5)),
    st.tuples(st.just("delete"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("damage"), st.integers(0, 3), st.just(0)),
    st.tuples(st.just("start"), st.just(0), st.just(0)),
    st.tuples(st.just("two starts"), st.just(0), st.just(0)),
)


@settings(max_examples=examples(200), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEPS, min_size=3, max_size=14))
def test_in_any_history_no_byte_of_a_person_s_is_lost(steps: list[tuple[str, int, int]]) -> None:
    """The model: a file that a person wrote or renamed is where they left it, as they left it,
    until they themselves change it; whatever the course does in between."""
    with tempfile.TemporaryDirectory() as folder:
        originals, desk = Path(folder) / "notebooks", Path(folder) / "work"
        originals.mkdir()
        for name in NAMES[:2]:
            (originals / name).write_text("course 0", encoding="utf-8")
        lay_out(originals, desk)
        theirs: dict[str, bytes] = {}
        for number, (step, one, other) in enumerate(steps):
            there = sorted(path.name for path in desk.glob("*.ipynb"))
            chosen = there[one % len(there)] if there else ""
            if step == "edit" and chosen:
                theirs[chosen] = f"person {number} {other}".encode()
                (desk / chosen).write_bytes(theirs[chosen])
            elif step == "update":
                (originals / NAMES[one]).write_text(f"course {other}", encoding="utf-8")
            elif step == "rename" and chosen:
                new = ("mine.ipynb", "copy.ipynb", *NAMES, "02_mm1_queueing.updated-2.ipynb")[other]
                if not (desk / new).exists():
                    (desk / chosen).rename(desk / new)
                    theirs.pop(chosen, None)
                    theirs[new] = (desk / new).read_bytes()
            elif step == "delete" and chosen:
                (desk / chosen).unlink()
                theirs.pop(chosen, None)
            elif step == "damage":
                (desk / ".originals.json").write_bytes((b"", b"{", b"[1]", b"{}")[one])
            elif step == "start":
                lay_out(originals, desk)
            elif step == "two starts":
                with ThreadPoolExecutor(2) as pool:
                    for laid in [pool.submit(lay_out, originals, desk) for _ in range(2)]:
                        laid.result()
            for name, content in theirs.items():
                assert (desk / name).read_bytes() == content, f"{name} after {step}"
        lay_out(originals, desk)
        for name in NAMES[:2]:  # nobody is left without the course's newest notebook
            beside = desk.glob(f"{Path(name).stem}*.ipynb")
            newest = (originals / name).read_bytes()
            assert name in theirs or any(path.read_bytes() == newest for path in beside)


def test_lab_listens_on_this_machine_alone_and_keeps_its_token(tmp_path: Path) -> None:
    command = " ".join(lab_command(tmp_path))
    assert "--ServerApp.ip=127.0.0.1" in command
    assert "token" not in command
    assert str(tmp_path) in command
    lay_out(ROOT / "notebooks", tmp_path)
    assert "--LabApp.default_url=/lab/tree/00_start_here.ipynb" in lab_command(tmp_path)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such handing over")
def test_jupyter_gets_the_process_itself_and_so_every_signal() -> None:
    """A parent that ends at the first Ctrl-C takes the terminal from the one that asks."""
    code = """if True:
        import os, sys
        from course.desk import become
        print(os.getpid())
        become([sys.executable, "-c", "import os; print(os.getpid())"])
    """
    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=ROOT,
        check=True,
    ).stdout.split()
    assert said[0] == said[1]


def test_a_desk_that_cannot_be_written_is_elsewhere_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An installation that a hub keeps read-only must not end in a traceback."""
    (tmp_path / "file").touch()
    nowhere = tmp_path / "file" / "work"
    monkeypatch.chdir(tmp_path)
    place, words = desk.a_desk(nowhere)
    assert place == tmp_path / "work"
    assert str(place) in words
    assert str(nowhere) in words
    assert desk.a_desk(place) == (place, "")
    monkeypatch.setattr(desk, "cannot_write", lambda folder: "" if "course-" in folder else "no")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    place, words = desk.a_desk(nowhere)
    assert place.parent.parent == tmp_path
    assert "download what you want to keep" in words


def test_without_a_home_settings_go_to_a_folder_that_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "JUPYTER_DATA_DIR", "JUPYTER_CONFIG_DIR",
                 "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):  # fmt: skip
        monkeypatch.setenv(name, "x")
        monkeypatch.delenv(name)
    for name in ("HOME", "USERPROFILE", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    assert desk.settle_homes() == ""
    assert not (tmp_path / "home").exists()
    for name in ("HOME", "USERPROFILE", "APPDATA"):
        monkeypatch.setenv(name, str(tmp_path / "file" / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    words = desk.settle_homes()
    assert words.count("\n") == 0
    assert str(tmp_path / "file" / "home") in words
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
        assert Path(os.environ[name]).is_dir()
        assert str(Path(os.environ[name]).parent) in words
    assert desk.settle_homes() == ""
