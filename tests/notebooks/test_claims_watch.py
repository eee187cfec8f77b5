"""What the notebooks say that there is to see in the animations, held to the films themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
import numpy as np
import pytest

from course import explore, watch
from course.paths import NOTEBOOKS
from course.ui.film import Film, Place, film_of


def words_of(notebook: str, name: str) -> str:
    """The folded answer below an animation, in one line."""
    (path,) = Path(NOTEBOOKS).glob(f"{notebook}_*.ipynb")
    cells = {cell.id: cell.source for cell in nbformat.read(path, 4).cells}
    return " ".join(cells[f"watch-{name}-answer"].split())


def waiting(film: Film, moment_s: float) -> int:
    """How many the animation shows in the line."""
    return sum(seen.place in (Place.QUEUE, Place.PREEMPTED) for seen in film.at(moment_s))


def test_one_request() -> None:
    run = explore.one_request.runs("A page in, a paragraph out")["One request alone"]
    step_s = np.diff(run.step_end_s)
    words = words_of("00", "one-request")
    assert run.step_prefill_tokens.tolist() == [2000] + 59 * [0]
    assert f"{1e3 * run.step_end_s[0]:.0f} ms" in words
    assert f"{1e3 * step_s.mean():.1f} ms, {step_s.size} times" in words
    film = film_of(run)
    held = [film.tokens_after(0, step)[0] for step in range(60)]
    assert held[0] == 2000
    assert set(np.diff(held).tolist()) == {1}


def test_fifty() -> None:
    run = explore.tension.runs("Long chats", users=48)["48 users"]
    words = words_of("00", "fifty")
    assert f"waits {run.ttft_s[:48].max():.1f} s" in words
    assert f"first has a token after {run.ttft_s[:48].min():.2f} s" in words
    assert (run.step_prefill_tokens[:12] > 8000).all()
    assert run.step_prefill_tokens[12] < 300
    assert np.allclose(np.diff(run.token_times(0)[:12]), 0.19, atol=0.005)
    assert f"takes {1e3 * np.diff(run.step_end_s)[20]:.0f} ms" in words


def test_four_ways() -> None:
    runs = explore.four_ways.runs("Eight requests, four ways")
    static = next(run for name, run in runs.items() if name.startswith("static"))
    free = next(run for name, run in runs.items() if name.startswith("continuous"))
    words = words_of("03", "four-ways")
    assert static.batch[:2].tolist() == [0, 0]
    assert static.batch[2:].min() == 1
    assert f"From {static.finish_s[1]:.2f} s on request 1" in words
    assert f"at {static.finish_s[0]:.2f} s" in words
    assert waiting(film_of(static), 1.5) == 6
    assert f"request 1 is through at {free.finish_s[1]:.2f} s" in words
    sittings = film_of(free).sittings
    first, then = (int(np.flatnonzero(sittings.body == body)[0]) for body in (1, 2))
    assert sittings.seat[first] == sittings.seat[then]
    assert f"request 2, who arrives at {free.arrival_s[2]:.2f} s" in words
    assert free.scheduled_s[2] - free.arrival_s[2] < 0.01


def test_storm() -> None:
    runs = explore.kv_memory.runs("The storm")
    pressed, fitting = runs["256 seats"], runs["56 seats"]
    words = words_of("04", "storm")
    film = film_of(pressed)
    again = film.places.place == Place.PREEMPTED
    mean_s = (film.places.end_s - film.places.start_s)[again].mean()
    assert f"back {mean_s:.2f} s later" in words
    assert f"happens {pressed.preemptions.sum()} times" in words
    assert fitting.preemptions.sum() == 0
    assert f"all {len(fitting)} answers are there after {fitting.end_s:.0f} s" in words
    assert f"instead of {pressed.end_s:.0f} s" in words


def test_long_prompt() -> None:
    runs = explore.long_prompt.runs("A queue of its own")
    nobody, own = (film_of(run) for run in runs.values())
    words = words_of("04", "long-prompt")
    assert f"{waiting(nobody, 7.5)}, and the chats" in words
    (last,) = (seen for seen in own.at(7.5) if seen.place == Place.QUEUE)
    assert own.bodies.prompt_tokens[last.body] == 20_000
    behind = own.steps.start_s[own.chunks.step]
    document = own.bodies.prompt_tokens[own.sittings.body[own.chunks.sitting]] == 20_000
    assert own.chunks.tokens[document & (behind > 6.1) & (behind < 8)].max() == 512


def test_retry_storm() -> None:
    (run,) = explore.retry_storm.runs("The burst ends, the collapse stays").values()
    words = words_of("05", "retry-storm")
    film = film_of(run)
    assert words.split("summary> ")[1].startswith(
        f"{waiting(film, 79)}, {waiting(film, 100)} and {waiting(film, 200)}."
    )
    table: Any = run.attempts
    seated = (table.scheduled_s > 110) & (table.scheduled_s < 300)
    assert f"{seated.sum():,} attempts take a seat" in words
    assert table.finished[seated].sum() == 0
    waited_s = np.median((table.scheduled_s - table.sent_s)[seated])
    stayed_s = np.median((table.end_s - table.scheduled_s)[seated])
    assert f"more than {waited_s:.1f} of" in words
    assert f"leaves {stayed_s:.2f} s later" in words


def test_gate() -> None:
    bounded, open_to_all = (
        film_of(run) for run in explore.overload.runs("Bounded queue").values()
    )
    words = words_of("05", "gate")
    assert f"{waiting(bounded, 120)} behind the gate, {waiting(open_to_all, 120)} without" in words


@pytest.mark.parametrize("notebook", ["00", "03", "04", "05"])
def test_every_animation_opens(notebook: str) -> None:
    """The cell as it stands; where it opens lies inside its run."""
    (path,) = Path(NOTEBOOKS).glob(f"{notebook}_*.ipynb")
    cells = [cell for cell in nbformat.read(path, 4).cells if cell.source.startswith("watch(")]
    assert cells
    for cell in cells:
        opened = eval(cell.source, {"watch": watch, "explore": explore})
        assert f"watch-{cell.id.removeprefix('watch-')}" == cell.id
        assert opened.films
