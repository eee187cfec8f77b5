"""When each request was sent, answered token by token, and over; no metric is computed here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from operator import le, sub
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from course.serving._arguments import FloatArray

IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

NOISE_S = 1e-6
"""Steps back in time up to this are clock or rounding noise and are taken as 0."""

LATEST_S = 1e12
"""No time lies further from the clock's zero: nanoseconds read as seconds are refused by it."""

Expansion = Literal["chunks", "even", "burst"]


class Status(IntEnum):
    """How a request ended. The first five are those of the engine, with the same numbers."""

    FINISHED = 0
    REJECTED = 1
    TIMED_OUT = 2
    CANCELLED = 3
    UNFINISHED = 4
    FAILED = 5


_STATUS_WORDS = (
    ("rejected", Status.REJECTED),
    ("timed out", Status.TIMED_OUT),
    ("cancelled", Status.CANCELLED),
    ("unfinished", Status.UNFINISHED),
)


@dataclass(frozen=True)
class RequestTimeline:
    """One request as its client saw it: intended and real sending, each chunk, the stream's end.

    `scheduled_s`: when it should have been sent; `sent_s`: when it was. `token_times_s` and
    `token_counts`: arrival of each chunk and how many tokens it carried; a chunk of 0 tokens (a
    role, a usage report) is no token's time and is skipped everywhere. `end_s`: the stream's end,
    or when the request was given up. `error`: None for a success; otherwise a text, of which
    one that begins with "rejected", "timed out", "cancelled" or "unfinished" puts the request
    into that group and any other into the failed ones. All times in seconds on one clock.

    Steps back in time of at most a microsecond are noise and are straightened; anything larger
    raises a ValueError that names the field, the index and the value.

    >>> answer = RequestTimeline(0.3, 0.41, (0.9, 0.92), (1, 1), 0.93, prompt_tokens=400)
    >>> answer.output_tokens, answer.status.name
    (2, 'FINISHED')
    """

    scheduled_s: float
    sent_s: float
    token_times_s: tuple[float, ...]
    token_counts: tuple[int, ...]
    end_s: float
    prompt_tokens: int
    error: str | None = None

    def __post_init__(self) -> None:
        counts, given = _counts(self.token_counts), _sequence("token_times_s", self.token_times_s)
        if len(given) != len(counts):
            raise ValueError(
                f"token_counts has {len(counts)} entries but token_times_s has {len(given)}; "
                "give the tokens of each chunk"
            )
        scheduled_s = _time("scheduled_s", self.scheduled_s)
        sent_s = _time("sent_s", self.sent_s, scheduled_s, "scheduled_s")
        times = _times(given, sent_s)
        last = (times[-1], f"token_times_s[{len(times) - 1}]") if times else (sent_s, "sent_s")
        fields: dict[str, object] = {
            "scheduled_s": scheduled_s,
            "sent_s": sent_s,
            "token_times_s": times,
            "token_counts": counts,
            "end_s": _time("end_s", self.end_s, *last),
            "prompt_tokens": _count("prompt_tokens", self.prompt_tokens),
        }
        if self.error is not None and not isinstance(self.error, str):
            raise ValueError(f"error={self.error!r} is neither None nor a text")
        for field, value in fields.items():
            object.__setattr__(self, field, value)

    @property
    def chunks(self) -> tuple[tuple[float, int], ...]:
        """(time, tokens) of the chunks that carry at least one token."""
        pairs = zip(self.token_times_s, self.token_counts, strict=True)
        return tuple((at_s, tokens) for at_s, tokens in pairs if tokens)

    @property
    def output_tokens(self) -> int:
        """All tokens that arrived, whether or not the request was a success."""
        return sum(self.token_counts)

    @property
    def first_token_s(self) -> float | None:
        """When the first chunk with a token arrived; None without one."""
        pairs = zip(self.token_times_s, self.token_counts, strict=True)
        return next((at_s for at_s, tokens in pairs if tokens), None)

    @property
    def last_token_s(self) -> float | None:
        """When the last chunk with a token arrived; None without one."""
        pairs = zip(reversed(self.token_times_s), reversed(self.token_counts), strict=True)
        return next((at_s for at_s, tokens in pairs if tokens), None)

    @property
    def status(self) -> Status:
        """How it ended; an answer without a token is a failure even where no error was told."""
        if self.error is None:
            return Status.FINISHED if any(self.token_counts) else Status.FAILED
        text = self.error.lower()
        for words, status in _STATUS_WORDS:
            if text.startswith(words):
                return status
        return Status.FAILED


