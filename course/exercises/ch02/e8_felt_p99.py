"""Exercise 2.8, What the load test left out: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number
from course.serving import queueing


def felt_p99(
    scheduled_s: np.ndarray, sent_s: np.ndarray, finished_s: np.ndarray, timeout_s: float
) -> float:
    """P99 of the time that users would have waited, in seconds.

    scheduled_s: when each request was due; sent_s: when the load generator got round to sending
    it; finished_s: when its answer was complete, NaN where none came before the user gave up,
    timeout_s after the request was due. A request without an answer counts as timeout_s.
    """
    felt_s = np.where(np.isnan(finished_s), timeout_s, finished_s - scheduled_s)
    return float(np.percentile(felt_s, 99))


def clock_starts_at_sending(scheduled_s, sent_s, finished_s, timeout_s):
    """The tool's own clock, which starts when it sends."""
    counted_s = np.where(np.isnan(finished_s), timeout_s, finished_s - sent_s)
    return float(np.percentile(counted_s, 99))


def answered_only(scheduled_s, sent_s, finished_s, timeout_s):
    """Those without an answer left out."""
    return float(np.nanpercentile(finished_s - scheduled_s, 99))


def percentiles_add_up(scheduled_s, sent_s, finished_s, timeout_s):
    """P99 of the delay, plus P99 of the response."""
    counted_s = np.where(np.isnan(finished_s), timeout_s, finished_s - sent_s)
    return float(np.percentile(sent_s - scheduled_s, 99) + np.percentile(counted_s, 99))


def mean_for_percentile(scheduled_s, sent_s, finished_s, timeout_s):
    """The mean."""
    felt_s = np.where(np.isnan(finished_s), timeout_s, finished_s - scheduled_s)
    return float(np.mean(felt_s))


def late_and_then_the_whole_patience(scheduled_s, sent_s, finished_s, timeout_s):
    """As if the patience began at the sending."""
    unanswered_s = sent_s - scheduled_s + timeout_s
    felt_s = np.where(np.isnan(finished_s), unanswered_s, finished_s - scheduled_s)
    return float(np.percentile(felt_s, 99))


def who_left_waits_forever(scheduled_s, sent_s, finished_s, timeout_s):
    """No answer, so no end."""
    felt_s = np.where(np.isnan(finished_s), 1e9, finished_s - scheduled_s)
    return float(np.percentile(felt_s, 99))


def _load_tests(rng: np.random.Generator) -> list[dict[str, Any]]:
    """A generator with few workers against a server that twice stands still for seconds.

    In two of them so few give up that the P99 is of an answer; in two it is of who gave up.
    """
    tests = []
    for servers, answered in ((4, 99.4), (8, 98.5), (2, 99.4), (6, 98.5)):
        count = 4_000
        rate_per_s = float(rng.integers(15, 41))
        scheduled_s = np.arange(count) / rate_per_s
        mean_s = 0.6 * servers / rate_per_s
        service_s = rng.lognormal(math.log(mean_s) - 0.4, 0.9, size=count)
        for first in (rng.integers(400, 1_800), rng.integers(2_000, 3_600)):
            service_s[first : first + servers] = rng.uniform(60, 100) / rate_per_s
        run = queueing.simulate_load_generator(
            scheduled_s, service_s, workers=servers + 2, servers=servers
        )
        timeout_s = round(float(np.percentile(run.scheduled_response_s, answered)), 2)
        gave_up = run.scheduled_response_s > timeout_s
        tests.append(
            {
                "scheduled_s": scheduled_s.round(4),
                "sent_s": run.sent_s.round(4),
                "finished_s": np.where(gave_up, np.nan, run.end_s).round(4),
                "timeout_s": timeout_s,
            }
        )
    return tests


EXERCISE = function_exercise(
    "2.8",
    title="What the load test left out",
    question=(
        "A report prints a beautiful P99. Its load generator had a fixed schedule but few "
        "workers, and a worker sends nothing while it waits for an answer: when the server "
        "stood still, the requests then due were sent late, and the tool's clock started only "
        "when it sent them (coordinated omission). From the raw timestamps, work out the P99 "
        "that users would have felt, who come when they come and give up after `timeout_s`."
    ),
    kind="audit",
    minutes=7,
    difficulty=3,
    reference=felt_p99,
    cases=_load_tests,
    result=Number("s", rel=0.02),
    wrong={
        clock_starts_at_sending: (
            "You start the clock when the tool sends. The user came when the request was due, "
            "and waited while the tool had no worker free: that wait is what it omits."
        ),
        answered_only: (
            "You leave out the requests without an answer, which are the slowest of all. Each "
            "cost its user timeout_s."
        ),
        late_and_then_the_whole_patience: (
            "You let the patience of who got no answer begin at the sending. It began when the "
            "request was due: the user left timeout_s after that."
        ),
        who_left_waits_forever: (
            "You let who got no answer wait for ever. The user left after timeout_s: that is "
            "how long they waited."
        ),
        percentiles_add_up: (
            "You add the P99 of the delay to the P99 of the response. The slow ones of the "
            "one need not be the slow ones of the other: add per request, then take the "
            "percentile."
        ),
        mean_for_percentile: (
            "That is the mean, in which a few seconds of stand-still vanish among thousands "
            "of quick answers."
        ),
    },
    hints=(
        "For one request: when does its user start to wait, and when does the wait end?",
        "From scheduled_s to finished_s; where that is NaN, timeout_s. np.isnan tells where.",
        "np.percentile(np.where(np.isnan(finished_s), timeout_s, ...), 99)",
    ),
    explanation=(
        "A generator that waits for answers slows down with the server and so never asks the "
        "question that hurts. Schedule openly, and count from the schedule."
    ),
)
