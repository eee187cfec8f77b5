"""The exercises of notebook 10, a file each; the registry finds them."""