def _times(given: tuple[float, ...], sent_s: float) -> tuple[float, ...]:
    """Return the chunks' times, each not before the last one; raise ValueError otherwise."""
    # the usual case without a loop of our own: a file has millions of these
    if (
        given
        and set(map(type, given)) == {float}
        and sent_s <= given[0]
        and given[-1] <= LATEST_S
        and all(map(le, given, given[1:]))
    ):
        return given
    times = []
    before, name = sent_s, "sent_s"
    for index, at_s in enumerate(given):
        before = _time(f"token_times_s[{index}]", at_s, before, name)
        name = f"token_times_s[{index}]"
        times.append(before)
    return tuple(times)


def _sequence(name: str, given: Sequence[Any]) -> tuple[Any, ...]:
    try:
        return tuple(given)
    except TypeError:
        raise ValueError(f"{name}={given!r} is no list; give one entry a chunk") from None


def _counts(given: Sequence[int]) -> tuple[int, ...]:
    counts = _sequence("token_counts", given)
    if set(map(type, counts)) == {int} and min(counts) >= 0 and max(counts) <= 2**53:
        return counts
    return tuple(_count("token_counts", k, index) for index, k in enumerate(counts))


def _time(name: str, value: object, after_s: float = -LATEST_S, after: str = "") -> float:
    """Return `value` as a time not before `after_s`; raise ValueError otherwise."""
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ValueError(f"{name}={value!r} is not a number; give seconds")
    try:
        at_s = float(value)
    except OverflowError:
        at_s = math.inf
    if not abs(at_s) <= LATEST_S:
        raise ValueError(
            f"{name}={at_s!r} is no time; give finite seconds (not milliseconds or ns)"
        )
    if at_s < after_s - NOISE_S:
        raise ValueError(
            f"{name}={at_s!r} comes before {after or 'the earliest time'}={after_s!r}; "
            "give scheduled ≤ sent ≤ chunks in order ≤ end, on one clock"
        )
    return max(at_s, after_s)


def _count(name: str, value: object, index: int | None = None) -> int:
    where = name if index is None else f"{name}[{index}]"
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or not 0 <= int(value) <= 2**53:  # type: ignore[call-overload]
        raise ValueError(f"{where}={value!r} is no token count; give a whole number from 0 on")
    return int(value)  # type: ignore[call-overload, no-any-return]


def known_expansion(expansion: str) -> None:
    """Raise ValueError unless that is an `Expansion`."""
    if expansion not in ("chunks", "even", "burst"):
        raise ValueError(f"expansion={expansion!r} is not known; give chunks, even or burst")


def gaps_s(timeline: RequestTimeline, expansion: Expansion = "chunks") -> list[float]:
    """Return the gaps between neighbouring tokens of one answer, in seconds.

    A chunk of k tokens shows one gap, the one before it; the k − 1 inside it are not known.
    "chunks" leaves them out; "even" shares the gap before the chunk among its k tokens (nothing
    is known of the first chunk, so it adds none); "burst" calls them 0, in the first chunk too.

    >>> answer = RequestTimeline(0, 0, (0.5, 0.6, 0.8), (1, 2, 3), 0.8, prompt_tokens=9)
    >>> [[round(gap, 3) for gap in gaps_s(answer, e)] for e in ("chunks", "even")]
    [[0.1, 0.2], [0.05, 0.05, 0.067, 0.067, 0.067]]
    """
    known_expansion(expansion)
    times, counts = timeline.token_times_s, timeline.token_counts
    if counts and min(counts) > 0 and (expansion == "chunks" or max(counts) == 1):
        return list(map(sub, times[1:], times))
    gaps: list[float] = []
    before_s: float | None = None
    for at_s, tokens in timeline.chunks:
        if before_s is not None:
            gap_s = at_s - before_s
            gaps.extend([gap_s / tokens] * tokens if expansion == "even" else [gap_s])
        if expansion == "burst":
            gaps.extend([0.0] * (tokens - 1))
        before_s = at_s
    return gaps


