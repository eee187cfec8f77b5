"""The overload explorer: which gate meets which burst, and what it says; no engine is here."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from course.explore.ch05.timeline import END_S, burst_until_end, over_time
from course.figures.ch05.overload import (
    LoadCurve,
    Overload,
    OverloadPicture,
    Stretch,
)
from course.serving.engine import Admission, Patience, ServiceRun, simulate_service
from course.serving.requests import Status
from course.serving.scenes import burst as scenes
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, toggle
from course.words import percent, rounded

OPEN: Final = scenes.OPEN
_GATES = (OPEN, "bounded queue", "deadline-aware", "shorter answers")
SHORT_TOKENS: Final = 40
"""The gate "shorter answers" cuts to this."""
_LOADS = np.array([3.0, 11.0, 12.0, 13.5, 15.0, 18.0, 24.0])
_STEADY_S = 40.0


@dataclass(frozen=True)
class OverloadParameters:
    """The gate and its limit, and the load over time."""

    gate: str = choice(
        "deadline-aware", list(_GATES), label="Gate", help="Who is let in when there is too much",
    )  # fmt: skip
    max_wait_s: float = slider(
        2.0, 0.5, 9.5, 0.5, label="Longest wait let in", unit="s",
        help="Bounded queue: as many requests as are served in this time; the others: by waiting "
        "tokens / pace",
    )  # fmt: skip
    rate_per_s: float = slider(
        8.5, 2.0, 12.0, 0.1, label="Usual load", unit="requests/s",
        help="New requests a second before and after the burst",
    )  # fmt: skip
    burst_factor: float = slider(
        2.0, 1.0, 4.0, 0.1, label="Load in the burst", unit="times the usual",
        help="1 is no burst at all",
    )  # fmt: skip
    burst_s: float = slider(
        60.0, 10.0, 100.0, 5.0, label="Length of the burst", unit="s",
        help="The burst begins 80 s after the start",
    )  # fmt: skip
    noticed: bool = toggle(
        True, label="The server notices who has gone",
        help="It drops a request whose client gave up; otherwise it serves it to the end",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number draws other requests")


def limit_requests(max_wait_s: float) -> int:
    """Return the queue that the server works off in that time: capacity · wait, at least 1.

    >>> limit_requests(2.0)
    23
    """
    return max(round(scenes.capacity_per_s() * max_wait_s), 1)


def gate_of(gate: str, max_wait_s: float) -> Admission | None:
    """Return the gate of that name as the engine takes it."""
    if gate == "bounded queue":
        return Admission(max_waiting_requests=limit_requests(max_wait_s))
    if gate == "deadline-aware":
        return Admission(max_predicted_wait_s=max_wait_s)
    if gate == "shorter answers":
        return Admission(
            max_predicted_wait_s=max_wait_s,
            degrade_wait_s=max_wait_s / 4,
            degrade_to_tokens=SHORT_TOKENS,
        )
    return None


@lru_cache(maxsize=4)
def run_of(
    gate: str, max_wait_s: float, rate_per_s: float, factor: float, burst_s: float, noticed: bool,
    seed: int,
) -> ServiceRun:  # fmt: skip
    """Return the burst's run behind that gate; no client sends twice."""
    return scenes.run_burst(
        burst_until_end(rate_per_s, factor, burst_s),
        retry=scenes.RETRIES["no retry"],
        admission=gate_of(gate, max_wait_s),
        noticed=noticed,
        seed=seed,
    )


def _films(p: OverloadParameters) -> dict[str, ServiceRun]:
    """Return the runs that are watched: behind the gate that is set, and behind none."""
    rest = (p.max_wait_s, p.rate_per_s, p.burst_factor, p.burst_s, p.noticed, p.seed)
    return {gate: run_of(gate, *rest) for gate in dict.fromkeys((p.gate, OPEN))}


