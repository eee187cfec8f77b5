"""The button that opens an explorer's runs: the animation is of the picture's own parameters."""

from __future__ import annotations

from typing import Any

from course import explore
from course.ui.film import film_of
from tests.ui.explorers import every_explorer


def opened(**values: Any) -> Any:
    return explore.four_ways("One long answer among short", predict=False, **values)


def test_it_shows_the_runs_of_these_parameters() -> None:
    """If it failed, picture and animation would tell of different servers."""
    shell = opened(seats=2)
    shell.film.button.click()
    films = shell.film.animation.films
    expected = explore.four_ways.runs("One long answer among short", seats=2)
    assert list(films) == list(expected)
    for name, run in expected.items():
        assert films[name].events.at_s.tolist() == film_of(run).events.at_s.tolist()
    assert shell.film.animation in shell.film.place.children
    shell.film.button.click()
    assert shell.film.animation is None
    assert shell.film.place.children == ()


def test_a_move_closes_it() -> None:
    """If it failed, an old animation would stand under a new picture."""
    shell = opened(seats=2)
    shell.film.button.click()
    shell.set_state(seats=4)
    assert shell.film.animation is None
    shell.film.button.click()
    assert shell.film.animation.film.seat_limit == 4
    shell.close()
    assert shell.film.animation is None


def test_it_gives_no_answer_away() -> None:
    """If it failed, the animation would show what is to be guessed."""
    shell = opened()
    shell.film.follow(shell.parameters, True)
    assert shell.film.button.disabled
    shell.film.toggle()
    assert shell.film.animation is None


def test_without_a_run_there_is_no_button() -> None:
    """If it failed, a button would open nothing."""
    for explorer in list(every_explorer().values())[:12]:
        shell = explorer(predict=False)
        assert (shell.film.button.layout.display == "none") == (explorer.filmed is None)
        shell.close()
