"""Pictures of notebook 10, one module each; their numbers come from elsewhere."""
