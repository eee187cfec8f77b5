"""The way a run takes on a card, walked on a CPU: torch with a `cuda` that is this CPU in disguise.

It shows that the code runs through and what it asks of torch, not that a card's times are right;
`test_on_a_card` does that where there is one. Needs torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from course.measure import bench, machine
from course.measure.bench import run_benches
from course.measure.kernels import as_graph
from course.measure.plans import CARD, QUICK_CARD
from course.measure.record import BENCHES
from course.measure.report import report
from course.measure.timing import CudaClock
from course.measure.transformer import cache_numbers, model_numbers
from tests.measure.tiny import TINY

pytestmark = pytest.mark.slow

torch: Any = pytest.importorskip("torch", reason="torch is optional; see README")


class _Event:
    def __init__(self, enable_timing: bool = False) -> None:
        self.at_s = 0.0

    def record(self) -> None:
        self.at_s = time.perf_counter()

    def synchronize(self) -> None:
        pass

    def elapsed_time(self, end: _Event) -> float:
        return 1e3 * (end.at_s - self.at_s)


class Disguised:
    """Torch whose device `cuda` is the CPU. `asked` lists what its `cuda` was asked to do."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.version = SimpleNamespace(cuda="13.0")
        self.cuda = SimpleNamespace(
            init=lambda: None, device_count=lambda: 1, Event=_Event,
            synchronize=lambda: self.asked.append("synchronize"),
            empty_cache=lambda: self.asked.append("empty_cache"),
            mem_get_info=lambda: (2**30, 2**30),
            get_device_properties=lambda index: SimpleNamespace(
                name="A disguise", multi_processor_count=2, major=9, minor=0, L2_cache_size=2**18
            ),
            Stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
            current_stream=lambda: SimpleNamespace(wait_stream=lambda other: None),
            stream=self._stream, CUDAGraph=self._graph, graph=self._capture,
        )  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        real = getattr(torch, name)
        if name not in ("empty", "randn", "randint", "tensor", "Generator", "ones", "arange"):
            return real

        def on_cpu(*values: Any, device: Any = "cpu", **named: Any) -> Any:
            return real(*values, device="cpu", **named)

        return on_cpu

    @contextmanager
    def _stream(self, stream: Any) -> Iterator[None]:
        self.asked.append("side stream")
        yield

    def _graph(self) -> Any:
        return SimpleNamespace(replay=lambda: self.asked.append("replay"))

    @contextmanager
    def _capture(self, graph: Any) -> Iterator[None]:
        self.asked.append("capture")
        yield


@pytest.fixture
def disguised(monkeypatch: pytest.MonkeyPatch) -> Disguised:
    found = Disguised()
    monkeypatch.setattr(found, "get_num_threads", lambda: 1, raising=False)
    monkeypatch.setattr(bench, "need_torch", lambda: found)
    monkeypatch.setattr(machine, "nvidia_smi", lambda fields, card: dict.fromkeys(fields, "1410"))
    return found


def test_every_bench_of_a_card_is_walked_through(disguised: Disguised) -> None:
    run = run_benches(device="auto", plan=replace(TINY, pool_bytes=2**21))
    for name in BENCHES:
        assert run.of(name), f"{name} is missing: {run.left_out}"
    assert run.left_out == ()
    assert (run.device.kind, run.device.driver) == ("cuda", "1410")
    assert run.device.clocks_mhz["sm_before"] == 1410
    assert run.device.clocks_mhz["sm_after_matmul_bf16"] == 1410
    assert "in a CUDA graph" in report(run)
    assert disguised.asked.count("empty_cache") >= 14


@pytest.mark.deep
def test_a_step_that_cannot_be_recorded_leaves_the_eager_one(
    disguised: Disguised, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def refuses(graph: Any) -> Iterator[None]:
        raise RuntimeError("operation not permitted when stream is capturing")
        yield

    monkeypatch.setattr(disguised.cuda, "graph", refuses)
    run = run_benches(device="cuda", plan=TINY)
    assert len(run.of("model_decode", "bf16")) == 2
    assert run.of("launch_eager")
    assert not run.of("launch_graph")
    assert sum("when stream is capturing" in left.reason for left in run.left_out) == 5


def test_a_graph_is_recorded_once_after_warming_up(disguised: Disguised) -> None:
    """Libraries set themselves up in their first calls, and may not while a graph is recorded."""
    calls: list[int] = []
    replay: Callable[[int], object] = as_graph(disguised, calls.append)
    assert calls == [0] * 4
    assert disguised.asked == ["side stream", "capture"]
    replay(5)
    assert disguised.asked[-1] == "replay"
    assert calls == [0] * 4


def test_events_are_read_in_seconds() -> None:
    seconds = CudaClock(Disguised()).seconds(lambda: time.sleep(0.02))
    assert 0.02 <= seconds < 20


@pytest.mark.parametrize("plan", [CARD, QUICK_CARD])
def test_a_card_of_24_gb_can_hold_most_of_the_plan(plan: Any) -> None:
    """The plan's own sizes: in bf16 nothing may need more than such a card has beside the pool."""
    pool = min(plan.pool_bytes, 12 * 2**30)
    assert 2 * model_numbers(plan.model) <= pool
    largest = max(
        cache_numbers(plan.model, batch, context + plan.model_steps)
        for batch, context in plan.model_contexts
    )
    assert 2 * largest + pool < 22 * 2**30
    assert all(2 * 2 * n * n <= pool for n in plan.matmul_sizes)
    assert all(2 * wide * out <= pool for wide, out in plan.gemm_widths)
    assert all(
        2 * 2 * batch * context * plan.heads * plan.head_dim <= pool
        for batch, context in plan.decode_contexts
    )
