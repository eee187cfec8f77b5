"""The model: pure numbers, numpy in and numpy out; no plots and no widgets live here."""
