"""The eleven tools' picture prints what the tools print, and the audit's what the lesson works out
by hand: a wrong figure here would accuse a tool, or a colleague's report, of what is not so."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from course import explore
from course.explore.ch01.littles_audit import littles_audit
from course.explore.ch01.many_tools import FIVE, LIMITS, many_tools
from course.explore.ch01.six_requests import Edits, regrouped, six_requests
from course.explore.ch01.tool_rules import rule_of
from course.figures.ch01.many_tools import METRICS
from course.serving import catalog
from course.serving.requests.conventions import CONVENTIONS, as_reported_by
from course.serving.requests.metrics import summarize
from tests.serving.test_conventions import TABLE, WORKED
from tests.serving.test_conventions import printed as as_in_the_table

pytestmark = pytest.mark.slow

SVG = "{http://www.w3.org/2000/svg}"
COLUMNS = (
    "ttft_mean_s", "ttft_p90_s", "tpot_mean_s", "itl_mean_s", "itl_p50_s", "itl_p99_s",
    "e2e_mean_s", "requests_per_s", "output_tokens_per_s", "goodput_per_s",
)  # fmt: skip


def words_of(svg: str) -> list[str]:
    return [text.text or "" for text in ET.fromstring(svg).iter(f"{SVG}text")]


# --- the six requests ----------------------------------------------------------------------------


def test_the_unchanged_requests_are_the_printed_ones() -> None:
    assert six_requests(Edits()) == WORKED


@pytest.mark.parametrize("size", [1, 2, 4, 8])
def test_regrouping_changes_neither_tokens_nor_the_end(size: int) -> None:
    """The preset says that the server does the very same work."""
    before, after = six_requests(Edits()), six_requests(Edits(tokens_per_chunk=size))
    for one, other in zip(before, after, strict=True):
        assert one.output_tokens == other.output_tokens
        assert one.last_token_s == other.last_token_s
        assert one.end_s == other.end_s
        assert all(k == size for k in other.token_counts[:-1])
        assert all(k <= size for k in other.token_counts[-1:])


def test_tokens_of_a_chunk_are_spread_over_the_gap_before_it() -> None:
    single = regrouped(((500, 1), (600, 2), (800, 4)), 1)
    assert [at for at, _ in single] == [500, 550, 600, 650, 700, 750, 800]


def test_edits_move_what_they_name() -> None:
    d = six_requests(Edits(d_delay_ms=0, d_stall_ms=20))[3]
    assert d.sent_s == d.scheduled_s == 0.3
    assert np.allclose([b - a for a, b in pairwise(d.token_times_s)], 0.02)
    assert six_requests(Edits(e_fails=False))[4].output_tokens == 4
    assert six_requests(Edits(f_answer="one token"))[5].output_tokens == 1
    assert six_requests(Edits(f_answer="one chunk"))[5].token_counts == (8,)
    assert six_requests(Edits(a_last_ms=1900))[0].last_token_s == 1.9


# --- the tools -----------------------------------------------------------------------------------


def test_the_drawn_table_is_the_printed_one() -> None:
    """Every figure that the picture has a column for is the lesson's, in the table's digits."""
    shell = explore.many_tools(all_tools=True, predict=False)
    assert shell.result.stopwatch_s == 1.3
    drawn = [cell for _, _, cell in shell.drawing.figures.cells]
    shown = shell.drawing.at.columns
    rows = [drawn[start : start + len(shown)] for start in range(0, len(drawn), len(shown))]
    assert len(rows) == 12
    for line, row in zip(TABLE.strip().splitlines(), rows, strict=False):
        name, *figures = line.split()
        got = as_reported_by(name, WORKED, duration_s=1.3, slo=LIMITS)
        cells = dict(zip(shown, row, strict=True))
        for field, figure in zip(COLUMNS, figures, strict=True):
            value = getattr(got, field)
            scale = 1000 if field.endswith("_s") and not field.endswith("per_s") else 1
            assert as_in_the_table(None if value is None else scale * value, figure) == figure
            assert cells.get(field, figure) in (figure, figure.removesuffix(".0")), (name, field)
    texts = words_of(shell.svg)
    for cell in drawn:
        assert cell in texts, f"{cell} is not in the SVG as it was meant"
    shell.close()


def test_five_tools_are_shown_first_and_all_by_a_switch() -> None:
    shell = explore.many_tools(predict=False)
    assert [row.tool for row in shell.result.tools] == [CONVENTIONS[name].tool for name in FIVE]
    shell.set_state(all_tools=True)
    assert len(shell.result.tools) == len(CONVENTIONS) == 11
    texts = words_of(shell.svg)
    for row in shell.result.rows:
        assert row.tool in texts
    shell.close()


def test_the_courses_own_row_is_the_metrics_of_the_course() -> None:
    shell = explore.many_tools(d_stall_ms=500.0, predict=False)
    own = shell.result.rows[-1]
    run = summarize(shell.result.requests, LIMITS)
    assert own.ours
    assert own.reported.tpot_mean_s == run.tpot.mean
    assert own.reported.requests_per_s == run.requests_per_s
    assert own.reported.goodput_per_s == run.goodput_per_s
    shell.close()


@pytest.mark.parametrize("metric", METRICS)
def test_bars_are_as_long_as_their_figures(metric: str) -> None:
    shell = explore.many_tools(metric=metric, all_tools=True, predict=False)
    drawing, result = shell.drawing, shell.result
    left, right = drawing.at.bars
    corners = drawing.tool_bars.get_path().vertices.reshape(-1, 5, 2)
    lengths = (corners[:, :, 0].max(axis=1) - left) / (right - left)
    values = [v for row in result.tools if (v := row.value(metric)) is not None]
    assert np.allclose(lengths * drawing.scale, values, rtol=1e-9)
    assert lengths.max() <= 1
    shell.close()


def test_the_guess_stands_at_its_multiple_of_the_smallest_bar() -> None:
    shell = explore.many_tools("The printed six", predict=False)
    factor = many_tools.prediction.answer(shell.result)
    assert factor == pytest.approx(96.0 / 53.5714285, rel=1e-6)
    shell.commit(factor)
    drawing = shell.drawing
    ends = drawing.tool_bars.get_path().vertices[:, 0].max()
    assert drawing.guess_star.get_xdata()[0] == pytest.approx(ends)
    shell.close()


def test_dots_are_the_chunks() -> None:
    shell = explore.many_tools(tokens_per_chunk=4, predict=False)
    wanted = [(1000 * at, i) for i, r in enumerate(shell.result.requests) for at, _ in r.chunks]
    assert np.allclose(shell.drawing.chunks.get_offsets(), wanted)
    sizes = [cell for _, _, cell in shell.drawing.sizes.cells]
    assert sizes == [str(k) for r in shell.result.requests for _, k in r.chunks if k > 1]
    shell.close()


def sentences() -> dict[str, str]:
    found = {}
    for preset in many_tools.presets:
        shell = explore.many_tools(preset.name, predict=False)
        found[preset.name] = shell.sentence.replace("\u00a0", " ")
        shell.close()
    return found


def test_presets_show_what_they_promise() -> None:
    """A question for the room whose answer is not in the picture would embarrass a lecturer."""
    said = sentences()
    assert "from 53.57 ms (vLLM 0.33) to 96 ms (GuideLLM 0.8.1)" in said["The printed six"]
    assert "No mean TPOT: AIPerf 0.13, llmperf" in said["The printed six"]
    single = explore.many_tools("Everything one token a chunk", predict=False).result
    itl = [row.printed("itl_mean_s") for row in single.tools]
    assert itl[0] == itl[1] == itl[2], "three tools agree"
    assert len({*itl}) == 3, "the other two do not"
    fours = explore.many_tools("Chunks of four", predict=False).result
    for one, other in zip(single.rows, fours.rows, strict=True):
        assert one.value("e2e_mean_s") == pytest.approx(other.value("e2e_mean_s"))
        assert other.value("ttft_mean_s") > one.value("ttft_mean_s")
    failed = explore.many_tools("A failed request", predict=False).result
    assert failed.largest.tool == "GenAI-Perf"
    slow = explore.many_tools("A slow client", predict=False).result
    usual = explore.many_tools("The printed six", all_tools=True, predict=False).result
    moved = [
        row.tool
        for row, before in zip(slow.tools, usual.tools, strict=True)
        if row.printed("ttft_mean_s") != before.printed("ttft_mean_s")
    ]
    assert moved == ["MLPerf server"]
    drain = explore.many_tools("Ramp and drain", predict=False).result
    for row, before in zip(drain.tools, usual.tools, strict=True):
        fell = row.value("requests_per_s") < before.value("requests_per_s")
        # MLPerf's window ends with the request that was scheduled last, which is not A
        assert fell is (row.tool != "MLPerf server"), row.tool
    one_token = explore.many_tools("One-token answers", predict=False).result
    yes = [row.tool for row in one_token.tools if (row.value("goodput_per_s") or 0) > 2]
    assert yes == ["vLLM 0.33", "vLLM 0.6.6", "SGLang native", "SGLang OpenAI"]


def test_every_rule_that_is_said_is_there() -> None:
    for name in CONVENTIONS:
        for metric in METRICS:
            assert "{" not in rule_of(name, metric)


RULES = {
    # tool, metric -> what the rule makes of the six requests, worked out from its words
    ("guidellm", "tpot_mean_s"): (400 + 700 + 250 + 850 + 200) / 25,
    ("llmperf", "itl_mean_s"): (400 / 6 + 700 / 4 + 250 / 2 + 850 / 6 + 200 / 3) / 5,
    ("hf", "itl_mean_s"): (200 / 4 + 300 / 5 + 0 + 360 / 4 + 100 / 7) / 5,
    ("mlperf", "tpot_mean_s"): (200 / 4 + 300 / 5 + 0 + 360 / 4 + 100 / 7) / 5,
    ("aiperf", "itl_mean_s"): (200 / 4 + 300 / 5 + 360 / 4 + 100 / 7) / 4,
}


@pytest.mark.parametrize(("tool", "metric"), RULES)
def test_the_rules_words_lead_to_the_printed_figure(tool: str, metric: str) -> None:
    got = getattr(as_reported_by(tool, WORKED, duration_s=1.3, slo=LIMITS), metric)
    assert 1000 * got == pytest.approx(RULES[tool, metric])


@pytest.mark.parametrize("present", [False, True])
def test_no_cell_leaves_the_table(present: bool) -> None:
    """The cells are drawn as one artist, which the general test of words does not see."""
    for preset in many_tools.presets:
        shell = explore.many_tools(preset.name, predict=False, present=present, all_tools=True)
        drawing = shell.drawing
        canvas = FigureCanvasAgg(drawing.figure)
        canvas.draw()
        renderer = canvas.get_renderer()
        look = drawing.figures.look
        right_of: dict[float, float] = {}
        for x, y, words in drawing.figures.cells:
            wide = renderer.get_text_width_height_descent(words, look.get_fontproperties(), False)[
                0
            ]
            assert x - wide > right_of.get(y, 0.0), f"{preset.name}: {words} runs into the left"
            right_of[y] = x
            assert 0 < y < drawing.at.height
        first = drawing.at.right_of(0) - drawing.at.pitch_x
        names = [t for texts in drawing.names.values() for t in texts if t.get_visible()]
        assert len(names) == len(shell.result.rows)
        for text in names:
            assert text.get_window_extent(renderer).x1 < first + 6, text.get_text()
        shell.close()


# --- the audit -----------------------------------------------------------------------------------


def test_the_a10g_report_by_hand() -> None:
    """The worked answer of the lesson, from the printed lines and a pencil."""
    shell = explore.littles_audit("The A10G report", predict=False)
    r = shell.result
    assert r.requests_per_s == pytest.approx(5.67, abs=0.005)
    assert (r.running, r.waiting) == (8, 42)
    assert r.mean_wait_s == pytest.approx(7.4, abs=0.05)
    assert r.needed_tpot_s == pytest.approx(0.0094, abs=5e-5)
    assert r.tpot_p95_s / r.needed_tpot_s == pytest.approx(9, abs=0.1), "a ninth of the P95"
    assert r.step_floor_s >= 0.022
    assert r.most_tokens_per_s == pytest.approx(360, abs=5)
    assert not r.wait_fits
    assert not r.rate_fits
    assert r.pace_fits, "a percentile alone bounds nothing"
    sentence = shell.sentence
    assert sentence.startswith("These figures cannot all belong to one run.")
    for figure in ("5.67 requests/s", "42 of them wait", "7.41 s", "1.20 s", "9.41 ms", "356 tok"):
        assert figure in sentence, figure
    # 19 in 20 wait at most 1.2 s; for a mean of 7.41 s the others must make up the rest
    assert 0.95 * 1.2 + 0.05 * r.slowest_wait_s == pytest.approx(r.mean_wait_s)
    assert littles_audit.prediction.answer(r) == r.mean_wait_s
    shell.close()


def test_all_fifty_at_once_would_fit() -> None:
    shell = explore.littles_audit("All fifty run", predict=False)
    r = shell.result
    assert r.fits
    assert r.time_in_system_s == pytest.approx(8.8, abs=0.05)
    assert r.needed_tpot_low_s is not None
    assert r.needed_tpot_low_s < 0.054 < r.needed_tpot_s, "about 54 ms"
    before = explore.littles_audit("The A10G report", predict=False)
    changed = {
        name
        for name in vars(before.parameters)
        if getattr(before.parameters, name) != getattr(shell.parameters, name)
    }
    assert changed == {"seats"}, "the only line that changed"


def test_thirty_alone_and_eighty_at_batch_eight() -> None:
    shell = explore.littles_audit("30 ms alone, 80 ms at batch 8", predict=False)
    r = shell.result
    assert r.output_tokens_per_s * r.lone_tpot_s == pytest.approx(3.0)
    assert r.needed_tpot_s / r.lone_tpot_s == pytest.approx(80 / 30)
    assert 1 / r.lone_tpot_s == pytest.approx(33.3, abs=0.05)
    assert r.step_floor_s < r.lone_tpot_s, "the weights fit into the lone step"
    assert "3.00 times as much, in steps 2.67 times as long" in shell.sentence
    shell.close()


def test_the_honest_report_is_a_measured_one() -> None:
    p = littles_audit.state("An honest report")
    points = catalog.measured_points(
        gpu="H100-80GB-SXM", model="Qwen3-8B", precision="bf16", n_gpus=1, load="closed loop",
        prompt_tokens=2048, output_tokens=2048,
    )  # fmt: skip
    (point,) = [point for point in points if point.concurrency == 32]
    assert p.output_tokens_per_s == pytest.approx(point.output_tokens_per_s, rel=0.002)
    assert p.ttft_p95_s == pytest.approx(point.ttft_s, rel=0.01)
    assert point.ttft_stat == "p95"
    assert p.tpot_p95_ms / 1000 == pytest.approx(point.tpot_p95_s, rel=0.005)
    assert p.bandwidth_gb_per_s * 1e9 == catalog.gpu("H100-80GB-SXM").bandwidth_bytes_per_s
    assert p.weights_gb * 1e9 == pytest.approx(catalog.model("Qwen3-8B").weight_bytes(), rel=0.01)
    r = littles_audit.result(p)
    assert r.fits
    # and what follows is near what was measured
    assert r.needed_tpot_low_s <= 1.02 * point.tpot_s <= r.needed_tpot_s


def test_the_output_length_trap() -> None:
    short = littles_audit.result(littles_audit.state("Answers of 100 tokens"))
    long = littles_audit.result(littles_audit.state("The output-length trap"))
    assert short.fits
    assert long.fits
    assert long.output_tokens_per_s / short.output_tokens_per_s == pytest.approx(1.17, abs=0.005)
    assert long.requests_per_s < short.requests_per_s / 4
    # the same server: a first token after 0.5 s, then one every 20 ms
    for r in (short, long):
        took_s = 0.5 + 0.020 * (r.mean_output_tokens - 1)
        assert r.time_in_system_s == pytest.approx(took_s, rel=0.01)


def test_littles_law_holds_in_every_state() -> None:
    """L = X·W for the whole, for the queue and for the seats."""
    rng = np.random.default_rng(5)
    for _ in range(200):
        r = littles_audit.result(
            littles_audit.state(
                users=int(rng.integers(1, 257)),
                seats=int(rng.integers(1, 257)),
                output_tokens_per_s=float(rng.uniform(10, 5000)),
                mean_output_tokens=int(rng.integers(10, 2500)),
            )
        )
        seated_s = r.needed_tpot_s * r.mean_output_tokens
        assert r.requests_per_s * r.time_in_system_s == pytest.approx(r.users)
        assert r.mean_wait_s + seated_s == pytest.approx(r.time_in_system_s)
        assert r.requests_per_s * seated_s == pytest.approx(r.running)


def test_bars_of_the_audit_are_its_figures() -> None:
    shell = explore.littles_audit("The A10G report", predict=False)
    drawing, r = shell.drawing, shell.result
    at = drawing.at

    def share(key: str) -> float:
        return (drawing.bars[key].get_path().vertices[:, 0].max() - at.bars) / (at.right - at.bars)

    assert share("users") == pytest.approx(8 / 50)
    assert share("wait") / share("ttft") == pytest.approx(r.mean_wait_s / 1.2)
    assert share("needed") / share("tpot") == pytest.approx(r.needed_tpot_s / 0.085)
    assert share("rate") / share("most") == pytest.approx(850 / r.most_tokens_per_s)
    texts = words_of(shell.svg)
    assert "8 in seats, 42 waiting" in texts
    assert texts.count("✗ does not fit") == 2
    assert texts.count("✓ fits") == 1
    shell.commit(r.mean_wait_s)
    bar = drawing.bars["wait"].get_path().vertices[:, 0].max()
    assert drawing.guess.get_xdata()[0] == pytest.approx(bar)
    shell.close()


def test_the_stories_numbers_are_the_settings() -> None:
    for explorer in (many_tools, littles_audit):
        for preset in explorer.presets:
            sentence = explorer.narrate(explorer.result(explorer.state(preset.name)))
            assert not re.search(r"\b1 users\b|\b1 seats\b|  ", sentence), sentence
