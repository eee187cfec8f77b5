"""Finds out which tool wrote a file and has it read and checked; reads no layout itself."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from course.serving.results import (
    aiperf,
    guidellm,
    inference_perf,
    inferencex,
    llmperf,
    sglang,
    vllm,
)
from course.serving.results._files import checked_path, json_values
from course.serving.results._texts import excerpt
from course.serving.results.checks import check_file, check_run
from course.serving.results.nouns import BenchmarkResult, BenchmarkRun, ResultFileError

MAX_RUNS = 20_000
"""A file with more runs than this is no benchmark's."""

Value = tuple[int, Any]


@dataclass(frozen=True)
class _Layout:
    """One layout: who writes it, how its first value looks, and how all its values are read."""

    tool: str
    recognises: Callable[[Any], bool]
    version: Callable[[Any], str | None]
    runs: Callable[[Iterable[Value]], Iterator[BenchmarkRun]]


def load_result(path: str | os.PathLike[str]) -> BenchmarkResult:
    """Return what a benchmark tool's result file says, in SI units, with warnings.

    Reads the files of vLLM, SGLang, GuideLLM, AIPerf (summary and JSON lines), inference-perf,
    llmperf and InferenceX; the tool is recognised by the keys, not by the file's name. A file
    with several runs gives them all in `runs`. Raises ResultFileError, which says what is wrong
    and where, for anything that cannot be read; memory stays below about 2 GB.
    """
    found = checked_path(path)
    try:
        with found.open("rb") as file:
            return _read(str(path), json_values(file))
    except ResultFileError as error:
        raise error.of_file(str(path)) from None
    except OSError as error:
        raise ResultFileError(f"cannot be read ({error})", path=str(path)) from None
    except MemoryError:
        raise ResultFileError("does not fit into memory", path=str(path)) from None


def _read(path: str, values: Iterator[Value]) -> BenchmarkResult:
    first = next(values, None)
    if first is None:
        raise ResultFileError("holds nothing but white space")
    line, head = first
    layout = next((layout for layout in LAYOUTS if layout.recognises(head)), None)
    if layout is None:
        raise ResultFileError(_unknown(head), f"line {line}")
    several = itertools.islice(layout.runs(itertools.chain([first], values)), MAX_RUNS + 1)
    runs = tuple(check_run(run) for run in several)
    if not runs:
        raise ResultFileError("holds no run")
    if len(runs) > MAX_RUNS:
        raise ResultFileError(f"holds more than {MAX_RUNS:,} runs")
    return BenchmarkResult(path, layout.tool, layout.version(head), runs, check_file(runs))


def _unknown(head: Any) -> str:
    """What is to be said of a value that no tool writes."""
    keys = list(head[0] if isinstance(head, list) and head and isinstance(head[0], dict) else head)
    if isinstance(head, list) and not head:
        return "holds an empty list"
    if {"timestamp", "input_length"} <= set(keys[:50] if isinstance(head, dict) else ()):
        return "is a trace, not a result; load it with load_trace"
    if any(str(key).startswith("results_ttft_s") for key in keys):
        return "is llmperf's summary; give its *_individual_responses.json"
    named = ", ".join(excerpt(str(key)) for key in keys[:5])
    return (
        f"is of no known tool (its keys begin with {named}); known are vLLM, SGLang, GuideLLM, "
        "AIPerf, inference-perf, llmperf and InferenceX"
    )


def _one_by_one(
    recognises: Callable[[Any], bool], read: Callable[[Any, str], BenchmarkRun]
) -> Callable[[Iterable[Value]], Iterator[BenchmarkRun]]:
    """Return a reader of values that are one run each."""

    def runs(values: Iterable[Value]) -> Iterator[BenchmarkRun]:
        for line, value in values:
            if not recognises(value):
                raise ResultFileError("is not a run of the same tool as the first", f"line {line}")
            yield read(value, f"line {line}")

    return runs


def _guidellm(values: Iterable[Value]) -> Iterator[BenchmarkRun]:
    for line, value in values:
        if not guidellm.recognises(value):
            raise ResultFileError("is not a report as the first", f"line {line}")
        yield from guidellm.read_all(value, f"line {line}")


def _aiperf_lines(values: Iterable[Value]) -> Iterator[BenchmarkRun]:
    yield aiperf.read_lines(values)


def _points(values: Iterable[Value]) -> Iterator[BenchmarkRun]:
    for line, value in values:
        points = value if isinstance(value, list) else [value]
        for index, point in enumerate(points):
            place = f"line {line}, point {index}" if isinstance(value, list) else f"line {line}"
            if not inferencex.recognises(point):
                raise ResultFileError("is not a point as the first", place)
            yield inferencex.read(point, place)


def _is_points(data: Any) -> bool:
    head = data[0] if isinstance(data, list) and data else data
    return inferencex.recognises(head)


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
        _one_by_one(inference_perf.recognises, inference_perf.read),
    ),
    _Layout(aiperf.TOOL, aiperf.recognises_line, lambda _: "JSON lines", _aiperf_lines),
    _Layout(
        aiperf.TOOL, aiperf.recognises, aiperf.version, _one_by_one(aiperf.recognises, aiperf.read)
    ),
    _Layout(
        llmperf.TOOL,
        llmperf.recognises,
        llmperf.version,
        _one_by_one(llmperf.recognises, llmperf.read),
    ),
    _Layout(
        inferencex.TOOL,
        _is_points,
        lambda data: inferencex.version(data[0] if isinstance(data, list) else data),
        _points,
    ),
)
"""The layouts in the order in which they are tried: the narrower signs first."""
