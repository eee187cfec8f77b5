"""Reads llmperf's `*_individual_responses.json`, one object a request; no other tool's file."""

from __future__ import annotations

import math

import numpy as np

from course.serving.files import Fields, ResultFileError
from course.serving.requests import RequestTable, Status, distribution
from course.serving.results.nouns import BenchmarkRun, Finding, Latency, RunSummary
from course.serving.results.pieces import Room, told, with_rates

TOOL = "llmperf"


def recognises(data: object) -> bool:
    """Whether this is llmperf's list of single responses."""
    return (
        isinstance(data, list)
        and len(data) > 0
        and isinstance(data[0], dict)
        and "end_to_end_latency_s" in data[0]
    )


def version(data: object) -> str | None:
    """The layout does not tell its version."""
    return None


def read(data: object, place: str, room: Room) -> BenchmarkRun:
    """Return the run of a list of responses, all times in seconds; starts are not in the file.

    Raises ResultFileError for a value of the wrong kind, and for more requests than `room` allows.
    """
    if not isinstance(data, list):
        raise ResultFileError("is no list of responses", place)
    room.take(place, requests=len(data))
    notes: list[str] = []
    rows = np.array(
        [_row(Fields(item, f"{place}, response {i}", notes)) for i, item in enumerate(data)]
    )
    good = rows[:, 0] == 1
    ttft, e2e, itl, rate, prompts, outputs = rows[:, 1:].T
    answered = good & (outputs >= 1) & ~np.isnan(ttft) & ~np.isnan(e2e)
    table = _table(ttft, e2e, outputs, prompts, answered, place)
    completed = int(answered.sum())
    summary = RunSummary(
        offered=len(data),
        completed=completed,
        failed=len(data) - completed,
        prompt_tokens_mean=_mean(prompts[answered]),
        output_tokens_mean=_mean(outputs[answered]),
        ttft=_latency(ttft[answered]),
        itl=_latency(itl[answered]),
        e2e=_latency(e2e[answered]),
    )
    return BenchmarkRun(
        place=place,
        label="",
        summary=with_rates(summary),
        requests=table,
        starts_known=False,
        itl_is="requests",
        convention="llmperf",
        findings=(
            *told(notes),
            Finding(
                "itl-definition",
                "inter_token_latency_s is (last − sent)/(chunks + 1): it contains the TTFT, and "
                "one mean a request hides every stall",
            ),
            *_two_counts(rate[answered] * e2e[answered], outputs[answered]),
            Finding(
                "no-start-times",
                "the file has no start times and no duration: rates and concurrency are unknown",
            ),
        ),
    )


def _row(fields: Fields) -> tuple[float, ...]:
    failed = fields.data.get("error_code") is not None or bool(fields.data.get("error_msg"))

    def value(key: str) -> float:
        found = fields.number(key, noise=1e-5)
        return math.nan if found is None else found

    return (
        0.0 if failed else 1.0,
        value("ttft_s"),
        value("end_to_end_latency_s"),
        value("inter_token_latency_s"),
        value("request_output_throughput_token_per_s"),
        float(fields.count("number_input_tokens") or 0),
        float(fields.count("number_output_tokens") or 0),
    )


def _table(
    ttft: np.ndarray,
    e2e: np.ndarray,
    outputs: np.ndarray,
    prompts: np.ndarray,
    answered: np.ndarray,
    place: str,
) -> RequestTable:
    try:
        return RequestTable(
            sent_s=np.zeros(ttft.size),
            first_token_s=np.where(answered, ttft, math.nan),
            last_token_s=np.where(answered, e2e, math.nan),
            output_tokens=outputs,
            status=np.where(answered, Status.FINISHED, Status.FAILED),
            prompt_tokens=prompts,
            end_s=np.where(np.isnan(e2e), 0.0, e2e),
        )
    except ValueError as fault:
        raise ResultFileError(f"is no possible request: {fault}", place) from None


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if values.size else None


def _latency(values: np.ndarray) -> Latency:
    return Latency.of(distribution(values), (0.25, 0.5, 0.75, 0.9, 0.95, 0.99))


def _two_counts(by_rate: np.ndarray, counted: np.ndarray) -> tuple[Finding, ...]:
    """Its own throughput times its own latency has to give its own number of tokens."""
    known = ~np.isnan(by_rate)
    if not known.any():
        return ()
    rate_says, file_says = float(by_rate[known].mean()), float(counted[known].mean())
    if abs(rate_says - file_says) <= 0.05 * file_says:
        return ()
    return (
        Finding(
            "token-count",
            f"request_output_throughput × E2E gives {rate_says:.0f} tokens an answer, "
            f"number_output_tokens says {file_says:.0f}: two ways of counting in one file",
        ),
    )
