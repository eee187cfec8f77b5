"""A sweep measures what it says, the same on any executor; a plan holds what it was asked for."""

from __future__ import annotations

import math
import multiprocessing
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from course.serving import queueing
from course.serving.engine import EngineConfig
from course.serving.load import sweeping as capacity
from course.serving.load.planning import HOURS_A_MONTH, plan
from course.serving.load.point import measure, steady_window
from course.serving.load.sweeping import (
    FIGURES,
    DrawnTraffic,
    MixedTraffic,
    Scenario,
    Sweep,
    interval_half_width,
    run_points,
    sweep,
)
from course.serving.pricing.linear import LinearStepCost
from course.serving.requests.metrics import SLO
from course.serving.workload import Fixed, Lognormal, LognormalMixture, RequestClass

SERVER = LinearStepCost(fixed_s=0.01, per_prefill_token_s=2e-5, per_decode_seq_s=1e-4)
CHAT = DrawnTraffic(Lognormal(5.5, 0.8), Lognormal(4.0, 0.7))
SLO_HERE = SLO(ttft_s=0.5, tpot_s=0.03, quantile=0.95)
OPEN = Scenario(SERVER, CHAT, EngineConfig(16), requests=400, slo=SLO_HERE)
CLOSED = replace(OPEN, loop="closed", slo=SLO(ttft_s=0.3, quantile=0.9))
LOADS = (4.0, 8.0, 12.0, 14.0, 16.0, 18.0, 20.0, 24.0, 30.0)
USERS = (1, 4, 8, 12, 16, 24, 32)


@pytest.fixture(scope="module")
def opened() -> Sweep:
    return sweep(OPEN, LOADS, range(5))


@pytest.fixture(scope="module")
def closed() -> Sweep:
    return sweep(CLOSED, USERS, range(5))


# --- a point is what the run says ----------------------------------------------------------------


@pytest.mark.parametrize("loop", ["open", "closed"])
def test_points_are_the_runs_own_figures(loop: str, opened: Sweep, closed: Sweep) -> None:
    """A column holds another metric than the course's own, or another window's."""
    found = opened if loop == "open" else closed
    for point in found.points[::7]:
        run = found.scenario.run(point.load, point.seed)
        window, steady = steady_window(run)
        own = run.summary(found.scenario.slo, window=window)
        assert point.steady == steady
        assert point.requests_per_s == own.requests_per_s
        assert point.output_tokens_per_s == own.output_tokens_per_s
        assert point.in_system == own.concurrency
        assert point.ttft_p99_s == own.ttft.p99
        assert point.tpot_p50_s == own.tpot.p50
        assert point.attainment(found.scenario.slo) == own.attainment
        assert point.goodput_per_s(found.scenario.slo) == pytest.approx(own.goodput_per_s)


@pytest.mark.parametrize(
    "slo",
    [
        SLO(ttft_s=0.2),
        SLO(tpot_s=0.02),
        SLO(e2e_s=2.0, quantile=0.5),
        SLO(tpot_s=0.02, without_tpot="fail"),
        SLO(ttft_s=0.2, tpot_s=0.02, without_tpot="undecided"),
    ],
)
def test_any_slo_can_be_tried_later(slo: SLO, opened: Sweep) -> None:
    """A slider for the SLO shows another attainment than a run under that SLO has."""
    attainment = opened.attainment(slo)
    for index, load in enumerate(opened.loads):
        run = OPEN.run(load, 0)
        own = run.summary(slo, window=steady_window(run)[0])
        assert attainment[0, index] == own.attainment


def test_rejected_requests_are_misses() -> None:
    """Requests too long for the cache vanish from the SLO."""
    mixed = MixedTraffic(
        (
            RequestClass("chat", 0.7, Fixed(50), Fixed(10)),
            RequestClass("book", 0.3, Fixed(5000), Fixed(10)),
        )
    )
    config = EngineConfig(16, 8192, num_kv_blocks=100)
    found = sweep(Scenario(SERVER, mixed, config, requests=300), [1.0, 2.0], [0])
    assert found.attainment(SLO(e2e_s=1e6))[0] == pytest.approx(0.7, abs=0.1)
    assert (found.column("missed") > 0).all()
    assert (found.column("kv_peak_share") <= 1).all()


