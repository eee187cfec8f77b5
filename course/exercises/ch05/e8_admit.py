"""Exercise 5.8, Your own gate: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch05.server import PATIENCE, SCORED_S, rush, score, trial
from course.exercises.definition import TODO, Unacceptable
from course.exercises.values import Figures
from course.serving.engine import Admission, AdmissionPolicy, ArrivingRequest, ServerState
from course.serving.scenes.burst import PATIENCE_S, PROMISE

BUILT_IN = {
    "a queue of at most 16": Admission(max_waiting_requests=16),
    "a predicted wait of at most 2 s": Admission(max_predicted_wait_s=2.0),
}
"""The gates that a policy has to beat, by what they do."""


_MARGIN = 2.0  # percentage points


_WINDOW = f"of the requests first sent in the seconds {SCORED_S[0]:g} to {SCORED_S[1]:g}"


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


def nobody_refused(request, state):
    """Nobody is turned away."""
    return "accept"


def no_waiting_at_all(request, state):
    """Nobody has to wait."""
    return "accept" if state.free_seats > 0 else "reject"


def retries_are_to_blame(request, state):
    """Retries are what causes the storm."""
    return "accept" if request.attempt == 1 else "reject"


def answer_takes_no_time(request, state):
    """The wait is compared with the time that is left, and the answer takes none."""
    left_s = request.end_deadline_s - state.now_s
    return "accept" if state.predicted_wait_s < left_s else "reject"


class Rush(dict[str, Any]):
    """One rush as a case: an example of what the policy is asked, and the seed of the rest."""

    def __init__(self, seed: int) -> None:
        super().__init__(request=_first_attempt(300, 60), state=_quiet(8))
        self.seed = seed


def _first_attempt(prompt_tokens: int, output_tokens: int) -> ArrivingRequest:
    """A request that has just been sent for the first time, with all its patience ahead."""
    return ArrivingRequest(
        index=0, attempt=1, arrival_s=1.0, first_sent_s=1.0, prompt_tokens=prompt_tokens,
        predicted_output_tokens=output_tokens, priority=0.0, tenant="", patience=PATIENCE,
        first_token_deadline_s=float("inf"), end_deadline_s=1.0 + PATIENCE_S,
    )  # fmt: skip


def _quiet(running: int) -> ServerState:
    """The server at the same moment, with nobody waiting."""
    return ServerState(
        now_s=1.0, waiting_requests=0, waiting_tokens=0, running_requests=running,
        free_seats=40 - running, kv_used=0.0125 * running, tokens_per_s=4000.0,
        predicted_wait_s=0.0,
    )  # fmt: skip


def _unseen(rng: np.random.Generator) -> list[Rush]:
    return [Rush(int(seed)) for seed in rng.integers(2**31, size=2)]


def in_time_and_wasted(policy: AdmissionPolicy | Admission, seed: int) -> tuple[float, float]:
    """Return per cent of the requests answered in time, and of the tokens that were for nobody."""
    run = trial(policy, seed=seed)
    attainment = run.attainment(PROMISE, *SCORED_S) or 0.0
    # a gate that refuses everybody computes nothing, and wastes nothing
    return 100 * attainment, 100 * run.wasted_tokens / max(run.computed_tokens, 1)


def refused_when_empty(policy: Any) -> float:
    """Return per cent of requests like the rush's that a policy refuses on an empty server."""
    work, state = rush(60.0, seed=0), _quiet(0)
    lengths = zip(work.prompt_tokens[:1000], work.output_tokens[:1000], strict=True)
    verdicts = [policy(_first_attempt(int(p), int(o)), state) for p, o in lengths]
    return 100 * float(np.mean([verdict == "reject" for verdict in verdicts]))


def _run(policy: Any, case: Any) -> Any:
    if policy(case["request"], case["state"]) is TODO:
        return TODO
    try:
        return *in_time_and_wasted(policy, case.seed), refused_when_empty(policy)
    except ValueError as error:
        raise Unacceptable(f"Your run was stopped: {error}.") from None


def best_built_in(seed: int) -> tuple[str, float]:
    """Return the better built-in gate on a rush, and its per cent answered in time."""
    scores = {name: score(gate, seed=seed) for name, gate in BUILT_IN.items()}
    best = max(scores, key=lambda name: scores[name])
    return best, scores[best]


