"""Says in a plain sentence how wrong numbers differ from the expected ones; decides nothing.

These are the slips that any exercise can meet (a unit, a sign, a logarithm's base). What is
particular to one exercise stands with its wrong answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

# factor of the student's values over the expected ones -> what usually lies behind it
_FACTORS: Mapping[float, str] = {
    1_000.0: "1000 times too large: milliseconds where seconds are asked, or kilo- left out",
    0.001: "1000 times too small: seconds divided by 1000 once too often, or kilo- put in",
    1_000_000.0: "a million times too large: microseconds where seconds are asked",
    0.000_001: "a million times too small: mega- put in once too often",
    100.0: "100 times too large: a percentage where a share of 1 is asked",
    0.01: "100 times too small: a share of 1 where a percentage is asked",
    60.0: "60 times too large: per minute where per second is asked",
    1 / 60.0: "60 times too small: minutes where seconds are asked",
    3_600.0: "3600 times too large: per hour where per second is asked",
    1 / 3_600.0: "3600 times too small: hours where seconds are asked",
    8.0: "8 times too large: bits where bytes are asked",
    0.125: "8 times too small: bytes where bits are asked",
    1.024: "2.4 % too large everywhere: 1024 where 1000 is asked",
    1.048576: "4.9 % too large everywhere: 1024² where 10⁶ is asked",
    1.073741824: "7.4 % too large everywhere: 1024³ where 10⁹ is asked",
    1 / 1.073741824: "6.9 % too small everywhere: 10⁹ where 1024³ is asked",
    2.0: "exactly twice too large: is a factor of one half missing?",
    0.5: "exactly half of it: something is halved, or counted once instead of twice",
    math.log(10): "2.303 times too large: a natural logarithm where one of base 10 belongs",
    1 / math.log(10): "2.303 times too small: log10 where the natural logarithm (math.log) belongs",
    -1.0: "right in size with the wrong sign: a difference taken the other way round",
}
_CLOSE = 1e-6
UNIT_FACTORS = (1_000.0, 0.001, 100.0, 0.01)


def _all_close(values: Sequence[float], others: Sequence[float], rel: float = _CLOSE) -> bool:
    return all(
        math.isclose(a, b, rel_tol=rel, abs_tol=1e-12) for a, b in zip(values, others, strict=True)
    )


def constant_factor(values: Sequence[float], others: Sequence[float]) -> float | None:
    """The one factor between two rows, or None where there is none (or a zero is in the way).

    >>> constant_factor([2.0, 4.0], [1.0, 2.0])
    2.0
    >>> constant_factor([2.0, 5.0], [1.0, 2.0]) is None
    True
    """
    # a zero that is a zero in both (a clamped answer) says nothing about the factor
    pairs = [(a, b) for a, b in zip(values, others, strict=True) if a or b]
    if len(pairs) < 2 or any(a == 0 or b == 0 for a, b in pairs):
        return None
    factor = pairs[0][0] / pairs[0][1]
    same = _all_close([a for a, _ in pairs], [factor * b for _, b in pairs], rel=1e-4)
    return factor if same else None


def scaled(factor: float) -> str | None:
    """The usual cause of a factor, in words; None for a factor with no usual cause.

    >>> scaled(1000.02)
    '1000 times too large: milliseconds where seconds are asked, or kilo- left out'
    """
    for known, words in _FACTORS.items():
        if math.isclose(factor, known, rel_tol=1e-4):
            return words
    return None


def diagnose(values: Sequence[float], expected: Sequence[float]) -> str | None:
    """One sentence on how `values` differ from `expected` (same inputs), or None.

    Tried in turn: a known factor, a constant answer, a reciprocal, a constant difference, any
    constant factor, and at last on which side the values lie.

    >>> diagnose([500.0, 250.0], [0.5, 0.25])
    'Your values are 1000 times too large: milliseconds where seconds are asked, or kilo- left out.'
    >>> diagnose([2.0, 4.0], [0.5, 0.25])
    'Your values are the reciprocals of the expected ones: a division is upside down.'
    """
    if len(values) != len(expected) or len(values) < 2:
        return None
    factor = constant_factor(values, expected)
    if factor is not None and (words := scaled(factor)):
        return f"Your values are {words}."
    if len(set(values)) == 1 and len(set(expected)) > 1:
        return "Your answer is the same number for all inputs: is an argument left unused?"
    if all(b != 0 for b in expected) and _all_close(values, [1 / b for b in expected]):
        return "Your values are the reciprocals of the expected ones: a division is upside down."
    differences = [a - b for a, b in zip(values, expected, strict=True)]
    if _all_close(differences, [differences[0]] * len(differences)):
        return _offset(differences[0])
    if factor is not None:
        return "Your values are the expected ones times one constant: look for a stray factor."
    return _side(differences)


def _offset(difference: float) -> str:
    side = "more" if difference > 0 else "less"
    if math.isclose(abs(difference), 1.0, rel_tol=1e-6):
        return f"Your values are always one {side} than expected: look for an n that should be n−1."
    return f"Your values are always the same amount {side} than expected: a term too many or few."


def _side(differences: Sequence[float]) -> str | None:
    wrong = [difference for difference in differences if difference]
    if len(wrong) < 3:
        return None
    if all(difference > 0 for difference in wrong):
        return (
            "Your values are never below the expected ones and often above: is something counted "
            "twice, or left out that would make them smaller?"
        )
    if all(difference < 0 for difference in wrong):
        return (
            "Your values are never above the expected ones and often below: is something left out, "
            "or taken off twice?"
        )
    return None
