"""What must hold for every explorer of the course: a new one is tested by being there."""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text

from course import explore
from course.ui import Explorer
from course.ui.parameters import Choice, Slider, Toggle, changed, controls_of
from course.ui.shell import Shell, show
from course.ui.svg import LayeredSvg
from course.words import lead_and_rest
from tests.lanes import by_lane, examples
from tests.ui.explorers import every_explorer, explorers_in_files, jumps

EXPLORERS = every_explorer()
ONE = pytest.mark.parametrize("explorer", EXPLORERS.values(), ids=EXPLORERS.keys())


def opened(explorer: Explorer, preset: str | None = None, **values: object) -> Shell:
    return show(explorer, preset, predict=False, **values)


def drawn_paths(svg: str) -> list[str]:
    """The `d` of every path in the data layer that goes anywhere."""
    root = ET.fromstring(svg)
    space = "{http://www.w3.org/2000/svg}"
    (data,) = [g for g in root.iter(f"{space}g") if g.get("class") == "course-data"]
    paths = [p.get("d", "") for p in data.iter(f"{space}path")]
    return [d for d in paths if len(re.findall(r"[ML]", d)) >= 2]


def values_of(control: Slider | Choice | Toggle) -> st.SearchStrategy:
    if isinstance(control, Slider):
        if control.whole:
            return st.integers(int(control.low), int(control.high))
        return st.floats(control.low, control.high, allow_nan=False)
    if isinstance(control, Choice):
        return st.sampled_from([value for _, value in control.options])
    return st.booleans()


def extremes_of(control: Slider | Choice | Toggle) -> list:
    if isinstance(control, Slider):
        kind = int if control.whole else float
        return [kind(control.low), kind(control.high)]
    if isinstance(control, Choice):
        return [value for _, value in control.options]
    return [False, True]


@ONE
def test_every_parameter_says_what_it_is(explorer: Explorer) -> None:
    for name, control in controls_of(explorer.parameters).items():
        assert control.label, name
        assert len(control.help) > 10, name
        if isinstance(control, Slider):
            assert control.low < control.high
            assert control.check(name, getattr(explorer.parameters(), name)) is not None


@ONE
def test_presets_have_stories_and_questions(explorer: Explorer) -> None:
    assert len(explorer.presets) >= 2
    assert len({preset.name for preset in explorer.presets}) == len(explorer.presets)
    for preset in explorer.presets:
        assert len(preset.story) > 20
        assert preset.ask.rstrip().endswith("?")


def states_to_read(explorer: Explorer) -> list[Any]:
    """The defaults and every preset; in longer lanes the ends of every range too."""
    states = [explorer.state(), *(explorer.state(p.name) for p in explorer.presets)]
    if by_lane(quick=False, whole=False, deep=True):
        for name, control in controls_of(explorer.parameters).items():
            states += [changed(explorer.state(), {name: end}) for end in extremes_of(control)]
    return states


@pytest.mark.slow
@ONE
def test_what_is_said_at_once_is_read_at_a_glance(explorer: Explorer) -> None:
    """Nobody reads eighty words under a picture that moves; thirty hold the numbers that count."""
    for state in states_to_read(explorer):
        words = explorer.narrate(explorer.result(state))
        lead, rest = lead_and_rest(words)
        assert len(lead.split()) <= 30, lead
        assert re.search(r"\d", lead), f"no number is said at once: {lead}"
        assert len(f"{lead} {rest}".split()) == len(words.split()), "a word was lost"


@ONE
def test_presets_lie_where_a_hand_can_put_the_sliders(explorer: Explorer) -> None:
    """The browser moves a slider to its next step: another value would no longer be the preset."""
    for state in (explorer.state(), *(explorer.state(p.name) for p in explorer.presets)):
        for name, control in controls_of(explorer.parameters).items():
            if isinstance(control, Slider):
                steps = (getattr(state, name) - control.low) / control.step
                assert abs(steps - round(steps)) < 1e-6, (name, getattr(state, name))


@ONE
def test_every_preset_draws_and_speaks(explorer: Explorer) -> None:
    sentences = set()
    presets = explorer.presets[: by_lane(quick=2, whole=None, deep=None)]
    for preset in presets:
        shell = opened(explorer, preset.name)
        assert drawn_paths(shell.svg), f"{preset.name}: nothing is drawn"
        assert re.search(r"\d", shell.sentence), f"{preset.name}: a sentence without a number"
        assert not re.search(r"\bnan\b|\binf\b|None", shell.sentence), shell.sentence
        sentences.add(shell.sentence)
        shell.close()
    assert len(sentences) == len(presets), "two presets say the same"


