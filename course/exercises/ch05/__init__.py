"""The exercises of notebook 05, a file each; the registry finds them."""
