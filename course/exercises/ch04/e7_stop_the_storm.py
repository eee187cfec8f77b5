"""Exercise 4.7, Stop the storm: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import value_exercise
from course.exercises.ch04.server import try_seats
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import Figures, Whole

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


EXERCISE = value_exercise(
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
)