@pytest.mark.slow
@ONE
@settings(
    max_examples=examples(4), deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(data=st.data())
def test_any_combination_draws_and_speaks(explorer: Explorer, data: st.DataObject) -> None:
    chosen = {n: data.draw(values_of(c), n) for n, c in controls_of(explorer.parameters).items()}
    shell = opened(explorer)
    shell.set_state(**chosen)
    assert shell.parameters == explorer.state(**chosen)
    assert not re.search(r"\bnan\b|\binf\b|None", shell.sentence)
    ET.fromstring(shell.svg)
    shell.close()


@pytest.mark.slow
@ONE
def test_every_extreme_draws_and_every_control_matters(explorer: Explorer) -> None:
    """A slider that moves nothing teaches that it does not matter; one at its end may not break."""
    shell = opened(explorer)
    start = shell.parameters
    for name, control in controls_of(explorer.parameters).items():
        seen = set()
        for value in extremes_of(control):
            shell._apply(changed(start, {name: value}))
            assert not re.search(r"\bnan\b|\binf\b|None", shell.sentence), (name, value)
            svg = shell.svg
            ET.fromstring(svg)
            seen.add((re.sub(r"c\d+-|#?[a-z]*[0-9a-f]{10}", "", svg), shell.sentence))
        assert len(seen) >= 2, f"{name} changes nothing"
    shell.close()


@ONE
def test_a_greyed_out_control_makes_no_difference(explorer: Explorer) -> None:
    """Or a reader is kept from a dial that matters."""
    controls = controls_of(explorer.parameters)
    for state in (explorer.state(), *(explorer.state(p.name) for p in explorer.presets)):
        shown = explorer.narrate(explorer.result(state))
        for name in explorer.idle(state):
            for value in extremes_of(controls[name]):
                moved = changed(state, {name: value})
                assert explorer.narrate(explorer.result(moved)) == shown, (state, name, value)


@pytest.mark.slow
@ONE
def test_the_line_of_python_rebuilds_the_state(explorer: Explorer) -> None:
    from course import explore

    shell = opened(explorer, explorer.presets[-1].name)
    again = eval(shell.as_python(), {"explore": explore})
    assert again.parameters == shell.parameters
    shell.close()
    again.close()


@pytest.mark.slow
@ONE
def test_numbers_can_be_had_as_a_table(explorer: Explorer) -> None:
    shell = opened(explorer)
    frame = shell.to_frame()
    assert len(frame) > 0
    assert frame.columns.is_unique
    shell.close()


@ONE
def test_the_same_state_computes_once(explorer: Explorer) -> None:
    assert explorer.result(explorer.parameters()) is explorer.result(explorer.parameters())


@ONE
def test_results_hold_no_surprises(explorer: Explorer) -> None:
    """A result is a frozen value: nothing that was drawn from it may change under a table."""
    result = explorer.result(explorer.parameters())
    assert dataclasses.is_dataclass(result)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(result, dataclasses.fields(result)[0].name, None)


@pytest.mark.slow
@ONE
def test_the_still_picture_carries_an_alternative_text(explorer: Explorer) -> None:
    shell = opened(explorer)
    root = ET.fromstring(shell.svg)
    space = "{http://www.w3.org/2000/svg}"
    assert root.get("role") == "img"
    named = {root.find(f"{space}title").get("id"), root.find(f"{space}desc").get("id")}
    assert set(root.get("aria-labelledby").split()) == named
    assert shell.sentence in root.find(f"{space}desc").text
    assert "<style" not in shell.svg, "a style inside a picture would restyle the whole page"
    shell.close()


@ONE
def test_guess_is_asked_drawn_and_named(explorer: Explorer) -> None:
    if explorer.prediction is None:
        pytest.skip("this explorer asks for no guess")
    shell = opened(explorer, explorer.presets[0].name)
    answer = explorer.prediction.answer(shell.result)
    assert answer is not None
    assert math.isfinite(answer)
    assert explorer.prediction.question(shell.result).rstrip().endswith("?")
    shell.commit(2 * answer)
    assert "by a factor of 2" in shell._sentence.value
    shell.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    "present",
    [pytest.param(False, id="page", marks=pytest.mark.deep), pytest.param(True, id="present")],
)
@ONE
def test_no_words_leave_the_picture(explorer: Explorer, present: bool) -> None:
    """Cut-off words are what a projector shows first; DejaVu's widths are those of the browser."""
    for preset in explorer.presets:
        shell = show(explorer, preset.name, predict=False, present=present)
        figure = shell.drawing.figure
        canvas = FigureCanvasAgg(figure)
        canvas.draw()
        width, height = figure.get_size_inches() * figure.dpi
        for text in every_text(figure):
            box = text.get_window_extent()
            inside = box.x0 > -1 and box.y0 > -1 and box.x1 < width + 1 and box.y1 < height + 1
            assert inside, f"{preset.name}: {text.get_text()!r} leaves the picture"
        shell.close()


