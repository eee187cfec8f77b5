"""Where a command may write; looked at before the work is done, and nothing is written here."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from course.paths import WORK


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
        taken[place] = f"the file of {option}"


def _place(path: Path) -> str:
    # Path.resolve raises RuntimeError for a link that leads to itself
    return os.path.realpath(path)
