"""Two engines side by side, read as one run: prefill and decode apart, or long prompts apart.

There is no way back from one engine to the other, so they are run one after the other, and that is
exact. How each engine works is not decided here.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, IntArray, TinyArray, at_least, whole
from course.serving.engine.config import EngineConfig
from course.serving.engine.inputs import check_kinds
from course.serving.engine.run import Run
from course.serving.engine.service import run_setting
from course.serving.engine.service_run import ServiceRun
from course.serving.engine.service_setup import checked_setting
from course.serving.engine.simulation import simulate
from course.serving.pricing import StepCost
from course.serving.requests import SLO, BoolArray, RequestTable, Status, Summary, Window, metrics
from course.serving.workload import Workload

Pool = tuple[StepCost, EngineConfig]
"""One engine: what its steps cost, and its dials."""


class JointRun:
    """What two engines did for one workload; one entry an offered request in each column.

    `arrival_s`, `status`, `first_token_s`, `finish_s` (NaN where it did not come so far), `end_s`
    (when it was over, refused ones included; NaN for unfinished ones), `emitted_tokens`. `work`:
    what was run.
    """

    def __init__(
        self,
        work: Workload,
        status: TinyArray,
        first_token_s: FloatArray,
        end_s: FloatArray,
        emitted_tokens: IntArray,
        end_of_run_s: float,
    ) -> None:
        self.work = work
        self.status = status
        self.arrival_s: FloatArray = work.arrival_s[: status.size]
        self.first_token_s = first_token_s
        self.finish_s: FloatArray = np.where(status == Status.FINISHED, end_s, math.nan)
        self.end_s = end_s
        self.emitted_tokens = emitted_tokens
        self.end_of_run_s = end_of_run_s

    def __len__(self) -> int:
        return int(self.status.size)

    @cached_property
    def ttft_s(self) -> FloatArray:
        """Time to first token of each request; NaN where there was none."""
        return metrics.ttft_s(self.arrival_s, self.first_token_s)

    @cached_property
    def tpot_s(self) -> FloatArray:
        """Time per output token of each finished request with two or more; NaN otherwise."""
        return metrics.tpot_s(self.first_token_s, self.finish_s, self.emitted_tokens)

    @cached_property
    def e2e_s(self) -> FloatArray:
        """End-to-end latency of each finished request; NaN otherwise."""
        return metrics.e2e_s(self.arrival_s, self.finish_s)

    @cached_property
    def requests(self) -> RequestTable:
        """The requests as `course.serving.requests` takes them."""
        return RequestTable(
            sent_s=self.arrival_s,
            first_token_s=self.first_token_s,
            last_token_s=self.finish_s,
            output_tokens=self.emitted_tokens,
            status=self.status,
            prompt_tokens=self.work.prompt_tokens[: len(self)],
            end_s=self.end_s,
        )

    def window(self) -> Window:
        """Return the window from the first arrival to the end of the last step of either engine."""
        if len(self) == 0:
            return Window("first send to last end", 0.0, 0.0)
        end_s = max(self.end_of_run_s, float(self.arrival_s[-1]))
        return Window("first send to last end", float(self.arrival_s[0]), end_s)

    def summary(self, slo: SLO | None = None, *, window: Window | None = None) -> Summary:
        """Return the metrics of both engines together."""
        return Summary(self.requests, window or self.window(), slo, None)


class PoolsRun(JointRun):
    """The result of `simulate_pools`: a `JointRun`, and what each pool did.

    `transferred_s`: when the prompt's KV had arrived in the decode pool; NaN for requests that did
    not go there. `prefill`: the first pool's `Run`; `decode`: the second's `ServiceRun`, of the
    requests `decode_request`, in the order in which they came there.
    """

    def __init__(
        self,
        work: Workload,
        prefill: Run,
        decode: ServiceRun,
        transferred_s: FloatArray,
        decode_request: IntArray,
    ) -> None:
        went = decode_request[: len(decode)]
        kept_out = decode_request[len(decode) :]  # by the horizon
        status = prefill.status.copy()
        status[went] = decode.status
        status[kept_out] = Status.UNFINISHED
        end_s = np.where(prefill.status == Status.REJECTED, prefill.arrival_s, prefill.finish_s)
        end_s[went] = decode.end_s
        end_s[kept_out] = math.nan
        emitted = prefill.emitted_tokens.astype(np.int64)
        emitted[went] = decode.attempts.emitted_tokens
        ends = max(prefill.end_s, decode.end_of_run_s)
        super().__init__(work, status, prefill.first_token_s, end_s, emitted, ends)
        self.prefill = prefill
        self.decode = decode
        self.transferred_s = transferred_s
        self.decode_request = decode_request


class LengthRun(JointRun):
    """The result of `simulate_by_length`: a `JointRun`, and what each engine did.

    `is_long`: true for the requests of the second engine. `short`, `long`: the engines' own runs,
    each of its requests in order of arrival.
    """

    def __init__(self, work: Workload, short: Run, long: Run, is_long: BoolArray) -> None:
        offered = len(short) + len(long)
        is_long = is_long[:offered]

        def merged(of_short: npt.NDArray[Any], of_long: npt.NDArray[Any]) -> npt.NDArray[Any]:
            column = np.empty(offered, dtype=of_short.dtype)
            column[~is_long] = of_short
            column[is_long] = of_long
            return column

        status = merged(short.status, long.status)
        over_s = merged(short.finish_s, long.finish_s)
        refused = status == Status.REJECTED
        over_s[refused] = work.arrival_s[:offered][refused]
        first_s = merged(short.first_token_s, long.first_token_s)
        emitted = merged(short.emitted_tokens, long.emitted_tokens).astype(np.int64)
        super().__init__(work, status, first_s, over_s, emitted, max(short.end_s, long.end_s))
        self.short = short
        self.long = long
        self.is_long = is_long


def simulate_pools(
    work: Workload,
    prefill: Pool,
    decode: Pool,
    *,
    kv_bytes_per_token: float,
    link_bytes_per_s: float,
    transfer_latency_s: float = 0.0,
    horizon_s: float | None = None,
    compiled: bool = True,
) -> PoolsRun:
    """Run prompts in one engine and the rest of each answer in another.

    The first engine makes the first token of every request. Then the prompt's KV travels
    transfer_latency_s + prompt · kv_bytes_per_token / link_bytes_per_s seconds (transfers do not
    wait for each other, so the link is taken to be wide enough), and the request joins the second
    engine's queue with its prompt computed: its first step there is a decode. If the second
    engine preempts it, it is recomputed there. Answers of one token never travel.

    Raises ValueError for a pool that is no (cost, config), for static or windowed batching in the
    second, and for bytes or times that are negative or a link without speed.

    >>> from course.serving.pricing import LinearStepCost
    >>> pool = (LinearStepCost(fixed_s=1.0), EngineConfig())
    >>> run = simulate_pools(Workload([0.0], [8], [3]), pool, pool, kv_bytes_per_token=1.0,
    ...                      link_bytes_per_s=16.0)
    >>> run.first_token_s.tolist(), run.transferred_s.tolist(), run.finish_s.tolist()
    ([1.0], [1.5], [3.5])
    """
    (first_cost, first_config), (then_cost, then_config) = (
        _checked_pool("prefill", prefill, work),
        _checked_pool("decode", decode, work),
    )
    kv_bytes = at_least("kv_bytes_per_token", kv_bytes_per_token)
    speed = at_least("link_bytes_per_s", link_bytes_per_s, above=True)
    latency_s = at_least("transfer_latency_s", transfer_latency_s)
    one_token = np.ones(len(work), dtype=np.int64)
    guess = work.predicted_output_tokens
    guess = work.output_tokens if guess is None else guess
    first = simulate(
        replace(work, output_tokens=one_token, predicted_output_tokens=guess),
        first_cost,
        first_config,
        horizon_s=horizon_s,
        compiled=compiled,
    )
    offered = len(first)
    goes_on = np.isfinite(first.finish_s) & (work.output_tokens[:offered] > 1)
    travel_s = latency_s + work.prompt_tokens[:offered] * kv_bytes / speed
    transferred_s = np.where(goes_on, first.finish_s + travel_s, math.nan)
    # NaN sorts to the end; the sort is stable, so equal times go by request
    rows = np.argsort(transferred_s, kind="stable")[: int(goes_on.sum())]
    horizon = math.inf if horizon_s is None else at_least("horizon_s", horizon_s)
    if then_config.enable_prefix_caching:
        raise ValueError(
            "decode has enable_prefix_caching=True, but its requests bring their prompts' KV with "
            "them; switch it off there, and on in the prefill pool"
        )
    setting = checked_setting(then_config, None, None, None, None, None, 0, horizon)
    second = run_setting(
        replace(work, predicted_output_tokens=guess).sent_at(rows, transferred_s[rows]),
        then_cost,
        replace(setting, handed=True),
        compiled,
    )
    return PoolsRun(work, first, second, transferred_s, rows)


def simulate_by_length(
    work: Workload,
    over_tokens: int,
    short: Pool,
    long: Pool,
    *,
    horizon_s: float | None = None,
    compiled: bool = True,
) -> LengthRun:
    """Run prompts of more than `over_tokens` in an engine of their own; read both as one run.

    Raises ValueError for a limit that is negative, and for an engine that is no (cost, config).

    >>> from course.serving.pricing import LinearStepCost
    >>> engine = (LinearStepCost(per_prefill_token_s=0.01, per_decode_seq_s=0.01), EngineConfig())
    >>> work = Workload([0.0, 0.0], prompt_tokens=[1000, 10], output_tokens=[1, 1])
    >>> simulate_by_length(work, 100, engine, engine).ttft_s.tolist()
    [10.0, 0.1]
    """
    limit = whole("over_tokens", over_tokens, low=0)
    engines = (_checked_pool("short", short, work), _checked_pool("long", long, work))
    is_long: BoolArray = np.asarray(work.prompt_tokens > limit)
    runs = []
    for (cost, config), chosen in zip(engines, (~is_long, is_long), strict=True):
        part = work.sent_at(np.flatnonzero(chosen), work.arrival_s[chosen])
        runs.append(simulate(part, cost, config, horizon_s=horizon_s, compiled=compiled))
    return LengthRun(work, runs[0], runs[1], is_long)


def _checked_pool(name: str, pool: object, work: Workload) -> Pool:
    if not isinstance(pool, tuple) or len(pool) != 2:
        raise ValueError(f"{name}={pool!r} is no engine; give (cost, config)")
    cost, config = pool
    check_kinds(work, cost, config)
    return cost, config
