"""The fleet explorer: whose day, which promise, which card; knees and plans come from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from course.explore.ch06.servers import (
    BLOCK,
    BUDGET,
    CHAT,
    DOCUMENTS,
    SEATS,
    TraceTraffic,
    step_cost,
)
from course.figures.ch06.plan_fleet import Choice, Fleet, FleetPicture
from course.serving.engine import EngineConfig
from course.serving.load import Knee, Method, Plan, Scenario, Sweep, measure, plan, sweep
from course.serving.requests import SLO
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider
from course.words import percent, rounded

GPU: Final = "H100-80GB-SXM"
GPUS: Final = (1, 2, 4, 8)
"""GPUs that one replica may be spread over (tensor parallelism)."""

MODELS: Final = {
    "Llama-3.1-8B": ("Llama-3.1-8B", "bf16"),
    "Llama-3.1-8B in fp8": ("Llama-3.1-8B", "fp8"),
    "Llama-3.1-70B in fp8": ("Llama-3.1-70B", "fp8"),
}
_NUMBERS: Final = {1: "one", 2: "two", 4: "four", 8: "eight"}

PROMISES: Final = {
    "1 s, then 50 ms a token": (1.0, 0.050),
    "1 s, then 30 ms a token": (1.0, 0.030),
    "1 s, then 15 ms a token": (1.0, 0.015),
    "3 s, then 100 ms a token": (3.0, 0.100),
}
"""What is read → limits of TTFT and TPOT, kept by 99 % of the requests."""

DAYS: Final = {
    "office hours": (
        4, 3, 3, 3, 4, 8, 20, 45, 75, 95, 100, 96, 80, 85, 98, 97, 88, 70, 48, 34, 25, 18, 11, 6,
    ),
    "evenings at home": (
        38, 22, 13, 8, 6, 7, 12, 20, 26, 30, 33, 36, 38, 38, 40, 44, 52, 63, 78, 92, 100, 97, 82,
        58,
    ),
    "a sale from midnight on": (
        95, 60, 38, 26, 22, 26, 40, 62, 84, 100, 98, 92, 90, 88, 84, 82, 80, 82, 86, 90, 92, 88, 76,
        60,
    ),
    "the same all day": (100,) * 24,
}  # fmt: skip
"""Each hour in per cent of the busiest. Made up, to show shapes; no service was measured."""

_SHARES: Final = (0.1, 0.25, 0.4, 0.5, 0.6, 0.7, 0.78, 0.86, 0.93, 1.0, 1.08, 1.25)
_REQUESTS, _SEEDS = 1600, 5
_QUANTILE = 0.99
_AT_ONCE_PER_S = 1e6


@dataclass(frozen=True)
class PlanFleetParameters:
    """A day's demand, what may go wrong, what is promised, and what a replica is made of."""

    busiest_per_s: float = slider(
        120.0, 1.0, 400.0, 1.0, label="Busiest hour", unit="requests/s",
        help="The mean of the busiest hour, over all replicas together",
    )  # fmt: skip
    day: str = choice(
        "office hours", list(DAYS), label="Day",
        help="How the other hours compare with the busiest: shapes made up for this picture",
    )  # fmt: skip
    growth: float = slider(
        1.3, 1.0, 3.0, 0.05, label="Growth", unit="times",
        help="What today's demand is expected to become while the plan stands",
    )  # fmt: skip
    burst: float = slider(
        1.5, 1.0, 4.0, 0.05, label="Burst", unit="times",
        help="The worst minute over the mean of its hour; 1.5 in the Azure chat trace of 2023",
    )  # fmt: skip
    failures: int = count(
        1, 0, 4, label="Replicas that may be down", unit="at the peak",
        help="0: no spare; 1: N+1; a maintenance beside a failure takes 2",
    )  # fmt: skip
    model: str = choice(
        "Llama-3.1-8B", list(MODELS), label="Model", help="All replicas run on H100 cards"
    )
    gpus: int = choice(
        1, GPUS, label="GPUs a replica", help="Tensor parallelism: one model spread over so many"
    )
    trace: str = choice(
        CHAT, {"a chat (Azure, 2023)": CHAT, "documents (RAGPulse)": DOCUMENTS},
        label="Requests", help="Whose prompts and answers: both from real services",
    )  # fmt: skip
    promise: tuple[float, float] = choice(
        (1.0, 0.050), PROMISES, label="Promise", help="First token, further tokens; 99 % keep both"
    )
    usd_per_gpu_hour: float = slider(
        3.99, 1.0, 12.0, 0.01, label="Price", unit="USD per GPU-hour",
        help="3.99: Lambda's H100 in eights, September 2026; data/prices.csv has others",
    )  # fmt: skip


