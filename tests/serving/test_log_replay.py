"""Real vLLM logs through the engine: what the course may claim about how near its engine comes."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from scipy.optimize import nnls

from course.commands.replay import table_text, write_table
from course.paths import DATA
from course.serving import catalog
from course.serving.engine import simulate
from course.serving.validation import log_replay
from course.serving.validation.log_replay import (
    CHOSEN_RULE,
    COMMITTED,
    LOGS,
    RULES,
    committed_rows,
    fit_first_half,
    fit_iteration_times,
    log_config,
    replay,
    step_features,
)
from course.serving.workload import Workload

BARS = {"rtx-4090": 0.05, "rtx-pro-6000": 0.08}
FIGURES = ["ttft_mean", "ttft_p99", "tpot_mean", "tpot_p99", "e2e_mean", "e2e_p99"]


def rows(log_name: str = "rtx-4090") -> tuple[catalog.IterationTime, ...]:
    return catalog.iteration_times(catalog.vllm_log(log_name).gpu, "llmservingsim")


# --- what is claimed ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOGS)
def test_chosen_rule_stays_inside_its_bar(name: str) -> None:
    """The course claims a precision that its engine and its cost do not have."""
    replayed = replay(name)
    assert [figure.figure for figure in replayed.figures] == FIGURES
    for figure in replayed.figures:
        assert abs(figure.error) <= BARS[name], figure


def test_committed_table_is_what_the_code_gives() -> None:
    """The table in the notebooks is of another engine than the one in the repository."""
    assert (DATA / COMMITTED).read_text(encoding="utf-8") == table_text(), (
        "the replay has changed: write the table anew with course.commands.replay.write_table()"
    )


def test_committed_table_has_every_rule_and_card() -> None:
    """The rule that looks worse has been left out of the table."""
    found = [(row.card, row.rule, row.figure) for row in committed_rows()]
    cards = [catalog.vllm_log(name).gpu for name in LOGS]
    assert found == [(card, rule, f) for card in cards for rule in RULES for f in FIGURES]
    for row in committed_rows():
        assert row.error == pytest.approx(row.simulated_s / row.measured_s - 1, abs=1e-3)
    bars = {catalog.vllm_log(name).gpu: bar for name, bar in BARS.items()}
    chosen = [row for row in committed_rows() if row.rule == CHOSEN_RULE]
    assert all(abs(row.error) <= bars[row.card] for row in chosen)


def test_write_table_can_write_elsewhere(tmp_path) -> None:
    where = write_table(tmp_path / "again.csv")
    assert where.read_bytes() == (DATA / COMMITTED).read_bytes()


def test_readme_says_what_the_table_says() -> None:
    """The README's errors are those of an earlier engine."""
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    for name in LOGS:
        for rule in RULES:
            replayed = replay(name, rule)
            errors = " | ".join(f"{100 * f.error:+.1f}" for f in replayed.figures)
            assert f"| {replayed.log.gpu} | {rule} | {errors} |" in readme, (name, rule, errors)
        replayed = replay(name)
        if replayed.most_preemptions:
            assert f"{100 * replayed.preempted_share:.1f} % of the requests" in readme
            assert f"at most {replayed.most_preemptions} times" in readme


# --- what is replayed --------------------------------------------------------------------------


@pytest.mark.parametrize("name", LOGS)
def test_every_logged_request_is_replayed_with_the_servers_settings(name: str) -> None:
    """The simulated server is another one than the log's, or has less to do."""
    replayed = replay(name)
    log, run = replayed.log, replayed.run
    assert (run.status == 0).all()
    assert len(run) == log.arrival_s.size
    np.testing.assert_array_equal(run.arrival_s, log.arrival_s)
    np.testing.assert_array_equal(run.work.prompt_tokens, log.prompt_tokens)
    np.testing.assert_array_equal(run.emitted_tokens, log.output_tokens)
    config = run.config
    assert (config.max_num_seqs, config.max_num_batched_tokens, config.num_kv_blocks) == (
        log.max_num_seqs,
        log.max_num_batched_tokens,
        None if log.num_kv_blocks is None else log.num_kv_blocks - 1,  # vLLM's null block
    )
    assert config.async_scheduling
    assert config.scheduler_reserve_full_isl
    assert config.enable_prefix_caching == (log.num_kv_blocks is not None)
    assert config.enable_chunked_prefill
    assert run.step_decode_seqs.max() <= log.max_num_seqs


