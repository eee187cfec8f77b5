"""Explorers of notebook 00, one module each; the simulator lives in ``course.serving``."""
