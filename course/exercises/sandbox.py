"""Runs a student's code within a time limit, its printing caught; judging it happens elsewhere.

On the main thread of a POSIX system an interval timer interrupts the code, again and again until
it gives up, so that `except:` inside a loop does not help it. Elsewhere the code runs in a thread
of its own, is sent exceptions, and is abandoned if it still does not end. One thing nothing in the
same process can end: a single call into C that never returns to Python, such as
`sum(range(10**15))`; the kernel's restart button does, and so does the grader's own limit.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import linecache
import os
import random
import signal
import sys
import sysconfig
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import numpy as np

PRINTED_CHARACTERS = 2_000
_FIRST_REPEAT_S = 0.01
_HURRIED_REPEAT_S = 0.0002
_PATIENT_ROUNDS = 50
_THREAD_GRACE_S = 2.0

_COURSE = str(Path(__file__).resolve().parent.parent)
_PYTHON = tuple(
    str(Path(sysconfig.get_paths()[key]).resolve()) for key in ("stdlib", "purelib", "platlib")
)


class TimeUp(BaseException):
    """Sent into code that has used up its time; a BaseException so that few handlers catch it."""


@dataclass(frozen=True)
class Outcome:
    """How one call ended: its value, or its exception, or out of time; and what it printed."""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False
    still_running: bool = False
    printed: str = ""


class _Printed(io.TextIOBase):
    """Keeps the first characters written to it and counts the rest."""

    def __init__(self) -> None:
        self.kept: list[str] = []
        self.room = PRINTED_CHARACTERS
        self.dropped = 0

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self.room > 0:
            self.kept.append(text[: self.room])
        self.dropped += max(0, len(text) - max(0, self.room))
        self.room -= len(text)
        return len(text)

    def text(self) -> str:
        more = f"\n… and {self.dropped:,} characters more" if self.dropped else ""
        return "".join(self.kept) + more


class _NoDisplay:
    """Stands in for IPython's publisher, so that a judged function cannot flood the notebook."""

    is_publishing = False

    def publish(self, *args: Any, **kwargs: Any) -> None:
        """Drop it."""

    def clear_output(self, wait: bool = False) -> None:
        """Nothing to clear."""


def _shell() -> Any:
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


@contextlib.contextmanager
def contained(seed: int = 0) -> Iterator[_Printed]:
    """Catch printing, displays and warnings; give global random draws a seed, then restore them.

    A student's function may draw from `np.random` or `random`: judging it is repeatable, and the
    notebook's own draws go on afterwards as if nothing had happened.
    """
    printed = _Printed()
    shell = _shell()
    publisher = None if shell is None else shell.display_pub
    numpy_state, python_state = np.random.get_state(), random.getstate()  # noqa: NPY002
    numpy_errors, recursion = np.geterr(), sys.getrecursionlimit()
    np.random.seed(seed % 2**32)  # noqa: NPY002 - the student's own global draws, made repeatable
    random.seed(seed)
    try:
        with (
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            if shell is not None:
                shell.display_pub = _NoDisplay()
            yield printed
    finally:
        if shell is not None:
            shell.display_pub = publisher
        np.random.set_state(numpy_state)  # noqa: NPY002
        random.setstate(python_state)
        np.seterr(**numpy_errors)
        sys.setrecursionlimit(recursion)


def run(call: Callable[[], Any], limit_s: float, seed: int = 0) -> Outcome:
    """What `call()` gives within `limit_s` seconds; whatever it raises is caught.

    Only a KeyboardInterrupt passes: it is the person's.

    >>> run(lambda: 6 * 7, limit_s=1.0).value
    42
    >>> run(lambda: 1 // 0, limit_s=1.0).error
    ZeroDivisionError('integer division or modulo by zero')
    """
    on_main = threading.current_thread() is threading.main_thread()
    with contained(seed) as printed:
        if hasattr(signal, "setitimer") and on_main:
            outcome = _run_with_alarm(call, limit_s)
        else:
            outcome = _run_in_thread(call, limit_s)
    return Outcome(
        outcome.value, outcome.error, outcome.timed_out, outcome.still_running, printed.text()
    )


def _run_with_alarm(call: Callable[[], Any], limit_s: float) -> Outcome:
    """The POSIX way: SIGALRM, repeated, raising only in frames below this one.

    Nothing is raised in this frame itself, so its own clean-up cannot be hit.
    """
    ours = sys._getframe()
    armed, rounds = True, 0
    old_trace = sys.gettrace()

    def raise_again(frame: FrameType, event: str, arg: Any) -> Any:
        # The exception that the alarm raised may be caught where it lands: this raises a second
        # one at the very next line, which lies inside the handler and so leaves the `try`.
        # Python then forgets the tracer, so it must not be spent on any other event.
        if not armed or frame is ours or frame.f_code is on_alarm.__code__:
            return None
        if event == "line":
            raise TimeUp
        return raise_again

    def on_alarm(signum: int, frame: FrameType | None) -> None:
        nonlocal rounds
        if not armed or frame is ours or frame is None:
            return
        rounds += 1
        if rounds == _PATIENT_ROUNDS:
            signal.setitimer(signal.ITIMER_REAL, _HURRIED_REPEAT_S, _HURRIED_REPEAT_S)
        while frame is not None and frame is not ours:
            frame.f_trace = raise_again
            frame = frame.f_back
        sys.settrace(raise_again)
        raise TimeUp

    old_handler = signal.signal(signal.SIGALRM, on_alarm)
    started = time.monotonic()
    old_delay, old_interval = signal.setitimer(signal.ITIMER_REAL, limit_s, _FIRST_REPEAT_S)
    value, error = None, None
    try:
        value = call()
    except KeyboardInterrupt:
        raise
    except BaseException as raised:
        error = raised
    finally:
        armed = False
        sys.settrace(old_trace)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old_handler)
        if old_delay:
            left = max(0.001, old_delay - (time.monotonic() - started))
            signal.setitimer(signal.ITIMER_REAL, left, old_interval)
    if rounds:
        return Outcome(timed_out=True)
    return Outcome(value=value, error=error)


