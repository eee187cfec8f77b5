"""A server under rising load: `Scenario`, `sweep`, `Sweep`; where its knee is, is found in `knees`.

Every load meets the same requests (common random numbers): the seed draws them once, and the load
only decides how fast they come. So two neighbouring points differ by the load, not by luck.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from course.serving._arguments import FloatArray, at_least, whole
from course.serving.engine import EngineConfig, Run, simulate, simulate_closed
from course.serving.load.knees import Knee, Method, find_knee
from course.serving.load.point import FIGURES, LoadPoint, measure
from course.serving.load.resampling import student
from course.serving.pricing import StepCost
from course.serving.requests import SLO
from course.serving.workload import (
    Arrivals,
    Lengths,
    Poisson,
    RequestClass,
    Workload,
    draw,
    mixture,
)

if TYPE_CHECKING:
    import pandas as pd

ROUNDS = 5
"""Requests that each user of a closed loop sends at least; the first wave is cut off."""

_LOADS_A_TASK = 4
"""Loads that a worker runs at a time: milliseconds of work, well above what a call costs."""

_CLOSE_ENOUGH = 0.01
"""Loads nearer than this are not split any further."""


class Traffic(Protocol):
    """Who comes: anything that draws the same requests from the same seed."""

    def draw(self, requests: int, seed: int) -> Workload:
        """Return so many requests."""
        ...


@dataclass(frozen=True)
class DrawnTraffic:
    """Requests whose prompts, answers and gaps are each drawn from one distribution.

    Of `arrivals` only the pattern counts: a sweep speeds it up to each of its rates. A closed loop
    does not use it.

    >>> from course.serving.workload import Fixed
    >>> DrawnTraffic(Fixed(100), Fixed(20)).draw(3, seed=0).prompt_tokens.tolist()
    [100, 100, 100]
    """

    prompt: Lengths
    output: Lengths
    arrivals: Arrivals = field(default_factory=lambda: Poisson(1.0))

    def draw(self, requests: int, seed: int) -> Workload:
        """Return so many requests."""
        return draw(requests, self.arrivals, self.prompt, self.output, seed=seed)


@dataclass(frozen=True)
class MixedTraffic:
    """Requests of several classes (chat, summaries, …) in fixed shares; see `workload.mixture`."""

    classes: tuple[RequestClass, ...]
    arrivals: Arrivals = field(default_factory=lambda: Poisson(1.0))

    def draw(self, requests: int, seed: int) -> Workload:
        """Return so many requests."""
        return mixture(requests, self.arrivals, self.classes, seed=seed)


@dataclass(frozen=True)
class Scenario:
    """Everything about an experiment but the load.

    `loop` "open": requests come at a rate, served or not, and a load is requests/s. "closed": a
    load is a number of users, each of whom sends again `think_s` after the last answer ended; they
    start together, or evenly at random over `ramp_s`. `requests`: of each point (a closed loop
    sends at least five a user). `slo`: what is promised.

    Raises ValueError that names the argument and the value.

    >>> from course.serving.pricing import LinearStepCost
    >>> from course.serving.workload import Fixed
    >>> Scenario(LinearStepCost(0.01), DrawnTraffic(Fixed(100), Fixed(20))).load_unit
    'requests/s'
    """

    cost: StepCost
    traffic: Traffic
    config: EngineConfig = field(default_factory=EngineConfig)
    loop: Literal["open", "closed"] = "open"
    requests: int = 2000
    slo: SLO = field(default_factory=SLO)
    think_s: float = 0.0
    ramp_s: float = 0.0

    def __post_init__(self) -> None:
        if self.loop not in ("open", "closed"):
            raise ValueError(f"loop={self.loop!r} is not known; give open or closed")
        object.__setattr__(self, "requests", whole("requests", self.requests, low=2))
        object.__setattr__(self, "think_s", at_least("think_s", self.think_s))
        object.__setattr__(self, "ramp_s", at_least("ramp_s", self.ramp_s))

    @property
    def load_unit(self) -> str:
        """What a load is counted in."""
        return "requests/s" if self.loop == "open" else "users"

    def requests_at(self, load: float) -> int:
        """Return how many requests a point at `load` has."""
        return max(self.requests, ROUNDS * int(load)) if self.loop == "closed" else self.requests

    def run(self, load: float, seed: int, *, work: Workload | None = None) -> Run:
        """Return one run at `load`, from an empty server until the last answer.

        `work`: the traffic's own draw for this seed, where it is at hand. Raises ValueError for a
        load that is not above 0, or users that are not whole.
        """
        if work is None:
            work = self.traffic.draw(self.requests_at(load), seed)
        if self.loop == "open":
            work = work.scaled(at_least("load", load, above=True))
            return simulate(work, self.cost, self.config, progress=False)
        users = whole("load", load)
        return simulate_closed(
            users, self.think_s, work, self.cost, self.config,
            ramp_s=self.ramp_s, seed=seed, progress=False,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Sweep:
    """Every load of a scenario with every seed. Made by `sweep`.

    `points` are in order of the loads, and of the seeds within each.
    """

    scenario: Scenario
    loads: tuple[float, ...]
    seeds: tuple[int, ...]
    points: tuple[LoadPoint, ...]

    def column(self, name: str) -> FloatArray:
        """Return one figure of all points, shape (seeds, loads); see `FIGURES` for the names."""
        if name not in FIGURES:
            raise ValueError(f"name={name!r} is not a figure of a point; give one of {FIGURES}")
        return self._each([getattr(point, name) for point in self.points])

    def attainment(self, slo: SLO | None = None) -> FloatArray:
        """Return the share of requests inside the SLO (the scenario's if left out).

        Shape (seeds, loads). Nothing is simulated again, so any SLO can be tried.
        """
        asked = self.scenario.slo if slo is None else slo
        return self._each([point.attainment(asked) for point in self.points])

    def goodput_per_s(self, slo: SLO | None = None) -> FloatArray:
        """Return requests/s inside the SLO (the scenario's if left out), shape (seeds, loads)."""
        asked = self.scenario.slo if slo is None else slo
        return self._each([point.goodput_per_s(asked) for point in self.points])

    def _each(self, values: Sequence[float]) -> FloatArray:
        array: FloatArray = np.array(values, dtype=np.float64)
        return array.reshape(len(self.loads), len(self.seeds)).T

    def knee(
        self, method: Method = "slo", slo: SLO | None = None, *, confidence: float = 0.95
    ) -> Knee:
        """Return the knee by one method, with an interval from the seeds; see `find_knee`.

        Throughput is in output tokens/s. `slo`: the scenario's if left out. Raises ValueError for
        "slo" without a limit.
        """
        asked = self.scenario.slo if slo is None else slo
        if method == "slo" and not asked.exists:
            raise ValueError('slo has no limit; give one, as SLO(ttft_s=0.5), or method="plateau"')
        return find_knee(
            self.loads, self.column("output_tokens_per_s"), method=method,
            attainment=self.attainment(asked) if method == "slo" else None,
            quantile=asked.quantile, confidence=confidence,
            load_unit=self.scenario.load_unit, throughput_unit="output tokens/s",
            promise="the SLO",
        )  # fmt: skip

    def to_frame(self, slo: SLO | None = None, confidence: float = 0.95) -> pd.DataFrame:
        """Return one row a load: the mean over the seeds of each figure, and its interval.

        Columns `NAME`, `NAME_low` and `NAME_high` (Student's t, NaN with one seed); `steady` is
        the share of the seeds that had a steady state.
        """
        import pandas as pd

        columns = {name: self.column(name) for name in FIGURES}
        if (self.scenario.slo if slo is None else slo).exists:
            columns["attainment"] = self.attainment(slo)
            columns["goodput_per_s"] = self.goodput_per_s(slo)
        found: dict[str, FloatArray] = {}
        for name, values in columns.items():
            found[name] = values.mean(axis=0)
            if name != "steady":
                half = interval_half_width(values, confidence)
                found[f"{name}_low"], found[f"{name}_high"] = found[name] - half, found[name] + half
        return pd.DataFrame(found, index=pd.Index(self.loads, name=self.scenario.load_unit))

    def as_bytes(self) -> bytes:
        """Return every number of every point as bytes: equal for the same sweep, wherever run."""
        parts = [np.array(self.loads).tobytes(), np.array(self.seeds).tobytes()]
        for point in self.points:
            parts.append(np.array([getattr(point, name) for name in FIGURES], float).tobytes())
            parts += [column.tobytes() for column in vars(point.served).values()]
        return b"".join(parts)


def interval_half_width(values: FloatArray, confidence: float = 0.95) -> FloatArray:
    """Return half the width of Student's t interval of the mean over the first axis.

    `values`: shape (runs, …); NaN with one run.

    >>> interval_half_width(np.array([1.0, 2.0, 3.0, 4.0, 5.0])).round(2).item()
    1.96
    """
    runs = values.shape[0]
    if runs < 2:
        return np.full(values.shape[1:], math.nan)
    spread = values.std(axis=0, ddof=1) / math.sqrt(runs)
    return np.asarray(student(confidence, runs - 1) * spread)


# --- the sweep -----------------------------------------------------------------------------------


def run_points(scenario: Scenario, loads: Sequence[float], seed: int) -> list[LoadPoint]:
    """Return one seed's points at some loads: the piece of work that an executor gets."""
    return list(_points(scenario, loads, seed))


def _points(scenario: Scenario, loads: Sequence[float], seed: int) -> Iterator[LoadPoint]:
    drawn: dict[int, Workload] = {}
    for load in loads:
        requests = scenario.requests_at(load)
        if requests not in drawn:
            drawn = {requests: scenario.traffic.draw(requests, seed)}
        run = scenario.run(load, seed, work=drawn[requests])
        yield measure(run, load, seed)


def sweep(
    scenario: Scenario,
    loads: Iterable[float],
    seeds: Iterable[int] = range(5),
    executor: Executor | None = None,
    *,
    refine: int = 0,
    progress: bool = True,
) -> Sweep:
    """Run a scenario at every load with every seed, the same requests at every load.

    `loads`: requests/s in an open loop, whole numbers of users in a closed one; any order, each
    once. `seeds`: five or more give the knee an interval. `executor`: any
    `concurrent.futures.Executor` (processes, Dask's, MPI's client); the numbers are the same to the
    last bit. `refine`: so many times a load is added halfway between the two around each knee (by
    the plateau, and by the SLO where there is one). `progress`: a bar where it takes over a second.

    Raises ValueError for loads or seeds that are not usable.

    >>> from course.serving.pricing import LinearStepCost
    >>> from course.serving.workload import Fixed
    >>> server = LinearStepCost(fixed_s=0.02, per_decode_seq_s=1e-3)
    >>> scenario = Scenario(server, DrawnTraffic(Fixed(50), Fixed(20)), EngineConfig(8),
    ...                     requests=200, slo=SLO(ttft_s=0.5))
    >>> found = sweep(scenario, [2, 6, 10, 14, 18, 22], seeds=[0, 1])
    >>> found.column("requests_per_s").shape, found.knee("slo").found
    ((2, 6), True)
    """
    numbers = sorted(_checked_loads(scenario, loads))
    sown = tuple(whole(f"seeds[{index}]", seed, low=0) for index, seed in enumerate(seeds))
    if not sown or len(set(sown)) < len(sown):
        raise ValueError(f"seeds={sown} must be one or more different whole numbers")
    whole("refine", refine, low=0)
    with _Bar(len(numbers) * len(sown), progress) as bar:
        found = _run_all(scenario, numbers, sown, executor, bar)
        for _ in range(refine):
            more = _loads_between(found)
            if not more:
                break
            bar.expect(len(more) * len(sown))
            found = _joined(found, _run_all(scenario, more, sown, executor, bar))
    return found


def _checked_loads(scenario: Scenario, loads: Iterable[float]) -> list[float]:
    checked: list[float] = []
    for index, load in enumerate(loads):
        name = f"loads[{index}]"
        users = scenario.loop == "closed"
        checked.append(float(whole(name, load)) if users else at_least(name, load, above=True))
    if not checked or len(set(checked)) < len(checked):
        raise ValueError(f"loads={checked} must be one or more different numbers")
    return checked


def _run_all(
    scenario: Scenario,
    loads: Sequence[float],
    seeds: tuple[int, ...],
    executor: Executor | None,
    bar: _Bar,
) -> Sweep:
    """Return a sweep of these loads, here or on an executor's workers."""
    points: list[LoadPoint] = []
    if executor is None:
        for seed in seeds:
            for point in _points(scenario, loads, seed):
                points.append(point)
                bar.add(1)
    else:
        starts = range(0, len(loads), _LOADS_A_TASK)
        pieces = [(loads[at : at + _LOADS_A_TASK], seed) for at in starts for seed in seeds]
        futures = [executor.submit(run_points, scenario, *piece) for piece in pieces]
        for future in futures:
            done = future.result()
            points += done
            bar.add(len(done))
    return _in_order(scenario, loads, seeds, points)


def _in_order(
    scenario: Scenario, loads: Sequence[float], seeds: tuple[int, ...], points: list[LoadPoint]
) -> Sweep:
    place = {seed: index for index, seed in enumerate(seeds)}
    points.sort(key=lambda point: (point.load, place[point.seed]))
    return Sweep(scenario, tuple(sorted(loads)), seeds, tuple(points))


def _joined(one: Sweep, other: Sweep) -> Sweep:
    points = [*one.points, *other.points]
    return _in_order(one.scenario, [*one.loads, *other.loads], one.seeds, points)


def _loads_between(found: Sweep) -> list[float]:
    """The loads halfway between those around each knee, where they are not yet close."""
    methods: list[Method] = ["plateau"]
    if found.scenario.slo.exists:
        methods.append("slo")
    more = set()
    for method in methods:
        knee = _of_the_means(found, method)
        if knee.between is None:
            continue
        low, high = knee.between
        middle = (low + high) / 2
        if found.scenario.loop == "closed":
            middle = float(round(middle))
        if low < middle < high and high - low > _CLOSE_ENOUGH * high:
            more.add(middle)
    return sorted(more)


def _of_the_means(found: Sweep, method: Method) -> Knee:
    """The knee of the mean curve, without an interval, which would take most of the time."""
    slo = found.scenario.slo
    return find_knee(
        found.loads, found.column("output_tokens_per_s").mean(axis=0), method=method,
        attainment=found.attainment().mean(axis=0) if method == "slo" else None,
        quantile=slo.quantile,
    )  # fmt: skip


class _Bar:
    """A progress bar that appears only where the work takes longer than a second."""

    def __init__(self, total: int, wanted: bool) -> None:
        self._total, self._wanted, self._done = total, wanted, 0
        self._begun = time.perf_counter()
        self._bar: Any = None

    def __enter__(self) -> _Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def expect(self, more: int) -> None:
        """Make room for more points."""
        self._total += more
        if self._bar is not None:
            self._bar.total = self._total

    def add(self, points: int) -> None:
        """Count points as done."""
        self._done += points
        if self._bar is None:
            if not self._wanted or time.perf_counter() - self._begun < 1.0:
                return
            from tqdm.auto import tqdm

            self._bar = tqdm(total=self._total, unit=" runs", leave=False, disable=None)
        self._bar.update(self._done - self._bar.n)
