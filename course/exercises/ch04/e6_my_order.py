"""Exercise 4.6, Shortest first, and nobody forgotten: reference, wrong answers and judging."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch04.server import try_order
from course.exercises.definition import TODO, Unacceptable
from course.exercises.values import Figures

LONGEST_WAIT_S = 4.0


CHATS_SHARE = 0.95


# Seeds whose half minute is busy: in a quiet one nobody waits long under any order.
_BUSY_SEEDS = (101, 102, 103, 105, 106, 107, 108, 109, 111, 115, 116, 117, 118, 119, 120, 121)


def my_order(
    now_s: float,
    arrival_s: float,
    prompt_tokens: int,
    predicted_output_tokens: int,
    priority: float,
) -> float:
    """The key of one waiting request: the smallest goes first.

    Called for everybody who waits whenever a seat may be free. now_s − arrival_s is how long this
    one has waited so far, seconds.
    """
    if now_s - arrival_s > 3.0:
        return arrival_s - 1e9  # before all others, the longest waiting first
    return float(prompt_tokens)


def first_come_is_fair(now_s, arrival_s, prompt_tokens, predicted_output_tokens, priority):
    """Fair is who came first."""
    return arrival_s


def shortest_first_forgets(now_s, arrival_s, prompt_tokens, predicted_output_tokens, priority):
    """The short ones always first."""
    return float(prompt_tokens)


def answers_for_prompts(now_s, arrival_s, prompt_tokens, predicted_output_tokens, priority):
    """The short answers always first."""
    return float(predicted_output_tokens)


def overdue_goes_last(now_s, arrival_s, prompt_tokens, predicted_output_tokens, priority):
    """A limit whose sign is the wrong way round."""
    if now_s - arrival_s > 3.0:
        return arrival_s + 1e9
    return float(prompt_tokens)


def longest_first(now_s, arrival_s, prompt_tokens, predicted_output_tokens, priority):
    """The long ones first, so that they are out of the way."""
    return -float(prompt_tokens)


class Queue(dict[str, Any]):
    """One queue as a case: an example of what the order is asked, and the seed of the traffic."""

    def __init__(self, seed: int, waited_s: float) -> None:
        super().__init__(
            now_s=9.0,
            arrival_s=9.0 - waited_s,
            prompt_tokens=300 + seed,
            predicted_output_tokens=100 + seed % 7,
            priority=0.0,
        )
        self.seed = seed


def _queues(rng: np.random.Generator) -> list[Queue]:
    first, second = rng.choice(_BUSY_SEEDS, size=2, replace=False)
    return [Queue(int(first), 0.5), Queue(int(second), 3.5)]


def _run(order: Any, case: Any) -> Any:
    key = order(*case.values())
    if key is TODO:
        return TODO
    if isinstance(key, bool) or not isinstance(key, int | float | np.number) or math.isnan(key):
        raise Unacceptable(f"Your order returned {key!r}; it must return a number, the key.")
    try:
        return tuple(try_order(order, case.seed).values())
    except ValueError as error:
        raise Unacceptable(f"Your run was stopped: {error}.") from None


def _nobody_forgotten(seen: Any, _: Any, case: Any) -> str | None:
    chats_s, _, _, longest_s = seen
    if longest_s > LONGEST_WAIT_S:
        return (
            f"Somebody waited {longest_s:.1f} s for the first token; {LONGEST_WAIT_S:g} s is the "
            "most that is allowed."
        )
    before_s = try_order("fcfs", case.seed)["chats on average, s"]
    if chats_s > CHATS_SHARE * before_s:
        return (
            f"The chats wait {chats_s:.2f} s on average, and {before_s:.2f} s when whoever came "
            "first goes first: at least 5 % less is asked."
        )
    return None


def _same_requests(_: Any, case: Any) -> str:
    fcfs, short = try_order("fcfs", case.seed), try_order(shortest_first_forgets, case.seed)
    return "; ".join(
        f"{name}: chats {row['chats on average, s']:.2f} s on average (P95 "
        f"{row['P95 of the chats, s']:.1f} s), longest wait {row['longest wait of all, s']:.1f} s"
        for name, row in (("first come, first served", fcfs), ("shortest prompt first", short))
    )


EXERCISE = function_exercise(
    "4.6",
    title="Shortest first, and nobody forgotten",
    question=(
        "A server with 24 seats is nearly full: 16 chats a second, and a report of 8,000 "
        "tokens every 3 s. Write the order of its waiting queue. The chats must wait less on "
        "average than under first come, first served (at least 5 % less, on the very same "
        "requests), and *nobody* may wait more than 4 s for the first token. "
        '`try_order("fcfs")` and `try_order(my_order)` show who pays.'
    ),
    kind="policy",
    minutes=9,
    difficulty=2,
    reference=my_order,
    cases=_queues,
    observe=_run,
    result=Figures(
        ("chats on average", "P95 of the chats", "reports on average", "longest wait"),
        ("s", "s", "s", "s"),
        noun="chats that wait at least 5 % less, and no wait over 4 s",
        within="both, on the same requests",
    ),
    accept=_nobody_forgotten,
    evidence=_same_requests,
    describe=lambda case: "16 chats a second and a report every 3 s, that you have not seen",
    time_limit_s=20.0,
    wrong={
        first_come_is_fair: (
            "You keep the order of arrival. Then every chat behind a report waits for all of "
            "it: the mean wait is what shortest first improves."
        ),
        shortest_first_forgets: (
            "The mean is excellent, and a report waits as long as chats keep coming: every "
            "newcomer goes before it. Who has waited too long must go first."
        ),
        answers_for_prompts: (
            "You sort by the answer's length. Here it is exact, in production a guess; and "
            "without a limit the long answers are forgotten just as the long prompts would "
            "be."
        ),
        overdue_goes_last: (
            "The smallest key goes first. Yours gives whoever is overdue a huge key, so that "
            "they go last, and wait even longer."
        ),
        longest_first: (
            "You take the longest first. Then everybody waits for them, and the shortest "
            "prompts wait longest of all."
        ),
    },
    hints=(
        "Start with float(prompt_tokens) as the key and try it. Who waits longest?",
        "Whoever has waited more than some limit gets a key smaller than any prompt's length.",
        "if now_s - arrival_s > 3.0: return arrival_s - 1e9",
    ),
    explanation=(
        "The mean wait falls, since a short job in front costs little. Somebody pays: the "
        "reports, and with the limit some chats too, whose P95 is worse than under first come, "
        "first served. An order moves waiting from one to another; it makes no seats."
    ),
)
