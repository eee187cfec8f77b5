"""Every notebook as a person meets it: run all, move every slider, look."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from course.paths import NOTEBOOKS
from tests.browser.fixtures import Lab
from tests.browser.lab import (
    changes,
    errors_shown,
    open_and_run_all,
    open_curtain,
    open_dials,
    reset,
    shells,
    state,
)
from tests.lanes import by_lane

NAMES = sorted(path.name for path in NOTEBOOKS.glob("*.ipynb"))


@pytest.fixture(params=NAMES)
def notebook(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_run_all_and_move_everything(page: Any, lab: Lab, artifacts: Path, notebook: str) -> None:
    """No error in any cell or on the console; every slider moves its picture and its sentence."""
    open_and_run_all(page, lab, notebook)
    assert not errors_shown(page)
    source = (lab.desk / notebook).read_text(encoding="utf-8")
    charts = source.count('"explore.requests_view')
    assert page.locator(".vega-embed").count() == charts
    for number in range(charts):
        chart = page.locator(".vega-embed").nth(number)
        chart.scroll_into_view_if_needed()
        chart.screenshot(path=artifacts / f"{notebook[:2]}-chart-{number}.png")
    found = shells(page)
    assert len(found) == source.count('"explore.') - charts
    for number, shell in enumerate(found):
        shell.scroll_into_view_if_needed()
        shell.screenshot(path=artifacts / f"{notebook[:2]}-{number}-closed.png")
        open_curtain(shell)
        assert "<path" in state(shell)[0]
        shell.screenshot(path=artifacts / f"{notebook[:2]}-{number}-open.png")
        open_dials(shell)
        move_every_slider(page, shell)
        choose_every_option(shell, artifacts / f"{notebook[:2]}-{number}")
    assert not page.problems


def move_every_slider(page: Any, shell: Any) -> None:
    """Each slider once by key, the first also by mouse, and back where it was by Reset."""
    handles = shell.locator(".noUi-handle")
    by_mouse = by_lane(quick=1, whole=1, deep=handles.count())
    for i in range(handles.count()):
        handle = handles.nth(i)
        if handle.locator("xpath=ancestor::*[@disabled]").count():
            continue  # greyed out: it makes no difference here, and says so
        name = shell.locator(".widget-slider .widget-label").nth(i).inner_text()
        handle.focus()
        at_end = handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemax")
        key = "ArrowLeft" if at_end else "ArrowRight"
        assert changes(shell, lambda key=key: page.keyboard.press(key)) == (True, True), name
        if i < by_mouse:
            assert changes(shell, lambda handle=handle: drag(page, handle)) == (True, True), name
        reset(shell)


def drag(page: Any, handle: Any) -> None:
    handle.scroll_into_view_if_needed()
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    low, high = (float(handle.get_attribute(f"aria-value{end}")) for end in ("min", "max"))
    # Far enough that a slider with few stops reaches the next one.
    width = handle.locator("xpath=ancestor::*[contains(@class,'noUi-target')]").bounding_box()[
        "width"
    ]
    reach = min(max(24.0, 0.8 * width / (high - low)), 0.45 * width)
    step = -reach if float(handle.get_attribute("aria-valuenow")) > (low + high) / 2 else reach
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + step, y, steps=4)
    page.mouse.up()


def choose_every_option(shell: Any, stem: Path) -> None:
    """Each preset shows something of its own; that all do is also seen without a browser."""
    presets = shell.locator(".widget-dropdown").first.locator("select")
    names = presets.locator("option").all_inner_texts()[1:]
    names = names[: by_lane(quick=2, whole=2, deep=len(names))]
    seen = set()
    for i, name in enumerate(names):
        choose(shell, presets, name)
        seen.add(state(shell)[1])
        shell.screenshot(path=stem.with_name(f"{stem.name}-preset-{i}.png"))
    assert len(seen) == len(names)


def choose(shell: Any, presets: Any, name: str) -> None:
    """Choose a preset and wait for its picture; the one that is already shown changes nothing."""
    before = state(shell)
    presets.select_option(label=name)
    for _ in range(40):
        shell.page.wait_for_timeout(50)
        if state(shell) != before:
            break
    open_curtain(shell)  # a preset asks its own question
    shell.page.wait_for_timeout(200)


def test_guess_and_present_mode(page: Any, lab: Lab, artifacts: Path) -> None:
    """The guess is drawn; in present mode type and picture are larger."""
    open_and_run_all(page, lab, "02_mm1_queueing.ipynb")
    shell = shells(page)[0]
    shell.scroll_into_view_if_needed()
    assert "<path" not in state(shell)[0], "the curtain lets the answer through"
    shell.get_by_placeholder("a number").fill("1.5")
    shell.get_by_role("button", name="Show me").click()
    page.wait_for_timeout(500)
    assert "your guess 1.50 s" in state(shell)[0]
    assert "too low by a factor of" in state(shell)[1]
    narrow = shell.locator(".course-layers").bounding_box()["width"]
    small = shell.locator(".course-title").evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    shell.screenshot(path=artifacts / "02-guess.png")
    shell.get_by_role("button", name="Present").click()
    page.wait_for_timeout(500)
    large = shell.locator(".course-title").evaluate("e => parseFloat(getComputedStyle(e).fontSize)")
    assert large > 1.1 * small
    assert shell.locator(".course-layers").bounding_box()["width"] > 1.05 * narrow
    shell.screenshot(path=artifacts / "02-present.png")


def test_keyboard_alone_reaches_everything(page: Any, lab: Lab) -> None:
    """Whoever cannot use a mouse can still guess, move and reset."""
    open_and_run_all(page, lab, "02_mm1_queueing.ipynb")
    shell = shells(page)[0]
    shell.locator("select").first.focus()
    reached = set()
    for _ in range(30):
        reached.add(
            page.evaluate(
                """() => { const e = document.activeElement;
                const slides = (e.getAttribute('class') || '').includes('noUi');
                return slides ? 'slider' : e.tagName.toLowerCase(); }"""
            )
        )
        page.keyboard.press("Tab")
    assert {"slider", "select", "button", "input"} <= reached
