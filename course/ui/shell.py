"""Builds an explorer's controls, curtain, picture and sentence as core ipywidgets; no lesson."""

from __future__ import annotations

import html
import math
import os
import re
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import ipywidgets as widgets

from course.ui import theme
from course.ui.demonstration import Demonstration, Guess, Preset
from course.ui.filmed import Filmed
from course.ui.hands import Hands
from course.ui.parameters import (
    Choice,
    Control,
    Slider,
    as_python,
    changed,
    controls_of,
    typed_number,
)
from course.ui.svg import LayeredSvg
from course.words import lead_and_rest, rounded

if TYPE_CHECKING:
    import pandas as pd

P = TypeVar("P")
R = TypeVar("R")

# News of a running play button and of its slider may reach the kernel this many ticks apart.
_TICKS_APART = 5

# More dials than this, and the later ones are folded away: all shall stand beside the picture.
_DIALS_SHOWN = 7
_DIALS_OF_A_PRESET = 2


_PATIENCE_S = 3.0


_open: dict[str, tuple[str | None, list[Shell[Any, Any]]]] = {}


def show(
    explorer: Demonstration[P, R],
    preset: str | None = None,
    *,
    predict: bool = True,
    present: bool | None = None,
    **values: Any,
) -> Shell[P, R]:
    """Open `explorer` at `preset` (or its defaults) with `values` put in, as a live widget.

    `predict` starts with the curtain closed where the explorer has a question and somebody can
    click; `present` (default: the environment variable COURSE_PRESENT) opens it in large type.
    Raises ValueError on an unknown preset, an unknown parameter or a value outside its range.
    """
    if present is None:
        present = os.environ.get("COURSE_PRESENT", "") == "1"
    with _word_of_a_long_wait():
        shell = Shell(explorer, preset, explorer.state(preset, **values), predict, present)
    _replace_in_cell(shell)
    return shell


