"""Knees of real servers' sweeps, against arithmetic by hand, and the engine's beside them."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np
import pytest

from course.serving import catalog
from course.serving.catalog.tables import table
from course.serving.load.measured import MeasuredSweep, catalogue_sweeps, measured_sweeps
from course.serving.load.rows import (
    CLOSED,
    OPEN,
    LoadRow,
    closed_row,
    open_row,
    row_of_run,
    rows_of_points,
)
from course.serving.results.nouns import BenchmarkResult, BenchmarkRun, Latency, RunSummary
from course.serving.validation.knees import knees_frame, predicted_knees, scenario_of


@dataclass(frozen=True)
class HandKnee:
    """One line of data/knees.csv."""

    source: str
    gpu: str
    n_gpus: int
    model: str
    precision: str
    prompt_tokens: int
    output_tokens: int
    plateau_output_tokens_per_s: float | None
    plateau_knee_users: float | None
    slo: str = ""  # one sweep tells no latency that a limit could be put on
    slo_knee_users: float | None = None
    note: str = ""


def by_hand() -> tuple[HandKnee, ...]:
    return table(HandKnee, "knees.csv")


def sweep_of(hand: HandKnee) -> MeasuredSweep:
    points = catalog.measured_points(
        hand.gpu, hand.model, n_gpus=hand.n_gpus, precision=hand.precision, source=hand.source,
        prompt_tokens=hand.prompt_tokens, output_tokens=hand.output_tokens,
    )  # fmt: skip
    (found,) = measured_sweeps(rows_of_points(points))
    return found


def limits_of(hand: HandKnee) -> dict[str, float]:
    pairs = (part.split(" <= ") for part in hand.slo.split(" and "))
    return {name: float(limit.removesuffix(" s")) for name, limit in pairs}


def test_every_measured_sweep_was_done_by_hand() -> None:
    """A sweep whose knee is wrong is the one that nobody looked at."""
    done = {sweep_of(hand).name for hand in by_hand()}
    assert done == {sweep.name for sweep in catalogue_sweeps()}
    assert len(by_hand()) == 12


@pytest.mark.parametrize("hand", by_hand(), ids=lambda hand: hand.note[:40])
def test_knees_agree_with_arithmetic_by_hand(hand: HandKnee) -> None:
    """The knee of a real server is not what anybody gets with pencil and paper."""
    sweep = sweep_of(hand)
    knee = sweep.knee("plateau")
    if hand.plateau_knee_users is None:
        assert not knee.found
        assert "not loaded enough" in knee.sentence
        assert not sweep.knee("two_segments").found
    else:
        assert knee.load == pytest.approx(hand.plateau_knee_users, abs=0.006)
        assert knee.throughput == pytest.approx(0.9 * hand.plateau_output_tokens_per_s, rel=1e-5)
    if hand.slo:
        inside = sweep.slo_knee(limits_of(hand))
        if hand.slo_knee_users is None:
            assert "not loaded enough" in inside.sentence
        else:
            assert inside.load == pytest.approx(hand.slo_knee_users, abs=0.006)
    assert knee.low is None


@pytest.mark.parametrize("hand", by_hand(), ids=lambda hand: hand.note[:40])
def test_the_arithmetic_by_hand_is_right(hand: HandKnee) -> None:
    """The committed values come from the code that they are to check."""
    sums = re.findall(
        r"(\d[\d.]*) \+ (\d+) \* \(([\d.]+) - ([\d.]+)\) / \(([\d.]+) - \4\)", hand.note
    )
    found = [
        float(a) + float(gap) * (float(want) - float(low)) / (float(high) - float(low))
        for a, gap, want, low, high in sums
    ]
    wanted = [v for v in (hand.plateau_knee_users, hand.slo_knee_users) if v is not None]
    assert found == pytest.approx(wanted, abs=0.01)


def test_two_gpus_with_long_prompts() -> None:
    """The 70B sweep that flattens between 25 and 50 users."""
    (hand,) = [h for h in by_hand() if h.prompt_tokens == 5000]
    sweep = sweep_of(hand)
    assert sweep.throughput[0].round().tolist() == [48, 199, 564, 739, 777, 778, 777]
    assert sweep.knee("plateau").between == (25.0, 50.0)


def test_forty_users_on_one_h100() -> None:
    """40 users inside P99 TTFT ≤ 2 s and median ITL ≤ 50 ms, and 44 not."""
    (hand,) = [h for h in by_hand() if (h.prompt_tokens, h.precision) == (2048, "bf16")]
    knee = sweep_of(hand).slo_knee({"P99 TTFT": 2.0, "median ITL": 0.05})
    assert knee.between == (40.0, 44.0)
    assert knee.load is not None
    assert knee.load >= 40


def test_the_strictest_limit_decides() -> None:
    (hand,) = [h for h in by_hand() if h.prompt_tokens == 5000]
    sweep = sweep_of(hand)
    loose, strict = {"mean TTFT": 1.0}, {"mean ITL": 0.05}
    assert sweep.slo_knee(loose | strict).load == sweep.slo_knee(strict).load
    assert "mean ITL" in sweep.slo_knee(loose | strict).sentence
    assert "saturated" in sweep.slo_knee(loose | {"mean ITL": 0.001}).sentence
    with pytest.raises(ValueError, match="does not tell it; it has mean TTFT, mean ITL"):
        sweep.slo_knee({"P99 TTFT": 1.0})
    with pytest.raises(ValueError, match="limits is empty"):
        sweep.slo_knee({})


def test_predicted_knees() -> None:
    """With the recorded KV pool, the engine puts the knee elsewhere than the real server has it."""
    found = predicted_knees()
    ratios = knees_frame(found)["ratio"]
    assert len(ratios) == 7
    assert ratios.between(1 / 1.4, 1.4).all(), knees_frame(found).to_string()


def test_a_prediction_needs_the_pool() -> None:
    point = catalog.measured_points(model="Qwen3-8B")[0]
    with pytest.raises(ValueError, match="lacks its lengths or its KV pool"):
        scenario_of(replace(point, kv_pool_tokens=None), object())  # type: ignore[arg-type]


# --- what was really offered ---------------------------------------------------------------------


def row(load: float, **changes: object) -> LoadRow:
    values = {
        "group": "a server", "place": f"line {load:g}", "unit": CLOSED, "load": load,
        "offered": load, "output_tokens_per_s": 100 * load, "requests_per_s": load,
        **changes,
    }  # fmt: skip
    return LoadRow(**values)  # type: ignore[arg-type]


def test_users_who_were_never_there_are_no_load() -> None:
    """A client with too few connections makes a server look flat, and a knee is found."""
    found = next(s for s in catalogue_sweeps() if s.name.startswith("Nemotron"))
    assert found.meant.tolist()[-2:] == [256, 1024]
    assert found.loads[-1] == pytest.approx(385, abs=1)
    assert found.loads.size == 8  # 512 and 1,024 were the same load
    assert sum("load generator was saturated" in text for text in found.warnings) == 2


def test_sent_rate_stands_for_the_rate() -> None:
    """A saturated load generator makes a server look as if it held any rate."""
    slow = open_row(row(100, unit=OPEN), 60.0, None)
    assert (slow.load, slow.offered, slow.was_offered) == (100, 60, False)
    assert "asked for 100 requests/s, but only 60.0 were sent" in slow.warnings[0]
    assert open_row(row(100, unit=OPEN), 97.0, None).was_offered
    assert open_row(row(100, unit=OPEN), None, None).was_offered


def test_a_cap_that_binds_makes_the_loop_closed() -> None:
    capped = row(100, unit=OPEN, requests_per_s=50.0, in_system=63.0)
    assert open_row(capped, None, 64).offered == 50.0
    assert "cap held requests back" in open_row(capped, None, 64).warnings[0]
    assert open_row(capped, None, 200).was_offered  # the queue was in the server
    assert open_row(row(100, unit=OPEN, requests_per_s=99.0, in_system=63.0), None, 64).was_offered


@pytest.mark.parametrize(("source", "share"), [("measured", 0.9), ("parts", 0.8)])
def test_little_is_as_strict_as_its_source(source: str, share: float) -> None:
    """A P95 in place of a mean is taken for a client that fell short."""
    assert closed_row(row(100, in_system=100 * share + 0.5), source).was_offered
    assert not closed_row(row(100, in_system=100 * share - 0.5), source).was_offered
    assert closed_row(row(100), source).was_offered


# --- curves --------------------------------------------------------------------------------------


def test_different_lengths_are_different_curves() -> None:
    """Points of short and of long answers are joined to one zigzag."""
    rows = [row(n, output_tokens=t) for n in (1, 2, 4) for t in (100.0, 105.0, 1000.0)]
    short, long = measured_sweeps(rows)
    assert (short.runs, long.runs) == (2, 1)
    assert short.name == "a server (?/100 tokens, by users)"
    assert len(measured_sweeps([row(1), row(2, unit=OPEN), row(2, group="other")])) == 3


def test_repeated_loads_are_runs() -> None:
    rows = [row(n, output_tokens_per_s=100.0 * n + seed) for seed in range(5) for n in (1, 2, 4)]
    (found,) = measured_sweeps(rows)
    assert found.throughput.shape == (5, 3)
    assert found.throughput[:, 1].tolist() == [200, 201, 202, 203, 204]
    (uneven,) = measured_sweeps(rows[:-1])
    assert uneven.throughput.shape == (1, 3)
    assert uneven.throughput[0, 2] == pytest.approx(401.5)
    assert "were run 4 to 5 times" in uneven.warnings[-1]


def test_repeats_give_an_interval() -> None:
    """Five repeats in the files, and still no interval."""
    rng = np.random.default_rng(0)
    rows = [
        row(n, output_tokens_per_s=min(20.0 * n, 400.0) * (1 + 0.01 * rng.standard_normal()))
        for _ in range(5)
        for n in (5, 10, 15, 20, 25, 30)
    ]
    knee = measured_sweeps(rows)[0].knee("plateau")
    assert knee.low is not None
    assert knee.high is not None
    assert knee.low < 18 < knee.high


def test_failures_are_misses() -> None:
    """A server that drops its slow requests keeps every promise."""
    rows = [
        row(n, failed_share=share, latencies={"P99 TTFT": 0.1, "median TTFT": 0.1})
        for n, share in ((1, 0.0), (2, 0.005), (4, 0.05))
    ]
    (found,) = measured_sweeps(rows)
    assert found.slo_knee({"P99 TTFT": 1.0}).load == 2.0
    assert not found.slo_knee({"median TTFT": 1.0}).found
    assert found.latencies["P99 TTFT"][0, 2] == 0.1  # shown as it was told


def test_requests_stand_in_where_tokens_are_not_told() -> None:
    (found,) = measured_sweeps([row(1), row(2, output_tokens_per_s=None)])
    assert found.throughput_unit == "requests/s"
    assert found.throughput[0].tolist() == [1, 2]


def test_little_from_parts_counts_the_first_token_in_the_ttft() -> None:
    """n tokens have n − 1 gaps: one gap too many, and a client is called saturated that was not.

    2 requests/s, 0.5 s to the first token, 40 further tokens at 25 ms: 2 · (0.5 + 1.0) = 3 inside.
    """
    summary = RunSummary(
        completed=100, failed=0, requests_per_s=2.0, output_tokens_per_s=82.0,
        output_tokens_mean=41.0, max_concurrency=4, ttft=Latency(mean_s=0.5),
        tpot=Latency(mean_s=0.025),
    )  # fmt: skip
    run = BenchmarkRun(place="run 1", label="", summary=summary)
    result = BenchmarkResult("run.json", "vllm", None, (run,))
    row = row_of_run(run, result)
    assert isinstance(row, LoadRow)
    assert row.in_system == pytest.approx(3.0)


def test_a_catalogue_point_counts_its_gaps_as_well() -> None:
    """The same for rows of the catalogue, against the row's own columns."""
    point = next(
        p
        for p in catalog.measured_points(kind="sweep")
        if p.load == "closed loop" and p.throughput_is == "recorded" and p.requests_per_s
        and p.ttft_s and p.tpot_s and p.output_tokens and p.concurrency
    )  # fmt: skip
    (row,) = rows_of_points([point])
    inside = point.requests_per_s * (point.ttft_s + (point.output_tokens - 1) * point.tpot_s)
    assert row.in_system == pytest.approx(inside, rel=1e-12)
