"""Every layout in, SI units out: a factor of a thousand here is a wrong purchase there."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from course.serving.files import ResultFileError
from course.serving.requests.conventions import as_reported_by
from course.serving.requests.metrics import Status, summarize
from course.serving.results import BenchmarkResult, load_result
from tests.serving.results import layouts


def load(folder, *values, **options) -> BenchmarkResult:
    return load_result(layouts.write(folder, *values, **options))


def checks(result: BenchmarkResult) -> list[str]:
    return [f.check for run in result.runs for f in run.findings] + [
        f.check for f in result.findings
    ]


# layout -> (tool, requests/s, output tokens/s, TTFT, TPOT or the tool's ITL, E2E); the latencies
# are means, or medians where a file has only those
SI = {
    "vllm": ("vllm", 19.512, 1170.7, 0.120, 0.025, 1.595),
    "vllm 0.6": ("vllm", 19.512, 1170.7, 0.120, 0.025, None),
    "sglang": ("sglang", 17.857, 714.29, 0.090, 0.020, 0.870),
    "sglang 2024": ("sglang", 5.0, 200.0, 0.080, None, 0.870),
    "guidellm": ("guidellm", 23.529, 705.88, 0.050, 0.010, 0.340),
    "guidellm 0.3": ("guidellm", 23.529, 705.88, 0.050, 0.010, 0.340),
    "aiperf": ("aiperf", 26.966, 674.16, 0.080, 0.015, 0.440),
    "aiperf 2025": ("aiperf", 26.966, 674.16, 0.080, 0.015, 0.440),
    "inference-perf": ("inference-perf", 9.95, 497.5, 0.040, 0.008, 0.432),
    "llmperf": ("llmperf", None, None, 0.2, 1.2 / 101, 1.2),
    "inferencex": ("inferencex", 3.4783, 347.83, 0.3, 0.02, 2.28),
}


@pytest.mark.parametrize("layout", SI)
def test_units_are_seconds_and_per_second(layout: str, tmp_path) -> None:
    tool, requests_per_s, tokens_per_s, ttft_s, pace_s, e2e_s = SI[layout]
    result = load(tmp_path, layouts.EVERY_LAYOUT[layout])
    s = result.summary
    assert result.tool == tool
    pace = s.itl if result.runs[0].itl_is == "requests" else s.tpot
    found = [s.requests_per_s, s.output_tokens_per_s]
    for part in (s.ttft, pace, s.e2e):
        found.append(part.mean_s if part.mean_s is not None else part.median_s)
    expected = (requests_per_s, tokens_per_s, ttft_s, pace_s, e2e_s)
    for got, wanted in zip(found, expected, strict=True):
        assert got == (None if wanted is None else pytest.approx(wanted, rel=1e-4))


@pytest.mark.parametrize("layout", [name for name in SI if name != "llmperf"])
def test_a_sound_run_draws_no_objection(layout: str, tmp_path) -> None:
    """An auditor who always complains is not read when it matters."""
    result = load(tmp_path, layouts.EVERY_LAYOUT[layout])
    mere_remarks = {
        "samples", "failures", "incomplete", "layout", "unit", "tpot-definition", "all-at-once",
    }  # fmt: skip
    assert set(checks(result)) <= mere_remarks, result.warnings


def test_quantiles_keep_their_share(tmp_path) -> None:
    """P99.9 read as P99 makes a tail look ten times as common."""
    s = load(tmp_path, layouts.vllm()).summary
    assert [q for q, _ in s.ttft.quantiles] == pytest.approx([0.5, 0.99, 0.999])
    assert s.ttft.quantile_s(0.999) == pytest.approx(0.288)
    assert s.ttft.quantile_s(0.95) is None
    assert s.ttft.std_s == pytest.approx(0.036)
    guide = load(tmp_path, layouts.guidellm()).summary
    assert guide.e2e.quantile_s(0.001) == pytest.approx(0.17)
    assert guide.e2e.quantile_s(0.999) == pytest.approx(0.51)


# --- vLLM and SGLang --------------------------------------------------------------------------


def test_vllm_in_detail_becomes_timelines(tmp_path) -> None:
    result = load(tmp_path, layouts.vllm_detail())
    done, single, failed, chunked = result.timelines
    assert done.token_times_s == pytest.approx((0.25, 0.375, 0.5))
    assert done.token_counts == (1, 1, 1)
    assert single.token_times_s == (0.5,)
    assert (failed.status, failed.output_tokens) == (Status.TIMED_OUT, 0)
    assert failed.error == "timed out: asyncio.TimeoutError: timeout"
    assert chunked.token_counts == (4, 4)
    assert chunked.sent_s - chunked.scheduled_s == pytest.approx(0.25)
    assert result.runs[0].starts_known
    own = as_reported_by("vllm", result.timelines, duration_s=2.0)
    assert own.ttft_mean_s == pytest.approx(result.summary.ttft.mean_s)
    assert own.itl_mean_s == pytest.approx(result.summary.itl.mean_s)
    assert {"chunks", "failures"} <= set(checks(result))
    assert "detail" not in checks(result)


def test_vllm_without_start_times_says_what_cannot_be_known(tmp_path) -> None:
    old = layouts.vllm_detail(start_times=layouts.GONE, latencies=layouts.GONE, queue_times=None)
    result = load(tmp_path, old)
    assert not result.runs[0].starts_known
    assert "no-start-times" in checks(result)
    # without latencies the end is the last chunk's: TTFT plus the gaps
    assert [t.end_s for t in result.timelines if t.error is None] == [0.5, 0.5, 0.5]


def test_sglangs_first_chunk_took_what_the_gaps_do_not_show(tmp_path) -> None:
    """SGLang repeats a chunk's gap for each token: their number gives the first chunk away."""
    detail = {
        "input_lens": [10], "output_lens": [7], "ttfts": [0.25], "itls": [[0.125, 0.125]],
        "errors": [""], "completed": 1,
    }  # fmt: skip
    native = load(tmp_path, layouts.sglang(**detail)).timelines
    assert native[0].token_counts == (5, 1, 1)
    openai = load(tmp_path, layouts.sglang(**detail, backend="sglang-oai")).timelines
    assert openai[0].token_counts == (2, 2, 3)


