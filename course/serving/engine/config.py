"""What an engine is set to: `EngineConfig`, checked; how it then runs is not decided here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from course.serving._arguments import LARGEST_TOKENS, at_least, of_kind, whole
from course.serving.engine.modes import Batching, as_batching
from course.serving.engine.orders import FirstCome, OrderKey, as_order
from course.serving.engine.servers import defaults_of

_SWITCHES = (
    "enable_chunked_prefill",
    "scheduler_reserve_full_isl",
    "enable_prefix_caching",
    "async_scheduling",
)
MOST_DRAFTS = 64
LONGEST_FRONT_END_S = 3600.0
MOST_CACHED_BLOCKS = 2**24


@dataclass(frozen=True)
class Speculation:
    """Speculative decoding: each decode step verifies guesses, and emits those that were right.

    `num_speculative_tokens`: guesses a step. `acceptance`: the probability that a guess is right if
    those before it were; the first wrong one ends it, and the step emits one token more than were
    right: (1 − a^(k+1)) / (1 − a) on average (Leviathan, Kalman and Matias, 2023, eq. 1). `seed`:
    of the draws, one for each token of each request, so that no other dial changes them.

    A verified token is priced as a decoding sequence; making the guesses costs nothing.

    Raises ValueError for guesses outside 1 … 64 or an acceptance outside 0 … 1.

    >>> Speculation(num_speculative_tokens=3, acceptance=0.5).mean_tokens
    1.875
    """

    num_speculative_tokens: int
    acceptance: float
    seed: int = 0

    def __post_init__(self) -> None:
        tokens = whole("num_speculative_tokens", self.num_speculative_tokens, high=MOST_DRAFTS)
        object.__setattr__(self, "num_speculative_tokens", tokens)
        acceptance = at_least("acceptance", self.acceptance)
        if acceptance > 1:
            raise ValueError(f"acceptance={self.acceptance!r} is above 1; give a probability")
        object.__setattr__(self, "acceptance", acceptance)
        object.__setattr__(self, "seed", whole("seed", self.seed, low=0))

    @property
    def mean_tokens(self) -> float:
        """Tokens that a decode step emits on average, far from an answer's end."""
        return sum(self.acceptance**guess for guess in range(self.num_speculative_tokens + 1))


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
    `scheduler_reserve_full_isl`: a waiting request is admitted only where the blocks of all its
    known tokens are free (it still takes those of its first chunk); otherwise those of the chunk
    will do. `watermark`: that share of the blocks stays free at admissions.
    `enable_prefix_caching`: computed blocks can be found again, by requests that begin alike
    (`Workload.prefixes`) and by a preempted one, until they are handed out anew.
    `async_scheduling`: a step is decided while the one before it runs, and does not know of those
    who came meanwhile.
    `front_end_s`: seconds between sending and the queue, for HTTP and the tokenizer.
    `speculation`: a `Speculation`, or None.

    `EngineConfig.like` has the defaults of a server's version.

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
    scheduler_reserve_full_isl: bool = True
    watermark: float = 0.0
    enable_prefix_caching: bool = False
    async_scheduling: bool = False
    front_end_s: float = 0.0
    speculation: Speculation | None = None

    def __post_init__(self) -> None:
        for name in ("max_num_seqs", "max_num_batched_tokens", "block_size"):
            limit = LARGEST_TOKENS if name == "max_num_batched_tokens" else 2**53
            object.__setattr__(self, name, whole(name, getattr(self, name), high=limit))
        if self.num_kv_blocks is not None:
            object.__setattr__(self, "num_kv_blocks", whole("num_kv_blocks", self.num_kv_blocks))
        for name in _SWITCHES:
            value = getattr(self, name)
            if not isinstance(value, (bool, np.bool_)):
                raise ValueError(f"{name}={value!r} is neither True nor False")
            object.__setattr__(self, name, bool(value))
        watermark = at_least("watermark", self.watermark)
        if watermark >= 1:
            raise ValueError(
                f"watermark={self.watermark!r} would leave no block to anybody; give a share of "
                "the blocks below 1, as 0.01"
            )
        object.__setattr__(self, "watermark", watermark)
        front_end_s = at_least("front_end_s", self.front_end_s)
        if front_end_s > LONGEST_FRONT_END_S:
            raise ValueError(
                f"front_end_s={self.front_end_s!r} is above {LONGEST_FRONT_END_S:g}; give seconds, "
                "as 0.015"
            )
        object.__setattr__(self, "front_end_s", front_end_s)
        of_kind("speculation", self.speculation, Speculation, "Speculation(4, acceptance=0.7)")
        object.__setattr__(self, "batching", as_batching(self.batching))
        object.__setattr__(self, "order", as_order(self.order))
        self._check_batch_size()
        self._check_together()

    @classmethod
    def like(
        cls, version: str, num_kv_blocks: int | None, *, card_gib: float = 80.0, **changes: Any
    ) -> EngineConfig:
        """Return the defaults of a server's version, by name, with your own dials put in.

        `num_kv_blocks`: what the server prints when it starts; vLLM keeps one of them for itself.
        `card_gib`: the card's memory, on which some defaults hang. The versions, with the source
        of each default, stand in `servers.VERSIONS`; what is simplified, in docs/schedulers.md.
        Raises ValueError for a version that is not known.

        >>> EngineConfig.like("vllm-0.19", 27_000, card_gib=24, max_num_seqs=128).async_scheduling
        True
        """
        gib = at_least("card_gib", card_gib, above=True)
        dials = defaults_of(version, gib) | {"num_kv_blocks": num_kv_blocks} | changes
        return cls(**dials)

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

    def _check_together(self) -> None:
        """Raise ValueError for dials that do not go together."""
        way = self.way.name
        if self.enable_prefix_caching and self.num_kv_blocks is None:
            raise ValueError(
                "enable_prefix_caching=True needs num_kv_blocks: what is cached, and for how long, "
                "is a matter of room; give the number of blocks"
            )
        if self.enable_prefix_caching and (self.num_kv_blocks or 0) > MOST_CACHED_BLOCKS:
            raise ValueError(
                f"num_kv_blocks={self.num_kv_blocks} is above {MOST_CACHED_BLOCKS}, the most that "
                "enable_prefix_caching keeps names for; give fewer or larger blocks"
            )
        if way == "sglang" and not isinstance(self.order, FirstCome):
            raise ValueError(
                f"order={self.order!r} does not go with modes.sglang, which serves first come, "
                'first served; leave order at "fcfs"'
            )
        refused = {
            "static": ("enable_prefix_caching", "async_scheduling", "speculation"),
            "windowed": ("async_scheduling",),
            "adaptive": ("async_scheduling",),
        }
        for name in refused.get(way, ()):
            if getattr(self, name):
                raise ValueError(
                    f"{name}={getattr(self, name)!r} does not go with batching={way!r}; "
                    f"leave it out, or batch continuously"
                )

    @property
    def kept_blocks(self) -> int:
        """KV blocks that stay free at admissions."""
        return int(self.watermark * (self.num_kv_blocks or 0))

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
