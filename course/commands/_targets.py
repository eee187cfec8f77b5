"""What a command reads and where it may write, tried before the work; nothing is kept here."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path

from course.paths import WORK


def check_sources(paths: Iterable[Path], *, folder: bool = False) -> None:
    """Raise ValueError for the first path that is not there, or is of the wrong kind.

    >>> check_sources([Path("lode.csv")])
    Traceback (most recent call last):
    ...
    ValueError: there is no file lode.csv; name one that is there
    """
    for path in paths:
        kind, other = ("folder", "file") if folder else ("file", "folder")
        if os.path.isdir(path) if folder else os.path.exists(path) and not os.path.isdir(path):
            continue
        from course.serving.files import printable_path

        name = printable_path(str(path))
        if os.path.exists(path):
            raise ValueError(f"{name} is a {other}; name a {kind}")
        raise ValueError(f"there is no {kind} {name}; name one that is there")


def check_targets(inputs: Mapping[Path, str], outputs: Mapping[str, Path | None]) -> None:
    """Raise ValueError where a result could not, or must not, go.

    `inputs`: what is read, with words for it; `outputs`: the files to be written, by their option.
    What lies in ``work/`` is a person's, and is not written over.

    >>> check_targets({Path("load.csv"): "the file of --trace"}, {"--csv": Path("load.csv")})
    Traceback (most recent call last):
    ...
    ValueError: --csv=load.csv is the file of --trace; give another name
    """
    taken = {_place(path): words for path, words in inputs.items()}
    for option, path in outputs.items():
        if path is None:
            continue
        place = _place(path)
        if place in taken:
            raise ValueError(f"{option}={path} is {taken[place]}; give another name")
        if not os.path.isdir(os.path.dirname(place)):
            raise ValueError(f"{option}={path}: there is no folder {path.parent}; make it first")
        if os.path.isdir(place):
            raise ValueError(f"{option}={path} is a folder; give a file's name")
        if os.path.lexists(place) and Path(place).is_relative_to(_place(WORK)):
            raise ValueError(
                f"{option}={path} is there already, and nothing in {WORK.name}/ is written over; "
                "give another name"
            )
        _try(place, f"{option}={path}")
        taken[place] = f"the file of {option}"


def make_folder(option: str, path: Path) -> None:
    """Make the folder for what a command will write, and write there; ValueError if that fails."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _cannot(f"{option}={path}", error) from None
    _try(os.path.join(path, f".{secrets.token_hex(8)}.tmp"), f"{option}={path}")


def _try(place: str, asked: str) -> None:
    """Open a file for writing as the work's end will; what is in it stays, what is new goes."""
    there = os.path.lexists(place)
    if there and not os.path.isfile(place):  # a device or a pipe
        return
    try:
        with open(place, "ab"):
            pass
        if not there:
            os.remove(place)
    except OSError as error:
        raise _cannot(asked, error) from None


def _cannot(asked: str, error: OSError) -> ValueError:
    return ValueError(f"{asked} cannot be written ({error.strerror}); give another place")


def _place(path: Path) -> str:
    # Path.resolve raises RuntimeError for a link that leads to itself
    return os.path.realpath(path)