def test_vllms_old_goodput_key_has_a_colon(tmp_path) -> None:
    result = load(tmp_path, layouts.vllm_old())
    assert result.summary.goodput_per_s == 17.5
    assert result.summary.failed == 0
    assert "0.6" in result.version
    assert result.runs[0].convention == "vllm-0.6"


@pytest.mark.parametrize(
    ("said", "asked"), [("inf", math.inf), (float("inf"), math.inf), (3, 3.0), (None, None)]
)
def test_the_rate_asked_for_may_be_a_word(said, asked, tmp_path) -> None:
    assert load(tmp_path, layouts.vllm(request_rate=said)).summary.asked_per_s == asked


def test_a_file_without_any_latency_is_still_vllms(tmp_path) -> None:
    bare = {key: value for key, value in layouts.vllm().items() if not key.endswith("_ms")}
    result = load(tmp_path, bare)
    assert result.tool == "vllm"
    assert not result.summary.ttft.is_known
    assert load(tmp_path, layouts.inferencex(tokenizer_id="x")).tool == "inferencex"


@pytest.mark.parametrize("missing", ["ttft", "tpot", "itl", "e2el"])
def test_any_group_of_latencies_may_be_missing(missing: str, tmp_path) -> None:
    """`--percentile-metrics` chooses; what was not chosen is unknown, not 0."""
    run = {k: v for k, v in layouts.vllm().items() if not k.endswith(f"_{missing}_ms")}
    s = load(tmp_path, run).summary
    assert not getattr(s, {"e2el": "e2e"}.get(missing, missing)).is_known


def test_a_run_in_which_nothing_completed_has_no_latency(tmp_path) -> None:
    """All those 0.0 would win every comparison."""
    result = load(tmp_path, layouts.vllm_nothing_completed())
    s = result.summary
    assert not any(part.is_known for part in (s.ttft, s.tpot, s.itl, s.e2e))
    assert s.requests_per_s == 0.0
    assert {"nothing-completed", "failures"} <= set(checks(result))


