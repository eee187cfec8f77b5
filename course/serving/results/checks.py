"""Looks at a loaded run with the eyes of an auditor, each check a sentence; nothing is read here.

Each check is a small generator from a run to findings. A check that lacks a figure is silent: it
never guesses, and the run says which checks could not be made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from course.serving.results import checks_of_counts, checks_of_latency, checks_of_load
from course.serving.results.nouns import BenchmarkRun, Check, Finding, RunSummary

CHECKS: tuple[Check, ...] = (
    *checks_of_counts.CHECKS, *checks_of_load.CHECKS, *checks_of_latency.CHECKS,
)  # fmt: skip
"""Every check, in the order in which its findings are told."""


def check_run(run: BenchmarkRun) -> BenchmarkRun:
    """Return the run with everything found worth saying, the reader's own findings first."""
    found = [*run.findings]
    not_made = []
    for check in CHECKS:
        # some findings need fewer figures than the check as a whole
        found.extend(check.find(run))
        if not check.can(run):
            not_made.append(check.title)
    return replace(run, findings=tuple(found), not_made=tuple(not_made))


def check_file(runs: Sequence[BenchmarkRun]) -> tuple[Finding, ...]:
    """Return what is to be said of the runs of one file together."""
    found = []
    if len(runs) > 1:
        found.append(Finding("several-runs", f"the file holds {len(runs)} runs; see each apart"))
    labels = list(dict.fromkeys(run.label for run in runs if run.label))
    servers = list(dict.fromkeys(run.server for run in runs if run.server))
    loads = {(*_load(run.summary), run.server) for run in runs}
    if len(labels) > 1:
        found.append(
            Finding(
                "data-sets",
                f"the file mixes {len(labels)} data sets or models ({', '.join(labels[:4])}): "
                "one curve through all of its points means nothing",
            )
        )
    elif len(servers) > 1:
        found.append(
            Finding(
                "servers",
                f"the runs are of {len(servers)} different servers ({'; '.join(servers[:4])}): "
                "compare them, and put no curve through them",
            )
        )
    if len(labels) < 2 and len(loads) < len(runs) and len(runs) > 1:
        found.append(
            Finding(
                "data-sets",
                "two runs of the file have the same load: repeats, not a sweep",
                "worth knowing",
            )
        )
    return tuple(found)


def _load(summary: RunSummary) -> tuple[float | None, int | None]:
    return summary.asked_per_s, summary.max_concurrency
