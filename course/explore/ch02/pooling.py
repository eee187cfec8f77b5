"""The pooling explorer: one capacity arranged in three ways; no widget, no queue formula."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from course.explore.ch02.luck import unit_exponentials
from course.figures.ch02.pooling import Pooling, PoolingPicture, SimulatedSystem, System
from course.serving import queueing
from course.serving.queueing import mmck
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, toggle
from course.words import percent, rounded, seconds

_OPEN_LOADS = np.concatenate([np.linspace(0.01, 0.88, 50), 1 - np.geomspace(0.11, 2e-3, 30)])
_BOUNDED_LOADS = np.linspace(0.01, 1.5, 75)


@dataclass(frozen=True)
class PoolingParameters:
    """The arrivals, the servers, the room to wait in, and which statistic is looked at."""

    arrival_rate_per_s: float = slider(
        8.0, 0.1, 40.0, 0.1, label="Arrival rate λ, in all", unit="requests/s",
        help="How many requests arrive each second, at all servers together",
    )  # fmt: skip
    servers: int = count(
        10, 1, 32, label="Servers c",
        help="How many servers share the work; the fast one is as fast as all of them together",
    )  # fmt: skip
    service_rate_per_s: float = slider(
        1.0, 0.1, 4.0, 0.1, label="Service rate μ of one", unit="requests/s",
        help="How many requests one of the c servers finishes each second when it never waits",
    )  # fmt: skip
    percentile: float | None = choice(
        None, {"mean": None, "P50 (half)": 0.5, "P90": 0.9, "P95": 0.95, "P99": 0.99},
        label="Statistic", help="The mean, or the time within which that share is done",
    )  # fmt: skip
    wait_only: bool = toggle(
        False, label="Only the wait", help="Show the wait before service, not the time in system"
    )
    waiting_places: int | None = choice(
        None, {"unlimited": None, "none": 0, "1": 1, "2": 2, "5": 5, "10": 10},
        label="Waiting places per server",
        help="Who finds all of them taken is turned away; all three systems have equally many",
    )  # fmt: skip
    customers: int = choice(
        100_000, {"off": 0, "10,000": 10_000, "100,000": 100_000, "200,000": 200_000},
        label="Simulated requests", help="How many requests each simulated system is offered",
    )  # fmt: skip
    seed: int = count(
        1, 1, 20, label="Luck (seed)", help="Another number draws other random arrivals"
    )


# In units of one mean service, nothing matters but the load, the servers and the places. A fast
# server is the one-server system on a faster clock, and so is each of the separate queues.


def _unbounded(load: float, servers: int, percentile: float | None, wait_only: bool) -> float:
    queue = queueing.mmc(load * servers, 1.0, servers)
    if percentile is None:
        return queue.mean_wait_s if wait_only else queue.mean_sojourn_s
    return (queue.wait_quantile_s if wait_only else queue.sojourn_quantile_s)(percentile)


@lru_cache(maxsize=512)
def _unbounded_curve(servers: int, percentile: float | None, wait_only: bool) -> np.ndarray:
    return np.array([_unbounded(u, servers, percentile, wait_only) for u in _OPEN_LOADS.tolist()])


def _bounded(
    loads: np.ndarray, servers: int, places: int, percentile: float | None, wait_only: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return (statistic of the accepted, share turned away) for each load."""
    pool = mmck(loads, servers, places)
    if percentile is None:
        value = pool.mean_wait_services if wait_only else pool.mean_sojourn_services
    elif wait_only:
        value = pool.wait_quantile_services(percentile)
    else:
        value = pool.sojourn_quantile_services(percentile)
    return value, pool.rejected_share


@lru_cache(maxsize=512)
def _bounded_curve(
    servers: int, places: int, percentile: float | None, wait_only: bool
) -> tuple[np.ndarray, np.ndarray]:
    return _bounded(_BOUNDED_LOADS, servers, places, percentile, wait_only)