def test_every_load_meets_the_same_requests() -> None:
    """Points differ by luck, and a curve that should rise goes up and down."""
    slow, fast = OPEN.run(4.0, seed=3), OPEN.run(20.0, seed=3)
    assert (slow.work.prompt_tokens == fast.work.prompt_tokens).all()
    assert slow.arrival_s == pytest.approx(5 * fast.arrival_s)
    assert slow.work.rate_per_s == pytest.approx(4.0)
    few, many = CLOSED.run(2, seed=3), CLOSED.run(16, seed=3)
    assert (few.work.output_tokens == many.work.output_tokens).all()
    other = OPEN.run(4.0, seed=4)
    assert (slow.work.prompt_tokens != other.work.prompt_tokens).any()


def test_overload_is_not_steady() -> None:
    """A run's length is taken for the server's latency."""
    found = sweep(replace(OPEN, requests=2000), [5.0, 60.0], [0, 1])
    assert found.column("steady").tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert found.column("ttft_p99_s")[0, 1] > 100 * found.column("ttft_p99_s")[0, 0]


def test_overload_still_shows_the_throughput_that_holds() -> None:
    """The drain at the end lowers the plateau, and so moves the knee."""
    found = sweep(replace(OPEN, requests=1500), [30.0, 60.0, 120.0], [0])
    throughput = found.column("requests_per_s")[0]
    assert throughput == pytest.approx(np.full(3, throughput.mean()), rel=0.05)


def test_users_of_a_closed_loop_are_in_the_server(closed: Sweep) -> None:
    """The first wave or the drain counts, with fewer users inside than there are."""
    assert closed.column("in_system") == pytest.approx(np.tile(USERS, (5, 1)), rel=0.02)
    assert closed.column("steady").all()


def test_steady_state_of_mm1() -> None:
    """Warm-up and drain bend the mean: with one seat and exponential work this is M/M/1."""
    work = DrawnTraffic(Exponential(), Fixed(1))
    cost = LinearStepCost(per_prefill_token_s=1e-6)
    scenario = Scenario(cost, work, EngineConfig(1, 2**30), requests=20_000)
    found = sweep(scenario, [0.3, 0.6], range(8))
    means = found.column("ttft_mean_s")
    half = interval_half_width(means, 0.99)
    for index, load in enumerate(found.loads):
        exact = queueing.mm1(load, 1.0).mean_sojourn_s
        assert abs(means.mean(axis=0)[index] - exact) < half[index]


class Exponential:
    """Prompts of an exponential number of millionths."""

    def draw(self, requests: int, generator: np.random.Generator) -> np.ndarray:
        return np.ceil(generator.exponential(1e6, requests)).astype(np.int64)


# --- the sweep as a whole ------------------------------------------------------------------------


def test_shapes_and_order(opened: Sweep) -> None:
    """A column is read along the wrong axis: seeds as loads."""
    assert opened.column("requests_per_s").shape == (5, len(LOADS))
    for point, (load, seed) in zip(
        opened.points, [(load, seed) for load in LOADS for seed in range(5)], strict=True
    ):
        assert (point.load, point.seed) == (load, seed)
    frame = opened.to_frame()
    assert frame.index.tolist() == list(LOADS)
    means = opened.column("output_tokens_per_s").mean(axis=0)
    assert frame["output_tokens_per_s"].to_numpy() == pytest.approx(means)
    assert (frame["attainment_low"] <= frame["attainment"]).all()


def test_order_of_loads_does_not_matter(opened: Sweep) -> None:
    assert sweep(OPEN, LOADS[::-1], range(5)).as_bytes() == opened.as_bytes()


def test_the_interval_is_students() -> None:
    from scipy.stats import t

    values = np.array([[1.0], [2.0], [4.0], [8.0]])
    low, high = t.interval(0.9, 3, loc=3.75, scale=values.std(ddof=1) / 2)
    assert interval_half_width(values, 0.9)[0] == pytest.approx((high - low) / 2)
    assert math.isnan(interval_half_width(values[:1])[0])


@pytest.mark.parametrize("method", ["slo", "plateau", "two_segments"])
def test_knees_with_intervals(opened: Sweep, closed: Sweep, method: str) -> None:
    for found in (opened, closed):
        knee = found.knee(method)  # type: ignore[arg-type]
        assert knee.load is not None, knee.sentence
        assert knee.low is not None, knee.sentence
        assert knee.high is not None
        assert knee.low <= knee.load <= knee.high
        assert found.scenario.load_unit in knee.sentence


