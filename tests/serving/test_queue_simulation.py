"""The simulated queue, its error bars and its random times, against independent programs.

Each test says what would be wrong in the world if it failed. Where exact equality is asked for,
times are whole numbers of 64ths of a second: sums of those have no rounding to hide behind.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ciw
import numpy as np
import numpy.typing as npt
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from course.serving import queueing
from course.serving.queueing import (
    autocorrelation_time_customers,
    batch_means,
    batch_quantile,
    customers_needed,
    exponential,
    gamma_with_scv,
    lognormal_with_scv,
    sample_times,
    simulate_bounded_queue,
    simulate_closed_loop,
    simulate_load_generator,
    simulate_queue,
)
from course.serving.queueing import kernels as kernels
from course.serving.queueing.arguments import flat_times

ROOT = Path(__file__).resolve().parents[2]
FloatArray = npt.NDArray[np.float64]

ticks = st.integers(0, 640).map(lambda n: n / 64)
customers = st.lists(st.tuples(ticks, ticks), min_size=1, max_size=60)
few = st.integers(1, 5)


def columns(rows: list[tuple[float, float]]) -> tuple[FloatArray, FloatArray]:
    table = np.array(rows, dtype=np.float64)
    return table[:, 0].copy(), table[:, 1].copy()


def traffic(
    n: int, seed: int, load: float = 0.9, servers: int = 1
) -> tuple[FloatArray, FloatArray]:
    rng = np.random.default_rng(seed)
    return exponential(1 / (load * servers), n, rng), lognormal_with_scv(1.0, 2.0, n, rng)


def in_ticks(values: FloatArray) -> FloatArray:
    return np.asarray(np.round(values * 64) / 64)


# -------------------- one line, by hand and by brute force


def test_one_server_by_hand() -> None:
    """The first queue a student works out on paper comes out differently."""
    gaps, services = [2.0, 1.0, 1.0, 10.0, 0.0], [3.0, 2.0, 0.0, 1.0, 1.0]
    assert simulate_queue(gaps, services).tolist() == [0.0, 2.0, 3.0, 0.0, 1.0]


def test_two_servers_by_hand() -> None:
    """The third customer takes the server that is free first, not the next in turn."""
    gaps, services = [0.0, 0.0, 1.0, 0.0, 0.0], [5.0, 2.0, 9.0, 1.0, 1.0]
    assert simulate_queue(gaps, services, servers=2).tolist() == [0.0, 0.0, 1.0, 4.0, 5.0]


def test_a_bounded_queue_by_hand() -> None:
    """A full room lets people in, or a place freed at this moment is refused."""
    run = simulate_bounded_queue([0.0, 1.0, 1.0, 1.0, 1.0], [4.0, 1.0, 9.0, 9.0, 1.0], capacity=2)
    assert run.accepted.tolist() == [True, True, False, False, True]  # the last one comes at 4
    assert run.waits_s[run.accepted].tolist() == [0.0, 3.0, 1.0]
    assert np.isnan(run.waits_s[~run.accepted]).all()
    assert run.reject_share == 0.4
    assert simulate_bounded_queue([], [], 1).reject_share == 0


def brute_force(
    gaps: FloatArray, services: FloatArray, servers: int, capacity: float = np.inf
) -> list[float]:
    """Waits from a list of everybody's start and end; NaN for who is turned away."""
    free, present, waits = [0.0] * servers, list[float](), list[float]()
    for now, service in zip(np.cumsum(gaps).tolist(), services.tolist(), strict=True):
        present = [end for end in present if end > now]
        if len(present) >= capacity:
            waits.append(float("nan"))
            continue
        server = free.index(min(free))
        start = max(now, free[server])
        free[server] = start + service
        present.append(start + service)
        waits.append(start - now)
    return waits


@given(customers, few)
def test_waits_against_brute_force(rows: list[tuple[float, float]], servers: int) -> None:
    """Ties, empty services or simultaneous arrivals are handled wrongly."""
    gaps, services = columns(rows)
    assert simulate_queue(gaps, services, servers).tolist() == brute_force(gaps, services, servers)


@given(customers, few, st.integers(0, 6))
def test_rejections_against_brute_force(
    rows: list[tuple[float, float]], servers: int, places: int
) -> None:
    """The wrong customers are turned away."""
    gaps, services = columns(rows)
    run = simulate_bounded_queue(gaps, services, servers + places, servers)
    np.testing.assert_array_equal(
        run.waits_s, brute_force(gaps, services, servers, servers + places)
    )
    np.testing.assert_array_equal(run.accepted, ~np.isnan(run.waits_s))


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, 2, 3, 16, 200])
def test_a_clock_set_back_is_still_the_same_clock(servers: int) -> None:
    """Long runs drift once the clock is set back, every few thousand customers."""
    gaps, services = (in_ticks(times) for times in traffic(3 * 4096 + 5, 1, servers=servers))
    assert simulate_queue(gaps, services, servers).tolist() == brute_force(gaps, services, servers)
    for places in (0, 7, 9000):
        capacity = servers + places
        np.testing.assert_array_equal(
            simulate_bounded_queue(gaps, services, capacity, servers).waits_s,
            brute_force(gaps, services, servers, capacity),
        )


