"""The carried-fit explorer: a served model on the measured machine and on a card; the steps are
priced in ``course.serving``, the constants fitted in ``course.measure``.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from course.explore.ch10.machine import (
    FIT_NAMES,
    Machine,
    machine,
    machine_parameter,
    rate_words,
)
from course.explore.steady import decode_step, room, smallest_fit
from course.figures.ch10.fit_carried import (
    MOST,
    READING_S,
    FitCarried,
    FitCarriedPicture,
    Served,
)
from course.measure import (
    MachineFit,
    Record,
    measured_card,
    measured_constants,
    predict_decode_s,
)
from course.serving import catalog
from course.serving.pricing import IDEAL, RooflineStepCost
from course.ui import Explorer, Prediction, Preset, Table, choice, stops, toggle
from course.words import rounded, seconds

_MODELS = ("Llama-3.1-8B", "Qwen3-8B", "Llama-2-7B")
_GPUS = (
    "L4", "RTX-4090", "A100-80GB-SXM", "H100-80GB-SXM", "H200-141GB-SXM", "B200-180GB-SXM",
)  # fmt: skip
_BATCH = np.unique(np.geomspace(1, MOST, 120).round()).astype(int)


@dataclass(frozen=True)
class FitCarriedParameters:
    """The run, the model that is served, the card beside it, and one decode step."""

    machine: str = machine_parameter()
    model: str = choice(
        "Llama-3.1-8B", _MODELS, label="Model", help="Served in bf16 on both machines"
    )
    gpu: str = choice(
        "H100-80GB-SXM", _GPUS, label="Card beside it", help="A card of the course's catalogue"
    )
    ideal: bool = toggle(
        False, label="Card as its data sheet promises",
        help="Every byte and operation at its peak and no overhead, instead of what servers reach",
    )  # fmt: skip
    batch: int = stops(
        1, (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024), label="Batch", unit="sequences",
        help="How many sequences make a token in the step",
    )  # fmt: skip
    context_tokens: int = stops(
        1024, (128, 256, 512, 1024, 2048, 4096, 8192, 16_384), label="Context",
        unit="tokens each", help="What each sequence reads from the KV cache",
    )  # fmt: skip


def _needed(_: Record, fit: MachineFit) -> bool:
    # the catalogue's cards have bf16 units; a fit in 4-byte numbers would be another machine
    return fit.precision == "bf16" and fit.launch_s is not None


def measured_cost(found: Machine, model: str) -> tuple[RooflineStepCost, bool]:
    """Return the cost of a step of `model` on a measured machine, and whether its memory holds it.

    Where it does not, the machine is taken to have the memory all the same, for its speed's sake.
    """
    card, needed = measured_card(found.record, found.fit), catalog.model(model).parameters * 2
    holds = card.memory_bytes >= needed
    if not holds:
        card = replace(card, memory_bytes=needed)
    return RooflineStepCost(model, card, constants=measured_constants(found.fit)), holds


def whole_over_parts(record: Record, fit: MachineFit) -> float | None:
    """Return the median over a run's whole decode steps of measured over predicted from kernels.

    None where the run timed no whole step or too little to predict one.

    >>> from course.measure import fit_record, recorded_runs
    >>> run = recorded_runs("cpu")[0]
    >>> whole_over_parts(run, fit_record(run, "bf16")) > 0
    True
    """
    points = record.of("model_decode", fit.precision)
    if not points or fit.decode_attention is None or fit.launch_s is None:
        return None
    said_s = [
        predict_decode_s(fit, record.model, p.shape["batch"], p.shape["context_tokens"])
        for p in points
    ]
    return float(np.median([p.median_s / s for p, s in zip(points, said_s, strict=True)]))


@lru_cache(maxsize=64)
def _curve(cost: RooflineStepCost, context_tokens: int) -> np.ndarray:
    steps = np.array([cost.step_seconds(decode_step(int(b), context_tokens)) for b in _BATCH])
    steps.flags.writeable = False
    return steps


@lru_cache(maxsize=64)
def _fluent(cost: RooflineStepCost, context_tokens: int, fits: int) -> int:
    """The largest batch of at most `fits` whose step keeps the reading time; 0 for none."""

    def step_s(batch: int) -> float:
        return cost.step_seconds(decode_step(batch, context_tokens))

    return bisect_right(range(1, fits + 1), READING_S, key=step_s)


@lru_cache(maxsize=64)
def _card_cost(model: str, gpu: str, ideal: bool) -> RooflineStepCost:
    cost = smallest_fit(model, gpu, "bf16")
    return RooflineStepCost(model, gpu, cost.n_gpus, constants=IDEAL) if ideal else cost


def _served(cost: RooflineStepCost, name: str, p: FitCarriedParameters, holds: bool) -> Served:
    step = decode_step(p.batch, p.context_tokens)
    fits = room(cost, p.context_tokens) if holds else 0
    weights_s = cost.step_parts(step).weights_s
    return Served(
        name=name,
        batch=_BATCH,
        step_s=_curve(cost, p.context_tokens),
        room=fits,
        ridge_batch=cost.ridge_batch,
        here_batch=p.batch,
        here_s=cost.step_seconds(step),
        weights_s=weights_s,
        weight_bytes_per_s=cost.streamed_bytes / weights_s,
        flop_per_s=2 * cost.model.active_parameters * cost.ridge_batch / weights_s,
        fluent_batch=_fluent(cost, p.context_tokens, fits),
    )


def _fit_carried(p: FitCarriedParameters) -> FitCarried:
    found = machine(p.machine, "bf16", _needed)
    yours, holds = measured_cost(found, p.model)
    card = _card_cost(p.model, p.gpu, p.ideal)
    name = p.gpu if card.n_gpus == 1 else f"{card.n_gpus} × {p.gpu}"
    return FitCarried(
        lead=found.lead,
        caption=found.caption,
        model=p.model,
        weight_bytes=yours.streamed_bytes,
        context_tokens=p.context_tokens,
        ideal=p.ideal,
        undetermined=found.fit.dense.undetermined,
        whole_over_parts=whole_over_parts(found.record, found.fit),
        yours=_served(yours, "the measured machine", p, holds),
        card=_served(card, name, p, True),
    )


def _words(r: FitCarried) -> str:
    plural = "" if r.yours.here_batch == 1 else "s"
    promised = " by data sheet" if r.ideal else ""
    times = f"{rounded(r.times, 2)} times" if r.times >= 1 else f"{rounded(r.times, 2)} of"
    return (
        f"With its fitted constants a step of {r.model} with {r.yours.here_batch:,} "
        f"sequence{plural} of {r.context_tokens:,} tokens would last {seconds(r.yours.here_s)}, "
        f"{times} the {seconds(r.card.here_s)} of the {r.card.name}{promised}. {r.lead} That is "
        f"{rounded(r.yours.here_tokens_per_s)} against {rounded(r.card.here_tokens_per_s)} "
        f"tokens/s. The machine {_speed_words(r.yours)}, the {r.card.name} "
        f"{_speed_words(r.card)}. {_fluent_words(r)} {_room_words(r)}"
        f"{_whole_words(r)}{_doubt_words(r)}"
    )


def _speed_words(served: Served) -> str:
    """The two speeds that a machine reaches, and the ridge that they make."""
    return (
        f"reads {rate_words(served.weight_bytes_per_s, 'B')} and computes "
        f"{rate_words(served.flop_per_s, 'FLOP')} (ridge: {rounded(served.ridge_batch, 2)} tokens "
        "a step)"
    )


def _whole_words(r: FitCarried) -> str:
    """What the run's own whole steps say about such a sum of kernels."""
    if r.whole_over_parts is None:
        return ""
    return (
        f" All this adds up kernels; whole steps of the small transformer took "
        f"{rounded(r.whole_over_parts, 2)} times their sum on that machine, and with that factor "
        f"this step lasts {seconds(r.whole_over_parts * r.yours.here_s)}."
    )


