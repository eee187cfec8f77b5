"""The small server, the clients and the burst that notebook 05 looks at; nothing is drawn here.

One RTX 4090 answers questions of some 400 tokens in some 80. Its clients give up after ten seconds
and may send again. A burst of a few times the usual load comes and goes, and everything is asked
about what happens afterwards, when the load is what it was before. The numbers are chosen so that
the server is busy but well (three quarters of its capacity) before the burst.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray
from course.serving.engine import (
    Admission,
    EngineConfig,
    Patience,
    Retry,
    ServiceRun,
    simulate_service,
)
from course.serving.pricing import RooflineStepCost
from course.serving.requests import SLO
from course.serving.workload import Workload

IntArray = npt.NDArray[np.int64]

MODEL: Final = "Llama-3.1-8B"
GPU: Final = "RTX-4090"
SEATS: Final = 40
"""max_num_seqs of the server."""
PROMPT: Final = (400.0, 0.8, 2000)
"""Tokens of a prompt: mean before the cut, sigma of their logarithm, longest."""
ANSWER: Final = (80.0, 0.6, 160)
"""Those of an answer."""
PATIENCE_S: Final = 10.0
"""A client gives up after so many seconds without the whole answer."""
SETTLING_S: Final = 20.0
"""Left out at the start of a run, while the empty server fills, and at its end."""
RECOVERED: Final = 0.95
"""The server is back when it has this share of the goodput that it had before the burst."""

PROMISE: Final = SLO(e2e_s=PATIENCE_S)
"""A good answer is complete within the patience, counted from the first time it was asked for."""

RETRIES: Final[Mapping[str, Retry]] = MappingProxyType(
    {
        "no retry": Retry(attempts=1),
        "three attempts": Retry(attempts=3, delay_s=1.0),
        "three attempts and jitter": Retry(attempts=3, delay_s=1.0, growth=2.0, jitter=1.0),
        "retry budget": Retry(attempts=3, delay_s=1.0, growth=2.0, jitter=1.0, budget_share=0.2),
        "unlimited": Retry(attempts=None, delay_s=1.0),
    }
)
"""How clients send again, by name. The jitter comes with delays that double."""

OPEN: Final = "accept everything"
"""The gate that is none, by its name in `GATES`."""

GATES: Final[Mapping[str, Admission | None]] = MappingProxyType(
    {
        OPEN: None,
        "shorter answers": Admission(degrade_wait_s=0.5, degrade_to_tokens=40),
        "bounded queue": Admission(max_waiting_requests=16),
        "deadline-aware": Admission(max_predicted_wait_s=2.0),
    }
)
"""Who is let in, by name. Behind two seconds of waiting an answer can still make its ten."""

_MOST = 5_000


@dataclass(frozen=True)
class Burst:
    """The load over time: usual, `factor` times as much for `length_s`, then usual again.

    >>> burst = Burst()
    >>> burst.start_s, burst.end_s, burst.horizon_s
    (80.0, 100.0, 320.0)
    """

    rate_per_s: float = 8.5
    factor: float = 3.0
    length_s: float = 20.0
    start_s: float = 80.0
    after_s: float = 220.0

    @property
    def end_s(self) -> float:
        """When the burst is over."""
        return self.start_s + self.length_s

    @property
    def horizon_s(self) -> float:
        """When nothing is sent any more."""
        return self.end_s + self.after_s

    @property
    def before(self) -> tuple[float, float]:
        """The stretch of usual load before the burst, in seconds, without the first ones."""
        return SETTLING_S, self.start_s


@lru_cache(maxsize=1)
def cost() -> RooflineStepCost:
    """Return what a step of the server costs: the model on its one card."""
    return RooflineStepCost(MODEL, GPU)


@lru_cache(maxsize=8)
def config(seats: int = SEATS) -> EngineConfig:
    """Return the server's dials; its KV cache is what the card has left beside the weights."""
    return EngineConfig(
        max_num_seqs=seats, max_num_batched_tokens=2048, num_kv_blocks=cost().kv_blocks()
    )


@lru_cache(maxsize=16)
def draws(seed: int, stretch: int = 0) -> tuple[FloatArray, IntArray, IntArray]:
    """Return unit gaps, prompts and answers of the most requests that one stretch of time may have.

    All of shape (requests,). A higher rate takes more of them and squeezes the gaps, and the next
    stretch has its own, so that a moved slider shows what it does and not other luck.
    """
    gaps, prompts, outputs = (np.random.default_rng([seed, stretch, part]) for part in range(3))
    return (
        gaps.exponential(size=_MOST),
        drawn_lengths(prompts, PROMPT, _MOST),
        drawn_lengths(outputs, ANSWER, _MOST),
    )


def drawn_lengths(
    generator: np.random.Generator, which: tuple[float, float, int], number: int
) -> IntArray:
    """Return lognormal token counts of at least 8, for `PROMPT` or `ANSWER`."""
    mean, sigma, most = which
    drawn = generator.lognormal(np.log(mean) - sigma**2 / 2, sigma, size=number)
    return np.clip(np.ceil(drawn), 8, most).astype(np.int64)


