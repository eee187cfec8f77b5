"""Notebook 04's pictures; what they show is simulated elsewhere."""
