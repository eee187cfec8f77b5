"""Explorers of notebook 01, one module each; every metric lives in ``course.serving``."""
