"""Turns a run into a film: who is where, with how many tokens, step by step; nothing is drawn here.

A `Film` is plain arrays. `Film.at` says what they mean at a moment, and `watch.js` reads them in
the same way: what moves on the screen is decided here, from the run alone.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray, IntArray
from course.serving.engine import Run, ServiceRun, Stays, Verdict
from course.serving.engine import orders as engine_orders
from course.serving.requests import Status

Column = npt.NDArray[Any]


class Place(IntEnum):
    """Where somebody is for a while."""

    OUTSIDE = 0  # outside the door
    QUEUE = 1
    SEAT = 2
    PREEMPTED = 3  # lost its seat, and waits again at the front of the queue
    AWAY = 4  # its client waits before sending again


class Event(IntEnum):
    """What can happen, in the order in which it is told where all happens at once."""

    FIRST_TOKEN = 0
    FINISHED = 1
    SERVED_THE_VOID = 2  # the server ended an answer whose client had gone
    TIMED_OUT = 3
    ARRIVED = 4
    SENT_AGAIN = 5
    LEFT_OUTSIDE = 6  # told to wait outside the door
    REFUSED = 7
    CAME_IN = 8  # through the door
    PREEMPTED = 9
    SEATED = 10
    SEATED_AGAIN = 11


class Bodies(NamedTuple):
    """One entry a sending: what is known of it as a whole."""

    request: Column
    attempt: Column  # 1 for the first sending of its request
    sent_s: Column
    end_s: Column  # for its client; NaN: not over by the end of the run
    status: Column  # the numbers of `Status`
    verdict: Column  # the numbers of `Verdict`
    prompt_tokens: Column
    output_tokens: Column
    rank: Column  # its key in the order of the queue: the smaller is served first


class Places(NamedTuple):
    """One entry a stretch of time that somebody spends in one place."""

    body: Column
    place: Column
    start_s: Column
    end_s: Column
    sitting: Column  # (SEAT) which of the sittings; -1 elsewhere


class Sittings(NamedTuple):
    """One entry a stay in a seat; steps are counted from 0."""

    body: Column
    seat: Column
    from_step: Column
    to_step: Column  # the first step without it
    decodes_from: Column  # from this step on it makes a token in each step in which anybody does
    tokens: Column  # emitted tokens just before that step
    cached: Column  # tokens in the cache when it sat down
    emitted: Column  # tokens emitted when it sat down


class Marks(NamedTuple):
    """What happens to one sitting in one step, in tokens.

    Prompt tokens computed; or tokens missed, of the one that a step with decoding brings: 1 where
    it stood still, below 0 where it made several.
    """

    sitting: Column
    step: Column
    tokens: Column


class Steps(NamedTuple):
    """One entry a step."""

    start_s: Column
    end_s: Column
    prefill_tokens: Column
    decode_seqs: Column
    kv_blocks: Column  # empty: no limit
    ticks: Column  # steps with decoding up to and with this one


class Events(NamedTuple):
    """One entry an event, in the order of telling."""

    at_s: Column
    kind: Column
    body: Column


class Seen(NamedTuple):
    """Where somebody is at a moment, and what it has: whole tokens, of the steps that ended.

    `computed_tokens`: in the cache. `kv_blocks`: held in the step in hand; tokens for a cache
    without a limit. `gone`: its client has left, and the server has not noticed.
    """

    body: int
    place: Place
    seat: int
    computed_tokens: int
    emitted_tokens: int
    kv_blocks: int
    gone: bool


@dataclass(frozen=True, eq=False)
class Film:
    """A run as arrays: one server of the animation.

    `seats`: how many are drawn; `seat_limit`: how many there are. `block_limit`: None where KV is
    not limited.
    """

    bodies: Bodies
    places: Places
    sittings: Sittings
    chunks: Marks
    missed: Marks
    steps: Steps
    events: Events
    start_s: float
    end_s: float
    seats: int
    seat_limit: int
    block_size: int
    block_limit: int | None
    budget_tokens: int

    @cached_property
    def _first_chunk(self) -> IntArray:
        return np.searchsorted(self.chunks.sitting, np.arange(self.sittings.body.size + 1))

    def at(self, moment_s: float) -> list[Seen]:
        """Return where everybody is at a moment, in order of sending.

        Who is out, finished or not yet sent is nowhere. A moment at which one place is left
        belongs to the next.
        """
        here = (self.places.start_s <= moment_s) & (moment_s < self.places.end_s)
        done = int(np.searchsorted(self.steps.end_s, moment_s, side="right")) - 1
        found = [self._seen(int(entry), done, moment_s) for entry in np.flatnonzero(here)]
        return sorted(found, key=lambda seen: seen.body)

    def _seen(self, entry: int, done: int, moment_s: float) -> Seen:
        body, place = int(self.places.body[entry]), Place(int(self.places.place[entry]))
        gone = place != Place.AWAY and bool(self.bodies.end_s[body] <= moment_s)
        sitting = int(self.places.sitting[entry])
        if sitting < 0:
            return Seen(body, place, -1, 0, self._emitted_before(body, moment_s), 0, gone)
        computed, emitted = self.tokens_after(sitting, done)
        held, _ = self.tokens_after(sitting, done + 1)
        blocks = held if self.block_limit is None else -(-held // self.block_size)
        seat = int(self.sittings.seat[sitting])
        return Seen(body, place, seat, computed, emitted, blocks, gone)

    def _emitted_before(self, body: int, moment_s: float) -> int:
        """Return the tokens that somebody who waits again has kept."""
        mine = np.flatnonzero((self.places.body == body) & (self.places.place == Place.SEAT))
        mine = mine[self.places.end_s[mine] <= moment_s]
        if mine.size == 0:
            return 0
        sitting = int(self.places.sitting[mine[-1]])
        return self.tokens_after(sitting, int(self.sittings.to_step[sitting]) - 1)[1]

    def tokens_after(self, sitting: int, step: int) -> tuple[int, int]:
        """Return the tokens in the cache, and those emitted, when a step has ended."""
        s = self.sittings
        step = min(step, int(s.to_step[sitting]) - 1)
        begun = int(s.decodes_from[sitting])
        body = int(s.body[sitting])
        if step < begun - 1 or begun < 0:
            mine = slice(self._first_chunk[sitting], self._first_chunk[sitting + 1])
            past = self.chunks.step[mine] <= step
            computed = int(s.cached[sitting]) + int(self.chunks.tokens[mine][past].sum())
            return computed, int(s.emitted[sitting])
        emitted = int(s.tokens[sitting])
        if step >= begun:
            before = int(self.steps.ticks[begun - 1]) if begun else 0
            emitted += int(self.steps.ticks[step]) - before
            missed = (self.missed.sitting == sitting) & (self.missed.step <= step)
            emitted -= int(self.missed.tokens[missed].sum())
        emitted = min(emitted, int(self.bodies.output_tokens[body]))
        return int(self.bodies.prompt_tokens[body]) + emitted - 1, emitted


def pack(films: Mapping[str, Film], names: Mapping[str, Any] | None = None) -> bytes:
    """Return films, by what each is called, as one run of bytes, as `watch.js` unpacks them.

    Four bytes with the length of a JSON text, that text (`names` go along), and the columns it
    describes, each from a multiple of eight on; whole numbers in 32 bits, times in 64.
    """
    heads: list[dict[str, Any]] = []
    columns: list[bytes] = []
    offset = 0
    for label, film in films.items():
        tables: dict[str, dict[str, Any]] = {}
        for table in ("bodies", "places", "sittings", "chunks", "missed", "steps", "events"):
            tables[table] = {}
            for name, column in getattr(film, table)._asdict().items():
                kind = "f8" if column.dtype.kind == "f" else "i4"
                data = np.ascontiguousarray(column, dtype=f"<{kind}").tobytes()
                tables[table][name] = [kind, offset, int(column.size)]
                columns.append(data + bytes(-len(data) % 8))
                offset += len(columns[-1])
        heads.append({"label": label, **{n: getattr(film, n) for n in _SINGLE}, "tables": tables})
    text = json.dumps({"films": heads, **(names or {})}).encode()
    text += b" " * (-(len(text) + 4) % 8)
    return len(text).to_bytes(4, "little") + text + b"".join(columns)


_SINGLE = ("start_s", "end_s", "seats", "seat_limit", "block_size", "block_limit", "budget_tokens")


# --- from a run to a film ------------------------------------------------------------------------


def film_of(run: Run | ServiceRun) -> Film:
    """Return the film of a run of `simulate`, `simulate_closed` or `simulate_service`.

    Where a step's prompt tokens are shared among several prompts of which none ends with it
    (preemption by priority, under a budget that is too small), their split is the likeliest. Blocks
    are those of each one's own tokens: shared ones count for each, those for refused drafts do not.

    Raises ValueError for anything else.

    >>> from course import LinearStepCost, Workload, simulate
    >>> run = simulate(Workload([0.0], [9], [3]), LinearStepCost(fixed_s=1.0))
    >>> [(seen.place.name, seen.emitted_tokens) for seen in film_of(run).at(1.5)]
    [('SEAT', 1)]
    """
    if not isinstance(run, (Run, ServiceRun)):
        raise ValueError(
            f"run={run!r} is no run of one server; give what simulate, simulate_closed or "
            "simulate_service returned"
        )
    bodies, entered_s = _bodies(run)
    stays = run.stays
    steps = _steps(run)
    chunks, left = _chunks(run, bodies, stays, steps)
    sittings = _sittings(bodies, stays, left, steps.end_s.size)
    preempted = _preempted(run, bodies, stays, steps)
    end_s = _end_s(run, bodies)
    used = int(sittings.seat.max()) + 1 if sittings.seat.size else 1
    limit = 1 if run.config.way.name == "single" else run.config.max_num_seqs
    return Film(
        bodies=bodies,
        places=_places(bodies, stays, steps, preempted, _noticed(run), entered_s, end_s),
        sittings=sittings,
        chunks=chunks,
        missed=_missed(run, sittings, steps),
        steps=steps,
        events=_events(bodies, stays, sittings, steps, preempted, entered_s),
        start_s=min(float(bodies.sent_s.min()), 0.0) if bodies.sent_s.size else 0.0,
        end_s=end_s,
        seats=limit if limit <= 2 * used + 2 else used,
        seat_limit=limit,
        block_size=run.config.block_size,
        block_limit=run.config.num_kv_blocks,
        budget_tokens=run.config.max_num_batched_tokens,
    )


def _bodies(run: Run | ServiceRun) -> tuple[Bodies, FloatArray]:
    """Return who was sent, and when each came in from outside the door (NaN: never stood there)."""
    if isinstance(run, Run):
        refused = run.status == Status.REJECTED
        request = np.arange(len(run))
        bodies = Bodies(
            request=request,
            attempt=np.ones(len(run), dtype=np.int64),
            sent_s=run.arrival_s,
            end_s=np.where(refused, run.arrival_s, run.finish_s),
            status=run.status,
            verdict=np.where(refused, Verdict.REJECT, Verdict.ACCEPT),
            prompt_tokens=run.work.prompt_tokens[request],
            output_tokens=run.work.output_tokens[request],
            rank=_ranks(run, request, run.arrival_s),
        )
        return bodies, np.full(len(run), math.nan)
    table = run.attempts
    bodies = Bodies(
        request=table.request,
        attempt=table.attempt,
        sent_s=table.sent_s,
        end_s=table.end_s,
        status=table.status,
        verdict=table.verdict,
        prompt_tokens=run.work.prompt_tokens[table.request],
        output_tokens=table.output_tokens,
        rank=_ranks(run, table.request, table.sent_s),
    )
    return bodies, table.entered_s


def _ranks(run: Run | ServiceRun, request: Column, sent_s: FloatArray) -> FloatArray:
    """Return each one's key in the order of the queue; the time of sending for an own order."""
    order, work = run.config.order_key, run.work
    if isinstance(order, engine_orders.ShortestFirst):
        guess = work.predicted_output_tokens
        guesses = work.output_tokens if guess is None else guess
        return np.asarray(guesses, dtype=np.float64)[request]
    if isinstance(order, engine_orders.MostUrgent) and work.priority is not None:
        value = np.asarray(work.priority, dtype=np.float64)[request]
        return value if order.ageing_s is None else value + sent_s / order.ageing_s
    return sent_s


