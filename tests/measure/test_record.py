"""A record is all that is left of a run: reading gives back what was written, or says why not."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.measure.record import (
    BENCHES,
    RECORDED,
    SCHEMA,
    ModelShape,
    Point,
    Record,
    RecordError,
    load_record,
    newest_measured,
    recorded_runs,
    save_record,
)
from tests.measure.samples import CARD, DEVICE, RECORD, dense_point

pytestmark = pytest.mark.slow


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = save_record(RECORD, tmp_path / "run.json")
    assert load_record(path) == RECORD
    assert load_record(str(path)) == RECORD
    assert list(tmp_path.iterdir()) == [path], "the half-written file beside it must be gone"
    empty = replace(RECORD, points=(), checks=(), left_out=(), warnings=(), device=CARD)
    assert load_record(save_record(empty, tmp_path / "empty.json")) == empty


def test_a_point_is_a_line(tmp_path: Path) -> None:
    """Two runs are compared with a line-by-line tool; one long line would hide everything."""
    text = save_record(RECORD, tmp_path / "run.json").read_text("utf-8")
    assert sum('"bench"' in line for line in text.splitlines()) == len(RECORD.points)


@given(st.data())
def test_any_measured_values_survive(data: st.DataObject) -> None:
    quartiles = sorted(data.draw(st.lists(st.floats(1e-12, 1e6), min_size=4, max_size=4), "times"))
    name = data.draw(st.sampled_from(sorted(BENCHES)))
    shape = {key: data.draw(st.integers(0, 2**60)) for key in BENCHES[name].shape}
    point = Point(
        name, "bf16", shape, data.draw(st.integers(0, 2**62)), 5,
        quartiles[2], quartiles[1], quartiles[3], quartiles[0], 1, 1,
    )  # fmt: skip
    words = data.draw(st.text(max_size=20))
    record = replace(RECORD, points=(point,), warnings=(words,), device=replace(DEVICE, name=words))
    from course.measure._json_nouns import noun_from_json, noun_to_json

    assert noun_from_json(Record, json.loads(json.dumps(noun_to_json(record))), "x") == record


def damaged(tmp_path: Path, change: Any) -> str:
    path = save_record(RECORD, tmp_path / "run.json")
    content = json.loads(path.read_text("utf-8"))
    change(content)
    path.write_text(json.dumps(content), "utf-8")
    with pytest.raises(RecordError) as caught:
        load_record(path)
    message = str(caught.value)
    assert str(path) in message
    assert "python -m course bench" in message
    return message


def put(*keys: Any, value: Any) -> Any:
    def change(content: Any) -> None:
        for key in keys[:-1]:
            content = content[key]
        content[keys[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (put("points", 3, "median_s", value="fast"), "record.points[3].median_s is 'fast', not a"),
        (put("points", 3, "median_s", value=float("nan")), "points[3].median_s is nan"),
        (put("points", 3, "median_s", value=float("inf")), "points[3].median_s is inf"),
        (put("points", 3, "median_s", value=-1.0), "record.points[3]: fastest_s="),
        (put("points", 3, "median_s", value=10**400), "points[3].median_s is too large"),
        (put("points", 3, "median_s", value=True), "points[3].median_s is True"),
        (put("points", 3, "repeats", value=1.5), "points[3].repeats is 1.5, not a whole number"),
        (put("points", 3, "repeats", value=0), "repeats=0 is below 1"),
        (put("points", 3, "bench", value="matmull"), "bench='matmull' is not known"),
        (put("points", 3, "shape", value={"size": 3}), "does not fit decode_gemm"),
        (put("points", 3, "shape", value=[]), "points[3].shape is [], not an object"),
        (put("points", 3, value=None), "record.points[3] is None, not an object"),
        (put("points", value={}), "record.points is {}, not a list"),
        (put("device", "kind", value="tpu"), "kind='tpu' is not known"),
        (put("device", "driver", value=5), "device.driver is 5, not text"),
        (put("device", "host", value="x"), "device.host is not known"),
        (put("schema", value="other/9"), "schema is 'other/9'"),
        (put("started_at", value="yesterday"), "started_at='yesterday' is no ISO 8601"),
        (put("started_at", value="2026-11-29T18:30:00"), "with an offset"),
        (put("quick", value=1), "record.quick is 1, not true or false"),
        (put("model", "hidden", value=3), "hidden=3 is no multiple"),
        (put("model", "layers", value=0), "layers=0 is below 1"),
        (lambda content: content.pop("seed"), "record.seed is missing"),
    ],
)
def test_damage_names_its_place(tmp_path: Path, change: Any, words: str) -> None:
    assert words in damaged(tmp_path, change)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{", "null", '"text"', "[" * 100_000])
def test_what_is_no_record_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, "utf-8")
    with pytest.raises(RecordError, match=r"x\.json"):
        load_record(path)


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "large.json").write_bytes(b" " * (16 * 2**20 + 1))
    for name in ("binary.json", "large.json", "none.json", "."):
        with pytest.raises(RecordError):
            load_record(tmp_path / name)


def test_of_selects_and_refuses() -> None:
    assert {p.precision for p in RECORD.of("matmul")} == {"fp32", "bf16"}
    assert len(RECORD.of("decode_gemm", "bf16")) == 10
    assert RECORD.of("decode_gemm", "fp8") == ()
    assert RECORD.precisions == ("fp32", "bf16")
    with pytest.raises(ValueError, match="bench='gemm' is not known"):
        RECORD.of("gemm")


def test_rates_are_taken_at_the_median() -> None:
    point = dense_point("fp32", 4, 100, 200)
    assert point.flop_per_s == pytest.approx(2 * 4 * 100 * 200 / point.median_s)
    assert point.bytes_per_s == pytest.approx(4 * (20_000 + 1200) / point.median_s)


def test_the_small_models_counts() -> None:
    """By hand: a layer 3·8·8 + 8·8 + 2·16·8 + 16·8 = 640, two of them, and the head 10·8."""
    shape = ModelShape(layers=2, hidden=8, heads=2, intermediate=16, vocabulary=10)
    assert shape.matrix_parameters == 2 * 640 + 80
    assert shape.kv_bytes_per_token(2) == 2 * 2 * 8 * 2
    assert shape.head_dim == 4


def test_the_newest_measured_run_is_found(tmp_path: Path) -> None:
    import os

    assert newest_measured(tmp_path) is None
    for age, name in ((30, "measured-a.json"), (20, "measured-b.json"), (5, "measured-c.json")):
        path = save_record(replace(RECORD, seed=age), tmp_path / name)
        os.utime(path, (1e9 - age, 1e9 - age))
    (tmp_path / "measured-c.json").write_text("{", "utf-8")
    found = newest_measured(tmp_path)
    assert found is not None
    assert found.seed == 20, "a damaged file must not hide the good one before it"


def test_recorded_runs_are_real_and_complete() -> None:
    """The course may never show a made-up recording: a run names its machine and its versions."""
    assert recorded_runs("cpu"), "a CPU's recording has to be there at least"
    for path in RECORDED.glob("*.json"):
        run = load_record(path)
        assert run.schema == SCHEMA
        assert run.device.torch
        assert run.spent_s <= run.budget_s + 5
        assert run.checks
        assert all(check.passed for check in run.checks)
        assert set(run.precisions) == {"fp32", "bf16"}
        for bench in set(BENCHES) - {"launch_graph", "model_decode_graph"}:
            assert run.of(bench), f"{path.name} lacks {bench}"


def test_reading_needs_no_torch() -> None:
    """Lesson 10 must show a recorded run on a machine where torch was never installed."""
    code = (
        "import sys; sys.modules['torch'] = None; import course.measure as m; "
        "run = m.recorded_runs()[0]; m.fit_record(run, run.precisions[0]); print(m.report(run))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=True,
    )
    assert "Weights read once" in done.stdout
