"""What a run tells people must be what happened in it: a wrong table or sentence would teach a
wrong thing while every number is right."""

from __future__ import annotations

import numpy as np
import pytest

from course.serving.engine import EngineConfig, Run, modes, simulate, simulate_closed
from course.serving.pricing import LinearStepCost
from course.serving.requests import Status
from course.serving.requests.metrics import SLO, RequestTimeline, summarize
from course.serving.workload import Fixed, Lognormal, Poisson, RequestClass, Workload, draw, mixture

SECOND = LinearStepCost(fixed_s=1.0)
REAL = LinearStepCost(0.010, 2e-5, 1e-9, 1e-4, 1e-8)


def busy(config: EngineConfig | None = None, horizon_s: float | None = None) -> Run:
    work = draw(400, Poisson(25.0), Lognormal(5.0, 0.8), Lognormal(4.0, 0.7), seed=5)
    return simulate(work, REAL, config or EngineConfig(num_kv_blocks=300), horizon_s=horizon_s)


# ---------------------------------------------------------------------------------------- metrics
@pytest.mark.parametrize("horizon_s", [None, 9.0])
@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(num_kv_blocks=300),
        EngineConfig(enable_chunked_prefill=False, max_num_batched_tokens=4096),
        EngineConfig(enable_chunked_prefill=False, max_num_batched_tokens=1500, max_num_seqs=2000),
        EngineConfig(batching=modes.static(8)),
    ],
    ids=repr,
)
def test_a_summary_is_what_the_timelines_give(
    config: EngineConfig, horizon_s: float | None
) -> None:
    """The same numbers as from every token's time, although the engine stores no token times."""
    run = busy(config, horizon_s)
    slo = SLO(ttft_s=0.5, tpot_s=0.05)
    endings = {Status.REJECTED: "rejected", Status.UNFINISHED: "unfinished"}
    timelines = []
    for i in range(len(run)):
        times_s = tuple(run.token_times(i).tolist())
        # what is unfinished is in the system up to the end of the last step
        end_s = times_s[-1] if times_s else float(run.arrival_s[i])
        if run.status[i] == Status.UNFINISHED:
            end_s = max(run.end_s, float(run.arrival_s[i]))
        error = endings.get(Status(run.status[i]))
        sent_s = float(run.arrival_s[i])
        prompt = int(run.work.prompt_tokens[i])
        timelines.append(
            RequestTimeline(sent_s, sent_s, times_s, (1,) * len(times_s), end_s, prompt, error)
        )
    window = run.window()
    ours = run.summary(slo).as_dict()
    theirs = summarize(timelines, slo, window=window).as_dict()
    assert ours.keys() == theirs.keys()
    for name, value in theirs.items():
        if isinstance(value, float):
            assert ours[name] == pytest.approx(value, rel=1e-9), name
        else:
            assert ours[name] == value, name


def test_the_steady_window_counts_its_own_gaps() -> None:
    """Gaps of the ramp's requests would show an emptier engine than the window's."""
    run = busy()
    window = run.steady_state(ramp_s=4.0, drain_s=4.0)
    summary = run.summary(window=window)
    chosen = [
        i
        for i in range(len(run))
        if window.start_s <= run.arrival_s[i] < window.end_s and run.status[i] == Status.FINISHED
    ]
    gaps_s = np.concatenate([np.diff(run.token_times(i)) for i in chosen])
    assert summary.itl is not None
    assert summary.itl.samples == gaps_s.size
    assert summary.itl.mean == pytest.approx(gaps_s.mean())
    assert summary.itl.p99 == pytest.approx(np.quantile(gaps_s, 0.99))
    assert summary.itl.smallest == pytest.approx(gaps_s.min())
    assert summary.itl.largest == pytest.approx(gaps_s.max())
    assert summary.itl.percentile(0.99).samples == gaps_s.size
    np.testing.assert_allclose(np.sort(summary.itl.values), np.sort(gaps_s))


def test_metrics_are_undefined_where_nothing_came() -> None:
    """A NaN says "not known"; a 0 would enter a mean."""
    work = Workload([0.0, 0.0, 0.1], [5, 999, 5], [3, 1, 3])
    run = simulate(work, SECOND, EngineConfig(num_kv_blocks=2, max_num_seqs=1), horizon_s=1.5)
    assert run.status.tolist() == [Status.UNFINISHED, Status.REJECTED, Status.UNFINISHED]
    np.testing.assert_array_equal(run.ttft_s, [1.0, np.nan, np.nan])
    assert np.isnan(run.tpot_s).all()
    assert np.isnan(run.e2e_s).all()
    assert run.emitted_tokens.tolist() == [2, 0, 0]


# ------------------------------------------------------------------------------------------ tables
def test_a_frame_has_one_row_a_request_and_the_classes() -> None:
    kinds = [
        RequestClass("chat", 3, Fixed(20), Fixed(5)),
        RequestClass("book", 1, Fixed(90), Fixed(2)),
    ]
    work = mixture(40, Poisson(2.0), kinds, seed=0)
    frame = simulate(work, SECOND, horizon_s=10.0).to_frame()
    assert len(frame) == (work.arrival_s <= 10.0).sum()
    assert frame.index.name == "request"
    assert set(frame.status) <= {"finished", "unfinished"}
    assert set(frame.label) == {"chat", "book"}
    closed = simulate_closed(2, 0.0, work, SECOND, EngineConfig(batching=modes.static(2)))
    assert {"user", "batch"} <= set(closed.to_frame().columns)


