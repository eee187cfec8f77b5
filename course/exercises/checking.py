"""The three calls of a student: `check`, `hint` and `progress`; they show a card, return nothing.

Judging is in `judging`, the record in `records`, the drawing in `cards`: this joins them.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from course.exercises import cards, registry
from course.exercises import records as records_file
from course.exercises.definition import Exercise, Verdict
from course.exercises.judging import MISSING, judge_answer
from course.exercises.records import Record

CHECK_MIME = "application/vnd.course.check+json"


class ExerciseNotPassed(Exception):
    """Raised by `check` in strict mode for a failed or missing answer; shown as one line."""

    def _render_traceback_(self) -> list[str]:
        return [f"ExerciseNotPassed: {self}"]


def strict() -> bool:
    """Whether a failed or missing answer raises: COURSE_STRICT is set, and not to "0"."""
    return os.environ.get("COURSE_STRICT", "0").strip().lower() not in ("", "0", "no", "off")


def check(exercise_id: str, answer: Any = MISSING) -> None:
    """Judge your answer to an exercise and show a card: pass, not yet, or not tried.

    `answer` is your own function (without parentheses) or value. Returns nothing. Raises
    ValueError for an id that no exercise has, and in strict mode ExerciseNotPassed.
    """
    exercise = registry.exercise(exercise_id)
    verdict = _from_course(exercise, answer) or judge_answer(exercise, answer)
    record, note = _record(exercise, verdict, answered=answer is not MISSING)
    card = cards.check_card(exercise, verdict, record, note)
    _show(card, _payload(exercise, verdict, record))
    if strict() and verdict.status != "passed":
        what = "not tried yet" if verdict.status == "todo" else "not passed"
        named = f" ({verdict.misconception})" if verdict.misconception else ""
        raise ExerciseNotPassed(f"exercise {exercise.id} {what}{named}. {verdict.message}")


def hint(exercise_id: str) -> None:
    """Show the next hint that your attempts have unlocked. Returns nothing.

    Raises ValueError for an id that no exercise has.
    """
    exercise = registry.exercise(exercise_id)
    total = len(exercise.hints)

    def read_one(record: Record) -> Record:
        return replace(record, hints_shown=_next_hint(record, total))

    record, note = records_file.update(exercise.id, read_one)
    card = cards.hint_card(exercise, record, record.hints_shown, note)
    _show(card, {})


def progress() -> None:
    """Show the map of the course: what is passed, what is left, the next step. Returns nothing."""
    records, note = records_file.records()
    _show(cards.progress_card(registry.all_exercises(), records, note), {})


def _next_hint(record: Record, total: int) -> int:
    """The number of the hint to show: one further than last time, as far as attempts allow."""
    return min(record.hints_shown + 1, record.hints_unlocked(total))


def _from_course(exercise: Exercise, answer: Any) -> Verdict | None:
    """A failed verdict for an answer that was imported from the course; None for one's own."""
    module = answer.__module__ if inspect.isfunction(answer) else None
    if isinstance(module, str) and module.startswith("course.exercises"):
        message = "That function was imported from the course: write one of your own."
        return Verdict("failed", message, fingerprint="imported")
    return None


def _record(exercise: Exercise, verdict: Verdict, *, answered: bool) -> tuple[Record, str]:
    """Count the attempt; a stub or a check without an answer is none."""
    if verdict.status == "todo" or not answered:
        return records_file.update(exercise.id, lambda record: record)
    passed = verdict.status == "passed"
    return records_file.update(
        exercise.id,
        lambda record: records_file.after_check(record, verdict.fingerprint, passed),
    )


def _payload(exercise: Exercise, verdict: Verdict, record: Record) -> Mapping[str, Any]:
    """What a grader reads beside the card."""
    return {
        CHECK_MIME: {
            "exercise": exercise.id,
            "status": verdict.status,
            "misconception": verdict.misconception,
            "hint": cards.hint_for(exercise, verdict, record) or None,
            "message": verdict.message,
            "attempt": record.attempts,
        }
    }


def _show(card: cards.Card, extra: Mapping[str, Any]) -> None:
    """Display in a notebook; print where there is none."""
    ipython = sys.modules.get("IPython")
    if ipython is None or ipython.get_ipython() is None:
        print(card.text)
        return
    ipython.display.display({"text/plain": card.text, "text/html": card.html, **extra}, raw=True)
