"""The brushed view of a loaded file: were its spec to need the network, or its brush to filter
nothing, a student would look at an empty cell or learn from a picture that lies."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from course import explore
from course.figures.requests_view import MAX_ROWS, ViewedRequests, requests_chart, viewed
from course.serving.engine import simulate
from course.serving.pricing import LinearStepCost
from course.serving.requests.metrics import RequestTable, Status
from course.serving.results import load_result
from course.serving.workload import Fixed, Poisson, Workload, draw
from tests.serving.results import layouts

pytestmark = pytest.mark.slow

COST = LinearStepCost(0.010, 2e-5, 0.0, 1e-4, 1e-8)


def table(size: int, missed: int = 0) -> RequestTable:
    """`size` requests a tenth of a second apart; the first `missed` failed."""
    sent = 0.1 * np.arange(size)
    ttft = 0.2 + 0.01 * (np.arange(size) % 7)
    status = np.where(np.arange(size) < missed, int(Status.FAILED), int(Status.FINISHED))
    done = status == Status.FINISHED
    return RequestTable(
        sent, np.where(done, sent + ttft, np.nan), np.where(done, sent + ttft + 1, np.nan),
        np.where(done, 11, 0), status=status,
    )  # fmt: skip


def spec(requests: ViewedRequests, **options: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(requests_chart(requests, **options).to_json())
    return found


def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    (data,) = found.get("datasets", {"": found.get("data", {}).get("values")}).values()
    return list(data)


def marks(found: dict[str, Any]) -> list[dict[str, Any]]:
    """Every unit of the chart, the layers' too."""
    units = []
    for part in found["vconcat"]:
        units += part.get("layer", [part])
    return units


def in_vega(found: dict[str, Any], **signals: Any) -> dict[str, Any]:
    """The spec with selections as if a hand had dragged them."""
    changed = json.loads(json.dumps(found))
    for param in changed["params"]:
        if param["name"] in signals:
            param["value"] = signals[param["name"]]
    return changed


def svg(found: dict[str, Any]) -> str:
    import vl_convert

    return str(vl_convert.vegalite_to_svg(found))


GREEN_BAR = re.compile(r'aria-label="[^"]*requests: (\d+)"[^>]*fill="#009E73"')


def brushed(found: dict[str, Any]) -> int:
    """How many requests the green bars hold."""
    return sum(int(count) for count in GREEN_BAR.findall(svg(found)))


# --- what a file or a run gives ------------------------------------------------------------------


def test_a_detailed_file_gives_its_requests(tmp_path: Path) -> None:
    result = load_result(layouts.write(tmp_path, layouts.vllm_detail()))
    found = rows(spec(viewed(result)))
    assert [row["status"] for row in found] == ["finished", "finished", "timed out", "finished"]
    assert [row["TTFT"] for row in found] == [0.25, 0.5, None, 0.25]
    assert [row["E2E"] for row in found] == [0.5, 0.5, None, 0.5]
    assert [row["at"] for row in found] == [0, 0, 0.5, 0.5]
    assert found[1]["TPOT"] is None, "an answer of one token has no TPOT"


def test_a_run_gives_its_requests() -> None:
    run = simulate(draw(50, Poisson(20.0), Fixed(100), Fixed(20), seed=1), COST)
    found = rows(spec(viewed(run)))
    np.testing.assert_allclose([row["TTFT"] for row in found], run.ttft_s, atol=1e-6)
    np.testing.assert_allclose([row["TPOT"] for row in found], run.tpot_s, atol=1e-6)
    sent_s = run.arrival_s - run.arrival_s[0]
    np.testing.assert_allclose([row["at"] for row in found], sent_s, atol=1e-6)


def test_a_file_with_only_a_summary_says_what_is_missing(tmp_path: Path) -> None:
    path = layouts.write(tmp_path, layouts.vllm())
    with pytest.raises(ValueError, match=r"holds only a summary.*--save-detailed"):
        explore.requests_view(path)
    with pytest.raises(ValueError, match=r"run=1 is not in .*; give 0 … 0"):
        explore.requests_view(path, run=1)
    detailed = layouts.write(tmp_path, layouts.vllm_detail(), name="detail.json")
    with pytest.raises(ValueError, match="latency='ITL' is not drawn; give one of TTFT, E2E, TPOT"):
        explore.requests_view(detailed, latency="ITL")
    empty = simulate(Workload([], [], []), COST)
    with pytest.raises(ValueError, match="no request at all"):
        explore.requests_view(empty)


