"""The prefill-or-decode explorer: which requests, chunks and link, and what it says."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from course.figures.ch04.prefill_or_decode import (
    CHUNKS,
    WAYS,
    PrefillOrDecode,
    PrefillOrDecodePicture,
    Way,
)
from course.serving.engine import EngineConfig, PoolsRun, Run, simulate, simulate_pools
from course.serving.scenes.long_prompts import server, step_gap_quantile
from course.serving.workload import Lognormal, Poisson, Workload, draw
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, stops
from course.words import rounded, seconds

REQUESTS: Final = 800
SEATS: Final = 256
LONGEST_PROMPT: Final = 16_000
# Whole prompts must fit into the budget of prefill first, or they would be refused.
WHOLE_BUDGET: Final = 16_384
# The pools' own budget: no prompt is cut smaller than the arithmetic likes it.
POOL_BUDGET: Final = 8192
LATENCY_S: Final = 1e-3

LENGTHS: Final = {
    "chat: 1,000 in, 190 out": (Lognormal(6.6, 0.8, LONGEST_PROMPT), Lognormal(5.1, 0.6, 1500)),
    "prompt-heavy: 5,700 in, 90 out": (
        Lognormal(8.5, 0.6, LONGEST_PROMPT), Lognormal(4.3, 0.6, 1500),
    ),
    "answer-heavy: 250 in, 550 out": (
        Lognormal(5.2, 0.8, LONGEST_PROMPT), Lognormal(6.15, 0.5, 1500),
    ),
}  # fmt: skip
"""What is read → (prompts, answers); the means are rounded."""


@dataclass(frozen=True)
class PrefillOrDecodeParameters:
    """The requests, the chunk size, and the link between separate pools."""

    asked: int = choice(
        1, {way: place for place, way in enumerate(WAYS)}, label="Way in question",
        help="Drawn thicker; the curtain asks about its gaps between tokens",
    )  # fmt: skip
    lengths: str = choice(
        next(iter(LENGTHS)), list(LENGTHS), label="Tokens", help="Mean prompt and mean answer",
    )  # fmt: skip
    rate_per_s: float = slider(
        32.0, 2.0, 40.0, 1.0, label="Arrivals", unit="requests/s",
        help="For two H100s together, however they share the work",
    )  # fmt: skip
    chunk_tokens: int = stops(
        2048, CHUNKS, label="Chunk", unit="max_num_batched_tokens",
        help="How many tokens a step of chunked prefill may compute, decoding ones included",
    )  # fmt: skip
    link_gb_per_s: float = stops(
        50.0, (1.0, 2.5, 5.0, 12.5, 25.0, 50.0, 100.0, 400.0), label="Link between pools",
        unit="GB/s", help="How fast a prompt's KV cache travels from one card to the other",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number draws other requests")


@lru_cache(maxsize=16)
def _drawn(lengths: str, seed: int) -> Workload:
    prompt, output = LENGTHS[lengths]
    return draw(REQUESTS, Poisson(1.0), prompt, output, seed=seed)


@lru_cache(maxsize=16)
def traffic(lengths: str, rate_per_s: float, seed: int) -> Workload:
    """Return the requests that every way is given."""
    return _drawn(lengths, seed).scaled(rate_per_s)


@lru_cache(maxsize=16)
def halves(lengths: str, rate_per_s: float, seed: int) -> tuple[Workload, Workload]:
    """Return the requests of each of two cards that both do everything: every other one."""
    work = traffic(lengths, rate_per_s, seed)
    first, second = (
        Workload(work.arrival_s[k::2], work.prompt_tokens[k::2], work.output_tokens[k::2])
        for k in (0, 1)
    )
    return first, second


def shared_runs(
    lengths: str, rate_per_s: float, seed: int, budget: int, chunked: bool
) -> list[Run]:
    """Run two equal cards that both prefill and decode, each with half of the requests."""
    config = EngineConfig(
        max_num_seqs=SEATS, max_num_batched_tokens=budget, enable_chunked_prefill=chunked
    )
    return [simulate(work, server(), config) for work in halves(lengths, rate_per_s, seed)]


def pools_run(lengths: str, rate_per_s: float, seed: int, link_gb_per_s: float) -> PoolsRun:
    """Run one card that prefills and one that decodes."""
    pool = (server(), EngineConfig(max_num_seqs=SEATS, max_num_batched_tokens=POOL_BUDGET))
    return simulate_pools(
        traffic(lengths, rate_per_s, seed), pool, pool,
        kv_bytes_per_token=server().kv_bytes_per_token, link_bytes_per_s=1e9 * link_gb_per_s,
        transfer_latency_s=LATENCY_S,
    )  # fmt: skip


@lru_cache(maxsize=512)
def _shared(lengths: str, rate_per_s: float, seed: int, budget: int, chunked: bool) -> Way:
    runs = shared_runs(lengths, rate_per_s, seed, budget, chunked)
    ttft_s = np.concatenate([run.ttft_s for run in runs])
    gaps = [run.pooled_gaps(np.isfinite(run.finish_s)) for run in runs]
    gap_s = np.concatenate([pool.different for pool in gaps])
    times = np.concatenate([pool.times for pool in gaps])
    return _way(ttft_s, gap_s, times)


def _way(ttft_s: np.ndarray, gap_s: np.ndarray, times: np.ndarray) -> Way:
    middle_s, tail_s = np.nanquantile(ttft_s, [0.5, 0.99])
    return Way(
        ttft_p50_s=float(middle_s),
        ttft_p99_s=float(tail_s),
        gap_p50_s=step_gap_quantile(gap_s, times, 0.5),
        gap_p99_s=step_gap_quantile(gap_s, times, 0.99),
        refused=int(np.count_nonzero(np.isnan(ttft_s))),
    )


@lru_cache(maxsize=128)
def _pools(lengths: str, rate_per_s: float, seed: int, link_gb_per_s: float) -> tuple[Way, float]:
    """The pools' times, and the P99 time from the first token to the second."""
    run = pools_run(lengths, rate_per_s, seed, link_gb_per_s)
    gap_s, times, second_s = pool_gaps(run)
    return _way(run.ttft_s, gap_s, times), float(np.quantile(second_s, 0.99))


