"""Exercise 4.3, A budget between two promises: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import value_exercise
from course.exercises.ch04.server import try_budget
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import Figures, Whole

BUDGET_WANTED = 400


GAP_MS = 20.0


DOCUMENT_S = 1.0


def _seeds(rng: np.random.Generator) -> list[dict[str, int]]:
    return [{"seed": int(seed)} for seed in rng.integers(1, 10_000, size=3)]


def _tried(budget: Any, case: Any) -> tuple[float, ...]:
    if not 1 <= budget <= 1_000_000:
        raise Unacceptable(
            f"Your answer is {budget}; give a budget from 1 to 1,000,000 tokens a step."
        )
    return tuple(try_budget(int(budget), case["seed"]).values())


def _both_promises(seen: Any, _: Any, __: Any) -> str | None:
    longest_ms, p99_ms, document_s = seen
    if longest_ms > GAP_MS:
        return (
            f"Somebody's stream stood still for {longest_ms:g} ms, and {GAP_MS:g} ms are promised "
            f"(P99 of the gaps: {p99_ms:g} ms)."
        )
    if document_s > DOCUMENT_S:
        return (
            f"A document waited {document_s:g} s for its first token, and {DOCUMENT_S:g} s is "
            "promised."
        )
    return None


def _at_2048(_: Any, case: Any) -> str:
    other = try_budget(2048, case["seed"])
    return (
        f"with 2,048 tokens on the same traffic: longest gap {other['longest gap, ms']:g} ms, "
        f"slowest document {other['slowest document, s']:g} s"
    )


EXERCISE = value_exercise(
    "4.3",
    title="A budget between two promises",
    question=(
        "Chats at 20 a second on an H100, and every 12 s a document of 20,000 tokens (256 "
        "seats, chunked prefill). You promise two things: *nobody's stream stands still for "
        "more than 20 ms*, and *every document has its first token within 1 s*. Choose "
        "`max_num_batched_tokens`. It is judged on traffic that you have not seen; "
        "`try_budget(2048)` shows what a number does."
    ),
    kind="configure",
    minutes=7,
    difficulty=1,
    reference=BUDGET_WANTED,
    answer_name="budget_tokens",
    comment="max_num_batched_tokens, a whole number",
    value=Whole("tokens"),
    cases=_seeds,
    observe=_tried,
    result=Figures(
        ("longest gap", "P99 of the gaps", "slowest document"),
        ("ms", "ms", "s"),
        noun="no gap over 20 ms and no document over 1 s",
        within="both promises kept",
    ),
    accept=_both_promises,
    evidence=_at_2048,
    describe=lambda case: "1,200 chats with documents among them, that you have not seen",
    time_limit_s=20.0,
    wrong=(
        Wrong(
            "whole-prompts-in-one-step",
            20_480,
            "Now a whole document goes into one step, and everybody's stream stands still for "
            "it. P99 of the gaps does not show it: it has even *fallen*, because there are "
            "fewer such steps, each much longer. A promise about the longest gap needs the "
            "longest gap.",
            also=lambda tokens: tokens > 4096,
        ),
        Wrong(
            "steps-too-long",
            2048,
            "The steps are too long for your promise. One that holds the last 2,048 tokens of "
            "a document takes 76 ms on this card, one with 1,024 some 40 ms, and everybody "
            "who is reading waits for it. How many tokens go into 20 ms?",
            also=lambda tokens: 560 < tokens <= 4096,
        ),
        Wrong(
            "percentile-for-the-longest",
            512,
            "99 of 100 gaps stay within 20 ms: that is the P99 of the gaps. You promised it of "
            "*every* gap, and a step with the end of a document in it takes 22 ms: its tokens "
            "look back at 20,000 others.",
            also=lambda tokens: 440 < tokens <= 560,
        ),
        Wrong(
            "smaller-is-always-better",
            128,
            "The streams are smooth, and the documents pay: every step reads all the weights, "
            "and at this size it reads them for few prompt tokens. Take as much as the promise "
            "about gaps allows.",
            also=lambda tokens: 64 < tokens <= 370,
        ),
        Wrong(
            "less-than-who-decodes",
            32,
            "Some 40 sequences decode at a time, and each needs one token of the budget. "
            "Below that number prompts get nearly nothing and the queue never ends (vLLM "
            "itself refuses a budget below max_num_seqs).",
            also=lambda tokens: tokens <= 64,
        ),
    ),
    hints=(
        "The longest step holds the last piece of a document: about 8 ms, and 1/36 ms for "
        "each token of a budget of this size. Which budget takes 20 ms? Stay a little below.",
        "Smaller budgets make a document's prefill longer. Between which two numbers are both "
        "promises kept? Try 256, 320, 384, 448 and 512 with try_budget, on several seeds.",
        "400 leaves some room on both sides.",
    ),
    explanation=(
        "The chunk is a dial with a price on each side: gaps grow with it, the documents' TTFT "
        "falls with it. Where two promises leave no budget between them, only another remedy "
        "helps: a cap for long prompts, or another card."
    ),
)
