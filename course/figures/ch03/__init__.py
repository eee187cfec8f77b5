"""Pictures of notebook 03, one module each; their numbers come from elsewhere."""