def _beats_the_built_in(seen: Any, reference: Any, case: Any) -> str | None:
    name, bar = best_built_in(case.seed)
    if seen[0] >= bar + _MARGIN:
        return None
    said = (
        f"Your policy answers {seen[0]:.1f} % in time {_WINDOW}; the better of the two built-in "
        f"gates ({name}) {bar:.1f} % on the same rush, and yours is to be at least {_MARGIN:g} "
        "percentage points above it."
    )
    return f"{said} {_of_the_empty_server(seen[2])}".rstrip()


def _of_the_empty_server(refused: float) -> str:
    """What a policy does where nobody has to be refused; nothing where it lets all in."""
    if refused == 0:
        return ""
    if refused == 100:
        return "It refuses every request, even on an empty server."
    return (
        f"Even on an empty server, with all {PATIENCE_S:g} s ahead of them, it refuses "
        f"{refused:.1f} % of the requests: see what it reckons for the longest answers, of 160 "
        "tokens."
    )


def _beside(seen: Any, case: Any) -> str:
    name, bar = best_built_in(case.seed)
    everyone, wasted = in_time_and_wasted(Admission(), case.seed)
    return (
        f"on the same rush, {_WINDOW}, {name}: {bar:.1f} % in time; everybody let in: "
        f"{everyone:.1f} % in time, {wasted:.0f} % of the work for nobody"
    )


EXERCISE = function_exercise(
    "5.8",
    title="Your own gate",
    question=(
        "Write the policy that decides at the door. It is run on two rushes that nobody has "
        "seen: 8.5 requests/s for 15 s, three times as many for 15 s, then 8.5 again for 25 s; "
        "patience 10 s for the whole answer, three attempts, and a server that does not notice "
        "who left. The longest answer has 160 tokens. Scored is the share answered in time, by "
        "the user's clock, of the requests first sent in the seconds 0 to 45 (the last ten "
        "seconds' may rightly still be waiting). You pass when yours is two percentage points "
        "above the better of two built-in gates: a queue of at most 16, and a predicted wait "
        "of at most 2 s. `from course.exercises.ch05.server import score, trial`: then "
        "`score(admit, seed=1)` is that very share, in per cent, on a rush of your own. To "
        "measure what a token of an answer takes: `table = trial(seed=1).attempts`, and over "
        "the attempts that are `table.finished` add up `table.end_s - table.first_token_s` and "
        "divide by the sum of `table.emitted_tokens`."
    ),
    kind="policy",
    minutes=15,
    difficulty=3,
    reference=admit,
    cases=_unseen,
    observe=_run,
    result=Figures(
        ("answered in time", "work for nobody", "refused by an empty server"),
        ("%", "%", "%"),
        noun="more requests answered in time than by the built-in gates",
        within="two percentage points above the better one",
    ),
    accept=_beats_the_built_in,
    evidence=_beside,
    describe=lambda case: "a rush of 15 s at three times the usual load",
    time_limit_s=40.0,
    wrong={
        nobody_refused: (
            "You let everybody in, and nearly everybody is late. During the burst 25 come each "
            "second and 11 can be served: some cannot be, and the only choice is whether they "
            "learn it at once or after ten seconds, along with all the others."
        ),
        no_waiting_at_all: (
            "You refuse whoever would have to wait. That is safe, and it wastes the patience: "
            "a request with eight seconds left may well wait for two of them."
        ),
        retries_are_to_blame: (
            "You refuse the retries and let every first attempt in. The first ones alone are "
            "more than the server can do in a burst, so the queue makes them all late; and a "
            "retry that came early after a refusal would still have had time."
        ),
        answer_takes_no_time: (
            "You compare the wait alone with the time that is left. Then the request begins "
            "its answer just when its client leaves: add what the answer itself takes, with "
            "some room."
        ),
    },
    hints=(
        "Who can still make it? Compare the time that a request has left with what it needs.",
        "It needs its wait (state.predicted_wait_s) and its answer: about 0.045 s a predicted "
        "output token in a full server.",
        "Accept if wait + answer is below some 80 % of the time left. The built-in gates do "
        "not know how long this request's answer is; yours does.",
    ),
    explanation=(
        "Refusing exactly those who cannot make it leaves the seats to those who can. The "
        "price: long answers are refused first. Whether that is fair is for you to say. Mind "
        "the cliff: at 0.05 s a token, 160 tokens need 8 s, which is not below 80 % of 10 s, "
        "and every longest answer would be refused even by an empty server. `first_sent_s`, "
        "the user's clock, adds little here: a refused client is back within seconds, and the "
        "fifth that is kept in reserve covers them. With no reserve you would need it."
    ),
)
