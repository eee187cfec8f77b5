"""Exercise 3.7, What a good answer costs: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, closed_loop_work


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


def latency_for_cost(usd_per_gpu_hour, gpus, prefill_s, step_s, seats, output_tokens, attainment):
    """The whole latency of a request, as if the replica were its own for so long."""
    seconds = prefill_s + (output_tokens - 1) * step_s
    return gpus * usd_per_gpu_hour / 3600 * seconds / attainment


def prefill_shared(usd_per_gpu_hour, gpus, prefill_s, step_s, seats, output_tokens, attainment):
    """The prompt divided among the seats like the decode steps."""
    seconds = (prefill_s + (output_tokens - 1) * step_s) / seats
    return gpus * usd_per_gpu_hour / 3600 * seconds / attainment


def one_card_of_the_replica(
    usd_per_gpu_hour, gpus, prefill_s, step_s, seats, output_tokens, attainment
):
    """The price of one card for the time of all."""
    seconds = prefill_s + (output_tokens - 1) * step_s / seats
    return usd_per_gpu_hour / 3600 * seconds / attainment


def late_answers_cost_nothing(
    usd_per_gpu_hour, gpus, prefill_s, step_s, seats, output_tokens, attainment
):
    """The cost of any answer, good or late."""
    seconds = prefill_s + (output_tokens - 1) * step_s / seats
    return gpus * usd_per_gpu_hour / 3600 * seconds


def multiplied_by_attainment(
    usd_per_gpu_hour, gpus, prefill_s, step_s, seats, output_tokens, attainment
):
    """The cost of any answer times the share of the good ones."""
    seconds = prefill_s + (output_tokens - 1) * step_s / seats
    return gpus * usd_per_gpu_hour / 3600 * seconds * attainment


def step_not_shared_and_late_for_nothing(
    usd_per_gpu_hour, gpus, prefill_s, step_s, seats, output_tokens, attainment
):
    """The whole latency of a request, good or late."""
    return gpus * usd_per_gpu_hour / 3600 * (prefill_s + (output_tokens - 1) * step_s)


def a_step_for_every_token(
    usd_per_gpu_hour, gpus, prefill_s, step_s, seats, output_tokens, attainment
):
    """A decode step for the first token too, which the prefill gave."""
    seconds = prefill_s + output_tokens * step_s / seats
    return gpus * usd_per_gpu_hour / 3600 * seconds / attainment


def prompts_cost_nothing(
    usd_per_gpu_hour, gpus, prefill_s, step_s, seats, output_tokens, attainment
):
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


EXERCISE = function_exercise(
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
    kind="compute",
    minutes=6,
    difficulty=2,
    reference=usd_per_success,
    cases=_full_servers,
    result=Number("USD"),
    evidence=_full_in_engine,
    wrong={
        latency_for_cost: (
            "You bill the whole time for which the request was inside, as if the replica had "
            "been its own. In each decode step all seats get a token: one pays a share of "
            "1/seats of it. Latency is not cost; that is what batching is for."
        ),
        prefill_shared: (
            "You share the prompt among the seats too. While a prompt is computed the others "
            "stand still and get nothing from it: it is paid in full by its own request."
        ),
        one_card_of_the_replica: (
            "You pay one card. The replica needs all `gpus` of them for as long as it runs, "
            "and the price is for one card and hour."
        ),
        late_answers_cost_nothing: (
            "That is the cost of any answer. The late and failed ones used the cards as well, "
            "and only the successes are there to pay: divide by the attainment."
        ),
        multiplied_by_attainment: (
            "You multiply by the attainment, so that more failures make a good answer "
            "cheaper. All answers are paid and fewer of them count: divide by it."
        ),
        step_not_shared_and_late_for_nothing: (
            "Two things. A decode step serves all seats at once, so an answer pays 1/seats "
            "of each. And the late answers are paid as well: divide by the attainment."
        ),
        a_step_for_every_token: (
            "You charge a decode step for every token. The first token comes out of the "
            "prefill: an answer of n tokens needs n − 1 decode steps."
        ),
        prompts_cost_nothing: (
            "seats / step_s is the speed of pure decoding. A full replica also computes a "
            "prompt for every answer, and decodes nothing meanwhile."
        ),
    },
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
)
