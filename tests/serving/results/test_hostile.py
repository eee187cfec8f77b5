"""Whatever is in a file, the answer is a result or one sentence: no stack, no hang."""

from __future__ import annotations

import json
import os
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course.serving.files import ResultFileError
from course.serving.files import reading as files
from course.serving.requests.conventions import as_reported_by
from course.serving.requests.metrics import SLO, summarize
from course.serving.results import BenchmarkResult, audit_files, load_result
from course.serving.results import pieces as pieces
from course.serving.traces import Trace, load_trace
from tests.lanes import examples
from tests.serving.results import layouts

LOADERS = (load_result, load_trace)


def refused(loader: Callable[[Any], object], path: object, says: str) -> None:
    with pytest.raises(ResultFileError, match=says) as caught:
        loader(path)
    assert len(str(caught.value)) < 1500
    assert str(caught.value).isprintable()


# --- files ------------------------------------------------------------------------------------


@pytest.mark.parametrize("loader", LOADERS)
def test_what_is_no_file_says_so(loader, tmp_path) -> None:
    refused(loader, tmp_path / "nowhere.json", "there is no such file")
    refused(loader, tmp_path, "is no plain file; give the file itself")
    refused(loader, "a\0b", "a b: there is no such file")
    refused(loader, 3.5, "3.5: cannot be opened")
    empty = tmp_path / "empty"
    empty.touch()
    refused(loader, empty, "is empty")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        refused(loader, tmp_path / "pipe", "is no plain file")


@pytest.mark.parametrize("loader", LOADERS)
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"   \n\t\n", "nothing but white space|holds nothing|holds no request|columns"),
        (json.dumps(layouts.vllm()).encode("utf-16"), "byte 0: is UTF-16 text; save it as UTF-8"),
        (b"\x1f\x8b\x08\x00rest", "byte 0: is compressed"),
        (b'{"completed": "\xff\xfe"}', "byte 15: is not UTF-8 text"),
        (b"a,b\n" + b"\xe9,1\n", "byte 4: is not UTF-8|line 1: holds 'a,b"),
    ],
)
def test_the_wrong_encoding_says_where(loader, content: bytes, says: str, tmp_path) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    refused(loader, path, says)


def test_a_fault_far_into_a_file_has_its_byte(tmp_path) -> None:
    path = tmp_path / "file.jsonl"
    line = json.dumps(layouts.sglang_2024()).encode() + b"\n"
    good = line * (files.CHUNK_BYTES // len(line) + 3)
    path.write_bytes(good + b"\xc3(")
    refused(load_result, path, f"byte {len(good)}: is not UTF-8")


def test_a_byte_order_mark_is_no_fault(tmp_path) -> None:
    """Windows editors leave one."""
    path = tmp_path / "file"
    path.write_text(json.dumps(layouts.vllm()), encoding="utf-8-sig")
    assert load_result(path).tool == "vllm"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n0,1,1\n", encoding="utf-8-sig")
    assert load_trace(path).layout == "plain"


# --- JSON -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[" * 200_000, "nested too deep|too many values"),
        ('{"a":' * 50_000 + "1" + "}" * 50_000, "nested too deep"),
        ('{"completed": 1' + "0" * 400 + ', "duration": 1, "mean_ttft_ms": 1}', "hundreds of dig"),
        ('{"completed": ' + "9" * 6000 + "}", "no JSON to rely on"),
        ('{"completed": 1e400, "duration": 1, "mean_ttft_ms": 1}', "inf, too large to be meant"),
        ('{"completed": 3.5, "duration": 1, "mean_ttft_ms": 1}', "3.5, which is not whole"),
        ('{"completed": -3, "duration": 1, "mean_ttft_ms": 1}', "-3, which is negative"),
        ('{"completed": true, "duration": 1, "mean_ttft_ms": 1}', "true or false, not a number"),
        ('{"completed": {}, "duration": 1, "mean_ttft_ms": 1}', "an object, not a number"),
        ('{"completed": 1, "duration": "1 s", "mean_ttft_ms": 1}', "'1 s', not a number"),
        ('{"completed": 1, "completed": 2}', "the key 'completed' is given twice"),
        ('{"completed": 1, "duration": 2', "line 1: ends in the middle of a value: it was cut off"),
        ('{"completed": 1, "duration": "tex', "it was cut off"),
        ('{"completed": 1,\n "duration" 2}', "line 2: is no JSON: expecting ':'"),
        ("{'completed': 1}", "is no JSON: expecting property name"),
        ("null", "holds 'null' where an object or a list should begin"),
        ('"\x1b[31mred"', "where an object or a list should begin"),
        ("<html>not found</html>", "holds '<html>not found</html>'"),
        ("[]", "holds an empty list"),
        ("{}", "is of no known tool"),
        ('[1, "x", null]', "is of no known tool"),
        ('{"timestamp": 0, "input_length": 1}', "is a trace, not a result; load it with load_tr"),
        ('{"results_ttft_s_mean": 0.1}', "is llmperf's summary"),
        ('{"benchmarks": []}', "holds no run"),
        ('{"benchmarks": [{"metrics": null}]}', r"benchmarks\[0\]: has no metrics"),
        ('{"benchmarks": [3]}', r"benchmarks\[0\]: holds a number, not an object"),
    ],
)
def test_hostile_json_is_one_sentence(text: str, says: str, tmp_path) -> None:
    path = tmp_path / "file"
    path.write_text(text, encoding="utf-8")
    refused(load_result, path, says)


