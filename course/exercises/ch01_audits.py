# mypy: allow-any-generics
"""Exercises 1.3 and 1.4: who was served well, and Little's law against a printed report.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.ch01_kinds import Named
from course.exercises.definition import Wrong
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, Run, simulate, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, Gamma, Lognormal, closed_loop_work, draw

# --- 1.4 the queue audits the report ------------------------------------------------------------


def implied_mean_wait_s(
    users: int,
    seats: int,
    output_tokens_per_s: float,
    mean_prompt_tokens: float,
    mean_output_tokens: float,
) -> float:
    """Mean wait of a request for a seat, in seconds, that a report's other figures imply.

    users: people of a closed loop, each sending again as soon as the answer is complete;
    seats: how many requests are served at once, the others wait; output_tokens_per_s: what the
    server delivers to all of them together; mean_prompt_tokens, mean_output_tokens: of a request.
    0.0 where there is a seat for every user.
    """
    requests_per_s = output_tokens_per_s / mean_output_tokens
    waiting = max(0, users - seats)
    return waiting / requests_per_s


def tokens_for_requests(
    users: int,
    seats: int,
    output_tokens_per_s: float,
    mean_prompt_tokens: float,
    mean_output_tokens: float,
) -> float:
    """Tokens per second put where requests per second belong."""
    return max(0, users - seats) / output_tokens_per_s


def everybody_waits(
    users: int,
    seats: int,
    output_tokens_per_s: float,
    mean_prompt_tokens: float,
    mean_output_tokens: float,
) -> float:
    """All users in the queue, those in a seat too."""
    return users / (output_tokens_per_s / mean_output_tokens)


def prompt_among_the_output(
    users: int,
    seats: int,
    output_tokens_per_s: float,
    mean_prompt_tokens: float,
    mean_output_tokens: float,
) -> float:
    """The rate of requests from output tokens/s over all tokens of a request."""
    tokens = mean_prompt_tokens + mean_output_tokens
    return max(0, users - seats) / (output_tokens_per_s / tokens)


def one_seat_for_the_queue(
    users: int,
    seats: int,
    output_tokens_per_s: float,
    mean_prompt_tokens: float,
    mean_output_tokens: float,
) -> float:
    """The queue worked off at the rate of a single seat."""
    requests_per_s_and_seat = output_tokens_per_s / seats / mean_output_tokens
    return max(0, users - seats) / requests_per_s_and_seat


def less_than_nobody_waits(
    users: int,
    seats: int,
    output_tokens_per_s: float,
    mean_prompt_tokens: float,
    mean_output_tokens: float,
) -> float:
    """The formula, followed to where the queue has fewer than no requests in it."""
    return (users - seats) / (output_tokens_per_s / mean_output_tokens)


def _reports(rng: np.random.Generator) -> list[dict[str, Any]]:
    """Reports like the printed one, first of all that one itself; in one there are seats enough."""
    printed = (50, 8, 850.0, 300.0, 150.0)
    rows: list[tuple[float, ...]] = [printed]
    for seats, crowd in ((8, 5.0), (16, 3.0), (32, 0.6), (4, 12.0), (24, 1.5)):
        users = round(seats * crowd * rng.uniform(0.9, 1.1))
        rate = round(float(rng.uniform(400, 3000)), 0)
        lengths = (float(rng.integers(100, 2000)), float(rng.integers(60, 400)))
        rows.append((users, seats, rate, *lengths))
    return [
        {
            "users": int(users),
            "seats": int(seats),
            "output_tokens_per_s": float(rate),
            "mean_prompt_tokens": float(prompt),
            "mean_output_tokens": float(output),
        }
        for users, seats, rate, prompt, output in rows
    ]


def reported_server(case: Any, requests: int = 2_000) -> Run:
    """A run of the engine with the users and seats of a report, as fast as the report says.

    Its steps all last as long as it takes to deliver one token to each seat at the printed rate,
    and a prefill costs nothing: no server could be kinder to the report.
    """
    output = Fixed(round(case["mean_output_tokens"]))
    work = closed_loop_work(requests, Fixed(1), output, seed=13)
    busy = min(case["users"], case["seats"])
    cost = LinearStepCost(fixed_s=busy / case["output_tokens_per_s"])
    return simulate_closed(case["users"], 0.0, work, cost, EngineConfig(max_num_seqs=case["seats"]))


def _wait_in_engine(_: Any, case: Any) -> str:
    run = reported_server(case)
    later = slice(case["users"], -case["users"])  # without ramp and drain
    wait_s = float(np.mean((run.scheduled_s - run.arrival_s)[later]))
    ttft_s = float(np.percentile(run.ttft_s[later], 95))
    return (
        f"{case['users']} users and {case['seats']} seats at {plain(case['output_tokens_per_s'])} "
        f"output tokens/s wait {plain(wait_s, 2)} s on average; P95 TTFT {plain(ttft_s, 2)} s"
    )


# --- 1.3 who was served well --------------------------------------------------------------------


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


def failed_left_out(
    ttft_s: np.ndarray,
    tpot_s: np.ndarray,
    finished: np.ndarray,
    ttft_limit_s: float,
    tpot_limit_s: float,
    window_s: float,
) -> tuple[float, float]:
    """The share of the finished."""
    well = finished & (ttft_s <= ttft_limit_s) & ((tpot_s <= tpot_limit_s) | np.isnan(tpot_s))
    return float(well.sum() / finished.sum()), float(well.sum() / window_s)


def one_token_fails(
    ttft_s: np.ndarray,
    tpot_s: np.ndarray,
    finished: np.ndarray,
    ttft_limit_s: float,
    tpot_limit_s: float,
    window_s: float,
) -> tuple[float, float]:
    """A comparison with NaN, which is never true."""
    well = finished & (ttft_s <= ttft_limit_s) & (tpot_s <= tpot_limit_s)
    return float(well.mean()), float(well.sum() / window_s)


def half_an_answer_counts(
    ttft_s: np.ndarray,
    tpot_s: np.ndarray,
    finished: np.ndarray,
    ttft_limit_s: float,
    tpot_limit_s: float,
    window_s: float,
) -> tuple[float, float]:
    """Judged by the tokens that came, whether or not the rest did."""
    well = (ttft_s <= ttft_limit_s) & ((tpot_s <= tpot_limit_s) | np.isnan(tpot_s))
    return float(well.mean()), float(well.sum() / window_s)


def limits_one_by_one(
    ttft_s: np.ndarray,
    tpot_s: np.ndarray,
    finished: np.ndarray,
    ttft_limit_s: float,
    tpot_limit_s: float,
    window_s: float,
) -> tuple[float, float]:
    """Each limit's own share, and the worse of the two."""
    prompt = finished & (ttft_s <= ttft_limit_s)
    fluent = finished & ((tpot_s <= tpot_limit_s) | np.isnan(tpot_s))
    share = min(float(prompt.mean()), float(fluent.mean()))
    return share, share * len(finished) / window_s


