"""Exercises 6.3 and 6.4: a rate that does not hold, and the replicas that hold one.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Number, Whole, plain
from course.serving.engine import EngineConfig
from course.serving.load import DrawnTraffic, Scenario, Sweep, measure, sweep
from course.serving.pricing import LinearStepCost, RooflineStepCost
from course.serving.requests import SLO
from course.serving.workload import Lognormal

# --- 6.3 twenty is not twenty-five --------------------------------------------------------------


def last_wait_s(arrival_per_s: float, capacity_per_s: float, spell_s: float) -> float:
    """Seconds for which the request that comes last in a spell waits for its turn.

    arrival_per_s: requests/s that come for spell_s seconds, beginning at an empty queue;
    capacity_per_s: requests/s that the server gets through, however many come. First come, first
    served; take both rates as even streams.
    """
    queue = max(0.0, (arrival_per_s - capacity_per_s) * spell_s)
    return queue / capacity_per_s


def the_queue_itself(arrival_per_s: float, capacity_per_s: float, spell_s: float) -> float:
    """How many wait."""
    return max(0.0, (arrival_per_s - capacity_per_s) * spell_s)


def at_the_pace_of_arrivals(arrival_per_s: float, capacity_per_s: float, spell_s: float) -> float:
    """The queue, gone through as fast as it came."""
    return max(0.0, (arrival_per_s - capacity_per_s) * spell_s) / arrival_per_s


def as_if_steady(arrival_per_s: float, capacity_per_s: float, spell_s: float) -> float:
    """A steady state's formula, the other way round where it does not apply."""
    return 1 / abs(capacity_per_s - arrival_per_s)


def all_that_came(arrival_per_s: float, capacity_per_s: float, spell_s: float) -> float:
    """Time for everybody who came, done or not."""
    return arrival_per_s * spell_s / capacity_per_s


def below_nothing(arrival_per_s: float, capacity_per_s: float, spell_s: float) -> float:
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


# --- 6.4 the fleet ------------------------------------------------------------------------------


def replicas(
    demand_per_s: float,
    growth: float,
    burst: float,
    failures: int,
    knee_per_s: float,
    knee_low_per_s: float,
) -> int:
    """Replicas that keep the promise at the peak with `failures` of them down.

    demand_per_s: requests/s of today's busiest hour; growth: that hour's demand at the end of the
    plan over today's; burst: the worst minute over the mean of its hour; knee_per_s,
    knee_low_per_s: the SLO knee of one replica, best guess and lower end of its 95 % interval. The
    router spreads the load evenly.
    """
    peak_per_s = demand_per_s * growth * burst
    return math.ceil(peak_per_s / knee_low_per_s) + failures


def at_the_best_guess(
    demand_per_s: float,
    growth: float,
    burst: float,
    failures: int,
    knee_per_s: float,
    knee_low_per_s: float,
) -> int:
    """The centre of the interval."""
    return math.ceil(demand_per_s * growth * burst / knee_per_s) + failures


def no_spare(
    demand_per_s: float,
    growth: float,
    burst: float,
    failures: int,
    knee_per_s: float,
    knee_low_per_s: float,
) -> int:
    """As if none ever failed."""
    return math.ceil(demand_per_s * growth * burst / knee_low_per_s)


def rounded(
    demand_per_s: float,
    growth: float,
    burst: float,
    failures: int,
    knee_per_s: float,
    knee_low_per_s: float,
) -> int:
    """To the nearest whole number."""
    return round(demand_per_s * growth * burst / knee_low_per_s) + failures


def added_up(
    demand_per_s: float,
    growth: float,
    burst: float,
    failures: int,
    knee_per_s: float,
    knee_low_per_s: float,
) -> int:
    """Growth and burst of today's demand each, added."""
    peak_per_s = demand_per_s * (1 + (growth - 1) + (burst - 1))
    return math.ceil(peak_per_s / knee_low_per_s) + failures


def rounded_at_each_step(
    demand_per_s: float,
    growth: float,
    burst: float,
    failures: int,
    knee_per_s: float,
    knee_low_per_s: float,
) -> int:
    """Whole replicas after each factor."""
    today = math.ceil(demand_per_s / knee_low_per_s)
    return math.ceil(burst * math.ceil(growth * today)) + failures


class FleetCase(dict[str, Any]):
    """A case's inputs, and behind them the sweep of the replica."""

    swept: Sweep


_PROMISE = SLO(ttft_s=1.0, tpot_s=0.05, quantile=0.99)
_WRONG_PLANS = (at_the_best_guess, no_spare, rounded, added_up, rounded_at_each_step)


@lru_cache(maxsize=1)
def _replica() -> Sweep:
    """One replica of an 8B model on an H100, loaded from half empty to too full."""
    cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
    lengths = Lognormal.of_mean(1100, 0.8), Lognormal.of_mean(220, 0.7)
    config = EngineConfig(256, 8192, num_kv_blocks=cost.kv_blocks())
    scenario = Scenario(cost, DrawnTraffic(*lengths), config, requests=1500, slo=_PROMISE)
    return sweep(scenario, (10, 14, 17, 18, 19, 20, 21, 22, 24, 27), range(5), progress=False)


