"""Exercise 4.2, How many fit?: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Whole
from course.serving import catalog
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Workload


def sequences_that_fit(
    model: dict[str, int],
    memory_bytes: int,
    memory_fraction: float,
    context_tokens: int,
    block_size: int,
) -> int:
    """Number of sequences whose KV cache fits a card beside the weights, all at full length.

    model: has "layers", "heads", "kv_heads", "head_dim" and "parameters"; weights and KV cache are
    in 16 bits, 2 bytes a number. memory_bytes: of the card; the server may use memory_fraction of
    it, and 2 * 1024**3 bytes of that go to its working memory. context_tokens: of each sequence,
    held in whole blocks of block_size tokens.
    """
    token_bytes = 2 * model["layers"] * model["kv_heads"] * model["head_dim"] * 2  # keys and values
    free_bytes = memory_bytes * memory_fraction - 2 * model["parameters"] - 2 * 1024**3
    blocks = free_bytes // (block_size * token_bytes)
    return int(blocks // math.ceil(context_tokens / block_size))


def a_kv_head_for_each_head(model, memory_bytes, memory_fraction, context_tokens, block_size):
    """Keys and values for each query head."""
    token_bytes = 2 * model["layers"] * model["heads"] * model["head_dim"] * 2
    free_bytes = memory_bytes * memory_fraction - 2 * model["parameters"] - 2 * 1024**3
    blocks = free_bytes // (block_size * token_bytes)
    return int(blocks // math.ceil(context_tokens / block_size))


def keys_without_values(model, memory_bytes, memory_fraction, context_tokens, block_size):
    """One vector a token, layer and head."""
    token_bytes = model["layers"] * model["kv_heads"] * model["head_dim"] * 2
    free_bytes = memory_bytes * memory_fraction - 2 * model["parameters"] - 2 * 1024**3
    blocks = free_bytes // (block_size * token_bytes)
    return int(blocks // math.ceil(context_tokens / block_size))


def fraction_of_the_rest(model, memory_bytes, memory_fraction, context_tokens, block_size):
    """The fraction is taken of what the weights leave."""
    token_bytes = 2 * model["layers"] * model["kv_heads"] * model["head_dim"] * 2
    free_bytes = (memory_bytes - 2 * model["parameters"] - 2 * 1024**3) * memory_fraction
    blocks = free_bytes // (block_size * token_bytes)
    return int(blocks // math.ceil(context_tokens / block_size))


def tokens_without_blocks(model, memory_bytes, memory_fraction, context_tokens, block_size):
    """Tokens are packed without gaps."""
    token_bytes = 2 * model["layers"] * model["kv_heads"] * model["head_dim"] * 2
    free_bytes = memory_bytes * memory_fraction - 2 * model["parameters"] - 2 * 1024**3
    return int(free_bytes // (token_bytes * context_tokens))


def weights_forgotten(model, memory_bytes, memory_fraction, context_tokens, block_size):
    """All of the fraction for the cache."""
    token_bytes = 2 * model["layers"] * model["kv_heads"] * model["head_dim"] * 2
    blocks = memory_bytes * memory_fraction // (block_size * token_bytes)
    return int(blocks // math.ceil(context_tokens / block_size))


def always_one_block_more(model, memory_bytes, memory_fraction, context_tokens, block_size):
    """The full blocks and one, also where the last one is full."""
    token_bytes = 2 * model["layers"] * model["kv_heads"] * model["head_dim"] * 2
    free_bytes = memory_bytes * memory_fraction - 2 * model["parameters"] - 2 * 1024**3
    blocks = free_bytes // (block_size * token_bytes)
    return int(blocks // (context_tokens // block_size + 1))


def _cards(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Models and cards that go together; all contexts but one do not end with a full block."""
    pairs = (
        ("Llama-3.1-8B", "RTX-4090", 0.9),
        ("Qwen3-8B", "H100-80GB-SXM", 0.85),
        ("Mistral-7B", "L4", 0.95),
        ("Qwen3-32B", "H200-141GB-SXM", 0.92),
    )
    cases = []
    for name, card, fraction in pairs:
        shape = catalog.model(name)
        block_size = int(rng.choice([16, 32, 64]))
        context = block_size * int(rng.integers(2, 6))
        if name != "Mistral-7B":
            context += int(rng.integers(1, block_size // 2))
        cases.append(
            {
                "model": {
                    "layers": shape.layers,
                    "heads": shape.heads,
                    "kv_heads": shape.kv_heads,
                    "head_dim": shape.head_dim,
                    "parameters": shape.parameters,
                },
                "memory_bytes": catalog.gpu(card).memory_bytes,
                "memory_fraction": fraction,
                "context_tokens": context,
                "block_size": block_size,
            }
        )
    return cases


def preempted_with(case: Any, sequences: int) -> int:
    """Return how often the engine preempts when so many sequences start at once on the card.

    Each grows to context_tokens of KV in just the blocks that the reference finds.
    """
    tokens, size = case["context_tokens"], case["block_size"]
    fitting = sequences_that_fit(**case) * math.ceil(tokens / size)
    growing = min(size + 1, tokens - 1)
    work = Workload(
        np.zeros(sequences),
        np.full(sequences, tokens - growing),
        np.full(sequences, growing + 1),
    )
    config = EngineConfig(
        max_num_seqs=sequences, max_num_batched_tokens=sequences * tokens, num_kv_blocks=fitting,
        block_size=size,
    )  # fmt: skip
    run = simulate(work, LinearStepCost(fixed_s=0.01), config, progress=False)
    return int(run.preemptions.sum())


def _in_engine(_: Any, case: Any) -> str:
    fit = sequences_that_fit(**case)
    return (
        f"the engine lets {fit} grow to full length with {preempted_with(case, fit)} preemptions; "
        f"with one more it preempts {preempted_with(case, fit + 1)} times"
    )


def _describe_card(case: Any) -> str:
    return (
        f"{case['model']['parameters'] / 1e9:.1f} billion parameters, "
        f"{case['memory_bytes'] / 1e9:.1f} GB, fraction {case['memory_fraction']:g}, "
        f"{case['context_tokens']} tokens in blocks of "
        f"{case['block_size']}"
    )


EXERCISE = function_exercise(
    "4.2",
    title="How many fit?",
    question=(
        "Every token that a sequence has read or written stays in the KV cache: a key and a "
        "value for each layer and each KV head. How many sequences of a given length can a "
        "card hold beside the model's weights? Start with the bytes of one token, then what "
        "is left of the card, then blocks, then sequences."
    ),
    kind="compute",
    minutes=8,
    difficulty=2,
    reference=sequences_that_fit,
    cases=_cards,
    result=Whole("sequences"),
    evidence=_in_engine,
    describe=_describe_card,
    wrong={
        a_kv_head_for_each_head: (
            "You count all heads. In these models several query heads share one KV head "
            "(grouped-query attention); only the KV heads are in the cache."
        ),
        keys_without_values: (
            "You store one vector a token, layer and head. There are two: a key and a value."
        ),
        fraction_of_the_rest: (
            "You take the memory fraction of what the weights leave. It is a fraction of the "
            "*whole card*, and weights and working memory come out of it: that is why 0.85 or "
            "0.95 makes such a difference on a small card."
        ),
        tokens_without_blocks: (
            "You pack tokens without gaps. Each sequence holds whole blocks, and the last one "
            "is partly empty: round its blocks up, and the card's blocks down."
        ),
        weights_forgotten: (
            "You give the whole fraction to the cache. The weights are in it as well: two "
            "bytes for each parameter, and 2 GiB of working memory."
        ),
        always_one_block_more: (
            "You take one block more than are full. Where the context ends with its last block, "
            "there is no further one: round up, math.ceil(context_tokens / block_size)."
        ),
    },
    hints=(
        "Bytes of a token: 2 (key and value) · layers · kv_heads · head_dim · 2 bytes.",
        "Left for the cache: memory_bytes * memory_fraction − 2 * parameters − 2 * 1024**3.",
        "blocks = left // (block_size * token_bytes); each sequence takes "
        "math.ceil(context_tokens / block_size) of them.",
    ),
    explanation=(
        "Three of these numbers you choose: the fraction, the precision of the cache, and the "
        "longest context you promise. The fourth, kv_heads, you choose with the model."
    ),
)