def _steps(run: Run | ServiceRun) -> Steps:
    blocks = run.step_kv_blocks
    decoded: IntArray = np.asarray(run.step_decode_seqs, dtype=np.int64)
    return Steps(
        start_s=run.step_start_s,
        end_s=run.step_end_s,
        prefill_tokens=np.asarray(run.step_prefill_tokens),
        decode_seqs=decoded,
        kv_blocks=np.empty(0, np.int64) if blocks is None else blocks,
        ticks=np.cumsum(decoded > 0),
    )


def _end_s(run: Run | ServiceRun, bodies: Bodies) -> float:
    """Return when the last step, sending or ending was."""
    known = [run.step_end_s[-1:], bodies.sent_s, bodies.end_s[np.isfinite(bodies.end_s)]]
    return max((float(times.max()) for times in known if times.size), default=0.0)


def _ends_s(steps: Steps, step: Column) -> FloatArray:
    """Return when these steps ended; NaN for those before the first."""
    ends_s = np.append(np.asarray(steps.end_s, dtype=np.float64), math.nan)
    return ends_s[np.maximum(step, -1)]


def _sittings(bodies: Bodies, stays: Stays, left: IntArray, steps: int) -> Sittings:
    """Return the stays as they are drawn; `left`: prompt tokens that no prefill computed."""
    # one last token of a prompt that was computed before counts as a decode, as in the engine
    decoded = (left == 1) & (stays.emitted_tokens > 0)
    ready = stays.ready_step
    to_step = np.where(stays.to_step < 0, steps, stays.to_step)
    return Sittings(
        body=stays.owner,
        seat=_seats(stays.from_step, to_step),
        from_step=stays.from_step,
        to_step=to_step,
        decodes_from=np.where(ready < 0, -1, ready + np.where(decoded, 0, 1)),
        tokens=stays.emitted_tokens + np.where(decoded, 0, 1),
        cached=stays.cached_tokens,
        emitted=stays.emitted_tokens,
    )


