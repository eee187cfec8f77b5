"""Guesses of how long an answer will be, each a workload with the guesses put in; no model is here.

A scheduler or a gate cannot know an answer's length; these stand for what it might believe. They
fill `predicted_output_tokens`, which `sjf`, `Admission` and policies of your own read.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from course.serving._arguments import LARGEST_TOKENS, at_least
from course.serving.workload import Seed, Workload


def oracle(work: Workload) -> Workload:
    """Return the workload with every answer's length known beforehand.

    >>> oracle(Workload([0.0], [9], [5])).predicted_output_tokens.tolist()
    [5]
    """
    return replace(work, predicted_output_tokens=work.output_tokens)


def noisy(work: Workload, cv: float, seed: Seed) -> Workload:
    """Return the workload with guesses that are right on average, each off by a random factor.

    The factor is lognormal with mean 1 and the coefficient of variation `cv` (0: the oracle), so
    sigma² = ln(1 + cv²), and does not depend on the length. Guesses are rounded, and at least 1.
    Raises ValueError for a negative cv.

    >>> work = Workload([0.0] * 1000, [9] * 1000, [500] * 1000)
    >>> guesses = noisy(work, cv=0.5, seed=0).predicted_output_tokens
    >>> abs(guesses.mean() / 500 - 1) < 0.05, abs(guesses.std() / guesses.mean() - 0.5) < 0.05
    (np.True_, np.True_)
    """
    sigma = math.sqrt(math.log1p(at_least("cv", cv) ** 2))
    generator = np.random.default_rng(seed)
    factors = generator.lognormal(-(sigma**2) / 2, sigma, len(work))
    guesses = np.clip(np.rint(work.output_tokens * factors), 1, LARGEST_TOKENS)
    return replace(work, predicted_output_tokens=guesses.astype(np.int64))


def class_mean(work: Workload, by: npt.ArrayLike | None = None) -> Workload:
    """Return the workload with every guess the mean answer of the request's class, rounded.

    `by`: the class of each request (such as `work.label`, its tenant); None: all are one class.
    Raises ValueError unless there is one class a request.

    >>> work = Workload([0.0] * 3, [9] * 3, [10, 20, 90], label=["chat", "chat", "essay"])
    >>> class_mean(work).predicted_output_tokens.tolist()
    [40, 40, 40]
    >>> class_mean(work, by=work.label).predicted_output_tokens.tolist()
    [15, 15, 90]
    """
    classes = np.zeros(len(work), dtype=np.int64) if by is None else np.asarray(by)
    if classes.shape != (len(work),):
        raise ValueError(
            f"by has shape {classes.shape} but there are {len(work)} requests; give one class each"
        )
    _, which = np.unique(classes, return_inverse=True)
    totals = np.bincount(which, weights=work.output_tokens.astype(np.float64))
    means = totals / np.maximum(np.bincount(which), 1)
    guesses = np.maximum(np.rint(means), 1).astype(np.int64)[which]
    return replace(work, predicted_output_tokens=guesses)
