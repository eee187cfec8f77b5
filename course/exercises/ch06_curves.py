"""Exercises 6.1 and 6.2: two knees read off a sweep's table, by the SLO and by the plateau.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Number, plain
from course.serving.load import MeasuredSweep, catalogue_sweeps, find_knee

# --- 6.1 the highest load inside the promise ----------------------------------------------------


def slo_knee(load_per_s: np.ndarray, attainment: np.ndarray, quantile: float) -> float:
    """Highest load, in requests/s, up to which the promise holds at every load.

    load_per_s: of each point of a sweep, rising; attainment: share of that point's requests that
    were inside the promise; quantile: the share that has to be. The first point holds and some
    later one does not. Between two points the attainment is taken as a straight line.
    """
    broken = int((attainment < quantile).argmax())
    before, after = attainment[broken - 1], attainment[broken]
    share = (before - quantile) / (before - after)
    return float(load_per_s[broken - 1] + share * (load_per_s[broken] - load_per_s[broken - 1]))


def until_the_last_that_holds(
    load_per_s: np.ndarray, attainment: np.ndarray, quantile: float
) -> float:
    """The highest load that holds, whatever happened below it."""
    held = int(np.flatnonzero(attainment >= quantile)[-1])
    before, after = attainment[held], attainment[held + 1]
    share = (before - quantile) / (before - after)
    return float(load_per_s[held] + share * (load_per_s[held + 1] - load_per_s[held]))


def a_load_that_was_run(load_per_s: np.ndarray, attainment: np.ndarray, quantile: float) -> float:
    """The last load before the break, as it stands in the table."""
    broken = int((attainment < quantile).argmax())
    return float(load_per_s[broken - 1])


def the_load_that_breaks(load_per_s: np.ndarray, attainment: np.ndarray, quantile: float) -> float:
    """The first load that is no good."""
    return float(load_per_s[int((attainment < quantile).argmax())])


def halfway(load_per_s: np.ndarray, attainment: np.ndarray, quantile: float) -> float:
    """The middle between the last that holds and the first that does not."""
    broken = int((attainment < quantile).argmax())
    return float((load_per_s[broken - 1] + load_per_s[broken]) / 2)


def of_all_so_far(load_per_s: np.ndarray, attainment: np.ndarray, quantile: float) -> float:
    """The requests of all points up to this one together."""
    sent = np.cumsum(load_per_s)
    together = np.cumsum(attainment * load_per_s) / sent
    if together.min() >= quantile:
        return float(load_per_s[-1])
    broken = int((together < quantile).argmax())
    share = (together[broken - 1] - quantile) / (together[broken - 1] - together[broken])
    return float(load_per_s[broken - 1] + share * (load_per_s[broken] - load_per_s[broken - 1]))


def _tables(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Attainments that fall off a cliff; in every second table one further point is lucky."""
    cases = []
    for number, quantile in enumerate((0.99, 0.95, 0.99, 0.9)):
        loads = np.cumsum(rng.uniform(1.0, 3.0, size=9)).round(1)
        edge = int(rng.integers(4, 6))
        late = np.zeros(9)
        late[:edge] = rng.uniform(0.0, 0.6, size=edge)
        late[edge:] = np.cumsum(rng.uniform(1.5, 4.0, size=9 - edge))
        if number % 2 == 0:
            late[edge + 1] = float(rng.uniform(0.3, 0.8))
        attainment = np.clip(1 - (1 - quantile) * late, 0.0, 1.0).round(4)
        cases.append({"load_per_s": loads, "attainment": attainment, "quantile": quantile})
    return cases


def _describe_table(case: Any) -> str:
    return (
        f"a sweep of {case['load_per_s'].size} loads up to {plain(case['load_per_s'][-1], 3)} "
        f"requests/s, {plain(100 * case['quantile'])} % promised"
    )


def _said_of_the_table(_: Any, case: Any) -> str:
    knee = find_knee(
        case["load_per_s"],
        case["load_per_s"] * case["attainment"],
        method="slo",
        attainment=case["attainment"],
        quantile=case["quantile"],
        load_unit="requests/s",
    )
    return f"the course's own: {knee.sentence}"


# --- 6.2 ninety per cent of the plateau ---------------------------------------------------------


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


def of_the_highest_point(users: np.ndarray, tokens_per_s: np.ndarray) -> float:
    """Ninety per cent of the best point."""
    level = 0.9 * tokens_per_s.max()
    index = int((tokens_per_s >= level).argmax())
    share = (level - tokens_per_s[index - 1]) / (tokens_per_s[index] - tokens_per_s[index - 1])
    return float(users[index - 1] + share * (users[index] - users[index - 1]))


