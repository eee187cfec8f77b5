"""Finds out which tool wrote a file and has it read and checked; reads no layout itself."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from course.serving.files import BINARY_SIGNS, ResultFileError, checked_path, excerpt, json_values
from course.serving.results import (
    aiperf,
    guidellm,
    inference_perf,
    inferencex,
    llmperf,
    sglang,
    vllm,
)
from course.serving.results.checks import check_file, check_run
from course.serving.results.nouns import BenchmarkResult, BenchmarkRun
from course.serving.results.pieces import Room

MAX_RUNS = 20_000
"""A file with more runs than this is no benchmark's."""

MAX_DEPTH = 3
"""Runs may lie in a list, as `jq -s` makes them, and that in a list; not deeper."""

TABLE_SIGNS = ",;\t"

Value = tuple[str, Any]
"""A value of the file and its place in it."""


@dataclass(frozen=True)
class _Layout:
    """One layout: who writes it, how its first value looks, and how all its values are read.

    `one` is the word for an entry of a list, in its place.
    """

    tool: str
    recognises: Callable[[Any], bool]
    version: Callable[[Any], str | None]
    runs: Callable[[Iterable[Value], Room], Iterator[BenchmarkRun]]
    one: str = "run"


def load_result(path: str | os.PathLike[str]) -> BenchmarkResult:
    """Return what a benchmark tool's result file says, in SI units, with warnings.

    Reads the files of vLLM, SGLang, GuideLLM, AIPerf (summary and JSON lines), inference-perf,
    llmperf and InferenceX; the tool is recognised by the keys, not by the file's name. A file
    with several runs, one after the other or in a list, gives them all in `runs`. Raises
    ResultFileError, which says what is wrong and where, for anything that cannot be read; memory
    stays below about 2 GB, however many runs there are.
    """
    found = checked_path(path)
    try:
        with found.open("rb") as file:
            _refuse_text(file.read(4096))
            file.seek(0)
            return _read(str(path), json_values(file))
    except ResultFileError as error:
        raise error.of_file(str(path)) from None
    except OSError as error:
        raise ResultFileError(f"cannot be read ({error})", path=str(path)) from None
    except MemoryError:
        raise ResultFileError("does not fit into memory", path=str(path)) from None


def _refuse_text(head: bytes) -> None:
    """Raise ResultFileError where a file begins as a table or as prose: who gave it needs a way."""
    text = head.decode("utf-8-sig", "replace").lstrip(" \t\r\n")
    if not text or text[0] in "{[" or "\0" in text or head[:2] in BINARY_SIGNS:
        return
    line = text.split("\n", 1)[0].rstrip("\r")
    what = f"holds {excerpt(line[:60])} where an object or a list should begin"
    if any(sign in line for sign in TABLE_SIGNS) and not set("{}<>") & set(line):
        raise ResultFileError(
            f"{what}: it looks like a table; a sweep's table is for `python -m course knee`, a "
            "trace for load_trace or `python -m course simulate --trace`",
            "line 1",
        )
    raise ResultFileError(
        f"{what}; give the JSON that the tool saved, not what it printed", "line 1"
    )


def _read(path: str, values: Iterator[tuple[int, Any]]) -> BenchmarkResult:
    first = next(values, None)
    if first is None:
        raise ResultFileError("holds nothing but white space")
    line, whole = first
    layout, head = _recognised(whole, f"line {line}")
    placed = ((f"line {line}", value) for line, value in itertools.chain([first], values))
    apart = (one for value in placed for one in _apart(value, layout))
    several = itertools.islice(layout.runs(apart, Room()), MAX_RUNS + 1)
    runs = tuple(check_run(run) for run in several)
    if not runs:
        raise ResultFileError("holds no run")
    if len(runs) > MAX_RUNS:
        raise ResultFileError(f"holds more than {MAX_RUNS:,} runs")
    return BenchmarkResult(path, layout.tool, layout.version(head), runs, check_file(runs))


def _recognised(whole: Any, place: str) -> tuple[_Layout, Any]:
    """Return the layout of a file's first value, and the first run in it (or the value itself)."""
    head = whole
    for _ in range(MAX_DEPTH):
        for layout in LAYOUTS:
            if layout.recognises(head):
                return layout, head
        if not isinstance(head, list) or not head:
            break
        head = head[0]
    raise ResultFileError(_unknown(whole), place)


