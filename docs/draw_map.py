"""Draws docs/images/map.svg, the rooms of the course and the arrows between them, from the imports.

python docs/draw_map.py            draw it anew
python docs/draw_map.py --check    exit with 1 where the picture is not that of the code
"""

from __future__ import annotations

import sys
from collections import Counter
from io import StringIO
from pathlib import Path

import grimp
import matplotlib as mpl
from matplotlib.figure import Figure

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "images" / "map.svg"
# where each stands on the picture: (across, up); on the left the rooms, on the right the wings
ROOMS = {
    "commands": (0.5, 5.2), "explore": (0.1, 3.9), "exercises": (0.9, 3.9), "figures": (0.1, 2.4),
    "ui": (0.9, 2.4), "measure": (0.5, 1.6), "serving": (0.5, 0.5),
}  # fmt: skip
WINGS = {
    "scenes": (2.0, 5.2), "validation": (3.0, 5.2), "load": (2.5, 4.4), "traces": (3.4, 4.0),
    "results": (3.5, 3.1), "engine": (2.4, 3.2), "requests": (3.0, 2.2), "queueing": (1.8, 2.2),
    "pricing": (2.2, 1.4), "workload": (1.8, 0.5), "catalog": (2.7, 0.5), "files": (3.5, 0.5),
}  # fmt: skip


def arrows() -> Counter[tuple[str, str]]:
    """(importing place, imported place) -> how many imports; a place is a room or a wing."""
    graph = grimp.build_graph("course")
    found: Counter[tuple[str, str]] = Counter()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            one, other = importer.split(".")[1:3], imported.split(".")[1:3]
            for places, depth in ((ROOMS, 0), (WINGS, 1)):
                names = [path[depth] for path in (one, other) if len(path) > depth]
                inside = depth == 0 or one[:1] == other[:1] == ["serving"]
                if (
                    len(names) == 2
                    and inside
                    and len(set(names)) == 2
                    and set(names) <= set(places)
                ):
                    found[names[0], names[1]] += 1
    return found


def drawn() -> str:
    """The picture as SVG, the same bytes for the same imports."""
    settings = {"svg.hashsalt": "map", "svg.fonttype": "none", "font.family": ["DejaVu Sans"]}
    with mpl.rc_context(settings):
        figure = Figure(figsize=(9.6, 5.6))
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set(xlim=(-0.35, 3.95), ylim=(0, 6.1), xticks=[], yticks=[])
        axes.axis("off")
        axes.axvspan(1.4, 3.9, ymin=0.02, ymax=0.98, color="#f3f3f3", zorder=0)
        for x, title in ((0.5, "the rooms of course/"), (2.65, "the wings of course/serving/")):
            axes.text(x, 5.8, title, ha="center", va="center", color="#595959")
        places = ROOMS | WINGS
        for (one, other), count in sorted(arrows().items()):
            axes.annotate(
                "", places[other], places[one], zorder=1,
                arrowprops={
                    "arrowstyle": "-|>", "color": "#0072B2", "shrinkA": 16, "shrinkB": 16,
                    "linewidth": 0.7 + 0.1 * min(count, 20), "connectionstyle": "arc3,rad=0.06",
                },
            )  # fmt: skip
        for place, (x, y) in places.items():
            axes.text(
                x, y, place, ha="center", va="center", zorder=3,
                bbox={"boxstyle": "round,pad=0.45", "facecolor": "white", "edgecolor": "#222222"},
            )  # fmt: skip
        text = StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    return text.getvalue()


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(PICTURE.read_text(encoding="utf-8") != drawn())
    PICTURE.write_text(drawn(), encoding="utf-8", newline="\n")
