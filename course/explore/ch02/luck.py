"""The random draws that notebook 02's explorers share; what they make of them lives with each."""

from __future__ import annotations

from functools import lru_cache

import numpy as np


@lru_cache(maxsize=4)
def unit_exponentials(customers: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return unit-mean exponential (gaps, services), shapes (customers,): the same luck anywhere.

    Kept, so that a moved slider scales the same draws and only what it changed moves.
    """
    rng = np.random.default_rng(seed)
    return rng.exponential(size=customers), rng.exponential(size=customers)
