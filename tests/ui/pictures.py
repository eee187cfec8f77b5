"""What tests read off pictures and results; which numbers are right is for the test to say."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def xy(line: Any) -> tuple[np.ndarray, np.ndarray]:
    """The points of a line."""
    return np.asarray(line.get_xdata(), float), np.asarray(line.get_ydata(), float)


def presets_of(explorer: Any) -> Any:
    """Run a test at every preset of an explorer."""
    return pytest.mark.parametrize("preset", [preset.name for preset in explorer.presets])


def result_of(explorer: Any, preset: str | None = None, **values: Any) -> Any:
    """What is computed, where nothing needs to be drawn."""
    return explorer.result(explorer.state(preset, **values))
