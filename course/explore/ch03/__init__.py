"""Explorers of notebook 03, one module each; prices are in ``course.serving``."""
