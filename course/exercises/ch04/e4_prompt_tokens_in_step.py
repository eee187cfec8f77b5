"""Exercise 4.4, [audit] 1.2 × seqs × mean output: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Whole
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.scenes.long_prompts import server
from course.serving.workload import Workload

RULE_TOKENS = 26_112  # 1.2 * 128 seats * 170 tokens of answer


def prompt_tokens_in_step(
    answer_tokens_left: np.ndarray,
    waiting_prompt_tokens: np.ndarray,
    max_num_seqs: int,
    max_num_batched_tokens: int,
) -> int:
    """Prompt tokens that the next step computes, beside the answers that are being written.

    answer_tokens_left: one entry for each sequence that decodes now: how much of its answer is
    still to come. waiting_prompt_tokens: of the requests in the queue, the first one first. Prompts
    may be cut into chunks; KV memory is plenty.
    """
    decoding = len(answer_tokens_left)  # one token each, however much is still to come
    seats = max_num_seqs - decoding
    room = max_num_batched_tokens - decoding
    return int(max(0, min(room, waiting_prompt_tokens[:seats].sum())))


def answers_held_in_the_budget(
    answer_tokens_left, waiting_prompt_tokens, max_num_seqs, max_num_batched_tokens
):
    """The budget has to hold the answers: the printed rule's thought."""
    seats = max_num_seqs - len(answer_tokens_left)
    room = max_num_batched_tokens - answer_tokens_left.sum()
    return int(max(0, min(room, waiting_prompt_tokens[:seats].sum())))


def decode_is_free(answer_tokens_left, waiting_prompt_tokens, max_num_seqs, max_num_batched_tokens):
    """The whole budget for prompts."""
    seats = max_num_seqs - len(answer_tokens_left)
    return int(max(0, min(max_num_batched_tokens, waiting_prompt_tokens[:seats].sum())))


def seats_forgotten(
    answer_tokens_left, waiting_prompt_tokens, max_num_seqs, max_num_batched_tokens
):
    """Whoever waits may come in."""
    room = max_num_batched_tokens - len(answer_tokens_left)
    return int(max(0, min(room, waiting_prompt_tokens.sum())))


def whole_prompts_only(
    answer_tokens_left, waiting_prompt_tokens, max_num_seqs, max_num_batched_tokens
):
    """A prompt that does not fit into the rest waits for the next step."""
    seats = max_num_seqs - len(answer_tokens_left)
    totals = np.cumsum(waiting_prompt_tokens[:seats])
    fitting = totals[totals <= max_num_batched_tokens - len(answer_tokens_left)]
    return int(fitting[-1]) if fitting.size else 0


def _moments(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Moments of a server: few or many decode, few or many wait, the rule's budget among others."""
    cases = []
    for seats, decoding, waiting, factor in (
        (64, 40, 30, None), (128, 120, 20, None), (32, 8, 60, 1.2), (16, 16, 5, None),
        (96, 50, 4, 1.2), (48, 10, 12, None),
    ):  # fmt: skip
        left = np.ceil(rng.lognormal(4.6, 0.8, size=decoding)).astype(np.int64)
        prompts = np.ceil(rng.lognormal(5.6, 0.9, size=waiting)).astype(np.int64)
        budget = int(rng.choice([512, 1024, 2048]))
        if factor is not None:
            budget = int(factor * seats * 150)
        cases.append(
            {
                "answer_tokens_left": left,
                "waiting_prompt_tokens": prompts,
                "max_num_seqs": seats,
                "max_num_batched_tokens": budget,
            }
        )
    cases.append(
        {
            "answer_tokens_left": np.ceil(rng.lognormal(4.6, 0.8, size=40)).astype(np.int64),
            "waiting_prompt_tokens": np.array([20_000]),
            "max_num_seqs": 128,
            "max_num_batched_tokens": RULE_TOKENS,
        }
    )
    return cases


def moment_in_engine(case: Any) -> Run:
    """Return an engine run whose second step is the moment of a case.

    In the first step, those who are to decode get their prompts of one token.
    """
    left, prompts = case["answer_tokens_left"], case["waiting_prompt_tokens"]
    work = Workload(
        np.concatenate([np.zeros(len(left)), np.full(len(prompts), 1e-6)]),
        np.concatenate([np.ones(len(left), dtype=np.int64), prompts]),
        np.concatenate([left + 1, np.ones(len(prompts), dtype=np.int64)]),
    )
    config = EngineConfig(
        max_num_seqs=case["max_num_seqs"], max_num_batched_tokens=case["max_num_batched_tokens"]
    )
    return simulate(work, server(), config, progress=False)


def _second_step(_: Any, case: Any) -> str:
    run = moment_in_engine(case)
    return (
        f"the engine's step: {int(run.step_decode_seqs[1])} tokens of decode and "
        f"{int(run.step_prefill_tokens[1]):,} of prompts, of {case['max_num_batched_tokens']:,}"
    )


EXERCISE = function_exercise(
    "4.4",
    title="[audit] 1.2 × seqs × mean output",
    question=(
        "Advice found in print: “set max_num_batched_tokens to 1.2 × max_num_seqs × mean "
        "output length”. For 128 seats and answers of 170 tokens that is 26,112. Is the budget "
        "there to hold the answers? Work out what one step does with it: how many *prompt* "
        "tokens does the next step compute beside the sequences that decode? Your answer is "
        "compared with the engine's step. Then let it judge the rule: "
        "`prompt_tokens_in_step(np.full(40, 170), np.array([20_000]), 128, 26_112)` asks what "
        "happens when 40 decode and a document waits."
    ),
    kind="audit",
    minutes=8,
    difficulty=2,
    reference=prompt_tokens_in_step,
    cases=_moments,
    result=Whole("tokens"),
    evidence=_second_step,
    wrong={
        answers_held_in_the_budget: (
            "You reserve room for what is left of each answer: the printed rule's mistake. "
            "The budget is that of *one step*, and in one step a decoding sequence gets "
            "exactly one token, however long its answer will be."
        ),
        decode_is_free: (
            "You give the whole budget to the prompts. Each decoding sequence takes one token "
            "of it, and decode is served first."
        ),
        seats_forgotten: (
            "You let in everybody who waits. A prompt needs a seat too: only max_num_seqs − "
            "(those decoding) can join."
        ),
        whole_prompts_only: (
            "You leave a prompt out that does not fit whole. With chunked prefill it is cut: "
            "the step takes as much of it as there is room for."
        ),
    },
    hints=(
        "How many tokens does a decoding sequence compute in one step? Does it matter how much "
        "of its answer is left?",
        "Room for prompts: max_num_batched_tokens − (number decoding). Seats for prompts: "
        "max_num_seqs − (number decoding).",
        "min(room, waiting_prompt_tokens[:seats].sum()), and never below 0.",
    ),
    explanation=(
        "The rule multiplies by the wrong thing: answers lie in KV memory, not in a step's "
        "budget. Asked about the rule's 26,112 tokens, your function says 20,000: the whole "
        "document goes into one step, and everybody's stream stands still for 0.6 s. Set the "
        "budget by the gap that you promise (exercise 4.3), the seats by memory (4.2)."
    ),
)
