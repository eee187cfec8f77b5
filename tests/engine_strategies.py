"""Random workloads and configurations for engines, as plain-data dictionaries.

What lives here: hypothesis strategies whose values are keyword dictionaries, to be passed to the
reference (`run_case`) or translated for another engine. What does not: an engine, or a check.

A case has `prompt_tokens`, `output_tokens`, `cost` (five coefficients, fixed first) and the
configuration's keywords; an open workload has `arrival_s`, a closed loop `users`, `start_s` and
`think_s` (a number, or one a request). Lists are lists, numbers are int or float. `engine_cases`
leaves today's dials alone, `today_cases` turns them.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

BATCHINGS = ("continuous", "single", "static", "windowed", "adaptive")
ORDERS = ("fcfs", "sjf", "priority")
TODAY = ("whole", "watermark", "caching", "async", "front end", "speculation", "sglang")

# Whole and binary-fraction costs make ties of arrivals and step ends; the others round.
COSTS = (
    (1.0, 0.0, 0.0, 0.0, 0.0),
    (0.5, 0.125, 0.0, 0.25, 0.0),
    (0.0, 0.25, 0.0, 0.5, 0.0),
    (0.010, 3e-5, 1e-9, 1e-4, 2e-8),
    (0.1, 0.013, 1e-4, 0.007, 3e-4),
    (0.0, 0.01, 0.0, 0.003, 1e-5),
)


def gaps_s() -> st.SearchStrategy[float]:
    """Draw one gap between arrivals: bursts of equal arrivals, ties with steps, lulls."""
    return st.one_of(
        st.just(0.0),
        st.just(0.0),
        st.sampled_from([0.125, 0.25, 0.5, 1.0, 2.0]),
        st.floats(0.0, 0.3, allow_subnormal=False),
        st.floats(1.0, 9.0),
    )


@st.composite
def lengths(draw: st.DrawFn, n: int) -> tuple[list[int], list[int]]:
    """Draw n prompts and outputs, one-token outputs and one-token prompts among them."""
    longest = draw(st.sampled_from([4, 9, 20, 90]))
    most = draw(st.sampled_from([12, 30, 6, 1]))
    prompt = st.one_of(st.integers(1, longest), st.integers(longest // 2, longest))
    output = st.one_of(st.integers(most // 2 + 1, most), st.integers(1, most), st.just(1))
    return (
        draw(st.lists(prompt, min_size=n, max_size=n)),
        draw(st.lists(output, min_size=n, max_size=n)),
    )


@st.composite
def pressed_lengths(draw: st.DrawFn, n: int) -> tuple[list[int], list[int]]:
    """Draw n short prompts with long outputs: contexts that outgrow the blocks they began in."""
    prompts = draw(st.lists(st.integers(1, 14), min_size=n, max_size=n))
    return prompts, draw(st.lists(st.integers(3, 24), min_size=n, max_size=n))


@st.composite
def kv_limits(
    draw: st.DrawFn, prompts: list[int], outputs: list[int], pressed: bool
) -> dict[str, Any]:
    """Draw num_kv_blocks and block_size: unlimited, plenty, just enough for one, too little."""
    block_size = draw(st.sampled_from([4, 2, 1] + ([] if pressed else [16])))
    needs = [-(-(p + o - 1) // block_size) for p, o in zip(prompts, outputs, strict=True)]
    largest = max(needs)
    tight = st.one_of(
        st.integers(largest, largest + 3),
        st.integers(largest, 2 * largest),
        st.integers(largest, max(largest, sum(needs) // 2)),
    )
    others = st.one_of(st.just(sum(needs)), st.integers(1, largest), st.none())
    blocks = draw(tight if pressed else st.one_of(tight, others))
    return {"num_kv_blocks": blocks, "block_size": block_size}


@st.composite
def order_options(draw: st.DrawFn, n: int, order: str | None) -> dict[str, Any]:
    """Draw the waiting queue's order and what it reads."""
    order = draw(st.sampled_from(ORDERS)) if order is None else order
    options: dict[str, Any] = {"order": order}
    if order == "sjf":
        guess = st.lists(st.integers(1, 9), min_size=n, max_size=n)
        options["predicted_output_tokens"] = draw(st.one_of(st.none(), guess))
        options["max_wait_s"] = draw(st.sampled_from([None, 0.0, 0.5, 2.0, 10.0]))
    if order == "priority":
        value = st.one_of(st.integers(0, 3), st.sampled_from([0.5, 1.25]))
        options["priority"] = draw(st.lists(value, min_size=n, max_size=n))
        options["ageing_s"] = draw(st.sampled_from([None, 0.5, 3.0, 10.0]))
    return options


