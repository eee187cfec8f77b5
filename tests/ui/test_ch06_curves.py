"""What the load curves of notebook 06 draw and say, against the engine run here by hand and knees
worked out by other ways. A knee drawn in the wrong place would have somebody buy too few servers.
"""

from __future__ import annotations

import csv
import math
import re
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from course.explore.ch06.ramp import BASE, RampParameters, ramp
from course.explore.ch06.servers import (
    CHAT,
    MOST_OUTPUT_TOKENS,
    MOST_PROMPT_TOKENS,
    SERVERS,
    TRACES,
    TraceTraffic,
    mean_tokens,
    step_cost,
)
from course.explore.ch06.which_knee import H100, MEASURED, RISING, TWO_GPUS, which_knee
from course.paths import DATA
from course.serving import catalog
from course.serving.engine import EngineConfig, simulate
from course.serving.load.measured import catalogue_sweeps
from course.serving.pricing.linear import RooflineStepCost
from course.serving.workload import Workload
from course.ui.parameters import controls_of
from course.ui.shell import show
from course.words import percent, rounded, seconds
from tests.ui.pictures import presets_of, xy

pytestmark = pytest.mark.slow


# --- servers and requests ------------------------------------------------------------------------


def test_every_server_on_offer_holds_its_model_and_the_longest_request_in_a_tenth_of_its_kv() -> (
    None
):
    for server in SERVERS.values():
        cost = step_cost(*server)
        assert cost is not None
        assert cost.kv_blocks(16) // 10 * 16 > MOST_PROMPT_TOKENS + MOST_OUTPUT_TOKENS


def test_a_stretched_trace_keeps_its_luck_and_gets_its_mean() -> None:
    """A slider that also changed the luck would show differences that lengths do not make."""
    plain, longer = (
        TraceTraffic(CHAT, prompt_tokens=tokens).draw(4000, seed=3) for tokens in (1000, 2000)
    )
    np.testing.assert_array_equal(plain.arrival_s, longer.arrival_s)
    np.testing.assert_array_equal(plain.output_tokens, longer.output_tokens)
    free = longer.prompt_tokens < MOST_PROMPT_TOKENS
    assert np.abs(longer.prompt_tokens - 2 * plain.prompt_tokens)[free].max() <= 1
    assert longer.mean_prompt_tokens == pytest.approx(2000, rel=0.05)


def test_default_lengths_are_the_traces_own() -> None:
    assert round(mean_tokens(CHAT, "prompt")) == BASE.prompt_tokens
    assert round(mean_tokens(CHAT, "output")) == BASE.output_tokens
    for trace in TRACES.values():
        assert catalog.length_statistics(trace, "prompt").mean_tokens > 0


# --- ramp ----------------------------------------------------------------------------------------


def own_run(p: RampParameters, load_per_s: float) -> Any:
    """One load of the explorer's server, put together here from the settings as they are read."""
    model, gpu, n_gpus, precision = SERVERS[p.server]
    cost = RooflineStepCost(model, gpu, n_gpus, precision)
    config = EngineConfig(
        max_num_seqs=p.seats,
        max_num_batched_tokens=p.budget if p.chunked else max(p.budget, 16_384),
        enable_chunked_prefill=p.chunked,
        num_kv_blocks=cost.kv_blocks() * p.kv_percent // 100,
    )
    work = TraceTraffic(p.lengths, p.prompt_tokens, p.output_tokens).draw(1200, p.seed)
    gaps_s = (work.arrival_s[-1] - work.arrival_s[0]) / 1199 * load_per_s
    slowed = Workload(work.arrival_s / gaps_s, work.prompt_tokens, work.output_tokens)
    return simulate(slowed, cost, config, progress=False)