def test_an_slo_knee_needs_an_slo(opened: Sweep) -> None:
    with pytest.raises(ValueError, match="slo has no limit"):
        opened.knee("slo", SLO())
    with pytest.raises(ValueError, match="name='ttft' is not a figure"):
        opened.column("ttft")


def test_refinement_narrows_the_gap(opened: Sweep) -> None:
    """Loads are added where the knee is not, or change the points that were there."""
    fine = sweep(OPEN, LOADS, range(5), refine=4)
    assert set(opened.loads) < set(fine.loads)
    for method in ("slo", "plateau"):
        coarse, close = opened.knee(method), fine.knee(method)  # type: ignore[arg-type]
        assert coarse.between is not None
        assert close.between is not None
        assert close.between[1] - close.between[0] < 0.3 * (coarse.between[1] - coarse.between[0])
    kept = [fine.loads.index(load) for load in opened.loads]
    assert (fine.column("ttft_p99_s")[:, kept] == opened.column("ttft_p99_s")).all()


def test_users_are_refined_in_whole_numbers() -> None:
    fine = sweep(CLOSED, USERS, [0], refine=8)
    assert all(load == int(load) for load in fine.loads)
    assert len(set(fine.loads)) == len(fine.loads)


# --- executors -----------------------------------------------------------------------------------


def spawned() -> Executor:
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: ThreadPoolExecutor(3), spawned])
def test_executors_give_the_same_bytes(make: object, opened: Sweep) -> None:
    """A sweep on a cluster is another experiment than the one at home."""
    with make() as executor:  # type: ignore[operator]
        assert sweep(OPEN, LOADS, range(5), executor).as_bytes() == opened.as_bytes()


def test_dask_gives_the_same_bytes(closed: Sweep) -> None:
    """The page on large sweeps promises what Dask does not do."""
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor()
        assert sweep(CLOSED, USERS, range(5), executor).as_bytes() == closed.as_bytes()


def test_pieces_of_work_do_not_depend_on_each_other() -> None:
    """What a worker gets beside a load changes its numbers."""
    mixture = DrawnTraffic(
        Fixed(20), LognormalMixture(0.5, Lognormal(3.0, 0.5), Lognormal(5.0, 0.2))
    )
    scenario = replace(CLOSED, traffic=mixture, requests=40)
    alone = run_points(scenario, [8], 0)[0]
    among = run_points(scenario, [2, 4, 8, 16], 0)[2]
    assert [getattr(alone, name) for name in FIGURES if name != "kv_peak_share"] == [
        getattr(among, name) for name in FIGURES if name != "kv_peak_share"
    ]