def test_a_zero_latency_of_a_run_that_completed_is_no_data(tmp_path) -> None:
    result = load(tmp_path, layouts.vllm(**layouts.stats(("mean", "median", "p99"), "itl", 0.0)))
    assert result.summary.itl.mean_s is None
    assert any("ITL is 0 throughout" in text for text in result.warnings)


def test_minus_zero_is_noise_and_minus_one_is_a_fault(tmp_path) -> None:
    result = load(tmp_path, layouts.vllm(median_tpot_ms=-0.00001))
    assert result.summary.tpot.median_s is not None  # p50 says it too
    assert any("noise around zero" in text for text in result.warnings)
    with pytest.raises(ResultFileError, match="median_tpot_ms: is -1, which is negative"):
        load(tmp_path, layouts.vllm(median_tpot_ms=-1))


@pytest.mark.parametrize("between", ["\n", "", "  \n\n"])
def test_appended_objects_are_runs(between: str, tmp_path) -> None:
    """`--append-result` writes no array: the usual reader sees the first run or nothing."""
    runs = [layouts.vllm(request_rate=rate) for rate in (5.0, 10.0, 19.0)]
    result = load(tmp_path, *runs, between=between)
    assert [run.summary.asked_per_s for run in result.runs] == [5.0, 10.0, 19.0]
    assert result.summary.asked_per_s == 5.0
    assert "several-runs" in checks(result)


def test_objects_over_many_lines_may_be_appended_too(tmp_path) -> None:
    path = tmp_path / "run.json"
    path.write_text(
        "\n".join(json.dumps(layouts.vllm(), indent=2) for _ in range(2)), encoding="utf-8"
    )
    result = load_result(path)
    assert len(result.runs) == 2
    assert result.runs[1].place == f"line {2 + json.dumps(layouts.vllm(), indent=2).count(chr(10))}"


def test_two_data_sets_in_one_file_are_told_apart(tmp_path) -> None:
    lines = [layouts.sglang_2024(dataset_name=name) for name in ("ours", "ours", "theirs")]
    result = load(tmp_path, *lines)
    assert any("mixes 2 data sets or models" in text for text in result.warnings)
    assert result.version == "2024 (short key set)"


def test_recounted_tokens_are_compared(tmp_path) -> None:
    """218,257 tokens asked for and 103,837 produced: tokens/s was twice the truth."""
    result = load(tmp_path, layouts.sglang(total_output_tokens_retokenized=5704))
    assert any("5,704 when the texts are tokenised again" in text for text in result.warnings)


# --- the others -------------------------------------------------------------------------------


def test_guidellms_groups_and_versions(tmp_path) -> None:
    result = load(tmp_path, layouts.guidellm())
    s = result.summary
    assert (s.offered, s.completed, s.failed, s.incomplete) == (330, 320, 2, 8)
    assert (s.max_concurrency, s.concurrency, result.version) == (8, 8.0, "0.8.1")
    assert s.tpot.mean_s == pytest.approx(0.34 / 30)
    assert any("it contains the TTFT" in text for text in result.warnings)
    early = load(tmp_path, layouts.guidellm_03())
    assert (early.version, early.summary.asked_per_s) == ("0.3", 24.0)
    assert (early.summary.completed, early.summary.failed) == (320, 2)
    assert any("a token too many" in text for text in early.warnings)


def test_guidellms_duration_and_rate_may_have_to_be_found(tmp_path) -> None:
    by_times = layouts.guidellm_benchmark(
        duration=layouts.GONE, config={"strategy": {"type_": "throughput", "max_concurrency": 64}}
    )
    s = load(tmp_path, layouts.guidellm(by_times)).summary
    assert s.duration_s == pytest.approx(13.6)
    assert (s.asked_per_s, s.max_concurrency) == (math.inf, 64)
    one = layouts.guidellm_benchmark(config={"strategy": {"type_": "synchronous"}})
    assert load(tmp_path, layouts.guidellm(one)).summary.max_concurrency == 1
    no_rate = layouts.guidellm_benchmark(config={"strategy": {"type_": "poisson", "rate": -1.0}})
    assert load(tmp_path, layouts.guidellm(no_rate)).summary.asked_per_s is None


