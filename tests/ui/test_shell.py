"""The shell's own promises: curtain, presets, reset, layers, freeing of widgets."""

from __future__ import annotations

import gc
import re

import pytest

from course import explore
from course.explore.ch02.hockey_stick import hockey_stick
from course.figures.axes import held_limit
from course.ui import shell as shell_module
from course.ui.shell import show


@pytest.fixture
def clickable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that a person sits in front of the notebook."""
    monkeypatch.setattr(shell_module, "_somebody_can_click", lambda: True)


def data_layer(svg: str) -> str:
    return svg.split('<g class="course-data">')[1]


def frame_layer(svg: str) -> str:
    return svg.split('<g class="course-data">')[0].split('<g class="course-frame">')[1]


@pytest.mark.usefixtures("clickable")
def test_closed_curtain_shows_no_curve_and_no_number() -> None:
    """A curtain that lets the answer through makes the prediction worthless."""
    shell = explore.hockey_stick("Friday-night burst")
    assert shell.curtain_closed
    assert "<path" not in data_layer(shell.svg)
    assert "4.61 s" not in shell.svg
    assert "4.61" not in shell._sentence.value
    assert "9.0 requests a second" in shell._question.value
    shell.close()


@pytest.mark.usefixtures("clickable")
def test_commit_opens_draws_the_guess_and_names_the_error() -> None:
    shell = explore.hockey_stick("Friday-night burst")
    shell._answer.value = "2,3"
    shell._on_commit()
    assert not shell.curtain_closed
    assert "your guess 2.30 s" in shell.svg
    assert "too low by a factor of 2" in shell._sentence.value
    shell.close()


@pytest.mark.usefixtures("clickable")
def test_a_guess_that_is_no_number_is_asked_again() -> None:
    shell = explore.hockey_stick("Friday-night burst")
    for bad in ("", "soon", "nan", "inf"):
        shell._answer.value = bad
        shell._on_commit()
        assert shell.curtain_closed
        assert "not a number" in shell._question.value
    shell.close()


@pytest.mark.usefixtures("clickable")
def test_guess_survives_a_move_and_goes_with_reset() -> None:
    shell = explore.hockey_stick("Friday-night burst")
    shell.commit(3.0)
    shell.set_state(arrival_rate_per_s=8.0)
    assert "your guess" in shell.svg
    shell.reset()
    assert "your guess" not in shell.svg
    assert shell.parameters == hockey_stick.state("Friday-night burst")
    shell.close()


@pytest.mark.usefixtures("clickable")
def test_skip_opens_without_a_guess_and_again_closes() -> None:
    shell = explore.hockey_stick()
    shell.skip()
    assert "your guess" not in shell.svg
    assert len(data_layer(shell.svg)) > 1000
    shell._close_curtain()
    assert shell.curtain_closed
    assert "<path" not in data_layer(shell.svg)
    shell.close()


def test_curtain_is_open_where_nobody_can_click() -> None:
    """A page made by a machine must read without a click."""
    shell = explore.hockey_stick()
    assert not shell.curtain_closed
    bundle = shell._repr_mimebundle_()
    assert bundle["text/plain"] == shell.sentence
    assert 'class="course-data"' in bundle["text/html"]
    shell.close()


@pytest.mark.usefixtures("clickable")
def test_the_still_picture_is_open_behind_a_closed_curtain() -> None:
    shell = explore.hockey_stick()
    assert shell.curtain_closed
    assert len(data_layer(shell._repr_mimebundle_()["text/html"])) > 1000
    shell.close()


def test_frame_stands_still_while_a_slider_moves() -> None:
    """Axes that jump hide what changed; a frame redrawn on each move costs 30 ms."""
    shell = explore.hockey_stick(predict=False)
    before = shell.svg
    shell.set_state(arrival_rate_per_s=7.5)
    assert frame_layer(shell.svg) == frame_layer(before)
    assert data_layer(shell.svg) != data_layer(before)
    shell.set_state(arrival_rate_per_s=9.9)
    assert frame_layer(shell.svg) != frame_layer(before), "the data left the axes"
    shell.close()


def test_limits_hold_then_snap() -> None:
    assert held_limit(5.0, 4.9) == 5.0
    assert held_limit(5.0, 5.1) == 10.0
    assert held_limit(5.0, 1.3) == 5.0
    assert held_limit(5.0, 1.2) == 2.0


def test_moving_a_slider_leaves_the_preset() -> None:
    """A story under settings that are no longer its own misleads."""
    shell = explore.hockey_stick("Quiet Tuesday", predict=False)
    shell.controls["arrival_rate_per_s"].value = 6.0
    assert shell.presets.value != "Quiet Tuesday"
    assert shell.parameters.arrival_rate_per_s == 6.0
    shell.presets.value = "Over the edge"
    assert shell.parameters.arrival_rate_per_s == 10.5
    assert "10.5 requests a second" in shell._story.value
    shell.close()


def test_rounding_noise_of_the_browser_is_no_new_setting() -> None:
    """Chromium's slider sends 9.999999999999998 for 10; that is not the reader's own setting."""
    shell = explore.hockey_stick("Friday-night burst", predict=False)
    shell.controls["service_rate_per_s"].value = 9.999999999999998
    assert shell.parameters.service_rate_per_s == 10.0
    assert shell.presets.value == "Friday-night burst"
    shell.close()


def test_present_mode_folds_the_dials_that_the_preset_is_not_about() -> None:
    """On a projector the picture needs the room that six sliders take."""
    live = explore.hockey_stick("A promise of two seconds", predict=False, present=True)
    assert "course-present" in live.view._dom_classes
    assert "95\u00a0%" in live._story.value.replace(" %", "\u00a0%")
    shown = [name for name, row in live._rows.items() if row in live._panel.children]
    assert shown == ["arrival_rate_per_s", "service_rate_per_s"]
    live._more.value = True
    assert all(row in live._panel.children for row in live._rows.values())
    live._more.value = False
    live._present.value = False
    assert "course-present" not in live.view._dom_classes
    assert all(row in live._panel.children for row in live._rows.values())
    live.close()


@pytest.mark.usefixtures("clickable")
@pytest.mark.parametrize("step", ["preset", "reset"])
def test_a_new_question_closes_the_curtain_and_forgets_the_guess(step: str) -> None:
    """A verdict on another preset's guess is wrong, and the next answer shall not show unasked."""
    shell = explore.hockey_stick("Friday-night burst")
    shell._answer.value = "3"
    shell._on_commit()
    assert "your guess" in shell.svg
    if step == "preset":
        shell.presets.value = "Quiet Tuesday"
    else:
        shell.reset()
    assert shell.curtain_closed
    assert "<path" not in data_layer(shell.svg)
    assert "guessed" not in shell._sentence.value
    assert shell._answer.value == ""
    shell.skip()
    assert "your guess" not in shell.svg
    shell.close()


