"""The requests-or-tokens explorer: which traffic meets which limit, and what it says."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from course.figures.ch04.requests_or_tokens import (
    Limited,
    RequestsOrTokens,
    RequestsOrTokensPicture,
)
from course.serving.engine import Admission, EngineConfig, ServiceRun, simulate_service
from course.serving.scenes.long_prompts import (
    BUDGET,
    CHAT_ANSWER,
    CHAT_PROMPT,
    DOCUMENT_ANSWER,
    server,
    step_gap_quantile,
)
from course.serving.workload import Fixed, Poisson, Prefixes, RequestClass, Workload, mixture
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, stops
from course.words import percent, rounded, seconds

DOCUMENT_TOKENS: Final = 20_000
LENGTH_S: Final = 60.0
_BINS: Final = 150
# More than all prompts that could stand in the queue: a step takes them whole.
_NO_BUDGET: Final = 8_000_000
_MANY_SEATS: Final = 1024


@dataclass(frozen=True)
class RequestsOrTokensParameters:
    """The traffic, and the dials of the two limits."""

    rate_per_s: float = slider(
        16.0, 2.0, 24.0, 1.0, label="Arrivals", unit="requests/s",
        help="Chats and documents together, for a minute",
    )  # fmt: skip
    document_share: float = choice(
        0.04, {"none": 0.0, "1 %": 0.01, "2 %": 0.02, "4 %": 0.04, "6 %": 0.06},
        label="Documents among them", help="Prompts of 20,000 tokens instead of about 300",
    )  # fmt: skip
    hit_share: float = choice(
        0.0, {"nothing": 0.0, "half": 0.5, "nine tenths": 0.9, "ninety-nine hundredths": 0.99},
        label="Documents share", help="Of their text, from its beginning: found in a prefix cache",
    )  # fmt: skip
    seats: int = stops(
        64, (8, 16, 22, 32, 48, 64, 96, 128), label="Limit on requests", unit="max_num_seqs",
        help="How many requests run together, however long they are",
    )  # fmt: skip
    budget_tokens: int = stops(
        BUDGET, (512, 1024, 2048, 4096, 8192), label="Limit on a step's tokens",
        unit="max_num_batched_tokens", help="How many tokens a step computes, whosever they are",
    )  # fmt: skip
    watermark: float = slider(
        0.6, 0.1, 1.0, 0.05, label="Limit on all tokens", unit="share of the KV cache",
        help="While the cache is fuller than this, whoever comes waits outside",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number draws other requests")


@lru_cache(maxsize=32)
def _drawn(rate_per_s: float, document_share: float, seed: int) -> Workload:
    chat = RequestClass("chat", 1 - document_share, CHAT_PROMPT, CHAT_ANSWER)
    document = RequestClass(
        "document", document_share, Fixed(DOCUMENT_TOKENS), Fixed(DOCUMENT_ANSWER)
    )
    return mixture(round(LENGTH_S * rate_per_s), Poisson(rate_per_s), [chat, document], seed=seed)


def traffic(p: RequestsOrTokensParameters) -> Workload:
    """Return a minute of requests, labelled chat or document."""
    work = _drawn(p.rate_per_s, p.document_share, p.seed)
    if not p.hit_share:
        return work
    group = np.where(work.label == "document", 0, -1)
    return replace(work, prefixes=Prefixes.groups(group, int(p.hit_share * DOCUMENT_TOKENS)))


@lru_cache(maxsize=1)
def capacity_blocks() -> int:
    """Return how many KV blocks of 16 tokens the card holds beside the weights."""
    return server().kv_blocks()


def counting_run(p: RequestsOrTokensParameters) -> ServiceRun:
    """Run the server that limits requests: seats, and each prompt whole in one step."""
    config = EngineConfig(
        max_num_seqs=p.seats, max_num_batched_tokens=_NO_BUDGET,
        num_kv_blocks=capacity_blocks(), enable_prefix_caching=p.hit_share > 0,
    )  # fmt: skip
    return simulate_service(traffic(p), server(), config)


def budgeted_run(p: RequestsOrTokensParameters) -> ServiceRun:
    """Run the server that limits tokens: of a step, and in all."""
    config = EngineConfig(
        max_num_seqs=_MANY_SEATS, max_num_batched_tokens=p.budget_tokens,
        num_kv_blocks=capacity_blocks(), enable_prefix_caching=p.hit_share > 0,
    )  # fmt: skip
    return simulate_service(
        traffic(p), server(), config, admission=Admission(kv_watermark=p.watermark)
    )


def highest_in_bins(
    start_s: np.ndarray, end_s: np.ndarray, values: np.ndarray, edges_s: np.ndarray
) -> np.ndarray:
    """Return the highest value of the steps that touch each bin; 0 where the server is idle.

    Steps of shape (steps,), in order; `edges_s` (bins + 1,); returns (bins,).

    >>> edges = np.array([0.0, 1.0, 2.0, 3.0])
    >>> highest_in_bins(np.array([0.0, 0.5]), np.array([0.5, 1.5]), np.array([3.0, 7.0]), edges)
    array([7., 7., 0.])
    """
    first = np.searchsorted(end_s, edges_s[:-1], side="right")
    after = np.searchsorted(start_s, edges_s[1:], side="left")
    padded = np.append(values, 0.0)
    pairs = np.column_stack([first, np.maximum(after, first)]).ravel()
    found = np.maximum.reduceat(padded, np.minimum(pairs, values.size))[::2]
    return np.where(after > first, found, 0.0)


def _limited(run: ServiceRun, edges_s: np.ndarray) -> Limited:
    start_s, end_s = run.step_start_s, run.step_end_s
    blocks = run.step_kv_blocks
    assert blocks is not None
    held = 16.0 * blocks
    step_s = end_s - start_s
    inside = (run.step_waiting + run.step_running).astype(float)
    chat = np.asarray(run.work.label == "chat")
    within = np.minimum(end_s, LENGTH_S) - np.minimum(start_s, LENGTH_S)
    return Limited(
        held_tokens=highest_in_bins(start_s, end_s, held, edges_s),
        step_s=highest_in_bins(start_s, end_s, step_s, edges_s),
        inside=highest_in_bins(start_s, end_s, inside, edges_s),
        longest_step_s=float(step_s.max()),
        chat_ttft_p99_s=float(np.quantile(run.ttft_s[chat], 0.99)),
        itl_p99_s=step_gap_quantile(step_s, run.step_decode_seqs, 0.99),
        finished_per_s=int(np.count_nonzero(run.end_s <= LENGTH_S)) / LENGTH_S,
        preemptions=int(run.attempts.preemptions.sum()),
        mean_held_share=float((held * within).sum() / LENGTH_S / (16 * capacity_blocks())),
    )


@lru_cache(maxsize=64)
def _counting(p: RequestsOrTokensParameters) -> Limited:
    return _limited(counting_run(p), _edges())


@lru_cache(maxsize=64)
def _budgeted(p: RequestsOrTokensParameters) -> Limited:
    return _limited(budgeted_run(p), _edges())


def _edges() -> np.ndarray:
    return np.linspace(0.0, LENGTH_S, _BINS + 1)


def _requests_or_tokens(p: RequestsOrTokensParameters) -> RequestsOrTokens:
    default = RequestsOrTokensParameters()
    counting = _counting(
        replace(p, budget_tokens=default.budget_tokens, watermark=default.watermark)
    )
    budgeted = _budgeted(replace(p, seats=default.seats))
    chats_only = _counting(
        replace(
            p, document_share=0.0, hit_share=0.0, seats=128,
            budget_tokens=default.budget_tokens, watermark=default.watermark,
        )
    )  # fmt: skip
    return RequestsOrTokens(
        time_s=_edges()[:-1],
        counting=counting,
        budgeted=budgeted,
        rate_per_s=p.rate_per_s,
        document_share=p.document_share,
        documents=int(np.count_nonzero(traffic(p).label == "document")),
        document_tokens=DOCUMENT_TOKENS,
        hit_share=p.hit_share,
        seats=p.seats,
        budget_tokens=p.budget_tokens,
        watermark=p.watermark,
        capacity_tokens=16 * capacity_blocks(),
        calm_step_s=chats_only.longest_step_s,
        asks_for_rate=counting.finished_per_s < 0.85 * budgeted.finished_per_s,
    )


def _server_words(one: Limited) -> str:
    words = (
        f"the longest step takes {seconds(one.longest_step_s)}, the chats' P99 TTFT is "
        f"{seconds(one.chat_ttft_p99_s)}, {rounded(one.finished_per_s)} answers a second are ready"
    )
    if one.preemptions:
        words += f", {one.preemptions:,} preemptions"
    return words


def _words(r: RequestsOrTokens) -> str:
    among = "no documents" if not r.documents else f"{r.documents} documents"
    if r.documents and r.hit_share:
        among += f" (which share {percent(r.hit_share)} of their text)"
    return (
        f"{r.rate_per_s:g} requests a second for a minute, {among} among them. At most "
        f"{r.seats} requests: {_server_words(r.counting)}. At most {r.budget_tokens:,} tokens a "
        f"step and {percent(r.watermark)} of the cache: {_server_words(r.budgeted)}. On average "
        f"{percent(round(r.counting.mean_held_share, 2))} and "
        f"{percent(round(r.budgeted.mean_held_share, 2))} of the {r.capacity_tokens:,} tokens "
        f"that memory holds are used; {r.seats} documents would need "
        f"{percent(round(r.seats * (r.document_tokens + DOCUMENT_ANSWER) / r.capacity_tokens, 2))}."
    )


def _question(r: RequestsOrTokens) -> str:
    if r.asks_for_rate:
        return (
            f"{r.rate_per_s:g} requests a second, {percent(r.document_share)} of them documents. A "
            f"limit on tokens lets {rounded(r.budgeted.finished_per_s)} answers a second through. "
            f"How many does a limit of {r.seats} requests?"
        )
    if not r.documents:
        return (
            f"{r.rate_per_s:g} chats a second. A step that only decodes takes about "
            f"{seconds(_decode_step_s())}. How long is the longest step of the minute, where a "
            "prompt is taken whole?"
        )
    return (
        f"{r.rate_per_s:g} requests a second, at most {r.seats} at once. With chats alone the "
        f"longest step took {seconds(r.calm_step_s)}. Now {r.documents} of the minute's requests "
        f"are documents of {r.document_tokens:,} tokens"
        f"{f', {percent(r.hit_share)} of it shared by all' if r.hit_share else ''}. How long is "
        "the longest step?"
    )


@lru_cache(maxsize=1)
def _decode_step_s() -> float:
    from course.serving.pricing import StepFeatures

    return server().step_seconds(StepFeatures(0, 0, 20, 20 * 400))


def _answer(r: RequestsOrTokens) -> float:
    return r.counting.finished_per_s if r.asks_for_rate else 1e3 * r.counting.longest_step_s


def _tables(r: RequestsOrTokens) -> list[Table]:
    return [
        {
            "limit": name, "time_s": r.time_s, "held_tokens": one.held_tokens,
            "step_s": one.step_s, "inside": one.inside,
        }
        for name, one in zip(("requests", "tokens"), r.both, strict=True)
    ]  # fmt: skip


requests_or_tokens = Explorer(
    call="explore.requests_or_tokens",
    title="Requests or tokens? One limit swings, the other does not",
    parameters=RequestsOrTokensParameters,
    compute=_requests_or_tokens,
    drawing=RequestsOrTokensPicture,
    narrate=_words,
    alt=(
        "Left, a minute of two servers over one time axis: tokens in the KV cache, length of a "
        "step, and requests inside; a dashed line for the server that limits requests, a solid "
        "one for the server that limits tokens. Right, bars: each server's longest step, the "
        "chats' P99 time to first token, and answers a second."
    ),
    presets=(
        Preset(
            "Chats only",
            "Sixteen chats a second on one H100. One server takes at most 64 requests, the other "
            "at most 2,048 tokens a step.",
            "All requests are alike. Does it matter what is counted?",
            {"document_share": 0.0},
        ),
        Preset(
            "Chats and documents",
            "The same, but one in 25 requests brings a document of 20,000 tokens.",
            "The same number of requests comes as before. What has grown, and how many times over?",
            {"document_share": 0.04},
        ),
        Preset(
            "The limit that is safe for documents",
            "22 documents fill the memory, so somebody sets the limit to 22 requests. Twenty "
            "requests a second, one in a hundred a document.",
            "The memory can never run out any more. What does the safety cost?",
            {"document_share": 0.01, "seats": 22, "rate_per_s": 20.0},
        ),
        Preset(
            "Prefix hits",
            "All documents begin alike, for nine tenths of their text, and the server has a prefix "
            "cache.",
            "Counted in requests nothing has changed. Counted in tokens?",
            {"document_share": 0.04, "hit_share": 0.9},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_question,
        unit=lambda r: "answers/s" if r.asks_for_rate else "ms",
        answer=_answer,
        mark=lambda r, guess: (guess, 2.0) if r.asks_for_rate else (guess / 1e3, 0.0),
    ),
)
