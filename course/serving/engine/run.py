"""What a simulation found out: `Run`, one array a fact; nothing is simulated here.

Token times are not stored: a request's tokens fall on consecutive decode steps, except where the
table of interruptions says otherwise, so the ends of the steps are enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from course.serving import metrics
from course.serving._arguments import FloatArray, IntArray, SmallArray, TinyArray, whole
from course.serving._distributions import Distribution
from course.serving.cost import StepCost
from course.serving.engine._gaps import PooledGaps, pooled_gaps
from course.serving.engine._state import Log, Rules, Users, Work
from course.serving.engine.config import EngineConfig
from course.serving.metrics import SLO, RequestTable, Summary, Window
from course.serving.workload import Workload

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class RunSummary(Summary):
    """A run's metrics, with the gaps between tokens taken from its steps."""

    run: Run | None = None

    @cached_property
    def itl(self) -> Distribution | None:
        """The single gaps of the finished requests that were sent in the window, seconds."""
        assert self.run is not None
        offered = self.window.offers(self.requests.sent_s)
        return self.run.pooled_gaps(self.requests.finished & offered)


class Run:
    """The result of a simulation; every list is in the order in which requests were sent.

    Per offered request: `arrival_s`, `status`, `scheduled_s` (start of its first step),
    `first_token_s`, `finish_s` (each NaN where it did not come so far), `preemptions`,
    `emitted_tokens`, and `user` in a closed loop, `batch` in static batching (otherwise None).
    Per step: `step_end_s`, `step_prefill_tokens`, `step_decode_seqs`, and `step_kv_blocks` (held
    during it; None where KV is not limited). What was run: `work`, `cost`, `config`, `horizon_s`.
    """

    def __init__(
        self,
        work: Workload,
        cost: StepCost,
        config: EngineConfig,
        horizon_s: float | None,
        rules: Rules,
        users: Users,
        log: Log,
        state: Work,
    ) -> None:
        from course.serving.engine import _kernels as k

        offered = int(state.at[k.SENT])
        closed = users.next_s.size > 0
        self.work = work
        self.cost = cost
        self.config = config
        self.horizon_s = horizon_s
        self._rules = rules
        self._log = log
        self.arrival_s: FloatArray = users.sent_s[:offered] if closed else work.arrival_s[:offered]
        self.user: IntArray | None = users.owner[:offered] if closed else None
        self.status: TinyArray = log.status[:offered]
        self.scheduled_s: FloatArray = log.scheduled_s[:offered]
        self.first_token_s: FloatArray = log.first_token_s[:offered]
        self.finish_s: FloatArray = log.finish_s[:offered]
        self.preemptions: SmallArray = log.preemptions[:offered]
        self.emitted_tokens: SmallArray = log.tokens[:offered]
        self.step_end_s: FloatArray = log.step_end_s
        self.batch: SmallArray | None = None
        if rules.batching == k.STATIC:
            # -1: never taken into a batch
            self.batch = np.maximum(k.FIRST_BATCH - state.mark[:offered], -1)

    def __len__(self) -> int:
        return int(self.status.size)

    def __repr__(self) -> str:
        names = {kind.name.lower(): int((self.status == kind).sum()) for kind in metrics.Status}
        counts = ", ".join(f"{count} {name}" for name, count in names.items() if count)
        return f"Run({counts or 'no requests'}; {self.step_end_s.size} steps, {self.end_s:.6g} s)"

    # ------------------------------------------------------------------------------------- steps
    @property
    def end_s(self) -> float:
        """The end of the last step, in seconds; 0 without a step."""
        return float(self.step_end_s[-1]) if self.step_end_s.size else 0.0

    @property
    def step_prefill_tokens(self) -> IntArray:
        """Prompt tokens computed in each step, recomputed ones included."""
        return self._log.step_work >> self._rules.prefill_shift

    @property
    def step_decode_seqs(self) -> IntArray:
        """Sequences that decoded in each step (slots that count as such, in a static batch)."""
        width = self._rules.prefill_shift - self._rules.decode_shift
        return (self._log.step_work >> self._rules.decode_shift) & ((1 << width) - 1)

    @property
    def step_kv_blocks(self) -> IntArray | None:
        """KV blocks held during each step; None where they are not limited."""
        if self._rules.blocks < 0:
            return None
        return self._log.step_work & ((1 << self._rules.decode_shift) - 1)

    @property
    def decode_mask(self) -> int:
        """The bits of a step's logged word that say how many decoded."""
        return (1 << self._rules.prefill_shift) - (1 << self._rules.decode_shift)

    # ------------------------------------------------------------------------------------ tokens
    @cached_property
    def _gap_rows(self) -> tuple[IntArray, SmallArray]:
        """The rows of the table of interruptions, sorted by request, and the request of each."""
        order = np.argsort(self._log.gaps[:, 0], kind="stable")
        return order, self._log.gaps[order, 0]

    def interruptions(self, request: int) -> SmallArray:
        """Return a request's interruptions, one row each, in the columns of `_kernels.GAP_*`."""
        order, requests = self._gap_rows
        first, last = np.searchsorted(requests, [request, request + 1])
        return self._log.gaps[order[first:last]]

    def token_steps(self, request: int) -> IntArray:
        """Return the number of the step that brought each of a request's output tokens.

        Raises ValueError for a request that was not offered.
        """
        from course.serving.engine import _kernels as k

        index = whole("request", request, low=0)
        if index >= len(self):
            raise ValueError(f"request={request} was not offered; give 0 … {len(self) - 1}")
        order, requests = self._gap_rows
        first, last = np.searchsorted(requests, [index, index + 1])
        steps = np.empty(int(self.emitted_tokens[index]), dtype=np.int64)
        k.steps_of_tokens(self._log, self.decode_mask, index, order[first:last], steps)
        return steps

    def token_times(self, request: int) -> FloatArray:
        """Return when each of a request's output tokens came, in seconds."""
        return self.step_end_s[self.token_steps(request)]

    def pooled_gaps(self, chosen: npt.NDArray[np.bool_]) -> PooledGaps:
        """Return every gap between neighbouring tokens of the `chosen` requests, in seconds."""
        without = int((self.emitted_tokens[chosen] < 2).sum())
        return pooled_gaps(self._log, self.decode_mask, self._gap_rows[0], chosen, without)

    def itl_s(self) -> FloatArray:
        """Return every gap between neighbouring tokens of the finished requests, smallest first."""
        return self.pooled_gaps(self.status == metrics.Status.FINISHED).ordered

    # ----------------------------------------------------------------------------------- metrics
    @cached_property
    def ttft_s(self) -> FloatArray:
        """Time to first token of each request; NaN where there was none."""
        return metrics.ttft_s(self.arrival_s, self.first_token_s)

    @cached_property
    def tpot_s(self) -> FloatArray:
        """Time per output token of each finished request with two or more; NaN otherwise."""
        return metrics.tpot_s(self.first_token_s, self.finish_s, self.requests.output_tokens)

    @cached_property
    def e2e_s(self) -> FloatArray:
        """End-to-end latency of each finished request; NaN otherwise."""
        return metrics.e2e_s(self.arrival_s, self.finish_s)

    @cached_property
    def requests(self) -> RequestTable:
        """The requests as `course.serving.metrics` takes them."""
        return RequestTable.trusted(
            sent_s=self.arrival_s,
            first_token_s=self.first_token_s,
            last_token_s=self.finish_s,
            output_tokens=self.emitted_tokens.astype(np.int64),
            status=self.status,
            prompt_tokens=self.work.prompt_tokens[: len(self)],
        )

    def window(self) -> Window:
        """Return the window from the first arrival to the last step's end."""
        if len(self) == 0:
            return Window("first send to last end", 0.0, 0.0)
        end_s = max(self.end_s, float(self.arrival_s[-1]))
        return Window("first send to last end", float(self.arrival_s[0]), end_s)

    def steady_state(self, *, ramp_s: float | None = None, drain_s: float | None = None) -> Window:
        """Return the window without ramp and drain; see `metrics.steady_state`."""
        return metrics.steady_state(self.requests, ramp_s=ramp_s, drain_s=drain_s)

    def summary(self, slo: SLO | None = None, *, window: Window | None = None) -> Summary:
        """Return the run's metrics, each computed when first asked for.

        `window`: what rates are divided by, `self.window()` if left out; `self.steady_state()`
        leaves out the ramp and the drain.

        >>> from course.serving.cost import LinearStepCost
        >>> from course.serving.engine import simulate
        >>> work = Workload([0.0, 0.0], prompt_tokens=[9, 9], output_tokens=[3, 1])
        >>> found = simulate(work, LinearStepCost(fixed_s=0.5)).summary(SLO(ttft_s=0.5))
        >>> found.requests_per_s, found.tpot.mean, found.attainment, found.itl.p50
        (1.3333333333333333, 0.5, 1.0, 0.5)
        """
        return RunSummary(self.requests, window or self.window(), slo, None, self)

    # -------------------------------------------------------------------------------------- read
    def to_frame(self) -> pd.DataFrame:
        """Return one row a request: when and how it was served, and its metrics."""
        from course.serving.engine.reading import frame

        return frame(self)

    def timeline(self, requests: npt.ArrayLike | None = None) -> pd.DataFrame:
        """Return one row a stretch of a request's life: request, phase, start_s, end_s.

        Phases: queued, prefill, decode; preempted (waiting again), recompute, stalled (in its seat
        while others decode); idle slot (over, but still counted in a static batch). `requests`:
        which ones, all if left out.
        """
        from course.serving.engine.reading import timeline

        return timeline(self, requests)

    def explain(self, request: int) -> str:
        """Return in plain sentences what happened to a request, and what its time went into."""
        from course.serving.engine.reading import explain

        return explain(self, request)
