"""Exercise 1.3, Who was served well: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch01.kinds import Named
from course.exercises.values import plain
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Gamma, Lognormal, draw


def served_well(
    ttft_s: np.ndarray,
    tpot_s: np.ndarray,
    finished: np.ndarray,
    ttft_limit_s: float,
    tpot_limit_s: float,
    window_s: float,
) -> tuple[float, float]:
    """SLO attainment (a share of 1) and goodput (requests per second), in this order.

    One entry for each request offered. ttft_s: NaN where no token came; tpot_s: NaN where fewer
    than two came; finished: True where the whole answer arrived, False where the server refused
    or failed, or the user gave up before the end. An answer of one token has no TPOT and passes
    that limit. window_s: how long the test lasted.
    """
    well = finished & (ttft_s <= ttft_limit_s) & ((tpot_s <= tpot_limit_s) | np.isnan(tpot_s))
    return float(well.mean()), float(well.sum() / window_s)


def failed_left_out(ttft_s, tpot_s, finished, ttft_limit_s, tpot_limit_s, window_s):
    """The share of the finished."""
    well = finished & (ttft_s <= ttft_limit_s) & ((tpot_s <= tpot_limit_s) | np.isnan(tpot_s))
    return float(well.sum() / finished.sum()), float(well.sum() / window_s)


def one_token_fails(ttft_s, tpot_s, finished, ttft_limit_s, tpot_limit_s, window_s):
    """A comparison with NaN, which is never true."""
    well = finished & (ttft_s <= ttft_limit_s) & (tpot_s <= tpot_limit_s)
    return float(well.mean()), float(well.sum() / window_s)


def half_an_answer_counts(ttft_s, tpot_s, finished, ttft_limit_s, tpot_limit_s, window_s):
    """Judged by the tokens that came, whether or not the rest did."""
    well = (ttft_s <= ttft_limit_s) & ((tpot_s <= tpot_limit_s) | np.isnan(tpot_s))
    return float(well.mean()), float(well.sum() / window_s)


def limits_one_by_one(ttft_s, tpot_s, finished, ttft_limit_s, tpot_limit_s, window_s):
    """Each limit's own share, and the worse of the two."""
    prompt = finished & (ttft_s <= ttft_limit_s)
    fluent = finished & ((tpot_s <= tpot_limit_s) | np.isnan(tpot_s))
    share = min(float(prompt.mean()), float(fluent.mean()))
    return share, share * len(finished) / window_s


def mean_inside_the_limit(ttft_s, tpot_s, finished, ttft_limit_s, tpot_limit_s, window_s):
    """One verdict for all, from the means."""
    prompt = np.mean(ttft_s[finished]) <= ttft_limit_s
    fluent = np.nanmean(tpot_s[finished]) <= tpot_limit_s
    well = float(prompt and fluent)
    return well * float(finished.mean()), well * float(finished.sum() / window_s)


def throughput_for_goodput(ttft_s, tpot_s, finished, ttft_limit_s, tpot_limit_s, window_s):
    """All that finished, per second."""
    well = finished & (ttft_s <= ttft_limit_s) & ((tpot_s <= tpot_limit_s) | np.isnan(tpot_s))
    return float(well.mean()), float(finished.sum() / window_s)


