"""What a closed loop of users would measure on a server, through the simulator; nothing is fitted.

`predict_closed_loop` answers for a model and cards; `predict_row` for a measured row of `data/`,
with what is known of how it was run. Every step is priced by `RooflineStepCost`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from course.serving._arguments import IntArray, at_least, whole
from course.serving.catalog import MeasuredPoint
from course.serving.engine import EngineConfig, Run, simulate_closed
from course.serving.pricing import DEFAULTS, Constants, RooflineStepCost, StepCost
from course.serving.workload import Workload

MAX_NUM_SEQS = 1024
"""Seats: what vLLM takes by default on a large card. The KV cache is usually the tighter limit."""

MAX_NUM_BATCHED_TOKENS = 8192
"""The token budget of a step that vLLM, SGLang and TensorRT-LLM take by default on large cards."""

REQUESTS_PER_USER = 10
FEWEST_REQUESTS = 8
LENGTH_SPREAD = 0.1


@dataclass(frozen=True)
class ServingPoint:
    """What one load level of a server gave: rates of all cards together, and mean latencies.

    `tpot_s` is NaN where every answer is a single token.
    """

    output_tokens_per_s: float
    requests_per_s: float
    ttft_s: float
    tpot_s: float


def predict_closed_loop(
    gpu: str,
    n_gpus: int,
    model: str,
    precision: str,
    prompt_tokens: float,
    output_tokens: float,
    concurrency: int,
    constants: Constants | None = None,
    *,
    kv_precision: str | None = None,
    max_num_seqs: int = MAX_NUM_SEQS,
    max_num_batched_tokens: int = MAX_NUM_BATCHED_TOKENS,
    num_kv_blocks: int | None = None,
    requests_per_user: int = REQUESTS_PER_USER,
    length_spread: float = LENGTH_SPREAD,
    whole_run: bool = False,
) -> ServingPoint:
    """Predict what `concurrency` users who never pause would measure on a server.

    The run is a benchmark's: all users begin together, and each sends `requests_per_user` requests
    one after the other. Lengths lie evenly within `length_spread` (a share) of the given means, in
    shuffled order. `constants`: those fitted to the committed points, unless given.
    `num_kv_blocks` (of 16 tokens): what fits beside the weights, unless given. `whole_run` takes
    throughput as tokens over the duration, ramp and drain included; without it, by Little's law,
    as users times the tokens of a request over its mean time in the system.

    Raises ValueError for what `RooflineStepCost` refuses, for numbers that are none, and where one
    request alone is larger than the cache.

    >>> point = predict_closed_loop("H100-80GB-SXM", 1, "Qwen3-8B", "bf16", 128, 1024, 64)
    >>> 5000 < point.output_tokens_per_s < 8000
    True
    """
    cost = RooflineStepCost(
        model, gpu, n_gpus, precision, kv_precision, DEFAULTS if constants is None else constants
    )
    config = EngineConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        num_kv_blocks=cost.kv_blocks() if num_kv_blocks is None else num_kv_blocks,
    )
    protocol = Protocol(requests_per_user, FEWEST_REQUESTS, length_spread, whole_run)
    run = run_users(cost, config, concurrency, prompt_tokens, output_tokens, protocol)
    return serving_point(run, concurrency, whole_run=whole_run)


@dataclass(frozen=True)
class Protocol:
    """How a benchmark is run: requests a user and in all, spread of lengths, what throughput is."""

    requests_per_user: int = REQUESTS_PER_USER
    fewest_requests: int = FEWEST_REQUESTS
    length_spread: float = LENGTH_SPREAD
    whole_run: bool = False


def run_users(
    cost: StepCost,
    config: EngineConfig,
    concurrency: int,
    prompt_tokens: float,
    output_tokens: float,
    protocol: Protocol,
) -> Run:
    """Simulate a benchmark with `concurrency` users who never pause and begin together.

    Raises ValueError for numbers that are none, and where one request is larger than the cache.
    """
    users = whole("concurrency", concurrency)
    requests = max(
        users * whole("requests_per_user", protocol.requests_per_user), protocol.fewest_requests
    )
    spread = at_least("length_spread", protocol.length_spread)
    if spread >= 1:
        raise ValueError(f"length_spread={spread!r} leaves no length; give a share below 1, as 0.1")
    work = Workload(
        np.zeros(requests),
        _lengths(at_least("prompt_tokens", prompt_tokens, 1.0), requests, spread, 0),
        _lengths(at_least("output_tokens", output_tokens, 1.0), requests, spread, 1),
    )
    _check_room(work, config)
    return simulate_closed(users, 0.0, work, cost, config, progress=False)


def serving_point(run: Run, users: int, *, whole_run: bool = False) -> ServingPoint:
    """Return rates and mean latencies of a closed loop whose users never pause.

    `whole_run`: tokens over the duration. Without it requests_per_s is users / mean time in the
    system, by Little's law, which leaves out the end, when ever fewer users are still busy.
    """
    mean_s = float(run.e2e_s.mean())
    requests_per_s = len(run) / run.end_s if whole_run else users / mean_s
    tpot = run.tpot_s[~np.isnan(run.tpot_s)]
    return ServingPoint(
        output_tokens_per_s=requests_per_s * float(run.work.output_tokens.mean()),
        requests_per_s=requests_per_s,
        ttft_s=float(run.ttft_s.mean()),
        tpot_s=float(tpot.mean()) if tpot.size else math.nan,
    )


@lru_cache(maxsize=1024)
def _lengths(centre: float, requests: int, spread: float, seed: int) -> IntArray:
    """Return whole lengths spread evenly about their mean, in an order shuffled by `seed`."""
    places = (np.arange(requests) + 0.5) / requests
    lengths = np.rint(centre * (1 + spread * (2 * places - 1))).astype(np.int64)
    lengths = np.random.default_rng(seed).permutation(np.maximum(lengths, 1))
    lengths.setflags(write=False)
    return lengths


def _check_room(work: Workload, config: EngineConfig) -> None:
    """Raise ValueError where a request would be rejected, which no benchmark would report."""
    longest = int((work.prompt_tokens + work.output_tokens - 1).max())
    if config.num_kv_blocks is not None and longest > config.num_kv_blocks * config.block_size:
        raise ValueError(
            f"prompt_tokens and output_tokens make requests of up to {longest:,} tokens, and the "
            f"cache holds {config.num_kv_blocks * config.block_size:,}; give shorter ones, more "
            "cards or kv_precision='fp8'"
        )


# ================================================================================== measured rows
PROTOCOLS = {"silybench": Protocol(5, 50, 0.0, whole_run=True)}
"""Sources that say how they were run; `sources.csv` holds their words. Others: the default."""

FP8_CACHE_ENGINES = ("TensorRT-LLM", "NIM")
"""Engines whose fp8 checkpoints come with a cache in fp8; vLLM and SGLang keep it in bf16."""


def row_precision(row: MeasuredPoint) -> str:
    """Return the precision of a row's weights; where the source says none, the model's own, bf16.

    The rows without one are Qwen3-32B on SGLang and Llama-3.1-8B on TensorRT-LLM, whose times for
    a token are those of 16 bits.
    """
    return "bf16" if row.precision == "unknown" else row.precision


def row_kv_precision(row: MeasuredPoint) -> str:
    """Return the precision of a row's cache, by its engine's habit; no source states it.

    >>> from course.serving.catalog import measured_points
    >>> row_kv_precision(measured_points(source="nim-1.5")[0])
    'fp8'
    """
    habit = row.engine.startswith(FP8_CACHE_ENGINES)
    return "fp8" if habit and row_precision(row) == "fp8" else "bf16"


@dataclass(frozen=True, eq=False)
class PredictedRow:
    """A measured closed-loop row as the simulator has it: the point, and the statistics measured.

    `tpot_s`, `ttft_s`: the statistic that the source gives (median gap between tokens, P95), and
    the mean where it gives means or does not say.
    """

    point: ServingPoint
    tpot_s: float
    ttft_s: float


def predict_row(row: MeasuredPoint, constants: Constants = DEFAULTS) -> PredictedRow:
    """Predict a measured closed-loop row, with the server's limits where its source states them.

    Raises ValueError for a row that is no closed loop or lacks its lengths, and as
    `RooflineStepCost`.
    """
    if row.concurrency is None or row.prompt_tokens is None or row.output_tokens is None:
        raise ValueError(f"row={row!r} lacks users or lengths; give a closed loop's row")
    cost = RooflineStepCost(
        row.model, row.gpu, row.n_gpus, row_precision(row), row_kv_precision(row), constants
    )
    pool = row.kv_pool_tokens
    config = EngineConfig(
        max_num_seqs=row.max_num_seqs or MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        num_kv_blocks=cost.kv_blocks() if pool is None else pool // 16,
    )
    protocol = PROTOCOLS.get(row.source, Protocol())
    run = run_users(cost, config, row.concurrency, row.prompt_tokens, row.output_tokens, protocol)
    point = serving_point(run, row.concurrency, whole_run=protocol.whole_run)
    tpot_s, ttft_s = point.tpot_s, point.ttft_s
    if row.tpot_stat == "median ITL":
        gaps = run.summary().itl
        tpot_s = math.nan if gaps is None or gaps.p50 is None else gaps.p50
    if row.ttft_stat == "p95":
        ttft_s = float(np.quantile(run.ttft_s, 0.95))
    return PredictedRow(point, tpot_s, ttft_s)
