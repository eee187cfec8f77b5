"""What is to be said of a plan of replicas, for people and for programs; nothing is simulated."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from course.serving.load.planning import HOURS_A_MONTH, counted
from course.serving.load.replicas import Limit, Option, ReplicaPlan, usd_per_hour
from course.serving.requests import SLO
from course.words import aligned, percent, rounded, seconds


@dataclass(frozen=True)
class ReplicaReport:
    """A plan with its money and the words for it; `usd_per_gpu_hour` None where unknown."""

    plan: ReplicaPlan
    gpus_per_replica: int
    usd_per_gpu_hour: float | None
    notes: tuple[str, ...] = ()

    def usd_per_hour(self, replicas: int) -> float | None:
        """What so many replicas cost in an hour; None without a price."""
        if self.usd_per_gpu_hour is None:
            return None
        return usd_per_hour(replicas, self.gpus_per_replica, self.usd_per_gpu_hour)

    @property
    def answer(self) -> str:
        """The recommendation, or why there is none, in a sentence or two."""
        best = self.plan.best
        if best is not None:
            return f"{self._fleet(best)} {self._sure(best)}"
        if not self.plan.can_be_had:
            return self._out_of_reach()
        tried = max(one.replicas for one in self.plan.options)
        near = max(self.plan.options, key=lambda one: one.attainment)
        return (
            f"No fleet of up to {tried} replicas that was tried holds the promise; the best one, "
            f"{_config(near)} on {near.replicas}, keeps it for {percent(_share(near.attainment))} "
            f"of the requests. {_first(near)}"
        )

    def _fleet(self, best: Option) -> str:
        gpus = best.replicas * self.gpus_per_replica
        money = self.usd_per_hour(best.replicas)
        cost = ""
        if money is not None:
            cost = (
                f", {rounded(money)} USD an hour, {rounded(money * HOURS_A_MONTH)} USD a month of "
                f"{HOURS_A_MONTH:g} hours"
            )
        return (
            f"{counted(best.replicas)} ({gpus} {'GPU' if gpus == 1 else 'GPUs'}"
            f"{cost}) with {_config(best)}: {percent(_share(best.attainment))} of the requests "
            f"keep the promise, {percent(self.plan.slo.quantile)} have to."
        )

    def _sure(self, best: Option) -> str:
        if math.isnan(best.low):
            return "The traffic is too short for an interval."
        span = f"{percent(_share(best.low))} to {percent(_share(best.high))}"
        if best.low >= self.plan.slo.quantile:
            return f"Parts of the traffic agree: 95 % interval {span}."
        return (
            f"That is not sure: the 95 % interval from parts of the traffic is {span}; one replica "
            "more, or a longer trace, would tell."
        )

    def _out_of_reach(self) -> str:
        plan = self.plan
        words = (
            "This cannot be had with any number of replicas: in an empty server "
            f"{broken_words(plan.alone)}, so at "
            f"most {percent(_share(plan.alone_attainment))} can keep the promise and "
            f"{percent(plan.slo.quantile)} have to. Promise less, choose faster cards, or send the "
            "long prompts elsewhere."
        )
        near = plan.nearest
        if near is not None:
            words += (
                f" {counted(near.replicas)} with {_config(near)} come near that: "
                f"{percent(_share(near.attainment))}."
            )
        return words

    @property
    def why_not_cheaper(self) -> str:
        """What one replica fewer would break; "" where there is none fewer."""
        fewer = self.plan.cheaper
        if fewer is None:
            return ""
        return (
            f"One replica fewer keeps the promise for {percent(_share(fewer.attainment))} only "
            f"({_config(fewer)}). {_first(fewer)}"
        )

    def as_text(self) -> str:
        """Return the plan as lines of text: answer, why not cheaper, table, notes."""
        plan = self.plan
        lines = [
            f"{plan.requests:,} requests in {seconds(plan.duration_s)}; promised to "
            f"{percent(plan.slo.quantile)} of them: {promise(plan.slo)}",
            "",
            self.answer,
        ]
        if self.why_not_cheaper:
            lines.append(self.why_not_cheaper)
        lines += ["", *(line.rstrip() for line in aligned(self.table()))]
        if self.notes:
            lines += ["", *(f"! {note}" for note in self.notes)]
        return "\n".join(lines)

    def table(self) -> list[list[str]]:
        """Return the options as rows of words, the heads first; the chosen one has a star."""
        share = percent(self.plan.slo.quantile).replace("\u00a0%", "")
        heads = [
            "", "replicas", "max_num_seqs", "max_num_batched_tokens", "kept", "95 % interval",
            f"P{share} TTFT", f"P{share} TPOT", "breaks first", "short of", "busy", "KV peak",
        ]  # fmt: skip
        if self.usd_per_gpu_hour is not None:
            heads.append("USD/hour")
        return [heads, *(self._row(alike) for alike in self._alike())]

    def _alike(self) -> Iterator[list[Option]]:
        """The options in their order, together where more seats change no result."""
        found: dict[tuple[object, ...], list[Option]] = {}
        for one in self.plan.options:
            values = {name: value for name, value in vars(one).items() if name != "config"}
            key = (one.config.max_num_batched_tokens, repr(values))
            found.setdefault(key, []).append(one)
        yield from found.values()

    def _row(self, alike: list[Option]) -> list[str]:
        one = alike[0]
        star = "*" if any(other is self.plan.best for other in alike) else ""
        seats = ", ".join(str(other.config.max_num_seqs) for other in alike)
        kv = "-" if math.isnan(one.kv_peak) else percent(_share(one.kv_peak))
        interval = "-"
        if not math.isnan(one.low):
            low = percent(_share(one.low)).replace("\u00a0%", "")
            interval = f"{low} to {percent(_share(one.high))}"
        broken = one.breaks_first
        cells = [
            star, f"{one.replicas}", seats,
            f"{one.config.max_num_batched_tokens}", percent(_share(one.attainment)), interval,
            _time(one.ttft_s), _time(one.tpot_s), broken or "-",
            one.cause if broken in ("TTFT", "TPOT", "E2E") else "-", percent(_share(one.busy)), kv,
        ]  # fmt: skip
        money = self.usd_per_hour(one.replicas)
        return cells if money is None else [*cells, rounded(money)]

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values that JSON can hold: seconds, shares, USD."""
        plan = self.plan
        return {
            "requests": plan.requests,
            "duration_s": plan.duration_s,
            "slo": {
                "ttft_s": plan.slo.ttft_s, "tpot_s": plan.slo.tpot_s, "e2e_s": plan.slo.e2e_s,
                "quantile": plan.slo.quantile,
            },
            "can_be_had": plan.can_be_had,
            "alone_attainment": plan.alone_attainment,
            "broken_alone": dict(plan.alone),
            "best": None if plan.best is None else plan.options.index(plan.best),
            "answer": self.answer,
            "why_not_cheaper": self.why_not_cheaper,
            "gpus_per_replica": self.gpus_per_replica,
            "usd_per_gpu_hour": self.usd_per_gpu_hour,
            "options": [self._plain(one) for one in plan.options],
            "notes": list(self.notes),
        }  # fmt: skip

    def _plain(self, one: Option) -> dict[str, Any]:
        found: dict[str, Any] = {
            "max_num_seqs": one.config.max_num_seqs,
            "max_num_batched_tokens": one.config.max_num_batched_tokens,
            "gpus": one.replicas * self.gpus_per_replica,
            "usd_per_hour": self.usd_per_hour(one.replicas),
            "breaks_first": one.breaks_first,
            "short_of": one.cause,
        }
        for name, value in vars(one).items():
            if name != "config":
                found[name] = None if isinstance(value, float) and math.isnan(value) else value
        return found


