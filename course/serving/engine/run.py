"""What a simulation found out: `Run`, one array a fact, also told; nothing is simulated here.

Token times are not stored: a request's tokens fall on consecutive decode steps, except where the
table of interruptions says otherwise, so the ends of the steps are enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, IntArray, SmallArray, TinyArray, whole
from course.serving.engine.config import EngineConfig
from course.serving.engine.gaps import PooledGaps, pooled_gaps
from course.serving.engine.kernels.service_state import Bursts
from course.serving.engine.kernels.state import Log
from course.serving.engine.stays import NEVER, Stays, step_starts_s
from course.serving.pricing import StepCost
from course.serving.requests import (
    SLO,
    Distribution,
    RequestTable,
    Status,
    Summary,
    Window,
    metrics,
)
from course.serving.workload import Workload
from course.words import seconds

if TYPE_CHECKING:
    import pandas as pd

Span = tuple[int, str, float, float]


class Packing(NamedTuple):
    """How a step's three counts stand in one word: prefill tokens, decode sequences, KV blocks."""

    limited: bool  # the blocks are counted
    decode_shift: int
    prefill_shift: int


@dataclass(frozen=True, eq=False)
class SummaryOfSteps(Summary):
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
        horizon_s: float,
        log: Log,
        packing: Packing,
        *,
        arrival_s: FloatArray | None = None,
        user: IntArray | None = None,
        batch: SmallArray | None = None,
        bursts: Bursts | None = None,
        stays: Stays | None = None,
        prefix_hit_tokens: SmallArray | None = None,
        recovered_tokens: SmallArray | None = None,
    ) -> None:
        self.work = work
        self.cost = cost
        self.config = config
        self.horizon_s = None if horizon_s == math.inf else horizon_s
        self._log = log
        self._packing = packing
        self.bursts = bursts
        offered = log.status.size
        self.arrival_s: FloatArray = work.arrival_s[:offered] if arrival_s is None else arrival_s
        self.user = user
        self.status: TinyArray = log.status
        self.scheduled_s: FloatArray = log.scheduled_s
        self.first_token_s: FloatArray = log.first_token_s
        self.finish_s: FloatArray = log.finish_s
        self.preemptions: SmallArray = log.preemptions
        self.emitted_tokens: SmallArray = log.tokens
        self.step_end_s: FloatArray = log.step_end_s
        self.batch = batch
        if stays is not None:
            self.stays = stays
        if prefix_hit_tokens is not None and recovered_tokens is not None:
            self.prefix_hit_tokens, self.recovered_tokens = prefix_hit_tokens, recovered_tokens

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
        return self._log.step_work >> self._packing.prefill_shift

    @property
    def step_decode_seqs(self) -> IntArray:
        """Sequences that decoded in each step (slots that count as such, in a static batch)."""
        width = self._packing.prefill_shift - self._packing.decode_shift
        return (self._log.step_work >> self._packing.decode_shift) & ((1 << width) - 1)

    @property
    def step_kv_blocks(self) -> IntArray | None:
        """KV blocks held during each step; None where they are not limited."""
        if not self._packing.limited:
            return None
        return self._log.step_work & ((1 << self._packing.decode_shift) - 1)

    @property
    def decode_mask(self) -> int:
        """The bits of a step's logged word that say how many decoded."""
        return (1 << self._packing.prefill_shift) - (1 << self._packing.decode_shift)

    @cached_property
    def step_start_s(self) -> FloatArray:
        """When each step began, in seconds."""
        return step_starts_s(self.step_end_s, self.scheduled_s)

    @cached_property
    def stays(self) -> Stays:
        """Who held a seat from which step to which; in a static batch, to the batch's end.

        >>> from course.serving.pricing import LinearStepCost
        >>> from course.serving.engine import simulate
        >>> work = Workload([0.0, 0.0], prompt_tokens=[9, 9], output_tokens=[3, 1])
        >>> stays = simulate(work, LinearStepCost(fixed_s=0.5)).stays
        >>> stays.owner.tolist(), stays.from_step.tolist(), stays.to_step.tolist()
        ([0, 1], [0, 0], [3, 1])
        """
        seated = np.flatnonzero(np.isfinite(self.scheduled_s))
        # in the order of admission: those who sat down in one step, by their first token
        return Stays.of_rows([row for request in seated.tolist() for row in _stays(self, request)])

    # ------------------------------------------------------------------------------------ tokens
    @cached_property
    def _gap_rows(self) -> tuple[IntArray, SmallArray]:
        """The rows of the table of interruptions, sorted by request, and the request of each."""
        order = np.argsort(self._log.gaps[:, 0], kind="stable")
        return order, self._log.gaps[order, 0]

    def interruptions(self, request: int) -> SmallArray:
        """Return a request's interruptions, one row each, in the columns `GAP_*` of the loops."""
        order, requests = self._gap_rows
        first, last = np.searchsorted(requests, [request, request + 1])
        return self._log.gaps[order[first:last]]

    def token_steps(self, request: int) -> IntArray:
        """Return the number of the step that brought each of a request's output tokens.

        Raises ValueError for a request that was not offered.
        """
        from course.serving.engine.kernels import steps as k

        index = whole("request", request, low=0)
        if index >= len(self):
            raise ValueError(f"request={request} was not offered; give 0 … {len(self) - 1}")
        if self.bursts is not None:
            rows = np.flatnonzero(self.bursts.attempt == index)
            return np.repeat(self.bursts.step[rows], self.bursts.tokens[rows]).astype(np.int64)
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
        if self.bursts is not None:
            gaps = self._gaps_of_bursts(chosen, self.bursts)
            return PooledGaps(gaps, np.ones(gaps.size, dtype=np.int32), without)
        return pooled_gaps(self._log, self.decode_mask, self._gap_rows[0], chosen, without)

    def _gaps_of_bursts(self, chosen: npt.NDArray[np.bool_], bursts: Bursts) -> FloatArray:
        """Return the gaps between neighbouring tokens where several may come in a step."""
        rows = np.argsort(bursts.attempt, kind="stable")
        rows = rows[chosen[bursts.attempt[rows]]]
        owner = np.repeat(bursts.attempt[rows], bursts.tokens[rows])
        times_s = np.repeat(self.step_end_s[bursts.step[rows]], bursts.tokens[rows])
        gaps: FloatArray = np.diff(times_s)[owner[1:] == owner[:-1]]
        return gaps

    def itl_s(self) -> FloatArray:
        """Return every gap between neighbouring tokens of the finished requests, smallest first."""
        return self.pooled_gaps(self.status == metrics.Status.FINISHED).ordered

    # ------------------------------------------------------------------------------ prefix cache
    @cached_property
    def prefix_hit_tokens(self) -> SmallArray:
        """Tokens of each prompt found computed at its first admission, in the cache or by hand."""
        cached, size = self.work.cached_prefix_tokens, self.config.block_size
        if cached is None:
            return np.zeros(len(self), dtype=np.int32)
        known = np.minimum(cached, self.work.prompt_tokens - 1)[: len(self)] // size * size
        return np.where(np.isnan(self.scheduled_s), 0, known).astype(np.int32)

    @cached_property
    def recovered_tokens(self) -> SmallArray:
        """Tokens that each request found again in the cache when it came back from preemption."""
        return np.zeros(len(self), dtype=np.int32)

    @property
    def prefix_hit_share(self) -> float | None:
        """Hits / prompt tokens, of the requests that were scheduled; None where none was."""
        begun = ~np.isnan(self.scheduled_s)
        tokens = int(self.work.prompt_tokens[: len(self)][begun].sum())
        return int(self.prefix_hit_tokens[begun].sum()) / tokens if tokens else None

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
        """The requests as `course.serving.requests` takes them."""
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

        >>> from course.serving.pricing import LinearStepCost
        >>> from course.serving.engine import simulate
        >>> work = Workload([0.0, 0.0], prompt_tokens=[9, 9], output_tokens=[3, 1])
        >>> found = simulate(work, LinearStepCost(fixed_s=0.5)).summary(SLO(ttft_s=0.5))
        >>> found.requests_per_s, found.tpot.mean, found.attainment, found.itl.p50
        (1.3333333333333333, 0.5, 1.0, 0.5)
        """
        return SummaryOfSteps(self.requests, window or self.window(), slo, None, self)

    # -------------------------------------------------------------------------------------- read
    def to_frame(self) -> pd.DataFrame:
        """Return one row a request: when and how it was served, and its metrics."""
        import pandas as pd

        offered = len(self)
        columns: dict[str, Any] = {
            "arrival_s": self.arrival_s,
            "prompt_tokens": self.work.prompt_tokens[:offered],
            "output_tokens": self.work.output_tokens[:offered],
            "status": [Status(code).name.lower() for code in self.status.tolist()],
            "scheduled_s": self.scheduled_s,
            "first_token_s": self.first_token_s,
            "finish_s": self.finish_s,
            "emitted_tokens": self.emitted_tokens,
            "preemptions": self.preemptions,
            "ttft_s": self.ttft_s,
            "tpot_s": self.tpot_s,
            "e2e_s": self.e2e_s,
        }
        optional = {"user": self.user, "batch": self.batch, "label": self.work.label}
        columns |= {
            name: column[:offered] for name, column in optional.items() if column is not None
        }
        return pd.DataFrame(columns).rename_axis("request")

    def timeline(self, requests: npt.ArrayLike | None = None) -> pd.DataFrame:
        """Return one row a stretch of a request's life: request, phase, start_s, end_s.

        Phases: queued, prefill, decode; preempted (waiting again), recompute, stalled (in its seat
        while others decode); idle slot (over, but still counted in a static batch). `requests`:
        which ones, all if left out.
        """
        import pandas as pd

        chosen = np.arange(len(self)) if requests is None else np.atleast_1d(np.asarray(requests))
        spans = [span for request in chosen.tolist() for span in _spans(self, request)]
        return pd.DataFrame(spans, columns=["request", "phase", "start_s", "end_s"])

    def explain(self, request: int) -> str:
        """Return in plain sentences what happened to a request, and what its time went into."""
        spans = _spans(self, request)
        prompt, output = self.work.prompt_tokens[request], self.work.output_tokens[request]
        inside = int(
            (self.arrival_s[:request] <= self.arrival_s[request]).sum()
            - (self.finish_s[:request] <= self.arrival_s[request]).sum()
            - (self.status[:request] == Status.REJECTED).sum()
        )
        lines = [
            f"Request {request} ({prompt} prompt tokens, {output} output tokens) arrived at "
            f"{self.arrival_s[request]:.3f} s; {inside} earlier ones were in the engine."
        ]
        if self.status[request] == Status.REJECTED:
            return "\n".join([*lines, _why_rejected(self, int(prompt + output - 1))])
        words = {
            "queued": "waited in the queue",
            "prefill": "had its prompt computed",
            "decode": "made tokens",
            "preempted": "was preempted, lost its cache and waited again",
            "recompute": "had its prompt and tokens computed again",
            "stalled": "stood still in its seat while others decoded",
            "idle slot": "was over, but kept its slot in the batch",
        }
        for _, phase, start_s, end_s in spans:
            lines.append(f"{start_s:10.3f} s  {seconds(end_s - start_s):>8}  {words[phase]}")
        lines.append(_verdict(self, request))
        return "\n".join(lines)


# --- one request's seats -------------------------------------------------------------------------


def _stays(run: Run, request: int) -> list[tuple[int, int, int, int, int, int]]:
    """Return a request's stays in order, as rows of the columns of `Stays`."""
    from course.serving.engine.kernels import steps as k

    begun = int(np.searchsorted(run.step_end_s, run.scheduled_s[request], side="right"))
    lost = [row for row in run.interruptions(request).tolist() if row[k.GAP_BACK] != k.KEPT]
    ready = NEVER
    if (lost[0][k.GAP_TOKENS] if lost else run.emitted_tokens[request]) > 0:
        ready = int(np.searchsorted(run.step_end_s, run.first_token_s[request]))
    rows = []
    emitted, cached = 0, int(run.prefix_hit_tokens[request])
    for row in lost:
        rows.append((request, begun, row[k.GAP_LOST], ready, cached, emitted))
        begun, ready = row[k.GAP_BACK], row[k.GAP_RESUMED]
        emitted, cached = row[k.GAP_TOKENS], 0
    if begun >= 0:
        rows.append((request, begun, _last_step(run, request) + 1, ready, cached, emitted))
    return rows


