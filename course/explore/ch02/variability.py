"""The variability explorer: waits of G/G/1; no widget, no queue formula."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import numpy as np

from course.explore.ch02.luck import unit_exponentials
from course.figures.ch02.variability import SimulatedWait, Variability, VariabilityPicture
from course.serving import queueing
from course.serving.queueing import varied_times
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider
from course.words import percent, rounded, seconds

_LOADS = (0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95)
_CURVE = 1 - np.geomspace(1.0, 2e-3, 120)


@dataclass(frozen=True)
class VariabilityParameters:
    """The server, how much arrivals and services vary, and how long all is simulated."""

    arrival_rate_per_s: float = slider(
        1.4, 0.1, 8.0, 0.05, label="Arrival rate λ", unit="requests/s",
        help="How many requests arrive each second, on average",
    )  # fmt: skip
    service_s: float = slider(
        0.5, 0.1, 2.0, 0.05, label="Mean service time", unit="s",
        help="How long the server needs for one request, on average",
    )  # fmt: skip
    arrivals_cv: float = slider(
        1.0, 0.0, 4.0, 0.05, label="CV of the gaps between arrivals",
        help="Standard deviation over mean: 0 clockwork, 1 random (Poisson), above 1 in bursts",
    )  # fmt: skip
    service_cv: float = slider(
        1.0, 0.0, 4.0, 0.01, label="CV of the service times",
        help="Standard deviation over mean: 0 all alike, 1 exponential, above 1 a few very long",
    )  # fmt: skip
    customers: int = choice(
        100_000, {"off": 0, "20,000": 20_000, "100,000": 100_000, "500,000": 500_000},
        label="Simulated requests",
        help="How many requests each simulated point lets through; their times are Weibull",
    )  # fmt: skip
    seed: int = count(
        1, 1, 20, label="Luck (seed)", help="Another number draws other random arrivals"
    )


@lru_cache(maxsize=2)
def _luck(customers: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logarithms of unit-mean exponential draws: the same luck at every variability and load."""
    gaps, services = unit_exponentials(customers, seed)
    return np.log(gaps), np.log(services)


@lru_cache(maxsize=2)
def _gaps(customers: int, seed: int, cv: float) -> np.ndarray:
    return varied_times.with_cv(_luck(customers, seed)[0], cv)


@lru_cache(maxsize=2)
def _services(customers: int, seed: int, cv: float) -> np.ndarray:
    return varied_times.with_cv(_luck(customers, seed)[1], cv)


def _simulated(
    utilization: float, arrivals_cv: float, service_cv: float, customers: int, seed: int
) -> SimulatedWait:
    """Simulate one load in units of the mean service time."""
    variability = (arrivals_cv**2 + service_cv**2) / 2
    if variability == 0:
        # Every gap outlasts every service: nobody waits, and there is no luck to draw a band from.
        return SimulatedWait(utilization, 0.0, (0.0, 0.0), 0)
    waits = queueing.simulate_queue(
        _gaps(customers, seed, arrivals_cv) / utilization, _services(customers, seed, service_cv)
    )
    interval = queueing.batch_means(waits, utilization=utilization, variability=variability)
    return SimulatedWait(utilization, interval.mean, interval.band, interval.needed_customers or 0)


@lru_cache(maxsize=32)
def _sweep(
    arrivals_cv: float, service_cv: float, customers: int, seed: int
) -> tuple[SimulatedWait, ...]:
    return tuple(_simulated(load, arrivals_cv, service_cv, customers, seed) for load in _LOADS)


def _in_seconds(point: SimulatedWait, service_s: float) -> SimulatedWait:
    """Scale a point from mean service times to seconds; the queue has no other clock."""
    band = point.band_s and (point.band_s[0] * service_s, point.band_s[1] * service_s)
    return replace(point, mean_s=point.mean_s * service_s, band_s=band)


def _formula(p: VariabilityParameters) -> tuple[str, bool]:
    """Name the formula for the two coefficients of variation, and say whether it is exact.

    Gaps with a CV of 1 are drawn exponential: only then are arrivals Poisson, and what is exact
    for M/G/1 applies. Without any variability nobody waits, and Kingman's zero is exact too.
    """
    if p.arrivals_cv == 1:
        return {0.0: "M/D/1", 1.0: "M/M/1"}.get(p.service_cv, "Pollaczek–Khinchine"), True
    return "Kingman", p.arrivals_cv == 0 and p.service_cv == 0


def _formula_wait_s(p: VariabilityParameters, name: str) -> float:
    rate, service_s = p.arrival_rate_per_s, p.service_s
    if rate * service_s >= 1:
        return float("inf")
    if name == "Kingman":
        return queueing.gg1_kingman(
            rate, service_s, p.arrivals_cv**2, p.service_cv**2
        ).mean_wait_s  # fmt: skip
    return queueing.mg1(rate, service_s, p.service_cv**2).mean_wait_s


def _variability(p: VariabilityParameters) -> Variability:
    name, exact = _formula(p)
    load = p.arrival_rate_per_s * p.service_s
    memoryless = _CURVE / (1 - _CURVE) * p.service_s
    simulated: tuple[SimulatedWait, ...] = ()
    here = None
    if p.customers:
        luck = (p.arrivals_cv, p.service_cv, p.customers, p.seed)
        simulated = tuple(_in_seconds(point, p.service_s) for point in _sweep(*luck))
        if load < 1:
            here = _in_seconds(_simulated(load, *luck), p.service_s)
    return Variability(
        arrival_rate_per_s=p.arrival_rate_per_s,
        service_s=p.service_s,
        arrivals_cv=p.arrivals_cv,
        service_cv=p.service_cv,
        customers=p.customers,
        formula=name,
        exact=exact,
        formula_s=_formula_wait_s(p, name),
        memoryless_s=load / (1 - load) * p.service_s if load < 1 else float("inf"),
        curve_utilization=_CURVE,
        curve_formula_s=memoryless * (p.arrivals_cv**2 + p.service_cv**2) / 2,
        curve_memoryless_s=memoryless,
        curve_constant_s=memoryless / 2,
        simulated=simulated,
        here=here,
    )


