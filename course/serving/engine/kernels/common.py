"""What the loops of both engines share: the seconds of a step, blocks; no loop is here."""

# mypy: disable-error-code="no-any-return"

from __future__ import annotations

import math

import numpy as np

from course.serving._compiled import compiled
from course.serving.engine.kernels.codes import ROOFLINE

INF = np.inf
Price = tuple[float, ...]  # not an array, which a loop would have to read again after each write

# `_nrt=False`: no array is made or kept in here, so none needs its references counted. With the
# counting, which happens at every call, a run takes twenty times as long.
OPTIONS = {"error_model": "numpy", "nogil": True, "_nrt": False}
INLINED = OPTIONS | {"forceinline": True}


# ============================================================================ what may be replaced
@compiled(**INLINED)
def step_seconds(
    code: int,
    price: Price,
    prefill_tokens: int,
    prefill_pairs: int,
    decode_seqs: int,
    kv_tokens: int,
) -> float:
    """Return a step's seconds; the terms are summed from left to right.

    Every formula has five linear prices; `ROOFLINE` adds the smooth corner between reading the
    weights (price[5]) and computing with them (price[6] and price[7]).
    """
    seconds = (
        price[0]
        + price[1] * prefill_tokens
        + price[2] * prefill_pairs
        + price[3] * decode_seqs
        + price[4] * kv_tokens
    )
    if code == ROOFLINE:
        compute_s = price[6] * prefill_tokens + price[7] * decode_seqs
        # not hypot: libraries differ in its last bit, and a square root is exact everywhere
        seconds += math.sqrt(price[5] * price[5] + compute_s * compute_s)
    return seconds


@compiled(**OPTIONS)
def custom_key(
    now_s: float,
    arrival_s: float,
    prompt_tokens: int,
    predicted_output_tokens: int,
    priority: float,
) -> float:
    """Stand in for a caller's own order, which runs uncompiled only."""
    return 0.0


# ======================================================================================= counting
@compiled(**INLINED)
def blocks_for(tokens: int, block_size: int) -> int:
    """Return the KV blocks that `tokens` tokens need."""
    return (tokens + block_size - 1) // block_size


@compiled(**INLINED)
def attention_pairs(done: int, chunk: int) -> int:
    """Return the contexts that `chunk` tokens see, summed, after `done` earlier ones."""
    return done * chunk + chunk * (chunk + 1) // 2