class Shell(Generic[P, R]):
    """A live explorer: set its state or read its numbers from Python while it is on the screen."""

    def __init__(
        self,
        explorer: Demonstration[P, R],
        preset: str | None,
        parameters: P,
        predict: bool,
        present: bool,
    ) -> None:
        self.explorer = explorer
        self._parameters = parameters
        self._initial = parameters
        self._guess: Guess | None = None
        self._asks = predict and explorer.prediction is not None and _somebody_can_click()
        self._closed = self._asks
        self._name = uuid.uuid4().hex[:12]
        self._moving = False
        self._players: dict[str, Any] = {}
        # Large type from the start: a picture beside its dials is seldom 600 pixels wide.
        self.drawing = explorer.drawing(True)
        self._svg = LayeredSvg(self.drawing)
        self._shown = ("", "", False)
        self._initial_preset = preset
        self._build(preset, present)
        self._redraw()

    # --- what a script or a test uses -------------------------------------------------------

    @property
    def parameters(self) -> P:
        """The current parameter set."""
        return self._parameters

    @property
    def result(self) -> R:
        """What the model computed for the current parameter set."""
        return self.explorer.result(self._parameters)

    @property
    def sentence(self) -> str:
        """The sentence for the current parameter set, also while the curtain hides it."""
        return self.explorer.narrate(self.result)

    @property
    def svg(self) -> str:
        """The picture as it is on the screen."""
        title, description, with_data = self._shown
        return self._svg.text(title, description, with_data=with_data)

    @property
    def curtain_closed(self) -> bool:
        """Whether the curve and the sentence are still hidden."""
        return self._closed

    def set_state(self, **values: Any) -> None:
        """Move to the given parameter values, as if the controls had been moved."""
        self._apply(changed(self._parameters, values))

    def use_preset(self, name: str) -> None:
        """Move to a named preset, which asks its own question: the curtain closes again."""
        preset = self.explorer.preset(name)
        self._new_question()
        self._apply(self.explorer.state(preset.name), preset)

    def commit(self, value: float) -> None:
        """Commit a guess and open the curtain."""
        prediction = self.explorer.prediction
        if prediction is None:
            raise ValueError(f"{self.explorer.call} asks for no guess")
        if not math.isfinite(value):
            raise ValueError(f"value={value!r} is no guess; give a finite number")
        result, guess = self.result, float(value)
        answer, unit = prediction.answer(result), prediction.unit_of(result)
        point = prediction.point(result, guess) if answer is not None else None
        self._guess = Guess(guess, answer, unit, point)
        self._problem = ""
        self._open_curtain()

    def skip(self) -> None:
        """Open the curtain without a guess."""
        self._problem = ""
        self._open_curtain()

    def reset(self) -> None:
        """Go back to the state in which the explorer was opened, its question included."""
        self._new_question()
        preset = self.explorer.preset(self._initial_preset) if self._initial_preset else None
        self._apply(self._initial, preset)

    def to_frame(self) -> pd.DataFrame:
        """The numbers behind the picture."""
        return self.explorer.frame(self.result)

    def as_python(self) -> str:
        """One line of Python that opens this explorer in this state."""
        return as_python(self.explorer.call, self._parameters)

    def close(self) -> None:
        """Free the widgets."""
        self.film.close()
        for widget in self._all:
            widget.close()
        self._all.clear()

    def __repr__(self) -> str:
        return f"{self.as_python()}\n{self.sentence}"

    def _ipython_display_(self) -> None:
        """Show the live view, and behind it the still picture for where no kernel answers.

        The second is seen only while the first is not there or its kernel has gone: in a notebook
        that was reopened, after a restart, in an exported page.
        """
        from IPython.display import display

        bundle = self._repr_mimebundle_()
        page = {name: bundle[name] for name in ("text/html", "text/plain")}
        del bundle["text/html"]
        display(bundle, raw=True)
        display(page, raw=True)

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The live view, and beside it a still picture for readers that have no kernel."""
        return {
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.view.model_id,
            },
            "text/html": self._still(),
            "text/plain": self.sentence,
        }

    def _still(self) -> str:
        """The picture with its sentence, and how to bring it back to life."""
        picture = self._svg.text(self.explorer.title, f"{self.explorer.alt} {self.sentence}")
        return still_picture(picture, self.sentence, self._name)

    # --- building ---------------------------------------------------------------------------

    def _build(self, preset: str | None, present: bool) -> None:
        self._all: list[widgets.Widget] = []
        controls = controls_of(self.explorer.parameters)
        self.controls = {name: self._control(name, c) for name, c in controls.items()}
        self.presets = self._make(
            widgets.Dropdown,
            options=[theme.OWN_SETTINGS, *(p.name for p in self.explorer.presets)],
            value=self.explorer.preset(preset).name if preset else theme.OWN_SETTINGS,
            description="Preset",
            layout=widgets.Layout(width="auto", flex="1 1 260px"),
        )
        self._reset = self._button(theme.RESET, "Back to the state in which this was opened")
        self._again = self._button(
            theme.CURTAIN_AGAIN, "Close the curtain and guess for these settings"
        )
        self._present = self._make(
            widgets.ToggleButton,
            value=present,
            description=theme.PRESENT,
            tooltip="Large type and thick lines, for a projector",
            layout=widgets.Layout(width="auto"),
        )
        self._full_screen = self._make(Hands)
        self._story = self._make(widgets.HTML)
        # Two pictures, one over the other: a move sends the upper one alone.
        self._frame = self._make(widgets.HTML)
        self._data = self._make(widgets.HTML)
        self._figure = self._make(widgets.Box, [self._frame, self._data])
        self._figure.add_class("course-layers")
        self._fit()
        self._sentence = self._make(widgets.HTML, layout=widgets.Layout(width="100%"))
        self._wordy = self._make(
            widgets.ToggleButton,
            description=theme.MORE_WORDS,
            tooltip="Show everything that can be said about these settings",
            layout=widgets.Layout(width="120px", flex="none"),
        )
        self._code = self._make(
            widgets.Text,
            disabled=False,
            description="As Python",
            layout=widgets.Layout(width="100%"),
            tooltip="Copy this line into a cell to open the explorer in this state",
        )
        self._build_curtain()
        self.film = Filmed(
            self.explorer, self._button(theme.WATCH, theme.WATCH_HELP), self._make(widgets.VBox)
        )
        self._problem = ""
        self.view = self._arrange()
        self._fold(preset, present)
        if present:
            self.view.add_class("course-present")
        self.presets.observe(self._on_preset, "value")
        self._present.observe(self._on_present, "value")
        self._more.observe(self._on_more, "value")
        self._wordy.observe(self._on_wordy, "value")
        self._reset.on_click(lambda _: self.reset())
        self._again.on_click(lambda _: self._on_again())
        self._show_story(self.explorer.preset(preset) if preset else None)

    def _build_curtain(self) -> None:
        self._question = self._make(widgets.HTML)
        self._unit = self._make(widgets.HTML)
        self._answer = self._make(
            widgets.Text,
            placeholder="a number",
            description="My guess",
            layout=widgets.Layout(width="220px"),
        )
        commit = self._button(theme.CURTAIN_BUTTON, "Commit the guess and open the curtain")
        commit.button_style = "primary"
        skip = self._button(theme.CURTAIN_SKIP, "Open the curtain without a guess")
        commit.on_click(lambda _: self._on_commit())
        skip.on_click(lambda _: self._on_skip())
        self._answer.on_msg(self._on_typed)
        row = self._make(
            widgets.HBox,
            [self._answer, self._unit, commit, skip],
            layout=widgets.Layout(flex_flow="row wrap", align_items="center"),
        )
        self._curtain = self._make(widgets.VBox, [self._question, row])
        self._curtain.add_class("course-curtain")

    def _arrange(self) -> widgets.VBox:
        live = f".course-live-{self._name}:not(.jupyter-widgets-disconnected)"
        title = self._make(
            widgets.HTML,
            value=theme.STYLE
            + f"<style>body:has({live}) .course-still-{self._name}{{display:none}}</style>"
            + '<div class="course-title" role="heading" aria-level="3">'
            + f"{html.escape(self.explorer.title)}</div>",
        )
        bar = self._make(
            widgets.HBox,
            [
                self.presets,
                self._reset,
                self._again,
                self._present,
                self.film.button,
                self._full_screen,
            ],
            layout=widgets.Layout(flex_flow="row wrap"),
        )
        self._rows = {name: self._row(name, control) for name, control in self.controls.items()}
        self._more = self._make(
            widgets.ToggleButton,
            description=theme.MORE_DIALS,
            tooltip="Show the settings that are seldom moved, and this state as a line of Python",
            layout=widgets.Layout(width="auto"),
        )
        self._panel = self._make(
            widgets.VBox,
            layout=widgets.Layout(flex="1 1 220px", min_width="200px", max_width="420px"),
        )
        self._panel.add_class("course-controls")
        scroll = self._make(widgets.Box, [self._figure], layout=widgets.Layout(width="100%"))
        scroll.add_class("course-scroll")
        said = self._make(widgets.HBox, [self._sentence, self._wordy])
        picture = self._make(
            widgets.VBox,
            [self._curtain, scroll, said],
            layout=widgets.Layout(flex="3 1 520px", min_width="0"),
        )
        body = self._make(
            widgets.HBox, [self._panel, picture], layout=widgets.Layout(flex_flow="row wrap")
        )
        body.add_class("course-body")
        view = self._make(
            widgets.VBox, [title, bar, self._story, body, self._code, self.film.place]
        )
        view.add_class("course-shell")
        view.add_class(f"course-live-{self._name}")
        return view

    def _fold(self, preset: str | None, present: bool) -> None:
        """Put the dials that matter beside the picture, and the others behind a button."""
        names = list(self._rows)
        if present:
            about = self.explorer.preset(preset).values if preset else {}
            idle = self.explorer.idle(self._parameters)
            main = [name for name in names if name in about and name not in idle]
            main = (main or names)[:_DIALS_OF_A_PRESET]
        else:
            main = names if len(names) <= _DIALS_SHOWN else names[: _DIALS_SHOWN - 1]
        folded = [self._rows[name] for name in names if name not in main]
        shown = folded if self._more.value else []
        children = (*(self._rows[name] for name in main), self._more, *shown)
        if self._panel.children != children:
            self._panel.children = children
        _set_visible(self._code, self._more.value)

    def _fit(self) -> None:
        """Let the picture be as wide as its screen is high enough for, and never too small."""
        width, height = self.drawing.figure.get_size_inches()
        room = f"calc((100vh - var(--course-around)) * {width / height:.3f})"
        self._figure.layout.width = f"max({self.drawing.least_px}px, min(100%, {room}))"

    def _control(self, name: str, control: Control) -> widgets.Widget:
        value = getattr(self._parameters, name)
        wide = widgets.Layout(width="98%", height="auto", flex_flow="row wrap")
        common: dict[str, Any] = {"layout": wide, "tooltip": control.help}
        if isinstance(control, Slider):
            unit = f" ({control.unit})" if control.unit else ""
            common |= {
                "description": control.label + unit,
                "continuous_update": not control.slow,
                "value": value,
            }
            kind = widgets.IntSlider if control.whole else widgets.FloatSlider
            if not control.whole:
                common["readout_format"] = f".{_decimals(control.step)}f"
            widget = self._make(
                kind, min=control.low, max=control.high, step=control.step, **common
            )
        elif isinstance(control, Choice):
            widget = self._make(
                widgets.SelectionSlider if control.as_slider else widgets.Dropdown,
                options=[words for words, _ in control.options],
                value=control.words(value),
                description=control.label,
                **common,
            )
        else:
            widget = self._make(
                widgets.Checkbox, value=value, description=control.label, indent=False, **common
            )
        widget.observe(self._on_control, "value")
        return widget

    def _row(self, name: str, widget: Any) -> Any:
        """A control as it stands in the panel: alone, or with its play button below it."""
        control = controls_of(self.explorer.parameters)[name]
        if not isinstance(control, Slider) or control.tick_ms is None:
            return widget
        button = self._make(
            widgets.Play,
            min=control.low, max=control.high, step=control.step, value=widget.value,
            interval=control.tick_ms, show_repeat=False, tooltip=f"Play: {control.label}",
        )  # fmt: skip
        # Tied in the browser: the slider moves, and tells the kernel as a hand would. Not the other
        # way: a dragged slider would first send the button's news, and the picture would wait.
        self._make(widgets.jsdlink, (button, "value"), (widget, "value"))
        self._players[name] = button
        # The buttons bear signs alone.
        words = self._make(widgets.HTML, value=theme.PLAY)
        bar = self._make(widgets.HBox, [button, words], layout=widgets.Layout(align_items="center"))
        return self._make(widgets.VBox, [widget, bar])

    def _make(self, kind: Any, *args: Any, **options: Any) -> Any:
        widget = kind(*args, **options)
        # The layout and style of a widget are models of their own, and would outlive it.
        parts = [getattr(widget, name, None) for name in ("layout", "style")]
        self._all += [widget, *(part for part in parts if isinstance(part, widgets.Widget))]
        return widget

    def _button(self, words: str, help: str) -> Any:
        return self._make(
            widgets.Button, description=words, tooltip=help, layout=widgets.Layout(width="auto")
        )

    # --- events -----------------------------------------------------------------------------

    def _on_control(self, _: Any) -> None:
        if self._moving:
            return
        controls = controls_of(self.explorer.parameters)
        values = {name: _read(control, self.controls[name]) for name, control in controls.items()}
        self._parameters = changed(self._parameters, values)
        self._mark_own_settings()
        self._redraw()
        for name, button in self._players.items():
            behind = abs(button.value - self.controls[name].value) / button.step
            if not button.playing or behind > _TICKS_APART:
                button.value = self.controls[name].value

    def _on_preset(self, change: Any) -> None:
        if not self._moving and change["new"] != theme.OWN_SETTINGS:
            self.use_preset(change["new"])

    def _on_present(self, change: Any) -> None:
        (self.view.add_class if change["new"] else self.view.remove_class)("course-present")
        self._fold(self._chosen, change["new"])

    def _on_more(self, _: Any) -> None:
        self._fold(self._chosen, self._present.value)

    def _on_wordy(self, change: Any) -> None:
        (self.view.add_class if change["new"] else self.view.remove_class)("course-wordy")

    def _on_typed(self, _: Any, content: Any, __: Any) -> None:
        if content.get("event") == "submit":
            self._on_commit()

    def _on_commit(self) -> None:
        try:
            self.commit(typed_number(self._answer.value))
        except ValueError as error:
            self._problem = str(error)
            self._ask()
            self._answer.focus()
        else:
            self._again.focus()

    def _on_skip(self) -> None:
        self.skip()
        self._again.focus()  # the button that was pressed is gone, and the keyboard's place with it

    def _on_again(self) -> None:
        self._close_curtain()
        self._answer.focus()

    @property
    def _chosen(self) -> str | None:
        """The preset that is shown, if it is one."""
        return None if self.presets.value == theme.OWN_SETTINGS else self.presets.value

    def _mark_own_settings(self) -> None:
        chosen = self.presets.value
        if chosen != theme.OWN_SETTINGS and self._parameters != self.explorer.state(chosen):
            self._moving = True
            self.presets.value = theme.OWN_SETTINGS
            self._moving = False

    def _apply(self, parameters: P, preset: Preset[P] | None = None) -> None:
        self._parameters = parameters
        self._moving = True
        try:
            for name, control in controls_of(self.explorer.parameters).items():
                value = getattr(parameters, name)
                shown = control.words(value) if isinstance(control, Choice) else value
                self.controls[name].value = shown
            for name, button in self._players.items():
                button.value = self.controls[name].value
            self.presets.value = preset.name if preset else theme.OWN_SETTINGS
        finally:
            self._moving = False
        self._show_story(preset)
        if preset is not None:
            self._fold(preset.name, self._present.value)
        self._redraw()

    # --- drawing ----------------------------------------------------------------------------

    def _show_story(self, preset: Preset[P] | None) -> None:
        self._story.value = (
            '<div class="course-story"><span class="course-tale">'
            f"{html.escape(preset.story)} </span>"
            f"<b>Ask:</b> {html.escape(preset.ask)}</div>"
            if preset
            else ""
        )

    def _open_curtain(self) -> None:
        self._closed = False
        self._redraw()

    def _close_curtain(self) -> None:
        self._new_question(ask=True)
        self._redraw()

    def _new_question(self, *, ask: bool | None = None) -> None:
        """Forget the guess; close the curtain, unless this explorer was opened without one."""
        self._guess = None
        self._problem = ""
        self._answer.value = ""
        self._closed = self._asks if ask is None else ask

    def _ask(self) -> None:
        prediction = self.explorer.prediction
        assert prediction is not None
        words = html.escape(prediction.question(self.result))
        self._unit.value = html.escape(prediction.unit_of(self.result))
        note = f'<div class="course-problem" role="alert">{html.escape(self._problem)}</div>'
        self._question.value = (
            f"<div><b>Before you look:</b> {words}</div>{note if self._problem else ''}"
        )

    def _redraw(self) -> None:
        result = self.result
        title = self.explorer.title
        self.drawing.update(result, self._guess.point if self._guess else None)
        show_again = self.explorer.prediction is not None and not self._closed
        _set_visible(self._again, show_again)
        _set_visible(self._curtain, self._closed)
        if self._closed:
            self._ask()
            self._show_picture(title, self.explorer.alt, with_data=False)
            self._sentence.value = _sentence(theme.CURTAIN_CLOSED)
        else:
            words = self.explorer.narrate(result)
            verdict = self._verdict()
            self._show_picture(title, f"{self.explorer.alt} {words}", with_data=True)
            self._sentence.value = _sentence(words, verdict)
        self._code.value = self.as_python()
        self.film.follow(self._parameters, self._closed)
        idle = self.explorer.idle(self._parameters)
        for name, control in self.controls.items():
            if control.disabled != (name in idle):
                control.disabled = name in idle

    def _show_picture(self, title: str, description: str, *, with_data: bool) -> None:
        self._shown = (title, description, with_data)
        self._frame.value = self._svg.frame_element()
        self._data.value = self._svg.data_element(title, description, with_data=with_data)

    def _verdict(self) -> str:
        """How far the guess was off, for as long as there is one."""
        if self._guess is None:
            return ""
        guess, answer, unit = self._guess.value, self._guess.answer, self._guess.unit
        if answer is None:
            return f"You guessed {guess:g} {unit}; at those settings there is no such number."
        head = (
            f"You guessed {rounded(guess)} {unit}; at those settings it is {rounded(answer)} {unit}"
        )
        if guess > 0 and answer > 0:
            factor = max(guess / answer, answer / guess)
            if factor < 1.1:
                return f"{head}: within a tenth."
            off = "high" if guess > answer else "low"
            return f"{head}: too {off} by a factor of {rounded(factor, 2)}."
        return f"{head}: off by {rounded(abs(guess - answer))} {unit}."


def _read(control: Control, widget: Any) -> Any:
    """Return what a control is set to, without the rounding noise of the browser's slider."""
    if isinstance(control, Choice):
        return dict(control.options)[widget.value]
    if not isinstance(control, Slider):
        return widget.value
    value = min(max(widget.value, control.low), control.high)
    if control.whole:
        return round(value)
    return round(value, _decimals(control.step))


