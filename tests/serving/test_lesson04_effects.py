"""What notebook 04 says about orders and queues for long prompts, over 20 seeds, paired.

Each remedy meets the very requests that the unguarded queue met, on the notebook's own scene and
with the lengths of three public traces; a claim stands where the 95 % interval of the 20 paired
differences lies on one side of zero. If one of these failed, the lesson would sell a remedy that
does nothing, or hide whom it costs. The last tests hold what the remedies do *not* do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import numpy as np
import pytest

from course.serving.engine import simulate
from course.serving.engine.config import EngineConfig
from course.serving.scenes import long_prompts as scenes
from course.serving.workload import Workload

pytestmark = pytest.mark.slow

SEEDS = range(1, 21)
STUDENT_19 = 2.093  # 97.5 % point of Student's t with 19 degrees of freedom
SCENE = "chats and three documents"
WORLDS = (SCENE, *scenes.PUBLIC)
NOBODY, OWN_QUEUE, SHORTEST, LIMITED, OWN_POOL = scenes.REMEDIES
LOAD = 0.85

Measures = dict[str, float]


def measures(t: scenes.Treated) -> Measures:
    assert np.isfinite(t.first_token_s).all(), "somebody was never served"
    return {
        "short P99": float(np.quantile(t.short_ttft_s, 0.99)),
        "short mean": float(t.short_ttft_s.mean()),
        "long mean": float(t.long_ttft_s.mean()),
        "long worst": float(t.long_ttft_s.max()),
        "all mean": float(t.ttft_s.mean()),
        "ITL P99": t.itl_p99_s,
    }


def world(name: str) -> tuple[Callable[[int], Workload], scenes.Dials, int]:
    """How a world's requests are drawn from a seed, and the dials that suit its lengths."""
    if name.startswith("chats"):
        documents = 1 if name == "chats and one document" else 3
        return (
            lambda seed: scenes.chats_and_documents(20.0, documents, seed),
            scenes.Dials(),
            scenes.SEATS,
        )
    scene = scenes.trace_scene(name)
    dials = scenes.Dials(
        over_tokens=scene.over_tokens, chunk_tokens=256, max_wait_s=scene.max_wait_s
    )
    return lambda seed: scenes.trace_work(name, LOAD, seed), dials, scene.seats


@lru_cache(maxsize=32)
def found(name: str, remedy: str) -> tuple[Measures, ...]:
    drawn, dials, seats = world(name)
    return tuple(measures(scenes.treat(remedy, drawn(seed), dials, seats)) for seed in SEEDS)


def shift(name: str, before: str, after: str, measure: str) -> tuple[float, float]:
    """The 95 % interval of what the remedy adds to a measure, seconds."""
    pairs = zip(found(name, before), found(name, after), strict=True)
    differences = np.array([b[measure] - a[measure] for a, b in pairs])
    half = STUDENT_19 * differences.std(ddof=1) / np.sqrt(differences.size)
    return float(differences.mean() - half), float(differences.mean() + half)


def falls(name: str, before: str, after: str, measure: str) -> bool:
    return shift(name, before, after, measure)[1] < 0


def rises(name: str, before: str, after: str, measure: str) -> bool:
    return shift(name, before, after, measure)[0] > 0


IN_EVERY_WORLD = pytest.mark.parametrize("name", WORLDS)


@IN_EVERY_WORLD
def test_a_queue_of_its_own_helps_the_short_and_the_long_pay(name: str) -> None:
    """Chunk cap and one long prompt at a time: short prompts' P99 TTFT and the gaps between tokens
    fall, the long prompts wait longer."""
    assert falls(name, NOBODY, OWN_QUEUE, "short P99")
    assert falls(name, NOBODY, OWN_QUEUE, "short mean")
    assert falls(name, NOBODY, OWN_QUEUE, "ITL P99")
    assert rises(name, NOBODY, OWN_QUEUE, "long mean")
    assert rises(name, NOBODY, OWN_QUEUE, "long worst")


