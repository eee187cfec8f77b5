"""A figure that stands still on a page, with its alternative text; nothing is drawn here."""

from __future__ import annotations

import html
import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_LEAST_WORDS = 8


class Still:
    """A drawn figure as SVG with role, title and description, shown by any notebook front end."""

    def __init__(self, svg: str, alt: str) -> None:
        self.svg = svg
        self.alt = alt

    def __repr__(self) -> str:
        return self.alt

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {"text/html": self.svg, "text/plain": self.alt}


def still(figure: Figure, alt: str) -> Still:
    """Return `figure` as a picture for the page, described by the sentence `alt`.

    Raises ValueError where `alt` is not a sentence: who cannot see the picture reads that instead.
    """
    if len(alt.split()) < _LEAST_WORDS:
        raise ValueError(f"alt={alt!r} is too short; describe what the picture shows in a sentence")
    import matplotlib as mpl

    buffer = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "still"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    document = buffer.getvalue()
    # The page-wide style of a standalone file would restyle every other picture on the page.
    document = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", document, flags=re.DOTALL)
    document = re.sub(r"<metadata>.*?</metadata>", "", document, flags=re.DOTALL)
    body = document[document.index("<svg") :].replace(
        "'DejaVu Sans'", "'DejaVu Sans', Verdana, sans-serif"
    )
    head, rest = body.split(">", 1)
    head = re.sub(r'\s(?:width|height)="[^"]*"', "", head)
    label = html.escape(alt, quote=True)
    style = "max-width:860px;background:#fff;stroke-linejoin:round;stroke-linecap:butt"
    svg = f'{head} width="100%" role="img" aria-label="{label}" style="{style}">{rest}'
    return Still(svg, alt)
