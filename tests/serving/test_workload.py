"""If a workload were not what it says, every curve drawn from it would answer another question."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from course.serving.workload import (
    Constant,
    DayCycle,
    Fixed,
    Gamma,
    Lognormal,
    LognormalMixture,
    OnOff,
    Poisson,
    Quantiles,
    Replay,
    RequestClass,
    Workload,
    closed_loop_work,
    draw,
    mixture,
)

GOOD: dict[str, Any] = {"arrival_s": [0.0, 1.0], "prompt_tokens": [5, 6], "output_tokens": [2, 3]}


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"arrival_s": [1.0, 0.5]}, r"arrival_s\[1\]=0\.5 comes before arrival_s\[0\]=1\.0; sort"),
        ({"arrival_s": [0.0, math.nan]}, r"arrival_s\[1\]=nan is not a number"),
        ({"arrival_s": [0.0, math.inf]}, r"arrival_s\[1\]=inf is infinite"),
        ({"arrival_s": [-1.0, 0.0]}, r"arrival_s\[0\]=-1\.0 is negative"),
        ({"arrival_s": [0.5, -1.0]}, r"arrival_s\[1\]=-1\.0 is negative"),
        ({"arrival_s": [[0.0, 1.0]]}, r"arrival_s has 2 dimensions"),
        ({"arrival_s": ["a", "b"]}, r"arrival_s\[0\]=.*'a'.* is not a number"),
        ({"arrival_s": [0.0]}, r"prompt_tokens has 2 entries but arrival_s has 1"),
        ({"prompt_tokens": [5, 0]}, r"prompt_tokens\[1\]=0 is below 1"),
        ({"prompt_tokens": [5, 2.5]}, r"prompt_tokens\[1\]=2\.5 is not whole"),
        ({"prompt_tokens": [5, math.nan]}, r"prompt_tokens\[1\]=nan is not whole"),
        ({"prompt_tokens": [5, 2**40]}, r"prompt_tokens\[1\]=1099511627776 is above"),
        ({"prompt_tokens": [True, False]}, r"prompt_tokens\[0\]=.*True.* is not a number"),
        ({"output_tokens": [2]}, r"output_tokens has 1 entries but arrival_s has 2"),
        ({"output_tokens": [-3, 3]}, r"output_tokens\[0\]=-3 is below 1"),
        ({"predicted_output_tokens": [1, 0]}, r"predicted_output_tokens\[1\]=0 is below 1"),
        ({"priority": [0.0, math.nan]}, r"priority\[1\]=nan is not a number"),
        ({"cached_prefix_tokens": [0, -1]}, r"cached_prefix_tokens\[1\]=-1 is below 0"),
        ({"label": ["chat"]}, r"label has 1 entries but arrival_s has 2"),
    ],
)
def test_bad_input_is_named_with_its_place_and_value(changed: dict[str, Any], words: str) -> None:
    """A student who cannot see which entry is wrong would look at the engine for the fault."""
    with pytest.raises(ValueError, match=words):
        Workload(**GOOD | changed)


def test_whole_numbers_may_come_as_floats_and_the_input_stays_the_callers() -> None:
    """A trace read with pandas has float columns; and a later edit must not change a past run."""
    mine = np.array([5.0, 6.0])
    work = Workload([0, 1], mine, [2, 3])
    mine[0] = 99
    assert work.prompt_tokens.tolist() == [5, 6]
    with pytest.raises(ValueError, match="read-only"):
        work.prompt_tokens[0] = 1


def test_huge_finite_times_are_no_fault() -> None:
    """The finiteness check adds all entries up, which may overflow although each is finite."""
    assert len(Workload([1e308, 1.5e308], [1, 1], [1, 1])) == 2


def test_an_empty_workload_is_a_workload() -> None:
    """A filter that leaves nothing must not need a special case in every notebook."""
    empty = Workload([], [], [])
    assert len(empty) == 0
    assert math.isnan(empty.rate_per_s)
    assert math.isnan(empty.mean_prompt_tokens)
    assert "0 requests" in repr(empty)


def test_scaling_keeps_the_requests_and_their_pattern() -> None:
    """A load curve with other requests at each load would compare requests, not loads."""
    work = draw(500, Gamma(3.0, 0.3), Lognormal(5.0, 1.0), Lognormal(4.0, 1.0), seed=1)
    faster = work.scaled(12.0)
    assert faster.rate_per_s == pytest.approx(12.0)
    assert faster.prompt_tokens is work.prompt_tokens
    np.testing.assert_allclose(faster.arrival_s, work.arrival_s * (work.rate_per_s / 12.0))


@pytest.mark.parametrize(
    ("work", "rate", "words"),
    [
        (Workload([0.0], [1], [1]), 1.0, "no rate to scale"),
        (Workload([2.0, 2.0], [1, 1], [1, 1]), 1.0, "no rate to scale"),
        (Workload([0.0, 1e10], [1, 1], [1, 1]), 1e-320, "too small"),
        (Workload([0.0, 1.0], [1, 1], [1, 1]), 0.0, r"rate_per_s=0\.0 is not above 0"),
        (Workload([0.0, 1.0], [1, 1], [1, 1]), math.nan, "rate_per_s=nan"),
    ],
)
def test_what_has_no_rate_cannot_be_scaled(work: Workload, rate: float, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        work.scaled(rate)


def test_the_first_requests_keep_every_column() -> None:
    """A shortened trace that lost its labels would be sliced wrongly later."""
    kinds = [
        RequestClass("a", 1, Fixed(3), Fixed(4), 1.0),
        RequestClass("b", 1, Fixed(5), Fixed(6)),
    ]
    work = mixture(50, Poisson(1.0), kinds, seed=0)
    short = work.first(10)
    assert short.label is not None
    assert work.label is not None
    assert short.label.tolist() == work.label[:10].tolist()
    assert len(short) == len(short.prompt_tokens) == 10


# --------------------------------------------------------------------------------------- arrivals
ARRIVALS = [
    Constant(5.0),
    Poisson(5.0),
    Gamma(5.0, 0.25),
    OnOff(20.0, 0.0, 5.0, 15.0),
    OnOff(8.0, 4.0, 5.0, 15.0),
    DayCycle(5.0, swing=0.9, period_s=600.0),
]


@pytest.mark.parametrize("arrivals", ARRIVALS, ids=repr)
def test_arrivals_rise_and_keep_their_mean_rate(arrivals: Any) -> None:
    """A generator with another mean rate would shift every knee that is found with it."""
    times_s = arrivals.draw(200_000, np.random.default_rng(3))
    assert (np.diff(times_s) >= 0).all()
    assert times_s[0] >= 0
    rate = getattr(arrivals, "rate_per_s", None) or arrivals.mean_rate_per_s
    assert 200_000 / times_s[-1] == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("burstiness", [0.1, 0.5, 1.0, 4.0])
def test_gamma_gaps_vary_by_one_over_the_root_of_burstiness(burstiness: float) -> None:
    """vLLM's benchmark means this by burstiness; another meaning would make runs incomparable."""
    gaps_s = np.diff(Gamma(2.0, burstiness).draw(300_000, np.random.default_rng(0)))
    assert gaps_s.std() / gaps_s.mean() == pytest.approx(burstiness**-0.5, rel=0.02)


