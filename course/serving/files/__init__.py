"""Strangers' files read bit by bit, within limits, whatever is in them; no layout is known here."""

from course.serving.files.errors import ResultFileError
from course.serving.files.fields import LARGEST, LONGEST_TOKENS, Fields, list_of_numbers
from course.serving.files.reading import BINARY_SIGNS, checked_path, json_values, lines
from course.serving.files.texts import excerpt, printable, printable_path

__all__ = [
    "BINARY_SIGNS",
    "LARGEST",
    "LONGEST_TOKENS",
    "Fields",
    "ResultFileError",
    "checked_path",
    "excerpt",
    "json_values",
    "lines",
    "list_of_numbers",
    "printable",
    "printable_path",
]
