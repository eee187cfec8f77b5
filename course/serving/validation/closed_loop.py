"""What a closed loop of users would measure on a server, through the simulator; nothing is fitted.

`predict_closed_loop` answers for a model and cards; `predict_row` for a measured row of `data/`,
with what is known of how it was run. Every step is priced by `RooflineStepCost`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from course.serving._arguments import FloatArray, IntArray, at_least, whole
from course.serving.catalog import MeasuredPoint, UnknownNameError
from course.serving.engine import EngineConfig, Run, modes, simulate_closed
from course.serving.pricing import (
    DEFAULTS,
    Constants,
    LinearStepCost,
    Load,
    RooflineStepCost,
    StepCost,
)
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
        model,
        gpu,
        n_gpus,
        precision,
        kv_precision,
        DEFAULTS if constants is None else constants,
        Load(
            whole("concurrency", concurrency),
            at_least("prompt_tokens", prompt_tokens, 1.0)
            + at_least("output_tokens", output_tokens, 1.0) / 2,
        ),
    )
    config = EngineConfig(
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        num_kv_blocks=cost.kv_blocks() if num_kv_blocks is None else num_kv_blocks,
    )
    protocol = Protocol(requests_per_user, FEWEST_REQUESTS, length_spread, whole_run)
    run = run_users(cost, config, concurrency, prompt_tokens, output_tokens, protocol)
    return serving_point(run, concurrency, whole_run=whole_run)


def is_held_against_points(gpu: str, n_gpus: int, model: str, precision: str) -> bool:
    """Return whether points of this kind were measured; ValueError as `predict_closed_loop`.

    >>> is_held_against_points("H100-80GB-SXM", 1, "Llama-3.1-8B", "bf16")
    True
    """
    cost = RooflineStepCost(model, gpu, n_gpus, precision, load=Load(1, 1000))
    return cost.is_covered


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
@dataclass(frozen=True)
class Server:
    """What a serving software does in its own way: habits that no measured row states.

    `front_end_s`: HTTP, tokenizer and first reply, in TTFT and not in a step: the median of what
    rows with at most 16 users show beyond their steps (vLLM: silybench; TensorRT-LLM: gpt-oss;
    SGLang's cannot be told and is taken as vLLM's). `fp8_cache`: whether fp8 checkpoints come
    with a cache in fp8. `static_fp8`: model families whose fp8 checkpoints it runs with static
    scales. `batching`: its way. `memory_fraction`: of a card, weights and cache together.
    """

    front_end_s: float
    fp8_cache: bool = False
    static_fp8: tuple[str, ...] = ()
    batching: modes.Batching = field(default_factory=modes.continuous)
    memory_fraction: float = 0.9


SERVERS = {
    "vLLM": Server(0.0125),
    "SGLang": Server(0.0125, batching=modes.sglang(), memory_fraction=0.85),
    "TensorRT-LLM": Server(0.037, fp8_cache=True, static_fp8=("Llama", "Mistral")),
    "NIM": Server(0.005, fp8_cache=True),
}
"""By the first word of a row's engine. The NIM measured here stands on a TensorRT-LLM of 2024,
whose fp8 was no faster than the dynamic one of today."""

LONG_ANSWER_TOKENS, LONG_ANSWER_REQUESTS = 4096, 4
"""Rounds beyond the fourth of such answers change nothing and take most of the time."""


def server_of(row: MeasuredPoint) -> Server:
    """Return the habits of a row's serving software; UnknownNameError for another one."""
    name = row.engine.split(" ")[0].rstrip(",")
    if name not in SERVERS:
        raise UnknownNameError(f"engine={name!r} is not known; known: {', '.join(SERVERS)}")
    return SERVERS[name]


def row_precision(row: MeasuredPoint) -> str:
    """Return the precision that a row's weights are priced in.

    Where the source says none, the model's own, bf16: those rows are Qwen3-32B on SGLang and
    Llama-3.1-8B on TensorRT-LLM, whose times for a token are those of 16 bits. gpt-oss is shipped
    in mxfp4 and nothing else; other 4 bits of these sources are nvfp4.

    >>> from course.serving.catalog import measured_points
    >>> {row_precision(row) for row in measured_points(model="gpt-oss-120b", precision="fp8")}
    {'mxfp4'}
    """
    if row.model.startswith("gpt-oss"):
        return "mxfp4"
    if row.precision == "fp8" and row.model.startswith(server_of(row).static_fp8 or ("-",)):
        return "fp8-static"
    return {"unknown": "bf16", "fp4": "nvfp4"}.get(row.precision, row.precision)


