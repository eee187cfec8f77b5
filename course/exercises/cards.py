"""Draws the cards that `check`, `hint` and `progress` show, as HTML and as plain text.

Plain HTML without scripts: a live region for screen readers, a colour with a sign and a word, and
colours of its own, so that a dark notebook theme cannot take the contrast away.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from course.exercises.definition import Exercise, Verdict
from course.exercises.lessons import LESSONS, Lesson
from course.exercises.records import DISTINCT_ANSWERS_FOR_REFERENCE, Record

BACKGROUND = "#ffffff"
TEXT = "#1a1a1a"
QUIET = "#4d4d4d"
CODE_BACKGROUND = "#f2f2f2"

# *word* or *a few words*, but no product (a * b), power (a ** b) or row of arguments (*rest)
_EMPHASIS = re.compile(r"(?<![\w*])\*(\w[^*]*\w|\w)\*(?![\w*])")


@dataclass(frozen=True)
class Look:
    """A state's sign, word and colour; the colour has at least 4.5:1 on the card's background."""

    sign: str
    word: str
    colour: str


LOOKS: Mapping[str, Look] = {
    "passed": Look("✓", "Pass", "#00694d"),
    "failed": Look("✗", "Not yet", "#a33d00"),
    "todo": Look("○", "Not tried yet", "#005a91"),
    "hint": Look("?", "Hint", "#005a91"),
    "progress": Look("◔", "Progress", "#005a91"),
}


@dataclass(frozen=True)
class Card:
    """One card in both of its forms."""

    html: str
    text: str


def check_card(exercise: Exercise, verdict: Verdict, record: Record, note: str = "") -> Card:
    """The card of one check: state, message, hint, measured beside expected, attempts.

    The reference is on it once the record has unlocked it.
    """
    look = LOOKS[verdict.status]
    paragraphs = [verdict.message]
    hint = hint_for(exercise, verdict, record)
    if hint:
        paragraphs.append(hint)
    if verdict.printed:
        paragraphs.append(f"It printed: {' '.join(verdict.printed.split())[:200]}")
    closing = [_attempts_line(exercise, verdict, record), note]
    return _card(
        look,
        f"Exercise {exercise.id}: {exercise.title}",
        paragraphs,
        rows=verdict.facts,
        closing=closing,
        reference=exercise if record.reference_unlocked else None,
    )


def hint_for(exercise: Exercise, verdict: Verdict, record: Record) -> str:
    """The hint that goes with a verdict: the misconception's own, else the newest general one."""
    if verdict.status != "failed":
        return ""
    own = exercise.hint_of(verdict.misconception)
    if own:
        return own
    unlocked = record.hints_unlocked(len(exercise.hints))
    return f"Hint {unlocked}: {exercise.hints[unlocked - 1]}" if unlocked else ""


def _attempts_line(exercise: Exercise, verdict: Verdict, record: Record) -> str:
    if verdict.status == "todo":
        return f"About {exercise.minutes} minutes."
    # what is no answer (a wrong type, a crash) is not counted, so the first may be the zeroth
    line = (
        f"Attempt {record.attempts}." if record.attempts else "This is not counted as an attempt."
    )
    if verdict.status == "failed" and not record.reference_unlocked:
        missing = DISTINCT_ANSWERS_FOR_REFERENCE - len(record.answers)
        answers = "answer" if missing == 1 else "answers"
        line += (
            f' hint("{exercise.id}") shows the hints so far; the course\'s own answer is shown '
            f"after a pass, or {missing} more different {answers}."
        )
    return line


def hint_card(exercise: Exercise, record: Record, number: int, note: str = "") -> Card:
    """The card of general hint `number` (from 1; 0 where none is unlocked yet)."""
    total = len(exercise.hints)
    if number == 0:
        paragraphs = ["Try it once first: a hint unlocks with each attempt."]
    else:
        paragraphs = [f"Hint {number} of {total}: {exercise.hints[number - 1]}"]
    closing = [note]
    if 0 < number < total and record.hints_unlocked(total) <= number:
        closing.insert(0, "The next hint unlocks with your next attempt.")
    return _card(
        LOOKS["hint"],
        f"Exercise {exercise.id}: {exercise.title}",
        paragraphs,
        closing=closing,
        reference=exercise if record.reference_unlocked else None,
    )


def progress_card(
    exercises: Sequence[Exercise], records: Mapping[str, Record], note: str = ""
) -> Card:
    """The map of the course: for every notebook what is passed, what is left, and the next step."""
    lines = [_lesson_line(lesson, exercises, records) for lesson in LESSONS]
    left = [e for e in exercises if not _passed(e, records)]
    core_left = [e for e in left if e.track != "stretch"]
    passed = len(exercises) - len(left)
    minutes = sum(exercise.minutes for exercise in core_left)
    paragraphs = [
        f"{passed} of {len(exercises)} exercises passed; about {minutes} minutes of core "
        "exercises left."
    ]
    if not left:
        paragraphs.append("Every exercise is passed.")
    else:
        following = (core_left or left)[0]
        paragraphs.append(
            f"Next step: exercise {following.id}, {following.title} ({following.minutes} min)."
        )
    return _card(LOOKS["progress"], "The course so far", paragraphs, rows=lines, closing=[note])