def test_an_empty_group_of_guidellm_is_no_zero(tmp_path) -> None:
    benchmark = layouts.guidellm_benchmark()
    nothing = benchmark["metrics"]["request_latency"]["errored"]
    benchmark["metrics"]["time_to_first_token_ms"]["successful"] = nothing
    assert not load(tmp_path, layouts.guidellm(benchmark)).summary.ttft.is_known


def test_guidellm_keeps_requests_with_their_first_and_last_token(tmp_path) -> None:
    request = layouts.guidellm_request
    groups = {
        "successful": [request(1000.0, 0.05, 0.35, 31), request(1000.5, 0.05, 0.05, 1)],
        "incomplete": [request(1000.7, 0.1, 0.2, 3)],
        "errored": [{"info": {"timings": {"request_start": 1001.0, "request_end": 1001.5}}}],
    }
    result = load(tmp_path, layouts.guidellm(layouts.guidellm_benchmark(requests=groups)))
    table = result.requests
    assert table.sent_s == pytest.approx([0.0, 0.5, 1.0, 0.7])
    run = summarize(table)
    assert run.counts["finished"] == 2
    assert (run.counts["failed"], run.counts["unfinished"]) == (1, 1)
    assert run.tpot.mean == pytest.approx(0.01)
    assert "detail-incomplete" in checks(result)


def test_aiperfs_layouts_of_two_years(tmp_path) -> None:
    now, then = load(tmp_path, layouts.aiperf()), load(tmp_path, layouts.aiperf(nested=True))
    assert now.summary == then.summary
    assert (now.summary.offered, now.summary.failed, now.summary.max_concurrency) == (500, 20, 12)
    assert "layout" in checks(then)
    assert now.runs[0].label == "our/model"


def test_aiperf_names_its_units(tmp_path) -> None:
    changed = layouts.aiperf()
    changed["request_latency"] = {"unit": "us", "avg": 440_000.0, "count": 480}
    assert load(tmp_path, changed).summary.e2e.mean_s == pytest.approx(0.44)
    changed["request_latency"]["unit"] = "fortnights"
    with pytest.raises(ResultFileError, match="request_latency, unit: is 'fortnights', no unit"):
        load(tmp_path, changed)


def test_aiperfs_reasoning_tokens_are_mentioned(tmp_path) -> None:
    changed = layouts.aiperf()
    changed["total_reasoning_tokens"] = {"unit": "tokens", "avg": 9000.0}
    changed["total_output_tokens"] = {"unit": "tokens", "avg": 3000.0}
    assert any("9,000 of the 12,000" in text for text in load(tmp_path, changed).warnings)


def test_aiperfs_lines_become_timelines(tmp_path) -> None:
    """Times are nanoseconds since 1970: as floating seconds their grain is 240 ns."""
    start = 1_700_000_000_000_000_001
    lines = [layouts.aiperf_line(start), layouts.aiperf_line(start + 250_000_000)]
    lines.append(layouts.aiperf_failed_line(start + 500_000_000))
    lines.append(layouts.aiperf_line(start))
    lines[-1]["metadata"]["benchmark_phase"] = "warmup"
    result = load(tmp_path, *lines, name="profile_export.jsonl")
    assert [t.sent_s for t in result.timelines] == [0.0, 0.25, 0.5]
    assert result.timelines[0].token_times_s == pytest.approx((0.1, 0.12, 0.15))
    assert result.timelines[2].status == Status.CANCELLED
    s = result.summary
    assert (s.completed, s.failed, s.prompt_tokens_mean) == (2, 1, 40.0)
    assert s.itl.mean_s == pytest.approx(0.025)
    assert s.requests_per_s == pytest.approx(2 / 0.4)
    assert "warm-up" in checks(result)


def test_aiperfs_lines_without_chunks_have_no_gaps(tmp_path) -> None:
    line = layouts.aiperf_line()
    line["metrics"]["inter_chunk_latency"] = {"value": 25.0, "unit": "ms"}
    result = load(tmp_path, line)
    assert result.timelines is None
    assert summarize(result.requests).tpot.mean == pytest.approx(0.025)


