"""Exercise 4.5, [audit] Recompute, so that prefill comes first."""

from __future__ import annotations

from course.exercises.build import choice_exercise

EXERCISE = choice_exercise(
    "4.5",
    title="[audit] Recompute, so that prefill comes first",
    question=(
        "Advice found in print: “set the preemption mode to *recompute* so that prefill comes "
        "first”. A team whose first tokens come late on a card with plenty of free KV memory "
        "wants to try it. What happens to their TTFT?"
    ),
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
)
