"""Seeded, independent times to feed a simulated queue; the queue lives in `simulation`.

Every draw takes a generator. Times that keep their luck while a slider changes their variability
are in `varied_times`.
"""

from __future__ import annotations

import math

import numpy as np

from course.serving._arguments import FloatArray, at_least, whole


def exponential(mean_s: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Return `n` exponential times of mean `mean_s`: gaps of random (Poisson) arrivals.

    >>> exponential(2.0, 3, np.random.default_rng(1)).round(3)
    array([ 2.146,  0.617, 10.751])
    """
    return sample_times(mean_s, 1.0, n, rng, family="exponential")


def lognormal_with_scv(mean_s: float, scv: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Return `n` lognormal times of mean `mean_s` and variance `scv`·mean²: many short, few huge.

    >>> lognormal_with_scv(2.0, 4.0, 3, np.random.default_rng(1)).round(3)
    array([1.387, 2.536, 1.36 ])
    """
    return sample_times(mean_s, scv, n, rng, family="lognormal")


def gamma_with_scv(mean_s: float, scv: float, n: int, rng: np.random.Generator) -> FloatArray:
    """Return `n` gamma times of mean `mean_s` and variance `scv`·mean²: 0 constant, 1 exponential.

    >>> gamma_with_scv(2.0, 0.0, 3, np.random.default_rng(1))
    array([2., 2., 2.])
    """
    return sample_times(mean_s, scv, n, rng, family="gamma")


def sample_times(
    mean_s: float, scv: float, n: int, rng: np.random.Generator, family: str = "gamma"
) -> FloatArray:
    """Return `n` independent times of mean `mean_s` and squared coefficient of variation `scv`.

    `family`: "gamma", "lognormal", "exponential" (scv 1) or "constant" (scv 0); any family with
    scv 0 is constant. The same generator state gives the same times. Raises ValueError for
    unusable numbers, a family that cannot have this scv, and a seed in place of a generator: one
    seed used twice would make gaps and services the same numbers.

    >>> rng = np.random.default_rng(7)
    >>> times = sample_times(0.1, 0.5, 100_000, rng, family="lognormal")
    >>> round(float(times.mean()), 2), round(float(times.var() / times.mean() ** 2), 1)
    (0.1, 0.5)
    """
    mean_s = at_least("mean_s", mean_s, above=True)
    scv, n = at_least("scv", scv), whole("n", n, low=0)
    if not isinstance(rng, np.random.Generator):
        raise ValueError(
            f"rng={rng!r} is not a generator; make one with rng = np.random.default_rng(seed) and "
            "use that same one for gaps and services"
        )
    if family not in _FAMILIES:
        raise ValueError(f"family={family!r} is unknown; give one of {', '.join(_FAMILIES)}")
    only = _FAMILIES[family]
    if only is not None and scv not in (only, 0.0):
        raise ValueError(f"scv={scv:g} but {family} times have scv {only:g}; take gamma instead")
    if scv == 0:
        return np.full(n, mean_s)
    if family == "exponential":
        return rng.exponential(mean_s, n)
    if family == "gamma":
        return rng.gamma(1 / scv, mean_s * scv, n)
    log_variance = math.log1p(scv)
    return mean_s * np.exp(math.sqrt(log_variance) * rng.standard_normal(n) - log_variance / 2)


# family -> the one scv that it can have, or None for any
_FAMILIES: dict[str, float | None] = {
    "gamma": None,
    "lognormal": None,
    "exponential": 1.0,
    "constant": 0.0,
}
