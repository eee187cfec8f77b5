"""A declaration is the only place where a range is written; these tests fail when a control and a
check could disagree."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from course.ui.parameters import (
    as_python,
    changed,
    choice,
    controls_of,
    count,
    slider,
    toggle,
    typed_number,
)


@dataclass(frozen=True)
class Example:
    rate_per_s: float = slider(2.0, 0.5, 10.0, 0.5, label="Rate", unit="requests/s", help="h")
    seats: int = count(4, 1, 64, label="Seats", help="h")
    mode: str = choice("fcfs", ["fcfs", "sjf"], label="Order", help="h")
    chunked: bool = toggle(True, label="Chunked", help="h")


def test_controls_follow_the_declaration_in_order() -> None:
    assert list(controls_of(Example)) == ["rate_per_s", "seats", "mode", "chunked"]


def test_ends_of_the_range_are_inside() -> None:
    assert changed(Example(), {"rate_per_s": 0.5}).rate_per_s == 0.5
    assert changed(Example(), {"rate_per_s": 10}).rate_per_s == 10.0


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rate_per_s": 11}, r"rate_per_s=11 is outside 0\.5 … 10 requests/s"),
        ({"rate_per_s": float("nan")}, "not a number"),
        ({"rate_per_s": True}, "not a number"),
        ({"seats": 2.5}, "whole number"),
        ({"mode": "lifo"}, r"one of the choices \['fcfs', 'sjf'\]"),
        ({"chunked": 1}, "True or False"),
        ({"rate_pers": 1.0}, "did you mean 'rate_per_s'"),
    ],
)
def test_bad_values_are_named_with_the_way_to_mend_them(values: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        changed(Example(), values)


def test_a_state_can_be_copied_as_python() -> None:
    line = as_python("explore.example", Example(rate_per_s=1.5))
    assert line == "explore.example(rate_per_s=1.5, seats=4, mode='fcfs', chunked=True)"
    assert eval(line.replace("explore.example", "Example")) == Example(rate_per_s=1.5)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1.5", 1.5), (" 1,5 ", 1.5), ("0,125", 0.125), ("1.780", 1.78), ("1780", 1780.0),
        ("1,780.5", 1780.5), ("1.780,5", 1780.5), ("1,234,567", 1234567.0), ("12 000", 12000.0),
        ("1.234.567", 1234567.0), ("-2,5", -2.5), ("1e3", 1000.0), ("12’000", 12000.0),
    ],
)  # fmt: skip
def test_a_typed_number_is_what_its_writer_meant(text: str, number: float) -> None:
    """A guess of 1,780 taken for 1.78 tells a learner that they were wrong by a thousand."""
    assert typed_number(text) == number


@pytest.mark.parametrize("text", ["1,780", "12,500", "-1,000"])
def test_what_may_be_two_numbers_is_asked(text: str) -> None:
    with pytest.raises(ValueError, match="Write it without a comma for the one"):
        typed_number(text)


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "1.2.3", "1,2,3", "5 s", "1,23,456"])
def test_what_is_no_number_is_said(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not a number: write one such as 1\.5"):
        typed_number(text)
