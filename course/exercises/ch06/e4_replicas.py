"""Exercise 6.4, How many replicas?: reference, wrong answers and judging."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Whole, plain
from course.serving.engine import EngineConfig
from course.serving.load import DrawnTraffic, Scenario, Sweep, measure, sweep
from course.serving.pricing import RooflineStepCost
from course.serving.requests import SLO
from course.serving.workload import Lognormal


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


def trusts_the_best_guess(demand_per_s, growth, burst, failures, knee_per_s, knee_low_per_s):
    """The centre of the interval."""
    return math.ceil(demand_per_s * growth * burst / knee_per_s) + failures


def no_spare(demand_per_s, growth, burst, failures, knee_per_s, knee_low_per_s):
    """As if none ever failed."""
    return math.ceil(demand_per_s * growth * burst / knee_low_per_s)


def rounds_to_nearest(demand_per_s, growth, burst, failures, knee_per_s, knee_low_per_s):
    """To the nearest whole number."""
    return round(demand_per_s * growth * burst / knee_low_per_s) + failures


def adds_growth_and_burst(demand_per_s, growth, burst, failures, knee_per_s, knee_low_per_s):
    """Growth and burst of today's demand each, added."""
    peak_per_s = demand_per_s * (1 + (growth - 1) + (burst - 1))
    return math.ceil(peak_per_s / knee_low_per_s) + failures


def rounds_at_each_step(demand_per_s, growth, burst, failures, knee_per_s, knee_low_per_s):
    """Whole replicas after each factor."""
    today = math.ceil(demand_per_s / knee_low_per_s)
    return math.ceil(burst * math.ceil(growth * today)) + failures


def one_more_for_the_rest(demand_per_s, growth, burst, failures, knee_per_s, knee_low_per_s):
    """Whole replicas, and one for what is left over, also where nothing is."""
    return int(demand_per_s * growth * burst // knee_low_per_s) + 1 + failures


class FleetCase(dict[str, Any]):
    """A case's inputs, and behind them the sweep of the replica."""

    swept: Sweep


_PROMISE = SLO(ttft_s=1.0, tpot_s=0.05, quantile=0.99)


_WRONG_PLANS = (
    trusts_the_best_guess,
    no_spare,
    rounds_to_nearest,
    adds_growth_and_burst,
    rounds_at_each_step,
    one_more_for_the_rest,
)


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
        # a peak of just eight replicas' worth, in numbers that no rounding touches
        even = FleetCase(
            demand_per_s=40.0, growth=1.25, burst=2.0, failures=1,
            knee_per_s=13.5, knee_low_per_s=12.5,
        )  # fmt: skip
        even.swept = swept
        cases.append(even)
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


EXERCISE = function_exercise(
    "6.4",
    title="How many replicas?",
    question=(
        "From one replica's knee to a fleet. The promise must hold in the worst minute of the "
        "busiest hour, at the end of the plan, with `failures` replicas down. The sweep gives "
        "a knee and its 95 % interval: which end do you trust? With your answer the result "
        "shows what one of the replicas that are left gets at the peak, and what it makes of "
        "it."
    ),
    kind="compute",
    minutes=5,
    difficulty=1,
    reference=replicas,
    cases=_plans,
    result=Whole("replicas"),
    evidence=_peak_in_engine,
    wrong={
        trusts_the_best_guess: (
            "You plan with the centre of the interval. The true knee lies below it about half "
            "of the time; with the lower end it is rarely so."
        ),
        no_spare: (
            "With `failures` replicas down yours do not hold the peak any more. Those that are "
            "left have to hold it by themselves."
        ),
        rounds_to_nearest: (
            "You round to the nearest whole number. 7.3 replicas' worth of load on 7 is beyond "
            "the knee: round up."
        ),
        adds_growth_and_burst: (
            "You add the growth and the burst. The burst comes on top of the grown demand: the "
            "factors multiply."
        ),
        rounds_at_each_step: (
            "You round up after each factor, and buy replicas for the rounding. Multiply "
            "first, round once."
        ),
        one_more_for_the_rest: (
            "You add one for what is left over, also where nothing is left: a peak of 100 on "
            "replicas that hold 12.5 takes 8. Round up only what is not whole: math.ceil."
        ),
    },
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
)
