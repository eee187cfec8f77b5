"""The script for a machine with a card must say at once, and clearly, that a machine has none."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from course.paths import ROOT

pytestmark = pytest.mark.slow

SCRIPT = ROOT / "tests" / "device" / "run.sh"


def has_card() -> bool:
    if importlib.util.find_spec("torch") is None:
        return False
    return bool(__import__("torch").cuda.is_available())


@pytest.mark.skipif(os.name == "nt" or not shutil.which("bash"), reason="a script for bash")
def test_without_a_card_it_stops_before_it_measures(tmp_path: Path) -> None:
    if has_card():
        pytest.skip("there is a card here")
    done = subprocess.run(
        ["bash", str(SCRIPT), str(tmp_path / "results")],
        env={**os.environ, "PYTHON": sys.executable}, capture_output=True, encoding="utf-8",
        timeout=120, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert done.returncode == 2
    assert "lacks: torch" in said or "error: no CUDA card can be used" in said
    assert "Traceback" not in said
    assert not (tmp_path / "results" / "card.json").exists()


def test_its_own_time_limits_stay_below_six_minutes() -> None:
    import re

    limits = [int(n) for n in re.findall(r"timeout (?:--\S+ )*(\d+)", SCRIPT.read_text("utf-8"))]
    assert len(limits) == 2
    assert sum(limits) <= 330, "30 s are left for loading torch four times"
