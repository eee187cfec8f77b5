"""Runs the general loop: makes its records, room in them, and what a `Run` reads; no rules here.

It knows every rule of the engine, clients and a gate, and looks at one running request after the
other where they do not all do the same. The rules are in `kernels.service` and `kernels.blocks`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import numpy as np

from course.serving.engine.config import EngineConfig
from course.serving.engine.inputs import kernel_form, price_of, unpriced_step
from course.serving.engine.kernels import codes
from course.serving.engine.kernels import service as k
from course.serving.engine.kernels.service_state import (
    Asked,
    Attempts,
    Bursts,
    Gaps,
    Server,
    Steps,
    Terms,
)
from course.serving.engine.kernels.state import Log
from course.serving.engine.run import Packing
from course.serving.engine.service_plain import as_arrays, listed, plain_service
from course.serving.engine.service_setup import (
    STAY_COLUMNS,
    Setting,
    asked_of,
    empty_attempts,
    empty_bursts,
    empty_gaps,
    empty_seats,
    empty_steps,
    new_pool,
    new_server,
    terms_of,
)
from course.serving.pricing import KernelCost, StepCost, StepFeatures
from course.serving.workload import Workload

FIRST_STEPS = 100_000
"""Steps there is memory for at first, where a run may need more."""


def found_by_loop(work: Workload, cost: StepCost, setting: Setting, compiled: bool) -> Found:
    """Return what the loop writes down of a run."""
    form = kernel_form(cost)
    asked = asked_of(work, setting)
    terms = terms_of(setting, form.code if form else codes.PLAIN_PYTHON, work)
    plain = not compiled or form is None or terms.order == codes.CUSTOM or terms.own_policy
    loop = _Loop(work, cost, setting, asked, terms, form, plain)
    loop.run()
    return loop.found()


class Found(NamedTuple):
    """The records of a run, cut to what was used."""

    attempts: Attempts
    steps: Steps
    server: Server
    gaps: Gaps
    bursts: Bursts


class _Loop:
    """The records of one run, compiled or plain, and what makes room in them."""

    def __init__(
        self,
        work: Workload,
        cost: StepCost,
        setting: Setting,
        asked: Asked,
        terms: Terms,
        form: KernelCost | None,
        plain: bool,
    ) -> None:
        self._cost, self._setting, self._terms, self._plain = cost, setting, terms, plain
        self._requests = len(work)
        # with one attempt each, the number of attempts is known
        room = self._requests if terms.attempts == 1 else 2 * self._requests + 16
        steps = min(16 * self._requests + 256, FIRST_STEPS)
        records: tuple[Any, ...] = (
            empty_attempts(terms, room),
            empty_steps(terms, steps),
            empty_seats(terms),
            new_server(asked, terms, setting),
            empty_gaps(terms),
            empty_bursts(terms, 4 * steps),
            new_pool(terms, setting.config),
        )
        self._types = [_cut(each, 0) for each in records]
        self._functions: Any = k
        if plain:
            own_order = setting.config.order_key if terms.order == codes.CUSTOM else None
            self._functions = plain_service(
                work, setting, None if form is not None else cost, own_order
            )
            asked = listed(asked)
        self._price = price_of(form)
        self._asked = asked
        self._records: list[Any] = [listed(each) if plain else each for each in records]

    def run(self) -> None:
        """Call the loop until it is done, making room whenever it asks for it."""
        while True:
            reason = self._functions.run_service(
                self._asked, self._terms, self._price, *self._records
            )
            if reason == k.BAD_COST:
                at, clock = self._server.at, self._server.clock
                features = StepFeatures(*(int(count) for count in at[k.TOKENS : k.TOKENS + 4]))
                raise unpriced_step(self._cost, features, float(clock[k.NOW]))
            if reason == k.ENDLESS:
                raise _endless(self._server, self._terms)
            if reason != k.FULL:
                break
            self._make_room()
        attempts, _, seats, server = self._records[:4]
        self._functions.close_service(self._terms, attempts, seats, server)

    @property
    def _server(self) -> Server:
        server: Server = self._records[3]
        return server

    def _make_room(self) -> None:
        attempts, steps, seats, server, gaps, bursts, pool = self._records
        at, terms = server.at, self._terms
        share = self._requests / max(int(at[k.SENT]), 1)  # of the run that lies ahead
        used = int(at[k.ATTEMPTS])
        if used >= len(attempts.sent_s):
            attempts = _longer(attempts, used, _room(used, share), but=STAY_COLUMNS)
        done = int(at[k.STEPS])
        if done >= len(steps.end_s):
            steps = _longer(steps, done, _room(done, share))
        inside = min(terms.seats, int(at[k.RUNNING] + at[k.QUEUED]))
        rows = int(at[k.STAYS])
        if rows + inside > len(attempts.stay_to):
            others = [name for name in attempts._fields if name not in STAY_COLUMNS]
            attempts = _longer(attempts, rows, _room(rows, share) + inside, but=others)
        rows = int(at[k.GAPS])
        if terms.logged and rows + inside > len(gaps.attempt):
            gaps = _longer(gaps, rows, _room(rows, share) + inside)
        rows = int(at[k.BURSTS])
        if terms.drafts and rows + inside > len(bursts.attempt):
            bursts = _longer(bursts, rows, _room(rows, share) + inside)
        have = len(seats.vacant)
        if have < inside:
            room = min(terms.seats, max(inside, 2 * have))
            seats = _longer(seats, have, room)
            if terms.caching:
                row = _resized(pool.row, have * terms.width, room * terms.width)
                pool = pool._replace(row=row)
            for seat in range(have, room):
                seats.vacant[at[k.VACANT]] = seat
                at[k.VACANT] += 1
        self._records = [attempts, steps, seats, server, gaps, bursts, pool]

    def found(self) -> Found:
        """Return the records as arrays, cut to what was used."""
        attempts, steps, _, server, gaps, bursts, _ = self._records
        if self._plain:
            attempts, steps, server, gaps, bursts = (
                as_arrays(record, self._types[place])
                for place, record in enumerate(self._records)
                if place in (0, 1, 3, 4, 5)
            )
        at = server.at
        stays = {name: getattr(attempts, name)[: int(at[k.STAYS])] for name in STAY_COLUMNS}
        return Found(
            _cut(attempts, int(at[k.ATTEMPTS]))._replace(**stays),
            _cut(steps, int(at[k.STEPS])),
            server,
            _cut(gaps, int(at[k.GAPS])),
            _cut(bursts, int(at[k.BURSTS])),
        )


def _room(used: int, share: float) -> int:
    """Return how many rows to make room for: as many as the run so far lets expect, and more."""
    expected = int(used * min(share, 2.0) * 1.05)
    return max(expected, used + used // 4) + 1024


def _longer(record: Any, used: int, room: int, but: Collection[str] = ()) -> Any:
    """Return a record with room for `room` rows in each column that is in use, `but` some."""
    columns = []
    for name, column in zip(record._fields, record, strict=True):
        if name in but or (len(column) == 0 and used > 0):
            columns.append(column)
        else:
            columns.append(_resized(column, used, room))
    return type(record)(*columns)


def _resized(column: Any, used: int, room: int) -> Any:
    """Return a column, an array or a list, with room for `room` rows."""
    if isinstance(column, list):
        column.extend([0] * (room - len(column)))
        return column
    longer = np.empty(room, dtype=column.dtype)
    longer[:used] = column[:used]
    return longer


def _cut(record: Any, used: int) -> Any:
    return type(record)(*[column[:used] for column in record])


def _endless(server: Server, terms: Terms) -> ValueError:
    return ValueError(
        f"retry.attempts=None would never end: at {float(server.clock[k.NOW])} s the last "
        f"{terms.fruitless} attempts were all refused or timed out, and nobody new will come; "
        "give horizon_s, or a number of attempts"
    )


def packed_log(found: Found, config: EngineConfig) -> tuple[Log, Packing]:
    """Return what was written down as `Run` reads it: one attempt a request."""
    attempts, steps, gaps = found.attempts, found.steps, found.gaps
    limited = config.num_kv_blocks is not None
    held = steps.blocks if limited else np.zeros(steps.end_s.size, dtype=np.int64)
    decoded = steps.decode_seqs.astype(np.int64)
    decode_shift = int(held.max(initial=0)).bit_length()
    prefill_shift = decode_shift + int(decoded.max(initial=0)).bit_length()
    step_work = (
        (steps.prefill_tokens.astype(np.int64) << prefill_shift) | (decoded << decode_shift) | held
    )
    log = Log(
        scheduled_s=attempts.scheduled_s,
        first_token_s=attempts.first_token_s,
        finish_s=np.where(attempts.status == codes.FINISHED, attempts.end_s, np.nan),
        status=attempts.status,
        preemptions=attempts.preemptions,
        first_step=attempts.first_step,
        tokens=attempts.emitted,
        step_end_s=steps.end_s,
        step_work=step_work,
        gaps=np.stack(gaps, axis=1),
    )
    return log, Packing(limited, decode_shift, prefill_shift)