@dataclass(frozen=True, eq=False)
class RequestTable:
    """Many requests, one array a column, all of the same length; in seconds on one clock.

    `sent_s`: the clock's start (of the user's first attempt, where there were several);
    `first_token_s`, `last_token_s`: NaN where there was none; `output_tokens`: tokens that
    arrived; `status`: the numbers of `Status`, all FINISHED if left out; `prompt_tokens`,
    `scheduled_s` (intended sending): optional; `end_s`: when a request that did not finish was
    over (a finished one leaves with its last token; by default a rejected one at once, an
    UNFINISHED one never); `degraded`: true for answers of a lesser kind (shortened, from a
    smaller model).

    Raises ValueError with name, index and value where a finished request lacks a token, where
    time runs backwards by more than a microsecond, or where lengths differ.

    >>> table = RequestTable([0.0, 1.0], [0.2, math.nan], [0.4, math.nan], [5, 0],
    ...                      status=[Status.FINISHED, Status.REJECTED])
    >>> table.finished.tolist()
    [True, False]
    """

    sent_s: FloatArray
    first_token_s: FloatArray
    last_token_s: FloatArray
    output_tokens: IntArray
    status: npt.NDArray[np.integer] | None = None
    prompt_tokens: IntArray | None = None
    scheduled_s: FloatArray | None = None
    end_s: FloatArray | None = None
    degraded: BoolArray | None = None

    def __post_init__(self) -> None:
        columns: dict[str, npt.NDArray[np.generic]] = {}
        for name in ("sent_s", "first_token_s", "last_token_s", "scheduled_s", "end_s"):
            if getattr(self, name) is not None:
                columns[name] = _column(name, getattr(self, name), np.float64)
        for name in ("output_tokens", "prompt_tokens"):
            if getattr(self, name) is not None:
                columns[name] = _column(name, getattr(self, name), np.int64)
        size = columns["sent_s"].size
        status = np.zeros(size, np.int8) if self.status is None else self.status
        columns["status"] = _column("status", status, np.int8)
        if self.degraded is not None:
            columns["degraded"] = _column("degraded", self.degraded, np.bool_)
        for name, array in columns.items():
            if array.size != size:
                raise ValueError(
                    f"{name} has {array.size} entries but sent_s has {size}; give one a request"
                )
            object.__setattr__(self, name, array)
        _check_table(self)

    @classmethod
    def trusted(cls, **columns: Any) -> RequestTable:
        """Return a table of columns that are known to be sound, and of the right types.

        Checks would take longer than the steps of a short run. What is left out is None.
        """
        table: RequestTable = object.__new__(cls)
        table.__dict__.update(dict.fromkeys(cls.__dataclass_fields__), **columns)
        return table

    @property
    def size(self) -> int:
        """How many requests were offered."""
        return int(self.sent_s.size)

    @cached_property
    def finished(self) -> BoolArray:
        """True for each request whose answer is complete."""
        assert self.status is not None
        return np.asarray(self.status == Status.FINISHED)

    @cached_property
    def left_s(self) -> FloatArray:
        """When each request left the system; +∞ for those that did not by the end of the run."""
        assert self.status is not None
        if self.finished.all():
            return self.last_token_s
        over = math.nan if self.end_s is None else self.end_s
        left = np.where(self.finished, self.last_token_s, over)
        unknown = np.isnan(left)
        if not unknown.any():
            return left
        left = np.where(unknown & (self.status == Status.UNFINISHED), np.inf, left)
        left = np.where(unknown & (self.status == Status.REJECTED), self.sent_s, left)
        lost = np.isnan(left)
        if lost.any():
            index = int(lost.argmax())
            raise ValueError(
                f"end_s[{index}] is not known for a request that is "
                f"{Status(self.status[index]).name}; give end_s, when it left the system"
            )
        return left

    def only(self, chosen: BoolArray) -> RequestTable:
        """Return the table of the requests where `chosen` is true."""
        columns: dict[str, Any] = {name: getattr(self, name) for name in self.__dataclass_fields__}
        rows: dict[str, Any] = {n: None if c is None else c[chosen] for n, c in columns.items()}
        return RequestTable.trusted(**rows)


