"""A million requests as arrays, beside the same definitions request by request in the same run."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from course.serving.requests.metrics import SLO, RequestTable, summarize


def drawn(requests: int) -> RequestTable:
    random = np.random.default_rng(1)
    sent = np.sort(random.random(requests)) * requests / 10
    first = sent + random.exponential(0.3, requests)
    tokens = random.integers(1, 300, requests)
    status = (random.random(requests) < 0.02).astype(np.int8)
    return RequestTable(sent, first, first + (tokens - 1) * 0.05, tokens, status=status)


def plainly(table: RequestTable) -> float:
    """TTFT, TPOT, E2E and their P99 in a loop, as a first draft would have them."""
    ttft, tpot, e2e, met = [], [], [], 0
    rows = zip(
        table.sent_s.tolist(), table.first_token_s.tolist(), table.last_token_s.tolist(),
        table.output_tokens.tolist(), table.status.tolist(), strict=True,
    )  # fmt: skip
    for sent, first, last, tokens, status in rows:
        if status == 0:
            ttft.append(first - sent)
            e2e.append(last - sent)
            pace = (last - first) / (tokens - 1) if tokens > 1 else None
            if pace is not None:
                tpot.append(pace)
            met += first - sent <= 0.4 and (pace is None or pace <= 0.055)
    for values in (ttft, tpot, e2e):
        values.sort()
    return met / table.size


def test_a_million_requests(benchmark: Any) -> None:
    """The ratio per request is the figure; a table of 50,000 stands for the loop."""
    small, large = drawn(50_000), drawn(1_000_000)

    def whole() -> dict[str, Any]:
        return summarize(large, SLO(ttft_s=0.4, tpot_s=0.055)).as_dict()

    whole()
    begin = time.perf_counter()
    share = plainly(small)
    loop_s = (time.perf_counter() - begin) / small.size
    figures = benchmark.pedantic(whole, rounds=3)
    array_s = benchmark.stats.stats.median / large.size
    print(f"\n  metrics: {1e9 * array_s:.0f} ns a request, {loop_s / array_s:.1f} × the plain loop")
    assert abs(figures["attainment"] - share) < 0.02


def test_twenty_points_of_a_curve(benchmark: Any) -> None:
    """What a redraw of the curve pays for its summaries: twenty of 2,000 requests each."""
    tables = [drawn(2000) for _ in range(20)]

    def curve() -> list[float | None]:
        runs = [summarize(table, SLO(ttft_s=0.4, tpot_s=0.055)) for table in tables]
        return [run.ttft.p99 for run in runs if run.attainment is not None and run.goodput_per_s]

    assert len(benchmark(curve)) == 20
    print(f"\n  twenty summaries: {1000 * benchmark.stats.stats.median:.1f} ms")
