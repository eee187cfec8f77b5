"""The auditor's eyes: each check must see its fault, and stay silent without it."""

from __future__ import annotations

import pytest

from course.serving.requests.metrics import RequestTimeline, as_table
from course.serving.results import BenchmarkRun, Latency, RunSummary
from course.serving.results.checks import check_file, check_run
from course.serving.results.checks_of_latency import samples_for
from tests.serving.results import layouts
from tests.serving.results.test_layouts import checks, load


def said(check: str, summary: RunSummary, **run) -> list[str]:
    found = check_run(BenchmarkRun("line 1", "", summary, **run)).findings
    return [finding.text for finding in found if finding.check == check]


def lat(mean_s: float, *quantiles: tuple[float, float]) -> Latency:
    return Latency(mean_s=mean_s, quantiles=quantiles)


def test_little_against_a_stated_mean_and_a_cap() -> None:
    base = {"requests_per_s": 10.0, "e2e": lat(2.0)}
    assert said("little", RunSummary(**base, concurrency=20.5)) == []
    (text,) = said("little", RunSummary(**base, concurrency=8.0))
    assert "10.0 requests/s × mean E2E = 20.0 in flight, but the file says 8.00" in text
    assert said("little", RunSummary(**base, max_concurrency=20)) == []
    (text,) = said("little", RunSummary(**base, max_concurrency=16))
    assert "at most 16 were allowed" in text
    (text,) = said("little", RunSummary(**base, max_concurrency=64))
    assert "of the 64 that were meant to be" in text
    # an open loop under its cap is free to have fewer in flight
    assert said("little", RunSummary(**base, max_concurrency=64, asked_per_s=10.0)) == []


def test_little_pieces_a_missing_e2e_together() -> None:
    parts = {"ttft": lat(0.2), "tpot": lat(0.02), "output_tokens_mean": 91.0}
    summary = RunSummary(requests_per_s=10.0, **parts, concurrency=5.0)
    (text,) = said("little", summary)
    assert "× (TTFT + (n − 1)·TPOT) = 20.0 in flight" in text


def test_a_printed_percentile_is_no_mean() -> None:
    """A closed loop of 50 on 8 seats: the mean wait betrays the printed tail."""
    summary = RunSummary(
        requests_per_s=850 / 150, output_tokens_mean=150.0, max_concurrency=50,
        ttft=lat(0.8), tpot=lat(0.0094),
    )  # fmt: skip
    (text,) = said("little", summary)
    assert "= 12.5 in flight of the 50" in text


def test_tpot_is_recomputed_and_five_per_cent_matter() -> None:
    parts = {"ttft": lat(0.5), "e2e": lat(1.5), "output_tokens_mean": 101.0}
    assert said("tpot", RunSummary(**parts, tpot=lat(0.0104))) == []
    (text,) = said("tpot", RunSummary(**parts, tpot=lat(0.015)))
    assert "150" in text
    assert said("tpot", RunSummary(**parts)) == []
    assert said("tpot", RunSummary(**{**parts, "output_tokens_mean": 1.0}, tpot=lat(0.015))) == []


def test_a_files_own_requests_are_better_than_a_quotient_of_means() -> None:
    """Answers of very different lengths: 55 ms is right, though the means give 11."""
    requests = [
        RequestTimeline(0, 0, (0.05, 0.15), (1, 1), 0.15, 9),
        RequestTimeline(0, 0, tuple(0.05 + 0.01 * i for i in range(101)), (1,) * 101, 1.05, 9),
    ]
    summary = RunSummary(
        completed=2, output_tokens_mean=51.5, ttft=lat(0.05), e2e=lat(0.6), tpot=lat(0.055)
    )
    assert said("tpot", summary) != []
    assert said("tpot", summary, requests=as_table(requests)) == []


def test_rates_asked_sent_and_completed() -> None:
    assert said("rate", RunSummary(asked_per_s=10.0, requests_per_s=9.6)) == []
    (text,) = said("rate", RunSummary(asked_per_s=10.0, requests_per_s=6.0))
    assert "asked for 10.0 requests/s, completed 6.00 requests/s" in text
    (text,) = said("rate", RunSummary(asked_per_s=10.0, sent_per_s=7.0))
    assert "it was the bottleneck" in text
    (text,) = said("all-at-once", RunSummary(asked_per_s=float("inf"), offered=100))
    assert "place in that queue" in text
    capped = RunSummary(asked_per_s=float("inf"), offered=100, max_concurrency=4)
    assert said("all-at-once", capped) == []


