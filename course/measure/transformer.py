"""A small decoder in torch with a KV cache, its prefill and its decode loop; not its reference.

Multi-head attention, SwiGLU, rotary positions, norms without gains, no biases: what an LLM's step
is made of, and nothing to train. `course.measure.reference` computes the same in plain float64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from course.measure.kernels import Bench, as_graph
from course.measure.record import LeftOut, ModelShape
from course.measure.timing import Case

ROTARY_BASE = 10_000.0
NORM_EPSILON = 1e-6


def layer_parts(shape: ModelShape) -> dict[str, tuple[int, int]]:
    """Return a layer's matrices in the order in which they are stored: (width out, width in)."""
    return {
        "qkv": (3 * shape.hidden, shape.hidden),
        "output": (shape.hidden, shape.hidden),
        "gate_up": (2 * shape.intermediate, shape.hidden),
        "down": (shape.hidden, shape.intermediate),
    }


def model_numbers(shape: ModelShape) -> int:
    """Return how many numbers the whole model has, embedding and head included."""
    return shape.matrix_parameters + shape.vocabulary * shape.hidden


@dataclass(frozen=True)
class Weights:
    """The model's matrices: embedding, one dict a layer, output head."""

    embedding: Any
    layers: tuple[dict[str, Any], ...]
    head: Any


def weights_from(flat: Any, shape: ModelShape) -> Weights:
    """Cut the matrices out of `model_numbers(shape)` numbers in a row, torch's or numpy's."""
    at = 0

    def take(out: int, wide: int) -> Any:
        nonlocal at
        piece = flat[at : at + out * wide].reshape(out, wide)
        at += out * wide
        return piece

    embedding = take(shape.vocabulary, shape.hidden)
    layers = tuple(
        {name: take(*size) for name, size in layer_parts(shape).items()}
        for _ in range(shape.layers)
    )
    return Weights(embedding, layers, take(shape.vocabulary, shape.hidden))


def cache_numbers(shape: ModelShape, batch: int, room: int) -> int:
    """Return how many numbers the KV cache of `batch` sequences of `room` tokens has."""
    return batch * room * shape.kv_bytes_per_token(1)


class Decoder:
    """The model on a device, with room for `batch` sequences of up to `room` tokens.

    `like`: any tensor of the device and precision. `space`: numbers for the KV cache, at least
    `cache_numbers(shape, batch, room)` of them; its own, random ones if left out.
    """

    def __init__(
        self, torch: Any, shape: ModelShape, like: Any, batch: int, room: int, space: Any = None
    ) -> None:
        self._torch, self._shape = torch, shape
        numbers = cache_numbers(shape, batch, room)
        if space is None:
            space = torch.randn((numbers,), device=like.device).to(like.dtype)
        self._cache = space[:numbers].view(
            shape.layers, 2, batch, shape.heads, room, shape.head_dim
        )
        steps = torch.arange(shape.head_dim // 2, dtype=torch.float64)
        speeds = ROTARY_BASE ** (-2.0 * steps / shape.head_dim)
        angles = torch.arange(room, dtype=torch.float64)[:, None] * speeds
        self._cos = angles.cos().to(device=like.device, dtype=like.dtype)[:, None, None]
        self._sin = angles.sin().to(device=like.device, dtype=like.dtype)[:, None, None]

    def logits(self, weights: Weights, tokens: Any, position: int) -> Any:
        """Return the logits after the last of `tokens` (batch, count), which start at `position`.

        A count above 1 must start at position 0: a prompt is read whole.
        """
        functional = self._torch.nn.functional
        x = functional.embedding(tokens, weights.embedding)
        for i, layer in enumerate(weights.layers):
            x = x + self._attention(layer, self._norm(x), i, position)
            gate, up = functional.linear(self._norm(x), layer["gate_up"]).chunk(2, dim=-1)
            x = x + functional.linear(functional.silu(gate) * up, layer["down"])
        return functional.linear(self._norm(x[:, -1]), weights.head)

    def _norm(self, x: Any) -> Any:
        return self._torch.nn.functional.rms_norm(x, (self._shape.hidden,), eps=NORM_EPSILON)

    def _attention(self, layer: dict[str, Any], x: Any, index: int, position: int) -> Any:
        """Attend from the new tokens to all until them; their keys and values go to the cache."""
        functional, shape = self._torch.nn.functional, self._shape
        batch, count = x.shape[0], x.shape[1]
        end = position + count
        split = (batch, count, 3, shape.heads, shape.head_dim)
        qkv = functional.linear(x, layer["qkv"]).view(split)
        turned = self._turn(qkv[:, :, :2], position, end)
        keys, values = self._cache[index, 0], self._cache[index, 1]
        keys[:, :, position:end] = turned[:, :, 1].transpose(1, 2)
        values[:, :, position:end] = qkv[:, :, 2].transpose(1, 2)
        mixed = functional.scaled_dot_product_attention(
            turned[:, :, 0].transpose(1, 2), keys[:, :, :end], values[:, :, :end],
            is_causal=count > 1,
        )  # fmt: skip
        return functional.linear(mixed.transpose(1, 2).reshape(batch, count, -1), layer["output"])

    def _turn(self, pairs: Any, start: int, end: int) -> Any:
        """Turn queries and keys by their position; number i is paired with number i + half."""
        first, second = pairs.chunk(2, dim=-1)
        cos, sin = self._cos[start:end], self._sin[start:end]
        return self._torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)

    def decode(self, weights: Weights, tokens: Any, position: int, steps: int) -> Any:
        """Make `steps` tokens greedily from `tokens` (batch, 1) at `position`; return the last."""
        for step in range(steps):
            tokens = self.logits(weights, tokens, position + step).argmax(dim=-1, keepdim=True)
        return tokens