def _sentence(words: str, verdict: str = "") -> str:
    lead, rest = lead_and_rest(words)
    lead, rest, verdict = (_unbroken(text) for text in (lead, rest, verdict))
    extra = f"<div>{verdict}</div>" if verdict else ""
    more = f'<div class="course-rest">{rest}</div>' if rest else ""
    return (
        f'<div class="course-sentence"><div role="status" aria-live="polite">{lead}{extra}</div>'
        f"{more}</div>"
    )


def _unbroken(words: str) -> str:
    """Words as HTML, a number and its unit on one line."""
    return html.escape(re.sub(r"(?<=\d) (?=(?:ms|s|%)\b)", "\u00a0", words))


def still_picture(picture: str, sentence: str, name: str) -> str:
    """Return a picture with its words for where nothing can be moved, hidden by the live `name`."""
    lead, rest = (_unbroken(text) for text in lead_and_rest(sentence))
    more = f"<details><summary>{theme.MORE_WORDS}</summary>{rest}</details>" if rest else ""
    return (
        f'{theme.STILL_STYLE}<figure class="course-still course-still-{name}">{picture}'
        f"<figcaption>{lead}{more}<p><em>{theme.WAKE}</em></p></figcaption></figure>"
    )


def _decimals(step: float) -> int:
    """As many decimals as the step has."""
    return len(f"{step:.6f}".rstrip("0").split(".")[1])