@pytest.mark.parametrize("name", LOGS)
def test_ttft_of_single_requests_is_distributed_as_on_the_server(name: str) -> None:
    """Means agree while the queue that single requests see is another one."""
    replayed = replay(name)
    ours, theirs = np.sort(replayed.run.ttft_s), np.sort(replayed.log.ttft_s)
    both = np.concatenate([ours, theirs])
    apart = np.searchsorted(ours, both, "right") - np.searchsorted(theirs, both, "right")
    assert replayed.ttft_distance == pytest.approx(np.abs(apart).max() / ours.size)
    assert replayed.ttft_distance < 0.10


def test_each_rule_of_today_brings_the_4090_nearer() -> None:
    """A rule of the scheduler was written down that the server does not have."""
    log = catalog.vllm_log("rtx-4090")
    work = Workload(log.arrival_s, log.prompt_tokens, log.output_tokens)
    cost = replay("rtx-4090").fit.cost
    yesterday = dataclasses.replace(
        log_config(log),
        num_kv_blocks=log.num_kv_blocks,
        scheduler_reserve_full_isl=False,
        enable_prefix_caching=False,
        async_scheduling=False,
    )
    whole = dataclasses.replace(
        yesterday, num_kv_blocks=log.num_kv_blocks - 1, scheduler_reserve_full_isl=True
    )
    cached = dataclasses.replace(whole, enable_prefix_caching=True)
    preemptions, off = [], []
    for config in (yesterday, whole, cached):
        run = simulate(work, cost, config)
        preemptions.append(int(run.preemptions.sum()))
        off.append(round(100 * (run.ttft_s.mean() / log.ttft_s.mean() - 1), 1))
    # as another simulator, written apart from the same rules, gave them
    assert preemptions == [250, 193, 195]
    assert off == [3.2, 2.2, -0.1]


