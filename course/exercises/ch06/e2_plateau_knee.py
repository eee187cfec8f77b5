"""Exercise 6.2, Ninety per cent of the plateau: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.load import MeasuredSweep, catalogue_sweeps


def plateau_knee(users: np.ndarray, tokens_per_s: np.ndarray) -> float:
    """Number of users, not rounded, that first bring 90 % of the plateau's throughput.

    users: of each point of a sweep, rising; tokens_per_s: the output tokens/s of that point. The
    plateau is the mean of the points within 5 % of the highest. Between two points the throughput
    is taken as a straight line.
    """
    level = 0.9 * tokens_per_s[tokens_per_s >= 0.95 * tokens_per_s.max()].mean()
    index = int((tokens_per_s >= level).argmax())
    below, above = tokens_per_s[index - 1], tokens_per_s[index]
    share = (level - below) / (above - below)
    return float(users[index - 1] + share * (users[index] - users[index - 1]))


def one_lucky_point(users, tokens_per_s):
    """Ninety per cent of the best point."""
    level = 0.9 * tokens_per_s.max()
    index = int((tokens_per_s >= level).argmax())
    share = (level - tokens_per_s[index - 1]) / (tokens_per_s[index] - tokens_per_s[index - 1])
    return float(users[index - 1] + share * (users[index] - users[index - 1]))


def where_the_sweep_ended(users, tokens_per_s):
    """Ninety per cent of where the sweep ended."""
    level = 0.9 * tokens_per_s[-1]
    index = int((tokens_per_s >= level).argmax())
    share = (level - tokens_per_s[index - 1]) / (tokens_per_s[index] - tokens_per_s[index - 1])
    return float(users[index - 1] + share * (users[index] - users[index - 1]))


def users_at_the_maximum(users, tokens_per_s):
    """The users of the best point."""
    return float(users[int(tokens_per_s.argmax())])


def ninety_per_cent_of_the_load(users, tokens_per_s):
    """Nine tenths of the load that brings the most."""
    return float(0.9 * users[int(tokens_per_s.argmax())])


def no_line_between_points(users, tokens_per_s):
    """The first point of the table that reaches the level."""
    level = 0.9 * tokens_per_s[tokens_per_s >= 0.95 * tokens_per_s.max()].mean()
    return float(users[int((tokens_per_s >= level).argmax())])


class SweptCase(dict[str, Any]):
    """A case's inputs, and behind them the words for where they come from."""

    words: str


def _levelling() -> list[MeasuredSweep]:
    """The sweeps of real servers that have a plateau of more than one point."""
    found = []
    for sweep in catalogue_sweeps():
        through = sweep.throughput.mean(axis=0)
        held = int((through >= 0.95 * through.max()).sum())
        if held > 1 and sweep.knee("plateau").found:
            found.append(sweep)
    return found


def _real_sweeps(rng: np.random.Generator) -> list[SweptCase]:
    """Three measured sweeps, each figure within 1 % of the measured one; and one that falls."""
    sweeps = _levelling()
    cases = []
    for index in rng.permutation(len(sweeps))[:3]:
        sweep = sweeps[int(index)]
        measured = sweep.throughput.mean(axis=0)
        seen = (measured * rng.uniform(0.99, 1.01, size=measured.size)).round(1)
        case = SweptCase(users=sweep.loads.copy(), tokens_per_s=seen)
        case.words = sweep.name
        cases.append(case)
    users = np.array([1.0, 4, 8, 16, 32, 64, 96, 128])
    curve = np.array([90.0, 340, 640, 1120, 1720, 2060, 2010, 1650])
    falling = SweptCase(
        users=users, tokens_per_s=(curve * rng.uniform(0.98, 1.02) + rng.uniform(-9, 9, 8)).round(1)
    )
    falling.words = "a server that throws requests out of its memory at the end"
    return [*cases, falling]


def _describe_sweep(case: Any) -> str:
    most = plain(float(case["tokens_per_s"].max()), 3)
    return (
        f"{case.words}: {case['users'].size} loads up to {case['users'][-1]:g} users, at most "
        f"{most} tokens/s"
    )


EXERCISE = function_exercise(
    "6.2",
    title="Ninety per cent of the plateau",
    question=(
        "The same for the plateau, on sweeps of real GPUs: the number of users that first "
        "brings 90 % of the plateau's throughput. One point may be high by luck, so the "
        "plateau is the *mean of all points within 5 % of the highest*. On some servers the "
        "throughput falls again at the end; those points are no plateau."
    ),
    kind="compute",
    minutes=6,
    difficulty=2,
    reference=plateau_knee,
    cases=_real_sweeps,
    result=Number("", noun="a number of users, not rounded"),
    describe=_describe_sweep,
    wrong={
        one_lucky_point: (
            "You take 90 % of the single highest point. It is the highest partly by luck; "
            "the plateau is the mean of all points within 5 % of it."
        ),
        where_the_sweep_ended: (
            "You take the last point for the plateau. Where a server is pushed too far its "
            "throughput falls again: look for the highest point first."
        ),
        users_at_the_maximum: (
            "Those are the users at the highest point. On a plateau that place is nearly "
            "arbitrary: a thousandth more throughput may have taken twice as many users."
        ),
        ninety_per_cent_of_the_load: (
            "You take 90 % of a number of *users*. The 90 % are of the throughput; then read "
            "off which load brings them."
        ),
        no_line_between_points: (
            "That is the first point of the table above the level. The line from the point "
            "before reaches the level earlier."
        ),
    },
    hints=(
        "Which points are on the plateau? `tokens_per_s >= 0.95 * tokens_per_s.max()`.",
        "0.9 times their mean is the level. Find the first point that reaches it, and the "
        "point before.",
        "share = (level − below) / (above − below); users_before + share · (users_after − "
        "users_before).",
    ),
    explanation=(
        "No latency occurs in it. That is its strength, as every benchmark prints throughput, "
        "and why nobody should plan with it: it does not know what the users got."
    ),
)