def _set_visible(widget: Any, visible: bool) -> None:
    wanted = None if visible else "none"
    if widget.layout.display != wanted:
        widget.layout.display = wanted


def _somebody_can_click() -> bool:
    """Whether a person is likely to sit in front of the widget."""
    if os.environ.get("COURSE_CURTAIN", "") == "open":
        return False
    return _shell_parent() is not None


def _shell_parent() -> dict[str, Any] | None:
    """The message of the running cell, where this process is a notebook's kernel."""
    try:
        from IPython.core.getipython import get_ipython
    except ImportError:  # pragma: no cover - IPython comes with ipykernel
        return None
    ip = get_ipython()
    if ip is None or not hasattr(ip, "kernel"):
        return None
    parent: dict[str, Any] = ip.get_parent()
    return parent


def _replace_in_cell(shell: Shell[Any, Any]) -> None:
    """Close the explorers that an earlier run of the same cell left behind."""
    parent = _shell_parent()
    cell = (parent or {}).get("metadata", {}).get("cellId")
    if parent is None or cell is None:
        return
    run = parent.get("header", {}).get("msg_id")
    known_run, shells = _open.get(cell, (run, []))
    if known_run != run:
        for old in shells:
            old.close()
        shells = []
    _open[cell] = (run, [*shells, shell])


@contextmanager
def _word_of_a_long_wait() -> Iterator[None]:
    """Say, where a person waits, why the first picture may take a minute; unsay it afterwards."""
    if _shell_parent() is None:
        yield
        return
    from IPython.display import HTML, display

    said: list[Any] = []

    def say() -> None:
        said.append(display(HTML(f"<p>{theme.COMPILING}</p>"), display_id=uuid.uuid4().hex))

    timer = threading.Timer(_PATIENCE_S, say)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        for handle in said:
            handle.update(HTML(""))
