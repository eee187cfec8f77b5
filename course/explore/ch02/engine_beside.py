"""The engine beside M/M/1: what it varies, simulates and says; no scheduling rule, no formula."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from course.figures.ch02.engine_beside import EngineBeside, EngineBesidePicture
from course.serving import queueing
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import RooflineStepCost
from course.serving.workload import Lognormal, Poisson, Workload, draw
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider
from course.words import percent, rounded, seconds

_LOADS = np.array([0.05, 0.15, 0.3, 0.45, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0, 1.08])
_MM1_LOADS = 1 - np.geomspace(0.99, 1e-3, 120)
_REQUESTS = 2500
# Lengths of a chat: prompts of about 330 tokens in the middle, answers of 150 on average.
_PROMPT, _OUTPUT = Lognormal(5.8, 0.8), Lognormal(4.76, 0.7)


@dataclass(frozen=True)
class EngineBesideParameters:
    """How many requests the server may run at once, how much of its capacity is used, and luck."""

    load: float = slider(
        0.5, 0.05, 1.1, 0.01, label="Arrivals, share of capacity",
        help="1 is the most requests a second that this server can finish",
    )  # fmt: skip
    seats: int = choice(
        64, {"1 (no batching)": 1, "4": 4, "16": 16, "64": 64, "256": 256},
        label="Seats (max_num_seqs)", help="How many requests may be in the batch at once",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number draws other requests")


def config(seats: int) -> EngineConfig:
    """Return the engine's dials with so many seats."""
    return EngineConfig(max_num_seqs=seats, max_num_batched_tokens=8192)


@lru_cache(maxsize=32)
def requests_of(seed: int) -> Workload:
    """The same requests at every load: only the clock of their arrivals is scaled."""
    return draw(_REQUESTS, Poisson(1.0), _PROMPT, _OUTPUT, seed=seed)


@lru_cache(maxsize=32)
def capacity_per_s(seats: int, seed: int) -> float:
    """Requests a second while there are always enough of them: the middle of a long backlog."""
    work = requests_of(seed)
    backlog = Workload(np.zeros(len(work)), work.prompt_tokens, work.output_tokens)
    finish = np.sort(simulate(backlog, cost(), config(seats)).finish_s)
    first, last = len(work) // 5, 4 * len(work) // 5
    return float((last - first) / (finish[last] - finish[first]))


def cost() -> Any:
    """Return what a step of the engine costs."""
    return RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")


@lru_cache(maxsize=512)
def _times(load: float, seats: int, seed: int) -> tuple[float, float]:
    """Mean time in system and mean wait before the first step, in s, at one load."""
    work = requests_of(seed).scaled(load * capacity_per_s(seats, seed))
    run = simulate(work, cost(), config(seats))
    return float(np.mean(run.e2e_s)), float(np.mean(run.scheduled_s - run.arrival_s))


@lru_cache(maxsize=32)
def _lone_request_s(seed: int) -> float:
    """Mean time in system of the same requests when each finds the server empty."""
    work = requests_of(seed)
    apart = Workload(1e4 * np.arange(len(work)), work.prompt_tokens, work.output_tokens)
    return float(np.mean(simulate(apart, cost(), config(1)).e2e_s))


def _engine_beside(p: EngineBesideParameters) -> EngineBeside:
    capacity = capacity_per_s(p.seats, p.seed)
    sweep = np.array([_times(float(load), p.seats, p.seed) for load in _LOADS])
    mm1 = [queueing.mm1(load * capacity, capacity) for load in _MM1_LOADS]
    e2e, wait = _times(p.load, p.seats, p.seed)
    here = queueing.mm1(p.load * capacity, capacity) if p.load < 1 else None
    return EngineBeside(
        capacity_per_s=capacity,
        seats=p.seats,
        load=_LOADS,
        engine_e2e_s=sweep[:, 0],
        engine_wait_s=sweep[:, 1],
        mm1_load=_MM1_LOADS,
        mm1_sojourn_s=np.array([q.mean_sojourn_s for q in mm1]),
        mm1_wait_s=np.array([q.mean_wait_s for q in mm1]),
        here_load=p.load,
        here_e2e_s=e2e,
        here_wait_s=wait,
        here_mm1_sojourn_s=here.mean_sojourn_s if here else float("inf"),
        here_mm1_wait_s=here.mean_wait_s if here else float("inf"),
        floor_s=_lone_request_s(p.seed),
    )


