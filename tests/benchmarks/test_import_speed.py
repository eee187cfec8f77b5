"""What a student waits for before the first line runs: `import course` beside `import numpy`."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any


def seconds_of(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    return time.perf_counter() - start


def test_import(benchmark: Any) -> None:
    """Fresh processes, by turns, so that a busy machine slows all alike."""
    times: dict[str, list[float]] = {"pass": [], "import numpy": [], "import course": []}

    def by_turns() -> None:
        for code, found in times.items():
            found.append(seconds_of(code))

    benchmark.pedantic(by_turns, rounds=5, iterations=1)
    python, numpy, course = (statistics.median(found) for found in times.values())
    print(
        f"\n\nbare Python {python:.2f} s, numpy {numpy:.2f} s, course {course:.2f} s: "
        f"{course - numpy:+.2f} s against numpy"
    )
