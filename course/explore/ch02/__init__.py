"""Explorers of notebook 02, one module each; the queue formulas live in ``course.serving``."""
