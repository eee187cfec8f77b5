"""Exercise 10.4, A step from its parts: reference, wrong answers and judging."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving import catalog
from course.serving.engine import EngineConfig, simulate_closed
from course.serving.pricing import Constants, RooflineStepCost
from course.serving.workload import Fixed, closed_loop_work


def decode_step_s(
    weight_bytes: float,
    kv_bytes: float,
    flop: float,
    layers: int,
    bandwidth_bytes_per_s: float,
    peak_flop_per_s: float,
    fixed_s: float,
) -> float:
    """Seconds of one decode step, predicted from measured constants.

    weight_bytes, flop: what the matrices of all layers read, and compute for the whole batch;
    kv_bytes: what attention reads from the KV cache; fixed_s: what one layer costs besides.
    """
    matrices_s = math.hypot(weight_bytes / bandwidth_bytes_per_s, flop / peak_flop_per_s)
    return layers * fixed_s + matrices_s + kv_bytes / bandwidth_bytes_per_s


def sharp_corner(
    weight_bytes, kv_bytes, flop, layers, bandwidth_bytes_per_s, peak_flop_per_s, fixed_s
):
    """The longer of reading and computing."""
    matrices_s = max(weight_bytes / bandwidth_bytes_per_s, flop / peak_flop_per_s)
    return layers * fixed_s + matrices_s + kv_bytes / bandwidth_bytes_per_s


def nothing_overlaps(
    weight_bytes, kv_bytes, flop, layers, bandwidth_bytes_per_s, peak_flop_per_s, fixed_s
):
    """First all reading, then all computing."""
    matrices_s = weight_bytes / bandwidth_bytes_per_s + flop / peak_flop_per_s
    return layers * fixed_s + matrices_s + kv_bytes / bandwidth_bytes_per_s


def cache_with_the_weights(
    weight_bytes, kv_bytes, flop, layers, bandwidth_bytes_per_s, peak_flop_per_s, fixed_s
):
    """Weights and cache in one roofline."""
    read_s = (weight_bytes + kv_bytes) / bandwidth_bytes_per_s
    return layers * fixed_s + math.hypot(read_s, flop / peak_flop_per_s)


def fixed_once_a_step(
    weight_bytes, kv_bytes, flop, layers, bandwidth_bytes_per_s, peak_flop_per_s, fixed_s
):
    """One fixed part for the whole step."""
    matrices_s = math.hypot(weight_bytes / bandwidth_bytes_per_s, flop / peak_flop_per_s)
    return fixed_s + matrices_s + kv_bytes / bandwidth_bytes_per_s


# model, batch, context: around the ridge, so that every term shows
_STEPS = (
    ("Llama-3.1-8B", 96, 1024), ("Qwen3-8B", 48, 4096), ("Llama-2-7B", 128, 256),
    ("Llama-3.1-8B", 192, 512), ("Llama-3.1-8B", 64, 3000),
)  # fmt: skip


def _machine_cost(model: str, bandwidth: float, peak: float, fixed_s: float) -> RooflineStepCost:
    """A step's cost on a machine with these measured constants and room for everything."""
    card = replace(
        catalog.gpu("L4"), name="measured", bandwidth_bytes_per_s=bandwidth,
        peak_bf16_flop_per_s=peak, memory_bytes=512 * 2**30,
    )  # fmt: skip
    known = Constants(overhead_s=0.0, launch_per_layer_s=fixed_s, mbu=1.0, mfu_bf16=1.0)
    return RooflineStepCost(model, card, constants=known)


def _decode_steps(rng: np.random.Generator) -> list[dict[str, Any]]:
    cases = []
    for name, batch, context in _STEPS:
        bandwidth = float(f"{rng.uniform(1e11, 2e12):.3g}")
        peak = float(f"{bandwidth * rng.uniform(80, 160):.3g}")
        fixed_s = float(f"{rng.uniform(2e-4, 6e-4) * 2e11 / bandwidth:.3g}")
        cost = _machine_cost(name, bandwidth, peak, fixed_s)
        cases.append(
            {
                "weight_bytes": float(cost.streamed_bytes),
                "kv_bytes": float(cost.kv_bytes_per_token * batch * context),
                "flop": 2.0 * cost.model.active_parameters * batch,
                "layers": cost.model.layers,
                "bandwidth_bytes_per_s": bandwidth,
                "peak_flop_per_s": peak,
                "fixed_s": fixed_s,
            }
        )
    return cases


def _step_in_the_engine(_: Any, case: Any) -> str | None:
    """What the engine's decode steps last, of the batch that the case was made from."""
    for name, batch, context in _STEPS:
        cost = _machine_cost(
            name, case["bandwidth_bytes_per_s"], case["peak_flop_per_s"], case["fixed_s"]
        )
        kv_bytes = cost.kv_bytes_per_token * batch * context
        if (cost.streamed_bytes, kv_bytes) == (case["weight_bytes"], case["kv_bytes"]):
            work = closed_loop_work(batch, Fixed(context - 1), Fixed(3), seed=0)
            config = EngineConfig(max_num_seqs=batch, max_num_batched_tokens=batch * context)
            run = simulate_closed(batch, 0.0, work, cost, config, progress=False)
            step_s = float(np.mean(run.tpot_s))
            return f"{name}, batch {batch}, context {context:,}: {plain(step_s, 3)} s a step"
    return None


EXERCISE = function_exercise(
    "10.4",
    title="A step from its parts",
    question=(
        "Predict a decode step before it is measured. In the matrices, reading the weights and "
        "computing with them overlap, with the round corner of section 2; attention runs after "
        "them and reads the KV cache at the same bandwidth; and every layer has its fixed "
        "time. Which of these times add up, and which do not? The result below the check has "
        "the same batch in the engine beside it."
    ),
    kind="predict",
    minutes=6,
    difficulty=2,
    reference=decode_step_s,
    cases=_decode_steps,
    result=Number("s", rel=0.003),
    evidence=_step_in_the_engine,
    wrong={
        sharp_corner: (
            "The longer of the two is right far from the ridge. Near it, both are in each "
            "other's way: at the ridge itself the round corner is √2 times the sharp one."
        ),
        nothing_overlaps: (
            "You add reading and computing, as if nothing were computed while weights arrive. "
            "A kernel does both at once: the square root of the squares."
        ),
        cache_with_the_weights: (
            "You put the cache's bytes into the matrices' roofline. Attention is a kernel of "
            "its own, after the matrices: it cannot hide behind their arithmetic."
        ),
        fixed_once_a_step: (
            "The fixed time is paid by every layer, since every layer starts its own kernels. "
            "Over 32 layers it is a good part of a small step."
        ),
    },
    hints=(
        "What runs one after the other adds up: how many such terms are there?",
        "math.hypot(a, b) is √(a² + b²): reading the weights, and computing.",
        "layers * fixed_s + hypot(weight reading, computing) + kv_bytes / bandwidth.",
    ),
    explanation=(
        "It is the formula of `RooflineStepCost`, with your machine's constants in the place "
        "of a data sheet's."
    ),
)
