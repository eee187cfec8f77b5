"""Numbers as people read them: a wrong unit in a sentence is a wrong sentence."""

from __future__ import annotations

import math
import re

from hypothesis import given
from hypothesis import strategies as st

from course.words import percent, rounded, seconds


@given(st.floats(1e-9, 1e9))
def test_seconds_are_right_to_three_figures(value: float) -> None:
    number, unit = seconds(value).split()
    back = float(number.replace(",", "")) * {"s": 1.0, "ms": 1e-3}[unit]
    assert abs(back - value) <= 0.0051 * value


@given(st.floats(1e-6, 1e12))
def test_figures_never_use_powers_of_ten(value: float) -> None:
    text = rounded(value)
    assert re.fullmatch(r"[\d,]+(\.\d+)?", text)
    assert abs(float(text.replace(",", "")) - value) <= 0.0051 * value


def test_the_edges_are_words() -> None:
    assert seconds(math.nan) == "undefined"
    assert seconds(math.inf) == "without end"
    assert seconds(0) == "0 s"
    assert seconds(0.9996) == "1.00 s"
    assert percent(0.999) == "99.9\u00a0%"
    assert percent(1.0) == "100\u00a0%"
