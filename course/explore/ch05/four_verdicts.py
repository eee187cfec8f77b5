"""The four-verdicts explorer: three tenants, the gate's dials, and what it says of each."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from course.explore.ch05.fairness import fairness
from course.figures.ch05.four_verdicts import (
    VERDICTS,
    FourVerdicts,
    FourVerdictsPicture,
    Score,
    TenantFate,
)
from course.serving import catalog
from course.serving.engine import Admission, Patience, ServiceRun, Verdict, simulate_service
from course.serving.requests import cost_per_success_usd
from course.serving.scenes import burst as scenes
from course.serving.workload import Workload
from course.ui import Explorer, Prediction, Preset, Table, count, slider
from course.words import percent, rounded

SEATS: Final = 64
"""More than memory has room for: here the KV cache is what runs out."""
SHORT_TOKENS: Final = 30
BUCKET_S: Final = 5.0
"""A tenant's bucket holds so many seconds of what flows into it."""
MEASURED_S: Final = 120.0
_OFFER = ("RunPod", "Secure Cloud")


@dataclass(frozen=True)
class _Tenant:
    """Who asks: mean rate and lengths at a load of 1; a smaller priority is more urgent."""

    name: str
    urgency: str
    priority: int
    rate_per_s: float
    prompt_tokens: int
    output_tokens: int


TENANTS: Final = (
    _Tenant("support chat", "urgent", 0, 2.5, 400, 80),
    _Tenant("shop search", "normal", 1, 2.5, 700, 40),
    _Tenant("reports", "can wait", 2, 0.8, 1500, 80),
)
_GREEDY: Final = 2


@dataclass(frozen=True)
class FourVerdictsParameters:
    """The gate's dials (0 turns one off), and the load of the three tenants."""

    watermark_percent: int = count(
        90, 0, 100, 5, label="KV watermark", unit="% of the blocks, 0: off",
        help="While so much of the KV cache is held, newcomers stand outside",
    )  # fmt: skip
    refuse_over_s: float = slider(
        0.0, 0.0, 10.0, 0.5, label="Refuse behind a wait of", unit="s, 0: off",
        help="Everybody who would wait longer is refused (deadline)",
    )  # fmt: skip
    urgent_only_s: float = slider(
        0.0, 0.0, 10.0, 0.5, label="Urgent only behind a wait of", unit="s, 0: off",
        help="Behind a longer wait only the support chat is let in (priority)",
    )  # fmt: skip
    shorten_over_s: float = slider(
        0.0, 0.0, 10.0, 0.5, label="Shorter answers behind a wait of", unit="s, 0: off",
        help="Behind a longer wait answers are cut to 30 tokens",
    )  # fmt: skip
    bucket_tokens_per_s: int = count(
        0, 0, 5000, 100, label="Token bucket of each tenant", unit="tokens/s, 0: off",
        help="Prompt and answer tokens a tenant may ask for; five seconds' worth at once",
    )  # fmt: skip
    load: float = slider(
        1.4, 0.4, 2.0, 0.1, label="Load of all", unit="times 5.8 requests/s",
        help="At 1 the server is well, at 1.4 it is not",
    )  # fmt: skip
    greedy_factor: float = slider(
        1.0, 1.0, 6.0, 0.5, label="Reports ask for", unit="times as much",
        help="One tenant sends more than its share",
    )  # fmt: skip
    seed: int = count(1, 1, 20, label="Luck (seed)", help="Another number draws other requests")


def work_of(load: float, greedy_factor: float, seed: int) -> Workload:
    """Return the three tenants' requests, labelled and with their priorities.

    Each tenant's arrivals and lengths are draws of their own, so that one that asks for more moves
    nobody else's.
    """
    columns = []
    duration_s = scenes.SETTLING_S + MEASURED_S + scenes.PATIENCE_S
    for place, tenant in enumerate(TENANTS):
        rate_per_s = tenant.rate_per_s * load * (greedy_factor if place == _GREEDY else 1.0)
        number = round(rate_per_s * duration_s)
        gaps, prompts, outputs = _draws(seed, place)
        share = np.cumsum(gaps[: number + 1])
        columns.append(
            (
                duration_s * share[:-1] / share[-1],
                prompts[:number],
                outputs[:number],
                np.full(number, tenant.priority, dtype=np.float64),
                np.full(number, tenant.name),
            )
        )
    arrival_s, prompt, output, priority, label = (
        np.concatenate(parts) for parts in zip(*columns, strict=True)
    )
    order = np.argsort(arrival_s, kind="stable")
    return Workload(
        arrival_s[order], prompt[order], output[order], priority=priority[order], label=label[order]
    )