@st.composite
def batching_options(draw: st.DrawFn, batching: str, most: int) -> dict[str, Any]:
    """Draw what the batching mode reads; `most` is the largest batch that static may have."""
    options: dict[str, Any] = {"batching": batching}
    if batching == "static":
        options["batch_size"] = draw(st.integers(1, min(most, 8)))
        options["window_s"] = draw(st.sampled_from([None, None, 0.0, 0.25, 1.0, 7.3]))
    if batching == "windowed":
        options["window_s"] = draw(st.sampled_from([0.0, 0.05, 0.25, 1.0, 7.3]))
    if batching == "adaptive":
        options["window_s"] = draw(st.sampled_from([0.0, 0.1, 0.25, 0.5, 1.0, 2.5]))
    return options


@st.composite
def engine_cases(
    draw: st.DrawFn,
    *,
    closed: bool | None = False,
    batching: str | None = None,
    order: str | None = None,
    pressed: bool | None = None,
    max_requests: int = 24,
) -> dict[str, Any]:
    """Draw one case. `closed` None draws either kind; `batching` and `order` fix theirs.

    `pressed` cases have long outputs in few blocks and arrivals a step or two apart, so that
    most of them preempt; None draws them now and then.
    """
    if pressed is None:
        pressed = draw(st.sampled_from([False, False, True]))
    n = draw(st.integers(4, max_requests) if pressed else st.integers(1, max_requests))
    cost = draw(st.sampled_from(COSTS))
    prompts, outputs = draw(pressed_lengths(n) if pressed else lengths(n))
    case: dict[str, Any] = {
        "prompt_tokens": prompts,
        "output_tokens": outputs,
        "cost": cost,
        "max_num_seqs": draw(st.sampled_from([4, 8, 3, 20, 40] + ([] if pressed else [2, 1]))),
        # 16 and 17 lie below the larger numbers of seats, and below many prompts
        "max_num_batched_tokens": draw(st.sampled_from([16, 17, 24, 40, 100, 2048])),
        "enable_chunked_prefill": draw(st.sampled_from([True, True, False])),
        "horizon_s": None if pressed else draw(st.one_of(st.none(), st.none(), horizons_s())),
    }
    case |= draw(kv_limits(prompts, outputs, pressed))
    case |= draw(order_options(n, order))
    modes = ("continuous", "windowed") if pressed else BATCHINGS
    mode = draw(st.sampled_from(modes)) if batching is None else batching
    most = min(case["max_num_seqs"], case["max_num_batched_tokens"])
    case |= draw(batching_options(mode, most))
    if draw(st.sampled_from([False, False, True])):
        case["cached_prefix_tokens"] = [draw(st.integers(0, p)) for p in prompts]
    is_closed = draw(st.booleans()) if closed is None else closed
    if is_closed:
        case |= draw(closed_loops(n))
    else:
        short_step_s = cost[0] + cost[1] + cost[3]
        gap = st.sampled_from([0.0, 0.5, 1.0, 2.0]).map(lambda g: g * short_step_s)
        case |= draw(open_arrivals(n, gap if pressed else gaps_s()))
    return case


def horizons_s() -> st.SearchStrategy[float]:
    """Draw a horizon: at zero, on a step's end, or anywhere."""
    return st.one_of(st.sampled_from([0.0, 1.0, 2.5, 8.0]), st.floats(0.0, 40.0))


@st.composite
def open_arrivals(draw: st.DrawFn, n: int, gap: st.SearchStrategy[float]) -> dict[str, Any]:
    """Draw n sorted arrival times, `gap` apart."""
    arrival_s: list[float] = []
    t = 0.0
    for pause_s in draw(st.lists(gap, min_size=n, max_size=n)):
        t += pause_s
        arrival_s.append(t)
    return {"arrival_s": arrival_s}


@st.composite
def closed_loops(draw: st.DrawFn, n: int) -> dict[str, Any]:
    """Draw users, their starts and their think times (0 among them)."""
    users = draw(st.integers(1, 8))
    start = st.one_of(st.just(0.0), st.sampled_from([0.5, 1.0]), st.floats(0.0, 5.0))
    think = st.one_of(st.just(0.0), st.sampled_from([0.25, 1.0]), st.floats(0.0, 8.0))
    return {
        "users": users,
        "start_s": draw(st.lists(start, min_size=users, max_size=users)),
        "think_s": draw(st.one_of(think, st.lists(think, min_size=n, max_size=n))),
    }


