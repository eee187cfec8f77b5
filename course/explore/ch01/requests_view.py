"""Opens a result file or a run as a chart whose points can be brushed; the chart is drawn in
``course.figures``.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from course.figures.requests_view import requests_chart, viewed
from course.serving.results import BenchmarkResult, load_result

if TYPE_CHECKING:
    from course.serving.engine import Run


def requests_view(
    source: str | os.PathLike[str] | BenchmarkResult | Run,
    *,
    run: int = 0,
    latency: str = "TTFT",
    seed: int = 1,
) -> Any:
    """Open the single requests of a result file, a loaded result or a simulated run.

    Requests are points over their sending, above a histogram of their latency; each is brushed by
    dragging, and the other follows. No network is needed. `run` picks one of a file's runs,
    `latency` ("TTFT", "E2E", "TPOT") what is shown first, `seed` the sample of a file with more
    than 5,000 requests. Returns altair's JupyterChart. Raises ResultFileError for a file that
    cannot be read and ValueError where it holds only a summary, or for an unknown run or latency.
    """
    found = load_result(source) if isinstance(source, (str, os.PathLike)) else source
    chart = requests_chart(viewed(found, run), latency=latency, seed=seed)
    import altair as alt

    alt.JupyterChart.enable_offline()
    return alt.JupyterChart(chart)
