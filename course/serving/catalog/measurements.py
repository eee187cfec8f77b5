"""What real servers and GPUs were measured to do, as `data/` holds it; nothing is computed here.

The public address of these names is `course.serving.catalog`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import date
from functools import cache
from typing import TYPE_CHECKING

from course.serving.catalog.tables import choose, floats, named, table, wholes

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pandas as pd


@dataclass(frozen=True)
class MeasuredPoint:
    """One load level of one real server: the load offered, and what was reported.

    `throughput_is` is `recorded`, or `derived` from latencies, which is not a measured throughput
    and makes a check by Little's law circular. `ttft_stat` and `tpot_stat` say which statistic the
    source gives; `unknown` may not enter a comparison of latencies. `gpu` and `model` are the
    catalogue's names where it has them; some cards and models were only measured.

    How a closed loop was run: lengths are drawn evenly between `shortest_share` times those stated
    and those stated (1: all are equal), and each user sends `requests_per_user`. `protocol_from` is
    `documentation`, `latencies` (that of two documented ways which these latencies show) or
    `assumed`.
    """

    source: str
    kind: str
    engine: str
    gpu: str
    n_gpus: int
    tensor_parallel: int | None
    model: str
    precision: str
    prompt_tokens: float | None
    output_tokens: float | None
    load: str
    concurrency: int | None
    shortest_share: float | None
    requests_per_user: int | None
    protocol_from: str | None
    offered_per_s: float | None
    output_tokens_per_s: float | None
    requests_per_s: float | None
    throughput_is: str
    ttft_s: float | None
    ttft_stat: str | None
    ttft_p99_s: float | None
    tpot_s: float | None
    tpot_stat: str | None
    tpot_p95_s: float | None
    tpot_p99_s: float | None
    itl_p99_s: float | None
    e2e_mean_s: float | None
    power_w: float | None
    kv_pool_tokens: int | None
    max_num_seqs: int | None
    measured_on: date | None
    note: str = ""


@dataclass(frozen=True)
class IterationTime:
    """The time of one engine step with equal sequences, whole (`step_s`) or its parts.

    A prefill step computes `prompt_tokens` for each of its `sequences`; a decode step reads
    `context_tokens` of cache for each. Parts that a source did not measure are None; what each
    source leaves out is in `source(row.source).note`.
    """

    source: str
    gpu: str
    tensor_parallel: int
    model: str
    phase: str
    sequences: int
    prompt_tokens: int
    context_tokens: int
    matrices_s: float | None
    attention_s: float | None
    all_reduce_s: float | None
    head_s: float | None
    cache_write_s: float | None
    step_s: float | None
    note: str = ""


@dataclass(frozen=True, eq=False)
class VllmLog:
    """What a real vLLM server did with 300 requests, one array entry a request, times in s.

    `num_kv_blocks` is None where it was not recorded.
    """

    name: str
    gpu: str
    model: str
    precision: str
    engine: str
    max_num_seqs: int
    max_num_batched_tokens: int
    num_kv_blocks: int | None
    block_size: int
    source: str
    note: str
    arrival_s: npt.NDArray[np.float64]
    prompt_tokens: npt.NDArray[np.int64]
    output_tokens: npt.NDArray[np.int64]
    queue_s: npt.NDArray[np.float64]
    ttft_s: npt.NDArray[np.float64]
    e2e_s: npt.NDArray[np.float64]

    @property
    def tpot_s(self) -> npt.NDArray[np.float64]:
        """(E2E − TTFT) / (output − 1) of each request, shape (300,); every output is above 1."""
        return (self.e2e_s - self.ttft_s) / (self.output_tokens - 1)


def measured_points(
    gpu: str | None = None,
    model: str | None = None,
    *,
    n_gpus: int | None = None,
    precision: str | None = None,
    prompt_tokens: float | None = None,
    output_tokens: float | None = None,
    kind: str | None = None,
    load: str | None = None,
    throughput_is: str | None = None,
    source: str | None = None,
) -> tuple[MeasuredPoint, ...]:
    """Return the measured points that have all the given values, a sweep's in order of its load.

    Raises UnknownNameError for a text that no point has; what no point has together gives ().

    >>> sweep = measured_points("H100-80GB-SXM", "Llama-3.3-70B", n_gpus=2, kind="sweep",
    ...                         prompt_tokens=5000, output_tokens=500)
    >>> [(point.concurrency, point.output_tokens_per_s) for point in sweep][-2:]
    [(150, 777.94), (200, 777.02)]
    """
    points = table(MeasuredPoint, "serving_points.csv")
    texts = {
        "gpu": gpu,
        "model": model,
        "precision": precision,
        "kind": kind,
        "load": load,
        "throughput_is": throughput_is,
        "source": source,
    }
    numbers = {"n_gpus": n_gpus, "prompt_tokens": prompt_tokens, "output_tokens": output_tokens}
    kept = set(points)
    for field, text in texts.items():
        if text is not None:
            kept &= set(choose(field, text, points))
    asked = {field: number for field, number in numbers.items() if number is not None}
    return tuple(
        point
        for point in points
        if point in kept and all(getattr(point, field) == asked[field] for field in asked)
    )


def measured_frame(points: Iterable[MeasuredPoint] | None = None) -> pd.DataFrame:
    """Return measured points (all of them by default) as a table, one row a point.

    The columns are the fields of `MeasuredPoint`; what is not known is NaN or None.

    >>> measured_frame(measured_points(model="Qwen3-8B")).shape
    (77, 33)
    """
    import pandas as pd

    chosen = table(MeasuredPoint, "serving_points.csv") if points is None else points
    columns = list(MeasuredPoint.__dataclass_fields__)
    return pd.DataFrame([asdict(point) for point in chosen], columns=columns)


def iteration_times(gpu: str | None = None, source: str | None = None) -> tuple[IterationTime, ...]:
    """Return measured step times, of one GPU or one source if named.

    Raises UnknownNameError for a name that no row has.

    >>> max(row.sequences for row in iteration_times("RTX-4090"))
    256
    """
    rows = table(IterationTime, "iteration_times.csv")
    if gpu is not None:
        rows = choose("gpu", gpu, rows)
    if source is not None:
        rows = choose("source", source, rows)
    return rows


@dataclass(frozen=True)
class _LogHead:
    name: str
    gpu: str
    model: str
    precision: str
    engine: str
    max_num_seqs: int
    max_num_batched_tokens: int
    num_kv_blocks: int | None
    block_size: int
    requests: int
    source: str
    note: str = ""


@dataclass(frozen=True)
class _LogLine:
    request: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    queue_s: float
    ttft_s: float
    e2e_s: float
    source: str


@cache
def vllm_log(name: str) -> VllmLog:
    """Return a real vLLM log, `rtx-4090` or `rtx-pro-6000`; UnknownNameError otherwise.

    >>> vllm_log("rtx-4090").num_kv_blocks
    2588
    """
    head = named("name", name, {head.name: head for head in table(_LogHead, "vllm_logs/index.csv")})
    lines = table(_LogLine, f"vllm_logs/{head.name}.csv")
    return VllmLog(
        name=head.name,
        gpu=head.gpu,
        model=head.model,
        precision=head.precision,
        engine=head.engine,
        max_num_seqs=head.max_num_seqs,
        max_num_batched_tokens=head.max_num_batched_tokens,
        num_kv_blocks=head.num_kv_blocks,
        block_size=head.block_size,
        source=head.source,
        note=head.note,
        arrival_s=floats(line.arrival_s for line in lines),
        prompt_tokens=wholes(line.prompt_tokens for line in lines),
        output_tokens=wholes(line.output_tokens for line in lines),
        queue_s=floats(line.queue_s for line in lines),
        ttft_s=floats(line.ttft_s for line in lines),
        e2e_s=floats(line.e2e_s for line in lines),
    )
