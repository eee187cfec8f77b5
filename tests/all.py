"""Runs every stage of the tests one after the other and says how long each took.

    python tests/all.py            all stages
    python tests/all.py unit       only the named ones

Exit status 1 if a stage failed; the stages after it still run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q"]
# nbval's plugin imports what the unit tests turn into errors, and xdist would split one notebook
# over two workers without loadfile.
NBVAL = [
    *PYTEST, "--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120", "-n", "2",
    "--dist", "loadfile", "-p", "no:hypothesispytest", "-p", "no:benchmark", "-W", "default",
]  # fmt: skip

STAGES: dict[str, list[list[str]]] = {
    "style": [
        [sys.executable, "-m", "ruff", "check", "--quiet", "."],
        [sys.executable, "-m", "ruff", "format", "--check", "--quiet", "."],
        [sys.executable, "-m", "mypy"],
    ],
    "unit": [
        [*PYTEST, "-n", "3", "-p", "no:benchmark", "tests", "--ignore=tests/browser",
         "--ignore=tests/benchmarks", "--ignore=tests/notebooks/test_graded.py"],
    ],
    "doctests": [[*PYTEST, "-p", "no:benchmark", "--doctest-modules", "course"]],
    "notebooks": [
        [*NBVAL, "notebooks"],
        [*PYTEST, "-n", "2", "-p", "no:benchmark", "tests/notebooks/test_graded.py"],
    ],
    "browser": [[*PYTEST, "-p", "no:benchmark", "tests/browser"]],
    "benchmarks": [[*PYTEST, "tests/benchmarks", "-s", "--benchmark-disable-gc"]],
}  # fmt: skip


def main(wanted: list[str]) -> int:
    """Run the wanted stages (all without any) and return the exit status."""
    unknown = set(wanted) - set(STAGES)
    if unknown:
        print(f"no stage {', '.join(sorted(unknown))}; there are: {', '.join(STAGES)}")
        return 2
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "COURSE_PROGRESS": "off"}
    outcome: list[tuple[str, bool, float]] = []
    for stage in wanted or STAGES:
        print(f"\n=== {stage}", flush=True)
        start = time.perf_counter()
        codes = [subprocess.call(command, cwd=ROOT, env=environment) for command in STAGES[stage]]
        outcome.append((stage, not any(codes), time.perf_counter() - start))
    print("\nstage        result    seconds")
    for stage, good, spent in outcome:
        print(f"{stage:<12} {'passed' if good else 'FAILED':<8} {spent:>8.0f}")
    good = sum(passed for _, passed, _ in outcome)
    print(f"stages: {good} passed, {len(outcome) - good} failed")
    return 0 if good == len(outcome) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