@presets_of(ramp)
def test_the_ramp_draws_what_the_engine_does(opened: Any, preset: str) -> None:
    """Only where the whole run is as good as its steady part: at the lowest load of the curve."""
    shell = opened(ramp, preset)
    r, p = shell.result, shell.parameters
    run = own_run(p, float(r.curve.load_per_s[0]))
    middle = slice(120, 1080)
    load, tokens = xy(shell.drawing.curves[0])
    finished = np.sort(run.finish_s)[middle]
    assert (finished.size - 1) / (finished[-1] - finished[0]) == pytest.approx(load[0], rel=0.05)
    per_request = run.emitted_tokens.mean()
    assert tokens[0] == pytest.approx(load[0] * per_request, rel=0.08)
    _, ttft_s = xy(shell.drawing.curves[1])
    assert ttft_s[0] == pytest.approx(np.quantile(run.ttft_s[middle], 0.99), rel=0.15)
    _, tpot_ms = xy(shell.drawing.curves[2])
    assert tpot_ms[0] == pytest.approx(1e3 * np.quantile(run.tpot_s[middle], 0.99), rel=0.15)


@presets_of(ramp)
def test_below_the_knee_all_that_come_are_served_and_above_it_no_more_than_can_be(
    opened: Any, preset: str
) -> None:
    curve = opened(ramp, preset).result.curve
    load, done = curve.load_per_s, curve.requests_per_s
    assert np.all(done < 1.06 * load)
    assert done[1] == pytest.approx(load[1], rel=0.05)
    most = load[-1] / 1.5  # the grid ends at one and a half times what the server can do
    assert done[-1] == pytest.approx(most, rel=0.07)
    assert np.all(curve.good_per_s <= done + 1e-9)
    assert np.all(np.diff(curve.ttft_p99_s[-3:]) > 0), "overloaded, the wait grows with the load"
    assert curve.ttft_p99_s[-1] > 10 * curve.ttft_p99_s[2]
    assert curve.attainment[0] > 0.99 > curve.attainment[-1]


@presets_of(ramp)
def test_the_green_bar_ends_where_99_per_cent_keep_both_limits(opened: Any, preset: str) -> None:
    shell = opened(ramp, preset)
    r, picture = shell.result, shell.drawing
    load, kept = xy(picture.curves[4])
    held = r.held_per_s
    broken = int((kept < 99).argmax())
    assert load[broken - 1] <= held <= load[broken]
    assert np.interp(held, load, kept) == pytest.approx(99, abs=1e-6)
    x, y = picture.held.artist.get_data()
    ends = np.column_stack([x, y])[1::3]
    for panel, end in zip(picture.panels, ends, strict=True):
        to_figure = picture.figure.transFigure.transform(end)
        assert panel.transData.inverted().transform(to_figure)[0] == pytest.approx(held)


@presets_of(ramp)
def test_the_ramps_sentence_says_what_is_drawn(opened: Any, preset: str) -> None:
    shell = opened(ramp, preset)
    picture, words, r = shell.drawing, shell.sentence, shell.result
    assert f"at {shell.parameters.load_per_s:g} requests/s" in words
    tokens = float(r.here.output_tokens_per_s[0])
    assert f"makes {rounded(tokens)} tokens/s" in words
    spoken = [text.get_text() for text in picture.words]
    assert spoken[0] == f"{rounded(tokens)}/s"
    assert f"P99 TTFT is {spoken[1]}" in words
    assert f"P99 TPOT {spoken[2]}" in words
    assert f"{spoken[4]} of the requests keep the SLO" in words
    assert f"the KV cache is {spoken[5]} full" in words
    most = float(xy(picture.curves[0])[1].max())
    assert f"The most it shows is {rounded(most)} tokens/s" in words
    assert f"holds up to {rounded(r.held_per_s)} requests/s" in words
    assert ("In grey" in words) == (r.beside is not None)


def test_the_readers_load_lies_on_the_curve(opened: Any) -> None:
    """It is a run of its own with the same requests: it may not stand beside the line."""
    shell = opened(ramp)
    for load_per_s in (6.0, 12.0, 18.0):
        shell.set_state(load_per_s=load_per_s)
        r = shell.result
        near = np.interp(load_per_s, r.curve.load_per_s, r.curve.output_tokens_per_s)
        assert float(r.here.output_tokens_per_s[0]) == pytest.approx(near, rel=0.05)


