# mypy: allow-any-generics
"""Exercises 4.3 to 4.5: the budget of a step, and two pieces of printed advice about it.

The references and the wrong answers are copied into a notebook as they stand, so they use nothing
from outside but `math` and `np`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import choice_exercise, function_exercise, value_exercise
from course.exercises.ch04_server import try_budget
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import Figures, Whole
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.scenes.long_prompts import server
from course.serving.workload import Workload

# --- 4.3 a budget inside two promises -----------------------------------------------------------

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


# --- 4.4 the printed rule -----------------------------------------------------------------------

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


def whole_answers_reserved(
    answer_tokens_left: np.ndarray,
    waiting_prompt_tokens: np.ndarray,
    max_num_seqs: int,
    max_num_batched_tokens: int,
) -> int:
    """The budget has to hold the answers: the printed rule's thought."""
    seats = max_num_seqs - len(answer_tokens_left)
    room = max_num_batched_tokens - answer_tokens_left.sum()
    return int(max(0, min(room, waiting_prompt_tokens[:seats].sum())))


def decode_is_free(
    answer_tokens_left: np.ndarray,
    waiting_prompt_tokens: np.ndarray,
    max_num_seqs: int,
    max_num_batched_tokens: int,
) -> int:
    """The whole budget for prompts."""
    seats = max_num_seqs - len(answer_tokens_left)
    return int(max(0, min(max_num_batched_tokens, waiting_prompt_tokens[:seats].sum())))


def seats_forgotten(
    answer_tokens_left: np.ndarray,
    waiting_prompt_tokens: np.ndarray,
    max_num_seqs: int,
    max_num_batched_tokens: int,
) -> int:
    """Whoever waits may come in."""
    room = max_num_batched_tokens - len(answer_tokens_left)
    return int(max(0, min(room, waiting_prompt_tokens.sum())))


def whole_prompts_only(
    answer_tokens_left: np.ndarray,
    waiting_prompt_tokens: np.ndarray,
    max_num_seqs: int,
    max_num_batched_tokens: int,
) -> int:
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


STEP_EXERCISES = (
    value_exercise(
        "4.3",
        title="A budget between two promises",
        question=(
            "Chats at 20 a second on an H100, and every 12 s a document of 20,000 tokens (256 "
            "seats, chunked prefill). You promise two things: *nobody's stream stands still for "
            "more than 20 ms*, and *every document has its first token within 1 s*. Choose "
            "`max_num_batched_tokens`. It is judged on traffic that you have not seen; "
            "`try_budget(2048)` shows what a number does."
        ),
        track="core",
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
    ),
    function_exercise(
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
        track="core",
        kind="audit",
        minutes=8,
        difficulty=2,
        reference=prompt_tokens_in_step,
        cases=_moments,
        result=Whole("tokens"),
        evidence=_second_step,
        wrong=(
            Wrong(
                "answers-held-in-the-budget",
                whole_answers_reserved,
                "You reserve room for what is left of each answer: the printed rule's mistake. "
                "The budget is that of *one step*, and in one step a decoding sequence gets "
                "exactly one token, however long its answer will be.",
            ),
            Wrong(
                "decode-is-free",
                decode_is_free,
                "You give the whole budget to the prompts. Each decoding sequence takes one token "
                "of it, and decode is served first.",
            ),
            Wrong(
                "seats-forgotten",
                seats_forgotten,
                "You let in everybody who waits. A prompt needs a seat too: only max_num_seqs − "
                "(those decoding) can join.",
            ),
            Wrong(
                "whole-prompts-only",
                whole_prompts_only,
                "You leave a prompt out that does not fit whole. With chunked prefill it is cut: "
                "the step takes as much of it as there is room for.",
            ),
        ),
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
    ),
    choice_exercise(
        "4.5",
        title="[audit] Recompute, so that prefill comes first",
        question=(
            "Advice found in print: “set the preemption mode to *recompute* so that prefill comes "
            "first”. A team whose first tokens come late on a card with plenty of free KV memory "
            "wants to try it. What happens to their TTFT?"
        ),
        track="stretch",
        minutes=4,
        difficulty=2,
        options={
            "a": "It falls: prefill now goes before decode in every step.",
            "b": "Nothing: there is no preemption while memory is free, and the mode only says "
            "what becomes of a preempted sequence's cache.",
            "c": "It rises: all sequences recompute their prompts now and then.",
            "d": "It falls, since preempting a running answer makes a seat for a waiting prompt.",
        },
        right="b",
        wrong={
            "a": (
                "mode-taken-for-a-priority",
                "The mode orders nothing. Whether prompts or answers go first is decided by the "
                "scheduler (chunked or whole prefill, the budget). After a preemption the "
                "recompute is prefill work that comes *on top*.",
            ),
            "c": (
                "recompute-without-preemption",
                "Nobody recomputes without having been preempted, and nobody is preempted while "
                "blocks are free.",
            ),
            "d": (
                "preemption-taken-for-a-remedy",
                "Preemption comes when memory is full, not when prompts wait, and the freed "
                "blocks go to the answers that go on. The one thrown out waits at the head of the "
                "queue, before every new prompt.",
            ),
        },
        hints=(
            "When does a server preempt at all? Open `explore.kv_memory()` at a load of 60 %: how "
            "many preemptions are there?",
            "“Recompute” and “swap” are two ways to get a lost cache back: compute it again, or "
            "fetch it from the CPU's memory.",
        ),
        explanation=(
            "With memory free, the run is the same to the last token. With memory full, recompute "
            "is what makes the storm of exercise 4.7: a fifth of all tokens or more computed "
            "twice. What moves TTFT here is the budget, the number of seats, or the order of the "
            "queue."
        ),
    ),
)
