"""Exercise 5.4, How long a queue?: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Whole
from course.serving.engine import Admission, EngineConfig, Patience, simulate_service
from course.serving.pricing import LinearStepCost
from course.serving.requests import Status
from course.serving.workload import Fixed, Lognormal, Poisson, draw


def longest_queue(patience_s: float, answer_s: float, slow_answer_s: float, seats: int) -> int:
    """Most requests that may wait so that the last of them still gets its answer in time.

    patience_s: from sending to the whole answer; answer_s: how long a request holds its seat on
    average when all seats are taken; slow_answer_s: the P95 of that, what the last one should be
    allowed to need; seats: max_num_seqs. 0 where not even a free seat would be enough.
    """
    served_per_s = seats / answer_s
    return max(0, math.floor((patience_s - slow_answer_s) * served_per_s))


def whole_patience_to_the_queue(patience_s, answer_s, slow_answer_s, seats):
    """As long as the patience lasts, with nothing left for the answer itself."""
    return math.floor(patience_s * seats / answer_s)


def mean_answer_for_the_slow(patience_s, answer_s, slow_answer_s, seats):
    """Room for an average answer."""
    return max(0, math.floor((patience_s - answer_s) * seats / answer_s))


def below_zero(patience_s, answer_s, slow_answer_s, seats):
    """The formula as it stands, below 0 as well."""
    return math.floor((patience_s - slow_answer_s) * seats / answer_s)


def one_seat_serves(patience_s, answer_s, slow_answer_s, seats):
    """A queue that a single seat works off."""
    return max(0, math.floor((patience_s - slow_answer_s) / answer_s))


def seats_counted_too(patience_s, answer_s, slow_answer_s, seats):
    """Everybody inside, running or waiting."""
    return max(0, math.floor((patience_s - slow_answer_s) * seats / answer_s)) + seats


def slow_pace_for_all(patience_s, answer_s, slow_answer_s, seats):
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


EXERCISE = function_exercise(
    "5.4",
    title="How long a queue?",
    question=(
        "You bound the waiting queue (those without a seat; vLLM's `max_num_queued_reqs` "
        "would count the seats too): who finds it "
        "full is refused at once. How long may it be at most, so that the last one in it still "
        "gets the whole answer within the patience, even if it is one of the slower answers? "
        "The server is full, so a seat falls free whenever one of the running is done. You "
        "are not told how many requests a second it completes: work that out first."
    ),
    kind="configure",
    minutes=7,
    difficulty=2,
    reference=longest_queue,
    cases=_servers,
    result=Whole("requests"),
    evidence=_queue_in_engine,
    wrong={
        whole_patience_to_the_queue: (
            "Your last one has waited for its whole patience when it gets a seat, and leaves "
            "just as it is served: all that work is wasted. Take the answer's own time off."
        ),
        mean_answer_for_the_slow: (
            "You leave room for an *average* answer. A quarter or so of those let in need more "
            "than that and are lost; the question asks for room for the slower ones."
        ),
        below_zero: (
            "A queue cannot be shorter than 0. Where a slow answer takes longer than the "
            "patience your formula is negative: nobody may wait then, so return 0."
        ),
        one_seat_serves: (
            "You let one seat work off the queue. With all seats taken, one of them falls free "
            "every answer_s/seats seconds."
        ),
        seats_counted_too: (
            "You count those in the seats as well. That is the value for vLLM's "
            "max_num_queued_reqs, which counts all in flight; asked are those who *wait*."
        ),
        slow_pace_for_all: (
            "You let the queue move as if every answer were a slow one. The queue moves at the "
            "mean pace, seats/answer_s; the slow answer is only this request's own."
        ),
    },
    hints=(
        "How many requests per second does a full server complete? (Little's law.)",
        "seats/answer_s per second. How many seconds may the last one wait?",
        "math.floor((patience_s - slow_answer_s) * seats / answer_s), and never below 0.",
    ),
    explanation=(
        "Little's law, as a dial: length = time left for waiting × pace. A longer queue does "
        "not serve more, it only makes those in it late."
    ),
)
