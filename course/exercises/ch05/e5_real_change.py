"""Exercise 5.5, Three per cent faster: reference, wrong answers and judging."""

from __future__ import annotations

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number


def real_change(raw_change: float, timed_out_before: float, timed_out_after: float) -> float:
    """Change of the real throughput, answers that somebody still waited for, as a share of 1.

    raw_change: change of the tokens/s that the server makes (0.03: 3 % more), for whomever it
    makes them; timed_out_before, timed_out_after: the shares of its work that went to clients who
    had given up. -0.25 means a quarter less. Answers are as long before as after.
    """
    return (1 + raw_change) * (1 - timed_out_after) / (1 - timed_out_before) - 1


def ratio_for_the_change(raw_change, timed_out_before, timed_out_after):
    """The new real throughput as a share of the old one."""
    return (1 + raw_change) * (1 - timed_out_after) / (1 - timed_out_before)


def shares_subtracted(raw_change, timed_out_before, timed_out_after):
    """Percentages of different wholes, added up."""
    return raw_change - (timed_out_after - timed_out_before)


def on_top_of_the_load(raw_change, timed_out_before, timed_out_after):
    """So many more requests for the same throughput."""
    return (1 + raw_change) * (1 + timed_out_before) / (1 + timed_out_after) - 1


def nobody_lost_before(raw_change, timed_out_before, timed_out_after):
    """As if nobody had given up under the old limit."""
    return (1 + raw_change) * (1 - timed_out_after) - 1


def retried_so_served(raw_change, timed_out_before, timed_out_after):
    """They retry, so nothing is lost."""
    return raw_change


def _limits(rng: np.random.Generator) -> list[dict[str, float]]:
    """The printed case first; then others, where some had given up before too."""
    cases = [{"raw_change": 0.03, "timed_out_before": 0.0, "timed_out_after": 0.3}]
    for _ in range(6):
        before = float(rng.uniform(0.01, 0.2))
        cases.append(
            {
                "raw_change": round(float(rng.uniform(-0.05, 0.25)), 3),
                "timed_out_before": round(before, 3),
                "timed_out_after": round(before + float(rng.uniform(0.05, 0.5)), 3),
            }
        )
    return cases


EXERCISE = function_exercise(
    "5.5",
    title="Three per cent faster",
    question=(
        "A printed case. An operator raised the limit of sequences in a batch from 512 to 640 "
        "and wrote down: raw throughput in tokens/s up by 3 %; P95 TTFT from 900 to 1400 ms; "
        "30 % of the requests timed out and were sent again. “Real throughput fell.” By how "
        "much? Work out the change of the throughput of answers that somebody still waited "
        "for, and do it for services where a share of the work was lost before the change too."
    ),
    kind="audit",
    minutes=6,
    difficulty=2,
    reference=real_change,
    cases=_limits,
    result=Number("", noun="a share of 1, negative for less"),
    describe=lambda case: (
        f"raw {100 * case['raw_change']:+.1f} %; timed out {100 * case['timed_out_before']:.1f}"
        f" % before, {100 * case['timed_out_after']:.1f} % after"
    ),
    wrong={
        ratio_for_the_change: (
            "That is the new throughput as a share of the old: 0.72 where 28 % is lost. Asked "
            "is the change, -0.28: take the whole off."
        ),
        shares_subtracted: (
            "You subtract percentages of different wholes. 30 % of the *new* throughput is "
            "lost: multiply, 1.03 × 0.70."
        ),
        on_top_of_the_load: (
            "You take the timed-out requests for extra load on top of the useful one. They are "
            "a share of all that is served: of 100 tokens made, 30 go to nobody and 70 are "
            "left."
        ),
        nobody_lost_before: (
            "Right where nobody had given up under the old limit. Where some had, the old "
            "throughput was less than it seemed as well: compare the useful parts of both."
        ),
        retried_so_served: (
            "They do come again, but the answer that they did not wait for was made all the "
            "same. A token made for nobody is in the raw throughput and in no real one."
        ),
    },
    hints=(
        "Of 100 tokens made before, how many reached somebody? And of the 103 made after?",
        "useful = raw × (1 − timed out), before and after; then compare.",
        "(1 + raw_change) · (1 − timed_out_after) / (1 − timed_out_before) − 1",
    ),
    explanation=(
        "1.03 × 0.70 = 0.72: 28 % fewer answers for 3 % more tokens. A dashboard of raw "
        "tokens/s cannot see it; count answers that somebody waited for."
    ),
)