def test_inference_perf_counts_zero_gaps_in_chunks(tmp_path) -> None:
    run = layouts.inference_perf()
    run["successes"]["latency"]["inter_token_latency"] |= {"median": 1e-5, "p50": 1e-5}
    run["successes"]["latency"]["time_per_output_token"]["mean"] = 0.004
    result = load(tmp_path, run)
    assert {"tpot", "itl"} <= set(checks(result))
    run["load_summary"]["schedule_delay"]["mean"] = 0.25
    assert "schedule-delay" in checks(load(tmp_path, run))


def test_inference_perf_with_failures_only(tmp_path) -> None:
    run = layouts.inference_perf()
    run["successes"] = {"count": 0, "latency": None, "throughput": None, "prompt_len": None}
    run["failures"]["count"] = 400
    result = load(tmp_path, run)
    assert result.summary.e2e.mean_s is None
    assert {"nothing-completed", "failures"} <= set(checks(result))


def test_llmperf_has_latencies_and_no_rates(tmp_path) -> None:
    result = load(tmp_path, layouts.llmperf())
    s = result.summary
    assert (s.offered, s.completed, s.failed, s.requests_per_s) == (31, 30, 1, None)
    assert {"itl-definition", "no-start-times", "tpot"} <= set(checks(result))
    assert summarize(result.requests).tpot.mean == pytest.approx(1.0 / 99)
    assert (s.prompt_tokens_mean, s.output_tokens_mean) == (500.0, 100.0)
    assert "token-count" not in checks(result)
    two_counts = [layouts.llmperf_response(request_output_throughput_token_per_s=50 / 1.2)] * 5
    assert "token-count" in checks(load(tmp_path, two_counts))


def test_inferencex_is_seconds_and_has_an_inverse(tmp_path) -> None:
    result = load(tmp_path, layouts.inferencex())
    assert "unit" in checks(result)
    assert "tpot" not in checks(result)
    wrong = load(tmp_path, layouts.inferencex(median_intvty=500.0))
    assert any("median_intvty is 500 tokens/s" in text for text in wrong.warnings)
    point = {"hw": "card", "conc": 4, "isl": 1024, "osl": 512, "median_ttft": 0.2,
             "median_tpot": 0.02, "median_intvty": 50.0, "median_e2el": 10.42}  # fmt: skip
    points = load(tmp_path, [point, {**point, "conc": 8}])
    assert [run.summary.max_concurrency for run in points.runs] == [4, 8]
    assert points.summary.most_output_tokens == 512
    assert points.summary.output_tokens_mean is None, "a longest answer is no mean"


def test_an_inferencex_point_gets_its_rates_from_littles_law(tmp_path) -> None:
    """8 cards at 17.5 tokens/s each, 32 users of 200 s: 140 tokens/s, 0.16 answers/s of 875."""
    point = {"hw": "card", "conc": 32, "model": "m", "tp": 8, "isl": 8192, "osl": 1024,
             "tput_per_gpu": 157.5, "output_tput_per_gpu": 17.5, "mean_ttft": 2.5,
             "mean_tpot": 0.226, "median_ttft": 1.8, "median_tpot": 0.23,
             "mean_e2el": 200.0}  # fmt: skip
    found = load(tmp_path, point)
    s = found.summary
    assert (s.requests_per_s, s.output_tokens_per_s) == (0.16, 140.0)
    assert (s.output_tokens_mean, s.prompt_tokens_mean) == (875.0, 7000.0)
    assert "hw=card" in found.runs[0].server
    assert "tp=8" in found.runs[0].server
    assert not {"tpot", "cached"} & set(checks(found)), "8,192 tokens in 1.8 s on 8 cards can be"
    without_cards = load(tmp_path, {k: v for k, v in point.items() if k != "tp"}).summary
    assert without_cards.output_tokens_per_s is None
    assert without_cards.requests_per_s == 0.16