def promise(slo: SLO) -> str:
    """Return an SLO's limits in words.

    >>> promise(SLO(ttft_s=1.0, tpot_s=0.05))
    'TTFT ≤ 1.00 s, TPOT ≤ 50.0 ms'
    """
    named = (("TTFT", slo.ttft_s), ("TPOT", slo.tpot_s), ("E2E", slo.e2e_s))
    return ", ".join(f"{name} ≤ {seconds(limit)}" for name, limit in named if limit is not None)


def broken_words(broken: Mapping[Limit, float]) -> str:
    """Return which limits are broken, by what share of the requests; "" where none is.

    >>> broken_words({"TTFT": 0.25, "TPOT": 0.0, "refused": 0.5}).replace("\u00a0", " ")
    '25 % break the TTFT limit and 50 % are refused, as they never fit'
    """
    return " and ".join(
        f"{percent(_share(share))} are refused, as they never fit"
        if name == "refused"
        else f"{percent(_share(share))} break the {name} limit"
        for name, share in broken.items()
        if share > 0
    )


def _first(one: Option) -> str:
    """Which limit goes first, and what is short."""
    limit = one.breaks_first
    if limit is None:
        return ""
    share = percent(_share(one.missed[limit]))
    if limit == "refused":
        return f"{share} are refused: they need more KV blocks or a larger step than there is."
    short = {
        "KV blocks": f"KV blocks run out ({percent(_share(one.kv_full))} of the busy time full, "
        f"{one.preemptions:,} preemptions)",
        "seats": f"all seats are taken for {percent(_share(one.seats_full))} of the busy time",
        "steps": "neither seats nor KV blocks are short: the steps themselves take too long",
    }
    return f"{limit} breaks first ({share} of the requests): {short[one.cause]}."


def _config(one: Option) -> str:
    config = one.config
    return (
        f"max_num_seqs={config.max_num_seqs}, "
        f"max_num_batched_tokens={config.max_num_batched_tokens}"
    )


def _share(value: float) -> float:
    return round(value, 3)


def _time(value_s: float) -> str:
    return "-" if math.isnan(value_s) else seconds(value_s)
