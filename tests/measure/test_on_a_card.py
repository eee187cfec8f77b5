"""What only a CUDA card can show; left out without one. `tests/device/run.sh` runs these there."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from course.measure.bench import run_benches
from course.measure.checks import SHAPE
from course.measure.kernels import as_graph
from course.measure.record import BENCHES
from course.measure.timing import CudaClock
from course.measure.transformer import Decoder, model_numbers, weights_from
from tests.measure.tiny import TINY

torch: Any = pytest.importorskip("torch", reason="torch is optional; see README")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA card", allow_module_level=True)


def test_every_bench_runs_on_a_card() -> None:
    run = run_benches(device="cuda", plan=replace(TINY, pool_bytes=2**24))
    for name in BENCHES:
        assert run.of(name), f"{name} is missing: {run.left_out}"
    assert [check for check in run.checks if not check.passed] == []
    assert run.device.kind == "cuda"


def test_a_replayed_step_makes_the_token_of_an_eager_one() -> None:
    """A graph that replays stale operands would be fast and wrong."""
    rng = np.random.default_rng(1)
    flat = torch.tensor(rng.normal(0, 0.2, model_numbers(SHAPE)), dtype=torch.float32).cuda()
    weights, first = weights_from(flat, SHAPE), torch.tensor([[3], [7]]).cuda()
    with torch.inference_mode():
        decoder = Decoder(torch, SHAPE, flat, 2, 8)
        eager = decoder.decode(weights, first, 4, 1).clone()
        results: list[Any] = []

        def step(_: int) -> None:
            results[:] = [decoder.decode(weights, first, 4, 1)]

        replay = as_graph(torch, step)
        results[0].zero_()
        replay(0)
        torch.cuda.synchronize()
    assert torch.equal(results[0], eager)


def test_events_count_the_cards_time_not_the_hosts() -> None:
    """The host comes back at once from a long product; a host's clock would see next to nothing."""
    left = torch.randn(4096, 4096, device="cuda")

    def work() -> None:
        for _ in range(10):
            left @ left

    clock = CudaClock(torch)
    clock.seconds(work)
    assert clock.seconds(work) > 10 * 2 * 4096**3 / 1e15
