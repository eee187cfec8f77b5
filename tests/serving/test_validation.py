"""Predicted against measured: the committed tables are the code's, and keep what is promised."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import numpy as np
import pytest

from course.serving import catalog
from course.serving.catalog.tables import DATA
from course.serving.engine import EngineConfig, simulate_closed
from course.serving.pricing.linear import DEFAULTS, RooflineStepCost
from course.serving.validation.closed_loop import (
    _drawn,
    predict_row,
    row_cost,
    row_kv_precision,
    row_precision,
    schedule_row,
    server_of,
)
from course.serving.validation.error_tables import (
    HOST_OF_2023,
    LEFT_OUT,
    ONE_SET,
    OWN,
    band_coverage,
    committed_folds,
    error_band,
)
from course.serving.validation.fit import MeasuredStep
from course.serving.validation.points import (
    FITTED,
    FITTED_THEN,
    committed_constants,
    committed_errors,
    committed_points,
    committed_steps,
    comparable_points,
    error_row,
    fit_committed_points,
    fit_statement,
    fit_step_setups,
    kind_of,
    predict_closed_loop,
    setup_of,
    step_setups,
)
from course.serving.workload import Workload

POINTS = committed_points()
STEPS = committed_steps()
EVERY = 12
"""One committed point in so many is simulated anew here; `python -m course validate` does all."""


# --- what is claimed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "median", "p90"),
    [
        ("throughput", 0.065, 0.18),
        ("TPOT", 0.07, math.inf),
        (LEFT_OUT, 0.10, 0.18),
        (OWN, 0.04, math.inf),
    ],
)
@pytest.mark.parametrize("block", ["recorded", "derived", "all"])
def test_errors_are_within_what_is_promised(
    figure: str, block: str, median: float, p90: float
) -> None:
    """A course that shows numbers says how far they are from real ones; it would say it wrongly."""
    row = error_row(figure, block)
    assert row.median <= median
    assert row.p90 <= p90


@pytest.mark.parametrize(
    ("kind", "median", "p90"), [("4 bits", 0.12, 0.24), ("experts", 0.13, 0.42)]
)
def test_what_is_known_less_well_is_within_what_is_said(
    kind: str, median: float, p90: float
) -> None:
    row = error_row(LEFT_OUT, kind)
    assert row.median <= median
    assert row.p90 <= p90


@pytest.mark.parametrize("figure", ["throughput", "TPOT", "TTFT"])
@pytest.mark.parametrize("kind", ["dense", "4 bits", "experts"])
def test_bands_hold_as_many_points_as_they_promise(kind: str, figure: str) -> None:
    """A band of nine in ten that holds six, or all, would be a decoration."""
    assert 0.85 <= band_coverage(kind, figure) <= 0.97


def test_a_band_by_hand() -> None:
    mine = [r for r in POINTS if r.kind == "4 bits"]
    sizes = sorted(abs(math.log(r.left_out_tokens_per_s / r.measured_tokens_per_s)) for r in mine)
    place = (0.9 + 0.1 / 2) * (len(sizes) - 1)  # four set-ups
    low = int(place)
    middle = sizes[low] + (place - low) * (sizes[low + 1] - sizes[low])
    assert error_band("4 bits") == pytest.approx(math.exp(middle))
    with pytest.raises(ValueError, match="figure='speed' is not known"):
        error_band("dense", "speed")
    with pytest.raises(ValueError, match="kind='sparse' is not known"):
        error_band("sparse")


def test_what_was_left_out_is_every_row_once_by_each_fold() -> None:
    for fold in ("set-up", "source", "card", "model"):
        assert sum(row.points for row in committed_folds() if row.fold == fold) == len(POINTS)
    dense = [r for r in committed_folds() if (r.fold, r.kind) == ("card", "dense")]
    assert {row.left_out for row in dense} == {
        "H100-80GB-SXM", "H200-141GB-SXM", "B200-180GB-SXM",
    }  # fmt: skip
    assert max(row.throughput_median for row in dense) < 0.10


def test_steps_of_kernels_are_within_17_per_cent() -> None:
    claimed = [row for row in STEPS if row.source != HOST_OF_2023]
    assert len(claimed) == 176
    for row in claimed:
        assert abs(row.predicted_s / row.measured_s - 1) <= 0.17, row


def test_no_step_is_below_the_bound_of_reading_the_weights() -> None:
    """Measured: the catalogue's bandwidth is too low. Predicted: the formula is wrong."""
    for row in STEPS:
        assert row.measured_s >= row.weight_read_s, row
        assert row.predicted_s >= row.weight_read_s, row


