"""Predicted against measured as pictures: every row is drawn, where it belongs."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest

from course.figures.validation import BAND, describe_points, draw_points, draw_steps
from course.paths import DATA
from course.serving.validation.points import committed_points, committed_steps

POINTS = committed_points()
STEPS = committed_steps()


def test_pictures_show_every_row_and_say_so() -> None:
    figure = draw_points(POINTS)
    throughput, tpot = figure.axes
    for axes, field in ((throughput, "tokens_per_s"), (tpot, "tpot_s")):
        drawn = np.concatenate(
            [np.asarray(c.get_offsets()) for c in axes.collections if c.get_label()[0] != "_"]
        )
        factor = 1e3 if field == "tpot_s" else 1.0
        pairs = [
            (factor * asdict(r)[f"measured_{field}"], factor * asdict(r)[f"predicted_{field}"])
            for r in POINTS
        ]
        assert np.allclose(sorted(drawn.tolist()), sorted(pairs), rtol=1e-12)
    steps = sum(
        len(c.get_offsets())
        for axes in draw_steps(STEPS).axes
        for c in axes.collections
        if c.get_label()[0] != "_"
    )
    assert steps == len(STEPS)
    assert "682 load levels" in describe_points(POINTS)
    for draw in (draw_points, draw_steps):
        with pytest.raises(ValueError, match="nothing to draw"):
            draw([])  # type: ignore[operator]


def test_words_for_those_who_do_not_see_it_give_the_share_inside_the_band() -> None:
    inside = [abs(r.predicted_tokens_per_s / r.measured_tokens_per_s - 1) <= BAND for r in POINTS]
    assert f"{100 * np.mean(inside):.0f} % of the throughputs" in describe_points(POINTS)
    readme = (DATA / "README.md").read_text(encoding="utf-8")
    assert f"![{describe_points(POINTS)}](validation/serving_points.png)" in readme
    (one,) = POINTS[:1]
    assert "1 load level" in describe_points([one])


def test_both_axes_are_alike_so_that_the_line_is_the_diagonal() -> None:
    """On unlike axes the line would not be at 45 degrees, and a bias would look like none."""
    for axes in [*draw_points(POINTS).axes, *draw_steps(STEPS).axes]:
        assert axes.get_xlim() == axes.get_ylim()
        assert axes.get_xscale() == axes.get_yscale() == "log"
        assert axes.get_xlabel() == "measured"
        assert axes.get_ylabel() == "predicted"
