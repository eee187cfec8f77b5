"""What must hold on every run of a served engine; a run that breaks one of these counts somebody
twice, loses somebody, or makes tokens out of nothing."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings

from course.serving.engine import ServiceRun, Verdict
from course.serving.engine.service import simulate_service
from course.serving.requests import Status
from tests.lanes import examples
from tests.service_strategies import service_cases
from tests.serving.service_cases import service_run_of

EASY = settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=examples(120))
MANY = settings(EASY, max_examples=examples(300))


def rows_of(run: ServiceRun) -> list[list[int]]:
    """The attempts of each request, in order."""
    rows: list[list[int]] = [[] for _ in range(len(run))]
    for attempt, request in enumerate(run.attempts.request.tolist()):
        rows[request].append(attempt)
    return rows


@MANY
@given(service_cases())
def test_every_attempt_ends_in_one_status(case: dict[str, Any]) -> None:
    """Verdict, status and times tell one story, and only a horizon leaves somebody inside."""
    run = service_run_of(case)
    table = run.attempts
    allowed = {Status.FINISHED, Status.REJECTED, Status.TIMED_OUT, Status.UNFINISHED}
    assert set(table.status.tolist()) <= {int(kind) for kind in allowed}
    unfinished = table.status == Status.UNFINISHED
    assert case["horizon_s"] is not None or not unfinished.any()
    assert np.array_equal(np.isnan(table.end_s), unfinished)
    assert np.array_equal(table.verdict == Verdict.REJECT, table.status == Status.REJECTED)
    refused = table.verdict == Verdict.REJECT
    assert np.array_equal(table.end_s[refused], table.sent_s[refused])
    assert not table.computed_tokens[refused].any()
    assert np.array_equal(table.emitted_tokens[table.finished], table.output_tokens[table.finished])
    assert (table.emitted_tokens <= table.output_tokens).all()
    assert case.get("patience") is not None or not (table.status == Status.TIMED_OUT).any()
    counts = run.summary().counts
    assert sum(counts.values()) == len(run)


@MANY
@given(service_cases())
def test_time_never_runs_backwards(case: dict[str, Any]) -> None:
    """Sent, scheduled, first token, end: in this order, and never more than the client's limits."""
    run = service_run_of(case)
    table = run.attempts
    assert (np.diff(table.sent_s) >= 0).all()
    served = table.finished
    scheduled, first, end = (
        column[served] for column in (table.scheduled_s, table.first_token_s, table.end_s)
    )
    assert (table.sent_s[served] <= scheduled).all()
    assert (scheduled <= first).all()
    assert (first <= end).all()
    patience = case.get("patience") or {}
    if patience.get("ttft_s") is not None:
        assert (first <= table.sent_s[served] + patience["ttft_s"]).all()
    if patience.get("e2e_s") is not None:
        wanted = np.array(case["output_tokens"])[table.request[served]]
        limit_s = patience["e2e_s"] + patience["e2e_per_output_token_s"] * wanted
        assert (end <= table.sent_s[served] + limit_s).all()


@MANY
@given(service_cases())
def test_useful_and_wasted_tokens_are_all_tokens_computed(case: dict[str, Any]) -> None:
    """The steps' tokens are the attempts' tokens, and each is either useful or wasted."""
    run = service_run_of(case)
    table = run.attempts
    stepped = int(run.step_prefill_tokens.sum()) + int(run.step_decode_seqs.sum())
    assert int(table.computed_tokens.sum()) == stepped
    assert run.useful_tokens + run.wasted_tokens == stepped
    assert run.wasted_tokens >= 0
    assert (table.recomputed_tokens <= table.computed_tokens).all()
    assert not table.recomputed_tokens[table.preemptions == 0].any()
    prompt = np.array(case["prompt_tokens"])[table.request]
    if case.get("cached_prefix_tokens") is None:
        own = (table.computed_tokens - table.recomputed_tokens)[table.finished]
        assert np.array_equal(own, (prompt + table.output_tokens - 1)[table.finished])


@MANY
@given(service_cases())
def test_steps_keep_to_the_dials(case: dict[str, Any]) -> None:
    """Seats, budget and blocks bind ghosts and retries as they bind everybody."""
    run = service_run_of(case)
    tokens = run.step_prefill_tokens + run.step_decode_seqs
    assert (tokens >= 1).all()
    assert (tokens <= case["max_num_batched_tokens"]).all()
    assert (run.step_running <= case["max_num_seqs"]).all()
    assert (run.step_decode_seqs <= run.step_running).all()
    assert (run.step_start_s[1:] >= run.step_end_s[:-1]).all()
    if run.step_kv_blocks is not None:
        assert (run.step_kv_blocks <= case["num_kv_blocks"]).all()
        assert (run.step_kv_blocks >= 1).all()


