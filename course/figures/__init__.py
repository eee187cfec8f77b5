"""Figures: a result in, a matplotlib Figure out; nothing is computed here and no widget is made."""
