"""Translates the plain-data cases of `service_strategies` for the fast loop; no test is here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from course.serving.engine.admission import Admission, LongPrompts, PythonAdmission
from course.serving.engine.clients import Patience, Retry, Users
from course.serving.engine.pools import PoolsRun, simulate_pools
from course.serving.engine.service import simulate_service
from course.serving.engine.service_run import ServiceRun
from course.serving.pricing.linear import LinearStepCost
from tests.reference_service import DEGRADE, FINISHED, Record
from tests.serving.engine_cases import config_of, same_times, workload_of

TIMES = ("sent_s", "scheduled_s", "first_token_s", "end_s")
# The run's name of a column, and the reference's.
COUNTS = {
    "request": "row",
    "attempt": "number",
    "verdict": "verdict",
    "status": "status",
    "output_tokens": "output",
    "emitted_tokens": "emitted",
    "computed_tokens": "computed_tokens",
    "recomputed_tokens": "recomputed_tokens",
    "preemptions": "preemptions",
}
FOUND_BY_CACHE = ("prefix_hit_tokens", "recovered_tokens")
STEPS = ("step_prefill_tokens", "step_decode_seqs", "step_kv_blocks")


def admission_of(case: dict[str, Any]) -> Admission | PythonAdmission | None:
    """The case's gate."""
    rules = case.get("admission")
    if rules is None:
        return None
    if "policy" in rules:
        return PythonAdmission(rules["policy"], degrade_to_tokens=rules["degrade_to_tokens"])
    return Admission(**rules)


def service_run_of(case: dict[str, Any], **options: Any) -> ServiceRun:
    """The fast loop's run of the case."""
    patience, retry, limits = (case.get(name) for name in ("patience", "retry", "long_prompts"))
    users = None
    if "users" in case:
        users = Users(case["users"], think_s=case["think_s"], ramp_s=case["ramp_s"])
    return simulate_service(
        workload_of(case),
        LinearStepCost(*case["cost"]),
        config_of(case),
        patience=None if patience is None else Patience(**patience),
        retry=None if retry is None else Retry(**retry),
        admission=admission_of(case),
        long_prompts=None if limits is None else LongPrompts(**limits),
        users=users,
        seed=case["seed"],
        horizon_s=case["horizon_s"],
        **options,
    )


def pools_run_of(case: dict[str, Any], **options: Any) -> PoolsRun:
    """The two pools' run of the case."""
    decode, (kv_bytes_per_token, link_bytes_per_s, transfer_latency_s) = (
        case["decode"],
        case["link"],
    )
    return simulate_pools(
        workload_of(case),
        prefill=(LinearStepCost(*case["cost"]), config_of(case)),
        decode=(LinearStepCost(*decode["cost"]), config_of(decode)),
        kv_bytes_per_token=kv_bytes_per_token,
        link_bytes_per_s=link_bytes_per_s,
        transfer_latency_s=transfer_latency_s,
        horizon_s=case["horizon_s"],
        **options,
    )


def service_differences(run: ServiceRun, reference: Record) -> list[str]:
    """Name each fact in which the run differs from the reference's."""
    found = []

    def compare(name: str, ours: Any, theirs: list[Any], times: bool) -> None:
        mine = np.asarray(ours)
        same = same_times(mine, theirs) if times else mine.tolist() == theirs
        if not same:
            found.append(f"{name}: {mine.tolist()} != {theirs}")

    for name in TIMES:
        ours = getattr(run.attempts, name)
        compare(f"attempts.{name}", ours, reference.column(name), times=True)
    for name, theirs in COUNTS.items():
        ours = getattr(run.attempts, name)
        compare(f"attempts.{name}", ours, reference.column(theirs), times=False)
    if run.config.enable_prefix_caching:
        for name in FOUND_BY_CACHE:
            compare(name, getattr(run.attempts, name), reference.column(name), times=False)
    compare("step_end_s", run.step_end_s, reference.step_end_s, times=True)
    for name in STEPS:
        ours = getattr(run, name)
        compare(name, [] if ours is None else ours, getattr(reference, name), times=False)
    for name in ("useful_tokens", "wasted_tokens"):
        compare(name, getattr(run, name), getattr(reference, name), times=False)
    requests = reference.requests()
    firsts, lasts = [r[0] for r in requests], [r[-1] for r in requests]
    compare("attempt_counts", run.attempt_counts, [len(r) for r in requests], times=False)
    compare("first_sent_s", run.first_sent_s, [a.sent_s for a in firsts], times=True)
    compare("status", run.status, [a.status for a in lasts], times=False)
    compare("end_s", run.end_s, [a.end_s for a in lasts], times=True)
    compare("degraded", run.degraded, [a.verdict == DEGRADE for a in lasts], times=False)
    answered_s = [a.first_token_s if a.status == FINISHED else math.nan for a in lasts]
    compare("first_token_s", run.first_token_s, answered_s, times=True)
    since_first_s = [b - a.sent_s for a, b in zip(firsts, answered_s, strict=True)]
    compare("ttft_s", run.ttft_s, since_first_s, times=True)
    if run.user is not None:
        compare("user", run.user, [a.user for a in lasts], times=False)
    return found
