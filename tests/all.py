"""Runs the tests of a lane, two stages at a time, and says how long each took.

    python tests/all.py            what `make test` runs: proves that the course works here
    python tests/all.py quick      what a maintainer runs before a commit
    python tests/all.py deep       every seed, many random cases, all notebooks, oldest dependencies
    python tests/all.py bench      the benchmarks, alone on the machine
    python tests/all.py unit       only the named stages (style, unit, doctests, notebooks, browser)

Each stage's lines are printed as they come, with the stage's name before them.
Exit status 1 if a stage failed; the stages after it still run.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTEST = [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark"]
# nbval's plugin imports what the unit tests turn into errors, and xdist would split one notebook
# over two workers without loadfile.
NBVAL = [
    *PYTEST, "--nbval-lax", "--nbval-current-env", "--nbval-cell-timeout=120", "-n", "2",
    "--dist", "loadfile", "-p", "no:hypothesispytest", "-W", "default",
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
        [*PYTEST, "-n", "2", "tests", "--ignore=tests/browser", "--ignore=tests/benchmarks",
         "--ignore=tests/notebooks/test_graded.py"],
    ],
    "doctests": [[*PYTEST, "--doctest-modules", "course"]],
    "notebooks": [
        [*NBVAL, "notebooks"],
        [*PYTEST, "-n", "2", "tests/notebooks/test_graded.py"],
    ],
    "browser": [[*PYTEST, "tests/browser"]],
    "oldest": [[sys.executable, "tests/oldest.py"]],
    "elsewhere": [[sys.executable, "tests/elsewhere.py"]],
    "benchmarks": [
        [sys.executable, "-m", "pytest", "-q", "tests/benchmarks", "-s", "--benchmark-disable-gc"]
    ],
}  # fmt: skip

# What several processes would otherwise compile at once, each for itself.
WARM_UP = [
    sys.executable, "-c",
    "from course.desk import warm_up; warm_up(lambda steps: [step() for _, step in steps])",
]  # fmt: skip

# Stages side by side: the unit tests fill one core and a half, the others wait a lot.
LANES: dict[str, list[list[str]]] = {
    "quick": [["unit"], ["style"]],
    "whole": [["unit", "style", "doctests"], ["browser", "notebooks"]],
    "deep": [["unit", "style", "doctests"], ["notebooks", "browser", "oldest", "elsewhere"]],
    "bench": [["benchmarks"]],
}
ABOUT = {"quick": "about a minute", "whole": "about ten minutes", "deep": "about an hour",
         "bench": "about ten minutes"}  # fmt: skip
_PRINTING = threading.Lock()


@dataclass(frozen=True)
class Outcome:
    """How a stage ended."""

    stage: str
    passed: bool
    seconds: float
    failed: tuple[str, ...] = ()


def run_stage(stage: str, environment: Mapping[str, str]) -> Outcome:
    """Run a stage's commands, and print their lines as they come."""
    start = time.perf_counter()
    say(stage, "begins")
    codes = []
    failed: list[str] = []
    for command in STAGES[stage]:
        with subprocess.Popen(
            command, cwd=ROOT, env=dict(environment), text=True, encoding="utf-8",
            errors="replace", stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        ) as process:  # fmt: skip
            assert process.stdout is not None
            for line in process.stdout:
                say(stage, line.rstrip("\n"))
                if line.startswith(("FAILED ", "ERROR ")):  # pytest's short summary
                    failed.append(line.strip())
        codes.append(process.returncode)
    outcome = Outcome(stage, not any(codes), time.perf_counter() - start, tuple(failed))
    say(stage, f"{'passed' if outcome.passed else 'FAILED'} after {outcome.seconds:.0f} s")
    return outcome


def say(stage: str, line: str) -> None:
    """Print one line of a stage in one piece, whatever other stages print."""
    with _PRINTING:
        print(f"{stage:<10} | {line}", flush=True)


def run_side(stages: Sequence[str], environment: Mapping[str, str]) -> list[Outcome]:
    """Run stages one after the other."""
    return [run_stage(stage, environment) for stage in stages]


def main(wanted: list[str]) -> int:
    """Run a lane (the whole one without a name) or single stages; return the exit status."""
    unknown = set(wanted) - set(STAGES) - set(LANES)
    if unknown or (len(wanted) > 1 and set(wanted) & set(LANES)):
        print(
            f"cannot run {' '.join(wanted)}; give one lane ({', '.join(LANES)}) "
            f"or stages ({', '.join(STAGES)})"
        )
        return 2
    lane = wanted[0] if wanted and wanted[0] in LANES else "whole"
    sides = [wanted] if wanted and wanted[0] in STAGES else LANES[lane]
    environment = {**os.environ, "COURSE_PROGRESS": "off", "PYTHONUNBUFFERED": "1"}
    if lane in ("quick", "deep"):
        environment["COURSE_TESTS"] = lane
    if sides is LANES[lane]:
        print(f"The {lane} lane ({ABOUT[lane]} on two quiet cores).", flush=True)
    if sides is LANES[lane] and lane != "bench":
        print("The simulator is compiled where it is not yet.", flush=True)
        subprocess.run(WARM_UP, cwd=ROOT, env=environment, check=False)
    outcomes: list[Outcome] = []
    with ThreadPoolExecutor(len(sides)) as pool:
        for done in pool.map(lambda side: run_side(side, environment), sides):
            outcomes += done
    print("\nstage        result    seconds")
    for outcome in outcomes:
        result = "passed" if outcome.passed else "FAILED"
        print(f"{outcome.stage:<12} {result:<8} {outcome.seconds:>8.0f}")
    for outcome in outcomes:
        for line in outcome.failed:
            say(outcome.stage, line)
    good = sum(outcome.passed for outcome in outcomes)
    print(f"stages: {good} passed, {len(outcomes) - good} failed")
    return 0 if good == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
