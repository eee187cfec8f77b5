"""Two real vLLM logs replayed through the engine, measured beside simulated; no log is kept here.

Nothing is fitted to the logs. The price of a step is fitted to the card's measured iteration
times, by one rule for both cards (`CHOSEN_RULE`) that was fixed before this engine replayed a log;
what the other rules give is shown beside it, because the choice matters: see `data/README.md`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray
from course.serving.catalog import IterationTime, VllmLog, iteration_times, table, vllm_log
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.pricing import LinearStepCost, StepFeatures
from course.serving.requests import Distribution, distribution
from course.serving.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

LOGS = ("rtx-4090", "rtx-pro-6000")
RULES = ("relative", "absolute", "parts")
CHOSEN_RULE = "relative"
COMMITTED = "vllm_logs/replayed.csv"
LOGGED_VERSION = "vllm-0.19"
"""What the logs' servers ran."""

PRICES = tuple(LinearStepCost.__dataclass_fields__)
"""The five prices in the order of the features; the first is paid by every step."""

_FIXED, _TOKENS, _PAIRS, _SEQS, _KV = range(5)
_DIGITS = 6


# ======================================================================================= the fit
@dataclass(frozen=True)
class IterationFit:
    """A linear cost fitted to measured steps, and how far it is off them.

    `errors`: fitted / measured − 1 of each row, in the rows' order. `not_told_apart`: pairs of
    prices that the rows cannot tell apart, because one feature is the same multiple of the other
    in all of them; the first of a pair is set to 0, and the second pays for both.
    """

    rule: str
    cost: LinearStepCost
    errors: tuple[float, ...]
    not_told_apart: tuple[tuple[str, str], ...]

    @property
    def median_error(self) -> float:
        """The median of the errors' sizes, a share."""
        return float(np.median(np.abs(self.errors)))

    @property
    def worst_error(self) -> float:
        """The largest of the errors' sizes, a share."""
        return float(np.abs(self.errors).max())


def step_features(row: IterationTime) -> StepFeatures:
    """Return what the engine would call the step that `row` measures.

    A decode row has `sequences` requests, each with `context_tokens` of cache to read; a prefill
    row computes `prompt_tokens` for each of its sequences, from an empty cache. Raises ValueError
    for a phase that is neither.

    >>> row = iteration_times("RTX-4090", "llmservingsim")[6]
    >>> row.sequences, row.context_tokens, step_features(row).kv_tokens
    (256, 512, 131072)
    """
    if row.phase == "decode":
        return StepFeatures(0, 0, row.sequences, row.sequences * row.context_tokens)
    if row.phase == "prefill":
        prompt = row.prompt_tokens
        pairs = prompt * (prompt + 1) // 2
        return StepFeatures(row.sequences * prompt, row.sequences * pairs, 0, 0)
    raise ValueError(f"phase={row.phase!r} is neither prefill nor decode; leave such rows out")


def fit_iteration_times(rows: Sequence[IterationTime], rule: str = CHOSEN_RULE) -> IterationFit:
    """Fit the five prices of `LinearStepCost` to measured steps of one card and one model.

    All three rules are non-negative least squares (Lawson and Hanson, Solving Least Squares
    Problems, 1974, chapter 23):

    - "relative" makes Σ ((fitted − measured) / measured)² small, so that a step of 20 ms counts as
      much as one of 200 ms;
    - "absolute" makes Σ (fitted − measured)² small: the longest prefills decide;
    - "parts" fits the attention's share of each step to pairs and KV tokens, and the rest to the
      fixed part, prefill tokens and sequences, both relative to the whole step.

    Prices are rounded to six digits, so that every machine replays the same steps. Raises
    ValueError for an unknown rule, rows without a time (or without attention, for "parts"), rows
    of several cards or models, and where there is no prefill or no decode row.

    >>> fit = fit_iteration_times(iteration_times("RTX-4090", "llmservingsim"))
    >>> fit.cost.fixed_s, fit.cost.per_kv_token_s, fit.not_told_apart
    (0.0166748, 2.29145e-07, (('per_decode_seq_s', 'per_kv_token_s'),))
    """
    if rule not in RULES:
        raise ValueError(f"rule={rule!r} is not known; give one of {', '.join(RULES)}")
    _check_rows(rows, needs_parts=rule == "parts")
    features = np.array([(1, *step_features(row)) for row in rows], dtype=np.float64)
    measured_s = np.array([row.step_s for row in rows], dtype=np.float64)
    if rule == "parts":
        attention_s = np.array([row.attention_s for row in rows], dtype=np.float64)
        attention = _least_squares(features, attention_s, measured_s, (_PAIRS, _KV))
        rest_s = measured_s - attention_s
        rest = _least_squares(features, rest_s, measured_s, (_FIXED, _TOKENS, _SEQS))
        prices, pairs = attention + rest, []
    else:
        pairs = _proportional(features)
        columns = [c for c in range(len(PRICES)) if c not in {first for first, _ in pairs}]
        weight_s = measured_s if rule == "relative" else np.ones_like(measured_s)
        prices = _least_squares(features, measured_s, weight_s, columns)
    rounded = [float(f"{price:.{_DIGITS}g}") for price in prices]
    return IterationFit(
        rule,
        LinearStepCost(*rounded),
        tuple((features @ np.array(rounded) / measured_s - 1).tolist()),
        tuple((PRICES[first], PRICES[second]) for first, second in pairs),
    )


