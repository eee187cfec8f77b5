"""Times prepared cases in rounds, within a deadline; what a case computes is not known here.

The sizes of one curve are timed in turn, one sample each, round after round: whatever disturbs the
machine for a second then disturbs all of them a little and not one of them a lot.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from course.measure.record import LeftOut, Point

TARGET_SAMPLE_S = 1e-3
"""A sample repeats its unit until it lasts about so long, far above a clock's grain."""

NO_TIME = "the time budget was spent before it"
"""Why something was left out that nothing is wrong with."""

MOST_CALLS = 2000
MOST_ROUNDS = 40


@dataclass(frozen=True)
class Case:
    """One size of one bench, ready to run.

    `call(i)` runs it once, on the i-th of its sets of buffers, counted round and round; a call does
    `units` units (kernels of a chain, steps of a loop), each of `bytes` and `flops`.
    """

    bench: str
    precision: str
    shape: Mapping[str, int]
    bytes: int
    flops: int
    call: Callable[[int], object]
    units: int = 1

    @property
    def words(self) -> str:
        """The case in a line, for messages."""
        sizes = ", ".join(f"{name} {size}" for name, size in self.shape.items())
        return f"{self.bench} {self.precision}, {sizes}"


class Clock(Protocol):
    """Anything that says how long some work took on the device, all of it finished."""

    def seconds(self, work: Callable[[], object]) -> float:
        """Do the work and return its seconds."""
        ...


class WallClock:
    """The host's clock, for work that is done when its call returns (a CPU)."""

    def seconds(self, work: Callable[[], object]) -> float:
        """Do the work and return its seconds."""
        start = time.perf_counter()
        work()
        return time.perf_counter() - start


class CudaClock:
    """Two events on the card's current stream, so that the time is the card's own."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def seconds(self, work: Callable[[], object]) -> float:
        """Do the work and return the seconds between the events before and after it."""
        cuda = self._torch.cuda
        start, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        cuda.synchronize()
        start.record()
        work()
        end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3


class Deadline:
    """A point in time; `now` can be another clock than the host's, for tests."""

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self._end = now() + seconds

    def left_s(self) -> float:
        """Seconds until the deadline; below 0 after it."""
        return self._end - self.now()

    def share(self, share: float) -> Deadline:
        """Return a nearer deadline that leaves `share` of what is left."""
        return Deadline(max(0.0, self.left_s()) * share, self.now)


@dataclass
class _Running:
    """A case while it is timed: how long a call took so far, and the samples."""

    case: Case
    wall_s: float = math.inf
    calls: int = 1
    done: int = 0
    samples_s: list[float] = field(default_factory=list)
    fault: str = ""

    def sample(self, clock: Clock, now: Callable[[], float], calls: int) -> float:
        """Run `calls` calls in a row; return the device's seconds for one unit."""
        first, begin = self.done, now()

        def work() -> None:
            for i in range(calls):
                self.case.call(first + i)

        seconds = clock.seconds(work)
        self.done += calls
        # one call as the host waits for it: what a deadline has to reckon with
        self.wall_s = (now() - begin) / calls
        return seconds / (calls * self.case.units)


def time_cases(
    cases: Sequence[Case], clock: Clock, deadline: Deadline, rounds: int = MOST_ROUNDS
) -> tuple[list[Point], list[LeftOut]]:
    """Time the cases, smallest first, for so many rounds or until the deadline.

    A first call of each is thrown away, a second one says how many calls make a sample. A case that
    would not fit the deadline, judged by its smaller neighbour, or that breaks, is left out with
    its reason; the others go on. KeyboardInterrupt passes through.
    """
    running = [_Running(case) for case in cases]
    _warm(running, clock, deadline)
    for _ in range(rounds):
        begin = deadline.now()
        for one in running:
            _one_sample(one, clock, deadline)
        took = deadline.now() - begin
        if deadline.left_s() < took:
            break
    points = [_point(one) for one in running if one.samples_s]
    left = [LeftOut(one.case.words, one.fault) for one in running if not one.samples_s]
    return points, left