def _passed(exercise: Exercise, records: Mapping[str, Record]) -> bool:
    return records.get(exercise.id, Record()).passed


def _lesson_line(
    lesson: Lesson, exercises: Sequence[Exercise], records: Mapping[str, Record]
) -> tuple[str, str]:
    """A notebook's row: its title, and n of m passed of each track."""
    label = f"{lesson.number:02d} {lesson.title}"
    ours = [exercise for exercise in exercises if exercise.chapter == lesson.number]
    if not ours:
        return label, "being written"
    parts = []
    for track in ("warm-up", "core", "stretch"):
        of_track = [exercise for exercise in ours if exercise.track == track]
        if of_track:
            done = sum(_passed(exercise, records) for exercise in of_track)
            parts.append(f"{done} of {len(of_track)} {track}")
    left = sum(e.minutes for e in ours if not _passed(e, records))
    state = f"{left} min left" if left else "✓ all passed"
    return label, f"{', '.join(parts)}; {state}"


def _card(
    look: Look,
    heading: str,
    paragraphs: Sequence[str],
    *,
    rows: Sequence[tuple[str, str]] = (),
    closing: Sequence[str] = (),
    reference: Exercise | None = None,
) -> Card:
    closing = [line for line in closing if line]
    return Card(
        html=_html(look, heading, paragraphs, rows, closing, reference),
        text=_text(look, heading, paragraphs, rows, closing, reference),
    )


def _text(
    look: Look,
    heading: str,
    paragraphs: Sequence[str],
    rows: Sequence[tuple[str, str]],
    closing: Sequence[str],
    reference: Exercise | None,
) -> str:
    plain = [_EMPHASIS.sub(r"\1", paragraph) for paragraph in paragraphs]
    lines = [f"{look.sign} {look.word} · {heading}", *plain]
    width = max((len(label) for label, _ in rows), default=0)
    lines += [f"  {label:<{width}}  {value}" for label, value in rows]
    lines += closing
    if reference is not None:
        lines += ["The course's own answer:", *_indented(reference.reference_source)]
        lines += [reference.explanation] if reference.explanation else []
    return "\n".join(lines)


def _indented(source: str) -> list[str]:
    return [f"    {line}".rstrip() for line in source.rstrip().splitlines()]


def _html(
    look: Look,
    heading: str,
    paragraphs: Sequence[str],
    rows: Sequence[tuple[str, str]],
    closing: Sequence[str],
    reference: Exercise | None,
) -> str:
    box = (
        f"border:1px solid {look.colour};border-left:6px solid {look.colour};border-radius:4px;"
        f"padding:0.6em 1em;margin:0.3em 0;max-width:52em;background:{BACKGROUND};color:{TEXT};"
        "font-size:1em;line-height:1.45"
    )
    parts = [
        f'<div role="status" style="{box}">',
        f'<p style="margin:0 0 0.3em 0;color:{TEXT}"><strong style="color:{look.colour}">'
        f'<span aria-hidden="true">{look.sign}</span> {escape(look.word)}</strong>'
        f" · {escape(heading)}</p>",
        *(f'<p style="margin:0.3em 0;color:{TEXT}">{_inline(text)}</p>' for text in paragraphs),
        _table(rows),
        *(f'<p style="margin:0.3em 0;color:{QUIET}">{_inline(text)}</p>' for text in closing),
        "" if reference is None else _details(reference),
        "</div>",
    ]
    return "".join(parts)


def _inline(text: str) -> str:
    """Text as HTML: `code` and *emphasis* marked, everything else escaped."""
    pieces = text.split("`")
    if len(pieces) % 2 == 0:  # a backtick without its partner is only a character
        pieces = [text]
    style = f"background:{CODE_BACKGROUND};color:{TEXT}"
    return "".join(
        f'<code style="{style}">{escape(piece)}</code>'
        if number % 2
        else _EMPHASIS.sub(r"<em>\1</em>", escape(piece))
        for number, piece in enumerate(pieces)
    )


def _table(rows: Sequence[tuple[str, str]]) -> str:
    if not rows:
        return ""
    cell = f"text-align:left;vertical-align:top;padding:0.1em 1em 0.1em 0;color:{TEXT}"
    body = "".join(
        f'<tr style="background:{BACKGROUND}"><th scope="row" style="{cell};font-weight:600">'
        f'{escape(label)}</th><td style="{cell}">{escape(value)}</td></tr>'
        for label, value in rows
    )
    style = f"border-collapse:collapse;margin:0.3em 0;background:{BACKGROUND};font-size:inherit"
    return f'<table style="{style}"><tbody>{body}</tbody></table>'


def _details(exercise: Exercise) -> str:
    code = (
        f"background:{CODE_BACKGROUND};color:{TEXT};padding:0.5em;overflow-x:auto;"
        "white-space:pre;margin:0.3em 0"
    )
    why = _inline(exercise.explanation)
    after = f'<p style="margin:0.3em 0;color:{TEXT}">{why}</p>' if why else ""
    return (
        f'<details style="margin:0.3em 0;color:{TEXT}"><summary>The course\'s own answer</summary>'
        f'<pre style="{code}"><code style="background:{CODE_BACKGROUND};color:{TEXT}">'
        f"{escape(exercise.reference_source)}</code></pre>{after}</details>"
    )