# --- what one replica holds ----------------------------------------------------------------------


class _Remembered(Sweep):
    """A sweep whose knees are found once: a plan asks for the same one at every move."""

    def knee(
        self, method: Method = "slo", slo: SLO | None = None, *, confidence: float = 0.95
    ) -> Knee:
        """Return the knee by one method; see `Sweep.knee`."""
        return _knee(self, method, slo, confidence)


@lru_cache(maxsize=256)
def _knee(swept: _Remembered, method: Method, slo: SLO | None, confidence: float) -> Knee:
    return Sweep.knee(swept, method, slo, confidence=confidence)


@lru_cache(maxsize=16)
def swept(model: str, gpus: int, trace: str) -> _Remembered | None:
    """Return the sweep of one replica; None where the model does not fit."""
    name, precision = MODELS[model]
    cost = step_cost(name, GPU, gpus, precision)
    if cost is None:
        return None
    scenario = Scenario(
        cost, TraceTraffic(trace),
        EngineConfig(SEATS, BUDGET, num_kv_blocks=cost.kv_blocks(BLOCK), block_size=BLOCK),
        requests=_REQUESTS,
    )  # fmt: skip
    run = scenario.run(_AT_ONCE_PER_S, 0)
    busy_per_s = measure(run, _AT_ONCE_PER_S, 0).requests_per_s
    most_per_s = max(busy_per_s, _REQUESTS / run.end_s)
    loads = [share * most_per_s for share in _SHARES]
    found = sweep(scenario, loads, range(_SEEDS), progress=False)
    return _Remembered(found.scenario, found.loads, found.seeds, found.points)


def _slo(promise: tuple[float, float]) -> SLO:
    return SLO(ttft_s=promise[0], tpot_s=promise[1], quantile=_QUANTILE)


def plan_of(p: PlanFleetParameters, gpus: int) -> Plan | str:
    """Return the plan with so many GPUs a replica, or why there is none."""
    one = swept(p.model, gpus, p.trace)
    if one is None:
        return "does not hold the model"
    slo = _slo(p.promise)
    if not one.knee("slo", slo).found:
        return "cannot keep the promise"
    return plan(
        one, p.busiest_per_s, slo, p.failures, p.growth, p.burst,
        usd_per_gpu_hour=p.usd_per_gpu_hour, gpus_per_replica=gpus,
    )  # fmt: skip


# --- the result ----------------------------------------------------------------------------------


def _plan_fleet(p: PlanFleetParameters) -> Fleet:
    choices = tuple(_choice(gpus, plan_of(p, gpus)) for gpus in GPUS)
    found = plan_of(p, p.gpus)
    ours = found if isinstance(found, Plan) else None
    hours = np.array(DAYS[p.day]) / 100
    return Fleet(
        title=f"A replica of {p.model} on {_NUMBERS[p.gpus]} H100{'' if p.gpus == 1 else 's'}",
        demand_per_s=p.busiest_per_s * hours,
        growth=p.growth,
        burst=p.burst,
        failures=p.failures,
        gpus=p.gpus,
        promise=p.promise,
        quantile=_QUANTILE,
        usd_per_gpu_hour=p.usd_per_gpu_hour,
        holds_per_s=0.0 if ours is None else ours.replica_holds,
        reasons=() if ours is None else tuple((r.purpose, r.replicas) for r in ours.reasons),
        choices=choices,
    )


def _choice(gpus: int, found: Plan | str) -> Choice:
    if isinstance(found, str):
        return Choice(gpus, None, None, None, None, found)
    return Choice(gpus, found.replica_holds, found.replicas, found.gpus, found.usd_per_month, "")


# --- words ---------------------------------------------------------------------------------------


def _promise(r: Fleet) -> str:
    ttft_s, tpot_s = r.promise
    return f"first token within {ttft_s:g} s, then {1e3 * tpot_s:g} ms a token, for 99\u00a0%"


