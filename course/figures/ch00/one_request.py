"""One request's life in an engine, step by step; the steps are simulated elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.path import Path

from course.figures.axes import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    FloatArray,
    Picture,
    Point,
    held_limit,
    place,
)
from course.words import rounded, seconds

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class OneRequest:
    """The steps of one request alone in the engine; arrays of shape (steps,).

    `step_start_s` and `step_end_s` in seconds from its arrival; `step_prefill_tokens` is 0 in a
    decode step; `kv_tokens` is what its cache holds at the end of each step.
    """

    prompt_tokens: int
    output_tokens: int
    step_start_s: FloatArray
    step_end_s: FloatArray
    step_prefill_tokens: IntArray
    kv_tokens: IntArray
    ttft_s: float
    tpot_s: float
    e2e_s: float
    kv_bytes_per_token: float

    @property
    def prefill_steps(self) -> int:
        """In how many steps the prompt was computed."""
        return int((self.step_prefill_tokens > 0).sum())

    @property
    def decode_steps(self) -> int:
        """How many steps made one token each."""
        return int((self.step_prefill_tokens == 0).sum())


def _boxes(start: FloatArray, end: FloatArray, low: float, high: float) -> Path:
    """All boxes as one path: a path of a thousand corners is drawn faster than a hundred paths."""
    if not start.size:
        return Path(np.empty((0, 2)))
    corners = np.stack(
        [
            np.stack([x, np.full(x.shape, y)], axis=-1)
            for x, y in ((start, low), (end, low), (end, high), (start, high), (start, low))
        ],
        axis=1,
    )
    codes = np.tile([Path.MOVETO, *[Path.LINETO] * 3, Path.CLOSEPOLY], start.size)
    return Path(corners.reshape(-1, 2), codes)


class OneRequestPicture(Picture):
    """Steps as boxes on a time axis above; the KV cache as it grows below."""

    size = (7.8, 4.4)

    def build(self, figure: Figure) -> None:
        """Make two axes over one time, and the empty boxes."""
        left, bottom = (0.21, 0.19) if self.present else (0.12, 0.13)
        self.steps: Axes = figure.add_axes((left, 0.56, 0.96 - left, 0.29))
        self._cache: Axes = figure.add_axes(
            (left, bottom, 0.96 - left, 0.47 - bottom), sharex=self.steps
        )
        self.steps.set(xlim=(0, 1), ylim=(0, 1.9), yticks=[])
        self.steps.grid(visible=False)
        self.steps.tick_params(labelbottom=False)
        self.steps.spines["left"].set_visible(False)
        self._cache.set(ylim=(0, 5000), xlabel="time since the request was sent (s)")
        self._cache.set_ylabel("KV cache\n(tokens)")
        box: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.6, "zorder": 3}
        self._prefill = self.area(self.steps, BLUE, hatch="//", **box)
        self.decode = self.area(self.steps, ORANGE, **box)
        self._kv = self.line(self._cache, GREEN, drawstyle="steps-post")
        self._first = self.line(self.steps, INK, linewidth=1.2, linestyle=(0, (2, 2)))
        self._ttft = self.line(self.steps, BLUE, linewidth=1.4, marker="|", markersize=9)
        self._rest = self.line(self.steps, ORANGE, linewidth=1.4, marker="|", markersize=9)
        self._ttft_words = self.label(self.steps, BLUE, va="bottom", ha="left")
        self._rest_words = self.label(self.steps, ORANGE, va="bottom", ha="right")
        self._kv_words = self.label(self._cache, GREEN, va="bottom", ha="right")
        figure.legend(
            handles=[
                Patch(facecolor=BLUE, hatch="//", edgecolor="white", label="prefill step"),
                Patch(facecolor=ORANGE, edgecolor="white", label="decode step (one token each)"),
            ],
            loc="upper center", ncols=2, bbox_to_anchor=(0.53, 1.0),
        )  # fmt: skip

    def update(self, result: OneRequest, guess: Point | None) -> None:
        """Move everything to `result`; a guess has no place in this picture."""
        right = held_limit(self.steps.get_xlim()[1], result.e2e_s)
        top = held_limit(self._cache.get_ylim()[1], 1.2 * float(result.kv_tokens[-1]))
        self.steps.set_xlim(0, right)
        self._cache.set_ylim(0, top)
        prefill = result.step_prefill_tokens > 0
        start, end = result.step_start_s, result.step_end_s
        self._prefill.set_path(_boxes(start[prefill], end[prefill], 0.1, 0.9))
        self.decode.set_path(_boxes(start[~prefill], end[~prefill], 0.1, 0.9))
        # The white edges that part the boxes would cover boxes of a few points' width.
        points = 0.86 * 72 * self.size[0] * result.tpot_s / right if result.decode_steps else 1.0
        self.decode.set_linewidth(min(0.6, 0.2 * points))
        self._kv.set_data([0, *end], [0, *result.kv_tokens])
        self._first.set_data([result.ttft_s] * 2, [0, 1.15])
        self._ttft.set_data([0, result.ttft_s], [1.15, 1.15])
        self._rest.set_data([result.ttft_s, result.e2e_s], [1.15, 1.15])
        place(self._ttft_words, 0, 1.55 if self.present else 1.48, f"TTFT {seconds(result.ttft_s)}")
        self._show_rest(result, right)
        megabytes = rounded(result.kv_tokens[-1] * result.kv_bytes_per_token / 1e6)
        place(
            self._kv_words,
            max(result.e2e_s, 0.3 * right),
            float(result.kv_tokens[-1]) + 0.02 * top,
            f"{result.kv_tokens[-1]:,} tokens, {megabytes} MB",
        )

    def _show_rest(self, result: OneRequest, right: float) -> None:
        if result.output_tokens < 2:
            place(self._rest_words, 0, 0, "")
            return
        words = f"{result.output_tokens - 1} gaps of {seconds(result.tpot_s)} (TPOT)"
        # A short decode leaves no room for its words beside those of the TTFT.
        at = max(result.e2e_s, result.ttft_s + 0.34 * right, 0.62 * right)
        place(self._rest_words, min(at, right), 1.22, words)