def _lack(bodies: Bodies, stays: Stays) -> IntArray:
    """Return the tokens that each lacked in the cache when it sat down."""
    lack: IntArray = bodies.prompt_tokens[stays.owner] + stays.emitted_tokens - stays.cached_tokens
    return lack


def _seats(from_step: Column, to_step: Column) -> IntArray:
    """Give each stay the lowest seat that is free; who leaves at a step's start leaves first."""
    seats: IntArray = np.zeros(from_step.size, dtype=np.int64)
    leaving: list[tuple[int, int]] = []
    free: list[int] = []
    opened = 0
    for stay, begun in enumerate(from_step.tolist()):
        while leaving and leaving[0][0] <= begun:
            heapq.heappush(free, heapq.heappop(leaving)[1])
        if not free:
            heapq.heappush(free, opened)
            opened += 1
        seats[stay] = heapq.heappop(free)
        heapq.heappush(leaving, (int(to_step[stay]), int(seats[stay])))
    return seats


def _marks(rows: list[tuple[int, int, int]]) -> Marks:
    table = np.array(rows, dtype=np.int64).reshape(-1, 3)
    table = table[np.lexsort((table[:, 1], table[:, 0]))]
    return Marks(*table.T.copy())


def _chunks(
    run: Run | ServiceRun, bodies: Bodies, stays: Stays, steps: Steps
) -> tuple[Marks, IntArray]:
    """Share each step's prompt tokens among those whose prompts were being computed.

    Who has its first token from the step computed all it lacked; what is left went to the others
    in the order of admission, as much as each lacked and its cap allows. Also returns what no
    prefill computed.
    """
    left = _lack(bodies, stays).tolist()
    cap = _chunk_caps(run, bodies, stays)
    begun, ready, gone, emitted = (
        column.tolist()
        for column in (stays.from_step, stays.ready_step, stays.to_step, stays.emitted_tokens)
    )
    rows: list[tuple[int, int, int]] = []
    computing: list[int] = []
    upcoming = 0
    for step in np.flatnonzero(np.asarray(steps.prefill_tokens) > 0).tolist():
        while upcoming < len(begun) and begun[upcoming] <= step:
            computing.append(upcoming)
            upcoming += 1
        computing = [
            stay
            for stay in computing
            if not 0 <= gone[stay] <= step
            and not 0 <= ready[stay] < step
            and (left[stay] > 1 or emitted[stay] == 0)
        ]
        tokens = int(steps.prefill_tokens[step])
        ending = [stay for stay in computing if ready[stay] == step]
        for stay in ending + [stay for stay in computing if ready[stay] != step]:
            most = left[stay] if ready[stay] == step else min(left[stay], cap[stay])
            chunk = min(most, tokens)
            if chunk > 0:
                rows.append((stay, step, chunk))
                left[stay] -= chunk
                tokens -= chunk
    return _marks(rows), np.array(left, dtype=np.int64)


