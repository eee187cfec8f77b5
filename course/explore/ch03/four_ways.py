"""The four-ways explorer: which requests, which ways to batch, and what it says; the ways are
simulated in ``course.serving.engine``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from course.figures.ch03.four_ways import FourWays, FourWaysPicture, WayRun, step_number
from course.serving.engine import EngineConfig, Run, modes, simulate
from course.serving.pricing import RooflineStepCost
from course.serving.workload import Workload
from course.ui import Explorer, Prediction, Preset, Table, choice, count, play, slider, stops
from course.words import percent, seconds

PROMPT_TOKENS: Final = 1500
"""Of every request: long enough for its prefill to be seen in the picture."""
_MOST = 32
# No prompt is ever cut: the picture is about who waits for whom.
_BUDGET = _MOST * PROMPT_TOKENS + _MOST

_ANSWERS = {
    "of all lengths (8 to 300 tokens)": "mixed",
    "one of 300 among 40s": "one long",
    "all of 60 tokens": "alike",
    "all of 15 tokens": "short",
}
_WAYS = {
    "all four": ("single", "static", "windowed", "continuous"),
    "static and continuous": ("static", "continuous"),
    "windowed and continuous": ("windowed", "continuous"),
    "windowed, adaptive, continuous": ("windowed", "adaptive", "continuous"),
    "single": ("single",),
    "static": ("static",),
    "continuous": ("continuous",),
}


@dataclass(frozen=True)
class FourWaysParameters:
    """The requests, the seats, the wait window, and which ways are compared."""

    ways: tuple[str, ...] = choice(
        _WAYS["all four"], _WAYS, label="Ways to batch",
        help="Each is given the same requests at the same times",
    )  # fmt: skip
    played: int = play(
        100, 0, 100, label="Played", unit="%",
        help="How much of the time has passed: press play and watch the rows grow",
    )  # fmt: skip
    requests: int = stops(
        8, (4, 6, 8, 12, 16, 24, 32), label="Requests", help="A row of the picture each",
    )  # fmt: skip
    traffic: str = choice(
        "random", {"at random": "random", "quiet, then busy": "quiet then busy",
                   "all at once": "all at once"},
        label="Arrivals", help="Quiet: a quarter of the rate, for the first third of the requests",
    )  # fmt: skip
    rate_per_s: float = slider(
        8.0, 0.5, 40.0, 0.5, label="Arrival rate", unit="requests/s",
        help="How many requests come each second, on average",
    )  # fmt: skip
    answers: str = choice(
        "mixed", _ANSWERS, label="Answers", help="How many tokens each request asks for",
    )  # fmt: skip
    seats: int = stops(
        4, (1, 2, 4, 8, 16, 32), label="Seats", unit="size of a static batch",
        help="How many requests may run together (max_num_seqs); single has only one",
    )  # fmt: skip
    window_ms: float = slider(
        300.0, 0.0, 1000.0, 10.0, label="Wait window w", unit="ms",
        help="How long an idle engine waits for company (static, windowed, adaptive)",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number draws other requests")


@lru_cache(maxsize=1)
def _cost() -> RooflineStepCost:
    return RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")


@lru_cache(maxsize=64)
def _draws(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Unit-mean gaps and mixed lengths of the most requests: fewer are the first of them."""
    rng = np.random.default_rng(seed)
    gaps = rng.exponential(size=_MOST)
    lengths = np.clip(rng.lognormal(4.0, 0.7, size=_MOST), 8, 300).astype(int)
    return gaps, lengths