def _plans(rng: np.random.Generator) -> list[FleetCase]:
    """Demands from a small service to a large one, until each usual slip changes some answer."""
    swept = _replica()
    knee = swept.knee("slo")
    assert knee.load is not None
    assert knee.low is not None
    holds = {"knee_per_s": round(knee.load, 2), "knee_low_per_s": round(knee.low, 2)}
    while True:
        cases = []
        for demand, failures in ((12, 1), (60, 1), (140, 1), (240, 2), (700, 3)):
            case = FleetCase(
                demand_per_s=round(demand * float(rng.uniform(0.8, 1.2)), 1),
                growth=round(float(rng.uniform(1.1, 1.8)), 2),
                burst=round(float(rng.uniform(1.2, 2.2)), 2),
                failures=failures,
                **holds,
            )
            case.swept = swept
            cases.append(case)
        answers = {tuple(f(**case) for case in cases) for f in (replicas, *_WRONG_PLANS)}
        if len(answers) == len(_WRONG_PLANS) + 1:
            return cases


def _peak_in_engine(value: Any, case: Any) -> str | None:
    """One of the replicas that are left, at its share of the peak."""
    left = int(value) - case["failures"]
    if not 1 <= left <= 10_000:
        return None
    peak_per_s = case["demand_per_s"] * case["growth"] * case["burst"]
    share = peak_per_s / left
    scenario = case.swept.scenario
    kept = [measure(scenario.run(share, s), share, s).attainment(_PROMISE) for s in range(90, 95)]
    return (
        f"with {case['failures']} down each of the other {left} gets {plain(share, 3)} requests/s "
        f"at the peak; in five runs {plain(100 * float(np.mean(kept)), 4)} % keep the promise of "
        "99 %"
    )


FLEET_EXERCISES = (
    function_exercise(
        "6.3",
        title="20 is not 25",
        question=(
            "A sales sheet says “25 requests/s”: for a minute, 25 came each second, and every one "
            "was answered in the end. A sweep says that this server gets through 21.7. Who is "
            "right shows after an hour. A queue that grows has no steady state, so notebook 02's "
            "formulas do not apply; counting does. Work out how long the *last* request of a "
            "spell waits for its turn."
        ),
        track="core",
        kind="audit",
        minutes=5,
        difficulty=1,
        reference=last_wait_s,
        cases=_spells,
        result=Number("s"),
        evidence=_waited_in_engine,
        wrong=(
            Wrong(
                "queue-is-not-a-wait",
                the_queue_itself,
                "That is how many are in the queue at the end. How long does the server take to "
                "get through them?",
            ),
            Wrong(
                "at-the-pace-of-the-arrivals",
                at_the_pace_of_arrivals,
                "You let the queue shrink at the rate at which requests *come*. It shrinks at the "
                "rate at which the server gets through them.",
            ),
            Wrong(
                "steady-state-formula",
                as_if_steady,
                "1/(μ − λ) is a mean of a steady state. With more coming than going there is none, "
                "and the answer depends on how long it lasts: spell_s does not occur in yours.",
            ),
            Wrong(
                "nothing-done-meanwhile",
                all_that_came,
                "That is the time for everybody who came. The server has worked in the meantime: "
                "only those who are still there are ahead of the last one.",
            ),
            Wrong(
                "negative-wait",
                below_nothing,
                "In one case more can go than come, and your wait is negative. A queue does not "
                "fall below nothing.",
            ),
        ),
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
    ),
    function_exercise(
        "6.4",
        title="How many replicas?",
        question=(
            "From one replica's knee to a fleet. The promise must hold in the worst minute of the "
            "busiest hour, at the end of the plan, with `failures` replicas down. The sweep gives "
            "a knee and its 95 % interval: which end do you trust? With your answer the result "
            "shows what one of the replicas that are left gets at the peak, and what it makes of "
            "it."
        ),
        track="core",
        kind="compute",
        minutes=5,
        difficulty=1,
        reference=replicas,
        cases=_plans,
        result=Whole("replicas"),
        evidence=_peak_in_engine,
        wrong=(
            Wrong(
                "trusts-the-best-guess",
                at_the_best_guess,
                "You plan with the centre of the interval. The true knee lies below it about half "
                "of the time; with the lower end it is rarely so.",
            ),
            Wrong(
                "no-spare",
                no_spare,
                "With `failures` replicas down yours do not hold the peak any more. Those that are "
                "left have to hold it by themselves.",
            ),
            Wrong(
                "rounds-to-nearest",
                rounded,
                "You round to the nearest whole number. 7.3 replicas' worth of load on 7 is beyond "
                "the knee: round up.",
            ),
            Wrong(
                "adds-growth-and-burst",
                added_up,
                "You add the growth and the burst. The burst comes on top of the grown demand: the "
                "factors multiply.",
            ),
            Wrong(
                "rounds-at-each-step",
                rounded_at_each_step,
                "You round up after each factor, and buy replicas for the rounding. Multiply "
                "first, round once.",
            ),
        ),
        hints=(
            "What comes in the worst minute at the end of the plan? Multiply.",
            "How many replicas hold that, at the load that one can be *trusted* with? Round up.",
            "math.ceil(peak / knee_low_per_s) + failures",
        ),
        explanation=(
            "`course.serving.load.plan` does the same, and names the reason for each replica. "
            "Failures are added, not multiplied: one spare for three replicas costs a third more, "
            "one for thirty costs 3 %."
        ),
    ),
)

__all__ = ["FLEET_EXERCISES"]
