"""Which measured machine the explorers of notebook 10 show, and its fit; nothing is timed here
unless `your_machine` is asked to, and nothing is drawn.

A reader's own run is the newest `work/measured-*.json`. Where there is none, or it lacks what a
picture needs, the run recorded with the course stands in, and `Machine.caption` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, TypeVar

from course import paths
from course.measure import (
    MachineFit,
    Record,
    fit_record,
    newest_measured,
    recorded_runs,
    run_benches,
    save_record,
)
from course.measure.plans import plan_for
from course.ui import choice
from course.words import rounded

P = TypeVar("P")
R = TypeVar("R")

PRECISIONS: Final = ("bf16", "fp32")
NUMBER_BYTES: Final[Mapping[str, int]] = {"bf16": 2, "fp32": 4}

FIT_NAMES: Final[Mapping[str, str]] = {
    "bandwidth_bytes_per_s": "bandwidth", "peak_flop_per_s": "peak", "overhead_s": "fixed part",
}  # fmt: skip
"""What a fit's constants are called in a sentence."""

Needs = Callable[[Record, MachineFit], bool]
"""Whether a run and its fit have all that a picture is made of."""

Files = tuple[tuple[str, int], ...]
"""Kept runs and their times, the newest of which is meant; none means the recorded one."""


@dataclass(frozen=True, eq=False)
class Machine:
    """One run and its fit in one precision; `why_not_yours` is empty for the reader's own."""

    record: Record
    fit: MachineFit
    why_not_yours: str = ""

    @property
    def caption(self) -> str:
        """Whose figures these are, for the picture."""
        whose = "recorded on" if self.why_not_yours else "measured on your machine:"
        return f"{whose} {self.record.label}"

    @property
    def lead(self) -> str:
        """The same as a sentence of its own."""
        if self.why_not_yours:
            return f"Recorded on {self.record.label} ({self.why_not_yours})."
        return f"On your machine ({self.record.label})."


def machine_parameter() -> Any:
    """Declare the parameter that chooses between the reader's own run and the recorded one."""
    return choice(
        "yours", {"yours, if measured": "yours", "the recorded one": "recorded"},
        label="Machine", help="Your newest measuring run, or the one recorded with the course",
    )  # fmt: skip


def precision_parameter() -> Any:
    """Declare the parameter that chooses the numbers' precision."""
    return choice(
        "bf16", {"bf16 (2 bytes)": "bf16", "fp32 (4 bytes)": "fp32"},
        label="Precision", help="Of weights, cache and arithmetic: fewer bytes, faster units",
    )  # fmt: skip


def machine(source: str, precision: str, needs: Needs) -> Machine:
    """Return the run to show: `source` is "yours" or "recorded", `needs` what it must have.

    A run in which the precision is missing is shown in the other one. Raises ValueError where even
    the recorded run lacks what is needed.
    """
    why = "as you asked"
    if source == "yours":
        files = _measured_files(paths.WORK)
        found = _own_run(files) is not None and _fitting(files, precision, needs)
        if found:
            return found
        why = "you have measured none yet"
        if _own_run(files) is not None:
            why = "your own run is too short for this picture"
    recorded = _fitting((), precision, needs)
    if not recorded:
        raise ValueError("the recorded run lacks benches that the picture needs; get data/ anew")
    return replace(recorded, why_not_yours=why)


@lru_cache(maxsize=1)
def recorded_run() -> Record:
    """Return the run that comes with the course and stands in for the reader's.

    >>> recorded_run().device.kind
    'cpu'
    """
    return recorded_runs("cpu")[0]


def your_machine(measure: bool = False, budget_s: float = 8.0) -> Record:
    """Return a run to look at, and print which it is; with `measure`, time this machine first.

    Measuring needs torch and takes about `budget_s` seconds; a run with enough points is kept in
    work/, where the explorers find it. Otherwise it is the newest one there, or the recorded one.
    Raises CannotMeasureError (a ValueError) without torch.
    """
    record = _measured_now(budget_s) if measure else None
    if record is not None:
        if _fitted(record, "bf16") is not None:
            paths.WORK.mkdir(parents=True, exist_ok=True)
            name = f"measured-notebook-{datetime.now():%Y%m%d-%H%M%S}.json"
            save_record(record, paths.WORK / name)
            print(
                f"Measured in {record.spent_s:.0f} s: {record.label}. "
                f"Kept as {paths.WORK.name}/{name}."
            )
            return record
        print(
            f"{budget_s:g} s were too few here, so nothing was kept: close other programs, or give "
            f"more time with your_machine(measure=True, budget_s={4 * budget_s:g})."
        )
    own = _own_run(_measured_files(paths.WORK))
    shown = own or recorded_run()
    print(f"{'Measured by you earlier' if own else 'A recorded run'}: {shown.label}.")
    return shown


def _measured_now(budget_s: float) -> Record:
    """Time this machine in bf16 alone: half the sizes, so that a few seconds see every curve."""
    from course.measure.machine import find_device, need_torch

    plan = plan_for(find_device(need_torch(), "auto").kind, quick=True)
    batches = plan.gemm_batches[::2] + plan.gemm_batches[-1:]
    short = replace(
        plan, precisions=("bf16",), gemm_batches=tuple(dict.fromkeys(batches)),
        matmul_sizes=plan.matmul_sizes[1:], prompts=plan.prompts[:3],
        model_prompts=plan.model_prompts[:1],
    )  # fmt: skip
    return run_benches(quick=True, budget_s=budget_s, plan=short)


def _measured_files(folder: Path) -> Files:
    """Name and time of each kept run: a new one must be seen, an old one not read again."""
    found = sorted(folder.glob("measured-*.json"))
    return tuple((str(path), path.stat().st_mtime_ns) for path in found)


@lru_cache(maxsize=4)
def _own_run(files: Files) -> Record | None:
    return newest_measured(Path(files[0][0]).parent) if files else None


def _fitting(files: Files, precision: str, needs: Needs) -> Machine | None:
    """The run fitted in the wanted precision, in the other one where that is missing, or None."""
    record = _own_run(files) or recorded_run()
    for name in dict.fromkeys((precision, *PRECISIONS)):
        fit = _fit(files, name)
        if fit is not None and needs(record, fit):
            return Machine(record, fit)
    return None


@lru_cache(maxsize=8)
def _fit(files: Files, precision: str) -> MachineFit | None:
    return _fitted(_own_run(files) or recorded_run(), precision)


def _fitted(record: Record, precision: str) -> MachineFit | None:
    try:
        return fit_record(record, precision)
    except ValueError:
        return None


def rate_words(value: float, unit: str) -> str:
    """Return a rate with a decimal prefix.

    >>> rate_words(1.8e10, "B"), rate_words(9.89e14, "FLOP")
    ('18.0 GB/s', '989 TFLOP/s')
    """
    for size, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if value >= size:
            return f"{rounded(value / size)} {prefix}{unit}/s"
    return f"{rounded(value)} {unit}/s"


def off_words(share: float) -> str:
    r"""Return how far a value is from another, from their ratio − 1.

    >>> off_words(0.151), off_words(-0.38), off_words(0.004)
    ('15\xa0% above', '38\xa0% below', 'within 1\xa0% of')
    """
    if abs(share) < 0.01:
        return "within 1\u00a0% of"
    return f"{100 * abs(share):.0f}\u00a0% {'above' if share > 0 else 'below'}"