def _last_step(run: Run, request: int) -> int:
    """Return the last step that a request kept its seat for; NEVER - 1 if it has it still."""
    ends_s = run.finish_s[[request]]
    if run.batch is not None:
        ends_s = run.finish_s[run.batch == run.batch[request]]
    if np.isnan(ends_s).any():
        return NEVER - 1
    return int(np.searchsorted(run.step_end_s, ends_s.max()))


# --- one request's story -------------------------------------------------------------------------


def _spans(run: Run, request: int) -> list[Span]:
    """Return a request's stretches in order; none for a rejected one."""
    if not 0 <= request < len(run):
        raise ValueError(f"request={request} was not offered; give 0 … {len(run) - 1}")
    if run.status[request] == Status.REJECTED:
        return []
    over_s = float(run.finish_s[request])
    if np.isnan(over_s):
        over_s = max(run.end_s, float(run.arrival_s[request]))
    begun_s = float(run.scheduled_s[request])
    if np.isnan(begun_s):
        return [(request, "queued", float(run.arrival_s[request]), over_s)]
    changes = [(float(run.arrival_s[request]), "queued"), (begun_s, "prefill")]
    interruptions = run.interruptions(request)
    if interruptions.shape[0] == 0 or interruptions[0, 1] > 0:
        changes.append((float(run.first_token_s[request]), "decode"))
    changes += _interrupted(run, interruptions)
    spans = []
    for place, (start_s, phase) in enumerate(changes):
        end_s = changes[place + 1][0] if place + 1 < len(changes) else over_s
        if start_s < end_s:
            spans.append((request, phase, start_s, end_s))
    return spans + _idle_slot(run, request, over_s)


