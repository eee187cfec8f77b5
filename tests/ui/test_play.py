"""A parameter that can be played is still an ordinary slider; these tests fail where pressing play
would move something that the reader's hand could not, or outlive its explorer."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace

import ipywidgets as widgets
import pytest

from course.explore.ch03.four_ways import four_ways
from course.ui.parameters import changed, controls_of, count, play
from course.ui.shell import Shell, show


@dataclass(frozen=True)
class Example:
    played: int = play(100, 0, 100, 2, label="Played", unit="%", help="h", tick_ms=50)
    seats: int = count(4, 1, 64, label="Seats", help="h")


def buttons_of(shell: Shell) -> list[widgets.Play]:
    return [widget for widget in shell._all if isinstance(widget, widgets.Play)]


def test_a_played_parameter_is_checked_as_any_whole_number() -> None:
    assert controls_of(Example)["played"].tick_ms == 50
    assert controls_of(Example)["seats"].tick_ms is None
    assert changed(Example(), {"played": 40}).played == 40
    with pytest.raises(ValueError, match=r"played=101 is outside 0 … 100 %"):
        changed(Example(), {"played": 101})
    with pytest.raises(ValueError, match="whole number"):
        changed(Example(), {"played": 40.5})


def test_the_button_runs_over_the_slider_s_range_and_is_tied_to_it() -> None:
    shell = show(four_ways, predict=False)
    (button,) = buttons_of(shell)
    slider = shell.controls["played"]
    assert (button.min, button.max, button.step) == (slider.min, slider.max, slider.step)
    assert button.value == slider.value
    (link,) = [widget for widget in shell._all if type(widget).__name__ == "DirectionalLink"]
    assert link.source == (button, "value")
    assert link.target == (slider, "value")
    shell.close()


def test_it_plays_on_from_where_the_slider_was_put() -> None:
    shell = show(four_ways, predict=False)
    (button,) = buttons_of(shell)
    shell.controls["played"].value = 40
    assert button.value == 40
    shell.set_state(played=60)
    assert button.value == 60
    # while it plays, a slider that is a tick behind does not hold it back; a hand does
    button.playing = True
    shell.controls["played"].value = 58
    assert button.value == 60
    shell.controls["played"].value = 10
    assert button.value == 10
    shell.close()


def test_other_explorers_have_no_button() -> None:
    plain = replace(four_ways.parameters(), played=50)
    shell = show(four_ways, predict=False, played=50)
    assert shell.parameters == plain
    assert len(buttons_of(shell)) == 1
    shell.close()
    from course.explore.ch02.hockey_stick import hockey_stick

    other = show(hockey_stick, predict=False)
    assert not buttons_of(other)
    other.close()


def test_closing_frees_the_button_too() -> None:
    from ipywidgets.widgets.widget import _instances

    before = set(_instances)
    show(four_ways, predict=False).close()
    gc.collect()
    assert not set(_instances) - before
