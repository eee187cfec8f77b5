"""The seconds, bytes and dollars of a step, from a model's shape and a GPU's data sheet.

Two rooflines in a row: the matrices are read once and used for every token of the step; the cache
of keys and values is read for each sequence apart. What a real kernel reaches of the data sheet is
in `Constants`; where these come from is in `course.serving.validation`. No measurement is here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

from course.serving._arguments import at_least, of_kind, whole
from course.serving.catalog import Gpu, Model, Price, gpus
from course.serving.catalog import gpu as gpu_named
from course.serving.catalog import model as model_named
from course.serving.pricing.forms import ROOFLINE, KernelCost, StepFeatures

BYTES = {"bf16": 2, "fp16": 2, "fp8": 1}
"""Bytes of one weight, or of one number in the cache, in each precision."""

WEIGHT_BYTES = {**BYTES, "fp8-static": 1, "nvfp4": 4.5 / 8, "mxfp4": 4.25 / 8, "int4": 4.25 / 8}
"""Bytes of one weight of a matrix: 4 bits come with a scale of 8 bits for each 16 (nvfp4) or 32
numbers (mxfp4), and of 16 bits for each 64 or 128 (int4: AWQ, GPTQ; 128 and a zero point here).

`fp8-static`: fp8 whose scales were fixed when the checkpoint was made, one for a matrix, which lets
a server use its fastest kernels; `fp8` finds scales as it goes, or has one for each small block.
"""

HEAD_BYTES = 2
"""Of a weight of embedding and output head where the other matrices have 4 bits: these stay."""

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
    """The model, or its precision on this card, has something that the formula does not count."""


@dataclass(frozen=True)
class Load:
    """The load that a step's price is worked out at, where the price depends on it.

    `decode_seqs`: sequences that decode together; they decide how many experts are read.
    `context_tokens`: of each; layers with a window read no more than the window of it. Both above
    0; ValueError otherwise.

    >>> Load(decode_seqs=16, context_tokens=2000).decode_seqs
    16.0
    """

    decode_seqs: float
    context_tokens: float

    def __post_init__(self) -> None:
        for name in ("decode_seqs", "context_tokens"):
            object.__setattr__(self, name, at_least(name, getattr(self, name), above=True))


@dataclass(frozen=True)
class Constants:
    """What real servers reach of a data sheet: one set for all cards and models.

    `overhead_s`: of every step (scheduler, sampler, host). `launch_per_layer_s`: of every layer.
    `mbu`: share of the memory bandwidth. `mfu_bf16`, `mfu_fp8`, `mfu_fp8_static`, `mfu_fp4`: share
    of the peak, by precision; a mixture of experts reaches `expert_share` of that.
    `unpack_per_layer_s`: of a layer of experts in 4 bits on a card that does not compute in 4 bits.
    An all-reduce takes `all_reduce_latency_s` plus its bytes at `all_reduce_bytes_per_s`, or at the
    card's link where that is slower. Seconds are at least 0, shares above 0 and at most 1, the
    bandwidth above 0; ValueError otherwise.

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
    mfu_fp8_static: float = 0.62
    mfu_fp4: float = 0.39
    expert_share: float = 0.42
    unpack_per_layer_s: float = 60e-6

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = field.name, getattr(self, field.name)
            number = at_least(name, value, above=name not in _MAY_BE_0)
            if name in _SHARES and number > 1:
                raise ValueError(f"{name}={value!r} is above 1; give the share of the data sheet")
            object.__setattr__(self, name, number)

    def share_of_peak(self, precision: str) -> float:
        """Return the share of the peak that matrices in this precision reach."""
        shares = {
            "fp8": self.mfu_fp8,
            "fp8-static": self.mfu_fp8_static,
            "nvfp4": self.mfu_fp4,
            "fp4": self.mfu_fp4,
        }
        return shares.get(precision, self.mfu_bf16)


