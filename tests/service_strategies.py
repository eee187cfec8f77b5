"""Random served engines, as plain-data dictionaries: clients, gate, queues and dials.

What lives here: hypothesis strategies for `reference_service`, or to be translated for another
implementation. What does not: an engine, a check, or the engine's own workloads and dials, which
come from `engine_strategies`.

The rare events are the point: most step costs, arrivals, limits and delays are binary fractions,
so that sums are exact and a deadline, a retry and a step's end fall on the same moment; KV is
small; queues are short. `test_reference_service` counts that every rule is reached.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests.engine_strategies import (
    ORDERS,
    dials_of_today,
    kv_limits,
    open_arrivals,
    order_options,
)

# The first three make ties; the last two round.
COSTS = (
    (1.0, 0.0, 0.0, 0.0, 0.0),
    (0.5, 0.125, 0.0, 0.25, 0.0),
    (0.25, 0.0, 0.0, 0.25, 0.0),
    (0.1, 0.013, 1e-4, 0.007, 3e-4),
    (0.010, 3e-3, 1e-9, 1e-2, 2e-8),
)
FRACTIONS_S = (0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0)


# ------------------------------------------------------------------------- a student's policies
def by_the_state(request: Any, state: Any) -> str:
    """Every verdict, from every field of the state."""
    if state.predicted_wait_s > 6.0 or state.waiting_tokens > 60:
        return "reject"
    if state.waiting_requests > 3 or state.tokens_per_s > 12.0:
        return "degrade"
    if state.kv_used > 0.5 or state.free_seats == 0:
        return "queue"
    return "accept"


def by_the_request(request: Any, state: Any) -> str:
    """Every verdict, from every field of the request."""
    if request.attempt > 1 and request.arrival_s - request.first_sent_s > 4.0:
        return "reject"
    if request.predicted_output_tokens > 8:
        return "degrade"
    if request.index % 3 == 1 or request.priority > 2:
        return "queue"
    if min(request.first_token_deadline_s, request.end_deadline_s) < request.arrival_s + 0.5:
        return "reject"
    return "reject" if request.prompt_tokens > 12 and state.running_requests else "accept"


def everybody_queues(request: Any, state: Any) -> str:
    """The gate alone decides, and nobody may be left in it for ever."""
    return "queue"


RULES = ("tenant", "requests", "tokens", "urgent", "wait", "degrade", "watermark")
POLICIES: dict[str, Callable[[Any, Any], str]] = {
    "by_the_state": by_the_state,
    "by_the_request": by_the_request,
    "everybody_queues": everybody_queues,
}


# ------------------------------------------------------------------------------------- clients
def moments_s() -> st.SearchStrategy[float]:
    """Draw a time above 0, a binary fraction most of the times."""
    exact = st.sampled_from(FRACTIONS_S)
    return st.one_of(exact, exact, st.floats(0.05, 6.0))


@st.composite
def patiences(draw: st.DrawFn) -> dict[str, Any]:
    """Draw limits on the first token, on the end, or on both."""
    kind = draw(st.sampled_from(["ttft", "e2e", "both", "both"]))
    limits: dict[str, Any] = {"noticed": draw(st.booleans())}
    if kind != "e2e":
        limits["ttft_s"] = draw(moments_s())
    if kind != "ttft":
        limits["e2e_s"] = draw(moments_s()) + draw(st.sampled_from([0.0, 1.0, 4.0]))
        limits["e2e_per_output_token_s"] = draw(st.sampled_from([0.0, 0.25, 0.5, 1.0]))
    return limits


@st.composite
def retries(draw: st.DrawFn, ends: bool) -> dict[str, Any]:
    """Draw a way to send again; without limit only where something else ends the run."""
    share = draw(st.sampled_from([None, None, 0.0, 0.125, 0.5, 1.0]))
    unlimited = [None] if ends or share is not None else []
    return {
        "attempts": draw(st.sampled_from([2, 3, 5, 1, *unlimited])),
        "delay_s": draw(st.one_of(st.just(0.0), moments_s())),
        "growth": draw(st.sampled_from([1.0, 2.0, 1.5])),
        "jitter": draw(st.sampled_from([0.0, 0.0, 0.5, 1.0])),
        "round_trip_s": draw(st.sampled_from([0.125, 0.5, 1.0, 0.1])),
        "budget_share": share,
        "budget_burst": draw(st.sampled_from([1.0, 2.0, 10.0, 0.5])),
    }


# --------------------------------------------------------------------------------------- gates
@st.composite
def admissions(draw: st.DrawFn, rule: str | None = None) -> dict[str, Any]:
    """Draw some of the rules, or a policy; `rule`, one of `RULES`, is among them."""
    if rule is None and draw(st.sampled_from([False, False, False, True])):
        name = draw(st.sampled_from(sorted(POLICIES)))
        return {"policy": POLICIES[name], "degrade_to_tokens": draw(st.integers(1, 6))}
    rules: dict[str, dict[str, st.SearchStrategy[Any]]] = {
        "tenant": {
            "tenant_tokens_per_s": st.sampled_from([0.0, 1.0, 4.0, 10.0, 2.3]),
            "tenant_burst_tokens": st.sampled_from([10.0, 20.0, 32.0, 64.0]),
        },
        "requests": {"max_waiting_requests": st.integers(1, 4)},
        "tokens": {"max_waiting_tokens": st.integers(10, 80)},
        "urgent": {"urgent_only_wait_s": waits_s(), "least_urgent": st.integers(0, 2)},
        "wait": {"max_predicted_wait_s": waits_s()},
        "degrade": {"degrade_wait_s": waits_s(), "degrade_to_tokens": st.integers(1, 6)},
        "watermark": {"kv_watermark": st.sampled_from([0.25, 0.5, 0.75, 0.9, 1.0])},
    }
    # Not a list of names: small lists would be drawn too often, and the later rules too rarely.
    wanted = st.sampled_from([False, False, True])
    names = [name for name in RULES if name == rule or draw(wanted)]
    return {field: draw(values) for name in names for field, values in rules[name].items()}


def waits_s() -> st.SearchStrategy[float]:
    """Draw a limit on the predicted wait."""
    return st.one_of(st.sampled_from([0.0, 0.25, 0.5, 1.0, 2.0, 4.0]), st.floats(0.0, 5.0))


@st.composite
def long_prompts(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a queue of their own for long prompts."""
    return {
        "over_tokens": draw(st.integers(2, 10)),
        "chunk_tokens": draw(st.sampled_from([None, 1, 2, 5])),
        "max_running": draw(st.sampled_from([None, 1, 1, 2])),
        "max_wait_s": draw(st.sampled_from([None, 0.0, 1.0, 3.0])),
    }