# -------------------- against other people's simulators


def ciw_records(gaps: FloatArray, services: FloatArray, servers: int, places: float) -> list[Any]:
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*gaps.tolist(), 1e12])],
        service_distributions=[ciw.dists.Sequential(services.tolist())],
        number_of_servers=[servers],
        queue_capacities=[places],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_time(1e11)
    return sorted(simulation.get_all_records(), key=lambda record: record.id_number)


@pytest.mark.parametrize("servers", [1, 2, 3, 16])
@pytest.mark.parametrize("load", [0.5, 0.95, 1.3])
def test_waits_are_those_of_ciw(servers: int, load: float) -> None:
    """Our queue is not the queue that the field simulates."""
    gaps, services = traffic(1500, 2, load, servers)
    theirs = [r.waiting_time for r in ciw_records(gaps, services, servers, float("inf"))]
    np.testing.assert_allclose(simulate_queue(gaps, services, servers), theirs, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("servers", "places"), [(1, 0), (1, 4), (3, 0), (3, 2)])
def test_rejections_are_those_of_ciw(servers: int, places: int) -> None:
    """Our bounded queue turns other customers away than the field's."""
    gaps, services = traffic(1500, 3, 1.1, servers)
    run = simulate_bounded_queue(gaps, services, servers + places, servers)
    records = ciw_records(gaps, services[run.accepted], servers, places)
    assert [r.record_type == "service" for r in records] == run.accepted.tolist()
    theirs = [r.waiting_time for r in records if r.record_type == "service"]
    np.testing.assert_allclose(run.waits_s[run.accepted], theirs, rtol=0, atol=1e-9)
    assert 0.02 < run.reject_share < 0.6


def simpy_closed_loop(
    users: int, thinks: FloatArray, services: FloatArray, servers: int
) -> list[tuple[float, int, float, float]]:
    """(sent, user, start, end) of each request from processes that sleep, queue and work."""
    env = simpy.Environment()
    server = simpy.Resource(env, servers)
    times = deque(services.tolist())
    later = iter(thinks[users:].tolist())
    rows = list[tuple[float, int, float, float]]()

    def user(number: int) -> Any:
        think = float(thinks[number])
        while True:
            yield env.timeout(think)
            if not times:
                return
            sent, service = env.now, times.popleft()
            with server.request() as turn:
                yield turn
                start, think = env.now, next(later)
                yield env.timeout(service)
            rows.append((sent, number, start, env.now))

    for number in range(users):
        env.process(user(number))
    env.run()
    return sorted(rows)


@pytest.mark.slow
@pytest.mark.parametrize(("users", "servers"), [(1, 1), (5, 1), (40, 1), (12, 3)])
def test_the_closed_loop_against_simpy(users: int, servers: int) -> None:
    """Users send before their answer is there, or jump the queue."""
    rng = np.random.default_rng(4)
    thinks, services = exponential(5.0, users + 800, rng), gamma_with_scv(1.0, 2.0, 800, rng)
    run = simulate_closed_loop(users, thinks, services, servers)
    theirs = simpy_closed_loop(users, thinks, services, servers)
    ours = zip(run.sent_s, run.user, run.start_s, run.end_s, strict=True)
    np.testing.assert_allclose(np.array(list(ours)), np.array(theirs), rtol=0, atol=1e-9)
    assert (run.scheduled_s == run.sent_s).all()


def simpy_load_generator(
    scheduled: FloatArray, services: FloatArray, workers: int, servers: int
) -> list[tuple[float, float, float]]:
    env = simpy.Environment()
    pool, server = simpy.Resource(env, workers), simpy.Resource(env, servers)
    rows = [(0.0, 0.0, 0.0)] * scheduled.size

    def request(k: int) -> Any:
        yield env.timeout(float(scheduled[k]))
        with pool.request() as worker:
            yield worker
            sent = env.now
            with server.request() as turn:
                yield turn
                start = env.now
                yield env.timeout(float(services[k]))
            rows[k] = (sent, start, env.now)

    for k in range(scheduled.size):
        env.process(request(k))
    env.run()
    return rows


@pytest.mark.parametrize(("workers", "servers"), [(1, 1), (4, 1), (6, 2), (2, 5), (800, 1)])
def test_the_load_generator_against_simpy(workers: int, servers: int) -> None:
    """Coordinated omission is shown at the wrong size."""
    gaps, services = traffic(800, 5, 0.9, servers)
    scheduled = np.cumsum(gaps)
    run = simulate_load_generator(scheduled, services, workers, servers)
    ours = np.stack([run.sent_s, run.start_s, run.end_s], axis=1)
    theirs = simpy_load_generator(scheduled, services, workers, servers)
    np.testing.assert_allclose(ours, np.array(theirs), rtol=0, atol=1e-9)
    assert set(run.user.tolist()) <= set(range(workers))


