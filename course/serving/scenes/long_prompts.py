"""Notebook 04's traffic and the remedies for its long prompts; a step is defined in the engine.

Chats come one by one, and every so often a group of documents together, on Llama-3.1-8B and one
H100. Public traces give the same scene with other people's lengths.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray
from course.serving.engine import (
    EngineConfig,
    LengthRun,
    LongPrompts,
    ServiceRun,
    orders,
    simulate_by_length,
    simulate_service,
)
from course.serving.pricing import RooflineStepCost
from course.serving.workload import Lognormal, Poisson, Quantiles, Workload, draw

BoolArray = npt.NDArray[np.bool_]

OVER_TOKENS: Final = 4096
"""A prompt longer than this is a document."""
DOCUMENT_ANSWER: Final = 300
"""Tokens that every document's answer has."""
EVERY_S: Final = 12.0
"""Seconds between two groups of documents; the first comes after half of it."""
SEATS: Final = 256
BUDGET: Final = 2048
"""Tokens of a step (max_num_batched_tokens) that notebook 04 gives its servers."""

# A question of a few lines, an answer of a paragraph: means of about 300 and 170 tokens.
CHAT_PROMPT: Final = Lognormal(5.4, 0.8, most_tokens=4000)
CHAT_ANSWER: Final = Lognormal(4.9, 0.7, most_tokens=1000)

NO_REMEDY: Final = "nobody guards the queue"
OWN_QUEUE: Final = "a queue of its own"
SHORTEST_FIRST: Final = "shortest first"
SHORTEST_LIMITED: Final = "shortest first with a limit"
OWN_POOL: Final = "a pool of its own"
REMEDIES: Final = (NO_REMEDY, OWN_QUEUE, SHORTEST_FIRST, SHORTEST_LIMITED, OWN_POOL)
PUBLIC: Final = ("azure-2023-conversation", "sharegpt", "mooncake-conversation")
"""Traces whose published lengths the remedies are tried on."""


@lru_cache(maxsize=1)
def server() -> RooflineStepCost:
    """Return the cost of notebook 04's server: Llama-3.1-8B in bf16 on one H100."""
    return RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")


@lru_cache(maxsize=16)
def _chats(number: int, seed: int) -> Workload:
    """The chats at one a second: another rate keeps every length and every gap's share."""
    return draw(number, Poisson(1.0), CHAT_PROMPT, CHAT_ANSWER, seed=seed)


@lru_cache(maxsize=64)
def chats_and_documents(
    rate_per_s: float,
    documents: int,
    seed: int = 1,
    document_tokens: int = 20_000,
    chats: int = 1200,
) -> Workload:
    """Return `chats` chats, and `documents` documents together every `EVERY_S` seconds.

    `label` says which is which. Requests of one moment keep chats before documents. Raises
    ValueError where a rate or a number is no workload's.

    >>> work = chats_and_documents(20.0, 3)
    >>> int((work.label == "document").sum()), float(work.arrival_s[work.label == "document"][0])
    (15, 6.0)
    """
    short = _chats(chats, seed).scaled(rate_per_s)
    times_s = np.repeat(np.arange(EVERY_S / 2, short.arrival_s[-1], EVERY_S), documents)
    return with_long_ones(short, times_s, document_tokens, DOCUMENT_ANSWER)


def with_long_ones(chats: Workload, times_s: FloatArray, prompt: int, output: int) -> Workload:
    """Return the chats, and a document of these lengths at each time; `label` says which is which.

    >>> work = with_long_ones(Workload([0.0, 2.0], [5, 6], [1, 1]), np.array([1.0]), 900, 3)
    >>> work.prompt_tokens.tolist(), work.label.tolist()
    ([5, 900, 6], ['chat', 'document', 'chat'])
    """
    arrival_s = np.concatenate([chats.arrival_s, times_s])
    order = np.argsort(arrival_s, kind="stable")
    prompts = np.concatenate([chats.prompt_tokens, np.full(times_s.size, prompt)])
    outputs = np.concatenate([chats.output_tokens, np.full(times_s.size, output)])
    kind = np.where(order < len(chats), "chat", "document")
    return Workload(arrival_s[order], prompts[order], outputs[order], label=kind)


