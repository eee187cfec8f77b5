"""Random timelines for the tests of metrics and conventions, on a grid of milliseconds."""

from __future__ import annotations

from hypothesis import strategies as st

from course.serving.requests.metrics import RequestTimeline

ERRORS = (
    None, None, None, "HTTP 500", "timed out after 30 s", "rejected: queue full", "cancelled",
)  # fmt: skip


@st.composite
def timelines(draw: st.DrawFn, errors: tuple[str | None, ...] = ERRORS) -> RequestTimeline:
    """One request; a success has at least one token, some chunks carry none, some several."""

    def wait_s(largest_ms: int = 2000) -> float:
        return draw(st.integers(0, largest_ms)) / 1000

    error = draw(st.sampled_from(errors))
    scheduled_s = wait_s(5000)
    sent_s = scheduled_s + draw(st.sampled_from((0.0, 0.0, 0.05, 0.3)))
    counts = draw(st.lists(st.sampled_from((0, 1, 1, 1, 2, 5)), max_size=8))
    if error is None and not any(counts):
        counts = [*counts, 1]
    at_s, times = sent_s, []
    for _ in counts:
        at_s += wait_s()
        times.append(at_s)
    return RequestTimeline(
        scheduled_s=scheduled_s,
        sent_s=sent_s,
        token_times_s=tuple(times),
        token_counts=tuple(counts),
        end_s=at_s + wait_s(100),
        prompt_tokens=draw(st.integers(0, 5000)),
        error=error,
    )


def runs(min_size: int = 0, max_size: int = 12) -> st.SearchStrategy[list[RequestTimeline]]:
    """Some requests, in any order of sending."""
    return st.lists(timelines(), min_size=min_size, max_size=max_size)
