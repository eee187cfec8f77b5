"""The KV-memory explorer: which model on which card under which load, and what it says."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from course.explore.steady import steady_tpot_s
from course.figures.ch04.kv_memory import KvMemory, KvMemoryPicture, Loads
from course.serving import catalog
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.pricing import RESERVE_BYTES, DoesNotFitError, RooflineStepCost
from course.serving.workload import Fixed, Lognormal, Poisson, Workload, draw
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, stops
from course.words import percent, rounded, seconds

BLOCK: Final = 16
BUDGET: Final = 2048
LOADS: Final = (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.15, 1.3)
_FRACTIONS: Final = np.round(np.arange(0.80, 0.9501, 0.01), 2)

CARDS: Final = {
    "RTX 4090, 24 GB": "RTX-4090",
    "L4, 24 GB": "L4",
    "L40S, 48 GB": "L40S",
    "H100, 80 GB": "H100-80GB-SXM",
    "H200, 141 GB": "H200-141GB-SXM",
}
_BYTES: Final = {"bf16": 2, "fp8": 1}
PRECISIONS: Final = {
    "bf16": ("bf16", "bf16"),
    "weights in fp8": ("fp8", "bf16"),
    "weights and cache in fp8": ("fp8", "fp8"),
}


@dataclass(frozen=True)
class KvMemoryParameters:
    """The model, the card, what a sequence looks like, and the load."""

    model: str = choice(
        "Llama-3.1-8B",
        ["Llama-3.1-8B", "Qwen3-8B", "Mistral-7B", "Llama-2-13B", "Qwen3-32B"],
        label="Model", help="Its shape decides how many bytes a token takes in the cache",
    )  # fmt: skip
    card: str = choice(
        "RTX-4090", CARDS, label="Card", help="Its memory holds weights, reserve and KV cache",
    )  # fmt: skip
    precision: tuple[str, str] = choice(
        ("bf16", "bf16"), PRECISIONS, label="Precision", help="Bytes of a weight, and of a value",
    )  # fmt: skip
    heads: int = choice(
        1, {"as the model has": 1, "four times as many": 4}, label="KV heads",
        help="Heads whose keys and values are kept; models that share them keep fewer",
    )  # fmt: skip
    fraction: float = slider(
        0.90, 0.80, 0.95, 0.01, label="Memory fraction", unit="gpu_memory_utilization",
        help="How much of the card the server may use",
    )  # fmt: skip
    lengths: tuple[int, int] = choice(
        (300, 300),
        {
            "300 in, 300 out": (300, 300), "400 in, 800 out": (400, 800),
            "1,000 in, 300 out": (1000, 300), "4,000 in, 200 out": (4000, 200),
        },
        label="Tokens", help="Every prompt, and the mean answer; answers vary by half",
    )  # fmt: skip
    load: float = slider(
        0.6, 0.5, 1.3, 0.05, label="Offered load", unit="1: memory full on average",
        help="Arrivals, as a share of the rate at which the sequences in flight fill the memory",
    )  # fmt: skip
    seats: int = stops(
        256, (16, 32, 48, 64, 96, 128, 256, 512), label="Seats", unit="max_num_seqs",
        help="How many requests may run together, whether they fit or not",
    )  # fmt: skip
    hit_share: float = choice(
        0.0, {"nothing": 0.0, "half": 0.5, "nine tenths": 0.9}, label="Prefix cache holds",
        help="Of each prompt, when it is first scheduled: full blocks of 16 tokens",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number draws other answers")


@dataclass(frozen=True)
class Server:
    """A model on a card, by the names of `KvMemoryParameters`."""

    model: str
    card: str
    precision: tuple[str, str]
    heads: int
    fraction: float


def server_of(p: KvMemoryParameters) -> Server:
    """Return the server that the sliders describe."""
    return Server(p.model, p.card, p.precision, p.heads, p.fraction)


def shape_of(server: Server) -> catalog.Model:
    """Return the model, with more KV heads where they are asked for."""
    model = catalog.model(server.model)
    return replace(model, kv_heads=min(model.kv_heads * server.heads, model.heads))


@lru_cache(maxsize=64)
def _cost(server: Server) -> RooflineStepCost:
    weights, cache = server.precision
    return RooflineStepCost(shape_of(server), server.card, precision=weights, kv_precision=cache)


def cost_of(server: Server) -> RooflineStepCost:
    """Return the cost of a server's steps; DoesNotFitError where the weights alone do not fit."""
    return _cost(replace(server, fraction=1.0))  # which moves no second of a step


