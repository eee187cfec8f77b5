"""What a person does in JupyterLab, in words that a test can read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

IDLE_MS = 120_000


def open_and_run_all(page: Any, lab: Any, notebook: str) -> None:
    """Open a notebook, run all its cells and wait until the kernel has nothing to do."""
    page.goto(lab.url(notebook))
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=60_000)
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget?.sessionContext?.isReady", timeout=60_000
    )
    page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
    wait_until_idle(page)


def wait_until_idle(page: Any) -> None:
    """Wait until every code cell has run, or one has failed (which ends a run of all cells)."""
    page.wait_for_function(
        """() => {
            const prompts = [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')];
            const failed = '[data-mime-type="application/vnd.jupyter.error"]';
            return document.querySelector(failed)
                || (prompts.length > 0 && prompts.every(p => /\\[\\d+\\]/.test(p.textContent)));
        }""",
        timeout=IDLE_MS,
    )


def errors_shown(page: Any) -> list[str]:
    """The errors that cells show."""
    shown = page.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.error"]')
    return [re.sub(r"\s+", " ", text)[:300] for text in shown.all_inner_texts()]


def shells(page: Any) -> list[Any]:
    """Every explorer on the page."""
    return page.locator(".course-shell").all()


def state(shell: Any) -> tuple[str, str]:
    """What the explorer shows: the data layer of its figure, and its words, folded ones too."""
    figure = shell.locator("svg.course-figure > g.course-data").inner_html()
    return figure, shell.locator(".course-sentence").text_content()


def open_curtain(shell: Any) -> None:
    """Skip the guess where one is asked for."""
    skip = shell.get_by_role("button", name="Skip the guess")
    if skip.is_visible():
        skip.click()
        shell.page.wait_for_timeout(300)


def reset(shell: Any) -> None:
    """Press Reset, wait until the curtain is closed again, and skip the guess."""
    shell.get_by_role("button", name="Reset").click()
    skip = shell.get_by_role("button", name="Skip the guess")
    for _ in range(40):  # the kernel closes it, as soon as it comes to it
        if skip.is_visible():
            break
        shell.page.wait_for_timeout(50)
    open_curtain(shell)


def open_dials(shell: Any) -> None:
    """Unfold the settings that are seldom moved."""
    more = shell.get_by_role("button", name="More settings")
    if more.get_attribute("aria-pressed") != "true":
        more.click()
        shell.page.wait_for_timeout(300)


def changes(shell: Any, act: Callable[[], None], *, tries: int = 4) -> tuple[bool, bool]:
    """Act up to `tries` times; say whether the figure and whether the sentence changed."""
    before = state(shell)
    now = before
    for _ in range(tries):
        act()
        for _ in range(80):
            shell.page.wait_for_timeout(50)
            now = state(shell)
            if now[0] != before[0] and now[1] != before[1]:
                return True, True
    return now[0] != before[0], now[1] != before[1]
