"""Words on a picture: ground, places, short numbers; which words is not decided here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

# A pale ground keeps words legible where a curve runs behind them.
GROUND: Final[dict[str, Any]] = {"facecolor": "white", "alpha": 0.78, "linewidth": 0, "pad": 0.6}


def spread(wanted: Sequence[float], gap: float, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Return places in `low` … `high`, each near the `wanted` one and at least `gap` from others.

    The order of the values is kept, ties in the order given. All in one unit, such as shares of
    the axes' height. Where the range is too small for all, the lowest leave it.

    >>> spread([0.5, 0.1, 0.52], 0.1)
    [0.5, 0.1, 0.6]
    >>> spread([0.95, 1.4], 0.1)
    [0.9, 1.0]
    """
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    places = [0.0] * len(wanted)
    floor = low
    for i in order:
        places[i] = max(wanted[i], floor)
        floor = places[i] + gap
    ceiling = high
    for i in reversed(order):
        places[i] = min(places[i], ceiling)
        ceiling = places[i] - gap
    return [round(place, 9) for place in places]


def flop_words(flop_per_s: float) -> str:
    """Return operations a second in as few characters as an axis has.

    >>> [flop_words(v) for v in (1e11, 1e12, 2e15)]
    ['100 G', '1 T', '2 P']
    """
    for size, unit in ((1e15, "P"), (1e12, "T")):
        if flop_per_s >= size:
            return f"{flop_per_s / size:g} {unit}"
    return f"{flop_per_s / 1e9:g} G"
