"""Notebook 04's pictures say what the engine and a pencil say; a picture that disagreed with its
sentence, or a remedy drawn better than it is, would send a student to the wrong dial."""

from __future__ import annotations

import math

import numpy as np
import pytest

from course import explore
from course.explore.ch04 import kv_memory as kv
from course.explore.ch04 import long_prompt as lp
from course.explore.ch04 import prefill_or_decode as pd
from course.explore.ch04 import requests_or_tokens as rt
from course.figures.ch04.long_prompt import stairs
from course.figures.ch04.prefill_or_decode import CHUNKS
from course.serving import catalog
from course.serving.engine import EngineConfig, simulate
from course.serving.pricing.linear import StepFeatures
from course.serving.scenes import long_prompts as scenes
from course.serving.workload import Workload
from course.words import percent, seconds

pytestmark = pytest.mark.slow


def names(explorer) -> list[str]:
    return [preset.name for preset in explorer.presets]


# ------------------------------------------------------------------------------ the long prompt
@pytest.mark.parametrize("preset", names(lp.long_prompt))
def test_bars_and_sentence_are_the_run(preset: str) -> None:
    """The bar of the drawn remedy is the P99 of its own run, and the sentence says the same."""
    p = lp.long_prompt.state(preset)
    shell = explore.long_prompt(preset, predict=False)
    work = scenes.chats_and_documents(p.chat_rate_per_s, p.documents, p.seed, p.document_tokens)
    dials = scenes.Dials(chunk_tokens=p.chunk_tokens, at_once=p.at_once, max_wait_s=p.max_wait_s)
    run = scenes.treat(p.remedy, work, dials)
    p99_s = float(np.quantile(run.short_ttft_s, 0.99))
    assert shell.result.here.chats_p99_s == pytest.approx(p99_s, rel=1e-12)
    assert f"first token within {seconds(p99_s)}" in shell.sentence
    assert seconds(run.long_ttft_s.max()) in shell.sentence
    panel = shell.drawing.bars[0]
    right = panel.bars[shell.result.chosen].get_path().vertices[:, 0].max()
    assert right * panel.top == pytest.approx(p99_s, rel=1e-9)
    shell.close()


