"""The servers and scenes that notebook 04's exercises run on, for trying an answer before `check`.

What is asked about them is in the other `ch04_` files.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

from course.serving.engine import EngineConfig, OrderKey, Run, simulate, simulate_service
from course.serving.pricing import RooflineStepCost
from course.serving.scenes.long_prompts import (
    BUDGET,
    CHAT_ANSWER,
    CHAT_PROMPT,
    SEATS,
    chats_and_documents,
    server,
    with_long_ones,
)
from course.serving.workload import Lognormal, Poisson, Workload, draw

STORM_PER_S: Final = 5.0
_STORM_PROMPT: Final = Lognormal.of_mean(300.0, 0.8, most_tokens=2000)
_STORM_ANSWER: Final = Lognormal.of_mean(400.0, 0.6, most_tokens=1500)
_BUSY_SEATS: Final = 24
_BUSY_PER_S: Final = 16.0
_BUSY_CHATS: Final = 450
_REPORT_TOKENS: Final = 8000
_REPORT_EVERY_S: Final = 3.0


# ------------------------------------------------------------------ documents among chats
def run_budget(budget_tokens: int, seed: int = 1) -> Run:
    """Return 20 chats/s and a document of 20,000 tokens every 12 s on an H100, under a budget.

    Llama-3.1-8B, 256 seats. With seed 1 and 2,048 tokens it is the run that the long-prompt
    explorer shows where nobody guards the queue. Raises ValueError as `EngineConfig` does.
    """
    work = chats_and_documents(20.0, 1, seed)
    config = EngineConfig(max_num_seqs=SEATS, max_num_batched_tokens=budget_tokens)
    return simulate(work, server(), config, progress=False)


def try_budget(budget_tokens: int, seed: int = 1) -> dict[str, float]:
    """Return what a budget does to chats and documents: gaps in ms, waits in s.

    Raises ValueError as `EngineConfig` does.

    >>> now, smaller = try_budget(2048), try_budget(512)
    >>> bool(smaller["longest gap, ms"] < now["longest gap, ms"])
    True
    >>> bool(smaller["slowest document, s"] > now["slowest document, s"])
    True
    """
    run = run_budget(budget_tokens, seed)
    gaps_s = run.itl_s()
    assert run.work.label is not None
    documents = run.ttft_s[run.work.label == "document"]
    return {
        "longest gap, ms": round(1e3 * float(gaps_s.max()), 1),
        "P99 of the gaps, ms": round(1e3 * float(np.quantile(gaps_s, 0.99)), 1),
        "slowest document, s": round(float(documents.max()), 3),
    }


# --------------------------------------------------------------------------- a card that is full
@lru_cache(maxsize=1)
def small_card() -> RooflineStepCost:
    """Return Llama-3.1-8B in bf16 on one RTX 4090, which has room for 2,154 KV blocks."""
    return RooflineStepCost("Llama-3.1-8B", "RTX-4090")


def storm_work(seed: int, requests: int = 500) -> Workload:
    """Return 5 requests/s with prompts of 300 and answers of 400 tokens on average."""
    return draw(requests, Poisson(STORM_PER_S), _STORM_PROMPT, _STORM_ANSWER, seed=seed)


def try_seats(seats: int, seed: int = 1, memory_fraction: float = 0.9) -> dict[str, float]:
    """Return what a limit of sequences does on the small card: preemptions, pace and waits.

    Raises ValueError as `EngineConfig` does.

    >>> crowded, fitting = try_seats(256), try_seats(32)
    >>> crowded["preemptions"] > 100 > fitting["preemptions"]
    True
    """
    config = EngineConfig(
        max_num_seqs=seats,
        max_num_batched_tokens=BUDGET,
        num_kv_blocks=small_card().kv_blocks(memory_fraction=memory_fraction),
    )
    run = simulate_service(storm_work(seed), small_card(), config)
    made = run.attempts
    twice = made.recomputed_tokens.sum() / made.computed_tokens.sum()
    return {
        "preemptions": int(made.preemptions.sum()),
        "computed twice, %": round(100 * float(twice), 1),
        "P99 of TPOT, ms": round(1e3 * float(np.nanquantile(run.tpot_s, 0.99)), 1),
        "P99 of TTFT, s": round(float(np.quantile(run.ttft_s, 0.99)), 1),
        "P99 of E2E, s": round(float(np.quantile(run.e2e_s, 0.99)), 1),
        "output tokens/s": round(float(run.work.output_tokens.sum() / run.end_of_run_s), 0),
    }


# --------------------------------------------------------------------------- a queue for seats
@lru_cache(maxsize=32)
def busy_work(seed: int) -> Workload:
    """Return 16 chats/s, and a report of 8,000 tokens every 3 s, for a server of 24 seats."""
    chats = draw(_BUSY_CHATS, Poisson(_BUSY_PER_S), CHAT_PROMPT, CHAT_ANSWER, seed=seed)
    times_s = np.arange(_REPORT_EVERY_S / 2, 0.8 * chats.arrival_s[-1], _REPORT_EVERY_S)
    return with_long_ones(chats, times_s, _REPORT_TOKENS, 150)


def try_order(order: OrderKey | str, seed: int = 101) -> dict[str, float]:
    """Return who waits how long for the first token, in seconds, under an order of the queue.

    `order`: "fcfs", or your own function; the smallest key goes first. Raises ValueError where the
    order is none.

    >>> waits = try_order("fcfs")
    >>> waits["chats on average, s"] < waits["P95 of the chats, s"]
    True
    """
    work = busy_work(seed)
    config = EngineConfig(max_num_seqs=_BUSY_SEATS, max_num_batched_tokens=BUDGET, order=order)
    ttft_s = simulate(work, server(), config, progress=False).ttft_s
    assert work.label is not None
    is_chat = work.label == "chat"
    return {
        "chats on average, s": round(float(ttft_s[is_chat].mean()), 3),
        "P95 of the chats, s": round(float(np.quantile(ttft_s[is_chat], 0.95)), 3),
        "reports on average, s": round(float(ttft_s[~is_chat].mean()), 3),
        "longest wait of all, s": round(float(ttft_s.max()), 3),
    }