def _column(name: str, values: object, kind: type[np.generic]) -> npt.NDArray[np.generic]:
    """Return a read-only view (no copy where the type already fits) of a flat column."""
    try:
        given = np.asarray(values)
        if given.dtype.kind not in "iufb" and given.size:
            raise TypeError(f"it holds {given.dtype}")
        if kind in (np.int64, np.int8) and given.dtype.kind == "f":
            bad = ~(given == np.floor(given))
            if bad.any():
                index = int(bad.argmax())
                raise ValueError(f"{name}[{index}]={given[index]} is not whole")
        array = given.astype(kind, copy=False).view()
    except (TypeError, OverflowError) as error:
        raise ValueError(f"{name} is no list of numbers: {error}") from None
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}; give one number a request")
    array.setflags(write=False)
    return array


def _check_table(table: RequestTable) -> None:
    """Look at everything at once, and for the culprit only if there is one."""
    assert table.status is not None
    if table.size == 0:
        return
    sent, first, last, tokens = (
        table.sent_s,
        table.first_token_s,
        table.last_token_s,
        table.output_tokens,
    )
    _each("sent_s", sent, np.abs(sent) <= LATEST_S, "is no time; give finite seconds")
    if table.status.min() < 0 or table.status.max() > max(Status):
        known = (table.status >= 0) & (table.status <= max(Status))
        _each("status", table.status, known, f"is no Status; they go from 0 to {max(Status):d}")
    unfinished = ~table.finished
    sound = (first >= sent - NOISE_S) & (last >= first - NOISE_S) & (last <= LATEST_S)
    sound &= tokens >= 1
    if not (sound | unfinished).all() or tokens.min() < 0:
        _each(
            "output_tokens",
            tokens,
            tokens >= np.where(unfinished, 0, 1),
            "is too few: a finished answer has at least one token; set its status to FAILED",
        )
        _each(
            "first_token_s",
            first,
            unfinished | (first >= sent - NOISE_S),
            "is not at or after sent_s, though the request is finished",
        )
        _each(
            "last_token_s",
            last,
            unfinished | ((last >= first - NOISE_S) & (last <= LATEST_S)),
            "is not at or after first_token_s, though the request is finished",
        )
    if table.scheduled_s is not None:
        fits = table.scheduled_s <= sent + NOISE_S
        _each("scheduled_s", table.scheduled_s, fits, "is not at or before sent_s")
    if table.end_s is not None:
        fits = np.isnan(table.end_s) | (table.end_s >= sent - NOISE_S)
        _each("end_s", table.end_s, fits, "comes before sent_s")


def _each(name: str, column: npt.NDArray[Any], fits: BoolArray, fault: str) -> None:
    if not fits.all():
        index = int((~fits).argmax())
        raise ValueError(f"{name}[{index}]={column[index]} {fault}")


def check_timelines(timelines: object) -> None:
    """Raise ValueError unless it is a list or tuple of `RequestTimeline`."""
    if not isinstance(timelines, Sequence) or isinstance(timelines, str):
        raise ValueError(
            f"timelines is of type {type(timelines).__name__}; give a list of RequestTimeline"
        )
    for index, one in enumerate(timelines):
        if not isinstance(one, RequestTimeline):
            raise ValueError(
                f"timelines[{index}] is of type {type(one).__name__}; give a RequestTimeline"
            )


def as_table(timelines: Sequence[RequestTimeline]) -> RequestTable:
    """Return the requests' own columns, for everything that does not need single gaps.

    Raises ValueError where an entry is no RequestTimeline.

    >>> as_table([RequestTimeline(0, 0, (0.2,), (3,), 0.2, prompt_tokens=9)]).output_tokens.tolist()
    [3]
    """

    check_timelines(timelines)

    def times(values: list[float | None]) -> FloatArray:
        return np.array([math.nan if v is None else v for v in values], dtype=np.float64)

    return RequestTable(
        sent_s=times([t.sent_s for t in timelines]),
        first_token_s=times([t.first_token_s for t in timelines]),
        last_token_s=times([t.last_token_s for t in timelines]),
        output_tokens=np.array([t.output_tokens for t in timelines], dtype=np.int64),
        status=np.array([t.status for t in timelines], dtype=np.int8),
        prompt_tokens=np.array([t.prompt_tokens for t in timelines], dtype=np.int64),
        scheduled_s=times([t.scheduled_s for t in timelines]),
        end_s=times([t.end_s for t in timelines]),
    )
