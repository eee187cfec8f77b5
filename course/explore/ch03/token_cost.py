"""The token-cost explorer: which cards at which price, and what it says; seconds, dollars and runs
come from ``course.serving``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from course.explore.ch03.layouts import (
    LAYOUTS,
    layout_cost,
    listed_price,
    price_words,
    replica_cost,
    usd_per_million,
)
from course.explore.steady import BUDGET, steady_tpot_s
from course.figures.ch03.token_cost import LayoutCost, LoadCost, TokenCost, TokenCostPicture
from course.serving import catalog
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import RooflineStepCost
from course.serving.workload import Workload
from course.ui import Explorer, Prediction, Preset, Table, choice, slider, stops
from course.words import percent, rounded, seconds

_GPUS = ("A100-80GB-SXM", "H100-80GB-SXM", "H200-141GB-SXM", "B200-180GB-SXM")
_MODELS = {
    "Llama-3.1-8B in bf16": ("Llama-3.1-8B", "bf16"),
    "Llama-3.1-8B in fp8": ("Llama-3.1-8B", "fp8"),
    "Qwen3-32B in fp8": ("Qwen3-32B", "fp8"),
    "Llama-3.1-70B in fp8": ("Llama-3.1-70B", "fp8"),
}
_SELLERS = {"the cheapest": "cheapest", "in the middle": "middle", "the dearest": "dearest"}
_BATCHES = (
    1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096,
)  # fmt: skip
_LOADS = (0.1, 0.25, 0.4, 0.55, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2)
# Enough answers a seat that filling and emptying the server are a small part of the run.
_REQUESTS_A_SEAT, _LEAST_REQUESTS, _MOST_REQUESTS = 12, 300, 6000


@dataclass(frozen=True)
class TokenCostParameters:
    """The cards and their price, the requests, the promises, and how full the server is run."""

    model: tuple[str, str] = choice(
        ("Llama-3.1-8B", "bf16"), _MODELS, label="Model", help="Model and precision of its weights",
    )  # fmt: skip
    gpu: str = choice(
        "H100-80GB-SXM", _GPUS, label="GPU", help="All cards are alike, linked by NVLink",
    )  # fmt: skip
    layout: str = choice(
        "one card", {f"{name} ({r} × {n})": name for name, (r, n) in LAYOUTS.items()},
        label="Layout (replicas × cards)", help="Eight cards are one large server or several small",
    )  # fmt: skip
    seller: str = choice(
        "middle", _SELLERS, label="Seller", help="Of the dated list prices for this card",
    )  # fmt: skip
    lengths: tuple[int, int] = choice(
        (512, 256),
        {"512 in, 256 out": (512, 256), "2,048 in, 256 out": (2048, 256),
         "2,048 in, 2,048 out": (2048, 2048), "8,192 in, 512 out": (8192, 512)},
        label="Tokens", help="Prompt and answer of every request",
    )  # fmt: skip
    batch: int = stops(
        128, _BATCHES, label="Batch", unit="sequences in flight",
        help="Seats of all replicas together",
    )  # fmt: skip
    tpot_promise_ms: float = slider(
        20.0, 0.0, 100.0, 1.0, label="Promise: each token within", unit="ms, 0: none",
        help="The mean time per output token after the first",
    )  # fmt: skip
    ttft_promise_s: float = slider(
        2.0, 0.0, 5.0, 0.1, label="Promise: first token within", unit="s, 0: none",
        help="Only the right panel, which simulates the queue, knows about it",
    )  # fmt: skip
    load: float = slider(
        0.8, 0.05, 1.2, 0.01, label="Load, share of capacity",
        help="Requests that arrive, as a share of what these seats can serve",
    )  # fmt: skip


# ========================================================================================== loads
@lru_cache(maxsize=8)
def _unit_arrivals(requests: int) -> np.ndarray:
    return np.random.default_rng(1).exponential(size=requests).cumsum()


@lru_cache(maxsize=96)
def _served(
    cost: RooflineStepCost, lengths: tuple[int, int], seats: int, rate_per_s: float
) -> tuple[np.ndarray, np.ndarray, float]:
    """TTFT and TPOT of one replica's requests, and how long all of them took, in seconds."""
    requests = min(max(_REQUESTS_A_SEAT * seats, _LEAST_REQUESTS), _MOST_REQUESTS)
    work = Workload(
        _unit_arrivals(requests) / rate_per_s,
        np.full(requests, lengths[0]), np.full(requests, lengths[1]),
    )  # fmt: skip
    config = EngineConfig(
        max_num_seqs=seats, max_num_batched_tokens=max(BUDGET, seats),
        num_kv_blocks=cost.kv_blocks(),
    )  # fmt: skip
    run = simulate(work, cost, config)
    return np.asarray(run.ttft_s), np.asarray(run.tpot_s), float(run.finish_s.max())