def _fluent_words(r: FitCarried) -> str:
    """Up to which batch each writes as fast as people read."""

    def up_to(served: Served) -> str:
        if not served.fluent_batch:
            return "at no batch"
        full = " (then memory is full)" if served.fluent_batch == served.room else ""
        return f"up to batch {served.fluent_batch:,}{full}"

    return (
        f"A token every {1e3 * READING_S:.0f} ms comes {up_to(r.yours)} of the measured machine "
        f"and {up_to(r.card)} of the {r.card.name}."
    )


def _room_words(r: FitCarried) -> str:
    """What the memories hold; a machine too small for the weights is only imagined."""
    if not r.yours.room:
        return (
            "The measured machine's memory has no room for a cache beside the weights: only its "
            "speed is shown."
        )
    return f"Memory holds {r.yours.room:,} against {r.card.room:,} such sequences."


def _doubt_words(r: FitCarried) -> str:
    """Say where the run was too short or too disturbed to carry anything."""
    names = [FIT_NAMES[name] for name in r.undetermined if name != "overhead_s"]
    if not names:
        return ""
    return f" Mind: the run does not determine its {' and '.join(names)}, so all this is a guess."


def _question(r: FitCarried) -> str:
    plural = "" if r.yours.here_batch == 1 else "s"
    return (
        f"A step of {r.model} reads {rounded(r.weight_bytes / 1e9)} GB of weights. With "
        f"{r.yours.here_batch:,} sequence{plural} the {r.card.name} takes "
        f"{seconds(r.card.here_s)}. The measured machine reads its weights at "
        f"{rate_words(r.yours.weight_bytes_per_s, 'B')}. How long will its step take?"
    )


