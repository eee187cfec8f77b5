"""The engine on a reader's own trace: `simulate_trace`; reading and writing files lies elsewhere.

A `Trace` comes from `load_trace`, a cost from `RooflineStepCost`, from a fit or from the reader.
What comes back is the run with its summary, as numbers and as a table; `report` puts it in words.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from course.serving._arguments import whole
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.pricing import LinearStepCost, RooflineStepCost, StepCost
from course.serving.requests import SLO, Percentile, Status, Summary, meets
from course.serving.traces.nouns import Trace
from course.serving.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

MADE_UP_COST = LinearStepCost(
    fixed_s=0.010,
    per_prefill_token_s=3e-5,
    per_prefill_pair_s=1e-9,
    per_decode_seq_s=1e-4,
    per_kv_token_s=2e-8,
)
"""A step of a smallish model on a large card, in round numbers; no card's own."""

QUANTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


def simulate_trace(
    trace: Trace,
    cost: StepCost,
    config: EngineConfig | None = None,
    *,
    rate_per_s: float | None = None,
    limit: int | None = None,
    slo: SLO | None = None,
    cost_words: str = "",
    progress: bool = True,
) -> TraceRun:
    """Run a trace through the engine and return the run with all that can be said of it.

    `limit`: only the first so many requests. `rate_per_s`: then speed the arrivals up or slow them
    down to this mean rate; bursts stay bursts, lengths stay as they are. `cost_words`: where the
    cost comes from, for the report. `progress`: a bar where it takes longer than a second.

    Raises ValueError for a limit below 1, a rate that is not above 0, or a trace that has no rate
    to scale; and as `simulate`.

    >>> trace = Trace(np.array([0.0, 0.5]), np.array([100, 20]), np.array([3, 1]), "plain")
    >>> found = simulate_trace(trace, MADE_UP_COST, slo=SLO(ttft_s=0.2))
    >>> found.summary.successes, found.summary.attainment
    (2, 1.0)
    """
    work = Workload(trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
    if limit is not None:
        work = work.first(whole("limit", limit))
    if rate_per_s is not None:
        work = work.scaled(rate_per_s)
    run = simulate(work, cost, config, progress=progress)
    return TraceRun(trace, run, slo, cost_words, rate_per_s is not None)


@dataclass(frozen=True, eq=False)
class TraceRun:
    """A trace, its run through the engine, and what is to be said of both."""

    trace: Trace
    run: Run
    slo: SLO | None = None
    cost_words: str = ""
    rescaled: bool = False

    @cached_property
    def summary(self) -> Summary:
        """The run's metrics, from the first arrival to the last end."""
        return self.run.summary(self.slo)

    @cached_property
    def waiting_at_last_arrival(self) -> int:
        """How many accepted requests had not been scheduled when the last one arrived."""
        run = self.run
        begun = run.scheduled_s <= run.arrival_s[-1]
        return int((~begun & (run.status != Status.REJECTED)).sum()) - int(
            run.scheduled_s[-1] > run.arrival_s[-1]
        )

    @cached_property
    def rejected_for(self) -> dict[str, int]:
        """How many requests were rejected, by the limit that they exceed alone: KV, or budget."""
        run, config = self.run, self.run.config
        rejected = run.status == Status.REJECTED
        tokens = run.work.prompt_tokens + run.work.output_tokens - 1
        too_many = np.zeros(len(run), dtype=np.bool_)
        if config.num_kv_blocks is not None:
            too_many = -(-tokens // config.block_size) > config.num_kv_blocks
        return {
            "KV blocks": int((rejected & too_many).sum()),
            "token budget": int((rejected & ~too_many).sum()),
        }

    @property
    def kv_share(self) -> tuple[float, float] | None:
        """KV blocks held in the average and in the fullest step, as shares of all blocks.

        None where blocks are not limited, or no step was run.
        """
        held, blocks = self.run.step_kv_blocks, self.run.config.num_kv_blocks
        if held is None or blocks is None or held.size == 0:
            return None
        return float(held.mean()) / blocks, float(held.max()) / blocks

    def to_frame(self) -> pd.DataFrame:
        """Return one row a request, as `Run.to_frame`; with an SLO, also whether it was met."""
        table = self.run.to_frame()
        if self.slo is not None and self.slo.exists:
            met, undecided = meets(self.slo, self.run.ttft_s, self.run.tpot_s, self.run.e2e_s)
            finished = self.run.status == Status.FINISHED
            table["met_slo"] = met & finished & ~undecided
        return table

    def as_dict(self) -> dict[str, Any]:
        """Return the figures, without single requests and notes, as plain values for JSON.

        What is not known is None.
        """
        run, config = self.run, self.run.config
        # single gaps of one answer are far from independent, so that bounds would say nothing
        samples = {name: getattr(self.summary, name) for name in ("ttft", "tpot", "e2e")}
        prices = _prices(run.cost)
        figures: dict[str, Any] = {
            "trace": {
                "path": self.trace.path,
                "layout": self.trace.layout,
                "requests": len(run.work),
                "rate_per_s": _finite(run.work.rate_per_s),
                "rescaled": self.rescaled,
                "mean_prompt_tokens": _finite(run.work.mean_prompt_tokens),
                "mean_output_tokens": _finite(run.work.mean_output_tokens),
            },
            "engine": {
                "max_num_seqs": config.max_num_seqs,
                "max_num_batched_tokens": config.max_num_batched_tokens,
                "enable_chunked_prefill": config.enable_chunked_prefill,
                "num_kv_blocks": config.num_kv_blocks,
                "block_size": config.block_size,
                "order": getattr(config.order, "name", "custom"),
            },
            "cost": {"kind": type(run.cost).__name__, "words": self.cost_words, **prices},
            "slo": None if self.slo is None else asdict(self.slo),
            "figures": self.summary.as_dict(),
            "percentiles": {
                name: {label: _bounds(sample.percentile(q)) for label, q in QUANTILES.items()}
                for name, sample in samples.items()
            },
            "preemptions": int(run.preemptions.sum()),
            "preempted_requests": int((run.preemptions > 0).sum()),
            "rejected_for": self.rejected_for,
            "kv_share_mean": self.kv_share[0] if self.kv_share else None,
            "kv_share_peak": self.kv_share[1] if self.kv_share else None,
            "steps": int(run.step_end_s.size),
        }
        return figures


def _prices(cost: StepCost) -> dict[str, Any]:
    """Return the numbers that a cost consists of; none of a cost of the caller's own."""
    if isinstance(cost, LinearStepCost):
        return asdict(cost)
    if isinstance(cost, RooflineStepCost):
        return {"model": cost.model.name, "gpu": cost.gpu.name, **asdict(cost.constants)}
    return {}


def _bounds(found: Percentile) -> dict[str, float | int | None]:
    return {
        "value_s": _finite(found.value),
        "low_s": _finite(found.low),
        "high_s": _finite(found.high),
        "samples": found.samples,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
