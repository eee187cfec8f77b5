"""If these fail, a student loses progress, or a damaged file stops the notebook."""

from __future__ import annotations

import json
import os
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from course.exercises import records
from course.exercises.records import Record, after_check


def passed(record: Record) -> Record:
    return after_check(record, "right", passed=True)


def missed(record: Record) -> Record:
    return after_check(record, "wrong", passed=False)


def test_progress_survives_the_kernel(own_progress: Path) -> None:
    records.update("2.1", missed)
    records.update("2.1", passed)
    found, note = records.records()
    assert note == ""
    assert found["2.1"].attempts == 2
    assert found["2.1"].answers == ("wrong", "right")
    assert found["2.1"].passed
    assert json.loads(own_progress.read_text(encoding="utf-8"))["schema"] == records.SCHEMA


def test_a_pass_is_not_lost_by_a_later_miss() -> None:
    record = missed(passed(Record()))
    assert record.passed


def test_the_same_wrong_answer_thrice_does_not_unlock_the_reference() -> None:
    same = missed(missed(missed(Record())))
    different = Record()
    for name in ("a", "b", "c"):
        different = after_check(different, name, passed=False)
    assert not same.reference_unlocked
    assert different.reference_unlocked


def test_hints_unlock_one_an_attempt() -> None:
    assert [Record(attempts=n).hints_unlocked(3) for n in range(5)] == [0, 1, 2, 3, 3]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "null",
        '{"schema": 1}',
        '{"schema": 1, "exercises": {"2.1": {"attempts": "many"}}}',
        '{"schema": 1, "exercises": [1, 2]}',
        "[" * 100_000,
        "\x00\x01",
    ],
)
def test_a_damaged_file_is_set_aside_and_said_so(own_progress: Path, content: str) -> None:
    own_progress.write_text(content, encoding="utf-8")
    record, note = records.update("2.1", passed)
    assert record.passed
    assert "damaged" in note
    assert own_progress.with_name("progress.json.damaged-1").read_text(encoding="utf-8") == content
    assert records.records() == ({"2.1": record}, "")


def test_a_second_damaged_file_does_not_overwrite_the_first(own_progress: Path) -> None:
    for content in ("first", "second"):
        own_progress.write_text(content, encoding="utf-8")
        records.update("2.1", missed)
    assert own_progress.with_name("progress.json.damaged-1").read_text(encoding="utf-8") == "first"
    assert own_progress.with_name("progress.json.damaged-2").read_text(encoding="utf-8") == "second"


def test_invalid_utf8_is_damage_too(own_progress: Path) -> None:
    own_progress.write_bytes(b"\xff\xfe\x00")
    assert "damaged" in records.update("2.1", missed)[1]


def test_a_file_of_a_later_course_is_left_alone(own_progress: Path) -> None:
    later = json.dumps({"schema": records.SCHEMA + 1, "exercises": {"2.1": "something new"}})
    own_progress.write_text(later, encoding="utf-8")
    record, note = records.update("2.1", passed)
    assert record.passed
    assert "later version" in note
    assert own_progress.read_text(encoding="utf-8") == later


def test_a_folder_that_cannot_be_written_costs_a_sentence_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COURSE_PROGRESS", str(tmp_path / "missing" / "progress.json"))
    record, note = records.update("2.1", missed)
    assert "cannot be written" in note
    assert record.attempts == 1
    again, _ = records.update("2.1", missed)
    assert again.attempts == 2, "hints must unlock even where nothing can be saved"
    assert records.records()[0]["2.1"].attempts == 2


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_costs_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "locked"
    folder.mkdir()
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setenv("COURSE_PROGRESS", str(folder / "progress.json"))
    assert "cannot be written" in records.update("2.1", missed)[1]


def test_off_reads_and_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COURSE_PROGRESS", "off")
    record, note = records.update("2.1", passed)
    assert (record.attempts, note) == (1, "")
    assert records.records() == ({}, "")
    assert list(tmp_path.iterdir()) == []


def test_by_default_the_file_lies_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COURSE_PROGRESS")
    records.update("2.1", missed)
    assert [path.name for path in tmp_path.iterdir()] == [records.FILE_NAME]


def test_a_write_that_fails_midway_leaves_the_old_file_whole(
    own_progress: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.update("2.1", passed)
    before = own_progress.read_text(encoding="utf-8")

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(records.os, "replace", full_disk)
    record, note = records.update("2.2", passed)
    assert record.passed
    assert "cannot be written" in note
    assert own_progress.read_text(encoding="utf-8") == before
    assert [path.name for path in own_progress.parent.iterdir()] == [own_progress.name]
    monkeypatch.undo()
    records._unsaved.clear()


def test_two_notebooks_that_check_at_once_lose_no_attempt(own_progress: Path) -> None:
    def many() -> None:
        for _ in range(20):
            records.update("2.1", missed)

    workers = [threading.Thread(target=many) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert records.records()[0]["2.1"].attempts == 60


def test_a_lock_left_by_a_crash_does_not_stop_anyone(own_progress: Path) -> None:
    lock = own_progress.with_name(own_progress.name + ".lock")
    lock.touch()
    old = time.time() - 60
    os.utime(lock, (old, old))
    records.update("2.1", missed)
    assert records.records()[0]["2.1"].attempts == 1
    assert not lock.exists()


def test_an_unchanged_record_writes_no_file(own_progress: Path) -> None:
    records.update("2.1", lambda record: replace(record))
    assert not own_progress.exists()
