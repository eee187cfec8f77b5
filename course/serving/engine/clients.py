"""What clients do when they wait: lose patience, send again, work in a closed loop; nobody runs.

`Patience`, `Retry` and `Users` are given to `simulate_service`; its loop acts on them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from course.serving._arguments import at_least, whole

MOST_DOUBLINGS = 60
"""Retries beyond this one wait no longer than it does, so that no delay overflows."""

LARGEST_GROWTH = 100.0

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Patience:
    """How long a client waits before giving up, and whether the server learns of it.

    `ttft_s`: seconds from sending to the first token. `e2e_s` + `e2e_per_output_token_s` · output
    tokens: seconds from sending to the last token, for the answer asked for (a degraded one has no
    less time). None: no such limit. A token exactly at its limit is in time. `noticed`: the server
    sees the client go and drops the request before its next step; otherwise it serves the void.

    Raises ValueError for a limit that is not above 0, and for a part per token without `e2e_s`.

    >>> Patience(e2e_s=10.0, e2e_per_output_token_s=0.05).end_limit_s(200)
    20.0
    """

    ttft_s: float | None = None
    e2e_s: float | None = None
    e2e_per_output_token_s: float = 0.0
    noticed: bool = True

    def __post_init__(self) -> None:
        for name in ("ttft_s", "e2e_s"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, at_least(name, getattr(self, name), above=True))
        share = at_least("e2e_per_output_token_s", self.e2e_per_output_token_s)
        object.__setattr__(self, "e2e_per_output_token_s", share)
        if share > 0 and self.e2e_s is None:
            raise ValueError(
                f"e2e_per_output_token_s={share!r} has no e2e_s to add to; give e2e_s, the part "
                "of the limit that does not depend on the length"
            )
        if not isinstance(self.noticed, (bool, np.bool_)):
            raise ValueError(f"noticed={self.noticed!r} is neither True nor False")

    def first_token_limit_s(self) -> float:
        """Return the seconds until the first token must be there; inf without a limit.

        >>> Patience().first_token_limit_s()
        inf
        """
        return math.inf if self.ttft_s is None else self.ttft_s

    def end_limit_s(self, output_tokens: int) -> float:
        """Return the seconds until the last of `output_tokens` must be there; inf without a limit.

        >>> Patience(ttft_s=1.0).end_limit_s(200)
        inf
        """
        if self.e2e_s is None:
            return math.inf
        return self.e2e_s + self.e2e_per_output_token_s * output_tokens


@dataclass(frozen=True)
class Retry:
    """Whether and when a client whose attempt was refused or timed out sends again.

    `attempts`: in all, None for no limit. After attempt a the next one is sent
    round_trip_s + delay_s · growth^(a − 1) · (1 − jitter · u) seconds later, u drawn from [0, 1).
    `budget_share`: all clients together may retry this share of the first attempts they send,
    from a bucket that begins full and holds `budget_burst` retries; None: no budget.

    A request that can never fit into the engine is not sent again.

    Raises ValueError for attempts below 1, negative times, a growth outside 1 … 100, a jitter
    outside 0 … 1 or a round trip that is not above 0.

    >>> Retry(attempts=4, delay_s=1.0, growth=2.0, round_trip_s=0.1).delay_after_s(3)
    4.1
    """

    attempts: int | None = 1
    delay_s: float = 1.0
    growth: float = 1.0
    jitter: float = 0.0
    round_trip_s: float = 0.1
    budget_share: float | None = None
    budget_burst: float = 10.0

    def __post_init__(self) -> None:
        if self.attempts is not None:
            object.__setattr__(self, "attempts", whole("attempts", self.attempts))
        for name in ("delay_s", "growth", "jitter", "budget_burst"):
            object.__setattr__(self, name, at_least(name, getattr(self, name)))
        round_trip_s = at_least("round_trip_s", self.round_trip_s, above=True)
        object.__setattr__(self, "round_trip_s", round_trip_s)
        if self.budget_share is not None:
            share = at_least("budget_share", self.budget_share)
            object.__setattr__(self, "budget_share", share)
        if not 1.0 <= self.growth <= LARGEST_GROWTH:
            raise ValueError(
                f"growth={self.growth!r} is outside 1 … {LARGEST_GROWTH:g}; give 1 for a fixed "
                "delay, 2 for one that doubles"
            )
        if self.jitter > 1:
            raise ValueError(f"jitter={self.jitter!r} is above 1; give a share of the delay")

    def delay_after_s(self, attempt: int, uniform: float = 0.0) -> float:
        """Return the seconds from the end of an attempt (1, 2, …) to the next sending.

        `uniform`: the draw u of the jitter, see `retry_uniform`.

        >>> Retry(delay_s=2.0, jitter=1.0, round_trip_s=0.5).delay_after_s(1, uniform=0.25)
        2.0
        """
        factor = self.growth ** min(attempt - 1, MOST_DOUBLINGS)
        return self.round_trip_s + self.delay_s * factor * (1.0 - self.jitter * uniform)


@dataclass(frozen=True)
class Users:
    """A closed loop: `number` users, each sending its next request when the last one is over.

    A request is over when it finished, or when its last attempt ended; the next one is sent
    `think_s` seconds later. Users begin at times drawn evenly over `ramp_s` seconds. The k-th
    request of the workload is the k-th one sent; its arrival times are not used.

    Raises ValueError for a number below 1 or negative times.

    >>> Users(3, think_s=0.5)
    Users(number=3, think_s=0.5, ramp_s=0.0)
    """

    number: int
    think_s: float = 0.0
    ramp_s: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "number", whole("number", self.number))
        for name in ("think_s", "ramp_s"):
            object.__setattr__(self, name, at_least(name, getattr(self, name)))


def retry_uniform(seed: int, request: int, attempt: int) -> float:
    """Return the jitter's draw in [0, 1) after one attempt: the same for whoever asks, and when.

    A hash of the three numbers, so that a change elsewhere in a run moves nobody's delay: the
    mixing step of splitmix64 (Steele, Lea and Flood, 2014), taken three times; 53 of its bits.

    >>> retry_uniform(0, 7, 1) == retry_uniform(0, 7, 1) != retry_uniform(0, 7, 2)
    True
    """
    return (_mix(_mix(_mix(seed) + request) + attempt) >> 11) * 2.0**-53


def _mix(value: int) -> int:
    """Return the 64 bits that follow from `value`, modulo 2^64."""
    mixed = (value + 0x9E3779B97F4A7C15) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
    return mixed ^ (mixed >> 31)