@lru_cache(maxsize=64)
def _draws(seed: int, place: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Unit gaps, prompts and answers of the most requests that a tenant may send."""
    tenant, most = TENANTS[place], 2400
    rng = [np.random.default_rng([seed, 100 + place, part]) for part in range(3)]

    def lengths(generator: np.random.Generator, mean: int, longest: int) -> np.ndarray:
        drawn = generator.lognormal(np.log(mean) - 0.18, 0.6, size=most)
        return np.clip(np.ceil(drawn), 8, longest).astype(np.int64)

    return (
        rng[0].exponential(size=most),
        lengths(rng[1], tenant.prompt_tokens, 4 * tenant.prompt_tokens),
        lengths(rng[2], tenant.output_tokens, 2 * tenant.output_tokens),
    )


def gate_of(p: FourVerdictsParameters) -> Admission | None:
    """Return the gate as the engine takes it; None where every dial is off."""
    bucket = p.bucket_tokens_per_s
    gate = Admission(
        kv_watermark=p.watermark_percent / 100 or None,
        max_predicted_wait_s=p.refuse_over_s or None,
        least_urgent=0 if p.urgent_only_s else None,
        urgent_only_wait_s=p.urgent_only_s or None,
        degrade_wait_s=p.shorten_over_s or None,
        degrade_to_tokens=SHORT_TOKENS if p.shorten_over_s else None,
        tenant_tokens_per_s=bucket or None,
        tenant_burst_tokens=BUCKET_S * bucket or None,
    )
    return None if gate == Admission() else gate


@lru_cache(maxsize=4)
def _ran(load: float, greedy_factor: float, seed: int, gate: Admission | None) -> ServiceRun:
    return simulate_service(
        work_of(load, greedy_factor, seed),
        scenes.cost(),
        scenes.config(SEATS),
        patience=Patience(e2e_s=scenes.PATIENCE_S),
        admission=gate,
        seed=seed,
    )


def run_of(p: FourVerdictsParameters) -> ServiceRun:
    """Return the run that the picture shows; nobody sends twice."""
    return _ran(p.load, p.greedy_factor, p.seed, gate_of(p))


@lru_cache(maxsize=32)
def _counted(
    load: float, greedy_factor: float, seed: int, gate: Admission | None
) -> tuple[tuple[TenantFate, ...], Score]:
    """Return what became of each tenant's requests sent in the measured time, and the sums."""
    run = _ran(load, greedy_factor, seed, gate)
    sent_s = run.first_sent_s
    measured = (sent_s >= scenes.SETTLING_S) & (sent_s < scenes.SETTLING_S + MEASURED_S)
    good = run.good(scenes.PROMISE)
    verdict = run.attempts.verdict[run.last_attempt]
    work, label = run.work, run.work.label
    assert label is not None
    asked = work.prompt_tokens + work.output_tokens
    got = work.prompt_tokens + run.attempts.emitted_tokens[run.last_attempt]
    fates = []
    for tenant in TENANTS:
        own = measured & (label == tenant.name)
        number = max(int(own.sum()), 1)
        fates.append(
            TenantFate(
                name=tenant.name,
                urgency=tenant.urgency,
                offered_per_s=number / MEASURED_S,
                verdicts={
                    name: float((own & (verdict == Verdict[name.upper()])).sum() / number)
                    for name in VERDICTS
                },
                in_time=float((own & good).sum() / number),
                asked_tokens_per_s=float(asked[own].sum() / MEASURED_S),
                good_tokens_per_s=float(got[own & good].sum() / MEASURED_S),
            )
        )
    number = int((measured & good).sum())
    each = cost_per_success_usd(usd_per_hour(), 1, MEASURED_S, number)
    score = Score(
        good_per_s=number / MEASURED_S,
        cost_usd=None if each is None else 1000 * each,
        fairness=fairness(
            [fate.good_tokens_per_s for fate in fates], [fate.asked_tokens_per_s for fate in fates]
        ),
        preemptions=int(run.attempts.preemptions.sum()),
        wasted_share=run.wasted_tokens / max(run.computed_tokens, 1),
    )
    return tuple(fates), score


@lru_cache(maxsize=1)
def usd_per_hour() -> float:
    """Return what the card costs an hour at one seller; the catalogue has the date."""
    return next(
        price.usd_per_gpu_hour
        for price in catalog.prices(scenes.GPU)
        if (price.seller, price.offer) == _OFFER
    )


def _four_verdicts(p: FourVerdictsParameters) -> FourVerdicts:
    load = (p.load, p.greedy_factor, p.seed)
    tenants, score = _counted(*load, gate_of(p))
    open_tenants, open_score = _counted(*load, None)
    return FourVerdicts(
        tenants=tenants,
        open_tenants=open_tenants,
        score=score,
        open_score=open_score,
        rules=_rules(p),
        has_buckets=p.bucket_tokens_per_s > 0,
        usd_per_hour=usd_per_hour(),
        patience_s=scenes.PATIENCE_S,
    )


def _rules(p: FourVerdictsParameters) -> tuple[str, ...]:
    """The rules that are on, in the order in which the gate asks them."""
    said = (
        (p.bucket_tokens_per_s, f"buckets of {p.bucket_tokens_per_s:,} tokens/s"),
        (p.urgent_only_s, f"urgent only behind {p.urgent_only_s:g} s"),
        (p.refuse_over_s, f"refusal behind {p.refuse_over_s:g} s"),
        (p.shorten_over_s, f"{SHORT_TOKENS} tokens behind {p.shorten_over_s:g} s"),
        (p.watermark_percent, f"a watermark of {p.watermark_percent} %"),
    )
    return tuple(words for on, words in said if on)


def _words(r: FourVerdicts) -> str:
    gate = " and ".join([", ".join(r.rules[:-1]), r.rules[-1]] if r.rules[1:] else r.rules)
    met = ", ".join(f"{t.name} {percent(round(t.in_time, 2))}" for t in r.tenants)
    asked = rounded(sum(tenant.offered_per_s for tenant in r.tenants))
    promise = f"answered within {r.patience_s:g} s"
    head = f"{asked} requests/s come. With {gate or 'no gate'}, {promise}: {met}"
    own, opened = r.score, r.open_score
    sums = f"{rounded(own.good_per_s)} good answers a second at {_price(own)}"
    if not r.rules:
        return f"{head}. That is {sums}; fairness {own.fairness:.2f}."
    before = ", ".join(percent(round(t.in_time, 2)) for t in r.open_tenants)
    return (
        f"{head} (with no gate {before}). That is {sums} instead of "
        f"{rounded(opened.good_per_s)} at {_price(opened)}; fairness {own.fairness:.2f} instead of "
        f"{opened.fairness:.2f}, {own.preemptions:,} preemptions instead of "
        f"{opened.preemptions:,}."
    )


def _price(score: Score) -> str:
    return "no price" if score.cost_usd is None else f"${rounded(score.cost_usd, 2)} per 1,000"


def _asked_about(r: FourVerdicts) -> int:
    """The tenant that the room guesses about: the chat, or reports where a bucket limits them."""
    return _GREEDY if r.has_buckets else 0


def _question(r: FourVerdicts) -> str:
    place = _asked_about(r)
    rates = ", ".join(f"{t.name} {rounded(t.offered_per_s)}" for t in r.tenants)
    if not r.rules:
        return (
            f"Requests a second: {rates}. Nobody guards the door. What share of "
            f"{r.tenants[place].name} is answered within {r.patience_s:g} s?"
        )
    return (
        f"Requests a second: {rates}. The gate: {', '.join(r.rules)}. With no gate "
        f"{percent(round(r.open_tenants[place].in_time, 2))} of {r.tenants[place].name} would be "
        f"answered within {r.patience_s:g} s. What share of it is, with the gate?"
    )


def _tables(r: FourVerdicts) -> list[Table]:
    return [
        {
            "gate": gate, "tenant": tenant.name, "offered_per_s": tenant.offered_per_s,
            "in_time": tenant.in_time, "asked_tokens_per_s": tenant.asked_tokens_per_s,
            "good_tokens_per_s": tenant.good_tokens_per_s, **tenant.verdicts,
        }
        for gate, tenants in (("this", r.tenants), ("none", r.open_tenants))
        for tenant in tenants
    ]  # fmt: skip


four_verdicts = Explorer(
    call="explore.four_verdicts",
    title="Four verdicts: accept, queue, shorten, reject",
    parameters=FourVerdictsParameters,
    compute=_four_verdicts,
    drawing=FourVerdictsPicture,
    narrate=_words,
    alt=(
        "For each of three tenants two bars: the gate's verdicts as shares of its requests, and "
        "the share answered in time, with a diamond where it would be with no gate. On the right "
        "good answers a second, their cost and the fairness among tenants, each against no gate."
    ),
    presets=(
        Preset(
            "Watermark 0.9",
            "Too much for the memory. While nine tenths of the KV blocks are held, newcomers "
            "stand outside instead of pushing others out.",
            "There are fewer preemptions. Do more users get their answer in time?",
            {},
        ),
        Preset(
            "Deadline",
            "A busier hour. Refused is who would wait for over two seconds, whoever it is.",
            "One in fourteen is turned away. Who gains by it?",
            {"watermark_percent": 0, "refuse_over_s": 2.0, "load": 1.6},
        ),
        Preset(
            "Urgent first",
            "The same hour; behind one second of waiting only the support chat is let in.",
            "Who pays for the chat, and is it worth the price?",
            {"watermark_percent": 0, "urgent_only_s": 1.0, "load": 1.6},
        ),
        Preset(
            "One greedy tenant",
            "A quiet hour, until the reports ask for four times as much. There is no gate.",
            "The chat and the search ask for what they always ask for. How are they?",
            {"watermark_percent": 0, "load": 1.0, "greedy_factor": 4.0},
        ),
        Preset(
            "Token buckets",
            "The greedy hour again; each tenant has a bucket of 2,000 tokens a second.",
            "What share of the reports comes through: a quarter, a half, all?",
            {
                "watermark_percent": 0,
                "load": 1.0,
                "greedy_factor": 4.0,
                "bucket_tokens_per_s": 2000,
            },
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=_question,
        unit="%",
        answer=lambda r: 100 * r.tenants[_asked_about(r)].in_time,
        mark=lambda r, guess: (guess, float(_asked_about(r))),
    ),
)