# ------------------------------------------------------------------------------- today's dials
@st.composite
def today_cases(
    draw: st.DrawFn,
    *,
    dial: str | None = None,
    closed: bool | None = None,
    max_requests: int = 14,
) -> dict[str, Any]:
    """Draw a case with some of today's dials; `dial`, one of `TODAY`, is among them."""
    order = "fcfs" if dial == "sglang" else draw(st.sampled_from(["fcfs", "fcfs", *ORDERS]))
    plain = dial in ("async", "caching", "speculation", "sglang")
    others = () if plain else ("windowed", "static")
    mode = draw(st.sampled_from(["continuous"] * 5 + ["single", *others]))
    pressed = mode in ("continuous", "windowed") and draw(st.sampled_from([True, True, False]))
    case = draw(
        engine_cases(
            closed=closed, batching=mode, order=order, pressed=pressed, max_requests=max_requests
        )
    )
    return draw(dials_of_today(case, dial))


@st.composite
def dials_of_today(draw: st.DrawFn, case: dict[str, Any], dial: str | None) -> dict[str, Any]:
    """Turn some of today's dials of a case, `dial` among them; returns the whole case."""

    def wanted(name: str, often: int, possible: bool = True) -> bool:
        return name == dial or (possible and draw(st.sampled_from([True] * often + [False] * 3)))

    case = dict(case)
    way = case.get("batching", "continuous")
    continuous = way in ("continuous", "single")
    plain = continuous and case.get("order", "fcfs") == "fcfs" and not case.get("long_prompts")
    if wanted("sglang", 1, plain):
        case["batching"] = "sglang"
        case["new_token_ratio"] = draw(st.sampled_from([0.0, 0.0, 0.3, 0.7, 1.0]))
        # Below most prompts, so that they go in pieces.
        case["max_num_batched_tokens"] = draw(st.sampled_from([3, 5, 8, 16, 40]))
        case["max_num_seqs"] = draw(st.sampled_from([2, 3, 4, 8]))
    case["scheduler_reserve_full_isl"] = wanted("whole", 3)
    bounded = dial in ("whole", "watermark", "caching")
    if dial == "sglang" or (bounded and case.get("num_kv_blocks") is None):
        case |= draw(kv_limits(case["prompt_tokens"], case["output_tokens"], True))
    limited = case.get("num_kv_blocks") is not None
    if wanted("watermark", 1, limited):
        case["watermark"] = draw(st.sampled_from([0.1, 0.25, 0.34, 0.5]))
    if wanted("caching", 3, limited and way != "static"):
        case["enable_prefix_caching"] = True
        case.pop("cached_prefix_tokens", None)
        case |= draw(prefixes(case["prompt_tokens"], case["block_size"]))
    if wanted("async", 1, continuous):
        case["async_scheduling"] = True
    if wanted("speculation", 1, way != "static"):
        case["num_speculative_tokens"] = draw(st.sampled_from([1, 2, 3, 5]))
        case["acceptance"] = draw(st.sampled_from([0.0, 0.5, 0.8, 1.0]))
        case["speculation_seed"] = draw(st.integers(0, 3))
    patience = case.get("patience") or {}
    limits_s = [patience[name] for name in ("ttft_s", "e2e_s") if patience.get(name) is not None]
    if wanted("front end", 1):
        # Binary fractions, so that joinings, retries and step ends fall on the same moments.
        delays_s = [f for f in (1.0, 0.5, 0.25, 0.03125) if f < min(limits_s, default=9.0)]
        case["front_end_s"] = draw(st.sampled_from(delays_s))
        if "start_s" in case:
            # Times that a front end's delay would round to one have no order of their own.
            case["start_s"] = [round(8 * start_s) / 8 for start_s in case["start_s"]]
    return case


@st.composite
def prefixes(draw: st.DrawFn, prompts: list[int], block_size: int) -> dict[str, Any]:
    """Draw what prompts have in common: few families of chained ids, any ids, groups, nothing."""
    kind = draw(st.sampled_from(["chains", "chains", "ids", "groups", "groups", "nothing"]))
    if kind == "nothing":
        return {}
    if kind == "groups":
        n = len(prompts)
        share = st.sampled_from([0, block_size, 2 * block_size, 3, 7, 99])
        return {
            "prefix_group": draw(st.lists(st.integers(-1, 1), min_size=n, max_size=n)),
            "prefix_shared_tokens": draw(st.lists(share, min_size=n, max_size=n)),
        }
    size = block_size * draw(st.sampled_from([1, 1, 2, 3]))
    lists = []
    for prompt in prompts:
        most = -(-prompt // size)
        if kind == "ids":  # one id may come twice in a prompt, and at several places
            lists.append(draw(st.lists(st.integers(0, 2), max_size=most)))
            continue
        family, length = draw(st.integers(0, 1)), draw(st.integers(0, most))
        leaves = draw(st.integers(0, most))  # from here on the family's members differ
        branch = draw(st.integers(0, 1))
        lists.append(
            [10 * k + family if k < leaves else 10 * k + 2 + 2 * branch + family
             for k in range(length)]
        )  # fmt: skip
    return {"prefix_ids": lists, "prefix_block_tokens": size}
