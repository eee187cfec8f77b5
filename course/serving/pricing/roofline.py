"""The seconds, bytes and dollars of a step, from a model's shape and a GPU's data sheet.

Two rooflines in a row: the matrices are read once and used for every token of the step; the cache
of keys and values is read for each sequence apart. What a real kernel reaches of the data sheet is
in `Constants`; where these come from is in `course.serving.validation`. No measurement is here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

from course.serving._arguments import at_least, whole
from course.serving.catalog import Gpu, Model, Price, gpus
from course.serving.catalog import gpu as gpu_named
from course.serving.catalog import model as model_named
from course.serving.pricing.forms import ROOFLINE, KernelCost, StepFeatures

BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of one weight, or of one number in the cache, in each precision."""

ACTIVATION_BYTES = 2
"""Of one number that GPUs send each other between layers: activations stay in bf16."""

RESERVE_BYTES = 2 * 2**30
"""What activations and CUDA graphs take of each card.

From logged numbers of blocks the reserve was 1.2 GB (RTX 4090), 2.4 GB (RTX PRO 6000) and 4.9 GB
(H100), all with a model of 8 B parameters.
"""

_GIB = 2**30


class DoesNotFitError(ValueError):
    """The model does not fit into the memory of the cards."""


class NotCoveredError(ValueError):
    """The model has something that the formula does not count."""


@dataclass(frozen=True)
class Constants:
    """What real servers reach of a data sheet: one set for all cards and models.

    `overhead_s`: of every step (scheduler, sampler, host). `launch_per_layer_s`: of every layer.
    `mbu`: share of the memory bandwidth. `mfu_bf16`, `mfu_fp8`: share of the peak. An all-reduce
    takes `all_reduce_latency_s` plus its bytes at `all_reduce_bytes_per_s`, or at the card's link
    where that is slower. Seconds are at least 0, shares above 0 and at most 1, the bandwidth above
    0; ValueError otherwise.

    >>> Constants(mbu=0.8).share_of_peak("fp16") == Constants().mfu_bf16
    True
    """

    overhead_s: float = 1.1e-3
    launch_per_layer_s: float = 23e-6
    mbu: float = 0.82
    mfu_bf16: float = 0.70
    mfu_fp8: float = 0.42
    all_reduce_latency_s: float = 10e-6
    all_reduce_bytes_per_s: float = 300e9

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            number = at_least(name, value, above=name not in _MAY_BE_0)
            if name in _SHARES and number > 1:
                raise ValueError(f"{name}={value!r} is above 1; give the share of the data sheet")
            object.__setattr__(self, name, number)

    def share_of_peak(self, precision: str) -> float:
        """Return the share of the peak that matrices in bf16 (or fp16) or fp8 reach."""
        return self.mfu_fp8 if precision == "fp8" else self.mfu_bf16


_SHARES = ("mbu", "mfu_bf16", "mfu_fp8")
_MAY_BE_0 = ("overhead_s", "launch_per_layer_s", "all_reduce_latency_s")

DEFAULTS = Constants()
"""Fitted once to the committed serving points of dense models; `course.serving.validation`."""


class StepParts(NamedTuple):
    """Where the seconds of one step go; `dense_s` is the corner between weights and compute.

    The step lasts overhead_s + dense_s + kv_s + attention_s + all_reduce_s.
    """

    overhead_s: float
    weights_s: float
    compute_s: float
    dense_s: float
    kv_s: float
    attention_s: float
    all_reduce_s: float


