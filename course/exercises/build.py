"""The constructors that exercises are written with; judging itself is elsewhere.

Three shapes cover nearly everything: the answer is a function (`function_exercise`), a value such
as a configuration or a prediction (`value_exercise`), or a letter (`choice_exercise`). Where none
fits, `judged_exercise` takes a judge written by hand.

A chapter is a folder `chNN` with a file `eN_….py` an exercise: four core, then four stretch. For a
function write the reference under the student's name, its docstring as the student is to read it,
and the wrong answers as further functions, as students write them; draw inputs in a `cases(rng)`;
give each wrong answer its hint; a function's name is the misconception's too.
`tests/exercises/test_matrix.py` proves the rest.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal, TypedDict, Unpack

import numpy as np

from course.exercises.definition import (
    TIME_LIMIT_S,
    Exercise,
    Kind,
    Verdict,
    Wrong,
    stub_of,
)
from course.exercises.judging import (
    Accept,
    Case,
    CaseJudge,
    CaseMaker,
    Evidence,
    FreeJudge,
    Observe,
    call_answer,
)
from course.exercises.values import Label, ValueKind


class _Common(TypedDict):
    """What every constructor asks for; `Exercise` says what each is."""

    title: str
    question: str
    minutes: int
    difficulty: Literal[1, 2, 3]
    hints: tuple[str, ...]


def function_exercise(
    exercise_id: str,
    *,
    kind: Kind,
    reference: Callable[..., Any],
    wrong: Mapping[Callable[..., Any], str],
    cases: CaseMaker,
    result: ValueKind,
    observe: Observe = call_answer,
    accept: Accept | None = None,
    evidence: Evidence | None = None,
    describe: Callable[[Case], str] | None = None,
    explanation: str = "",
    time_limit_s: float = TIME_LIMIT_S,
    **common: Unpack[_Common],
) -> Exercise:
    """An exercise whose answer is a function of the reference's name and signature.

    The stub is the reference's own head and docstring. `wrong` gives each wrong answer its hint;
    its name, in kebab case, is the misconception's. `cases(rng)` draws the inputs; `result` is
    the kind of value compared; `observe`, `accept` and `evidence` are for answers that are judged
    by what a simulation makes of them (see `CaseJudge`).
    Raises ValueError as `Exercise` and `stub_of` do.
    """
    named = tuple(Wrong(f.__name__.replace("_", "-"), f, text) for f, text in wrong.items())
    judge = CaseJudge(
        answer_name=reference.__name__,
        parameters=tuple(inspect.signature(reference).parameters),
        reference=reference,
        wrong=named,
        cases=cases,
        kind=result,
        observe=observe,
        accept=accept,
        evidence=evidence,
        describe=describe,
    )
    return Exercise(
        id=exercise_id,
        kind=kind,
        answer_name=reference.__name__,
        stub=stub_of(reference),
        reference=reference,
        wrong=named,
        judge=judge,
        explanation=explanation,
        time_limit_s=time_limit_s,
        **common,
    )


def value_exercise(
    exercise_id: str,
    *,
    kind: Kind,
    reference: Any,
    wrong: tuple[Wrong, ...],
    value: ValueKind,
    comment: str,
    cases: CaseMaker | None = None,
    result: ValueKind | None = None,
    observe: Observe | None = None,
    accept: Accept | None = None,
    evidence: Evidence | None = None,
    describe: Callable[[Case], str] | None = None,
    answer_name: str = "",
    explanation: str = "",
    time_limit_s: float = TIME_LIMIT_S,
    **common: Unpack[_Common],
) -> Exercise:
    """An exercise whose answer is a value: a prediction, or a configuration.

    `value` is the kind that the answer itself must be, `comment` what stands behind the stub's
    TODO. Without `observe` the value is compared with the reference; with it, what is observed of
    the value (a simulation's figures, of the kind `result`) is judged by `accept`.
    Raises ValueError as `Exercise` does.
    """
    name = answer_name or "answer_" + exercise_id.replace(".", "_")
    judge = CaseJudge(
        answer_name=name,
        parameters=None,
        reference=reference,
        wrong=wrong,
        cases=cases or _one_case,
        kind=result or value,
        observe=observe or _itself,
        accept=accept,
        evidence=evidence,
        describe=describe,
        value_kind=value,
    )
    return Exercise(
        id=exercise_id,
        kind=kind,
        answer_name=name,
        stub=f"{name} = TODO  # {comment}\n",
        reference=reference,
        wrong=wrong,
        judge=judge,
        explanation=explanation,
        time_limit_s=time_limit_s,
        **common,
    )


def choice_exercise(
    exercise_id: str,
    *,
    options: Mapping[str, str],
    right: str,
    wrong: Mapping[str, tuple[str, str]],
    explanation: str,
    kind: Kind = "choice",
    **common: Unpack[_Common],
) -> Exercise:
    """A question with lettered options; `wrong` gives each other letter (misconception, hint).

    Raises ValueError where `right` and `wrong` together are not exactly the options.
    """
    if {right, *wrong} != set(options) or right in wrong:
        raise ValueError(
            f"exercise {exercise_id}: the options are {list(options)}, right is {right!r}, wrong "
            f"are {list(wrong)}; give every option but the right one a misconception and a hint"
        )
    letters = ", ".join(f'"{key}"' for key in options)
    exercise = value_exercise(
        exercise_id,
        kind=kind,
        reference=right,
        wrong=tuple(Wrong(name, letter, text) for letter, (name, text) in wrong.items()),
        value=Label(options),
        comment=f"one of {letters}",
        explanation=explanation,
        **common,
    )
    return replace(exercise, options=dict(options))


def judged_exercise(
    exercise_id: str,
    *,
    kind: Kind,
    reference: Any,
    wrong: tuple[Wrong, ...],
    judge: Callable[[Any, np.random.Generator], Verdict],
    answer_name: str = "",
    stub: str = "",
    explanation: str = "",
    time_limit_s: float = TIME_LIMIT_S,
    **common: Unpack[_Common],
) -> Exercise:
    """An exercise judged by a function of its own, `judge(answer, rng) -> Verdict`.

    The judge runs inside the time limit; what it raises becomes a sentence. It names the
    misconceptions itself. A function's stub comes from the reference, a value's from `stub`.
    Raises ValueError as `Exercise` does.
    """
    is_function = inspect.isfunction(reference)
    name = answer_name or (
        reference.__name__ if is_function else "answer_" + exercise_id.replace(".", "_")
    )
    return Exercise(
        id=exercise_id,
        kind=kind,
        answer_name=name,
        stub=stub or (stub_of(reference) if is_function else f"{name} = TODO\n"),
        reference=reference,
        wrong=wrong,
        judge=FreeJudge(judge),
        explanation=explanation,
        time_limit_s=time_limit_s,
        **common,
    )


def _one_case(rng: np.random.Generator) -> list[Case]:
    return [{}]


def _itself(answer: Any, case: Case) -> Any:
    return answer
