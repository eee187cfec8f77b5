"""What people met in public with real tools, each with the right value.

Every test says which *kind* of fault it stands for; a tool that passes one case by luck would
still fail on its kind elsewhere, where the property tests look.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from course.serving.requests.conventions import as_reported_by
from course.serving.requests.metrics import (
    SLO,
    RequestTable,
    RequestTimeline,
    as_table,
    gaps_s,
    histogram_percentile,
    length_buckets,
    percentile,
    pooled_itl_s,
    sliced,
    steady_state,
    stopwatch,
    summarize,
    tpot_s,
    ttft_s,
)
from course.serving.results import load_result
from tests.serving.results import layouts


def streamed(sent_ms: float, ttft_ms: float, *gaps_ms: float) -> RequestTimeline:
    """One token a chunk: the first after `ttft_ms`, the others after their gaps."""
    times = np.cumsum([sent_ms + ttft_ms, *gaps_ms]) / 1000
    sent_s = sent_ms / 1000
    return RequestTimeline(sent_s, sent_s, tuple(times), (1,) * times.size, times[-1], 10)


def test_ttft_contains_the_servers_queue() -> None:
    """Kind: a latency read as the server's work, when it is mostly waiting in front of it."""
    requests = [streamed(0, 100 + 1000 * turn, *[100] * 9) for turn in range(3)]
    run = summarize(requests)
    assert run.ttft.ordered == pytest.approx([0.1, 1.1, 2.1])
    assert run.tpot.values == pytest.approx([0.1] * 3)
    admitted = np.array([0.0, 1.0, 2.0])
    assert ttft_s(admitted, as_table(requests).first_token_s) == pytest.approx([0.1] * 3)


@pytest.mark.parametrize(("requests", "median_s"), [(5, 0.6), (50, 5.1)])
def test_all_at_once_measures_the_place_in_the_queue(requests: int, median_s: float) -> None:
    """Kind: a figure that grows with the length of the test and not with the load."""
    run = summarize([streamed(0, 200 * (place + 1)) for place in range(requests)])
    assert run.ttft.p50 == pytest.approx(median_s)
    assert run.ttft.mean == pytest.approx(median_s)


def test_the_first_wave_of_a_closed_loop_is_not_the_steady_state() -> None:
    """Kind: a mean over two regimes that describes neither."""
    users, waves = 40, 3
    sent, first = [], []
    for wave in range(waves):
        for user in range(1, users + 1):
            sent.append(0.0 if wave == 0 else user + 40.0 * wave - 1)
            first.append(user + 40.0 * wave)
    first_s = np.array(first)
    table = RequestTable(sent, first_s, first_s + 39, [40] * len(sent))
    two_waves = table.only(np.arange(len(sent)) < 2 * users)
    assert summarize(two_waves).ttft.mean == pytest.approx(10.75)
    assert summarize(table, window=steady_state(table)).ttft.mean == pytest.approx(1.0)


def test_an_answer_in_one_piece_has_no_pace() -> None:
    """Kind: a zero printed where nothing was measured."""
    whole = RequestTimeline(0, 0, (0.5,), (20,), 0.5, 10)
    run = summarize([whole])
    assert run.ttft.mean == run.e2e.mean == 0.5
    assert run.itl.mean is None
    assert run.tpot.mean is None
    assert run.tpot.undefined == 1


def test_itl_below_tpot_is_a_matter_of_weights() -> None:
    """Kind: two means of the same times, weighted by request and by gap."""
    run = summarize([streamed(0, 50, 100), streamed(0, 50, *[10] * 100)])
    assert run.tpot.mean == pytest.approx(0.055)
    assert run.itl.mean == pytest.approx(1.1 / 101)


def test_ttft_is_no_gap() -> None:
    """Kind: the first token's wait counted among the gaps between tokens."""
    run = summarize([streamed(0, 500, 10, 10, 10, 10)])
    assert run.itl.mean == pytest.approx(0.010)
    assert run.itl.samples == 4


def test_tpot_leaves_the_first_token_out() -> None:
    """Kind: numerator with, denominator without the first token, or the other way round."""
    requests = [streamed(0, 500, 50, 50, 50, 50)]
    assert summarize(requests).tpot.mean == pytest.approx(0.050)
    assert as_reported_by("guidellm", requests).tpot_mean_s == pytest.approx(0.140)


def test_tpot_divides_by_what_was_produced() -> None:
    """Kind: the length that was asked for taken for the length that came."""
    produced, asked = 10, 100
    first, last = np.array([0.1]), np.array([1.0])
    assert tpot_s(first, last, np.array([produced])) == pytest.approx(0.1)
    assert tpot_s(first, last, np.array([asked])) == pytest.approx(0.00909, abs=1e-5)