def _weight_sets(bench: Bench, shape: ModelShape) -> list[Weights]:
    return [weights_from(flat, shape) for (flat,) in bench.pool.cuts((model_numbers(shape),))]


class _Space:
    """Room for the KV caches of all sizes of a bench, which run in turn and never side by side.

    Ask for the largest first. The numbers are random and not 0: a decode step that is timed on its
    own reads what no prefill wrote.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench, self._flat = bench, None

    def decoder(self, shape: ModelShape, batch: int, room: int) -> Decoder:
        bench, numbers = self._bench, cache_numbers(shape, batch, room)
        if self._flat is None or self._flat.numel() < numbers:
            self._flat = bench.torch.empty_like(bench.pool.flat[:1]).new_empty(numbers).normal_()
        return Decoder(bench.torch, shape, bench.pool.flat, batch, room, self._flat)


def _random_tokens(bench: Bench, shape: ModelShape, batch: int, count: int) -> Any:
    return bench.torch.randint(shape.vocabulary, (batch, count), device=bench.device)


def prefill_cases(bench: Bench, shape: ModelShape, sizes: Sequence[tuple[int, int]]) -> list[Case]:
    """Return whole prompts read at once, for (batch, prompt) pairs.

    The head works on the last token alone. Bytes are the weights, and the KV cache written and
    read once; operations those of the matrices and of the causal pairs.
    """

    space = _Space(bench)

    def one(size: tuple[int, int]) -> Case:
        batch, prompt = size
        sets = _weight_sets(bench, shape)
        tokens = _random_tokens(bench, shape, batch, prompt)
        decoder = space.decoder(shape, batch, prompt)

        def call(i: int) -> Any:
            return decoder.logits(sets[i % len(sets)], tokens, 0)

        head = shape.hidden * shape.vocabulary
        dense = batch * (prompt * (shape.matrix_parameters - head) + head)
        pairs = batch * prompt * (prompt + 1) // 2
        return bench.case(
            "model_prefill", {"batch": batch, "prompt_tokens": prompt},
            shape.matrix_parameters + 2 * batch * prompt * shape.kv_bytes_per_token(1),
            2 * dense + 4 * shape.layers * shape.hidden * pairs, call,
        )  # fmt: skip

    return _largest_first(bench, "model_prefill", one, sorted(sizes, key=math.prod))


def decode_cases(
    bench: Bench, shape: ModelShape, sizes: Sequence[tuple[int, int]], steps: int
) -> list[Case]:
    """Return decode loops of `steps` steps after a context, for (batch, context) pairs.

    Every call starts again at the same context; a step's bytes are the weights and the KV cache at
    the loop's middle. On a card each size comes once more as a graph of one step.
    """
    space, ordered = _Space(bench), sorted(sizes, key=math.prod)
    make = _decoding(bench, space, shape, steps)
    cases = _largest_first(bench, "model_decode", make, ordered)
    if bench.device == "cuda":
        replayed = _decoding(bench, space, shape, 1, as_one_graph=True)
        cases += _largest_first(bench, "model_decode_graph", replayed, ordered)
    else:
        bench.left_out.append(LeftOut("model_decode_graph", "a CPU has no CUDA graphs to replay"))
    return cases


def _largest_first(
    bench: Bench,
    name: str,
    make: Callable[[tuple[int, int]], Case],
    ordered: Sequence[tuple[int, int]],
) -> list[Case]:
    """Prepare the sizes from the last to the first, so that one space serves all."""
    return bench.each(name, make, ordered[::-1])[::-1]


def _decoding(
    bench: Bench, space: _Space, shape: ModelShape, steps: int, as_one_graph: bool = False
) -> Callable[[tuple[int, int]], Case]:
    """Return what makes the case of one (batch, context) pair, as a loop or as a graph."""

    def one(size: tuple[int, int]) -> Case:
        batch, context = size
        sets = _weight_sets(bench, shape)
        first = _random_tokens(bench, shape, batch, 1)
        decoder = space.decoder(shape, batch, context + steps)

        def loop(i: int) -> Any:
            return decoder.decode(sets[i % len(sets)], first, context, steps)

        call = as_graph(bench.torch, loop) if as_one_graph else loop
        kv_tokens = batch * (context + (steps + 1) / 2)
        numbers = shape.matrix_parameters + round(kv_tokens * shape.kv_bytes_per_token(1))
        flops = 2 * batch * shape.matrix_parameters
        flops += round(4 * shape.layers * shape.hidden * kv_tokens)
        name = "model_decode_graph" if as_one_graph else "model_decode"
        sizes = {"batch": batch, "context_tokens": context}
        return bench.case(name, sizes, numbers, flops, call, units=steps)

    return one
