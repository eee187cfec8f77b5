"""The figures in notebook 03's prose: each stands in the text and is what the model computes."""

from __future__ import annotations

import importlib
import math
from dataclasses import replace
from typing import Any

import pytest

from course.explore.steady import decode_step, steady_tpot_s
from course.explore.steady import room as sequences_in_memory
from course.serving import catalog
from course.serving.pricing.linear import DEFAULTS, RooflineStepCost
from course.explore.ch00.tension import measured
from tests.notebooks.claims import prose_of

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def prose() -> str:
    """All text cells as one line."""
    return prose_of(3)


def explorer(name: str) -> Any:
    """One of the lesson's explorers."""
    return getattr(importlib.import_module(f"course.explore.ch03.{name}"), name)


def shown(name: str, preset: str, **changed: Any) -> Any:
    """What an explorer computes at a preset, whatever the case of its name, with other values."""
    found = explorer(name)
    (known,) = [p.name for p in found.presets if p.name.lower() == preset.lower()]
    return found.result(replace(found.state(known), **changed))


def test_one_reader_uses_two_thousandths_of_the_card(prose: str) -> None:
    """The lesson's opening: decode waits for memory, whatever the software does."""
    cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
    assert "15 GB of them" in prose
    assert round(cost.streamed_bytes / 1e9) == 15
    assert "15 GB / 3.35 TB/s = **4.5 ms**" in prose
    assert round(1e3 * cost.weight_read_s, 1) == 4.5
    assert "**0.015 ms**" in prose
    compute_s = 2 * cost.model.active_parameters / cost.gpu.peak_bf16_flop_per_s
    assert round(1e3 * compute_s, 3) == 0.015
    alone = shown("roofline", "One chat on an H100")
    assert "It is 0.2 %" in prose
    assert alone.share_of_peak == pytest.approx(0.002, abs=0.0003)
    assert "about 1.8 ms" in prose
    parts = cost.step_parts(decode_step(1, 1024))
    assert 1e3 * parts.overhead_s == pytest.approx(1.8, abs=0.06)


def test_ridges_and_intensities(prose: str) -> None:
    """Section 1's argument rests on where the three points lie."""
    assert "295 operations a byte on an H100" in prose
    assert round(catalog.gpu("H100-80GB-SXM").ridge_flop_per_byte) == 295
    alone = shown("roofline", "One chat on an H100")
    assert "a property of the model, 4 here" in prose
    assert alone.cache.flop_per_byte == pytest.approx(4)
    assert alone.matrices.flop_per_byte == pytest.approx(1, abs=0.01)
    shape = catalog.model("Llama-3.1-8B")
    assert shape.heads // shape.kv_heads == 4
    assert "from 388 tokens of context on" in prose
    assert "with that counted it is 394 tokens" in prose
    per_token, ridge = 2 * shape.active_parameters, catalog.gpu("H100-80GB-SXM").ridge_flop_per_byte
    own_flop, own_bytes = shape.attention_flop_per_pair, shape.kv_bytes_per_token()
    assert math.ceil(per_token / (ridge * own_bytes)) == 388
    assert math.ceil(per_token / (ridge * own_bytes - own_flop)) == 394
    long = shown("roofline", "Long contexts never get there")
    assert long.ceiling_flop_per_byte < long.ridge_flop_per_byte
    prefill = shown("roofline", "Prefill is on the roof")
    assert "68 % of the peak" in prose
    assert round(prefill.share_of_peak, 2) == 0.68
    assert "takes 98 ms, and sixteen people" in prose
    assert round(1e3 * prefill.step_s) == 98
    assert prefill.batch == 16
    ridges = {"A10G": 117, "A100-80GB-SXM": 153, "H200-141GB-SXM": 206}
    assert "(an A10G 117, an A100 153, an H200 206)" in prose
    assert {n: round(catalog.gpu(n).ridge_flop_per_byte) for n in ridges} == ridges


