"""The roofline explorer: what it varies, computes and says; bytes and operations are priced in
``course.serving``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from course.explore.steady import decode_step, room, smallest_fit, with_prompt
from course.figures.ch03.roofline import (
    PRINTED_RULES,
    Roofline,
    RooflinePicture,
    Work,
    percent_words,
)
from course.serving import catalog
from course.serving.pricing import RooflineStepCost, StepFeatures
from course.ui import Explorer, Prediction, Preset, Table, choice, stops
from course.words import rounded, seconds

_GPUS = (
    "L4", "A10G", "RTX-4090", "L40S", "A100-80GB-SXM", "H100-80GB-SXM", "H200-141GB-SXM",
    "B200-180GB-SXM",
)  # fmt: skip
_MODELS = ("Llama-2-7B", "Llama-3.1-8B", "Qwen2.5-32B", "Llama-3.1-70B")
_BATCHES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 288, 384, 512, 768, 1024)
_TRAIL = np.unique(np.geomspace(1, 1024, 48).round()).astype(int)


@dataclass(frozen=True)
class RooflineParameters:
    """The card, the model, and what one step has to do."""

    gpu: str = choice(
        "H100-80GB-SXM", _GPUS, label="GPU",
        help="Whose data sheet draws the roof; a model too large for one is spread over 2, 4 or 8",
    )  # fmt: skip
    model: str = choice(
        "Llama-3.1-8B", _MODELS, label="Model", help="Whose weights and KV cache are read",
    )  # fmt: skip
    precision: str = choice(
        "bf16", ["bf16", "fp8"], label="Precision of the weights",
        help="fp8 halves the bytes and doubles the peak, where the card has it; the cache is bf16",
    )  # fmt: skip
    batch: int = stops(
        16, _BATCHES, label="Batch", unit="sequences that decode",
        help="Each makes one token in this step",
    )  # fmt: skip
    context_tokens: int = stops(
        1024, (128, 256, 512, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072),
        label="Context", unit="tokens each", help="What each sequence reads from the KV cache",
    )  # fmt: skip
    prefill_tokens: int = stops(
        0, (0, 128, 256, 512, 1024, 2048, 4096, 8192), label="Prompt in the same step",
        unit="tokens", help="Tokens of a new prompt that the step computes beside the decoding",
    )  # fmt: skip


@lru_cache(maxsize=64)
def _cost(model: str, gpu: str, precision: str) -> RooflineStepCost:
    """The model on as few cards as hold it; in bf16 where the card has no fp8."""
    lacks_fp8 = catalog.gpu(gpu).peak_fp8_flop_per_s is None
    return smallest_fit(model, gpu, "bf16" if lacks_fp8 else precision)


def _flop(cost: RooflineStepCost, step: StepFeatures) -> tuple[float, float, float]:
    """Operations of the matrices, of attention to the cache, and of attention within prompts."""
    tokens = step.prefill_tokens + step.decode_seqs
    per_pair = cost.model.attention_flop_per_pair
    matrices = 2.0 * cost.model.active_parameters * tokens
    return matrices, float(per_pair * step.kv_tokens), float(per_pair * step.prefill_pairs)


def _whole(cost: RooflineStepCost, step: StepFeatures) -> Work:
    """The whole step on one of the cards, which share bytes and operations evenly."""
    flop = sum(_flop(cost, step))
    read_bytes = cost.streamed_bytes + cost.kv_bytes_per_token * step.kv_tokens
    return Work(flop / read_bytes, flop / cost.step_seconds(step) / cost.n_gpus)


@lru_cache(maxsize=256)
def _trail(cost: RooflineStepCost, context_tokens: int, prefill_tokens: int) -> np.ndarray:
    """Points (intensity, speed) of the whole step, shape (batches, 2)."""
    steps = [with_prompt(decode_step(int(b), context_tokens), prefill_tokens) for b in _TRAIL]
    points = np.array([_whole(cost, step).point for step in steps])
    points.flags.writeable = False
    return points


def _roofline(p: RooflineParameters) -> Roofline:
    cost = _cost(p.model, p.gpu, p.precision)
    gpu, shape, know = cost.gpu, cost.model, cost.constants
    peak = gpu.peak_flop_per_s(cost.precision)
    step = with_prompt(decode_step(p.batch, p.context_tokens), p.prefill_tokens)
    parts = cost.step_parts(step)
    matrices, cache, _ = _flop(cost, step)
    trail = _trail(cost, p.context_tokens, p.prefill_tokens)
    per_token = 2 * shape.active_parameters + shape.attention_flop_per_pair * p.context_tokens
    return Roofline(
        model=p.model,
        gpu=p.gpu,
        n_gpus=cost.n_gpus,
        precision=cost.precision,
        wanted_precision=p.precision,
        batch=p.batch,
        context_tokens=p.context_tokens,
        prefill_tokens=p.prefill_tokens,
        peak_flop_per_s=peak,
        bytes_per_s=gpu.bandwidth_bytes_per_s,
        reached_flop_per_s=peak * know.share_of_peak(cost.precision),
        reached_bytes_per_s=gpu.bandwidth_bytes_per_s * know.mbu,
        matrices=Work(matrices / cost.streamed_bytes, matrices / parts.dense_s / cost.n_gpus),
        cache=Work(
            cache / (cost.kv_bytes_per_token * step.kv_tokens), cache / parts.kv_s / cost.n_gpus
        ),
        step=_whole(cost, step),
        trail_flop_per_byte=trail[:, 0],
        trail_flop_per_s=trail[:, 1],
        ceiling_flop_per_byte=per_token / (cost.kv_bytes_per_token * p.context_tokens),
        tokens_per_intensity=cost.streamed_bytes / (2 * shape.active_parameters),
        reached_ridge_tokens=cost.ridge_batch,
        room=room(cost, p.context_tokens),
        step_s=cost.step_seconds(step),
    )


def _words(r: Roofline) -> str:
    cards = r.gpu if r.n_gpus == 1 else f"{r.n_gpus} × {r.gpu}"
    lacks = f" (the {r.gpu} has no fp8)" if r.precision != r.wanted_precision else ""
    prompt = f" and {r.prefill_tokens:,} of a prompt" if r.prefill_tokens else ""
    one = r.batch == 1
    head = (
        f"{r.model} in {r.precision} on {cards}{lacks}: with {r.batch:,} decoding "
        f"token{'' if one else 's'}{prompt} in the step the matrices do "
        f"{rounded(r.matrices.flop_per_byte)} operations a byte; attention to the KV cache "
        f"{rounded(r.cache.flop_per_byte, 2)} whatever the batch. The step takes "
        f"{seconds(r.step_s)} and reaches {percent_words(r.share_of_peak)} of the peak."
    )
    return f"{head} {_ridge_words(r)} {_room_words(r)}"


def _ridge_words(r: Roofline) -> str:
    ridge = (
        f"The matrices meet their ridge at {rounded(r.ridge_tokens)} tokens a step "
        f"({rounded(r.reached_ridge_tokens)} at what kernels reach), whatever the context"
    )
    if r.ceiling_flop_per_byte < r.ridge_flop_per_byte:
        whole = "The whole decode step, caches and all, never does"
        if r.prefill_tokens:
            whole = "Without the prompt the whole decode step never would"
        return (
            f"{ridge}. {whole} with "
            f"{r.context_tokens:,} tokens of context: no batch brings it past "
            f"{rounded(r.ceiling_flop_per_byte)} operations a byte, and the ridge is at "
            f"{rounded(r.ridge_flop_per_byte)}."
        )
    return f"{ridge}."


def _room_words(r: Roofline) -> str:
    """What ends the gain here, and which printed rules name that batch."""
    sequences = f"{r.room:,} sequence{'' if r.room == 1 else 's'}"
    memory = f"Memory holds {sequences} of this context"
    if r.batch > r.room:
        memory = f"Memory holds only {sequences} of this context, fewer than this batch"
    ridge_first = r.reached_ridge_tokens <= r.room
    limit = r.reached_ridge_tokens if ridge_first else float(r.room)
    first = (
        "more than the matrices' ridge, where the gain ends"
        if ridge_first
        else "and is full before the matrices' ridge"
    )
    fitting = [name for name, low, high in PRINTED_RULES if low <= limit <= high]
    if not fitting:
        return f"{memory}, {first}; none of the three printed rules names such a batch."
    return f"{memory}, {first}; of the printed rules {' and '.join(fitting)} would suit."


def _and_prompt(r: Roofline) -> str:
    return f" and computes {r.prefill_tokens:,} tokens of a prompt" if r.prefill_tokens else ""


def _tables(r: Roofline) -> list[Table]:
    parts = {"matrices": r.matrices, "KV cache": r.cache, "whole step": r.step}
    here = [
        {"part": part, "batch": r.batch, "flop_per_byte": w.flop_per_byte,
         "flop_per_s": w.flop_per_s}
        for part, w in parts.items()
    ]  # fmt: skip
    trail = {
        "part": "whole step", "batch": _TRAIL, "flop_per_byte": r.trail_flop_per_byte,
        "flop_per_s": r.trail_flop_per_s,
    }  # fmt: skip
    return [*here, trail]


roofline = Explorer(
    call="explore.roofline",
    title="Roofline and ridge: what one step asks of one card",
    parameters=RooflineParameters,
    compute=_roofline,
    drawing=RooflinePicture,
    narrate=_words,
    alt=(
        "Operations a second against operations for each byte read, both logarithmic. The roof of "
        "the data sheet rises with the intensity, bends at the ridge and stays flat at the peak; a "
        "dashed curve below it, with a round corner, is what kernels reach. A square marks the "
        "matrices, a diamond the attention to the KV cache, a circle the whole step, whose dotted "
        "trail shows other batches. Bars at the bottom mark batches that are recommended in print "
        "and how many sequences memory holds."
    ),
    presets=(
        Preset(
            "One chat on an H100",
            "One person chats with an 8-billion-parameter model; the card has nobody else.",
            "A card of 989 TFLOP/s works for one reader. What share of it does the reader use?",
            {"batch": 1, "context_tokens": 1024},
        ),
        Preset(
            "The ridge",
            "288 chats at once with short contexts: for each byte of the weights the card now has "
            "about as much to compute as it can.",
            "The matrices are at the ridge. Why is the whole step still left of it and below?",
            {"batch": 288, "context_tokens": 256},
        ),
        Preset(
            "Long contexts never get there",
            "8 sequences with 32,768 tokens each: everybody reads a cache of their own.",
            "Double the batch: which of the three points moves, and which cannot?",
            {"batch": 8, "context_tokens": 32_768},
        ),
        Preset(
            "Prefill is on the roof",
            "The same card reads one prompt of 4,096 tokens, while 16 others decode.",
            "One prompt, and the card is at its best. What do the 16 others notice of it?",
            {"batch": 16, "context_tokens": 1024, "prefill_tokens": 4096},
        ),
        Preset(
            "An RTX 4090",
            "The same model on a card for players, contexts of 2,048 tokens.",
            "The ridge is nearer here than on an H100. What stops us from going there?",
            {"gpu": "RTX-4090", "batch": 16, "context_tokens": 2048},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=lambda r: (
            f"{r.model} in {r.precision} on {'an' if r.gpu[0] in 'AHLR' else 'a'} {r.gpu}: one "
            f"step decodes {'one sequence' if r.batch == 1 else f'{r.batch:,} sequences, each'} "
            f"with {r.context_tokens:,} tokens of context"
            f"{_and_prompt(r)}. What share of the peak of its data sheet does the card reach?"
        ),
        unit="%",
        answer=lambda r: 100 * r.share_of_peak,
        mark=lambda r, guess: (r.step.flop_per_byte, guess / 100 * r.peak_flop_per_s),
    ),
)
