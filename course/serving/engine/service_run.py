"""What a run of `simulate_service` found out: `ServiceRun`; nothing is simulated here.

A request is what a user wants, an attempt one sending of it: the user's clock starts at the first
attempt, and each attempt has a clock of its own.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from course.serving._arguments import FloatArray, IntArray, SmallArray, TinyArray, at_least
from course.serving.engine.admission import Verdict
from course.serving.engine.service_setup import later
from course.serving.engine.stays import Stays
from course.serving.pricing import StepCost
from course.serving.requests import SLO, BoolArray, RequestTable, Status, Summary, Window, metrics
from course.serving.workload import Workload

if TYPE_CHECKING:
    import pandas as pd

    from course.serving.engine.general import Found
    from course.serving.engine.service_setup import Setting


@dataclass(frozen=True, eq=False)
class AttemptTable:
    """One entry an attempt in each column, in order of sending; times in seconds.

    `request`: the row of the workload; `attempt`: 1 for its first. `verdict`: the numbers of
    `Verdict`; `status`: those of `Status`. `scheduled_s`: start of its first step. `first_token_s`:
    NaN unless the client was still there. `end_s`: finish, refusal or giving up. `output_tokens`:
    asked for, after degrading; `emitted_tokens`: made by the server, into the void or not.
    `computed_tokens`: prefill, recompute and decode; `recomputed_tokens`: of those, the ones that
    it had had before a preemption. `preemptions`. `prefix_hit_tokens`: found in the prefix cache at
    the first admission; `recovered_tokens`: at later ones. `entered_s`: when it came in from
    outside the door; NaN if it never stood there, or still does.
    """

    request: SmallArray
    attempt: SmallArray
    sent_s: FloatArray
    verdict: TinyArray
    status: TinyArray
    scheduled_s: FloatArray
    first_token_s: FloatArray
    end_s: FloatArray
    output_tokens: SmallArray
    emitted_tokens: SmallArray
    computed_tokens: IntArray
    recomputed_tokens: IntArray
    preemptions: SmallArray
    prefix_hit_tokens: SmallArray
    recovered_tokens: SmallArray
    entered_s: FloatArray

    def __len__(self) -> int:
        return int(self.request.size)

    @property
    def finished(self) -> BoolArray:
        """True for each attempt whose client got the whole answer."""
        return np.asarray(self.status == Status.FINISHED)

    @cached_property
    def ttft_s(self) -> FloatArray:
        """Time to first token by the attempt's own clock; NaN where its client got none."""
        return metrics.ttft_s(self.sent_s, self.first_token_s)

    @cached_property
    def e2e_s(self) -> FloatArray:
        """End-to-end latency by the attempt's own clock; NaN unless it finished."""
        return np.where(self.finished, self.end_s, math.nan) - self.sent_s


