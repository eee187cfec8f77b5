"""Who held a seat from which step to which: `Stays`, read off a run; nothing is simulated here.

A request takes a seat when it is admitted and leaves it when it has ended, is preempted, or is
dropped; it may take one several times. With the steps' own counts, this says where everybody was.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course.serving._arguments import FloatArray, SmallArray
from course.serving.engine.kernels.service_state import Attempts, Steps

NEVER = -1
"""The step of what has not happened by the end of the run."""


@dataclass(frozen=True, eq=False)
class Stays:
    """One entry a stay in each column, in the order in which the seats were taken.

    `owner`: the request, or the attempt, that sat there. `from_step`: its first step in the seat;
    `to_step`: the first step without it. `ready_step`: the step that brought its first token since
    it sat down. Both are -1 where that did not happen. `cached_tokens`: what its cache held
    already when it sat down; `emitted_tokens`: what it had emitted by then.
    """

    owner: SmallArray
    from_step: SmallArray
    to_step: SmallArray
    ready_step: SmallArray
    cached_tokens: SmallArray
    emitted_tokens: SmallArray

    def __len__(self) -> int:
        return int(self.owner.size)

    @classmethod
    def of_rows(cls, rows: list[tuple[int, int, int, int, int, int]]) -> Stays:
        """Return the stays of these rows, put into the order in which the seats were taken."""
        table = np.array(rows, dtype=np.int32).reshape(-1, 6)
        order = np.argsort(table[:, 1], kind="stable")
        return cls(*table[order].T.copy())

    @classmethod
    def of_attempts(cls, log: Attempts, steps: Steps) -> Stays:
        """Return the stays that the general loop wrote down."""
        return cls(
            owner=log.stay_attempt,
            from_step=log.stay_from,
            to_step=log.stay_to,
            ready_step=_first_tokens(log, steps),
            cached_tokens=log.stay_cached,
            emitted_tokens=log.stay_emitted,
        )


def step_starts_s(step_end_s: FloatArray, scheduled_s: FloatArray) -> FloatArray:
    """Return when each step began: at the end of the one before, or later after a pause.

    A step after a pause begins with somebody who was never scheduled before, so that the times
    `scheduled_s` of the requests tell of it.

    >>> step_starts_s(np.array([1.0, 2.0, 9.0]), np.array([0.0, 8.0])).tolist()
    [0.0, 1.0, 8.0]
    """
    starts_s = np.concatenate([[0.0], step_end_s[:-1]])[: step_end_s.size]
    begun_s = scheduled_s[np.isfinite(scheduled_s)]
    np.maximum.at(starts_s, np.searchsorted(step_end_s, begun_s, side="right"), begun_s)
    return starts_s


def _first_tokens(log: Attempts, steps: Steps) -> SmallArray:
    """Return the step that brought each stay's first token: of some it is the first decode step."""
    decoding = np.append(np.flatnonzero(steps.decode_seqs > 0), steps.end_s.size)
    may_decode = -2 - log.stay_ready
    first = decoding[np.searchsorted(decoding, np.maximum(may_decode, 0))]
    until = np.where(log.stay_to < 0, steps.end_s.size, log.stay_to)
    found = np.where(first < until, first, NEVER)
    return np.where(may_decode >= 0, found, log.stay_ready).astype(np.int32)
