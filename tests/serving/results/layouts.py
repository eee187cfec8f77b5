"""Result files of every known layout with figures of our own, as plain Python values.

Each function takes overrides by key; a key set to `GONE` is left out.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

GONE = object()


def _with(base: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    merged = {**base, **changes}
    return {key: value for key, value in merged.items() if value is not GONE}


def write(folder: Path, *values: Any, name: str = "result.json", between: str = "\n") -> Path:
    """Write values one after the other, as appending tools do."""
    path = folder / name
    path.write_text(between.join(json.dumps(value) for value in values), encoding="utf-8")
    return path


def stats(names: tuple[str, ...], what: str, mean: float, unit: str = "_ms") -> dict[str, float]:
    """A latency's keys around a mean: the quantiles rise with their share."""
    factor = {"mean": 1.0, "median": 0.9, "std": 0.3, "p50": 0.9, "p90": 1.5, "p95": 1.7}
    factor |= {"p99": 2.0, "p99.9": 2.4}
    return {f"{name}_{what}{unit}": mean * factor[name] for name in names}


def vllm(**changes: Any) -> dict[str, Any]:
    """400 requests asked for at 20/s: TTFT 120 ms, 60 tokens at 25 ms, E2E 1595 ms."""
    names = ("mean", "median", "std", "p50", "p99", "p99.9")
    base = {
        "date": "20260101-000000", "endpoint_type": "openai", "backend": "openai", "label": None,
        "model_id": "our/model", "tokenizer_id": "our/model", "num_prompts": 400,
        "request_rate": 20.0, "burstiness": 1.0, "max_concurrency": None, "duration": 20.5,
        "completed": 400, "failed": 0, "total_input_tokens": 120_000, "total_output_tokens": 24_000,
        "request_throughput": 400 / 20.5, "request_goodput": None,
        "output_throughput": 24_000 / 20.5, "total_token_throughput": 144_000 / 20.5,
        **stats(names, "ttft", 120.0), **stats(names, "tpot", 25.0), **stats(names, "itl", 25.0),
        **stats(names, "e2el", 1595.0),
    }  # fmt: skip
    return _with(base, changes)


def vllm_detail(**changes: Any) -> dict[str, Any]:
    """Four requests in detail, the third of them failed, the fourth in chunks of several tokens."""
    base = vllm(
        num_prompts=4, completed=3, failed=1, duration=2.0, request_rate="inf", max_concurrency=2,
        total_input_tokens=60, total_output_tokens=12, request_throughput=1.5,
        output_throughput=6.0, total_token_throughput=36.0,
        input_lens=[10, 20, 30, 30], output_lens=[3, 1, 0, 8], ttfts=[0.25, 0.5, 0.0, 0.25],
        itls=[[0.125, 0.125], [], [], [0.25]], start_times=[100.0, 100.0, 100.5, 100.5],
        latencies=[0.5, 0.5, 0.0, 0.5], queue_times=[0.0, 0.0, 0.0, 0.25],
        generated_texts=["a", "b", "", "c"],
        errors=["", "", "Traceback\n  File x\nasyncio.TimeoutError: timeout", ""],
        mean_ttft_ms=1000 / 3, mean_itl_ms=500 / 3, mean_tpot_ms=80.36, mean_e2el_ms=500.0,
    )  # fmt: skip
    return _with(base, changes)


def vllm_old(**changes: Any) -> dict[str, Any]:
    """The layout of 0.6: a goodput key with a colon, no count of failures, no E2E."""
    base = vllm(request_goodput=GONE, failed=GONE, endpoint_type=GONE, label=GONE)
    base = {key: value for key, value in base.items() if not key.endswith("_e2el_ms")}
    return _with({**base, "request_goodput:": 17.5, "request_rate": "inf"}, changes)


def vllm_nothing_completed(**changes: Any) -> dict[str, Any]:
    base = vllm(completed=0, failed=400, total_output_tokens=0, total_input_tokens=0)
    for key in list(base):
        if key.endswith(("_ms", "throughput")):
            base[key] = 0.0
    return _with(base, changes)


