"""From a measured knee to a fleet: how many replicas, and the reason for each; no load is run here.

Plan before the knee: one replica that holds 20 requests/s inside its promise is no replica for 25
because it once ran 25.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from course.serving._arguments import at_least, whole
from course.serving.load.knees import Knee
from course.serving.load.sweeping import Sweep
from course.serving.requests import SLO
from course.words import percent, rounded

HOURS_A_MONTH = 730.0
_NONE = "none asked for"


@dataclass(frozen=True)
class Reason:
    """Some replicas, and what they are there for; 0 where the others cover it already."""

    purpose: str
    replicas: int
    why: str


@dataclass(frozen=True)
class Plan:
    """A fleet: how many replicas, each with its reason, and what it costs.

    `peak_demand`: with growth and burst. `replica_holds`: the load that one replica is trusted
    with. Shares are of that load, were the peak spread evenly: `peak_share` with all replicas up,
    `peak_share_failed` with `failures` of them down. Money is None without a price.
    """

    demand: float
    peak_demand: float
    load_unit: str
    replica_holds: float
    reasons: tuple[Reason, ...]
    failures: int
    gpus_per_replica: int
    usd_per_hour: float | None
    knee: Knee

    @property
    def replicas(self) -> int:
        """How many replicas the fleet has."""
        return sum(reason.replicas for reason in self.reasons)

    @property
    def gpus(self) -> int:
        """How many GPUs that takes."""
        return self.replicas * self.gpus_per_replica

    @property
    def usd_per_month(self) -> float | None:
        """The cost of 730 hours in USD, at any load: idle replicas cost as much."""
        return None if self.usd_per_hour is None else self.usd_per_hour * HOURS_A_MONTH

    @property
    def peak_share(self) -> float:
        """The share of what the whole fleet holds that the peak uses."""
        return self.peak_demand / (self.replicas * self.replica_holds)

    @property
    def peak_share_failed(self) -> float:
        """The same with the allowed failures: at most 1, or the plan would break its promise."""
        return self.peak_demand / ((self.replicas - self.failures) * self.replica_holds)

    def as_text(self) -> str:
        """Return the plan as lines of text."""
        lines = [
            f"{counted(self.replicas)} ({self.gpus} "
            f"{'GPU' if self.gpus == 1 else 'GPUs'}), each trusted with "
            f"{rounded(self.replica_holds)} {self.load_unit}:"
        ]
        lines += [f"  {r.replicas:>3}  {r.purpose}: {r.why}" for r in self.reasons]
        failed = "" if not self.failures else f", {percent(self.peak_share_failed)} with failures"
        lines.append(
            f"The peak of {rounded(self.peak_demand)} {self.load_unit} uses "
            f"{percent(self.peak_share)} of what they hold{failed}."
        )
        if self.usd_per_hour is not None:
            lines.append(
                f"It costs {rounded(self.usd_per_hour)} USD an hour, "
                f"{rounded(self.usd_per_hour * HOURS_A_MONTH)} USD a month."
            )
        return "\n".join(lines)


def plan(
    sweep: Sweep,
    demand: float,
    slo: SLO | None = None,
    failures: int = 1,
    growth: float = 1.0,
    burst: float = 1.0,
    *,
    usd_per_gpu_hour: float | None = None,
    gpus_per_replica: int = 1,
) -> Plan:
    """Return the fleet that holds a demand inside the SLO, with the reason for each replica.

    `demand`: in the sweep's own unit, requests/s or users at a time. `slo`: the scenario's if left
    out. `failures`: replicas that may be down at the peak. `growth`: the demand to come over
    today's; `burst`: the peak over the mean of the time it was counted in; both at least 1.

    One replica is trusted with the lower end of the SLO knee's interval, as its centre is missed
    half of the time; with the knee itself where the sweep has too few seeds for an interval. The
    peak is assumed to spread evenly: a router that does not do so needs more.

    Raises ValueError where the sweep has no SLO knee, or for unusable numbers.

    >>> from course.serving.load import DrawnTraffic, Scenario, sweep
    >>> from course.serving.pricing import LinearStepCost
    >>> from course.serving.workload import Fixed
    >>> scenario = Scenario(LinearStepCost(fixed_s=0.02), DrawnTraffic(Fixed(50), Fixed(20)),
    ...                     requests=300, slo=SLO(ttft_s=0.2, quantile=0.95))
    >>> found = plan(sweep(scenario, [40, 80, 120, 160, 200]), demand=200, burst=1.3)
    >>> [(reason.purpose, reason.replicas) for reason in found.reasons]
    [('demand', 2), ('growth', 0), ('burst', 0), ('failures', 1)]
    """
    knee = sweep.knee("slo", slo)
    if knee.load is None:
        raise ValueError(f"sweep has no load to plan with. {knee.sentence}")
    holds = knee.load if knee.low is None else knee.low
    needed = at_least("demand", demand, above=True)
    spare = whole("failures", failures, low=0)
    more, peak = at_least("growth", growth, low=1.0), at_least("burst", burst, low=1.0)
    per_replica = whole("gpus_per_replica", gpus_per_replica)
    reasons = _reasons(needed, more, peak, spare, holds, knee, sweep.scenario.load_unit)
    number = sum(reason.replicas for reason in reasons)
    usd = None
    if usd_per_gpu_hour is not None:
        usd = at_least("usd_per_gpu_hour", usd_per_gpu_hour) * number * per_replica
    return Plan(
        demand=needed,
        peak_demand=needed * more * peak,
        load_unit=sweep.scenario.load_unit,
        replica_holds=holds,
        reasons=reasons,
        failures=spare,
        gpus_per_replica=per_replica,
        usd_per_hour=usd,
        knee=knee,
    )


def _reasons(
    demand: float, growth: float, burst: float, failures: int, holds: float, knee: Knee, unit: str
) -> tuple[Reason, ...]:
    """Today's demand, then growth, then burst, each with what it adds; then the failures."""
    trusted = f"a replica holds {rounded(holds)} {unit} inside the SLO"
    if knee.low is not None and knee.load is not None:
        guess = f"{rounded(knee.load)} at best guess"
        trusted += f" ({guess}, less what {knee.runs} seeds cannot exclude)"
    found: list[Reason] = []
    total, load = 0, demand
    for purpose, factor, words in (
        ("demand", 1.0, f"{rounded(demand)} {unit} today, and {trusted}"),
        ("growth", growth, f"{rounded(demand * growth)} {unit} with growth by {growth:g}"),
        ("burst", burst, f"{rounded(demand * growth * burst)} {unit} in a burst of {burst:g}"),
    ):
        load *= factor
        # 3.0000000001 replicas are 3: the rounding of a product may not buy one
        wanted = max(1, math.ceil(load / holds - 1e-9))
        words += f": {rounded(load / holds)} replicas"
        if factor == 1.0 and purpose != "demand":
            words = _NONE
        elif wanted == total:
            words += ", which the others hold"
        found.append(Reason(purpose, wanted - total, words))
        total = wanted
    why = _NONE
    if failures:
        why = f"with {failures} of {total + failures} down the other {total} still hold the peak"
    return (*found, Reason("failures", failures, why))


def counted(replicas: int) -> str:
    """Return so many replicas in words.

    >>> counted(1), counted(3)
    ('1 replica', '3 replicas')
    """
    return f"{replicas} replica{'' if replicas == 1 else 's'}"