def row_kv_precision(row: MeasuredPoint) -> str:
    """Return the precision of a row's cache, by its software's habit; no source states it.

    >>> from course.serving.catalog import measured_points
    >>> row_kv_precision(measured_points(source="nim-1.5")[0])
    'fp8'
    """
    return "fp8" if server_of(row).fp8_cache and row_precision(row) != "bf16" else "bf16"


def row_replicas(row: MeasuredPoint) -> int:
    """Return how many servers a row's cards are: cards over those that share one model."""
    return row.n_gpus // (row.tensor_parallel or row.n_gpus)


def row_cost(row: MeasuredPoint, constants: Constants = DEFAULTS) -> RooflineStepCost:
    """Return the price of a step on one of a measured row's servers, at its load.

    Raises ValueError for a row that is no closed loop or lacks its lengths, and as
    `RooflineStepCost`.
    """
    if row.concurrency is None or row.prompt_tokens is None or row.output_tokens is None:
        raise ValueError(f"row={row!r} lacks users or lengths; give a closed loop's row")
    servers = row_replicas(row)
    return RooflineStepCost(
        row.model,
        row.gpu,
        row.n_gpus // servers,
        row_precision(row),
        row_kv_precision(row),
        constants,
        Load(max(row.concurrency / servers, 1.0), row.prompt_tokens + row.output_tokens / 2),
    )


@dataclass(frozen=True, eq=False)
class PredictedRow:
    """A measured closed-loop row as the simulator has it: the point, and the statistics measured.

    `tpot_s`, `ttft_s`: the statistic that the source gives (median gap between tokens, P95), and
    the mean where it gives means or does not say.
    """

    point: ServingPoint
    tpot_s: float
    ttft_s: float


@dataclass(frozen=True, eq=False)
class RowSchedule:
    """Which request is in which step of a measured row's closed loop, whatever a step costs.

    Users who begin together and never pause send at the ends of steps alone, so that a step's
    members do not depend on seconds: one simulation serves any constants. `features`: the four
    counts of each step, shape (4, steps). `sent`, `first`, `last`: the step at whose end a request
    was sent (-1: at the start), had its first token, and its last, shape (requests,).
    """

    row: MeasuredPoint
    features: FloatArray
    sent: IntArray
    first: IntArray
    last: IntArray
    output_tokens: FloatArray

    def predict(self, constants: Constants = DEFAULTS) -> PredictedRow:
        """Return what the row's client would have reported, with these constants."""
        row, users = self.row, self.row.concurrency or 0
        front_end_s = server_of(row).front_end_s
        step_s = _step_seconds(row_cost(row, constants), self.features)
        end_s = np.concatenate(([0.0], np.cumsum(step_s)))
        sent_s = end_s[self.sent + 1]
        ttft_s = end_s[self.first + 1] - sent_s + front_end_s
        e2e_s = end_s[self.last + 1] - sent_s + front_end_s
        several = self.output_tokens > 1
        gaps = self.output_tokens[several] - 1
        tpot_s = float(((e2e_s - ttft_s)[several] / gaps).mean()) if gaps.size else math.nan
        mean_tokens = float(self.output_tokens.mean())
        if row.source in WHOLE_RUN:
            requests_per_s = len(self.sent) / (float(end_s[-1]) + front_end_s) * row_replicas(row)
            tokens_per_s = requests_per_s * mean_tokens
        elif row.throughput_is == "derived":  # as the source's figure was: from nominal lengths
            nominal = row.output_tokens or 1.0
            requests_per_s = users / (float(ttft_s.mean()) + (nominal - 1) * tpot_s)
            tokens_per_s = requests_per_s * nominal
        else:
            requests_per_s = users / float(e2e_s.mean())
            tokens_per_s = requests_per_s * mean_tokens
        point = ServingPoint(tokens_per_s, requests_per_s, float(ttft_s.mean()), tpot_s)
        return PredictedRow(
            point,
            self._median_gap_s(step_s) if row.tpot_stat == "median ITL" else tpot_s,
            float(np.quantile(ttft_s, 0.95)) if row.ttft_stat == "p95" else point.ttft_s,
        )

    def _median_gap_s(self, step_s: FloatArray) -> float:
        """Return the median gap between tokens: each decoding sequence of a step has one."""
        order = np.argsort(step_s)
        gaps = np.cumsum(self.features[2][order])
        return float(step_s[order][np.searchsorted(gaps, gaps[-1] / 2)])


