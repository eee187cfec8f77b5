"""The loops explorer: closed against open, and a stall measured twice; no widget, no formula."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from course.figures.ch02.loops import Loops, LoopsPicture, Stall
from course.serving import queueing
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, stops
from course.words import percent, rounded, seconds

_MOST_USERS = 100
_CURVE_USERS = (*range(1, 31), *range(32, 61, 2), *range(65, _MOST_USERS + 1, 5))
_OPEN_LOADS = 1 - np.geomspace(1.0, 2e-3, 120)
# Closer to full load than this, an open queue needs days to reach its steady state.
_NO_SPARE = 1e-6


@dataclass(frozen=True)
class LoopsParameters:
    """The users and their pauses, the server, and the stall in the benchmark's run."""

    users: int = count(
        8, 1, _MOST_USERS, label="Users (or workers) N",
        help="How many send, wait for the answer, think, and send again",
    )  # fmt: skip
    think_s: float = slider(
        0.9, 0.0, 20.0, 0.1, label="Mean think time", unit="s",
        help="How long a user pauses between an answer and the next request, on average",
    )  # fmt: skip
    service_rate_per_s: float = slider(
        10.0, 1.0, 20.0, 0.5, label="Service rate μ", unit="requests/s",
        help="How many requests the server finishes each second when it never waits for one",
    )  # fmt: skip
    stall_s: float = stops(
        5.0, (0.0, 1.0, 2.0, 5.0, 10.0, 20.0), label="Stall of the server", unit="s",
        help="How long the server stands still, once in the run",
    )  # fmt: skip
    requests: int = choice(
        2_000, {"1,000": 1_000, "2,000": 2_000, "5,000": 5_000},
        label="Requests in the run", help="How many requests the benchmark sends before it reports",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number draws other random times")


@lru_cache(maxsize=8)
def _luck(requests: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit-mean exponential first thinks, later thinks and services."""
    rng = np.random.default_rng(seed)
    return (
        rng.exponential(size=_MOST_USERS),
        rng.exponential(size=requests),
        rng.exponential(size=requests),
    )


@lru_cache(maxsize=64)
def _closed_curve(think_services: float) -> tuple[np.ndarray, np.ndarray]:
    """Throughput and mean response of 1, 2, … users in units of the mean service time."""
    throughput, response = queueing.mm1_closed_curve(_MOST_USERS, think_services, 1.0)
    shown = np.array(_CURVE_USERS) - 1
    return throughput[shown], response[shown]


def _undisturbed(p: LoopsParameters) -> tuple[queueing.RequestTimes, np.ndarray]:
    """Run the closed loop without a stall; return its times and the service times."""
    first, later, services = _luck(p.requests, p.seed)
    thinks = p.think_s * np.concatenate([first[: p.users], later])
    service_s = services / p.service_rate_per_s
    return queueing.simulate_closed_loop(p.users, thinks, service_s), service_s


def _stall(p: LoopsParameters, plan: queueing.RequestTimes, service_s: np.ndarray) -> Stall:
    """Send the same plan by the same workers to a server that stands still once.

    The plan is what these users would have sent had nothing stalled. So without a stall none is
    late, both stopwatches agree, and whatever they differ by is the stall's doing alone.
    """
    stalled = p.requests // 3
    service_s = service_s.copy()
    service_s[stalled] += p.stall_s
    run = queueing.simulate_load_generator(plan.sent_s, service_s, p.users)
    late_s = run.sent_s - run.scheduled_s
    late = late_s > 1e-9
    return Stall(
        length_s=p.stall_s,
        stall_s=float(run.start_s[stalled]),
        scheduled_s=run.scheduled_s,
        from_sent_s=run.response_s,
        from_scheduled_s=run.scheduled_response_s,
        p99_sent_s=float(np.quantile(run.response_s, 0.99)),
        p99_scheduled_s=float(np.quantile(run.scheduled_response_s, 0.99)),
        late=int(late.sum()),
        mean_late_s=float(late_s[late].mean()) if late.any() else 0.0,
    )


def _loops(p: LoopsParameters) -> Loops:
    rate = p.service_rate_per_s
    closed = queueing.mm1_closed(p.users, p.think_s, rate)
    throughputs, responses = _closed_curve(p.think_s * rate)
    plan, service_s = _undisturbed(p)
    # All users start by thinking: the first tenth of the run is left out of its means.
    settled = slice(p.requests // 10, None)
    sent = plan.sent_s[settled]
    open_s = float("inf")
    if closed.utilization < 1 - _NO_SPARE:
        open_s = queueing.mm1(closed.throughput_per_s, rate).mean_sojourn_s
    return Loops(
        users=p.users,
        think_s=p.think_s,
        service_rate_per_s=rate,
        closed_per_s=throughputs * rate,
        closed_s=responses / rate,
        open_per_s=_OPEN_LOADS * rate,
        open_curve_s=1 / (rate * (1 - _OPEN_LOADS)),
        throughput_per_s=closed.throughput_per_s,
        response_s=closed.mean_response_s,
        open_s=open_s,
        simulated_per_s=(sent.size - 1) / float(sent[-1] - sent[0]),
        simulated_s=float(plan.response_s[settled].mean()),
        stall=_stall(p, plan, service_s),
    )


def _words(r: Loops) -> str:
    many = r.users > 1
    users, get = ("users", "get") if many else ("user", "gets")
    think = f"think{'' if many else 's'} {seconds(r.think_s)} on average"
    if not r.think_s:
        think = f"never pause{'' if many else 's'}"
    words = (
        f"{r.users} {users} who {think} {get} {rounded(r.throughput_per_s)} answers/s from a "
        f"server that can do {r.service_rate_per_s:.1f} ({percent(r.utilization)}), after "
        f"{seconds(r.response_s)} on average"
    )
    if np.isfinite(r.open_s):
        words += f"; arrivals that do not wait would, at that rate, take {seconds(r.open_s)}."
    else:
        words += "; arrivals that do not wait would, at that rate, queue without end."
    return words + _stall_words(r.stall)


def _stall_words(stall: Stall) -> str:
    if stall.length_s == 0:
        return (
            f" Nothing stalls in the run of {stall.requests:,} requests: the P99 is "
            f"{seconds(stall.p99_scheduled_s)} on both stopwatches."
        )
    words = (
        f" With a stall of {seconds(stall.length_s)} in the run of {stall.requests:,} requests, "
        f"the tool, which counts from sending, reports a P99 of {seconds(stall.p99_sent_s)}; from "
        f"the planned times it is {seconds(stall.p99_scheduled_s)}"
    )
    if not stall.late:
        return f"{words}: no request was sent late, so nothing was left out."
    return (
        f"{words}: {stall.late:,} requests were sent late, by {seconds(stall.mean_late_s)} on "
        "average, and the report leaves that out."
    )


def _tables(r: Loops) -> list[Table]:
    stall = r.stall
    return [
        {"loop": "closed", "users": _CURVE_USERS, "throughput_per_s": r.closed_per_s,
         "mean_s": r.closed_s},
        {"loop": "open", "throughput_per_s": r.open_per_s, "mean_s": r.open_curve_s},
        {"loop": "stalled run", "scheduled_s": stall.scheduled_s, "from_sent_s": stall.from_sent_s,
         "from_scheduled_s": stall.from_scheduled_s},
    ]  # fmt: skip


def _question(r: Loops) -> str:
    stall = r.stall
    if stall.length_s == 0:
        return (
            f"{r.users} workers, each pausing {seconds(r.think_s)} after an answer, load a server "
            f"that can do {r.service_rate_per_s:.1f} requests a second. What P99 will they report?"
        )
    return (
        f"In a run of {stall.requests:,} requests by {r.users} workers the server stands still "
        f"once, for {seconds(stall.length_s)}. The tool reports a P99 of "
        f"{seconds(stall.p99_sent_s)}. What is the P99 from the times at which the requests should "
        "have been sent?"
    )


loops = Explorer(
    call="explore.loops",
    title="Closed and open loops, and the stall that nobody measured",
    parameters=LoopsParameters,
    compute=_loops,
    drawing=LoopsPicture,
    narrate=_words,
    alt=(
        "Left: mean time in system against throughput as a share of the service rate. The open "
        "loop's curve rises without end near full load; the closed loop's stays below it and then "
        "climbs straight up at full load, user by user. Right: the time to the answer around a "
        "stall of the server, counted from sending, a narrow peak, and from the planned sending "
        "time, a broad triangle, with the P99 of each as a horizontal line."
    ),
    presets=(
        Preset(
            "A benchmark with 8 workers",
            "Eight workers send, wait for the answer, pause for 0.9 s and send again. Nothing goes "
            "wrong in the run.",
            "Your users come at the same rate, but do not wait for one another. Will they see the "
            "mean that the benchmark reports?",
            {"stall_s": 0.0},
        ),
        Preset(
            "The stall nobody measured",
            "The same benchmark, and once in five minutes the server stands still for 10 s.",
            "Only the eight requests in flight meet the stall on the tool's stopwatch. How many "
            "should have?",
            {"stall_s": 10.0},
        ),
        Preset(
            "Too many users",
            "60 users who pause for a second, before a server that can do ten requests a second.",
            "You let in twenty more. What happens to the throughput, and what to the latency?",
            {"users": 60, "think_s": 1.0, "stall_s": 0.0},
        ),
        Preset(
            "Think first",
            "The same 60 users read each answer for ten seconds before they ask again.",
            "Nobody bought a server. Where did the latency go?",
            {"users": 60, "think_s": 10.0, "stall_s": 0.0},
        ),
        Preset(
            "Full throttle",
            "Eight workers without a pause: the usual benchmark. The server stands still for 5 s.",
            "The report hardly shows the stall. Why does the plan never recover from it?",
            {"users": 8, "think_s": 0.0, "stall_s": 5.0},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_question,
        unit="s",
        answer=lambda r: r.stall.p99_scheduled_s,
        x=lambda r: 0.0,
    ),
)
