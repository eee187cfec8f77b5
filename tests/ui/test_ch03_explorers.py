"""What the pictures of notebook 03 draw and say, against figures worked out here by other ways:
data sheets by hand, the engine's own timelines, and a second simulation. A picture that disagreed
with its sentence, or with the model, would teach the wrong number."""

from __future__ import annotations

import csv
import math
from typing import Any

import numpy as np
import pytest

from course.explore.ch03.batching import SERVERS, batching
from course.explore.ch03.four_ways import batching_of, four_ways, work_of
from course.explore.ch03.layouts import LAYOUTS
from course.explore.ch03.roofline import roofline
from course.explore.ch03.token_cost import token_cost
from course.explore.steady import BUDGET, steady_tpot_s
from course.paths import DATA
from course.serving import catalog
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing.linear import RooflineStepCost, StepFeatures
from course.serving.requests.metrics import SLO
from course.serving.workload import Workload
from course.words import percent, rounded, seconds
from tests.ui.pictures import presets_of, xy

pytestmark = pytest.mark.slow


# --- roofline ---------------------------------------------------------------------------------


def spread_over(p: Any) -> RooflineStepCost:
    """The model of a state on one card; every preset fits there."""
    return RooflineStepCost(p.model, p.gpu, 1, p.precision)


@presets_of(roofline)
def test_points_lie_where_bytes_and_operations_put_them(opened: Any, preset: str) -> None:
    shell = opened(roofline, preset)
    p, picture = shell.parameters, shell.drawing
    cost, model = spread_over(p), catalog.model(p.model)
    pairs = p.prefill_tokens * (p.prefill_tokens + 1) // 2
    step = StepFeatures(p.prefill_tokens, pairs, p.batch, p.batch * p.context_tokens)
    tokens = p.batch + p.prefill_tokens
    weights = 2 * (model.parameters - model.vocab * model.hidden)
    kv_bytes = 2 * 2 * model.layers * model.kv_heads * model.head_dim * step.kv_tokens
    per_pair = 4 * model.layers * model.heads * model.head_dim
    flop = weights * tokens + per_pair * (step.kv_tokens + pairs)
    expected = {
        0: weights * tokens / weights,
        1: model.heads / model.kv_heads,
        2: flop / (weights + kv_bytes),
    }
    for index, intensity in expected.items():
        (x,), _ = xy(picture.points[index])
        assert x == pytest.approx(intensity, rel=1e-9)
    _, (speed,) = xy(picture.points[2])
    assert speed == pytest.approx(flop / cost.step_seconds(step), rel=1e-9)


@presets_of(roofline)
def test_nothing_is_drawn_above_its_roof(opened: Any, preset: str) -> None:
    shell = opened(roofline, preset)
    picture, gpu = shell.drawing, catalog.gpu(shell.parameters.gpu)
    x, roof = xy(picture.roof)
    peak = gpu.peak_flop_per_s(shell.parameters.precision)
    np.testing.assert_allclose(roof, np.minimum(peak, gpu.bandwidth_bytes_per_s * x))
    _, reached = xy(picture.reached)
    assert np.all(reached < roof)
    for line in (*picture.points, picture.trail):
        at, speed = xy(line)
        assert np.all(speed < np.minimum(peak, gpu.bandwidth_bytes_per_s * at))


@presets_of(roofline)
def test_the_roofline_s_sentence_says_what_is_drawn(opened: Any, preset: str) -> None:
    shell = opened(roofline, preset)
    r, words = shell.result, shell.sentence
    _, (speed,) = xy(shell.drawing.points[2])
    share = speed / r.peak_flop_per_s
    said = percent(share) if share >= 0.1 else f"{rounded(100 * share, 2)}\u00a0%"
    assert f"reaches {said} of the peak" in words
    assert f"ridge at {rounded(r.ridge_tokens)} tokens" in words
    assert f"The step takes {seconds(r.step_s)}" in words
    assert said in shell.drawing.words[2].get_text()


def test_the_ridge_is_the_data_sheet_s() -> None:
    for gpu, peak, bandwidth in (
        ("H100-80GB-SXM", 989e12, 3.35e12), ("RTX-4090", 165.2e12, 1.008e12),
    ):  # fmt: skip
        r = roofline.result(roofline.state(gpu=gpu))
        assert r.ridge_tokens == pytest.approx(peak / bandwidth)
        assert r.reached_ridge_tokens == pytest.approx(
            spread_over(roofline.state(gpu=gpu)).ridge_batch
        )