def _words(r: Variability) -> str:
    head = (
        f"At λ = {r.arrival_rate_per_s:.2f}/s and {seconds(r.service_s)} a request, ρ is "
        f"{percent(r.utilization)}"
    )
    if not r.stable:
        return (
            f"{head}: more work arrives than can be done, so waits grow for as long as this lasts, "
            "whatever the variability."
        )
    kind = "exact here" if r.exact else "an approximation here"
    if r.formula == "M/D/1":
        kind += " and the least that random arrivals allow"
    words = (
        f"{head}; with CVs of {r.arrivals_cv:.2f} (arrivals) and {r.service_cv:.2f} (services) the "
        f"average request waits {seconds(r.formula_s)} by {r.formula}, {kind}"
    )
    if r.formula_s > 0 and abs(r.formula_s / r.memoryless_s - 1) > 0.005:
        words += f" ({rounded(r.formula_s / r.memoryless_s, 2)} times M/M/1)"
    return f"{words}.{_simulation_words(r)}"


def _simulation_words(r: Variability) -> str:
    here = r.here
    if here is None:
        return ""
    words = f" The {r.customers:,} simulated requests waited {seconds(here.mean_s)} on average"
    if here.band_s is None:
        if not here.needed_customers:
            return f"{words}: too few of them waited at all for an honest band."
        return (
            f"{words}, too short a run for an honest band: that takes about "
            f"{rounded(here.needed_customers, 2)}."
        )
    low, high = here.band_s
    band = f"{words} (95\u00a0% band {seconds(low)} to {seconds(high)})"
    # A band of no width is the simulation of certainty: rounding may not count as a miss.
    slack = 1e-9 * r.service_s
    if low - slack <= r.formula_s <= high + slack:
        return f"{band}: the formula lies inside."
    off = r.formula_s / here.mean_s - 1
    return f"{band}: the formula is {percent(abs(off))} {'above' if off > 0 else 'below'} that."


def _tables(r: Variability) -> list[Table]:
    theory = {
        "source": "formula", "utilization": r.curve_utilization, "mean_s": r.curve_formula_s,
        "memoryless_s": r.curve_memoryless_s, "constant_service_s": r.curve_constant_s,
    }  # fmt: skip
    points = [asdict(point) for point in (*r.simulated, r.here) if point is not None]
    return [theory, *({**point, "source": "simulation"} for point in points)]


variability = Explorer(
    call="explore.variability",
    title="What variability costs: mean wait against utilisation (G/G/1)",
    parameters=VariabilityParameters,
    compute=_variability,
    drawing=VariabilityPicture,
    narrate=_words,
    alt=(
        "Mean wait in seconds against utilisation from 0 to 1. All curves have the shape of a "
        "hockey stick; the more arrivals and services vary, the higher the curve. M/M/1 and, at "
        "half its height, M/D/1 are drawn for comparison; simulated points lie near the curve of "
        "the formula, and the reader's own load is marked."
    ),
    presets=(
        Preset(
            "As smooth as it gets",
            "Requests arrive at random, and every answer takes exactly half a second. 70 % busy.",
            "Nothing about the server is random, and it is idle 30 % of the time. Why does anyone "
            "wait?",
            {"arrivals_cv": 1.0, "service_cv": 0.0},
        ),
        Preset(
            "Memoryless",
            "The same load, and the service times are exponential: the textbook's M/M/1.",
            "Same mean service time, same utilisation. By which factor do waits grow?",
            {"arrivals_cv": 1.0, "service_cv": 1.0},
        ),
        Preset(
            "Answers of all lengths",
            "Answers as long as those of a code service (Azure, November 2023): 28 tokens on "
            "average with a CV of 2.15. Its chat service had longer answers, 211 tokens, and a CV "
            "of only 0.77. A request's time is taken to follow its number of tokens.",
            "Would you rather serve the short answers or the long ones, at equal utilisation?",
            {"arrivals_cv": 1.0, "service_cv": 2.15, "customers": 500_000},
        ),
        Preset(
            "Bursts",
            "Answers as even as that chat service's (CV 0.77), arrivals as bursty as the code "
            "service's: their gaps have a CV of 2.2, even without its 57 pauses of over 5 s (13 "
            "with them).",
            "Which would you smooth first, the arrivals or the answers?",
            {"arrivals_cv": 2.2, "service_cv": 0.77, "customers": 500_000},
        ),
        Preset(
            "Everything at once",
            "Bursts (CV 2.2) of requests with answers of all lengths (CV 2.15), still 70 % busy.",
            "How much load must go for the wait to be what M/M/1 promised?",
            {"arrivals_cv": 2.2, "service_cv": 2.15, "customers": 500_000},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=lambda r: (
            f"{r.arrival_rate_per_s:.2f} requests arrive each second, and each takes "
            f"{seconds(r.service_s)} on average ({percent(r.utilization)} busy); the CVs are "
            f"{r.arrivals_cv:.2f} (arrivals) and {r.service_cv:.2f} (services). How long does the "
            "average request wait before its service begins?"
        ),
        unit="s",
        answer=lambda r: r.formula_s if r.stable else None,
        x=lambda r: r.utilization,
    ),
)
