"""The widget shell that every explorer uses; what one shows and computes lives elsewhere."""

from course.ui.demonstration import Guess, Prediction, Preset, Table
from course.ui.explorer import Explorer
from course.ui.parameters import choice, count, play, slider, stops, toggle

__all__ = [
    "Explorer",
    "Guess",
    "Prediction",
    "Preset",
    "Table",
    "choice",
    "count",
    "play",
    "slider",
    "stops",
    "toggle",
]
