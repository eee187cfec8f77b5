"""The per-request lists that vLLM and SGLang write in detail; summaries are read elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from course.serving.files import Fields, ResultFileError, list_of_numbers
from course.serving.requests import RequestTimeline
from course.serving.results.nouns import Finding
from course.serving.results.pieces import Room, error_text, spread, timeline


@dataclass(frozen=True)
class Detail:
    """The requests of one run, whether their start is known, and what had to be assumed."""

    timelines: tuple[RequestTimeline, ...]
    starts_known: bool
    findings: tuple[Finding, ...]


def read_detail(fields: Fields, room: Room, *, first_chunk_takes_rest: bool) -> Detail | None:
    """Return the requests of the parallel lists in the file, or None where there are none.

    `ttfts`, `itls`, `start_times`, `latencies` and `queue_times` are seconds. Only the sum of an
    answer's tokens is known: each gap is one token where `first_chunk_takes_rest` (SGLang's own
    API repeats the gap for each token, so the rest came with the first chunk), otherwise tokens
    are spread evenly over the chunks. Raises ResultFileError for lists of different lengths, for
    what is no possible request, and for more of them than the file has `room` for.
    """
    ttfts, itls = fields.numbers("ttfts"), fields.items("itls")
    outputs, prompts = fields.counts("output_lens"), fields.counts("input_lens")
    if ttfts is None or itls is None or outputs is None:
        return None
    size = len(ttfts)
    prompts = [0] * size if prompts is None else prompts
    errors = fields.items("errors")
    errors = [""] * size if errors is None else errors
    starts, waits = fields.numbers("start_times"), fields.numbers("queue_times")
    ends = fields.numbers("latencies")
    lists: dict[str, list[Any] | list[float] | None] = {
        "itls": itls, "output_lens": outputs, "input_lens": prompts, "errors": errors,
        "start_times": starts, "queue_times": waits, "latencies": ends,
    }  # fmt: skip
    for name, values in lists.items():
        if values is not None and len(values) != size:
            sizes = f"has {len(values)} entries but ttfts has {size}"
            raise ResultFileError(sizes, fields.where(name))
    room.take(fields.where("ttfts"), requests=size)
    zero_s = min(starts) if starts else 0.0
    uneven = 0
    timelines = []
    for i in range(size):
        place = f"{fields.place}, request {i}"
        gaps = _gaps(itls[i], place)
        tokens = outputs[i]
        error = _error(errors[i], tokens)
        arrived = error is None or ttfts[i] > 0
        counts = _counts(tokens, len(gaps) + 1, first_chunk_takes_rest) if arrived else ()
        uneven += len(counts) > 0 and tokens != len(counts)
        room.take(place, chunks=len(counts))
        sent_s = starts[i] - zero_s if starts else 0.0
        timelines.append(
            timeline(
                scheduled_s=sent_s - (waits[i] if waits else 0.0),
                sent_s=sent_s,
                ttft_s=ttfts[i],
                gaps_s=gaps if counts else (),
                counts=counts,
                end_s=sent_s + ends[i] if ends else None,
                prompt_tokens=prompts[i],
                error=error,
                place=place,
            )
        )
    return Detail(tuple(timelines), bool(starts), _assumed(uneven, bool(starts)))


def _gaps(value: Any, place: str) -> list[float]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise ResultFileError("holds no list of gaps in itls", place)
    return list_of_numbers(value, f"{place}, itls")


def _error(value: Any, tokens: int) -> str | None:
    if isinstance(value, str) and value:
        return error_text(value)
    return None if tokens else "an answer without a token"


def _counts(tokens: int, chunks: int, first_chunk_takes_rest: bool) -> tuple[int, ...]:
    if first_chunk_takes_rest and tokens >= chunks:
        return (tokens - chunks + 1, *[1] * (chunks - 1))
    return spread(tokens, chunks)


def _assumed(uneven: int, starts_known: bool) -> tuple[Finding, ...]:
    findings = []
    if uneven:
        several = "1 answer has" if uneven == 1 else f"{uneven:,} answers have"
        findings.append(
            Finding(
                "chunks",
                f"{several} not one token a chunk; the file does not say how many each chunk "
                "carried, so the tokens inside a chunk have no known gaps",
            )
        )
    if not starts_known:
        findings.append(
            Finding(
                "no-start-times",
                "the file has no start times: each request's clock begins at 0 here, and "
                "concurrency and rates cannot be recomputed",
            )
        )
    return tuple(findings)
