"""Exercise 3.2, From 30 ms to 80 ms: reference, wrong answers and judging."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.exercises.build import function_exercise
from course.exercises.values import Number, plain
from course.serving import catalog
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing import LinearStepCost
from course.serving.workload import Workload


def context_needed_tokens(
    itl_alone_s: float,
    itl_together_s: float,
    batch: int,
    kv_bytes_per_token: float,
    bytes_per_s: float,
) -> float:
    """Context of each sequence, in tokens, if KV reads alone made the step longer.

    itl_alone_s, itl_together_s: one decode step with a single sequence and with `batch` of them,
    all of one context; kv_bytes_per_token: bytes of cache for each token of context;
    bytes_per_s: what the card reads.
    """
    more_bytes = (itl_together_s - itl_alone_s) * bytes_per_s
    return more_bytes / ((batch - 1) * kv_bytes_per_token)


def alone_reads_nothing(itl_alone_s, itl_together_s, batch, kv_bytes_per_token, bytes_per_s):
    """As if a single sequence had no cache to read."""
    more_bytes = (itl_together_s - itl_alone_s) * bytes_per_s
    return more_bytes / (batch * kv_bytes_per_token)


def whole_step_for_the_cache(itl_alone_s, itl_together_s, batch, kv_bytes_per_token, bytes_per_s):
    """The whole step spent on the caches, none of it on the weights."""
    return itl_together_s * bytes_per_s / (batch * kv_bytes_per_token)


def all_contexts_in_one(itl_alone_s, itl_together_s, batch, kv_bytes_per_token, bytes_per_s):
    """The tokens of all the others together."""
    return (itl_together_s - itl_alone_s) * bytes_per_s / kv_bytes_per_token


def step_divided_among_the_batch(
    itl_alone_s, itl_together_s, batch, kv_bytes_per_token, bytes_per_s
):
    """The gap divided among the batch, as if each had the card for its share of the step."""
    more_s = abs(itl_together_s / batch - itl_alone_s)
    return more_s * bytes_per_s / ((batch - 1) * kv_bytes_per_token)


def _reports(rng: np.random.Generator) -> list[dict[str, Any]]:
    """The printed report on a card and model that would fit it, then others of its kind."""
    cases: list[dict[str, Any]] = [
        {
            "itl_alone_s": 0.030,
            "itl_together_s": 0.080,
            "batch": 8,
            "kv_bytes_per_token": 131_072.0,
            "bytes_per_s": 600e9,
        }
    ]
    for batch, gpu, model in (
        (16, "A100-80GB-SXM", "Llama-2-7B"),
        (4, "L40S", "Qwen3-8B"),
        (32, "H100-80GB-SXM", "Llama-3.1-8B"),
    ):
        alone_s = round(float(rng.uniform(0.012, 0.03)), 4)
        cases.append(
            {
                "itl_alone_s": alone_s,
                "itl_together_s": round(alone_s * float(rng.uniform(1.3, 2.8)), 4),
                "batch": batch,
                "kv_bytes_per_token": float(catalog.model(model).kv_bytes_per_token()),
                "bytes_per_s": catalog.gpu(gpu).bandwidth_bytes_per_s,
            }
        )
    return cases


def _step_in_engine(tokens: Any, case: Any) -> str | None:
    """What the engine's steps last with contexts of the student's own length."""
    batch, output = case["batch"], 8
    # the answer's own tokens are context too: the mean over its steps is the length given
    prompt = round(float(tokens) - output / 2)
    if not 1 <= prompt <= 1_000_000:
        return None
    token_s = case["kv_bytes_per_token"] / case["bytes_per_s"]
    fixed_s = max(case["itl_alone_s"] - token_s * float(tokens), 1e-6)
    cost = LinearStepCost(fixed_s=fixed_s, per_kv_token_s=token_s)
    config = EngineConfig(max_num_batched_tokens=batch * prompt)
    work = Workload([0.0] * batch, [prompt] * batch, [output] * batch)
    itl_s = float(simulate(work, cost, config, progress=False).itl_s().mean())
    cache_gb = batch * float(tokens) * case["kv_bytes_per_token"] / 1e9
    return (
        f"{batch} sequences with {plain(float(tokens), 3)} tokens of context: a step of "
        f"{plain(1e3 * itl_s, 3)} ms in the engine, and {plain(cache_gb, 3)} GB of cache"
    )


EXERCISE = function_exercise(
    "3.2",
    title="From 30 ms to 80 ms",
    question=(
        "A report prints: ITL 30 ms at batch 1 and 80 ms at batch 8. In throughput that is a "
        "gain, 33 → 100 tokens/s. But what makes the step so much longer? The weights are "
        "read once in either case. Suppose that the caches did it and nothing else: all "
        "sequences have contexts of one length, and the extra milliseconds are the extra "
        "bytes of cache. How long would each context have to be? The first report tried is "
        "this one, for a model of 8 billion parameters on a card that reads 600 GB/s and has "
        "24 GB; the result below shows what the engine makes of your length."
    ),
    kind="audit",
    minutes=6,
    difficulty=2,
    reference=context_needed_tokens,
    cases=_reports,
    result=Number("tokens", noun="a number of tokens"),
    evidence=_step_in_engine,
    wrong={
        alone_reads_nothing: (
            "You charge the difference to all sequences of the batch. The one that ran alone "
            "read its cache too, so only batch − 1 caches are new in the longer step."
        ),
        whole_step_for_the_cache: (
            "You let the caches fill the whole step. The weights and the overhead are in it "
            "as well, in both steps: only the *difference* of the two can be cache."
        ),
        all_contexts_in_one: (
            "That is the context of all the added sequences together. Asked is the length of each."
        ),
        step_divided_among_the_batch: (
            "You divide the step by the batch. A step is not shared out: everybody waits for "
            "the whole of it and gets one token at its end. itl_together_s *is* the step."
        ),
    },
    hints=(
        "How many bytes more does the card read in the longer step, at bytes_per_s?",
        "How many more caches are read in it than in the short step?",
        "(itl_together_s − itl_alone_s) · bytes_per_s / ((batch − 1) · kv_bytes_per_token)",
    ),
    explanation=(
        "32,697 tokens each, eight times: 34 GB of cache on a card of 24 GB. So it was not "
        "the caches. What is left: time that grows with each sequence on the host, or other "
        "people's prompts inside the gaps, which an ITL taken under load contains."
    ),
)
