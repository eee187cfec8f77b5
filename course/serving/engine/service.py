"""Runs a workload through an engine with clients and a gate: `simulate_service`; no rules here.

The clients may lose patience and send again, the gate may say no; the engine behind it is that of
`simulate`, and without patience, retries and gate the two give the same run. What goes in is in
`clients` and `admission`, what comes out in `service_run`, the rules are in `kernels.service`.
"""

from __future__ import annotations

import math

from course.serving._arguments import at_least
from course.serving.engine.admission import Admission, AdmissionPolicy, LongPrompts, PythonAdmission
from course.serving.engine.clients import Patience, Retry, Users
from course.serving.engine.config import EngineConfig
from course.serving.engine.general import found_by_loop
from course.serving.engine.inputs import check_kinds
from course.serving.engine.service_run import ServiceRun
from course.serving.engine.service_setup import Setting, checked_setting
from course.serving.pricing import StepCost
from course.serving.workload import Workload


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
    check_kinds(work, cost, settings)
    horizon = math.inf if horizon_s is None else at_least("horizon_s", horizon_s)
    setting = checked_setting(
        settings, patience, retry, admission, long_prompts, users, seed, horizon
    )
    return run_setting(work, cost, setting, compiled)


def run_setting(work: Workload, cost: StepCost, setting: Setting, compiled: bool) -> ServiceRun:
    """Run a checked setting; see `simulate_service`."""
    return ServiceRun(work, cost, setting, found_by_loop(work, cost, setting, compiled))
