"""Traces in, arrivals out: a trace read wrongly makes a server look too large or too small."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course.serving.files import ResultFileError
from course.serving.files import reading as files
from course.serving.traces import Trace, load_trace
from course.serving.workload import Workload
from tests.lanes import examples


def trace(folder: Path, *lines: str, name: str = "trace.csv") -> Trace:
    path = folder / name
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_trace(path)


def columns(found: Trace) -> list[list[float]]:
    return [found.arrival_s.tolist(), found.prompt_tokens.tolist(), found.output_tokens.tolist()]


def test_azures_clock_is_kept_to_its_last_digit(tmp_path) -> None:
    """As seconds since 1970 a float has no room for tenths of microseconds."""
    found = trace(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2024-02-28 23:59:59.9000001,120,8",
        "2024-02-29 00:00:00.1000003,250,1",
    )
    assert found.layout == "azure"
    assert found.arrival_s[1] == pytest.approx(0.2000002, abs=1e-12)
    assert columns(found)[1:] == [[120, 250], [8, 1]]


def test_azures_later_clock_has_a_zone(tmp_path) -> None:
    found = trace(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2024-05-10 00:00:00.25+00:00,5,5",
        "2024-05-10 01:00:01+01:00,5,5",
    )
    assert found.arrival_s.tolist() == pytest.approx([0.0, 0.75])


def test_burstgpts_failed_rows_are_left_out(tmp_path) -> None:
    """A row of 0 tokens is a failed request; served, it would be free capacity."""
    found = trace(
        tmp_path,
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,"
        "Log Type",
        "5,,1.5,ours,472,18,490,Conversation log",
        "45,,2,ours,1087,0,1087,API log",
        "118.5,,2,ours,417,276,693,API log",
        "119,,2,ours,0,4,4,API log",
        "120,,2,ours,7,0,7,API log",
    )
    assert found.layout == "burstgpt"
    assert columns(found) == [[0.0, 113.5], [472, 417], [18, 276]]
    assert found.warnings == (
        "2 rows without output tokens are left out: failed or empty requests",
        "1 row without prompt tokens is left out: a failed or empty request",
    )


def test_mooncakes_clock_ticks_in_batches(tmp_path) -> None:
    """Thirty arrivals at one instant are one tick of the clock and no burst."""
    rows = [
        json.dumps({"timestamp": 3000 * (i // 30), "input_length": 700 + i, "output_length": 20,
                    "hash_ids": [1, 2]})
        for i in range(90)
    ]  # fmt: skip
    found = trace(tmp_path, *rows, name="trace.jsonl")
    assert found.layout == "mooncake"
    assert found.arrival_s[-1] == 6.0
    assert any("ticks about every 3 s" in text for text in found.warnings)


@pytest.mark.parametrize(
    ("header", "unit_s", "layout"),
    [
        ("arrival_s,prompt_tokens,output_tokens", 1.0, "plain"),
        ("timestamp,input_tokens,output_tokens", 1.0, "table"),
        ("timestamp_ms,input_length,output_length", 1e-3, "mooncake"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens", 1.0, "table"),
        ("Arrival_S , Prompt_Tokens,Output_Tokens", 1.0, "plain"),
        ("arrival_s,input_tokens,output_tokens", 1.0, "table"),
    ],
)
def test_columns_are_known_by_many_names(header, unit_s, layout, tmp_path) -> None:
    found = trace(tmp_path, header, "1,10,20", "", "3.5,30,40.0")
    assert found.layout == layout
    assert columns(found) == [[0.0, pytest.approx(2.5 * unit_s)], [10, 30], [20, 40]]


def test_columns_may_stand_in_any_order(tmp_path) -> None:
    found = trace(tmp_path, "id,output_tokens,arrival_s,prompt_tokens", '"a, b",7,0.5,9')
    assert columns(found) == [[0.0], [9], [7]]


def test_unsorted_arrivals_are_sorted_together_with_their_lengths(tmp_path) -> None:
    header = "arrival_s,prompt_tokens,output_tokens"
    found = trace(tmp_path, header, "2,1,10", "1,2,20", "2,3,30")
    assert columns(found) == [[0.0, 1.0, 1.0], [2, 1, 3], [20, 10, 30]]
    assert any("step back in time once" in text for text in found.warnings)


def test_a_trace_makes_a_workload(tmp_path) -> None:
    found = trace(tmp_path, "arrival_s,prompt_tokens,output_tokens", "3,10,5", "4,20,1")
    work = Workload(found.arrival_s, found.prompt_tokens, found.output_tokens)
    assert work.arrival_s.tolist() == [0.0, 1.0]
    with pytest.raises(ValueError, match="read-only"):
        found.arrival_s[0] = 5


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["a,b,c", "1,2,3"], "none of which is known as arrival or prompt or output; name them"),
        (["arrival_s,prompt_tokens,output_tokens"], "holds no request"),
        (["arrival_s,prompt_tokens,output_tokens", "0,5,0"], "holds no request"),
        (["arrival_s,prompt_tokens,output_tokens", "0,5"], "line 2: has 2 cells, too few"),
        (["arrival_s,prompt_tokens,output_tokens", "x,5,5"], "line 2: has 'x' where a time"),
        (["arrival_s,prompt_tokens,output_tokens", "0,5,5", "1,y,5"], "line 3: has 'y' where a to"),
        (["arrival_s,prompt_tokens,output_tokens", "0,5.5,5"], "'5.5' tokens, which is not whole"),
        (["arrival_s,prompt_tokens,output_tokens", "0,-5,5"], "line 2: has -5 prompt tokens"),
        (["arrival_s,prompt_tokens,output_tokens", "nan,5,5"], "line 2: has nan as its time"),
        (["arrival_s,prompt_tokens,output_tokens", "0,inf,5"], "'inf' tokens, which is not whole"),
        (["arrival_s,prompt_tokens,output_tokens", "0,1e300,5"], "prompt tokens"),
        (["arrival_s,prompt_tokens,output_tokens", '0,"5,5'], "is no table of commas"),
        (["TIMESTAMP,ContextTokens,GeneratedTokens", "2024-13-01 00:00:00,5,5"], "a date and time"),
        (['{"timestamp": 0, "input_length": 5}'], "line 1: lacks timestamp, input_length or out"),
        (['{"timestamp": "0", "input_length": 5, "output_length": 5}'], "timestamp: is '0', not a"),
        (["[1, 2]"], "line 1, request 0: holds a number, not an object"),
    ],
)
def test_a_faulty_trace_says_what_and_where(lines: list[str], says: str, tmp_path) -> None:
    with pytest.raises(ResultFileError, match=says):
        trace(tmp_path, *lines)


@pytest.mark.parametrize("separator", [";", "\t"])
def test_semicolons_and_tabs_separate_as_commas_do(separator: str, tmp_path) -> None:
    """Spreadsheets of half the world save these; advice to rename the columns would help nobody."""
    rows = [["arrival_s", "prompt_tokens", "output_tokens"], ["1.5", "10", "20"], ["2", "3", "4"]]
    found = trace(tmp_path, *(separator.join(row) for row in rows))
    assert columns(found) == [[0.0, 0.5], [10, 3], [20, 4]]
    with pytest.raises(ResultFileError, match=r"'1,5' where a time .*; decimals take a point"):
        trace(tmp_path, separator.join(rows[0]), separator.join(["1,5", "10", "20"]))
    with pytest.raises(ResultFileError, match="has the columns 'a', 'b', 'c'"):
        trace(tmp_path, separator.join("abc"), separator.join("123"))


@pytest.mark.parametrize(
    ("header", "step", "warned"),
    [
        ("timestamp,input_length,output_length", 0.25, True),
        ("timestamp,input_length,output_length", 3000, True),
        ("timestamp,input_tokens,output_tokens", 3000, True),
        ("timestamp,input_tokens,output_tokens", 3, False),
        ("timestamp_s,input_length,output_length", 3000, False),
        ("timestamp_ms,input_length,output_length", 3000, False),
        ("arrival_s,prompt_tokens,output_tokens", 3000, False),
    ],
)
def test_times_of_an_unsaid_unit_are_told(header: str, step: float, warned: bool, tmp_path) -> None:
    """Mooncake's names mean milliseconds in its JSON; as seconds the load is a thousandth."""
    found = trace(tmp_path, header, *(f"{i * step},5,6" for i in range(5)))
    assert any("taken as seconds" in text for text in found.warnings) is warned
    if warned:
        assert "call it timestamp_ms" in " ".join(found.warnings)


