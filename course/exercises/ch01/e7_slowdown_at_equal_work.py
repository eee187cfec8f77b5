"""Exercise 1.7, More tokens per second, and no faster: reference, wrong answers and judging."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, Lognormal, Poisson, Workload, draw


def slowdown_at_equal_work(
    tokens_before: np.ndarray,
    e2e_before_s: np.ndarray,
    tokens_after: np.ndarray,
    e2e_after_s: np.ndarray,
) -> float:
    """Mean E2E after over mean E2E before, both for the mix of answer lengths from before.

    One entry a request. tokens_before, tokens_after: output tokens of each answer, 100 or 500,
    in the week before and after the new release; e2e_before_s, e2e_after_s: its end-to-end
    latency in seconds. Above 1 the new release is slower, below 1 faster.
    """
    after_s = 0.0
    for tokens in (100, 500):
        share_before = np.mean(tokens_before == tokens)
        after_s += share_before * np.mean(e2e_after_s[tokens_after == tokens])
    return float(after_s / np.mean(e2e_before_s))


def means_of_two_mixes(tokens_before, e2e_before_s, tokens_after, e2e_after_s):
    """The two weeks' means, whatever was asked in them."""
    return float(np.mean(e2e_after_s) / np.mean(e2e_before_s))


def divided_by_length(tokens_before, e2e_before_s, tokens_after, e2e_after_s):
    """Seconds per token of each request, as if that did not depend on its length."""
    after_s, before_s = e2e_after_s / tokens_after, e2e_before_s / tokens_before
    return float(np.mean(after_s) / np.mean(before_s))


def seconds_over_tokens(tokens_before, e2e_before_s, tokens_after, e2e_after_s):
    """All seconds over all tokens, the release note's rate turned round."""
    after_s = e2e_after_s.sum() / tokens_after.sum()
    before_s = e2e_before_s.sum() / tokens_before.sum()
    return float(after_s / before_s)


def half_and_half(tokens_before, e2e_before_s, tokens_after, e2e_after_s):
    """Equal weight to short and long answers."""
    after_s = sum(np.mean(e2e_after_s[tokens_after == n]) for n in (100, 500))
    before_s = sum(np.mean(e2e_before_s[tokens_before == n]) for n in (100, 500))
    return float(after_s / before_s)


def mean_of_ratios(tokens_before, e2e_before_s, tokens_after, e2e_after_s):
    """A ratio for each length, weighted by how often it was asked for."""
    ratio = 0.0
    for tokens in (100, 500):
        share = np.mean(tokens_before == tokens)
        after_s = np.mean(e2e_after_s[tokens_after == tokens])
        ratio += share * after_s / np.mean(e2e_before_s[tokens_before == tokens])
    return float(ratio)


def plain_mean_of_ratios(tokens_before, e2e_before_s, tokens_after, e2e_after_s):
    """A ratio for each length, and the mean of the two."""
    ratios = [
        np.mean(e2e_after_s[tokens_after == n]) / np.mean(e2e_before_s[tokens_before == n])
        for n in (100, 500)
    ]
    return float(np.mean(ratios))


@dataclass(frozen=True)
class Weeks:
    """Two weeks of the same service: traffic and release before, traffic and release after."""

    work_before: Workload
    work_after: Workload
    cost_before: LinearStepCost
    cost_after: LinearStepCost

    def run(self, *, traffic: str, release: str) -> Run:
        """Return the engine's run of one week's traffic on one week's release."""
        work = self.work_before if traffic == "before" else self.work_after
        cost = self.cost_before if release == "before" else self.cost_after
        return simulate(work, cost, EngineConfig(max_num_batched_tokens=8192), progress=False)


class _Logs(dict[str, Any]):
    """A case's inputs, and behind them the weeks that they were logged in."""

    weeks: Weeks


def _traffic(rng: np.random.Generator, share_of_long: float) -> Workload:
    work = draw(800, Poisson(0.05), Lognormal.of_mean(3000, 0.15), Fixed(100), seed=rng)
    tokens = np.where(rng.random(len(work)) < share_of_long, 500, 100)
    return Workload(work.arrival_s, work.prompt_tokens, tokens)