def test_what_is_said_of_a_load_and_the_knee_agree(opened: Any) -> None:
    """“Holds up to 19.0” beside “99.4 % keep it at 19.5” would make the definition a riddle."""
    shell = opened(ramp)
    for load_per_s in (18.0, 18.5, 19.0, 19.5, 20.0, 20.5):
        shell.set_state(load_per_s=load_per_s)
        r = shell.result
        assert (float(r.here.attainment[0]) >= 0.99) == (load_per_s <= r.held_per_s)
        assert load_per_s in r.curve.load_per_s
        assert r.held_per_s == pytest.approx(19.6, abs=0.05), "one load more moves it little"


def test_a_new_promise_runs_the_sweeps_loads_not_again(opened: Any) -> None:
    """Another promise breaks elsewhere, and only there one load is added."""
    shell = opened(ramp)
    before = shell.result.curve
    shell.set_state(ttft_limit_s=0.3)
    after = shell.result.curve
    same = np.isin(before.load_per_s, after.load_per_s)
    assert same.sum() == before.load_per_s.size - 1 == 10
    kept = np.isin(after.load_per_s, before.load_per_s)
    np.testing.assert_array_equal(after.ttft_p99_s[kept], before.ttft_p99_s[same])
    assert shell.result.held_per_s < 19


def test_the_ramps_stories(opened: Any) -> None:
    """What the presets and their questions take for granted."""
    found = {p.name: opened(ramp, p.name).result for p in ramp.presets}
    chat, documents = found["Chat on an H100"], found["Long documents"]
    assert 18 < chat.held_per_s < 21
    assert chat.beside is None
    assert documents.prompt_tokens / chat.prompt_tokens > 5
    assert documents.held_per_s < chat.held_per_s / 6, "the knee moves further than the lengths"
    short = found["Short-prompt peak"]
    assert short.most_tokens_per_s > 4 * chat.most_tokens_per_s
    less = found["Less memory for KV"]
    assert less.held_per_s < chat.held_per_s / 2
    assert less.here.preemptions[0] > 0
    assert less.kv_tokens == pytest.approx(chat.kv_tokens / 10, rel=0.01)
    other = found["Another schedule"]
    beside = opened(ramp, load_per_s=other.load_per_s).result
    assert other.here.ttft_p99_s[0] < beside.here.ttft_p99_s[0], "first tokens come sooner"
    assert other.here.tpot_p99_s[0] > beside.here.tpot_p99_s[0]
    assert other.held_per_s < chat.held_per_s
    assert "raised to 16,384 tokens" in opened(ramp, "Another schedule").sentence


def test_no_load_inside_the_promise_is_said(opened: Any) -> None:
    words = opened(ramp, tpot_limit_ms=5.0).sentence
    assert "no load that was run keeps the SLO" in words


@presets_of(ramp)
def test_no_limit_runs_through_the_words_of_a_load(opened: Any, preset: str) -> None:
    shell = opened(ramp, preset)
    picture, r = shell.drawing, shell.result
    renderer = FigureCanvasAgg(picture.figure).get_renderer()
    for panel, limit in ((1, r.ttft_limit_s), (2, 1e3 * r.tpot_limit_s)):
        box = picture.words[panel].get_window_extent(renderer)
        height = picture.panels[panel].transData.transform((0, limit))[1]
        assert not box.y0 < height < box.y1


# --- which knee ----------------------------------------------------------------------------------


def test_the_measured_curves_on_offer_are_those_of_the_catalogue() -> None:
    assert set(MEASURED) == {sweep.name for sweep in catalogue_sweeps()}
    control = controls_of(which_knee.parameters)["curve"]
    assert len({words for words, _ in control.options}) == 1 + len(MEASURED)
    assert max(len(words) for words, _ in control.options) <= 41, "or the list cuts them"


