"""The small server, its impatient clients and its rush that notebook 05's exercises run on.

It is the server of that notebook's pictures; what is asked about it is in the other `ch05_` files.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from course.serving.engine import (
    Admission,
    AdmissionPolicy,
    Patience,
    PythonAdmission,
    Retry,
    ServiceRun,
    simulate_service,
)
from course.serving.scenes.burst import (
    ANSWER,
    PATIENCE_S,
    PROMPT,
    RETRIES,
    Burst,
    config,
    cost,
    drawn_lengths,
)
from course.serving.scenes.burst import PROMISE as PROMISE
from course.serving.workload import Workload

USUAL_PER_S: Final = Burst().rate_per_s
PATIENCE: Final = Patience(e2e_s=PATIENCE_S, noticed=False)
THREE_ATTEMPTS: Final = RETRIES["three attempts"]

RUSH_S: Final = (15.0, 15.0, 25.0)
"""A trial's seconds of usual load, of three times as much, and of usual load again."""
SCORED_S: Final = (0.0, sum(RUSH_S) - PATIENCE_S)
"""A trial counts the requests first sent in these seconds: the last ten may rightly still wait."""


def rush(
    burst_s: float,
    factor: float = 2.0,
    *,
    before_s: float = 60.0,
    after_s: float = 150.0,
    seed: int = 0,
) -> Workload:
    """Return 8.5 requests/s at random, then `factor` times as many for `burst_s` s, then 8.5 again.

    Before the burst lie `before_s` seconds, after it `after_s`. Raises ValueError as `Workload`.

    >>> work = rush(10.0, seed=3)
    >>> 1800 < len(work) < 2120  # 8.5 · 220 + 8.5 · 10 = 1955 on average
    True
    """
    generator = np.random.default_rng([5, seed])
    ends_s = np.cumsum([0.0, before_s, burst_s, after_s])
    rates = USUAL_PER_S * np.array([1.0, factor, 1.0])
    counts = generator.poisson(rates * np.diff(ends_s))
    parts = [
        generator.uniform(start_s, end_s, count)
        for start_s, end_s, count in zip(ends_s[:-1], ends_s[1:], counts, strict=True)
    ]
    arrival_s = np.sort(np.concatenate(parts))
    prompts, answers = (
        drawn_lengths(generator, which, arrival_s.size) for which in (PROMPT, ANSWER)
    )
    return Workload(arrival_s, prompts, answers)


def serve(
    work: Workload,
    admission: Admission | PythonAdmission | AdmissionPolicy | None = None,
    *,
    retry: Retry = THREE_ATTEMPTS,
    patience: Patience = PATIENCE,
    seed: int = 0,
) -> ServiceRun:
    """Return what becomes of a workload on the notebook's server, until its last arrival.

    `admission`: an `Admission`, or your own `admit(request, state)`; None lets everybody in.
    Clients give up after 10 s, unnoticed, and try three times, unless you say otherwise.
    Raises ValueError as `simulate_service` does.

    >>> serve(rush(0.0, seed=1)).attainment(PROMISE, 0.0, 200.0) > 0.99
    True
    """
    return simulate_service(
        work,
        cost(),
        config(),
        patience=patience,
        retry=retry,
        admission=admission,
        seed=seed,
        horizon_s=float(work.arrival_s[-1]),
    )


def trial(
    admission: Admission | PythonAdmission | AdmissionPolicy | None = None, *, seed: int = 0
) -> ServiceRun:
    """Return one rush of exercise 5.8 behind a gate: `RUSH_S` seconds, three times the load inside.

    `admission` as for `serve`. Raises ValueError as `simulate_service` does.

    >>> len(trial(seed=1)) > 600
    True
    """
    before_s, burst_s, after_s = RUSH_S
    work = rush(burst_s, 3.0, before_s=before_s, after_s=after_s, seed=seed)
    return serve(work, admission, seed=seed)


def score(
    admission: Admission | PythonAdmission | AdmissionPolicy | None = None, *, seed: int = 0
) -> float:
    """Return the per cent answered in time of the requests first sent in the first 45 s of a trial.

    It is what exercise 5.8 judges by. Raises ValueError as `simulate_service` does.

    >>> score(seed=1) < score(Admission(max_waiting_requests=16), seed=1)
    True
    """
    return 100 * (trial(admission, seed=seed).attainment(PROMISE, *SCORED_S) or 0.0)
