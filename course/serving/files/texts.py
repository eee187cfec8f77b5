"""Makes strangers' texts fit to be shown in a message; what they say is not looked at."""

from __future__ import annotations


def printable(text: str, limit: int = 200) -> str:
    """Return text of a stranger's file as one short line that no terminal takes for a command.

    >>> printable("two" + chr(10) + "lines")
    'two lines'
    """
    if len(text) <= limit and text.isprintable():
        return text
    flat = "".join(c if c.isprintable() else " " for c in text[: limit + 1])
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def printable_path(path: str) -> str:
    """Return a path as any terminal and file can hold it; on a disk it may be no text.

    >>> printable_path("runs/" + chr(27) + "[2J.json")
    'runs/ [2J.json'
    """
    return printable(path, 4096)


def excerpt(text: str) -> str:
    """Return the beginning of a text in quotation marks, for a message."""
    return repr(printable(text, 40))
