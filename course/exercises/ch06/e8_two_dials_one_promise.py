"""Exercise 6.8, Two dials, one promise: reference, wrong answers and judging."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from course.exercises.build import value_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Figures, Whole, plain, short_repr
from course.serving import catalog
from course.serving.engine import EngineConfig
from course.serving.load import DrawnTraffic, Scenario, sweep
from course.serving.pricing import RooflineStepCost
from course.serving.requests import SLO
from course.serving.workload import Gamma, Quantiles

PROMISE = SLO(ttft_s=1.0, tpot_s=0.030, quantile=0.99)


BEST = (128, 768)


SHARE_OF_BEST = 0.9


_TRACE = "azure-2023-conversation"


_LOADS = (4, 6, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 22)


_MOST_SEATS, _LEAST_BUDGET, _MOST_BUDGET = 1_024, 64, 16_384


@dataclass(frozen=True)
class Dials:
    """A pair (max_num_seqs, max_num_batched_tokens), as a kind of value.

    >>> Dials().problem((128, 10))
    'Its max_num_batched_tokens are 10; give 64 to 16,384.'
    >>> Dials().problem((64, 2048)) is None
    True
    """

    expected: str = "a pair (max_num_seqs, max_num_batched_tokens), such as (64, 2048)"
    tolerance: str = "judged by what the engine shows"

    def problem(self, value: object) -> str | None:
        """Why a value is no such pair."""
        if not isinstance(value, tuple | list) or len(value) != 2:
            return f"It is {short_repr(value)}; give {self.expected}."
        limits = (
            ("max_num_seqs", 1, _MOST_SEATS),
            ("max_num_batched_tokens", _LEAST_BUDGET, _MOST_BUDGET),
        )
        for (name, low, high), part in zip(limits, value, strict=True):
            if Whole().problem(part) is not None:
                return f"Its {name} are {short_repr(part)}; give a whole number."
            if not low <= part <= high:
                return f"Its {name} are {short_repr(part)}; give {low:,} to {high:,}."
        return None

    def same(self, value: Any, other: Any) -> bool:
        """Whether two pairs are one."""
        return tuple(value) == tuple(other)

    def show(self, value: Any) -> str:
        """Both numbers in words."""
        seats, budget = value
        return f"{seats} seats and a budget of {budget:,} tokens"

    def magnitude(self, value: Any) -> str:
        """Nothing: the pair is the answer."""
        return ""


@lru_cache(maxsize=256)
def held_per_s(seats: int, budget: int, seed: int) -> float:
    """Return the requests/s that the chat server of exercise 6.8 holds inside its promise.

    0 where not even the lowest load does.

    >>> held_per_s(128, 768, seed=1) > held_per_s(256, 8192, seed=1)
    True
    """
    cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
    shape = catalog.arrival_statistics(_TRACE).gamma_shape
    assert shape is not None
    prompt, output = (Quantiles.of_trace(_TRACE, which) for which in ("prompt", "output"))
    config = EngineConfig(seats, budget, num_kv_blocks=cost.kv_blocks())
    scenario = Scenario(
        cost, DrawnTraffic(prompt, output, Gamma(1.0, shape)), config, requests=3000, slo=PROMISE
    )
    return sweep(scenario, _LOADS, [seed], progress=False).knee("slo").load or 0.0


def _observed(dials: Any, case: Any) -> tuple[float]:
    seats, budget = dials
    return (held_per_s(int(seats), int(budget), case["seed"]),)


def _two_days(rng: np.random.Generator) -> list[dict[str, int]]:
    # the engine's first run in a fresh installation compiles it, which no answer shall pay for
    held_per_s(1, 64, 0)
    return [{"seed": int(seed)} for seed in rng.integers(2**31, size=2)]


def _accept(found: Any, best: Any, case: Any) -> str | None:
    (seen,), (most,) = found, best
    if seen >= SHARE_OF_BEST * most:
        return None
    if seen == 0:
        return "Not even the lowest load of the sweep, 4 requests/s, is inside the promise."
    return (
        f"It holds {plain(seen, 3)} requests/s inside the promise, "
        f"{plain(100 * seen / most, 2)} % of what this server can."
    )


EXERCISE = value_exercise(
    "6.8",
    title="Two dials, one promise",
    question=(
        "Llama-3.1-8B on one H100, with the prompts, answers and gaps of a real chat service: "
        "1,155 tokens in and 211 out on average. Promised to 99 %: a first token within 1 s, "
        "and at most 30 ms for each further one. With 256 seats and 8,192 tokens a step this "
        "server holds about 15 requests/s. Set `(max_num_seqs, max_num_batched_tokens)` so "
        "that it holds at least 90 % of the most that can be had. Any two whole numbers will "
        "do, also such as the explorer does not offer. You are judged on two days that nobody "
        "has seen. Try it in `explore.ramp` first, with 30 ms promised; for the seats, think "
        "of Little's law: requests inside = requests/s · seconds that each stays."
    ),
    kind="configure",
    minutes=9,
    difficulty=3,
    reference=BEST,
    value=Dials(),
    comment="(max_num_seqs, max_num_batched_tokens)",
    cases=_two_days,
    observe=_observed,
    result=Figures(("held inside the promise",), ("/s",)),
    accept=_accept,
    wrong=(
        Wrong(
            "largest-budget",
            (256, 8192),
            "With such a budget a step may take in several prompts at once, and is over "
            "100 ms long. Everybody who is reading waits for it. Which budget keeps a *full* "
            "step inside 30 ms?",
            also=lambda dials: dials[1] > 1_100 and dials[0] >= 90,
        ),
        Wrong(
            "smallest-budget",
            (256, 256),
            "No step is long now, but so few prompt tokens fit into each that the prompts do "
            "not get through: at 15 requests/s 17,000 prompt tokens come each second.",
            also=lambda dials: dials[1] < 600 and dials[0] >= 90,
        ),
        Wrong(
            "too-few-seats",
            (40, 768),
            "The seats are full while the card could do more: the queue grows, and the first "
            "token is late. How many requests are inside at 18 a second, by Little's law, if "
            "each stays for 211 tokens of up to 30 ms?",
            also=lambda dials: dials[0] < 90 and dials[1] > 500,
        ),
        Wrong(
            "everything-small",
            (24, 256),
            "Both dials choke the server: hardly anybody is seated, and who is has a prompt "
            "that trickles in.",
            also=lambda dials: dials[0] < 90 and dials[1] <= 500,
        ),
    ),
    hints=(
        "Which of the two limits breaks first with 256 seats and 8,192 tokens? Look at the "
        "panels of `explore.ramp` at 15 requests/s.",
        "The budget bounds how long a step can be: find one whose full step stays just under "
        "30 ms. Then give it enough seats.",
        "Seats: 128 are enough, more do no harm here. The budget lies between 512 and 1,024.",
    ),
    explanation=(
        "The promise on the tokens sets the budget, Little's law the seats. A fifth more "
        "load on the same card, for two numbers: but only with *this* promise and *these* "
        "prompts. Ask the engine again when either changes."
    ),
)
