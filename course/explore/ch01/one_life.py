"""One request's life: what it varies, computes and says; the metrics are those of the course."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from course.figures.ch01.one_life import (
    DRAGS_S,
    FLUENT_S,
    STUCK_S,
    Numbers,
    OneLife,
    OneLifePicture,
    times_as_at_rest,
)
from course.serving.pricing import RooflineStepCost, StepFeatures
from course.serving.requests import metrics
from course.ui import Explorer, Prediction, Preset, Table, count, slider
from course.words import rounded, seconds

_MODEL, _GPU = "Llama-3.1-8B", "H100-80GB-SXM"


@dataclass(frozen=True)
class OneLifeParameters:
    """What happens to one request on its way, and how long its prompt and its answer are."""

    queue_s: float = slider(
        0.0, 0.0, 6.0, 0.05, label="Waiting in the queue", unit="s",
        help="How long the request waits at the server before its prefill begins",
    )  # fmt: skip
    prompt_tokens: int = count(
        1000, 8, 32_000, 8, label="Prompt", unit="tokens",
        help="The prefill takes as long as an 8-billion-parameter model needs on one H100",
    )  # fmt: skip
    output_tokens: int = count(
        80, 1, 800, label="Answer", unit="tokens", help="Tokens that the model writes back"
    )
    decode_step_ms: float = slider(
        20.0, 5.0, 250.0, 1.0, label="Decode step", unit="ms",
        help="How long the server takes for each further token; it grows with the batch",
    )  # fmt: skip
    network_ms: float = slider(
        20.0, 0.0, 300.0, 5.0, label="Network, each way", unit="ms",
        help="From the reader to the server and back, with what is done to the text on the way",
    )  # fmt: skip
    stall_ms: float = slider(
        0.0, 0.0, 2000.0, 20.0, label="Stall in one gap", unit="ms",
        help="In the middle of the answer one step also prefills somebody else's prompt",
    )  # fmt: skip
    chunk_tokens: int = count(
        1, 1, 8, label="Tokens a chunk",
        help="The server sends the first token at once, then whenever so many more are ready",
    )  # fmt: skip


@lru_cache(maxsize=1024)
def _prefill_s(prompt_tokens: int) -> float:
    """The whole prompt in one step, from the data sheets of the model and the card."""
    cost = RooflineStepCost(_MODEL, _GPU)
    pairs = prompt_tokens * (prompt_tokens + 1) // 2
    return cost.step_seconds(StepFeatures(prompt_tokens, pairs, 0, 0))


def _made_s(p: OneLifeParameters) -> tuple[np.ndarray, int]:
    """When the server has each token, and the index of the one that the stall delays."""
    gaps = np.full(p.output_tokens - 1, p.decode_step_ms / 1e3)
    stalled = max(1, p.output_tokens // 2)
    gaps[stalled - 1 : stalled] += p.stall_ms / 1e3
    first = p.network_ms / 1e3 + p.queue_s + _prefill_s(p.prompt_tokens)
    return first + np.concatenate([[0.0], np.cumsum(gaps)]), stalled


def _timeline(p: OneLifeParameters, made_s: np.ndarray) -> metrics.RequestTimeline:
    """The request as its reader sees it: the first token alone, then chunks, the last one short."""
    last_of_chunk = [0, *range(p.chunk_tokens, p.output_tokens, p.chunk_tokens)]
    if last_of_chunk[-1] != p.output_tokens - 1:
        last_of_chunk.append(p.output_tokens - 1)
    arrivals = made_s[last_of_chunk] + p.network_ms / 1e3
    counts = np.diff([-1, *last_of_chunk])
    return metrics.RequestTimeline(
        scheduled_s=0.0,
        sent_s=0.0,
        token_times_s=tuple(arrivals.tolist()),
        token_counts=tuple(counts.tolist()),
        end_s=float(arrivals[-1]),
        prompt_tokens=p.prompt_tokens,
    )


def _numbers(timeline: metrics.RequestTimeline) -> Numbers:
    run = metrics.summarize([timeline])
    itl = metrics.distribution(metrics.gaps_s(timeline))

    def number(value: float | None) -> float:
        return math.nan if value is None else value

    return Numbers(
        ttft_s=number(run.ttft.mean),
        tpot_s=number(run.tpot.mean),
        median_gap_s=number(itl.p50),
        largest_gap_s=number(itl.largest),
        e2e_s=number(run.e2e.mean),
    )


def _one_life(p: OneLifeParameters) -> OneLife:
    made_s, stalled = _made_s(p)
    timeline = _timeline(p, made_s)
    at_rest = replace(p, queue_s=0.0, stall_ms=0.0, chunk_tokens=1)
    gaps = made_s.size > 1
    return OneLife(
        network_s=p.network_ms / 1e3,
        queue_s=p.queue_s,
        prefill_s=_prefill_s(p.prompt_tokens),
        step_s=p.decode_step_ms / 1e3,
        stall_s=p.stall_ms / 1e3 if gaps else 0.0,
        stall_end_s=float(made_s[stalled]) if gaps else 0.0,
        prompt_tokens=p.prompt_tokens,
        chunk_limit_tokens=p.chunk_tokens,
        made_s=made_s,
        arrivals_s=np.array(timeline.token_times_s),
        chunk_tokens=np.array(timeline.token_counts),
        gaps_s=np.array(metrics.gaps_s(timeline)),
        here=_numbers(timeline),
        rest=_numbers(_timeline(at_rest, _made_s(at_rest)[0])),
    )


def _one_life_words(r: OneLife) -> str:
    stuck = ", which feels stuck" if r.here.ttft_s > STUCK_S else ""
    first = (
        f"The first token is there after {seconds(r.here.ttft_s)} (TTFT){stuck}: "
        f"{seconds(r.queue_s)} of queueing, {seconds(r.prefill_s)} of prefill and twice "
        f"{seconds(r.network_s)} of network."
    )
    if not r.gaps_s.size:
        return (
            f"{first} With this one token the answer is complete, so E2E is the same "
            f"{seconds(r.here.e2e_s)}; there is no gap, hence no ITL, and TPOT is undefined, not 0."
        )
    return (
        f"{first} {_pace_words(r)} The last token is there after {seconds(r.here.e2e_s)} (E2E). "
        f"{_moved_words(r)}"
    )


def _pace_words(r: OneLife) -> str:
    more = r.output_tokens - 1
    pace = f"{rounded(1 / r.here.tpot_s)} tokens/s"
    if r.here.tpot_s <= FLUENT_S * (1 + 1e-9):
        pace += ", which reads fluently"
    elif r.here.tpot_s >= DRAGS_S * (1 - 1e-9):
        pace += ", which drags"
    follow = "1 more token follows" if more == 1 else f"{more} more tokens follow"
    words = f"{follow}, {seconds(r.here.tpot_s)} apart on average (TPOT): {pace}."
    if r.chunk_limit_tokens > 1:
        chunks = "1 chunk" if r.gaps_s.size == 1 else f"{r.gaps_s.size} chunks"
        words += (
            f" They come in {chunks} of up to {r.chunk_limit_tokens} tokens; the median gap that "
            f"can be seen is {seconds(r.here.median_gap_s)}, and none inside a chunk can be."
        )
    return f"{words} The largest single gap (ITL) is {seconds(r.here.largest_gap_s)}."


def _moved_words(r: OneLife) -> str:
    ratios = {
        "TTFT": r.here.ttft_s / r.rest.ttft_s,
        "TPOT": r.here.tpot_s / r.rest.tpot_s,
        "median ITL": r.here.median_gap_s / r.rest.median_gap_s,
        "largest ITL": r.here.largest_gap_s / r.rest.largest_gap_s,
        "E2E": r.here.e2e_s / r.rest.e2e_s,
    }
    moved = [
        f"{name} {times_as_at_rest(ratio)}"
        for name, ratio in ratios.items()
        if times_as_at_rest(ratio) != "×1"
    ]
    if not moved:
        return "Nothing holds it up: this is the request at rest."
    same = [name for name, ratio in ratios.items() if times_as_at_rest(ratio) == "×1"]
    still = f"; as at rest: {', '.join(same)}" if same else ""
    return f"Against the same request at rest: {', '.join(moved)}{still}."


def _asked(r: OneLife) -> str:
    """Which metric the curtain asks for: the one that the settings make worth guessing."""
    if r.output_tokens == 1 or r.stall_s > 0:
        return "TPOT"
    if r.chunk_limit_tokens > 1:
        return "gap"
    return "TTFT" if r.queue_s > 0 else "E2E"


def _one_life_question(r: OneLife) -> str:
    asked = _asked(r)
    if asked == "TPOT" and r.output_tokens == 1:
        return (
            "The answer is one single token. What is its TPOT, in ms (and what would a tool print)?"
        )
    if asked == "TPOT":
        return (
            f"{r.output_tokens} tokens come {seconds(r.step_s)} apart, but one gap is "
            f"{seconds(r.stall_s)} longer. What is the TPOT of the answer, in ms?"
        )
    if asked == "gap":
        return (
            f"The server makes a token every {seconds(r.step_s)} and sends them "
            f"{r.chunk_limit_tokens} at a time. What is the median gap between arrivals, in ms?"
        )
    if asked == "TTFT":
        return (
            f"{seconds(r.queue_s)} in the queue, then a prompt of {r.prompt_tokens:,} tokens on an "
            "H100. After how many seconds is the first token there?"
        )
    return (
        f"{r.prompt_tokens:,} tokens in, {r.output_tokens} out, a token every "
        f"{seconds(r.step_s)}. After how many seconds is the last token there?"
    )


def _one_life_answer(r: OneLife) -> float | None:
    answers = {
        "TPOT": 1e3 * r.here.tpot_s,
        "gap": 1e3 * r.here.median_gap_s,
        "TTFT": r.here.ttft_s,
        "E2E": r.here.e2e_s,
    }
    answer = answers[_asked(r)]
    return None if math.isnan(answer) else answer


def _one_life_mark(r: OneLife, guess: float) -> tuple[float, float]:
    """A guessed time lies on the time axis (y = 0), a guessed gap on the gaps' (x = 0)."""
    return (0.0, guess / 1e3) if _asked(r) in ("TPOT", "gap") else (guess, 0.0)