def test_dates_say_their_unit(tmp_path) -> None:
    days = [f"2024-01-0{day} 00:00:00,5,6" for day in (1, 2, 3)]
    assert trace(tmp_path, "timestamp,input_length,output_length", *days).warnings == ()


def test_a_column_given_twice_is_refused_by_its_name(tmp_path) -> None:
    """Which of two clocks is meant is not for a reader to choose; a note that repeats is nobody's
    business."""
    with pytest.raises(ResultFileError, match="line 1: has 2 columns named 'arrival_s'; rename"):
        trace(tmp_path, "arrival_s,Arrival_s,prompt_tokens,output_tokens", "0,7,1,1")
    found = trace(tmp_path, "arrival_s,note,note,prompt_tokens,output_tokens", "0,a,b,1,2")
    assert columns(found) == [[0.0], [1], [2]]


@pytest.mark.parametrize("tokens", ["2000000000", "10000001", "9" * 5000])
def test_a_request_longer_than_any_is_refused_with_its_line(tokens: str, tmp_path) -> None:
    """One line of twenty characters must not have a simulation fill the memory."""
    with pytest.raises(ResultFileError, match=r"line 3: has .* tokens") as caught:
        trace(tmp_path, "arrival_s,prompt_tokens,output_tokens", "0,1,10000000", f"0,10,{tokens}")
    assert len(str(caught.value)) < 400


