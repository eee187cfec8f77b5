"""The defaults of real servers by version: `VERSIONS`, read by `EngineConfig.like`; nothing runs.

`docs/schedulers.md` says what of each server's scheduler the engine does the same way, what it
simplifies and what it leaves out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

LARGE_CARD_GIB = 70
"""From this much memory on, vLLM takes its larger defaults (A100 cards excepted)."""


@dataclass(frozen=True)
class ServerVersion:
    """The scheduler's defaults of one version of a server, when it serves requests over HTTP.

    `dials`: fields of `EngineConfig`; `large`, `small`: those that hang on the card's memory.
    `source`: where they stand.
    """

    name: str
    source: str
    dials: dict[str, Any] = field(default_factory=dict)
    large: dict[str, int] = field(default_factory=dict)
    small: dict[str, int] = field(default_factory=dict)


_VLLM_LARGE = {"max_num_seqs": 1024, "max_num_batched_tokens": 8192}
_VLLM_SMALL = {"max_num_seqs": 256, "max_num_batched_tokens": 2048}
_VLLM_SOURCE = "vllm/engine/arg_utils.py, get_batch_defaults; vllm/config/scheduler.py, cache.py"

VERSIONS = {
    version.name: version
    for version in (
        ServerVersion(
            "vllm-0.11",
            _VLLM_SOURCE,
            {
                "block_size": 16,
                "enable_prefix_caching": True,
                "scheduler_reserve_full_isl": False,
                "async_scheduling": False,
            },
            _VLLM_LARGE,
            _VLLM_SMALL,
        ),
        ServerVersion(
            "vllm-0.14",
            f"{_VLLM_SOURCE}; pull request 27614: asynchronous scheduling by default",
            {
                "block_size": 16,
                "enable_prefix_caching": True,
                "scheduler_reserve_full_isl": False,
                "async_scheduling": True,
            },
            _VLLM_LARGE,
            _VLLM_SMALL,
        ),
        ServerVersion(
            "vllm-0.19",
            f"{_VLLM_SOURCE}, scheduler_reserve_full_isl",
            {
                "block_size": 16,
                "enable_prefix_caching": True,
                "scheduler_reserve_full_isl": True,
                "async_scheduling": True,
            },
            _VLLM_LARGE,
            _VLLM_SMALL,
        ),
        ServerVersion(
            "sglang-0.5",
            "sglang/srt/server_args.py; managers/schedule_policy.py, PrefillAdder; environ.py, "
            "SGLANG_INIT_NEW_TOKEN_RATIO",
            {
                "block_size": 1,
                "batching": "sglang",
                "enable_prefix_caching": True,
                "async_scheduling": True,
                "max_num_seqs": 2048,
            },
            {"max_num_batched_tokens": 8192},
            {"max_num_batched_tokens": 2048},
        ),
    )
}


def defaults_of(version: object, card_gib: float) -> dict[str, Any]:
    """Return the dials of a version on a card of that much memory, by name.

    Raises ValueError for a version that is not known.

    >>> defaults_of("vllm-0.19", 24.0)["max_num_batched_tokens"]
    2048
    """
    known = VERSIONS.get(version) if isinstance(version, str) else None
    if known is None:
        raise ValueError(f"version={version!r} is not known; give one of {', '.join(VERSIONS)}")
    return known.dials | (known.large if card_gib >= LARGE_CARD_GIB else known.small)