@dataclass(frozen=True)
class RooflineStepCost:
    """A step's seconds from the shape of a model and the data sheet of a GPU.

    ::

        dense     = sqrt((weight bytes / MBU·bandwidth)² + (2·parameters·tokens / MFU·peak)²)
        attention = KV bytes a token · K / MBU·bandwidth + 4·layers·heads·head_dim·A / MFU·peak
        step      = overhead + layers·launch + dense + attention + all-reduce

    with tokens = prefill tokens + decoding sequences, K cached tokens read, A prefill attention
    pairs. Weight bytes leave out the embedding table and include the output head. `n_gpus` cards
    share weights, cache and arithmetic evenly (tensor parallelism) and pay two all-reduces a layer.

    `model`, `gpu`: of the catalogue, or their names. `precision`: of weights and arithmetic, bf16
    (fp16) or fp8; `kv_precision`: of the cache, bf16 unless given, as servers have it. Attention is
    computed in bf16.

    A mixture of experts is counted as reading all its experts and computing with the chosen ones.
    That, and tensor parallelism over PCIe, was never held against measurements: outside what
    `course.serving.validation` says about errors.

    Raises NotCoveredError (a ValueError) for latent attention and sliding windows, DoesNotFitError
    (a ValueError) where the weights alone exceed the memory, and ValueError for names, numbers of
    GPUs and precisions that do not go together.

    >>> cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
    >>> cost.kv_bytes_per_token, round(cost.weight_bytes / 2**30, 1), cost.is_covered
    (131072, 15.0, True)
    """

    model: Model
    gpu: Gpu
    n_gpus: int
    precision: str
    kv_precision: str
    constants: Constants

    def __init__(
        self,
        model: Model | str,
        gpu: Gpu | str,
        n_gpus: int = 1,
        precision: str = "bf16",
        kv_precision: str | None = None,
        constants: Constants = DEFAULTS,
    ) -> None:
        for name, value in {
            "model": model_named(model) if isinstance(model, str) else model,
            "gpu": gpu_named(gpu) if isinstance(gpu, str) else gpu,
            "n_gpus": whole("n_gpus", n_gpus),
            "precision": precision,
            "kv_precision": "bf16" if kv_precision is None else kv_precision,
            "constants": constants,
        }.items():
            object.__setattr__(self, name, value)
        _check_precision("precision", self.precision)
        _check_precision("kv_precision", self.kv_precision)
        self.gpu.peak_flop_per_s(self.precision)
        _check_covered(self.model)
        _check_shares(self.model, self.n_gpus)
        if self.weight_bytes > self._memory_bytes(1.0):
            raise self._does_not_fit(self.weight_bytes - self._memory_bytes(1.0), 1.0, 0.0)

    # ------------------------------------------------------------------------------------- bytes
    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights, over all cards together: parameters · bytes of the precision."""
        return self.model.parameters * BYTES[self.precision]

    @property
    def streamed_bytes(self) -> int:
        """Bytes of the weights that a step reads, over all cards: all but the embedding table."""
        return self.model.streamed_parameters * BYTES[self.precision]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that a token takes in the cache: 2 · layers · kv_heads · head_dim · bytes.

        Over all cards together; where there are more cards than heads, each head's keys and values
        are kept more than once.
        """
        copies = max(1, self.n_gpus // self.model.kv_heads)
        return int(self.model.kv_bytes_per_token(BYTES[self.kv_precision])) * copies

    def kv_blocks(
        self,
        block_size: int = 16,
        memory_fraction: float = 0.9,
        reserve_bytes: float = RESERVE_BYTES,
    ) -> int:
        """Return how many KV blocks fit beside the weights.

        (memory · fraction − weights − reserve of each card) / (block_size · KV bytes a token),
        rounded down. An estimate: the reserve of real servers differs by gigabytes, and a capacity
        that is wrong by itself moves TTFT by 20 %. A server prints its own number when it starts;
        give that one as `num_kv_blocks` where you have it.

        Raises DoesNotFitError, with the shortfall, where not even one block fits, and ValueError
        for a fraction that is not above 0 and at most 1.

        >>> RooflineStepCost("Llama-3.1-8B", "RTX-4090").kv_blocks()
        2154
        """
        fraction = at_least("memory_fraction", memory_fraction, above=True)
        if fraction > 1:
            raise ValueError(
                f"memory_fraction={memory_fraction!r} is above 1; give a share, as 0.9"
            )
        reserve = self.n_gpus * at_least("reserve_bytes", reserve_bytes)
        block_bytes = whole("block_size", block_size, high=2**16) * self.kv_bytes_per_token
        free_bytes = self._memory_bytes(fraction) - self.weight_bytes - reserve
        if free_bytes < block_bytes:
            raise self._does_not_fit(block_bytes - free_bytes, fraction, reserve_bytes)
        return int(free_bytes // block_bytes)

    def _memory_bytes(self, fraction: float) -> float:
        return self.n_gpus * self.gpu.memory_bytes * fraction

    def _does_not_fit(self, short_bytes: float, fraction: float, reserve: float) -> DoesNotFitError:
        """Return the error that says by how much, and what would fit."""
        way_out = _what_would_fit(self, fraction, reserve)
        cards = f"{self.n_gpus} × {self.gpu.name}"
        beside = f" and {self.n_gpus * reserve / _GIB:.1f} GiB kept free" if reserve else ""
        share = "" if fraction == 1 else f" (a fraction of {fraction:g})"
        return DoesNotFitError(
            f"model={self.model.name!r} in {self.precision} does not fit on {cards}: "
            f"{self.weight_bytes / _GIB:.1f} GiB of weights{beside} in "
            f"{self._memory_bytes(fraction) / _GIB:.1f} GiB of usable memory{share} are "
            f"{short_bytes / _GIB:.1f} GiB short; {way_out}"
        )

    # ----------------------------------------------------------------------------------- seconds
    @cached_property
    def _prices(self) -> tuple[float, ...]:
        """The eight coefficients of the formula, in the order of the compiled step loops."""
        shape, know = self.model, self.constants
        bandwidth = self.n_gpus * know.mbu * self.gpu.bandwidth_bytes_per_s
        flop_per_s = self.gpu.peak_flop_per_s(self.precision) * know.share_of_peak(self.precision)
        token_s = 2 * shape.active_parameters / (self.n_gpus * flop_per_s)
        bf16_flop_per_s = self.gpu.peak_bf16_flop_per_s * know.mfu_bf16
        all_reduce_s, all_reduce_token_s = self._all_reduce
        return (
            know.overhead_s + shape.layers * know.launch_per_layer_s + all_reduce_s,
            all_reduce_token_s,
            shape.attention_flop_per_pair / (self.n_gpus * bf16_flop_per_s),
            all_reduce_token_s,
            self.kv_bytes_per_token / bandwidth,
            self.streamed_bytes / bandwidth,
            token_s,
            token_s,
        )

    @property
    def _all_reduce(self) -> tuple[float, float]:
        """Seconds of a step's all-reduces: those of any step, and those of each token."""
        if self.n_gpus == 1:
            return 0.0, 0.0
        times = 2 * self.model.layers
        link = self.constants.all_reduce_bytes_per_s
        if self.gpu.link_bytes_per_s is not None:
            link = min(link, self.gpu.link_bytes_per_s)
        token_bytes = 2 * (self.n_gpus - 1) / self.n_gpus * self.model.hidden * ACTIVATION_BYTES
        return times * self.constants.all_reduce_latency_s, times * token_bytes / link

    def step_seconds(self, features: StepFeatures, /) -> float:
        """Return the seconds of a step with these features.

        >>> cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
        >>> cost.step_seconds(StepFeatures(0, 0, 1, 1000)) > cost.weight_read_s
        True
        """
        price = self._prices
        seconds = (
            price[0]
            + price[1] * features.prefill_tokens
            + price[2] * features.prefill_pairs
            + price[3] * features.decode_seqs
            + price[4] * features.kv_tokens
        )
        compute_s = price[6] * features.prefill_tokens + price[7] * features.decode_seqs
        # not hypot: libraries differ in its last bit, and a square root is exact everywhere
        return seconds + math.sqrt(price[5] * price[5] + compute_s * compute_s)

    def kernel_form(self) -> KernelCost:
        """Return the formula's code and its eight coefficients."""
        return KernelCost(ROOFLINE, self._prices)

    def step_parts(self, features: StepFeatures, /) -> StepParts:
        """Return where the seconds of a step go, for a picture.

        >>> cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
        >>> parts = cost.step_parts(StepFeatures(0, 0, 64, 64_000))
        >>> parts.weights_s > parts.kv_s > parts.compute_s
        True
        """
        price, fixed_all_reduce_s = self._prices, self._all_reduce[0]
        tokens = features.prefill_tokens + features.decode_seqs
        compute_s = price[6] * features.prefill_tokens + price[7] * features.decode_seqs
        return StepParts(
            overhead_s=price[0] - fixed_all_reduce_s,
            weights_s=price[5],
            compute_s=compute_s,
            dense_s=math.sqrt(price[5] * price[5] + compute_s * compute_s),
            kv_s=price[4] * features.kv_tokens,
            attention_s=price[2] * features.prefill_pairs,
            all_reduce_s=fixed_all_reduce_s + price[1] * tokens,
        )

    @property
    def weight_read_s(self) -> float:
        """Seconds of reading the weights at the data sheet's bandwidth: no step is faster."""
        return self.streamed_bytes / (self.n_gpus * self.gpu.bandwidth_bytes_per_s)

    @property
    def ridge_batch(self) -> float:
        """Tokens in a step at which computing takes as long as reading the weights.

        Below it, one more sequence in the batch costs little; above it, each pays in full.

        >>> round(RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM", constants=IDEAL).ridge_batch)
        295
        """
        return self._prices[5] / self._prices[6]

    @property
    def is_covered(self) -> bool:
        """Whether models and cards of this kind were held against measurements.

        Not so: mixtures of experts, tensor parallelism over PCIe, and more than 8 cards.
        """
        link = self.gpu.link_bytes_per_s or 0.0
        over_pcie = self.n_gpus > 1 and link <= PCIE_BYTES_PER_S
        return not (self.model.is_moe or over_pcie or self.n_gpus > 8)

    # ------------------------------------------------------------------------------------- money
    def usd_per_hour(self, price: Price | float) -> float:
        """Return what the cards of this deployment cost an hour.

        `price`: a row of `catalog.prices`, or USD a GPU-hour; at least 0, ValueError otherwise.

        >>> RooflineStepCost("Llama-3.1-70B", "H100-80GB-SXM", n_gpus=4).usd_per_hour(2.5)
        10.0
        """
        per_gpu = price.usd_per_gpu_hour if isinstance(price, Price) else price
        return self.n_gpus * at_least("price", per_gpu)

    def usd_per_million_output_tokens(
        self, price: Price | float, output_tokens_per_s: float
    ) -> float:
        """Return the USD that a million output tokens cost at this throughput of all cards.

        Raises ValueError unless the throughput is above 0.

        >>> cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
        >>> round(cost.usd_per_million_output_tokens(2.5, output_tokens_per_s=5000), 3)
        0.139
        """
        rate = at_least("output_tokens_per_s", output_tokens_per_s, above=True)
        return self.usd_per_hour(price) / 3600 / rate * 1e6

    def usd_per_success(self, price: Price | float, successes_per_s: float) -> float:
        """Return the USD that one request costs that ended well, all cards' time shared by these.

        Failed and late requests are paid for as well: by those that succeed. Raises ValueError
        unless the rate is above 0.

        >>> cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
        >>> round(cost.usd_per_success(3.6, successes_per_s=2.0), 6)
        0.0005
        """
        rate = at_least("successes_per_s", successes_per_s, above=True)
        return self.usd_per_hour(price) / 3600 / rate


# ========================================================================================= checks
PCIE_BYTES_PER_S = 64e9
"""One direction of 16 lanes of the fifth generation: a link no faster than this is PCIe."""


def _check_precision(name: str, precision: object) -> None:
    if precision not in BYTES:
        reason = ""
        if isinstance(precision, str) and "4" in precision:
            reason = " (4 bits store scales beside the weights; never held against measurements)"
        raise ValueError(
            f"{name}={precision!r} is not covered{reason}; give one of {', '.join(BYTES)}"
        )


def _check_covered(model: Model) -> None:
    if model.kv_latent_dim:
        raise NotCoveredError(
            f"model={model.name!r} has latent attention (MLA): its cache is a latent that every "
            "head unpacks, which costs other bytes and operations than the formula counts; "
            "give a model with grouped-query attention"
        )
    if model.window_layers:
        raise NotCoveredError(
            f"model={model.name!r} has {model.window_layers} layers that see only the last "
            f"{model.window_tokens} tokens, so that its cache does not grow by the same bytes with "
            "every token; give a model whose layers all see the whole context"
        )


def _check_shares(model: Model, n_gpus: int) -> None:
    uneven = model.heads % n_gpus or (model.kv_heads % n_gpus and n_gpus % model.kv_heads)
    if uneven:
        fitting = [
            n
            for n in range(1, 17)
            if model.heads % n == 0 and (model.kv_heads % n == 0 or n % model.kv_heads == 0)
        ]
        raise ValueError(
            f"n_gpus={n_gpus} cannot share the {model.heads} heads and {model.kv_heads} key/value "
            f"heads of {model.name!r} evenly; give one of {fitting}"
        )


def _what_would_fit(cost: RooflineStepCost, fraction: float, reserve_bytes: float) -> str:
    """Return the smallest changes that leave the cache a tenth of what the weights take."""
    needed = 1.1
    shape, per_card = cost.model, cost.gpu.memory_bytes * fraction - reserve_bytes
    ways = []
    for precision in dict.fromkeys((cost.precision, "fp8")):
        if precision == "fp8" and cost.gpu.peak_fp8_flop_per_s is None:
            continue
        for n_gpus in (1, 2, 4, 8, 16):
            size_bytes = needed * shape.parameters * BYTES[precision]
            if shape.heads % n_gpus == 0 and size_bytes <= n_gpus * per_card:
                ways.append(f"n_gpus={n_gpus} in {precision}")
                break
    larger = [
        card.name
        for card in gpus()
        if (card.memory_bytes * fraction - reserve_bytes) * cost.n_gpus
        >= needed * cost.weight_bytes
        and card.vendor == cost.gpu.vendor
    ]
    if larger:
        ways.append(f"gpu={larger[0]!r}")
    return f"would fit: {', or '.join(ways)}" if ways else "give a smaller model"


IDEAL = replace(
    DEFAULTS, overhead_s=0.0, launch_per_layer_s=0.0, mbu=1.0, mfu_bf16=1.0, mfu_fp8=1.0,
    all_reduce_latency_s=0.0,
)  # fmt: skip
"""What the data sheets promise: no overhead, every byte and operation at its peak."""
