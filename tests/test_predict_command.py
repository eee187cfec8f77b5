"""`python -m course predict`: the numbers are the simulator's, and the band the validation's."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from course.cli import app
from course.serving.validation import error_band, predict_closed_loop


def printed(*more: str) -> str:
    options = ["--gpu", "H200-141GB-SXM", "--isl", "500", "--osl", "20", "--users", "4", *more]
    result = CliRunner().invoke(app, ["predict", *options])
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize(
    ("model", "precision", "kind", "measured"),
    [
        ("Qwen3-8B", "bf16", "dense", True),
        ("gpt-oss-20b", "mxfp4", "experts", True),
        ("Mixtral-8x7B", "bf16", "experts", False),
        ("Qwen3-8B", "int4", "4 bits", False),
    ],
)
def test_each_figure_comes_with_the_band_of_its_kind(
    model: str, precision: str, kind: str, measured: bool
) -> None:
    """A band that is too narrow would be believed."""
    out = printed("--model", model, "--precision", precision)
    point = predict_closed_loop("H200-141GB-SXM", 1, model, precision, 500, 20, 4)
    for value, figure in (
        (point.output_tokens_per_s, "throughput"),
        (1e3 * point.ttft_s, "TTFT"),
        (1e3 * point.tpot_s, "TPOT"),
    ):
        factor = error_band(kind, figure)
        assert f"{value / factor:,.1f} to {value * factor:,.1f}" in out
    assert ("outside what was measured" in out) != measured