def test_many_keys_with_one_given_twice_do_not_hang(tmp_path) -> None:
    """Looking for the culprit key by key would take the square of the file's length."""
    path = tmp_path / "file"
    keys = ",".join(f'"k{i}":0' for i in range(200_000))
    path.write_text(f'{{{keys},"k199999":1}}', encoding="utf-8")
    refused(load_result, path, "'k199999' is given twice")


def test_a_line_of_another_tool_names_its_line(tmp_path) -> None:
    path = layouts.write(tmp_path, layouts.sglang(), layouts.sglang(), layouts.vllm())
    refused(load_result, path, "line 3: is not a run of the same tool as the first")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ttfts": [0.1]}, "has 4 entries but ttfts has 1"),
        ({"ttfts": [0.1, None, 0, 0]}, r"ttfts\[1\]: is missing in a list that needs it"),
        ({"ttfts": [0.1, "x", 0, 0]}, r"ttfts\[1\]: is 'x', not a number"),
        ({"ttfts": [0.1, -2.0, 0, 0]}, r"ttfts\[1\]: is -2, which is negative"),
        ({"ttfts": {"0": 1}}, "ttfts: is an object, not a list"),
        ({"itls": [[0.1, 0.1], 3, [], []]}, "request 1: holds no list of gaps in itls"),
        (
            {"output_lens": [1e12, 1, 0, 8]},
            r"output_lens\[0\]: is 1e\+12, which is longer than any answer",
        ),
        ({"output_lens": [2.5, 1, 0, 8]}, r"output_lens\[0\]: is 2.5, which is not whole"),
        ({"start_times": [0.0, 1e14, 1, 1]}, "request 1: is no possible request"),
        ({"request_rate": "often"}, "request_rate: is 'often', neither a number nor inf"),
        ({"model_id": 7}, "model_id: is a number, not a text"),
    ],
)
def test_an_impossible_detail_says_which(change: dict[str, Any], says: str, tmp_path) -> None:
    refused(load_result, layouts.write(tmp_path, layouts.vllm_detail(**change)), says)


def test_nan_is_no_data_and_never_a_figure(tmp_path) -> None:
    result = load_result(layouts.write(tmp_path, layouts.vllm(mean_ttft_ms=float("nan"))))
    assert result.summary.ttft.mean_s is None
    assert any("mean_ttft_ms is NaN" in text for text in result.warnings)


def test_texts_of_strangers_do_not_reach_the_terminal(tmp_path) -> None:
    """A model's name may hold an escape sequence, or half a character."""
    result = load_result(
        layouts.write(tmp_path, layouts.vllm(model_id="m\x1b[2J\ud800" + "x" * 999))
    )
    assert result.runs[0].label.isprintable()
    assert len(result.runs[0].label) <= 120


# --- limits -----------------------------------------------------------------------------------


def test_limits_are_told(tmp_path, monkeypatch) -> None:
    path = layouts.write(tmp_path, layouts.vllm_detail())
    with monkeypatch.context() as limited:
        limited.setattr(files, "MAX_FILE_BYTES", 100)
        refused(load_result, path, "only files of up to 0 GiB are read")
    with monkeypatch.context() as limited:
        limited.setattr(files, "MAX_BRACKETS", 3)
        refused(load_result, path, "holds too many values to be read")
    with monkeypatch.context() as limited:
        limited.setattr(files, "CHUNK_BYTES", 64)
        limited.setattr(files, "MAX_VALUE_CHARS", 300)
        refused(load_result, path, "holds a value of more than 300 characters")


