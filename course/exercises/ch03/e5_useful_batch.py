"""Exercise 3.5, Three rules of thumb: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Whole, plain
from course.serving.engine import EngineConfig, simulate_closed
from course.serving.pricing import RooflineStepCost
from course.serving.workload import Fixed, closed_loop_work


def useful_batch(
    free_bytes: float,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    tokens: int,
    bytes_per_s: float,
    flop_per_s: float,
) -> int:
    """Sequences up to which a larger batch still helps: memory's limit or the ridge, rounded down.

    free_bytes: memory left beside the weights; layers, heads, kv_heads, head_dim: of the model,
    grouped-query attention; tokens: that each sequence keeps in the cache at its end; bytes_per_s,
    flop_per_s: of the card. Weights and cache are in 16 bits.
    """
    kv_bytes = 2 * layers * kv_heads * head_dim * 2
    room = free_bytes / (kv_bytes * tokens)
    ridge = flop_per_s / bytes_per_s
    return int(min(room, ridge))


def heads_for_kv_heads(
    free_bytes, layers, heads, kv_heads, head_dim, tokens, bytes_per_s, flop_per_s
):
    """Keys and values for each query head."""
    kv_bytes = 2 * layers * heads * head_dim * 2
    return int(min(free_bytes / (kv_bytes * tokens), flop_per_s / bytes_per_s))


def keys_without_values(
    free_bytes, layers, heads, kv_heads, head_dim, tokens, bytes_per_s, flop_per_s
):
    """Half of the cache."""
    kv_bytes = layers * kv_heads * head_dim * 2
    return int(min(free_bytes / (kv_bytes * tokens), flop_per_s / bytes_per_s))


def ridge_without_memory(
    free_bytes, layers, heads, kv_heads, head_dim, tokens, bytes_per_s, flop_per_s
):
    """The ridge, whether or not so many fit."""
    return int(flop_per_s / bytes_per_s)


def memory_without_ridge(
    free_bytes, layers, heads, kv_heads, head_dim, tokens, bytes_per_s, flop_per_s
):
    """All that fit, whether or not they still help."""
    return int(free_bytes / (2 * layers * kv_heads * head_dim * 2 * tokens))


def rounded_to_the_nearest(
    free_bytes, layers, heads, kv_heads, head_dim, tokens, bytes_per_s, flop_per_s
):
    """The nearest whole number, which may be one sequence too many."""
    kv_bytes = 2 * layers * kv_heads * head_dim * 2
    return round(min(free_bytes / (kv_bytes * tokens), flop_per_s / bytes_per_s))


PRINTED_RULES = (
    ("“8 to 64, start at 16”", 8, 64),
    ("“from 128 in steps of 64”", 128, 512),
    ("“the ridge, 86 to 216”", 86, 216),
)
"""Rules found in print, and the batches that they name."""


class ServerCase(dict[str, Any]):
    """A case's inputs, and behind them the server that they are figures of."""

    cost: RooflineStepCost


_SERVERS = (
    ("Llama-3.1-8B", "RTX-4090", 1, 2048),
    ("Llama-3.1-8B", "H100-80GB-SXM", 1, 600),
    ("Llama-2-7B", "A10G", 1, 1000),
    ("Llama-3.1-8B", "A100-80GB-SXM", 1, 1500),
    ("Llama-3.1-70B", "H100-80GB-SXM", 4, 3000),
    ("Llama-3.1-8B", "H100-80GB-SXM", 1, 24_000),
)


def _servers(rng: np.random.Generator) -> list[ServerCase]:
    """Cards on which memory ends the gain, and cards that reach the ridge before they are full."""
    cases = []
    for model, gpu, n_gpus, tokens in _SERVERS:
        cost = RooflineStepCost(model, gpu, n_gpus)
        shape = cost.model
        room_tokens = cost.kv_blocks() * 16
        each = 16 * round(tokens * float(rng.uniform(0.9, 1.1)) / 16)
        # where few fit, a last one nearly does: rounding it up would seat it without memory
        while room_tokens < 64 * each and room_tokens / each % 1 < 0.55:
            each = 16 * round(tokens * float(rng.uniform(0.9, 1.1)) / 16)
        case = ServerCase(
            free_bytes=float(room_tokens * cost.kv_bytes_per_token),
            layers=shape.layers,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_dim=shape.head_dim,
            tokens=each,
            bytes_per_s=n_gpus * cost.gpu.bandwidth_bytes_per_s,
            flop_per_s=n_gpus * cost.gpu.peak_bf16_flop_per_s,
        )
        case.cost = cost
        cases.append(case)
    return cases


