"""The animation in a real browser: what it draws is the run, it can be played by keyboard alone,
and it plays where no kernel answers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import nbformat
import pytest

import course
from course.ui.film import Place, film_of
from tests.browser.fixtures import Lab
from tests.browser.lab import errors_shown, open_and_run_all
from tests.ui.test_watch import RUNS, moments_of, storm

RUN = """\
import json
from pathlib import Path

import numpy as np

import course
from course import Admission, EngineConfig, LinearStepCost, Patience, Retry, Workload
from course import simulate_service

rng = np.random.default_rng(3)
crowd = Workload(np.sort(rng.uniform(0.0, 10.0, 250)), rng.integers(20, 300, 250),
                 rng.integers(10, 120, 250))
run = simulate_service(
    crowd, LinearStepCost(0.01, 5e-5, 0.0, 2e-4),
    EngineConfig(max_num_seqs=12, max_num_batched_tokens=256, num_kv_blocks=130),
    patience=Patience(ttft_s=2.0, e2e_s=6.0), retry=Retry(attempts=3, delay_s=1.0),
    admission=Admission(max_waiting_requests=25))
film = course.watch(run, title="The storm")
film
"""

ASK = """\
moments = np.random.default_rng(8).uniform(film.film.start_s, film.film.end_s, 200).tolist()
answers = []

def ask():
    film.moment_s = moments[len(answers)]
    film.asked += 1

def note(change):
    answers.append(change["new"])
    if len(answers) < len(moments):
        ask()
    else:
        Path("answers.json").write_text(json.dumps(answers))

def begin(change):
    film.unobserve(begin, "moment_s")
    film.observe(note, "drawn")
    ask()

film.observe(begin, "moment_s")
"""

KERNEL = {"name": "python3", "display_name": "Python 3", "language": "python"}


def open_film(page: Any, lab: Lab, name: str, *cells: str) -> Any:
    """Open a notebook with an animation, run it, and return the live player."""
    book = nbformat.v4.new_notebook(metadata={"kernelspec": KERNEL})
    book.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(book, lab.desk / name)
    open_and_run_all(page, lab, name)
    assert not errors_shown(page)
    player = page.locator(".jp-OutputArea .course-watch").first
    player.wait_for()
    player.scroll_into_view_if_needed()
    return player


def test_what_is_drawn_is_the_run(page: Any, lab: Lab, artifacts: Path) -> None:
    """At 200 random moments the widget's own state holds everybody where the run had them."""
    player = open_film(page, lab, "watch.ipynb", RUN, ASK)
    page.wait_for_timeout(1500)
    assert page.locator(".course-watch").count() == 1, "the page without a kernel plays as well"
    player.get_by_role("button", name="One step forward").click()
    for _ in range(300):
        page.wait_for_timeout(100)
        if (lab.desk / "answers.json").exists():
            break
    page.wait_for_timeout(200)
    answers = json.loads((lab.desk / "answers.json").read_text(encoding="utf-8"))
    film = film_of(storm())
    assert len(answers) == 200
    drawn = 0
    for answer in answers:
        expected = [
            [
                seen.body, seen.place, seen.seat, seen.computed_tokens,
                seen.emitted_tokens if seen.place == Place.SEAT else 0, seen.kv_blocks,
                int(seen.gone),
            ]
            for seen in film.at(answer["moment_s"])
        ]  # fmt: skip
        bodies = sorted(answer["bodies"])
        assert [body[:7] for body in bodies] == expected, f"at {answer['moment_s']} s"
        assert all(0 <= body[7] <= answer["width"] for body in bodies)
        drawn += len(bodies)
    assert drawn > 2000
    player.screenshot(path=artifacts / "watch.png")
    assert not page.problems


def test_it_is_played_by_keyboard_alone(page: Any, lab: Lab) -> None:
    """Steps, events, play and pause without a mouse; the sentence says what happened."""
    player = open_film(page, lab, "keys.ipynb", RUN)
    story, clock = player.locator(".cw-story"), player.locator(".cw-clock")
    player.locator(".cw-scrub").focus()
    assert "takes a seat" in story.inner_text() or "arrives" in story.inner_text()
    seen = []
    for _ in range(5):
        page.keyboard.press("ArrowRight")
        seen.append(clock.inner_text())
    assert len(set(seen)) == 5, "a step forward does not move"
    page.keyboard.press("ArrowLeft")
    assert clock.inner_text() == seen[-2], "a step back does not undo a step forward"
    page.keyboard.press("Shift+ArrowRight")
    assert story.inner_text().startswith("At ")
    player.get_by_role("button", name="Play").focus()
    before = clock.inner_text()
    page.keyboard.press("Enter")
    page.wait_for_timeout(800)
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    assert clock.inner_text() != before, "play does not play"
    paused = clock.inner_text()
    page.wait_for_timeout(400)
    assert clock.inner_text() == paused, "a pause does not pause"
    follow = player.get_by_label("Follow request")
    follow.focus()
    page.keyboard.type("3")
    life = player.locator(".cw-life")
    assert "request 3 arrives" in life.inner_text()
    assert not page.problems


@pytest.mark.parametrize("name", sorted(RUNS))
def test_a_page_plays_without_a_kernel(page: Any, tmp_path: Path, name: str) -> None:
    """Exported to HTML, without a network, the animation plays, and shows the run."""
    opened = course.watch(RUNS[name]())
    body = opened.page(patience_ms=0)
    html = f"<!doctype html><html lang=en><meta charset=utf-8><title>x</title><body>{body}</body>"
    (tmp_path / "page.html").write_text(html, encoding="utf-8")
    page.context.set_offline(True)
    page.goto((tmp_path / "page.html").as_uri())
    page.locator(".course-watch").wait_for()
    for moment in moments_of(opened.film, 10):
        state = page.evaluate(
            """moment => {
                const { player } = document.querySelector("[id^=watch-]");
                player.seek(moment);
                return player.state();
            }""",
            moment,
        )
        seen = opened.film.at(moment)
        assert sorted(body[:4] for body in state["bodies"]) == [
            [one.body, one.place, one.seat, one.computed_tokens] for one in seen
        ]
    assert "steps in" not in page.locator("body").inner_text(), "the words of the still are left"
    assert not page.problems
