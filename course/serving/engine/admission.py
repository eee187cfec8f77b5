"""What a server may answer to a request that comes in, as rules and as nouns; no queue is here.

`Admission` is the built-in gate, `PythonAdmission` a caller's own; `LongPrompts` gives long
prompts a queue of their own. All are given to `simulate_service`, whose loop acts on them.

A policy of your own is a plain function of what comes in and what the server looks like:

    def admit(request, state):
        return "reject" if state.predicted_wait_s > 5.0 else "accept"

The four answers: "accept" (into the waiting queue), "queue" (outside the door, until there is
room), "degrade" (accepted, with a shorter answer), "reject".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from course.serving._arguments import LARGEST_TOKENS, at_least, whole
from course.serving.engine.clients import Patience


class Verdict(IntEnum):
    """What the server said to an attempt."""

    ACCEPT = 0
    QUEUE = 1
    DEGRADE = 2
    REJECT = 3


@dataclass(frozen=True)
class ArrivingRequest:
    """What a policy sees of the attempt that comes in; times in seconds on the run's clock.

    `index`: its row of the workload. `attempt`: 1 for the first. `arrival_s`: when this attempt
    was sent; `first_sent_s`: when the first was. `priority`: smaller is more urgent. `tenant`: its
    label in the workload, "" without labels. `patience`: the client's limits, None without any;
    `first_token_deadline_s`, `end_deadline_s`: when they run out, inf where there is none.
    """

    index: int
    attempt: int
    arrival_s: float
    first_sent_s: float
    prompt_tokens: int
    predicted_output_tokens: int
    priority: float
    tenant: str
    patience: Patience | None
    first_token_deadline_s: float
    end_deadline_s: float


@dataclass(frozen=True)
class ServerState:
    """What a policy sees of the server at the moment `now_s`, the attempt itself not counted.

    `waiting_requests`, `waiting_tokens` (prompt + predicted output): in the queue and outside the
    door. `running_requests`, `free_seats`. `kv_used`: the share of KV blocks held, 0 where they
    are not limited. `tokens_per_s`: the pace of the last few seconds, prefill and decode together,
    0 before the first step has ended. `predicted_wait_s`: waiting tokens / pace, 0 where nothing
    waits or no pace is known.
    """

    now_s: float
    waiting_requests: int
    waiting_tokens: int
    running_requests: int
    free_seats: int
    kv_used: float
    tokens_per_s: float
    predicted_wait_s: float


AdmissionPolicy = Callable[[ArrivingRequest, ServerState], str]
"""(request, state) -> "accept", "queue", "degrade" or "reject"."""


@dataclass(frozen=True)
class Admission:
    """The built-in gate; the first rule that applies decides, in the order of the fields below.

    1. `tenant_tokens_per_s`, `tenant_burst_tokens`: each tenant (label of the workload) has a
       bucket of tokens, full at the start; what it does not hold (prompt + predicted) is refused.
    2. `max_waiting_requests`: so many wait already: refused. Every request waits, if only for an
       instant, so 0 closes the door.
    3. `max_waiting_tokens`: with this one, more tokens would wait: refused.
    4. `urgent_only_wait_s`, `least_urgent`: behind a longer predicted wait only priorities up to
       `least_urgent` (smaller is more urgent) are let in.
    5. `max_predicted_wait_s`: behind a longer predicted wait: refused.
    6. `degrade_wait_s`, `degrade_to_tokens`: behind a longer predicted wait the answer is cut.
    7. `kv_watermark`: while at least this share of the KV blocks is held, or somebody stands
       outside already: outside the door.

    None: no such rule. Raises ValueError for values out of range and for half of a pair.

    >>> Admission(max_waiting_requests=8, kv_watermark=0.9).kv_watermark
    0.9
    """

    max_waiting_requests: int | None = None
    max_waiting_tokens: int | None = None
    max_predicted_wait_s: float | None = None
    kv_watermark: float | None = None
    least_urgent: float | None = None
    urgent_only_wait_s: float | None = None
    degrade_wait_s: float | None = None
    degrade_to_tokens: int | None = None
    tenant_tokens_per_s: float | None = None
    tenant_burst_tokens: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_waiting_requests", "max_waiting_tokens"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole(name, getattr(self, name), low=0))
        times = ("max_predicted_wait_s", "urgent_only_wait_s", "degrade_wait_s")
        for name in (*times, "tenant_tokens_per_s", "tenant_burst_tokens"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, at_least(name, getattr(self, name)))
        if self.degrade_to_tokens is not None:
            object.__setattr__(self, "degrade_to_tokens", _cut(self.degrade_to_tokens))
        if self.least_urgent is not None:
            least = at_least("least_urgent", self.least_urgent, low=-math.inf)
            object.__setattr__(self, "least_urgent", least)
        if self.kv_watermark is not None:
            share = at_least("kv_watermark", self.kv_watermark, above=True)
            if share > 1:
                raise ValueError(f"kv_watermark={share!r} is above 1; give a share as 0.9")
            object.__setattr__(self, "kv_watermark", share)
        self._check_pairs()

    def _check_pairs(self) -> None:
        for one, other in (
            ("urgent_only_wait_s", "least_urgent"),
            ("degrade_wait_s", "degrade_to_tokens"),
            ("tenant_tokens_per_s", "tenant_burst_tokens"),
        ):
            given, missing = (one, other) if getattr(self, other) is None else (other, one)
            if getattr(self, given) is not None and getattr(self, missing) is None:
                raise ValueError(
                    f"{given}={getattr(self, given)!r} does nothing without {missing}; give both"
                )


@dataclass(frozen=True)
class PythonAdmission:
    """A caller's own policy, with the length that its "degrade" cuts answers to.

    The simulation then runs uncompiled. Raises ValueError for a policy that cannot be called or a
    length below 1.

    >>> def shortest_only(request, state):
    ...     return "accept" if request.prompt_tokens < 1000 else "degrade"
    >>> PythonAdmission(shortest_only, degrade_to_tokens=64).degrade_to_tokens
    64
    """

    admit: AdmissionPolicy
    degrade_to_tokens: int | None = None

    def __post_init__(self) -> None:
        if not callable(self.admit):
            raise ValueError(
                f"admit={self.admit!r} cannot be called; give a function of (request, state)"
            )
        if self.degrade_to_tokens is not None:
            object.__setattr__(self, "degrade_to_tokens", _cut(self.degrade_to_tokens))


@dataclass(frozen=True)
class LongPrompts:
    """A waiting queue of their own for prompts of more than `over_tokens`.

    It is looked at after the other queue. `max_wait_s`: its first goes before everybody once it
    has waited longer. `max_running`: not more than this many long prompts are prefilled at once.
    `chunk_tokens`: so much of a long prompt is computed in one step, where prompts are chunked.
    None: no such limit. Raises ValueError for values below 1 or a negative wait.

    >>> LongPrompts(over_tokens=4096, chunk_tokens=256).chunk_tokens
    256
    """

    over_tokens: int
    chunk_tokens: int | None = None
    max_running: int | None = None
    max_wait_s: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "over_tokens", whole("over_tokens", self.over_tokens, low=0))
        for name in ("chunk_tokens", "max_running"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole(name, getattr(self, name)))
        if self.max_wait_s is not None:
            object.__setattr__(self, "max_wait_s", at_least("max_wait_s", self.max_wait_s))


def _cut(tokens: object) -> int:
    return whole("degrade_to_tokens", tokens, high=LARGEST_TOKENS)
