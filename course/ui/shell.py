"""Builds an explorer's controls, curtain, picture and sentence as core ipywidgets; no lesson."""

from __future__ import annotations

import html
import math
import os
import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import ipywidgets as widgets

from course.ui import theme
from course.ui.demonstration import Demonstration, Guess, Preset
from course.ui.filmed import Filmed
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
from course.words import rounded

if TYPE_CHECKING:
    import pandas as pd

P = TypeVar("P")
R = TypeVar("R")

# News of a running play button and of its slider may reach the kernel this many ticks apart.
_TICKS_APART = 5

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
        self._closed = predict and explorer.prediction is not None and _somebody_can_click()
        self._moving = False
        self._players: dict[str, Any] = {}
        self.drawing = explorer.drawing(present)
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
        """Move to a named preset."""
        preset = self.explorer.preset(name)
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
        self._open_curtain()

    def skip(self) -> None:
        """Open the curtain without a guess."""
        self._open_curtain()

    def reset(self) -> None:
        """Go back to the state in which the explorer was opened."""
        self._guess = None
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

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        """The live view, and beside it a still picture for readers that have no kernel."""
        still = self._svg.text(self.explorer.title, f"{self.explorer.alt} {self.sentence}")
        return {
            "application/vnd.jupyter.widget-view+json": {
                "version_major": 2,
                "version_minor": 0,
                "model_id": self.view.model_id,
            },
            "text/html": f'<figure style="max-width:760px;margin:0">{still}'
            f"<figcaption>{html.escape(self.sentence)}</figcaption></figure>",
            "text/plain": self.sentence,
        }

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
        self._story = self._make(widgets.HTML)
        # Two pictures, one over the other: a move sends the upper one alone.
        self._frame = self._make(widgets.HTML)
        self._data = self._make(widgets.HTML)
        self._figure = self._make(
            widgets.Box, [self._frame, self._data], layout=widgets.Layout(width="100%")
        )
        self._figure.add_class("course-layers")
        self._sentence = self._make(widgets.HTML, layout=widgets.Layout(width="100%"))
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
        self.view = self._arrange()
        if present:
            self.view.add_class("course-present")
        self.presets.observe(self._on_preset, "value")
        self._present.observe(self._on_present, "value")
        self._reset.on_click(lambda _: self.reset())
        self._again.on_click(lambda _: self._close_curtain())
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
        skip.on_click(lambda _: self.skip())
        row = self._make(
            widgets.HBox,
            [self._answer, self._unit, commit, skip],
            layout=widgets.Layout(flex_flow="row wrap", align_items="center"),
        )
        self._curtain = self._make(widgets.VBox, [self._question, row])
        self._curtain.add_class("course-curtain")

    def _arrange(self) -> widgets.VBox:
        title = self._make(
            widgets.HTML,
            value=theme.STYLE
            + f'<div class="course-title">{html.escape(self.explorer.title)}</div>',
        )
        bar = self._make(
            widgets.HBox,
            [self.presets, self._reset, self._again, self._present, self.film.button],
            layout=widgets.Layout(flex_flow="row wrap"),
        )
        panel = self._make(
            widgets.VBox,
            [self._row(name, control) for name, control in self.controls.items()],
            layout=widgets.Layout(flex="1 1 220px", min_width="200px", max_width="420px"),
        )
        panel.add_class("course-controls")
        picture = self._make(
            widgets.VBox,
            [self._curtain, self._figure, self._sentence],
            layout=widgets.Layout(flex="3 1 520px", min_width="300px"),
        )
        body = self._make(
            widgets.HBox, [panel, picture], layout=widgets.Layout(flex_flow="row wrap")
        )
        view = self._make(
            widgets.VBox, [title, bar, self._story, body, self._code, self.film.place]
        )
        view.add_class("course-shell")
        return view

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
        self.drawing = self.explorer.drawing(change["new"])
        self._svg = LayeredSvg(self.drawing)
        (self.view.add_class if change["new"] else self.view.remove_class)("course-present")
        self._redraw()

    def _on_commit(self) -> None:
        try:
            self.commit(typed_number(self._answer.value))
        except ValueError as error:
            self._ask(problem=str(error))

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
        self._redraw()

    # --- drawing ----------------------------------------------------------------------------

    def _show_story(self, preset: Preset[P] | None) -> None:
        self._story.value = (
            f'<div class="course-story">{html.escape(preset.story)} '
            f"<b>Ask:</b> {html.escape(preset.ask)}</div>"
            if preset
            else ""
        )

    def _open_curtain(self) -> None:
        self._closed = False
        self._redraw()

    def _close_curtain(self) -> None:
        self._closed = True
        self._guess = None
        self._answer.value = ""
        self._redraw()

    def _ask(self, problem: str = "") -> None:
        prediction = self.explorer.prediction
        assert prediction is not None
        words = html.escape(prediction.question(self.result))
        self._unit.value = html.escape(prediction.unit_of(self.result))
        note = f'<div class="course-problem" role="alert">{html.escape(problem)}</div>'
        self._question.value = (
            f"<div><b>Before you look:</b> {words}</div>{note if problem else ''}"
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
    words, verdict = (
        re.sub(r"(?<=\d) (?=(?:ms|s|%)\b)", "\u00a0", text) for text in (words, verdict)
    )
    extra = f"<div>{html.escape(verdict)}</div>" if verdict else ""
    return (
        '<div class="course-sentence" role="status" aria-live="polite">'
        f"{html.escape(words)}{extra}</div>"
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
