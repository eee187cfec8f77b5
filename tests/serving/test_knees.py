"""Knees on curves whose knee is known, the reasons for none, and how often an interval holds it."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from course.serving import queueing
from course.serving.load.broken_stick import broken_stick
from course.serving.load.knees import LARGEST, LEAST_LOAD, Method, find_knee
from course.serving.load.resampling import weights

FloatArray = npt.NDArray[np.float64]

SLOPE, CEILING = 20.0, 800.0  # a server that gives 20 tokens/s a user, up to 800
USERS = np.array([5.0, 10, 15, 20, 25, 30, 35, 40, 45, 50, 60, 80])
SERVER = np.minimum(SLOPE * USERS, CEILING)
THROUGHPUT: tuple[Method, ...] = ("plateau", "two_segments")


# --- the known answer ----------------------------------------------------------------------------


def test_piecewise_server() -> None:
    """A knee is where the definition does not say: 90 % of the ceiling, and the corner itself."""
    assert find_knee(USERS, SERVER).load == pytest.approx(0.9 * CEILING / SLOPE)
    assert find_knee(USERS, SERVER, method="two_segments").load == pytest.approx(CEILING / SLOPE)
    apart = USERS != 40  # the corner lies between two loads
    bend = find_knee(USERS[apart], SERVER[apart], method="two_segments").load
    assert bend == pytest.approx(CEILING / SLOPE)


def mmc_attainment(load: float, servers: int, limit_s: float) -> float:
    """P(wait ≤ limit) in M/M/c with a service rate of 1: 1 − C·exp(−(c − λ)·t)."""
    if load >= servers:
        return 0.0
    figures = queueing.mmc(load, 1.0, servers)
    return 1 - figures.wait_probability * math.exp(-(servers - load) * limit_s)


@pytest.mark.parametrize("servers", [1, 2, 8])
def test_mmc_inside_its_slo(servers: int) -> None:
    """The highest load inside an SLO is not the one that the closed form gives."""
    known = brentq(lambda load: mmc_attainment(load, servers, 2.0) - 0.95, 0.01, servers - 1e-6)
    loads = servers * np.linspace(0.02, 1.2, 60)
    attainment = [mmc_attainment(load, servers, 2.0) for load in loads]
    knee = find_knee(
        loads, np.minimum(loads, servers), method="slo", attainment=attainment, quantile=0.95
    )
    assert knee.load == pytest.approx(known, rel=5e-3)
    assert knee.between is not None
    assert knee.between[0] <= known <= knee.between[1]


@pytest.mark.parametrize("servers", [1, 3, 16])
def test_mmc_throughput(servers: int) -> None:
    """An open queue carries what is offered up to c·μ: the corner is there, the plateau beyond."""
    loads = servers * np.arange(0.1, 2.01, 0.1)
    carried = np.minimum(loads, servers)
    assert find_knee(loads, carried).load == pytest.approx(0.9 * servers)
    assert find_knee(loads, carried, method="two_segments").load == pytest.approx(servers)


def test_closed_mm1_plateau() -> None:
    """The machine-repair curve, which bends gently, has its 90 % elsewhere than the formula."""
    users = np.arange(1.0, 121.0)
    exact = [
        queueing.mm1_closed(int(n), think_s=20.0, service_rate_per_s=1.0).throughput_per_s
        for n in users
    ]
    knee = find_knee(users, exact)
    first = int(users[np.array(exact) >= 0.9].min())
    assert knee.load is not None
    assert first - 1 < knee.load <= first + 0.1


def test_latency_with_its_limit() -> None:
    """A limit on a latency is judged in the middle of the gap though the straight line says when"""
    knee = find_knee([1, 2, 4, 8], [1, 2, 3, 3], [0.1, 0.2, 0.4, 1.2], "slo", limit=0.8)
    assert knee.load == pytest.approx(6.0)
    assert knee.throughput == pytest.approx(3.0)
    at_limit = find_knee([1, 2, 4, 8], [1, 2, 3, 3], [0.1, 0.2, 0.4, 1.2], "slo", limit=0.4)
    assert at_limit.load == pytest.approx(4.0)


@pytest.mark.parametrize("hopeless", [math.inf, math.nan])
def test_no_answer_breaks_a_promise(hopeless: float) -> None:
    """A load at which nobody was answered counts as fast."""
    knee = find_knee([1, 2, 4], [1, 2, 2], [0.1, 0.2, hopeless], "slo", limit=5.0)
    assert knee.load == 2.0


@given(
    st.floats(1e-3, 1e3), st.floats(1e-3, 1e3), st.sampled_from(["plateau", "two_segments", "slo"])
)
def test_units_do_not_matter(load_scale: float, scale: float, method: Method) -> None:
    """A sweep in thousands of tokens, or in requests a minute, has another knee."""
    rounded = SERVER * (1 - 0.02 * np.cos(USERS))
    latency = 0.1 + (USERS / 40) ** 4
    limit = 0.9 if method == "slo" else None
    here = find_knee(USERS, rounded, latency, method, limit=limit)
    there = find_knee(load_scale * USERS, scale * rounded, latency, method, limit=limit)
    assert here.load is not None
    assert there.load == pytest.approx(load_scale * here.load, rel=1e-6)


@given(st.lists(st.floats(0, 100), min_size=6, max_size=9))
def test_no_bend_fits_better(values: list[float]) -> None:
    """The bend of least squares is a local one."""
    y = np.array(values)
    x = np.arange(1.0, y.size + 1) ** 1.5

    def error(bend: float) -> float:
        columns = np.stack([np.ones_like(x), x, np.maximum(x - bend, 0)], axis=1)
        fit = np.linalg.lstsq(columns, y, rcond=None)[0]
        return float(((columns @ fit - y) ** 2).sum())

    bend, steep, gentle = broken_stick(x, y)
    tried = min(error(place) for place in np.linspace(x[1], x[-2], 200))
    assert error(bend) <= tried + 1e-6 * (1 + tried)
    assert x[1] - 1e-9 <= bend <= x[-2] + 1e-9
    assert math.isfinite(steep)
    assert math.isfinite(gentle)


# --- no knee -------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", THROUGHPUT)
@pytest.mark.parametrize(
    ("throughput", "reason"),
    [
        (SLOPE * USERS, "not loaded enough"),
        (100 * np.sqrt(USERS), "not loaded enough"),
        (np.full_like(USERS, 790.0), "saturated at the first point"),
        (790 - USERS, "saturated at the first point"),
        (np.zeros_like(USERS), "the throughput is 0"),
        (SERVER * np.where(USERS == 20, 0.3, 1.0), "the points contradict each other"),
    ],
)
def test_no_knee_is_an_answer(method: Method, throughput: FloatArray, reason: str) -> None:
    """A number is made up where the data cannot have a knee."""
    knee = find_knee(USERS, throughput, method=method)
    assert not knee.found
    assert (knee.load, knee.throughput, knee.between, knee.low, knee.high) == (None,) * 5
    assert knee.sentence.startswith(f'No knee by "{method}": {reason}')


def test_the_contradicting_load_is_named() -> None:
    knee = find_knee(USERS, SERVER * np.where(USERS == 20, 0.3, 1.0), load_unit="users")
    assert "falls to 120 a second at 20 users and rises again" in knee.sentence


def test_a_collapse_has_a_knee() -> None:
    """A server that gets slower beyond its best is taken for contradicting data."""
    falling = np.where(USERS > 50, 500.0, SERVER)
    knee = find_knee(USERS, falling)
    assert knee.load == pytest.approx(36.0)
    assert "at the last load it has fallen again to 500 a second" in knee.sentence


def test_no_slo_knee() -> None:
    fine = find_knee([1, 2, 4], [1, 2, 3], [0.1, 0.1, 0.2], "slo", limit=1.0)
    assert "not loaded enough. the promise still holds at 4, the highest load" in fine.sentence
    late = find_knee([1, 2, 4], [1, 2, 3], [3, 4, 5], "slo", limit=1.0, promise="P99 TTFT")
    assert "saturated at the first point. P99 TTFT is broken already at 1" in late.sentence


def test_a_promise_that_comes_back_is_not_trusted() -> None:
    """One lucky point beyond the knee moves the plan out there."""
    knee = find_knee([1, 2, 4, 8], [1, 2, 3, 3], method="slo", attainment=[1.0, 0.98, 0.995, 0.5])
    assert knee.between == (1.0, 2.0)
    assert "it holds again at 4 is luck" in knee.sentence


@pytest.mark.parametrize(("method", "fewest"), [("plateau", 4), ("two_segments", 5), ("slo", 2)])
def test_too_few_loads(method: Method, fewest: int) -> None:
    loads = np.arange(1.0, fewest)
    knee = find_knee(loads, loads, loads, method, limit=1.0 if method == "slo" else None)
    assert f"too few; this takes {fewest} or more" in knee.sentence


# --- how sure ------------------------------------------------------------------------------------


def test_one_curve_has_no_interval() -> None:
    """A reader takes the gap between two loads for a confidence interval, or no error for none."""
    knee = find_knee(USERS, SERVER)
    assert (knee.low, knee.high, knee.runs) == (None, None, 1)
    assert "every load was run only once" in knee.why_no_interval
    assert find_knee(USERS, np.tile(SERVER, (4, 1))).low is None


def test_runs_that_do_not_agree_have_no_interval() -> None:
    """An interval of the few resamples that have a knee hides that most have none."""
    flat, steep = SERVER, SLOPE * USERS
    knee = find_knee(USERS, np.array([flat] * 4 + [steep]))
    if knee.found:
        assert knee.low is None
        assert "do not agree" in knee.why_no_interval


def test_resamples_of_few_runs_are_all_of_them() -> None:
    """Random resampling would give another interval on another day."""
    counts, probability = weights(5)
    assert counts.shape == (126, 5)
    assert (counts.sum(axis=1) == 5).all()
    assert probability.sum() == pytest.approx(1.0)
    assert weights(12)[0].tobytes() == weights(12)[0].tobytes()


def covered(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


@pytest.mark.slow
@pytest.mark.parametrize("method", THROUGHPUT)
def test_throughput_intervals_hold_the_knee(method: Method) -> None:
    """A 95 % interval from five runs holds the known knee less often than it says, or always.

    A piecewise server; each run has its own ceiling, and each point noise of its own.
    """
    known = 0.9 * CEILING / SLOPE if method == "plateau" else CEILING / SLOPE
    hits = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        ceilings = CEILING * (1 + 0.02 * rng.standard_normal((5, 1)))
        runs = np.minimum(SLOPE * USERS, ceilings)
        runs = runs * (1 + 0.01 * rng.standard_normal((5, USERS.size)))
        knee = find_knee(USERS, runs, method=method)
        assert knee.low is not None
        assert knee.high is not None
        hits.append(knee.low <= known <= knee.high)
    assert 0.90 <= covered(hits) <= 0.98


@pytest.mark.slow
def test_slo_intervals_hold_the_knee() -> None:
    """A 95 % interval from five runs of M/M/2 misses the closed form's load too often, or never."""
    limit_s, share, customers, cut = 1.0, 0.9, 4000, 400
    known = float(brentq(lambda load: mmc_attainment(load, 2, limit_s) - share, 0.1, 1.99))
    loads = known * np.array([0.88, 0.92, 0.95, 0.98, 1.01, 1.04, 1.08, 1.12])
    hits = []
    for experiment in range(200):
        attainment = np.empty((5, loads.size))
        for run in range(5):
            rng = np.random.default_rng([experiment, run])
            gaps = rng.exponential(size=customers)
            services = rng.exponential(size=customers)
            for index, load in enumerate(loads):
                waits = queueing.simulate_queue(gaps / load, services, 2)[cut:]
                attainment[run, index] = (waits <= limit_s).mean()
        knee = find_knee(
            loads, np.tile(loads, (5, 1)), method="slo", attainment=attainment, quantile=share
        )
        assert knee.load is not None
        hits.append(knee.low is not None and knee.low <= known <= (knee.high or 0.0))
    assert 0.90 <= covered(hits) <= 0.98


