"""The ramp explorer: which server, whose requests, what was promised; loads are run elsewhere."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np

from course.explore.ch06.servers import (
    BLOCK,
    BUDGET,
    CHAT,
    DOCUMENTS,
    MOST_PROMPT_TOKENS,
    SEATS,
    SERVERS,
    TRACES,
    TraceTraffic,
    step_cost,
)
from course.figures.ch06.ramp import LoadCurve, Ramp, RampPicture
from course.serving.engine import EngineConfig
from course.serving.load import Scenario, Sweep, find_knee, measure, sweep
from course.serving.requests import SLO
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, stops
from course.words import percent, rounded, seconds

REQUESTS: Final = 1200
"""Of each load: their P99 is the twelfth slowest or so."""

# Shares of the most that the server can do; close together where the curves bend.
_SHARES: Final = (0.2, 0.45, 0.66, 0.8, 0.9, 0.98, 1.08, 1.25, 1.5)
_AT_ONCE_PER_S = 1e6
_QUANTILE = 0.99
# Without chunked prefill a prompt is computed whole, and vLLM does not start where the longest
# would not fit into one step.
_WHOLE_PROMPT_BUDGET = 16_384


@dataclass(frozen=True)
class RampParameters:
    """A server, the requests it is loaded with, and the promise it is held to."""

    load_per_s: float = slider(
        12.0, 0.5, 40.0, 0.5, label="Look at a load of", unit="requests/s",
        help="The load whose figures are written into the picture and the sentence",
    )  # fmt: skip
    lengths: str = choice(
        CHAT, TRACES, label="Lengths scatter as in",
        help="The requests of a real service; the two sliders below stretch them to other means",
    )  # fmt: skip
    prompt_tokens: int = count(
        1155, 30, 6000, 5, label="Mean prompt", unit="tokens",
        help="All prompts become longer or shorter by the same factor; cut at 14,000 tokens",
    )  # fmt: skip
    output_tokens: int = count(
        211, 31, 601, 5, label="Mean answer", unit="tokens",
        help="All answers become longer or shorter by the same factor; cut at 4,000 tokens",
    )  # fmt: skip
    server: str = choice(
        "Llama-3.1-8B on one H100", list(SERVERS), label="Server",
        help="Model, precision and cards",
    )  # fmt: skip
    kv_percent: int = count(
        100, 10, 100, 5, label="Memory for the KV cache", unit="% of what fits",
        help="100: all that 90 % of the card leaves beside the weights and a reserve of 2 GiB",
    )  # fmt: skip
    seats: int = stops(
        SEATS, (16, 32, 64, 128, 256, 512, 1024), label="max_num_seqs", unit="seats",
        help="How many requests may run at the same time",
    )  # fmt: skip
    budget: int = stops(
        BUDGET, (512, 1024, 2048, 4096, 8192, 16384), label="max_num_batched_tokens",
        unit="tokens", help="How many tokens one step may compute",
    )  # fmt: skip
    chunked: bool = choice(
        True, {"prompts in pieces beside decoding": True, "whole prompts first": False},
        label="Schedule",
        help="Whole prompts first: decoding stands still meanwhile, and the budget is at least "
        "16,384 tokens, for the longest prompt has to fit into a step",
    )  # fmt: skip
    ttft_limit_s: float = slider(
        1.0, 0.1, 5.0, 0.1, label="Promise: first token within", unit="s",
        help="The SLO: 99 % of the requests keep both limits",
    )  # fmt: skip
    tpot_limit_ms: float = slider(
        50.0, 5.0, 200.0, 5.0, label="Promise: each further token within", unit="ms",
        help="The mean gap between the output tokens of one answer",
    )  # fmt: skip
    seed: int = count(
        0, 0, 20, label="Luck (seed)", help="Another number draws other random requests"
    )


BASE: Final = RampParameters()
"""The chat on an H100, which stands beside every other curve."""


def _scenario(p: RampParameters) -> Scenario:
    cost = step_cost(*SERVERS[p.server])
    assert cost is not None, "every server on offer holds its model"
    blocks = cost.kv_blocks(BLOCK) * p.kv_percent // 100
    budget = p.budget if p.chunked else max(p.budget, _WHOLE_PROMPT_BUDGET)
    return Scenario(
        cost,
        TraceTraffic(p.lengths, p.prompt_tokens, p.output_tokens),
        EngineConfig(
            p.seats, budget, enable_chunked_prefill=p.chunked, num_kv_blocks=blocks,
            block_size=BLOCK,
        ),
        requests=REQUESTS,
    )  # fmt: skip


def _slo(p: RampParameters) -> SLO:
    return SLO(ttft_s=p.ttft_limit_s, tpot_s=p.tpot_limit_ms / 1e3, quantile=_QUANTILE)


def _server_of(p: RampParameters) -> RampParameters:
    """The set with all that changes no run set to its default: what a run may be kept by."""
    return replace(
        p, load_per_s=BASE.load_per_s, ttft_limit_s=BASE.ttft_limit_s,
        tpot_limit_ms=BASE.tpot_limit_ms,
    )  # fmt: skip


@lru_cache(maxsize=4)
def _swept(server: RampParameters) -> Sweep:
    """Every load of a server, up to one and a half times what it can do at most."""
    scenario = _scenario(server)
    run = scenario.run(_AT_ONCE_PER_S, server.seed)
    # Where the seats take everybody at once there is no busy stretch to measure, only the whole.
    busy_per_s = measure(run, _AT_ONCE_PER_S, server.seed).requests_per_s
    most_per_s = max(busy_per_s, REQUESTS / run.end_s)
    loads = [share * most_per_s for share in _SHARES]
    return sweep(scenario, loads, [server.seed], progress=False)


@lru_cache(maxsize=32)
def _at(server: RampParameters, load_per_s: float) -> Sweep:
    return sweep(_scenario(server), [load_per_s], [server.seed], progress=False)


def _curve(swept: Sweep, slo: SLO) -> LoadCurve:
    def column(name: str) -> np.ndarray:
        return np.asarray(swept.column(name)[0])

    return LoadCurve(
        load_per_s=np.array(swept.loads),
        output_tokens_per_s=column("output_tokens_per_s"),
        requests_per_s=column("requests_per_s"),
        good_per_s=swept.goodput_per_s(slo)[0],
        ttft_p99_s=column("ttft_p99_s"),
        tpot_p99_s=column("tpot_p99_s"),
        attainment=swept.attainment(slo)[0],
        kv_share=column("kv_peak_share"),
        preemptions=column("preemptions"),
    )


@lru_cache(maxsize=16)
def _judged(server: RampParameters, slo: SLO) -> LoadCurve:
    """A server's curve under a promise, with one more load run midway to the first that breaks."""
    curve = _curve(_swept(server), slo)
    broken = int((curve.attainment < _QUANTILE).argmax())
    if not broken:  # none breaks, or the lowest does: there is no pair to look between
        return curve
    middle = float(curve.load_per_s[broken - 1 : broken + 1].mean())
    return _with(curve, _curve(_at(server, middle), slo))


