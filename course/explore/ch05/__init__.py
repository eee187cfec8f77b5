"""Explorers of notebook 05, admission control; one module each."""
