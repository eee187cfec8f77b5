"""Explorers of notebook 10, one module each; what was measured is read in ``course.measure``."""
