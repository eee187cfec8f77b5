"""Opens a film of a run as an animation in a notebook, and in a page without a kernel.

`watch` is what a notebook calls. What moves is decided in `film.py` and drawn by `watch.js`.
"""

from __future__ import annotations

import base64
import gzip
import html
import uuid
from functools import cache
from pathlib import Path

import anywidget
import traitlets

from course.serving.engine import Run, ServiceRun
from course.ui.film import Film, film_of
from course.words import seconds

MODULE = Path(__file__).with_name("watch.js")


class Watch(anywidget.AnyWidget):  # type: ignore[misc]
    """A live animation of one film.

    `moment_s`, `speed` and `playing` follow the player, and move it when they are set. When
    `asked` changes, the player answers in `drawn`: its moment, its size, and under "bodies" one
    list each of those who are drawn (number of the sending, place, seat, tokens in the cache,
    emitted tokens, KV blocks, 1 if the client has gone, and x, y, width, height in pixels).
    """

    _esm = MODULE
    film = traitlets.Bytes().tag(sync=True)
    name = traitlets.Unicode().tag(sync=True)
    moment_s = traitlets.Float().tag(sync=True)
    speed = traitlets.Float().tag(sync=True)
    playing = traitlets.Bool(False).tag(sync=True)
    asked = traitlets.Int(0).tag(sync=True)
    drawn = traitlets.Dict().tag(sync=True)

    def __init__(self, source: Film, title: str, from_s: float, speed: float | None) -> None:
        self.source = source
        packed = source.pack({"title": title, "from_s": from_s, "speed": speed})
        super().__init__(
            film=packed, name=uuid.uuid4().hex, moment_s=from_s, speed=speed or 0.0, drawn={}
        )

    def __repr__(self) -> str:
        return in_words(self.source)

    def _ipython_display_(self) -> None:
        """Show the widget, and behind it the same for where no kernel answers.

        The page of the second plays only where the widget does not: in a notebook that was
        reopened, in an exported page. It is why the arrays are in the file once more, packed.
        """
        from IPython.display import display

        # without a front end there may be no widget, only its words
        display(super()._repr_mimebundle_()[0], raw=True)
        page = {"text/html": self.page(), "text/plain": repr(self)}
        display(page, raw=True)

    def page(self, *, patience_ms: int = 1200) -> str:
        """Return the animation as HTML that needs no kernel, no network and nothing else.

        It waits `patience_ms` for the widget of the same name to come to life, and steps back.
        """
        text = base64.b64encode(gzip.compress(self.film, mtime=0)).decode()
        words = html.escape(in_words(self.source))
        place = f"watch-{self.name}"
        return (
            f'<div id="{place}"><p>{words} Run this cell to see it move.</p></div>\n'
            f'<script type="module">\n{_module()}\n'
            f'play(document.getElementById("{place}"), "{self.name}", "{text}", {patience_ms});\n'
            "</script>"
        )


@cache
def _module() -> str:
    """The module's text; it holds no closing tag of its own element."""
    return MODULE.read_text(encoding="utf-8")


def in_words(film: Film) -> str:
    """Return in one sentence what a film shows, for who cannot see it."""
    requests = len(set(film.bodies.request.tolist()))
    again = film.bodies.request.size - requests
    sent = f"{requests:,} requests" if requests != 1 else "one request"
    retries = f", {again:,} times sent again," if again else ""
    return (
        f"An animation of {sent}{retries} at a server with {film.seat_limit:,} "
        f"seat{'s' if film.seat_limit != 1 else ''}: "
        f"{film.steps.end_s.size:,} steps in {seconds(film.end_s - film.start_s)}."
    )


def watch(
    run: Run | ServiceRun,
    *,
    title: str = "A server at work",
    from_s: float | None = None,
    speed: float | None = None,
) -> Watch:
    """Open a run as an animation: who arrives, waits, sits, is refused, leaves, step by step.

    `run`: what simulate, simulate_closed or simulate_service returned. `title`: stands above it.
    `from_s`: the moment at which it opens, the first arrival if left out. `speed`: seconds of the
    run in a second, 0.01 … 100; left out, the whole of it takes about forty seconds.

    Raises ValueError for what is no such run, a moment outside it, or a speed out of range.

    >>> from course import LinearStepCost, Workload, simulate
    >>> watch(simulate(Workload([0.0], [9], [3]), LinearStepCost(fixed_s=1.0)))
    An animation of one request at a server with 64 seats: 3 steps in 3.00 s.
    """
    film = film_of(run)
    first_s = float(film.bodies.sent_s.min()) if film.bodies.sent_s.size else film.start_s
    moment_s = first_s if from_s is None else float(from_s)
    if not film.start_s <= moment_s <= film.end_s:
        raise ValueError(
            f"from_s={from_s!r} is outside the run; give {film.start_s:g} … {film.end_s:g} s"
        )
    if speed is not None and not 0.01 <= speed <= 100:
        raise ValueError(f"speed={speed!r} is out of range; give 0.01 … 100")
    return Watch(film, title, moment_s, speed)