def _run_in_thread(call: Callable[[], Any], limit_s: float) -> Outcome:
    """The way elsewhere: a daemon thread, sent exceptions once its time is up."""
    result: dict[str, Any] = {}
    done = threading.Event()

    def target() -> None:
        try:
            result["value"] = call()
        except BaseException as raised:
            result["error"] = raised
        finally:
            done.set()

    worker = threading.Thread(target=target, name="judged answer", daemon=True)
    worker.start()
    ends = time.monotonic() + limit_s
    try:
        while not done.is_set() and time.monotonic() < ends:
            done.wait(0.05)  # short waits, so that a person's interrupt gets through
    except KeyboardInterrupt:
        _stop(worker, done)
        raise
    if done.is_set():
        return Outcome(value=result.get("value"), error=result.get("error"))
    return Outcome(timed_out=True, still_running=not _stop(worker, done))


def _stop(worker: threading.Thread, done: threading.Event) -> bool:
    """Send exceptions into a thread until it ends or the grace is over; whether it ended."""
    ends = time.monotonic() + _THREAD_GRACE_S
    while not done.is_set() and time.monotonic() < ends:
        ident = ctypes.c_ulong(worker.ident or 0)
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(TimeUp))
        done.wait(_FIRST_REPEAT_S)
    return done.is_set()


def describe_error(error: BaseException) -> str:
    """An exception in one sentence: type, message and the student's own line, never ours.

    >>> describe_error(run(lambda: {}["x"], limit_s=1.0).error)
    "It stopped with KeyError: 'x'."
    """
    if isinstance(error, RecursionError):
        return f"It calls itself without end (RecursionError){_student_line(error.__traceback__)}."
    if isinstance(error, SystemExit):
        return f"It tried to leave Python (SystemExit){_student_line(error.__traceback__)}."
    try:
        message = " ".join(str(error).split())
    except Exception:
        message = ""
    if len(message) > 200:
        message = message[:197] + "..."
    what = type(error).__name__ + (f": {message}" if message else "")
    return f"It stopped with {what}{_student_line(error.__traceback__)}."


def _student_line(trace: TracebackType | None) -> str:
    """The innermost line that is neither the course's, nor Python's, nor a library's."""
    found = ""
    for frame, number in traceback.walk_tb(trace):
        name = frame.f_code.co_filename
        if _is_library(name):
            continue
        text = linecache.getline(name, number).strip()
        shown = text if len(text) <= 80 else text[:77] + "..."
        found = f", at line {number} of its cell" + (f" (`{shown}`)" if shown else "")
    return found


def _is_library(filename: str) -> bool:
    if filename.startswith("<") and not filename.startswith("<ipython-input"):
        return True
    path = os.path.realpath(filename)
    return path.startswith((_COURSE + os.sep, *(p + os.sep for p in _PYTHON)))
