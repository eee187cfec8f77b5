"""The button that opens an explorer's own runs as an animation, and the place below for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from course.ui.demonstration import Demonstration

if TYPE_CHECKING:
    from course.ui.watch import Watch


class Filmed:
    """An animation of the same parameters as the picture above it, for as long as they stand."""

    def __init__(
        self, explorer: Demonstration[Any, Any], button: widgets.Button, place: widgets.VBox
    ) -> None:
        self._explorer = explorer
        self._state: tuple[Any, bool] | None = None
        self.button = button
        self.place = place
        self.animation: Watch | None = None
        button.on_click(lambda _: self.toggle())
        if explorer.filmed is None:
            button.layout.display = "none"

    def follow(self, parameters: Any, closed: bool) -> None:
        """Take note of the state above: what moved is no longer the film's, a curtain hides it."""
        if self._state == (parameters, closed):
            return
        self._state = (parameters, closed)
        self.button.disabled = closed
        self.close()

    def toggle(self) -> None:
        """Open the animation, or close it."""
        if self.animation is not None:
            self.close()
        elif self._state is not None and not self._state[1] and self._explorer.filmed is not None:
            runs = self._explorer.filmed(self._state[0])
            if runs:
                from course.ui.watch import watch

                self.animation = watch(runs, title=self._explorer.title)
                self.place.children = [self.animation]

    def close(self) -> None:
        """Free the animation."""
        if self.animation is not None:
            self.place.children = []
            self.animation.close()
            self.animation = None
