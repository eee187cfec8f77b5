"""The stopwatch: an invented clock shows what it counts, what it throws away and when it stops."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.measure.timing import (
    MOST_ROUNDS,
    Case,
    Deadline,
    WallClock,
    fault_words,
    time_cases,
)


class World:
    """A host whose time passes only when a case runs."""

    def __init__(self) -> None:
        self.time_s = 0.0
        self.log: list[tuple[str, int]] = []

    def now(self) -> float:
        return self.time_s

    def seconds(self, work: Callable[[], object]) -> float:
        begin = self.time_s
        work()
        return self.time_s - begin

    def case(
        self, name: str, seconds: float | Callable[[int], float], flops: int = 1, units: int = 1,
        fault: Exception | None = None,
    ) -> Case:  # fmt: skip
        def call(i: int) -> None:
            if fault is not None:
                raise fault
            self.log.append((name, i))
            self.time_s += seconds(i) if callable(seconds) else seconds

        return Case("matmul", name, {"size": flops}, 0, flops, call, units)


def test_a_constant_kernel_is_timed_exactly() -> None:
    world = World()
    points, left = time_cases([world.case("a", 0.004)], world, Deadline(100, world.now))
    assert not left
    point = points[0]
    assert point.median_s == pytest.approx(0.004)
    assert point.p25_s == pytest.approx(point.p75_s)
    assert (point.calls, point.repeats) == (1, MOST_ROUNDS)


def test_a_short_kernel_is_repeated_inside_a_sample() -> None:
    """One microsecond is below what a clock tells; a thousand of them in a row is not."""
    world = World()
    points, _ = time_cases([world.case("a", 1e-6)], world, Deadline(100, world.now))
    assert points[0].calls in (1000, 1001)
    assert points[0].median_s == pytest.approx(1e-6)


def test_time_is_for_one_unit() -> None:
    world = World()
    points, _ = time_cases([world.case("a", 0.01, units=10)], world, Deadline(100, world.now))
    assert points[0].median_s == pytest.approx(0.001)


def test_every_call_takes_the_next_buffers() -> None:
    """A kernel that met its operands again at once would be timed out of the cache."""
    world = World()
    time_cases([world.case("a", 4e-4)], world, Deadline(100, world.now))
    assert [i for _, i in world.log] == list(range(len(world.log)))


def test_the_first_call_is_thrown_away() -> None:
    """A library sets itself up in its first call; that is nobody's time."""
    world = World()
    slow_start = world.case("a", lambda i: 5.0 if i == 0 else 0.01)
    points, _ = time_cases([slow_start], world, Deadline(100, world.now))
    assert points[0].p75_s == pytest.approx(0.01)


def test_sizes_take_turns() -> None:
    """A second of disturbance must fall on all sizes of a curve, not on one of them."""
    world = World()
    time_cases([world.case("a", 0.01), world.case("b", 0.01)], world, Deadline(100, world.now))
    after_warming = [name for name, _ in world.log[4:]]
    assert after_warming[:6] == ["a", "b", "a", "b", "a", "b"]


def test_what_would_not_fit_is_left_out_and_said() -> None:
    world = World()
    cases = [world.case("small", 0.1, flops=10), world.case("large", 100.0, flops=10_000)]
    points, left = time_cases(cases, world, Deadline(10, world.now))
    assert [p.precision for p in points] == ["small"]
    assert "large" in left[0].what
    assert "would take about 1e+02 s" in left[0].reason
    assert world.time_s <= 10


@given(
    st.lists(st.tuples(st.floats(1e-6, 5), st.integers(1, 10**6)), min_size=1, max_size=6),
    st.floats(0.01, 20),
)
def test_a_deadline_is_passed_by_two_calls_at_most(
    sizes: list[tuple[float, int]], budget_s: float
) -> None:
    """A budget that a run may overdraw without bound would hold up a whole class."""
    world = World()
    cases = [world.case(str(i), s, flops=f) for i, (s, f) in enumerate(sizes)]
    points, left = time_cases(cases, world, Deadline(budget_s, world.now))
    # warming a case needs two calls of a length that nobody knows before
    assert world.time_s <= budget_s + 2 * max(s for s, _ in sizes) + 1e-9
    assert len(points) + len(left) == len(cases)


def test_no_time_at_all_leaves_everything_out() -> None:
    world = World()
    points, left = time_cases([world.case("a", 0.1)], world, Deadline(0, world.now))
    assert not points
    assert not world.log
    assert "budget" in left[0].reason


def test_few_rounds_are_better_than_none() -> None:
    world = World()
    points, left = time_cases([world.case("a", 1.0)], world, Deadline(4.5, world.now))
    assert not left
    assert 1 <= points[0].repeats <= 3


@pytest.mark.parametrize(
    "fault",
    [
        RuntimeError("CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has …"),
        MemoryError(),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried …"),
    ],
)
def test_one_that_breaks_does_not_take_the_others_along(fault: Exception) -> None:
    world = World()
    cases = [world.case("a", 0.01), world.case("b", 0.01, fault=fault), world.case("c", 0.01)]
    points, left = time_cases(cases, world, Deadline(10, world.now))
    assert [p.precision for p in points] == ["a", "c"]
    assert left[0].reason.startswith("out of memory")


def test_one_that_breaks_later_keeps_its_samples() -> None:
    world = World()

    def breaks(i: int) -> float:
        if i > 6:
            raise RuntimeError("a fault of the hardware")
        return 0.01

    points, left = time_cases([world.case("a", breaks)], world, Deadline(10, world.now))
    assert not left
    assert points[0].repeats == 5


def test_an_interruption_passes_through() -> None:
    world = World()

    def stop(i: int) -> float:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        time_cases([world.case("a", stop)], world, Deadline(10, world.now))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("CUDA error: no kernel image is available for execution on the device", "no kernels for"),
        ("The NVIDIA driver on your system is too old (found version 11040)", "driver is too old"),
        ("\"addmm_impl_cpu_\" not implemented for 'Half'", "cannot do it on this device"),
        ("something else\nsecond line", "RuntimeError: something else"),
        ("", "RuntimeError"),
    ],
)
def test_torchs_own_words_become_clear_ones(text: str, words: str) -> None:
    assert words in fault_words(RuntimeError(text))
    assert "\n" not in fault_words(RuntimeError(text))


def test_the_hosts_clock_counts_the_work() -> None:
    import time

    assert WallClock().seconds(lambda: time.sleep(0.02)) >= 0.02


def test_a_share_of_a_deadline_is_nearer() -> None:
    world = World()
    whole = Deadline(10, world.now)
    assert whole.share(0.25).left_s() == pytest.approx(2.5)
    world.time_s = 20
    assert whole.left_s() == -10
    assert whole.share(0.5).left_s() == 0
