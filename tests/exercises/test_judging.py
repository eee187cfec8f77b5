"""If these fail, a student sees a stack, a wrong diagnosis, or passes with a wrong answer."""

from __future__ import annotations

import asyncio
import fractions
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from course.exercises import (
    TODO,
    Exercise,
    Unacceptable,
    Verdict,
    Wrong,
    choice_exercise,
    function_exercise,
    judged_exercise,
    value_exercise,
)
from course.exercises.judging import MISSING, judge_answer
from course.exercises.values import Figures, Number, Vector, Whole


def mean_time(arrival_rate_per_s: float, service_rate_per_s: float) -> float:
    """Mean time in the system, in seconds."""
    return 1 / (service_rate_per_s - arrival_rate_per_s)


def service_only(arrival_rate_per_s: float, service_rate_per_s: float) -> float:
    """The time in service."""
    return 1 / service_rate_per_s


def wait_only(arrival_rate_per_s: float, service_rate_per_s: float) -> float:
    """The time before service."""
    return arrival_rate_per_s / service_rate_per_s / (service_rate_per_s - arrival_rate_per_s)


def rates_added(arrival_rate_per_s: float, service_rate_per_s: float) -> float:
    """One over the sum."""
    return 1 / (service_rate_per_s + arrival_rate_per_s)


def rates(rng: np.random.Generator) -> list[dict[str, float]]:
    drawn = rng.uniform((1.0, 11.0), (9.0, 20.0), size=(6, 2)).round(2)
    return [{"arrival_rate_per_s": float(a), "service_rate_per_s": float(b)} for a, b in drawn]


COMMON: dict[str, Any] = {
    "title": "Mean time",
    "question": "How long?",
    "minutes": 3,
    "difficulty": 1,
    "hints": ("first hint", "second hint", "third hint"),
}
WRONG = {
    service_only: "That is service alone.",
    wait_only: "That is the wait alone.",
    rates_added: "The rates work against each other.",
}
MEAN = function_exercise(
    "9.1",
    kind="compute",
    reference=mean_time,
    wrong=WRONG,
    cases=rates,
    result=Number("s"),
    **COMMON,
)


def verdict(answer: object, limit_s: float = 1.0, exercise: Exercise = MEAN) -> Verdict:
    return judge_answer(exercise, answer, limit_s=limit_s)


def test_the_stub_is_not_tried() -> None:
    space: dict[str, Any] = {"TODO": TODO}
    exec(MEAN.stub, space)
    assert verdict(space["mean_time"]).status == "todo"
    assert verdict(TODO).status == "todo"


def test_todo_left_on_one_path_is_a_miss() -> None:
    def half(a: float, b: float) -> Any:
        return TODO if a > 5 else 1 / (b - a)

    found = verdict(half)
    assert found.status == "failed"
    assert "still returns TODO" in found.message


def test_the_reference_passes_under_other_names_and_signatures() -> None:
    assert verdict(lambda a, b: 1 / (b - a)).status == "passed"
    assert verdict(lambda lam, mu, digits=3: 1 / (mu - lam)).status == "passed"
    assert verdict(lambda *rates: 1 / (rates[1] - rates[0])).status == "passed"


@pytest.mark.parametrize("kind", [np.float64, np.array, fractions.Fraction, np.float32])
def test_numbers_of_any_real_type_count(kind: Callable[[float], Any]) -> None:
    assert verdict(lambda a, b: kind(1 / (b - a))).status == "passed"


@pytest.mark.parametrize("wrong", MEAN.wrong, ids=lambda wrong: wrong.misconception)
def test_a_wrong_answer_written_in_another_way_draws_the_same_hint(wrong: Wrong) -> None:
    found = verdict(lambda a, b: wrong.answer(a, b) * (1 + 1e-5))
    assert (found.status, found.misconception) == ("failed", wrong.misconception)


def test_a_misconception_in_milliseconds_is_told_with_its_unit() -> None:
    found = verdict(lambda a, b: 1000 * wait_only(a, b))
    assert found.misconception == "wait-only"
    assert "milliseconds" in found.message