def sglang(**changes: Any) -> dict[str, Any]:
    """300 requests of a closed loop of 16: TTFT 90 ms, 40 tokens at 20 ms, E2E 870 ms."""
    names = ("mean", "median", "std", "p90", "p95", "p99")
    base = {
        "tag": None, "backend": "sglang", "dataset_name": "ours", "request_rate": float("inf"),
        "max_concurrency": 16, "sharegpt_output_len": None, "random_input_len": 200,
        "random_output_len": 40, "random_range_ratio": 1.0, "server_info": {}, "duration": 16.8,
        "completed": 300, "total_input_tokens": 60_000, "total_output_tokens": 12_000,
        "total_output_tokens_retokenized": 11_990, "request_throughput": 300 / 16.8,
        "input_throughput": 60_000 / 16.8, "output_throughput": 12_000 / 16.8,
        "total_throughput": 72_000 / 16.8, "concurrency": 15.5, "accept_length": None,
        **stats(names, "ttft", 90.0), **stats(names, "tpot", 20.0), **stats(names, "itl", 20.0),
        **stats(names, "e2e_latency", 870.0),
    }  # fmt: skip
    return _with(base, changes)


def sglang_2024(**changes: Any) -> dict[str, Any]:
    """The eighteen keys of 2024."""
    base = {
        "backend": "sglang", "dataset_name": "ours", "request_rate": 5.0, "max_concurrency": None,
        "total_input_tokens": 60_000, "total_output_tokens": 12_000,
        "total_output_tokens_retokenized": 11_990, "mean_e2e_latency_ms": 870.0,
        "median_e2e_latency_ms": 850.0, "median_ttft_ms": 80.0, "median_itl_ms": 19.0,
        "output_throughput": 200.0, "sharegpt_output_len": None, "random_input_len": 200,
        "random_output_len": 40, "random_range_ratio": 1.0, "duration": 60.0, "completed": 300,
    }  # fmt: skip
    return _with(base, changes)


def _guide(mean: float, count: int = 320) -> dict[str, Any]:
    shares = ("p001", "p01", "p05", "p10", "p25", "p50", "p75", "p90", "p95", "p99", "p999")
    rising = {share: mean * (0.5 + 0.1 * place) for place, share in enumerate(shares)}
    return {
        "mean": mean, "median": mean, "mode": mean, "variance": 0.0, "std_dev": mean / 10,
        "min": mean / 2, "max": 2 * mean, "count": count, "total_sum": mean * count,
        "percentiles": rising,
    }  # fmt: skip


def _guide_metric(mean: float) -> dict[str, Any]:
    """A metric's four groups; the empty ones are zeros, and the total may be missing."""
    nothing = _guide(0.0, count=0)
    return {"successful": _guide(mean), "errored": nothing, "incomplete": nothing, "total": None}


def guidellm_benchmark(**changes: Any) -> dict[str, Any]:
    """320 requests of a closed loop of 8: TTFT 50 ms, 30 tokens at 10 ms, E2E 340 ms."""
    base = {
        "type_": "generative_benchmark",
        "config": {"strategy": {"type_": "concurrent", "streams": 8}},
        "start_time": 1000.0, "end_time": 1013.6, "duration": 13.6,
        "metrics": {
            "request_totals": {"successful": 320, "errored": 2, "incomplete": 8, "total": 330},
            "requests_per_second": _guide_metric(320 / 13.6),
            "request_concurrency": _guide_metric(8.0),
            "request_latency": _guide_metric(0.34),
            "prompt_token_count": _guide_metric(256.0),
            "output_token_count": _guide_metric(30.0),
            "time_to_first_token_ms": _guide_metric(50.0),
            "time_per_output_token_ms": _guide_metric(340 / 30),
            "inter_token_latency_ms": _guide_metric(10.0),
            "output_tokens_per_second": _guide_metric(9600 / 13.6),
            "tokens_per_second": _guide_metric(91_520 / 13.6),
        },
        "requests": None,
    }  # fmt: skip
    return _with(base, changes)