@pytest.mark.parametrize(
    ("layout", "limit", "says"),
    [
        (layouts.vllm_detail(), "MAX_CHUNKS", "in all"),
        (layouts.vllm_detail(), "MAX_REQUESTS", "in all"),
        (layouts.aiperf_line(), "MAX_CHUNKS", "in all"),
        (layouts.aiperf_line(), "MAX_REQUESTS", "in all"),
        (layouts.llmperf(3), "MAX_REQUESTS", "in all"),
    ],
)
def test_a_limit_on_memory_is_for_all_runs_together(
    layout, limit: str, says: str, tmp_path, monkeypatch
) -> None:
    """Twenty runs below it each would need twenty times the memory that is promised."""
    monkeypatch.setattr(pieces, limit, 9)
    load_result(layouts.write(tmp_path, layout))
    several = layouts.write(tmp_path, *[layout] * 10)
    refused(load_result, several, says)
    refused(load_result, layouts.write(tmp_path, [layout] * 10), "in several files")


def test_guidellms_requests_count_over_all_reports(tmp_path, monkeypatch) -> None:
    groups = {"successful": [layouts.guidellm_request(1000.0, 0.05, 0.35, 31)] * 6}
    report = layouts.guidellm(layouts.guidellm_benchmark(requests=groups))
    monkeypatch.setattr(pieces, "MAX_REQUESTS", 9)
    assert load_result(layouts.write(tmp_path, report)).requests is not None
    refused(load_result, layouts.write(tmp_path, report, report), "more than 9 requests in all")


@pytest.mark.parametrize(("chunk", "block"), [(64, 8), (512, 64), (1 << 20, 16)])
def test_values_are_counted_over_a_value_and_not_over_what_follows_it(
    chunk: int, block: int, tmp_path, monkeypatch
) -> None:
    """Many small runs after a long one are not one value that is too large, nor is each of them
    looked at as often as there are others: a file of 40 MB would take hours."""
    values = [{"a": [0] * 900}, *[{"b": [[], []]}] * 400] * 2
    path = layouts.write(tmp_path, *values)
    counted, reach = [], files._reach
    monkeypatch.setattr(files, "_reach", lambda text: counted.append(len(text)) or reach(text))
    for name, limit in (("CHUNK_BYTES", chunk), ("MAX_BRACKETS", 40), ("_BLOCK", block)):
        monkeypatch.setattr(files, name, limit)
    monkeypatch.setattr(files, "MAX_COMMAS", 1000)
    with path.open("rb") as file:
        assert [value for _, value in files.json_values(file)] == values
    if chunk < 100:
        assert sum(counted) < 5 * path.stat().st_size
    monkeypatch.setattr(files, "MAX_COMMAS", 800)
    with path.open("rb") as file, pytest.raises(ResultFileError, match="too many values"):
        list(files.json_values(file))


def test_the_line_of_a_value_after_a_long_one_is_right(tmp_path, monkeypatch) -> None:
    """What is put back and read again must not be counted twice."""
    monkeypatch.setattr(files, "MAX_BRACKETS", 20)
    monkeypatch.setattr(files, "_BLOCK", 4)
    path = layouts.write(tmp_path, *[{"a": [[]] * 3}] * 50)
    with path.open("rb") as file:
        assert [line for line, _ in files.json_values(file)] == list(range(1, 51))


def test_a_number_of_thousands_of_digits_is_told_in_own_words(tmp_path) -> None:
    """The interpreter's advice, to lift a limit by a function, is for its programmers."""
    path = tmp_path / "file"
    path.write_text('{"completed": ' + "9" * 5000 + "}", encoding="utf-8")
    for loader in LOADERS:
        with pytest.raises(ResultFileError, match="a whole number of thousands of digits") as error:
            loader(path)
        assert "set_int" not in str(error.value)


def test_small_pieces_give_the_same_values(tmp_path, monkeypatch) -> None:
    """A value that lies over the border of two reads must not be taken for a broken one."""
    values = [*layouts.EVERY_LAYOUT.values(), {"é" * 40: ["\\", '"', -1.5e-7, True, None]}]
    path = layouts.write(tmp_path, *values, between="\n \t")
    for size in (1, 2, 3, 7, 61):
        monkeypatch.setattr(files, "CHUNK_BYTES", size)
        with path.open("rb") as file:
            read = list(files.json_values(file))
        assert [value for _, value in read] == values
        assert [line for line, _ in read] == list(range(1, len(values) + 1))


