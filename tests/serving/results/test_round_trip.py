"""A simulated run written as vLLM's file and read again must say the same: otherwise the same
server would be judged differently for whether it was simulated or measured."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from course.serving.engine import EngineConfig, Run, simulate, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.pricing.linear import RooflineStepCost
from course.serving.requests.conventions import as_reported_by
from course.serving.requests.metrics import SLO, Summary, summarize
from course.serving.results import BenchmarkResult, audit_files, load_result
from course.serving.results.writing import write_vllm
from course.serving.workload import Lognormal, Poisson, Workload, draw
from tests.engine_strategies import engine_cases
from tests.lanes import examples
from tests.serving.engine_cases import run_of

LIMITS = SLO(ttft_s=0.5, tpot_s=0.02)


def there_and_back(run: Run, folder: Path, **options: Any) -> BenchmarkResult:
    return load_result(write_vllm(run, folder / "run.json", **options))


def same(ours: Any, theirs: Any) -> bool:
    """Equal up to the rounding of sums of gaps, None with None, words with the same words."""
    if isinstance(ours, float) and isinstance(theirs, float):
        return math.isclose(ours, theirs, rel_tol=1e-9, abs_tol=1e-9)
    return bool(ours == theirs)


def differences(run: Summary, read: Summary) -> dict[str, tuple[Any, Any]]:
    ours, theirs = run.as_dict(), read.as_dict()
    assert ours.keys() == theirs.keys()
    # Where one request is sent in the instant in which another ends, the last bit of a sum of gaps
    # decides whether both count at once.
    del ours["concurrency_peak"]
    return {
        name: (value, theirs[name]) for name, value in ours.items() if not same(value, theirs[name])
    }


@pytest.fixture(scope="module")
def chats() -> Run:
    """Three hundred chats on an 8B model, with a queue."""
    work = draw(300, Poisson(20.0), Lognormal(5.5, 0.8), Lognormal(4.0, 0.9), seed=3)
    cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
    return simulate(work, cost, EngineConfig(max_num_seqs=16, num_kv_blocks=2000))


def test_a_servers_run_reads_back_to_the_same_metrics(chats: Run, tmp_path) -> None:
    """The kind of fault: a unit, a clock or a token lost between writer and reader."""
    read = there_and_back(chats, tmp_path, slo=LIMITS)
    assert read.tool == "vllm"
    assert read.timelines is not None
    window = chats.window()
    assert not differences(chats.summary(LIMITS), summarize(read.timelines, LIMITS, window=None)), (
        "whole run"
    )
    assert window.duration_s == pytest.approx(read.summary.duration_s, rel=1e-12)
    np.testing.assert_allclose(
        np.sort([g for t in read.timelines for g in np.diff(t.token_times_s)]),
        chats.itl_s(),
        rtol=0,
        atol=1e-10,
    )
    assert read.requests is not None
    sent_s = chats.arrival_s - chats.arrival_s[0]
    np.testing.assert_allclose(read.requests.sent_s, sent_s, rtol=0, atol=1e-12)
    np.testing.assert_allclose(
        read.requests.first_token_s - read.requests.sent_s, chats.ttft_s, rtol=0, atol=1e-10
    )


def test_the_head_of_the_file_is_what_vllm_would_print(chats: Run, tmp_path) -> None:
    """Head and list of one file may not contradict each other, or the audit would warn of a
    simulation as it warns of a broken tool."""
    read = there_and_back(chats, tmp_path, slo=LIMITS)
    printed, own = read.summary, chats.summary(LIMITS)
    reported = as_reported_by(
        "vllm", read.timelines or (), duration_s=own.window.duration_s, slo=LIMITS
    )
    pairs = [
        (printed.ttft.mean_s, reported.ttft_mean_s),
        (printed.ttft.quantile_s(0.9), reported.ttft_p90_s),
        (printed.tpot.mean_s, reported.tpot_mean_s),
        (printed.itl.median_s, reported.itl_p50_s),
        (printed.itl.quantile_s(0.99), reported.itl_p99_s),
        (printed.e2e.mean_s, reported.e2e_mean_s),
        (printed.requests_per_s, reported.requests_per_s),
        (printed.output_tokens_per_s, reported.output_tokens_per_s),
        (printed.goodput_per_s, reported.goodput_per_s),
        (printed.total_tokens_per_s, own.total_tokens_per_s),
    ]
    for ours, theirs in pairs:
        assert ours == pytest.approx(theirs, rel=1e-9)
    said = " ".join(read.warnings)
    assert "TPOT" not in said, said
    assert "Little" not in said, said
    assert audit_files([tmp_path / "run.json"]).as_dict()


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=engine_cases())
def test_any_run_reads_back_to_the_same_metrics(tmp_path, case: dict[str, Any]) -> None:
    """Rejected, unfinished and one-token requests too: a group that changed its name on the way
    would move the goodput."""
    run = run_of(case)
    if not len(run):
        with pytest.raises(ValueError, match="run has no request to write"):
            write_vllm(run, tmp_path / "run.json")
        return
    read = there_and_back(run, tmp_path)
    assert read.timelines is not None
    assert not differences(run.summary(LIMITS), summarize(read.timelines, LIMITS))


def test_a_closed_loop_says_how_many_users_it_had(tmp_path) -> None:
    """Without it, Little's law could not be held against the file."""
    work = Workload(np.zeros(40), np.full(40, 100), np.full(40, 20))
    run = simulate_closed(5, 0.0, work, LinearStepCost(0.01, 1e-5, 0.0, 1e-4, 0.0))
    read = there_and_back(run, tmp_path)
    assert read.summary.max_concurrency == 5
    assert read.summary.asked_per_s == math.inf
    assert "Little" not in " ".join(read.warnings)


def test_unfinished_requests_are_told_apart_from_answers(tmp_path) -> None:
    """vLLM's lists hold zeros for them; taken for answers they would pull every mean to 0."""
    work = Workload([0.0, 0.1, 5.0], [10, 10, 10], [3, 400, 2])
    run = simulate(work, LinearStepCost(fixed_s=0.5), horizon_s=4.0)
    found = json.loads(write_vllm(run, tmp_path / "run.json").read_text(encoding="utf-8"))
    assert found["errors"] == ["", "unfinished"]
    assert found["output_lens"] == [3, 0]
    assert found["ttfts"][1] == 0.0
    assert (found["completed"], found["failed"]) == (1, 1)
    read = load_result(tmp_path / "run.json")
    assert summarize(read.timelines or ()).counts["unfinished"] == 1


def test_the_keys_are_vllms(chats: Run, tmp_path) -> None:
    """A key of our own making would be read by nobody else's script."""
    from tests.serving.results.layouts import vllm_detail

    found = json.loads(write_vllm(chats, tmp_path / "run.json").read_text(encoding="utf-8"))
    known = {
        *vllm_detail(), *(f"p{q}_{name}_ms" for q in (90, 95) for name in
                          ("ttft", "tpot", "itl", "e2el")),
    }  # fmt: skip
    assert set(found) <= known, set(found) - known
    assert found["request_goodput"] is None
