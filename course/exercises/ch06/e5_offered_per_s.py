"""Exercise 6.5, The load that never came: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, simulate, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.workload import Lognormal, Poisson, closed_loop_work, draw


def offered_per_s(asked_per_s: float, start_s: np.ndarray, finish_s: np.ndarray) -> float:
    """Requests/s that the load generator really sent: where this run belongs on a load curve.

    asked_per_s: what the generator was told; start_s: when it sent each request, finish_s: when
    that one was over, seconds from the beginning of the run, in the order of sending. The rate is
    the number of gaps between sends over the time from the first send to the last.
    """
    return float((start_s.size - 1) / (start_s[-1] - start_s[0]))


def what_was_asked(asked_per_s, start_s, finish_s):
    """The command line's figure."""
    return asked_per_s


def drain_counted(asked_per_s, start_s, finish_s):
    """Completed requests over the whole run."""
    return float(start_s.size / (finish_s.max() - start_s[0]))


def median_gap(asked_per_s, start_s, finish_s):
    """One over the median gap."""
    return float(1 / np.median(np.diff(start_s)))


def one_request_at_a_time(asked_per_s, start_s, finish_s):
    """One over the mean time that a request took."""
    return float(1 / (finish_s - start_s).mean())


def finishes_for_sends(asked_per_s, start_s, finish_s):
    """What came out, if it is less than what was asked."""
    return float(min(asked_per_s, finish_s.size / (finish_s.max() - finish_s.min())))


def never_more_than_asked(asked_per_s, start_s, finish_s):
    """The lower of the two."""
    return min(asked_per_s, float((start_s.size - 1) / (start_s[-1] - start_s[0])))


class ClientCase(dict[str, Any]):
    """A case's inputs, and behind them how many connections the client had."""

    connections: int


def _clients(rng: np.random.Generator) -> list[ClientCase]:
    """Clients that send as told, and clients whose connections are all in use."""
    cases = []
    server = LinearStepCost(fixed_s=0.010, per_prefill_token_s=4e-5, per_decode_seq_s=1e-4)
    config = EngineConfig(48, 4096)
    lengths = Lognormal.of_mean(300, 0.5), Lognormal.of_mean(60, 0.6)
    for connections, asked in ((0, 14.0), (12, 60.0), (24, 80.0), (0, 22.0)):
        requests = int(rng.integers(400, 600))
        rate = round(asked * float(rng.uniform(0.9, 1.1)), 1)
        if connections:
            work = closed_loop_work(requests, *lengths, seed=rng)
            run = simulate_closed(
                connections, 0.0, work, server, config,
                ramp_s=connections / rate, seed=int(rng.integers(2**31)), progress=False,
            )  # fmt: skip
        else:
            run = simulate(draw(requests, Poisson(rate), *lengths, seed=rng), server, config,
                           progress=False)  # fmt: skip
        order = np.argsort(run.arrival_s, kind="stable")
        first_s = run.arrival_s[order[0]]
        if asked == 22.0:  # by the luck of its gaps more came than was asked for
            sent_per_s = (requests - 1) / float(run.arrival_s.max() - first_s)
            rate = round(sent_per_s / float(rng.uniform(1.06, 1.12)), 1)
        case = ClientCase(
            asked_per_s=rate,
            start_s=(run.arrival_s[order] - first_s).round(6),
            finish_s=(run.finish_s[order] - first_s).round(6),
        )
        case.connections = connections
        cases.append(case)
    return cases


def _describe_client(case: Any) -> str:
    return (
        f"{case['start_s'].size} requests, asked for {plain(case['asked_per_s'], 3)} a second, in "
        f"{plain(float(case['finish_s'].max()), 3)} s"
    )


def _connections(_: Any, case: Any) -> str:
    start_s, finish_s = case["start_s"], case["finish_s"]
    inside = [
        int((start_s <= at).sum() - (finish_s <= at).sum())
        for at in np.linspace(start_s[0], start_s[-1], 200)
    ]
    limit = case.connections
    held = f"the client had {limit} connections" if limit else "the client had no limit"
    return f"{held}; at the most {max(inside)} requests were under way at a time"


EXERCISE = function_exercise(
    "6.5",
    title="The load that never came",
    question=(
        "A point of a printed load curve stands at 80 requests/s. But a client with 24 "
        "connections cannot have more than 24 requests under way: when all are taken it waits "
        "before it sends the next, and the server never sees 80. Other runs were sent as "
        "asked, up to the luck of random gaps. From the log, work out at which load a run "
        "really belongs."
    ),
    kind="audit",
    minutes=6,
    difficulty=2,
    reference=offered_per_s,
    cases=_clients,
    result=Number("/s", noun="a rate in requests/s"),
    evidence=_connections,
    describe=_describe_client,
    wrong={
        what_was_asked: "That is what the generator was *told*. Look at start_s: when did it send?",
        drain_counted: (
            "You divide by the whole run, until the last answer was over. After the last send "
            "nothing was offered any more; that tail is not part of the sending."
        ),
        median_gap: (
            "You take the median gap. Random gaps have a median well below their mean (0.69 of "
            "it), and a rate is one over the *mean* gap."
        ),
        one_request_at_a_time: (
            "One over the time that a request takes is the rate of *one* connection. There are "
            "several."
        ),
        never_more_than_asked: (
            "You trust the lower of the two. Random gaps bring a little more than was asked as "
            "often as a little less: what was really sent stands in start_s."
        ),
        finishes_for_sends: (
            "You measure what came *out*. The load of a point is what went *in*; beyond the "
            "knee the two differ, and that is what the curve is to show."
        ),
    },
    hints=(
        "How many gaps lie between the first send and the last, and how long did they take?",
        "(start_s.size − 1) gaps, in start_s[-1] − start_s[0] seconds.",
        "Divide the one by the other; neither asked_per_s nor finish_s is needed.",
    ),
    explanation=(
        "`python -m course knee` does this with every run, moves the point, and says so. "
        "Without it two runs, “60” and “80” requests/s, may be the same run twice."
    ),
)