def test_statement_is_read_from_the_table() -> None:
    words = fit_statement().replace("\u00a0", " ")
    recorded = error_row("throughput", "recorded")
    assert f"Held against {recorded.points} load levels" in words
    assert f"off by {100 * recorded.median:.0f} % in the median" in words
    assert f"at most {100 * recorded.p90:.0f} % on nine of ten" in words
    assert f"fitted to that set-up alone, by {100 * error_row(OWN, 'all').median:.0f} %" in words
    with pytest.raises(ValueError, match="figure='speed', block='all' is not known"):
        error_row("speed", "all")


def test_readme_prints_the_errors_of_the_table() -> None:
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    for row in committed_errors()[:40]:
        cells = f"{100 * row.median:.1f} | {100 * row.p90:.1f} | {100 * row.worst:.1f} |"
        assert f"| {row.figure}, {row.block} | {row.points} | {cells}" in readme, row
    for name, rows in (
        ("serving_points", POINTS),
        ("iteration_times", STEPS),
        ("constants", committed_constants()),
        ("left_out", committed_folds()),
    ):
        (stated,) = re.findall(rf"^\| `validation/{name}\.csv` \| (\d+) \|", readme, re.MULTILINE)
        assert int(stated) == len(rows)
    assert "within 17 %" in readme
    worst = max(abs(r.predicted_s / r.measured_s - 1) for r in STEPS if r.source == HOST_OF_2023)
    assert f"up to {100 * worst:.0f} % off" in readme


# --- the table is the code's ---------------------------------------------------------------------


def test_the_table_holds_every_comparable_point_once() -> None:
    """A point that the model gets wrong could be left out of the table."""
    rows = comparable_points()
    assert len(rows) == len(POINTS) == 682
    for measured, row in zip(rows, POINTS, strict=True):
        assert row.setup == setup_of(measured)
        assert (row.concurrency, row.prompt_tokens, row.output_tokens) == (
            measured.concurrency,
            measured.prompt_tokens,
            measured.output_tokens,
        )
        assert row.measured_tokens_per_s == measured.output_tokens_per_s
        assert row.throughput_is == measured.throughput_is
        assert row.measured_tpot_s == measured.tpot_s


def test_what_is_left_out_is_outside_the_claim() -> None:
    left = [
        row
        for row in catalog.measured_points(load="closed loop")
        if row not in set(comparable_points())
    ]
    assert len(left) == 15
    for row in left:
        assert row.model == "Nemotron-Nano-30B" or row.gpu == "Arc-Pro-B60"


@pytest.mark.parametrize("index", range(0, 682, EVERY))
def test_committed_prediction_is_what_the_code_predicts(index: int) -> None:
    """The table would show how good another version of the model was."""
    row = POINTS[index]
    found = predict_row(comparable_points()[index])
    assert found.point.output_tokens_per_s == pytest.approx(row.predicted_tokens_per_s, rel=1e-4)
    assert found.tpot_s == pytest.approx(row.predicted_tpot_s, rel=1e-4)
    assert found.ttft_s == pytest.approx(row.predicted_ttft_s, rel=1e-4)


def test_committed_steps_are_what_a_fit_now_gives() -> None:
    fits = fit_step_setups()
    by_setup = {name: iter([r for r in STEPS if r.setup == name]) for name in step_setups()}
    assert sum(len(steps) for steps in step_setups().values()) == len(STEPS)
    for name, steps in step_setups().items():
        for step in steps:
            row = next(by_setup[name])
            assert row.measured_s == step.seconds
            again = step.predicted_s(fits[name].constants)
            assert again == pytest.approx(row.predicted_s, rel=2e-3), name


def test_constants_in_force_are_those_fitted() -> None:
    """Somebody turned a knob until a picture looked right."""
    fitted = {row.constant: row for row in committed_constants() if row.fit == ONE_SET}
    assert tuple(fitted) == FITTED + FITTED_THEN
    for name, row in fitted.items():
        assert row.deviation is not None
        assert abs(getattr(DEFAULTS, name) - row.value) < row.deviation, name
    for name in ("mfu_fp8_static", *FITTED_THEN):
        assert getattr(DEFAULTS, name) == pytest.approx(fitted[name].value, rel=0.03)