def test_on_off_is_silent_when_off_and_clumped() -> None:
    """The rate must switch: a plain Poisson process of the same mean has no bursts to show."""
    silent = OnOff(20.0, 0.0, mean_on_s=5.0, mean_off_s=15.0)
    times_s = silent.draw(40_000, np.random.default_rng(5))
    counts = np.bincount(times_s.astype(int))
    assert (counts == 0).mean() > 0.6  # three quarters of the time nobody can come
    assert counts.var() / counts.mean() > 5  # of a Poisson process this is 1


def test_the_day_has_its_peak_and_trough() -> None:
    """The cycle's phase and swing are what a scheduled scaling would rely on."""
    day = DayCycle(4.0, swing=0.5, period_s=1000.0)
    times_s = day.draw(400_000, np.random.default_rng(0))
    per_tenth = np.bincount((times_s % 1000.0 // 100).astype(int), minlength=10)
    rate = per_tenth / per_tenth.mean()
    middle_s = np.arange(50.0, 1000.0, 100.0)
    expected = 1 + 0.5 * np.sin(2 * np.pi * middle_s / 1000.0)
    np.testing.assert_allclose(rate, expected, atol=0.03)


def test_a_replay_is_exact_and_says_when_it_is_too_short() -> None:
    replay = Replay([0.0, 0.25, 7.0])
    assert replay.draw(3, np.random.default_rng(0)).tolist() == [0.0, 0.25, 7.0]
    with pytest.raises(ValueError, match="requests=4 is more than the 3 of the replay"):
        replay.draw(4, np.random.default_rng(0))


# ---------------------------------------------------------------------------------------- lengths
def test_lognormal_lengths_are_whole_and_capped() -> None:
    """A length above the model's limit could not exist; one below 1 would be no request."""
    lengths = Lognormal(3.0, 2.0, most_tokens=1000).draw(50_000, np.random.default_rng(0))
    assert lengths.dtype == np.int64
    assert lengths.min() >= 1
    assert lengths.max() == 1000
    assert np.median(lengths) == pytest.approx(math.exp(3.0), rel=0.05)


def test_a_mixture_of_lognormals_has_two_humps() -> None:
    two = LognormalMixture(0.75, Lognormal(4.0, 0.2), Lognormal(6.0, 0.1))
    lengths = two.draw(100_000, np.random.default_rng(0))
    assert (lengths > 150).mean() == pytest.approx(0.25, abs=0.01)
    assert not ((lengths > 150) & (lengths < 220)).any()  # nothing lies between the humps


def test_a_quantile_table_is_met() -> None:
    """Lengths drawn from a trace's table have the trace's percentiles."""
    table = Quantiles([0.0, 50.0, 90.0, 100.0], [1.0, 100.0, 400.0, 1000.0])
    lengths = table.draw(200_000, np.random.default_rng(0))
    for percent, tokens in ((50, 100), (90, 400)):
        assert np.percentile(lengths, percent) == pytest.approx(tokens, rel=0.02)


def test_a_public_trace_gives_lengths() -> None:
    """The curated table must fit the generator, or the realistic presets have no lengths."""
    lengths = Quantiles.of_trace("azure-2023-code", "output").draw(50_000, np.random.default_rng(0))
    assert np.median(lengths) == pytest.approx(13, abs=1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Fixed(0), "tokens=0 is below 1"),
        (lambda: Lognormal(1.0, -0.1), "sigma=-0.1 is negative"),
        (lambda: Lognormal(math.nan, 1.0), "mu=nan"),
        (lambda: Lognormal.of_mean(0.0, 1.0), "mean_tokens=0.0 is not above 0"),
        (lambda: LognormalMixture(1.5, Lognormal(1, 1), Lognormal(1, 1)), "share=1.5 is above 1"),
        (lambda: Quantiles([0, 100], [5, 4]), r"tokens\[1\]=4\.0 falls"),
        (lambda: Quantiles([50, 50], [5, 6]), r"percent\[1\]=50\.0 does not rise"),
        (lambda: Quantiles([0, 101], [5, 6]), "leaves 0 … 100"),
        (lambda: Quantiles([0, 100], [0, 6]), r"tokens\[0\]=0\.0 is below 1"),
        (lambda: Quantiles([0], [5]), "two or more"),
        (lambda: Quantiles([0, 50], [5]), "tokens has 1 entries but percent has 2"),
        (lambda: Constant(0.0), "rate_per_s=0.0 is not above 0"),
        (lambda: Poisson(-1.0), "rate_per_s=-1.0 is negative"),
        (lambda: Gamma(1.0, 0.0), "burstiness=0.0 is not above 0"),
        (lambda: OnOff(0.0, 0.0, 1.0, 1.0), "on_rate_per_s=0.0 is not above 0"),
        (lambda: DayCycle(1.0, swing=1.2), "swing=1.2 is above 1"),
        (lambda: Replay([1.0, 0.0]), r"arrival_s\[1\]=0\.0 comes before"),
        (lambda: RequestClass("a", -1.0, Fixed(1), Fixed(1)), "share=-1.0 is negative"),
        (lambda: mixture(3, Poisson(1.0), [], seed=0), "have no share"),
        (lambda: draw(-1, Poisson(1.0), Fixed(1), Fixed(1), seed=0), "requests=-1 is below 0"),
        (lambda: draw(2.5, Poisson(1.0), Fixed(1), Fixed(1), seed=0), "requests=2.5 is not whole"),  # type: ignore[arg-type]
        (lambda: draw(2, Poisson(1.0), Fixed(1), Fixed(1), seed=-1), "seed=-1 is below 0"),
    ],
)
def test_a_distribution_that_cannot_be_is_refused(make: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


# ------------------------------------------------------------------------------------------ seeds
def test_one_seed_one_workload() -> None:
    """Two students with the same seed must see the same picture."""
    a, b, other = (
        draw(100, Poisson(5.0), Lognormal(5, 1), Lognormal(4, 1), seed=seed) for seed in (7, 7, 8)
    )
    assert a.arrival_s.tobytes() == b.arrival_s.tobytes()
    assert a.prompt_tokens.tobytes() == b.prompt_tokens.tobytes()
    assert a.arrival_s.tobytes() != other.arrival_s.tobytes()


def test_arrivals_prompts_and_outputs_are_drawn_apart() -> None:
    """A paired comparison needs the same lengths under another arrival process, and vice versa."""
    plain = draw(100, Poisson(5.0), Lognormal(5, 1), Lognormal(4, 1), seed=7)
    bursty = draw(100, Gamma(5.0, 0.1), Lognormal(5, 1), Lognormal(4, 1), seed=7)
    longer = draw(100, Poisson(5.0), Lognormal(5, 1), Lognormal(4.5, 1), seed=7)
    assert plain.prompt_tokens.tobytes() == bursty.prompt_tokens.tobytes()
    assert plain.arrival_s.tobytes() == longer.arrival_s.tobytes()
    assert not np.array_equal(plain.arrival_s, bursty.arrival_s)


@pytest.mark.parametrize("seed", [np.random.SeedSequence(3), 3])
def test_a_seed_sequence_can_be_used_twice(seed: Any) -> None:
    """Spawning from the caller's own sequence would give the second workload other numbers."""
    one, two = (draw(9, Poisson(1.0), Fixed(5), Lognormal(4, 1), seed=seed) for _ in range(2))
    assert one.output_tokens.tobytes() == two.output_tokens.tobytes()


def test_a_generator_goes_on() -> None:
    """With a generator, each call gives new numbers, as everywhere in numpy."""
    generator = np.random.default_rng(0)
    one, two = (draw(9, Poisson(1.0), Fixed(5), Fixed(5), seed=generator) for _ in range(2))
    assert not np.array_equal(one.arrival_s, two.arrival_s)


def test_a_mixture_keeps_each_class_apart() -> None:
    """The share of a class must not change the lengths that another class draws."""
    chat = RequestClass("chat", 0.9, Lognormal(4, 0.5), Fixed(50))
    book = RequestClass("book", 0.1, Fixed(4000), Fixed(200), priority=2.0)
    work = mixture(5000, Poisson(5.0), [chat, book], seed=1)
    assert work.label is not None
    assert work.priority is not None
    is_book = work.label == "book"
    assert is_book.mean() == pytest.approx(0.1, abs=0.02)
    assert (work.prompt_tokens[is_book] == 4000).all()
    assert (work.priority[is_book] == 2.0).all()
    assert (work.output_tokens[~is_book] == 50).all()


def test_closed_loop_requests_have_no_arrivals_of_their_own() -> None:
    work = closed_loop_work(4, Fixed(9), Lognormal(3, 1), seed=2)
    assert work.arrival_s.tolist() == [0.0] * 4
