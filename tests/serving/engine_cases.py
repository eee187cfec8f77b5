"""Translates the plain-data cases of `engine_strategies` for the fast engine; no test is here."""

from __future__ import annotations

from typing import Any

import numpy as np

from course.serving.engine import (
    EngineConfig,
    Run,
    Speculation,
    modes,
    orders,
    simulate,
    simulate_closed,
)
from course.serving.pricing.linear import LinearStepCost
from course.serving.workload import Prefixes, Workload

# Those that both sides call alike.
DIALS = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "enable_chunked_prefill",
    "num_kv_blocks",
    "block_size",
    "scheduler_reserve_full_isl",
    "watermark",
    "enable_prefix_caching",
    "async_scheduling",
    "front_end_s",
)


COUNTS = (
    "status",
    "preemptions",
    "step_prefill_tokens",
    "step_decode_seqs",
)


def workload_of(case: dict[str, Any]) -> Workload:
    """The case's requests."""
    return Workload(
        arrival_s=case.get("arrival_s", [0.0] * len(case["prompt_tokens"])),
        prompt_tokens=case["prompt_tokens"],
        output_tokens=case["output_tokens"],
        predicted_output_tokens=case.get("predicted_output_tokens"),
        priority=case.get("priority"),
        cached_prefix_tokens=case.get("cached_prefix_tokens"),
        label=case.get("label"),
        prefixes=prefixes_of(case),
    )


def prefixes_of(case: dict[str, Any]) -> Prefixes | None:
    """What the case's prompts have in common."""
    if case.get("prefix_ids") is not None:
        return Prefixes.hashed(case["prefix_ids"], case["prefix_block_tokens"])
    if case.get("prefix_group") is not None:
        return Prefixes.groups(case["prefix_group"], case["prefix_shared_tokens"])
    return None


def config_of(case: dict[str, Any]) -> EngineConfig:
    """The case's dials."""
    name = case.get("batching", "continuous")
    window_s = case.get("window_s")
    ways = {
        "continuous": modes.continuous,
        "single": modes.single,
        "static": lambda: modes.static(case["batch_size"], window_s),
        "windowed": lambda: modes.windowed(window_s),
        "adaptive": lambda: modes.adaptive(window_s),
        "sglang": lambda: modes.sglang(case["new_token_ratio"]),
    }
    kinds = {
        "fcfs": orders.fcfs,
        "sjf": lambda: orders.sjf(case.get("max_wait_s")),
        "priority": lambda: orders.priority(case.get("ageing_s")),
    }
    dials = {name: case[name] for name in DIALS if name in case}
    if case.get("num_speculative_tokens"):
        dials["speculation"] = Speculation(
            case["num_speculative_tokens"], case["acceptance"], case["speculation_seed"]
        )
    return EngineConfig(**dials, batching=ways[name](), order=kinds[case.get("order", "fcfs")]())


def not_static(work: Workload, config: EngineConfig) -> bool:
    """Say that the general loop is needed, wherever it can be used."""
    return config.way.name != "static"


def run_of(case: dict[str, Any], **options: Any) -> Run:
    """The fast engine's run of the case."""
    work, config = workload_of(case), config_of(case)
    cost = LinearStepCost(*case["cost"])
    horizon_s = case.get("horizon_s")
    if "users" not in case:
        return simulate(work, cost, config, horizon_s=horizon_s, **options)
    think_s = case["think_s"]
    return simulate_closed(
        case["users"],
        think_s if np.ndim(think_s) == 0 else np.array(think_s),
        work,
        cost,
        config,
        start_s=np.array(case["start_s"]),
        horizon_s=horizon_s,
        **options,
    )


def same_times(ours: Any, theirs: list[float], tolerance_s: float = 1e-9) -> bool:
    """Whether two lists of times agree, NaN with NaN."""
    mine, other = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
    return mine.shape == other.shape and np.allclose(
        mine, other, rtol=0.0, atol=tolerance_s, equal_nan=True
    )


def differences(run: Run, reference: Any) -> list[str]:
    """Name each fact in which the run differs from the reference's run."""
    found = []
    for name in ("arrival_s", "scheduled_s", "first_token_s", "finish_s", "step_end_s"):
        if not same_times(getattr(run, name), getattr(reference, name)):
            found.append(f"{name}: {getattr(run, name)} != {getattr(reference, name)}")
    found_by_cache = ("prefix_hit_tokens", "recovered_tokens")
    for name in (*COUNTS, *(found_by_cache if run.config.enable_prefix_caching else ())):
        if list(getattr(run, name)) != list(getattr(reference, name)):
            found.append(f"{name}: {list(getattr(run, name))} != {list(getattr(reference, name))}")
    if run.step_kv_blocks is not None and list(run.step_kv_blocks) != list(
        reference.step_kv_blocks
    ):
        found.append(f"step_kv_blocks: {run.step_kv_blocks} != {reference.step_kv_blocks}")
    if run.user is not None and list(run.user) != list(reference.user):
        found.append(f"user: {run.user} != {reference.user}")
    for request in range(len(reference.status)):
        ours = [] if found and request >= len(run.status) else run.token_times(request)
        if not same_times(ours, reference.token_times_s[request]):
            found.append(
                f"token_times({request}): {list(ours)} != {reference.token_times_s[request]}"
            )
            break
    return found
