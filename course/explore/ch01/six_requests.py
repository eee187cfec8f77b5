"""The lesson's six requests A to F, and what may be changed about them; nothing is measured here.

Times are worked out in whole milliseconds, as the lesson prints them, and divided once at the end,
so that the unchanged requests are the printed ones to the last bit.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from course.serving.requests import RequestTimeline

NAMES: Final = "ABCDEF"

# (intended sending in ms, its chunks as (ms, tokens), prompt tokens); D and E have rules of their
# own below.
_A: Final = ((200, 1), (250, 1), (300, 1), (350, 1))
_B: Final = ((500, 1), (600, 2), (800, 3))
_C: Final = ((450, 1),)
_D_BEFORE_STALL: Final = ((490, 1), (510, 1), (530, 1))
_E_ANSWER: Final = ((760, 1), (800, 1), (840, 1), (880, 1))
_F: Final = {
    "two chunks": ((1000, 4), (1100, 4)), "one chunk": ((1100, 8),), "one token": ((1000, 1),),
}  # fmt: skip
_END_AFTER_LAST_MS: Final = 10
_E_FAILED_AT_MS: Final = 560
# Of the tokens in a first chunk nothing is known but that they were there in time.
_FIRST_CHUNK_GAP_MS: Final = 25

Chunks = tuple[tuple[float, int], ...]


@dataclass(frozen=True)
class Edits:
    """What differs from the printed requests; the defaults are the printed ones, times in ms.

    `tokens_per_chunk`: 0 leaves the chunks as they are, k regroups every answer into chunks of k
    tokens (the last may have fewer). `d_delay_ms`: how long the client holds D back after it
    should have been sent. `d_stall_ms`: the gap before D's fourth token. `a_last_ms`: when A's
    last token comes. `f_answer`: "two chunks" (of four), "one chunk" (of eight), "one token".
    """

    tokens_per_chunk: int = 0
    f_answer: str = "two chunks"
    e_fails: bool = True
    d_delay_ms: float = 110.0
    d_stall_ms: float = 300.0
    a_last_ms: float = 400.0


def six_requests(edits: Edits) -> tuple[RequestTimeline, ...]:
    """Return the requests A to F with `edits` put in.

    >>> [request.output_tokens for request in six_requests(Edits())]
    [5, 6, 1, 5, 0, 8]
    >>> six_requests(Edits(tokens_per_chunk=4))[1].token_counts
    (4, 2)
    """
    d_sent = 300 + edits.d_delay_ms
    d_chunks: Chunks = tuple((d_sent + at, tokens) for at, tokens in _D_BEFORE_STALL)
    d_fourth = d_chunks[-1][0] + edits.d_stall_ms
    d_chunks += ((d_fourth, 1), (d_fourth + 20, 1))
    size = edits.tokens_per_chunk
    return (
        _answer(0, 0, (*_A, (edits.a_last_ms, 1)), 100, size),
        _answer(100, 100, _B, 200, size),
        _answer(200, 200, _C, 50, size),
        _answer(300, d_sent, d_chunks, 400, size),
        _failed_e() if edits.e_fails else _answer(460, 460, _E_ANSWER, 300, size),
        _answer(900, 900, _F[edits.f_answer], 100, size),
    )


def _failed_e() -> RequestTimeline:
    sent_s = 460 / 1000
    return RequestTimeline(sent_s, sent_s, (), (), _E_FAILED_AT_MS / 1000, 300, error="HTTP 500")


def _answer(
    scheduled: float, sent: float, chunks: Chunks, prompt_tokens: int, size: int
) -> RequestTimeline:
    if size:
        chunks = regrouped(chunks, size)
    return RequestTimeline(
        scheduled_s=scheduled / 1000,
        sent_s=sent / 1000,
        token_times_s=tuple(at / 1000 for at, _ in chunks),
        token_counts=tuple(tokens for _, tokens in chunks),
        end_s=(chunks[-1][0] + _END_AFTER_LAST_MS) / 1000,
        prompt_tokens=prompt_tokens,
    )


def regrouped(chunks: Chunks, size: int) -> Chunks:
    """Return the same tokens in chunks of `size`, each sent when its last token is there.

    The server's tokens keep their times, which a chunk of several hides: they are taken to be
    evenly spaced since the chunk before (the first chunk's at the pace of the second).

    >>> regrouped(((500, 1), (600, 2), (800, 3)), 3)
    ((600.0, 3), (800.0, 3))
    """
    times: list[float] = []
    first_at, first_tokens = chunks[0]
    pace: float = _FIRST_CHUNK_GAP_MS
    if len(chunks) > 1:
        pace = (chunks[1][0] - first_at) / chunks[1][1]
    times += [first_at - pace * back for back in reversed(range(first_tokens))]
    for (before, _), (at, tokens) in pairwise(chunks):
        times += [at - (at - before) * back / tokens for back in reversed(range(tokens))]
    groups = [times[start : start + size] for start in range(0, len(times), size)]
    return tuple((float(group[-1]), len(group)) for group in groups)
