"""Notebook 05's audited server, whose batch limit went from 512 to 640, and what its owner read.

The exercise about the case is in `ch05_gate`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from course.serving.engine import EngineConfig, Patience, Retry, ServiceRun, Users, simulate_service
from course.serving.pricing import LinearStepCost
from course.serving.workload import Lognormal, closed_loop_work

COST: Final = LinearStepCost(fixed_s=0.016, per_prefill_token_s=2e-5, per_decode_seq_s=1.6e-4)
"""What a step costs: at some 500 sequences nearly proportional to their number."""
_FROM_S, _TO_S = 60.0, 160.0


@dataclass(frozen=True)
class Signs:
    """What a dashboard shows of a run: raw and real throughput, P95 TTFT, share timed out."""

    limit: int
    clients: int
    raw_tokens_per_s: float
    real_tokens_per_s: float
    p95_ttft_s: float
    timed_out: float

    def __str__(self) -> str:
        """One line, the throughputs to the nearest ten."""
        return (
            f"limit {self.limit}, {self.clients} clients: "
            f"{round(self.raw_tokens_per_s, -1):,.0f} tokens/s raw, "
            f"{round(self.real_tokens_per_s, -1):,.0f} answered in time, "
            f"P95 TTFT {1000 * self.p95_ttft_s:,.0f} ms, {self.timed_out:.0%} timed out"
        )


@lru_cache(maxsize=8)
def with_limit(limit: int, clients: int) -> ServiceRun:
    """Return 200 s of a closed loop of clients on a server with that `max_num_seqs`.

    Each client sends again as soon as it is answered; answers have about 200 tokens, patience is
    31.5 s, and who gave up sends once more. Raises ValueError for a limit or a number below 1.
    """
    lengths = Lognormal.of_mean(300, 0.6), Lognormal.of_mean(200, 0.12)
    return simulate_service(
        closed_loop_work(12_000, *lengths, seed=1),
        COST,
        EngineConfig(max_num_seqs=limit, max_num_batched_tokens=8192),
        patience=Patience(e2e_s=31.5),
        retry=Retry(attempts=2, delay_s=0.5),
        users=Users(clients, ramp_s=22.0),
        horizon_s=200.0,
    )


def signs(limit: int, clients: int) -> Signs:
    """Return what the dashboard shows of `with_limit`, from 60 s to 160 s.

    Raises ValueError as `with_limit` does.

    >>> signs(640, 525).p95_ttft_s < signs(512, 525).p95_ttft_s
    True
    """
    run = with_limit(limit, clients)
    table, seconds = run.attempts, _TO_S - _FROM_S
    sent = (table.sent_s >= _FROM_S) & (table.sent_s < _TO_S)
    ended = table.finished & (table.end_s >= _FROM_S) & (table.end_s < _TO_S)
    steps = (run.step_end_s >= _FROM_S) & (run.step_end_s < _TO_S)
    return Signs(
        limit,
        clients,
        raw_tokens_per_s=float(run.step_decode_seqs[steps].sum() / seconds),
        real_tokens_per_s=float(table.emitted_tokens[ended].sum() / seconds),
        p95_ttft_s=float(np.nanpercentile(table.ttft_s[sent], 95)),
        timed_out=float(1 - table.finished[sent].mean()),
    )
