"""Exercise 2.6, One queue for all: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch02.shared import SIMULATED
from course.exercises.values import Whole, plain
from course.serving import queueing


def servers_needed(
    arrival_rate_per_s: float, service_rate_per_s: float, target_wait_s: float
) -> int:
    """Fewest servers behind one shared queue whose mean wait is within target_wait_s.

    Poisson arrivals, exponential service; service_rate_per_s is that of each server.
    """
    servers = math.floor(arrival_rate_per_s / service_rate_per_s) + 1
    while queueing.mmc(arrival_rate_per_s, service_rate_per_s, servers).mean_wait_s > target_wait_s:
        servers += 1
    return servers


def a_queue_for_each(arrival_rate_per_s, service_rate_per_s, target_wait_s):
    """Every server with a queue and an equal share of the arrivals of its own."""
    servers = math.floor(arrival_rate_per_s / service_rate_per_s) + 1
    while True:
        share_per_s = arrival_rate_per_s / servers
        if queueing.mm1(share_per_s, service_rate_per_s).mean_wait_s <= target_wait_s:
            return servers
        servers += 1


def one_fast_server(arrival_rate_per_s, service_rate_per_s, target_wait_s):
    """All servers melted into a single one of their joint speed."""
    servers = math.floor(arrival_rate_per_s / service_rate_per_s) + 1
    while True:
        joint_per_s = servers * service_rate_per_s
        if queueing.mm1(arrival_rate_per_s, joint_per_s).mean_wait_s <= target_wait_s:
            return servers
        servers += 1


def keeping_up_is_enough(arrival_rate_per_s, service_rate_per_s, target_wait_s):
    """Enough to keep up on average."""
    return math.floor(arrival_rate_per_s / service_rate_per_s) + 1


def everyone_waits(arrival_rate_per_s, service_rate_per_s, target_wait_s):
    """The mean wait of those who wait, taken for everyone's."""
    servers = math.floor(arrival_rate_per_s / service_rate_per_s) + 1
    while 1 / (servers * service_rate_per_s - arrival_rate_per_s) > target_wait_s:
        servers += 1
    return servers


def _fleets(rng: np.random.Generator) -> list[dict[str, float]]:
    """Loads of 3 to 25 servers' work; targets from a fiftieth to a half of a service time."""
    cases = []
    for busy, share in ((6, 0.1), (3, 0.05), (12, 0.05), (25, 0.02), (8, 0.3), (17, 0.1), (4, 0.5)):
        service_rate_per_s = round(float(rng.uniform(0.5, 5.0)), 2)
        offered = busy + rng.uniform(0.1, 0.9)
        cases.append(
            {
                "arrival_rate_per_s": round(float(offered * service_rate_per_s), 3),
                "service_rate_per_s": service_rate_per_s,
                "target_wait_s": round(share / service_rate_per_s, 4),
            }
        )
    return cases


def _wait_with(servers: Any, case: Any) -> str | None:
    """What a simulation shows with the student's own number of servers."""
    count, rate_per_s = int(servers), case["arrival_rate_per_s"]
    target = f"for a target of {plain(case['target_wait_s'])} s"
    if not 0 < count <= 1000:
        return None
    if rate_per_s >= count * case["service_rate_per_s"]:
        return f"with {count} servers the queue grows without end, {target}"
    rng = np.random.default_rng(26)
    gaps_s = rng.exponential(1 / rate_per_s, size=SIMULATED)
    service_s = rng.exponential(1 / case["service_rate_per_s"], size=SIMULATED)
    wait_s = float(queueing.simulate_queue(gaps_s, service_s, servers=count).mean())
    return f"with {count} servers the mean wait is {plain(wait_s, 2)} s, {target}"


EXERCISE = function_exercise(
    "2.6",
    title="One queue for all",
    question=(
        "A fleet of equal replicas stands behind one queue: whichever is free takes the next "
        "request (M/M/c). How many replicas are needed so that the mean wait stays within the "
        "target? You may use `queueing.mmc(arrival_rate_per_s, service_rate_per_s, servers)` "
        "and its `mean_wait_s`; it refuses a fleet too small to keep up."
    ),
    kind="predict",
    minutes=7,
    difficulty=2,
    reference=servers_needed,
    cases=_fleets,
    result=Whole("servers"),
    evidence=_wait_with,
    wrong={
        a_queue_for_each: (
            "You give every replica a queue of its own. Then one may be idle while requests "
            "wait at another: one shared queue needs fewer replicas. Use M/M/c."
        ),
        one_fast_server: (
            "You melt the fleet into one server of its joint speed. Such a server brings its "
            "whole speed to a single request; a fleet with few requests leaves most replicas "
            "idle. Their waits differ: use M/M/c."
        ),
        keeping_up_is_enough: (
            "That many keep up on average, at a utilization near 1, where the wait is longest. "
            "The target asks for more."
        ),
        everyone_waits: (
            "1/(cμ − λ) is the mean wait of those who wait. In a larger fleet most requests "
            "find a free replica and wait not at all: multiply by that probability (Erlang C)."
        ),
    },
    hints=(
        "Start from the smallest fleet that keeps up, and add replicas until the wait fits.",
        "The smallest fleet that keeps up has math.floor(λ/μ) + 1 replicas.",
        "A while loop on queueing.mmc(λ, μ, servers).mean_wait_s > target_wait_s.",
    ),
    explanation=(
        "Pooling: with one shared queue no replica is idle while a request waits, so a large "
        "fleet can run much closer to full than c separate ones."
    ),
)