@lru_cache(maxsize=64)
def _simulated(
    load: float,
    servers: int,
    places: int | None,
    percentile: float | None,
    wait_only: bool,
    luck: tuple[int, int],
) -> SimulatedSystem:
    gaps, services = unit_exponentials(*luck)
    gaps = gaps / (load * servers)
    rejected, busy = 0.0, load
    if places is None:
        waits = queueing.simulate_queue(gaps, services, servers)
    else:
        run = queueing.simulate_bounded_queue(gaps, services, servers + places, servers)
        waits, services = run.waits_s[run.accepted], services[run.accepted]
        rejected = run.reject_share
        # Beyond full load what is left of the arrivals keeps the servers busy for this share.
        busy = load if load < 1 else load * (1 - rejected)
    times = waits if wait_only else waits + services
    if percentile is None:
        interval = queueing.batch_means(times, utilization=busy)
    else:
        interval = queueing.batch_quantile(times, percentile, utilization=busy)
    needed = interval.needed_customers or 0
    return SimulatedSystem(interval.estimate, interval.band, needed, rejected)


def _system(p: PoolingParameters, servers: int, rate_per_s: float, share: float) -> System:
    """One system of `servers` servers of `rate_per_s` each, with `share` of all places."""
    load = p.arrival_rate_per_s / (p.servers * p.service_rate_per_s)
    shown = (p.percentile, p.wait_only)
    places = None
    if p.waiting_places is not None:
        all_places = p.servers * (1 + p.waiting_places)
        places = round(share * all_places) - servers
        curve, rejected = _bounded_curve(servers, places, *shown)
        values, rejections = _bounded(np.array([load]), servers, places, *shown)
        value, rejection = float(values[0]), float(rejections[0])
    else:
        curve = _unbounded_curve(servers, *shown)
        rejected, rejection = np.zeros(curve.size), 0.0
        value = _unbounded(load, servers, *shown) if load < 1 else float("inf")
    simulated = None
    if p.customers and (load < 1 or places is not None):
        luck = (p.customers, p.seed)
        simulated = _in_seconds(_simulated(load, servers, places, *shown, luck), rate_per_s)
    return System(curve / rate_per_s, rejected, value / rate_per_s, rejection, simulated)


def _in_seconds(point: SimulatedSystem, rate_per_s: float) -> SimulatedSystem:
    band = point.band_s and (point.band_s[0] / rate_per_s, point.band_s[1] / rate_per_s)
    return SimulatedSystem(
        point.value_s / rate_per_s, band, point.needed_customers, point.rejected_share
    )


def _pooling(p: PoolingParameters) -> Pooling:
    c, rate = p.servers, p.service_rate_per_s
    return Pooling(
        arrival_rate_per_s=p.arrival_rate_per_s,
        servers=c,
        service_rate_per_s=rate,
        percentile=p.percentile,
        wait_only=p.wait_only,
        waiting_places=p.waiting_places,
        customers=p.customers,
        curve_utilization=_OPEN_LOADS if p.waiting_places is None else _BOUNDED_LOADS,
        separate=_system(p, 1, rate, 1 / c),
        shared=_system(p, c, rate, 1.0),
        fast=_system(p, 1, c * rate, 1.0),
    )


def _words(r: Pooling) -> str:
    servers = f"{r.servers} servers" if r.servers > 1 else "one server"
    head = (
        f"{r.arrival_rate_per_s:.1f} requests arrive each second for {servers} of "
        f"{r.service_rate_per_s:.1f}/s (ρ = {percent(r.utilization)})"
    )
    if not r.stable:
        return f"{head}: the queues grow for as long as this lasts, however they are arranged."
    who = " of those let in" if r.bounded else ""
    separate, shared, fast = (seconds(system.value_s) for system in r.systems)
    if r.servers == 1:
        words = f"{head}. With one server the three are the same: the {r.statistic}{who} is {fast}."
    else:
        words = (
            f"{head}. The {r.statistic}{who} is {separate} with {r.servers} separate queues, "
            f"{shared} with one shared queue, and {fast} with one server {r.servers} times as "
            f"fast{_why(r)}."
        )
    return words + _rejected_words(r) + _simulated_words(r)


def _why(r: Pooling) -> str:
    """Resolve what looks like a contradiction: the best system may have the longer wait."""
    if r.wait_only and r.fast.value_s > 1.005 * r.shared.value_s:
        return ": a longer wait than in the shared queue, made up for by the shorter service"
    return ""


def _rejected_words(r: Pooling) -> str:
    if not r.bounded:
        return ""
    shares = [percent(system.rejected_share) for system in r.systems]
    if r.servers == 1:
        return f" {shares[0]} are turned away."
    return f" Turned away are {shares[0]}, {shares[1]} and {shares[2]}."