def test_equal_times_are_ordered_by_user() -> None:
    """Two machines, or two versions, let different users go first."""
    run = simulate_closed_loop(4, np.zeros(4 + 8), np.ones(8))
    assert run.user.tolist() == [0, 1, 2, 3, 0, 1, 2, 3]
    tied = simulate_closed_loop(3, [0.0, 1.0, 1.0, 2.0, 1.0, 0.0, 9.0, 9.0, 9.0], [0.0] * 6)
    assert tied.sent_s.tolist() == [0.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    assert tied.user.tolist() == [0, 1, 2, 2, 0, 1]
    workers = simulate_load_generator(np.zeros(6), np.zeros(6), workers=3)
    assert workers.user.tolist() == [0] * 6
    busy = simulate_load_generator(np.zeros(6), np.ones(6), workers=3, servers=3)
    assert busy.user.tolist() == [0, 1, 2, 0, 1, 2]


# -------------------- properties


@given(customers, few)
def test_nobody_waits_less_than_nothing(rows: list[tuple[float, float]], servers: int) -> None:
    """A negative wait; or a wait although a server stands idle."""
    gaps, services = columns(rows)
    waits = simulate_queue(gaps, services, servers)
    arrivals = np.cumsum(gaps)
    starts, ends = arrivals + waits, arrivals + waits + services
    assert (waits >= 0).all()
    assert (np.diff(starts) >= 0).all()  # first come, first served
    for i in np.flatnonzero(waits):
        busy = (starts[:i] <= arrivals[i]) & (ends[:i] > arrivals[i])
        assert busy.sum() == servers


@given(customers, few, few)
def test_more_servers_never_make_anyone_wait_longer(
    rows: list[tuple[float, float]], servers: int, extra: int
) -> None:
    """Adding a GPU makes some user wait longer in a plain line."""
    gaps, services = columns(rows)
    more = simulate_queue(gaps, services, servers + extra)
    assert (more <= simulate_queue(gaps, services, servers)).all()


@given(customers, few, ticks)
def test_longer_services_never_shorten_a_wait(
    rows: list[tuple[float, float]], servers: int, extra: float
) -> None:
    """Slower service, shorter waits."""
    gaps, services = columns(rows)
    slower = simulate_queue(gaps, services + extra, servers)
    assert (slower >= simulate_queue(gaps, services, servers)).all()


@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e6)), min_size=1, max_size=40),
    few,
    st.sampled_from([2.0, 0.5, 1024.0]),
)
def test_a_clock_twice_as_fast_doubles_every_wait(
    rows: list[tuple[float, float]], servers: int, factor: float
) -> None:
    """Seconds and milliseconds give different queues, to the last bit."""
    gaps, services = columns(rows)
    for call in (
        lambda a, s: simulate_queue(a, s, servers),
        lambda a, s: simulate_bounded_queue(a, s, servers + 2, servers).waits_s,
        lambda a, s: simulate_load_generator(np.cumsum(a), s, 3, servers).scheduled_response_s,
    ):
        np.testing.assert_array_equal(
            call(gaps * factor, services * factor), call(gaps, services) * factor
        )


@given(customers, few)
def test_littles_law_holds_on_every_path(rows: list[tuple[float, float]], servers: int) -> None:
    """Number waiting, added up over time, is not the waits, added up over customers."""
    gaps, services = columns(rows)
    arrivals = np.cumsum(gaps)
    starts = arrivals + simulate_queue(gaps, services, servers)
    moments = np.unique(np.concatenate([arrivals, starts]))
    waiting = [((arrivals <= t) & (starts > t)).sum() for t in moments[:-1]]
    assert float(np.dot(waiting, np.diff(moments))) == float((starts - arrivals).sum())


@pytest.mark.slow
@given(customers, st.integers(1, 4))
def test_a_room_that_never_fills_is_no_bound(rows: list[tuple[float, float]], servers: int) -> None:
    """Bounded and unbounded queue differ before anyone is rejected."""
    gaps, services = columns(rows)
    run = simulate_bounded_queue(gaps, services, servers + len(rows), servers)
    assert run.accepted.all()
    np.testing.assert_array_equal(run.waits_s, simulate_queue(gaps, services, servers))


@given(customers, few)
def test_a_worker_for_each_request_omits_nothing(
    rows: list[tuple[float, float]], servers: int
) -> None:
    """A load generator with a worker to spare is late all the same."""
    gaps, services = columns(rows)
    scheduled = np.cumsum(gaps)
    run = simulate_load_generator(scheduled, services, len(rows), servers)
    np.testing.assert_array_equal(run.sent_s, scheduled)
    np.testing.assert_array_equal(run.wait_s, simulate_queue(gaps, services, servers))
    few_workers = simulate_load_generator(scheduled, services, 2, servers)
    assert (few_workers.response_s <= few_workers.scheduled_response_s).all()