@MANY
@given(service_cases(patience=True, retry=True))
def test_a_retry_comes_a_round_trip_after_the_attempt_before(case: dict[str, Any]) -> None:
    """A client has one attempt at a time, and needs at least a round trip to begin the next."""
    run = service_run_of(case)
    table = run.attempts
    retry = case["retry"]
    for rows in rows_of(run):
        assert table.attempt[rows].tolist() == list(range(1, len(rows) + 1))
        assert retry["attempts"] is None or len(rows) <= retry["attempts"]
        for before, after in pairwise(rows):
            assert table.status[before] in (Status.REJECTED, Status.TIMED_OUT)
            pause_s = table.sent_s[after] - table.end_s[before]
            least_s = retry["round_trip_s"]
            most_s = least_s + retry["delay_s"] * retry["growth"] ** (table.attempt[before] - 1)
            assert least_s - 1e-9 <= pause_s <= most_s + 1e-9


@EASY
@given(service_cases(patience=True, retry=True))
def test_littles_law_is_an_identity(case: dict[str, Any]) -> None:
    """∫ N(t) dt over the users' requests is the sum of their times in the system."""
    run = service_run_of(case)
    last_s = run.window().end_s
    left_s = np.where(np.isnan(run.end_s), last_s, run.end_s)
    moments = np.concatenate([run.first_sent_s, left_s])
    steps = np.concatenate([np.ones(len(run)), -np.ones(len(run))])
    order = np.argsort(moments, kind="stable")
    inside = np.cumsum(steps[order])[:-1]
    area = math.fsum((inside * np.diff(moments[order])).tolist())
    assert math.isclose(area, math.fsum((left_s - run.first_sent_s).tolist()), abs_tol=1e-6)
    figures = run.summary()
    if run.window().duration_s > 0 and case["horizon_s"] is None:
        assert figures.concurrency is not None
        assert math.isclose(figures.concurrency * run.window().duration_s, area, abs_tol=1e-6)


@EASY
@given(service_cases(patience=True, retry=True, closed=False, long=False))
def test_no_block_is_lost_when_clients_go(case: dict[str, Any]) -> None:
    """After all is over, one request that needs every block is served at once: had one leaver kept
    a block, it would wait for ever."""
    blocks = case.get("num_kv_blocks") or 50
    tokens = blocks * case.get("block_size", 16)
    case = case | {
        "num_kv_blocks": blocks,
        "admission": None,
        "horizon_s": None,
        "max_num_batched_tokens": max(tokens, case["max_num_batched_tokens"]),
    }
    case["retry"] = case["retry"] | {"attempts": 3}
    late_s = float(service_run_of(case).attempts.sent_s.max()) + 1e4
    last = {"arrival_s": late_s, "prompt_tokens": tokens, "output_tokens": 1, "priority": 0}
    last |= {"cached_prefix_tokens": 0, "predicted_output_tokens": 1, "label": "last"}
    for name, value in last.items():
        if case.get(name) is not None:
            case[name] = [*case[name], value]
    run = service_run_of(case)
    assert run.attempts.scheduled_s[run.attempts.request == len(run) - 1][0] == late_s
    assert run.step_kv_blocks is not None
    assert run.step_kv_blocks[run.step_start_s == late_s].tolist() == [blocks]


@EASY
@given(service_cases())
def test_compiled_and_plain_agree_to_the_bit(case: dict[str, Any]) -> None:
    """A student's own policy must not run in a slightly different server."""
    one, other = service_run_of(case), service_run_of(case, compiled=False)
    for name in one.attempts.__dataclass_fields__:
        ours, theirs = getattr(one.attempts, name), getattr(other.attempts, name)
        assert ours.dtype == theirs.dtype
        assert ours.tobytes() == theirs.tobytes(), name
    for name in ("step_start_s", "step_end_s", "step_running", "step_waiting"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes(), name


def test_the_loop_may_stop_anywhere_to_make_room(monkeypatch: Any) -> None:
    """A record that grows in the middle of a burst must not lose or repeat a send."""
    from course.serving.engine import EngineConfig, Patience, Retry, general
    from course.serving.pricing.linear import LinearStepCost
    from course.serving.workload import Lognormal, Poisson, draw

    work = draw(400, Poisson(60.0), Lognormal(5.5, 0.8), Lognormal(4.0, 0.7), seed=1)
    options: dict[str, Any] = {
        "patience": Patience(ttft_s=1.0, noticed=False),
        "retry": Retry(6, 0.5, 1.5, 0.5),
    }
    cost = LinearStepCost(0.01, 2e-5, 0, 1e-4, 1e-8)
    config = EngineConfig(max_num_seqs=40)

    def facts(**more: Any) -> list[bytes]:
        run = simulate_service(work, cost, config, **options, **more)
        assert len(run.attempts) > 1500
        return [getattr(run.attempts, n).tobytes() for n in run.attempts.__dataclass_fields__]

    whole = facts()
    monkeypatch.setattr(general, "_room", lambda used, share: used + 3)
    monkeypatch.setattr(general, "FIRST_STEPS", 1)
    monkeypatch.setattr("course.serving.engine.service_setup.FIRST_SEATS", 1)
    assert facts() == whole
    assert facts(compiled=False) == whole