def test_few_waves_have_no_steady_state() -> None:
    assert said("waves", RunSummary(offered=100, max_concurrency=40)) != []
    assert said("waves", RunSummary(offered=200, max_concurrency=40)) == []


def test_itl_far_from_tpot_means_chunks() -> None:
    assert said("itl", RunSummary(itl=lat(0.021), tpot=lat(0.02))) == []
    (text,) = said("itl", RunSummary(itl=lat(0.06), tpot=lat(0.02)))
    assert "about 3.0 tokens each" in text
    (text,) = said("itl", RunSummary(itl=lat(0.01), tpot=lat(0.02)))
    assert "counted as 0" in text
    (text,) = said("itl", RunSummary(itl=lat(0.02, (0.5, 1e-5))))
    assert "bundles" in text


def test_an_answer_in_one_piece_is_noticed() -> None:
    whole = RunSummary(ttft=lat(1.0000001), e2e=lat(1.0), output_tokens_mean=50.0)
    assert said("not-streamed", whole) != []
    assert said("not-streamed", RunSummary(ttft=lat(0.2), e2e=lat(1.0), output_tokens_mean=9)) == []


@pytest.mark.parametrize(("share", "needed"), [(0.9, 29), (0.95, 59), (0.99, 299), (0.999, 2995)])
def test_a_tail_needs_so_many_requests(share: float, needed: int) -> None:
    assert samples_for(share) == needed
    for samples, silent in ((needed - 1, False), (needed, True)):
        part = Latency(mean_s=1.0, quantiles=((share, 2.0),), samples=samples)
        assert (said("samples", RunSummary(ttft=part)) == []) is silent


def test_windows_that_disagree_with_their_own_counts() -> None:
    base = {"duration_s": 10.0, "completed": 100, "output_tokens_mean": 50.0}
    fits = RunSummary(**base, requests_per_s=10.0, output_tokens_per_s=500.0)
    assert said("window", fits) == []
    off = RunSummary(**base, requests_per_s=12.0, output_tokens_per_s=600.0)
    assert len(said("window", off)) == 2
    assert said("goodput", RunSummary(**base, requests_per_s=10.0, goodput_per_s=11.0)) != []


def test_quantiles_that_fall_are_columns_mixed_up() -> None:
    assert said("order", RunSummary(ttft=lat(1.0, (0.5, 2.0), (0.9, 1.0)))) != []


def test_start_times_are_held_against_the_cap(tmp_path) -> None:
    run = layouts.vllm_detail(max_concurrency=1)
    assert any("show 2 requests in flight at once" in t for t in load(tmp_path, run).warnings)


def test_a_summary_that_its_own_requests_contradict(tmp_path) -> None:
    assert "detail" in checks(load(tmp_path, layouts.vllm_detail(mean_ttft_ms=250.0)))


def test_little_against_measured_start_times(tmp_path) -> None:
    run = layouts.vllm_detail()
    table = load(tmp_path, run).requests
    summary = RunSummary(completed=3, concurrency=3.0, duration_s=2.0)
    (text,) = said("cap", summary, requests=table, starts_known=True)
    assert "give 0.750 requests in flight" in text


def test_an_answer_in_one_piece_is_within_a_per_cent() -> None:
    def of(ttft_s: float) -> list[str]:
        part = RunSummary(ttft=lat(ttft_s), e2e=lat(2.0), output_tokens_mean=50.0)
        return said("not-streamed", part)

    assert of(1.97) == []
    assert of(1.985) != []


@pytest.mark.parametrize(("completed", "hint"), [(999, False), (1015, True), (1025, False)])
def test_the_hint_at_open_files_is_for_just_below_their_limit(completed: int, hint: bool) -> None:
    (text,) = said("failures", RunSummary(offered=2000, completed=completed, failed=5))
    assert ("open files" in text) is hint


def test_a_cap_has_a_little_room() -> None:
    """A few per cent over a cap are a window's edge, not a contradiction."""
    base = {"requests_per_s": 10.0, "max_concurrency": 20}
    assert said("little", RunSummary(**base, e2e=lat(2.08))) == []
    assert said("little", RunSummary(**base, e2e=lat(2.2))) != []


