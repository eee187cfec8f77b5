"""A student's desk: copies of the notebooks in ``work/``, JupyterLab opened there; no lesson."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_RECORD: Final = ".originals.json"


@dataclass(frozen=True)
class Laid:
    """What laying out the notebooks did: names of those copied, kept, and offered beside."""

    copied: tuple[str, ...]
    kept: tuple[str, ...]
    offered: tuple[str, ...]


def lay_out(originals: Path, desk: Path) -> Laid:
    """Copy the notebooks that `desk` lacks; never write over one that is there.

    Where an original has changed since it was copied, the new one is laid beside the student's as
    ``NAME.updated.ipynb``. A record of what was copied from what is kept in the desk.
    """
    desk.mkdir(parents=True, exist_ok=True)
    record = _read_record(desk / _RECORD)
    copied, kept, offered = [], [], []
    for original in sorted(originals.glob("*.ipynb")):
        digest = hashlib.sha256(original.read_bytes()).hexdigest()
        mine = desk / original.name
        if not mine.exists():
            shutil.copyfile(original, mine)
            record[original.name] = digest
            copied.append(original.name)
        elif record.setdefault(original.name, digest) != digest:
            beside = desk / f"{original.stem}.updated.ipynb"
            shutil.copyfile(original, beside)
            record[original.name] = digest
            offered.append(beside.name)
        else:
            kept.append(original.name)
    temporary = desk / f"{_RECORD}.tmp"
    temporary.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(temporary, desk / _RECORD)
    return Laid(tuple(copied), tuple(kept), tuple(offered))


def _read_record(path: Path) -> dict[str, str]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def warm_up(progress: Callable[[Iterable[tuple[str, Callable[[], object]]]], None]) -> None:
    """Compile every kernel and keep it on disk, handing the labelled steps to `progress`."""
    from course.serving import engine, queueing

    progress([*queueing.warm_steps(), *engine.warm_steps()])


def quiet_lab() -> None:
    """Tell this environment's own JupyterLab not to look for news: the course works offline.

    Only in a virtual environment, and only where nothing is set yet.
    """
    if sys.prefix == sys.base_prefix:
        return
    path = Path(sys.prefix) / "share" / "jupyter" / "lab" / "settings" / "overrides.json"
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    settings = {"@jupyterlab/apputils-extension:notification": quiet}
    path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def lab_command(desk: Path, extra: Iterable[str] = ()) -> list[str]:
    """Return the command that opens JupyterLab on `desk`, on this machine alone, with its token."""
    return [
        sys.executable, "-m", "jupyter", "lab", f"--notebook-dir={desk}",
        "--ServerApp.ip=127.0.0.1", *extra,
    ]  # fmt: skip
