"""Exercises 4.2 and 4.7: how many sequences a card has room for, and the seats that stop a storm.

The references and the wrong answers are copied into a notebook as they stand, so they use nothing
from outside but `math` and `np`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise, value_exercise
from course.exercises.ch04_server import try_seats
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import Figures, Whole
from course.serving import catalog
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Workload

# --- 4.2 how many fit ---------------------------------------------------------------------------


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


def every_head_its_own(
    model: dict[str, int],
    memory_bytes: int,
    memory_fraction: float,
    context_tokens: int,
    block_size: int,
) -> int:
    """Keys and values for each query head."""
    token_bytes = 2 * model["layers"] * model["heads"] * model["head_dim"] * 2
    free_bytes = memory_bytes * memory_fraction - 2 * model["parameters"] - 2 * 1024**3
    blocks = free_bytes // (block_size * token_bytes)
    return int(blocks // math.ceil(context_tokens / block_size))


def keys_without_values(
    model: dict[str, int],
    memory_bytes: int,
    memory_fraction: float,
    context_tokens: int,
    block_size: int,
) -> int:
    """One vector a token, layer and head."""
    token_bytes = model["layers"] * model["kv_heads"] * model["head_dim"] * 2
    free_bytes = memory_bytes * memory_fraction - 2 * model["parameters"] - 2 * 1024**3
    blocks = free_bytes // (block_size * token_bytes)
    return int(blocks // math.ceil(context_tokens / block_size))


def fraction_of_the_rest(
    model: dict[str, int],
    memory_bytes: int,
    memory_fraction: float,
    context_tokens: int,
    block_size: int,
) -> int:
    """The fraction is taken of what the weights leave."""
    token_bytes = 2 * model["layers"] * model["kv_heads"] * model["head_dim"] * 2
    free_bytes = (memory_bytes - 2 * model["parameters"] - 2 * 1024**3) * memory_fraction
    blocks = free_bytes // (block_size * token_bytes)
    return int(blocks // math.ceil(context_tokens / block_size))


def no_whole_blocks(
    model: dict[str, int],
    memory_bytes: int,
    memory_fraction: float,
    context_tokens: int,
    block_size: int,
) -> int:
    """Tokens are packed without gaps."""
    token_bytes = 2 * model["layers"] * model["kv_heads"] * model["head_dim"] * 2
    free_bytes = memory_bytes * memory_fraction - 2 * model["parameters"] - 2 * 1024**3
    return int(free_bytes // (token_bytes * context_tokens))


def weights_forgotten(
    model: dict[str, int],
    memory_bytes: int,
    memory_fraction: float,
    context_tokens: int,
    block_size: int,
) -> int:
    """All of the fraction for the cache."""
    token_bytes = 2 * model["layers"] * model["kv_heads"] * model["head_dim"] * 2
    blocks = memory_bytes * memory_fraction // (block_size * token_bytes)
    return int(blocks // math.ceil(context_tokens / block_size))


def _cards(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Models and cards that go together, and contexts that do not end with a full block."""
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
        context = block_size * int(rng.integers(2, 6)) + int(rng.integers(1, block_size // 2))
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


# --- 4.7 the storm ------------------------------------------------------------------------------

SEATS_WANTED = 48
_TPOT_MS = 36.0
_LEAST_SHARE = 0.95  # of the throughput with 256 seats


def _draws(rng: np.random.Generator) -> list[dict[str, int]]:
    return [{"seed": int(seed)} for seed in rng.integers(1, 10_000, size=2)]


def _storm(seats: Any, case: Any) -> tuple[float, ...]:
    if not 1 <= seats <= 4096:
        raise Unacceptable(f"Your answer is {seats}; give a number of seats from 1 to 4096.")
    return float(seats), *try_seats(int(seats), case["seed"]).values()


def _calm_and_quick(seen: Any, _: Any, case: Any) -> str | None:
    _, preemptions, twice, tpot_ms, _, _, per_s = seen
    if tpot_ms > _TPOT_MS:
        return (
            f"P99 of TPOT is {tpot_ms:g} ms, and {_TPOT_MS:g} ms are promised; {preemptions:g} "
            f"preemptions made the server compute {twice:g} % of its tokens twice."
        )
    crowd_per_s = try_seats(256, case["seed"])["output tokens/s"]
    if per_s < _LEAST_SHARE * crowd_per_s:
        return (
            f"It writes {per_s:g} output tokens/s; with 256 seats it writes {crowd_per_s:g}, and "
            "at least 95 % of that are asked. They wait for a seat while memory is free."
        )
    return None


def _crowded_beside(_: Any, case: Any) -> str:
    crowd = try_seats(256, case["seed"])
    return (
        f"with 256 seats on the same traffic: {crowd['preemptions']:g} preemptions, "
        f"{crowd['computed twice, %']:g} % computed twice, {crowd['output tokens/s']:g} tokens/s"
    )


MEMORY_EXERCISES = (
    function_exercise(
        "4.2",
        title="How many fit?",
        question=(
            "Every token that a sequence has read or written stays in the KV cache: a key and a "
            "value for each layer and each KV head. How many sequences of a given length can a "
            "card hold beside the model's weights? Start with the bytes of one token, then what "
            "is left of the card, then blocks, then sequences."
        ),
        track="core",
        kind="compute",
        minutes=8,
        difficulty=2,
        reference=sequences_that_fit,
        cases=_cards,
        result=Whole("sequences"),
        evidence=_in_engine,
        describe=_describe_card,
        wrong=(
            Wrong(
                "a-kv-head-for-each-head",
                every_head_its_own,
                "You count all heads. In these models several query heads share one KV head "
                "(grouped-query attention); only the KV heads are in the cache.",
            ),
            Wrong(
                "keys-without-values",
                keys_without_values,
                "You store one vector a token, layer and head. There are two: a key and a value.",
            ),
            Wrong(
                "fraction-of-the-rest",
                fraction_of_the_rest,
                "You take the memory fraction of what the weights leave. It is a fraction of the "
                "*whole card*, and weights and working memory come out of it: that is why 0.85 or "
                "0.95 makes such a difference on a small card.",
            ),
            Wrong(
                "tokens-without-blocks",
                no_whole_blocks,
                "You pack tokens without gaps. Each sequence holds whole blocks, and the last one "
                "is partly empty: round its blocks up, and the card's blocks down.",
            ),
            Wrong(
                "weights-forgotten",
                weights_forgotten,
                "You give the whole fraction to the cache. The weights are in it as well: two "
                "bytes for each parameter, and 2 GiB of working memory.",
            ),
        ),
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
    ),
    value_exercise(
        "4.7",
        title="Stop the storm",
        question=(
            "Llama-3.1-8B on an RTX 4090 has room for 2,154 blocks, 34,464 tokens. Five requests "
            "a second come, prompts of 300 and answers of 400 tokens on average, and "
            "`max_num_seqs` stands at 256. That is more than the card can write with any number of "
            "seats, so many wait at the door; but at 256 seats those *inside* suffer as well: the "
            "server preempts hundreds of times and computes a fifth of its tokens twice, or more. "
            "Choose `max_num_seqs` so that P99 of TPOT is at most 36 ms, and the server still "
            "writes at least 95 % of the tokens/s that it writes with 256 seats; on draws that you "
            "have not seen. `try_seats(256)` shows what a number does, `try_seats(256, seed=2)` on "
            "another draw."
        ),
        track="stretch",
        kind="configure",
        minutes=8,
        difficulty=2,
        reference=SEATS_WANTED,
        answer_name="seats",
        comment="max_num_seqs, a whole number",
        value=Whole("seats"),
        cases=_draws,
        observe=_storm,
        result=Figures(
            (
                "seats",
                "preemptions",
                "computed twice",
                "P99 of TPOT",
                "P99 of TTFT",
                "P99 of E2E",
                "output",
            ),
            ("", "", "%", "ms", "s", "s", "tokens/s"),
            noun="P99 of TPOT up to 36 ms, and 95 % of the tokens/s",
            within="both promises kept",
        ),
        accept=_calm_and_quick,
        evidence=_crowded_beside,
        describe=lambda case: "500 requests, 5 a second, that you have not seen",
        time_limit_s=20.0,
        wrong=(
            Wrong(
                "more-seats-more-throughput",
                256,
                "More seats than the memory can feed are no seats. Whoever is let in and thrown "
                "out again has to compute everything once more, and that work is missing "
                "elsewhere: mostly even the throughput is lower than with a quarter of the seats.",
                also=lambda seats: seats > 150,
            ),
            Wrong(
                "prompts-alone-fit",
                115,
                "34,464 tokens / 300 = 115: so many *prompts* fit. But those who run also write, "
                "400 tokens on average, and all of it stays in the cache until they end.",
                also=lambda seats: 60 <= seats <= 150,
            ),
            Wrong(
                "room-for-the-longest",
                9,
                "34,464 / 3,500 = 9: that many fit even if each had the longest prompt and the "
                "longest answer. Nobody is ever preempted, the cache stands three quarters empty, "
                "and everybody waits for a seat.",
                also=lambda seats: seats <= 30,
            ),
        ),
        hints=(
            "What does a running request hold on average? Its prompt, and about half of its "
            "answer; long answers run longer, so rather more.",
            "300 + 290 tokens: about 58 run when the cache is full. That is the mean; half of the "
            "time it is more. Leave some room.",
            "Try 40, 48 and 56 with try_seats, on several seeds.",
        ),
        explanation=(
            "48 sequences of 590 tokens fill some 80 % of the cache; the rest is room for bad "
            "luck. More blocks would calm the same traffic too: a larger memory fraction, a cache "
            "in 8 bits."
        ),
    ),
)
