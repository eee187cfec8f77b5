"""The measured transformer computes what a transformer computes, cache and all; needs torch."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from course.measure import reference
from course.measure.checks import ALLOWED_MODEL, SHAPE, model_error, run_checks
from course.measure.fitting import SMALL_KERNELS_PER_LAYER, SMALL_KERNELS_PER_STEP
from course.measure.record import ModelShape
from course.measure.transformer import Decoder, model_numbers, weights_from

pytestmark = pytest.mark.slow

torch: Any = pytest.importorskip("torch", reason="torch is optional; see README")

SEEDS = range(5)


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_every_operation_agrees_with_plain_float64(precision: str, seed: int) -> None:
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    with torch.inference_mode():
        wrong = [c for c in run_checks(torch, "cpu", precision, dtype, seed) if not c.passed]
    assert wrong == []


def test_in_float64_the_model_is_the_reference_to_the_last_digits() -> None:
    """With no round-off to hide behind: a formula that differs shows at 1e-12."""
    rng = np.random.default_rng(1)
    exact = rng.normal(0, 0.2, model_numbers(SHAPE))
    with torch.inference_mode():
        assert model_error(torch, "cpu", torch.tensor(exact), exact, rng) < 1e-12


class _OneTooFew(Decoder):
    """Looks at all tokens but the newest one."""

    def logits(self, weights: Any, tokens: Any, position: int) -> Any:
        return super().logits(weights, tokens, max(position - 1, 0))


class _NoPositions(Decoder):
    """Has forgotten where its tokens stand."""

    def _turn(self, pairs: Any, start: int, end: int) -> Any:
        return pairs


class _SlidesPositions(Decoder):
    """Turns every new token as if it stood at the start: right for the prompt, wrong after it."""

    def _turn(self, pairs: Any, start: int, end: int) -> Any:
        return super()._turn(pairs, 0, end - start)


class _SeesTheFuture(Decoder):
    """Reads the prompt without a causal mask."""

    def _attention(self, layer: dict[str, Any], x: Any, index: int, position: int) -> Any:
        functional = self._torch.nn.functional
        real = functional.scaled_dot_product_attention

        def open_eyed(query: Any, keys: Any, values: Any, is_causal: bool) -> Any:
            return real(query, keys, values)

        functional.scaled_dot_product_attention = open_eyed
        try:
            return super()._attention(layer, x, index, position)
        finally:
            functional.scaled_dot_product_attention = real


@pytest.mark.parametrize("wrong", [_OneTooFew, _NoPositions, _SlidesPositions, _SeesTheFuture])
def test_the_check_finds_what_people_get_wrong(wrong: type[Decoder]) -> None:
    """A check that lets a broken cache pass would certify the speed of a wrong computation."""
    rng = np.random.default_rng(2)
    exact = rng.normal(0, 0.2, model_numbers(SHAPE))
    with torch.inference_mode():
        error = model_error(torch, "cpu", torch.tensor(exact), exact, rng, wrong)
    assert error > ALLOWED_MODEL["bf16"]


def test_the_decode_loop_feeds_its_tokens_back() -> None:
    """The loop that is timed makes the tokens that plain recomputation makes, one by one."""
    rng = np.random.default_rng(3)
    exact = rng.normal(0, 0.2, model_numbers(SHAPE))
    prompt, steps = rng.integers(SHAPE.vocabulary, size=5), 6
    expected = list(prompt)
    for _ in range(steps + 1):
        logits = reference.model_logits(exact, SHAPE, np.array(expected))
        expected.append(int(logits[-1].argmax()))
    weights = weights_from(torch.tensor(exact), SHAPE)
    with torch.inference_mode():
        decoder = Decoder(torch, SHAPE, torch.tensor(exact), batch=1, room=5 + steps)
        first = decoder.logits(weights, torch.tensor(prompt)[None], 0).argmax(-1, keepdim=True)
        last = decoder.decode(weights, first, position=5, steps=steps)
    assert int(first) == expected[5]
    assert int(last) == expected[-1]


def test_a_batch_is_several_sequences_that_do_not_meet() -> None:
    rng = np.random.default_rng(4)
    flat = torch.tensor(rng.normal(0, 0.2, model_numbers(SHAPE)))
    tokens = torch.tensor(rng.integers(SHAPE.vocabulary, size=(3, 6)))
    weights = weights_from(flat, SHAPE)
    with torch.inference_mode():
        together = Decoder(torch, SHAPE, flat, 3, 6).logits(weights, tokens, 0)
        alone = [Decoder(torch, SHAPE, flat, 1, 6).logits(weights, t[None], 0) for t in tokens]
    assert torch.allclose(together, torch.cat(alone), atol=1e-12)


def test_the_weights_are_all_there_and_nowhere_twice() -> None:
    shape = ModelShape(layers=3, hidden=12, heads=2, intermediate=20, vocabulary=30)
    flat = np.arange(model_numbers(shape))
    weights = weights_from(flat, shape)
    pieces = [weights.embedding, weights.head, *(m for x in weights.layers for m in x.values())]
    assert sorted(np.concatenate([piece.ravel() for piece in pieces])) == list(flat)
    assert sum(m.size for x in weights.layers for m in x.values()) + weights.head.size == (
        shape.matrix_parameters
    )


def test_the_small_kernels_of_a_step_are_counted_right() -> None:
    """A prediction from single kernels pays a launch for each: the count must be the code's."""
    from torch.utils._python_dispatch import TorchDispatchMode

    views = {"slice", "select", "transpose", "view", "chunk", "reshape"}
    priced_apart = {"linear", "scaled_dot_product_attention"}

    class Counting(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: Counter[str] = Counter()

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            self.seen[str(func).split(".")[1]] += 1
            return func(*args, **(kwargs or {}))

    def small_kernels(layers: int) -> int:
        shape = ModelShape(layers, hidden=16, heads=2, intermediate=24, vocabulary=20)
        flat = torch.randn(model_numbers(shape))
        tokens = torch.zeros((2, 1), dtype=torch.long)
        with torch.inference_mode():
            decoder = Decoder(torch, shape, flat, 2, 8)
            with Counting() as counting:
                decoder.decode(weights_from(flat, shape), tokens, 3, 1)
        return sum(n for name, n in counting.seen.items() if name not in views | priced_apart)

    assert small_kernels(3) - small_kernels(2) == SMALL_KERNELS_PER_LAYER
    assert small_kernels(2) == 2 * SMALL_KERNELS_PER_LAYER + SMALL_KERNELS_PER_STEP
