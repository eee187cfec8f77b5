"""Real files of benchmark tools and traces, read, made SI and checked; no metric is defined here.

`load_result(path)` reads the results of seven tools, `load_trace(path)` the traces of four
collections and plain tables, `audit_files(paths)` words what is worth knowing about results. One
module reads one tool, and `checks` judges what was read.
"""

from course.serving.results.audit import Audit, audit_files
from course.serving.results.loading import load_result
from course.serving.results.nouns import (
    BenchmarkResult,
    BenchmarkRun,
    Finding,
    Latency,
    ResultFileError,
    RunSummary,
    Trace,
)
from course.serving.results.traces import load_trace

__all__ = [
    "Audit",
    "BenchmarkResult",
    "BenchmarkRun",
    "Finding",
    "Latency",
    "ResultFileError",
    "RunSummary",
    "Trace",
    "audit_files",
    "load_result",
    "load_trace",
]
