"""Runs a workload through an engine with clients and a gate: `simulate_service`; no rules here.

The clients may lose patience and send again, the gate may say no; the engine behind it is that of
`simulate`, and without patience, retries and gate the two give the same run. What goes in is in
`clients` and `admission`, what comes out in `service_run`, the rules are in `kernels.service`.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from course.serving._arguments import at_least
from course.serving.engine.admission import Admission, AdmissionPolicy, LongPrompts, PythonAdmission
from course.serving.engine.clients import Patience, Retry, Users
from course.serving.engine.config import EngineConfig
from course.serving.engine.kernels import codes
from course.serving.engine.kernels import service as k
from course.serving.engine.kernels.service_state import Asked, Attempts, Server, Steps, Terms
from course.serving.engine.service_plain import as_arrays, listed, plain_service
from course.serving.engine.service_run import ServiceRun
from course.serving.engine.service_setup import (
    STAY_COLUMNS,
    Setting,
    asked_of,
    checked_setting,
    empty_attempts,
    empty_seats,
    empty_steps,
    new_server,
    terms_of,
)
from course.serving.engine.simulation import _check_kinds, _kernel_form
from course.serving.pricing import COEFFICIENTS, KernelCost, StepCost, StepFeatures
from course.serving.workload import Workload

FIRST_STEPS = 100_000
"""Steps there is memory for at first, where a run may need more."""


def simulate_service(
    work: Workload,
    cost: StepCost,
    config: EngineConfig | None = None,
    *,
    patience: Patience | None = None,
    retry: Retry | None = None,
    admission: Admission | PythonAdmission | AdmissionPolicy | None = None,
    long_prompts: LongPrompts | None = None,
    users: Users | None = None,
    seed: int = 0,
    horizon_s: float | None = None,
    compiled: bool = True,
) -> ServiceRun:
    """Run a workload whose clients have limits, on a server that has a gate.

    `patience`: when clients give up; None: never. `retry`: whether they send again; None: no.
    `admission`: who is let in; None: everybody. `long_prompts`: a queue of their own for these.
    `users`: a closed loop instead of the workload's arrivals. `seed`: of the retries' jitter and
    the users' starts. `horizon_s`: the step in flight then is completed; later sends do not
    happen. `compiled` False runs the same loop as plain Python; a caller's own cost, order or
    policy does so anyway. Continuous batching only, with one seat or many.

    Raises ValueError for arguments that are not of their kind, for a cost that gives no finite
    time above 0 s, for a policy that fails, and where clients would retry for ever.

    >>> from course.serving.pricing import LinearStepCost
    >>> work = Workload([0.0, 0.0], prompt_tokens=[9, 9], output_tokens=[2, 1])
    >>> run = simulate_service(work, LinearStepCost(fixed_s=1.0), EngineConfig(max_num_seqs=1),
    ...                        patience=Patience(ttft_s=2.5), retry=Retry(attempts=2))
    >>> [status.name for status in run.statuses], run.attempts.sent_s.tolist()
    (['FINISHED', 'FINISHED'], [0.0, 0.0, 3.6])
    """
    settings = config or EngineConfig()
    _check_kinds(work, cost, settings)
    horizon = math.inf if horizon_s is None else at_least("horizon_s", horizon_s)
    setting = checked_setting(
        settings, patience, retry, admission, long_prompts, users, seed, horizon
    )
    return run_setting(work, cost, setting, compiled)


def run_setting(work: Workload, cost: StepCost, setting: Setting, compiled: bool) -> ServiceRun:
    """Run a checked setting; see `simulate_service`."""
    form = _kernel_form(cost)
    asked = asked_of(work, setting)
    terms = terms_of(setting, form.code if form else codes.PLAIN_PYTHON, work)
    plain = not compiled or form is None or terms.order == codes.CUSTOM or terms.own_policy
    loop = _Loop(work, cost, setting, asked, terms, form, plain)
    loop.run()
    attempts, steps, server = loop.found()
    return ServiceRun(work, cost, setting, attempts, steps, server)


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
        records: tuple[Any, ...] = (
            empty_attempts(terms, room),
            empty_steps(terms, min(16 * self._requests + 256, FIRST_STEPS)),
            empty_seats(terms),
            new_server(asked, terms, setting),
        )
        self._types = [_cut(each, 0) for each in records]
        self._functions: Any = k
        if plain:
            own_order = setting.config.order_key if terms.order == codes.CUSTOM else None
            self._functions = plain_service(
                work, setting, None if form is not None else cost, own_order
            )
            asked = listed(asked)
        prices = form.coefficients if form else ()
        self._price = prices + (0.0,) * (max(COEFFICIENTS.values()) - len(prices))
        self._asked = asked
        self._records: list[Any] = [listed(each) if plain else each for each in records]

    def run(self) -> None:
        """Call the loop until it is done, making room whenever it asks for it."""
        while True:
            reason = self._functions.run_service(
                self._asked, self._terms, self._price, *self._records
            )
            if reason == k.BAD_COST:
                raise _costless_step(self._cost, self._server)
            if reason == k.ENDLESS:
                raise _endless(self._server, self._terms)
            if reason != k.FULL:
                break
            self._make_room()
        attempts, _, seats, server = self._records
        self._functions.close_service(self._terms, attempts, seats, server)

    @property
    def _server(self) -> Server:
        server: Server = self._records[3]
        return server

    def _make_room(self) -> None:
        attempts, steps, seats, server = self._records
        sent = max(int(server.at[k.SENT]), 1)
        share = self._requests / sent  # of the run that lies ahead, by the requests sent so far
        used = int(server.at[k.ATTEMPTS])
        if used >= len(attempts.sent_s):
            attempts = _longer(attempts, used, _room(used, share), but=STAY_COLUMNS)
        seated = int(server.at[k.STAYS])
        crowd = min(self._terms.seats, int(server.at[k.RUNNING] + server.at[k.QUEUED]))
        if len(attempts.stay_to) - seated < crowd:
            room = _room(seated, share) + crowd
            entries = [name for name in attempts._fields if name not in STAY_COLUMNS]
            attempts = _longer(attempts, seated, room, but=entries)
        done = int(server.at[k.STEPS])
        if done >= len(steps.end_s):
            steps = _longer(steps, done, _room(done, share))
        have = len(seats.vacant)
        if have < crowd:
            room = min(self._terms.seats, max(crowd, 2 * have))
            seats = _longer(seats, have, room)
            for seat in range(have, room):
                seats.vacant[server.at[k.VACANT]] = seat
                server.at[k.VACANT] += 1
        self._records[:3] = [attempts, steps, seats]

    def found(self) -> tuple[Attempts, Steps, Server]:
        """Return the records as arrays, cut to what was used."""
        attempts, steps, _, server = self._records
        used, done = int(server.at[k.ATTEMPTS]), int(server.at[k.STEPS])
        if self._plain:
            attempts, steps, server = (
                as_arrays(record, like)
                for record, like in zip(
                    (attempts, steps, server),
                    (self._types[0], self._types[1], self._types[3]),
                    strict=True,
                )
            )
        stays = {name: getattr(attempts, name) for name in STAY_COLUMNS}
        seated = int(server.at[k.STAYS])
        attempts = _cut(attempts, used)._replace(
            **{name: column[:seated] for name, column in stays.items()}
        )
        return attempts, _cut(steps, done), server


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
        elif isinstance(column, list):
            column.extend([0] * (room - len(column)))
            columns.append(column)
        else:
            columns.append(_resized(column, used, room))
    return type(record)(*columns)


def _resized(array: npt.NDArray[Any], used: int, room: int) -> npt.NDArray[Any]:
    longer = np.empty(room, dtype=array.dtype)
    longer[:used] = array[:used]
    return longer


def _cut(record: Any, used: int) -> Any:
    return type(record)(*[column[:used] for column in record])


def _costless_step(cost: StepCost, server: Server) -> ValueError:
    at = server.at
    features = StepFeatures(*(int(count) for count in at[k.TOKENS : k.TOKENS + 4]))
    return ValueError(
        f"cost={cost!r} gives {cost.step_seconds(features)!r} s for the step at "
        f"{float(server.clock[k.NOW])} s with {features}; a step must last a finite time above "
        "0 s, so give it a fixed part or a price for what this step does"
    )


def _endless(server: Server, terms: Terms) -> ValueError:
    return ValueError(
        f"retry.attempts=None would never end: at {float(server.clock[k.NOW])} s the last "
        f"{terms.fruitless} attempts were all refused or timed out, and nobody new will come; "
        "give horizon_s, or a number of attempts"
    )