def test_two_ridges_and_which_to_stop_at(prose: str) -> None:
    """The matrices' ridge ends the gain of a batch; that of the whole step ends nothing."""
    cost = RooflineStepCost("Llama-3.1-8B", "H100-80GB-SXM")
    assert "a batch of 295 here, *whatever the context*" in prose
    assert "the ridge of 252" in prose
    assert round(cost.ridge_batch) == 252
    assert "82 % of the bandwidth and 70 % of the peak (in fp8 42 %)" in prose
    assert "1.1 ms and 0.023 ms for each layer" in prose
    assert (DEFAULTS.mbu, DEFAULTS.mfu_bf16, DEFAULTS.mfu_fp8) == (0.82, 0.70, 0.42)
    assert (DEFAULTS.overhead_s, DEFAULTS.launch_per_layer_s) == (1.1e-3, 23e-6)
    assert "0.153 USD in a batch of 126, 0.127 with 252, and 0.119 with 504" in prose
    usd = [
        cost.usd_per_million_output_tokens(4.29, n / steady_tpot_s(cost, n, 512, 256)[1])
        for n in (126, 252, 504)
    ]
    assert [round(dollars, 3) for dollars in usd] == [0.153, 0.127, 0.119]
    assert "saves 17 %, the second 7 %" in prose
    assert (round(1 - usd[1] / usd[0], 2), round(1 - usd[2] / usd[1], 2)) == (0.17, 0.07)
    assert sequences_in_memory(cost, 768) > 504
    ridge = shown("roofline", "The ridge")
    assert "reaches only 32 % of the peak" in prose
    assert round(ridge.share_of_peak, 2) == 0.32
    assert "It takes 13.7 ms, of which 8.3 are matrices, 3.5 caches and 1.8 overhead" in prose
    parts = cost.step_parts(decode_step(288, 256))
    seen = (ridge.step_s, parts.dense_s, parts.kv_s, parts.overhead_s)
    assert [round(1e3 * s, 1) for s in seen] == [13.7, 8.3, 3.5, 1.8]
    assert "its computing would take 4.4" in prose
    assert round(1e3 * ridge.share_of_peak * ridge.step_s, 1) == 4.4


def test_each_rule_of_thumb_where_the_prose_puts_it(prose: str) -> None:
    """The audit: which rule the explorer names for which card, model and length."""
    found = explorer("roofline")
    first, second = "“8 to 64, start at 16”", "“from 128 in steps of 64”"
    for preset, room, rule in (
        ("An RTX 4090", "full at 16 sequences", first),
        ("One chat on an H100", "437 fit", second),
        ("Long contexts never get there", "13 fit on the same H100", first),
    ):
        assert room in prose
        here = shown("roofline", preset)
        (number,) = [int(word) for word in room.split() if word.isdigit() and word != "100"]
        assert here.room == number
        assert f"of the printed rules {rule} would suit" in found.narrate(here)


def test_thirty_two_chats_on_one_card(prose: str) -> None:
    """One slows down, all speed up: by how much is the lesson's main figure."""
    chat = shown("batching", "Chat 8B on H100")
    alone_s, step_s = float(chat.alone.step_s[0]), chat.step_s
    assert "a token every 7.6 ms in the model (7.0 ms were measured)" in prose
    alone = measured((2048, 2048))
    assert round(1e3 * float(alone.tpot_p95_s[alone.users == 1][0]), 1) == 7.0
    assert round(1e3 * alone_s, 1) == 7.6
    assert "It is 12.8 ms" in prose
    assert round(1e3 * step_s, 1) == 12.8
    assert "1.68 times as long" in prose
    assert round(step_s / alone_s, 2) == 1.68
    faster = chat.tokens_per_s * float(chat.alone.tpot_s[0])
    assert "18 times as many tokens" in prose
    assert round(faster) == 18
    assert "74.5 tokens/s instead of 131" in prose
    mine, one = chat.tokens_per_s / 32, 1 / float(chat.alone.tpot_s[0])
    assert (round(mine, 1), round(one)) == (74.5, 131)
    sentence = explorer("batching").narrate(chat).replace("\u00a0", " ")
    assert "15 % are overhead, 43 % reading weights and 41 % reading caches" in prose
    assert "15 % overhead, 43 % reading weights, 41 % the KV cache" in sentence
    assert "11.9 ms a step and 2,530 tokens/s with 32 users" in prose
    assert "11.9 ms from token to token in the middle, 2,530 tokens/s" in sentence
    assert "12.8 ms and 2,390" in prose
    assert "more users than memory has seats, 96" in prose
    assert chat.room == 96
    assert "more users than its 96 seats" in sentence
    assert "2,390 tokens/s" in sentence
    assert 2530 / 2390 < 1.1
    assert 12.8 / 11.9 < 1.1