@lru_cache(maxsize=64)
def load_curve(gate: str, max_wait_s: float, noticed: bool, seed: int) -> LoadCurve:
    """Return goodput and attainment of that gate at each of some steady loads.

    Of the requests sent in the `_STEADY_S` after the start-up, by requests offered.
    """
    start_s, end_s = scenes.SETTLING_S, scenes.SETTLING_S + _STEADY_S
    patience = Patience(e2e_s=scenes.PATIENCE_S, noticed=noticed)
    good = np.zeros(_LOADS.size)
    for place, load in enumerate(_LOADS.tolist()):
        stretches = [(start_s, load), (_STEADY_S, load), (scenes.PATIENCE_S, load)]
        run = simulate_service(
            scenes.work_of(stretches, seed), scenes.cost(), scenes.config(), patience=patience,
            admission=gate_of(gate, max_wait_s),
        )  # fmt: skip
        good[place] = run.goodput_per_s(scenes.PROMISE, start_s, end_s) or 0.0
    return LoadCurve(_LOADS, good, good / _LOADS)


def _stretch(run: ServiceRun, good: np.ndarray, from_s: float, to_s: float) -> Stretch:
    there = (run.first_sent_s >= from_s) & (run.first_sent_s < to_s)
    offered = max(int(there.sum()), 1)

    def share(chosen: np.ndarray) -> float:
        return float((chosen & there).sum() / offered)

    return Stretch(
        offered_per_s=float(there.sum() / (to_s - from_s)),
        good_per_s=float((good & there).sum() / (to_s - from_s)),
        refused=share(run.status == Status.REJECTED),
        gave_up=share(run.status == Status.TIMED_OUT),
        cut_short=share(run.degraded & run.finished),
    )


def _overload(p: OverloadParameters) -> Overload:
    burst = burst_until_end(p.rate_per_s, p.burst_factor, p.burst_s)
    load = (p.rate_per_s, p.burst_factor, p.burst_s, p.noticed, p.seed)
    # What does not matter behind an open door must not make it run again.
    wait_s = 0.0 if p.gate == OPEN else p.max_wait_s
    run, open_run = run_of(p.gate, wait_s, *load), run_of(OPEN, 0.0, *load)
    parts = (burst.before, (burst.start_s, burst.end_s), (burst.end_s, END_S))
    good, open_good = run.good(scenes.PROMISE), open_run.good(scenes.PROMISE)
    own = [_stretch(run, good, *part) for part in parts]
    opened = [_stretch(open_run, open_good, *part) for part in parts]
    return Overload(
        gate=p.gate,
        max_wait_s=p.max_wait_s,
        limit_requests=limit_requests(p.max_wait_s),
        short_tokens=SHORT_TOKENS,
        patience_s=scenes.PATIENCE_S,
        rate_per_s=p.rate_per_s,
        burst_per_s=p.rate_per_s * p.burst_factor,
        capacity_per_s=scenes.capacity_per_s(),
        time=over_time(run, burst, good),
        open_time=over_time(open_run, burst, open_good),
        stretches=(own[0], own[1], own[2]),
        open_stretches=(opened[0], opened[1], opened[2]),
        curve=load_curve(p.gate, wait_s, p.noticed, p.seed),
        open_curve=load_curve(OPEN, 0.0, p.noticed, p.seed),
    )


def _words(r: Overload) -> str:
    before, during, after = r.stretches
    load = _load_words(r)
    fate = _fates(during)
    good = f"{rounded(during.good_per_s)} a second ({percent(round(during.attainment, 2))})"
    around = (
        ""
        if r.calm
        else (
            f" Before it {percent(round(before.attainment, 2))} are answered in time, after it "
            f"{percent(round(after.attainment, 2))}."
        )
    )
    if r.is_open:
        return (
            f"{load}; all are accepted, and {good} are answered within {r.patience_s:g} s{fate}."
            f"{around}"
        )
    opened = r.open_stretches[1]
    against = f"{rounded(opened.good_per_s)} ({percent(round(opened.attainment, 2))})"
    return (
        f"{load}. With {_gate_words(r)}, {good} are answered within {r.patience_s:g} s{fate}; with "
        f"everything accepted it would be {against}.{around}"
    )


