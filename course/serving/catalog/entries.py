"""Cards, models, prices and sources, each a row of a table in `data/`; no measurement is here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import date

from course.serving.catalog.tables import named, table


@dataclass(frozen=True)
class Gpu:
    """One card: what its maker prints about it, and the memory that a driver reports.

    Peaks are dense (no sparsity) and None where the card has no such unit; `link_bytes_per_s` is
    one direction of the link to the neighbouring card. The makers' "80 GB" are read as GiB.

    >>> gpu("H100-80GB-SXM").bandwidth_bytes_per_s
    3350000000000.0
    """

    name: str
    vendor: str
    memory_nameplate_bytes: int
    memory_bytes: int
    bandwidth_bytes_per_s: float
    peak_bf16_flop_per_s: float
    peak_fp8_flop_per_s: float | None
    peak_fp4_flop_per_s: float | None
    link_bytes_per_s: float | None
    power_w: float
    source: str
    note: str = ""

    def peak_flop_per_s(self, precision: str = "bf16") -> float:
        """Return the peak in operations/s for `bf16` (or `fp16`), `fp8` or `fp4` matrices.

        Raises ValueError for a precision that the card has no unit for.

        >>> gpu("H100-80GB-SXM").peak_flop_per_s("fp8") / 1e12
        1978.0
        """
        peaks = {
            "bf16": self.peak_bf16_flop_per_s,
            "fp16": self.peak_bf16_flop_per_s,
            "fp8": self.peak_fp8_flop_per_s,
            "fp4": self.peak_fp4_flop_per_s,
        }
        peak = peaks.get(precision)
        if peak is None:
            known = [name for name, value in peaks.items() if value is not None]
            raise ValueError(
                f"precision={precision!r} has no unit on the {self.name}; give one of {known}"
            )
        return peak

    @property
    def ridge_flop_per_byte(self) -> float:
        """Operations per byte read at which bf16 work stops being bound by memory.

        >>> round(gpu("A100-80GB-SXM").ridge_flop_per_byte)
        153
        """
        return self.peak_bf16_flop_per_s / self.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Model:
    """The shape of one transformer, from which bytes and operations follow.

    A dense model has `experts == 0` and `dense_layers == layers`. Latent attention (DeepSeek) has
    `kv_latent_dim > 0` and no `kv_heads`. `same_shape` lists other models with the same numbers.

    >>> llama = model("Llama-3.1-8B")
    >>> llama.kv_bytes_per_token(), llama.is_moe
    (131072, False)
    """

    name: str
    same_shape: tuple[str, ...]
    layers: int
    hidden: int
    intermediate: int
    vocab: int
    heads: int
    kv_heads: int
    head_dim: int
    qkv_bias: bool
    other_biases: bool
    qk_norm: bool
    attention_sinks: bool
    norms_per_layer: int
    tied_embeddings: bool
    kv_latent_dim: int
    rope_dim: int
    query_latent_dim: int
    experts: int
    experts_per_token: int
    expert_intermediate: int
    shared_experts: int
    dense_layers: int
    expert_selection_bias: bool
    window_tokens: int
    window_layers: int
    parameters: int
    source: str
    note: str = ""

    @property
    def is_moe(self) -> bool:
        """Whether some layers choose among experts."""
        return self.experts > 0

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the input embedding table, of which a token reads one row."""
        return self.vocab * self.hidden

    @property
    def streamed_parameters(self) -> int:
        """Parameters that a large step reads: all but the embedding table, output head included.

        Tied embeddings are read as the output head. Of a mixture of experts this is the most that
        a step may read: every expert is taken to be chosen by some token.

        >>> model("Llama-2-7B").streamed_parameters
        6607343616
        """
        return self.parameters - (0 if self.tied_embeddings else self.embedding_parameters)

    @property
    def expert_parameters(self) -> int:
        """Parameters of all experts among which tokens choose; 0 for a dense model.

        >>> round(model("Mixtral-8x7B").expert_parameters / 1e9, 1)
        45.1
        """
        per_expert = _expert_matrix_parameters(self) + _expert_bias_parameters(self)
        return self._moe_layers * self.experts * per_expert

    def experts_touched(self, tokens: float) -> float:
        """Return the share of experts that one of `tokens` or more chose: 1 − (1 − k/E)^tokens.

        Every token is taken to choose evenly and by itself; text of one subject touches fewer.
        Raises ValueError for fewer tokens than 0; 1 for a dense model.

        >>> gpt = model("gpt-oss-120b")
        >>> gpt.experts_touched(1) == 4 / 128, round(gpt.experts_touched(64), 2)
        (True, 0.87)
        """
        if not tokens >= 0:
            raise ValueError(f"tokens={tokens!r} is no number of tokens; give 0 or more")
        if not self.is_moe:
            return 1.0
        missed = 1 - self.experts_per_token / self.experts
        return float(1 - missed**tokens)

    @property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied with: the streamed ones less idle experts.

        >>> round(model("Qwen3-30B-A3B").active_parameters / 1e9, 2)
        3.04
        """
        if not self.is_moe:
            return self.streamed_parameters
        idle = self.experts - self.experts_per_token
        return self.streamed_parameters - self.expert_parameters // self.experts * idle

    @property
    def attention_flop_per_pair(self) -> int:
        """Operations for one query token and one cached token: 4 · layers · heads · head_dim.

        Latent attention multiplies keys of head_dim + rope_dim and values of head_dim numbers.

        >>> model("Llama-3.1-8B").attention_flop_per_pair
        524288
        """
        return 2 * self.layers * self.heads * (2 * self.head_dim + self.rope_dim)

    def kv_bytes_per_token(self, bytes_per_value: float = 2) -> float:
        """Return the cache's growth in bytes a token: 2 · layers · kv_heads · head_dim · bytes.

        Latent attention keeps layers · (latent + rope) values instead. Layers with a sliding
        window are counted in full, which is exact up to `window_tokens` of context.
        Raises ValueError unless bytes_per_value is above 0.

        >>> model("Qwen3-8B").kv_bytes_per_token(), model("Qwen3-8B").kv_bytes_per_token(1)
        (147456, 73728)
        """
        values = 2 * self.kv_heads * self.head_dim + self.kv_latent_dim
        if self.kv_latent_dim:
            values += self.rope_dim
        return self.layers * values * _above_zero("bytes_per_value", bytes_per_value)

    def kv_bytes(self, context_tokens: float, bytes_per_value: float = 2) -> float:
        """Return the bytes that one sequence's cache takes: windows keep only their own tokens.

        Raises ValueError unless context_tokens is at least 0 and bytes_per_value above 0.

        >>> model("gpt-oss-20b").kv_bytes(1128) / model("gpt-oss-20b").kv_bytes_per_token()
        628.0
        """
        if not (context_tokens >= 0 and math.isfinite(context_tokens)):
            raise ValueError(f"context_tokens={context_tokens!r} is no length; give 0 or more")
        beyond = max(0.0, context_tokens - self.window_tokens) if self.window_layers else 0.0
        kept = self.layers * context_tokens - self.window_layers * beyond
        return kept / self.layers * self.kv_bytes_per_token(bytes_per_value)

    def weight_bytes(
        self, bytes_per_parameter: float = 2, expert_bytes_per_parameter: float | None = None
    ) -> float:
        """Return the bytes of all weights; the experts' matrices may be stored more tightly.

        Raises ValueError unless both numbers are above 0.

        >>> round(model("Llama-3.1-8B").weight_bytes() / 2**30, 2)
        14.96
        >>> round(model("gpt-oss-20b").weight_bytes(2, 4.25 / 8) / 2**30, 1)
        12.8
        """
        per_other = _above_zero("bytes_per_parameter", bytes_per_parameter)
        if expert_bytes_per_parameter is None:
            return self.parameters * per_other
        per_expert = _above_zero("expert_bytes_per_parameter", expert_bytes_per_parameter)
        in_experts = self._moe_layers * self.experts * _expert_matrix_parameters(self)
        return (self.parameters - in_experts) * per_other + in_experts * per_expert

    @property
    def _moe_layers(self) -> int:
        return self.layers - self.dense_layers


@dataclass(frozen=True)
class Price:
    """What one seller asked for one GPU for an hour on one day; `checked_on` None if undated."""

    gpu: str
    seller: str
    offer: str
    usd_per_gpu_hour: float
    checked_on: date | None
    source: str
    note: str = ""


@dataclass(frozen=True)
class Source:
    """Where measurements came from: title, place, version, licence, whom to name, what to mind."""

    source: str
    title: str
    where: str
    version: str
    licence: str
    attribution: str
    note: str = ""


def gpus() -> tuple[Gpu, ...]:
    """Return every GPU of the catalogue, small to large.

    >>> [card.name for card in gpus()][:3]
    ['T4', 'L4', 'A10']
    """
    return table(Gpu, "gpus.csv")


def gpu(name: str) -> Gpu:
    """Return the GPU of that name (capitals do not matter); UnknownNameError if there is none.

    >>> gpu("h100-80gb-sxm").memory_bytes // 2**30
    79
    >>> gpu("H100")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    course.serving.catalog.tables.UnknownNameError: gpu='H100' is not known; did you mean ...
    """
    return named("gpu", name, {card.name: card for card in gpus()})


def models() -> tuple[Model, ...]:
    """Return every model of the catalogue, by family.

    >>> [shape.name for shape in models()][:2]
    ['Llama-2-7B', 'Llama-2-13B']
    """
    return table(Model, "models.csv")


def model(name: str) -> Model:
    """Return the model of that name, or the one of the same shape; UnknownNameError if none.

    >>> model("Llama-3.3-70B").name
    'Llama-3.1-70B'
    """
    by_name = {shape.name: shape for shape in models()}
    twins = {twin: shape for shape in models() for twin in shape.same_shape}
    return named("model", name, by_name | twins)


def prices(gpu: str | None = None) -> tuple[Price, ...]:
    """Return the dated prices in USD a GPU-hour, cheapest first for each GPU.

    Only those of one `gpu` if it is named; none if the catalogue has no price for it.
    Raises UnknownNameError if there is no such GPU.

    >>> [(price.seller, price.usd_per_gpu_hour) for price in prices("L4")]
    [('AWS', 0.8048)]
    """
    rows = table(Price, "prices.csv")
    if gpu is None:
        return rows
    card = named("gpu", gpu, {card.name: card for card in gpus()})
    return tuple(price for price in rows if price.gpu == card.name)


def sources() -> tuple[Source, ...]:
    """Return where the measurements and traces came from, with licences."""
    return table(Source, "sources.csv")


def source(name: str) -> Source:
    """Return the long form of a measurement's or trace's `source`; UnknownNameError if none.

    >>> source("azure-llm-2023").licence
    'CC-BY-4.0'
    """
    return named("source", name, {row.source: row for row in sources()})


def parameters_from_shape(model: Model) -> int:
    """Return the number of parameters that the shape implies.

    Embedding and output head (one matrix if tied), and in each layer attention, a feed-forward
    block or experts, and two norms or four; one norm at the end. It equals the published count of
    every model in the catalogue.

    >>> parameters_from_shape(models()[0])
    6738415616
    """
    tables = (1 if model.tied_embeddings else 2) * model.embedding_parameters
    per_layer = _attention_parameters(model) + model.norms_per_layer * model.hidden
    dense = model.dense_layers * 3 * model.hidden * model.intermediate
    moe = (model.layers - model.dense_layers) * _moe_parameters(model)
    return tables + model.layers * per_layer + dense + moe + model.hidden


def _attention_parameters(model: Model) -> int:
    h, heads, d = model.hidden, model.heads, model.head_dim
    if model.kv_latent_dim:
        # queries and keys/values pass through narrow latents, each with a norm; only the keys'
        # rope part is shared by the heads
        q, kv, rope = model.query_latent_dim, model.kv_latent_dim, model.rope_dim
        queries = h * q + q + q * heads * (d + rope)
        keys_and_values = h * (kv + rope) + kv + kv * heads * 2 * d
        return queries + keys_and_values + heads * d * h
    qkv = (heads + 2 * model.kv_heads) * d
    return (
        h * qkv
        + heads * d * h
        + (qkv if model.qkv_bias else 0)
        + (h if model.other_biases else 0)
        + (2 * d if model.qk_norm else 0)
        + (heads if model.attention_sinks else 0)
    )


def _moe_parameters(model: Model) -> int:
    biases = model.other_biases + model.expert_selection_bias  # one number each, an expert
    router = (model.hidden + biases) * model.experts
    matrices = (model.experts + model.shared_experts) * _expert_matrix_parameters(model)
    return router + matrices + model.experts * _expert_bias_parameters(model)


def _expert_matrix_parameters(model: Model) -> int:
    return 3 * model.hidden * model.expert_intermediate


def _expert_bias_parameters(model: Model) -> int:
    return (2 * model.expert_intermediate + model.hidden) if model.other_biases else 0


def _above_zero(name: str, value: float) -> float:
    if not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name}={value!r} is not above 0; give the bytes, such as 2 for bf16")
    return value
