"""Which servers and whose requests notebook 06 loads; loads are run by ``course.serving``."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np

from course.serving import catalog
from course.serving.pricing import DoesNotFitError, RooflineStepCost
from course.serving.workload import Gamma, Quantiles, Workload, draw

SERVERS: Final = {
    "Llama-3.1-8B on one H100": ("Llama-3.1-8B", "H100-80GB-SXM", 1, "bf16"),
    "Llama-3.1-8B in fp8 on one H100": ("Llama-3.1-8B", "H100-80GB-SXM", 1, "fp8"),
    "Llama-3.1-8B on one A100": ("Llama-3.1-8B", "A100-80GB-SXM", 1, "bf16"),
    "Llama-3.1-8B on one L40S": ("Llama-3.1-8B", "L40S", 1, "bf16"),
    "Llama-3.1-70B in fp8 on four H100s": ("Llama-3.1-70B", "H100-80GB-SXM", 4, "fp8"),
}
"""What is read → (model, GPU, number of GPUs, precision)."""

CHAT, CODE = "azure-2023-conversation", "azure-2023-code"
DOCUMENTS, SHARED = "ragpulse", "sharegpt"
TRACES: Final = {
    "a chat service (Azure, 2023)": CHAT,
    "completing code (Azure, 2023)": CODE,
    "questions on documents (RAGPulse)": DOCUMENTS,
    "shared conversations (ShareGPT)": SHARED,
}
"""What is read → the trace of ``data/traces`` whose lengths are drawn."""

MOST_PROMPT_TOKENS, MOST_OUTPUT_TOKENS = 14_000, 4_000
"""Longer requests are cut, so that the smallest memory on offer holds each of them alone."""

SEATS, BUDGET, BLOCK = 256, 8192, 16


@dataclass(frozen=True)
class TraceTraffic:
    """Requests with the lengths of a trace, stretched to a mean, and the gaps of Azure's chat.

    Where a mean is None the trace's own stands. The same seed draws the same requests whatever the
    means, so that what a slider changes is the length and not the luck. Gaps are the gamma
    distribution that fits the Azure chat trace best.

    >>> work = TraceTraffic(CHAT, prompt_tokens=2310).draw(4000, seed=1)
    >>> bool(abs(work.mean_prompt_tokens / 2310 - 1) < 0.05)
    True
    """

    trace: str = CHAT
    prompt_tokens: float | None = None
    output_tokens: float | None = None

    def draw(self, requests: int, seed: int) -> Workload:
        """Return so many requests."""
        drawn = _drawn(self.trace, requests, seed)
        return Workload(
            drawn.arrival_s,
            _stretched(drawn.prompt_tokens, self._factor("prompt"), MOST_PROMPT_TOKENS),
            _stretched(drawn.output_tokens, self._factor("output"), MOST_OUTPUT_TOKENS),
        )

    def _factor(self, which: str) -> float:
        wanted: float | None = getattr(self, f"{which}_tokens")
        return 1.0 if wanted is None else wanted / mean_tokens(self.trace, which)


@lru_cache(maxsize=32)
def mean_tokens(trace: str, which: str) -> float:
    """Return a trace's own mean length; `which` is "prompt" or "output".

    >>> round(mean_tokens(CHAT, "prompt")), round(mean_tokens(CHAT, "output"))
    (1155, 211)
    """
    return float(catalog.length_statistics(trace, which).mean_tokens)


@lru_cache(maxsize=8)
def _drawn(trace: str, requests: int, seed: int) -> Workload:
    shape = catalog.arrival_statistics(CHAT).gamma_shape
    assert shape is not None
    prompt, output = (Quantiles.of_trace(trace, which) for which in ("prompt", "output"))
    return draw(requests, Gamma(1.0, shape), prompt, output, seed=seed)


def _stretched(tokens: np.ndarray, factor: float, most: int) -> np.ndarray:
    return np.clip(np.ceil(factor * tokens - 1e-9), 1, most).astype(np.int64)


@lru_cache(maxsize=32)
def step_cost(model: str, gpu: str, n_gpus: int, precision: str) -> RooflineStepCost | None:
    """Return what a step costs on this server; None where the model leaves no room for requests."""
    try:
        cost = RooflineStepCost(model, gpu, n_gpus, precision)
        cost.kv_blocks(BLOCK)
    except DoesNotFitError:
        return None
    return cost