def test_a_trace_of_left_out_rows_says_why_nothing_is_left(tmp_path) -> None:
    with pytest.raises(ResultFileError, match="holds no request: 2 rows without output tokens are"):
        trace(tmp_path, "arrival_s,prompt_tokens,output_tokens", "0,5,0", "1,6,0")


def test_a_list_of_a_traces_lines_is_the_trace(tmp_path) -> None:
    """`jq -s .` makes one of any JSON lines."""
    rows = [{"timestamp": 3000 * i, "input_length": 7, "output_length": 2} for i in range(3)]
    assert trace(tmp_path, json.dumps(rows)).arrival_s.tolist() == [0.0, 3.0, 6.0]


def test_a_time_beyond_all_clocks_says_how_to_give_milliseconds(tmp_path) -> None:
    with pytest.raises(ResultFileError, match=r"line 2: has 17.* or milliseconds in a column"):
        trace(tmp_path, "timestamp,input_length,output_length", "1700000000000,5,6")


def test_a_line_without_end_is_refused(tmp_path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "1" * (3 << 20), encoding="utf-8")
    with pytest.raises(ResultFileError, match=f"line 2: the line is longer than {1 << 20:,}"):
        load_trace(path)


def test_a_long_trace_is_read_quickly_enough_to_try_it_on(tmp_path, monkeypatch) -> None:
    """Across the borders of many reads, every row is there once."""
    monkeypatch.setattr(files, "CHUNK_BYTES", 1000)
    rows = [f"{i / 8},{i % 97 + 1},{i % 13 + 1}" for i in range(5000)]
    found = trace(tmp_path, "arrival_s,prompt_tokens,output_tokens", *rows)
    assert found.arrival_s.tolist() == (np.arange(5000) / 8).tolist()
    assert found.prompt_tokens.sum() == sum(i % 97 + 1 for i in range(5000))


cells = st.sampled_from(
    ["0", "1", "2.5", "-1", "nan", "inf", "1e400", "9" * 400, "", " ", "x", "2024-01-01 00:00:00",
     "2024-01-01 00:00:00.5+25:00", "0000-00-00 00:00:00", '"', "1;2", "٣", "1_0", "0x1"]
)  # fmt: skip


@settings(max_examples=examples(300), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.lists(cells, min_size=1, max_size=4), min_size=1, max_size=5))
def test_no_row_escapes(tmp_path, rows: list[list[str]]) -> None:
    path = tmp_path / "trace.csv"
    lines = ["arrival_s,prompt_tokens,output_tokens", *(",".join(row) for row in rows)]
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        found = load_trace(path)
    except ResultFileError:
        return
    assert (np.diff(found.arrival_s) >= 0).all()
    assert found.arrival_s[0] == 0
    assert min(found.prompt_tokens.min(), found.output_tokens.min()) >= 1
