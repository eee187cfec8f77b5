"""How evenly a server's work is shared out among tenants; who got what is counted elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def max_min_shares(demands: Sequence[float], total: float) -> FloatArray:
    """Return what each gets when `total` is shared out evenly and nobody gets more than asked for.

    What the modest leave is shared out among the others, and so on (max-min fairness; Bertsekas
    and Gallager, Data Networks, 1992, section 6.5). Same unit for all; more than all demands
    together is not handed out.

    >>> max_min_shares([1.0, 4.0, 9.0], 9.0).tolist()
    [1.0, 4.0, 4.0]
    """
    asked = np.asarray(demands, dtype=np.float64)
    shares = np.zeros(asked.size)
    left = min(float(total), float(asked.sum()))
    for done, place in enumerate(np.argsort(asked, kind="stable")):
        shares[place] = min(asked[place], left / (asked.size - done))
        left -= shares[place]
    return shares


def jain_index(shares: Sequence[float]) -> float:
    """Return (sum of x)² / (n · sum of x²): 1 where all have the same, 1/n where one has it all.

    Jain, Chiu and Hawe, DEC-TR-301, 1984. 1 where nobody has anything.

    >>> jain_index([1.0, 1.0]), jain_index([1.0, 0.0])
    (1.0, 0.5)
    """
    x = np.asarray(shares, dtype=np.float64)
    squares = float((x**2).sum())
    return float(x.sum() ** 2 / (x.size * squares)) if squares > 0 else 1.0


def fairness(got: Sequence[float], asked: Sequence[float]) -> float:
    """Return Jain's index of what each got over what it would get of the same total, max-min fair.

    So a tenant that asks for little does not count as badly treated, nor one that asks for more
    than its part as well treated.

    >>> fairness([2.0, 2.0, 6.0], [2.0, 9.0, 9.0])
    0.8571428571428571
    """
    due = max_min_shares(asked, float(np.sum(got)))
    return jain_index([g / d if d > 0 else 1.0 for g, d in zip(got, due.tolist(), strict=True)])
