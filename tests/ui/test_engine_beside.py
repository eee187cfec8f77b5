"""The engine beside M/M/1: with one seat it must be the M/G/1 queue of section 3."""

from __future__ import annotations

import numpy as np
import pytest

from course import explore
from course.explore.ch02 import engine_beside as module
from course.explore.ch02.engine_beside import engine_beside_mm1
from course.serving import queueing
from course.serving.engine import simulate
from course.serving.workload import Workload


def service_times_s(seed: int = 1) -> np.ndarray:
    """Each request's time when it finds the server empty."""
    work = module.requests_of(seed)
    apart = Workload(1e4 * np.arange(len(work)), work.prompt_tokens, work.output_tokens)
    return np.asarray(simulate(apart, module.cost(), module.config(1)).e2e_s)


def test_one_seat_is_lindley_s_queue() -> None:
    """The engine and section 1's recursion on the same arrivals and the same service times."""
    services = service_times_s()
    capacity = module.capacity_per_s(1, 1)
    assert capacity == pytest.approx(1 / services.mean(), rel=0.02)
    work = module.requests_of(1).scaled(0.5 * capacity)
    gaps = np.diff(work.arrival_s, prepend=0.0)
    waits = queueing.simulate_queue(gaps, services)
    run = simulate(work, module.cost(), module.config(1))
    assert np.allclose(run.scheduled_s - run.arrival_s, waits, atol=1e-6)


def test_a_lone_request_is_the_floor_of_every_load() -> None:
    r = engine_beside_mm1.result(engine_beside_mm1.state("A chat server"))
    assert r.floor_s == pytest.approx(service_times_s().mean(), rel=1e-9)
    assert np.all(r.engine_e2e_s >= r.floor_s)
    assert r.engine_e2e_s[0] == pytest.approx(r.floor_s, rel=0.05)


@pytest.mark.parametrize("preset", [p.name for p in engine_beside_mm1.presets])
def test_mm1_beside_it_has_the_same_capacity(preset: str) -> None:
    r = engine_beside_mm1.result(engine_beside_mm1.state(preset))
    if r.stable:
        spare = r.capacity_per_s * (1 - r.here_load)
        assert r.here_mm1_sojourn_s == pytest.approx(1 / spare, rel=1e-9)
    shell = explore.engine_beside_mm1(preset, predict=False)
    assert shell.drawing.engine[0].get_ydata() == pytest.approx(r.engine_e2e_s)
    shell.close()


def test_prose_of_section_6_is_what_the_picture_shows() -> None:
    chat = engine_beside_mm1.result(engine_beside_mm1.state("A chat server"))
    assert chat.capacity_per_s == pytest.approx(35, abs=0.5)
    assert chat.floor_s == pytest.approx(1.1, abs=0.05)
    assert 1 / chat.capacity_per_s == pytest.approx(0.029, abs=0.0005)
    at60 = engine_beside_mm1.result(engine_beside_mm1.state("A chat server", load=0.6))
    assert 6 < at60.here_mm1_wait_s / at60.here_wait_s < 8, "a seventh"
    alone = engine_beside_mm1.result(engine_beside_mm1.state("One at a time"))
    assert chat.capacity_per_s / alone.capacity_per_s == pytest.approx(38, abs=1)
    assert alone.here_e2e_s == pytest.approx(alone.here_mm1_sojourn_s, rel=0.25)
