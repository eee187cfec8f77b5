"""Records made up for the tests: times follow a formula, so that what must come out is known."""

from __future__ import annotations

import math
from dataclasses import replace

from course.measure.record import SCHEMA, Check, Device, LeftOut, ModelShape, Point, Record

OVERHEAD_S = 3e-6
BANDWIDTH = 50e9
PEAK = {"fp32": 400e9, "bf16": 2e12}
SIZE = {"fp32": 4, "bf16": 2}

DEVICE = Device(
    kind="cpu", name="A processor", platform="Linux x86_64", processors=2, threads=2,
    memory_bytes=8 * 2**30, cache_bytes=32 * 2**20, instructions="AVX512", driver=None, cuda=None,
    torch="2.13.0+cpu", python="3.11.7",
)  # fmt: skip
CARD = replace(
    DEVICE, kind="cuda", name="A card", instructions="sm_90", driver="580.1", cuda="13.0",
    clocks_mhz={"sm_before": 345.0, "sm_after_matmul_bf16": 1980.0},
)  # fmt: skip
MODEL = ModelShape(layers=2, hidden=64, heads=4, intermediate=96, vocabulary=100)


def point(
    bench: str, precision: str, shape: dict[str, int], moved: int, flops: int, seconds: float,
    spread: float = 1.02,
) -> Point:  # fmt: skip
    return Point(
        bench, precision, shape, moved, flops, seconds, seconds / spread**0.5,
        seconds * spread**0.5, seconds / spread, 20, 3,
    )  # fmt: skip


def dense_point(
    precision: str, batch: int, wide: int, out: int, off: float = 1.0, spread: float = 1.02
) -> Point:
    moved = SIZE[precision] * (wide * out + batch * (wide + out))
    flops = 2 * batch * wide * out
    seconds = OVERHEAD_S + math.hypot(moved / BANDWIDTH, flops / PEAK[precision])
    shape = {"batch": batch, "width_in": wide, "width_out": out}
    return point("decode_gemm", precision, shape, moved, flops, off * seconds, spread)


def attention_point(precision: str, batch: int, context: int) -> Point:
    moved = 2 * batch * 8 * 64 * (context + 1) * SIZE[precision]
    shape = {"batch": batch, "context_tokens": context, "heads": 8, "head_dim": 64}
    flops = 4 * batch * 8 * 64 * context
    return point("decode_attention", precision, shape, moved, flops, 1e-5 + moved / 20e9)


def prefill_point(precision: str, prompt: int) -> Point:
    flops = 2 * 8 * 64 * prompt * (prompt + 1)
    shape = {"prompt_tokens": prompt, "heads": 8, "head_dim": 64}
    moved = 4 * 8 * 64 * prompt * SIZE[precision]
    return point("prefill_attention", precision, shape, moved, flops, 2e-5 + flops / 100e9)


def points(precision: str) -> tuple[Point, ...]:
    dense = [
        dense_point(precision, batch, wide, out)
        for wide, out in ((512, 512), (2048, 4096))
        for batch in (1, 4, 16, 64, 256)
    ]
    return (
        point("copy", precision, {"buffer_bytes": 2**24}, 2**25, 0, 2**25 / 40e9),
        point("launch_eager", precision, {"kernels": 100}, 8, 1, 2e-6),
        point("matmul", precision, {"size": 1024}, 3 * 2**20 * SIZE[precision], 2**31,
              2**31 / PEAK[precision] / 0.9),
        *dense,
        *(attention_point(precision, b, c) for b, c in ((1, 128), (1, 4096), (8, 1024))),
        *(prefill_point(precision, n) for n in (64, 256, 1024)),
        point("model_decode", precision, {"batch": 4, "context_tokens": 128}, 10**6, 10**7, 2e-4),
    )  # fmt: skip


RECORD = Record(
    schema=SCHEMA, started_at="2026-11-29T18:30:00+00:00", quick=True, seed=7, budget_s=45.0,
    spent_s=44.2, device=DEVICE, model=MODEL, points=points("fp32") + points("bf16"),
    checks=(Check("copy", "fp32", 0.0, 1e-5),),
    left_out=(LeftOut("launch_graph", "a CPU has no CUDA graphs to replay"),),
    warnings=("other programs used 60% of the processor",),
)  # fmt: skip