def _with(curve: LoadCurve, more: LoadCurve) -> LoadCurve:
    """Both curves' loads in one; what lies beyond the curve's end, or on one of its loads, not."""
    loads = curve.load_per_s
    new = (more.load_per_s < loads[-1]) & ~np.isin(more.load_per_s, loads)
    order = np.argsort(np.concatenate([loads, more.load_per_s[new]]))
    columns = {
        name: np.concatenate([column, getattr(more, name)[new]])[order]
        for name, column in vars(curve).items()
    }
    return LoadCurve(**columns)


def _held_per_s(curve: LoadCurve) -> float | None:
    """The SLO knee; 0 where no load run keeps the promise, None where all of them do."""
    knee = find_knee(
        curve.load_per_s, curve.output_tokens_per_s, method="slo", attainment=curve.attainment,
        quantile=_QUANTILE,
    )  # fmt: skip
    if knee.load is None:
        return 0.0 if curve.attainment[0] < _QUANTILE else None
    return knee.load


def _ramp(p: RampParameters) -> Ramp:
    slo, server = _slo(p), _server_of(p)
    here = _curve(_at(server, p.load_per_s), slo)
    # The reader's load is a point like the others: what is said of it and the knee cannot differ.
    curve = _with(_judged(server, slo), here)
    config = _scenario(p).config
    assert config.num_kv_blocks is not None
    base = _judged(BASE, slo)
    return Ramp(
        title=p.server,
        prompt_tokens=p.prompt_tokens,
        output_tokens=p.output_tokens,
        curve=curve,
        here=here,
        beside=base if server != BASE else None,
        held_per_s=_held_per_s(curve),
        beside_held_per_s=_held_per_s(base),
        ttft_limit_s=p.ttft_limit_s,
        tpot_limit_s=p.tpot_limit_ms / 1e3,
        quantile=_QUANTILE,
        kv_tokens=config.num_kv_blocks * BLOCK,
        step_budget_tokens=config.max_num_batched_tokens,
        asked_budget_tokens=p.budget,
    )


# --- words ---------------------------------------------------------------------------------------


def _words(r: Ramp) -> str:
    return f"{_here_words(r)} {_knee_words(r)}{_beside_words(r)}"


def _here_words(r: Ramp) -> str:
    here = r.here
    full = float(here.kv_share[0])
    kv = f"the KV cache is {percent(round(full, 3))} full at most"
    evicted = int(here.preemptions[0])
    if evicted:
        times = "once" if evicted == 1 else f"{evicted:,} times"
        kv += f" and throws a running request out {times}"
    words = (
        f"{r.title}, {r.prompt_tokens:,} tokens in and {r.output_tokens:,} out on average: at "
        f"{r.load_per_s:g} requests/s it makes {rounded(float(here.output_tokens_per_s[0]))} "
        f"tokens/s; P99 TTFT is {seconds(float(here.ttft_p99_s[0]))}, P99 TPOT "
        f"{seconds(float(here.tpot_p99_s[0]))}, {percent(round(float(here.attainment[0]), 3))} of "
        f"the requests keep the SLO, and {kv}."
    )
    if r.step_budget_tokens != r.asked_budget_tokens:
        words += (
            f" (The step's budget was raised to {r.step_budget_tokens:,} tokens: a prompt of up to "
            f"{MOST_PROMPT_TOKENS:,} has to fit into one.)"
        )
    return words