def pool_gaps(run: PoolsRun) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return every gap between tokens of a run in two pools: (values, how often each, second).

    The gap from the first token to the second spans the journey, `second` (requests that went on,).
    From then on a request decodes in every step of the second pool, where nobody stands still.
    """
    decode, table = run.decode, run.decode.attempts
    joined = np.searchsorted(decode.step_start_s, table.scheduled_s)
    second_s = decode.step_end_s[joined] - run.first_token_s[run.decode_request]
    times = decode.step_decode_seqs.astype(np.int64)
    np.subtract.at(times, joined, 1)
    values = np.concatenate([decode.step_end_s - decode.step_start_s, second_s])
    return values, np.concatenate([times, np.ones(second_s.size, np.int64)]), second_s


def _prefill_or_decode(p: PrefillOrDecodeParameters) -> PrefillOrDecode:
    who = (p.lengths, p.rate_per_s, p.seed)
    work = traffic(*who)
    pools, second_p99_s = _pools(*who, p.link_gb_per_s)
    travel_bytes = work.mean_prompt_tokens * server().kv_bytes_per_token
    return PrefillOrDecode(
        first=_shared(*who, WHOLE_BUDGET, False),
        chunked=tuple(_shared(*who, chunk, True) for chunk in CHUNKS),
        pools=pools,
        second_p99_s=second_p99_s,
        chosen=CHUNKS.index(p.chunk_tokens),
        asked=p.asked,
        rate_per_s=p.rate_per_s,
        mean_prompt_tokens=work.mean_prompt_tokens,
        mean_output_tokens=work.mean_output_tokens,
        link_bytes_per_s=1e9 * p.link_gb_per_s,
        travel_s=LATENCY_S + travel_bytes / (1e9 * p.link_gb_per_s),
        travel_bytes=travel_bytes,
    )


def _way_words(way: Way) -> str:
    refused = f" ({way.refused} refused)" if way.refused else ""
    return (
        f"TTFT {seconds(way.ttft_p50_s)} in the middle and {seconds(way.ttft_p99_s)} at P99, gaps "
        f"{seconds(way.gap_p50_s)} and {seconds(way.gap_p99_s)}{refused}"
    )


def _sentence(parts: list[str]) -> str:
    """Join parts, the first letter a capital; `str.capitalize` would lower the others."""
    joined = "; ".join(parts)
    return joined[0].upper() + joined[1:]


def _words(r: PrefillOrDecode) -> str:
    names = ("prefill first", f"chunks of {CHUNKS[r.chosen]:,}", "separate pools")
    parts = [f"{name}: {_way_words(way)}" for name, way in zip(names, r.here, strict=True)]
    soonest = min(range(3), key=lambda i: r.here[i].ttft_p99_s)
    calmest = min(range(3), key=lambda i: r.here[i].gap_p99_s)
    both = (
        f"with {names[soonest]} P99 TTFT and P99 gap are both shortest"
        if soonest == calmest
        else f"P99 TTFT is shortest with {names[soonest]}, the P99 gap with {names[calmest]}"
    )
    return (
        f"{r.rate_per_s:g} requests a second on two H100s, {rounded(r.mean_prompt_tokens)} tokens "
        f"in, {rounded(r.mean_output_tokens)} out. {_sentence(parts)}. So {both}. Between the "
        f"pools a prompt's {rounded(r.travel_bytes / 1e6)} MB of KV travel "
        f"{seconds(r.travel_s)} on average, and one in a hundred waits over "
        f"{seconds(r.second_p99_s)} for the second token."
    )


def _question(r: PrefillOrDecode) -> str:
    first, chunked, _ = r.here
    head = (
        f"{r.rate_per_s:g} requests a second on two H100s, {rounded(r.mean_prompt_tokens)} tokens "
        f"in, {rounded(r.mean_output_tokens)} out."
    )
    if r.asked == 0:
        return (
            f"{head} With chunks of {CHUNKS[r.chosen]:,} tokens 99 of 100 gaps between tokens stay "
            f"within {seconds(chunked.gap_p99_s)}. Within what, when whole prompts go first?"
        )
    if r.asked == 1:
        return (
            f"{head} With whole prompts first, 99 of 100 gaps between tokens stay within "
            f"{seconds(first.gap_p99_s)}. Within what, with chunks of {CHUNKS[r.chosen]:,} tokens?"
        )
    return (
        f"{head} One card prefills, the other decodes, and the KV cache travels at "
        f"{rounded(r.link_bytes_per_s / 1e9)} GB/s. Within what time do 99 of 100 have their "
        "second token after the first?"
    )


def _answer(r: PrefillOrDecode) -> float:
    return 1e3 * (r.second_p99_s if r.asked == 2 else r.here[r.asked].gap_p99_s)


def _tables(r: PrefillOrDecode) -> list[Table]:
    rows: list[Table] = [{"way": WAYS[0], "chunk_tokens": None} | asdict(r.first)]
    rows += [
        {"way": WAYS[1], "chunk_tokens": chunk} | asdict(way)
        for chunk, way in zip(CHUNKS, r.chunked, strict=True)
    ]
    pools = asdict(r.pools) | {"second_p99_s": r.second_p99_s}
    return [*rows, {"way": WAYS[2], "chunk_tokens": None} | pools]


prefill_or_decode = Explorer(
    call="explore.prefill_or_decode",
    title="Three ways to keep prefill from hurting decode",
    parameters=PrefillOrDecodeParameters,
    compute=_prefill_or_decode,
    drawing=PrefillOrDecodePicture,
    narrate=_words,
    alt=(
        "Two panels over the chunk size from 256 to 8,192 tokens, both with logarithmic scales. "
        "Left the time to first token, right the gap between tokens; thick lines are the 99th "
        "percentile, thin ones the median. Prefill first and separate pools are level lines, "
        "chunked prefill is a curve: larger chunks lower the left one and raise the right one."
    ),
    presets=(
        Preset(
            "Chat on an H100",
            "32 chats a second for two H100s. Three ways to share the work: whole prompts first, "
            "prompts in chunks of 2,048 among the decoding, or one card for each.",
            "Which way has the calmest tokens, and who waits longest for the first?",
            {"chunk_tokens": 2048},
        ),
        Preset(
            "Chunk of 256",
            "The dial at its small end: 256 tokens a step, those that decode included.",
            "The gaps are as short as decode allows. Where did the time go?",
            {"chunk_tokens": 256},
        ),
        Preset(
            "Chunk of 8,192",
            "The dial at its large end: most prompts fit into one step.",
            "Chunked prefill with chunks longer than the prompts: how far is it from prefill "
            "first, and why is it not the same?",
            {"chunk_tokens": 8192},
        ),
        Preset(
            "Separate pools, slow link",
            "One card prefills, the other decodes, and 1 GB/s lies between them.",
            "P99 of the gaps looks as calm as ever. What does it hide?",
            {"asked": 2, "link_gb_per_s": 1.0},
        ),
        Preset(
            "Prompt-heavy",
            "Eight requests a second of 5,700 tokens, with short answers.",
            "One of the two pools is overrun while the other has little to do. Which, and who "
            "notices?",
            {
                "lengths": "prompt-heavy: 5,700 in, 90 out",
                "rate_per_s": 8.0,
                "asked": 0,
            },
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_question,
        unit="ms",
        answer=_answer,
        mark=lambda r, guess: (float(CHUNKS[r.chosen]), guess / 1e3),
    ),
)
