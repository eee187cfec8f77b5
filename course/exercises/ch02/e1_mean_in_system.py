"""Exercise 2.1, How many were inside: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number


def mean_in_system(arrival_s: np.ndarray, departure_s: np.ndarray, window_s: float) -> float:
    """Time-average number of requests in the system from time 0 to window_s.

    arrival_s, departure_s: when each request came and left, in seconds, one entry a request.
    Some were there before 0, some are still there at window_s.
    """
    from_s = np.maximum(arrival_s, 0.0)
    until_s = np.minimum(departure_s, window_s)
    return float((until_s - from_s).sum() / window_s)


def time_outside_the_window(arrival_s, departure_s, window_s):
    """The full stay of each, though part of it lies outside the window."""
    return float((departure_s - arrival_s).sum() / window_s)


def only_the_completed(arrival_s, departure_s, window_s):
    """Only those that both came and left inside the window."""
    whole = (arrival_s >= 0) & (departure_s <= window_s)
    return float((departure_s - arrival_s)[whole].sum() / window_s)


def count_at_arrivals(arrival_s, departure_s, window_s):
    """The mean of the counts that the arriving requests find."""
    inside = arrival_s[(arrival_s >= 0) & (arrival_s <= window_s)]
    counts = [((arrival_s < t) & (departure_s > t)).sum() for t in inside]
    return float(np.mean(counts))


def peak_for_mean(arrival_s, departure_s, window_s):
    """The largest count, as a dashboard's maximum shows it."""
    inside = arrival_s[(arrival_s >= 0) & (arrival_s <= window_s)]
    counts = [((arrival_s <= t) & (departure_s > t)).sum() for t in inside]
    return float(np.max(counts))


def _request_logs(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Logs cut from a longer run with bursts: requests are inside at both ends of each window."""
    logs = []
    for _ in range(5):
        window_s = float(rng.integers(40, 91))
        rate_per_s = rng.uniform(1.5, 4.0)
        gaps_s = rng.gamma(1 / 6, 6 / rate_per_s, size=900)
        arrival_s = np.cumsum(gaps_s) - 60.0
        stay_s = rng.lognormal(math.log(rng.uniform(2.0, 8.0)), 0.8, size=900)
        departure_s = arrival_s + stay_s
        touches = (departure_s > 0) & (arrival_s < window_s)
        logs.append(
            {
                "arrival_s": arrival_s[touches].round(3),
                "departure_s": departure_s[touches].round(3),
                "window_s": window_s,
            }
        )
    return logs


EXERCISE = function_exercise(
    "2.1",
    title="How many were inside",
    question=(
        "You are handed one minute or so of a server's log: when each request came, and when "
        "its last token was sent. The log was cut from a longer run, so some requests were "
        "already there when it begins and some had not finished when it ends. How many "
        "requests were in the system on average over that window? Little's law, L = λ · W, is "
        "a statement about just this number. Half a per cent off is near enough."
    ),
    kind="compute",
    minutes=6,
    difficulty=2,
    reference=mean_in_system,
    cases=_request_logs,
    result=Number("requests", rel=0.005),
    wrong={
        time_outside_the_window: (
            "You count the whole stay of every request. A request that came 20 s before the "
            "window, or stayed 20 s after it, was not in the system *during the window* for "
            "that time: cut each stay at 0 and at window_s."
        ),
        only_the_completed: (
            "You count only requests that came and left inside the window. That drops just "
            "the long ones, and long stays are most of what fills a system: survivorship."
        ),
        count_at_arrivals: (
            "You average what arriving requests find. That weighs each moment by how many "
            "arrive in it, and a burst brings many arrivals at once: weigh by time."
        ),
        peak_for_mean: (
            "That is the most there ever were at once. A maximum tells how large the system "
            "must be, not how full it usually is."
        ),
    },
    hints=(
        "Each request adds its own time inside the window. What do all of them add up to?",
        "A stay that begins before 0 counts from 0; one that ends after window_s counts until "
        "window_s: np.maximum and np.minimum do that for all at once.",
        "Sum the stays inside the window (request-seconds) and divide by window_s (seconds).",
    ),
    explanation=(
        "The area under the curve 'number in the system' is the sum of all stays inside the "
        "window; divided by the window it is the mean. Little's law says it is λ · W."
    ),
)
