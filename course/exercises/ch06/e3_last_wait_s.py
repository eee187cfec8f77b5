"""Exercise 6.3, 20 is not 25: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig
from course.serving.load import DrawnTraffic, Scenario, measure
from course.serving.pricing import LinearStepCost
from course.serving.workload import Lognormal


def last_wait_s(arrival_per_s: float, capacity_per_s: float, spell_s: float) -> float:
    """Seconds for which the request that comes last in a spell waits for its turn.

    arrival_per_s: requests/s that come for spell_s seconds, beginning at an empty queue;
    capacity_per_s: requests/s that the server gets through, however many come. First come, first
    served; take both rates as even streams.
    """
    queue = max(0.0, (arrival_per_s - capacity_per_s) * spell_s)
    return queue / capacity_per_s


def queue_is_not_a_wait(arrival_per_s, capacity_per_s, spell_s):
    """How many wait."""
    return max(0.0, (arrival_per_s - capacity_per_s) * spell_s)


def at_the_pace_of_the_arrivals(arrival_per_s, capacity_per_s, spell_s):
    """The queue, gone through as fast as it came."""
    return max(0.0, (arrival_per_s - capacity_per_s) * spell_s) / arrival_per_s


def steady_state_formula(arrival_per_s, capacity_per_s, spell_s):
    """A steady state's formula, the other way round where it does not apply."""
    return 1 / abs(capacity_per_s - arrival_per_s)


def nothing_done_meanwhile(arrival_per_s, capacity_per_s, spell_s):
    """Time for everybody who came, done or not."""
    return arrival_per_s * spell_s / capacity_per_s


def negative_wait(arrival_per_s, capacity_per_s, spell_s):
    """No floor."""
    return (arrival_per_s - capacity_per_s) * spell_s / capacity_per_s


class SpellCase(dict[str, Any]):
    """A case's inputs, and behind them the server whose capacity it is."""

    scenario: Scenario


def _spells(rng: np.random.Generator) -> list[SpellCase]:
    """Servers of the engine with 5 to 45 % too much to do, and one with a tenth to spare."""
    cases = []
    for over in (1.25, 1.05, 0.9, 1.45):
        cost = LinearStepCost(fixed_s=0.012, per_prefill_token_s=4e-5, per_decode_seq_s=1.5e-4)
        lengths = Lognormal.of_mean(float(rng.uniform(200, 500)), 0.5), Lognormal.of_mean(60, 0.5)
        scenario = Scenario(cost, DrawnTraffic(*lengths), EngineConfig(16, 4096), requests=2000)
        capacity = measure(scenario.run(1e6, 1), 1e6, 1).requests_per_s
        rate = round(over * float(rng.uniform(0.98, 1.02)) * capacity, 2)
        case = SpellCase(
            arrival_per_s=rate,
            capacity_per_s=round(capacity, 2),
            spell_s=float(rng.integers(60, 400)),
        )
        case.scenario = scenario
        cases.append(case)
    return cases


def _waited_in_engine(_: Any, case: Any) -> str:
    """The same spell in the engine, with Poisson arrivals and lengths that scatter."""
    requests = max(50, round(case["arrival_per_s"] * case["spell_s"]))
    traffic = case.scenario.traffic
    work = traffic.draw(requests, 63)
    run = case.scenario.run(case["arrival_per_s"], 63, work=work)
    waited_s = run.scheduled_s - run.arrival_s
    last_s = float(waited_s[-max(10, requests // 50) :].mean())
    return (
        f"{requests:,} requests, Poisson: the last fiftieth waited {plain(last_s, 3)} s on "
        f"average, everybody together {plain(float(waited_s.mean()), 3)} s"
    )


EXERCISE = function_exercise(
    "6.3",
    title="20 is not 25",
    question=(
        "A sales sheet says “25 requests/s”: for a minute, 25 came each second, and every one "
        "was answered in the end. A sweep says that this server gets through 21.7. Who is "
        "right shows after an hour. A queue that grows has no steady state, so notebook 02's "
        "formulas do not apply; counting does. Work out how long the *last* request of a "
        "spell waits for its turn."
    ),
    kind="audit",
    minutes=5,
    difficulty=1,
    reference=last_wait_s,
    cases=_spells,
    result=Number("s"),
    evidence=_waited_in_engine,
    wrong={
        queue_is_not_a_wait: (
            "That is how many are in the queue at the end. How long does the server take to "
            "get through them?"
        ),
        at_the_pace_of_the_arrivals: (
            "You let the queue shrink at the rate at which requests *come*. It shrinks at the "
            "rate at which the server gets through them."
        ),
        steady_state_formula: (
            "1/(μ − λ) is a mean of a steady state. With more coming than going there is none, "
            "and the answer depends on how long it lasts: spell_s does not occur in yours."
        ),
        nothing_done_meanwhile: (
            "That is the time for everybody who came. The server has worked in the meantime: "
            "only those who are still there are ahead of the last one."
        ),
        negative_wait: (
            "In one case more can go than come, and your wait is negative. A queue does not "
            "fall below nothing."
        ),
    },
    hints=(
        "How many requests have come when the spell ends? How many are done by then?",
        "(arrival_per_s − capacity_per_s) · spell_s wait, unless that is below 0.",
        "They are gone through at capacity_per_s: divide.",
    ),
    explanation=(
        "25 a second against 21.7: after a minute the last one waits 9 s, after an hour more "
        "than nine minutes. And all are “answered in the end”: so a share of successes is no "
        "sign of capacity."
    ),
)