@given(
    few,
    st.lists(ticks, min_size=1, max_size=40),
    st.lists(ticks, min_size=45, max_size=45),
    few,
)
def test_users_of_a_closed_loop_wait_for_their_answers(
    users: int, services: list[float], thinks: list[float], servers: int
) -> None:
    """More requests of one user in flight than one, or out of order."""
    thinks = thinks[: users + len(services)]
    thinks += [0.0] * (users + len(services) - len(thinks))
    run = simulate_closed_loop(users, thinks, services, servers)
    assert (np.diff(run.sent_s) >= 0).all()
    assert (np.diff(run.start_s) >= 0).all()
    assert (run.sent_s <= run.start_s).all()
    np.testing.assert_array_equal(run.end_s, run.start_s + np.array(services))
    for user in range(users):
        own = np.flatnonzero(run.user == user)
        before = np.concatenate([[0.0], run.end_s[own[:-1]]])
        pause = np.array(thinks)[[user, *(users + own[:-1]).tolist()]] if own.size else []
        np.testing.assert_array_equal(run.sent_s[own], (before + pause)[: own.size])


# -------------------- the compiled code


def kernel_inputs(n: int) -> dict[str, tuple[Any, ...]]:
    gaps, services = traffic(n, 6, 0.95)
    waits = np.empty(n)

    def times() -> tuple[Any, ...]:
        return np.empty(n, np.int64), np.empty(n), np.empty(n), np.empty(n)

    rng = np.random.default_rng(7)
    thinks = exponential(20.0, n + 30, rng)
    return {
        "one_server": (gaps, services, waits),
        "several_servers": (gaps / 5, services, 5, False, waits),
        "bounded_queue": (gaps, services, 1, 6, waits, np.empty(n, np.bool_)),
        "closed_loop": (thinks, services, 30, 2, *times()),
        "load_generator": (np.cumsum(gaps), services, 4, 1, *times()),
    }


def outputs(arguments: tuple[Any, ...]) -> list[bytes]:
    return [x.tobytes() for x in arguments if isinstance(x, np.ndarray)]


@pytest.mark.parametrize("kernel", kernels.SIGNATURES, ids=lambda kernel: kernel.__name__)
def test_compiled_equals_plain_python_bit_for_bit(kernel: Any) -> None:
    """The compiler reorders arithmetic: two machines disagree and no test can say why."""
    compiled, plain = kernel_inputs(5000), kernel_inputs(5000)
    name = kernel.__name__
    assert kernels.ready(kernel)(*compiled[name]) == kernel.py_func(*plain[name]) == -1
    assert outputs(compiled[name]) == outputs(plain[name])


@pytest.mark.parametrize("servers", [2, 3, 17, 130, 400])
def test_a_row_of_servers_and_a_heap_agree_bit_for_bit(servers: int) -> None:
    """Waits jump where the number of servers crosses over to the other method."""
    gaps, services = traffic(9000, 8, 0.97, servers)
    row, heap = np.empty(9000), np.empty(9000)
    run = kernels.ready(kernels.several_servers)
    assert run(gaps, services, servers, False, row) == -1
    assert run(gaps, services, servers, True, heap) == -1
    assert row.tobytes() == heap.tobytes()
    assert simulate_queue(gaps, services, servers).tobytes() == row.tobytes()
    assert row.max() > 0


IN_ANOTHER_PROCESS = """
import json
from course.serving.queueing import kernels
from course.serving import queueing
queueing.warm()
print(json.dumps({k.__name__: [sum(k.stats.cache_hits.values()),
                               sum(k.stats.cache_misses.values())] for k in kernels.SIGNATURES}))
"""


@pytest.mark.slow
def test_a_second_process_compiles_nothing() -> None:
    """Each fresh notebook kernel stalls for seconds at its first queue."""
    queueing.warm()
    done = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS],
        cwd=ROOT, capture_output=True, text=True, encoding="utf-8", check=True, timeout=120,
    )  # fmt: skip
    counts = json.loads(done.stdout)
    assert counts == {kernel.__name__: [1, 0] for kernel in kernels.SIGNATURES}


def test_warming_up_reports_its_steps() -> None:
    """The set-up command shows nothing, or leaves a kernel to be compiled in the lesson."""
    labels = [label for label, _ in queueing.warm_steps()]
    assert len(set(labels)) == len(labels) == len(kernels.SIGNATURES)
    assert [step() for _, step in queueing.warm_steps()] == [None] * len(labels)


