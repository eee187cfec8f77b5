"""In which order waiting requests are served, each order a small named function; no queue is here.

An order is a function of one waiting request that returns its key; the smallest key goes first,
the earlier request on a tie:

    def my_order(now_s, arrival_s, prompt_tokens, predicted_output_tokens, priority): ...

Give any such function to `EngineConfig(order=...)`. The three built-in orders below can be called
the same way, and are known to the compiled loop; another function runs in the uncompiled one.
Preempted requests stand in front of the queue, except under `priority`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from course.serving._arguments import at_least

OrderKey = Callable[[float, float, int, int, float], float]
"""(now_s, arrival_s, prompt_tokens, predicted_output_tokens, priority) -> key."""


@dataclass(frozen=True)
class FirstCome:
    """By arrival. Made by `fcfs`."""

    name = "fcfs"

    def __call__(
        self,
        now_s: float,
        arrival_s: float,
        prompt_tokens: int,
        predicted_output_tokens: int,
        priority: float,
    ) -> float:
        """Return a waiting request's key: its arrival."""
        return arrival_s


@dataclass(frozen=True)
class ShortestFirst:
    """By predicted output tokens, with a limit on the wait. Made by `sjf`."""

    max_wait_s: float | None = None
    name = "sjf"

    def __call__(
        self,
        now_s: float,
        arrival_s: float,
        prompt_tokens: int,
        predicted_output_tokens: int,
        priority: float,
    ) -> float:
        """Return a waiting request's key: its predicted output, or -inf once overdue."""
        if self.max_wait_s is not None and now_s - arrival_s > self.max_wait_s:
            return -math.inf
        return float(predicted_output_tokens)


@dataclass(frozen=True)
class MostUrgent:
    """By priority, which improves with age. Made by `priority`."""

    ageing_s: float | None = None
    name = "priority"

    def __call__(
        self,
        now_s: float,
        arrival_s: float,
        prompt_tokens: int,
        predicted_output_tokens: int,
        priority: float,
    ) -> float:
        """Return a waiting request's key; all age alike, so the clock drops out of it."""
        if self.ageing_s is None:
            return float(priority)
        return priority + arrival_s / self.ageing_s


def fcfs() -> FirstCome:
    """Return first come, first served.

    >>> fcfs()(9.0, 2.0, 100, 50, 0.0)
    2.0
    """
    return FirstCome()


def sjf(max_wait_s: float | None = None) -> ShortestFirst:
    """Return shortest predicted answer first; whoever waited over `max_wait_s` goes before all.

    Overdue requests go by arrival. Raises ValueError for a negative wait.

    >>> sjf(5.0)(9.0, 2.0, 100, 50, 0.0), sjf(10.0)(9.0, 2.0, 100, 50, 0.0)
    (-inf, 50.0)
    """
    return ShortestFirst(None if max_wait_s is None else at_least("max_wait_s", max_wait_s))


def priority(ageing_s: float | None = None) -> MostUrgent:
    """Return smallest priority value first; each `ageing_s` of waiting makes up for 1.

    The victim of a preemption is the running request that this order puts last. Raises ValueError
    unless the ageing time is above 0.

    >>> priority(10.0)(9.0, 2.0, 100, 50, priority=1.0)
    1.2
    """
    return MostUrgent(None if ageing_s is None else at_least("ageing_s", ageing_s, above=True))


def as_order(value: object) -> OrderKey:
    """Return `value` as an order: a function, or the name of a built-in one.

    >>> as_order("sjf")
    ShortestFirst(max_wait_s=None)
    """
    if callable(value):
        return value
    named: dict[object, OrderKey] = {"fcfs": fcfs(), "sjf": sjf(), "priority": priority()}
    if isinstance(value, str) and value in named:
        return named[value]
    raise ValueError(
        f"order={value!r} is not known; give fcfs, sjf, priority or a function of "
        "(now_s, arrival_s, prompt_tokens, predicted_output_tokens, priority)"
    )
