"""The queue audits a report: what a report prints, and what is said of it; Little's law itself is
with the picture's figures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from course.figures.ch01.littles_audit import LittlesAudit, LittlesAuditPicture
from course.ui import Explorer, Prediction, Preset, Table, count, slider
from course.words import rounded, seconds


@dataclass(frozen=True)
class LittlesAuditParameters:
    """The lines of a report: the load, the server, and the figures that it prints."""

    users: int = count(
        50, 1, 256, label="Users (closed loop)",
        help="Each sends a request, waits for the whole answer, and at once sends the next",
    )  # fmt: skip
    seats: int = count(
        8, 1, 256, label="Seats (batch size)", help="How many requests may run at once"
    )
    output_tokens_per_s: float = slider(
        850.0, 10.0, 5000.0, 10.0, label="Throughput", unit="output tokens/s",
        help="Output tokens of all answers together, per second",
    )  # fmt: skip
    mean_output_tokens: int = count(
        150, 10, 2500, 1, label="Mean answer", unit="tokens",
        help="Output tokens of an answer, on average",
    )  # fmt: skip
    ttft_p95_s: float = slider(
        1.2, 0.05, 20.0, 0.05, label="P95 of the TTFT", unit="s",
        help="95 of 100 requests have their first token within this time, the queue included",
    )  # fmt: skip
    tpot_p95_ms: float = slider(
        85.0, 1.0, 200.0, 0.1, label="P95 of the TPOT", unit="ms",
        help="95 of 100 requests need at most this time a token, on average over their answer",
    )  # fmt: skip
    lone_tpot_ms: float = slider(
        0.0, 0.0, 200.0, 0.5, label="TPOT of a request alone", unit="ms, 0: not printed",
        help="What a request alone on the server needs a token, where the report says so",
    )  # fmt: skip
    weights_gb: float = slider(
        13.5, 0.5, 150.0, 0.1, label="Weights", unit="GB",
        help="Two bytes a parameter at 16 bit: 13.5 GB for a model of 6.7 billion",
    )  # fmt: skip
    bandwidth_gb_per_s: float = slider(
        600.0, 100.0, 8000.0, 10.0, label="Memory bandwidth", unit="GB/s",
        help="Of all GPUs that hold the model together: an A10G 600, an H100 3,350",
    )  # fmt: skip


def _littles_audit(p: LittlesAuditParameters) -> LittlesAudit:
    return LittlesAudit(
        users=p.users,
        seats=p.seats,
        output_tokens_per_s=p.output_tokens_per_s,
        mean_output_tokens=p.mean_output_tokens,
        ttft_p95_s=p.ttft_p95_s,
        tpot_p95_s=p.tpot_p95_ms / 1000,
        lone_tpot_s=p.lone_tpot_ms / 1000 or None,
        weights_bytes=p.weights_gb * 1e9,
        bandwidth_bytes_per_s=p.bandwidth_gb_per_s * 1e9,
    )


def _littles_audit_words(r: LittlesAudit) -> str:
    verdict = "Nothing in this report contradicts the rest of it."
    if not r.fits:
        verdict = "These figures cannot all belong to one run."
        if r.pace_fits and r.rate_fits:
            # Little's law bounds the mean wait alone; that a percentile misses it takes a queue.
            verdict = "No server that gives its seats in order of arrival has these figures."
    parts = [verdict, _rate_words(r), _wait_words(r), _pace_words(r), _floor_words(r)]
    if r.lone_tpot_s is not None:
        parts.append(_lone_words(r, r.lone_tpot_s))
    return " ".join(parts)


def _rate_words(r: LittlesAudit) -> str:
    users = "the one user" if r.users == 1 else f"each of the {r.users} users"
    return (
        f"{rounded(r.output_tokens_per_s)} tokens/s in answers of {r.mean_output_tokens:,} are "
        f"{rounded(r.requests_per_s)} requests/s, so {users} gets an answer every "
        f"{seconds(r.time_in_system_s)}."
    )


def _wait_words(r: LittlesAudit) -> str:
    if not r.waiting:
        return "Everybody has a seat."
    seats = "one seat" if r.seats == 1 else f"{r.seats} seats"
    words = f"With {seats} {r.waiting} of them wait, {seconds(r.mean_wait_s)} on average"
    printed = f"the printed P95 of the TTFT, {seconds(r.ttft_p95_s)}"
    if r.wait_fits:
        return f"{words}, within {printed}."
    return (
        f"{words}, above {printed}: the slowest twentieth would have to wait "
        f"{seconds(r.slowest_wait_s)} each."
    )


def _pace_words(r: LittlesAudit) -> str:
    ratio = r.tpot_p95_s / r.needed_tpot_s
    if r.needed_tpot_low_s is None:
        pace = f"The seats make that much at a mean TPOT of {seconds(r.needed_tpot_s)}"
    else:
        pace = (
            f"The mean TPOT is then between {seconds(r.needed_tpot_low_s)} and "
            f"{seconds(r.needed_tpot_s)}"
        )
    printed = f"the printed P95 of {seconds(r.tpot_p95_s)}"
    if not r.pace_fits:
        return f"{pace}, more than {printed}: not all of them were making tokens."
    if ratio >= 2:
        return f"{pace}; {printed} is {rounded(ratio, 2)} times that, and bounds no mean."
    return f"{pace}, beside {printed}."


def _lone_words(r: LittlesAudit, lone_s: float) -> str:
    longer = r.needed_tpot_s / lone_s
    return (
        f"A request alone makes {rounded(1 / lone_s)} tokens/s, {r.running} together make "
        f"{rounded(r.output_tokens_per_s)}: {rounded(r.output_tokens_per_s * lone_s)} times as "
        f"much, in steps {rounded(longer)} times as long. The weights are read once a step, "
        "for one as for all, and explain nothing of the difference."
    )


def _floor_words(r: LittlesAudit) -> str:
    seats = "one seat makes" if r.running == 1 else f"{r.running} seats make"
    return (
        f"Reading {rounded(r.weights_bytes / 1e9)} GB of weights takes "
        f"{seconds(r.step_floor_s)} a step, so {seats} at most "
        f"{rounded(r.most_tokens_per_s)} tokens/s"
        + ("." if r.rate_fits else f", not {rounded(r.output_tokens_per_s)}.")
    )


def _littles_audit_question(r: LittlesAudit) -> str:
    report = (
        f"{r.users} users in a closed loop, {r.seats} seats, "
        f"{rounded(r.output_tokens_per_s)} output tokens/s in answers of {r.mean_output_tokens:,}."
    )
    if r.waiting:
        return f"{report} How long does a request wait for its seat, on average?"
    return f"{report} How long does a whole answer take, on average?"


_SOURCES: Final = {
    "requests_per_s": "follows", "time_in_system_s": "follows", "running": "follows",
    "waiting": "follows", "mean_wait_s": "follows", "ttft_p95_s": "printed",
    "needed_tpot_s": "follows", "tpot_p95_s": "printed", "step_floor_s": "bound",
    "output_tokens_per_s": "printed", "most_tokens_per_s": "bound",
}  # fmt: skip


def _tables(r: LittlesAudit) -> list[Table]:
    return [
        {"figure": name, "value": getattr(r, name), "source": source}
        for name, source in _SOURCES.items()
    ]


littles_audit = Explorer(
    call="explore.littles_audit",
    title="The queue audits the report",
    parameters=LittlesAuditParameters,
    compute=_littles_audit,
    drawing=LittlesAuditPicture,
    narrate=_littles_audit_words,
    alt=(
        "Four groups of horizontal bars. First the users, split into those in seats and those who "
        "wait. Then the mean wait that follows from the report beside its printed P95 of the "
        "TTFT; the mean time a token that the seats need beside the printed P95 and the time in "
        "which the weights can be read; the printed tokens per second beside the most that the "
        "weights allow. Each group says whether it fits."
    ),
    presets=(
        Preset(
            "The A10G report",
            "A printed report: 7B model at 16 bit, one A10G, 50 closed-loop users, batch size 8.",
            "Five lines, each of them plausible. Which two cannot both be true?",
            {},
        ),
        Preset(
            "All fifty run",
            "The same lines, had the batch size been 50.",
            "What is the only line that changed, and why does everything fit now?",
            {"seats": 50},
        ),
        Preset(
            "30 ms alone, 80 ms at batch 8",
            "A report prints an ITL of 30 ms at batch 1 and 80 ms at batch 8 on the same GPU.",
            "Eight seats, three times the tokens. What made a step so much longer?",
            {
                "users": 8, "seats": 8, "output_tokens_per_s": 100.0, "ttft_p95_s": 0.5,
                "tpot_p95_ms": 80.0, "lone_tpot_ms": 30.0,
            },
        ),
        Preset(
            "An honest report",
            "32 users, measured: an 8B model on one H100, 2,048 tokens in and 2,048 out.",
            "Which two of the printed lines could you have computed from the others?",
            {
                "users": 32, "seats": 256, "output_tokens_per_s": 2530.0,
                "mean_output_tokens": 2048, "ttft_p95_s": 1.4, "tpot_p95_ms": 12.6,
                "weights_gb": 16.4, "bandwidth_gb_per_s": 3350.0,
            },
        ),
        Preset(
            "Answers of 100 tokens",
            "A server with 16 users, as it is measured with answers of 100 tokens.",
            "Remember the tokens/s. What will they be with longer answers from the same server?",
            {
                "users": 16, "seats": 16, "output_tokens_per_s": 650.0, "mean_output_tokens": 100,
                "ttft_p95_s": 0.7, "tpot_p95_ms": 22.0, "bandwidth_gb_per_s": 2040.0,
            },
        ),
        Preset(
            "The output-length trap",
            "The same server and prompts, answers of 500 tokens: 760 tokens/s, which is 17 % more.",
            "Did the server get better by 17 %? How many requests a second does it finish now?",
            {
                "users": 16, "seats": 16, "output_tokens_per_s": 760.0, "mean_output_tokens": 500,
                "ttft_p95_s": 0.7, "tpot_p95_ms": 22.0, "bandwidth_gb_per_s": 2040.0,
            },
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_littles_audit_question,
        unit="s",
        answer=lambda r: r.mean_wait_s if r.waiting else r.time_in_system_s,
        mark=lambda r, guess: (guess, 0.0) if r.waiting else None,
    ),
)  # fmt: skip