def _chunk_caps(run: Run | ServiceRun, bodies: Bodies, stays: Stays) -> list[int]:
    """Return how many prompt tokens each stay may compute in one step."""
    caps: IntArray = np.full(len(stays), run.config.max_num_batched_tokens, dtype=np.int64)
    long = run.long_prompts if isinstance(run, ServiceRun) else None
    if long is not None and long.chunk_tokens is not None and run.config.enable_chunked_prefill:
        caps[bodies.prompt_tokens[stays.owner] > long.over_tokens] = long.chunk_tokens
    return [int(cap) for cap in caps]


def _missed(run: Run | ServiceRun, sittings: Sittings, steps: Steps) -> Marks:
    """Return which decoders made another number of tokens than one in a step with decoding."""
    if run.bursts is not None:
        return _burst_marks(run.bursts, sittings, steps)
    count = steps.end_s.size
    decoding = sittings.decodes_from >= 0
    present = np.zeros(count + 1, dtype=np.int64)
    np.add.at(present, np.minimum(sittings.decodes_from[decoding], count), 1)
    np.add.at(present, np.minimum(sittings.to_step[decoding], count), -1)
    short = np.cumsum(present)[:count] > steps.decode_seqs
    rows = []
    for step in np.flatnonzero(short & (steps.decode_seqs > 0)).tolist():
        here = decoding & (sittings.decodes_from <= step) & (step < sittings.to_step)
        # the first in the order of admission decode, as far as the budget goes
        still = np.flatnonzero(here)[int(steps.decode_seqs[step]) :]
        rows += [(int(sitting), step, 1) for sitting in still]
    return _marks(rows)