def guidellm(*benchmarks: dict[str, Any], **changes: Any) -> dict[str, Any]:
    base = {
        "metadata": {"version": 1, "guidellm_version": "0.8.1"},
        "benchmarks": list(benchmarks) or [guidellm_benchmark()],
    }
    return _with(base, changes)


def guidellm_03(**changes: Any) -> dict[str, Any]:
    """The layout of 0.3: the strategy in `args`, totals beside the metrics, no metadata."""
    benchmark = guidellm_benchmark(
        config=GONE,
        args={"strategy": {"type_": "constant", "rate": 24.0}},
        run_stats={"start_time": 1000.0},
        request_totals={"successful": 320, "errored": 2, "incomplete": 8, "total": 330},
    )
    del benchmark["metrics"]["request_totals"]
    benchmark["metrics"]["time_per_output_token_ms"] = _guide_metric(290 / 30)
    return _with({"benchmarks": [benchmark]}, changes)


def guidellm_request(start: float, ttft: float, e2e: float, tokens: int) -> dict[str, Any]:
    timings = {
        "request_start": start, "first_token_iteration": start + ttft,
        "last_token_iteration": start + e2e, "request_end": start + e2e + 0.01,
    }  # fmt: skip
    return {"info": {"timings": timings}, "prompt_tokens": 256, "output_tokens": tokens}


def _aiperf_metric(value: float, unit: str, count: int | None = 480) -> dict[str, Any]:
    metric = {"unit": unit, "avg": value}
    if count is not None:
        metric |= {"p1": value / 2, "p50": value, "p90": value * 1.5, "p99": value * 2}
        metric |= {"std": value / 5, "min": value / 2, "max": value * 2, "count": count}
    return metric


def aiperf(*, nested: bool = False, **changes: Any) -> dict[str, Any]:
    """480 requests at 12 at once: TTFT 80 ms, 25 tokens at 15 ms, E2E 440 ms; 20 failed."""
    ttft = "ttft" if nested else "time_to_first_token"
    metrics = {
        ttft: _aiperf_metric(80.0, "ms"),
        "inter_token_latency": _aiperf_metric(15.0, "ms"),
        "request_latency": _aiperf_metric(440.0, "ms"),
        "output_sequence_length": _aiperf_metric(25.0, "tokens"),
        "input_sequence_length": _aiperf_metric(500.0, "tokens"),
        "request_throughput": _aiperf_metric(480 / 17.8, "requests/sec", None),
        "output_token_throughput": _aiperf_metric(12_000 / 17.8, "tokens/sec", None),
        "request_count": _aiperf_metric(480.0, "requests", None),
        "error_request_count": _aiperf_metric(20.0, "requests", None),
        "benchmark_duration": _aiperf_metric(17.8, "sec", None),
        "min_request_timestamp": _aiperf_metric(1.7e18, "ns", None),
    }
    config = {"endpoint": {"model_names": ["our/model"]}, "loadgen": {"concurrency": 12}}
    base: dict[str, Any] = {"records": metrics} if nested else metrics
    base = {**base, "input_config": config, "was_cancelled": False}
    return _with(base, changes)


def aiperf_line(start_ns: int = 1_700_000_000_000_000_000, **changes: Any) -> dict[str, Any]:
    """One request of three tokens: TTFT 100 ms, gaps 20 and 30 ms."""
    base = {
        "metadata": {
            "session_num": 0, "request_start_ns": start_ns,
            "request_end_ns": start_ns + 160_000_000, "benchmark_phase": "profiling",
            "was_cancelled": False,
        },
        "metrics": {
            "time_to_first_token": {"value": 100.0, "unit": "ms"},
            "inter_chunk_latency": {"value": [20.0, 30.0], "unit": "ms"},
            "request_latency": {"value": 150.0, "unit": "ms"},
            "output_sequence_length": {"value": 3, "unit": "tokens"},
            "input_sequence_length": {"value": 40, "unit": "tokens"},
        },
        "error": None,
    }  # fmt: skip
    return _with(base, changes)