def _simulated_words(r: Pooling) -> str:
    points = [point for _, _, point in _simulated_systems(r)]
    if not points:
        return ""
    values = [seconds(point.value_s) for point in points]
    said = values[0] if r.servers == 1 else f"{values[0]}, {values[1]} and {values[2]}"
    words = f" Simulated with {r.customers:,} requests: {said}"
    needed = max((point.needed_customers for point in points if not point.band_s), default=0)
    if needed:
        return f"{words}, too short a run for honest bands ({rounded(needed, 2)} would do)."
    bands = {name: (system.value_s, point.band_s) for name, system, point in _simulated_systems(r)}
    missed = [
        name for name, (value, band) in bands.items() if band and not band[0] <= value <= band[1]
    ]
    if missed:
        return f"{words}; outside its 95\u00a0% band lies the theory of: {', '.join(missed)}."
    if all(band for _, band in bands.values()):
        return f"{words}; the theory lies inside every 95\u00a0% band."
    return f"{words}."


def _named(r: Pooling) -> tuple[tuple[str, System], ...]:
    return (("separate", r.separate), ("shared", r.shared), ("fast", r.fast))


def _simulated_systems(r: Pooling) -> list[tuple[str, System, SimulatedSystem]]:
    return [(n, system, system.simulated) for n, system in _named(r) if system.simulated]


def _tables(r: Pooling) -> list[Table]:
    parts: list[Table] = []
    for name, system in _named(r):
        shared = {"system": name, "statistic": r.statistic}
        parts.append(
            shared
            | {
                "source": "formula", "utilization": r.curve_utilization,
                "value_s": system.curve_s, "rejected_share": system.curve_rejected,
            }
        )  # fmt: skip
        point = system.simulated
        if point is not None:
            low_s, high_s = point.band_s or (None, None)
            parts.append(
                shared
                | {
                    "source": "simulation", "utilization": r.utilization, "value_s": point.value_s,
                    "rejected_share": point.rejected_share, "low_s": low_s, "high_s": high_s,
                }
            )  # fmt: skip
    return parts


pooling = Explorer(
    call="explore.pooling",
    title="Pooling: many queues, one queue, or one fast server",
    parameters=PoolingParameters,
    compute=_pooling,
    drawing=PoolingPicture,
    narrate=_words,
    alt=(
        "Time in seconds, on a logarithmic scale, against the utilisation offered, for three "
        "systems of equal capacity. Separate queues lie highest, the shared queue below them, and "
        "for the time in system one fast server lowest. With bounded queues a second panel shows "
        "the share of requests turned away; the reader's own load is marked."
    ),
    presets=(
        Preset(
            "Ten tills, ten queues",
            "Ten servers, each with a queue of its own that nobody may leave; 80 % busy.",
            "Somewhere a till stands idle while you queue. How often?",
            {},
        ),
        Preset(
            "Ten tills, one queue",
            "The same ten servers and the same load, and one rope before all of them.",
            "Nothing but the rope has changed. By which factor does the P99 fall?",
            {"percentile": 0.99, "customers": 200_000},
        ),
        Preset(
            "One fast till",
            "One server as fast as the ten. Only the wait is shown, not the service.",
            "The fast till has a longer wait than the shared queue. Would you still choose it?",
            {"wait_only": True},
        ),
        Preset(
            "A small waiting room",
            "9.5 a second for a capacity of ten, and at most one may wait for each server: the "
            "others are turned away and do not come back.",
            "The P99 now has a ceiling. Who pays for it?",
            {"arrival_rate_per_s": 9.5, "percentile": 0.99, "waiting_places": 1},
        ),
        Preset(
            "Two GPUs or one of twice the speed",
            "Two servers that need half a second for a request, or one that needs a quarter; three "
            "requests a second.",
            "At the same price, which do you buy? What would change your mind?",
            {
                "arrival_rate_per_s": 3.0,
                "servers": 2,
                "service_rate_per_s": 2.0,
                "percentile": 0.99,
                "customers": 200_000,
            },
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=lambda r: (
            f"{r.servers} separate queues at {percent(r.utilization)} load: the {r.statistic} is "
            f"{seconds(r.separate.value_s)}. What is it with one shared queue?"
            if r.stable
            else "How many seconds is the mean time in system when more arrives than can be served?"
        ),
        unit="s",
        answer=lambda r: r.shared.value_s if r.stable else None,
        x=lambda r: r.utilization,
    ),
)