def _interrupted(run: Run, interruptions: npt.NDArray[np.int32]) -> list[tuple[float, str]]:
    """Return what changes when, from the rows of a request's interruptions."""
    from course.serving.engine.kernels import steps as k

    changes = []
    for row in interruptions.tolist():
        stalled = row[k.GAP_BACK] == k.KEPT
        changes.append((_start_s(run, row[k.GAP_LOST]), "stalled" if stalled else "preempted"))
        if row[k.GAP_BACK] >= 0:
            changes.append((_start_s(run, row[k.GAP_BACK]), "recompute"))
        if row[k.GAP_RESUMED] >= 0:
            resumed = row[k.GAP_RESUMED]
            back_s = _start_s(run, resumed) if stalled else float(run.step_end_s[resumed])
            changes.append((back_s, "decode"))
    return changes


def _start_s(run: Run, step: int) -> float:
    """Return when a step began that followed another without a pause."""
    return float(run.step_end_s[step - 1])


def _idle_slot(run: Run, request: int, over_s: float) -> list[Span]:
    """Return the stretch in which a request that ended in a static batch still counts."""
    if run.batch is None:
        return []
    ends_s = run.finish_s[run.batch == run.batch[request]]
    last_s = run.end_s if np.isnan(ends_s).any() else float(ends_s.max())
    return [(request, "idle slot", over_s, last_s)] if over_s < last_s else []