def mean_inside_the_limit(
    ttft_s: np.ndarray,
    tpot_s: np.ndarray,
    finished: np.ndarray,
    ttft_limit_s: float,
    tpot_limit_s: float,
    window_s: float,
) -> tuple[float, float]:
    """One verdict for all, from the means."""
    prompt = np.mean(ttft_s[finished]) <= ttft_limit_s
    fluent = np.nanmean(tpot_s[finished]) <= tpot_limit_s
    well = float(prompt and fluent)
    return well * float(finished.mean()), well * float(finished.sum() / window_s)


def throughput_for_goodput(
    ttft_s: np.ndarray,
    tpot_s: np.ndarray,
    finished: np.ndarray,
    ttft_limit_s: float,
    tpot_limit_s: float,
    window_s: float,
) -> tuple[float, float]:
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


AUDIT_EXERCISES = (
    function_exercise(
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
        track="core",
        kind="compute",
        minutes=8,
        difficulty=2,
        reference=served_well,
        cases=_bursts,
        result=_SHARE_AND_RATE,
        accept=_accept_share_and_rate,
        describe=_describe_burst,
        wrong=(
            Wrong(
                "failed-left-out",
                failed_left_out,
                "Your share is of the *finished* requests. Then a server that refuses everything "
                "hard to serve has a perfect score. Who asked and got nothing was promised the "
                "same: divide by all requests offered.",
            ),
            Wrong(
                "one-token-fails",
                one_token_fails,
                "You fail the answers of one token. Their TPOT is NaN, and `NaN <= limit` is "
                "False without a word. The policy here is that they pass that limit: "
                "`np.isnan` finds them.",
            ),
            Wrong(
                "half-an-answer-counts",
                half_an_answer_counts,
                "You count answers that began well and were never completed. Their first tokens "
                "were in time, but the user left without an answer: only the finished can be good.",
            ),
            Wrong(
                "limits-one-by-one",
                limits_one_by_one,
                "You judge each limit by itself and take the worse share. The requests that are "
                "late and those that are slow are not the same ones: each request must keep *both* "
                "limits.",
            ),
            Wrong(
                "mean-inside-the-limit",
                mean_inside_the_limit,
                "You compare the means with the limits and so give all requests one verdict. A "
                "mean inside the limit says nothing about how many were outside: judge each "
                "request.",
            ),
            Wrong(
                "throughput-for-goodput",
                throughput_for_goodput,
                "The attainment is right, but your second number is the throughput: everything "
                "that finished. Goodput counts only what kept the promise.",
            ),
        ),
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
    ),
    function_exercise(
        "1.4",
        title="The queue audits the report",
        question=(
            "A tuning report prints: one A10G, 50 users who ask again as soon as they are "
            "answered, batch size 8, prompts of 300 and answers of 150 tokens on average, 850 "
            "output tokens/s, P95 TTFT 1.2 s. Take “batch size 8” at its word: eight requests are "
            "served at once, and every other one waits for a seat. What mean wait do the figures "
            "imply? Little's law, L = λ · W, holds for the queue alone as well: mean number "
            "waiting = rate of requests × mean wait. Write it for any such report (not every "
            "figure is needed); the first one tried is this one, and the card plays it in the "
            "engine."
        ),
        track="core",
        kind="audit",
        minutes=7,
        difficulty=2,
        reference=implied_mean_wait_s,
        cases=_reports,
        result=Number("s"),
        evidence=_wait_in_engine,
        wrong=(
            Wrong(
                "tokens-for-requests",
                tokens_for_requests,
                "Your λ is in tokens per second, but what waits is requests. L, λ and W must "
                "speak of the same things: how many *requests* does that many tokens finish?",
            ),
            Wrong(
                "everybody-waits",
                everybody_waits,
                "You let all users wait at the same time. Those in a seat are being served: your "
                "number is the whole time in the system (E2E). Asked is the part before a seat.",
            ),
            Wrong(
                "prompt-among-the-output",
                prompt_among_the_output,
                "You divide *output* tokens per second by prompt and output tokens together. Top "
                "and bottom must count the same tokens: each request brings mean_output_tokens "
                "to that rate.",
            ),
            Wrong(
                "queue-at-one-seat",
                one_seat_for_the_queue,
                "You let the whole queue pass through one seat. Any seat that falls free takes "
                "the next in line, so the queue moves at the rate of all seats together.",
            ),
            Wrong(
                "less-than-nobody",
                less_than_nobody_waits,
                "Right where there are more users than seats. Where there are seats enough, your "
                "queue holds fewer than no requests and the wait is negative; it is 0.0.",
            ),
        ),
        hints=(
            "How many of the users have no seat? That many wait, at every moment.",
            "How many requests does the server finish in a second, if each brings 150 of the 850 "
            "tokens?",
            "mean wait = (users − seats) / (output_tokens_per_s / mean_output_tokens), and not "
            "below 0.",
        ),
        explanation=(
            "850/150 = 5.67 requests/s, 42 waiting: 7.4 s, before any token. For 95 in 100 to be "
            "at 1.2 s or below, the other five would have to wait 125 s on average. "
            "The figures fit if all 50 ran at once: E2E 50/5.67 = 8.8 s. So 8 cannot have "
            "been the number of seats."
        ),
    ),
)

__all__ = ["AUDIT_EXERCISES"]