def test_constants_in_force_predict_as_well_as_those_fitted_anew() -> None:
    """Those of the first fit were kept; if the data asked for others, this would show it."""
    anew = replace(
        DEFAULTS, **{r.constant: r.value for r in committed_constants() if r.fit == ONE_SET}
    )
    rows = [row for row in comparable_points() if row.source == "silybench"]
    rows += [row for row in comparable_points() if (row.prompt_tokens or 0) == 2048]
    schedules = [schedule_row(row) for row in rows[::2]]
    old, new = (
        np.median(
            [
                abs(s.predict(c).point.output_tokens_per_s / (s.row.output_tokens_per_s or 1) - 1)
                for s in schedules
            ]
        )
        for c in (DEFAULTS, anew)
    )
    assert old < new + 0.015


# --- how a row is run ----------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["vLLM 0.30.0", "SGLang 0.5.1.post1"])
def test_a_schedule_is_the_engine_s_own_whatever_steps_cost(engine: str) -> None:
    """Seconds worked out from a schedule must be those that the simulated server would show."""
    row = next(r for r in catalog.measured_points(load="closed loop") if r.engine == engine)
    row = replace(
        row, concurrency=24, prompt_tokens=1500.0, output_tokens=60.0, shortest_share=0.8,
        requests_per_user=4, throughput_is="recorded", source="nim-1.5", tpot_stat="mean",
        ttft_stat="mean", kv_pool_tokens=24_000,
    )  # fmt: skip
    found = schedule_row(row)
    for constants in (DEFAULTS, replace(DEFAULTS, mbu=0.3, mfu_bf16=0.2)):
        sizes = (found.output_tokens.astype(int), 24)
        work = Workload(np.zeros(96), _drawn(1500, 0.8, 96, 0), _drawn(60, 0.8, 96, 1))
        config = EngineConfig(
            max_num_seqs=1024, max_num_batched_tokens=8192, num_kv_blocks=1500,
            batching=server_of(row).batching,
        )  # fmt: skip
        run = simulate_closed(24, 0.0, work, row_cost(row, constants), config, progress=False)
        front_end_s = server_of(row).front_end_s
        predicted = found.predict(constants)
        assert sizes[0].sum() == work.output_tokens.sum()
        assert predicted.ttft_s == pytest.approx(run.ttft_s.mean() + front_end_s, rel=1e-9)
        assert predicted.tpot_s == pytest.approx(run.tpot_s.mean(), rel=1e-9)
        e2e_s = run.e2e_s.mean() + front_end_s
        assert predicted.point.requests_per_s == pytest.approx(24 / e2e_s, rel=1e-9)


def test_a_constant_that_nothing_left_tells_is_not_remembered() -> None:
    """Leaving out the one mixture, its own share would still be used: nothing was left out."""
    rows = [r for r in comparable_points() if r.source == "aiconfigurator-inferencex"]
    rows = [r for r in rows if r.prompt_tokens == r.output_tokens == 1024 and r.concurrency == 64]
    fits = fit_committed_points(schedules=[schedule_row(row) for row in rows])
    mixtures = np.array([kind_of(row) == "experts" for row in rows])
    without = fits.without(mixtures)
    assert without.expert_share == 1.0
    assert without.unpack_per_layer_s == 0.0
    assert fits.rest is not None
    assert fits.rest.constants.unpack_per_layer_s > 1e-5


# --- one prediction ------------------------------------------------------------------------------


