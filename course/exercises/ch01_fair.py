# mypy: allow-any-generics
"""Exercises 1.7 and 1.8: two weeks compared fairly, and how many requests a percentile needs.

The references and the wrong answers are ordinary functions; each is copied into a notebook as it
stands, so it uses nothing from outside its body but `math` and `np`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.definition import Wrong
from course.exercises.values import Number, Whole, plain
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Fixed, Lognormal, Poisson, Workload, draw

# --- 1.7 the output-length trap -----------------------------------------------------------------


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


def means_of_two_mixes(
    tokens_before: np.ndarray,
    e2e_before_s: np.ndarray,
    tokens_after: np.ndarray,
    e2e_after_s: np.ndarray,
) -> float:
    """The two weeks' means, whatever was asked in them."""
    return float(np.mean(e2e_after_s) / np.mean(e2e_before_s))


def divided_by_length(
    tokens_before: np.ndarray,
    e2e_before_s: np.ndarray,
    tokens_after: np.ndarray,
    e2e_after_s: np.ndarray,
) -> float:
    """Seconds per token of each request, as if that did not depend on its length."""
    after_s, before_s = e2e_after_s / tokens_after, e2e_before_s / tokens_before
    return float(np.mean(after_s) / np.mean(before_s))


def total_seconds_per_token(
    tokens_before: np.ndarray,
    e2e_before_s: np.ndarray,
    tokens_after: np.ndarray,
    e2e_after_s: np.ndarray,
) -> float:
    """All seconds over all tokens, the release note's rate turned round."""
    after_s = e2e_after_s.sum() / tokens_after.sum()
    before_s = e2e_before_s.sum() / tokens_before.sum()
    return float(after_s / before_s)


def half_of_each(
    tokens_before: np.ndarray,
    e2e_before_s: np.ndarray,
    tokens_after: np.ndarray,
    e2e_after_s: np.ndarray,
) -> float:
    """Equal weight to short and long answers."""
    after_s = sum(np.mean(e2e_after_s[tokens_after == n]) for n in (100, 500))
    before_s = sum(np.mean(e2e_before_s[tokens_before == n]) for n in (100, 500))
    return float(after_s / before_s)


def mean_of_ratios(
    tokens_before: np.ndarray,
    e2e_before_s: np.ndarray,
    tokens_after: np.ndarray,
    e2e_after_s: np.ndarray,
) -> float:
    """A ratio for each length, weighted by how often it was asked for."""
    ratio = 0.0
    for tokens in (100, 500):
        share = np.mean(tokens_before == tokens)
        after_s = np.mean(e2e_after_s[tokens_after == tokens])
        ratio += share * after_s / np.mean(e2e_before_s[tokens_before == tokens])
    return float(ratio)


def plain_mean_of_ratios(
    tokens_before: np.ndarray,
    e2e_before_s: np.ndarray,
    tokens_after: np.ndarray,
    e2e_after_s: np.ndarray,
) -> float:
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


# --- 1.8 how many requests a percentile needs ---------------------------------------------------


def requests_needed(quantile: float, confidence: float) -> int:
    """Fewest requests whose slowest one is an upper bound of a percentile, at this confidence.

    quantile: the share of requests below the percentile, 0.99 for P99; confidence: how sure the
    bound must be, 0.95 for 95 %. The requests are independent of one another.
    """
    return math.ceil(math.log(1 - confidence) / math.log(quantile))


def one_on_average(quantile: float, confidence: float) -> int:
    """Enough to expect one request beyond the percentile."""
    return math.ceil(round(1 / (1 - quantile), 6))


def confidence_itself(quantile: float, confidence: float) -> int:
    """Requests until the chance that none is beyond has come down to the confidence."""
    return math.ceil(math.log(confidence) / math.log(quantile))


def chances_added(quantile: float, confidence: float) -> int:
    """A chance of 1 − quantile with each request, added up until it is the confidence."""
    return math.ceil(round(confidence / (1 - quantile), 6))


def roles_exchanged(quantile: float, confidence: float) -> int:
    """Quantile and confidence in each other's place."""
    return math.ceil(math.log(1 - quantile) / math.log(confidence))


def rounded_down(quantile: float, confidence: float) -> int:
    """The whole part."""
    return math.floor(math.log(1 - confidence) / math.log(quantile))


def _percentiles_and_confidences(rng: np.random.Generator) -> list[dict[str, float]]:
    """P99 at 95 % first, then others; none where the number of requests comes out whole."""
    cases = [{"quantile": 0.99, "confidence": 0.95}]
    while len(cases) < 7:
        quantile = float(rng.choice([0.75, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999]))
        confidence = float(rng.choice([0.8, 0.9, 0.95, 0.98, 0.99]))
        exact = math.log(1 - confidence) / math.log(quantile)
        case = {"quantile": quantile, "confidence": confidence}
        if abs(exact - round(exact)) > 1e-6 and case not in cases:
            cases.append(case)
    return cases