def every_text(figure: Any) -> list[Any]:
    found = []
    for axes in figure.axes:
        if axes.get_visible():
            left, bottom, right, top = axes.bbox.extents
            for text in axes.findobj(Text):
                if not (text.get_visible() and text.get_text().strip()):
                    continue
                # Ticks beyond the limits are made but not drawn.
                x, y = text.get_window_extent().get_points().mean(axis=0)
                ticks = [*axes.get_xticklabels(), *axes.get_yticklabels()]
                outside = not (left - 1 <= x <= right + 1 or bottom - 1 <= y <= top + 1)
                if text in ticks and outside:
                    continue
                found.append(text)
    found += [t for legend in figure.legends for t in legend.get_texts()]
    assert len(found) > 10
    return found


@pytest.mark.slow
@ONE
def test_the_frame_that_was_kept_is_the_one_that_would_be_drawn_anew(explorer: Explorer) -> None:
    # A panel that is kept too long shows old numbers on its axes beside new data.
    shell = opened(explorer)
    for move in jumps(shell, 10, seed=4):
        shell.set_state(**move)
        anew = LayeredSvg(shell.drawing)
        anew._salt = shell._svg._salt
        assert shell._svg.frame_element() == anew.frame_element()
    shell.close()


def test_every_explorer_is_in_the_registry() -> None:
    """An explorer that the registry does not name can be opened and is tested by nothing."""
    named = set(map(id, EXPLORERS.values()))
    for place, explorer in explorers_in_files().items():
        assert id(explorer) in named, (
            f"{place} is not in the registry; add its line to course/explore/__init__.pyi"
        )
    for folder in {path.parent for path in Path(explore.__file__).parent.rglob("*.py")}:
        assert (folder / "__init__.py").exists(), f"{folder} has no __init__.py; add one"


def test_every_explorer_is_called_by_the_name_it_gives() -> None:
    """The line of Python that an explorer offers must open that explorer."""
    for name in explore.__all__:
        one = getattr(explore, name)
        if isinstance(one, Explorer):
            assert one.call == f"explore.{name}"


def test_an_unknown_explorer_is_answered_with_the_nearest_name() -> None:
    """A slip of a letter must not end in a bare traceback."""
    with pytest.raises(AttributeError, match="did you mean 'hockey_stick'"):
        _ = explore.hockey_stik  # type: ignore[attr-defined]


@ONE
def test_an_explorer_s_signature_and_help_are_its_parameters(explorer: Explorer) -> None:
    """Shift-Tab in a notebook is where a student looks for what can be set."""
    signature = inspect.signature(explorer)
    defaults = explorer.parameters()
    for name, control in controls_of(explorer.parameters).items():
        parameter = signature.parameters[name]
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY
        assert parameter.default == getattr(defaults, name)
        assert f"    {name}: {control.help}" in explorer.__doc__
    assert list(signature.parameters)[:3] == ["preset", "predict", "present"]
    for preset in explorer.presets:
        assert preset.name in explorer.__doc__


def test_ipython_completes_an_explorer_s_parameters() -> None:
    """Nobody remembers `service_rate_per_s` letter for letter."""
    from IPython.core.completer import provisionalcompleter
    from IPython.core.interactiveshell import InteractiveShell

    shell = InteractiveShell.instance()
    shell.user_ns["explore"] = explore
    shell.Completer.use_jedi = False
    for line, wanted in (
        ("explore.hockey_stick(serv", "service_rate_per_s="),
        ("explore.hock", "hockey_stick"),
    ):
        with provisionalcompleter():
            found = {one.text for one in shell.Completer.completions(line, len(line))}
        assert any(text.endswith(wanted) for text in found), found
    InteractiveShell.clear_instance()
