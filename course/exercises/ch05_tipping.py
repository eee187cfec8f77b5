# mypy: allow-any-generics
"""Exercises 5.3 and 5.4: the burst that tips a server over, and the queue that keeps it upright.

The references and the wrong answers are values or ordinary functions; each function is copied into
a notebook as it stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise, value_exercise
from course.exercises.ch05_server import USUAL_PER_S, rush, serve
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import Figures, Whole
from course.serving.engine import Admission, EngineConfig, Patience, simulate_service
from course.serving.pricing import LinearStepCost
from course.serving.requests import Status
from course.serving.scenes.burst import PROMISE
from course.serving.workload import Fixed, Lognormal, Poisson, draw

# --- 5.3 the shortest burst that tips it ----------------------------------------------------------

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


# --- 5.4 the longest queue that keeps the promise -------------------------------------------------


def longest_queue(patience_s: float, answer_s: float, slow_answer_s: float, seats: int) -> int:
    """Most requests that may wait so that the last of them still gets its answer in time.

    patience_s: from sending to the whole answer; answer_s: how long a request holds its seat on
    average when all seats are taken; slow_answer_s: the P95 of that, what the last one should be
    allowed to need; seats: max_num_seqs. 0 where not even a free seat would be enough.
    """
    served_per_s = seats / answer_s
    return max(0, math.floor((patience_s - slow_answer_s) * served_per_s))


def whole_patience_to_the_queue(
    patience_s: float, answer_s: float, slow_answer_s: float, seats: int
) -> int:
    """As long as the patience lasts, with nothing left for the answer itself."""
    return math.floor(patience_s * seats / answer_s)


def mean_answer_for_the_slow(
    patience_s: float, answer_s: float, slow_answer_s: float, seats: int
) -> int:
    """Room for an average answer."""
    return max(0, math.floor((patience_s - answer_s) * seats / answer_s))


def a_queue_below_nothing(
    patience_s: float, answer_s: float, slow_answer_s: float, seats: int
) -> int:
    """The formula as it stands, below 0 as well."""
    return math.floor((patience_s - slow_answer_s) * seats / answer_s)


def one_seat_serves(patience_s: float, answer_s: float, slow_answer_s: float, seats: int) -> int:
    """A queue that a single seat works off."""
    return max(0, math.floor((patience_s - slow_answer_s) / answer_s))


def seats_counted_too(patience_s: float, answer_s: float, slow_answer_s: float, seats: int) -> int:
    """Everybody inside, running or waiting."""
    return max(0, math.floor((patience_s - slow_answer_s) * seats / answer_s)) + seats


def served_at_the_slow_pace(
    patience_s: float, answer_s: float, slow_answer_s: float, seats: int
) -> int:
    """Every request taken for a slow one, in the queue's pace too."""
    return max(0, math.floor((patience_s - slow_answer_s) * seats / slow_answer_s))


def _servers(rng: np.random.Generator) -> list[dict[str, Any]]:
    """The notebook's server, some others, and one whose slow answers outlast the patience."""
    cases = [{"patience_s": 10.0, "answer_s": 3.6, "slow_answer_s": 7.2, "seats": 40}]
    for patience_s, slow in ((20.0, 0.6), (8.0, 0.45), (30.0, 0.75), (6.0, 1.2), (15.0, 0.3)):
        slow_s = round(float(patience_s * slow * rng.uniform(0.95, 1.05)), 2)
        cases.append(
            {
                "patience_s": patience_s,
                "answer_s": round(float(slow_s * rng.uniform(0.4, 0.6)), 2),
                "slow_answer_s": slow_s,
                "seats": int(rng.integers(12, 65)),
            }
        )
    return cases


def queue_of(limit: int, case: Any, seed: int = 54) -> tuple[float, float]:
    """Shares of an engine's requests, with so many places to wait: let in; of these, in time.

    The load is one and a half times what the server can do; a step costs the same whoever is in it.
    """
    ratio = max(case["slow_answer_s"] / case["answer_s"], 1.01)
    # a lognormal with this mean and P95: ln(P95/mean) = 1.645 sigma - sigma²/2
    sigma = 1.645 - math.sqrt(max(1.645**2 - 2 * math.log(ratio), 0.0))
    mean_tokens = 60.0
    cost = LinearStepCost(fixed_s=case["answer_s"] / mean_tokens)
    config = EngineConfig(max_num_seqs=case["seats"], max_num_batched_tokens=4096)
    rate_per_s = 1.5 * case["seats"] / case["answer_s"]
    answers = Lognormal.of_mean(mean_tokens, sigma)
    work = draw(4000, Poisson(rate_per_s), Fixed(1), answers, seed=seed)
    run = simulate_service(
        work,
        cost,
        config,
        patience=Patience(e2e_s=case["patience_s"]),
        admission=Admission(max_waiting_requests=limit),
    )
    let_in = run.status != Status.REJECTED
    in_time = run.finished.sum() / max(int(let_in.sum()), 1)
    return float(let_in.mean()), float(in_time)