def test_repeats_and_sweeps_are_told_apart() -> None:
    def runs(*caps: int) -> list[str]:
        of_file = [BenchmarkRun("", "ours", RunSummary(max_concurrency=cap)) for cap in caps]
        return [finding.check for finding in check_file(of_file)]

    assert runs(4) == []
    assert runs(4, 8) == ["several-runs"]
    assert runs(4, 4) == ["several-runs", "data-sets"]


def test_detail_that_is_not_whole_is_not_held_against_the_file(tmp_path) -> None:
    """A file that keeps a sample of its requests is no contradiction."""
    table = load(tmp_path, layouts.vllm_detail()).requests
    sampled = RunSummary(completed=300, concurrency=90.0, duration_s=2.0, max_concurrency=1)
    assert said("cap", sampled, requests=table, starts_known=True) == []
    agrees = RunSummary(completed=3, concurrency=0.76, duration_s=2.0)
    assert said("cap", agrees, requests=table, starts_known=True) == []
    unknown = RunSummary(completed=3, concurrency=3.0, duration_s=2.0)
    assert said("cap", unknown, requests=table, starts_known=False) == []


@pytest.mark.parametrize("ttft_s", [1.06, 2340.0])
def test_no_first_token_comes_after_the_last(ttft_s: float) -> None:
    """Units mixed up: called "in one piece", the answer would be blamed for the file's fault."""
    mean = RunSummary(ttft=lat(ttft_s), e2e=lat(1.0), output_tokens_mean=50.0)
    (text,) = said("impossible", mean)
    assert "is in another unit" in text
    assert said("not-streamed", mean) == []
    medians = RunSummary(
        ttft=Latency(quantiles=((0.5, ttft_s),)), e2e=Latency(quantiles=((0.5, 1.0),))
    )
    assert "the P50 TTFT of" in said("impossible", medians)[0]


def test_a_first_token_before_the_last_is_possible() -> None:
    fine = RunSummary(ttft=lat(0.2, (0.99, 5.0)), e2e=lat(1.0, (0.99, 5.1)), output_tokens_mean=9.0)
    assert said("impossible", fine) == []
    assert said("impossible", RunSummary(ttft=lat(0.2), output_tokens_mean=9.0)) == []


def test_a_tpot_a_thousand_times_off_is_another_unit() -> None:
    """Milliseconds read as seconds are no way of counting chunks."""
    parts = {"ttft": lat(0.5), "e2e": lat(1.5), "output_tokens_mean": 101.0}
    for tpot_s in (10.0, 1e-5):
        assert "in another unit" in said("tpot", RunSummary(**parts, tpot=lat(tpot_s)))[0]
    assert "in another unit" not in said("tpot", RunSummary(**parts, tpot=lat(0.05)))[0]


@pytest.mark.parametrize(
    ("counts", "says"),
    [
        ({"completed": 7, "failed": 1}, "7 completed and 1 failed of 6 requests sent: more than"),
        ({"completed": 7}, "7 completed of 6"),
        ({"completed": 5, "failed": 1, "incomplete": 1}, "5 completed and 1 failed and 1 cut off"),
        ({"completed": 5, "failed": 1}, None),
        ({"completed": 5}, None),
    ],
)
def test_more_answers_than_questions_are_a_contradiction(counts, says) -> None:
    """Rates and shares over such counts mean nothing."""
    found = said("counts", RunSummary(offered=6, **counts))
    assert (says is None and found == []) or says in found[0]


OPEN = {"offered": 1000, "completed": 1000, "asked_per_s": 10.0, "output_tokens_mean": 100.0}


def test_a_full_cap_makes_the_client_queue() -> None:
    """Asked 10/s one at a time, 0.5 s each: 2/s, and the last waits 320 s before it is sent."""
    (text,) = said(
        "rate",
        RunSummary(offered=800, completed=800, asked_per_s=10.0, duration_s=400.0,
                   requests_per_s=2.0, max_concurrency=1, e2e=lat(0.5)),
    )  # fmt: skip
    assert "the cap of 1 was full" in text
    assert "160 s on average, a wait that is in no latency here" in text


