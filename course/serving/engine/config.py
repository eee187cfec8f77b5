"""What an engine is set to: `EngineConfig`, checked; how it then runs is not decided here."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course.serving._arguments import LARGEST_TOKENS, whole
from course.serving.engine.modes import Batching, as_batching
from course.serving.engine.orders import OrderKey, as_order


@dataclass(frozen=True)
class EngineConfig:
    """The dials of one engine, by vLLM's names.

    `max_num_seqs`: requests that may run at once (seats).
    `max_num_batched_tokens`: tokens that one step may compute (the budget).
    `enable_chunked_prefill`: prompts share steps with decoding, in pieces; otherwise whole prompts
    go first, in steps of their own.
    `num_kv_blocks`: blocks of the KV cache, None for no limit; `block_size`: tokens a block.
    `batching`: "continuous", "single", or one of `modes.static`, `windowed`, `adaptive`.
    `order`: of the waiting queue: "fcfs", "sjf", "priority", one of `orders`, or your own function.

    Raises ValueError that names the argument and the value.

    >>> EngineConfig(max_num_seqs=0)
    Traceback (most recent call last):
    ...
    ValueError: max_num_seqs=0 is below 1; give a whole number of at least 1
    """

    max_num_seqs: int = 64
    max_num_batched_tokens: int = 2048
    enable_chunked_prefill: bool = True
    num_kv_blocks: int | None = None
    block_size: int = 16
    batching: Batching | str = "continuous"
    order: OrderKey | str = "fcfs"

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
            limit = LARGEST_TOKENS if name == "max_num_batched_tokens" else 2**53
            object.__setattr__(self, name, whole(name, getattr(self, name), high=limit))
        if self.num_kv_blocks is not None:
            object.__setattr__(self, "num_kv_blocks", whole("num_kv_blocks", self.num_kv_blocks))
        if not isinstance(self.enable_chunked_prefill, (bool, np.bool_)):
            raise ValueError(
                f"enable_chunked_prefill={self.enable_chunked_prefill!r} is neither True nor False"
            )
        object.__setattr__(self, "enable_chunked_prefill", bool(self.enable_chunked_prefill))
        object.__setattr__(self, "batching", as_batching(self.batching))
        object.__setattr__(self, "order", as_order(self.order))
        self._check_batch_size()

    def _check_batch_size(self) -> None:
        size = self.way.batch_size
        if size is None:
            return
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            limit = getattr(self, name)
            if size > limit:
                raise ValueError(
                    f"batch_size={size} is above {name}={limit}, and a step of the batch would "
                    "not be allowed; make the batch smaller or the limit larger"
                )

    @property
    def way(self) -> Batching:
        """`batching` as an object."""
        assert isinstance(self.batching, Batching)
        return self.batching

    @property
    def order_key(self) -> OrderKey:
        """`order` as a function."""
        assert not isinstance(self.order, str)
        return self.order
