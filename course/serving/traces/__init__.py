"""Real request traces, read and run through the engine; results of benchmarks are in `results`."""

from course.serving.traces.nouns import Trace
from course.serving.traces.own_trace import MADE_UP_COST, TraceRun, simulate_trace
from course.serving.traces.reading import load_trace
from course.serving.traces.report import trace_notes, trace_report

__all__ = [
    "MADE_UP_COST",
    "Trace",
    "TraceRun",
    "load_trace",
    "simulate_trace",
    "trace_notes",
    "trace_report",
]