def test_a_lone_user_s_prediction_by_hand() -> None:
    """Whoever adds the steps up with a pencil must get the point."""
    cost = RooflineStepCost("Llama-3.1-8B", "A100-80GB-SXM")
    point = predict_closed_loop(
        "A100-80GB-SXM", 1, "Llama-3.1-8B", "bf16", 500, 50, 1, length_spread=0.0
    )

    def step(prefill: int, context: int) -> MeasuredStep:
        from course.serving.pricing.linear import StepFeatures

        pairs = prefill * (prefill + 1) // 2
        features = StepFeatures(prefill, pairs, 0 if prefill else 1, context)
        return MeasuredStep("Llama-3.1-8B", "A100-80GB-SXM", features, 1.0)

    ttft = step(500, 0).predicted_s(DEFAULTS)
    decode = sum(step(0, 500 + emitted).predicted_s(DEFAULTS) for emitted in range(1, 50))
    assert cost.kv_blocks() > 100
    assert point.ttft_s == pytest.approx(ttft, rel=1e-9)
    assert point.tpot_s == pytest.approx(decode / 49, rel=1e-9)
    assert point.requests_per_s == pytest.approx(1 / (ttft + decode), rel=1e-9)
    assert point.output_tokens_per_s == pytest.approx(50 / (ttft + decode), rel=1e-9)


def test_littles_law_holds_at_a_point() -> None:
    point = predict_closed_loop("H100-80GB-SXM", 2, "Llama-3.1-70B", "fp8", 1000, 400, 40)
    inside = point.requests_per_s * (point.ttft_s + 399 * point.tpot_s)
    assert inside == pytest.approx(40, rel=0.01)


def test_mean_lengths_are_kept_whatever_the_spread() -> None:
    """Shorter requests than stated would look like a faster server."""
    narrow, wide = (
        predict_closed_loop(
            "H200-141GB-SXM", 1, "Qwen3-8B", "bf16", 800, 200, 8, length_spread=spread
        )
        for spread in (0.0, 0.5)
    )
    per_request = [p.output_tokens_per_s / p.requests_per_s for p in (narrow, wide)]
    assert per_request == pytest.approx([200, 200], rel=1e-3)


def test_a_server_short_of_memory_is_slower() -> None:
    """The cache's size must reach the prediction: by itself it moves TTFT by 20 % and more."""
    roomy, tight = (
        predict_closed_loop(
            "H100-80GB-SXM", 1, "Qwen3-8B", "bf16", 2000, 200, 64, num_kv_blocks=blocks
        )
        for blocks in (20_000, 2_000)
    )
    assert tight.output_tokens_per_s < roomy.output_tokens_per_s
    assert tight.ttft_s > 2 * roomy.ttft_s


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"concurrency": 0}, "concurrency=0 is below 1"),
        ({"prompt_tokens": 0}, "prompt_tokens=0 is below 1"),
        ({"output_tokens": math.nan}, "output_tokens=nan is not a number"),
        ({"length_spread": 1.0}, "length_spread=1.0 leaves no length"),
        ({"prompt_tokens": 10**6}, "the cache holds"),
        ({"precision": "mxfp4"}, "keeps experts in 4 bits"),
        ({"gpu": "L4"}, "GiB short"),
    ],
)
def test_wrong_arguments_are_named(changes: dict[str, object], words: str) -> None:
    usual = {
        "gpu": "H100-80GB-SXM", "n_gpus": 1, "model": "Qwen3-32B", "precision": "fp8",
        "prompt_tokens": 100, "output_tokens": 10, "concurrency": 4,
    }  # fmt: skip
    with pytest.raises(ValueError, match=words):
        predict_closed_loop(**{**usual, **changes})  # type: ignore[arg-type]


def test_a_row_that_is_no_closed_loop_is_refused() -> None:
    row = catalog.measured_points(load="open loop")[0]
    with pytest.raises(ValueError, match="lacks users or lengths"):
        predict_row(row)


def test_precisions_that_no_row_states_follow_one_rule() -> None:
    kinds = {
        (row.engine.split()[0], row_precision(row), row_kv_precision(row))
        for row in comparable_points()
    }
    assert kinds == {
        ("SGLang", "bf16", "bf16"),
        ("SGLang", "fp8", "bf16"),
        ("vLLM", "bf16", "bf16"),
        ("vLLM", "fp8", "bf16"),
        ("TensorRT-LLM", "bf16", "bf16"),
        ("TensorRT-LLM", "fp8", "fp8"),
        ("TensorRT-LLM", "fp8-static", "fp8"),
        ("TensorRT-LLM", "nvfp4", "fp8"),
        ("TensorRT-LLM", "mxfp4", "fp8"),
        ("vLLM", "nvfp4", "bf16"),
        ("vLLM", "mxfp4", "bf16"),
        ("NIM", "fp8", "fp8"),
    }
