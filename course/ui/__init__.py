"""The widget shell that every explorer uses; what one shows and computes lives elsewhere."""

from course.ui.explorer import Explorer, Guess, Prediction, Preset
from course.ui.parameters import choice, count, play, slider, stops, toggle

__all__ = [
    "Explorer",
    "Guess",
    "Prediction",
    "Preset",
    "choice",
    "count",
    "play",
    "slider",
    "stops",
    "toggle",
]
