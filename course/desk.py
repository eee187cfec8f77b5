"""A student's desk: copies of the notebooks in ``work/``, JupyterLab opened there; no lesson."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from course.machine import cannot_be_made, cannot_write, folders_of_the_user

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
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    settings = {"@jupyterlab/apputils-extension:notification": quiet}
    with contextlib.suppress(OSError):  # an environment that others look after
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")


def lab_command(desk: Path, given: Iterable[str] = ()) -> list[str]:
    """Return the command that opens JupyterLab on `desk`, with its token, at the first notebook.

    On this machine alone, unless what is `given` for JupyterLab says something else.
    """
    given = list(given)
    first = min((path.name for path in desk.glob("[0-9]*.ipynb")), default="")
    own = {
        ("--ip", "--ServerApp.ip"): "--ServerApp.ip=127.0.0.1",
        (
            "--LabApp.default_url",
            "--ServerApp.default_url",
        ): f"--LabApp.default_url=/lab/tree/{first}",
    }
    options = [word.partition("=")[0] for word in given]
    chosen = [ours for names, ours in own.items() if not set(names) & set(options)]
    return [sys.executable, "-m", "jupyterlab", f"--notebook-dir={desk}", *chosen, *given]


def become(command: list[str]) -> int:
    """Hand terminal and signals to a command for good; its exit status where that cannot be.

    JupyterLab asks after one Ctrl-C; a parent that ended by it would take the terminal away.
    """
    sys.stdout.flush()
    if sys.platform != "win32":
        os.execv(command[0], command)
    signal.signal(signal.SIGINT, lambda *_: None)
    return subprocess.call(command)


def a_desk(wanted: Path) -> tuple[Path, str]:
    """Return the folder to work in, made, and a sentence where it is not the one that is wanted.

    Raises ValueError where nothing can be written anywhere.
    """
    trouble = _not_made(wanted)
    if not trouble:
        return wanted, ""
    for place in (Path.cwd() / "work", Path.home() / "throughput-latency-course" / "work"):
        if not _not_made(place):
            return place, f"{wanted} cannot be written ({trouble}): your notebooks are in {place}"
    place = temporary_home() / "work"
    if _not_made(place):
        raise ValueError(f"{wanted} cannot be written ({trouble}), nor {place}; mend their rights")
    return place, (
        f"{wanted} cannot be written ({trouble}): your notebooks are in {place}, which this "
        "machine may empty; download what you want to keep"
    )


def _not_made(folder: Path) -> str:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return error.strerror or str(error)
    return cannot_write(str(folder))


def temporary_home() -> Path:
    """Return this user's folder for what can be kept nowhere else; no other user can put it there.

    Raises ValueError where somebody has.
    """
    folder = Path(tempfile.gettempdir()) / f"throughput-latency-course-{_user()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.is_symlink() or (hasattr(os, "getuid") and folder.stat().st_uid != os.getuid()):
        raise ValueError(
            f"{folder} is another user's; remove it, or set TMPDIR to a folder of yours"
        )
    return folder


def _user() -> str:
    """Return what tells this user from another on this machine."""
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")


def settle_homes() -> str:
    """Give Jupyter, IPython and matplotlib folders that can be written, where theirs cannot.

    Returns a sentence on it, or "". What is set holds for this process and those it starts.
    """
    lost = [(name, folder) for name, folder in folders_of_the_user() if cannot_be_made(folder)]
    if not lost:
        return ""
    try:
        home = temporary_home()
        for name, _ in lost:
            (home / name.lower()).mkdir(mode=0o700, exist_ok=True)
            os.environ[name] = str(home / name.lower())
    except OSError as error:
        return f"{lost[0][1]} cannot be written, nor a temporary folder ({error.strerror})"
    return f"{lost[0][1]} cannot be written: settings and caches are kept in {home} for now"