def _load_cost(
    cost: RooflineStepCost, p: TokenCostParameters, seats: int, loads: tuple[float, ...]
) -> LoadCost:
    """What a thousand answers cost at each load, on one of the replicas among which they split."""
    replicas, _ = LAYOUTS[p.layout]
    capacity_per_s = seats / steady_tpot_s(cost, seats, *p.lengths)[1] / p.lengths[1]
    usd_per_s = cost.usd_per_hour(listed_price(p.gpu, p.seller)) / 3600
    rows = []
    requests = 0
    for load in loads:
        ttft_s, tpot_s, took_s = _served(cost, p.lengths, seats, load * capacity_per_s)
        good = np.ones(ttft_s.size, dtype=bool)
        if p.ttft_promise_s:
            good &= ttft_s <= p.ttft_promise_s
        if p.tpot_promise_ms:
            good &= tpot_s <= p.tpot_promise_ms / 1e3
        requests = good.size
        usd, share = 1e3 * usd_per_s * took_s / good.size, float(good.mean())
        offered_per_s = replicas * load * capacity_per_s
        rows.append((load, offered_per_s, usd, usd / share if share else math.nan, share))
    columns = np.array(rows).T
    return LoadCost(columns[0], columns[1], columns[2], columns[3], columns[4], requests)


# ======================================================================================== compute
def _token_cost(p: TokenCostParameters) -> TokenCost:
    price = listed_price(p.gpu, p.seller)
    promise_s = p.tpot_promise_ms / 1e3
    names = [p.layout] if p.layout == "one card" else [n for n in LAYOUTS if n != "one card"]
    costs = {n: replica_cost(*p.model, p.gpu, LAYOUTS[n][1]) for n in names}
    chosen = costs[p.layout]
    fitting = [n for n in names if not isinstance(costs[n], str)]
    fitting.sort(key=lambda n: n != p.layout)
    layouts = []
    for name in fitting:
        cost = costs[name]
        assert isinstance(cost, RooflineStepCost)
        layouts.append(layout_cost(name, cost, p.lengths, price, promise_s))
    replicas, gpus_each = LAYOUTS[p.layout]
    here = (0, math.nan, math.nan)
    curve = point = None
    if isinstance(chosen, RooflineStepCost):
        most = layouts[0].most // replicas
        seats = min(max(round(p.batch / replicas), 1), most)
        tpot_s = steady_tpot_s(chosen, seats, *p.lengths)[1]
        here = (replicas * seats, usd_per_million(chosen, seats, tpot_s, price), tpot_s)
        curve = _load_cost(chosen, p, seats, _LOADS)
        point = _load_cost(chosen, p, seats, (p.load,))
    model, precision = p.model
    lacks_fp8 = catalog.gpu(p.gpu).peak_fp8_flop_per_s is None
    used = "bf16" if lacks_fp8 else precision
    return TokenCost(
        server=f"{model} in {used} on {p.gpu}",
        price_words=price_words(price, replicas * gpus_each),
        usd_per_gpu_hour=price.usd_per_gpu_hour,
        n_gpus=replicas * gpus_each,
        prompt_tokens=p.lengths[0],
        output_tokens=p.lengths[1],
        tpot_promise_s=promise_s,
        ttft_promise_s=p.ttft_promise_s,
        layouts=tuple(layouts),
        shortfall=chosen if isinstance(chosen, str) else "",
        wanted_sequences=p.batch,
        here_sequences=here[0],
        here_usd=here[1],
        here_tpot_s=here[2],
        curve=curve,
        here=point,
    )


