"""Exercise 10.5, What a full machine makes: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, closed_loop_work


def full_tokens_per_s(step_s: float, prompt_s: float, users: int, output_tokens: int) -> float:
    """Output tokens/s of a machine in which `users` sequences always run.

    step_s: seconds of a step in which all decode; prompt_s: seconds by which a new request's
    prompt makes one step longer, for everybody; output_tokens: length of each answer. A user sends
    the next request as soon as the last is answered.
    """
    token_s = step_s + users / output_tokens * prompt_s
    return users / token_s


def prompts_for_free(step_s, prompt_s, users, output_tokens):
    """Prompts cost nothing."""
    return users / step_s


def own_prompt_only(step_s, prompt_s, users, output_tokens):
    """Each answer waits for its own prompt and no other."""
    answer_s = output_tokens * step_s + prompt_s
    return users * output_tokens / answer_s


def a_prompt_in_every_step(step_s, prompt_s, users, output_tokens):
    """Every step carries a prompt."""
    return users / (step_s + prompt_s)


def one_at_a_time(step_s, prompt_s, users, output_tokens):
    """As if users took turns."""
    answer_s = output_tokens * step_s + prompt_s
    return output_tokens / answer_s


def _full_machines(rng: np.random.Generator) -> list[dict[str, Any]]:
    cases = []
    for users, output_tokens in ((32, 128), (8, 200), (64, 256), (16, 64), (48, 100)):
        step_s = round(float(rng.uniform(0.008, 0.12)), 4)
        prompt_s = round(float(step_s * rng.uniform(1.0, 4.0)), 4)
        cases.append(
            {
                "step_s": step_s,
                "prompt_s": prompt_s,
                "users": users,
                "output_tokens": output_tokens,
            }
        )
    return cases


def _full_machine_in_the_engine(_: Any, case: Any) -> str:
    """Tokens/s of a closed loop of so many users without a pause."""
    prompt_tokens, users = 500, case["users"]
    work = closed_loop_work(20 * users, Fixed(prompt_tokens), Fixed(case["output_tokens"]), seed=0)
    cost = LinearStepCost(
        fixed_s=case["step_s"], per_prefill_token_s=case["prompt_s"] / prompt_tokens
    )
    config = EngineConfig(max_num_seqs=users, max_num_batched_tokens=2048)
    run = simulate_closed(users, 0.0, work, cost, config, progress=False)
    tokens_per_s = float(run.emitted_tokens.sum() / run.end_s)
    return f"{users} users in the engine: {plain(tokens_per_s, 3)} tokens/s"


EXERCISE = function_exercise(
    "10.5",
    title="What a full machine makes",
    question=(
        "From measured step times, predict the throughput of a closed loop before you run it: "
        "`users` sequences always run, each answer has output_tokens tokens, and each new "
        "request's prompt makes one step longer for everybody. The result below the check has "
        "the engine's own twenty rounds beside it, start and end included."
    ),
    kind="predict",
    minutes=6,
    difficulty=2,
    reference=full_tokens_per_s,
    cases=_full_machines,
    result=Number("tokens/s", rel=0.002),
    evidence=_full_machine_in_the_engine,
    wrong={
        prompts_for_free: (
            "You count steps in which all decode. Somebody's prompt is computed in some of "
            "them, and those last longer for all: prompt_s must be in it."
        ),
        own_prompt_only: (
            "Each answer waits for its own prompt, you say. It also waits for the prompts of "
            "all who begin while it is being written: as many as there are users."
        ),
        a_prompt_in_every_step: (
            "A prompt comes in only when a seat changes hands: each does so once in "
            "output_tokens steps, all of them users / output_tokens times a step."
        ),
        one_at_a_time: (
            "That is one user's stream. All of them get a token from the same step: that is "
            "what batching is for."
        ),
    },
    hints=(
        "In how many of its steps does a seat get a new request? And all seats together?",
        "A mean step lasts step_s + users / output_tokens · prompt_s.",
        "Every mean step makes one token for each user.",
    ),
    explanation=(
        "tokens/s = batch / (step + batch/output · prompt): the formula behind the curves of "
        "lesson 03, now with a machine's own constants."
    ),
)
