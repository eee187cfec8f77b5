"""How far to trust the mean or a quantile of one run's waits; the waits are simulated elsewhere.

Successive waits are alike, so the rules for independent samples make their intervals far too
narrow; these cut the run into long batches and refuse one too short for its load.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, at_least
from course.serving.queueing.arguments import flat_times, share

_FEWEST_BATCHES = 10  # Schmeiser (1982): ten to thirty; more only shorten the batches
_MOST_BATCHES = 30
_MEAN_RUN = 1000  # autocorrelation times a run must last: a hundred a batch
_TAIL_RUN = 20  # … and each batch must spend two beyond the quantile
_FEWEST_WAITERS = 200  # a mean of zeros and a handful of waits has no normal error


@dataclass(frozen=True)
class Interval:
    """An estimate from one run with its error bar, or with the reason why there is none.

    `p` is None for a mean. `low` and `high` are None where the run is too short; then
    `needed_customers` is how long it should be (None where no length helps) and `reason` says so.
    `warmup` customers were left out at the start, the others cut into `batches` of `batch_size`.
    """

    estimate: float
    low: float | None
    high: float | None
    confidence: float
    p: float | None
    customers: int
    needed_customers: int | None
    warmup: int
    batches: int
    batch_size: int
    reason: str

    @property
    def mean(self) -> float:
        """The estimate, where it is one of a mean; raises ValueError for a quantile's interval."""
        if self.p is not None:
            raise ValueError(f"this interval is of the {self.p} quantile; read .estimate")
        return self.estimate

    @property
    def band(self) -> tuple[float, float] | None:
        """Both ends of the error bar, or None where there is none."""
        return None if self.low is None or self.high is None else (self.low, self.high)


def autocorrelation_time_customers(utilization: float) -> float:
    """Return how many successive M/M/1 waits tell as much about the mean as one independent one.

    (2 + 5ρ − 4ρ² + ρ³)/((2 − ρ)(1 − ρ)²), Daley (1968); near ρ = 1 it is 4/(1 − ρ)². Raises
    ValueError outside 0 < ρ < 1.

    >>> [round(autocorrelation_time_customers(rho), 1) for rho in (0.5, 0.9, 0.99)]
    [9.7, 362.6, 39603.0]
    """
    rho = share("utilization", utilization)
    return (2 + 5 * rho - 4 * rho**2 + rho**3) / ((2 - rho) * (1 - rho) ** 2)


def customers_needed(
    utilization: float, *, variability: float = 1.0, p: float | None = None
) -> int:
    """Return how long a run must be for an honest interval of its mean wait, or its `p`-quantile.

    Warm-up included. `variability` is (c_a² + c_s²)/2: 1 for M/M/1 and M/M/c, 0.5 for M/D/1. In
    heavy traffic waits remember in proportion to it (Whitt, 1989); its square is taken above one,
    as rare long services make waits skew as well. At just this length 95 % intervals covered 91 to
    96 % of 400 runs each of M/M/1, M/M/3, M/D/1 and M/G/1 (lognormal, scv 4) at ρ 0.5 and 0.8.
    Raises ValueError for unusable numbers.

    >>> customers_needed(0.8), customers_needed(0.8, p=0.999)
    (82699, 1647029)
    """
    batch_size = _batch_size(utilization, variability, p)  # checks them all
    return _warmup(utilization, variability) + _FEWEST_BATCHES * batch_size


def batch_means(
    waits_s: npt.ArrayLike,
    *,
    utilization: float,
    confidence: float = 0.95,
    variability: float = 1.0,
) -> Interval:
    """Return the mean of one run's waits, or sojourn times, with a confidence interval.

    `waits_s`: shape (customers,), from an empty start, of a queue with this `utilization` (ρ) and
    `variability` (see `customers_needed`). Successive waits are alike, so the run is cut into ten
    to thirty long batches (Schmeiser, 1982) whose means are nearly independent; their t-interval
    is adjusted for skewness (Willink, 2005). A run too short for its ρ gets no interval, but the
    number of customers it would take. Raises ValueError for waits that are not finite.

    >>> from course.serving.queueing import exponential, mm1, simulate_queue
    >>> rng = np.random.default_rng(1)
    >>> gaps, services = exponential(1.25, 100_000, rng), exponential(1.0, 100_000, rng)
    >>> waits = simulate_queue(gaps, services)
    >>> interval = batch_means(waits, utilization=0.8)
    >>> interval.low < mm1(0.8, 1.0).mean_wait_s < interval.high
    True
    >>> batch_means(waits[:5000], utilization=0.8).reason
    '5000 customers are too few at a utilization of 0.8; an interval takes 82699'
    """
    values = _finite(waits_s)
    interval = _batched(values, None, utilization, confidence, variability)
    positive = int(np.count_nonzero(values))
    if interval.low is None or positive >= _FEWEST_WAITERS:
        return interval
    needed = math.ceil(values.size * _FEWEST_WAITERS / positive) if positive else None
    reason = f"only {positive} of {values.size} customers waited at all" + (
        f"; an interval takes about {needed} customers" if needed else ""
    )
    return replace(interval, low=None, high=None, needed_customers=needed, reason=reason)


