# mypy: allow-any-generics
"""Exercises 3.4 and 3.7: the cheapest batch that keeps a promise, and what a good answer costs.

The references and the wrong answers are ordinary functions or numbers; each is copied into a
notebook as it stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from course.exercises.build import function_exercise, value_exercise
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import Figures, Number, Whole, plain
from course.serving.engine import EngineConfig, simulate_closed
from course.serving.pricing import LinearStepCost, RooflineStepCost
from course.serving.workload import Fixed, Lognormal, closed_loop_work

# --- 3.4 the cheapest batch that keeps a promise ------------------------------------------------

PROMISE_S = 0.020
USD_PER_HOUR = 3.0
BEST_SEATS = 72
_DEARER = 1.1  # how much more than the best number's tokens an answer's may cost
_MOST_SEATS = 2_000


@lru_cache(maxsize=1)
def server() -> RooflineStepCost:
    """Return the server of exercise 3.4."""
    return RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")


@lru_cache(maxsize=256)
def served(seats: int, seed: int) -> tuple[float, float]:
    """Return P95 TPOT (s) and USD a million output tokens, with every seat always taken.

    >>> p95_s, usd = served(8, seed=1)
    >>> p95_s < PROMISE_S, usd > 0.5
    (True, True)
    """
    cost = server()
    work = closed_loop_work(
        max(600, 8 * seats), Lognormal.of_mean(1200, 0.5), Lognormal.of_mean(300, 0.5), seed=seed
    )
    config = EngineConfig(
        max_num_seqs=seats,
        max_num_batched_tokens=2048,
        num_kv_blocks=cost.kv_blocks(),
    )
    run = simulate_closed(seats, 0.0, work, cost, config, progress=False)
    seen = run.summary(window=run.steady_state())
    rate_per_s = seen.output_tokens_per_s
    assert rate_per_s is not None
    usd = cost.usd_per_million_output_tokens(USD_PER_HOUR, rate_per_s)
    p95_s = seen.tpot.p95
    assert p95_s is not None
    return p95_s, usd


def _observed_seats(seats: Any, case: Any) -> tuple[float, float]:
    if not 1 <= seats <= _MOST_SEATS:
        raise Unacceptable(f"{seats} seats: give 1 to {_MOST_SEATS:,}.")
    return served(int(seats), case["seed"])


def _two_evenings(rng: np.random.Generator) -> list[dict[str, int]]:
    # the engine's first run in a fresh installation compiles it, which no answer shall pay for
    served(1, 0)
    return [{"seed": int(seed)} for seed in rng.integers(2**31, size=2)]


def _accept_seats(seen: Any, best: Any, case: Any) -> str | None:
    p95_s, usd = seen
    if p95_s > PROMISE_S:
        return (
            f"P95 TPOT is {plain(1e3 * p95_s, 3)} ms, over the promised "
            f"{plain(1e3 * PROMISE_S)} ms."
        )
    if usd > _DEARER * best[1]:
        return (
            f"P95 TPOT is {plain(1e3 * p95_s, 3)} ms and inside the promise, but a million output "
            f"tokens cost {plain(usd, 3)} USD: more seats would keep the promise too, for less."
        )
    return None


# --- 3.7 what a good answer costs ---------------------------------------------------------------


def usd_per_success(
    usd_per_gpu_hour: float,
    gpus: int,
    prefill_s: float,
    step_s: float,
    seats: int,
    output_tokens: int,
    attainment: float,
) -> float:
    """USD that one successful answer costs, on a replica of `gpus` cards that is kept full.

    prefill_s: seconds of the step that computes one prompt (all else stands still) and gives its
    first token; step_s: of a decode step, a token for each of the `seats`; output_tokens: of
    every answer; attainment: share of the answers that keep every promise, above 0.
    """
    seconds = prefill_s + (output_tokens - 1) * step_s / seats
    return gpus * usd_per_gpu_hour / 3600 * seconds / attainment


def alone_on_the_replica(
    usd_per_gpu_hour: float,
    gpus: int,
    prefill_s: float,
    step_s: float,
    seats: int,
    output_tokens: int,
    attainment: float,
) -> float:
    """The whole latency of a request, as if the replica were its own for so long."""
    seconds = prefill_s + (output_tokens - 1) * step_s
    return gpus * usd_per_gpu_hour / 3600 * seconds / attainment


def prefill_shared(
    usd_per_gpu_hour: float,
    gpus: int,
    prefill_s: float,
    step_s: float,
    seats: int,
    output_tokens: int,
    attainment: float,
) -> float:
    """The prompt divided among the seats like the decode steps."""
    seconds = (prefill_s + (output_tokens - 1) * step_s) / seats
    return gpus * usd_per_gpu_hour / 3600 * seconds / attainment


def one_card_paid(
    usd_per_gpu_hour: float,
    gpus: int,
    prefill_s: float,
    step_s: float,
    seats: int,
    output_tokens: int,
    attainment: float,
) -> float:
    """The price of one card for the time of all."""
    seconds = prefill_s + (output_tokens - 1) * step_s / seats
    return usd_per_gpu_hour / 3600 * seconds / attainment


def failures_cost_nothing(
    usd_per_gpu_hour: float,
    gpus: int,
    prefill_s: float,
    step_s: float,
    seats: int,
    output_tokens: int,
    attainment: float,
) -> float:
    """The cost of any answer, good or late."""
    seconds = prefill_s + (output_tokens - 1) * step_s / seats
    return gpus * usd_per_gpu_hour / 3600 * seconds


def good_share_of_the_cost(
    usd_per_gpu_hour: float,
    gpus: int,
    prefill_s: float,
    step_s: float,
    seats: int,
    output_tokens: int,
    attainment: float,
) -> float:
    """The cost of any answer times the share of the good ones."""
    seconds = prefill_s + (output_tokens - 1) * step_s / seats
    return gpus * usd_per_gpu_hour / 3600 * seconds * attainment


def own_replica_and_late_for_nothing(
    usd_per_gpu_hour: float,
    gpus: int,
    prefill_s: float,
    step_s: float,
    seats: int,
    output_tokens: int,
    attainment: float,
) -> float:
    """The whole latency of a request, good or late."""
    return gpus * usd_per_gpu_hour / 3600 * (prefill_s + (output_tokens - 1) * step_s)


def a_step_for_every_token(
    usd_per_gpu_hour: float,
    gpus: int,
    prefill_s: float,
    step_s: float,
    seats: int,
    output_tokens: int,
    attainment: float,
) -> float:
    """A decode step for the first token too, which the prefill gave."""
    seconds = prefill_s + output_tokens * step_s / seats
    return gpus * usd_per_gpu_hour / 3600 * seconds / attainment


def decode_alone_is_paid(
    usd_per_gpu_hour: float,
    gpus: int,
    prefill_s: float,
    step_s: float,
    seats: int,
    output_tokens: int,
    attainment: float,
) -> float:
    """Seats over step, and no prompt anywhere."""
    tokens_per_s = seats / step_s
    return gpus * usd_per_gpu_hour / 3600 * output_tokens / tokens_per_s / attainment


def _full_servers(rng: np.random.Generator) -> list[dict[str, Any]]:
    cases = []
    for gpus, seats, output in ((1, 32, 256), (2, 64, 200), (4, 16, 500), (8, 128, 120)):
        cases.append(
            {
                "usd_per_gpu_hour": round(float(rng.uniform(1.5, 6.0)), 2),
                "gpus": gpus,
                "prefill_s": round(float(rng.uniform(0.02, 0.09)), 3),
                "step_s": round(float(rng.uniform(0.01, 0.03)), 3),
                "seats": seats,
                "output_tokens": output + int(rng.integers(20)),
                "attainment": round(float(rng.uniform(0.6, 0.97)), 2),
            }
        )
    return cases


def _full_in_engine(_: Any, case: Any) -> str:
    """The replica's rate in the engine, prompts first, with every seat always taken."""
    seats, prompt = case["seats"], 1000
    budget = prompt + case["output_tokens"]  # room for one prompt a step, and not for two
    token_s = max(case["prefill_s"] - case["step_s"], 0.0) / prompt
    cost = LinearStepCost(fixed_s=case["step_s"], per_prefill_token_s=token_s)
    config = EngineConfig(
        max_num_seqs=seats, max_num_batched_tokens=budget, enable_chunked_prefill=False
    )
    work = closed_loop_work(20 * seats, Fixed(prompt), Fixed(case["output_tokens"]), seed=0)
    run = simulate_closed(seats, 0.0, work, cost, config, progress=False)
    rate_per_s = len(run) / run.end_s
    usd = case["gpus"] * case["usd_per_gpu_hour"] / 3600 / (rate_per_s * case["attainment"])
    return (
        f"the full engine answers {plain(rate_per_s, 3)} requests/s, of which "
        f"{plain(100 * case['attainment'])} % are good: {plain(usd, 3)} USD for each of these"
    )


