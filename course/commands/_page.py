"""One self-contained page of HTML: words, a table, a picture as SVG; nothing is fetched."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 0.85rem; }
th, td { padding: 0.25rem 0.6rem; text-align: right; border-bottom: 1px solid #8886; }
td { white-space: nowrap; }
p, ul { max-width: 50rem; }
figure { max-width: 60rem; }
tr.chosen { font-weight: bold; }
.wide { overflow-x: auto; }
.answer { font-size: 1.15rem; border-left: 4px solid #2a6fb0; padding-left: 1rem; }
figure { margin: 1.5rem 0; background: #fff; padding: 0.5rem; }
figure svg { width: 100%; height: auto; }
@media print {
  body { max-width: none; margin: 0; font-size: 11px; }
  table { font-size: 9px; }
  .wide { overflow: visible; }
}
"""


@dataclass(frozen=True)
class Page:
    """What a page says. All texts are plain; `table` has its heads first, `chosen` rows a star."""

    title: str
    answer: str
    paragraphs: Sequence[str]
    table: Sequence[Sequence[str]]
    picture: str
    notes: Sequence[str]

    def as_html(self) -> str:
        """Return the page; every text is escaped, whatever a file was called."""
        said = html.escape
        heads, *rows = self.table
        parts = [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{said(self.title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{said(self.title)}</h1>",
            f'<p class="answer">{said(self.answer)}</p>',
            *(f"<p>{said(text)}</p>" for text in self.paragraphs if text),
            f"<figure>{self.picture}</figure>",
            '<div class="wide"><table><thead><tr>',
            *(f'<th scope="col">{said(head)}</th>' for head in heads),
            "</tr></thead><tbody>",
        ]
        for row in rows:
            chosen = ' class="chosen"' if "*" in row[:1] else ""
            cells = "".join(f"<td>{said(cell)}</td>" for cell in row)
            parts.append(f"<tr{chosen}>{cells}</tr>")
        parts.append("</tbody></table></div>")
        if self.notes:
            parts.append("<h2>How sure</h2><ul>")
            parts += [f"<li>{said(note)}</li>" for note in self.notes]
            parts.append("</ul>")
        parts.append("</body></html>")
        return "\n".join(parts) + "\n"


def svg_of(figure: Figure, words: str, salt: str) -> str:
    """Return a figure as SVG to stand inside a page, with `words` for who cannot see it."""
    import matplotlib as mpl

    target = io.StringIO()
    # the same picture gives the same bytes
    with mpl.rc_context({"svg.hashsalt": salt, "svg.fonttype": "none"}):
        figure.savefig(target, format="svg", metadata={"Date": None})
    drawn = target.getvalue()
    start = drawn.index("<svg")
    return f'<svg role="img" aria-label="{html.escape(words)}"{drawn[start + 4 :]}'