def batch_quantile(
    waits_s: npt.ArrayLike,
    p: float,
    *,
    utilization: float,
    confidence: float = 0.95,
    variability: float = 1.0,
) -> Interval:
    """Return the `p`-quantile (0 < p < 1) of one run's waits with a confidence interval.

    As `batch_means`, by sectioning (Asmussen and Glynn, 2007): the whole run's quantile is the
    centre, the batches' quantiles give its error. Raises ValueError as `batch_means`.

    >>> batch_quantile(np.zeros(1000), 0.99, utilization=0.9).needed_customers
    726989
    """
    p = share("p", p)
    return _batched(_finite(waits_s), p, utilization, confidence, variability)


def _finite(waits_s: npt.ArrayLike) -> FloatArray:
    values = flat_times("waits_s", waits_s)
    if not values.size:
        raise ValueError("waits_s is empty; give at least one customer's wait")
    usable = np.isfinite(values)
    if not usable.all():
        index = int(usable.argmin())
        raise ValueError(
            f"waits_s[{index}]={float(values[index])} is not finite; leave rejected customers out: "
            "waits_s[accepted]"
        )
    return values


def _warmup(utilization: float, variability: float) -> int:
    """Customers who still feel the empty start: five relaxation times of M/M/1 (Morse, 1955)."""
    return math.ceil(5 * variability * utilization / (1 - math.sqrt(utilization)) ** 2)


def _batch_size(utilization: float, variability: float, p: float | None) -> int:
    """Customers that each of the fewest batches must have."""
    spread = at_least("variability", variability, above=True)
    run = float(_MEAN_RUN)
    if p is not None:
        p = share("p", p)
        run = max(run, _TAIL_RUN / min(p, 1 - p))
    times = run * max(spread, spread**2) / _FEWEST_BATCHES
    return math.ceil(times * autocorrelation_time_customers(utilization))


def _batched(
    values: FloatArray,
    p: float | None,
    utilization: float,
    confidence: float,
    variability: float,
) -> Interval:
    utilization = at_least("utilization", utilization, above=True)
    confidence = share("confidence", confidence)
    if utilization >= 1:
        return _without_band(
            values, p, confidence, 0, None,
            f"at a utilization of {utilization:.6g} waits grow with the run: there is no long-run "
            "figure to estimate",
        )  # fmt: skip
    smallest = _batch_size(utilization, variability, p)
    warmup = _warmup(utilization, variability)
    needed = warmup + _FEWEST_BATCHES * smallest
    if values.size < needed:
        return _without_band(
            values, p, confidence, warmup, needed,
            f"{values.size} customers are too few at a utilization of {utilization:.6g}; "
            f"an interval takes {needed}",
        )  # fmt: skip
    batches = min((values.size - warmup) // smallest, _MOST_BATCHES)
    size = (values.size - warmup) // batches
    used = values[values.size - batches * size :]
    centre = float(_of_rows(used.reshape(1, -1), p)[0])
    low, high = _willink(centre, _of_rows(used.reshape(batches, size), p), confidence)
    return Interval(
        estimate=centre,
        low=low,
        high=high,
        confidence=confidence,
        p=p,
        customers=values.size,
        needed_customers=needed,
        warmup=values.size - used.size,
        batches=batches,
        batch_size=size,
        reason="",
    )


def _without_band(
    values: FloatArray,
    p: float | None,
    confidence: float,
    warmup: int,
    needed: int | None,
    reason: str,
) -> Interval:
    """The bare estimate of a run that is refused an interval."""
    warmup = warmup if warmup < values.size else 0
    return Interval(
        estimate=float(_of_rows(values[warmup:].reshape(1, -1), p)[0]),
        low=None,
        high=None,
        confidence=confidence,
        p=p,
        customers=values.size,
        needed_customers=needed,
        warmup=warmup,
        batches=0,
        batch_size=0,
        reason=reason,
    )


def _of_rows(rows: FloatArray, p: float | None) -> FloatArray:
    statistic = rows.mean(axis=1) if p is None else np.quantile(rows, p, axis=1)
    return np.asarray(statistic, dtype=np.float64)


def _willink(centre: float, rows: FloatArray, confidence: float) -> tuple[float, float]:
    """Student's interval of batch statistics, bent to the side of their skewness.

    Willink (2005), as used for batch means by Tafazzoli and Wilson (2011): waits have rare large
    batches, and a symmetric interval from a run without one lies too low too often.
    """
    from scipy.special import stdtrit

    k = rows.size
    error = math.sqrt(float(((rows - centre) ** 2).sum()) / (k - 1) / k)
    spread = float(rows.std(ddof=1))
    if spread == 0:
        return centre, centre
    third = float(((rows - rows.mean()) ** 3).mean()) * k * k / ((k - 1) * (k - 2))
    bend = third / spread**3 / (6 * math.sqrt(k))

    def adjusted(z: float) -> float:
        if abs(bend) < 1e-6:  # the limit as skewness vanishes
            return z
        return (math.cbrt(1 + 6 * bend * (z - bend)) - 1) / (2 * bend)

    z = float(stdtrit(k - 1, (1 + confidence) / 2))
    return centre - adjusted(z) * error, centre - adjusted(-z) * error
