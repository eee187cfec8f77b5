"""The service's loop as plain Python, with a caller's own functions put in; no new rules.

The functions are those of `kernels.service`, without the compiler, in a name space of their own.
They run on lists, whose numbers are Python's own: faster than single numbers out of arrays, and
what a student's policy expects.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar

import numpy as np

from course.serving.engine.admission import ArrivingRequest, PythonAdmission, ServerState, Verdict
from course.serving.engine.clients import Patience, retry_uniform
from course.serving.engine.kernels import service as k
from course.serving.engine.orders import OrderKey
from course.serving.engine.plain import _keyed_by, _priced_by, uncompiled
from course.serving.engine.service_setup import Setting
from course.serving.pricing import StepCost
from course.serving.workload import Workload

Record = TypeVar("Record", bound=NamedTuple)


def plain_service(
    work: Workload, setting: Setting, cost: StepCost | None, order: OrderKey | None
) -> SimpleNamespace:
    """Return the functions of `kernels.service`, uncompiled; own cost, order, policy put in."""
    names = uncompiled(k)
    # the compiled one counts on 64 bits that overflow
    names["retry_uniform"] = retry_uniform
    if cost is not None:
        names["step_seconds"] = _priced_by(cost)
    if order is not None:
        names["custom_key"] = _keyed_by(order)
    if isinstance(setting.admission, PythonAdmission):
        names["custom_verdict"] = _judged_by(
            work, setting.admission, setting.patience, setting.config.front_end_s
        )
    return SimpleNamespace(**names)


def listed(record: Any) -> Any:
    """Return a record with lists in the places of its arrays."""
    return type(record)(*(column.tolist() for column in record))


def as_arrays(record: Any, like: Any) -> Any:
    """Return a record of lists with arrays again, of the types in `like`."""
    pairs = zip(record, like, strict=True)
    return type(like)(*(np.array(column, dtype=kind.dtype) for column, kind in pairs))


_VERDICTS = {verdict.name.lower(): int(verdict) for verdict in Verdict}


def _judged_by(
    work: Workload, admission: PythonAdmission, patience: Patience | None, front_end_s: float
) -> Callable[..., int]:
    policy = admission.admit
    name = getattr(policy, "__name__", repr(policy))
    prompts, outputs = work.prompt_tokens.tolist(), work.output_tokens.tolist()
    predicted = work.predicted_output_tokens
    guesses = outputs if predicted is None else predicted.tolist()
    priorities = [0.0] * len(work) if work.priority is None else work.priority.tolist()
    tenants = [""] * len(work) if work.label is None else work.label.tolist()
    limits = patience or Patience()
    first_limit_s = limits.first_token_limit_s()

    def custom_verdict(now_s: float, *facts: Any) -> int:
        row, attempt, first_joined_s = facts[-3:]
        sent_s = now_s - front_end_s
        request = ArrivingRequest(
            index=row,
            attempt=attempt,
            arrival_s=sent_s,
            first_sent_s=first_joined_s - front_end_s,
            prompt_tokens=prompts[row],
            predicted_output_tokens=guesses[row],
            priority=priorities[row],
            tenant=tenants[row],
            patience=patience,
            first_token_deadline_s=sent_s + first_limit_s,
            end_deadline_s=sent_s + limits.end_limit_s(outputs[row]),
        )
        state = ServerState(now_s, *facts[:-3])
        try:
            answer = policy(request, state)
        except Exception as error:
            raise ValueError(
                f"the policy {name} raised {type(error).__name__}: {error}, for {request}, with "
                f"{state}; mend it for this case"
            ) from error
        code = _VERDICTS.get(answer) if isinstance(answer, str) else None
        if code is None:
            raise ValueError(
                f"the policy {name} returned {answer!r} for {request}, with {state}; return "
                '"accept", "queue", "degrade" or "reject"'
            )
        if code == Verdict.DEGRADE and admission.degrade_to_tokens is None:
            raise ValueError(
                f'the policy {name} returned "degrade" for {request}, with {state}, but nobody '
                "said to what length; give PythonAdmission(policy, degrade_to_tokens=64)"
            )
        return code

    return custom_verdict