def _tables(r: FitCarried) -> list[Table]:
    return [
        {"machine": s.name, "batch": s.batch, "step_s": s.step_s,
         "tokens_per_s": s.batch / s.step_s, "fits": s.batch <= s.room}
        for s in (r.yours, r.card)
    ]  # fmt: skip  # fmt: skip


fit_carried = Explorer(
    call="explore.fit_carried",
    title="The fit, carried over: a served model on the measured machine and on a card",
    parameters=FitCarriedParameters,
    compute=_fit_carried,
    drawing=FitCarriedPicture,
    narrate=_words,
    alt=(
        "Two panels over the batch, all axes logarithmic. Left: the time of one decode step, "
        "dashed with a circle for the measured machine, solid with a square for the card, one at "
        "50 ms, where text still reads fluently. Right: the tokens a second of the same two. A "
        "stroke marks where memory is full; beyond it a curve is faint. A line in the corner says "
        "on which machine the constants were measured."
    ),
    presets=(
        Preset(
            "One reader",
            "One person reads along while an 8-billion-parameter model writes.",
            "What does the ratio of the two step times tell, and what the ratio of the peaks?",
            {"batch": 1},
        ),
        Preset(
            "Thirty-two readers",
            "The same model, 32 sequences in the batch.",
            "Below its ridge a reader more is nearly free: how far is each machine from its own?",
            {"batch": 32},
        ),
        Preset(
            "Long contexts",
            "Sixteen sequences of 8,192 tokens: each brings a cache of its own.",
            "What must be read besides the weights, and where does it not fit any more?",
            {"batch": 16, "context_tokens": 8192},
        ),
        Preset(
            "A model that hoards",
            "Llama-2-7B keeps four times the cache of Llama-3.1-8B for every token.",
            "Fewer weights to read: why is it no faster with 64 sequences?",
            {"batch": 64, "model": "Llama-2-7B"},
        ),
        Preset(
            "What the data sheet promises",
            "The card at every byte and operation that is printed on its data sheet.",
            "How far is what servers reach from what is printed?",
            {"batch": 32, "ideal": True},
        ),
    ),
    tables=_tables,
    remembers=False,
    prediction=Prediction(
        question=_question,
        unit="ms",
        answer=lambda r: 1e3 * r.yours.here_s,
        mark=lambda r, guess: (float(r.yours.here_batch), 1e-3 * guess),
    ),
)
