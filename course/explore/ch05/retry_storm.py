"""The retry-storm explorer: what it varies, counts and says; the clients are in the engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from course.explore.ch05.timeline import END_S, back_after_s, burst_until_end, over_time
from course.figures.ch05.retry_storm import RetryStorm, RetryStormPicture
from course.serving.engine import Admission, Retry, ServiceRun
from course.serving.requests import Status
from course.serving.scenes import burst as scenes
from course.ui import Explorer, Prediction, Preset, Table, choice, count, slider, toggle
from course.words import percent, rounded

_UNLIMITED = 0
_ATTEMPTS = {
    "one: no retry": 1, "two": 2, "three": 3, "five": 5, "without limit": _UNLIMITED,
}  # fmt: skip
# name -> (growth, jitter)
_SPREADS = {
    "the same each time": (1.0, 0.0),
    "the same, with jitter": (1.0, 1.0),
    "doubling": (2.0, 0.0),
    "doubling, with jitter": (2.0, 1.0),
}


_PAUSES = {
    "the same each time": "after equal delays",
    "the same, with jitter": "after delays of equal range",
    "doubling": "after delays that double",
    "doubling, with jitter": "after random delays whose range doubles",
}
_TIMES = {2: "twice", 3: "three times", 5: "five times"}


@dataclass(frozen=True)
class RetryStormParameters:
    """The burst, the clients' retries, and whom the server refuses."""

    attempts: int = choice(
        3, _ATTEMPTS, label="Attempts in all",
        help="How often a client sends a request before it gives up for good",
    )  # fmt: skip
    delay_s: float = slider(
        1.0, 0.5, 10.0, 0.5, label="Delay before a retry", unit="s",
        help="From refusal or time-out to the next attempt, besides a round trip of 0.1 s",
    )  # fmt: skip
    spread: str = choice(
        "the same each time", list(_SPREADS), label="Delays",
        help="Jitter draws each delay at random between 0 and its full length",
    )  # fmt: skip
    budget_percent: int = count(
        0, 0, 50, 5, label="Retry budget", unit="% of first attempts, 0: none",
        help="All clients together may send so many retries for a hundred first attempts",
    )  # fmt: skip
    noticed: bool = toggle(
        True, label="The server notices who has gone",
        help="It drops a request whose client gave up; otherwise it serves it to the end",
    )  # fmt: skip
    refuse_over_s: float = slider(
        0.0, 0.0, 10.0, 0.5, label="Refuse behind a wait of", unit="s, 0: accept everything",
        help="Who would wait longer than this is refused at once (by waiting tokens / pace)",
    )  # fmt: skip
    rate_per_s: float = slider(
        8.5, 2.0, 12.0, 0.1, label="Usual load", unit="requests/s",
        help="New requests a second before and after the burst",
    )  # fmt: skip
    burst_factor: float = slider(
        3.0, 1.0, 6.0, 0.1, label="Load in the burst", unit="times the usual",
        help="1 is no burst at all",
    )  # fmt: skip
    burst_s: float = slider(
        20.0, 1.0, 40.0, 1.0, label="Length of the burst", unit="s",
        help="The burst begins 80 s after the start",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number draws other requests")


def retry_of(p: RetryStormParameters) -> Retry:
    """Return the clients' retries as the engine takes them."""
    growth, jitter = _SPREADS[p.spread]
    return Retry(
        attempts=p.attempts or None,
        delay_s=p.delay_s,
        growth=growth,
        jitter=jitter,
        budget_share=p.budget_percent / 100 if p.budget_percent else None,
    )


def gate_of(p: RetryStormParameters) -> Admission | None:
    """Return the gate as the engine takes it."""
    return Admission(max_predicted_wait_s=p.refuse_over_s) if p.refuse_over_s else None


@lru_cache(maxsize=2)
def run_of(p: RetryStormParameters) -> ServiceRun:
    """Return the run that the picture shows."""
    return scenes.run_burst(
        burst_until_end(p.rate_per_s, p.burst_factor, p.burst_s),
        retry=retry_of(p), admission=gate_of(p), noticed=p.noticed, seed=p.seed,
    )  # fmt: skip


def _retry_storm(p: RetryStormParameters) -> RetryStorm:
    burst = burst_until_end(p.rate_per_s, p.burst_factor, p.burst_s)
    run = run_of(p)
    good = run.good(scenes.PROMISE)
    time = over_time(run, burst, good)
    stretches = (burst.before, (burst.start_s, burst.end_s), (burst.end_s, END_S))
    sent_s = run.first_sent_s
    goods = [
        float((good & (sent_s >= from_s) & (sent_s < to_s)).sum() / (to_s - from_s))
        for from_s, to_s in stretches
    ]
    after_s = END_S - burst.end_s
    later = (sent_s >= burst.end_s) & (sent_s < END_S)
    table = run.attempts
    sent = (table.sent_s >= burst.end_s) & (table.sent_s < END_S)
    computed = int(table.computed_tokens[sent].sum())
    useful = int((table.computed_tokens - table.recomputed_tokens)[sent & table.finished].sum())
    return RetryStorm(
        time=time,
        rate_per_s=p.rate_per_s,
        capacity_per_s=scenes.capacity_per_s(),
        attempts=p.attempts or None,
        pauses=p.spread,
        patience_s=scenes.PATIENCE_S,
        after_s=after_s,
        good_per_s=(goods[0], goods[1], goods[2]),
        offered_after_per_s=float(later.sum() / after_s),
        attempts_after_per_s=float(sent.sum() / after_s),
        attempts_each=float(run.attempt_counts[later].mean()),
        refused_share=float((table.status[sent] == Status.REJECTED).mean()),
        wasted_share=1 - useful / computed if computed else 0.0,
        back_after_s=back_after_s(time, scenes.RECOVERED),
    )


def _words(r: RetryStorm) -> str:
    before, _, after = r.good_per_s
    head = (
        f"{_clients(r)} Before the burst {_rate(before)} of {_rate(r.rate_per_s)} requests a "
        f"second are answered within {r.patience_s:g} s; in the {r.after_s:.0f} s after it, at "
        f"the same load, {_rate(after)}."
    )
    sent = f" Then {_rate(r.attempts_after_per_s)} attempts a second arrive"
    if r.refused_share > 0.005:
        sent += f" ({percent(round(r.refused_share, 2))} of them are refused)"
    waste = f"{percent(round(r.wasted_share, 2))} of what the server computes helps nobody"
    if r.wasted_share < 0.02:
        waste = "next to nothing of what the server computes is in vain"
    return f"{head}{sent}, and {waste}. {_verdict(r)}"


def _clients(r: RetryStorm) -> str:
    if r.attempts == 1:
        return "Nobody sends again."
    often = "without limit" if r.attempts is None else f"{_TIMES[r.attempts]} at most"
    return f"Each request is sent {often}, {_PAUSES[r.pauses]}."


def _rate(value: float) -> str:
    """A rate with two decimals at most, so that a few good answers are not called none."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value < 10 else rounded(value)


def _verdict(r: RetryStorm) -> str:
    if r.back_after_s is None:
        return "The burst is over and the collapse stays."
    if r.back_after_s <= 0:
        return "The service is well as soon as the burst is over."
    if r.kept < 0.5:
        return (
            f"Only {r.back_after_s:.0f} s after the burst's end does a stretch of ten seconds "
            "look like before."
        )
    return f"The service is back {r.back_after_s:.0f} s after the burst's end."


def _question(r: RetryStorm) -> str:
    limit = "without limit" if r.attempts is None else f"at most {r.attempts} times"
    again = "does not send again" if r.attempts == 1 else f"sends again, {limit} in all"
    return (
        f"{_rate(r.rate_per_s)} new requests a second come before and after the burst, for a "
        f"server that can do {rounded(r.capacity_per_s)}. A client that is refused or has waited "
        f"{r.patience_s:g} s {again}. How many attempts a second arrive in the "
        f"{r.after_s:.0f} s after the burst?"
    )


def _tables(r: RetryStorm) -> Table:
    time = r.time
    return {
        "start_s": time.edges_s[:-1],
        "end_s": time.edges_s[1:],
        "offered_per_s": time.offered_per_s,
        "attempts_per_s": time.attempts_per_s,
        "good_per_s": time.good_per_s,
        **{f"share_{name}": share for name, share in time.shares.items()},
    }


_JITTER = {"spread": "doubling, with jitter"}

retry_storm = Explorer(
    call="explore.retry_storm",
    title="Retry storm: the burst ends, and then?",
    parameters=RetryStormParameters,
    compute=_retry_storm,
    filmed=lambda p: {"The storm": run_of(p)},
    drawing=RetryStormPicture,
    narrate=_words,
    alt=(
        "Two panels over 300 s with a burst shaded. Above, requests offered, attempts with retries "
        "and good answers a second, and the capacity as a dotted line. Below, the share of the "
        "attempts sent at each time that was answered in time, answered late, refused, or given up."
    ),
    presets=(
        Preset(
            "The burst ends, the collapse stays",
            "A server at three quarters of its capacity meets twenty busy seconds. Clients wait "
            "ten seconds and try three times.",
            "The load is what it was before. Why does the service not come back?",
            {},
        ),
        Preset(
            "Three attempts and jitter",
            "The same with the advice that every client library gives: delays that double, drawn "
            "at random.",
            "Jitter spreads the retries out. Does it make them fewer?",
            _JITTER,
        ),
        Preset(
            "Retry budget",
            "The same clients share a budget: twenty retries for every hundred first attempts.",
            "Twenty per cent more than three quarters: is that below capacity?",
            {**_JITTER, "budget_percent": 20},
        ),
        Preset(
            "Refuse what cannot make it",
            "Clients as in the second preset, but the server refuses at once who would wait for "
            "more than two seconds.",
            "Refused clients send again too. Why is that no storm?",
            {**_JITTER, "refuse_over_s": 2.0},
        ),
        Preset(
            "Cancelled but not noticed",
            "The retry budget of the third preset; but the server does not see that a client has "
            "gone, and serves it to the end.",
            "Who sits in the queue that the burst left behind, and who waits behind it?",
            {**_JITTER, "budget_percent": 20, "noticed": False},
        ),
        Preset(
            "Unlimited retries",
            "The gate of the fourth preset, and clients who never stop trying.",
            "The server wastes next to nothing. Why does it take so long to be well again?",
            {"attempts": _UNLIMITED, "refuse_over_s": 2.0},
        ),
    ),
    tables=_tables,
    idle=lambda p: ("delay_s", "spread", "budget_percent") if p.attempts == 1 else (),
    prediction=Prediction(
        question=_question,
        unit="attempts/s",
        answer=lambda r: r.attempts_after_per_s,
        x=lambda r: END_S - r.after_s / 2,
    ),
)
