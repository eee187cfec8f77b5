"""Numbers as people read them (seconds, rates, shares); nothing is computed here."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence


def seconds(value: float) -> str:
    """Return a duration with three significant figures and the unit that suits it.

    >>> [seconds(v) for v in (0.00123, 0.5, 2.3026, 754.2)]
    ['1.23 ms', '500 ms', '2.30 s', '754 s']
    """
    if math.isnan(value):
        return "undefined"
    if math.isinf(value):
        return "without end"
    if value == 0:
        return "0 s"
    if abs(value) < 0.9995:
        return f"{rounded(value * 1000)} ms"
    return f"{rounded(value)} s"


def rounded(value: float, count: int = 3) -> str:
    """Return a number with `count` significant figures, trailing zeros kept, no powers of ten.

    >>> [rounded(v) for v in (0.01234, 9.999, 10.0, 123456.0)]
    ['0.0123', '10.0', '10.0', '123,000']
    """
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    digits = count - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, digits)
    # Rounding may carry into a new decade (9.999 -> 10.0), which has one decimal less.
    digits = count - 1 - math.floor(math.log10(abs(rounded)))
    return f"{rounded:,.{max(digits, 0)}f}"


def percent(share: float) -> str:
    r"""Return a share as per cent, with a decimal where whole numbers would hide the difference.

    The space before the sign does not break.

    >>> [percent(v) for v in (0.8, 0.955, 0.9987, 1.05)]
    ['80\xa0%', '95.5\xa0%', '99.87\xa0%', '105\xa0%']
    """
    value = 100 * share
    decimals = 2 if 99 < value < 100 else 1
    return f"{value:.{decimals}f}".rstrip("0").rstrip(".") + "\u00a0%"


_ENDS = re.compile(r"(?<=[.!?;])\s+(?=\S)")


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table's rows as lines, each column as wide as its widest cell, to the right.

    >>> aligned([["users", "TTFT"], ["8", "40 ms"]])
    ['users   TTFT', '    8  40 ms']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True))
        for row in rows
    ]


def lead_and_rest(words: str, most: int = 30) -> tuple[str, str]:
    """Return what is said at once, and what only a reader who asks is told.

    The first is as much of `words` as `most` words hold, cut where a sentence or a part of one
    ends; where the first part alone is longer, that part.

    >>> lead_and_rest("It waits 2.5 s; nobody leaves. The rest is quick.", most=6)
    ('It waits 2.5 s; nobody leaves.', 'The rest is quick.')
    >>> lead_and_rest("It waits 2.5 s; nobody leaves.", most=4)
    ('It waits 2.5 s.', 'Nobody leaves.')
    """
    parts = _ENDS.split(words)
    count = 1
    while count < len(parts) and len(" ".join(parts[: count + 1]).split()) <= most:
        count += 1
    lead, rest = " ".join(parts[:count]), " ".join(parts[count:])
    if rest and lead.endswith(";"):
        lead, rest = f"{lead[:-1]}.", f"{rest[0].upper()}{rest[1:]}"
    return lead, rest