def test_a_document_alone_is_ten_steps_by_hand() -> None:
    """20,000 tokens in steps of 2,048 on an idle card: each looks at all that came before it."""
    cost = scenes.server()
    chunks = [2048] * 9 + [20_000 - 9 * 2048]
    done = np.concatenate([[0], np.cumsum(chunks)[:-1]])
    by_hand = sum(
        cost.step_seconds(StepFeatures(int(c), int(c * d + c * (c + 1) // 2), 0, 0))
        for c, d in zip(chunks, done, strict=True)
    )
    outcome = lp.long_prompt.result(lp.LongPromptParameters(documents=1)).outcomes[-1]
    assert outcome.remedy == "a pool of its own"
    assert outcome.document_worst_s == pytest.approx(by_hand, rel=1e-9)


def test_only_the_documents_steps_stand_out() -> None:
    """Ten steps of one document are ten coloured boxes, and they lie where its row lies."""
    shell = explore.long_prompt("Nobody guards the queue", predict=False)
    window = shell.result.window
    assert int(window.with_document.sum()) == 10
    first = window.step_start_s[window.with_document].min()
    last = window.step_end_s[window.with_document].max()
    assert first == pytest.approx(window.document_scheduled_s[0])
    assert last == pytest.approx(window.document_first_s[0])
    drawn = shell.drawing.patches["with"].get_path().vertices.reshape(-1, 5, 2)
    assert drawn[:, :, 0].min() == pytest.approx(first)
    assert drawn[:, :, 0].max() == pytest.approx(last)
    heights_ms = 1e3 * (window.step_end_s - window.step_start_s)[window.with_document]
    assert drawn[:, :, 1].max(axis=1) == pytest.approx(heights_ms)
    shell.close()


def test_a_second_card_keeps_documents_off_the_first() -> None:
    window = lp.long_prompt.result(lp.long_prompt.state("A pool of its own")).window
    assert not window.with_document.any()
    assert window.other_end_s.size > 0


def test_the_chunk_cap_bounds_the_step() -> None:
    """One document at a time, 256 tokens of it in a step: what else is in the step is chats."""
    tight, loose = (
        lp.long_prompt.result(lp.LongPromptParameters(chunk_tokens=chunk)).outcomes[1]
        for chunk in (256, 2048)
    )
    assert tight.itl_p99_s < loose.itl_p99_s
    assert tight.document_worst_s > loose.document_worst_s


def test_joined_stairs_never_hide_the_highest_step() -> None:
    starts = np.arange(200) * 0.01
    high = 8 + np.random.default_rng(1).exponential(size=200)
    path = stairs(starts, starts + 0.01, high, 2.0)
    assert path.vertices[:, 1].max() == high.max()
    assert path.vertices[[0, -1], 1].tolist() == [0, 0]


# --------------------------------------------------------------------------- requests or tokens
@pytest.mark.parametrize("preset", names(rt.requests_or_tokens))
def test_limits_hold_and_the_sentence_says_what_is_drawn(preset: str) -> None:
    p = rt.requests_or_tokens.state(preset)
    r = rt.requests_or_tokens.result(p)
    counting, budgeted = rt.counting_run(p), rt.budgeted_run(p)
    assert counting.step_running.max() <= p.seats
    tokens = budgeted.step_prefill_tokens + budgeted.step_decode_seqs
    assert tokens.max() <= p.budget_tokens
    for run, shown in ((counting, r.counting), (budgeted, r.budgeted)):
        step_s = run.step_end_s - run.step_start_s
        assert shown.longest_step_s == step_s.max()
        assert shown.step_s.max() == step_s[run.step_start_s < rt.LENGTH_S].max()
        assert seconds(step_s.max()) in rt.requests_or_tokens.narrate(r)
        done = sum(1 for end_s in run.end_s.tolist() if end_s <= 60.0)
        assert shown.finished_per_s == pytest.approx(done / 60)


def test_the_count_swings_where_documents_come_and_the_tokens_do_not() -> None:
    """What the two presets claim: calm together, then a step eight times as long."""
    calm = rt.requests_or_tokens.result(rt.requests_or_tokens.state("Chats only"))
    mixed = rt.requests_or_tokens.result(rt.requests_or_tokens.state("Chats and documents"))
    assert calm.counting.longest_step_s < 1.3 * calm.budgeted.longest_step_s
    assert mixed.counting.longest_step_s > 7 * mixed.budgeted.longest_step_s
    assert mixed.counting.longest_step_s > 10 * calm.counting.longest_step_s
    assert mixed.budgeted.longest_step_s < 2 * calm.budgeted.longest_step_s


def test_the_safe_limit_is_the_memory_and_costs_throughput() -> None:
    p = rt.requests_or_tokens.state("The limit that is safe for documents")
    whole = rt.DOCUMENT_TOKENS + scenes.DOCUMENT_ANSWER
    assert p.seats == 16 * rt.capacity_blocks() // whole == 22
    r = rt.requests_or_tokens.result(p)
    assert r.counting.finished_per_s < 0.8 * r.budgeted.finished_per_s
    assert r.counting.mean_held_share < 0.05
    assert r.asks_for_rate


def test_prefix_hits_are_full_blocks_and_take_the_swing_away() -> None:
    p = rt.requests_or_tokens.state("Prefix hits")
    work = rt.traffic(p)
    documents = np.flatnonzero(work.label == "document")
    for run in (rt.counting_run(p), rt.budgeted_run(p)):
        hits = run.attempts.prefix_hit_tokens[documents]
        # the first is computed whole, all others find the blocks that it left
        assert hits.tolist() == [0] + [18_000 // 16 * 16] * (documents.size - 1)
        computed = int(run.step_prefill_tokens.sum())
        assert computed == int(work.prompt_tokens.sum()) - int(hits.sum())
        whole_s = run.step_end_s - run.step_start_s
        assert np.sort(whole_s)[-2] < 0.25 * whole_s.max() or run.step_prefill_tokens.max() <= 2048


def test_bins_hold_the_highest_of_the_steps_that_touch_them() -> None:
    rng = np.random.default_rng(3)
    gaps, lengths = rng.exponential(0.05, 300), rng.exponential(0.2, 300)
    start = np.cumsum(gaps + np.concatenate([[0], lengths[:-1]]))
    end, values = start + lengths, rng.random(300)
    edges = np.linspace(0, start[-1], 60)
    found = rt.highest_in_bins(start, end, values, edges)
    for left, right, got in zip(edges[:-1], edges[1:], found, strict=True):
        touching = (start < right) & (end > left)
        assert got == (values[touching].max() if touching.any() else 0.0)


# ---------------------------------------------------------------------------- prefill or decode
@pytest.mark.parametrize("preset", names(pd.prefill_or_decode))
def test_ways_are_the_engine_and_nobody_is_refused(preset: str) -> None:
    p = pd.prefill_or_decode.state(preset)
    r = pd.prefill_or_decode.result(p)
    for way, budget, chunked in (
        (r.here[0], pd.WHOLE_BUDGET, False),
        (r.here[1], p.chunk_tokens, True),
    ):
        runs = pd.shared_runs(p.lengths, p.rate_per_s, p.seed, budget, chunked)
        gaps = np.sort(np.concatenate([run.itl_s() for run in runs]))
        exact = gaps[math.ceil(0.99 * gaps.size) - 1]
        assert way.gap_p99_s == pytest.approx(exact, rel=1e-9)
        ttft_s = np.concatenate([run.ttft_s for run in runs])
        assert way.ttft_p99_s == pytest.approx(np.quantile(ttft_s, 0.99), rel=1e-12)
        assert way.refused == 0
        assert seconds(way.gap_p99_s) in pd.prefill_or_decode.narrate(r)


def test_every_gap_of_the_pools_is_counted_once() -> None:
    run = pd.pools_run(next(iter(pd.LENGTHS)), 32.0, 1, 50.0)
    gap_s, times, second_s = pd.pool_gaps(run)
    assert (times >= 0).all()
    assert times.sum() == (run.work.output_tokens - 1).sum()
    assert float(gap_s @ times) == pytest.approx(float((run.finish_s - run.first_token_s).sum()))
    assert (second_s > run.transferred_s[run.decode_request] - run.finish_s.max()).all()


def test_a_prompt_travels_as_long_as_its_bytes_take() -> None:
    r = pd.prefill_or_decode.result(pd.prefill_or_decode.state("Separate pools, slow link"))
    assert r.travel_bytes == pytest.approx(131_072 * r.mean_prompt_tokens)
    assert r.travel_s == pytest.approx(1e-3 + r.travel_bytes / 1e9)
    assert r.second_p99_s > 4 * r.travel_s
    assert r.pools.gap_p99_s < 0.05 * r.second_p99_s, "the preset asks what the P99 hides"


def test_the_dial_moves_both_ways() -> None:
    """Larger chunks: earlier first tokens, longer gaps; and prefill first is the far end."""
    r = pd.prefill_or_decode.result(pd.prefill_or_decode.state("Chat on an H100"))
    small, large = r.chunked[0], r.chunked[-1]
    assert small.ttft_p99_s > 3 * large.ttft_p99_s
    assert small.gap_p99_s < large.gap_p99_s / 3
    assert r.first.gap_p99_s > large.gap_p99_s
    assert r.first.ttft_p99_s < r.pools.ttft_p99_s
    assert r.pools.gap_p99_s < r.chunked[CHUNKS.index(2048)].gap_p99_s


def test_lengths_are_what_they_are_called() -> None:
    for words, expected in (("chat", (1000, 190)), ("prompt", (5700, 90)), ("answer", (250, 550))):
        name = next(n for n in pd.LENGTHS if n.startswith(words))
        work = pd.traffic(name, 8.0, 1)
        assert work.mean_prompt_tokens == pytest.approx(expected[0], rel=0.06)
        assert work.mean_output_tokens == pytest.approx(expected[1], rel=0.06)


# ------------------------------------------------------------------------------------ KV memory
@pytest.mark.parametrize("preset", names(kv.kv_memory))
def test_blocks_and_sequences_by_hand(preset: str) -> None:
    """memory · fraction − weights − reserve, over 2 · layers · KV heads · head_dim · bytes · 16."""
    p = kv.kv_memory.state(preset)
    shell = explore.kv_memory(preset, predict=False)
    model, card = catalog.model(p.model), catalog.gpu(p.card)
    token_bytes = 2 * model.layers * model.kv_heads * model.head_dim * 2
    free = p.fraction * card.memory_bytes - 2 * model.parameters - 2 * 2**30
    blocks = int(free // (16 * token_bytes))
    r = shell.result
    assert r.kv_bytes_per_token == token_bytes
    assert r.blocks == blocks
    assert f"{blocks:,} blocks" in shell.sentence
    assert r.fit == blocks // math.ceil((sum(p.lengths) - 1) / 16)
    assert f"{r.fit:,} whole sequences" in shell.sentence
    assert sum(r.parts_bytes) == pytest.approx(card.memory_bytes)
    point = shell.drawing.point
    assert [point.get_xdata()[0], point.get_ydata()[0]] == [p.fraction, r.fit]
    shell.close()


def test_that_many_fit_and_one_more_does_not() -> None:
    """The number drawn is the engine's own: 56 run to their end, of 57 one is preempted."""
    server = kv.Server("Llama-3.1-8B", "RTX-4090", ("bf16", "bf16"), 1, 0.9)
    blocks = kv.blocks_of(server)
    fit = kv.fit_of(blocks, 600)
    cost = kv.cost_of(server)
    config = EngineConfig(max_num_seqs=256, max_num_batched_tokens=2**16, num_kv_blocks=blocks)
    for number, preempted in ((fit, False), (fit + 1, True)):
        work = Workload([0.0] * number, [300] * number, [300] * number)
        assert bool(simulate(work, cost, config).preemptions.sum()) is preempted


def test_no_more_seats_than_fit_never_preempts_answers_of_the_mean() -> None:
    for preset in names(kv.kv_memory):
        r = kv.kv_memory.result(kv.kv_memory.state(preset))
        assert r.safe.recomputed.max() < 0.02, "answers vary; the sum hardly does"


def test_the_storm_is_work_done_twice() -> None:
    p = kv.kv_memory.state("The storm")
    r = kv.kv_memory.result(p)
    share = float(r.here.recomputed[0])
    assert 0.15 < share < 0.3
    assert percent(round(share, 3)) in kv.kv_memory.narrate(r)
    assert r.here_safe.tpot_p99_s[0] < 0.8 * r.here.tpot_p99_s[0]
    assert r.here.longest_gap_s[0] > 10 * r.here_safe.longest_gap_s[0]
    run = kv.run_of(kv.server_of(p), p.lengths, p.load, 0.0, p.seed, p.seats)
    done = int(run.step_prefill_tokens.sum() + run.step_decode_seqs.sum())
    once = int(run.work.prompt_tokens.sum() + (run.work.output_tokens - 1).sum())
    # The last piece of a recompute counts as a decode where it is one token long.
    assert share == pytest.approx((done - once) / done, abs=2e-3)


def test_full_on_average_is_full_on_average() -> None:
    """The scale of the load axis: below 100 % with ample seats and no preemption, the blocks held
    are the load's share of the memory, within luck."""
    server = kv.Server("Llama-3.1-8B", "RTX-4090", ("bf16", "bf16"), 1, 0.9)
    held = []
    for seed in range(1, 6):
        run = kv.run_of(server, (300, 300), 0.6, 0.0, seed, 256)
        step_s = np.diff(np.concatenate([[0.0], run.step_end_s]))
        middle = (run.step_end_s > 0.25 * run.end_s) & (run.step_end_s < 0.75 * run.end_s)
        held.append(np.average(run.step_kv_blocks[middle], weights=step_s[middle]))
    share = np.mean(held) / kv.blocks_of(server)
    # Fewer run at once than at 100 %, so each is also faster: the share lies below the load.
    assert 0.35 < share < 0.65


def test_hits_save_tokens_and_time_and_no_memory() -> None:
    p = kv.kv_memory.state("Prefix hits")
    r = kv.kv_memory.result(p)
    assert r.here.ttft_p99_s[0] < 0.25 * r.here_cold.ttft_p99_s[0]
    assert seconds(float(r.here_cold.ttft_p99_s[0])) in kv.kv_memory.narrate(r)
    assert r.fit == kv.kv_memory.result(kv.KvMemoryParameters(lengths=(1000, 300))).fit


def test_four_times_the_heads_are_a_quarter_of_the_sequences() -> None:
    shared = kv.kv_memory.result(kv.kv_memory.state("Four times fewer KV heads"))
    own = kv.kv_memory.result(kv.kv_memory.state("Four times fewer KV heads", heads=4))
    assert own.kv_bytes_per_token == 4 * shared.kv_bytes_per_token
    assert own.blocks == pytest.approx(shared.blocks / 4, abs=1)


def test_a_model_that_does_not_fit_says_what_is_missing() -> None:
    shell = explore.kv_memory(predict=False, model="Qwen3-32B")
    assert "GB are missing" in shell.sentence
    model, card = catalog.model("Qwen3-32B"), catalog.gpu("RTX-4090")
    short = 2 * model.parameters + 2 * 2**30 - 0.9 * card.memory_bytes
    assert shell.result.short_bytes == pytest.approx(short, rel=1e-3)
    shell.close()
