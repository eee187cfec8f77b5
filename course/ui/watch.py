"""Opens a film of a run as an animation in a notebook, and in a page without a kernel.

`watch` is what a notebook calls. What moves is decided in `film.py` and drawn by `watch.js`.
"""

from __future__ import annotations

import base64
import gzip
import html
import uuid
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import anywidget
import traitlets

from course.serving.engine import Run, ServiceRun
from course.ui.film import Film, film_of, pack
from course.words import seconds

MODULE = Path(__file__).with_name("watch.js")


class Watch(anywidget.AnyWidget):  # type: ignore[misc]
    """A live animation of one film, or of several of which one is shown.

    `moment_s`, `speed`, `playing` and `shown` (which of the films) follow the player, and move it
    when they are set. When
    `asked` changes, the player answers in `drawn`: its moment, its size, and under "bodies" one
    list each of those who are drawn (number of the sending, place, seat, tokens in the cache,
    emitted tokens, KV blocks, 1 if the client has gone, and x, y, width, height in pixels).
    """

    _esm = MODULE
    reel = traitlets.Bytes().tag(sync=True)
    name = traitlets.Unicode().tag(sync=True)
    moment_s = traitlets.Float().tag(sync=True)
    speed = traitlets.Float().tag(sync=True)
    shown = traitlets.Int(0).tag(sync=True)
    playing = traitlets.Bool(False).tag(sync=True)
    asked = traitlets.Int(0).tag(sync=True)
    drawn = traitlets.Dict().tag(sync=True)

    def __init__(
        self, films: Mapping[str, Film], title: str, from_s: float, speed: float | None
    ) -> None:
        self.films = dict(films)
        packed = pack(films, {"title": title, "from_s": from_s, "speed": speed})
        super().__init__(
            reel=packed, name=uuid.uuid4().hex, moment_s=from_s, speed=speed or 0.0, drawn={}
        )

    @property
    def film(self) -> Film:
        """The film that is shown."""
        films = list(self.films.values())
        return films[int(self.shown)]

    def __repr__(self) -> str:
        return in_words(self.films)

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
        text = base64.b64encode(gzip.compress(self.reel, mtime=0)).decode()
        words = html.escape(in_words(self.films))
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


def in_words(films: Mapping[str, Film]) -> str:
    """Return in a sentence a film what they show, for who cannot see it.

    >>> in_words({})
    'An animation of nothing.'
    """
    if not films:
        return "An animation of nothing."
    if len(films) == 1:
        return f"An animation of {_in_words(next(iter(films.values())))}."
    told = "; ".join(f"{name}: {_in_words(film)}" for name, film in films.items())
    return f"An animation of {len(films)} runs. {told[0].upper()}{told[1:]}."


def _in_words(film: Film) -> str:
    requests = len(set(film.bodies.request.tolist()))
    again = film.bodies.request.size - requests
    sent = f"{requests:,} requests" if requests != 1 else "one request"
    retries = f", {again:,} times sent again," if again else ""
    seats = f"{film.seat_limit:,} seats" if film.seat_limit != 1 else "one seat"
    steps = f"{film.steps.end_s.size:,} steps in {seconds(film.end_s - film.start_s)}"
    return f"{sent}{retries} at a server with {seats}: {steps}"


def watch(
    run: Run | ServiceRun | Mapping[str, Run | ServiceRun],
    *,
    title: str = "A server at work",
    from_s: float | None = None,
    speed: float | None = None,
) -> Watch:
    """Open a run as an animation: who arrives, waits, sits, is refused, leaves, step by step.

    `run`: what simulate, simulate_closed or simulate_service returned; or several by name, of
    which one is shown at a time, on one clock. `title`: stands above it. `from_s`: the moment at
    which it opens, the first arrival if left out. `speed`: seconds of the run in a second,
    0.01 … 100; left out, the whole of it takes about forty seconds.

    Raises ValueError for what is no such run, a moment outside it, or a speed out of range.

    >>> from course import LinearStepCost, Workload, simulate
    >>> watch(simulate(Workload([0.0], [9], [3]), LinearStepCost(fixed_s=1.0)))
    An animation of one request at a server with 64 seats: 3 steps in 3.00 s.
    """
    runs = run if isinstance(run, Mapping) else {"": run}
    if not runs:
        raise ValueError("run={} holds no run; give one, or several by name")
    films = {str(name): film_of(one) for name, one in runs.items()}
    start_s = min(film.start_s for film in films.values())
    end_s = max(film.end_s for film in films.values())
    sent_s = [float(film.bodies.sent_s.min()) for film in films.values() if film.bodies.sent_s.size]
    moment_s = min(sent_s, default=start_s) if from_s is None else float(from_s)
    if not start_s <= moment_s <= end_s:
        raise ValueError(f"from_s={from_s!r} is outside the run; give {start_s:g} … {end_s:g} s")
    if speed is not None and not 0.01 <= speed <= 100:
        raise ValueError(f"speed={speed!r} is out of range; give 0.01 … 100")
    return Watch(films, title, moment_s, speed)