@dataclass(frozen=True)
class Dials:
    """How the long prompts are treated, where a remedy asks.

    `over_tokens`: longer prompts are long. `chunk_tokens`: tokens of a long prompt in one step
    (vLLM's long_prefill_token_threshold). `at_once`: long prompts prefilled at the same time, None
    for no limit. `max_wait_s`: whoever waited longer goes before all, under shortest first.
    """

    over_tokens: int = OVER_TOKENS
    chunk_tokens: int = 512
    at_once: int | None = 1
    max_wait_s: float = 1.0


@dataclass(frozen=True, eq=False)
class Treated:
    """What a remedy did to a workload; arrays of shape (requests,) and (steps,), seconds.

    `is_long`: the requests whose prompt is long. Steps are those of the card that serves the
    chats; `other_start_s`, `other_end_s` those of a second card, empty where there is none.
    """

    remedy: str
    is_long: BoolArray
    arrival_s: FloatArray
    scheduled_s: FloatArray
    first_token_s: FloatArray
    end_s: FloatArray
    step_start_s: FloatArray
    step_end_s: FloatArray
    step_decode_seqs: npt.NDArray[np.integer]
    other_start_s: FloatArray
    other_end_s: FloatArray

    @property
    def ttft_s(self) -> FloatArray:
        """Time to first token of each request."""
        return self.first_token_s - self.arrival_s

    @property
    def short_ttft_s(self) -> FloatArray:
        """That of the chats."""
        return self.ttft_s[~self.is_long]

    @property
    def long_ttft_s(self) -> FloatArray:
        """That of the documents."""
        return self.ttft_s[self.is_long]

    @property
    def itl_p99_s(self) -> float:
        """The gap between tokens that 99 of 100 stay within, on the card that serves the chats."""
        return step_gap_quantile(self.step_end_s - self.step_start_s, self.step_decode_seqs, 0.99)


def treat(remedy: str, work: Workload, dials: Dials | None = None, seats: int = SEATS) -> Treated:
    """Run a workload on notebook 04's server under one of `REMEDIES`.

    "Shortest first" sorts by prompt length, which the server knows, not by the answer's, which it
    would have to guess. "A pool of its own" takes a second card. Raises ValueError for a remedy
    that is not known.

    >>> work = chats_and_documents(20.0, 3)
    >>> nobody, own = (treat(REMEDIES[i], work) for i in (0, 1))
    >>> bool(own.short_ttft_s.max() < 0.5 * nobody.short_ttft_s.max())
    True
    """
    run = served(remedy, work, dials, seats)
    is_long = work.prompt_tokens > (dials or Dials()).over_tokens
    if isinstance(run, LengthRun):
        return _on_two_cards(remedy, run, is_long)
    return _treated(remedy, run, is_long)


def served(
    remedy: str, work: Workload, dials: Dials | None = None, seats: int = SEATS
) -> ServiceRun | LengthRun:
    """Return the run behind `treat`, on one card or on two; raises ValueError as it does.

    >>> len(served(NO_REMEDY, chats_and_documents(20.0, 3).first(40)))
    40
    """
    if remedy not in REMEDIES:
        raise ValueError(f"remedy={remedy!r} is not known; give one of {list(REMEDIES)}")
    d = dials or Dials()
    config = EngineConfig(max_num_seqs=seats, max_num_batched_tokens=BUDGET)
    if remedy == OWN_POOL:
        engine = (server(), config)
        return simulate_by_length(work, d.over_tokens, engine, engine)
    own_queue = None
    if remedy == OWN_QUEUE:
        own_queue = LongPrompts(d.over_tokens, chunk_tokens=d.chunk_tokens, max_running=d.at_once)
    if remedy in (SHORTEST_FIRST, SHORTEST_LIMITED):
        limit_s = d.max_wait_s if remedy == SHORTEST_LIMITED else None
        work, config = by_prompt(work), replace(config, order=orders.sjf(limit_s))
    return simulate_service(work, server(), config, long_prompts=own_queue)