def aiperf_failed_line(start_ns: int = 1_700_000_000_500_000_000) -> dict[str, Any]:
    line = aiperf_line(start_ns)
    return line | {
        "metrics": {"error_isl": {"value": 40, "unit": "tokens"}},
        "error": {"code": 499, "type": "RequestCancellationError", "message": "was cancelled"},
    }


def inference_perf(**changes: Any) -> dict[str, Any]:
    """400 requests at 10/s: TTFT 40 ms, 50 tokens at 8 ms, E2E 432 ms."""

    def part(mean: float) -> dict[str, float]:
        rising = {"p0.1": 0.6, "p50": 0.95, "median": 0.95, "p90": 1.2, "p99": 1.4, "p99.9": 1.5}
        return {"mean": mean, "min": mean / 2, "max": mean * 2} | {
            key: mean * factor for key, factor in rising.items()
        }

    base = {
        "load_summary": {
            "count": 400, "schedule_delay": {"mean": 0.0004}, "send_duration": 39.9,
            "requested_rate": 10.0, "achieved_rate": 10.02,
        },
        "successes": {
            "count": 400,
            "latency": {
                "request_latency": part(0.432), "time_per_output_token": part(0.008),
                "time_to_first_token": part(0.04), "inter_token_latency": part(0.008),
                "normalized_time_per_output_token": part(0.00864),
            },
            "throughput": {
                "input_tokens_per_sec": 1990.0, "output_tokens_per_sec": 497.5,
                "total_tokens_per_sec": 2487.5, "requests_per_sec": 9.95,
            },
            "prompt_len": part(200.0), "output_len": part(50.0),
        },
        "failures": {"count": 0, "request_latency": None, "prompt_len": None},
    }  # fmt: skip
    return _with(base, changes)


def llmperf_response(**changes: Any) -> dict[str, Any]:
    base = {
        "error_code": None, "error_msg": "", "inter_token_latency_s": 1.2 / 101, "ttft_s": 0.2,
        "end_to_end_latency_s": 1.2, "request_output_throughput_token_per_s": 100 / 1.2,
        "number_total_tokens": 600, "number_output_tokens": 100, "number_input_tokens": 500,
    }  # fmt: skip
    return _with(base, changes)


def llmperf(size: int = 30) -> list[dict[str, Any]]:
    failed = llmperf_response(
        error_code=429, error_msg="too many requests", ttft_s=0, end_to_end_latency_s=0,
        inter_token_latency_s=0, number_output_tokens=0,
    )  # fmt: skip
    return [*[llmperf_response() for _ in range(size)], failed]


def inferencex(**changes: Any) -> dict[str, Any]:
    """320 requests of a closed loop of 8, in seconds: TTFT 0.3, 100 tokens at 0.02, E2E 2.28."""
    base = {
        "date": "20260101-000000", "model_id": "our/model", "num_prompts": 320,
        "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 8, "duration": 92.0,
        "completed": 320, "total_input_tokens": 320_000, "total_output_tokens": 32_000,
        "request_throughput": 320 / 92, "request_goodput": None, "output_throughput": 32_000 / 92,
        "median_ttft": 0.3, "p99_ttft": 0.6, "median_tpot": 0.02, "p99_tpot": 0.03,
        "median_e2el": 2.28, "p99_e2el": 3.2, "median_intvty": 50.0,
    }  # fmt: skip
    return _with(base, changes)


EVERY_LAYOUT: dict[str, Any] = {
    "vllm": vllm(),
    "vllm detail": vllm_detail(),
    "vllm 0.6": vllm_old(),
    "vllm, nothing completed": vllm_nothing_completed(),
    "sglang": sglang(),
    "sglang 2024": sglang_2024(),
    "guidellm": guidellm(),
    "guidellm 0.3": guidellm_03(),
    "aiperf": aiperf(),
    "aiperf 2025": aiperf(nested=True),
    "aiperf line": aiperf_line(),
    "inference-perf": inference_perf(),
    "llmperf": llmperf(),
    "inferencex": inferencex(),
}
"""One value of each layout, for tests that must hold for them all."""
