"""Pictures of notebook 00, one module each; their numbers come from elsewhere."""