def _check_rows(rows: Sequence[IterationTime], needs_parts: bool) -> None:
    """Raise ValueError unless a cost can be fitted to the rows."""
    for index, row in enumerate(rows):
        for name in ("step_s", "attention_s") if needs_parts else ("step_s",):
            value = getattr(row, name)
            if value is None or not value > 0:
                raise ValueError(f"rows[{index}].{name}={value!r} is no time; leave that row out")
    kinds = {(row.gpu, row.model, row.tensor_parallel) for row in rows}
    if len(kinds) > 1:
        named = ", ".join(f"{model} on {n} × {gpu}" for gpu, model, n in sorted(kinds))
        raise ValueError(f"rows are of {named}; give the rows of one set-up")
    for phase in ("prefill", "decode"):
        if not any(row.phase == phase for row in rows):
            raise ValueError(f"rows hold no {phase} step, so it would cost nothing; add some")


def _proportional(features: FloatArray) -> list[tuple[int, int]]:
    """Return the pairs of columns of which one is a multiple of the other in every row.

    Least squares cannot choose between them. Naming them makes the choice ours and not the
    solver's, whose own is the same: it takes the larger column first.
    """
    pairs = []
    for first in range(1, features.shape[1]):
        for second in range(first + 1, features.shape[1]):
            one, other = features[:, first], features[:, second]
            if abs(one @ other) >= (1 - 1e-12) * math.sqrt((one @ one) * (other @ other)):
                pairs.append((first, second))
                break
    return pairs


def _least_squares(
    features: FloatArray, target_s: FloatArray, weight_s: FloatArray, columns: Sequence[int]
) -> FloatArray:
    """Return the prices ≥ 0 of `columns`, 0 for the others, that fit best in units of weight_s."""
    from scipy.optimize import nnls

    chosen = list(columns)
    prices = np.zeros(features.shape[1])
    prices[chosen] = nnls(features[:, chosen] / weight_s[:, None], target_s / weight_s)[0]
    return prices


# ==================================================================================== the replay
@dataclass(frozen=True)
class ReplayedFigure:
    """One figure of a log in seconds, as the server had it and as the engine has it."""

    figure: str
    measured_s: float
    simulated_s: float

    @property
    def error(self) -> float:
        """Simulated / measured − 1: above 0 where the simulation is slower than the server."""
        return self.simulated_s / self.measured_s - 1


@dataclass(frozen=True, eq=False)
class ReplayTable:
    """A log beside its simulation: six figures (mean and P99 of TTFT, TPOT and E2E) and the run."""

    log: VllmLog
    fit: IterationFit
    run: Run
    figures: tuple[ReplayedFigure, ...]

    @property
    def worst_error(self) -> float:
        """The largest of the figures' errors in size, a share."""
        return max(abs(figure.error) for figure in self.figures)

    @property
    def preempted_share(self) -> float:
        """The share of the requests that were preempted at least once in the simulation.

        The log does not say how often it happened on the server.
        """
        return float((self.run.preemptions > 0).mean())

    @property
    def most_preemptions(self) -> int:
        """How often the request was preempted that was preempted most, in the simulation."""
        return int(self.run.preemptions.max())

    @cached_property
    def ttft_distance(self) -> float:
        """The largest distance between the two distribution functions of TTFT (Kolmogorov)."""
        from scipy.stats import ks_2samp

        return float(ks_2samp(self.run.ttft_s, self.log.ttft_s).statistic)

    @cached_property
    def request_errors(self) -> dict[str, FloatArray]:
        """Simulated / measured − 1 of each request: `ttft`, `tpot`, `e2e`, shape (requests,)."""
        return {
            name: getattr(self.run, f"{name}_s") / getattr(self.log, f"{name}_s") - 1
            for name in ("ttft", "tpot", "e2e")
        }

    def rows(self) -> tuple[ReplayRow, ...]:
        """Return the six figures as rows of the committed table, rounded as they stand there."""
        return tuple(
            ReplayRow(
                card=self.log.gpu,
                rule=self.fit.rule,
                figure=figure.figure,
                measured_s=round(figure.measured_s, 6),
                simulated_s=round(figure.simulated_s, 6),
                error=round(figure.error, 4),
                source=self.log.source,
            )
            for figure in self.figures
        )