# ========================================================================================== words
def _words(r: TokenCost) -> str:
    cards = "one card" if r.n_gpus == 1 else f"{r.n_gpus} cards"
    head = f"{r.server}, {cards} at {r.price_words}"
    chosen = r.chosen
    if chosen is None:
        others = [layout.name for layout in r.layouts]
        way_out = f"; it does as {' or '.join(others)}" if others else ""
        return f"{head}: one replica does not fit, {r.shortfall}{way_out}."
    limited = ""
    if r.here_sequences < r.wanted_sequences:
        limited = f" (memory holds no more of the {r.wanted_sequences:,})"
    elif r.here_sequences > r.wanted_sequences:
        limited = f" (one for each replica, instead of {r.wanted_sequences:,})"
    batch = (
        f"With {r.here_sequences:,} sequence{'' if r.here_sequences == 1 else 's'} in "
        f"flight{limited} a million output tokens cost {rounded(r.here_usd)} USD, at a TPOT of "
        f"{seconds(r.here_tpot_s)}. It runs on {head}. {_promise_words(r, chosen)}"
    )
    return f"{batch}{_layout_words(r)} {_load_words(r)}"


def _promise_words(r: TokenCost, chosen: LayoutCost) -> str:
    cheapest = f"{rounded(chosen.cheapest_usd)} USD with {chosen.most:,}"
    if not r.tpot_promise_s:
        return f"Nothing is promised: the cheapest batch is the largest that fits, {cheapest}."
    promise = seconds(r.tpot_promise_s)
    if not chosen.keeps_promise:
        return f"No batch keeps a TPOT of {promise}; without it the cheapest is {cheapest}."
    if chosen.inside == chosen.most:
        return f"Even the largest batch that fits keeps {promise}: {cheapest}."
    return (
        f"The cheapest batch that keeps {promise} has {chosen.inside:,} and costs "
        f"{rounded(chosen.inside_usd)}; the largest that fits {cheapest}."
    )


def _layout_words(r: TokenCost) -> str:
    """How the other ways to arrange the same cards do, where there are any."""
    if r.n_gpus == 1:
        return ""
    kept = sorted(
        (layout for layout in r.layouts if layout.keeps_promise), key=lambda x: x.inside_usd
    )
    if not kept:
        return " No other layout keeps it."
    listed = ", ".join(f"{layout.name} {rounded(layout.inside_usd)}" for layout in kept)
    within = "inside the promise" if r.tpot_promise_s else "at best"
    missing = [name for name in LAYOUTS if name not in {x.name for x in (*kept,)}]
    missing = [name for name in missing if name != "one card"]
    cannot = f"; {' and '.join(missing)} cannot" if missing else ""
    return f" Of the layouts of eight, {within}: {listed}{cannot}."


def _load_words(r: TokenCost) -> str:
    here = r.here
    assert here is not None
    share, usd = float(here.good_share[0]), float(here.usd_good[0])
    head = (
        f"At {percent(float(here.load[0]))} of its capacity "
        f"({rounded(float(here.offered_per_s[0]))} requests/s) "
    )
    promises = " and ".join(
        f"{name} {seconds(promise)}"
        for name, promise in (("TTFT", r.ttft_promise_s), ("TPOT", r.tpot_promise_s))
        if promise
    )
    if not share:
        return f"{head}no answer keeps {promises}, and no price buys a good one."
    if not promises:
        return f"{head}a thousand answers cost {rounded(usd)} USD."
    if share == 1:
        return f"{head}every answer keeps {promises}, and a thousand cost {rounded(usd)} USD."
    return (
        f"{head}{percent(round(share, 3))} of the first {here.requests:,} answers keep "
        f"{promises}, and a thousand of those cost {rounded(usd)} USD instead of "
        f"{rounded(float(here.usd_all[0]))}."
    )