def work_of(stretches: Sequence[tuple[float, float]], seed: int) -> Workload:
    """Return arrivals at random in stretches of (seconds, requests a second), one after the other.

    A Poisson process of which it is known how many come in each stretch: the expected number, so
    that equal loads are equal and not only alike. Raises ValueError for 5,000 requests or more
    in one stretch.

    >>> len(work_of([(60.0, 9.0), (20.0, 27.0)], seed=1))
    1080
    """
    columns: list[tuple[FloatArray, IntArray, IntArray]] = []
    begin_s = 0.0
    for stretch, (length_s, rate_per_s) in enumerate(stretches):
        count = round(length_s * rate_per_s)
        if count >= _MOST:
            raise ValueError(
                f"stretches[{stretch}] has {count} requests; give a shorter or quieter one, of "
                f"less than {_MOST}"
            )
        gaps, prompts, outputs = draws(seed, stretch)
        # n points at random in a stretch lie like n + 1 exponential gaps that just fill it
        share = np.cumsum(gaps[: count + 1])
        columns.append(
            (begin_s + length_s * share[:-1] / share[-1], prompts[:count], outputs[:count])
        )
        begin_s += length_s
    arrival_s, prompt_tokens, output_tokens = (
        np.concatenate(c) for c in zip(*columns, strict=True)
    )
    return Workload(arrival_s, prompt_tokens, output_tokens)


def burst_work(burst: Burst, seed: int) -> Workload:
    """Return the requests of the scene, `factor` times as many a second during the burst.

    >>> burst = Burst()
    >>> work = burst_work(burst, seed=1)
    >>> inside = (work.arrival_s >= burst.start_s) & (work.arrival_s < burst.end_s)
    >>> inside.sum().item()  # 3 · 8.5 · 20
    510
    """
    usual = burst.rate_per_s
    return work_of(
        [
            (SETTLING_S, usual),
            (burst.start_s - SETTLING_S, usual),
            (burst.length_s, usual * burst.factor),
            (burst.after_s - SETTLING_S, usual),
            (SETTLING_S, usual),
        ],
        seed,
    )


@lru_cache(maxsize=8)
def capacity_per_s(seats: int = SEATS) -> float:
    """Return how many requests a second the server completes when there is always one waiting.

    >>> 10 < capacity_per_s() < 13
    True
    """
    _, prompts, outputs = draws(0)
    count = 3000
    work = Workload(np.zeros(count), prompts[:count], outputs[:count])
    return count / simulate_service(work, cost(), config(seats)).end_of_run_s


def run_burst(
    burst: Burst,
    *,
    retry: Retry,
    admission: Admission | None = None,
    noticed: bool = True,
    patience_s: float = PATIENCE_S,
    seed: int = 1,
) -> ServiceRun:
    """Run the scene: the same requests for any retry, gate and patience."""
    return simulate_service(
        burst_work(burst, seed),
        cost(),
        config(),
        patience=Patience(e2e_s=patience_s, noticed=noticed),
        retry=retry,
        admission=admission,
        seed=seed,
        horizon_s=burst.horizon_s,
    )


def share_of_before(run: ServiceRun, burst: Burst, from_s: float, to_s: float) -> float:
    """Return goodput of those first sent in [from_s, to_s) after the burst / goodput before it.

    Both times count from the burst's end. 0 where nothing was good before.

    >>> burst = Burst()
    >>> run = run_burst(burst, retry=RETRIES["no retry"])
    >>> 0.9 < share_of_before(run, burst, 40.0, 200.0) < 1.1
    True
    """
    before = run.goodput_per_s(PROMISE, *burst.before)
    after = run.goodput_per_s(PROMISE, burst.end_s + from_s, burst.end_s + to_s)
    return (after or 0.0) / before if before else 0.0


def escape(
    burst: Burst,
    *,
    retry: Retry,
    admission: Admission | None = None,
    noticed: bool = True,
    seeds: Iterable[int] = range(1, 4),
) -> str:
    """Return whether the server gets well again: "at once", "later" or "stays down".

    By the mean attainment of some runs against that before the burst: "at once" where it is back
    after two burst lengths (and to the fourth), "later" where it is so from the eighth to the
    tenth. "stays down" says nothing about what an hour would bring.

    >>> escape(Burst(), retry=RETRIES["three attempts"], seeds=[1])
    'stays down'
    """
    turns = ((2, 4), (8, 10))
    kept = np.zeros(len(turns))
    for seed in seeds:
        run = run_burst(burst, retry=retry, admission=admission, noticed=noticed, seed=seed)
        before = run.attainment(PROMISE, *burst.before) or 0.0
        for place, turn in enumerate(turns):
            start_s, end_s = (burst.end_s + lengths * burst.length_s for lengths in turn)
            after = run.attainment(PROMISE, start_s, end_s) or 0.0
            kept[place] += after - RECOVERED * before
    if kept[0] >= 0:
        return "at once"
    return "later" if kept[1] >= 0 else "stays down"
