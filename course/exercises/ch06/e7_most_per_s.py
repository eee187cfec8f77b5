"""Exercise 6.7, The knee moves: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, Lognormal, closed_loop_work


def most_per_s(
    prompt_tokens: float,
    output_tokens: float,
    seats: int,
    fixed_s: float,
    sequence_s: float,
    prompt_token_s: float,
) -> float:
    """Requests/s that a server gets through with all seats always taken.

    prompt_tokens, output_tokens: means a request; seats: requests that run at once. A step takes
    fixed_s, and sequence_s for each sequence that decodes in it, and prompt_token_s for each token
    of a prompt. A request is in output_tokens steps: its prompt in the first, which gives the first
    token, and then it decodes one token a step.
    """
    own_s = prompt_tokens * prompt_token_s + (output_tokens - 1) * sequence_s
    shared_s = output_tokens * fixed_s / seats
    return 1 / (own_s + shared_s)


def prompts_for_nothing(prompt_tokens, output_tokens, seats, fixed_s, sequence_s, prompt_token_s):
    """Prompts for nothing."""
    return 1 / ((output_tokens - 1) * sequence_s + output_tokens * fixed_s / seats)


def prompts_shared(prompt_tokens, output_tokens, seats, fixed_s, sequence_s, prompt_token_s):
    """Everybody in a batch with one prompt."""
    stay_s = prompt_tokens * prompt_token_s + output_tokens * fixed_s
    return 1 / (stay_s / seats + (output_tokens - 1) * sequence_s)


def nothing_shared(prompt_tokens, output_tokens, seats, fixed_s, sequence_s, prompt_token_s):
    """The fixed part for each one."""
    own_s = prompt_tokens * prompt_token_s + (output_tokens - 1) * sequence_s
    return 1 / (own_s + output_tokens * fixed_s)


def a_token_is_a_token(prompt_tokens, output_tokens, seats, fixed_s, sequence_s, prompt_token_s):
    """Prompt tokens at the price of answers' tokens."""
    own_s = (prompt_tokens + output_tokens - 1) * sequence_s
    return 1 / (own_s + output_tokens * fixed_s / seats)


def only_ones_own_prompt(prompt_tokens, output_tokens, seats, fixed_s, sequence_s, prompt_token_s):
    """All seats' requests, over the time of one that nobody joins."""
    stay_s = prompt_tokens * prompt_token_s + output_tokens * (fixed_s + seats * sequence_s)
    return seats / stay_s


class LengthsCase(dict[str, Any]):
    """A case's inputs, and behind them what the requests are."""

    words: str


_KINDS = (
    ("a brochure's short prompts", 30, 256),
    ("a chat", 1155, 211),
    ("documents", 6000, 280),
    ("labels: long prompts, hardly an answer", 2000, 6),
)


def _kinds(rng: np.random.Generator) -> list[LengthsCase]:
    """One server, four kinds of requests."""
    seats = int(rng.choice([32, 48, 64, 96]))
    server = {
        "fixed_s": round(float(rng.uniform(0.005, 0.009)), 4),
        "sequence_s": round(float(rng.uniform(5e-5, 1.5e-4)), 7),
        "prompt_token_s": round(float(rng.uniform(2.2e-5, 3.2e-5)), 8),
    }
    cases = []
    for words, prompt, output in _KINDS:
        lengths = {
            "prompt_tokens": float(round(prompt * rng.uniform(0.9, 1.1))),
            "output_tokens": float(round(output * rng.uniform(0.9, 1.1))),
        }
        case = LengthsCase(**lengths, seats=seats, **server)
        case.words = words
        cases.append(case)
    return cases


def _describe(case: Any) -> str:
    return (
        f"{case.words}: {case['prompt_tokens']:,.0f} tokens in, {case['output_tokens']:,.0f} out, "
        f"{case['seats']} seats"
    )


def _full_in_engine(_: Any, case: Any) -> str:
    """The same server with every seat always taken; prompts scatter, answers too where long."""
    seats = case["seats"]
    cost = LinearStepCost(
        fixed_s=case["fixed_s"],
        per_prefill_token_s=case["prompt_token_s"],
        per_decode_seq_s=case["sequence_s"],
    )
    long = case["output_tokens"] > 20
    outputs = Lognormal.of_mean(case["output_tokens"], 0.5) if long else Fixed(6)
    work = closed_loop_work(
        12 * seats, Lognormal.of_mean(case["prompt_tokens"], 0.5), outputs, seed=67
    )
    run = simulate_closed(seats, 0.0, work, cost, EngineConfig(seats, 65_536), progress=False)
    seen = run.summary(window=run.steady_state())
    per_s, tokens_per_s = seen.requests_per_s, seen.output_tokens_per_s
    return (
        f"the engine, its lengths drawn at random, gets through {plain(per_s or 0.0, 3)} "
        f"requests/s and makes {plain(tokens_per_s or 0.0, 3)} output tokens/s"
    )


EXERCISE = function_exercise(
    "6.7",
    title="The knee moves",
    question=(
        "One server, four kinds of requests. Predict how many requests/s it gets through at "
        "the most with each. Think in server seconds: what does one request cost that it "
        "shares with nobody, and what does it share with everybody in its steps? The engine "
        "then runs each kind on the same server, with lengths that scatter."
    ),
    kind="predict",
    minutes=7,
    difficulty=3,
    reference=most_per_s,
    cases=_kinds,
    result=Number("/s", noun="a rate in requests/s"),
    evidence=_full_in_engine,
    describe=_describe,
    wrong={
        prompts_for_nothing: (
            "Yours does not depend on the prompt. That is the brochure's mistake: with short "
            "prompts it hardly shows."
        ),
        prompts_shared: (
            "You divide the prompt's time by the seats too. Each request brings a prompt of "
            "its own: no seat shares it with another."
        ),
        nothing_shared: (
            "You let each request pay the fixed part of its steps alone. With all seats taken "
            "as many share it as there are seats."
        ),
        a_token_is_a_token: (
            "You price a prompt's token like an answer's. They have prices of their own: "
            "prompt_token_s and sequence_s."
        ),
        only_ones_own_prompt: (
            "You divide the seats by one request's stay, and let that stay contain only its "
            "*own* prompt. Those of the others are computed in its steps too."
        ),
    },
    hints=(
        "Count server seconds, not a user's seconds: what does the server spend on one request?",
        "Its own: prompt_tokens · prompt_token_s + (output_tokens − 1) · sequence_s. Shared: "
        "output_tokens steps' fixed parts, by as many as there are seats.",
        "One over the sum of both.",
    ),
    explanation=(
        "Tokens a second are the same figure times output_tokens, so a server “makes” more "
        "tokens when its prompts are short. Whoever compares two servers compares them with "
        "the same requests, or not at all."
    ),
)
