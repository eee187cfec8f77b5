"""If these fail, a card misleads, cannot be read by some, or a grader misses a miss."""

from __future__ import annotations

import re
from typing import Any

import pytest

import course
from course.exercises import (
    ExerciseNotPassed,
    all_exercises,
    cards,
    check,
    exercise,
    hint,
    progress,
)
from course.exercises.checking import CHECK_MIME
from course.exercises.definition import TODO
from course.exercises.lessons import LESSONS, lesson_number
from course.exercises.records import Record
from course.exercises.registry import UnknownExercise


def three(ttft_s: float, tpot_s: float, output_tokens: int) -> list[Any]:
    return [ttft_s, tpot_s, output_tokens]


def right(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    return ttft_s + (output_tokens - 1) * tpot_s


def gap_too_many(ttft_s: float, tpot_s: float, output_tokens: int) -> float:
    return ttft_s + output_tokens * tpot_s


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What would be displayed in a notebook, without one."""
    import IPython
    from IPython import display

    bundles: list[dict[str, Any]] = []
    monkeypatch.setattr(IPython, "get_ipython", lambda: Publisher())
    monkeypatch.setattr(display, "display", lambda data, raw: bundles.append(data))
    return bundles


class Publisher:
    display_pub: Any = None


def test_check_returns_nothing_and_shows_one_bundle(shown: list[dict[str, Any]]) -> None:
    assert check("0.1", right) is None
    (bundle,) = shown
    assert bundle["text/plain"].startswith("✓ Pass · Exercise 0.1")
    assert bundle[CHECK_MIME] == {
        "exercise": "0.1",
        "status": "passed",
        "misconception": None,
        "hint": None,
        "message": "Right on every input tried.",
        "attempt": 1,
    }


def test_the_html_is_a_live_region_with_sign_and_word_and_runs_no_script(
    shown: list[dict[str, Any]],
) -> None:
    check("0.1", gap_too_many)
    html = shown[0]["text/html"]
    assert html.startswith('<div role="status"')
    assert "✗</span> Not yet</strong>" in html
    assert "<script" not in html
    assert " on" not in re.sub(r">[^<]*<", "><", html), "no event handlers"


def test_what_a_student_returns_cannot_become_markup(shown: list[dict[str, Any]]) -> None:
    def evil(ttft_s: float, tpot_s: float, output_tokens: int) -> str:
        print("<b>bold</b>")
        return "<script>alert(1)</script>"

    check("0.1", evil)
    assert "<script>" not in shown[0]["text/html"]
    assert "<b>" not in shown[0]["text/html"]


def test_colours_have_the_contrast_of_wcag_aa() -> None:
    def luminance(colour: str) -> float:
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(a: str, b: str) -> float:
        low, high = sorted((luminance(a), luminance(b)))
        return (high + 0.05) / (low + 0.05)

    texts = [cards.TEXT, cards.QUIET, *(look.colour for look in cards.LOOKS.values())]
    assert min(contrast(text, cards.BACKGROUND) for text in texts) >= 4.5
    assert contrast(cards.TEXT, cards.CODE_BACKGROUND) >= 4.5


def test_states_differ_in_sign_and_word_and_not_in_colour_alone() -> None:
    states = [cards.LOOKS[name] for name in ("passed", "failed", "todo")]
    assert len({look.sign for look in states}) == len({look.word for look in states}) == 3


def test_a_misconception_draws_its_hint_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    check("0.1", gap_too_many)
    assert "one gap too many" in capsys.readouterr().out


def test_general_hints_come_one_an_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    hints = exercise("0.1").hints
    for number in range(3):
        check("0.1", lambda a, b, c, n=number: a + 3.0 + n * c)
        assert f"Hint {number + 1}: {hints[number]}" in capsys.readouterr().out


def test_the_reference_is_shown_after_three_different_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for _ in range(4):
        check("0.1", gap_too_many)
    assert "The course's own answer:" not in capsys.readouterr().out
    check("0.1", lambda a, b, c: 1.0 + a * c)
    assert "1 more different answer." in capsys.readouterr().out
    check("0.1", lambda a, b, c: 2.0 + a * c)
    assert "return ttft_s + (output_tokens - 1) * tpot_s" in capsys.readouterr().out


def test_the_reference_is_shown_after_success(capsys: pytest.CaptureFixture[str]) -> None:
    check("0.1", right)
    out = capsys.readouterr().out
    assert "def end_to_end_s" in out
    assert "n − 1" in out


def test_a_stub_costs_no_attempt(capsys: pytest.CaptureFixture[str]) -> None:
    check("0.1", TODO)
    check("0.1", lambda a, b, c: TODO)
    assert "Not tried yet" in capsys.readouterr().out
    check("0.1", gap_too_many)
    assert "Attempt 1." in capsys.readouterr().out


def test_a_wrong_type_is_no_attempt_and_is_not_numbered_zero(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """ "Attempt 0." on the first try reads like a fault of the course."""
    check("0.1", "twelve")
    out = capsys.readouterr().out
    assert "not counted as an attempt" in out
    assert "Attempt 0" not in out


def test_a_check_without_an_answer_says_how_to_call_it(capsys: pytest.CaptureFixture[str]) -> None:
    check("0.1")
    assert 'check("0.1", end_to_end_s)' in capsys.readouterr().out


def test_the_courses_own_function_is_not_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    check("0.1", exercise("0.1").reference)
    assert "imported from the course" in capsys.readouterr().out


def test_hint_waits_for_an_attempt_then_walks_through_the_unlocked_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    hints = exercise("0.1").hints
    hint("0.1")
    assert "Try it once first" in capsys.readouterr().out
    check("0.1", gap_too_many)
    check("0.1", gap_too_many)
    capsys.readouterr()
    for expected in (hints[0], hints[1], hints[1]):
        hint("0.1")
        assert expected in capsys.readouterr().out


def test_strict_mode_raises_for_a_miss_and_for_a_stub_but_not_for_a_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COURSE_STRICT", "1")
    check("0.1", right)
    with pytest.raises(ExerciseNotPassed, match=r"exercise 0\.1 not passed"):
        check("0.1", gap_too_many)
    with pytest.raises(ExerciseNotPassed, match="not tried yet"):
        check("0.1", TODO)
    monkeypatch.setenv("COURSE_STRICT", "0")
    check("0.1", gap_too_many)


def test_the_strict_error_prints_one_line() -> None:
    assert ExerciseNotPassed("x")._render_traceback_() == ["ExerciseNotPassed: x"]


def test_an_unknown_exercise_names_its_neighbours() -> None:
    with pytest.raises(UnknownExercise, match=r"'0\.9'.*0\.1") as caught:
        check("0.9", right)
    assert len(caught.value._render_traceback_()) == 1
    with pytest.raises(ValueError, match="as text"):
        check(2.75, right)  # type: ignore[arg-type]


def test_a_damaged_progress_file_is_said_on_the_card(
    own_progress: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    own_progress.write_text("{", encoding="utf-8")
    check("0.1", right)
    assert "set aside as progress.json.damaged-1" in capsys.readouterr().out


def test_progress_shows_every_lesson_and_the_next_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    check("0.1", right)
    capsys.readouterr()
    assert progress() is None
    out = capsys.readouterr().out
    assert all(f"{lesson.number:02d} {lesson.title}" in out for lesson in LESSONS)
    assert "1 of 3 warm-up" in out
    assert "Next step: exercise 0.2" in out


def test_progress_puts_core_before_stretch_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    done = Record(attempts=1, passed_at="2026-01-01T00:00:00+00:00")
    everything = {e.id: done for e in all_exercises()}
    assert "Every exercise is passed." in cards.progress_card(all_exercises(), everything).text
    core = {e.id: done for e in all_exercises() if e.track != "stretch"}
    text = cards.progress_card(all_exercises(), core).text
    assert "about 0 minutes of core" in text
    first_stretch = next(e.id for e in all_exercises() if e.track == "stretch")
    assert f"Next step: exercise {first_stretch}," in text


def test_a_file_name_tells_its_lesson() -> None:
    assert lesson_number("02_mm1_queueing (Ada).ipynb") == 2
    assert lesson_number("99_other.ipynb") is None
    assert [lesson_number(f"{lesson.stem}.ipynb") for lesson in LESSONS] == list(range(11))


def test_the_course_offers_the_calls_by_their_short_names() -> None:
    assert course.check is check
    assert course.hint is hint
    assert course.progress is progress
    assert course.TODO is TODO


def test_code_and_emphasis_in_a_hint_are_marked_and_products_are_left_alone() -> None:
    text = "A *mean* of `a*b*c` is 2 * x * y, x**2 and f(*rest); <b> stays"
    html = cards._inline(text)
    assert "<em>mean</em>" in html
    assert ">a*b*c</code>" in html
    assert "2 * x * y, x**2 and f(*rest); &lt;b&gt; stays" in html
    assert cards._inline("one ` alone") == "one ` alone"
