"""Judges an answer: runs it on fresh inputs, compares, and names the misconception behind a miss.

The student's own object is run, on copies of the inputs; the reference and the wrong answers run
on the same inputs. What is shown of the verdict is decided in `cards` and `checking`.
"""

from __future__ import annotations

import copy
import hashlib
import inspect
import math
import re
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from course.exercises import diagnosis, sandbox
from course.exercises.definition import NO_ANSWER, TODO, Exercise, Unacceptable, Verdict, Wrong
from course.exercises.values import (
    ValueKind,
    as_floats,
    describe_input,
    plain,
    short_repr,
    whole_repr,
)

Case = Mapping[str, Any]
CaseMaker = Callable[[np.random.Generator], Sequence[Case]]
Observe = Callable[[Any, Case], Any]
Accept = Callable[[Any, Any, Case], str | None]
Evidence = Callable[[Any, Case], str | None]

MISSING = object()
_ADDRESS = re.compile(r"0x[0-9a-fA-F]+")
_NOT_TRIED = "Nothing to judge yet: replace TODO in the cell above, run it, then run this check."


@dataclass(frozen=True)
class _Raised:
    """Stands for the value of a case on which an answer raised."""

    kind: str
    sentence: str


@dataclass(frozen=True)
class _Trials:
    """An answer's value (or `_Raised`, or TODO) on each case that it was run on."""

    values: tuple[Any, ...]
    timed_out: bool = False
    still_running: bool = False
    printed: str = ""


def call_answer(answer: Any, case: Case) -> Any:
    """The default observation: the answer called with the case's inputs, in their order."""
    return answer(*case.values())