def test_aiperfs_lines_of_2025(tmp_path) -> None:
    """They name the sending `timestamp_ns`, and only the latency tells the end."""

    def line(start_ns: int, **more: object) -> dict[str, object]:
        metadata = {"timestamp_ns": start_ns, "credit_phase": "profiling"}
        metrics = {
            "ttft": {"value": 500.0, "unit": "ms"},
            "request_latency": {"value": 1500.0, "unit": "ms"},
            "output_sequence_length": {"value": 11, "unit": "tokens"},
            "inter_chunk_latency": {"value": [100.0] * 10, "unit": "ms"},
        }
        return {"metadata": metadata | more, "metrics": metrics, "error": None}

    start = 1_759_522_419_000_000_000
    warm_up = line(start - 10**9, credit_phase="warmup")
    found = load(tmp_path, warm_up, line(start), line(start + 10**9))
    s = found.summary
    assert s.completed == 2
    assert [s.ttft.mean_s, s.itl.mean_s, s.e2e.mean_s] == pytest.approx([0.5, 0.1, 1.5])
    assert s.duration_s == pytest.approx(2.5), "from the first sending to the last token"
    assert "warm-up" in checks(found)


def test_aiperfs_load_in_phases(tmp_path) -> None:
    """Since 0.11 the load, the lengths and the models are told elsewhere."""
    config = {
        "models": {"items": [{"name": "our/model"}]},
        "datasets": [{"prompts": {"isl": {"mean": 550}, "osl": {"mean": 128}}}],
        "phases": [
            {"name": "warmup", "type": "concurrency", "concurrency": 2, "requests": 10},
            {"name": "profiling", "type": "poisson", "rate": 12.5, "concurrency": 64},
        ],
    }
    found = load(tmp_path, layouts.aiperf(input_config=config))
    s = found.summary
    assert (s.asked_per_s, s.max_concurrency) == (12.5, 64)
    assert (s.asked_prompt_tokens, s.asked_output_tokens) == (550, 128)
    assert found.runs[0].label == "our/model"


def test_a_scrape_of_the_servers_counters_is_no_result(tmp_path) -> None:
    scrape = {
        "load_summary": {},
        "successes": {"count": 9, "rate": 8.0, "queue_len": {"mean": 262}},
        "failures": {},
    }
    with pytest.raises(ResultFileError, match="scrape of the server's counters"):
        load(tmp_path, scrape)


def test_a_run_summary_keeps_every_number_finite(tmp_path) -> None:
    for name, value in layouts.EVERY_LAYOUT.items():
        for run in load(tmp_path, value).runs:
            for field, figure in vars(run.summary).items():
                if isinstance(figure, float) and field != "asked_per_s":
                    assert np.isfinite(figure), (name, field)


def test_aiperfs_lines_of_answers_that_were_not_streamed(tmp_path) -> None:
    """Without a first token's time the answer came as a whole, at the request's latency."""
    line = layouts.aiperf_line()
    del line["metrics"]["time_to_first_token"], line["metrics"]["inter_chunk_latency"]
    (whole,) = load(tmp_path, line).timelines
    assert whole.token_times_s == (0.15,)
    assert whole.token_counts == (3,)
    del line["metrics"]["request_latency"]
    (whole,) = load(tmp_path, line).timelines
    assert whole.token_times_s == (0.16,)


def test_aiperf_without_counts_offers_nothing_it_does_not_know(tmp_path) -> None:
    bare = layouts.aiperf(request_count=layouts.GONE, error_request_count=layouts.GONE)
    assert load(tmp_path, bare).summary.offered is None
    no_errors = layouts.aiperf(error_request_count=layouts.GONE)
    assert load(tmp_path, no_errors).summary.offered == 480
    assert load(tmp_path, no_errors).summary.failed == 0


def test_chunks_of_several_tokens_are_counted_for_the_reader(tmp_path) -> None:
    result = load(tmp_path, layouts.vllm_detail())
    assert [text for text in result.warnings if "one token a chunk" in text] == [
        "1 answer has not one token a chunk; the file does not say how many each chunk carried, "
        "so the tokens inside a chunk have no known gaps"
    ]


def test_many_notes_are_cut_short(tmp_path) -> None:
    holes = {key: float("nan") for key in layouts.vllm() if key.endswith("_ms")}
    texts = [t for t in load(tmp_path, layouts.vllm(**holes)).warnings if "no data" in t]
    assert len(texts) == 10
    assert any("and 14 more values" in t for t in load(tmp_path, layouts.vllm(**holes)).warnings)


