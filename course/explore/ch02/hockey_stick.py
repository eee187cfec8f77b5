"""The hockey-stick explorer: what it varies, computes and says; no widget, no queue formula."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import numpy as np

from course.explore.ch02.luck import unit_exponentials
from course.figures.ch02.hockey_stick import HockeyStick, HockeyStickPicture, SimulatedPoint
from course.serving import queueing
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider
from course.words import percent, rounded, seconds

_LOADS = np.round(np.arange(0.1, 0.95, 0.1), 2)
_CURVE = 1 - np.geomspace(1.0, 2e-3, 160)


@dataclass(frozen=True)
class HockeyStickParameters:
    """The M/M/1 queue, and how long it is simulated."""

    arrival_rate_per_s: float = slider(
        8.0, 0.5, 21.0, 0.1, label="Arrival rate λ", unit="requests/s",
        help="How many requests arrive each second, on average",
    )  # fmt: skip
    service_rate_per_s: float = slider(
        10.0, 1.0, 20.0, 0.1, label="Service rate μ", unit="requests/s",
        help="How many requests the server would finish each second if it never waited for one",
    )  # fmt: skip
    percentile: float = choice(
        0.99, {"P50 (half)": 0.5, "P90": 0.9, "P95": 0.95, "P99": 0.99, "P99.9": 0.999},
        label="Percentile", help="The share of requests that are done within the drawn time",
    )  # fmt: skip
    target_s: float = slider(
        0.0, 0.0, 5.0, 0.1, label="Promise for the percentile", unit="s, 0: none",
        help="The time that the chosen percentile must stay below; 0 draws no promise",
    )  # fmt: skip
    customers: int = choice(
        40_000, {"off": 0, "10,000": 10_000, "40,000": 40_000, "400,000": 400_000},
        label="Simulated requests", help="How many requests each simulated point lets through",
    )  # fmt: skip
    seed: int = count(
        1, 1, 20, label="Luck (seed)", help="Another number draws other random arrivals"
    )


def _simulated(utilization: float, customers: int, seed: int, percentile: float) -> SimulatedPoint:
    """Simulate one load in units of the mean service time (service rate 1)."""
    gaps, services = unit_exponentials(customers, seed)
    sojourn = queueing.simulate_queue(gaps / utilization, services) + services
    mean = queueing.batch_means(sojourn, utilization=utilization)
    quantile = queueing.batch_quantile(sojourn, percentile, utilization=utilization)
    return SimulatedPoint(
        utilization=utilization,
        mean_s=mean.estimate,
        mean_band_s=mean.band,
        percentile_s=quantile.estimate,
        percentile_band_s=quantile.band,
        needed_customers=mean.needed_customers or 0,
    )


@lru_cache(maxsize=32)
def _sweep(customers: int, seed: int, percentile: float) -> tuple[SimulatedPoint, ...]:
    return tuple(_simulated(float(load), customers, seed, percentile) for load in _LOADS)


def _in_seconds(point: SimulatedPoint, service_rate_per_s: float) -> SimulatedPoint:
    """Scale a point from mean service times to seconds; an M/M/1 queue has no other clock."""

    def scaled(band: tuple[float, float] | None) -> tuple[float, float] | None:
        return band and (band[0] / service_rate_per_s, band[1] / service_rate_per_s)

    return replace(
        point,
        mean_s=point.mean_s / service_rate_per_s,
        mean_band_s=scaled(point.mean_band_s),
        percentile_s=point.percentile_s / service_rate_per_s,
        percentile_band_s=scaled(point.percentile_band_s),
    )


def _usable_rate_per_s(p: HockeyStickParameters) -> float:
    """The highest arrival rate that keeps the promise; 0 where not even one visitor could."""
    if not p.target_s:
        return p.service_rate_per_s
    try:
        return queueing.max_arrival_rate_for(p.percentile, p.target_s, p.service_rate_per_s)
    except ValueError:
        return 0.0


def _hockey_stick(p: HockeyStickParameters) -> HockeyStick:
    load = p.arrival_rate_per_s / p.service_rate_per_s
    mean_s = percentile_s = float("inf")
    if load < 1:
        here = queueing.mm1(p.arrival_rate_per_s, p.service_rate_per_s)
        mean_s, percentile_s = here.mean_sojourn_s, here.sojourn_quantile_s(p.percentile)
    mean_curve = 1 / (p.service_rate_per_s * (1 - _CURVE))
    simulated: tuple[SimulatedPoint, ...] = ()
    point = None
    if p.customers:
        simulated = tuple(
            _in_seconds(s, p.service_rate_per_s) for s in _sweep(p.customers, p.seed, p.percentile)
        )
        if load < 1:
            point = _in_seconds(
                _simulated(load, p.customers, p.seed, p.percentile), p.service_rate_per_s
            )
    return HockeyStick(
        arrival_rate_per_s=p.arrival_rate_per_s,
        service_rate_per_s=p.service_rate_per_s,
        percentile=p.percentile,
        customers=p.customers,
        curve_utilization=_CURVE,
        curve_mean_s=mean_curve,
        curve_percentile_s=mean_curve * -np.log(1 - p.percentile),
        simulated=simulated,
        here=point,
        mean_s=mean_s,
        percentile_s=percentile_s,
        target_s=p.target_s or None,
        usable_rate_per_s=_usable_rate_per_s(p),
    )


def _hockey_stick_words(r: HockeyStick) -> str:
    return _load_words(r) + _promise_words(r)


def _promise_words(r: HockeyStick) -> str:
    if r.target_s is None:
        return ""
    name = f"P{100 * r.percentile:g}"
    if r.usable_rate_per_s <= 0:
        return (
            f" A {name} of {seconds(r.target_s)} cannot be promised at all: with nobody else in "
            f"the system it is already "
            f"{seconds(-math.log(1 - r.percentile) / r.service_rate_per_s)}."
        )
    return (
        f" A {name} below {seconds(r.target_s)} can be promised up to λ = "
        f"{rounded(r.usable_rate_per_s)}/s, {percent(r.usable_rate_per_s / r.service_rate_per_s)} "
        "of what the server can do."
    )


def _load_words(r: HockeyStick) -> str:
    rates = f"At λ = {r.arrival_rate_per_s:.1f}/s and μ = {r.service_rate_per_s:.1f}/s"
    if not r.stable:
        excess = r.arrival_rate_per_s - r.service_rate_per_s
        more = "as many requests arrive as can be served, with nothing left to recover with"
        if excess > 0.05:
            more = f"{excess:.1f} requests more arrive each second than can be served"
        return (
            f"{rates} ρ is {percent(r.utilization)}: {more}; so the queue grows for as long as "
            "this lasts, and no mean or percentile exists."
        )
    words = (
        f"{rates} the server is busy {percent(r.utilization)} of the time; a request spends "
        f"{seconds(r.mean_s)} in the system on average, and "
        f"{percent(1 - r.percentile)} of them spend more than {seconds(r.percentile_s)}."
    )
    if r.here is None:
        return words
    run = f"{words} The {r.customers:,} simulated requests gave a mean of {seconds(r.here.mean_s)}"
    if r.here.mean_band_s is None:
        return f"{run}; so near the edge luck still moves that figure a good deal."
    low, high = r.here.mean_band_s
    return f"{run} (95\u00a0% band {seconds(low)} to {seconds(high)})."


def _tables(r: HockeyStick) -> list[Table]:
    theory = {
        "source": "theory", "utilization": r.curve_utilization, "mean_s": r.curve_mean_s,
        "percentile_s": r.curve_percentile_s,
    }  # fmt: skip
    points = [asdict(point) for point in (*r.simulated, r.here) if point is not None]
    return [theory, *({**point, "source": "simulation"} for point in points)]


def _hockey_stick_question(r: HockeyStick) -> str:
    server = f"a server that can do {r.service_rate_per_s:.1f} requests a second"
    if r.target_s is not None:
        return (
            f"P{100 * r.percentile:g} of the time in system shall stay below "
            f"{seconds(r.target_s)}, with {server}. Up to how many arrivals a second can that be "
            "kept?"
        )
    head = f"{r.arrival_rate_per_s:.1f} requests a second arrive at {server}."
    if not r.stable:
        return f"{head} How many seconds does the average request spend in the system?"
    return f"{head} What time in system do {percent(r.percentile)} of the requests stay below?"


def _hockey_stick_answer(r: HockeyStick) -> float | None:
    if r.target_s is not None:
        return r.usable_rate_per_s
    return r.percentile_s if r.stable else None


def _hockey_stick_mark(r: HockeyStick, guess: float) -> tuple[float, float] | None:
    """A guessed time stands over the load it was made for, a guessed load on the promise."""
    if r.target_s is not None:
        return guess / r.service_rate_per_s, r.target_s
    return r.utilization, guess


hockey_stick = Explorer(
    call="explore.hockey_stick",
    title="The hockey stick: time in system against utilisation (M/M/1)",
    parameters=HockeyStickParameters,
    compute=_hockey_stick,
    drawing=HockeyStickPicture,
    narrate=_hockey_stick_words,
    alt=(
        "Time in system in seconds against utilisation from 0 to 1. The mean rises slowly, then "
        "steeply as utilisation nears 1; the percentile is a multiple of it everywhere. Simulated "
        "points lie on both curves, and the reader's own load is marked."
    ),
    presets=(
        Preset(
            "Quiet Tuesday",
            "One server answers ten short questions a second; three arrive.",
            "Seven tenths of the server stand idle. Whom does that help?",
            {"arrival_rate_per_s": 3.0, "service_rate_per_s": 10.0},
        ),
        Preset(
            "Friday-night burst",
            "The same server on a busy evening: nine a second, three times as many.",
            "The load is three times Tuesday's. How many times Tuesday's is the P99?",
            {"arrival_rate_per_s": 9.0, "service_rate_per_s": 10.0},
        ),
        Preset(
            "Five per cent more",
            "Friday night again, and the marketing mail goes out: 9.5 a second.",
            "Five per cent more requests: what happens to the P99?",
            {"arrival_rate_per_s": 9.5, "service_rate_per_s": 10.0},
        ),
        Preset(
            "Twice the server, twice the load",
            "A server twice as fast takes twice the traffic: utilisation is the same 90 %.",
            "Same utilisation, same latency?",
            {"arrival_rate_per_s": 18.0, "service_rate_per_s": 20.0},
        ),
        Preset(
            "A promise of two seconds",
            "99 of 100 requests shall be done within two seconds; a request alone takes 0.1 s.",
            "How full may the server be: 95 %, 90 %, 80 %?",
            {"arrival_rate_per_s": 5.0, "service_rate_per_s": 10.0, "target_s": 2.0},
        ),
        Preset(
            "Over the edge",
            "10.5 requests a second for a server that can do ten.",
            "Where is the point on the curve? How long is the queue after an hour?",
            {"arrival_rate_per_s": 10.5, "service_rate_per_s": 10.0},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_hockey_stick_question,
        unit=lambda r: "s" if r.target_s is None else "requests/s",
        answer=_hockey_stick_answer,
        mark=_hockey_stick_mark,
    ),
)
