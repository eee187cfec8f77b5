"""The 20-is-not-25 explorer: how much comes for how long; the replica is run by the engine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import Final

import numpy as np

from course.explore.ch06.servers import BLOCK, BUDGET, SEATS, SERVERS, TraceTraffic, step_cost
from course.figures.ch06.twenty_is_not_25 import OneEvent, OneEventPicture
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.load import Scenario, Sweep, measure, sweep
from course.serving.requests import SLO
from course.serving.workload import Workload
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider
from course.words import percent, rounded, seconds

SERVER: Final = "Llama-3.1-8B on one H100"
_QUANTILE = 0.99
_MARKS = 400
_FEW, _A_MOMENT = 5, 60  # waiting: nobody worth mentioning; a queue that comes and goes

# Length of the event in minutes → minutes before it, minutes after it, seconds of a bar.
_SPANS: Final = {
    0.25: (2.0, 2.75, 5.0), 0.5: (2.0, 3.5, 5.0), 1.0: (2.0, 4.0, 10.0), 2.0: (3.0, 7.0, 10.0),
    5.0: (4.0, 11.0, 20.0), 10.0: (5.0, 15.0, 30.0), 30.0: (5.0, 25.0, 60.0),
    60.0: (6.0, 40.0, 120.0),
}  # fmt: skip

# The sweep that says what this replica holds: three seeds are enough for its centre.
_LOADS: Final = (14, 17, 19, 20, 20.5, 21, 21.5, 22, 24, 28)
_SEEDS, _REQUESTS, _LONG = 3, 3200, 20_000


@dataclass(frozen=True)
class TwentyIsNot25Parameters:
    """What usually comes to one replica, what comes for a while, and whether a neighbour fails."""

    usual_per_s: float = slider(
        15.0, 5.0, 24.0, 0.5, label="Usually", unit="requests/s",
        help="What comes to this replica before and after",
    )  # fmt: skip
    peak_per_s: float = slider(
        25.0, 5.0, 40.0, 0.5, label="For a while", unit="requests/s",
        help="What comes to this replica meanwhile",
    )  # fmt: skip
    minutes: float = choice(
        1.0,
        {
            "15 seconds": 0.25, "30 seconds": 0.5, "a minute": 1.0, "2 minutes": 2.0,
            "5 minutes": 5.0, "10 minutes": 10.0, "30 minutes": 30.0, "an hour": 60.0,
        },
        label="How long", help="How long the while lasts",
    )  # fmt: skip
    fails: int = choice(
        0,
        {
            "no replica fails": 0, "one of two": 2, "one of three": 3, "one of four": 4,
            "one of eight": 8,
        },
        label="And meanwhile fails",
        help="The others of the fleet share its load evenly, and what it was working on is sent "
        "again to them",
    )  # fmt: skip
    ttft_limit_s: float = slider(
        1.0, 0.1, 5.0, 0.1, label="Promise: first token within", unit="s",
        help="For 99 % of the requests",
    )  # fmt: skip
    seed: int = count(
        1, 1, 20, label="Luck (seed)", help="Another number draws other random requests"
    )


def _config() -> EngineConfig:
    cost = step_cost(*SERVERS[SERVER])
    assert cost is not None
    return EngineConfig(SEATS, BUDGET, num_kv_blocks=cost.kv_blocks(BLOCK), block_size=BLOCK)


@lru_cache(maxsize=1)
def swept() -> Sweep:
    """Return the sweep of this replica, each load for minutes."""
    cost = step_cost(*SERVERS[SERVER])
    assert cost is not None
    scenario = Scenario(cost, TraceTraffic(), _config(), requests=_REQUESTS)
    return sweep(scenario, _LOADS, range(_SEEDS), progress=False)


@lru_cache(maxsize=64)
def held_per_s(ttft_limit_s: float) -> float:
    """Return the load that the sweep finds inside the promise; 0 where there is none."""
    knee = swept().knee("slo", SLO(ttft_s=ttft_limit_s, quantile=_QUANTILE))
    if knee.load is None:
        return 0.0 if knee.reason == "saturated" else float(_LOADS[-1])
    return knee.load


@lru_cache(maxsize=1)
def most_per_s() -> float:
    """Return the requests/s that the replica finishes while far more come: a quarter of an hour."""
    scenario = replace(swept().scenario, requests=_LONG)
    return measure(scenario.run(_LOADS[-1], 0), _LOADS[-1], 0).requests_per_s


# --- one event -----------------------------------------------------------------------------------


def _factor(p: TwentyIsNot25Parameters) -> float:
    """How much more a replica gets when one of the fleet is gone."""
    return p.fails / (p.fails - 1) if p.fails else 1.0


def rates_of(p: TwentyIsNot25Parameters) -> tuple[np.ndarray, np.ndarray]:
    """Return (edges in s, requests/s between them) of what comes to the replica."""
    before, after, _ = _SPANS[p.minutes]
    edges_s = 60 * np.array([0.0, before, before + p.minutes, before + p.minutes + after])
    return edges_s, np.array([p.usual_per_s, p.peak_per_s * _factor(p), p.usual_per_s])


def _arriving(edges_s: np.ndarray, rates: np.ndarray, seed: int) -> Workload:
    """Requests of the chat at rates that change: the same ones in the same order at any rate."""
    expected = np.concatenate([[0.0], np.cumsum(rates * np.diff(edges_s))])
    most = int(expected[-1] + 6 * np.sqrt(expected[-1]) + 10)
    # One draw serves many rates: the sizes come in powers of two.
    work = TraceTraffic().draw(1 << most.bit_length(), seed)
    unit = work.arrival_s * work.rate_per_s
    coming = int(np.searchsorted(unit, expected[-1]))
    arrival_s = np.interp(unit[:coming], expected, edges_s)
    return Workload(arrival_s, work.prompt_tokens[:coming], work.output_tokens[:coming])


def _with_resent(work: Workload, edges_s: np.ndarray, p: TwentyIsNot25Parameters) -> Workload:
    """Add what the failing replica had not finished: each survivor gets its share at once."""
    usual = np.array([p.usual_per_s])
    there = _arriving(edges_s[:2], usual, p.seed + 1000)
    run = _run(there)
    lost = np.flatnonzero(run.finish_s > edges_s[1])[:: p.fails - 1]
    arrival_s = np.concatenate([work.arrival_s, np.full(lost.size, edges_s[1])])
    order = np.argsort(arrival_s, kind="stable")
    return Workload(
        arrival_s[order],
        np.concatenate([work.prompt_tokens, there.prompt_tokens[lost]])[order],
        np.concatenate([work.output_tokens, there.output_tokens[lost]])[order],
    )


def _run(work: Workload) -> Run:
    cost = step_cost(*SERVERS[SERVER])
    assert cost is not None
    return simulate(work, cost, _config(), progress=False)


@lru_cache(maxsize=2)
def event(p: TwentyIsNot25Parameters) -> Run:
    """Return the run of one event; the promise changes nothing in it."""
    edges_s, rates = rates_of(p)
    work = _arriving(edges_s, rates, p.seed)
    return _run(_with_resent(work, edges_s, p) if p.fails else work)


def _twenty_is_not_25(p: TwentyIsNot25Parameters) -> OneEvent:
    run = event(replace(p, ttft_limit_s=1.0))
    edges_s, rates = rates_of(p)
    bar_s = _SPANS[p.minutes][2]
    bars_s = np.arange(round(edges_s[-1] / bar_s) + 1) * bar_s
    taken_s, left_s = np.sort(run.scheduled_s), np.sort(run.finish_s)
    at_s = np.linspace(0, edges_s[-1], _MARKS)
    arrived = np.searchsorted(run.arrival_s, at_s, side="right")
    taken = np.searchsorted(taken_s, at_s, side="right")
    gone = np.searchsorted(left_s, at_s, side="right")
    first = np.searchsorted(run.arrival_s, bars_s)
    during = slice(*np.searchsorted(run.arrival_s, edges_s[1:3]))
    here, ttft_s = run.ttft_s[during], run.ttft_s
    return OneEvent(
        usual_per_s=p.usual_per_s,
        event_per_s=float(rates[1]),
        fails=p.fails,
        own_per_s=p.peak_per_s,
        edges_min=edges_s / 60,
        bars_min=bars_s / 60,
        arrived_per_s=np.diff(first) / bar_s,
        finished_per_s=np.diff(np.searchsorted(left_s, bars_s)) / bar_s,
        ttft_p99_s=_tails(ttft_s, first),
        at_min=at_s / 60,
        waiting=arrived - taken,
        running=taken - gone,
        ttft_limit_s=p.ttft_limit_s,
        quantile=_QUANTILE,
        held_per_s=held_per_s(p.ttft_limit_s),
        most_per_s=most_per_s(),
        kept_share=float((here <= p.ttft_limit_s).mean()),
        event_p99_s=float(np.quantile(here, _QUANTILE)),
        event_finished_per_s=float(
            np.diff(np.searchsorted(left_s, edges_s[1:3]))[0] / (edges_s[2] - edges_s[1])
        ),
        all_kept_share=float((ttft_s <= p.ttft_limit_s).mean()),
        most_waiting=_most_waiting(run.arrival_s, taken_s),
        last_seated_s=max(0.0, float(run.scheduled_s[during].max() - edges_s[2])),
        drained_s=_drained_s(run.arrival_s, taken_s, edges_s),
    )


def _tails(ttft_s: np.ndarray, first: np.ndarray) -> np.ndarray:
    """The P99 of the requests that came in each bar, between ranks straight; NaN where none did."""
    return np.array([_tail(np.sort(ttft_s[a:b])) for a, b in pairwise(first)])


def _tail(in_order: np.ndarray) -> float:
    # np.quantile of one bar takes ten times as long, and there are dozens of bars.
    if not in_order.size:
        return float("nan")
    rank = _QUANTILE * (in_order.size - 1)
    below = int(rank)
    above = min(below + 1, in_order.size - 1)
    return float(in_order[below] + (rank - below) * (in_order[above] - in_order[below]))


def _most_waiting(arrival_s: np.ndarray, taken_s: np.ndarray) -> int:
    """The longest queue: it is longest just when somebody has come, who is counted too."""
    come = np.arange(1, arrival_s.size + 1)
    return int((come - np.searchsorted(taken_s, arrival_s, side="right")).max())


def _drained_s(arrival_s: np.ndarray, taken_s: np.ndarray, edges_s: np.ndarray) -> float | None:
    """Seconds from the end of the event until hardly anybody waits; None: not in the picture."""
    end_s, picture_ends_s = edges_s[2:]
    waiting = np.searchsorted(arrival_s, taken_s, side="right") - np.arange(1, taken_s.size + 1)
    inside = (taken_s >= end_s) & (taken_s <= picture_ends_s)
    done = np.flatnonzero(inside & (waiting <= _FEW))
    return float(taken_s[done[0]] - end_s) if done.size else None


# --- words ---------------------------------------------------------------------------------------


def long(minutes: float) -> str:
    """Return the length of the event as people say it.

    >>> [long(m) for m in (0.25, 1.0, 10.0, 60.0)]
    ['15 seconds', 'a minute', '10 minutes', 'an hour']
    """
    if minutes < 1:
        return f"{60 * minutes:.0f} seconds"
    return {1.0: "a minute", 60.0: "an hour"}.get(minutes, f"{minutes:.0f} minutes")


def _words(r: OneEvent) -> str:
    return f"{_event_words(r)} {_queue_words(r)} {_verdict(r)}"


def _event_words(r: OneEvent) -> str:
    came = f"For {long(r.minutes)} {rounded(r.event_per_s)} requests/s come to this replica"
    if r.fails:
        one = {2: "two", 3: "three", 4: "four", 8: "eight"}[r.fails]
        came += f", its own {rounded(r.own_per_s)} and its share of what one of {one} left behind"
    return (
        f"{came}; it finishes {rounded(r.event_finished_per_s)} a second meanwhile. "
        f"{percent(round(r.kept_share, 3))} of those that came then had their first token within "
        f"{seconds(r.ttft_limit_s)}; their P99 was {seconds(r.event_p99_s)}."
    )


def _queue_words(r: OneEvent) -> str:
    most = r.most_waiting
    if most <= _FEW:
        return "Hardly anybody ever waited for a seat."
    ahead = f"At the worst {most:,} waited for a seat"
    if r.drained_s is None:
        return f"{ahead}, and when the picture ends {int(r.waiting[-1]):,} still do."
    if most <= _A_MOMENT:
        return f"{ahead}, and none of them for long."
    if not r.last_seated_s:
        return f"{ahead}, and {_span(r.drained_s)} after it was over the queue was gone."
    return (
        f"{ahead}; the last one that came in that time got it {_span(r.last_seated_s)} after it "
        f"was over, and the queue was gone after {_span(r.drained_s)}."
    )


def _span(time_s: float) -> str:
    return f"{rounded(time_s, 2)} s" if time_s < 100 else f"{rounded(time_s / 60, 2)} minutes"


def _verdict(r: OneEvent) -> str:
    held = (
        f"inside the promise it holds {rounded(r.held_per_s)} requests/s"
        if r.held_per_s
        else "no load of the sweep is inside the promise"
    )
    return (
        f"A sweep says of this replica: {held}, and however many more come, it finishes no more "
        f"than about {rounded(r.most_per_s)} a second in the long run."
    )


def _tables(r: OneEvent) -> Table:
    return {
        "from_min": r.bars_min[:-1],
        "until_min": r.bars_min[1:],
        "arrived_per_s": r.arrived_per_s,
        "finished_per_s": r.finished_per_s,
        "ttft_p99_s": r.ttft_p99_s,
        "waiting_at_the_end": np.interp(r.bars_min[1:], r.at_min, r.waiting).round(),
    }


def _question(r: OneEvent) -> str:
    usual = f"{rounded(r.usual_per_s)} requests/s usually come"
    return (
        f"{usual} to a replica that can finish about {rounded(r.most_per_s)}. Then "
        f"{rounded(r.event_per_s)} come for {long(r.minutes)}. What is the P99 of the time to "
        "first token of those that come meanwhile?"
    )


twenty_is_not_25 = Explorer(
    call="explore.twenty_is_not_25",
    title="20 is not 25: what a replica gets through, and what it can be trusted with",
    parameters=TwentyIsNot25Parameters,
    compute=_twenty_is_not_25,
    drawing=OneEventPicture,
    narrate=_words,
    alt=(
        "Three panels over the minutes of one event, whose time is shaded. Above, requests a "
        "second that arrive and that finish, with a level line for what the replica holds inside "
        "its promise. In the middle, how many run and how many wait for a seat. Below, on a "
        "logarithmic scale, the P99 time to first token of the requests that came in each short "
        "stretch, with its limit."
    ),
    presets=(
        Preset(
            "A minute at 25",
            "Usually 15 requests/s; for one minute 25 come. All of them are answered in the end, "
            "and the log says that the replica ran 25 requests/s.",
            "Did it? Which of the three panels would you show to whoever says so?",
            {"usual_per_s": 15.0, "peak_per_s": 25.0, "minutes": 1.0},
        ),
        Preset(
            "An hour at 25",
            "The same 25 requests/s, and they stay for an hour.",
            "How long is the queue after ten minutes, after sixty? Which figure of the minute "
            "would have told you?",
            {"usual_per_s": 15.0, "peak_per_s": 25.0, "minutes": 60.0},
        ),
        Preset(
            "An hour at 20",
            "Five requests/s fewer, for an hour.",
            "A fifth less load. How many times shorter is the wait?",
            {"usual_per_s": 15.0, "peak_per_s": 20.0, "minutes": 60.0},
        ),
        Preset(
            "20 with a failing replica",
            "Four replicas at 20 requests/s each, all of them inside their promise. One fails for "
            "ten minutes.",
            "Each held 20 an hour long. What load on each would have survived this?",
            {"usual_per_s": 20.0, "peak_per_s": 20.0, "minutes": 10.0, "fails": 4},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_question,
        unit="s",
        answer=lambda r: r.event_p99_s,
        mark=lambda r, guess: (float(r.edges_min[1:3].mean()), guess),
    ),
)
