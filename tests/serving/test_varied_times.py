"""Times of a wanted variability: with a wrong mean or CV every simulated point would be off its
curve, and the curve would get the blame."""

from __future__ import annotations

import math

import numpy as np
import pytest

from course.serving.queueing.varied_times import weibull_power, with_cv


@pytest.mark.parametrize("cv", [1e-3, 0.05, 0.5, 0.77, 1.0, 2.15, 4.0, 20.0])
def test_the_power_has_the_wanted_cv(cv: float) -> None:
    """Moments of a Weibull time, from its gamma functions."""
    x = weibull_power(cv)
    second = math.exp(math.lgamma(1 + 2 * x) - 2 * math.lgamma(1 + x))
    assert second - 1 == pytest.approx(cv * cv, rel=1e-6)


@pytest.mark.parametrize("cv", [0.0, 0.3, 1.0, 2.2])
def test_draws_have_mean_one_and_the_wanted_cv(cv: float) -> None:
    draws = np.log(np.random.default_rng(3).exponential(size=1_000_000))
    times = with_cv(draws, cv)
    assert times.mean() == pytest.approx(1, abs=0.01)
    assert times.std() == pytest.approx(cv, rel=0.02, abs=1e-12)


def test_one_is_exactly_exponential() -> None:
    draws = np.random.default_rng(3).exponential(size=1000)
    np.testing.assert_allclose(with_cv(np.log(draws), 1.0), draws, rtol=1e-10)


def test_a_longer_time_stays_longer_at_every_cv() -> None:
    """The promise that makes a slider show the queue and not fresh luck."""
    draws = np.log(np.random.default_rng(4).exponential(size=1000))
    order = np.argsort(draws)
    for cv in (0.1, 1.0, 3.0):
        assert (np.diff(with_cv(draws, cv)[order]) >= 0).all()


@pytest.mark.parametrize("cv", [-0.1, float("nan"), float("inf"), 21.0])
def test_bad_variability_is_named(cv: float) -> None:
    with pytest.raises(ValueError, match="cv="):
        weibull_power(cv)