def _tests_that_reach(requests: Any, case: Any) -> str | None:
    """In how many simulated load tests the slowest request lies above the true percentile."""
    count = int(requests)
    if not 1 <= count <= 20_000:
        return None
    rng = np.random.default_rng(18)
    # each request's share of faster requests in the long run: uniform, whatever the latencies
    slowest = np.array([rng.random(count).max() for _ in range(4_000)])
    share = float(np.mean(slowest > case["quantile"]))
    return (
        f"in 4,000 load tests of {count} requests the slowest lay above the true "
        f"P{100 * case['quantile']:g} in {100 * share:.1f} %, for the "
        f"{plain(100 * case['confidence'])} % wanted"
    )


FAIR_EXERCISES = (
    function_exercise(
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
        track="stretch",
        kind="audit",
        minutes=7,
        difficulty=2,
        reference=slowdown_at_equal_work,
        cases=_releases,
        result=Number("", rel=2e-3, noun="a ratio without a unit"),
        describe=_describe_weeks,
        evidence=_replayed,
        wrong=(
            Wrong(
                "means-of-two-mixes",
                means_of_two_mixes,
                "You divide the weeks' overall means. Long answers take longer on any server, and "
                "the second week has more of them: that ratio is mostly the users' doing.",
            ),
            Wrong(
                "divided-by-length",
                divided_by_length,
                "You divide each request's time by its tokens to make them comparable. But the "
                "TTFT is paid once, however long the answer: spread over 500 tokens it looks "
                "five times cheaper than over 100. Compare answers of one length.",
            ),
            Wrong(
                "seconds-over-tokens",
                total_seconds_per_token,
                "All seconds over all tokens is the release note's own figure turned round. A "
                "week of long answers has fewer seconds per token on the very same server.",
            ),
            Wrong(
                "half-and-half",
                half_of_each,
                "You compare length by length, which is right, and then give both lengths equal "
                "weight. Nobody sent that traffic: weigh them as the earlier week did.",
            ),
            Wrong(
                "mean-of-ratios",
                mean_of_ratios,
                "You average the ratios of the two lengths. Then a second won on a short answer "
                "counts more than a second lost on a long one. Average the times first, and "
                "divide once at the end.",
            ),
            Wrong(
                "plain-mean-of-ratios",
                plain_mean_of_ratios,
                "You take the mean of the two lengths' ratios. Asked is how long the earlier "
                "week's whole mix takes, and a ratio knows neither how often its length was asked "
                "for nor how long it lasts. Average the *times*, weighted as the earlier week "
                "was, and divide once at the end.",
            ),
        ),
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
    ),
    function_exercise(
        "1.8",
        title="How many requests a P99 needs",
        question=(
            "A report prints a P99 from 50 requests. It may well be that none of them was among "
            "the slowest hundredth. How many requests must a load test have, so that its "
            "slowest one lies above the true percentile with the confidence asked for? Each "
            "request is below the true P99 with a chance of 0.99, whatever the latencies look "
            "like; what is the chance that *all* n of them are?"
        ),
        track="stretch",
        kind="predict",
        minutes=6,
        difficulty=2,
        reference=requests_needed,
        cases=_percentiles_and_confidences,
        result=Whole("requests"),
        evidence=_tests_that_reach,
        wrong=(
            Wrong(
                "one-on-average",
                one_on_average,
                "In a hundred requests *one on average* is beyond P99. Sometimes there are three, "
                "and in 37 of 100 such tests there is none at all. The confidence must be in the "
                "answer.",
            ),
            Wrong(
                "confidence-for-the-rest",
                confidence_itself,
                "You let the chance that *none* is beyond come down to the confidence itself. It "
                "is the chance of failure, so it must come down to what is left: 1 − confidence. "
                "For P99 at 95 % you get 6 requests, and the slowest of six lies above the true "
                "P99 in 6 tests of 100, where 95 are asked.",
            ),
            Wrong(
                "chances-added",
                chances_added,
                "You add the chances of single requests. Added chances count a test with two slow "
                "requests twice (and pass 100 % in the end). Multiply the chances that each is "
                "*not* beyond.",
            ),
            Wrong(
                "roles-exchanged",
                roles_exchanged,
                "Quantile and confidence have changed places. The chance that goes down with "
                "every request is quantile × quantile × …; it must fall to 1 − confidence.",
            ),
            Wrong(
                "rounded-down",
                rounded_down,
                "With the whole part you fall just short of the confidence: one request more is "
                "needed. Round up.",
            ),
        ),
        hints=(
            "With two requests, the chance that both are below P99 is 0.99 · 0.99.",
            "The smallest n with quantile**n ≤ 1 − confidence.",
            "Take logarithms: n ≥ log(1 − confidence) / log(quantile); both are negative.",
        ),
        explanation=(
            "0.99^n ≤ 0.05 from n = 299 on: below that, chance alone hides the slowest hundredth "
            "in more than one test in twenty. At 50 requests it hides it in 60 of 100."
        ),
    ),
)

__all__ = ["FAIR_EXERCISES"]