def _load_words(r: Overload) -> str:
    when = "No burst: " if r.calm else "In the burst "
    return (
        f"{when}{rounded(r.burst_per_s)} requests a second come to a server that can do "
        f"{rounded(r.capacity_per_s)}"
    )


def _gate_words(r: Overload) -> str:
    """What the gate does, as the end of "With …" and of "There is …"."""
    return {
        "bounded queue": f"room for {r.limit_requests} in the queue",
        "deadline-aware": f"a refusal for whoever would wait over {r.max_wait_s:g} s",
        "shorter answers": (
            f"answers cut to {r.short_tokens} tokens behind a wait of "
            f"{r.max_wait_s / 4:g} s, and refusals behind {r.max_wait_s:g} s"
        ),
    }[r.gate]


def _fates(stretch: Stretch) -> str:
    """What became of the others, and how many answers were cut."""
    shares = (
        (stretch.refused, "are refused at once"),
        (stretch.gave_up, "give up waiting"),
        (stretch.cut_short, "get a shorter answer"),
    )
    parts = [f"{percent(round(share, 2))} {what}" for share, what in shares if share >= 0.005]
    return f" ({', '.join(parts)})" if parts else ""


def _question(r: Overload) -> str:
    gate = "Everything is accepted" if r.is_open else f"There is {_gate_words(r)}"
    return (
        f"{_load_words(r)}; clients wait {r.patience_s:g} s. {gate}. How many of these requests "
        "are answered in time, a second?"
    )


def _tables(r: Overload) -> list[Table]:
    gates = (
        (r.gate, r.time, r.curve), (f"{OPEN} (compared)", r.open_time, r.open_curve),
    )  # fmt: skip
    return [
        {"gate": gate, "against": against, "offered_per_s": part.offered_per_s,
         "good_per_s": part.good_per_s, **start}
        for gate, time, curve in gates
        for against, part, start in (
            ("time", time, {"start_s": time.edges_s[:-1]}), ("load", curve, {}),
        )
    ]  # fmt: skip


overload = Explorer(
    call="explore.overload",
    title="Overload with and without admission",
    parameters=OverloadParameters,
    compute=_overload,
    filmed=_films,
    drawing=OverloadPicture,
    narrate=_words,
    alt=(
        "Four panels. On the left goodput and attainment over 300 s with a burst shaded, on the "
        "right the same against a steady offered load. An orange dashed line is the server that "
        "accepts everything, a blue one the chosen gate; dotted are the load offered and the "
        "capacity."
    ),
    presets=(
        Preset(
            "Accept everything",
            "For a minute twice as many requests come as usual, half more than the server can do. "
            "It lets everybody in, and clients wait ten seconds.",
            "The server is as fast as ever. Where do its good answers go?",
            {"gate": OPEN},
        ),
        Preset(
            "Bounded queue",
            "The same minute with a queue that holds two seconds of work; who finds it full is "
            "refused at once.",
            "Some are refused. How many more are answered than before?",
            {"gate": "bounded queue"},
        ),
        Preset(
            "Deadline-aware",
            "Refused is who would wait for over two seconds, by the tokens that wait and the pace.",
            "Clients wait for ten seconds. Would a limit of eight answer more of them?",
            {"gate": "deadline-aware"},
        ),
        Preset(
            "Shorter answers",
            "Behind half a second of waiting answers are cut to 40 tokens, behind two seconds the "
            "door is closed.",
            "More people get an answer, and a shorter one. Would you do that to yours?",
            {"gate": "shorter answers"},
        ),
        Preset(
            "A quiet day",
            "No burst, and less than half of what the server can do.",
            "What does the gate cost when there is nothing to refuse?",
            {"rate_per_s": 5.0, "burst_factor": 1.0},
        ),
    ),
    tables=_tables,
    idle=lambda p: ("max_wait_s",) if p.gate == OPEN else (),
    prediction=Prediction(
        question=_question,
        unit="good answers/s",
        answer=lambda r: r.stretches[1].good_per_s,
        x=lambda r: sum(r.time.burst_s) / 2,
    ),
)