def _describe_server(case: Any) -> str:
    cost = case.cost
    cards = cost.gpu.name if cost.n_gpus == 1 else f"{cost.n_gpus} × {cost.gpu.name}"
    free_gb = plain(case["free_bytes"] / 1e9, 3)
    return f"{cost.model.name} on {cards}, {free_gb} GB free; {case['tokens']:,} tokens each"


def _full_server(cost: RooflineStepCost, seats: int, tokens: int) -> tuple[float, int]:
    """Output tokens/s and preemptions of the engine, with every seat always taken."""
    work = closed_loop_work(
        max(200, 4 * seats), Fixed(3 * tokens // 4), Fixed(tokens // 4), seed=35
    )
    config = EngineConfig(
        max_num_seqs=seats, max_num_batched_tokens=8192, num_kv_blocks=cost.kv_blocks()
    )
    run = simulate_closed(seats, 0.0, work, cost, config, progress=False)
    rate_per_s = run.summary(window=run.steady_state()).output_tokens_per_s
    return rate_per_s or 0.0, int(run.preemptions.sum())


def _twice_as_many(batch: Any, case: Any) -> str | None:
    """What the engine gains by twice as many seats, and which rule names this batch if right."""
    seats = int(batch)
    if not 1 <= seats <= 600:
        return None
    (one, _), (two, thrown_out) = (
        _full_server(case.cost, n, case["tokens"]) for n in (seats, 2 * seats)
    )
    seen = (
        f"with {seats} seats {plain(one, 3)} output tokens/s, with twice as many {plain(two, 3)} "
        f"and {thrown_out} preemptions"
    )
    if seats != useful_batch(*case.values()):
        return seen
    rules = [name for name, low, high in PRINTED_RULES if low <= seats <= high]
    named = " and ".join(rules) if rules else "none of the three rules"
    return f"{seen}; {named} would have named this batch"


EXERCISE = function_exercise(
    "3.5",
    title="Three rules of thumb",
    question=(
        "Three rules for the batch are found in print: “8 to 64, start at 16”, “from 128 in "
        "steps of 64”, and “up to the ridge, at 86 to 216”. None of them says for which card, "
        "model and length. So work it out: up to which batch does a larger one help? Two "
        "things end the gain. The memory beside the weights is full, each sequence keeping "
        "keys and values for all its tokens, in every layer, for each key/value head. Or the "
        "matrices are at their ridge, where computing a token's two operations a weight takes "
        "as long as reading that weight's two bytes. (The ridge of the matrices, not that of "
        "the whole step in 3.1: past it nothing is left to share.) Whichever comes first "
        "counts. In the result below the engine tries your batch and twice as many, and says "
        "how often it had to preempt: throw a sequence out for want of memory and compute "
        "it anew."
    ),
    kind="audit",
    minutes=7,
    difficulty=2,
    reference=useful_batch,
    cases=_servers,
    result=Whole("sequences"),
    evidence=_twice_as_many,
    describe=_describe_server,
    wrong={
        heads_for_kv_heads: (
            "You keep keys and values for every *query* head. With grouped-query attention "
            "several query heads share one key/value head, and only kv_heads are in the cache: "
            "in these models often a quarter or an eighth."
        ),
        keys_without_values: (
            "The cache holds a key *and* a value for each token, layer and key/value head; "
            "two numbers of two bytes for each of the head_dim places."
        ),
        rounded_to_the_nearest: (
            "Right but for the rounding. Of 16.8 sequences 16 fit; the 17th has no memory for "
            "its last tokens. Round down: `int`, not `round`."
        ),
        ridge_without_memory: (
            "That is the ridge, whatever fits. With long contexts memory is full long before "
            "it, and a server that has no blocks left cannot seat anybody."
        ),
        memory_without_ridge: (
            "That is all that fit. Past the ridge a step takes longer in proportion to the "
            "batch: everybody gets slower and hardly anything is gained."
        ),
    },
    hints=(
        "Two numbers, and the smaller one counts. Which four things multiply to the bytes "
        "that one token keeps?",
        "Bytes a token: 2 (key and value) · layers · kv_heads · head_dim · 2 (bytes).",
        "int(min(free_bytes / (bytes a token · tokens), flop_per_s / bytes_per_s))",
    ),
    explanation=(
        "Each rule is right somewhere. “8 to 64” suits small cards and long contexts, where "
        "memory ends the gain; “from 128” large cards and short ones; and ridges of 86 to 216 "
        "are those of an A10G (117), an A100 (153) or an H200 (206), but not of an H100 (295)."
    ),
)