def test_the_bar_shows_only_what_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quick sweep leaves a bar's remains in a notebook, or a slow one seems to hang."""
    import tqdm.auto

    shown = []

    class Bar:
        def __init__(self, total: int, **_: object) -> None:
            self.total, self.n = total, 0
            shown.append(self)

        def update(self, points: int) -> None:
            self.n += points

        def close(self) -> None:
            pass

    monkeypatch.setattr(tqdm.auto, "tqdm", Bar)
    clock = iter(range(10_000))
    monkeypatch.setattr(capacity.time, "perf_counter", lambda: 0.0)
    sweep(OPEN, [4.0, 8.0], [0])
    assert not shown
    monkeypatch.setattr(capacity.time, "perf_counter", lambda: float(next(clock)))
    sweep(OPEN, LOADS, [0], refine=1)
    assert len(shown) == 1
    assert shown[0].n == shown[0].total > len(LOADS)
    sweep(OPEN, [4.0, 8.0], [0], progress=False)
    assert len(shown) == 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sweep(OPEN, [1.0, -2.0], [0]), r"loads\[1\]=-2.0 is negative"),
        (lambda: sweep(OPEN, [1.0, 1.0], [0]), "one or more different numbers"),
        (lambda: sweep(OPEN, [], [0]), "one or more different numbers"),
        (lambda: sweep(CLOSED, [1, 2.5], [0]), r"loads\[1\]=2.5 is not whole"),
        (lambda: sweep(OPEN, [1.0], []), "one or more different whole numbers"),
        (lambda: sweep(OPEN, [1.0], [0, 0]), "one or more different whole numbers"),
        (lambda: sweep(OPEN, [1.0], [-1]), r"seeds\[0\]=-1 is below 0"),
        (lambda: sweep(OPEN, [1.0], [0], refine=-1), "refine=-1 is below 0"),
        (lambda: replace(OPEN, loop="half"), "loop='half' is not known"),
        (lambda: replace(OPEN, requests=1), "requests=1 is below 2"),
        (lambda: replace(OPEN, think_s=-1.0), "think_s=-1.0 is negative"),
    ],
)
def test_bad_arguments_are_refused(call: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()  # type: ignore[operator]


def test_a_run_too_short_to_cut_is_measured_whole() -> None:
    """Requests that all come at once have no window, and their point is NaN or an error."""
    from course.serving.engine import simulate
    from course.serving.workload import Workload

    run = simulate(Workload([0.0, 0.0, 0.0], [5, 5, 5], [2, 3, 4]), SERVER, EngineConfig(1))
    point = measure(run, 1.0, 0)
    assert not point.steady
    assert point.requests_per_s == pytest.approx(3 / run.end_s)


# --- the plan ------------------------------------------------------------------------------------


@given(st.floats(0.1, 500), st.floats(1, 3), st.floats(1, 3), st.integers(0, 3), st.integers(1, 8))
def test_a_plan_holds_its_peak(
    demand: float, growth: float, burst: float, failures: int, gpus: int
) -> None:
    """A replica too few breaks the promise in the peak; one too many is money for nothing."""
    found = plan(
        swept(), demand, failures=failures, growth=growth, burst=burst,
        usd_per_gpu_hour=2.5, gpus_per_replica=gpus,
    )  # fmt: skip
    alive = found.replicas - failures
    peak = demand * growth * burst
    assert alive * found.replica_holds >= peak * (1 - 1e-9)
    assert alive == 1 or (alive - 1) * found.replica_holds < peak * (1 + 1e-9)
    assert found.peak_share_failed <= 1 + 1e-9
    assert [reason.purpose for reason in found.reasons] == ["demand", "growth", "burst", "failures"]
    assert all(reason.why and reason.replicas >= 0 for reason in found.reasons)
    assert found.gpus == gpus * found.replicas
    assert found.usd_per_hour == pytest.approx(2.5 * found.gpus)
    assert found.usd_per_month == pytest.approx(2.5 * found.gpus * HOURS_A_MONTH)


_KEPT: list[Sweep] = []


def swept() -> Sweep:
    if not _KEPT:
        _KEPT.append(sweep(OPEN, LOADS, range(5)))
    return _KEPT[0]


def test_a_plan_trusts_the_lower_end(opened: Sweep) -> None:
    """The best guess of a knee is planned with, and missed every second time."""
    found = plan(opened, 40.0)
    assert found.replica_holds == opened.knee("slo").low
    assert found.knee.load is not None
    assert found.replica_holds < found.knee.load
    one = sweep(OPEN, LOADS, [0])
    assert plan(one, 40.0).replica_holds == one.knee("slo").load


def test_a_plan_in_words(opened: Sweep) -> None:
    holds = opened.knee("slo").low
    assert holds is not None
    found = plan(opened, 3 * holds, growth=1.2, burst=1.5, usd_per_gpu_hour=2.0)
    assert [reason.replicas for reason in found.reasons] == [3, 1, 2, 1]
    text = found.as_text()
    assert "7 replicas (7 GPUs)" in text
    assert "with 1 of 7 down the other 6 still hold the peak" in text
    assert "It costs 14.0 USD an hour, 10,200 USD a month." in text
    plain = plan(opened, holds / 2, failures=0).as_text()
    assert "1 replica (1 GPU)" in plain
    assert plain.count("none asked for") == 3
    assert "USD" not in plain


def test_a_plan_needs_a_knee(opened: Sweep) -> None:
    """A fleet is planned from a sweep that never reached its limit."""
    with pytest.raises(ValueError, match="sweep has no load to plan with"):
        plan(opened, 40.0, SLO(ttft_s=1e6))
    for keywords, message in (
        ({"demand": 0.0}, "demand=0.0 is not above 0"),
        ({"demand": 1.0, "growth": 0.5}, "growth=0.5 is below 1"),
        ({"demand": 1.0, "failures": -1}, "failures=-1 is below 0"),
        ({"demand": 1.0, "usd_per_gpu_hour": -1.0}, "usd_per_gpu_hour=-1.0 is negative"),
        ({"demand": 1.0, "gpus_per_replica": 0}, "gpus_per_replica=0 is below 1"),
    ):
        with pytest.raises(ValueError, match=message):
            plan(opened, **keywords)  # type: ignore[arg-type]
