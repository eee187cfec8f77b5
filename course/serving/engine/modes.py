"""The ways to put requests into steps together, each a small named function; no step runs here."""

from __future__ import annotations

from dataclasses import dataclass

from course.serving._arguments import at_least, whole

NAMES = ("continuous", "single", "static", "windowed", "adaptive", "sglang")


@dataclass(frozen=True)
class Batching:
    """A way to batch: its name, and the batch size, the wait or the reserve where it has one.

    Made by the functions of this module, which say what each way does.
    """

    name: str
    batch_size: int | None = None
    window_s: float | None = None
    new_token_ratio: float | None = None


def continuous() -> Batching:
    """Return continuous batching: members join and leave between steps.

    >>> continuous().name
    'continuous'
    """
    return Batching("continuous")


def single() -> Batching:
    """Return one request at a time: continuous batching with one seat.

    >>> single().name
    'single'
    """
    return Batching("single")


def static(batch_size: int, window_s: float | None = None) -> Batching:
    """Return static batching: a batch is formed, prefilled, and decoded until its longest ends.

    An idle engine waits until `batch_size` requests wait or `window_s` seconds have passed since
    the first of them arrived. Without a window it waits for the whole batch, and the last,
    incomplete one starts when no arrival can complete it. Raises ValueError for a batch below 1
    or a negative window.

    >>> static(8, window_s=0.1)
    Batching(name='static', batch_size=8, window_s=0.1, new_token_ratio=None)
    """
    return Batching(
        "static",
        whole("batch_size", batch_size),
        None if window_s is None else at_least("window_s", window_s),
    )


def windowed(window_s: float) -> Batching:
    """Return continuous batching whose idle engine waits before its first step.

    It waits `window_s` seconds after the first arrival, or until all seats are asked for.

    >>> windowed(0.05).window_s
    0.05
    """
    return Batching("windowed", window_s=at_least("window_s", window_s))


def adaptive(window_s: float) -> Batching:
    """Return the windowed way that waits only while it is likely to pay.

    It goes on waiting as long as the arrivals of the last second promise at least one more within
    a window: their number times `window_s` is at least 1.

    >>> adaptive(0.05).window_s
    0.05
    """
    return Batching("adaptive", window_s=at_least("window_s", window_s))


def sglang(new_token_ratio: float = 0.7) -> Batching:
    """Return SGLang's way: prompts go first and alone, in pieces of the budget, several together.

    Decoding stands still meanwhile. A prompt is admitted where all its answer could still be held
    beside `new_token_ratio` times what the running answers may still need; where that was too
    little, the running request with the fewest tokens is retracted to the queue's tail. SGLang
    lowers its ratio from 0.7 while nobody is retracted; here it stays. Raises ValueError for a
    ratio outside 0 … 1.

    >>> sglang().new_token_ratio
    0.7
    """
    ratio = at_least("new_token_ratio", new_token_ratio)
    if ratio > 1:
        raise ValueError(f"new_token_ratio={new_token_ratio!r} is above 1; give a share of 0 … 1")
    return Batching("sglang", new_token_ratio=ratio)


def as_batching(value: object) -> Batching:
    """Return `value` as a `Batching`; the name alone will do where nothing else is needed.

    >>> as_batching("single")
    Batching(name='single', batch_size=None, window_s=None, new_token_ratio=None)
    >>> as_batching("static")
    Traceback (most recent call last):
    ...
    ValueError: batching='static' needs numbers; write modes.static(...), as modes.static(8)
    """
    if isinstance(value, Batching):
        return value
    if value == "continuous":
        return continuous()
    if value == "single":
        return single()
    if value == "sglang":
        return sglang()
    examples = {"static": "8", "windowed": "0.05", "adaptive": "0.05"}
    if isinstance(value, str) and value in examples:
        raise ValueError(
            f"batching={value!r} needs numbers; write modes.{value}(...), "
            f"as modes.{value}({examples[value]})"
        )
    raise ValueError(f"batching={value!r} is not known; give one of {', '.join(NAMES)}")
