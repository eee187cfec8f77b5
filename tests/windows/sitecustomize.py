"""Takes from a POSIX machine what Windows lacks; Python reads it at its start if it is on the path.

No resource, fork or alarm; processes are spawned; text whose encoding nobody named is cp1252, and
lines end in two signs.
"""

from __future__ import annotations

import builtins
import contextlib
import io
import locale
import multiprocessing
import os
import signal
import sys
from typing import Any

ENCODING = "cp1252"
LACKING = {
    os: ("fork", "forkpty", "geteuid"),
    signal: ("SIGALRM", "ITIMER_REAL", "alarm", "getitimer", "setitimer"),
}

_open = io.open


def open_there(file: Any, mode: str = "r", *rest: Any, **options: Any) -> Any:
    """Open a file as Windows would."""
    if "b" not in mode:
        given = dict(zip(("buffering", "encoding", "errors", "newline"), rest, strict=False))
        options = {**given, **options}
        rest = ()
        if options.get("encoding") in (None, "locale"):
            options["encoding"] = ENCODING
        if options.get("newline") is None and not set(mode) & {"r", "+"}:
            options["newline"] = "\r\n"
    return _open(file, mode, *rest, **options)


with contextlib.suppress(ImportError):
    import psutil  # noqa: F401  on Linux it needs `resource` itself
sys.modules["resource"] = None  # type: ignore[assignment]
multiprocessing.set_start_method("spawn", force=True)
for owner, names in LACKING.items():
    for name in names:
        if hasattr(owner, name):
            delattr(owner, name)
locale.getencoding = lambda: ENCODING
locale.getpreferredencoding = lambda do_setlocale=True: ENCODING
io.open = builtins.open = open_there  # type: ignore[assignment]
