"""The single operations that an LLM's step is made of, as cases to time; no clock lives here.

Each function returns the cases of one bench, smallest first. `bytes` and `flops` of a case are the
least that the mathematics asks for: operands read once, results written once, 2 operations for a
multiplication and addition. What a library does beyond that is what the measurement shows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from course.measure.pool import Pool
from course.measure.record import LeftOut
from course.measure.timing import NO_TIME, Case, Deadline, fault_words

Size = TypeVar("Size")


@dataclass(frozen=True)
class Bench:
    """Where cases run: torch, its device, a pool of random numbers in one precision.

    What cannot be prepared, a size beyond the memory or the deadline say, is put in `left_out`.
    """

    torch: Any
    device: str
    precision: str
    pool: Pool
    deadline: Deadline
    left_out: list[LeftOut] = field(default_factory=list)

    def each(self, bench: str, make: Callable[[Size], Case], sizes: Sequence[Size]) -> list[Case]:
        """Return the case of every size that can be prepared."""
        cases = []
        for size in sizes:
            fault = NO_TIME if self.deadline.left_s() <= 0 else ""
            if not fault:
                try:
                    cases.append(make(size))
                except (RuntimeError, MemoryError) as error:
                    fault = fault_words(error)
            if fault:
                self.left_out.append(LeftOut(f"{bench} {self.precision}, {size}", fault))
        return cases

    def case(
        self,
        bench: str,
        shape: dict[str, int],
        numbers: int,
        flops: int,
        call: Callable[[int], object],
        units: int = 1,
    ) -> Case:
        """Return a case whose operands and results are `numbers` numbers of the precision."""
        moved = numbers * self.pool.bytes_per_number
        return Case(bench, self.precision, shape, moved, flops, call, units)

    def new(self, *shape: int) -> Any:
        """Return fresh random numbers outside the pool, for what stays the same in every call."""
        return self.torch.randn(shape, device=self.device).to(self.pool.flat.dtype)


def copy_cases(bench: Bench, buffer_bytes: Sequence[int]) -> list[Case]:
    """Return copies of one buffer to another; both ways count as bytes."""

    def one(size: int) -> Case:
        count = size // bench.pool.bytes_per_number
        pairs = bench.pool.cuts((count,), (count,))

        def call(i: int) -> None:
            source, target = pairs[i % len(pairs)]
            target.copy_(source)

        return bench.case("copy", {"buffer_bytes": size}, 2 * count, 0, call)

    return bench.each("copy", one, sorted(buffer_bytes))


def matmul_cases(bench: Bench, sizes: Sequence[int]) -> list[Case]:
    """Return products of two square matrices: n³ multiplications on 3·n² numbers."""

    def one(n: int) -> Case:
        pairs = bench.pool.cuts((n, n), (n, n))
        # one result, since taking new memory for a large one can cost more than the product
        result = bench.new(n, n)
        mm = bench.torch.mm

        def call(i: int) -> None:
            left, right = pairs[i % len(pairs)]
            mm(left, right, out=result)

        return bench.case("matmul", {"size": n}, 3 * n * n, 2 * n**3, call)

    return bench.each("matmul", one, sorted(sizes))


def decode_gemm_cases(
    bench: Bench, widths: Sequence[tuple[int, int]], batches: Sequence[int]
) -> list[Case]:
    """Return token vectors times weights: the weights are read once for the whole batch."""

    linear = bench.torch.nn.functional.linear

    def one(size: tuple[int, int, int]) -> Case:
        wide, out, batch = size
        weights = bench.pool.cuts((out, wide))
        tokens = bench.new(batch, wide)

        def call(i: int) -> Any:
            return linear(tokens, weights[i % len(weights)][0])

        shape = {"batch": batch, "width_in": wide, "width_out": out}
        numbers = wide * out + batch * (wide + out)
        return bench.case("decode_gemm", shape, numbers, 2 * batch * wide * out, call)

    matrices = sorted(widths, key=lambda pair: pair[0] * pair[1])
    sizes = [(wide, out, batch) for wide, out in matrices for batch in sorted(batches)]
    return bench.each("decode_gemm", one, sizes)


def decode_attention_cases(
    bench: Bench, heads: int, head_dim: int, sizes: Sequence[tuple[int, int]]
) -> list[Case]:
    """Return attention of one new token a sequence, for (batch, context) pairs, K and V apart."""
    attend = bench.torch.nn.functional.scaled_dot_product_attention

    def one(size: tuple[int, int]) -> Case:
        batch, context = size
        cache = (batch, heads, context, head_dim)
        caches = bench.pool.cuts(cache, cache)
        query = bench.new(batch, heads, 1, head_dim)

        def call(i: int) -> Any:
            keys, values = caches[i % len(caches)]
            return attend(query, keys, values)

        shape = {
            "batch": batch, "context_tokens": context, "heads": heads, "head_dim": head_dim
        }  # fmt: skip
        width = batch * heads * head_dim
        return bench.case(
            "decode_attention", shape, 2 * width * (context + 1), 4 * width * context, call
        )

    ordered = sorted(sizes, key=lambda pair: pair[0] * pair[1])
    return bench.each("decode_attention", one, ordered)


def prefill_attention_cases(
    bench: Bench, heads: int, head_dim: int, prompts: Sequence[int]
) -> list[Case]:
    """Return causal attention of a prompt: token i looks at i+1 tokens, n·(n+1)/2 pairs in all."""
    attend = bench.torch.nn.functional.scaled_dot_product_attention

    def one(prompt: int) -> Case:
        side = (1, heads, prompt, head_dim)
        operands = bench.pool.cuts(side, side, side)

        def call(i: int) -> Any:
            query, keys, values = operands[i % len(operands)]
            return attend(query, keys, values, is_causal=True)

        shape = {"prompt_tokens": prompt, "heads": heads, "head_dim": head_dim}
        width = heads * head_dim
        pairs = prompt * (prompt + 1) // 2
        return bench.case("prefill_attention", shape, 4 * width * prompt, 4 * width * pairs, call)

    return bench.each("prefill_attention", one, sorted(prompts))


def launch_cases(bench: Bench, kernels: int) -> list[Case]:
    """Return a chain of tiny kernels issued from Python, and replayed as a graph on a card.

    A CPU has no graphs to replay: there the first alone is what torch's dispatch costs.
    """
    number = bench.new(1)

    def chain(first: int) -> None:
        for _ in range(first, first + kernels):
            number.mul_(1.0)

    def one(name: str) -> Case:
        call = chain if name == "launch_eager" else as_graph(bench.torch, chain)
        return bench.case(name, {"kernels": kernels}, 2, 1, call, units=kernels)

    cases = bench.each("launch", one, ["launch_eager"])
    if bench.device == "cuda":
        cases += bench.each("launch", one, ["launch_graph"])
    else:
        bench.left_out.append(LeftOut("launch_graph", "a CPU has no CUDA graphs to replay"))
    return cases


def as_graph(torch: Any, call: Callable[[int], object]) -> Callable[[int], object]:
    """Return a function that replays what `call(0)` issued, as one CUDA graph.

    The call runs a few times on a side stream first, so that nothing is set up while recording.
    Raises RuntimeError for what cannot be recorded.
    """
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call(0)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call(0)

    def replay(_: int) -> None:
        graph.replay()

    return replay