def _burst_marks(bursts: tuple[Column, ...], sittings: Sittings, steps: Steps) -> Marks:
    """The same where drafts are verified: each step's tokens are written down."""
    made: dict[tuple[int, int], int] = {}
    for body, step, tokens in zip(*(column.tolist() for column in bursts), strict=True):
        made[body, step] = tokens
    decoded = steps.decode_seqs > 0
    rows = []
    columns = (sittings.body, sittings.decodes_from, sittings.to_step)
    for sitting, (body, begun, gone) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        for step in range(begun, gone) if begun >= 0 else ():
            tokens = made.get((body, step), 0)
            if decoded[step] and tokens != 1:
                rows.append((sitting, step, 1 - tokens))
    return _marks(rows)


def _preempted(
    run: Run | ServiceRun, bodies: Bodies, stays: Stays, steps: Steps
) -> npt.NDArray[np.bool_]:
    """Return of each stay whether it ended by preemption: not by an answer, not by a drop."""
    emitted = run.emitted_tokens if isinstance(run, Run) else run.attempts.emitted_tokens
    left = stays.to_step >= 0
    until_s = np.where(left, _ends_s(steps, stays.to_step - 1), math.inf)
    last = np.zeros(len(stays), dtype=np.bool_)
    # of several entries for one place, the last stays
    final = np.zeros(bodies.sent_s.size, dtype=np.int64)
    final[stays.owner] = np.arange(len(stays))
    last[final[stays.owner]] = True
    complete = emitted[stays.owner] >= bodies.output_tokens[stays.owner]
    dropped = _noticed(run) & (bodies.end_s[stays.owner] <= until_s)
    return np.asarray(left & ~(last & (complete | dropped)), dtype=np.bool_)


def _noticed(run: Run | ServiceRun) -> bool:
    """Return whether the server learns that a client has gone."""
    return isinstance(run, Run) or run.patience is None or bool(run.patience.noticed)


def _places(
    bodies: Bodies,
    stays: Stays,
    steps: Steps,
    preempted: npt.NDArray[np.bool_],
    noticed: bool,
    entered_s: FloatArray,
    end_s: float,
) -> Places:
    """Return the stretches of everybody's life, in order of their beginning."""
    mine: list[list[int]] = [[] for _ in range(bodies.sent_s.size)]
    for stay, body in enumerate(stays.owner.tolist()):
        mine[body].append(stay)
    # the last moment of the run belongs to those who are there to the end
    later = math.nextafter(end_s, math.inf)
    rows = _away(bodies)
    for body, sat in enumerate(mine):
        if bodies.verdict[body] == Verdict.REJECT:
            continue
        ended_s = float(bodies.end_s[body])
        # who is not over, and who is served although the client has gone, stays to the end
        over_s = later
        if bodies.status[body] == Status.FINISHED or (noticed and not math.isnan(ended_s)):
            over_s = ended_s
        place, since_s = Place.QUEUE, float(bodies.sent_s[body])
        if bodies.verdict[body] == Verdict.QUEUE:
            inside_s = float(entered_s[body])
            until_s = over_s if math.isnan(inside_s) else inside_s
            rows.append((body, Place.OUTSIDE, since_s, until_s, -1))
            since_s = until_s
        for stay in sat:
            begun_s = float(steps.start_s[stays.from_step[stay]])
            rows.append((body, place, since_s, begun_s, -1))
            gone = int(stays.to_step[stay])
            since_s = later if gone < 0 else float(steps.end_s[gone - 1])
            rows.append((body, Place.SEAT, begun_s, since_s, stay))
            place = Place.PREEMPTED
        if not sat or preempted[sat[-1]]:
            rows.append((body, place, since_s, over_s, -1))
    rows = sorted((row for row in rows if row[2] < row[3]), key=lambda row: (row[2], row[0]))
    columns = list(zip(*rows, strict=True)) or [()] * 5
    kinds = (np.int64, np.int64, np.float64, np.float64, np.int64)
    return Places(*(np.array(c, dtype=kind) for c, kind in zip(columns, kinds, strict=True)))


