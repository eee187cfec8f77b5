"""Exercise 5.7, A bucket for each tenant: reference, wrong answers and judging."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Vector
from course.serving.engine import Admission, Verdict, simulate_service
from course.serving.pricing import LinearStepCost
from course.serving.workload import Workload


def let_in(
    arrival_s: np.ndarray, tokens: np.ndarray, tokens_per_s: float, burst_tokens: float
) -> np.ndarray:
    """Which requests of one tenant a token bucket lets in: True or False for each.

    arrival_s: when they come, in order; tokens: what each needs, prompt and predicted answer. The
    bucket is full at time 0, is filled at tokens_per_s, and never holds more than burst_tokens. A
    request that finds enough, even if just enough, takes its tokens; one that does not is refused
    and takes nothing.
    """
    level, last_s = burst_tokens, 0.0
    verdicts = []
    for now_s, need in zip(arrival_s, tokens, strict=True):
        level = min(burst_tokens, level + tokens_per_s * (now_s - last_s))
        last_s = now_s
        verdicts.append(bool(level >= need))
        if level >= need:
            level -= need
    return np.array(verdicts)


def refused_pay_too(arrival_s, tokens, tokens_per_s, burst_tokens):
    """Every request empties the bucket, let in or not."""
    level, last_s = burst_tokens, 0.0
    verdicts = []
    for now_s, need in zip(arrival_s, tokens, strict=True):
        level = min(burst_tokens, level + tokens_per_s * (now_s - last_s))
        last_s = now_s
        verdicts.append(bool(level >= need))
        level = max(0.0, level - need)
    return np.array(verdicts)


def bucket_without_a_rim(arrival_s, tokens, tokens_per_s, burst_tokens):
    """What is not used is saved up for ever."""
    level, last_s = burst_tokens, 0.0
    verdicts = []
    for now_s, need in zip(arrival_s, tokens, strict=True):
        level += tokens_per_s * (now_s - last_s)
        last_s = now_s
        verdicts.append(bool(level >= need))
        if level >= need:
            level -= need
    return np.array(verdicts)


def into_debt(arrival_s, tokens, tokens_per_s, burst_tokens):
    """Whoever finds anything in the bucket may go in."""
    level, last_s = burst_tokens, 0.0
    verdicts = []
    for now_s, need in zip(arrival_s, tokens, strict=True):
        level = min(burst_tokens, level + tokens_per_s * (now_s - last_s))
        last_s = now_s
        verdicts.append(bool(level > 0))
        if level > 0:
            level -= need
    return np.array(verdicts)


def just_enough_refused(arrival_s, tokens, tokens_per_s, burst_tokens):
    """Something must be left in the bucket."""
    level, last_s = burst_tokens, 0.0
    verdicts = []
    for now_s, need in zip(arrival_s, tokens, strict=True):
        level = min(burst_tokens, level + tokens_per_s * (now_s - last_s))
        last_s = now_s
        verdicts.append(bool(level > need))
        if level > need:
            level -= need
    return np.array(verdicts)


def whole_windows(arrival_s, tokens, tokens_per_s, burst_tokens):
    """A fresh allowance each time that the bucket would have filled."""
    length_s = burst_tokens / tokens_per_s
    window, left = -1, 0.0
    verdicts = []
    for now_s, need in zip(arrival_s, tokens, strict=True):
        if math.floor(now_s / length_s) != window:
            window, left = math.floor(now_s / length_s), burst_tokens
        verdicts.append(bool(left >= need))
        if left >= need:
            left -= need
    return np.array(verdicts)


def empty_at_first(arrival_s, tokens, tokens_per_s, burst_tokens):
    """A bucket that has to fill before anybody gets in."""
    level, last_s = 0.0, 0.0
    verdicts = []
    for now_s, need in zip(arrival_s, tokens, strict=True):
        level = min(burst_tokens, level + tokens_per_s * (now_s - last_s))
        last_s = now_s
        verdicts.append(bool(level >= need))
        if level >= need:
            level -= need
    return np.array(verdicts)


@dataclass(frozen=True)
class Verdicts(Vector):
    """A row of True and False, one a request."""

    noun: str = "a row of True and False, one for each request"

    @property
    def tolerance(self) -> str:
        """Every one must be right."""
        return "every verdict"

    def show(self, value: Any) -> str:
        """How many were let in."""
        row = np.asarray(value, dtype=bool).ravel()
        return f"{int(row.sum())} of {row.size} let in"

    def magnitude(self, value: Any) -> str:
        """How many must be let in."""
        return self.show(value)


def _tenants(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Tenants that pause, then come in a crowd; from within their rate to three times over it.

    The first asks for exactly what its bucket holds, again and again.
    """
    cases: list[dict[str, Any]] = [
        {
            "arrival_s": np.array([0.0, 1.0, 4.0, 8.0, 9.0, 16.0]),
            "tokens": np.array([400, 100, 300, 400, 400, 400]),
            "tokens_per_s": 100.0,
            "burst_tokens": 400,
        }
    ]
    for over in (1.5, 3.0, 0.9, 2.0):
        gaps_s = rng.gamma(0.3, 1 / 0.3, size=120)
        tokens = np.ceil(rng.lognormal(6.0, 0.7, size=120)).astype(np.int64)
        rate = round(float(tokens.mean() / over), 1)
        cases.append(
            {
                "arrival_s": np.cumsum(gaps_s).round(3),
                "tokens": tokens,
                "tokens_per_s": rate,
                "burst_tokens": round(float(rng.uniform(5, 9)) * float(tokens.mean())),
            }
        )
    return cases