def by_prompt(work: Workload) -> Workload:
    """Return the workload with each prompt's length as its size, which `orders.sjf` sorts by."""
    return replace(work, predicted_output_tokens=work.prompt_tokens)


def _treated(remedy: str, run: ServiceRun, is_long: BoolArray) -> Treated:
    nothing = np.empty(0)
    return Treated(
        remedy=remedy,
        is_long=is_long,
        arrival_s=run.first_sent_s,
        scheduled_s=run.attempts.scheduled_s,
        first_token_s=run.first_token_s,
        end_s=run.end_s,
        step_start_s=run.step_start_s,
        step_end_s=run.step_end_s,
        step_decode_seqs=run.step_decode_seqs,
        other_start_s=nothing,
        other_end_s=nothing,
    )


def _on_two_cards(remedy: str, run: LengthRun, is_long: BoolArray) -> Treated:
    scheduled_s = np.empty(len(run))
    scheduled_s[~is_long], scheduled_s[is_long] = run.short.scheduled_s, run.long.scheduled_s
    return Treated(
        remedy=remedy,
        is_long=is_long,
        arrival_s=run.arrival_s,
        scheduled_s=scheduled_s,
        first_token_s=run.first_token_s,
        end_s=run.finish_s,
        step_start_s=run.short.step_start_s,
        step_end_s=run.short.step_end_s,
        step_decode_seqs=run.short.step_decode_seqs,
        other_start_s=run.long.step_start_s,
        other_end_s=run.long.step_end_s,
    )


def step_gap_quantile(step_s: FloatArray, decoding: npt.NDArray[np.integer], share: float) -> float:
    """Return the gap between tokens that `share` of all gaps stay within, seconds.

    A sequence that decodes in every step sees each step's length as a gap, so the steps count as
    often as sequences decode in them. True while nobody who decodes is left out of a step.

    >>> step_gap_quantile(np.array([0.01, 0.5]), np.array([99, 1]), 0.99)
    0.01
    """
    order = np.argsort(step_s)
    counted = np.cumsum(decoding[order], dtype=np.int64)
    if not counted.size or counted[-1] == 0:
        return float("nan")
    place = np.searchsorted(counted, share * counted[-1])
    return float(step_s[order[place]])


# ------------------------------------------------------------------------------- public traces
@dataclass(frozen=True)
class TraceScene:
    """A public trace's lengths, what counts as long in it, and what the server can do of it.

    `over_tokens`: nine of ten prompts are no longer. `most_per_s`: requests/s where all of them are
    there from the start, with `seats` seats. `max_wait_s`: a limit of the size of the waits here.
    """

    trace: str
    over_tokens: int
    most_per_s: float
    max_wait_s: float
    seats: int = 64


_WAIT_LIMITS_S: Final = dict(zip(PUBLIC, (0.4, 0.3, 15.0), strict=True))
_MEASURED_ON: Final = 1500


@lru_cache(maxsize=8)
def trace_scene(trace: str) -> TraceScene:
    """Return the scene of one of the `PUBLIC` traces; UnknownNameError for others.

    >>> trace_scene("sharegpt").over_tokens
    761
    """
    prompt = Quantiles.of_trace(trace, "prompt")
    over = int(np.interp(90.0, prompt.percent, prompt.tokens))
    at_once = draw(_MEASURED_ON, Poisson(1e9), prompt, Quantiles.of_trace(trace, "output"), seed=0)
    scene = TraceScene(trace, over, 0.0, _WAIT_LIMITS_S[trace])
    config = EngineConfig(max_num_seqs=scene.seats, max_num_batched_tokens=BUDGET)
    run = simulate_service(at_once, server(), config)
    return replace(scene, most_per_s=_MEASURED_ON / run.end_of_run_s)


def trace_work(trace: str, load: float, seed: int, requests: int = _MEASURED_ON) -> Workload:
    """Return requests of a trace's lengths, at `load` times what the server can do of them."""
    prompt, output = (Quantiles.of_trace(trace, which) for which in ("prompt", "output"))
    rate_per_s = load * trace_scene(trace).most_per_s
    return draw(requests, Poisson(rate_per_s), prompt, output, seed=seed)