def test_no_batch_passes_the_ceiling_of_its_context() -> None:
    for context in (128, 1024, 32_768):
        state = roofline.state(context_tokens=context)
        r, cost = roofline.result(state), spread_over(state)
        many = 10**9
        flop = many * (
            2 * cost.model.active_parameters + cost.model.attention_flop_per_pair * context
        )
        read = cost.streamed_bytes + many * cost.kv_bytes_per_token * context
        assert r.ceiling_flop_per_byte == pytest.approx(flop / read, rel=1e-3)
        never = "never does" in roofline.narrate(r)
        assert never == (r.ceiling_flop_per_byte < r.ridge_flop_per_byte)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        ({"gpu": "RTX-4090", "context_tokens": 2048}, "“8 to 64, start at 16”"),
        ({"gpu": "H100-80GB-SXM", "context_tokens": 1024}, "“from 128 in steps of 64”"),
        ({"gpu": "A100-80GB-SXM", "context_tokens": 512}, "“ridge at 86 to 216”"),
    ],
)
def test_each_printed_rule_is_right_somewhere(values: dict[str, Any], rule: str) -> None:
    """The audit of the lesson: none of the three rules is wrong, and none is right everywhere."""
    assert rule in roofline.narrate(roofline.result(roofline.state(**values)))


def test_a_batch_beyond_memory_is_said_to_be_one() -> None:
    r = roofline.result(roofline.state(batch=1024, context_tokens=131_072))
    assert "fewer than this batch" in roofline.narrate(r)


def test_a_card_without_fp8_is_said_to_have_none() -> None:
    r = roofline.result(roofline.state(gpu="A100-80GB-SXM", precision="fp8"))
    assert r.precision == "bf16"
    assert "(the A100-80GB-SXM has no fp8)" in roofline.narrate(r)


# --- batching ---------------------------------------------------------------------------------


@presets_of(batching)
def test_layers_add_up_to_the_step(opened: Any, preset: str) -> None:
    """The corner of weights and computing does not add up; what is stacked must."""
    shell = opened(batching, preset)
    p, r = shell.parameters, shell.result
    cost = RooflineStepCost(*SERVERS[p.server])
    context = p.lengths[0] + p.lengths[1] / 2
    top = shell.drawing.layers[-1].get_path().vertices
    for batch, step_s in zip(r.curves.batch, r.curves.step_s, strict=True):
        expected = cost.step_seconds(StepFeatures(0, 0, int(batch), round(batch * context)))
        assert step_s == pytest.approx(expected, rel=1e-12)
        assert math.hypot(
            r.curves.weights_s[0], r.curves.compute_s[r.curves.batch == batch][0]
        ) == pytest.approx((r.curves.weights_s + r.curves.corner_s)[r.curves.batch == batch][0])
        drawn = top[: r.curves.batch.size][top[: r.curves.batch.size, 0] == batch][0, 1]
        assert drawn == pytest.approx(1e3 * expected)


@presets_of(batching)
def test_the_batching_sentence_says_what_is_drawn(opened: Any, preset: str) -> None:
    shell = opened(batching, preset)
    picture, words, r = shell.drawing, shell.sentence, shell.result
    (x,), (step_ms,) = xy(picture.here_step)
    assert x == r.seated
    assert f"step takes {seconds(step_ms / 1e3)}" in words
    assert picture.step_words.get_text() == seconds(step_ms / 1e3)
    (all_per_s,), (one_per_s,) = (xy(point)[1] for point in picture.points)
    assert one_per_s == pytest.approx(all_per_s / r.seated)
    assert f"{rounded(one_per_s)}" in words
    _, tpot_s = steady_tpot_s(
        RooflineStepCost(*SERVERS[shell.parameters.server]), r.seated, *shell.parameters.lengths
    )
    assert all_per_s == pytest.approx(r.seated / tpot_s)


