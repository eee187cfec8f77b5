"""Explorers opened by a test, and freed when it is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from course.ui.shell import Shell


@pytest.fixture
def opened() -> Iterator[Any]:
    """Open explorers with their curtain open, and free them at the end."""
    shells: list[Shell[Any, Any]] = []

    def open_one(explorer: Any, preset: str | None = None, **values: Any) -> Shell[Any, Any]:
        shells.append(explorer(preset, predict=False, **values))
        return shells[-1]

    yield open_one
    for shell in shells:
        shell.close()