def test_a_chunk_without_a_token_is_merged_into_the_next_gap() -> None:
    """Kind: a frame that is no token, divided by."""
    answer = RequestTimeline(0, 0, (0.1, 0.2, 0.4), (1, 0, 2), 0.4, 10)
    assert gaps_s(answer) == pytest.approx([0.3])
    assert gaps_s(answer, "even") == pytest.approx([0.15, 0.15])
    assert summarize([answer]).tpot.mean == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("policy", "attainment"), [("pass", 1.0), ("fail", 0.0), ("undecided", None)]
)
def test_one_token_has_no_tpot(policy, attainment) -> None:
    """Kind: a division by n − 1 = 0, and its silent repair by 0."""
    run = summarize([streamed(0, 250)], SLO(tpot_s=0.05, without_tpot=policy))
    assert run.ttft.mean == run.e2e.mean == pytest.approx(0.25)
    assert run.tpot.mean is None
    assert run.tpot.undefined == 1
    assert run.attainment == attainment


def test_no_minus_zero() -> None:
    """Kind: float noise printed as a measurement (a median TPOT of −0.00)."""
    run = summarize(RequestTable([0.0], [1.0000001], [1.0], [10]))
    assert run.straightened == 1
    assert run.tpot.mean is None


def test_tokens_counted_twice_halve_the_gap() -> None:
    """Kind: a token count from another tokenizer than the stream's."""
    times = tuple(0.1 + 0.05 * i for i in range(5))
    right = RequestTimeline(0, 0, times, (1,) * 5, times[-1], 10)
    with_bos = RequestTimeline(0, 0, times, (2,) * 5, times[-1], 10)
    assert summarize([right]).tpot.mean == pytest.approx(0.050)
    assert summarize([with_bos]).tpot.mean == pytest.approx(0.0222, abs=1e-4)


def test_a_file_with_twice_the_tokens_is_noticed(tmp_path) -> None:
    """Kind: a printed TPOT that its own E2E, TTFT and length contradict."""
    halved = layouts.vllm(**layouts.stats(("mean", "median", "p99"), "tpot", 12.4))
    result = load_result(layouts.write(tmp_path, halved))
    assert any("TPOT is 12.4 ms" in text and "gives 25.0 ms" in text for text in result.warnings)


def test_frames_of_a_stream_are_not_tokens() -> None:
    """Kind: server-sent events counted: a role, a usage report and an end mark are no tokens."""
    frames = RequestTimeline(0, 0, (0.1, 0.2, 0.25, 0.3, 0.31), (0, 1, 1, 0, 0), 0.31, 10)
    assert gaps_s(frames) == pytest.approx([0.05])
    assert summarize([frames]).ttft.mean == pytest.approx(0.2)
    assert summarize([frames]).e2e.mean == pytest.approx(0.25)


def test_two_token_counts_are_two_speeds_on_paper_only() -> None:
    """Kind: a ratio of speeds that is a ratio of ways to count tokens."""
    first, last = np.array([0.1, 0.1]), np.array([10.0, 10.0])
    fast, slow = tpot_s(first, last, np.array([1023, 300]))
    assert slow / fast == pytest.approx(1022 / 299)


def test_one_mean_a_request_hides_a_stall() -> None:
    """Kind: an average taken before the percentile."""
    requests = [streamed(0, 100, 20, 20, 300, 20)]
    assert as_reported_by("aiperf", requests).itl_p99_s == pytest.approx(0.090)
    gaps = pooled_itl_s(requests)
    assert percentile(gaps, 0.99).value == pytest.approx(0.292, abs=5e-4)


def test_sleeping_a_gap_at_a_time_sends_too_slowly(tmp_path) -> None:
    """Kind: a rate that was asked for, printed as the rate that was sent."""
    asked, overhead_s = 200.0, 0.00045
    relative = np.arange(1000) * (1 / asked + overhead_s)
    sent_per_s = 999 / (relative[-1] - relative[0])
    assert sent_per_s == pytest.approx(183.5, abs=0.05)
    load = {"count": 1000, "requested_rate": asked, "achieved_rate": sent_per_s}
    result = load_result(layouts.write(tmp_path, layouts.inference_perf(load_summary=load)))
    assert any("the client sent 183" in text for text in result.warnings)


