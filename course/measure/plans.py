"""Which sizes a run measures, and how its time is shared out; nothing is measured here."""

from __future__ import annotations

from dataclasses import dataclass

from course.measure.record import ModelShape
from course.measure.timing import MOST_ROUNDS

Pairs = tuple[tuple[int, int], ...]

QUICK_BUDGET_S = 45.0
"""A quick run's own seconds; with loading torch it stays within a minute."""

FULL_BUDGET_S = 240.0


@dataclass(frozen=True)
class Plan:
    """The sizes of one run. Pairs are (width in, width out), (batch, context) or (batch, prompt).

    `budget_s`: seconds that the run may take. `pool_bytes`: at least so much random material, if
    the memory has it. `rounds`: samples of a size at most.
    """

    budget_s: float
    pool_bytes: int
    copy_bytes: tuple[int, ...]
    matmul_sizes: tuple[int, ...]
    gemm_widths: Pairs
    gemm_batches: tuple[int, ...]
    heads: int
    head_dim: int
    decode_contexts: Pairs
    prompts: tuple[int, ...]
    kernels: int
    model: ModelShape
    model_prompts: Pairs
    model_contexts: Pairs
    model_steps: int
    precisions: tuple[str, ...] = ("fp32", "bf16")
    rounds: int = MOST_ROUNDS


_MIB = 2**20

QUICK_CPU = Plan(
    budget_s=QUICK_BUDGET_S,
    pool_bytes=256 * _MIB,
    copy_bytes=(_MIB, 8 * _MIB, 64 * _MIB),
    matmul_sizes=(128, 256, 512, 1024, 2048),
    gemm_widths=((1024, 1024), (2048, 4096)),
    gemm_batches=(1, 2, 4, 8, 16, 32, 64, 128, 256),
    heads=8,
    head_dim=64,
    decode_contexts=((1, 512), (1, 2048), (1, 8192), (4, 512), (4, 2048), (16, 512), (16, 2048)),
    prompts=(64, 128, 256, 512, 1024),
    kernels=1000,
    model=ModelShape(layers=4, hidden=1024, heads=16, intermediate=2816, vocabulary=8192),
    model_prompts=((1, 32), (1, 128), (1, 512), (4, 128)),
    model_contexts=((1, 128), (2, 128), (4, 128), (8, 128), (16, 128), (32, 128), (8, 512)),
    model_steps=4,
)
"""Sizes for two CPU cores and a minute: every curve shows its bend, no call lasts a second."""

FULL_CPU = Plan(
    budget_s=FULL_BUDGET_S,
    pool_bytes=512 * _MIB,
    copy_bytes=(_MIB // 4, _MIB, 4 * _MIB, 16 * _MIB, 64 * _MIB, 128 * _MIB),
    matmul_sizes=(64, 128, 256, 512, 1024, 2048, 3072),
    gemm_widths=((1024, 1024), (2048, 4096), (4096, 4096)),
    gemm_batches=(1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512),
    heads=8,
    head_dim=64,
    decode_contexts=(
        (1, 128), (1, 512), (1, 2048), (1, 8192), (1, 32768), (4, 512), (4, 2048), (4, 8192),
        (16, 128), (16, 512), (16, 2048), (64, 128), (64, 512),
    ),
    prompts=(32, 64, 128, 256, 512, 1024, 2048),
    kernels=1000,
    model=QUICK_CPU.model,
    model_prompts=((1, 16), (1, 32), (1, 64), (1, 128), (1, 256), (1, 512), (4, 128), (8, 128)),
    model_contexts=(
        (1, 128), (2, 128), (4, 128), (8, 128), (16, 128), (32, 128), (64, 128),
        (1, 1024), (8, 1024), (32, 512),
    ),
    model_steps=8,
)  # fmt: skip
"""More sizes on the same curves, for a fit with smaller errors."""

CARD = Plan(
    budget_s=180.0,
    pool_bytes=8 * 2**30,
    copy_bytes=(_MIB, 16 * _MIB, 128 * _MIB, 1024 * _MIB),
    matmul_sizes=(256, 512, 1024, 2048, 4096, 8192),
    gemm_widths=((2048, 2048), (4096, 4096), (8192, 8192)),
    gemm_batches=(1, 2, 4, 8, 16, 32, 64, 128, 192, 256, 384, 512, 768, 1024, 2048),
    heads=32,
    head_dim=128,
    decode_contexts=(
        (1, 1024), (1, 4096), (1, 16384), (8, 1024), (8, 4096), (32, 1024), (32, 4096), (128, 1024),
    ),
    prompts=(128, 256, 512, 1024, 2048, 4096, 8192),
    kernels=1000,
    model=ModelShape(layers=16, hidden=2048, heads=16, intermediate=5632, vocabulary=32_000),
    model_prompts=((1, 128), (1, 512), (1, 2048), (4, 512), (8, 512)),
    model_contexts=(
        (1, 512), (2, 512), (4, 512), (8, 512), (16, 512), (32, 512), (64, 512), (128, 512),
        (1, 4096), (8, 4096), (32, 2048),
    ),
    model_steps=8,
)  # fmt: skip
"""Sizes of a real server's layers, for a card with 16 GB or more; a smaller one leaves some out."""

QUICK_CARD = Plan(
    budget_s=QUICK_BUDGET_S,
    pool_bytes=2 * 2**30,
    copy_bytes=(_MIB, 16 * _MIB, 256 * _MIB),
    matmul_sizes=(256, 512, 1024, 2048, 4096),
    gemm_widths=((2048, 2048), (4096, 4096)),
    gemm_batches=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
    heads=32,
    head_dim=128,
    decode_contexts=((1, 1024), (1, 4096), (8, 1024), (8, 4096), (32, 1024)),
    prompts=(128, 512, 1024, 2048, 4096),
    kernels=1000,
    model=ModelShape(layers=8, hidden=2048, heads=16, intermediate=5632, vocabulary=32_000),
    model_prompts=((1, 128), (1, 512), (4, 512)),
    model_contexts=((1, 512), (4, 512), (8, 512), (16, 512), (32, 512), (64, 512), (8, 2048)),
    model_steps=4,
)
"""The same curves with fewer sizes."""


def plan_for(kind: str, quick: bool) -> Plan:
    """Return the sizes for a `cpu` or `cuda` device.

    >>> plan_for("cpu", quick=True).budget_s
    45.0
    """
    plans = {
        ("cpu", True): QUICK_CPU, ("cpu", False): FULL_CPU,
        ("cuda", True): QUICK_CARD, ("cuda", False): CARD,
    }  # fmt: skip
    if (kind, quick) not in plans:
        raise ValueError(f"kind={kind!r} is not known; give cpu or cuda")
    return plans[kind, quick]
