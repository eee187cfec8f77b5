"""Exercise 10.2, Which of his figures?: reference, wrong answers and judging."""

from __future__ import annotations

from course.exercises.build import choice_exercise

EXERCISE = choice_exercise(
    "10.2",
    title="Which of his figures?",
    question=(
        "A colleague wants to know how long one reader waits for a token of a model with 16 GB "
        "of weights on his laptop. Its memory moves 90 GB/s by the data sheet, its last-level "
        "cache holds 24 MiB. He copied one buffer again and again, after a warm-up, and took "
        "medians, read and written bytes counted: 410 GB/s with 1 MiB, 150 GB/s with 16 MiB, "
        "68 GB/s with 1 GiB, 67 GB/s with 4 GiB. Which time should his report give, at best?"
    ),
    kind="audit",
    minutes=4,
    difficulty=2,
    options={
        "a": "About 39 ms: 16 GB at 410 GB/s, the best that the machine did.",
        "b": "About 92 ms: 16 GB at 174 GB/s, the mean of his four figures.",
        "c": "About 120 ms: at 67 GB/s, and half of that, since decoding only reads.",
        "d": "About 178 ms: 16 GB at the data sheet's 90 GB/s.",
        "e": "About 240 ms: 16 GB at 67 GB/s, as with his largest buffer.",
    },
    right="e",
    wrong={
        "a": (
            "best-figure-is-the-machine",
            "1 MiB never left the cache after its first copy, and 410 GB/s is more than the "
            "memory can do. Of 16 GB nothing is still there when the next token comes.",
        ),
        "b": (
            "mean-of-all-figures",
            "You average the cache's speed with the memory's. No weight is read at either's "
            "mean: ask for each figure what was measured, and keep those that fit your case.",
        ),
        "c": (
            "copy-counted-half",
            "67 GB/s already counts both directions: so many bytes pass in a second, read or "
            "written. 16 GB that are only read are 16 GB, not half.",
        ),
        "d": (
            "data-sheet-for-the-machine",
            "90 GB/s is width times clock, a bound that no program reached here: his own large "
            "buffers say 67. A measured figure goes before a printed one.",
        ),
    },
    hints=(
        "Where is a buffer of 1 MiB a microsecond after it was copied? And one of 4 GiB?",
        "Which of the buffers behave like 16 GB of weights, read once a token?",
        "The rule of counting was stated: bytes over bytes per second, with nothing halved.",
    ),
    explanation=(
        "Two of his figures are the cache's, which the data sheet's bound gives away. Decoding "
        "reads gigabytes once a step, so only buffers far larger than the cache tell about it; "
        "or many buffers in turn, as the benches of this course use."
    ),
)