def gate_lets_in(case: Any) -> np.ndarray:
    """Return which requests of a case the engine's own bucket lets in, as True or False."""
    tokens = case["tokens"]
    work = Workload(case["arrival_s"], tokens - 1, np.ones_like(tokens))
    gate = Admission(
        tenant_tokens_per_s=case["tokens_per_s"], tenant_burst_tokens=case["burst_tokens"]
    )
    run = simulate_service(work, LinearStepCost(fixed_s=0.01), admission=gate)
    return np.asarray(run.attempts.verdict != Verdict.REJECT)


def _as_the_gate(verdicts: Any, case: Any) -> str:
    theirs = gate_lets_in(case)
    mine = np.asarray(verdicts, dtype=bool).ravel()
    if mine.size != theirs.size:
        return f"the engine's own bucket lets in {int(theirs.sum())} of {theirs.size}"
    return (
        f"the engine's own bucket lets in {int(theirs.sum())} of {theirs.size}; "
        f"{int((mine == theirs).sum())} verdicts agree, {int((mine & ~theirs).sum())} that it "
        "refuses are let in by yours"
    )


EXERCISE = function_exercise(
    "5.7",
    title="A bucket for each tenant",
    question=(
        "One tenant's crowd must not be everybody's burst. Write the token bucket that decides "
        "for one tenant: it may save up a little (`burst_tokens`) and in the long run gets "
        "`tokens_per_s`. Your verdicts are compared with those of the engine's own gate."
    ),
    kind="policy",
    minutes=8,
    difficulty=2,
    reference=let_in,
    cases=_tenants,
    result=Verdicts(),
    evidence=_as_the_gate,
    wrong={
        refused_pay_too: (
            "Your refused requests empty the bucket as well. A tenant that keeps knocking then "
            "never gets in again: only those let in take tokens."
        ),
        bucket_without_a_rim: (
            "Your bucket fills without end. After a quiet night the tenant may send the whole "
            "night's tokens in one second, and that burst is what the bucket is there to stop."
        ),
        into_debt: (
            "You let in whoever finds anything in the bucket. A request of 3,000 tokens gets "
            "in on the last 10: compare with what it needs."
        ),
        just_enough_refused: (
            "You refuse a request that needs exactly what the bucket holds. A full bucket of "
            "400 is enough for 400 tokens: compare with >=."
        ),
        whole_windows: (
            "You give out a fresh allowance in each window. At the border of two windows a "
            "tenant can send twice the burst within a moment; a bucket fills continuously."
        ),
        empty_at_first: (
            "Your bucket begins empty, so that a tenant who comes after a pause is refused. "
            "It is full at time 0."
        ),
    },
    hints=(
        "Keep two numbers: what the bucket holds, and when that was so.",
        "At each arrival first fill: min(burst_tokens, level + tokens_per_s · (now − last)).",
        "Then compare the level with the need, and take it only if it is enough.",
    ),
    explanation=(
        "Two numbers a tenant are enough. The rate says what it may have in the long run, the "
        "burst how uneven it may be; who stays inside both never notices the bucket."
    ),
)
