"""The explorers of notebook 06, one module each; they hold no widget and no model."""
