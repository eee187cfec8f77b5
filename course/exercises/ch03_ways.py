"""Exercises 3.3 and 3.6: the slots that a static batch wastes, and the longest wait window.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, modes, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, Lognormal, Poisson, Workload, draw

# --- 3.3 slots that nobody used -----------------------------------------------------------------


def wasted_share(batch: np.ndarray, output_tokens: np.ndarray) -> float:
    """Share of all decode slots of a static run that belonged to answers already complete, 0 to 1.

    batch: the number of the batch that each request was in, 0, 1, 2 …; output_tokens: of its
    answer. A batch's prefill gives everybody the first token; then it decodes until its longest
    answer is complete, with a slot for each member in every step.
    """
    slots = 0
    for number in np.unique(batch):
        members = output_tokens[batch == number]
        slots += members.size * (members.max() - 1)
    return float(1 - (output_tokens - 1).sum() / slots)


def mean_of_shares(batch: np.ndarray, output_tokens: np.ndarray) -> float:
    """Each batch's own share, and the mean of those."""
    shares = []
    for number in np.unique(batch):
        members = output_tokens[batch == number]
        shares.append(1 - (members - 1).sum() / (members.size * (members.max() - 1)))
    return float(np.mean(shares))


def longest_of_all(batch: np.ndarray, output_tokens: np.ndarray) -> float:
    """Everybody waits for the longest answer of the whole run."""
    slots = output_tokens.size * (output_tokens.max() - 1)
    return float(1 - (output_tokens - 1).sum() / slots)


def first_token_decoded(batch: np.ndarray, output_tokens: np.ndarray) -> float:
    """A decode step for every token, the first included."""
    slots = 0
    for number in np.unique(batch):
        members = output_tokens[batch == number]
        slots += members.size * members.max()
    return float(1 - output_tokens.sum() / slots)


def waste_over_use(batch: np.ndarray, output_tokens: np.ndarray) -> float:
    """Wasted slots over used ones."""
    slots = 0
    for number in np.unique(batch):
        members = output_tokens[batch == number]
        slots += members.size * (members.max() - 1)
    used = (output_tokens - 1).sum()
    return float((slots - used) / used)


def only_the_longest_works(batch: np.ndarray, output_tokens: np.ndarray) -> float:
    """Steps in which somebody is over, as if such a step were wasted whole."""
    wasted = steps = 0
    for number in np.unique(batch):
        members = output_tokens[batch == number]
        steps += members.max() - 1
        wasted += members.max() - members.min()
    return float(wasted / steps)


def empty_places_counted(batch: np.ndarray, output_tokens: np.ndarray) -> float:
    """Every batch as wide as the fullest one."""
    seats = np.bincount(batch).max()
    slots = 0
    for number in np.unique(batch):
        slots += seats * (output_tokens[batch == number].max() - 1)
    return float(1 - (output_tokens - 1).sum() / slots)


class StaticRun(dict[str, Any]):
    """A case's inputs, and behind them the requests and the price of the steps that made them."""

    work: Workload
    cost: LinearStepCost
    seats: int
    static_s: float


def _static_runs(rng: np.random.Generator) -> list[StaticRun]:
    """Runs of the engine, with answers that differ little or much; the last batch is not full."""
    cases = []
    for seats, sigma, mean in ((8, 0.8, 60), (4, 0.5, 25), (16, 1.0, 90), (6, 0.3, 40)):
        requests = seats * int(rng.integers(4, 8)) + 1 + int(rng.integers(seats - 2))
        outputs = Lognormal.of_mean(mean, sigma, most_tokens=2000)
        work = draw(requests, Poisson(20.0), Fixed(300), outputs, seed=rng)
        cost = LinearStepCost(0.008, 2e-5, 0.0, 1e-4)
        config = EngineConfig(
            max_num_seqs=seats, max_num_batched_tokens=8192, batching=modes.static(seats)
        )
        run = simulate(work, cost, config, progress=False)
        assert run.batch is not None
        case = StaticRun(batch=run.batch.astype(np.int64), output_tokens=work.output_tokens.copy())
        case.work, case.cost, case.seats, case.static_s = work, cost, seats, run.end_s
        cases.append(case)
    return cases


def _continuous_instead(_: Any, case: Any) -> str:
    """The same requests and steps, with seats that are filled again as soon as they are free."""
    config = EngineConfig(max_num_seqs=case.seats, max_num_batched_tokens=8192)
    run = simulate(case.work, case.cost, config, progress=False)
    return (
        f"static batches of {case.seats} are through after {plain(case.static_s, 3)} s; "
        f"continuous batching with as many seats after {plain(run.end_s, 3)} s"
    )