@dataclass(frozen=True)
class CaseJudge:
    """Judges an answer by what is observed of it on several cases.

    `cases(rng)` draws the cases; `observe(answer, case)` gives the value judged (by default the
    answer called with the case's inputs); `accept(value, expected, case)` gives None or a
    sentence on what misses (by default `kind.same`); `evidence(value, case)` may add a row, such
    as a simulation's result at the student's own value. `parameters` are the reference's, or None
    where the answer is a value and no function.
    """

    answer_name: str
    parameters: tuple[str, ...] | None
    reference: Any
    wrong: tuple[Wrong, ...]
    cases: CaseMaker
    kind: ValueKind
    observe: Observe = call_answer
    accept: Accept | None = None
    evidence: Evidence | None = None
    describe: Callable[[Case], str] | None = None
    value_kind: ValueKind | None = None

    def __call__(self, answer: object, rng: np.random.Generator, limit_s: float) -> Verdict:
        """The verdict on `answer`."""
        unusable = self._unusable(answer)
        if unusable:
            return _failed(unusable, fingerprint=NO_ANSWER)
        cases = self.cases(rng)
        trials = self._try(answer, cases, limit_s)
        if any(value is TODO for value in trials.values):
            return self._todo(trials, cases)
        if trials.timed_out:
            return self._too_slow(trials, cases, limit_s)
        expected = self.reference_values(cases)
        misses = self._misses(trials, expected, cases)
        right = sum(miss is None for miss in misses)
        if right == len(cases):
            return self._passed(trials, cases)
        return self._explained(answer, trials, expected, cases, misses)

    def reference_values(self, cases: Sequence[Case]) -> tuple[Any, ...]:
        """What is observed of the reference on each case."""
        return self._observed(self.reference, cases)

    def _observed(self, answer: Any, cases: Sequence[Case]) -> tuple[Any, ...]:
        """The course's own answers, run without a limit; their exceptions are values too."""
        values: list[Any] = []
        with sandbox.contained():
            for case in cases:
                try:
                    values.append(self.observe(answer, copy.deepcopy(case)))
                except Exception as error:
                    values.append(_Raised(type(error).__name__, str(error)))
        return tuple(values)

    def _unusable(self, answer: object) -> str | None:
        """Why an object cannot even be tried, in a sentence."""
        if self.parameters is None:
            if self.value_kind is None:
                return None
            try:
                usable = self.value_kind.problem(answer) is None
            except Exception:  # an object of the student's own that cannot be looked at
                usable = False
            if usable:
                return None
            return f"Your answer is {short_repr(answer)}; it must be {self.value_kind.expected}."
        if not callable(answer):
            return (
                f"check needs the function itself, {self.answer_name} without parentheses or "
                f"quotes; it was given {short_repr(answer)}."
            )
        try:
            inspect.signature(answer).bind(*self.parameters)
        except (TypeError, ValueError):
            asked = ", ".join(self.parameters)
            return f"Your function does not accept the stub's arguments: keep ({asked})."
        return None

    def _try(self, answer: Any, cases: Sequence[Case], limit_s: float) -> _Trials:
        values: list[Any] = []
        printed = ""
        ends = time.monotonic() + limit_s
        for index, case in enumerate(cases):
            given = copy.deepcopy(case)
            left = max(0.05, ends - time.monotonic())
            outcome = sandbox.run(partial(self.observe, answer, given), left, seed=index)
            printed = printed or outcome.printed
            if outcome.timed_out:
                return _Trials(tuple(values), True, outcome.still_running, printed)
            if isinstance(outcome.error, Unacceptable):
                values.append(_Raised("Unacceptable", str(outcome.error)))
            elif outcome.error is not None:
                sentence = sandbox.describe_error(outcome.error)
                values.append(_Raised(type(outcome.error).__name__, sentence))
            else:
                values.append(outcome.value)
        return _Trials(tuple(values), printed=printed)

    def _misses(
        self, trials: _Trials, expected: Sequence[Any], cases: Sequence[Case]
    ) -> list[str | None]:
        """For each case None where the value is right, else a sentence."""
        misses: list[str | None] = []
        for value, right, case in zip(trials.values, expected, cases, strict=True):
            if isinstance(value, _Raised):
                misses.append(value.sentence)
                continue
            trouble = self.kind.problem(value)
            if trouble is None and self.accept is not None:
                trouble = self.accept(value, right, case)
            elif trouble is None and not self.kind.same(value, right):
                trouble = "The value misses the expected one."
            misses.append(trouble)
        return misses

    def _todo(self, trials: _Trials, cases: Sequence[Case]) -> Verdict:
        """The stub untouched, or TODO left on one of its paths."""
        finished = [value is not TODO for value in trials.values]
        if not any(finished):
            return Verdict("todo", _NOT_TRIED, fingerprint="todo", printed=trials.printed)
        where = self._describe(cases[finished.index(False)])
        return _failed(
            "Your answer still returns TODO for some inputs.",
            fingerprint="todo in part",
            facts=(("Inputs", where),),
            printed=trials.printed,
        )

    def _too_slow(self, trials: _Trials, cases: Sequence[Case], limit_s: float) -> Verdict:
        message = (
            f"Your answer was stopped after {plain(limit_s)} s: "
            "is there a loop that never ends, or a wait?"
        )
        if trials.still_running:
            message += " It could not be ended: restart the kernel before you go on."
        where = self._describe(cases[len(trials.values)])
        facts = (("Inputs", where), ("Time limit", f"{plain(limit_s)} s for all inputs together"))
        return _failed(message, fingerprint=NO_ANSWER, facts=facts, printed=trials.printed)

    def _passed(self, trials: _Trials, cases: Sequence[Case]) -> Verdict:
        message = "Right on every input tried." if len(cases) > 1 else "Right."
        facts = [
            ("Inputs", self._describe(cases[0])),
            ("Your answer gave", self.kind.show(trials.values[0])),
            ("Right on", f"{len(cases)} of {len(cases)} inputs ({self.kind.tolerance})"),
        ]
        if self.evidence is not None and (seen := self.evidence(trials.values[0], cases[0])):
            facts.append(("Seen in simulation", seen))
        return Verdict(
            "passed",
            message,
            fingerprint=_fingerprint(trials.values),
            facts=_filled(facts),
            printed=trials.printed,
        )

    def _explained(
        self,
        answer: Any,
        trials: _Trials,
        expected: Sequence[Any],
        cases: Sequence[Case],
        misses: Sequence[str | None],
    ) -> Verdict:
        """The verdict on an answer that misses somewhere: which, by how much, and why."""
        misconception, remark = self._misconception(answer, trials.values, expected, cases)
        first = self._most_telling(trials.values, expected, misses)
        if misconception is None or self.accept is not None:
            message = self._message(trials.values, expected, misses, first)
        else:
            message = remark or _count(misses)
        return _failed(
            message,
            misconception=misconception,
            fingerprint=_fingerprint(trials.values) if self._usable(trials.values) else NO_ANSWER,
            facts=self._facts(trials.values, expected, cases, misses, first),
            printed=trials.printed,
        )

    def _usable(self, values: Sequence[Any]) -> bool:
        """Whether any input drew a value that can be compared at all."""
        return any(
            not isinstance(value, _Raised) and self.kind.problem(value) is None for value in values
        )

    def _most_telling(
        self, values: Sequence[Any], expected: Sequence[Any], misses: Sequence[str | None]
    ) -> int:
        """The input to show: the first that raises, else the one that is missed by the most."""
        missed = [index for index, miss in enumerate(misses) if miss is not None]

        def error(index: int) -> float:
            mine, right = as_floats([values[index]]), as_floats([expected[index]])
            if mine is None or right is None or len(mine) != len(right):
                return math.inf
            scale = np.maximum(np.abs(right), 1e-300)
            return float(np.max(np.abs(np.asarray(mine) - right) / scale))

        return max(missed, key=error)

    def _message(
        self,
        values: Sequence[Any],
        expected: Sequence[Any],
        misses: Sequence[str | None],
        first: int,
    ) -> str:
        sentence = misses[first] or ""
        if isinstance(values[first], _Raised) or self.kind.problem(values[first]) is not None:
            return sentence
        if self.accept is not None:
            return sentence
        mine, theirs = as_floats(values), as_floats(expected)
        if mine is not None and theirs is not None:
            told = diagnosis.diagnose(mine, theirs)
            if told is not None:
                return told
        right = misses.count(None)
        return sentence if not right else f"{sentence} {_count(misses)} Which differ?"

    def _facts(
        self,
        values: Sequence[Any],
        expected: Sequence[Any],
        cases: Sequence[Case],
        misses: Sequence[str | None],
        first: int,
    ) -> tuple[tuple[str, str], ...]:
        value, case = values[first], cases[first]
        usable = not isinstance(value, _Raised) and self.kind.problem(value) is None
        if isinstance(value, _Raised):
            gave = "" if value.kind == "Unacceptable" else "an exception"
        else:
            gave = self.kind.show(value) if usable else short_repr(value)
        near = self.kind.magnitude(expected[first])
        facts = [
            ("Inputs", self._describe(case)),
            ("Your answer gave", gave),
            ("The check expected", ", ".join(filter(None, (self.kind.expected, near)))),
            ("Tolerance", self.kind.tolerance),
        ]
        if usable and self.evidence is not None and (seen := self.evidence(value, case)):
            facts.append(("Seen in simulation", seen))
        return _filled(facts)

    def _describe(self, case: Case) -> str:
        if self.describe is not None:
            return self.describe(case)
        return "; ".join(describe_input(name, value) for name, value in case.items())

    def _misconception(
        self, answer: Any, values: Sequence[Any], expected: Sequence[Any], cases: Sequence[Case]
    ) -> tuple[str | None, str | None]:
        """The wrong answer that gives the same values on the same inputs, and a remark."""
        if all(isinstance(value, _Raised) for value in values):
            return None, None
        results = [(wrong, self._observed(wrong.answer, cases)) for wrong in self.wrong]
        for wrong, theirs in results:
            if self._alike(values, theirs):
                return wrong.misconception, None
        for wrong in self.wrong:
            if wrong.also is not None and self.parameters is None and wrong.also(answer):
                return wrong.misconception, None
        return self._scaled_misconception(values, expected, results)

    def _scaled_misconception(
        self,
        values: Sequence[Any],
        expected: Sequence[Any],
        results: Sequence[tuple[Wrong, Sequence[Any]]],
    ) -> tuple[str | None, str | None]:
        """A misconception with a unit slip on top of it; a unit slip alone is told by itself."""
        mine, right = as_floats(values), as_floats(expected)
        if mine is None or right is None or self.accept is not None:
            return None, None
        if diagnosis.constant_factor(mine, right) is not None:
            return None, None
        for wrong, theirs in results:
            other = as_floats(theirs)
            factor = None if other is None else diagnosis.constant_factor(mine, other)
            if factor is None or not any(
                abs(factor / unit - 1) < 1e-4 for unit in diagnosis.UNIT_FACTORS
            ):
                continue
            return wrong.misconception, f"Besides, your values are {diagnosis.scaled(factor)}."
        return None, None

    def _alike(self, values: Sequence[Any], others: Sequence[Any]) -> bool:
        for value, other in zip(values, others, strict=True):
            if isinstance(value, _Raised) or isinstance(other, _Raised):
                both = isinstance(value, _Raised) and isinstance(other, _Raised)
                if not both or value.kind != other.kind:
                    return False
            elif self.kind.problem(value) or self.kind.problem(other):
                # two NaNs or two infinities can still be one misconception
                if whole_repr(value) != whole_repr(other):
                    return False
            elif not self.kind.same(value, other):
                return False
        return True


