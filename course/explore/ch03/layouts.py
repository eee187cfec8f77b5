"""Eight cards arranged in several ways, at a seller's price: a replica, and what its tokens cost.

Seconds and bytes come from `course.serving.cost`, prices from `course.serving.catalog`.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Final

import numpy as np

from course.explore.steady import room, steady_tpot_s
from course.figures.ch03.token_cost import LayoutCost
from course.serving import catalog
from course.serving.catalog import Price
from course.serving.pricing import DoesNotFitError, RooflineStepCost

LAYOUTS: Final = {
    "one card": (1, 1), "eight of one": (8, 1), "four of two": (4, 2), "two of four": (2, 4),
    "one of eight": (1, 8),
}  # fmt: skip
"""What is read → (replicas, cards of each)."""
# More sequences than the largest replica here can hold.
_GRID = np.unique(np.geomspace(1, 16_384, 64).round()).astype(int)


@lru_cache(maxsize=32)
def listed_price(gpu: str, seller: str) -> Price:
    """Return the dated list price of a card from the `seller` "cheapest", "middle" or "dearest".

    >>> listed_price("H200-141GB-SXM", "middle").usd_per_gpu_hour
    4.5
    """
    rows = catalog.prices(gpu)
    return rows[{"cheapest": 0, "middle": len(rows) // 2, "dearest": -1}[seller]]


def price_words(price: Price, n_gpus: int = 1) -> str:
    """Return a price with its seller and its day, for a sentence about so many cards.

    >>> price_words(listed_price("H200-141GB-SXM", "middle"))
    '4.50 USD an hour (Nebius on demand, 25 September 2026)'
    """
    day = f", {price.checked_on:%d %B %Y}".replace(", 0", ", ") if price.checked_on else ", undated"
    each = "" if n_gpus == 1 else " each"
    return f"{price.usd_per_gpu_hour:.2f} USD an hour{each} ({price.seller} {price.offer}{day})"


@lru_cache(maxsize=64)
def replica_cost(model: str, precision: str, gpu: str, n_gpus: int) -> RooflineStepCost | str:
    """Return the cost of a replica, or in words why there is none; bf16 where fp8 is lacking.

    >>> replica_cost("Llama-3.1-70B", "fp8", "A100-80GB-SXM", 1)
    '131 GiB of weights, 79 GiB of memory'
    """
    if catalog.gpu(gpu).peak_fp8_flop_per_s is None:
        precision = "bf16"
    try:
        cost = RooflineStepCost(model, gpu, n_gpus, precision)
        cost.kv_blocks()
    except DoesNotFitError:
        # The error names all ways out; a picture has room for the fact alone.
        need = catalog.model(model).weight_bytes(2 if precision == "bf16" else 1) / 2**30
        have = n_gpus * catalog.gpu(gpu).memory_bytes / 2**30
        return f"{need:.0f} GiB of weights, {have:.0f} GiB of memory"
    return cost


@lru_cache(maxsize=256)
def _tpots(cost: RooflineStepCost, lengths: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Batches of one replica up to a full memory, and the TPOT of each in seconds."""
    most = min(max(room(cost, sum(lengths)), 1), int(_GRID[-1]))
    batches = np.array(sorted({*(int(b) for b in _GRID if b <= most), most}))
    return batches, np.array([steady_tpot_s(cost, int(b), *lengths)[1] for b in batches])


def _largest_inside(
    cost: RooflineStepCost, lengths: tuple[int, int], most: int, promise_s: float
) -> int:
    """The largest batch of a replica whose TPOT keeps the promise; it grows with the batch."""
    low, high = 0, most
    while low < high:
        middle = (low + high + 1) // 2
        inside = steady_tpot_s(cost, middle, *lengths)[1] <= promise_s
        low, high = (middle, high) if inside else (low, middle - 1)
    return low


@lru_cache(maxsize=1024)
def layout_cost(
    name: str, cost: RooflineStepCost, lengths: tuple[int, int], price: Price, promise_s: float
) -> LayoutCost:
    """Return what a layout's tokens cost over its batch; a TPOT promise of 0 is none."""
    replicas, gpus_each = LAYOUTS[name]
    batches, tpot_s = _tpots(cost, lengths)
    most = int(batches[-1])
    inside = _largest_inside(cost, lengths, most, promise_s) if promise_s else most
    usd = [usd_per_million(cost, int(b), t, price) for b, t in zip(batches, tpot_s, strict=True)]
    inside_usd = math.nan
    if inside:
        inside_usd = usd_per_million(cost, inside, steady_tpot_s(cost, inside, *lengths)[1], price)
    return LayoutCost(
        name=name,
        replicas=replicas,
        gpus_each=gpus_each,
        sequences=replicas * batches,
        usd=np.array(usd),
        tpot_s=tpot_s,
        inside=replicas * inside,
        inside_usd=inside_usd,
        most=replicas * most,
        cheapest_usd=usd[-1],
    )


def usd_per_million(cost: RooflineStepCost, batch: int, tpot_s: float, price: Price) -> float:
    """Return USD a million output tokens; replicas do not matter, each earns what it costs."""
    return cost.usd_per_million_output_tokens(price, batch / tpot_s)
