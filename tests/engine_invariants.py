"""What must hold on every run of an engine, as one reusable check.

What lives here: `check_invariants(run, case)`, for the reference's run and for any other run with
the same attributes. What does not: an engine, or random cases (`engine_strategies.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

FINISHED, REJECTED, TIMED_OUT, CANCELLED, UNFINISHED = range(5)


def check_invariants(run: Any, case: dict[str, Any]) -> None:
    """Assert each bullet of "What must hold on every run" that one run can show.

    `run` needs status, arrival_s, scheduled_s, first_token_s, finish_s, preemptions (one entry an
    offered request, in order of arrival), step_end_s, step_prefill_tokens, step_decode_seqs,
    step_kv_blocks (read only where KV is limited) and token_times(i). `case` is a plain-data case
    of `engine_strategies.py`: the keywords that the run was made with.
    """
    facts = _Facts(run, case)
    _check_statuses(facts)
    _check_rejections(facts)
    _check_times(facts)
    _check_steps(facts)
    _check_seats(facts)
    _check_work(facts)
    _check_littles_law(facts)


class _Facts:
    """The run and its case as plain Python numbers, so that any array type will do."""

    def __init__(self, run: Any, case: dict[str, Any]) -> None:
        self.case = case
        self.arrival = [float(x) for x in run.arrival_s]
        self.status = [int(x) for x in run.status]
        self.scheduled = [float(x) for x in run.scheduled_s]
        self.first = [float(x) for x in run.first_token_s]
        self.finish = [float(x) for x in run.finish_s]
        self.preemptions = [int(x) for x in run.preemptions]
        self.n = len(self.status)
        self.tokens = [[float(x) for x in run.token_times(i)] for i in range(self.n)]
        self.step_end = [float(x) for x in run.step_end_s]
        self.prefill = [int(x) for x in run.step_prefill_tokens]
        self.decode = [int(x) for x in run.step_decode_seqs]
        self.limited = case.get("num_kv_blocks") is not None
        self.blocks = [int(x) for x in run.step_kv_blocks] if self.limited else []
        self.prompt: Sequence[int] = case["prompt_tokens"]
        self.output: Sequence[int] = case["output_tokens"]
        self.horizon: float | None = case.get("horizon_s")
        self.seats = 1 if case.get("batching") == "single" else case["max_num_seqs"]
        self.block_size = case.get("block_size", 16)
        # Every step has work: at least one prefill token or one decoding sequence.
        fixed, per_token, _, per_seq, _ = case["cost"]
        self.shortest_step = fixed + min(per_token, per_seq)
        self.front_end_s = case.get("front_end_s", 0.0)
        self.drafts = case.get("num_speculative_tokens", 0)
        self.recovered = 0
        self.found: list[int] | None = None
        if case.get("enable_prefix_caching"):
            self.found = [int(x) for x in run.prefix_hit_tokens]
            self.recovered = sum(int(x) for x in run.recovered_tokens)

    def hit(self, i: int) -> int:
        if self.found is not None:
            return self.found[i]
        cached = self.case.get("cached_prefix_tokens")
        if cached is None:
            return 0
        return int(min(cached[i], self.prompt[i] - 1) // self.block_size * self.block_size)


def _check_statuses(f: _Facts) -> None:
    """Every offered request ends in exactly one status; nothing is lost at the horizon."""
    for each in (f.arrival, f.scheduled, f.first, f.finish, f.preemptions):
        assert len(each) == f.n, "a per-request array has another length than status"
    counts = [f.status.count(code) for code in range(5)]
    assert sum(counts) == f.n, f"the five counts {counts} do not add up to {f.n} requests"
    if f.horizon is None:
        assert f.n == len(f.prompt), "a request was never offered though there is no horizon"
        assert counts[UNFINISHED] == 0, "a request is unfinished though there is no horizon"
    elif "users" not in f.case:
        offered = [a for a in f.case["arrival_s"] if a + f.front_end_s <= f.horizon]
        assert f.n == len(offered), "offered requests are not those up to the horizon"
    if "users" not in f.case:
        assert f.arrival == [float(a) for a in f.case["arrival_s"][: f.n]]


def _check_rejections(f: _Facts) -> None:
    """A request is rejected exactly where the whole of it can never be held or recomputed."""
    for i in range(f.n):
        need = f.prompt[i] + f.output[i] - 1
        too_long = not f.case.get("enable_chunked_prefill", True) and (
            need > f.case["max_num_batched_tokens"]
        )
        if f.limited:
            blocks = f.case["num_kv_blocks"]
            kept = math.floor(f.case.get("watermark", 0.0) * blocks)
            too_long = too_long or -(-need // f.block_size) > blocks - kept
        assert (f.status[i] == REJECTED) == too_long, f"request {i}: wrong verdict on arrival"


def _check_times(f: _Facts) -> None:
    """Time never runs backwards, and a request has exactly its output tokens."""
    assert f.arrival == sorted(f.arrival), "arrivals are not sorted"
    ends = set(f.step_end)
    for i in range(f.n):
        times = f.tokens[i]
        if f.status[i] == FINISHED:
            assert len(times) == f.output[i], f"request {i}: {len(times)} tokens"
            assert f.finish[i] == times[-1], f"request {i}: finish is not its last token"
        else:
            assert len(times) < f.output[i], f"request {i}: all tokens, yet not finished"
            assert math.isnan(f.finish[i]), f"request {i}: not finished, yet with a finish"
        if f.status[i] == REJECTED:
            assert not times, f"request {i}: rejected, yet with tokens"
            assert math.isnan(f.scheduled[i]), f"request {i}: rejected, yet scheduled"
        if times:
            assert f.first[i] == times[0], f"request {i}: first_token_s is not its first token"
            assert f.arrival[i] <= f.scheduled[i] <= times[0], f"request {i}: time runs backwards"
        else:
            assert math.isnan(f.first[i]), f"request {i}: no token, yet a first"
        if not math.isnan(f.scheduled[i]):
            joined_s = f.arrival[i] + f.front_end_s
            assert joined_s <= f.scheduled[i], f"request {i}: scheduled before it joined"
            if f.found is not None:
                most = (f.prompt[i] - 1) // f.block_size * f.block_size
                assert f.found[i] <= most, f"request {i}: its last token was found computed"
        assert set(times) <= ends, f"request {i}: a token between two step ends"
        for before, after in pairwise(times):
            assert before <= after, f"request {i}: token times decrease"
            if f.shortest_step > math.ulp(before) and not f.drafts:
                assert before < after, f"request {i}: two tokens at one time"


def _check_steps(f: _Facts) -> None:
    """Steps: in order, never without work, never over budget, seats or blocks."""
    assert len(f.prefill) == len(f.decode) == len(f.step_end), "step arrays differ in length"
    budget = f.case["max_num_batched_tokens"]
    for k in range(len(f.step_end)):
        assert min(f.prefill[k], f.decode[k]) >= 0, f"step {k}: a negative count"
        assert f.prefill[k] + f.decode[k] >= 1, f"step {k} has no work"
        if f.case.get("batching") == "sglang":  # whose decode looks at no budget, and mixes nothing
            assert 0 in (f.prefill[k], f.decode[k]), f"step {k}: prompts did not go alone"
            assert f.prefill[k] <= budget, f"step {k}: over the token budget"
        else:
            assert f.prefill[k] + f.decode[k] <= budget, f"step {k}: over the token budget"
        assert f.decode[k] <= f.seats * (1 + f.drafts), f"step {k}: more sequences than seats"
        if k > 0:
            assert f.step_end[k - 1] <= f.step_end[k], f"step {k} ends before the one before"
            if f.horizon is not None:
                assert f.step_end[k - 1] < f.horizon, f"step {k} begins at or after the horizon"
    if f.limited:
        assert len(f.blocks) == len(f.step_end), "step_kv_blocks has another length"
        for k, held in enumerate(f.blocks):
            assert 1 <= held <= f.case["num_kv_blocks"], f"step {k}: {held} KV blocks held"


def _check_seats(f: _Facts) -> None:
    """Where nobody was preempted, requests between scheduling and finish all hold a seat."""
    if any(f.preemptions):
        return
    moments = []
    for i in range(f.n):
        if not math.isnan(f.scheduled[i]):
            moments.append((f.scheduled[i], 1))
            if f.status[i] == FINISHED:
                moments.append((f.finish[i], 0))  # 0 < 1: a seat is free before it is taken
    seated = 0
    for at, kind in sorted(moments):
        seated += 1 if kind == 1 else -1
        assert seated <= f.seats, f"{seated} requests hold {f.seats} seats at {at} s"


def _check_work(f: _Facts) -> None:
    """Tokens are computed once, and again only after a preemption."""
    if f.status.count(UNFINISHED):
        return
    done = [i for i in range(f.n) if f.status[i] == FINISHED]
    prefill = sum(f.prompt[i] - f.hit(i) for i in done)
    decode = sum(f.output[i] - 1 for i in done)
    if not any(f.preemptions):
        assert sum(f.prefill) == prefill, "prefill tokens are not the prompts'"
        # static's ended slots count as well, and so do refused drafts
        if f.case.get("batching") != "static" and not f.drafts:
            assert sum(f.decode) == decode, "decode sequences are not the outputs' less one"
    computed = sum(f.prefill) + sum(f.decode) + f.recovered
    assert computed >= prefill + decode, "some tokens were not computed"


def _check_littles_law(f: _Facts) -> None:
    """∫ N(t) dt over the run is the sum of the times in system: an identity."""
    end = f.step_end[-1] if f.step_end else 0.0
    stays = []
    for i in range(f.n):
        if f.status[i] == FINISHED:
            stays.append((f.arrival[i], f.finish[i]))
        elif f.status[i] == UNFINISHED:
            stays.append((f.arrival[i], max(f.arrival[i], end)))
    changes = sorted([(a, 1) for a, _ in stays] + [(b, -1) for _, b in stays])
    pieces = []
    inside, before = 0, 0.0
    for at, change in changes:
        pieces.append(inside * (at - before))
        inside, before = inside + change, at
    total = math.fsum(b - a for a, b in stays)
    assert math.isclose(math.fsum(pieces), total, rel_tol=1e-9, abs_tol=1e-9), "Little's law"
