"""Real files of benchmark tools, read, made SI and checked; no metric is defined here.

`load_result(path)` reads the results of seven tools, `write_vllm` writes a simulated run as one of
them, `audit_files(paths)` words what is worth knowing about results. One
module reads one tool, and `checks` judges what was read.
"""

from course.serving.results.audit import Audit, audit_files
from course.serving.results.loading import load_result
from course.serving.results.nouns import BenchmarkResult, BenchmarkRun, Finding, Latency, RunSummary
from course.serving.results.writing import write_vllm

__all__ = [
    "Audit",
    "BenchmarkResult",
    "BenchmarkRun",
    "Finding",
    "Latency",
    "RunSummary",
    "audit_files",
    "load_result",
    "write_vllm",
]
