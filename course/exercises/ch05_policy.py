# mypy: allow-untyped-defs
"""Exercise 5.8: a policy of the student's own, run against the built-in gates on unseen rushes.

The policies carry no annotations: a student's do not, and each is copied into a notebook as it is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch05_server import PATIENCE, PROMISE, rush, serve
from course.exercises.definition import TODO, Unacceptable, Wrong
from course.exercises.values import Figures
from course.serving.engine import Admission, ArrivingRequest, ServerState
from course.serving.engine.admission import AdmissionPolicy

BUILT_IN = {
    "a queue of at most 16": Admission(max_waiting_requests=16),
    "a predicted wait of at most 2 s": Admission(max_predicted_wait_s=2.0),
}
"""The gates that a policy has to beat, by what they do."""

_MARGIN = 2.0  # percentage points
_BEFORE_S, _BURST_S, _AFTER_S = 15.0, 15.0, 25.0


def admit(request, state):
    """What to do with a request that comes in: "accept" it or "reject" it.

    request: end_deadline_s (when its client gives up), prompt_tokens, predicted_output_tokens,
    attempt (1, 2, 3), first_sent_s. state: now_s, predicted_wait_s (for a seat), waiting_requests,
    waiting_tokens, running_requests, free_seats, kv_used, tokens_per_s. Times in seconds.
    """
    left_s = request.end_deadline_s - state.now_s
    answer_s = 0.045 * request.predicted_output_tokens  # a token a step of some 40 ms
    needed_s = state.predicted_wait_s + answer_s
    return "accept" if needed_s < 0.8 * left_s else "reject"


def everybody(request, state):
    """Nobody is turned away."""
    return "accept"


def into_a_seat_or_not_at_all(request, state):
    """Nobody has to wait."""
    return "accept" if state.free_seats > 0 else "reject"


def no_second_attempts(request, state):
    """Retries are what causes the storm."""
    return "accept" if request.attempt == 1 else "reject"


def wait_inside_the_deadline(request, state):
    """The wait is compared with the time that is left, and the answer takes none."""
    left_s = request.end_deadline_s - state.now_s
    return "accept" if state.predicted_wait_s < left_s else "reject"


class Rush(dict[str, Any]):
    """One rush as a case: an example of what the policy is asked, and the seed of the rest."""

    def __init__(self, seed: int) -> None:
        request = ArrivingRequest(
            index=0, attempt=1, arrival_s=1.0, first_sent_s=1.0, prompt_tokens=300,
            predicted_output_tokens=60, priority=0.0, tenant="", patience=PATIENCE,
            first_token_deadline_s=float("inf"), end_deadline_s=11.0,
        )  # fmt: skip
        state = ServerState(
            now_s=1.0, waiting_requests=0, waiting_tokens=0, running_requests=8, free_seats=32,
            kv_used=0.1, tokens_per_s=4000.0, predicted_wait_s=0.0,
        )  # fmt: skip
        super().__init__(request=request, state=state)
        self.seed = seed


def _unseen(rng: np.random.Generator) -> list[Rush]:
    return [Rush(int(seed)) for seed in rng.integers(2**31, size=2)]


def in_time_and_wasted(policy: AdmissionPolicy | Admission, seed: int) -> tuple[float, float]:
    """Return per cent of the requests answered in time, and of the tokens that were for nobody."""
    work = rush(_BURST_S, 3.0, before_s=_BEFORE_S, after_s=_AFTER_S, seed=seed)
    run = serve(work, policy, seed=seed)
    # who asked in the last ten seconds may still be waiting rightly
    until_s = _BEFORE_S + _BURST_S + _AFTER_S - 10.0
    attainment = run.attainment(PROMISE, 0.0, until_s) or 0.0
    return 100 * attainment, 100 * run.wasted_tokens / run.computed_tokens


def _run(policy: Any, case: Any) -> Any:
    if policy(case["request"], case["state"]) is TODO:
        return TODO
    try:
        return in_time_and_wasted(policy, case.seed)
    except ValueError as error:
        raise Unacceptable(f"Your run was stopped: {error}.") from None


def best_built_in(seed: int) -> tuple[str, float]:
    """Return the better built-in gate on a rush, and its per cent answered in time."""
    scores = {name: in_time_and_wasted(gate, seed)[0] for name, gate in BUILT_IN.items()}
    best = max(scores, key=lambda name: scores[name])
    return best, scores[best]


def _beats_the_built_in(seen: Any, reference: Any, case: Any) -> str | None:
    name, bar = best_built_in(case.seed)
    if seen[0] >= bar + _MARGIN:
        return None
    return (
        f"Your policy answers {seen[0]:.1f} % in time; the better of the two built-in gates "
        f"({name}) {bar:.1f} % on the same rush, and yours is to be at least {_MARGIN:g} "
        "percentage points above it."
    )


def _beside(seen: Any, case: Any) -> str:
    name, bar = best_built_in(case.seed)
    everyone, wasted = in_time_and_wasted(Admission(), case.seed)
    return (
        f"on the same rush {name}: {bar:.1f} % in time; everybody let in: {everyone:.1f} % in "
        f"time, {wasted:.0f} % of the work for nobody"
    )


POLICY_EXERCISES = (
    function_exercise(
        "5.8",
        title="Your own gate",
        question=(
            "Write the policy that decides at the door. It is run on two rushes that nobody has "
            "seen: 8.5 requests/s, three times as many for 15 s, then 8.5 again; patience 10 s for "
            "the whole answer, three attempts, and a server that does not notice who left. Scored "
            "is the share of all requests that are answered in time, by the user's clock. You pass "
            "when yours is two percentage points above the better of two built-in gates: a queue "
            "of at most 16, and a predicted wait of at most 2 s. Try it on seeds of your own: "
            "`serve(rush(15, 3, seed=1), admit).attainment(PROMISE, 0, 200)`."
        ),
        track="stretch",
        kind="policy",
        minutes=15,
        difficulty=3,
        reference=admit,
        cases=_unseen,
        observe=_run,
        result=Figures(
            ("answered in time", "work for nobody"),
            ("%", "%"),
            noun="more requests answered in time than by the built-in gates",
            within="two percentage points above the better one",
        ),
        accept=_beats_the_built_in,
        evidence=_beside,
        describe=lambda case: "a rush of 15 s at three times the usual load",
        time_limit_s=40.0,
        wrong=(
            Wrong(
                "nobody-refused",
                everybody,
                "You let everybody in, and nearly everybody is late. During the burst 25 come each "
                "second and 11 can be served: some cannot be, and the only choice is whether they "
                "learn it at once or after ten seconds, along with all the others.",
            ),
            Wrong(
                "no-waiting-at-all",
                into_a_seat_or_not_at_all,
                "You refuse whoever would have to wait. That is safe, and it wastes the patience: "
                "a request with eight seconds left may well wait for two of them.",
            ),
            Wrong(
                "retries-are-to-blame",
                no_second_attempts,
                "You refuse the retries and let every first attempt in. The first ones alone are "
                "more than the server can do in a burst, so the queue makes them all late; and a "
                "retry that came early after a refusal would still have had time.",
            ),
            Wrong(
                "answer-takes-no-time",
                wait_inside_the_deadline,
                "You compare the wait alone with the time that is left. Then the request begins "
                "its answer just when its client leaves: add what the answer itself takes, with "
                "some room.",
            ),
        ),
        hints=(
            "Who can still make it? Compare the time that a request has left with what it needs.",
            "It needs its wait (state.predicted_wait_s) and its answer: about 0.045 s a predicted "
            "output token in a full server.",
            "Accept if wait + answer is below some 80 % of the time left. The built-in gates do "
            "not know how long this request's answer is; yours does.",
        ),
        explanation=(
            "Refusing exactly those who cannot make it leaves the seats to those who can. The "
            "price: long answers are refused first. Whether that is fair is for you to say."
        ),
    ),
)
