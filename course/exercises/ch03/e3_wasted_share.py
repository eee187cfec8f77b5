"""Exercise 3.3, Slots that nobody used: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, modes, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, Lognormal, Poisson, Workload, draw


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


def mean_of_the_batches_shares(batch, output_tokens):
    """Each batch's own share, and the mean of those."""
    shares = []
    for number in np.unique(batch):
        members = output_tokens[batch == number]
        shares.append(1 - (members - 1).sum() / (members.size * (members.max() - 1)))
    return float(np.mean(shares))


def longest_of_the_run(batch, output_tokens):
    """Everybody waits for the longest answer of the whole run."""
    slots = output_tokens.size * (output_tokens.max() - 1)
    return float(1 - (output_tokens - 1).sum() / slots)


def first_token_decoded(batch, output_tokens):
    """A decode step for every token, the first included."""
    slots = 0
    for number in np.unique(batch):
        members = output_tokens[batch == number]
        slots += members.size * members.max()
    return float(1 - output_tokens.sum() / slots)


def waste_over_use(batch, output_tokens):
    """Wasted slots over used ones."""
    slots = 0
    for number in np.unique(batch):
        members = output_tokens[batch == number]
        slots += members.size * (members.max() - 1)
    used = (output_tokens - 1).sum()
    return float((slots - used) / used)


def steps_for_slots(batch, output_tokens):
    """Steps in which somebody is over, as if such a step were wasted whole."""
    wasted = steps = 0
    for number in np.unique(batch):
        members = output_tokens[batch == number]
        steps += members.max() - 1
        wasted += members.max() - members.min()
    return float(wasted / steps)


def empty_places_counted(batch, output_tokens):
    """Every batch as wide as the fullest one."""
    seats = np.bincount(batch).max()
    slots = 0
    for number in np.unique(batch):
        slots += seats * (output_tokens[batch == number].max() - 1)
    return float(1 - (output_tokens - 1).sum() / slots)


def one_batch_after_the_other(batch, output_tokens):
    """By where a batch's number changes, as if the log were sorted by it."""
    starts = np.flatnonzero(np.diff(batch)) + 1
    slots = sum(part.size * (part.max() - 1) for part in np.split(output_tokens, starts))
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
        # a log is written as answers end, not batch by batch
        ended = rng.permutation(requests)
        case = StaticRun(
            batch=run.batch.astype(np.int64)[ended], output_tokens=work.output_tokens[ended]
        )
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


EXERCISE = function_exercise(
    "3.3",
    title="Slots that nobody used",
    question=(
        "A server batches statically: it fills a batch, computes all prompts (which gives "
        "everybody the first token), and decodes until the longest answer of that batch is "
        "complete. Who is over early keeps a slot that is computed and thrown away. From the "
        "log of an engine run, work out what share of all decode slots was wasted. The last "
        "batch of a run is usually not full; its empty places are no slots."
    ),
    kind="compute",
    minutes=6,
    difficulty=2,
    reference=wasted_share,
    cases=_static_runs,
    result=Number("", noun="a share between 0 and 1"),
    evidence=_continuous_instead,
    describe=_describe_static,
    wrong={
        mean_of_the_batches_shares: (
            "You take each batch's share and then the mean of those, so that a short batch "
            "counts as much as a long one. Add up slots first, wasted and all, and divide at "
            "the end."
        ),
        longest_of_the_run: (
            "You let everybody wait for the longest answer of the whole run. A batch waits "
            "only for its own longest: the next one starts when it is through."
        ),
        first_token_decoded: (
            "You count a decode step for every token. The first token comes out of the "
            "prefill, so an answer of n tokens needs n − 1 slots, and a batch lasts "
            "max − 1 decode steps."
        ),
        waste_over_use: (
            "That is wasted slots over *used* ones, and can exceed 1. Asked is the share of "
            "all slots."
        ),
        empty_places_counted: (
            "You give every batch as many slots as the fullest one. In the last batch some "
            "places were never taken; a slot is wasted here only if somebody sat in it: "
            "count the members."
        ),
        one_batch_after_the_other: (
            "You take neighbours in the log for a batch. The log is in no order; `batch` says who "
            "ran together: batch == number."
        ),
        steps_for_slots: (
            "You count steps in which anybody was over. In such a step the others still work: "
            "count slots, one for each member and step."
        ),
    },
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
)
