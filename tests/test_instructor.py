"""The page for teachers names explorers, presets and exercises: in front of a room is a bad place
to find that one of them is gone."""

from __future__ import annotations

import re

import pytest

from course.exercises.registry import exercise
from course.paths import ROOT
from tests.ui.explorers import every_explorer

EXPLORERS = every_explorer()
SECTIONS = re.split(r"\n## ", (ROOT / "INSTRUCTOR.md").read_text(encoding="utf-8"))
CLOCKS = [section for section in SECTIONS if "| clock |" in section]


@pytest.mark.parametrize("section", CLOCKS, ids=[clock.split(":")[0] for clock in CLOCKS])
def test_what_a_plan_names_is_there(section: str) -> None:
    calls = re.findall(r'`(explore\.\w+)\((?:"([^"]*)")?\)`', section)
    assert calls
    for call, preset in calls:
        assert not preset or EXPLORERS[call].preset(preset)
    known = {preset.name for call, _ in calls for preset in EXPLORERS[call].presets}
    last_column = [line.rsplit("|", 2)[1] for line in section.splitlines() if line.startswith("|")]
    named = [name for cell in last_column for name in re.findall(r"\*([^*]+)\*", cell)]
    assert set(named) <= known
    numbers = set(re.findall(r"Exercise (\d+\.\d+)", section))
    assert numbers
    assert all(exercise(number) for number in numbers)


def test_the_clock_runs_forward_and_ends_in_time() -> None:
    for section in CLOCKS:
        times = [60 * int(h) + int(m) for h, m in re.findall(r"^\| (\d):(\d\d) ", section, re.M)]
        assert times == sorted(set(times))
        assert times[-1] < 90