def _tables(r: OneLife) -> Table:
    gaps_s = np.concatenate([[math.nan], r.gaps_s])
    return {"arrival_s": r.arrivals_s, "tokens": r.chunk_tokens, "gap_before_s": gaps_s}


one_life = Explorer(
    call="explore.one_life",
    title="One request's life: where the time goes, and what each metric sees of it",
    parameters=OneLifeParameters,
    compute=_one_life,
    drawing=OneLifePicture,
    narrate=_one_life_words,
    alt=(
        "Above, one request on a time axis: queueing, prefill and decode as boxes on the server's "
        "row, each arrival as a tick on the reader's row, and brackets for TTFT, the gaps and E2E. "
        "Below, each gap between arrivals with TPOT as a dashed line. Beside them, how many times "
        "as large as at rest each metric is."
    ),
    presets=(
        Preset(
            "Chat at rest",
            "Nobody else is there: 1,000 tokens in, 80 out, a token every 20 ms.",
            "Which is longer, the wait for the first token or the rest, and how many times?",
        ),
        Preset(
            "Behind a queue",
            "The same chat arrives when the server is full and waits 3.5 s for its turn.",
            "Which metrics tell you about the queue, and which never will?",
            {"queue_s": 3.5},
        ),
        Preset(
            "A neighbour's long prompt",
            "In the middle of an answer of 200 tokens somebody else's prompt is prefilled: 400 ms.",
            "The reader saw a freeze. Does the TPOT show it?",
            {"output_tokens": 200, "stall_ms": 400.0},
        ),
        Preset(
            "Four tokens a chunk",
            "The same server sends four tokens at a time. It is no slower and no faster.",
            "What happens to the median ITL, and what to TPOT?",
            {"chunk_tokens": 4},
        ),
        Preset(
            "One-token answer",
            "A classifier: a page in, one word out.",
            "What is the TPOT of an answer of one token: 0, or something else?",
            {"output_tokens": 1},
        ),
        Preset(
            "Long essay",
            "A short question, an answer of 800 tokens, on a busy server: 60 ms a step.",
            "The queue is empty and the prompt is short. What would you tune here?",
            {"prompt_tokens": 64, "output_tokens": 800, "decode_step_ms": 60.0},
        ),
        Preset(
            "A step that drags",
            "A batch so large that a step takes 200 ms: five tokens a second for each reader.",
            "The first token comes as fast as ever. Would you stay?",
            {"decode_step_ms": 200.0, "output_tokens": 100},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_one_life_question,
        unit=lambda r: "ms" if _asked(r) in ("TPOT", "gap") else "s",
        answer=_one_life_answer,
        mark=_one_life_mark,
    ),
)
