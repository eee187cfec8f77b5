"""Writes a simulated run as vLLM's benchmark would have saved it; nothing is read here."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from course.serving.engine import Run
from course.serving.requests import SLO, Distribution, Status, Summary

_SHARES: Final = {"median": 0.5, "p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def write_vllm(
    run: Run,
    path: str | os.PathLike[str],
    *,
    slo: SLO | None = None,
    model: str = "simulated",
) -> Path:
    """Write `run` to `path` in the layout of vLLM's ``bench serve --save-detailed``.

    As there, `ttfts`, `itls`, `start_times`, `latencies` and `duration` are seconds and the
    statistics milliseconds, and a request without a complete answer has a TTFT of 0.0, no gaps, no
    tokens and an error. `slo`: the limits behind ``request_goodput``, null without them. `model`:
    what stands as ``model_id``. `load_result` reads the file back to the same metrics, up to the
    rounding of sums of gaps. Raises ValueError for a run without a request, OSError where the file
    cannot be written.

    >>> import tempfile
    >>> from course.serving.pricing import LinearStepCost
    >>> from course import Workload, simulate
    >>> from course.serving.results import load_result
    >>> work = Workload([0.0, 0.5], prompt_tokens=[9, 9], output_tokens=[3, 2])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_vllm(simulate(work, LinearStepCost(fixed_s=0.5)), f"{folder}/run.json")
    ...     load_result(path).timelines[0].token_times_s
    (0.5, 1.0, 1.5)
    """
    if not len(run):
        raise ValueError("run has no request to write; simulate a workload with some")
    found = Path(path)
    text = json.dumps({**_head(run, slo, model), **_detail(run)}, allow_nan=False)
    found.write_text(text + "\n", encoding="utf-8")
    return found


def _head(run: Run, slo: SLO | None, model: str) -> dict[str, Any]:
    """The figures of the whole run; 0.0 where nothing was measured, as vLLM prints it."""
    summary = run.summary(slo)
    requests = run.requests
    finished = requests.finished
    assert requests.prompt_tokens is not None
    span_s = float(run.arrival_s[-1] - run.arrival_s[0])
    closed = run.user is not None
    return {
        "endpoint_type": "openai",
        "backend": "openai",
        "model_id": model,
        "tokenizer_id": model,
        "num_prompts": summary.offered,
        # vLLM scales its arrivals so that the last of N comes N/rate after the start
        "request_rate": "inf" if closed or not span_s else summary.offered / span_s,
        "max_concurrency": int(np.max(run.user)) + 1 if run.user is not None else None,
        "duration": summary.window.duration_s,
        "completed": summary.successes,
        "failed": summary.offered - summary.successes,
        "total_input_tokens": int(requests.prompt_tokens[finished].sum()),
        "total_output_tokens": int(requests.output_tokens[finished].sum()),
        "request_throughput": summary.requests_per_s or 0.0,
        "request_goodput": summary.goodput_per_s,
        "output_throughput": summary.output_tokens_per_s or 0.0,
        "total_token_throughput": summary.total_tokens_per_s or 0.0,
        **_statistics(summary),
    }


def _statistics(summary: Summary) -> dict[str, float]:
    found: dict[str, float] = {}
    samples: Sequence[tuple[str, Distribution | None]] = (
        ("ttft", summary.ttft), ("tpot", summary.tpot), ("itl", summary.itl),
        ("e2el", summary.e2e),
    )  # fmt: skip
    for name, sample in samples:
        mean = None if sample is None else sample.mean
        found[f"mean_{name}_ms"] = 1000 * (mean or 0.0)
        for statistic, share in _SHARES.items():
            value = None if sample is None else sample.quantile(share)
            found[f"{statistic}_{name}_ms"] = 1000 * (value or 0.0)
    return found


def _detail(run: Run) -> dict[str, list[Any]]:
    """One entry a request in each list; what did not finish left no tokens behind."""
    requests = run.requests
    finished = requests.finished
    over_s = _over_s(run)
    ttft_s = np.where(finished, run.first_token_s - run.arrival_s, 0.0)
    prompts = requests.prompt_tokens
    assert prompts is not None
    return {
        "input_lens": prompts.tolist(),
        "output_lens": np.where(finished, requests.output_tokens, 0).tolist(),
        "ttfts": ttft_s.tolist(),
        "itls": [
            np.diff(run.token_times(i)).tolist() if done else []
            for i, done in enumerate(finished.tolist())
        ],
        "start_times": run.arrival_s.tolist(),
        "latencies": (over_s - run.arrival_s).tolist(),
        "generated_texts": [""] * len(run),
        "errors": [_error(int(status)) for status in run.status],
    }


def _over_s(run: Run) -> Any:
    """When each request was over: its last token, its rejection, or the end of the run."""
    over_s = np.where(run.requests.finished, run.finish_s, np.nan)
    if run.requests.end_s is not None:
        over_s = np.where(np.isnan(over_s), run.requests.end_s, over_s)
    at_once = np.isnan(over_s) & (run.status == Status.REJECTED)
    over_s = np.where(at_once, run.arrival_s, over_s)
    return np.where(np.isnan(over_s), run.window().end_s, over_s)


def _error(status: int) -> str:
    """The group's own words, by which the reader knows it again."""
    return "" if status == Status.FINISHED else Status(status).name.lower().replace("_", " ")