GENERIC = {
    "milliseconds": (lambda a, b: 1000 / (b - a), "milliseconds"),
    "seconds over 1000": (lambda a, b: 0.001 / (b - a), "1000 times too small"),
    "percentage": (lambda a, b: 100 / (b - a), "percentage"),
    "sign": (lambda a, b: 1 / (a - b), "wrong sign"),
    "reciprocal": (lambda a, b: b - a, "upside down"),
    "twice": (lambda a, b: 2 / (b - a), "one half"),
    "log base": (lambda a, b: 1 / math.log(10) / (b - a), "log10"),
    "minutes": (lambda a, b: 1 / 60 / (b - a), "minutes"),
    "one too many": (lambda a, b: 1 / (b - a) + 1, "always one more"),
    "a term too many": (lambda a, b: 1 / (b - a) - 0.5, "same amount less"),
    "constant": (lambda a, b: 0.3, "same number for all inputs"),
    "stray factor": (lambda a, b: 1.7 / (b - a), "stray factor"),
    "None": (lambda a, b: None, "None"),
    "text": (lambda a, b: "0.3 s", "text"),
    "truth value": (lambda a, b: True, "truth value"),
    "list": (lambda a, b: [0.3], "list of 1"),
    "tuple": (lambda a, b: (0.3, "s"), "tuple of 2"),
    "array": (lambda a, b: np.array([0.3]), "array of shape (1,)"),
    "NaN": (lambda a, b: float("nan"), "NaN"),
    "0-d NaN": (lambda a, b: np.array(np.nan), "NaN"),
    "infinity": (lambda a, b: math.inf, "infinity"),
    "complex": (lambda a, b: 1j, "complex"),
    "function": (lambda a, b: math.sin, "function"),
    "dict": (lambda a, b: {"mean": 0.3}, "dict of 1"),
    "object": (lambda a, b: object(), "object"),
    "generator": (lambda a, b: (x for x in [a]), "generator"),
    "exception": (lambda a, b: a / 0, "ZeroDivisionError"),
    "exit": (lambda a, b: exit(), "leave Python"),
    "key": (lambda a, b: {}["rate"], "KeyError: 'rate'"),
}


@pytest.mark.parametrize("name", GENERIC)
def test_each_usual_slip_gets_its_own_plain_sentence(name: str) -> None:
    answer, words = GENERIC[name]
    found = verdict(answer)
    assert found.status == "failed"
    assert words in found.message
    assert "Traceback" not in found.message
    assert found.message.endswith((".", "?"))


def test_a_coroutine_and_a_recursion_without_end_get_sentences() -> None:
    async def later(a: float, b: float) -> float:
        await asyncio.sleep(0)
        return 1.0

    def again(a: float, b: float) -> float:
        return again(a, b)

    assert "coroutine" in verdict(later).message
    assert "without end" in verdict(again).message


def test_an_endless_loop_is_stopped_and_the_input_named() -> None:
    def endless(a: float, b: float) -> float:
        while True:
            pass

    found = verdict(endless, limit_s=0.2)
    assert "stopped after 0.2 s" in found.message
    assert found.facts[0][0] == "Inputs"


def test_right_on_some_inputs_only_is_said_with_the_count() -> None:
    found = verdict(lambda a, b: 1 / (b - a) if a < 5 else 7.0)
    assert found.status == "failed"
    assert found.misconception is None
    assert found.message.endswith("Which differ?")
    assert "of 6 inputs" in found.message


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ("mean_time", "without parentheses or quotes"),
        (0.25, "the function itself"),
        (None, "the function itself"),
        (lambda a: a, "stub's arguments"),
        (lambda: 1.0, "stub's arguments"),
        (MISSING, 'check("9.1", mean_time)'),
    ],
)
def test_what_is_no_such_function_is_said_before_it_is_tried(answer: object, words: str) -> None:
    assert words in verdict(answer).message


def test_the_card_shows_the_measured_value_beside_the_expected_kind() -> None:
    facts = dict(verdict(service_only).facts)
    assert facts["Inputs"].startswith("arrival_rate_per_s = ")
    assert facts["Your answer gave"].endswith(" s")
    assert facts["The check expected"].startswith("a number of seconds, near ")
    assert facts["Tolerance"] == "within 0.1 %"


def test_judging_is_repeatable_and_other_seeds_draw_other_inputs() -> None:
    assert judge_answer(MEAN, service_only) == judge_answer(MEAN, service_only)
    assert judge_answer(MEAN, service_only, seed=1) != judge_answer(MEAN, service_only)


def test_answers_count_as_distinct_by_what_they_do() -> None:
    first = verdict(lambda a, b: 1 / b)
    renamed = verdict(lambda rate, other: 1 / other)
    different = verdict(lambda a, b: 2.5 / b)
    assert first.fingerprint == renamed.fingerprint != different.fingerprint