def _queue_in_engine(limit: Any, case: Any) -> str | None:
    if not 0 <= limit <= 10_000:
        return None
    let_in, in_time = queue_of(int(limit), case)
    return (
        f"at half again as much load as it can do, with {int(limit)} places to wait, "
        f"{100 * let_in:.0f} % are let in and {100 * in_time:.0f} % of these answered in time"
    )


TIPPING_EXERCISES = (
    value_exercise(
        "5.3",
        title="The burst that tips it over",
        question=(
            "The notebook's server completes 11.5 requests/s. The usual load is 8.5/s, in a "
            "burst it is twice that, 17/s. Clients wait 10 s for the whole answer, which itself "
            "takes about 4 s once all seats are taken; then they try again, up to three times in "
            "all, and the server does not notice that they left. How short a burst is enough for "
            "the server to *stay* down after it? First reckon: how fast does the queue grow during "
            "the burst, and how long may it get before everybody is late? Then try lengths in the "
            "engine: `run = serve(rush(burst_s, seed=1))`, then `run.goodput_per_s(PROMISE, "
            "from_s, to_s)`; the burst begins at 60 s. Give whole seconds. Luck plays a part, so "
            "your number is tried on 60 fresh bursts. *Down* means less than half of the usual "
            "good answers a second, a minute after the burst. Long enough: at least 20 of the 60 "
            "leave the server down. Not longer than needed: of 60 that are 4 s shorter, fewer than "
            "20 do."
        ),
        track="core",
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
    ),
    function_exercise(
        "5.4",
        title="How long a queue?",
        question=(
            "You bound the waiting queue (vLLM calls the dial `max_num_queued_reqs`): who finds it "
            "full is refused at once. How long may it be at most, so that the last one in it still "
            "gets the whole answer within the patience, even if it is one of the slower answers? "
            "The server is full, so a seat falls free whenever one of the running is done. You "
            "are not told how many requests a second it completes: work that out first."
        ),
        track="core",
        kind="configure",
        minutes=7,
        difficulty=2,
        reference=longest_queue,
        cases=_servers,
        result=Whole("requests"),
        evidence=_queue_in_engine,
        wrong=(
            Wrong(
                "whole-patience-to-the-queue",
                whole_patience_to_the_queue,
                "Your last one has waited for its whole patience when it gets a seat, and leaves "
                "just as it is served: all that work is wasted. Take the answer's own time off.",
            ),
            Wrong(
                "mean-answer-for-the-slow",
                mean_answer_for_the_slow,
                "You leave room for an *average* answer. A fifth or so of those let in need more "
                "than that and are lost; the question asks for room for the slower ones.",
            ),
            Wrong(
                "below-zero",
                a_queue_below_nothing,
                "A queue cannot be shorter than 0. Where a slow answer takes longer than the "
                "patience your formula is negative: nobody may wait then, so return 0.",
            ),
            Wrong(
                "one-seat-serves",
                one_seat_serves,
                "You let one seat work off the queue. With all seats taken, one of them falls free "
                "every answer_s/seats seconds.",
            ),
            Wrong(
                "seats-counted-too",
                seats_counted_too,
                "You count those in the seats as well. The limit is on those who *wait*; the "
                "running are in the pace already.",
            ),
            Wrong(
                "slow-pace-for-all",
                served_at_the_slow_pace,
                "You let the queue move as if every answer were a slow one. The queue moves at the "
                "mean pace, seats/answer_s; the slow answer is only this request's own.",
            ),
        ),
        hints=(
            "How many requests per second does a full server complete? (Little's law.)",
            "seats/answer_s per second. How many seconds may the last one wait?",
            "math.floor((patience_s - slow_answer_s) * seats / answer_s), and never below 0.",
        ),
        explanation=(
            "Little's law, as a dial: length = time left for waiting × pace. A longer queue does "
            "not serve more, it only makes those in it late."
        ),
    ),
)
