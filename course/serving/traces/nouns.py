"""What a request trace holds once read, in seconds and tokens; nothing is read here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Trace:
    """The requests of a trace, one number a request: what a `Workload` is made of.

    `arrival_s` rises from 0; token counts are at least 1; rows that could not be requests were
    left out, and `warnings` says how many and why.
    """

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    layout: str
    path: str = ""
    warnings: tuple[str, ...] = ()