def test_a_slow_client_leaves_the_server_idle() -> None:
    """Sent as asked, the last would have ended 0.9 s after 100 s; the run took 200 s."""
    slow = RunSummary(**OPEN, duration_s=200.0, requests_per_s=5.0,
                      ttft=lat(0.05), e2e=lat(0.79, (0.99, 0.9)))  # fmt: skip
    (text,) = said("rate", slow)
    assert "so the client was slow" in text
    assert "3.95 requests were in flight" in text
    assert "beyond capacity" not in text


def test_a_queue_that_grows_is_beyond_capacity_and_a_drain_is_not() -> None:
    full = RunSummary(**OPEN, duration_s=160.0, requests_per_s=6.25,
                      ttft=lat(30.0, (0.99, 59.0)), e2e=lat(31.0, (0.99, 60.0)))  # fmt: skip
    assert "beyond capacity: the queue grew" in said("rate", full)[0]
    drained = RunSummary(
        **OPEN, duration_s=120.0, requests_per_s=8.33, ttft=lat(0.2), e2e=lat(20.0, (0.99, 20.5))
    )
    (text,) = said("rate", drained)
    assert "the drain of 20.0 s" in text
    assert "the server kept up" in text
    short = RunSummary(
        **OPEN, duration_s=180.0, requests_per_s=5.6, ttft=lat(0.6), e2e=lat(80.0, (0.99, 95.0))
    )
    assert "does not tell whether the server would keep up" in said("rate", short)[0]
    few = {**OPEN, "offered": 6, "completed": 6}
    of_six = RunSummary(**few, duration_s=0.9, requests_per_s=6.7, ttft=lat(0.3), e2e=lat(0.5))
    assert "so few requests" in said("rate", of_six)[0]
    silent = RunSummary(**OPEN, requests_per_s=6.0)
    assert "the file does not tell which" in said("rate", silent)[0]


def test_the_first_wave_is_seen_in_a_tail() -> None:
    wave = {"offered": 5120, "completed": 5120, "max_concurrency": 512}
    (text,) = said("first-wave", RunSummary(**wave, ttft=lat(0.8, (0.5, 0.28), (0.99, 9.8))))
    assert "512 of 5,120 requests (10\u00a0%) are the first wave" in text
    assert "35.0 × the median" in text
    # a tail that the wave cannot reach, or that does not stand out
    assert said("first-wave", RunSummary(**wave, ttft=lat(0.8, (0.5, 0.28), (0.8, 9.8)))) == []
    assert said("first-wave", RunSummary(**wave, ttft=lat(0.3, (0.5, 0.28), (0.99, 0.8)))) == []
    # an open loop has no such wave
    opened = RunSummary(**wave, asked_per_s=9.0, ttft=lat(0.8, (0.5, 0.28), (0.99, 9.8)))
    assert said("first-wave", opened) == []


def waves_of(late_s: float) -> tuple[RunSummary, object]:
    """Ten seats, a hundred requests: the first ten wait 1 to 10 s, of the others one `late_s`."""
    rows = []
    for i in range(100):
        sent, ttft = (0.0, 1.0 + i) if i < 10 else (20.0 + i, late_s if i == 50 else 0.2)
        rows.append(RequestTimeline(sent, sent, (sent + ttft,), (1,), sent + ttft, 9))
    ttfts = sorted(row.token_times_s[0] - row.sent_s for row in rows)
    summary = RunSummary(
        offered=100, completed=100, max_concurrency=10,
        ttft=lat(sum(ttfts) / 100, (0.5, ttfts[49]), (0.95, ttfts[94])),
    )  # fmt: skip
    return summary, as_table(rows)


def test_where_the_requests_are_kept_the_wave_is_told_from_other_tails() -> None:
    summary, table = waves_of(late_s=0.2)
    (text,) = said("first-wave", summary, requests=table, starts_known=True)
    assert "without them it is 200 ms" in text


def test_a_peak_of_a_second_is_no_peak() -> None:
    assert said("peak", RunSummary(max_concurrency=8, touched_in_a_second=8)) == []
    (text,) = said("peak", RunSummary(max_concurrency=8, touched_in_a_second=23))
    assert "touch one second" in text


