"""The measured operations once more in plain float64 numpy, token by token; nothing fast is here.

Written to be read beside the formulas: no cache, no batching of sequences, no shared code with what
is measured except how the weights are cut out of a flat array.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from course.measure.record import ModelShape
from course.measure.transformer import NORM_EPSILON, ROTARY_BASE, weights_from

Array = npt.NDArray[np.float64]


def attention(query: Array, keys: Array, values: Array) -> Array:
    """Return what one query (head_dim) takes from keys and values (tokens, head_dim).

    Softmax of the scaled dot products, as in Vaswani et al. 2017.

    >>> attention(np.array([0.0, 0.0]), np.eye(2), np.array([[2.0, 0.0], [4.0, 0.0]]))
    array([3., 0.])
    """
    scores = keys @ query / np.sqrt(len(query))
    shares = np.exp(scores - scores.max())
    return np.asarray(shares @ values / shares.sum())


def causal_attention(query: Array, keys: Array, values: Array) -> Array:
    """Return a head's attention of all tokens (tokens, head_dim): each looks at those until it."""
    rows = [attention(query[i], keys[: i + 1], values[: i + 1]) for i in range(len(query))]
    return np.array(rows)


def model_logits(flat: Array, shape: ModelShape, tokens: npt.NDArray[np.int64]) -> Array:
    """Return the logits (tokens, vocabulary) after every token of one sequence.

    `flat` holds the weights as `weights_from` cuts them.
    """
    weights = weights_from(flat, shape)
    rows = [np.asarray(weights.embedding[token], dtype=np.float64) for token in tokens]
    for layer in weights.layers:
        mixed = _mixed([layer["qkv"] @ _normed(row) for row in rows], shape)
        rows = [row + layer["output"] @ mix for row, mix in zip(rows, mixed, strict=True)]
        rows = [row + _swiglu(layer["gate_up"], layer["down"], _normed(row)) for row in rows]
    return np.array([weights.head @ _normed(row) for row in rows])


def _mixed(rows: list[Array], shape: ModelShape) -> list[Array]:
    """Return every token's heads, mixed and joined, from its queries, keys and values in a row."""
    heads, width = shape.heads, shape.head_dim
    parts = np.array(rows).reshape(len(rows), 3, heads, width)
    joined = np.empty((len(rows), heads, width))
    for head in range(heads):
        query = np.array([_turned(parts[at, 0, head], at) for at in range(len(rows))])
        keys = np.array([_turned(parts[at, 1, head], at) for at in range(len(rows))])
        joined[:, head] = causal_attention(query, keys, parts[:, 2, head])
    return list(joined.reshape(len(rows), heads * width))


def _turned(vector: Array, position: int) -> Array:
    """Return the vector with its pairs (i, i + half) turned as complex numbers (Su et al. 2021)."""
    half = len(vector) // 2
    speed = ROTARY_BASE ** (-2.0 * np.arange(half) / len(vector))
    turned = (vector[:half] + 1j * vector[half:]) * np.exp(1j * position * speed)
    return np.concatenate((turned.real, turned.imag))


def _normed(row: Array) -> Array:
    return np.asarray(row / np.sqrt(np.mean(row * row) + NORM_EPSILON))


def _swiglu(gate_up: Array, down: Array, row: Array) -> Array:
    gate, up = np.split(gate_up @ row, 2)
    return np.asarray(down @ (gate / (1 + np.exp(-gate)) * up))


def relative_error(found: npt.ArrayLike, expected: npt.ArrayLike) -> float:
    """Return the largest difference over the largest expected value; infinite for NaN or shape.

    >>> relative_error([1.0, 2.1], [1.0, 2.0])
    0.050000000000000044
    """
    one, other = np.asarray(found, dtype=np.float64), np.asarray(expected, dtype=np.float64)
    if one.shape != other.shape or not np.isfinite(one).all():
        return float("inf")
    return float(np.abs(one - other).max() / np.abs(other).max())
