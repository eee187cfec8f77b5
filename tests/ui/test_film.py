"""The film against the two slow engines, written apart from it: at every step, who sits where, with
how many tokens and blocks, who waits, who is outside. If it failed, the animation would show a
server that did something else than the run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from course import EngineConfig, LinearStepCost, Workload, simulate, simulate_service
from course.serving.engine import Speculation
from course.serving.requests import Status
from course.ui.film import Event, Film, Place, film_of
from tests import reference_engine, reference_service
from tests.engine_strategies import engine_cases
from tests.lanes import examples
from tests.service_strategies import service_cases
from tests.serving.engine_cases import run_of
from tests.serving.service_cases import service_run_of

EASY = settings(deadline=None, suppress_health_check=list(HealthCheck))

Scene = dict[int, tuple[str, int, int, int]]
"""By sending: where it is, and its computed tokens, emitted tokens and blocks if it has a seat."""


@contextmanager
def scenes_of(
    reference: Any, scene: Callable[[Any, Any], Scene], *names: str
) -> Iterator[list[Scene]]:
    """Collect where everybody is as each step begins: whenever one of these has put it together."""
    scenes: list[Scene] = []
    kept = {name: getattr(reference, name) for name in names}

    def watched(schedule: Any) -> Any:
        def scheduled(server: Any) -> Any:
            found = schedule(server)
            scenes.append(scene(server, found))
            return found

        return scheduled

    for name, schedule in kept.items():
        setattr(reference, name, watched(schedule))
    try:
        yield scenes
    finally:
        for name, schedule in kept.items():
            setattr(reference, name, schedule)


def _scene_of_the_engine(engine: Any, found: Any) -> Scene:
    begun = [piece.job for piece in found[0]] if engine.batch else []
    seated = engine.running + [r for r in engine.batch if r in begun or r.computed > 0]
    scene = {r.row: ("SEAT", r.computed, r.emitted, len(r.blocks)) for r in seated}
    for r in engine.waiting:
        scene[r.row] = ("PREEMPTED" if r.preempted else "QUEUE", 0, r.emitted, 0)
    return {r.row: ("QUEUE", 0, 0, 0) for r in engine.batch if r.row not in scene} | scene


def _scene_of_the_service(s: Any, _: Any) -> Scene:
    number = {id(a): index for index, a in enumerate(s.record.attempts)}
    scene = {number[id(a)]: ("SEAT", a.computed, a.emitted, len(a.blocks)) for a in s.running}
    for a in s.gate:
        scene[number[id(a)]] = ("OUTSIDE", 0, 0, 0)
    for a in s.waiting + s.long_waiting:
        place = "PREEMPTED" if a.preemptions else "QUEUE"
        scene[number[id(a)]] = (place, 0, a.emitted, 0)
    return scene


def shown(film: Film, moment_s: float) -> Scene:
    """What the film shows at a moment, in the words of the slow engines."""
    scene = {}
    for seen in film.at(moment_s):
        if seen.place != Place.AWAY:
            blocks = seen.kv_blocks if seen.place == Place.SEAT and film.block_limit else 0
            scene[seen.body] = (seen.place.name, seen.computed_tokens, seen.emitted_tokens, blocks)
    return scene


def held_blocks(film: Film, scenes: list[Scene]) -> list[Scene]:
    """The scenes, without the blocks where they are not limited."""
    if film.block_limit:
        return scenes
    return [{who: (*facts[:3], 0) for who, facts in scene.items()} for scene in scenes]


def assert_same(film: Film, scenes: list[Scene]) -> None:
    starts_s = film.steps.start_s
    assert len(starts_s) == len(scenes)
    expected = held_blocks(film, scenes)
    for step, start_s in enumerate(starts_s.tolist()):
        assert shown(film, start_s) == expected[step], f"step {step} at {start_s} s"


@settings(EASY, max_examples=examples(300))
@given(engine_cases())
def test_a_run_is_filmed_as_it_was(case: dict[str, Any]) -> None:
    """If it failed, somebody would be drawn in a seat, or with tokens, that it did not have."""
    names = ("step_of_work", "schedule_static")
    with scenes_of(reference_engine, _scene_of_the_engine, *names) as scenes:
        reference_engine.run_case(case)
    assert_same(film_of(run_of(case)), scenes)


@settings(EASY, max_examples=examples(400))
@given(service_cases())
def test_a_service_is_filmed_as_it_was(case: dict[str, Any]) -> None:
    """If it failed, clients, door, ghosts or second sendings would be drawn where they were not."""
    with scenes_of(reference_service, _scene_of_the_service, "step_of_work") as scenes:
        reference_service.reference_service(case)
    assert_same(film_of(service_run_of(case)), scenes)


def pressed() -> tuple[Workload, LinearStepCost, EngineConfig]:
    """A server whose memory is too small: more seats are taken than there are requests."""
    rng = np.random.default_rng(5)
    work = Workload(
        np.sort(rng.uniform(0.0, 20.0, 400)), rng.integers(20, 200, 400), rng.integers(20, 150, 400)
    )
    return work, LinearStepCost(0.01, 2e-5, 0.0, 1e-4), EngineConfig(64, num_kv_blocks=120)


def test_stays_outgrow_their_first_memory() -> None:
    """If it failed, a run with many preemptions would lose track of who sat where."""
    work, cost, config = pressed()
    bare, served = simulate(work, cost, config), simulate_service(work, cost, config)
    assert len(bare.stays) > 400 + 64
    for name in ("from_step", "to_step", "ready_step", "emitted_tokens"):
        ours, theirs = (
            sorted(zip(run.stays.owner.tolist(), getattr(run.stays, name).tolist(), strict=True))
            for run in (bare, served)
        )
        assert ours == theirs, name


@settings(EASY, max_examples=examples(60))
@given(service_cases())
def test_events_are_the_runs_own(case: dict[str, Any]) -> None:
    """If it failed, the sentence would tell of time-outs or preemptions that were none."""
    run = service_run_of(case)
    kinds = film_of(run).events.kind
    table = run.attempts

    def told(kind: Event) -> int:
        return int((kinds == kind).sum())

    assert told(Event.ARRIVED) == len(run)
    assert told(Event.SENT_AGAIN) == len(table) - len(run)
    assert told(Event.REFUSED) == int((table.status == Status.REJECTED).sum())
    assert told(Event.TIMED_OUT) == int((table.status == Status.TIMED_OUT).sum())
    assert told(Event.FINISHED) == int(table.finished.sum())
    assert told(Event.PREEMPTED) == int(table.preemptions.sum())
    assert told(Event.SEATED) == int(np.isfinite(table.scheduled_s).sum())


def test_a_film_is_refused_for_what_is_no_run() -> None:
    """If it failed, a wrong argument would end in a stack of the inside."""
    with pytest.raises(ValueError, match="is no run of one server; give what simulate"):
        film_of([1, 2, 3])  # type: ignore[arg-type]


def test_several_tokens_a_step_are_filmed_as_they_came() -> None:
    """If it failed, verified guesses would be drawn as one token, or at another step."""
    work, cost, config = pressed()
    run = simulate(work, cost, replace(config, speculation=Speculation(3, 0.7)))
    film = film_of(run)
    for request in range(0, 400, 40):
        came = run.token_steps(request)
        assert came.size > np.unique(came).size
        sittings = np.flatnonzero(film.sittings.body == request)
        for step in range(int(came[0]), int(came[-1])):
            here = [s for s in sittings if film.sittings.from_step[s] <= step]
            assert film.tokens_after(int(here[-1]), step)[1] == (came <= step).sum()
