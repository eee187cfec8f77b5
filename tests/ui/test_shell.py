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


def test_present_mode_has_larger_type_and_the_question_for_the_room() -> None:
    page = explore.hockey_stick("Friday-night burst", predict=False)
    live = explore.hockey_stick("Friday-night burst", predict=False, present=True)
    size = re.compile(r"font(?:-size)?: ?(?:[a-z0-9]* )?([\d.]+)px")

    def relative(svg: str) -> float:
        width = float(re.search(r'viewBox="0 0 ([\d.]+)', svg).group(1))
        return max(map(float, size.findall(svg))) / width

    assert relative(live.svg) > 1.3 * relative(page.svg)
    assert "course-present" in live.view._dom_classes
    assert "P99" in live._story.value
    live._present.value = False
    assert "course-present" not in live.view._dom_classes
    page.close()
    live.close()


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
