"""The animation: its module against the film it plays, what it carries, and what it refuses."""

from __future__ import annotations

import base64
import gzip
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import course
from course import (
    Admission,
    EngineConfig,
    LinearStepCost,
    Patience,
    Retry,
    Workload,
    simulate,
    simulate_service,
)
from course.serving.engine import Run, ServiceRun, Speculation
from course.ui.film import Film, Place, film_of, pack
from course.ui.watch import MODULE, Watch, in_words
from tests.lanes import by_lane
from tests.ui.explorers import every_explorer

HERE = Path(__file__).parent / "watch"
NODE = shutil.which("node")


def by_hand() -> Run:
    """Two requests in three steps of a second."""
    return simulate(Workload([0.0, 0.25], [9, 30], [3, 1]), LinearStepCost(fixed_s=1.0))


def crowd(size: int) -> Workload:
    """A crowd that comes faster than it can be served."""
    rng = np.random.default_rng(3)
    return Workload(
        np.sort(rng.uniform(0.0, 10.0, size)),
        rng.integers(20, 300, size),
        rng.integers(10, 120, size),
    )


COST = LinearStepCost(0.01, 5e-5, 0.0, 2e-4)
CONFIG = EngineConfig(max_num_seqs=12, max_num_batched_tokens=256, num_kv_blocks=130)


def pressed() -> Run:
    """A server whose memory is short."""
    return simulate(crowd(150), COST, CONFIG)


def storm() -> ServiceRun:
    """Clients without patience, a short queue, and sending again."""
    return simulate_service(
        crowd(250), COST, CONFIG, patience=Patience(ttft_s=2.0, e2e_s=6.0),
        retry=Retry(attempts=3, delay_s=1.0), admission=Admission(max_waiting_requests=25),
    )  # fmt: skip


def door() -> ServiceRun:
    """A door that opens while there is memory, and a server that does not see clients go."""
    return simulate_service(
        crowd(120), COST, CONFIG, patience=Patience(ttft_s=3.0, noticed=False),
        admission=Admission(kv_watermark=0.7),
    )  # fmt: skip


def static() -> Run:
    """Batches that wait for their longest."""
    way = course.serving.engine.modes.static(6, window_s=1.0)  # type: ignore[attr-defined]
    return simulate(crowd(60), COST, EngineConfig(max_num_seqs=6, batching=way))


def guessing() -> Run:
    """Several tokens a step."""
    return simulate(crowd(60), COST, replace(CONFIG, speculation=Speculation(3, 0.7)))


RUNS = {run.__name__: run for run in (by_hand, pressed, storm, door, static, guessing)}


def moments_of(film: Film, count: int) -> list[float]:
    """Random moments, and as many at which a step begins or ends."""
    rng = np.random.default_rng(8)
    edges = np.concatenate([film.steps.start_s, film.steps.end_s])
    drawn = rng.uniform(film.start_s, film.end_s, count)
    return [*drawn.tolist(), *rng.choice(edges, min(count, edges.size), replace=False).tolist()]


@pytest.mark.skipif(NODE is None, reason="node is not there; the browser's tests play the module")
def test_the_module_shows_what_the_film_says(tmp_path: Path) -> None:
    """If it failed, somebody would be drawn where, in the run, somebody else was."""
    asked = {}
    for name, run in RUNS.items():
        film = film_of(run())
        (tmp_path / f"{name}.film").write_bytes(pack({name: film}))
        asked[name] = [
            (moment, [
                [
                    seen.body, seen.place, seen.seat, seen.computed_tokens,
                    seen.emitted_tokens if seen.place == Place.SEAT else 0, seen.kv_blocks,
                    int(seen.gone),
                ]
                for seen in film.at(moment)
            ])
            for moment in moments_of(film, 40)
        ]  # fmt: skip
    (tmp_path / "asked.json").write_text(json.dumps(asked), encoding="utf-8")
    shutil.copy(MODULE, tmp_path / "watch.mjs")
    assert NODE is not None
    done = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", str(HERE / "watch.test.mjs")],
        env={"WATCH_FILMS": str(tmp_path), "PATH": str(Path(NODE).parent)},
        capture_output=True, text=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    assert re.search(r"^# pass [5-9]", done.stdout, re.MULTILINE), done.stdout[-800:]


