# mypy: allow-any-generics
"""The eight exercises of notebook 02, one queue: four core, four stretch.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math`, `np` and `queueing`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise, value_exercise
from course.exercises.definition import Unacceptable, Wrong
from course.exercises.values import Figures, Number, Whole, plain
from course.serving import queueing

_SIMULATED = 200_000  # requests: enough to see a P99 to a few per cent

# --- 2.1 mean number in the system --------------------------------------------------------------


def mean_in_system(arrival_s: np.ndarray, departure_s: np.ndarray, window_s: float) -> float:
    """Time-average number of requests in the system from time 0 to window_s.

    arrival_s, departure_s: when each request came and left, in seconds, one entry a request.
    Some were there before 0, some are still there at window_s.
    """
    from_s = np.maximum(arrival_s, 0.0)
    until_s = np.minimum(departure_s, window_s)
    return float((until_s - from_s).sum() / window_s)


def whole_stays(arrival_s: np.ndarray, departure_s: np.ndarray, window_s: float) -> float:
    """The full stay of each, though part of it lies outside the window."""
    return float((departure_s - arrival_s).sum() / window_s)


def completed_inside(arrival_s: np.ndarray, departure_s: np.ndarray, window_s: float) -> float:
    """Only those that both came and left inside the window."""
    whole = (arrival_s >= 0) & (departure_s <= window_s)
    return float((departure_s - arrival_s)[whole].sum() / window_s)


def seen_at_arrivals(arrival_s: np.ndarray, departure_s: np.ndarray, window_s: float) -> float:
    """The mean of the counts that the arriving requests find."""
    inside = arrival_s[(arrival_s >= 0) & (arrival_s <= window_s)]
    counts = [((arrival_s < t) & (departure_s > t)).sum() for t in inside]
    return float(np.mean(counts))


def most_at_once(arrival_s: np.ndarray, departure_s: np.ndarray, window_s: float) -> float:
    """The largest count, as a dashboard's maximum shows it."""
    inside = arrival_s[(arrival_s >= 0) & (arrival_s <= window_s)]
    counts = [((arrival_s <= t) & (departure_s > t)).sum() for t in inside]
    return float(np.max(counts))