def test_a_client_pool_of_100_is_found_by_littles_law(tmp_path) -> None:
    """Kind: the load generator saturated before the server."""
    run = layouts.vllm(
        request_rate="inf", max_concurrency=128, num_prompts=1000, completed=1000, duration=20.0,
        request_throughput=50.0, total_input_tokens=300_000, total_output_tokens=60_000,
        output_throughput=3000.0, mean_e2el_ms=2000.0,
    )  # fmt: skip
    result = load_result(layouts.write(tmp_path, run))
    said = [text for text in result.warnings if text.startswith("Little's law")]
    assert len(said) == 1
    assert "= 100 in flight of the 128" in said[0]
    assert "100 connections" in said[0]


def test_requests_that_the_file_does_not_mention_have_failed(tmp_path) -> None:
    """Kind: failures left out of a file, so that the survivors look like everybody."""
    run = layouts.vllm_old(num_prompts=2000, completed=1015)
    result = load_result(layouts.write(tmp_path, run))
    assert result.summary.failed == 985
    assert any("985 of 2,000 requests failed" in text for text in result.warnings)
    assert any("open files" in text for text in result.warnings)


def test_the_drain_is_in_one_window_and_not_in_the_other() -> None:
    """Kind: one run, two denominators."""
    sent = np.linspace(0.0, 9.4, 100)
    table = RequestTable(sent, sent + 0.5, sent + 1.2, [8] * 100)
    assert summarize(table).requests_per_s == pytest.approx(100 / 10.6)
    assert summarize(table, window=stopwatch(10.0)).requests_per_s == pytest.approx(10.0)


def test_scheduled_is_not_completed() -> None:
    """Kind: the offered rate printed as throughput."""
    sent = np.arange(1000) / 10
    ends = np.linspace(1.0, 112.0, 1000)
    requests = [RequestTimeline(s, s, (e,), (1,), e, 10) for s, e in zip(sent, ends, strict=True)]
    assert as_reported_by("mlperf", requests).requests_per_s == pytest.approx(999 / 112)


def test_goodput_zero_is_a_result_and_none_is_a_missing_question(tmp_path) -> None:
    """Kind: "false" and "absent" taken for the same."""
    slow = [streamed(0, 900, 100)]
    assert summarize(slow, SLO(ttft_s=0.1)).goodput_per_s == 0.0
    assert summarize(slow).goodput_per_s is None
    said = load_result(layouts.write(tmp_path, layouts.vllm(request_goodput=0.0)))
    assert said.summary.goodput_per_s == 0.0
    unsaid = load_result(layouts.write(tmp_path, layouts.vllm()))
    assert unsaid.summary.goodput_per_s is None


def test_a_histogram_knows_only_its_buckets() -> None:
    """Kind: a precision that the instrument does not have."""
    guess = [histogram_percentile([10.0, 20.0], [100, 0], q) for q in (0.5, 0.99)]
    assert [g.value for g in guess] == pytest.approx([5.0, 9.9])
    assert all(g.low <= 3.0 <= g.high for g in guess)
    assert histogram_percentile([10.0, math.inf], [0, 5], 0.5).value == math.inf
    assert histogram_percentile([10.0], [0], 0.5).value is None
    with pytest.raises(ValueError, match=r"upper_edges\[1\]=5.0 does not rise"):
        histogram_percentile([10.0, 5.0], [1, 1], 0.5)
    with pytest.raises(ValueError, match=r"counts\[0\]=-1 is negative"):
        histogram_percentile([10.0], [-1], 0.5)
    with pytest.raises(ValueError, match="counts has 2 entries"):
        histogram_percentile([10.0], [1, 1], 0.5)


def test_a_cached_prompt_is_no_cold_prefill(tmp_path) -> None:
    """Kind: a repeated run with the same prompts, measured as if it were the first."""
    warm = layouts.vllm(
        total_input_tokens=400 * 1024, **layouts.stats(("mean", "median"), "ttft", 30.0),
        mean_e2el_ms=1505.0,
    )  # fmt: skip
    assert any(
        "cold prefill" in text for text in load_result(layouts.write(tmp_path, warm)).warnings
    )
    cold = layouts.vllm(total_input_tokens=400 * 1024)
    assert not any("cold" in text for text in load_result(layouts.write(tmp_path, cold)).warnings)


def test_one_slow_tenant_is_lost_in_the_total() -> None:
    """Kind: a percentile over a mixture, in which the small group is nobody's tail."""
    chat = [streamed(0, 100, 20)] * 990
    reports = [streamed(0, 5000, 20)] * 9
    table = as_table([*chat, *reports])
    assert summarize(table).ttft.p99 < 0.2
    slices = sliced(table, ["chat"] * 990 + ["reports"] * 9)
    assert slices["reports"].ttft.p50 == pytest.approx(5.0)
    assert list(sliced(table, length_buckets(table.prompt_tokens, [100]))) == ["1: ≤ 100"]
