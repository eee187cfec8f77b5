"""Whatever a caller passes: a run, or a sentence. Never a crash, an endless loop or a stack.

Compiled loops do not look where they write. So here come the largest and the smallest of everything
that the checks let through, and, in the deep lane, the random cases again with every index looked
at before it is used."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from course.paths import ROOT
from course.serving.engine import (
    Admission,
    EngineConfig,
    LongPrompts,
    Patience,
    Retry,
    Speculation,
    modes,
    simulate,
    simulate_closed,
    simulate_service,
)
from course.serving.pricing import LinearStepCost
from course.serving.workload import Prefixes, Workload
from tests.lanes import examples

LARGE = 2**31 - 1
TIMES_S = (0.0, 5e-324, 1.0, 1e15, 1e300, 1.7e308)
TOKENS = (1, 2, 17, 2**20, LARGE)
WHOLE = (1, 2, 3, 16, 1000, LARGE, 2**40, 2**53)


@st.composite
def extremes(draw: st.DrawFn) -> tuple[Workload, LinearStepCost, dict[str, Any], dict[str, Any]]:
    """Draw a workload, a price, dials and clients from the ends of their ranges."""
    n = draw(st.integers(0, 5))
    arrival_s = sorted(draw(st.lists(st.sampled_from(TIMES_S), min_size=n, max_size=n)))
    # few tokens of answer, so that a run that is possible ends
    outputs = draw(st.lists(st.sampled_from([1, 2, 9]), min_size=n, max_size=n))
    prompts = draw(st.lists(st.sampled_from(TOKENS), min_size=n, max_size=n))
    price = st.sampled_from([0.0, 5e-324, 1e-3, 1.0, 1e15, 1e308])
    cost = LinearStepCost(draw(price) or 1e-9, *draw(st.lists(price, min_size=4, max_size=4)))
    dials: dict[str, Any] = {
        "max_num_seqs": draw(st.sampled_from(WHOLE)),
        # prompts are computed in at most a few thousand steps
        "max_num_batched_tokens": draw(st.sampled_from([2**20, LARGE])),
        "block_size": draw(st.sampled_from(WHOLE)),
        "num_kv_blocks": draw(st.sampled_from([None, *WHOLE])),
        "enable_chunked_prefill": draw(st.booleans()),
        "order": draw(st.sampled_from(["fcfs", "sjf", "priority"])),
        "watermark": draw(st.sampled_from([0.0, 5e-324, 0.999])),
        "async_scheduling": draw(st.booleans()),
        "front_end_s": draw(st.sampled_from([0.0, 5e-324, 3600.0, 1e300])),
        "enable_prefix_caching": draw(st.booleans()),
        "batching": draw(
            st.sampled_from(["continuous", "single", "sglang", modes.static(1),
                             modes.windowed(1e300), modes.adaptive(0.0)])
        ),
    }  # fmt: skip
    if draw(st.booleans()):
        dials["speculation"] = Speculation(64, draw(st.sampled_from([0.0, 1.0])), seed=2**53)
    share = st.lists(st.sampled_from([0, LARGE]), min_size=n, max_size=n)
    work = Workload(
        arrival_s, prompts, outputs, prefixes=Prefixes.groups(np.zeros(n, int), draw(share))
    )
    clients: dict[str, Any] = {}
    if draw(st.booleans()):
        clients["patience"] = Patience(ttft_s=draw(st.sampled_from([5e-324, 1.0, 1e308])))
        clients["retry"] = Retry(3, draw(st.sampled_from(TIMES_S)), 100.0, 1.0)
    if draw(st.booleans()):
        clients["admission"] = Admission(max_waiting_tokens=draw(st.sampled_from(WHOLE)))
    if draw(st.booleans()):
        clients["long_prompts"] = LongPrompts(draw(st.sampled_from(TOKENS)), chunk_tokens=2**19)
    return work, cost, dials, clients


@settings(max_examples=examples(250), deadline=None, suppress_health_check=list(HealthCheck))
@given(extremes())
def test_the_ends_of_all_ranges_give_a_run_or_a_sentence(case: Any) -> None:
    """A number that passes the checks may end Python, or the student's patience."""
    work, cost, dials, clients = case
    for run in (
        lambda c: simulate(work, cost, c),
        lambda c: simulate_closed(2, 1e300, work, cost, c),
        lambda c: simulate_service(work, cost, c, **clients),
    ):
        with contextlib.suppress(ValueError, MemoryError):
            found = run(EngineConfig(**dials))
            assert len(found) <= len(work)
            assert np.isfinite(found.step_end_s).all()


@pytest.mark.deep
def test_no_index_leaves_its_array(tmp_path: Path) -> None:
    """A loop that writes behind its array changes another number, or ends the process."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:benchmark", "-n", "0",
         "tests/serving/test_engine_against_reference.py",
         "tests/serving/test_service_against_reference.py"],
        cwd=ROOT,
        env=os.environ | {
            "NUMBA_BOUNDSCHECK": "1", "COURSE_CACHE_DIR": str(tmp_path), "COURSE_TESTS": "whole",
        },
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
        timeout=3000,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:]
