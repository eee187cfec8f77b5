"""Paths that commands are given: looked at before the work, or the work is lost."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn, get_args, get_type_hints

import pytest
import typer
from typer.models import OptionInfo
from typer.testing import CliRunner

from course.cli import app
from course.commands import _targets
from course.commands._targets import check_sources, check_targets, make_folder

pytestmark = pytest.mark.slow

ROLES = {
    ("simulate", "trace"): "file",
    ("simulate", "csv"): "written",
    ("simulate", "json"): "written",
    ("plan", "trace"): "file",
    ("plan", "json"): "written",
    ("plan", "page"): "written",
    ("knee", "files"): "file",
    ("knee", "svg"): "written",
    ("knee", "json"): "written",
    ("bench", "read"): "file",
    ("bench", "out"): "written",
    ("validate", "out"): "folder written",
    ("check", "notebooks"): "file",
    ("grade", "folder"): "folder",
    ("grade", "csv"): "written",
    ("audit", "files"): "file",
    ("lab", "work"): "desk",  # tests/test_desk.py
}
"""Every path that a command takes, and what it is for."""

ALSO = {"plan": ["--gpu", "H100-80GB-SXM", "--model", "Llama-3.1-8B", "--slo-ttft", "1"]}
"""What a command needs besides its paths."""

WORK = (
    "course.serving.traces.load_trace",
    "course.serving.load.measured_sweeps",
    "course.measure.run_benches",
    "course.serving.validation.validate",
    "course.serving.validation.replay",
    "course.exercises.grading.check_notebooks",
    "course.exercises.grading.grade_folder",
)
"""What must not begin."""


@dataclass(frozen=True)
class Parameter:
    """A path that a command takes: its option, "" for an argument, and whether it must be given."""

    option: str
    required: bool


def parameters(here: typer.Typer = app, above: str = "") -> Iterator[tuple[str, str, Parameter]]:
    """Every path that any command takes, read from the command line itself."""
    for group in here.registered_groups:
        assert group.typer_instance is not None
        yield from parameters(group.typer_instance, f"{above}{group.name} ")
    for command in here.registered_commands:
        function = command.callback
        assert function is not None
        name = above + (command.name or function.__name__)
        for argument, kind in get_type_hints(function, include_extras=True).items():
            base, *extras = get_args(kind) or [kind]
            if base is Path or Path in get_args(base):
                default = inspect.signature(function).parameters[argument].default
                is_option = isinstance(extras[0], OptionInfo)
                # in an annotation a name of its own stands where the default would
                own = extras[0].default
                named = own if isinstance(own, str) else f"--{argument.replace('_', '-')}"
                option = named if is_option else ""
                yield name, argument, Parameter(option, default is inspect.Parameter.empty)


PARAMETERS = {(name, argument): parameter for name, argument, parameter in parameters()}


def words_for(name: str, role: str, path: Path, files: Path) -> list[str]:
    """A command line that is right but for the path `role`."""
    given = {role: path}
    for (command, other), parameter in PARAMETERS.items():
        if command == name and other != role and parameter.required:
            given[other] = files if ROLES[command, other] == "folder" else files / "input.csv"
    words = [*name.split(), *ALSO.get(name, ())]
    for other, value in given.items():
        words += [*filter(None, [PARAMETERS[name, other].option]), str(value)]
    return words


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an input; nothing may be worked on."""

    def begun(*args: object, **options: object) -> NoReturn:
        raise AssertionError("the work has begun")

    for name in WORK:
        monkeypatch.setattr(name, begun)
    monkeypatch.setattr("course.measure.machine.need_torch", lambda: None)
    (tmp_path / "input.csv").write_text("users,tokens\n1,1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def refused(words: list[str]) -> str:
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 1, done.output
    if isinstance(done.exception, SystemExit):
        return done.output
    assert isinstance(done.exception, ValueError), repr(done.exception)
    return str(done.exception)


def of_role(*roles: str) -> list[tuple[str, str]]:
    return [key for key, role in ROLES.items() if role in roles]


def test_every_path_of_the_command_line_has_a_role_here() -> None:
    """A new command's paths are tried like the others'."""
    assert set(PARAMETERS) == set(ROLES)


@pytest.mark.parametrize(("name", "parameter"), of_role("file", "folder"))
def test_what_is_missing_is_said_plainly_and_at_once(
    files: Path, name: str, parameter: str
) -> None:
    """ "Holds no .ipynb", or a traceback's number, sends people looking in the wrong place."""
    words = refused(words_for(name, parameter, Path("lode.csv"), files))
    assert "lode.csv" in words
    kind = ROLES[name, parameter]
    assert f"there is no {kind}" in words or "there is no such file" in words
    assert "Errno" not in words


@pytest.mark.parametrize(("name", "parameter"), of_role("written"))
@pytest.mark.parametrize("fault", ["no folder", "a folder", "not allowed"])
def test_a_result_that_cannot_be_written_is_refused_before_the_work(
    files: Path, name: str, parameter: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Minutes of work were thrown away for a mistyped folder."""
    path = {"no folder": files / "lost" / "out.x", "a folder": files, "not allowed": files / "o"}
    if fault == "not allowed":
        monkeypatch.setattr(_targets, "open", not_allowed, raising=False)
    said = refused(words_for(name, parameter, path[fault], files))
    option = PARAMETERS[name, parameter].option
    assert said.startswith(f"{option}={path[fault]}")
    assert {"no folder": "no folder", "a folder": "is a folder"}.get(fault, "Permission") in said
    assert [one.name for one in files.iterdir()] == ["input.csv"]


@pytest.mark.parametrize(("name", "parameter"), of_role("folder written"))
def test_a_folder_that_cannot_be_written_is_refused_before_the_work(
    files: Path, name: str, parameter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for path in (files / "input.csv", files / "input.csv" / "in"):
        said = refused(words_for(name, parameter, path, files))
        assert said.startswith(f"--{parameter}={path} cannot be written")
    monkeypatch.setattr(_targets, "open", not_allowed, raising=False)
    assert "Permission" in refused(words_for(name, parameter, files / "new", files))


def test_replay_looks_at_its_table_before_the_work(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("course.paths.DATA", files / "lost")
    assert "no folder" in refused(["replay", "--write"])


def not_allowed(place: str, mode: str) -> NoReturn:
    raise PermissionError(13, "Permission denied", place)


def test_trying_a_place_leaves_it_as_it_was(tmp_path: Path) -> None:
    there = tmp_path / "old.csv"
    there.write_text("old", encoding="utf-8")
    check_targets({}, {"--csv": there, "--json": tmp_path / "new.json", "--svg": Path(os.devnull)})
    make_folder("--out", tmp_path / "a" / "b")
    assert there.read_text(encoding="utf-8") == "old"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["a", "b", "old.csv"]


def test_a_file_is_no_folder_and_a_folder_no_file(tmp_path: Path) -> None:
    there = tmp_path / "a.csv"
    there.touch()
    check_sources([there])
    check_sources([tmp_path], folder=True)
    with pytest.raises(ValueError, match=r"a\.csv is a file; name a folder"):
        check_sources([there], folder=True)
    with pytest.raises(ValueError, match="is a folder; name a file"):
        check_sources([there, tmp_path])