# --------------------------------------------------------------------------------------- cases
@st.composite
def service_cases(
    draw: st.DrawFn,
    *,
    patience: bool | None = None,
    retry: bool | None = None,
    admission: bool | None = None,
    rule: str | None = None,
    long: bool | None = None,
    closed: bool | None = None,
    order: str | None = None,
    chunked: bool | None = None,
    max_requests: int = 16,
) -> dict[str, Any]:
    """Draw one case; a part that is None is there most of the times, or drawn; `rule` is there.

    Returns the keywords of `reference_service`; a closed loop has `users`, `ramp_s` and `seed`
    beside the `user_starts_s` that they make.
    """

    def there(wanted: bool | None, often: int) -> bool:
        return draw(st.sampled_from([True] * often + [False])) if wanted is None else wanted

    n = draw(st.integers(3, max_requests))
    cost = draw(st.sampled_from(COSTS))
    prompts = draw(st.lists(st.integers(1, 16), min_size=n, max_size=n))
    outputs = draw(st.lists(st.sampled_from([1, 2, 3, 5, 8, 12]), min_size=n, max_size=n))
    case: dict[str, Any] = {
        "prompt_tokens": prompts,
        "output_tokens": outputs,
        "cost": cost,
        "max_num_seqs": draw(st.sampled_from([1, 2, 2, 3, 4, 8])),
        "max_num_batched_tokens": draw(st.sampled_from([6, 16, 24, 40, 40, 2048])),
        "enable_chunked_prefill": there(None, 2) if chunked is None else chunked,
        "seed": draw(st.integers(0, 3)),
        "label": draw(st.lists(st.sampled_from(["a", "b"]), min_size=n, max_size=n)),
    }
    if rule == "watermark" or there(None, 2):
        case |= draw(kv_limits(prompts, outputs, True))
    kind = draw(st.sampled_from(["fcfs", *ORDERS])) if order is None else order
    case |= draw(order_options(n, kind))
    # Predictions and priorities are read by admission under every order.
    guess = st.lists(st.integers(1, 9), min_size=n, max_size=n)
    if case.get("predicted_output_tokens") is None:
        case["predicted_output_tokens"] = draw(st.one_of(st.none(), guess))
    if case.get("priority") is None:
        value = st.integers(0, 3)
        case["priority"] = draw(st.lists(value, min_size=n, max_size=n))
    if there(None, 1) and there(None, 1):
        case["cached_prefix_tokens"] = [draw(st.integers(0, p)) for p in prompts]
    horizon = st.one_of(st.sampled_from([1.0, 4.0, 12.0]), st.floats(0.0, 30.0))
    case["horizon_s"] = draw(horizon) if not there(None, 2) else None
    if there(patience, 4):
        case["patience"] = draw(patiences())
    if there(retry, 3):
        case["retry"] = draw(retries(case["horizon_s"] is not None))
    if rule is not None or there(admission, 3):
        case["admission"] = draw(admissions(rule))
    if there(long, 1):
        case["long_prompts"] = draw(long_prompts())
    if draw(st.sampled_from([False, False, True])) if closed is None else closed:
        case |= draw(user_loops(case["seed"]))
    else:
        step_s = cost[0] + cost[1] + cost[3]
        gap = st.sampled_from([0.0, 0.0, 0.5, 1.0, 2.0, 6.0]).map(lambda g: g * step_s)
        case |= draw(open_arrivals(n, st.one_of(gap, gap, st.sampled_from(FRACTIONS_S))))
    return case


