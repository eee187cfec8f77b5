"""Checks of shares and of raw lists of times, for the modules of one queue; no queue lives here.

Unlike those of `_arguments`, they copy nothing: a simulated run may hold ten million times.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, at_least


def share(name: str, value: float, *, zero: bool = False) -> float:
    """Return `value` in 0 < value < 1 (0 too if `zero`); raise ValueError naming it otherwise.

    >>> share("p", 99)
    Traceback (most recent call last):
    ...
    ValueError: p=99 is not a share below 1; write 0.99 for the 99th percentile
    """
    part = at_least(name, value, above=not zero)
    if part >= 1:
        raise ValueError(
            f"{name}={value!r} is not a share below 1; write 0.99 for the 99th percentile"
        )
    return part


def flat_times(name: str, values: npt.ArrayLike) -> FloatArray:
    """Return one flat float64 array, the caller's own where it is one already; values unchecked.

    Raises ValueError for another shape, or for entries that are not numbers.

    >>> own = np.array([0.5, -1.0])
    >>> flat_times("service_s", own) is own
    True
    """
    array = np.asarray(values)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iuf"):
        raise ValueError(
            f"{name} has shape {array.shape} and type {array.dtype}; give one flat list of times, "
            "in seconds"
        )
    return np.require(array, dtype=np.float64, requirements=["C", "A"])
