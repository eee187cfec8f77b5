"""``python -m course bench``: measures this machine, prints the report; makes no figure."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from course.commands._targets import check_sources, check_targets

if TYPE_CHECKING:
    from course.measure import Record
    from course.measure.bench import Progress


class Device(StrEnum):
    """What may be measured."""

    auto = "auto"
    cpu = "cpu"
    cuda = "cuda"


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes, within a minute")] = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Where the JSON goes", show_default="work/measured-DEVICE-TIME.json"),
    ] = None,
    device: Annotated[Device, typer.Option(help="auto takes a CUDA card if there is one")] = (
        Device.auto
    ),
    budget_s: Annotated[
        float | None,
        typer.Option(help="Seconds for the whole run", show_default="45 quick, else 240; card 180"),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of the random operands", show_default="fresh")
    ] = None,
    threads: Annotated[
        int | None, typer.Option(help="Of the CPU", show_default="torch's own")
    ] = None,
    read: Annotated[
        Path | None, typer.Option(help="Measure nothing; print the report of this JSON file")
    ] = None,
) -> None:
    """Measure this machine with torch: bandwidth, arithmetic, batches, attention, a small model.

    Close other programs first. Stop with Ctrl-C at any time: what was measured is kept.
    """
    from course.measure import load_record, report, run_benches, save_record
    from course.measure.machine import need_torch

    if read is not None:
        check_sources([read])
        typer.echo(report(load_record(read)), nl=False)
        return
    need_torch()
    where = out or _new_file(device)
    check_targets({}, {"--out": where})

    def keep(record: Record) -> None:
        save_record(record, where)

    with _bar() as progress:
        record = run_benches(quick, device.value, budget_s, seed, threads, progress, keep)
    keep(record)
    typer.echo(report(record))
    typer.echo(f"written to {where}")


def _new_file(device: Device) -> Path:
    """Return a name in work/ that no earlier run has, and make the folder."""
    from course.paths import WORK

    WORK.mkdir(parents=True, exist_ok=True)
    name = f"measured-{device.value}-{datetime.now():%Y%m%d-%H%M%S}.json"
    return WORK / name


@contextmanager
def _bar() -> Iterator[Progress]:
    """Yield what moves a progress bar; it goes to standard error and vanishes at the end."""
    from tqdm import tqdm

    with tqdm(total=1, unit="bench", ncols=80, leave=False) as bar:

        def progress(done: int, count: int, name: str) -> None:
            bar.total = count
            bar.n = done
            bar.set_description(f"{name:<24.24}")

        yield progress
