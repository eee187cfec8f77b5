"""A plan so small that a whole run takes a second or two; its times mean nothing."""

from __future__ import annotations

from course.measure.plans import Plan
from course.measure.record import ModelShape

TINY = Plan(
    budget_s=300.0,
    pool_bytes=2**20,
    copy_bytes=(2**12, 2**14),
    matmul_sizes=(16, 32, 64),
    gemm_widths=((32, 32), (64, 128)),
    gemm_batches=(1, 4, 16, 64),
    heads=2,
    head_dim=8,
    decode_contexts=((1, 16), (1, 64), (4, 32)),
    prompts=(8, 16, 32),
    kernels=50,
    model=ModelShape(layers=2, hidden=32, heads=2, intermediate=48, vocabulary=64),
    model_prompts=((1, 8), (2, 16)),
    model_contexts=((1, 8), (4, 8)),
    model_steps=2,
    rounds=2,
)