def _engine_beside_words(r: EngineBeside) -> str:
    seats = "one request at a time" if r.seats == 1 else f"up to {r.seats} requests at once"
    rate = r.here_load * r.capacity_per_s
    head = (
        f"Serving {seats}, this server can finish {rounded(r.capacity_per_s)} requests/s; at "
        f"{rounded(rate)}/s ({percent(r.here_load)})"
    )
    if not r.stable:
        return (
            f"{head} more arrives than it can finish: over these {_REQUESTS:,} requests the mean "
            f"time in system is {seconds(r.here_e2e_s)}, and it would grow with every further one. "
            "M/M/1 has no steady state either."
        )
    return (
        f"{head} a request spends {seconds(r.here_e2e_s)} in it, {seconds(r.here_wait_s)} of that "
        f"waiting for its first step. M/M/1 of the same capacity says "
        f"{seconds(r.here_mm1_sojourn_s)} and {seconds(r.here_mm1_wait_s)}. A request alone in the "
        f"server takes {seconds(r.floor_s)}."
    )


def _engine_beside_question(r: EngineBeside) -> str:
    if not r.stable:
        return (
            f"{percent(r.here_load)} of what the server can finish arrives. What is the mean time "
            f"in system of the first {_REQUESTS:,} requests?"
        )
    return (
        f"M/M/1 of the same capacity spends {seconds(r.here_mm1_sojourn_s)} on a request at this "
        f"load ({percent(r.here_load)}). How long does the batching server take?"
    )


def _tables(r: EngineBeside) -> list[Table]:
    return [
        {"load": r.load, "time_in_system_s": r.engine_e2e_s, "wait_s": r.engine_wait_s,
         "source": "engine"},
        {"load": r.mm1_load, "time_in_system_s": r.mm1_sojourn_s, "wait_s": r.mm1_wait_s,
         "source": "M/M/1"},
    ]  # fmt: skip


engine_beside_mm1 = Explorer(
    call="explore.engine_beside_mm1",
    title="An LLM server beside M/M/1 of the same capacity",
    parameters=EngineBesideParameters,
    compute=_engine_beside,
    drawing=EngineBesidePicture,
    narrate=_engine_beside_words,
    alt=(
        "Two panels over the share of capacity in use, times on a logarithmic scale. Left, time in "
        "system: M/M/1 starts far below the server, whose curve lies on the floor of a lone "
        "request and bends up only near capacity. Right, the wait before the first step: the "
        "server's is far below that of M/M/1 until close to capacity, where both explode."
    ),
    presets=(
        Preset(
            "A chat server",
            "An 8-billion-parameter model on one H100, up to 64 chats at once, half loaded.",
            "Is a request faster or slower here than M/M/1 of the same capacity says?",
            {"load": 0.5, "seats": 64},
        ),
        Preset(
            "Close to the edge",
            "The same server at 95 % of what it can do.",
            "Whose bend comes later, and whose is sharper?",
            {"load": 0.95, "seats": 64},
        ),
        Preset(
            "One at a time",
            "Batching switched off: one seat, as in section 1.",
            "Now the two should agree. What is still different?",
            {"load": 0.5, "seats": 1},
        ),
        Preset(
            "Past the edge",
            "Eight per cent more arrives than the server can finish.",
            "What would this picture show if we let it run for twice as long?",
            {"load": 1.08, "seats": 64},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_engine_beside_question,
        unit="s",
        answer=lambda r: r.here_e2e_s,
    ),
)