def _words(r: Fleet) -> str:
    ours = r.ours
    more = " and ".join(
        ([f"growth by {r.growth:g}"] if r.growth > 1 else [])
        + ([f"bursts of {r.burst:g}"] if r.burst > 1 else [])
    )
    peak = (
        f"The busiest hour brings {rounded(r.busiest_per_s)} requests/s; "
        f"{f'with {more} that is {rounded(r.peak_per_s)} at' if more else 'that is also'} the peak."
    )
    if ours.replicas is None or ours.gpus is None or ours.usd_per_month is None:
        return f"{peak} {r.title} {ours.why_not} ({_promise(r)}). {_other_words(r)}"
    held = ours.replicas * r.holds_per_s
    spare = {0: "none of them a spare", 1: "one of them a spare"}.get(
        r.failures, f"{r.failures} of them spares"
    )
    return (
        f"{peak} {r.title} can be trusted with {rounded(r.holds_per_s)} requests/s "
        f"({_promise(r)}): that takes {ours.replicas:,} "
        f"replica{'' if ours.replicas == 1 else 's'}, {spare}, so "
        f"{ours.gpus:,} GPU{'' if ours.gpus == 1 else 's'} and {rounded(ours.usd_per_month)} USD a "
        f"month. Today's busiest hour uses {percent(round(r.busiest_per_s / held, 2))} of what "
        f"they hold, today's whole day {percent(round(float(r.demand_per_s.mean()) / held, 2))}. "
        f"{_other_words(r)}"
    )


def _other_words(r: Fleet) -> str:
    """What the month costs with each number of GPUs a replica."""
    costs = [
        choice.why_not if choice.usd_per_month is None else rounded(choice.usd_per_month)
        for choice in r.choices
    ]
    if not any(choice.replicas for choice in r.choices):
        return "Nor does any other number of GPUs a replica keep it."
    many = [
        f"{choice.gpus_per_replica}: {cost}" for choice, cost in zip(r.choices, costs, strict=True)
    ]
    return f"USD a month by GPUs a replica: {'; '.join(many)}."


def _tables(r: Fleet) -> list[Table]:
    return [
        {
            "gpus_per_replica": c.gpus_per_replica, "replica_holds_per_s": c.holds_per_s,
            "replicas": c.replicas, "gpus": c.gpus, "usd_per_month": c.usd_per_month,
            "why_not": c.why_not,
        }
        for c in r.choices
    ]  # fmt: skip


def _question(r: Fleet) -> str:
    return (
        f"The busiest hour brings {rounded(r.busiest_per_s)} requests/s"
        f"{f', to grow by {r.growth:g}' if r.growth > 1 else ''}, "
        f"with bursts of {r.burst:g}; {r.failures} "
        f"{'replica' if r.failures == 1 else 'replicas'} may be down. {r.title} can be trusted "
        f"with {rounded(r.holds_per_s)} requests/s. How many replicas do you buy?"
    )


plan_fleet = Explorer(
    call="explore.plan_fleet",
    title="Plan the fleet: from one replica's knee to a day, a failure and a bill",
    parameters=PlanFleetParameters,
    compute=_plan_fleet,
    drawing=FleetPicture,
    narrate=_words,
    alt=(
        "Above, the demand of each hour of a day as bars, with the peak that growth and bursts "
        "make of it, and level lines for what the fleet holds with all replicas and with the "
        "allowed failures. Below left, the replicas stacked by what each is there for: demand, "
        "growth, burst, failures. Below right, the monthly cost with one, two, four and eight "
        "GPUs a replica, the chosen one marked."
    ),
    presets=(
        Preset(
            "A weekday",
            "An office's chat: 120 requests/s in the busiest hour, hardly any at night.",
            "What share of the GPU-hours that are paid for is used over the day, and what are the "
            "others for?",
            {},
        ),
        Preset(
            "Black Friday",
            "A shop's chat: a sale that begins at midnight, three times the usual demand, and "
            "everybody at once when a price drops.",
            "Which of the four reasons buys most of the replicas? Which of them could be had "
            "without buying any?",
            {
                "busiest_per_s": 360.0,
                "day": "a sale from midnight on",
                "growth": 1.0,
                "burst": 2.5,
                "failures": 2,
            },
        ),
        Preset(
            "N+1",
            "A small service: 12 requests/s in the busiest hour. One replica just holds it.",
            "What does the spare cost here, in per cent? And with 120 requests/s?",
            {"busiest_per_s": 12.0, "growth": 1.0, "burst": 1.5, "failures": 1},
        ),
        Preset(
            "Tensor parallel or more replicas",
            "The weekday again, but promised are 15 ms a token: a model that speaks fast.",
            "The same cards, two ways to use them. What did the promise change?",
            {"promise": (1.0, 0.015), "gpus": 2},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_question,
        unit="replicas",
        answer=lambda r: None if r.ours.replicas is None else float(r.ours.replicas),
        mark=lambda r, guess: (guess, 0.0),
    ),
)
