"""What is said of a file that cannot be used: `ResultFileError`; no file is opened here."""

from __future__ import annotations

from course.serving.files.texts import printable


class ResultFileError(ValueError):
    """A file that cannot be used; `what` says why, `place` where in it, `path` which file.

    >>> str(ResultFileError("ends inside an object", "line 3", "run.jsonl"))
    'run.jsonl, line 3: ends inside an object'
    """

    def __init__(self, what: str, place: str = "", path: str = "") -> None:
        self.what, self.place, self.path = what, place, path
        where = ", ".join(printable(part, 300) for part in (path, place) if part)
        super().__init__(printable(f"{where}: {what}" if where else what, 1200))

    def of_file(self, path: str) -> ResultFileError:
        """Return the same error with the file's name."""
        return ResultFileError(self.what, self.place, path)
