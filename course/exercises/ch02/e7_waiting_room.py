"""Exercise 2.7, A waiting room of the right size: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import value_exercise
from course.exercises.ch02.shared import SIMULATED
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import Figures, Whole, plain
from course.serving import queueing

_ARRIVALS_PER_S = 19.0


_SERVED_PER_S = 20.0


_TARGET_S = 1.0


_BEST_CAPACITY = 14


_REFUSED_TOLERANCE = 0.75  # percentage points


def _busy_hours(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Two busy hours of the same service that nobody has seen before."""
    return [{"seed": int(seed)} for seed in rng.integers(2**31, size=2)]


def _p99_and_refused(capacity: Any, case: Any) -> tuple[float, float]:
    """P99 (s) of the requests served, and the per cent refused, in one simulated stretch."""
    if capacity < 1:
        raise Unacceptable(f"{capacity} places leave none for the request in service: at least 1.")
    rng = np.random.default_rng(case["seed"])
    gaps_s = rng.exponential(1 / _ARRIVALS_PER_S, size=3 * SIMULATED)
    service_s = rng.exponential(1 / _SERVED_PER_S, size=3 * SIMULATED)
    run = queueing.simulate_bounded_queue(gaps_s, service_s, capacity=min(int(capacity), 10**6))
    stays_s = (run.waits_s + service_s)[run.accepted]
    return float(np.percentile(stays_s, 99)), 100 * run.reject_share


def _accept_capacity(seen: Any, best: Any, case: Any) -> str | None:
    p99_s, refused = seen
    if p99_s > _TARGET_S:
        return (
            f"P99 of the requests served is {plain(p99_s, 3)} s, over the target of "
            f"{plain(_TARGET_S)} s: the queue is too long."
        )
    if refused > best[1] + _REFUSED_TOLERANCE:
        return (
            f"P99 is {plain(p99_s, 3)} s and inside the target, but {plain(refused, 3)} % "
            "are refused: a longer queue would keep the target too and lose fewer."
        )
    return None


EXERCISE = value_exercise(
    "2.7",
    title="A waiting room of the right size",
    question=(
        "In the busy hour 19 requests/s come to a replica that can finish 20/s (Poisson "
        "arrivals, exponential service). The promise is a P99 of at most 1 s for requests "
        "that are served. At 95 % load an endless queue breaks it, so you bound the queue: "
        "who finds it full is refused at once and goes elsewhere. How many places (the one in "
        "service included) keep the promise and refuse as few as possible? Your number is run "
        "on two busy hours that you have not seen; it may refuse up to 0.75 percentage points "
        "more than the best number does. `queueing.mm1k` and "
        "`queueing.simulate_bounded_queue` are there to try things on."
    ),
    kind="configure",
    minutes=8,
    difficulty=3,
    reference=_BEST_CAPACITY,
    value=Whole("places", noun="a whole number of places, at least 1"),
    comment="a whole number of places",
    cases=_busy_hours,
    observe=_p99_and_refused,
    result=Figures(
        ("P99", "refused"),
        ("s", "%"),
        noun="P99 within 1 s and as few refused as possible",
        within="P99 at most 1 s; 0.75 percentage points of refusals",
    ),
    accept=_accept_capacity,
    describe=lambda case: "19 requests/s for a replica of 20/s, in a simulated busy hour",
    wrong=(
        Wrong(
            "mean-for-tail",
            20,
            "20 places at 20/s: the last one in waits 1 s *on average*. A P99 needs room for "
            "the slow ones, so the queue must be shorter than target times rate.",
            also=lambda places: 18 <= places <= 24,
        ),
        Wrong(
            "long-queue-loses-nobody",
            1000,
            "A long queue refuses nobody and breaks the promise to many: at 95 % load P99 is "
            "over 4 s. A refusal at once is better than an answer too late.",
            also=lambda places: places >= 40,
        ),
        Wrong(
            "no-queue-at-all",
            1,
            "With hardly a place to wait the served are fast, and a large share is refused "
            "while the server idles between arrivals. A short queue bridges those gaps.",
            also=lambda places: 1 <= places <= 4,
        ),
    ),
    hints=(
        "Try a few numbers: more places lower the refusals and raise P99. Which limit binds?",
        "queueing.mm1k(19, 20, places) has reject_probability and sojourn_quantile_s(0.99).",
        "Take the largest number whose P99 is still below 1 s; it lies between 10 and 20.",
    ),
    explanation=(
        "The P99 of the served grows by about a service time a place; the refusals fall "
        "slower and slower. The promise binds first."
    ),
)