def schedule_row(row: MeasuredPoint) -> RowSchedule:
    """Return the schedule of a measured closed loop, with the server's limits where they are known.

    Raises ValueError as `row_cost`, and where a request is larger than the cache.
    """
    cost, server = row_cost(row), server_of(row)
    users = (row.concurrency or 0) // row_replicas(row)
    rounds = row.requests_per_user or REQUESTS_PER_USER
    if (row.output_tokens or 0) >= LONG_ANSWER_TOKENS:
        rounds = min(rounds, LONG_ANSWER_REQUESTS)
    requests = max(users * rounds, WHOLE_RUN.get(row.source, FEWEST_REQUESTS))
    share = 1.0 if row.shortest_share is None else row.shortest_share
    work = Workload(
        np.zeros(requests),
        _drawn(row.prompt_tokens or 1.0, share, requests, 0),
        _drawn(row.output_tokens or 1.0, share, requests, 1),
    )
    pool = row.kv_pool_tokens
    config = EngineConfig(
        max_num_seqs=row.max_num_seqs or MAX_NUM_SEQS,
        max_num_batched_tokens=MAX_NUM_BATCHED_TOKENS,
        num_kv_blocks=cost.kv_blocks(memory_fraction=server.memory_fraction)
        if pool is None
        else pool // 16,
        batching=server.batching,
    )
    _check_room(work, config)
    # a step of one second and one more for each pair (or cached token) tells how many there were
    pairs, cached = (
        simulate_closed(max(users, 1), 0.0, work, count, config, progress=False)
        for count in (LinearStepCost(1.0, 0, 1.0), LinearStepCost(1.0, 0, 0, 0, 1.0))
    )
    end_s, sent_s = cached.step_end_s, cached.arrival_s
    features = np.stack(
        [
            cached.step_prefill_tokens,
            np.rint(np.diff(pairs.step_end_s, prepend=0.0)) - 1,
            cached.step_decode_seqs,
            np.rint(np.diff(end_s, prepend=0.0)) - 1,
        ]
    ).astype(np.float64)
    return RowSchedule(
        row,
        features,
        _step_at(end_s, sent_s),
        _step_at(end_s, sent_s + cached.ttft_s),
        _step_at(end_s, sent_s + cached.e2e_s),
        cached.work.output_tokens[: len(sent_s)].astype(np.float64),
    )


def _step_at(end_s: FloatArray, times_s: FloatArray) -> IntArray:
    """Return the step that ended at each time; -1 for the start."""
    found = np.searchsorted(end_s, times_s - 0.25)  # steps last a second or more
    return np.where(times_s < 0.5, -1, found).astype(np.int64)


def _step_seconds(cost: RooflineStepCost, features: FloatArray) -> FloatArray:
    """Return the seconds of many steps at once, as `step_seconds` has them one by one."""
    price = cost.kernel_form().coefficients
    compute_s = price[6] * features[0] + price[7] * features[2]
    seconds = (
        price[0]
        + price[1] * features[0]
        + price[2] * features[1]
        + price[3] * features[2]
        + price[4] * features[3]
    )
    return np.asarray(seconds + np.sqrt(price[5] * price[5] + compute_s * compute_s))


def _drawn(longest: float, share: float, requests: int, seed: int) -> IntArray:
    """Return whole lengths drawn evenly from share · longest to longest."""
    least, most = max(int(longest * share), 1), max(round(longest), 1)
    if least >= most:
        return np.full(requests, most, dtype=np.int64)
    return np.random.default_rng(seed).integers(least, most + 1, requests)


WHOLE_RUN = {"silybench": 50}
"""Sources whose throughput is tokens over a run's duration, and the fewest requests of a run."""


def predict_row(row: MeasuredPoint, constants: Constants = DEFAULTS) -> PredictedRow:
    """Predict a measured closed-loop row; ValueError as `schedule_row`."""
    return schedule_row(row).predict(constants)