def test_a_locked_array_needs_no_second_compilation() -> None:
    """A memoised explorer's read-only arrays are refused, copied, or compiled for again."""
    gaps, services = traffic(2000, 9)
    expected = simulate_queue(gaps, services, 2)
    before = len(kernels.several_servers.signatures)
    gaps.setflags(write=False)
    np.testing.assert_array_equal(simulate_queue(gaps, services, 2), expected)
    services.setflags(write=False)
    np.testing.assert_array_equal(simulate_queue(gaps, services, 2), expected)
    assert len(kernels.several_servers.signatures) == before == 1


def test_inputs_are_neither_copied_nor_changed() -> None:
    """Ten million customers take twice the memory, or the next call meets other times."""
    gaps, services = traffic(100, 10)
    assert flat_times("gaps", gaps) is gaps
    kept = gaps.copy(), services.copy()
    simulate_queue(gaps, services, 3)
    simulate_bounded_queue(gaps, services, 3)
    simulate_closed_loop(5, np.append(gaps, np.ones(5)), services)
    simulate_load_generator(np.cumsum(gaps), services, 3)
    np.testing.assert_array_equal(gaps, kept[0])
    np.testing.assert_array_equal(services, kept[1])


@pytest.mark.parametrize(
    "form",
    [
        list,
        tuple,
        lambda x: x.astype(np.float32),
        lambda x: x.astype(np.int64),
        lambda x: np.repeat(x, 2)[::2],
        lambda x: x.astype(">f8"),
        lambda x: np.frombuffer(b"\0" + x.tobytes(), dtype=np.uint8)[1:].view(np.float64),
    ],
)
def test_any_list_of_times_will_do(form: Callable[[FloatArray], Any]) -> None:
    """A list, whole numbers, every second entry or a file's byte order give other waits."""
    gaps, services = np.array([1.0, 1.0, 2.0]), np.array([3.0, 4.0, 1.0])
    for servers in (1, 2):
        np.testing.assert_array_equal(
            simulate_queue(form(gaps), form(services), servers),
            simulate_queue(gaps, services, servers),
        )


# -------------------- what is refused


BAD_TIMES = [float("nan"), float("inf"), -float("inf"), -1e-300]


@pytest.mark.parametrize("bad", BAD_TIMES)
@pytest.mark.parametrize("index", [0, 3])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize(
    ("call", "names"),
    [
        (simulate_queue, ("interarrival_s", "service_s")),
        (lambda a, s: simulate_queue(a, s, 2), ("interarrival_s", "service_s")),
        (lambda a, s: simulate_bounded_queue(a, s, 2), ("interarrival_s", "service_s")),
        (
            lambda a, s: simulate_closed_loop(2, [*a, 1.0, 1.0], s),
            ("think_s", "service_s"),
        ),
        (lambda a, s: simulate_load_generator(a, s, 2), ("scheduled_s", "service_s")),
    ],
)
def test_a_bad_time_is_named_with_its_index(
    call: Callable[..., Any], names: tuple[str, str], which: int, index: int, bad: float
) -> None:
    """One NaN turns every later wait into NaN, without a word."""
    inputs = [[1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1.0, 1.0]]
    inputs[which][index] = bad
    message = rf"{names[which]}\[{index}\]={bad} is not a time; give a finite"
    with pytest.raises(ValueError, match=message):
        call(*inputs)


def test_lengths_shapes_and_counts_are_checked() -> None:
    """A mismatch is cut off silently, or surfaces inside compiled code."""
    with pytest.raises(ValueError, match="interarrival_s has 2 entries but service_s has 1"):
        simulate_queue([1.0, 1.0], [1.0])
    with pytest.raises(ValueError, match=r"think_s has 2 entries where users=2 and 1 .* need 3"):
        simulate_closed_loop(2, [1.0, 1.0], [1.0])
    with pytest.raises(ValueError, match=r"scheduled_s\[1\]=1.0 comes before scheduled_s\[0\]=2.0"):
        simulate_load_generator([2.0, 1.0], [1.0, 1.0], workers=1)
    for shape in (np.ones((2, 2)), np.float64(1), ["a", "b"], [None], np.ones(2, complex)):
        with pytest.raises(ValueError, match="interarrival_s has shape"):
            simulate_queue(shape, [1.0])
    with pytest.raises(ValueError, match="capacity=2 is below servers=3"):
        simulate_bounded_queue([1.0], [1.0], capacity=2, servers=3)
    for call, name in (
        (lambda n: simulate_queue([1.0], [1.0], n), "servers"),
        (lambda n: simulate_bounded_queue([1.0], [1.0], n), "capacity"),
        (lambda n: simulate_bounded_queue([1.0], [1.0], 9, n), "servers"),
        (lambda n: simulate_closed_loop(n, [1.0, 1.0], [1.0]), "users"),
        (lambda n: simulate_closed_loop(1, [1.0, 1.0], [1.0], n), "servers"),
        (lambda n: simulate_load_generator([1.0], [1.0], n), "workers"),
        (lambda n: simulate_load_generator([1.0], [1.0], 1, n), "servers"),
    ):
        for bad in (0, -1, 1.5, float("nan"), "2"):
            with pytest.raises(ValueError, match=f"{name}="):
                call(bad)