@presets_of(batching)
def test_open_dots_are_the_rows_of_the_table(opened: Any, preset: str) -> None:
    shell = opened(batching, preset)
    p = shell.parameters
    model, gpu, n_gpus, precision = SERVERS[p.server]
    rows = []
    with open(DATA / "serving_points.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            same = (row["gpu"], row["model"], row["precision"]) == (gpu, model, precision)
            lengths = (row["prompt_tokens"], row["output_tokens"])
            here = same and lengths == tuple(str(tokens) for tokens in p.lengths)
            if here and row["load"] == "closed loop" and int(row["n_gpus"]) == n_gpus:
                rows.append(row)
    users, drawn = xy(shell.drawing.measured_all)
    expected = sorted((float(r["concurrency"]), float(r["output_tokens_per_s"])) for r in rows)
    assert sorted(zip(users, drawn, strict=True)) == expected
    _, steps_ms = xy(shell.drawing.measured_step)
    medians = sorted(1e3 * float(r["tpot_s"]) for r in rows if r["tpot_stat"] == "median ITL")
    np.testing.assert_allclose(sorted(steps_ms), medians)


def test_the_measured_chats_bear_the_model_out() -> None:
    """The picture says dots and layers are one thing: within a quarter up to a full memory."""
    for preset in ("Chat 8B on H100", "Long documents"):
        r = batching.result(batching.state(preset))
        inside = r.measured.users <= r.room
        assert inside.sum() >= 6
        model = np.interp(r.measured.users[inside], r.curves.batch, r.curves.step_s)
        assert np.abs(model / r.measured.token_s[inside] - 1).max() < 0.25
        speed = np.interp(
            r.measured.users[inside], r.curves.batch, r.curves.batch / r.curves.tpot_s
        )
        assert np.abs(speed / r.measured.tokens_per_s[inside] - 1).max() < 0.25


def test_what_the_presets_ask_is_so() -> None:
    chat, pages, small, large = (
        batching.result(batching.state(name))
        for name in (
            "Chat 8B on H100", "Long documents", "Small model, big card", "70B on four H100s",
        )
    )  # fmt: skip
    assert pages.step_s < 2 * chat.step_s
    assert pages.tokens_per_s < 0.5 * chat.tokens_per_s
    assert float(small.here.overhead_s[0]) > 0.5 * small.step_s
    assert float(large.here.all_reduce_s[0]) > 0.05 * large.step_s
    assert float(chat.here.all_reduce_s[0]) == 0


# --- four ways --------------------------------------------------------------------------------


def run_of(p: Any, way: str) -> Any:
    config = EngineConfig(
        max_num_seqs=p.seats, max_num_batched_tokens=60_000,
        batching=batching_of(way, p.seats, p.window_ms / 1e3),
    )  # fmt: skip
    return simulate(work_of(p), RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM"), config)


@presets_of(four_ways)
def test_rows_are_the_engine_s_own_timelines(opened: Any, preset: str) -> None:
    shell = opened(four_ways, preset)
    p = shell.parameters
    for way, shown in zip(p.ways, shell.result.runs, strict=True):
        engine = run_of(p, way).timeline()
        spent = engine.assign(s=engine.end_s - engine.start_s).groupby(["request", "phase"]).s.sum()
        phases = {name: end - start for name, (start, end) in shown.phases().items()}
        phases["queued"] = phases["queued"] + phases.pop("held")
        phases["idle slot"] = phases.pop("idle")
        for phase, times in phases.items():
            expected = [spent.get((i, phase), 0.0) for i in range(times.size)]
            np.testing.assert_allclose(times, expected, atol=1e-9)


@presets_of(four_ways)
def test_a_busy_gpu_has_somebody_in_service(opened: Any, preset: str) -> None:
    """And an idle one nobody: busy time is what the rows' service times cover together."""
    for run in opened(four_ways, preset).result.runs:
        covered, until = 0.0, 0.0
        for start, end in sorted(zip(run.scheduled_s, run.slot_end_s, strict=True)):
            covered += max(0.0, end - max(start, until))
            until = max(until, end)
        assert run.busy_s == pytest.approx(covered, abs=1e-9)


@presets_of(four_ways)
def test_the_timeline_s_sentence_says_what_is_drawn(opened: Any, preset: str) -> None:
    shell = opened(four_ways, preset)
    words = shell.sentence
    for way, text in zip(shell.parameters.ways, shell.drawing.sums, strict=False):
        run = run_of(shell.parameters, way)
        done, ttft = float(run.finish_s.max()), float(run.ttft_s.mean())
        assert f"{way} is through after {seconds(done)}, mean TTFT {seconds(ttft)}" in words
        assert f"done {seconds(done)}\nmean TTFT {seconds(ttft)}" in text.get_text()


def test_wasted_slots_are_those_of_the_shorter_answers() -> None:
    """By hand: a batch decodes its longest answer's gaps in each of its slots."""
    p = four_ways.state("One long answer among short")
    run, output = run_of(p, "static"), work_of(p).output_tokens
    slots = useful = 0
    for number in np.unique(run.batch):
        gaps = output[run.batch == number] - 1
        slots += int(gaps.size * gaps.max())
        useful += int(gaps.sum())
    shown = four_ways.result(p).runs[0]
    assert shown.wasted_share == pytest.approx(1 - useful / slots)
    assert four_ways.result(p).runs[1].wasted_share == 0


def test_at_low_traffic_the_window_costs_itself_and_wins_nothing() -> None:
    r = four_ways.result(four_ways.state("The wait window at low traffic"))
    waits, plain = r.runs
    assert waits.mean_ttft_s - plain.mean_ttft_s == pytest.approx(r.window_s)
    assert waits.busy_s == pytest.approx(plain.busy_s)
    assert "saves nothing of" in four_ways.narrate(r)


def test_at_high_traffic_the_window_opens_once() -> None:
    r = four_ways.result(four_ways.state("The wait window at high traffic"))
    windowed, plain = r.runs
    held = windowed.scheduled_s - windowed.held_s
    assert np.unique(windowed.scheduled_s[held > 1e-9]).size == 1
    assert held[0] == pytest.approx(r.window_s)
    assert windowed.mean_ttft_s - plain.mean_ttft_s < 0.2 * r.window_s


def test_the_adaptive_engine_starts_the_quiet_ones_at_once() -> None:
    r = four_ways.result(four_ways.state("Adaptive window"))
    windowed, adaptive, plain = r.runs
    held = {run.name.split(":")[0]: run.scheduled_s - run.held_s for run in r.runs}
    assert not held["adaptive"][:4].any()
    assert held["adaptive"].any()
    assert (held["windowed"][:4] > 0).any()
    assert plain.mean_ttft_s < adaptive.mean_ttft_s < windowed.mean_ttft_s
    assert windowed.busy_s < adaptive.busy_s < plain.busy_s


def test_nothing_is_drawn_that_has_not_happened_yet(opened: Any) -> None:
    shell = opened(four_ways)
    shown = []
    for played in (0, 25, 50, 75, 100):
        shell.set_state(played=played)
        r = shell.result
        right = [
            patch.get_path().vertices[:, 0].max(initial=0.0)
            for patch in shell.drawing.patches.values()
        ]
        assert max(right) <= r.now_s + 1e-9
        shown.append(max(right))
        if played < 100:
            for way, run in zip(shell.parameters.ways, r.runs, strict=True):
                engine = run_of(shell.parameters, way)
                times = np.concatenate([engine.token_times(i) for i in range(len(engine))])
                assert f"{(times <= r.now_s).sum():,} tokens" in shell.sentence
                assert run.token_s.size == work_of(shell.parameters).output_tokens.sum()
    assert shown == sorted(shown)
    assert "is through after" in shell.sentence


# --- token cost -------------------------------------------------------------------------------


def replica_of(p: Any) -> RooflineStepCost:
    return RooflineStepCost(p.model[0], p.gpu, LAYOUTS[p.layout][1], p.model[1])


@presets_of(token_cost)
def test_dollars_follow_from_price_and_pace(opened: Any, preset: str) -> None:
    shell = opened(token_cost, preset)
    p, r, picture = shell.parameters, shell.result, shell.drawing
    replicas, gpus_each = LAYOUTS[p.layout]
    sequences, usd = xy(picture.chosen[0])
    _, tpot_s = xy(picture.chosen[1])
    for count, dollars, pace_s in zip(sequences, usd, tpot_s, strict=True):
        tpot = steady_tpot_s(replica_of(p), int(count) // replicas, *p.lengths)[1]
        assert pace_s == pytest.approx(tpot)
        per_s = replicas * gpus_each * r.usd_per_gpu_hour / 3600
        assert dollars == pytest.approx(per_s / (count / tpot) * 1e6)
    assert f"output tokens cost {rounded(r.here_usd)} USD" in shell.sentence
    assert f"{rounded(r.here_usd)}" in picture.mark_words[2].get_text()


@presets_of(token_cost)
def test_the_cheapest_inside_is_the_last_that_keeps_the_promise(opened: Any, preset: str) -> None:
    shell = opened(token_cost, preset)
    p, r = shell.parameters, shell.result
    replicas, _ = LAYOUTS[p.layout]
    inside, most = r.chosen.inside // replicas, r.chosen.most // replicas
    if not p.tpot_promise_ms:
        assert inside == most
        assert "Nothing is promised" in shell.sentence
        return
    for batch, kept in ((inside, True), (inside + 1, False)):
        if batch <= most:
            tpot_s = steady_tpot_s(replica_of(p), batch, *p.lengths)[1]
            assert (tpot_s <= p.tpot_promise_ms / 1e3) == kept
    (x,), (y,) = xy(shell.drawing.marks[0])
    assert (x, y) == (r.chosen.inside, pytest.approx(r.chosen.inside_usd))
    assert rounded(y) in shell.sentence


@presets_of(token_cost)
def test_good_answers_are_those_that_a_second_simulation_calls_good(
    opened: Any, preset: str
) -> None:
    shell = opened(token_cost, preset)
    p, r = shell.parameters, shell.result
    replicas, _ = LAYOUTS[p.layout]
    cost, seats = replica_of(p), r.here_sequences // replicas
    n = r.here.requests
    arrivals = np.random.default_rng(1).exponential(size=n).cumsum()
    rate = float(r.here.offered_per_s[0]) / replicas
    work = Workload(arrivals / rate, np.full(n, p.lengths[0]), np.full(n, p.lengths[1]))
    config = EngineConfig(
        max_num_seqs=seats, max_num_batched_tokens=BUDGET, num_kv_blocks=cost.kv_blocks()
    )
    run = simulate(work, cost, config)
    took_s = float(run.finish_s.max())
    all_usd = cost.usd_per_hour(r.usd_per_gpu_hour) / 3600 * took_s / n * 1e3
    assert float(r.here.usd_all[0]) == pytest.approx(all_usd)
    share = 1.0
    if p.tpot_promise_ms:
        slo = SLO(ttft_s=p.ttft_promise_s, tpot_s=p.tpot_promise_ms / 1e3)
        share = run.summary(slo).attainment
    assert float(r.here.good_share[0]) == pytest.approx(share)
    good_usd = cost.usd_per_success(r.usd_per_gpu_hour, share * n / took_s) * 1e3
    assert float(r.here.usd_good[0]) == pytest.approx(good_usd)
    assert rounded(good_usd) in shell.sentence


def test_prices_are_rows_of_the_table_with_their_day() -> None:
    with open(DATA / "prices.csv", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu"] == "H100-80GB-SXM"]
    usd = sorted(float(row["usd_per_gpu_hour"]) for row in rows)
    for seller, expected in (("cheapest", usd[0]), ("dearest", usd[-1])):
        r = token_cost.result(token_cost.state(seller=seller))
        assert r.usd_per_gpu_hour == expected
    words = token_cost.narrate(token_cost.result(token_cost.state(seller="middle")))
    assert any(f"({row['seller']} {row['offer']}" in words for row in rows)


def test_another_seller_moves_the_price_and_not_the_batch() -> None:
    chat, other = (
        token_cost.result(token_cost.state(name))
        for name in ("Chat with a TPOT promise", "Same card, another seller")
    )
    ratio = other.usd_per_gpu_hour / chat.usd_per_gpu_hour
    assert ratio > 2
    np.testing.assert_allclose(other.chosen.usd, ratio * chat.chosen.usd)
    assert other.chosen.inside == chat.chosen.inside


def test_offline_and_online_have_different_best_batches() -> None:
    chat, night = (
        token_cost.result(token_cost.state(name))
        for name in ("Chat with a TPOT promise", "Offline batch")
    )
    assert night.chosen.inside > 2 * chat.chosen.inside
    assert night.chosen.inside_usd < chat.chosen.inside_usd


def test_one_card_just_holds_the_large_model() -> None:
    """What the story of the four layouts says: copies of the weights leave hardly any cache."""
    r = token_cost.result(token_cost.state("One of eight, two of four, eight of one"))
    layouts = {layout.name: layout for layout in r.layouts}
    assert set(layouts) == set(LAYOUTS) - {"one card"}
    each = layouts["eight of one"].most / 8
    assert 1 <= each < 30
    assert layouts["one of eight"].most > 10 * layouts["eight of one"].most
    kept = [x.inside_usd for x in r.layouts if x.keeps_promise]
    best = next(x for x in r.layouts if x.inside_usd == min(kept))
    assert best.name in ("four of two", "two of four")
    assert f"inside the promise: {best.name} {rounded(best.inside_usd)}" in token_cost.narrate(r)


def test_a_good_answer_gets_dearer_where_tokens_are_cheapest() -> None:
    r = token_cost.result(token_cost.state("Cost per success"))
    cheapest = int(np.nanargmin(r.curve.usd_good))
    assert r.curve.load[cheapest] <= 1.0
    assert float(r.here.usd_good[0]) > 1.5 * float(np.nanmin(r.curve.usd_good))
    assert float(r.here.usd_all[0]) < 1.05 * float(r.curve.usd_all.min())


def test_what_does_not_fit_is_said_with_its_size() -> None:
    state = token_cost.state(
        model=("Llama-3.1-70B", "fp8"), gpu="A100-80GB-SXM", layout="eight of one"
    )
    r = token_cost.result(state)
    assert r.chosen is None
    assert "in bf16" in r.server
    assert "131 GiB of weights, 79 GiB of memory" in token_cost.narrate(r)
    assert token_cost.prediction is not None
    assert token_cost.prediction.answer(r) is None
