"""A student's desk: copies of the notebooks in ``work/``, JupyterLab opened there; no lesson."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

_RECORD: Final = ".originals.json"
_DIGEST: Final = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Laid:
    """What laying out the notebooks did: names of those copied, kept, and offered beside.

    `record_lost`: what was copied before is not known any more (the record is missing, damaged or
    incomplete), so that whatever differs from its original was offered.
    """

    copied: tuple[str, ...]
    kept: tuple[str, ...]
    offered: tuple[str, ...]
    record_lost: bool = False


def lay_out(originals: Path, desk: Path) -> Laid:
    """Copy the notebooks that `desk` lacks; nothing that is there is ever written over.

    Where an original has changed since it was copied, the new one is laid beside the student's,
    under the first free of the names ``NAME.updated.ipynb``, ``NAME.updated-2.ipynb`` …, unless one
    of these is that very original already. A record of what was copied is kept in the desk.
    """
    desk.mkdir(parents=True, exist_ok=True)
    known = _read_record(desk / _RECORD)
    lost = False
    copied: list[str] = []
    kept: list[str] = []
    offered: list[str] = []
    for original in sorted(originals.glob("*.ipynb")):
        content = original.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        mine = desk / original.name
        if _created(mine, content):
            copied.append(mine.name)
            known[mine.name] = digest
            continue
        lost = lost or mine.name not in known
        if known.get(mine.name) == digest or _holds(mine, content):
            kept.append(mine.name)
        else:
            beside = _offered(original.stem, desk, content)
            (offered if beside else kept).append(beside or mine.name)
        known[mine.name] = digest
    temporary = desk / f"{_RECORD}.{secrets.token_hex(8)}.tmp"
    temporary.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(temporary, desk / _RECORD)
    return Laid(tuple(copied), tuple(kept), tuple(offered), lost)


def _created(path: Path, content: bytes) -> bool:
    """Make a file that is not there, whole or not at all.

    False where anything has that name, now or in between.
    """
    if os.path.lexists(path):
        return False
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(content)
        try:
            os.link(temporary, path)  # never replaces anything, as a renaming would
        except FileExistsError:
            return False
        except OSError:  # no links on this file system
            return _created_slowly(path, content)
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _created_slowly(path: Path, content: bytes) -> bool:
    """The same where no links are to be had; what could not be written to its end is taken away."""
    try:
        file = path.open("xb")
    except FileExistsError:
        return False
    try:
        with file:
            file.write(content)
    except BaseException:
        path.unlink(missing_ok=True)  # made a moment ago, by this very call
        raise
    return True


def _holds(path: Path, content: bytes) -> bool:
    """Whether a file has exactly this content."""
    try:
        return path.read_bytes() == content
    except OSError:
        return False


def _offered(stem: str, desk: Path, content: bytes) -> str | None:
    """Lay a new original beside the student's; None where it lies there already."""
    for number in count(1):
        path = desk / f"{stem}.updated{'' if number == 1 else f'-{number}'}.ipynb"
        if _holds(path, content):
            return None
        if _created(path, content):
            return path.name
    raise AssertionError("there is always another number")


def _read_record(path: Path) -> dict[str, str]:
    """The digest of the original that each copy was made from; without what cannot be read."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(record, dict):
        return {}
    return {name: digest for name, digest in record.items()
            if isinstance(digest, str) and _DIGEST.fullmatch(digest)}  # fmt: skip


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