def _promise(r: Ramp) -> str:
    return (
        f"first token within {seconds(r.ttft_limit_s)} and {seconds(r.tpot_limit_s)} a token for "
        f"{percent(r.quantile)}"
    )


def _knee_words(r: Ramp) -> str:
    most = f"The most it shows is {rounded(r.most_tokens_per_s)} tokens/s"
    if r.held_per_s is None:
        return (
            f"{most}; the SLO ({_promise(r)}) still holds at the last load run, "
            f"{rounded(float(r.curve.load_per_s[-1]))} requests/s: in so short a run the queue has "
            "not yet grown long enough to break it."
        )
    if not r.held_per_s:
        return f"{most}; but no load that was run keeps the SLO ({_promise(r)})."
    tokens = r.held_tokens_per_s
    return (
        f"{most}; inside the SLO ({_promise(r)}) it holds up to {rounded(r.held_per_s)} "
        f"requests/s, {rounded(tokens)} tokens/s, "
        f"{percent(round(tokens / r.most_tokens_per_s, 2))} of that."
    )


def _beside_words(r: Ramp) -> str:
    if r.beside is None:
        return ""
    held = r.beside_held_per_s
    load = (
        "no load" if held == 0 else "every load" if held is None else f"{rounded(held)} requests/s"
    )
    far = float(r.beside.load_per_s[-1])
    on = (
        f" (its curve goes on to {rounded(far)} requests/s)"
        if far > 3 * r.curve.load_per_s[-1]
        else ""
    )
    return (
        f" In grey, the chat on an H100{on}: {rounded(float(r.beside.output_tokens_per_s.max()))} "
        f"tokens/s at most, and {load} inside the same SLO."
    )


def _tables(r: Ramp) -> list[Table]:
    parts = {"curve": r.curve, "your load": r.here, "chat on an H100": r.beside}
    return [vars(c) | {"source": name} for name, c in parts.items() if c is not None]


def _question(r: Ramp) -> str:
    return (
        f"{r.title}, {r.prompt_tokens:,} tokens in and {r.output_tokens:,} out on average. "
        f"Promised to {percent(r.quantile)} of the requests: first token within "
        f"{seconds(r.ttft_limit_s)}, then at most {seconds(r.tpot_limit_s)} a token. Up to how "
        "many requests a second does one such server keep that?"
    )


ramp = Explorer(
    call="explore.ramp",
    title="Ramp the load: everything a server shows, up to its knee and beyond",
    parameters=RampParameters,
    compute=_ramp,
    drawing=RampPicture,
    narrate=_words,
    alt=(
        "Six panels over the offered load in requests a second. Output tokens a second climb and "
        "flatten; the P99 time to first token stays low and then leaps by orders of magnitude; the "
        "P99 time a token climbs earlier and gently; finished requests follow the diagonal and "
        "leave it, good ones fall to nothing; the share that keeps the SLO falls off a cliff; the "
        "KV cache fills. A green bar marks the loads inside the SLO, a grey curve the chat on an "
        "H100."
    ),
    presets=(
        Preset(
            "Chat on an H100",
            "Llama-3.1-8B on one H100, with the prompts, answers and gaps of a real chat service. "
            "The load is ramped from a fifth of what the card can do to half as much again.",
            "Which of the six panels gives the first warning, and how much further does the "
            "throughput still climb after it?",
            {"load_per_s": 12.0},
        ),
        Preset(
            "Long documents",
            "The same card and the same people, but each attaches a document: 6,000 tokens in, "
            "281 out, as uneven as real questions on documents are.",
            "Requests are nearly five times as long. Is the knee at a fifth of the load?",
            {
                "lengths": DOCUMENTS,
                "prompt_tokens": 6000,
                "output_tokens": 281,
                "load_per_s": 2.5,
            },
        ),
        Preset(
            "Short-prompt peak",
            "A benchmark for the brochure: prompts of 30 tokens, answers of 256. The same card "
            "makes several times the chat's tokens a second.",
            "Whoever plans the chat with the brochure's tokens a second: by what factor do they "
            "buy too little?",
            {"prompt_tokens": 30, "output_tokens": 256, "load_per_s": 20.0},
        ),
        Preset(
            "Less memory for KV",
            "The chat again; somebody has put a second model on the card, and a tenth of the KV "
            "cache is left.",
            "The card computes as fast as before. What runs out, and what is done twice?",
            {"kv_percent": 10, "load_per_s": 9.0},
        ),
        Preset(
            "Another schedule",
            "The chat on the full card, but whole prompts go first, and all decoding waits.",
            "First tokens come sooner. Who pays, and in which panel?",
            {"chunked": False, "load_per_s": 16.0},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_question,
        unit="requests/s",
        answer=lambda r: r.held_per_s or None,
        mark=lambda r, guess: (guess, 0.0),
    ),
)
