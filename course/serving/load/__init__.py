"""A server under rising load: one point, a sweep, its knees, and the fleet planned from them."""

from course.serving.load.broken_stick import broken_stick
from course.serving.load.knee_report import KneeReport, gathered, report
from course.serving.load.knees import Knee, Method, bare, find_knee, plateau_level
from course.serving.load.measured import MeasuredSweep, catalogue_sweeps, measured_sweeps
from course.serving.load.planning import Plan, plan
from course.serving.load.point import measure
from course.serving.load.replica_report import ReplicaReport, broken_words, promise
from course.serving.load.replicas import Option, ReplicaPlan, in_an_empty_server, plan_replicas
from course.serving.load.rows import LoadRow, rows_of_points, rows_of_result, statistic_named
from course.serving.load.sweeping import DrawnTraffic, Scenario, Sweep, sweep
from course.serving.load.table import is_table, load_table

__all__ = [
    "DrawnTraffic",
    "Knee",
    "KneeReport",
    "LoadRow",
    "MeasuredSweep",
    "Method",
    "Option",
    "Plan",
    "ReplicaPlan",
    "ReplicaReport",
    "Scenario",
    "Sweep",
    "bare",
    "broken_stick",
    "broken_words",
    "catalogue_sweeps",
    "find_knee",
    "gathered",
    "in_an_empty_server",
    "is_table",
    "load_table",
    "measure",
    "measured_sweeps",
    "plan",
    "plan_replicas",
    "plateau_level",
    "promise",
    "report",
    "rows_of_points",
    "rows_of_result",
    "statistic_named",
    "sweep",
]
