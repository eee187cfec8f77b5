"""Exercise 5.3, The burst that tips it over: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import value_exercise
from course.exercises.ch05.server import USUAL_PER_S, rush, serve
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import Figures, Whole
from course.serving.scenes.burst import PROMISE

_TIPPING_S = 12


_SHORTER_S = 4


_BURSTS = 60


_LONGEST_S = 120


_QUIET_S = 60.0


_AFTER_S = 110.0


def stays_down(burst_s: float, seed: int) -> bool:
    """Return whether the server is still below half of its goodput a minute after the burst.

    The burst is twice the usual load; clients try three times and the server lets everybody in.

    >>> stays_down(0.0, seed=1), stays_down(20.0, seed=1)
    (False, True)
    """
    work = rush(burst_s, 2.0, before_s=_QUIET_S, after_s=_AFTER_S, seed=seed)
    run = serve(work, seed=seed)
    ends_s = _QUIET_S + burst_s
    late = run.goodput_per_s(PROMISE, ends_s + 60.0, ends_s + 95.0) or 0.0
    before = run.goodput_per_s(PROMISE, 15.0, _QUIET_S) or USUAL_PER_S
    return late < 0.5 * before


def _fresh_bursts(rng: np.random.Generator) -> list[dict[str, Any]]:
    return [{"seeds": rng.integers(2**31, size=_BURSTS)}]


def _shares_down(burst_s: Any, case: Any) -> tuple[float, float]:
    """Per cent of the bursts after which the server stays down: of this length, and 4 s shorter."""
    if not 0 <= burst_s <= _LONGEST_S:
        raise Unacceptable(f"{burst_s} s: give a burst of 0 to {_LONGEST_S} s.")
    lengths = (float(burst_s), max(0.0, float(burst_s) - _SHORTER_S))
    down = [[stays_down(length_s, int(seed)) for seed in case["seeds"]] for length_s in lengths]
    return 100 * float(np.mean(down[0])), 100 * float(np.mean(down[1]))


def _accept_tipping(seen: Any, best: Any, case: Any) -> str | None:
    down, shorter = seen
    if down < 100 / 3:
        return f"After a burst of that length the server stays down in {down:.0f} % of the runs."
    if shorter >= 100 / 3:
        return (
            f"It stays down in {down:.0f} % of the runs, but a burst {_SHORTER_S} s shorter does "
            f"it too, in {shorter:.0f} %."
        )
    return None


EXERCISE = value_exercise(
    "5.3",
    title="The burst that tips it over",
    question=(
        "The notebook's server completes 11.5 requests/s. The usual load is 8.5/s, in a "
        "burst it is twice that, 17/s. Clients wait 10 s for the whole answer, which itself "
        "takes 3.5 s on average once all seats are taken; then they try again, up to three times "
        "in all, and the server does not notice that they left. How short a burst is enough for "
        "the server to *stay* down after it? First reckon: how fast does the queue grow during "
        "the burst, and how long may it get before everybody is late? Then try lengths in the "
        "engine: `run = serve(rush(burst_s, seed=1))`, then `run.goodput_per_s(PROMISE, "
        "from_s, to_s)`; the burst begins at 60 s. Give whole seconds. Luck plays a part, so "
        "your number is tried on 60 fresh bursts. *Down* means less than half of the usual "
        "good answers a second, a minute after the burst. Long enough: at least 20 of the 60 "
        "leave the server down. Not longer than needed: of 60 that are 4 s shorter, fewer than "
        "20 do."
    ),
    kind="predict",
    minutes=10,
    difficulty=3,
    reference=_TIPPING_S,
    value=Whole("s", noun="a whole number of seconds"),
    comment="whole seconds of double load",
    cases=_fresh_bursts,
    observe=_shares_down,
    result=Figures(
        ("stays down", "stays down after a burst 4 s shorter"),
        ("%", "%"),
        noun="a burst that tips the server over, and hardly a longer one",
        within="a third of the runs",
    ),
    accept=_accept_tipping,
    describe=lambda case: f"{len(case['seeds'])} fresh bursts of double load",
    time_limit_s=30.0,
    wrong=(
        Wrong(
            "growth-without-service",
            4,
            "You let the queue grow at the full 17/s, as if nothing were served during the "
            "burst. It grows by what comes *minus* what is done, 5.5 requests/s, so the "
            "same queue takes longer to build.",
            also=lambda seconds: 0 <= seconds <= 7,
        ),
        Wrong(
            "whole-patience-in-the-queue",
            21,
            "You wait until the queue alone takes the whole patience. A client wants the whole "
            "answer in that time: the queue is too long as soon as its wait *plus* the answer "
            "itself reaches 10 s, and that is sooner.",
            also=lambda seconds: 16 <= seconds <= 24,
        ),
        Wrong(
            "only-a-long-burst-harms",
            60,
            "So long a burst tips it over without doubt, but so does a much shorter one. What "
            "keeps the server down is no longer the burst, it is the retries; the burst must "
            "only get the queue past the point where everybody is late.",
            also=lambda seconds: seconds >= 25,
        ),
    ),
    hints=(
        "The queue grows by 17 − 11.5 = 5.5 requests in each second of the burst. How long "
        "does the last in a queue of N wait, at 11.5/s?",
        "Everybody is late when the wait is about 10 − 4 = 6 s: at 11.5/s, a queue of 69.",
        "69 / 5.5 is a good 12 s. Try 8, 12 and 16 on a few seeds.",
    ),
    explanation=(
        "The queue needs about (10 − 4) · 11.5/(17 − 11.5) ≈ 12 s to reach the length at which "
        "all are late. From there on each request arrives up to three times, and the usual "
        "load has become more than the server can do."
    ),
)
