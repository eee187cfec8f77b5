"""One request alone in the engine: what it varies, simulates and says; no scheduling rule."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from course.figures.ch00.one_request import OneRequest, OneRequestPicture
from course.serving import catalog
from course.serving.engine import EngineConfig, Run, simulate
from course.serving.pricing import RooflineStepCost
from course.serving.workload import Workload
from course.ui import Explorer, Prediction, Preset, Table, choice, count
from course.words import rounded, seconds

_GPUS = {
    "H100": "H100-80GB-SXM", "A100": "A100-80GB-SXM", "L40S": "L40S", "RTX 4090": "RTX-4090",
}  # fmt: skip
_MODEL = "Llama-3.1-8B"


@dataclass(frozen=True)
class OneRequestParameters:
    """One request, the card that serves it, and how much of a prompt one step may take."""

    prompt_tokens: int = count(
        2000, 16, 16_000, 16, label="Prompt", unit="tokens",
        help="Tokens of the prompt: about four for every three English words",
    )  # fmt: skip
    output_tokens: int = count(
        60, 1, 400, 1, label="Answer", unit="tokens", help="Tokens that the model writes back"
    )
    budget_tokens: int = choice(
        16_384, {"512": 512, "2,048": 2048, "16,384 (whole prompts)": 16_384},
        label="Tokens a step (budget)",
        help="A prompt longer than this is prefilled in several steps, in chunks",
    )  # fmt: skip
    gpu: str = choice(
        "H100-80GB-SXM",
        _GPUS,
        label="GPU",
        help="The card that serves an 8-billion-parameter model",
    )


def run_of(p: OneRequestParameters) -> Run:
    """Return the run of the one request."""
    work = Workload([0.0], [p.prompt_tokens], [p.output_tokens])
    config = EngineConfig(max_num_seqs=1, max_num_batched_tokens=p.budget_tokens)
    return simulate(work, RooflineStepCost(_MODEL, p.gpu), config)


def _one_request(p: OneRequestParameters) -> OneRequest:
    run = run_of(p)
    prefill = np.asarray(run.step_prefill_tokens)
    return OneRequest(
        prompt_tokens=p.prompt_tokens,
        output_tokens=p.output_tokens,
        step_start_s=np.concatenate([[0.0], run.step_end_s[:-1]]),
        step_end_s=np.asarray(run.step_end_s),
        step_prefill_tokens=prefill,
        # A decode step computes the newest token, and so adds one to the cache.
        kv_tokens=np.cumsum(np.where(prefill > 0, prefill, 1)),
        ttft_s=float(run.ttft_s[0]),
        tpot_s=float(run.tpot_s[0]),
        e2e_s=float(run.e2e_s[0]),
        kv_bytes_per_token=catalog.model(_MODEL).kv_bytes_per_token(),
    )


def _one_request_words(r: OneRequest) -> str:
    steps = "one step" if r.prefill_steps == 1 else f"{r.prefill_steps} steps"
    first = (
        f"The prompt of {r.prompt_tokens:,} tokens is prefilled in {steps}; the first token is "
        f"there after {seconds(r.ttft_s)} (TTFT)."
    )
    cache = (
        f" At the end the KV cache holds {r.kv_tokens[-1]:,} tokens, "
        f"{rounded(r.kv_tokens[-1] * r.kv_bytes_per_token / 1e6)} MB."
    )
    if r.output_tokens == 1:
        return f"{first} An answer of one token needs no decode step and has no TPOT.{cache}"
    return (
        f"{first} The other {r.output_tokens - 1} tokens take one decode step each, "
        f"{seconds(r.tpot_s)} apart (TPOT), so the last is there after {seconds(r.e2e_s)} (E2E)."
        f"{cache}"
    )


def _tables(r: OneRequest) -> Table:
    return {
        "step_start_s": r.step_start_s,
        "step_end_s": r.step_end_s,
        "prefill_tokens": r.step_prefill_tokens,
        "kv_tokens": r.kv_tokens,
    }


one_request = Explorer(
    call="explore.one_request",
    title="One request, step by step: prefill, then one token a step",
    parameters=OneRequestParameters,
    compute=_one_request,
    filmed=lambda p: {"One request alone": run_of(p)},
    drawing=OneRequestPicture,
    narrate=_one_request_words,
    alt=(
        "Above, the engine's steps as boxes on a time axis: prefill first, then a row of narrow "
        "decode boxes, one for each further token. Below, the KV cache: it jumps by the prompt in "
        "prefill and then grows by one token a step."
    ),
    presets=(
        Preset(
            "A page in, a paragraph out",
            "A prompt of 2,000 tokens, an answer of 60, on an H100.",
            "Which takes longer, reading 2,000 tokens or writing 60?",
            {"prompt_tokens": 2000, "output_tokens": 60},
        ),
        Preset(
            "A short question, a long answer",
            "32 tokens in, 400 out: how most chats look.",
            "What share of the time is prefill here?",
            {"prompt_tokens": 32, "output_tokens": 400},
        ),
        Preset(
            "A whole book chapter",
            "16,000 tokens in, 100 out; the prompt goes through in chunks of 2,048.",
            "Why does each full chunk take a little longer than the one before?",
            {"prompt_tokens": 16_000, "output_tokens": 100, "budget_tokens": 2048},
        ),
        Preset(
            "The same on a smaller card",
            "The first request again, on a consumer card with a third of the memory bandwidth.",
            "Which grows more on the smaller card, TTFT or TPOT?",
            {"prompt_tokens": 2000, "output_tokens": 60, "gpu": "RTX-4090"},
        ),
    ),
    tables=_tables,
    prediction=Prediction(
        question=lambda r: (
            f"{r.prompt_tokens:,} tokens in, {r.output_tokens} out. How many times as long as the "
            "wait for the first token does the rest of the answer take?"
        ),
        unit="times",
        answer=lambda r: (r.e2e_s - r.ttft_s) / r.ttft_s if r.output_tokens > 1 else None,
    ),
)
