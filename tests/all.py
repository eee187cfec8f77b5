"""Runs every stage of the tests, two at a time, and says how long each took.

    python tests/all.py            all stages
    python tests/all.py unit       only the named ones

Exit status 1 if a stage failed; the stages after it still run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q"]
# nbval's plugin imports what the unit tests turn into errors, and xdist would split one notebook
# over two workers without loadfile.
NBVAL = [
    *PYTEST, "--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120", "-n", "2",
    "--dist", "loadfile", "-p", "no:hypothesispytest", "-p", "no:benchmark", "-W", "default",
]  # fmt: skip

LINT_IMPORTS = str(Path(sys.executable).with_name("lint-imports"))

STAGES: dict[str, list[list[str]]] = {
    "style": [
        [sys.executable, "-m", "ruff", "check", "--quiet", "."],
        [sys.executable, "-m", "ruff", "format", "--check", "--quiet", "."],
        [sys.executable, "-m", "mypy"],
        [LINT_IMPORTS, "--no-logo"],
    ],
    "unit": [
        [*PYTEST, "-n", "2", "-p", "no:benchmark", "tests", "--ignore=tests/browser",
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


# The unit tests fill one core and a half; the other stages, which wait a lot, run beside them. The
# benchmarks come last and alone.
LANES = [["unit", "style", "doctests"], ["notebooks", "browser"]]


@dataclass(frozen=True)
class Outcome:
    """How a stage ended."""

    stage: str
    passed: bool
    seconds: float


def run_stage(stage: str, environment: dict[str, str], *, live: bool) -> Outcome:
    """Run a stage's commands; print as it goes, or in one piece at the end."""
    start = time.perf_counter()
    said, codes = [f"\n=== {stage}\n"], []
    for command in STAGES[stage]:
        if live:
            print("".join(said), flush=True)
            said = []
            codes.append(subprocess.call(command, cwd=ROOT, env=environment))
            continue
        done = subprocess.run(
            command, cwd=ROOT, env=environment, text=True, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        said.append(done.stdout)
        codes.append(done.returncode)
    if said:
        print("".join(said), flush=True)
    return Outcome(stage, not any(codes), time.perf_counter() - start)


def run_lane(stages: list[str], environment: dict[str, str]) -> list[Outcome]:
    """Run stages one after the other."""
    return [run_stage(stage, environment, live=False) for stage in stages]


def main(wanted: list[str]) -> int:
    """Run the wanted stages (all without any) and return the exit status."""
    unknown = set(wanted) - set(STAGES)
    if unknown:
        print(f"no stage {', '.join(sorted(unknown))}; there are: {', '.join(STAGES)}")
        return 2
    environment = {**os.environ, "COURSE_PROGRESS": "off"}
    outcomes: list[Outcome] = []
    if wanted:
        outcomes = [run_stage(stage, environment, live=True) for stage in wanted]
    else:
        print("Running all stages; each prints when it is done (about half an hour).", flush=True)
        with ThreadPoolExecutor(len(LANES)) as pool:
            for lane in pool.map(lambda lane: run_lane(lane, environment), LANES):
                outcomes += lane
        outcomes.append(run_stage("benchmarks", environment, live=True))
    print("\nstage        result    seconds")
    for outcome in outcomes:
        result = "passed" if outcome.passed else "FAILED"
        print(f"{outcome.stage:<12} {result:<8} {outcome.seconds:>8.0f}")
    good = sum(outcome.passed for outcome in outcomes)
    print(f"stages: {good} passed, {len(outcomes) - good} failed")
    return 0 if good == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