def test_the_arrays_come_back_as_they_were() -> None:
    """If it failed, the browser would read other numbers than Python wrote."""
    film = film_of(storm())
    data = pack({"one": film_of(by_hand()), "other": film}, {"title": "Sturm"})
    length = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + length])
    assert head["title"] == "Sturm"
    assert [one["label"] for one in head["films"]] == ["one", "other"]
    for table, columns in head["films"][1]["tables"].items():
        for name, (kind, offset, size) in columns.items():
            read = np.frombuffer(data, f"<{kind}", size, 4 + length + offset)
            assert (4 + length + offset) % 8 == 0
            np.testing.assert_array_equal(read, getattr(getattr(film, table), name))


def test_a_page_carries_the_film_and_asks_nobody() -> None:
    """If it failed, an exported page would be empty without a network, or without a kernel."""
    opened = course.watch(by_hand(), title="By hand")
    page = opened.page()
    assert "http" not in page.replace("http://www.w3.org", "")
    assert "import(" not in page
    assert "An animation of 2 requests at a server with 64 seats: 3 steps in 3.00 s." in page
    text = re.search(r'play\(document.*?, "([A-Za-z0-9+/=]{40,})", 1200\)', page)
    assert text
    assert gzip.decompress(base64.b64decode(text[1])) == opened.reel
    assert "</script" not in MODULE.read_text(encoding="utf-8")


def test_what_is_shown_beside_the_widget_is_a_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """If it failed, a reopened notebook would show "model not found" and nothing else."""
    shown: list[dict[str, str]] = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw: shown.append(data))
    opened = course.watch(by_hand())
    opened._ipython_display_()
    widget, page = shown
    view = widget["application/vnd.jupyter.widget-view+json"]
    assert view["model_id"] == opened.model_id  # type: ignore[index]
    assert page["text/html"] == opened.page()


def test_words_for_who_cannot_see_it() -> None:
    """If it failed, a screen reader would meet a picture without words."""
    film = film_of(storm())
    again = film.bodies.request.size - len(set(film.bodies.request.tolist()))
    assert again > 0
    assert f", {again} times sent again," in in_words({"": film})


def test_several_runs_are_named() -> None:
    """If it failed, four ways would be told as one."""
    opened = course.watch({"fast": by_hand(), "slow": pressed()})
    words = repr(opened)
    assert words.startswith("An animation of 2 runs. Fast: 2 requests at a server with 64 seats")
    assert "; slow: 150 requests at a server with 12 seats" in words
    assert opened.film is opened.films["fast"]
    opened.shown = 1
    assert opened.film is opened.films["slow"]


def test_the_widget_opens_where_it_is_told() -> None:
    """If it failed, a lesson could not open an animation at its moment."""
    opened = course.watch(by_hand(), from_s=1.5, speed=0.5)
    assert isinstance(opened, Watch)
    assert (opened.moment_s, opened.speed, opened.playing) == (1.5, 0.5, False)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"from_s": 4.0}, r"from_s=4.0 is outside the run; give 0 … 3 s"),
        ({"run": {}}, r"run={} holds no run"),
        ({"speed": 1000.0}, r"speed=1000.0 is out of range; give 0.01 … 100"),
    ],
)
def test_what_is_out_of_range_is_refused(options: dict[str, Any], words: str) -> None:
    """If it failed, an animation would open beside its run."""
    with pytest.raises(ValueError, match=words):
        course.watch(**{"run": by_hand(), **options})


FILMED = [explorer for explorer in every_explorer().values() if explorer.filmed]


@pytest.mark.parametrize("explorer", FILMED, ids=[explorer.call for explorer in FILMED])
def test_every_preset_can_be_watched(explorer: Any) -> None:
    """If it failed, the button of an explorer would open nothing."""
    assert explorer.presets
    for preset in explorer.presets[: by_lane(quick=1, whole=2, deep=None)]:
        runs = explorer.runs(preset.name)
        for name, run in runs.items():
            assert name
            assert film_of(run).bodies.request.size


def test_an_explorer_without_a_run_says_so() -> None:
    """If it failed, a student would meet a stack of the inside."""
    silent = next(one for one in every_explorer().values() if one.filmed is None)
    with pytest.raises(ValueError, match="has no run that could be watched"):
        silent.runs()
