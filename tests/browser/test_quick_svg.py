"""The quick renderer must paint what matplotlib's own paints: it may only be faster."""

from __future__ import annotations

from typing import Any

import pytest
from matplotlib.backends.backend_svg import RendererSVG

from course.ui import svg
from course.ui.shell import show
from tests.ui.explorers import every_explorer, jumps

EXPLORERS = every_explorer()


@pytest.mark.parametrize("name", EXPLORERS)
def test_the_same_pixels(page: Any, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    shell = show(EXPLORERS[name], predict=False)
    page.set_viewport_size({"width": 900, "height": 700})
    for move in [{}, *jumps(shell, 2, seed=6)]:
        shell.set_state(**move)
        painted = []
        for renderer in (svg.QuickSvg, RendererSVG):
            monkeypatch.setattr(svg, "QuickSvg", renderer)
            page.set_content(svg.LayeredSvg(shell._drawing).text("picture", "of it"))
            painted.append(page.screenshot())
        monkeypatch.undo()
        assert painted[0] == painted[1], f"after {move}"
    shell.close()
