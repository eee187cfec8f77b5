"""The play button in a real browser: by keyboard alone it makes the slider run, and the picture and
its sentence with it; a timeline that only a mouse can play shuts people out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat

from tests.browser.fixtures import Lab
from tests.browser.lab import errors_shown, open_and_run_all, open_curtain, shells, state


def test_play_runs_by_keyboard_and_stops(page: Any, lab: Lab, artifacts: Path) -> None:
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    book = nbformat.v4.new_notebook(metadata={"kernelspec": kernel})
    book.cells = [
        nbformat.v4.new_code_cell("from course import explore"),
        nbformat.v4.new_code_cell('explore.four_ways(preset="Eight requests, four ways")'),
    ]
    nbformat.write(book, lab.desk / "play.ipynb")
    open_and_run_all(page, lab, "play.ipynb")
    assert not errors_shown(page)
    (shell,) = shells(page)
    shell.scroll_into_view_if_needed()
    open_curtain(shell)
    assert "is through after" in state(shell)[1]
    shell.screenshot(path=artifacts / "play-0.png")
    play, stop = (shell.locator(".widget-play button").nth(i) for i in range(2))
    play.focus()
    page.keyboard.press("Enter")
    seen = set()
    for _ in range(30):
        page.wait_for_timeout(100)
        seen.add(state(shell))
    assert len({figure for figure, _ in seen}) > 5, "the picture stands still while it plays"
    assert any("has come to step" in words for _, words in seen)
    page.keyboard.press("Enter")
    page.wait_for_timeout(600)
    paused = state(shell)
    page.wait_for_timeout(600)
    assert state(shell) == paused, "a pause does not pause"
    shell.screenshot(path=artifacts / "play-1.png")
    stop.focus()
    page.keyboard.press("Enter")
    page.wait_for_timeout(600)
    assert "At 0" in state(shell)[1]
    assert not page.problems