def test_what_an_answer_prints_is_caught(capsys: pytest.CaptureFixture[str]) -> None:
    def chatty(a: float, b: float) -> float:
        print("a is", a)
        return 1 / (b - a)

    assert verdict(chatty).printed.startswith("a is")
    assert capsys.readouterr().out == ""


def column_sum(numbers: np.ndarray, weights: list[float]) -> float:  # type: ignore[type-arg]
    """The sum of numbers, in seconds."""
    return float(numbers.sum() + sum(weights))


def columns(rng: np.random.Generator) -> list[dict[str, Any]]:
    return [{"numbers": rng.uniform(size=5).round(3), "weights": [1.0, n]} for n in (1.0, 2.0)]


def first(numbers, weights):  # type: ignore[no-untyped-def]
    return float(numbers[0])


def last(numbers, weights):  # type: ignore[no-untyped-def]
    return float(numbers[-1])


def mean(numbers, weights):  # type: ignore[no-untyped-def]
    return float(numbers.mean())


SUM = function_exercise(
    "9.2",
    kind="compute",
    reference=column_sum,
    wrong={first: "first", last: "last", mean: "mean"},
    cases=columns,
    result=Number("s"),
    **COMMON,
)


def test_an_answer_that_changes_its_inputs_is_judged_on_copies() -> None:
    def greedy(numbers: Any, weights: list[float]) -> float:
        total = 0.0
        while weights:
            total += weights.pop()
        total += float(numbers.sum())
        numbers[:] = 0
        return total

    assert verdict(greedy, exercise=SUM).status == "passed"


CHOICE = choice_exercise(
    "9.3",
    options={"a": "one", "b": "two", "c": "three", "d": "four"},
    right="b",
    wrong={"a": ("is-a", "not a"), "c": ("is-c", "not c"), "d": ("is-d", "not d")},
    explanation="because",
    **COMMON,
)


@pytest.mark.parametrize("answer", ["b", "B", " b "])
def test_the_right_letter_passes_however_it_is_written(answer: str) -> None:
    assert verdict(answer, exercise=CHOICE).status == "passed"


@pytest.mark.parametrize("answer", ["z", 2, None, ["b"], "", lambda: "b"])
def test_what_is_no_letter_is_said(answer: object) -> None:
    found = verdict(answer, exercise=CHOICE)
    assert found.status == "failed"
    assert "one letter of a, b, c, d" in found.message


def test_each_wrong_letter_draws_its_own_hint() -> None:
    assert [verdict(x, exercise=CHOICE).misconception for x in "acd"] == ["is-a", "is-c", "is-d"]


def test_a_choice_without_a_hint_for_an_option_is_refused() -> None:
    with pytest.raises(ValueError, match="every option but the right one"):
        choice_exercise(
            "9.3",
            options={"a": "one", "b": "two"},
            right="b",
            wrong={},
            explanation="",
            **COMMON,
        )


def seats(answer: Any, case: Any) -> tuple[float, float]:
    """A stand-in for a simulation: more seats, longer waits and fewer refusals."""
    return answer * case["step_s"], 1 / answer


CONFIGURE = value_exercise(
    "9.4",
    kind="configure",
    reference=10,
    value=Whole("seats"),
    comment="a whole number of seats",
    cases=lambda rng: [{"step_s": 0.1}, {"step_s": 0.09}],
    result=Figures(("wait", "refused"), ("s", "")),
    observe=seats,
    accept=lambda seen, best, case: (
        "The wait is over its target."
        if seen[0] > 1.0
        else ("Too many are refused." if seen[1] > best[1] * 1.05 else None)
    ),
    wrong=(
        Wrong("no-queue", 1, "too few", also=lambda n: n <= 3),
        Wrong("endless-queue", 1000, "too many", also=lambda n: n >= 100),
        Wrong("mean-for-tail", 20, "the mean"),
    ),
    **COMMON,
)


@pytest.mark.parametrize(
    ("answer", "status", "misconception"),
    [
        (10, "passed", None),
        (10.0, "passed", None),
        (20, "failed", "mean-for-tail"),
        (2, "failed", "no-queue"),
        (5000, "failed", "endless-queue"),
        (11, "failed", None),
        ("ten", "failed", None),
        (9.5, "failed", None),
    ],
)
def test_a_configuration_is_judged_by_what_it_does(
    answer: object, status: str, misconception: str | None
) -> None:
    found = verdict(answer, exercise=CONFIGURE)
    assert (found.status, found.misconception) == (status, misconception)


def test_a_configuration_that_misses_is_told_which_target() -> None:
    assert verdict(11, exercise=CONFIGURE).message == "The wait is over its target."
    assert "wait 1.1 s" in dict(verdict(11, exercise=CONFIGURE).facts)["Your answer gave"]


