"""If these fail, a student's loop freezes the notebook, or its printing floods it."""

from __future__ import annotations

import random
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable

import numpy as np
import pytest

from course.exercises import sandbox

pytestmark = pytest.mark.slow

posix_only = pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="the alarm is POSIX's; the thread way is tested too"
)
SHORT_S = 0.2


def plain_loop() -> None:
    while True:
        pass


def loop_catching_exception() -> None:
    while True:
        try:
            plain_loop()
        except Exception:
            continue


def loop_catching_everything() -> None:
    while True:
        try:
            plain_loop()
        except:  # noqa: E722 - what a desperate student writes
            continue


def sleep_catching_everything() -> None:
    while True:
        try:
            time.sleep(1e6)
        except BaseException:
            continue


def two_loops_catching_everything() -> None:
    while True:
        try:
            while True:
                try:
                    plain_loop()
                except:  # noqa: E722
                    continue
        except:  # noqa: E722
            continue


def loop_in_finally() -> None:
    try:
        plain_loop()
    finally:
        plain_loop()


def long_sleep() -> None:
    time.sleep(1e9)


def turns_the_interrupt_into_a_value() -> int:
    try:
        plain_loop()
    except BaseException:
        return 42
    return 0


ENDLESS: list[Callable[[], object]] = [
    plain_loop,
    loop_catching_exception,
    loop_catching_everything,
    sleep_catching_everything,
    two_loops_catching_everything,
    loop_in_finally,
    long_sleep,
    turns_the_interrupt_into_a_value,
]


@posix_only
@pytest.mark.parametrize("call", ENDLESS, ids=lambda call: call.__name__)
def test_an_endless_answer_is_stopped_whatever_it_catches(call: Callable[[], object]) -> None:
    assert sandbox.run(call, SHORT_S).timed_out


@pytest.mark.parametrize(
    "call", [plain_loop, loop_catching_exception, loop_in_finally], ids=lambda call: call.__name__
)
def test_an_endless_answer_off_the_main_thread_is_stopped_too(call: Callable[[], object]) -> None:
    outcomes: list[sandbox.Outcome] = []
    worker = threading.Thread(target=lambda: outcomes.append(sandbox.run(call, SHORT_S)))
    worker.start()
    worker.join()
    assert outcomes[0].timed_out
    assert not outcomes[0].still_running


def test_a_thread_that_cannot_be_stopped_is_said_to_run_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sandbox, "_THREAD_GRACE_S", 0.05)
    release = threading.Event()
    outcomes: list[sandbox.Outcome] = []
    worker = threading.Thread(
        target=lambda: outcomes.append(sandbox.run(lambda: release.wait(30), 0.05))
    )
    worker.start()
    worker.join()
    release.set()
    assert outcomes[0].timed_out
    assert outcomes[0].still_running


def test_a_value_and_what_was_printed_come_back() -> None:
    outcome = sandbox.run(lambda: (print("seen"), 3)[1], 1.0)
    assert (outcome.value, outcome.printed, outcome.timed_out) == (3, "seen\n", False)


def test_a_flood_of_printing_is_cut_and_counted() -> None:
    def flood() -> None:
        for _ in range(20_000):
            print("x" * 100)
        print("to stderr", file=sys.stderr)

    printed = sandbox.run(flood, 5.0).printed
    assert len(printed) < sandbox.PRINTED_CHARACTERS + 100
    assert "characters more" in printed


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit(), ValueError("x"), RecursionError()]
)
def test_whatever_is_raised_is_an_outcome(error: BaseException) -> None:
    def raise_it() -> None:
        raise error

    assert sandbox.run(raise_it, 1.0).error is error


def test_the_persons_own_interrupt_passes_and_leaves_no_timer_behind() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        sandbox.run(interrupted, 1.0)
    assert signal.getsignal(signal.SIGINT) is before
    if hasattr(signal, "getitimer"):
        assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


@posix_only
def test_a_timer_that_was_already_running_goes_on() -> None:
    rang: list[int] = []
    old = signal.signal(signal.SIGALRM, lambda *_: rang.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        sandbox.run(plain_loop, 0.1)
        assert not rang
        time.sleep(0.5)
        assert rang == [1]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)


@posix_only
def test_a_tracer_such_as_a_debuggers_is_put_back() -> None:
    def tracer(*_: object) -> None:
        return None

    before = sys.gettrace()
    sys.settrace(tracer)
    try:
        sandbox.run(plain_loop, 0.05)
        assert sys.gettrace() is tracer
    finally:
        sys.settrace(before)


def test_global_draws_are_repeatable_inside_and_untouched_outside() -> None:
    def draw() -> tuple[float, float]:
        return float(np.random.random()), random.random()  # noqa: NPY002

    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    expected = draw()
    np.random.seed(5)  # noqa: NPY002
    random.seed(5)
    first = sandbox.run(draw, 1.0).value
    second = sandbox.run(draw, 1.0).value
    assert first == second
    assert draw() == expected


def test_warnings_and_float_errors_of_an_answer_do_not_leak() -> None:
    def noisy() -> None:
        np.seterr(all="raise")
        warnings.warn("loud", stacklevel=1)

    before = np.geterr()
    sandbox.run(noisy, 1.0)
    assert np.geterr() == before


def test_an_error_is_described_by_type_message_and_the_students_line(
    tmp_path: object,
) -> None:
    import linecache

    source = "def f(x):\n    y = x - x\n    return 1 / y\n"
    name = "/tmp/ipykernel_1/123.py"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    space: dict[str, Callable[[int], float]] = {}
    exec(compile(source, name, "exec"), space)
    outcome = sandbox.run(lambda: space["f"](2), 1.0)
    assert outcome.error is not None
    assert sandbox.describe_error(outcome.error) == (
        "It stopped with ZeroDivisionError: division by zero, at line 3 of its cell "
        "(`return 1 / y`)."
    )


def test_an_error_whose_text_cannot_be_had_is_still_described() -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert sandbox.describe_error(Odd()) == "It stopped with Odd."
    assert len(sandbox.describe_error(ValueError("x" * 10_000))) < 300