def test_what_grew_in_the_other_presets(prose: str) -> None:
    """Three presets, three other layers."""
    chat, long = shown("batching", "Chat 8B on H100"), shown("batching", "Long documents")
    assert "two thirds of the step are caches" in prose
    assert float(long.here.kv_s[0]) / long.step_s == pytest.approx(2 / 3, abs=0.02)
    assert "not even twice that of the chats" in prose
    assert 1.5 < long.step_s / chat.step_s < 2
    assert "less than half the tokens" in prose
    assert long.tokens_per_s < chat.tokens_per_s / 2
    four = shown("batching", "70B on four H100s")
    assert "16 % of the step" in prose
    assert float(four.here.all_reduce_s[0]) / four.step_s == pytest.approx(0.16, abs=0.005)
    small = shown("batching", "Small model, big card")
    assert "61 % overhead" in prose
    assert float(small.here.overhead_s[0]) / small.step_s == pytest.approx(0.61, abs=0.005)


def test_eight_requests_four_ways(prose: str) -> None:
    """The timeline's ends and first tokens are what the table of modes sums up."""
    runs = {
        run.name.partition(":")[0]: run
        for run in shown("four_ways", "Eight requests, four ways").runs
    }
    assert "the last of the eight answers is there after 4.6 s" in prose.lower()
    assert "a first token takes 2.1 s on average" in prose
    assert "shares the steps: 3.3 s" in prose
    assert "1.9 s for all eight, and a mean TTFT of 98.5 ms" in prose
    done = {way: round(run.done_s, 1) for way, run in runs.items()}
    assert (done["single"], done["static"], done["continuous"]) == (4.6, 3.3, 1.9)
    assert round(runs["single"].mean_ttft_s, 1) == 2.1
    assert round(1e3 * runs["continuous"].mean_ttft_s, 1) == 98.5
    assert "takes 1.7 s even alone" in prose
    single = runs["single"]
    alone_s = single.finish_s - single.scheduled_s
    assert int(alone_s.argmax()) == 0
    assert round(float(alone_s[0]), 1) == 1.7
    assert "the requests come spread over 1.1 s" in prose
    assert round(float(single.arrival_s[-1]), 1) == 1.1
    assert "only 0.3 s together" in prose
    prompts_s = single.first_token_s - single.scheduled_s
    assert round(float(prompts_s.sum()), 1) == 0.3
    assert "The last rows of the picture queue" in prose
    queued_s = runs["continuous"].scheduled_s - runs["continuous"].arrival_s
    assert queued_s[-1] > 0.1
    assert "35 % of all decode slots here, 58 % in" in prose
    assert round(runs["static"].wasted_share, 2) == 0.35
    long = shown("four_ways", "One long answer among short").runs[0]
    assert round(long.wasted_share, 2) == 0.58


def test_what_the_windows_cost(prose: str) -> None:
    """Full price and no gain at low traffic; half of it with an adaptive window."""
    low = shown("four_ways", "The wait window at low traffic")
    windowed, plain = low.runs
    assert "from 36 to 336 ms and saves no GPU time" in prose
    assert (round(1e3 * plain.mean_ttft_s), round(1e3 * windowed.mean_ttft_s)) == (36, 336)
    assert windowed.busy_s == pytest.approx(plain.busy_s, abs=1e-6)
    high = shown("four_ways", "The wait window at high traffic")
    windowed, plain = high.runs
    assert "the last answer comes at the same time" in prose
    assert windowed.done_s == pytest.approx(plain.done_s, rel=0.01)
    assert "the mean TTFT goes from 53.8 to 80.2 ms" in prose
    assert round(1e3 * plain.mean_ttft_s, 1) == 53.8
    assert round(1e3 * windowed.mean_ttft_s, 1) == 80.2
    assert "the window opens once" in prose
    waited = windowed.scheduled_s > windowed.held_s
    assert set(windowed.scheduled_s[waited]) == {windowed.scheduled_s[0]}
    runs = {run.name.partition(":")[0]: run for run in shown("four_ways", "Adaptive window").runs}
    assert "costs half of what the fixed one does" in prose
    cost = {
        w: runs[w].mean_ttft_s - runs["continuous"].mean_ttft_s for w in ("windowed", "adaptive")
    }
    assert cost["adaptive"] / cost["windowed"] == pytest.approx(0.5, abs=0.05)
    assert "88.7 instead of 184 ms of mean TTFT" in prose
    assert round(1e3 * cost["adaptive"], 1) == 88.7
    assert round(1e3 * cost["windowed"]) == 184
    assert "290 instead of 677 ms of 1.56 s GPU time" in prose
    busy_s = runs["continuous"].busy_s
    saved = {way: busy_s - runs[way].busy_s for way in cost}
    assert (round(1e3 * saved["adaptive"]), round(1e3 * saved["windowed"])) == (290, 677)
    assert round(busy_s, 2) == 1.56


