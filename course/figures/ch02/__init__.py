"""Pictures of notebook 02, one module each; their numbers come from elsewhere."""
