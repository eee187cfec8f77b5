"""Matplotlib's SVG renderer, drawing the same in half the time; what is drawn is not known here.

A picture that follows a slider is drawn up to sixty times a second by the same few artists. What
matplotlib works out anew each time and finds the same (the extent of a word, the style of a line,
the style of each marker) is remembered here.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from matplotlib.backends.backend_svg import RendererSVG
from matplotlib.transforms import Affine2D

_Base: Any = RendererSVG  # matplotlib's renderers have no types
_UPSIDE_DOWN: Final[Any] = Affine2D().scale(1.0, -1.0)
_KEPT: Final = 4096
_extents: dict[tuple[Any, ...], tuple[float, float, float]] = {}
_styles: dict[tuple[Any, ...], dict[str, str]] = {}


class QuickSvg(_Base):  # type: ignore[misc]
    """Draws what its base draws; groups have no ids, as several layers stand on one page."""

    def open_group(self, s: str, gid: str | None = None) -> None:
        """Begin a group, with an id only where one was asked for."""
        self.writer.start("g", **({"id": gid} if gid else {}))

    def get_text_width_height_descent(
        self, s: str, prop: Any, ismath: Any
    ) -> tuple[float, float, float]:
        """Return a word's extents, which depend on nothing but the word and its font."""
        key = (s, hash(prop), ismath)
        found = _extents.get(key)
        if found is None:
            found = super().get_text_width_height_descent(s, prop, ismath)
            _remember(_extents, key, found)
        return found

    def _get_style_dict(self, gc: Any, rgbFace: Any) -> dict[str, str]:
        if gc.get_hatch() is not None:  # defined once in each document
            return dict(super()._get_style_dict(gc, rgbFace))
        offset, dashes = gc.get_dashes()
        key = (
            None if rgbFace is None else tuple(rgbFace),
            None if dashes is None else (offset, *dashes),
            (*gc.get_rgb(), gc.get_alpha(), gc.get_forced_alpha()),
            (gc.get_linewidth(), gc.get_joinstyle(), gc.get_capstyle()),
        )
        found = _styles.get(key)
        if found is None:
            found = super()._get_style_dict(gc, rgbFace)
            _remember(_styles, key, found)
        return dict(found)

    def draw_markers(
        self, gc: Any, marker_path: Any, marker_trans: Any, path: Any, trans: Any,
        rgbFace: Any = None,
    ) -> None:  # fmt: skip
        """Draw one marker at each point, all in a group that has their style."""
        style = self._get_style_dict(gc, rgbFace)
        if path.codes is not None or gc.get_hatch() is not None or "opacity" in style:
            super().draw_markers(gc, marker_path, marker_trans, path, trans, rgbFace)
            return
        points = trans.transform(path.vertices)
        points = points[np.isfinite(points).all(axis=1)]
        if not len(points):
            return
        shape = self._convert_path(marker_path, marker_trans + _UPSIDE_DOWN, simplify=False)
        name = self._markers.get(shape)
        if name is None:
            name = self._markers[shape] = self._make_id("m", shape)
            self.writer.start("defs")
            self.writer.element("path", id=name, d=shape)
            self.writer.end("defs")
        css = "; ".join(f"{key}: {value}" for key, value in style.items())
        self.writer.start("g", style=css, **self._get_clip_attrs(gc))
        for x, y in points.tolist():
            place = {"x": f"{x:f}", "y": f"{self.height - y:f}"}
            self.writer.element("use", attrib={"xlink:href": f"#{name}", **place})
        self.writer.end("g")


def _remember(kept: dict[Any, Any], key: Any, value: Any) -> None:
    if len(kept) >= _KEPT:
        kept.clear()
    kept[key] = value
