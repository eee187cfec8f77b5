"""A run's story for people: tables and sentences made from a `Run`; nothing is measured anew."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from course.serving.timelines import Status
from course.words import seconds

if TYPE_CHECKING:
    import pandas as pd

    from course.serving.engine.run import Run

Span = tuple[int, str, float, float]


def frame(run: Run) -> pd.DataFrame:
    """Return one row a request."""
    import pandas as pd

    offered = len(run)
    columns: dict[str, Any] = {
        "arrival_s": run.arrival_s,
        "prompt_tokens": run.work.prompt_tokens[:offered],
        "output_tokens": run.work.output_tokens[:offered],
        "status": [Status(code).name.lower() for code in run.status.tolist()],
        "scheduled_s": run.scheduled_s,
        "first_token_s": run.first_token_s,
        "finish_s": run.finish_s,
        "emitted_tokens": run.emitted_tokens,
        "preemptions": run.preemptions,
        "ttft_s": run.ttft_s,
        "tpot_s": run.tpot_s,
        "e2e_s": run.e2e_s,
    }
    optional = {"user": run.user, "batch": run.batch, "label": run.work.label}
    columns |= {name: column[:offered] for name, column in optional.items() if column is not None}
    return pd.DataFrame(columns).rename_axis("request")


def timeline(run: Run, requests: npt.ArrayLike | None = None) -> pd.DataFrame:
    """Return one row a stretch of a request's life."""
    import pandas as pd

    chosen = np.arange(len(run)) if requests is None else np.atleast_1d(np.asarray(requests))
    spans = [span for request in chosen.tolist() for span in spans_of(run, request)]
    return pd.DataFrame(spans, columns=["request", "phase", "start_s", "end_s"])


def spans_of(run: Run, request: int) -> list[Span]:
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
    from course.serving.engine import _kernels as k

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


def explain(run: Run, request: int) -> str:
    """Return in plain sentences what happened to a request."""
    spans = spans_of(run, request)
    prompt, output = run.work.prompt_tokens[request], run.work.output_tokens[request]
    inside = int(
        (run.arrival_s[:request] <= run.arrival_s[request]).sum()
        - (run.finish_s[:request] <= run.arrival_s[request]).sum()
        - (run.status[:request] == Status.REJECTED).sum()
    )
    lines = [
        f"Request {request} ({prompt} prompt tokens, {output} output tokens) arrived at "
        f"{run.arrival_s[request]:.3f} s; {inside} earlier ones were in the engine."
    ]
    if run.status[request] == Status.REJECTED:
        return "\n".join([*lines, _why_rejected(run, int(prompt + output - 1))])
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
    lines.append(_verdict(run, request))
    return "\n".join(lines)


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