@pytest.mark.parametrize(
    "config",
    [
        EngineConfig(num_kv_blocks=300),
        EngineConfig(num_kv_blocks=300, order="priority"),
        EngineConfig(enable_chunked_prefill=False, max_num_batched_tokens=1500, max_num_seqs=2000),
        EngineConfig(batching=modes.static(8)),
    ],
    ids=repr,
)
@pytest.mark.parametrize("horizon_s", [None, 9.0])
def test_a_timeline_leaves_no_moment_out_and_counts_none_twice(
    config: EngineConfig, horizon_s: float | None
) -> None:
    """The picture's bars must join up from arrival to end, in order."""
    run = busy(config, horizon_s)
    table = run.timeline()
    for request, spans in table.groupby("request"):
        inside = spans[spans.phase != "idle slot"]
        assert inside.start_s.iloc[0] == run.arrival_s[request]
        assert (inside.start_s.iloc[1:].to_numpy() == inside.end_s.iloc[:-1].to_numpy()).all()
        over_s = run.finish_s[request] if run.status[request] == 0 else run.end_s
        assert inside.end_s.iloc[-1] == over_s
        assert (spans.phase == "preempted").sum() == run.preemptions[request]


def test_a_timeline_of_one_request_is_asked_for_by_number() -> None:
    run = simulate(Workload([0.0, 0.5], [4, 4], [3, 3]), SECOND)
    assert run.timeline([1]).to_dict("list") == {
        "request": [1, 1, 1],
        "phase": ["queued", "prefill", "decode"],
        "start_s": [0.5, 1.0, 2.0],
        "end_s": [1.0, 2.0, 4.0],
    }
    assert run.timeline(1).equals(run.timeline([1]))
    assert run.timeline([]).empty


def test_nobody_who_was_refused_or_never_served_has_a_phase_that_was_not() -> None:
    work = Workload([0.0, 0.0, 0.1], [5, 999, 5], [3, 1, 3])
    run = simulate(work, SECOND, EngineConfig(num_kv_blocks=2, max_num_seqs=1), horizon_s=1.5)
    phases = run.timeline().groupby("request").phase.apply(list).to_dict()
    assert phases == {0: ["prefill", "decode"], 2: ["queued"]}


# ----------------------------------------------------------------------------------------- words
def test_an_explanation_tells_the_story_with_its_numbers() -> None:
    work = Workload([0.0, 0.0], prompt_tokens=[3, 3], output_tokens=[4, 4])
    run = simulate(work, SECOND, EngineConfig(num_kv_blocks=4, block_size=2))
    assert run.explain(1).splitlines() == [
        "Request 1 (3 prompt tokens, 4 output tokens) arrived at 0.000 s; "
        "1 earlier ones were in the engine.",
        "     0.000 s    1.00 s  had its prompt computed",
        "     1.000 s    1.00 s  made tokens",
        "     2.000 s    2.00 s  was preempted, lost its cache and waited again",
        "     4.000 s    1.00 s  had its prompt and tokens computed again",
        "     5.000 s    1.00 s  made tokens",
        "TTFT 1.00 s, E2E 6.00 s, TPOT 1.67 s; "
        "its longest gap, 3.00 s, had 5 prefill tokens in it.",
    ]


def test_a_refusal_and_an_unfinished_request_are_explained() -> None:
    work = Workload([0.0, 0.0, 0.1], [5, 999, 5], [3, 1, 3])
    run = simulate(work, SECOND, EngineConfig(num_kv_blocks=2, max_num_seqs=1), horizon_s=1.5)
    assert "grows to 999 tokens, which need 63 KV blocks of 16, and there are 2" in run.explain(1)
    assert "It was not finished: 2 tokens came." in run.explain(0)
    whole = EngineConfig(enable_chunked_prefill=False, max_num_batched_tokens=100, max_num_seqs=9)
    refused = simulate(work, SECOND, whole)
    assert "without chunked prefill a step may compute at most 100" in refused.explain(1)
    single = simulate(Workload([0.0], [5], [1]), SECOND)
    assert "with one token it has no TPOT" in single.explain(0)


def test_a_run_says_what_it_is() -> None:
    assert repr(simulate(Workload([0.0], [5], [2]), SECOND)) == "Run(1 finished; 2 steps, 2 s)"
    assert repr(simulate(Workload([], [], []), SECOND)) == "Run(no requests; 0 steps, 0 s)"


def test_long_runs_show_a_bar(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Silence for more than a second looks like a hang."""
    from course.serving.engine import simulation

    shown: list[int] = []

    class Bar:
        n = 0

        def __init__(self, **_: object) -> None:
            shown.append(0)

        def update(self, more: int) -> None:
            self.n += more
            shown.append(self.n)

        def close(self) -> None:
            shown.append(-1)

    monkeypatch.setattr("tqdm.auto.tqdm", Bar)
    monkeypatch.setattr(simulation.time, "perf_counter", iter(range(1000)).__next__)
    work = draw(20_000, Poisson(8.0), Lognormal(5.0, 0.8), Lognormal(4.0, 0.7), seed=5)
    simulate(work, REAL)
    assert shown[0] == 0
    assert 0 < shown[-2] <= 20_000
    assert shown[-1] == -1
    shown.clear()
    simulate(work, REAL, progress=False)
    assert not shown