def _warm(running: Sequence[_Running], clock: Clock, deadline: Deadline) -> None:
    """Call each case twice, if it is likely to fit; set how many calls a sample makes."""
    last: _Running | None = None
    for one in running:
        guess_s = 0.0
        if last is not None:
            guess_s = last.wall_s * _growth(last.case, one.case)
        if deadline.left_s() < 3 * guess_s or deadline.left_s() <= 0:
            one.fault = (
                f"would take about {guess_s:.2g} s a call, more than the time budget leaves"
                if guess_s
                else NO_TIME
            )
            continue
        try:
            one.sample(clock, deadline.now, 1)
            unit_s = one.sample(clock, deadline.now, 1) * one.case.units
        except (RuntimeError, MemoryError) as error:
            one.fault = fault_words(error)
            continue
        one.calls = max(1, min(MOST_CALLS, math.ceil(TARGET_SAMPLE_S / max(unit_s, 1e-9))))
        last = one


def _growth(small: Case, large: Case) -> float:
    """Return how many times longer `large` may take than its neighbour: by work, at least 1."""
    ratios = [1.0]
    if small.bytes:
        ratios.append(large.bytes / small.bytes)
    if small.flops:
        ratios.append(large.flops * large.units / (small.flops * small.units))
    return max(ratios)


def _one_sample(one: _Running, clock: Clock, deadline: Deadline) -> None:
    """Take a sample unless it would pass the deadline; a first one may be of a single call."""
    if one.fault:
        return
    calls = one.calls
    if deadline.left_s() < calls * one.wall_s:
        if one.samples_s:
            return
        calls = 1
        if deadline.left_s() < one.wall_s:
            one.fault = NO_TIME
            return
    try:
        seconds = one.sample(clock, deadline.now, calls)
    except (RuntimeError, MemoryError) as error:
        one.fault = fault_words(error)
        return
    one.samples_s.append(seconds)


def _point(one: _Running) -> Point:
    import numpy as np

    case = one.case
    quartiles = np.percentile(one.samples_s, [25, 50, 75])
    # five digits are more than any clock here is worth; rounding keeps the order of the four
    fastest, p25, median, p75 = (
        float(f"{value:.5g}") for value in (min(one.samples_s), *quartiles)
    )
    return Point(
        bench=case.bench, precision=case.precision, shape=dict(case.shape),
        bytes=case.bytes, flops=case.flops, median_s=median, p25_s=p25, p75_s=p75,
        fastest_s=fastest, repeats=len(one.samples_s), calls=one.calls,
    )  # fmt: skip


def fault_words(error: BaseException) -> str:
    """Return what went wrong in words for somebody who has not seen torch's own.

    >>> fault_words(RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has …"))
    'out of memory: Tried to allocate 20.00 GiB; close other programs on this device, or leave it'
    """
    text = str(error).strip() or type(error).__name__
    lower = text.lower()
    if isinstance(error, MemoryError) or "out of memory" in lower or "allocate memory" in lower:
        tried = [part for part in text.split(". ") if part.startswith("Tried")]
        what = f": {tried[0]}" if tried else ""
        return f"out of memory{what}; close other programs on this device, or leave it"
    if "no kernel image" in lower:
        return (
            "this torch has no kernels for this card; install a torch built for its "
            f"compute capability ({text.splitlines()[0]})"
        )
    if "driver" in lower and ("too old" in lower or "insufficient" in lower):
        return f"the NVIDIA driver is too old for this torch; renew one of them ({text[:120]})"
    if "not implemented" in lower or isinstance(error, NotImplementedError):
        return f"this torch cannot do it on this device ({text.splitlines()[0][:120]})"
    return f"{type(error).__name__}: {text.splitlines()[0][:200]}"
