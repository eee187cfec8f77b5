"""Exercises 3.5 and 3.8: three rules of thumb held to the data sheet, and eight cards laid out.

The references and the wrong answers are ordinary functions or values; each is copied into a
notebook as it stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from course.exercises.build import function_exercise, value_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Figures, Whole, plain, short_repr
from course.serving.engine import EngineConfig, simulate, simulate_closed
from course.serving.pricing import RooflineStepCost
from course.serving.workload import Fixed, Lognormal, Poisson, Workload, closed_loop_work, draw

# --- 3.5 three rules of thumb -------------------------------------------------------------------


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


def a_cache_for_every_head(
    free_bytes: float,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    tokens: int,
    bytes_per_s: float,
    flop_per_s: float,
) -> int:
    """Keys and values for each query head."""
    kv_bytes = 2 * layers * heads * head_dim * 2
    return int(min(free_bytes / (kv_bytes * tokens), flop_per_s / bytes_per_s))


def keys_without_values(
    free_bytes: float,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    tokens: int,
    bytes_per_s: float,
    flop_per_s: float,
) -> int:
    """Half of the cache."""
    kv_bytes = layers * kv_heads * head_dim * 2
    return int(min(free_bytes / (kv_bytes * tokens), flop_per_s / bytes_per_s))


def the_ridge_only(
    free_bytes: float,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    tokens: int,
    bytes_per_s: float,
    flop_per_s: float,
) -> int:
    """The ridge, whether or not so many fit."""
    return int(flop_per_s / bytes_per_s)


def all_that_fit(
    free_bytes: float,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    tokens: int,
    bytes_per_s: float,
    flop_per_s: float,
) -> int:
    """All that fit, whether or not they still help."""
    return int(free_bytes / (2 * layers * kv_heads * head_dim * 2 * tokens))


def rounded_to_the_nearest(
    free_bytes: float,
    layers: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    tokens: int,
    bytes_per_s: float,
    flop_per_s: float,
) -> int:
    """The nearest whole number, which may be one sequence too many."""
    kv_bytes = 2 * layers * kv_heads * head_dim * 2
    return round(min(free_bytes / (kv_bytes * tokens), flop_per_s / bytes_per_s))


RULES = (
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
    rules = [name for name, low, high in RULES if low <= seats <= high]
    named = " and ".join(rules) if rules else "none of the three rules"
    return f"{seen}; {named} would have named this batch"


# --- 3.8 eight cards ----------------------------------------------------------------------------

CARDS = 8
RATE_PER_S = 16.0
TPOT_S, TTFT_S = 0.030, 0.5
_REQUESTS = 2_400
_MOST_SEATS = 1_024


@dataclass(frozen=True)
class Layout:
    """A pair (cards a replica, seats a replica), as a kind of value.

    >>> Layout().problem((3, 64))
    'It has replicas of 3 cards; give 1, 2, 4 or 8.'
    >>> Layout().problem((2, 64)) is None
    True
    """

    expected: str = "a pair (cards, seats), such as (1, 64)"
    tolerance: str = "judged by what the engine shows"

    def problem(self, value: object) -> str | None:
        """Why a value is no such pair."""
        if not isinstance(value, tuple | list) or len(value) != 2:
            return f"It is {short_repr(value)}; give {self.expected}."
        for name, part in zip(("cards", "seats"), value, strict=True):
            if Whole().problem(part) is not None:
                return f"Its {name} are {short_repr(part)}; give a whole number."
        cards, seats = value
        if cards not in (1, 2, 4, 8):
            return f"It has replicas of {short_repr(cards)} cards; give 1, 2, 4 or 8."
        if not 1 <= seats <= _MOST_SEATS:
            return f"It has {short_repr(seats)} seats; give 1 to {_MOST_SEATS:,} a replica."
        return None

    def same(self, value: Any, other: Any) -> bool:
        """Whether two pairs are one."""
        return tuple(value) == tuple(other)

    def show(self, value: Any) -> str:
        """Both numbers in words."""
        cards, seats = value
        return f"{CARDS // cards} replicas of {cards} cards with {seats} seats each"

    def magnitude(self, value: Any) -> str:
        """Nothing: the pair is the answer."""
        return ""


@lru_cache(maxsize=8)
def replica(cards: int) -> RooflineStepCost:
    """Return one replica of exercise 3.8 on so many cards."""
    return RooflineStepCost("Llama-3.1-70B", "H100-80GB-SXM", cards, "fp8")


@lru_cache(maxsize=256)
def eight_cards(
    cards: int, seats: int, seed: int, rate_per_s: float = RATE_PER_S
) -> tuple[float, float, int]:
    """Return P95 TTFT (s), P95 TPOT (s) and preemptions of all replicas together.

    A router deals the requests out in turn.

    >>> ttft_s, tpot_s, preemptions = eight_cards(4, 96, seed=1)
    >>> ttft_s < TTFT_S, tpot_s < TPOT_S, preemptions
    (True, True, 0)
    """
    cost, replicas = replica(cards), CARDS // cards
    lengths = Lognormal.of_mean(1000, 0.5), Lognormal.of_mean(250, 0.5)
    work = draw(_REQUESTS, Poisson(rate_per_s), *lengths, seed=seed)
    config = EngineConfig(
        max_num_seqs=seats, max_num_batched_tokens=2048, num_kv_blocks=cost.kv_blocks()
    )
    ttft, tpot, preemptions = [], [], 0
    for first in range(replicas):
        mine = slice(first, None, replicas)
        share = Workload(work.arrival_s[mine], work.prompt_tokens[mine], work.output_tokens[mine])
        run = simulate(share, cost, config, progress=False)
        ttft.append(run.ttft_s)
        tpot.append(run.tpot_s)
        preemptions += int(run.preemptions.sum())
    seen = [float(np.nanpercentile(np.concatenate(times), 95)) for times in (ttft, tpot)]
    return seen[0], seen[1], preemptions


def _observed_layout(layout: Any, case: Any) -> tuple[float, float, int]:
    cards, seats = layout
    return eight_cards(int(cards), int(seats), case["seed"])


def _two_days(rng: np.random.Generator) -> list[dict[str, int]]:
    # the engine's first run in a fresh installation compiles it, which no answer shall pay for
    eight_cards(8, 1, 0)
    return [{"seed": int(seed)} for seed in rng.integers(2**31, size=2)]


def _accept_layout(seen: Any, best: Any, case: Any) -> str | None:
    ttft_s, tpot_s, preemptions = seen
    late = []
    if tpot_s > TPOT_S:
        late.append(f"P95 TPOT is {plain(1e3 * tpot_s, 3)} ms, over {plain(1e3 * TPOT_S)} ms")
    if ttft_s > TTFT_S:
        late.append(f"P95 TTFT is {plain(ttft_s, 3)} s, over {plain(TTFT_S)} s")
    if not late:
        return None
    thrown = f", with {preemptions:,} preemptions" if preemptions else ""
    return f"{'; '.join(late)}{thrown}."


LAYOUT_EXERCISES = (
    function_exercise(
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
        track="stretch",
        kind="audit",
        minutes=7,
        difficulty=2,
        reference=useful_batch,
        cases=_servers,
        result=Whole("sequences"),
        evidence=_twice_as_many,
        describe=_describe_server,
        wrong=(
            Wrong(
                "heads-for-kv-heads",
                a_cache_for_every_head,
                "You keep keys and values for every *query* head. With grouped-query attention "
                "several query heads share one key/value head, and only kv_heads are in the cache: "
                "in these models often a quarter or an eighth.",
            ),
            Wrong(
                "keys-without-values",
                keys_without_values,
                "The cache holds a key *and* a value for each token, layer and key/value head; "
                "two numbers of two bytes for each of the head_dim places.",
            ),
            Wrong(
                "rounded-to-the-nearest",
                rounded_to_the_nearest,
                "Right but for the rounding. Of 16.8 sequences 16 fit; the 17th has no memory for "
                "its last tokens. Round down: `int`, not `round`.",
            ),
            Wrong(
                "ridge-without-memory",
                the_ridge_only,
                "That is the ridge, whatever fits. With long contexts memory is full long before "
                "it, and a server that has no blocks left cannot seat anybody.",
            ),
            Wrong(
                "memory-without-ridge",
                all_that_fit,
                "That is all that fit. Past the ridge a step takes longer in proportion to the "
                "batch: everybody gets slower and hardly anything is gained.",
            ),
        ),
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
    ),
    value_exercise(
        "3.8",
        title="One of eight, or eight of one",
        question=(
            "Eight H100s serve Llama-3.1-70B in fp8. 16 requests/s arrive (Poisson), prompts of "
            "1,000 and answers of 250 tokens on average. Promised are a P95 TPOT of 30 ms and a "
            "P95 TTFT of 0.5 s. You may lay the cards out as eight replicas of one card, four of "
            "two, two of four, or one of eight; a router deals the requests out in turn. Give "
            "`(cards, seats)`: cards a replica, and seats (`max_num_seqs`) of each replica. The "
            "engine runs your layout on two days that you have not seen. A step computes at most "
            "2,048 tokens there; a longer prompt is cut and spread over several steps (notebook "
            "04), so that one prompt cannot hold everybody up for long."
        ),
        track="stretch",
        kind="configure",
        minutes=8,
        difficulty=3,
        reference=(4, 96),
        value=Layout(),
        comment="a pair (cards a replica, seats a replica)",
        cases=_two_days,
        observe=_observed_layout,
        result=Figures(
            ("P95 TTFT", "P95 TPOT", "preemptions"),
            ("s", "s", ""),
            noun="P95 TTFT within 0.5 s and P95 TPOT within 30 ms",
            within="both promises kept on both days",
        ),
        accept=_accept_layout,
        describe=lambda case: "16 requests/s on eight H100s, on a day that was not shown",
        wrong=(
            Wrong(
                "one-big-pool",
                (8, 256),
                "One queue, one big server: that is right for the waiting line of notebook 02, and "
                "here the reads are fastest too. But two all-reduces a layer move every token's "
                "numbers among all eight cards, and that time does not shrink with more cards: "
                "every prompt is delayed by it, and all readers with it.",
                also=lambda layout: _pair(layout)[0] == 8,
            ),
            Wrong(
                "no-talk-at-all",
                (1, 64),
                "Single cards need no all-reduce, but each must hold a copy of 70 GB of weights. "
                "What is left is room for some ten chats a card; the rest are thrown out and "
                "computed anew.",
                also=lambda layout: _pair(layout)[0] == 1,
            ),
            Wrong(
                "cheapest-without-the-promise",
                (2, 64),
                "Pairs spend the least on talking to each other, and offline they are the best "
                "here. But each pair reads half of the weights a card in every step, and "
                "computes every prompt with two cards: the step is too long for this promise.",
                also=lambda layout: _pair(layout)[0] == 2,
            ),
            Wrong(
                "too-few-seats",
                (4, 16),
                "The layout can do it, the seats cannot: Little's law asks for about 8 requests/s "
                "times 5 s of decoding on each of the two replicas. With fewer seats everybody "
                "queues, though the steps would be quick.",
                also=lambda layout: _pair(layout)[0] == 4 and _pair(layout)[1] <= 56,
            ),
        ),
        hints=(
            "Try each number of cards once, with many seats, and read both percentiles.",
            "Larger replicas read faster and talk more. Two of the four sizes miss the TPOT for "
            "opposite reasons.",
            "Replicas of four cards, with at least 64 seats each.",
        ),
        explanation=(
            "Small replicas repeat the weights in memory and read them slowly; large ones pay an "
            "all-reduce on every token that more cards do not make shorter. Where the best lies "
            "depends on the promise: at a looser one pairs would win."
        ),
    ),
)


def _pair(layout: Any) -> tuple[int, int]:
    """A layout as a pair; (0, 0) for what is none."""
    return (0, 0) if Layout().problem(layout) else (int(layout[0]), int(layout[1]))


__all__ = ["LAYOUT_EXERCISES"]