def test_nobody_and_very_many_servers() -> None:
    """An empty trace, or a fleet larger than memory, crashes."""
    assert simulate_queue([], []).shape == simulate_queue([], [], 3).shape == (0,)
    assert simulate_load_generator([], [], 1).end_s.shape == (0,)
    assert simulate_closed_loop(1, [1.0], []).end_s.shape == (0,)
    assert simulate_queue([0.0] * 9, [1.0] * 9, servers=2**50).tolist() == [0.0] * 9
    assert simulate_bounded_queue([0.0] * 9, [1.0] * 9, 2**51, servers=2**50).accepted.all()
    assert simulate_load_generator([0.0, 0.0], [1.0, 1.0], 2**50).sent_s.tolist() == [0.0, 0.0]


# -------------------- error bars


def interval_of(model: str, load: float, seed: int, p: float | None = None) -> Any:
    """One run just as long as the rule asks for, and its 95 % interval."""
    servers = 3 if model == "M/M/3" else 1
    scv = {"M/D/1": 0.0, "M/G/1": 4.0}.get(model, 1.0)
    family = {"M/G/1": "lognormal"}.get(model, "gamma" if scv == 0 else "exponential")
    n = customers_needed(load, variability=(1 + scv) / 2, p=p)
    rng = np.random.default_rng([seed, 2024])
    gaps = exponential(1 / (load * servers), n, rng)
    waits = simulate_queue(gaps, sample_times(1.0, scv, n, rng, family), servers)
    about = {"utilization": load, "variability": (1 + scv) / 2}
    return batch_means(waits, **about) if p is None else batch_quantile(waits, p, **about)


def truth_of(model: str, load: float) -> queueing.QueueFigures:
    return {
        "M/M/1": lambda: queueing.mm1(load, 1.0),
        "M/M/3": lambda: queueing.mmc(3 * load, 1.0, 3),
        "M/D/1": lambda: queueing.md1(load, 1.0),
        "M/G/1": lambda: queueing.mg1(load, 1.0, 4.0),
    }[model]()


def coverage(model: str, load: float, p: float | None = None, seeds: int = 400) -> float:
    figures = truth_of(model, load)
    truth = figures.mean_wait_s if p is None else figures.wait_quantile_s(p)
    intervals = [interval_of(model, load, seed, p) for seed in range(seeds)]
    assert all(interval.low is not None for interval in intervals)
    return sum(interval.low <= truth <= interval.high for interval in intervals) / seeds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("load", "model"),
    [
        *((load, model) for load in (0.5, 0.8) for model in ("M/M/1", "M/M/3", "M/D/1")),
        (0.5, "M/G/1"),
        pytest.param(0.8, "M/G/1", marks=pytest.mark.deep),
    ],
)
def test_intervals_cover_the_truth_as_often_as_they_say(model: str, load: float) -> None:
    """A band of 95 % holds the true mean much less often: false certainty, drawn on a page."""
    assert 0.90 <= coverage(model, load) <= 0.98


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "p"),
    [
        ("M/M/1", 0.9),
        ("M/M/1", 0.99),
        pytest.param("M/M/1", 0.999, marks=pytest.mark.deep),
        ("M/M/3", 0.9),
        ("M/M/3", 0.99),
        ("M/D/1", 0.9),
        ("M/D/1", 0.99),
    ],
)
def test_quantile_intervals_cover_the_truth(model: str, p: float) -> None:
    """The band around a simulated P99 is too narrow; or the formula's P99 is not the queue's."""
    assert 0.90 <= coverage(model, 0.5, p) <= 0.98


@pytest.mark.parametrize("load", [0.3, 0.8, 0.95])
def test_a_run_one_customer_too_short_gets_no_band(load: float) -> None:
    """A short run at high load is given a confident, wrong band."""
    needed = customers_needed(load)
    gaps, services = traffic(needed, 12, load)
    waits = simulate_queue(gaps, services)
    full, short = (batch_means(waits[:n], utilization=load) for n in (needed, needed - 1))
    assert full.low is not None
    assert full.high is not None
    assert full.low < full.mean == full.estimate < full.high
    assert (full.customers, full.needed_customers, full.reason) == (needed, needed, "")
    assert full.warmup + full.batches * full.batch_size == needed
    assert (short.low, short.high, short.needed_customers) == (None, None, needed)
    assert str(needed) in short.reason
    assert short.mean == pytest.approx(waits[short.warmup : -1].mean())
    assert customers_needed(load, variability=2) > needed
    assert customers_needed(load, p=0.999) > needed