def _releases(rng: np.random.Generator) -> list[_Logs]:
    """Releases that change prefill and decode differently, while users ask for longer answers.

    The load is light, so that the second week's latencies are the release's doing and not that
    of a fuller batch.
    """
    cases = []
    for prefill, decode in ((2.0, 0.9), (0.5, 1.15), (1.3, 1.3), (2.5, 0.75)):
        before = LinearStepCost(float(rng.uniform(0.012, 0.018)), 2e-4, 0.0, 5e-5)
        after = LinearStepCost(
            before.fixed_s * decode * float(rng.uniform(0.97, 1.03)), 2e-4 * prefill, 0.0, 5e-5
        )
        shares = rng.uniform(0.08, 0.15), rng.uniform(0.75, 0.88)
        weeks = Weeks(_traffic(rng, shares[0]), _traffic(rng, shares[1]), before, after)
        old = weeks.run(traffic="before", release="before")
        new = weeks.run(traffic="after", release="after")
        case = _Logs(
            tokens_before=old.work.output_tokens.copy(),
            e2e_before_s=old.e2e_s.round(4),
            tokens_after=new.work.output_tokens.copy(),
            e2e_after_s=new.e2e_s.round(4),
        )
        case.weeks = weeks
        cases.append(case)
    return cases


def _describe_weeks(case: Any) -> str:
    rates = [
        tokens.sum() / run.end_s
        for tokens, run in (
            (case["tokens_before"], case.weeks.run(traffic="before", release="before")),
            (case["tokens_after"], case.weeks.run(traffic="after", release="after")),
        )
    ]
    return (
        f"{len(case['tokens_before'])} requests each week; the release note says "
        f"{plain(rates[0], 3)} output tokens/s before and {plain(rates[1], 3)} after"
    )


def _replayed(_: Any, case: Any) -> str:
    """The same traffic on both releases: what the comparison stands in for."""
    old = case.weeks.run(traffic="before", release="before").e2e_s.mean()
    new = case.weeks.run(traffic="before", release="after").e2e_s.mean()
    return (
        f"the earlier week's requests, replayed on the new release, take "
        f"{plain(float(new / old), 3)} times as long"
    )


EXERCISE = function_exercise(
    "1.7",
    title="More tokens per second, and no faster",
    question=(
        "A release note says: “since Monday the service delivers more than twice the output "
        "tokens per second”. Requests still come at the same rate; but since Monday most "
        "people ask for long answers (500 tokens), while before most asked for short ones "
        "(100). More was asked, so more was delivered. Is the new release faster? Compare "
        "equal work: how long would the *earlier* week's mix of answers take on the new "
        "release, on average, as a multiple of what it took? The logs of both weeks have "
        "answers of either length."
    ),
    kind="audit",
    minutes=7,
    difficulty=2,
    reference=slowdown_at_equal_work,
    cases=_releases,
    result=Number("", rel=2e-3, noun="a ratio without a unit"),
    describe=_describe_weeks,
    evidence=_replayed,
    wrong={
        means_of_two_mixes: (
            "You divide the weeks' overall means. Long answers take longer on any server, and "
            "the second week has more of them: that ratio is mostly the users' doing."
        ),
        divided_by_length: (
            "You divide each request's time by its tokens to make them comparable. But the "
            "TTFT is paid once, however long the answer: spread over 500 tokens it looks "
            "five times cheaper than over 100. Compare answers of one length."
        ),
        seconds_over_tokens: (
            "All seconds over all tokens is the release note's own figure turned round. A "
            "week of long answers has fewer seconds per token on the very same server."
        ),
        half_and_half: (
            "You compare length by length, which is right, and then give both lengths equal "
            "weight. Nobody sent that traffic: weigh them as the earlier week did."
        ),
        mean_of_ratios: (
            "You average the ratios of the two lengths. Then a second won on a short answer "
            "counts more than a second lost on a long one. Average the times first, and "
            "divide once at the end."
        ),
        plain_mean_of_ratios: (
            "You take the mean of the two lengths' ratios. Asked is how long the earlier "
            "week's whole mix takes, and a ratio knows neither how often its length was asked "
            "for nor how long it lasts. Average the *times*, weighted as the earlier week "
            "was, and divide once at the end."
        ),
    },
    hints=(
        "In which group of requests are the two weeks comparable as they stand?",
        "For each of the two lengths: the mean E2E on the new release, and the share of such "
        "answers in the earlier week.",
        "Add share × mean over both lengths: the earlier mix on the new release. Divide by "
        "np.mean(e2e_before_s).",
    ),
    explanation=(
        "Tokens per second measure what was asked as much as what can be done. Compare slices "
        "of equal length, or better, replay the same requests on both releases, as the card "
        "does."
    ),
)
