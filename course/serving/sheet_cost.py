"""A first estimate of a step's linear cost from data sheets alone; nothing is fitted here.

Good for shapes and orders of magnitude. Against measured servers it is usually 10–20 % off and has
been a factor 2 off.
"""

from __future__ import annotations

from course.serving.catalog import Gpu, Model
from course.serving.cost import LinearStepCost

# Shares of the data sheet that kernels reach, and launch overhead: the closed formula that fitted
# 50 published setups (A100 to B200, 7 to 70 B parameters) with 8 % median error on throughput.
BANDWIDTH_SHARE = 0.84
FLOP_SHARE = 0.59
LAUNCH_S_PER_LAYER = 64e-6


def sheet_cost(model: Model, gpu: Gpu) -> LinearStepCost:
    """Return the linear cost of a step of `model` in bf16 on one `gpu`, from their data sheets.

    The fixed part reads the weights once and launches the layers; a token pays its arithmetic; a
    decoding sequence also reads its KV cache. Raises ValueError where the sheet lacks a figure.

    >>> from course.serving import catalog
    >>> cost = sheet_cost(catalog.model("Qwen3-8B"), catalog.gpu("H100-80GB-SXM"))
    >>> round(1e3 * cost.fixed_s, 1), round(1e9 * cost.per_kv_token_s)
    (7.7, 52)
    """
    bandwidth = BANDWIDTH_SHARE * gpu.bandwidth_bytes_per_s
    flop_per_s = FLOP_SHARE * gpu.peak_flop_per_s("bf16")
    token_s = 2 * model.active_parameters / flop_per_s
    return LinearStepCost(
        fixed_s=2 * model.streamed_parameters / bandwidth + LAUNCH_S_PER_LAYER * model.layers,
        per_prefill_token_s=token_s,
        per_prefill_pair_s=model.attention_flop_per_pair / flop_per_s,
        per_decode_seq_s=token_s,
        per_kv_token_s=model.kv_bytes_per_token() / bandwidth,
    )
