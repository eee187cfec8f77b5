"""The batching explorer: which server, what batch, and what it says; seconds are priced in
``course.serving``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from course.explore.steady import decode_step, mean_context, room, steady_tpot_s
from course.figures.ch03.batching import Batching, BatchingPicture, Curves, Measured
from course.serving import catalog
from course.serving.pricing import RooflineStepCost
from course.ui import Explorer, Prediction, Preset, Table, choice, stops
from course.words import percent, rounded, seconds

_BATCHES = (
    1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256, 320, 384, 512, 640,
    768, 1024,
)  # fmt: skip
_GRID = np.unique(np.geomspace(1, 1024, 44).round()).astype(int)

SERVERS: Final = {
    "Qwen3-8B on one H100": ("Qwen3-8B", "H100-80GB-SXM", 1, "bf16"),
    "Qwen3-8B in fp8 on one H100": ("Qwen3-8B", "H100-80GB-SXM", 1, "fp8"),
    "Llama-3.1-8B on one RTX 4090": ("Llama-3.1-8B", "RTX-4090", 1, "bf16"),
    "Qwen3-32B in fp8 on one H100": ("Qwen3-32B", "H100-80GB-SXM", 1, "fp8"),
    "Llama-3.1-70B in fp8 on four H100s": ("Llama-3.1-70B", "H100-80GB-SXM", 4, "fp8"),
    "Llama-3.1-70B in fp8 on one B200": ("Llama-3.1-70B", "B200-180GB-SXM", 1, "fp8"),
    "Llama-3.1-8B in fp8 on one B200": ("Llama-3.1-8B", "B200-180GB-SXM", 1, "fp8"),
}
"""What is read → (model, GPU, number of GPUs, precision)."""

# The first model of the data with the same shape as ours may carry another version's number.
_MEASURED_AS = {"Llama-3.1-70B": ("Llama-3.1-70B", "Llama-3.3-70B")}


@dataclass(frozen=True)
class BatchingParameters:
    """The server, what its requests look like, and how many decode together."""

    server: str = choice(
        "Qwen3-8B on one H100", list(SERVERS), label="Server", help="Model, precision and cards",
    )  # fmt: skip
    lengths: tuple[int, int] = choice(
        (2048, 2048),
        {
            "128 in, 128 out": (128, 128), "128 in, 1,024 out": (128, 1024),
            "1,024 in, 128 out": (1024, 128), "1,024 in, 1,024 out": (1024, 1024),
            "2,048 in, 2,048 out": (2048, 2048), "8,192 in, 512 out": (8192, 512),
            "8,192 in, 1,024 out": (8192, 1024),
        },
        label="Tokens", help="Prompt and answer of every request",
    )  # fmt: skip
    batch: int = stops(
        32, _BATCHES, label="Batch", unit="sequences",
        help="How many requests decode together, one token each a step",
    )  # fmt: skip


@lru_cache(maxsize=64)
def _cost(server: str) -> RooflineStepCost:
    model, gpu, n_gpus, precision = SERVERS[server]
    return RooflineStepCost(model, gpu, n_gpus, precision)


def _curves(server: str, lengths: tuple[int, int], batches: tuple[int, ...]) -> Curves:
    cost, context = _cost(server), mean_context(*lengths)
    parts = [cost.step_parts(decode_step(batch, context)) for batch in batches]
    table = np.array(parts).T
    named = dict(zip(parts[0]._fields, table, strict=True))
    return Curves(
        batch=np.array(batches),
        overhead_s=named["overhead_s"],
        weights_s=named["weights_s"],
        corner_s=named["dense_s"] - named["weights_s"],
        kv_s=named["kv_s"],
        all_reduce_s=named["all_reduce_s"],
        compute_s=named["compute_s"],
        tpot_s=np.array([steady_tpot_s(cost, batch, *lengths)[1] for batch in batches]),
    )


@lru_cache(maxsize=64)
def _swept(server: str, lengths: tuple[int, int]) -> Curves:
    """The curves up to the batch that fills memory with whole requests."""
    most = min(max(room(_cost(server), sum(lengths)), 1), int(_GRID[-1]))
    batches = sorted({*(int(b) for b in _GRID if b <= most), most})
    return _curves(server, lengths, tuple(batches))


@lru_cache(maxsize=64)
def measured(server: str, lengths: tuple[int, int]) -> Measured:
    """Return the measured closed loops of this server at these lengths, or none at all."""
    model, gpu, n_gpus, precision = SERVERS[server]
    rows: list[catalog.MeasuredPoint] = []
    for name in _MEASURED_AS.get(model, (model,)):
        rows += catalog.measured_points(
            gpu=gpu, model=name, precision=precision, n_gpus=n_gpus,
            prompt_tokens=lengths[0], output_tokens=lengths[1], load="closed loop",
        )  # fmt: skip
    rows = sorted(
        (row for row in rows if row.tensor_parallel in (None, n_gpus) and row.tpot_s),
        key=lambda row: row.concurrency or 0,
    )

    def column(name: str) -> np.ndarray:
        return np.array([getattr(row, name) for row in rows], dtype=float)

    is_step = bool(rows) and rows[0].tpot_stat == "median ITL"
    return Measured(column("concurrency"), column("tpot_s"), column("output_tokens_per_s"), is_step)


@lru_cache(maxsize=512)
def _batching(p: BatchingParameters) -> Batching:
    cost = _cost(p.server)
    most = max(room(cost, sum(p.lengths)), 1)
    return Batching(
        title=p.server,
        prompt_tokens=p.lengths[0],
        output_tokens=p.lengths[1],
        curves=_swept(p.server, p.lengths),
        here=_curves(p.server, p.lengths, (min(p.batch, most),)),
        alone=_curves(p.server, p.lengths, (1,)),
        measured=measured(p.server, p.lengths),
        batch=p.batch,
        room=most,
        ridge_batch=cost.ridge_batch,
    )


def _words(r: Batching) -> str:
    seats = f"a batch of {r.seated:,}" if r.seated > 1 else "a single sequence"
    if r.seated < r.batch:
        seats += f" (memory holds no more of the {r.batch:,})"
    times = r.step_s / float(r.alone.step_s[0])
    faster = r.tokens_per_s * float(r.alone.tpot_s[0])
    mine, alone = r.tokens_per_s / r.seated, 1 / float(r.alone.tpot_s[0])
    head = (
        f"{r.title}, {r.prompt_tokens:,} tokens in, {r.output_tokens:,} out: with {seats} a decode "
        f"step takes {seconds(r.step_s)}"
    )
    if r.seated == 1:
        return f"{head}, and its reader gets {rounded(mine)} tokens/s. {_share_words(r)}"
    return (
        f"{head}, {rounded(times)} times that of one alone. All together get "
        f"{rounded(r.tokens_per_s)} tokens/s, {rounded(faster)} times as much, prompts included; "
        f"each single one {rounded(mine)} instead of {rounded(alone)}. {_share_words(r)}"
    )


def _share_words(r: Batching) -> str:
    """Where the step goes, and what was measured of it."""
    here = r.here
    shares = {
        "overhead": here.overhead_s, "reading weights": here.weights_s,
        "computing on top": here.corner_s, "the KV cache": here.kv_s,
        "all-reduces": here.all_reduce_s,
    }  # fmt: skip
    step = r.step_s
    listed = [
        f"{percent(round(float(s[0]) / step, 2))} {name}"
        for name, s in shares.items()
        if s[0] > 0.005 * step
    ]
    words = f"Of the step {', '.join(listed)}."
    if not r.measured.there:
        return words
    return f"{words}{_measured_words(r)}"


def _measured_words(r: Batching) -> str:
    """What was measured nearby, and what dots beyond the seats are."""
    more = ""
    if float(r.measured.users.max()) > r.room:
        more = (
            f" Where memory is full, dots stand for more users than its {r.room:,} seats: the "
            "others queue, and the step stays as it is."
        )
    off = np.abs(np.log(r.measured.users / r.seated))
    nearest = int(off.argmin())
    if off[nearest] > math.log(1.5):
        return more
    users, token_s = int(r.measured.users[nearest]), float(r.measured.token_s[nearest])
    all_per_s = float(r.measured.tokens_per_s[nearest])
    kind = (
        "from token to token in the middle" if r.measured.is_step else "a token, prompts included"
    )
    return (
        f" Measured with {users:,} user{'' if users == 1 else 's'}: {seconds(token_s)} "
        f"{kind}, {rounded(all_per_s)} tokens/s of all.{more}"
    )


def _tables(r: Batching) -> list[Table]:
    curves, dots = r.curves, r.measured
    modelled = vars(curves) | {
        "source": "model", "step_s": curves.step_s, "tokens_per_s": curves.batch / curves.tpot_s,
    }  # fmt: skip
    measured = {
        "source": "measured", "batch": dots.users, "tpot_s": dots.token_s,
        "tokens_per_s": dots.tokens_per_s,
    }  # fmt: skip
    return [modelled, measured] if dots.there else [modelled]


batching = Explorer(
    call="explore.batching",
    title="One slows down, all speed up: what a batch does to a step",
    parameters=BatchingParameters,
    compute=_batching,
    drawing=BatchingPicture,
    narrate=_words,
    alt=(
        "Three panels over the batch, from 1 to 1,024 on a logarithmic scale, up to where memory "
        "is full. Left, one decode step in layers: overhead and reading the weights stay, "
        "computing and reading the KV cache grow. Right above, the tokens a second of all "
        "requests climb and flatten; below, those of a single one fall. Open dots are "
        "measurements, where there are any for this server and these lengths; those in the grey "
        "area are loads of more users than seats, who wait for their turn."
    ),
    presets=(
        Preset(
            "Chat 8B on H100",
            "Qwen3-8B on one H100, 2,048 tokens in and 2,048 out: the measured chats of notebook "
            "00. 32 of them decode together.",
            "32 people share one card. By how much is each of them slower than alone?",
            {"server": "Qwen3-8B on one H100", "lengths": (2048, 2048), "batch": 32},
        ),
        Preset(
            "70B on four H100s",
            "Llama-3.1-70B in fp8 over four cards: each reads a quarter of the weights, and all "
            "meet twice a layer.",
            "Four cards, one model. Which layer of the step is new here?",
            {"server": "Llama-3.1-70B in fp8 on four H100s", "lengths": (1024, 1024), "batch": 64},
        ),
        Preset(
            "Long documents",
            "The same H100 answers questions on documents of 8,192 tokens.",
            "A step takes less than twice as long as in the chats, and all together make less than "
            "half as many tokens. Where did the rest go?",
            {"server": "Qwen3-8B on one H100", "lengths": (8192, 512), "batch": 32},
        ),
        Preset(
            "Small model, big card",
            "Llama-3.1-8B in fp8 on a B200: 8 GB of weights on a card that reads 8 TB a second.",
            "One person alone on this card. What does a step spend its time on?",
            {
                "server": "Llama-3.1-8B in fp8 on one B200",
                "lengths": (128, 1024),
                "batch": 1,
            },
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=lambda r: (
            f"{r.title}, {r.prompt_tokens:,} tokens in, {r.output_tokens:,} out. One sequence "
            f"alone: a decode step takes {seconds(float(r.alone.step_s[0]))}. How long does it "
            f"take with {r.seated:,} sequences?"
            if r.seated > 1
            else f"{r.title}. Reading the weights at full speed takes "
            f"{seconds(float(r.here.weights_s[0]))}. How long does a decode step with a single "
            "sequence take?"
        ),
        unit="ms",
        answer=lambda r: 1e3 * r.step_s,
        mark=lambda r, guess: (float(r.seated), guess / 1e3),
    ),
)