def test_long_gaps_of_single_tokens_are_no_bundles() -> None:
    """The mean ITL is the mean TPOT: a chunk a token; the tail is other requests' prompts."""
    tail = lat(0.6, (0.5, 0.045), (0.99, 8.1))
    (text,) = said("itl", RunSummary(itl=tail, tpot=lat(0.6)))
    assert "a chunk carries one token" in text
    assert "P99 8.10 s" in text
    assert "bundles" not in text
    bundles = lat(0.02, (0.5, 2e-5), (0.99, 0.2))
    assert "bundles" in said("itl", RunSummary(itl=bundles, tpot=lat(0.02)))[0]


def test_a_time_of_exactly_nought_was_not_measured() -> None:
    zero = RunSummary(ttft=lat(3.8, (0.25, 0.0), (0.5, 0.0), (0.99, 9.6)))
    (text,) = said("zeros", zero)
    assert text.startswith("P50 TTFT is exactly 0")
    rows = [RequestTimeline(0, 0, (0.0, 1.0), (1, 1), 1.0, 9),
            RequestTimeline(0, 0, (0.5, 1.0), (1, 1), 1.0, 9)]  # fmt: skip
    (text,) = said("zeros", RunSummary(), requests=as_table(rows))
    assert "1 of 2 TTFTs are exactly 0" in text
    assert "the others are 500 ms" in text


def test_more_tokens_than_the_seats_can_decode() -> None:
    """850 tokens/s of 85 ms each are 72 requests that decode at once, on 8 seats."""
    eight = {"output_tokens_per_s": 850.0, "max_concurrency": 8}
    (text,) = said("little", RunSummary(**eight, tpot=lat(0.085)))
    assert "72.2 requests that decode at once, but at most 8" in text
    assert said("little", RunSummary(**eight, tpot=lat(0.0094))) == []


def test_short_answers_are_no_fast_server() -> None:
    (text,) = said("lengths", RunSummary(asked_output_tokens=128.0, output_tokens_mean=28.0))
    assert "28.0 tokens on average where 128 were asked for (21.9\u00a0%)" in text
    assert said("lengths", RunSummary(asked_output_tokens=128.0, output_tokens_mean=120.0)) == []
    assert said("lengths", RunSummary(most_output_tokens=128.0, output_tokens_mean=200.0)) != []


def test_counts_are_held_against_the_requests_themselves() -> None:
    rows = [
        RequestTimeline(0, 0, (0.5,), (3,), 0.5, 9),
        RequestTimeline(0, 0, (), (), 0.5, 9, "no"),
    ]
    table = as_table(rows)
    assert said("counts", RunSummary(offered=2, completed=1, output_tokens_mean=3.0),
                requests=table) == []  # fmt: skip
    (text,) = said("counts", RunSummary(offered=2, completed=2), requests=table)
    assert "says 2 completed, but 1 of its 2 requests have an answer" in text
    (text,) = said("counts", RunSummary(offered=2, completed=1, output_tokens_mean=30.0),
                   requests=table)  # fmt: skip
    assert "give 30.0 tokens an answer, its own requests 3.00" in text


def test_arrivals_other_than_poissons_are_told() -> None:
    assert said("burstiness", RunSummary(asked_per_s=5.0, burstiness=1.0)) == []
    assert "longer" in said("burstiness", RunSummary(asked_per_s=5.0, burstiness=0.25))[0]
    assert "shorter" in said("burstiness", RunSummary(asked_per_s=5.0, burstiness=10.0))[0]
    assert said("burstiness", RunSummary(asked_per_s=float("inf"), burstiness=0.25)) == []


def test_runs_of_two_servers_are_no_repeats() -> None:
    def runs(*servers: str) -> list[str]:
        of_file = [BenchmarkRun("", "m", RunSummary(max_concurrency=2), one) for one in servers]
        return [finding.check for finding in check_file(of_file)]

    assert runs("max_num_seqs=4", "max_num_seqs=8") == ["several-runs", "servers"]
    assert runs("max_num_seqs=4", "max_num_seqs=4") == ["several-runs", "data-sets"]


def test_a_check_without_figures_says_that_it_was_not_made() -> None:
    found = check_run(BenchmarkRun("", "", RunSummary(ttft=lat(0.1))))
    assert "Little's law" in found.not_made
    assert "TTFT within E2E" in found.not_made
    assert "times of exactly 0" not in found.not_made