MONEY_EXERCISES = (
    value_exercise(
        "3.4",
        title="The cheapest batch that keeps a promise",
        question=(
            "Llama-3.1-8B in bf16 on one H100, at 3 USD an hour. Chats with prompts of 1,200 and "
            "answers of 300 tokens on average; there is always a next one to take a seat that "
            "falls free. You promised a P95 TPOT of at most 20 ms. How many seats "
            "(`max_num_seqs`) make the cheapest tokens without breaking it? Your number is run in "
            "the engine, on two evenings of chats that you have not seen. A million output tokens "
            "may cost up to 10 % more than with our number. Mind that every seat that falls free "
            "brings a new prompt, and that prompt is computed in a step of all the others."
        ),
        track="core",
        kind="configure",
        minutes=8,
        difficulty=2,
        reference=BEST_SEATS,
        value=Whole("seats", noun="a whole number of seats, at least 1"),
        comment="a whole number of seats (max_num_seqs)",
        cases=_two_evenings,
        observe=_observed_seats,
        result=Figures(
            ("P95 TPOT", "a million output tokens"),
            ("s", "USD"),
            noun="P95 TPOT within 20 ms, and tokens as cheap as that allows",
            within="P95 TPOT at most 20 ms; tokens at most 10 % dearer than need be",
        ),
        accept=_accept_seats,
        describe=lambda case: "chats that were not shown, with every seat always taken",
        wrong=(
            Wrong(
                "largest-is-cheapest",
                256,
                "That many make about the cheapest tokens of all, and each reader waits more than "
                "twice as long for them as you promised. The cheapest batch under a promise is "
                "not the largest.",
                also=lambda seats: 210 <= seats <= _MOST_SEATS,
            ),
            Wrong(
                "neighbours-prompts-forgotten",
                176,
                "A pure decode step of so many sequences does take about 20 ms. But whenever a "
                "seat falls free, somebody's prompt of 1,200 tokens is computed in one of your "
                "steps; with 300 tokens an answer that happens in more than every second step.",
                also=lambda seats: 115 < seats < 210,
            ),
            Wrong(
                "mean-for-percentile",
                90,
                "With that many the *mean* TPOT is about 20 ms. The promise is a P95: the readers "
                "who met more prompts than others are to be inside as well.",
                also=lambda seats: 82 <= seats <= 115,
            ),
            Wrong(
                "small-to-be-safe",
                16,
                "The promise is kept with room to spare, and paid for: few sequences share each "
                "reading of the weights. What you do not use of the 20 ms is money.",
                also=lambda seats: 1 <= seats <= 56,
            ),
        ),
        hints=(
            "Try two numbers far apart and read P95 TPOT in the result. It rises nearly in a "
            "straight line with the seats.",
            "The step of a small batch takes about 7 ms; each seat more adds about 0.15 ms to "
            "P95 TPOT, prompts included.",
            "Between 60 and 77.",
        ),
        explanation=(
            "The promise binds long before memory or the ridge. Past it tokens go on getting "
            "cheaper, but ever less: the last half of the seats saves little and costs all of "
            "the promise."
        ),
    ),
    function_exercise(
        "3.7",
        title="What a good answer costs",
        question=(
            "A replica is kept full: prompts are computed one at a time, while everybody else "
            "stands still, and decode steps give a token to each seat. What does one *successful* "
            "answer cost? Ask how many seconds of the replica an answer takes up: its prompt is "
            "computed for it alone, its decode steps are shared by all seats. Late answers take "
            "up as much and are paid for by the good ones. In the result below the engine answers "
            "the first case."
        ),
        track="stretch",
        kind="compute",
        minutes=6,
        difficulty=2,
        reference=usd_per_success,
        cases=_full_servers,
        result=Number("USD"),
        evidence=_full_in_engine,
        wrong=(
            Wrong(
                "latency-for-cost",
                alone_on_the_replica,
                "You bill the whole time for which the request was inside, as if the replica had "
                "been its own. In each decode step all seats get a token: one pays a share of "
                "1/seats of it. Latency is not cost; that is what batching is for.",
            ),
            Wrong(
                "prefill-shared",
                prefill_shared,
                "You share the prompt among the seats too. While a prompt is computed the others "
                "stand still and get nothing from it: it is paid in full by its own request.",
            ),
            Wrong(
                "one-card-of-the-replica",
                one_card_paid,
                "You pay one card. The replica needs all `gpus` of them for as long as it runs, "
                "and the price is for one card and hour.",
            ),
            Wrong(
                "late-answers-cost-nothing",
                failures_cost_nothing,
                "That is the cost of any answer. The late and failed ones used the cards as well, "
                "and only the successes are there to pay: divide by the attainment.",
            ),
            Wrong(
                "multiplied-by-attainment",
                good_share_of_the_cost,
                "You multiply by the attainment, so that more failures make a good answer "
                "cheaper. All answers are paid and fewer of them count: divide by it.",
            ),
            Wrong(
                "step-not-shared-and-late-for-nothing",
                own_replica_and_late_for_nothing,
                "Two things. A decode step serves all seats at once, so an answer pays 1/seats "
                "of each. And the late answers are paid as well: divide by the attainment.",
            ),
            Wrong(
                "a-step-for-every-token",
                a_step_for_every_token,
                "You charge a decode step for every token. The first token comes out of the "
                "prefill: an answer of n tokens needs n − 1 decode steps.",
            ),
            Wrong(
                "prompts-cost-nothing",
                decode_alone_is_paid,
                "seats / step_s is the speed of pure decoding. A full replica also computes a "
                "prompt for every answer, and decodes nothing meanwhile.",
            ),
        ),
        hints=(
            "In the time in which each seat finishes one answer, how many prompts are computed, "
            "and how many decode steps run?",
            "`seats` prompts and output_tokens − 1 steps: `seats` answers in "
            "seats · prefill_s + (output_tokens − 1) · step_s seconds.",
            "Seconds an answer: prefill_s + (output_tokens − 1) · step_s / seats. Times the price "
            "of all cards a second, over the attainment.",
        ),
        explanation=(
            "More seats make only the decode part cheaper; what remains is the prompt. And at an "
            "attainment of a half every good answer costs double, however cheap the tokens were."
        ),
    ),
)

__all__ = ["MONEY_EXERCISES"]