def _request_logs(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Logs cut from a longer run with bursts: requests are inside at both ends of each window."""
    logs = []
    for _ in range(5):
        window_s = float(rng.integers(40, 91))
        rate_per_s = rng.uniform(1.5, 4.0)
        gaps_s = rng.gamma(1 / 6, 6 / rate_per_s, size=900)
        arrival_s = np.cumsum(gaps_s) - 60.0
        stay_s = rng.lognormal(math.log(rng.uniform(2.0, 8.0)), 0.8, size=900)
        departure_s = arrival_s + stay_s
        touches = (departure_s > 0) & (arrival_s < window_s)
        logs.append(
            {
                "arrival_s": arrival_s[touches].round(3),
                "departure_s": departure_s[touches].round(3),
                "window_s": window_s,
            }
        )
    return logs


# --- 2.2 a percentile of the time in the system -------------------------------------------------


def sojourn_percentile(
    arrival_rate_per_s: float, service_rate_per_s: float, percentile: float
) -> float:
    """Percentile of the time in the system (wait and service) of an M/M/1 queue, in seconds.

    percentile: from 50 to 99.9, as in P99; the arrival rate is below the service rate.
    """
    beyond = 1 - percentile / 100
    return -math.log(beyond) / (service_rate_per_s - arrival_rate_per_s)


def mean_instead(arrival_rate_per_s: float, service_rate_per_s: float, percentile: float) -> float:
    """The mean time in the system."""
    return 1 / (service_rate_per_s - arrival_rate_per_s)


def service_percentile(
    arrival_rate_per_s: float, service_rate_per_s: float, percentile: float
) -> float:
    """The percentile of the service time, as if no one else were there."""
    return -math.log(1 - percentile / 100) / service_rate_per_s


def log_of_the_percentile(
    arrival_rate_per_s: float, service_rate_per_s: float, percentile: float
) -> float:
    """ln(99) for P99, as if the number in the name went into the formula."""
    return math.log(percentile) / (service_rate_per_s - arrival_rate_per_s)


def bell_curve(arrival_rate_per_s: float, service_rate_per_s: float, percentile: float) -> float:
    """Mean and standard deviation, put into a normal distribution."""
    from statistics import NormalDist

    mean_s = 1 / (service_rate_per_s - arrival_rate_per_s)
    return NormalDist(mean_s, mean_s).inv_cdf(percentile / 100)


def wait_percentile(
    arrival_rate_per_s: float, service_rate_per_s: float, percentile: float
) -> float:
    """The percentile of the wait before service."""
    utilization = arrival_rate_per_s / service_rate_per_s
    beyond = 1 - percentile / 100
    spare_per_s = service_rate_per_s - arrival_rate_per_s
    return max(0.0, math.log(utilization / beyond) / spare_per_s)


def _loads_and_percentiles(rng: np.random.Generator) -> list[dict[str, Any]]:
    cases = []
    for percentile in (99.0, 50.0, 90.0, 95.0, 99.9, 75.0):
        service_rate_per_s = round(float(rng.uniform(2.0, 40.0)), 1)
        load = rng.uniform(0.3, 0.95)
        cases.append(
            {
                "arrival_rate_per_s": round(load * service_rate_per_s, 2),
                "service_rate_per_s": service_rate_per_s,
                "percentile": percentile,
            }
        )
    return cases


# --- 2.3 headroom -------------------------------------------------------------------------------


def highest_arrival_rate(service_rate_per_s: float, target_s: float) -> float:
    """Highest arrival rate, per second, at which P99 of the time in the system is within target_s.

    For an M/M/1 queue; 0.0 where even a request that finds the server idle misses the target.
    """
    return max(0.0, service_rate_per_s - math.log(100) / target_s)


def mean_within_target(service_rate_per_s: float, target_s: float) -> float:
    """The rate at which the mean meets the target."""
    return max(0.0, service_rate_per_s - 1 / target_s)


def below_zero(service_rate_per_s: float, target_s: float) -> float:
    """The formula, followed where it leaves the world."""
    return service_rate_per_s - math.log(100) / target_s


def utilization_instead(service_rate_per_s: float, target_s: float) -> float:
    """The usable share of the service rate."""
    return max(0.0, 1 - math.log(100) / (target_s * service_rate_per_s))


def eighty_percent(service_rate_per_s: float, target_s: float) -> float:
    """A rule of thumb that knows no target."""
    return 0.8 * service_rate_per_s


def _services_and_targets(rng: np.random.Generator) -> list[dict[str, float]]:
    """Targets from easy to impossible, in units of the service time's own P99."""
    cases = []
    for times in (2.0, 5.0, 1.2, 0.6, 12.0, 3.0, 0.9):
        service_rate_per_s = round(float(rng.uniform(2.0, 40.0)), 1)
        alone_s = math.log(100) / service_rate_per_s
        target_s = round(float(times * rng.uniform(0.95, 1.05) * alone_s), 3)
        cases.append({"service_rate_per_s": service_rate_per_s, "target_s": target_s})
    return cases


def _p99_at(rate_per_s: float, case: Any) -> str | None:
    """What a simulation shows at the student's own rate."""
    service_rate_per_s, target_s = case["service_rate_per_s"], case["target_s"]
    at = f"at {plain(rate_per_s)}/s"
    if rate_per_s <= 0:
        return None
    if rate_per_s >= service_rate_per_s:
        return f"{at} the queue grows without end, for a target of {plain(target_s)} s"
    rng = np.random.default_rng(23)
    gaps_s = rng.exponential(1 / rate_per_s, size=_SIMULATED)
    service_s = rng.exponential(1 / service_rate_per_s, size=_SIMULATED)
    stays_s = queueing.simulate_queue(gaps_s, service_s) + service_s
    p99_s = float(np.percentile(stays_s, 99))
    return f"{at} P99 is about {plain(p99_s, 2)} s, for a target of {plain(target_s)} s"


# --- 2.4 burstiness -----------------------------------------------------------------------------


def arrival_cv(arrival_s: np.ndarray) -> float:
    """Coefficient of variation of the gaps between arrivals: standard deviation over mean.

    arrival_s: when each request came, in seconds, in the order in which the log was written,
    which is the order in which the requests *ended*. About 1 for Poisson arrivals.
    """
    gaps_s = np.diff(np.sort(arrival_s))
    return float(np.std(gaps_s) / np.mean(gaps_s))


def squared(arrival_s: np.ndarray) -> float:
    """Variance over the mean squared."""
    gaps_s = np.diff(np.sort(arrival_s))
    return float(np.var(gaps_s) / np.mean(gaps_s) ** 2)


def in_log_order(arrival_s: np.ndarray) -> float:
    """The gaps between neighbouring lines of the log."""
    gaps_s = np.diff(arrival_s)
    return float(np.std(gaps_s) / np.mean(gaps_s))


def in_log_order_without_signs(arrival_s: np.ndarray) -> float:
    """The same, with the negative gaps turned round."""
    gaps_s = np.abs(np.diff(arrival_s))
    return float(np.std(gaps_s) / np.mean(gaps_s))


def of_the_timestamps(arrival_s: np.ndarray) -> float:
    """The spread of the times themselves."""
    return float(np.std(arrival_s) / np.mean(arrival_s))


def of_counts_per_second(arrival_s: np.ndarray) -> float:
    """The spread of the number of arrivals in each second."""
    counts = np.bincount(np.floor(arrival_s).astype(int))
    return float(np.std(counts) / np.mean(counts))


def _traces(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Gamma gaps from smoother than Poisson to very bursty, logged in order of completion."""
    traces = []
    for cv in (2.5, 0.4, 1.6, 4.0, 0.7):
        rate_per_s = rng.uniform(1.0, 8.0)
        gaps_s = rng.gamma(1 / cv**2, cv**2 / rate_per_s, size=600)
        arrival_s = np.cumsum(gaps_s)
        ended_s = arrival_s + rng.lognormal(1.0, 0.7, size=600)
        traces.append({"arrival_s": arrival_s[np.argsort(ended_s)].round(6)})
    return traces


# --- 2.5 Pollaczek–Khinchine --------------------------------------------------------------------


def mean_wait(arrival_rate_per_s: float, service_s: np.ndarray) -> float:
    """Mean wait before service, in seconds, of an M/G/1 queue.

    Poisson arrivals of arrival_rate_per_s; service_s: a sample of service times, in seconds,
    which stands for their distribution.
    """
    utilization = arrival_rate_per_s * np.mean(service_s)
    return float(arrival_rate_per_s * np.mean(service_s**2) / (2 * (1 - utilization)))


def as_if_exponential(arrival_rate_per_s: float, service_s: np.ndarray) -> float:
    """M/M/1's wait at the same mean."""
    utilization = arrival_rate_per_s * np.mean(service_s)
    return float(utilization * np.mean(service_s) / (1 - utilization))


def as_if_constant(arrival_rate_per_s: float, service_s: np.ndarray) -> float:
    """The square of the mean where the mean of the squares belongs."""
    utilization = arrival_rate_per_s * np.mean(service_s)
    return float(arrival_rate_per_s * np.mean(service_s) ** 2 / (2 * (1 - utilization)))


def cv_not_squared(arrival_rate_per_s: float, service_s: np.ndarray) -> float:
    """The formula with CV in it, and not CV²."""
    mean_s = np.mean(service_s)
    utilization = arrival_rate_per_s * mean_s
    cv = np.std(service_s) / mean_s
    return float((1 + cv) / 2 * utilization * mean_s / (1 - utilization))


def with_service(arrival_rate_per_s: float, service_s: np.ndarray) -> float:
    """The time in the system."""
    mean_s = np.mean(service_s)
    utilization = arrival_rate_per_s * mean_s
    wait_s = arrival_rate_per_s * np.mean(service_s**2) / (2 * (1 - utilization))
    return float(wait_s + mean_s)


def _service_samples(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Service times from nearly constant answers to a long tail of very long ones."""
    cases = []
    for sigma, load in ((1.2, 0.7), (0.15, 0.85), (0.8, 0.5), (1.4, 0.6), (0.5, 0.9)):
        median_s = rng.uniform(0.2, 2.0)
        service_s = rng.lognormal(math.log(median_s), sigma, size=400).round(4)
        rate_per_s = round(load / float(service_s.mean()), 4)
        cases.append({"arrival_rate_per_s": rate_per_s, "service_s": service_s})
    return cases


def _wait_in_simulation(_: Any, case: Any) -> str:
    rng = np.random.default_rng(25)
    gaps_s = rng.exponential(1 / case["arrival_rate_per_s"], size=_SIMULATED)
    drawn_s = rng.choice(case["service_s"], size=_SIMULATED)
    return f"mean wait {plain(float(queueing.simulate_queue(gaps_s, drawn_s).mean()), 2)} s"


# --- 2.6 pooling --------------------------------------------------------------------------------


def servers_needed(
    arrival_rate_per_s: float, service_rate_per_s: float, target_wait_s: float
) -> int:
    """Fewest servers behind one shared queue whose mean wait is within target_wait_s.

    Poisson arrivals, exponential service; service_rate_per_s is that of each server.
    """
    servers = math.floor(arrival_rate_per_s / service_rate_per_s) + 1
    while queueing.mmc(arrival_rate_per_s, service_rate_per_s, servers).mean_wait_s > target_wait_s:
        servers += 1
    return servers


def a_queue_each(arrival_rate_per_s: float, service_rate_per_s: float, target_wait_s: float) -> int:
    """Every server with a queue and an equal share of the arrivals of its own."""
    servers = math.floor(arrival_rate_per_s / service_rate_per_s) + 1
    while True:
        share_per_s = arrival_rate_per_s / servers
        if queueing.mm1(share_per_s, service_rate_per_s).mean_wait_s <= target_wait_s:
            return servers
        servers += 1


def one_fast_server(
    arrival_rate_per_s: float, service_rate_per_s: float, target_wait_s: float
) -> int:
    """All servers melted into a single one of their joint speed."""
    servers = math.floor(arrival_rate_per_s / service_rate_per_s) + 1
    while True:
        joint_per_s = servers * service_rate_per_s
        if queueing.mm1(arrival_rate_per_s, joint_per_s).mean_wait_s <= target_wait_s:
            return servers
        servers += 1


def just_stable(arrival_rate_per_s: float, service_rate_per_s: float, target_wait_s: float) -> int:
    """Enough to keep up on average."""
    return math.floor(arrival_rate_per_s / service_rate_per_s) + 1


def everyone_waits(
    arrival_rate_per_s: float, service_rate_per_s: float, target_wait_s: float
) -> int:
    """The mean wait of those who wait, taken for everyone's."""
    servers = math.floor(arrival_rate_per_s / service_rate_per_s) + 1
    while 1 / (servers * service_rate_per_s - arrival_rate_per_s) > target_wait_s:
        servers += 1
    return servers


def _fleets(rng: np.random.Generator) -> list[dict[str, float]]:
    """Loads of 3 to 25 servers' work; targets from a fiftieth to a half of a service time."""
    cases = []
    for busy, share in ((6, 0.1), (3, 0.05), (12, 0.05), (25, 0.02), (8, 0.3), (17, 0.1), (4, 0.5)):
        service_rate_per_s = round(float(rng.uniform(0.5, 5.0)), 2)
        offered = busy + rng.uniform(0.1, 0.9)
        cases.append(
            {
                "arrival_rate_per_s": round(float(offered * service_rate_per_s), 3),
                "service_rate_per_s": service_rate_per_s,
                "target_wait_s": round(share / service_rate_per_s, 4),
            }
        )
    return cases


def _wait_with(servers: Any, case: Any) -> str | None:
    """What a simulation shows with the student's own number of servers."""
    count, rate_per_s = int(servers), case["arrival_rate_per_s"]
    target = f"for a target of {plain(case['target_wait_s'])} s"
    if not 0 < count <= 1000:
        return None
    if rate_per_s >= count * case["service_rate_per_s"]:
        return f"with {count} servers the queue grows without end, {target}"
    rng = np.random.default_rng(26)
    gaps_s = rng.exponential(1 / rate_per_s, size=_SIMULATED)
    service_s = rng.exponential(1 / case["service_rate_per_s"], size=_SIMULATED)
    wait_s = float(queueing.simulate_queue(gaps_s, service_s, servers=count).mean())
    return f"with {count} servers the mean wait is {plain(wait_s, 2)} s, {target}"


# --- 2.7 a bounded queue ------------------------------------------------------------------------

_ARRIVALS_PER_S = 19.0
_SERVED_PER_S = 20.0
_TARGET_S = 1.0
_BEST_CAPACITY = 14
_REFUSED_TOLERANCE = 0.75  # percentage points


def _busy_hours(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Two busy hours of the same service that nobody has seen before."""
    return [{"seed": int(seed)} for seed in rng.integers(2**31, size=2)]


def _p99_and_refused(capacity: Any, case: Any) -> tuple[float, float]:
    """P99 (s) of the requests served, and the per cent refused, in one simulated stretch."""
    if capacity < 1:
        raise Unacceptable(f"{capacity} places leave none for the request in service: at least 1.")
    rng = np.random.default_rng(case["seed"])
    gaps_s = rng.exponential(1 / _ARRIVALS_PER_S, size=3 * _SIMULATED)
    service_s = rng.exponential(1 / _SERVED_PER_S, size=3 * _SIMULATED)
    run = queueing.simulate_bounded_queue(gaps_s, service_s, capacity=min(int(capacity), 10**6))
    stays_s = (run.waits_s + service_s)[run.accepted]
    return float(np.percentile(stays_s, 99)), 100 * run.reject_share


def _accept_capacity(seen: Any, best: Any, case: Any) -> str | None:
    p99_s, refused = seen
    if p99_s > _TARGET_S:
        return (
            f"P99 of the requests served is {plain(p99_s, 3)} s, over the target of "
            f"{plain(_TARGET_S)} s: the queue is too long."
        )
    if refused > best[1] + _REFUSED_TOLERANCE:
        return (
            f"P99 is {plain(p99_s, 3)} s and inside the target, but {plain(refused, 3)} % "
            "are refused: a longer queue would keep the target too and lose fewer."
        )
    return None


# --- 2.8 coordinated omission -------------------------------------------------------------------


def felt_p99(
    scheduled_s: np.ndarray, sent_s: np.ndarray, finished_s: np.ndarray, timeout_s: float
) -> float:
    """P99 of the time that users would have waited, in seconds.

    scheduled_s: when each request was due; sent_s: when the load generator got round to sending
    it; finished_s: when its answer was complete, NaN where none came before the user gave up,
    timeout_s after the request was due. A request without an answer counts as timeout_s.
    """
    felt_s = np.where(np.isnan(finished_s), timeout_s, finished_s - scheduled_s)
    return float(np.percentile(felt_s, 99))


def counted_from_sending(
    scheduled_s: np.ndarray, sent_s: np.ndarray, finished_s: np.ndarray, timeout_s: float
) -> float:
    """The tool's own clock, which starts when it sends."""
    counted_s = np.where(np.isnan(finished_s), timeout_s, finished_s - sent_s)
    return float(np.percentile(counted_s, 99))


def answered_only(
    scheduled_s: np.ndarray, sent_s: np.ndarray, finished_s: np.ndarray, timeout_s: float
) -> float:
    """Those without an answer left out."""
    return float(np.nanpercentile(finished_s - scheduled_s, 99))


def percentiles_added(
    scheduled_s: np.ndarray, sent_s: np.ndarray, finished_s: np.ndarray, timeout_s: float
) -> float:
    """P99 of the delay, plus P99 of the response."""
    counted_s = np.where(np.isnan(finished_s), timeout_s, finished_s - sent_s)
    return float(np.percentile(sent_s - scheduled_s, 99) + np.percentile(counted_s, 99))


def mean_felt(
    scheduled_s: np.ndarray, sent_s: np.ndarray, finished_s: np.ndarray, timeout_s: float
) -> float:
    """The mean."""
    felt_s = np.where(np.isnan(finished_s), timeout_s, finished_s - scheduled_s)
    return float(np.mean(felt_s))


def _load_tests(rng: np.random.Generator) -> list[dict[str, Any]]:
    """A generator with few workers against a server that twice stands still for seconds."""
    tests = []
    for servers in (4, 8, 2, 6):
        count = 4_000
        rate_per_s = float(rng.integers(15, 41))
        scheduled_s = np.arange(count) / rate_per_s
        mean_s = 0.6 * servers / rate_per_s
        service_s = rng.lognormal(math.log(mean_s) - 0.4, 0.9, size=count)
        for first in (rng.integers(400, 1_800), rng.integers(2_000, 3_600)):
            service_s[first : first + servers] = rng.uniform(60, 100) / rate_per_s
        run = queueing.simulate_load_generator(
            scheduled_s, service_s, workers=servers + 2, servers=servers
        )
        timeout_s = round(float(np.percentile(run.scheduled_response_s, 99.4)), 2)
        gave_up = run.scheduled_response_s > timeout_s
        tests.append(
            {
                "scheduled_s": scheduled_s.round(4),
                "sent_s": run.sent_s.round(4),
                "finished_s": np.where(gave_up, np.nan, run.end_s).round(4),
                "timeout_s": timeout_s,
            }
        )
    return tests


EXERCISES = (
    function_exercise(
        "2.1",
        title="How many were inside",
        question=(
            "You are handed one minute or so of a server's log: when each request came, and when "
            "its last token was sent. The log was cut from a longer run, so some requests were "
            "already there when it begins and some had not finished when it ends. How many "
            "requests were in the system on average over that window? Little's law, L = λ · W, is "
            "a statement about just this number."
        ),
        track="core",
        kind="compute",
        minutes=6,
        difficulty=2,
        reference=mean_in_system,
        cases=_request_logs,
        result=Number("requests", rel=1e-4),
        wrong=(
            Wrong(
                "time-outside-the-window",
                whole_stays,
                "You count the whole stay of every request. A request that came 20 s before the "
                "window, or stayed 20 s after it, was not in the system *during the window* for "
                "that time: cut each stay at 0 and at window_s.",
            ),
            Wrong(
                "only-the-completed",
                completed_inside,
                "You count only requests that came and left inside the window. That drops just "
                "the long ones, and long stays are most of what fills a system: survivorship.",
            ),
            Wrong(
                "count-at-arrivals",
                seen_at_arrivals,
                "You average what arriving requests find. That weighs each moment by how many "
                "arrive in it, and a burst brings many arrivals at once: weigh by time.",
            ),
            Wrong(
                "peak-for-mean",
                most_at_once,
                "That is the most there ever were at once. A maximum tells how large the system "
                "must be, not how full it usually is.",
            ),
        ),
        hints=(
            "Each request adds its own time inside the window. What do all of them add up to?",
            "A stay that begins before 0 counts from 0; one that ends after window_s counts until "
            "window_s: np.maximum and np.minimum do that for all at once.",
            "Sum the stays inside the window (request-seconds) and divide by window_s (seconds).",
        ),
        explanation=(
            "The area under the curve 'number in the system' is the sum of all stays inside the "
            "window; divided by the window it is the mean. Little's law says it is λ · W."
        ),
    ),
    function_exercise(
        "2.2",
        title="The slow ones",
        question=(
            "In an M/M/1 queue the time in the system, wait and service together, is "
            "exponentially distributed, with the mean W = 1/(μ − λ). Give any percentile of it: "
            "for a percentile of 99 the time that 99 requests in a hundred stay within."
        ),
        track="core",
        kind="compute",
        minutes=5,
        difficulty=1,
        reference=sojourn_percentile,
        cases=_loads_and_percentiles,
        result=Number("s"),
        wrong=(
            Wrong(
                "mean-for-percentile",
                mean_instead,
                "That is the mean, whatever percentile is asked. For an exponential distribution "
                "P99 is ln(100), about 4.6 times, the mean: a mean inside the target says little.",
            ),
            Wrong(
                "service-without-the-queue",
                service_percentile,
                "That is the service time's percentile: what a request takes that finds the "
                "server idle. Waiting is what the others cause, so λ must be in it.",
            ),
            Wrong(
                "bell-curve-tail",
                bell_curve,
                "Mean plus so many standard deviations is the tail of a bell curve. Times in a "
                "queue are skewed: an exponential tail is far longer, and half of the requests "
                "are below 0.69 of the mean.",
            ),
            Wrong(
                "log-of-the-percentile",
                log_of_the_percentile,
                "You take the logarithm of the percentile's number. It looks right at P99, where "
                "ln(99) is nearly ln(100), and nowhere else: the logarithm is of the share that "
                "takes longer, 1 − percentile/100, with a minus sign.",
            ),
            Wrong(
                "wait-for-sojourn",
                wait_percentile,
                "That is the percentile of the wait before service alone; the time in the system "
                "is asked, until the request is done.",
            ),
        ),
        hints=(
            "What share of requests takes longer than t, if the time is exponential with mean W?",
            "exp(-t / W) take longer. Set that to the share beyond the percentile: 0.01 for P99.",
            "t = -ln(1 - percentile/100) · W, with W = 1/(μ − λ) and the natural logarithm.",
        ),
        explanation="P(T > t) = exp(−(μ − λ) t), so the q-th percentile is −ln(1 − q/100)/(μ − λ).",
    ),
    function_exercise(
        "2.3",
        title="Headroom",
        question=(
            "Your users were promised a P99 of target_s for the whole request. Read the last "
            "exercise backwards: up to which arrival rate does an M/M/1 server keep the promise? "
            "The card shows what a simulation does at the rate that you give."
        ),
        track="core",
        kind="predict",
        minutes=6,
        difficulty=2,
        reference=highest_arrival_rate,
        cases=_services_and_targets,
        result=Number("/s"),
        evidence=_p99_at,
        wrong=(
            Wrong(
                "mean-within-target",
                mean_within_target,
                "At that rate the *mean* meets the target, and 37 requests in a hundred miss it. "
                "The promise is a P99: one in a hundred may.",
            ),
            Wrong(
                "rate-below-zero",
                below_zero,
                "Right where the promise can be kept. Where it cannot, your rate is negative: no "
                "load at all is the best that can be done, and the answer is 0.0.",
            ),
            Wrong(
                "utilization-for-rate",
                utilization_instead,
                "That is the usable utilization ρ, a share of 1. Asked is the rate λ = ρ · μ.",
            ),
            Wrong(
                "rule-of-thumb",
                eighty_percent,
                "80 % is right for one target and one server only. A tight target needs far more "
                "headroom, a loose one less: target_s must be in the answer.",
            ),
        ),
        hints=(
            "Write P99 = ln(100)/(μ − λ) = target_s. Which letter do you want to be alone?",
            "μ − λ = ln(100)/target_s: the spare rate that the promise costs, at any μ.",
            "λ = μ − ln(100)/target_s, and never below 0.",
        ),
        explanation=(
            "The spare rate ln(100)/T is fixed by the target alone: a fast server loses little to "
            "it, a slow one nearly everything."
        ),
    ),
    function_exercise(
        "2.4",
        title="How bursty is this trace",
        question=(
            "M/M/1 assumes Poisson arrivals, whose gaps have a coefficient of variation (CV) of 1. "
            "Before you trust it for a trace, measure the CV of the trace's gaps: standard "
            "deviation over mean. A log is usually written when a request ends, so its lines are "
            "not in order of arrival."
        ),
        track="core",
        kind="audit",
        minutes=5,
        difficulty=2,
        reference=arrival_cv,
        cases=_traces,
        result=Number("", rel=0.01, noun="a ratio without a unit"),
        wrong=(
            Wrong(
                "scv-for-cv",
                squared,
                "That is the square of it, variance over mean squared (SCV). Kingman's formula "
                "wants the square; asked is the CV, so take the root.",
            ),
            Wrong(
                "log-order",
                in_log_order,
                "You take the gaps between neighbouring lines. The log is in the order in which "
                "requests ended: sort the arrival times first.",
            ),
            Wrong(
                "negative-gaps-turned-round",
                in_log_order_without_signs,
                "Some gaps came out negative, and you made them positive. A negative gap says that "
                "the lines are not in order of arrival: sort the times, and none is left.",
            ),
            Wrong(
                "spread-of-the-timestamps",
                of_the_timestamps,
                "That is the spread of the timestamps themselves, which only says how long the "
                "trace is. Burstiness is in the gaps between them.",
            ),
            Wrong(
                "counts-for-gaps",
                of_counts_per_second,
                "That is the spread of arrivals per second, which depends on the rate and on "
                "where the seconds are cut. Take the gaps between arrivals.",
            ),
        ),
        hints=(
            "Which numbers are large when arrivals come in bunches: the times, or the gaps?",
            "np.sort, then np.diff. A gap can never be negative.",
            "np.std(gaps) / np.mean(gaps): to divide by n or n − 1 makes no difference here.",
        ),
        explanation=(
            "A CV above 1 is burstier than Poisson: at the same load the wait grows about as "
            "(CV² of arrivals + CV² of service)/2, as Kingman's formula says."
        ),
    ),
    function_exercise(
        "2.5",
        title="What variable lengths cost",
        question=(
            "Answers differ in length, so service times are not exponential. Pollaczek and "
            "Khinchine's formula needs only their mean and their mean square. From a sample of "
            "service times, predict the mean wait before service; the card simulates the same "
            "queue beside it."
        ),
        track="stretch",
        kind="predict",
        minutes=7,
        difficulty=2,
        reference=mean_wait,
        cases=_service_samples,
        result=Number("s", rel=0.005),
        evidence=_wait_in_simulation,
        wrong=(
            Wrong(
                "exponential-assumed",
                as_if_exponential,
                "That is M/M/1's wait, which knows the mean alone. Two services of one mean can "
                "wait very differently: use how the sample spreads.",
            ),
            Wrong(
                "square-of-the-mean",
                as_if_constant,
                "You square the mean; the formula has the mean of the squares. Yours is M/D/1, a "
                "server that takes the same time for every answer: the floor.",
            ),
            Wrong(
                "cv-not-squared",
                cv_not_squared,
                "The factor is (1 + CV²)/2, with the CV squared. It matters most where the tail "
                "is long: a CV of 3 is a factor of 5, not 2.",
            ),
            Wrong(
                "service-included",
                with_service,
                "That is the time in the system: you added the service itself. Asked is the wait "
                "before it begins.",
            ),
        ),
        hints=(
            "The utilization is λ times the mean service time. What else does the sample tell?",
            "W_q = λ · E[S²] / (2 (1 − ρ)); E[S²] is the mean of the squares.",
            "np.mean(service_s**2) is E[S²]; np.mean(service_s)**2 is something else.",
        ),
        explanation=(
            "The wait is M/M/1's times (1 + CV²)/2: lengths with a CV² of 3 double it at the same "
            "load, and constant lengths halve it."
        ),
    ),
    function_exercise(
        "2.6",
        title="One queue for all",
        question=(
            "A fleet of equal replicas stands behind one queue: whichever is free takes the next "
            "request (M/M/c). How many replicas are needed so that the mean wait stays within the "
            "target? You may use `queueing.mmc(arrival_rate_per_s, service_rate_per_s, servers)` "
            "and its `mean_wait_s`; it refuses a fleet too small to keep up."
        ),
        track="stretch",
        kind="predict",
        minutes=7,
        difficulty=2,
        reference=servers_needed,
        cases=_fleets,
        result=Whole("servers"),
        evidence=_wait_with,
        wrong=(
            Wrong(
                "a-queue-for-each",
                a_queue_each,
                "You give every replica a queue of its own. Then one may be idle while requests "
                "wait at another: one shared queue needs fewer replicas. Use M/M/c.",
            ),
            Wrong(
                "one-fast-server",
                one_fast_server,
                "You melt the fleet into one server of its joint speed. Such a server brings its "
                "whole speed to a single request; a fleet with few requests leaves most replicas "
                "idle. Their waits differ: use M/M/c.",
            ),
            Wrong(
                "keeping-up-is-enough",
                just_stable,
                "That many keep up on average, at a utilization near 1, where the wait is longest. "
                "The target asks for more.",
            ),
            Wrong(
                "everyone-waits",
                everyone_waits,
                "1/(cμ − λ) is the mean wait of those who wait. In a larger fleet most requests "
                "find a free replica and wait not at all: multiply by that probability (Erlang C).",
            ),
        ),
        hints=(
            "Start from the smallest fleet that keeps up, and add replicas until the wait fits.",
            "The smallest fleet that keeps up has math.floor(λ/μ) + 1 replicas.",
            "A while loop on queueing.mmc(λ, μ, servers).mean_wait_s > target_wait_s.",
        ),
        explanation=(
            "Pooling: with one shared queue no replica is idle while a request waits, so a large "
            "fleet can run much closer to full than c separate ones."
        ),
    ),
    value_exercise(
        "2.7",
        title="A waiting room of the right size",
        question=(
            "In the busy hour 19 requests/s come to a replica that can finish 20/s (Poisson "
            "arrivals, exponential service). The promise is a P99 of at most 1 s for requests "
            "that are served. At 95 % load an endless queue breaks it, so you bound the queue: "
            "who finds it full is refused at once and goes elsewhere. How many places (the one in "
            "service included) keep the promise and refuse as few as possible? Your number is run "
            "on two busy hours that you have not seen; it may refuse up to 0.75 percentage points "
            "more than the best number does. `queueing.mm1k` and "
            "`queueing.simulate_bounded_queue` are there to try things on."
        ),
        track="stretch",
        kind="configure",
        minutes=8,
        difficulty=3,
        reference=_BEST_CAPACITY,
        value=Whole("places", noun="a whole number of places, at least 1"),
        comment="a whole number of places",
        cases=_busy_hours,
        observe=_p99_and_refused,
        result=Figures(
            ("P99", "refused"),
            ("s", "%"),
            noun="P99 within 1 s and as few refused as possible",
            within="P99 at most 1 s; 0.75 percentage points of refusals",
        ),
        accept=_accept_capacity,
        describe=lambda case: "19 requests/s for a replica of 20/s, in a simulated busy hour",
        wrong=(
            Wrong(
                "mean-for-tail",
                20,
                "20 places at 20/s: the last one in waits 1 s *on average*. A P99 needs room for "
                "the slow ones, so the queue must be shorter than target times rate.",
                also=lambda places: 18 <= places <= 24,
            ),
            Wrong(
                "long-queue-loses-nobody",
                1000,
                "A long queue refuses nobody and breaks the promise to many: at 95 % load P99 is "
                "over 4 s. A refusal at once is better than an answer too late.",
                also=lambda places: places >= 40,
            ),
            Wrong(
                "no-queue-at-all",
                1,
                "With hardly a place to wait the served are fast, and a large share is refused "
                "while the server idles between arrivals. A short queue bridges those gaps.",
                also=lambda places: 1 <= places <= 4,
            ),
        ),
        hints=(
            "Try a few numbers: more places lower the refusals and raise P99. Which limit binds?",
            "queueing.mm1k(19, 20, places) has reject_probability and sojourn_quantile_s(0.99).",
            "Take the largest number whose P99 is still below 1 s; it lies between 10 and 20.",
        ),
        explanation=(
            "The P99 of the served grows by about a service time a place; the refusals fall "
            "slower and slower. The promise binds first."
        ),
    ),
    function_exercise(
        "2.8",
        title="What the load test left out",
        question=(
            "A report prints a beautiful P99. Its load generator had a fixed schedule but few "
            "workers, and a worker sends nothing while it waits for an answer: when the server "
            "stood still, the requests then due were sent late, and the tool's clock started only "
            "when it sent them (coordinated omission). From the raw timestamps, work out the P99 "
            "that users would have felt, who come when they come and give up after `timeout_s`."
        ),
        track="stretch",
        kind="audit",
        minutes=7,
        difficulty=3,
        reference=felt_p99,
        cases=_load_tests,
        result=Number("s", rel=0.02),
        wrong=(
            Wrong(
                "clock-starts-at-sending",
                counted_from_sending,
                "You start the clock when the tool sends. The user came when the request was due, "
                "and waited while the tool had no worker free: that wait is what it omits.",
            ),
            Wrong(
                "answered-only",
                answered_only,
                "You leave out the requests without an answer, which are the slowest of all. Each "
                "cost its user timeout_s.",
            ),
            Wrong(
                "percentiles-add-up",
                percentiles_added,
                "You add the P99 of the delay to the P99 of the response. The slow ones of the "
                "one need not be the slow ones of the other: add per request, then take the "
                "percentile.",
            ),
            Wrong(
                "mean-for-percentile",
                mean_felt,
                "That is the mean, in which a few seconds of stand-still vanish among thousands "
                "of quick answers.",
            ),
        ),
        hints=(
            "For one request: when does its user start to wait, and when does the wait end?",
            "From scheduled_s to finished_s; where that is NaN, timeout_s. np.isnan tells where.",
            "np.percentile(np.where(np.isnan(finished_s), timeout_s, ...), 99)",
        ),
        explanation=(
            "A generator that waits for answers slows down with the server and so never asks the "
            "question that hurts. Schedule openly, and count from the schedule."
        ),
    ),
)