def _tables(r: TokenCost) -> list[Table]:
    tables: list[Table] = [
        {"panel": "batch", "layout": x.name, "sequences": x.sequences, "tpot_s": x.tpot_s,
         "usd_per_million_output_tokens": x.usd}
        for x in r.layouts
    ]  # fmt: skip
    if r.curve is not None:
        renamed = {"usd_all": "usd_per_thousand", "usd_good": "usd_per_thousand_good"}
        curve = {renamed.get(name, name): column for name, column in vars(r.curve).items()}
        tables.append(curve | {"panel": "load"})
    return tables or [{"panel": "none", "layout": r.shortfall}]


def _question(r: TokenCost) -> str:
    cards, each = ("one card", "") if r.n_gpus == 1 else (f"{r.n_gpus} cards", " each")
    what = (
        f"{r.server}, {cards} at {r.usd_per_gpu_hour:.2f} USD an hour{each}; "
        f"{r.prompt_tokens:,} tokens in, {r.output_tokens:,} out."
    )
    if not r.tpot_promise_s:
        return (
            f"{what} Nobody waits for the answers. What does a million output tokens cost at the "
            "cheapest batch?"
        )
    return (
        f"{what} Each token must come within {seconds(r.tpot_promise_s)}. What does a million "
        "output tokens cost at the cheapest batch that keeps this promise?"
    )


def _answer(r: TokenCost) -> float | None:
    chosen = r.chosen
    if chosen is None or not chosen.keeps_promise:
        return None
    return chosen.inside_usd


def _mark(r: TokenCost, guess: float) -> tuple[float, float] | None:
    chosen = r.chosen
    return (float(chosen.inside), guess) if chosen and chosen.keeps_promise else None


token_cost = Explorer(
    call="explore.token_cost",
    title="What a token costs, and what a good answer costs",
    parameters=TokenCostParameters,
    compute=_token_cost,
    drawing=TokenCostPicture,
    narrate=_words,
    alt=(
        "Three panels. Left above, USD per million output tokens against sequences in flight, both "
        "logarithmic: the more share a step, the cheaper, until memory is full. Left below, the "
        "TPOT that this costs, with the promise as a horizontal line; a vertical line carries "
        "the largest batch inside it up to its price. Right, USD per thousand answers against the "
        "load: those of all answers fall, those of good answers leap where promises break."
    ),
    presets=(
        Preset(
            "Chat with a TPOT promise",
            "Llama-3.1-8B on one H100 for chats, 20 ms a token promised, 128 chats at once.",
            "How much money does the promise of 20 ms cost?",
            {"batch": 128, "tpot_promise_ms": 20.0, "lengths": (2048, 256)},
        ),
        Preset(
            "Offline batch",
            "The same card and the same requests at night: nobody waits, nothing is promised.",
            "Same GPU, other optimum. Which batch would you run, and what limits it now?",
            {
                "batch": 192,
                "tpot_promise_ms": 0.0,
                "ttft_promise_s": 0.0,
                "lengths": (2048, 256),
                "load": 1.0,
            },
        ),
        Preset(
            "Same card, another seller",
            "The chats again, on the dearest listed H100 instead of one in the middle.",
            "Which of the curves moved, and did the best batch move with it?",
            {"batch": 128, "tpot_promise_ms": 20.0, "lengths": (2048, 256), "seller": "dearest"},
        ),
        Preset(
            "One of eight, two of four, eight of one",
            "Eight H100s and a model of 70 billion parameters in fp8, which one card just holds.",
            "All-reduces cost time, copies of the weights cost memory. Which layout wins, and why?",
            {
                "model": ("Llama-3.1-70B", "fp8"),
                "layout": "two of four",
                "batch": 256,
                "tpot_promise_ms": 40.0,
                "load": 0.7,
            },
        ),
        Preset(
            "Cost per success",
            "The chats again with 96 seats and 40 ms a token, in the hour when a tenth more of "
            "them arrive than can be served.",
            "Tokens are at their cheapest here. What happened to the price of a good answer?",
            {
                "batch": 96,
                "tpot_promise_ms": 40.0,
                "ttft_promise_s": 2.0,
                "lengths": (2048, 256),
                "load": 1.1,
            },
        ),
    ),
    tables=_tables,
    prediction=Prediction(question=_question, unit="USD", answer=_answer, mark=_mark),
)