def test_json_lines_are_read_as_a_stream(tmp_path) -> None:
    """A file of hours must not be in memory as a whole: only what was kept of each line is."""
    line = json.dumps(layouts.sglang_2024(note="x" * 20_000))
    path = tmp_path / "long.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for _ in range(500):
            file.write(line + "\n")
    tracemalloc.start()
    result = load_result(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(result.runs) == 500
    assert peak < path.stat().st_size / 2


# --- fuzzing ----------------------------------------------------------------------------------

ODD = [
    None, True, False, 0, -1, 1e308, -1e308, 10**400, -(10**400), float("nan"), float("inf"),
    float("-inf"), "", "inf", "\ud800", [], {}, [[]], {"": None}, [1, "x"], 2**63, 0.1, -0.0,
    {"unit": "ms", "avg": 1}, {"count": 0}, 1e-320,
]  # fmt: skip


def loads_or_says_why(path: Path) -> None:
    for loader, kind in ((load_result, BenchmarkResult), (load_trace, Trace)):
        try:
            found: object = loader(path)
        except ResultFileError as error:
            found = error
        if isinstance(found, BenchmarkResult):
            for run in found.runs:
                if run.requests is not None:
                    summarize(run.requests, SLO(ttft_s=1, tpot_s=1)).as_dict()
                if run.timelines is not None and run.convention is not None:
                    as_reported_by(run.convention, run.timelines, duration_s=1.0)
        else:
            assert isinstance(found, kind) or str(found).isprintable()
    audit = audit_files([path])
    json.dumps(audit.as_dict(), allow_nan=False)
    text = audit.as_text().replace("\u00a0", " ")  # before a per cent sign, of our own
    assert all(line.isprintable() for line in text.split("\n"))


def mutated(value: Any, chance: random.Random) -> Any:
    """The same value with some of its parts exchanged for odd ones, or gone, or doubled."""
    if chance.random() < 0.03:
        return chance.choice(ODD)
    if isinstance(value, dict):
        kept = {k: mutated(v, chance) for k, v in value.items() if chance.random() > 0.03}
        if kept and chance.random() < 0.05:
            kept[chance.choice(list(kept)) + "_x"] = chance.choice(ODD)
        return kept
    if isinstance(value, list):
        return [mutated(v, chance) for v in value for _ in range(chance.choice((1, 1, 1, 1, 2)))]
    return value


@pytest.mark.slow
@pytest.mark.parametrize("layout", layouts.EVERY_LAYOUT)
def test_no_mutation_of_a_layout_escapes(layout: str, tmp_path) -> None:
    chance = random.Random(layout)
    for _ in range(120):
        value = mutated(layouts.EVERY_LAYOUT[layout], chance)
        others = [value] * chance.choice((1, 1, 2)) + [mutated(value, chance)] * chance.choice(
            (0, 1)
        )
        loads_or_says_why(layouts.write(tmp_path, *others))


@pytest.mark.parametrize("layout", layouts.EVERY_LAYOUT)
def test_no_damage_to_the_bytes_escapes(layout: str, tmp_path) -> None:
    chance = random.Random(layout)
    whole = json.dumps(layouts.EVERY_LAYOUT[layout]).encode()
    path = tmp_path / "file"
    for _ in range(60):
        content = bytearray(whole)
        for _ in range(chance.choice((0, 1, 1, 5))):
            content[chance.randrange(len(content))] = chance.randrange(256)
        cut = chance.choice((len(content), chance.randrange(1, len(content) + 1)))
        path.write_bytes(content[:cut])
        loads_or_says_why(path)


json_like = st.recursive(
    st.sampled_from([x for x in ODD if not isinstance(x, (list, dict))]) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner),
    max_leaves=12,
)


@settings(max_examples=examples(80), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(json_like | st.text(max_size=30), min_size=1, max_size=3))
def test_no_json_at_all_escapes(tmp_path, values: list[Any]) -> None:
    path = tmp_path / "file"
    path.write_text("\n".join(map(json.dumps, values)), encoding="utf-8")
    loads_or_says_why(path)


@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.binary(max_size=200) | st.text(max_size=80).map(lambda text: text.encode("utf-8", "replace"))
)
def test_no_bytes_at_all_escape(tmp_path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    loads_or_says_why(path)