def work_of(p: FourWaysParameters) -> Workload:
    """Return the requests that every way is given."""
    gaps, mixed = _draws(p.seed)
    gaps = gaps[: p.requests].copy()
    gaps[0] = 0.0
    if p.traffic == "quiet then busy":
        gaps[: p.requests // 3] *= 4
    arrival = np.zeros(p.requests) if p.traffic == "all at once" else gaps.cumsum() / p.rate_per_s
    output = {
        "mixed": mixed[: p.requests],
        "one long": np.where(np.arange(p.requests) == 1, 300, 40),
        "alike": np.full(p.requests, 60),
        "short": np.full(p.requests, 15),
    }[p.answers]
    return Workload(arrival, np.full(p.requests, PROMPT_TOKENS), output)


def batching_of(way: str, seats: int, window_s: float) -> modes.Batching:
    """Return the engine's way of that name."""
    made = {
        "single": modes.single(),
        "static": modes.static(seats, window_s),
        "windowed": modes.windowed(window_s),
        "adaptive": modes.adaptive(window_s),
        "continuous": modes.continuous(),
    }
    return made[way]


def run_of(way: str, p: FourWaysParameters) -> Run:
    """Return one way's run of the requests (`ways` and `played` do not matter here)."""
    batching = batching_of(way, p.seats, p.window_ms / 1e3)
    config = EngineConfig(max_num_seqs=p.seats, max_num_batched_tokens=_BUDGET, batching=batching)
    return simulate(work_of(p), _cost(), config)


@lru_cache(maxsize=128)
def _ran(way: str, p: FourWaysParameters) -> WayRun:
    run = run_of(way, p)
    starts, idle_from = _busy_periods(run)
    slot_end = run.finish_s.copy()
    if run.batch is not None:
        for number in np.unique(run.batch):
            members = run.batch == number
            slot_end[members] = run.finish_s[members].max()
    return WayRun(
        name=_name(way, p),
        arrival_s=run.arrival_s,
        held_s=_held(run, starts, idle_from),
        scheduled_s=run.scheduled_s,
        first_token_s=run.first_token_s,
        finish_s=run.finish_s,
        slot_end_s=slot_end,
        token_s=np.sort(np.concatenate([run.token_times(i) for i in range(len(run))])),
        step_end_s=run.step_end_s,
        busy_s=float(run.end_s - (starts - idle_from).sum()),
        wasted_share=_wasted_share(run),
    )


def _name(way: str, p: FourWaysParameters) -> str:
    window = f"{p.window_ms:g} ms"
    return {
        "single": "single: one at a time",
        "static": f"static: {p.seats} together, or after {window}",
        "windowed": f"windowed: an idle engine waits {window}",
        "adaptive": f"adaptive: waits {window}, if company is likely",
        "continuous": f"continuous: up to {p.seats}, join and leave at any step",
    }[way]


def _busy_periods(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """When an idle engine started, and since when it had been idle: arrays (starts,) of seconds."""
    starts = np.unique(run.scheduled_s)
    ended = np.concatenate([[0.0], run.step_end_s])
    idle_from = ended[np.searchsorted(run.step_end_s, starts, side="right")]
    first = starts > idle_from
    return starts[first], idle_from[first]


def _held(run: Run, starts: np.ndarray, idle_from: np.ndarray) -> np.ndarray:
    """Since when each request waited for an engine that had nothing to do: (requests,) seconds."""
    held = run.scheduled_s.copy()
    for start, since in zip(starts, idle_from, strict=True):
        together = run.scheduled_s == start
        held[together] = np.maximum(run.arrival_s[together], since)
    return held


def _wasted_share(run: Run) -> float:
    """Of all steps' decode slots, those whose request was over: 0 unless batches are static."""
    slots = int(run.step_decode_seqs.sum())
    useful = int((run.work.output_tokens - 1).sum())
    return 1 - useful / slots if slots else 0.0


def _four_ways(p: FourWaysParameters) -> FourWays:
    from dataclasses import replace

    same = replace(p, ways=("single",), played=100)
    runs = tuple(_ran(way, same) for way in p.ways)
    return FourWays(runs=runs, seats=p.seats, window_s=p.window_ms / 1e3, played=p.played)


def _words(r: FourWays) -> str:
    if not r.over:
        return _words_now(r)
    seats = f"{r.seats} seat{'' if r.seats == 1 else 's'}"
    if {"static", "windowed", "adaptive"} & {_way(run) for run in r.runs}:
        seats += f", a window of {seconds(r.window_s)}"
    parts = []
    for run in r.runs:
        part = f"{_way(run)} is through after {seconds(run.done_s)}"
        part += f", mean TTFT {seconds(run.mean_ttft_s)}"
        if run.wasted_share > 0:
            part += f", {percent(round(run.wasted_share, 2))} of its decode slots wasted"
        parts.append(part)
    return f"{r.requests} requests, {seats}: {'; '.join(parts)}.{_window_words(r)}"


def _way(run: WayRun) -> str:
    return run.name.partition(":")[0]


def _window_words(r: FourWays) -> str:
    """What the windows cost and save against continuous batching without one."""
    by_way = {_way(run): run for run in r.runs}
    plain = by_way.get("continuous")
    words = ""
    for way in ("windowed", "adaptive"):
        run = by_way.get(way)
        if run is None or plain is None:
            continue
        cost_s, saved_s = run.mean_ttft_s - plain.mean_ttft_s, plain.busy_s - run.busy_s
        if max(abs(cost_s), abs(saved_s)) < 5e-7:
            words += f" The {way} engine's wait changes nothing here."
            continue
        paid = f"adds {seconds(cost_s)} to" if cost_s >= 0 else f"takes {seconds(-cost_s)} off"
        won = f"saves {seconds(saved_s)} of" if saved_s >= 0 else f"adds {seconds(-saved_s)} to"
        # Rounding in the sums of a thousand steps is no saving.
        if abs(saved_s) <= 1e-6:
            won = "saves nothing of"
        words += (
            f" The {way} engine's wait {paid} the mean TTFT and {won} "
            f"{seconds(plain.busy_s)} of GPU time."
        )
    return words


def _words_now(r: FourWays) -> str:
    parts = []
    for run in r.runs:
        done = int((run.finish_s <= r.now_s).sum())
        tokens = int(np.searchsorted(run.token_s, r.now_s, side="right"))
        step = step_number(run, r.now_s)
        parts.append(
            f"{_way(run)} has come to step {step:,}, {tokens:,} tokens and {done} complete "
            f"answer{'' if done == 1 else 's'}"
        )
    return f"At {seconds(r.now_s)}: {'; '.join(parts)}."


def _question(r: FourWays) -> str:
    first, last = r.runs[0], r.runs[-1]
    if _asks_for_ttft(r):
        return (
            f"{r.requests} requests. Continuous batching gives them a mean TTFT of "
            f"{seconds(last.mean_ttft_s)}. What is it when an idle engine waits "
            f"{seconds(r.window_s)} for company?"
        )
    if first is last:
        return f"{r.requests} requests, {last.name}. After how long is the last answer complete?"
    return (
        f"{r.requests} requests. The first way, {_way(first)}, is through with all of them after "
        f"{seconds(first.done_s)}. After how long is {_way(last)} batching, with {r.seats} seats?"
    )


def _asks_for_ttft(r: FourWays) -> bool:
    return _way(r.runs[0]) == "windowed"


def _answer(r: FourWays) -> float:
    return r.runs[0].mean_ttft_s if _asks_for_ttft(r) else r.runs[-1].done_s


def _mark(r: FourWays, guess: float) -> tuple[float, float] | None:
    """A guessed end has a place on the time axis, a guessed mean has none."""
    return None if _asks_for_ttft(r) else (guess, 0.0)


def _tables(r: FourWays) -> list[Table]:
    return [
        {
            "way": _way(run), "request": np.arange(r.requests), "arrival_s": run.arrival_s,
            "scheduled_s": run.scheduled_s, "first_token_s": run.first_token_s,
            "finish_s": run.finish_s, "slot_end_s": run.slot_end_s,
            "held_back_s": run.scheduled_s - run.held_s,
        }
        for run in r.runs
    ]  # fmt: skip


four_ways = Explorer(
    call="explore.four_ways",
    title="Four ways to batch: the same requests on the same card",
    parameters=FourWaysParameters,
    compute=_four_ways,
    filmed=lambda p: {_name(way, p): run_of(way, p) for way in p.ways},
    drawing=FourWaysPicture,
    narrate=_words,
    alt=(
        "Timelines, a row a request and a block a way to batch, over one time axis. Each row is "
        "coloured and hatched by what the request does: queueing, held back to fill a batch, "
        "prefill, decode, and, in a static batch, an idle slot that is over but still counted. "
        "Beside each block stand its end, its mean TTFT and its GPU time."
    ),
    presets=(
        Preset(
            "Eight requests, four ways",
            "Eight requests reach Llama-3.1-8B on one H100 within a second or two: prompts of "
            "1,500 tokens, answers of all lengths, four seats.",
            "Which way is through first, and which row has the worst life?",
            {"played": 100},
        ),
        Preset(
            "One long answer among short",
            "One request asks for 300 tokens, the others for 40. A static batch of four.",
            "Three neighbours of the long answer are over early. Who else waits for it?",
            {"ways": _WAYS["static and continuous"], "answers": "one long", "window_ms": 1000.0},
        ),
        Preset(
            "The wait window at low traffic",
            "One short request a second, and an idle engine that waits 300 ms for company.",
            "Who comes in time to share a step, and who pays for the waiting?",
            {
                "ways": _WAYS["windowed and continuous"],
                "rate_per_s": 1.0,
                "answers": "short",
                "requests": 6,
                "seed": 9,
            },
        ),
        Preset(
            "The wait window at high traffic",
            "Twelve requests a second on sixteen seats: the engine is hardly ever idle.",
            "How often does the window open here?",
            {
                "ways": _WAYS["windowed and continuous"],
                "rate_per_s": 12.0,
                "requests": 24,
                "seats": 16,
                "answers": "alike",
            },
        ),
        Preset(
            "Adaptive window",
            "Short answers, quiet at first, then six requests a second. The adaptive engine waits "
            "only while the last second's arrivals promise company within the window.",
            "Which requests does the adaptive engine start at once, and which does it hold?",
            {
                "ways": _WAYS["windowed, adaptive, continuous"],
                "rate_per_s": 6.0,
                "requests": 12,
                "seats": 8,
                "answers": "short",
                "traffic": "quiet then busy",
                "seed": 4,
            },
        ),
        Preset(
            "Thirty-two requests",
            "A busy minute on a small scale: thirty-two requests for eight seats.",
            "Where in the static picture is the grey, and what is in its place below?",
            {
                "ways": _WAYS["static and continuous"],
                "rate_per_s": 16.0,
                "requests": 32,
                "seats": 8,
            },
        ),
    ),
    tables=_tables,
    prediction=Prediction(question=_question, unit="s", answer=_answer, mark=_mark),
)
