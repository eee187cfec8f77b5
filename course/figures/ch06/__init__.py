"""The pictures of notebook 06's explorers; they compute nothing."""
