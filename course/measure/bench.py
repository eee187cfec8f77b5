"""Runs a plan's benches within its budget and keeps whatever was measured; sizes live in `plans`.

Torch is loaded when a run begins. Each bench gets a share of the time that is left; what it does
not need goes to those after it. A bench that breaks is put down with its reason, and the rest goes
on; so does an interruption from the keyboard end the run, and not lose it.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from course.measure import kernels, transformer
from course.measure.checks import run_checks
from course.measure.kernels import Bench
from course.measure.machine import Found, clocks_mhz, find_device, need_torch
from course.measure.plans import Plan, plan_for
from course.measure.pool import Pool, pool_bytes
from course.measure.record import SCHEMA, Check, LeftOut, Point, Record
from course.measure.timing import (
    Case,
    Clock,
    CudaClock,
    Deadline,
    WallClock,
    fault_words,
    time_cases,
)

Progress = Callable[[int, int, str], None]
"""Told before each part of a run: how many are done, how many there are, what comes now."""

Keep = Callable[[Record], None]
"""Given the record so far after each part, so that a run that is killed leaves something."""


@dataclass(frozen=True)
class _Part:
    """One bench in one precision, and its share of the time."""

    name: str
    share: float
    cases: Callable[[Bench], list[Case]]


@dataclass
class _Kept:
    """What has been measured so far."""

    points: list[Point] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    left_out: list[LeftOut] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def run_benches(
    quick: bool = False,
    device: str = "auto",
    budget_s: float | None = None,
    seed: int | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    keep: Keep | None = None,
    plan: Plan | None = None,
) -> Record:
    """Measure this machine and return the record.

    `device`: auto, cpu or cuda. `budget_s`: seconds for the whole run, the plan's own (45 or more)
    if left out. `seed`: of the random operands, fresh if left out. `threads`: of the CPU, torch's
    own number if left out, fewer beside busy programs. `plan`: other sizes.
    Raises CannotMeasureError without torch or the wanted device, ValueError for a budget of 0.
    An interruption ends the run and returns what there is.

    >>> run_benches(budget_s=0)
    Traceback (most recent call last):
    ...
    ValueError: budget_s=0 is not above 0; give seconds, 20 or more to see every curve
    """
    if budget_s is not None and not budget_s > 0:
        raise ValueError(
            f"budget_s={budget_s!r} is not above 0; give seconds, 20 or more to see every curve"
        )
    torch = need_torch()
    found = find_device(torch, device, threads)
    plan = plan or plan_for(found.kind, quick)
    budget_s = plan.budget_s if budget_s is None else budget_s
    run = _Run(torch, found, plan, Deadline(budget_s), _seed(seed), keep)
    run.header = {"quick": quick, "budget_s": float(budget_s)}
    try:
        with _settings(torch, found.device.threads), torch.inference_mode():
            run.all_parts(progress)
    except KeyboardInterrupt:
        run.kept.left_out.append(LeftOut("what came after", "the run was stopped by hand"))
    return run.record(finished=True)


@contextmanager
def _settings(torch: Any, threads: int) -> Iterator[None]:
    """Hold torch's settings for a run, and give the caller's back."""
    precision, threads_before = torch.get_float32_matmul_precision(), torch.get_num_threads()
    # a card would otherwise round float32 operands to fewer digits and call it float32
    torch.set_float32_matmul_precision("highest")
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.set_num_threads(threads_before)


def _seed(seed: int | None) -> int:
    return random.SystemRandom().randrange(2**31) if seed is None else seed


class _Run:
    """One run: where it is, what it has, what is left of its time."""

    header: dict[str, Any]

    def __init__(
        self, torch: Any, found: Found, plan: Plan, deadline: Deadline, seed: int, keep: Keep | None
    ) -> None:
        self.torch, self.found, self.plan, self.seed = torch, found, plan, seed
        self.deadline, self._begin = deadline, deadline.now()
        self.kept = _Kept(warnings=list(found.warnings))
        self._keep = keep
        self._started_at = datetime.now(UTC).isoformat(timespec="seconds")
        self._clock: Clock = CudaClock(torch) if found.kind == "cuda" else WallClock()

    def all_parts(self, progress: Progress | None) -> None:
        """Measure precision after precision, each with one pool of random numbers."""
        tell = progress or (lambda done, count, name: None)
        precisions = self.plan.precisions
        parts = {p: list(_parts(self.plan, p, p == precisions[0])) for p in precisions}
        shares = [part.share for p in precisions for part in parts[p]]
        done = 0
        for precision in precisions:
            tell(done, len(shares), f"{precision}: checks")
            bench = self._prepare(precision)
            for part in parts[precision]:
                if bench is None:
                    self.kept.left_out.append(LeftOut(f"{part.name} {precision}", "no memory"))
                else:
                    tell(done, len(shares), f"{precision}: {part.name.replace('_', ' ')}")
                    self._measure(bench, part, part.share / sum(shares[done:]))
                done += 1
                if self._keep is not None:
                    self._keep(self.record(finished=False))
            del bench
            self._free()
        tell(done, len(shares), "done")

    def _prepare(self, precision: str) -> Bench | None:
        """Check the operations in this precision and fill its pool; None where memory lacks."""
        torch, kind = self.torch, self.found.kind
        dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
        try:
            self.kept.checks += run_checks(torch, kind, precision, dtype, self.seed)
            for check in self.kept.checks:
                if not check.passed and check.precision == precision:
                    self.kept.warnings.append(
                        f"{check.name} in {precision} is off by {check.error:.2g} of the largest "
                        f"value, {check.allowed:g} is allowed: its times say nothing"
                    )
            size = torch.empty(0, dtype=dtype).element_size()
            numbers = self._pool_bytes(size) // size
            pool = Pool(torch, kind, dtype, numbers, self.seed)
            return Bench(torch, kind, precision, pool, self.deadline)
        except (RuntimeError, MemoryError) as error:
            self.kept.left_out.append(LeftOut(f"all of {precision}", fault_words(error)))
            return None

    def _pool_bytes(self, bytes_per_number: int) -> int:
        """Return the pool's bytes, and warn where it cannot exceed the cache."""
        device = self.found.device
        model = bytes_per_number * transformer.model_numbers(self.plan.model)
        wanted = max(self.plan.pool_bytes, model + bytes_per_number)
        chosen = pool_bytes(device.cache_bytes, wanted, self._free_bytes())
        if chosen < device.cache_bytes:
            words = (
                f"the memory has room for {chosen / 2**20:.0f} MiB of operands, no more than the "
                "cache holds: times of small sizes may be the cache's"
            )
            if words not in self.kept.warnings:
                self.kept.warnings.append(words)
        return chosen

    def _free_bytes(self) -> int:
        if self.found.kind == "cuda":
            return int(self.torch.cuda.mem_get_info()[0])
        import psutil

        return int(psutil.virtual_memory().available)

    def _measure(self, bench: Bench, part: _Part, share: float) -> None:
        """Time one part within its share of what is left."""
        bench = replace(bench, deadline=self.deadline.share(share), left_out=[])
        try:
            points, left = time_cases(
                part.cases(bench), self._clock, bench.deadline, self.plan.rounds
            )
            self.kept.points += points
            self.kept.left_out += left
        except (RuntimeError, MemoryError) as error:
            what = f"{part.name} {bench.precision}"
            self.kept.left_out.append(LeftOut(what, fault_words(error)))
        self.kept.left_out += bench.left_out
        if part.name == "matmul" and self.found.kind == "cuda":
            self._note_clocks(f"after_matmul_{bench.precision}")
        self._free()

    def _note_clocks(self, when: str) -> None:
        """Keep the card's clocks just after hard work: a card that is too hot slows down."""
        device = self.found.device
        clocks = {**device.clocks_mhz, **clocks_mhz(when, self.found.card)}
        self.found = replace(self.found, device=replace(device, clocks_mhz=clocks))

    def _free(self) -> None:
        if self.found.kind == "cuda":
            gc.collect()
            self.torch.cuda.empty_cache()

    def record(self, finished: bool) -> Record:
        """Return the record so far."""
        left = list(self.kept.left_out)
        if not finished:
            left.append(LeftOut("what came after", "the run had not ended when this was written"))
        return Record(
            schema=SCHEMA, started_at=self._started_at, seed=self.seed,
            spent_s=round(self.deadline.now() - self._begin, 2),
            device=self.found.device, model=self.plan.model,
            points=tuple(self.kept.points), checks=tuple(self.kept.checks),
            left_out=tuple(left), warnings=tuple(self.kept.warnings), **self.header,
        )  # fmt: skip