def of_the_last_point(users: np.ndarray, tokens_per_s: np.ndarray) -> float:
    """Ninety per cent of where the sweep ended."""
    level = 0.9 * tokens_per_s[-1]
    index = int((tokens_per_s >= level).argmax())
    share = (level - tokens_per_s[index - 1]) / (tokens_per_s[index] - tokens_per_s[index - 1])
    return float(users[index - 1] + share * (users[index] - users[index - 1]))


def where_it_is_highest(users: np.ndarray, tokens_per_s: np.ndarray) -> float:
    """The users of the best point."""
    return float(users[int(tokens_per_s.argmax())])


def ninety_per_cent_of_the_users(users: np.ndarray, tokens_per_s: np.ndarray) -> float:
    """Nine tenths of the load that brings the most."""
    return float(0.9 * users[int(tokens_per_s.argmax())])


def first_point_above(users: np.ndarray, tokens_per_s: np.ndarray) -> float:
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


CURVE_EXERCISES = (
    function_exercise(
        "6.1",
        title="The highest load that you may promise",
        question=(
            "A sweep gives a table: a load, and the share of its requests that kept the promise. "
            "Asked is the SLO knee: the highest load up to which the promise holds at *every* "
            "load, with a straight line between neighbouring points. Beware: a point behind the "
            "cliff may hold once more by luck."
        ),
        track="core",
        kind="compute",
        minutes=6,
        difficulty=2,
        reference=slo_knee,
        cases=_tables,
        result=Number("/s", noun="a load in requests/s"),
        evidence=_said_of_the_table,
        describe=_describe_table,
        wrong=(
            Wrong(
                "luck-behind-the-cliff",
                until_the_last_that_holds,
                "You take the highest load that holds, though a lower one does not. Traffic on "
                "its way up to yours passes that one. A point that holds behind a broken one is "
                "luck: stop at the first break.",
            ),
            Wrong(
                "no-line-between-points",
                a_load_that_was_run,
                "That is the last load of the table that holds: safe, but it depends on which "
                "loads somebody happened to run. Follow the straight line down to the quantile.",
            ),
            Wrong(
                "first-broken-load",
                the_load_that_breaks,
                "That is the first load at which the promise is already *broken*. The knee lies "
                "before it.",
            ),
            Wrong(
                "halfway-to-the-break",
                halfway,
                "You take the middle between the two loads around the break. The attainments say "
                "more: how far above the quantile is one, how far below is the other?",
            ),
            Wrong(
                "all-loads-in-one-pot",
                of_all_so_far,
                "You put the requests of all loads so far together. The promise is to those who "
                "come *now*, at this load; those of the quiet points cannot make up for them.",
            ),
        ),
        hints=(
            "At which index is the attainment below the quantile for the first time?",
            "`(attainment < quantile).argmax()` is that index. The line goes from the point "
            "before it to this one.",
            "share = (before − quantile) / (before − after), and the knee is the load before "
            "plus that share of the step to the next.",
        ),
        explanation=(
            "The cliff is why a sweep wants its loads close together just there; `sweep(…, "
            "refine=2)` adds them by itself."
        ),
    ),
    function_exercise(
        "6.2",
        title="Ninety per cent of the plateau",
        question=(
            "The same for the plateau, on sweeps of real GPUs: the number of users that first "
            "brings 90 % of the plateau's throughput. One point may be high by luck, so the "
            "plateau is the *mean of all points within 5 % of the highest*. On some servers the "
            "throughput falls again at the end; those points are no plateau."
        ),
        track="core",
        kind="compute",
        minutes=6,
        difficulty=2,
        reference=plateau_knee,
        cases=_real_sweeps,
        result=Number("", noun="a number of users, not rounded"),
        describe=_describe_sweep,
        wrong=(
            Wrong(
                "one-lucky-point",
                of_the_highest_point,
                "You take 90 % of the single highest point. It is the highest partly by luck; "
                "the plateau is the mean of all points within 5 % of it.",
            ),
            Wrong(
                "where-the-sweep-ended",
                of_the_last_point,
                "You take the last point for the plateau. Where a server is pushed too far its "
                "throughput falls again: look for the highest point first.",
            ),
            Wrong(
                "users-at-the-maximum",
                where_it_is_highest,
                "Those are the users at the highest point. On a plateau that place is nearly "
                "arbitrary: a thousandth more throughput may have taken twice as many users.",
            ),
            Wrong(
                "ninety-per-cent-of-the-load",
                ninety_per_cent_of_the_users,
                "You take 90 % of a number of *users*. The 90 % are of the throughput; then read "
                "off which load brings them.",
            ),
            Wrong(
                "no-line-between-points",
                first_point_above,
                "That is the first point of the table above the level. The line from the point "
                "before reaches the level earlier.",
            ),
        ),
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
    ),
)

__all__ = ["CURVE_EXERCISES"]
