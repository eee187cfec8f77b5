"""The example sweep in `data/example_sweep`: its runs and its files; no exercise is here."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from course.serving.engine import EngineConfig, Run, simulate
from course.serving.pricing import RooflineStepCost
from course.serving.results import write_vllm
from course.serving.workload import Lognormal, Poisson, draw

EXAMPLE_RATES_PER_S = (4, 8, 10, 12, 14, 16, 18, 20)
"""Requests/s of the example sweep, one file each."""


def example_runs() -> tuple[Run, ...]:
    """Return the runs behind ``data/example_sweep``, one for each of its rates.

    >>> runs = example_runs()
    >>> len(runs), len(runs[0])
    (8, 240)
    """
    cost = RooflineStepCost("Llama-3.1-8B", "L40S")
    lengths = Lognormal.of_mean(600, 0.6), Lognormal.of_mean(20, 0.6)
    config = EngineConfig(12, 2048, num_kv_blocks=cost.kv_blocks())
    work = draw(240, Poisson(1.0), *lengths, seed=66)
    return tuple(
        simulate(work.scaled(rate), cost, config, progress=False) for rate in EXAMPLE_RATES_PER_S
    )


def write_example(folder: str | Path) -> None:
    """Write the files of ``data/example_sweep`` into a folder; times to the microsecond.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_example(folder)
    ...     print(*sorted(path.name for path in Path(folder).iterdir())[:2])
    rate-04.json rate-08.json
    """
    for rate, run in zip(EXAMPLE_RATES_PER_S, example_runs(), strict=True):
        path = write_vllm(run, Path(folder) / f"rate-{rate:02d}.json", model="Llama-3.1-8B")
        record = _rounded(json.loads(path.read_text(encoding="utf-8")))
        path.write_text(json.dumps(record) + "\n", encoding="utf-8")


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    return value