@dataclass(frozen=True)
class ReplayRow:
    """One row of the committed table; `error` is simulated / measured − 1, a share."""

    card: str
    rule: str
    figure: str
    measured_s: float
    simulated_s: float
    error: float
    source: str


def replay(log_name: str, rule: str = CHOSEN_RULE, *, compiled: bool = True) -> ReplayTable:
    """Replay a real log through the engine and return measured beside simulated.

    The engine gets the log's arrivals and lengths and the server's own settings; a step costs what
    `fit_iteration_times` says for the card. Raises UnknownNameError for a log that the catalogue
    lacks, ValueError for an unknown rule.

    >>> replayed = replay("rtx-4090")
    >>> [(f.figure, round(100 * f.error, 1)) for f in replayed.figures][:2]
    [('ttft_mean', 0.0), ('ttft_p99', -0.2)]
    """
    log = vllm_log(log_name)
    fit = fit_iteration_times(iteration_times(log.gpu, log.source), rule)
    run = _run(log, fit.cost, compiled)
    return ReplayTable(log, fit, run, _figures(log, run, np.ones(len(run), dtype=np.bool_)))


def log_config(log: VllmLog) -> EngineConfig:
    """Return the engine as the log's server was set: its version's defaults, its own dials.

    One of vLLM's blocks is its null block, which no request gets. Where the log does not say how
    many blocks there were, there were enough, and the cache, which shows only then, is off.

    >>> log_config(vllm_log("rtx-4090")).num_kv_blocks
    2587
    """
    blocks = log.num_kv_blocks
    return EngineConfig.like(
        LOGGED_VERSION,
        blocks if blocks is None else blocks - 1,
        enable_prefix_caching=blocks is not None,
        max_num_seqs=log.max_num_seqs,
        max_num_batched_tokens=log.max_num_batched_tokens,
        block_size=log.block_size,
    )


def _run(log: VllmLog, cost: LinearStepCost, compiled: bool = True) -> Run:
    work = Workload(log.arrival_s, log.prompt_tokens, log.output_tokens)
    return simulate(work, cost, log_config(log), compiled=compiled, progress=False)


def _figures(log: VllmLog, run: Run, chosen: npt.NDArray[np.bool_]) -> tuple[ReplayedFigure, ...]:
    """Return mean and P99 of the three latencies of the chosen requests, on both sides."""
    figures = []
    for name in ("ttft", "tpot", "e2e"):
        measured = _sample(getattr(log, f"{name}_s")[chosen])
        simulated = _sample(getattr(run, f"{name}_s")[chosen])
        for statistic in ("mean", "p99"):
            pair = getattr(measured, statistic), getattr(simulated, statistic)
            figures.append(ReplayedFigure(f"{name}_{statistic}", *pair))
    return tuple(figures)


@dataclass(frozen=True)
class HalfFit:
    """A log's second half, with the card's prices and with prices fitted to its first half.

    `factors`: what the fit multiplies the card's prices by: of the fixed part, of prefill (tokens
    and pairs), of decoding (sequences and KV tokens). `as_it_is`, `fitted`: figures of the
    requests that arrived in the second half, with the card's prices and with the fitted ones.
    """

    factors: tuple[float, float, float]
    as_it_is: tuple[ReplayedFigure, ...]
    fitted: tuple[ReplayedFigure, ...]