# --- arguments -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1, 3, 2, 4], [1, 2, 3, 4]), r"loads\[2\]=2 does not rise above loads\[1\]=3"),
        (([1, 2, 2, 4], [1, 2, 3, 4]), "average those of one load"),
        (([0, 1, 2, 3], [1, 2, 3, 4]), r"loads\[0\]=0.0 is not above 0"),
        (([1, 2, math.nan], [1, 2, 3]), r"loads\[2\]=nan is not a number"),
        (([], []), "loads has shape"),
        (([1, 2, 3, 4], [1, 2, 3]), "throughput has shape .* but there are 4 loads"),
        (([1, 2, 3, 4], [1, 2, math.nan, 4]), r"throughput\[0, 2\]=nan"),
        (([1, 2, 3, 4], [1, 2, -3, 4]), r"throughput\[0, 2\]=-3"),
    ],
)
def test_bad_curves_are_refused(arguments: tuple[list[float], list[float]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_knee(*arguments)


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({}, "attainment=…, or latency=… with limit=…"),
        ({"latency": [1, 2]}, "one of them"),
        ({"latency": [1, 2], "limit": 1.0, "attainment": [1, 1]}, "one of them"),
        ({"latency": [1, 2], "limit": 0.0}, "limit=0.0 is not above 0"),
        ({"latency": [1, 2, 3], "limit": 1.0}, "latency has shape"),
        ({"attainment": [1, 99]}, "shares in 0 … 1"),
        ({"attainment": [1, 1], "quantile": 99}, "shares in 0 … 1"),
        ({"attainment": [[1, 1], [1, 1]]}, "the promise has shape"),
    ],
)
def test_bad_promises_are_refused(keywords: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_knee([1, 2], [1, 2], method="slo", **keywords)  # type: ignore[arg-type]


def test_unknown_method() -> None:
    with pytest.raises(ValueError, match="method='elbow' is not known"):
        find_knee([1, 2], [1, 2], method="elbow")  # type: ignore[arg-type]


# --- any numbers at all --------------------------------------------------------------------------

POWERS = st.floats(-29.9, 29.9).map(lambda exponent: 10.0**exponent)
NEAR = st.integers(1, 30).map(lambda ulps: 1 + ulps * math.ulp(1.0))
WIDE = st.one_of(
    st.sampled_from([0.0, 5e-324, 1e-300, 1e-9, 1.0, 1e15, 1e30, 1.7e308]),
    st.floats(0, 1.7e308),
    st.floats(-40, 40).map(lambda exponent: 10.0**exponent),
    st.floats(0.9, 1.1),
)
METHODS: tuple[Method, ...] = ("plateau", "two_segments", "slo")


def assert_answered(loads: list[float], throughput: list[list[float]]) -> None:
    for method in METHODS:
        limit = 1e-9 if method == "slo" else None
        if not (LEAST_LOAD <= loads[0] <= loads[-1] <= LARGEST and np.max(throughput) <= LARGEST):
            with pytest.raises(ValueError, match=r"is outside|is not"):
                find_knee(loads, throughput, throughput, method, limit=limit)
            continue
        knee = find_knee(loads, throughput, throughput, method, limit=limit)
        assert knee.sentence
        if knee.load is not None:
            assert loads[0] <= knee.load <= loads[-1]
            assert knee.throughput is not None
            assert math.isfinite(knee.throughput)


@pytest.mark.parametrize(
    ("loads", "throughput"),
    [
        ([0.002, 1, 2, 4, 8], [0, 0, 1e-9, 1e-9, 1e-9]),
        ([0.003, 1, 2, 8], [0, 5, 2, 10]),
        ([1, 2, 3, 4], [0, 0, 1e30, 0]),
        ([1, 2, 3, 4], [0, 0, 1e-9, 5e-324]),
        ([1, 2, 3, 4, 5, 6], [1e308, *[1.7e308] * 5]),
        ([1e-320, 1e-318, 1e-316, 1e-310, 1e-306], [1, 2, 3, 3, 3]),
        ([1 - math.ulp(1.0), 1.0, 1.0 + math.ulp(1.0), 1.1], [1, 2, 3, 4]),
    ],
)
def test_absurd_curves(loads: list[float], throughput: list[float]) -> None:
    """An absurd number in somebody's table ends in a traceback or a warning of the arithmetic."""
    assert_answered(loads, [throughput])


@given(st.data())
def test_any_numbers_give_an_answer_or_a_reason(data: st.DataObject) -> None:
    """Some other absurd number does."""
    numbers = data.draw(st.sampled_from([WIDE, POWERS, POWERS | NEAR, st.floats(0.5, 64)]))
    loads = sorted(data.draw(st.lists(numbers, min_size=1, max_size=9, unique=True)))
    runs = data.draw(st.sampled_from([1, 1, 2, 5]))
    rates = data.draw(st.sampled_from([WIDE, POWERS, st.sampled_from([0.0, 1, 2, 1e-300])]))
    row = st.lists(rates, min_size=len(loads), max_size=len(loads))
    assert_answered(loads, data.draw(st.lists(row, min_size=runs, max_size=runs)))


@given(st.integers(-60, 60), st.integers(-60, 60))
def test_far_units_do_not_matter(load_power: int, power: int) -> None:
    """Loads in tiny units lose their digits in the sums of squares."""
    here = broken_stick(USERS, SERVER * (1 - 0.02 * np.cos(USERS)))
    scale, height = 2.0**load_power, 2.0**power
    there = broken_stick(scale * USERS, height * SERVER * (1 - 0.02 * np.cos(USERS)))
    assert there == (here[0] * scale, here[1] * height / scale, here[2] * height / scale)


@given(st.lists(st.floats(-6, 6), min_size=6, max_size=12, unique=True))
def test_near_and_far_loads_are_fitted_alike(exponents: list[float]) -> None:
    """Two loads side by side, far from the others, make a corner out of rounding."""
    loads = 10.0 ** np.array(sorted(exponents))
    if np.diff(loads).min() <= 1e-12 * loads[-1]:
        return
    corner = loads[3]
    bend, steep, gentle = broken_stick(loads, 3.0 * np.minimum(loads, corner))
    fitted = steep * np.minimum(loads - bend, 0) + gentle * np.maximum(loads - bend, 0)
    away = 3.0 * np.minimum(loads, corner) - fitted
    assert np.ptp(away) <= 1e-6 * 3.0 * corner


def test_thousands_of_loads_fit_into_memory() -> None:
    """Twice the loads take four times the memory, and a sweep with many of them is killed."""

    def peak_bytes(points: int) -> int:
        loads = np.arange(1.0, points + 1)
        values = np.minimum(loads, points / 2)
        tracemalloc.start()
        try:
            assert broken_stick(loads, values)[0] == pytest.approx(points / 2)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak_bytes(20_000) < 1000 * 20_000
    assert peak_bytes(20_000) < 12 * peak_bytes(2_000)


@pytest.mark.parametrize(
    ("loads", "throughput", "method", "reason", "headline"),
    [
        ([1, 2, 4, 8, 16], [10, 20, 38, 40, 40], "plateau", "found", ""),
        ([1, 2, 4], [10, 20, 20], "plateau", "too few loads", "3 different loads are too few"),
        ([1, 2, 4, 8], [0, 0, 0, 0], "plateau", "no throughput", "the throughput is 0 at every"),
        ([1, 2, 4, 8, 16], [10, 30, 20, 35, 36], "plateau", "contradiction", "the points contra"),
        ([1, 2, 4, 8, 16], [40, 40, 41, 40, 40], "plateau", "saturated", "saturated at the first"),
        ([1, 2, 4, 8, 16], [10, 20, 40, 80, 160], "plateau", "not loaded enough", "not loaded en"),
        ([2, 4, 6, 8, 10], [95, 99, 96, 98, 97], "two_segments", "saturated", "saturated at"),
        ([1, 2, 4, 6, 8], [10, 20, 40, 41, 42], "two_segments", "found", ""),
        (
            [2, 6, 17, 18, 21, 26], [58, 58, 68, 68, 94, 94], "two_segments", "no bend", "no bend",
        ),
    ],
)  # fmt: skip
def test_the_reason_is_a_value_and_the_sentence_is_made_from_it(
    loads: list[float], throughput: list[float], method: Method, reason: str, headline: str
) -> None:
    """Whoever decides what to do next must not have to read a sentence for it."""
    knee = find_knee(loads, throughput, method=method)
    assert knee.reason == reason
    assert knee.found == (reason == "found")
    assert knee.headline.startswith(headline)
    assert (knee.headline == "") == knee.found
    if not knee.found:
        assert knee.sentence.startswith(f'No knee by "{method}": {knee.headline}')


@pytest.mark.parametrize(
    ("points", "words"),
    [(1, "one load is too few"), (2, "2 different loads are too few"), (3, "3 different loads ")],
)
def test_too_few_loads_are_counted_in_words(points: int, words: str) -> None:
    loads = list(range(1, points + 1))
    assert find_knee(loads, loads, method="plateau").headline.startswith(words)


def test_a_piece_that_does_not_rise_is_told_from_one_that_bends_too_little() -> None:
    """The reader of "does not rise" looks for a warm-up; the reader of a ratio goes higher."""
    flat = find_knee([2, 6, 17, 18, 21, 26], [58, 58, 68, 68, 94, 94], method="two_segments")
    assert "The first of the two straight pieces does not rise" in flat.sentence
    # 100 … 600 users: nine hundredths of a token/s more with each, then nearly twice as much
    users, tokens_per_s = [100, 200, 300, 400, 500, 600], [31, 47, 49, 60, 90, 93]
    rising = find_knee(users, tokens_per_s, method="two_segments")
    assert rising.reason == "no bend"
    assert "The second of the two straight pieces is 183.3" in rising.sentence


@pytest.mark.parametrize(
    ("tokens_per_s", "words"),
    [
        ([10, 20, 30, 30], "the throughput levels off at 30.0"),
        ([10, 20, 30, 33], "the throughput hardly rises any more (the last doubling of the load"),
        ([10, 30, 33, 25], "the throughput levels off at 33.0"),
    ],
    ids=["held", "rising slowly", "fallen again"],
)
def test_a_level_that_was_held_is_told_from_one_still_rising(
    tokens_per_s: list[int], words: str
) -> None:
    """ "Levels off" promises that more load brings nothing; a slow rise promises no such thing."""
    knee = find_knee([1, 2, 4, 8], tokens_per_s)
    assert words in knee.sentence


def test_a_promise_has_its_own_two_reasons() -> None:
    """A fleet planner answers "broken at once" and "never broken" in opposite ways."""
    loads, throughput = [1, 2, 4], [10, 20, 30]
    at_once = find_knee(loads, throughput, [3, 4, 5], "slo", limit=2.0)
    never = find_knee(loads, throughput, [1, 1, 1], "slo", limit=2.0)
    assert (at_once.reason, never.reason) == ("saturated", "not loaded enough")
    assert find_knee(loads, throughput, [1, 1, 5], "slo", limit=2.0).reason == "found"
