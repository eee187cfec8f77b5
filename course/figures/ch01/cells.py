"""Many short texts drawn as one artist, for a table inside a picture; what they say comes from its
caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase

Cell = tuple[float, float, str]


class Cells(Artist):
    """The words of a table's cells at (x, y) in data coordinates, all of one look.

    A text artist of its own for each of a hundred cells would lay each of them out anew: five
    times the time, and more than a slider has.
    """

    def __init__(
        self, axes: Axes, *, ha: Literal["left", "center", "right"] = "right", **options: Any
    ) -> None:
        super().__init__()
        self._cells: Sequence[Cell] = ()
        # It carries font, colour and anchor, and is never drawn itself.
        self.look = axes.text(0, 0, "", ha=ha, visible=False, **options)
        self.set_figure(axes.figure)
        axes.add_artist(self)
        self.set_zorder(self.look.get_zorder())

    @property
    def cells(self) -> Sequence[Cell]:
        """What is shown: (x, y of the base line, words)."""
        return self._cells

    def show(self, cells: Sequence[Cell]) -> None:
        """Show these cells and no others."""
        self._cells = tuple(cells)

    def draw(self, renderer: RendererBase) -> None:
        """Draw every cell's words, anchored at its place."""
        look, font = self.look, self.look.get_fontproperties()
        if not self.get_visible() or not self._cells:
            return
        renderer.open_group("cells", self.get_gid())
        gc = renderer.new_gc()
        gc.set_foreground(look.get_color())
        places = look.get_transform().transform([(x, y) for x, y, _ in self._cells])
        height = renderer.get_canvas_width_height()[1]
        for (x, y), (at_x, at_y, words) in zip(places, self._cells, strict=True):
            look.set_position((at_x, at_y))
            below = height - y if renderer.flipy() else y
            renderer.draw_text(gc, x, below, words, font, 0, False, mtext=look)
        gc.restore()
        renderer.close_group("cells")
