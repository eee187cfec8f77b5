"""How many replicas a traffic needs: against runs put together by hand, and brute force."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from course.serving.engine import EngineConfig, simulate
from course.serving.load import Option, ReplicaReport, plan_replicas
from course.serving.load.replicas import usd_per_hour
from course.serving.pricing import LinearStepCost
from course.serving.requests import SLO, Status
from course.serving.workload import Lognormal, Poisson, Workload, draw

COST = LinearStepCost(0.02, 5e-5, 0.0, 2e-4, 1e-8)
TRAFFIC = draw(1200, Poisson(20.0), Lognormal(5.5, 0.8), Lognormal(4.0, 0.6), seed=4)
PROMISE = SLO(ttft_s=0.4, tpot_s=0.04, quantile=0.95)


def option(replicas: int, config: EngineConfig | None = None, **changes: object) -> Option:
    given = {"work": TRAFFIC, "cost": COST, "slo": PROMISE} | changes
    configs = [config or EngineConfig(32)]
    found = plan_replicas(configs=configs, replicas=[replicas], **given)
    return found.options[0]


def test_a_fleet_is_its_replicas_runs_put_together() -> None:
    """Request i goes to replica i mod n, and each replica is an engine of its own."""
    one = option(3)
    kept = []
    broken_ttft = 0
    for replica in range(3):
        rows = np.arange(replica, len(TRAFFIC), 3)
        share = Workload(
            TRAFFIC.arrival_s[rows], TRAFFIC.prompt_tokens[rows], TRAFFIC.output_tokens[rows]
        )
        run = simulate(share, COST, EngineConfig(32), progress=False)
        pace = np.where(np.isnan(run.tpot_s), 0.0, run.tpot_s)
        good = (run.status == Status.FINISHED) & (run.ttft_s <= 0.4) & (pace <= 0.04)
        kept.append(int(good.sum()))
        broken_ttft += int((run.ttft_s > 0.4).sum())
    assert one.attainment == sum(kept) / len(TRAFFIC)
    assert one.missed["TTFT"] == broken_ttft / len(TRAFFIC)
    assert one.missed["refused"] == 0.0


def test_the_fewest_replicas_are_found_as_by_trying_all() -> None:
    configs = [EngineConfig(seats) for seats in (8, 32)]
    found = plan_replicas(TRAFFIC, COST, configs, PROMISE)
    tried = {(c.max_num_seqs, n): option(n, c) for c in configs for n in range(1, 9)}
    enough = [n for (_, n), one in tried.items() if one.attainment >= 0.95]
    assert found.best is not None
    assert found.best.replicas == min(enough)
    same = [one for (_, n), one in tried.items() if n == min(enough)]
    assert found.best.attainment == max(one.attainment for one in same)
    assert found.cheaper is not None
    assert found.cheaper.attainment < 0.95


def test_what_an_empty_server_cannot_keep_no_fleet_keeps() -> None:
    """One prompt in ten takes 3 s by itself: with a promise to 95 % no number is enough."""
    prompts = np.where(np.arange(400) % 10 == 0, 60_000, 100)
    work = Workload(np.arange(400) * 0.5, prompts, np.full(400, 5))
    found = plan_replicas(work, COST, [EngineConfig(16)], SLO(ttft_s=1.0, quantile=0.95), most=16)
    assert not found.can_be_had
    assert found.best is None
    assert found.alone["TTFT"] == pytest.approx(0.1)
    assert found.alone_attainment == pytest.approx(0.9)
    assert found.nearest is not None
    assert found.nearest.attainment >= 0.89
    words = ReplicaReport(found, 1, None).answer
    assert "cannot be had with any number of replicas" in words
    assert "10\u00a0% break the TTFT limit" in words
    # promised to nine of ten it can be had
    assert plan_replicas(work, COST, [EngineConfig(16)], SLO(1.0, quantile=0.9)).best is not None


def test_refused_requests_keep_no_promise() -> None:
    work = Workload([0.0, 1.0, 2.0, 3.0], [100, 5000, 100, 5000], [5, 5, 5, 5])
    tight = EngineConfig(4, num_kv_blocks=100)
    found = plan_replicas(work, COST, [tight], SLO(ttft_s=1.0, quantile=0.9), most=2)
    assert found.alone["refused"] == 0.5
    assert "are refused, as they never fit" in ReplicaReport(found, 1, None).answer


def test_what_is_short_is_named() -> None:
    """Too few seats, too few blocks, or neither: three cures."""
    slow = {"slo": SLO(ttft_s=0.2, quantile=0.95)}
    assert option(1, EngineConfig(4), **slow).cause == "seats"
    assert option(1, EngineConfig(256, num_kv_blocks=150), **slow).cause == "KV blocks"
    assert option(1, EngineConfig(256), **slow).cause == "steps"
    # a seat more makes no step shorter
    paced = option(1, EngineConfig(16), slo=SLO(tpot_s=0.021, quantile=0.95))
    assert (paced.breaks_first, paced.cause) == ("TPOT", "steps")
    assert paced.seats_full > 0.05


def test_busy_and_full_are_shares_of_the_time() -> None:
    """Two requests alone on one seat, 1 s apart: eleven steps of 0.1 s each, and one seat taken."""
    work = Workload([0.0, 10.0], [10, 10], [11, 11])
    one = plan_replicas(
        work, LinearStepCost(0.1), [EngineConfig(1)], SLO(ttft_s=1.0, quantile=0.5), replicas=[1]
    ).options[0]
    assert one.busy == pytest.approx(2.2 / 11.1)
    assert one.seats_full == 1.0
    assert one.output_tokens_per_s == pytest.approx(22 / 11.1)
    assert math.isnan(one.kv_peak)


def test_an_interval_is_as_wide_as_the_parts_of_the_traffic_differ() -> None:
    one = option(2)
    assert one.low <= one.attainment <= one.high
    bursty = replace_arrivals(TRAFFIC)
    assert (option(2, work=bursty).high - option(2, work=bursty).low) > one.high - one.low
    few = plan_replicas(TRAFFIC.first(50), COST, [EngineConfig(8)], PROMISE, replicas=[1]).options[
        0
    ]
    assert math.isnan(few.low)


def replace_arrivals(work: Workload) -> Workload:
    """The same requests, half of them in a tenth of the time."""
    gaps = np.diff(work.arrival_s, prepend=0.0)
    middle = slice(len(work) // 4, 3 * len(work) // 4)
    gaps[middle] /= 5
    return Workload(np.cumsum(gaps), work.prompt_tokens, work.output_tokens)


def test_a_random_router_is_seeded_and_waits_longer() -> None:
    """Turn by turn evens out what chance piles up."""
    chance = plan_replicas(TRAFFIC, COST, [EngineConfig(4)], PROMISE, replicas=[3], router="random")
    again = plan_replicas(TRAFFIC, COST, [EngineConfig(4)], PROMISE, replicas=[3], router="random")
    assert repr(chance.options) == repr(again.options)
    drawn = [
        plan_replicas(
            TRAFFIC, COST, [EngineConfig(4)], PROMISE, replicas=[3], router="random", seed=seed
        ).options[0].attainment
        for seed in range(5)
    ]  # fmt: skip
    assert len(set(drawn)) > 1
    assert np.mean(drawn) < option(3, EngineConfig(4)).attainment


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"slo": SLO()}, "slo has no limit"),
        ({"work": TRAFFIC.first(1)}, "work has 1 requests"),
        ({"router": "nearest"}, "router='nearest'"),
        ({"configs": []}, "configs is empty"),
        ({"most": 0}, "most=0"),
        ({"replicas": [0]}, "replicas=0"),
    ],
)
def test_bad_input_is_named(changes: dict[str, object], words: str) -> None:
    given = {"work": TRAFFIC, "cost": COST, "configs": [EngineConfig(8)], "slo": PROMISE} | changes
    with pytest.raises(ValueError, match=words):
        plan_replicas(**given)  # type: ignore[arg-type]


def test_the_report_tells_the_same_numbers() -> None:
    found = plan_replicas(TRAFFIC, COST, [EngineConfig(32), EngineConfig(64)], PROMISE)
    report = ReplicaReport(found, 2, 3.0, ("a note",))
    best = found.best
    assert best is not None
    assert f"{best.replicas} replicas ({2 * best.replicas} GPUs, " in report.answer
    assert (
        usd_per_hour(best.replicas, 2, 3.0)
        == 6.0 * best.replicas
        == report.usd_per_hour(best.replicas)
    )
    heads, *rows = report.table()
    assert all(len(row) == len(heads) for row in rows)
    assert [row[0] for row in rows].count("*") == 1
    told = report.as_dict()
    assert told["options"][told["best"]]["replicas"] == best.replicas
    assert "! a note" in report.as_text()
    assert report.why_not_cheaper.startswith("One replica fewer keeps the promise for ")
    sure = replace(found, best=replace(best, low=0.97, high=0.99))
    unsure = replace(found, best=replace(best, low=0.90, high=0.99))
    assert "Parts of the traffic agree" in ReplicaReport(sure, 1, None).answer
    assert "That is not sure" in ReplicaReport(unsure, 1, None).answer
