"""What the pictures of notebook 02 draw and say, against figures worked out here by other ways:
textbook formulas written out, linear algebra on small Markov chains, and a plain event loop. A
picture that disagreed with its own sentence, or with the theory, would teach the wrong number."""

from __future__ import annotations

import csv
import heapq
import math
from typing import Any

import numpy as np
import pytest
from scipy.linalg import expm

from course.explore.ch02.loops import loops
from course.explore.ch02.pooling import pooling
from course.explore.ch02.variability import variability
from course.paths import DATA
from course.words import percent, seconds
from tests.ui.pictures import presets_of, xy

# --- variability ------------------------------------------------------------------------------


def kingman_s(load: Any, p: Any) -> Any:
    """Kingman (1961); for Poisson arrivals the same as Pollaczek and Khinchine."""
    return load / (1 - load) * (p.arrivals_cv**2 + p.service_cv**2) / 2 * p.service_s


@presets_of(variability)
def test_waits_are_drawn_where_the_formula_puts_them(opened: Any, preset: str) -> None:
    shell = opened(variability, preset)
    p, picture = shell.parameters, shell.drawing
    load, wait_s = xy(picture.formula)
    assert load.size > 100
    np.testing.assert_allclose(wait_s, kingman_s(load, p), rtol=1e-12)
    for line, cv in ((picture.memoryless, 1.0), (picture.constant, 0.0)):
        load, wait_s = xy(line)
        expected = load / (1 - load) * (1 + cv**2) / 2 * p.service_s
        np.testing.assert_allclose(wait_s, expected, rtol=1e-12)
    here = p.arrival_rate_per_s * p.service_s
    (x,), (y,) = xy(picture.here_formula)
    assert (x, y) == (pytest.approx(here), pytest.approx(kingman_s(here, p)))


@presets_of(variability)
def test_the_sentence_says_the_waits_that_are_drawn(opened: Any, preset: str) -> None:
    shell = opened(variability, preset)
    picture, words = shell.drawing, shell.sentence
    _, (formula_s,) = xy(picture.here_formula)
    _, (simulated_s,) = xy(picture.here_simulated)
    assert f"waits {seconds(formula_s)} by {shell.result.formula}" in words
    assert f"waited {seconds(simulated_s)} on average" in words
    assert seconds(formula_s) in picture.formula_words.get_text()
    assert seconds(simulated_s) in picture.simulated_words.get_text()
    assert ("exact here" in words) == (shell.parameters.arrivals_cv == 1)


@presets_of(variability)
def test_simulated_waits_bear_the_formula_out_where_it_is_exact(opened: Any, preset: str) -> None:
    """And nowhere is Kingman's approximation so far off that it would not be worth teaching."""
    shell = opened(variability, preset)
    load, wait_s = xy(shell.drawing.simulated)
    busy = (load > 0.5) & (load < 0.9)
    off = np.abs(wait_s / kingman_s(load, shell.parameters) - 1)[busy]
    assert off.max() < (0.06 if shell.result.exact else 0.15)


def test_the_sentence_judges_the_formula_by_the_band(opened: Any) -> None:
    for values in ({}, {"arrivals_cv": 2.5, "customers": 500_000, "arrival_rate_per_s": 0.8}):
        shell = opened(variability, **values)
        r = shell.result
        low, high = r.here.band_s
        inside = low <= r.formula_s <= high
        assert inside == ("the formula lies inside" in shell.sentence)
        if not inside:
            off = percent(abs(r.formula_s / r.here.mean_s - 1))
            side = "below" if r.formula_s < r.here.mean_s else "above"
            assert f"the formula is {off} {side} that" in shell.sentence


def test_no_variability_no_wait(opened: Any) -> None:
    shell = opened(variability, arrivals_cv=0.0, service_cv=0.0)
    assert "waits 0 s by Kingman, exact here" in shell.sentence
    assert xy(shell.drawing.formula)[1].max() == 0


