"""Exercise 3.6, The longest window for the price: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, modes, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, Poisson, draw


def longest_window_s(arrival_rate_per_s: float, allowed_s: float) -> float:
    """Longest wait window, in seconds, that holds a request back by allowed_s on average.

    The engine is idle whenever a request comes that finds no window open; that request opens one,
    and whoever comes while it is open joins it; then all start at once. Arrivals are Poisson, of
    arrival_rate_per_s; work takes next to no time, and there are seats for all.
    """
    # (w + λw · w/2) / (1 + λw) = m  →  λ/2 · w² + (1 − λm) · w − m = 0
    expected = arrival_rate_per_s * allowed_s
    return (expected - 1 + math.sqrt(1 + expected**2)) / arrival_rate_per_s


def everyone_the_whole_window(arrival_rate_per_s, allowed_s):
    """A window as long as the mean wait."""
    return allowed_s


def everyone_half_the_window(arrival_rate_per_s, allowed_s):
    """Everybody waits half of it, and nobody opened it."""
    return 2 * allowed_s


def joiners_wait_nothing(arrival_rate_per_s, allowed_s):
    """Only the one who opens it waits: w / (1 + λw) is allowed."""
    return allowed_s / (1 - arrival_rate_per_s * allowed_s)


def opener_not_counted(arrival_rate_per_s, allowed_s):
    """A window's waits over those who join it: 1/λ + w/2 is allowed."""
    return 2 * (allowed_s - 1 / arrival_rate_per_s)


def the_other_root(arrival_rate_per_s, allowed_s):
    """The quadratic equation's root on the wrong side of zero."""
    expected = arrival_rate_per_s * allowed_s
    return (expected - 1 - math.sqrt(1 + expected**2)) / arrival_rate_per_s


def _rates_and_waits(rng: np.random.Generator) -> list[dict[str, float]]:
    """10 ms at a quiet rate first; then from windows that hardly anybody joins to a dense one."""
    quiet_per_s = round(float(rng.uniform(4.0, 9.0)), 2)
    cases = [{"arrival_rate_per_s": quiet_per_s, "allowed_s": 0.01}]
    for expected in (0.4, 1.5, 5.0, 30.0):
        allowed_s = round(float(rng.uniform(0.01, 0.2)), 3)
        rate_per_s = round(expected * float(rng.uniform(0.9, 1.1)) / allowed_s, 2)
        cases.append({"arrival_rate_per_s": rate_per_s, "allowed_s": allowed_s})
    return cases


def _held_in_engine(window_s: Any, case: Any) -> str | None:
    """What the student's own window costs in the engine, on steps of a microsecond."""
    rate_per_s, wait_s = case["arrival_rate_per_s"], float(window_s)
    if not 0 <= wait_s <= 60:
        return None
    work = draw(20_000, Poisson(rate_per_s), Fixed(1), Fixed(1), seed=36)
    config = EngineConfig(
        max_num_seqs=4096, max_num_batched_tokens=4096, batching=modes.windowed(wait_s)
    )
    run = simulate(work, LinearStepCost(fixed_s=1e-6), config, progress=False)
    held_s = float(np.mean(run.scheduled_s - run.arrival_s))
    together = len(run) / run.step_end_s.size
    return (
        f"mean wait {plain(1e3 * held_s, 3)} ms, where {plain(1e3 * case['allowed_s'], 3)} ms are "
        f"allowed, and {plain(together, 3)} requests start together on average, for a window of "
        f"{plain(1e3 * wait_s, 3)} ms"
    )


EXERCISE = function_exercise(
    "3.6",
    title="The longest window for the price",
    question=(
        "Section 3 says what a wait window costs on average. Turn it round: your requests may "
        "be held back by 10 ms on average, say. How long may the window be? At low traffic "
        "nearly everybody opens a window of their own; at high traffic most join one. So the "
        "answer depends on the arrival rate. Solve for the window, by formula or by trying. "
        "In the result below the engine waits your window 20,000 times."
    ),
    kind="predict",
    minutes=7,
    difficulty=3,
    reference=longest_window_s,
    cases=_rates_and_waits,
    result=Number("s"),
    evidence=_held_in_engine,
    wrong={
        everyone_the_whole_window: (
            "Only the one who opens the window waits for all of it. Those who join it wait "
            "less, so the mean allows a longer window than that."
        ),
        everyone_half_the_window: (
            "Those who *join* a window come anywhere in it and wait half of it on average. "
            "But somebody opened it, and waits it out in full; at low traffic that is nearly "
            "everybody."
        ),
        joiners_wait_nothing: (
            "You let those who find a window open start at once. They wait too, for the rest of it."
        ),
        opener_not_counted: (
            "You add up the waits of one window rightly, but divide by those who join it. The "
            "one who opens it is a request as well: λ · w + 1 share that sum."
        ),
        the_other_root: (
            "Your equation is right and has two roots. A window cannot be shorter than "
            "nothing: take the root with the plus sign."
        ),
    },
    hints=(
        "Between which two lengths must the window lie? If everybody opened one, it could be "
        "as long as the wait allowed; if everybody joined, twice as long.",
        "(w + λw · w/2) / (1 + λw) = m. Multiply by 1 + λw and collect the powers of w, or "
        "halve the distance between the two lengths again and again.",
        "λ/2 · w² + (1 − λm) · w − m = 0, and w is its root above zero: "
        "(λm − 1 + √(1 + (λm)²)) / λ.",
    ),
    explanation=(
        "From m, when nobody else comes, the window may only grow to 2m, however dense the "
        "traffic. What it buys is company, 1 + λw requests a start: next to none at low "
        "traffic. And continuous batching gets company for nothing, since whoever comes "
        "joins at the next step."
    ),
)
