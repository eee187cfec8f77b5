"""A reader's own trace through the engine: what is run, counted and said."""

from __future__ import annotations

import json

import numpy as np
import pytest

from course.serving.engine import EngineConfig, simulate
from course.serving.pricing.linear import LinearStepCost, RooflineStepCost
from course.serving.requests.metrics import SLO, Status
from course.serving.traces import Trace
from course.serving.traces.own_trace import MADE_UP_COST, TraceRun, simulate_trace
from course.serving.traces.report import trace_report
from course.serving.workload import Workload

SECOND = LinearStepCost(fixed_s=1.0)


def trace(arrival_s, prompt, output, *warnings: str) -> Trace:
    return Trace(
        np.array(arrival_s, dtype=np.float64), np.array(prompt, dtype=np.int64),
        np.array(output, dtype=np.int64), "plain", "own.csv", warnings,
    )  # fmt: skip


def busy(requests: int = 400) -> Trace:
    generator = np.random.default_rng(0)
    return trace(
        np.cumsum(generator.exponential(0.05, requests)),
        generator.integers(50, 900, requests),
        generator.integers(1, 300, requests),
        "the clock is coarse",
    )


# --- what is run -------------------------------------------------------------------------------


def test_trace_is_run_as_it_is() -> None:
    """The command would answer for another load than the reader's."""
    config = EngineConfig(max_num_seqs=16, num_kv_blocks=300)
    found = simulate_trace(busy(), MADE_UP_COST, config)
    given = busy()
    plain = simulate(
        Workload(given.arrival_s, given.prompt_tokens, given.output_tokens), MADE_UP_COST, config
    )
    np.testing.assert_array_equal(found.run.finish_s, plain.finish_s)
    np.testing.assert_array_equal(found.run.arrival_s, given.arrival_s)
    assert not found.rescaled