def by_hand() -> dict[str, dict[str, str]]:
    with open(DATA / "knees.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    found = {}
    for name in MEASURED:
        for row in rows:
            lengths = f"{row['prompt_tokens']} tokens in and {row['output_tokens']} out"
            head = f"{row['model']} in {row['precision']}"
            if name.startswith(head) and lengths in name and row["source"] in name:
                found[name] = row
    assert len(found) == len(MEASURED)
    return found


@pytest.mark.parametrize("name", MEASURED)
def test_measured_knees_are_those_computed_by_hand(opened: Any, name: str) -> None:
    row = by_hand()[name]
    ttft_s = 1.0 if "mean TTFT <= 1 s" in row["slo"] else 2.0
    shell = opened(which_knee, curve=name, ttft_limit_s=ttft_s, token_limit_ms=50.0)
    r = shell.result
    for answer, column in ((r.plateau, "plateau_knee_users"), (r.slo, "slo_knee_users")):
        if column == "slo_knee_users" and not row["slo"]:
            continue
        if row[column]:
            assert answer.load == pytest.approx(float(row[column]), abs=0.006)
        else:
            assert answer.load is None
            assert answer.why_not
    if row["plateau_output_tokens_per_s"]:
        _, level = xy(shell.drawing.level)
        assert level[0] == pytest.approx(0.9 * float(row["plateau_output_tokens_per_s"]), rel=1e-4)


@presets_of(which_knee)
def test_knees_are_drawn_where_the_sentence_says(opened: Any, preset: str) -> None:
    shell = opened(which_knee, preset)
    r, picture, words = shell.result, shell.drawing, shell.sentence
    rows = (
        ("By the SLO", r.slo),
        ("by the plateau", r.plateau),
        ("by two straight", r.two_segments),
    )
    for index, (head, answer) in enumerate(rows):
        marked, _ = xy(picture.marks[index])
        part = words[words.index(head) :]
        if answer.load is None:
            assert marked.size == 0
            assert f"no knee: {answer.why_not}" in picture.words[index].get_text()
            assert f"there is no knee ({answer.why_not})" in re.split(r"[;.] ", part)[0]
            continue
        assert marked.tolist() == [answer.load]
        for line in picture.knees[index]:
            assert xy(line)[0].tolist() == [answer.load] * 2
        stated = re.search(r"the knee is at ([\d.,]+)", part)
        assert stated is not None
        assert float(stated[1].replace(",", "")) == pytest.approx(answer.load, rel=0.005)


@presets_of(which_knee)
def test_two_pieces_are_the_best_that_there_are(opened: Any, preset: str) -> None:
    """Against every bend of a fine grid, each fitted by numpy's least squares."""
    shell = opened(which_knee, preset)
    r = shell.result
    if r.two_segments.load is None:
        assert xy(shell.drawing.stick)[0].size == 0
        return
    x, y = r.loads[r.used], r.throughput[:, r.used].mean(axis=0)

    def fitted(bend: float) -> tuple[float, np.ndarray]:
        columns = np.stack([np.ones_like(x), x, np.maximum(x - bend, 0)], axis=1)
        weights = np.linalg.lstsq(columns, y, rcond=None)[0]
        return float(((columns @ weights - y) ** 2).sum()), weights

    bends = np.linspace(x[1], x[-2], 2000)
    least = min(fitted(bend)[0] for bend in bends)
    found, weights = fitted(r.two_segments.load)
    assert found <= least * (1 + 1e-9)
    corner_x, corner_y = xy(shell.drawing.stick)
    assert corner_x[1] == pytest.approx(r.two_segments.load)
    expected = (
        weights[0] + weights[1] * corner_x + weights[2] * np.maximum(corner_x - corner_x[1], 0)
    )
    np.testing.assert_allclose(corner_y, expected, rtol=1e-6)


def test_five_runs_give_every_knee_of_the_chat_an_interval(opened: Any) -> None:
    shell = opened(which_knee, "Simulated chat")
    r = shell.result
    for answer, band in zip((r.slo, r.plateau, r.two_segments), shell.drawing.bands, strict=True):
        low, high = answer.band
        assert low < answer.load < high
        assert xy(band)[0].tolist() == [low, high]
    assert shell.sentence.count("95\u00a0% interval") == 3
    assert r.slo.load < r.plateau.load - 3, "three methods, three loads"
    once = opened(which_knee, "Simulated chat", runs=1)
    assert once.result.slo.band is None
    assert "that takes five runs of each load" in once.sentence


def test_a_measured_sweep_was_run_once_and_offers_no_more_runs(opened: Any) -> None:
    """A slider that does nothing beside “that takes five runs” sends somebody to the slider."""
    shell = opened(which_knee, "Measured: H100, Qwen3-8B")
    assert "The sweep was run once, so no knee has an interval." in shell.sentence
    assert which_knee.idle(shell.parameters) == ("runs",)
    assert shell.result.runs == 1
    assert not which_knee.idle(opened(which_knee).parameters)


@presets_of(which_knee)
@pytest.mark.parametrize("present", [False, True])
def test_no_knee_and_no_curve_runs_through_a_limits_words(preset: str, present: bool) -> None:
    shell = show(which_knee, preset, predict=False, present=present)
    picture = shell.drawing
    renderer = FigureCanvasAgg(picture.figure).get_renderer()
    for text, curve, panel in zip(picture.limit_words, picture.latencies, (1, 2), strict=True):
        box = text.get_window_extent(renderer)
        lines = [curve, *(knees[panel] for knees in picture.knees)]
        for line in lines:
            path = line.get_transform().transform_path(line.get_path())
            assert not (len(path.vertices) and path.intersects_bbox(box, filled=False))
    shell.close()


def test_the_plateaus_price_is_named(opened: Any) -> None:
    """Why nobody should plan with the plateau: what its users wait there."""
    r = opened(which_knee, "Measured: H100, Qwen3-8B").result
    sweep = next(s for s in catalogue_sweeps() if s.name == H100)
    ttft_s = float(np.interp(r.plateau.load, sweep.loads, sweep.latencies["P99 TTFT"][0]))
    assert ttft_s > 2.5 * 2.0
    words = opened(which_knee, "Measured: H100, Qwen3-8B").sentence
    assert f"a P99 TTFT of {seconds(ttft_s)}" in words
    gain = r.plateau.throughput / r.slo.throughput - 1
    assert f"for {percent(round(gain, 2))} more tokens/s" in words
    most = float(r.throughput.max()) / r.slo.throughput
    assert most > 4 / 3, "the story says that the throughput still climbs by more than a third"


def test_the_measured_stories(opened: Any) -> None:
    two = opened(which_knee, "Measured: Llama-3.3-70B on two GPUs").result
    assert 25 < two.plateau.load < 50
    by_load = dict(zip(two.loads.tolist(), two.throughput[0].tolist(), strict=True))
    assert round(by_load[25.0]) in (564, 565)
    assert [round(by_load[users]) for users in (100.0, 200.0)] == [777, 777]
    assert "mean ITL" in two.slo.sentence, "the pace breaks first"
    assert two.title.startswith("Llama-3.3-70B")
    assert TWO_GPUS in MEASURED
    rising = opened(which_knee, "Never flattens").result
    assert rising.plateau.why_not == rising.two_segments.why_not == "not loaded enough"
    assert rising.slo.load is not None
    assert float(rising.loads[-1]) == 250
    assert RISING in MEASURED


def test_a_sweep_that_begins_too_high_tells_nothing(opened: Any) -> None:
    shell = opened(which_knee, "Saturated at the first point")
    r = shell.result
    for answer in (r.slo, r.plateau, r.two_segments):
        assert answer.why_not == "saturated at the first point"
    assert float(r.loads[r.first]) == 21
    assert xy(shell.drawing.left_out)[0].tolist() == r.loads[: r.first].tolist()
    assert xy(shell.drawing.points)[0].tolist() == r.loads[r.first :].tolist()


def test_one_point_is_always_left(opened: Any) -> None:
    r = opened(which_knee, curve=TWO_GPUS, leave_low=10, leave_high=10).result
    assert r.first == r.last
    assert "too few" in r.plateau.why_not
    assert not math.isnan(r.throughput_at(100.0))
