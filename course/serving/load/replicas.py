"""How many replicas, seats and tokens a step a given traffic needs; every option is simulated.

`plan` in `planning` divides a demand by a knee. Here the traffic itself is replayed through whole
fleets of equal replicas, so that bursts, long prompts and full caches are in the answer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, at_least, whole
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.load.sweeping import interval_half_width
from course.serving.pricing import StepCost
from course.serving.requests import SLO, Status, metrics
from course.serving.workload import Workload

BoolArray = npt.NDArray[np.bool_]
Router = Literal["round_robin", "random"]
Limit = Literal["TTFT", "TPOT", "E2E", "refused"]
LIMITS: tuple[Limit, ...] = get_args(Limit)
Cause = Literal["KV blocks", "seats", "steps"]

BLOCKS = 20
"""The traffic is cut into so many parts of equal numbers of requests, for an interval."""

FULL = 0.98
"""A share of the KV blocks above which the next prompt does not fit."""

OFTEN = 0.05
"""What is full in more than this share of the busy time binds."""

NEAR = 0.01
"""A fleet within this share of what an empty server keeps is as good as more replicas make it."""

_ALONE_S = 1e5
"""Requests so far apart never meet in a server."""


@dataclass(frozen=True)
class Option:
    """One fleet on the whole traffic, and how the promise fared.

    `attainment`: share of all requests offered that keep every limit, with the interval `low` to
    `high` (95 %, Student's t over parts of the traffic; NaN for fewer than 200 requests). `missed`:
    share of requests that break each limit, refused ones apart. `ttft_s`, `tpot_s`: the quantile
    that was promised, of finished requests; `ttft_p50_s` and so on are medians. `kv_peak`,
    `kv_full`, `seats_full`: the fullest step, and shares of the busy time with (nearly) no block or
    no seat left, over all replicas; `kv_peak` is NaN where KV is not limited. `busy`: share of the
    time in which a replica computes.
    """

    config: EngineConfig
    replicas: int
    attainment: float
    low: float
    high: float
    missed: dict[Limit, float]
    ttft_s: float
    tpot_s: float
    ttft_p50_s: float
    tpot_p50_s: float
    output_tokens_per_s: float
    preemptions: int
    kv_peak: float
    kv_full: float
    seats_full: float
    busy: float

    def keeps(self, share: float) -> bool:
        """Whether such a share of the requests keeps every limit."""
        return _is_kept(self.attainment, share)

    @property
    def breaks_first(self) -> Limit | None:
        """The limit that most of the missing requests break; None where none is missed."""
        worst = max(self.missed, key=lambda name: self.missed[name])
        return worst if self.missed[worst] > 0 else None

    @property
    def cause(self) -> Cause:
        """What was short where the first limit broke: KV blocks, seats, or the steps' own time.

        More seats let a request in sooner; they make no step shorter, so they are no cause of a
        broken TPOT.
        """
        if self.preemptions or self.kv_full > OFTEN:
            return "KV blocks"
        return "seats" if self.seats_full > OFTEN and self.breaks_first != "TPOT" else "steps"


@dataclass(frozen=True)
class ReplicaPlan:
    """What a traffic needs. `options`: all that were simulated, by configuration and replicas.

    `alone`: share of requests that break each limit in an empty server, whatever the number of
    replicas; `alone_attainment` is the share that keeps all of them there, and so the most that any
    number can reach. `best`: the cheapest fleet that holds the promise, None where none does;
    `cheaper`: the best one with one replica fewer; `nearest`: where the promise is out of reach,
    the smallest fleet within a hundredth of what can be had.
    """

    requests: int
    duration_s: float
    slo: SLO
    options: tuple[Option, ...]
    alone: dict[Limit, float]
    alone_attainment: float
    best: Option | None
    cheaper: Option | None
    nearest: Option | None

    @property
    def can_be_had(self) -> bool:
        """Whether more replicas could hold the promise at all."""
        return _is_kept(self.alone_attainment, self.slo.quantile)


def _is_kept(attainment: float, share: float) -> bool:
    # the rounding of a mean may not break a promise
    return attainment >= share - 1e-12


def plan_replicas(
    work: Workload,
    cost: StepCost,
    configs: Iterable[EngineConfig],
    slo: SLO,
    *,
    most: int = 64,
    replicas: Sequence[int] | None = None,
    router: Router = "round_robin",
    seed: int = 0,
    progress: Callable[[Option], None] | None = None,
) -> ReplicaPlan:
    """Return the smallest fleet of equal replicas that holds a promise on a given traffic.

    Each of `configs` is tried with the fewest replicas that hold the promise (up to `most`) and
    with one fewer, or with all of `replicas` where they are given. `router`: "round_robin" sends
    request i to replica i mod n, "random" draws with `seed`. `progress` is called with every option
    as it is done. Of fleets with the fewest replicas the one with the highest attainment is best.

    Raises ValueError for a promise without a limit, and for unusable numbers.

    >>> from course.serving.pricing import LinearStepCost
    >>> from course.serving.workload import Fixed, Poisson, draw
    >>> work = draw(2000, Poisson(60.0), Fixed(100), Fixed(50), seed=0)
    >>> found = plan_replicas(work, LinearStepCost(0.02), [EngineConfig(16)], SLO(0.5, 0.1))
    >>> found.best.replicas, found.cheaper.replicas, found.cheaper.breaks_first
    (4, 3, 'TTFT')
    """
    if not slo.exists:
        raise ValueError("slo has no limit; give one, as SLO(ttft_s=1.0)")
    if len(work) < 2:
        raise ValueError(f"work has {len(work)} requests; a plan takes two or more")
    whole("most", most, low=1)
    if router not in ("round_robin", "random"):
        raise ValueError(f"router={router!r} is not known; give round_robin or random")
    wanted = None if replicas is None else sorted({whole("replicas", n, low=1) for n in replicas})
    tried: dict[tuple[int, int], Option] = {}
    known = list(configs)
    if not known:
        raise ValueError("configs is empty; give one, as [EngineConfig(max_num_seqs=128)]")
    broken_alone, alone_attainment = in_an_empty_server(work, cost, known, slo)

    def option(place: int, count: int) -> Option:
        if (place, count) not in tried:
            made = _option(work, cost, known[place], count, slo, router, seed)
            tried[place, count] = made
            if progress is not None:
                progress(made)
        return tried[place, count]

    reachable = _is_kept(alone_attainment, slo.quantile)
    aim = slo.quantile if reachable else max(alone_attainment - NEAR, 0.0)
    for place in range(len(known)):
        if wanted is None:
            _fewest(partial(option, place), aim, most)
        for count in wanted or ():
            option(place, count)
    options = tuple(tried[key] for key in sorted(tried))
    best = _cheapest(options, slo.quantile)
    fewer = [one for one in options if best is not None and one.replicas == best.replicas - 1]
    return ReplicaPlan(
        requests=len(work),
        duration_s=float(work.arrival_s[-1] - work.arrival_s[0]),
        slo=slo,
        options=options,
        alone=broken_alone,
        alone_attainment=alone_attainment,
        best=best,
        cheaper=max(fewer, key=lambda one: one.attainment, default=None),
        nearest=None if reachable else _cheapest(options, aim),
    )


def _cheapest(options: Sequence[Option], share: float) -> Option | None:
    """The fewest replicas that keep the promise for `share`, and of those the best."""
    good = [one for one in options if one.keeps(share)]
    return min(good, key=lambda one: (one.replicas, -one.attainment), default=None)


def _fewest(option: Callable[[int], Option], share: float, most: int) -> None:
    """Simulate until the fewest replicas that keep the promise for `share` are known."""
    low, high = 0, 1
    while not option(high).keeps(share):
        if high == most:
            return
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        if option(middle).keeps(share):
            high = middle
        else:
            low = middle


def in_an_empty_server(
    work: Workload, cost: StepCost, configs: Sequence[EngineConfig], slo: SLO
) -> tuple[dict[Limit, float], float]:
    """Return the shares of requests that break each limit alone, and of those that break none.

    Each is served alone, by the configuration that serves it best: what is broken there no number
    of replicas mends.

    >>> from course.serving.pricing import LinearStepCost
    >>> work = Workload([0.0, 0.1], [100, 90_000], [5, 5])
    >>> cost, config = LinearStepCost(0.01, 5e-5), EngineConfig()
    >>> broken, kept = in_an_empty_server(work, cost, [config], SLO(ttft_s=1.0))
    >>> broken["TTFT"], kept
    (0.5, 0.5)
    """
    shape = np.unique(
        np.stack([work.prompt_tokens, work.output_tokens]), axis=1, return_inverse=True
    )
    (prompt, output), which = shape[0], np.asarray(shape[1]).reshape(-1)
    apart = Workload(np.arange(prompt.size) * _ALONE_S, prompt, output)
    met = np.zeros(prompt.size, dtype=np.bool_)
    broken = {name: np.ones(prompt.size, dtype=np.bool_) for name in LIMITS}
    for config in configs:
        run = simulate(apart, cost, replace(config, batching="continuous"), progress=False)
        good, misses = _judged(run, slo)
        met |= good
        for name, missed in misses.items():
            broken[name] &= missed
    return {name: float(broken[name][which].mean()) for name in LIMITS}, float(met[which].mean())


def _judged(run: Run, slo: SLO) -> tuple[BoolArray, dict[Limit, BoolArray]]:
    """Which requests keep every limit, and which break each of them."""
    finished = run.status == Status.FINISHED

    def kept(asked: SLO) -> BoolArray:
        met, _ = metrics.meets(asked, run.ttft_s, run.tpot_s, run.e2e_s)
        found: BoolArray = finished & met
        return found

    return kept(slo), {
        "TTFT": finished & ~kept(SLO(ttft_s=slo.ttft_s)),
        "TPOT": finished & ~kept(SLO(tpot_s=slo.tpot_s, without_tpot=slo.without_tpot)),
        "E2E": finished & ~kept(SLO(e2e_s=slo.e2e_s)),
        "refused": ~finished,
    }


def _option(
    work: Workload,
    cost: StepCost,
    config: EngineConfig,
    replicas: int,
    slo: SLO,
    router: Router,
    seed: int,
) -> Option:
    """Run one fleet on the whole traffic."""
    home = np.arange(len(work)) % replicas
    if router == "random":
        home = np.random.default_rng(seed).integers(replicas, size=len(work))
    good = np.zeros(len(work), dtype=np.bool_)
    missed = {name: np.zeros(len(work), dtype=np.bool_) for name in LIMITS}
    ttft_s, tpot_s = np.full(len(work), math.nan), np.full(len(work), math.nan)
    room = _Room()
    for replica in range(replicas):
        rows = np.flatnonzero(home == replica)
        if not rows.size:
            continue
        run = simulate(work.rows(rows), cost, config, progress=False)
        own, misses = _judged(run, slo)
        good[rows], ttft_s[rows], tpot_s[rows] = own, run.ttft_s, run.tpot_s
        for name, values in misses.items():
            missed[name][rows] = values
        room.add(run)
    low, high = _interval(good)
    quantile = slo.quantile
    span_s = max(room.end_s - float(work.arrival_s[0]), 1e-300)
    return Option(
        config=config,
        replicas=replicas,
        attainment=float(good.mean()),
        low=low,
        high=high,
        missed={name: float(values.mean()) for name, values in missed.items()},
        ttft_s=_quantile(ttft_s, quantile),
        tpot_s=_quantile(tpot_s, quantile),
        ttft_p50_s=_quantile(ttft_s, 0.5),
        tpot_p50_s=_quantile(tpot_s, 0.5),
        output_tokens_per_s=room.tokens / span_s,
        preemptions=room.preemptions,
        kv_peak=room.kv_peak,
        kv_full=room.kv_full_s / room.busy_s if room.busy_s else 0.0,
        seats_full=room.seats_full_s / room.busy_s if room.busy_s else 0.0,
        busy=room.busy_s / (replicas * span_s),
    )


@dataclass
class _Room:
    """How full the replicas were, added up over their runs."""

    tokens: int = 0
    preemptions: int = 0
    busy_s: float = 0.0
    kv_peak: float = math.nan
    kv_full_s: float = 0.0
    seats_full_s: float = 0.0
    end_s: float = -math.inf

    def add(self, run: Run) -> None:
        """Add one replica's run."""
        finished = run.status == Status.FINISHED
        self.tokens += int(run.work.output_tokens[finished].sum())
        self.preemptions += int(run.preemptions.sum())
        length_s = run.step_end_s - run.step_start_s
        self.busy_s += float(length_s.sum())
        self.end_s = max(self.end_s, run.end_s)
        held, blocks = run.step_kv_blocks, run.config.num_kv_blocks
        if held is not None and blocks is not None and held.size:
            share = held / blocks
            self.kv_peak = max(share.max(), 0.0 if math.isnan(self.kv_peak) else self.kv_peak)
            self.kv_full_s += float(length_s[share > FULL].sum())
        # whoever has a seat has been scheduled and has not ended
        begun = np.searchsorted(np.sort(run.scheduled_s[finished]), run.step_start_s, side="right")
        ended = np.searchsorted(np.sort(run.finish_s[finished]), run.step_start_s, side="right")
        full = begun - ended >= run.config.max_num_seqs
        self.seats_full_s += float(length_s[full].sum())


def _interval(good: BoolArray) -> tuple[float, float]:
    """The 95 % interval of a share, from parts of the traffic: neighbours share their queue."""
    if good.size < 10 * BLOCKS:
        return math.nan, math.nan
    parts = np.array([part.mean() for part in np.array_split(good, BLOCKS)])
    half = float(interval_half_width(parts))
    middle = float(good.mean())
    return max(0.0, middle - half), min(1.0, middle + half)


def _quantile(values: FloatArray, share: float) -> float:
    known = values[~np.isnan(values)]
    return float(np.quantile(known, share, method="inverted_cdf")) if known.size else math.nan


def usd_per_hour(replicas: int, gpus_per_replica: int, usd_per_gpu_hour: float) -> float:
    """Return what a fleet costs in an hour, used or idle.

    >>> usd_per_hour(3, 4, 2.5)
    30.0
    """
    count = whole("replicas", replicas, low=1) * whole("gpus_per_replica", gpus_per_replica, low=1)
    return count * at_least("usd_per_gpu_hour", usd_per_gpu_hour)