@lru_cache(maxsize=1024)
def blocks_of(server: Server) -> int:
    """Return how many KV blocks a server has; 0 where nothing fits."""
    try:
        return cost_of(server).kv_blocks(BLOCK, server.fraction)
    except DoesNotFitError:
        return 0


def fit_of(blocks: int, tokens: int) -> int:
    """Return how many whole sequences of `tokens` fit: a sequence takes whole blocks.

    The last token of an answer is never read back, so its place is not needed.

    >>> fit_of(2154, 600)
    56
    """
    return int(blocks // -(-(tokens - 1) // BLOCK))


def full_rate_per_s(server: Server, prompt: int, output: int) -> float:
    """Return the arrivals a second at which the sequences in flight fill the memory on average.

    Each is caught half-way through its answer, so n = tokens of memory / (prompt + output/2) are
    inside, each for output · TPOT(n) seconds; the rest is Little's law.
    """
    inside = mean_fit(server, prompt, output)
    tpot_s = steady_tpot_s(cost_of(server), max(round(inside), 1), prompt, output)[1]
    return inside / (output * tpot_s)


def mean_fit(server: Server, prompt: int, output: int) -> float:
    """Return how many sequences, each half-way through its answer, fill the memory."""
    return BLOCK * blocks_of(server) / (prompt + output / 2)


@lru_cache(maxsize=64)
def _drawn(number: int, prompt: int, output: int, longest: int, seed: int) -> Workload:
    """The same requests at one a second, whatever the load."""
    lengths = Lognormal.of_mean(output, 0.5, longest)
    return draw(number, Poisson(1.0), Fixed(prompt), lengths, seed=seed)


def traffic(
    server: Server, lengths: tuple[int, int], load: float, hit_share: float, seed: int
) -> Workload:
    """Return requests at a share of the full rate: prompts alike, answers lognormal."""
    prompt, output = lengths
    number = int(np.clip(8 * mean_fit(server, prompt, output), 300, 1200))
    # An answer that could never fit would be refused, and is another lesson.
    longest = max(min(4 * output, BLOCK * blocks_of(server) - prompt), 1)
    drawn = _drawn(number, prompt, output, longest, seed)
    # the luck of the draw stays in the rate, as it does where it is drawn at that rate
    work = drawn.scaled(drawn.rate_per_s * load * full_rate_per_s(server, prompt, output))
    if not hit_share:
        return work
    return replace(work, cached_prefix_tokens=np.full(number, int(hit_share * prompt)))


def run_of(
    server: Server, lengths: tuple[int, int], load: float, hit_share: float, seed: int, seats: int
) -> Run:
    """Run one load on a server with so many seats."""
    config = EngineConfig(
        max_num_seqs=seats, max_num_batched_tokens=BUDGET, num_kv_blocks=blocks_of(server)
    )
    work = traffic(server, lengths, load, hit_share, seed)
    return simulate(work, cost_of(server), config)


def _films(p: KvMemoryParameters) -> dict[str, Run]:
    """Return the runs that are watched: the seats that are set, and as many as fit."""
    server = server_of(p)
    fit = fit_of(blocks_of(server), sum(p.lengths))
    if fit == 0:
        return {}
    return {
        f"{seats} seats": run_of(server, p.lengths, p.load, p.hit_share, p.seed, seats)
        for seats in dict.fromkeys((p.seats, min(p.seats, fit)))
    }


def recomputed_share(run: Run) -> float:
    """Return the share of all computed tokens that had been computed before.

    Prompt tokens computed beyond those of each prompt that the prefix cache did not hold.
    """
    cached = run.work.cached_prefix_tokens
    held = 0 if cached is None else int((cached // BLOCK * BLOCK).sum())
    prefilled = int(run.step_prefill_tokens.sum())
    once = int(run.work.prompt_tokens.sum()) - held
    return (prefilled - once) / (prefilled + int(run.step_decode_seqs.sum()))


@lru_cache(maxsize=1024)
def _level(
    server: Server, lengths: tuple[int, int], load: float, hit_share: float, seed: int, seats: int
) -> tuple[float, ...]:
    """One load's row of `Loads`."""
    run = run_of(server, lengths, load, hit_share, seed, seats)
    gaps, found = run.pooled_gaps(np.isfinite(run.finish_s)), run.summary()
    return (
        load,
        float(run.preemptions.mean()),
        recomputed_share(run),
        found.tpot.p99 or math.nan,
        found.ttft.p99 or math.nan,
        found.e2e.p99 or math.nan,
        gaps.largest or 0.0,
    )


def _loads(p: KvMemoryParameters, loads: tuple[float, ...], seats: int) -> Loads:
    rows = [_level(server_of(p), p.lengths, x, p.hit_share, p.seed, seats) for x in loads]
    return Loads(*np.array(rows).T)


def _parts(server: Server) -> tuple[tuple[float, float, float, float], int, float]:
    """The memory's parts in bytes, KV bytes a token, and what is missing (0 where it fits)."""
    card = catalog.gpu(server.card)
    weights, cache = server.precision
    shaped = shape_of(server)
    weight_bytes = shaped.parameters * _BYTES[weights]
    token_bytes = int(shaped.kv_bytes_per_token(_BYTES[cache]))
    usable = server.fraction * card.memory_bytes
    kv_bytes = blocks_of(server) * BLOCK * token_bytes
    rest = max(card.memory_bytes - weight_bytes - RESERVE_BYTES - kv_bytes, 0.0)
    short = weight_bytes + RESERVE_BYTES + BLOCK * token_bytes - usable
    parts = (float(weight_bytes), float(RESERVE_BYTES), float(kv_bytes), float(rest))
    return parts, token_bytes, 0.0 if kv_bytes else max(short, 1.0)


def _kv_memory(p: KvMemoryParameters) -> KvMemory:
    server = server_of(p)
    blocks, (prompt, output) = blocks_of(server), p.lengths
    fit = fit_of(blocks, prompt + output)
    parts, token_bytes, short_bytes = _parts(server)
    none = Loads.none()
    there = fit > 0
    here = _loads(p, (p.load,), p.seats) if there else none
    return KvMemory(
        title=f"{p.model} on {_card_words(p.card)}",
        parts_bytes=parts,
        kv_bytes_per_token=token_bytes,
        blocks=blocks,
        prompt_tokens=prompt,
        output_tokens=output,
        fit=fit,
        mean_fit=mean_fit(server, prompt, output),
        fraction=p.fraction,
        fractions=_FRACTIONS,
        fits=np.array(
            [
                fit_of(blocks_of(replace(server, fraction=float(x))), prompt + output)
                for x in _FRACTIONS
            ],
            dtype=float,
        ),
        load=p.load,
        rate_per_s=p.load * full_rate_per_s(server, prompt, output) if there else 0.0,
        seats=p.seats,
        hit_share=p.hit_share,
        swept=_loads(p, LOADS, p.seats) if there else none,
        safe=_loads(p, LOADS, fit) if there else none,
        here=here,
        here_cold=_loads(replace(p, hit_share=0.0), (p.load,), p.seats) if there else none,
        here_safe=_loads(p, (p.load,), fit) if there else none,
        short_bytes=short_bytes,
        asks_for_share=bool(here.recomputed.size and here.recomputed[0] > 0.01),
    )


def _card_words(card: str) -> str:
    return next(words for words, name in CARDS.items() if name == card)


def _words(r: KvMemory) -> str:
    head = f"{r.title}: weights {_gb(r.parts_bytes[0])}, {_kib(r)} of KV a token"
    if not r.here.load.size:
        missing = (
            f"{_gb(r.short_bytes)} are missing" if r.short_bytes else "not one whole sequence fits"
        )
        return f"{head}; with a memory fraction of {r.fraction:.2f} {missing}."
    return (
        f"{head}. A memory fraction of {r.fraction:.2f} leaves {r.blocks:,} blocks of {BLOCK} "
        f"tokens; {r.fit:,} whole sequences of {r.tokens:,} tokens fit ({_fit_at(r, 0.85):,} at "
        f"0.85, {_fit_at(r, 0.95):,} at 0.95). {_load_words(r)}"
    )


def _fit_at(r: KvMemory, fraction: float) -> int:
    return int(r.fits[np.abs(r.fractions - fraction).argmin()])


def _load_words(r: KvMemory) -> str:
    here, safe = r.here, r.here_safe
    hits = f", {percent(r.hit_share)} of each prompt cached" if r.hit_share else ""
    words = (
        f"At {percent(r.load)} load ({rounded(r.rate_per_s)} requests/s{hits}) and {r.seats} seats "
        f"there are {rounded(float(here.preemptions[0]), 2)} preemptions a request and "
        f"{percent(round(float(here.recomputed[0]), 3))} of the tokens are computed again; P99 "
        f"TTFT {seconds(float(here.ttft_p99_s[0]))}, P99 TPOT "
        f"{seconds(float(here.tpot_p99_s[0]))}, longest gap {seconds(float(here.longest_gap_s[0]))}"
    )
    if r.hit_share:
        words += f" (P99 TTFT without the cache {seconds(float(r.here_cold.ttft_p99_s[0]))})"
    if not here.preemptions[0]:
        return f"{words}."
    return (
        f"{words}; with {r.fit:,} seats {seconds(float(safe.ttft_p99_s[0]))}, "
        f"{seconds(float(safe.tpot_p99_s[0]))} and {seconds(float(safe.longest_gap_s[0]))}."
    )


def _gb(value: float) -> str:
    return f"{rounded(1e-9 * value)} GB"


def _kib(r: KvMemory) -> str:
    return f"{r.kv_bytes_per_token / 1024:g} KiB"


def _question(r: KvMemory) -> str:
    if r.asks_for_share:
        return (
            f"{r.fit:,} whole sequences fit, {r.seats} seats are free to take, and at "
            f"{percent(r.load)} load those in flight come and go. Of all the tokens that the card "
            "computes, what share has it computed before?"
        )
    total = sum(r.parts_bytes)
    return (
        f"{r.title}: {_gb(total)} (of 10⁹ bytes each), of which the server may use "
        f"{percent(r.fraction)}. Weights take "
        f"{_gb(r.parts_bytes[0])}, the reserve {_gb(r.parts_bytes[1])}, a token of KV {_kib(r)}. "
        f"How many sequences of {r.tokens:,} tokens fit?"
    )


def _answer(r: KvMemory) -> float | None:
    if r.asks_for_share:
        return 100 * float(r.here.recomputed[0])
    return float(r.fit) if r.fit else None


def _tables(r: KvMemory) -> list[Table]:
    named = {"as set": r.swept, "as fit": r.safe, "here": r.here}
    return [asdict(loads) | {"seats": name} for name, loads in named.items()]


kv_memory = Explorer(
    call="explore.kv_memory",
    title="KV memory: how many sequences fit, and what one more does",
    parameters=KvMemoryParameters,
    compute=_kv_memory,
    filmed=_films,
    drawing=KvMemoryPicture,
    narrate=_words,
    alt=(
        "Left above, the card's memory as one bar: weights, reserve, KV cache, and what is left to "
        "others. Below, how many whole sequences fit against the memory fraction from 0.80 to "
        "0.95, a rising line. Right, three strips over the offered load: preemptions a request, "
        "share of tokens computed again, and the 99th percentile of time per output token; one "
        "line for the seats as set, a dashed one for no more seats than sequences fit."
    ),
    presets=(
        Preset(
            "8B on a 24 GB card",
            "Llama-3.1-8B in bf16 on an RTX 4090: two thirds of the memory are weights.",
            "What is left, and how many conversations of 600 tokens is that?",
            {"load": 0.6},
        ),
        Preset(
            "Memory fraction 0.85 to 0.95",
            "The same card, gpu_memory_utilization at 0.95. Move it down to 0.85.",
            "A tenth of the card more or less. Is that a tenth of the sequences?",
            {"fraction": 0.95, "load": 0.9},
        ),
        Preset(
            "The storm",
            "As many arrivals as fill the memory on average, and 256 seats to take.",
            "Who does not fit is thrown out and computed again later. Does the card get more done "
            "that way?",
            {"load": 1.0, "fraction": 0.9},
        ),
        Preset(
            "Prefix hits",
            "Prompts of 1,000 tokens, nine tenths of each in the prefix cache: each goes on with a "
            "conversation of its own.",
            "The first tokens come sooner. Do more sequences fit?",
            {"lengths": (1000, 300), "hit_share": 0.9, "load": 0.7},
        ),
        Preset(
            "Four times fewer KV heads",
            "Llama-3.1-8B keeps 8 KV heads for 32 query heads. Choose four times as many, as older "
            "models have.",
            "What happens to the number of sequences, and to the load that the card bears?",
            {"card": "H100-80GB-SXM", "lengths": (4000, 200), "load": 0.7},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_question,
        unit=lambda r: "%" if r.asks_for_share else "sequences",
        answer=_answer,
        mark=lambda r, guess: (r.load, guess / 100) if r.asks_for_share else (r.fraction, guess),
    ),
)
