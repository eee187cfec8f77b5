"""Notebook 00's pictures say what can be worked out by hand, and its prose what they show."""

from __future__ import annotations

import re

import nbformat
import numpy as np
import pytest

from course import explore
from course.explore.ch00 import tension as tension_module
from course.explore.ch00.tension import TensionParameters, tension
from course.paths import NOTEBOOKS
from course.serving.engine import simulate_closed
from course.serving.pricing.linear import RooflineStepCost, StepFeatures
from course.serving.workload import Workload

COST = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")


def prefill_s(tokens: int, done: int = 0) -> float:
    """One prefill step by hand: each token also looks at all that came before it."""
    pairs = tokens * done + tokens * (tokens + 1) / 2
    return COST.step_seconds(StepFeatures(tokens, int(pairs), 0, 0))


def decode_s(context: int) -> float:
    return COST.step_seconds(StepFeatures(0, 0, 1, context))


def test_one_request_by_hand() -> None:
    """Whoever adds up the boxes with a pencil must get the sentence."""
    shell = explore.one_request("A page in, a paragraph out", predict=False)
    r = shell.result
    assert r.ttft_s == pytest.approx(prefill_s(2000), rel=1e-12)
    steps = [decode_s(2000 + emitted) for emitted in range(1, 60)]
    assert r.e2e_s == pytest.approx(r.ttft_s + sum(steps), rel=1e-12)
    assert r.tpot_s == pytest.approx(sum(steps) / 59, rel=1e-12)
    assert r.kv_tokens[-1] == 2000 + 59, "the last token is never read back"
    assert "270 MB" in shell.sentence
    shell.close()


def test_chunks_of_a_long_prompt_by_hand() -> None:
    shell = explore.one_request("A whole book chapter", predict=False)
    r = shell.result
    chunks = [2048] * 7 + [16_000 - 7 * 2048]
    ends = np.cumsum([prefill_s(c, 2048 * i) for i, c in enumerate(chunks)])
    assert r.prefill_steps == 8
    assert r.ttft_s == pytest.approx(ends[-1], rel=1e-12)
    widths = np.diff(np.concatenate([[0], ends]))
    assert np.all(np.diff(widths[:7]) > 0), "the preset says that chunks grow"
    shell.close()


def test_boxes_of_the_picture_are_the_steps() -> None:
    shell = explore.one_request(prompt_tokens=992, output_tokens=5, predict=False)
    drawing = shell.drawing
    corners = drawing.decode.get_path().vertices.reshape(-1, 5, 2)
    starts = corners[:, :, 0].min(axis=1)
    assert starts == pytest.approx(shell.result.step_start_s[1:].tolist())
    shell.close()