@st.composite
def today_service_cases(
    draw: st.DrawFn, *, dial: str | None = None, max_requests: int = 12
) -> dict[str, Any]:
    """Draw a case with some of today's dials; `dial`, one of `engine_strategies.TODAY`, is one."""
    # SGLang's way has one queue, first come, first served.
    long, order = (False, "fcfs") if dial == "sglang" else (None, None)
    case = draw(service_cases(long=long, order=order, max_requests=max_requests))
    case = draw(dials_of_today(case, dial))
    if (case.get("admission") or {}).get("policy") is by_the_request:
        # It compares times of sending, which the fast loop knows as joining less delay: an ulp off.
        case.pop("front_end_s", None)
    return case


@st.composite
def user_loops(draw: st.DrawFn, seed: int) -> dict[str, Any]:
    """Draw a closed loop: how many users, when they start, how long they think."""
    users = draw(st.integers(1, 6))
    ramp_s = draw(st.sampled_from([0.0, 0.0, 1.0, 4.0]))
    return {
        "users": users,
        "ramp_s": ramp_s,
        "user_starts_s": np.random.default_rng(seed).uniform(0.0, ramp_s, users).tolist(),
        "think_s": draw(st.sampled_from([0.0, 0.0, 0.25, 1.0, 2.7])),
    }


@st.composite
def pool_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a case without clients for the prefill pool; `decode` has the other pool's dials, and
    `link` (kv_bytes_per_token, link_bytes_per_s, transfer_latency_s).
    """
    quiet = {"patience": False, "retry": False, "admission": False, "long": False}
    case = draw(service_cases(**quiet, closed=False))
    # Blocks that hold two or three answers, so that some are preempted after their journey.
    limits = draw(kv_limits(case["prompt_tokens"], case["output_tokens"], True))
    decode = {
        "cost": draw(st.sampled_from(COSTS)),
        "max_num_seqs": draw(st.sampled_from([2, 3, 4, 8])),
        "max_num_batched_tokens": draw(st.sampled_from([6, 16, 40])),
        "enable_chunked_prefill": draw(st.sampled_from([True, True, False])),
        "order": draw(st.sampled_from(ORDERS)),
    }
    link = draw(st.sampled_from([(1.0, 8.0, 0.25), (1.0, 4.0, 0.0), (3.0, 70.0, 0.01)]))
    return case | {"decode": decode | limits, "link": link}
