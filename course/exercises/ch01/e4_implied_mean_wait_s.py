"""Exercise 1.4, The queue audits the report: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, Run, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, closed_loop_work


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


def tokens_for_requests(users, seats, output_tokens_per_s, mean_prompt_tokens, mean_output_tokens):
    """Tokens per second put where requests per second belong."""
    return max(0, users - seats) / output_tokens_per_s


def everybody_waits(users, seats, output_tokens_per_s, mean_prompt_tokens, mean_output_tokens):
    """All users in the queue, those in a seat too."""
    return users / (output_tokens_per_s / mean_output_tokens)


def prompt_among_the_output(
    users, seats, output_tokens_per_s, mean_prompt_tokens, mean_output_tokens
):
    """The rate of requests from output tokens/s over all tokens of a request."""
    tokens = mean_prompt_tokens + mean_output_tokens
    return max(0, users - seats) / (output_tokens_per_s / tokens)


def queue_at_one_seat(users, seats, output_tokens_per_s, mean_prompt_tokens, mean_output_tokens):
    """The queue worked off at the rate of a single seat."""
    requests_per_s_and_seat = output_tokens_per_s / seats / mean_output_tokens
    return max(0, users - seats) / requests_per_s_and_seat


def less_than_nobody(users, seats, output_tokens_per_s, mean_prompt_tokens, mean_output_tokens):
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


EXERCISE = function_exercise(
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
    kind="audit",
    minutes=7,
    difficulty=2,
    reference=implied_mean_wait_s,
    cases=_reports,
    result=Number("s"),
    evidence=_wait_in_engine,
    wrong={
        tokens_for_requests: (
            "Your λ is in tokens per second, but what waits is requests. L, λ and W must "
            "speak of the same things: how many *requests* does that many tokens finish?"
        ),
        everybody_waits: (
            "You let all users wait at the same time. Those in a seat are being served: your "
            "number is the whole time in the system (E2E). Asked is the part before a seat."
        ),
        prompt_among_the_output: (
            "You divide *output* tokens per second by prompt and output tokens together. Top "
            "and bottom must count the same tokens: each request brings mean_output_tokens "
            "to that rate."
        ),
        queue_at_one_seat: (
            "You let the whole queue pass through one seat. Any seat that falls free takes "
            "the next in line, so the queue moves at the rate of all seats together."
        ),
        less_than_nobody: (
            "Right where there are more users than seats. Where there are seats enough, your "
            "queue holds fewer than no requests and the wait is negative; it is 0.0."
        ),
    },
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
)