def test_rate_is_that_of_the_requests_kept() -> None:
    """Rescaled before it is cut, the part that is run would have another rate than asked for."""
    found = simulate_trace(busy(), MADE_UP_COST, limit=100, rate_per_s=3.0)
    assert len(found.run) == 100
    assert found.run.work.rate_per_s == pytest.approx(3.0)
    gaps, given = np.diff(found.run.arrival_s), np.diff(busy().arrival_s[:100])
    np.testing.assert_allclose(gaps / given, gaps[0] / given[0])
    assert found.rescaled
    assert "(rescaled)" in trace_report(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"limit": 0}, "limit=0 is below 1"),
        ({"rate_per_s": 0.0}, "rate_per_s=0.0 is not above 0"),
        ({"rate_per_s": 2.0, "limit": 1}, "has no rate to scale"),
    ],
)
def test_bad_options_get_a_sentence(options, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        simulate_trace(busy(), MADE_UP_COST, **options)


# --- KV blocks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "gpu", "logged"),
    [
        ("Llama-3.1-8B", "RTX-4090", 2588),
        ("Llama-3.1-8B", "RTX-PRO-6000-Server", 35_913),
        ("Qwen3-8B", "H100-80GB-SXM", 377_024 // 16),
    ],
)
def test_blocks_are_near_what_servers_logged(model: str, gpu: str, logged: int) -> None:
    """`auto` would give the engine a cache that no server has."""
    blocks = RooflineStepCost(model, gpu).kv_blocks()
    assert blocks == pytest.approx(logged, rel=0.2)


def test_blocks_add_up_by_hand() -> None:
    cost = RooflineStepCost("Llama-3.1-8B", "RTX-4090")
    left_bytes = 25_250_627_584 * 0.9 - 2 * cost.model.parameters - 2 * 2**30
    assert cost.kv_blocks() == int(left_bytes / (16 * 131_072))
    assert cost.kv_blocks(block_size=32) == int(left_bytes / (32 * 131_072))
    freer = cost.kv_blocks(memory_fraction=1.0, reserve_bytes=0)
    assert freer == int((25_250_627_584 - 2 * cost.model.parameters) / (16 * 131_072))


def test_too_large_a_model_says_how_much_is_lacking() -> None:
    """A reader who is only told "0 blocks" does not know what to change."""
    with pytest.raises(ValueError, match=r"does not fit on 1 × L4: .* GiB of weights.*GiB short"):
        RooflineStepCost("Llama-3.1-70B", "L4").kv_blocks()
    with pytest.raises(ValueError, match=r"memory_fraction=1\.5 is above 1"):
        RooflineStepCost("Llama-3.1-8B", "L4").kv_blocks(memory_fraction=1.5)


# --- what is counted ---------------------------------------------------------------------------


def test_waiting_at_the_last_arrival_is_counted_by_hand() -> None:
    """A server that falls behind would look as if it kept up."""
    # one seat, 3 s each; the last comes at 4 s, when 0 is done, 1 runs, 2 and 3 wait
    found = simulate_trace(
        trace([0.0, 0.5, 1.0, 1.5, 4.0], [5] * 5, [3] * 5), SECOND, EngineConfig(max_num_seqs=1)
    )
    assert found.waiting_at_last_arrival == 2
    alone = simulate_trace(trace([0.0], [5], [3]), SECOND)
    assert alone.waiting_at_last_arrival == 0


def test_rejections_are_told_apart() -> None:
    """The reader would raise the budget where the memory is too small, or the other way round."""
    config = EngineConfig(
        max_num_batched_tokens=100, enable_chunked_prefill=False, num_kv_blocks=10, block_size=16
    )
    found = simulate_trace(trace([0, 0, 0, 0], [20, 90, 120, 200], [5] * 4), SECOND, config)
    assert found.summary.counts["rejected"] == 2
    assert found.rejected_for == {"KV blocks": 1, "token budget": 1}
    text = trace_report(found)
    assert "more than the KV blocks can ever hold: 1" in " ".join(text.split())
    assert "The same with the 2 that got no answer behind all others:" in text


def test_kv_share_is_of_all_blocks() -> None:
    found = simulate_trace(
        trace([0.0], [32], [3]), SECOND, EngineConfig(num_kv_blocks=10, block_size=16)
    )
    # 32, 33 and 34 tokens held in three steps: 2, 3, 3 of 10 blocks
    assert found.kv_share == pytest.approx((8 / 30, 0.3))
    assert simulate_trace(trace([0.0], [32], [3]), SECOND).kv_share is None


def test_a_request_meets_the_slo_in_the_table_where_the_summary_counts_it() -> None:
    slo = SLO(ttft_s=0.2, tpot_s=0.02)
    found = simulate_trace(busy(), MADE_UP_COST, EngineConfig(num_kv_blocks=120), slo=slo)
    table = found.to_frame()
    assert 0 < table["met_slo"].sum() == found.summary.met < len(table)
    assert (table["preemptions"] > 0).any()
    assert "met_slo" not in simulate_trace(busy(), MADE_UP_COST).to_frame()


# --- what is said ------------------------------------------------------------------------------


def plain(found: TraceRun) -> str:
    return " ".join(trace_report(found).split())


def test_report_holds_what_a_practitioner_asks_for() -> None:
    found = simulate_trace(
        busy(), MADE_UP_COST, EngineConfig(max_num_seqs=16, num_kv_blocks=400),
        slo=SLO(ttft_s=1.0, tpot_s=0.05), cost_words="a guess",
    )  # fmt: skip
    text = plain(found)
    for words in (
        "own.csv (plain): 400 requests", "16 seats, 2,048 tokens a step, chunked prefill",
        "400 KV blocks of 16 tokens, fcfs", "Cost a guess", "400 offered: 400 finished, 0 rejected",
        "requests/s,", "output tokens/s,", "tokens/s in all", "TTFT ", "TPOT ", "E2E ",
        "P50", "P95", "P99", "KV cache", "Preemptions",
        "of the requests offered meet TTFT ≤ 1.00 s and TPOT ≤ 50.0 ms",
        "which asks for 99", "Goodput", "the clock is coarse", "this is a simulation",
        "have no TPOT",
    ):  # fmt: skip
        assert words in text, words
    assert "fell behind" in text


def test_intervals_are_those_of_the_metrics() -> None:
    found = simulate_trace(busy(), MADE_UP_COST)
    p99 = found.summary.ttft.percentile(0.99)
    assert found.as_dict()["percentiles"]["ttft"]["p99"] == {
        "value_s": p99.value, "low_s": p99.low, "high_s": p99.high, "samples": 400,
    }  # fmt: skip
    few = simulate_trace(trace([0.0, 1.0], [5, 5], [3, 3]), MADE_UP_COST)
    assert "[?–?]" in trace_report(few)
    assert few.as_dict()["percentiles"]["ttft"]["p99"]["high_s"] is None


def test_nothing_served_is_said_and_is_no_error() -> None:
    """A trace whose every request is rejected would end in a traceback."""
    found = simulate_trace(busy(), MADE_UP_COST, EngineConfig(num_kv_blocks=1), slo=SLO(ttft_s=1))
    assert (found.run.status == Status.REJECTED).all()
    assert "No request was finished, so there is no latency." in trace_report(found)
    assert found.as_dict()["figures"]["ttft_mean_s"] is None
    assert found.waiting_at_last_arrival == 0


def test_numbers_survive_json() -> None:
    for found in (
        simulate_trace(busy(), MADE_UP_COST, EngineConfig(num_kv_blocks=1)),
        simulate_trace(trace([0.0], [5], [1]), SECOND, slo=SLO(ttft_s=2.0)),
    ):
        text = json.dumps(found.as_dict(), allow_nan=False)
        assert json.loads(text) == found.as_dict()


def test_sjf_owns_up_to_knowing_the_answers() -> None:
    found = simulate_trace(busy(), MADE_UP_COST, EngineConfig(order="sjf"))
    assert "which no server knows" in plain(found)
    assert found.as_dict()["engine"]["order"] == "sjf"


def test_a_cost_and_an_order_of_ones_own_will_do() -> None:
    """The reader's own policy would not be reported."""

    class Own:
        def step_seconds(self, features: object) -> float:
            return 0.02

    config = EngineConfig(order=lambda now, arrival, prompt, output, value: -arrival)
    found = simulate_trace(busy(20), Own(), config)
    assert "an order of your own" in trace_report(found)
    assert found.as_dict()["cost"] == {"kind": "Own", "words": ""}