LISTED = {
    "vllm": "run", "vllm detail": "run", "sglang": "run", "guidellm": "run", "aiperf": "run",
    "inference-perf": "run", "inferencex": "point", "llmperf": "run",
}  # fmt: skip


@pytest.mark.parametrize("layout", LISTED)
def test_a_list_of_runs_is_the_runs(layout: str, tmp_path) -> None:
    """`jq -s .` makes one of appended runs: each must say what it says on a line of its own."""
    value = layouts.EVERY_LAYOUT[layout]
    apart, listed = load(tmp_path, value, value), load(tmp_path, [value, value])
    assert (listed.tool, listed.version) == (apart.tool, apart.version)
    assert [run.summary for run in listed.runs] == [run.summary for run in apart.runs]
    assert checks(listed) == checks(apart)
    places = [f"line 1, {LISTED[layout]} {index}" for index in (0, 1)]
    assert [run.place.split(", benchmarks")[0] for run in listed.runs] == places
    assert len(load(tmp_path, [[value], [value]]).runs) == 2


def test_a_list_of_aiperfs_lines_is_one_run(tmp_path) -> None:
    start = 1_700_000_000_000_000_001
    lines = [layouts.aiperf_line(start), layouts.aiperf_line(start + 250_000_000)]
    assert load(tmp_path, lines).timelines == load(tmp_path, *lines).timelines
    del lines[1]["metadata"]["request_end_ns"]
    with pytest.raises(ResultFileError, match="line 1, request 1, metadata: has no request_end"):
        load(tmp_path, lines)


@pytest.mark.parametrize("other", [None, 3, [], {"completed": 1}, "x"])
def test_a_strange_entry_of_a_list_is_named(other, tmp_path) -> None:
    """Left out in silence it would be a run that never was."""
    listed = [layouts.vllm(), other]
    if other == []:
        assert len(load(tmp_path, listed).runs) == 1
        return
    with pytest.raises(ResultFileError, match="line 1, run 1: is not a run of the same tool"):
        load(tmp_path, listed)


def test_a_list_of_no_known_tool_says_whose_keys_these_are(tmp_path) -> None:
    with pytest.raises(ResultFileError, match="the keys of its first entry begin with 'metric'"):
        load(tmp_path, [{"metric": 1}])
    with pytest.raises(ResultFileError, match="a list that does not begin with an object"):
        load(tmp_path, [1, "x"])


@pytest.mark.parametrize(
    ("unit", "avg", "per_s"),
    [
        ("requests/min", 1617.9775, 26.96629), ("requests / hour", 97078.65, 26.96629),
        ("requests/s", 26.96629, 26.96629), ("requests per second", 26.96629, 26.96629),
        ("requests/ms", 0.02696629, 26.96629),
    ],
)  # fmt: skip
def test_aiperfs_rates_are_per_second_whatever_they_are_per(unit, avg, per_s, tmp_path) -> None:
    """Sixty times too fast is what a unit that nobody reads can do."""
    rate = layouts.aiperf(request_throughput={"unit": unit, "avg": avg})
    assert load(tmp_path, rate).summary.requests_per_s == pytest.approx(per_s, rel=1e-6)


@pytest.mark.parametrize(
    ("metric", "unit", "field"),
    [
        ("request_throughput", "requests/fortnight", None), ("goodput", "%", "goodput_per_s"),
        ("output_token_throughput", "tokens", None),
        ("output_sequence_length", "kilotokens", "output_tokens_mean"),
        ("request_count", "thousands", "completed"),
    ],
)  # fmt: skip
def test_a_unit_that_is_unknown_is_no_figure(metric, unit, field, tmp_path) -> None:
    """Left out, and said so; a rate is then what the counts give."""
    result = load(tmp_path, layouts.aiperf(**{metric: {"unit": unit, "avg": 480.0}}))
    assert any(f"{metric} is in '{unit}', no unit" in text for text in result.warnings)
    if field is not None:
        assert getattr(result.summary, field) is None
    else:
        assert result.summary.requests_per_s == pytest.approx(480 / 17.8)
