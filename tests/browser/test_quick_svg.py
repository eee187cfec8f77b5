"""Panels drawn one by one, quickly, must look as matplotlib draws the whole figure: a faster way to
draw may change nothing that is seen."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.backends.backend_svg import RendererSVG

from course.ui import svg
from course.ui.shell import show
from tests.ui.explorers import every_explorer, jumps

EXPLORERS = every_explorer()


def frame_in_one_piece(layered: svg.LayeredSvg) -> str:
    """The figure as matplotlib draws it, without the data layer."""
    data = [artist for artist in layered.drawing.data() if artist.get_visible()]
    for artist in data:
        artist.set_visible(False)
    text = layered._layer([layered.drawing.figure])
    for artist in data:
        artist.set_visible(True)
    return text


@pytest.mark.parametrize("name", EXPLORERS)
def test_the_same_pixels(page: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    shell = show(EXPLORERS[name], predict=False)
    page.set_viewport_size({"width": 900, "height": 700})
    for move in [{}, *jumps(shell, 2, seed=6)]:
        shell.set_state(**move)
        page.set_content(svg.LayeredSvg(shell.drawing).text("picture", "of it"))
        quick = page.screenshot()
        with monkeypatch.context() as patched:
            patched.setattr(svg, "QuickSvg", RendererSVG)
            patched.setattr(svg.LayeredSvg, "_frame", frame_in_one_piece)
            page.set_content(svg.LayeredSvg(shell.drawing).text("picture", "of it"))
        assert quick == page.screenshot(), f"after {move}"
    shell.close()
