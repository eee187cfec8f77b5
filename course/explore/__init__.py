"""The course's explorers by name, each one call; what a shell is lives in ``course.ui``."""

from course.explore.ch02 import hockey_stick

__all__ = ["hockey_stick"]