@IN_EVERY_WORLD
def test_shortest_first_helps_the_short_and_the_longest_wait_grows(name: str) -> None:
    assert falls(name, NOBODY, SHORTEST, "short P99")
    assert falls(name, NOBODY, SHORTEST, "all mean")
    assert rises(name, NOBODY, SHORTEST, "long worst")


@IN_EVERY_WORLD
def test_the_waiting_limit_shortens_the_longest_wait_and_the_short_pay(name: str) -> None:
    assert falls(name, SHORTEST, LIMITED, "long worst")
    assert rises(name, SHORTEST, LIMITED, "short P99")


@IN_EVERY_WORLD
def test_a_pool_of_its_own_helps_everybody_and_takes_a_second_card(name: str) -> None:
    assert falls(name, NOBODY, OWN_POOL, "short P99")
    assert falls(name, NOBODY, OWN_POOL, "long mean")
    assert falls(name, NOBODY, OWN_POOL, "ITL P99")


@IN_EVERY_WORLD
def test_the_queue_beats_the_order_for_short_prompts(name: str) -> None:
    """An order decides who starts next; it does not make the prompt that runs let go."""
    assert falls(name, SHORTEST, OWN_QUEUE, "short P99")


# ------------------------------------------------------------------------- what does not happen
def test_an_order_has_nothing_to_do_where_one_document_comes_alone() -> None:
    """With a single long prompt nobody waits behind another one: P99 does not move, and the limit
    never binds. The lesson must not promise more."""
    low, high = shift("chats and one document", NOBODY, SHORTEST, "short P99")
    assert low < 0 < high
    one = "chats and one document"
    assert found(one, SHORTEST) == found(one, LIMITED)


@pytest.mark.parametrize("name", ["azure-2023-conversation", "sharegpt"])
def test_a_queue_of_its_own_moves_waiting_and_does_not_make_it_vanish(name: str) -> None:
    """The mean over all requests stays where it was, within what luck decides."""
    low, high = shift(name, NOBODY, OWN_QUEUE, "all mean")
    assert low < 0 < high


@pytest.mark.parametrize("name", [SCENE, "sharegpt", "azure-2023-conversation"])
def test_shortest_first_is_paid_by_the_long_ones_on_average(name: str) -> None:
    assert rises(name, NOBODY, SHORTEST, "long mean")


def test_on_the_longest_prompts_shortest_first_costs_the_long_ones_no_mean() -> None:
    """Mooncake's long prompts differ by a factor of four among themselves, and the shorter of them
    gain what the longest lose: only the worst wait tells."""
    low, high = shift("mooncake-conversation", NOBODY, SHORTEST, "long mean")
    assert low < 0 < high


def test_a_limit_far_below_the_usual_wait_is_first_come_first_served() -> None:
    """Where all have waited too long, "the longest waiting first" is the order of arrival."""
    name = "mooncake-conversation"
    drawn, dials, seats = world(name)
    work = drawn(1)
    tight = scenes.Dials(over_tokens=dials.over_tokens, max_wait_s=0.05)
    nobody, limited = (scenes.treat(r, work, tight, seats) for r in (NOBODY, LIMITED))
    gain = np.quantile(nobody.short_ttft_s, 0.99) / np.quantile(limited.short_ttft_s, 0.99)
    assert gain == pytest.approx(1.0, abs=0.02)


def test_the_gaps_are_those_of_the_engine() -> None:
    """Weighing steps by who decodes in them must be the pooled gaps between tokens."""
    work = scenes.chats_and_documents(20.0, 3)
    run = simulate(
        work,
        scenes.server(),
        EngineConfig(max_num_seqs=scenes.SEATS, max_num_batched_tokens=scenes.BUDGET),
    )
    gaps = np.sort(run.itl_s())
    exact = float(gaps[int(np.ceil(0.99 * gaps.size)) - 1])
    assert scenes.treat(NOBODY, work).itl_p99_s == pytest.approx(exact, rel=1e-9)