@pytest.mark.slow
def test_the_second_half_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fit to the whole log is shown as a prediction."""
    found = fit_first_half("rtx-pro-6000")
    log = catalog.vllm_log("rtx-pro-6000")
    late = np.arange(log.arrival_s.size) >= log.arrival_s.size // 2
    slower = {
        name: np.where(late, 2 * getattr(log, name), getattr(log, name))
        for name in ("ttft_s", "e2e_s")
    }
    monkeypatch.setattr(log_replay, "vllm_log", lambda _: dataclasses.replace(log, **slower))
    assert fit_first_half("rtx-pro-6000").factors == found.factors


def test_only_the_full_card_preempts() -> None:
    """The saturated log is replayed without the thing that makes it interesting."""
    assert 0.1 < replay("rtx-4090").preempted_share < 1
    assert replay("rtx-4090").most_preemptions > 1
    assert replay("rtx-pro-6000").most_preemptions == 0


def test_figures_are_those_of_the_log() -> None:
    """Measured and simulated percentiles are two different statistics."""
    replayed = replay("rtx-4090")
    by_name = {figure.figure: figure for figure in replayed.figures}
    log, run = replayed.log, replayed.run
    for name in ("ttft", "tpot", "e2e"):
        measured, simulated = getattr(log, f"{name}_s"), getattr(run, f"{name}_s")
        assert by_name[f"{name}_mean"].measured_s == pytest.approx(measured.mean())
        assert by_name[f"{name}_p99"].measured_s == pytest.approx(np.percentile(measured, 99))
        assert by_name[f"{name}_p99"].simulated_s == pytest.approx(np.percentile(simulated, 99))
        np.testing.assert_allclose(replayed.request_errors[name], simulated / measured - 1)
    assert replayed.worst_error == max(abs(figure.error) for figure in replayed.figures)


def test_interpreted_replay_is_the_same() -> None:
    compiled, interpreted = replay("rtx-4090"), replay("rtx-4090", compiled=False)
    assert compiled.figures == interpreted.figures


# --- the fit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", RULES)
def test_fit_finds_the_prices_that_made_the_steps(rule: str) -> None:
    """A fit that cannot find known prices in clean rows finds nothing in measured ones."""
    made = []
    for phase, sequences, tokens in [
        ("decode", 1, 100), ("decode", 8, 500), ("decode", 64, 300), ("decode", 256, 2000),
        ("prefill", 1, 100), ("prefill", 2, 700), ("prefill", 1, 2048), ("prefill", 1, 8000),
    ]:  # fmt: skip
        row = dataclasses.replace(
            rows()[0], phase=phase, sequences=sequences,
            prompt_tokens=tokens if phase == "prefill" else 0,
            context_tokens=tokens if phase == "decode" else 0,
        )  # fmt: skip
        n, pairs, seqs, kv = step_features(row)
        attention_s = 3e-9 * pairs + 5e-8 * kv
        made.append(
            dataclasses.replace(
                row,
                attention_s=attention_s,
                step_s=0.012 + 2e-5 * n + 4e-5 * seqs + attention_s,
            )
        )
    fit = fit_iteration_times(made, rule)
    assert fit.not_told_apart == ()
    found = [getattr(fit.cost, name) for name in log_replay.PRICES]
    assert found == pytest.approx([0.012, 2e-5, 3e-9, 4e-5, 5e-8], rel=1e-4)
    assert fit.worst_error < 1e-4
    assert len(fit.errors) == len(made)


def test_prefill_pairs_count_the_triangle() -> None:
    """A prompt of 4 tokens attends to 1 + 2 + 3 + 4, and two prompts to twice that."""
    row = dataclasses.replace(rows()[-1], sequences=2, prompt_tokens=4)
    assert step_features(row) == (8, 20, 0, 0)


@pytest.mark.parametrize("name", LOGS)
def test_sequences_and_kv_tokens_are_not_told_apart(name: str) -> None:
    """All decode rows have a context of 512: who reads the two prices as measured is misled."""
    fit = fit_iteration_times(rows(name))
    assert fit.not_told_apart == (("per_decode_seq_s", "per_kv_token_s"),)
    assert fit.cost.per_decode_seq_s == 0
    assert fit_iteration_times(rows(name), "parts").cost.per_decode_seq_s > 0


@pytest.mark.parametrize("name", LOGS)
def test_naming_the_tie_leaves_plain_least_squares_as_it_is(name: str) -> None:
    """The rule would be one of our making and not the plain one it is called."""
    features = np.array([(1, *step_features(row)) for row in rows(name)], dtype=np.float64)
    step_s = np.array([row.step_s for row in rows(name)])
    plain, _ = nnls(features / step_s[:, None], np.ones_like(step_s))
    fitted = [getattr(fit_iteration_times(rows(name)).cost, price) for price in log_replay.PRICES]
    assert fitted == pytest.approx(plain.tolist(), rel=1e-5, abs=1e-15)


def test_fit_says_how_far_it_is_off() -> None:
    fit = fit_iteration_times(rows())
    again = [
        fit.cost.step_seconds(step_features(row)) / row.step_s - 1  # type: ignore[operator]
        for row in rows()
    ]
    assert list(fit.errors) == pytest.approx(again)
    assert 0 < fit.median_error < 0.06 < fit.worst_error < 0.15
    assert math.isclose(fit.worst_error, max(map(abs, again)))


def broken(**changes: object) -> list[catalog.IterationTime]:
    return [dataclasses.replace(rows()[0], **changes), *rows()[1:]]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "rule", "words"),
    [
        (rows(), "median", r"rule='median' is not known; give one of relative"),
        (broken(step_s=None), "relative", r"rows\[0\]\.step_s=None is no time"),
        (broken(step_s=0.0), "relative", r"rows\[0\]\.step_s=0\.0 is no time"),
        (broken(attention_s=None), "parts", r"rows\[0\]\.attention_s=None is no time"),
        (broken(phase="mixed"), "relative", r"phase='mixed' is neither prefill nor decode"),
        (broken(gpu="T4"), "relative", r"Llama-3.1-8B on 1 × RTX-4090, .* on 1 × T4; give"),
        (rows()[:7], "relative", r"rows hold no prefill step"),
        (rows()[7:], "relative", r"rows hold no decode step"),
        ((), "relative", r"rows hold no prefill step"),
    ],
)
def test_bad_rows_get_a_sentence(given, rule: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        fit_iteration_times(given, rule)


def test_unknown_log_gets_a_suggestion() -> None:
    with pytest.raises(catalog.UnknownNameError, match="did you mean 'rtx-4090'"):
        replay("4090")


def test_words_and_frame_show_both_sides() -> None:
    text = log_replay.replay_text(replay("rtx-4090"))
    assert "ttft_p99" in text
    assert "preempted in the simulation: 38" in text
    assert "preempted in the simulation: none" in log_replay.replay_text(replay("rtx-pro-6000"))
    frame = log_replay.to_frame(committed_rows())
    assert frame.shape == (2 * len(RULES) * 6, 7)
    assert list(frame["rule"].unique()) == list(RULES)
