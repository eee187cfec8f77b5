"""A matplotlib figure as SVG text in two layers; which artist lies in which is not decided here.

The *frame* (axes, ticks, labels, legend) is drawn once, panel by panel, and kept while its key
stands; the *data layer* alone is drawn, and sent, on every move. A panel of the frame takes about
15 ms, the data in it about one: that difference is what lets a picture follow a slider.
"""

from __future__ import annotations

import contextlib
import html
import io
import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any

import matplotlib as mpl
from matplotlib.artist import Artist

from course.ui.demonstration import Drawing
from course.ui.quick_svg import QuickSvg

_counter = itertools.count(1)
_KEPT_PIECES = 128
_HALO = '<text style="paint-order:stroke;stroke:#fff;stroke-width:3px;stroke-linejoin:round;'
_STYLE_BLOCK = re.compile(r"<defs>\s*<style.*?</style>\s*</defs>", re.DOTALL)
_PAST_HUNDREDTHS = re.compile(r"(?<=\d\.\d\d)\d+")
_WORDS = re.compile(r"(>[^<]*</text>)")
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)


class LayeredSvg:
    """Turns one `Drawing` into an SVG string, keeping the frame between calls."""

    def __init__(self, drawing: Drawing[Any]) -> None:
        self.drawing = drawing
        # A salt of its own keeps the ids of two pictures on one page apart: a clip path that
        # resolves to a hidden picture would blank the visible one.
        self._salt = f"c{next(_counter)}"
        self._pieces: dict[tuple[object, ...], str] = {}

    def text(self, title: str, description: str, *, with_data: bool = True) -> str:
        """Return the whole SVG element; without data only the frame is drawn."""
        return self._element(
            f'<g class="course-frame">{self._frame()}</g>{self._data(with_data)}',
            self._named(title, description),
        )

    def frame_element(self) -> str:
        """Return the frame as an SVG element of its own, to lie under the data layer."""
        return self._element(f'<g class="course-frame">{self._frame()}</g>', 'aria-hidden="true"')

    def data_element(self, title: str, description: str, *, with_data: bool = True) -> str:
        """Return the data layer as an SVG element of its own, which has the picture's words."""
        return self._element(self._data(with_data), self._named(title, description))

    def _element(self, inner: str, attributes: str) -> str:
        width, height = self.drawing.figure.get_size_inches() * 72
        head, _, words = attributes.partition(">")
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
            f'viewBox="0 0 {width:g} {height:g}" width="100%" {head} '
            'class="course-figure" style="stroke-linejoin:round;stroke-linecap:butt">'
            f"{words}{inner}</svg>"
        )

    def _named(self, title: str, description: str) -> str:
        """Return the attributes, and after ">" the elements, that give a picture its words."""
        name = f"{self._salt}-title {self._salt}-desc"
        return (
            f'role="img" tabindex="0" aria-labelledby="{name}">'
            f'<title id="{self._salt}-title">{html.escape(title)}</title>'
            f'<desc id="{self._salt}-desc">{html.escape(description)}</desc>'
        )

    def _data(self, with_data: bool) -> str:
        if not with_data:
            return '<g class="course-data"></g>'
        # A white edge keeps words readable where they lie on a line.
        data = self._layer(self.drawing.data()).replace('<text style="', _HALO)
        return f'<g class="course-data">{data}</g>'

    def _frame(self) -> str:
        figure = self.drawing.figure
        key = self.drawing.frame_key()
        panels, common = key[: len(figure.axes)], key[len(figure.axes) :]
        keys: dict[Artist, tuple[object, ...]] = {
            axes: (index, panel, *common)
            for index, (axes, panel) in enumerate(zip(figure.axes, panels, strict=True))
        }
        data = set(self.drawing.data())
        pieces = [artist for artist in figure.get_children() if artist not in data]
        # the figure's ground lies below everything, whatever its order says
        pieces.sort(key=lambda artist: (artist is not figure.patch, artist.get_zorder()))
        return "".join(
            self._piece(artist, keys.get(artist, ("figure", index, *common)), data)
            for index, artist in enumerate(pieces)
        )

    def _piece(self, artist: Artist, key: tuple[object, ...], data: set[Artist]) -> str:
        """Return one panel, or one artist that lies in none, as it was drawn for this key."""
        if key not in self._pieces:
            if len(self._pieces) >= _KEPT_PIECES:
                self._pieces.pop(next(iter(self._pieces)))
            hidden = [other for other in data if other.get_visible()]
            for other in hidden:
                other.set_visible(False)
            self._pieces[key] = self._layer([artist])
            for other in hidden:
                other.set_visible(True)
        return self._pieces[key]

    def _layer(self, artists: Iterable[Artist]) -> str:
        figure = self.drawing.figure
        width, height = figure.get_size_inches() * 72
        buffer = io.StringIO()
        with _settings({"svg.fonttype": "none", "svg.hashsalt": self._salt}):
            renderer = QuickSvg(width, height, buffer, image_dpi=72)
            for artist in sorted(artists, key=lambda artist: artist.get_zorder()):
                artist.draw(renderer)
            renderer.finalize()
        # A hundredth of a point is finer than any screen, and half as long to send and to parse.
        return _shortened(_inner(buffer.getvalue()))


def _shortened(drawing: str) -> str:
    """Cut the coordinates to hundredths, and no digit of what is written in the picture."""
    parts = _WORDS.split(drawing)
    parts[::2] = [_PAST_HUNDREDTHS.sub("", part) for part in parts[::2]]
    return "".join(parts)


@contextlib.contextmanager
def _settings(values: dict[str, str]) -> Iterator[None]:
    """Set a few of matplotlib's settings for a while; its own context copies all 300 of them."""
    settings: Any = mpl.rcParams
    before = {key: settings[key] for key in values}
    settings.update(values)
    try:
        yield
    finally:
        settings.update(before)


def _inner(document: str) -> str:
    """Strip the XML header, the outer element and the page-wide style of a standalone SVG."""
    start = document.index(">", document.index("<svg")) + 1
    body = document[start : document.rindex("</svg>")]
    body = _METADATA.sub("", _STYLE_BLOCK.sub("", body)).strip()
    # The widths were laid out with DejaVu Sans; Verdana has the same where DejaVu is not installed.
    return body.replace("'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif")