_SHARES = ("mbu", "mfu_bf16", "mfu_fp8", "mfu_fp8_static", "mfu_fp4", "expert_share")
_MAY_BE_0 = ("overhead_s", "launch_per_layer_s", "all_reduce_latency_s", "unpack_per_layer_s")

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

    `model`, `gpu`: of the catalogue, or their names. `precision`: of weights and arithmetic, one of
    `WEIGHT_BYTES`; `kv_precision`: of the cache, bf16 unless given, as servers have it. Attention
    is computed in bf16. In mxfp4 only experts have 4 bits, as gpt-oss is shipped; int4 is unpacked
    and computed with in bf16, and so is mxfp4 on a card without a unit for 4 bits.

    `load`: what a mixture of experts and a sliding window are priced at. With it a step reads the
    experts that so many sequences touch, and layers with a window read no more than their window;
    without it all experts and the whole context, which is never too fast. Latent attention (MLA)
    reads its latent whole on every card, and unpacks nothing in decoding.

    What was never held against measurements is not `is_covered`.

    Raises NotCoveredError (a ValueError) for a precision that the model or the card does not go
    with, DoesNotFitError (a ValueError) where the weights alone exceed the memory, and ValueError
    for names, numbers of GPUs and precisions that do not go together.

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
    load: Load | None

    def __init__(
        self,
        model: Model | str,
        gpu: Gpu | str,
        n_gpus: int = 1,
        precision: str = "bf16",
        kv_precision: str | None = None,
        constants: Constants = DEFAULTS,
        load: Load | None = None,
    ) -> None:
        for name, value in {
            "model": model_named(model) if isinstance(model, str) else model,
            "gpu": gpu_named(gpu) if isinstance(gpu, str) else gpu,
            "n_gpus": whole("n_gpus", n_gpus),
            "precision": precision,
            "kv_precision": "bf16" if kv_precision is None else kv_precision,
            "constants": constants,
            "load": load,
        }.items():
            object.__setattr__(self, name, value)
        of_kind("load", load, Load, "Load(decode_seqs=16, context_tokens=2000)")
        _check_precision("precision", self.precision, WEIGHT_BYTES)
        _check_precision("kv_precision", self.kv_precision, BYTES)
        _check_goes_with(self.precision, self.model, self.gpu)
        _check_shares(self.model, self.n_gpus)
        if self.weight_bytes > self._memory_bytes(1.0):
            raise self._does_not_fit(self.weight_bytes - self._memory_bytes(1.0), 1.0, 0.0)

    # ------------------------------------------------------------------------------------- bytes
    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights, over all cards together."""
        shape = self.model
        table = 0 if shape.tied_embeddings else shape.embedding_parameters
        return round(self._other_bytes + self._expert_bytes + table * self._head_bytes)

    @property
    def streamed_bytes(self) -> int:
        """Bytes of the weights that a step reads, over all cards: all but the embedding table.

        Of experts those that the sequences of `load` touch; all of them without it.
        """
        touched = 1.0 if self.load is None else self.model.experts_touched(self.load.decode_seqs)
        return round(self._other_bytes + self._expert_bytes * touched)

    @property
    def _head_bytes(self) -> float:
        per_weight = WEIGHT_BYTES[self.precision]
        return per_weight if per_weight >= 1 else HEAD_BYTES

    @property
    def _other_bytes(self) -> float:
        """Bytes of what every step reads: all but the embedding table and the experts."""
        shape = self.model
        matrices = shape.streamed_parameters - shape.expert_parameters - shape.embedding_parameters
        per_weight = 2 if self.precision == "mxfp4" else WEIGHT_BYTES[self.precision]
        return matrices * per_weight + shape.embedding_parameters * self._head_bytes

    @property
    def _expert_bytes(self) -> float:
        return self.model.expert_parameters * WEIGHT_BYTES[self.precision]

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that a token takes in the cache: 2 · layers · kv_heads · head_dim · bytes.

        Over all cards together; where there are more cards than heads, each head's keys and values
        are kept more than once, and the latent of latent attention on every card. Layers with a
        window are counted as the others.
        """
        shape = self.model
        copies = self.n_gpus if shape.kv_latent_dim else max(1, self.n_gpus // shape.kv_heads)
        return int(shape.kv_bytes_per_token(BYTES[self.kv_precision])) * copies

    @property
    def _whole_share(self) -> float:
        """Share of the layers whose cache is read, and grows, with every token of the context.

        A layer with a window counts among them as long as the contexts of `load` are shorter.
        """
        shape = self.model
        if self.load is None or self.load.context_tokens <= shape.window_tokens:
            return 1.0
        return 1 - shape.window_layers / shape.layers

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
        token_bytes = self.kv_bytes_per_token * self._whole_share
        block_bytes = whole("block_size", block_size, high=2**16) * token_bytes
        free_bytes = self._memory_bytes(fraction) - self.weight_bytes - reserve - self._window_bytes
        if free_bytes < block_bytes:
            raise self._does_not_fit(block_bytes - free_bytes, fraction, reserve_bytes)
        return int(free_bytes // block_bytes)

    @property
    def _window_bytes(self) -> float:
        """Bytes that the windows of all sequences of `load` take in the cache."""
        if self.load is None:
            return 0.0
        full = self.model.window_tokens * self.load.decode_seqs
        return (1 - self._whole_share) * self.kv_bytes_per_token * full

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
        token_s = 2 * shape.active_parameters / (self.n_gpus * self._flop_per_s)
        pair_s = shape.attention_flop_per_pair / (self.n_gpus * self._bf16_flop_per_s)
        all_reduce_s, all_reduce_token_s = self._all_reduce
        whole, window = self._whole_share, shape.window_tokens
        # a token before a layer with a window meets a window's tokens, whatever its place
        beyond_pairs_s = (1 - whole) * window * pair_s
        beyond_kv_s = (1 - whole) * window * self.kv_bytes_per_token / bandwidth
        return (
            self._overhead_s + all_reduce_s,
            all_reduce_token_s + beyond_pairs_s,
            whole * pair_s,
            all_reduce_token_s + beyond_kv_s,
            whole * self._kv_token_s(bandwidth),
            self.streamed_bytes / bandwidth,
            token_s,
            token_s,
        )

    @property
    def _overhead_s(self) -> float:
        shape, know = self.model, self.constants
        seconds = know.overhead_s + shape.layers * know.launch_per_layer_s
        if shape.is_moe and self._unpacks:
            seconds += (shape.layers - shape.dense_layers) * know.unpack_per_layer_s
        return seconds

    @property
    def _unpacks(self) -> bool:
        """Whether weights of 4 bits become bf16 before they are multiplied with."""
        return self.precision == "int4" or (
            self.precision == "mxfp4" and self.gpu.peak_fp4_flop_per_s is None
        )

    @property
    def _flop_per_s(self) -> float:
        """Operations a second that the matrices reach on one card."""
        computed = "bf16" if self._unpacks else _COMPUTED_IN.get(self.precision, self.precision)
        peak = self.gpu.peak_flop_per_s(computed)
        kept = self.precision if self.precision == "fp8-static" else computed
        share = self.constants.share_of_peak(kept)
        return peak * share * (self.constants.expert_share if self.model.is_moe else 1)

    @property
    def _bf16_flop_per_s(self) -> float:
        return self.gpu.peak_bf16_flop_per_s * self.constants.mfu_bf16

    def _kv_token_s(self, bandwidth: float) -> float:
        """Return the seconds for a cached token; a latent is read by all heads, which also costs.

        In decoding the matrices that unpack the latent are multiplied into the query and the
        output, so that a head meets latent + rope numbers as a key and latent ones as a value.
        """
        shape = self.model
        read_s = self.kv_bytes_per_token / bandwidth
        if not shape.kv_latent_dim:
            return read_s
        flop = 2 * shape.layers * shape.heads * (2 * shape.kv_latent_dim + shape.rope_dim)
        compute_s = flop / (self.n_gpus * self._bf16_flop_per_s)
        return math.sqrt(read_s * read_s + compute_s * compute_s)

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
            kv_s=price[4] * features.kv_tokens
            + (price[3] - self._all_reduce[1]) * features.decode_seqs,
            attention_s=price[2] * features.prefill_pairs
            + (price[1] - self._all_reduce[1]) * features.prefill_tokens,
            all_reduce_s=fixed_all_reduce_s + self._all_reduce[1] * tokens,
        )

    @property
    def weight_read_s(self) -> float:
        """Seconds of reading the weights at the data sheet's bandwidth: no step is faster.

        Of experts only those that a single token chooses: a step may touch no others.
        """
        least_bytes = self._other_bytes + self._expert_bytes * self.model.experts_touched(1)
        return least_bytes / (self.n_gpus * self.gpu.bandwidth_bytes_per_s)

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

        Not so: mixtures of experts priced without a load or in another precision than mxfp4, latent
        attention, windows longer than gpt-oss has them, int4, tensor parallelism over PCIe, and
        more than 8 cards.
        """
        link = self.gpu.link_bytes_per_s or 0.0
        shape = self.model
        return not (
            (shape.is_moe and (self.load is None or self.precision != "mxfp4"))
            or shape.kv_latent_dim
            or shape.window_tokens > LONGEST_MEASURED_WINDOW
            or self.precision == "int4"
            or (self.n_gpus > 1 and link <= PCIE_BYTES_PER_S)
            or self.n_gpus > 8
        )

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


LONGEST_MEASURED_WINDOW = 128
"""Tokens: that of gpt-oss, the one model with windows among the measured points."""

_COMPUTED_IN = {"fp8-static": "fp8", "nvfp4": "fp4", "mxfp4": "fp4"}
"""The unit of the card that multiplies weights of this precision, where it has another name."""


def _check_precision(name: str, precision: object, known: Mapping[str, float]) -> None:
    if precision not in known:
        reason = ""
        if precision in ("fp4", "4bit", "q4"):
            reason = " (4 bits are kept in several ways, with other bytes and speeds)"
        elif isinstance(precision, str) and "4" in precision and known is BYTES:
            reason = " (no measured server keeps its cache in 4 bits)"
        raise ValueError(
            f"{name}={precision!r} is not covered{reason}; give one of {', '.join(known)}"
        )


def _check_goes_with(precision: str, model: Model, gpu: Gpu) -> None:
    if precision == "mxfp4" and not model.is_moe:
        raise NotCoveredError(
            f"precision='mxfp4' keeps experts in 4 bits, and model={model.name!r} has none; "
            "give 'nvfp4' or 'int4'"
        )
    if precision == "nvfp4" and gpu.peak_fp4_flop_per_s is None:
        raise NotCoveredError(
            f"precision='nvfp4' has no unit on the {gpu.name}, and what a server does there "
            "instead was never measured here; give 'fp8', or a card that computes in 4 bits"
        )
    if precision not in ("nvfp4", "mxfp4", "int4"):
        gpu.peak_flop_per_s(_COMPUTED_IN.get(precision, precision))


def _check_shares(model: Model, n_gpus: int) -> None:
    groups = model.kv_heads or model.heads  # a latent is whole on every card
    uneven = model.heads % n_gpus or (groups % n_gpus and n_gpus % groups)
    if uneven:
        fitting = [
            n for n in range(1, 17) if model.heads % n == 0 and (groups % n == 0 or n % groups == 0)
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
            size_bytes = needed * shape.parameters * WEIGHT_BYTES[precision]
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
    all_reduce_latency_s=0.0, mfu_fp8_static=1.0, mfu_fp4=1.0, expert_share=1.0,
    unpack_per_layer_s=0.0,
)  # fmt: skip
"""What the data sheets promise: no overhead, every byte and operation at its peak."""
