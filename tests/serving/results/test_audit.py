"""What `audit` prints: the same findings for people and for programs, and no file stops another."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from course.serving.results import audit_files
from tests.serving.results import layouts


def test_one_broken_file_does_not_stop_the_others(tmp_path) -> None:
    good = layouts.write(tmp_path, layouts.vllm(request_throughput=25.0), name="good.json")
    broken = tmp_path / "broken.json"
    broken.write_text('{"completed": 1', encoding="utf-8")
    audit = audit_files([broken, good])
    text = audit.as_text()
    assert f"{good}  (vllm)" in text
    assert "! misleading: requests/s is 25.0, but counts over the duration give 19.5" in text
    assert "cannot be used: line 1: ends in the middle of a value: it was cut off" in text
    assert [error.place for error in audit.errors] == ["line 1"]


def test_text_has_the_figures_in_readable_units(tmp_path) -> None:
    text = audit_files([layouts.write(tmp_path, layouts.vllm(failed=7, completed=393))]).as_text()
    assert "393 of 400 requests, asked 20.0/s, 20.5 s long" in text
    assert "TTFT  mean 120 ms, P50 108 ms, P99 240 ms" in text
    assert "! misleading: 7 of 400 requests failed" in text


def test_a_sound_file_is_told_so(tmp_path) -> None:
    sound = layouts.vllm()
    sound = {key: value for key, value in sound.items() if not key.startswith("p99.9")}
    audit = audit_files([layouts.write(tmp_path, sound)])
    text = audit.as_text()
    assert "nothing to object to, as far as the checks below go" in text
    assert "checked: counts; " in text
    assert "not checked, for lack of figures: " in text
    assert "Little's law" in text.split("not checked")[1], "without a cap there is nothing to hold"


def test_nothing_completed_is_no_success(tmp_path) -> None:
    """A script that looks at the exit status alone must not take such a file for a result."""
    assert audit_files([layouts.write(tmp_path, layouts.vllm())]).has_answers
    assert not audit_files([layouts.write(tmp_path, layouts.vllm_nothing_completed())]).has_answers


def test_the_files_own_requests_stand_beside_what_it_prints(tmp_path) -> None:
    text = audit_files([layouts.write(tmp_path, layouts.vllm_detail(mean_ttft_ms=250.0))]).as_text()
    assert "from the 3 answers that the file keeps:" in text
    assert text.count("TTFT  mean") == 2


def test_lengths_and_the_time_to_send_are_told(tmp_path) -> None:
    text = audit_files([layouts.write(tmp_path, layouts.vllm())]).as_text()
    assert "20.5 s long, of which 20.0 s to send, " in text
    assert " tokens in and " in text


def test_every_layout_makes_strict_json(tmp_path) -> None:
    """NaN and Infinity are no JSON: the next program would choke on them."""
    paths = [
        layouts.write(tmp_path, value, name=f"{place}.json")
        for place, value in enumerate(layouts.EVERY_LAYOUT.values())
    ]
    audit = audit_files(paths)
    assert not audit.errors
    told = json.loads(json.dumps(audit.as_dict(), allow_nan=False))
    assert [file["tool"] for file in told["files"]][:1] == ["vllm"]
    run = told["files"][0]["runs"][0]
    assert run["summary"]["ttft"]["quantiles_s"]["99"] == 0.24
    assert told["files"][4]["runs"][0]["summary"]["asked_per_s"] == "inf"
    assert audit.as_text()


def test_several_runs_are_told_one_by_one(tmp_path) -> None:
    path = layouts.write(tmp_path, layouts.sglang(), layouts.sglang(max_concurrency=400))
    text = audit_files([path]).as_text()
    assert "line 1, data set ours: 300 requests, no limit on the rate, at most 16 at once" in text
    assert "line 2, data set ours" in text
    assert "the file holds 2 runs" in text


@pytest.mark.skipif(sys.platform != "linux", reason="other systems refuse such names")
@pytest.mark.parametrize("name", [b"esc\x1b[31m.json", b"bad\xff.json", b"two\nlines.json"])
def test_a_files_name_reaches_the_terminal_as_text_alone(name: bytes, tmp_path) -> None:
    """A name can hold a terminal's command, or bytes that no output stream can encode."""
    good = Path(os.fsdecode(os.path.join(os.fsencode(tmp_path), name)))
    layouts.write(tmp_path, layouts.vllm(), name=good.name)
    audit = audit_files([good, good.with_suffix(".nowhere")])
    assert (len(audit.results), len(audit.errors)) == (1, 1)
    told = audit.as_dict()
    paths = [told["files"][0]["path"], told["errors"][0]["path"]]
    assert all(path.isprintable() for path in paths)
    json.dumps(told, ensure_ascii=False).encode()
    assert all(line.replace("\u00a0", " ").isprintable() for line in audit.as_text().split("\n"))
    assert audit.results[0].path == str(good)


@pytest.mark.parametrize("head", ["users,tok_s", "users;tok_s", "users\ttok_s", "arrival_s,a,b"])
def test_a_table_is_sent_where_tables_are_read(head: str, tmp_path) -> None:
    """Who gives `audit` a sweep's table has the right file and the wrong command."""
    path = tmp_path / "sweep.csv"
    path.write_text(head + "\n1,2\n", encoding="utf-8")
    (error,) = audit_files([path]).errors
    assert error.place == "line 1"
    for way in ("course knee", "load_trace", "simulate --trace"):
        assert way in error.what


@pytest.mark.parametrize("text", ["==== Serving Benchmark Result ====\n", "<html>a, b</html>"])
def test_what_a_tool_printed_is_no_result_and_no_table(text: str, tmp_path) -> None:
    path = tmp_path / "out.txt"
    path.write_text(text, encoding="utf-8")
    (error,) = audit_files([path]).errors
    assert "give the JSON that the tool saved" in error.what
    assert "knee" not in error.what