def _away(bodies: Bodies) -> list[tuple[int, int, float, float, int]]:
    """Return the stretches between a sending that ended in vain and the next of its request."""
    before: dict[int, int] = {}
    rows = []
    for body, request in enumerate(bodies.request.tolist()):
        if request in before:
            earlier = before[request]
            until_s = float(bodies.sent_s[body])
            rows.append((earlier, int(Place.AWAY), float(bodies.end_s[earlier]), until_s, -1))
        before[request] = body
    return rows


def _events(
    bodies: Bodies,
    stays: Stays,
    sittings: Sittings,
    steps: Steps,
    preempted: npt.NDArray[np.bool_],
    entered_s: FloatArray,
) -> Events:
    """Return what happens, in order of time, and of telling where it happens at once."""
    found: list[tuple[FloatArray, Event, Column]] = []

    def add(kind: Event, which: npt.NDArray[np.bool_], times_s: Column, owner: Column) -> None:
        found.append((np.asarray(times_s[which], dtype=np.float64), kind, owner[which]))

    everybody = np.arange(bodies.sent_s.size)
    add(Event.ARRIVED, bodies.attempt == 1, bodies.sent_s, everybody)
    add(Event.SENT_AGAIN, bodies.attempt > 1, bodies.sent_s, everybody)
    add(Event.REFUSED, bodies.verdict == Verdict.REJECT, bodies.sent_s, everybody)
    add(Event.LEFT_OUTSIDE, bodies.verdict == Verdict.QUEUE, bodies.sent_s, everybody)
    add(Event.CAME_IN, np.isfinite(entered_s), entered_s, everybody)
    add(Event.TIMED_OUT, bodies.status == Status.TIMED_OUT, bodies.end_s, everybody)
    add(Event.FINISHED, bodies.status == Status.FINISHED, bodies.end_s, everybody)
    if len(stays):
        owner = stays.owner
        begun_s = steps.start_s[stays.from_step]
        left_s = _ends_s(steps, stays.to_step - 1)
        first = np.zeros(len(stays), dtype=np.bool_)
        first[np.unique(owner, return_index=True)[1]] = True
        add(Event.SEATED, first, begun_s, owner)
        add(Event.SEATED_AGAIN, ~first, begun_s, owner)
        add(Event.PREEMPTED, preempted, left_s, owner)
        brought = (stays.ready_step >= 0) & (stays.emitted_tokens == 0)
        add(Event.FIRST_TOKEN, brought, _ends_s(steps, stays.ready_step), owner)
        gone = (bodies.status[owner] == Status.TIMED_OUT) & (stays.to_step >= 0) & ~preempted
        void = gone & (bodies.end_s[owner] < left_s) & _complete(bodies, sittings, steps)
        add(Event.SERVED_THE_VOID, void, left_s, owner)
    at_s = np.concatenate([times_s for times_s, _, _ in found])
    kind = np.concatenate([np.full(times_s.size, int(kind)) for times_s, kind, _ in found])
    body = np.concatenate([owner for _, _, owner in found])
    order = np.lexsort((body, kind, at_s))
    return Events(at_s[order], kind[order], body[order])


def _complete(bodies: Bodies, sittings: Sittings, steps: Steps) -> npt.NDArray[np.bool_]:
    """Return of each sitting whether the last token was made in it, but for missed steps."""
    begun = sittings.decodes_from
    ticks = np.append(steps.ticks, 0)  # the last entry stands before the first step
    made = ticks[sittings.to_step - 1] - ticks[begun - 1]
    enough = sittings.tokens + made >= bodies.output_tokens[sittings.body]
    return np.asarray((begun >= 0) & enough)
