"""A lesson of an hour is a thousand moves: none may leave anything behind in the kernel."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import gc
import sys
from typing import Any

import psutil
import pytest

from course.ui.shell import show
from tests.lanes import by_lane
from tests.ui.explorers import every_explorer, jumps

pytestmark = pytest.mark.slow

EXPLORERS = every_explorer()
# All share one shell: the first is moved a thousand times; the others' pictures a tenth of that.
MOVES = {name: 1000 if i == 0 else 100 for i, name in enumerate(EXPLORERS)}
# Every sixth stands for its kind; that no picture piles up artists is seen for each, beside.
TRIED = list(EXPLORERS)[:: by_lane(quick=29, whole=6, deep=1)]
MOST_GROWN_BYTES = {1000: 20 * 2**20, 100: 4 * 2**20}
MOST_LEFT_BEHIND_BYTES = 4 * 2**20
"""Of what is not kept on purpose; malloc itself scatters by a megabyte or two."""

CACHE = type(functools.lru_cache(lambda: None))


def held_bytes() -> int:
    """What this process holds, without freed memory that the C library keeps for later."""
    gc.collect()
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # another C library
            ctypes.CDLL("libc.so.6").malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def artists(shell: Any) -> int:
    """How many artists lie on the picture and in its data layer; ticks come and go with limits."""
    figure = shell.drawing.figure
    laid = [len(place.get_children()) for place in (figure, *figure.axes)]
    return sum(laid) + len(list(shell.drawing.data()))


def forget_results() -> None:
    """Empty every cache of the course: each has its bound, and is no leak."""
    for found in gc.get_objects():
        # The type itself: `isinstance` asks the object, and other libraries' objects may warn then.
        if type(found) is CACHE and found.__module__.startswith("course."):
            found.cache_clear()


@pytest.mark.parametrize("name", TRIED)
def test_a_thousand_moves_leave_nothing_behind(name: str) -> None:
    shell = show(EXPLORERS[name], predict=False)
    for move in jumps(shell, 60, seed=2):
        shell.set_state(**move)
    forget_results()
    before = held_bytes()
    # what is kept on purpose reaches its bound here, so that only what grows on and on is seen
    for move in jumps(shell, 100, seed=4):
        shell.set_state(**move)
    with_results = held_bytes()
    for move in jumps(shell, MOVES[name], seed=3):
        shell.set_state(**move)
    grown = held_bytes() - with_results
    forget_results()
    left_behind = held_bytes() - before
    shell.close()
    assert grown < MOST_GROWN_BYTES[MOVES[name]]
    assert left_behind < MOST_LEFT_BEHIND_BYTES


@pytest.mark.parametrize("name", EXPLORERS)
def test_no_move_leaves_an_artist_behind(name: str) -> None:
    """A picture that adds artists instead of moving them grows slower with every move."""
    shell = show(EXPLORERS[name], predict=False)
    shell.set_state(**next(iter(jumps(shell, 1, seed=5))))
    before = artists(shell)
    shell.reset()
    for move in jumps(shell, 6, seed=6):
        shell.set_state(**move)
    shell.set_state(**next(iter(jumps(shell, 1, seed=5))))
    after = artists(shell)
    shell.close()
    assert after == before