def test_one_user_alone_by_hand() -> None:
    """The left end of every curve of the tension picture."""
    cost = RooflineStepCost("Qwen3-8B", "H100-80GB-SXM")
    r = tension.result(TensionParameters(users=1, lengths=(128, 128)))
    ttft = cost.step_seconds(StepFeatures(128, 128 * 129 // 2, 0, 0))
    decode = sum(cost.step_seconds(StepFeatures(0, 0, 1, 128 + k)) for k in range(1, 128))
    assert r.ttft_p95_s == pytest.approx(ttft, rel=1e-9)
    assert r.tpot_p95_s == pytest.approx(decode / 127, rel=1e-9)
    assert r.tokens_per_s == pytest.approx(128 / (ttft + decode), rel=1e-9)


def test_littles_law_holds_at_every_load() -> None:
    """Users without think time are always inside: N = X · E2E, but for a window's cut rounds."""
    for users in (4, 40, 128):
        level = tension_module.level_of(users, (2048, 2048))
        e2e = level.ttft_s + 2047 * level.tpot_s
        assert level.finished_per_s * e2e.mean() == pytest.approx(users, rel=0.12)


def test_the_first_wave_is_cut_off_or_counted() -> None:
    """Its queue is no steady state: counted, it moves the promise from 88 users to 48."""
    lengths = (2048, 2048)
    steady = tension_module.level_of(64, lengths)
    counted = tension_module.level_of(64, lengths, first_wave=True)
    run = tension_module.run_of(64, lengths, first_wave=True)
    assert len(run) == 5 * 64 == counted.ttft_s.size
    assert counted.ttft_s.max() == run.ttft_s[:64].max(), (
        "the longest wait is one of the first wave's"
    )
    assert steady.ttft_s.max() < 0.5 < 2 < counted.ttft_s.max()
    assert counted.tokens_per_s == pytest.approx(len(run) * 2048 / run.finish_s.max())
    assert steady.tokens_per_s == pytest.approx(counted.tokens_per_s, rel=0.01)
    held = tension.result(tension.state("The first wave counts")).held_users
    assert held == 48
    assert "good only up to 48 users" in prose()


def test_twelve_rounds_hold_to_the_same_load() -> None:
    """If six rounds were too few, the rule would end elsewhere in a longer run."""
    work = Workload(np.zeros(12 * 88), np.full(12 * 88, 2048), np.full(12 * 88, 2048))
    config = tension_module.run_of(88, (2048, 2048)).config
    for users, good in ((88, True), (96, False)):
        run = simulate_closed(
            users, 0.0, work, RooflineStepCost("Qwen3-8B", "H100-80GB-SXM"), config, progress=False
        )
        window = run.steady_state()
        sent = (run.arrival_s >= window.start_s) & (run.arrival_s < window.end_s)
        kept = (run.ttft_s <= 2) & (run.tpot_s <= 0.025)
        assert bool(kept[sent].mean() >= 0.95) is good


@pytest.mark.parametrize("preset", [p.name for p in tension.presets])
def test_the_green_bar_is_the_rule(preset: str) -> None:
    p = tension.state(preset)
    r = tension.result(p)
    shares = {
        u: tension_module.level_of(u, p.lengths, p.first_wave).good_share(p)
        for u in tension_module.LOADS
    }
    assert r.held_users == max((u for u, share in shares.items() if share >= 0.95), default=0)
    shell = explore.tension(preset, predict=False)
    assert f"up to {r.held_users} users" in shell.sentence
    assert shell.drawing.held[0].get_xdata()[1] == r.held_users
    shell.close()


def test_measured_dots_are_the_catalogue_s() -> None:
    dots = tension_module.measured((2048, 2048))
    assert dots.users.tolist() == [1, 4, 16, 32, 40, 44, 48, 64, 128, 256, 512]
    assert dots.tokens_per_s[3] == pytest.approx(2528.524)


def prose() -> str:
    notebook = nbformat.read(NOTEBOOKS / "00_start_here.ipynb", as_version=4)
    return "\n".join(
        " ".join(c.source.split()) for c in notebook.cells if c.cell_type == "markdown"
    )


def test_prose_about_the_fit_is_what_the_table_shows() -> None:
    """A sentence with a number in it is a claim."""
    table = tension_module.compared_with_measured()
    median = {name: [float(cell.split()[0]) for cell in table[name]] for name in table}
    every = [
        float(x) for name in table for cell in table[name] for x in re.findall(r"\d\.\d\d", cell)
    ]
    tokens, pace, waits = (
        sorted(round(100 * (m - 1)) for m in median[name])
        for name in ("tokens/s", "P95 TPOT", "P95 TTFT")
    )
    worst = round(100 * max(abs(x - 1) for x in every))
    assert f"{-tokens[-1]} to {-tokens[0]} % too low in the median" in prose()
    assert f"the pace between {-pace[0]} % too fast and {pace[-1]} % too slow" in prose()
    assert f"waits {-waits[-1]} to {-waits[0]} % too short" in prose()
    assert f"single loads up to {worst} % off" in prose()


def test_prose_about_the_tension_is_what_the_picture_shows() -> None:
    r = tension.result(tension.state("Long chats"))
    level = tension_module.level_of
    p = tension.state("Long chats")
    assert r.held_users == 88
    assert (
        "keeps its promises up to 88 users. Eight more, and only one request in seven is good"
        in (prose())
    )
    assert 1 / level(96, p.lengths).good_share(p) == pytest.approx(7, abs=0.6)
    assert level(96, p.lengths).tokens_per_s == pytest.approx(r.held_tokens_per_s, rel=0.05)
    slow = np.quantile(level(48, p.lengths).tpot_s, 0.95) / level(1, p.lengths).tpot_s.max()
    assert slow == pytest.approx(2, abs=0.35), "twice as slow at 48 users as alone"
    assert level(128, p.lengths).good_share(p) == 0.0
    waits = {users: np.quantile(level(users, p.lengths).ttft_s, 0.95) for users in (48, 88, 128)}
    assert "stays near 0.4 s up to 88 users" in prose()
    assert [waits[48], waits[88]] == pytest.approx([0.4, 0.4], abs=0.02)
    assert waits[128] == pytest.approx(20, abs=1.0), "nearly twenty seconds"


def test_prose_about_one_request_is_what_the_picture_shows() -> None:
    """The answer takes nine times as long as the prompt: the first surprise of the course."""
    r = explore.one_request("A page in, a paragraph out", predict=False).result
    assert "takes about 47 ms" in prose()
    assert round(1e3 * r.ttft_s) == 47
    assert "take nine times as long, 7.4 ms each" in prose()
    assert (r.e2e_s - r.ttft_s) / r.ttft_s == pytest.approx(9, abs=0.4)
    assert round(1e3 * r.tpot_s, 1) == 7.4
    assert "three hundred times as expensive" in prose()
    assert r.tpot_s / (r.ttft_s / 2000) == pytest.approx(300, rel=0.06)


def test_fifty_share_a_step_of_five_thirds() -> None:
    """Fifty answers behind a page each: the weights are read once, the caches fifty times."""
    assert "one and two thirds as long as one for a single person" in prose()
    cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
    context = 2000 + 30
    fifty, one = (cost.step_seconds(StepFeatures(0, 0, n, n * context)) for n in (50, 1))
    assert fifty / one == pytest.approx(5 / 3, abs=0.05)
