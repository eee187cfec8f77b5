"""Holds every measured operation against plain float64; nothing is timed here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from course.measure import reference
from course.measure.record import Check, ModelShape
from course.measure.transformer import Decoder, model_numbers, weights_from

SHAPE = ModelShape(layers=2, hidden=32, heads=4, intermediate=48, vocabulary=64)
"""Small enough that the plain reference takes milliseconds."""

# Round-off that these sizes can explain: float32 and bfloat16 carry 24 and 8 binary digits. Over 60
# draws the worst were a third of these; a mistake in a mask or a position is off by about 1.
ALLOWED = {"fp32": 1e-5, "bf16": 1e-2}
ALLOWED_MODEL = {"fp32": 1e-4, "bf16": 1e-1}
_MODEL = "small transformer, prefill and decode loop"


def run_checks(torch: Any, device: str, precision: str, dtype: Any, seed: int) -> list[Check]:
    """Return one check an operation, in one precision, on fresh random numbers.

    An operation that the device cannot do has an infinite error.
    """
    found = []
    for name, error in _operations(torch, device, dtype, np.random.default_rng(seed)):
        try:
            size = error()
        except RuntimeError:
            size = float("inf")
        # JSON knows no infinity; an error of 1e9 reads as plainly wrong too
        allowed = (ALLOWED_MODEL if name == _MODEL else ALLOWED)[precision]
        found.append(Check(name, precision, min(size, 1e9), allowed))
    return found


def _operations(
    torch: Any, device: str, dtype: Any, rng: np.random.Generator
) -> Iterator[tuple[str, Callable[[], float]]]:
    def rounded(*shape: int, scale: float = 1.0) -> tuple[Any, np.ndarray[Any, Any]]:
        """Random numbers on the device, and the very same ones (after rounding) in float64."""
        tensor = torch.tensor(rng.normal(0.0, scale, shape), dtype=dtype, device=device)
        return tensor, tensor.double().cpu().numpy()

    def plain(tensor: Any) -> np.ndarray[Any, Any]:
        return np.asarray(tensor.double().cpu().numpy())

    def copy() -> float:
        source, exact = rounded(1000)
        return reference.relative_error(plain(torch.empty_like(source).copy_(source)), exact)

    def product() -> float:
        (left, exact_left), (right, exact_right) = rounded(37, 96), rounded(51, 96)
        found = torch.nn.functional.linear(left, right)
        return reference.relative_error(plain(found), exact_left @ exact_right.T)

    def attention(causal: bool) -> float:
        count = 24
        query, exact_query = rounded(2, 3, count if causal else 1, 16)
        (keys, exact_keys), (values, exact_values) = (
            rounded(2, 3, count, 16),
            rounded(2, 3, count, 16),
        )
        found = torch.nn.functional.scaled_dot_product_attention(
            query, keys, values, is_causal=causal
        )
        expected = np.empty(found.shape)
        for where in np.ndindex(2, 3):
            sides = (exact_query[where], exact_keys[where], exact_values[where])
            if causal:
                expected[where] = reference.causal_attention(*sides)
            else:
                expected[where] = reference.attention(sides[0][0], *sides[1:])
        return reference.relative_error(plain(found), expected)

    def model() -> float:
        flat, exact = rounded(model_numbers(SHAPE), scale=0.2)
        return model_error(torch, device, flat, exact, rng)

    yield "copy", copy
    yield "matrix product", product
    yield "decode attention", lambda: attention(False)
    yield "prefill attention", lambda: attention(True)
    yield _MODEL, model


def model_error(
    torch: Any, device: str, flat: Any, exact: np.ndarray[Any, Any], rng: np.random.Generator,
    decoder_type: type[Decoder] = Decoder,
) -> float:  # fmt: skip
    """Return the error of the cached model's logits: a prompt of 7 tokens, then 6 decode steps.

    Two sequences side by side; every step's logits count, not the last alone.
    """
    prompt, steps = 7, 6
    tokens = rng.integers(SHAPE.vocabulary, size=(2, prompt + steps))
    expected = np.array([reference.model_logits(exact, SHAPE, row) for row in tokens])
    given = torch.tensor(tokens, device=device)
    weights = weights_from(flat, SHAPE)
    decoder = decoder_type(torch, SHAPE, flat, batch=2, room=prompt + steps)
    found = [decoder.logits(weights, given[:, :prompt], 0)]
    found += [
        decoder.logits(weights, given[:, at : at + 1], at) for at in range(prompt, prompt + steps)
    ]
    logits = torch.stack(found, dim=1).double().cpu().numpy()
    return reference.relative_error(logits, expected[:, prompt - 1 :])