def test_a_longer_run_gets_more_batches_and_a_narrower_band() -> None:
    """Patience is not rewarded."""
    waits = simulate_queue(*traffic(60 * customers_needed(0.5), 13, 0.5))
    few_, many = (batch_means(waits[: len(waits) // k], utilization=0.5) for k in (60, 1))
    assert (few_.batches, many.batches) == (10, 30)
    assert many.high - many.low < (few_.high - few_.low) / 3
    wider = batch_means(waits, utilization=0.5, confidence=0.99)
    assert wider.low < many.low < many.high < wider.high


def test_more_variable_times_take_a_longer_run() -> None:
    """Heavy-tailed services get the band of a well-behaved queue."""
    plain = customers_needed(0.8)
    assert customers_needed(0.8, variability=0.5) == pytest.approx(plain / 2, rel=0.01)
    assert customers_needed(0.8, variability=2.5) == pytest.approx(2.5**2 * plain, rel=0.01)


def test_a_band_leans_to_the_side_of_the_rare_large_batches() -> None:
    """A run without a burst gets a band that ends below the truth, more often than it says."""

    def ten_batches(means: npt.ArrayLike) -> queueing.Interval:
        run = np.append(99.0, np.repeat(means, 101))  # one customer to warm up at next to no load
        interval = batch_means(run, utilization=1e-6)
        assert (interval.warmup, interval.batches, interval.batch_size) == (1, 10, 101)
        return interval

    even = ten_batches(np.arange(1.0, 11.0))
    half_width = 2.262157162798205 * math.sqrt(55 / 6 / 10)  # Student's t with 9 degrees of freedom
    assert even.low == pytest.approx(5.5 - half_width)
    assert even.high == pytest.approx(5.5 + half_width)
    batches = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 6.0])
    skewed = ten_batches(batches)
    assert skewed.high - skewed.mean > 1.5 * (skewed.mean - skewed.low)
    # Willink's bend: (1 + 2β·x)³ = 1 + 6β(z − β), β from the batches' skewness
    error = batches.std(ddof=1) / math.sqrt(10)
    skewness = 10 / (9 * 8) * ((batches - batches.mean()) ** 3).sum() / batches.std(ddof=1) ** 3
    beta = skewness / 6 / math.sqrt(10)
    for end, z in ((skewed.low, 2.262157162798205), (skewed.high, -2.262157162798205)):
        x = (skewed.mean - end) / error
        assert (1 + 2 * beta * x) ** 3 == pytest.approx(1 + 6 * beta * (z - beta))


def test_what_no_length_can_mend_is_said() -> None:
    """At ρ ≥ 1 a reader is told to simulate longer; a queue in which nobody waits gets a band."""
    over = batch_means([1.0, 2.0], utilization=1.2)
    assert (over.low, over.needed_customers, over.mean) == (None, None, 1.5)
    assert "grow with the run" in over.reason
    idle = batch_means(np.zeros(5000), utilization=0.1)
    assert (idle.low, idle.needed_customers) == (None, None)
    rare = np.zeros(5000)
    rare[::100] = 1.0
    seldom = batch_means(rare, utilization=0.1)
    assert (seldom.low, seldom.needed_customers) == (None, 20_000)
    assert "only 50 of 5000 customers waited" in seldom.reason
    certain = batch_means(np.ones(5000), utilization=0.1)
    assert (certain.low, certain.high) == (1.0, 1.0)
    quantile = batch_quantile(np.ones(50_000), 0.99, utilization=0.1)
    assert (quantile.low, quantile.estimate, quantile.high) == (1.0, 1.0, 1.0)
    with pytest.raises(ValueError, match="estimate"):
        _ = quantile.mean


def test_intervals_refuse_what_is_not_a_wait() -> None:
    """A rejected customer's NaN, or an empty run, becomes a mean."""
    with pytest.raises(ValueError, match=r"waits_s\[1\]=nan is not finite.*waits_s\[accepted\]"):
        batch_means([1.0, float("nan")], utilization=0.5)
    with pytest.raises(ValueError, match="waits_s is empty"):
        batch_means([], utilization=0.5)
    for name, bad in (
        ("utilization", 0),
        ("confidence", 1),
        ("confidence", 95),
        ("variability", 0),
    ):
        with pytest.raises(ValueError, match=f"{name}="):
            batch_means([1.0], **{"utilization": 0.5, name: bad})
    with pytest.raises(ValueError, match="p=99"):
        batch_quantile([1.0], 99, utilization=0.5)
    with pytest.raises(ValueError, match="utilization=1"):
        autocorrelation_time_customers(1)


def test_the_autocorrelation_time_is_that_of_the_simulated_queue() -> None:
    """The rule for "long enough" rests on a formula that this queue does not obey."""
    load, n, batch = 0.5, 4_000_000, 2_000
    rng = np.random.default_rng(14)
    waits = simulate_queue(exponential(1 / load, n, rng), exponential(1.0, n, rng))
    spread_of_batches = waits.reshape(-1, batch).mean(axis=1).var(ddof=1)
    measured = batch * spread_of_batches / waits.var()
    assert measured == pytest.approx(autocorrelation_time_customers(load), rel=0.08)


# -------------------- simulation and formula on one page


def test_the_bounded_queue_is_its_formula() -> None:
    """The curve and the dots of the bounded queue part."""
    rng = np.random.default_rng(15)
    n = 1_000_000
    run = simulate_bounded_queue(exponential(1.0, n, rng), exponential(1.0, n, rng), capacity=5)
    figures = queueing.mm1k(1.0, 1.0, 5)
    waits = run.waits_s[run.accepted]
    assert run.reject_share == pytest.approx(figures.reject_probability, rel=0.01)
    assert waits.mean() == pytest.approx(figures.mean_wait_s, rel=0.01)
    assert np.quantile(waits, 0.99) == pytest.approx(figures.wait_quantile_s(0.99), rel=0.01)
    assert (waits > 0).mean() == pytest.approx(figures.wait_probability, rel=0.01)


def test_the_closed_loop_is_its_formula() -> None:
    """The closed-loop curve and its dots part."""
    rng = np.random.default_rng(16)
    n, users = 500_000, 12
    run = simulate_closed_loop(users, exponential(9.0, users + n, rng), exponential(1.0, n, rng))
    figures = queueing.mm1_closed(users, 9.0, 1.0)
    settled = slice(n // 50, None)
    response = run.response_s[settled]
    rate = response.size / np.ptp(run.sent_s[settled])
    assert response.mean() == pytest.approx(figures.mean_response_s, rel=0.02)
    assert rate == pytest.approx(figures.throughput_per_s, rel=0.01)
    assert np.quantile(response, 0.99) == pytest.approx(figures.response_quantile_s(0.99), rel=0.02)


@pytest.mark.parametrize(("scv_arrival", "scv_service"), [(1.0, 4.0), (4.0, 1.0), (0.25, 0.25)])
def test_kingman_is_near_at_high_load(scv_arrival: float, scv_service: float) -> None:
    """The approximation taught for bursts misses the simulated queue."""
    rng = np.random.default_rng(17)
    n, load = 4_000_000, 0.9
    gaps = gamma_with_scv(1 / load, scv_arrival, n, rng)
    waits = simulate_queue(gaps, gamma_with_scv(1.0, scv_service, n, rng))
    figures = queueing.gg1_kingman(load, 1.0, scv_arrival, scv_service)
    assert waits.mean() == pytest.approx(figures.mean_wait_s, rel=0.15)


# -------------------- random times


@pytest.mark.parametrize("family", ["gamma", "lognormal"])
@pytest.mark.parametrize("scv", [0.1, 1.0, 3.0])
def test_times_have_the_mean_and_variability_they_were_asked_for(family: str, scv: float) -> None:
    """Every page on variability varies something else."""
    times = sample_times(0.2, scv, 2_000_000, np.random.default_rng(18), family)
    assert times.mean() == pytest.approx(0.2, rel=0.01)
    assert times.var() / times.mean() ** 2 == pytest.approx(scv, rel=0.05)
    assert (times > 0).all()


def test_the_same_generator_gives_the_same_times() -> None:
    """Two people with one seed see two different pages."""
    for family, scv in (("gamma", 2.0), ("lognormal", 2.0), ("exponential", 1.0)):
        one, two = (sample_times(0.5, scv, 50, np.random.default_rng(19), family) for _ in range(2))
        np.testing.assert_array_equal(one, two)
    rng = np.random.default_rng(19)
    np.testing.assert_array_equal(exponential(0.5, 50, rng), one)
    assert sample_times(2.0, 0.0, 3, rng, "constant").tolist() == [2.0, 2.0, 2.0]
    assert sample_times(2.0, 0.0, 3, rng, "exponential").tolist() == [2.0, 2.0, 2.0]
    assert lognormal_with_scv(1.0, 1.0, 0, rng).shape == (0,)


def test_random_times_refuse_what_they_cannot_be() -> None:
    """A seed used twice makes long gaps and long services come together; a typo draws gamma."""
    rng = np.random.default_rng(20)
    with pytest.raises(ValueError, match=r"rng=7 is not a generator.*default_rng"):
        exponential(1.0, 3, 7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="family='gauss' is unknown; give one of gamma"):
        sample_times(1.0, 1.0, 3, rng, "gauss")
    with pytest.raises(ValueError, match="scv=2 but exponential times have scv 1"):
        sample_times(1.0, 2.0, 3, rng, "exponential")
    for name, bad in (("mean_s", 0), ("scv", -1), ("n", 1.5), ("n", -1)):
        with pytest.raises(ValueError, match=f"{name}="):
            sample_times(**{"mean_s": 1.0, "scv": 1.0, "n": 3, "rng": rng, name: bad})
