"""Times of any variability made from one set of exponential draws; no queue is here.

Where a slider changes the variability, the luck should stay: independent draws would move every
simulated point at random with each step. A Weibull time is a power of an exponential one, so the
same draws serve every variability, and a longer time stays a longer time. Its family holds the
constant (0) and the exponential (1), and of the usual ones it fits the gaps between the requests
of real traces best (data/traces/arrival_statistics.csv).
"""

from __future__ import annotations

import math

import numpy as np

from course.serving._arguments import FloatArray, at_least

LARGEST_CV = 20.0


def weibull_power(cv: float) -> float:
    """Return x such that the x-th power of an exponential time has coefficient of variation `cv`.

    The Weibull shape is 1/x. From 1 + cv² = Γ(1 + 2x)/Γ(1 + x)². Raises ValueError for a `cv`
    below 0 or above 20, where a mean takes more requests than anyone simulates.

    >>> weibull_power(0.0), round(weibull_power(1.0), 12), round(weibull_power(math.sqrt(5)), 12)
    (0.0, 1.0, 2.0)
    """
    cv = at_least("cv", cv)
    if cv > LARGEST_CV:
        raise ValueError(f"cv={cv!r} is above {LARGEST_CV:g}; give a smaller one")
    if cv == 0:
        return 0.0
    from scipy.optimize import brentq

    wanted = math.log1p(cv * cv)

    def excess(x: float) -> float:
        return math.lgamma(1 + 2 * x) - 2 * math.lgamma(1 + x) - wanted

    # Convex, 0 at 0 and ln 2 at 1, hence at least x·ln 2 beyond 1: the ends lie on both sides.
    return float(brentq(excess, 0.0, 1 + wanted / math.log(2), xtol=1e-14))


def with_cv(log_exponential: FloatArray, cv: float) -> FloatArray:
    """Return times of mean 1 and coefficient of variation `cv`, one for each draw.

    `log_exponential` are logarithms of exponential draws of mean 1, shape (n,): given as logarithms
    because they are reused, and a product is much cheaper than a power. Raises ValueError as
    `weibull_power`.

    >>> draws = np.log([0.5, 1.0, 2.0])
    >>> with_cv(draws, 0.0), with_cv(draws, 1.0)
    (array([1., 1., 1.]), array([0.5, 1. , 2. ]))
    """
    x = weibull_power(cv)
    # The mean is Γ(1 + x).
    return np.asarray(np.exp(x * log_exponential - math.lgamma(1 + x)))