class ServiceRun:
    """The result of `simulate_service`.

    Per attempt: `attempts`, an `AttemptTable`. Per offered request, in the order in which they
    were first sent: `attempt_counts`, `status` (of the attempt that finished, otherwise of the
    last), `first_sent_s`, `first_token_s` (of the attempt that finished, NaN otherwise), `end_s`,
    `degraded`, and `user` in a closed loop (otherwise None). Per step: `step_start_s`,
    `step_end_s`, `step_prefill_tokens`, `step_decode_seqs`, `step_kv_blocks` (None without a
    limit), `step_running` and `step_waiting` (attempts, right after scheduling; those outside the
    door and those whose clients have gone unnoticed are among them). `stays`: which attempt held a
    seat from which step to which. What was run: `work`, `cost`, `config`, `patience`,
    `long_prompts`.
    """

    def __init__(
        self,
        work: Workload,
        cost: StepCost,
        setting: Setting,
        found: Found,
    ) -> None:
        log, steps, server = found.attempts, found.steps, found.server
        delay_s = setting.config.front_end_s
        self.work = work
        self.cost = cost
        self.config = setting.config
        self.patience = setting.patience
        self.long_prompts = setting.long_prompts
        self.horizon_s = None if setting.horizon_s == math.inf else setting.horizon_s
        self.attempts = AttemptTable(
            request=log.request,
            attempt=log.number,
            sent_s=later(log.sent_s, -delay_s),
            verdict=log.verdict,
            status=log.status,
            scheduled_s=log.scheduled_s,
            first_token_s=log.first_token_s,
            end_s=log.end_s,
            output_tokens=log.output,
            emitted_tokens=log.emitted,
            computed_tokens=log.computed,
            recomputed_tokens=log.recomputed,
            preemptions=log.preemptions,
            prefix_hit_tokens=log.hit if log.hit.size else np.zeros(log.status.size, np.int32),
            recovered_tokens=log.recovered if log.hit.size else np.zeros(log.status.size, np.int32),
            entered_s=_or_nan(log.entered_s, log.sent_s.size),
        )
        self.stays = Stays.of_attempts(log, steps)
        self.bursts = found.bursts if setting.config.speculation else None
        offered = int((server.tries > 0).sum())
        self.attempt_counts: IntArray = server.tries[:offered]
        self.first_sent_s: FloatArray = later(server.first_s[:offered], -delay_s)
        self.user: IntArray | None = server.owner[:offered] if setting.users else None
        # the last attempt of each: of several entries for one place, the last stays
        self.last_attempt: IntArray = np.zeros(offered, dtype=np.int64)
        self.last_attempt[log.request] = np.arange(len(self.attempts))
        self.step_start_s: FloatArray = steps.start_s
        self.step_end_s: FloatArray = steps.end_s
        self.step_prefill_tokens: SmallArray = steps.prefill_tokens
        self.step_decode_seqs: SmallArray = steps.decode_seqs
        limited = setting.config.num_kv_blocks is not None
        self.step_kv_blocks: IntArray | None = steps.blocks if limited else None
        self.step_running: SmallArray = steps.running
        self.step_waiting: SmallArray = steps.waiting

    def __len__(self) -> int:
        return int(self.first_sent_s.size)

    def __repr__(self) -> str:
        names = {kind.name.lower(): int((self.status == kind).sum()) for kind in Status}
        counts = ", ".join(f"{count} {name}" for name, count in names.items() if count)
        return (
            f"ServiceRun({counts or 'no requests'}; {len(self.attempts)} attempts, "
            f"{self.step_end_s.size} steps, {self.end_of_run_s:.6g} s)"
        )

    @property
    def end_of_run_s(self) -> float:
        """The end of the last step, in seconds; 0 without a step."""
        return float(self.step_end_s[-1]) if self.step_end_s.size else 0.0

    # ------------------------------------------------------------------------------- per request
    @cached_property
    def status(self) -> TinyArray:
        """How each request ended; the numbers of `Status`."""
        return self.attempts.status[self.last_attempt]

    @property
    def statuses(self) -> list[Status]:
        """How each request ended, by name."""
        return [Status(code) for code in self.status.tolist()]

    @cached_property
    def finished(self) -> BoolArray:
        """True for each request that was answered."""
        return np.asarray(self.status == Status.FINISHED)

    @cached_property
    def first_token_s(self) -> FloatArray:
        """When the answer began; NaN unless it was completed."""
        return np.where(self.finished, self.attempts.first_token_s[self.last_attempt], math.nan)

    @cached_property
    def end_s(self) -> FloatArray:
        """When each request was over for its user; NaN for those that are not."""
        return self.attempts.end_s[self.last_attempt]

    @cached_property
    def degraded(self) -> BoolArray:
        """True for each request whose last attempt was cut to a shorter answer."""
        return np.asarray(self.attempts.verdict[self.last_attempt] == Verdict.DEGRADE)

    @cached_property
    def ttft_s(self) -> FloatArray:
        """Time to first token by the user's clock, from the first attempt on; NaN without one."""
        return metrics.ttft_s(self.first_sent_s, self.first_token_s)

    @cached_property
    def e2e_s(self) -> FloatArray:
        """End-to-end latency by the user's clock; NaN unless it finished."""
        return metrics.e2e_s(self.first_sent_s, self.requests.last_token_s)

    @cached_property
    def tpot_s(self) -> FloatArray:
        """Time per output token of each finished request with two or more; NaN otherwise."""
        table = self.requests
        return metrics.tpot_s(table.first_token_s, table.last_token_s, table.output_tokens)

    @cached_property
    def requests(self) -> RequestTable:
        """The requests as `course.serving.requests` takes them, by the user's clock."""
        last = self.attempts.emitted_tokens[self.last_attempt]
        return RequestTable.trusted(
            sent_s=self.first_sent_s,
            first_token_s=self.first_token_s,
            last_token_s=np.where(self.finished, self.end_s, math.nan),
            output_tokens=np.where(self.finished, last, 0).astype(np.int64),
            status=self.status,
            prompt_tokens=self.work.prompt_tokens[: len(self)],
            end_s=self.end_s,
            degraded=self.degraded,
        )

    # --------------------------------------------------------------------------------- the work
    @property
    def computed_tokens(self) -> int:
        """Tokens that the steps computed, for whomever."""
        return int(self.attempts.computed_tokens.sum())

    @cached_property
    def useful_tokens(self) -> int:
        """Tokens computed, once each, for attempts whose clients got the whole answer."""
        table = self.attempts
        return int((table.computed_tokens - table.recomputed_tokens)[table.finished].sum())

    @property
    def wasted_tokens(self) -> int:
        """Tokens computed again, or for attempts that brought their clients nothing."""
        return self.computed_tokens - self.useful_tokens

    # --------------------------------------------------------------------------------- metrics
    def window(self) -> Window:
        """Return the window from the first sending to the end of all, steps and requests."""
        if len(self) == 0:
            return Window("first send to last end", 0.0, 0.0)
        known_s = self.end_s[np.isfinite(self.end_s)]
        last_s = float(np.append(known_s, self.first_sent_s[-1]).max())
        start_s = float(self.first_sent_s[0])
        return Window("first send to last end", start_s, max(last_s, self.end_of_run_s))

    def summary(self, slo: SLO | None = None, *, window: Window | None = None) -> Summary:
        """Return the requests' metrics by the user's clock; refused and timed out ones are misses.

        >>> from course.serving.pricing import LinearStepCost
        >>> from course import Patience, Workload, simulate_service
        >>> work = Workload([0.0, 0.0], prompt_tokens=[9, 9], output_tokens=[3, 1])
        >>> run = simulate_service(work, LinearStepCost(per_prefill_token_s=0.1, fixed_s=0.1),
        ...                        patience=Patience(ttft_s=1.0))
        >>> run.summary(SLO(ttft_s=1.0)).attainment, run.summary().counts["timed_out"]
        (0.0, 2)
        """
        return Summary(self.requests, window or self.window(), slo, None)

    def _sent_in(self, from_s: float | None, to_s: float | None) -> BoolArray:
        chosen = np.ones(len(self), dtype=np.bool_)
        if from_s is not None:
            chosen &= self.first_sent_s >= from_s
        if to_s is not None:
            chosen &= self.first_sent_s < to_s
        return chosen

    def good(self, slo: SLO | None) -> BoolArray:
        """Return which requests were answered, and inside every limit of the SLO if there is one.

        An answer without a TPOT passes or fails as the SLO says; an undecided one does not count.
        """
        if slo is None:
            return self.finished
        met, undecided = metrics.meets(slo, self.ttft_s, self.tpot_s, self.e2e_s)
        return met & ~undecided & self.finished

    def attainment(
        self, slo: SLO, from_s: float | None = None, to_s: float | None = None
    ) -> float | None:
        """Return good requests / requests offered, of those first sent in [from_s, to_s).

        None where none was offered. The whole run where the times are left out.
        """
        return Summary(
            self.requests.only(self._sent_in(from_s, to_s)), self.window(), slo
        ).attainment

    def goodput_per_s(
        self, slo: SLO, from_s: float | None = None, to_s: float | None = None
    ) -> float | None:
        """Return good requests a second of those first sent in [from_s, to_s), per second of it.

        None where the window has no length or the SLO no limit. Left out, the window's ends are
        those of `window()`.
        """
        if not slo.exists:
            return None
        start_s = self.window().start_s if from_s is None else from_s
        end_s = self.window().end_s if to_s is None else to_s
        if not end_s > start_s:
            return None
        return int((self.good(slo) & self._sent_in(from_s, to_s)).sum()) / (end_s - start_s)

    def timeseries(self, width_s: float, slo: SLO | None = None) -> pd.DataFrame:
        """Return one row a bin of `width_s` seconds, from 0 to the end of the run.

        `start_s`, `end_s` of the bin; of the requests, `offered` (first sent in it) and `good`
        (ended in it, inside the SLO if one is given); of the attempts, `attempts` (sent in it),
        `finished`, `rejected` and `timed_out` (ended in it); `waiting` and `running` attempts in
        the server at its end, as of the last scheduling. Raises ValueError for a width that is not
        above 0.
        """
        import pandas as pd

        width = at_least("width_s", width_s, above=True)
        table = self.attempts
        bins = max(math.ceil(self.window().end_s / width + 1e-9), 1)
        edges: FloatArray = np.arange(bins + 1).astype(np.float64) * width

        def counted(times_s: FloatArray) -> IntArray:
            places = np.minimum((times_s / width).astype(np.int64), bins - 1)
            return np.bincount(places, minlength=bins)

        ended = {kind: table.end_s[table.status == kind] for kind in Status}
        waiting, running = self._inside(edges[1:])
        return pd.DataFrame(
            {
                "start_s": edges[:-1],
                "end_s": edges[1:],
                "offered": counted(self.first_sent_s),
                "attempts": counted(table.sent_s),
                "finished": counted(ended[Status.FINISHED]),
                "good": counted(self.end_s[self.good(slo)]),
                "rejected": counted(ended[Status.REJECTED]),
                "timed_out": counted(ended[Status.TIMED_OUT]),
                "waiting": waiting,
                "running": running,
            }
        )

    def _inside(self, moments_s: FloatArray) -> tuple[IntArray, IntArray]:
        """Return the attempts waiting and running at each moment, as of the last scheduling."""
        step = np.searchsorted(self.step_start_s, moments_s, side="right") - 1
        if not self.step_end_s.size:
            return np.zeros(moments_s.size, np.int64), np.zeros(moments_s.size, np.int64)
        # between two steps that do not touch, nobody is there
        busy = (step >= 0) & (self.step_end_s[step] > moments_s)
        return np.where(busy, self.step_waiting[step], 0), np.where(
            busy, self.step_running[step], 0
        )


def _or_nan(times_s: FloatArray, size: int) -> FloatArray:
    """Return the times; NaN for all where they were not written down."""
    return times_s if times_s.size == size else np.full(size, math.nan)
