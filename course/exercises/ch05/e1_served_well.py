"""Exercise 5.1, Who was served well: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch01.kinds import Named
from course.exercises.ch05.server import rush, serve
from course.exercises.values import plain
from course.serving.engine import Admission, Patience, Retry


def served_well(
    request: np.ndarray,
    sent_s: np.ndarray,
    ended_s: np.ndarray,
    answered: np.ndarray,
    limit_s: float,
    window_s: float,
) -> tuple[float, float]:
    """SLO attainment (a share of 1) and goodput (requests per second), in this order.

    One entry for each attempt, in order of sending. request: the number of the user's request
    that it belongs to, 0, 1, 2 … without gaps; sent_s, ended_s: when it was sent and when it was
    over; answered: True where the whole answer came, False where the server refused or the user
    gave up. A request is good if an answer came within limit_s of the moment at which the user
    first asked. window_s: how long the test lasted.
    """
    users = int(request.max()) + 1
    first_s = np.full(users, np.inf)
    np.minimum.at(first_s, request, sent_s)
    in_time = answered & (ended_s - first_s[request] <= limit_s)
    good = np.zeros(users, dtype=bool)
    good[request[in_time]] = True
    return float(good.mean()), float(good.sum() / window_s)


def attempts_for_requests(request, sent_s, ended_s, answered, limit_s, window_s):
    """The share of the attempts, as the server's own log counts them."""
    first_s = np.full(int(request.max()) + 1, np.inf)
    np.minimum.at(first_s, request, sent_s)
    good = answered & (ended_s - first_s[request] <= limit_s)
    return float(good.mean()), float(good.sum() / window_s)


def clock_of_the_attempt(request, sent_s, ended_s, answered, limit_s, window_s):
    """Each attempt by its own clock."""
    good = np.zeros(int(request.max()) + 1, dtype=bool)
    good[request[answered & (ended_s - sent_s <= limit_s)]] = True
    return float(good.mean()), float(good.sum() / window_s)


def only_the_answered(request, sent_s, ended_s, answered, limit_s, window_s):
    """The share of those that got an answer at all."""
    first_s = np.full(int(request.max()) + 1, np.inf)
    np.minimum.at(first_s, request, sent_s)
    took_s = (ended_s - first_s[request])[answered]
    return float((took_s <= limit_s).mean()), float((took_s <= limit_s).sum() / window_s)


def first_attempt_only(request, sent_s, ended_s, answered, limit_s, window_s):
    """Who was refused once is lost."""
    first = np.zeros(len(request), dtype=bool)
    first[np.unique(request, return_index=True)[1]] = True
    good = first & answered & (ended_s - sent_s <= limit_s)
    return float(good.sum() / first.sum()), float(good.sum() / window_s)


def late_answers_count(request, sent_s, ended_s, answered, limit_s, window_s):
    """Whoever got an answer in the end."""
    good = np.zeros(int(request.max()) + 1, dtype=bool)
    good[request[answered]] = True
    return float(good.mean()), float(good.sum() / window_s)


def _rushes(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Rushes on the notebook's server behind gates of several kinds, as its attempts."""
    gates = (
        Admission(max_waiting_requests=40),
        Admission(max_predicted_wait_s=4.0),
        Admission(max_waiting_requests=12),
    )
    cases = []
    for gate in gates:
        work = rush(25.0, 2.5, before_s=15.0, after_s=20.0, seed=int(rng.integers(2**31)))
        retry = Retry(attempts=4, delay_s=1.5, growth=2.0, jitter=0.5)
        run = serve(work, gate, retry=retry, patience=Patience(e2e_s=9.0))
        table = run.attempts
        known = np.isfinite(table.end_s)
        cases.append(
            {
                "request": np.unique(table.request[known], return_inverse=True)[1],
                "sent_s": table.sent_s[known].round(4),
                "ended_s": table.end_s[known].round(4),
                "answered": table.finished[known],
                "limit_s": round(float(rng.uniform(6.0, 9.0)), 1),
                "window_s": 60.0,
            }
        )
    return cases


_SHARE_AND_RATE = Named(("attainment", "goodput"), ("", "/s"))


def _accept_share_and_rate(mine: Any, right: Any, case: Any) -> str | None:
    return _SHARE_AND_RATE.what_misses(mine, right)


def _describe_rush(case: Any) -> str:
    users, attempts = int(case["request"].max()) + 1, len(case["request"])
    return (
        f"an engine run: {users} requests in {attempts} attempts, {int(case['answered'].sum())} "
        f"of them answered; limit {plain(case['limit_s'])} s"
    )


EXERCISE = function_exercise(
    "5.1",
    title="Who was served well",
    question=(
        "After a rush you get the log of all *attempts*: users whose attempt was refused or "
        "who gave up sent the same request again, up to four times. The user's clock does not "
        "start anew with each attempt. Work out the SLO attainment, the share of *requests* "
        "that were answered within `limit_s` of the first asking, and the goodput, how many "
        "such requests there were per second of the test: `return attainment, goodput_per_s`."
    ),
    kind="compute",
    minutes=8,
    difficulty=2,
    reference=served_well,
    cases=_rushes,
    result=_SHARE_AND_RATE,
    accept=_accept_share_and_rate,
    describe=_describe_rush,
    wrong={
        attempts_for_requests: (
            "Your share is of the *attempts*. A user who tried four times and was answered "
            "once is one request, served; the log shows four lines, three of them failures. "
            "Count users, not lines."
        ),
        clock_of_the_attempt: (
            "You start the clock anew with every attempt. The user has been sitting there "
            "since the first one: an answer that comes 5 s after the third attempt may be 15 s "
            "late for the person."
        ),
        only_the_answered: (
            "You divide by the requests that got an answer at all. Then a gate that refuses "
            "nearly everybody has a perfect score: who asked and got nothing belongs in the "
            "denominator."
        ),
        first_attempt_only: (
            "You count a request as lost when its first attempt fails. A quick refusal leaves "
            "time for a second attempt, and an answer inside the limit is good whichever "
            "attempt brought it."
        ),
        late_answers_count: (
            "You count every request that was answered in the end. Late is a miss: the limit "
            "runs from the first asking."
        ),
    },
    hints=(
        "How many users are there? Each has one verdict, however many lines it has.",
        "Find each request's first sending (np.minimum.at, or a dictionary in a loop), then "
        "compare every answered attempt's end with it.",
        "good = the requests with at least one attempt that was answered with ended_s - "
        "first_s[request] <= limit_s; divide their number by the number of requests.",
    ),
    explanation=(
        "The server's log counts attempts, users count requests. During a storm the two "
        "diverge: failures appear several times, and lateness hides behind young clocks."
    ),
)
