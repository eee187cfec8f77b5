"""Predicted against measured: the committed tables are the code's, and keep what is promised."""

from __future__ import annotations

import math
import re

import pytest

from course.serving import catalog
from course.serving.catalog.tables import DATA
from course.serving.pricing.linear import DEFAULTS, RooflineStepCost
from course.serving.validation.closed_loop import predict_row, row_kv_precision, row_precision
from course.serving.validation.error_tables import HOST_OF_2023, LEFT_OUT, ONE_SET, OWN
from course.serving.validation.fit import MeasuredStep
from course.serving.validation.points import (
    FITTED,
    committed_constants,
    committed_errors,
    committed_points,
    committed_steps,
    comparable_points,
    error_row,
    fit_statement,
    fit_step_setups,
    predict_closed_loop,
    setup_of,
    step_setups,
)

POINTS = committed_points()
STEPS = committed_steps()
EVERY = 12
"""One committed point in so many is simulated anew here; `python -m course validate` does all."""


# --- what is claimed -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("figure", "median", "p90"),
    [
        ("throughput", 0.07, 0.23),
        ("TPOT", 0.09, math.inf),
        (LEFT_OUT, 0.10, math.inf),
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
    for row in committed_errors()[:14]:
        cells = f"{100 * row.median:.1f} | {100 * row.p90:.1f} | {100 * row.worst:.1f} |"
        assert f"| {row.figure}, {row.block} | {row.points} | {cells}" in readme, row
    for name, rows in (
        ("serving_points", POINTS),
        ("iteration_times", STEPS),
        ("constants", committed_constants()),
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
    assert len(rows) == len(POINTS) == 486
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
    kept = set(comparable_points())
    for row in catalog.measured_points(load="closed loop"):
        if row in kept:
            continue
        unknown = row.model in {"Nemotron-Nano-30B"} or row.gpu == "Arc-Pro-B60"
        outside = row.precision in {"fp4", "mxfp4"} or unknown
        assert outside or catalog.model(row.model).is_moe or catalog.model(row.model).kv_latent_dim


@pytest.mark.parametrize("index", range(0, 486, EVERY))
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
    assert tuple(fitted) == FITTED
    for name, row in fitted.items():
        assert row.deviation is not None
        assert getattr(DEFAULTS, name) == pytest.approx(row.value, rel=0.04)
        assert abs(getattr(DEFAULTS, name) - row.value) < 0.5 * row.deviation, name
    assert DEFAULTS.all_reduce_bytes_per_s == 300e9


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
        ("NIM", "fp8", "fp8"),
    }
