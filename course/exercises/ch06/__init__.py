"""The exercises of notebook 06, a file each; the registry finds them."""