def test_two_optima_on_one_card(prose: str) -> None:
    """The cheapest batch under a promise is not the largest."""
    (chat,) = shown("token_cost", "Chat with a TPOT promise").layouts
    assert "at 4.29 USD an hour" in prose
    assert shown("token_cost", "Chat with a TPOT promise").usd_per_gpu_hour == 4.29
    assert "194 sequences, 0.38 USD" in prose
    assert (chat.most, round(chat.cheapest_usd, 2)) == (194, 0.38)
    assert "has 47 and costs 0.51 USD" in prose
    assert (chat.inside, round(chat.inside_usd, 2)) == (47, 0.51)
    assert "It is half a dollar, and a quarter less without the promise" in prose
    assert chat.cheapest_usd / chat.inside_usd == pytest.approx(0.75, abs=0.01)
    (loose,) = shown("token_cost", "Chat with a TPOT promise", tpot_promise_ms=40.0).layouts
    assert "20 ms for 40 ms here costs a quarter more" in prose
    assert chat.inside_usd / loose.inside_usd == pytest.approx(1.25, abs=0.02)


def test_prices_of_one_card(prose: str) -> None:
    """A factor of five between sellers, and one seller's own cut."""
    rows = catalog.prices("H100-80GB-SXM")
    assert "from 2.40 (a marketplace, Vast) to 12.29 USD an hour (Azure): a factor" in prose
    assert (rows[0].seller, rows[-1].seller) == ("Vast", "Azure")
    assert (round(rows[0].usd_per_gpu_hour, 2), rows[-1].usd_per_gpu_hour) == (2.40, 12.29)
    assert rows[-1].usd_per_gpu_hour / rows[0].usd_per_gpu_hour == pytest.approx(5, abs=0.15)
    assert all(row.checked_on or row.note for row in rows)
    assert "(AWS's) H100 went from 12.29, today's price of another, to 6.88 USD" in prose
    assert {row.usd_per_gpu_hour for row in rows if row.seller == "AWS"} == {12.29, 6.88}
    dear = shown("token_cost", "Same card, another seller").layouts[0]
    assert dear.inside == shown("token_cost", "Chat with a TPOT promise").layouts[0].inside


def test_eight_cards_laid_out(prose: str) -> None:
    """There is no best layout, only one for a promise: two promises, two orders."""
    preset = "One of eight, two of four, eight of one"
    usd = {
        layout.name: round(layout.inside_usd, 2) for layout in shown("token_cost", preset).layouts
    }
    assert "| four of two | **0.99** | 3.40 |" in prose
    assert "| two of four | 1.02 | **1.44** |" in prose
    assert "| one of eight | 1.28 | 1.56 |" in prose
    assert "| eight of one | 2.52 | cannot keep it |" in prose
    assert usd == {
        "four of two": 0.99,
        "two of four": 1.02,
        "one of eight": 1.28,
        "eight of one": 2.52,
    }
    single = next(x for x in shown("token_cost", preset).layouts if x.name == "eight of one")
    assert "room for sixteen such chats" in prose
    assert single.most == 8 * 16
    tight = shown("token_cost", preset, tpot_promise_ms=20.0).layouts
    usd = {layout.name: round(layout.inside_usd, 2) for layout in tight if layout.keeps_promise}
    assert usd == {"two of four": 1.44, "one of eight": 1.56, "four of two": 3.40}
    assert "the same seller's eights cost 3.99 a card, which makes every figure 7 %" in prose
    lambdas = {
        row.offer: row.usd_per_gpu_hour
        for row in catalog.prices("H100-80GB-SXM")
        if row.seller == "Lambda"
    }
    assert lambdas == {"1x": 4.29, "8x": 3.99}
    assert round(1 - 3.99 / 4.29, 2) == 0.07


def test_a_good_answer_past_capacity(prose: str) -> None:
    """Tokens at their cheapest, good answers five times as dear."""
    here = shown("token_cost", "Cost per success").here
    assert "a thousand answers cost 0.11 USD, and a thousand *good* ones 0.52" in prose
    assert (round(float(here.usd_all[0]), 2), round(float(here.usd_good[0]), 2)) == (0.11, 0.52)
    assert "the good answers five times as dear" in prose
    assert "only a fifth of them come in time" in prose
    assert float(here.good_share[0]) == pytest.approx(0.2, abs=0.02)
    assert float(here.usd_good[0] / here.usd_all[0]) == pytest.approx(5, abs=0.5)
    assert float(here.load[0]) == pytest.approx(1.1)
