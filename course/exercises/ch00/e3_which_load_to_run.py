"""Exercise 0.3, Which load to run at: reference, wrong answers and judging."""

from __future__ import annotations

from course.exercises.build import choice_exercise

_LOAD_TABLE = """\
One replica of a chat model was measured at four loads. The users were promised a first token
within 1 s at P95.

| | load, requests/s | output tokens/s | P95 TTFT | mean TPOT |
|---|---|---|---|---|
| **a** | 4 | 800 | 0.21 s | 22 ms |
| **b** | 8 | 1 590 | 0.62 s | 31 ms |
| **c** | 10 | 1 900 | 4.8 s | 44 ms |
| **d** | 16 | 1 960 | 31 s | 46 ms |

At which of these loads should the replica be run?"""


EXERCISE = choice_exercise(
    "0.3",
    title="Which load to run at",
    question=_LOAD_TABLE,
    kind="audit",
    minutes=3,
    difficulty=1,
    options={
        "a": "4 requests/s: it has the lowest latency.",
        "b": "8 requests/s: the most load inside the promise.",
        "c": "10 requests/s: a fifth more tokens/s than b, and 44 ms a token still reads well.",
        "d": "16 requests/s: the most tokens/s that the GPU can show.",
    },
    right="b",
    wrong={
        "a": (
            "lowest-latency-is-best",
            "The promise is 1 s, and nobody asked for 0.2 s. At twice the load the promise "
            "still holds: with this choice you would pay for two replicas where one does.",
        ),
        "c": (
            "token-pace-hides-the-wait",
            "Reading pace is TPOT, and that is fine. The promise is about the first token: "
            "one user in twenty waits almost five seconds before anything appears.",
        ),
        "d": (
            "peak-throughput-is-capacity",
            "More load brought 3 % more tokens than c, and a half-minute wait: the requests "
            "pile up in front of the server. A rate that no user would wait for is no "
            "capacity.",
        ),
    },
    hints=(
        "Which column does the promise speak of, and which rows keep it?",
        "Of the rows that keep the promise, which one serves the most?",
    ),
    explanation=(
        "The best throughput is not the largest number the GPU shows, but the most that "
        "stays inside the users' promise."
    ),
)