def admit(queue_length: int) -> bool:
    """Whether to admit a request that finds queue_length others waiting."""
    return queue_length < 5


def judge_admit(answer: Any, rng: np.random.Generator) -> Verdict:
    decisions = [answer(n) for n in range(10)]
    if not all(isinstance(d, bool) for d in decisions):
        raise Unacceptable("Your policy must return True or False.")
    if all(decisions):
        return Verdict("failed", "It never refuses.", "admits-all", str(decisions))
    return Verdict("passed" if sum(decisions) == 5 else "failed", "Judged.", None, str(decisions))


POLICY = judged_exercise(
    "9.5",
    kind="policy",
    reference=admit,
    judge=judge_admit,
    wrong=(
        Wrong("admits-all", lambda queue_length: True, "never refuses"),
        Wrong("admits-none", lambda queue_length: False, "always refuses"),
        Wrong("wrong-way", lambda queue_length: queue_length > 5, "the wrong way round"),
    ),
    **COMMON,
)


def test_a_judge_written_by_hand_runs_inside_the_same_walls() -> None:
    def endless(queue_length: int) -> bool:
        while True:
            pass

    assert verdict(admit, exercise=POLICY).status == "passed"
    assert verdict(lambda n: True, exercise=POLICY).misconception == "admits-all"
    assert verdict(lambda n: 1 / 0, exercise=POLICY).message.startswith("It stopped with Zero")
    assert verdict(lambda n: "yes", exercise=POLICY).message.endswith("True or False.")
    assert "stopped after" in verdict(endless, limit_s=0.2, exercise=POLICY).message


def test_a_defect_of_a_check_is_not_put_on_the_student() -> None:
    def broken(rng: np.random.Generator) -> Iterator[Any]:
        raise RuntimeError("a defect")

    exercise = function_exercise(
        "9.1",
        kind="compute",
        reference=mean_time,
        wrong=WRONG,
        cases=broken,  # type: ignore[arg-type]
        result=Number("s"),
        **COMMON,
    )
    assert "defect of the course" in verdict(mean_time, exercise=exercise).message


def running_sum(numbers: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """The running sum, in seconds, one entry for each number."""
    return np.cumsum(numbers)


def plain(numbers):  # type: ignore[no-untyped-def]
    return numbers


def backwards(numbers):  # type: ignore[no-untyped-def]
    return np.cumsum(numbers[::-1])


def shifted(numbers):  # type: ignore[no-untyped-def]
    return np.cumsum(numbers) - numbers


ROW = function_exercise(
    "9.6",
    kind="compute",
    reference=running_sum,
    wrong={plain: "not summed", backwards: "backwards", shifted: "one late"},
    cases=lambda rng: [{"numbers": rng.uniform(size=5)} for _ in range(3)],
    result=Vector("s"),
    **COMMON,
)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda numbers: 1.0, "one number, where a row"),
        (lambda numbers: None, "None"),
        (lambda numbers: ["x"] * 5, "other than numbers"),
        (lambda numbers: np.ones((5, 1)), "shape (5, 1)"),
        (lambda numbers: np.full(5, np.nan), "NaN at index 0"),
        (lambda numbers: np.cumsum(numbers)[1:], "misses the expected"),
    ],
)
def test_rows_are_judged_by_length_and_content(answer: Callable[[Any], Any], words: str) -> None:
    assert verdict(lambda numbers: list(np.cumsum(numbers)), exercise=ROW).status == "passed"
    assert words in verdict(answer, exercise=ROW).message


def divides_by_zero(arrival_rate_per_s: float, service_rate_per_s: float) -> float:
    """Divides by what may be zero."""
    return 1 / (service_rate_per_s - service_rate_per_s)


def test_a_wrong_answer_that_falls_over_is_nobody_else_s_misconception() -> None:
    """A number is no exception, and an exception of another kind is no division by zero."""
    exercise = function_exercise(
        "9.1", kind="compute", reference=mean_time, cases=rates, result=Number("s"),
        wrong={
            service_only: "That is service alone.",
            wait_only: "That is the wait alone.",
            divides_by_zero: "Nothing is left below the line.",
        },
        **COMMON,
    )  # fmt: skip
    for answer in (lambda a, b: 1.0, lambda a, b: {}["rate"]):
        found = verdict(answer, exercise=exercise)
        assert found.status == "failed"
        assert found.misconception is None
        assert "check itself broke" not in found.message
