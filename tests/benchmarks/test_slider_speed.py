"""From a moved slider to a changed picture: in the kernel, and in a browser.

Nothing here fails on a slow machine; the table at the end is what is read.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Iterator
from typing import Any

import nbformat
import numpy as np
import pytest

from course.ui.shell import show
from tests.browser.fixtures import Lab
from tests.browser.lab import open_and_run_all, open_curtain, shells
from tests.ui.explorers import drags, every_explorer, jumps

EXPLORERS = every_explorer()
ROWS: list[str] = []
WHOLE = "02_mm1_queueing.ipynb"  # its first explorer, among seventy cells that are all on the page
PRESSES = 30


@pytest.fixture(scope="module", autouse=True)
def table() -> Iterator[None]:
    yield
    print("\n\nfrom slider to picture" + "".join(f"\n  {row}" for row in ROWS))


@pytest.mark.parametrize("name", EXPLORERS)
def test_kernel(benchmark: Any, name: str) -> None:
    """One move: compute, draw, narrate. Dragged in the default scenario, then to anywhere."""
    shell = show(EXPLORERS[name], predict=False)
    for move in drags(shell, 10, seed=2):
        shell.set_state(**move)
    shell.reset()
    dragged = iter(list(drags(shell, 200)))
    times: list[float] = []

    def move_on(move: dict[str, Any]) -> None:
        start = time.perf_counter()
        shell.set_state(**move)
        times.append(time.perf_counter() - start)

    benchmark.pedantic(lambda: move_on(next(dragged)), rounds=200, iterations=1)
    ROWS.append(f"{name:<28} kernel   {_spread(times)}")
    times.clear()
    for move in jumps(shell, 100):
        move_on(move)
    ROWS.append(f"{'':<28} jumping  {_spread(times)}")
    shell.close()


def _spread(seconds: list[float]) -> str:
    ms = np.array(seconds) * 1e3
    return f"median {np.median(ms):6.1f} ms   P95 {np.quantile(ms, 0.95):6.1f} ms"


WATCH = """
() => {
  const shell = document.querySelectorAll('.course-shell')[0];
  const box = shell.querySelector('.course-layers');
  window.delays = [];
  window.pressed = 0;
  new MutationObserver(() => {
    if (window.pressed) {
      const pressed = window.pressed;
      window.pressed = 0;
      requestAnimationFrame(() => window.delays.push(performance.now() - pressed));
    }
  }).observe(box, {childList: true, subtree: true});
  document.addEventListener('keydown', () => { window.pressed = performance.now(); }, true);
}
"""


def alone(lab: Lab, call: str) -> str:
    """A notebook with one explorer in its default scenario and nothing else."""
    sources = ["from course import explore", f"{call}()"]
    cells = [nbformat.v4.new_code_cell(source) for source in sources]
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3 (ipykernel)"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=kernel)
    nbformat.write(notebook, lab.desk / "alone.ipynb")
    return "alone.ipynb"


@pytest.mark.parametrize("name", [*EXPLORERS, WHOLE])
def test_browser(benchmark: Any, page: Any, lab: Lab, name: str) -> None:
    """Key press to painted picture, in JupyterLab."""
    open_and_run_all(page, lab, WHOLE if name == WHOLE else alone(lab, name))
    shell = shells(page)[0]
    shell.scroll_into_view_if_needed()
    open_curtain(shell)
    page.evaluate(WATCH)
    handle = shell.locator(".noUi-handle").first
    handle.focus()

    where = "handle => handle.parentElement.style.transform"  # its value is rounded for speech
    places = [handle.evaluate(where)]

    def moves() -> None:
        for i in range(PRESSES):
            page.keyboard.press("ArrowLeft" if i % 10 < 5 else "ArrowRight")
            page.wait_for_timeout(180)
            places.append(handle.evaluate(where))

    benchmark.pedantic(moves, rounds=1, iterations=1)
    delays = page.evaluate("() => window.delays")
    # at its end a slider stays where it is
    moved = sum(one != other for one, other in itertools.pairwise(places))
    assert moved >= PRESSES / 4, "the keys did not move the slider"
    assert len(delays) > moved / 2, "the picture did not follow the slider"
    ROWS.append(
        f"{name:<28} browser  median {statistics.median(delays):6.1f} ms   "
        f"P95 {np.quantile(delays, 0.95):6.1f} ms   ({len(delays)} moves)"
    )