def _why_rejected(run: Run, final_tokens: int) -> str:
    config = run.config
    if not config.enable_chunked_prefill and final_tokens > config.max_num_batched_tokens:
        return (
            f"It was rejected: it grows to {final_tokens} tokens, and without chunked prefill a "
            f"step may compute at most {config.max_num_batched_tokens}."
        )
    needed = -(-final_tokens // config.block_size)
    return (
        f"It was rejected: it grows to {final_tokens} tokens, which need {needed} KV blocks of "
        f"{config.block_size}, and there are {config.num_kv_blocks}."
    )


def _verdict(run: Run, request: int) -> str:
    """Return TTFT, TPOT and E2E in a sentence, and the longest gap with what was in its step."""
    if run.status[request] != Status.FINISHED:
        return f"It was not finished: {run.emitted_tokens[request]} tokens came."
    text = f"TTFT {seconds(float(run.ttft_s[request]))}, E2E {seconds(float(run.e2e_s[request]))}"
    steps = run.token_steps(request)
    if steps.size < 2:
        return f"{text}; with one token it has no TPOT."
    gaps_s = np.diff(run.step_end_s[steps])
    longest = int(gaps_s.argmax())
    between = slice(int(steps[longest]) + 1, int(steps[longest + 1]) + 1)
    prefilled = int(run.step_prefill_tokens[between].sum())
    return (
        f"{text}, TPOT {seconds(float(run.tpot_s[request]))}; its longest gap, "
        f"{seconds(float(gaps_s[longest]))}, had {prefilled} prefill tokens in it."
    )
