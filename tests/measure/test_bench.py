"""A whole run on the CPU, at small sizes: everything is measured, kept, and in time.

These need torch, and are left out where it is not installed; the stopwatch and the fit have tests
of their own that do not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from course.measure import bench, kernels, machine
from course.measure.bench import run_benches
from course.measure.fitting import fit_record
from course.measure.kernels import Bench
from course.measure.pool import Pool, pool_bytes
from course.measure.record import BENCHES, Record, load_record, save_record
from course.measure.report import report
from course.measure.timing import Case, Deadline
from tests.measure.tiny import TINY

pytestmark = pytest.mark.slow

torch: Any = pytest.importorskip("torch", reason="torch is optional; see README")

ON_A_CPU = set(BENCHES) - {"launch_graph", "model_decode_graph"}


@pytest.fixture(autouse=True)
def _small_cache(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cache of 256 KiB, so that the random numbers are made in no time; and torch as it was."""
    monkeypatch.setattr(machine, "last_level_cache_bytes", lambda: 2**18)
    before = torch.get_num_threads(), torch.get_float32_matmul_precision()
    yield
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == before


@pytest.fixture(scope="module")
def record() -> Record:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "last_level_cache_bytes", lambda: 2**18)
        return run_benches(device="cpu", seed=3, threads=1, plan=TINY)


def test_every_bench_is_measured_in_every_precision(record: Record) -> None:
    for name in ON_A_CPU - {"copy", "launch_eager"}:
        for precision in ("fp32", "bf16"):
            assert record.of(name, precision), f"{name} {precision} is missing"
    assert len(record.of("copy")) == 2
    assert len(record.of("launch_eager")) == 1
    reasons = {left.reason for left in record.left_out}
    assert reasons == {"a CPU has no CUDA graphs to replay"}, record.left_out


def test_every_operation_is_right_in_float64(record: Record) -> None:
    assert {check.precision for check in record.checks} == {"fp32", "bf16"}
    assert len(record.checks) == 10
    assert [check for check in record.checks if not check.passed] == []


def test_the_run_says_what_it_ran_on(record: Record, tmp_path: Path) -> None:
    assert record.device.torch == torch.__version__
    assert record.device.threads == 1
    assert record.seed == 3
    assert record.spent_s < record.budget_s
    assert load_record(save_record(record, tmp_path / "x.json")) == record
    assert "Weights read once" in report(record)
    assert fit_record(record, "bf16").decode_attention is not None


