"""What a reader is asked to predict does not stand in the text before it."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from typing import Any

import nbformat
import pytest

from tests.notebooks.claims import NOTEBOOKS

pytestmark = pytest.mark.slow

_CALL = re.compile(r'explore\.(\w+)\("([^"]+)"')
_NUMBER = re.compile(r"(?<![\w.])(?:\d{1,3}(?:,\d{3})+|0(?=\.)|[1-9]\d*)(?:\.\d+)?")
NEAR = 0.01
"""A number so near an answer is the answer, rounded."""


def predictions(name: str) -> Iterator[tuple[str, str, float, str]]:
    """Each prediction of a notebook: explorer, preset, answer, and its section's text before it."""
    section, sections = "", 0
    for cell in nbformat.read(NOTEBOOKS / name, as_version=4).cells:
        if cell.cell_type == "markdown":
            if re.search(r"^## ", cell.source, re.MULTILINE) and sections > 1:
                section = ""  # the first one begins with the title's text
            sections += bool(re.search(r"^##? ", cell.source, re.MULTILINE))
            if "For whoever presents this" not in cell.source:
                section += "\n" + cell.source
            continue
        for explorer, preset in _CALL.findall(cell.source):
            found = explorer_of(name[:2], explorer)
            if found is None or found.prediction is None:
                continue
            result = found.result(found.state(preset))
            answer = found.prediction.answer(result)
            if answer is not None:
                yield explorer, preset, float(answer), section


def explorer_of(number: str, name: str) -> Any:
    """A lesson's own explorer; None for a view of data."""
    try:
        return getattr(importlib.import_module(f"course.explore.ch{number}.{name}"), name)
    except ModuleNotFoundError:
        return None


def said_before(answer: float, text: str) -> list[str]:
    """The numbers of a text that are the answer, whole ones below ten apart: they are too common."""
    found = []
    for number in _NUMBER.findall(text):
        value = float(number.replace(",", ""))
        if len(number) > 1 and abs(value - answer) <= NEAR * abs(answer):
            found.append(number)
    return found


@pytest.mark.parametrize("name", sorted(path.name for path in NOTEBOOKS.glob("*.ipynb")))
def test_no_prediction_is_answered_before_it_is_asked(name: str) -> None:
    asked = 0
    for explorer, preset, answer, text in predictions(name):
        asked += 1
        assert said_before(answer, text) == [], f'explore.{explorer}("{preset}") asks for {answer}'
    assert asked >= 2, "every lesson asks its reader to predict"


def test_an_answer_is_recognised_however_it_is_written() -> None:
    assert said_before(1234.0, "about 1,230 tokens, or 1,234") == ["1,230", "1,234"]
    assert said_before(0.534, "it takes 0.55 s") == []
    assert said_before(0.534, "it takes 0.53 s") == ["0.53"]
    assert said_before(5.02, "notebook 05 and 5.0 s") == ["5.0"]
    assert said_before(5.0, "five, or 5 of them") == []
