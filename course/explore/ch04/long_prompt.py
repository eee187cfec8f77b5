"""The long-prompt explorer: which documents meet which chats, what it says; the engine decides."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from course.figures.ch04.long_prompt import LongPrompt, LongPromptPicture, Outcome, Window
from course.serving.engine import LengthRun, Run, ServiceRun
from course.serving.scenes.long_prompts import (
    EVERY_S,
    OWN_QUEUE,
    REMEDIES,
    SHORTEST_FIRST,
    SHORTEST_LIMITED,
    Dials,
    Treated,
    chats_and_documents,
    served,
    treat,
)
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, stops
from course.words import percent, rounded, seconds

# The second group: by then the chats are past the empty start.
SHOWN_GROUP: Final = 1
_BEFORE_S: Final = 1.5


@dataclass(frozen=True)
class LongPromptParameters:
    """The chats, the documents that come between them, and how the queue is guarded."""

    remedy: str = choice(
        REMEDIES[0], list(REMEDIES), label="Drawn in steps",
        help="Which remedy the timelines show; the bars show all five",
    )  # fmt: skip
    documents: int = count(
        3, 1, 6, label="Documents", help="So many come together, every 12 seconds",
    )  # fmt: skip
    document_tokens: int = stops(
        20_000, (5_000, 10_000, 20_000, 30_000, 40_000), label="Tokens of a document",
        help="The prompt of each document; the answer has 300 tokens",
    )  # fmt: skip
    chat_rate_per_s: float = slider(
        20.0, 5.0, 40.0, 1.0, label="Chats", unit="requests/s",
        help="Prompts of about 300 tokens, answers of about 170",
    )  # fmt: skip
    chunk_tokens: int = stops(
        512, (128, 256, 512, 1024, 2048), label="Chunk cap for long prompts", unit="tokens",
        help="In a queue of its own: so much of a long prompt in one step, "
        "as vLLM's long_prefill_token_threshold",
    )  # fmt: skip
    at_once: int | None = choice(
        1, {"1": 1, "2": 2, "3": 3, "no limit": None}, label="Long prompts at once",
        help="In a queue of its own: how many documents are prefilled at the same time",
    )  # fmt: skip
    max_wait_s: float = slider(
        1.0, 0.1, 4.0, 0.1, label="Waiting limit", unit="s",
        help="Shortest first with a limit: whoever has waited longer goes before all others",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number draws other chats")


@lru_cache(maxsize=32)
def _ran(
    remedy: str, documents: int, document_tokens: int, rate_per_s: float, seed: int, dials: Dials
) -> Treated:
    work = chats_and_documents(rate_per_s, documents, seed, document_tokens)
    return treat(remedy, work, dials)


def treated(p: LongPromptParameters, remedy: str) -> Treated:
    """Return the run of one remedy; dials that it does not ask for do not make it run again."""
    dials = _dials(p, remedy)
    return _ran(remedy, p.documents, p.document_tokens, p.chat_rate_per_s, p.seed, dials)


def _dials(p: LongPromptParameters, remedy: str) -> Dials:
    """Return the dials that a remedy asks for."""
    if remedy == OWN_QUEUE:
        return Dials(chunk_tokens=p.chunk_tokens, at_once=p.at_once)
    return Dials(max_wait_s=p.max_wait_s) if remedy == SHORTEST_LIMITED else Dials()


def _films(p: LongPromptParameters) -> dict[str, Run | ServiceRun]:
    """Return the runs that are watched: that of the remedy, after that of none."""
    work = chats_and_documents(p.chat_rate_per_s, p.documents, p.seed, p.document_tokens)
    found: dict[str, Run | ServiceRun] = {}
    for remedy in dict.fromkeys((REMEDIES[0], p.remedy)):
        run = served(remedy, work, _dials(p, remedy))
        if isinstance(run, LengthRun):
            found |= {f"{remedy}: the chats' card": run.short}
            found |= {f"{remedy}: the documents' card": run.long}
        else:
            found[remedy] = run
    return found


def _idle(p: LongPromptParameters) -> tuple[str, ...]:
    """Name the dials of the remedies that are not chosen."""
    own_queue = () if p.remedy == OWN_QUEUE else ("chunk_tokens", "at_once")
    return own_queue if p.remedy == SHORTEST_LIMITED else (*own_queue, "max_wait_s")


def _outcome(run: Treated) -> Outcome:
    return Outcome(
        remedy=run.remedy,
        chats_p99_s=float(np.quantile(run.short_ttft_s, 0.99)),
        chats_p50_s=float(np.median(run.short_ttft_s)),
        document_mean_s=float(run.long_ttft_s.mean()),
        document_worst_s=float(run.long_ttft_s.max()),
        itl_p99_s=run.itl_p99_s,
        longest_step_s=float((run.step_end_s - run.step_start_s).max()),
    )


def _window(run: Treated) -> Window:
    """What is drawn: the time around one group of documents."""
    came_s = EVERY_S / 2 + SHOWN_GROUP * EVERY_S
    group = run.is_long & (run.arrival_s == came_s)
    low, high = came_s - _BEFORE_S, came_s + EVERY_S
    steps = slice(*np.searchsorted(run.step_end_s, [low, high]))
    others = slice(*np.searchsorted(run.other_end_s, [low, high]))
    chats = ~run.is_long & (run.arrival_s > low) & (run.arrival_s < high)
    start_s, end_s = run.step_start_s[steps], run.step_end_s[steps]
    return Window(
        step_start_s=start_s - came_s,
        step_end_s=end_s - came_s,
        with_document=_has_document(run, start_s, end_s),
        other_start_s=run.other_start_s[others] - came_s,
        other_end_s=run.other_end_s[others] - came_s,
        document_scheduled_s=np.sort(run.scheduled_s[group]) - came_s,
        document_first_s=np.sort(run.first_token_s[group]) - came_s,
        chat_arrival_s=run.arrival_s[chats] - came_s,
        chat_ttft_s=run.ttft_s[chats],
    )


def _has_document(run: Treated, start_s: np.ndarray, end_s: np.ndarray) -> np.ndarray:
    """Which steps prefill a piece of a document: (steps,) bools; none on a card without any.

    A document that was scheduled gets a piece of every step until its first token.
    """
    held = np.zeros(start_s.size, dtype=bool)
    if run.other_end_s.size:
        return held
    for first, last in zip(
        run.scheduled_s[run.is_long], run.first_token_s[run.is_long], strict=True
    ):
        held |= (start_s >= first) & (end_s <= last)
    return held


def _long_prompt(p: LongPromptParameters) -> LongPrompt:
    runs = [treated(p, remedy) for remedy in REMEDIES]
    chosen = REMEDIES.index(p.remedy)
    return LongPrompt(
        outcomes=tuple(_outcome(run) for run in runs),
        chosen=chosen,
        window=_window(runs[chosen]),
        chat_rate_per_s=p.chat_rate_per_s,
        documents=p.documents,
        document_tokens=p.document_tokens,
        every_s=EVERY_S,
    )


def _group(r: LongPrompt) -> str:
    if r.documents == 1:
        return f"one document of {r.document_tokens:,} tokens"
    return f"{r.documents} documents of {r.document_tokens:,} tokens together"


def _words(r: LongPrompt) -> str:
    here = r.here
    waits = f"a document's first token takes {seconds(here.document_worst_s)} at most"
    return (
        f"{r.chat_rate_per_s:g} chats a second, and every {r.every_s:g} s {_group(r)}; "
        f"{here.remedy}: 99 of 100 chats see their first token within "
        f"{seconds(here.chats_p99_s)}, {waits}, and 99 of 100 gaps between tokens stay within "
        f"{seconds(here.itl_p99_s)}.{_against(r)}"
    )


def _against(r: LongPrompt) -> str:
    """What the remedy changed: against no guard, the limit against the same order without one."""
    here, nobody, alone = r.here, r.outcomes[0], r.outcomes[-1]
    limited = here.remedy == SHORTEST_LIMITED
    before = r.outcomes[REMEDIES.index(SHORTEST_FIRST)] if limited else nobody
    if here is nobody:
        return (
            f" With the documents on a card of their own the chats' figure is "
            f"{seconds(alone.chats_p99_s)}."
        )
    chats = _change(here.chats_p99_s / before.chats_p99_s)
    documents = _change(here.document_worst_s / before.document_worst_s)
    than = "nobody at the queue" if before is nobody else "no limit"
    second = " It takes a second card." if here is alone else ""
    return f" Against {than}: the chats' P99 {chats}, the documents' longest {documents}.{second}"


def _change(ratio: float) -> str:
    """A ratio as people say it."""
    if abs(ratio - 1) < 0.005:
        return "as it was"
    if ratio >= 2:
        return f"{rounded(ratio, 2)} times as long"
    return f"{percent(round(abs(ratio - 1), 2))} {'longer' if ratio > 1 else 'shorter'}"


def _question(r: LongPrompt) -> str:
    alone = r.outcomes[-1]
    if r.here is alone:
        return (
            f"{r.chat_rate_per_s:g} chats a second, and every {r.every_s:g} s {_group(r)}. With "
            f"one card for all, the chats' P99 TTFT is {seconds(r.outcomes[0].chats_p99_s)}. What "
            "is it when the documents have a card of their own?"
        )
    return (
        f"{r.chat_rate_per_s:g} chats a second. Without documents, 99 of 100 see their first token "
        f"within {seconds(alone.chats_p99_s)}. Now every {r.every_s:g} s {_group(r)} come"
        f"{'s' if r.documents == 1 else ''} to the same card ({r.here.remedy}). What is the chats' "
        "P99 TTFT?"
    )


def _tables(r: LongPrompt) -> list[Table]:
    return [asdict(outcome) for outcome in r.outcomes]


long_prompt = Explorer(
    call="explore.long_prompt",
    title="One 20,000-token prompt among chats",
    parameters=LongPromptParameters,
    compute=_long_prompt,
    filmed=_films,
    drawing=LongPromptPicture,
    narrate=_words,
    alt=(
        "Left, three timelines from the moment the documents come. Above, a row a document: how "
        "long it waits and how long its prompt is computed. In the middle every step as a box as "
        "high as it is long; those with a piece of a document stand out. Below, a needle a chat: "
        "its time to first token, by arrival. Right, bars for five remedies: the chats' P99 time "
        "to first token above, the longest of a document below."
    ),
    presets=(
        Preset(
            "Nobody guards the queue",
            "Twenty chats a second on one H100, and every twelve seconds somebody hands in one "
            "document of 20,000 tokens. First come, first served.",
            "Which chats pay for the document: those that are being answered, or those that come "
            "while it is read?",
            {"remedy": REMEDIES[0], "documents": 1},
        ),
        Preset(
            "A queue of its own",
            "Three documents come together. Long prompts wait in their own queue, one at a time is "
            "computed, and not more than 512 tokens of it in a step.",
            "The same tokens are computed as before. Who waits for them now?",
            {"remedy": REMEDIES[1], "documents": 3},
        ),
        Preset(
            "Shortest first",
            "Three documents, and the shortest prompt in the queue goes first.",
            "The chats overtake two of the three documents. Why not the first?",
            {"remedy": REMEDIES[2], "documents": 3},
        ),
        Preset(
            "Shortest first with a limit",
            "Five documents, heavier traffic, and whoever has waited for a second goes before all "
            "others.",
            "The limit protects documents. By how much, and what does it cost the chats?",
            {
                "remedy": REMEDIES[3],
                "documents": 5,
                "chat_rate_per_s": 25.0,
                "max_wait_s": 1.0,
            },
        ),
        Preset(
            "A pool of its own",
            "Three documents go to a second card, and the chats have theirs to themselves.",
            "Everybody gains. What is the price, and when is the second card idle?",
            {"remedy": REMEDIES[4], "documents": 3},
        ),
    ),
    tables=_tables,
    idle=_idle,
    prediction=Prediction(
        question=_question,
        unit="ms",
        answer=lambda r: 1e3 * r.here.chats_p99_s,
        mark=lambda r, guess: (guess / 1e3, float(r.chosen)),
    ),
)
