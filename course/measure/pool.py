"""One large buffer of random numbers, cut into operands; which kernel reads them is not known here.

A kernel that is timed on the same operand twice finds it in the processor's cache, and a server
never does: its weights are far larger. So every call takes the next cut, and all the cuts together
are larger than the last-level cache.
"""

from __future__ import annotations

import math
from typing import Any

CACHES = 2
"""The pool is at least so many last-level caches large."""

RANDOM_SCALE = 0.03
"""Standard deviation of the numbers: products of a few thousand of them stay near 1."""

MOST_CUTS = 20_000


class Pool:
    """`numbers` random numbers of one precision on one device, and cuts of them.

    `torch_dtype` is torch's; the memory is taken at once, so this is where it may run out.
    """

    def __init__(self, torch: Any, device: str, dtype: Any, numbers: int, seed: int) -> None:
        self._torch = torch
        generator = torch.Generator(device=device).manual_seed(seed)
        self._flat = torch.empty(numbers, device=device, dtype=dtype)
        self._flat.normal_(0.0, RANDOM_SCALE, generator=generator)
        self.bytes_per_number = int(self._flat.element_size())

    @property
    def flat(self) -> Any:
        """All the numbers in one row."""
        return self._flat

    @property
    def numbers(self) -> int:
        """How many numbers there are."""
        return int(self._flat.numel())

    @property
    def bytes(self) -> int:
        """The pool's size."""
        return self.numbers * self.bytes_per_number

    def cuts(self, *shapes: tuple[int, ...]) -> list[tuple[Any, ...]]:
        """Return as many sets of tensors of these shapes as the pool holds side by side.

        A set's tensors lie behind each other, no two sets overlap; a kernel may write to them.
        Raises MemoryError where the pool does not hold a single one.
        """
        sizes = [math.prod(shape) for shape in shapes]
        unit = sum(sizes)
        count = self.numbers // unit
        if count == 0:
            raise MemoryError(
                f"one set of operands takes {unit * self.bytes_per_number / 2**20:.0f} MiB and the "
                f"buffer has {self.bytes / 2**20:.0f}"
            )
        # spread the sets over the whole pool if there are more than are worth making
        step = self.numbers // min(count, MOST_CUTS)
        sets = []
        for start in range(0, step * min(count, MOST_CUTS), step):
            tensors, at = [], start
            for shape, size in zip(shapes, sizes, strict=True):
                tensors.append(self._flat[at : at + size].view(shape))
                at += size
            sets.append(tuple(tensors))
        return sets


def pool_bytes(cache_bytes: int, largest_unit_bytes: int, free_bytes: int) -> int:
    """Return the bytes that a pool should take: two caches or one operand, within half the memory.

    >>> pool_bytes(32 * 2**20, 100 * 2**20, 8 * 2**30) // 2**20
    100
    >>> pool_bytes(300 * 2**20, 100 * 2**20, 2**30) // 2**20
    512
    """
    wanted = max(CACHES * cache_bytes, largest_unit_bytes)
    return min(wanted, free_bytes // 2)