def _describe_static(case: Any) -> str:
    batches = np.unique(case["batch"]).size
    tokens = case["output_tokens"]
    return (
        f"an engine run: {tokens.size} answers of {tokens.min()} to {tokens.max()} tokens in "
        f"{batches} batches of up to {case.seats}"
    )


# --- 3.6 a window for company -------------------------------------------------------------------


def mean_hold_s(arrival_rate_per_s: float, window_s: float) -> float:
    """Return the mean time in seconds that an idle engine's wait window holds a request back.

    The formula of section 3: a window's waits over its requests, the one who opens it included.

    >>> mean_hold_s(0.0, 0.3)
    0.3
    """
    joiners = arrival_rate_per_s * window_s
    return (window_s + joiners * window_s / 2) / (1 + joiners)


def longest_window_s(arrival_rate_per_s: float, allowed_s: float) -> float:
    """Longest wait window, in seconds, that holds a request back by allowed_s on average.

    The engine is idle whenever a request comes that finds no window open; that request opens one,
    and whoever comes while it is open joins it; then all start at once. Arrivals are Poisson, of
    arrival_rate_per_s; work takes next to no time, and there are seats for all.
    """
    # (w + λw · w/2) / (1 + λw) = m  →  λ/2 · w² + (1 − λm) · w − m = 0
    expected = arrival_rate_per_s * allowed_s
    return (expected - 1 + math.sqrt(1 + expected**2)) / arrival_rate_per_s


def everybody_waits_it_out(arrival_rate_per_s: float, allowed_s: float) -> float:
    """A window as long as the mean wait."""
    return allowed_s


def everybody_joins(arrival_rate_per_s: float, allowed_s: float) -> float:
    """Everybody waits half of it, and nobody opened it."""
    return 2 * allowed_s


def joiners_wait_nothing(arrival_rate_per_s: float, allowed_s: float) -> float:
    """Only the one who opens it waits: w / (1 + λw) is allowed."""
    return allowed_s / (1 - arrival_rate_per_s * allowed_s)


def opener_not_counted(arrival_rate_per_s: float, allowed_s: float) -> float:
    """A window's waits over those who join it: 1/λ + w/2 is allowed."""
    return 2 * (allowed_s - 1 / arrival_rate_per_s)


def the_other_root(arrival_rate_per_s: float, allowed_s: float) -> float:
    """The quadratic equation's root on the wrong side of zero."""
    expected = arrival_rate_per_s * allowed_s
    return (expected - 1 - math.sqrt(1 + expected**2)) / arrival_rate_per_s


def _rates_and_waits(rng: np.random.Generator) -> list[dict[str, float]]:
    """10 ms at a quiet rate first; then from windows that hardly anybody joins to a dense one."""
    quiet_per_s = round(float(rng.uniform(4.0, 9.0)), 2)
    cases = [{"arrival_rate_per_s": quiet_per_s, "allowed_s": 0.01}]
    for expected in (0.4, 1.5, 5.0, 30.0):
        allowed_s = round(float(rng.uniform(0.01, 0.2)), 3)
        rate_per_s = round(expected * float(rng.uniform(0.9, 1.1)) / allowed_s, 2)
        cases.append({"arrival_rate_per_s": rate_per_s, "allowed_s": allowed_s})
    return cases


def _held_in_engine(window_s: Any, case: Any) -> str | None:
    """What the student's own window costs in the engine, on steps of a microsecond."""
    rate_per_s, wait_s = case["arrival_rate_per_s"], float(window_s)
    if not 0 <= wait_s <= 60:
        return None
    work = draw(20_000, Poisson(rate_per_s), Fixed(1), Fixed(1), seed=36)
    config = EngineConfig(
        max_num_seqs=4096, max_num_batched_tokens=4096, batching=modes.windowed(wait_s)
    )
    run = simulate(work, LinearStepCost(fixed_s=1e-6), config, progress=False)
    held_s = float(np.mean(run.scheduled_s - run.arrival_s))
    together = len(run) / run.step_end_s.size
    return (
        f"mean wait {plain(1e3 * held_s, 3)} ms, where {plain(1e3 * case['allowed_s'], 3)} ms are "
        f"allowed, and {plain(together, 3)} requests start together on average, for a window of "
        f"{plain(1e3 * wait_s, 3)} ms"
    )