@dataclass(frozen=True)
class FreeJudge:
    """Wraps a judge written by hand, `judge(answer, rng) -> Verdict`, in the time limit."""

    judge: Callable[[Any, np.random.Generator], Verdict]

    def __call__(self, answer: object, rng: np.random.Generator, limit_s: float) -> Verdict:
        """The verdict on `answer`; an exception or a time-out becomes a sentence."""
        outcome = sandbox.run(lambda: self.judge(answer, rng), limit_s)
        if outcome.timed_out:
            message = f"Your answer was stopped after {plain(limit_s)} s: does a loop never end?"
            return _failed(message, fingerprint="timeout", printed=outcome.printed)
        if outcome.error is not None:
            sentence = (
                str(outcome.error)
                if isinstance(outcome.error, Unacceptable)
                else sandbox.describe_error(outcome.error)
            )
            return _failed(sentence, fingerprint=sentence, printed=outcome.printed)
        verdict: Verdict = outcome.value
        return replace(verdict, printed=verdict.printed or outcome.printed)


def judge_answer(
    exercise: Exercise, answer: object, seed: int = 0, limit_s: float | None = None
) -> Verdict:
    """The verdict on an answer; the same answer and seed give the same verdict.

    Raises nothing for the answer's sake, whatever it is; a KeyboardInterrupt passes through.
    """
    if answer is MISSING:
        message = f"Give check your answer as well: {exercise.check_source}"
        return _failed(message, fingerprint="missing")
    if answer is TODO:
        return Verdict("todo", _NOT_TRIED, fingerprint="todo")
    draws = np.random.default_rng([zlib.crc32(exercise.id.encode()), seed])
    try:
        return exercise.judge(answer, draws, exercise.time_limit_s if limit_s is None else limit_s)
    except Exception as error:
        return _failed(
            f"The check itself broke on this answer ({type(error).__name__}: {error}); that is a "
            "defect of the course, please report it with your answer.",
            fingerprint="broken check",
        )


def _count(misses: Sequence[str | None]) -> str:
    """How often an answer is right, in a sentence: the misconception's hint says the rest."""
    if len(misses) == 1:
        return "Not this one."
    return f"Right on {misses.count(None)} of {len(misses)} inputs."


def _failed(
    message: str,
    *,
    misconception: str | None = None,
    fingerprint: str,
    facts: tuple[tuple[str, str], ...] = (),
    printed: str = "",
) -> Verdict:
    short = fingerprint if len(fingerprint) <= 16 else _digest(fingerprint)
    return Verdict("failed", message, misconception, short, facts, printed)


def _filled(facts: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((label, text) for label, text in facts if text)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fingerprint(values: Sequence[Any]) -> str:
    """Tells answers apart by what they do: renaming a variable gives no new answer."""
    floats = as_floats(values)
    if floats is not None:
        return _digest(" ".join(f"{value:.6g}" for value in floats))
    text = " ".join(short_repr(value) for value in values)
    return _digest(_ADDRESS.sub("", text))