def test_an_explorer_opened_without_a_question_asks_none_later() -> None:
    """Where the author wants the answer to stand there at once, a preset may not hide it."""
    shell = explore.hockey_stick("Friday-night burst", predict=False)
    shell.use_preset("Quiet Tuesday")
    assert not shell.curtain_closed
    shell.reset()
    assert not shell.curtain_closed
    shell.close()


@pytest.mark.usefixtures("clickable")
def test_enter_submits_the_guess_and_a_slip_is_named() -> None:
    """Whoever types a number presses Enter; nothing happened."""
    shell = explore.hockey_stick("Friday-night burst")
    shell._answer.value = "1,780"
    shell._answer._handle_msg(
        {"content": {"data": {"method": "custom", "content": {}}}, "buffers": []}
    )
    assert shell.curtain_closed
    enter = {"method": "custom", "content": {"event": "submit"}}
    shell._answer._handle_msg({"content": {"data": enter}, "buffers": []})
    assert shell.curtain_closed
    assert "1780 or 1.78" in shell._question.value
    shell._answer.value = "1.78"
    shell._answer._handle_msg({"content": {"data": enter}, "buffers": []})
    assert not shell.curtain_closed
    shell._on_again()
    assert "1780" not in shell._question.value
    shell.close()


def test_what_is_said_at_once_is_short_and_the_rest_is_kept() -> None:
    """Seventy words under a moving picture are read by nobody; none of them may be lost."""
    shell = explore.hockey_stick("A promise of two seconds", predict=False)
    said = shell._sentence.value.replace("\u00a0", " ")
    lead, rest = said.split('<div class="course-rest">')
    assert "5.0/s" in lead
    assert "can be promised up to" not in lead
    assert "can be promised up to" in rest
    assert "course-wordy" not in shell.view._dom_classes
    shell._wordy.value = True
    assert "course-wordy" in shell.view._dom_classes
    shell.close()


def test_the_still_picture_says_how_to_wake_it_and_steps_back_for_the_live_one() -> None:
    """In a reopened notebook the live view is gone: without the still one nothing is seen."""
    shell = explore.hockey_stick(predict=False)
    still = shell._repr_mimebundle_()["text/html"]
    assert "run this cell again" in still
    (name,) = re.findall(r"course-still-([0-9a-f]+)", still)
    assert f"course-live-{name}" in shell.view._dom_classes
    hides = f"body:has(.course-live-{name}:not(.jupyter-widgets-disconnected))"
    assert hides in shell.view.children[0].value
    shell.close()


def test_unknown_names_are_refused_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="did you mean 'Friday-night burst'"):
        explore.hockey_stick("Friday night burst")
    with pytest.raises(ValueError, match="did you mean 'arrival_rate_per_s'"):
        explore.hockey_stick(arival_rate_per_s=3.0)


def test_closing_frees_every_widget() -> None:
    from ipywidgets.widgets.widget import _instances

    before = set(_instances)
    shell = show(hockey_stick)
    assert len(_instances) > len(before)
    shell.close()
    gc.collect()
    left = [_instances[key] for key in set(_instances) - before]
    assert not left, f"{len(left)} widgets outlive their explorer: {left[:3]}"


def test_rerunning_a_cell_frees_what_its_last_run_made(monkeypatch: pytest.MonkeyPatch) -> None:
    run = {"header": {"msg_id": "1"}, "metadata": {"cellId": "explore-1"}}
    monkeypatch.setattr(shell_module, "_shell_parent", lambda: run)
    monkeypatch.setenv("COURSE_CURTAIN", "open")
    first, second = explore.hockey_stick(), explore.hockey_stick()
    run["header"] = {"msg_id": "2"}
    third = explore.hockey_stick()
    assert not first._all
    assert not second._all
    assert third._all
    third.close()
    shell_module._open.clear()