def test_the_same_luck_moves_points_smoothly(opened: Any) -> None:
    """With fresh luck at each step of a slider the points would jump where the queue does not."""
    shell = opened(variability, arrival_rate_per_s=1.8)
    waits = []
    for cv in (1.0, 1.05, 1.1, 1.15, 1.2):
        shell.set_state(service_cv=cv)
        waits.append(shell.result.here.mean_s / kingman_s(0.9, shell.parameters))
    assert np.abs(np.diff(waits)).max() < 0.012


def test_the_stories_quote_the_traces() -> None:
    rows = {}
    with open(DATA / "traces" / "length_statistics.csv", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows[row["trace"], row["which"]] = row
    for trace, cv, mean in (("azure-2023-code", 2.15, 28), ("azure-2023-conversation", 0.77, 211)):
        row = rows[trace, "output"]
        assert float(row["sd_tokens"]) / float(row["mean_tokens"]) == pytest.approx(cv, abs=5e-3)
        assert round(float(row["mean_tokens"])) == mean
    with open(DATA / "traces" / "arrival_statistics.csv", encoding="utf-8") as file:
        code = next(row for row in csv.DictReader(file) if row["trace"] == "azure-2023-code")
    assert round(float(code["gap_cv"])) == 13
    assert "falls to 2.2 without the 57 gaps of more than 5 s" in code["note"]


# --- pooling ----------------------------------------------------------------------------------


class Chain:
    """M/M/c/K solved as a linear system; K large enough stands for an unbounded queue."""

    def __init__(self, arrival_per_s: float, service_per_s: float, servers: int, places: int):
        self.mu, self.c = service_per_s, servers
        size = servers + places + 1
        rates = np.zeros((size, size))
        for n in range(size - 1):
            rates[n, n + 1] = arrival_per_s
            rates[n + 1, n] = min(n + 1, servers) * service_per_s
        rates -= np.diag(rates.sum(axis=1))
        balance = rates.T.copy()
        balance[-1] = 1.0  # one equation follows from the others; in its place: they sum to 1
        states = np.linalg.solve(balance, np.append(np.zeros(size - 1), 1.0))
        self.rejected_share = states[-1]
        self.found = states[:-1] / states[:-1].sum()

    def mean_s(self, wait_only: bool) -> float:
        ahead = np.maximum(np.arange(self.found.size) - self.c + 1, 0)
        wait_s = float(self.found @ ahead) / (self.c * self.mu)
        return wait_s if wait_only else wait_s + 1 / self.mu

    def longer_than(self, time_s: float, wait_only: bool) -> float:
        """Follow one request: from its place in the queue, step by step, to its own service."""
        places = self.found.size - self.c  # 0: in service, k: k services to go before it starts
        steps = np.zeros((places + 1, places + 1))
        steps[0, 0] = -self.mu
        for k in range(1, places + 1):
            steps[k, k], steps[k, k - 1] = -self.c * self.mu, self.c * self.mu
        start = np.append(self.found[: self.c].sum(), self.found[self.c :])
        left = start @ expm(steps * time_s)
        return float(left[1:].sum() if wait_only else left.sum())


def chains_of(p: Any, arrival_per_s: float) -> list[Chain]:
    c, mu = p.servers, p.service_rate_per_s
    places = 250 if p.waiting_places is None else None
    return [
        Chain(arrival_per_s / c, mu, 1, places or p.waiting_places),
        Chain(arrival_per_s, mu, c, places or c * p.waiting_places),
        Chain(arrival_per_s, c * mu, 1, places or c * (1 + p.waiting_places) - 1),
    ]


def agrees(chain: Chain, p: Any, value_s: float) -> None:
    if p.percentile is None:
        assert value_s == pytest.approx(chain.mean_s(p.wait_only), rel=1e-6)
    else:
        longer = chain.longer_than(value_s, p.wait_only)
        assert longer == pytest.approx(1 - p.percentile, rel=1e-5)


@pytest.mark.slow
@presets_of(pooling)
def test_pooled_times_are_drawn_where_the_chains_put_them(opened: Any, preset: str) -> None:
    shell = opened(pooling, preset)
    p, picture = shell.parameters, shell.drawing
    capacity_per_s = p.servers * p.service_rate_per_s
    curves = [xy(series.curve) for series in picture.series]
    for index in (5, 25, 45):
        load = curves[0][0][index]
        chains = chains_of(p, load * capacity_per_s)
        for chain, (x, y), series in zip(chains, curves, picture.series, strict=True):
            assert x[index] == load
            agrees(chain, p, y[index])
            if p.waiting_places is not None:
                shares = xy(series.rejected)[1]
                assert shares[index] == pytest.approx(chain.rejected_share, rel=1e-6, abs=1e-12)
    x, y = xy(picture.here_points)
    assert x == pytest.approx([p.arrival_rate_per_s / capacity_per_s] * 3)
    for chain, value_s in zip(chains_of(p, p.arrival_rate_per_s), y, strict=True):
        agrees(chain, p, value_s)


@presets_of(pooling)
def test_the_sentence_names_all_three_systems_as_drawn(opened: Any, preset: str) -> None:
    shell = opened(pooling, preset)
    picture, words, r = shell.drawing, shell.sentence, shell.result
    _, drawn = xy(picture.here_points)
    for value_s, series, name in zip(
        drawn,
        picture.series,
        ("separate queues", "one shared queue", f"one server {r.servers} times as fast"),
        strict=True,
    ):
        assert f"{seconds(value_s)} with" in words
        assert name in words
        assert seconds(value_s) in series.words.get_text()
    for series in picture.series:
        _, (simulated_s,) = xy(series.simulated)
        assert seconds(simulated_s) in words.split("Simulated with")[1]
    if r.bounded:
        for chain, series in zip(
            chains_of(shell.parameters, r.arrival_rate_per_s), picture.series, strict=True
        ):
            assert percent(chain.rejected_share) in words
            assert percent(chain.rejected_share) in series.rejected_words.get_text()
    else:
        assert "urned away" not in words


@presets_of(pooling)
def test_simulated_systems_lie_near_the_theory(opened: Any, preset: str) -> None:
    r = opened(pooling, preset).result
    for system in r.systems:
        assert system.simulated.value_s == pytest.approx(system.value_s, rel=0.1)
        assert system.simulated.rejected_share == pytest.approx(
            system.rejected_share, rel=0.06, abs=1e-9
        )
    bands = [system.simulated.band_s for system in r.systems]
    inside = [
        band is not None and band[0] <= system.value_s <= band[1]
        for band, system in zip(bands, r.systems, strict=True)
    ]
    words = pooling.narrate(r)
    assert ("too short a run for honest bands" in words) == (None in bands)
    assert ("inside every 95\u00a0% band" in words) == all(inside)


def test_one_server_is_one_system(opened: Any) -> None:
    for places in (None, 5):
        shell = opened(pooling, servers=1, arrival_rate_per_s=0.7, waiting_places=places)
        values = [system.value_s for system in shell.result.systems]
        assert values == pytest.approx([values[0]] * 3, rel=1e-12)
        assert "the three are the same" in shell.sentence


def test_a_bounded_queue_has_a_second_panel_and_no_wall(opened: Any) -> None:
    """A hatched "no steady state" over a queue that turns people away would be false."""
    shell = opened(pooling)
    picture = shell.drawing
    assert picture.no_state.get_visible()
    assert not picture.below.get_visible()
    assert not picture.turned_away.get_visible()
    shell.set_state(waiting_places=2, arrival_rate_per_s=12.0)
    assert not picture.no_state.get_visible()
    assert picture.below.get_visible()
    assert picture.turned_away.get_visible()
    assert "Turned away are" in shell.sentence
    shell.set_state(waiting_places=None)
    assert "more work arrives than can be done" in shell.svg
    assert "grow for as long as this lasts" in shell.sentence


def test_a_load_beyond_the_picture_is_said_to_be_there(opened: Any) -> None:
    shell = opened(pooling, waiting_places=2, arrival_rate_per_s=40.0)
    assert "your load, 400\u00a0%, is beyond" in shell.svg
    assert xy(shell.drawing.here_points)[0].size == 0


# --- loops ------------------------------------------------------------------------------------


def repairmen(users: int, think_s: float, rate_per_s: float) -> tuple[float, float]:
    """Throughput and mean response of the closed loop from its state probabilities."""
    if think_s == 0:
        return rate_per_s, users / rate_per_s
    weights = [1.0]
    for n in range(users):
        weights.append(weights[-1] * (users - n) / (think_s * rate_per_s))
    probability = np.array(weights) / sum(weights)
    throughput = rate_per_s * (1 - probability[0])
    return throughput, float(probability @ np.arange(users + 1)) / throughput


@presets_of(loops)
def test_loops_are_drawn_where_the_theory_puts_them(opened: Any, preset: str) -> None:
    shell = opened(loops, preset)
    p, picture = shell.parameters, shell.drawing
    rate = p.service_rate_per_s
    x, y = xy(picture.closed)
    for index, users in ((0, 1), (7, 8), (29, 30), (-1, 100)):
        throughput, response_s = repairmen(users, p.think_s, rate)
        assert x[index] == pytest.approx(throughput / rate, rel=1e-9)
        assert y[index] == pytest.approx(response_s, rel=1e-9)
    x, y = xy(picture.open)
    np.testing.assert_allclose(y, 1 / (rate - rate * x), rtol=1e-9)
    throughput, response_s = repairmen(p.users, p.think_s, rate)
    (x,), (y,) = xy(picture.here_closed)
    assert (x * rate, y) == (pytest.approx(throughput), pytest.approx(response_s))
    assert seconds(response_s) in picture.closed_words.get_text()
    assert f"{seconds(response_s)} on average" in shell.sentence
    if throughput < 0.999999 * rate:
        _, (opened_s,) = xy(picture.here_open)
        assert opened_s == pytest.approx(1 / (rate - throughput), rel=1e-6)
        assert f"take {seconds(opened_s)}" in shell.sentence
    else:
        assert xy(picture.here_open)[0].size == 0
        assert "queue without end" in shell.sentence


@presets_of(loops)
def test_the_simulated_loop_lies_near_the_exact_one(opened: Any, preset: str) -> None:
    r = opened(loops, preset).result
    assert r.simulated_per_s == pytest.approx(r.throughput_per_s, rel=0.1)
    assert r.simulated_s == pytest.approx(r.response_s, rel=0.15)


def by_hand(p: Any, stall_s: float) -> tuple[list[float], list[float], list[float]]:
    """The stalled run as a plain event loop; the plan from a closed loop as plain as that."""
    rng = np.random.default_rng(p.seed)
    first, later, services = (rng.exponential(size=n) for n in (100, p.requests, p.requests))
    services = services / p.service_rate_per_s
    sends = [(think, user) for user, think in enumerate(p.think_s * first[: p.users])]
    heapq.heapify(sends)
    free_s, plan = 0.0, []
    for k in range(p.requests):
        sent, user = heapq.heappop(sends)
        free_s = max(free_s, sent) + services[k]
        plan.append(sent)
        heapq.heappush(sends, (free_s + p.think_s * later[k], user))
    workers, free_s, sent_s, end_s = [0.0] * p.users, 0.0, [], []
    for k, planned in enumerate(plan):
        sent = max(planned, heapq.heappop(workers))
        extra = stall_s if k == p.requests // 3 else 0.0
        free_s = max(free_s, sent) + services[k] + extra
        heapq.heappush(workers, free_s)
        sent_s.append(sent)
        end_s.append(free_s)
    return plan, sent_s, end_s


@pytest.mark.slow
@presets_of(loops)
def test_both_stopwatches_show_what_an_event_loop_by_hand_shows(opened: Any, preset: str) -> None:
    shell = opened(loops, preset)
    p, picture, words = shell.parameters, shell.drawing, shell.sentence
    plan, sent_s, end_s = map(np.array, by_hand(p, p.stall_s))
    tool_s = float(np.quantile(end_s - sent_s, 0.99))
    plan_s = float(np.quantile(end_s - plan, 0.99))
    assert xy(picture.p99_sent)[1] == pytest.approx([tool_s] * 2)
    assert xy(picture.p99_scheduled)[1] == pytest.approx([plan_s] * 2)
    assert seconds(tool_s) in picture.sent_words.get_text()
    assert seconds(plan_s) in picture.scheduled_words.get_text()
    x, y = xy(picture.scheduled)
    begins = shell.result.stall.stall_s
    drawn = np.searchsorted(plan, begins + x[0] - 1e-9)
    np.testing.assert_allclose(y, (end_s - plan)[drawn : drawn + y.size], atol=1e-9)
    late = int((sent_s - plan > 1e-9).sum())
    if p.stall_s:
        assert f"a P99 of {seconds(tool_s)}" in words
        assert f"from the planned times it is {seconds(plan_s)}" in words
        assert f"{late:,} requests were sent late" in words
        assert plan_s > tool_s
    else:
        assert late == 0
        assert f"the P99 is {seconds(plan_s)} on both stopwatches" in words


@pytest.mark.parametrize(("users", "think_s"), [(1, 0.0), (8, 0.9), (100, 0.0), (60, 10.0)])
def test_without_a_stall_nothing_is_omitted(opened: Any, users: int, think_s: float) -> None:
    """Otherwise the picture would blame the stall for what the comparison itself makes up."""
    stall = opened(loops, users=users, think_s=think_s, stall_s=0.0).result.stall
    assert stall.late == 0
    np.testing.assert_array_equal(stall.from_sent_s, stall.from_scheduled_s)


# --- all three ----------------------------------------------------------------------------------


@pytest.mark.parametrize("explorer", [variability, pooling, loops], ids=lambda e: e.call)
def test_the_guess_is_a_star_at_its_own_height(opened: Any, explorer: Any) -> None:
    shell = opened(explorer, explorer.presets[0].name)
    answer = explorer.prediction.answer(shell.result)
    shell.commit(0.7 * answer)
    (x,), (y,) = xy(shell.drawing.guess.star)
    assert y == pytest.approx(0.7 * answer)
    if explorer is not loops:
        assert x == pytest.approx(shell.result.utilization)
    assert f"your guess {seconds(0.7 * answer)}" in shell.svg
    shell.commit(1e5)
    assert "your guess 100,000 s" in shell.svg
    shell.commit(0.0)
    assert "your guess 0 s" in shell.svg


@pytest.mark.parametrize(
    ("explorer", "name", "values"),
    [
        (variability, "arrival_rate_per_s", (1.35, 1.4, 1.45, 1.5)),
        (variability, "service_cv", (0.9, 1.0, 1.1, 1.2)),
        (pooling, "servers", (10, 11, 12, 13)),
        (pooling, "arrival_rate_per_s", (7.8, 8.0, 8.2, 8.4)),
        (pooling, "service_rate_per_s", (1.0, 1.1, 1.2, 1.3)),
        (loops, "users", (6, 7, 8, 9)),
        (loops, "think_s", (0.8, 0.9, 1.0, 1.1)),
    ],
)
def test_axes_stand_still_while_a_slider_moves(
    opened: Any, explorer: Any, name: str, values: tuple[float, ...]
) -> None:
    shell = opened(explorer)
    before = shell.drawing.frame_key()
    pictures = set()
    for value in values:
        shell.set_state(**{name: value})
        pictures.add(shell.svg)
        assert shell.drawing.frame_key() == before
    assert len(pictures) == len(values)


def test_infinite_values_are_never_drawn_as_words(opened: Any) -> None:
    shell = opened(loops, users=100, think_s=0.0)
    assert math.isinf(shell.result.open_s)
    assert "open without end" in shell.svg