def test_bytes_and_operations_are_those_of_the_mathematics(record: Record) -> None:
    """Counted by hand; a wrong count would move every point of the roofline."""

    def one(name: str, **shape: int) -> tuple[int, int]:
        found = [p for p in record.of(name, "fp32") if shape.items() <= p.shape.items()]
        assert len(found) == 1
        return found[0].bytes, found[0].flops

    assert one("copy", buffer_bytes=4096) == (8192, 0)
    assert one("matmul", size=32) == (4 * 3 * 1024, 2 * 32**3)
    # 64·128 weights, 16 vectors of 64 in and of 128 out
    assert one("decode_gemm", batch=16, width_in=64) == (
        4 * (64 * 128 + 16 * 192), 2 * 16 * 64 * 128
    )  # fmt: skip
    # 4 sequences, 2 heads of 8: keys and values of 32 tokens, a query and a result each;
    # a dot product and a weighted sum, 2 operations each
    assert one("decode_attention", batch=4, context_tokens=32) == (
        4 * (2 * 4 * 16 * 32 + 2 * 4 * 16), 4 * 4 * 16 * 32
    )  # fmt: skip
    assert one("prefill_attention", prompt_tokens=16) == (4 * 4 * 16 * 16, 4 * 16 * (16 * 17 // 2))
    # layers: 2·(4·32·32 + 3·32·48) = 17,408 numbers; head 32·64 = 2,048; a token's KV 2·2·32 = 128
    kv_tokens = 4 * (8 + 1.5)
    assert one("model_decode", batch=4) == (
        4 * (17_408 + 2_048 + kv_tokens * 128),
        2 * 4 * 19_456 + 4 * 2 * 32 * kv_tokens,
    )
    assert one("model_prefill", batch=2) == (
        4 * (19_456 + 2 * 2 * 16 * 128),
        2 * 2 * (16 * 17_408 + 2_048) + 4 * 2 * 32 * 2 * (16 * 17 // 2),
    )


def test_operands_are_fresh_in_every_run_and_the_same_for_a_seed() -> None:
    def numbers(seed: int) -> Any:
        return Pool(torch, "cpu", torch.float32, 1000, seed).flat

    assert torch.equal(numbers(1), numbers(1))
    assert not torch.equal(numbers(1), numbers(2))
    assert 0.02 < float(numbers(1).std()) < 0.04
    first = run_benches(device="cpu", threads=1, plan=replace(TINY, precisions=("fp32",)))
    second = run_benches(device="cpu", threads=1, plan=replace(TINY, precisions=("fp32",)))
    assert first.seed != second.seed


def test_the_operands_in_turn_exceed_the_cache() -> None:
    """Weights that stay in the cache would be read many times faster than a server can."""
    assert pool_bytes(2**20, 100, 2**30) == 2 * 2**20
    pool = Pool(torch, "cpu", torch.bfloat16, 10_000, 1)
    sets = pool.cuts((7, 10), (30,))
    assert len(sets) == 100
    starts = {(one[0].data_ptr(), one[1].data_ptr()) for one in sets}
    assert len({place for pair in starts for place in pair}) == 200
    assert sum(t.numel() for one in sets for t in one) * pool.bytes_per_number == pool.bytes
    with pytest.raises(MemoryError, match="one set of operands takes"):
        pool.cuts((200, 100))


def test_many_small_operands_are_spread_over_the_whole_pool() -> None:
    pool = Pool(torch, "cpu", torch.float32, 100_000, 1)
    sets = pool.cuts((1,))
    last = (sets[-1][0].data_ptr() - sets[0][0].data_ptr()) / 4
    assert len(sets) == 20_000
    assert last > 0.99 * 100_000 - 5


def test_what_a_budget_does_not_reach_is_named() -> None:
    """That a budget is kept is shown with an invented clock, in the stopwatch's own tests."""
    run = run_benches(device="cpu", threads=1, budget_s=1e-3, plan=TINY)
    parts = {left.what.split()[0] for left in run.left_out if "budget" in left.reason}
    assert parts >= ON_A_CPU - {"launch_eager"}
    assert "no fit" in report(run) or not run.points


def test_an_interruption_keeps_what_there_is() -> None:
    def stop(done: int, count: int, name: str) -> None:
        if done == 4:
            raise KeyboardInterrupt

    run = run_benches(device="cpu", threads=1, plan=TINY, progress=stop)
    assert run.of("copy")
    assert run.left_out[-1].reason == "the run was stopped by hand"


def test_a_killed_run_leaves_its_parts() -> None:
    kept: list[Record] = []
    plan = replace(TINY, precisions=("fp32",))
    run_benches(device="cpu", threads=1, plan=plan, keep=kept.append)
    assert [len(r.points) for r in kept] == sorted(len(r.points) for r in kept)
    assert len(kept) == 8
    assert kept[0].of("copy")
    assert kept[0].left_out[-1].reason == "the run had not ended when this was written"


def test_out_of_memory_in_one_bench_keeps_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    real = kernels.matmul_cases

    def hungry(b: Bench, sizes: tuple[int, ...]) -> list[Case]:
        def call(_: int) -> None:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 …")

        return [*real(b, sizes), Case("matmul", b.precision, {"size": 10**6}, 1, 1, call)]

    monkeypatch.setattr(kernels, "matmul_cases", hungry)
    run = run_benches(device="cpu", threads=1, plan=TINY)
    assert len(run.of("matmul", "fp32")) == 3
    assert run.of("model_decode", "bf16")
    assert any("out of memory: Tried to allocate 9.00 GiB" in x.reason for x in run.left_out)


def test_no_memory_for_the_operands_leaves_a_precision_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = bench.Pool

    def scarce(torch: Any, device: str, dtype: Any, numbers: int, seed: int) -> Pool:
        if dtype == torch.bfloat16:
            raise MemoryError
        return real(torch, device, dtype, numbers, seed)

    monkeypatch.setattr(bench, "Pool", scarce)
    run = run_benches(device="cpu", threads=1, plan=TINY)
    assert run.precisions == ("fp32",)
    assert any(x.what == "all of bf16" and "out of memory" in x.reason for x in run.left_out)


def test_a_size_beyond_the_pool_is_left_out_by_name() -> None:
    plan = replace(TINY, matmul_sizes=(16, 4096), precisions=("fp32",))
    run = run_benches(device="cpu", threads=1, plan=plan)
    assert [p.shape["size"] for p in run.of("matmul")] == [16]
    left = [x for x in run.left_out if "4096" in x.what]
    assert "out of memory" in left[0].reason


def test_little_memory_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Times out of the cache are no times of a server: the reader has to know."""
    monkeypatch.setattr(bench._Run, "_free_bytes", lambda self: 2 * 2**17)
    run = run_benches(device="cpu", threads=1, plan=TINY)
    assert sum("may be the cache's" in words for words in run.warnings) == 1


def test_a_wrong_operation_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that computes nonsense quickly must not be recorded as fast."""
    from course.measure.record import Check

    monkeypatch.setattr(
        bench, "run_checks", lambda torch, kind, p, dtype, seed: [Check("copy", p, 0.5, 1e-5)]
    )
    run = run_benches(device="cpu", threads=1, plan=replace(TINY, precisions=("fp32",)))
    assert "copy in fp32 is off by 0.5" in run.warnings[-1]


def test_case_functions_refuse_nothing_in_time() -> None:
    late = Bench(torch, "cpu", "fp32", Pool(torch, "cpu", torch.float32, 10_000, 1), Deadline(0.0))
    assert kernels.matmul_cases(late, (8, 16)) == []
    assert [x.reason for x in late.left_out] == ["the time budget was spent before it"] * 2
