"""The page that says what the engine shares with real servers, held to the engine."""

from __future__ import annotations

import dataclasses
import re

import pytest

from course.paths import ROOT
from course.serving.engine import EngineConfig, Speculation, modes, simulate
from course.serving.engine.servers import VERSIONS
from course.serving.pricing import LinearStepCost
from course.serving.workload import Workload

PAGE = (ROOT / "docs" / "schedulers.md").read_text(encoding="utf-8")


def test_every_dial_has_a_row_and_every_row_a_dial() -> None:
    """A reader looks for a dial that is not there, or misses one that is."""
    rows = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    assert rows == list(dict.fromkeys(rows))
    assert set(rows) == {field.name for field in dataclasses.fields(EngineConfig)}


@pytest.mark.parametrize("name", VERSIONS)
def test_a_version_is_a_server_that_runs(name: str) -> None:
    """`like` names a dial that the engine lacks, or a server that it cannot run."""
    known = VERSIONS[name]
    assert known.source
    work = Workload([0.0, 0.0], prompt_tokens=[3000, 50], output_tokens=[4, 4])
    for card_gib, budget in ((80.0, 8192), (24.0, 2048)):
        config = EngineConfig.like(name, num_kv_blocks=10_000, card_gib=card_gib)
        assert config.max_num_batched_tokens == budget
        assert config.enable_prefix_caching
        run = simulate(work, LinearStepCost(fixed_s=0.01), config)
        assert (run.status == 0).all()
        assert run.step_prefill_tokens[0] == min(3050, budget)
    assert EngineConfig.like(name, 10_000, max_num_seqs=7).max_num_seqs == 7


def test_versions_differ_in_what_was_new_in_them() -> None:
    """A default is told of a version that did not have it yet."""
    found = {
        name: EngineConfig.like(name, num_kv_blocks=1000) for name in ("vllm-0.11", "vllm-0.14")
    } | {"vllm-0.19": EngineConfig.like("vllm-0.19", num_kv_blocks=1000)}
    assert [c.async_scheduling for c in found.values()] == [False, True, True]
    assert [c.scheduler_reserve_full_isl for c in found.values()] == [False, False, True]
    sglang = EngineConfig.like("sglang-0.5", num_kv_blocks=1000)
    assert (sglang.way.name, sglang.block_size) == ("sglang", 1)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EngineConfig.like("vllm-9", 10), "version='vllm-9' is not known"),
        (lambda: EngineConfig(watermark=1.0), "watermark=1.0 would leave no block"),
        (lambda: EngineConfig(watermark=-0.1), "watermark=-0.1 is negative"),
        (lambda: EngineConfig(front_end_s=-1.0), "front_end_s=-1.0 is negative"),
        (lambda: Speculation(3, acceptance=1.5), "acceptance=1.5 is above 1"),
        (lambda: Speculation(0, acceptance=0.5), "num_speculative_tokens=0 is below 1"),
        (lambda: Speculation(65, acceptance=0.5), "num_speculative_tokens=65 is above 64"),
        (lambda: EngineConfig(speculation=3), "speculation=3 is no Speculation"),  # type: ignore[arg-type]
        (lambda: EngineConfig(enable_prefix_caching=True), "needs num_kv_blocks"),
        (lambda: EngineConfig(async_scheduling=1), "async_scheduling=1 is neither"),  # type: ignore[arg-type]
        (lambda: modes.sglang(1.2), "new_token_ratio=1.2 is above 1"),
        (lambda: EngineConfig(batching="sglang", order="sjf"), "does not go with modes.sglang"),
        (
            lambda: EngineConfig(batching=modes.static(2), async_scheduling=True),
            "async_scheduling=True does not go with batching='static'",
        ),
        (
            lambda: EngineConfig(batching=modes.windowed(0.1), async_scheduling=True),
            "async_scheduling=True does not go with batching='windowed'",
        ),
        (
            lambda: EngineConfig(batching=modes.static(2), speculation=Speculation(2, 0.5)),
            "does not go with batching='static'",
        ),
        (
            lambda: EngineConfig(enable_prefix_caching=True, num_kv_blocks=2**25),
            "num_kv_blocks=33554432 is above",
        ),
    ],
)
def test_bad_dials_are_named(make, words: str) -> None:
    """A dial that means nothing is taken in silence."""
    with pytest.raises(ValueError, match=re.escape(words)):
        make()
