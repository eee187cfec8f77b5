"""Sentences of notebook 02 that carry a number, against the formulas and a queue of one's own."""

from __future__ import annotations

import numpy as np
import pytest

from course import explore
from course.serving.queueing import mm1, mmc
from tests.notebooks.claims import prose_of

PROSE = prose_of(2)


def sojourn_s(arrival_s: np.ndarray, service_s: np.ndarray) -> float:
    """The mean time in one queue, by Lindley's recursion."""
    free, total = 0.0, 0.0
    for at, service in zip(arrival_s.tolist(), service_s.tolist(), strict=True):
        free = max(free, at) + service
        total += free - at
    return total / len(arrival_s)


def test_erlang_c_at_two_loads() -> None:
    assert "0.41 at a load of 0.8, 0.83 at 0.95" in PROSE
    waits = [mmc(10 * load, 1.0, 10).wait_probability for load in (0.8, 0.95)]
    assert waits == pytest.approx([0.41, 0.83], abs=0.005)


def test_round_robin_lies_between_chance_and_one_queue() -> None:
    assert "people spend 2.9 s there, 5 s where chance deals them out, 1.2 s with one" in PROSE
    assert mm1(0.8, 1.0).mean_sojourn_s == pytest.approx(5.0)
    assert mmc(8.0, 1.0, 10).mean_sojourn_s == pytest.approx(1.2, abs=0.01)
    generator = np.random.default_rng(0)
    arrival_s = np.cumsum(generator.exponential(1 / 8, 300_000))
    service_s = generator.exponential(1.0, 300_000)
    turns = [sojourn_s(arrival_s[k::10], service_s[k::10]) for k in range(10)]
    assert np.mean(turns) == pytest.approx(2.9, abs=0.1)


def test_one_seat_beside_mm1() -> None:
    assert "at half load a wait of 0.78 s against 1.09 s" in PROSE
    said = explore.engine_beside_mm1("One at a time", predict=False).sentence
    assert "(50\u00a0%)" in said
    assert "779 ms of that waiting" in said
    assert "M/M/1 of the same capacity says 2.17 s and 1.09 s" in said
