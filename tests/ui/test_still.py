"""A still picture reaches every reader: drawn, described, and without side effects on the page."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import numpy as np
import pytest

from course.figures.ch02.arrivals import TraceArrivals, beside_poisson
from course.ui.still import still

ALT = "Two traces beside Poisson arrivals, one close to it and one far from it."


def example() -> TraceArrivals:
    percent = np.linspace(0, 100, 50)
    return TraceArrivals(percent, np.linspace(0, 3, 50), 1.0, np.arange(10, 40))


def test_a_still_is_drawn_and_described() -> None:
    bundle = still(beside_poisson({"a trace": example()}), ALT)._repr_mimebundle_()
    root = ET.fromstring(bundle["text/html"])
    assert root.get("role") == "img"
    assert root.get("aria-label") == ALT
    assert root.get("width") == "100%"
    assert "<path" in bundle["text/html"]
    assert "<style" not in bundle["text/html"], "it would restyle the whole page"
    assert bundle["text/plain"] == ALT


def test_the_same_figure_gives_the_same_text() -> None:
    one, two = (still(beside_poisson({"a": example()}), ALT).svg for _ in range(2))
    assert one == two


def test_a_picture_without_words_is_refused() -> None:
    with pytest.raises(ValueError, match="describe what the picture shows"):
        still(beside_poisson({"a": example()}), "a plot")