def fit_first_half(log_name: str) -> HalfFit:
    """Fit three factors of the step's price to a log's first half, and judge by the second.

    The factors make the sum of the squared relative errors of TTFT, TPOT and E2E, request by
    request, small over the first half of the requests (Nelder and Mead, 1965); those of the second
    half are simulated with them, but never looked at.

    >>> [round(factor, 1) for factor in fit_first_half("rtx-pro-6000").factors]
    [1.1, 1.0, 1.0]
    """
    from scipy.optimize import minimize

    log = vllm_log(log_name)
    cost = fit_iteration_times(iteration_times(log.gpu, log.source)).cost
    first = np.arange(log.arrival_s.size) < log.arrival_s.size // 2

    def scaled(logs: npt.ArrayLike) -> LinearStepCost:
        fixed, prefill, decode = np.exp(np.asarray(logs, dtype=np.float64)).tolist()
        return LinearStepCost(
            fixed_s=fixed * cost.fixed_s,
            per_prefill_token_s=prefill * cost.per_prefill_token_s,
            per_prefill_pair_s=prefill * cost.per_prefill_pair_s,
            per_decode_seq_s=decode * cost.per_decode_seq_s,
            per_kv_token_s=decode * cost.per_kv_token_s,
        )

    def loss(logs: npt.ArrayLike) -> float:
        run = _run(log, scaled(logs))
        errors = [
            getattr(run, f"{name}_s")[first] / getattr(log, f"{name}_s")[first] - 1
            for name in ("ttft", "tpot", "e2e")
        ]
        return float(np.square(errors).sum())

    corners = np.vstack([np.zeros(3), 0.05 * np.eye(3)])
    options: Any = {"maxfev": 150, "initial_simplex": corners}
    best = minimize(loss, corners[0], method="Nelder-Mead", options=options).x
    fixed, prefill, decode = np.exp(best).tolist()
    return HalfFit(
        (fixed, prefill, decode),
        _figures(log, _run(log, cost), ~first),
        _figures(log, _run(log, scaled(best)), ~first),
    )


def _sample(values: npt.NDArray[np.float64]) -> Distribution:
    found = distribution(values)
    assert found.undefined == 0, "every logged request has two tokens or more, and finished"
    return found


def replay_all() -> tuple[ReplayRow, ...]:
    """Return every log under every rule, six rows each: what the committed table must hold."""
    return tuple(row for log in LOGS for rule in RULES for row in replay(log, rule).rows())


def committed_rows() -> tuple[ReplayRow, ...]:
    """Return the rows of the committed table, without simulating anything."""
    return table(ReplayRow, COMMITTED)


def to_frame(rows: Sequence[ReplayRow]) -> pd.DataFrame:
    """Return rows as a table, one row a figure of one card under one rule.

    >>> to_frame(committed_rows()).pivot(index=["card", "rule"], columns="figure").shape[0]
    6
    """
    import pandas as pd

    return pd.DataFrame([asdict(row) for row in rows], columns=list(asdict(rows[0])))


def replay_text(replayed: ReplayTable) -> str:
    """Return one replay in words and six lines, for a terminal.

    >>> print(replay_text(replay("rtx-pro-6000")).splitlines()[0])
    RTX-PRO-6000-Server, Llama-3.1-8B in bf16, 300 requests; steps fitted by the rule 'relative'
    """
    log, fit = replayed.log, replayed.fit
    lines = [
        f"{log.gpu}, {log.model} in {log.precision}, {log.arrival_s.size} requests; "
        f"steps fitted by the rule {fit.rule!r}",
        f"  iteration times: {100 * fit.median_error:.1f} % off in the median, "
        f"{100 * fit.worst_error:.1f} % at worst",
        "  figure      measured   simulated   error",
    ]
    lines += [
        f"  {f.figure:<10} {f.measured_s:8.4f} s  {f.simulated_s:8.4f} s  {100 * f.error:+.1f} %"
        for f in replayed.figures
    ]
    lines.append(
        f"  preempted in the simulation: {100 * replayed.preempted_share:.1f} % of the requests, "
        f"one of them {replayed.most_preemptions} times"
        if replayed.most_preemptions
        else "  preempted in the simulation: none"
    )
    lines.append(
        f"  TTFT of single requests: the distribution functions are {replayed.ttft_distance:.3f} "
        "apart at most"
    )
    return "\n".join(lines)


def halves_text(log_name: str, found: HalfFit) -> str:
    """Return what prices fitted to a log's first half do for its second, for a terminal.

    >>> print(halves_text("rtx-4090", fit_first_half("rtx-4090")).splitlines()[1])
      figure      measured   card's prices   fitted to the first half
    """
    fixed, prefill, decode = found.factors
    lines = [
        f"{log_name}, its second half; fitted factors: fixed part {fixed:.3f}, prefill "
        f"{prefill:.3f}, decode {decode:.3f}",
        "  figure      measured   card's prices   fitted to the first half",
    ]
    lines += [
        f"  {one.figure:<10} {one.measured_s:8.4f} s {100 * one.error:+13.1f} % "
        f"{100 * other.error:+24.1f} %"
        for one, other in zip(found.as_it_is, found.fitted, strict=True)
    ]
    return "\n".join(lines)