def _parts(plan: Plan, precision: str, first: bool) -> Iterator[_Part]:
    """Return the benches of one precision; what no precision changes comes with the first only."""
    if first:
        yield _Part("copy", 2, lambda b: kernels.copy_cases(b, plan.copy_bytes))
        yield _Part("launch", 1, lambda b: kernels.launch_cases(b, plan.kernels))
    yield _Part("matmul", 3, lambda b: kernels.matmul_cases(b, plan.matmul_sizes))
    yield _Part(
        "decode_gemm", 6,
        lambda b: kernels.decode_gemm_cases(b, plan.gemm_widths, plan.gemm_batches),
    )  # fmt: skip
    yield _Part(
        "decode_attention", 3,
        lambda b: kernels.decode_attention_cases(
            b, plan.heads, plan.head_dim, plan.decode_contexts
        ),
    )  # fmt: skip
    yield _Part(
        "prefill_attention", 2,
        lambda b: kernels.prefill_attention_cases(b, plan.heads, plan.head_dim, plan.prompts),
    )  # fmt: skip
    yield _Part(
        "model_prefill", 3, lambda b: transformer.prefill_cases(b, plan.model, plan.model_prompts)
    )
    yield _Part(
        "model_decode", 5,
        lambda b: transformer.decode_cases(
            b, plan.model, plan.model_contexts, plan.model_steps
        ),
    )  # fmt: skip
