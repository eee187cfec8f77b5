"""The plain float64 side, held against what can be worked out on paper; needs no torch."""

from __future__ import annotations

import math

import numpy as np
import pytest

from course.measure.record import ModelShape
from course.measure.reference import attention, causal_attention, model_logits, relative_error
from course.measure.transformer import model_numbers


def test_attention_by_hand() -> None:
    """Two keys, scores ln 3 and 0 after scaling: the values count three to one."""
    keys = np.array([[math.log(3) * math.sqrt(2), 0.0], [0.0, 5.0]])
    values = np.array([[4.0, 0.0], [0.0, 8.0]])
    assert attention(np.array([1.0, 0.0]), keys, values) == pytest.approx([3.0, 2.0])


def test_the_first_token_sees_only_itself() -> None:
    rng = np.random.default_rng(1)
    query, keys, values = rng.normal(size=(3, 5, 4))
    assert causal_attention(query, keys, values)[0] == pytest.approx(values[0])


def test_a_later_token_changes_no_earlier_logits() -> None:
    """What causal means: otherwise a KV cache could not be kept at all."""
    rng = np.random.default_rng(2)
    shape = ModelShape(layers=2, hidden=8, heads=2, intermediate=12, vocabulary=10)
    flat = rng.normal(0, 0.3, model_numbers(shape))
    one = model_logits(flat, shape, np.array([1, 2, 3, 4]))
    other = model_logits(flat, shape, np.array([1, 2, 3, 9]))
    assert one[:3] == pytest.approx(other[:3], abs=1e-14)
    assert not np.allclose(one[3], other[3])


def test_order_matters_through_positions() -> None:
    rng = np.random.default_rng(3)
    shape = ModelShape(layers=1, hidden=8, heads=2, intermediate=12, vocabulary=10)
    flat = rng.normal(0, 0.3, model_numbers(shape))
    one = model_logits(flat, shape, np.array([1, 2, 3]))[-1]
    other = model_logits(flat, shape, np.array([2, 1, 3]))[-1]
    assert not np.allclose(one, other)


def test_nonsense_is_infinitely_wrong() -> None:
    assert relative_error([1.0, math.nan], [1.0, 2.0]) == math.inf
    assert relative_error([1.0], [1.0, 2.0]) == math.inf
