"""Exercise 6.1, The highest load that you may promise: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.load import find_knee


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


def luck_behind_the_cliff(load_per_s, attainment, quantile):
    """The highest load that holds, whatever happened below it."""
    held = int(np.flatnonzero(attainment >= quantile)[-1])
    before, after = attainment[held], attainment[held + 1]
    share = (before - quantile) / (before - after)
    return float(load_per_s[held] + share * (load_per_s[held + 1] - load_per_s[held]))


def no_line_between_points(load_per_s, attainment, quantile):
    """The last load before the break, as it stands in the table."""
    broken = int((attainment < quantile).argmax())
    return float(load_per_s[broken - 1])


def first_broken_load(load_per_s, attainment, quantile):
    """The first load that is no good."""
    return float(load_per_s[int((attainment < quantile).argmax())])


def halfway_to_the_break(load_per_s, attainment, quantile):
    """The middle between the last that holds and the first that does not."""
    broken = int((attainment < quantile).argmax())
    return float((load_per_s[broken - 1] + load_per_s[broken]) / 2)


def all_loads_in_one_pot(load_per_s, attainment, quantile):
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


EXERCISE = function_exercise(
    "6.1",
    title="The highest load that you may promise",
    question=(
        "A sweep gives a table: a load, and the share of its requests that kept the promise. "
        "Asked is the SLO knee: the highest load up to which the promise holds at *every* "
        "load, with a straight line between neighbouring points. Beware: a point behind the "
        "cliff may hold once more by luck."
    ),
    kind="compute",
    minutes=6,
    difficulty=2,
    reference=slo_knee,
    cases=_tables,
    result=Number("/s", noun="a load in requests/s"),
    evidence=_said_of_the_table,
    describe=_describe_table,
    wrong={
        luck_behind_the_cliff: (
            "You take the highest load that holds, though a lower one does not. Traffic on "
            "its way up to yours passes that one. A point that holds behind a broken one is "
            "luck: stop at the first break."
        ),
        no_line_between_points: (
            "That is the last load of the table that holds: safe, but it depends on which "
            "loads somebody happened to run. Follow the straight line down to the quantile."
        ),
        first_broken_load: (
            "That is the first load at which the promise is already *broken*. The knee lies "
            "before it."
        ),
        halfway_to_the_break: (
            "You take the middle between the two loads around the break. The attainments say "
            "more: how far above the quantile is one, how far below is the other?"
        ),
        all_loads_in_one_pot: (
            "You put the requests of all loads so far together. The promise is to those who "
            "come *now*, at this load; those of the quiet points cannot make up for them."
        ),
    },
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
)