def _bursts(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Bursts on an engine with few seats, seen by users who give up and one server that crashes.

    A tenth of the answers are a single token. The server does not notice who gave up.
    """
    cases = []
    for burstiness in (0.15, 0.3, 0.1, 0.5):
        output = Lognormal.of_mean(90, 1.0)
        work = draw(400, Gamma(3.0, burstiness), Lognormal.of_mean(400, 0.8), output, seed=rng)
        lengths = work.output_tokens.copy()
        lengths[rng.random(len(work)) < 0.1] = 1
        work = type(work)(work.arrival_s, work.prompt_tokens, lengths)
        cost = LinearStepCost(0.015, 1e-4, 0.0, float(rng.uniform(5e-4, 9e-4)))
        run = simulate(work, cost, EngineConfig(max_num_seqs=24, max_num_batched_tokens=512))
        patience_s = round(float(np.percentile(run.e2e_s, 94)), 1)
        crashed = rng.random(len(run)) < 0.04
        finished = ~crashed & (run.e2e_s <= patience_s)
        cases.append(
            {
                **_seen(run, patience_s, crashed),
                "finished": finished,
                "ttft_limit_s": round(float(np.percentile(run.ttft_s, 80)), 2),
                "tpot_limit_s": round(float(np.nanpercentile(run.tpot_s, 75)), 4),
                "window_s": round(float(run.end_s - run.arrival_s[0]), 2),
            }
        )
    return cases


def _seen(run: Run, patience_s: float, crashed: np.ndarray) -> dict[str, np.ndarray]:
    """TTFT and TPOT of the tokens that came before the user left or the server crashed."""
    ttft_s, tpot_s = np.full(len(run), np.nan), np.full(len(run), np.nan)
    for index in np.flatnonzero(~crashed):
        times_s = run.token_times(int(index)) - run.arrival_s[index]
        times_s = times_s[times_s <= patience_s]
        if times_s.size:
            ttft_s[index] = times_s[0]
        if times_s.size > 1:
            tpot_s[index] = (times_s[-1] - times_s[0]) / (times_s.size - 1)
    return {"ttft_s": ttft_s.round(6), "tpot_s": tpot_s.round(6)}


_SHARE_AND_RATE = Named(("attainment", "goodput"), ("", "/s"))


def _accept_share_and_rate(mine: Any, right: Any, case: Any) -> str | None:
    return _SHARE_AND_RATE.what_misses(mine, right)


def _describe_burst(case: Any) -> str:
    offered, done = len(case["finished"]), int(case["finished"].sum())
    return (
        f"an engine run: {offered} requests offered in {plain(case['window_s'])} s, {done} "
        f"finished; limits TTFT {plain(case['ttft_limit_s'])} s, TPOT "
        f"{plain(1000 * case['tpot_limit_s'])} ms"
    )


EXERCISE = function_exercise(
    "1.3",
    title="Who was served well",
    question=(
        "The promise (SLO): first token within `ttft_limit_s`, and then a TPOT of at most "
        "`tpot_limit_s`. During a burst some requests were refused or failed, and some users "
        "gave up, part of them in the middle of an answer that had begun well. Some answers "
        "are a single token (a yes or no). Work out the SLO attainment, the share of all "
        "requests *offered* that finished inside every limit, and the goodput, how many such "
        "requests the server finished per second of the test: "
        "`return attainment, goodput_per_s`."
    ),
    kind="compute",
    minutes=8,
    difficulty=2,
    reference=served_well,
    cases=_bursts,
    result=_SHARE_AND_RATE,
    accept=_accept_share_and_rate,
    describe=_describe_burst,
    wrong={
        failed_left_out: (
            "Your share is of the *finished* requests. Then a server that refuses everything "
            "hard to serve has a perfect score. Who asked and got nothing was promised the "
            "same: divide by all requests offered."
        ),
        one_token_fails: (
            "You fail the answers of one token. Their TPOT is NaN, and `NaN <= limit` is "
            "False without a word. The policy here is that they pass that limit: "
            "`np.isnan` finds them."
        ),
        half_an_answer_counts: (
            "You count answers that began well and were never completed. Their first tokens "
            "were in time, but the user left without an answer: only the finished can be good."
        ),
        limits_one_by_one: (
            "You judge each limit by itself and take the worse share. The requests that are "
            "late and those that are slow are not the same ones: each request must keep *both* "
            "limits."
        ),
        mean_inside_the_limit: (
            "You compare the means with the limits and so give all requests one verdict. A "
            "mean inside the limit says nothing about how many were outside: judge each "
            "request."
        ),
        throughput_for_goodput: (
            "The attainment is right, but your second number is the throughput: everything "
            "that finished. Goodput counts only what kept the promise."
        ),
    },
    hints=(
        "Make one row of True and False, a verdict for each request. Which three conditions "
        "must a good one meet?",
        "finished & (ttft_s <= …) & (…). Comparisons with NaN are False: what does that do to "
        "an answer of one token?",
        "The verdict's mean is the attainment; its sum over window_s is the goodput.",
    ),
    explanation=(
        "One verdict a request, over all that were offered. Goodput is the rate of the same "
        "requests, and it is the number that a service can be planned with."
    ),
)