def test_without_start_times_the_axis_says_so(tmp_path: Path) -> None:
    """All requests at 0 s would look like one burst."""
    value = layouts.vllm_detail(start_times=layouts.GONE)
    found = spec(viewed(load_result(layouts.write(tmp_path, value))))
    assert [row["at"] for row in rows(found)] == [0, 1, 2, 3]
    assert "no start times" in json.dumps(found["vconcat"][0]["encoding"]["x"], ensure_ascii=False)


def test_a_large_file_is_sampled_and_says_so() -> None:
    """A browser with a million points hangs; a sample that says nothing passes for the whole."""
    big = ViewedRequests(table(12_000), True, "ours")
    found = spec(big)
    assert len(rows(found)) == MAX_ROWS
    assert "5,000 of 12,000 requests, drawn at random" in found["title"]["text"]
    assert len({row["request"] for row in rows(found)}) == MAX_ROWS, "each drawn once"
    assert rows(found) == rows(spec(big))
    assert rows(found) != rows(spec(big, seed=2))
    assert found["title"]["subtitle"] == spec(big, seed=2)["title"]["subtitle"], "of all requests"
    exact = ViewedRequests(table(MAX_ROWS), True, "ours")
    assert spec(exact)["title"]["text"].startswith("5,000 requests (")


def test_the_missed_are_shown_and_counted() -> None:
    """A request that failed has no latency, and would silently not be there."""
    found = spec(ViewedRequests(table(40, missed=3), True, "ours"))
    assert "3 without a complete answer" in found["title"]["subtitle"][1]
    strip = found["vconcat"][1]
    assert strip["transform"] == [{"filter": "datum.status != 'finished'"}]
    picture = svg(found)
    assert picture.count("status: failed") >= 3
    assert len(spec(ViewedRequests(table(40), True, "ours"))["vconcat"]) == 2


# --- offline, and brushed ------------------------------------------------------------------------


def test_the_spec_names_no_address_but_its_schema() -> None:
    found = spec(ViewedRequests(table(20, missed=1), True, "ours"))
    assert found.pop("$schema").startswith("https://vega.github.io/schema/vega-lite/")
    assert "http" not in json.dumps(found)
    assert '"url"' not in json.dumps(found)


def test_a_brush_over_the_points_filters_the_histogram() -> None:
    found = spec(ViewedRequests(table(100), True, "ours"))
    assert brushed(found) == 100, "with no brush every request is counted"
    half = in_vega(found, points={"x": [-1, 4.95], "y": [0, 9]})
    assert brushed(half) == 50
    low = in_vega(found, points={"x": [-1, 99], "y": [0, 0.205]})
    assert brushed(low) == sum(i % 7 == 0 for i in range(100))


def test_a_brush_along_the_histogram_leaves_its_requests_strong() -> None:
    found = spec(ViewedRequests(table(100), True, "ours"))
    strong = svg(in_vega(found, range={"x": [0.1, 0.2249]})).count('opacity="0.75"')
    assert 0 < strong < 100
    assert svg(found).count('opacity="0.75"') == 100


def test_both_brushes_are_selections() -> None:
    found = spec(ViewedRequests(table(20), True, "ours"))
    kinds = {
        param["name"]: param.get("select", {}).get("type")
        for part in (found, *marks(found))
        for param in part.get("params", [])
    }
    assert kinds == {"latency": None, "points": "interval", "range": "interval"}


def test_the_list_changes_what_is_drawn() -> None:
    """Points, histogram and their axis follow one choice."""
    requests = ViewedRequests(table(30), True, "ours")
    e2e = svg(spec(requests, latency="E2E"))
    assert "latency (s): 1.2" in e2e
    assert "latency (s): 1.2" not in svg(spec(requests))


def test_what_comes_back_is_shown_by_a_notebook() -> None:
    run = simulate(draw(20, Poisson(20.0), Fixed(100), Fixed(5), seed=1), COST)
    shown = explore.requests_view(run)
    assert type(shown).__name__ == "JupyterChart"
    assert json.loads(shown.chart.to_json())["title"]["text"] == "20 requests (simulated)"
