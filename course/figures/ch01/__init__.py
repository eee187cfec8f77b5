"""Pictures of notebook 01, one module each; their numbers are computed elsewhere."""