def _apart(value: Value, layout: _Layout, depth: int = 1) -> Iterator[Value]:
    """Yield the entries of a list of runs; anything else as it is, for the reader to judge."""
    place, data = value
    if not isinstance(data, list) or layout.recognises(data) or depth == MAX_DEPTH:
        yield value
        return
    for index, entry in enumerate(data):
        yield from _apart((f"{place}, {layout.one} {index}", entry), layout, depth + 1)


def _unknown(whole: Any) -> str:
    """What is to be said of a value that no tool writes."""
    if whole == []:
        return "holds an empty list"
    head, whose = whole, "its keys begin"
    for _ in range(MAX_DEPTH):
        if isinstance(head, list) and head:
            head, whose = head[0], "the keys of its first entry begin"
    known = "known are vLLM, SGLang, GuideLLM, AIPerf, inference-perf, llmperf and InferenceX"
    if not isinstance(head, dict):
        return f"is of no known tool (a list that does not begin with an object); {known}"
    if "load_summary" in head and inference_perf.is_server_metrics(head):
        return (
            "is inference-perf's scrape of the server's counters (*_prometheus_metrics.json), not "
            "what its client measured; give stage_N_lifecycle_metrics.json"
        )
    if {"timestamp", "input_length"} <= set(head):
        return "is a trace, not a result; load it with load_trace"
    if any(key.startswith("results_ttft_s") for key in head):
        return "is llmperf's summary; give its *_individual_responses.json"
    if not head:
        return f"is of no known tool (an object without a key); {known}"
    named = ", ".join(excerpt(key) for key in itertools.islice(head, 5))
    return f"is of no known tool ({whose} with {named}); {known}"


def _one_by_one(
    recognises: Callable[[Any], bool], read: Callable[[Any, str, Room], BenchmarkRun]
) -> Callable[[Iterable[Value], Room], Iterator[BenchmarkRun]]:
    """Return a reader of values that are one run each."""

    def runs(values: Iterable[Value], room: Room) -> Iterator[BenchmarkRun]:
        for place, value in values:
            if not recognises(value):
                raise ResultFileError("is not a run of the same tool as the first", place)
            yield read(value, place, room)

    return runs


def _without_requests(
    read: Callable[[Any, str], BenchmarkRun],
) -> Callable[[Any, str, Room], BenchmarkRun]:
    """Return the reader of a summary alone, which takes no room."""
    return lambda value, place, _: read(value, place)


def _guidellm(values: Iterable[Value], room: Room) -> Iterator[BenchmarkRun]:
    for place, value in values:
        if not guidellm.recognises(value):
            raise ResultFileError("is not a report as the first", place)
        yield from guidellm.read_all(value, place, room)


def _aiperf_lines(values: Iterable[Value], room: Room) -> Iterator[BenchmarkRun]:
    yield aiperf.read_lines(values, room)


LAYOUTS: tuple[_Layout, ...] = (
    _Layout(
        sglang.TOOL, sglang.recognises, sglang.version, _one_by_one(sglang.recognises, sglang.read)
    ),
    _Layout(vllm.TOOL, vllm.recognises, vllm.version, _one_by_one(vllm.recognises, vllm.read)),
    _Layout(guidellm.TOOL, guidellm.recognises, guidellm.version, _guidellm),
    _Layout(
        inference_perf.TOOL,
        inference_perf.recognises,
        inference_perf.version,
        _one_by_one(inference_perf.recognises, _without_requests(inference_perf.read)),
    ),
    _Layout(
        aiperf.TOOL, aiperf.recognises_line, lambda _: "JSON lines", _aiperf_lines, one="request"
    ),
    _Layout(
        aiperf.TOOL,
        aiperf.recognises,
        aiperf.version,
        _one_by_one(aiperf.recognises, _without_requests(aiperf.read)),
    ),
    _Layout(
        llmperf.TOOL,
        llmperf.recognises,
        llmperf.version,
        _one_by_one(llmperf.recognises, llmperf.read),
    ),
    _Layout(
        inferencex.TOOL,
        inferencex.recognises,
        inferencex.version,
        _one_by_one(inferencex.recognises, _without_requests(inferencex.read)),
        one="point",
    ),
)
"""The layouts in the order in which they are tried: the narrower signs first."""
