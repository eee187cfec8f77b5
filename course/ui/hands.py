"""What core controls cannot do by themselves in a browser: names for sliders, the full screen."""

from __future__ import annotations

from pathlib import Path

import anywidget
import traitlets

from course.ui import theme

MODULE = Path(__file__).with_name("hands.js")


class Hands(anywidget.AnyWidget):  # type: ignore[misc]
    """A button for the full screen, which also names the sliders of the explorer it stands in.

    Where its module is not run, the explorer works without it.
    """

    _esm = MODULE
    words = traitlets.Unicode(theme.FULL_SCREEN).tag(sync=True)
    help = traitlets.Unicode("Fill the screen with this explorer; Escape gives it back").tag(
        sync=True
    )