WAYS_EXERCISES = (
    function_exercise(
        "3.3",
        title="Slots that nobody used",
        question=(
            "A server batches statically: it fills a batch, computes all prompts (which gives "
            "everybody the first token), and decodes until the longest answer of that batch is "
            "complete. Who is over early keeps a slot that is computed and thrown away. From the "
            "log of an engine run, work out what share of all decode slots was wasted. The last "
            "batch of a run is usually not full; its empty places are no slots."
        ),
        track="core",
        kind="compute",
        minutes=6,
        difficulty=2,
        reference=wasted_share,
        cases=_static_runs,
        result=Number("", noun="a share between 0 and 1"),
        evidence=_continuous_instead,
        describe=_describe_static,
        wrong=(
            Wrong(
                "mean-of-the-batches-shares",
                mean_of_shares,
                "You take each batch's share and then the mean of those, so that a short batch "
                "counts as much as a long one. Add up slots first, wasted and all, and divide at "
                "the end.",
            ),
            Wrong(
                "longest-of-the-run",
                longest_of_all,
                "You let everybody wait for the longest answer of the whole run. A batch waits "
                "only for its own longest: the next one starts when it is through.",
            ),
            Wrong(
                "first-token-decoded",
                first_token_decoded,
                "You count a decode step for every token. The first token comes out of the "
                "prefill, so an answer of n tokens needs n − 1 slots, and a batch lasts "
                "max − 1 decode steps.",
            ),
            Wrong(
                "waste-over-use",
                waste_over_use,
                "That is wasted slots over *used* ones, and can exceed 1. Asked is the share of "
                "all slots.",
            ),
            Wrong(
                "empty-places-counted",
                empty_places_counted,
                "You give every batch as many slots as the fullest one. In the last batch some "
                "places were never taken; a slot is wasted here only if somebody sat in it: "
                "count the members.",
            ),
            Wrong(
                "steps-for-slots",
                only_the_longest_works,
                "You count steps in which anybody was over. In such a step the others still work: "
                "count slots, one for each member and step.",
            ),
        ),
        hints=(
            "Draw a batch as rows, one a request, as long as its longest. Which part of the "
            "rectangle is work?",
            "A batch of k members decodes k · (max − 1) slots, and sum(n − 1) of them are used. "
            "`output_tokens[batch == number]` picks the members.",
            "1 − (all used slots) / (all slots), each summed over the whole run.",
        ),
        explanation=(
            "The waste is decided by how much the answers differ, not by the hardware: in equal "
            "answers it is 0. Continuous batching gives a slot to the next request in the step "
            "after its answer ended."
        ),
    ),
    function_exercise(
        "3.6",
        title="The longest window for the price",
        question=(
            "Section 3 says what a wait window costs on average. Turn it round: your requests may "
            "be held back by 10 ms on average, say. How long may the window be? At low traffic "
            "nearly everybody opens a window of their own; at high traffic most join one. So the "
            "answer depends on the arrival rate. Solve for the window, by formula or by trying. "
            "In the result below the engine waits your window 20,000 times."
        ),
        track="stretch",
        kind="predict",
        minutes=7,
        difficulty=3,
        reference=longest_window_s,
        cases=_rates_and_waits,
        result=Number("s"),
        evidence=_held_in_engine,
        wrong=(
            Wrong(
                "everyone-the-whole-window",
                everybody_waits_it_out,
                "Only the one who opens the window waits for all of it. Those who join it wait "
                "less, so the mean allows a longer window than that.",
            ),
            Wrong(
                "everyone-half-the-window",
                everybody_joins,
                "Those who *join* a window come anywhere in it and wait half of it on average. "
                "But somebody opened it, and waits it out in full; at low traffic that is nearly "
                "everybody.",
            ),
            Wrong(
                "joiners-wait-nothing",
                joiners_wait_nothing,
                "You let those who find a window open start at once. They wait too, for the rest "
                "of it.",
            ),
            Wrong(
                "opener-not-counted",
                opener_not_counted,
                "You add up the waits of one window rightly, but divide by those who join it. The "
                "one who opens it is a request as well: λ · w + 1 share that sum.",
            ),
            Wrong(
                "the-other-root",
                the_other_root,
                "Your equation is right and has two roots. A window cannot be shorter than "
                "nothing: take the root with the plus sign.",
            ),
        ),
        hints=(
            "Between which two lengths must the window lie? If everybody opened one, it could be "
            "as long as the wait allowed; if everybody joined, twice as long.",
            "(w + λw · w/2) / (1 + λw) = m. Multiply by 1 + λw and collect the powers of w, or "
            "halve the distance between the two lengths again and again.",
            "λ/2 · w² + (1 − λm) · w − m = 0, and w is its root above zero: "
            "(λm − 1 + √(1 + (λm)²)) / λ.",
        ),
        explanation=(
            "From m, when nobody else comes, the window may only grow to 2m, however dense the "
            "traffic. What it buys is company, 1 + λw requests a start: next to none at low "
            "traffic. And continuous batching gets company for nothing, since whoever comes "
            "joins at the next step."
        ),
    ),
)

__all__ = ["WAYS_EXERCISES"]
